//! Why a drive could not do what it was asked, and what the caller does about it.

use wire::checksum::Algorithm;
use wire::id::{BitfileId, Epoch, VolumeLabel};

use super::device::CommandError;
use super::member::{AppendPoint, SinkError, SourceError};
use crate::scsi::{DeviceKind, Remedy};

/// Why a tape drive could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// A command failed.
    #[error(transparent)]
    Device(#[from] CommandError),
    /// The drive did not become ready in time.
    #[error("the drive is still not ready after {waited_seconds} s")]
    NotReady {
        /// How long we waited.
        waited_seconds: u64,
    },
    /// No volume is attached: the caller has to attach one first.
    #[error("no volume is attached to the drive")]
    NotAttached,
    /// The tape holds nothing, not even labels.
    #[error("the tape in the drive is blank, {expected} was expected")]
    Blank {
        /// What should be there.
        expected: VolumeLabel,
    },
    /// Another volume, or nothing of ours, is on the tape.
    #[error("{expected} was expected in the drive, but the tape says it is {found:?}")]
    WrongVolume {
        /// What should be there.
        expected: VolumeLabel,
        /// What is.
        found: String,
    },
    /// The tape holds labels or data and may not be relabelled.
    #[error("{volume} holds {found} and is not labelled anew without leave")]
    NotBlank {
        /// Which volume was to be labelled.
        volume: VolumeLabel,
        /// What is there.
        found: String,
    },
    /// A cleaning cartridge is in the drive.
    #[error("a cleaning cartridge is in the drive, {expected} was expected")]
    CleaningCartridge {
        /// What should be there.
        expected: VolumeLabel,
    },
    /// Another mover holds the drive, or took it.
    #[error("the drive is reserved by another mover; our epoch is {ours}{}", holder.map(|holder| format!(", its is {holder}")).unwrap_or_default())]
    Fenced {
        /// Our epoch.
        ours: Epoch,
        /// The holder's, if it is known.
        holder: Option<u64>,
    },
    /// Somebody who is no mover of ours holds the drive.
    #[error("the drive is reserved with the foreign key {key:016x}")]
    ForeignReservation {
        /// The holder's key.
        key: u64,
    },
    /// The volume cannot be written.
    #[error("{volume} is write protected")]
    WriteProtected {
        /// Which volume.
        volume: VolumeLabel,
    },
    /// The tape does not end where the catalogue says.
    #[error("{volume} ends with container {} at block {}, container {expected} cannot follow", found.last_sequence, found.next_block)]
    StaleAppendPoint {
        /// Which volume.
        volume: VolumeLabel,
        /// The container that was to be written.
        expected: u32,
        /// Where the tape really ends.
        found: AppendPoint,
    },
    /// No room is left; earlier containers are safe, this one is not on the tape.
    #[error("{volume} is full")]
    EndOfMedium {
        /// Which volume.
        volume: VolumeLabel,
    },
    /// The data was written, but the drive does not confirm it: nothing since the last commit counts.
    #[error("{volume} is at block {found:?} instead of {expected} after the flush: nothing of the container counts")]
    NotCommitted {
        /// Which volume.
        volume: VolumeLabel,
        /// Where the drive should be.
        expected: u64,
        /// Where it says it is, if it knows.
        found: Option<u64>,
    },
    /// The drive does not know where its head is.
    #[error("the drive lost its position on {volume}")]
    PositionLost {
        /// Which volume.
        volume: VolumeLabel,
    },
    /// There was not one member to write; the tape is as it was.
    #[error("a container without members is not written")]
    NothingToWrite,
    /// What lies there is not in our format.
    #[error("block {block} of {volume} is not what it should be: {reason}")]
    Format {
        /// Which volume.
        volume: VolumeLabel,
        /// Which block.
        block: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Another bitfile's data lies where this one's should.
    #[error("block {block} of {volume} holds bitfile {found}, {expected} was expected")]
    WrongMember {
        /// Which volume.
        volume: VolumeLabel,
        /// Which block.
        block: u64,
        /// What was expected.
        expected: BitfileId,
        /// What is there.
        found: BitfileId,
    },
    /// The data does not have the sum it should.
    #[error("bitfile {bitfile} has another {algorithm} than expected")]
    Checksum {
        /// Whose data.
        bitfile: BitfileId,
        /// Which sum.
        algorithm: Algorithm,
    },
    /// The drive cannot hold what the format needs.
    #[error("the drive takes blocks of at most {longest} bytes")]
    BlockLimit {
        /// Its longest block.
        longest: u32,
    },
    /// The drive's protection information does not match a block that was read: path or drive are suspect.
    #[error("block {block} of {volume} came with a wrong protection code")]
    BlockProtection {
        /// Which volume.
        volume: VolumeLabel,
        /// Which block.
        block: u64,
    },
    /// A member cannot be written as it is described.
    #[error("bitfile {bitfile} cannot be written: {reason}")]
    BadMember {
        /// Whose.
        bitfile: BitfileId,
        /// What is wrong.
        reason: &'static str,
    },
    /// The source failed; the container was abandoned.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The sink failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

impl DriveError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Device(error) => error.remedy(DeviceKind::Drive),
            Self::NotReady { .. } | Self::BlockProtection { .. } => Remedy::QuarantineDrive,
            Self::NotAttached | Self::NotCommitted { .. } | Self::PositionLost { .. } => Remedy::Reattach,
            Self::Blank { .. } | Self::WrongVolume { .. } | Self::NotBlank { .. } => Remedy::QuarantineVolume,
            Self::StaleAppendPoint { .. } | Self::WriteProtected { .. } | Self::EndOfMedium { .. } => {
                Remedy::CloseVolume
            }
            Self::CleaningCartridge { .. } => Remedy::Clean,
            Self::Fenced { .. } => Remedy::FenceLost,
            Self::ForeignReservation { .. } | Self::BlockLimit { .. } => Remedy::Operator,
            Self::Format { .. }
            | Self::WrongMember { .. }
            | Self::Checksum { .. }
            | Self::BadMember { .. }
            | Self::NothingToWrite
            | Self::Source(_)
            | Self::Sink(_) => Remedy::AbandonObject,
        }
    }

    /// Whether the command stream itself failed, so that nothing is known about the head any more.
    pub(super) const fn loses_position(&self) -> bool {
        matches!(
            self,
            Self::Device(_) | Self::NotCommitted { .. } | Self::PositionLost { .. } | Self::BlockProtection { .. }
        )
    }
}
