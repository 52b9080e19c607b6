//! The site and its parts: gateway, movers, drives, volumes, classes of service, live transfers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::id::{
    AccountName, BitfileId, CosName, DriveId, GatewayId, LibraryId, MoverId, StorageClassName, TransferId, VolumeLabel,
};

/// How the site is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The gateway that answers.
    pub gateway: GatewayId,
    /// Its version.
    pub version: String,
    /// What time it is there.
    pub now_us: i64,
    /// When it started.
    pub started_us: i64,
    /// Whether it takes work; what is missing otherwise.
    pub ready: Readiness,
    /// Kind and version of the catalogue's database: `SQLite 3.50.4`.
    pub catalogue: String,
    /// Its background services.
    pub services: Vec<Service>,
    /// How many movers are connected, of how many.
    pub movers: Count,
    /// How many drives can be used, of how many.
    pub drives: Count,
    /// Rows of the work queue that are not done, by kind.
    pub queue: Vec<QueueCount>,
    /// What moves now, by what it does; each kind once, and only if anything does.
    #[serde(default)]
    pub moving: Vec<Moving>,
    /// Space by storage class.
    pub classes: Vec<ClassSpace>,
    /// Files and bytes in the catalogue.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
    /// Bytes that went through a process that neither held nor wanted them, since it started.
    pub relayed_bytes: u64,
}

/// Whether a part works, and why not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Readiness {
    /// It works.
    Ready,
    /// It works, but something is missing that some requests need.
    Degraded {
        /// What.
        reason: String,
    },
    /// It does not.
    NotReady {
        /// Why.
        reason: String,
    },
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// So many of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// That work.
    pub up: u64,
    /// All.
    pub total: u64,
}

/// A background service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// `migrate`, `purge`, `stage`, …
    pub name: String,
    /// Which gateway runs it now, if that is known.
    pub holder: Option<GatewayId>,
    /// Whether that is the gateway that answers.
    pub here: bool,
    /// What it is doing, in a few words.
    pub doing: String,
    /// When it last did something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_us: Option<i64>,
    /// What last went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How much waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueCount {
    /// What kind of work.
    pub kind: super::queue::Kind,
    /// How many rows wait.
    pub waiting: u64,
    /// How many are being worked on.
    pub running: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// When the oldest was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_us: Option<i64>,
}

/// Transfers of one kind that move now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    /// What they do.
    pub what: TransferKind,
    /// How many they are.
    pub transfers: u64,
    /// Bytes a second of them all.
    pub rate: u64,
}

/// Space of a storage class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassSpace {
    /// Its name.
    pub class: StorageClassName,
    /// Disk or tape.
    pub medium: Medium,
    /// Bytes it may hold.
    pub capacity_bytes: u64,
    /// Bytes it holds.
    pub used_bytes: u64,
    /// Above this share purging begins, 0 to 100. Disk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_percent: Option<u8>,
    /// Volumes whose capacity is not known yet, and so not counted in `capacity_bytes`.
    #[serde(default)]
    pub unknown_capacity: u64,
    /// Down to this share it goes on, 0 to 100. Disk only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_percent: Option<u8>,
    /// Its volumes: those that can be used, of all.
    pub volumes: Count,
}

/// Kind of medium.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// Disk.
    Disk,
    /// Tape.
    Tape,
    /// A medium of a newer version.
    #[serde(other)]
    Unknown,
}

/// Why something is asked for, for the log and for whoever looks later.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reason {
    /// In a few words.
    #[serde(default)]
    pub reason: String,
    /// Of a drain of a volume: what is on it is moved to others.
    #[serde(default, rename = "move", skip_serializing_if = "std::ops::Not::not")]
    pub moves: bool,
}

/// A mover.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mover {
    /// Its name.
    pub mover: MoverId,
    /// Where this gateway reaches it.
    pub address: String,
    /// Whether it is connected and takes work.
    pub state: MoverState,
    /// Why, unless it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<i64>,
    /// Its disk volumes.
    pub volumes: Vec<VolumeLabel>,
    /// Its drives.
    pub drives: Vec<DriveId>,
    /// Libraries whose robot it moves.
    pub libraries: Vec<LibraryId>,
    /// How many transfers it runs.
    pub transfers: u64,
    /// Bytes received from the network since it started.
    pub received_bytes: u64,
    /// Bytes sent to the network since it started.
    pub sent_bytes: u64,
    /// Bytes it passed on from channel to channel since it started.
    pub relayed_bytes: u64,
}

/// State of a mover.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoverState {
    /// Connected.
    Up,
    /// Connected, and given nothing new.
    Draining,
    /// Not connected.
    Away,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// A tape drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Drive {
    /// Its name.
    pub drive: DriveId,
    /// The mover it is attached to.
    pub mover: MoverId,
    /// The library it sits in.
    pub library: LibraryId,
    /// Serial number.
    pub serial: String,
    /// Whether it can be used.
    pub state: DriveState,
    /// Why, unless it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<i64>,
    /// What is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeLabel>,
    /// What it is doing: `empty`, `mounting`, `idle`, `reading`, `writing`, `unmounting`, …
    pub activity: String,
    /// For what it is used now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<super::queue::Kind>,
    /// Bytes written since its mover started.
    pub written_bytes: u64,
    /// Bytes read since its mover started.
    pub read_bytes: u64,
    /// Volumes mounted since its mover started.
    pub mounts: u64,
}

/// State of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// It works.
    Up,
    /// It does not, until somebody says `drive up`.
    Down,
    /// It wants cleaning, or is being cleaned.
    Cleaning,
    /// Its mover is not connected.
    Away,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// A volume: a disk volume or a cartridge.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Its label.
    pub volume: VolumeLabel,
    /// Disk or tape.
    pub medium: Medium,
    /// Its storage class.
    pub class: StorageClassName,
    /// The pool a cartridge belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether it can be used.
    pub state: VolumeState,
    /// Why, unless it is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where it is.
    pub location: Location,
    /// Bytes it may hold; a hint for a cartridge, which tells it when it is first in a drive: absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Bytes written on it.
    pub used_bytes: u64,
    /// Bytes on it that nobody needs any more.
    pub dead_bytes: u64,
    /// Segments on it.
    pub segments: u64,
    /// Containers on a cartridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<u32>,
}

/// How far the drain of a volume is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drain {
    /// Which.
    pub volume: VolumeLabel,
    /// Whether what is on it is being moved, or waits for its turn.
    pub moving: bool,
    /// Bytes that were on it when the drain began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Bytes that are on it.
    pub left_bytes: u64,
    /// Segments that are on it.
    pub left_segments: u64,
    /// Bitfiles that could not be moved at the last attempt, and are tried again.
    pub failing: u64,
    /// Why one of those could not, or why nothing moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far the rebuild of a volume is, or how the last one ended since its gateway started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rebuild {
    /// Which.
    pub volume: VolumeLabel,
    /// Whether it is being read, or waits for its turn.
    pub working: bool,
    /// The container that was read last.
    pub container: u32,
    /// How many containers are on it; 0 as long as that is not known.
    pub containers: u32,
    /// Members that were read: bitfiles, or parts of them.
    pub members: u64,
    /// Files that are back under their names.
    pub files: u64,
    /// Files that are below `/lost+found`.
    pub lost: u64,
    /// Bitfiles that were known and have one copy more now.
    pub joined: u64,
    /// Members that the catalogue had already.
    pub known: u64,
    /// Parts of bitfiles that wait for other cartridges to be rebuilt.
    pub waiting_parts: u64,
    /// Bytes taken over.
    pub bytes: u64,
    /// Members that were not taken over, and containers that could not be read.
    pub refused: u64,
    /// The first of these, in a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Why it waits, or was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Rebuild {
    /// One that has not begun.
    #[must_use]
    pub const fn new(volume: VolumeLabel) -> Self {
        Self {
            volume,
            working: false,
            container: 0,
            containers: 0,
            members: 0,
            files: 0,
            lost: 0,
            joined: 0,
            known: 0,
            waiting_parts: 0,
            bytes: 0,
            refused: 0,
            problems: Vec::new(),
            reason: None,
        }
    }
}

/// State of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Never written: labelled at its first use.
    Blank,
    /// Read and written.
    Enabled,
    /// Read only, because it is full.
    Full,
    /// Read only, because somebody said so or a write failed.
    ReadOnly,
    /// Read, and given nothing new, because an operator said so. What is on it stays there, unless it is being moved.
    Draining,
    /// Not used at all.
    Disabled,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// Where a volume is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum Location {
    /// A disk volume of this mover.
    Mover {
        /// Which.
        mover: MoverId,
    },
    /// In a slot of a library.
    Slot {
        /// Which library.
        library: LibraryId,
        /// Element address of the slot.
        element: u16,
    },
    /// In a drive.
    Drive {
        /// Which.
        drive: DriveId,
    },
    /// In no library this site sees.
    Outside,
    /// Nobody knows at the moment: the library is being looked through, or its mover is away.
    Unknown,
}

/// A class of service.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassOfService {
    /// Its name.
    pub cos: CosName,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Storage classes, top first.
    pub hierarchy: Vec<StorageClassName>,
    /// How many tape copies a file gets.
    pub copies: u8,
    /// Sums kept of every file.
    pub checksums: Vec<crate::checksum::Algorithm>,
    /// Over how many movers a file is striped.
    pub stripe_width: u16,
    /// Whether a read of a file that is only on tape waits for the recall, or is refused until it is staged.
    pub waits_for_tape: bool,
    /// How long deleted files can come back, in seconds.
    pub undelete_s: u64,
    /// How long a staged copy stays on disk, in seconds.
    pub staged_s: u64,
    /// Files in it, and their bytes, where that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// A transfer that moves.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// Its identifier.
    pub transfer: TransferId,
    /// What it does.
    pub what: TransferKind,
    /// Whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
    /// The file, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its bitfile, where there is one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bitfile: Option<BitfileId>,
    /// The movers that move it.
    pub movers: Vec<MoverId>,
    /// The client, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes to move, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Bytes a second over the last seconds.
    pub rate: u64,
    /// When it began.
    pub started_us: i64,
}

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    /// A client reads.
    Retrieve,
    /// A client writes.
    Store,
    /// Disk to tape.
    Migrate,
    /// From one volume to another.
    Repack,
    /// Tape to disk.
    Stage,
    /// Medium to nowhere, to check the sums.
    Verify,
    /// One of a newer version.
    #[serde(other)]
    Unknown,
}
