//! The model in virtual time.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// `n` frames of 1,500 bytes; on the wire 38 more each.
#[derive(Clone, Debug)]
struct Frames(usize);

impl Packet for Frames {
    fn frames(&self) -> usize {
        self.0
    }
    fn wire_bytes(&self, first: usize, behind: usize) -> usize {
        (behind - first) * 1538
    }
    fn cut(&self, first: usize, behind: usize) -> Self {
        Self(behind - first)
    }
}

const GIGABIT: u64 = 1_000_000_000;

fn drain(fabric: &mut Fabric<Frames>) -> (usize, Nanoseconds) {
    let (mut frames, mut last) = (0, 0);
    while let Some(at) = fabric.next_due() {
        fabric.run(at, |_, packet| {
            frames += packet.0;
            last = at;
        });
    }
    (frames, last)
}

#[test]
fn a_queue_takes_what_fits_and_drops_the_tail() {
    let mut fabric = Fabric::new(1);
    let stage = fabric.add_stage(StageSpec {
        rate_bps: Some(GIGABIT),
        queue_bytes: 15_380,
        delay: Duration::from_millis(2),
        ..StageSpec::default()
    });
    let path = fabric.add_path(0, vec![stage]);
    for _ in 0..20 {
        fabric.inject(0, path, Frames(1));
    }
    assert_eq!(drain(&mut fabric), (10, 2_000_000 + 10 * 1538 * 8));
    assert_eq!(fabric.counters(stage).dropped_full, 10);
    assert_eq!(fabric.counters(stage).longest_queue_bytes, 15_380);
}

#[test]
fn a_packet_of_many_frames_loses_only_those_that_do_not_fit() {
    let mut fabric = Fabric::new(1);
    let stage = fabric.add_stage(StageSpec { rate_bps: Some(GIGABIT), queue_bytes: 10 * 1538, ..StageSpec::default() });
    let path = fabric.add_path(0, vec![stage]);
    fabric.inject(0, path, Frames(4));
    fabric.inject(0, path, Frames(20));
    assert_eq!(drain(&mut fabric).0, 10);
    assert_eq!(fabric.counters(stage).dropped_full, 14);
}

#[test]
fn two_paths_through_one_stage_share_its_rate() {
    let mut fabric = Fabric::new(1);
    let medium = fabric.add_stage(StageSpec { rate_bps: Some(GIGABIT), queue_bytes: 1 << 30, ..StageSpec::default() });
    let (there, back) = (fabric.add_path(0, vec![medium]), fabric.add_path(1, vec![medium]));
    for _ in 0..500 {
        fabric.inject(0, there, Frames(1));
        fabric.inject(0, back, Frames(1));
    }
    assert_eq!(drain(&mut fabric), (1000, 1000 * 1538 * 8));
}

#[test]
fn frames_are_lost_at_the_rate_that_was_asked() {
    let mut fabric = Fabric::new(7);
    let stage = fabric.add_stage(StageSpec { loss: 0.01, ..StageSpec::default() });
    let path = fabric.add_path(0, vec![stage]);
    for at in 0..10_000 {
        fabric.inject(at, path, Frames(40));
    }
    let lost = 1.0 - drain(&mut fabric).0 as f64 / 400_000.0;
    assert!((lost - 0.01).abs() < 0.001, "lost {lost}");
}

#[test]
fn bursts_lose_frames_that_follow_each_other() {
    let mut fabric = Fabric::new(3);
    let burst = Burst { begins: 0.001, ends: 0.1, loss: 1.0 };
    let stage = fabric.add_stage(StageSpec { burst: Some(burst), ..StageSpec::default() });
    let path = fabric.add_path(0, vec![stage]);
    let mut gaps = Vec::new();
    let mut gap = 0;
    for at in 0..200_000 {
        fabric.inject(at, path, Frames(1));
        let mut arrived = false;
        fabric.run(at, |_, _| arrived = true);
        match (arrived, gap) {
            (false, _) => gap += 1,
            (true, 0) => {}
            (true, _) => gaps.push(std::mem::take(&mut gap)),
        }
    }
    let mean = gaps.iter().sum::<usize>() as f64 / gaps.len() as f64;
    assert!((8.0..12.0).contains(&mean), "bursts of {mean} frames, 10 were asked");
}

#[test]
fn a_link_that_is_down_passes_nothing_and_recovers() {
    let mut fabric = Fabric::new(1);
    let stage = fabric.add_stage(StageSpec { down: true, ..StageSpec::default() });
    let path = fabric.add_path(0, vec![stage]);
    fabric.inject(0, path, Frames(3));
    assert_eq!(drain(&mut fabric).0, 0);
    assert_eq!(fabric.counters(stage).dropped_down, 3);
    fabric.set_stage(stage, StageSpec::default());
    fabric.inject(1, path, Frames(3));
    assert_eq!(drain(&mut fabric).0, 3);
}

#[test]
fn duplicates_arrive_twice() {
    let mut fabric = Fabric::new(1);
    let stage = fabric.add_stage(StageSpec { duplicate: 1.0, ..StageSpec::default() });
    let path = fabric.add_path(0, vec![stage]);
    fabric.inject(0, path, Frames(5));
    assert_eq!(drain(&mut fabric).0, 10);
    assert_eq!(fabric.counters(stage).duplicated, 5);
}

proptest! {
    #[test]
    fn jitter_never_reorders_unless_it_is_asked_to(seed in any::<u64>(), count in 2usize..200) {
        let mut fabric = Fabric::new(seed);
        let spec = StageSpec { delay: Duration::from_millis(5), jitter: Duration::from_millis(4), ..StageSpec::default() };
        let stage = fabric.add_stage(spec);
        let path = fabric.add_path(0, vec![stage]);
        for at in 0..count {
            fabric.inject(at as u64 * 1000, path, Frames(at + 1));
        }
        let mut seen = Vec::new();
        while let Some(at) = fabric.next_due() {
            fabric.run(at, |_, packet| seen.push(packet.0));
        }
        prop_assert_eq!(seen, (1..=count).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_seed_gives_the_same_losses(seed in any::<u64>()) {
        let run = || {
            let mut fabric = Fabric::new(seed);
            let stage = fabric.add_stage(StageSpec { loss: 0.3, ..StageSpec::default() });
            let path = fabric.add_path(0, vec![stage]);
            for at in 0..50 {
                fabric.inject(at, path, Frames(7));
            }
            drain(&mut fabric)
        };
        prop_assert_eq!(run(), run());
    }
}
