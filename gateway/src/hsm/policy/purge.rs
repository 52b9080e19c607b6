//! Which disk copies go, and how many: least recently used first, from above the high water mark to below the low one.

use std::time::Duration;

use catalog::{PurgeCandidate, Timestamp};
use wire::id::BitfileId;

/// The water marks of a storage class, as shares of a volume, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Marks {
    /// Purging begins above this.
    pub high: f64,
    /// It goes on down to this.
    pub low: f64,
}

/// How full a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// What it may hold, in bytes.
    pub capacity_bytes: u64,
    /// What is used or promised, in bytes.
    pub used_bytes: u64,
    /// What is purged or deleted already and only waits for its mover to remove it, in bytes.
    pub leaving_bytes: u64,
    /// What somebody waits to write and found no room for, in bytes.
    pub wanted_bytes: u64,
}

/// How many bytes must go; 0 while the volume is below its high water mark and nobody waits for room.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#[must_use]
pub fn excess(fill: Fill, marks: Marks) -> u64 {
    let mark = |share: f64| (fill.capacity_bytes as f64 * share.clamp(0.0, 1.0)) as u64;
    let stays = fill.used_bytes.saturating_sub(fill.leaving_bytes);
    if stays > mark(marks.high) {
        return stays - mark(marks.low.min(marks.high)) + fill.wanted_bytes;
    }
    let free = fill.capacity_bytes.saturating_sub(stays);
    fill.wanted_bytes.saturating_sub(free)
}

/// Whether the disk is under pressure: above halfway from the low to the high water mark, so that migration hurries
/// before purging finds nothing to take.
#[must_use]
pub fn pressure(fill: Fill, marks: Marks) -> bool {
    excess(fill, Marks { high: f64::midpoint(marks.low.min(marks.high), marks.high), low: marks.low }) > 0
}

/// Takes from the candidates, least recently used first as they come, until `need_bytes` are together. Those read
/// within `idle` are passed over.
#[must_use]
pub fn take(candidates: &[PurgeCandidate], need_bytes: u64, idle: Duration, now: Timestamp) -> Vec<BitfileId> {
    let mut taken = Vec::new();
    let mut bytes = 0u64;
    for candidate in candidates {
        if bytes >= need_bytes {
            break;
        }
        if now.since(candidate.last_used) < idle {
            continue;
        }
        taken.push(candidate.bitfile);
        bytes = bytes.saturating_add(candidate.size_bytes);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { high: 0.8, low: 0.5 };

    fn fill(used: u64) -> Fill {
        Fill { capacity_bytes: 1000, used_bytes: used, leaving_bytes: 0, wanted_bytes: 0 }
    }

    #[test]
    fn purging_begins_above_the_high_mark_and_ends_at_the_low_one() {
        assert_eq!(excess(fill(800), MARKS), 0);
        assert_eq!(excess(fill(801), MARKS), 301);
    }

    #[test]
    fn what_is_leaving_already_is_not_purged_again() {
        assert_eq!(excess(Fill { leaving_bytes: 400, ..fill(900) }, MARKS), 0);
        assert_eq!(excess(Fill { leaving_bytes: 50, ..fill(900) }, MARKS), 350);
    }

    #[test]
    fn somebody_who_waits_for_room_gets_it_below_the_mark_too() {
        assert_eq!(excess(Fill { wanted_bytes: 400, ..fill(700) }, MARKS), 100);
        assert_eq!(excess(Fill { wanted_bytes: 200, ..fill(700) }, MARKS), 0);
    }

    #[test]
    fn marks_that_make_no_sense_are_bounded() {
        assert_eq!(excess(fill(1000), Marks { high: 7.0, low: -3.0 }), 0);
        assert_eq!(excess(fill(900), Marks { high: 0.5, low: 0.9 }), 400);
        assert_eq!(excess(Fill { capacity_bytes: 0, ..fill(0) }, MARKS), 0);
    }

    #[test]
    fn pressure_comes_before_the_high_mark() {
        assert!(!pressure(fill(640), MARKS));
        assert!(pressure(fill(660), MARKS));
    }

    #[test]
    fn the_least_recently_used_go_first_and_no_more_than_needed() {
        let candidate = |id, size_bytes, used| PurgeCandidate {
            bitfile: BitfileId(id),
            size_bytes,
            last_used: Timestamp::from_seconds(used),
            expires: None,
        };
        let all = [candidate(1, 100, 10), candidate(2, 100, 20), candidate(3, 100, 995), candidate(4, 100, 30)];
        let now = Timestamp::from_seconds(1000);
        let idle = Duration::from_secs(60);
        assert_eq!(take(&all, 150, idle, now), [BitfileId(1), BitfileId(2)]);
        assert_eq!(take(&all, 999, idle, now), [BitfileId(1), BitfileId(2), BitfileId(4)], "3 is being read");
        assert!(take(&all, 0, idle, now).is_empty());
    }
}
