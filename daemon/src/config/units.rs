//! Sizes and times as people write them: `"256 MiB"`, `"30s"`.
//!
//! Owns their text forms. Pure. Never guesses a unit: a bare number is bytes for a size and an
//! error for a time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes, written `"256 MiB"`, `"10 GB"` or as a plain number of bytes.
///
/// `KiB`, `MiB`, `GiB`, `TiB`, `PiB` are powers of 1024; `kB`, `MB`, `GB`, `TB`, `PB` powers of
/// 1000 (IEC 80000-13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteSize(u64);

/// Largest first, so that formatting takes the largest that divides.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("PiB", 1 << 50),
    ("PB", 1_000_000_000_000_000),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// A length of time, written `"30s"`, `"1h 30m"`, `"250ms"`. Units: `d h m s ms us`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeSpan(Duration);

/// In microseconds, largest first.
const TIME_UNITS: &[(&str, u64)] =
    &[("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];

/// A text that is no size or time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct BadUnit {
    text: String,
    wanted: &'static str,
}

const WANTED_SIZE: &str = "a size such as \"256 MiB\", \"10 GB\" or a number of bytes";
const WANTED_TIME: &str = "a time such as \"30s\", \"1h 30m\" or \"250ms\" (units d, h, m, s, ms, us)";

impl ByteSize {
    /// So many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many KiB (1024 bytes).
    #[must_use]
    pub const fn kib(count: u32) -> Self {
        Self((count as u64) << 10)
    }

    /// So many MiB (1024 KiB).
    #[must_use]
    pub const fn mib(count: u32) -> Self {
        Self((count as u64) << 20)
    }

    /// So many GiB (1024 MiB).
    #[must_use]
    pub const fn gib(count: u32) -> Self {
        Self((count as u64) << 30)
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl TimeSpan {
    /// So many seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn milliseconds(count: u64) -> Self {
        Self(Duration::from_millis(count))
    }

    /// As the standard library's type.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// In microseconds, at most what an `i64` holds.
    #[must_use]
    pub fn micros(self) -> i64 {
        i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        let bad = || BadUnit { text: text.to_owned(), wanted: WANTED_SIZE };
        let (number, unit) = split(text.trim());
        let scale = match unit {
            "" => 1,
            unit => SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(bad)?.1,
        };
        scaled(number, scale).map(Self).ok_or_else(bad)
    }
}

impl FromStr for TimeSpan {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        let bad = || BadUnit { text: text.to_owned(), wanted: WANTED_TIME };
        let (mut rest, mut total) = (text.trim(), 0_u64);
        if rest == "0" {
            return Ok(Self::default());
        }
        while !rest.is_empty() || total == 0 {
            let (number, after) = split(rest);
            let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
            let (unit, after) = after.split_at(letters);
            let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1;
            total = scaled(number, scale).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
            rest = after.trim_start();
            if rest.is_empty() {
                break;
            }
        }
        Ok(Self(Duration::from_micros(total)))
    }
}

/// A number and what follows it, without the space between.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number` (digits, `_`, at most one point) times `scale`, exactly; `None` if it is no number, not
/// whole or too large.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let digits: String = number.chars().filter(|c| *c != '_').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    if fraction.contains('.') || fraction.len() > 15 || (digits.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let denominator = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(scale) * fraction.parse::<u128>().ok()?;
    (part % denominator == 0).then_some(())?;
    whole.checked_add(u64::try_from(part / denominator).ok()?)
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) =
            SIZE_UNITS.iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale)).unwrap_or(&("B", 1));
        write!(f, "{} {name}", self.0 / scale)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_micros();
        if rest == 0 {
            return f.write_str("0s");
        }
        let mut space = "";
        for (name, scale) in TIME_UNITS {
            let count = rest / u128::from(*scale);
            if count > 0 {
                write!(f, "{space}{count}{name}")?;
                rest %= u128::from(*scale);
                space = " ";
            }
        }
        Ok(())
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WANTED_SIZE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = TimeSpan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WANTED_TIME)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TimeSpan, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(TimeVisitor)
    }
}

impl From<Duration> for TimeSpan {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1_000", 1000),
            ("256 MiB", 256 << 20),
            ("1.5GiB", 3 << 29),
            ("10 GB", 10_000_000_000),
            ("4kb", 4000),
            ("7 B", 7),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap().bytes(), bytes, "{text}");
        }
        for text in ["", "MiB", "-1", "1.5", "1..5 MiB", "1.", "256 MiB/s", "20000 PiB", "0x10", "1e9", "1 M"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, micros) in [
            ("0", 0),
            ("0s", 0),
            ("30s", 30_000_000),
            ("1h 30m", 5_400_000_000),
            ("1h30m", 5_400_000_000),
            ("250ms", 250_000),
            ("1.5 s", 1_500_000),
            ("7us", 7),
        ] {
            assert_eq!(text.parse::<TimeSpan>().unwrap().micros(), micros, "{text}");
        }
        for text in ["", "30", "s", "1h 30", "-1s", "1 week", "1H", "99999999999999d", "1s,"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back_the_same() {
        for bytes in [0, 1, 1023, 1024, 1000, 3 << 29, 10_000_000_000, u64::MAX] {
            let size = ByteSize::new(bytes);
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
        for micros in [0, 1, 999_999, 5_400_000_000, 90_061_001_001] {
            let time = TimeSpan::from(Duration::from_micros(micros));
            assert_eq!(time.to_string().parse::<TimeSpan>().unwrap(), time);
        }
    }
}
