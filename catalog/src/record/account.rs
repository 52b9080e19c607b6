//! Accounts, groups, certificate mappings and quotas: records.

use serde::{Deserialize, Serialize};
use wire::id::{AccountName, GroupName};

use crate::time::Timestamp;

/// Who owns files and asks for them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: AccountName,
    /// The group new files get.
    pub primary_group: GroupName,
    /// All groups it is in, the primary one among them, by name.
    pub groups: Vec<GroupName>,
    /// Whether it may use the admin door.
    pub admin: bool,
    /// Whether it may log in at all.
    pub disabled: bool,
    /// The directory a session begins in, as an absolute path.
    pub home: Option<String>,
    /// When it was made.
    pub created: Timestamp,
}

/// An account to be made or changed: groups named here and unknown are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAccount {
    /// Its name.
    pub name: AccountName,
    /// The group new files get.
    pub primary_group: GroupName,
    /// Further groups.
    pub groups: Vec<GroupName>,
    /// Whether it may use the admin door.
    pub admin: bool,
    /// Whether it may log in at all.
    pub disabled: bool,
    /// The directory a session begins in.
    pub home: Option<String>,
}

/// A certificate's subject and the account it means.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mapping {
    /// The subject in the gateway's text form, for example `/DC=org/DC=example/CN=Alice`.
    pub subject: String,
    /// The account.
    pub account: AccountName,
    /// When it was made.
    pub created: Timestamp,
}

/// Whose use is counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum QuotaSubject {
    /// An account.
    Account(AccountName),
    /// A group.
    Group(GroupName),
}

impl QuotaSubject {
    /// The word for the kind, as stored and shown.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Account(_) => "account",
            Self::Group(_) => "group",
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Account(name) => name.as_str(),
            Self::Group(name) => name.as_str(),
        }
    }
}

impl std::fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// What somebody has and may have. Files in the undelete window do not count.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Whose.
    pub subject: QuotaSubject,
    /// Bytes of files.
    pub bytes: u64,
    /// Number of files.
    pub files: u64,
    /// How many bytes are allowed.
    pub limit_bytes: Option<u64>,
    /// How many files are allowed.
    pub limit_files: Option<u64>,
}
