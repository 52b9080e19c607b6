//! Deals out the bytes of disk files to the connections that send them.
//!
//! Owns the position up to which bytes were dealt, and the sums of what passed through memory. Talks to the volumes. A
//! parcel goes to whichever connection asks next.

use std::{
    fs::File,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt as _, future::BoxFuture};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use wire::{
    checksum::Sums,
    extent::ByteRange,
    mover::{Fault, FaultKind},
};

use super::plan::DiskPiece;
use crate::{
    data::{Body, Next, Parcel, Supply},
    disk::Volumes,
    sums::Runs,
};

/// Disk files on their way into a channel.
pub(crate) struct Dealer {
    volumes: Volumes,
    pieces: Vec<DiskPiece>,
    /// Positions in `pieces`, in order of their ranges.
    order: Vec<usize>,
    parcel_bytes: u64,
    state: Mutex<State>,
}

struct State {
    /// The piece that is dealt.
    index: usize,
    /// How much of it has been dealt.
    dealt: u64,
    file: Option<Arc<File>>,
    /// What passed through memory of each piece that has sums to compare with.
    passed: Vec<Runs>,
}

impl Dealer {
    /// Deals out `pieces` in their order, in parcels of `parcel_bytes`.
    pub(crate) fn new(volumes: Volumes, pieces: Vec<DiskPiece>, parcel_bytes: u64) -> Self {
        let mut order: Vec<_> = (0..pieces.len()).filter(|&index| !pieces[index].range.is_empty()).collect();
        order.sort_by_key(|&index| pieces[index].range.offset());
        let passed = pieces.iter().map(|_| Runs::default()).collect();
        let state = Mutex::new(State { index: 0, dealt: 0, file: None, passed });
        Self { volumes, pieces, order, parcel_bytes: parcel_bytes.max(1), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a disk file that will be read from front to back. May block.
pub(crate) fn open(volumes: &Volumes, piece: &DiskPiece) -> Result<Arc<File>, Fault> {
    let file = volumes.get(&piece.volume)?.read(piece.file)?;
    let (offset, length) = (i64::try_from(piece.offset_bytes), i64::try_from(piece.range.length()));
    if let (Ok(offset), Ok(length)) = (offset, length) {
        // A hint only.
        let _ = posix_fadvise(&*file, offset, length, PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL);
    }
    Ok(file)
}

/// Compares the sums of a whole piece.
pub(crate) fn compare(piece: &DiskPiece, sums: &Sums) -> Result<(), Fault> {
    match piece.sums.and_then(|wanted| wanted.difference(sums)) {
        None => Ok(()),
        Some(algorithm) => {
            let message = format!(
                "file {} of volume {} has another {algorithm} from byte {} on than when it was written; use another copy",
                piece.file, piece.volume, piece.offset_bytes
            );
            Err(Fault::new(FaultKind::Corrupt, message))
        }
    }
}

impl Supply for Dealer {
    fn next(&self) -> Result<Next, Fault> {
        let mut state = self.state();
        loop {
            let Some(piece) = self.pieces.get(state.index) else { return Ok(Next::End) };
            let left = piece.range.length() - state.dealt;
            if left == 0 {
                (state.index, state.dealt, state.file) = (state.index + 1, 0, None);
                continue;
            }
            let file = match &state.file {
                Some(file) => file.clone(),
                None => state.file.insert(open(&self.volumes, piece)?).clone(),
            };
            let (dealt, length) = (state.dealt, left.min(self.parcel_bytes));
            state.dealt += length;
            let range = ByteRange::new(piece.range.offset() + dealt, length).expect("part of a range");
            return Ok(Next::Parcel(Parcel { range, body: Body::File(file, piece.offset_bytes + dealt) }));
        }
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn passed(&self, range: ByteRange, sums: Sums) -> Result<(), Fault> {
        let next = self.order.partition_point(|&index| self.pieces[index].range.offset() <= range.offset());
        let Some(&index) = next.checked_sub(1).and_then(|at| self.order.get(at)) else { return Ok(()) };
        let piece = &self.pieces[index];
        if piece.sums.is_none() {
            return Ok(());
        }
        let mut state = self.state();
        state.passed[index].add(range, sums);
        match state.passed[index].of(piece.range) {
            Some(sums) => compare(piece, &sums),
            None => Ok(()),
        }
    }
}
