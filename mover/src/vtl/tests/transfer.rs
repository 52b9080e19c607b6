//! Reading and writing, their senses, and what survives.

use super::*;
use crate::scsi::log::{LogPage, TAPE_ALERT_PAGE, TapeAlerts};
use crate::scsi::mam::{self, Attribute};
use crate::scsi::mode::{BlockProtection, EarlyWarning, ModeData, ModeForm, ModePage};
use crate::scsi::{LogControl, PageControl};

fn select(bench: &mut Bench, page: ModePage) -> Completion {
    let list = ModeData { pages: vec![page], ..ModeData::default() }.encode(ModeForm::Ten, false, true);
    let cdb = Cdb::ModeSelect10 { save: false, length: list.len() as u16 };
    bench.drive.execute(&cdb, DataPhase::Out(&list)).unwrap()
}

#[test]
fn a_new_nexus_is_told_of_power_on_once_and_may_always_inquire() {
    let bench = Bench::new();
    let mut other = bench.vtl.drive(0).unwrap();
    let mut buffer = [0; 36];
    let inquiry = Cdb::Inquiry { page: None, allocation: 36 };
    assert_eq!(other.execute(&inquiry, DataPhase::In(&mut buffer)).unwrap(), Completion::GOOD);
    let first = other.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap();
    assert_eq!(code(&first), (6, 0x29, 0));
    assert_eq!(other.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap(), Completion::GOOD);
}

#[test]
fn bytes_that_are_no_command_are_refused_as_a_device_does() {
    let mut bench = Bench::new();
    let mut run = |bytes: &[u8]| bench.drive.execute_bytes(bytes, DataPhase::None).unwrap();
    assert_eq!(run(&[0; 6]), Completion::GOOD);
    assert_eq!(code(&run(&[0x02; 6])), (5, 0x20, 0));
    assert_eq!(code(&run(&[0x11, 0x0f, 0, 0, 1, 0])), (5, 0x24, 0));
    assert_eq!(code(&run(&[0x92])), (5, 0x24, 0));
}

#[test]
fn a_block_is_read_as_it_was_written_and_a_wrong_length_is_told() {
    let mut bench = Bench::new();
    let block: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
    for _ in 0..3 {
        assert_eq!(bench.write(&block), Completion::GOOD);
    }
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(bench.read(2000), (Completion::GOOD, block.clone()));
    // A longer request: the block, and how much is missing.
    let (completion, buffer) = bench.read(3000);
    let sense = completion.sense.unwrap();
    assert!(sense.wrong_length && sense.information == Some(1000) && completion.residual_bytes == 1000);
    assert_eq!(buffer[..2000], block);
    // A shorter request: the beginning of the block, which is passed.
    let (completion, buffer) = bench.read(500);
    assert_eq!(completion.sense.unwrap().information, Some(-1500));
    assert_eq!(buffer, block[..500]);
    assert_eq!(code(&bench.read(2000).0), (8, 0, 5));
}

#[test]
fn a_suppressed_wrong_length_is_only_in_the_residual() {
    let mut bench = Bench::new();
    bench.write_files(&[1]);
    bench.good(Cdb::Rewind { immediate: false });
    let mut buffer = [0; 4096];
    let cdb = Cdb::Read6 { fixed: false, suppress_wrong_length: true, length: U24::new(4096).unwrap() };
    let completion = bench.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    assert_eq!(completion, Completion { residual_bytes: 3096, ..Completion::GOOD });
}

#[test]
fn a_filemark_and_the_end_of_data_are_different_things() {
    let mut bench = Bench::new();
    bench.write_files(&[1]);
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(bench.read(1000).0, Completion::GOOD);
    let (mark, _) = bench.read(1000);
    assert!(mark.sense.unwrap().filemark && code(&mark) == (0, 0, 1));
    assert_eq!(mark.residual_bytes, 1000);
    let (end, _) = bench.read(1000);
    assert!(!end.sense.unwrap().filemark && code(&end) == (8, 0, 5));
}

#[test]
fn a_fixed_read_that_meets_a_filemark_says_how_many_blocks_are_missing() {
    let mut bench = Bench::new();
    let list = ModeData { block_length: 1000, ..ModeData::default() }.encode(ModeForm::Six, true, true);
    let cdb = Cdb::ModeSelect6 { save: false, length: list.len() as u8 };
    assert_eq!(bench.drive.execute(&cdb, DataPhase::Out(&list)).unwrap(), Completion::GOOD);
    let length = U24::new(3).unwrap();
    let written = bench.drive.execute(&Cdb::Write6 { fixed: true, length }, DataPhase::Out(&[7; 3000])).unwrap();
    assert_eq!(written, Completion::GOOD);
    assert_eq!(bench.filemarks(1, false), Completion::GOOD);
    bench.good(Cdb::Rewind { immediate: false });
    let mut buffer = [0; 5000];
    let cdb = Cdb::Read6 { fixed: true, suppress_wrong_length: false, length: U24::new(5).unwrap() };
    let completion = bench.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    let sense = completion.sense.unwrap();
    assert!(sense.filemark && sense.information == Some(2) && completion.residual_bytes == 2000);
}

#[test]
fn early_warning_writes_the_block_and_overflow_does_not() {
    let mut bench = Bench::with(CartridgeKind::Data, 100_000);
    assert_eq!(select(&mut bench, EarlyWarning { size_mb: 0 }.encode()), Completion::GOOD);
    let mut written = 0;
    let warning = loop {
        let completion = bench.write(&[1; 1000]);
        written += 1;
        if completion != Completion::GOOD {
            break completion;
        }
    };
    assert!(warning.sense.unwrap().end_of_medium && code(&warning) == (0, 0, 2) && written < 100);
    while written < 100 {
        assert_eq!(code(&bench.write(&[1; 1000])), (0, 0, 2));
        written += 1;
    }
    let overflow = bench.write(&[1; 1000]);
    let sense = overflow.sense.unwrap();
    assert_eq!((sense.code(), sense.information, sense.end_of_medium), ((0xd, 0, 2), Some(1000), true));
    assert_eq!(code(&bench.filemarks(1, false)), (0, 0, 2));
    bench.good(Cdb::Rewind { immediate: false });
    for _ in 0..100 {
        assert_eq!(bench.read(1000).0, Completion::GOOD);
    }
    assert_eq!(code(&bench.read(1000).0), (0, 0, 1));
}

#[test]
fn programmable_early_warning_comes_once_and_again_after_going_back() {
    let mut bench = Bench::with(CartridgeKind::Data, 20_000_000);
    assert_eq!(select(&mut bench, EarlyWarning { size_mb: 10 }.encode()), Completion::GOOD);
    let block = vec![1; 1_000_000];
    for _ in 0..2 {
        let warned: Vec<usize> = (1..=14).filter(|_| bench.write(&block) != Completion::GOOD).collect();
        assert_eq!(warned, [6], "early warning is at 15.8 MB, programmed 10 MB before");
        bench.good(Cdb::Rewind { immediate: false });
    }
}

#[test]
fn a_worm_cartridge_is_written_at_its_end_only() {
    let mut bench = Bench::with(CartridgeKind::Worm, 64 << 20);
    bench.write_files(&[2]);
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(code(&bench.write(&[1; 10])), (7, 0x30, 0x0c));
    assert_eq!(code(&bench.run(Cdb::Erase6 { long: false, immediate: false })), (7, 0x30, 0x0c));
    bench.good(Cdb::Locate16 { immediate: false, target: crate::scsi::LocateTarget::EndOfData });
    assert_eq!(bench.write(&[1; 10]), Completion::GOOD);
}

#[test]
fn a_cleaning_cartridge_takes_no_data_and_clears_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let label = wire::id::VolumeLabel::new("CLN001L1").unwrap();
    let spec = VtlSpec::new(1, 0, 0).with(label, CartridgeKind::Cleaning, 0);
    let vtl = Vtl::create(folder.path(), &spec).unwrap();
    vtl.raise_alert(0, TapeAlerts::CLEAN_NOW);
    let (mut changer, mut drive) = (vtl.changer(), vtl.drive(0).unwrap());
    settle(&mut changer);
    settle(&mut drive);
    let moving = Cdb::MoveMedium { robot: 0, source: SLOT, destination: DRIVE };
    assert_eq!(changer.execute(&moving, DataPhase::None).unwrap(), Completion::GOOD);
    settle(&mut drive);
    assert_eq!(code(&drive.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap()), (2, 0x30, 3));
    let back = Cdb::MoveMedium { robot: 0, source: DRIVE, destination: SLOT };
    assert_eq!(changer.execute(&back, DataPhase::None).unwrap(), Completion::GOOD);
    assert_eq!(alerts(&mut drive).flags().count(), 0);
}

fn alerts(nexus: &mut Nexus) -> TapeAlerts {
    let mut buffer = vec![0; 1000];
    let (control, page) = (LogControl::Cumulative, TAPE_ALERT_PAGE);
    let cdb = Cdb::LogSense { control, page, subpage: 0, parameter: 0, allocation: 1000 };
    let completion = nexus.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    buffer.truncate(1000 - completion.residual_bytes);
    TapeAlerts::of(&LogPage::decode(&buffer).unwrap())
}

#[test]
fn reading_tape_alerts_clears_them() {
    let mut bench = Bench::new();
    bench.vtl.raise_alert(0, 3);
    assert_eq!(alerts(&mut bench.drive).flags().collect::<Vec<_>>(), [3]);
    assert_eq!(alerts(&mut bench.drive), TapeAlerts::default());
}

#[test]
fn block_protection_refuses_a_wrong_sum_and_gives_the_right_one() {
    let mut bench = Bench::new();
    assert_eq!(select(&mut bench, BlockProtection::CRC32C.encode()), Completion::GOOD);
    let mut block = b"123456789".to_vec();
    block.extend_from_slice(&0xe306_9283u32.to_le_bytes());
    assert_eq!(bench.write(&block), Completion::GOOD);
    let mut wrong = block.clone();
    wrong[0] ^= 1;
    assert_eq!(code(&bench.write(&wrong)), (4, 0x10, 1));
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(bench.read(13), (Completion::GOOD, block));
    bench.good(Cdb::Rewind { immediate: false });
    // A host without protection sees the block as it is: `dd` still works.
    assert_eq!(select(&mut bench, BlockProtection::default().encode()), Completion::GOOD);
    assert_eq!(bench.read(9), (Completion::GOOD, b"123456789".to_vec()));
}

#[test]
fn a_changed_mode_is_told_to_other_nexuses() {
    let mut bench = Bench::new();
    let mut other = bench.vtl.drive(0).unwrap();
    settle(&mut other);
    assert_eq!(select(&mut bench, BlockProtection::CRC32C.encode()), Completion::GOOD);
    assert_eq!(code(&other.execute(&Cdb::TestUnitReady, DataPhase::None).unwrap()), (6, 0x2a, 1));
    bench.good(Cdb::TestUnitReady);
    let mut unknown = ModePage { page: 0x3e, subpage: 0, payload: vec![0; 4] };
    unknown.payload[0] = 1;
    assert_eq!(code(&select(&mut bench, unknown)), (5, 0x26, 0));
}

#[test]
fn what_was_flushed_survives_a_kill_and_the_rest_is_gone() {
    let mut bench = Bench::new();
    bench.write_files(&[2]);
    assert_eq!(bench.write(&[9; 1000]), Completion::GOOD);
    assert_eq!(bench.filemarks(1, true), Completion::GOOD);
    let mut bench = bench.killed();
    assert_eq!(bench.read(1000).1[0], 0);
    assert_eq!(bench.read(1000).1[0], 1);
    assert_eq!(code(&bench.read(1000).0), (0, 0, 1));
    assert_eq!(code(&bench.read(1000).0), (8, 0, 5));
}

#[test]
fn a_power_cut_loses_the_buffer_the_mode_and_the_reservation() {
    let mut bench = Bench::new();
    bench.write_files(&[1]);
    assert_eq!(select(&mut bench, BlockProtection::CRC32C.encode()), Completion::GOOD);
    reserve_out(&mut bench.drive, ReserveOut::RegisterAndIgnoreExistingKey, 0, 5);
    assert_eq!(reserve_out(&mut bench.drive, ReserveOut::Reserve, 5, 0), Status::Good);
    bench.vtl.power_cut(0);
    assert_eq!(code(&bench.run(Cdb::TestUnitReady)), (6, 0x29, 0));
    assert_eq!(reserve_out(&mut bench.drive, ReserveOut::Reserve, 5, 0), Status::ReservationConflict);
    let mut buffer = [0; 64];
    let cdb = Cdb::ModeSense10 {
        no_block_descriptors: true,
        control: PageControl::Current,
        page: BlockProtection::PAGE,
        subpage: BlockProtection::SUBPAGE,
        allocation: 64,
    };
    bench.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    let mode = ModeData::decode(ModeForm::Ten, &buffer).unwrap();
    let page = mode.page(BlockProtection::PAGE, BlockProtection::SUBPAGE).unwrap();
    assert_eq!(BlockProtection::decode(page).unwrap(), BlockProtection::default());
}

#[test]
fn a_deferred_error_loses_everything_since_the_last_flush() {
    let mut bench = Bench::new();
    bench.write_files(&[1]);
    assert_eq!(bench.write(&[9; 1000]), Completion::GOOD);
    bench.vtl.fail_sync(0, Sense::new(SenseKey::MediumError, 0x0c, 0));
    let answer = bench.filemarks(1, false);
    assert!(answer.sense.unwrap().deferred && code(&answer) == (3, 0x0c, 0));
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(bench.read(1000).0, Completion::GOOD);
    assert_eq!(code(&bench.read(1000).0), (0, 0, 1));
    assert_eq!(code(&bench.read(1000).0), (8, 0, 5));
}

#[test]
fn a_block_changed_at_rest_is_a_read_error_not_data() {
    let mut bench = Bench::new();
    bench.write_files(&[2]);
    let path = bench.folder.path().join("cartridges/PEN001L8/data");
    let mut data = std::fs::read(&path).unwrap();
    data[500] ^= 1;
    std::fs::write(&path, data).unwrap();
    bench.good(Cdb::Rewind { immediate: false });
    assert_eq!(code(&bench.read(1000).0), (3, 0x11, 0));
    bench.good(Cdb::Locate10 { immediate: false, block: 1 });
    assert_eq!(bench.read(1000).0, Completion::GOOD);
}

#[test]
fn an_exclusive_reservation_keeps_others_from_the_medium() {
    let mut bench = Bench::new();
    let mut other = bench.vtl.drive(0).unwrap();
    settle(&mut other);
    reserve_out(&mut bench.drive, ReserveOut::RegisterAndIgnoreExistingKey, 0, 1);
    assert_eq!(reserve_out(&mut bench.drive, ReserveOut::Reserve, 1, 0), Status::Good);
    let rewind = Cdb::Rewind { immediate: false };
    assert_eq!(other.execute(&rewind, DataPhase::None).unwrap().status, Status::ReservationConflict);
    reserve_out(&mut other, ReserveOut::RegisterAndIgnoreExistingKey, 0, 2);
    assert_eq!(reserve_out(&mut other, ReserveOut::Preempt, 2, 1), Status::Good);
    assert_eq!(code(&bench.run(rewind)), (6, 0x2a, 5));
    assert_eq!(bench.run(rewind).status, Status::ReservationConflict);
    assert_eq!(other.execute(&rewind, DataPhase::None).unwrap(), Completion::GOOD);
}

#[test]
fn attributes_are_kept_in_the_cartridge() {
    let mut bench = Bench::new();
    let list = mam::encode_attributes(&[Attribute::ascii(mam::USER_LABEL, "archive", 160)]);
    let cdb = Cdb::WriteAttribute { partition: 0, write_through: true, length: list.len() as u32 };
    assert_eq!(bench.drive.execute(&cdb, DataPhase::Out(&list)).unwrap(), Completion::GOOD);
    let mine = mam::encode_attributes(&[Attribute::device(mam::MEDIUM_TYPE, &[0])]);
    let cdb = Cdb::WriteAttribute { partition: 0, write_through: true, length: mine.len() as u32 };
    assert_eq!(code(&bench.drive.execute(&cdb, DataPhase::Out(&mine)).unwrap()), (5, 0x26, 0));
    let mut bench = bench.killed();
    let mut buffer = vec![0; 2000];
    let cdb = Cdb::ReadAttribute { partition: 0, first: 0x0800, allocation: 2000 };
    bench.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
    let attributes = mam::decode_attributes(&buffer).unwrap();
    assert_eq!(attributes.iter().map(Attribute::text).collect::<Vec<_>>(), ["archive"]);
}
