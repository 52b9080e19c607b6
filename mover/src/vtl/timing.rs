//! How long a tape library takes: a pure model, operation in, duration out.
//!
//! Owns the figures, never a clock: [`super::Pace`] decides what is done with a duration.
//!
//! # Sources
//!
//! IBM TS4500 and TS2290 documentation for load, unload, rewind and streaming rates; CERN's regression over LTO-8
//! locates (CTA, `CTACostHeuristic`), scaled to other generations by tape length and speed; Oracle's ACSLS guide for
//! the robot. Numbers of wraps of LTO-7, 9 and 10, and the cost of a flush, are assumptions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A generation of LTO drives and cartridges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Generation {
    /// LTO-7.
    Lto7,
    /// LTO-8.
    Lto8,
    /// LTO-9.
    Lto9,
    /// LTO-10 (LA media).
    Lto10,
}

/// The figures of a generation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Timing {
    /// Bytes of a cartridge.
    pub native_bytes: u64,
    /// Streaming rate, in bytes per second.
    pub bytes_per_second: f64,
    /// From the robot's hand off to ready, in seconds.
    pub load_s: f64,
    /// From UNLOAD at the beginning of tape to ejected.
    pub unload_s: f64,
    /// Average rewind.
    pub rewind_s: f64,
    /// What is done in UNLOAD besides: LTO-9's archive unthread.
    pub unthread_s: f64,
    /// Passes over the length of the tape.
    pub wraps: u32,
    /// Locate times relative to LTO-8: length by speed.
    pub locate_scale: f64,
    /// Density code.
    pub density: u8,
}

impl Generation {
    /// The figures.
    #[must_use]
    pub const fn timing(self) -> Timing {
        match self {
            Self::Lto7 => Timing {
                native_bytes: 6_000_000_000_000,
                bytes_per_second: 300e6,
                load_s: 15.0,
                unload_s: 20.0,
                rewind_s: 60.0,
                unthread_s: 0.0,
                wraps: 112,
                locate_scale: 56.0 / 59.0,
                density: 0x5c,
            },
            Self::Lto8 => Timing {
                native_bytes: 12_000_000_000_000,
                bytes_per_second: 360e6,
                load_s: 15.0,
                unload_s: 24.0,
                rewind_s: 59.0,
                unthread_s: 0.0,
                wraps: 208,
                locate_scale: 1.0,
                density: 0x5e,
            },
            Self::Lto9 => Timing {
                native_bytes: 18_000_000_000_000,
                bytes_per_second: 400e6,
                load_s: 17.0,
                unload_s: 30.0,
                rewind_s: 55.0,
                unthread_s: 55.0,
                wraps: 280,
                locate_scale: 45.0 / 59.0,
                density: 0x60,
            },
            Self::Lto10 => Timing {
                native_bytes: 30_000_000_000_000,
                bytes_per_second: 400e6,
                load_s: 12.0,
                unload_s: 27.0,
                rewind_s: 62.0,
                unthread_s: 0.0,
                wraps: 280,
                locate_scale: 65.0 / 59.0,
                density: 0x62,
            },
        }
    }

    /// The media identifier that ends a bar code.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Lto7 => "L7",
            Self::Lto8 => "L8",
            Self::Lto9 => "L9",
            Self::Lto10 => "LA",
        }
    }
}

/// What a drive or the robot does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operation {
    /// The robot carries a cartridge from one element to another.
    Move,
    /// A cartridge is threaded.
    Load,
    /// A cartridge is unthreaded, at the beginning of tape.
    Unload,
    /// Back to the beginning from a fraction (0 to 1) of the capacity.
    Rewind {
        /// Where the head is.
        from: f64,
    },
    /// Between two fractions of the capacity.
    Locate {
        /// Where the head is.
        from: f64,
        /// Where it goes.
        to: f64,
    },
    /// Bytes that stream.
    Stream {
        /// How many.
        bytes: u64,
    },
    /// The buffer is drained, the tape stops and backs up.
    Flush,
}

/// LTO-8's longitudinal positions (CTA).
const FIRST_LPOS: f64 = 2_696.0;
const LAST_LPOS: f64 = 171_097.0;
/// Servo bands of every LTO tape.
const BANDS: u32 = 4;

impl Timing {
    /// How long an operation takes.
    #[must_use]
    pub fn cost(&self, operation: Operation) -> Duration {
        Duration::from_secs_f64(match operation {
            Operation::Move => 12.0,
            Operation::Load => self.load_s,
            Operation::Unload => self.unload_s + self.unthread_s,
            // The average is over the length, so the whole length takes about twice as long.
            Operation::Rewind { from } => 2.0 * self.rewind_s * self.along(from),
            Operation::Locate { from, to } => self.locate_s(from, to),
            Operation::Stream { bytes } => bytes as f64 / self.bytes_per_second,
            Operation::Flush => 2.5,
        })
    }

    /// The wrap a fraction of the capacity lies on.
    fn wrap(&self, fraction: f64) -> u32 {
        ((fraction.clamp(0.0, 1.0) * f64::from(self.wraps)) as u32).min(self.wraps - 1)
    }

    /// How far along the tape, 0 at its beginning, 1 at its end: even wraps run out, odd ones back.
    fn along(&self, fraction: f64) -> f64 {
        let within = fraction.clamp(0.0, 1.0) * f64::from(self.wraps) - f64::from(self.wrap(fraction));
        if self.wrap(fraction).is_multiple_of(2) { within } else { 1.0 - within }
    }

    fn locate_s(&self, from: f64, to: f64) -> f64 {
        if from == to {
            return 0.0;
        }
        let (wrap_from, wrap_to) = (self.wrap(from), self.wrap(to));
        let (at_from, at_to) = (self.along(from), self.along(to));
        let band = |wrap: u32| wrap / self.wraps.div_ceil(BANDS);
        let outward = |wrap: u32| wrap.is_multiple_of(2);
        let one_if = |condition: bool| if condition { 1.0 } else { 0.0 };
        let same_direction = outward(wrap_from) == outward(wrap_to);
        let steps_back = same_direction && if outward(wrap_to) { at_to < at_from } else { at_to > at_from };
        let distance = (at_to - at_from).abs() * (LAST_LPOS - FIRST_LPOS);
        let lto8 = 4.29 + 6.69 * one_if(wrap_from != wrap_to) + 3.2 * one_if(band(wrap_from) != band(wrap_to))
            - 6.04 * one_if((at_from < 0.5) != (at_to < 0.5))
            + 5.22 * one_if(!same_direction)
            + 11.32 * one_if(steps_back)
            + 0.000_619_2 * distance;
        (lto8 * self.locate_scale).max(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Generation; 4] = [Generation::Lto7, Generation::Lto8, Generation::Lto9, Generation::Lto10];

    #[test]
    fn a_random_locate_from_the_beginning_takes_about_the_documented_average() {
        for generation in ALL {
            let timing = generation.timing();
            let total: f64 = (1..1000)
                .map(|step| timing.cost(Operation::Locate { from: 0.0, to: f64::from(step) / 1000.0 }).as_secs_f64())
                .sum();
            let average = total / 999.0;
            assert!((35.0..95.0).contains(&average), "{generation:?}: {average:.0} s");
        }
    }

    #[test]
    fn staying_costs_nothing_and_every_move_something() {
        let timing = Generation::Lto8.timing();
        assert_eq!(timing.cost(Operation::Locate { from: 0.3, to: 0.3 }), Duration::ZERO);
        for step in 0..500 {
            let to = f64::from(step) / 500.0;
            assert!(timing.cost(Operation::Locate { from: 0.777, to }) >= Duration::from_millis(500));
            assert!(timing.cost(Operation::Rewind { from: to }) <= Duration::from_secs(118));
        }
    }

    #[test]
    fn neighbours_on_adjacent_wraps_are_near_although_their_addresses_are_far() {
        let timing = Generation::Lto8.timing();
        let wrap = 1.0 / 208.0;
        let near = timing.cost(Operation::Locate { from: 0.1 * wrap, to: 1.9 * wrap });
        let far = timing.cost(Operation::Locate { from: 0.1 * wrap, to: 0.9 * wrap });
        assert!(near < far, "{near:?} {far:?}");
    }

    #[test]
    fn streaming_runs_at_the_native_rate() {
        let timing = Generation::Lto9.timing();
        assert_eq!(timing.cost(Operation::Stream { bytes: 400_000_000 }), Duration::from_secs(1));
    }
}
