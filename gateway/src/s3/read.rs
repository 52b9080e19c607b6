//! Reading objects: GET, HEAD, and what is known of one without its bytes.

use catalog::{Object, ObjectData, VersionRef};
use hyper::HeaderMap;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, dto::*, s3_error};
use wire::extent::ByteRange;

use super::{
    Door,
    access::{BucketView, Call, attributes_of},
    acl::Permission,
    attributes::{self, Attributes, PartOf},
    checksum::Kept,
    error::{Asked, of_catalog},
    lifecycle,
    restore::STANDARD,
    shown::{self, etag, timestamp},
};
use crate::{
    identity::Principal,
    redirect::{Reason, Route},
};

/// How much a client's own words on an object may be for the client to be sent away with them: 1 KiB, and so much again
/// for what the door says and for where the bytes are.
const MAX_SAID_BYTES: usize = 1024;

/// What a client asks to hold before it is sent anything.
#[derive(Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) matches_none: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// # Source
    ///
    /// RFC 9110 section 13.2.2: the order, and which condition is passed over beside which.
    pub(super) fn check(&self, tag: &str, modified: catalog::Timestamp) -> Result<(), S3ErrorCode> {
        let second = |time: &Timestamp| time::OffsetDateTime::from(time.clone()).unix_timestamp();
        let modified = modified.0.div_euclid(1_000_000);
        let has =
            |condition: &ETagCondition| condition.is_any() || condition.as_etag().is_some_and(|of| of.value() == tag);
        match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) if !has(condition) => return Err(S3ErrorCode::PreconditionFailed),
            (None, Some(since)) if modified > second(since) => return Err(S3ErrorCode::PreconditionFailed),
            _ => {}
        }
        match (&self.matches_none, &self.modified_since) {
            (Some(condition), _) if has(condition) => Err(S3ErrorCode::NotModified),
            (None, Some(since)) if modified <= second(since) => Err(S3ErrorCode::NotModified),
            _ => Ok(()),
        }
    }
}

/// What GET and HEAD ask.
struct Wanted {
    bucket: String,
    key: String,
    version: Option<String>,
    owner: Option<String>,
    conditions: Conditions,
    part: Option<i32>,
    range: Option<Range>,
    sums: bool,
}

/// What a request asks. The inputs of `s3s` have the fields and no type in common.
macro_rules! wanted {
    ($input:ident) => {
        Wanted {
            bucket: $input.bucket,
            key: $input.key,
            version: $input.version_id,
            owner: $input.expected_bucket_owner,
            conditions: Conditions {
                matches: $input.if_match,
                matches_none: $input.if_none_match,
                modified_since: $input.if_modified_since,
                unmodified_since: $input.if_unmodified_since,
            },
            part: $input.part_number,
            range: $input.range,
            sums: $input.checksum_mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED),
        }
    };
}

/// What GET and HEAD find.
struct Seen {
    found: Found,
    bytes: ByteRange,
    head: HeadObjectOutput,
}

/// An object that the caller may read, with its bucket.
pub(super) struct Found {
    pub(super) view: BucketView,
    pub(super) object: Object,
    pub(super) data: ObjectData,
    pub(super) attributes: Attributes,
}

impl Door {
    /// A version of an object, if the caller may do this to it.
    pub(super) async fn found(
        &self,
        call: &Call,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        (action, permission): (&str, Permission),
    ) -> S3Result<Found> {
        let view = self.bucket(bucket).await?;
        let wanted = version.map(shown::version_ref).transpose()?;
        let object = self.version(&view, key, wanted).await?;
        let Some(object) = object else {
            if wanted.is_some() && view.may(call, "s3:ListBucket", Some(Permission::Read)) {
                return Err(s3_error!(NoSuchVersion, "there is no such version of {:?}", key));
            }
            return Err(self.missing(&view, call, key));
        };
        let Some(data) = object.data.clone() else {
            if wanted.is_some() {
                return Err(shown::with_marker(s3_error!(MethodNotAllowed, "it is a delete marker"), &object));
            }
            return Err(shown::with_marker(self.missing(&view, call, key), &object));
        };
        view.need_object(call, action, &object, permission)?;
        let attributes = attributes_of(&object);
        Ok(Found { view, object, data, attributes })
    }

    pub(super) async fn version(
        &self,
        view: &BucketView,
        key: &str,
        wanted: Option<VersionRef>,
    ) -> S3Result<Option<Object>> {
        let found = self.catalog.object(view.bucket.entry, key, wanted).await;
        found.map_err(|error| of_catalog(error, Asked::Object))
    }

    /// The parts of an object that was uploaded in parts.
    pub(super) async fn parts_of(&self, data: &ObjectData) -> S3Result<Vec<PartOf>> {
        let text = self.catalog.object_parts(data.file.bitfile).await;
        let text = text.map_err(|error| of_catalog(error, Asked::Object))?;
        Ok(text.map(|text| attributes::read(&text)).unwrap_or_default())
    }

    /// In whose name bytes are read for somebody without an account: the bucket's owner pays for what it lets out.
    pub(super) async fn reader(&self, call: &Call, view: &BucketView) -> S3Result<Principal> {
        match &call.caller.principal {
            Some(principal) => Ok(principal.clone()),
            None => self.identities.account(&view.bucket.owner).await.map_err(super::error::of_failure),
        }
    }

    pub(super) async fn get(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        no_encryption(&[input.sse_customer_algorithm.as_deref()])?;
        let in_parts = input.part_number.is_some();
        let Seen { found, bytes, head } = self.seen(&call, wanted!(input)).await?;
        self.readable(&found)?;
        let mut extensions = hyper::http::Extensions::new();
        let body = match self.away(&request.headers, &call, &found, in_parts, bytes).await {
            Ok(route) => {
                extensions.insert(route);
                None
            }
            Err(reason) => Some(self.passed_on(&call, &found, bytes, reason).await?),
        };
        let output = GetObjectOutput {
            accept_ranges: head.accept_ranges,
            body,
            cache_control: head.cache_control,
            checksum_crc32: head.checksum_crc32,
            checksum_crc32c: head.checksum_crc32c,
            checksum_crc64nvme: head.checksum_crc64nvme,
            checksum_sha1: head.checksum_sha1,
            checksum_sha256: head.checksum_sha256,
            checksum_type: head.checksum_type,
            content_disposition: head.content_disposition,
            content_encoding: head.content_encoding,
            content_language: head.content_language,
            content_length: head.content_length,
            content_range: head.content_range,
            content_type: head.content_type,
            e_tag: head.e_tag,
            expiration: head.expiration,
            expires: head.expires,
            last_modified: head.last_modified,
            metadata: head.metadata,
            object_lock_legal_hold_status: head.object_lock_legal_hold_status,
            object_lock_mode: head.object_lock_mode,
            object_lock_retain_until_date: head.object_lock_retain_until_date,
            parts_count: head.parts_count,
            restore: head.restore,
            storage_class: head.storage_class,
            tag_count: i32::try_from(found.attributes.tags.len()).ok().filter(|count| *count > 0),
            version_id: head.version_id,
            website_redirect_location: head.website_redirect_location,
            ..GetObjectOutput::default()
        };
        let mut response = S3Response::new(output);
        response.extensions = extensions;
        Ok(response)
    }

    /// Where a client is sent for an object's bytes, or why it is served here.
    async fn away(
        &self,
        headers: &HeaderMap,
        call: &Call,
        found: &Found,
        in_parts: bool,
        bytes: ByteRange,
    ) -> Result<Route, Reason> {
        if in_parts {
            return Err(Reason::Part);
        }
        // What is said of the object goes into the URL.
        if bytes.is_empty() || !found.attributes.fit_url(MAX_SAID_BYTES) {
            return Err(Reason::Long);
        }
        let caller = &call.caller;
        self.relay.route(headers, caller.direct, found.data.file.bitfile, caller.is_secure()).await
    }

    async fn passed_on(&self, call: &Call, found: &Found, bytes: ByteRange, reason: Reason) -> S3Result<StreamingBlob> {
        let reader = self.reader(call, &found.view).await?;
        let path = format!("/{}/{}", found.view.bucket.name, found.object.key);
        self.send(&reader, &path, &found.data.file, bytes, reason).await
    }

    pub(super) async fn head(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        no_encryption(&[input.sse_customer_algorithm.as_deref()])?;
        let Seen { found, head, .. } = self.seen(&call, wanted!(input)).await?;
        let mut response = S3Response::new(head);
        // The answer to HEAD has no field for it in `s3s`.
        if !found.attributes.tags.is_empty() {
            response.headers.insert("x-amz-tagging-count", found.attributes.tags.len().into());
        }
        Ok(response)
    }

    /// What GET and HEAD do alike: the version that may be read, conditions, part or range, and the headers.
    async fn seen(&self, call: &Call, wanted: Wanted) -> S3Result<Seen> {
        let version = wanted.version.as_deref();
        let action = if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
        let found = self.found(call, &wanted.bucket, &wanted.key, version, (action, Permission::Read)).await?;
        expected_owner(&found.view, wanted.owner.as_deref())?;
        let part = self.part(&found, wanted.part).await?;
        let range = wanted_range(&found, part.as_ref(), wanted.range.as_ref(), &wanted.conditions)?;
        let mut head = self.head_of(&found).await?;
        head.content_length = i64::try_from(range.bytes.length()).ok();
        head.content_range = range.header;
        head.parts_count = part.as_ref().map(|part| part.count);
        // A sum is of a whole object or of a whole part, not of a range.
        if wanted.sums && wanted.range.is_none() {
            let sum = part.as_ref().map_or(found.attributes.checksum.as_ref(), |part| part.sum.as_ref());
            let fields = sum.map(Kept::fields).unwrap_or_default();
            head.checksum_crc32 = fields.checksum_crc32;
            head.checksum_crc32c = fields.checksum_crc32c;
            head.checksum_crc64nvme = fields.checksum_crc64nvme;
            head.checksum_sha1 = fields.checksum_sha1;
            head.checksum_sha256 = fields.checksum_sha256;
            head.checksum_type = fields.checksum_type;
        }
        Ok(Seen { found, bytes: range.bytes, head })
    }

    /// The headers that GET and HEAD share.
    async fn head_of(&self, found: &Found) -> S3Result<HeadObjectOutput> {
        let Found { view, object, data, attributes } = found;
        let expires = attributes.expires.as_ref();
        Ok(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: attributes.cache_control.clone(),
            content_disposition: attributes.content_disposition.clone(),
            content_encoding: attributes.content_encoding.clone(),
            content_language: attributes.content_language.clone(),
            content_type: Some(attributes.content_type.clone().unwrap_or_else(|| shown::DEFAULT_TYPE.to_owned())),
            e_tag: Some(etag(data)),
            expiration: lifecycle::expiration(view, object),
            expires: expires.and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, text).ok()),
            last_modified: Some(timestamp(object.modified)),
            metadata: Some(attributes.metadata.clone().into_iter().collect()),
            object_lock_legal_hold_status: shown::hold(data),
            object_lock_mode: data.retain.as_ref().map(shown::lock_mode),
            object_lock_retain_until_date: data.retain.as_ref().map(|retain| timestamp(retain.until)),
            restore: self.restore_header(data).await?,
            storage_class: self.shown_class(data).filter(|class| class != STANDARD).map(StorageClass::from),
            version_id: shown::version_header(view, object),
            website_redirect_location: attributes.redirect.clone(),
            ..HeadObjectOutput::default()
        })
    }

    async fn part(&self, found: &Found, wanted: Option<i32>) -> S3Result<Option<PartRange>> {
        let Some(wanted) = wanted else { return Ok(None) };
        let invalid = || s3_error!(InvalidPart, "there is no part {}", wanted);
        let wanted = u32::try_from(wanted).ok().filter(|number| *number > 0).ok_or_else(invalid)?;
        let size = found.data.file.size_bytes;
        let parts = self.parts_of(&found.data).await?;
        if parts.is_empty() {
            let whole = ByteRange::new(0, size).map_err(|_| invalid())?;
            if wanted != 1 {
                return Err(invalid());
            }
            return Ok(Some(PartRange { bytes: whole, count: 1, sum: found.attributes.checksum.clone() }));
        }
        let count = i32::try_from(parts.len()).unwrap_or(i32::MAX);
        let mut at = 0;
        for part in parts {
            if part.number == wanted {
                let bytes = ByteRange::new(at, part.size).map_err(|_| invalid())?;
                // The sum of a part is said to be of the kind that the object's is.
                let composite = found.attributes.checksum.as_ref().is_some_and(|sum| sum.composite);
                let sum = part.checksum.map(|sum| Kept { composite, ..sum });
                return Ok(Some(PartRange { bytes, count, sum }));
            }
            at += part.size;
        }
        Err(invalid())
    }

    /// Torrents are not made.
    pub(super) async fn torrent(
        &self,
        request: S3Request<GetObjectTorrentInput>,
    ) -> S3Result<S3Response<GetObjectTorrentOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        self.found(&call, &input.bucket, &input.key, None, ("s3:GetObjectTorrent", Permission::Read)).await?;
        Err(s3_error!(NoSuchKey, "there is no torrent of {:?}: this site makes none", input.key))
    }

    pub(super) async fn object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let wanted = ("s3:GetObjectAttributes", Permission::Read);
        let found = self.found(&call, &input.bucket, &input.key, version, wanted).await?;
        let asked: Vec<String> = input
            .object_attributes
            .iter()
            .flat_map(|list| list.as_str().split(','))
            .map(|name| name.trim().to_owned())
            .collect();
        let has = |name: &str| asked.iter().any(|asked| asked == name);
        let mut output = GetObjectAttributesOutput {
            last_modified: Some(timestamp(found.object.modified)),
            version_id: shown::version_header(&found.view, &found.object),
            ..GetObjectAttributesOutput::default()
        };
        if has("ETag") {
            output.e_tag = Some(etag(&found.data));
        }
        if has("ObjectSize") {
            output.object_size = i64::try_from(found.data.file.size_bytes).ok();
        }
        if has("StorageClass") {
            output.storage_class = self.shown_class(&found.data).map(StorageClass::from);
        }
        if has("Checksum") {
            output.checksum = found.attributes.checksum.as_ref().map(Kept::fields);
        }
        if has("ObjectParts") {
            let parts = self.parts_of(&found.data).await?;
            output.object_parts = shown::parts(&parts, input.part_number_marker, input.max_parts);
        }
        Ok(S3Response::new(output))
    }
}

/// A part of an object, asked for by its number.
struct PartRange {
    bytes: ByteRange,
    count: i32,
    sum: Option<Kept>,
}

/// What is sent of an object.
struct Sent {
    bytes: ByteRange,
    header: Option<String>,
}

fn wanted_range(
    found: &Found,
    part: Option<&PartRange>,
    range: Option<&Range>,
    conditions: &Conditions,
) -> S3Result<Sent> {
    let size = found.data.file.size_bytes;
    if let Err(code) = conditions.check(&found.data.etag(), found.object.modified) {
        let mut error = s3s::S3Error::with_message(code, "a condition of the request does not hold");
        if let Some(headers) = shown::validators(&found.data, found.object.modified) {
            error.set_headers(headers);
        }
        return Err(error);
    }
    let header = |bytes: &ByteRange| format!("bytes {}-{}/{size}", bytes.offset(), bytes.end().saturating_sub(1));
    if let Some(part) = part {
        if range.is_some() {
            return Err(s3_error!(InvalidRequest, "a range and a part number exclude each other"));
        }
        let shown = part.bytes.length() < size || found.attributes.parts.is_some();
        return Ok(Sent { bytes: part.bytes, header: (shown && !part.bytes.is_empty()).then(|| header(&part.bytes)) });
    }
    match range {
        None => Ok(Sent { bytes: shown::range(0, size)?, header: None }),
        Some(range) => {
            let wanted = range.check(size)?;
            let bytes = shown::range(wanted.start, wanted.end.saturating_sub(wanted.start))?;
            Ok(Sent { bytes, header: Some(header(&bytes)) })
        }
    }
}

/// Encryption with the client's keys, or ours, is not offered, and nothing is stored in clear that was to be encrypted.
pub(super) fn no_encryption(asked: &[Option<&str>]) -> S3Result<()> {
    if asked.iter().any(Option::is_some) {
        return Err(s3_error!(NotImplemented, "encryption by the server is not offered: encrypt before sending"));
    }
    Ok(())
}

/// A client may say whose it believes a bucket to be.
pub(super) fn expected_owner(view: &BucketView, expected: Option<&str>) -> S3Result<()> {
    match expected {
        Some(expected) if expected != view.owner() => {
            Err(s3_error!(AccessDenied, "bucket {} is not {}'s", view.bucket.name, expected))
        }
        _ => Ok(()),
    }
}
