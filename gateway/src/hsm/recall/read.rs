//! The copy itself, and what comes of what did not work.

use std::{collections::BTreeSet, time::Instant};

use catalog::{AfterFailure, Segment, WorkFailure};
use tracing::warn;
use wire::{
    admin::{queue::Kind, site::TransferKind},
    extent::Place,
    id::MoverId,
    mover::{Fault, FaultKind, FilePiece, Piece, Sink, VolumeFile, Written},
};

use super::{
    Batch, Session, Target, Wanted,
    record::{Arrived, record},
    retry_from, sums_of,
};
use crate::{
    hsm::{
        claims,
        context::Picture,
        copy::{Copy, Copying, Step},
    },
    mounts::{Mount, Released},
    movers::MoverError,
};

impl Session {
    pub(super) async fn read(&self, mount: &Mount, picture: &Picture, wanted: Vec<Wanted>) -> Batch {
        let mut arrived = Arrived::new(wanted);
        let nothing = arrived.without_bytes();
        record(self, &mut arrived, nothing).await;
        let placed = match self.place(mount, picture, &arrived).await {
            Ok(placed) => placed,
            Err(error) => {
                warn!(volume = %self.volume, %error, "files not placed");
                return Batch::Empty;
            }
        };
        self.put_off(&arrived, &placed).await;
        for index in placed.no_room.iter().chain(&placed.later) {
            let (bitfile, got) = arrived.keep(*index);
            if !got.is_empty() {
                self.context.parts.put(self.context.fleet.as_ref(), bitfile, got);
            }
            arrived.close(*index);
        }
        let Some(mover) = placed.mover else {
            let batch = self.end(arrived, Ok(()), Vec::new(), None).await;
            return if placed.no_room.is_empty() { batch } else { Batch::NoRoom };
        };
        let targets = placed.targets;
        let bytes: u64 = targets.iter().map(|target| target.range.length()).sum();
        let count = file_count(&targets);
        let text = format!("reading {count} files from {}", self.volume);
        self.context.live.batch(Kind::Stage, Some(&self.volume), count, bytes, false, text);
        let began = Instant::now();
        let copy = Copy {
            source: mount.grant().mover.clone(),
            pieces: pieces(&arrived, &targets),
            target: mover.clone(),
            sink: Sink::Files(files(&targets)),
            bytes,
            rate_limit: None,
        };
        let copying = match copy.start(self.context.fleet.as_ref()).await {
            Ok(copying) => copying,
            Err(error) => return self.end(arrived, Err(error), Vec::new(), None).await,
        };
        let movers = vec![mount.grant().mover.clone(), mover];
        let (result, faults, copying) = self.follow(copying, movers, &mut arrived, &targets, bytes).await;
        let done = arrived.done();
        self.context.change_board(|board| board.measured.reading_took(done as u64, bytes, began.elapsed()));
        let text = format!("read {done} files from {}", self.volume);
        self.context.live.batch(Kind::Stage, Some(&self.volume), done, bytes, true, text);
        let batch = self.end(arrived, result, faults, Some(copying)).await;
        if matches!(batch, Batch::Served) && !placed.no_room.is_empty() { Batch::NoRoom } else { batch }
    }

    /// Follows a copy to its end, and records what becomes durable as it does.
    async fn follow(
        &self,
        mut copying: Copying,
        movers: Vec<MoverId>,
        arrived: &mut Arrived,
        targets: &[Target],
        bytes: u64,
    ) -> (Result<(), MoverError>, Vec<(usize, Fault)>, Copying) {
        let shown = self.context.live.track(copying.id(), TransferKind::Stage, movers, bytes);
        loop {
            match copying.next().await {
                Step::Progress(moved) => shown.moved(moved),
                Step::Durable(written) => {
                    let ready = arrived.take(targets, written);
                    record(self, arrived, ready).await;
                }
                Step::Done(end) => {
                    let (result, outcome) = match end {
                        Ok(outcome) => (Ok(()), outcome),
                        Err((error, outcome)) => (Err(error), outcome),
                    };
                    let ready = arrived.take(targets, outcome.written);
                    record(self, arrived, ready).await;
                    let of = |offset| targets.iter().find(|target| target.range.offset() == offset);
                    let faults = outcome
                        .failed
                        .into_iter()
                        .filter_map(|piece| Some((of(piece.offset_bytes)?.wanted, piece.fault)))
                        .collect();
                    return (result, faults, copying);
                }
            }
        }
    }

    /// Gives back what did not work, with what comes next for each.
    async fn end(
        &self,
        mut arrived: Arrived,
        result: Result<(), MoverError>,
        faults: Vec<(usize, Fault)>,
        copying: Option<Copying>,
    ) -> Batch {
        let whole = result.err().map(|error| match error {
            MoverError::Refused { fault, .. } => fault,
            other => Fault::new(FaultKind::Busy, other),
        });
        let picture = self.context.picture().await.ok();
        let (mut failures, mut keep, mut medium) = (Vec::new(), Vec::new(), None);
        for (index, wanted) in arrived.open() {
            let own = faults.iter().find(|(of, _)| *of == index).map(|(_, fault)| fault);
            let failure = match (own.or(whole.as_ref()), &wanted.elsewhere) {
                (None, Some(next)) => {
                    keep.push(index);
                    retry_from(&wanted.item, next, "the rest is on another cartridge")
                }
                (None, None) => claims::failure(&self.context, &wanted.item, "the mover said nothing of it"),
                (Some(fault), _) => {
                    medium = own.filter(|fault| fault.kind == FaultKind::Medium).cloned().or(medium);
                    self.judge(picture.as_ref(), wanted, fault, own.is_some())
                }
            };
            failures.push(failure);
        }
        for index in keep {
            let (bitfile, got) = arrived.keep(index);
            self.context.parts.put(self.context.fleet.as_ref(), bitfile, got);
        }
        self.context.fleet.discard(arrived.unused());
        if let Some(copying) = copying {
            copying.settle();
        }
        claims::fail(&self.context, failures).await;
        match (whole, medium) {
            (None, None) => Batch::Served,
            (Some(fault), _) => match fault.kind {
                FaultKind::Cancelled | FaultKind::ShuttingDown => Batch::Broken(Released::Clean),
                FaultKind::NoSpace | FaultKind::ReadOnly => Batch::NoRoom,
                _ => Batch::Broken(Released::Fault(fault)),
            },
            // Good members came: the tape is read on.
            (None, Some(_)) if arrived.done() > 0 => Batch::Served,
            (None, Some(fault)) => Batch::Broken(Released::Fault(fault)),
        }
    }

    /// What comes next for a file that was not read.
    fn judge(&self, picture: Option<&Picture>, wanted: &Wanted, fault: &Fault, own: bool) -> WorkFailure {
        let (item, bitfile) = (&wanted.item, wanted.located.bitfile.id);
        let reason = format!("read from {}: {}", self.volume, fault.message);
        match fault.kind {
            FaultKind::Cancelled | FaultKind::ShuttingDown => {
                WorkFailure { ticket: item.ticket(), reason, next: AfterFailure::Release }
            }
            FaultKind::NoSpace | FaultKind::ReadOnly => {
                self.context.want_space(&wanted.pool, wanted.located.bitfile.size_bytes);
                WorkFailure { ticket: item.ticket(), reason, next: AfterFailure::Release }
            }
            FaultKind::Corrupt | FaultKind::Medium | FaultKind::NotFound if own => {
                warn!(%bitfile, volume = %self.volume, fault = %fault.message, "copy cannot be read");
                self.context.remember_bad(bitfile, &self.volume, &fault.message);
                match picture.and_then(|picture| self.another(picture, &wanted.located)) {
                    Some(pool) => retry_from(item, &pool, &reason),
                    None => WorkFailure {
                        ticket: item.ticket(),
                        reason: format!("no copy can be read; last: {reason}"),
                        next: AfterFailure::GiveUp,
                    },
                }
            }
            _ => claims::failure(&self.context, item, reason),
        }
    }
}

impl Arrived {
    /// Takes note of what a mover wrote; which bitfiles are whole now.
    pub(super) fn take(&mut self, targets: &[Target], written: Vec<Written>) -> Vec<usize> {
        let mut whole = Vec::new();
        for piece in written {
            let Some(target) = targets.iter().find(|target| target.range == piece.range) else { continue };
            let sums = sums_of(&target.segment);
            let Place::Disk { file, .. } = piece.extent.place else { continue };
            let stored = VolumeFile { volume: piece.extent.volume.clone(), file };
            if piece.sums.difference(&sums).is_some() {
                self.unwanted(stored); // The mover compares too: this never happens, and would never be recorded.
                continue;
            }
            let segment = Segment { extent: piece.extent, ..target.segment.clone() };
            if self.add(target.wanted, segment, stored) {
                whole.push(target.wanted);
            }
        }
        whole
    }
}

/// How many files these belong to: one that lies in several segments on tape is one.
fn file_count(targets: &[Target]) -> usize {
    targets.iter().map(|target| target.wanted).collect::<BTreeSet<_>>().len()
}

fn pieces(arrived: &Arrived, targets: &[Target]) -> Vec<Piece> {
    let piece = |target: &Target| Piece {
        offset_bytes: target.range.offset(),
        extent: target.segment.extent.clone(),
        bitfile: arrived.wanted(target.wanted).located.bitfile.id,
        sums: Some(sums_of(&target.segment)),
    };
    targets.iter().map(piece).collect()
}

fn files(targets: &[Target]) -> Vec<FilePiece> {
    let file = |target: &Target| FilePiece {
        range: target.range,
        volume: target.volume.clone(),
        file: target.file,
        sums: Some(sums_of(&target.segment)),
    };
    targets.iter().map(file).collect()
}
