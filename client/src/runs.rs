//! Which bytes of a file are here, with the checksums of each contiguous run.
//!
//! Owns the arithmetic that makes the sum of a whole file out of blocks that came in any order, so that nothing is read
//! twice to be checked. Pure.
//!
//! Invariant: runs neither overlap nor touch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage, MAX_COVERAGE_RANGES},
};

/// A contiguous run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// Adler-32 of its bytes.
    pub adler32: u32,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
}

/// A set of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs {
    /// Start → length and sums.
    runs: BTreeMap<u64, (u64, Sums)>,
}

impl Runs {
    /// Nothing.
    pub const fn new() -> Self {
        Self { runs: BTreeMap::new() }
    }

    /// Adds bytes that were not there, joining them to their neighbours. `false`, and nothing changes, if some were, or
    /// if there are too many separate runs.
    #[must_use]
    pub fn add(&mut self, range: ByteRange, sums: Sums) -> bool {
        if range.is_empty() {
            return true;
        }
        let before = self.runs.range(..=range.offset()).next_back().map(|(start, run)| (*start, *run));
        let after = self.runs.range(range.offset()..).next().map(|(start, run)| (*start, *run));
        let overlaps = before.is_some_and(|(start, (length, _))| start + length > range.offset())
            || after.is_some_and(|(start, _)| start < range.end());
        let joins_before = before.is_some_and(|(start, (length, _))| start + length == range.offset());
        let joins_after = after.is_some_and(|(start, _)| start == range.end());
        if overlaps || (!joins_before && !joins_after && self.runs.len() >= MAX_COVERAGE_RANGES) {
            return false;
        }
        let (mut start, mut length, mut sums) = (range.offset(), range.length(), sums);
        if let (true, Some((before_start, (before_length, before_sums)))) = (joins_before, before) {
            sums = before_sums.followed_by(&sums, length);
            (start, length) = (before_start, length + before_length);
        }
        if let (true, Some((after_start, (after_length, after_sums)))) = (joins_after, after) {
            sums = sums.followed_by(&after_sums, after_length);
            length += after_length;
            self.runs.remove(&after_start);
        }
        self.runs.insert(start, (length, sums));
        true
    }

    /// The sums of the whole file, if every byte is there.
    pub fn whole(&self, size_bytes: u64) -> Option<Sums> {
        if size_bytes == 0 && self.runs.is_empty() {
            return Some(Sums::EMPTY);
        }
        let (start, (length, sums)) = self.runs.iter().next()?;
        (self.runs.len() == 1 && *start == 0 && *length == size_bytes).then_some(*sums)
    }

    /// Which bytes are there.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::new();
        for run in self.list() {
            let range = ByteRange::new(run.offset_bytes, run.length_bytes);
            // Runs are disjoint, and no more than a coverage holds.
            let _ = range.map(|range| coverage.merge(range));
        }
        coverage
    }

    /// How many bytes are there.
    pub fn bytes(&self) -> u64 {
        self.runs.values().map(|(length, _)| length).sum()
    }

    /// The runs, in order.
    pub fn list(&self) -> Vec<Run> {
        let make = |(start, (length, sums)): (&u64, &(u64, Sums))| Run {
            offset_bytes: *start,
            length_bytes: *length,
            adler32: sums.adler32,
            crc32c: sums.crc32c,
        };
        self.runs.iter().map(make).collect()
    }

    /// Reads runs back. `None` if they overlap or end beyond `size_bytes`.
    pub fn from_list(list: &[Run], size_bytes: u64) -> Option<Self> {
        let mut runs = Self::new();
        for run in list {
            let range = ByteRange::new(run.offset_bytes, run.length_bytes).ok()?;
            let sums = Sums { adler32: run.adler32, crc32c: run.crc32c, ..Sums::EMPTY };
            if range.end() > size_bytes || !runs.add(range, sums) {
                return None;
            }
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).unwrap()
    }

    #[test]
    fn overlapping_bytes_are_refused() {
        let mut runs = Runs::new();
        assert!(runs.add(range(10, 10), Sums::of(&[1; 10])));
        let before = runs.clone();
        for (offset, length) in [(10, 1), (19, 1), (5, 6), (0, 100), (12, 3)] {
            assert!(!runs.add(range(offset, length), Sums::EMPTY), "{offset}+{length}");
        }
        assert_eq!(runs, before);
        assert!(runs.whole(20).is_none());
        assert_eq!(Runs::new().whole(0), Some(Sums::EMPTY));
    }

    proptest! {
        #[test]
        fn blocks_in_any_order_give_the_sum_of_the_whole(
            data in proptest::collection::vec(any::<u8>(), 1..600),
            cuts in proptest::collection::vec(0usize..600, 0..12),
            order in any::<u64>(),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % data.len()).chain([0, data.len()]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let mut blocks: Vec<(usize, usize)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let count = blocks.len() as u64;
            blocks.sort_by_key(|(start, _)| (*start as u64 + 1).wrapping_mul(order | 1) % (count + 7));
            let mut runs = Runs::new();
            for (start, end) in blocks {
                prop_assert!(runs.add(range(start as u64, (end - start) as u64), Sums::of(&data[start..end])));
                let again = Runs::from_list(&runs.list(), data.len() as u64).unwrap();
                prop_assert_eq!(&again, &runs);
            }
            prop_assert_eq!(runs.whole(data.len() as u64), Some(Sums::of(&data)));
            prop_assert_eq!(runs.bytes(), data.len() as u64);
        }
    }
}
