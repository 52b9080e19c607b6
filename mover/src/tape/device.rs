//! Typed commands over a transport: one call, one command, its answer decoded or its error classified.
//!
//! Owns the transport. Never decides what comes next, except for commands that change nothing, which are tried again
//! as the classifier says.

use std::{thread, time::Duration};

use tracing::warn;

use crate::scsi::inquiry::{self, Inquiry};
use crate::scsi::log::{LogPage, TAPE_ALERT_PAGE, TapeAlerts};
use crate::scsi::stream::{BlockLimits, Position};
use crate::scsi::{
    Cdb, Completion, DataPhase, DeviceKind, LogControl, Malformed, PositionForm, Remedy, ScsiError, ScsiTransport,
    Sense, SenseKey, Status, Verdict, remedy,
};

/// How often a command that changes nothing is tried again.
const RETRIES: u32 = 3;
/// How long is waited between tries when a device is busy.
const PAUSE: Duration = Duration::from_millis(500);
/// How many tries a busy device gets: two minutes.
const BUSY_TRIES: u32 = 240;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The device answered with an error, and the classifier said what it means.
    #[error("{command} failed: {}{}", verdict.meaning, sense.map(|sense| format!(" ({sense})")).unwrap_or_default())]
    Refused {
        /// Which command.
        command: &'static str,
        /// What it means.
        verdict: Verdict,
        /// The status byte.
        status: Status,
        /// The sense, if one came.
        sense: Option<Sense>,
    },
    /// The command never reached the device, or its answer never came back.
    #[error("{command} was not answered")]
    Transport {
        /// Which command.
        command: &'static str,
        /// What the transport says.
        source: ScsiError,
    },
    /// The device's answer makes no sense.
    #[error("the answer to {command} cannot be understood")]
    Malformed {
        /// Which command.
        command: &'static str,
        /// What is wrong with it.
        source: Malformed,
    },
}

impl CommandError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self, kind: DeviceKind) -> Remedy {
        match (self, kind) {
            (Self::Refused { verdict, .. }, _) => verdict.remedy,
            (Self::Transport { source, .. }, kind) => source.remedy(kind),
            (Self::Malformed { .. }, DeviceKind::Drive) => Remedy::QuarantineDrive,
            (Self::Malformed { .. }, DeviceKind::Changer) => Remedy::Operator,
        }
    }

    /// The sense, if one came.
    #[must_use]
    pub const fn sense(&self) -> Option<&Sense> {
        match self {
            Self::Refused { sense: Some(sense), .. } => Some(sense),
            _ => None,
        }
    }
}

/// A device and its way of saying things.
pub(super) struct Device {
    transport: Box<dyn ScsiTransport>,
    kind: DeviceKind,
    /// The drive asked to be cleaned since this was last looked at.
    pub(super) wants_cleaning: bool,
    /// A unit attention said that our reservation was taken away.
    pub(super) lost_fence: bool,
}

impl Device {
    pub(super) fn new(transport: Box<dyn ScsiTransport>, kind: DeviceKind) -> Self {
        Self { transport, kind, wants_cleaning: false, lost_fence: false }
    }

    /// Sends one command once. A completion that only says where the command stopped, or that the drive wants to be
    /// cleaned, is no error.
    pub(super) fn once(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Result<Completion, CommandError> {
        let command = cdb.name();
        let completion =
            self.transport.execute(cdb, data).map_err(|source| CommandError::Transport { command, source })?;
        let Some(verdict) = remedy::classify(self.kind, &completion) else { return Ok(completion) };
        let harmless = completion
            .sense
            .is_some_and(|sense| matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError) && !sense.deferred);
        match verdict.remedy {
            Remedy::Proceed if harmless => Ok(completion),
            Remedy::Clean if harmless => {
                self.wants_cleaning = true;
                Ok(completion)
            }
            _ => Err(CommandError::Refused { command, verdict, status: completion.status, sense: completion.sense }),
        }
    }

    /// Sends a command that changes nothing, or that may be done twice; again if the classifier says that helps.
    pub(super) fn again(&mut self, cdb: &Cdb, mut data: DataPhase<'_>) -> Result<Completion, CommandError> {
        let mut tries = 0;
        loop {
            let phase = match &mut data {
                DataPhase::None => DataPhase::None,
                DataPhase::In(buffer) => DataPhase::In(buffer),
                DataPhase::Out(bytes) => DataPhase::Out(bytes),
            };
            let error = match self.once(cdb, phase) {
                Err(error) => error,
                done => return done,
            };
            tries += 1;
            match error.remedy(self.kind) {
                Remedy::Retry if tries < RETRIES => warn!(%error, "command repeated"),
                Remedy::Wait if tries < BUSY_TRIES => thread::sleep(PAUSE),
                _ => return Err(error),
            }
        }
    }

    /// Sends a command without data.
    pub(super) fn command(&mut self, cdb: &Cdb) -> Result<Completion, CommandError> {
        self.again(cdb, DataPhase::None)
    }

    /// Sends a command that answers with at most `room` bytes.
    pub(super) fn fetch(&mut self, cdb: &Cdb, room: usize) -> Result<Vec<u8>, CommandError> {
        let mut bytes = vec![0; room];
        let completion = self.again(cdb, DataPhase::In(&mut bytes))?;
        bytes.truncate(room.saturating_sub(completion.residual_bytes));
        Ok(bytes)
    }

    /// Sends a command with a parameter list.
    pub(super) fn send(&mut self, cdb: &Cdb, list: &[u8]) -> Result<(), CommandError> {
        self.again(cdb, DataPhase::Out(list)).map(|_| ())
    }

    /// Takes the unit attentions that wait for us, so that later ones mean something. Returns the last one's codes.
    pub(super) fn take_attentions(&mut self) -> Result<Option<(u8, u8)>, CommandError> {
        let mut last = None;
        // Bounded: a device that has more to say than this is broken, and the next command will tell.
        for _ in 0..16 {
            let completion = match self.transport.execute(&Cdb::TestUnitReady, DataPhase::None) {
                Ok(completion) => completion,
                Err(source) => {
                    return Err(CommandError::Transport { command: Cdb::TestUnitReady.name(), source });
                }
            };
            match completion.sense {
                Some(sense) if sense.key == SenseKey::UnitAttention => {
                    self.lost_fence |= remedy::classify_sense(self.kind, &sense).remedy == Remedy::FenceLost;
                    last = Some((sense.asc, sense.ascq));
                }
                _ => break,
            }
        }
        Ok(last)
    }

    pub(super) fn inquiry(&mut self) -> Result<Inquiry, CommandError> {
        let cdb = Cdb::Inquiry { page: None, allocation: Inquiry::BYTES };
        let bytes = self.fetch(&cdb, usize::from(Inquiry::BYTES))?;
        Inquiry::decode(&bytes).map_err(|source| malformed(&cdb, source))
    }

    pub(super) fn serial(&mut self) -> Result<String, CommandError> {
        let cdb = Cdb::Inquiry { page: Some(inquiry::SERIAL_PAGE), allocation: 252 };
        let bytes = self.fetch(&cdb, 252)?;
        inquiry::decode_serial(&bytes).map_err(|source| malformed(&cdb, source))
    }

    pub(super) fn position(&mut self) -> Result<Position, CommandError> {
        let form = PositionForm::Extended;
        let cdb = Cdb::ReadPosition { form, allocation: Position::bytes(form) };
        let bytes = self.fetch(&cdb, usize::from(Position::bytes(form)))?;
        Position::decode(form, &bytes).map_err(|source| malformed(&cdb, source))
    }

    pub(super) fn block_limits(&mut self) -> Result<BlockLimits, CommandError> {
        let bytes = self.fetch(&Cdb::ReadBlockLimits, BlockLimits::BYTES)?;
        BlockLimits::decode(&bytes).map_err(|source| malformed(&Cdb::ReadBlockLimits, source))
    }

    /// A log page; `None` if the device has none of that number.
    pub(super) fn log_page(&mut self, page: u8) -> Result<Option<LogPage>, CommandError> {
        let control = LogControl::Cumulative;
        let cdb = Cdb::LogSense { control, page, subpage: 0, parameter: 0, allocation: 4096 };
        match self.fetch(&cdb, 4096) {
            Ok(bytes) => LogPage::decode(&bytes).map(Some).map_err(|source| malformed(&cdb, source)),
            Err(error) => unsupported(error).map(|()| None),
        }
    }

    /// TapeAlert flags; reading clears them.
    pub(super) fn alerts(&mut self) -> Result<TapeAlerts, CommandError> {
        Ok(self.log_page(TAPE_ALERT_PAGE)?.map(|page| TapeAlerts::of(&page)).unwrap_or_default())
    }
}

/// An answer that cannot be decoded.
pub(super) fn malformed(cdb: &Cdb, source: Malformed) -> CommandError {
    CommandError::Malformed { command: cdb.name(), source }
}

/// Forgives a command for not being supported: 5/20, 5/24, 5/26.
pub(super) fn unsupported(error: CommandError) -> Result<(), CommandError> {
    match error.sense() {
        Some(Sense { key: SenseKey::IllegalRequest, asc: 0x20 | 0x24 | 0x26, .. }) => Ok(()),
        _ => Err(error),
    }
}
