//! The SCSI seam: what every tape drive and media changer understands, real or virtual.
//!
//! Above this line the mover does not know whether it talks to `/dev/sgN`, to an iSCSI target or to the virtual tape
//! library: it sends a [`Cdb`] with at most one data phase and gets a [`Completion`]. Below it, a transport never
//! interprets what it carries. Both sides share the same encoders and bounded decoders:
//!
//! - [`Cdb`]: the commands; [`Sense`] and [`Status`]: the answers.
//! - [`remedy`]: the one classifier that turns an answer into what to do next.
//! - [`inquiry`], [`mode`], [`log`], [`mam`], [`element`], [`stream`], [`reservation`]: the parameter data.
//!
//! Blocking on purpose: a drive has a thread of its own, and a command holds the drive until it ends.
//!
//! # Sources
//!
//! SPC-5 (primary commands), SSC-5 (sequential access), SMC-3 (media changers), SAM-6 (status codes).

mod cdb;
mod cdb_decode;
pub mod element;
mod fields;
pub mod inquiry;
pub mod log;
pub mod mam;
pub mod mode;
pub mod remedy;
pub mod reservation;
mod sense;
pub mod stream;

use std::io;

pub use cdb::{
    Cdb, CdbBytes, ElementKind, I24, LocateTarget, LogControl, PageControl, PositionForm, ReserveIn, ReserveOut,
    ReserveType, SpaceUnit, U24,
};
pub use cdb_decode::CdbError;
pub use fields::Malformed;
pub use remedy::{DeviceKind, Remedy, Verdict};
pub use sense::{Sense, SenseKey};

/// A way to one logical unit: one I_T_L nexus.
///
/// `&mut self` says that a nexus has one owner and one command at a time. A transport never repeats a command by
/// itself: a repeated WRITE would be a second block on the tape.
pub trait ScsiTransport: Send {
    /// Sends one command, moves its data, and waits for its end.
    ///
    /// The transport gives up after [`Cdb::timeout`] at the earliest.
    ///
    /// # Errors
    ///
    /// [`ScsiError`] if no status came back: the command may or may not have been performed.
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Result<Completion, ScsiError>;
}

impl<T: ScsiTransport + ?Sized> ScsiTransport for Box<T> {
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Result<Completion, ScsiError> {
        (**self).execute(cdb, data)
    }
}

/// The data that goes with a command.
#[derive(Debug)]
pub enum DataPhase<'a> {
    /// None.
    None,
    /// From the device, into this buffer; [`Completion::residual_bytes`] says how much of it was not filled.
    In(&'a mut [u8]),
    /// To the device.
    Out(&'a [u8]),
}

impl DataPhase<'_> {
    /// How many bytes the initiator is ready to move.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::In(buffer) => buffer.len(),
            Self::Out(data) => data.len(),
        }
    }
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The status byte.
    pub status: Status,
    /// Sense data, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Bytes of the data phase that were not moved. Some transports always say 0 (QEMU's `scsi-generic`), so whoever
    /// reads blocks trusts [`Sense::information`] first.
    pub residual_bytes: usize,
}

impl Completion {
    /// A command that did all it was asked.
    pub const GOOD: Self = Self { status: Status::Good, sense: None, residual_bytes: 0 };

    /// A command that ended with this sense.
    #[must_use]
    pub const fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), residual_bytes: 0 }
    }
}

/// A status code (SAM-6, table 39).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// 00h.
    Good,
    /// 02h: the sense says what happened.
    CheckCondition,
    /// 04h.
    ConditionMet,
    /// 08h: busy with another command.
    Busy,
    /// 18h: another initiator holds the device.
    ReservationConflict,
    /// 28h: the queue is full.
    TaskSetFull,
    /// 30h.
    AcaActive,
    /// 40h: another initiator aborted the command.
    TaskAborted,
    /// A code without a meaning to us.
    Other(u8),
}

impl Status {
    /// The status of its byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            0x00 => Self::Good,
            0x02 => Self::CheckCondition,
            0x04 => Self::ConditionMet,
            0x08 => Self::Busy,
            0x18 => Self::ReservationConflict,
            0x28 => Self::TaskSetFull,
            0x30 => Self::AcaActive,
            0x40 => Self::TaskAborted,
            other => Self::Other(other),
        }
    }

    /// The byte of a status.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Good => 0x00,
            Self::CheckCondition => 0x02,
            Self::ConditionMet => 0x04,
            Self::Busy => 0x08,
            Self::ReservationConflict => 0x18,
            Self::TaskSetFull => 0x28,
            Self::AcaActive => 0x30,
            Self::TaskAborted => 0x40,
            Self::Other(byte) => byte,
        }
    }
}

/// Why no status came back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScsiError {
    /// The command took longer than it may. It may still be running: a MOVE MEDIUM is never repeated before a new
    /// inventory, a WRITE never before READ POSITION.
    #[error("no answer in time")]
    Timeout,
    /// The path to the device is gone.
    #[error("the path to the device is lost")]
    Lost(#[source] io::Error),
    /// The initiator asked for something the transport cannot carry.
    #[error("the transport cannot carry this command: {0}")]
    Unsupported(&'static str),
}

impl ScsiError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self, kind: DeviceKind) -> Remedy {
        match (self, kind) {
            (Self::Timeout | Self::Lost(_), DeviceKind::Changer) => Remedy::Reinventory,
            (Self::Timeout | Self::Lost(_), DeviceKind::Drive) => Remedy::QuarantineDrive,
            (Self::Unsupported(_), _) => Remedy::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_byte_is_kept() {
        for byte in 0..=255 {
            assert_eq!(Status::from_byte(byte).byte(), byte);
        }
    }
}
