//! The storage hierarchy on its whole way: real movers, the virtual tape library, the catalogue, and back to a client.

use std::time::Duration;

use daemon::config::TimeSpan;
use tests::{Database, Site, SiteBuilder, bytes};
use wire::id::BitfileId;

const MIB: usize = 1 << 20;

fn with_tape(drives: u16, cartridges: u16) -> SiteBuilder {
    Site::builder().tape(drives, cartridges).eager()
}

async fn eventually<F: Future<Output = bool>>(what: &str, state: impl Fn() -> F) {
    for _ in 0..1200 {
        if state().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never came true: {what}");
}

async fn sink(site: &Site, path: &str) -> BitfileId {
    let bitfile = site.bitfile(path).await;
    site.sink(bitfile).await;
    bitfile
}

async fn sinks_and_comes_back(site: &Site) {
    let mut alice = site.user("alice").await.login().await;
    let files = [("empty", 0), ("small", 4096), ("odd", 1_000_003), ("large", 9 * MIB)];
    for (name, length) in files {
        alice.put(&format!("/home/alice/{name}"), &bytes(length as u64, length)).await.expect("stored");
    }
    for (name, length) in files {
        let path = format!("/home/alice/{name}");
        let bitfile = sink(site, &path).await;
        let located = site.gateway.catalog.locate_one(bitfile).await.expect("located");
        let volumes = |copy| -> Vec<_> {
            let copy = located.copy(copy).expect("a tape copy");
            copy.segments.iter().map(|segment| segment.extent.volume.clone()).collect()
        };
        let (first, second) = (volumes(1), volumes(2));
        assert!(first.iter().all(|volume| !second.contains(volume)), "{name}: copies are on different cartridges");
        // Reading it waits for the recall.
        assert_eq!(alice.get(&path).await.expect("fetched"), bytes(length as u64, length), "{name}");
    }
    assert_eq!(site.relayed_bytes().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_sink_to_two_cartridges_leave_the_disk_and_come_back_to_whoever_reads_them() {
    let site = with_tape(2, 6).start().await;
    sinks_and_comes_back(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_works_over_postgresql() {
    let site = with_tape(2, 6).database(Database::Postgres).start().await;
    sinks_and_comes_back(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_one_file_share_one_recall() {
    let site = with_tape(2, 4).start().await;
    let user = site.user("alice").await;
    let mut alice = user.login().await;
    let data = bytes(5, 300_000);
    alice.put("/home/alice/a", &data).await.expect("stored");
    sink(&site, "/home/alice/a").await;
    let readers = (0..6).map(|_| async {
        let mut session = user.login().await;
        session.get("/home/alice/a").await.expect("fetched")
    });
    for got in futures::future::join_all(readers).await {
        assert_eq!(got, data);
    }
    let read: u64 = site.gateway.hsm.drives().await.iter().map(|drive| drive.read_bytes).sum();
    assert!(read < 3 * data.len() as u64, "{read} bytes were read from tape");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_while_files_sink_and_come_back_loses_nothing() {
    let mut site = with_tape(2, 6).start().await;
    for round in 0..3u64 {
        // A gateway that was started again listens elsewhere.
        let mut alice = site.user("alice").await.login().await;
        let name = format!("/home/alice/f{round}");
        let data = bytes(round, 2 * MIB);
        alice.put(&name, &data).await.expect("stored");
        tokio::time::sleep(Duration::from_millis(round * 150)).await;
        drop(alice);
        site.kill_gateway().await;
        let bitfile = sink(&site, &name).await;
        let hsm = site.gateway.hsm.clone();
        let ask = gateway::hsm::Ask {
            bitfile,
            account: "alice".parse().expect("a name"),
            deadline: None,
            lifetime: None,
            priority: 0,
        };
        let tickets = hsm.stage(vec![ask]).await.expect("asked");
        tokio::time::sleep(Duration::from_millis(round * 70)).await;
        site.kill_gateway().await;
        let request = tickets[0].request().id;
        let gateway = &site.gateway;
        eventually("the request ends", || async {
            gateway.hsm.requests(&[request]).await.expect("asked")[0].state.is_final()
        })
        .await;
        let mut alice = site.user("alice").await.login().await;
        assert_eq!(alice.get(&name).await.expect("fetched"), data, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_killed_under_its_drive_comes_back_and_the_queue_goes_on() {
    let mut site = with_tape(2, 6).start().await;
    let user = site.user("alice").await;
    let mut alice = user.login().await;
    let data = bytes(7, 3 * MIB);
    alice.put("/home/alice/a", &data).await.expect("stored");
    tokio::time::sleep(Duration::from_millis(200)).await;
    site.kill_mover(1).await;
    site.start_mover(1).await;
    sink(&site, "/home/alice/a").await;
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_from_two_movers_takes_one_mount_for_each_copy() {
    let site = Site::builder()
        .tape(2, 4)
        .gateway(|config| {
            config.hsm.batch_wait = TimeSpan::seconds(3600);
            config.hsm.look_every = TimeSpan::milliseconds(100);
            for class in &mut config.classes {
                class.migration_age = TimeSpan::seconds(0);
            }
        })
        .start()
        .await;
    let mut alice = site.user("alice").await.login().await;
    let paths: Vec<String> = (0..4).map(|number| format!("/home/alice/f{number}")).collect();
    let mut bitfiles = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        // One mover takes nothing new, so that the other gets the file.
        let drained = wire::id::MoverId::new(format!("m{}", 1 + number % 2)).expect("a name");
        site.gateway.movers.drain(&drained, Some("a test".to_owned())).expect("drained");
        alice.put(path, &bytes(7, 100_000)).await.expect("stored");
        site.gateway.movers.drain(&drained, None).expect("in use");
        bitfiles.push(site.bitfile(path).await);
    }
    let located = site.gateway.catalog.locate(&bitfiles).await.expect("located");
    let mut disks: Vec<_> = located
        .iter()
        .flat_map(|found| found.copy(catalog::DISK_COPY).expect("on disk").segments.clone())
        .map(|segment| segment.extent.volume)
        .collect();
    disks.sort();
    disks.dedup();
    assert_eq!(disks.len(), 2, "the files lie on both movers");
    site.gateway.hsm.migrate_now(bitfiles).await.expect("asked");
    for path in &paths {
        sink(&site, path).await;
    }
    // Movers tell of their drives now and then.
    let mounts = async || site.gateway.hsm.drives().await.iter().map(|drive| drive.mounts).sum::<u64>();
    eventually("both mounts are told of", async || mounts().await >= 2).await;
    assert_eq!(mounts().await, 2, "one for each copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_finds_no_room_has_room_made_for_the_next_try() {
    // Of 100 MiB, 64 are never filled.
    let small = |_: usize, config: &mut mover::MoverConfig| {
        config.volumes[0].capacity = Some(daemon::config::ByteSize::mib(100));
    };
    let site = with_tape(2, 4).movers(1).mover(small).start().await;
    let mut alice = site.user("alice").await.login().await;
    let first = bytes(1, 24 * MIB);
    alice.put("/home/alice/first", &first).await.expect("stored");
    let on_tape = site.bitfile("/home/alice/first").await;
    let catalog = &site.gateway.catalog;
    eventually("it is on tape", || async {
        let residency = catalog.locate_one(on_tape).await.expect("located").bitfile.residency;
        residency.tape_copies == residency.tape_copies_wanted
    })
    .await;
    // Far below the high water mark nothing is purged unless somebody wants the room.
    let second = bytes(2, 20 * MIB);
    let refused = alice.put("/home/alice/second", &second).await.expect_err("no room");
    assert!(refused.chain().contains("452"), "{}", refused.chain());
    eventually("the first left the disk", || async {
        !catalog.locate_one(on_tape).await.expect("located").bitfile.residency.on_disk
    })
    .await;
    for _ in 0..200 {
        match alice.put("/home/alice/second", &second).await {
            Ok(_) => break,
            // The mover's file goes a moment after the catalogue's row.
            Err(error) => assert!(error.chain().contains("452"), "{}", error.chain()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(alice.get("/home/alice/second").await.expect("fetched"), second);
}
