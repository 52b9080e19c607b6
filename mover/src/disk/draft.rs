//! A file of a disk volume while it is written.
//!
//! Owns the open file, its space promise, and its place below `tmp`. Talks to its [`Volume`]. Never published by itself:
//! [`commit`](super::commit) does that.
//!
//! Invariant: dropped before it is published, a new file leaves nothing behind: no name, no promise.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::warn;
use wire::id::FileId;

use super::{
    error::DiskError,
    layout::Owner,
    volume::{Claim, Volume, allocated_bytes},
};

/// How much is promised at once to a file whose size nobody said.
const RESERVE_STEP_BYTES: u64 = 64 << 20;

/// After so many new bytes the kernel is asked to begin writing them out.
const WRITEBACK_STEP_BYTES: u64 = 32 << 20;

/// A file being written. Shared between the threads that write its blocks.
pub(crate) struct Draft {
    claim: Claim,
    file: Arc<File>,
    place: Place,
    account: Mutex<Account>,
}

enum Place {
    /// New, below `tmp`.
    Temporary { path: PathBuf, owner: Owner },
    /// It was there before and stays where it is.
    Grown { before_bytes: u64 },
    /// It has been published: nothing to clean up.
    Published,
}

struct Account {
    /// Promised and not yet written.
    reserved_bytes: u64,
    written_bytes: u64,
    /// Written since the last hint to the kernel.
    dirty_bytes: u64,
}

impl Draft {
    pub(super) fn new(claim: Claim, file: File, path: PathBuf, owner: Owner, reserved_bytes: u64) -> Self {
        Self::with(claim, file, Place::Temporary { path, owner }, reserved_bytes)
    }

    pub(super) fn growing(claim: Claim, file: File, before_bytes: u64, reserved_bytes: u64) -> Self {
        Self::with(claim, file, Place::Grown { before_bytes }, reserved_bytes)
    }

    fn with(claim: Claim, file: File, place: Place, reserved_bytes: u64) -> Self {
        let account = Mutex::new(Account { reserved_bytes, written_bytes: 0, dirty_bytes: 0 });
        Self { claim, file: Arc::new(file), place, account }
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileId {
        self.claim.id
    }

    /// The volume it is on.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.claim.volume
    }

    /// The file itself, for reading back.
    pub(crate) const fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Writes `data` at `offset_bytes` of the file. May block.
    ///
    /// # Errors
    ///
    /// [`DiskError::NoSpace`] before the volume's limit is passed; other errors may have made the volume read-only.
    pub(crate) fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<(), DiskError> {
        let length = data.len() as u64;
        let begin_writeback = self.charge(length)?;
        self.file.write_all_at(data, offset_bytes).map_err(|source| self.failed("write", source))?;
        if begin_writeback {
            self.volume().begin_writeback(&self.file);
        }
        Ok(())
    }

    /// Counts `length` bytes as written, and promises more space where that is needed. Says whether it is time for a
    /// hint to the kernel.
    fn charge(&self, length: u64) -> Result<bool, DiskError> {
        let mut account = self.account();
        if account.reserved_bytes < length {
            let missing = length - account.reserved_bytes;
            let step = missing.max(RESERVE_STEP_BYTES);
            let got = match self.volume().reserve(step) {
                Ok(()) => step,
                // Nearly full: what is needed may still fit.
                Err(_) => self.volume().reserve(missing).map(|()| missing)?,
            };
            account.reserved_bytes += got;
        }
        account.reserved_bytes -= length;
        account.written_bytes += length;
        self.volume().wrote(length);
        account.dirty_bytes += length;
        let hint = account.dirty_bytes >= WRITEBACK_STEP_BYTES;
        if hint {
            account.dirty_bytes = 0;
        }
        Ok(hint)
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> DiskError {
        self.volume().write_failed(action, self.id(), source)
    }

    /// Makes the content durable. Blocks.
    pub(super) fn sync(&self) -> Result<(), DiskError> {
        nix::unistd::fdatasync(&*self.file).map_err(|source| self.failed("sync", source.into()))
    }

    /// Gives a new file its name below `incoming`. The name is durable once the volume's folder is synced: the answer
    /// says whether that is needed.
    pub(super) fn publish(&mut self) -> Result<bool, DiskError> {
        let named = match &self.place {
            Place::Temporary { path, owner } => {
                self.volume().publish(self.id(), owner, path)?;
                true
            }
            Place::Grown { .. } | Place::Published => false,
        };
        self.settle();
        self.place = Place::Published;
        Ok(named)
    }

    /// Gives back the promise and counts what the file really takes.
    fn settle(&self) {
        let before_bytes = match self.place {
            Place::Grown { before_bytes } => before_bytes,
            Place::Temporary { .. } => 0,
            Place::Published => return,
        };
        let mut account = self.account();
        self.volume().release(std::mem::take(&mut account.reserved_bytes));
        let counted = std::mem::take(&mut account.written_bytes);
        if let Ok(metadata) = self.file.metadata() {
            self.volume().recount(before_bytes.saturating_add(counted), allocated_bytes(&metadata));
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        match &self.place {
            Place::Published => {}
            Place::Grown { .. } => self.settle(),
            Place::Temporary { path, .. } => {
                if let Err(error) = fs::remove_file(path) {
                    warn!(path = %path.display(), %error, "temporary file could not be removed");
                }
                let account = self.account();
                self.volume().release(account.reserved_bytes);
                self.volume().recount(account.written_bytes, 0);
            }
        }
    }
}
