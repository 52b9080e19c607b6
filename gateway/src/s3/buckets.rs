//! Buckets: made, listed, looked at, removed.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use catalog::{CatalogError, NewBucket};
use s3s::{S3Request, S3Response, S3Result, dto::*, s3_error};

use super::{
    Door,
    access::Call,
    acl::{Acl, Permission, grant_headers, owner},
    attributes::{self, Settings},
    error::{Asked, of_catalog},
    read::expected_owner,
    shown::timestamp,
};

/// Buckets of one page (Amazon S3).
const MAX_BUCKETS: i32 = 10_000;

impl Door {
    pub(super) async fn make_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let who = call.caller.known()?;
        let location = input.create_bucket_configuration.and_then(|of| of.location_constraint);
        let location = location.map(|location| location.as_str().to_owned()).filter(|name| !name.is_empty());
        if let Some(location) = location.as_deref().filter(|location| *location != self.config.region) {
            let text = format!("this site is region {}, not {location}", self.config.region);
            return Err(s3_error!(InvalidLocationConstraint, "{}", text));
        }
        let account = who.account.as_str();
        let headers = grant_headers!(input, write);
        let listed = Acl::of_headers(&headers, account)?;
        let acl = match (input.acl.as_ref(), listed) {
            (Some(canned), _) => Acl::canned(canned.as_str(), account, account)?,
            (None, Some(listed)) => listed,
            (None, None) => Acl::private(account),
        };
        let settings = Settings {
            acl: Some(acl.clone()),
            ownership: input.object_ownership.as_ref().map(|of| of.as_str().to_owned()),
            location,
            ..Settings::default()
        };
        let parent = self.root().await?;
        let new = NewBucket {
            parent,
            name: input.bucket.clone(),
            owner: who.account.clone(),
            group: who.primary_group().clone(),
            mode: 0o755,
            locking: input.object_lock_enabled_for_bucket == Some(true),
            settings: attributes::write(&settings),
        };
        let location = format!("/{}", input.bucket);
        match self.catalog.create_bucket(new).await {
            Ok(_) => {}
            Err(CatalogError::Exists { .. }) => {
                let there = self.catalog.bucket(&input.bucket).await;
                let there = there.map_err(|error| of_catalog(error, Asked::Bucket))?;
                let own = there.as_ref().is_some_and(|bucket| bucket.owner == who.account);
                let same = there.as_ref().is_some_and(|bucket| {
                    attributes::read::<Settings>(&bucket.settings).acl.is_none_or(|there| there == acl)
                });
                if own && same && self.config.region == "us-east-1" {
                    // As Amazon's first region has always answered, if nothing would have to be changed.
                    return Ok(S3Response::new(CreateBucketOutput { location: Some(location) }));
                }
                if own && same {
                    return Err(s3_error!(BucketAlreadyOwnedByYou, "bucket {} is yours already", input.bucket));
                }
                let text = if own { "is there already, with another ACL" } else { "belongs to somebody else" };
                return Err(s3_error!(BucketAlreadyExists, "{} {}", input.bucket, text));
            }
            Err(error) => return Err(of_catalog(error, Asked::Bucket)),
        }
        Ok(S3Response::new(CreateBucketOutput { location: Some(location) }))
    }

    pub(super) async fn drop_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let call = Call::of(&request)?;
        let view = self.bucket(&request.input.bucket).await?;
        expected_owner(&view, request.input.expected_bucket_owner.as_deref())?;
        view.need(&call, "s3:DeleteBucket", None)?;
        self.catalog.delete_bucket(view.bucket.entry).await.map_err(|error| of_catalog(error, Asked::Bucket))?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    pub(super) async fn bucket_is_there(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let call = Call::of(&request)?;
        let view = self.bucket(&request.input.bucket).await?;
        expected_owner(&view, request.input.expected_bucket_owner.as_deref())?;
        view.need(&call, "s3:ListBucket", Some(Permission::Read))?;
        let output =
            HeadBucketOutput { bucket_region: Some(self.config.region.clone()), ..HeadBucketOutput::default() };
        Ok(S3Response::new(output))
    }

    pub(super) async fn my_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        // Nobody in particular has no buckets.
        let Some(who) = &call.caller.principal else {
            return Ok(S3Response::new(ListBucketsOutput {
                buckets: Some(Vec::new()),
                ..ListBucketsOutput::default()
            }));
        };
        let most = input.max_buckets.unwrap_or(MAX_BUCKETS).clamp(1, MAX_BUCKETS);
        let after = match input.continuation_token.as_deref() {
            None | Some("") => String::new(),
            Some(token) => {
                let name = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                name.ok_or_else(|| s3_error!(InvalidArgument, "{:?} is no continuation token of ours", token))?
            }
        };
        let prefix = input.prefix.clone().unwrap_or_default();
        let limit = u32::try_from(most).unwrap_or(1);
        let found = self.catalog.buckets(&who.account, &after, &prefix, limit.saturating_add(1)).await;
        let mut found = found.map_err(|error| of_catalog(error, Asked::Bucket))?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(&last.name));
        let buckets = found.into_iter().map(|bucket| Bucket {
            bucket_region: None,
            creation_date: Some(timestamp(bucket.created)),
            name: Some(bucket.name),
        });
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token: next,
            owner: Some(owner(who.account.as_str())),
            prefix: input.prefix,
        }))
    }

    pub(super) async fn location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let call = Call::of(&request)?;
        let view = self.bucket(&request.input.bucket).await?;
        view.need(&call, "s3:GetBucketLocation", None)?;
        // Amazon's first region has no name here.
        let named = view
            .settings
            .location
            .clone()
            .or_else(|| (self.config.region != "us-east-1").then(|| self.config.region.clone()));
        let location_constraint = named.map(BucketLocationConstraint::from);
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }
}
