//! One batch of disk segments on their way to other volumes.
//!
//! Each segment becomes a file of its own on a volume of the same pool, preferably of the same mover. What finds no room
//! and is safe on tape is purged instead: its copy on disk was only a convenience.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use catalog::{CatalogRefusal, DISK_COPY, Purged, Relocated, Segment, Volume};
use tracing::{info, warn};
use wire::{
    admin::{queue::Kind, site::TransferKind},
    checksum::Sums,
    extent::{ByteRange, Place},
    id::{BitfileId, FileId, MoverId, VolumeLabel},
    mover::{FilePiece, Piece, Sink, VolumeFile, Written},
};

use super::{Drain, Turn};
use crate::hsm::{
    claims,
    copy::{Copy, Step},
    purge,
    space::{place, rooms},
};

/// Where one segment goes.
struct Target {
    turn: usize,
    old: Segment,
    volume: VolumeLabel,
    file: FileId,
    range: ByteRange,
    new: Option<Segment>,
}

impl Drain {
    pub(super) async fn disk(&self, volume: &Volume, mover: &MoverId, turns: Vec<Turn>) {
        let ids: Vec<BitfileId> = turns.iter().map(|turn| turn.bitfile).collect();
        let located = match self.context.catalog.locate(&ids).await {
            Ok(located) => located,
            // The claims run out.
            Err(error) => return warn!(volume = %self.volume, %error, "bitfiles not looked up"),
        };
        let turns = self.replicated(turns, &located).await;
        let mut here: HashMap<BitfileId, Vec<Segment>> = HashMap::new();
        for found in &located {
            let segments = found.copy(DISK_COPY).map(|copy| copy.segments.as_slice()).unwrap_or_default();
            let segments = segments.iter().filter(|segment| segment.extent.volume == self.volume);
            here.entry(found.bitfile.id).or_default().extend(segments.cloned());
        }
        let (turns, gone): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|turn| here.get(&turn.bitfile).is_some_and(|segments| !segments.is_empty()));
        self.gone(&gone.iter().collect::<Vec<_>>()).await;
        if turns.is_empty() {
            return;
        }
        let snapshot = Arc::clone(&self.context.fleet.watch().borrow());
        if !snapshot.get(mover).is_some_and(crate::movers::MoverView::is_up) {
            let reason = format!("mover {mover} is away");
            return claims::fail(&self.context, turns.iter().map(|turn| Self::put_off(turn, &*reason)).collect()).await;
        }
        let volumes = match self.context.catalog.volumes().await {
            Ok(volumes) => volumes,
            Err(error) => return warn!(volume = %self.volume, %error, "volumes not looked up"),
        };
        let mut rooms = rooms(&snapshot, &volumes, &volume.pool, self.context.config.disk_reserve_bytes.bytes());
        rooms.retain(|room| room.volume != self.volume);
        let bytes_of = |turn: &Turn| here[&turn.bitfile].iter().map(|segment| segment.range.length()).sum::<u64>();
        let sizes: Vec<u64> = turns.iter().map(bytes_of).collect();
        let placed = place(&rooms, &sizes, mover);
        let (mut chosen, mut homeless) = (Vec::new(), Vec::new());
        for (index, room) in placed.iter().enumerate() {
            match room {
                Some(room) => chosen.extend(here[&turns[index].bitfile].iter().map(|old| (index, old.clone(), *room))),
                None => homeless.push(index),
            }
        }
        self.without_room(&volume.pool, &turns, &homeless, &sizes).await;
        let Some(target) = chosen.first().map(|(_, _, room)| rooms[*room].mover.clone()) else { return };
        let count = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        let mut files = match self.context.catalog.next_ids(count).await {
            Ok(files) => files,
            Err(error) => return warn!(volume = %self.volume, %error, "no numbers for files"),
        };
        let (mut targets, mut at) = (Vec::with_capacity(chosen.len()), 0u64);
        for (turn, old, room) in chosen {
            let (Some(file), Ok(range)) = (files.next(), ByteRange::new(at, old.range.length())) else { break };
            at = range.end();
            let volume = rooms[room].volume.clone();
            targets.push(Target { turn, old, volume, file: FileId(file), range, new: None });
        }
        self.copy(mover, &target, &turns, targets, at).await;
    }

    /// What is safe on tape need not be on disk; the rest waits for room.
    async fn without_room(&self, pool: &str, turns: &[Turn], homeless: &[usize], sizes: &[u64]) {
        if homeless.is_empty() {
            return;
        }
        let purged = purge::now(&self.context, homeless.iter().map(|index| turns[*index].bitfile).collect()).await;
        let freed: BTreeSet<BitfileId> = match purged {
            Ok(purged) => purged
                .into_iter()
                .filter(|(_, purged)| matches!(purged, Purged::Freed { .. } | Purged::NotOnDisk))
                .map(|(bitfile, _)| bitfile)
                .collect(),
            Err(error) => {
                warn!(volume = %self.volume, %error, "copies without room not purged");
                BTreeSet::new()
            }
        };
        let (gone, stays): (Vec<usize>, Vec<usize>) =
            homeless.iter().partition(|index| freed.contains(&turns[**index].bitfile));
        self.gone(&gone.iter().map(|index| &turns[*index]).collect::<Vec<_>>()).await;
        if stays.is_empty() {
            return;
        }
        self.context.want_space(pool, stays.iter().map(|index| sizes[*index]).max().unwrap_or(0));
        let reason = format!("no other disk volume of pool {pool} has room, and it may not be purged: add a volume");
        claims::fail(&self.context, stays.iter().map(|index| Self::put_off(&turns[*index], &*reason)).collect()).await;
    }

    async fn copy(&self, mover: &MoverId, target: &MoverId, turns: &[Turn], mut targets: Vec<Target>, bytes: u64) {
        let piece = |target: &Target| Piece {
            offset_bytes: target.range.offset(),
            extent: target.old.extent.clone(),
            bitfile: turns[target.turn].bitfile,
            sums: Some(sums_of(&target.old)),
        };
        let file = |target: &Target| FilePiece {
            range: target.range,
            volume: target.volume.clone(),
            file: target.file,
            sums: Some(sums_of(&target.old)),
        };
        let copy = Copy {
            source: mover.clone(),
            pieces: targets.iter().map(piece).collect(),
            target: target.clone(),
            sink: Sink::Files(targets.iter().map(file).collect()),
            bytes,
            rate_limit: None,
        };
        let files: BTreeSet<usize> = targets.iter().map(|target| target.turn).collect();
        let text = format!("moving {} files from {}", files.len(), self.volume);
        self.context.live.batch(Kind::Repack, Some(&self.volume), files.len(), bytes, false, text);
        let mut open: BTreeSet<usize> = files.clone();
        let (why, copying) = match copy.start(self.context.fleet.as_ref()).await {
            Err(error) => (Some(error.to_string()), None),
            Ok(mut copying) => {
                let shown = self.context.live.track(
                    copying.id(),
                    TransferKind::Repack,
                    vec![mover.clone(), target.clone()],
                    bytes,
                );
                let why = loop {
                    match copying.next().await {
                        Step::Progress(moved) => shown.moved(moved),
                        Step::Durable(written) => self.arrived(turns, &mut targets, &mut open, written).await,
                        Step::Done(end) => {
                            let (outcome, why) = match end {
                                Ok(outcome) => (outcome, None),
                                Err((error, outcome)) => (outcome, Some(error.to_string())),
                            };
                            self.arrived(turns, &mut targets, &mut open, outcome.written).await;
                            break outcome.failed.first().map(|piece| piece.fault.message.clone()).or(why);
                        }
                    }
                };
                (why, Some(copying))
            }
        };
        let done = files.len() - open.len();
        info!(volume = %self.volume, to = %target, files = done, left = open.len(), bytes, "drained files are elsewhere");
        // What arrived of files that are not whole is of no use.
        let unused = targets.iter().filter(|target| open.contains(&target.turn) && target.new.is_some());
        self.context.fleet.discard(unused.map(stored).collect());
        if let Some(copying) = copying {
            copying.settle();
        }
        let why = why.unwrap_or_else(|| "the mover said nothing of it".to_owned());
        let text = format!("moved {done} files from {}", self.volume);
        self.context.live.batch(Kind::Repack, Some(&self.volume), done, bytes, true, text);
        claims::fail(&self.context, open.iter().map(|turn| Self::put_off(&turns[*turn], &*why)).collect()).await;
    }

    /// Notes what is durable, and records whose segments all are.
    async fn arrived(&self, turns: &[Turn], targets: &mut [Target], open: &mut BTreeSet<usize>, written: Vec<Written>) {
        let mut touched = BTreeSet::new();
        for piece in written {
            let Some(target) = targets.iter_mut().find(|target| target.range == piece.range) else { continue };
            // The mover compares too: another file than the wanted one never comes, and would never be recorded.
            let right = matches!(piece.extent.place, Place::Disk { file, .. } if file == target.file)
                && piece.extent.volume == target.volume
                && piece.sums.difference(&sums_of(&target.old)).is_none();
            if right {
                target.new = Some(Segment { extent: piece.extent, ..target.old.clone() });
                touched.insert(target.turn);
            }
        }
        let whole = |turn: &usize| targets.iter().filter(|target| target.turn == *turn).all(|t| t.new.is_some());
        let whole: Vec<usize> = touched.into_iter().filter(|turn| open.contains(turn)).filter(whole).collect();
        if whole.is_empty() {
            return;
        }
        let moved = whole.iter().map(|turn| Relocated {
            ticket: turns[*turn].item.ticket(),
            bitfile: turns[*turn].bitfile,
            segments: targets.iter().filter(|target| target.turn == *turn).filter_map(|t| t.new.clone()).collect(),
        });
        let moved = moved.collect();
        let recorded = match self.context.catalog.record_relocated(&self.volume, moved, Some(self.fence.clone())).await
        {
            Ok(recorded) => recorded,
            // They stay open, and are moved again.
            Err(error) => return warn!(volume = %self.volume, %error, "moved files not recorded"),
        };
        let (mut confirmed, mut unused, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (turn, recorded) in whole.into_iter().zip(recorded) {
            open.remove(&turn);
            let files = targets.iter().filter(|target| target.turn == turn).map(stored);
            match recorded {
                Ok(()) => confirmed.extend(files),
                // Deleted, purged or stopped meanwhile.
                Err(CatalogRefusal::Stale) => unused.extend(files),
                Err(why) => {
                    unused.extend(files);
                    failures.push(Self::put_off(&turns[turn], why.to_string()));
                }
            }
        }
        self.context.fleet.confirm(confirmed);
        self.context.fleet.discard(unused);
        self.context.wakes.reclaim.notify_one();
        claims::fail(&self.context, failures).await;
    }
}

fn stored(target: &Target) -> VolumeFile {
    VolumeFile { volume: target.volume.clone(), file: target.file }
}

const fn sums_of(segment: &Segment) -> Sums {
    Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None }
}
