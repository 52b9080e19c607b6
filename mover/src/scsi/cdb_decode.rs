//! Command descriptor blocks back into commands: what a target does with the bytes it gets.
//!
//! Pure and bounded. Reserved bits are ignored, as the standards allow; a code that would change the command's meaning
//! is refused with the byte it stands in.

use super::cdb::{
    Cdb, ElementKind, I24, LocateTarget, LogControl, PageControl, PositionForm, ReserveIn, ReserveOut, ReserveType,
    SpaceUnit, U24,
};

/// Why bytes are no command of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CdbError {
    /// Answered with 5/20/00.
    #[error("operation code {0:02X}h is not supported")]
    UnknownOperation(u8),
    /// Answered with 5/24/00.
    #[error("invalid field in byte {byte} of the command")]
    InvalidField {
        /// Which byte.
        byte: u8,
    },
    /// The block is shorter than its group code says.
    #[error("the command is cut short")]
    Short,
}

impl Cdb {
    /// The command of these bytes. Bytes behind the command's length are ignored.
    ///
    /// # Errors
    ///
    /// [`CdbError`], as the target answers it.
    pub fn decode(bytes: &[u8]) -> Result<Self, CdbError> {
        let opcode = *bytes.first().ok_or(CdbError::Short)?;
        let length = match opcode >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            5 => 12,
            _ => return Err(CdbError::UnknownOperation(opcode)),
        };
        let cdb = Block(bytes.get(..length).ok_or(CdbError::Short)?);
        Ok(match opcode {
            0x00 => Self::TestUnitReady,
            0x01 => Self::Rewind { immediate: cdb.bit(1, 0) },
            0x03 => Self::RequestSense { descriptor: cdb.bit(1, 0), allocation: cdb.0[4] },
            0x05 => Self::ReadBlockLimits,
            0x07 => Self::InitializeElementStatus,
            0x08 => Self::Read6 { fixed: cdb.bit(1, 0), suppress_wrong_length: cdb.bit(1, 1), length: cdb.u24(2) },
            0x0a => Self::Write6 { fixed: cdb.bit(1, 0), length: cdb.u24(2) },
            0x10 => Self::WriteFilemarks6 { immediate: cdb.bit(1, 0), count: cdb.u24(2) },
            0x11 => Self::Space6 { unit: cdb.space_unit()?, count: cdb.i24(2) },
            0x12 => {
                let vital = cdb.bit(1, 0);
                if !vital && cdb.0[2] != 0 {
                    return Err(CdbError::InvalidField { byte: 2 });
                }
                Self::Inquiry { page: vital.then_some(cdb.0[2]), allocation: cdb.u16(3) }
            }
            0x15 => Self::ModeSelect6 { save: cdb.bit(1, 0), length: cdb.0[4] },
            0x19 => Self::Erase6 { long: cdb.bit(1, 0), immediate: cdb.bit(1, 1) },
            0x1a => Self::ModeSense6 {
                no_block_descriptors: cdb.bit(1, 3),
                control: cdb.page_control(),
                page: cdb.0[2] & 0x3f,
                subpage: cdb.0[3],
                allocation: cdb.0[4],
            },
            0x1b => Self::LoadUnload { load: cdb.bit(4, 0), hold: cdb.bit(4, 3), immediate: cdb.bit(1, 0) },
            0x1e => Self::PreventRemoval { prevent: cdb.bit(4, 0) },
            0x2b => Self::Locate10 { immediate: cdb.bit(1, 0), block: cdb.u32(3) },
            0x34 => {
                let form = [PositionForm::Short, PositionForm::Long, PositionForm::Extended]
                    .into_iter()
                    .find(|&form| form as u8 == cdb.0[1] & 0x1f);
                Self::ReadPosition { form: form.ok_or(CdbError::InvalidField { byte: 1 })?, allocation: cdb.u16(7) }
            }
            0x44 => Self::ReportDensity { medium: cdb.bit(1, 0), allocation: cdb.u16(7) },
            0x4d => Self::LogSense {
                control: match cdb.0[2] >> 6 {
                    0 => LogControl::Threshold,
                    1 => LogControl::Cumulative,
                    _ => return Err(CdbError::InvalidField { byte: 2 }),
                },
                page: cdb.0[2] & 0x3f,
                subpage: cdb.0[3],
                parameter: cdb.u16(5),
                allocation: cdb.u16(7),
            },
            0x55 => Self::ModeSelect10 { save: cdb.bit(1, 0), length: cdb.u16(7) },
            0x5a => Self::ModeSense10 {
                no_block_descriptors: cdb.bit(1, 3),
                control: cdb.page_control(),
                page: cdb.0[2] & 0x3f,
                subpage: cdb.0[3],
                allocation: cdb.u16(7),
            },
            0x5e => Self::PersistentReserveIn {
                action: match cdb.0[1] & 0x1f {
                    0 => ReserveIn::ReadKeys,
                    1 => ReserveIn::ReadReservation,
                    2 => ReserveIn::ReportCapabilities,
                    _ => return Err(CdbError::InvalidField { byte: 1 }),
                },
                allocation: cdb.u16(7),
            },
            0x5f => Self::PersistentReserveOut {
                action: cdb.reserve_action()?,
                kind: cdb.reserve_type()?,
                length: cdb.u32(5),
            },
            0x8c if cdb.0[1] & 0x1f == 0 => {
                Self::ReadAttribute { partition: cdb.0[7], first: cdb.u16(8), allocation: cdb.u32(10) }
            }
            0x8d => Self::WriteAttribute { partition: cdb.0[7], write_through: cdb.bit(1, 0), length: cdb.u32(10) },
            0x91 => Self::Space16 { unit: cdb.space_unit()?, count: i64::from_be_bytes(cdb.u64(4).to_be_bytes()) },
            0x92 => Self::Locate16 {
                immediate: cdb.bit(1, 0),
                target: match cdb.0[1] >> 3 & 7 {
                    0 => LocateTarget::Block(cdb.u64(4)),
                    1 => LocateTarget::File(cdb.u64(4)),
                    3 => LocateTarget::EndOfData,
                    _ => return Err(CdbError::InvalidField { byte: 1 }),
                },
            },
            0xa0 => Self::ReportLuns { allocation: cdb.u32(6) },
            0xa5 => Self::MoveMedium { robot: cdb.u16(2), source: cdb.u16(4), destination: cdb.u16(6) },
            0xb8 => Self::ReadElementStatus {
                kind: match cdb.0[1] & 0x0f {
                    0 => None,
                    code => Some(
                        ElementKind::ALL
                            .into_iter()
                            .find(|&kind| kind as u8 == code)
                            .ok_or(CdbError::InvalidField { byte: 1 })?,
                    ),
                },
                volume_tags: cdb.bit(1, 4),
                start: cdb.u16(2),
                count: cdb.u16(4),
                device_ids: cdb.bit(6, 0),
                allocation: cdb.u24(7),
            },
            0x8c => return Err(CdbError::InvalidField { byte: 1 }),
            _ => return Err(CdbError::UnknownOperation(opcode)),
        })
    }
}

/// A command descriptor block of the length its group code says; every field read below lies within it.
struct Block<'a>(&'a [u8]);

impl Block<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("the slice has N bytes")
    }

    const fn bit(&self, byte: usize, bit: u8) -> bool {
        self.0[byte] >> bit & 1 == 1
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    fn u24(&self, at: usize) -> U24 {
        let [a, b, c] = self.array(at);
        U24::new(u32::from_be_bytes([0, a, b, c])).expect("three bytes")
    }

    fn i24(&self, at: usize) -> I24 {
        let [a, b, c] = self.array(at);
        I24::new(i32::from_be_bytes([a, b, c, 0]) >> 8).expect("three bytes")
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    const fn page_control(&self) -> PageControl {
        match self.0[2] >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        }
    }

    const fn space_unit(&self) -> Result<SpaceUnit, CdbError> {
        Ok(match self.0[1] & 0x0f {
            0 => SpaceUnit::Blocks,
            1 => SpaceUnit::Filemarks,
            3 => SpaceUnit::EndOfData,
            _ => return Err(CdbError::InvalidField { byte: 1 }),
        })
    }

    const fn reserve_action(&self) -> Result<ReserveOut, CdbError> {
        Ok(match self.0[1] & 0x1f {
            0 => ReserveOut::Register,
            1 => ReserveOut::Reserve,
            2 => ReserveOut::Release,
            3 => ReserveOut::Clear,
            4 => ReserveOut::Preempt,
            6 => ReserveOut::RegisterAndIgnoreExistingKey,
            _ => return Err(CdbError::InvalidField { byte: 1 }),
        })
    }

    const fn reserve_type(&self) -> Result<ReserveType, CdbError> {
        if self.0[2] >> 4 != 0 {
            return Err(CdbError::InvalidField { byte: 2 });
        }
        Ok(match self.0[2] & 0x0f {
            1 => ReserveType::WriteExclusive,
            3 => ReserveType::ExclusiveAccess,
            5 => ReserveType::WriteExclusiveRegistrantsOnly,
            6 => ReserveType::ExclusiveAccessRegistrantsOnly,
            // Registering and clearing have no type; initiators send zero.
            0 if matches!(self.0[1] & 0x1f, 0 | 3 | 6) => ReserveType::ExclusiveAccess,
            _ => return Err(CdbError::InvalidField { byte: 2 }),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Cdb> {
        let length = U24::new(262_148).unwrap();
        vec![
            Cdb::TestUnitReady,
            Cdb::Rewind { immediate: true },
            Cdb::RequestSense { descriptor: true, allocation: 252 },
            Cdb::ReadBlockLimits,
            Cdb::InitializeElementStatus,
            Cdb::Read6 { fixed: false, suppress_wrong_length: true, length },
            Cdb::Write6 { fixed: true, length },
            Cdb::WriteFilemarks6 { immediate: true, count: U24::new(1).unwrap() },
            Cdb::Space6 { unit: SpaceUnit::Filemarks, count: I24::new(-2).unwrap() },
            Cdb::Inquiry { page: Some(0x80), allocation: 512 },
            Cdb::ModeSelect6 { save: false, length: 12 },
            Cdb::Erase6 { long: true, immediate: false },
            Cdb::ModeSense6 {
                no_block_descriptors: true,
                control: PageControl::Default,
                page: 0x10,
                subpage: 1,
                allocation: 255,
            },
            Cdb::LoadUnload { load: true, hold: true, immediate: true },
            Cdb::PreventRemoval { prevent: true },
            Cdb::Locate10 { immediate: false, block: 0x0102_0304 },
            Cdb::ReadPosition { form: PositionForm::Extended, allocation: 32 },
            Cdb::ReportDensity { medium: true, allocation: 400 },
            Cdb::LogSense { control: LogControl::Cumulative, page: 0x2e, subpage: 0, parameter: 3, allocation: 0x1000 },
            Cdb::ModeSelect10 { save: true, length: 300 },
            Cdb::ModeSense10 {
                no_block_descriptors: false,
                control: PageControl::Saved,
                page: 0x0a,
                subpage: 0xf0,
                allocation: 4096,
            },
            Cdb::PersistentReserveIn { action: ReserveIn::ReadReservation, allocation: 24 },
            Cdb::PersistentReserveOut { action: ReserveOut::Preempt, kind: ReserveType::ExclusiveAccess, length: 24 },
            Cdb::ReadAttribute { partition: 1, first: 0x0401, allocation: 70_000 },
            Cdb::WriteAttribute { partition: 0, write_through: true, length: 40 },
            Cdb::Space16 { unit: SpaceUnit::EndOfData, count: -5_000_000_000 },
            Cdb::Locate16 { immediate: true, target: LocateTarget::Block(1 << 40) },
            Cdb::Locate16 { immediate: false, target: LocateTarget::File(7) },
            Cdb::Locate16 { immediate: false, target: LocateTarget::EndOfData },
            Cdb::ReportLuns { allocation: 64 },
            Cdb::MoveMedium { robot: 1, source: 0x400, destination: 0x100 },
            Cdb::ReadElementStatus {
                kind: Some(ElementKind::Drive),
                volume_tags: true,
                start: 0,
                count: 0xffff,
                device_ids: true,
                allocation: U24::MAX,
            },
        ]
    }

    #[test]
    fn every_command_comes_back_from_its_bytes_and_not_from_fewer() {
        for cdb in samples() {
            let bytes = cdb.encode();
            assert_eq!(Cdb::decode(&bytes), Ok(cdb), "{}", cdb.name());
            for cut in 0..bytes.len() {
                assert_eq!(Cdb::decode(&bytes[..cut]), Err(CdbError::Short), "{} cut at {cut}", cdb.name());
            }
        }
    }

    #[test]
    fn commands_are_the_bytes_of_the_standard() {
        let locate = Cdb::Locate16 { immediate: false, target: LocateTarget::Block(0x0102) };
        assert_eq!(&locate.encode()[..], [0x92, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0]);
        let space = Cdb::Space6 { unit: SpaceUnit::Filemarks, count: I24::new(-1).unwrap() };
        assert_eq!(&space.encode()[..], [0x11, 1, 0xff, 0xff, 0xff, 0]);
        let reserve =
            Cdb::PersistentReserveOut { action: ReserveOut::Reserve, kind: ReserveType::ExclusiveAccess, length: 24 };
        assert_eq!(&reserve.encode()[..], [0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0]);
        let moving = Cdb::MoveMedium { robot: 0, source: 0x0400, destination: 0x0100 };
        assert_eq!(&moving.encode()[..], [0xa5, 0, 0, 0, 4, 0, 1, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_command_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(cdb) = Cdb::decode(&bytes) {
                prop_assert_eq!(Cdb::decode(&cdb.encode()), Ok(cdb));
            }
        }
    }
}
