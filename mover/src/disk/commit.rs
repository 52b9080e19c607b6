//! Makes finished files durable, many at a time.
//!
//! Owns one task for each volume. Talks to blocking threads. Never reports a file before its content *and* its name are
//! on stable storage.
//!
//! A sync costs the same whether one file waits for it or twenty: the file system's journal writes all of them in one
//! commit if they ask at once. So drafts are gathered while the last round is under way, synced from several threads in
//! parallel, renamed, and then one sync of the folder makes all names durable. While rounds have several members, the
//! next one waits a moment for those that are nearly ready; a lone file is never kept waiting.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use daemon::Shutdown;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::{draft::Draft, error::DiskError, volume::Volume};
use crate::metrics;

/// The most files of one round.
const MAX_ROUND: usize = 256;

/// How long a round waits for company when the one before it had several members.
const GATHER: Duration = Duration::from_millis(1);

/// How many drafts may wait for the next round before whoever brings another one waits.
const QUEUE: usize = 256;

/// Hands finished drafts over. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Committer {
    queue: mpsc::Sender<Finished>,
}

struct Finished {
    draft: Draft,
    done: oneshot::Sender<Result<(), Arc<DiskError>>>,
}

impl Committer {
    /// Starts the task of a volume, with so many threads that sync in parallel.
    pub(crate) fn start(volume: Arc<Volume>, threads: usize, shutdown: &Shutdown) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let blocking = shutdown.clone();
        shutdown.spawn_blocking(volume.write_back());
        shutdown.spawn(run(volume, threads.max(1), waiting, blocking));
        Self { queue }
    }

    /// Syncs and publishes a draft; returns when both are durable. Dropping the future does not stop it.
    ///
    /// # Errors
    ///
    /// As the file system says. A new file is gone then.
    pub(crate) async fn commit(&self, draft: Draft) -> Result<(), Arc<DiskError>> {
        let (volume, file) = (draft.volume().label().clone(), draft.id());
        let gone = || {
            let source = std::io::Error::other("the mover is shutting down");
            Arc::new(DiskError::Io { action: "sync", volume: volume.clone(), file, source })
        };
        let (done, answer) = oneshot::channel();
        self.queue.send(Finished { draft, done }).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Ends when every [`Committer`] is gone: transfers hold one, so nothing that moves is cut off by it.
async fn run(volume: Arc<Volume>, threads: usize, mut waiting: mpsc::Receiver<Finished>, blocking: Shutdown) {
    let mut round = Vec::new();
    let mut shared = false;
    while waiting.recv_many(&mut round, MAX_ROUND).await > 0 {
        if shared {
            tokio::time::sleep(GATHER).await;
            while round.len() < MAX_ROUND
                && let Ok(another) = waiting.try_recv()
            {
                round.push(another);
            }
        }
        shared = round.len() > 1;
        let started = Instant::now();
        let size = round.len();
        let share = size.div_ceil(threads);
        let mut groups = Vec::new();
        while !round.is_empty() {
            let group: Vec<_> = round.drain(..share.min(round.len())).collect();
            let volume = volume.clone();
            let alone = size == share;
            groups.push(blocking.spawn_blocking(move || sync_group(&volume, group, alone)));
        }
        settle(&volume, groups, &blocking).await;
        metrics::committed(volume.label(), size, started.elapsed());
    }
}

/// A file whose content is synced and whose name waits for the folder, or whose end is known.
enum Step {
    Named(oneshot::Sender<Result<(), Arc<DiskError>>>),
    Over,
}

fn sync_group(volume: &Volume, group: Vec<Finished>, alone: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for Finished { mut draft, done } in group {
        let outcome = draft.sync().and_then(|()| draft.publish());
        // What a failed draft held is free before anybody hears of the failure.
        drop(draft);
        match outcome {
            Ok(true) => steps.push(Step::Named(done)),
            Ok(false) => drop(done.send(Ok(()))),
            Err(error) => drop(done.send(Err(Arc::new(error)))),
        }
    }
    if alone {
        // No other group to wait for: saves a change of thread, which a lone small file would feel.
        answer(volume, steps);
        return vec![Step::Over];
    }
    steps
}

async fn settle(volume: &Arc<Volume>, groups: Vec<JoinHandle<Vec<Step>>>, blocking: &Shutdown) {
    let mut steps = Vec::new();
    for group in groups {
        // A panicked thread has dropped its answers, and whoever waits for them hears that.
        steps.extend(group.await.unwrap_or_default());
    }
    steps.retain(|step| matches!(step, Step::Named(_)));
    if !steps.is_empty() {
        let volume = volume.clone();
        let _ = blocking.spawn_blocking(move || answer(&volume, steps)).await;
    }
}

/// Syncs the names and says so. If that fails the files stay, unconfirmed: the gateway will have them removed.
fn answer(volume: &Volume, steps: Vec<Step>) {
    let synced = if steps.is_empty() { Ok(()) } else { volume.sync_incoming().map_err(Arc::new) };
    for step in steps {
        if let Step::Named(done) = step {
            let _ = done.send(synced.clone());
        }
    }
}
