//! Checksums of bytes that arrive in any order.
//!
//! - [`Tally`]: the sums of bytes that come one after the other, on one connection.
//! - [`Runs`]: what has arrived altogether: contiguous runs and their sums.
//! - [`Frontier`]: MD5 and SHA-256, which must see the bytes in order.
//!
//! Pure but for [`Frontier`], which reads back from a file what it has not seen in memory.

mod frontier;
mod runs;
mod tally;

pub(crate) use self::{frontier::Frontier, runs::Runs, tally::Tally};
