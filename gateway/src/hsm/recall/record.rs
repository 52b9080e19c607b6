//! What has arrived of a recall, and its way into the catalogue.
//!
//! Owns the files of bitfiles that are not whole yet. A bitfile whose copy lies on several cartridges keeps what came
//! from one, in memory, until the others have been read; after a crash it is read again.
//!
//! Invariant: a file is either recorded and confirmed, or in [`Arrived::unused`] or in [`Parts`].

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use catalog::{Segment, StageRecorded, Staged};
use tracing::{info, warn};
use wire::{
    admin::queue::{Kind, State},
    extent::{ByteRange, Coverage},
    id::{BitfileId, RequestId},
    mover::{Answer, Call, VolumeFile},
};

use super::{Session, Wanted, bitfile_of};
use crate::{hsm::stage::Report, mounts::Fleet};

/// How often a record is tried while the catalogue is away.
const RECORD_ATTEMPTS: u32 = 6;

/// A batch's bitfiles and what has come of each.
pub(super) struct Arrived {
    wanted: Vec<Wanted>,
    got: Vec<Vec<(Segment, VolumeFile)>>,
    done: Vec<bool>,
    closed: Vec<bool>,
    stray: Vec<VolumeFile>,
}

impl Arrived {
    pub(super) fn new(wanted: Vec<Wanted>) -> Self {
        let count = wanted.len();
        let got = wanted.iter().map(|wanted| wanted.kept.clone()).collect();
        Self { wanted, got, done: vec![false; count], closed: vec![false; count], stray: Vec::new() }
    }

    pub(super) fn wanted(&self, index: usize) -> &Wanted {
        &self.wanted[index]
    }

    /// This one was given back: it is not this batch's business any more.
    pub(super) fn close(&mut self, index: usize) {
        self.closed[index] = true;
    }

    /// Takes out what has come of a bitfile, to be kept until the rest comes from another cartridge.
    pub(super) fn keep(&mut self, index: usize) -> (BitfileId, Vec<(Segment, VolumeFile)>) {
        (self.wanted[index].located.bitfile.id, std::mem::take(&mut self.got[index]))
    }

    /// Bitfiles that are not done.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &Wanted)> {
        self.wanted.iter().enumerate().filter(|(index, _)| !self.done[*index] && !self.closed[*index])
    }

    pub(super) fn done(&self) -> usize {
        self.done.iter().filter(|done| **done).count()
    }

    /// Bitfiles of which nothing has to be read.
    pub(super) fn without_bytes(&self) -> Vec<usize> {
        self.open().filter(|(_, wanted)| wanted.nothing).map(|(index, _)| index).collect()
    }

    /// Adds a piece; whether the bitfile is whole now.
    pub(super) fn add(&mut self, index: usize, segment: Segment, file: VolumeFile) -> bool {
        self.got[index].push((segment, file));
        let mut coverage = Coverage::new();
        for (segment, _) in &self.got[index] {
            if coverage.add(segment.range).is_err() {
                return false;
            }
        }
        let whole = ByteRange::new(0, self.wanted[index].located.bitfile.size_bytes);
        whole.is_ok_and(|whole| coverage.covers(whole))
    }

    /// A file that is not what it should be.
    pub(super) fn unwanted(&mut self, file: VolumeFile) {
        self.stray.push(file);
    }

    /// Files that came and are of no use.
    pub(super) fn unused(&mut self) -> Vec<VolumeFile> {
        let mut unused = std::mem::take(&mut self.stray);
        for (got, done) in self.got.iter_mut().zip(&self.done) {
            if !done {
                unused.extend(std::mem::take(got).into_iter().map(|(_, file)| file));
            }
        }
        unused
    }
}

/// Records bitfiles that are whole, and tells whoever waits for them.
pub(super) async fn record(session: &Session, arrived: &mut Arrived, whole: Vec<usize>) {
    if whole.is_empty() {
        return;
    }
    let staged: Vec<Staged> = whole
        .iter()
        .filter_map(|index| {
            let wanted = &arrived.wanted[*index];
            let mut segments: Vec<Segment> = arrived.got[*index].iter().map(|(segment, _)| segment.clone()).collect();
            segments.sort_by_key(|segment| segment.range);
            Some(Staged {
                ticket: wanted.item.ticket(),
                bitfile: bitfile_of(&wanted.item)?,
                storage_class: wanted.disk_class.clone(),
                segments,
            })
        })
        .collect();
    let Some(recorded) = persist(session, staged).await else { return };
    let mut ended = Vec::new();
    for (index, recorded) in whole.into_iter().zip(recorded) {
        let wanted = &arrived.wanted[index];
        let bitfile = wanted.located.bitfile.id;
        let files: Vec<VolumeFile> =
            std::mem::take(&mut arrived.got[index]).into_iter().map(|(_, file)| file).collect();
        arrived.done[index] = true;
        session.context.change_board(|board| {
            board.holds.remove(&bitfile);
        });
        match recorded {
            StageRecorded::Done { requests, .. } => {
                session.context.fleet.confirm(files);
                session.context.forget_bad(bitfile);
                let request = requests.first().copied();
                let message = "is on disk";
                session.context.live.work(wanted.item.id, request, Kind::Stage, bitfile, State::Completed, message);
                ended.extend(requests);
            }
            StageRecorded::Refused(why) => {
                info!(%bitfile, %why, "recall not recorded");
                // The catalogue has queued its files for reclaim.
                session.context.wakes.reclaim.notify_one();
                session.context.some_ended();
            }
        }
    }
    session.context.ended(&ended);
    charge(session, &ended).await;
}

async fn persist(session: &Session, staged: Vec<Staged>) -> Option<Vec<StageRecorded>> {
    let mut pause = Duration::from_millis(200);
    for _ in 0..RECORD_ATTEMPTS {
        match session.context.catalog.record_stage(staged.clone(), Some(session.fence.clone())).await {
            Ok(recorded) => return Some(recorded),
            Err(error) if error.is_retryable() => {
                warn!(%error, "recall not recorded yet");
                tokio::time::sleep(pause).await;
                pause *= 3;
            }
            Err(error) => {
                warn!(%error, "recall not recorded");
                return None;
            }
        }
    }
    None
}

/// Puts what was brought down to the accounts that asked.
async fn charge(session: &Session, requests: &[RequestId]) {
    match session.context.catalog.stage_requests(requests).await {
        Ok(requests) => {
            for request in requests {
                let served = Report::Served(request.account, 1, request.size_bytes);
                // A share that is not counted is a share that is not counted: nobody waits for it.
                let _ = session.report.try_send(served);
            }
        }
        Err(error) => warn!(%error, "shares not counted"),
    }
}

/// How long what came from one cartridge waits for the rest.
const PARTS_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// What has come of bitfiles whose copy lies on several cartridges.
#[derive(Default)]
pub(in crate::hsm) struct Parts(Mutex<HashMap<BitfileId, Part>>);

/// Pieces of one bitfile, with the files they are in, and since when they wait.
type Part = (Vec<(Segment, VolumeFile)>, Instant);

impl Parts {
    /// Keeps pieces; those that have waited too long are given up.
    pub(super) fn put(&self, fleet: &dyn Fleet, bitfile: BitfileId, got: Vec<(Segment, VolumeFile)>) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(bitfile, (got, Instant::now()));
        let old: Vec<BitfileId> =
            parts.iter().filter(|(_, (_, since))| since.elapsed() > PARTS_LIMIT).map(|(id, _)| *id).collect();
        let files = old.iter().filter_map(|id| parts.remove(id)).flat_map(|(got, _)| got).map(|(_, file)| file);
        let files: Vec<VolumeFile> = files.collect();
        drop(parts);
        if !files.is_empty() {
            fleet.discard(files);
        }
    }

    /// What is kept of a bitfile, if its movers have it still: one that was away may have removed what nobody
    /// confirmed.
    pub(super) async fn take(&self, fleet: &dyn Fleet, bitfile: BitfileId) -> Vec<(Segment, VolumeFile)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&bitfile);
        let Some((got, _)) = kept else { return Vec::new() };
        for (segment, file) in &got {
            if !is_there(fleet, file, segment.range.length()).await {
                info!(%bitfile, volume = %file.volume, "what came before is gone, and is read again");
                fleet.discard(got.into_iter().map(|(_, file)| file).collect());
                return Vec::new();
            }
        }
        got
    }
}

async fn is_there(fleet: &dyn Fleet, file: &VolumeFile, length_bytes: u64) -> bool {
    let Some(mover) = fleet.mover_of(&file.volume) else { return false };
    let after = file.file.0.checked_sub(1).map(wire::id::FileId);
    let call = Call::Files { volume: file.volume.clone(), after, limit: 1 };
    match fleet.call(&mover, call).await {
        Ok(Answer::Files { files }) => {
            files.first().is_some_and(|(found, length, _)| *found == file.file && *length == length_bytes)
        }
        _ => false,
    }
}
