//! Which of several disk copies of a file is sent, or which part of each.
//!
//! Pure. A client that takes data from several addresses or connections gets a part from every copy; any other gets
//! one copy, so that nothing has to pass through a mover that does not hold it.

use catalog::Segment;
use wire::{extent::ByteRange, id::MoverId, mover::Framing};

use super::{PortView, SideView};

/// A source sends at least so much: below, what it costs to start it is more than it brings.
const LEAST_SHARE_BYTES: u64 = 4 << 20;

/// A segment of a copy, and what is sent of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::transfer) struct Held {
    pub(in crate::transfer) segment: Segment,
    /// Whose volume it is on.
    pub(in crate::transfer) mover: MoverId,
    /// Within the segment's range.
    pub(in crate::transfer) used: ByteRange,
}

impl Held {
    /// All of a segment.
    pub(in crate::transfer) const fn whole(segment: Segment, mover: MoverId) -> Self {
        let used = segment.range;
        Self { segment, mover, used }
    }
}

/// Chooses from complete copies. `turn` tells equal ones apart; `alone` takes one, as when several did not work together.
/// Without any copy, nothing is held.
pub(in crate::transfer) fn choose(
    mut copies: Vec<Vec<Held>>,
    size_bytes: u64,
    port: &PortView,
    turn: usize,
    alone: bool,
) -> Vec<Held> {
    if let SideView::Told(movers) = &port.side {
        let told = |copy: &Vec<Held>| copy.iter().all(|held| movers.contains(&held.mover));
        if copies.iter().any(told) {
            copies.retain(told);
        }
    }
    if copies.is_empty() {
        return Vec::new();
    }
    let takes_several = port.framing == Framing::ModeE && !matches!(port.side, SideView::Untold { striped: false });
    let sources = (size_bytes / LEAST_SHARE_BYTES).min(copies.len() as u64);
    if alone || !takes_several || sources < 2 {
        return copies.swap_remove(turn % copies.len());
    }
    let count = copies.len();
    // Rounded up, so that the last share is the smallest.
    let share = size_bytes.div_ceil(sources);
    (0..sources)
        .flat_map(|number| {
            let (from, to) = (share * number, (share * (number + 1)).min(size_bytes));
            let part = ByteRange::between(from, to).expect("shares are in order and within the file");
            // The first copy is not always the one that begins.
            let copy = &copies[(number as usize + turn) % count];
            copy.iter().filter_map(move |held| {
                Some(Held { used: held.used.intersection(part)?, ..held.clone() }).filter(|held| !held.used.is_empty())
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use wire::{
        extent::{Coverage, Extent, Place},
        id::{FileId, VolumeLabel},
    };

    use super::{super::mover, *};

    const MIB: u64 = 1 << 20;

    fn copy(movers: &[&str], size_bytes: u64) -> Vec<Held> {
        let length = size_bytes / movers.len() as u64;
        let held = |(index, name): (usize, &&str)| {
            let extent = Extent {
                volume: VolumeLabel::new(format!("{name}.disk")).expect("a label"),
                place: Place::Disk { file: FileId(index as u64), offset_bytes: 0 },
                length_bytes: length,
            };
            let range = ByteRange::new(index as u64 * length, length).expect("small");
            Held::whole(Segment { range, extent, adler32: 1, crc32c: 2 }, mover(name))
        };
        movers.iter().enumerate().map(held).collect()
    }

    fn port(framing: Framing, side: SideView) -> PortView {
        PortView { framing, streams: 1, side }
    }

    fn movers(chosen: &[Held]) -> Vec<String> {
        let mut movers: Vec<_> = chosen.iter().map(|held| held.mover.to_string()).collect();
        movers.sort();
        movers.dedup();
        movers
    }

    #[test]
    fn every_copy_sends_a_part_and_every_byte_is_sent_once() {
        let size = 50 * MIB;
        let active = port(Framing::ModeE, SideView::Active(vec![([192, 0, 2, 1], 1).into()]));
        let copies = vec![copy(&["a", "b"], size), copy(&["c"], size), copy(&["d"], size)];
        for turn in 0..4 {
            let chosen = choose(copies.clone(), size, &active, turn, false);
            let mut coverage = Coverage::new();
            for held in &chosen {
                assert_eq!(held.segment.range.intersection(held.used), Some(held.used));
                coverage.add(held.used).expect("no byte is sent twice");
            }
            assert!(coverage.covers(ByteRange::new(0, size).expect("small")), "turn {turn}");
            assert!(chosen.is_sorted_by_key(|held| held.used.offset()), "in the order of the file");
            assert!(movers(&chosen).len() >= 3, "turn {turn}: {:?}", movers(&chosen));
        }
    }

    #[test]
    fn who_takes_one_connection_gets_one_copy_and_copies_take_turns() {
        let size = 50 * MIB;
        let copies = || vec![copy(&["a"], size), copy(&["b"], size)];
        let stream = port(Framing::Stream, SideView::Active(vec![([192, 0, 2, 1], 1).into()]));
        assert_eq!(movers(&choose(copies(), size, &stream, 0, false)), ["a"]);
        assert_eq!(movers(&choose(copies(), size, &stream, 1, false)), ["b"]);
        let single = port(Framing::ModeE, SideView::Untold { striped: false });
        assert_eq!(choose(copies(), size, &single, 0, false).len(), 1);
        let striped = port(Framing::ModeE, SideView::Untold { striped: true });
        assert_eq!(movers(&choose(copies(), size, &striped, 0, false)), ["a", "b"]);
        assert_eq!(movers(&choose(copies(), size, &striped, 3, true)), ["b"], "one alone, as told");
    }

    #[test]
    fn a_client_that_was_told_a_mover_gets_the_copy_there() {
        let size = 50 * MIB;
        let copies = vec![copy(&["a"], size), copy(&["b"], size)];
        let told =
            |names: &[&str]| port(Framing::ModeE, SideView::Told(names.iter().map(|name| mover(name)).collect()));
        assert_eq!(movers(&choose(copies.clone(), size, &told(&["b"]), 0, false)), ["b"]);
        assert_eq!(movers(&choose(copies.clone(), size, &told(&["a", "b"]), 0, false)), ["a", "b"]);
        assert!(!choose(copies, size, &told(&["x"]), 0, false).is_empty(), "then it takes a second hop");
    }

    #[test]
    fn a_small_file_comes_from_one_copy() {
        let active = port(Framing::ModeE, SideView::Active(vec![([192, 0, 2, 1], 1).into()]));
        for size in [MIB, 7 * MIB] {
            assert_eq!(choose(vec![copy(&["a"], size), copy(&["b"], size)], size, &active, 0, false).len(), 1);
        }
        let three = vec![copy(&["a"], 9 * MIB), copy(&["b"], 9 * MIB), copy(&["c"], 9 * MIB)];
        assert_eq!(movers(&choose(three, 9 * MIB, &active, 0, false)).len(), 2);
        assert!(choose(Vec::new(), MIB, &active, 0, false).is_empty());
    }
}
