//! Reads disk files for a gateway in the same process: bytes in memory of the pool, no connection.
//!
//! Owns nothing between two reads. Each read holds a few blocks of the pool from its beginning to its end, and each of its
//! turns on a thread fills one of them. Pieces are compared with their sums as everywhere where bytes pass through memory.
//!
//! Invariant: the last bytes of a piece that is not what its sums say are never given.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Arc, Weak, atomic::Ordering},
};

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wire::{
    checksum::ExtraSums,
    id::MoverId,
    mover::{Fault, FaultKind, Job, Piece, Sink, Source},
};

use crate::{
    block::{Block, Share},
    job::{
        Env, deal,
        plan::{DiskPiece, Plan},
    },
    sums::Tally,
};

/// Blocks of one read: one is filled while the others are on their way.
const READ_AHEAD: u64 = 4;

/// Reads a mover's disk volumes. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    mover: MoverId,
    // Whoever keeps a reader must not keep the volumes open behind a mover that has stopped.
    env: Weak<Env>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Reader").field(&self.mover).finish()
    }
}

impl Reader {
    /// A reader that works until the mover is told to stop; what it reads then is finished.
    pub(crate) fn new(env: Env) -> Self {
        let env = Arc::new(env);
        let reader = Self { mover: env.mover.clone(), env: Arc::downgrade(&env) };
        let shutdown = env.shutdown.clone();
        let stop = shutdown.clone();
        shutdown.spawn_until_cut(async move {
            stop.stopping().await;
            drop(env);
        });
        reader
    }

    /// The bytes of these pieces, in the order given. A piece on tape is refused. Ends with the first fault; dropped, it
    /// stops.
    #[must_use]
    pub fn read(&self, pieces: Vec<Piece>) -> BoxStream<'static, Result<Bytes, Fault>> {
        let job = Job {
            source: Source::Extents(pieces),
            sink: Sink::Verify,
            extra_sums: ExtraSums::default(),
            rate_limit: None,
        };
        let pieces = match Plan::of(job) {
            Ok(Plan::Verify { pieces, .. }) => pieces,
            Ok(_) => return refused(Fault::new(FaultKind::BadRequest, "what is on tape is staged first")),
            Err(fault) => return refused(fault),
        };
        let pieces: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.range.is_empty()).collect();
        let Some(env) = self.env.upgrade() else {
            let advice = format!("mover {} is shutting down", self.mover);
            return refused(Fault::new(FaultKind::ShuttingDown, advice));
        };
        let shutdown = env.shutdown.clone();
        let block_bytes = env.turns.pool().block_bytes() as u64;
        let blocks: u64 = pieces.iter().map(|piece| piece.range.length().div_ceil(block_bytes)).sum();
        let reading = async move {
            let share = env.turns.pool().blocks(blocks.min(READ_AHEAD)).await;
            let free = Arc::new(Semaphore::new(share.blocks()));
            Reading { env, share, free, pieces, open: None, failed: false }
        };
        if blocks <= 1 {
            // One read: nothing to read ahead.
            return stream::once(reading).filter_map(Reading::only).boxed();
        }
        let (ahead, given) = mpsc::channel(1);
        shutdown.spawn_until_cut(async move {
            let mut reading = reading.await;
            while let Some(read) = reading.next().await {
                let over = read.is_err();
                if ahead.send(read).await.is_err() || over {
                    return;
                }
            }
        });
        stream::unfold(given, |mut given| async move { Some((given.recv().await?, given)) }).boxed()
    }
}

fn refused(fault: Fault) -> BoxStream<'static, Result<Bytes, Fault>> {
    stream::once(std::future::ready(Err(fault))).boxed()
}

/// A read under way.
struct Reading {
    env: Arc<Env>,
    share: Share,
    /// Blocks of the share that nobody holds.
    free: Arc<Semaphore>,
    pieces: VecDeque<DiskPiece>,
    open: Option<Open>,
    failed: bool,
}

/// The piece that is being read.
struct Open {
    piece: DiskPiece,
    file: Arc<File>,
    done: u64,
    tally: Tally,
}

/// A block and how much of it was filled.
struct Filled {
    block: Block,
    length: usize,
    _taken: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.block[..self.length]
    }
}

impl Reading {
    fn only(mut self) -> BoxFuture<'static, Option<Result<Bytes, Fault>>> {
        async move { self.next().await }.boxed()
    }

    /// The next bytes; waits until the share has a block for them.
    async fn next(&mut self) -> Option<Result<Bytes, Fault>> {
        if self.failed || (self.open.is_none() && self.pieces.is_empty()) {
            return None;
        }
        let taken = self.free.clone().acquire_owned().await.expect("never closed");
        let block = self.share.block();
        let (env, open) = (self.env.clone(), self.open.take());
        let fresh = if open.is_none() { self.pieces.pop_front() } else { None };
        let ran = self.env.turns.run(move |_| step(&env, open, fresh, block)).await;
        let read = ran.and_then(|read| read).map(|(open, block, length)| {
            self.open = open;
            self.env.totals.sent.fetch_add(length as u64, Ordering::Relaxed);
            Bytes::from_owner(Filled { block, length, _taken: taken })
        });
        self.failed = read.is_err();
        Some(read)
    }
}

/// Fills a block from the piece that is open, or from a fresh one.
fn step(
    env: &Env,
    open: Option<Open>,
    fresh: Option<DiskPiece>,
    mut block: Block,
) -> Result<(Option<Open>, Block, usize), Fault> {
    let mut open = match (open, fresh) {
        (Some(open), _) => open,
        (None, Some(piece)) => {
            let file = deal::open(&env.volumes, &piece)?;
            Open { piece, file, done: 0, tally: Tally::new() }
        }
        (None, None) => return Err(Fault::new(FaultKind::BadRequest, "there is nothing to read")),
    };
    let left = open.piece.range.length() - open.done;
    let size = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
    let at = open.piece.offset_bytes + open.done;
    open.file.read_exact_at(&mut block[..size], at).map_err(|error| {
        let (file, volume) = (open.piece.file, &open.piece.volume);
        Fault::new(FaultKind::Medium, format!("read {size} bytes at {at} of file {file} of volume {volume}: {error}"))
    })?;
    if open.piece.sums.is_some() {
        open.tally.add(open.piece.range.offset() + open.done, &block[..size]);
    }
    open.done += size as u64;
    if open.done < open.piece.range.length() {
        return Ok((Some(open), block, size));
    }
    if let Some((_, sums)) = open.tally.take() {
        deal::compare(&open.piece, &sums)?;
    }
    Ok((None, block, size))
}
