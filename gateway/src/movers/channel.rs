//! A data endpoint of a mover, in the hands of whoever opened it.

use std::net::SocketAddr;

use wire::id::{ChannelId, MoverId};

/// An open data endpoint. Dropping it closes it with its connections; a transfer that uses it fails then.
#[derive(Debug)]
pub struct Channel {
    id: ChannelId,
    mover: MoverId,
    address: Option<SocketAddr>,
}

impl Channel {
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
        todo!()
    }
}
