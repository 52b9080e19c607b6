//! One container on one cartridge, and its record in the catalogue.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use catalog::{AfterFailure, Fence, Segment, TapePosition, WorkFailure, WrittenContainer, WrittenMember};
use tracing::{error, info, warn};
use wire::{
    admin::{
        queue::{Kind, State},
        site::TransferKind,
    },
    extent::ByteRange,
    id::{MoverId, VolumeLabel},
    mover::{Append, FaultKind, Member, Outcome, Piece, PieceFault, SegmentOf, Sink, Written},
};

use super::gather::{File, Job};
use crate::{
    hsm::{
        claims,
        context::Context,
        copy::{Copy, Step},
    },
    mounts::{Grant, Released},
    movers::MoverError,
};

/// Size of a record on tape (`docs/protocol/tape-format.md`), to tell how much tape a container took.
const RECORD_BYTES: u64 = 262_144;

/// Permission bits in the header of a file that has no name any more.
const NAMELESS_MODE: u32 = 0o600;

/// How often a record is tried while the catalogue is away.
const RECORD_ATTEMPTS: u32 = 8;

/// What came of a container.
pub(super) enum Wrote {
    /// It is on tape and recorded.
    All,
    /// The cartridge is full; what got on it is recorded.
    Full,
    /// The cartridge takes no writes: another may.
    Refused(String),
    /// It failed; nothing of it counts.
    Broken {
        /// What the mount service is told.
        how: Released,
        /// This cartridge is not to be tried again for this batch.
        spent: bool,
    },
    /// It may be on tape, but the catalogue does not know it.
    Unrecorded(String),
}

/// Where a member lies in the transfer's address space.
struct Laid {
    file: usize,
    part: usize,
    range: ByteRange,
}

/// Writes the job's next container.
pub(super) async fn write(context: &Context, fence: &Fence, grant: &Grant, job: &mut Job, files: &mut [File]) -> Wrote {
    if let Some(reason) = &grant.mounted.read_only {
        return Wrote::Refused(reason.clone());
    }
    let before = match context.catalog.volume(&grant.volume).await {
        Ok(volume) => volume.position(),
        Err(error) => return Wrote::Unrecorded(error.to_string()),
    };
    let (Some(before), Some((container, parts))) = (before, job.next()) else {
        return Wrote::Broken { how: Released::Doubt, spent: true };
    };
    let source = container.mover.clone().unwrap_or_else(|| grant.mover.clone());
    let (laid, members, pieces, bytes) = lay_out(files, &parts);
    let count = file_count(parts.iter().map(|(file, _)| *file));
    let text = format!("writing {count} files to {}", grant.volume);
    context.live.batch(job.kind(), Some(&grant.volume), count, bytes, false, text);
    let append =
        Append { drive: grant.drive.clone(), volume: grant.volume.clone(), container: before.next_container, members };
    let copy = Copy {
        source: source.clone(),
        pieces,
        target: grant.mover.clone(),
        sink: Sink::Tape(append),
        bytes,
        rate_limit: None,
    };
    let end = match run(context, job.kind(), copy, source, bytes).await {
        Ok(end) => end,
        Err(error) => Err((error, Outcome::default())),
    };
    match end {
        Ok(outcome) => {
            set_aside(context, &laid, files, job, &outcome.failed).await;
            let full = outcome.tape.is_some_and(|tape| tape.full);
            let wrote = record(context, fence, &grant.volume, before, &laid, job, files, outcome).await;
            if full && matches!(wrote, Wrote::All) { Wrote::Full } else { wrote }
        }
        Err((error, outcome)) => {
            set_aside(context, &laid, files, job, &outcome.failed).await;
            judge(grant, &error, &outcome)
        }
    }
}

/// How many files these are: one that is written in several parts is one.
fn file_count(files: impl Iterator<Item = usize>) -> usize {
    files.collect::<BTreeSet<_>>().len()
}

type End = Result<Outcome, (MoverError, Outcome)>;

async fn run(context: &Context, kind: Kind, copy: Copy, source: MoverId, bytes: u64) -> Result<End, MoverError> {
    let what = if kind == Kind::Repack { TransferKind::Repack } else { TransferKind::Migrate };
    let movers = vec![source, copy.target.clone()];
    let mut copying = copy.start(context.fleet.as_ref()).await?;
    let shown = context.live.track(copying.id(), what, movers, bytes);
    let mut durable = Vec::new();
    loop {
        match copying.next().await {
            Step::Progress(moved) => shown.moved(moved),
            Step::Durable(written) => durable.extend(written),
            Step::Done(end) => {
                copying.settle();
                return Ok(end.map(|mut outcome| {
                    outcome.written.extend(durable);
                    outcome
                }));
            }
        }
    }
}

/// Lays members one behind the other.
fn lay_out(files: &[File], parts: &[(usize, usize)]) -> (Vec<Laid>, Vec<Member>, Vec<Piece>, u64) {
    let (mut laid, mut members, mut pieces, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0u64);
    for (index, part_index) in parts {
        let file = &files[*index];
        let part = &file.parts[*part_index];
        let Ok(range) = ByteRange::new(at, part.range.length()) else { break };
        let bitfile = &file.located.bitfile;
        for segment in &part.segments {
            pieces.push(Piece {
                offset_bytes: at + (segment.range.offset() - part.range.offset()),
                extent: segment.extent.clone(),
                bitfile: bitfile.id,
                sums: Some(wire::checksum::Sums {
                    adler32: segment.adler32,
                    crc32c: segment.crc32c,
                    md5: None,
                    sha256: None,
                }),
            });
        }
        let entry = file.entry.as_ref();
        members.push(Member {
            range,
            bitfile: bitfile.id,
            segment: SegmentOf {
                index: u32::try_from(part_index + 1).unwrap_or(u32::MAX),
                count: u32::try_from(file.parts.len()).unwrap_or(u32::MAX),
                offset_bytes: part.range.offset(),
                bitfile_bytes: bitfile.size_bytes,
            },
            version: u64::try_from(bitfile.created.0).unwrap_or(0),
            cos: bitfile.cos.clone(),
            path: file.path.clone(),
            modified_us: entry.map_or(bitfile.created, |entry| entry.modified).0,
            mode: entry.map_or(NAMELESS_MODE, |entry| entry.mode),
            owner: entry.map_or(&bitfile.owner, |entry| &entry.owner).clone(),
            group: entry.map_or(&bitfile.group, |entry| &entry.group).clone(),
            sums: part.sums,
        });
        laid.push(Laid { file: *index, part: *part_index, range });
        at = range.end();
    }
    (laid, members, pieces, at)
}

/// Files whose disk copy cannot be read are taken out of the batch: the rest can be written without them.
async fn set_aside(context: &Context, laid: &[Laid], files: &mut [File], job: &mut Job, faults: &[PieceFault]) {
    let mut failures = Vec::new();
    for fault in faults {
        let holds =
            |member: &&Laid| member.range.offset() <= fault.offset_bytes && fault.offset_bytes < member.range.end();
        let Some(member) = laid.iter().find(holds) else { continue };
        let file = &mut files[member.file];
        if !file.is_open() {
            continue;
        }
        let reason = format!("the disk copy cannot be read: {}", fault.fault.message);
        let next = match fault.fault.kind {
            FaultKind::Corrupt | FaultKind::NotFound | FaultKind::Medium => {
                let on_tape = job.kind() == Kind::Repack;
                error!(bitfile = %file.bitfile(), path = file.path, fault = %fault.fault, on_tape, "disk copy is damaged");
                AfterFailure::GiveUp
            }
            _ => AfterFailure::Retry(claims::pause(file.item().failures)),
        };
        failures.push(WorkFailure { ticket: file.item().ticket(), reason, next });
        file.close();
    }
    job.taken(|file, _| !files[file].is_open());
    claims::fail(context, failures).await;
}

/// Records what got on tape, and takes it out of the job.
#[allow(clippy::too_many_arguments)]
async fn record(
    context: &Context,
    fence: &Fence,
    volume: &VolumeLabel,
    before: TapePosition,
    laid: &[Laid],
    job: &mut Job,
    files: &mut [File],
    outcome: Outcome,
) -> Wrote {
    let Some(tape) = outcome.tape else {
        return Wrote::Unrecorded("the mover does not say where the tape stands".into());
    };
    if tape.container < before.next_container {
        return if tape.full { Wrote::Full } else { Wrote::Broken { how: Released::Doubt, spent: true } };
    }
    let written: BTreeMap<u64, &Written> =
        outcome.written.iter().map(|written| (written.range.offset(), written)).collect();
    let mut members: BTreeMap<usize, WrittenMember> = BTreeMap::new();
    let mut on_tape: Vec<(usize, usize)> = Vec::new();
    // Before any is closed, as the record of their last copy does.
    let wanted = laid.iter().filter(|member| files[member.file].is_open()).count();
    for member in laid.iter().filter(|member| files[member.file].is_open()) {
        let found = written.get(&member.range.offset()).filter(|written| written.range == member.range);
        let file = &files[member.file];
        let segment = match found {
            // A member without bytes has nothing to be found by: it is there if the container is.
            _ if member.range.is_empty() => None,
            None => continue,
            Some(written) => Some(Segment {
                range: file.parts[member.part].range,
                extent: written.extent.clone(),
                adler32: written.sums.adler32,
                crc32c: written.sums.crc32c,
            }),
        };
        on_tape.push((member.file, member.part));
        members
            .entry(member.file)
            .or_insert_with(|| WrittenMember {
                ticket: file.item().ticket(),
                bitfile: file.bitfile(),
                segments: Vec::new(),
            })
            .segments
            .extend(segment);
    }
    let after = TapePosition { next_container: tape.container + 1, next_block: tape.next_block };
    let container = WrittenContainer {
        volume: volume.clone(),
        before,
        after,
        written_bytes: after.next_block.saturating_sub(before.next_block).saturating_mul(RECORD_BYTES),
        copy: job.copy(),
        storage_class: job.storage_class().clone(),
        members: members.into_values().collect(),
        fence: Some(fence.clone()),
    };
    let bytes = outcome.bytes;
    match persist(context, container).await {
        Err(reason) => Wrote::Unrecorded(reason),
        Ok(recorded) => {
            info!(%volume, container = tape.container, files = on_tape.len(), bytes, copy = job.copy(), "container recorded");
            for (bitfile, why) in &recorded.refused {
                warn!(%bitfile, %volume, %why, "member on tape is dead");
            }
            note_written(context, volume, job, files, &on_tape, &recorded);
            let count = file_count(on_tape.iter().map(|(file, _)| *file));
            let text = format!("wrote {count} files to {volume}");
            context.live.batch(job.kind(), Some(volume), count, bytes, true, text);
            let all = on_tape.len() == wanted;
            job.taken(|file, part| on_tape.contains(&(file, part)));
            job.taken(|file, _| !files[file].is_open());
            if all || tape.full { Wrote::All } else { Wrote::Broken { how: Released::Doubt, spent: false } }
        }
    }
}

/// Files that have all their copies, or lost their claim, are closed.
fn note_written(
    context: &Context,
    volume: &VolumeLabel,
    job: &Job,
    files: &mut [File],
    on_tape: &[(usize, usize)],
    recorded: &catalog::ContainerRecorded,
) {
    let by_id: BTreeMap<_, _> = on_tape.iter().map(|(file, _)| (files[*file].bitfile(), *file)).collect();
    for (file, _) in on_tape {
        files[*file].written_to(job.copy(), volume);
    }
    for bitfile in &recorded.complete {
        let Some(index) = by_id.get(bitfile) else { continue };
        let file = &mut files[*index];
        let text = match job.kind() {
            Kind::Repack => format!("copy {} is on {volume} now", job.copy()),
            _ => "has all its tape copies".to_owned(),
        };
        context.live.work(file.item().id, None, job.kind(), *bitfile, State::Completed, text);
        file.close();
    }
    for (bitfile, why) in &recorded.refused {
        let Some(index) = by_id.get(bitfile) else { continue };
        if *why == catalog::CatalogRefusal::Stale {
            files[*index].close();
        }
    }
    for bitfile in &recorded.more_wanted {
        let Some(index) = by_id.get(bitfile) else { continue };
        let text = format!("copy {} is on {volume}", job.copy());
        context.live.work(files[*index].item().id, None, job.kind(), *bitfile, State::Running, text);
    }
    // What is on tape may leave the disk.
    if !recorded.complete.is_empty() {
        context.wakes.purge.notify_one();
    }
}

async fn persist(context: &Context, container: WrittenContainer) -> Result<catalog::ContainerRecorded, String> {
    let mut pause = Duration::from_millis(200);
    for attempt in 1.. {
        match context.catalog.record_container(container.clone()).await {
            Ok(recorded) => return Ok(recorded),
            Err(error) if error.is_retryable() && attempt < RECORD_ATTEMPTS => {
                warn!(%error, "container not recorded yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(10));
            }
            Err(error) => return Err(format!("the container is on tape but not recorded: {error}")),
        }
    }
    Err("the container is on tape but not recorded".into())
}

/// What to do about a container that failed as a whole.
fn judge(grant: &Grant, error: &MoverError, outcome: &Outcome) -> Wrote {
    let MoverError::Refused { fault, .. } = error else {
        return Wrote::Broken { how: Released::Doubt, spent: false };
    };
    warn!(volume = %grant.volume, drive = %grant.drive, %fault, "container not written");
    match fault.kind {
        FaultKind::EndOfMedium => Wrote::Full,
        FaultKind::ReadOnly => Wrote::Refused(fault.message.clone()),
        // After a write error a tape is read and never written again.
        FaultKind::Medium if outcome.failed.is_empty() => Wrote::Refused(format!("a write failed: {}", fault.message)),
        FaultKind::VolumeSuspect | FaultKind::WrongVolume => {
            Wrote::Broken { how: Released::Fault(fault.clone()), spent: true }
        }
        FaultKind::Drive | FaultKind::Fenced => Wrote::Broken { how: Released::Fault(fault.clone()), spent: false },
        _ => Wrote::Broken { how: Released::Doubt, spent: false },
    }
}
