//! Channels: who may come, over TLS and in clear; relays.

use std::sync::Arc;

use daemon::{
    pki::Holder,
    tls::{self, Clients, Expect},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
};
use wire::{
    checksum::Sums,
    id::FileId,
    mover::{ChannelSpec, FaultKind, Framing, Open, PeerCheck, Request, Security, Sink, Source, TlsSide},
};

use super::{
    kit::*,
    peers::{accept, assemble, connect, port, receive_blocks, send_block, send_end},
};

fn secured(spec: ChannelSpec, side: TlsSide, peer: PeerCheck) -> ChannelSpec {
    ChannelSpec { security: Security::Tls { side, peer }, ..spec }
}

#[tokio::test]
async fn a_stranger_is_turned_away_and_the_right_peer_is_still_waited_for() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::Stream).await;
    let transfer = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
    let stranger = TcpSocket::new_v4().unwrap();
    stranger.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let mut stranger = stranger.connect(address).await.unwrap();
    let _ = stranger.write_all(b"let me in").await;
    let mut nothing = Vec::new();
    let _ = stranger.read_to_end(&mut nothing).await;
    assert!(nothing.is_empty());
    let mut right = connect(address).await;
    right.write_all(b"data").await.unwrap();
    drop(right);
    assert_eq!(gateway.end(transfer).await.unwrap().bytes, 4);
}

#[tokio::test]
async fn nobody_comes_or_nobody_answers() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (waits, _) = gateway.open(ChannelSpec { open_limit_ms: 50, ..listening(Framing::ModeE) }).await.unwrap();
    let (fault, _) = gateway.run(from(waits, None), Sink::File(new_file(FileId(number())))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::PeerUnreachable, "{fault}");
    let (listener, address) = port().await;
    drop(listener);
    let (dials, _) = gateway.open(connecting(Framing::ModeE, address, 2)).await.unwrap();
    let (fault, _) = gateway.run(Source::Extents(vec![]), to(dials)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::PeerUnreachable, "{fault}");
    assert!(gateway.volume(VOLUME).await.used_bytes == 0);
}

#[tokio::test]
async fn a_channel_serves_one_transfer_at_a_time_and_ends_the_one_it_is_closed_under() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (channel, address) = gateway.listen(Framing::ModeE).await;
    let first = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
    let mut stream = connect(address).await;
    send_block(&mut stream, 0, b"some").await.unwrap();
    let (fault, _) = gateway.run(from(channel, None), Sink::File(new_file(FileId(number())))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Busy, "{fault}");
    gateway.say(&Request::CloseChannel { channel }).await;
    let (fault, _) = gateway.end(first).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Cancelled, "{fault}");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "it listens no longer");
}

#[tokio::test]
async fn a_specification_that_makes_no_sense_is_refused() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (_, address) = port().await;
    for spec in [
        ChannelSpec { streams: 0, ..listening(Framing::ModeE) },
        ChannelSpec { streams: 65, ..listening(Framing::ModeE) },
        ChannelSpec { streams: 2, ..connecting(Framing::Stream, address, 2) },
        ChannelSpec { open: Open::Connect { to: vec![] }, ..listening(Framing::ModeE) },
        ChannelSpec { open: Open::Listen { peer: None, ipv6: true }, ..listening(Framing::ModeE) },
        secured(listening(Framing::ModeE), TlsSide::Server, PeerCheck::Subject("nonsense".to_owned())),
    ] {
        assert_eq!(gateway.open(spec.clone()).await.unwrap_err().kind, FaultKind::BadRequest, "{spec:?}");
    }
}

#[tokio::test]
async fn the_right_user_stores_over_tls_and_another_one_does_not() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(900_000, 1);
    let subject = "/O=Penstock site test/OU=user/CN=Alice".to_owned();
    for (name, check, good) in [
        (Some("Alice"), PeerCheck::Subject(subject.clone()), true),
        (Some("Bob"), PeerCheck::Subject(subject.clone()), false),
        (None, PeerCheck::Subject(subject.clone()), false),
        (None, PeerCheck::SubjectIfShown(subject.clone()), true),
        (Some("Bob"), PeerCheck::SubjectIfShown(subject.clone()), false),
        (Some("Alice"), PeerCheck::Site, false),
    ] {
        let told = format!("{name:?} {check:?}");
        let spec = secured(listening(Framing::ModeE), TlsSide::Server, check);
        let (channel, address) = gateway.open(spec).await.unwrap();
        let transfer = gateway.start(from(channel, None), Sink::File(new_file(FileId(number())))).await;
        let credential = name.map(|name| site.credential(&Holder::User { name }));
        let expect = Expect::Host;
        let config = tls::client_config(credential.as_ref(), &site.trust(), &expect, &[]);
        let (head, tail) = data.split_at(500_000);
        let send = async {
            for (offset, part, of) in [(500_000, tail, None), (0, head, Some(2))] {
                let socket = connect(address.unwrap()).await;
                let Ok(mut stream) = tls::connect(&config, "127.0.0.1", socket).await else { return };
                if send_block(&mut stream, offset, part).await.is_ok() {
                    send_end(&mut stream, of).await;
                }
            }
        };
        if good {
            let (_, ended) = futures::future::join(send, gateway.end(transfer)).await;
            assert_eq!(ended.unwrap().written[0].sums, Sums::of(&data), "{told}");
        } else {
            // The peer may notice before or after the gateway hears of it.
            let (_, ended) = futures::future::join(tokio::time::timeout(PATIENCE, send), gateway.end(transfer)).await;
            assert_eq!(ended.unwrap_err().0.kind, FaultKind::PeerUntrusted, "{told}");
        }
    }
}

#[tokio::test]
async fn a_movers_file_reaches_another_mover_over_tls_between_parts_of_the_site() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let data = pattern(3_000_000, 2);
    let file = gateway.put(&data).await;
    let (listener, address) = port().await;
    for framing in [Framing::Stream, Framing::ModeE] {
        let streams = if framing == Framing::ModeE { 3 } else { 1 };
        let spec = secured(connecting(framing, address, streams), TlsSide::ByConnection, PeerCheck::Site);
        let (channel, _) = gateway.open(spec).await.unwrap();
        let pieces = vec![piece(0, file, 0, 3_000_000, Some(Sums::of(&data)))];
        let transfer = gateway.start(Source::Extents(pieces), to(channel)).await;
        let (credential, clients) = site.peer_tls();
        let config = tls::server_config(&credential, &clients, &[]);
        let mut tasks = Vec::new();
        for _ in 0..streams {
            let (socket, config, clients) = (accept(&listener).await, config.clone(), clients.clone());
            tasks.push(async move {
                let (mut stream, _) = tls::accept(&config, &clients, socket).await.unwrap();
                if framing == Framing::ModeE {
                    return receive_blocks(&mut stream).await;
                }
                let mut whole = Vec::new();
                stream.read_to_end(&mut whole).await.expect("TLS ends as it should");
                super::peers::Got { blocks: [(0, whole)].into(), announced: Some(1) }
            });
        }
        assert!(assemble(futures::future::join_all(tasks).await) == data, "{framing:?}");
        gateway.end(transfer).await.unwrap();
    }
}

#[tokio::test]
async fn a_mover_does_not_send_to_somebody_who_is_no_mover() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    let (listener, address) = port().await;
    let spec = secured(connecting(Framing::ModeE, address, 1), TlsSide::ByConnection, PeerCheck::Site);
    let (channel, _) = gateway.open(spec).await.unwrap();
    let transfer = gateway.start(Source::Extents(vec![]), to(channel)).await;
    let user = site.credential(&Holder::User { name: "Mallory" });
    let clients = Clients::Anonymous;
    let socket = accept(&listener).await;
    let _ = tls::accept(&tls::server_config(&user, &clients, &[]), &clients, socket).await;
    assert_eq!(gateway.end(transfer).await.unwrap_err().0.kind, FaultKind::PeerUntrusted);
}

#[tokio::test]
async fn a_relay_brings_bytes_from_channel_to_channel_and_counts_them() {
    let site = Site::new();
    let (_running, mut gateway) = site.pair().await;
    // More than a pipeline holds, so that it must stop and go.
    let data = Arc::new(pattern(5_000_000, 3));
    for (source, sink) in [
        (Framing::Stream, Framing::Stream),
        (Framing::Stream, Framing::ModeE),
        (Framing::ModeE, Framing::Stream),
        (Framing::ModeE, Framing::ModeE),
    ] {
        let (in_channel, in_address) = gateway.listen(source).await;
        let (listener, out_address) = port().await;
        let streams = if sink == Framing::ModeE { 2 } else { 1 };
        let (out_channel, _) = gateway.open(connecting(sink, out_address, streams)).await.unwrap();
        let transfer = gateway.start(from(in_channel, None), to(out_channel)).await;
        let sender = data.clone();
        let sending = async move {
            if source == Framing::Stream {
                connect(in_address).await.write_all(&sender).await.unwrap();
                return;
            }
            let mut streams = [connect(in_address).await, connect(in_address).await];
            for (number, block) in sender.chunks(90_000).enumerate() {
                // In pairs the wrong way round: what comes early has to wait for what comes late.
                let _ = send_block(&mut streams[number % 2], number as u64 * 90_000, block).await;
            }
            send_end(&mut streams[0], Some(2)).await;
            send_end(&mut streams[1], None).await;
        };
        let receiving = async {
            if sink == Framing::Stream {
                let mut whole = Vec::new();
                accept(&listener).await.read_to_end(&mut whole).await.unwrap();
                return whole;
            }
            let mut streams = [accept(&listener).await, accept(&listener).await];
            assemble(futures::future::join_all(streams.iter_mut().map(receive_blocks)).await)
        };
        let (_, got) = futures::future::join(sending, receiving).await;
        assert!(got == **data, "{source:?} to {sink:?}");
        assert_eq!(gateway.end(transfer).await.unwrap().bytes, data.len() as u64);
    }
    match gateway.call(wire::mover::Call::Status).await {
        Ok(wire::mover::Answer::Status(status)) => assert_eq!(status.relayed_bytes, 4 * data.len() as u64),
        other => panic!("{other:?}"),
    }
}
