//! Penstock's catalogue: names, bitfiles, copies, segments, volumes and the durable work queue, over SQLite or
//! PostgreSQL.
//!
//! # The map
//!
//! [`Catalog`] is one concrete handle, cheap to clone. Its methods lie in the modules of what they are about, one
//! `impl Catalog` each: names, files, volumes, policies, accounts, work, staging, migration, scrubs, events, leases, statistics. The
//! records they take and give are in [`record`].
//!
//! Reading goes to a pool of connections, one statement for each question. Writing goes to one task, the batch
//! writer: what comes while a commit is being synced forms the next transaction, so a thousand writers share a few
//! syncs and a lone one waits for nobody. A call returns when its transaction is on stable storage.
//!
//! # Never
//!
//! The catalogue never moves data, never talks to a mover and never decides policy. It does not check permissions:
//! it hands out what a door needs to check them.

pub mod error;
pub mod path;
pub mod record;
pub mod time;

mod accounts;
mod adopt;
mod batch;
mod catalog;
mod drives;
mod events;
mod files;
mod leases;
mod migration;
mod names;
mod objects;
mod policies;
mod publish;
mod purge;
mod queue;
mod quota;
mod relocate;
mod replicas;
mod retire;
mod scrubs;
mod segments;
mod sql;
mod staging;
mod statistics;
mod volumes;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use catalog::{Catalog, Options};
pub use error::{CatalogError, Result};
pub use objects::{Counted, ObjectListing, ObjectPage, UsageCount, VersionListing};
pub use path::TreePath;
pub use record::*;
pub use time::{Clock, Timestamp};
