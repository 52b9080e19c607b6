//! An upload: bytes at any offset in any order, into one file of a disk volume.
//!
//! Owns the file while it is written, which ranges have come, and their sums. Talks to the [`Draft`] below. Never overwrites
//! a byte that came before, in this transfer or in an earlier one that it goes on with.
//!
//! Invariant: a byte is in the runs only after it was written.

use std::{
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt as _, future::BoxFuture};
use wire::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Coverage, CoverageError, Extent, Place},
    mover::{Fault, FaultKind, NewFile, Written},
};

use super::loan::Loan;
use crate::{
    data::{Intake, Lane},
    disk::{DiskError, Draft},
    sums::{Frontier, Runs, Tally},
};

/// An upload under way.
pub(super) struct Upload {
    draft: Draft,
    base_bytes: u64,
    expected: Option<ByteRange>,
    have: Coverage,
    state: Mutex<State>,
    frontier: Option<Mutex<Frontier>>,
}

struct State {
    /// What a peer said it would send, and what the file had before.
    claimed: Coverage,
    runs: Runs,
    /// What came since the last report.
    fresh: Coverage,
}

/// What came of an upload that is on stable storage.
pub(super) struct Uploaded {
    pub(super) draft: Draft,
    pub(super) runs: Vec<(ByteRange, Sums)>,
    base_bytes: u64,
}

impl Upload {
    /// Begins.
    ///
    /// # Errors
    ///
    /// If there are too many ranges in `file.have`.
    pub(super) fn new(
        draft: Draft,
        file: &NewFile,
        expected: Option<ByteRange>,
        extra: ExtraSums,
    ) -> Result<Self, Fault> {
        let mut have = Coverage::new();
        for &range in &file.have {
            have.add(range).map_err(|error| Fault::new(FaultKind::BadRequest, error))?;
        }
        // Of a file that goes on after a cut there is no run that begins at its start, so there is nothing to say.
        let frontier = if file.have.is_empty() { Frontier::new(extra, file.base_bytes) } else { None };
        let state = State { claimed: have.clone(), runs: Runs::default(), fresh: Coverage::new() };
        Ok(Self {
            draft,
            base_bytes: file.base_bytes,
            expected,
            have,
            state: Mutex::new(state),
            frontier: frontier.map(Mutex::new),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which ranges came since the last call.
    pub(super) fn take_fresh(&self) -> Vec<ByteRange> {
        std::mem::take(&mut self.state().fresh).ranges().collect()
    }

    /// Whether all that was expected is there.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Incomplete`] if not.
    pub(super) fn check_complete(&self) -> Result<(), Fault> {
        let Some(expected) = self.expected else { return Ok(()) };
        let state = self.state();
        let mut all = self.have.clone();
        let merged = state.runs.iter().try_for_each(|(range, _)| all.merge(range));
        let missing = merged.map(|()| all.missing_in(expected));
        match missing.as_deref() {
            Ok([]) => Ok(()),
            Ok([first, ..]) => {
                let message = format!("the peer ended before bytes {first} had come; send what is missing");
                Err(Fault::new(FaultKind::Incomplete, message))
            }
            Err(error) => Err(Fault::new(FaultKind::PeerProtocol, error)),
        }
    }

    /// Hashes what has not been hashed, and gives up the file with its runs. Blocks.
    ///
    /// # Errors
    ///
    /// If what was written cannot be read back.
    pub(super) fn finish(self) -> Result<Uploaded, Fault> {
        let Self { draft, base_bytes, state, frontier, .. } = self;
        let runs = state.into_inner().unwrap_or_else(PoisonError::into_inner).runs;
        let mut runs: Vec<_> = runs.iter().collect();
        if let Some(frontier) = frontier {
            let mut frontier = frontier.into_inner().unwrap_or_else(PoisonError::into_inner);
            match runs.as_mut_slice() {
                [(range, sums)] if range.offset() == base_bytes => {
                    catch_up(&mut frontier, &draft, base_bytes, range.end())?;
                    *sums = frontier.finish(*sums);
                }
                // An empty file has sums too, but no run to carry them; a file with holes has none of the whole.
                _ => {}
            }
        }
        Ok(Uploaded { draft, runs, base_bytes })
    }
}

impl Uploaded {
    /// How the runs are reported.
    pub(super) fn written(&self) -> Vec<Written> {
        let volume = self.draft.volume().label();
        let file = self.draft.id();
        let written = |&(range, sums): &(ByteRange, Sums)| {
            let place = Place::Disk { file, offset_bytes: range.offset() - self.base_bytes };
            Written { range, extent: Extent { volume: volume.clone(), place, length_bytes: range.length() }, sums }
        };
        self.runs.iter().map(written).collect()
    }
}

fn catch_up(frontier: &mut Frontier, draft: &Draft, base_bytes: u64, end: u64) -> Result<(), Fault> {
    frontier.catch_up(draft.file(), base_bytes, end).map_err(|source| {
        let volume = draft.volume().label().clone();
        DiskError::Io { action: "read back", volume, file: draft.id(), source }.into()
    })
}

impl Intake for Loan<Upload> {
    type Lane = UploadLane;

    fn lane(self: &Arc<Self>) -> UploadLane {
        UploadLane { upload: Self::clone(self), tally: Tally::new() }
    }

    fn claim(&self, range: ByteRange) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        let outside = |why: String| Err(Fault::new(FaultKind::TooLong, why));
        match self.expected {
            Some(expected) if range.offset() < expected.offset() || range.end() > expected.end() => {
                return outside(format!("the peer sends bytes {range}, only {expected} are expected"));
            }
            None if range.offset() < self.base_bytes => {
                return outside(format!("the peer sends bytes {range}, before the file's first, {}", self.base_bytes));
            }
            _ => {}
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

/// One connection's way into an upload.
pub(super) struct UploadLane {
    upload: Loan<Upload>,
    tally: Tally,
}

impl UploadLane {
    fn account(&self, (range, sums): (ByteRange, Sums)) -> Result<(), Fault> {
        let mut state = self.upload.state();
        state.runs.add(range, sums);
        state.fresh.add(range).map_err(|error| Fault::new(FaultKind::PeerProtocol, error))?;
        let reach = state.runs.reach(self.upload.base_bytes);
        drop(state);
        // What came early and is contiguous now can be hashed while the peer sends on, by whoever is here.
        if let Some(Ok(mut frontier)) = self.upload.frontier.as_ref().map(Mutex::try_lock)
            && frontier.at() < reach
        {
            catch_up(&mut frontier, &self.upload.draft, self.upload.base_bytes, reach)?;
        }
        Ok(())
    }
}

impl Lane for UploadLane {
    fn space<'a>(&'a mut self, _at: u64, scratch: &'a mut [u8]) -> Option<&'a mut [u8]> {
        Some(scratch)
    }

    fn filled(&mut self, at: u64, count: usize, scratch: &[u8]) -> Result<(), Fault> {
        let data = &scratch[..count];
        // The claim was within the file: it does not begin before the base.
        self.upload.draft.write_at(data, at - self.upload.base_bytes)?;
        // From memory, if it is this thread's turn; what is skipped here is read back later.
        if let Some(Ok(mut frontier)) = self.upload.frontier.as_ref().map(Mutex::try_lock) {
            frontier.offer(at, data);
        }
        match self.tally.add(at, data) {
            Some(before) => self.account(before),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Fault> {
        match self.tally.take() {
            Some(gathered) => self.account(gathered),
            None => Ok(()),
        }
    }

    fn room(&mut self, _at: u64) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Reads a disk file in pieces and gives each to `each`. Blocks.
pub(super) fn read_in_pieces(
    file: &std::fs::File,
    mut offset: u64,
    mut length: u64,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while length > 0 {
        let want = usize::try_from(length).map_or(buffer.len(), |length| length.min(buffer.len()));
        file.read_exact_at(&mut buffer[..want], offset)
            .map_err(|error| Fault::new(FaultKind::Medium, format!("read {want} bytes at {offset}: {error}")))?;
        each(&buffer[..want])?;
        offset += want as u64;
        length -= want as u64;
    }
    Ok(())
}
