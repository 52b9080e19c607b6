//! One recall session: everything that is wanted from one cartridge, in one mount.
//!
//! - [`prepare`]: what was claimed, looked up, and where on disk it goes.
//! - [`read`]: the copy itself, and what comes of what did not work.
//! - [`record`]: the way of what arrived into the catalogue.
//!
//! Owns the mount while it has it. Claims requests, reads their files in the order of the tape, and records each as it
//! becomes durable, so that its requester need not wait for the rest. Talks to movers by [`super::copy`].
//!
//! Invariant: a claim ends as recorded, failed with a reason, given back untried, or by its lease; a file that was
//! written and not recorded is discarded.

mod prepare;
mod read;
pub(super) mod record;

use std::time::Instant;

use catalog::{AfterFailure, Claim, Fence, Located, Segment, Subject, Timestamp, WorkFailure, WorkItem, WorkKind};
use daemon::Shutdown;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wire::{
    checksum::Sums,
    extent::ByteRange,
    id::{BitfileId, FileId, StorageClassName, VolumeLabel},
    mover::VolumeFile,
};

use super::{
    claims,
    context::{Context, Picture, SessionState},
    stage::Report,
};
use crate::mounts::{Mount, MountService, Purpose, Released, Wish};

/// The most requests of one batch: the order on tape is found among them.
const BATCH_ITEMS: u32 = 2000;

/// A session's place among all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    pub(super) priority: i32,
    pub(super) rank: u64,
    pub(super) since: Timestamp,
}

/// One recall session.
pub(super) struct Session {
    pub(super) context: Context,
    pub(super) fence: Fence,
    pub(super) mounts: MountService,
    pub(super) shutdown: Shutdown,
    pub(super) report: mpsc::Sender<Report>,
    pub(super) volume: VolumeLabel,
    pub(super) turn: watch::Receiver<Turn>,
    pub(super) unwanted: CancellationToken,
}

/// One bitfile of a batch: what is read of it from this cartridge, and where it goes.
pub(super) struct Wanted {
    pub(super) item: WorkItem,
    pub(super) located: Located,
    /// Tape segments on this cartridge that are not on disk yet.
    pub(super) segments: Vec<Segment>,
    /// What came from other cartridges before, and where it is.
    pub(super) kept: Vec<(Segment, VolumeFile)>,
    /// Nothing has to be read: a disk copy is back, or the file is empty.
    pub(super) nothing: bool,
    /// Other cartridges that hold the rest of the same copy.
    pub(super) elsewhere: Option<VolumeLabel>,
    pub(super) pool: String,
    pub(super) disk_class: StorageClassName,
}

/// Where one tape segment goes.
pub(super) struct Target {
    pub(super) wanted: usize,
    pub(super) segment: Segment,
    pub(super) volume: VolumeLabel,
    pub(super) file: FileId,
    pub(super) range: ByteRange,
}

/// How a batch went for the session.
enum Batch {
    /// Go on.
    Served,
    /// Nothing is due.
    Empty,
    /// No room on disk for any of it.
    NoRoom,
    /// The drive or the cartridge cannot be used any more.
    Broken(Released),
}

impl Session {
    /// Runs it; whether it ended because there was no room on disk.
    pub(super) async fn run(mut self) -> bool {
        let asked = Instant::now();
        let Some(mount) = self.mount().await else { return false };
        self.context.change_board(|board| {
            board.sessions.insert(self.volume.clone(), SessionState::Reading);
            board.measured.mount_took(asked.elapsed());
        });
        let mut budget = self.context.config.recall_bytes.bytes();
        let (how, no_room) = loop {
            if self.shutdown.is_stopping() || budget == 0 {
                break (Released::Clean, false);
            }
            let batch = tokio::select! {
                batch = self.batch(&mount, &mut budget) => batch,
                () = mount.revoked() => Batch::Broken(Released::Doubt),
            };
            match batch {
                Batch::Served => {}
                Batch::Empty => break (Released::Clean, false),
                Batch::NoRoom => break (Released::Clean, true),
                Batch::Broken(how) => break (how, false),
            }
        };
        mount.release(how);
        no_room
    }

    /// Waits for the cartridge; `None` if it cannot be mounted, which its requests are told, or is not wanted any more.
    async fn mount(&mut self) -> Option<Mount> {
        let turn = *self.turn.borrow_and_update();
        let wish = Wish {
            purpose: Purpose::Recall,
            volumes: vec![self.volume.clone()],
            pool: self.context.catalog.volume(&self.volume).await.ok().map(|volume| volume.pool)?,
            max_drives: usize::MAX,
            priority: turn.priority,
            rank: turn.rank,
            since: turn.since,
        };
        let mut pending = self.mounts.want(wish).await.ok()?;
        let id = pending.id();
        self.context.change_board(|board| {
            board.sessions.insert(self.volume.clone(), SessionState::Waiting(Some(id)));
        });
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.stopping() => return None,
                granted = pending.granted() => match granted {
                    Ok(mount) => return Some(mount),
                    Err(why) => {
                        self.cannot_mount(&why.to_string()).await;
                        return None;
                    }
                },
                () = self.unwanted.cancelled() => return None,
                changed = self.turn.changed() => {
                    changed.ok()?;
                    let turn = *self.turn.borrow_and_update();
                    pending.rank(turn.priority, turn.rank).await;
                }
            }
        }
    }

    async fn claim(&self, bytes: u64) -> catalog::Result<Vec<WorkItem>> {
        let claim = Claim {
            kind: WorkKind::Stage,
            pool: self.volume.to_string(),
            holder: self.context.holder.clone(),
            lease: claims::claim_lease(&self.context),
            max_items: BATCH_ITEMS,
            max_bytes: bytes,
        };
        self.context.catalog.claim(claim).await
    }

    /// The cartridge cannot be mounted until somebody does something: other copies are used, where there are any.
    async fn cannot_mount(&self, why: &str) {
        warn!(volume = %self.volume, why, "cartridge cannot be mounted");
        self.context.remember_unmountable(&self.volume, why.to_owned());
        let items = match self.claim(u64::MAX).await {
            Ok(items) => items,
            Err(error) => {
                warn!(volume = %self.volume, %error, "requests not claimed");
                return;
            }
        };
        let ids: Vec<BitfileId> = items.iter().filter_map(bitfile_of).collect();
        let Ok(located) = self.context.catalog.locate(&ids).await else { return };
        let picture = match self.context.picture().await {
            Ok(picture) => picture,
            Err(error) => {
                warn!(%error, "other copies not looked for");
                return;
            }
        };
        let failures = items.iter().map(|item| {
            let located = located.iter().find(|located| Some(located.bitfile.id) == bitfile_of(item));
            match located.and_then(|located| self.another(&picture, located)) {
                Some(pool) => retry_from(item, &pool, why),
                None => WorkFailure {
                    ticket: item.ticket(),
                    reason: why.to_owned(),
                    next: AfterFailure::Retry(super::context::UNMOUNTABLE),
                },
            }
        });
        claims::fail(&self.context, failures.collect()).await;
        self.context.wakes.stage.notify_one();
    }

    /// Another cartridge from which a bitfile can be read: one that can be mounted and is not known to be bad.
    fn another(&self, picture: &Picture, located: &Located) -> Option<VolumeLabel> {
        let bitfile = located.bitfile.id;
        let good = |segment: &Segment| {
            let volume = &segment.extent.volume;
            *volume != self.volume
                && picture.volume(volume).is_some_and(|volume| volume.state.readable())
                && self.context.why_bad(bitfile, volume).is_none()
                && self.context.why_unmountable(volume).is_none()
        };
        located
            .copies
            .iter()
            .filter(|copy| !copy.is_on_disk() && copy.complete)
            .find(|copy| copy.segments.iter().all(good))
            .and_then(|copy| copy.segments.first())
            .map(|segment| segment.extent.volume.clone())
    }

    async fn batch(&self, mount: &Mount, budget: &mut u64) -> Batch {
        let items = match self.claim((*budget).min(self.context.config.batch_bytes.bytes())).await {
            Ok(items) if items.is_empty() => return Batch::Empty,
            Ok(items) => items,
            Err(error) => {
                warn!(volume = %self.volume, %error, "requests not claimed");
                return Batch::Empty;
            }
        };
        let _held = claims::hold(&self.context, &self.shutdown, &items);
        *budget = budget.saturating_sub(items.iter().map(|item| item.bytes).sum());
        match self.prepare(items).await {
            Ok((picture, wanted)) if wanted.is_empty() => {
                drop(picture);
                Batch::Served
            }
            Ok((picture, wanted)) => self.read(mount, &picture, wanted).await,
            Err(error) => {
                // The claims run out, and are due again.
                warn!(volume = %self.volume, %error, "batch not prepared");
                Batch::Empty
            }
        }
    }
}

const fn sums_of(segment: &Segment) -> Sums {
    Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None }
}

/// The bitfile of a stage item.
const fn bitfile_of(item: &WorkItem) -> Option<BitfileId> {
    match &item.subject {
        Subject::Bitfile(bitfile) => Some(*bitfile),
        Subject::File { .. } | Subject::Volume(_) => None,
    }
}

fn retry_from(item: &WorkItem, volume: &VolumeLabel, reason: &str) -> WorkFailure {
    let next = AfterFailure::RetryFrom { pool: volume.to_string() };
    WorkFailure { ticket: item.ticket(), reason: reason.to_owned(), next }
}
