//! What only tape drives say: READ POSITION and READ BLOCK LIMITS.
//!
//! # Source
//!
//! SSC-5, 7.4 (READ POSITION: short, long and extended form) and 7.3 (READ BLOCK LIMITS).

use super::cdb::PositionForm;
use super::fields::{Fields, Malformed, be24};

/// Where a drive's head is, as any of the three forms says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// At the beginning of the partition.
    pub beginning: bool,
    /// At or past early warning.
    pub end: bool,
    /// The object that the next command meets; `None` if the drive does not know (LOLU, LONU).
    pub next_object: Option<u64>,
    /// The object that will next go from the buffer to the medium. Equal to `next_object` if the buffer is empty.
    /// Not in the long form.
    pub next_on_medium: Option<u64>,
    /// Objects in the buffer; `None` if the drive does not know or the form does not say.
    pub buffered_objects: Option<u64>,
    /// Bytes in the buffer, as `buffered_objects`.
    pub buffered_bytes: Option<u64>,
    /// Filemarks before the position; long form only.
    pub filemarks: Option<u64>,
    /// At or past the programmable early warning zone.
    pub programmable_warning: bool,
}

const BOP: u8 = 0x80;
const EOP: u8 = 0x40;
/// Logical object count unknown.
const LOCU: u8 = 0x20;
/// Byte count unknown.
const BYCU: u8 = 0x10;
/// Mark position unknown (long form).
const MPU: u8 = 0x08;
/// Logical object location unknown; in the long form LONU, the number unknown.
const LOLU: u8 = 0x04;
const BPEW: u8 = 0x01;

impl Position {
    /// Bytes of the answer in `form`.
    #[must_use]
    pub const fn bytes(form: PositionForm) -> u16 {
        match form {
            PositionForm::Short => 20,
            PositionForm::Long | PositionForm::Extended => 32,
        }
    }

    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(form: PositionForm, bytes: &[u8]) -> Result<Self, Malformed> {
        let fields = Fields::new("READ POSITION data", bytes);
        // A complete answer or none: half a position is worse than no position.
        let fields = fields.part(0, usize::from(Self::bytes(form)))?;
        let flags = fields.u8(0)?;
        let known = flags & LOLU == 0;
        let mut position = Self {
            beginning: flags & BOP != 0,
            end: flags & EOP != 0,
            programmable_warning: flags & BPEW != 0,
            ..Self::default()
        };
        let (next, medium, objects, buffered) = match form {
            PositionForm::Long => {
                position.next_object = known.then_some(fields.u64(8)?);
                position.filemarks = (flags & MPU == 0).then_some(fields.u64(16)?);
                return Ok(position);
            }
            PositionForm::Short => (
                u64::from(fields.u32(4)?),
                u64::from(fields.u32(8)?),
                u64::from(fields.u24(13)?),
                u64::from(fields.u32(16)?),
            ),
            PositionForm::Extended => (fields.u64(8)?, fields.u64(16)?, u64::from(fields.u24(5)?), fields.u64(24)?),
        };
        position.next_object = known.then_some(next);
        position.next_on_medium = known.then_some(medium);
        position.buffered_objects = (flags & LOCU == 0).then_some(objects);
        position.buffered_bytes = (flags & BYCU == 0).then_some(buffered);
        Ok(position)
    }

    /// Encodes an answer. `None` from the short form if the position does not fit its 32 bits.
    #[must_use]
    pub fn encode(&self, form: PositionForm) -> Option<Vec<u8>> {
        let mut flags = 0;
        for (set, bit) in [
            (self.beginning, BOP),
            (self.end, EOP),
            (self.next_object.is_none(), LOLU),
            (self.programmable_warning, BPEW),
            (form != PositionForm::Long && self.buffered_objects.is_none(), LOCU),
            (form != PositionForm::Long && self.buffered_bytes.is_none(), BYCU),
            (form == PositionForm::Long && self.filemarks.is_none(), MPU),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let mut bytes = vec![0; usize::from(Self::bytes(form))];
        bytes[0] = flags;
        let next = self.next_object.unwrap_or(0);
        let medium = self.next_on_medium.unwrap_or(0);
        let objects = u32::try_from(self.buffered_objects.unwrap_or(0)).unwrap_or(0xff_ffff).min(0xff_ffff);
        match form {
            PositionForm::Short => {
                bytes[4..8].copy_from_slice(&u32::try_from(next).ok()?.to_be_bytes());
                bytes[8..12].copy_from_slice(&u32::try_from(medium).ok()?.to_be_bytes());
                bytes[13..16].copy_from_slice(&be24(objects));
                let buffered = u32::try_from(self.buffered_bytes.unwrap_or(0)).unwrap_or(u32::MAX);
                bytes[16..20].copy_from_slice(&buffered.to_be_bytes());
            }
            PositionForm::Long => {
                bytes[8..16].copy_from_slice(&next.to_be_bytes());
                bytes[16..24].copy_from_slice(&self.filemarks.unwrap_or(0).to_be_bytes());
            }
            PositionForm::Extended => {
                bytes[3] = 0x1c;
                bytes[5..8].copy_from_slice(&be24(objects));
                bytes[8..16].copy_from_slice(&next.to_be_bytes());
                bytes[16..24].copy_from_slice(&medium.to_be_bytes());
                bytes[24..32].copy_from_slice(&self.buffered_bytes.unwrap_or(0).to_be_bytes());
            }
        }
        Some(bytes)
    }

    /// Whether nothing waits in the buffer, for certain.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.buffered_objects == Some(0)
            && self.buffered_bytes == Some(0)
            && self.next_object.is_some()
            && self.next_object == self.next_on_medium
    }
}

/// What READ BLOCK LIMITS says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// The longest block in bytes; 0 is no limit but the 24 bits of the command.
    pub longest: u32,
    /// The shortest block in bytes.
    pub shortest: u16,
}

impl BlockLimits {
    /// Bytes of the answer.
    pub const BYTES: usize = 6;

    /// Decodes an answer.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if it is cut short.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let fields = Fields::new("READ BLOCK LIMITS data", bytes);
        Ok(Self { longest: fields.u24(1)?, shortest: fields.u16(4)? })
    }

    /// Encodes an answer.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let [a, b, c] = be24(self.longest);
        let [d, e] = self.shortest.to_be_bytes();
        [0, a, b, c, d, e]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_comes_back_in_the_forms_that_can_say_it(next in any::<u32>(), objects in 0u64..1000, flags in any::<[bool; 3]>()) {
            let position = Position {
                beginning: flags[0],
                end: flags[1],
                programmable_warning: flags[2],
                next_object: Some(u64::from(next)),
                next_on_medium: Some(u64::from(next).saturating_sub(objects)),
                buffered_objects: Some(objects),
                buffered_bytes: Some(objects * 1000),
                filemarks: None,
            };
            for form in [PositionForm::Short, PositionForm::Extended] {
                let bytes = position.encode(form).unwrap();
                prop_assert_eq!(Position::decode(form, &bytes).unwrap(), position);
                for cut in 0..bytes.len() {
                    prop_assert!(Position::decode(form, &bytes[..cut]).is_err());
                }
            }
            let long = Position { filemarks: Some(objects), next_on_medium: None, buffered_objects: None, buffered_bytes: None, ..position };
            let bytes = long.encode(PositionForm::Long).unwrap();
            prop_assert_eq!(Position::decode(PositionForm::Long, &bytes).unwrap(), long);
        }
    }

    #[test]
    fn an_unknown_position_is_none_not_zero() {
        let lost = Position::default();
        let bytes = lost.encode(PositionForm::Extended).unwrap();
        let back = Position::decode(PositionForm::Extended, &bytes).unwrap();
        assert_eq!((back.next_object, back.buffered_objects), (None, None));
        assert!(!back.is_flushed());
    }

    #[test]
    fn a_position_beyond_32_bits_has_no_short_form() {
        let far = Position { next_object: Some(1 << 33), next_on_medium: Some(1 << 33), ..Position::default() };
        assert_eq!(far.encode(PositionForm::Short), None);
    }
}
