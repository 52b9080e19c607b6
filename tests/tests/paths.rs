//! Files on their whole way: a client, the FTP door, movers, the catalogue, and back.

use tests::{Database, Site, bytes};

const MIB: usize = 1 << 20;

/// Puts and gets files of these lengths, by clients that listen and by clients that cannot.
async fn round_trip(site: &Site, passive: bool, lengths: &[usize]) {
    let mut alice = site.user("alice").await.login().await;
    alice.how.passive = passive;
    for streams in [1, 4] {
        alice.how.streams = streams;
        for &length in lengths {
            let data = bytes(length as u64, length);
            let name = format!("/home/alice/{passive}-{streams}-{length}");
            alice.put(&name, &data).await.expect("stored");
            assert_eq!(alice.get(&name).await.expect("fetched"), data, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_what_movers_send_to_a_client_that_listens() {
    let site = Site::start().await;
    round_trip(&site, false, &[0, 1, 4096, 3 * MIB + 7]).await;
    assert_eq!(site.relayed_bytes().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_what_a_client_behind_a_firewall_gets_straight_from_the_mover() {
    let site = Site::start().await;
    // The last is striped over both movers.
    round_trip(&site, true, &[0, 1, 4096, MIB, 9 * MIB + 7]).await;
    assert_eq!(site.relayed_bytes().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_striped_file_comes_from_all_its_movers_to_a_client_behind_a_firewall_also_when_it_was_cut() {
    let slow = |config: &mut gateway::config::Config| {
        config.ftp.rate_limit = Some(daemon::config::ByteSize::mib(8));
    };
    let site = Site::builder().gateway(slow).start().await;
    let mut alice = site.user("alice").await.login().await;
    let data = bytes(7, 6 * MIB + 5);
    alice.put("/home/alice/a", &data).await.expect("stored");
    let transfers = site.gateway.transfers.clone();
    alice.how.passive = true;
    alice.how.resume = true;
    let folder = tempfile::tempdir().expect("a folder");
    let fetch = client::Fetch {
        remote: wire::ftp::FtpPath::new("/home/alice/a").expect("a good path"),
        local: folder.path().join("a"),
    };
    let (meter, cancel) = (client::Meter::new(), alice.cancel.clone());
    let watched = meter.clone();
    let interrupt = tokio::spawn(async move {
        let mut movers = 0;
        while watched.read().bytes < MIB as u64 {
            movers = transfers.running().iter().map(|view| view.movers.len()).max().unwrap_or(0).max(movers);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        cancel.cancel();
        movers
    });
    alice.client.get(&fetch, &alice.how, &meter, &alice.cancel).await.expect_err("interrupted");
    assert_eq!(interrupt.await.expect("watched"), 2, "both movers send");
    let moved = alice.client.get(&fetch, &alice.how, &meter, &Default::default()).await.expect("the rest");
    assert!(moved.kept_bytes > 0, "nothing of the first attempt was kept");
    assert_eq!(std::fs::read(&fetch.local).expect("fetched"), data);
    assert_eq!(site.relayed_bytes().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_works_over_postgresql() {
    let site = Site::builder().database(Database::Postgres).start().await;
    let mut alice = site.user("alice").await.login().await;
    let data = bytes(1, MIB);
    alice.put("/home/alice/a", &data).await.expect("stored");
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_again_is_the_new_one() {
    let site = Site::start().await;
    let mut alice = site.user("alice").await.login().await;
    for seed in 1..=3 {
        let data = bytes(seed, 100_000);
        alice.put("/home/alice/a", &data).await.expect("stored");
        assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_there_after_every_part_has_started_again() {
    let mut site = Site::start().await;
    let data = bytes(5, 2 * MIB);
    let mut alice = site.user("alice").await.login().await;
    alice.put("/home/alice/a", &data).await.expect("stored");
    for mover in [1, 2] {
        site.kill_mover(mover).await;
        site.start_mover(mover).await;
    }
    site.kill_gateway().await;
    let mut alice = site.user("alice").await.login().await;
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_was_interrupted_goes_on_where_it_was() {
    let slow = |config: &mut gateway::config::Config| {
        config.ftp.rate_limit = Some(daemon::config::ByteSize::mib(4));
    };
    let site = Site::builder().gateway(slow).start().await;
    let mut alice = site.user("alice").await.login().await;
    let data = bytes(9, 8 * MIB);
    alice.put("/home/alice/a", b"old").await.expect("stored");
    let (cancel, transfers) = (alice.cancel.clone(), site.gateway.transfers.clone());
    let interrupt = tokio::spawn(async move {
        while transfers.running().iter().all(|view| view.bytes < MIB as u64) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        cancel.cancel();
    });
    alice.put("/home/alice/a", &data).await.expect_err("interrupted");
    interrupt.await.expect("interrupted");
    let mut alice = site.user("alice").await.login().await;
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), b"old", "the old file is whole");
    alice.how.resume = true;
    let moved = alice.put("/home/alice/a", &data).await.expect("stored");
    assert!(moved.kept_bytes > 0, "nothing of the first attempt was kept");
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
}
