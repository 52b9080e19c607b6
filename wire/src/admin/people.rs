//! Accounts, groups, quotas and certificate subjects.

use serde::{Deserialize, Serialize};

use crate::id::{AccountName, GroupName};

/// An account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct User {
    /// Its name.
    pub account: AccountName,
    /// Its groups, the primary one first.
    pub groups: Vec<GroupName>,
    /// Whether it may use the admin door and passes every permission check.
    pub admin: bool,
    /// Whether it may log in.
    pub enabled: bool,
    /// Where its sessions begin.
    pub home: String,
    /// Certificate subjects that log in as it.
    #[serde(default)]
    pub subjects: Vec<String>,
}

/// An account to make or change; what is absent stays as it is, or takes its default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NewUser {
    /// Its groups, the primary one first; a group of its own name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupName>>,
    /// Whether it may use the admin door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<bool>,
    /// Whether it may log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Where its sessions begin; made at the first login if it is not there, in a directory that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Certificate subjects (`/C=…/CN=…`) that log in as it, besides those there are.
    #[serde(default)]
    pub subjects: Vec<String>,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub group: GroupName,
    /// Its accounts.
    pub members: Vec<AccountName>,
}

/// Who shall be in a group: the whole list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NewGroup {
    /// Its accounts.
    #[serde(default)]
    pub members: Vec<AccountName>,
}

/// What an account may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes; without limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Files; without limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
}

/// What an account may use, and uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Quota {
    /// Whose.
    pub account: AccountName,
    /// The limits.
    pub limits: Limits,
    /// Bytes used.
    pub used_bytes: u64,
    /// Files used.
    pub used_files: u64,
}

/// A certificate subject, in the form `/C=…/CN=…`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// The subject.
    pub subject: String,
}

/// Which account a certificate subject logs in as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Map {
    /// The subject.
    pub subject: String,
    /// The account.
    pub account: AccountName,
}

/// Whether clients that read by HTTP are sent to the mover that has the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direct {
    /// Those that are known to follow.
    #[default]
    Auto,
    /// All of them, known or not.
    On,
    /// None.
    Off,
}

impl Direct {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl std::str::FromStr for Direct {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = [Self::Auto, Self::On, Self::Off].into_iter();
        words.clone().find(|word| word.as_str() == text).ok_or_else(|| {
            let words: Vec<_> = words.map(Self::as_str).collect();
            format!("it is none of {}", words.join(", "))
        })
    }
}

/// An access key of an account, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Its public half.
    pub key: String,
    /// Whose it is.
    pub account: AccountName,
    /// Whether it can be used.
    pub enabled: bool,
    /// When it was made.
    pub created_us: i64,
    /// Whether who signs with it is sent to movers.
    #[serde(default)]
    pub direct: Direct,
}

/// An access key to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewKey {
    /// Whose it will be.
    pub account: AccountName,
    /// Whether who signs with it is sent to movers.
    #[serde(default)]
    pub direct: Direct,
}

/// What is to change of an access key; what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetKey {
    /// Whether who signs with it is sent to movers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
}

/// An access key that was made: the only time its secret is shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKey {
    /// Its public half.
    pub key: String,
    /// Whose it is.
    pub account: AccountName,
    /// Its secret half.
    pub secret: String,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").field("key", &self.key).field("account", &self.account).finish_non_exhaustive()
    }
}
