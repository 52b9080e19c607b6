//! Removing objects: one, or a thousand of one request.

use catalog::{Cause, DeleteObject, Deleted, Precondition, Tags, Way};
use futures::{StreamExt as _, stream};
use s3s::{S3Error, S3Request, S3Response, S3Result, dto::*, s3_error};

use super::{
    Door,
    access::{BucketView, Call, attributes_of},
    error::{Asked, of_catalog},
    notify,
    read::expected_owner,
    shown,
};

/// Keys of one request (Amazon S3).
const MAX_KEYS: usize = 1000;
/// How many of them are removed at the same time: the catalogue puts them into few transactions.
const AT_ONCE: usize = 32;

/// What is to be removed, and on what condition.
struct Wish {
    key: String,
    version: Option<String>,
    condition: Precondition,
    bypass: bool,
}

impl Door {
    pub(super) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let call = Call::of(&request)?;
        let cause = notify::cause(&request, Way::Plain);
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        let condition = Precondition {
            matches: input.if_match.as_ref().map(|condition| match condition.as_etag() {
                None => Tags::Any,
                Some(tag) => Tags::Of(vec![tag.value().to_owned()]),
            }),
            matches_none: None,
            size_bytes: input.if_match_size.map(|size| u64::try_from(size).unwrap_or(u64::MAX)),
            modified_s: input
                .if_match_last_modified_time
                .as_ref()
                .map(|time| shown::micros(time).div_euclid(1_000_000)),
        };
        let bypass = input.bypass_governance_retention == Some(true);
        let wish = Wish { key: input.key.to_string(), version: input.version_id, condition, bypass };
        let had_version = wish.version.is_some();
        let deleted = self.remove(&call, &view, wish, cause).await?;
        let marker = deleted.marker.then_some(true);
        let version = deleted.version.filter(|_| had_version || deleted.marker).map(shown::version_id);
        Ok(S3Response::new(DeleteObjectOutput {
            delete_marker: marker,
            version_id: version,
            ..DeleteObjectOutput::default()
        }))
    }

    async fn remove(&self, call: &Call, view: &BucketView, wish: Wish, cause: Cause) -> S3Result<Deleted> {
        let action = if wish.version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" };
        let version = wish.version.as_deref().map(shown::version_ref).transpose()?;
        let existing = self.version(view, &wish.key, version).await?;
        let tags = existing.as_ref().map(attributes_of);
        view.need_key(call, action, &wish.key, tags.as_ref())?;
        if wish.bypass {
            view.need_key(call, "s3:BypassGovernanceRetention", &wish.key, tags.as_ref())?;
        }
        let owner = self.writer(call, view).await?.account;
        let delete = DeleteObject {
            bucket: view.bucket.entry,
            key: wish.key,
            version,
            precondition: wish.condition,
            owner,
            bypass: wish.bypass,
            only_hidden: false,
            cause,
        };
        self.catalog.delete_object(delete).await.map_err(|error| of_catalog(error, Asked::Object))
    }

    pub(super) async fn delete_many(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let call = Call::of(&request)?;
        let cause = notify::cause(&request, Way::Plain);
        let input = request.input;
        let view = self.bucket(&input.bucket).await?;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        if input.delete.objects.is_empty() || input.delete.objects.len() > MAX_KEYS {
            return Err(s3_error!(MalformedXML, "one request removes from 1 to {} keys", MAX_KEYS));
        }
        let bypass = input.bypass_governance_retention == Some(true);
        let (call, view, cause) = (&call, &view, &cause);
        let removed = stream::iter(input.delete.objects).map(|object| async move {
            let wish = Wish {
                key: object.key.to_string(),
                version: object.version_id.clone(),
                condition: Precondition {
                    matches: object.e_tag.as_ref().map(|tag| match tag.value() {
                        "*" => Tags::Any,
                        value => Tags::Of(vec![value.to_owned()]),
                    }),
                    matches_none: None,
                    size_bytes: object.size.map(|size| u64::try_from(size).unwrap_or(u64::MAX)),
                    modified_s: object
                        .last_modified_time
                        .as_ref()
                        .map(|time| shown::micros(time).div_euclid(1_000_000)),
                },
                bypass,
            };
            let (key, version) = (wish.key.clone(), wish.version.clone());
            (key, version, self.remove(call, view, wish, cause.clone()).await)
        });
        let removed: Vec<_> = removed.buffered(AT_ONCE).collect().await;
        let quiet = input.delete.quiet == Some(true);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (key, version, result) in removed {
            match result {
                Ok(_) if quiet => {}
                Ok(done) => deleted.push(shown_deleted(key, version, done)),
                // What is not there is removed already.
                Err(error) => errors.push(shown_error(key, version, &error)),
            }
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }
}

fn shown_deleted(key: String, version: Option<String>, done: Deleted) -> DeletedObject {
    DeletedObject {
        delete_marker: done.marker.then_some(true),
        delete_marker_version_id: done.version.filter(|_| done.marker).map(shown::version_id),
        key: Some(key),
        version_id: version,
    }
}

fn shown_error(key: String, version: Option<String>, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(key),
        message: error.message().map(str::to_owned),
        version_id: version,
    }
}
