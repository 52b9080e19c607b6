//! One place where packets queue: faults, then a rate behind a finite queue, then a delay.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Nanoseconds, chance::Chance};

/// Names a stage of a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StageId(pub(super) usize);

/// What a stage does to packets. The default does nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StageSpec {
    /// Bits a second on the wire; `None` for as fast as packets come.
    pub rate_bps: Option<u64>,
    /// Bytes that wait in front of the rate before more are dropped. Without a rate nothing waits.
    pub queue_bytes: usize,
    /// Behind the rate, every packet takes this long.
    pub delay: Duration,
    /// The delay varies by up to so much, either way.
    pub jitter: Duration,
    /// Whether jitter may let a packet overtake another. Off by default: few real links do it.
    pub reorder: bool,
    /// Probability that a wire frame is lost, each on its own.
    pub loss: f64,
    /// Loss that comes in bursts, besides `loss`.
    pub burst: Option<Burst>,
    /// Probability that a wire frame arrives twice.
    pub duplicate: f64,
    /// Nothing passes.
    pub down: bool,
}

/// Loss in bursts: a link that is good, and now and then bad (Gilbert's model, 1960).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Burst {
    /// Probability, for each frame, that a bad time begins.
    pub begins: f64,
    /// Probability, for each frame, that it ends: 1 / mean length in frames.
    pub ends: f64,
    /// Probability that a frame is lost in a bad time.
    pub loss: f64,
}

/// What has passed a stage since the fabric began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counters {
    /// Wire frames that passed.
    pub frames: u64,
    /// Bytes that passed, link layer included.
    pub bytes: u64,
    /// Frames dropped because the queue was full.
    pub dropped_full: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames that came while the stage was down.
    pub dropped_down: u64,
    /// Frames that were sent twice.
    pub duplicated: u64,
    /// The most bytes that ever waited.
    pub longest_queue_bytes: usize,
}

/// What becomes of a packet that enters the queue.
pub(super) enum Fate {
    Dropped,
    Whole {
        leaves: Nanoseconds,
    },
    /// Only its first frames found room.
    Head {
        frames: usize,
        leaves: Nanoseconds,
    },
}

/// Frames `first..behind` of a packet pass, `copies` times.
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) behind: usize,
    pub(super) copies: u64,
}

pub(super) struct Stage {
    spec: StageSpec,
    counters: Counters,
    /// When the last byte accepted so far has left the wire. A fraction of a nanosecond matters at 100 Gb/s.
    busy_until: f64,
    last_left: Nanoseconds,
    bad_time: bool,
}

impl Stage {
    pub(super) fn new(spec: StageSpec) -> Self {
        Self { spec, counters: Counters::default(), busy_until: 0.0, last_left: 0, bad_time: false }
    }

    pub(super) fn spec(&self) -> &StageSpec {
        &self.spec
    }

    pub(super) fn set(&mut self, spec: StageSpec) {
        self.spec = spec;
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether a packet may leave otherwise than it came.
    pub(super) fn has_faults(&self) -> bool {
        self.spec.down || self.spec.loss > 0.0 || self.spec.burst.is_some() || self.spec.duplicate > 0.0
    }

    /// Which runs of a packet's frames survive chance.
    pub(super) fn survivors(&mut self, frames: usize, chance: &mut Chance) -> Vec<Run> {
        if self.spec.down {
            self.counters.dropped_down += frames as u64;
            return Vec::new();
        }
        let mut runs: Vec<Run> = Vec::new();
        for frame in 0..frames {
            if self.loses(chance) {
                self.counters.lost += 1;
                continue;
            }
            let copies = 1 + u64::from(chance.happens(self.spec.duplicate));
            self.counters.duplicated += copies - 1;
            match runs.last_mut() {
                Some(run) if run.behind == frame && run.copies == 1 && copies == 1 => run.behind += 1,
                _ => runs.push(Run { first: frame, behind: frame + 1, copies }),
            }
        }
        runs
    }

    fn loses(&mut self, chance: &mut Chance) -> bool {
        let in_burst = match self.spec.burst {
            None => false,
            Some(burst) => {
                self.bad_time = if self.bad_time { !chance.happens(burst.ends) } else { chance.happens(burst.begins) };
                self.bad_time && chance.happens(burst.loss)
            }
        };
        in_burst || chance.happens(self.spec.loss)
    }

    /// Queues a packet of `frames` frames at `at`; `wire_bytes(a, b)` is what frames `a..b` take.
    pub(super) fn enter(
        &mut self,
        at: Nanoseconds,
        frames: usize,
        wire_bytes: impl Fn(usize, usize) -> usize,
        chance: &mut Chance,
    ) -> Fate {
        let mut accepted = frames;
        let mut left = at;
        if let Some(rate_bps) = self.spec.rate_bps.filter(|rate| *rate > 0) {
            let ns_per_byte = 8e9 / rate_bps as f64;
            let waiting = ((self.busy_until - at as f64) / ns_per_byte).max(0.0) as usize;
            let whole = wire_bytes(0, frames);
            // A packet always fits in an empty queue, however short: it is then on the wire at once.
            if waiting > 0 && waiting + whole > self.spec.queue_bytes {
                let room = self.spec.queue_bytes.saturating_sub(waiting);
                accepted = (1..=frames).take_while(|&count| wire_bytes(0, count) <= room).last().unwrap_or(0);
                self.counters.dropped_full += (frames - accepted) as u64;
                if accepted == 0 {
                    return Fate::Dropped;
                }
            }
            let bytes = wire_bytes(0, accepted);
            self.busy_until = self.busy_until.max(at as f64) + bytes as f64 * ns_per_byte;
            self.counters.longest_queue_bytes = self.counters.longest_queue_bytes.max(waiting + bytes);
            left = self.busy_until as Nanoseconds;
        }
        self.counters.frames += accepted as u64;
        self.counters.bytes += wire_bytes(0, accepted) as u64;
        let leaves = self.behind_delay(at, left, chance);
        if accepted == frames { Fate::Whole { leaves } } else { Fate::Head { frames: accepted, leaves } }
    }

    fn behind_delay(&mut self, at: Nanoseconds, left: Nanoseconds, chance: &mut Chance) -> Nanoseconds {
        let mut leaves = left + nanoseconds(self.spec.delay);
        let jitter = nanoseconds(self.spec.jitter);
        if jitter > 0 {
            let shift = (chance.unit() * 2.0 * jitter as f64) as Nanoseconds;
            leaves = (leaves + shift).saturating_sub(jitter).max(at);
        }
        if !self.spec.reorder {
            leaves = leaves.max(self.last_left);
        }
        self.last_left = self.last_left.max(leaves);
        leaves
    }
}

fn nanoseconds(duration: Duration) -> Nanoseconds {
    Nanoseconds::try_from(duration.as_nanos()).unwrap_or(Nanoseconds::MAX / 4)
}
