//! Listings of keys and of versions.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use catalog::{Object as Version, ObjectListing, ObjectPage, VersionListing};
use hyper::Uri;
use s3s::{S3Request, S3Response, S3Result, dto::*, s3_error};

use super::{
    Door,
    access::{BucketView, Call, attributes_of},
    acl::{self, Permission},
    read::expected_owner,
    restore::Restored,
    shown::{self, timestamp},
};

/// Keys of one page (Amazon S3).
const MAX_KEYS: i32 = 1000;

/// Of whom keys in answers are encoded.
struct Encoding(bool);

impl Encoding {
    fn of(wanted: Option<&EncodingType>) -> S3Result<Self> {
        match wanted.map(|wanted| wanted.as_str()) {
            None => Ok(Self(false)),
            Some(EncodingType::URL) => Ok(Self(true)),
            Some(other) => Err(s3_error!(InvalidArgument, "there is no encoding {:?}", other)),
        }
    }

    /// A key as it is written: percent-encoded but for what a path has.
    fn text(&self, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let mut encoded = String::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b'*' => {
                    encoded.push(char::from(byte));
                }
                other => {
                    use std::fmt::Write as _;
                    let _ = write!(encoded, "%{other:02X}");
                }
            }
        }
        encoded
    }

    fn prefixes(&self, prefixes: &[String]) -> Vec<CommonPrefix> {
        prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(self.text(prefix)) }).collect()
    }
}

fn most(wanted: Option<i32>) -> S3Result<i32> {
    match wanted {
        Some(wanted) if wanted < 0 => Err(s3_error!(InvalidArgument, "max-keys cannot be negative")),
        wanted => Ok(wanted.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
    }
}

/// What makes common prefixes. Ceph's clients may ask for a listing without order: ours are always in order, which they
/// do not mind, but common prefixes need it.
fn delimiter_of(uri: &Uri, delimiter: Option<&str>) -> S3Result<Option<String>> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
    let unordered = uri.query().is_some_and(|query| query.contains("allow-unordered=true"));
    if unordered && delimiter.is_some() {
        return Err(s3_error!(InvalidArgument, "a listing without order has no common prefixes"));
    }
    Ok(delimiter.map(str::to_owned))
}

/// What both versions of the listing of keys ask.
struct Asked<'a> {
    bucket: &'a str,
    owner: Option<&'a str>,
    encoding: Option<&'a EncodingType>,
    max_keys: Option<i32>,
    prefix: Option<String>,
    delimiter: Option<&'a str>,
    after: Option<String>,
    status: Option<&'a [OptionalObjectAttributes]>,
    owners: bool,
}

/// What both answer.
struct Listed {
    encoding: Encoding,
    max_keys: i32,
    prefix: String,
    delimiter: Option<String>,
    page: ObjectPage,
    contents: Vec<Object>,
}

impl Door {
    pub(super) async fn list_v1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let asked = Asked {
            bucket: &input.bucket,
            owner: input.expected_bucket_owner.as_deref(),
            encoding: input.encoding_type.as_ref(),
            max_keys: input.max_keys,
            prefix: input.prefix,
            delimiter: input.delimiter.as_deref(),
            after: input.marker.clone(),
            status: input.optional_object_attributes.as_deref(),
            owners: true,
        };
        let Listed { encoding, max_keys, prefix, delimiter, page, contents } =
            self.listed(&call, &request.uri, asked).await?;
        let next = page.last.as_ref().filter(|_| page.more && delimiter.is_some()).map(|last| encoding.text(last));
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            // Version 1 of the listing leaves the prefix as it came, and clients rely on it.
            prefix: Some(prefix),
            marker: Some(encoding.text(input.marker.as_deref().unwrap_or_default())),
            max_keys: Some(max_keys),
            is_truncated: Some(page.more),
            contents: Some(contents),
            common_prefixes: Some(encoding.prefixes(&page.prefixes)),
            delimiter: delimiter.map(|delimiter| encoding.text(&delimiter)),
            next_marker: next,
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    pub(super) async fn list_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let token = input.continuation_token.as_deref().map(read_token).transpose()?;
        let asked = Asked {
            bucket: &input.bucket,
            owner: input.expected_bucket_owner.as_deref(),
            encoding: input.encoding_type.as_ref(),
            max_keys: input.max_keys,
            prefix: input.prefix,
            delimiter: input.delimiter.as_deref(),
            after: token.flatten().or_else(|| input.start_after.clone()),
            status: input.optional_object_attributes.as_deref(),
            owners: input.fetch_owner == Some(true),
        };
        let Listed { encoding, max_keys, prefix, delimiter, page, contents } =
            self.listed(&call, &request.uri, asked).await?;
        let count = contents.len() + page.prefixes.len();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encoding.text(&prefix)),
            max_keys: Some(max_keys),
            key_count: i32::try_from(count).ok(),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.more),
            next_continuation_token: page.last.as_ref().filter(|_| page.more).map(|last| URL_SAFE_NO_PAD.encode(last)),
            contents: Some(contents),
            common_prefixes: Some(encoding.prefixes(&page.prefixes)),
            delimiter: delimiter.map(|delimiter| encoding.text(&delimiter)),
            encoding_type: input.encoding_type,
            start_after: input.start_after.map(|after| encoding.text(&after)),
            ..ListObjectsV2Output::default()
        }))
    }

    /// A page of keys, by either version of the call.
    async fn listed(&self, call: &Call, uri: &Uri, asked: Asked<'_>) -> S3Result<Listed> {
        let view = self.listable(call, asked.bucket, "s3:ListBucket", asked.owner).await?;
        let encoding = Encoding::of(asked.encoding)?;
        let max_keys = most(asked.max_keys)?;
        let delimiter = delimiter_of(uri, asked.delimiter)?;
        let listing = ObjectListing {
            after: asked.after.filter(|after| !after.is_empty()),
            prefix: asked.prefix.unwrap_or_default(),
            delimiter: delimiter.clone(),
            limit: u32::try_from(max_keys).unwrap_or(0),
        };
        let page = self.page(&view, &listing).await?;
        let contents = self.contents(&page, &encoding, asked.owners, wants_status(asked.status)).await?;
        Ok(Listed { encoding, max_keys, prefix: listing.prefix, delimiter, page, contents })
    }

    /// The bucket, if the caller may list it so.
    async fn listable(&self, call: &Call, bucket: &str, action: &str, owner: Option<&str>) -> S3Result<BucketView> {
        let view = self.bucket(bucket).await?;
        view.need(call, action, Some(Permission::Read))?;
        expected_owner(&view, owner)?;
        Ok(view)
    }

    async fn page(&self, view: &BucketView, listing: &ObjectListing) -> S3Result<ObjectPage> {
        let page = self.catalog.list_objects(view.bucket.entry, listing).await;
        page.map_err(|error| super::error::of_catalog(error, super::error::Asked::Bucket))
    }

    async fn contents(
        &self,
        page: &ObjectPage,
        encoding: &Encoding,
        owners: bool,
        status: bool,
    ) -> S3Result<Vec<Object>> {
        let mut contents = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            let Some(data) = &object.data else { continue };
            contents.push(Object {
                checksum_algorithm: sum_kinds(object),
                checksum_type: None,
                e_tag: Some(shown::etag(data)),
                key: Some(encoding.text(&object.key)),
                last_modified: Some(timestamp(object.modified)),
                owner: owners.then(|| acl::owner(object.owner.as_str())),
                restore_status: if status { self.restore_of(object).await? } else { None },
                size: i64::try_from(data.file.size_bytes).ok(),
                storage_class: self.shown_class(data).map(ObjectStorageClass::from),
            });
        }
        Ok(contents)
    }

    async fn restore_of(&self, object: &Version) -> S3Result<Option<RestoreStatus>> {
        let Some(data) = &object.data else { return Ok(None) };
        Ok(self.restore_status(data).await?.map(|status| match status {
            Restored::Ongoing => RestoreStatus { is_restore_in_progress: Some(true), restore_expiry_date: None },
            Restored::Until(until) => {
                RestoreStatus { is_restore_in_progress: Some(false), restore_expiry_date: Some(timestamp(until)) }
            }
        }))
    }

    pub(super) async fn list_all_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let owner = input.expected_bucket_owner.as_deref();
        let view = self.listable(&call, &input.bucket, "s3:ListBucketVersions", owner).await?;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max_keys = most(input.max_keys)?;
        let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
        let after = match (input.key_marker.as_deref().filter(|key| !key.is_empty()), &input.version_id_marker) {
            (None, Some(marker)) if !marker.is_empty() => {
                return Err(s3_error!(InvalidArgument, "a version-id marker goes with a key marker"));
            }
            (None, _) => None,
            (Some(key), Some(version)) if !version.is_empty() => {
                let wanted = shown::version_ref(version)?;
                let found = self.version(&view, key, Some(wanted)).await?;
                let number = found.map(|object| object.version.number).or(match wanted {
                    catalog::VersionRef::Number(number) => Some(number),
                    catalog::VersionRef::Plain => None,
                });
                Some((key.to_owned(), number))
            }
            (Some(key), _) => Some((key.to_owned(), None)),
        };
        let listing = VersionListing {
            after,
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: delimiter.clone(),
            limit: u32::try_from(max_keys).unwrap_or(0),
        };
        let page = self.catalog.list_versions(view.bucket.entry, &listing).await;
        let page = page.map_err(|error| super::error::of_catalog(error, super::error::Asked::Bucket))?;
        let (mut versions, mut markers) = (Vec::new(), Vec::new());
        for object in &page.objects {
            let (key, version) = (Some(encoding.text(&object.key)), Some(shown::version_id(object.version)));
            let (owner, modified) = (Some(acl::owner(object.owner.as_str())), Some(timestamp(object.modified)));
            match &object.data {
                None => markers.push(DeleteMarkerEntry {
                    is_latest: Some(object.latest),
                    key,
                    last_modified: modified,
                    owner,
                    version_id: version,
                }),
                Some(data) => versions.push(ObjectVersion {
                    checksum_algorithm: sum_kinds(object),
                    checksum_type: None,
                    e_tag: Some(shown::etag(data)),
                    is_latest: Some(object.latest),
                    key,
                    last_modified: modified,
                    owner,
                    restore_status: None,
                    size: i64::try_from(data.file.size_bytes).ok(),
                    storage_class: self.shown_class(data).map(ObjectVersionStorageClass::from),
                    version_id: version,
                }),
            }
        }
        let last = page.objects.last().filter(|object| page.last.as_deref() == Some(object.key.as_str()));
        Ok(S3Response::new(ListObjectVersionsOutput {
            common_prefixes: Some(encoding.prefixes(&page.prefixes)),
            delete_markers: Some(markers),
            delimiter: delimiter.map(|delimiter| encoding.text(&delimiter)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.more),
            key_marker: input.key_marker.map(|marker| encoding.text(&marker)),
            max_keys: Some(max_keys),
            name: Some(input.bucket),
            next_key_marker: page.last.as_ref().filter(|_| page.more).map(|last| encoding.text(last)),
            next_version_id_marker: last.filter(|_| page.more).map(|object| shown::version_id(object.version)),
            prefix: Some(encoding.text(&listing.prefix)),
            version_id_marker: input.version_id_marker,
            versions: Some(versions),
            ..ListObjectVersionsOutput::default()
        }))
    }
}

fn sum_kinds(object: &Version) -> Option<Vec<ChecksumAlgorithm>> {
    let sum = attributes_of(object).checksum?;
    Some(vec![ChecksumAlgorithm::from_static(sum.algorithm.name())])
}

fn wants_status(wanted: Option<&[OptionalObjectAttributes]>) -> bool {
    wanted.is_some_and(|wanted| wanted.iter().any(|name| name.as_str() == OptionalObjectAttributes::RESTORE_STATUS))
}

/// A token is the last key of a page; an empty one begins at the beginning.
fn read_token(token: &str) -> S3Result<Option<String>> {
    if token.is_empty() {
        return Ok(None);
    }
    let key = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "{:?} is no continuation token of ours", token))
}
