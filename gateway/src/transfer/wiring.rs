//! Data endpoints between movers, and between the gateway and a mover, for what cannot go straight.
//!
//! Both ends are parts of this site and know each other by their certificates.

use std::time::Duration;

use wire::{
    id::MoverId,
    mover::{ChannelSpec, Framing, Open, PeerCheck, Security, TlsSide},
};

use super::Inner;
use crate::{
    failure::Failure,
    movers::{Channel, MoverError},
};

fn inside(open: Open, framing: Framing, limits: (Duration, Duration)) -> ChannelSpec {
    ChannelSpec {
        open,
        framing,
        streams: 1,
        security: Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site },
        buffer_bytes: None,
        open_limit_ms: milliseconds(limits.0),
        stall_limit_ms: milliseconds(limits.1),
    }
}

pub(super) fn milliseconds(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

impl Inner {
    fn spans(&self) -> (Duration, Duration) {
        (self.limits.data_open, self.limits.data_stall)
    }

    /// A mover listens for others of this site.
    pub(super) async fn listen_inside(&self, mover: &MoverId, framing: Framing) -> Result<Channel, Failure> {
        let spec = inside(Open::Listen { peer: None, ipv6: false }, framing, self.spans());
        Ok(self.movers.open_channel(mover, spec).await?)
    }

    /// A mover is to connect to another one that listens.
    pub(super) async fn connect_inside(&self, mover: &MoverId, to: &Channel) -> Result<Channel, MoverError> {
        let to = to.address().into_iter().collect();
        let spec = inside(Open::Connect { to }, Framing::ModeE, self.spans());
        self.movers.open_channel(mover, spec).await
    }
}
