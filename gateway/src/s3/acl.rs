//! Access control lists of S3: canned ones, those of headers and of XML, and what they let whom do. Pure.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Access control list (ACL) overview": grantees, permissions, canned ACLs.

use s3s::{
    S3Result,
    dto::{AccessControlPolicy, Grant as GrantDto, Grantee, Owner, Permission as PermissionDto, Type},
    s3_error,
};
use serde::{Deserialize, Serialize};

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const LOG_DELIVERY: &str = "http://acs.amazonaws.com/groups/s3/LogDelivery";
/// More grants than this are refused (Amazon S3: 100).
const MAX_GRANTS: usize = 100;

/// Who is granted something.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Who {
    /// An account.
    Account(String),
    /// Anybody.
    Everybody,
    /// Anybody with an account.
    Authenticated,
    /// Whoever delivers logs: nobody here.
    LogDelivery,
}

/// What is granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Permission {
    /// Read an object; list a bucket.
    Read,
    /// Write and remove a bucket's objects.
    Write,
    /// Read the list.
    ReadAcp,
    /// Write the list.
    WriteAcp,
    /// All of it.
    Full,
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Grant {
    who: Who,
    may: Permission,
}

/// A list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Acl {
    /// Whose it is, beside whom grants stand.
    pub(super) owner: String,
    grants: Vec<Grant>,
    /// Accounts that were named by an address.
    #[serde(skip)]
    addressed: Vec<String>,
}

/// The five headers that grant.
#[derive(Default)]
pub(super) struct GrantHeaders<'a> {
    pub(super) full: Option<&'a str>,
    pub(super) read: Option<&'a str>,
    pub(super) read_acp: Option<&'a str>,
    pub(super) write: Option<&'a str>,
    pub(super) write_acp: Option<&'a str>,
}

/// The grants of a request, with or without that to write. The inputs of `s3s` have the fields and no type in common.
macro_rules! grant_headers {
    ($input:ident) => {
        $crate::s3::acl::GrantHeaders {
            full: $input.grant_full_control.as_deref(),
            read: $input.grant_read.as_deref(),
            read_acp: $input.grant_read_acp.as_deref(),
            write: None,
            write_acp: $input.grant_write_acp.as_deref(),
        }
    };
    ($input:ident, write) => {
        $crate::s3::acl::GrantHeaders {
            write: $input.grant_write.as_deref(),
            ..$crate::s3::acl::grant_headers!($input)
        }
    };
}

pub(super) use grant_headers;

impl Acl {
    /// The owner may everything, nobody else anything.
    pub(super) fn private(owner: &str) -> Self {
        let who = Who::Account(owner.to_owned());
        Self { owner: owner.to_owned(), grants: vec![Grant { who, may: Permission::Full }], addressed: Vec::new() }
    }

    /// A canned list.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a name that is none.
    pub(super) fn canned(name: &str, owner: &str, bucket_owner: &str) -> S3Result<Self> {
        let mut acl = Self::private(owner);
        let mut add = |who, may| acl.grants.push(Grant { who, may });
        match name {
            "private" => {}
            "public-read" => add(Who::Everybody, Permission::Read),
            "public-read-write" => {
                add(Who::Everybody, Permission::Read);
                add(Who::Everybody, Permission::Write);
            }
            "authenticated-read" => add(Who::Authenticated, Permission::Read),
            "bucket-owner-read" if bucket_owner != owner => {
                add(Who::Account(bucket_owner.to_owned()), Permission::Read);
            }
            "bucket-owner-full-control" if bucket_owner != owner => {
                add(Who::Account(bucket_owner.to_owned()), Permission::Full);
            }
            "bucket-owner-read" | "bucket-owner-full-control" => {}
            "log-delivery-write" => {
                add(Who::LogDelivery, Permission::Write);
                add(Who::LogDelivery, Permission::ReadAcp);
            }
            other => return Err(s3_error!(InvalidArgument, "there is no canned ACL {:?}", other)),
        }
        Ok(acl)
    }

    /// The list of a request's headers; `None` if there are none.
    pub(super) fn of_headers(headers: &GrantHeaders<'_>, owner: &str) -> S3Result<Option<Self>> {
        let all = [
            (headers.read, Permission::Read),
            (headers.write, Permission::Write),
            (headers.read_acp, Permission::ReadAcp),
            (headers.write_acp, Permission::WriteAcp),
            (headers.full, Permission::Full),
        ];
        if all.iter().all(|(header, _)| header.is_none()) {
            return Ok(None);
        }
        let (mut grants, mut addressed) = (Vec::new(), Vec::new());
        for (header, may) in all {
            for grantee in header.unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty()) {
                let (kind, value) = grantee.split_once('=').ok_or_else(|| bad_grantee(grantee))?;
                let value = value.trim().trim_matches('"').to_owned();
                let who = match kind.trim() {
                    "id" => Who::Account(value),
                    "uri" => group(&value)?,
                    "emailAddress" => addressee(&value, &mut addressed)?,
                    _ => return Err(bad_grantee(grantee)),
                };
                grants.push(Grant { who, may });
            }
        }
        Self::checked(owner, grants, addressed).map(Some)
    }

    /// The list of an XML body.
    pub(super) fn of_policy(policy: AccessControlPolicy, owner: &str) -> S3Result<Self> {
        if let Some(id) = policy.owner.and_then(|owner| owner.id)
            && id != owner
        {
            return Err(s3_error!(AccessDenied, "the owner {:?} is not whose this is", id));
        }
        let (mut grants, mut addressed) = (Vec::new(), Vec::new());
        for grant in policy.grants.unwrap_or_default() {
            let grantee = grant.grantee.ok_or_else(|| s3_error!(MalformedACLError, "a grant names no grantee"))?;
            let who = if let Some(uri) = grantee.uri {
                group(&uri)?
            } else if let Some(id) = grantee.id {
                Who::Account(id)
            } else if let Some(email) = grantee.email_address {
                addressee(&email, &mut addressed)?
            } else {
                return Err(s3_error!(MalformedACLError, "a grantee has no ID, URI or address"));
            };
            let permission =
                grant.permission.ok_or_else(|| s3_error!(MalformedACLError, "a grant has no permission"))?;
            let may = match permission.as_str() {
                PermissionDto::FULL_CONTROL => Permission::Full,
                PermissionDto::READ => Permission::Read,
                PermissionDto::READ_ACP => Permission::ReadAcp,
                PermissionDto::WRITE => Permission::Write,
                PermissionDto::WRITE_ACP => Permission::WriteAcp,
                other => return Err(s3_error!(MalformedACLError, "there is no permission {:?}", other)),
            };
            grants.push(Grant { who, may });
        }
        Self::checked(owner, grants, addressed)
    }

    fn checked(owner: &str, grants: Vec<Grant>, addressed: Vec<String>) -> S3Result<Self> {
        if grants.len() > MAX_GRANTS {
            return Err(s3_error!(MalformedACLError, "an access control list has {} grants at most", MAX_GRANTS));
        }
        Ok(Self { owner: owner.to_owned(), grants, addressed })
    }

    /// Accounts that it names.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &str> {
        self.grants.iter().filter_map(|grant| match &grant.who {
            Who::Account(id) => Some(id.as_str()),
            Who::Everybody | Who::Authenticated | Who::LogDelivery => None,
        })
    }

    /// Whether an account was named by an address.
    pub(super) fn is_addressed(&self, account: &str) -> bool {
        self.addressed.iter().any(|name| name == account)
    }

    /// Whether somebody may do this; `None` is nobody in particular. Its owner may always read and write the list.
    pub(super) fn allows(&self, account: Option<&str>, wanted: Permission) -> bool {
        if matches!(wanted, Permission::ReadAcp | Permission::WriteAcp) && account == Some(self.owner.as_str()) {
            return true;
        }
        let means = |who: &Who| match who {
            Who::Account(id) => account == Some(id),
            Who::Everybody => true,
            Who::Authenticated => account.is_some(),
            Who::LogDelivery => false,
        };
        self.grants.iter().any(|grant| (grant.may == wanted || grant.may == Permission::Full) && means(&grant.who))
    }

    /// Whether it lets everybody do something.
    pub(super) fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| matches!(grant.who, Who::Everybody | Who::Authenticated))
    }

    /// Permission bits for other doors: what everybody may read, they may read there too.
    pub(super) fn mode(&self) -> u32 {
        let everybody = self
            .grants
            .iter()
            .any(|grant| grant.who == Who::Everybody && matches!(grant.may, Permission::Read | Permission::Full));
        if everybody { 0o644 } else { 0o600 }
    }

    /// As it is shown: groups before accounts.
    pub(super) fn shown(&self) -> (Owner, Vec<GrantDto>) {
        let (accounts, groups): (Vec<_>, Vec<_>) =
            self.grants.iter().partition(|grant| matches!(grant.who, Who::Account(_)));
        let grants = groups.into_iter().chain(accounts).map(|grant| GrantDto {
            grantee: Some(shown(&grant.who)),
            permission: Some(PermissionDto::from_static(match grant.may {
                Permission::Full => PermissionDto::FULL_CONTROL,
                Permission::Read => PermissionDto::READ,
                Permission::ReadAcp => PermissionDto::READ_ACP,
                Permission::Write => PermissionDto::WRITE,
                Permission::WriteAcp => PermissionDto::WRITE_ACP,
            })),
        });
        (owner(&self.owner), grants.collect())
    }
}

/// How an account is shown.
pub(super) fn owner(account: &str) -> Owner {
    Owner { display_name: Some(account.to_owned()), id: Some(account.to_owned()) }
}

fn shown(who: &Who) -> Grantee {
    let group = |uri: &str| Grantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(Type::GROUP),
        uri: Some(uri.to_owned()),
    };
    match who {
        Who::Account(id) => Grantee {
            display_name: Some(id.clone()),
            email_address: None,
            id: Some(id.clone()),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        },
        Who::Everybody => group(ALL_USERS),
        Who::Authenticated => group(AUTHENTICATED),
        Who::LogDelivery => group(LOG_DELIVERY),
    }
}

fn group(uri: &str) -> S3Result<Who> {
    match uri {
        ALL_USERS => Ok(Who::Everybody),
        AUTHENTICATED => Ok(Who::Authenticated),
        LOG_DELIVERY => Ok(Who::LogDelivery),
        other => Err(s3_error!(InvalidArgument, "there is no group {:?}", other)),
    }
}

/// Accounts have no addresses of their own: the part before the `@` is the account.
fn addressee(address: &str, addressed: &mut Vec<String>) -> S3Result<Who> {
    let account = address.split_once('@').map(|(account, _)| account).filter(|account| !account.is_empty());
    let unknown = || s3_error!(UnresolvableGrantByEmailAddress, "no account has the address {:?}", address);
    let account = account.ok_or_else(unknown)?.to_owned();
    addressed.push(account.clone());
    Ok(Who::Account(account))
}

fn bad_grantee(text: &str) -> s3s::S3Error {
    s3_error!(InvalidArgument, "{:?} is no grantee: write id=\"…\", uri=\"…\" or emailAddress=\"…\"", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canned_list_lets_exactly_those_in_whom_its_name_says() {
        let acl = |name| Acl::canned(name, "alice", "bob").expect("a canned list");
        let read = |name, who| acl(name).allows(who, Permission::Read);
        assert!(read("private", Some("alice")) && !read("private", Some("bob")) && !read("private", None));
        assert!(read("public-read", None) && !acl("public-read").allows(None, Permission::Write));
        assert!(read("authenticated-read", Some("carol")) && !read("authenticated-read", None));
        assert!(read("bucket-owner-read", Some("bob")) && !read("bucket-owner-read", Some("carol")));
        assert!(acl("public-read-write").allows(None, Permission::Write));
        assert!(Acl::canned("open", "alice", "bob").is_err());
        assert_eq!((acl("private").mode(), acl("public-read").mode()), (0o600, 0o644));
    }

    #[test]
    fn headers_name_accounts_and_groups() {
        let everybody = format!("uri=\"{ALL_USERS}\"");
        let headers = GrantHeaders { full: Some("id=\"bob\", id=carol"), read: Some(&everybody), ..Default::default() };
        let acl = Acl::of_headers(&headers, "alice").expect("good headers").expect("a list");
        assert!(acl.allows(Some("carol"), Permission::WriteAcp) && acl.allows(None, Permission::Read));
        assert!(!acl.allows(Some("alice"), Permission::Write), "headers say all that is granted");
        assert!(Acl::of_headers(&GrantHeaders::default(), "alice").expect("nothing wrong").is_none());
        let bad = GrantHeaders { read: Some("bob"), ..Default::default() };
        assert!(Acl::of_headers(&bad, "alice").is_err());
    }
}
