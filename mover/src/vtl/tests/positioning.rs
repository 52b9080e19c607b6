//! SPACE, LOCATE and READ POSITION: where the head stands after each.

use super::*;
use crate::scsi::stream::Position;
use crate::scsi::{I24, LocateTarget, PositionForm, SpaceUnit};

fn position(bench: &mut Bench, form: PositionForm) -> Position {
    let mut buffer = vec![0; usize::from(Position::bytes(form))];
    let cdb = Cdb::ReadPosition { form, allocation: Position::bytes(form) };
    assert_eq!(bench.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap(), Completion::GOOD);
    Position::decode(form, &buffer).unwrap()
}

fn at(bench: &mut Bench) -> u64 {
    position(bench, PositionForm::Short).next_object.unwrap()
}

fn space(bench: &mut Bench, unit: SpaceUnit, count: i32) -> Completion {
    bench.run(Cdb::Space6 { unit, count: I24::new(count).unwrap() })
}

/// Three files of 3, 2 and 1 blocks: 0 1 2 | 4 5 | 7 |, end of data at 9; marks at 3, 6 and 8.
fn three_files() -> Bench {
    let mut bench = Bench::new();
    bench.write_files(&[3, 2, 1]);
    bench.good(Cdb::Rewind { immediate: false });
    bench
}

#[test]
fn spacing_over_blocks_stops_at_a_filemark_and_says_how_many_are_left() {
    let mut bench = three_files();
    let sense = space(&mut bench, SpaceUnit::Blocks, 5).sense.unwrap();
    assert_eq!((sense.code(), sense.filemark, sense.information), ((0, 0, 1), true, Some(2)));
    assert_eq!(at(&mut bench), 4);
    let sense = space(&mut bench, SpaceUnit::Blocks, -2).sense.unwrap();
    assert_eq!((sense.filemark, sense.information), (true, Some(2)));
    assert_eq!(at(&mut bench), 3, "on the side of the mark towards the beginning");
    assert_eq!(space(&mut bench, SpaceUnit::Blocks, -3), Completion::GOOD);
    assert_eq!(at(&mut bench), 0);
    let sense = space(&mut bench, SpaceUnit::Blocks, -1).sense.unwrap();
    assert_eq!((sense.code(), sense.end_of_medium), ((0, 0, 4), true));
}

#[test]
fn spacing_back_over_a_filemark_leaves_it_to_be_read() {
    let mut bench = three_files();
    assert_eq!(space(&mut bench, SpaceUnit::EndOfData, 0), Completion::GOOD);
    assert_eq!(at(&mut bench), 9);
    assert_eq!(space(&mut bench, SpaceUnit::Filemarks, -1), Completion::GOOD);
    assert_eq!(at(&mut bench), 8);
    assert_eq!(code(&bench.read(1000).0), (0, 0, 1));
    assert_eq!(space(&mut bench, SpaceUnit::Filemarks, -2), Completion::GOOD);
    assert_eq!(at(&mut bench), 6);
    let sense = space(&mut bench, SpaceUnit::Filemarks, -3).sense.unwrap();
    assert_eq!((sense.code(), sense.information), ((0, 0, 4), Some(2)));
    assert_eq!(at(&mut bench), 0);
}

#[test]
fn spacing_past_the_end_of_data_is_a_blank_check() {
    let mut bench = three_files();
    assert_eq!(space(&mut bench, SpaceUnit::Filemarks, 2), Completion::GOOD);
    assert_eq!(at(&mut bench), 7);
    let sense = space(&mut bench, SpaceUnit::Filemarks, 3).sense.unwrap();
    assert_eq!((sense.code(), sense.information), ((8, 0, 5), Some(2)));
    assert_eq!(at(&mut bench), 9);
    let sense = bench.run(Cdb::Space16 { unit: SpaceUnit::Blocks, count: 1 << 40 }).sense.unwrap();
    assert_eq!(sense.information, Some(1 << 40));
}

#[test]
fn locate_finds_blocks_files_and_the_end() {
    let mut bench = three_files();
    for (target, block) in [
        (LocateTarget::Block(5), 5),
        (LocateTarget::File(0), 0),
        (LocateTarget::File(2), 7),
        (LocateTarget::EndOfData, 9),
        (LocateTarget::Block(9), 9),
    ] {
        bench.good(Cdb::Locate16 { immediate: false, target });
        assert_eq!(at(&mut bench), block, "{target:?}");
    }
    bench.good(Cdb::Locate10 { immediate: false, block: 4 });
    assert_eq!(bench.read(1000).1[0], 3);
    for target in [LocateTarget::Block(10), LocateTarget::File(4), LocateTarget::Block(u64::MAX)] {
        assert_eq!(code(&bench.run(Cdb::Locate16 { immediate: false, target })), (8, 0, 5));
        assert_eq!(at(&mut bench), 9);
    }
}

#[test]
fn the_three_forms_of_a_position_agree_and_tell_the_buffer() {
    let mut bench = Bench::new();
    bench.write_files(&[1]);
    assert_eq!(bench.write(&[1; 1000]), Completion::GOOD);
    assert_eq!(bench.filemarks(1, true), Completion::GOOD);
    let short = position(&mut bench, PositionForm::Short);
    let extended = position(&mut bench, PositionForm::Extended);
    let long = position(&mut bench, PositionForm::Long);
    assert_eq!(short, extended);
    assert_eq!((short.next_object, long.next_object, long.filemarks), (Some(4), Some(4), Some(2)));
    assert_eq!((short.buffered_objects, short.buffered_bytes, short.is_flushed()), (Some(2), Some(1000), false));
    assert_eq!(bench.filemarks(0, false), Completion::GOOD);
    assert!(position(&mut bench, PositionForm::Extended).is_flushed());
}

#[test]
fn an_unreserved_drive_lets_a_stray_rewind_destroy_the_beginning() {
    // The reason for fencing, kept as a test: without a reservation the second writer overwrites block 0.
    let mut bench = Bench::new();
    bench.write_files(&[3]);
    let mut other = bench.vtl.drive(0).unwrap();
    settle(&mut other);
    other.execute(&Cdb::Rewind { immediate: false }, DataPhase::None).unwrap();
    assert_eq!(bench.write(&[0xff; 10]), Completion::GOOD);
    assert_eq!(at(&mut bench), 1);
    bench.good(Cdb::Locate16 { immediate: false, target: LocateTarget::EndOfData });
    assert_eq!(at(&mut bench), 1);
}
