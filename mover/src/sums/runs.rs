//! Contiguous runs of bytes and their sums, whatever the order in which they came. Pure.

use std::collections::BTreeMap;

use wire::{checksum::Sums, extent::ByteRange};

/// What has arrived: maximal contiguous runs, each with the sums of its bytes.
///
/// The caller makes sure that nothing is added twice.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By start: end, and sums.
    runs: BTreeMap<u64, (u64, Sums)>,
    bytes: u64,
}

impl Runs {
    /// Adds bytes that were not there before.
    pub(crate) fn add(&mut self, range: ByteRange, sums: Sums) {
        if range.is_empty() {
            return;
        }
        self.bytes += range.length();
        let (mut start, mut end, mut whole) = (range.offset(), range.end(), sums);
        if let Some((&before_start, &(before_end, before))) = self.runs.range(..start).next_back()
            && before_end == start
        {
            whole = before.followed_by(&whole, range.length());
            start = before_start;
        }
        if let Some((after_end, after)) = self.runs.remove(&end) {
            whole = whole.followed_by(&after, after_end - end);
            end = after_end;
        }
        self.runs.insert(start, (end, whole));
    }

    /// How many bytes there are.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sums of exactly this range, if it is one run.
    pub(crate) fn of(&self, range: ByteRange) -> Option<Sums> {
        if range.is_empty() {
            return Some(Sums::EMPTY);
        }
        self.runs.get(&range.offset()).filter(|(end, _)| *end == range.end()).map(|(_, sums)| *sums)
    }

    /// The end of the run that holds the byte at `offset`, or `offset` if it is not there.
    pub(crate) fn reach(&self, offset: u64) -> u64 {
        self.runs.range(..=offset).next_back().map_or(offset, |(_, (end, _))| (*end).max(offset))
    }

    /// Every run, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ByteRange, Sums)> + '_ {
        self.runs.iter().map(|(&start, &(end, sums))| {
            (ByteRange::between(start, end).expect("made of ranges that were checked"), sums)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sums::Tally;

    proptest! {
        /// However a file is cut and shuffled, its runs have the sums of its bytes.
        #[test]
        fn blocks_in_any_order_make_the_sums_of_the_whole(
            data in prop::collection::vec(any::<u8>(), 1..4000),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            order in any::<u64>(),
            missing in any::<prop::sample::Index>(),
        ) {
            let mut edges: Vec<usize> = cuts.drain(..).map(|cut| cut.index(data.len())).chain([0, data.len()]).collect();
            edges.sort_unstable();
            edges.dedup();
            let mut blocks: Vec<_> = edges.windows(2).map(|edge| edge[0]..edge[1]).collect();
            let gap = blocks[missing.index(blocks.len())].clone();
            blocks.sort_by_key(|block| (block.start as u64 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let (mut runs, mut tally) = (Runs::default(), Tally::new());
            for block in blocks.iter().filter(|block| **block != gap) {
                if let Some((range, sums)) = tally.add(block.start as u64, &data[block.clone()]) {
                    runs.add(range, sums);
                }
            }
            if let Some((range, sums)) = tally.take() {
                runs.add(range, sums);
            }
            let expected: Vec<_> = [0..gap.start, gap.end..data.len()]
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(|part| (ByteRange::between(part.start as u64, part.end as u64).expect("small"), Sums::of(&data[part])))
                .collect();
            prop_assert_eq!(runs.iter().collect::<Vec<_>>(), expected);
            prop_assert_eq!(runs.reach(0), if gap.start == 0 { 0 } else { gap.start as u64 });
            let whole = ByteRange::between(gap.start as u64, gap.end as u64).expect("small");
            runs.add(whole, Sums::of(&data[gap]));
            prop_assert_eq!(runs.of(ByteRange::new(0, data.len() as u64).expect("small")), Some(Sums::of(&data)));
            prop_assert_eq!((runs.iter().count(), runs.bytes()), (1, data.len() as u64));
        }
    }
}
