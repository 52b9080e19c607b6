//! Downloads: disk files into channels, to good, slow and vanishing peers.

use tokio::io::AsyncReadExt as _;
use wire::{
    checksum::{ExtraSums, Sums},
    mover::{ChannelSpec, Eof, FaultKind, Framing, Job, Request, Sink, Source},
};

use super::{
    kit::*,
    peers::{accept, assemble, connect, port, receive_blocks},
};

#[tokio::test]
async fn four_connections_get_every_byte_once_and_are_used_again() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(5_000_000, 1);
    let file = gateway.put(&data).await;
    let (listener, address) = port().await;
    let (channel, none) = gateway.open(connecting(Framing::ModeE, address, 4)).await.unwrap();
    assert_eq!(none, None);
    let mut streams = Vec::new();
    for round in 0..2 {
        let pieces = vec![piece(0, file, 0, 2_000_000, None), piece(2_000_000, file, 2_000_000, 3_000_000, None)];
        let transfer = gateway.start(Source::Extents(pieces), to(channel)).await;
        while streams.len() < 4 {
            streams.push(accept(&listener).await);
        }
        let parts = futures::future::join_all(streams.iter_mut().map(receive_blocks)).await;
        assert_eq!(assemble(parts), data, "round {round}");
        assert_eq!(gateway.end(transfer).await.unwrap().bytes, data.len() as u64);
    }
}

#[tokio::test]
async fn a_part_of_a_file_goes_as_a_stream_by_push_and_by_pull() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(2_000_000, 2);
    let file = gateway.put(&data).await;
    let pieces = vec![piece(0, file, 500_000, 1_000_000, None)];

    let (listener, address) = port().await;
    let (push, _) = gateway.open(connecting(Framing::Stream, address, 1)).await.unwrap();
    let transfer = gateway.start(Source::Extents(pieces.clone()), to(push)).await;
    let mut got = Vec::new();
    accept(&listener).await.read_to_end(&mut got).await.unwrap();
    assert!(got == data[500_000..1_500_000]);
    gateway.end(transfer).await.unwrap();

    let (pull, address) = gateway.listen(Framing::Stream).await;
    let transfer = gateway.start(Source::Extents(pieces), to(pull)).await;
    let mut got = Vec::new();
    connect(address).await.read_to_end(&mut got).await.unwrap();
    assert!(got == data[500_000..1_500_000]);
    gateway.end(transfer).await.unwrap();
}

#[tokio::test]
async fn an_empty_file_is_an_end_without_data() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (listener, address) = port().await;
    let (channel, _) = gateway.open(connecting(Framing::ModeE, address, 2)).await.unwrap();
    let transfer = gateway.start(Source::Extents(vec![]), to(channel)).await;
    let mut streams = [accept(&listener).await, accept(&listener).await];
    let parts = futures::future::join_all(streams.iter_mut().map(receive_blocks)).await;
    assert!(assemble(parts).is_empty());
    gateway.end(transfer).await.unwrap();
    let file = gateway.put(b"").await;
    assert_eq!(content(&site.volume_folder(VOLUME), file), b"");
}

#[tokio::test]
async fn several_senders_announce_their_connections_together() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(400_000, 3);
    let file = gateway.put(&data).await;
    let (listener, address) = port().await;
    for (eof, announced) in [(Eof::Total(5), Some(5)), (Eof::Other, None)] {
        let (channel, _) = gateway.open(connecting(Framing::ModeE, address, 1)).await.unwrap();
        let pieces = vec![piece(0, file, 0, 400_000, None)];
        let transfer = gateway.start(Source::Extents(pieces), Sink::Channel { channel, eof }).await;
        let got = receive_blocks(&mut accept(&listener).await).await;
        assert_eq!(got.announced, announced);
        assert_eq!(got.blocks.values().flatten().copied().collect::<Vec<_>>(), data);
        gateway.end(transfer).await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_stops_reading_is_given_up_after_the_stall_limit() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let file = gateway.put(&pattern(20_000_000, 4)).await;
    let (listener, address) = port().await;
    let spec = ChannelSpec { stall_limit_ms: 300, ..connecting(Framing::ModeE, address, 2) };
    let (channel, _) = gateway.open(spec).await.unwrap();
    let transfer = gateway.start(Source::Extents(vec![piece(0, file, 0, 20_000_000, None)]), to(channel)).await;
    let _held = [accept(&listener).await, accept(&listener).await];
    let (fault, _) = gateway.end(transfer).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::PeerStalled, "{fault}");
}

#[tokio::test]
async fn one_slow_connection_does_not_hold_up_the_others() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(30_000_000, 5);
    let file = gateway.put(&data).await;
    let (listener, address) = port().await;
    let spec = ChannelSpec { buffer_bytes: Some(64 << 10), ..connecting(Framing::ModeE, address, 2) };
    let (channel, _) = gateway.open(spec).await.unwrap();
    let transfer = gateway.start(Source::Extents(vec![piece(0, file, 0, 30_000_000, None)]), to(channel)).await;
    let (mut slow, mut fast) = (accept(&listener).await, accept(&listener).await);
    // The slow one takes nothing until the fast one has everything but what the slow one has in hand.
    let mut got = super::peers::Got::default();
    let mut bytes = 0;
    while bytes < 28_000_000 {
        let mut header = [0; wire::mode_e::HEADER_BYTES];
        fast.read_exact(&mut header).await.unwrap();
        let wire::mode_e::Header::Block { range, .. } = wire::mode_e::Header::decode(&header).unwrap() else {
            panic!()
        };
        let mut block = vec![0; range.length() as usize];
        fast.read_exact(&mut block).await.unwrap();
        bytes += block.len();
        got.blocks.insert(range.offset(), block);
    }
    let (rest, slow) = futures::future::join(receive_blocks(&mut fast), receive_blocks(&mut slow)).await;
    assert!(slow.blocks.values().map(Vec::len).sum::<usize>() <= 2_000_000);
    got.blocks.extend(rest.blocks);
    got.announced = rest.announced;
    assert!(assemble(vec![got, slow]) == data);
    gateway.end(transfer).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_goes_away_is_noticed_and_a_cut_stream_does_not_look_whole() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let file = gateway.put(&pattern(20_000_000, 6)).await;
    let pieces = vec![piece(0, file, 0, 20_000_000, None)];
    let (listener, address) = port().await;
    let (channel, _) = gateway.open(connecting(Framing::Stream, address, 1)).await.unwrap();
    let transfer = gateway.start(Source::Extents(pieces.clone()), to(channel)).await;
    drop(accept(&listener).await);
    assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, FaultKind::PeerLost);

    let transfer = gateway.start(Source::Extents(pieces), to(channel)).await;
    let mut stream = accept(&listener).await;
    let mut some = [0; 1000];
    stream.read_exact(&mut some).await.unwrap();
    gateway.say(&Request::Cancel { transfer }).await;
    assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, FaultKind::Cancelled);
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest).await;
    assert!(end.is_err(), "the connection ended as if the file were over, after {} bytes", rest.len());
}

#[tokio::test]
async fn a_rate_limit_is_kept() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(1_000_000, 7);
    let file = gateway.put(&data).await;
    let (listener, address) = port().await;
    let (channel, _) = gateway.open(connecting(Framing::ModeE, address, 2)).await.unwrap();
    let job = Job {
        source: Source::Extents(vec![piece(0, file, 0, 1_000_000, None)]),
        sink: to(channel),
        extra_sums: ExtraSums::default(),
        rate_limit: Some(2_000_000),
    };
    let started = std::time::Instant::now();
    let transfer = gateway.start_job(job).await;
    let mut streams = [accept(&listener).await, accept(&listener).await];
    let parts = futures::future::join_all(streams.iter_mut().map(receive_blocks)).await;
    gateway.end(transfer).await.unwrap();
    assert!(assemble(parts) == data);
    // Half a second, less the tenth of a second's worth that may go at once.
    assert!(started.elapsed() >= std::time::Duration::from_millis(350), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_file_that_changed_on_disk_is_found_out_where_its_bytes_pass_through_memory() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(700_000, 8);
    let file = gateway.put(&data).await;
    let path = find(&site.volume_folder(VOLUME), file).unwrap();
    let mut changed = data.clone();
    changed[400_000] ^= 1;
    std::fs::write(path, &changed).unwrap();
    let pieces = vec![piece(0, file, 0, 700_000, Some(Sums::of(&data)))];
    let outcome = gateway.run(Source::Extents(pieces), Sink::Verify).await.unwrap();
    assert_eq!(outcome.failed[0].fault.kind, FaultKind::Corrupt);
    let pieces = vec![piece(0, file, 0, 700_000, Some(Sums::of(&changed)))];
    let outcome = gateway.run(Source::Extents(pieces), Sink::Verify).await.unwrap();
    assert_eq!((outcome.failed.len(), outcome.written[0].sums), (0, Sums::of(&changed)));
}

#[tokio::test]
async fn what_cannot_be_read_or_said_is_refused_with_a_reason() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let file = gateway.put(&pattern(1000, 9)).await;
    let (channel, _) = gateway.listen(Framing::Stream).await;
    let out_of_order = vec![piece(500, file, 500, 500, None), piece(0, file, 0, 500, None)];
    let nowhere = piece(0, wire::id::FileId(1 << 60), 0, 10, None);
    let mut elsewhere = piece(0, file, 0, 10, None);
    elsewhere.extent.volume = label("other");
    for (pieces, kind) in [(out_of_order, FaultKind::BadRequest), (vec![elsewhere.clone()], FaultKind::BadRequest)] {
        let transfer = gateway.start(Source::Extents(pieces), Sink::Channel { channel, eof: Eof::Own }).await;
        let _peer = connect(gateway_address(&mut gateway, channel).await).await;
        assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, kind);
    }
    let outcome = gateway.run(Source::Extents(vec![nowhere]), Sink::Verify).await.unwrap();
    assert_eq!(outcome.failed[0].fault.kind, FaultKind::NotFound);
    let (fault, _) = gateway.run(Source::Extents(vec![elsewhere]), to(wire::id::ChannelId(1 << 40))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotFound, "{fault}");
}

/// Asking again for an open channel says where it listens.
async fn gateway_address(gateway: &mut Gateway, channel: wire::id::ChannelId) -> std::net::SocketAddr {
    gateway.say(&Request::OpenChannel { channel, spec: listening(Framing::Stream) }).await;
    gateway
        .wait(|event| match event {
            wire::mover::Event::ChannelReady { channel: ready, address } if *ready == channel => *address,
            _ => None,
        })
        .await
}
