//! Scrubs read every copy, say what is bad, and go on from their place when their gateway is killed.

use std::sync::Arc;

use catalog::testing::PostgresCluster;
use tokio::sync::Notify;
use wire::{
    admin::queue::{Kind, Query, Scrub, State},
    id::WorkId,
};

use super::{
    fake::FakeFleet,
    site::{Site, eventually, quick},
};
use crate::hsm::Scope;

async fn over(site: &Site, scrub: &Scrub) -> Scrub {
    eventually("the scrub is over", || async {
        site.hsm.get_scrub(scrub.scrub).await.expect("there").state == State::Completed
    })
    .await;
    site.hsm.get_scrub(scrub.scrub).await.expect("there")
}

async fn until_read(site: &Site, scrub: &Scrub, segments: u64) {
    eventually("the first part is read", || async {
        site.hsm.get_scrub(scrub.scrub).await.expect("there").done == segments
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_reads_every_copy_and_names_the_bad_ones() {
    let site = Site::new(FakeFleet::new(2, 4, 1 << 20)).await;
    let good = site.put("good", "dual", &[("m1.disk0", b"good bytes")]).await;
    let bad = site.put("bad", "dual", &[("m1.disk0", b"other bytes")]).await;
    site.sink(good).await;
    site.sink(bad).await;
    let located = site.located(bad).await;
    let segment = &located.copy(2).expect("a second copy").segments[0];
    let wire::extent::Place::Tape { block, .. } = segment.extent.place else { panic!("on tape") };
    site.fleet.world().bad_members.insert((segment.extent.volume.clone(), block));
    let scrub = site.hsm.scrub(Scope::Class("dual".parse().expect("a name")), None).await.expect("begun");
    eventually("the scrub is over", || async {
        site.hsm.get_scrub(scrub.scrub).await.expect("there").state == wire::admin::queue::State::Completed
    })
    .await;
    let done = site.hsm.get_scrub(scrub.scrub).await.expect("there");
    assert_eq!((done.bad, done.total), (1, 4), "{done:?}");
    let results = site.hsm.scrub_results(scrub.scrub, wire::id::WorkId(0), 100).await.expect("results");
    let bad_ones: Vec<_> = results.iter().filter(|result| !result.good).collect();
    assert_eq!((bad_ones.len(), bad_ones[0].bitfile, bad_ones[0].path.as_deref()), (1, bad, Some("/bad")));
    let volume = segment.extent.volume.clone();
    let scrub = site.hsm.scrub(Scope::Volume(volume), Some(1 << 30)).await.expect("begun");
    eventually("the scrub is over", || async {
        site.hsm.get_scrub(scrub.scrub).await.expect("there").state == wire::admin::queue::State::Completed
    })
    .await;
    assert_eq!(site.hsm.get_scrub(scrub.scrub).await.expect("there").bad, 1);
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_of_a_volume_goes_on_from_its_place_after_a_kill() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    volume_killed_in_the_middle(site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_of_a_volume_goes_on_from_its_place_after_a_kill_on_postgresql() {
    let cluster = PostgresCluster::shared().await.unwrap_or_else(|error| panic!("{error}"));
    let url = cluster.database().await.expect("a database");
    volume_killed_in_the_middle(Site::over(&url, FakeFleet::new(1, 2, 1 << 20), quick()).await).await;
}

/// More files than one page has; the gateway dies between the first page and the second.
async fn volume_killed_in_the_middle(mut site: Site) {
    const FILES: u64 = 530;
    let mut last = None;
    for number in 0..FILES {
        last = Some(site.put(&format!("f{number:04}"), "single", &[("m1.disk0", b"bytes")]).await);
    }
    let volume = {
        eventually("all is on one tape", || async {
            let tapes = site.catalog.volumes().await.expect("volumes");
            tapes.iter().any(|volume| volume.label.as_str().starts_with("PEN") && volume.live_segments == FILES)
        })
        .await;
        site.tapes_of(last.expect("published")).await.remove(0)
    };
    // The last file is the bad one: the second half finds it.
    let located = site.located(last.expect("published")).await;
    let segment = &located.copy(1).expect("a tape copy").segments[0];
    let wire::extent::Place::Tape { block, .. } = segment.extent.place else { panic!("on tape") };
    site.fleet.world().bad_members.insert((volume.clone(), block));
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    let scrub = site.hsm.scrub(Scope::Volume(volume), Some(1 << 30)).await.expect("begun");
    gate.notify_one();
    until_read(&site, &scrub, 500).await;
    site.restart().await;
    let half = site.hsm.get_scrub(scrub.scrub).await.expect("another run knows it");
    assert_eq!((half.done, half.total, half.state), (500, FILES, State::Running));
    let query = Query { kind: Some(Kind::Verify), ..Query::default() };
    let shown = site.hsm.page(&query).await.expect("the queue").entries.remove(0);
    let reason = shown.reason.expect("its progress");
    assert!(reason.contains("500 of 530 segments are read"), "{reason}");
    site.fleet.world().gate = None;
    let end = over(&site, &scrub).await;
    assert_eq!((end.done, end.total, end.bad), (FILES, FILES, 1), "both halves");
    assert_eq!(site.fleet.count("read PEN"), FILES as usize, "nothing was read twice");
    let found = site.hsm.scrub_results(scrub.scrub, WorkId(0), 1000).await.expect("results");
    let bad: Vec<_> = found.iter().filter(|found| !found.good).collect();
    assert_eq!((found.len() as u64, bad.len(), bad[0].path.as_deref()), (FILES, 1, Some("/f0529")));
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_of_files_keeps_what_it_read_of_their_first_copies_when_it_is_killed() {
    let mut site = Site::new(FakeFleet::new(1, 4, 1 << 20)).await;
    let one = site.put("one", "dual", &[("m1.disk0", b"one")]).await;
    let two = site.put("two", "dual", &[("m1.disk0", b"two")]).await;
    site.sink(one).await;
    site.sink(two).await;
    let gate = Arc::new(Notify::new());
    site.fleet.world().gate = Some(Arc::clone(&gate));
    let scrub = site.hsm.scrub(Scope::Class("dual".parse().expect("a name")), None).await.expect("begun");
    gate.notify_one();
    eventually("something is read", || async { site.hsm.get_scrub(scrub.scrub).await.expect("there").done > 0 }).await;
    let before = site.hsm.get_scrub(scrub.scrub).await.expect("there").done;
    assert!(before < 4, "{before} of 4");
    site.restart().await;
    assert_eq!(site.hsm.get_scrub(scrub.scrub).await.expect("there").done, before);
    site.fleet.world().gate = None;
    let end = over(&site, &scrub).await;
    assert_eq!((end.done, end.total, end.bad), (4, 4, 0));
    assert_eq!(site.fleet.count("read PEN"), 4, "nothing was read twice");
    site.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_ends_although_files_are_deleted_before_they_are_read() {
    let site = Site::new(FakeFleet::new(1, 2, 1 << 20)).await;
    let file = site.put("file", "disk-only", &[("m1.disk0", b"bytes")]).await;
    site.fleet.set_away("m1", true);
    let scrub = site.hsm.scrub(Scope::Bitfiles(vec![file, file]), None).await.expect("begun");
    assert_eq!((scrub.total, scrub.state), (1, State::Running), "named twice, read once");
    let entry = site.located(file).await.bitfile.entry.expect("it has a name");
    site.catalog.delete_file(entry, None).await.expect("deleted");
    let end = over(&site, &scrub).await;
    assert_eq!((end.done, end.total), (0, 1));
    site.end().await;
}
