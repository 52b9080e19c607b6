//! One batch of tape copies on their way to other cartridges: a repack.
//!
//! What is not on disk is asked for through the recall queue, in a name of its own and behind people's requests. Then it
//! is written as migration writes, under the claims of the repack: the catalogue exchanges the copy in the transaction
//! that records the new container. A pin keeps the disk copies while they are needed. One drive is enough.

use std::{collections::BTreeMap, time::Duration};

use catalog::{Copy as Kept, DISK_COPY, Located, StorageClass, WorkFailure};
use tracing::{info, warn};
use wire::id::{AccountName, BitfileId, RequestId, StorageClassName};

use super::{Drain, Turn};
use crate::hsm::{
    Ask, claims,
    migrate::{Migration, Moved},
    purge,
};

/// Whose requests these are in the recall queue.
const ACCOUNT: &str = "repack";

/// Behind people's requests of the usual priority; whoever waits too long goes first all the same.
const PRIORITY: i32 = -1;

/// How long disk copies are kept for a batch, unless it ends before.
const KEPT: Duration = Duration::from_secs(24 * 3600);

impl Drain {
    pub(super) async fn tape(&self, turns: Vec<Turn>) {
        let ids: Vec<BitfileId> = turns.iter().map(|turn| turn.bitfile).collect();
        let holder = format!("drain of {}", self.volume);
        let located = match self.context.catalog.locate(&ids).await {
            Ok(located) => located,
            // The claims run out.
            Err(error) => return warn!(volume = %self.volume, %error, "bitfiles not looked up"),
        };
        let here = |turn: &Turn| located.iter().any(|f| f.bitfile.id == turn.bitfile && self.copy_here(f).is_some());
        let (turns, gone): (Vec<Turn>, Vec<Turn>) = turns.into_iter().partition(here);
        self.gone(&gone.iter().collect::<Vec<_>>()).await;
        if turns.is_empty() {
            return;
        }
        let ids: Vec<BitfileId> = turns.iter().map(|turn| turn.bitfile).collect();
        if let Err(error) = self.hsm.pin(ids.clone(), &holder, Some(KEPT)).await {
            let reason = error.to_string();
            return claims::fail(&self.context, turns.iter().map(|turn| Self::put_off(turn, &*reason)).collect()).await;
        }
        // Ends the pin on every way out, also when the drain is stopped or the gateway goes down.
        let _unpin = Unpin { drain: self, ids: ids.clone(), holder };
        let turns = self.on_disk(turns).await;
        self.write(turns).await;
    }

    /// The copy that has segments on this cartridge; no other has.
    fn copy_here<'l>(&self, located: &'l Located) -> Option<&'l Kept> {
        let here = |copy: &&Kept| copy.segments.iter().any(|segment| segment.extent.volume == self.volume);
        located.copies.iter().filter(|copy| !copy.is_on_disk()).find(here)
    }

    /// Brings to disk what is not there; what could not be brought is put off.
    async fn on_disk(&self, turns: Vec<Turn>) -> Vec<Turn> {
        let account = AccountName::new(ACCOUNT).expect("a plain word is a name");
        let ids: Vec<BitfileId> = turns.iter().map(|turn| turn.bitfile).collect();
        let located = self.context.catalog.locate(&ids).await.unwrap_or_default();
        let absent = |turn: &&Turn| {
            let found = located.iter().find(|found| found.bitfile.id == turn.bitfile);
            found.is_some_and(|found| found.copy(DISK_COPY).is_none())
        };
        let ask = |turn: &Turn| Ask {
            bitfile: turn.bitfile,
            account: account.clone(),
            deadline: None,
            lifetime: Some(Duration::ZERO),
            priority: PRIORITY,
        };
        let asks: Vec<Ask> = turns.iter().filter(absent).map(ask).collect();
        if asks.is_empty() {
            return turns;
        }
        info!(volume = %self.volume, files = asks.len(), "drained files are brought to disk");
        let mut tickets = match self.hsm.stage(asks).await {
            Ok(tickets) => tickets,
            Err(error) => {
                let reason = error.to_string();
                claims::fail(&self.context, turns.iter().map(|turn| Self::put_off(turn, &*reason)).collect()).await;
                return Vec::new();
            }
        };
        let mut cancel = Requests { drain: self, open: tickets.iter().map(|ticket| ticket.request().id).collect() };
        let mut failed: BTreeMap<BitfileId, String> = BTreeMap::new();
        for ticket in &mut tickets {
            if let Err(error) = ticket.wait(None).await {
                failed.insert(ticket.request().bitfile, error.to_string());
            }
        }
        cancel.open.clear();
        let (bad, good): (Vec<Turn>, Vec<Turn>) =
            turns.into_iter().partition(|turn| failed.contains_key(&turn.bitfile));
        let failures = bad.iter().map(|turn| Self::put_off(turn, &*failed[&turn.bitfile]));
        claims::fail(&self.context, failures.collect()).await;
        good
    }

    /// Writes them to other cartridges, copy by copy.
    async fn write(&self, turns: Vec<Turn>) {
        let ids: Vec<BitfileId> = turns.iter().map(|turn| turn.bitfile).collect();
        let (located, policies) = match (self.context.catalog.locate(&ids).await, self.context.catalog.policies().await)
        {
            (Ok(located), Ok(policies)) => (located, policies),
            (Err(error), _) | (_, Err(error)) => {
                return warn!(volume = %self.volume, %error, "bitfiles not looked up");
            }
        };
        let mut groups: BTreeMap<(u32, StorageClassName), Vec<Moved>> = BTreeMap::new();
        let (mut failures, mut scattered): (Vec<WorkFailure>, Vec<BitfileId>) = (Vec::new(), Vec::new());
        for turn in turns {
            let found = located.iter().find(|found| found.bitfile.id == turn.bitfile);
            let Some((found, copy)) = found.and_then(|found| Some((found, self.copy_here(found)?))) else {
                self.gone(&[&turn]).await;
                continue;
            };
            match moved(&self.volume, found, copy, |volume| self.context.fleet.mover_of(volume)) {
                Ok(parts) => {
                    let group = groups.entry((copy.number, copy.storage_class.clone())).or_default();
                    group.push(Moved { item: turn.item, located: found.clone(), parts });
                }
                Err(reason) => {
                    scattered.push(turn.bitfile);
                    failures.push(Self::put_off(&turn, reason));
                }
            }
        }
        if !scattered.is_empty() {
            // Without the pin of this drain; those of others count. A recall then puts it in one place.
            let _ = self.hsm.unpin(scattered.clone(), &format!("drain of {}", self.volume)).await;
            if let Err(error) = purge::now(&self.context, scattered).await {
                warn!(volume = %self.volume, %error, "scattered disk copies not dropped");
            }
        }
        claims::fail(&self.context, failures).await;
        for ((copy, class), files) in groups {
            // The class may have been renamed since: any of the pool it is in would do, this one is as good.
            let Some(storage): Option<&StorageClass> = policies.storage_class(&class) else {
                let reason = format!("storage class {class} is not defined any more: define it again");
                let failures = files.iter().map(|file| WorkFailure {
                    ticket: file.item.ticket(),
                    reason: reason.clone(),
                    next: catalog::AfterFailure::Retry(claims::pause(file.item.failures)),
                });
                claims::fail(&self.context, failures.collect()).await;
                continue;
            };
            let migration = Migration {
                context: self.context.clone(),
                fence: self.fence.clone(),
                mounts: self.mounts.clone(),
                shutdown: self.shutdown.clone(),
                class: format!("what leaves {}", self.volume),
            };
            migration.repack(copy, storage, files).await;
        }
    }
}

/// The disk segments that hold what a copy has on the cartridge that is left, as parts of one container.
///
/// # Errors
///
/// Why that cannot be written in one go.
fn moved(
    volume: &wire::id::VolumeLabel,
    located: &Located,
    copy: &Kept,
    mover_of: impl Fn(&wire::id::VolumeLabel) -> Option<wire::id::MoverId>,
) -> Result<Vec<crate::hsm::policy::migrate::Part>, String> {
    let disk = located.copy(DISK_COPY).ok_or("it has left the disk again")?;
    let leaving = || copy.segments.iter().filter(|segment| segment.extent.volume == *volume);
    let inside = |range: &wire::extent::ByteRange| {
        leaving().any(|of| of.range.offset() <= range.offset() && range.end() <= of.range.end())
    };
    let segments: Vec<catalog::Segment> = disk.segments.iter().filter(|s| inside(&s.range)).cloned().collect();
    let bytes = |segments: &mut dyn Iterator<Item = &catalog::Segment>| segments.map(|s| s.range.length()).sum::<u64>();
    if bytes(&mut segments.iter()) != bytes(&mut leaving()) {
        return Err("its disk copy is cut otherwise than its tape copy: it is brought to disk again".into());
    }
    let parts = crate::hsm::policy::migrate::parts(&segments, mover_of)
        .map_err(|volume| format!("no mover of this gateway has disk volume {volume}"))?;
    let movers: std::collections::BTreeSet<_> = parts.iter().map(|part| part.mover.clone()).collect();
    if movers.len() > 1 {
        return Err("its disk copy lies on several movers: it is brought to one first, unless it is pinned".into());
    }
    Ok(parts)
}

/// Ends the pins of a batch.
struct Unpin<'d> {
    drain: &'d Drain,
    ids: Vec<BitfileId>,
    holder: String,
}

impl Drop for Unpin<'_> {
    fn drop(&mut self) {
        let (hsm, ids, holder) =
            (self.drain.hsm.clone(), std::mem::take(&mut self.ids), std::mem::take(&mut self.holder));
        self.drain.shutdown.spawn_until_cut(async move {
            if let Err(error) = hsm.unpin(ids, &holder).await {
                warn!(%error, holder, "pins not ended; they end by themselves");
            }
        });
    }
}

/// Requests that nobody needs once the batch is dropped.
struct Requests<'d> {
    drain: &'d Drain,
    open: Vec<RequestId>,
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        let (hsm, open) = (self.drain.hsm.clone(), std::mem::take(&mut self.open));
        if open.is_empty() {
            return;
        }
        self.drain.shutdown.spawn_until_cut(async move {
            if let Err(error) = hsm.cancel(open, None).await {
                warn!(%error, "recalls of a drain not cancelled; they come to disk and leave it again");
            }
        });
    }
}
