//! A data endpoint of a mover, in the hands of whoever opened it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::mpsc;
use wire::id::{ChannelId, MoverId};

use super::link::Command;

/// An open data endpoint. Dropping it closes it with its connections; a transfer that uses it fails then.
#[derive(Debug)]
pub struct Channel {
    id: ChannelId,
    mover: MoverId,
    address: Option<SocketAddr>,
    lost: Arc<AtomicBool>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Channel {
    pub(super) const fn new(
        id: ChannelId,
        mover: MoverId,
        lost: Arc<AtomicBool>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { id, mover, address: None, lost, commands }
    }

    pub(super) const fn at(mut self, address: Option<SocketAddr>) -> Self {
        self.address = address;
        self
    }

    /// Its identifier, for jobs.
    #[must_use]
    pub const fn id(&self) -> ChannelId {
        self.id
    }

    /// The mover it is on.
    #[must_use]
    pub const fn mover(&self) -> &MoverId {
        &self.mover
    }

    /// Where it listens; `None` if it connects.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether the mover has said that it is gone, or its mover went away.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Close { channel: self.id });
    }
}
