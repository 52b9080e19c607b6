//! Who asks, and whether they may: an account, a policy and access control lists decide.
//!
//! The order is Amazon's: an explicit denial of the bucket's policy, then an allowance of it, then the owner, then the
//! access control list. Administrators of the site may everything. What another door wrote has permission bits, which
//! are asked instead of a list.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use catalog::{Bucket, Content, Entry, Object};
use hyper::{HeaderMap, Uri, header};
use s3s::{
    S3ErrorCode, S3Request, S3Result,
    access::{S3Access, S3AccessContext},
    dto::PostObjectInput,
    s3_error,
};
use wire::id::EntryId;

use super::{
    Door,
    acl::{Acl, Permission},
    attributes::{self, Attributes, Settings},
    before,
    error::{Asked, of_catalog},
    policy::{Policy, Question, Verdict},
    sigv2::Vouched,
};
use crate::{
    identity::{Principal, Right},
    redirect::Exit,
};

/// What the door knows of a request's connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) address: IpAddr,
    pub(super) secure: bool,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// `None` for a request without a signature.
    pub(super) principal: Option<Principal>,
    /// What was said of its key: whether it is sent to movers for bytes.
    pub(super) direct: Option<bool>,
    connection: Option<Connection>,
}

impl Caller {
    /// The account's name.
    pub(super) fn account(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| principal.account.as_str())
    }

    /// Whether the request came over TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.connection.is_some_and(|connection| connection.secure)
    }

    fn is_admin(&self) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.admin)
    }

    /// Somebody with an account.
    pub(super) fn known(&self) -> S3Result<&Principal> {
        self.principal.as_ref().ok_or_else(|| s3_error!(AccessDenied, "sign the request with an access key"))
    }
}

/// A request as far as it matters who may do it.
pub(super) struct Call {
    pub(super) caller: Arc<Caller>,
    pub(super) headers: HeaderMap,
    /// The request's path, as it came.
    pub(super) path: String,
    /// The way out, if the client may be sent to a mover with its body.
    pub(super) exit: Option<Exit>,
    facts: BTreeMap<String, Vec<String>>,
}

impl Call {
    pub(super) fn of<T>(request: &S3Request<T>) -> S3Result<Self> {
        let caller = request.extensions.get::<Arc<Caller>>().cloned();
        let caller = caller.ok_or_else(|| s3_error!(AccessDenied, "nobody knows who asks"))?;
        let facts = facts(&caller, &request.headers, &request.uri);
        let (headers, path) = (request.headers.clone(), request.uri.path().to_owned());
        Ok(Self { caller, headers, path, exit: request.extensions.get::<Exit>().cloned(), facts })
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// What a policy's conditions may ask about.
fn facts(caller: &Caller, headers: &HeaderMap, uri: &Uri) -> BTreeMap<String, Vec<String>> {
    let mut facts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |key: &str, value: &str| facts.entry(key.to_owned()).or_default().push(value.to_owned());
    if let Some(connection) = caller.connection {
        add("aws:sourceip", &connection.address.to_string());
        add("aws:securetransport", if connection.secure { "true" } else { "false" });
    }
    if let Some(account) = caller.account() {
        add("aws:username", account);
        add("aws:userid", account);
    }
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if let Some(referer) = text(header::REFERER) {
        add("aws:referer", referer);
    }
    if let Some(agent) = text(header::USER_AGENT) {
        add("aws:useragent", agent);
    }
    for (name, value) in headers {
        let (name, Ok(value)) = (name.as_str(), value.to_str()) else { continue };
        if name == "x-amz-tagging" {
            for (tag, value) in pairs(value) {
                add(&format!("s3:requestobjecttag/{tag}"), &value);
                add("s3:requestobjecttagkeys", &tag);
            }
        } else if name.starts_with("x-amz-") {
            add(&format!("s3:{name}"), value);
        }
    }
    for (name, value) in pairs(uri.query().unwrap_or_default()) {
        match name.as_str() {
            "prefix" | "delimiter" | "max-keys" => add(&format!("s3:{name}"), &value),
            "versionId" => add("s3:versionid", &value),
            _ => {}
        }
    }
    facts
}

/// The pairs of a form's text.
pub(super) fn pairs(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let hex: Vec<u8> = rest.clone().take(2).collect();
                    match std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                        Some(decoded) if hex.len() == 2 => {
                            rest.nth(1);
                            decoded
                        }
                        _ => byte,
                    }
                }
                other => other,
            });
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    };
    text.split('&').filter(|text| !text.is_empty()).map(pair).collect()
}

/// A bucket and what was set for it.
pub(super) struct BucketView {
    pub(super) bucket: Bucket,
    pub(super) settings: Settings,
    policy: Option<Policy>,
}

impl BucketView {
    fn of(bucket: Bucket) -> Self {
        let settings: Settings = attributes::read(&bucket.settings);
        let policy = settings.policy.as_ref().and_then(|text| Policy::read(text, &bucket.name).ok());
        Self { bucket, settings, policy }
    }

    pub(super) fn owner(&self) -> &str {
        self.bucket.owner.as_str()
    }

    /// The bucket's list.
    pub(super) fn acl(&self) -> Acl {
        self.settings.acl.clone().unwrap_or_else(|| Acl::private(self.owner()))
    }

    /// Whether its policy lets everybody do something.
    pub(super) fn is_public(&self) -> bool {
        self.policy.as_ref().is_some_and(Policy::is_public)
    }

    fn verdict(&self, call: &Call, action: &str, key: Option<&str>, more: &[(String, String)]) -> Verdict {
        let Some(policy) = &self.policy else { return Verdict::Silent };
        let mut facts = call.facts.clone();
        for (name, value) in more {
            facts.entry(name.clone()).or_default().push(value.clone());
        }
        let resource = match key {
            Some(key) => format!("arn:aws:s3:::{}/{key}", self.bucket.name),
            None => format!("arn:aws:s3:::{}", self.bucket.name),
        };
        let question = Question { account: call.caller.account(), action, resource: &resource, facts };
        let verdict = policy.says(&question);
        let stranger = call.caller.account() != Some(self.owner());
        let restricted = self.settings.public_access.is_some_and(|access| access.restrict);
        if verdict == Verdict::Allow && restricted && stranger && self.is_public() {
            return Verdict::Silent;
        }
        verdict
    }

    fn listed(&self, call: &Call, acl: &Acl, wanted: Permission) -> bool {
        let ignored = self.settings.public_access.is_some_and(|access| access.ignore_acls) && acl.is_public();
        let account = call.caller.account();
        if ignored || self.settings.ownership.as_deref() == Some("BucketOwnerEnforced") {
            return account == Some(acl.owner.as_str()) && acl.allows(account, wanted);
        }
        acl.allows(account, wanted)
    }

    /// Whether the caller may do this to the bucket; `by_list` is what its list must grant for it.
    pub(super) fn may(&self, call: &Call, action: &str, by_list: Option<Permission>) -> bool {
        self.may_with(call, action, by_list, &[])
    }

    /// The same, of a call that has more to it than its request says.
    fn may_with(&self, call: &Call, action: &str, by_list: Option<Permission>, more: &[(String, String)]) -> bool {
        if call.caller.is_admin() {
            return true;
        }
        match self.verdict(call, action, None, more) {
            Verdict::Deny => false,
            Verdict::Allow => true,
            Verdict::Silent => {
                call.caller.account() == Some(self.owner())
                    || by_list.is_some_and(|wanted| self.listed(call, &self.acl(), wanted))
            }
        }
    }

    /// Refuses unless the caller may do this to the bucket.
    pub(super) fn need(&self, call: &Call, action: &str, by_list: Option<Permission>) -> S3Result<()> {
        if self.may(call, action, by_list) { Ok(()) } else { Err(denied(call, action)) }
    }

    /// Refuses unless the caller may make or remove this key: the bucket's list decides, not the object's.
    pub(super) fn need_key(&self, call: &Call, action: &str, key: &str, existing: Option<&Attributes>) -> S3Result<()> {
        if call.caller.is_admin() {
            return Ok(());
        }
        match self.verdict(call, action, Some(key), &tags(existing)) {
            Verdict::Allow => Ok(()),
            Verdict::Silent
                if call.caller.account() == Some(self.owner()) || self.listed(call, &self.acl(), Permission::Write) =>
            {
                Ok(())
            }
            Verdict::Silent | Verdict::Deny => Err(denied(call, action)),
        }
    }

    /// Refuses unless the caller may do this to an object, by its own list.
    pub(super) fn need_object(&self, call: &Call, action: &str, object: &Object, wanted: Permission) -> S3Result<()> {
        if call.caller.is_admin() {
            return Ok(());
        }
        let found: Attributes = attributes_of(object);
        match self.verdict(call, action, Some(&object.key), &tags(Some(&found))) {
            Verdict::Deny => Err(denied(call, action)),
            Verdict::Allow => Ok(()),
            Verdict::Silent => {
                let may = match &found.acl {
                    Some(acl) => self.listed(call, acl, wanted),
                    None => call.caller.account() == Some(self.owner()) || by_bits(call, object, wanted),
                };
                if may { Ok(()) } else { Err(denied(call, action)) }
            }
        }
    }
}

/// What the door keeps of an object.
pub(super) fn attributes_of(object: &Object) -> Attributes {
    let text = object.data.as_ref().and_then(|data| data.attributes.as_deref());
    text.map(attributes::read).unwrap_or_default()
}

fn tags(existing: Option<&Attributes>) -> Vec<(String, String)> {
    let tags = existing.map(|found| found.tags.as_slice()).unwrap_or_default();
    tags.iter().map(|(tag, value)| (format!("s3:existingobjecttag/{tag}"), value.clone())).collect()
}

/// What permission bits say, of what another door wrote.
fn by_bits(call: &Call, object: &Object, wanted: Permission) -> bool {
    let Some(principal) = &call.caller.principal else { return false };
    let entry = Entry {
        id: EntryId(0),
        parent: None,
        name: String::new(),
        owner: object.owner.clone(),
        group: object.group.clone(),
        mode: object.mode,
        acl: object.acl.clone(),
        created: object.modified,
        modified: object.modified,
        changed: object.modified,
        content: Content::Directory,
    };
    match wanted {
        Permission::Read => principal.may(Right::Read, &entry),
        Permission::Write => principal.may(Right::Write, &entry),
        Permission::ReadAcp | Permission::WriteAcp | Permission::Full => principal.owns(&entry),
    }
}

fn denied(call: &Call, action: &str) -> s3s::S3Error {
    let who = call.caller.account().unwrap_or("somebody without an access key");
    s3s::S3Error::with_message(
        S3ErrorCode::AccessDenied,
        format!("{who} may not {action} here: ask the bucket's owner"),
    )
}

impl Door {
    /// The bucket of that name.
    pub(super) async fn bucket(&self, name: &str) -> S3Result<BucketView> {
        let found = self.catalog.bucket(name).await.map_err(|error| of_catalog(error, Asked::Bucket))?;
        found.map(BucketView::of).ok_or_else(|| s3_error!(NoSuchBucket, "there is no bucket {}", name))
    }

    /// The error for a key that is not there: whoever may not list may not know.
    pub(super) fn missing(&self, view: &BucketView, call: &Call, key: &str) -> s3s::S3Error {
        // Whether the key is there is what a listing of this prefix would say.
        let prefix = [("s3:prefix".to_owned(), key.to_owned())];
        if view.may_with(call, "s3:ListBucket", Some(Permission::Read), &prefix) {
            return s3_error!(NoSuchKey, "there is no object {:?} in bucket {}", key, view.bucket.name);
        }
        denied(call, "s3:ListBucket")
    }
}

/// Finds out who asks, once the signature is checked.
pub(super) struct Access(pub(super) Door);

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let door = &self.0;
        let vouched = context.extensions_mut().get::<Vouched>().map(|vouched| vouched.key.clone());
        let id = context.credentials().map(|credentials| credentials.access_key.clone()).or(vouched);
        let signer = match id {
            None => None,
            Some(id) => Some(door.signer(&id, context.headers(), context.uri()).await?),
        };
        let (principal, direct) = signer.map(|signer| (signer.principal, signer.direct)).unzip();
        let connection = context.extensions_mut().get::<Connection>().copied();
        context.extensions_mut().insert(Arc::new(Caller { principal, direct: direct.flatten(), connection }));
        Ok(())
    }

    /// A form's signature comes in its fields. That of version 2 names no region.
    async fn post_object(&self, request: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        if request.credentials.is_some() && request.region.is_none() {
            before::refuse_old(&self.0)?;
        }
        Ok(())
    }
}
