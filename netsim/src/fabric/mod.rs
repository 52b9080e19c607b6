//! The model: stages that packets pass, and paths that name the stages between two hosts.
//!
//! Pure: time comes in as an argument, chance from a seeded generator. [`Fabric::inject`] puts a packet on a path,
//! [`Fabric::run`] delivers what is due, [`Fabric::next_due`] says when to come back.
//!
//! A *stage* is one place where packets queue: a rate, a finite queue in front of it, a delay behind it, and faults.
//! The same stage may be on several paths; whatever passes it shares its rate. That is how a NIC, a switch port, a
//! WAN link and a shared medium are all said, and why a relay that moves every byte in and out over one shared medium
//! halves: the effect is in the topology, nowhere in the code.

mod chance;
mod stage;

use std::{cmp::Reverse, collections::BinaryHeap};

use self::chance::Chance;
pub use self::stage::{Burst, Counters, StageId, StageSpec};
use self::stage::{Fate, Stage};

/// Nanoseconds since some moment that the caller has chosen.
pub type Nanoseconds = u64;

/// What the fabric needs to know of a packet: `frames` wire frames that travel back to back in one buffer.
pub trait Packet: Sized {
    /// How many wire frames it is; at least 1.
    fn frames(&self) -> usize;
    /// Bytes that frames `first..behind` take on the wire, everything of the link layer included.
    fn wire_bytes(&self, first: usize, behind: usize) -> usize;
    /// Frames `first..behind` as a packet of their own.
    fn cut(&self, first: usize, behind: usize) -> Self;
}

/// A path from one host to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(usize);

/// The model of all links of a lab.
pub struct Fabric<P> {
    stages: Vec<Stage>,
    paths: Vec<Path>,
    due: BinaryHeap<Reverse<Due<P>>>,
    sequence: u64,
    chance: Chance,
}

struct Path {
    to: usize,
    stages: Vec<StageId>,
}

/// A packet that reaches the next stage of its path, or its end, at `at`.
struct Due<P> {
    at: Nanoseconds,
    // Breaks ties in the order of arrival.
    sequence: u64,
    path: usize,
    hop: usize,
    packet: P,
}

impl<P> PartialEq for Due<P> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl<P> Eq for Due<P> {}
impl<P> PartialOrd for Due<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for Due<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<P: Packet> Fabric<P> {
    /// A fabric without stages or paths. The same seed and the same calls give the same result.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { stages: Vec::new(), paths: Vec::new(), due: BinaryHeap::new(), sequence: 0, chance: Chance::new(seed) }
    }

    /// Adds a stage.
    pub fn add_stage(&mut self, spec: StageSpec) -> StageId {
        self.stages.push(Stage::new(spec));
        StageId(self.stages.len() - 1)
    }

    /// Adds a path that ends at host `to` behind these stages.
    pub fn add_path(&mut self, to: usize, stages: Vec<StageId>) -> PathId {
        self.paths.push(Path { to, stages });
        PathId(self.paths.len() - 1)
    }

    /// Changes a stage. Packets that are behind its queue already keep their times.
    pub fn set_stage(&mut self, stage: StageId, spec: StageSpec) {
        self.stages[stage.0].set(spec);
    }

    /// What a stage is now.
    #[must_use]
    pub fn stage(&self, stage: StageId) -> &StageSpec {
        self.stages[stage.0].spec()
    }

    /// What has passed a stage.
    #[must_use]
    pub fn counters(&self, stage: StageId) -> Counters {
        self.stages[stage.0].counters()
    }

    /// Puts a packet on a path.
    pub fn inject(&mut self, now: Nanoseconds, path: PathId, packet: P) {
        self.push(now, path.0, 0, packet);
    }

    /// When something happens next.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanoseconds> {
        self.due.peek().map(|Reverse(due)| due.at)
    }

    /// How many packets are on their way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.due.len()
    }

    /// Does everything that is due at `now`; `deliver` gets each packet that has reached its host.
    pub fn run(&mut self, now: Nanoseconds, mut deliver: impl FnMut(usize, P)) {
        while self.due.peek().is_some_and(|Reverse(due)| due.at <= now) {
            let Some(Reverse(Due { at, path, hop, packet, .. })) = self.due.pop() else { return };
            match self.paths[path].stages.get(hop) {
                Some(&stage) => self.pass(stage, at, path, hop, packet),
                None => deliver(self.paths[path].to, packet),
            }
        }
    }

    fn pass(&mut self, stage: StageId, at: Nanoseconds, path: usize, hop: usize, packet: P) {
        let stage = &mut self.stages[stage.0];
        if !stage.has_faults() {
            return self.queue(path, hop, at, packet);
        }
        // Loss and duplication hit single wire frames, so a packet of several may leave in several pieces.
        for run in stage.survivors(packet.frames(), &mut self.chance) {
            for _ in 0..run.copies {
                self.queue(path, hop, at, packet.cut(run.first, run.behind));
            }
        }
    }

    fn queue(&mut self, path: usize, hop: usize, at: Nanoseconds, packet: P) {
        let StageId(index) = self.paths[path].stages[hop];
        let fate = self.stages[index].enter(
            at,
            packet.frames(),
            |first, behind| packet.wire_bytes(first, behind),
            &mut self.chance,
        );
        match fate {
            Fate::Dropped => {}
            Fate::Whole { leaves } => self.push(leaves, path, hop + 1, packet),
            Fate::Head { frames, leaves } => self.push(leaves, path, hop + 1, packet.cut(0, frames)),
        }
    }

    fn push(&mut self, at: Nanoseconds, path: usize, hop: usize, packet: P) {
        self.sequence += 1;
        self.due.push(Reverse(Due { at, sequence: self.sequence, path, hop, packet }));
    }
}

#[cfg(test)]
mod tests;
