//! What the S3 door keeps: access keys, buckets, versions of objects, multipart uploads.
//!
//! `attributes` and `settings` are JSON of the door's own, which the catalogue keeps and never reads.

use std::fmt;

use serde::{Deserialize, Serialize};
use wire::checksum::Sums;
use wire::id::{AccountName, BitfileId, CosName, EntryId, GroupName, StorageClassName};

use crate::error::{CatalogError, Result};
use crate::record::bitfile::{Base, Segment};
use crate::record::event::{Cause, EventRule};
use crate::record::name::FileInfo;
use crate::time::Timestamp;

/// An access key of an account, good until it is disabled. Temporary keys are not kept.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The public half.
    pub id: String,
    /// Whose it is.
    pub account: AccountName,
    /// The secret half, encrypted.
    pub sealed: String,
    /// It cannot be used.
    pub disabled: bool,
    /// When it was made.
    pub created: Timestamp,
    /// Whether who signs with it is sent to movers for bytes; `None` if that depends on the client.
    pub direct: Option<bool>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, account, disabled, created, direct, .. } = self;
        f.debug_struct("AccessKey")
            .field("id", id)
            .field("account", account)
            .field("disabled", disabled)
            .field("created", created)
            .field("direct", direct)
            .finish_non_exhaustive()
    }
}

/// Whether a bucket keeps versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Versioning {
    /// It never did.
    #[default]
    Off,
    /// It does.
    Enabled,
    /// It did: old versions stay, new ones have the identifier `null`.
    Suspended,
}

impl Versioning {
    pub(crate) const fn column(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Enabled => "enabled",
            Self::Suspended => "suspended",
        }
    }

    pub(crate) fn from_column(text: &str) -> Result<Self> {
        [Self::Off, Self::Enabled, Self::Suspended]
            .into_iter()
            .find(|state| state.column() == text)
            .ok_or_else(|| CatalogError::corrupt(format!("{text:?} where a bucket's versioning should be")))
    }
}

/// A bucket: a directory with attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Its name, which is the directory's.
    pub name: String,
    /// The directory.
    pub entry: EntryId,
    /// Whose it is.
    pub owner: AccountName,
    /// When it became a bucket.
    pub created: Timestamp,
    /// Whether it keeps versions.
    pub versioning: Versioning,
    /// Whether versions can be locked.
    pub locking: bool,
    /// JSON of the door's.
    pub settings: String,
    /// What is told of it, and where to.
    pub events: Vec<EventRule>,
}

/// A bucket to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBucket {
    /// Where its directory lies.
    pub parent: EntryId,
    /// Its name.
    pub name: String,
    /// Whose it is. An existing directory becomes a bucket if it is theirs.
    pub owner: AccountName,
    /// The group of a new directory.
    pub group: GroupName,
    /// The permission bits of a new directory.
    pub mode: u32,
    /// Whether versions can be locked: they are then kept too.
    pub locking: bool,
    /// JSON of the door's.
    pub settings: String,
}

/// How many, and how many bytes they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// Adds so many with so many bytes.
    pub const fn add(&mut self, count: u64, bytes: u64) {
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What lay in a bucket while it was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketUsage {
    /// Current versions: files in the tree below it, whatever door wrote them.
    pub current: Amount,
    /// Versions that are not current.
    pub noncurrent: Amount,
    /// Delete markers.
    pub markers: u64,
    /// Uploads in parts under way.
    pub uploads: u64,
    /// Their parts.
    pub parts: Amount,
    /// When the count began.
    pub counted: Timestamp,
}

/// Which version of a key: its place in the order of versions, newest highest, and whether it is called `null`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Its place.
    pub number: u64,
    /// It was made while the bucket kept no versions.
    pub plain: bool,
}

/// Which version is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionRef {
    /// The one called `null`.
    Plain,
    /// The one of this number.
    Number(u64),
}

impl VersionRef {
    /// Whether this version is meant.
    #[must_use]
    pub const fn is(self, version: Version) -> bool {
        match self {
            Self::Plain => version.plain,
            Self::Number(number) => !version.plain && version.number == number,
        }
    }
}

/// One version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// The key.
    pub key: String,
    /// Which version of it.
    pub version: Version,
    /// It is the newest.
    pub latest: bool,
    /// Whose it is.
    pub owner: AccountName,
    /// Its group.
    pub group: GroupName,
    /// Its permission bits.
    pub mode: u32,
    /// The access control list of other doors.
    pub acl: Option<String>,
    /// When it was written.
    pub modified: Timestamp,
    /// What it is; `None` for a delete marker.
    pub data: Option<ObjectData>,
}

/// What a version that is no delete marker has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectData {
    /// The name in the tree, of the current version.
    pub entry: Option<EntryId>,
    /// The bytes.
    pub file: FileInfo,
    /// The entity tag without quotes, if S3 wrote it.
    pub etag: Option<String>,
    /// The storage class it was written with, if S3 wrote it and said so.
    pub storage_class: Option<String>,
    /// JSON of the door's; `None` if another door wrote it.
    pub attributes: Option<String>,
    /// May not be removed.
    pub hold: bool,
    /// May not be removed before.
    pub retain: Option<Retention>,
}

impl ObjectData {
    /// The entity tag without quotes. What another door wrote has its MD5, or a tag that cannot be taken for one.
    #[must_use]
    pub fn etag(&self) -> String {
        self.etag.clone().unwrap_or_else(|| tag_of_sums(&self.file.sums, self.file.size_bytes))
    }
}

/// The entity tag of what another door wrote: its MD5, or a tag that cannot be taken for one.
pub(crate) fn tag_of_sums(sums: &Sums, size_bytes: u64) -> String {
    let made = || format!("{:08x}{:08x}{size_bytes:016x}-1", sums.crc32c, sums.adler32);
    sums.md5.map_or_else(made, hex::encode)
}

/// Until when a version may not be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Until then.
    pub until: Timestamp,
    /// Nobody may; otherwise those who may bypass it.
    pub compliance: bool,
}

/// What must be true of what is there for a write to happen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Precondition {
    /// It has one of these tags.
    pub matches: Option<Tags>,
    /// It has none of these tags.
    pub matches_none: Option<Tags>,
    /// It has this many bytes.
    pub size_bytes: Option<u64>,
    /// It was written in this second since the epoch.
    pub modified_s: Option<i64>,
}

/// Entity tags of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tags {
    /// Whatever is there.
    Any,
    /// One of these, without quotes.
    Of(Vec<String>),
}

impl Tags {
    /// Whether a tag is among them.
    #[must_use]
    pub fn has(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags.iter().any(|tag| tag == etag),
        }
    }
}

impl Precondition {
    /// Checks what is there; a delete marker is nothing.
    ///
    /// # Errors
    ///
    /// `NotFound` if something must be there, else `Changed`.
    pub fn check(&self, there: Option<&Object>, key: &str) -> Result<()> {
        let changed = || CatalogError::Changed { name: key.to_owned() };
        let data = there.and_then(|object| Some((object, object.data.as_ref()?)));
        let Some((object, data)) = data else {
            let wants = self.matches.is_some() || self.size_bytes.is_some() || self.modified_s.is_some();
            return if wants { Err(CatalogError::not_found("object", key)) } else { Ok(()) };
        };
        let etag = data.etag();
        let good = self.matches.as_ref().is_none_or(|tags| tags.has(&etag))
            && self.matches_none.as_ref().is_none_or(|tags| !tags.has(&etag))
            && self.size_bytes.is_none_or(|size| size == data.file.size_bytes)
            && self.modified_s.is_none_or(|second| second == object.modified.0.div_euclid(1_000_000));
        if good { Ok(()) } else { Err(changed()) }
    }
}

/// An object to be published: its bytes are synced on their movers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewObject {
    /// The bucket's directory.
    pub bucket: EntryId,
    /// The key.
    pub key: String,
    /// What must be there.
    pub precondition: Precondition,
    /// Who owns it.
    pub owner: AccountName,
    /// Its group.
    pub group: GroupName,
    /// Permission bits for other doors.
    pub mode: u32,
    /// The access control list for other doors.
    pub acl: Option<String>,
    /// The class of service.
    pub cos: CosName,
    /// The storage class of the disk copy.
    pub disk_class: StorageClassName,
    /// How long it is.
    pub size_bytes: u64,
    /// Its sums.
    pub sums: Sums,
    /// What it is made from.
    pub base: Base,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// The entity tag without quotes.
    pub etag: String,
    /// The storage class that the client named.
    pub storage_class: Option<String>,
    /// JSON of the door's.
    pub attributes: String,
    /// May not be removed.
    pub hold: bool,
    /// May not be removed before.
    pub retain: Option<Retention>,
    /// Who writes it, and how.
    pub cause: Cause,
}

/// A version, or whatever is current, to be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteObject {
    /// The bucket's directory.
    pub bucket: EntryId,
    /// The key.
    pub key: String,
    /// Which version; `None` hides the current one behind a delete marker if the bucket keeps versions.
    pub version: Option<VersionRef>,
    /// What must be there.
    pub precondition: Precondition,
    /// Who asks: owns the delete marker.
    pub owner: AccountName,
    /// Removes also what is retained, unless nobody may.
    pub bypass: bool,
    /// The version is left if it is, or has become, the current one.
    pub only_hidden: bool,
    /// Who removes it, and how.
    pub cause: Cause,
}

/// A version that gets another class of service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclass {
    /// The version as it was seen; current, or not.
    pub seen: Object,
    /// The class of service.
    pub cos: CosName,
    /// What S3 calls it.
    pub storage_class: String,
    /// JSON of the door's, for a version that it has said nothing of yet.
    pub attributes: String,
}

/// What came of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deleted {
    /// The version that was removed, or the delete marker that was made.
    pub version: Option<Version>,
    /// It is a delete marker.
    pub marker: bool,
}

/// A multipart upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upload {
    /// Its number.
    pub id: u64,
    /// The bucket's directory.
    pub bucket: EntryId,
    /// The key it will have.
    pub key: String,
    /// Who began it.
    pub account: AccountName,
    /// The class of service it is written with.
    pub cos: CosName,
    /// When it was begun.
    pub created: Timestamp,
    /// JSON of the door's.
    pub attributes: String,
}

/// A multipart upload to be begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewUpload {
    /// The bucket's directory.
    pub bucket: EntryId,
    /// The key.
    pub key: String,
    /// Who begins it.
    pub account: AccountName,
    /// The class of service.
    pub cos: CosName,
    /// When it is given up.
    pub expires: Timestamp,
    /// JSON of the door's.
    pub attributes: String,
}

/// A part of a multipart upload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadPart {
    /// From 1.
    pub number: u32,
    /// Under which its segments are kept.
    pub id: BitfileId,
    /// The storage class of its disk copy.
    pub disk_class: StorageClassName,
    /// How long it is.
    pub size_bytes: u64,
    /// Its combinable sums.
    pub sums: Sums,
    /// Its entity tag without quotes.
    pub etag: String,
    /// When it was written.
    pub created: Timestamp,
    /// JSON of the door's.
    pub attributes: String,
}

/// A part whose bytes are synced on their movers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPart {
    /// The upload.
    pub upload: u64,
    /// From 1; an earlier part of the number is replaced.
    pub number: u32,
    /// The storage class of its disk copy.
    pub disk_class: StorageClassName,
    /// How long it is.
    pub size_bytes: u64,
    /// Its sums.
    pub sums: Sums,
    /// Its segments.
    pub segments: Vec<Segment>,
    /// Its entity tag without quotes.
    pub etag: String,
    /// JSON of the door's.
    pub attributes: String,
}

/// The parts of which an upload becomes an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompleteUpload {
    /// The upload.
    pub upload: u64,
    /// Parts as they were looked at, in order: all of them must still be there.
    pub parts: Vec<UploadPart>,
    /// The object; its size, sums and segments come from the parts.
    pub object: NewObject,
    /// JSON of the door's that says of what parts it is.
    pub part_list: String,
}
