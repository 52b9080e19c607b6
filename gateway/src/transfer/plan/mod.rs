//! Who connects to whom, and who sends what: the decisions behind every transfer, as values.
//!
//! - [`mod@read`]: a file's pieces and a client's port become legs: one mover, one data endpoint, some pieces.
//! - [`mod@replicas`]: which of several disk copies is sent, or which part of each.
//! - [`mod@write`]: volumes with room and a client's port become receivers.
//!
//! Pure: no clock, no I/O. The same question has the same answer.
//!
//! # One address, one account
//!
//! In extended block mode every address that data is sent to counts its ends of data by itself (each may be a mover or a
//! data node of its own). So a leg has one address. A mover that sends to several addresses has a leg for each; several
//! movers that send to one address agree on who announces the end ([`wire::mover::Eof`]).

pub(super) mod read;
pub(super) mod replicas;
pub(super) mod write;

use std::net::SocketAddr;

use wire::{id::MoverId, mover::Framing};

use crate::failure::{Failure, FailureKind};

/// A client's port as a planner sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PortView {
    pub(super) framing: Framing,
    /// Connections that one leg makes.
    pub(super) streams: u16,
    pub(super) side: SideView,
}

/// Who connects to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SideView {
    /// Movers connect to these addresses of the client.
    Active(Vec<SocketAddr>),
    /// The client has not been told where to connect to: any mover will do.
    Untold {
        /// Several addresses may be told.
        striped: bool,
    },
    /// The client has been told these movers' addresses, each once.
    Told(Vec<MoverId>),
}

/// Where the client's end of a leg is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientEnd {
    /// The mover connects to this address.
    At(SocketAddr),
    /// The client connects to the mover.
    Comes,
}

/// Why bytes go through a mover that does not hold them: the label of the metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RelayReason {
    /// The client was told an address before the file was known, and the file is elsewhere.
    EarlyPassive,
    /// The client takes one connection, and the file is on several movers.
    OneStream,
    /// The client takes one address, and the file is on several movers.
    OneAddress,
}

impl RelayReason {
    /// As in the metric.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::EarlyPassive => "early-passive",
            Self::OneStream => "one-stream",
            Self::OneAddress => "one-address",
        }
    }
}

fn bad(message: &str) -> Failure {
    Failure::new(FailureKind::BadArgument, message)
}

#[cfg(test)]
pub(super) fn mover(name: &str) -> MoverId {
    MoverId::new(name).expect("a good name")
}
