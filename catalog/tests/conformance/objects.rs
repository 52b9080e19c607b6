//! Buckets and objects: keys in the tree, versions, conditions, listings; on both databases.

use crate::site::*;
use catalog::*;
use wire::checksum::Sums;
use wire::id::{EntryId, StorageClassName};

on_both! {
    a_bucket_is_a_directory_of_its_owners;
    a_key_lies_in_the_tree_and_its_directories_go_with_it;
    keys_are_listed_in_the_order_of_bytes_whatever_is_a_directory;
    a_delimiter_makes_prefixes_and_pages_go_on_behind_them;
    conditions_are_checked_where_the_write_is;
    versions_are_kept_hidden_and_brought_back;
    a_suspended_bucket_keeps_one_null_version;
    versions_are_listed_newest_first_page_by_page;
    a_version_that_is_current_again_is_left_by_who_wants_hidden_ones;
    all_buckets_are_listed_by_name_page_by_page;
    a_locked_version_stays;
    other_doors_leave_a_locked_version_where_it_is;
    a_file_that_another_door_removes_is_hidden_where_versions_are_kept;
    a_copy_shares_the_bytes;
    a_removed_version_is_reclaimed_and_not_paid_for;
    a_nameless_version_sinks_to_tape_and_comes_back_like_any_other;
    access_keys_are_of_accounts_and_can_be_disabled;
}

pub(crate) async fn bucket(site: &Site, name: &str) -> EntryId {
    let new = NewBucket {
        parent: ROOT,
        name: name.to_owned(),
        owner: account("alice"),
        group: group("users"),
        mode: 0o755,
        locking: false,
        settings: "{}".to_owned(),
    };
    site.catalog.create_bucket(new).await.expect("a bucket").entry
}

pub(crate) async fn object(site: &Site, bucket: EntryId, key: &str, etag: &str) -> NewObject {
    NewObject {
        bucket,
        key: key.to_owned(),
        precondition: Precondition::default(),
        owner: account("alice"),
        group: group("users"),
        mode: 0o600,
        acl: None,
        cos: cos("single"),
        disk_class: StorageClassName::new("disk").expect("a name"),
        size_bytes: 10,
        sums: Sums { adler32: 7, crc32c: 9, md5: None, sha256: None },
        base: Base::Empty,
        segments: vec![site.segment("d0", 0, 10).await],
        etag: etag.to_owned(),
        storage_class: None,
        attributes: "{}".to_owned(),
        hold: false,
        retain: None,
        cause: Cause::default(),
    }
}

async fn put(site: &Site, bucket: EntryId, key: &str) -> Object {
    put_as(site, bucket, key, key).await
}

pub(crate) async fn put_as(site: &Site, bucket: EntryId, key: &str, etag: &str) -> Object {
    let new = object(site, bucket, key, etag).await;
    site.catalog.put_object(new).await.unwrap_or_else(|error| panic!("{key}: {error}"))
}

pub(crate) fn delete(bucket: EntryId, key: &str, version: Option<Version>) -> DeleteObject {
    let version =
        version.map(|version| if version.plain { VersionRef::Plain } else { VersionRef::Number(version.number) });
    DeleteObject {
        bucket,
        key: key.to_owned(),
        version,
        precondition: Precondition::default(),
        owner: account("alice"),
        bypass: false,
        only_hidden: false,
        cause: Cause::default(),
    }
}

pub(crate) async fn current(site: &Site, bucket: EntryId, key: &str) -> Option<Object> {
    site.catalog.object(bucket, key, None).await.expect("an answer")
}

fn keys(page: &ObjectPage) -> Vec<String> {
    page.objects.iter().map(|object| object.key.clone()).collect()
}

async fn list(site: &Site, bucket: EntryId, listing: ObjectListing) -> ObjectPage {
    site.catalog.list_objects(bucket, &listing).await.expect("a page")
}

async fn a_bucket_is_a_directory_of_its_owners(site: Site) {
    let entry = bucket(&site, "photos").await;
    let found = site.catalog.bucket("photos").await.expect("an answer").expect("the bucket");
    assert_eq!((found.entry, found.versioning), (entry, Versioning::Off));
    assert!(matches!(site.catalog.remove_directory(entry).await, Err(CatalogError::InUse { .. })));
    let again = NewBucket {
        parent: ROOT,
        name: "photos".to_owned(),
        owner: account("alice"),
        group: group("users"),
        mode: 0o755,
        locking: false,
        settings: String::new(),
    };
    assert!(matches!(site.catalog.create_bucket(again.clone()).await, Err(CatalogError::Exists { .. })));

    let own = site.directory("own").await;
    let adopted = site.catalog.create_bucket(NewBucket { name: "own".to_owned(), ..again.clone() }).await;
    assert_eq!(adopted.expect("a directory of the owner's").entry, own);
    let foreign = NewBucket { name: "own2".to_owned(), owner: account("bob"), ..again };
    site.directory("own2").await;
    assert!(matches!(site.catalog.create_bucket(foreign).await, Err(CatalogError::Exists { .. })));
    let names = |found: Vec<Bucket>| found.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>();
    assert_eq!(names(site.catalog.buckets(&account("alice"), "", "", 10).await.expect("buckets")), ["own", "photos"]);

    put(&site, entry, "a/b").await;
    assert!(matches!(site.catalog.delete_bucket(entry).await, Err(CatalogError::NotEmpty { .. })));
    site.catalog.delete_object(delete(entry, "a/b", None)).await.expect("removed");
    site.catalog.delete_bucket(entry).await.expect("an empty bucket is removed");
    assert!(site.catalog.bucket("photos").await.expect("an answer").is_none());
}

async fn a_key_lies_in_the_tree_and_its_directories_go_with_it(site: Site) {
    let bucket = bucket(&site, "b").await;
    for key in ["a", "a/b", "a/", "a//b", "/", "a/b/c"] {
        let put = put(&site, bucket, key).await;
        let found = current(&site, bucket, key).await.unwrap_or_else(|| panic!("{key}"));
        assert_eq!((found.version, found.key.as_str()), (put.version, key));
        assert_eq!(found.data.expect("bytes").etag(), key);
    }
    let path = site.catalog.resolve(&path("/b/a/b/c")).await.expect("an answer");
    assert!(path.entry().expect("other doors see it").file().is_some());
    for key in ["a", "a/b", "a/", "a//b", "/", "a/b/c"] {
        site.catalog.delete_object(delete(bucket, key, None)).await.expect("removed");
        assert!(current(&site, bucket, key).await.is_none(), "{key}");
    }
    let left = site.catalog.list(bucket, &everything()).await.expect("a listing");
    assert!(left.items.is_empty(), "{:?}", left.items);
    // A directory that another door made stays.
    let made = site.directory_in(bucket, "kept").await;
    put(&site, bucket, "kept/x").await;
    site.catalog.delete_object(delete(bucket, "kept/x", None)).await.expect("removed");
    assert!(site.catalog.entry(made).await.expect("an answer").is_some());
    let long = "k".repeat(1025);
    for (bad, why) in [("", "empty"), ("a\0", "NUL"), (long.as_str(), "long")] {
        let new = NewObject { key: bad.to_owned(), ..object(&site, bucket, "x", "x").await };
        assert!(site.catalog.put_object(new).await.is_err(), "{why}");
    }
}

async fn keys_are_listed_in_the_order_of_bytes_whatever_is_a_directory(site: Site) {
    let bucket = bucket(&site, "b").await;
    let mut all = ["a", "a!", "a-b", "a.b", "a/", "a/b", "a//x", "a0", "ab", "b/c/d", "é", "\u{10000}", "B", "z/"];
    for key in all {
        put(&site, bucket, key).await;
    }
    all.sort_unstable();
    let whole = list(&site, bucket, ObjectListing { limit: 1000, ..ObjectListing::default() }).await;
    assert_eq!(keys(&whole), all);
    assert!(!whole.more);
    for limit in 1..all.len() {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let limit = u32::try_from(limit).expect("small");
            let page = list(&site, bucket, ObjectListing { limit, after, ..ObjectListing::default() }).await;
            seen.extend(keys(&page));
            if !page.more {
                break;
            }
            after = page.last;
        }
        assert_eq!(seen, all, "pages of {limit}");
    }
    let prefixed =
        list(&site, bucket, ObjectListing { prefix: "a/".into(), limit: 9, ..ObjectListing::default() }).await;
    assert_eq!(keys(&prefixed), ["a/", "a//x", "a/b"]);
}

async fn a_delimiter_makes_prefixes_and_pages_go_on_behind_them(site: Site) {
    let bucket = bucket(&site, "b").await;
    let all = ["asdf", "boo/bar", "boo/baz/xyzzy", "boo/", "cquux/thud", "cquux/bla", "zz-1", "zz-2/x", "zz/y"];
    for key in all {
        put(&site, bucket, key).await;
    }
    for (prefix, delimiter) in [("", "/"), ("", "a"), ("boo/", "/"), ("zz", "/"), ("", "-"), ("b", "o/"), ("q", "/")] {
        // What the rules say, by hand.
        let mut expected: Vec<String> = Vec::new();
        let mut sorted = all.to_vec();
        sorted.sort_unstable();
        for key in sorted.iter().filter(|key| key.starts_with(prefix)) {
            let rest = &key[prefix.len()..];
            let shown =
                rest.find(delimiter).map_or((*key).to_owned(), |at| format!("{prefix}{}{delimiter}", &rest[..at]));
            if expected.last() != Some(&shown) {
                expected.push(shown);
            }
        }
        for limit in [1, 2, 3, 100] {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let listing =
                    ObjectListing { after, prefix: prefix.to_owned(), delimiter: Some(delimiter.to_owned()), limit };
                let page = list(&site, bucket, listing).await;
                let mut shown = keys(&page);
                shown.extend(page.prefixes.clone());
                assert!(shown.len() <= limit as usize);
                shown.sort_unstable();
                seen.extend(shown);
                if !page.more {
                    break;
                }
                after = page.last;
            }
            assert_eq!(seen, expected, "prefix {prefix:?}, delimiter {delimiter:?}, pages of {limit}");
        }
    }
    // A marker within a common prefix shows it if there is more in it.
    let within = |after: &str| ObjectListing {
        after: Some(after.to_owned()),
        delimiter: Some("/".to_owned()),
        limit: 1,
        ..ObjectListing::default()
    };
    assert_eq!(list(&site, bucket, within("boo/bar")).await.prefixes, ["boo/"]);
    assert_eq!(list(&site, bucket, within("boo/baz/xyzzy")).await.prefixes, ["cquux/"]);
}

async fn conditions_are_checked_where_the_write_is(site: Site) {
    let bucket = bucket(&site, "b").await;
    let with = |precondition| async {
        let new = object(&site, bucket, "k", "two").await;
        site.catalog.put_object(NewObject { precondition, ..new }).await
    };
    let matches = |tag: &str| Precondition { matches: Some(Tags::Of(vec![tag.to_owned()])), ..Precondition::default() };
    let nothing = Precondition { matches_none: Some(Tags::Any), ..Precondition::default() };
    assert!(matches!(with(matches("one")).await, Err(CatalogError::NotFound { .. })));
    put_as(&site, bucket, "k", "one").await;
    assert!(matches!(with(nothing.clone()).await, Err(CatalogError::Changed { .. })));
    assert!(matches!(with(matches("other")).await, Err(CatalogError::Changed { .. })));
    let wrong = DeleteObject { precondition: matches("other"), ..delete(bucket, "k", None) };
    assert!(matches!(site.catalog.delete_object(wrong).await, Err(CatalogError::Changed { .. })));
    with(matches("one")).await.expect("the tag matches");
    assert_eq!(current(&site, bucket, "k").await.expect("there").data.expect("bytes").etag(), "two");
    let size = Precondition { size_bytes: Some(11), ..Precondition::default() };
    let wrong = DeleteObject { precondition: size, ..delete(bucket, "k", None) };
    assert!(matches!(site.catalog.delete_object(wrong).await, Err(CatalogError::Changed { .. })));
}

async fn versions_are_kept_hidden_and_brought_back(site: Site) {
    let bucket = bucket(&site, "b").await;
    let plain = put_as(&site, bucket, "d/k", "0").await;
    assert!(plain.version.plain);
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let first = put_as(&site, bucket, "d/k", "1").await;
    let second = put_as(&site, bucket, "d/k", "2").await;
    assert!(first.version.number < second.version.number && !second.version.plain);
    let at = |version: VersionRef| site.catalog.object(bucket, "d/k", Some(version));
    let tag = |object: Option<Object>| object.expect("there").data.expect("bytes").etag();
    assert_eq!(tag(at(VersionRef::Plain).await.expect("an answer")), "0");
    assert_eq!(tag(at(VersionRef::Number(first.version.number)).await.expect("an answer")), "1");
    assert_eq!(site.usage("alice").await, (30, 3), "old versions are paid for");

    let marker = site.catalog.delete_object(delete(bucket, "d/k", None)).await.expect("hidden");
    assert!(marker.marker);
    let hidden = current(&site, bucket, "d/k").await.expect("a delete marker");
    assert!(hidden.data.is_none() && hidden.latest);
    let none = site.catalog.resolve(&path("/b/d/k")).await.expect("an answer");
    assert!(none.entry().is_err(), "other doors see that it is gone");
    // Without the marker, what was under it is current again, for every door.
    site.catalog.delete_object(delete(bucket, "d/k", marker.version)).await.expect("the marker goes");
    assert_eq!(tag(current(&site, bucket, "d/k").await), "2");
    assert!(site.catalog.resolve(&path("/b/d/k")).await.expect("an answer").entry().is_ok());
    site.catalog.delete_object(delete(bucket, "d/k", Some(second.version))).await.expect("the newest goes");
    assert_eq!(tag(current(&site, bucket, "d/k").await), "1");
    for version in [plain.version, first.version] {
        site.catalog.delete_object(delete(bucket, "d/k", Some(version))).await.expect("removed");
    }
    assert_eq!(site.usage("alice").await, (0, 0));
    site.catalog.delete_bucket(bucket).await.expect("nothing is left");
}

async fn a_suspended_bucket_keeps_one_null_version(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let kept = put_as(&site, bucket, "k", "1").await;
    site.catalog.set_versioning(bucket, Versioning::Suspended, false).await.expect("set");
    put_as(&site, bucket, "k", "2").await;
    let third = put_as(&site, bucket, "k", "3").await;
    assert!(third.version.plain);
    let listing = VersionListing { limit: 10, ..VersionListing::default() };
    let page = site.catalog.list_versions(bucket, &listing).await.expect("a page");
    let tags: Vec<_> = page.objects.iter().map(|object| object.data.as_ref().expect("bytes").etag()).collect();
    assert_eq!(tags, ["3", "1"], "the null version was replaced");
    let marker = site.catalog.delete_object(delete(bucket, "k", None)).await.expect("hidden");
    assert!(marker.marker && marker.version.expect("a version").plain);
    let page = site.catalog.list_versions(bucket, &listing).await.expect("a page");
    let shown: Vec<_> = page.objects.iter().map(|object| (object.version.plain, object.data.is_none())).collect();
    assert_eq!(shown, [(true, true), (false, false)]);
    assert_eq!(page.objects[1].version, kept.version);
}

async fn versions_are_listed_newest_first_page_by_page(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let mut expected = Vec::new();
    for key in ["a", "b/x", "b/y", "c"] {
        let mut versions = Vec::new();
        for round in 0..3 {
            versions.push(put_as(&site, bucket, key, &round.to_string()).await.version.number);
        }
        if key == "b/y" {
            let marker = site.catalog.delete_object(delete(bucket, key, None)).await.expect("hidden");
            versions.push(marker.version.expect("a version").number);
        }
        expected.extend(versions.into_iter().rev().map(|number| (key.to_owned(), number)));
    }
    for limit in 1..=expected.len() {
        let (mut seen, mut after, mut latest) = (Vec::new(), None, 0);
        loop {
            let limit = u32::try_from(limit).expect("small");
            let listing = VersionListing { after, limit, ..VersionListing::default() };
            let page = site.catalog.list_versions(bucket, &listing).await.expect("a page");
            latest += page.objects.iter().filter(|object| object.latest).count();
            seen.extend(page.objects.iter().map(|object| (object.key.clone(), object.version.number)));
            if !page.more {
                break;
            }
            after = page.objects.last().map(|object| (object.key.clone(), Some(object.version.number)));
        }
        assert_eq!(seen, expected, "pages of {limit}");
        assert_eq!(latest, 4, "pages of {limit}");
    }
    let listing = VersionListing { delimiter: Some("/".to_owned()), limit: 100, ..VersionListing::default() };
    let page = site.catalog.list_versions(bucket, &listing).await.expect("a page");
    assert_eq!((page.objects.len(), page.prefixes), (6, vec!["b/".to_owned()]));
}

async fn a_version_that_is_current_again_is_left_by_who_wants_hidden_ones(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let first = put_as(&site, bucket, "k", "1").await.version;
    let second = put_as(&site, bucket, "k", "2").await.version;
    let hidden = |version| DeleteObject { only_hidden: true, ..delete(bucket, "k", Some(version)) };
    let refused = site.catalog.delete_object(hidden(second)).await;
    assert!(matches!(refused, Err(CatalogError::Changed { .. })));
    site.catalog.delete_object(delete(bucket, "k", Some(second))).await.expect("removed");
    let refused = site.catalog.delete_object(hidden(first)).await;
    assert!(matches!(refused, Err(CatalogError::Changed { .. })), "it is current again");
    put_as(&site, bucket, "k", "3").await;
    site.catalog.delete_object(hidden(first)).await.expect("removed");
    assert!(site.catalog.object(bucket, "k", Some(VersionRef::Number(first.number))).await.expect("a look").is_none());
}

async fn all_buckets_are_listed_by_name_page_by_page(site: Site) {
    for name in ["c", "a", "b"] {
        bucket(&site, name).await;
    }
    let names = |found: Vec<catalog::Bucket>| found.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>();
    assert_eq!(names(site.catalog.all_buckets("", 2).await.expect("a page")), ["a", "b"]);
    assert_eq!(names(site.catalog.all_buckets("b", 2).await.expect("a page")), ["c"]);
}

async fn a_locked_version_stays(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, true).await.expect("set");
    let until = site.catalog.now().after(HOUR);
    let retain = Some(Retention { until, compliance: false });
    let new = NewObject { retain, ..object(&site, bucket, "k", "1").await };
    let put = site.catalog.put_object(new).await.expect("published");
    let gone = delete(bucket, "k", Some(put.version));
    assert!(matches!(site.catalog.delete_object(gone.clone()).await, Err(CatalogError::Locked { .. })));
    let seen = current(&site, bucket, "k").await.expect("there");
    let strict = Some(Retention { until, compliance: true });
    site.catalog.change_object(&seen, "{\"x\":1}".to_owned(), true, strict).await.expect("changed");
    assert!(matches!(
        site.catalog.change_object(&seen, "{}".to_owned(), false, None).await,
        Err(CatalogError::Changed { .. })
    ));
    let bypass = DeleteObject { bypass: true, ..gone.clone() };
    assert!(matches!(site.catalog.delete_object(bypass.clone()).await, Err(CatalogError::Locked { .. })));
    site.pass(2 * HOUR);
    assert!(matches!(site.catalog.delete_object(gone.clone()).await, Err(CatalogError::Locked { .. })), "on hold");
    let seen = current(&site, bucket, "k").await.expect("there");
    site.catalog
        .change_object(&seen, "{}".to_owned(), false, seen.data.clone().expect("bytes").retain)
        .await
        .expect("released");
    site.catalog.delete_object(gone).await.expect("its time has passed");
}

/// A file as FTP writes it over what is there.
async fn rewrite(site: &Site, parent: EntryId, name: &str) -> Result<Published> {
    let mut file = site.file(parent, name, 10).await;
    file.expected = Expected::Any;
    site.catalog.publish(file).await
}

async fn other_doors_leave_a_locked_version_where_it_is(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, true).await.expect("set");
    let new = NewObject { hold: true, ..object(&site, bucket, "d/k", "1").await };
    let put = site.catalog.put_object(new).await.expect("published");
    let entry = put.data.expect("bytes").entry.expect("a name");
    let found = site.catalog.entry(entry).await.expect("an answer").expect("there");
    let directory = found.parent.expect("a directory");
    let move_to = |entry, to_parent, to_name: &str| Rename {
        entry,
        to_parent,
        to_name: to_name.to_owned(),
        replace: true,
        twins: Twins::Refuse,
    };
    let locked = |refused: Result<()>| assert!(matches!(refused, Err(CatalogError::Locked { .. })), "{refused:?}");
    locked(rewrite(&site, directory, "k").await.map(|_| ()));
    locked(site.catalog.rename(move_to(entry, ROOT, "elsewhere")).await.map(|_| ()));
    locked(site.catalog.rename(move_to(directory, ROOT, "elsewhere")).await.map(|_| ()));
    let other = site.publish(ROOT, "other", 10).await;
    locked(site.catalog.rename(move_to(other.entry, directory, "k")).await.map(|_| ()));
    assert_eq!(current(&site, bucket, "d/k").await.expect("there").version, put.version);
}

async fn a_file_that_another_door_removes_is_hidden_where_versions_are_kept(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, true).await.expect("set");
    let new = NewObject { hold: true, ..object(&site, bucket, "d/k", "1").await };
    let put = site.catalog.put_object(new).await.expect("published");
    let entry = put.data.as_ref().expect("bytes").entry.expect("a name");
    site.catalog.delete_file(entry, None).await.expect("hidden");
    let newest = current(&site, bucket, "d/k").await.expect("a delete marker");
    assert!(newest.data.is_none() && newest.latest);
    let kept = site.catalog.object(bucket, "d/k", Some(VersionRef::Number(put.version.number))).await;
    assert!(kept.expect("an answer").expect("the version").data.expect("bytes").hold);
    assert_eq!(site.usage("alice").await, (10, 1), "what is kept is paid for");
    site.catalog.delete_object(delete(bucket, "d/k", Some(newest.version))).await.expect("removed");
    assert_eq!(current(&site, bucket, "d/k").await.expect("back").version, put.version);
    site.catalog.set_versioning(bucket, Versioning::Suspended, false).await.expect("set");
    let plain = rewrite(&site, bucket, "plain").await.expect("published");
    site.catalog.delete_file(plain.entry, None).await.expect("removed");
    assert_eq!(site.usage("alice").await, (10, 1), "a null version is not kept");
}

async fn a_copy_shares_the_bytes(site: Site) {
    let bucket = bucket(&site, "b").await;
    let source = put(&site, bucket, "from").await.data.expect("bytes").file;
    let before = site.catalog.volume(&volume("d0")).await.expect("a volume").live_segments;
    let new = object(&site, bucket, "to", "from").await;
    let new = NewObject { base: Base::Append(source.bitfile), segments: Vec::new(), ..new };
    let copy = site.catalog.put_object(new).await.expect("a copy").data.expect("bytes").file;
    let located = site.catalog.locate(&[source.bitfile, copy.bitfile]).await.expect("both");
    let places: Vec<_> = located.iter().map(|found| found.copies[0].segments[0].extent.clone()).collect();
    assert_eq!(places[0], places[1]);
    assert_eq!(site.catalog.volume(&volume("d0")).await.expect("a volume").live_segments, before + 1);
    site.catalog.delete_object(delete(bucket, "from", None)).await.expect("removed");
    site.pass(2 * HOUR);
    let reclaimed = site.catalog.reclaim(100).await.expect("reclaimed");
    assert_eq!((reclaimed.bitfiles, reclaimed.files), (1, 0), "the copy needs the file still");
}

async fn a_removed_version_is_reclaimed_and_not_paid_for(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let first = put_as(&site, bucket, "k", "1").await;
    put_as(&site, bucket, "k", "2").await;
    site.catalog.delete_object(delete(bucket, "k", Some(first.version))).await.expect("removed");
    assert_eq!(site.usage("alice").await, (10, 1));
    site.pass(2 * HOUR);
    let reclaimed = site.catalog.reclaim(100).await.expect("reclaimed");
    assert_eq!((reclaimed.bitfiles, reclaimed.files), (1, 1));
    let gone = site.catalog.object(bucket, "k", Some(VersionRef::Number(first.version.number))).await;
    assert!(gone.expect("an answer").is_none());
}

async fn a_nameless_version_sinks_to_tape_and_comes_back_like_any_other(site: Site) {
    let bucket = bucket(&site, "b").await;
    site.catalog.set_versioning(bucket, Versioning::Enabled, false).await.expect("set");
    let first = put_as(&site, bucket, "d/k", "1").await;
    put_as(&site, bucket, "d/k", "2").await;
    let recorded = site.migrate("single", 1, "T1").await;
    assert!(recorded.refused.is_empty());
    let bitfile = first.data.expect("bytes").file.bitfile;
    let paths = site.catalog.paths_of(&[bitfile]).await.expect("paths");
    assert_eq!(paths, [(bitfile, format!("/b/d/k?versionId={}", first.version.number))]);
    let located = site.catalog.locate_one(bitfile).await.expect("there");
    assert_eq!(located.bitfile.residency.tape_copies, 1);
    site.catalog.purge(vec![bitfile], std::time::Duration::ZERO).await.expect("purged");
    let request = site.request(bitfile, "alice").await;
    assert_eq!(request.state, RequestState::Queued, "it is not deleted");
}

async fn access_keys_are_of_accounts_and_can_be_disabled(site: Site) {
    let key = |id: &str, owner: &str| AccessKey {
        id: id.to_owned(),
        account: account(owner),
        sealed: "sealed".to_owned(),
        disabled: false,
        created: site.catalog.now(),
        direct: None,
    };
    assert!(matches!(site.catalog.add_access_key(key("A", "alice")).await, Err(CatalogError::NotFound { .. })));
    let new = NewAccount {
        name: account("alice"),
        primary_group: group("users"),
        groups: Vec::new(),
        admin: false,
        disabled: false,
        home: None,
    };
    site.catalog.put_account(new).await.expect("an account");
    site.catalog.add_access_key(key("A", "alice")).await.expect("a key");
    assert!(matches!(site.catalog.add_access_key(key("A", "alice")).await, Err(CatalogError::Exists { .. })));
    assert_eq!(site.catalog.access_keys(Some(&account("alice"))).await.expect("keys").len(), 1);
    assert!(site.catalog.access_keys(Some(&account("bob"))).await.expect("keys").is_empty());
    site.catalog.disable_access_key("A", true).await.expect("disabled");
    assert!(site.catalog.access_key("A").await.expect("an answer").expect("there").disabled);
    site.catalog.add_access_key(AccessKey { direct: Some(true), ..key("B", "alice") }).await.expect("a key");
    assert_eq!(site.catalog.access_key("B").await.expect("an answer").expect("there").direct, Some(true));
    for direct in [Some(false), None, Some(true)] {
        site.catalog.direct_access_key("B", direct).await.expect("set");
        assert_eq!(site.catalog.access_key("B").await.expect("an answer").expect("there").direct, direct);
    }
    assert!(matches!(site.catalog.direct_access_key("C", None).await, Err(CatalogError::NotFound { .. })));
    site.catalog.remove_access_key("A").await.expect("removed");
    assert!(matches!(site.catalog.remove_access_key("A").await, Err(CatalogError::NotFound { .. })));
}
