//! What time it is: really, or as a test says.
//!
//! Owns nothing but an origin. Talks to the operating system's two clocks. Never goes backwards
//! in [`Clock::monotonic`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls_pki_types::UnixTime;
use tokio::sync::watch;

/// Wall clock and monotonic clock of one process or one test. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Real {
        origin: Instant,
    },
    /// The sender lives in every clone, so the channel never closes.
    Settable(Arc<watch::Sender<Reading>>),
}

/// What a settable clock shows.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall_us: i64,
    monotonic: Duration,
}

impl Clock {
    /// The operating system's clocks; monotonic time counts from now.
    #[must_use]
    pub fn real() -> Self {
        Self(Kind::Real { origin: Instant::now() })
    }

    /// A clock that stands at `wall_us` microseconds since the epoch until a test moves it.
    #[must_use]
    pub fn settable(wall_us: i64) -> Self {
        Self(Kind::Settable(Arc::new(watch::Sender::new(Reading { wall_us, monotonic: Duration::ZERO }))))
    }

    /// Microseconds since 1970-01-01T00:00:00Z: what the catalogue stores.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        match &self.0 {
            Kind::Real { .. } => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => micros(since),
                Err(before) => -micros(before.duration()),
            },
            Kind::Settable(reading) => reading.borrow().wall_us,
        }
    }

    /// Wall time as X.509 code wants it: whole seconds, nothing before 1970.
    #[must_use]
    pub fn unix_time(&self) -> UnixTime {
        let seconds = u64::try_from(self.now_us() / 1_000_000).unwrap_or(0);
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    /// Time since this clock was made. Not moved by changes of the wall clock.
    #[must_use]
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Kind::Real { origin } => origin.elapsed(),
            Kind::Settable(reading) => reading.borrow().monotonic,
        }
    }

    /// Sleeps until [`Self::monotonic`] has grown by `duration`. Cancel-safe.
    ///
    /// On a settable clock this ends only when a test advances far enough.
    pub async fn sleep(&self, duration: Duration) {
        match &self.0 {
            Kind::Real { .. } => tokio::time::sleep(duration).await,
            Kind::Settable(reading) => {
                let mut watched = reading.subscribe();
                let until = watched.borrow().monotonic.saturating_add(duration);
                // The sender is in `self`, so this cannot end early.
                let _ = watched.wait_for(|now| now.monotonic >= until).await;
            }
        }
    }

    /// Moves a settable clock forward, wall and monotonic, and wakes its sleepers.
    ///
    /// # Panics
    ///
    /// On a real clock: only a test moves time, and it knows which clock it made.
    pub fn advance(&self, by: Duration) {
        self.settable_only().send_modify(|now| {
            now.wall_us = now.wall_us.saturating_add(micros(by));
            now.monotonic = now.monotonic.saturating_add(by);
        });
    }

    /// Sets a settable clock's wall time, as an operator or NTP would. Monotonic time stays.
    ///
    /// # Panics
    ///
    /// On a real clock.
    pub fn set_wall_us(&self, wall_us: i64) {
        self.settable_only().send_modify(|now| now.wall_us = wall_us);
    }

    fn settable_only(&self) -> &watch::Sender<Reading> {
        match &self.0 {
            Kind::Settable(reading) => reading,
            Kind::Real { .. } => panic!("only a clock made by Clock::settable can be moved"),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::real()
    }
}

/// Whole microseconds, at most what an `i64` holds (292,000 years).
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_clock_is_past_2026_and_does_not_run_backwards() {
        let clock = Clock::real();
        assert!(clock.now_us() > 1_767_225_600_000_000);
        assert!(clock.monotonic() <= clock.monotonic());
    }

    #[tokio::test]
    async fn a_sleeper_on_a_settable_clock_wakes_when_time_is_advanced_far_enough() {
        let clock = Clock::settable(1_000_000);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move {
                clock.sleep(Duration::from_secs(10)).await;
                clock.now_us()
            }
        });
        while let Kind::Settable(reading) = &clock.0
            && reading.receiver_count() == 0
        {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(4));
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(6));
        assert_eq!(sleeper.await.unwrap(), 11_000_000);
    }

    #[test]
    fn setting_the_wall_time_leaves_monotonic_time_alone() {
        let clock = Clock::settable(5);
        clock.set_wall_us(-7);
        assert_eq!((clock.now_us(), clock.monotonic(), clock.unix_time().as_secs()), (-7, Duration::ZERO, 0));
    }
}
