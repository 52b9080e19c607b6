//! What a mover knows after it was killed, and what a gateway hears after it was away.

use tokio::io::AsyncWriteExt as _;
use wire::{
    extent::ByteRange,
    id::{FileId, TransferId},
    mover::{Event, FaultKind, Framing, Request, Sink, VolumeHealth},
};

use super::{
    kit::*,
    peers::{connect, send_block, send_end},
};

fn temporary(site: &Site) -> usize {
    std::fs::read_dir(site.volume_folder(VOLUME).join("tmp")).unwrap().count()
}

#[tokio::test]
async fn after_a_kill_whole_files_are_listed_half_ones_are_gone_and_confirmed_ones_stay() {
    let site = Site::new();
    let (running, mut gateway) = site.pair().await;
    let confirmed = gateway.put(&pattern(5000, 1)).await;
    let waiting = gateway.put(&pattern(6000, 2)).await;
    gateway.say(&Request::Confirm { files: vec![volume_file(confirmed)] }).await;
    while gateway.files(VOLUME).await.iter().filter(|(_, _, confirmed)| *confirmed).count() == 0 {}
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let half = FileId(number());
    gateway.start(from(channel, Some(range(0, 100_000))), Sink::File(new_file(half))).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, &pattern(50_000, 3)).await.unwrap();
    while temporary(&site) == 0 {
        tokio::task::yield_now().await;
    }
    running.kill().await;
    drop((stream, gateway));
    // A real crash does not tidy up either.
    std::fs::write(site.volume_folder(VOLUME).join("tmp").join("00000000000000ff@gw1@1"), b"half").unwrap();

    let running = site.start(site.config()).await;
    assert_eq!(temporary(&site), 0);
    let mut gateway = site.gateway(&running, "gw1", 2).await;
    let files = gateway.wait(|event| match event {
        Event::Unconfirmed { files } => Some(files.clone()),
        _ => None,
    });
    assert_eq!(files.await, [volume_file(waiting)]);
    let on_disk: Vec<_> = gateway.files(VOLUME).await;
    assert_eq!(on_disk, [(confirmed, 5000, true), (waiting, 6000, false)]);
    assert_eq!(content(&site.volume_folder(VOLUME), waiting), pattern(6000, 2));
    // Another gateway is not asked about them: it cannot know that this one is publishing them just now.
    let mut other = site.gateway(&running, "gw2", 1).await;
    other.say(&Request::Acknowledge { transfer: TransferId(1) }).await;
    other.call(wire::mover::Call::Status).await.unwrap();
    assert_eq!(other.files(VOLUME).await.len(), 2);
}

#[tokio::test]
async fn an_end_that_nobody_heard_is_told_when_the_gateway_is_back() {
    let site = Site::new();
    let (running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let file = FileId(number());
    let transfer = gateway.start(from(channel, None), Sink::File(new_file(file))).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, b"first").await.unwrap();
    gateway.call(wire::mover::Call::Status).await.unwrap();
    drop(gateway);
    send_block(&mut stream, 5, b"second").await.unwrap();
    send_end(&mut stream, Some(1)).await;
    let mut gateway = site.gateway(&running, "gw1", 1).await;
    let finished = |event: &Event| match event {
        Event::Finished { transfer: ended, outcome } if *ended == transfer => Some(outcome.clone()),
        _ => None,
    };
    let outcome = gateway.wait(finished).await;
    assert_eq!(outcome.written[0].range, range(0, 11));
    // Asked again to start it, the mover says the same again and starts nothing.
    let job = wire::mover::Job {
        source: from(channel, None),
        sink: Sink::File(new_file(file)),
        extra_sums: wire::checksum::ExtraSums::default(),
        rate_limit: None,
    };
    gateway.say(&Request::Start { transfer, job: Box::new(job) }).await;
    assert_eq!(gateway.wait(finished).await, outcome);
    gateway.say(&Request::Acknowledge { transfer }).await;
    let mut gateway = site.gateway(&running, "gw1", 1).await;
    gateway.say(&Request::Cancel { transfer }).await;
    let unknown = gateway.wait(|event| match event {
        Event::Failed { transfer: ended, fault, .. } if *ended == transfer => Some(fault.kind),
        _ => None,
    });
    assert_eq!(unknown.await, FaultKind::NotFound, "it is forgotten");
}

#[tokio::test]
async fn who_is_stale_or_speaks_another_version_or_is_no_gateway_is_refused() {
    let site = Site::new();
    let running = site.start(site.config()).await;
    let mut newer = site.gateway(&running, "gw1", 5).await;
    let mut older = site.connect(&running, "gw1").await;
    older.hello(4).await;
    assert!(matches!(older.next().await, Event::Refused { fault } if fault.kind == FaultKind::Stale));
    assert!(older.heard().await.is_none());
    let mut other = site.connect(&running, "gw2").await;
    let hello = Request::Hello { version: 999, gateway: other.name.clone(), epoch: wire::id::Epoch(1) };
    other.say(&hello).await;
    assert!(matches!(other.next().await, Event::Refused { fault } if fault.kind == FaultKind::Version));
    // A name that the certificate does not say.
    let mut liar = site.connect(&running, "gw3").await;
    liar.name = newer.name.clone();
    liar.hello(9).await;
    assert!(matches!(liar.next().await, Event::Refused { fault } if fault.kind == FaultKind::BadRequest));
    // A length nobody sends.
    let mut rude = site.gateway(&running, "gw4", 1).await;
    rude.write(&[0xff; 8]).await;
    assert!(rude.heard().await.is_none());
    newer.call(wire::mover::Call::Status).await.unwrap();
    // A second connection replaces the first.
    let mut again = site.gateway(&running, "gw1", 5).await;
    assert!(newer.heard().await.is_none());
    again.call(wire::mover::Call::Status).await.unwrap();
    let mover = site.part(daemon::role::Role::Mover, "m2");
    let expect = daemon::tls::Expect::Role { role: daemon::role::Role::Mover, name: None };
    let config = daemon::tls::client_config(Some(&mover), &site.trust(), &expect, &[]);
    let socket = connect(running.mover.address()).await;
    let mut stream = daemon::tls::connect(&config, "127.0.0.1", socket).await.unwrap();
    let _ = stream.write_all(&[0; 4]).await;
    let mut nothing = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut nothing).await;
    assert!(nothing.is_empty(), "another mover is no gateway");
}

#[tokio::test]
async fn a_mover_that_is_told_to_stop_finishes_what_moves_and_takes_nothing_new() {
    let site = Site::new();
    let (running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let transfer = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, b"half of it, ").await.unwrap();
    gateway.call(wire::mover::Call::Status).await.unwrap();
    let shutdown = running.shutdown.clone();
    shutdown.stop();
    let refused = loop {
        match gateway.open(listening(Framing::Stream)).await {
            Err(fault) => break fault,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(refused.kind, FaultKind::ShuttingDown);
    send_block(&mut stream, 12, b"the rest").await.unwrap();
    send_end(&mut stream, Some(1)).await;
    assert_eq!(gateway.end(transfer).await.unwrap().bytes, 20);
    let ending = tokio::time::timeout(PATIENCE, shutdown.finish()).await.expect("it ends by itself");
    assert_eq!(ending, daemon::lifecycle::Ending::Clean);
}

#[tokio::test]
async fn a_wrong_mount_is_a_volume_that_is_down_and_says_why() {
    let site = Site::new();
    let mut config = site.config();
    config.volumes.push(mover::config::VolumeConfig { create: false, ..site.volume("m1.d9", None) });
    std::fs::create_dir_all(site.volume_folder("m1.d9")).unwrap();
    let running = site.start(config).await;
    let mut gateway = site.gateway(&running, "gw1", 1).await;
    let status = gateway.volume("m1.d9").await;
    assert!(matches!(status.health, VolumeHealth::Down { reason } if reason.contains("mounted")));
    assert_eq!(gateway.volume(VOLUME).await.health, VolumeHealth::Up);
}

/// The arithmetic of ranges in an upload, from seeds: whatever a peer sends, what is reported is what is on disk.
#[tokio::test]
async fn whatever_a_peer_sends_what_is_reported_is_what_is_on_disk() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    for seed in 1..=12u64 {
        println!("seed {seed}");
        let data = pattern(40_000, seed);
        let mut state = seed;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (channel, address) = gateway.listen(Framing::ModeE).await;
        let file = FileId(number());
        let transfer = gateway.start(from(channel, None), Sink::File(new_file(file))).await;
        let mut stream = connect(address).await;
        let mut sent: Vec<ByteRange> = Vec::new();
        for _ in 0..next(12) + 1 {
            let start = next(39_000);
            let part = range(start, next(999) + 1);
            if sent.iter().any(|other| other.intersection(part).is_some()) {
                continue;
            }
            send_block(&mut stream, start, &data[part.offset() as usize..part.end() as usize]).await.unwrap();
            sent.push(part);
        }
        if next(2) == 0 {
            send_end(&mut stream, Some(1)).await;
        } else {
            drop(stream);
        }
        let outcome = match gateway.end(transfer).await {
            Ok(outcome) => outcome,
            Err((fault, outcome)) => {
                assert_eq!(fault.kind, FaultKind::PeerLost, "seed {seed}");
                outcome
            }
        };
        assert_eq!(outcome.bytes, sent.iter().map(|part| part.length()).sum::<u64>(), "seed {seed}");
        let disk = content(&site.volume_folder(VOLUME), file);
        let mut covered = wire::extent::Coverage::new();
        for written in &outcome.written {
            let part = written.range.offset() as usize..written.range.end() as usize;
            assert!(disk[part.clone()] == data[part.clone()], "seed {seed}");
            assert_eq!(written.sums, wire::checksum::Sums::of(&data[part]), "seed {seed}");
            covered.add(written.range).unwrap();
        }
        assert!(sent.iter().all(|part| covered.covers(*part)), "seed {seed}");
    }
}
