//! What a transfer moves, and how.
//!
//! - [`plan`]: whether a job makes sense, and which kind it is (pure).
//! - [`mod@run`]: runs a job of any kind to its end.
//! - [`upload`], [`batch`]: where received bytes go: one file at any offset, or many files.
//! - [`deal`], [`scan`]: where bytes of disk files come from: dealt out to connections, or read through memory.
//! - [`hopper`]: a bounded queue of blocks, for what passes through memory from one party to another.
//! - [`tape`]: members of a tape on either side.
//! - [`loan`]: values that threads use while a task owns them.
//!
//! A job owns everything it uses: dropped, it lets go of connections, blocks, promised space and temporary files.

mod batch;
pub(crate) mod deal;
mod hopper;
mod loan;
pub(crate) mod plan;
mod run;
mod scan;
mod tape;
mod upload;

use std::sync::Arc;

use daemon::Shutdown;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{
    extent::ByteRange,
    id::{MoverId, TransferId},
    mover::{Event, Fault, HttpDoor, Outcome, Written},
};

pub(crate) use self::{deal::Dealer, run::run};
use crate::{
    data::{ChannelHandle, Totals, Turns},
    disk::{Owner, Volumes},
    drives::Drives,
};

/// What every job of a mover uses. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) mover: MoverId,
    pub(crate) volumes: Volumes,
    pub(crate) drives: Drives,
    pub(crate) turns: Turns,
    pub(crate) totals: Arc<Totals>,
    pub(crate) parcel_bytes: u64,
    /// Where HTTP clients are served.
    pub(crate) http: Option<Box<HttpDoor>>,
    pub(crate) shutdown: Shutdown,
}

/// One job.
pub(crate) struct Task {
    pub(crate) plan: plan::Plan,
    pub(crate) rate_limit: Option<u64>,
    /// Who is asked about new files.
    pub(crate) owner: Owner,
    /// The channel that bytes come from, where there is one.
    pub(crate) from: Option<ChannelHandle>,
    /// The channel that bytes go to, where there is one.
    pub(crate) to: Option<ChannelHandle>,
    pub(crate) reporter: Reporter,
    /// Somebody wants it to stop.
    pub(crate) cancel: CancellationToken,
}

/// How a job ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ending {
    /// As it should.
    Finished(Outcome),
    /// Before its end; the outcome is what is safe all the same.
    Failed(Fault, Outcome),
}

/// What is said of a transfer, and to whom.
pub(crate) type Said = (TransferId, Event);

/// Tells how a job goes on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) transfer: TransferId,
    pub(crate) said: mpsc::Sender<Said>,
}

impl Reporter {
    async fn say(&self, event: Event) {
        // If nobody listens the mover is ending.
        let _ = self.said.send((self.transfer, event)).await;
    }

    async fn progress(&self, bytes: u64, ranges: Vec<ByteRange>) {
        self.say(Event::Progress { transfer: self.transfer, bytes, ranges }).await;
    }

    async fn durable(&self, written: Vec<Written>) {
        self.say(Event::Durable { transfer: self.transfer, written }).await;
    }

    async fn received(&self, bytes: u64) {
        self.say(Event::Received { transfer: self.transfer, bytes }).await;
    }
}
