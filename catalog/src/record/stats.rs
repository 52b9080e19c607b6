//! Numbers for the operator; none of them costs more when there are more files.

use serde::{Deserialize, Serialize};
use wire::id::{FileId, VolumeLabel};

use crate::record::work::WorkKind;
use crate::time::Timestamp;

/// Where counting a queue stops: a longer one is shown as this.
pub const COUNT_LIMIT: u64 = 100_000;

/// The state of the whole, as `penstock admin status` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// Files that have a name.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of live segments on disk volumes.
    pub disk_bytes: u64,
    /// Bytes of live segments on cartridges.
    pub tape_bytes: u64,
    /// Every kind of work.
    pub queues: Vec<QueueLength>,
    /// Stage requests that wait or are active, counted up to [`COUNT_LIMIT`].
    pub open_requests: u64,
    /// Files in the undelete window, counted up to [`COUNT_LIMIT`].
    pub deleted_files: u64,
    /// Cut uploads that may be resumed, counted up to [`COUNT_LIMIT`].
    pub partial_uploads: u64,
}

/// How much work of one kind there is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueLength {
    /// Which kind.
    pub kind: WorkKind,
    /// How many items, counted up to [`COUNT_LIMIT`].
    pub items: u64,
    /// How many of those were given up and wait for a person, counted up to [`COUNT_LIMIT`].
    pub parked: u64,
    /// How many are claimed under a lease that is in force, counted up to [`COUNT_LIMIT`].
    pub running: u64,
    /// Bytes of all of them, of the first [`COUNT_LIMIT`].
    pub bytes: u64,
    /// When the oldest was made, of the first [`COUNT_LIMIT`].
    pub oldest: Option<Timestamp>,
    /// When the one that is due first may be claimed.
    pub next_due: Option<Timestamp>,
}

/// A file of a disk volume, as a mover knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct VolumeFile {
    /// The volume.
    pub volume: VolumeLabel,
    /// The file.
    pub file: FileId,
}

/// What one round of reclaiming did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// How many bitfiles left the undelete window for good.
    pub bitfiles: u64,
    /// How many cut uploads were given up.
    pub partials: u64,
    /// How many files of disk volumes are now queued to be deleted.
    pub files: u64,
    /// Whether more is due than was taken.
    pub more: bool,
}
