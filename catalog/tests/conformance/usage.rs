//! What lies in a bucket, counted page by page; on both databases.

use crate::objects::{bucket, object};
use crate::site::*;
use crate::uploads::{begin, part};
use catalog::*;
use wire::id::EntryId;

on_both! {
    a_bucket_is_counted_alike_in_pages_of_any_size;
    a_count_is_kept_with_its_time_until_the_next_and_goes_with_the_bucket;
}

async fn count(site: &Site, bucket: EntryId, page: u32) -> BucketUsage {
    let mut count = site.catalog.begin_count(bucket);
    loop {
        match site.catalog.count_on(count, page).await.expect("a page") {
            Counted::Part(more) => count = more,
            Counted::Whole(usage) => return usage,
        }
    }
}

async fn put(site: &Site, bucket: EntryId, key: &str) {
    let new = object(site, bucket, key, key).await;
    site.catalog.put_object(new).await.unwrap_or_else(|error| panic!("{key}: {error}"));
}

async fn a_bucket_is_counted_alike_in_pages_of_any_size(site: Site) {
    let (photos, other) = (bucket(&site, "photos").await, bucket(&site, "other").await);
    assert_eq!(count(&site, photos, 10).await, BucketUsage { counted: site.catalog.now(), ..Default::default() });
    site.catalog.set_versioning(photos, Versioning::Enabled, false).await.expect("set");
    for key in ["a", "a/b/c", "a/b/d", "a/", "e"] {
        put(&site, photos, key).await;
    }
    // By another door, in a directory that is of no key.
    let inner = site.directory_in(photos, "inner").await;
    site.publish(inner, "f", 1000).await;
    site.directory_in(photos, "empty").await;
    put(&site, other, "a").await;
    // Three more versions of one key, one of them current; a key that is hidden.
    for _ in 0..3 {
        put(&site, photos, "a/b/c").await;
    }
    let hide = DeleteObject {
        bucket: photos,
        key: "e".to_owned(),
        version: None,
        precondition: Precondition::default(),
        owner: account("alice"),
        bypass: false,
        only_hidden: false,
        cause: Cause::default(),
    };
    site.catalog.delete_object(hide).await.expect("hidden");
    for (key, parts) in [("u", 2), ("u", 0), ("v", 1)] {
        let upload = begin(&site, photos, key).await;
        for number in 1..=parts {
            part(&site, &upload, number, 20).await;
        }
    }
    begin(&site, other, "u").await;
    let expected = BucketUsage {
        current: Amount { count: 5, bytes: 1040 },
        noncurrent: Amount { count: 4, bytes: 40 },
        markers: 1,
        uploads: 3,
        parts: Amount { count: 3, bytes: 60 },
        counted: site.catalog.now(),
    };
    for page in [1, 2, 3, 1000] {
        assert_eq!(count(&site, photos, page).await, expected, "in pages of {page}");
    }
}

async fn a_count_is_kept_with_its_time_until_the_next_and_goes_with_the_bucket(site: Site) {
    let (photos, other) = (bucket(&site, "photos").await, bucket(&site, "other").await);
    put(&site, photos, "a").await;
    let first = count(&site, photos, 1000).await;
    site.catalog.keep_usage(photos, first).await.expect("kept");
    assert_eq!(site.catalog.bucket_usages(&[photos, other]).await.expect("usages"), [(photos, first)]);
    site.pass(HOUR);
    put(&site, photos, "b").await;
    assert_eq!(site.catalog.bucket_usages(&[photos]).await.expect("usages"), [(photos, first)], "as of its time");
    let second = count(&site, photos, 1000).await;
    site.catalog.keep_usage(photos, second).await.expect("kept");
    assert_eq!(site.catalog.bucket_usages(&[photos]).await.expect("usages"), [(photos, second)]);
    assert_eq!((second.current.count, second.counted), (2, first.counted.after(HOUR)));

    let empty = count(&site, other, 1000).await;
    site.catalog.keep_usage(other, empty).await.expect("kept");
    site.catalog.delete_bucket(other).await.expect("an empty bucket");
    assert!(site.catalog.bucket_usages(&[other]).await.expect("usages").is_empty());
    // A count that was under way when the bucket went is of nothing.
    site.catalog.keep_usage(other, empty).await.expect("an answer");
    assert!(site.catalog.bucket_usages(&[other]).await.expect("usages").is_empty());
}
