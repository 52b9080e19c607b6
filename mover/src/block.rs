//! Memory for data in flight: a fixed number of equal blocks.
//!
//! Owns the budget. Never takes more memory than it was given: whoever wants a block waits, and what waits does not
//! read from its socket, so the peer slows down.
//!
//! Two kinds of use share the budget and cannot starve each other. A *burst* (one thread moving bytes between a socket
//! and a file) takes one block for as long as it runs, which is milliseconds. A *pipeline* (a transfer whose bytes pass
//! through memory from one party to another) takes all the blocks it will ever hold before it starts, so it never waits
//! for a block while it holds others.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::id::MoverId;

use crate::metrics;

/// The pool. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    mover: MoverId,
    block_bytes: usize,
    total_blocks: usize,
    /// Blocks set aside for bursts: one for each thread.
    bursts: Arc<Semaphore>,
    /// The rest.
    pipelines: Arc<Semaphore>,
    pipeline_blocks: u32,
    /// Blocks that were used before. At most as many as there are permits.
    idle: Mutex<Vec<Box<[u8]>>>,
}

/// One block; goes back to the pool when dropped.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    shared: Arc<Shared>,
    /// A pipeline's permits are given back with its last block.
    _permits: Option<Arc<OwnedSemaphorePermit>>,
}

/// One thread's turn, with its block.
pub(crate) struct Turn {
    pub(crate) block: Block,
    _permit: OwnedSemaphorePermit,
}

/// The blocks of one pipeline: a permit to take so many.
pub(crate) struct Share {
    shared: Arc<Shared>,
    blocks: u32,
    permits: Arc<OwnedSemaphorePermit>,
}

impl Pool {
    /// A pool of `budget_bytes` in blocks of `block_bytes`, for so many threads; the rest is dealt out in pipelines of
    /// `pipeline_bytes`.
    pub(crate) fn new(
        mover: MoverId,
        budget_bytes: u64,
        block_bytes: usize,
        threads: usize,
        pipeline_bytes: u64,
    ) -> Self {
        let block_bytes = block_bytes.max(1);
        let blocks = |bytes: u64| usize::try_from(bytes / block_bytes as u64).unwrap_or(usize::MAX >> 4);
        let pipeline_blocks = blocks(pipeline_bytes).max(4);
        let total_blocks = blocks(budget_bytes).max(threads + pipeline_blocks);
        let shared = Shared {
            mover,
            block_bytes,
            total_blocks,
            bursts: Arc::new(Semaphore::new(threads)),
            pipelines: Arc::new(Semaphore::new(total_blocks - threads)),
            pipeline_blocks: u32::try_from(pipeline_blocks).unwrap_or(u32::MAX),
            idle: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits for a turn of one of the threads. Cancel-safe.
    pub(crate) async fn turn(&self) -> Turn {
        let permit = self.shared.bursts.clone().acquire_owned().await.expect("never closed");
        Turn { block: Block::take(&self.shared, None), _permit: permit }
    }

    /// Waits for the blocks of a pipeline. Cancel-safe.
    pub(crate) async fn share(&self) -> Share {
        self.blocks(self.shared.pipeline_blocks.into()).await
    }

    /// Waits for so many of the blocks that pipelines have, at most as many as one of them. Cancel-safe.
    pub(crate) async fn blocks(&self, count: u64) -> Share {
        let blocks = u32::try_from(count).unwrap_or(u32::MAX).clamp(1, self.shared.pipeline_blocks);
        let permits = self.shared.pipelines.clone().acquire_many_owned(blocks).await.expect("never closed");
        Share { shared: self.shared.clone(), blocks, permits: Arc::new(permits) }
    }

    /// How large a block is.
    pub(crate) fn block_bytes(&self) -> usize {
        self.shared.block_bytes
    }

    /// Tells the metrics how much is in use.
    pub(crate) fn report(&self) {
        let shared = &self.shared;
        let free = shared.bursts.available_permits() + shared.pipelines.available_permits();
        let used = shared.total_blocks.saturating_sub(free);
        metrics::pool(
            &shared.mover,
            (used * shared.block_bytes) as u64,
            (shared.total_blocks * shared.block_bytes) as u64,
        );
    }
}

impl Share {
    /// How many blocks it is.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// A block. The caller holds at most [`Share::blocks`] at a time.
    pub(crate) fn block(&self) -> Block {
        Block::take(&self.shared, Some(self.permits.clone()))
    }
}

impl Block {
    fn take(shared: &Arc<Shared>, permits: Option<Arc<OwnedSemaphorePermit>>) -> Self {
        let idle = shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = idle.unwrap_or_else(|| vec![0; shared.block_bytes].into());
        Self { bytes, shared: shared.clone(), _permits: permits }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn pool() -> Pool {
        Pool::new(MoverId::new("m").expect("a name"), 100, 10, 2, 40)
    }

    #[tokio::test]
    async fn whoever_wants_more_than_the_budget_waits() {
        let pool = pool();
        let (a, _b) = (pool.turn().await, pool.turn().await);
        assert!(pool.turn().now_or_never().is_none());
        let (share, _other) = (pool.share().await, pool.share().await);
        assert!(pool.share().now_or_never().is_none(), "8 blocks are two pipelines of 4");
        assert_eq!((share.blocks(), share.block().len()), (4, 10));
        drop((a, share));
        assert!(pool.turn().now_or_never().is_some() && pool.share().now_or_never().is_some());
    }
}
