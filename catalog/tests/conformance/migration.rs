//! Recording containers: copies, positions, fencing, repack; on both databases.

use catalog::*;
use wire::extent::Place;

use crate::site::*;

on_both! {
    a_file_is_complete_when_all_its_copies_are_on_tape;
    a_container_at_a_wrong_position_is_stale_and_records_nothing;
    a_fence_whose_lease_went_to_another_is_refused;
    a_deleted_file_is_not_recorded_but_the_tape_moves_on;
    two_copies_never_lie_on_one_volume;
    a_claim_taken_over_by_another_is_stale;
    a_copy_may_be_written_to_several_cartridges;
    repack_moves_a_copy_and_empties_the_volume;
    bitfiles_of_a_volume_come_in_the_order_of_their_places;
}

async fn a_file_is_complete_when_all_its_copies_are_on_tape(site: Site) {
    let mut file = site.file(ROOT, "file", 100).await;
    file.cos = cos("dual");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "dual").await;
    let first = site.write_container(work.clone(), 1, "T1").await;
    assert_eq!(first, ContainerRecorded { more_wanted: vec![bitfile], ..ContainerRecorded::default() });
    let purged = site.catalog.purge(vec![bitfile], MINUTE).await.expect("an answer");
    assert_eq!(purged, [(bitfile, Purged::NotOnTape)]);
    assert!(site.catalog.purge_candidates(&volume("d0"), 10).await.expect("candidates").is_empty());
    let again = site.write_container(work.clone(), 1, "T3").await;
    assert_eq!(again.refused, [(bitfile, CatalogRefusal::Present)]);
    let second = site.write_container(work, 2, "T2").await;
    assert_eq!(second.complete, [bitfile]);

    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    assert_eq!(located.bitfile.residency, Residency { on_disk: true, tape_copies: 2, tape_copies_wanted: 2 });
    let place = located.copy(2).expect("copy 2").segments[0].extent.place;
    assert_eq!(place, Place::Tape { container: 1, block: 0, skip_bytes: 512 });
    let t1 = site.catalog.volume(&volume("T1")).await.expect("the volume");
    assert_eq!((t1.state, t1.live_bytes), (VolumeState::Filling, 100));
    assert_eq!(t1.position(), Some(TapePosition { next_container: 2, next_block: 2 }));
    assert!(site.catalog.work_items(None, None, 10).await.expect("the queue").is_empty());
}

async fn a_container_at_a_wrong_position_is_stale_and_records_nothing(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "single").await;
    let mut container = site.container(work, 1, "T1").await;
    container.before.next_block = 17;
    let refused = site.catalog.record_container(container.clone()).await;
    assert!(matches!(refused, Err(CatalogError::Stale { .. })));
    container.volume = volume("T9");
    assert!(matches!(site.catalog.record_container(container).await, Err(CatalogError::Inconsistent { .. })));
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    assert_eq!(located.bitfile.residency.tape_copies, 0);
    assert_eq!(site.catalog.volume(&volume("T1")).await.expect("a volume").live_segments, 0);
}

async fn a_fence_whose_lease_went_to_another_is_refused(site: Site) {
    site.publish(ROOT, "file", 100).await;
    site.pass(2 * MINUTE);
    let epoch = site.catalog.lease("volume/T1", &holder("gw1"), MINUTE).await.expect("a lease").expect("free");
    let work = site.claim(WorkKind::Migrate, "single").await;
    let mut container = site.container(work, 1, "T1").await;
    container.fence = Some(Fence { lease: "volume/T1".to_owned(), epoch });
    site.pass(2 * MINUTE);
    site.catalog.lease("volume/T1", &holder("gw2"), MINUTE).await.expect("a lease").expect("it ran out");
    let refused = site.catalog.record_container(container).await;
    assert!(matches!(refused, Err(CatalogError::Stale { what }) if what == "lease volume/T1"));
}

async fn a_deleted_file_is_not_recorded_but_the_tape_moves_on(site: Site) {
    let gone = site.publish(ROOT, "gone", 100).await;
    let stays = site.publish(ROOT, "stays", 100).await;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "single").await;
    site.catalog.delete_file(gone.entry, None).await.expect("deleted");
    let recorded = site.write_container(work, 1, "T1").await;
    assert_eq!(recorded.refused, [(gone.bitfile, CatalogRefusal::Stale)]);
    assert_eq!(recorded.complete, [stays.bitfile]);
    let t1 = site.catalog.volume(&volume("T1")).await.expect("a volume");
    assert_eq!((t1.live_bytes, t1.position().expect("a cartridge").next_container), (100, 2));
}

async fn two_copies_never_lie_on_one_volume(site: Site) {
    let mut file = site.file(ROOT, "file", 100).await;
    file.cos = cos("dual");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "dual").await;
    site.write_container(work.clone(), 1, "T1").await;
    let recorded = site.write_container(work, 2, "T1").await;
    assert_eq!(recorded.refused, [(bitfile, CatalogRefusal::SameVolume)]);
}

async fn a_claim_taken_over_by_another_is_stale(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    site.pass(2 * MINUTE);
    let old = site.claim(WorkKind::Migrate, "single").await;
    site.pass(2 * MINUTE);
    let new = site.catalog.claim(claim(WorkKind::Migrate, "single", "gw2")).await.expect("a claim");
    assert_eq!(new.len(), 1, "the lease ran out");
    let recorded = site.write_container(old, 1, "T1").await;
    assert_eq!(recorded.refused, [(bitfile, CatalogRefusal::Stale)]);
    assert_eq!(site.write_container(new, 1, "T1").await.complete, [bitfile]);
}

async fn a_copy_may_be_written_to_several_cartridges(site: Site) {
    let bitfile = site.publish(ROOT, "file", 100).await.bitfile;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "single").await;
    let mut first = site.container(work.clone(), 1, "T1").await;
    first.members[0].segments = vec![tape_segment("T1", 1, 0, 0, 60)];
    let recorded = site.catalog.record_container(first).await.expect("recorded");
    assert_eq!(recorded.more_wanted, [bitfile]);
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    assert!(located.copy(1).is_none() && !located.copies[1].complete);
    let mut second = site.container(work, 1, "T3").await;
    second.members[0].segments = vec![tape_segment("T3", 1, 0, 60, 41)];
    let misfit = site.catalog.record_container(second.clone()).await.expect("recorded");
    assert_eq!(misfit.refused, [(bitfile, CatalogRefusal::Misfit)]);
    second.before = site.catalog.volume(&volume("T3")).await.expect("a volume").position().expect("a cartridge");
    second.members[0].segments = vec![tape_segment("T3", 2, 5, 60, 40)];
    assert_eq!(site.catalog.record_container(second).await.expect("recorded").complete, [bitfile]);
    let located = site.catalog.locate_one(bitfile).await.expect("the bitfile");
    assert_eq!(located.copy(1).expect("complete").segments.len(), 2);
}

async fn repack_moves_a_copy_and_empties_the_volume(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let work = NewWork {
        kind: WorkKind::Repack,
        subject: Subject::Bitfile(file.bitfile),
        pool: "T1".to_owned(),
        bytes: 100,
        not_before: site.catalog.now(),
        deadline: None,
    };
    let id = site.catalog.enqueue(vec![work.clone()]).await.expect("queued");
    assert_eq!(site.catalog.enqueue(vec![work]).await.expect("queued once"), id);
    assert!(matches!(site.catalog.relabel(&volume("T1"), 3, None).await, Err(CatalogError::InUse { .. })));
    let work = site.claim(WorkKind::Repack, "T1").await;
    let recorded = site.write_container(work, 1, "T3").await;
    assert_eq!(recorded.complete, [file.bitfile]);
    let located = site.catalog.locate_one(file.bitfile).await.expect("the bitfile");
    assert_eq!(located.bitfile.residency.tape_copies, 1);
    let segments = &located.copy(1).expect("the copy").segments;
    assert_eq!((segments.len(), segments[0].extent.volume.as_str()), (1, "T3"));
    let request = site.request(file.bitfile, "alice").await;
    assert_eq!(request.volume, Some(volume("T3")), "it is recalled from where it lies now");
    assert_eq!(site.catalog.relabel(&volume("T1"), 3, None).await.expect("empty"), 1);
    let t1 = site.catalog.volume(&volume("T1")).await.expect("a volume");
    assert_eq!((t1.state, t1.position().expect("a cartridge").next_block), (VolumeState::Empty, 3));
}

async fn bitfiles_of_a_volume_come_in_the_order_of_their_places(site: Site) {
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push(site.publish(ROOT, &format!("file{number}"), 10).await.bitfile);
    }
    site.migrate("single", 1, "T1").await;
    for label in ["T1", "d0"] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = site.catalog.bitfiles_on(&volume(label), after.as_deref(), 2).await.expect("a page");
            found.extend(page.iter().map(|located| located.bitfile.id));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{label}");
    }
    assert!(site.catalog.bitfiles_on(&volume("T1"), Some("nonsense"), 2).await.is_err());
}
