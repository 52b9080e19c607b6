//! Purge: drops disk copies of what is safe on tape, when a disk volume is fuller than its high water mark or somebody
//! waits for room.
//!
//! Owns nothing. Talks to the catalogue, which alone decides whether a copy may go (all tape copies there, no pin, no
//! promise, not read a moment ago), and to the movers for how full they really are. Runs under its own lease.
//!
//! Invariant: what has been purged and not removed yet counts as free, so nothing is purged twice for one need.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use catalog::{Medium, MediumKind, Purged, WorkKind};
use daemon::Shutdown;
use tracing::{info, warn};
use wire::{
    admin::queue::Kind,
    id::{BitfileId, VolumeLabel},
    mover::VolumeHealth,
};

use super::{
    context::Context,
    lead::awake,
    policy::purge::{Fill, Marks, excess, take},
    spare,
};

/// So many candidates are looked at in one go.
const CANDIDATES: u32 = 2000;

/// So many rounds are made for one volume before the others have their turn.
const ROUNDS: u32 = 16;

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, shutdown: Shutdown) {
    let mut movers = context.fleet.watch();
    let mut ledger = Ledger::default();
    loop {
        tokio::select! {
            go = awake(&context.wakes.purge, context.config.look_every.duration(), &shutdown) => {
                if !go {
                    return;
                }
            }
            // A mover says how full it is now.
            changed = movers.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        if let Err(error) = round(&context, &mut ledger, &shutdown).await {
            warn!(%error, "purge put off");
        }
    }
}

async fn round(context: &Context, ledger: &mut Ledger, shutdown: &Shutdown) -> catalog::Result<()> {
    let snapshot = Arc::clone(&context.fleet.watch().borrow());
    let mut known = None;
    for (view, status) in snapshot.volumes() {
        if shutdown.is_stopping() {
            return Ok(());
        }
        if !view.is_up() || matches!(status.health, VolumeHealth::Down { .. }) {
            continue;
        }
        let (picture, leaving) = match &known {
            Some(known) => known,
            None => {
                let leaving = context.catalog.demand(WorkKind::Reclaim).await?;
                let leaving: BTreeMap<String, u64> = leaving.into_iter().map(|of| (of.pool, of.bytes)).collect();
                known.insert((context.picture().await?, leaving))
            }
        };
        let Some(volume) = picture.volume(&status.volume) else { continue };
        let class = picture.policies.storage_classes.iter();
        let class = class.filter(|class| class.kind == MediumKind::Disk).find(|class| class.pool == volume.pool);
        let (Some(class), Medium::Disk { .. }) = (class, &volume.medium) else { continue };
        let fill = Fill {
            capacity_bytes: status.capacity_bytes,
            used_bytes: status.used_bytes.saturating_add(status.reserved_bytes),
            leaving_bytes: leaving
                .get(status.volume.as_str())
                .copied()
                .unwrap_or(0)
                .max(ledger.leaving(&status.volume, status.used_bytes)),
            wanted_bytes: wanted(context, &volume.pool, status.capacity_bytes),
        };
        let need = excess(fill, Marks { high: class.high_water, low: class.low_water });
        if need > 0 {
            let freed = volume_down(context, &status.volume, need).await?;
            ledger.freed(&status.volume, freed, status.used_bytes);
            context.space_found(&volume.pool);
        }
    }
    Ok(())
}

/// How much room somebody waits for, with what recalls leave free besides.
fn wanted(context: &Context, pool: &str, capacity_bytes: u64) -> u64 {
    match context.wanted_space(pool) {
        0 => 0,
        bytes => bytes + context.config.disk_reserve_bytes.bytes().min(capacity_bytes / 10),
    }
}

/// Takes a volume down by so many bytes, as far as there is something that may go.
async fn volume_down(context: &Context, volume: &VolumeLabel, mut need: u64) -> catalog::Result<u64> {
    let idle = context.config.purge_idle.duration();
    // Replicas first: nothing has to be brought back when somebody reads the file.
    let mut freed_bytes = spare::make_room(context, volume, need, idle).await?;
    need = need.saturating_sub(freed_bytes);
    let mut files = 0;
    for _ in 0..ROUNDS {
        if need == 0 {
            break;
        }
        let candidates = context.catalog.purge_candidates(volume, CANDIDATES).await?;
        let chosen = take(&candidates, need, idle, context.catalog.now());
        if chosen.is_empty() {
            break;
        }
        let count = chosen.len();
        let (purged, bytes) = freed(context.catalog.purge(chosen, idle).await?);
        files += purged;
        freed_bytes = freed_bytes.saturating_add(bytes);
        need = need.saturating_sub(bytes);
        // Some were pinned or read meanwhile: those would only come again.
        if need == 0 || purged < count {
            break;
        }
    }
    if files > 0 {
        info!(%volume, files, bytes = freed_bytes, "disk copies purged");
        metrics::counter!("penstock_purged_bytes_total").increment(freed_bytes);
        let text = format!("purged {files} disk copies from {volume}");
        context.live.batch(Kind::Purge, Some(volume), files, freed_bytes, true, text);
        context.wakes.reclaim.notify_one();
    }
    if need > 0 {
        info!(%volume, bytes = need, "nothing more may be purged: what is left is pinned, in use or not on tape");
        // What is not on tape yet holds it up.
        context.wakes.migrate.notify_one();
    }
    Ok(freed_bytes)
}

/// What was purged and may not show yet in what movers say: a file is in the queue, claimed, being removed, and only
/// then gone from a mover's next word.
#[derive(Default)]
struct Ledger(BTreeMap<VolumeLabel, Purge>);

struct Purge {
    bytes: u64,
    used_before: u64,
    at: Instant,
}

/// After so long a purge that does not show is not waited for any more.
const LEDGER_LIMIT: Duration = Duration::from_secs(60);

impl Ledger {
    fn freed(&mut self, volume: &VolumeLabel, bytes: u64, used_before: u64) {
        if bytes > 0 {
            self.0.insert(volume.clone(), Purge { bytes, used_before, at: Instant::now() });
        }
    }

    /// How much of the last purge has not left the volume yet, given what is used now.
    fn leaving(&mut self, volume: &VolumeLabel, used: u64) -> u64 {
        let Some(purge) = self.0.get(volume) else { return 0 };
        let left = purge.bytes.saturating_sub(purge.used_before.saturating_sub(used));
        if left == 0 || purge.at.elapsed() > LEDGER_LIMIT {
            self.0.remove(volume);
            return 0;
        }
        left
    }
}

/// Purges these disk copies now, pins and missing tape copies apart; why each stayed.
pub(super) async fn now(context: &Context, bitfiles: Vec<BitfileId>) -> catalog::Result<Vec<(BitfileId, Purged)>> {
    let purged = context.catalog.purge(bitfiles, Duration::ZERO).await?;
    let (files, bytes) = freed(purged.iter().copied());
    if files > 0 {
        context.live.batch(Kind::Purge, None, files, bytes, true, format!("purged {files} disk copies by command"));
        context.wakes.reclaim.notify_one();
    }
    Ok(purged)
}

fn freed(purged: impl IntoIterator<Item = (BitfileId, Purged)>) -> (usize, u64) {
    purged.into_iter().fold((0, 0), |(files, bytes), (_, purged)| match purged {
        Purged::Freed { bytes: more } => (files + 1, bytes + more),
        _ => (files, bytes),
    })
}
