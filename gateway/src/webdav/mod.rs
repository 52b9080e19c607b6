//! The WebDAV door: files over HTTPS as grid clients use them (gfal2, davix, curl), and WLCG's Tape REST interface.
//!
//! ```text
//! door: connections, certificates ─► routes ─┬─► tape: discovery, stage, release, archiveinfo
//!                                            └─► read, write, names, list ─► bytes (when it is published)
//! pure: conditions, digest, location, properties; tape: duration, messages
//! ```
//!
//! Owns the listening sockets. Talks to [`crate::files`] for names, to [`crate::transfer`] for bytes, and to
//! [`crate::hsm`] for what is on tape. Knows people by their client certificates, RFC 3820 proxies among them, as the FTP
//! door does. Never decides where bytes lie.
//!
//! Invariant: a success is answered after the transaction that makes it true.

mod answer;
mod bytes;
mod conditions;
mod config;
mod digest;
mod door;
mod list;
mod location;
mod names;
mod properties;
mod read;
mod tape;
mod write;

use std::sync::Arc;

use catalog::Catalog;

pub use self::{config::WebdavConfig, door::open};
use crate::{files::Files, hsm::Hsm, identity::Identities, relay::Relay, transfer::Transfers};

/// What the door needs of the gateway.
pub struct Services {
    /// The site's name, for Tape REST's discovery.
    pub site: String,
    /// The catalogue, which publishes what was written.
    pub catalog: Catalog,
    /// Who is behind a certificate.
    pub identities: Identities,
    /// Names.
    pub files: Files,
    /// What moves bytes.
    pub transfers: Transfers,
    /// The recall queue.
    pub hsm: Hsm,
}

/// The door's parts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Door(Arc<Parts>);

/// What every method has in hand.
pub(crate) struct Parts {
    site: String,
    catalog: Catalog,
    identities: Identities,
    files: Files,
    relay: Relay,
    hsm: Hsm,
    config: WebdavConfig,
}

impl std::ops::Deref for Door {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
