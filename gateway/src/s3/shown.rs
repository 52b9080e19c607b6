//! How versions, tags, times and classes are written in answers, and read in requests. Pure.

use catalog::{Object, ObjectData, Retention, Version, VersionRef, Versioning};
use hyper::{HeaderMap, header::HeaderValue};
use s3s::{
    S3Error, S3Result,
    dto::{
        ETag, GetObjectAttributesParts, ObjectLockLegalHoldStatus, ObjectLockMode, ObjectPart, Timestamp,
        TimestampFormat,
    },
    s3_error,
};
use wire::extent::ByteRange;

use super::{access::BucketView, attributes::PartOf, checksum::Kept};

/// Of an object whose writer named no type (Amazon S3).
pub(super) const DEFAULT_TYPE: &str = "binary/octet-stream";

/// The most parts of an object that one answer tells of.
const MAX_PARTS: usize = 1000;

/// A version's identifier.
pub(super) fn version_id(version: Version) -> String {
    if version.plain { "null".to_owned() } else { format!("{:016x}", version.number) }
}

/// The version that an identifier means.
pub(super) fn version_ref(text: &str) -> S3Result<VersionRef> {
    if text == "null" {
        return Ok(VersionRef::Plain);
    }
    let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    number.map(VersionRef::Number).ok_or_else(|| s3_error!(InvalidArgument, "{:?} is no version of ours", text))
}

/// The identifier as a header: only buckets that ever kept versions have one.
pub(super) fn version_header(view: &BucketView, object: &Object) -> Option<String> {
    (view.bucket.versioning != Versioning::Off).then(|| version_id(object.version))
}

/// The identifier of a version that was written: only what is kept beside others has one of its own.
pub(super) fn written_header(view: &BucketView, object: &Object) -> Option<String> {
    (view.bucket.versioning == Versioning::Enabled).then(|| version_id(object.version))
}

/// An entity tag.
pub(super) fn etag(data: &ObjectData) -> ETag {
    ETag::Strong(data.etag())
}

/// A time.
pub(super) fn timestamp(time: catalog::Timestamp) -> Timestamp {
    let nanos = i128::from(time.0).saturating_mul(1000);
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(time::OffsetDateTime::UNIX_EPOCH).into()
}

/// Microseconds since the epoch of a time that a client gave.
pub(super) fn micros(time: &Timestamp) -> i64 {
    let nanos = time::OffsetDateTime::from(time.clone()).unix_timestamp_nanos();
    i64::try_from(nanos / 1000).unwrap_or(i64::MAX)
}

/// A time as HTTP writes it.
pub(super) fn http_date(time: &Timestamp) -> String {
    let mut text = Vec::new();
    if time.format(TimestampFormat::HttpDate, &mut text).is_err() {
        return String::new();
    }
    String::from_utf8(text).unwrap_or_default()
}

/// A range within an object.
pub(super) fn range(offset: u64, length: u64) -> S3Result<ByteRange> {
    ByteRange::new(offset, length).map_err(|error| s3_error!(InvalidArgument, "{}", error))
}

pub(super) fn hold(data: &ObjectData) -> Option<ObjectLockLegalHoldStatus> {
    data.hold.then(|| ObjectLockLegalHoldStatus::from_static(ObjectLockLegalHoldStatus::ON))
}

pub(super) fn lock_mode(retain: &Retention) -> ObjectLockMode {
    let mode = if retain.compliance { ObjectLockMode::COMPLIANCE } else { ObjectLockMode::GOVERNANCE };
    ObjectLockMode::from_static(mode)
}

/// An error that says that a delete marker is there.
pub(super) fn with_marker(mut error: S3Error, marker: &Object) -> S3Error {
    let mut headers = HeaderMap::new();
    headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
    if let Ok(version) = HeaderValue::try_from(version_id(marker.version)) {
        headers.insert("x-amz-version-id", version);
    }
    headers.insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    error.set_headers(headers);
    error
}

/// What a client compares with what it has.
pub(super) fn validators(data: &ObjectData, modified: catalog::Timestamp) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(hyper::header::ETAG, etag(data).to_http_header().ok()?);
    let date = http_date(&timestamp(modified));
    headers.insert(hyper::header::LAST_MODIFIED, HeaderValue::try_from(date).ok()?);
    headers.insert(hyper::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    Some(headers)
}

/// A page of an object's parts.
pub(super) fn parts(parts: &[PartOf], marker: Option<i32>, most: Option<i32>) -> Option<GetObjectAttributesParts> {
    if parts.is_empty() {
        return None;
    }
    let marker = marker.and_then(|marker| u32::try_from(marker).ok()).unwrap_or(0);
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_PARTS).min(MAX_PARTS);
    let behind: Vec<_> = parts.iter().filter(|part| part.number > marker).collect();
    let page: Vec<_> = behind.iter().take(most).collect();
    let shown = page.iter().map(|part| {
        let fields = part.checksum.as_ref().map(Kept::fields).unwrap_or_default();
        ObjectPart {
            checksum_crc32: fields.checksum_crc32,
            checksum_crc32c: fields.checksum_crc32c,
            checksum_crc64nvme: fields.checksum_crc64nvme,
            checksum_sha1: fields.checksum_sha1,
            checksum_sha256: fields.checksum_sha256,
            part_number: i32::try_from(part.number).ok(),
            size: i64::try_from(part.size).ok(),
        }
    });
    let last = page.last().map_or(marker, |part| part.number);
    Some(GetObjectAttributesParts {
        is_truncated: Some(behind.len() > page.len()),
        max_parts: i32::try_from(most).ok(),
        next_part_number_marker: i32::try_from(last).ok(),
        part_number_marker: i32::try_from(marker).ok(),
        parts: Some(shown.collect()),
        total_parts_count: i32::try_from(parts.len()).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_was_written() {
        for version in [Version { number: 1_800_000_000_000_001, plain: false }, Version { number: 7, plain: true }] {
            assert!(version_ref(&version_id(version)).expect("ours").is(version));
        }
        assert!(version_ref("").is_err());
        assert!(version_ref("zz").is_err());
    }
}
