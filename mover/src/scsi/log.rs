//! LOG SENSE: pages of numbered parameters, TapeAlert flags and the remaining capacity.
//!
//! Parameters are read by their length, never as a fixed structure: drives add bytes between firmware versions
//! (LTFS #183).
//!
//! # Source
//!
//! SPC-5, 7.3; SSC-5, 8.2.3 (TapeAlert) and annex A (flags); IBM LTO SCSI reference, page 31h (tape capacity).

use super::fields::{Fields, Malformed, clamp16};

/// Page of supported pages.
pub const SUPPORTED_PAGE: u8 = 0x00;
/// Page of the sequential-access device.
pub const SEQUENTIAL_PAGE: u8 = 0x0c;
/// Page of volume statistics.
pub const VOLUME_PAGE: u8 = 0x17;
/// Page of TapeAlert flags; reading it clears them.
pub const TAPE_ALERT_PAGE: u8 = 0x2e;
/// Page of the tape's capacity, in MiB.
pub const CAPACITY_PAGE: u8 = 0x31;

/// One parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogParameter {
    /// Which.
    pub code: u16,
    /// Its value, big-endian.
    pub value: Vec<u8>,
}

impl LogParameter {
    /// A number of four bytes.
    #[must_use]
    pub fn number(code: u16, value: u64) -> Self {
        Self { code, value: u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes().to_vec() }
    }

    /// The value as a number; `None` if it has no byte or more than eight.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        if self.value.is_empty() || self.value.len() > 8 {
            return None;
        }
        Some(self.value.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// A log page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPage {
    /// Page code.
    pub page: u8,
    /// Its parameters, in the order sent.
    pub parameters: Vec<LogParameter>,
}

impl LogPage {
    /// Decodes a page of parameters.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if a length leads outside what is there.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let all = Fields::new("log page", bytes);
        let page = all.u8(0)? & 0x3f;
        let mut rest = all.part(4, usize::from(all.u16(2)?))?;
        let mut parameters = Vec::new();
        while rest.len() > 0 {
            let length = usize::from(rest.u8(3)?);
            parameters.push(LogParameter { code: rest.u16(0)?, value: rest.bytes(4, length)?.to_vec() });
            rest = rest.rest(4 + length);
        }
        Ok(Self { page, parameters })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.page & 0x3f, 0, 0, 0];
        for parameter in &self.parameters {
            bytes.extend_from_slice(&parameter.code.to_be_bytes());
            bytes.extend_from_slice(&[0x03, u8::try_from(parameter.value.len()).unwrap_or(u8::MAX)]);
            bytes.extend_from_slice(&parameter.value);
        }
        let length = clamp16(bytes.len() - 4).to_be_bytes();
        bytes[2..4].copy_from_slice(&length);
        bytes
    }

    /// A parameter as a number.
    #[must_use]
    pub fn number(&self, code: u16) -> Option<u64> {
        self.parameters.iter().find(|parameter| parameter.code == code)?.as_number()
    }
}

/// The TapeAlert flags that are up: bit *n* - 1 is flag *n*, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapeAlerts(pub u64);

impl TapeAlerts {
    /// Flag 20: the drive needs cleaning now.
    pub const CLEAN_NOW: u8 = 20;
    /// Flag 21: the drive is due for cleaning.
    pub const CLEAN_PERIODIC: u8 = 21;

    /// What is up in page 2Eh.
    #[must_use]
    pub fn of(page: &LogPage) -> Self {
        let mut alerts = Self::default();
        for parameter in &page.parameters {
            if let Ok(flag @ 1..=64) = u8::try_from(parameter.code)
                && parameter.value.last().is_some_and(|value| value & 1 == 1)
            {
                alerts.raise(flag);
            }
        }
        alerts
    }

    /// Page 2Eh with all 64 flags.
    #[must_use]
    pub fn page(self) -> LogPage {
        let parameters =
            (1..=64).map(|flag| LogParameter { code: u16::from(flag), value: vec![self.has(flag).into()] });
        LogPage { page: TAPE_ALERT_PAGE, parameters: parameters.collect() }
    }

    /// Puts a flag up; numbers outside 1 to 64 are none.
    pub fn raise(&mut self, flag: u8) {
        if let 1..=64 = flag {
            self.0 |= 1 << (flag - 1);
        }
    }

    /// Whether a flag is up.
    #[must_use]
    pub const fn has(self, flag: u8) -> bool {
        matches!(flag, 1..=64) && self.0 >> (flag.wrapping_sub(1) & 63) & 1 == 1
    }

    /// The numbers of the flags that are up.
    pub fn flags(self) -> impl Iterator<Item = u8> {
        (1..=64).filter(move |&flag| self.has(flag))
    }

    /// Whether the drive asks to be cleaned.
    #[must_use]
    pub const fn wants_cleaning(self) -> bool {
        self.has(Self::CLEAN_NOW) || self.has(Self::CLEAN_PERIODIC)
    }

    /// Whether nothing more should be written in this drive to this volume: any flag but cleaning being due and
    /// 32h, as CTA decides.
    #[must_use]
    pub fn forbids_writing(self) -> bool {
        self.flags().any(|flag| flag != Self::CLEAN_PERIODIC && flag != 0x32)
    }
}

/// Page 31h in bytes: what is left and what there is of the main partition. A hint, never the truth (mhvtl #186).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Bytes that can still be written.
    pub remaining_bytes: u64,
    /// Bytes of the whole partition.
    pub maximum_bytes: u64,
}

impl Capacity {
    /// Decodes page 31h; `None` if the parameters are not there.
    #[must_use]
    pub fn of(page: &LogPage) -> Option<Self> {
        let bytes = |code| page.number(code).map(|mebibytes| mebibytes.saturating_mul(1 << 20));
        Some(Self { remaining_bytes: bytes(1)?, maximum_bytes: bytes(3)? })
    }

    /// Encodes page 31h.
    #[must_use]
    pub fn page(self) -> LogPage {
        let parameters = vec![
            LogParameter::number(1, self.remaining_bytes >> 20),
            LogParameter::number(2, 0),
            LogParameter::number(3, self.maximum_bytes >> 20),
            LogParameter::number(4, 0),
        ];
        LogPage { page: CAPACITY_PAGE, parameters }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn alerts_come_back_through_their_page() {
        let mut alerts = TapeAlerts::default();
        for flag in [0, 3, 20, 64, 65] {
            alerts.raise(flag);
        }
        let bytes = alerts.page().encode();
        let back = TapeAlerts::of(&LogPage::decode(&bytes).unwrap());
        assert_eq!(back.flags().collect::<Vec<_>>(), [3, 20, 64]);
        assert!(back.wants_cleaning() && back.forbids_writing());
        for cut in 0..bytes.len() {
            assert!(LogPage::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_parameter_longer_than_expected_is_still_a_number() {
        let page =
            LogPage { page: 0x31, parameters: vec![LogParameter { code: 1, value: vec![0, 0, 0, 0, 0, 0, 1, 0] }] };
        assert_eq!(LogPage::decode(&page.encode()).unwrap().number(1), Some(256));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(page) = LogPage::decode(&bytes) {
                let _ = (TapeAlerts::of(&page), Capacity::of(&page));
            }
        }
    }
}
