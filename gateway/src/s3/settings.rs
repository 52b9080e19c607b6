//! What is set for a bucket: access control list, policy, tags, CORS, versions, lifecycle, ownership, payment.

use catalog::{CatalogError, Versioning};
use s3s::{
    S3ErrorCode, S3Request, S3Response, S3Result,
    dto::*,
    s3_error,
    xml::{Deserialize as _, Deserializer, Serialize as _, Serializer},
};

use super::{
    Door,
    access::{BucketView, Call},
    acl::{Acl, GrantHeaders, Permission, grant_headers},
    attributes::{self, CorsRule, DefaultRetention as Retained, PublicAccess, Settings},
    error::{Asked, coded, of_catalog},
    policy::Policy,
    restore::STANDARD,
    write::checked_tags,
};

/// How often a change is made again because somebody else made one.
const ATTEMPTS: usize = 8;
/// Tags of a bucket, rules of CORS, rules of a lifecycle (Amazon S3).
const MAX_TAGS: usize = 50;
const MAX_CORS_RULES: usize = 100;
const MAX_LIFECYCLE_RULES: usize = 1000;

fn nothing(code: S3ErrorCode, what: &str) -> s3s::S3Error {
    s3s::S3Error::with_message(code, format!("the bucket has no {what}"))
}

fn absent(code: &'static str, what: &str) -> s3s::S3Error {
    coded(code, hyper::StatusCode::NOT_FOUND, format!("the bucket has no {what}"))
}

impl Door {
    /// The bucket, if the caller may do this to it.
    pub(super) async fn settled<T>(&self, request: &S3Request<T>, bucket: &str, action: &str) -> S3Result<BucketView> {
        self.settled_by(request, bucket, action, None).await
    }

    async fn settled_by<T>(
        &self,
        request: &S3Request<T>,
        bucket: &str,
        action: &str,
        by_list: Option<Permission>,
    ) -> S3Result<BucketView> {
        let call = Call::of(request)?;
        let view = self.bucket(bucket).await?;
        view.need(&call, action, by_list)?;
        Ok(view)
    }

    /// Changes a bucket's settings; what others change meanwhile stays.
    async fn change(&self, mut view: BucketView, change: impl Fn(&mut Settings)) -> S3Result<()> {
        for _ in 0..ATTEMPTS {
            let mut settings = view.settings.clone();
            change(&mut settings);
            match self.catalog.set_bucket_settings(&view.bucket, attributes::write(&settings)).await {
                Ok(()) => return Ok(()),
                Err(CatalogError::Changed { .. }) => view = self.bucket(&view.bucket.name).await?,
                Err(error) => return Err(of_catalog(error, Asked::Bucket)),
            }
        }
        Err(s3_error!(OperationAborted, "somebody else changes bucket {} all the time", view.bucket.name))
    }

    pub(super) async fn bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let by = Some(Permission::ReadAcp);
        let view = self.settled_by(&request, &request.input.bucket, "s3:GetBucketAcl", by).await?;
        let (owner, grants) = view.acl().shown();
        Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) }))
    }

    pub(super) async fn set_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let by = Some(Permission::WriteAcp);
        let view = self.settled_by(&request, &request.input.bucket, "s3:PutBucketAcl", by).await?;
        let input = request.input;
        let headers = grant_headers!(input, write);
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        let acl = self.replaced_acl(&view, view.owner(), canned, &headers, input.access_control_policy).await?;
        self.change(view, |settings| settings.acl = Some(acl.clone())).await?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    /// The list that a request sets.
    pub(super) async fn replaced_acl(
        &self,
        view: &BucketView,
        owner: &str,
        canned: Option<&str>,
        headers: &GrantHeaders<'_>,
        policy: Option<AccessControlPolicy>,
    ) -> S3Result<Acl> {
        let acl = match (canned, Acl::of_headers(headers, owner)?, policy) {
            (Some(canned), None, None) => Acl::canned(canned, owner, view.owner())?,
            (None, Some(listed), None) => listed,
            (None, None, Some(policy)) => Acl::of_policy(policy, owner)?,
            (None, None, None) => return Err(s3_error!(MissingSecurityHeader, "no access control list was sent")),
            _ => return Err(s3_error!(UnexpectedContent, "an access control list comes in one way, not in several")),
        };
        if acl.is_public() && view.settings.public_access.is_some_and(|access| access.block_acls) {
            return Err(s3_error!(AccessDenied, "bucket {} lets nothing be made public", view.bucket.name));
        }
        for account in acl.accounts() {
            let known = wire::id::AccountName::new(account).ok();
            let found = match &known {
                Some(name) => self.catalog.account(name).await.map_err(|error| of_catalog(error, Asked::Bucket))?,
                None => None,
            };
            if found.is_none() && acl.is_addressed(account) {
                let text = format!("no account has an address of {account:?}");
                return Err(s3_error!(UnresolvableGrantByEmailAddress, "{}", text));
            }
            if found.is_none() {
                return Err(s3_error!(InvalidArgument, "there is no account {:?}", account));
            }
        }
        Ok(acl)
    }

    pub(super) async fn policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketPolicy").await?;
        let policy = view.settings.policy.ok_or_else(|| nothing(S3ErrorCode::NoSuchBucketPolicy, "policy"))?;
        Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) }))
    }

    pub(super) async fn set_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketPolicy").await?;
        let text = request.input.policy;
        let policy = Policy::read(&text, &view.bucket.name);
        let policy = policy.map_err(|why| s3_error!(MalformedPolicy, "it is no policy: {}", why))?;
        if policy.is_public() && view.settings.public_access.is_some_and(|access| access.block_policy) {
            return Err(s3_error!(AccessDenied, "bucket {} lets no policy make it public", view.bucket.name));
        }
        self.change(view, |settings| settings.policy = Some(text.clone())).await?;
        Ok(S3Response::new(PutBucketPolicyOutput::default()))
    }

    pub(super) async fn drop_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:DeleteBucketPolicy").await?;
        self.change(view, |settings| settings.policy = None).await?;
        Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
    }

    pub(super) async fn policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketPolicyStatus").await?;
        let is_public = Some(view.is_public() || view.acl().is_public());
        let policy_status = Some(PolicyStatus { is_public });
        Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status }))
    }

    pub(super) async fn bucket_tags(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketTagging").await?;
        if view.settings.tags.is_empty() {
            return Err(nothing(S3ErrorCode::NoSuchTagSet, "tags"));
        }
        Ok(S3Response::new(GetBucketTaggingOutput { tag_set: shown_tags(&view.settings.tags) }))
    }

    pub(super) async fn set_bucket_tags(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketTagging").await?;
        let tags = checked_tags(read_tags(request.input.tagging), MAX_TAGS)?;
        self.change(view, |settings| settings.tags.clone_from(&tags)).await?;
        Ok(S3Response::new(PutBucketTaggingOutput::default()))
    }

    pub(super) async fn drop_bucket_tags(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketTagging").await?;
        self.change(view, |settings| settings.tags.clear()).await?;
        Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
    }

    pub(super) async fn cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketCORS").await?;
        if view.settings.cors.is_empty() {
            return Err(absent("NoSuchCORSConfiguration", "CORS configuration"));
        }
        let rules = view.settings.cors.iter().map(|rule| CORSRule {
            allowed_headers: (!rule.headers.is_empty()).then(|| rule.headers.clone()),
            allowed_methods: rule.methods.clone(),
            allowed_origins: rule.origins.clone(),
            expose_headers: (!rule.expose.is_empty()).then(|| rule.expose.clone()),
            id: rule.id.clone(),
            max_age_seconds: rule.max_age,
        });
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules.collect()) }))
    }

    pub(super) async fn set_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketCORS").await?;
        let rules = request.input.cors_configuration.cors_rules;
        if rules.is_empty() || rules.len() > MAX_CORS_RULES {
            return Err(s3_error!(MalformedXML, "there are from 1 to {} rules", MAX_CORS_RULES));
        }
        let methods = ["GET", "PUT", "HEAD", "POST", "DELETE"];
        if let Some(method) =
            rules.iter().flat_map(|rule| &rule.allowed_methods).find(|method| !methods.contains(&method.as_str()))
        {
            return Err(s3_error!(InvalidRequest, "method {:?} cannot be allowed", method));
        }
        let rules: Vec<_> = rules
            .into_iter()
            .map(|rule| CorsRule {
                id: rule.id,
                methods: rule.allowed_methods,
                origins: rule.allowed_origins,
                headers: rule.allowed_headers.unwrap_or_default(),
                expose: rule.expose_headers.unwrap_or_default(),
                max_age: rule.max_age_seconds,
            })
            .collect();
        self.change(view, |settings| settings.cors.clone_from(&rules)).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    pub(super) async fn drop_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketCORS").await?;
        self.change(view, |settings| settings.cors.clear()).await?;
        Ok(S3Response::new(DeleteBucketCorsOutput::default()))
    }

    pub(super) async fn versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketVersioning").await?;
        let status = match view.bucket.versioning {
            Versioning::Off => None,
            Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
            Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
        };
        let status = status.map(BucketVersioningStatus::from_static);
        Ok(S3Response::new(GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() }))
    }

    pub(super) async fn set_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketVersioning").await?;
        let wanted = request.input.versioning_configuration;
        if wanted.mfa_delete.as_ref().is_some_and(|mfa| mfa.as_str() == MFADelete::ENABLED) {
            return Err(s3_error!(NotImplemented, "deleting with a second factor is not offered"));
        }
        let versioning = match wanted.status.as_ref().map(|status| status.as_str()) {
            Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
            Some(BucketVersioningStatus::SUSPENDED) if view.bucket.locking => {
                return Err(s3_error!(InvalidBucketState, "a bucket whose versions can be locked keeps them"));
            }
            Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
            _ => return Err(s3_error!(MalformedXML, "versioning is Enabled or Suspended")),
        };
        let set = self.catalog.set_versioning(view.bucket.entry, versioning, false).await;
        set.map_err(|error| of_catalog(error, Asked::Bucket))?;
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }

    pub(super) async fn lifecycle(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetLifecycleConfiguration").await?;
        let text = view.settings.lifecycle.as_deref();
        let text = text.ok_or_else(|| nothing(S3ErrorCode::NoSuchLifecycleConfiguration, "lifecycle configuration"))?;
        let mut reader = Deserializer::new(text.as_bytes());
        let found = BucketLifecycleConfiguration::deserialize(&mut reader);
        let found = found.map_err(|_| s3_error!(InternalError, "the lifecycle configuration is damaged"))?;
        let output = GetBucketLifecycleConfigurationOutput { rules: Some(found.rules), ..Default::default() };
        Ok(S3Response::new(output))
    }

    pub(super) async fn set_lifecycle(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutLifecycleConfiguration").await?;
        let mut wanted = request.input.lifecycle_configuration;
        let rules = wanted.as_mut().map(|wanted| &mut wanted.rules);
        let rules = rules.ok_or_else(|| s3_error!(MalformedXML, "there is no rule"))?;
        check_lifecycle(rules)?;
        self.check_classes(rules)?;
        let mut text = Vec::new();
        let written = wanted.map(|wanted| wanted.serialize(&mut Serializer::new(&mut text)));
        if !matches!(written, Some(Ok(()))) {
            return Err(s3_error!(MalformedXML, "the lifecycle configuration cannot be written"));
        }
        let text = String::from_utf8(text).map_err(|_| s3_error!(MalformedXML, "it is no text"))?;
        self.change(view, |settings| settings.lifecycle = Some(text.clone())).await?;
        Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
    }

    /// Rules move versions to classes of this site that are not the standard one.
    fn check_classes(&self, rules: &[LifecycleRule]) -> S3Result<()> {
        let current = rules.iter().flat_map(|rule| rule.transitions.iter().flatten()).map(|of| &of.storage_class);
        let hidden = rules.iter().flat_map(|rule| rule.noncurrent_version_transitions.iter().flatten());
        for class in current.chain(hidden.map(|of| &of.storage_class)) {
            let class = class.as_ref().map(TransitionStorageClass::as_str);
            let class = class.ok_or_else(|| s3_error!(MalformedXML, "a transition names a storage class"))?;
            self.class(Some(class))?;
            if class == STANDARD {
                return Err(s3_error!(InvalidArgument, "no rule brings versions back to {}", STANDARD));
            }
        }
        Ok(())
    }

    pub(super) async fn drop_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutLifecycleConfiguration").await?;
        self.change(view, |settings| settings.lifecycle = None).await?;
        Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
    }

    pub(super) async fn public_access(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketPublicAccessBlock").await?;
        let found = view.settings.public_access;
        let found = found.ok_or_else(|| absent("NoSuchPublicAccessBlockConfiguration", "public access block"))?;
        let shown = PublicAccessBlockConfiguration {
            block_public_acls: Some(found.block_acls),
            block_public_policy: Some(found.block_policy),
            ignore_public_acls: Some(found.ignore_acls),
            restrict_public_buckets: Some(found.restrict),
        };
        Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration: Some(shown) }))
    }

    pub(super) async fn set_public_access(
        &self,
        request: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketPublicAccessBlock").await?;
        let wanted = request.input.public_access_block_configuration;
        let access = PublicAccess {
            block_acls: wanted.block_public_acls == Some(true),
            ignore_acls: wanted.ignore_public_acls == Some(true),
            block_policy: wanted.block_public_policy == Some(true),
            restrict: wanted.restrict_public_buckets == Some(true),
        };
        self.change(view, |settings| settings.public_access = Some(access)).await?;
        Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
    }

    pub(super) async fn drop_public_access(
        &self,
        request: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketPublicAccessBlock").await?;
        self.change(view, |settings| settings.public_access = None).await?;
        Ok(S3Response::new(DeletePublicAccessBlockOutput::default()))
    }

    pub(super) async fn ownership(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketOwnershipControls").await?;
        let found = view.settings.ownership;
        let found = found.ok_or_else(|| absent("OwnershipControlsNotFoundError", "ownership controls"))?;
        let rule = OwnershipControlsRule { object_ownership: ObjectOwnership::from(found) };
        let ownership_controls = Some(OwnershipControls { rules: vec![rule] });
        Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls }))
    }

    pub(super) async fn set_ownership(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketOwnershipControls").await?;
        let rules = request.input.ownership_controls.rules;
        let [rule] = rules.as_slice() else { return Err(s3_error!(MalformedXML, "there is one rule")) };
        let wanted = rule.object_ownership.as_str().to_owned();
        if !["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"].contains(&wanted.as_str()) {
            return Err(s3_error!(MalformedXML, "there is no ownership {:?}", wanted));
        }
        self.change(view, |settings| settings.ownership = Some(wanted.clone())).await?;
        Ok(S3Response::new(PutBucketOwnershipControlsOutput::default()))
    }

    pub(super) async fn drop_ownership(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketOwnershipControls").await?;
        self.change(view, |settings| settings.ownership = None).await?;
        Ok(S3Response::new(DeleteBucketOwnershipControlsOutput::default()))
    }

    pub(super) async fn payment(
        &self,
        request: S3Request<GetBucketRequestPaymentInput>,
    ) -> S3Result<S3Response<GetBucketRequestPaymentOutput>> {
        self.settled(&request, &request.input.bucket, "s3:GetBucketRequestPayment").await?;
        let payer = Some(Payer::from_static(Payer::BUCKET_OWNER));
        Ok(S3Response::new(GetBucketRequestPaymentOutput { payer }))
    }

    pub(super) async fn lock_rules(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:GetBucketObjectLockConfiguration").await?;
        if !view.bucket.locking {
            let what = "object lock configuration";
            return Err(nothing(S3ErrorCode::ObjectLockConfigurationNotFoundError, what));
        }
        let rule = view.settings.retention.map(|kept| {
            let mode =
                if kept.compliance { ObjectLockRetentionMode::COMPLIANCE } else { ObjectLockRetentionMode::GOVERNANCE };
            let mode = Some(ObjectLockRetentionMode::from_static(mode));
            ObjectLockRule { default_retention: Some(DefaultRetention { days: kept.days, mode, years: kept.years }) }
        });
        let shown = ObjectLockConfiguration {
            object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
            rule,
        };
        Ok(S3Response::new(GetObjectLockConfigurationOutput { object_lock_configuration: Some(shown) }))
    }

    pub(super) async fn set_lock_rules(
        &self,
        request: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketObjectLockConfiguration").await?;
        if view.bucket.versioning != Versioning::Enabled {
            return Err(s3_error!(InvalidBucketState, "only a bucket that keeps versions can have them locked"));
        }
        let wanted = request.input.object_lock_configuration;
        let wanted = wanted.ok_or_else(|| s3_error!(MalformedXML, "there is no configuration"))?;
        if wanted.object_lock_enabled.as_ref().is_none_or(|on| on.as_str() != ObjectLockEnabled::ENABLED) {
            return Err(s3_error!(MalformedXML, "ObjectLockEnabled is Enabled"));
        }
        let default = wanted.rule.and_then(|rule| rule.default_retention);
        let retention = default.map(default_retention).transpose()?;
        let set = self.catalog.set_versioning(view.bucket.entry, Versioning::Enabled, true).await;
        set.map_err(|error| of_catalog(error, Asked::Bucket))?;
        self.change(view, |settings| settings.retention = retention).await?;
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    }
}

fn default_retention(wanted: DefaultRetention) -> S3Result<Retained> {
    let compliance = match wanted.mode.as_ref().map(|mode| mode.as_str()) {
        Some(ObjectLockRetentionMode::COMPLIANCE) => true,
        Some(ObjectLockRetentionMode::GOVERNANCE) => false,
        _ => return Err(s3_error!(MalformedXML, "a retention has a mode")),
    };
    if wanted.days.is_some() == wanted.years.is_some() {
        return Err(s3_error!(MalformedXML, "a default retention has days or years"));
    }
    if wanted.days.or(wanted.years).is_some_and(|span| span < 1) {
        let text = "a default retention is a positive number of days or years";
        return Err(coded("InvalidRetentionPeriod", hyper::StatusCode::BAD_REQUEST, text));
    }
    Ok(Retained { compliance, days: wanted.days, years: wanted.years })
}

/// # Source
///
/// Amazon S3 API Reference, "PutBucketLifecycleConfiguration": what is refused.
pub(super) fn check_lifecycle(rules: &mut [LifecycleRule]) -> S3Result<()> {
    if rules.is_empty() || rules.len() > MAX_LIFECYCLE_RULES {
        return Err(s3_error!(MalformedXML, "there are from 1 to {} rules", MAX_LIFECYCLE_RULES));
    }
    let mut names = std::collections::HashSet::new();
    for (number, rule) in rules.iter_mut().enumerate() {
        let name = rule.id.get_or_insert_with(|| format!("rule-{}", number + 1));
        if name.chars().count() > 255 {
            return Err(s3_error!(InvalidArgument, "a rule's ID has 255 letters at most"));
        }
        if !names.insert(name.clone()) {
            return Err(s3_error!(InvalidArgument, "two rules have the ID {:?}", name));
        }
        if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
            return Err(s3_error!(MalformedXML, "a rule's status is Enabled or Disabled"));
        }
        let expiration = rule.expiration.as_ref();
        let days = [
            expiration.and_then(|of| of.days),
            rule.noncurrent_version_expiration.as_ref().and_then(|of| of.noncurrent_days),
            rule.abort_incomplete_multipart_upload.as_ref().and_then(|of| of.days_after_initiation),
        ];
        if days.into_iter().flatten().any(|days| days < 1) {
            return Err(s3_error!(InvalidArgument, "days are a positive number"));
        }
        let transitions = rule.transitions.as_deref().unwrap_or_default();
        if transitions.iter().any(|of| of.days.is_some_and(|days| days < 0) || of.days.is_some() == of.date.is_some()) {
            return Err(s3_error!(InvalidArgument, "a transition has a date, or days that are not negative"));
        }
        let dates = transitions.iter().map(|of| of.date.as_ref());
        for date in dates.chain([expiration.and_then(|of| of.date.as_ref())]).flatten() {
            let time = time::OffsetDateTime::from(date.clone());
            if time.time() != time::Time::MIDNIGHT {
                return Err(s3_error!(InvalidArgument, "a date is at midnight UTC"));
            }
        }
    }
    Ok(())
}

/// Tags as they are shown.
pub(super) fn shown_tags(tags: &[(String, String)]) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag { key: Some(key.clone()), value: Some(value.clone()) }).collect()
}

/// Tags as they come.
pub(super) fn read_tags(tagging: Tagging) -> Vec<(String, String)> {
    tagging.tag_set.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect()
}
