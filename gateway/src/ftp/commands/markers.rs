//! Restart and performance markers of an upload in MODE E.
//!
//! Owns what has been reported and what not. Pure: the time comes as an argument. GridFTP clients learn from 111 where
//! to go on after a cut, and from 112 that something still moves.

use std::time::Duration;

use wire::{
    extent::{ByteRange, Coverage},
    ftp::{PerformanceMarker, Reply},
};

/// What is known of one upload's progress.
#[derive(Debug)]
pub(super) struct Markers {
    every: Duration,
    last: Option<Duration>,
    stripes: Vec<u64>,
    /// Received and not told yet.
    fresh: Coverage,
}

impl Markers {
    /// Markers at most `every` so often; the first at once.
    pub(super) const fn new(every: Duration) -> Self {
        Self { every, last: None, stripes: Vec::new(), fresh: Coverage::new() }
    }

    /// Bytes so far, on all stripes.
    pub(super) fn bytes(&self) -> u64 {
        self.stripes.iter().sum()
    }

    /// Takes a report of one stripe; gives what to tell the client, if it is time.
    ///
    /// `now` counts from any origin, `timestamp_ms` is the wall clock's for the reply.
    pub(super) fn report(
        &mut self,
        stripe: u16,
        stripes: u16,
        bytes: u64,
        ranges: &[ByteRange],
        now: Duration,
        timestamp_ms: u64,
    ) -> Vec<Reply> {
        let count = usize::from(stripes).max(usize::from(stripe) + 1);
        if self.stripes.len() < count {
            self.stripes.resize(count, 0);
        }
        self.stripes[usize::from(stripe)] = bytes;
        for range in ranges {
            // More holes than a coverage holds: the ranges left out are sent again after a restart, which is slow but right.
            let _ = self.fresh.merge(*range);
        }
        if self.last.is_some_and(|last| now.saturating_sub(last) < self.every) {
            return Vec::new();
        }
        self.last = Some(now);
        self.tell(timestamp_ms)
    }

    /// What is left to tell at the end.
    pub(super) fn finish(&mut self, timestamp_ms: u64) -> Vec<Reply> {
        if self.stripes.is_empty() { Vec::new() } else { self.tell(timestamp_ms) }
    }

    fn tell(&mut self, timestamp_ms: u64) -> Vec<Reply> {
        let stripes = u32::try_from(self.stripes.len()).unwrap_or(u32::MAX);
        let marker =
            |(stripe, bytes): (u32, &u64)| PerformanceMarker { timestamp_ms, stripe, bytes: *bytes, stripes }.reply();
        let mut replies: Vec<Reply> = (0..stripes).zip(&self.stripes).map(marker).collect();
        if self.fresh.bytes() > 0 {
            // Only ranges new since the last marker: the client keeps the union.
            replies.push(Reply::range_marker(&std::mem::take(&mut self.fresh)));
        }
        replies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::between(start, end).unwrap()
    }

    #[test]
    fn markers_come_at_their_time_and_tell_only_what_is_new() {
        let mut markers = Markers::new(Duration::from_secs(5));
        let second = Duration::from_secs;
        let codes = |replies: Vec<Reply>| replies.iter().map(Reply::code).collect::<Vec<_>>();
        assert_eq!(codes(markers.report(0, 2, 10, &[range(0, 10)], second(0), 0)), [112, 112, 111]);
        assert!(markers.report(1, 2, 5, &[range(100, 105)], second(1), 0).is_empty());
        assert!(markers.report(0, 2, 20, &[range(10, 20)], second(4), 0).is_empty());
        let told = markers.report(1, 2, 7, &[range(105, 107)], second(5), 0);
        assert_eq!(told.last().unwrap().first(), "Range Marker 10-20,100-107");
        assert_eq!(markers.bytes(), 27);
        assert_eq!(codes(markers.finish(0)), [112, 112], "nothing new, but the last word");
        assert!(Markers::new(second(5)).finish(0).is_empty());
    }

    #[test]
    fn a_stripe_out_of_bounds_is_no_panic() {
        let mut markers = Markers::new(Duration::ZERO);
        markers.report(u16::MAX, 0, 1, &[], Duration::ZERO, 0);
        assert_eq!(markers.bytes(), 1);
    }
}
