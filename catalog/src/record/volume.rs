//! Volumes: what is known of every disk volume and cartridge.

use serde::{Deserialize, Serialize};
use wire::id::{LibraryId, MoverId, VolumeLabel};

use crate::time::Timestamp;

/// What may be done with a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// A cartridge that holds nothing yet.
    Empty,
    /// Open for writing: a disk volume in use, or a cartridge with room.
    Filling,
    /// A cartridge without room.
    Full,
    /// Nothing more is written to it, by an operator's wish or after an error.
    ReadOnly,
    /// Neither read nor written.
    Disabled,
}

impl VolumeState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Empty, Self::Filling, Self::Full, Self::ReadOnly, Self::Disabled];

    /// The word for it, as stored and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Filling => "filling",
            Self::Full => "full",
            Self::ReadOnly => "readonly",
            Self::Disabled => "disabled",
        }
    }

    /// The state of a word.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether data may be read from it.
    #[must_use]
    pub const fn readable(self) -> bool {
        !matches!(self, Self::Disabled)
    }

    /// Whether data may be written to it.
    #[must_use]
    pub const fn writable(self) -> bool {
        matches!(self, Self::Empty | Self::Filling)
    }
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Its label; a cartridge's barcode.
    pub label: VolumeLabel,
    /// The storage class's pool it belongs to.
    pub pool: String,
    /// What may be done with it.
    pub state: VolumeState,
    /// Why it is in that state, for people.
    pub reason: Option<String>,
    /// How many bytes it can hold.
    pub capacity_bytes: u64,
    /// Bytes of segments that live bitfiles have on it.
    pub live_bytes: u64,
    /// How many such segments there are.
    pub live_segments: u64,
    /// How many errors were reported of it.
    pub errors: u64,
    /// When it became known.
    pub created: Timestamp,
    /// When it was written to or its state changed last.
    pub changed: Timestamp,
    /// What only one kind of volume has.
    pub medium: Medium,
}

/// What only one kind of volume has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Medium {
    /// A disk volume.
    Disk {
        /// The mover that owns it.
        mover: MoverId,
        /// How many bytes are in use by its mover's last report.
        used_bytes: u64,
    },
    /// A cartridge.
    Tape {
        /// The library it lies in.
        library: LibraryId,
        /// Where the next container goes.
        position: TapePosition,
        /// How often it has been labelled: data written under an older label is gone.
        label_epoch: u64,
        /// How many bytes have been written to it since it was labelled, live or not.
        written_bytes: u64,
        /// How often it has been mounted.
        mounts: u64,
    },
}

/// The end of data of a cartridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TapePosition {
    /// The sequence number the next container gets, from 1.
    pub next_container: u32,
    /// The logical block address at which it begins.
    pub next_block: u64,
}

impl Volume {
    /// Where the next container goes; `None` for a disk volume.
    #[must_use]
    pub const fn position(&self) -> Option<TapePosition> {
        match &self.medium {
            Medium::Tape { position, .. } => Some(*position),
            Medium::Disk { .. } => None,
        }
    }
}

/// A volume to be made known; what the catalogue keeps of a known one (position, state, counts) stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewVolume {
    /// Its label.
    pub label: VolumeLabel,
    /// The pool it belongs to.
    pub pool: String,
    /// How many bytes it can hold.
    pub capacity_bytes: u64,
    /// Where it is.
    pub home: Home,
}

/// Where a volume is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Home {
    /// A disk volume of this mover; it begins in [`VolumeState::Filling`].
    Mover(MoverId),
    /// A cartridge of this library; it begins in [`VolumeState::Empty`].
    Library(LibraryId),
}

/// What is wanted of a cartridge to append to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppendWish {
    /// From which pool.
    pub pool: String,
    /// How many bytes should still fit, by its nominal capacity.
    pub room_bytes: u64,
    /// Not these: they are mounted elsewhere, or hold another copy of a bitfile in the batch.
    pub avoid: Vec<VolumeLabel>,
}
