//! Byte ranges, extents and coverage: all offset arithmetic of the project.
//!
//! Offsets and lengths are bytes of file data. Every sum is checked, so that a peer's numbers can be refused but
//! never wrap around.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{FileId, VolumeLabel};

/// A range of bytes, `offset_bytes` first, `length_bytes` long; it ends at or before 2^63 - 1.
///
/// The limit is what FTP's `REST`, a database column and `off_t` can all say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct ByteRange {
    offset_bytes: u64,
    length_bytes: u64,
}

/// A range that would end beyond what a file offset can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{length_bytes} bytes from {offset_bytes} end beyond the largest file offset")]
pub struct RangeTooLarge {
    offset_bytes: u64,
    length_bytes: u64,
}

impl ByteRange {
    /// The range of `length_bytes` bytes from `offset_bytes`.
    ///
    /// # Errors
    ///
    /// [`RangeTooLarge`] if it would end beyond 2^63 - 1.
    pub const fn new(offset_bytes: u64, length_bytes: u64) -> Result<Self, RangeTooLarge> {
        match offset_bytes.checked_add(length_bytes) {
            Some(end) if end <= i64::MAX as u64 => Ok(Self { offset_bytes, length_bytes }),
            _ => Err(RangeTooLarge { offset_bytes, length_bytes }),
        }
    }

    /// The range from `start` up to, not including, `end`; empty if `end` is not beyond `start`.
    ///
    /// # Errors
    ///
    /// [`RangeTooLarge`] as for [`ByteRange::new`].
    pub const fn between(start: u64, end: u64) -> Result<Self, RangeTooLarge> {
        Self::new(start, end.saturating_sub(start))
    }

    /// Where the range begins.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset_bytes
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.length_bytes
    }

    /// The first offset behind the range.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.offset_bytes + self.length_bytes
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.length_bytes == 0
    }

    /// The bytes that both have; `None` if they share none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let start = self.offset().max(other.offset());
        let end = self.end().min(other.end());
        (start < end).then(|| Self { offset_bytes: start, length_bytes: end - start })
    }

    /// Cuts the range into `count` contiguous regions of nearly equal size, each but the last a multiple of
    /// `unit_bytes`. Regions that would be empty are left out, so fewer may come back.
    ///
    /// This is how a file is striped: region *i* belongs to mover *i*.
    #[must_use]
    pub fn regions(self, count: u16, unit_bytes: u64) -> Vec<Self> {
        let count = u64::from(count.max(1));
        let unit_bytes = unit_bytes.max(1);
        let size = self.length().div_ceil(count).div_ceil(unit_bytes).saturating_mul(unit_bytes).max(unit_bytes);
        let mut regions = Vec::new();
        let mut start = self.offset();
        while start < self.end() {
            let end = start.saturating_add(size).min(self.end());
            regions.push(Self { offset_bytes: start, length_bytes: end - start });
            start = end;
        }
        regions
    }
}

impl fmt::Display for ByteRange {
    /// As GridFTP writes ranges: `first-behind`, half open.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.offset(), self.end())
    }
}

impl TryFrom<(u64, u64)> for ByteRange {
    type Error = RangeTooLarge;

    fn try_from((offset, length): (u64, u64)) -> Result<Self, RangeTooLarge> {
        Self::new(offset, length)
    }
}

impl From<ByteRange> for (u64, u64) {
    fn from(range: ByteRange) -> Self {
        (range.offset(), range.length())
    }
}

/// Where on a volume an extent begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Place {
    /// In a file of a disk volume.
    Disk {
        /// Which file.
        file: FileId,
        /// The first byte, counted from the start of that file.
        offset_bytes: u64,
    },
    /// In a container on a tape.
    Tape {
        /// The container's sequence number on the volume, from 1.
        container: u32,
        /// Logical block address of the record in which the data begins.
        block: u64,
        /// How many bytes of that record come before the data.
        skip_bytes: u32,
    },
}

/// A contiguous piece of one volume: where a mover finds, or puts, bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// The medium.
    pub volume: VolumeLabel,
    /// Where it begins there.
    pub place: Place,
    /// How many bytes of data it holds.
    pub length_bytes: u64,
}

/// The most ranges a [`Coverage`] holds before it refuses another hole.
///
/// A peer that sends every other kilobyte would otherwise decide how much memory we use.
pub const MAX_COVERAGE_RANGES: usize = 65_536;

/// Which bytes of a file have arrived: a set of ranges, kept sorted, joined where they touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    // Disjoint, not touching, sorted by start; (start, end).
    ranges: Vec<(u64, u64)>,
}

/// Why a range cannot be added to a coverage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CoverageError {
    /// Some of these bytes are there already.
    #[error("bytes {range} overlap bytes received before")]
    Overlap {
        /// The range that came.
        range: ByteRange,
    },
    /// The data lies in more separate ranges than we keep count of.
    #[error("more than {MAX_COVERAGE_RANGES} separate ranges: send larger or fewer blocks out of order")]
    TooManyRanges,
}

impl Coverage {
    /// A coverage of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Adds bytes that must not be there yet.
    ///
    /// # Errors
    ///
    /// [`CoverageError::Overlap`] if some are; [`CoverageError::TooManyRanges`] if they leave too many holes. The
    /// coverage is unchanged then.
    pub fn add(&mut self, range: ByteRange) -> Result<(), CoverageError> {
        if range.is_empty() {
            return Ok(());
        }
        let (start, end) = (range.offset(), range.end());
        let at = self.ranges.partition_point(|&(_, before_end)| before_end < start);
        // Blocks mostly come in order: `at` is then the last range or behind it, and nothing moves.
        let overlaps = |&(other_start, other_end): &(u64, u64)| other_start < end && start < other_end;
        if self.ranges[at..].iter().take(2).any(overlaps) {
            return Err(CoverageError::Overlap { range });
        }
        let joins_before = self.ranges.get(at).is_some_and(|&(_, before_end)| before_end == start);
        let next = at + usize::from(joins_before);
        let joins_after = self.ranges.get(next).is_some_and(|&(after_start, _)| after_start == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[at].1 = self.ranges[next].1;
                self.ranges.remove(next);
            }
            (true, false) => self.ranges[at].1 = end,
            (false, true) => self.ranges[next].0 = start,
            (false, false) if self.ranges.len() == MAX_COVERAGE_RANGES => return Err(CoverageError::TooManyRanges),
            (false, false) => self.ranges.insert(at, (start, end)),
        }
        Ok(())
    }

    /// Adds bytes whether or not some are there already: the union, as restart markers are read.
    ///
    /// # Errors
    ///
    /// [`CoverageError::TooManyRanges`] if they leave too many holes.
    pub fn merge(&mut self, range: ByteRange) -> Result<(), CoverageError> {
        for part in self.missing_in(range) {
            self.add(part)?;
        }
        Ok(())
    }

    /// The ranges that are there, in order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = ByteRange> + '_ {
        self.ranges.iter().map(|&(start, end)| ByteRange { offset_bytes: start, length_bytes: end - start })
    }

    /// The parts of `range` that are not there, in order.
    #[must_use]
    pub fn missing_in(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut missing = Vec::new();
        let mut start = range.offset();
        let first = self.ranges.partition_point(|&(_, end)| end <= start);
        for &(have_start, have_end) in &self.ranges[first..] {
            if have_start >= range.end() {
                break;
            }
            if start < have_start {
                missing.push(ByteRange { offset_bytes: start, length_bytes: have_start - start });
            }
            start = have_end;
        }
        if start < range.end() {
            missing.push(ByteRange { offset_bytes: start, length_bytes: range.end() - start });
        }
        missing
    }

    /// Whether every byte of `range` is there.
    #[must_use]
    pub fn covers(&self, range: ByteRange) -> bool {
        self.missing_in(range).is_empty()
    }

    /// How many bytes are there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// The first offset behind the last byte that is there.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |&(_, end)| end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).expect("a small range")
    }

    #[test]
    fn a_range_that_wraps_around_is_refused() {
        assert!(ByteRange::new(u64::MAX, 2).is_err());
        assert!(ByteRange::new(i64::MAX as u64, 1).is_err());
        assert!(ByteRange::new(i64::MAX as u64, 0).is_ok());
    }

    #[test]
    fn ranges_that_are_apart_share_nothing() {
        assert_eq!(range(0, 5).intersection(range(7, 2)), None);
        assert_eq!(range(7, 2).intersection(range(0, 5)), None);
        assert_eq!(range(0, 5).intersection(range(5, 2)), None);
        assert_eq!(range(0, 8).intersection(range(7, 2)), Some(range(7, 1)));
    }

    #[test]
    fn bytes_that_come_twice_are_refused_and_change_nothing() {
        let mut coverage = Coverage::new();
        coverage.add(range(10, 10)).expect("new bytes");
        let before = coverage.clone();
        for again in [range(10, 1), range(19, 5), range(0, 11), range(0, 100), range(12, 2)] {
            assert_eq!(coverage.add(again), Err(CoverageError::Overlap { range: again }));
            assert_eq!(coverage, before);
        }
    }

    #[test]
    fn more_holes_than_we_count_are_refused() {
        let mut coverage = Coverage::new();
        for index in 0..MAX_COVERAGE_RANGES as u64 {
            coverage.add(range(index * 2, 1)).expect("within the limit");
        }
        assert_eq!(coverage.add(range(u64::from(u32::MAX), 1)), Err(CoverageError::TooManyRanges));
        coverage.add(range(1, 1)).expect("filling a hole needs no further range");
    }

    proptest! {
        #[test]
        fn a_coverage_is_the_set_of_its_bytes(parts in prop::collection::vec((0u64..200, 0u64..20), 0..60)) {
            let mut coverage = Coverage::new();
            let mut model = BTreeSet::new();
            for (offset, length) in parts {
                let bytes: BTreeSet<u64> = (offset..offset + length).collect();
                let fresh = model.is_disjoint(&bytes);
                prop_assert_eq!(coverage.add(range(offset, length)).is_ok(), fresh);
                if fresh {
                    model.extend(bytes);
                } else {
                    coverage.merge(range(offset, length)).expect("few ranges");
                    model.extend(bytes);
                }
                prop_assert_eq!(coverage.bytes(), model.len() as u64);
                prop_assert_eq!(coverage.end(), model.last().map_or(0, |last| last + 1));
            }
            let held: BTreeSet<u64> = coverage.ranges().flat_map(|part| part.offset()..part.end()).collect();
            prop_assert_eq!(&held, &model);
            let missing: BTreeSet<u64> =
                coverage.missing_in(range(0, 300)).into_iter().flat_map(|part| part.offset()..part.end()).collect();
            prop_assert!(missing.is_disjoint(&model) && missing.len() + model.len() == 300);
            let touching = coverage.ranges().zip(coverage.ranges().skip(1)).any(|(a, b)| a.end() >= b.offset());
            prop_assert!(!touching, "ranges that touch are joined");
        }

        #[test]
        fn regions_cover_a_file_once_in_order(offset in 0u64..5000, length in 0u64..100_000, count in 0u16..20, unit in 0u64..5000) {
            let whole = range(offset, length);
            let regions = whole.regions(count, unit);
            prop_assert!(regions.len() <= usize::from(count.max(1)));
            let mut at = whole.offset();
            for region in regions {
                prop_assert_eq!(region.offset(), at);
                prop_assert!(!region.is_empty());
                at = region.end();
            }
            prop_assert_eq!(at, whole.end());
        }
    }
}
