//! Reading, writing and positioning: the commands that move the tape.

use super::{Cartridge, Completion, DriveUnit, INVALID_FIELD, LONGEST_BLOCK, Outcome, medium_error};
use crate::scsi::mode::BlockProtection;
use crate::scsi::stream::Position;
use crate::scsi::{Cdb, DataPhase, LocateTarget, PositionForm, Sense, SenseKey, SpaceUnit, Status};
use crate::vtl::medium::{CartridgeKind, Object};
use crate::vtl::timing::Operation;

/// Bytes of CRC-32C behind each block.
const PROTECTION_BYTES: usize = 4;

const FILEMARK_MET: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x01).at_filemark();
const EARLY_WARNING: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x02).at_end_of_medium();
const PROGRAMMABLE_WARNING: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x07).at_end_of_medium();
const BEGINNING_MET: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x04).at_end_of_medium();
const END_OF_DATA: Sense = Sense::new(SenseKey::BlankCheck, 0x00, 0x05);
const OVERFLOW: Sense = Sense::new(SenseKey::VolumeOverflow, 0x00, 0x02).at_end_of_medium();
const WRONG_LENGTH: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x00).of_wrong_length();
const WRONG_PROTECTION: Sense = Sense::new(SenseKey::HardwareError, 0x10, 0x01);
const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x00);
const OVERWRITES_WORM: Sense = Sense::new(SenseKey::DataProtect, 0x30, 0x0c);

/// Why a block of a run of blocks was not moved.
enum Stop {
    /// Nothing of this block happened.
    Before(Sense),
    /// The block happened; the sense is about it or about what comes.
    After(Sense),
}

impl Cartridge {
    /// Bytes before early warning.
    fn early_warning_bytes(&self) -> u64 {
        let capacity = self.medium.chip.capacity_bytes;
        capacity - (capacity / 64).max(4 << 20).min(capacity / 4)
    }
}

impl DriveUnit {
    pub(super) fn motion(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Outcome {
        self.ready()?;
        match (*cdb, data) {
            (Cdb::Write6 { fixed, length }, DataPhase::Out(bytes)) => self.write(fixed, length.get(), bytes),
            (Cdb::Write6 { length, .. }, DataPhase::None) if length.get() == 0 => Ok(Completion::GOOD),
            (Cdb::Read6 { fixed, suppress_wrong_length, length }, DataPhase::In(buffer)) => {
                self.flush()?;
                self.read(fixed, suppress_wrong_length, length.get(), buffer)
            }
            (Cdb::Read6 { length, .. }, DataPhase::None) if length.get() == 0 => Ok(Completion::GOOD),
            (Cdb::WriteFilemarks6 { immediate, count }, _) => self.write_filemarks(immediate, count.get()),
            (Cdb::Space6 { unit, count }, _) => self.space(unit, i64::from(count.get())),
            (Cdb::Space16 { unit, count }, _) => self.space(unit, count),
            (Cdb::Locate10 { block, .. }, _) => self.locate(LocateTarget::Block(u64::from(block))),
            (Cdb::Locate16 { target, .. }, _) => self.locate(target),
            (Cdb::Rewind { .. }, _) => {
                self.flush()?;
                let from = self.fraction();
                self.spend(Operation::Rewind { from });
                self.move_to(0);
                Ok(Completion::GOOD)
            }
            (Cdb::ReadPosition { form, allocation }, data) => self.read_position(form, allocation, data),
            (Cdb::Erase6 { .. }, _) => {
                self.may_write()?;
                let cartridge = self.ready()?;
                let position = cartridge.position;
                cartridge.medium.truncate(position).map_err(|error| medium_error(&error, 0x51))?;
                self.flush()?;
                Ok(Completion::GOOD)
            }
            _ => Err(INVALID_FIELD),
        }
    }

    /// Moves the head; the programmable warning is due again if it lies before the zone.
    fn move_to(&mut self, position: u64) {
        let warning = u64::from(self.mode.warning.size_mb) * 1_000_000;
        if let Some(cartridge) = &mut self.cartridge {
            cartridge.position = position;
            let before = cartridge.medium.bytes_before(position);
            cartridge.warned &= before + warning >= cartridge.early_warning_bytes();
        }
    }

    /// Whether a write may be performed at the head.
    fn may_write(&mut self) -> Result<(), Sense> {
        let cartridge = self.ready()?;
        if cartridge.medium.chip.write_protected {
            return Err(WRITE_PROTECTED);
        }
        if cartridge.medium.chip.kind == CartridgeKind::Worm && cartridge.position < cartridge.medium.end() {
            return Err(OVERWRITES_WORM);
        }
        Ok(())
    }

    fn write(&mut self, fixed: bool, length: u32, bytes: &[u8]) -> Outcome {
        self.may_write()?;
        let (size, count) = self.transfer(fixed, length, bytes.len())?;
        for (done, block) in bytes.chunks_exact(size.max(1)).take(count).enumerate() {
            match self.write_block(block) {
                Ok(()) => {}
                Err(Stop::Before(sense)) => return Ok(stopped(fixed, sense, size, count - done, true)),
                Err(Stop::After(sense)) => {
                    let left = count - done - 1;
                    // Early warning is no error: a single block was written as asked.
                    return Ok(stopped(fixed, sense, size, left, left > 0));
                }
            }
        }
        Ok(Completion::GOOD)
    }

    /// How long each block of a transfer is, protection included, and how many there are.
    fn transfer(&self, fixed: bool, length: u32, there: usize) -> Result<(usize, usize), Sense> {
        let length = length as usize;
        let longest = LONGEST_BLOCK as usize + PROTECTION_BYTES;
        let (size, count) = if fixed { (self.mode.block_length as usize, length) } else { (length, 1) };
        let fits = size.checked_mul(count).is_some_and(|total| total <= there);
        if size > longest || fixed && size == 0 || !fits {
            return Err(INVALID_FIELD);
        }
        Ok((size, if length == 0 { 0 } else { count }))
    }

    fn write_block(&mut self, block: &[u8]) -> Result<(), Stop> {
        let protected = self.mode.protection.write;
        let (body, crc) = if protected {
            let (body, protection) = block.split_last_chunk::<PROTECTION_BYTES>().ok_or(Stop::Before(INVALID_FIELD))?;
            let crc = crc_fast::crc32_iscsi(body);
            if crc.to_le_bytes() != *protection {
                return Err(Stop::Before(WRONG_PROTECTION));
            }
            (body, crc)
        } else {
            (block, crc_fast::crc32_iscsi(block))
        };
        let warning = u64::from(self.mode.warning.size_mb) * 1_000_000;
        let cartridge = self.cartridge.as_mut().expect("a ready drive has a cartridge");
        let position = cartridge.position;
        if let Some(sense) = self.faults.on_write(position) {
            return Err(Stop::Before(sense));
        }
        let medium = &mut cartridge.medium;
        if medium.bytes_before(position) + body.len() as u64 > medium.chip.capacity_bytes {
            return Err(Stop::Before(OVERFLOW));
        }
        medium.truncate(position).map_err(|error| Stop::Before(medium_error(&error, 0x0c)))?;
        medium.append_block(body, crc).map_err(|error| Stop::Before(medium_error(&error, 0x0c)))?;
        medium.chip.written_bytes += body.len() as u64;
        cartridge.position += 1;
        let used = cartridge.medium.used_bytes();
        let early = cartridge.early_warning_bytes();
        let warn = warning > 0 && used + warning >= early && !cartridge.warned;
        cartridge.warned |= warn;
        self.activity.written_bytes += body.len() as u64;
        self.spend(Operation::Stream { bytes: body.len() as u64 });
        if used >= early {
            return Err(Stop::After(EARLY_WARNING));
        }
        if warn {
            return Err(Stop::After(PROGRAMMABLE_WARNING));
        }
        Ok(())
    }

    fn read(&mut self, fixed: bool, suppress: bool, length: u32, buffer: &mut [u8]) -> Outcome {
        let (size, count) = self.transfer(fixed, length, buffer.len())?;
        let whole = buffer.len();
        if size == 0 || count == 0 {
            return Ok(Completion { residual_bytes: whole, ..Completion::GOOD });
        }
        let mut moved = 0;
        for (done, part) in buffer.chunks_exact_mut(size).take(count).enumerate() {
            match self.read_block(part) {
                Ok(actual) if actual == size => moved += actual,
                Ok(actual) => {
                    moved += actual.min(size);
                    let residual_bytes = whole - moved;
                    // In variable mode SILI hides a wrong length; the residual tells a short block.
                    if suppress && !fixed {
                        return Ok(Completion { residual_bytes, ..Completion::GOOD });
                    }
                    let information = if fixed { (count - done) as i64 } else { size as i64 - actual as i64 };
                    let sense = Some(WRONG_LENGTH.with_information(information));
                    return Ok(Completion { status: Status::CheckCondition, sense, residual_bytes });
                }
                Err(sense) => {
                    let left = if fixed { count - done } else { size } as i64;
                    let sense = Some(sense.with_information(left));
                    return Ok(Completion { status: Status::CheckCondition, sense, residual_bytes: whole - moved });
                }
            }
        }
        Ok(Completion { residual_bytes: whole - moved, ..Completion::GOOD })
    }

    /// Reads the block at the head into `buffer`, which may be shorter or longer, and returns the block's length as it
    /// would be transferred.
    fn read_block(&mut self, buffer: &mut [u8]) -> Result<usize, Sense> {
        let protected = self.mode.protection.read;
        let cartridge = self.cartridge.as_mut().expect("a ready drive has a cartridge");
        let position = cartridge.position;
        if let Some(sense) = self.faults.on_read(position) {
            return Err(sense);
        }
        let (offset, length, crc) = match cartridge.medium.object(position) {
            None => return Err(END_OF_DATA),
            Some(Object::Mark) => {
                cartridge.position += 1;
                return Err(FILEMARK_MET);
            }
            Some(Object::Block { offset, length, crc }) => (offset, length as usize, crc),
        };
        let body = length.min(buffer.len());
        cartridge.medium.read(offset, &mut buffer[..body]).map_err(|error| medium_error(&error, 0x11))?;
        if body == length && crc_fast::crc32_iscsi(&buffer[..body]) != crc {
            return Err(Sense::new(SenseKey::MediumError, 0x11, 0x00));
        }
        cartridge.position += 1;
        cartridge.medium.chip.read_bytes += length as u64;
        if self.faults.flips(position) && body > 0 {
            buffer[body / 2] ^= 0x10;
        }
        self.activity.read_bytes += length as u64;
        self.spend(Operation::Stream { bytes: length as u64 });
        if !protected {
            return Ok(length);
        }
        let protection = crc.to_le_bytes();
        let room = buffer.len().saturating_sub(length).min(PROTECTION_BYTES);
        buffer[body..body + room].copy_from_slice(&protection[..room]);
        Ok(length + PROTECTION_BYTES)
    }

    fn write_filemarks(&mut self, immediate: bool, count: u32) -> Outcome {
        if count > 0 {
            self.may_write()?;
            let cartridge = self.cartridge.as_mut().expect("a ready drive has a cartridge");
            let position = cartridge.position;
            cartridge.medium.truncate(position).map_err(|error| medium_error(&error, 0x0c))?;
            for _ in 0..count {
                cartridge.medium.append_mark();
            }
            cartridge.position += u64::from(count);
        }
        if !immediate {
            self.flush()?;
        }
        let cartridge = self.ready()?;
        if count > 0 && cartridge.medium.used_bytes() >= cartridge.early_warning_bytes() {
            return Ok(Completion::check(EARLY_WARNING));
        }
        Ok(Completion::GOOD)
    }

    fn locate(&mut self, target: LocateTarget) -> Outcome {
        self.flush()?;
        let from = self.fraction();
        let medium = &self.ready()?.medium;
        let end = medium.end();
        let wanted = match target {
            LocateTarget::Block(block) => block,
            LocateTarget::EndOfData => end,
            // Behind that many filemarks.
            LocateTarget::File(0) => 0,
            LocateTarget::File(file) => usize::try_from(file - 1)
                .ok()
                .and_then(|file| medium.marks().get(file))
                .map_or(u64::MAX, |mark| mark + 1),
        };
        self.move_to(wanted.min(end));
        let to = self.fraction();
        self.spend(Operation::Locate { from, to });
        if wanted > end { Err(END_OF_DATA) } else { Ok(Completion::GOOD) }
    }

    fn space(&mut self, unit: SpaceUnit, count: i64) -> Outcome {
        self.flush()?;
        let from = self.fraction();
        let cartridge = self.ready()?;
        let (position, sense) = spaced(cartridge, unit, count);
        self.move_to(position);
        let to = self.fraction();
        self.spend(Operation::Locate { from, to });
        sense.map_or(Ok(Completion::GOOD), Err)
    }

    fn read_position(&mut self, form: PositionForm, allocation: u16, data: DataPhase<'_>) -> Outcome {
        let warning = u64::from(self.mode.warning.size_mb) * 1_000_000;
        let cartridge = self.ready()?;
        let (medium, next) = (&cartridge.medium, cartridge.position);
        let before = medium.bytes_before(next);
        let early = cartridge.early_warning_bytes();
        let position = Position {
            beginning: next == 0,
            end: before >= early,
            programmable_warning: warning > 0 && before + warning >= early,
            next_object: Some(next),
            next_on_medium: Some(next.min(medium.synced())),
            buffered_objects: Some(next.saturating_sub(medium.synced())),
            buffered_bytes: Some(if next > medium.synced() { medium.dirty_bytes() } else { 0 }),
            filemarks: Some(medium.marks_before(next) as u64),
        };
        let bytes = position.encode(form).ok_or(INVALID_FIELD)?;
        // The short form is six CDB bytes of zero allocation: it always transfers its 20 bytes.
        let allocation = if form == PositionForm::Short { Position::bytes(form) } else { allocation };
        super::answer(data, &bytes, allocation)
    }

    pub(super) fn set_protection(&mut self, protection: BlockProtection) -> Result<(), Sense> {
        let known =
            protection.method == 0 || protection.method == 2 && usize::from(protection.length) == PROTECTION_BYTES;
        if !known || protection.method == 0 && (protection.read || protection.write) {
            return Err(super::INVALID_LIST);
        }
        self.mode.protection = protection;
        Ok(())
    }
}

/// A transfer that ended early: the information is what is left, in blocks or bytes.
fn stopped(fixed: bool, sense: Sense, size: usize, left_blocks: usize, with_information: bool) -> Completion {
    let left = if fixed { left_blocks } else { left_blocks * size };
    let sense = if with_information { sense.with_information(left as i64) } else { sense };
    Completion { status: Status::CheckCondition, sense: Some(sense), residual_bytes: left_blocks * size }
}

/// Where SPACE ends, and with which sense.
fn spaced(cartridge: &Cartridge, unit: SpaceUnit, count: i64) -> (u64, Option<Sense>) {
    let (position, end) = (cartridge.position, cartridge.medium.end());
    let marks = cartridge.medium.marks();
    let next_mark = cartridge.medium.marks_before(position);
    let asked = count.unsigned_abs();
    let left = |done: u64| i64::try_from(asked - done).unwrap_or(i64::MAX);
    match (unit, count >= 0) {
        (SpaceUnit::EndOfData, _) => (end, None),
        (SpaceUnit::Blocks, true) => {
            let mark = marks.get(next_mark).copied();
            let free = mark.unwrap_or(end) - position;
            if asked <= free {
                (position + asked, None)
            } else if let Some(mark) = mark {
                (mark + 1, Some(FILEMARK_MET.with_information(left(free))))
            } else {
                (end, Some(END_OF_DATA.with_information(left(free))))
            }
        }
        (SpaceUnit::Blocks, false) => {
            let mark = next_mark.checked_sub(1).map(|index| marks[index]);
            let free = position - mark.map_or(0, |mark| mark + 1);
            if asked <= free {
                (position - asked, None)
            } else if let Some(mark) = mark {
                // The head stops on the side of the mark towards the beginning.
                (mark, Some(FILEMARK_MET.with_information(left(free))))
            } else {
                (0, Some(BEGINNING_MET.with_information(left(free))))
            }
        }
        (SpaceUnit::Filemarks, true) => {
            let there = (marks.len() - next_mark) as u64;
            match usize::try_from(asked) {
                Ok(0) => (position, None),
                Ok(asked) if asked as u64 <= there => (marks[next_mark + asked - 1] + 1, None),
                _ => (end, Some(END_OF_DATA.with_information(left(there)))),
            }
        }
        (SpaceUnit::Filemarks, false) => match usize::try_from(asked) {
            Ok(asked) if asked <= next_mark => (marks[next_mark - asked], None),
            _ => (0, Some(BEGINNING_MET.with_information(left(next_mark as u64)))),
        },
    }
}
