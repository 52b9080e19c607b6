//! Moving the head and moving records: every command here keeps `position` true or forgets it.

use tracing::warn;
use wire::id::VolumeLabel;

use super::{Drive, PROTECTION_BYTES};
use crate::scsi::{Cdb, DataPhase, DeviceKind, I24, LocateTarget, Remedy, SenseKey, SpaceUnit, U24};
use crate::tape::device::CommandError;
use crate::tape::error::DriveError;
use crate::tape::format::RECORD_BYTES;

/// How often a block that cannot be read is tried in one mount.
const READ_TRIES: u32 = 3;
/// How often a record that the drive did not take is sent.
const WRITE_TRIES: u32 = 3;

/// What lay where a block was to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Block {
    /// A block of that many bytes; more than were asked for if it is longer.
    Data(usize),
    /// A filemark; the head is behind it.
    Filemark,
    /// The end of recorded data.
    EndOfData,
}

impl Drive {
    fn set_position(&mut self, position: Option<u64>) {
        if let Some(session) = &mut self.session {
            session.position = position;
        }
    }

    fn is_protected(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.protection)
    }

    pub(super) fn rewind(&mut self) -> Result<(), DriveError> {
        self.set_position(None);
        self.device.command(&Cdb::Rewind { immediate: false })?;
        self.set_position(Some(0));
        Ok(())
    }

    /// Where the drive says the head is.
    pub(super) fn read_position(&mut self) -> Result<u64, DriveError> {
        let next = self.device.position()?.next_object;
        self.set_position(next);
        let session = self.session()?;
        next.ok_or_else(|| DriveError::PositionLost { volume: session.volume.clone() })
    }

    /// Moves the head to a block, unless it is there.
    pub(super) fn locate(&mut self, block: u64) -> Result<(), DriveError> {
        if self.session()?.position == Some(block) {
            return Ok(());
        }
        self.set_position(None);
        self.activity.locates += 1;
        self.device.command(&Cdb::Locate16 { immediate: false, target: LocateTarget::Block(block) })?;
        self.set_position(Some(block));
        Ok(())
    }

    /// Moves the head to the end of data and says where that is.
    pub(super) fn locate_end(&mut self) -> Result<u64, DriveError> {
        self.set_position(None);
        self.activity.locates += 1;
        self.device.command(&Cdb::Locate16 { immediate: false, target: LocateTarget::EndOfData })?;
        self.read_position()
    }

    /// Moves the head back to the filemark before it, and says where that is; `None` if there is none.
    pub(super) fn filemark_before(&mut self) -> Result<Option<u64>, DriveError> {
        self.set_position(None);
        let count = I24::new(-1).expect("a small number");
        let completion = self.device.command(&Cdb::Space6 { unit: SpaceUnit::Filemarks, count })?;
        let met_beginning = completion.sense.is_some_and(|sense| (sense.asc, sense.ascq) == (0x00, 0x04));
        let position = self.read_position()?;
        Ok((!met_beginning && position > 0).then_some(position))
    }

    /// Reads one block of at most `length` bytes into the record, protection not counted.
    pub(super) fn read_block(&mut self, length: usize) -> Result<Block, DriveError> {
        let before = self.session.as_ref().and_then(|session| session.position);
        self.held = None;
        self.set_position(None);
        let extra = if self.is_protected() { PROTECTION_BYTES } else { 0 };
        let asked = length + extra;
        let cdb = Cdb::Read6 { fixed: false, suppress_wrong_length: false, length: length24(asked) };
        let completion = match self.device.once(&cdb, DataPhase::In(&mut self.record[..asked])) {
            Ok(completion) => completion,
            Err(error) if error.remedy(DeviceKind::Drive) == Remedy::EndOfData => {
                self.set_position(before);
                return Ok(Block::EndOfData);
            }
            Err(error) => return Err(error.into()),
        };
        self.set_position(before.map(|block| block + 1));
        let sense = completion.sense;
        if sense.is_some_and(|sense| sense.filemark) {
            return Ok(Block::Filemark);
        }
        // The information is believed before the residual, which some transports always report as zero.
        let there = match sense.filter(|sense| sense.wrong_length) {
            Some(sense) => {
                let missing = sense.information.unwrap_or(i64::try_from(completion.residual_bytes).unwrap_or(0));
                usize::try_from(i64::try_from(asked).unwrap_or(i64::MAX).saturating_sub(missing)).unwrap_or(0)
            }
            None => asked.saturating_sub(completion.residual_bytes),
        };
        self.activity.read_bytes += there.min(asked) as u64;
        Ok(Block::Data(there.saturating_sub(extra)))
    }

    /// Reads a block at an address, several times if need be, and checks its protection.
    pub(super) fn read_block_at(&mut self, block: u64) -> Result<Block, DriveError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let read = self.locate(block).and_then(|()| self.read_block(RECORD_BYTES)).and_then(|read| {
                self.check_protection(block, read)?;
                Ok(read)
            });
            let error = match read {
                Ok(read) => {
                    self.held = (read == Block::Data(RECORD_BYTES)).then_some(block);
                    return Ok(read);
                }
                Err(error) => error,
            };
            self.set_position(None);
            let again = match &error {
                DriveError::BlockProtection { .. } => true,
                error => matches!(error.remedy(), Remedy::RepositionAndRetry | Remedy::Retry),
            };
            if !again || tries >= READ_TRIES {
                return Err(error);
            }
            warn!(%error, block, tries, "block read again");
        }
    }

    fn check_protection(&self, block: u64, read: Block) -> Result<(), DriveError> {
        let Block::Data(length) = read else { return Ok(()) };
        let Some(session) = self.session.as_ref().filter(|session| session.protection) else { return Ok(()) };
        // A block that is longer than the record is refused by its length.
        let Some(body) = self.record.get(..length) else { return Ok(()) };
        let protection = self.record.get(length..length + PROTECTION_BYTES).unwrap_or_default();
        if protection != crc_fast::crc32_iscsi(body).to_le_bytes() {
            return Err(DriveError::BlockProtection { volume: session.volume.clone(), block });
        }
        Ok(())
    }

    /// Makes the record hold a block that must be a whole record of ours.
    pub(super) fn hold(&mut self, block: u64) -> Result<(), DriveError> {
        if self.held == Some(block) {
            return Ok(());
        }
        let reason = match self.read_block_at(block)? {
            Block::Data(RECORD_BYTES) => return Ok(()),
            Block::Data(_) => "the record has another length than ours have",
            Block::Filemark => "a filemark is where a record should be",
            Block::EndOfData => "the tape ends where a record should be",
        };
        Err(self.format_error(block, reason))
    }

    pub(super) fn format_error(&self, block: u64, reason: &'static str) -> DriveError {
        match &self.session {
            Some(session) => DriveError::Format { volume: session.volume.clone(), block, reason },
            None => DriveError::NotAttached,
        }
    }

    /// Writes the record. Returns whether the end of the tape is near.
    pub(super) fn write_record(&mut self) -> Result<bool, DriveError> {
        self.held = None;
        let mut length = RECORD_BYTES;
        if self.is_protected() {
            let protection = crc_fast::crc32_iscsi(&self.record[..RECORD_BYTES]).to_le_bytes();
            self.record[RECORD_BYTES..].copy_from_slice(&protection);
            length += PROTECTION_BYTES;
        }
        let session = self.session()?;
        let Some(block) = session.position else {
            return Err(DriveError::PositionLost { volume: session.volume.clone() });
        };
        let mut tries = 0;
        loop {
            self.set_position(None);
            let cdb = Cdb::Write6 { fixed: false, length: length24(length) };
            let error = match self.device.once(&cdb, DataPhase::Out(&self.record[..length])) {
                Ok(completion) => {
                    self.set_position(Some(block + 1));
                    self.activity.written_bytes += RECORD_BYTES as u64;
                    // Emulators and some drives give 0/00/00: the bit counts, not the code.
                    return Ok(completion.sense.is_some_and(|sense| sense.end_of_medium));
                }
                Err(error) => error,
            };
            tries += 1;
            let again = matches!(error.remedy(DeviceKind::Drive), Remedy::Retry | Remedy::Wait);
            if !again || tries >= WRITE_TRIES {
                return Err(self.write_error(error));
            }
            warn!(%error, block, tries, "record sent again");
            // Sent again only if the drive does not have it already.
            match self.read_position()? {
                at if at == block => {}
                at if at == block + 1 => return Ok(false),
                _ => return Err(self.write_error(error)),
            }
        }
    }

    fn write_error(&self, error: CommandError) -> DriveError {
        let overflow = error.sense().is_some_and(|sense| sense.key == SenseKey::VolumeOverflow && !sense.deferred);
        match &self.session {
            Some(session) if overflow => DriveError::EndOfMedium { volume: session.volume.clone() },
            _ => error.into(),
        }
    }

    /// Writes one unprotected block: a label.
    pub(super) fn write_plain(&mut self, block: &[u8]) -> Result<(), DriveError> {
        self.device.once(&Cdb::Write6 { fixed: false, length: length24(block.len()) }, DataPhase::Out(block))?;
        Ok(())
    }

    /// Writes a filemark and waits until everything is on the medium.
    pub(super) fn write_filemark(&mut self) -> Result<(), DriveError> {
        let next = self.session.as_ref().and_then(|session| session.position).map(|block| block + 1);
        self.set_position(None);
        let count = U24::new(1).expect("a small number");
        self.device
            .once(&Cdb::WriteFilemarks6 { immediate: false, count }, DataPhase::None)
            .map_err(|error| self.write_error(error))?;
        self.set_position(next);
        Ok(())
    }

    /// The second half of the commit rule: the drive stands where it should, and nothing is left in its buffer.
    pub(super) fn confirm(&mut self, volume: &VolumeLabel, expected: u64) -> Result<(), DriveError> {
        let position = self.device.position()?;
        if position.is_flushed() && position.next_object == Some(expected) {
            return Ok(());
        }
        Err(DriveError::NotCommitted { volume: volume.clone(), expected, found: position.next_object })
    }
}

fn length24(bytes: usize) -> U24 {
    u32::try_from(bytes).ok().and_then(U24::new).expect("records are below 16 MiB")
}
