//! Scrubs: what an operator asked to be verified, how far it is, and what was found.

use wire::id::{BitfileId, CosName, VolumeLabel};

use crate::record::work::{Fence, Subject, Ticket};
use crate::time::Timestamp;

/// Scrubs that are remembered after their end.
pub const KEPT_SCRUBS: u32 = 100;

/// A scrub to be begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewScrub {
    /// What it looks at, for people.
    pub scope: String,
    /// The most bytes a second.
    pub rate: Option<u64>,
    /// What is to be read.
    pub what: ScrubTarget,
}

/// What a scrub reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScrubTarget {
    /// These, each once.
    Items(Vec<ScrubItem>),
    /// All files of a class, which whoever runs the service lists with [`ScrubListed`].
    Class(CosName),
}

/// One piece of a scrub's work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubItem {
    /// A bitfile or a volume.
    pub subject: Subject,
    /// The volume that is read first.
    pub volume: VolumeLabel,
    /// How many segments it has, on all its volumes.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A page of what a scrub of a class reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubListed {
    /// Which scrub.
    pub scrub: u64,
    /// What the page holds, each once.
    pub items: Vec<ScrubItem>,
    /// The name after which the listing goes on; `None` at its end.
    pub place: Option<String>,
    /// The lease under which it is listed.
    pub fence: Fence,
}

/// A scrub, as far as it is.
///
/// One that has ended with fewer segments read than there were to read has lost the others: their files were deleted,
/// were found bad elsewhere, belong to a later scrub, or could not be read and were given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scrub {
    /// Its number.
    pub id: u64,
    /// What it looks at, for people.
    pub scope: String,
    /// The class that is listed.
    pub class: Option<CosName>,
    /// The name after which the listing goes on.
    pub place: Option<String>,
    /// Whether all of its work is queued.
    pub listed: bool,
    /// The most bytes a second.
    pub rate: Option<u64>,
    /// Segments to be read.
    pub total: u64,
    /// Their bytes.
    pub total_bytes: u64,
    /// Segments read.
    pub done: u64,
    /// Their bytes.
    pub done_bytes: u64,
    /// Of those, damaged ones.
    pub bad: u64,
    /// When it was begun.
    pub started: Timestamp,
    /// When nothing more was to be read.
    pub ended: Option<Timestamp>,
}

/// What was read of one piece of work, and what is next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The claim.
    pub ticket: Ticket,
    /// The segments that were read.
    pub found: Vec<VerifiedSegment>,
    /// What is next.
    pub next: AfterVerify,
}

/// One segment that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedSegment {
    /// The bitfile.
    pub bitfile: BitfileId,
    /// The volume.
    pub volume: VolumeLabel,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// When it was read.
    pub checked: Timestamp,
}

/// What happens to verification work of which something was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AfterVerify {
    /// All has been read.
    Done,
    /// The claim goes on, behind this place.
    GoOn {
        /// The place, as [`crate::Catalog::bitfiles_on`] gave it.
        place: String,
    },
    /// It is to be read from another volume.
    Volume {
        /// Which.
        volume: VolumeLabel,
        /// What was found here, for people.
        reason: String,
    },
    /// It stays, not due, until a person has looked.
    GiveUp {
        /// Why.
        reason: String,
    },
}

/// A result of a scrub, by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubFound {
    /// Its number, from 1.
    pub number: u64,
    /// What was found.
    pub segment: VerifiedSegment,
}
