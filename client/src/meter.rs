//! Counts what moves, for progress displays.
//!
//! Owns the counters of one command. Written by data threads without locks, read by whoever shows them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use daemon::tcp::TcpFigures;

/// Connections whose figures are kept until somebody takes them.
const MAX_CONNECTIONS_KEPT: usize = 4096;

/// Counters of one command, cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    files: AtomicU64,
    failed: AtomicU64,
    total_files: AtomicU64,
    current: Mutex<String>,
    connections: Mutex<Vec<TcpFigures>>,
}

/// What the counters say at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes moved, those of earlier attempts included.
    pub bytes: u64,
    /// Bytes to move, as far as known.
    pub total_bytes: u64,
    /// Files done.
    pub files: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files to do, as far as known.
    pub total_files: u64,
    /// The file that moves, or one of them.
    pub current: String,
}

impl Meter {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// More is to be done.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.0.total_files.fetch_add(files, Relaxed);
        self.0.total_bytes.fetch_add(bytes, Relaxed);
    }

    /// Bytes have moved.
    pub fn moved(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Relaxed);
    }

    /// Bytes counted before have not moved after all: an attempt is repeated.
    pub fn unmoved(&self, bytes: u64) {
        self.0.bytes.fetch_sub(bytes, Relaxed);
    }

    /// A file is done.
    pub fn done(&self) {
        self.0.files.fetch_add(1, Relaxed);
    }

    /// A file failed.
    pub fn failed(&self) {
        self.0.failed.fetch_add(1, Relaxed);
    }

    /// A file begins.
    pub fn begins(&self, name: &str) {
        let mut current = self.0.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        name.clone_into(&mut current);
    }

    /// What the data connections of a file were like.
    pub(crate) fn connections(&self, figures: Vec<TcpFigures>) {
        let mut kept = self.0.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = MAX_CONNECTIONS_KEPT.saturating_sub(kept.len());
        kept.extend(figures.into_iter().take(room));
    }

    /// What the data connections were like that have ended since the last call; of large files, since small ones share
    /// connections.
    pub fn take_connections(&self) -> Vec<TcpFigures> {
        std::mem::take(&mut *self.0.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// What the counters say now.
    pub fn read(&self) -> Reading {
        let counters = &self.0;
        Reading {
            bytes: counters.bytes.load(Relaxed),
            total_bytes: counters.total_bytes.load(Relaxed),
            files: counters.files.load(Relaxed),
            failed: counters.failed.load(Relaxed),
            total_files: counters.total_files.load(Relaxed),
            current: counters.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone(),
        }
    }
}
