//! Further copies of a file on disk, so that several movers can send it.
//!
//! Owns the copying, from mover to mover, of one disk copy to volumes of movers that hold none. Records each copy when it
//! is synced, in one transaction. Works for whoever asks and waits; nothing is queued, so a gateway that dies in between
//! leaves a file that no catalogue knows, which movers report and the gateway removes.
//!
//! Invariant: a replica is recorded only whole, with the sums of the copy it was made from.

use std::{collections::BTreeMap, sync::Arc};

use catalog::{Copy as DiskCopy, DISK_COPY, Located, MAX_REPLICAS, Segment};
use tracing::info;
use wire::{
    checksum::Sums,
    extent::{ByteRange, Place},
    id::{BitfileId, FileId, MoverId, StorageClassName, VolumeLabel},
    mover::{FilePiece, Piece, Sink, VolumeFile, Written},
};

use super::{
    Hsm,
    context::Context,
    copy::{Copy, Step},
    space::{Room, rooms},
    spare,
};
use crate::failure::{Failure, FailureKind};

impl Hsm {
    /// Sees to it that a bitfile has `copies` copies on disk, the first one counted: makes some on other movers, or drops
    /// some, those first that cannot be reached. Cancelled, it leaves those that were finished.
    ///
    /// # Errors
    ///
    /// If none of its copies on disk can be read, there are not so many other movers of its storage class with room, or
    /// a mover fails.
    pub async fn replicate(&self, bitfile: BitfileId, copies: u32) -> Result<Replicated, Failure> {
        if !(1..=MAX_REPLICAS).contains(&copies) {
            let text = format!("{copies} copies on disk cannot be: ask for 1 to {MAX_REPLICAS}");
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        let context = &self.context;
        let located = context.catalog.locate_one(bitfile).await?;
        let there = u32::try_from(located.on_disk().count()).unwrap_or(u32::MAX);
        if there > copies {
            let dropped = spare::drop_down_to(context, &located, copies).await?;
            return Ok(Replicated { made: 0, dropped });
        }
        let made = more(context, &located, copies - there, None).await?;
        Ok(Replicated { made, dropped: 0 })
    }
}

/// What became of a bitfile's copies on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replicated {
    /// How many were made.
    pub made: u32,
    /// How many were dropped.
    pub dropped: u32,
}

/// Makes `wanted` further copies of a bitfile, each on another mover. Copies that lie on the volume `leaving` do not
/// count: their movers may get one.
///
/// # Errors
///
/// As [`Hsm::replicate`]; [`FailureKind::NoSpace`], before anything is copied, if there are not so many movers.
pub(super) async fn more(
    context: &Context,
    located: &Located,
    wanted: u32,
    leaving: Option<&VolumeLabel>,
) -> Result<u32, Failure> {
    let bitfile = located.bitfile.id;
    let disks = context.reachable_disks().await?;
    if located.copy(DISK_COPY).is_none() {
        let text = format!("bitfile {bitfile} is on tape only: stage it, then ask again");
        return Err(Failure::new(FailureKind::NotStaged, text));
    }
    let Some(from) = located.on_disk().find(|copy| copy.lies_within(&disks)) else {
        let text = format!("no copy of bitfile {bitfile} on disk can be read at the moment: its movers are away");
        return Err(Failure::new(FailureKind::Unavailable, text));
    };
    let (class, targets) = targets(context, located, from, leaving).await?;
    if targets.len() < wanted as usize {
        let text = format!(
            "{wanted} more copies take {wanted} other movers with a volume for class {class} and room for {} bytes, and \
             there are {}",
            located.bitfile.size_bytes,
            targets.len()
        );
        return Err(Failure::new(FailureKind::NoSpace, text));
    }
    for room in targets.into_iter().take(wanted as usize) {
        let segments = copy_to(context, bitfile, from, &room).await?;
        let files: Vec<_> = segments.iter().filter_map(file_of).collect();
        let number = match context.catalog.record_replica(bitfile, class.clone(), segments).await {
            Ok(number) => number,
            Err(error) => {
                context.fleet.discard(files);
                return Err(error.into());
            }
        };
        context.fleet.confirm(files);
        info!(%bitfile, copy = number, volume = %room.volume, mover = %room.mover, "replica made");
    }
    Ok(wanted)
}

/// The disk class of a bitfile, and a volume on each mover that has none of its disk copies: those with most room first.
async fn targets(
    context: &Context,
    located: &Located,
    from: &DiskCopy,
    leaving: Option<&VolumeLabel>,
) -> Result<(StorageClassName, Vec<Room>), Failure> {
    let picture = context.picture().await?;
    let class = &from.storage_class;
    let Some(disk) = picture.policies.storage_class(class) else {
        let text = format!("storage class {class} is not configured any more: define it again");
        return Err(Failure::new(FailureKind::Unavailable, text));
    };
    let taken: Vec<_> = located
        .on_disk()
        .filter(|copy| !leaving.is_some_and(|volume| copy.touches(volume)))
        .flat_map(|copy| &copy.segments)
        .filter_map(|segment| context.fleet.mover_of(&segment.extent.volume))
        .collect();
    let snapshot = Arc::clone(&context.fleet.watch().borrow());
    let reserve = context.config.disk_reserve_bytes.bytes();
    let mut best: BTreeMap<MoverId, Room> = BTreeMap::new();
    for room in rooms(&snapshot, &picture.volumes, &disk.pool, reserve) {
        let unfit = room.free_bytes < located.bitfile.size_bytes || leaving == Some(&room.volume);
        if unfit || taken.contains(&room.mover) {
            continue;
        }
        match best.get(&room.mover) {
            Some(known) if known.free_bytes >= room.free_bytes => {}
            _ => drop(best.insert(room.mover.clone(), room)),
        }
    }
    let mut rooms: Vec<_> = best.into_values().collect();
    rooms.sort_by_key(|room| std::cmp::Reverse(room.free_bytes));
    Ok((class.clone(), rooms))
}

/// Copies every segment to this volume; where they lie then. If it fails, nothing stays.
async fn copy_to(context: &Context, bitfile: BitfileId, from: &DiskCopy, room: &Room) -> Result<Vec<Segment>, Failure> {
    let mut sources: BTreeMap<MoverId, Vec<Segment>> = BTreeMap::new();
    for segment in from.segments.iter().filter(|segment| !segment.range.is_empty()) {
        let volume = &segment.extent.volume;
        let mover = context.fleet.mover_of(volume).ok_or_else(|| {
            Failure::new(FailureKind::Unavailable, format_args!("volume {volume} belongs to no mover that is known"))
        })?;
        sources.entry(mover).or_default().push(segment.clone());
    }
    let mut done = Vec::new();
    for (mover, segments) in sources {
        match copy_from(context, bitfile, mover, segments, room).await {
            Ok(copied) => done.extend(copied),
            Err(failure) => {
                context.fleet.discard(done.iter().filter_map(file_of).collect());
                return Err(failure);
            }
        }
    }
    done.sort_by_key(|segment| segment.range.offset());
    Ok(done)
}

async fn copy_from(
    context: &Context,
    bitfile: BitfileId,
    source: MoverId,
    segments: Vec<Segment>,
    room: &Room,
) -> Result<Vec<Segment>, Failure> {
    let count = u32::try_from(segments.len()).unwrap_or(u32::MAX);
    let files = context.catalog.next_ids(count).await?;
    let (mut pieces, mut sinks, mut at) = (Vec::new(), Vec::new(), 0u64);
    for (segment, file) in segments.iter().zip(files) {
        let sums = Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None };
        let range = ByteRange::new(at, segment.range.length());
        let range = range.map_err(|error| Failure::new(FailureKind::Internal, error))?;
        pieces.push(Piece { offset_bytes: at, extent: segment.extent.clone(), bitfile, sums: Some(sums) });
        sinks.push(FilePiece { range, volume: room.volume.clone(), file: FileId(file), sums: Some(sums) });
        at = range.end();
    }
    let ranges: Vec<_> = sinks.iter().map(|piece| piece.range).collect();
    let copy =
        Copy { source, pieces, target: room.mover.clone(), sink: Sink::Files(sinks), bytes: at, rate_limit: None };
    let mut copying = copy.start(context.fleet.as_ref()).await?;
    let mut written: Vec<Written> = Vec::new();
    let end = loop {
        match copying.next().await {
            // A file that is being copied is not purged.
            Step::Progress(_) => context.catalog.touch(bitfile),
            Step::Durable(more) => written.extend(more),
            Step::Done(end) => break end,
        }
    };
    let failure = match end {
        Ok(outcome) => {
            written.extend(outcome.written);
            outcome.failed.into_iter().next().map(|piece| piece.fault.into())
        }
        Err((error, outcome)) => {
            written.extend(outcome.written);
            Some(error.into())
        }
    };
    let placed: Vec<_> = segments
        .iter()
        .zip(&ranges)
        .filter_map(|(segment, range)| {
            let piece = written.iter().find(|piece| piece.range == *range)?;
            Some(Segment { extent: piece.extent.clone(), ..segment.clone() })
        })
        .collect();
    let failure: Option<Failure> = failure.or_else(|| {
        let missing = || Failure::new(FailureKind::Internal, "the mover did not say where it put everything");
        (placed.len() < segments.len()).then(missing)
    });
    if let Some(failure) = failure {
        context.fleet.discard(placed.iter().filter_map(file_of).collect());
        copying.settle();
        return Err(failure);
    }
    copying.settle();
    Ok(placed)
}

fn file_of(segment: &Segment) -> Option<VolumeFile> {
    match segment.extent.place {
        Place::Disk { file, .. } => Some(VolumeFile { volume: segment.extent.volume.clone(), file }),
        Place::Tape { .. } => None,
    }
}
