//! Writing objects: PUT, POST from a form, and copies, which move no bytes.

use catalog::{Base, Cause, DISK_COPY, NewObject, Precondition, Retention, Tags, Way};
use s3s::{S3Request, S3Response, S3Result, TrailingHeaders, dto::*, s3_error};
use wire::{checksum::Sums, id::CosName};

use super::{
    Door,
    access::{BucketView, Call, pairs},
    acl::{Acl, GrantHeaders, Permission, grant_headers},
    attributes::{self, Attributes},
    away::Bypass,
    checksum::{Algorithm, Kept, announced, md5_of_header},
    data::{Became, Becomes, Incoming},
    error::{Asked, of_catalog},
    lifecycle, notify,
    read::{Conditions, Found, expected_owner, no_encryption},
    restore::STANDARD,
    shown::{self, timestamp},
};
use crate::identity::Principal;

/// The largest object of one PUT, and the largest part (Amazon S3: 5 GiB).
pub(super) const MAX_PUT_BYTES: u64 = 5 << 30;
/// What names and values of a user's metadata may come to (Amazon S3: 2 KiB).
const MAX_METADATA_BYTES: usize = 2048;
/// Tags of one object (Amazon S3).
const MAX_TAGS: usize = 10;

/// What is to be locked.
#[derive(Clone, Default)]
pub(super) struct Locks {
    pub(super) hold: bool,
    pub(super) retain: Option<Retention>,
}

/// What a request asks to be locked: `x-amz-object-lock-legal-hold`, `-mode` and `-retain-until-date`.
pub(super) struct LockHeaders<'a> {
    pub(super) hold: Option<&'a str>,
    pub(super) mode: Option<&'a str>,
    pub(super) until: Option<&'a Timestamp>,
}

/// The locks of a request. The inputs of `s3s` have the fields and no type in common.
macro_rules! lock_headers {
    ($input:ident) => {
        $crate::s3::write::LockHeaders {
            hold: $input.object_lock_legal_hold_status.as_ref().map(|hold| hold.as_str()),
            mode: $input.object_lock_mode.as_ref().map(|mode| mode.as_str()),
            until: $input.object_lock_retain_until_date.as_ref(),
        }
    };
}

pub(super) use lock_headers;

/// A body's announced sums.
pub(super) struct Announced {
    pub(super) values: [(Algorithm, Option<String>); 5],
    pub(super) algorithm: Option<String>,
    pub(super) md5: Option<String>,
    pub(super) length: Option<i64>,
}

impl Announced {
    /// What is to be received, given the body.
    pub(super) fn incoming(
        self,
        call: &Call,
        body: Option<StreamingBlob>,
        trailers: Option<TrailingHeaders>,
        default: Algorithm,
    ) -> S3Result<Incoming> {
        let length = self.length.map(u64::try_from);
        let size_bytes = match length {
            Some(Ok(size)) => size,
            Some(Err(_)) => return Err(s3_error!(InvalidArgument, "a body cannot have a negative length")),
            None => match body.as_ref().map(s3s::stream::ByteStream::remaining_length) {
                None => 0,
                Some(length) => length
                    .exact()
                    .and_then(|length| u64::try_from(length).ok())
                    .ok_or_else(|| s3_error!(MissingContentLength, "say how long the body is"))?,
            },
        };
        if size_bytes > MAX_PUT_BYTES {
            return Err(s3_error!(EntityTooLarge, "{} bytes are more than one request may bring", size_bytes));
        }
        let [a, b, c, d, e] = &self.values;
        let values = [a, b, c, d, e].map(|(algorithm, value)| (*algorithm, value.as_ref()));
        if values.iter().filter(|(_, value)| value.is_some()).count() > 1 {
            return Err(s3_error!(InvalidRequest, "one sum may be announced, not several"));
        }
        let announced = announced(values);
        let trailer = call.header("x-amz-trailer").and_then(Algorithm::from_header);
        let named = match self.algorithm.as_deref() {
            Some(name) => Some(
                Algorithm::from_name(name)
                    .ok_or_else(|| s3_error!(InvalidRequest, "checksum algorithm {:?} is not known", name))?,
            ),
            None => None,
        };
        let md5 = match self.md5.as_deref() {
            Some(text) => {
                let digest = md5_of_header(text);
                Some(digest.ok_or_else(|| s3_error!(InvalidDigest, "Content-MD5 {:?} is no MD5 in base 64", text))?)
            }
            None => None,
        };
        let sum = announced.as_ref().map(|(algorithm, _)| *algorithm).or(trailer).or(named).unwrap_or(default);
        let trailer = announced.is_none() && trailer.is_some() && trailers.is_some();
        let (announced, way) = (announced.map(|(_, value)| value), Bypass::of(call));
        Ok(Incoming { body, trailers, size_bytes, md5, sum, announced, trailer, way })
    }
}

/// A condition of a write.
pub(super) fn precondition(matches: Option<&ETagCondition>, none: Option<&ETagCondition>) -> Precondition {
    let tags = |condition: &ETagCondition| match condition.as_etag() {
        None => Tags::Any,
        Some(tag) => Tags::Of(vec![tag.value().to_owned()]),
    };
    Precondition { matches: matches.map(tags), matches_none: none.map(tags), ..Precondition::default() }
}

/// Tags in the form of a query, as headers bring them.
pub(super) fn tags_of_header(header: Option<&str>) -> S3Result<Vec<(String, String)>> {
    let mut tags = header.map(pairs).unwrap_or_default();
    tags.sort();
    checked_tags(tags, MAX_TAGS)
}

/// # Source
///
/// Amazon S3 User Guide, "Categorizing your objects using tags": ten tags of 128 and 256 characters, each key once.
pub(super) fn checked_tags(tags: Vec<(String, String)>, most: usize) -> S3Result<Vec<(String, String)>> {
    if tags.len() > most {
        return Err(s3_error!(InvalidTag, "there may be {} tags at most", most));
    }
    for (index, (key, value)) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 {
            return Err(s3_error!(InvalidTag, "tag {:?} is too long, or has no key", key));
        }
        if tags[..index].iter().any(|(other, _)| other == key) {
            return Err(s3_error!(InvalidTag, "tag {:?} is there twice", key));
        }
    }
    Ok(tags)
}

/// A user's metadata.
pub(super) fn metadata(found: Option<Metadata>) -> S3Result<std::collections::BTreeMap<String, String>> {
    let metadata: std::collections::BTreeMap<_, _> = found.unwrap_or_default().into_iter().collect();
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        return Err(s3_error!(MetadataTooLarge, "metadata comes to {} bytes, more than {}", bytes, MAX_METADATA_BYTES));
    }
    Ok(metadata)
}

/// `aws-chunked` says how a body came, not what it is.
pub(super) fn encoding(header: Option<String>) -> Option<String> {
    let kept = header?;
    let kept: Vec<_> =
        kept.split(',').map(str::trim).filter(|name| !name.eq_ignore_ascii_case("aws-chunked")).collect();
    (!kept.is_empty()).then(|| kept.join(", "))
}

impl Door {
    /// The class of service that a storage class means.
    pub(super) fn class(&self, name: Option<&str>) -> S3Result<CosName> {
        let name = name.unwrap_or(STANDARD);
        let found = self.config.classes.get(name).cloned();
        found.ok_or_else(|| {
            let known = self.config.classes.keys().cloned().collect::<Vec<_>>().join(", ");
            s3_error!(InvalidStorageClass, "storage class {:?} is not one of this site: {}", name, known)
        })
    }

    /// An object's list: a canned one, one of headers, or its owner's alone.
    pub(super) fn new_acl(
        &self,
        view: &BucketView,
        owner: &str,
        canned: Option<&str>,
        headers: &GrantHeaders<'_>,
    ) -> S3Result<Acl> {
        let listed = Acl::of_headers(headers, owner)?;
        if canned.is_some() && listed.is_some() {
            return Err(s3_error!(InvalidRequest, "a canned ACL and grants exclude each other"));
        }
        let acl = match (canned, listed) {
            (Some(canned), _) => Acl::canned(canned, owner, view.owner())?,
            (None, Some(listed)) => listed,
            (None, None) => Acl::private(owner),
        };
        if acl.is_public() && view.settings.public_access.is_some_and(|access| access.block_acls) {
            return Err(s3_error!(AccessDenied, "bucket {} lets no object be made public", view.bucket.name));
        }
        Ok(acl)
    }

    /// What is to be locked, by the request or by the bucket's default.
    pub(super) fn locks(&self, view: &BucketView, headers: &LockHeaders<'_>) -> S3Result<Locks> {
        let &LockHeaders { hold, mode, until } = headers;
        let asked = hold.is_some() || mode.is_some() || until.is_some();
        if asked && !view.bucket.locking {
            return Err(s3_error!(InvalidRequest, "bucket {} has no object lock configuration", view.bucket.name));
        }
        let retain = match (mode, until) {
            (Some(mode), Some(until)) => Some(retention(mode, until, self.catalog.now())?),
            (None, None) => view.settings.retention.filter(|_| view.bucket.locking).map(|default| {
                let days = default.days.map_or(i64::from(default.years.unwrap_or(0)) * 365, i64::from);
                let until = catalog::Timestamp(self.catalog.now().0.saturating_add(days * 86_400_000_000));
                Retention { until, compliance: default.compliance }
            }),
            _ => return Err(s3_error!(InvalidArgument, "a retention has a mode and a date")),
        };
        Ok(Locks { hold: hold == Some(ObjectLockLegalHoldStatus::ON), retain })
    }

    pub(super) async fn put(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let call = Call::of(&request)?;
        let form = request.method == hyper::Method::POST;
        let cause = notify::cause(&request, if form { Way::Form } else { Way::Plain });
        let trailers = request.trailing_headers;
        let input = request.input;
        no_encryption(&[
            input.server_side_encryption.as_ref().map(|kind| kind.as_str()),
            input.sse_customer_algorithm.as_deref(),
            input.ssekms_key_id.as_deref(),
        ])?;
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(NotImplemented, "an object is written whole"));
        }
        if call.header("content-md5") == Some("") {
            return Err(s3_error!(InvalidDigest, "Content-MD5 is empty"));
        }
        let view = self.bucket(&input.bucket).await?;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let owner = self.writer(&call, &view).await?;
        // `s3s` reads no such header for an object, where it grants nothing; it is kept and shown.
        let headers = GrantHeaders { write: call.header("x-amz-grant-write"), ..grant_headers!(input) };
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        let acl = self.new_acl(&view, owner.account.as_str(), canned, &headers)?;
        let class = input.storage_class.as_ref().map(|class| class.as_str().to_owned());
        let cos = self.class(class.as_deref())?;
        let locks = self.locks(&view, &lock_headers!(input))?;
        let attributes = Attributes {
            content_type: input.content_type.map(|of| of.to_string()).filter(|of| !of.is_empty()),
            content_encoding: encoding(input.content_encoding),
            content_language: input.content_language,
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            expires: input.expires.as_ref().map(shown::http_date),
            redirect: input.website_redirect_location,
            metadata: metadata(input.metadata)?,
            tags: tags_of_header(input.tagging.as_deref())?,
            acl: Some(acl.clone()),
            ..Attributes::default()
        };
        let announced = Announced {
            values: [
                (Algorithm::Crc32, input.checksum_crc32),
                (Algorithm::Crc32c, input.checksum_crc32c),
                (Algorithm::Crc64Nvme, input.checksum_crc64nvme),
                (Algorithm::Sha1, input.checksum_sha1),
                (Algorithm::Sha256, input.checksum_sha256),
            ],
            algorithm: input.checksum_algorithm.map(|name| name.as_str().to_owned()),
            md5: input.content_md5,
            length: input.content_length,
        };
        let condition = precondition(input.if_match.as_ref(), input.if_none_match.as_ref());
        self.early_look(&view, &input.key, &condition).await?;
        let incoming = announced.incoming(&call, input.body, trailers, Algorithm::Crc64Nvme)?;
        let mut new = self.blank(&view, &input.key, &owner, cos.clone());
        new.precondition = condition;
        new.cause = cause;
        new.mode = acl.mode();
        new.storage_class = class;
        new.hold = locks.hold;
        new.retain = locks.retain;
        let becomes = Becomes::Object(
            Box::new(new),
            Box::new(move |kept: &Kept| attributes::write(&Attributes { checksum: Some(kept.clone()), ..attributes })),
        );
        let place = (view.bucket.entry, input.key.as_str(), &cos);
        let Became::Object(object, kept) = self.receive(&owner, place, incoming, becomes).await? else {
            return Err(s3_error!(InternalError, "an object became something else"));
        };
        let fields = kept.fields();
        Ok(S3Response::new(PutObjectOutput {
            e_tag: object.data.as_ref().map(shown::etag),
            expiration: lifecycle::expiration(&view, &object),
            version_id: shown::written_header(&view, &object),
            checksum_crc32: fields.checksum_crc32,
            checksum_crc32c: fields.checksum_crc32c,
            checksum_crc64nvme: fields.checksum_crc64nvme,
            checksum_sha1: fields.checksum_sha1,
            checksum_sha256: fields.checksum_sha256,
            checksum_type: fields.checksum_type,
            ..PutObjectOutput::default()
        }))
    }

    /// Refuses what cannot be written before its bytes come; the write itself looks again.
    async fn early_look(&self, view: &BucketView, key: &str, condition: &Precondition) -> S3Result<()> {
        if *condition == Precondition::default() {
            return Ok(());
        }
        let there = self.version(view, key, None).await?;
        condition.check(there.as_ref(), key).map_err(|error| of_catalog(error, Asked::Object))
    }

    /// Who owns what is written: the caller, or the bucket's owner if anybody may write.
    pub(super) async fn writer(&self, call: &Call, view: &BucketView) -> S3Result<Principal> {
        self.reader(call, view).await
    }

    pub(super) fn blank(&self, view: &BucketView, key: &str, owner: &Principal, cos: CosName) -> NewObject {
        NewObject {
            bucket: view.bucket.entry,
            key: key.to_owned(),
            precondition: Precondition::default(),
            owner: owner.account.clone(),
            group: owner.primary_group().clone(),
            mode: 0o600,
            acl: None,
            cos,
            disk_class: wire::id::StorageClassName::new("disk").expect("a good name"),
            size_bytes: 0,
            sums: Sums::EMPTY,
            base: Base::Empty,
            segments: Vec::new(),
            etag: String::new(),
            storage_class: None,
            attributes: String::new(),
            hold: false,
            retain: None,
            cause: Cause::account(owner.account.clone()),
        }
    }

    /// The object that a copy is made of.
    pub(super) async fn source(&self, call: &Call, source: &CopySource) -> S3Result<Found> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "a copy is made of a bucket's object"));
        };
        let version = version_id.as_deref();
        let action = if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
        self.found(call, bucket, key, version, (action, Permission::Read)).await
    }

    pub(super) async fn copy(&self, request: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        let call = Call::of(&request)?;
        let cause = notify::cause(&request, Way::Copy);
        let input = request.input;
        no_encryption(&[
            input.server_side_encryption.as_ref().map(|kind| kind.as_str()),
            input.sse_customer_algorithm.as_deref(),
            input.copy_source_sse_customer_algorithm.as_deref(),
            input.ssekms_key_id.as_deref(),
        ])?;
        let view = self.bucket(&input.bucket).await?;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        let source = self.source(&call, &input.copy_source).await?;
        expected_owner(&source.view, input.expected_source_bucket_owner.as_deref())?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let conditions = Conditions {
            matches: input.copy_source_if_match,
            matches_none: input.copy_source_if_none_match,
            modified_since: input.copy_source_if_modified_since,
            unmodified_since: input.copy_source_if_unmodified_since,
        };
        if conditions.check(&source.data.etag(), source.object.modified).is_err() {
            return Err(s3_error!(PreconditionFailed, "a condition of the copy does not hold"));
        }
        let replace = input.metadata_directive.as_ref().is_some_and(|of| of.as_str() == MetadataDirective::REPLACE);
        let replace_tags = input.tagging_directive.as_ref().is_some_and(|of| of.as_str() == TaggingDirective::REPLACE);
        let class = input.storage_class.as_ref().map(|class| class.as_str().to_owned());
        let itself = source.view.bucket.entry == view.bucket.entry && source.object.key == *input.key;
        if itself
            && source.object.latest
            && !replace
            && !replace_tags
            && class.is_none()
            && input.website_redirect_location.is_none()
        {
            let text = "a copy of an object to itself changes its metadata, tags or storage class";
            return Err(s3_error!(InvalidRequest, "{}", text));
        }
        self.readable(&source)?;
        let owner = self.writer(&call, &view).await?;
        let headers = grant_headers!(input);
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        let acl = self.new_acl(&view, owner.account.as_str(), canned, &headers)?;
        let locks = self.locks(&view, &lock_headers!(input))?;
        let old = &source.attributes;
        let mut attributes = if replace {
            Attributes {
                content_type: input.content_type.map(|of| of.to_string()).filter(|of| !of.is_empty()),
                content_encoding: encoding(input.content_encoding),
                content_language: input.content_language,
                content_disposition: input.content_disposition,
                cache_control: input.cache_control,
                expires: input.expires.as_ref().map(shown::http_date),
                metadata: metadata(input.metadata)?,
                ..Attributes::default()
            }
        } else {
            Attributes { upload: None, ..old.clone() }
        };
        attributes.redirect = input.website_redirect_location;
        attributes.tags = if replace_tags { tags_of_header(input.tagging.as_deref())? } else { old.tags.clone() };
        attributes.checksum.clone_from(&old.checksum);
        attributes.parts = None;
        attributes.acl = Some(acl.clone());
        let cos = self.class(class.as_deref())?;
        let mut new = self.blank(&view, &input.key, &owner, cos);
        new.cause = cause;
        new.mode = acl.mode();
        new.storage_class = class;
        new.hold = locks.hold;
        new.retain = locks.retain;
        new.etag = source.data.etag();
        new.size_bytes = source.data.file.size_bytes;
        new.sums = source.data.file.sums;
        new.attributes = attributes::write(&attributes);
        let located = self.on_disk(&call, &source).await?;
        if let Some(disk) = located.copy(DISK_COPY) {
            new.disk_class = disk.storage_class.clone();
        }
        if new.size_bytes > 0 {
            new.base = Base::Append(source.data.file.bitfile);
        }
        let object = self.catalog.put_object(new).await.map_err(|error| of_catalog(error, Asked::Object))?;
        let fields = attributes.checksum.as_ref().map(Kept::fields).unwrap_or_default();
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                e_tag: object.data.as_ref().map(shown::etag),
                last_modified: Some(timestamp(object.modified)),
                checksum_crc32: fields.checksum_crc32,
                checksum_crc32c: fields.checksum_crc32c,
                checksum_crc64nvme: fields.checksum_crc64nvme,
                checksum_sha1: fields.checksum_sha1,
                checksum_sha256: fields.checksum_sha256,
                checksum_type: fields.checksum_type,
            }),
            copy_source_version_id: shown::version_header(&source.view, &source.object),
            expiration: lifecycle::expiration(&view, &object),
            version_id: shown::version_header(&view, &object),
            ..CopyObjectOutput::default()
        }))
    }
}

/// A retention that a client asks for.
pub(super) fn retention(mode: &str, until: &Timestamp, now: catalog::Timestamp) -> S3Result<Retention> {
    let compliance = match mode {
        ObjectLockRetentionMode::COMPLIANCE => true,
        ObjectLockRetentionMode::GOVERNANCE => false,
        other => return Err(s3_error!(MalformedXML, "there is no retention mode {:?}", other)),
    };
    let until = catalog::Timestamp(shown::micros(until));
    if until <= now {
        return Err(s3_error!(InvalidArgument, "the retain until date must be in the future"));
    }
    Ok(Retention { until, compliance })
}
