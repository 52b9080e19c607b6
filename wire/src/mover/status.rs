//! What a mover says of itself.

use serde::{Deserialize, Serialize};

use super::HttpDoor;
use crate::id::{DriveId, LibraryId, TransferId, VolumeLabel};

/// A mover's state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MoverStatus {
    /// Its disk volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Its tape drives.
    pub drives: Vec<DriveStatus>,
    /// Libraries whose robot it controls.
    pub libraries: Vec<LibraryId>,
    /// Transfers under way.
    pub transfers: Vec<TransferId>,
    /// Bytes received from the network since the process started.
    pub received_bytes: u64,
    /// Bytes sent to the network since the process started.
    pub sent_bytes: u64,
    /// Bytes that came from a channel and went to a channel: relayed.
    pub relayed_bytes: u64,
    /// The mover is shutting down: it finishes what moves and takes nothing new.
    pub draining: bool,
    /// Where HTTP clients are served, if anywhere.
    pub http: Option<Box<HttpDoor>>,
}

/// A disk volume's state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its label.
    pub volume: VolumeLabel,
    /// How much it may hold, in bytes.
    pub capacity_bytes: u64,
    /// What its files take, in bytes.
    pub used_bytes: u64,
    /// What is promised to transfers under way and not yet written, in bytes.
    pub reserved_bytes: u64,
    /// Whether it can be used.
    pub health: VolumeHealth,
}

impl VolumeStatus {
    /// What is neither used nor promised, in bytes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes).saturating_sub(self.reserved_bytes)
    }
}

/// Whether a disk volume can be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum VolumeHealth {
    /// It can be read and written.
    Up,
    /// It can be read: a write failed, or the operator said so.
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// It cannot be used.
    Down {
        /// Why.
        reason: String,
    },
}

/// A tape drive's state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Its name.
    pub drive: DriveId,
    /// The library it sits in.
    pub library: LibraryId,
    /// Its serial number.
    pub serial: String,
    /// What is attached.
    pub volume: Option<VolumeLabel>,
    /// What it is doing, in a word or two: `idle`, `reading`, `writing`, `positioning`, `loading`, `unloading`.
    pub activity: String,
    /// Whether it can be used.
    pub health: DriveHealth,
    /// Bytes written to tape since the process started.
    pub written_bytes: u64,
    /// Bytes read from tape since the process started.
    pub read_bytes: u64,
    /// Volumes attached since the process started.
    pub mounts: u64,
}

/// Whether a tape drive can be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DriveHealth {
    /// It works.
    Up,
    /// It does not, until somebody looks at it.
    Down {
        /// Why.
        reason: String,
    },
    /// It wants a cleaning cartridge, or is being cleaned.
    Cleaning {
        /// Why.
        reason: String,
    },
}
