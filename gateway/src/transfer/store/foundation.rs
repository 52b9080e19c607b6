//! What an upload is laid on: nothing, the file that is there, or what an earlier upload left when it was cut.

use catalog::{Base, Partial, Segment};
use wire::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Coverage, Extent, Place},
    id::{BitfileId, FileId},
    mover::{FilePiece, Framing, Job, Piece, Sink, Source, VolumeFile},
};

use super::merge::{Run, run_of, segments};
use crate::{
    failure::{Failure, FailureKind},
    movers::Transfer,
    transfer::{CutUpload, Store, StoreMode, stage::Stager, task::Task},
};

/// What is there before the first byte comes.
#[derive(Default)]
pub(super) struct Foundation {
    /// What the catalogue adds by itself.
    pub(super) base: Base,
    /// What is there, whoever adds it.
    pub(super) runs: Vec<Run>,
    /// Segments to publish besides what comes.
    pub(super) segments: Vec<Segment>,
    /// The byte of the file that the transfer's first byte is.
    pub(super) shift_bytes: u64,
    /// Bytes of the transfer before this one are there already.
    pub(super) floor_bytes: u64,
    /// A cut upload whose segments are published one by one: it is given up when they are.
    pub(super) replaced: Option<BitfileId>,
    /// Copies of parts that were made for this upload, and the transfers that made them.
    pub(super) copies: Vec<(VolumeFile, Transfer)>,
}

impl Foundation {
    /// Whether the upload makes a file from its first byte on.
    pub(super) fn is_nothing(&self) -> bool {
        self.runs.is_empty()
    }
}

/// Looks for what the client says is there.
pub(super) async fn lay(task: &Task, what: &Store, extra: ExtraSums) -> Result<Foundation, Failure> {
    let foundation = match &what.mode {
        StoreMode::Whole | StoreMode::At { offset_bytes: 0 } => return Ok(Foundation::default()),
        StoreMode::Resume { have } if have.iter().all(|range| range.is_empty()) => return Ok(Foundation::default()),
        StoreMode::Resume { have } => resume(task, what, have).await?,
        StoreMode::Append => match existing(what) {
            Some((bitfile, size, sums)) => append(task, what, bitfile, size, sums).await?,
            None => match partial(task, what).await?.map(|partial| CutUpload::from(&partial).prefix_bytes()) {
                None | Some(0) => Foundation::default(),
                Some(prefix) => resume(task, what, &[first(prefix)]).await?,
            },
        },
        StoreMode::At { offset_bytes } => match existing(what) {
            Some((bitfile, size, sums)) if size == *offset_bytes => append(task, what, bitfile, size, sums).await?,
            _ => Foundation {
                shift_bytes: *offset_bytes,
                floor_bytes: 0,
                ..resume(task, what, &[first(*offset_bytes)]).await?
            },
        },
    };
    if extra.any() && !foundation.is_nothing() {
        return Err(Failure::new(
            FailureKind::Unsupported,
            format_args!(
                "MD5 or SHA-256 is wanted of {}, which needs all its bytes in one go: store the file from its beginning",
                what.target.path
            ),
        ));
    }
    Ok(foundation)
}

fn first(length: u64) -> ByteRange {
    ByteRange::new(0, length).unwrap_or_else(|_| ByteRange::new(0, i64::MAX as u64).expect("the longest file"))
}

fn existing(what: &Store) -> Option<(BitfileId, u64, Sums)> {
    let file = what.target.existing.as_ref()?.file()?;
    Some((file.bitfile, file.size_bytes, file.sums))
}

/// The cut upload to this name, unless the file was written since.
pub(super) async fn partial(task: &Task, what: &Store) -> Result<Option<Partial>, Failure> {
    let (target, account) = (&what.target, &what.principal.account);
    let partial = task.inner.catalog.find_partial(target.parent, &target.name, account).await?;
    let written_since = |partial: &Partial| target.existing.as_ref().is_some_and(|file| file.changed > partial.created);
    Ok(partial.filter(|partial| !written_since(partial)))
}

async fn append(task: &Task, what: &Store, bitfile: BitfileId, size: u64, sums: Sums) -> Result<Foundation, Failure> {
    let on_disk =
        what.target.existing.as_ref().and_then(|entry| entry.file()).is_some_and(|file| file.residency.on_disk);
    if size > 0 && !on_disk {
        let path = &what.target.path;
        let Some(stager) = task.inner.stager.get() else {
            let advice = format_args!("{path} is on tape: have it staged before appending to it");
            return Err(Failure::new(FailureKind::NotStaged, advice));
        };
        task.card().state("tape");
        // Nobody is told how it fares: a client that stores hears nothing before its data flows.
        let (progress, _) = tokio::sync::mpsc::channel(1);
        task.unless_stopped(Stager::stage(stager.as_ref(), bitfile, &what.principal, progress)).await??;
    }
    Ok(Foundation {
        base: Base::Append(bitfile),
        runs: vec![Run { range: first(size), sums }],
        shift_bytes: size,
        ..Foundation::default()
    })
}

/// Goes on with a cut upload where the client says.
async fn resume(task: &Task, what: &Store, have: &[ByteRange]) -> Result<Foundation, Failure> {
    let path = &what.target.path;
    let Some(partial) = partial(task, what).await? else {
        return Err(Failure::new(
            FailureKind::BadArgument,
            format_args!("there is no cut upload of {path} to go on with: store it from its beginning"),
        ));
    };
    let mut claimed = Coverage::new();
    for range in have {
        claimed.merge(*range).map_err(|error| Failure::new(FailureKind::BadArgument, error))?;
    }
    let there = CutUpload::from(&partial).have;
    let mut held = Coverage::new();
    for range in &there {
        held.merge(*range).map_err(|error| Failure::new(FailureKind::Internal, error))?;
    }
    if let Some(missing) = claimed.ranges().flat_map(|range| held.missing_in(range)).next() {
        let there = there.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        return Err(Failure::new(
            FailureKind::BadArgument,
            format_args!("bytes {missing} of {path} are not here: restart with what is here, REST {there}"),
        ));
    }
    let all = held.ranges().all(|range| claimed.covers(range));
    let (shift_bytes, floor_bytes) = match task.port.spec.framing {
        Framing::Stream => (claimed.end(), 0),
        Framing::ModeE => {
            (0, claimed.ranges().next().filter(|range| range.offset() == 0).map_or(0, |range| range.end()))
        }
    };
    let foundation = Foundation { shift_bytes, floor_bytes, ..Foundation::default() };
    if all {
        let runs = partial.segments.iter().map(run_of).collect();
        return Ok(Foundation { base: Base::Partial(partial.id), runs, ..foundation });
    }
    trim(task, &partial, &claimed, foundation).await
}

/// Keeps of a cut upload what the client believes is there, so that the rest may come again. A segment of which it
/// believes a part is copied up to there, since a part of a segment has no sums of its own.
async fn trim(
    task: &Task,
    partial: &Partial,
    claimed: &Coverage,
    mut foundation: Foundation,
) -> Result<Foundation, Failure> {
    foundation.replaced = Some(partial.id);
    for segment in &partial.segments {
        for range in claimed.ranges().filter_map(|range| range.intersection(segment.range)) {
            let kept = if range == segment.range {
                segment.clone()
            } else {
                copy(task, segment, range, &mut foundation).await?
            };
            foundation.runs.push(run_of(&kept));
            foundation.segments.push(kept);
        }
    }
    Ok(foundation)
}

async fn copy(
    task: &Task,
    segment: &Segment,
    range: ByteRange,
    foundation: &mut Foundation,
) -> Result<Segment, Failure> {
    let volume = segment.extent.volume.clone();
    let mover = task.inner.movers.mover_of(&volume).ok_or_else(|| {
        Failure::new(FailureKind::Unavailable, format_args!("volume {volume} belongs to no mover that is known here"))
    })?;
    let place = match segment.extent.place {
        Place::Disk { file, offset_bytes } => {
            Place::Disk { file, offset_bytes: offset_bytes + (range.offset() - segment.range.offset()) }
        }
        tape @ Place::Tape { .. } => tape,
    };
    let file = FileId(task.inner.catalog.next_id().await?);
    let piece = Piece {
        offset_bytes: range.offset(),
        extent: Extent { volume: volume.clone(), place, length_bytes: range.length() },
        bitfile: BitfileId(0),
        sums: None,
    };
    let job = Job {
        source: Source::Extents(vec![piece]),
        sink: Sink::Files(vec![FilePiece { range, volume: volume.clone(), file, sums: None }]),
        extra_sums: ExtraSums::default(),
        rate_limit: None,
    };
    let mut transfer = task.inner.movers.start(&mover, job).await?;
    let outcome = task.unless_stopped(transfer.end()).await?.map_err(|(error, _)| Failure::from(error))?;
    let mut made = segments(outcome.written, 0).map_err(|error| Failure::new(FailureKind::Internal, error))?;
    let whole = made.len() == 1 && made[0].0.range == range;
    let Some((segment, _)) = made.pop().filter(|_| whole) else {
        let fault = outcome.failed.into_iter().next().map(|piece| Failure::from(piece.fault));
        return Err(fault.unwrap_or_else(|| Failure::new(FailureKind::Internal, "a copy is not what was asked for")));
    };
    foundation.copies.push((VolumeFile { volume, file }, transfer));
    Ok(segment)
}
