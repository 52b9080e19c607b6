//! Short questions with one answer: disk files, the library's robot, drives.

use serde::{Deserialize, Serialize};

use crate::{
    checksum::Sums,
    extent::Extent,
    id::{BitfileId, DriveId, Epoch, FileId, LibraryId, VolumeLabel},
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
    /// What does the tape in this drive say that it holds? Read from the tape alone, container by container. Answered by
    /// [`Answer::Scanned`].
    Scan {
        /// The drive.
        drive: DriveId,
        /// The volume, compared with what is attached.
        volume: VolumeLabel,
        /// Begin here, as the page before said; at the first container if `None`.
        from: Option<ScanPlace>,
        /// At most so many members; the mover has a limit of its own.
        limit: u32,
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
    /// A page of what is on a tape.
    Scanned(Scanned),
}

/// Where a page of a scan begins: members of this container from this one on, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScanPlace {
    /// The container's number.
    pub container: u32,
    /// The member.
    pub member: u32,
}

/// A page of what is on a tape. It never goes beyond one container.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Scanned {
    /// Members, in the order in which they lie there.
    pub members: Vec<Found>,
    /// Where the next page begins; `None` at the end of the tape.
    pub next: Option<ScanPlace>,
    /// The container whose list of members cannot be read, and why.
    pub unreadable: Option<(u32, String)>,
    /// How many containers are on the tape.
    pub containers: u32,
}

/// One member of a container, as the tape describes it. The tape was written by whoever: names are not checked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Whose bytes they are.
    pub bitfile: BitfileId,
    /// Orders the bitfiles that had this path: the larger, the newer.
    pub version: u64,
    /// The class of service, where the tape says it.
    pub cos: String,
    /// The file's path.
    pub path: String,
    /// The owner's account.
    pub owner: String,
    /// The group.
    pub group: String,
    /// Permission bits.
    pub mode: u32,
    /// When the file was last modified, microseconds since the epoch.
    pub modified_us: i64,
    /// Which bytes of the bitfile these are.
    pub offset_bytes: u64,
    /// The bitfile's size.
    pub bitfile_bytes: u64,
    /// Where they lie, and how many they are.
    pub extent: Extent,
    /// Their sums.
    pub sums: Sums,
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
