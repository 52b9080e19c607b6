//! Claimed work: kept alive while it is worked on, and given back with a reason when it fails.
//!
//! Owns the renewal of leases of single work items. Loses nothing: a claim that is not renewed is due again when its
//! lease ends, and a result that comes later than that is refused by the catalogue.

use std::time::Duration;

use catalog::{AfterFailure, Ticket, WorkFailure, WorkItem};
use daemon::Shutdown;
use tokio::task::JoinHandle;
use tracing::warn;

use super::context::Context;

/// How long a claim lasts without renewal: what a killed gateway was doing is taken up again after that.
pub(super) fn claim_lease(context: &Context) -> Duration {
    context.claim_lease
}

/// The longest pause before something that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);

/// Claims that are renewed until this is dropped.
pub(super) struct Held(JoinHandle<Option<()>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps claims alive.
pub(super) fn hold(context: &Context, shutdown: &Shutdown, items: &[WorkItem]) -> Held {
    let mut tickets: Vec<Ticket> = items.iter().map(WorkItem::ticket).collect();
    let (context, lease) = (context.clone(), claim_lease(context));
    Held(shutdown.spawn_until_cut(async move {
        while !tickets.is_empty() {
            tokio::time::sleep(lease / 3).await;
            match context.catalog.renew(tickets.clone(), lease).await {
                // What is done meanwhile is not in force any more, and drops out here.
                Ok(still) => tickets = still,
                Err(error) => warn!(%error, "claims not renewed yet"),
            }
        }
    }))
}

/// How long to wait after so many failures: ever longer, from two seconds on.
pub(super) fn pause(failures: u32) -> Duration {
    Duration::from_secs(2).saturating_mul(1 << failures.min(12)).min(LONGEST_PAUSE)
}

/// Gives work back that failed: to be tried again after a while, or given up after too many attempts.
pub(super) fn failure(context: &Context, item: &WorkItem, reason: impl Into<String>) -> WorkFailure {
    let next = if item.failures + 1 >= context.config.attempts {
        AfterFailure::GiveUp
    } else {
        AfterFailure::Retry(pause(item.failures))
    };
    WorkFailure { ticket: item.ticket(), reason: reason.into(), next }
}

/// Writes failures down. What cannot be written is due again when its claim runs out.
pub(super) async fn fail(context: &Context, failures: Vec<WorkFailure>) {
    if failures.is_empty() {
        return;
    }
    let ends_requests = failures.iter().any(|failure| failure.next == AfterFailure::GiveUp);
    if let Err(error) = context.catalog.fail(failures).await {
        warn!(%error, "failures not written down; the claims run out");
    }
    if ends_requests {
        context.some_ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_at_half_an_hour() {
        let pauses: Vec<u64> = (0..4).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
