//! Volumes that are emptied: what lies on them moves, and nothing is lost on the way.

use std::{collections::BTreeSet, sync::Arc};

use catalog::{VolumeState, WorkKind};
use tokio::sync::Notify;
use wire::id::{BitfileId, VolumeLabel};

use super::{
    fake::{FakeFleet, label},
    site::{Site, eventually},
};

/// Nothing new comes to a volume, and what is there moves away.
async fn drain(site: &Site, volume: &VolumeLabel) {
    site.catalog.set_volume_state(volume, VolumeState::ReadOnly, "draining: a test").await.expect("read only");
    site.hsm.volumes_changed().await;
    site.hsm.drain(volume).await.expect("begun");
}

async fn segments_on(site: &Site, volume: &VolumeLabel) -> u64 {
    site.catalog.volume(volume).await.expect("known").live_segments
}

async fn is_drained(site: &Site, volume: &VolumeLabel) -> bool {
    let state = site.hsm.drain_state(volume).await.expect("known");
    !state.moving && state.left_segments == 0
}

async fn stages(site: &Site) -> usize {
    site.catalog.work_items(Some(WorkKind::Stage), None, 10).await.expect("listed").len()
}

async fn recalled(site: &Site, bitfile: BitfileId) -> Vec<u8> {
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    site.read(bitfile).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_disk_volume_ends_empty_and_every_file_is_whole_elsewhere() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let (from, other) = (label("m1.disk0"), label("m2.disk0"));
    let plain = site.put("plain", "disk-only", &[("m1.disk0", b"all here")]).await;
    let parts: [(&str, &[u8]); 3] = [("m1.disk0", b"one "), ("m2.disk0", b"two "), ("m1.disk0", b"three")];
    let striped = site.put("striped", "disk-only", &parts).await;
    let far = site.put("far", "disk-only", &[("m2.disk0", b"not concerned")]).await;
    drain(&site, &from).await;
    eventually("the volume is empty", || is_drained(&site, &from)).await;
    assert_eq!(site.read(plain).await, b"all here");
    assert_eq!(site.read(striped).await, b"one two three");
    assert_eq!(site.read(far).await, b"not concerned");
    for bitfile in [plain, striped, far] {
        let located = site.located(bitfile).await;
        let volumes: BTreeSet<_> = located.copies[0].segments.iter().map(|one| one.extent.volume.clone()).collect();
        assert_eq!(volumes, BTreeSet::from([other.clone()]));
    }
    let leaving = site.catalog.work_items(Some(WorkKind::Reclaim), None, 100).await.expect("listed");
    assert_eq!(leaving.len(), 3, "the old files are removed when nobody reads them any more");
    assert_eq!(site.fleet.world().confirmed.len(), 3, "the mover is told to keep the new ones");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_cartridge_is_written_to_another_with_a_single_drive() {
    let site = Site::new(FakeFleet::new(1, 3, 1 << 20)).await;
    let mut files = Vec::new();
    for number in 0..5u8 {
        files.push(site.put(&format!("f{number}"), "single", &[("m1.disk0", &[number; 50])]).await);
    }
    for bitfile in &files {
        site.sink(*bitfile).await;
    }
    let tape = site.tapes_of(files[0]).await.remove(0);
    drain(&site, &tape).await;
    eventually("the cartridge is empty", || is_drained(&site, &tape)).await;
    for (bitfile, number) in files.iter().zip(0u8..) {
        let tapes = site.tapes_of(*bitfile).await;
        assert!(tapes.len() == 1 && !tapes.contains(&tape), "{tapes:?}");
        assert_eq!(recalled(&site, *bitfile).await, [number; 50]);
    }
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_goes_on_after_the_gateway_was_killed_in_its_middle() {
    let mut site = Site::new(FakeFleet::new(2, 3, 1 << 20)).await;
    let bitfile = site.put("f", "single", &[("m1.disk0", b"to be moved")]).await;
    site.sink(bitfile).await;
    let tape = site.tapes_of(bitfile).await.remove(0);
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    drain(&site, &tape).await;
    eventually("it is asked for", || async { stages(&site).await == 1 }).await;
    site.restart().await;
    assert_eq!(
        site.tapes_of(bitfile).await,
        std::slice::from_ref(&tape),
        "the old copy counts until the new one is recorded"
    );
    site.fleet.world().gate = None;
    gate.notify_waiters();
    eventually("the cartridge is empty", || is_drained(&site, &tape)).await;
    assert_eq!(recalled(&site, bitfile).await, b"to be moved");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_is_stopped_leaves_everything_where_it_was() {
    let site = Site::new(FakeFleet::new(2, 3, 1 << 20)).await;
    let bitfile = site.put("f", "single", &[("m1.disk0", b"stays")]).await;
    site.sink(bitfile).await;
    let tape = site.tapes_of(bitfile).await.remove(0);
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    drain(&site, &tape).await;
    eventually("it is asked for", || async { stages(&site).await == 1 }).await;
    assert!(site.hsm.stop_drain(&tape).await.expect("stopped") > 0);
    assert!(!site.hsm.drain_state(&tape).await.expect("known").moving);
    site.fleet.world().gate = None;
    gate.notify_waiters();
    eventually("its recall is taken back", || async { stages(&site).await == 0 }).await;
    assert_eq!(site.tapes_of(bitfile).await, std::slice::from_ref(&tape));
    assert_eq!(segments_on(&site, &tape).await, 1);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_elsewhere_what_is_on_tape_leaves_the_disk_and_the_rest_says_why_it_stays() {
    let site = Site::new(FakeFleet::new(1, 2, 1000)).await;
    let from = label("m1.disk0");
    site.put("full", "disk-only", &[("m2.disk0", &[7; 900])]).await;
    let safe = site.put("safe", "single", &[("m1.disk0", &[1; 200])]).await;
    eventually("it is on tape", || async { site.located(safe).await.bitfile.residency.tape_copies == 1 }).await;
    let stuck = site.put("stuck", "disk-only", &[("m1.disk0", &[2; 300])]).await;
    drain(&site, &from).await;
    eventually("the one is purged, the other says why", || async {
        let state = site.hsm.drain_state(&from).await.expect("known");
        state.left_segments == 1 && state.reason.is_some_and(|reason| reason.contains("room"))
    })
    .await;
    assert!(!site.on_disk(safe).await);
    assert_eq!(site.read(stuck).await, [2; 300]);
    site.end().await;
}
