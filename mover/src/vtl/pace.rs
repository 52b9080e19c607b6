//! What is done with the time an operation would take: nothing, counted on a virtual clock, or waited for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// How the library passes its time.
#[derive(Clone, Debug, Default)]
pub enum Pace {
    /// Every operation ends at once; what it would have taken is counted in the drive's activity. The default.
    #[default]
    Instant,
    /// Every operation moves a virtual clock on.
    Virtual(VirtualClock),
    /// Every operation takes real time, multiplied by `scale`: 1.0 is as slow as a real library.
    Real {
        /// Real seconds for each modelled second.
        scale: f64,
    },
}

/// A clock that moves only when an operation takes time. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// Time since the clock was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Below this, waiting is put off: a sleep of half a millisecond for each block would take far longer than asked.
const WORTH_SLEEPING: Duration = Duration::from_millis(5);

impl Pace {
    /// Passes `cost`, together with what the caller still owes from before.
    pub(super) fn pass(&self, cost: Duration, owed: &mut Duration) {
        match self {
            Self::Instant => {}
            Self::Virtual(clock) => clock.advance(cost),
            Self::Real { scale } => {
                *owed += cost.mul_f64(scale.clamp(0.0, 1000.0));
                if *owed >= WORTH_SLEEPING {
                    thread::sleep(std::mem::take(owed));
                }
            }
        }
    }
}
