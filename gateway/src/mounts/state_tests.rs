//! The mount service against a simulated library that carries out what it is told.

#[path = "operator_tests.rs"]
mod operator;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use proptest::prelude::*;
use wire::mover::MoveTo;

use super::*;
use crate::mounts::{Grant, Purpose, Want, WantId, Why};

fn volume(number: usize) -> VolumeLabel {
    VolumeLabel::new(format!("PEN{number:03}L8")).expect("a label")
}

fn drive(number: usize) -> DriveId {
    DriveId::new(format!("drive{number}")).expect("a name")
}

fn mover() -> MoverId {
    MoverId::new("mover1").expect("a name")
}

fn library() -> LibraryId {
    LibraryId::new("vtl").expect("a name")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn status(name: DriveId, health: DriveHealth) -> DriveStatus {
    DriveStatus {
        serial: format!("S-{name}"),
        drive: name,
        library: library(),
        volume: None,
        activity: "idle".into(),
        health,
        written_bytes: 0,
        read_bytes: 0,
        mounts: 0,
    }
}

fn mounted(volume: &VolumeLabel) -> Mounted {
    Mounted {
        volume: volume.clone(),
        labelled: false,
        last_container: 0,
        next_block: 4,
        capacity_bytes: 1 << 40,
        remaining_bytes: 1 << 40,
        read_only: None,
        worm: false,
        alerts: Vec::new(),
    }
}

fn recall(id: u64, of: usize) -> Want {
    Want {
        id: WantId(id),
        purpose: Purpose::Recall,
        volumes: vec![volume(of)],
        pool: "archive".into(),
        max_drives: 8,
        label_blank: false,
        priority: 0,
        rank: 0,
        since: at(0),
    }
}

fn migrate(id: u64, to: &[usize]) -> Want {
    Want {
        purpose: Purpose::Migrate,
        volumes: to.iter().map(|of| volume(*of)).collect(),
        label_blank: true,
        ..recall(id, 1)
    }
}

/// A library with a robot and drives that does what it is told, and checks that it is told nothing impossible.
struct World {
    mounts: Mounts,
    now: Timestamp,
    drives: BTreeMap<DriveId, (Option<VolumeLabel>, bool)>,
    slots: Vec<VolumeLabel>,
    grants: Vec<Grant>,
    refused: Vec<(WantId, Why)>,
    revoked: Vec<GrantId>,
    suspects: Vec<VolumeLabel>,
    log: Vec<Action>,
    epochs: Vec<Epoch>,
    /// Faults for commands to come: by volume.
    bad_attach: BTreeMap<(DriveId, VolumeLabel), FaultKind>,
    bad_moves: u32,
    /// A move that fails may have moved all the same.
    move_lies: bool,
}

impl World {
    fn new(drives: usize, cartridges: usize, rules: Rules) -> Self {
        Self::with(Mounts::new(rules, Epoch(7)), drives, cartridges)
    }

    fn with(mounts: Mounts, drives: usize, cartridges: usize) -> Self {
        let mut world = Self {
            mounts,
            now: at(0),
            drives: (1..=drives).map(|number| (drive(number), (None, false))).collect(),
            slots: (1..=cartridges).map(volume).collect(),
            grants: Vec::new(),
            refused: Vec::new(),
            revoked: Vec::new(),
            suspects: Vec::new(),
            log: Vec::new(),
            epochs: Vec::new(),
            bad_attach: BTreeMap::new(),
            bad_moves: 0,
            move_lies: false,
        };
        let all = (1..=cartridges).map(|number| (volume(number), None)).collect();
        world.event(Event::Cartridges(all));
        world.connect();
        world
    }

    fn connect(&mut self) {
        let drives = self.drives.keys().map(|name| status(name.clone(), DriveHealth::Up)).collect();
        self.event(Event::Mover { mover: mover(), drives, libraries: vec![library()], draining: false });
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.after(Duration::from_secs(1));
            self.event(Event::Tick);
        }
    }

    /// Feeds an event, and the answers to all commands that follow from it.
    fn event(&mut self, event: Event) {
        let mut queue = VecDeque::from(self.mounts.apply(self.now, event));
        while let Some(action) = queue.pop_front() {
            self.log.push(action.clone());
            if let Some(answer) = self.carry_out(action) {
                queue.extend(self.mounts.apply(self.now, answer));
            }
            self.check();
        }
    }

    fn carry_out(&mut self, action: Action) -> Option<Event> {
        Some(match action {
            Action::TakeInventory { library, command, .. } => {
                Event::Inventory { library, command, result: Ok(self.slots()) }
            }
            Action::Move { volume, to, drive, command, .. } => {
                let fails = self.bad_moves > 0;
                self.bad_moves = self.bad_moves.saturating_sub(1);
                if !fails || self.move_lies {
                    let place = self.drives.get_mut(&drive).expect("a known drive");
                    match to {
                        MoveTo::Drive(_) => {
                            assert_eq!(place.0, None, "a cartridge is never brought to a full drive");
                            let slot = self.slots.iter().position(|in_slot| *in_slot == volume);
                            self.slots.remove(slot.expect("the cartridge is in a slot"));
                            *place = (Some(volume.clone()), false);
                        }
                        MoveTo::Slot => {
                            assert!(!place.1, "threaded tape is never pulled");
                            assert_eq!(place.0.take().as_ref(), Some(&volume));
                            self.slots.push(volume.clone());
                        }
                    }
                }
                let result = if fails { Err(Fault::new(FaultKind::Library, "the arm is tired")) } else { Ok(()) };
                Event::Moved { drive, command, result }
            }
            Action::Attach { drive, volume, epoch, command, .. } => {
                assert!(self.epochs.last().is_none_or(|last| epoch > *last), "epochs grow");
                self.epochs.push(epoch);
                let place = self.drives.get_mut(&drive).expect("a known drive");
                assert_eq!(place.0.as_ref(), Some(&volume));
                let result = match self.bad_attach.get(&(drive.clone(), volume.clone())) {
                    Some(kind) => Err(Fault::new(*kind, format!("{volume} in {drive}: {kind:?}"))),
                    None => {
                        place.1 = true;
                        Ok(mounted(&volume))
                    }
                };
                Event::Attached { drive, command, result }
            }
            Action::Detach { drive, command, .. } => {
                self.drives.get_mut(&drive).expect("a known drive").1 = false;
                Event::Detached { drive, command, result: Ok(()) }
            }
            Action::Give(grant) => {
                self.grants.push(grant);
                return None;
            }
            Action::Refuse { want, why } => {
                self.refused.push((want, why));
                return None;
            }
            Action::Revoke { grant, .. } => {
                self.grants.retain(|held| held.id != grant);
                self.revoked.push(grant);
                return None;
            }
            Action::Suspect { volume, .. } => {
                self.suspects.push(volume);
                return None;
            }
            Action::Note { .. } => return None,
        })
    }

    fn slots(&self) -> Vec<Slot> {
        let storage = self.slots.iter().enumerate().map(|(element, volume)| Slot {
            element: element as u16,
            kind: SlotKind::Storage,
            volume: Some(volume.clone()),
            full: true,
            cleaning: false,
            exception: None,
        });
        let drives = self.drives.iter().enumerate().map(|(element, (name, (volume, _)))| Slot {
            element: 500 + element as u16,
            kind: SlotKind::Drive { serial: format!("S-{name}"), drive: Some(name.clone()) },
            volume: volume.clone(),
            full: volume.is_some(),
            cleaning: false,
            exception: None,
        });
        storage.chain(drives).collect()
    }

    fn check(&self) {
        for grant in &self.grants {
            let (volume, threaded) = &self.drives[&grant.drive];
            assert!(*threaded && volume.as_ref() == Some(&grant.volume), "a granted cartridge is mounted: {grant:?}");
        }
        for (index, grant) in self.grants.iter().enumerate() {
            assert!(
                self.grants[index + 1..].iter().all(|other| other.volume != grant.volume && other.drive != grant.drive)
            );
        }
    }

    fn release(&mut self, index: usize, how: Released) {
        let grant = self.grants.remove(index);
        self.event(Event::Release { grant: grant.id, how });
    }

    fn count(&self, which: impl Fn(&Action) -> bool) -> usize {
        self.log.iter().filter(|action| which(action)).count()
    }
}

#[test]
fn a_recall_gets_its_cartridge_in_a_free_drive() {
    let mut world = World::new(2, 4, Rules::default());
    world.event(Event::Want(recall(1, 3)));
    assert_eq!(world.grants.len(), 1);
    assert_eq!(world.grants[0].volume, volume(3));
    assert_eq!(world.epochs, [Epoch(7 << 32 | 1)]);
}

#[test]
fn a_cartridge_lingers_while_idle_and_is_given_again_without_a_move() {
    let mut world = World::new(2, 4, Rules::default());
    world.event(Event::Want(recall(1, 3)));
    world.release(0, Released::Clean);
    world.pass(5);
    let moves = world.count(|action| matches!(action, Action::Move { .. }));
    world.event(Event::Want(recall(2, 3)));
    assert_eq!(world.grants.len(), 1);
    assert_eq!(world.count(|action| matches!(action, Action::Move { .. })), moves);
    world.release(0, Released::Clean);
    world.pass(30);
    assert_eq!(world.slots.len(), 4, "it goes home when nobody wants it");
}

#[test]
fn two_wants_for_one_cartridge_take_turns_in_one_drive() {
    let mut world = World::new(2, 4, Rules::default());
    world.event(Event::Want(recall(1, 3)));
    world.event(Event::Want(recall(2, 3)));
    assert_eq!(world.grants.len(), 1);
    assert!(matches!(world.mounts.why(world.now, WantId(2)), Some(Why::InUse { .. })));
    world.release(0, Released::Clean);
    assert_eq!(world.grants[0].want, WantId(2));
    assert_eq!(world.count(|action| matches!(action, Action::Move { .. })), 1);
}

#[test]
fn an_idle_cartridge_makes_room_for_one_that_is_wanted() {
    let mut world = World::new(1, 4, Rules::default());
    world.event(Event::Want(recall(1, 1)));
    world.release(0, Released::Clean);
    world.event(Event::Want(recall(2, 2)));
    assert_eq!(world.grants[0].volume, volume(2));
}

#[test]
fn migration_never_takes_the_drive_kept_for_recalls() {
    let mut world = World::new(2, 6, Rules::default());
    world.event(Event::Want(migrate(1, &[1, 2])));
    world.event(Event::Want(migrate(2, &[2, 3])));
    assert_eq!(world.grants.len(), 1);
    assert_eq!(world.mounts.why(world.now, WantId(2)), Some(Why::Reserved { drives: 1 }));
    world.event(Event::Want(recall(3, 5)));
    assert_eq!(world.grants.len(), 2, "the recall finds its drive free");
    world.release(0, Released::Clean);
    assert_eq!(world.grants.iter().filter(|grant| grant.purpose == Purpose::Migrate).count(), 1);
}

#[test]
fn with_a_single_drive_migration_may_use_it() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::Want(migrate(1, &[1])));
    assert_eq!(world.grants.len(), 1);
}

#[test]
fn a_pool_uses_no_more_drives_than_it_may() {
    let rules = Rules { reserved_for_recall: 0, ..Rules::default() };
    let mut world = World::new(3, 6, rules);
    for id in 1..=3 {
        world.event(Event::Want(Want { max_drives: 2, ..migrate(id, &[id as usize]) }));
    }
    assert_eq!(world.grants.len(), 2);
    assert_eq!(world.mounts.why(world.now, WantId(3)), Some(Why::PoolLimit { pool: "archive".into(), drives: 2 }));
}

#[test]
fn priority_goes_first_and_who_starves_before_that() {
    let rules = Rules { starvation: Duration::from_secs(100), linger: Duration::ZERO, ..Rules::default() };
    let mut world = World::new(1, 5, rules);
    world.event(Event::Want(recall(1, 1)));
    world.event(Event::Want(Want { since: at(0), ..recall(2, 2) }));
    world.event(Event::Want(Want { since: at(50), priority: 9, ..recall(3, 3) }));
    world.release(0, Released::Clean);
    assert_eq!(world.grants[0].want, WantId(3));
    world.event(Event::Want(Want { since: at(60), priority: 9, ..recall(4, 4) }));
    world.pass(101);
    world.release(0, Released::Clean);
    assert_eq!(world.grants[0].want, WantId(2), "it has waited longer than anybody may");
}

#[test]
fn a_disabled_or_absent_cartridge_is_refused_with_the_reason() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::Cartridges(vec![(volume(2), Some("chewed".into())), (volume(9), None)]));
    world.event(Event::Want(recall(1, 2)));
    world.event(Event::Want(recall(2, 9)));
    assert!(matches!(&world.refused[0], (WantId(1), Why::Disabled { reason, .. }) if reason == "chewed"));
    assert!(matches!(&world.refused[1], (WantId(2), Why::Outside { .. })));
}

#[test]
fn a_write_takes_the_next_cartridge_when_the_first_is_disabled() {
    let mut world = World::new(1, 3, Rules::default());
    world.event(Event::Cartridges(vec![(volume(1), Some("chewed".into()))]));
    world.event(Event::Want(migrate(1, &[1, 2])));
    assert_eq!(world.grants[0].volume, volume(2));
}

#[test]
fn a_drive_that_fails_goes_down_with_a_reason_and_the_work_goes_to_another() {
    let mut world = World::new(2, 2, Rules::default());
    world.bad_attach.insert((drive(1), volume(1)), FaultKind::Drive);
    world.event(Event::Want(recall(1, 1)));
    world.pass(10);
    assert_eq!(world.grants[0].drive, drive(2));
    let shown = world.mounts.drives();
    assert_eq!(shown[0].state, wire::admin::site::DriveState::Down);
    assert!(shown[0].reason.as_ref().is_some_and(|reason| reason.contains("Drive")));
    world.event(Event::SetDrive { drive: drive(1), down: None });
    assert_eq!(world.mounts.drives()[0].state, wire::admin::site::DriveState::Up);
}

#[test]
fn an_error_that_follows_the_tape_disables_the_tape() {
    let mut world = World::new(2, 3, Rules::default());
    for number in 1..=2 {
        world.bad_attach.insert((drive(number), volume(1)), FaultKind::Medium);
    }
    world.event(Event::Want(recall(1, 1)));
    world.pass(30);
    assert_eq!(world.suspects, [volume(1)]);
    assert!(matches!(&world.refused[..], [(WantId(1), Why::Disabled { .. })]));
    assert_eq!(world.mounts.drives_up(), 2);
}

#[test]
fn an_error_that_follows_the_drive_takes_the_drive_down() {
    let mut world = World::new(2, 3, Rules::default());
    for number in 1..=2 {
        world.bad_attach.insert((drive(1), volume(number)), FaultKind::Medium);
    }
    world.event(Event::Want(recall(1, 1)));
    world.pass(20);
    assert_eq!(world.grants[0].drive, drive(2));
    world.event(Event::Want(recall(2, 2)));
    world.pass(20);
    assert_eq!(world.mounts.drives_up(), 1);
    assert_eq!(world.suspects, []);
}

#[test]
fn a_wrong_volume_is_disabled_at_once() {
    let mut world = World::new(2, 2, Rules::default());
    world.bad_attach.insert((drive(1), volume(1)), FaultKind::WrongVolume);
    world.event(Event::Want(recall(1, 1)));
    world.pass(5);
    assert_eq!(world.suspects, [volume(1)]);
}

#[test]
fn a_move_whose_outcome_is_unknown_is_followed_by_an_inventory_before_anything_moves() {
    for lies in [false, true] {
        let mut world = World::new(2, 3, Rules::default());
        world.bad_moves = 1;
        world.move_lies = lies;
        world.event(Event::Want(recall(1, 1)));
        world.event(Event::Want(recall(2, 2)));
        assert_eq!(world.grants.len(), 0, "nothing moves until the inventory is known");
        world.pass(10);
        assert_eq!(world.grants.len(), 2);
        let first = world.log.iter().position(|action| matches!(action, Action::Move { .. })).expect("a move");
        let next = world.log[first + 1..].iter().find(|action| {
            matches!(action, Action::Move { .. } | Action::TakeInventory { .. } | Action::Attach { .. })
        });
        assert!(matches!(next, Some(Action::TakeInventory { .. })), "{next:?}");
    }
}

#[test]
fn a_cartridge_the_robot_cannot_move_is_given_up() {
    let mut world = World::new(1, 2, Rules::default());
    world.bad_moves = 99;
    world.event(Event::Want(recall(1, 1)));
    world.pass(60);
    assert_eq!(world.suspects, [volume(1)]);
    assert!(matches!(&world.refused[..], [(WantId(1), Why::Disabled { .. })]));
}

#[test]
fn a_cartridge_found_in_a_drive_at_the_start_is_attached_there_or_sent_home() {
    let mut world = World::new(2, 4, Rules::default());
    world.event(Event::Want(recall(1, 2)));
    let held = world.grants[0].drive.clone();
    // The gateway starts again, and knows nothing.
    world.mounts = Mounts::new(Rules::default(), Epoch(8));
    world.grants.clear();
    world.drives.values_mut().for_each(|place| place.1 = false);
    world.event(Event::Cartridges((1..=4).map(|number| (volume(number), None)).collect()));
    world.connect();
    world.event(Event::Want(recall(1, 2)));
    assert_eq!(world.grants[0].drive, held);
    assert!(world.epochs.last() > Some(&Epoch(8 << 32)));
    world.release(0, Released::Clean);
    world.pass(60);
    assert_eq!(world.slots.len(), 4);
}

#[test]
fn a_mover_that_goes_takes_its_grants_and_comes_back_with_an_inventory() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::Want(recall(1, 1)));
    world.event(Event::MoverGone { mover: mover(), reason: "it was killed".into() });
    assert_eq!(world.revoked.len(), 1);
    world.event(Event::Want(recall(2, 1)));
    assert!(matches!(world.mounts.why(world.now, WantId(2)), Some(Why::Library { .. })));
    world.drives.values_mut().for_each(|place| place.1 = false);
    world.connect();
    world.pass(1);
    assert_eq!(world.grants[0].want, WantId(2));
}

#[test]
fn a_tape_in_doubt_is_detached_before_it_is_used_again() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::Want(migrate(1, &[1])));
    world.release(0, Released::Doubt);
    world.event(Event::Want(migrate(2, &[1])));
    assert_eq!(world.epochs.len(), 2);
    assert_eq!(world.grants.len(), 1);
}

#[test]
fn a_want_taken_back_while_its_cartridge_comes_leaves_the_drive_to_others() {
    let mut mounts = Mounts::new(Rules::default(), Epoch(1));
    let mut world = World::new(1, 2, Rules::default());
    std::mem::swap(&mut mounts, &mut world.mounts);
    let actions = mounts.apply(at(1), Event::Want(recall(1, 1)));
    let Some(Action::Move { command, drive, .. }) = actions.first() else { panic!("{actions:?}") };
    mounts.apply(at(2), Event::Unwant(WantId(1)));
    mounts.apply(at(2), Event::Want(recall(2, 1)));
    let actions = mounts.apply(at(3), Event::Moved { drive: drive.clone(), command: *command, result: Ok(()) });
    assert!(matches!(&actions[..], [Action::Attach { .. }]), "{actions:?}");
}

#[test]
fn a_mover_that_goes_away_in_the_middle_is_no_fault_of_its_drive() {
    let mut mounts = Mounts::new(Rules::default(), Epoch(1));
    std::mem::swap(&mut mounts, &mut World::new(1, 2, Rules::default()).mounts);
    let lost = || Fault::new(FaultKind::PeerLost, "mover m1 is away");
    let actions = mounts.apply(at(1), Event::Want(recall(1, 1)));
    let Some(Action::Move { command, drive, .. }) = actions.first() else { panic!("{actions:?}") };
    let actions = mounts.apply(at(2), Event::Moved { drive: drive.clone(), command: *command, result: Ok(()) });
    let [Action::Attach { command, drive, .. }] = &actions[..] else { panic!("{actions:?}") };
    // The calls end before it is told that the mover is gone.
    let mut actions =
        mounts.apply(at(3), Event::Attached { drive: drive.clone(), command: *command, result: Err(lost()) });
    for second in 4..60 {
        actions.extend(mounts.apply(at(second), Event::Tick));
    }
    let detach = |action: &Action| if let Action::Detach { command, .. } = action { Some(*command) } else { None };
    let command = actions.iter().find_map(detach).expect("what is not known to be attached is detached");
    mounts.apply(at(60), Event::Detached { drive: drive.clone(), command, result: Err(lost()) });
    assert!(
        mounts.drives().iter().all(|drive| drive.state == wire::admin::site::DriveState::Up),
        "{:?}",
        mounts.drives()
    );
}

#[test]
fn an_answer_to_an_old_command_changes_nothing() {
    let mut mounts = Mounts::new(Rules::default(), Epoch(1));
    let world = World::new(1, 2, Rules::default());
    let before = world.mounts.drives();
    mounts.clone_from(&world.mounts);
    mounts
        .apply(at(1), Event::Moved { drive: drive(1), command: 999, result: Err(Fault::new(FaultKind::Library, "x")) });
    mounts.apply(at(1), Event::Detached { drive: drive(1), command: 999, result: Ok(()) });
    assert_eq!(mounts.drives(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_happens_every_want_ends_in_a_grant_or_a_reason(
        steps in prop::collection::vec((0u8..10, 1usize..6, 0u64..3), 1..60),
        drives in 1usize..4,
    ) {
        let mut world = World::new(drives, 5, Rules::default());
        for (id, (what, number, other)) in steps.into_iter().enumerate() {
            let id = 100 + id as u64;
            match what {
                0..=2 => world.event(Event::Want(Want { since: world.now, ..recall(id, number) })),
                3 => world.event(Event::Want(Want { since: world.now, ..migrate(id, &[number, 1 + number % 5]) })),
                4 | 5 if !world.grants.is_empty() => world.release(0, Released::Clean),
                6 if !world.grants.is_empty() => world.release(0, Released::Doubt),
                7 => world.bad_moves = (other % 2) as u32,
                8 => {
                    world.event(Event::MoverGone { mover: mover(), reason: "x".into() });
                    world.drives.values_mut().for_each(|place| place.1 = false);
                    world.connect();
                }
                _ => world.pass(other * 11),
            }
        }
        world.bad_moves = 0;
        for _ in 0..200 {
            world.pass(7);
            if !world.grants.is_empty() {
                world.release(0, Released::Clean);
            }
        }
        prop_assert!(world.mounts.wants.is_empty(), "{:?}", world.mounts);
        prop_assert!(world.grants.is_empty());
        world.pass(60);
        prop_assert_eq!(world.slots.len(), 5, "everything went home");
    }
}
