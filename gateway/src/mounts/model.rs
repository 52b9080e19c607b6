//! What the mount service knows: drives, cartridges, wants and grants, and what passes in and out of its state
//! machine.
//!
//! Plain values; [`super::state`] moves them, [`super::plan`] decides, [`super::view`] explains.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use catalog::Timestamp;
use wire::{
    id::{DriveId, Epoch, LibraryId, MoverId, VolumeLabel},
    mover::{DriveStatus, Fault, Mounted, MoveTo, Slot},
};

use crate::movers::MoverError;

/// How mounts are shared out.
#[derive(Clone, Debug)]
pub struct Rules {
    /// So many drives are kept for recalls: everything else together uses the others only. At least one drive is always
    /// left for the others.
    pub reserved_for_recall: usize,
    /// How long an idle cartridge stays in its drive, in case more work for it comes.
    pub linger: Duration,
    /// Whoever has waited longer than this goes first, whatever its priority.
    pub starvation: Duration,
    /// How long after a failed inventory or a busy drive it is tried again.
    pub retry: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            reserved_for_recall: 1,
            linger: Duration::from_secs(20),
            starvation: Duration::from_secs(4 * 3600),
            retry: Duration::from_secs(5),
        }
    }
}

/// For what a drive is wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// Tape to disk: somebody waits.
    Recall,
    /// Disk to tape.
    Migrate,
    /// Tape to tape.
    Repack,
    /// Tape to nowhere.
    Verify,
}

impl Purpose {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Recall => "recall",
            Self::Migrate => "migration",
            Self::Repack => "repack",
            Self::Verify => "verification",
        }
    }
}

/// Names one want.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WantId(pub u64);

/// Names one grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GrantId(pub u64);

/// Somebody wants a cartridge in a drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Want {
    /// Which want.
    pub id: WantId,
    /// What for.
    pub purpose: Purpose,
    /// Any of these will do, the best first; one for a recall.
    pub volumes: Vec<VolumeLabel>,
    /// The pool they belong to, for the label of a blank one and for `max_drives`.
    pub pool: String,
    /// At most so many drives may be used for this pool and purpose at the same time.
    pub max_drives: usize,
    /// Whether a blank tape may be labelled.
    pub label_blank: bool,
    /// Larger is sooner.
    pub priority: i32,
    /// Among wants of one purpose and priority: smaller is sooner.
    pub rank: u64,
    /// Since when the oldest work behind it waits.
    pub since: Timestamp,
}

/// A drive with a cartridge, ready, for one holder of a want.
#[derive(Clone, PartialEq, Debug)]
pub struct Grant {
    /// Which grant.
    pub id: GrantId,
    /// Whose want it answers.
    pub want: WantId,
    /// What for.
    pub purpose: Purpose,
    /// The drive.
    pub drive: DriveId,
    /// The mover whose drive it is.
    pub mover: MoverId,
    /// The cartridge in it.
    pub volume: VolumeLabel,
    /// The pool of the want.
    pub pool: String,
    /// What the drive said when it was attached.
    pub mounted: Mounted,
}

/// How a grant ends.
#[derive(Clone, PartialEq, Debug)]
pub enum Released {
    /// All went well; the cartridge may stay for the next.
    Clean,
    /// The tape may hold what the catalogue does not know: it is detached, so that the next attach compares.
    Doubt,
    /// Something failed.
    Fault(Fault),
}

impl Released {
    /// How a grant ends under which this happened.
    pub(crate) fn after(error: MoverError) -> Self {
        match error {
            MoverError::Refused { fault, .. } => Self::Fault(fault),
            _ => Self::Doubt,
        }
    }
}

/// What is in a drive, and what is being done to it.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Not known: ask for the inventory.
    Unknown,
    /// Nothing.
    Empty,
    /// A cartridge that is not attached.
    Loaded {
        /// Which; `None` if its bar code cannot be read.
        volume: Option<VolumeLabel>,
        /// Since when.
        since: Timestamp,
    },
    /// The robot brings a cartridge.
    Bringing {
        /// Which.
        volume: VolumeLabel,
    },
    /// The drive loads and checks it.
    Attaching {
        /// Which.
        volume: VolumeLabel,
    },
    /// A cartridge is ready.
    Ready {
        /// What the drive said of it.
        mounted: Mounted,
        /// Since when nobody uses it; `None` while somebody does.
        idle_since: Option<Timestamp>,
    },
    /// The drive rewinds and unloads.
    Detaching {
        /// What it held.
        volume: VolumeLabel,
    },
    /// The robot takes a cartridge away.
    Returning {
        /// Which.
        volume: VolumeLabel,
    },
}

impl Content {
    /// The cartridge in it, or on its way into or out of it.
    #[must_use]
    pub const fn volume(&self) -> Option<&VolumeLabel> {
        match self {
            Self::Unknown | Self::Empty => None,
            Self::Loaded { volume, .. } => volume.as_ref(),
            Self::Bringing { volume }
            | Self::Attaching { volume }
            | Self::Detaching { volume }
            | Self::Returning { volume } => Some(volume),
            Self::Ready { mounted, .. } => Some(&mounted.volume),
        }
    }
}

/// Whether a drive can be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Usable {
    /// It can.
    Up,
    /// Its mover says it cannot; up again when the mover says so.
    DownByMover {
        /// Why.
        reason: String,
    },
    /// It was taken out of use, by an operator or after faults; up again by an operator only.
    Down {
        /// Why.
        reason: String,
    },
    /// It wants cleaning.
    Cleaning {
        /// Why.
        reason: String,
    },
    /// Its mover is not connected.
    Away {
        /// Why.
        reason: String,
    },
}

/// A drive.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The mover it is attached to.
    pub mover: MoverId,
    /// The library it sits in.
    pub library: LibraryId,
    /// What its mover last said of it.
    pub status: DriveStatus,
    /// Whether it can be used.
    pub usable: Usable,
    /// Since when it has been so.
    pub usable_since: Timestamp,
    /// What is in it.
    pub content: Content,
    /// The command under way; answers to others are stale.
    pub command: Option<u64>,
    /// The want for which a cartridge is being brought or attached.
    pub bound: Option<WantId>,
    /// The grant in force.
    pub grant: Option<Grant>,
    /// Not to be tried before.
    pub not_before: Timestamp,
    /// Volumes that failed in it since one last worked: two different ones make it suspect.
    pub failed_with: BTreeSet<VolumeLabel>,
    /// The cartridge must go, whatever wants it.
    pub eject: bool,
}

/// Where a cartridge is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// In a slot.
    Slot {
        /// Which library.
        library: LibraryId,
        /// The slot's element address.
        element: u16,
    },
    /// In a drive, or between it and a slot.
    Drive(DriveId),
    /// In no library we see.
    Outside,
}

/// A cartridge.
#[derive(Clone, Debug)]
pub struct Cartridge {
    /// Where it is.
    pub location: Location,
    /// Why it may not be used, if it may not.
    pub disabled: Option<String>,
    /// Drives in which it failed since it last worked: two different ones make it suspect.
    pub failed_in: BTreeSet<DriveId>,
    /// How often in a row the robot could not move it.
    pub failed_moves: u32,
    /// Not to be tried before.
    pub not_before: Timestamp,
}

/// A library.
#[derive(Clone, Debug)]
pub struct Library {
    /// The mover that controls its robot, while one is connected.
    pub mover: Option<MoverId>,
    /// Whether what we believe is where may be wrong.
    pub doubt: bool,
    /// The robot's command under way: it does one thing at a time.
    pub command: Option<u64>,
    /// Not to be asked before.
    pub not_before: Timestamp,
    /// What went wrong last.
    pub trouble: Option<String>,
}

/// Everything the service knows.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    pub(super) rules: Rules,
    /// Drives that operators had taken out of use before this owner came, and why.
    pub(super) kept_down: BTreeMap<DriveId, String>,
    pub(super) drives: BTreeMap<DriveId, Drive>,
    pub(super) cartridges: BTreeMap<VolumeLabel, Cartridge>,
    pub(super) libraries: BTreeMap<LibraryId, Library>,
    pub(super) wants: BTreeMap<WantId, Want>,
    pub(super) draining: BTreeSet<MoverId>,
    pub(super) last_command: u64,
    pub(super) last_grant: u64,
    pub(super) lease: Epoch,
    pub(super) attaches: u32,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A mover is connected and says what it has.
    Mover {
        /// Which.
        mover: MoverId,
        /// Its drives.
        drives: Vec<DriveStatus>,
        /// Libraries whose robot it moves.
        libraries: Vec<LibraryId>,
        /// It is shutting down, or an operator drains it.
        draining: bool,
    },
    /// A mover's connection is gone.
    MoverGone {
        /// Which.
        mover: MoverId,
        /// Why.
        reason: String,
    },
    /// The catalogue's cartridges, and which of them may not be used and why.
    Cartridges(Vec<(VolumeLabel, Option<String>)>),
    /// Somebody wants a mount. Again with the same identifier: the want has changed.
    Want(Want),
    /// It is not wanted any more. If it was granted meanwhile, the grant goes on.
    Unwant(WantId),
    /// A grant is given back.
    Release {
        /// Which.
        grant: GrantId,
        /// How it went.
        how: Released,
    },
    /// What a library holds.
    Inventory {
        /// Which library.
        library: LibraryId,
        /// The command that asked.
        command: u64,
        /// Its places, or why it did not say.
        result: Result<Vec<Slot>, Fault>,
    },
    /// A move came to an end.
    Moved {
        /// The drive it went to or from.
        drive: DriveId,
        /// The command.
        command: u64,
        /// How it went.
        result: Result<(), Fault>,
    },
    /// An attach came to an end.
    Attached {
        /// The drive.
        drive: DriveId,
        /// The command.
        command: u64,
        /// What the drive said; a tape that contradicts the catalogue is a `VolumeSuspect`.
        result: Result<Mounted, Fault>,
    },
    /// A detach came to an end.
    Detached {
        /// The drive.
        drive: DriveId,
        /// The command.
        command: u64,
        /// How it went.
        result: Result<(), Fault>,
    },
    /// An operator takes a drive into use, or out of it with a reason.
    SetDrive {
        /// Which.
        drive: DriveId,
        /// Why not; `None` to use it.
        down: Option<String>,
    },
    /// A library was opened, or something was moved by hand: look again.
    Recheck,
    /// Time passed.
    Tick,
}

/// What the driver must do now.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Ask what is in a library; answer with [`Event::Inventory`].
    TakeInventory {
        /// Whom to ask.
        mover: MoverId,
        /// Which library.
        library: LibraryId,
        /// To be repeated in the answer.
        command: u64,
    },
    /// Move a cartridge; answer with [`Event::Moved`].
    Move {
        /// Whom to ask.
        mover: MoverId,
        /// Which library.
        library: LibraryId,
        /// Which cartridge.
        volume: VolumeLabel,
        /// Where to.
        to: MoveTo,
        /// The drive it goes to or comes from.
        drive: DriveId,
        /// To be repeated in the answer.
        command: u64,
    },
    /// Attach a drive; answer with [`Event::Attached`].
    Attach {
        /// Whom to ask.
        mover: MoverId,
        /// Which drive.
        drive: DriveId,
        /// The cartridge in it.
        volume: VolumeLabel,
        /// Fencing key.
        epoch: Epoch,
        /// Whether a blank tape may be labelled.
        label_blank: bool,
        /// The pool for the label.
        pool: String,
        /// To be repeated in the answer.
        command: u64,
    },
    /// Detach a drive; answer with [`Event::Detached`].
    Detach {
        /// Whom to ask.
        mover: MoverId,
        /// Which drive.
        drive: DriveId,
        /// To be repeated in the answer.
        command: u64,
    },
    /// Tell the holder of a want that it has a drive.
    Give(Grant),
    /// Tell the holder of a want that none of its volumes can be mounted until somebody does something.
    Refuse {
        /// Whose.
        want: WantId,
        /// Why.
        why: super::view::Why,
    },
    /// Tell the holder of a grant that it is lost.
    Revoke {
        /// Which.
        grant: GrantId,
        /// Why.
        reason: String,
    },
    /// Note in the catalogue that a volume must not be used.
    Suspect {
        /// Which.
        volume: VolumeLabel,
        /// Why.
        reason: String,
    },
    /// Tell whoever watches.
    Note {
        /// The drive.
        drive: DriveId,
        /// In a sentence.
        message: String,
    },
}
