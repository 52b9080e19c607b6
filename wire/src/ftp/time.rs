//! Times as FTP writes them.
//!
//! Owns the conversion between `YYYYMMDDHHMMSS` and microseconds since the epoch. Never asks what time it is.

use std::{fmt, str::FromStr};

/// A moment in UTC, in microseconds since 1970-01-01, written as in RFC 3659 section 2.3: `20261130124056` or
/// `20261130124056.123`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FtpTime(i64);

/// Not a time of the form `YYYYMMDDHHMMSS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time must read YYYYMMDDHHMMSS or YYYYMMDDHHMMSS.FRACTION in UTC")]
pub struct MalformedTime;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;
/// 9999-12-31T23:59:59, the last moment with a four-digit year.
const LAST_SECOND: i64 = 253_402_300_799;

impl FtpTime {
    /// From microseconds since the epoch, cut to the years 1970 to 9999.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(0, LAST_SECOND * MICROS_PER_SECOND + MICROS_PER_SECOND - 1))
    }

    /// From seconds since the epoch, cut likewise.
    pub fn from_seconds(seconds: i64) -> Self {
        Self::from_micros(seconds.clamp(0, LAST_SECOND) * MICROS_PER_SECOND)
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch.
    pub fn seconds(self) -> i64 {
        self.0 / MICROS_PER_SECOND
    }

    /// Year, month (1–12), day (1–31), hour, minute, second.
    pub fn civil(self) -> (i64, u8, u8, u8, u8, u8) {
        let (days, rest) = (self.seconds() / SECONDS_PER_DAY, self.seconds() % SECONDS_PER_DAY);
        // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days; eras of 400 years from March.
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month as u8, day as u8, (rest / 3600) as u8, (rest / 60 % 60) as u8, (rest % 60) as u8)
    }
}

fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

impl FromStr for FtpTime {
    type Err = MalformedTime;

    fn from_str(text: &str) -> Result<Self, MalformedTime> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() != 14 || !digits(whole) || !digits(fraction) {
            return Err(MalformedTime);
        }
        let field = |at: std::ops::Range<usize>| whole[at].parse::<i64>().map_err(|_| MalformedTime);
        let (year, month, day) = (field(0..4)?, field(4..6)?, field(6..8)?);
        // A leap second counts as the second after.
        let (hour, minute, second) = (field(8..10)?, field(10..12)?, field(12..14)?);
        let valid = year >= 1970
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !valid {
            return Err(MalformedTime);
        }
        let seconds = days_since_epoch(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        let micros = format!("{fraction:0<6}")[..6].parse::<i64>().map_err(|_| MalformedTime)?;
        Ok(Self::from_micros(seconds * MICROS_PER_SECOND + micros))
    }
}

impl fmt::Display for FtpTime {
    /// Whole seconds: several clients refuse a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second) = self.civil();
        write!(f, "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_agree_with_date() {
        for (text, seconds) in [
            ("19700101000000", 0),
            ("20000229120000", 951_825_600),
            ("20261130124056", 1_796_042_456),
            ("99991231235959", LAST_SECOND),
        ] {
            assert_eq!(text.parse::<FtpTime>().unwrap().seconds(), seconds);
            assert_eq!(FtpTime::from_seconds(seconds).to_string(), text);
        }
        assert_eq!("20261130124056.25".parse::<FtpTime>().unwrap().micros(), 1_796_042_456_250_000);
    }

    #[test]
    fn impossible_dates_are_refused() {
        for text in [
            "",
            "2026",
            "20260230000000",
            "20261301000000",
            "20260101240000",
            "19691231235959",
            "2026010100000x",
            "20260101000000.",
            "２0260101000000",
        ] {
            assert!(text.parse::<FtpTime>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_second_survives_the_round_trip(seconds in 0..=LAST_SECOND) {
            prop_assert_eq!(FtpTime::from_seconds(seconds).to_string().parse::<FtpTime>().unwrap().seconds(), seconds);
        }
    }
}
