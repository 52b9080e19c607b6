//! Replicas, further copies of a bitfile on disk, on both databases.

use std::time::Duration;

use catalog::*;
use wire::id::{BitfileId, StorageClassName};

use crate::site::*;

on_both! {
    a_replica_is_a_further_copy_on_disk_and_costs_no_quota;
    what_does_not_cover_the_file_is_no_replica;
    replicas_leave_with_the_disk_copy_when_it_is_purged;
    replicas_of_an_overwritten_file_stay_through_its_undelete_window_and_go_with_it;
    a_dropped_replica_gives_back_its_room_and_its_number;
    a_replica_takes_the_place_of_a_first_copy_that_is_dropped;
    the_last_disk_copy_cannot_be_dropped_as_one_of_several;
    what_somebody_reads_or_a_migration_uses_is_not_dropped;
    replicas_that_nobody_reads_are_found_by_their_volume;
    an_append_shares_the_first_copy_only;
    a_first_copy_whose_file_an_append_shares_is_dropped_and_the_file_stays;
}

fn disk() -> StorageClassName {
    StorageClassName::new("disk").expect("a name")
}

async fn replicate(site: &Site, bitfile: BitfileId, label: &str, bytes: u64) -> u32 {
    let segments = vec![site.segment(label, 0, bytes).await];
    site.catalog.record_replica(bitfile, disk(), segments).await.expect("recorded")
}

/// A file on d0 of a class without tape, with a replica on d1.
async fn replicated(site: &Site, name: &str, bytes: u64) -> BitfileId {
    let mut file = site.file(ROOT, name, bytes).await;
    file.cos = cos("none");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    assert_eq!(replicate(site, bitfile, "d1", bytes).await, FIRST_REPLICA);
    bitfile
}

async fn live(site: &Site) -> [(u64, u64); 2] {
    let mut counts = [(0, 0); 2];
    for (count, label) in counts.iter_mut().zip(["d0", "d1"]) {
        let volume = site.catalog.volume(&volume(label)).await.expect("a volume");
        *count = (volume.live_bytes, volume.live_segments);
    }
    counts
}

/// The volumes whose files are queued for reclaim.
async fn reclaimed(site: &Site) -> Vec<String> {
    let items = site.catalog.work_items(Some(WorkKind::Reclaim), None, 100).await.expect("listed");
    let mut volumes: Vec<_> = items.into_iter().map(|item| item.pool).collect();
    volumes.sort();
    volumes
}

async fn dropped(site: &Site, bitfile: BitfileId, number: u32) -> Purged {
    site.catalog.drop_replicas(vec![(bitfile, number)], Duration::ZERO).await.expect("an answer").remove(0)
}

/// Number and volume of each disk copy.
async fn disk_copies(site: &Site, bitfile: BitfileId) -> Vec<(u32, String)> {
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    let volume_of = |copy: &Copy| copy.segments.first().expect("a segment").extent.volume.to_string();
    located.on_disk().map(|copy| (copy.number, volume_of(copy))).collect()
}

async fn a_replica_is_a_further_copy_on_disk_and_costs_no_quota(site: Site) {
    let before = site.catalog.usage(&QuotaSubject::Account(account("alice"))).await.expect("usage");
    let bitfile = replicated(&site, "file", 100).await;
    assert_eq!(disk_copies(&site, bitfile).await, [(0, "d0".into()), (64, "d1".into())]);
    assert_eq!(live(&site).await, [(100, 1), (100, 1)]);
    let after = site.catalog.usage(&QuotaSubject::Account(account("alice"))).await.expect("usage");
    assert_eq!(after.bytes - before.bytes, 100, "the replica is the site's affair");
    let residency = site.catalog.locate_one(bitfile).await.expect("the bitfile").bitfile.residency;
    assert_eq!(residency.tape_copies, 0, "it is no tape copy");
}

async fn what_does_not_cover_the_file_is_no_replica(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    for segments in [
        vec![site.segment("d1", 0, 99).await],
        vec![site.segment("d1", 0, 60).await, site.segment("d1", 50, 50).await],
        vec![site.segment("d1", 0, 101).await],
        Vec::new(),
    ] {
        let refused = site.catalog.record_replica(bitfile, disk(), segments).await;
        assert!(matches!(refused, Err(CatalogError::Inconsistent { .. })), "{refused:?}");
    }
    assert_eq!(live(&site).await, [(100, 1), (0, 0)]);
    let unknown = site.catalog.record_replica(BitfileId(1 << 40), disk(), Vec::new()).await;
    assert!(matches!(unknown, Err(CatalogError::NotFound { .. })), "{unknown:?}");
}

async fn replicas_leave_with_the_disk_copy_when_it_is_purged(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    replicate(&site, bitfile, "d1", 100).await;
    site.pass(2 * MINUTE);
    let migration = site.claim(WorkKind::Migrate, "single").await;
    site.write_container(migration, 1, "T1").await;
    let purged = site.catalog.purge(vec![bitfile], Duration::ZERO).await.expect("an answer");
    assert_eq!(purged, [(bitfile, Purged::Freed { bytes: 100 })]);
    assert!(disk_copies(&site, bitfile).await.is_empty());
    assert_eq!(live(&site).await, [(0, 0), (0, 0)]);
    assert_eq!(reclaimed(&site).await, ["d0", "d1"]);
    let late = site.catalog.record_replica(bitfile, disk(), vec![site.segment("d1", 0, 100).await]).await;
    assert!(matches!(late, Err(CatalogError::Inconsistent { .. })), "it has left the disk: {late:?}");
}

async fn replicas_of_an_overwritten_file_stay_through_its_undelete_window_and_go_with_it(site: Site) {
    let old = replicated(&site, "file", 100).await;
    let mut new = site.file(ROOT, "file", 50).await;
    new.cos = cos("none");
    let new = site.catalog.publish(new).await.expect("published").bitfile;
    assert_eq!(disk_copies(&site, new).await, [(0, "d0".into())], "new bytes have no replica yet");
    assert_eq!(disk_copies(&site, old).await.len(), 2, "what was overwritten can be brought back as it was");
    let late = site.catalog.record_replica(old, disk(), vec![site.segment("d1", 0, 100).await]).await;
    assert!(matches!(late, Err(CatalogError::NotFound { .. })), "{late:?}");
    site.pass(HOUR + MINUTE);
    assert_eq!(site.catalog.reclaim(10).await.expect("reclaimed").files, 2);
    assert_eq!(live(&site).await, [(50, 1), (0, 0)]);
    assert_eq!(reclaimed(&site).await, ["d0", "d1"]);
}

async fn a_dropped_replica_gives_back_its_room_and_its_number(site: Site) {
    let bitfile = replicated(&site, "file", 100).await;
    assert_eq!(replicate(&site, bitfile, "d1", 100).await, 65);
    assert_eq!(dropped(&site, bitfile, 64).await, Purged::Freed { bytes: 100 });
    assert_eq!(live(&site).await, [(100, 1), (100, 1)]);
    assert_eq!(dropped(&site, bitfile, 64).await, Purged::NotOnDisk, "a repeat drops nothing");
    assert_eq!(reclaimed(&site).await, ["d1"]);
    assert_eq!(replicate(&site, bitfile, "d1", 100).await, 64, "numbers are used again");
    assert_eq!(disk_copies(&site, bitfile).await.len(), 3);
}

async fn a_replica_takes_the_place_of_a_first_copy_that_is_dropped(site: Site) {
    let bitfile = replicated(&site, "file", 100).await;
    let other = replicated(&site, "other", 30).await;
    assert_eq!(dropped(&site, bitfile, DISK_COPY).await, Purged::Freed { bytes: 100 });
    assert_eq!(disk_copies(&site, bitfile).await, [(0, "d1".into())]);
    assert_eq!(disk_copies(&site, other).await.len(), 2, "others are left alone");
    assert_eq!(live(&site).await, [(30, 1), (130, 2)]);
    assert_eq!(reclaimed(&site).await, ["d0"]);
    // It is a first copy like any other now: a purge finds it where it lies.
    let file = site.publish(ROOT, "taped", 70).await.bitfile;
    replicate(&site, file, "d1", 70).await;
    assert_eq!(dropped(&site, file, DISK_COPY).await, Purged::Freed { bytes: 70 });
    site.pass(2 * MINUTE);
    let migration = site.claim(WorkKind::Migrate, "single").await;
    site.write_container(migration, 1, "T1").await;
    let candidates = site.catalog.purge_candidates(&volume("d1"), 10).await.expect("listed");
    assert_eq!(candidates.iter().map(|one| one.bitfile).collect::<Vec<_>>(), [file]);
}

async fn the_last_disk_copy_cannot_be_dropped_as_one_of_several(site: Site) {
    let bitfile = replicated(&site, "file", 100).await;
    assert_eq!(dropped(&site, bitfile, 64).await, Purged::Freed { bytes: 100 });
    assert_eq!(dropped(&site, bitfile, DISK_COPY).await, Purged::NotOnDisk);
    assert_eq!(dropped(&site, bitfile, 1).await, Purged::NotOnDisk, "that would be a tape copy");
    assert_eq!(dropped(&site, BitfileId(1 << 40), 64).await, Purged::NotOnDisk);
    assert_eq!(disk_copies(&site, bitfile).await, [(0, "d0".into())]);
    // Twice in one question: the second finds nothing to drop.
    let bitfile = replicated(&site, "twice", 100).await;
    let both = vec![(bitfile, 64), (bitfile, DISK_COPY)];
    let answers = site.catalog.drop_replicas(both, Duration::ZERO).await.expect("an answer");
    assert_eq!(answers, [Purged::Freed { bytes: 100 }, Purged::NotOnDisk]);
    assert_eq!(disk_copies(&site, bitfile).await, [(0, "d0".into())]);
}

async fn what_somebody_reads_or_a_migration_uses_is_not_dropped(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    replicate(&site, bitfile, "d1", 100).await;
    site.pass(2 * MINUTE);
    site.catalog.touch(bitfile);
    let answer = site.catalog.drop_replicas(vec![(bitfile, 64)], MINUTE).await.expect("an answer");
    assert_eq!(answer, [Purged::InUse]);
    let migration = site.claim(WorkKind::Migrate, "single").await;
    assert_eq!(dropped(&site, bitfile, 64).await, Purged::InUse);
    site.write_container(migration, 1, "T1").await;
    assert_eq!(dropped(&site, bitfile, 64).await, Purged::Freed { bytes: 100 });
}

async fn replicas_that_nobody_reads_are_found_by_their_volume(site: Site) {
    let old = replicated(&site, "old", 100).await;
    site.pass(2 * MINUTE);
    let new = replicated(&site, "new", 50).await;
    let find = async |label: &str, idle| {
        let found = site.catalog.replica_candidates(&volume(label), idle, 10).await.expect("listed");
        found.into_iter().map(|one| (one.bitfile, one.copy, one.size_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(find("d1", Duration::ZERO).await, [(old, 64, 100), (new, 64, 50)]);
    assert_eq!(find("d1", MINUTE).await, [(old, 64, 100)]);
    assert!(find("d0", Duration::ZERO).await.is_empty(), "first copies are a purge's affair");
}

async fn an_append_shares_the_first_copy_only(site: Site) {
    let base = replicated(&site, "file", 100).await;
    let mut longer = site.file(ROOT, "file", 0).await;
    longer.cos = cos("none");
    longer.base = Base::Append(base);
    longer.size_bytes = 150;
    longer.segments = vec![site.segment("d0", 100, 50).await];
    let longer = site.catalog.publish(longer).await.expect("published").bitfile;
    assert_eq!(disk_copies(&site, longer).await, [(0, "d0".into())]);
    assert_eq!(live(&site).await, [(250, 3), (100, 1)]);
}

async fn a_first_copy_whose_file_an_append_shares_is_dropped_and_the_file_stays(site: Site) {
    let base = replicated(&site, "file", 100).await;
    let mut longer = site.file(ROOT, "file", 0).await;
    longer.cos = cos("none");
    longer.base = Base::Append(base);
    longer.size_bytes = 150;
    longer.segments = vec![site.segment("d0", 100, 50).await];
    site.catalog.publish(longer).await.expect("published");
    assert_eq!(dropped(&site, base, DISK_COPY).await, Purged::Freed { bytes: 100 });
    assert!(reclaimed(&site).await.is_empty(), "the longer file has bytes in it");
    assert_eq!(disk_copies(&site, base).await, [(0, "d1".into())]);
    assert_eq!(live(&site).await, [(150, 2), (100, 1)]);
}
