//! Tape: migration, recall and verification through the virtual library.

use mover::config::{DriveConfig, LibraryConfig, LibraryKind};
use wire::{
    checksum::Sums,
    extent::Extent,
    id::{AccountName, BitfileId, CosName, DriveId, Epoch, FileId, GroupName, LibraryId},
    mover::{
        Answer, Append, Call, FaultKind, FilePiece, Framing, Member, Mounted, MoveTo, Outcome, Piece, SegmentOf, Sink,
        SlotKind, Source,
    },
};

use super::{
    kit::*,
    peers::{accept, assemble, connect, port, receive_blocks, send_block, send_end},
};

const TAPE: &str = "PEN001L8";

fn library() -> LibraryId {
    LibraryId::new("lib1").expect("a name")
}

fn drive(number: u16) -> DriveId {
    DriveId::new(format!("drive{number}")).expect("a name")
}

async fn with_library(site: &Site, capacity: u64) -> (Running, Gateway) {
    let mut config = site.config();
    config.libraries = vec![LibraryConfig {
        name: library(),
        robot: true,
        kind: LibraryKind::Virtual {
            folder: site.folder.path().join("lib1"),
            drives: 2,
            slots: None,
            cartridges: vec![label(TAPE), label("PEN002L8")],
            capacity: daemon::config::ByteSize::new(capacity),
            time_scale: 0.0,
        },
    }];
    let drives =
        (0..2).map(|index| DriveConfig { name: drive(index), library: library(), index: Some(index), device: None });
    config.drives = drives.collect();
    let running = site.start(config).await;
    let gateway = site.gateway(&running, "gw1", 1).await;
    (running, gateway)
}

async fn mount(gateway: &mut Gateway, to: u16, epoch: u64) -> Mounted {
    let volume = label(TAPE);
    let moved = Call::Move { library: library(), volume: volume.clone(), to: MoveTo::Drive(drive(to)) };
    assert_eq!(gateway.call(moved).await, Ok(Answer::Done));
    let attach =
        Call::Attach { drive: drive(to), volume, epoch: Epoch(epoch), label_blank: true, pool: "pool1".to_owned() };
    match gateway.call(attach).await {
        Ok(Answer::Attached(mounted)) => mounted,
        other => panic!("{other:?}"),
    }
}

fn append(container: u32, datas: &[Vec<u8>]) -> Append {
    let mut at = 0;
    let member = |data: &Vec<u8>| {
        let member = Member {
            range: range(at, data.len() as u64),
            bitfile: BitfileId(number()),
            segment: SegmentOf { index: 1, count: 1, offset_bytes: 0, bitfile_bytes: data.len() as u64 },
            version: 7,
            cos: CosName::new("standard").expect("a name"),
            path: format!("home/alice/file{at}"),
            modified_us: 1_700_000_000_000_000,
            mode: 0o640,
            owner: AccountName::new("alice").expect("a name"),
            group: GroupName::new("users").expect("a name"),
            sums: Sums::of(data),
        };
        at += data.len() as u64;
        member
    };
    Append { drive: drive(0), volume: label(TAPE), container, members: datas.iter().map(member).collect() }
}

async fn migrate(gateway: &mut Gateway, append: &Append, datas: &[Vec<u8>]) -> Outcome {
    let mut pieces = Vec::new();
    for (member, data) in append.members.iter().zip(datas) {
        let file = gateway.put(data).await;
        pieces.push(piece(member.range.offset(), file, 0, data.len() as u64, Some(Sums::of(data))));
    }
    gateway.run(Source::Extents(pieces), Sink::Tape(append.clone())).await.expect("it is written")
}

/// Members of a tape, in an order of their own.
fn on_tape(append: &Append, outcome: &Outcome, order: &[usize]) -> Vec<Piece> {
    let piece = |&index: &usize| Piece {
        offset_bytes: append.members[index].range.offset(),
        extent: outcome.written[index].extent.clone(),
        bitfile: append.members[index].bitfile,
        sums: Some(append.members[index].sums),
    };
    order.iter().map(piece).collect()
}

fn datas() -> Vec<Vec<u8>> {
    [10_000, 0, 1, 700_000, 262_144, 3_000_000].iter().map(|&length| pattern(length, length as u64 + 3)).collect()
}

#[tokio::test]
async fn files_go_to_tape_and_come_back_to_disk_and_to_a_client() {
    let site = Site::new();
    let (running, mut gateway) = with_library(&site, 1 << 30).await;
    let mounted = mount(&mut gateway, 0, 1).await;
    assert!(mounted.labelled && mounted.last_container == 0);
    let datas = datas();
    let append = append(1, &datas);
    let outcome = migrate(&mut gateway, &append, &datas).await;
    assert_eq!(outcome.written.len(), datas.len());
    let end = outcome.tape.expect("where the tape stands");
    assert_eq!((end.container, end.full), (1, false));

    // Recall, last member first.
    let order: Vec<_> = (0..datas.len()).rev().collect();
    let pieces = on_tape(&append, &outcome, &order);
    let file = |index: &usize| FilePiece {
        range: append.members[*index].range,
        volume: label(VOLUME),
        file: FileId(number()),
        sums: Some(append.members[*index].sums),
    };
    let files: Vec<_> = order.iter().map(file).collect();
    let transfer = gateway.start(Source::Extents(pieces.clone()), Sink::Files(files.clone())).await;
    let recalled = gateway.end(transfer).await.expect("they come back");
    assert!(recalled.failed.is_empty(), "{:?}", recalled.failed);
    assert_eq!(gateway.durable(transfer).len(), datas.len());
    for (file, index) in files.iter().zip(&order) {
        assert!(content(&site.volume_folder(VOLUME), file.file) == datas[*index], "member {index}");
    }

    // To a client, past the disk.
    let (listener, address) = port().await;
    let (channel, _) = gateway.open(connecting(Framing::ModeE, address, 2)).await.unwrap();
    let transfer = gateway.start(Source::Extents(pieces.clone()), to(channel)).await;
    let mut streams = [accept(&listener).await, accept(&listener).await];
    let parts = futures::future::join_all(streams.iter_mut().map(receive_blocks)).await;
    assert!(assemble(parts) == datas.concat());
    gateway.end(transfer).await.unwrap();

    let verified = gateway.run(Source::Extents(pieces), Sink::Verify).await.unwrap();
    assert_eq!((verified.written.len(), verified.failed.len()), (datas.len(), 0));

    assert_eq!(gateway.call(Call::Detach { drive: drive(0) }).await, Ok(Answer::Done));
    let back = Call::Move { library: library(), volume: label(TAPE), to: MoveTo::Slot };
    assert_eq!(gateway.call(back).await, Ok(Answer::Done));
    running.kill().await;
}

#[tokio::test]
async fn what_a_tape_holds_is_listed_page_by_page_from_the_tape_alone() {
    let site = Site::new();
    let (_running, mut gateway) = with_library(&site, 1 << 30).await;
    mount(&mut gateway, 0, 1).await;
    let datas = datas();
    let mut written = Vec::new();
    for container in [1, 2] {
        let append = append(container, &datas);
        let outcome = migrate(&mut gateway, &append, &datas).await;
        let places = outcome.written.into_iter().map(|one| (one.extent, one.sums));
        written.extend(append.members.into_iter().zip(places));
    }
    let (mut listed, mut from, mut pages) = (Vec::new(), None, 0);
    loop {
        let call = Call::Scan { drive: drive(0), volume: label(TAPE), from, limit: 4 };
        let Ok(Answer::Scanned(page)) = gateway.call(call).await else { panic!("no page from {from:?}") };
        assert!(page.members.len() <= 4 && page.unreadable.is_none(), "{page:?}");
        listed.extend(page.members);
        pages += 1;
        let Some(next) = page.next else { break };
        from = Some(next);
    }
    // Six members of each container in pages of four, and one that says that nothing follows.
    assert_eq!((pages, listed.len()), (5, written.len()));
    for (found, (member, (extent, sums))) in listed.iter().zip(&written) {
        assert_eq!((found.bitfile, &found.path, found.version), (member.bitfile, &member.path, member.version));
        assert_eq!((&found.extent, found.sums, found.bitfile_bytes), (extent, *sums, extent.length_bytes));
        assert_eq!((found.cos.as_str(), found.owner.as_str(), found.mode), ("standard", "alice", member.mode));
    }
    let other = Call::Scan { drive: drive(0), volume: label("PEN002L8"), from: None, limit: 4 };
    assert!(gateway.call(other).await.is_err(), "another volume than the one in the drive");
}

#[tokio::test]
async fn a_container_comes_over_a_channel_from_another_mover() {
    let site = Site::new();
    let (_running, mut gateway) = with_library(&site, 1 << 30).await;
    mount(&mut gateway, 0, 1).await;
    let datas = datas();
    let whole = datas.concat();
    let append = append(1, &datas);
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let transfer = gateway.start(from(channel, Some(range(0, whole.len() as u64))), Sink::Tape(append.clone())).await;
    let mut streams = [connect(address).await, connect(address).await];
    for (number, block) in whole.chunks(100_000).enumerate() {
        send_block(&mut streams[number % 2], number as u64 * 100_000, block).await.unwrap();
    }
    send_end(&mut streams[0], Some(2)).await;
    send_end(&mut streams[1], None).await;
    let outcome = gateway.end(transfer).await.unwrap();
    let sums: Vec<_> = outcome.written.iter().map(|written| written.sums).collect();
    assert_eq!(sums, datas.iter().map(|data| Sums::of(data)).collect::<Vec<_>>());

    // A second one whose source breaks off leaves the tape as it was.
    let second = Append { container: 2, ..append.clone() };
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let transfer = gateway.start(from(channel, None), Sink::Tape(second.clone())).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, &whole[..500_000]).await.unwrap();
    drop(stream);
    assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, FaultKind::PeerLost);
    let outcome = migrate(&mut gateway, &second, &datas).await;
    assert_eq!(outcome.tape.map(|end| end.container), Some(2));
}

#[tokio::test]
async fn what_does_not_belong_on_the_tape_or_does_not_fit_is_not_written() {
    let site = Site::new();
    let (_running, mut gateway) = with_library(&site, 24 << 20).await;
    mount(&mut gateway, 0, 1).await;
    let datas = datas();
    let good = append(1, &datas);
    // A gap in the sequence: somebody else wrote here.
    let pieces: Vec<_> = {
        let mut pieces = Vec::new();
        for (member, data) in good.members.iter().zip(&datas) {
            let file = gateway.put(data).await;
            pieces.push(piece(member.range.offset(), file, 0, data.len() as u64, None));
        }
        pieces
    };
    let stale = Append { container: 5, ..good.clone() };
    let (fault, _) = gateway.run(Source::Extents(pieces.clone()), Sink::Tape(stale)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::WrongVolume, "{fault}");
    // Sums that are not those of the data.
    let mut wrong = good.clone();
    wrong.members[3].sums = Sums::of(b"other");
    let (fault, _) = gateway.run(Source::Extents(pieces.clone()), Sink::Tape(wrong)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Corrupt, "{fault}");
    // Another volume than the one in the drive.
    let other = Append { volume: label("PEN002L8"), ..good.clone() };
    let (fault, _) = gateway.run(Source::Extents(pieces), Sink::Tape(other)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::WrongVolume, "{fault}");
    // Until it is full: then it says so, and what did not get on it is not in the report.
    let mut container = 1;
    let last = loop {
        let next = append(container, &[pattern(3_000_000, 1), pattern(3_000_000, 2)]);
        let mut pieces = Vec::new();
        for member in &next.members {
            let data = pattern(3_000_000, 1 + member.range.offset() / 3_000_000);
            pieces.push(piece(member.range.offset(), gateway.put(&data).await, 0, 3_000_000, None));
        }
        match gateway.run(Source::Extents(pieces), Sink::Tape(next)).await {
            Ok(outcome) if outcome.tape.is_some_and(|end| !end.full) => container += 1,
            other => break other,
        }
        assert!(container < 10, "24 MiB take no 60 MB");
    };
    match last {
        Ok(outcome) => assert!(outcome.written.len() <= 2),
        Err((fault, _)) => assert_eq!(fault.kind, FaultKind::EndOfMedium, "{fault}"),
    }
}

#[tokio::test]
async fn the_library_says_what_is_where_and_a_wrong_tape_is_not_taken() {
    let site = Site::new();
    let (_running, mut gateway) = with_library(&site, 1 << 28).await;
    let inventory = |answer| match answer {
        Ok(Answer::Inventory { slots }) => slots,
        other => panic!("{other:?}"),
    };
    let ask = Call::Inventory { library: library() };
    let slots = inventory(gateway.call(ask.clone()).await);
    let drives: Vec<_> = slots
        .iter()
        .filter_map(|slot| match &slot.kind {
            SlotKind::Drive { drive, .. } => drive.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(drives, [drive(0), drive(1)]);
    assert_eq!(slots.iter().filter(|slot| slot.volume.is_some()).count(), 2);
    mount(&mut gateway, 1, 1).await;
    let slots = inventory(gateway.call(ask).await);
    let loaded = slots.iter().find(|slot| slot.volume == Some(label(TAPE))).unwrap();
    assert!(matches!(&loaded.kind, SlotKind::Drive { drive: Some(found), .. } if *found == drive(1)));
    // Not unloaded, the tape cannot be taken out.
    let back = Call::Move { library: library(), volume: label(TAPE), to: MoveTo::Slot };
    assert_eq!(gateway.call(back).await.unwrap_err().kind, FaultKind::Library);
    let other = Call::Attach {
        drive: drive(1),
        volume: label("PEN002L8"),
        epoch: Epoch(2),
        label_blank: true,
        pool: String::new(),
    };
    assert_eq!(gateway.call(other).await.unwrap_err().kind, FaultKind::WrongVolume);
    let nowhere = Call::Move { library: library(), volume: label("PEN999L8"), to: MoveTo::Slot };
    assert_eq!(gateway.call(nowhere).await.unwrap_err().kind, FaultKind::NotFound);
    let extent = Extent {
        volume: label("PEN002L8"),
        place: wire::extent::Place::Tape { container: 1, block: 10, skip_bytes: 0 },
        length_bytes: 10,
    };
    let piece = Piece { offset_bytes: 0, extent, bitfile: BitfileId(1), sums: None };
    let (fault, _) = gateway.run(Source::Extents(vec![piece]), Sink::Verify).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotFound, "{fault}");
}
