//! Why something is not done yet, as a sentence.

use std::fmt;

use wire::id::{StorageClassName, VolumeLabel};

use crate::mounts::Why;

/// Why a request of the queue waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waits {
    /// For its cartridge's mount.
    Mount {
        /// Which cartridge.
        volume: VolumeLabel,
        /// What the mount service says.
        why: Why,
    },
    /// Other cartridges are mounted first.
    Behind {
        /// Its own cartridge.
        volume: VolumeLabel,
        /// How many are before it.
        cartridges: usize,
    },
    /// Its cartridge is mounted and being read.
    Reading {
        /// Which.
        volume: VolumeLabel,
    },
    /// There is no room where it should go.
    Space {
        /// The storage class.
        class: StorageClassName,
        /// How much it needs, in bytes.
        bytes: u64,
    },
    /// It failed and is tried again.
    Retry {
        /// What went wrong.
        reason: String,
    },
    /// More must come together before a mount is worth it, or some time pass.
    Batch,
    /// The gateway that serves the tape library will take it up.
    Elsewhere,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { volume, why } => write!(f, "waits for cartridge {volume}: {why}"),
            Self::Behind { volume, cartridges: 1 } => {
                write!(f, "waits for cartridge {volume}: 1 other cartridge is mounted first")
            }
            Self::Behind { volume, cartridges } => {
                write!(f, "waits for cartridge {volume}: {cartridges} other cartridges are mounted first")
            }
            Self::Reading { volume } => write!(f, "cartridge {volume} is mounted and being read"),
            Self::Space { class, bytes } => {
                write!(f, "no space on disk pool {class} for {bytes} bytes: purging makes room, or it must be enlarged")
            }
            Self::Retry { reason } => write!(f, "failed and is tried again: {reason}"),
            Self::Batch => f.write_str("waits until enough has come together for a mount, or its time is up"),
            Self::Elsewhere => f.write_str("waits for the gateway that serves the tape library"),
        }
    }
}
