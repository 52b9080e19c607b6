//! Hierarchical storage: what sinks to tape, what leaves the disk, what comes back.

mod claims;
mod config;
mod context;
mod copy;
mod expire;
mod lead;
mod live;
mod migrate;
mod purge;
mod recall;
mod reclaim;
mod scrub;
mod space;
mod stage;
mod verify;
pub mod policy;

pub use self::{config::HsmConfig, live::Live};
