//! The durable work queue, stage requests, leases: records.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::id::{AccountName, BitfileId, Epoch, FileId, GatewayId, RequestId, StorageClassName, VolumeLabel, WorkId};

use crate::record::bitfile::Segment;
use crate::record::event::Cause;
use crate::record::volume::TapePosition;
use crate::time::Timestamp;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    /// Disk to tape. Pool: the class of service. Subject: a bitfile.
    Migrate,
    /// Tape to disk. Pool: the volume it is read from. Subject: a bitfile.
    Stage,
    /// Drop the disk copy. Pool: the class of service. Subject: a bitfile.
    Purge,
    /// Delete a file of a disk volume. Pool: that volume. Subject: the file.
    Reclaim,
    /// Move what is live on one cartridge to another. Pool: that volume. Subject: the volume or a bitfile.
    Repack,
    /// Read and compare sums. Pool: a volume. Subject: the volume or a bitfile.
    Verify,
    /// Take over what a cartridge says it holds. Pool: that volume. Subject: the volume.
    Rebuild,
}

impl WorkKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Migrate, Self::Stage, Self::Purge, Self::Reclaim, Self::Repack, Self::Verify, Self::Rebuild];

    /// The word for it, as stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Stage => "stage",
            Self::Purge => "purge",
            Self::Reclaim => "reclaim",
            Self::Repack => "repack",
            Self::Verify => "verify",
            Self::Rebuild => "rebuild",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What work is done on. There is at most one item of a kind for one subject.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Subject {
    /// A bitfile.
    Bitfile(BitfileId),
    /// A file of a disk volume.
    File {
        /// The volume.
        volume: VolumeLabel,
        /// The file.
        file: FileId,
    },
    /// A whole volume.
    Volume(VolumeLabel),
}

/// Work to be queued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewWork {
    /// What is to be done.
    pub kind: WorkKind,
    /// On what.
    pub subject: Subject,
    /// By which key it is claimed; see [`WorkKind`].
    pub pool: String,
    /// How many bytes it moves, for budgets.
    pub bytes: u64,
    /// Not before then.
    pub not_before: Timestamp,
    /// It is given up then.
    pub deadline: Option<Timestamp>,
}

/// One row of the queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkItem {
    /// Which.
    pub id: WorkId,
    /// What is to be done.
    pub kind: WorkKind,
    /// On what.
    pub subject: Subject,
    /// By which key it is claimed.
    pub pool: String,
    /// How many bytes it moves.
    pub bytes: u64,
    /// When it was queued.
    pub created: Timestamp,
    /// When it may be claimed next: its start, its next attempt, or when its lease ends. [`Timestamp::NEVER`] if it
    /// has been given up and waits for a person.
    pub due: Timestamp,
    /// When it is given up.
    pub deadline: Option<Timestamp>,
    /// How often it has been claimed: the epoch of the claim.
    pub epoch: Epoch,
    /// Who has it now, or had it last.
    pub holder: Option<Holder>,
    /// How often it has failed.
    pub failures: u32,
    /// Why it failed last, or waits.
    pub reason: Option<String>,
    /// Of a verification, the scrub it belongs to.
    pub scrub: Option<u64>,
    /// Of a verification of a whole volume, how far it has been read.
    pub place: Option<String>,
}

impl WorkItem {
    /// What proves that this claim is the one in force.
    #[must_use]
    pub const fn ticket(&self) -> Ticket {
        Ticket { work: self.id, epoch: self.epoch }
    }
}

/// Proof of a claim. It is refused as stale once the item has been claimed again, cancelled or finished.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ticket {
    /// The item.
    pub work: WorkId,
    /// Which claim of it.
    pub epoch: Epoch,
}

/// Who holds leases: one run of one gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holder(String);

impl Holder {
    /// The holder that is this run of this gateway.
    #[must_use]
    pub fn new(gateway: &GatewayId, run: Epoch) -> Self {
        Self(format!("{gateway}/{run}"))
    }

    /// As stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn from_column(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Which work is claimed, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// What kind.
    pub kind: WorkKind,
    /// By which key.
    pub pool: String,
    /// For whom.
    pub holder: Holder,
    /// After so long without renewal another may claim it.
    pub lease: Duration,
    /// At most so many items.
    pub max_items: u32,
    /// Items until their bytes reach this; the first always fits.
    pub max_bytes: u64,
}

/// What is queued under one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolDemand {
    /// The key.
    pub pool: String,
    /// How many items are due now; counting stops at [`DEMAND_LIMIT`].
    pub items: u64,
    /// How many bytes those that were counted move.
    pub bytes: u64,
    /// When the oldest of those was queued.
    pub oldest: Timestamp,
}

/// Where counting what is due under one key stops: enough to fill several batches, cheap to look at often.
pub const DEMAND_LIMIT: u64 = 10_000;

/// How work failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkFailure {
    /// The claim.
    pub ticket: Ticket,
    /// Why, for people.
    pub reason: String,
    /// What happens now.
    pub next: AfterFailure,
}

/// What happens to work that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AfterFailure {
    /// It may be claimed again after this time, and counts as failed once more.
    Retry(Duration),
    /// It may be claimed again at once under another key: a stage from another volume.
    RetryFrom {
        /// The new key.
        pool: String,
    },
    /// It was not tried: it goes back as it was.
    Release,
    /// It is given up. Stage requests that wait for it fail with the reason; other work stays, not due, for a person
    /// to retry or cancel.
    GiveUp,
}

/// A wish to have a bitfile on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRequest {
    /// What.
    pub bitfile: BitfileId,
    /// Who asks.
    pub account: AccountName,
    /// It fails if it is not there by then.
    pub deadline: Timestamp,
    /// How long it is to stay once it is there.
    pub lifetime: Duration,
    /// Larger is sooner, for the gateway's scheduler.
    pub priority: i32,
    /// Where the request came from, if its door says more than whose it is.
    pub cause: Option<Cause>,
}

/// How far a stage request is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RequestState {
    /// It waits.
    Queued,
    /// Its work is claimed.
    Active,
    /// The bitfile is on disk.
    Completed,
    /// It will not be.
    Failed {
        /// Why, for people.
        reason: String,
    },
    /// It is not wanted any more.
    Cancelled,
}

impl RequestState {
    /// Whether it has come to an end.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Queued | Self::Active)
    }
}

/// A stage request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageRequest {
    /// Which.
    pub id: RequestId,
    /// What is wanted.
    pub bitfile: BitfileId,
    /// How large it is.
    pub size_bytes: u64,
    /// Who asks.
    pub account: AccountName,
    /// How far it is.
    pub state: RequestState,
    /// Larger is sooner.
    pub priority: i32,
    /// When it was asked.
    pub created: Timestamp,
    /// When it fails.
    pub deadline: Timestamp,
    /// When it came to an end.
    pub finished: Option<Timestamp>,
    /// How long the copy is to stay.
    pub lifetime: Duration,
    /// The work it waits for, which several requests may share.
    pub work: Option<WorkId>,
    /// The cartridge it is read from.
    pub volume: Option<VolumeLabel>,
    /// How many requests were asked before this one and wait still.
    pub ahead: Option<u64>,
    /// Why it waits, if its work failed before.
    pub note: Option<String>,
}

/// Which stage requests are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestFilter {
    /// Only of this account.
    pub account: Option<AccountName>,
    /// Only those that wait or are active.
    pub open_only: bool,
    /// Only those with a larger number.
    pub after: Option<RequestId>,
    /// At most so many.
    pub limit: u32,
}

/// What waits to be staged from one volume for one account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageDemand {
    /// The cartridge.
    pub volume: VolumeLabel,
    /// Who asks.
    pub account: AccountName,
    /// How many requests.
    pub requests: u64,
    /// How many bytes.
    pub bytes: u64,
    /// When the oldest was asked.
    pub oldest: Timestamp,
    /// The highest priority among them.
    pub priority: i32,
}

/// A container written to a cartridge: what migration or repack reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenContainer {
    /// The cartridge.
    pub volume: VolumeLabel,
    /// Where the writer found its end of data; the catalogue must agree.
    pub before: TapePosition,
    /// Where its end of data is now.
    pub after: TapePosition,
    /// How many bytes of tape it took.
    pub written_bytes: u64,
    /// Which copy was written.
    pub copy: u32,
    /// The storage class of that copy.
    pub storage_class: StorageClassName,
    /// What the container holds.
    pub members: Vec<WrittenMember>,
    /// A lease that the writer must still hold.
    pub fence: Option<Fence>,
}

/// One bitfile, or part of one, in a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenMember {
    /// The claim under which it was written.
    pub ticket: Ticket,
    /// Which bitfile.
    pub bitfile: BitfileId,
    /// Where it lies; all on the container's volume.
    pub segments: Vec<Segment>,
}

/// What came of recording a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerRecorded {
    /// Bitfiles that have all their tape copies now; their work is done.
    pub complete: Vec<BitfileId>,
    /// Bitfiles recorded that want more: another copy, or the rest of this one.
    pub more_wanted: Vec<BitfileId>,
    /// Members that were not recorded, with the reason: deleted meanwhile, claimed by another, on that volume
    /// already. Their bytes on tape are dead.
    pub refused: Vec<(BitfileId, CatalogRefusal)>,
}

/// Why one member of a bulk call was not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatalogRefusal {
    /// The work was cancelled or claimed again, or its bitfile deleted.
    #[error("the claim is no longer in force")]
    Stale,
    /// That volume holds another copy of it.
    #[error("the volume holds another copy of it")]
    SameVolume,
    /// That copy is there already.
    #[error("the copy is there already")]
    Present,
    /// A migration reads it at the moment.
    #[error("a migration reads it now")]
    Busy,
    /// The segments do not cover the bitfile, or overlap.
    #[error("the segments do not fit the bitfile")]
    Misfit,
}

/// A bitfile whose disk segments have left a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relocated {
    /// The claim.
    pub ticket: Ticket,
    /// Which bitfile.
    pub bitfile: BitfileId,
    /// Where what lay on that volume lies now, range by range.
    pub segments: Vec<Segment>,
}

/// A bitfile brought back to disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Staged {
    /// The claim.
    pub ticket: Ticket,
    /// Which bitfile.
    pub bitfile: BitfileId,
    /// The storage class of the disk copy.
    pub storage_class: StorageClassName,
    /// Where it lies now.
    pub segments: Vec<Segment>,
}

/// What came of recording one staged bitfile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StageRecorded {
    /// It is on disk; these requests are completed.
    Done {
        /// Which requests.
        requests: Vec<RequestId>,
        /// Until when it stays.
        expires: Timestamp,
    },
    /// It was not recorded; its new files are queued for reclaim.
    Refused(CatalogRefusal),
}

/// Proof of a lease, checked in the transaction that relies on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The lease.
    pub lease: String,
    /// The epoch in which the caller holds it.
    pub epoch: Epoch,
}

/// A lease as the operator sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lease {
    /// What is held: a service's name, `volume/LABEL`, ….
    pub name: String,
    /// By whom.
    pub holder: Holder,
    /// How often it changed hands.
    pub epoch: Epoch,
    /// Until when.
    pub until: Timestamp,
}
