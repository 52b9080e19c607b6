//! Turns: how a bounded number of threads moves bytes on any number of connections.
//!
//! A connection that has something to do waits for a turn: one of the configured threads, and one block of memory. In
//! its turn it moves bytes with plain system calls until the socket has no more, waits on the spot for a moment so that a
//! fast peer is not left, and gives the turn back. A slow peer therefore costs a socket and no thread, a fast one keeps
//! its thread and its cache, and the memory of all of them is bounded by the number of turns.

use std::time::{Duration, Instant};

use daemon::Shutdown;
use tokio::io::Interest;
use wire::mover::{Fault, FaultKind};

use super::{flow::Flow, link::Link};
use crate::block::{Pool, Turn};

/// After so long a turn ends, that others get theirs.
const TURN: Duration = Duration::from_millis(50);

/// Why a connection's turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    /// The socket has nothing to read.
    Read,
    /// The socket takes nothing.
    Write,
    /// This side has no room for what comes, or no data to send.
    OurSide,
    /// The rate limit says so.
    Sleep(Duration),
    /// It was long enough.
    Again,
    /// The connection has done its part.
    Done {
        /// It can carry another transfer.
        keep: bool,
    },
}

/// Threads and memory for turns. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns {
    pool: Pool,
    shutdown: Shutdown,
}

impl Turns {
    /// Turns of a pool.
    pub(crate) const fn new(pool: Pool, shutdown: Shutdown) -> Self {
        Self { pool, shutdown }
    }

    /// The pool behind them.
    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Waits for a turn and runs `work` in it, on a thread where blocking is allowed.
    ///
    /// Cancel-safe while it waits; dropped later, the work goes on to its end.
    ///
    /// # Errors
    ///
    /// If `work` panicked, which is a mistake in this program.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Turn) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let mut turn = self.pool.turn().await;
        let ran = self.shutdown.spawn_blocking(move || work(&mut turn)).await;
        ran.map_err(|error| Fault::new(FaultKind::Medium, format!("internal error, please report it: {error}")))
    }

    /// Keeps a connection whose data has been sent until the peer has closed it, at most so long.
    pub(super) fn linger(&self, link: Link, limit: Duration) {
        let stop = self.shutdown.clone();
        self.shutdown.spawn_until_cut(async move {
            tokio::select! {
                _ = tokio::time::timeout(limit, link.linger()) => {}
                () = stop.stopping() => {}
            }
        });
    }
}

/// Repeats `step` until there is a reason to pause. `Ok(None)` from a step means that it moved something.
pub(super) fn take_turn(
    link: &mut Link,
    flow: &Flow,
    mut step: impl FnMut(&mut Link) -> Result<Option<Pause>, Fault>,
) -> Result<Pause, Fault> {
    let started = Instant::now();
    loop {
        if flow.over.is_cancelled() {
            return Err(Fault::new(FaultKind::Cancelled, "the transfer was stopped"));
        }
        let interest = match step(link)? {
            None if started.elapsed() > TURN => return Ok(Pause::Again),
            None => continue,
            Some(Pause::Read) => Interest::READABLE,
            Some(Pause::Write) => Interest::WRITABLE,
            Some(pause) => return Ok(pause),
        };
        if started.elapsed() > TURN || !link.hot_wait(interest) {
            return Ok(if interest.is_readable() { Pause::Read } else { Pause::Write });
        }
    }
}

/// The fault behind an error of a connection.
pub(super) fn broken(link: &Link, error: &std::io::Error) -> Fault {
    let kind = match error.kind() {
        std::io::ErrorKind::InvalidData => FaultKind::PeerProtocol,
        _ => FaultKind::PeerLost,
    };
    Fault::new(kind, format!("data connection with {}: {error}", link.peer()))
}
