//! Transfers over real movers and raw data connections: what an FTP client's library would hide.

use std::{net::SocketAddr, time::Duration};

use futures::StreamExt as _;
use gateway::{
    failure::{Failure, FailureKind},
    files::Files,
    identity::Principal,
    transfer::{DataPort, Part, PortSpec, Retrieve, Running, Side, Step, Store, StoreMode, Summary},
};
use tests::{Site, User, bytes, soon};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::{
    checksum::Sums,
    extent::ByteRange,
    mover::{Framing, Security},
};

/// Somebody at a site, with raw data connections.
struct Bench<'a> {
    site: &'a Site,
    who: Principal,
}

impl<'a> Bench<'a> {
    async fn new(site: &'a Site, user: &User) -> Self {
        let who = site.gateway.identities.principal(&user.subject(), None).await.expect("a principal");
        Self { site, who }
    }

    /// A port in stream mode to which the client connects.
    async fn port(&self, delayed: bool) -> DataPort {
        let spec = PortSpec {
            door: "test",
            framing: Framing::Stream,
            streams: 1,
            security: Security::Clear,
            peer: None,
            side: Side::Passive { delayed, striped: false, ipv6: false, renew: false },
            buffer_bytes: None,
            cos: None,
            rate_limit: None,
        };
        self.site.gateway.transfers.port(spec).await.expect("a port")
    }

    fn path(path: &str) -> catalog::TreePath {
        Files::path(&catalog::TreePath::root(), path).expect("a good path")
    }

    async fn store(&self, port: &mut DataPort, path: &str, mode: StoreMode, size_bytes: Option<u64>) -> Running {
        let target = self.site.gateway.files.target(&self.who, &Self::path(path)).await.expect("a target");
        let principal = self.who.clone();
        let what = Store { target, principal, mode, cos: None, size_bytes, sum: None, modified_us: None, client: None };
        self.site.gateway.transfers.store(port, what)
    }

    async fn retrieve(&self, port: &mut DataPort, path: &str, part: Part) -> Running {
        let file = self.site.gateway.files.readable(&self.who, &Self::path(path)).await.expect("a file");
        self.site.gateway.transfers.retrieve(port, Retrieve { file, principal: self.who.clone(), part })
    }

    async fn put(&self, path: &str, data: &[u8]) -> Summary {
        let mut port = self.port(true).await;
        let mut running = self.store(&mut port, path, StoreMode::Whole, Some(data.len() as u64)).await;
        send(told(&mut running).await, data).await;
        soon("the end", running.done()).await.expect("stored")
    }

    async fn get(&self, path: &str) -> Vec<u8> {
        let mut port = self.port(true).await;
        let mut running = self.retrieve(&mut port, path, Part::Whole).await;
        let data = receive(told(&mut running).await).await;
        soon("the end", running.done()).await.expect("sent");
        data
    }
}

/// Where the client is told to connect to.
async fn told(running: &mut Running) -> SocketAddr {
    loop {
        match soon("an address", running.next()).await.expect("not at its end") {
            Step::Passive(addresses) => return addresses[0],
            Step::Done(result) => panic!("it ended first: {result:?}"),
            _ => {}
        }
    }
}

async fn send(to: SocketAddr, data: &[u8]) {
    let mut stream = TcpStream::connect(to).await.expect("connected");
    stream.write_all(data).await.expect("sent");
    stream.shutdown().await.expect("closed");
}

async fn receive(from: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(from).await.expect("connected");
    let mut data = Vec::new();
    stream.read_to_end(&mut data).await.expect("received");
    data
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_cut_can_go_on_and_makes_the_whole_file() {
    let site = Site::start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let (data, path) = (bytes(1, 300_000), "/home/alice/a");
    bench.put(path, b"old").await;

    let mut port = bench.port(true).await;
    let mut running = bench.store(&mut port, path, StoreMode::Whole, Some(300_000)).await;
    send(told(&mut running).await, &data[..100_000]).await;
    let failure = soon("the end", running.done()).await.expect_err("cut");
    assert_eq!(failure.ftp_code(), 426);
    assert_eq!(bench.get(path).await, b"old", "the old file is whole");

    let cut = site.gateway.files.cut_upload(&bench.who, &Bench::path(path)).await.expect("asked").expect("kept");
    assert_eq!(cut.prefix_bytes(), 100_000);
    // The client has lost count of some of it: what it believes in is copied, the rest comes again.
    let have = vec![ByteRange::new(0, 90_001).expect("small")];
    let mut port = bench.port(true).await;
    let mut running = bench.store(&mut port, path, StoreMode::Resume { have }, Some(300_000)).await;
    send(told(&mut running).await, &data[90_001..]).await;
    let summary = soon("the end", running.done()).await.expect("stored");
    assert_eq!(summary.stored.expect("stored").sums, Sums::of(&data));
    assert_eq!(bench.get(path).await, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn appending_adds_to_the_file_and_keeps_its_sums_right() {
    let site = Site::start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let data = bytes(2, 50_000);
    bench.put("/home/alice/a", &data[..20_000]).await;
    let mut port = bench.port(true).await;
    let mut running = bench.store(&mut port, "/home/alice/a", StoreMode::Append, None).await;
    send(told(&mut running).await, &data[20_000..]).await;
    let stored = soon("the end", running.done()).await.expect("stored").stored.expect("stored");
    assert_eq!((stored.size_bytes, stored.sums), (50_000, Sums::of(&data)));
    assert_eq!(bench.get("/home/alice/a").await, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_sent_alone() {
    let site = Site::start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let data = bytes(3, 10_000);
    bench.put("/home/alice/a", &data).await;
    let middle = ByteRange::new(1000, 2000).expect("small");
    for (part, expected) in
        [(Part::From(9_990), &data[9_990..]), (Part::Relative(middle), &data[1000..3000]), (Part::From(10_000), &[])]
    {
        let mut port = bench.port(true).await;
        let mut running = bench.retrieve(&mut port, "/home/alice/a", part).await;
        assert_eq!(receive(told(&mut running).await).await, expected);
        soon("the end", running.done()).await.expect("sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_elsewhere_than_the_client_was_told_is_relayed_and_counted() {
    let site = Site::start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let data = bytes(4, 200_000);
    bench.put("/home/alice/a", &data).await;
    let mut relayed = Vec::new();
    // Ports that listen at once are dealt out in turn: one of two is at the other mover.
    for _ in 0..2 {
        let mut port = bench.port(false).await;
        let running = bench.retrieve(&mut port, "/home/alice/a", Part::Whole).await;
        assert_eq!(receive(port.addresses()[0]).await, data);
        relayed.push(soon("the end", running.done()).await.expect("sent").relayed_bytes);
    }
    relayed.sort_unstable();
    assert_eq!(relayed, [0, 200_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_comes_over_the_clients_data_connection() {
    let site = Site::start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let lines: Vec<Result<bytes::Bytes, Failure>> =
        (0..10_000).map(|line| Ok(bytes::Bytes::from(format!("line {line}\r\n")))).collect();
    let text: Vec<u8> = lines.iter().flatten().flat_map(|line| line.to_vec()).collect();
    let mut port = bench.port(true).await;
    let mut running = site.gateway.transfers.listing(&mut port, futures::stream::iter(lines).boxed());
    assert_eq!(receive(told(&mut running).await).await, text);
    let summary = soon("the end", running.done()).await.expect("sent");
    assert_eq!((summary.bytes, summary.relayed_bytes), (text.len() as u64, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_dies_in_the_middle_leaves_the_old_file_and_the_client_may_try_again() {
    let grace = |config: &mut gateway::config::Config| {
        config.limits.mover_grace = daemon::config::TimeSpan::milliseconds(200);
    };
    let mut site = Site::builder().movers(1).gateway(grace).start().await;
    let alice = site.user("alice").await;
    let data = bytes(6, 100_000);
    let failure = {
        let bench = Bench::new(&site, &alice).await;
        bench.put("/home/alice/a", b"old").await;
        let mut port = bench.port(true).await;
        let mut running = bench.store(&mut port, "/home/alice/a", StoreMode::Whole, Some(100_000)).await;
        let mut stream = TcpStream::connect(told(&mut running).await).await.expect("connected");
        stream.write_all(&data[..50_000]).await.expect("sent");
        while site.gateway.transfers.running().iter().all(|view| view.state != "moves") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        site.kill_mover(1).await;
        soon("the end", running.done()).await.expect_err("lost")
    };
    assert!(failure.is_retryable() && failure.ftp_code() / 100 == 4, "{failure:?}");
    site.start_mover(1).await;
    let bench = Bench::new(&site, &alice).await;
    assert_eq!(bench.get("/home/alice/a").await, b"old");
    bench.put("/home/alice/a", &data).await;
    assert_eq!(bench.get("/home/alice/a").await, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_in_the_middle_leaves_the_old_file_and_nothing_on_the_movers() {
    let grace = |config: &mut gateway::config::Config| {
        config.limits.orphan_grace = daemon::config::TimeSpan::milliseconds(100);
    };
    let mut site = Site::builder().movers(1).gateway(grace).start().await;
    let alice = site.user("alice").await;
    {
        let bench = Bench::new(&site, &alice).await;
        bench.put("/home/alice/a", b"old").await;
        let mut port = bench.port(true).await;
        let mut running = bench.store(&mut port, "/home/alice/a", StoreMode::Whole, None).await;
        let to = told(&mut running).await;
        let mut stream = TcpStream::connect(to).await.expect("connected");
        stream.write_all(&bytes(7, 50_000)).await.expect("sent");
        // The gateway dies with the upload open; only then does the client's connection end.
        std::mem::forget(port);
        std::mem::forget(running);
        site.kill_gateway().await;
        drop(stream);
    }
    let bench = Bench::new(&site, &alice).await;
    assert_eq!(bench.get("/home/alice/a").await, b"old");
    soon("the removal of what nobody needs", async {
        loop {
            let mover = wire::id::MoverId::new("m1").expect("a good name");
            let volume = wire::id::VolumeLabel::new("m1.disk1").expect("a good label");
            let what = wire::mover::Call::Files { volume, after: None, limit: 100 };
            if let Ok(wire::mover::Answer::Files { files }) = site.gateway.movers.call(&mover, what).await
                && files.len() == 1
                && files[0].2
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_said_to_be_and_takes_files_again_when_it_is_not() {
    let small = |_: usize, config: &mut mover::MoverConfig| {
        config.volumes[0].capacity = Some(daemon::config::ByteSize::mib(80));
    };
    let site = Site::builder().mover(small).start().await;
    let bench = Bench::new(&site, &site.user("alice").await).await;
    let mut port = bench.port(true).await;
    let running = bench.store(&mut port, "/home/alice/a", StoreMode::Whole, Some(1 << 30)).await;
    let failure = soon("the end", running.done()).await.expect_err("too large");
    assert_eq!((failure.kind(), failure.ftp_code()), (FailureKind::NoSpace, 452));
    bench.put("/home/alice/a", &bytes(8, 100_000)).await;
}
