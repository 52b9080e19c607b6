//! The movers of this site, as the gateway sees them: one handle for all, whether they run in this process or far away.
//!
//! - [`Movers`]: asks, opens data endpoints, starts transfers, confirms and discards files.
//! - [`Transfer`], [`Channel`]: what was started and opened; dropping one ends it and cleans up behind it.
//! - [`Snapshot`]: who is there and how they are.
//! - `link`: the owner of one mover's connection; `table`: what is under way on it; `janitor`: files nobody confirmed.
//!
//! Owns the connections. Talks `wire::mover` below, and to the catalogue about files nobody confirmed. Never sees names,
//! users or policy.
//!
//! Invariant: a file that this gateway made and that is in no bitfile and no cut upload of the catalogue is removed,
//! sooner or later; one that is in the catalogue is never removed from here.

mod channel;
mod error;
mod snapshot;
mod transfer;

use std::sync::Arc;

use tokio::sync::watch;
use wire::{
    id::{MoverId, VolumeLabel},
    mover::{Answer, Call, ChannelSpec, Job, VolumeFile},
};

pub use self::{
    channel::Channel,
    error::MoverError,
    snapshot::{LinkState, MoverView, Snapshot},
    transfer::{Transfer, TransferEvent},
};

/// All movers of the site. Cheap to clone.
#[derive(Clone)]
pub struct Movers(Arc<Inner>);

struct Inner {}

impl Movers {
    /// Who is there and how they are, now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        todo!()
    }

    /// Tells of every change of [`Movers::snapshot`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        todo!()
    }

    /// The mover that a disk volume belongs to, whether it is there now or not.
    #[must_use]
    pub fn mover_of(&self, volume: &VolumeLabel) -> Option<MoverId> {
        let _ = volume;
        todo!()
    }

    /// Asks a mover a short question. Long ones (loading a cartridge) take as long as they take.
    ///
    /// # Errors
    ///
    /// [`MoverError`]; after [`MoverError::Away`] it is not known whether the call was carried out.
    pub async fn call(&self, mover: &MoverId, what: Call) -> Result<Answer, MoverError> {
        let _ = (mover, what);
        todo!()
    }

    /// Opens a data endpoint. For one that listens, returns when its address is known; for one that connects, at once:
    /// a peer that cannot be reached fails the first transfer.
    ///
    /// # Errors
    ///
    /// [`MoverError`].
    pub async fn open_channel(&self, mover: &MoverId, spec: ChannelSpec) -> Result<Channel, MoverError> {
        let _ = (mover, spec);
        todo!()
    }

    /// Starts a transfer. Files that the job's sink makes are in this transfer's care: they are confirmed or removed by
    /// whoever takes the outcome ([`Transfer::settle`]), or removed when the transfer is dropped.
    ///
    /// # Errors
    ///
    /// [`MoverError`] if the mover is not there; what goes wrong later comes as an event.
    pub async fn start(&self, mover: &MoverId, job: Job) -> Result<Transfer, MoverError> {
        let _ = (mover, job);
        todo!()
    }

    /// These files are in the catalogue: their movers keep them. In batches, off the caller's path; what is lost with a
    /// connection is made up for after the next one.
    pub fn confirm(&self, files: Vec<VolumeFile>) {
        let _ = files;
        todo!()
    }

    /// Nobody needs these files: they are removed, unless the catalogue knows them after all. In batches, off the
    /// caller's path.
    pub fn discard(&self, files: Vec<VolumeFile>) {
        let _ = files;
        todo!()
    }

    /// Gives a mover nothing new, or makes it available again. What moves goes on. Not kept over a restart.
    ///
    /// # Errors
    ///
    /// [`MoverError::Unknown`].
    pub fn drain(&self, mover: &MoverId, drained: bool) -> Result<(), MoverError> {
        let _ = (mover, drained);
        todo!()
    }
}
