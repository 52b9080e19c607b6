//! Reads disk files through memory, in turns, and compares them with their sums.

use std::{
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

use wire::{
    checksum::Sums,
    mover::{Fault, FaultKind},
};

use super::{Env, deal, plan::DiskPiece, upload::read_in_pieces};
use crate::{data::Flow, sums::Tally};

/// After so long others get their turn.
const TURN: Duration = Duration::from_millis(50);

/// Who takes what is read. Runs on threads where blocking is allowed.
pub(super) trait Reader: Send + 'static {
    /// Bytes at `at` of the transfer's address space.
    ///
    /// # Errors
    ///
    /// What makes the whole job fail.
    fn data(&mut self, piece: &DiskPiece, at: u64, data: &[u8]) -> Result<(), Fault>;

    /// The piece was read to its end, and has the sums it should.
    fn good(&mut self, piece: &DiskPiece, sums: Sums);

    /// The piece could not be read, or is not what it was; its last bytes were not given.
    fn bad(&mut self, piece: &DiskPiece, fault: Fault);
}

/// Where the reading is.
struct Position {
    index: usize,
    done: u64,
    file: Option<Arc<File>>,
    tally: Tally,
    whole: Sums,
}

/// Reads all pieces, one after the other, and gives the reader back.
///
/// # Errors
///
/// What the reader said, or that the transfer was stopped.
pub(super) async fn scan<R: Reader>(
    env: &Env,
    pieces: Vec<DiskPiece>,
    mut reader: R,
    flow: Arc<Flow>,
) -> Result<R, Fault> {
    let pieces = Arc::new(pieces);
    let mut position = Position { index: 0, done: 0, file: None, tally: Tally::new(), whole: Sums::EMPTY };
    while position.index < pieces.len() {
        let (inner, pieces, flow) = (env.clone(), pieces.clone(), flow.clone());
        let turn = env.turns.run(move |turn| {
            let result = position.turn(&inner, &pieces, &mut reader, &flow, &mut turn.block);
            (position, reader, result)
        });
        let result;
        (position, reader, result) = turn.await?;
        if let Some(wait) = result? {
            tokio::time::sleep(wait).await;
        }
    }
    Ok(reader)
}

impl Position {
    fn turn(
        &mut self,
        env: &Env,
        pieces: &[DiskPiece],
        reader: &mut impl Reader,
        flow: &Flow,
        memory: &mut [u8],
    ) -> Result<Option<Duration>, Fault> {
        let started = Instant::now();
        while let Some(piece) = pieces.get(self.index).filter(|_| started.elapsed() < TURN) {
            if flow.over.is_cancelled() {
                return Err(Fault::new(FaultKind::Cancelled, "the transfer was stopped"));
            }
            let granted = match flow.pace.take((piece.range.length() - self.done).min(memory.len() as u64)) {
                Ok(granted) => granted,
                Err(wait) => return Ok(Some(wait)),
            };
            match self.step(env, piece, reader, granted, memory) {
                Ok(true) => self.next(),
                Ok(false) => {}
                Err(Step::Piece(fault)) => {
                    reader.bad(piece, fault);
                    self.next();
                }
                Err(Step::Job(fault)) => return Err(fault),
            }
        }
        Ok(None)
    }

    fn next(&mut self) {
        *self = Self { index: self.index + 1, done: 0, file: None, tally: Tally::new(), whole: Sums::EMPTY };
    }

    /// Reads up to `length` bytes of a piece; says whether that was its end.
    fn step(
        &mut self,
        env: &Env,
        piece: &DiskPiece,
        reader: &mut impl Reader,
        length: u64,
        memory: &mut [u8],
    ) -> Result<bool, Step> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file.insert(deal::open(&env.volumes, piece).map_err(Step::Piece)?).clone(),
        };
        let size = usize::try_from(length).map_or(memory.len(), |length| length.min(memory.len()));
        let at = piece.range.offset() + self.done;
        read_in_pieces(&file, piece.offset_bytes + self.done, size as u64, memory, |_| Ok(())).map_err(Step::Piece)?;
        let data = &memory[..size];
        self.tally.add(at, data);
        self.done += size as u64;
        let last = self.done == piece.range.length();
        if last {
            self.whole = self.tally.take().map_or(Sums::EMPTY, |(_, sums)| sums);
            deal::compare(piece, &self.whole).map_err(Step::Piece)?;
        }
        reader.data(piece, at, data).map_err(Step::Job)?;
        if last {
            reader.good(piece, self.whole);
        }
        Ok(last)
    }
}

enum Step {
    Piece(Fault),
    Job(Fault),
}
