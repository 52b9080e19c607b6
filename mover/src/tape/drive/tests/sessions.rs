//! Labels, sessions, fencing, containers and the catalogue's view of them.

use super::*;
use crate::scsi::{ReserveOut, ReserveType};
use crate::tape::format::FIRST_CONTAINER_BLOCK;
use wire::extent::{ByteRange, Place};

#[test]
fn a_labelled_tape_attaches_and_another_does_not() {
    let mut bench = Bench::new();
    bench.drive.detach(Unload::No).unwrap();
    let attached = bench.drive.attach(&label(), Epoch(2)).unwrap();
    assert!(attached.block_protection && !attached.worm && !attached.write_protected);
    assert_eq!((attached.info.label, attached.info.pool.as_str(), attached.info.epoch), (label(), "tape", 1));
    assert!(attached.capacity.unwrap().maximum_bytes == 1 << 30);
    let other = VolumeLabel::new("PEN002L8").unwrap();
    let error = bench.drive.attach(&other, Epoch(3)).unwrap_err();
    assert!(matches!(error, DriveError::WrongVolume { .. }), "{error}");
    assert_eq!(error.remedy(), Remedy::QuarantineVolume);
    assert!(matches!(bench.drive.append_point(), Err(DriveError::NotAttached)));
}

#[test]
fn a_blank_tape_is_blank_and_a_written_one_is_not_labelled_by_mistake() {
    let mut bench = Bench::blank(CartridgeKind::Data, 1 << 30);
    assert!(matches!(bench.drive.attach(&label(), Epoch(1)), Err(DriveError::Blank { .. })));
    bench.drive.label(&new_volume(), Overwrite::OnlyBlank, Epoch(1)).unwrap();
    let files = random_files(&mut random(1), 1, 3);
    let report = bench.append(1, &files).unwrap();
    let error = bench.drive.label(&new_volume(), Overwrite::OnlyBlank, Epoch(1)).unwrap_err();
    assert!(matches!(error, DriveError::NotBlank { .. }), "{error}");
    bench.drive.attach(&label(), Epoch(1)).unwrap();
    bench.check(&files, &report.members);
    bench.drive.label(&new_volume(), Overwrite::Anything, Epoch(1)).unwrap();
    assert_eq!(bench.drive.append_point().unwrap().next_block, FIRST_CONTAINER_BLOCK);
}

#[test]
fn containers_are_written_read_and_found_again() {
    let mut bench = Bench::new();
    let mut random = random(2);
    let (mut files, mut written) = (Vec::new(), Vec::new());
    for sequence in 1..=3 {
        let some = random_files(&mut random, u64::from(sequence) * 1000, 40);
        let report = bench.append(sequence, &some).unwrap();
        assert_eq!((report.container, report.stopped), (sequence, Stopped::SourceEnded));
        assert_eq!(report.next_block, bench.drive.append_point().unwrap().next_block);
        for (file, member) in some.iter().zip(&report.members) {
            assert_eq!((file.member.bitfile, file.member.sums), (member.bitfile, member.sums));
            assert_eq!(member.extent.length_bytes, file.data.len() as u64);
        }
        files.extend(some);
        written.extend(report.members);
    }
    bench.check(&files, &written);
    // In any order, too.
    let mut order: Vec<usize> = (0..files.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.random_range(0..=at));
    }
    let shuffled: Vec<_> = order.iter().map(|&at| files[at].clone()).collect();
    let places: Vec<_> = order.iter().map(|&at| written[at].clone()).collect();
    bench.check(&shuffled, &places);
    bench.drive.detach(Unload::Yes).unwrap();
    // Another process, from the tape alone.
    let mut bench = bench.killed(2);
    let scan = bench.drive.scan().unwrap();
    assert_eq!(scan.append_point.last_sequence, 3);
    let members: Vec<_> = scan.containers.into_iter().flat_map(|container| container.members).collect();
    assert_eq!(members.len(), files.len());
    for ((member, extent), (file, place)) in members.iter().zip(files.iter().zip(&written)) {
        assert_eq!((member, extent), (&file.member, &place.extent));
    }
    bench.check(&files, &written);
}

#[test]
fn a_member_is_read_without_reading_its_container() {
    let mut bench = Bench::new();
    let files: Vec<_> = (0..8u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 3_000_000])).collect();
    let report = bench.append(1, &files).unwrap();
    let before = bench.drive.activity().read_bytes;
    bench.check(&files[5..6], &report.members[5..6]);
    let read = bench.drive.activity().read_bytes - before;
    assert!(read <= 3_000_000 + 2 * 262_148, "{read} bytes were read");
    let mut part = want(&report.members[5]);
    part.range = Some(ByteRange::new(2_000_000, 1000).unwrap());
    let before = bench.drive.activity().read_bytes;
    let (data, outcome) = bench.read(&[part]);
    assert!(outcome.members[0].is_ok() && data[0] == vec![5; 1000]);
    assert!(bench.drive.activity().read_bytes - before <= 3 * 262_148);
}

#[test]
fn small_members_of_one_record_are_read_at_once() {
    let mut bench = Bench::new();
    let files: Vec<_> = (0..100u8).map(|n| File::new(u64::from(n), &format!("f{n}"), vec![n; 500])).collect();
    let report = bench.append(1, &files).unwrap();
    let before = bench.drive.activity();
    bench.check(&files, &report.members);
    let after = bench.drive.activity();
    assert!(after.read_bytes - before.read_bytes <= 2 * 262_148 && after.locates - before.locates <= 1);
}

#[test]
fn a_stale_append_point_is_refused_and_nothing_is_overwritten() {
    let mut bench = Bench::new();
    let files = random_files(&mut random(3), 1, 5);
    let report = bench.append(1, &files).unwrap();
    for sequence in [0, 1, 3] {
        let error = bench.append(sequence, &files).unwrap_err();
        let DriveError::StaleAppendPoint { found, .. } = &error else { panic!("{error}") };
        assert_eq!((found.last_sequence, found.next_block), (1, report.next_block));
    }
    bench.check(&files, &report.members);
    // A catalogue that missed container 1 goes on behind it.
    let report = bench.append(2, &files).unwrap();
    bench.check(&files, &report.members);
}

#[test]
fn what_the_catalogue_believes_is_checked_against_the_tape() {
    let mut bench = Bench::new();
    let files = random_files(&mut random(4), 1, 5);
    let report = bench.append(1, &files).unwrap();
    let mut wrong = want(&report.members[2]);
    wrong.bitfile = BitfileId(999);
    let mut moved = want(&report.members[2]);
    let Place::Tape { container, block, skip_bytes } = moved.extent.place else { panic!("not on tape") };
    moved.extent.place = Place::Tape { container, block, skip_bytes: skip_bytes ^ 512 };
    let mut sum = want(&report.members[2]);
    sum.crc32c = Some(!report.members[2].sums.crc32c);
    let mut long = want(&report.members[2]);
    long.extent.length_bytes += 1;
    let mut away = want(&report.members[2]);
    away.extent.place = Place::Tape { container, block: 1_000_000, skip_bytes };
    let (data, outcome) = bench.read(&[wrong, moved, sum, long, away, want(&report.members[2])]);
    assert!(outcome.stopped.is_none(), "{:?}", outcome.stopped);
    let kinds: Vec<_> = outcome
        .members
        .iter()
        .map(|result| match result {
            Ok(()) => "ok",
            Err(DriveError::WrongMember { .. }) => "other member",
            Err(DriveError::Format { .. }) => "format",
            Err(DriveError::Checksum { .. }) => "sum",
            Err(DriveError::Device(_)) => "device",
            Err(_) => "else",
        })
        .collect();
    assert_eq!(kinds, ["other member", "format", "sum", "format", "device", "ok"]);
    assert!(data[..5].iter().all(Vec::is_empty), "nothing is delivered before it is checked");
}

#[test]
fn a_newer_epoch_takes_the_drive_and_the_older_one_stops() {
    let mut bench = Bench::new();
    let files = random_files(&mut random(5), 1, 3);
    bench.append(1, &files).unwrap();
    let mut newer = drive_of(&bench.vtl);
    newer.attach(&label(), Epoch(2)).unwrap();
    let error = bench.append(2, &files).unwrap_err();
    assert_eq!(error.remedy(), Remedy::FenceLost, "{error}");
    assert!(matches!(bench.append(2, &files), Err(DriveError::Fenced { .. })));
    assert!(bench.drive.detach(Unload::Yes).is_ok(), "it forgets, and touches nothing");
    newer.append(&header(2), &mut Files::new(&files)).unwrap();
    // One that never noticed does not unload the tape under the other's hands.
    let mut newest = drive_of(&bench.vtl);
    newest.attach(&label(), Epoch(3)).unwrap();
    newer.detach(Unload::Yes).unwrap();
    newest.append(&header(3), &mut Files::new(&files)).unwrap();
    let mut older = drive_of(&bench.vtl);
    let refused = older.attach(&label(), Epoch(1)).unwrap_err();
    assert!(matches!(refused, DriveError::Fenced { holder: Some(3), .. }), "{refused}");
    let mut same = drive_of(&bench.vtl);
    assert!(matches!(same.attach(&label(), Epoch(3)), Err(DriveError::Fenced { .. })));
    newest.append(&header(4), &mut Files::new(&files)).unwrap();
    newest.detach(Unload::No).unwrap();
    older.attach(&label(), Epoch(1)).unwrap();
}

#[test]
fn a_drive_that_was_taken_and_given_back_is_not_ours_any_more() {
    let mut bench = Bench::new();
    let files = random_files(&mut random(8), 1, 3);
    bench.append(1, &files).unwrap();
    let mut newer = drive_of(&bench.vtl);
    newer.attach(&label(), Epoch(2)).unwrap();
    newer.detach(Unload::No).unwrap();
    // The older one is made to set the drive up again before it notices.
    bench.drive.session.as_mut().unwrap().state = State::Stale;
    let error = bench.append(2, &files).unwrap_err();
    assert!(matches!(error, DriveError::Fenced { .. }), "{error}");
    newer.attach(&label(), Epoch(3)).unwrap();
}

#[test]
fn a_drive_can_live_on_a_thread_of_its_own() {
    fn is_send<T: Send>() {}
    is_send::<Drive>();
    is_send::<Changer>();
}

#[test]
fn a_stranger_s_reservation_is_left_alone() {
    let bench = Bench::blank(CartridgeKind::Data, 1 << 30);
    let mut stranger = Device::new(Box::new(bench.vtl.drive(0).unwrap()), DeviceKind::Drive);
    stranger.take_attentions().unwrap();
    for (action, key, action_key) in [(ReserveOut::Register, 0, 5), (ReserveOut::Reserve, 5, 0)] {
        let list = crate::scsi::reservation::ReserveList { key, action_key }.encode();
        let kind = ReserveType::ExclusiveAccess;
        stranger.send(&Cdb::PersistentReserveOut { action, kind, length: 24 }, &list).unwrap();
    }
    let mut drive = drive_of(&bench.vtl);
    let error = drive.attach(&label(), Epoch(9)).unwrap_err();
    assert!(matches!(error, DriveError::ForeignReservation { key: 5 }), "{error}");
    stranger.command(&Cdb::Rewind { immediate: false }).unwrap();
}

#[test]
fn every_session_leaves_an_index_that_the_next_one_finds() {
    let mut bench = Bench::new();
    let mut random = random(6);
    let mut sequence = 0;
    for epoch in 2..6 {
        for _ in 0..3 {
            sequence += 1;
            let files = random_files(&mut random, 1, 4);
            bench.append(sequence, &files).unwrap();
        }
        bench.drive.detach(Unload::No).unwrap();
        bench.drive.attach(&label(), Epoch(epoch)).unwrap();
        let before = bench.drive.activity().read_bytes;
        assert_eq!(bench.drive.append_point().unwrap().last_sequence, sequence);
        let records = (bench.drive.activity().read_bytes - before) / 262_148;
        assert!(records <= 1, "{records} records for {sequence} containers");
    }
    let containers: Vec<_> = bench.drive.scan().unwrap().containers.iter().map(|one| one.container).collect();
    assert_eq!(containers, (1..=12).collect::<Vec<_>>());
}

#[test]
fn a_cleaning_cartridge_is_no_volume() {
    let folder = tempfile::tempdir().unwrap();
    let cleaning = VolumeLabel::new("CLN001L1").unwrap();
    let spec = VtlSpec::new(1, 0, 0).with(cleaning.clone(), CartridgeKind::Cleaning, 0);
    let vtl = Vtl::create(folder.path(), &spec).unwrap();
    let mut changer = Changer::new(Box::new(vtl.changer()));
    changer.inventory().unwrap();
    changer.load(&cleaning, SERIAL).unwrap();
    let mut drive = drive_of(&vtl);
    let error = drive.attach(&label(), Epoch(1)).unwrap_err();
    assert!(matches!(error, DriveError::CleaningCartridge { .. }) && error.remedy() == Remedy::Clean);
}

#[test]
fn members_that_cannot_be_described_and_empty_containers_are_refused() {
    let mut bench = Bench::new();
    let bad = [File::new(1, "nul\0", vec![1; 10])];
    assert!(matches!(bench.append(1, &bad), Err(DriveError::BadMember { .. })));
    assert!(matches!(bench.append(1, &[]), Err(DriveError::NothingToWrite)));
    let files = random_files(&mut random(7), 1, 2);
    let report = bench.append(1, &files).unwrap();
    bench.check(&files, &report.members);
}
