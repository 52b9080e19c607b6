//! What sinks to tape, what leaves the disk, what comes back first: decisions, and nothing else.
//!
//! Pure: no clock, no I/O. The services of [`super`] bring what is known and the time, and carry out what comes back.
//!
//! - [`migrate`]: when a migration is worth a mount, what goes into one container, which cartridge takes it.
//! - [`purge`]: which disk copies go, and how many.
//! - [`recall`]: which cartridge is next, in what order it is read, whose turn it is.
//! - [`estimate`]: when something will be done.
//! - [`waits`]: why it is not done yet, as a sentence.

pub mod estimate;
pub mod migrate;
pub mod purge;
pub mod recall;
pub mod waits;
