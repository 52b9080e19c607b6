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
    round_trip(&site, true, &[0, 1, 4096, MIB]).await;
    assert_eq!(site.relayed_bytes().await, 0);
    // A file over several movers in one stream cannot go straight.
    round_trip(&site, true, &[3 * MIB + 7]).await;
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
