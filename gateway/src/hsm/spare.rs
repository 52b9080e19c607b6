//! Disk copies that a bitfile can do without, because another one can be read now.
//!
//! Owns nothing. Chooses among them, for an operator who wants fewer or a volume that needs room; the catalogue drops
//! them, one of several at a time, and moves a replica to the place of a first copy that goes.
//!
//! Invariant: a copy is dropped only while another copy of the same bitfile lies on volumes whose movers are there.

use std::{collections::HashSet, time::Duration};

use catalog::{DISK_COPY, Located, Purged, ReplicaCandidate};
use tracing::info;
use wire::{
    admin::queue::Kind,
    id::{BitfileId, VolumeLabel},
};

use super::context::Context;
use crate::failure::{Failure, FailureKind};

/// So many replicas are looked at in one go.
const CANDIDATES: u32 = 2000;

/// Whether another disk copy than this one can be read.
pub(super) fn is_spare(located: &Located, number: u32, disks: &HashSet<VolumeLabel>) -> bool {
    located.on_disk().any(|copy| copy.number != number && copy.lies_within(disks))
}

/// Drops disk copies until there are `copies` left; how many went.
///
/// # Errors
///
/// [`FailureKind::Unavailable`] if what would be left cannot be read; [`FailureKind::Busy`] while they are in use.
pub(super) async fn drop_down_to(context: &Context, located: &Located, copies: u32) -> Result<u32, Failure> {
    let bitfile = located.bitfile.id;
    let disks = context.reachable_disks().await?;
    let mut order: Vec<_> = located.on_disk().map(|copy| (copy.lies_within(&disks), copy.number)).collect();
    // Those that cannot be reached go first, then replicas before the first copy.
    order.sort_by_key(|(readable, number)| (*readable, *number == DISK_COPY, std::cmp::Reverse(*number)));
    let surplus = order.len().saturating_sub(copies as usize);
    if !order.iter().skip(surplus).any(|(readable, _)| *readable) {
        let text = format!("no copy of bitfile {bitfile} on disk can be read at the moment: none of them is dropped");
        return Err(Failure::new(FailureKind::Unavailable, text));
    }
    // The first copy last: dropped, it hands its number to a replica.
    let mut going: Vec<u32> = order.into_iter().take(surplus).map(|(_, number)| number).collect();
    going.sort_by_key(|number| *number == DISK_COPY);
    for (done, number) in going.iter().enumerate() {
        let answer = context.catalog.drop_replicas(vec![(bitfile, *number)], Duration::ZERO).await?;
        if answer.first() == Some(&Purged::InUse) {
            let text = format!("a migration reads bitfile {bitfile} now, {done} copies were dropped: ask again later");
            return Err(Failure::new(FailureKind::Busy, text));
        }
        info!(%bitfile, copy = number, "disk copy dropped");
    }
    context.wakes.reclaim.notify_one();
    Ok(u32::try_from(surplus).unwrap_or(u32::MAX))
}

/// Takes a volume down by so many bytes of replicas, as far as nobody has read them for `idle`; how many bytes that were.
pub(super) async fn make_room(
    context: &Context,
    volume: &VolumeLabel,
    need: u64,
    idle: Duration,
) -> catalog::Result<u64> {
    let candidates = context.catalog.replica_candidates(volume, idle, CANDIDATES).await?;
    if candidates.is_empty() {
        return Ok(0);
    }
    let disks = context.reachable_disks().await?;
    let ids: Vec<BitfileId> = candidates.iter().map(|candidate| candidate.bitfile).collect();
    let located = context.catalog.locate(&ids).await?;
    let chosen = choose(candidates, &located, &disks, need);
    let files = chosen.len();
    let answers = context.catalog.drop_replicas(chosen, idle).await?;
    let freed = |answer: &Purged| if let Purged::Freed { bytes } = answer { *bytes } else { 0 };
    let bytes = answers.iter().map(freed).sum();
    if bytes > 0 {
        info!(%volume, files, bytes, "replicas dropped");
        let text = format!("dropped {files} replicas from {volume}");
        context.live.batch(Kind::Purge, Some(volume), files, bytes, true, text);
        context.wakes.reclaim.notify_one();
    }
    Ok(bytes)
}

/// Replicas that make up for `need`, each of a bitfile with another copy that can be read. Pure.
fn choose(
    candidates: Vec<ReplicaCandidate>,
    located: &[Located],
    disks: &HashSet<VolumeLabel>,
    need: u64,
) -> Vec<(BitfileId, u32)> {
    let (mut chosen, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0u64);
    for candidate in candidates {
        if bytes >= need {
            break;
        }
        let found = located.iter().find(|found| found.bitfile.id == candidate.bitfile);
        // Of each one at a time: what is left then is looked at anew.
        if found.is_some_and(|found| is_spare(found, candidate.copy, disks)) && seen.insert(candidate.bitfile) {
            bytes = bytes.saturating_add(candidate.size_bytes);
            chosen.push((candidate.bitfile, candidate.copy));
        }
    }
    chosen
}
