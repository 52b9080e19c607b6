//! Hierarchical storage: what sinks to tape, what leaves the disk, what comes back.

pub mod policy;
