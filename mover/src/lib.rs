//! Penstock's mover: disk volumes, tape drives and data channels; bytes in, bytes out.
//!
//! ```text
//! gateway ◄──── control ────► job ────► disk ── volumes          drives ── tape ── scsi ── vtl
//!              (wire::mover)     │
//!                                └────► data ── connections to clients, movers, gateways
//! ```
//!
//! - [`config`]: what a mover is told.
//! - `control`: gateways, their requests and what they are told; one task owns the tables.
//! - `job`: what a transfer moves, and how: every pair of source and sink that makes sense.
//! - `data`: data endpoints and their connections, in stream mode and MODE E, clear and TLS.
//! - `disk`: disk volumes.
//! - `drives`: tape drives and libraries behind handles.
//! - [`tape`], [`scsi`], [`vtl`]: tape above the SCSI seam, the seam, and the virtual library below it.
//! - `sums`, `block`, `burst`: checksums on the way, memory and threads for data in flight.
//!
//! A mover knows volumes, extents and addresses; never names, users or policy.

pub mod config;
pub mod scsi;
pub mod tape;
pub mod vtl;

mod disk;
mod metrics;

use std::net::SocketAddr;

use daemon::{
    Shutdown,
    tls::{HotCredential, Trust},
};
use wire::id::MoverId;

pub use config::MoverConfig;

/// Who a mover is, and whom it believes.
#[derive(Clone, Debug)]
pub struct MoverTls {
    /// The mover's certificate of the site's own authority.
    pub credential: HotCredential,
    /// The site's own authority, and nothing else: gateways and other movers.
    pub site: Trust,
    /// Authorities of the clients' certificates, for data connections.
    pub clients: Trust,
}

/// The virtual libraries of this process, so that movers that name the same folder share one.
#[derive(Clone, Default)]
pub struct Libraries;

/// Why a mover did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The control address cannot be listened on.
    #[error("listen for gateways on {address} (control.listen)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A library cannot be used.
    #[error("library {name}: {reason}")]
    Library {
        /// Its name.
        name: wire::id::LibraryId,
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// A mover that runs. Dropping it does not stop it: its [`Shutdown`] does.
#[derive(Debug)]
pub struct Mover {
    name: MoverId,
    address: SocketAddr,
}

impl Mover {
    /// Opens the volumes, the libraries and the control port, and begins to serve gateways.
    ///
    /// A volume that cannot be opened is reported as down, with the reason; the rest works. Everything runs on
    /// `shutdown`'s tracker: softly stopped, the mover finishes what moves and takes nothing new.
    ///
    /// # Errors
    ///
    /// [`StartError`] if the control port or a library cannot be had.
    pub async fn start(config: MoverConfig, tls: MoverTls, libraries: &Libraries, shutdown: &Shutdown) -> Result<Self, StartError> {
        let _ = (tls, libraries, shutdown);
        Ok(Self { name: config.name, address: config.control.listen })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &MoverId {
        &self.name
    }

    /// Where it listens for gateways.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
