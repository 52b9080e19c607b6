//! The S3 door: buckets and objects over the same tree, movers and recall queue as every other door.
//!
//! ```text
//! door: connections ─► before, sigv2: what s3s would not take ─► s3s: signatures, XML ─► service ─► operations
//!                        ◄─ after: statuses and members that s3s has no words for ◄─┘
//! operations: buckets, settings; read, write, remove, listing, uploads, marks, restore
//! beside them: signer (keys), access (policy, acl), data (what becomes of bytes), away (past the door), checksum, attributes, secrets
//! temporary keys: sts (given for a certificate), temporary (what they are)
//! by the clock: lifecycle (rules that hide, remove and move versions), usage (what lies in buckets),
//!   notify (events, told to who wants to hear)
//! ```
//!
//! - `s3s` is behind `service` and `access`; nothing else knows how its traits are called.
//! - Pure: `acl`, `policy`, `attributes`, `checksum`, `shown`, `error`, `cors`, `sigv2`, `lifecycle::rules`,
//!   `notify::rules`, `notify::record`, all of `sts` but its first file.
//!
//! Owns the listening sockets and the site's sealing key. Talks to the catalogue, to [`crate::transfer`] for bytes, and
//! to [`crate::hsm`] for what is on tape. Never decides where bytes lie.
//!
//! Invariant: a success is answered after the transaction that makes it true.

mod access;
mod acl;
mod attributes;
mod away;
mod before;
mod buckets;
mod checksum;
mod config;
mod cors;
mod data;
pub(crate) mod door;
mod error;
mod lifecycle;
mod listing;
mod marks;
mod notify;
#[cfg(test)]
mod parser_tests;
mod policy;
mod read;
mod remove;
mod restore;
pub mod secrets;
mod service;
mod settings;
mod shown;
mod signer;
mod sigv2;
mod sts;
pub mod temporary;
mod uploads;
mod usage;
mod write;

use std::sync::Arc;

use catalog::{Catalog, TreePath};
use s3s::{S3Result, s3_error};
use wire::id::EntryId;

use self::secrets::Sealer;
pub use self::{config::S3Config, door::open, notify::DestinationConfig};
use crate::{
    hsm::Hsm,
    identity::Identities,
    relay::Relay,
    transfer::{Stager, Transfers},
};

/// What the door needs of the gateway.
pub struct Services {
    /// The catalogue.
    pub catalog: Catalog,
    /// Who is behind an access key.
    pub identities: Identities,
    /// What moves bytes.
    pub transfers: Transfers,
    /// The recall queue.
    pub hsm: Hsm,
    /// The same, as transfers ask it.
    pub stager: Arc<dyn Stager>,
    /// Below which directory buckets lie.
    pub root: TreePath,
    /// Opens secrets.
    pub sealer: Arc<Sealer>,
}

/// The door's parts. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Door(Arc<Parts>);

/// What every operation has in hand.
pub(crate) struct Parts {
    catalog: Catalog,
    identities: Identities,
    relay: Relay,
    hsm: Hsm,
    stager: Arc<dyn Stager>,
    root: TreePath,
    sealer: Arc<Sealer>,
    config: S3Config,
}

impl std::ops::Deref for Door {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Door {
    /// The directory in which buckets lie.
    async fn root(&self) -> S3Result<EntryId> {
        let found = self.catalog.resolve(&self.root).await;
        let found = found.map_err(|error| error::of_catalog(error, error::Asked::Bucket))?;
        let entry = found.entry().map_err(|_| s3_error!(InternalError, "the exported directory is missing"))?;
        Ok(entry.id)
    }
}
