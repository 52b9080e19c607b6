//! Purge and reclaim; on both databases.

use std::time::Duration;

use catalog::*;
use wire::id::BitfileId;

use crate::site::*;

on_both! {
    a_disk_copy_is_purged_only_when_nothing_holds_it;
    candidates_come_least_recently_used_first;
    purging_the_base_of_an_append_keeps_the_shared_file;
    staged_copies_whose_promise_ended_are_listed;
    statistics_count_without_looking_at_files;
}

async fn purge(site: &Site, bitfile: BitfileId, idle: Duration) -> Purged {
    site.catalog.purge(vec![bitfile], idle).await.expect("an answer")[0].1
}

async fn a_disk_copy_is_purged_only_when_nothing_holds_it(site: Site) {
    let file = site.publish(ROOT, "file", 100).await;
    assert_eq!(purge(&site, file.bitfile, Duration::ZERO).await, Purged::NotOnTape);
    site.migrate("single", 1, "T1").await;
    site.catalog.pin(vec![file.bitfile], "test", site.catalog.now().after(MINUTE)).await.expect("pinned");
    assert_eq!(purge(&site, file.bitfile, Duration::ZERO).await, Purged::Pinned);
    site.catalog.unpin(vec![file.bitfile], "test").await.expect("unpinned");
    site.catalog.touch(file.bitfile);
    assert_eq!(purge(&site, file.bitfile, MINUTE).await, Purged::InUse, "it is being read now");
    site.pass(2 * MINUTE);
    let answer = site.catalog.purge(vec![file.bitfile, BitfileId(3), file.bitfile], MINUTE).await.expect("an answer");
    let expected = [Purged::Freed { bytes: 100 }, Purged::NotOnDisk, Purged::NotOnDisk];
    assert_eq!(answer.iter().map(|(_, purged)| *purged).collect::<Vec<_>>(), expected);

    let entry = site.catalog.entry(file.entry).await.expect("an answer").expect("the file");
    let residency = entry.file().expect("a file").residency;
    assert_eq!(residency, Residency { on_disk: false, tape_copies: 1, tape_copies_wanted: 1 });
    assert!(site.catalog.locate_one(file.bitfile).await.expect("the bitfile").copy(DISK_COPY).is_none());
    assert_eq!(site.catalog.volume(&volume("d0")).await.expect("a volume").live_bytes, 0);
    assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty(), "the last readers have a moment");
    site.pass(MINUTE);
    let work = site.claim(WorkKind::Reclaim, "d0").await;
    assert_eq!((work.len(), work[0].bytes), (1, 100));
    assert!(matches!(&work[0].subject, Subject::File { volume: label, .. } if *label == volume("d0")));
}

async fn candidates_come_least_recently_used_first(site: Site) {
    let mut files = Vec::new();
    for name in ["a", "b", "c", "d"] {
        files.push(site.publish(ROOT, name, 10).await.bitfile);
        site.pass(MINUTE);
    }
    site.migrate("single", 1, "T1").await;
    site.catalog.touch(files[0]);
    site.catalog.pin(vec![files[2]], "test", site.catalog.now().after(HOUR)).await.expect("pinned");
    // A purge of nothing writes the access times that wait.
    site.catalog.purge(Vec::new(), MINUTE).await.expect("an answer");
    let candidates = site.catalog.purge_candidates(&volume("d0"), 10).await.expect("candidates");
    let order: Vec<_> = candidates.iter().map(|candidate| candidate.bitfile).collect();
    assert_eq!(order, [files[1], files[3], files[0]]);
    assert_eq!(site.catalog.purge_candidates(&volume("d0"), 1).await.expect("candidates").len(), 1);
    assert!(site.catalog.purge_candidates(&volume("d1"), 10).await.expect("candidates").is_empty());
}

async fn purging_the_base_of_an_append_keeps_the_shared_file(site: Site) {
    let old = site.publish(ROOT, "log", 100).await;
    site.migrate("single", 1, "T1").await;
    let mut file = site.file(ROOT, "log", 130).await;
    file.base = Base::Append(old.bitfile);
    file.segments = vec![site.segment("d0", 100, 30).await];
    let new = site.catalog.publish(file).await.expect("appended");
    site.pass(MINUTE);
    assert_eq!(purge(&site, old.bitfile, Duration::ZERO).await, Purged::Freed { bytes: 100 });
    site.pass(MINUTE);
    assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty());
    site.migrate("single", 1, "T1").await;
    assert_eq!(purge(&site, new.bitfile, Duration::ZERO).await, Purged::Freed { bytes: 130 });
    site.pass(MINUTE);
    assert_eq!(site.claim(WorkKind::Reclaim, "d0").await.len(), 2);
}

async fn staged_copies_whose_promise_ended_are_listed(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    site.request(file.bitfile, "alice").await;
    let work = site.claim(WorkKind::Stage, "T1").await;
    let staged = Staged {
        ticket: work[0].ticket(),
        bitfile: file.bitfile,
        storage_class: wire::id::StorageClassName::new("disk").expect("a name"),
        segments: vec![site.segment("d1", 0, 100).await],
    };
    site.catalog.record_stage(vec![staged], None).await.expect("recorded");
    assert_eq!(purge(&site, file.bitfile, Duration::ZERO).await, Purged::Pinned);
    assert!(site.catalog.expired_copies(10).await.expect("copies").is_empty());
    assert!(site.catalog.purge_candidates(&volume("d1"), 10).await.expect("candidates").is_empty());
    site.pass(3 * HOUR);
    let expired = site.catalog.expired_copies(10).await.expect("copies");
    assert_eq!((expired.len(), expired[0].bitfile), (1, file.bitfile));
    assert_eq!(purge(&site, file.bitfile, MINUTE).await, Purged::Freed { bytes: 100 });
}

async fn statistics_count_without_looking_at_files(site: Site) {
    let empty = site.catalog.statistics().await.expect("statistics");
    assert_eq!((empty.files, empty.bytes, empty.queues.len()), (0, 0, WorkKind::ALL.len()));
    site.on_tape_only(ROOT, "one", 100).await;
    let two = site.publish(ROOT, "two", 50).await;
    let three = site.publish(ROOT, "three", 7).await;
    site.catalog.delete_file(three.entry, None).await.expect("deleted");
    let full = site.catalog.statistics().await.expect("statistics");
    assert_eq!((full.files, full.bytes, full.disk_bytes, full.tape_bytes), (2, 150, 57, 100));
    assert_eq!((full.deleted_files, full.open_requests, full.partial_uploads), (1, 0, 0));
    let queue = |kind| full.queues.iter().find(|queue| queue.kind == kind).expect("every kind");
    assert_eq!((queue(WorkKind::Migrate).items, queue(WorkKind::Reclaim).items), (1, 1));
    assert_eq!(queue(WorkKind::Migrate).next_due, Some(site.catalog.now().after(MINUTE)));
    assert_eq!(queue(WorkKind::Stage).next_due, None);
    assert_eq!((queue(WorkKind::Migrate).running, queue(WorkKind::Migrate).bytes), (0, 50));
    assert_eq!(queue(WorkKind::Migrate).oldest, Some(site.catalog.now()));
    assert!(!site.catalog.database().await.expect("a version").ends_with(' '));
    let demand = site.catalog.demand(WorkKind::Migrate).await.expect("the demand");
    assert!(demand.is_empty(), "{demand:?}");
    site.pass(2 * MINUTE);
    let demand = site.catalog.demand(WorkKind::Migrate).await.expect("the demand");
    assert_eq!((demand.len(), demand[0].pool.as_str(), demand[0].items, demand[0].bytes), (1, "single", 1, 50));
    let moved = site.catalog.migrate_now(vec![two.bitfile]).await.expect("queued");
    assert_eq!(moved, 1);
    assert_eq!(site.catalog.claim(claim(WorkKind::Migrate, "single", "gw1")).await.expect("claimed").len(), 1);
    let claimed = site.catalog.statistics().await.expect("statistics");
    let migrate = claimed.queues.iter().find(|queue| queue.kind == WorkKind::Migrate).expect("every kind");
    assert_eq!((migrate.items, migrate.running), (1, 1));
}
