//! What buckets tell of: rules are set, what happened is queued with the change itself, and is read until it is
//! delivered.
//!
//! - `tell`: within a transaction. A mutation says what it did, the rules of its bucket choose, and what is chosen is
//!   written just before the commit, with numbers that grow in the order of commits.
//! - `watch`: which bitfiles lie in buckets that want to hear of something. Where no bucket does, this is one lookup.
//! - `queue`: what waits, for the gateway that delivers it.
//!
//! Invariant: an event is there if and only if the change that it tells of is.

mod queue;
mod tell;
mod watch;

#[cfg(test)]
pub(crate) use queue::ALL as QUEUE;
#[cfg(test)]
pub(crate) use tell::ALL as TELL;
pub(crate) use tell::{Told, write_told};
#[cfg(test)]
pub(crate) use watch::ALL as WATCH;
pub(crate) use watch::watched;
