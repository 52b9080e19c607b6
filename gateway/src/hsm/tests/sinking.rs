//! What sinks to tape, what leaves the disk, what is freed.

use std::time::Duration;

use catalog::{RequestState, VolumeState, WorkKind};
use wire::mover::FaultKind;

use super::{
    fake::{FakeFleet, label},
    site::{Site, eventually, quick},
};
use crate::hsm::HsmConfig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_to_two_cartridges_leaves_the_disk_and_comes_back_whole() {
    let site = Site::new(FakeFleet::new(2, 4, 1 << 20)).await;
    let bitfile = site.put("f", "dual", &[("m1.disk0", b"all the bytes there are")]).await;
    site.sink(bitfile).await;
    let tapes = site.tapes_of(bitfile).await;
    assert_eq!(tapes.len(), 2);
    assert_ne!(tapes[0], tapes[1], "copies are on different cartridges");
    assert!(!site.on_disk(bitfile).await);
    eventually("the disk file is removed", || async { site.fleet.world().files.is_empty() }).await;
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"all the bytes there are");
    assert_eq!(site.fleet.world().confirmed.len(), 1, "the mover is told to keep the file");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_files_share_a_container_and_empty_ones_are_on_tape_too() {
    let config = HsmConfig { batch_wait: daemon::config::TimeSpan::seconds(3600), ..quick() };
    let site = Site::with(FakeFleet::new(2, 4, 1 << 20), config).await;
    let mut files = Vec::new();
    for number in 0..20u8 {
        files.push(site.put(&format!("f{number}"), "single", &[("m1.disk0", &[number; 100])]).await);
    }
    files.push(site.put("empty", "single", &[]).await);
    site.hsm.migrate_now(files.clone()).await.expect("asked");
    for bitfile in &files {
        eventually("it is on tape", || async { site.located(*bitfile).await.bitfile.residency.tape_copies == 1 }).await;
    }
    assert_eq!(site.fleet.count("append"), 1, "{:?}", site.fleet.world().log);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_on_another_movers_disk_goes_to_the_tape_through_a_channel() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let bitfile = site.put("far", "single", &[("m2.disk0", b"from the other mover")]).await;
    site.sink(bitfile).await;
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"from the other mover");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_striped_file_goes_to_tape_in_parts_and_comes_back_whole() {
    let site = Site::new(FakeFleet::new(2, 4, 1 << 20)).await;
    let parts: [(&str, &[u8]); 3] = [("m1.disk0", b"one "), ("m2.disk0", b"two "), ("m1.disk0", b"three")];
    let bitfile = site.put("striped", "dual", &parts).await;
    site.sink(bitfile).await;
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"one two three");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_lies_on_two_cartridges_is_recalled_from_both() {
    let fleet = FakeFleet::new(2, 4, 1 << 20);
    fleet.world().tapes.values_mut().for_each(|tape| tape.capacity_members = 1);
    let site = Site::new(fleet).await;
    let bitfile = site.put("wide", "single", &[("m1.disk0", b"first half, "), ("m2.disk0", b"second half")]).await;
    site.sink(bitfile).await;
    let tapes = site.tapes_of(bitfile).await;
    assert_ne!(tapes[0], tapes[1]);
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"first half, second half");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_cartridge_is_sealed_and_the_rest_goes_to_the_next() {
    let fleet = FakeFleet::new(1, 3, 1 << 20);
    fleet.world().tapes.values_mut().for_each(|tape| tape.capacity_members = 3);
    let site = Site::new(fleet).await;
    let mut files = Vec::new();
    for number in 0..7u8 {
        files.push(site.put(&format!("f{number}"), "single", &[("m1.disk0", &[number; 10])]).await);
    }
    for bitfile in &files {
        eventually("it is on tape", || async { site.located(*bitfile).await.bitfile.residency.tape_copies == 1 }).await;
    }
    let volumes = site.catalog.volumes().await.expect("volumes");
    assert!(volumes.iter().filter(|volume| volume.state == VolumeState::Full).count() >= 2);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_error_makes_the_cartridge_read_only_and_the_batch_goes_elsewhere() {
    let fleet = FakeFleet::new(1, 3, 1 << 20);
    fleet.world().failing_appends.push(FaultKind::Medium);
    let site = Site::new(fleet).await;
    let bitfile = site.put("f", "single", &[("m1.disk0", b"bytes")]).await;
    site.sink(bitfile).await;
    let volumes = site.catalog.volumes().await.expect("volumes");
    let bad: Vec<_> = volumes.iter().filter(|volume| volume.state == VolumeState::ReadOnly).collect();
    assert_eq!(bad.len(), 1);
    assert_ne!(site.tapes_of(bitfile).await[0], bad[0].label);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_fails_goes_down_and_the_migration_uses_another() {
    let fleet = FakeFleet::new(2, 2, 1 << 20);
    fleet.world().bad_attaches.insert(super::fake::drive(1), FaultKind::Drive);
    let site = Site::new(fleet).await;
    let bitfile = site.put("f", "single", &[("m1.disk0", b"bytes")]).await;
    site.sink(bitfile).await;
    let drives = site.hsm.drives().await;
    let down: Vec<_> = drives.iter().filter(|drive| drive.state == wire::admin::site::DriveState::Down).collect();
    assert!(
        down.len() <= 1 && down.iter().all(|drive| drive.reason.as_ref().is_some_and(|why| why.contains("smokes")))
    );
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_the_catalogue_never_heard_of_is_dead_space_and_one_it_misses_disables_the_tape() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let first = site.put("a", "single", &[("m1.disk0", b"first")]).await;
    site.sink(first).await;
    let tape = site.tapes_of(first).await[0].clone();
    eventually("the cartridge is home", || async { site.hsm.drives().await[0].volume.is_none() }).await;
    {
        let mut world = site.fleet.world();
        let ahead = world.tapes.get_mut(&tape).expect("there");
        (ahead.containers, ahead.next_block) = (ahead.containers + 1, ahead.next_block + 10);
    }
    let second = site.put("b", "single", &[("m1.disk0", b"second")]).await;
    site.sink(second).await;
    assert_eq!(site.tapes_of(second).await, std::slice::from_ref(&tape), "the tape goes on behind the dead container");
    eventually("the cartridge is home", || async { site.hsm.drives().await[0].volume.is_none() }).await;
    {
        let mut world = site.fleet.world();
        let behind = world.tapes.get_mut(&tape).expect("there");
        (behind.containers, behind.next_block) = (1, 6);
    }
    let third = site.put("c", "single", &[("m1.disk0", b"third")]).await;
    site.sink(third).await;
    assert_ne!(site.tapes_of(third).await, std::slice::from_ref(&tape));
    eventually("the tape is disabled", || async {
        site.catalog.volume(&tape).await.expect("there").state == VolumeState::Disabled
    })
    .await;
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_disk_copy_is_not_written_to_tape_and_the_others_are() {
    let config = HsmConfig { batch_wait: daemon::config::TimeSpan::milliseconds(300), ..quick() };
    let site = Site::with(FakeFleet::new(1, 2, 1 << 20), config).await;
    let bad = site.put("bad", "single", &[("m1.disk0", b"will be damaged")]).await;
    site.fleet.world().files.values_mut().for_each(|data| data[0] ^= 1);
    let good = site.put("good", "single", &[("m1.disk0", b"is fine")]).await;
    eventually("the good one is on tape", || async { site.located(good).await.bitfile.residency.tape_copies == 1 })
        .await;
    eventually("the bad one waits for a person", || async {
        let items = site.catalog.work_items(Some(WorkKind::Migrate), None, 10).await.expect("items");
        items.iter().any(|item| item.due == catalog::Timestamp::NEVER && item.reason.is_some())
    })
    .await;
    assert_eq!(site.located(bad).await.bitfile.residency.tape_copies, 0);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_migration_nothing_is_lost_and_the_queue_goes_on() {
    for round in 0..6u64 {
        let mut site = Site::new(FakeFleet::new(2, 4, 1 << 20)).await;
        let mut files = Vec::new();
        for number in 0..5u8 {
            files.push(site.put(&format!("f{number}"), "dual", &[("m1.disk0", &[number; 50])]).await);
        }
        tokio::time::sleep(Duration::from_millis(round * 23)).await;
        site.restart().await;
        for (number, bitfile) in (0u8..).zip(&files) {
            site.sink(*bitfile).await;
            let mut tickets = site.hsm.stage(vec![Site::ask(*bitfile)]).await.expect("asked");
            tickets[0].wait(None).await.expect("staged");
            assert_eq!(site.read(*bitfile).await, [number; 50], "round {round}");
        }
        site.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_the_high_mark_the_least_recently_used_leave_down_to_the_low_one_and_pinned_ones_stay() {
    let site = Site::new(FakeFleet::new(1, 2, 1000)).await;
    let pinned = site.put("pinned", "single", &[("m1.disk0", &[1; 100])]).await;
    site.hsm.pin(vec![pinned], "account/alice", None).await.expect("pinned");
    let only_disk = site.put("unmigrated", "disk-only", &[("m1.disk0", &[2; 100])]).await;
    let mut files = Vec::new();
    for number in 0..7u8 {
        files.push(site.put(&format!("f{number}"), "single", &[("m1.disk0", &[number; 100])]).await);
    }
    eventually("the volume is below its low mark", || async {
        let world = site.fleet.world();
        let used: usize = world.files.iter().filter(|(f, _)| f.volume == label("m1.disk0")).map(|(_, d)| d.len()).sum();
        used <= 500
    })
    .await;
    assert!(site.on_disk(pinned).await && site.on_disk(only_disk).await);
    let mut left = 0;
    for bitfile in files {
        left += u32::from(site.on_disk(bitfile).await);
    }
    assert!(left >= 2, "no more than needed went, {left} are left");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_is_removed_however_often_the_mover_fails() {
    let fleet = FakeFleet::new(1, 1, 1 << 20);
    fleet.world().failing_removes = 1;
    let site = Site::new(fleet).await;
    let bitfile = site.put("gone", "disk-only", &[("m2.disk0", b"bytes")]).await;
    let entry = site.located(bitfile).await.bitfile.entry.expect("a name");
    site.fleet.set_away("m2", true);
    site.catalog.delete_file(entry, None).await.expect("deleted");
    site.hsm.deleted();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(site.fleet.count("remove"), 0, "its mover is away");
    site.fleet.set_away("m2", false);
    eventually("the file is removed", || async { site.fleet.world().files.is_empty() }).await;
    eventually("the queue is empty", || async {
        site.catalog.work_items(Some(WorkKind::Reclaim), None, 10).await.expect("items").is_empty()
    })
    .await;
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_that_was_killed_is_finished_by_the_next_run() {
    let mut site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let bitfile = site.put("f", "single", &[("m1.disk0", b"bytes")]).await;
    site.sink(bitfile).await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    site.fleet.world().gate = Some(std::sync::Arc::clone(&gate));
    let tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    eventually("it is being read", || async {
        site.hsm.requests(&[tickets[0].request().id]).await.expect("there")[0].state == RequestState::Active
    })
    .await;
    site.restart().await;
    site.fleet.world().gate = None;
    gate.notify_waiters();
    let request = tickets[0].request().id;
    eventually("the next run has finished it", || async {
        site.hsm.requests(&[request]).await.expect("there")[0].state == RequestState::Completed
    })
    .await;
    assert_eq!(site.read(bitfile).await, b"bytes");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_from_two_movers_takes_one_mount_for_each_copy() {
    let config = HsmConfig { batch_wait: daemon::config::TimeSpan::seconds(3600), ..quick() };
    let site = Site::with(FakeFleet::new(2, 4, 1 << 20), config).await;
    let mut files = Vec::new();
    for number in 0..4u8 {
        let disk = if number % 2 == 0 { "m1.disk0" } else { "m2.disk0" };
        files.push(site.put(&format!("f{number}"), "dual", &[(disk, &[number; 100])]).await);
    }
    site.hsm.migrate_now(files.clone()).await.expect("asked");
    for bitfile in &files {
        eventually("it has both copies", || async { site.located(*bitfile).await.bitfile.residency.tape_copies == 2 })
            .await;
    }
    assert_eq!(site.fleet.count("attach"), 2, "{:?}", site.fleet.world().log);
    assert_eq!(site.fleet.count("append"), 4, "a container for each mover and copy: {:?}", site.fleet.world().log);
    site.end().await;
}
