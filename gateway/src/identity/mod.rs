//! Who is asking, and what they may do: one mapping and one permission check for every door.
//!
//! - [`gridmap`]: a grid-mapfile, as every grid site has one.
//! - [`acl`]: access control lists in their text form.
//! - [`presented`]: a client certificate that was judged becomes a subject, or a reason why not.
//! - [`Identities`]: a certificate's subject becomes a [`Principal`].
//! - [`Principal::may`]: the permission check.
//!
//! Talks to the catalogue for accounts and mappings. Never opens a connection and never decides who is *believed*: the
//! doors hand over subjects that `daemon::trust` has verified.
//!
//! Invariant: a principal comes from here only, so it is always an account of the catalogue that may log in.

pub mod acl;
mod certificate;
pub mod gridmap;

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use catalog::{Account, Catalog, Entry};
use tokio::sync::Mutex;
use wire::id::{AccountName, GroupName};

pub use self::{acl::Acl, certificate::presented, gridmap::GridMap};
use crate::failure::{Failure, FailureKind};

/// Who is asking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// The account: it owns what it writes.
    pub account: AccountName,
    /// The groups it is in, the primary one, which new files get, first.
    pub groups: Vec<GroupName>,
    /// Whether it may do everything.
    pub admin: bool,
    /// The certificate's subject by which it came, in text form: `/DC=org/DC=example/CN=Alice`.
    pub subject: String,
    /// The directory a session begins in.
    pub home: Option<String>,
}

/// What somebody wants to do to an entry. The numbers are the permission bits (POSIX.1 section 4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Read a file's bytes; list a directory.
    Read = 4,
    /// Overwrite a file; make, rename and remove names in a directory.
    Write = 2,
    /// Pass through a directory.
    Search = 1,
}

impl Principal {
    fn from_account(account: Account, subject: &str) -> Self {
        let mut groups = vec![account.primary_group];
        groups.extend(account.groups.into_iter().filter(|group| *group != groups[0]).collect::<Vec<_>>());
        Self { account: account.name, groups, admin: account.admin, subject: subject.to_owned(), home: account.home }
    }

    /// The group that what it makes belongs to.
    ///
    /// # Panics
    ///
    /// If there is none, which no constructor allows.
    #[must_use]
    pub fn primary_group(&self) -> &GroupName {
        self.groups.first().expect("the primary group is always there")
    }

    /// Whether it is in this group.
    #[must_use]
    pub fn is_in(&self, group: &GroupName) -> bool {
        self.groups.contains(group)
    }

    /// Whether it may do this to this entry, ancestors apart.
    ///
    /// The owner's bits decide for the owner, alone; then the access control list's word for the account; then the
    /// union of what the entry's group and the list's groups give, if it is in any of them; else the others' bits.
    ///
    /// # Source
    ///
    /// POSIX.1e draft 17 section 23.1.5, without a mask: the list says what it gives.
    #[must_use]
    pub fn may(&self, right: Right, entry: &Entry) -> bool {
        self.admin || self.bits(entry) & right as u32 != 0
    }

    /// Everything it may do to this entry, as three permission bits.
    #[must_use]
    pub fn rights(&self, entry: &Entry) -> u32 {
        if self.admin { 0o7 } else { self.bits(entry) }
    }

    fn bits(&self, entry: &Entry) -> u32 {
        if self.account == entry.owner {
            return entry.mode >> 6 & 0o7;
        }
        let acl = entry.acl.as_deref().map(Acl::read).unwrap_or_default();
        if let Some(bits) = acl.of_account(&self.account) {
            return bits;
        }
        let own = self.is_in(&entry.group).then_some(entry.mode >> 3 & 0o7);
        let listed = acl.of_groups(&self.groups);
        match (own, listed) {
            (None, None) => entry.mode & 0o7,
            (own, listed) => own.unwrap_or(0) | listed.unwrap_or(0),
        }
    }

    /// Whether it may change what only the owner may: mode, group, access control list, times.
    #[must_use]
    pub fn owns(&self, entry: &Entry) -> bool {
        self.admin || self.account == entry.owner
    }

    /// Whether it may remove or rename `entry` in `directory`: the sticky bit lets only the owner of either.
    #[must_use]
    pub fn may_unlink(&self, directory: &Entry, entry: &Entry) -> bool {
        const STICKY: u32 = 0o1000;
        self.may(Right::Write, directory)
            && self.may(Right::Search, directory)
            && (directory.mode & STICKY == 0 || self.owns(directory) || self.owns(entry))
    }
}

/// Turns certificates' subjects into principals. Cheap to clone.
#[derive(Clone)]
pub struct Identities(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    gridmap: Option<PathBuf>,
    read: Mutex<Option<(SystemTime, Arc<GridMap>)>>,
}

impl Identities {
    /// Looks in the catalogue first, then in the grid-mapfile, which is read again whenever it has changed.
    #[must_use]
    pub fn new(catalog: Catalog, gridmap: Option<PathBuf>) -> Self {
        Self(Arc::new(Inner { catalog, gridmap, read: Mutex::new(None) }))
    }

    /// The account a subject means: the catalogue's mapping of exactly this subject, else the grid-mapfile's line for
    /// it, else the longest of its lines that ends in `*` and fits. `wanted` picks one of several accounts of a line.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotLoggedIn`] if the subject is not mapped, or the account unknown, disabled or not the wanted
    /// one; the sentence has the command that maps it.
    pub async fn principal(&self, subject: &str, wanted: Option<&AccountName>) -> Result<Principal, Failure> {
        let account = match self.0.catalog.account_of_subject(subject).await? {
            Some(account) => account,
            None => self.mapped_by_file(subject, wanted).await?,
        };
        if let Some(wanted) = wanted.filter(|wanted| **wanted != account.name) {
            return Err(Failure::new(
                FailureKind::NotLoggedIn,
                format_args!("{subject} is mapped to {}, not to {wanted}: log in as {0}", account.name),
            ));
        }
        if account.disabled {
            return Err(Failure::new(
                FailureKind::NotLoggedIn,
                format_args!("account {} is disabled: ask the operator", account.name),
            ));
        }
        Ok(Principal::from_account(account, subject))
    }

    /// An account itself, without a certificate: whoever the configuration lets in as it.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotLoggedIn`] if it is unknown or disabled.
    pub async fn account(&self, name: &AccountName) -> Result<Principal, Failure> {
        match self.0.catalog.account(name).await? {
            Some(account) if !account.disabled => Ok(Principal::from_account(account, "")),
            _ => Err(Failure::new(
                FailureKind::NotLoggedIn,
                format_args!("account {name} does not exist or is disabled: ask the operator"),
            )),
        }
    }

    async fn mapped_by_file(&self, subject: &str, wanted: Option<&AccountName>) -> Result<Account, Failure> {
        let map = self.gridmap().await;
        let accounts = map.as_ref().map_or(&[][..], |map| map.accounts(subject));
        let chosen = wanted.filter(|wanted| accounts.contains(wanted)).or_else(|| accounts.first());
        let Some(name) = chosen else {
            return Err(Failure::new(
                FailureKind::NotLoggedIn,
                format_args!(
                    "certificate {subject} is not mapped to an account: the operator maps it with `penstock admin map \
                     add '{subject}' ACCOUNT`"
                ),
            ));
        };
        self.0.catalog.account(name).await?.ok_or_else(|| {
            Failure::new(
                FailureKind::NotLoggedIn,
                format_args!(
                    "the grid-mapfile maps {subject} to account {name}, which does not exist: the operator makes it \
                     with `penstock admin user set {name}`"
                ),
            )
        })
    }

    /// The grid-mapfile as it is now; one that cannot be read any more stays as it was, and the log says so.
    async fn gridmap(&self) -> Option<Arc<GridMap>> {
        let path = self.0.gridmap.as_ref()?;
        let mut read = self.0.read.lock().await;
        let changed = match tokio::fs::metadata(path).await.and_then(|metadata| metadata.modified()) {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "grid-mapfile cannot be looked at");
                return read.as_ref().map(|(_, map)| Arc::clone(map));
            }
        };
        if read.as_ref().is_none_or(|(known, _)| *known != changed) {
            match tokio::fs::read_to_string(path).await {
                Ok(text) => {
                    let (map, mistakes) = GridMap::read(&text);
                    for mistake in mistakes {
                        tracing::warn!(path = %path.display(), %mistake, "grid-mapfile line left out");
                    }
                    *read = Some((changed, Arc::new(map)));
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "grid-mapfile cannot be read"),
            }
        }
        read.as_ref().map(|(_, map)| Arc::clone(map))
    }
}
