//! Penstock's client: a session with a gateway, and files that move straight to and from movers.
//!
//! ```text
//! Client<Unauthenticated> ──login──▶ Client<Ready> ──get, put, get_many, put_many──▶ movers
//!        control connection over TLS (tokio)         data connections (threads, or tokio for small files)
//! ```
//!
//! | what | where |
//! | --- | --- |
//! | who we are, whom we trust | [`identity`] |
//! | commands that move no data | [`session`], [`listing`] |
//! | one file, striped and in parallel, resumable | [`get`], [`put`] |
//! | many small files | [`many`] |
//! | what of a cut download is here | [`partial`], [`runs`] |
//! | `pftp` | [`shell`] |
//!
//! The server is not trusted: names it lists cannot leave the folder asked for, sizes and offsets are bounded before they
//! are used, every wait has a limit, and what was received is compared with the catalogue's sum before it gets its name.
//!
//! Data flows *windowed* here: header, block, header, block. The per-block handshake of HPSS's `PDATA_AND_MOVER` is kept
//! only to be measured against, in `handshake.rs`. How many streams and which buffers: [`network`].

mod collect;
mod control;
mod data;
mod error;
pub mod get;
mod handshake;
pub mod identity;
pub mod listing;
pub mod many;
mod meter;
pub mod names;
pub mod network;
pub mod partial;
mod pull;
pub mod put;
mod receive;
pub mod runs;
mod send;
pub mod session;
pub mod shell;
mod target;

use std::net::IpAddr;

pub use control::{Limits, Spoken, Trace};
pub use error::{ClientError, Remedy, Result};
pub use get::{Fetch, Moved};
pub use identity::{Identity, IdentityOptions, Surroundings};
pub use meter::{Meter, Reading};
pub use put::Push;
pub use session::{Client, Options, Ready, Unauthenticated};
pub use target::{DEFAULT_PORT, Target};

/// How files are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct How {
    /// Data connections for each mover, or sessions when movers listen; [`network::AUTO`] lets round-trip time and rate
    /// decide.
    pub streams: u16,
    /// Largest block sent, in bytes.
    pub block_bytes: usize,
    /// We cannot be connected to: movers listen.
    pub passive: bool,
    /// Addresses of this machine that movers connect to with the parts of a file, where it has several networks (SPOR).
    /// Empty: the one that the server knows us by.
    pub listen: Vec<IpAddr>,
    /// Compare sums with the server's catalogue.
    pub verify: bool,
    /// Go on where a cut transfer stopped.
    pub resume: bool,
    /// Give files the time of their source.
    pub preserve: bool,
    /// Sessions at once for many small files.
    pub sessions: u16,
    /// Downloads ask for each block and wait for it, as HPSS's `PDATA_AND_MOVER` did. Slow; to be measured against.
    pub handshake: bool,
}

impl Default for How {
    fn default() -> Self {
        Self {
            streams: 4,
            block_bytes: 1 << 20,
            passive: false,
            listen: Vec::new(),
            verify: true,
            resume: false,
            preserve: false,
            sessions: 8,
            handshake: false,
        }
    }
}
