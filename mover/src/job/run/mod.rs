//! Runs a job of any kind to its end.
//!
//! Owns nothing between two jobs. Talks to channels, volumes and drives through their handles. Whatever way a job ends,
//! everything it used is free afterwards: it is all owned by the futures here.

mod disk;
mod network;
mod tape;

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use wire::{
    extent::ByteRange,
    mover::{Fault, FaultKind, Outcome},
};

use super::{Ending, Env, Task, plan::Plan};
use crate::{
    data::{Attachment, ChannelHandle, Flow},
    metrics::Direction,
};

/// How often a gateway hears how a transfer goes on.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Runs a job to its end.
pub(crate) async fn run(env: Env, mut task: Task) -> Ending {
    // Threads that are in the middle of a turn stop when this ends, however it ends.
    let over = task.cancel.child_token();
    let _stop = over.clone().drop_guard();
    let job = Job { env, over };
    let plan = std::mem::replace(&mut task.plan, Plan::Verify { pieces: Vec::new(), extra: Default::default() });
    // Each on the heap: a small file's job would otherwise carry the room of a recall's, and is moved when it is spawned.
    match plan {
        Plan::Upload { from, file, extra } => job.upload(&task, from.expected, file, extra).boxed().await,
        Plan::Receive { from, files } => job.receive_files(&task, from.expected, files).boxed().await,
        Plan::Send { pieces, to } => simple(&task, job.send(&task, pieces, to.eof)).await,
        Plan::Relay { from, to } => simple(&task, job.relay(&task, from.expected, to.eof)).await,
        Plan::Copy { pieces, files } => job.copy(&task, pieces, files).boxed().await,
        Plan::Verify { pieces, extra } => simple(&task, job.verify(&task, pieces, extra)).await,
        Plan::Migrate { pieces, append } => simple(&task, job.migrate(&task, pieces, append)).await,
        Plan::ReceiveToTape { from, append } => simple(&task, job.receive_to_tape(&task, from.expected, append)).await,
        Plan::SendTape { read, to } => simple(&task, job.send_tape(&task, read, to.eof)).await,
        Plan::Recall { read, files } => job.recall(&task, read, files).boxed().await,
        Plan::VerifyTape { read } => simple(&task, job.verify_tape(&task, read)).await,
    }
}

/// What the jobs of this module have in common.
struct Job {
    env: Env,
    over: CancellationToken,
}

/// A job of which nothing remains if it fails.
async fn simple(task: &Task, work: impl Future<Output = Result<Outcome, Fault>> + Send) -> Ending {
    match stoppable(task, work.boxed()).await {
        Ok(outcome) => Ending::Finished(outcome),
        Err(fault) => Ending::Failed(fault, Outcome::default()),
    }
}

/// Runs `work` unless somebody wants it to stop.
async fn stoppable<T>(task: &Task, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::select! {
        biased;
        () = task.cancel.cancelled() => Err(Fault::new(FaultKind::Cancelled, "the transfer was cancelled")),
        result = work => result,
    }
}

/// Runs `work` and says about once a second how far it is.
async fn reported<T>(
    task: &Task,
    bytes: impl Fn() -> u64,
    mut fresh: impl FnMut() -> Vec<ByteRange>,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let telling = async {
        let mut told = 0;
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            let now = bytes();
            if now != told {
                told = now;
                task.reporter.progress(now, fresh()).await;
            }
        }
    };
    tokio::pin!(work);
    tokio::select! {
        biased;
        result = &mut work => result,
        () = telling => unreachable!("it never ends"),
    }
}

fn no_ranges() -> Vec<ByteRange> {
    Vec::new()
}

impl Job {
    fn flow(&self, task: &Task, direction: Direction) -> Arc<Flow> {
        let totals = self.env.totals.clone();
        Arc::new(Flow::new(self.env.mover.clone(), direction, totals, task.rate_limit, self.over.clone()))
    }
}

async fn attach(channel: Option<&ChannelHandle>) -> Result<Attachment, Fault> {
    match channel {
        Some(channel) => channel.attach().await,
        None => Err(Fault::new(FaultKind::NotFound, "the data channel of this transfer is not open")),
    }
}
