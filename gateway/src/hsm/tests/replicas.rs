//! Files with several copies on disk: what becomes of each copy, and that the bytes are always somewhere.

use std::{collections::BTreeMap, sync::Arc};

use catalog::{DISK_COPY, VolumeState, WorkKind};
use wire::id::BitfileId;

use super::{
    fake::{FakeFleet, label, mover},
    site::{Site, eventually},
};
use crate::{failure::FailureKind, hsm::Replicated};

/// `m1`, `m2` and `m3`, each with a disk.
fn three(disk_bytes: u64) -> Arc<FakeFleet> {
    let fleet = FakeFleet::new(1, 2, disk_bytes);
    fleet.world().disks.insert(label("m3.disk0"), (mover("m3"), disk_bytes));
    fleet.tell();
    fleet
}

async fn replicate(site: &Site, bitfile: BitfileId, copies: u32) -> Replicated {
    site.hsm.replicate(bitfile, copies).await.expect("replicated")
}

/// The volume of each disk copy, by its number.
async fn copies(site: &Site, bitfile: BitfileId) -> BTreeMap<u32, String> {
    let located = site.located(bitfile).await;
    located.on_disk().map(|copy| (copy.number, copy.segments[0].extent.volume.to_string())).collect()
}

async fn volumes(site: &Site, bitfile: BitfileId) -> Vec<String> {
    let mut volumes: Vec<_> = copies(site, bitfile).await.into_values().collect();
    volumes.sort();
    volumes
}

async fn drain(site: &Site, volume: &str) {
    let volume = label(volume);
    site.catalog.set_volume_state(&volume, VolumeState::ReadOnly, "draining: a test").await.expect("read only");
    site.hsm.volumes_changed().await;
    site.hsm.drain(&volume).await.expect("begun");
}

async fn is_drained(site: &Site, volume: &str) -> bool {
    let state = site.hsm.drain_state(&label(volume)).await.expect("known");
    !state.moving && state.left_segments == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_copied_to_movers_that_have_none_of_it_and_surplus_copies_are_dropped() {
    let site = Site::new(three(1 << 20)).await;
    let bitfile = site.put("f", "disk-only", &[("m1.disk0", b"some "), ("m1.disk0", b"bytes")]).await;
    assert_eq!(replicate(&site, bitfile, 3).await, Replicated { made: 2, dropped: 0 });
    assert_eq!(volumes(&site, bitfile).await, ["m1.disk0", "m2.disk0", "m3.disk0"]);
    assert_eq!(replicate(&site, bitfile, 3).await, Replicated::default(), "a repeat changes nothing");
    let too_many = site.hsm.replicate(bitfile, 4).await.expect_err("there is no fourth mover");
    assert_eq!(too_many.kind(), FailureKind::NoSpace);
    assert_eq!(replicate(&site, bitfile, 1).await, Replicated { made: 0, dropped: 2 });
    assert_eq!(volumes(&site, bitfile).await, ["m1.disk0"]);
    assert_eq!(site.read(bitfile).await, b"some bytes");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_copy_that_cannot_be_reached_is_replaced_by_one_that_can() {
    let site = Site::new(three(1 << 20)).await;
    let bitfile = site.put("f", "disk-only", &[("m1.disk0", b"bytes")]).await;
    replicate(&site, bitfile, 2).await;
    let kept = copies(&site, bitfile).await[&64].clone();
    site.fleet.set_away("m1", true);
    assert_eq!(replicate(&site, bitfile, 3).await.made, 1, "copied from the replica");
    assert_eq!(replicate(&site, bitfile, 2).await.dropped, 1);
    assert_eq!(volumes(&site, bitfile).await, ["m2.disk0", "m3.disk0"]);
    assert_eq!(copies(&site, bitfile).await[&DISK_COPY], kept);
    assert_eq!(site.read(bitfile).await, b"bytes");
    for name in ["m2", "m3"] {
        site.fleet.set_away(name, true);
    }
    let refused = site.hsm.replicate(bitfile, 1).await.expect_err("none can be read");
    assert_eq!(refused.kind(), FailureKind::Unavailable);
    assert_eq!(volumes(&site, bitfile).await.len(), 2, "nothing is dropped blindly");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_volume_loses_its_copies_to_a_third_mover_and_they_stay_as_many() {
    let site = Site::new(three(1 << 20)).await;
    let first = site.put("first", "disk-only", &[("m1.disk0", b"first here")]).await;
    let second = site.put("second", "disk-only", &[("m2.disk0", b"replica here")]).await;
    for (bitfile, other) in [(first, "m2.disk0"), (second, "m1.disk0")] {
        replicate(&site, bitfile, 3).await;
        let spare = copies(&site, bitfile).await.into_iter().find(|(number, on)| *number > 0 && on != other);
        let (number, _) = spare.expect("a replica elsewhere");
        site.catalog.drop_replicas(vec![(bitfile, number)], Default::default()).await.expect("dropped");
        assert_eq!(copies(&site, bitfile).await.len(), 2);
    }
    drain(&site, "m1.disk0").await;
    eventually("the volume is empty", || is_drained(&site, "m1.disk0")).await;
    for (bitfile, data) in [(first, &b"first here"[..]), (second, b"replica here")] {
        assert_eq!(volumes(&site, bitfile).await, ["m2.disk0", "m3.disk0"]);
        assert!(copies(&site, bitfile).await.contains_key(&DISK_COPY), "there is always a first copy");
        assert_eq!(site.read(bitfile).await, data);
    }
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_other_mover_has_room_a_drain_leaves_the_copy_that_is_elsewhere() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let bitfile = site.put("f", "disk-only", &[("m1.disk0", b"bytes")]).await;
    replicate(&site, bitfile, 2).await;
    drain(&site, "m1.disk0").await;
    eventually("the volume is empty", || is_drained(&site, "m1.disk0")).await;
    assert_eq!(volumes(&site, bitfile).await, ["m2.disk0"]);
    assert_eq!(site.read(bitfile).await, b"bytes");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_on_a_drained_volume_stays_while_no_other_copy_can_be_read() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let bitfile = site.put("f", "disk-only", &[("m1.disk0", b"bytes")]).await;
    replicate(&site, bitfile, 2).await;
    site.fleet.set_away("m1", true);
    drain(&site, "m2.disk0").await;
    eventually("it says why", || async {
        let state = site.hsm.drain_state(&label("m2.disk0")).await.expect("known");
        state.left_segments == 1 && state.reason.is_some_and(|reason| reason.contains("other copies"))
    })
    .await;
    assert_eq!(volumes(&site, bitfile).await, ["m1.disk0", "m2.disk0"]);
    site.fleet.set_away("m1", false);
    eventually("the volume is empty", || is_drained(&site, "m2.disk0")).await;
    assert_eq!(volumes(&site, bitfile).await, ["m1.disk0"]);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_needs_room_drops_replicas_before_anything_leaves_the_disk() {
    let site = Site::new(FakeFleet::new(1, 2, 1000)).await;
    let spread = site.put("spread", "disk-only", &[("m1.disk0", &[1; 300])]).await;
    replicate(&site, spread, 2).await;
    let lonely = site.put("lonely", "disk-only", &[("m1.disk0", &[2; 100])]).await;
    replicate(&site, lonely, 2).await;
    let safe = site.put("safe", "single", &[("m2.disk0", &[3; 200])]).await;
    eventually("it is on tape", || async { site.located(safe).await.bitfile.residency.tape_copies == 1 }).await;
    // Over the high mark: 300 bytes of replica and 100 of the other have to go, the file on tape need not.
    let _full = site.put("full", "disk-only", &[("m2.disk0", &[4; 300])]).await;
    eventually("replicas made room", || async { copies(&site, spread).await.len() == 1 }).await;
    assert!(site.on_disk(safe).await, "nothing had to leave the disk");
    assert_eq!(site.read(spread).await, [1; 300]);
    assert_eq!(site.read(lonely).await, [2; 100]);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_copy_that_can_be_read_is_not_dropped_for_room() {
    let site = Site::new(FakeFleet::new(1, 2, 1000)).await;
    let bitfile = site.put("f", "disk-only", &[("m2.disk0", &[1; 400])]).await;
    replicate(&site, bitfile, 2).await;
    site.fleet.set_away("m2", true);
    let safe = site.put("safe", "single", &[("m1.disk0", &[3; 550])]).await;
    eventually("the file on tape makes room", || async { !site.on_disk(safe).await }).await;
    assert_eq!(copies(&site, bitfile).await.len(), 2, "the first copy may never come back");
    site.fleet.set_away("m2", false);
    let kept = site.put("kept", "disk-only", &[("m1.disk0", &[4; 550])]).await;
    eventually("it is dropped when the other is back", || async { copies(&site, bitfile).await.len() == 1 }).await;
    assert_eq!(site.read(kept).await, [4; 550]);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_to_tape_from_a_replica_while_its_first_mover_is_away() {
    let site = Site::new(three(1 << 20)).await;
    let bitfile = site.put("f", "sleepy", &[("m2.disk0", b"bytes")]).await;
    replicate(&site, bitfile, 2).await;
    site.fleet.set_away("m2", true);
    site.hsm.migrate_now(vec![bitfile]).await.expect("asked");
    eventually("it is on tape", || async { site.located(bitfile).await.bitfile.residency.tape_copies == 1 }).await;
    assert!(site.catalog.work_items(Some(WorkKind::Migrate), None, 10).await.expect("listed").is_empty());
    site.end().await;
}
