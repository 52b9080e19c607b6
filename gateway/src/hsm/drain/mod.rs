//! Draining: what lies on a volume moves to others, until it is empty.
//!
//! - `disk`: disk segments, from mover to mover or within one.
//! - `replicas`: disk copies of bitfiles that have others.
//! - `tape`: tape copies: brought to disk through the recall queue, and written to another cartridge (a repack).
//! - `ask`: what an operator asks: begin, how far, stop.
//!
//! A drain is one row of the durable queue for the volume, and, while they have their turn, a page of rows for the
//! bitfiles on it; all have the volume's name as key. So it goes on after a restart where it was, every bitfile that
//! cannot be moved says why in the queue, and taking the rows out stops it. Runs where the lease of the tape service is
//! held.
//!
//! Invariant: the old copy stays what the catalogue knows until the new one is durable; one transaction exchanges them.

mod ask;
mod disk;
mod replicas;
mod tape;

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Mutex, PoisonError},
};

use catalog::{
    AfterFailure, Claim, Fence, Medium, NewWork, PoolDemand, Subject, Timestamp, Volume, WorkFailure, WorkItem,
    WorkKind,
};
use daemon::Shutdown;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{
    admin::queue::Kind,
    id::{BitfileId, VolumeLabel},
};

use super::{Hsm, claims, context::Context, turns};
use crate::mounts::MountService;

/// Bitfiles that are queued, and claimed, in one go.
const PAGE: u32 = 500;

/// The drains that this gateway works on, so that they can be stopped at once.
#[derive(Default)]
pub(super) struct Drains(Mutex<BTreeMap<VolumeLabel, CancellationToken>>);

impl Drains {
    fn begin(&self, volume: &VolumeLabel) -> CancellationToken {
        // Only whole values are put in: a panic elsewhere leaves it usable.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let token = CancellationToken::new();
        table.insert(volume.clone(), token.clone());
        token
    }

    fn end(&self, volume: &VolumeLabel) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(volume);
    }

    fn stop(&self, volume: &VolumeLabel) {
        if let Some(token) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(volume) {
            token.cancel();
        }
    }
}

/// Runs until `shutdown`.
pub(super) async fn run(hsm: Hsm, fence: Fence, mounts: MountService, shutdown: Shutdown) {
    let context = hsm.context.clone();
    // What was cut with the lease did not end by itself.
    context.drains.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let begin = |demand: PoolDemand| {
        let volume = VolumeLabel::new(demand.pool).ok();
        let drain = volume.map(|volume| Drain {
            hsm: hsm.clone(),
            context: context.clone(),
            fence: fence.clone(),
            mounts: mounts.clone(),
            shutdown: shutdown.clone(),
            stopped: context.drains.begin(&volume),
            volume,
        });
        ready(drain.map(|drain| async move {
            drain.run().await;
            drain.context.drains.end(&drain.volume);
        }))
    };
    turns::by_key(&context, WorkKind::Repack, |wakes| &wakes.drain, &shutdown, begin).await;
}

/// One volume that is drained.
struct Drain {
    hsm: Hsm,
    context: Context,
    fence: Fence,
    mounts: MountService,
    shutdown: Shutdown,
    stopped: CancellationToken,
    volume: VolumeLabel,
}

/// One bitfile's turn.
struct Turn {
    item: WorkItem,
    bitfile: BitfileId,
}

impl Drain {
    async fn run(&self) {
        let mut after = None;
        loop {
            if self.shutdown.is_stopping() || self.stopped.is_cancelled() {
                return;
            }
            let items = match self.claim().await {
                Ok(items) if items.is_empty() => return,
                Ok(items) => items,
                Err(error) => return warn!(volume = %self.volume, %error, "drain not claimed"),
            };
            let volume = match self.context.catalog.volume(&self.volume).await {
                Ok(volume) => volume,
                Err(error) => return warn!(volume = %self.volume, %error, "drained volume not looked up"),
            };
            let _held = claims::hold(&self.context, &self.shutdown, &items);
            let (mut turns, mut whole) = (Vec::new(), None);
            for item in items {
                match item.subject {
                    Subject::Bitfile(bitfile) => turns.push(Turn { item, bitfile }),
                    Subject::Volume(_) | Subject::File { .. } => whole = Some(item),
                }
            }
            if turns.is_empty() {
                let Some(item) = whole else { return };
                if !self.next_page(&item, &mut after).await {
                    return;
                }
                continue;
            }
            if let Some(item) = whole {
                claims::fail(&self.context, vec![released(&item, "what is queued of it moves first")]).await;
            }
            tokio::select! {
                () = self.batch(&volume, turns) => {}
                // What moved is dropped, and so cancelled and cleaned up behind; the rows are gone.
                () = self.stopped.cancelled() => {}
            }
        }
    }

    async fn claim(&self) -> catalog::Result<Vec<WorkItem>> {
        let claim = Claim {
            kind: WorkKind::Repack,
            pool: self.volume.to_string(),
            holder: self.context.holder.clone(),
            lease: claims::claim_lease(&self.context),
            max_items: PAGE,
            max_bytes: self.context.config.batch_bytes.bytes(),
        };
        self.context.catalog.claim(claim).await
    }

    async fn batch(&self, volume: &Volume, turns: Vec<Turn>) {
        match &volume.medium {
            Medium::Disk { mover, .. } => self.disk(volume, mover, turns).await,
            Medium::Tape { .. } => self.tape(turns).await,
        }
    }

    /// Queues the next bitfiles that lie here. `after` is where this pass is; whether there is something to do now.
    async fn next_page(&self, item: &WorkItem, after: &mut Option<String>) -> bool {
        match self.queue_page(after).await {
            Ok(true) => {
                claims::fail(&self.context, vec![released(item, "what is queued of it moves first")]).await;
                true
            }
            Ok(false) => {
                self.end_of_pass(item).await;
                false
            }
            Err(error) => {
                warn!(volume = %self.volume, %error, "drain put off");
                self.later(item, error.to_string()).await;
                false
            }
        }
    }

    async fn queue_page(&self, after: &mut Option<String>) -> catalog::Result<bool> {
        loop {
            let (located, next) = self.context.catalog.bitfiles_on(&self.volume, after.as_deref(), PAGE).await?;
            let here = |segment: &&catalog::Segment| segment.extent.volume == self.volume;
            let new = located.iter().map(|found| NewWork {
                kind: WorkKind::Repack,
                subject: Subject::Bitfile(found.bitfile.id),
                pool: self.volume.to_string(),
                bytes: found.copies.iter().flat_map(|copy| &copy.segments).filter(here).map(|s| s.range.length()).sum(),
                not_before: Timestamp::default(),
                deadline: None,
            });
            let new: Vec<NewWork> = new.collect();
            let queued = !new.is_empty();
            match self.context.catalog.enqueue(new).await {
                // One was deleted for good in between: the page is looked up again.
                Err(catalog::CatalogError::NotFound { .. }) => continue,
                other => drop(other?),
            }
            if queued {
                // Whatever cannot be moved stays in the queue with its reason: the pass goes on behind it.
                *after = Some(next.unwrap_or_else(|| END_OF_PASS.to_owned()));
                return Ok(true);
            }
            if next.is_none() {
                return Ok(false);
            }
            *after = next;
        }
    }

    /// Everything here had its turn: the volume is empty, or something could not be moved yet.
    async fn end_of_pass(&self, item: &WorkItem) {
        let left = match self.context.catalog.volume(&self.volume).await {
            Ok(volume) => volume.live_segments,
            Err(error) => return self.later(item, error.to_string()).await,
        };
        if left == 0 {
            match self.context.catalog.finish(vec![item.ticket()]).await {
                Ok(_) => {
                    info!(volume = %self.volume, "volume is drained: nothing lies on it any more");
                    let text = format!("{} is empty", self.volume);
                    self.context.live.batch(Kind::Repack, Some(&self.volume), 0, 0, true, text);
                    self.context.wakes.reclaim.notify_one();
                }
                Err(error) => warn!(volume = %self.volume, %error, "drain not finished"),
            }
            return;
        }
        let text = format!(
            "{left} segments are left: those of uploads under way go with them, for the others \
             `penstock admin queue --kind repack` says why"
        );
        self.later(item, text).await;
    }

    /// The volume has its next turn after a while, a longer one each time. It is never given up: an operator wants it
    /// empty until he says otherwise.
    async fn later(&self, item: &WorkItem, reason: String) {
        let next = AfterFailure::Retry(claims::pause(item.failures));
        claims::fail(&self.context, vec![WorkFailure { ticket: item.ticket(), reason, next }]).await;
    }

    /// These bitfiles have nothing here any more.
    async fn gone(&self, turns: &[&Turn]) {
        if turns.is_empty() {
            return;
        }
        let tickets = turns.iter().map(|turn| turn.item.ticket()).collect();
        if let Err(error) = self.context.catalog.finish(tickets).await {
            warn!(volume = %self.volume, %error, "work that is done not finished");
        }
    }

    /// Tried again later, with the reason; never given up, as the whole drain.
    fn put_off(turn: &Turn, reason: impl Into<String>) -> WorkFailure {
        let next = AfterFailure::Retry(claims::pause(turn.item.failures));
        WorkFailure { ticket: turn.item.ticket(), reason: reason.into(), next }
    }
}

/// Behind every place that a volume has, in the form of a page's end.
const END_OF_PASS: &str = "9223372036854775807 9223372036854775807 9223372036854775807 9223372036854775807";

fn released(item: &WorkItem, reason: &str) -> WorkFailure {
    WorkFailure { ticket: item.ticket(), reason: reason.to_owned(), next: AfterFailure::Release }
}
