//! What can be changed of an object that is written: its access control list, tags and locks.

use catalog::{CatalogError, Object, ObjectData, Retention};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, dto::*, s3_error};

use super::{
    Door,
    access::{BucketView, Call, attributes_of},
    acl::{Acl, Permission, grant_headers},
    attributes::{self, Attributes},
    error::{Asked, of_catalog},
    read::Found,
    settings::{read_tags, shown_tags},
    shown::{self, timestamp},
    write::{checked_tags, retention},
};

/// How often a change is made again because somebody else made one.
const ATTEMPTS: usize = 8;
/// Tags of one object (Amazon S3).
const MAX_TAGS: usize = 10;

/// Locks of a version.
struct Marks {
    attributes: Attributes,
    hold: bool,
    retain: Option<Retention>,
}

impl Door {
    /// Changes an object's marks; what others change meanwhile stays.
    async fn mark(&self, found: Found, change: impl Fn(&mut Marks) -> S3Result<()>) -> S3Result<()> {
        let Found { view, mut object, .. } = found;
        for _ in 0..ATTEMPTS {
            let data = present(&object)?;
            let mut marks = Marks { attributes: attributes_of(&object), hold: data.hold, retain: data.retain.clone() };
            change(&mut marks)?;
            let text = attributes::write(&marks.attributes);
            match self.catalog.change_object(&object, text, marks.hold, marks.retain).await {
                Ok(()) => return Ok(()),
                Err(CatalogError::Changed { .. }) => object = self.again(&view, &object).await?,
                Err(error) => return Err(of_catalog(error, Asked::Object)),
            }
        }
        Err(s3_error!(OperationAborted, "somebody else changes {:?} all the time", object.key))
    }

    async fn again(&self, view: &BucketView, object: &Object) -> S3Result<Object> {
        let version = shown::version_ref(&shown::version_id(object.version))?;
        let found = self.version(view, &object.key, Some(version)).await?;
        found.ok_or_else(|| s3_error!(NoSuchVersion, "{:?} was removed a moment ago", object.key))
    }

    /// A version whose bucket lets the caller do this, whatever its own list says.
    async fn by_bucket(
        &self,
        call: &Call,
        bucket: &str,
        key: &str,
        version: Option<&str>,
        action: &str,
    ) -> S3Result<Found> {
        let view = self.bucket(bucket).await?;
        let wanted = version.map(shown::version_ref).transpose()?;
        let Some(object) = self.version(&view, key, wanted).await? else {
            return Err(match wanted {
                Some(_) => s3_error!(NoSuchVersion, "there is no such version of {:?}", key),
                None => self.missing(&view, call, key),
            });
        };
        let attributes = attributes_of(&object);
        view.need_key(call, action, key, Some(&attributes))?;
        let Some(data) = object.data.clone() else {
            let error = match wanted {
                Some(_) => s3_error!(MethodNotAllowed, "it is a delete marker"),
                None => self.missing(&view, call, key),
            };
            return Err(shown::with_marker(error, &object));
        };
        Ok(Found { view, object, data, attributes })
    }

    pub(super) async fn object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let wanted = ("s3:GetObjectAcl", Permission::ReadAcp);
        let found = self.found(&call, &input.bucket, &input.key, input.version_id.as_deref(), wanted).await?;
        let acl = found.attributes.acl.unwrap_or_else(|| Acl::private(found.object.owner.as_str()));
        let (owner, grants) = acl.shown();
        Ok(S3Response::new(GetObjectAclOutput {
            grants: Some(grants),
            owner: Some(owner),
            ..GetObjectAclOutput::default()
        }))
    }

    pub(super) async fn set_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let wanted = ("s3:PutObjectAcl", Permission::WriteAcp);
        let found = self.found(&call, &input.bucket, &input.key, input.version_id.as_deref(), wanted).await?;
        let headers = grant_headers!(input, write);
        let canned = input.acl.as_ref().map(|acl| acl.as_str());
        let owner = found.object.owner.as_str();
        let acl = self.replaced_acl(&found.view, owner, canned, &headers, input.access_control_policy).await?;
        self.mark(found, |marks| {
            marks.attributes.acl = Some(acl.clone());
            Ok(())
        })
        .await?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }

    pub(super) async fn object_tags(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let wanted = ("s3:GetObjectTagging", Permission::Read);
        let found = self.found(&call, &input.bucket, &input.key, input.version_id.as_deref(), wanted).await?;
        Ok(S3Response::new(GetObjectTaggingOutput {
            tag_set: shown_tags(&found.attributes.tags),
            version_id: shown::version_header(&found.view, &found.object),
        }))
    }

    pub(super) async fn set_object_tags(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:PutObjectTagging").await?;
        let tags = checked_tags(read_tags(input.tagging), MAX_TAGS)?;
        let version_id = shown::version_header(&found.view, &found.object);
        self.mark(found, |marks| {
            marks.attributes.tags.clone_from(&tags);
            Ok(())
        })
        .await?;
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    pub(super) async fn drop_object_tags(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:DeleteObjectTagging").await?;
        let version_id = shown::version_header(&found.view, &found.object);
        self.mark(found, |marks| {
            marks.attributes.tags.clear();
            Ok(())
        })
        .await?;
        Ok(S3Response::new(DeleteObjectTaggingOutput { version_id }))
    }

    pub(super) async fn object_retention(
        &self,
        request: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:GetObjectRetention").await?;
        lockable(&found.view)?;
        let retain = found.data.retain.ok_or_else(|| no_lock("retention"))?;
        let mode =
            if retain.compliance { ObjectLockRetentionMode::COMPLIANCE } else { ObjectLockRetentionMode::GOVERNANCE };
        let shown = ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from_static(mode)),
            retain_until_date: Some(timestamp(retain.until)),
        };
        Ok(S3Response::new(GetObjectRetentionOutput { retention: Some(shown) }))
    }

    pub(super) async fn set_retention(
        &self,
        request: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:PutObjectRetention").await?;
        lockable(&found.view)?;
        let wanted = input.retention.ok_or_else(|| s3_error!(MalformedXML, "there is no retention"))?;
        let now = self.catalog.now();
        let retain = match (wanted.mode.as_ref(), wanted.retain_until_date.as_ref()) {
            (Some(mode), Some(until)) => Some(retention(mode.as_str(), until, now)?),
            (None, None) => None,
            _ => return Err(s3_error!(MalformedXML, "a retention has a mode and a date")),
        };
        let bypass = input.bypass_governance_retention == Some(true);
        if bypass {
            found.view.need_key(&call, "s3:BypassGovernanceRetention", &input.key, Some(&found.attributes))?;
        }
        self.mark(found, |marks| {
            let old = marks.retain.as_ref().filter(|old| old.until > now);
            let later = |old: &Retention| retain.as_ref().is_some_and(|new| new.until >= old.until);
            let same = |old: &Retention| retain.as_ref().is_some_and(|new| new.compliance == old.compliance);
            if old.is_some_and(|old| !(later(old) && same(old)) && (old.compliance || !bypass)) {
                return Err(s3_error!(AccessDenied, "the retention can only be made longer, in its mode"));
            }
            marks.retain.clone_from(&retain);
            Ok(())
        })
        .await?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    pub(super) async fn object_hold(
        &self,
        request: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:GetObjectLegalHold").await?;
        lockable(&found.view)?;
        let status = if found.data.hold { ObjectLockLegalHoldStatus::ON } else { ObjectLockLegalHoldStatus::OFF };
        let shown = ObjectLockLegalHold { status: Some(ObjectLockLegalHoldStatus::from_static(status)) };
        Ok(S3Response::new(GetObjectLegalHoldOutput { legal_hold: Some(shown) }))
    }

    pub(super) async fn set_hold(
        &self,
        request: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        let call = Call::of(&request)?;
        let input = request.input;
        let version = input.version_id.as_deref();
        let found = self.by_bucket(&call, &input.bucket, &input.key, version, "s3:PutObjectLegalHold").await?;
        lockable(&found.view)?;
        let wanted = input.legal_hold.and_then(|hold| hold.status);
        let hold = match wanted.as_ref().map(|status| status.as_str()) {
            Some(ObjectLockLegalHoldStatus::ON) => true,
            Some(ObjectLockLegalHoldStatus::OFF) => false,
            _ => return Err(s3_error!(MalformedXML, "a legal hold is ON or OFF")),
        };
        self.mark(found, |marks| {
            marks.hold = hold;
            Ok(())
        })
        .await?;
        Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
    }
}

fn present(object: &Object) -> S3Result<&ObjectData> {
    object.data.as_ref().ok_or_else(|| s3_error!(MethodNotAllowed, "it is a delete marker"))
}

fn lockable(view: &BucketView) -> S3Result<()> {
    if view.bucket.locking {
        return Ok(());
    }
    Err(s3_error!(InvalidRequest, "bucket {} has no object lock configuration", view.bucket.name))
}

fn no_lock(what: &str) -> s3s::S3Error {
    let text = format!("the object has no {what}");
    s3s::S3Error::with_message(S3ErrorCode::NoSuchObjectLockConfiguration, text)
}
