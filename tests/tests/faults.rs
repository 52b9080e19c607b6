//! What bad input and broken parts get, over real sockets and movers: the protocol's own code, a sentence that names the
//! thing and the next step, everything free again, and the old file as it was.

use std::time::Duration;

use catalog::testing::PostgresCluster;
use daemon::{
    Clock,
    config::{ByteSize, TimeSpan},
    pki::{ProxyOptions, make_proxy},
    tls::HotCredential,
};
use tests::{Gate, Raw, Site, bytes, soon};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::{extent::ByteRange, ftp::Reply, mode_e::Header};

const MIB: usize = 1 << 20;
const PATH: &str = "/home/alice/a";

/// A refusal has one of these codes, and a sentence for people in its last line that says what it is about.
fn refused(reply: &Reply, codes: &[u16], names: &str) {
    let sentence = reply.lines().last().expect("a line");
    assert!(codes.contains(&reply.code()), "{codes:?} for {names:?}: {reply:?}");
    assert!(sentence.contains(names) && sentence.len() > 20, "names {names:?}: {reply:?}");
}

/// Waits until the movers hold this many files, whole and confirmed, and nothing else.
async fn only_files(site: &Site, movers: usize, count: usize) {
    fn files(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
    }
    soon("everything else to be gone", async {
        loop {
            let held = |part: &str| -> usize { (1..=movers).map(|mover| files(&site.disk(mover).join(part))).sum() };
            if (held("tmp"), held("incoming"), held("data")) == (0, 0, count)
                && site.gateway.transfers.running().is_empty()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

fn no_partials(config: &mut gateway::config::Config) {
    config.limits.partial_uploads = TimeSpan::milliseconds(100);
    config.limits.orphan_grace = TimeSpan::milliseconds(100);
    for class in &mut config.classes {
        class.undelete = TimeSpan::milliseconds(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_not_possible_is_named_with_the_next_step() {
    let site = Site::builder().movers(1).start().await;
    let mut raw = Raw::login(&site, &site.user("alice").await).await;
    for (line, codes, names) in [
        ("CWD /nowhere", &[550][..], "/nowhere"),
        ("SIZE /home/alice/nothing", &[550], "/home/alice/nothing"),
        ("DELE /home/alice/nothing", &[550], "/home/alice/nothing"),
        ("RMD /home", &[550], "/home"),
        ("MKD /not/there/either", &[550], "/not"),
        ("SITE SETCOS gold", &[501, 504, 550], "gold"),
        ("SITE SYMLINK a b", &[502], "no symbolic links"),
        ("SITE CHMOD 99 /home/alice", &[501], ""),
    ] {
        let reply = raw.ask(line).await;
        refused(&reply, codes, names);
    }
    for (line, codes, names) in [
        ("RETR /home/alice/nothing", &[550][..], "/home/alice/nothing"),
        ("RETR /home/alice", &[550], "/home/alice"),
        ("STOR /no/such/place", &[550, 553], "/no"),
        ("STOR /home/alice", &[550, 553], "/home/alice"),
    ] {
        raw.passive().await;
        let reply = raw.ask(line).await;
        refused(&reply, codes, names);
    }
    assert_eq!(raw.ask("NOOP").await.code(), 200, "the session lives");
    only_files(&site, 1, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_proxy_is_told_so_and_a_fresh_one_is_let_in() {
    let site = Site::builder().movers(1).start().await;
    let alice = site.user("alice").await;
    let credential = alice.options().identity.and_then(|identity| identity.credential).expect("a certificate");
    let credential = credential.current();
    let past = Clock::settable(Clock::real().now_us() - 30 * 60 * 1_000_000);
    let proxy = |lifetime, clock: &Clock| {
        let options = ProxyOptions { lifetime, ..ProxyOptions::default() };
        let proxy = make_proxy(&credential, options, clock).expect("a proxy");
        HotCredential::fixed(proxy.credential().expect("loads"))
    };
    let expired = proxy(Duration::from_secs(600), &past);
    let mut raw = Raw::connect(&site, Some(&expired)).await;
    let reply = raw.ask("USER alice").await;
    refused(&reply, &[530], "expired");
    let fresh = proxy(Duration::from_secs(3600), &Clock::real());
    let mut raw = Raw::connect(&site, Some(&fresh)).await;
    assert_eq!(raw.ask("USER alice").await.code(), 232);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_line_of_300_megabytes_costs_one_reply_and_no_memory() {
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
    }
    let site = Site::builder().movers(1).start().await;
    let mut raw = Raw::login(&site, &site.user("alice").await).await;
    let chunk = vec![b'a'; MIB];
    let before = resident_kib();
    let mut most = 0;
    for _ in 0..300 {
        raw.send(&chunk).await;
        most = most.max(resident_kib());
    }
    raw.send(b"\r\nNOOP\r\n").await;
    assert_eq!((raw.reply().await.code(), raw.reply().await.code()), (500, 200));
    assert!(most < before + 64 * 1024, "from {before} KiB to {most} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_break_the_rules_leave_the_old_file_and_nothing_else() {
    let site = Site::builder().movers(1).gateway(no_partials).start().await;
    let alice = site.user("alice").await;
    alice.login().await.put(PATH, b"old").await.expect("stored");
    let block = |offset: u64, length: usize| {
        let range = ByteRange::new(offset, length as u64).expect("small");
        [Header::data(range).encode().to_vec(), bytes(offset, length)].concat()
    };
    let end = || Header::end_of_file(1, true).encode().to_vec();
    let mut bad_bit = block(0, 10);
    bad_bit[0] |= 0x10;
    let mut huge = block(0, 10);
    huge[1..9].copy_from_slice(&u64::MAX.to_be_bytes());
    for (what, sent, codes) in [
        ("a descriptor with a bad bit", bad_bit, &[426, 501][..]),
        ("a length no file has", huge, &[426, 501]),
        ("bytes that came already", [block(0, 100), block(50, 100), end()].concat(), &[426, 451]),
        ("a hole", [block(0, 100), block(200, 100), end()].concat(), &[426, 451]),
        ("no extended block mode at all", b"220 Welcome to my server, dear client".to_vec(), &[426, 501]),
        ("half a block", block(0, 100)[..60].to_vec(), &[426]),
    ] {
        let mut raw = Raw::login(&site, &alice).await;
        assert_eq!(raw.ask("MODE E").await.code(), 200);
        let to = raw.passive().await;
        raw.send(format!("STOR {PATH}\r\n").as_bytes()).await;
        let mut data = TcpStream::connect(to).await.expect("connected");
        // Who breaks the rules may be cut off before all is sent.
        let _ = data.write_all(&sent).await;
        let _ = data.shutdown().await;
        let reply = raw.last_reply().await;
        assert!(codes.contains(&reply.code()) && reply.text().len() > 20, "{what}: {reply}");
        assert_eq!(raw.ask("NOOP").await.code(), 200, "{what}: the session lives");
        assert_eq!(alice.login().await.get(PATH).await.expect("fetched"), b"old", "{what}");
    }
    only_files(&site, 1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_is_given_up_and_its_mover_is_free_again() {
    let stall = |config: &mut gateway::config::Config| config.limits.data_stall = TimeSpan::seconds(1);
    let site = Site::builder().movers(1).gateway(stall).start().await;
    let alice = site.user("alice").await;
    let data = bytes(1, 32 * MIB);
    alice.login().await.put(PATH, &data).await.expect("stored");
    let mut raw = Raw::login(&site, &alice).await;
    let from = raw.passive().await;
    raw.send(format!("RETR {PATH}\r\n").as_bytes()).await;
    let mut silent = TcpStream::connect(from).await.expect("connected");
    let mut first = [0; 1024];
    silent.read_exact(&mut first).await.expect("it begins");
    let reply = raw.last_reply().await;
    refused(&reply, &[426], "");
    only_files(&site, 1, 1).await;
    assert_eq!(raw.ask("NOOP").await.code(), 200);
    assert_eq!(alice.login().await.get(PATH).await.expect("fetched"), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_fills_the_disk_is_told_so_and_its_space_is_free_again() {
    let small = |_: usize, config: &mut mover::MoverConfig| config.volumes[0].capacity = Some(ByteSize::mib(100));
    let site = Site::builder().movers(1).gateway(no_partials).mover(small).start().await;
    let alice = site.user("alice").await;
    alice.login().await.put(PATH, b"old").await.expect("stored");
    let mut raw = Raw::login(&site, &alice).await;
    for _ in 0..2 {
        let to = raw.passive().await;
        raw.send(format!("STOR {PATH}\r\n").as_bytes()).await;
        let mut data = TcpStream::connect(to).await.expect("connected");
        let chunk = bytes(1, MIB);
        for _ in 0..150 {
            // It is cut off when the disk is full.
            if data.write_all(&chunk).await.is_err() {
                break;
            }
        }
        drop(data);
        let reply = raw.last_reply().await;
        assert_eq!(reply.code(), 452, "{reply}");
        assert_eq!(alice.login().await.get(PATH).await.expect("fetched"), b"old");
        only_files(&site, 1, 1).await;
    }
    // The gateway hears of the room with the mover's next report.
    soon("room again", async {
        while alice.login().await.put("/home/alice/b", &bytes(2, MIB)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_that_is_away_is_said_to_be_and_back_when_it_is() {
    let cluster = PostgresCluster::shared().await.expect("PostgreSQL is installed (apt install postgresql)");
    let (mut gate, url) = Gate::before(&cluster.database().await.expect("a database"));
    let site = Site::builder().movers(1).gateway(no_partials).catalogue(url).start().await;
    let alice = site.user("alice").await;
    alice.login().await.put(PATH, b"old").await.expect("stored");
    let mut raw = Raw::login(&site, &alice).await;
    let to = raw.passive().await;
    raw.send(format!("STOR {PATH}\r\n").as_bytes()).await;
    let mut data = TcpStream::connect(to).await.expect("connected");
    assert_eq!(raw.reply().await.code(), 150);
    gate.close().await;
    // All of the new bytes come, and cannot be published.
    data.write_all(b"new").await.expect("sent");
    drop(data);
    let reply = raw.last_reply().await;
    refused(&reply, &[451], "catalogue");
    let reply = raw.ask(&format!("SIZE {PATH}")).await;
    refused(&reply, &[451], "catalogue");
    assert!(health(&site).await.starts_with("HTTP/1.1 503"));
    gate.open();
    soon("the catalogue to be back", async {
        while raw.ask(&format!("SIZE {PATH}")).await.code() != 213 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(alice.login().await.get(PATH).await.expect("fetched"), b"old");
    assert!(health(&site).await.starts_with("HTTP/1.1 200"));
    only_files(&site, 1, 1).await;
    alice.login().await.put(PATH, b"new").await.expect("stored");
}

async fn health(site: &Site) -> String {
    let mut stream = TcpStream::connect(site.gateway.doors.metrics[0]).await.expect("connected");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    soon("an answer", stream.read_to_string(&mut answer)).await.expect("text");
    answer
}
