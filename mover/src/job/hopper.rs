//! A bounded queue of blocks between whoever brings bytes and whoever takes them away.
//!
//! Owns the blocks of one pipeline. Talks to connections on either side, and to the thread of a tape drive on one. Never
//! holds more blocks than its share of the pool.
//!
//! Ordered, it gives bytes out by their offsets, without gaps: for a tape or a stream. Bytes that come early wait in it.
//! The last free block is kept for the bytes that come next in order, so that early ones cannot fill it up and leave no
//! room for those that everybody waits for.
//!
//! Invariant: blocks in lanes, in the queue and with takers are at most the share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::sync::Notify;
use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage, CoverageError},
    mover::{Fault, FaultKind},
};

use crate::{
    block::{Block, Share},
    data::{Body, Intake, Lane, Next, Parcel, Supply},
};

/// A pipeline's queue. Shared.
pub(super) struct Hopper {
    inner: Arc<Inner>,
    /// Which bytes may come; `None` for any.
    expected: Option<ByteRange>,
    ordered: bool,
}

struct Inner {
    share: Share,
    state: Mutex<State>,
    /// A block came back, or order moved on.
    room: Notify,
    /// Bytes came, or the end.
    data: Notify,
}

struct State {
    claimed: Coverage,
    /// By offset.
    queue: BTreeMap<u64, Held>,
    /// Blocks somewhere.
    out: usize,
    /// In order: the next byte to give out.
    given: u64,
    /// In order: the next byte that nobody has brought.
    brought: u64,
    end: Option<Result<(), Fault>>,
    /// Takers found nothing.
    starving: bool,
}

/// A block with bytes, which goes back to the hopper when dropped.
pub(super) struct Held {
    block: Block,
    start: u64,
    length: usize,
    inner: Arc<Inner>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.inner.state().out -= 1;
        self.inner.room.notify_waiters();
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.block[..self.length]
    }
}

impl Held {
    const fn end(&self) -> u64 {
        self.start + self.length as u64
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a block for bytes at `at`.
    fn has_room(&self, state: &State, at: u64, ordered: bool) -> bool {
        let free = self.share.blocks() - state.out;
        state.end.is_some() || free > 1 || (free == 1 && (!ordered || at == state.brought))
    }
}

impl Hopper {
    /// An empty hopper. Ordered, the first byte is `expected`'s, or byte 0.
    pub(super) fn new(share: Share, expected: Option<ByteRange>, ordered: bool) -> Self {
        let first = expected.map_or(0, ByteRange::offset);
        let state = State {
            claimed: Coverage::new(),
            queue: BTreeMap::new(),
            out: 0,
            given: first,
            brought: first,
            end: None,
            starving: false,
        };
        let inner = Inner { share, state: Mutex::new(state), room: Notify::new(), data: Notify::new() };
        Self { inner: Arc::new(inner), expected, ordered }
    }

    /// No more comes: the end if all is well, or a fault that everybody gets.
    pub(super) fn end(&self, result: Result<(), Fault>) {
        self.inner.state().end.get_or_insert(result);
        self.inner.data.notify_waiters();
        self.inner.room.notify_waiters();
    }

    fn push(&self, held: Held) {
        let mut state = self.inner.state();
        let (start, end) = (held.start, held.end());
        // Nothing is taken once it is over; the block must not be dropped with the lock held.
        let late = if state.end.is_some() { Some(held) } else { state.queue.insert(start, held) };
        if start == state.brought {
            state.brought = end;
            let next: Vec<_> = state.queue.range(end..).map(|(_, held)| (held.start, held.end())).collect();
            for (start, end) in next {
                if start == state.brought {
                    state.brought = end;
                }
            }
        }
        state.starving = false;
        drop(state);
        drop(late);
        self.inner.data.notify_waiters();
        self.inner.room.notify_waiters();
    }

    /// Whether `next` would say something else than [`Next::Wait`].
    fn is_ready(&self, state: &State) -> bool {
        state.end.is_some()
            || match state.queue.first_key_value() {
                Some((&start, _)) => !self.ordered || start == state.given,
                None => false,
            }
    }
}

impl Drop for Hopper {
    fn drop(&mut self) {
        // The blocks hold the queue they lie in.
        let queue = std::mem::take(&mut self.inner.state().queue);
        drop(queue);
    }
}

impl Supply for Hopper {
    fn next(&self) -> Result<Next, Fault> {
        let mut state = self.inner.state();
        if let Some(Err(fault)) = &state.end {
            return Err(fault.clone());
        }
        let first = state.queue.first_key_value().map(|(&start, _)| start);
        match first {
            Some(start) if !self.ordered || start == state.given => {
                let held = state.queue.pop_first().map(|(_, held)| held).expect("it was just there");
                state.given = held.end();
                let range = ByteRange::between(held.start, held.end()).expect("claimed as a range");
                Ok(Next::Parcel(Parcel { range, body: Body::Memory(Box::new(held)) }))
            }
            Some(start) if state.end.is_some() => {
                let message = format!("bytes {}-{start} never came", state.given);
                Err(Fault::new(FaultKind::Incomplete, message))
            }
            None if state.end.is_some() => Ok(Next::End),
            _ => {
                state.starving = true;
                Ok(Next::Wait)
            }
        }
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        async {
            loop {
                let notified = self.inner.data.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if self.is_ready(&self.inner.state()) {
                    return;
                }
                notified.await;
            }
        }
        .boxed()
    }

    /// Only files are compared with their sums while they are sent.
    fn passed(&self, _range: ByteRange, _sums: Sums) -> Result<(), Fault> {
        Ok(())
    }
}

impl Intake for Hopper {
    type Lane = HopperLane;

    fn lane(self: &Arc<Self>) -> HopperLane {
        HopperLane { hopper: self.clone(), current: None }
    }

    fn claim(&self, range: ByteRange) -> Result<(), Fault> {
        if range.is_empty() {
            return Ok(());
        }
        if let Some(expected) = self.expected.filter(|all| range.offset() < all.offset() || range.end() > all.end()) {
            let message = format!("the peer sends bytes {range}, only {expected} are expected");
            return Err(Fault::new(FaultKind::TooLong, message));
        }
        let mut state = self.inner.state();
        state.claimed.add(range).map_err(|error| {
            let kind = match error {
                CoverageError::Overlap { .. } => FaultKind::Overlap,
                CoverageError::TooManyRanges => FaultKind::PeerProtocol,
            };
            Fault::new(kind, error)
        })
    }

    /// A hopper full of early bytes waits for the peer, whatever connection has them.
    fn is_our_wait(&self) -> bool {
        !(self.ordered && self.inner.state().starving)
    }
}

/// One writer's way into a hopper: a connection, or the thread that reads a tape.
pub(super) struct HopperLane {
    hopper: Arc<Hopper>,
    current: Option<Held>,
}

impl HopperLane {
    fn take_block(&self, at: u64) -> Option<Held> {
        let inner = &self.hopper.inner;
        let mut state = inner.state();
        if !inner.has_room(&state, at, self.hopper.ordered) || state.out >= inner.share.blocks() {
            return None;
        }
        state.out += 1;
        drop(state);
        Some(Held { block: inner.share.block(), start: at, length: 0, inner: inner.clone() })
    }

    /// Puts bytes in, waiting for room on this thread, which must not be one of the runtime's.
    ///
    /// # Errors
    ///
    /// The fault with which the hopper ended.
    pub(super) fn put(&mut self, runtime: &tokio::runtime::Handle, mut at: u64, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() {
            if let Some(Err(fault)) = &self.hopper.inner.state().end {
                return Err(fault.clone());
            }
            let Some(space) = self.space(at, &mut []) else {
                runtime.block_on(self.room(at));
                continue;
            };
            let count = space.len().min(data.len());
            space[..count].copy_from_slice(&data[..count]);
            self.filled(at, count, &[])?;
            at += count as u64;
            data = &data[count..];
        }
        Ok(())
    }
}

impl Lane for HopperLane {
    fn space<'a>(&'a mut self, at: u64, _scratch: &'a mut [u8]) -> Option<&'a mut [u8]> {
        if self.current.as_ref().is_some_and(|held| held.end() != at || held.length == held.block.len()) {
            let _ = self.flush();
        }
        if self.current.is_none() {
            self.current = self.take_block(at);
        }
        self.current.as_mut().map(|held| &mut held.block[held.length..])
    }

    fn filled(&mut self, _at: u64, count: usize, _scratch: &[u8]) -> Result<(), Fault> {
        if let Some(held) = &mut self.current {
            held.length += count;
            if held.length == held.block.len() {
                return self.flush();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if let Some(held) = self.current.take_if(|held| held.length > 0) {
            self.hopper.push(held);
        }
        match &self.hopper.inner.state().end {
            Some(Err(fault)) => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn room(&mut self, at: u64) -> BoxFuture<'_, ()> {
        let hopper = self.hopper.clone();
        async move {
            loop {
                let notified = hopper.inner.room.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if hopper.inner.has_room(&hopper.inner.state(), at, hopper.ordered) {
                    return;
                }
                notified.await;
            }
        }
        .boxed()
    }
}
