//! How fast a mover is, beside what the machine can do. Not run by default:
//! `cargo test --release -p penstock-mover --test jobs rates -- --ignored --nocapture --test-threads 1`.
//!
//! Each figure is the median of five, with a plain loop of writes and reads over loopback in the same round as yardstick.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Instant,
};

use wire::{
    id::FileId,
    mode_e::{HEADER_BYTES, Header},
    mover::{Event, Framing, PeerCheck, Request, Security, Sink, Source, TlsSide},
};

use super::{kit::*, peers};

const BYTES: usize = 256 << 20;
const ROUNDS: usize = 5;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, rates: &[f64], yardsticks: &[f64]) {
    let (rate, yardstick) = (median(rates.to_vec()), median(yardsticks.to_vec()));
    println!("{what}: {:.2} GB/s, yardstick {:.2} GB/s, ratio {:.2}", rate / 1e9, yardstick / 1e9, rate / yardstick);
}

fn cubic(socket: &impl std::os::fd::AsFd) {
    let _ = socket2_of(socket).set_tcp_congestion(b"cubic");
}

fn socket2_of(socket: &impl std::os::fd::AsFd) -> socket2::SockRef<'_> {
    socket2::SockRef::from(socket)
}

/// Writes and reads over loopback, as iperf3 does.
fn yardstick(streams: usize) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    cubic(&listener);
    let address = listener.local_addr().unwrap();
    let started = Instant::now();
    let senders: Vec<_> = (0..streams)
        .map(|_| {
            thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let block = vec![1u8; 1 << 20];
                for _ in 0..BYTES / block.len() / streams {
                    socket.write_all(&block).unwrap();
                }
            })
        })
        .collect();
    let receivers: Vec<_> = (0..streams)
        .map(|_| {
            let mut socket = listener.accept().unwrap().0;
            thread::spawn(move || {
                let mut block = vec![0u8; 1 << 20];
                while socket.read(&mut block).unwrap() > 0 {}
            })
        })
        .collect();
    for thread in senders.into_iter().chain(receivers) {
        thread.join().unwrap();
    }
    BYTES as f64 / started.elapsed().as_secs_f64()
}

/// Reads blocks and throws them away, to the end of one connection's data.
fn drain(mut socket: impl Read) {
    let mut block = vec![0u8; 1 << 20];
    loop {
        let mut header = [0; HEADER_BYTES];
        socket.read_exact(&mut header).unwrap();
        match Header::decode(&header).unwrap() {
            Header::EndOfFile { .. } | Header::Block { end_of_data: true, .. } => return,
            Header::Block { range, .. } => {
                let mut left = range.length() as usize;
                while left > 0 {
                    let want = left.min(block.len());
                    left -= socket.read(&mut block[..want]).unwrap();
                }
            }
        }
    }
}

async fn fast_pair(site: &Site) -> (Running, Gateway) {
    let mut config = site.config();
    config.data.congestion = "cubic".to_owned();
    config.limits = mover::config::LimitsConfig::default();
    let running = site.start(config).await;
    let gateway = site.gateway(&running, "gw1", 1).await;
    (running, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn rates_of_sending() {
    let site = Site::in_memory();
    let (_running, mut gateway) = fast_pair(&site).await;
    let file = gateway.put(&pattern(BYTES, 1)).await;
    for streams in [1u16, 4] {
        let (mut rates, mut yardsticks) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            yardsticks.push(tokio::task::spawn_blocking(move || yardstick(streams.into())).await.unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (channel, _) = gateway.open(connecting(Framing::ModeE, address, streams)).await.unwrap();
            let started = Instant::now();
            let transfer =
                gateway.start(Source::Extents(vec![piece(0, file, 0, BYTES as u64, None)]), to(channel)).await;
            let drains = thread::spawn(move || {
                let each = (0..streams).map(|_| listener.accept().unwrap().0);
                let threads: Vec<_> = each.map(|socket| thread::spawn(move || drain(socket))).collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            });
            gateway.end(transfer).await.unwrap();
            tokio::task::spawn_blocking(move || drains.join().unwrap()).await.unwrap();
            rates.push(BYTES as f64 / started.elapsed().as_secs_f64());
            gateway.say(&Request::CloseChannel { channel }).await;
        }
        report(&format!("send, {streams} streams, clear"), &rates, &yardsticks);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn rates_of_receiving() {
    let site = Site::in_memory();
    let (_running, mut gateway) = fast_pair(&site).await;
    let (mut received, mut durable, mut yardsticks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        yardsticks.push(tokio::task::spawn_blocking(|| yardstick(1)).await.unwrap());
        let (channel, address) = gateway.listen(Framing::ModeE).await;
        let file = FileId(number());
        let started = Instant::now();
        let transfer = gateway.start(from(channel, Some(range(0, BYTES as u64))), Sink::File(new_file(file))).await;
        let sender = thread::spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            let block = vec![1u8; 1 << 20];
            for number in 0..BYTES / block.len() {
                let header = Header::data(range((number * block.len()) as u64, block.len() as u64));
                socket.write_all(&header.encode()).unwrap();
                socket.write_all(&block).unwrap();
            }
            socket.write_all(&Header::end_of_file(1, false).encode()).unwrap();
        });
        gateway.wait(|event| matches!(event, Event::Received { .. }).then_some(())).await;
        received.push(BYTES as f64 / started.elapsed().as_secs_f64());
        gateway.end(transfer).await.unwrap();
        durable.push(BYTES as f64 / started.elapsed().as_secs_f64());
        sender.join().unwrap();
        gateway.say(&Request::CloseChannel { channel }).await;
        gateway.call(wire::mover::Call::Remove { files: vec![volume_file(file)] }).await.unwrap();
    }
    report("receive and write, 1 stream, clear", &received, &yardsticks);
    report("the same until it is synced", &durable, &yardsticks);
}

/// rustls alone over loopback: 128 KiB writes, one connection.
fn rustls_alone(site: &Site) -> f64 {
    use daemon::tls::{Clients, Expect};
    let credential = site.part(daemon::role::Role::Mover, "m2");
    let server = daemon::tls::server_config(&credential, &Clients::Anonymous, &[]);
    let client = daemon::tls::client_config(None, &site.trust(), &Expect::Host, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    cubic(&listener);
    let address: SocketAddr = listener.local_addr().unwrap();
    let started = Instant::now();
    let sender = thread::spawn(move || {
        let name = rustls_name();
        let mut connection = tokio_rustls::rustls::ClientConnection::new(client, name).unwrap();
        connection.set_buffer_limit(None);
        let mut socket = TcpStream::connect(address).unwrap();
        let mut stream = tokio_rustls::rustls::Stream::new(&mut connection, &mut socket);
        let block = vec![1u8; 128 << 10];
        for _ in 0..BYTES / block.len() {
            stream.write_all(&block).unwrap();
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    });
    let mut socket = listener.accept().unwrap().0;
    let mut connection = tokio_rustls::rustls::ServerConnection::new(server).unwrap();
    let mut stream = tokio_rustls::rustls::Stream::new(&mut connection, &mut socket);
    let mut block = vec![0u8; 1 << 20];
    while stream.read(&mut block).unwrap_or(0) > 0 {}
    sender.join().unwrap();
    BYTES as f64 / started.elapsed().as_secs_f64()
}

fn rustls_name() -> tokio_rustls::rustls::pki_types::ServerName<'static> {
    tokio_rustls::rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn rates_over_tls() {
    let site = Site::in_memory();
    let (_running, mut gateway) = fast_pair(&site).await;
    let file = gateway.put(&pattern(BYTES, 1)).await;
    let (mut rates, mut yardsticks) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        yardsticks.push(tokio::task::block_in_place(|| rustls_alone(&site)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut spec = connecting(Framing::ModeE, listener.local_addr().unwrap(), 1);
        spec.security = Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site };
        let (channel, _) = gateway.open(spec).await.unwrap();
        let credential = site.part(daemon::role::Role::Mover, "m2");
        let server = daemon::tls::server_config(&credential, &daemon::tls::Clients::Anonymous, &[]);
        let started = Instant::now();
        let transfer = gateway.start(Source::Extents(vec![piece(0, file, 0, BYTES as u64, None)]), to(channel)).await;
        let drains = thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            let mut connection = tokio_rustls::rustls::ServerConnection::new(server).unwrap();
            drain(tokio_rustls::rustls::Stream::new(&mut connection, &mut socket));
        });
        gateway.end(transfer).await.unwrap();
        tokio::task::spawn_blocking(move || drains.join().unwrap()).await.unwrap();
        rates.push(BYTES as f64 / started.elapsed().as_secs_f64());
        gateway.say(&Request::CloseChannel { channel }).await;
    }
    report("send, 1 stream, TLS, against rustls alone", &rates, &yardsticks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn rates_of_small_files() {
    let site = Site::new();
    let (_running, mut gateway) = fast_pair(&site).await;
    let data = pattern(4096, 1);
    for clients in [1usize, 8, 16] {
        let mut channels = Vec::new();
        for _ in 0..clients {
            let (channel, address) = gateway.listen(Framing::ModeE).await;
            channels.push((channel, peers::connect(address).await));
        }
        let files = 2000;
        let (mut open, mut next) = (std::collections::HashMap::new(), 0usize);
        let mut free: Vec<usize> = (0..clients).collect();
        let (mut done, started) = (0, Instant::now());
        while done < files {
            while let Some(client) = free.pop().filter(|_| next < files) {
                let (channel, stream) = &mut channels[client];
                let transfer =
                    gateway.start(from(*channel, Some(range(0, 4096))), Sink::File(new_file(FileId(number())))).await;
                peers::send_block(stream, 0, &data).await.unwrap();
                peers::send_end(stream, Some(1)).await;
                open.insert(transfer, client);
                next += 1;
            }
            match gateway.next().await {
                // The channel is free: the next file comes while this one is synced.
                Event::Received { transfer, .. } => free.extend(open.get(&transfer)),
                Event::Finished { transfer, .. } => {
                    open.remove(&transfer);
                    gateway.say(&Request::Acknowledge { transfer }).await;
                    done += 1;
                }
                Event::Progress { .. } | Event::ChannelReady { .. } | Event::Unconfirmed { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        println!("4 KiB files, {clients} channels: {:.0} files/s", files as f64 / started.elapsed().as_secs_f64());
    }
}
