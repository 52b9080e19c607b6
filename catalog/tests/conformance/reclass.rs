//! Another class of service for a version that is there; on both databases.

use catalog::*;
use wire::id::BitfileId;

use crate::objects::{bucket, current, object, put_as};
use crate::site::*;

on_both! {
    a_version_of_another_class_gets_the_copies_that_it_wants;
    what_waits_for_migration_waits_under_the_new_class;
    what_is_on_enough_tapes_needs_nothing_and_what_is_on_too_few_must_be_on_disk;
    a_version_that_is_current_no_more_is_left;
    a_file_of_another_door_is_told_its_class;
    a_class_without_tapes_keeps_the_disk_copy;
}

fn to(seen: &Object, class: &str) -> Reclass {
    let (cos, storage_class) = (cos(class), class.to_uppercase());
    Reclass { seen: seen.clone(), cos, storage_class, attributes: "{}".to_owned() }
}

fn bitfile(object: &Object) -> BitfileId {
    object.data.as_ref().expect("bytes").file.bitfile
}

/// What waits for migration: its class, and what it is.
async fn waiting(site: &Site) -> Vec<(String, Subject)> {
    let work = site.catalog.work_items(Some(WorkKind::Migrate), None, 10).await.expect("the queue");
    work.into_iter().map(|item| (item.pool, item.subject)).collect()
}

async fn residency(site: &Site, object: &Object) -> Residency {
    site.catalog.locate_one(bitfile(object)).await.expect("there").bitfile.residency
}

async fn a_version_of_another_class_gets_the_copies_that_it_wants(site: Site) {
    let bucket = bucket(&site, "b").await;
    let seen = put_as(&site, bucket, "d/k", "tag").await;
    let file = bitfile(&seen);
    assert_eq!(site.migrate("single", 1, "T1").await.complete, [file]);
    site.catalog.reclass(to(&seen, "dual")).await.expect("changed");
    assert_eq!(waiting(&site).await, [("dual".to_owned(), Subject::Bitfile(file))]);
    let purged = site.catalog.purge(vec![file], MINUTE).await.expect("an answer");
    assert_eq!(purged, [(file, Purged::NotOnTape)], "the second copy is made from it");
    assert_eq!(site.migrate("dual", 2, "T2").await.complete, [file]);
    assert!(waiting(&site).await.is_empty());
    let now = current(&site, bucket, "d/k").await.expect("the object").data.expect("bytes");
    assert_eq!(
        (now.storage_class.as_deref(), now.file.cos.as_str(), now.etag()),
        (Some("DUAL"), "dual", "tag".to_owned())
    );
    assert_eq!(now.file.residency, Residency { on_disk: true, tape_copies: 2, tape_copies_wanted: 2 });
    site.pass(HOUR);
    let purged = site.catalog.purge(vec![file], MINUTE).await.expect("an answer");
    assert!(matches!(purged[..], [(_, Purged::Freed { .. })]), "{purged:?}");
}

async fn what_waits_for_migration_waits_under_the_new_class(site: Site) {
    let bucket = bucket(&site, "b").await;
    let seen = put_as(&site, bucket, "k", "tag").await;
    let file = bitfile(&seen);
    assert_eq!(waiting(&site).await, [("single".to_owned(), Subject::Bitfile(file))]);
    site.catalog.reclass(to(&seen, "dual")).await.expect("changed");
    site.catalog.reclass(to(&seen, "dual")).await.expect("the same again");
    assert_eq!(waiting(&site).await, [("dual".to_owned(), Subject::Bitfile(file))]);
    let due = site.claim(WorkKind::Migrate, "dual").await;
    assert_eq!(due.len(), 1, "it is due at once");
    assert!(matches!(site.catalog.reclass(to(&seen, "gold")).await, Err(CatalogError::NotFound { .. })));
}

async fn what_is_on_enough_tapes_needs_nothing_and_what_is_on_too_few_must_be_on_disk(site: Site) {
    let bucket = bucket(&site, "b").await;
    let seen = put_as(&site, bucket, "k", "tag").await;
    let file = bitfile(&seen);
    site.migrate("single", 1, "T1").await;
    site.pass(HOUR);
    site.catalog.purge(vec![file], MINUTE).await.expect("purged");
    assert!(matches!(site.catalog.reclass(to(&seen, "dual")).await, Err(CatalogError::Changed { .. })));
    assert_eq!(
        residency(&site, &seen).await,
        Residency { on_disk: false, tape_copies: 1, tape_copies_wanted: 1 },
        "nothing has changed"
    );
    let same = Reclass { storage_class: "OTHER".to_owned(), ..to(&seen, "single") };
    site.catalog.reclass(same).await.expect("changed");
    assert!(waiting(&site).await.is_empty());
    let now = current(&site, bucket, "k").await.expect("the object").data.expect("bytes");
    assert_eq!(now.storage_class.as_deref(), Some("OTHER"));
}

async fn a_version_that_is_current_no_more_is_left(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let first = put_as(&site, bucket, "k", "1").await;
    let second = put_as(&site, bucket, "k", "2").await;
    assert!(matches!(site.catalog.reclass(to(&first, "dual")).await, Err(CatalogError::Changed { .. })));
    let hidden = site.catalog.object(bucket, "k", Some(VersionRef::Number(first.version.number))).await;
    let hidden = hidden.expect("an answer").expect("the version");
    site.catalog.reclass(to(&hidden, "dual")).await.expect("changed");
    let classes = async |object: &Object| site.catalog.locate_one(bitfile(object)).await.expect("there").bitfile.cos;
    assert_eq!((classes(&first).await, classes(&second).await), (cos("dual"), cos("single")));
}

async fn a_file_of_another_door_is_told_its_class(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.publish(bucket, "k", 100).await;
    let seen = current(&site, bucket, "k").await.expect("the file");
    assert_eq!(seen.data.as_ref().expect("bytes").storage_class, None);
    site.catalog.reclass(to(&seen, "dual")).await.expect("changed");
    let now = current(&site, bucket, "k").await.expect("the file");
    assert_eq!(now.version, seen.version);
    let (then, now) = (seen.data.expect("bytes"), now.data.expect("bytes"));
    assert_eq!((now.etag(), now.storage_class.as_deref()), (then.etag(), Some("DUAL")));
}

async fn a_class_without_tapes_keeps_the_disk_copy(site: Site) {
    let bucket = bucket(&site, "b").await;
    let new = NewObject { cos: cos("dual"), ..object(&site, bucket, "k", "tag").await };
    let seen = site.catalog.put_object(new).await.expect("an object");
    site.catalog.reclass(to(&seen, "none")).await.expect("changed");
    assert!(waiting(&site).await.is_empty());
    site.pass(HOUR);
    let purged = site.catalog.purge(vec![bitfile(&seen)], MINUTE).await.expect("an answer");
    assert_eq!(purged, [(bitfile(&seen), Purged::NotOnTape)]);
}
