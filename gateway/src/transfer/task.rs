//! The task of one transfer: its steps to the door, its card on the desk, and when it has to stop.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span};
use wire::id::AccountName;

use super::{
    Direction, Inner, Progress, Running, Step, Summary,
    desk::{Card, OnDesk},
    going_down,
    plan::RelayReason,
    port::PortShared,
};
use crate::failure::{Failure, FailureKind};

/// Steps that a slow door leaves lying. Progress beyond is joined.
const STEPS: usize = 32;

/// What a transfer's work has in hand.
pub(super) struct Task {
    pub(super) inner: Arc<Inner>,
    pub(super) port: Arc<PortShared>,
    pub(super) started: Instant,
    steps: mpsc::Sender<Step>,
    held_back: Mutex<Vec<Progress>>,
    cancel: CancellationToken,
    desk: OnDesk,
}

/// Starts the task of a transfer.
pub(super) fn begin<F, W>(
    inner: &Arc<Inner>,
    port: Arc<PortShared>,
    direction: Direction,
    account: Option<AccountName>,
    path: String,
    work: F,
) -> Running
where
    F: FnOnce(Arc<Task>) -> W,
    W: Future<Output = Result<Summary, Failure>> + Send + 'static,
{
    let (steps, receiver) = mpsc::channel(STEPS);
    let cancel = CancellationToken::new();
    let door = port.spec.door;
    let span = info_span!("transfer", door, direction = direction.name(), path);
    let desk = inner.desk.lay(door, direction, account, path, cancel.clone());
    let number = desk.card.number;
    let task = Arc::new(Task {
        inner: Arc::clone(inner),
        port,
        started: Instant::now(),
        steps: steps.clone(),
        held_back: Mutex::default(),
        cancel: cancel.clone(),
        desk,
    });
    // On the heap at once: it is large, and moved on its way into the task.
    let work = work(Arc::clone(&task)).boxed();
    let stopping = inner.shutdown.is_stopping();
    let run = async move {
        let result = if stopping { Err(going_down()) } else { work.await };
        task.count(direction, &result);
        drop(task);
        // The door may have gone; its client's bytes have been dealt with all the same.
        let _ = steps.send(Step::Done(result)).await;
    };
    inner.shutdown.spawn(run.instrument(span));
    Running::new(number, receiver, cancel)
}

impl Task {
    pub(super) fn card(&self) -> &Card {
        &self.desk.card
    }

    /// Leave to move data. Whoever waits for tape has none, so that those who wait never keep others from moving.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Busy`] if as many move as may.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.inner.permits).try_acquire_owned().map_err(|_| {
            let most = self.inner.limits.transfers;
            Failure::new(FailureKind::Busy, format_args!("{most} transfers move already: try again in a moment"))
                .retry_after(Duration::from_secs(10))
        })
    }

    /// Tells the door; waits while it is slow.
    pub(super) async fn say(&self, step: Step) {
        let _ = self.steps.send(step).await;
    }

    /// Tells the door how far it is; what it is too slow to hear is joined to the next.
    pub(super) fn progress(&self, mut progress: Progress) {
        let mut held = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = held.iter().position(|earlier| earlier.stripe == progress.stripe) {
            let mut ranges = held.swap_remove(at).ranges;
            ranges.append(&mut progress.ranges);
            progress.ranges = ranges;
        }
        if let Err(mpsc::error::TrySendError::Full(Step::Progress(progress))) =
            self.steps.try_send(Step::Progress(progress))
        {
            held.push(progress);
        }
    }

    /// Ends when the transfer has to stop before its end; why. Cancel-safe.
    pub(super) async fn stopped(&self) -> Failure {
        tokio::select! {
            () = self.cancel.cancelled() => Failure::new(FailureKind::Cancelled, "the transfer was cancelled"),
            () = self.port.gone.cancelled() => {
                Failure::new(FailureKind::Cancelled, "the data connections were closed during the transfer")
            }
            () = self.inner.shutdown.cutting() => going_down(),
        }
    }

    /// Does `work` unless the transfer has to stop; `work` must be cancel-safe or leave nothing behind.
    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            failure = self.stopped() => Err(failure),
            output = work => Ok(output),
        }
    }

    /// Counts bytes that went through a mover that does not hold them.
    pub(super) fn relayed(&self, reason: RelayReason, bytes: u64) {
        metrics::counter!("penstock_relayed_bytes_total", "door" => self.port.spec.door, "reason" => reason.label())
            .increment(bytes);
    }

    fn count(&self, direction: Direction, result: &Result<Summary, Failure>) {
        let (door, direction) = (self.port.spec.door, direction.name());
        let outcome = match result {
            Ok(_) => "done",
            Err(failure) if failure.kind() == FailureKind::Cancelled => "cancelled",
            Err(_) => "failed",
        };
        let labels = [("door", door), ("direction", direction)];
        metrics::counter!("penstock_transfers_total", "door" => door, "direction" => direction, "outcome" => outcome)
            .increment(1);
        metrics::histogram!("penstock_transfer_seconds", &labels).record(self.started.elapsed().as_secs_f64());
        match result {
            Ok(summary) => {
                metrics::counter!("penstock_transfer_bytes_total", &labels).increment(summary.bytes);
                let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
                let (bytes, relayed_bytes) = (summary.bytes, summary.relayed_bytes);
                info!(bytes, elapsed_ms, relayed_bytes, "transfer done");
            }
            Err(failure) => info!(kind = ?failure.kind(), reason = %failure, "transfer ended early"),
        }
    }
}
