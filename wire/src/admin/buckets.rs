//! Buckets of the S3 door, and what lies in them.

use serde::{Deserialize, Serialize};

use crate::id::AccountName;

/// A bucket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Its name.
    pub bucket: String,
    /// Whose it is.
    pub owner: AccountName,
    /// When it became a bucket.
    pub created_us: i64,
    /// Whether it keeps versions.
    pub versioning: Versioning,
    /// Whether versions can be locked.
    pub locking: bool,
    /// What lay in it when it was counted last; absent if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Whether a bucket keeps versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Versioning {
    /// It never did.
    Off,
    /// It does.
    Enabled,
    /// It did: old versions stay.
    Suspended,
    /// A state of a newer version.
    #[serde(other)]
    Unknown,
}

/// What lay in a bucket while it was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Current versions: what a listing shows, whatever door wrote it.
    pub current: Amount,
    /// Versions that are not current.
    pub noncurrent: Amount,
    /// Delete markers.
    pub delete_markers: u64,
    /// Uploads in parts that are under way.
    pub uploads: u64,
    /// Their parts.
    pub parts: Amount,
    /// When the count began. What was written since is not in it, or may be.
    pub counted_us: i64,
}

/// How many, and how many bytes they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Amount {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}
