//! The movers as hierarchical storage needs them: the seam at which tests put a scripted fleet.
//!
//! [`Movers`] is the fleet of a running gateway. Nothing here decides anything.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use tokio::sync::watch;
use wire::{
    id::{ChannelId, MoverId, TransferId, VolumeLabel},
    mover::{Answer, Call, ChannelSpec, Job, VolumeFile},
};

use crate::movers::{Channel, MoverError, Movers, Snapshot, Transfer, TransferEvent};

/// All movers; see [`Movers`] for what each call means.
#[async_trait]
pub trait Fleet: Send + Sync + 'static {
    /// Tells who is there and how they are, now and whenever it changes.
    fn watch(&self) -> watch::Receiver<Arc<Snapshot>>;

    /// The mover that a disk volume belongs to, whether it is there now or not.
    fn mover_of(&self, volume: &VolumeLabel) -> Option<MoverId>;

    /// Asks a mover a short question.
    async fn call(&self, mover: &MoverId, what: Call) -> Result<Answer, MoverError>;

    /// Opens a data endpoint.
    async fn open_channel(&self, mover: &MoverId, spec: ChannelSpec) -> Result<Box<dyn Endpoint>, MoverError>;

    /// Starts a transfer.
    async fn start(&self, mover: &MoverId, job: Job) -> Result<Box<dyn Moving>, MoverError>;

    /// These files are in the catalogue.
    fn confirm(&self, files: Vec<VolumeFile>);

    /// Nobody needs these files.
    fn discard(&self, files: Vec<VolumeFile>);
}

/// An open data endpoint; dropping it closes it.
pub trait Endpoint: Send + Sync {
    /// Its identifier, for jobs.
    fn id(&self) -> ChannelId;
    /// Where it listens.
    fn address(&self) -> Option<SocketAddr>;
}

/// A transfer under way; dropping it before [`Moving::settle`] cancels it and cleans up behind it.
#[async_trait]
pub trait Moving: Send {
    /// Its identifier.
    fn id(&self) -> TransferId;
    /// The next event; `None` after the last. Cancel-safe.
    async fn next(&mut self) -> Option<TransferEvent>;
    /// Asks the mover to stop; the end still comes as an event.
    fn cancel(&self);
    /// The outcome has been dealt with.
    fn settle(self: Box<Self>);
}

#[async_trait]
impl Fleet for Movers {
    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        Self::watch(self)
    }

    fn mover_of(&self, volume: &VolumeLabel) -> Option<MoverId> {
        Self::mover_of(self, volume)
    }

    async fn call(&self, mover: &MoverId, what: Call) -> Result<Answer, MoverError> {
        Self::call(self, mover, what).await
    }

    async fn open_channel(&self, mover: &MoverId, spec: ChannelSpec) -> Result<Box<dyn Endpoint>, MoverError> {
        Ok(Box::new(Self::open_channel(self, mover, spec).await?))
    }

    async fn start(&self, mover: &MoverId, job: Job) -> Result<Box<dyn Moving>, MoverError> {
        Ok(Box::new(Self::start(self, mover, job).await?))
    }

    fn confirm(&self, files: Vec<VolumeFile>) {
        Self::confirm(self, files);
    }

    fn discard(&self, files: Vec<VolumeFile>) {
        Self::discard(self, files);
    }
}

impl Endpoint for Channel {
    fn id(&self) -> ChannelId {
        Self::id(self)
    }

    fn address(&self) -> Option<SocketAddr> {
        Self::address(self)
    }
}

#[async_trait]
impl Moving for Transfer {
    fn id(&self) -> TransferId {
        Self::id(self)
    }

    async fn next(&mut self) -> Option<TransferEvent> {
        Self::next(self).await
    }

    fn cancel(&self) {
        Self::cancel(self);
    }

    fn settle(self: Box<Self>) {
        Self::settle(*self);
    }
}
