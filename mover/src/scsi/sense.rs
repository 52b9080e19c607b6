//! Sense data: why a command did not simply succeed, in fixed and descriptor format.
//!
//! Pure. Decoding takes whatever a device sends and never refuses a sense for being short: what is not there is zero,
//! because a cut sense still says that something went wrong.

use std::fmt;

/// What a device says about a command that ended with CHECK CONDITION.
///
/// # Source
///
/// SPC-5, 4.4: fixed format (response codes 70h, 71h) and descriptor format (72h, 73h); SSC-5, 4.2 for the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sense {
    /// The kind of condition.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The condition belongs to an earlier command that was answered with GOOD.
    pub deferred: bool,
    /// A filemark was read or met.
    pub filemark: bool,
    /// At or past early warning, or at the beginning of medium when moving backwards.
    pub end_of_medium: bool,
    /// The block read has another length than was asked for.
    pub wrong_length: bool,
    /// The INFORMATION field, if valid: mostly requested minus actual, so it may be negative.
    pub information: Option<i64>,
}

/// The sense key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SenseKey {
    /// 0h.
    NoSense = 0,
    /// 1h: done, with effort.
    RecoveredError = 1,
    /// 2h.
    NotReady = 2,
    /// 3h.
    MediumError = 3,
    /// 4h.
    HardwareError = 4,
    /// 5h.
    IllegalRequest = 5,
    /// 6h: something happened since the last command.
    UnitAttention = 6,
    /// 7h.
    DataProtect = 7,
    /// 8h: nothing is recorded here.
    BlankCheck = 8,
    /// 9h.
    VendorSpecific = 9,
    /// Ah.
    CopyAborted = 10,
    /// Bh.
    AbortedCommand = 11,
    /// Ch: obsolete.
    Reserved = 12,
    /// Dh: the medium is full; the data was not written.
    VolumeOverflow = 13,
    /// Eh.
    Miscompare = 14,
    /// Fh.
    Completed = 15,
}

impl SenseKey {
    /// The key of the low four bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0x0f {
            0 => Self::NoSense,
            1 => Self::RecoveredError,
            2 => Self::NotReady,
            3 => Self::MediumError,
            4 => Self::HardwareError,
            5 => Self::IllegalRequest,
            6 => Self::UnitAttention,
            7 => Self::DataProtect,
            8 => Self::BlankCheck,
            9 => Self::VendorSpecific,
            10 => Self::CopyAborted,
            11 => Self::AbortedCommand,
            12 => Self::Reserved,
            13 => Self::VolumeOverflow,
            14 => Self::Miscompare,
            _ => Self::Completed,
        }
    }
}

const FILEMARK: u8 = 0x80;
const END_OF_MEDIUM: u8 = 0x40;
const WRONG_LENGTH: u8 = 0x20;
/// Descriptor type of the INFORMATION descriptor.
const INFORMATION_DESCRIPTOR: u8 = 0x00;
/// Descriptor type of the stream commands descriptor, which holds FILEMARK, EOM and ILI.
const STREAM_DESCRIPTOR: u8 = 0x04;

impl Sense {
    /// A plain current condition.
    #[must_use]
    pub const fn new(key: SenseKey, asc: u8, ascq: u8) -> Self {
        Self {
            key,
            asc,
            ascq,
            deferred: false,
            filemark: false,
            end_of_medium: false,
            wrong_length: false,
            information: None,
        }
    }

    /// The same for an earlier command.
    #[must_use]
    pub const fn deferred(mut self) -> Self {
        self.deferred = true;
        self
    }

    /// With the FILEMARK bit.
    #[must_use]
    pub const fn at_filemark(mut self) -> Self {
        self.filemark = true;
        self
    }

    /// With the EOM bit.
    #[must_use]
    pub const fn at_end_of_medium(mut self) -> Self {
        self.end_of_medium = true;
        self
    }

    /// With the ILI bit.
    #[must_use]
    pub const fn of_wrong_length(mut self) -> Self {
        self.wrong_length = true;
        self
    }

    /// With an INFORMATION field.
    #[must_use]
    pub const fn with_information(mut self, information: i64) -> Self {
        self.information = Some(information);
        self
    }

    /// Key and codes, as tables list them.
    #[must_use]
    pub const fn code(&self) -> (u8, u8, u8) {
        (self.key as u8, self.asc, self.ascq)
    }

    /// Reads sense data; `None` if it is empty or its response code is none we know.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? & 0x7f {
            code @ (0x70 | 0x71) => Some(Self::decode_fixed(bytes, code == 0x71)),
            code @ (0x72 | 0x73) => Some(Self::decode_descriptor(bytes, code == 0x73)),
            _ => None,
        }
    }

    fn decode_fixed(bytes: &[u8], deferred: bool) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let valid = byte(0) & 0x80 != 0 && bytes.len() >= 7;
        let information = i32::from_be_bytes([byte(3), byte(4), byte(5), byte(6)]);
        // ADDITIONAL SENSE LENGTH says how far the sense goes; padding behind it is not sense.
        let end = if bytes.len() > 7 { 8 + usize::from(byte(7)) } else { 0 };
        let code = |at: usize| if at < end { byte(at) } else { 0 };
        Self {
            key: SenseKey::from_bits(byte(2)),
            asc: code(12),
            ascq: code(13),
            deferred,
            filemark: byte(2) & FILEMARK != 0,
            end_of_medium: byte(2) & END_OF_MEDIUM != 0,
            wrong_length: byte(2) & WRONG_LENGTH != 0,
            information: valid.then_some(i64::from(information)),
        }
    }

    fn decode_descriptor(bytes: &[u8], deferred: bool) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let mut sense = Self::new(SenseKey::from_bits(byte(1)), byte(2), byte(3));
        sense.deferred = deferred;
        let end = (8 + usize::from(byte(7))).min(bytes.len());
        let mut rest = bytes.get(8..end).unwrap_or_default();
        while let [kind, length, ..] = *rest {
            let Some((descriptor, after)) = rest.split_at_checked(2 + usize::from(length)) else { break };
            match kind {
                INFORMATION_DESCRIPTOR if descriptor.len() >= 12 && descriptor[2] & 0x80 != 0 => {
                    let field = descriptor[4..12].try_into().expect("the slice has eight bytes");
                    sense.information = Some(i64::from_be_bytes(field));
                }
                STREAM_DESCRIPTOR if descriptor.len() >= 4 => {
                    sense.filemark = descriptor[3] & FILEMARK != 0;
                    sense.end_of_medium = descriptor[3] & END_OF_MEDIUM != 0;
                    sense.wrong_length = descriptor[3] & WRONG_LENGTH != 0;
                }
                _ => {}
            }
            rest = after;
        }
        sense
    }

    fn bits(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.filemark, FILEMARK) | bit(self.end_of_medium, END_OF_MEDIUM) | bit(self.wrong_length, WRONG_LENGTH)
    }

    /// Fixed format. An INFORMATION that does not fit its 32 bits is left out, as SPC-5 asks.
    #[must_use]
    pub fn encode_fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = if self.deferred { 0x71 } else { 0x70 };
        bytes[2] = self.bits() | self.key as u8;
        if let Some(information) = self.information.and_then(|wide| i32::try_from(wide).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes[7] = 10;
        bytes[12] = self.asc;
        bytes[13] = self.ascq;
        bytes
    }

    /// Descriptor format.
    #[must_use]
    pub fn encode_descriptor(&self) -> Vec<u8> {
        let mut bytes = vec![if self.deferred { 0x73 } else { 0x72 }, self.key as u8, self.asc, self.ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[INFORMATION_DESCRIPTOR, 10, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if self.bits() != 0 {
            bytes.extend_from_slice(&[STREAM_DESCRIPTOR, 2, 0, self.bits()]);
        }
        bytes[7] = u8::try_from(bytes.len() - 8).expect("at most 16 bytes of descriptors");
        bytes
    }
}

impl fmt::Display for Sense {
    /// As operators write it: `3/11/00`, with `deferred` and the set bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, asc, ascq) = self.code();
        write!(f, "{key:X}/{asc:02X}/{ascq:02X}")?;
        for (set, name) in [
            (self.deferred, "deferred"),
            (self.filemark, "filemark"),
            (self.end_of_medium, "end of medium"),
            (self.wrong_length, "wrong length"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        self.information.map_or(Ok(()), |information| write!(f, " information {information}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_sense() -> impl Strategy<Value = Sense> {
        (0u8..16, any::<[u8; 2]>(), any::<[bool; 4]>(), proptest::option::of(any::<i32>())).prop_map(
            |(key, [asc, ascq], [deferred, filemark, end_of_medium, wrong_length], information)| Sense {
                key: SenseKey::from_bits(key),
                asc,
                ascq,
                deferred,
                filemark,
                end_of_medium,
                wrong_length,
                information: information.map(i64::from),
            },
        )
    }

    proptest! {
        #[test]
        fn both_formats_say_the_same(sense in any_sense()) {
            prop_assert_eq!(Sense::decode(&sense.encode_fixed()), Some(sense));
            prop_assert_eq!(Sense::decode(&sense.encode_descriptor()), Some(sense));
        }

        #[test]
        fn a_sense_cut_anywhere_keeps_its_key(sense in any_sense(), cut in 3usize..18) {
            let fixed = Sense::decode(&sense.encode_fixed()[..cut]).unwrap();
            prop_assert_eq!((fixed.key, fixed.deferred), (sense.key, sense.deferred));
            let descriptor = sense.encode_descriptor();
            let cut = Sense::decode(&descriptor[..cut.min(descriptor.len())]).unwrap();
            prop_assert_eq!(cut.key, sense.key);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Sense::decode(&bytes);
        }
    }

    #[test]
    fn a_block_larger_than_asked_gives_a_negative_information() {
        // As Linux's st sees it from a drive: read 64 KiB of a 256 KiB block.
        let bytes = [0xf0, 0, 0x20, 0xff, 0xfd, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let sense = Sense::decode(&bytes).unwrap();
        assert!(sense.wrong_length);
        assert_eq!(sense.information, Some(-196_608));
    }

    #[test]
    fn empty_or_unknown_sense_is_none() {
        assert_eq!(Sense::decode(&[]), None);
        assert_eq!(Sense::decode(&[0x7f, 1, 2, 3]), None);
    }
}
