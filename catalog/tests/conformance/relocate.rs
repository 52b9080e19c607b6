//! Disk segments that move to another volume, on both databases.

use catalog::*;
use wire::extent::Place;
use wire::id::BitfileId;

use crate::site::*;

on_both! {
    segments_move_with_their_counts_and_the_old_file_is_queued_for_reclaim;
    a_file_that_an_append_shares_stays_while_it_is_needed;
    what_does_not_fit_or_is_not_claimed_is_refused_and_its_new_files_reclaimed;
    a_file_that_a_migration_reads_is_left_alone;
}

async fn leaving(site: &Site, bitfile: BitfileId) -> WorkItem {
    let work = NewWork {
        kind: WorkKind::Repack,
        subject: Subject::Bitfile(bitfile),
        pool: "d0".to_owned(),
        bytes: 1,
        not_before: site.catalog.now(),
        deadline: None,
    };
    site.catalog.enqueue(vec![work]).await.expect("queued");
    site.claim(WorkKind::Repack, "d0").await.pop().expect("claimed")
}

async fn moved(site: &Site, item: &WorkItem, bitfile: BitfileId, bytes: u64) -> Relocated {
    Relocated { ticket: item.ticket(), bitfile, segments: vec![site.segment("d1", 0, bytes).await] }
}

async fn record(site: &Site, moved: Relocated) -> Result<(), CatalogRefusal> {
    site.catalog.record_relocated(&volume("d0"), vec![moved], None).await.expect("an answer").remove(0)
}

async fn live(site: &Site, label: &str) -> (u64, u64) {
    let volume = site.catalog.volume(&volume(label)).await.expect("a volume");
    (volume.live_bytes, volume.live_segments)
}

async fn reclaimed(site: &Site) -> Vec<String> {
    let items = site.catalog.work_items(Some(WorkKind::Reclaim), None, 100).await.expect("listed");
    items.into_iter().map(|item| item.pool).collect()
}

async fn segments_move_with_their_counts_and_the_old_file_is_queued_for_reclaim(site: Site) {
    let mut file = site.file(ROOT, "file", 100).await;
    file.cos = cos("none");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    let item = leaving(&site, bitfile).await;
    let new = moved(&site, &item, bitfile, 100).await;
    assert_eq!(record(&site, new.clone()).await, Ok(()));
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    assert_eq!(located.copy(DISK_COPY).expect("a disk copy").segments, new.segments);
    assert_eq!((live(&site, "d0").await, live(&site, "d1").await), ((0, 0), (100, 1)));
    assert_eq!(reclaimed(&site).await, ["d0"]);
    assert!(site.catalog.work_items(Some(WorkKind::Repack), None, 10).await.expect("listed").is_empty());
    assert_eq!(record(&site, new).await, Err(CatalogRefusal::Stale), "the work is done");
    assert_eq!(reclaimed(&site).await, ["d0"], "a repeat takes nothing away");
}

async fn a_file_that_an_append_shares_stays_while_it_is_needed(site: Site) {
    let mut base = site.file(ROOT, "file", 100).await;
    base.cos = cos("none");
    let base = site.catalog.publish(base).await.expect("published").bitfile;
    let mut longer = site.file(ROOT, "file", 0).await;
    longer.cos = cos("none");
    longer.base = Base::Append(base);
    longer.size_bytes = 150;
    longer.segments = vec![site.segment("d1", 100, 50).await];
    let longer = site.catalog.publish(longer).await.expect("published").bitfile;
    let item = leaving(&site, longer).await;
    let new = moved(&site, &item, longer, 100).await;
    assert_eq!(record(&site, new).await, Ok(()));
    // The base is in its undelete window, and has its bytes in the old file still.
    assert!(reclaimed(&site).await.is_empty());
    let item = leaving(&site, base).await;
    let new = moved(&site, &item, base, 100).await;
    assert_eq!(record(&site, new).await, Ok(()));
    assert_eq!(reclaimed(&site).await, ["d0"]);
    assert_eq!(live(&site, "d0").await, (0, 0));
}

async fn what_does_not_fit_or_is_not_claimed_is_refused_and_its_new_files_reclaimed(site: Site) {
    let mut file = site.file(ROOT, "file", 100).await;
    file.cos = cos("none");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    let item = leaving(&site, bitfile).await;
    let short = moved(&site, &item, bitfile, 99).await;
    assert_eq!(record(&site, short).await, Err(CatalogRefusal::Misfit));
    let mut other = moved(&site, &item, bitfile, 100).await;
    other.segments[0].crc32c += 1;
    assert_eq!(record(&site, other).await, Err(CatalogRefusal::Misfit), "other bytes");
    let mut same = moved(&site, &item, bitfile, 100).await;
    same.segments[0] = site.segment("d0", 0, 100).await;
    assert_eq!(record(&site, same).await, Err(CatalogRefusal::Misfit), "it would not leave");
    site.catalog.cancel_work(vec![item.id]).await.expect("cancelled");
    let late = moved(&site, &item, bitfile, 100).await;
    assert_eq!(record(&site, late).await, Err(CatalogRefusal::Stale));
    assert_eq!(reclaimed(&site).await, ["d1", "d1", "d0", "d1"]);
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    let segment = &located.copy(DISK_COPY).expect("a disk copy").segments[0];
    assert!(segment.extent.volume == volume("d0") && matches!(segment.extent.place, Place::Disk { .. }));
    assert_eq!((live(&site, "d0").await, live(&site, "d1").await), ((100, 1), (0, 0)));
}

async fn a_file_that_a_migration_reads_is_left_alone(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    site.pass(2 * MINUTE);
    let migration = site.claim(WorkKind::Migrate, "single").await;
    assert_eq!(migration.len(), 1);
    let item = leaving(&site, bitfile).await;
    let new = moved(&site, &item, bitfile, 100).await;
    assert_eq!(record(&site, new).await, Err(CatalogRefusal::Busy));
    site.write_container(migration, 1, "T1").await;
    let new = moved(&site, &item, bitfile, 100).await;
    assert_eq!(record(&site, new).await, Ok(()));
}
