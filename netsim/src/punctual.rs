//! Being on time on a machine that wakes sleepers late.
//!
//! A thread that sleeps until a moment runs again some time after it: a timer fires, a halted core starts, in a virtual
//! machine the host has to be asked. That is 0.05 to 0.3 ms, once for every packet that is delivered after a pause, and
//! real-time priority does not help. So the emulator learns how late it is woken, wakes up that much earlier, and spends
//! the rest looking at the clock.
//!
//! Pure: times come in as arguments. Bounded three ways: no wake-up is more than [`LONGEST_LEAD`] early; looking at the
//! clock takes at most [`SHARE`] of one core over time; and while packets are dense it is not done at all, because then
//! the next packet wakes the thread anyway, and lateness moves no packet: the model counts in its own time.

use std::time::Duration;

use crate::fabric::Nanoseconds;

/// The earliest that a wake-up is asked for before it is needed.
const LONGEST_LEAD: Nanoseconds = 500_000;
/// Looking at the clock takes at most one part in so many of one core.
const SHARE: Nanoseconds = 4;
/// What may be saved up while nothing happens.
const SAVED_AT_MOST: Nanoseconds = 50_000_000;
/// Over this time density is counted.
const WINDOW: Nanoseconds = 10_000_000;
/// So many packets within a window are dense: at 1 Gb/s there are some 80 large ones and as many acknowledgements.
const DENSE: u32 = 60;

/// Learns how late the thread is woken, and keeps account of what it spends.
#[derive(Debug)]
pub(crate) struct Punctual {
    /// How late wake-ups are: jumps up, falls slowly.
    lateness: Nanoseconds,
    saved: Nanoseconds,
    saved_until: Nanoseconds,
    window_began: Nanoseconds,
    packets: u32,
    packets_before: u32,
}

impl Punctual {
    pub(crate) const fn new() -> Self {
        Self { lateness: 100_000, saved: SAVED_AT_MOST, saved_until: 0, window_began: 0, packets: 0, packets_before: 0 }
    }

    /// How long to sleep at `now` for something that is due at `due`: shorter than the time left, if the rest can be
    /// spent looking at the clock.
    pub(crate) fn sleep(&mut self, now: Nanoseconds, due: Nanoseconds) -> Duration {
        self.save(now);
        let left = due.saturating_sub(now);
        let lead = self.lead();
        let affordable = !self.is_dense(now) && self.saved >= lead.min(left);
        Duration::from_nanos(if affordable { left.saturating_sub(lead) } else { left })
    }

    /// A sleep that nothing interrupted was to end at `asked` and did at `woke`.
    pub(crate) fn learn(&mut self, asked: Nanoseconds, woke: Nanoseconds) {
        let late = woke.saturating_sub(asked).min(LONGEST_LEAD);
        self.lateness =
            if late > self.lateness { (self.lateness + late) / 2 } else { (self.lateness * 31 + late) / 32 };
    }

    /// The clock was looked at for so long.
    pub(crate) fn spend(&mut self, spent: Nanoseconds) {
        self.saved = self.saved.saturating_sub(spent);
    }

    /// So many packets came.
    pub(crate) fn count(&mut self, now: Nanoseconds, packets: u32) {
        self.turn(now);
        self.packets = self.packets.saturating_add(packets);
    }

    fn lead(&self) -> Nanoseconds {
        (self.lateness + self.lateness / 2 + 10_000).min(LONGEST_LEAD)
    }

    fn save(&mut self, now: Nanoseconds) {
        let earned = now.saturating_sub(self.saved_until) / SHARE;
        self.saved = (self.saved + earned).min(SAVED_AT_MOST);
        self.saved_until = now;
    }

    fn turn(&mut self, now: Nanoseconds) {
        let passed = now.saturating_sub(self.window_began) / WINDOW;
        if passed > 0 {
            self.packets_before = if passed == 1 { self.packets } else { 0 };
            self.packets = 0;
            self.window_began = now;
        }
    }

    fn is_dense(&mut self, now: Nanoseconds) -> bool {
        self.turn(now);
        self.packets.max(self.packets_before) >= DENSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Nanoseconds = 1_000_000;

    #[test]
    fn who_is_woken_late_asks_to_be_woken_early() {
        let mut punctual = Punctual::new();
        for round in 0..20 {
            punctual.learn(round * MILLISECOND, round * MILLISECOND + 200_000);
        }
        let slept = punctual.sleep(30 * MILLISECOND, 34 * MILLISECOND);
        assert!(slept <= Duration::from_micros(3_800), "{slept:?}");
        assert!(slept >= Duration::from_micros(3_500), "{slept:?}: never more than half a millisecond early");
    }

    #[test]
    fn a_quarter_of_a_core_is_the_most_that_is_spent() {
        let mut punctual = Punctual::new();
        let (mut now, mut spent) = (0, 0);
        while now < 10_000 * MILLISECOND {
            let due = now + 200_000;
            let slept = punctual.sleep(now, due).as_nanos() as Nanoseconds;
            punctual.spend(due - now - slept);
            spent += due - now - slept;
            now = due;
        }
        assert!(spent <= now / SHARE + SAVED_AT_MOST, "{spent} of {now}");
        assert!(spent >= now / SHARE - MILLISECOND, "{spent} of {now}: what is allowed is used");
    }

    #[test]
    fn dense_traffic_is_not_waited_for_with_open_eyes() {
        let mut punctual = Punctual::new();
        for packet in 0..100 {
            punctual.count(packet * 100_000, 1);
        }
        let now = 10 * MILLISECOND;
        assert_eq!(punctual.sleep(now, now + MILLISECOND), Duration::from_millis(1));
        let later = 40 * MILLISECOND;
        assert!(punctual.sleep(later, later + MILLISECOND) < Duration::from_millis(1), "it is quiet again");
    }
}
