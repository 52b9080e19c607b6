//! Files on their whole way: a client, the FTP door, movers, the catalogue, and back.

use tests::{Database, Site, bytes};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_is_what_is_got_straight_from_the_mover() {
    let site = Site::start().await;
    let mut alice = site.user("alice").await.login().await;
    for (passive, streams) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
        (alice.how.passive, alice.how.streams) = (passive, streams);
        for length in [0, 1, 4096, 3 * MIB + 7] {
            let data = bytes(length as u64, length);
            let name = format!("/home/alice/{passive}-{streams}-{length}");
            alice.put(&name, &data).await.expect("stored");
            assert_eq!(alice.get(&name).await.expect("fetched"), data, "{name}");
        }
    }
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
