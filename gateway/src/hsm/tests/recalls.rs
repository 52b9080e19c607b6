//! What comes back: joins, deadlines, cancellation, bad copies, room, waiting with a reason.

use std::{sync::Arc, time::Duration};

use catalog::{RequestState, VolumeState};
use tokio::sync::{Notify, mpsc};
use wire::mover::FaultKind;

use super::{
    fake::{FakeFleet, label},
    site::{Site, account, eventually, quick},
};
use crate::{
    failure::FailureKind,
    hsm::{Ask, HsmConfig},
    identity::Principal,
    transfer::Stager,
};

async fn sunk(fleet: Arc<FakeFleet>, cos: &str, config: HsmConfig) -> (Site, wire::id::BitfileId) {
    let site = Site::with(fleet, config).await;
    let bitfile = site.put("f", cos, &[("m1.disk0", b"bytes of the file")]).await;
    site.sink(bitfile).await;
    (site, bitfile)
}

fn reader() -> Principal {
    Principal {
        account: account("bob"),
        groups: vec![wire::id::GroupName::new("users").expect("a name")],
        admin: false,
        subject: "/CN=Bob".into(),
        home: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_one_bitfile_join_in_one_read() {
    let (site, bitfile) = sunk(FakeFleet::new(2, 4, 1 << 20), "single", quick()).await;
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    let asks = (0..20).map(|n| Ask { account: account(&format!("user{n}")), ..Site::ask(bitfile) }).collect();
    let tickets = site.hsm.stage(asks).await.expect("asked");
    let waits: Vec<_> =
        tickets.into_iter().map(|mut ticket| tokio::spawn(async move { ticket.wait(None).await })).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    site.fleet.world().gate = None;
    gate.notify_one();
    for wait in waits {
        wait.await.expect("no panic").expect("staged");
    }
    assert_eq!(site.fleet.count("read"), 1);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_drive_says_why_it_waits_and_fails_at_its_deadline() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1 << 20), "single", quick()).await;
    site.hsm.set_drive(&super::fake::drive(1), Some("belt broken".into())).await.expect("down");
    let ask = Ask { deadline: Some(Duration::from_millis(1500)), ..Site::ask(bitfile) };
    let mut tickets = site.hsm.stage(vec![ask]).await.expect("asked");
    eventually("it says why", || async {
        let page = site.hsm.page(&Default::default()).await.expect("a page");
        let reason = page.entries.first().and_then(|entry| entry.reason.clone()).unwrap_or_default();
        reason.contains("belt broken") && page.entries[0].position == Some(1)
    })
    .await;
    let failure = tickets[0].wait(None).await.expect_err("too late");
    assert!(failure.message().contains("deadline"), "{failure}");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_ends_at_once_and_nothing_is_read() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1 << 20), "single", quick()).await;
    site.hsm.set_drive(&super::fake::drive(1), Some("off".into())).await.expect("down");
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    let request = tickets[0].request().id;
    let mut ticket = tickets.remove(0);
    let wait = tokio::spawn(async move { ticket.wait(None).await });
    assert!(site.hsm.cancel(vec![request], Some(account("mallory"))).await.expect("asked").is_empty(), "not hers");
    assert_eq!(site.hsm.cancel(vec![request], None).await.expect("asked"), [request]);
    let failure = wait.await.expect("no panic").expect_err("cancelled");
    assert_eq!(failure.kind(), FailureKind::Cancelled);
    site.hsm.set_drive(&super::fake::drive(1), None).await.expect("up");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(site.fleet.count("read"), 0);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_cannot_be_read_is_replaced_by_the_other() {
    let (site, bitfile) = sunk(FakeFleet::new(2, 4, 1 << 20), "dual", quick()).await;
    let segment = site.located(bitfile).await.copy(1).expect("a copy").segments[0].clone();
    let wire::extent::Place::Tape { block, .. } = segment.extent.place else { panic!("on tape") };
    site.fleet.world().bad_members.insert((segment.extent.volume.clone(), block));
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"bytes of the file");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_copies_are_all_bad_fails_with_the_reason() {
    let (site, bitfile) = sunk(FakeFleet::new(2, 4, 1 << 20), "dual", quick()).await;
    for copy in [1, 2] {
        let segment = site.located(bitfile).await.copy(copy).expect("a copy").segments[0].clone();
        let wire::extent::Place::Tape { block, .. } = segment.extent.place else { panic!("on tape") };
        site.fleet.world().bad_members.insert((segment.extent.volume.clone(), block));
    }
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    let failure = tickets[0].wait(None).await.expect_err("nothing can be read");
    assert!(failure.message().contains("no copy can be read"), "{failure}");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_cartridge_is_passed_over_for_the_other_copy() {
    let (site, bitfile) = sunk(FakeFleet::new(2, 4, 1 << 20), "dual", quick()).await;
    let first = site.located(bitfile).await.copy(1).expect("a copy").segments[0].extent.volume.clone();
    let mut tickets = {
        site.hsm.set_drive(&super::fake::drive(1), Some("wait".into())).await.expect("down");
        site.hsm.set_drive(&super::fake::drive(2), Some("wait".into())).await.expect("down");
        site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked")
    };
    // It waits for the first copy already when that is taken away.
    site.catalog.set_volume_state(&first, VolumeState::Disabled, "chewed").await.expect("disabled");
    site.hsm.volumes_changed().await;
    for number in [1, 2] {
        site.hsm.set_drive(&super::fake::drive(number), None).await.expect("up");
    }
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"bytes of the file");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_deleted_while_it_waits_is_never_read() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1 << 20), "single", quick()).await;
    site.hsm.set_drive(&super::fake::drive(1), Some("off".into())).await.expect("down");
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    let entry = site.located(bitfile).await.bitfile.entry.expect("a name");
    site.catalog.delete_file(entry, None).await.expect("deleted");
    assert!(tickets[0].wait(None).await.is_err());
    site.hsm.set_drive(&super::fake::drive(1), None).await.expect("up");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(site.fleet.count("read"), 0);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_without_room_says_so_and_goes_on_when_room_is_made() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1000), "single", quick()).await;
    eventually("the disk is empty", || async { site.fleet.world().files.is_empty() }).await;
    // Both volumes are full of what nobody may purge.
    let mut blocking = Vec::new();
    for volume in ["m1.disk0", "m2.disk0"] {
        blocking.push(site.put(&format!("big-{volume}"), "disk-only", &[(volume, &[7; 1000])]).await);
    }
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    eventually("it says why", || async {
        let page = site.hsm.page(&Default::default()).await.expect("a page");
        page.entries.iter().any(|entry| entry.reason.as_ref().is_some_and(|why| why.contains("no space on disk pool")))
    })
    .await;
    let entry = site.located(blocking[0]).await.bitfile.entry.expect("a name");
    site.catalog.delete_file(entry, None).await.expect("deleted");
    site.hsm.deleted();
    tickets[0].wait(None).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"bytes of the file");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_staged_copys_lifetime_begins_when_it_arrives_and_then_it_leaves() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1 << 20), "single", quick()).await;
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    let ask = Ask { lifetime: Some(Duration::from_millis(1500)), ..Site::ask(bitfile) };
    let mut tickets = site.hsm.stage(vec![ask]).await.expect("asked");
    // Longer than its lifetime passes before it comes.
    tokio::time::sleep(Duration::from_millis(1600)).await;
    site.fleet.world().gate = None;
    gate.notify_one();
    tickets[0].wait(None).await.expect("staged");
    assert!(site.on_disk(bitfile).await, "it has only just come");
    eventually("its time is over", || async { !site.on_disk(bitfile).await }).await;
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_copy_whose_mover_is_away_does_not_count_and_is_recalled() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let bitfile = site.put("f", "single", &[("m2.disk0", b"bytes")]).await;
    eventually("it is on tape", || async { site.located(bitfile).await.bitfile.residency.tape_copies == 1 }).await;
    site.fleet.set_away("m2", true);
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    tickets[0].wait(None).await.expect("staged");
    let located = site.located(bitfile).await;
    assert_eq!(located.copy(0).expect("a disk copy").segments[0].extent.volume, label("m1.disk0"));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waits_with_a_reason_and_its_wish_goes_with_it() {
    let (site, bitfile) = sunk(FakeFleet::new(1, 2, 1 << 20), "single", quick()).await;
    site.hsm.set_drive(&super::fake::drive(1), Some("off".into())).await.expect("down");
    let (progress, mut told) = mpsc::channel(16);
    let hsm = site.hsm.clone();
    let read = tokio::spawn(async move { Stager::stage(&hsm, bitfile, &reader(), progress).await });
    let waiting = told.recv().await.expect("it says how it fares");
    assert!(!waiting.reason.is_empty());
    read.abort();
    eventually("the wish is taken back", || async {
        let requests = site.catalog.list_requests(&catalog::RequestFilter { limit: 10, ..Default::default() }).await;
        requests.expect("requests").iter().all(|request| request.state == RequestState::Cancelled)
    })
    .await;
    site.hsm.set_drive(&super::fake::drive(1), None).await.expect("up");
    let (progress, _told) = mpsc::channel(16);
    Stager::stage(&site.hsm, bitfile, &reader(), progress).await.expect("staged");
    assert_eq!(site.read(bitfile).await, b"bytes of the file");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_fails_under_a_recall_is_replaced() {
    let (site, bitfile) = sunk(FakeFleet::new(2, 2, 1 << 20), "single", quick()).await;
    eventually("the cartridge is home", || async {
        site.hsm.drives().await.iter().all(|drive| drive.volume.is_none())
    })
    .await;
    site.fleet.world().bad_attaches.insert(super::fake::drive(1), FaultKind::Drive);
    site.fleet.world().bad_attaches.insert(super::fake::drive(2), FaultKind::Drive);
    let mut tickets = site.hsm.stage(vec![Site::ask(bitfile)]).await.expect("asked");
    eventually("a drive is down", || async {
        site.hsm.drives().await.iter().any(|drive| drive.state == wire::admin::site::DriveState::Down)
    })
    .await;
    site.fleet.world().bad_attaches.clear();
    for number in [1, 2] {
        site.hsm.set_drive(&super::fake::drive(number), None).await.expect("up");
    }
    tickets[0].wait(None).await.expect("staged");
    site.end().await;
}
