//! How long a file is to stay on disk, as Tape REST's clients write it.
//!
//! Pure.
//!
//! # Source
//!
//! ISO 8601-1:2019 section 5.5.2: `P1DT2H`, `PT30M`, `P2W`. Years and months have no length of their own: 365 and 30 days
//! here. A fraction may stand in the smallest part only; it is taken of seconds alone.

use std::time::Duration;

const DAY: u64 = 86_400;
/// Longest text that is looked at.
const MAX_LENGTH: usize = 64;

/// Reads a duration; one that is too large to count is the largest. `None` if it is none.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let rest = text.trim().strip_prefix('P').filter(|rest| !rest.is_empty() && rest.len() <= MAX_LENGTH)?;
    let (date, time) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (rest, ""),
    };
    let date = parts(date, &[('Y', 365 * DAY), ('M', 30 * DAY), ('W', 7 * DAY), ('D', DAY)])?;
    let time = parts(time, &[('H', 3600), ('M', 60), ('S', 1)])?;
    Some(Duration::from_secs(date.saturating_add(time)))
}

/// The sum of parts, each a number and a letter, in the order of the letters.
fn parts(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let (mut sum, mut units) = (0_u64, units.iter());
    while !text.is_empty() {
        let end = text.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, letter) = (&text[..end], text[end..].chars().next()?);
        let (_, seconds) = units.find(|(unit, _)| *unit == letter)?;
        let (whole, fraction) = number.split_once(['.', ',']).map_or((number, None), |(a, b)| (a, Some(b)));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || fraction.is_some_and(|fraction| letter != 'S' || !digits(fraction)) {
            return None;
        }
        // Part of a second keeps the file for the whole of it.
        let count = whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(fraction.map_or(0, |_| 1));
        sum = sum.saturating_add(count.saturating_mul(*seconds));
        text = &text[end + letter.len_utf8()..];
    }
    Some(sum)
}

/// A duration as it is told.
pub(super) fn write(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds % DAY {
        0 if seconds > 0 => format!("P{}D", seconds / DAY),
        _ => format!("PT{seconds}S"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_iso_8601_has_them() {
        for (text, seconds) in [
            ("PT1H", 3600),
            ("P1D", DAY),
            ("P1DT2H3M4S", DAY + 2 * 3600 + 3 * 60 + 4),
            ("P2W", 14 * DAY),
            ("P1Y2M", 425 * DAY),
            ("PT0.5S", 1),
            ("PT0S", 0),
            ("P99999999999999999999D", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "P", "PT", "1H", "PT1", "PTH", "P1H", "PT1D", "PT1M1H", "P-1D", "PT1.5H", "P1DT", "Pä", "PT+1S"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_duration_that_is_told_is_one_that_is_read() {
        for seconds in [0, 1, 3600, DAY, 30 * DAY, DAY + 1] {
            let duration = Duration::from_secs(seconds);
            assert_eq!(parse(&write(duration)), Some(duration));
        }
    }
}
