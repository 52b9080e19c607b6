//! The work queue and what adds to it.

use serde::{Deserialize, Serialize};

use crate::{
    admin::Problem,
    id::{AccountName, BitfileId, CosName, RequestId, VolumeLabel, WorkId},
};

/// The most paths one request names.
pub const MAX_PATHS: usize = 10_000;

/// The largest page of the queue.
pub const MAX_PAGE: u32 = 1000;

/// Kind of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Tape to disk.
    Stage,
    /// Disk to tape.
    Migrate,
    /// Drop the disk copy.
    Purge,
    /// Move what is alive from one tape to others.
    Repack,
    /// Read and compare sums.
    Verify,
    /// Free the space of what was deleted.
    Reclaim,
    /// Take over what a cartridge says it holds.
    Rebuild,
    /// A kind of a newer version.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Migrate => "migrate",
            Self::Purge => "purge",
            Self::Repack => "repack",
            Self::Verify => "verify",
            Self::Reclaim => "reclaim",
            Self::Rebuild => "rebuild",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// State of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits; [`Entry::reason`] says for what.
    Waiting,
    /// It is being worked on.
    Running,
    /// It is done.
    Completed,
    /// It ended without success; [`Entry::reason`] says why.
    Failed,
    /// Somebody took it back.
    Cancelled,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// One request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The row of the work queue.
    pub work: WorkId,
    /// The request, where somebody made one; several may share a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// What is to be done.
    pub kind: Kind,
    /// To which bitfile.
    pub bitfile: BitfileId,
    /// Its name, if it still has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Who asked; the service itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
    /// How many bytes.
    pub bytes: u64,
    /// Larger is sooner.
    pub priority: i32,
    /// State.
    pub state: State,
    /// Place in the order in which it is expected to be done, from 1; while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// When it is expected to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_us: Option<i64>,
    /// Why it waits, or how it ended: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The volume it needs or uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeLabel>,
    /// When it was made.
    pub created_us: i64,
    /// When it fails if it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<i64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_us: Option<i64>,
    /// How often it was tried.
    pub attempts: u32,
    /// How many requests share the row.
    #[serde(default)]
    pub joined: u32,
}

/// A page of the queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    /// Its entries: those that run, then those that wait, in order of position.
    pub entries: Vec<Entry>,
    /// Give this as `after` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What to show of the queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Query {
    /// Only this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Only of this account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
    /// Also those that have ended.
    #[serde(default)]
    pub ended: bool,
    /// From [`Page::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many; at most [`MAX_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Some files.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Paths {
    /// Absolute paths; at most [`MAX_PATHS`].
    pub paths: Vec<String>,
    /// A directory stands for every file below it.
    #[serde(default)]
    pub recursive: bool,
}

/// Bring files to disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    #[serde(flatten)]
    pub files: Paths,
    /// How long they stay on disk after they have come, in seconds; the class of service decides if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
    /// In how many seconds a request fails if it is not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// Larger is sooner; 0 is usual.
    #[serde(default)]
    pub priority: i32,
    /// Ask in the name of this account; the caller's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
}

/// Keep files on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pin {
    /// Which.
    #[serde(flatten)]
    pub files: Paths,
    /// For so many seconds; for good if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// Keep files on so many disks: copies are made on further movers, or dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Replicate {
    /// Which.
    #[serde(flatten)]
    pub files: Paths,
    /// How many copies there are to be on disk, each on a mover of its own, the first one counted.
    pub copies: u32,
}

/// What became of one path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The path.
    pub path: String,
    /// What became of it.
    pub result: PathResult,
}

/// What became of one path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum PathResult {
    /// It is done.
    Done {
        /// What that means.
        message: String,
    },
    /// It is in the queue.
    Queued {
        /// Ask for it by this.
        request: RequestId,
        /// The row it waits in.
        work: WorkId,
    },
    /// It was not done.
    Refused {
        /// Why.
        problem: Problem,
    },
}

/// Requests or rows to take back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cancel {
    /// Requests: others that share the row go on.
    #[serde(default)]
    pub requests: Vec<RequestId>,
    /// Rows, with every request that waits for them.
    #[serde(default)]
    pub work: Vec<WorkId>,
}

/// What became of one cancellation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cancelled {
    /// The request or row.
    pub id: u64,
    /// Whether it was still there to cancel.
    pub cancelled: bool,
    /// In a sentence.
    pub message: String,
}

/// What to scrub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ScrubScope {
    /// These files, every copy.
    Paths {
        /// Which.
        paths: Vec<String>,
        /// A directory stands for every file below it.
        #[serde(default)]
        recursive: bool,
    },
    /// All files of a class of service, every copy.
    Class {
        /// Which.
        cos: CosName,
    },
    /// All that is on a disk volume or cartridge.
    Volume {
        /// Which.
        volume: VolumeLabel,
    },
}

/// Start a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartScrub {
    /// What to scrub.
    pub scope: ScrubScope,
    /// The most bytes a second, for the whole scrub; the configured rate if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

/// A scrub.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scrub {
    /// Its number.
    pub scrub: u64,
    /// What it looks at.
    pub scope: String,
    /// State.
    pub state: State,
    /// Segments to read.
    pub total: u64,
    /// Segments read.
    pub done: u64,
    /// Of those, damaged or unreadable.
    pub bad: u64,
    /// Bytes to read.
    pub total_bytes: u64,
    /// Bytes read.
    pub done_bytes: u64,
    /// When it began.
    pub started_us: i64,
    /// When it is expected to end, or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_us: Option<i64>,
}

/// What a scrub found of one segment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScrubResult {
    /// The row, for the next page's `after`.
    pub work: WorkId,
    /// The bitfile.
    pub bitfile: BitfileId,
    /// A name of it, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The volume.
    pub volume: VolumeLabel,
    /// Whether the sums were right.
    pub good: bool,
    /// What was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// When it was read.
    pub checked_us: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_request_is_one_flat_object() {
        let stage: Stage = serde_json::from_str(r#"{"paths":["/a"],"lifetime_s":60}"#).expect("read");
        assert_eq!(stage.files.paths, ["/a"]);
        assert_eq!(stage.lifetime_s, Some(60));
        assert!(!stage.files.recursive);
    }

    #[test]
    fn a_scope_says_what_it_is() {
        let scope: ScrubScope = serde_json::from_str(r#"{"what":"volume","volume":"PEN001L8"}"#).expect("read");
        assert!(matches!(scope, ScrubScope::Volume { .. }));
    }
}
