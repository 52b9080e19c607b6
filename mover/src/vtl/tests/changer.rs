//! The robot: inventory, moves, and what a person does to a library.

use super::*;
use crate::scsi::element::{Element, decode_elements};
use wire::id::VolumeLabel;

fn inventory(changer: &mut Nexus) -> Vec<Element> {
    let mut buffer = vec![0; 65_536];
    let cdb = Cdb::ReadElementStatus {
        kind: None,
        volume_tags: true,
        start: 0,
        count: u16::MAX,
        device_ids: true,
        allocation: U24::new(65_536).unwrap(),
    };
    let completion = changer.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    assert_eq!(completion.status, Status::Good);
    decode_elements(&buffer[..65_536 - completion.residual_bytes]).unwrap()
}

fn moved(changer: &mut Nexus, source: u16, destination: u16) -> Completion {
    changer.execute(&Cdb::MoveMedium { robot: 0, source, destination }, DataPhase::None).unwrap()
}

fn library() -> (TempDir, Vtl, Nexus) {
    let folder = tempfile::tempdir().unwrap();
    let vtl = Vtl::create(folder.path(), &VtlSpec::new(2, 3, 1 << 20)).unwrap();
    let mut changer = vtl.changer();
    settle(&mut changer);
    (folder, vtl, changer)
}

fn where_is(elements: &[Element], tag: &str) -> Vec<u16> {
    elements.iter().filter(|element| element.tag.as_deref() == Some(tag)).map(|element| element.address).collect()
}

#[test]
fn the_inventory_has_every_element_with_its_tag_and_serial_number() {
    let (_folder, _vtl, mut changer) = library();
    let elements = inventory(&mut changer);
    assert_eq!(elements.len(), 1 + 6 + 2 + 2);
    assert_eq!(where_is(&elements, "PEN002L8"), [SLOT + 1]);
    let serials: Vec<_> = elements.iter().filter_map(|element| element.device.as_deref()).collect();
    assert_eq!(serials, ["PSK0000001", "PSK0000002"]);
}

#[test]
fn a_cartridge_moves_and_the_inventory_survives_a_restart() {
    let (folder, vtl, mut changer) = library();
    assert_eq!(moved(&mut changer, SLOT, DRIVE + 1), Completion::GOOD);
    let drive = inventory(&mut changer).into_iter().find(|element| element.address == DRIVE + 1).unwrap();
    assert_eq!((drive.tag.as_deref(), drive.source, drive.accessible), (Some("PEN001L8"), Some(SLOT), false));
    drop((vtl, changer));
    let vtl = Vtl::open(folder.path()).unwrap();
    let mut changer = vtl.changer();
    settle(&mut changer);
    assert_eq!(where_is(&inventory(&mut changer), "PEN001L8"), [DRIVE + 1]);
    let mut nexus = vtl.drive(1).unwrap();
    settle(&mut nexus);
    assert_eq!(nexus.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap(), Completion::GOOD);
}

#[test]
fn impossible_moves_are_refused_each_with_its_sense() {
    let (_folder, _vtl, mut changer) = library();
    assert_eq!(code(&moved(&mut changer, SLOT + 4, DRIVE)), (5, 0x3b, 0x0e));
    assert_eq!(code(&moved(&mut changer, SLOT, SLOT + 1)), (5, 0x3b, 0x0d));
    assert_eq!(code(&moved(&mut changer, SLOT, 0x7777)), (5, 0x21, 0x01));
    assert_eq!(moved(&mut changer, SLOT, DRIVE), Completion::GOOD);
    assert_eq!(code(&moved(&mut changer, DRIVE, SLOT)), (5, 0x53, 0x01), "the tape is threaded");
}

#[test]
fn a_drive_gives_its_cartridge_up_only_unloaded_and_unlocked() {
    let mut bench = Bench::new();
    let mut changer = bench.vtl.changer();
    settle(&mut changer);
    bench.good(Cdb::PreventRemoval { prevent: true });
    let unload = Cdb::LoadUnload { load: false, hold: false, immediate: false };
    assert_eq!(code(&bench.run(unload)), (5, 0x53, 0x02));
    bench.good(Cdb::PreventRemoval { prevent: false });
    bench.good(unload);
    assert_eq!(code(&bench.run(Cdb::TestUnitReady)), (2, 0x04, 0x02));
    assert_eq!(moved(&mut changer, DRIVE, SLOT), Completion::GOOD);
    assert_eq!(code(&bench.run(Cdb::TestUnitReady)), (2, 0x3a, 0x00));
    assert_eq!(moved(&mut changer, SLOT + 1, DRIVE), Completion::GOOD);
    assert_eq!(code(&bench.run(Cdb::TestUnitReady)), (6, 0x28, 0x00));
    bench.good(Cdb::TestUnitReady);
}

#[test]
fn a_move_whose_answer_is_lost_may_have_happened_or_not() {
    let (_folder, vtl, mut changer) = library();
    let moving = Cdb::MoveMedium { robot: 0, source: SLOT, destination: DRIVE };
    vtl.fail_next(Unit::Changer, Some("MOVE MEDIUM"), Failure::Lost);
    assert!(matches!(changer.execute(&moving, DataPhase::None), Err(ScsiError::Timeout)));
    assert_eq!(where_is(&inventory(&mut changer), "PEN001L8"), [SLOT]);
    vtl.fail_next(Unit::Changer, Some("MOVE MEDIUM"), Failure::AnswerLost);
    assert!(matches!(changer.execute(&moving, DataPhase::None), Err(ScsiError::Timeout)));
    assert_eq!(where_is(&inventory(&mut changer), "PEN001L8"), [DRIVE]);
}

#[test]
fn a_person_puts_a_cartridge_in_and_takes_it_out() {
    let (_folder, vtl, mut changer) = library();
    let barcode = VolumeLabel::new("NEW001L8").unwrap();
    let cartridge = CartridgeSpec { barcode, kind: CartridgeKind::Data, capacity_bytes: 1 << 20 };
    vtl.insert(&cartridge).unwrap();
    assert!(vtl.insert(&cartridge).is_err());
    let opened = changer.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap();
    assert_eq!(code(&opened), (6, 0x28, 0x01));
    let mail = where_is(&inventory(&mut changer), "NEW001L8")[0];
    let element = inventory(&mut changer).into_iter().find(|element| element.address == mail).unwrap();
    assert!(element.imported && element.kind == crate::scsi::ElementKind::Mail);
    assert!(vtl.remove("PEN001L8").is_err());
    vtl.remove("NEW001L8").unwrap();
    settle(&mut changer);
    assert!(where_is(&inventory(&mut changer), "NEW001L8").is_empty());
}

#[test]
fn a_second_process_is_kept_out() {
    let (folder, vtl, changer) = library();
    assert_eq!(Vtl::open(folder.path()).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(Vtl::create(folder.path(), &VtlSpec::new(1, 1, 1)).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    drop((vtl, changer));
    assert!(Vtl::open(folder.path()).is_ok());
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(Vtl::open(empty.path()).err().unwrap().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_virtual_clock_moves_as_a_library_would_take() {
    let (_folder, vtl, mut changer) = library();
    let clock = VirtualClock::default();
    vtl.set_pace(Pace::Virtual(clock.clone()));
    assert_eq!(moved(&mut changer, SLOT, DRIVE), Completion::GOOD);
    assert!(clock.now() >= Duration::from_secs(10));
    assert_eq!(vtl.activity(0).unwrap().loads, 1);
}
