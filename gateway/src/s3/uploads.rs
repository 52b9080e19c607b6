//! Uploads in parts.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Multipart upload limits" and "Checking object integrity": parts from 5 MiB but the last, 1 to
//! 10,000, the tag of the whole from the tags of the parts.

use catalog::{CompleteUpload, NewPart, NewUpload, Object, Upload, UploadPart, Way};
use md5::Digest as _;
use s3s::{S3Request, S3Response, S3Result, dto::*, s3_error};
use wire::checksum::Sums;

use crate::redirect::Reason;

use super::{
    Door,
    access::{Call, attributes_of},
    acl::{self, grant_headers},
    attributes::{self, Attributes, PartAttributes, PartOf, UploadAttributes},
    checksum::{Algorithm, Kept, announced, joined},
    data::{Became, Becomes},
    error::{Asked, of_catalog},
    lifecycle, notify,
    read::{Conditions, no_encryption},
    restore::STANDARD,
    shown::{self, timestamp},
    write::{Announced, encoding, lock_headers, metadata, precondition, tags_of_header},
};

/// The largest number of a part (Amazon S3).
const MAX_PART: u32 = 10_000;
/// The smallest part but the last (Amazon S3).
const MIN_PART_BYTES: u64 = 5 << 20;
/// Parts and uploads of one page (Amazon S3).
const MAX_PAGE: i32 = 1000;

impl Door {
    pub(super) async fn create_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        no_encryption(&[
            input.server_side_encryption.as_ref().map(|kind| kind.as_str()),
            input.sse_customer_algorithm.as_deref(),
            input.ssekms_key_id.as_deref(),
        ])?;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let owner = self.writer(&call, &view).await?;
        let headers = grant_headers!(input);
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        let acl = self.new_acl(&view, owner.account.as_str(), canned, &headers)?;
        let class = input.storage_class.as_ref().map(|class| class.as_str().to_owned());
        let cos = self.class(class.as_deref())?;
        let locks = self.locks(&view, &lock_headers!(input))?;
        let algorithm =
            match input.checksum_algorithm.as_ref() {
                None => None,
                Some(name) => {
                    let found = Algorithm::from_name(name.as_str());
                    Some(found.ok_or_else(|| {
                        s3_error!(InvalidRequest, "checksum algorithm {:?} is not known", name.as_str())
                    })?)
                }
            };
        let full = match (input.checksum_type.as_ref().map(|of| of.as_str()), algorithm) {
            (None, algorithm) => algorithm.is_none_or(Algorithm::full_by_default),
            (Some(_), None) => return Err(s3_error!(InvalidRequest, "a checksum type goes with an algorithm")),
            (Some(ChecksumType::FULL_OBJECT), Some(algorithm)) if algorithm.combines() => true,
            (Some(ChecksumType::COMPOSITE), Some(algorithm)) if algorithm != Algorithm::Crc64Nvme => false,
            (Some(other), Some(algorithm)) => {
                let text = format!("{} has no sums of type {other}", algorithm.name());
                return Err(s3_error!(InvalidRequest, "{}", text));
            }
        };
        let object = Attributes {
            content_type: input.content_type.map(|of| of.to_string()).filter(|of| !of.is_empty()),
            content_encoding: encoding(input.content_encoding),
            content_language: input.content_language,
            content_disposition: input.content_disposition,
            cache_control: input.cache_control,
            expires: input.expires.as_ref().map(shown::http_date),
            redirect: input.website_redirect_location,
            metadata: metadata(input.metadata)?,
            tags: tags_of_header(input.tagging.as_deref())?,
            acl: Some(acl),
            ..Attributes::default()
        };
        let attributes = UploadAttributes {
            object,
            algorithm,
            full_object: full,
            storage_class: class,
            hold: locks.hold,
            retain_us: locks.retain.as_ref().map(|retain| retain.until.0),
            compliance: locks.retain.as_ref().is_some_and(|retain| retain.compliance),
        };
        let new = NewUpload {
            bucket: view.bucket.entry,
            key: input.key.to_string(),
            account: owner.account,
            cos,
            expires: self.catalog.now().after(self.config.upload_limit.duration()),
            attributes: attributes::write(&attributes),
        };
        let upload = self.catalog.create_upload(new).await.map_err(|error| of_catalog(error, Asked::Bucket))?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(upload_id(upload.id)),
            checksum_algorithm: algorithm.map(|of| ChecksumAlgorithm::from_static(of.name())),
            checksum_type: algorithm.map(|_| checksum_type(full)),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    /// The upload of that number, of this key.
    async fn upload(&self, view: &super::access::BucketView, key: &str, id: &str) -> S3Result<Upload> {
        let unknown = || s3_error!(NoSuchUpload, "there is no upload {:?} of {:?}", id, key);
        let number = u64::from_str_radix(id, 16).map_err(|_| unknown())?;
        let found = self.catalog.upload(number).await.map_err(|error| of_catalog(error, Asked::Upload))?;
        found.filter(|upload| upload.bucket == view.bucket.entry && upload.key == key).ok_or_else(unknown)
    }

    pub(super) async fn put_part(&self, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let call = Call::of(&request)?;
        let trailers = request.trailing_headers;
        let input = request.input;
        no_encryption(&[input.sse_customer_algorithm.as_deref()])?;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let number = part_number(input.part_number)?;
        let upload = self.upload(&view, &input.key, &input.upload_id).await?;
        let kept: UploadAttributes = attributes::read(&upload.attributes);
        let owner = self.writer(&call, &view).await?;
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
        let wanted = kept.algorithm.unwrap_or(Algorithm::Crc64Nvme);
        let incoming = announced.incoming(&call, input.body, trailers, wanted)?;
        if kept.algorithm.is_some_and(|algorithm| algorithm != incoming.sum) {
            let text = format!("the upload was begun with {}, not {}", wanted.name(), incoming.sum.name());
            return Err(s3_error!(InvalidRequest, "{}", text));
        }
        let part = self.store_part(&owner, &upload, number, incoming).await?;
        let fields = part_sum(&part).as_ref().map(Kept::fields).unwrap_or_default();
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(part.etag)),
            checksum_crc32: fields.checksum_crc32,
            checksum_crc32c: fields.checksum_crc32c,
            checksum_crc64nvme: fields.checksum_crc64nvme,
            checksum_sha1: fields.checksum_sha1,
            checksum_sha256: fields.checksum_sha256,
            ..UploadPartOutput::default()
        }))
    }

    async fn store_part(
        &self,
        owner: &crate::identity::Principal,
        upload: &Upload,
        number: u32,
        incoming: super::data::Incoming,
    ) -> S3Result<UploadPart> {
        let new = NewPart {
            upload: upload.id,
            number,
            disk_class: wire::id::StorageClassName::new("disk").expect("a good name"),
            size_bytes: 0,
            sums: Sums::EMPTY,
            segments: Vec::new(),
            etag: String::new(),
            attributes: String::new(),
        };
        let becomes = Becomes::Part(
            Box::new(new),
            Box::new(|kept: &Kept| attributes::write(&PartAttributes { checksum: Some(kept.clone()) })),
        );
        let place = (upload.bucket, upload.key.as_str(), &upload.cos);
        match self.receive(owner, place, incoming, becomes).await? {
            Became::Part(part) => Ok(*part),
            Became::Object(..) => Err(s3_error!(InternalError, "a part became something else")),
        }
    }

    /// A part is a copy of some bytes of an object: they pass through the door, since a part of a segment has no sums.
    pub(super) async fn copy_part(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        no_encryption(&[input.sse_customer_algorithm.as_deref(), input.copy_source_sse_customer_algorithm.as_deref()])?;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let number = part_number(input.part_number)?;
        let upload = self.upload(&view, &input.key, &input.upload_id).await?;
        let source = self.source(&call, &input.copy_source).await?;
        let conditions = Conditions {
            matches: input.copy_source_if_match,
            matches_none: input.copy_source_if_none_match,
            modified_since: input.copy_source_if_modified_since,
            unmodified_since: input.copy_source_if_unmodified_since,
        };
        if conditions.check(&source.data.etag(), source.object.modified).is_err() {
            return Err(s3_error!(PreconditionFailed, "a condition of the copy does not hold"));
        }
        self.readable(&source)?;
        let size = source.data.file.size_bytes;
        let range = match input.copy_source_range.as_deref() {
            None => shown::range(0, size)?,
            Some(text) => copy_range(text, size)?,
        };
        let owner = self.writer(&call, &view).await?;
        let kept: UploadAttributes = attributes::read(&upload.attributes);
        let reader = self.reader(&call, &source.view).await?;
        let body = self.send(&reader, &source.object.key, &source.data.file, range, Reason::Copy).await?;
        let incoming = super::data::Incoming {
            body: Some(body),
            trailers: None,
            size_bytes: range.length(),
            md5: None,
            sum: kept.algorithm.unwrap_or(Algorithm::Crc64Nvme),
            announced: None,
            trailer: false,
            way: Err(Reason::Copy),
        };
        let part = self.store_part(&owner, &upload, number, incoming).await?;
        let fields = part_sum(&part).as_ref().map(Kept::fields).unwrap_or_default();
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(CopyPartResult {
                e_tag: Some(ETag::Strong(part.etag)),
                last_modified: Some(timestamp(part.created)),
                checksum_crc32: fields.checksum_crc32,
                checksum_crc32c: fields.checksum_crc32c,
                checksum_crc64nvme: fields.checksum_crc64nvme,
                checksum_sha1: fields.checksum_sha1,
                checksum_sha256: fields.checksum_sha256,
            }),
            copy_source_version_id: shown::version_header(&source.view, &source.object),
            ..UploadPartCopyOutput::default()
        }))
    }

    pub(super) async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let call = Call::of(&request)?;
        let cause = notify::cause(&request, Way::Parts);
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:PutObject", &input.key, None)?;
        let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        if listed.is_empty() {
            return Err(s3_error!(MalformedXML, "an upload has one part at least"));
        }
        let upload = match self.upload(&view, &input.key, &input.upload_id).await {
            Ok(upload) => upload,
            Err(gone) => {
                // The same request again, whose answer was lost.
                let there = self.version(&view, &input.key, None).await?;
                let done = there.filter(|object| attributes_of(object).upload.as_ref() == Some(&input.upload_id));
                let done = done.ok_or(gone)?;
                return Ok(S3Response::new(self.completed(&view, input.bucket, input.key, &done)));
            }
        };
        let kept: UploadAttributes = attributes::read(&upload.attributes);
        let there = self.catalog.upload_parts(upload.id, 0, MAX_PART).await;
        let there = there.map_err(|error| of_catalog(error, Asked::Upload))?;
        let parts = chosen(&listed, &there)?;
        let sums: Vec<_> = parts.iter().map(part_sum).collect();
        let pairs: Vec<_> = sums.iter().map(Option::as_ref).zip(parts.iter().map(|part| part.size_bytes)).collect();
        let algorithm = kept.algorithm.unwrap_or(Algorithm::Crc64Nvme);
        let sum = joined(algorithm, kept.full_object, &pairs);
        let values = [
            (Algorithm::Crc32, input.checksum_crc32.as_ref()),
            (Algorithm::Crc32c, input.checksum_crc32c.as_ref()),
            (Algorithm::Crc64Nvme, input.checksum_crc64nvme.as_ref()),
            (Algorithm::Sha1, input.checksum_sha1.as_ref()),
            (Algorithm::Sha256, input.checksum_sha256.as_ref()),
        ];
        if let Some((of, wanted)) = announced(values)
            && sum.as_ref().is_none_or(|sum| sum.algorithm != of || !same_sum(&sum.value, &wanted))
        {
            return Err(s3_error!(BadDigest, "{} of the parts is not {}", of.name(), wanted));
        }
        let size: u64 = parts.iter().map(|part| part.size_bytes).sum();
        if input.mpu_object_size.is_some_and(|wanted| u64::try_from(wanted) != Ok(size)) {
            return Err(s3_error!(InvalidRequest, "the parts come to {} bytes, another size was announced", size));
        }
        let list: Vec<PartOf> = parts
            .iter()
            .zip(&sums)
            .map(|(part, sum)| PartOf { number: part.number, size: part.size_bytes, checksum: sum.clone() })
            .collect();
        let owner = self.identities.account(&upload.account).await.map_err(super::error::of_failure)?;
        let mut object = self.blank(&view, &upload.key, &owner, upload.cos.clone());
        object.cause = cause;
        object.precondition = precondition(input.if_match.as_ref(), input.if_none_match.as_ref());
        object.mode = kept.object.acl.as_ref().map_or(0o600, acl::Acl::mode);
        object.disk_class.clone_from(&parts[0].disk_class);
        object.etag = whole_etag(&parts);
        object.storage_class.clone_from(&kept.storage_class);
        object.hold = kept.hold;
        object.retain = kept
            .retain_us
            .map(|until| catalog::Retention { until: catalog::Timestamp(until), compliance: kept.compliance });
        object.attributes = attributes::write(&Attributes {
            checksum: sum,
            parts: u32::try_from(parts.len()).ok(),
            upload: Some(input.upload_id.clone()),
            ..kept.object
        });
        let part_list = attributes::write(&list);
        let complete = CompleteUpload { upload: upload.id, parts, object, part_list };
        let done = self.catalog.complete_upload(complete).await.map_err(|error| of_catalog(error, Asked::Object))?;
        Ok(S3Response::new(self.completed(&view, input.bucket, input.key, &done)))
    }

    fn completed(
        &self,
        view: &super::access::BucketView,
        bucket: String,
        key: String,
        done: &Object,
    ) -> CompleteMultipartUploadOutput {
        let fields = attributes_of(done).checksum.as_ref().map(Kept::fields).unwrap_or_default();
        CompleteMultipartUploadOutput {
            location: Some(format!("/{bucket}/{key}")),
            bucket: Some(bucket),
            key: Some(key),
            e_tag: done.data.as_ref().map(shown::etag),
            expiration: lifecycle::expiration(view, done),
            version_id: shown::written_header(view, done),
            checksum_crc32: fields.checksum_crc32,
            checksum_crc32c: fields.checksum_crc32c,
            checksum_crc64nvme: fields.checksum_crc64nvme,
            checksum_sha1: fields.checksum_sha1,
            checksum_sha256: fields.checksum_sha256,
            checksum_type: fields.checksum_type,
            ..CompleteMultipartUploadOutput::default()
        }
    }

    pub(super) async fn abort(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:AbortMultipartUpload", &input.key, None)?;
        let upload = self.upload(&view, &input.key, &input.upload_id).await?;
        self.catalog.abort_upload(upload.id).await.map_err(|error| of_catalog(error, Asked::Upload))?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(super) async fn list_parts_of(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        view.need_key(&call, "s3:ListMultipartUploadParts", &input.key, None)?;
        let upload = self.upload(&view, &input.key, &input.upload_id).await?;
        let kept: UploadAttributes = attributes::read(&upload.attributes);
        let most = input.max_parts.unwrap_or(MAX_PAGE).clamp(0, MAX_PAGE);
        let marker = input.part_number_marker.unwrap_or(0);
        let after =
            u32::try_from(marker).map_err(|_| s3_error!(InvalidArgument, "a part number marker is positive"))?;
        let found = self.catalog.upload_parts(upload.id, after, u32::try_from(most).unwrap_or(0) + 1).await;
        let mut found = found.map_err(|error| of_catalog(error, Asked::Upload))?;
        let more = found.len() > usize::try_from(most).unwrap_or(0);
        found.truncate(usize::try_from(most).unwrap_or(0));
        let last = found.last().map_or(marker, |part| i32::try_from(part.number).unwrap_or(i32::MAX));
        let owner = acl::owner(upload.account.as_str());
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            checksum_algorithm: kept.algorithm.map(|of| ChecksumAlgorithm::from_static(of.name())),
            checksum_type: kept.algorithm.map(|_| checksum_type(kept.full_object)),
            initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
            owner: Some(owner),
            is_truncated: Some(more),
            max_parts: Some(most),
            next_part_number_marker: Some(last),
            part_number_marker: Some(marker),
            parts: Some(found.iter().map(shown_part).collect()),
            storage_class: Some(StorageClass::from(kept.storage_class.unwrap_or_else(|| STANDARD.to_owned()))),
            ..ListPartsOutput::default()
        }))
    }

    pub(super) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        view.need(&call, "s3:ListBucketMultipartUploads", Some(acl::Permission::Read))?;
        let most = input.max_uploads.unwrap_or(MAX_PAGE).clamp(0, MAX_PAGE);
        let limit = usize::try_from(most).unwrap_or(0);
        let prefix = input.prefix.clone().unwrap_or_default();
        let marker = input.upload_id_marker.as_deref().filter(|marker| !marker.is_empty());
        let marker = marker.and_then(|marker| u64::from_str_radix(marker, 16).ok());
        let after = input.key_marker.as_deref().filter(|key| !key.is_empty()).map(|key| (key, marker));
        let found = self.catalog.uploads(view.bucket.entry, after, &prefix, u32::try_from(most).unwrap_or(0) + 1).await;
        let mut found = found.map_err(|error| of_catalog(error, Asked::Bucket))?;
        let more = found.len() > limit;
        found.truncate(limit);
        let (next_key, next_id) = found.last().map(|last| (last.key.clone(), upload_id(last.id))).unzip();
        let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
        let mut prefixes: Vec<String> = Vec::new();
        let mut uploads = Vec::new();
        for upload in found {
            let common = delimiter.as_deref().and_then(|delimiter| {
                let behind = upload.key.get(prefix.len()..)?;
                behind.find(delimiter).map(|at| upload.key[..prefix.len() + at + delimiter.len()].to_owned())
            });
            match common {
                Some(common) if prefixes.last() == Some(&common) => {}
                Some(common) => prefixes.push(common),
                None => uploads.push(shown_upload(&upload)),
            }
        }
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            common_prefixes: Some(prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) }).collect()),
            delimiter,
            encoding_type: input.encoding_type,
            is_truncated: Some(more),
            key_marker: input.key_marker,
            max_uploads: Some(most),
            next_key_marker: next_key.filter(|_| more),
            next_upload_id_marker: next_id.filter(|_| more),
            prefix: Some(prefix),
            upload_id_marker: input.upload_id_marker,
            uploads: Some(uploads),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn upload_id(id: u64) -> String {
    format!("{id:016x}")
}

fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=MAX_PART).contains(number));
    number.ok_or_else(|| s3_error!(InvalidArgument, "a part's number is from 1 to {}", MAX_PART))
}

fn part_sum(part: &UploadPart) -> Option<Kept> {
    attributes::read::<PartAttributes>(&part.attributes).checksum
}

fn checksum_type(full: bool) -> ChecksumType {
    ChecksumType::from_static(if full { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE })
}

/// A composite sum may be announced without the number of parts.
fn same_sum(have: &str, wanted: &str) -> bool {
    have == wanted || have.split_once('-').is_some_and(|(sum, _)| sum == wanted)
}

/// The parts that a client lists, if they are there, in order, and large enough.
fn chosen(listed: &[CompletedPart], there: &[UploadPart]) -> S3Result<Vec<UploadPart>> {
    let mut chosen: Vec<UploadPart> = Vec::with_capacity(listed.len());
    for (at, wanted) in listed.iter().enumerate() {
        let number =
            part_number(wanted.part_number.unwrap_or(0)).map_err(|_| s3_error!(InvalidPart, "a part has no number"))?;
        if listed.get(at + 1).is_some_and(|next| next.part_number == wanted.part_number) {
            // A part that was sent twice and listed twice: the last word on it counts.
            continue;
        }
        if chosen.last().is_some_and(|last| last.number >= number) {
            return Err(s3_error!(InvalidPartOrder, "parts are listed in the order of their numbers"));
        }
        let part = there.binary_search_by_key(&number, |part| part.number).ok().map(|at| &there[at]);
        let part = part.ok_or_else(|| s3_error!(InvalidPart, "part {} was not uploaded", number))?;
        if wanted.e_tag.as_ref().is_some_and(|tag| tag.value() != part.etag) {
            return Err(s3_error!(InvalidPart, "part {} has another ETag", number));
        }
        let values = [
            (Algorithm::Crc32, wanted.checksum_crc32.as_ref()),
            (Algorithm::Crc32c, wanted.checksum_crc32c.as_ref()),
            (Algorithm::Crc64Nvme, wanted.checksum_crc64nvme.as_ref()),
            (Algorithm::Sha1, wanted.checksum_sha1.as_ref()),
            (Algorithm::Sha256, wanted.checksum_sha256.as_ref()),
        ];
        if let Some((algorithm, value)) = announced(values) {
            let same = part_sum(part).is_some_and(|kept| kept.algorithm == algorithm && kept.value == value);
            if !same {
                return Err(s3_error!(InvalidPart, "part {} has another checksum", number));
            }
        }
        chosen.push(part.clone());
    }
    let small = chosen.iter().rev().skip(1).find(|part| part.size_bytes < MIN_PART_BYTES);
    if let Some(small) = small {
        return Err(s3_error!(
            EntityTooSmall,
            "part {} has {} bytes; only the last may be small",
            small.number,
            small.size_bytes
        ));
    }
    Ok(chosen)
}

/// The MD5 of the parts' MD5s, and how many there are.
fn whole_etag(parts: &[UploadPart]) -> String {
    let mut digest = md5::Md5::new();
    for part in parts {
        digest.update(hex::decode(&part.etag).unwrap_or_default());
    }
    format!("{}-{}", hex::encode(digest.finalize()), parts.len())
}

pub(super) fn copy_range(text: &str, size: u64) -> S3Result<wire::extent::ByteRange> {
    let malformed = || s3_error!(InvalidArgument, "{:?} is no range of a copy: write bytes=FIRST-LAST", text);
    let (first, last) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or_else(malformed)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Err(malformed());
    }
    let (first, last): (u64, u64) = (first.parse().map_err(|_| malformed())?, last.parse().map_err(|_| malformed())?);
    if last < first {
        return Err(malformed());
    }
    if last >= size {
        return Err(s3_error!(InvalidRange, "bytes {}-{} are not within {} bytes", first, last, size));
    }
    shown::range(first, last - first + 1)
}

fn shown_part(part: &UploadPart) -> Part {
    let fields = part_sum(part).as_ref().map(Kept::fields).unwrap_or_default();
    Part {
        checksum_crc32: fields.checksum_crc32,
        checksum_crc32c: fields.checksum_crc32c,
        checksum_crc64nvme: fields.checksum_crc64nvme,
        checksum_sha1: fields.checksum_sha1,
        checksum_sha256: fields.checksum_sha256,
        e_tag: Some(ETag::Strong(part.etag.clone())),
        last_modified: Some(timestamp(part.created)),
        part_number: i32::try_from(part.number).ok(),
        size: i64::try_from(part.size_bytes).ok(),
    }
}

fn shown_upload(upload: &Upload) -> MultipartUpload {
    let kept: UploadAttributes = attributes::read(&upload.attributes);
    let owner = acl::owner(upload.account.as_str());
    MultipartUpload {
        checksum_algorithm: kept.algorithm.map(|of| ChecksumAlgorithm::from_static(of.name())),
        checksum_type: kept.algorithm.map(|_| checksum_type(kept.full_object)),
        initiated: Some(timestamp(upload.created)),
        initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
        key: Some(upload.key.clone()),
        owner: Some(owner),
        storage_class: Some(StorageClass::from(kept.storage_class.unwrap_or_else(|| STANDARD.to_owned()))),
        upload_id: Some(upload_id(upload.id)),
    }
}
