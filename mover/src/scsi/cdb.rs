//! The commands this project sends or serves, and their command descriptor blocks.
//!
//! Pure. What a field cannot hold cannot be said: 24-bit fields have a type of their own. Decoding is in
//! `cdb_decode`, so that the virtual library and the initiator can never disagree about a byte.

use std::{ops::Deref, time::Duration};

/// A command.
///
/// # Source
///
/// SPC-5 for the primary commands, SSC-5 for tape, SMC-3 for the changer; names follow the standards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in the standards")]
pub enum Cdb {
    /// 00h.
    TestUnitReady,
    /// 01h. Moves to the beginning of the tape; not waited for if `immediate`.
    Rewind { immediate: bool },
    /// 03h.
    RequestSense { descriptor: bool, allocation: u8 },
    /// 05h.
    ReadBlockLimits,
    /// 07h on a changer.
    InitializeElementStatus,
    /// 08h. `length` is bytes, or blocks if `fixed`.
    Read6 { fixed: bool, suppress_wrong_length: bool, length: U24 },
    /// 0Ah.
    Write6 { fixed: bool, length: U24 },
    /// 10h. `immediate` answers before the data is on the medium; a count of 0 without it is a flush.
    WriteFilemarks6 { immediate: bool, count: U24 },
    /// 11h.
    Space6 { unit: SpaceUnit, count: I24 },
    /// 12h. A page is vital product data.
    Inquiry { page: Option<u8>, allocation: u16 },
    /// 15h.
    ModeSelect6 { save: bool, length: u8 },
    /// 19h.
    Erase6 { long: bool, immediate: bool },
    /// 1Ah.
    ModeSense6 { no_block_descriptors: bool, control: PageControl, page: u8, subpage: u8, allocation: u8 },
    /// 1Bh.
    LoadUnload { load: bool, hold: bool, immediate: bool },
    /// 1Eh.
    PreventRemoval { prevent: bool },
    /// 2Bh.
    Locate10 { immediate: bool, block: u32 },
    /// 34h.
    ReadPosition { form: PositionForm, allocation: u16 },
    /// 44h.
    ReportDensity { medium: bool, allocation: u16 },
    /// 4Dh.
    LogSense { control: LogControl, page: u8, subpage: u8, parameter: u16, allocation: u16 },
    /// 55h.
    ModeSelect10 { save: bool, length: u16 },
    /// 5Ah.
    ModeSense10 { no_block_descriptors: bool, control: PageControl, page: u8, subpage: u8, allocation: u16 },
    /// 5Eh.
    PersistentReserveIn { action: ReserveIn, allocation: u16 },
    /// 5Fh. Scope is always the logical unit.
    PersistentReserveOut { action: ReserveOut, kind: ReserveType, length: u32 },
    /// 8Ch, service action 00h: attribute values, from identifier `first` on.
    ReadAttribute { partition: u8, first: u16, allocation: u32 },
    /// 8Dh.
    WriteAttribute { partition: u8, write_through: bool, length: u32 },
    /// 91h.
    Space16 { unit: SpaceUnit, count: i64 },
    /// 92h.
    Locate16 { immediate: bool, target: LocateTarget },
    /// A0h.
    ReportLuns { allocation: u32 },
    /// A5h.
    MoveMedium { robot: u16, source: u16, destination: u16 },
    /// B8h. `kind` of `None` is every type.
    ReadElementStatus {
        kind: Option<ElementKind>,
        volume_tags: bool,
        start: u16,
        count: u16,
        device_ids: bool,
        allocation: U24,
    },
}

/// An unsigned number of 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct U24(u32);

impl U24 {
    /// The largest.
    pub const MAX: Self = Self(0xff_ffff);

    /// `None` if the value needs more than 24 bits.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A signed number of 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct I24(i32);

impl I24 {
    /// `None` if the value needs more than 24 bits.
    #[must_use]
    pub const fn new(value: i32) -> Option<Self> {
        if value >= -0x80_0000 && value <= 0x7f_ffff { Some(Self(value)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// What SPACE counts (SSC-5, table 62).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SpaceUnit {
    /// Logical blocks; stops at a filemark.
    Blocks = 0,
    /// Filemarks.
    Filemarks = 1,
    /// Not a count: to the end of data.
    EndOfData = 3,
}

/// Where LOCATE(16) goes (SSC-5, 7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocateTarget {
    /// A logical object: block or filemark.
    Block(u64),
    /// The object behind that many filemarks.
    File(u64),
    /// The end of data.
    EndOfData,
}

/// Which form READ POSITION answers in (SSC-5, 7.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PositionForm {
    /// 20 bytes.
    Short = 0x00,
    /// 32 bytes, with the count of filemarks.
    Long = 0x06,
    /// 32 bytes, with what the buffer holds.
    Extended = 0x08,
}

/// Which values of a mode page (SPC-5, table 153).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PageControl {
    /// In force.
    Current = 0,
    /// A mask of what can be changed.
    Changeable = 1,
    /// After a reset.
    Default = 2,
    /// Saved.
    Saved = 3,
}

/// Which values of a log page (SPC-5, table 139).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LogControl {
    /// Thresholds.
    Threshold = 0,
    /// Cumulative values.
    Cumulative = 1,
}

/// Service actions of PERSISTENT RESERVE IN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReserveIn {
    /// Registered keys.
    ReadKeys = 0,
    /// The reservation and its holder's key.
    ReadReservation = 1,
    /// What is supported.
    ReportCapabilities = 2,
}

/// Service actions of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReserveOut {
    /// Registers, changes or (key 0) removes this nexus's key.
    Register = 0,
    /// Takes the reservation.
    Reserve = 1,
    /// Gives it back.
    Release = 2,
    /// Removes every registration and the reservation.
    Clear = 3,
    /// Removes another's registrations, and takes the reservation if that key held it.
    Preempt = 4,
    /// Registers whatever key was there.
    RegisterAndIgnoreExistingKey = 6,
}

/// Types of persistent reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReserveType {
    /// Others may read.
    WriteExclusive = 1,
    /// Others may do nothing with the medium.
    ExclusiveAccess = 3,
    /// Registered nexuses may write.
    WriteExclusiveRegistrantsOnly = 5,
    /// Registered nexuses may do everything.
    ExclusiveAccessRegistrantsOnly = 6,
}

/// Element types of a changer (SMC-3, table 13).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ElementKind {
    /// The robot's hand.
    Robot = 1,
    /// A slot.
    Slot = 2,
    /// Where people put cartridges in and take them out.
    Mail = 3,
    /// A drive.
    Drive = 4,
}

impl ElementKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Robot, Self::Slot, Self::Mail, Self::Drive];
}

/// An encoded command descriptor block: 6, 10, 12 or 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CdbBytes {
    bytes: [u8; 16],
    length: u8,
}

impl Deref for CdbBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl CdbBytes {
    /// Operation code, then `fields` from byte 1 on, each at its offset; the group code gives the length.
    fn new(opcode: u8, fields: &[(usize, &[u8])]) -> Self {
        let length: u8 = match opcode >> 5 {
            0 => 6,
            1 | 2 => 10,
            4 => 16,
            _ => 12,
        };
        let mut bytes = [0; 16];
        bytes[0] = opcode;
        for &(at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        Self { bytes, length }
    }
}

const fn bit(set: bool, bit: u8) -> u8 {
    if set { 1 << bit } else { 0 }
}

fn be24(value: U24) -> [u8; 3] {
    super::fields::be24(value.get())
}

impl Cdb {
    /// The command as bytes.
    #[must_use]
    pub fn encode(&self) -> CdbBytes {
        match *self {
            Self::TestUnitReady => CdbBytes::new(0x00, &[]),
            Self::Rewind { immediate } => CdbBytes::new(0x01, &[(1, &[bit(immediate, 0)])]),
            Self::RequestSense { descriptor, allocation } => {
                CdbBytes::new(0x03, &[(1, &[bit(descriptor, 0)]), (4, &[allocation])])
            }
            Self::ReadBlockLimits => CdbBytes::new(0x05, &[]),
            Self::InitializeElementStatus => CdbBytes::new(0x07, &[]),
            Self::Read6 { fixed, suppress_wrong_length, length } => {
                let flags = bit(fixed, 0) | bit(suppress_wrong_length, 1);
                CdbBytes::new(0x08, &[(1, &[flags]), (2, &be24(length))])
            }
            Self::Write6 { fixed, length } => CdbBytes::new(0x0a, &[(1, &[bit(fixed, 0)]), (2, &be24(length))]),
            Self::WriteFilemarks6 { immediate, count } => {
                CdbBytes::new(0x10, &[(1, &[bit(immediate, 0)]), (2, &be24(count))])
            }
            Self::Space6 { unit, count } => {
                CdbBytes::new(0x11, &[(1, &[unit as u8]), (2, &count.get().to_be_bytes()[1..])])
            }
            Self::Inquiry { page, allocation } => {
                let fields = [bit(page.is_some(), 0), page.unwrap_or(0)];
                CdbBytes::new(0x12, &[(1, &fields), (3, &allocation.to_be_bytes())])
            }
            Self::ModeSelect6 { save, length } => CdbBytes::new(0x15, &[(1, &[1 << 4 | bit(save, 0)]), (4, &[length])]),
            Self::Erase6 { long, immediate } => CdbBytes::new(0x19, &[(1, &[bit(long, 0) | bit(immediate, 1)])]),
            Self::ModeSense6 { no_block_descriptors, control, page, subpage, allocation } => {
                let fields = mode_fields(no_block_descriptors, control, page, subpage);
                CdbBytes::new(0x1a, &[(1, &fields), (4, &[allocation])])
            }
            Self::LoadUnload { load, hold, immediate } => {
                CdbBytes::new(0x1b, &[(1, &[bit(immediate, 0)]), (4, &[bit(load, 0) | bit(hold, 3)])])
            }
            Self::PreventRemoval { prevent } => CdbBytes::new(0x1e, &[(4, &[bit(prevent, 0)])]),
            Self::Locate10 { immediate, block } => {
                CdbBytes::new(0x2b, &[(1, &[bit(immediate, 0)]), (3, &block.to_be_bytes())])
            }
            Self::ReadPosition { form, allocation } => {
                CdbBytes::new(0x34, &[(1, &[form as u8]), (7, &allocation.to_be_bytes())])
            }
            Self::ReportDensity { medium, allocation } => {
                CdbBytes::new(0x44, &[(1, &[bit(medium, 0)]), (7, &allocation.to_be_bytes())])
            }
            Self::LogSense { control, page, subpage, parameter, allocation } => {
                let fields = [(control as u8) << 6 | page & 0x3f, subpage];
                let fields: [(usize, &[u8]); 3] =
                    [(2, &fields), (5, &parameter.to_be_bytes()), (7, &allocation.to_be_bytes())];
                CdbBytes::new(0x4d, &fields)
            }
            Self::ModeSelect10 { save, length } => {
                CdbBytes::new(0x55, &[(1, &[1 << 4 | bit(save, 0)]), (7, &length.to_be_bytes())])
            }
            Self::ModeSense10 { no_block_descriptors, control, page, subpage, allocation } => {
                let fields = mode_fields(no_block_descriptors, control, page, subpage);
                CdbBytes::new(0x5a, &[(1, &fields), (7, &allocation.to_be_bytes())])
            }
            Self::PersistentReserveIn { action, allocation } => {
                CdbBytes::new(0x5e, &[(1, &[action as u8]), (7, &allocation.to_be_bytes())])
            }
            Self::PersistentReserveOut { action, kind, length } => {
                CdbBytes::new(0x5f, &[(1, &[action as u8, kind as u8]), (5, &length.to_be_bytes())])
            }
            Self::ReadAttribute { partition, first, allocation } => {
                let fields: [(usize, &[u8]); 3] =
                    [(7, &[partition]), (8, &first.to_be_bytes()), (10, &allocation.to_be_bytes())];
                CdbBytes::new(0x8c, &fields)
            }
            Self::WriteAttribute { partition, write_through, length } => {
                let fields: [(usize, &[u8]); 3] =
                    [(1, &[bit(write_through, 0)]), (7, &[partition]), (10, &length.to_be_bytes())];
                CdbBytes::new(0x8d, &fields)
            }
            Self::Space16 { unit, count } => CdbBytes::new(0x91, &[(1, &[unit as u8]), (4, &count.to_be_bytes())]),
            Self::Locate16 { immediate, target } => {
                let (kind, identifier) = match target {
                    LocateTarget::Block(block) => (0, block),
                    LocateTarget::File(file) => (1, file),
                    LocateTarget::EndOfData => (3, 0),
                };
                CdbBytes::new(0x92, &[(1, &[kind << 3 | bit(immediate, 0)]), (4, &identifier.to_be_bytes())])
            }
            Self::ReportLuns { allocation } => CdbBytes::new(0xa0, &[(6, &allocation.to_be_bytes())]),
            Self::MoveMedium { robot, source, destination } => {
                let fields: [(usize, &[u8]); 3] =
                    [(2, &robot.to_be_bytes()), (4, &source.to_be_bytes()), (6, &destination.to_be_bytes())];
                CdbBytes::new(0xa5, &fields)
            }
            Self::ReadElementStatus { kind, volume_tags, start, count, device_ids, allocation } => {
                let flags = bit(volume_tags, 4) | kind.map_or(0, |kind| kind as u8);
                let fields: [(usize, &[u8]); 5] = [
                    (1, &[flags]),
                    (2, &start.to_be_bytes()),
                    (4, &count.to_be_bytes()),
                    (6, &[bit(device_ids, 0)]),
                    (7, &be24(allocation)),
                ];
                CdbBytes::new(0xb8, &fields)
            }
        }
    }

    /// The name in the standard.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TestUnitReady => "TEST UNIT READY",
            Self::Rewind { .. } => "REWIND",
            Self::RequestSense { .. } => "REQUEST SENSE",
            Self::ReadBlockLimits => "READ BLOCK LIMITS",
            Self::InitializeElementStatus => "INITIALIZE ELEMENT STATUS",
            Self::Read6 { .. } => "READ(6)",
            Self::Write6 { .. } => "WRITE(6)",
            Self::WriteFilemarks6 { .. } => "WRITE FILEMARKS(6)",
            Self::Space6 { .. } => "SPACE(6)",
            Self::Inquiry { .. } => "INQUIRY",
            Self::ModeSelect6 { .. } => "MODE SELECT(6)",
            Self::Erase6 { .. } => "ERASE(6)",
            Self::ModeSense6 { .. } => "MODE SENSE(6)",
            Self::LoadUnload { load: true, .. } => "LOAD",
            Self::LoadUnload { .. } => "UNLOAD",
            Self::PreventRemoval { .. } => "PREVENT ALLOW MEDIUM REMOVAL",
            Self::Locate10 { .. } => "LOCATE(10)",
            Self::ReadPosition { .. } => "READ POSITION",
            Self::ReportDensity { .. } => "REPORT DENSITY SUPPORT",
            Self::LogSense { .. } => "LOG SENSE",
            Self::ModeSelect10 { .. } => "MODE SELECT(10)",
            Self::ModeSense10 { .. } => "MODE SENSE(10)",
            Self::PersistentReserveIn { .. } => "PERSISTENT RESERVE IN",
            Self::PersistentReserveOut { .. } => "PERSISTENT RESERVE OUT",
            Self::ReadAttribute { .. } => "READ ATTRIBUTE",
            Self::WriteAttribute { .. } => "WRITE ATTRIBUTE",
            Self::Space16 { .. } => "SPACE(16)",
            Self::Locate16 { .. } => "LOCATE(16)",
            Self::ReportLuns { .. } => "REPORT LUNS",
            Self::MoveMedium { .. } => "MOVE MEDIUM",
            Self::ReadElementStatus { .. } => "READ ELEMENT STATUS",
        }
    }

    /// How long a transport waits at least before it says [`super::ScsiError::Timeout`].
    ///
    /// Generous on purpose, after IBM's LTO and TS4500 recommendations: a command given up too early leaves a drive in
    /// a state nobody knows. LOAD includes the media optimisation of an LTO-9 cartridge, which takes up to two hours.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        let minutes = match self {
            Self::Erase6 { long: true, .. } => 20 * 60,
            Self::LoadUnload { load: true, .. } => 150,
            Self::Space6 { .. } | Self::Space16 { .. } | Self::Locate10 { .. } | Self::Locate16 { .. } => 45,
            Self::InitializeElementStatus => 60,
            Self::Rewind { .. } | Self::LoadUnload { .. } | Self::MoveMedium { .. } => 20,
            Self::Read6 { .. } | Self::Write6 { .. } | Self::WriteFilemarks6 { .. } | Self::Erase6 { .. } => 30,
            Self::ReadElementStatus { .. } => 10,
            _ => 2,
        };
        Duration::from_secs(minutes * 60)
    }
}

fn mode_fields(no_block_descriptors: bool, control: PageControl, page: u8, subpage: u8) -> [u8; 3] {
    [bit(no_block_descriptors, 3), (control as u8) << 6 | page & 0x3f, subpage]
}
