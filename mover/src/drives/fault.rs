//! What a gateway is told of a drive's or a robot's error.

use wire::{
    id::DriveId,
    mover::{Fault, FaultKind},
};

use crate::{
    scsi::Remedy,
    tape::{DriveError, SinkError},
};

/// The fault behind an error of a drive.
pub(super) fn of_drive(drive: &DriveId, error: DriveError) -> Fault {
    // What this mover itself put below comes back as it was.
    let error = match error {
        DriveError::Source(source) => match source.0.downcast::<Fault>() {
            Ok(fault) => return *fault,
            Err(other) => return Fault::new(FaultKind::Medium, format!("drive {drive}: {other}")),
        },
        DriveError::Sink(SinkError::Skip(inner) | SinkError::Stop(inner)) => match inner.downcast::<Fault>() {
            Ok(fault) => return *fault,
            Err(other) => return Fault::new(FaultKind::Medium, format!("drive {drive}: {other}")),
        },
        other => other,
    };
    let kind = match &error {
        DriveError::NotAttached => FaultKind::BadRequest,
        DriveError::Blank { .. }
        | DriveError::WrongVolume { .. }
        | DriveError::NotBlank { .. }
        | DriveError::CleaningCartridge { .. }
        | DriveError::StaleAppendPoint { .. } => FaultKind::WrongVolume,
        DriveError::Fenced { .. } | DriveError::ForeignReservation { .. } => FaultKind::Fenced,
        DriveError::WriteProtected { .. } => FaultKind::ReadOnly,
        DriveError::EndOfMedium { .. } => FaultKind::EndOfMedium,
        DriveError::Checksum { .. } | DriveError::WrongMember { .. } | DriveError::Format { .. } => FaultKind::Corrupt,
        DriveError::BadMember { .. } => FaultKind::BadRequest,
        other => match other.remedy() {
            Remedy::FenceLost => FaultKind::Fenced,
            Remedy::QuarantineVolume | Remedy::CloseVolume => FaultKind::VolumeSuspect,
            Remedy::AbandonObject | Remedy::EndOfData | Remedy::RepositionAndRetry => FaultKind::Medium,
            _ => FaultKind::Drive,
        },
    };
    Fault::new(kind, format!("drive {drive}: {}", chain(&error)))
}

/// An error and its sources in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
