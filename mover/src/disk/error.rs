//! Why a disk volume could not do what it was asked.

use std::{io, path::PathBuf};

use wire::{
    id::{FileId, VolumeLabel},
    mover::{Fault, FaultKind},
};

/// Why a disk volume could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// No room is left, or less than was asked for.
    #[error("volume {volume} has {free_bytes} bytes left, {wanted_bytes} are needed; free some or use another volume")]
    NoSpace { volume: VolumeLabel, wanted_bytes: u64, free_bytes: u64 },
    /// The volume takes no writes.
    #[error("volume {volume} is read-only: {reason}")]
    ReadOnly { volume: VolumeLabel, reason: String },
    /// The volume cannot be used at all.
    #[error("volume {volume} is down: {reason}")]
    Down { volume: VolumeLabel, reason: String },
    /// The file is not there.
    #[error("file {file} is not on volume {volume}")]
    NotFound { volume: VolumeLabel, file: FileId },
    /// A new file would take the place of another one.
    #[error("file {file} is on volume {volume} already")]
    Exists { volume: VolumeLabel, file: FileId },
    /// The file is being written by another transfer.
    #[error("file {file} of volume {volume} is being written by another transfer; cancel that first")]
    InUse { volume: VolumeLabel, file: FileId },
    /// The medium or the system failed.
    #[error("{action} file {file} of volume {volume}: {source}")]
    Io { action: &'static str, volume: VolumeLabel, file: FileId, source: io::Error },
    /// A folder of the volume cannot be used.
    #[error("{action} {} of volume {volume}: {source}", path.display())]
    Folder { action: &'static str, volume: VolumeLabel, path: PathBuf, source: io::Error },
}

impl From<DiskError> for Fault {
    fn from(error: DiskError) -> Self {
        error.fault()
    }
}

impl DiskError {
    /// What a gateway is told.
    pub(crate) fn fault(&self) -> Fault {
        let kind = match self {
            DiskError::NoSpace { .. } => FaultKind::NoSpace,
            DiskError::ReadOnly { .. } => FaultKind::ReadOnly,
            DiskError::NotFound { .. } => FaultKind::NotFound,
            DiskError::Exists { .. } => FaultKind::BadRequest,
            DiskError::InUse { .. } => FaultKind::Busy,
            DiskError::Down { .. } | DiskError::Io { .. } | DiskError::Folder { .. } => FaultKind::Medium,
        };
        Fault::new(kind, self)
    }
}
