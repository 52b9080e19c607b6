//! Many new files at once: a recall, a copy, the receiving half of a copy between movers.
//!
//! Owns the pieces, each with its file while bytes come for it. Talks to the volumes below, and hands whole pieces on to be
//! made durable. A piece that does not work fails alone; the others go on.
//!
//! Invariant: a piece is handed on once, whole, and with the sums it should have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::sync::mpsc;
use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage, CoverageError},
    mover::{Fault, FaultKind, FilePiece, PieceFault},
};

use super::loan::Loan;
use crate::{
    data::{Intake, Lane},
    disk::{Draft, Owner, Volumes},
    sums::{Runs, Tally},
};

/// The most files that are open at a time. A peer that sends a bit of each of ten thousand pieces is stopped.
const MAX_OPEN: usize = 512;

/// A batch under way.
pub(super) struct Batch {
    volumes: Volumes,
    owner: Owner,
    /// In order of their ranges.
    pieces: Vec<FilePiece>,
    state: Mutex<State>,
    whole: mpsc::UnboundedSender<Whole>,
}

struct State {
    claimed: Coverage,
    fresh: Coverage,
    pieces: Vec<PieceState>,
    open: usize,
}

enum PieceState {
    Waiting,
    Open { draft: Arc<Draft>, runs: Runs },
    HandedOn,
    Failed(Fault),
}

/// A piece whose bytes are all there and good.
pub(super) struct Whole {
    pub(super) piece: FilePiece,
    pub(super) draft: Draft,
    pub(super) sums: Sums,
}

impl Batch {
    /// Begins. Whole pieces come out of the receiver, at most one for each piece; empty ones at once. May block.
    pub(super) fn new(
        volumes: Volumes,
        owner: Owner,
        mut pieces: Vec<FilePiece>,
    ) -> (Self, mpsc::UnboundedReceiver<Whole>) {
        pieces.sort_by_key(|piece| (piece.range.offset(), piece.range.length()));
        // Bounded all the same: as many as there are pieces, which is what one frame can carry.
        let (whole, receiver) = mpsc::unbounded_channel();
        let states = pieces.iter().map(|_| PieceState::Waiting).collect();
        let state = State { claimed: Coverage::new(), fresh: Coverage::new(), pieces: states, open: 0 };
        let batch = Self { volumes, owner, pieces, state: Mutex::new(state), whole };
        for index in 0..batch.pieces.len() {
            if batch.pieces[index].range.is_empty() {
                let opened = batch.open(index);
                batch.settle(index, opened.map(|_| ()));
            }
        }
        (batch, receiver)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which ranges came since the last call.
    pub(super) fn take_fresh(&self) -> Vec<ByteRange> {
        std::mem::take(&mut self.state().fresh).ranges().collect()
    }

    /// The pieces that failed; after the last byte, also those that did not become whole.
    pub(super) fn failed(&self, over: bool) -> Vec<PieceFault> {
        let state = self.state();
        let fault = |(piece, state): (&FilePiece, &PieceState)| {
            let fault = match state {
                PieceState::Failed(fault) => fault.clone(),
                PieceState::HandedOn => return None,
                PieceState::Waiting | PieceState::Open { .. } if over => {
                    Fault::new(FaultKind::Incomplete, format!("not all bytes of {} came", piece.range))
                }
                PieceState::Waiting | PieceState::Open { .. } => return None,
            };
            Some(PieceFault { offset_bytes: piece.range.offset(), fault })
        };
        self.pieces.iter().zip(&state.pieces).filter_map(fault).collect()
    }

    /// The piece that holds the byte at `offset`.
    fn find(&self, offset: u64) -> Result<usize, Fault> {
        let next = self.pieces.partition_point(|piece| piece.range.offset() <= offset);
        // Empty pieces may lie at the same offset, before the one that has the byte.
        self.pieces[..next].iter().rposition(|piece| piece.range.end() > offset).filter(|_| next > 0).ok_or_else(|| {
            Fault::new(FaultKind::TooLong, format!("byte {offset} came, which belongs to no piece of this transfer"))
        })
    }

    /// The file of a piece, made when its first byte comes. `None` if the piece has failed: its bytes are thrown away.
    fn open(&self, index: usize) -> Result<Option<Arc<Draft>>, Fault> {
        let mut state = self.state();
        match &state.pieces[index] {
            PieceState::Open { draft, .. } => return Ok(Some(draft.clone())),
            PieceState::Failed(_) | PieceState::HandedOn => return Ok(None),
            PieceState::Waiting if state.open >= MAX_OPEN => {
                let message = format!("the peer sends parts of more than {MAX_OPEN} pieces at a time");
                return Err(Fault::new(FaultKind::PeerProtocol, message));
            }
            PieceState::Waiting => {}
        }
        let piece = &self.pieces[index];
        let made = self
            .volumes
            .get(&piece.volume)
            .and_then(|volume| volume.create(piece.file, &self.owner, piece.range.length()).map_err(Fault::from));
        match made {
            Ok(draft) => {
                let draft = Arc::new(draft);
                state.pieces[index] = PieceState::Open { draft: draft.clone(), runs: Runs::default() };
                state.open += 1;
                Ok(Some(draft))
            }
            Err(fault) => {
                state.pieces[index] = PieceState::Failed(fault);
                Ok(None)
            }
        }
    }

    /// Writes bytes that lie in one piece. May block.
    pub(super) fn write(&self, index: usize, at: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(draft) = self.open(index)? else { return Ok(()) };
        let written = draft.write_at(data, at - self.pieces[index].range.offset());
        drop(draft);
        if let Err(error) = written {
            self.settle(index, Err(error.into()));
        }
        Ok(())
    }

    /// Counts bytes of one piece that were written; hands the piece on if it is whole.
    fn account(&self, index: usize, range: ByteRange, sums: Sums) {
        let mut state = self.state();
        // Only restart markers: a batch is not restarted at a byte.
        let _ = state.fresh.add(range);
        let PieceState::Open { runs, .. } = &mut state.pieces[index] else { return };
        runs.add(range, sums);
        if runs.bytes() == self.pieces[index].range.length() {
            drop(state);
            self.settle(index, Ok(()));
        }
    }

    /// The end of a piece: handed on, or failed.
    fn settle(&self, index: usize, result: Result<(), Fault>) {
        let piece = &self.pieces[index];
        let mut state = self.state();
        let before = std::mem::replace(&mut state.pieces[index], PieceState::HandedOn);
        let PieceState::Open { draft, runs } = before else {
            state.pieces[index] = before;
            return;
        };
        state.open -= 1;
        let sums = runs.of(piece.range).unwrap_or(Sums::EMPTY);
        let good = result.and_then(|()| match piece.sums.and_then(|wanted| wanted.difference(&sums)) {
            None => Ok(()),
            Some(algorithm) => {
                let message = format!("the bytes of file {} have another {algorithm} than they should", piece.file);
                Err(Fault::new(FaultKind::Corrupt, message))
            }
        });
        match good {
            Err(fault) => state.pieces[index] = PieceState::Failed(fault),
            Ok(()) => {
                drop(state);
                // Every byte was written and its writer let go of the file before it was counted.
                let draft = Arc::into_inner(draft).expect("nobody writes a piece that is whole");
                let _ = self.whole.send(Whole { piece: piece.clone(), draft, sums });
            }
        }
    }
}

impl Intake for Loan<Batch> {
    type Lane = BatchLane;

    fn lane(self: &Arc<Self>) -> BatchLane {
        BatchLane { batch: Self::clone(self), tally: Tally::new(), index: 0 }
    }

    fn claim(&self, range: ByteRange) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        self.state().claimed.add(range).map_err(|error| {
            let kind = match error {
                CoverageError::Overlap { .. } => FaultKind::Overlap,
                CoverageError::TooManyRanges => FaultKind::PeerProtocol,
            };
            Fault::new(kind, error)
        })
    }
}

/// One writer's way into a batch: a connection, or the thread that reads a tape.
pub(super) struct BatchLane {
    batch: Loan<Batch>,
    tally: Tally,
    /// The piece that the tally is of.
    index: usize,
}

impl BatchLane {
    /// Writes bytes at `at`, whatever pieces they lie in.
    ///
    /// # Errors
    ///
    /// If they lie in none.
    pub(super) fn put(&mut self, mut at: u64, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() {
            let index = self.batch.find(at)?;
            if index != self.index {
                self.flush()?;
                self.index = index;
            }
            let range = self.batch.pieces[index].range;
            let rest = usize::try_from(range.end() - at).map_or(data.len(), |rest| rest.min(data.len()));
            let (part, after) = data.split_at(rest);
            self.batch.write(index, at, part)?;
            if let Some((range, sums)) = self.tally.add(at, part) {
                self.batch.account(index, range, sums);
            }
            at += part.len() as u64;
            data = after;
            if at == range.end() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// A source could not give these bytes: the pieces they belong to fail.
    pub(super) fn fail(&mut self, range: ByteRange, fault: &Fault) {
        for (index, piece) in self.batch.pieces.iter().enumerate() {
            if piece.range.intersection(range).is_some() {
                let mut state = self.batch.state();
                if matches!(state.pieces[index], PieceState::Waiting) {
                    state.pieces[index] = PieceState::Failed(fault.clone());
                }
                drop(state);
                self.batch.settle(index, Err(fault.clone()));
            }
        }
    }
}

impl Lane for BatchLane {
    fn space<'a>(&'a mut self, _at: u64, scratch: &'a mut [u8]) -> Option<&'a mut [u8]> {
        Some(scratch)
    }

    fn filled(&mut self, at: u64, count: usize, scratch: &[u8]) -> Result<(), Fault> {
        self.put(at, &scratch[..count])
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if let Some((range, sums)) = self.tally.take() {
            self.batch.account(self.index, range, sums);
        }
        Ok(())
    }

    fn room(&mut self, _at: u64) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}
