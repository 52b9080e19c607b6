//! How fast a transfer may go: a token bucket. Pure: time is an argument.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Rates below this are not kept exactly: a block must fit into what flows in a second.
const MIN_RATE: u64 = 1024;

/// A token bucket: so many bytes a second, and a tenth of that at once.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u64,
    /// Bytes that may go now.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A bucket for `rate` bytes a second, full.
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        let rate = rate.max(MIN_RATE);
        Self { rate, tokens: Self::most(rate), filled: now }
    }

    fn most(rate: u64) -> f64 {
        rate as f64 / 10.0
    }

    /// Takes up to `wanted` bytes; or says how long to wait until some may go.
    pub(crate) fn take(&mut self, wanted: u64, now: Instant) -> Result<u64, Duration> {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + since * self.rate as f64).min(Self::most(self.rate));
        self.filled = now;
        // Small sips would cost a system call each: wait until a worthwhile part is there.
        let worthwhile = (Self::most(self.rate) / 4.0).min(wanted as f64).max(1.0);
        if self.tokens < worthwhile {
            return Err(
                Duration::from_secs_f64((worthwhile - self.tokens) / self.rate as f64).max(Duration::from_millis(1))
            );
        }
        let granted = (self.tokens as u64).min(wanted);
        self.tokens -= granted as f64;
        Ok(granted)
    }

    /// Gives back what was taken and not used.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.tokens += bytes as f64;
    }
}

/// The pace of one transfer, shared by its connections.
#[derive(Debug, Default)]
pub(crate) struct Pace(Option<Mutex<Bucket>>);

impl Pace {
    /// At most `rate` bytes a second, if given.
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self(rate.map(|rate| Mutex::new(Bucket::new(rate, Instant::now()))))
    }

    /// As [`Bucket::take`].
    pub(crate) fn take(&self, wanted: u64) -> Result<u64, Duration> {
        let Some(bucket) = &self.0 else { return Ok(wanted) };
        bucket.lock().unwrap_or_else(PoisonError::into_inner).take(wanted, Instant::now())
    }

    /// As [`Bucket::give_back`].
    pub(crate) fn give_back(&self, bytes: u64) {
        if let Some(bucket) = self.0.as_ref().filter(|_| bytes > 0) {
            bucket.lock().unwrap_or_else(PoisonError::into_inner).give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_time_no_more_goes_than_the_rate_and_nearly_as_much() {
        let start = Instant::now();
        let (mut now, mut bucket, mut moved) = (start, Bucket::new(1_000_000, start), 0);
        while now < start + Duration::from_secs(10) {
            match bucket.take(64 << 10, now) {
                Ok(bytes) => {
                    moved += bytes - 100;
                    bucket.give_back(100);
                }
                Err(wait) => now += wait,
            }
        }
        assert!((9_900_000..=10_200_000).contains(&moved), "{moved}");
    }

    #[test]
    fn a_tiny_rate_still_moves() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1, start);
        assert!(bucket.take(1 << 20, start).is_ok());
        let wait = bucket.take(1 << 20, start).expect_err("empty now");
        assert!(bucket.take(1 << 20, start + wait).is_ok());
    }
}
