//! Hierarchical storage: what sinks to tape, what leaves the disk, what comes back.

mod claims;
mod config;
mod context;
mod copy;
mod lead;
mod live;
mod migrate;
mod recall;
mod space;
mod stage;
pub mod policy;

pub use self::{config::HsmConfig, live::Live};
