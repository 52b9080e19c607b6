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
//! - `http`: clients that a gateway sent here read and write files by HTTP.
//! - `data`: data endpoints and their connections, in stream mode and MODE E, clear and TLS.
//! - `disk`: disk volumes.
//! - `drives`: tape drives and libraries behind handles.
//! - [`tape`], [`scsi`], [`vtl`]: tape above the SCSI seam, the seam, and the virtual library below it.
//! - `local`: disk files for a gateway in the same process, without a connection.
//! - `sums`, `block`: checksums on the way, memory for data in flight.
//!
//! A mover knows volumes, extents and addresses; never names, users or policy.

pub mod config;
pub mod scsi;
pub mod tape;
pub mod vtl;

mod block;
mod control;
mod data;
mod disk;
mod drives;
mod http;
mod job;
mod local;
mod metrics;
mod sums;

use std::{net::SocketAddr, sync::Arc};

use daemon::{
    Shutdown,
    config::ByteSize,
    tls::{HotCredential, Trust},
};
use futures::future::BoxFuture;
use tokio::{net::TcpListener, sync::Notify};
use tracing::info;
use wire::id::MoverId;

use crate::{
    block::Pool,
    config::VolumeConfig,
    control::Hub,
    data::{Opener, Ports, Turns},
    disk::{VolumeOptions, Volumes},
    drives::Drives,
    job::Env,
};

pub use config::MoverConfig;
pub use drives::Libraries;
pub use local::Reader;

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
    /// An address for HTTP clients cannot be listened on.
    #[error("listen for HTTP clients on {address} ([http])")]
    Http {
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
    /// The kernel lacks what the configuration names.
    #[error("{0}")]
    Kernel(String),
}

/// A mover that runs. Dropping it does not stop it: its [`Shutdown`] does.
#[derive(Debug)]
pub struct Mover {
    name: MoverId,
    address: SocketAddr,
    http: Option<String>,
    reader: Reader,
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
    pub fn start<'a>(
        config: MoverConfig,
        tls: MoverTls,
        libraries: &'a Libraries,
        shutdown: &'a Shutdown,
    ) -> BoxFuture<'a, Result<Self, StartError>> {
        // Boxed, so that all that a mover does is compiled in this crate, and not again in each that starts one.
        Box::pin(Self::open(config, tls, libraries, shutdown))
    }

    async fn open(
        config: MoverConfig,
        tls: MoverTls,
        libraries: &Libraries,
        shutdown: &Shutdown,
    ) -> Result<Self, StartError> {
        let ports = Ports::new(&config.data);
        ports.check().map_err(StartError::Kernel)?;
        let address = config.control.listen;
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let http = http::Listeners::bind(&config.http).await?;
        let changed = Arc::new(Notify::new());
        let volumes: Vec<_> = config.volumes.iter().map(volume_options).collect();
        let volumes = Volumes::open(&volumes, config.limits.sync_threads, &changed, shutdown).await;
        let drives = Drives::start(&config, libraries, &changed, shutdown).await?;
        let limits = &config.limits;
        let buffer = usize::try_from(limits.buffer.bytes()).unwrap_or(1 << 20);
        let pool =
            Pool::new(config.name.clone(), limits.memory.bytes(), buffer, limits.threads, limits.pipeline.bytes());
        let env = Env {
            mover: config.name.clone(),
            volumes,
            drives,
            turns: Turns::new(pool, shutdown.clone()),
            totals: Arc::default(),
            parcel_bytes: config.data.block.bytes(),
            http: http.door(),
            shutdown: shutdown.clone(),
        };
        let opener = Opener {
            ports,
            tls: tls.clone(),
            open_limit: config.data.open_limit.duration(),
            stall_limit: config.data.stall_limit.duration(),
            shutdown: shutdown.clone(),
        };
        let name = config.name.clone();
        let door = env.http.as_deref().and_then(|door| door.tls.clone().or_else(|| door.clear.clone()));
        let reader = Reader::new(env.clone());
        let hub = Hub::start(config.clone(), env.clone(), opener, changed);
        http.serve(&config, &env, &hub, &tls);
        shutdown.spawn(control::listen(listener, tls, hub, shutdown.clone()));
        info!(mover = %name, %address, "mover is ready");
        Ok(Self { name, address, http: door, reader })
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &MoverId {
        &self.name
    }

    /// Reads its disk volumes, for a gateway in the same process.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// What URLs begin with of what it serves by HTTP, with TLS if it has both; `None` if it serves nobody so.
    #[must_use]
    pub fn http(&self) -> Option<&str> {
        self.http.as_deref()
    }

    /// Where it listens for gateways.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn volume_options(config: &VolumeConfig) -> VolumeOptions {
    VolumeOptions {
        label: config.label.clone(),
        folder: config.folder.clone(),
        capacity_bytes: config.capacity.map(ByteSize::bytes),
        keep_free_bytes: config.keep_free.bytes(),
        uuid: config.uuid.clone(),
        create: config.create,
        read_only: config.read_only,
    }
}
