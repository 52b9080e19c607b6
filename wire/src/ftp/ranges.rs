//! Byte ranges as FTP writes them.
//!
//! Owns the text form of restart markers, over [`Coverage`], which owns the arithmetic.

use crate::extent::{ByteRange, Coverage};

/// Why a list of ranges is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedRanges {
    /// Not of the form `a-b,c-d`, each with `a <= b`.
    #[error("byte ranges must read FIRST-END,FIRST-END with END excluded, not {text:?}")]
    Syntax {
        /// The part that does not fit, shortened.
        text: String,
    },
    /// An offset is beyond 2^63 - 1.
    #[error("a byte range ends beyond the largest file offset")]
    TooLarge,
    /// More separate ranges than a [`Coverage`] holds.
    #[error("too many separate byte ranges")]
    TooMany,
}

/// Reads `a-b,c-d`, in any order and overlapping or not; spaces around the parts are allowed.
///
/// Half open: `0-100` is the first hundred bytes. GFD.20 section 4.3; that the end is exclusive is what Globus sends
/// and accepts.
///
/// # Errors
///
/// [`MalformedRanges`] for any other text.
pub fn parse_ranges(text: &str) -> Result<Coverage, MalformedRanges> {
    let mut coverage = Coverage::new();
    for part in text.trim().split(',') {
        let syntax = || MalformedRanges::Syntax { text: part.chars().take(40).collect() };
        let (start, end) = part.trim().split_once('-').ok_or_else(syntax)?;
        let number = |digits: &str| {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(syntax());
            }
            digits.parse::<u64>().map_err(|_| MalformedRanges::TooLarge)
        };
        let (start, end) = (number(start)?, number(end)?);
        if start > end {
            return Err(syntax());
        }
        let range = ByteRange::between(start, end).map_err(|_| MalformedRanges::TooLarge)?;
        coverage.merge(range).map_err(|_| MalformedRanges::TooMany)?;
    }
    Ok(coverage)
}

/// Writes `a-b,c-d`; nothing at all is `0-0`.
pub fn format_ranges(coverage: &Coverage) -> String {
    let ranges: Vec<String> = coverage.ranges().map(|range| range.to_string()).collect();
    if ranges.is_empty() { "0-0".to_owned() } else { ranges.join(",") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_and_overlaps_become_one_range() {
        assert_eq!(format_ranges(&parse_ranges("10-20,30-40,20-25,24-30").unwrap()), "10-40");
        assert_eq!(format_ranges(&parse_ranges("0-0").unwrap()), "0-0");
    }

    #[test]
    fn what_is_not_a_list_of_ranges_is_refused() {
        for text in ["", "5", "-", "5-", "-5", "a-b", "5-4", "0-1,", "+1-2", "0--1"] {
            assert!(matches!(parse_ranges(text), Err(MalformedRanges::Syntax { .. })), "{text}");
        }
        for text in ["0-9223372036854775808", "0-99999999999999999999"] {
            assert_eq!(parse_ranges(text), Err(MalformedRanges::TooLarge));
        }
    }

    proptest! {
        #[test]
        fn every_coverage_survives_the_round_trip(parts in proptest::collection::vec((0u64..1 << 40, 0u64..1000), 0..30)) {
            let mut coverage = Coverage::new();
            for (offset, length) in parts {
                coverage.merge(ByteRange::new(offset, length).unwrap()).unwrap();
            }
            prop_assert_eq!(parse_ranges(&format_ranges(&coverage)).unwrap(), coverage);
        }
    }
}
