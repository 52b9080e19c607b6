//! Drives that operators take out of use, and put into use again.

use super::*;

#[test]
fn an_operator_takes_a_drive_down_when_its_holder_is_done() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::Want(recall(1, 1)));
    world.event(Event::SetDrive { drive: drive(1), down: Some("belt".into()) });
    assert_eq!(world.grants.len(), 1, "what runs goes on");
    world.release(0, Released::Clean);
    assert_eq!(world.slots.len(), 2);
    world.event(Event::Want(recall(2, 2)));
    assert!(matches!(world.mounts.why(world.now, WantId(2)), Some(Why::NoDrive { reason }) if reason.contains("belt")));
}

#[test]
fn a_drive_that_was_down_for_an_earlier_owner_is_down_until_an_operator_puts_it_up() {
    let down = [(drive(1), "belt".to_owned())].into();
    let mut world = World::with(Mounts::new(Rules::default(), Epoch(7)).with_down(down), 1, 2);
    world.event(Event::Want(recall(1, 1)));
    assert!(matches!(world.mounts.why(world.now, WantId(1)), Some(Why::NoDrive { reason }) if reason.contains("belt")));
    world.event(Event::SetDrive { drive: drive(1), down: None });
    world.pass(1);
    assert_eq!(world.grants.len(), 1);
}

#[test]
fn an_empty_drive_taken_down_and_up_again_is_used_again() {
    let mut world = World::new(1, 2, Rules::default());
    world.event(Event::SetDrive { drive: drive(1), down: Some("belt".into()) });
    world.event(Event::Want(recall(1, 1)));
    world.event(Event::SetDrive { drive: drive(1), down: None });
    world.pass(1);
    assert_eq!(world.grants.len(), 1);
}
