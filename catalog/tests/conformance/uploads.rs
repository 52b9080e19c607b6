//! Uploads in parts; on both databases.

use crate::objects::{bucket, object};
use crate::site::*;
use catalog::*;
use wire::checksum::Sums;
use wire::id::{EntryId, StorageClassName};

on_both! {
    parts_become_an_object_without_a_copy;
    a_part_that_came_again_is_the_later_one;
    an_upload_that_nobody_completes_is_given_up;
    uploads_are_listed_by_key_and_number;
}

pub(crate) async fn begin(site: &Site, bucket: EntryId, key: &str) -> Upload {
    let new = NewUpload {
        bucket,
        key: key.to_owned(),
        account: account("alice"),
        cos: cos("single"),
        expires: site.catalog.now().after(HOUR),
        attributes: "{}".to_owned(),
    };
    site.catalog.create_upload(new).await.expect("an upload")
}

pub(crate) async fn part(site: &Site, upload: &Upload, number: u32, bytes: u64) -> UploadPart {
    let new = NewPart {
        upload: upload.id,
        number,
        disk_class: StorageClassName::new("disk").expect("a name"),
        size_bytes: bytes,
        sums: Sums { adler32: 5, crc32c: 6, md5: None, sha256: None },
        segments: vec![site.segment("d0", 0, bytes).await],
        etag: format!("tag{number}"),
        attributes: "{}".to_owned(),
    };
    site.catalog.put_part(new).await.expect("a part")
}

async fn complete(site: &Site, upload: &Upload, parts: Vec<UploadPart>) -> Result<Object> {
    let whole = object(site, upload.bucket, &upload.key, "whole-2").await;
    let whole = NewObject { segments: Vec::new(), ..whole };
    let complete = CompleteUpload { upload: upload.id, parts, object: whole, part_list: "[1,2]".to_owned() };
    site.catalog.complete_upload(complete).await
}

async fn parts_become_an_object_without_a_copy(site: Site) {
    let bucket = bucket(&site, "b").await;
    let upload = begin(&site, bucket, "d/k").await;
    let (second, first) = (part(&site, &upload, 2, 30).await, part(&site, &upload, 1, 20).await);
    let unused = part(&site, &upload, 7, 40).await;
    assert!(site.catalog.object(bucket, "d/k", None).await.expect("an answer").is_none(), "nothing is visible yet");
    let parts = site.catalog.upload_parts(upload.id, 0, 10).await.expect("parts");
    assert_eq!(parts, [first.clone(), second.clone(), unused]);

    let done = complete(&site, &upload, vec![first, second]).await.expect("an object");
    let data = done.data.expect("bytes");
    assert_eq!(data.file.size_bytes, 50);
    let located = site.catalog.locate_one(data.file.bitfile).await.expect("there");
    let ranges: Vec<_> =
        located.copies[0].segments.iter().map(|segment| (segment.range.offset(), segment.range.length())).collect();
    assert_eq!(ranges, [(0, 20), (20, 30)]);
    assert_eq!(site.catalog.object_parts(data.file.bitfile).await.expect("an answer").as_deref(), Some("[1,2]"));
    assert!(site.catalog.upload(upload.id).await.expect("an answer").is_none());
    let disk = site.catalog.volume(&volume("d0")).await.expect("a volume");
    assert_eq!((disk.live_bytes, disk.live_segments), (50, 2), "the unused part is not live any more");
    let garbage = site.catalog.claim(claim(WorkKind::Reclaim, "d0", "gw1")).await.expect("a claim");
    assert_eq!(garbage.len(), 1, "its file is reclaimed, the others are not");
    assert!(matches!(complete(&site, &upload, Vec::new()).await, Err(CatalogError::NotFound { .. })));
}

async fn a_part_that_came_again_is_the_later_one(site: Site) {
    let bucket = bucket(&site, "b").await;
    let upload = begin(&site, bucket, "k").await;
    let old = part(&site, &upload, 1, 20).await;
    let new = part(&site, &upload, 1, 25).await;
    assert!(matches!(complete(&site, &upload, vec![old]).await, Err(CatalogError::Changed { .. })));
    let done = complete(&site, &upload, vec![new]).await.expect("an object");
    assert_eq!(done.data.expect("bytes").file.size_bytes, 25);
}

async fn an_upload_that_nobody_completes_is_given_up(site: Site) {
    let bucket = bucket(&site, "b").await;
    let (aborted, expired) = (begin(&site, bucket, "a").await, begin(&site, bucket, "e").await);
    part(&site, &aborted, 1, 20).await;
    part(&site, &expired, 1, 20).await;
    site.catalog.abort_upload(aborted.id).await.expect("aborted");
    assert!(matches!(site.catalog.abort_upload(aborted.id).await, Err(CatalogError::NotFound { .. })));
    site.pass(2 * HOUR);
    site.catalog.reclaim(100).await.expect("reclaimed");
    assert!(site.catalog.upload(expired.id).await.expect("an answer").is_none());
    let disk = site.catalog.volume(&volume("d0")).await.expect("a volume");
    assert_eq!((disk.live_bytes, disk.live_segments), (0, 0));
    let garbage = site.catalog.claim(claim(WorkKind::Reclaim, "d0", "gw1")).await.expect("a claim");
    assert_eq!(garbage.len(), 2);
    // A bucket goes with what is under way in it.
    let left = begin(&site, bucket, "l").await;
    part(&site, &left, 1, 20).await;
    site.catalog.delete_bucket(bucket).await.expect("an empty bucket");
    assert!(site.catalog.upload(left.id).await.expect("an answer").is_none());
}

async fn uploads_are_listed_by_key_and_number(site: Site) {
    let bucket = bucket(&site, "b").await;
    let mut begun = Vec::new();
    for key in ["a", "a", "b/x", "c"] {
        begun.push(begin(&site, bucket, key).await);
    }
    let all = site.catalog.uploads(bucket, None, "", 10).await.expect("uploads");
    assert_eq!(all, begun);
    let behind = site.catalog.uploads(bucket, Some(("a", Some(begun[0].id))), "", 10).await.expect("uploads");
    assert_eq!(behind, begun[1..]);
    let behind = site.catalog.uploads(bucket, Some(("a", None)), "", 1).await.expect("uploads");
    assert_eq!(behind, begun[2..3]);
    assert_eq!(site.catalog.uploads(bucket, None, "b/", 10).await.expect("uploads"), begun[2..3]);
}
