//! Uploads: bytes into one file, in any order, from good and bad peers.

use tokio::io::AsyncWriteExt as _;
use wire::{
    checksum::{ExtraSums, Sums},
    id::FileId,
    mover::{Event, FaultKind, Framing, Job, NewFile, Request, Sink},
};

use super::{
    kit::*,
    peers::{connect, send_block, send_end},
};

#[tokio::test]
async fn blocks_in_any_order_over_four_connections_become_one_file_with_the_right_sums() {
    let site = Site::new();
    let (running, mut gateway) = site.pair().await;
    for seed in [1, 2, 3] {
        println!("seed {seed}");
        let data = pattern(3_000_000 + seed as usize * 777, seed);
        let (channel, address) = gateway.listen(Framing::ModeE).await;
        let file = FileId(number());
        let job = Job {
            source: from(channel, Some(range(0, data.len() as u64))),
            sink: Sink::File(new_file(file)),
            extra_sums: ExtraSums { md5: true, sha256: true },
            rate_limit: None,
        };
        let transfer = gateway.start_job(job).await;
        // Blocks of odd sizes, dealt out by a seeded shuffle.
        let mut blocks: Vec<_> = (0..data.len()).step_by(70_001).collect();
        blocks.sort_by_key(|start| (*start as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 7);
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(connect(address).await);
        }
        for (number, start) in blocks.into_iter().enumerate() {
            let end = (start + 70_001).min(data.len());
            send_block(&mut streams[number % 4], start as u64, &data[start..end]).await.unwrap();
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            send_end(stream, (number == 2).then_some(4)).await;
        }
        gateway
            .wait(|event| matches!(event, Event::Received { transfer: t, .. } if *t == transfer).then_some(()))
            .await;
        let outcome = gateway.end(transfer).await.unwrap();
        let [written] = outcome.written.as_slice() else { panic!("{outcome:?}") };
        assert_eq!((written.range, outcome.bytes), (range(0, data.len() as u64), data.len() as u64));
        let plain = Sums { md5: None, sha256: None, ..written.sums };
        assert_eq!(plain, Sums::of(&data));
        use md5::Digest as _;
        assert_eq!(written.sums.md5, Some(md5::Md5::digest(&data).into()));
        assert_eq!(written.sums.sha256, Some(sha2::Sha256::digest(&data).into()));
        assert_eq!(content(&site.volume_folder(VOLUME), file), data);
    }
    assert!(gateway.files(VOLUME).await.iter().all(|(_, _, confirmed)| !confirmed));
    let files: Vec<_> = gateway.files(VOLUME).await.iter().map(|(file, ..)| volume_file(*file)).collect();
    gateway.say(&Request::Confirm { files: files.clone() }).await;
    while gateway.files(VOLUME).await.iter().any(|(_, _, confirmed)| !confirmed) {}
    assert_eq!(gateway.files(VOLUME).await.len(), files.len());
    running.kill().await;
}

#[tokio::test]
async fn connections_are_kept_for_the_next_transfer_and_late_ones_are_taken() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let mut first = connect(address).await;
    for round in 0..3u64 {
        let data = pattern(100_000, round);
        let transfer = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
        send_block(&mut first, 0, &data[..60_000]).await.unwrap();
        send_end(&mut first, Some(2)).await;
        // The second connection of each round appears when the first is done already; and is closed behind its end.
        let mut late = connect(address).await;
        send_block(&mut late, 60_000, &data[60_000..]).await.unwrap();
        late.write_all(&wire::mode_e::Header::end_of_data(true).encode()).await.unwrap();
        let outcome = gateway.end(transfer).await.unwrap();
        assert_eq!(outcome.written[0].sums, Sums::of(&data), "round {round}");
    }
}

/// What a bad peer does, and what it is told.
#[tokio::test]
async fn a_peer_that_breaks_the_protocol_fails_its_transfer_and_leaves_nothing() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let before = gateway.volume(VOLUME).await.used_bytes;
    type Bytes = Vec<u8>;
    let block = |offset: u64, length: u64| {
        let mut bytes: Bytes = wire::mode_e::Header::data(range(offset, length)).encode().to_vec();
        bytes.resize(bytes.len() + length as usize, 7);
        bytes
    };
    let mut bad_bit = block(0, 10);
    bad_bit[0] = 0x10;
    let mut huge = block(0, 10);
    huge[1..9].copy_from_slice(&u64::MAX.to_be_bytes());
    let cases: Vec<(&str, Bytes, FaultKind)> = vec![
        ("a bad descriptor bit", bad_bit, FaultKind::PeerProtocol),
        ("a length no file has", huge, FaultKind::PeerProtocol),
        ("bytes that were sent already", [block(0, 100), block(50, 100)].concat(), FaultKind::Overlap),
        ("bytes beyond the end", block(900, 200), FaultKind::TooLong),
        ("not extended block mode at all", b"220 Welcome to my server, dear client".to_vec(), FaultKind::PeerProtocol),
    ];
    for (what, bytes, kind) in cases {
        let (channel, address) = gateway.listen(Framing::ModeE).await;
        let file = FileId(number());
        let transfer = gateway.start(from(channel, Some(range(0, 1000))), Sink::File(new_file(file))).await;
        let mut stream = connect(address).await;
        let _ = stream.write_all(&bytes).await;
        let (fault, outcome) = gateway.end(transfer).await.expect_err(what);
        assert_eq!(fault.kind, kind, "{what}: {fault}");
        assert!(outcome.written.is_empty(), "{what}");
        assert!(find(&site.volume_folder(VOLUME), file).is_none(), "{what}");
    }
    let after = gateway.volume(VOLUME).await;
    assert_eq!((after.used_bytes, after.reserved_bytes), (before, 0));
}

#[tokio::test]
async fn a_cut_upload_goes_on_with_the_bytes_that_are_missing() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(1_000_000, 5);
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let file = FileId(number());
    let whole = range(0, data.len() as u64);
    let transfer = gateway.start(from(channel, Some(whole)), Sink::File(new_file(file))).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, &data[..300_000]).await.unwrap();
    send_block(&mut stream, 600_000, &data[600_000..700_000]).await.unwrap();
    // Half a block, then the connection is gone.
    stream.write_all(&wire::mode_e::Header::data(range(800_000, 100_000)).encode()).await.unwrap();
    stream.write_all(&data[800_000..850_000]).await.unwrap();
    drop(stream);
    let (fault, outcome) = gateway.end(transfer).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::PeerLost, "{fault}");
    let have: Vec<_> = outcome.written.iter().map(|written| written.range).collect();
    assert_eq!(have, [range(0, 300_000), range(600_000, 100_000), range(800_000, 50_000)]);
    gateway.say(&Request::Confirm { files: vec![volume_file(file)] }).await;

    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let again = NewFile { have: have.clone(), ..new_file(file) };
    let transfer = gateway.start(from(channel, Some(whole)), Sink::File(again.clone())).await;
    let mut stream = connect(address).await;
    for part in [300_000..600_000, 700_000..800_000, 850_000..1_000_000] {
        send_block(&mut stream, part.start as u64, &data[part]).await.unwrap();
    }
    send_end(&mut stream, Some(1)).await;
    let outcome = gateway.end(transfer).await.unwrap();
    for written in &outcome.written {
        let part = written.range.offset() as usize..written.range.end() as usize;
        assert_eq!(written.sums, Sums::of(&data[part]), "{}", written.range);
        assert!(have.iter().all(|had| had.intersection(written.range).is_none()), "reported again: {}", written.range);
    }
    assert_eq!(content(&site.volume_folder(VOLUME), file), data);

    // Bytes that the file has are refused, and stay as they are.
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let transfer = gateway.start(from(channel, Some(whole)), Sink::File(again)).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 100, b"other bytes").await.unwrap();
    assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, FaultKind::Overlap);
    assert_eq!(content(&site.volume_folder(VOLUME), file), data);
}

#[tokio::test]
async fn a_stream_that_is_too_short_or_too_long_is_not_taken_for_the_file() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    for (sent, kind) in [(999, FaultKind::Incomplete), (1001, FaultKind::TooLong)] {
        let (channel, address) = gateway.listen(Framing::Stream).await;
        let transfer = gateway.start(from(channel, Some(range(0, 1000))), Sink::File(new_file(FileId(number())))).await;
        let mut stream = connect(address).await;
        let _ = stream.write_all(&pattern(sent, 1)).await;
        let _ = stream.shutdown().await;
        assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, kind);
    }
}

#[tokio::test]
async fn a_full_volume_refuses_before_it_is_full_and_loses_nothing() {
    let site = Site::new();
    let mut config = site.config();
    config.volumes = vec![site.volume(VOLUME, Some(1 << 20))];
    let running = site.start(config).await;
    let mut gateway = site.gateway(&running, "gw1", 1).await;
    let kept = gateway.put(&pattern(300_000, 1)).await;
    // Known too large: refused at once, without a connection.
    let (channel, _) = gateway.listen(Framing::Stream).await;
    let large = NewFile { reserve_bytes: 800_000, ..new_file(FileId(number())) };
    let (fault, _) = gateway.run(from(channel, None), Sink::File(large)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NoSpace, "{fault}");
    // Size unknown: found out on the way; what came can be kept, or removed.
    let (channel, address) = gateway.listen(Framing::Stream).await;
    let file = FileId(number());
    let transfer = gateway.start(from(channel, None), Sink::File(new_file(file))).await;
    let mut stream = connect(address).await;
    let _ = stream.write_all(&pattern(2_000_000, 2)).await;
    let (fault, outcome) = gateway.end(transfer).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NoSpace, "{fault}");
    let partial: u64 = outcome.written.iter().map(|written| written.range.length()).sum();
    assert!((1..=1 << 20).contains(&partial), "{partial}");
    let status = gateway.volume(VOLUME).await;
    assert!(status.used_bytes <= status.capacity_bytes && status.reserved_bytes == 0, "{status:?}");
    let files = vec![volume_file(file)];
    gateway.call(wire::mover::Call::Remove { files }).await.unwrap();
    assert_eq!(content(&site.volume_folder(VOLUME), kept), pattern(300_000, 1));
    gateway.put(&pattern(600_000, 3)).await;
}

#[tokio::test]
async fn a_cancelled_upload_lets_go_of_its_connection_and_its_space() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let sink = Sink::File(NewFile { reserve_bytes: 50_000_000, ..new_file(FileId(number())) });
    let transfer = gateway.start(from(channel, None), sink).await;
    let mut stream = connect(address).await;
    stream.write_all(&wire::mode_e::Header::data(range(0, 1 << 30)).encode()).await.unwrap();
    while gateway.volume(VOLUME).await.reserved_bytes == 0 {}
    gateway.say(&Request::Cancel { transfer }).await;
    let (fault, _) = gateway.end(transfer).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Cancelled);
    let mut rest = [0; 16];
    let closed = tokio::time::timeout(PATIENCE, tokio::io::AsyncReadExt::read(&mut stream, &mut rest)).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    assert_eq!(gateway.volume(VOLUME).await.reserved_bytes, 0);
    assert!(gateway.files(VOLUME).await.is_empty());
}
