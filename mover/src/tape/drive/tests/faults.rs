//! What goes wrong, one thing at a time: each is told as what it is, and what was committed stays whole.

use super::*;
use crate::tape::SinkError;

const READ_ERROR: Sense = Sense::new(SenseKey::MediumError, 0x11, 0x00);
const WRITE_ERROR: Sense = Sense::new(SenseKey::MediumError, 0x0c, 0x00);

fn files(seed: u64, first: u64) -> Vec<File> {
    random_files(&mut random(seed), first, 12)
}

/// One committed container, then `fail` breaks the second; the third attempt must work.
fn second_container_fails(kind: CartridgeKind, fail: impl FnOnce(&mut Bench, &[File]) -> DriveError) -> DriveError {
    let mut bench = Bench::with(kind, 1 << 30);
    let (first, second) = (files(10, 100), files(11, 200));
    let one = bench.append(1, &first).unwrap();
    let error = fail(&mut bench, &second);
    let two = bench.append(2, &second).unwrap();
    let all: Vec<_> = first.iter().chain(&second).cloned().collect();
    let written: Vec<_> = one.members.iter().chain(&two.members).cloned().collect();
    bench.check(&all, &written);
    bench.drive.detach(Unload::No).unwrap();
    bench.drive.attach(&label(), Epoch(2)).unwrap();
    let scan = bench.drive.scan().unwrap();
    let members: usize = scan.containers.iter().map(|container| container.members.len()).sum();
    assert_eq!((scan.containers.len(), members, scan.unreadable.len()), (2, all.len(), 0));
    bench.check(&all, &written);
    error
}

#[test]
fn a_source_that_fails_leaves_a_torn_container_that_is_written_over() {
    for kind in [CartridgeKind::Data, CartridgeKind::Worm] {
        let error = second_container_fails(kind, |bench, second| {
            let mut source = Files::new(second);
            source.fails_at = Some((11, 0));
            bench.append_from(2, &mut source).unwrap_err()
        });
        assert!(matches!(error, DriveError::Source(_)), "{error}");
    }
}

#[test]
fn data_that_is_not_what_it_was_is_not_committed() {
    let error = second_container_fails(CartridgeKind::Data, |bench, second| {
        let mut changed = second.to_vec();
        let file = changed.iter_mut().find(|file| !file.data.is_empty()).unwrap();
        file.data[0] ^= 1;
        bench.append(2, &changed).unwrap_err()
    });
    assert!(matches!(error, DriveError::Checksum { .. }), "{error}");
}

#[test]
fn a_deferred_error_fails_everything_since_the_last_commit() {
    let error = second_container_fails(CartridgeKind::Data, |bench, second| {
        bench.vtl.fail_sync(0, WRITE_ERROR);
        bench.append(2, second).unwrap_err()
    });
    assert_eq!(error.remedy(), Remedy::CloseVolume, "{error}");
}

#[test]
fn a_write_error_closes_the_volume_and_what_was_committed_is_read() {
    let error = second_container_fails(CartridgeKind::Data, |bench, second| {
        let next = bench.drive.append_point().unwrap().next_block;
        bench.vtl.fail_write(0, next + 1, WRITE_ERROR, 1);
        bench.append(2, second).unwrap_err()
    });
    assert_eq!(error.remedy(), Remedy::CloseVolume, "{error}");
}

#[test]
fn a_reset_in_the_middle_loses_the_container_and_nothing_else() {
    for power in [false, true] {
        let error = second_container_fails(CartridgeKind::Data, |bench, second| {
            let vtl = bench.vtl.clone();
            let mut source = Files::new(second);
            let mut breaking = Breaking {
                inner: &mut source,
                at: 6,
                then: Box::new(move || if power { vtl.power_cut(0) } else { vtl.reset(0) }),
            };
            bench.append_from(2, &mut breaking).unwrap_err()
        });
        assert_eq!(error.remedy(), Remedy::Reattach, "{error}");
    }
}

/// Does something when a member is asked for.
struct Breaking<'a> {
    inner: &'a mut dyn MemberSource,
    at: usize,
    then: Box<dyn Fn()>,
}

impl MemberSource for Breaking<'_> {
    fn next_member(&mut self) -> Result<Option<Member>, SourceError> {
        if self.at == 0 {
            (self.then)();
        }
        self.at = self.at.wrapping_sub(1);
        self.inner.next_member()
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        self.inner.read(buf)
    }
}

#[test]
fn a_filemark_whose_answer_is_lost_is_found_on_the_tape() {
    let mut bench = Bench::new();
    let some = files(12, 1);
    bench.vtl.fail_next(Unit::Drive(0), Some("WRITE FILEMARKS(6)"), Failure::AnswerLost);
    let error = bench.append(1, &some).unwrap_err();
    assert_eq!(error.remedy(), Remedy::QuarantineDrive, "{error}");
    // The catalogue knows of no container, but it is whole: the next one goes behind it.
    let error = bench.append(1, &some).unwrap_err();
    let DriveError::StaleAppendPoint { found, .. } = error else { panic!("{error}") };
    assert_eq!(found.last_sequence, 1);
    let scan = bench.drive.scan().unwrap();
    assert_eq!(scan.containers[0].members.len(), some.len());
    bench.append(2, &some).unwrap();
}

#[test]
fn a_record_the_drive_refused_is_sent_again_once_or_twice() {
    let guard = Sense::new(SenseKey::HardwareError, 0x10, 0x01);
    let mut bench = Bench::new();
    let some = files(13, 1);
    bench.vtl.fail_write(0, 5, guard, 2);
    let report = bench.append(1, &some).unwrap();
    bench.check(&some, &report.members);
    bench.vtl.fail_write(0, report.next_block, guard, 9);
    let error = bench.append(2, &some).unwrap_err();
    assert_eq!(error.remedy().when_retries_fail(), Remedy::QuarantineDrive, "{error}");
}

#[test]
fn a_read_error_is_tried_again_and_then_costs_one_member_only() {
    let mut bench = Bench::new();
    let some: Vec<_> = (0..6u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 600_000])).collect();
    let report = bench.append(1, &some).unwrap();
    bench.vtl.fail_read(0, 7, READ_ERROR, 2);
    bench.check(&some, &report.members);
    bench.vtl.fail_read(0, 8, READ_ERROR, 1000);
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let (data, outcome) = bench.read(&wanted);
    assert!(outcome.stopped.is_none());
    let failed: Vec<_> = (0..6).filter(|&at| outcome.members[at].is_err()).collect();
    assert!(!failed.is_empty() && failed.len() <= 2, "{failed:?}");
    for at in (0..6).filter(|at| !failed.contains(at)) {
        assert!(data[at] == some[at].data);
    }
    let error = outcome.members[failed[0]].as_ref().unwrap_err();
    assert_eq!(error.remedy().when_retries_fail(), Remedy::AbandonObject, "{error}");
}

#[test]
fn a_bit_flipped_on_the_way_is_noticed_and_read_again() {
    let mut bench = Bench::new();
    let some = files(14, 1);
    let report = bench.append(1, &some).unwrap();
    for block in 4..8 {
        bench.vtl.flip_bit(0, block);
    }
    bench.check(&some, &report.members);
}

#[test]
fn a_reset_while_reading_goes_on_where_it_was() {
    let mut bench = Bench::new();
    let some: Vec<_> = (0..4u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 900_000])).collect();
    let report = bench.append(1, &some).unwrap();
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let vtl = bench.vtl.clone();
    let mut data = vec![Vec::new(); 4];
    let mut calls = 0;
    let outcome = bench.drive.read(&wanted, &mut |index, bytes| {
        calls += 1;
        if calls % 6 == 0 {
            vtl.reset(0);
        }
        data[index].extend_from_slice(bytes);
        Ok(())
    });
    assert!(outcome.stopped.is_none() && outcome.members.iter().all(Result::is_ok), "{outcome:?}");
    assert!(some.iter().zip(&data).all(|(file, data)| file.data == *data), "each byte once, in order");
}

#[test]
fn a_sink_may_skip_one_or_stop_all() {
    let mut bench = Bench::new();
    let some: Vec<_> = (0..4u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 1000])).collect();
    let report = bench.append(1, &some).unwrap();
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let outcome = bench.drive.read(&wanted, &mut |index, _| match index {
        1 => Err(SinkError::Skip("disk full".into())),
        3 => Err(SinkError::Stop("cancelled".into())),
        _ => Ok(()),
    });
    let ok: Vec<_> = outcome.members.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true]);
    assert!(matches!(outcome.stopped, Some(DriveError::Sink(SinkError::Stop(_)))));
}

#[test]
fn a_full_tape_closes_its_container_and_the_rest_goes_elsewhere() {
    let mut bench = Bench::with(CartridgeKind::Data, 40 << 20);
    let some: Vec<_> = (0..100u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 1_000_000])).collect();
    let report = bench.append(1, &some).unwrap();
    assert!(matches!(report.stopped, Stopped::NoRoom | Stopped::EarlyWarning), "{:?}", report.stopped);
    let kept = report.members.len();
    assert!((25..40).contains(&kept), "{kept} members on 40 MiB");
    bench.check(&some[..kept], &report.members);
    bench.drive.detach(Unload::No).unwrap();
    bench.drive.attach(&label(), Epoch(2)).unwrap();
    assert_eq!(bench.drive.scan().unwrap().containers.len(), 1, "there was room for the index");
    let error = loop {
        let next = bench.drive.append_point().unwrap().last_sequence + 1;
        match bench.append(next, &some) {
            Ok(report) => assert!(!report.members.is_empty()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DriveError::EndOfMedium { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::CloseVolume);
    bench.check(&some[..kept], &report.members);
}

#[test]
fn a_tape_that_ends_in_the_middle_of_a_member_keeps_what_was_committed() {
    let mut bench = Bench::new();
    let first = files(15, 1);
    let one = bench.append(1, &first).unwrap();
    let overflow = Sense::new(SenseKey::VolumeOverflow, 0x00, 0x02).at_end_of_medium().with_information(262_148);
    bench.vtl.fail_write(0, one.next_block + 2, overflow, 1);
    let error = bench.append(2, &[File::new(9, "big", vec![1; 2_000_000])]).unwrap_err();
    assert!(matches!(error, DriveError::EndOfMedium { .. }), "{error}");
    bench.check(&first, &one.members);
    let mut bench = bench.killed(2);
    let scan = bench.drive.scan().unwrap();
    assert_eq!(scan.containers.len(), 1);
    bench.check(&first, &one.members);
}

#[test]
fn an_unreadable_end_of_tape_is_an_error_and_never_the_end() {
    let mut bench = Bench::new();
    let some = files(16, 1);
    let report = bench.append(1, &some).unwrap();
    let mut bench = bench.killed(2);
    bench.vtl.fail_read(0, report.next_block - 2, READ_ERROR, 3);
    let error = bench.append(1, &some).unwrap_err();
    assert!(matches!(error, DriveError::Device(_)), "{error}");
    bench.check(&some, &report.members);
    assert_eq!(bench.drive.append_point().unwrap().last_sequence, 1);
}

#[test]
fn an_unreadable_index_is_replaced_by_the_containers_themselves() {
    let mut bench = Bench::new();
    for sequence in 1..=3 {
        bench.append(sequence, &files(17, 1)).unwrap();
    }
    let index = bench.drive.append_point().unwrap().next_block;
    bench.drive.detach(Unload::No).unwrap();
    bench.drive.attach(&label(), Epoch(2)).unwrap();
    // The footer is read first, then the list fails for good.
    let footer = bench.drive.append_point().unwrap();
    assert!(footer.next_block > index);
    let mut bench = bench.killed(3);
    bench.append(4, &files(18, 1)).unwrap();
    bench.vtl.fail_read(0, index, READ_ERROR, 1);
    assert_eq!(bench.drive.scan().unwrap().containers.len(), 4);
}

#[test]
fn an_unreadable_trailer_is_replaced_by_the_headers_of_the_members() {
    let mut bench = Bench::new();
    let some = random_files(&mut random(22), 1, 40);
    // The trailer's list begins before the last record, so that it fails while the footer is read.
    let many: Vec<_> = (100..2000).map(|n| File::new(n, &format!("{}{n}", "p/".repeat(40)), vec![1; 10])).collect();
    let one = bench.append(1, &some).unwrap();
    let two = bench.append(2, &many).unwrap();
    bench.vtl.fail_read(0, two.next_block - 3, READ_ERROR, 3);
    let scan = bench.drive.scan().unwrap();
    assert!(scan.unreadable.is_empty(), "{:?}", scan.unreadable);
    let found: Vec<_> = scan.containers.iter().flat_map(|container| &container.members).collect();
    let written: Vec<_> = one.members.iter().chain(&two.members).collect();
    assert!(found.iter().zip(&written).all(|((_, extent), written)| *extent == written.extent));
    assert_eq!(found.len(), written.len());
    let trailer_and_headers = [two.next_block - 3, two.start_block];
    for block in trailer_and_headers {
        bench.vtl.fail_read(0, block, READ_ERROR, 1000);
    }
    let scan = bench.drive.scan().unwrap();
    assert_eq!(scan.unreadable.iter().map(|(container, _)| *container).collect::<Vec<_>>(), [2]);
    assert_eq!(scan.containers[0].members.len(), some.len());
}

#[test]
fn a_busy_drive_is_waited_for_and_a_silent_one_is_not_trusted() {
    let mut bench = Bench::new();
    let some = files(19, 1);
    let becoming = Sense::new(SenseKey::NotReady, 0x04, 0x01);
    bench.vtl.fail_next(Unit::Drive(0), Some("LOCATE(16)"), Failure::Sense(becoming));
    let report = bench.append(1, &some).unwrap();
    bench.vtl.fail_next(Unit::Drive(0), Some("READ(6)"), Failure::Lost);
    let wanted: Vec<_> = report.members.iter().map(want).collect();
    let (_, outcome) = bench.read(&wanted);
    assert_eq!(outcome.stopped.unwrap().remedy(), Remedy::QuarantineDrive);
    // Asked again, the drive is set up anew first.
    bench.check(&some, &report.members);
}

#[test]
fn a_wish_to_be_cleaned_is_passed_on_and_stops_nothing() {
    let mut bench = Bench::new();
    let some = files(20, 1);
    bench.vtl.fail_next(
        Unit::Drive(0),
        Some("READ POSITION"),
        Failure::Sense(Sense::new(SenseKey::RecoveredError, 0x00, 0x17)),
    );
    let _ = bench.append(1, &some);
    assert!(bench.drive.take_cleaning_request());
    assert!(!bench.drive.take_cleaning_request());
    bench.vtl.raise_alert(0, 20);
    bench.drive.attach(&label(), Epoch(1)).unwrap();
    assert!(bench.drive.take_cleaning_request());
}

#[test]
fn a_drive_that_will_not_unload_is_told_once_more() {
    let mut bench = Bench::new();
    let stuck = Failure::Sense(Sense::new(SenseKey::IllegalRequest, 0x53, 0x02));
    bench.vtl.fail_next(Unit::Drive(0), Some("UNLOAD"), stuck);
    bench.drive.detach(Unload::Yes).unwrap();
    let mut changer = Changer::new(Box::new(bench.vtl.changer()));
    changer.inventory().unwrap();
    assert_eq!(changer.unload(SERIAL).unwrap(), Some(label()));
}

#[test]
fn a_write_protected_volume_is_read_only() {
    let mut bench = Bench::new();
    let some = files(21, 1);
    let report = bench.append(1, &some).unwrap();
    let chip = bench.folder.path().join("cartridges/PEN001L8/chip.json");
    let Bench { folder, vtl, drive } = bench;
    drop((vtl, drive));
    let text = std::fs::read_to_string(&chip).unwrap();
    std::fs::write(&chip, text.replace("\"write_protected\": false", "\"write_protected\": true")).unwrap();
    let vtl = Vtl::open(folder.path()).unwrap();
    let mut bench = Bench { drive: drive_of(&vtl), folder, vtl };
    assert!(bench.drive.attach(&label(), Epoch(2)).unwrap().write_protected);
    assert!(matches!(bench.append(2, &some), Err(DriveError::WriteProtected { .. })));
    bench.check(&some, &report.members);
    let _ = bench.drive.device.once(&Cdb::TestUnitReady, DataPhase::None).unwrap();
}
