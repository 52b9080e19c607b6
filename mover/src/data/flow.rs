//! What the connections of one direction of a transfer share: how much moved, how fast it may, and whether it stands still.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use wire::{
    id::MoverId,
    mover::{Fault, FaultKind},
};

use super::limit::Pace;
use crate::metrics::{self, Direction};

/// How often a transfer is looked at, at most.
const SHORTEST_LOOK: Duration = Duration::from_millis(5);

/// Bytes over the network since the process started.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) relayed: AtomicU64,
}

/// The state that the connections of one direction share.
pub(crate) struct Flow {
    mover: MoverId,
    direction: Direction,
    totals: Arc<Totals>,
    bytes: AtomicU64,
    /// Connections that wait for this side: for room, or for data.
    waits: AtomicUsize,
    pub(crate) pace: Pace,
    /// Set when the transfer is over, so that threads stop in the middle of a turn.
    pub(crate) over: CancellationToken,
}

impl Flow {
    /// A flow that nothing has moved in yet.
    pub(crate) fn new(
        mover: MoverId,
        direction: Direction,
        totals: Arc<Totals>,
        rate: Option<u64>,
        over: CancellationToken,
    ) -> Self {
        Self {
            mover,
            direction,
            totals,
            bytes: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
            pace: Pace::new(rate),
            over,
        }
    }

    /// Counts bytes of file data.
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let total = match self.direction {
            Direction::Received => &self.totals.received,
            Direction::Sent => &self.totals.sent,
            Direction::Local => return,
        };
        total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Tells the metrics what one connection moved.
    pub(crate) fn count(&self, framing: &'static str, security: &'static str, bytes: u64) {
        metrics::moved(&self.mover, self.direction, framing, security, bytes);
    }

    /// How much has moved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// As long as the guard lives, standing still is not the peer's doing.
    pub(crate) fn waiting(&self) -> impl Drop + '_ {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waits)
    }

    /// Ends when nothing has moved for `limit` and the peer is to blame. `excused` says whether waiting for this side
    /// counts as an excuse. Cancel-safe.
    pub(crate) async fn stalled(&self, limit: Duration, excused: impl Fn() -> bool) -> Fault {
        let look = (limit / 8).max(SHORTEST_LOOK);
        let (mut before, mut still) = (self.bytes(), Duration::ZERO);
        while still < limit {
            tokio::time::sleep(look).await;
            let now = self.bytes();
            let ours = self.waits.load(Ordering::Relaxed) > 0 && excused();
            still = if now != before || ours { Duration::ZERO } else { still + look };
            before = now;
        }
        metrics::stalled(&self.mover);
        let way = match self.direction {
            Direction::Received => "the peer sent nothing",
            Direction::Sent | Direction::Local => "the peer took nothing",
        };
        Fault::new(FaultKind::PeerStalled, format!("{way} for {} s, after {before} bytes", limit.as_secs_f32()))
    }
}
