//! Short questions with one answer: disk files, the library's robot, drives.

use serde::{Deserialize, Serialize};

use crate::{
    id::{DriveId, Epoch, FileId, LibraryId, VolumeLabel},
    mover::{Fault, MoverStatus, VolumeFile},
};

/// A question.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Call {
    /// How are you? Answered by [`Answer::Status`].
    Status,
    /// Remove these disk files. A file that is not there counts as removed, so the call may be repeated. Answered by
    /// [`Answer::Removed`].
    Remove {
        /// Which.
        files: Vec<VolumeFile>,
    },
    /// Which files are on this disk volume, by number, after `after`? Answered by [`Answer::Files`]; for audits.
    Files {
        /// The volume.
        volume: VolumeLabel,
        /// Begin behind this file.
        after: Option<FileId>,
        /// At most so many.
        limit: u32,
    },
    /// What is in the library? Answered by [`Answer::Inventory`].
    Inventory {
        /// Which library.
        library: LibraryId,
    },
    /// Move a cartridge. Answered by [`Answer::Done`] when the robot has put it down. A move that timed out is never
    /// repeated without asking for the inventory first.
    Move {
        /// Which library.
        library: LibraryId,
        /// Which cartridge, by its bar code.
        volume: VolumeLabel,
        /// Where to.
        to: MoveTo,
    },
    /// Take hold of a drive and of the volume that was moved into it: wait until it is ready, reserve it with `epoch`
    /// as key, check its label. Answered by [`Answer::Attached`].
    Attach {
        /// The drive.
        drive: DriveId,
        /// The volume that must be in it.
        volume: VolumeLabel,
        /// The fencing key: larger than that of any earlier holder of this drive.
        epoch: Epoch,
        /// Whether a blank tape may be given this label now.
        label_blank: bool,
        /// The storage pool to write in a new label.
        pool: String,
    },
    /// Let go of a drive: finish what is written, rewind, unload, drop the reservation. The cartridge can be moved
    /// afterwards. Answered by [`Answer::Done`].
    Detach {
        /// The drive.
        drive: DriveId,
    },
}

/// Where a cartridge goes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MoveTo {
    /// Into a drive.
    Drive(DriveId),
    /// Into a storage slot: the one it came from if that is free, else any.
    Slot,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// How the mover is.
    Status(MoverStatus),
    /// Which files are gone, and which are still there and why.
    Removed {
        /// Gone.
        removed: Vec<VolumeFile>,
        /// Still there.
        failed: Vec<(VolumeFile, Fault)>,
    },
    /// A page of files, in order of their numbers; less than asked for means the end.
    Files {
        /// File, its length in bytes, and whether it is confirmed.
        files: Vec<(FileId, u64, bool)>,
    },
    /// What is in the library.
    Inventory {
        /// Every slot, drive and port.
        slots: Vec<Slot>,
    },
    /// A drive holds the volume.
    Attached(Mounted),
}

/// One place of a library (SMC-3 element).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// Element address.
    pub element: u16,
    /// What it is.
    pub kind: SlotKind,
    /// The cartridge in it, by bar code; `None` if it is empty or has no readable bar code.
    pub volume: Option<VolumeLabel>,
    /// Whether a cartridge is in it.
    pub full: bool,
    /// Whether the cartridge is a cleaning cartridge.
    pub cleaning: bool,
    /// Why the place cannot be used, if it cannot.
    pub exception: Option<String>,
}

/// What a place of a library is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SlotKind {
    /// A storage slot.
    Storage,
    /// An import and export port.
    ImportExport,
    /// A drive; its name where a mover of this site has configured it, by serial number.
    Drive {
        /// The drive's serial number.
        serial: String,
        /// Its name.
        drive: Option<DriveId>,
    },
}

/// A volume in a drive, ready for use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mounted {
    /// The volume.
    pub volume: VolumeLabel,
    /// Whether the label was written just now.
    pub labelled: bool,
    /// Sequence number of the last committed container; 0 on a new tape. May be ahead of the catalogue: a container
    /// whose report was lost is dead space.
    pub last_container: u32,
    /// The logical block at which the next container begins.
    pub next_block: u64,
    /// The medium's capacity in bytes, a hint.
    pub capacity_bytes: u64,
    /// What is left, in bytes, a hint.
    pub remaining_bytes: u64,
    /// It cannot be written: write protected, or the drive cannot write this generation.
    pub read_only: Option<String>,
    /// Write once.
    pub worm: bool,
    /// TapeAlert flags that were set (SSC-4 annex), by number.
    pub alerts: Vec<u8>,
}
