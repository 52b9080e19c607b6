//! The name space as a principal may see it: every door's way to names.
//!
//! Owns nothing. Talks to the catalogue. Never moves data.
//!
//! Invariant: no call tells anybody of a name, or that there is none, in a directory that they may not pass through.

use catalog::{Catalog, Entry, FileInfo, Partial, TreePath};
use wire::{
    checksum::Algorithm,
    extent::ByteRange,
    id::{AccountName, CosName, EntryId, GroupName},
};

use crate::{failure::Failure, identity::Principal, transfer::CutUpload};

/// The permission-checked name space. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    catalog: Catalog,
}

/// A name and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The entry: name, owner, group, mode, times, and of a file size, sums, class of service and residency.
    pub entry: Entry,
    /// What the asking principal may do to it, as three permission bits ([`crate::identity::Right`]).
    pub rights: u32,
    /// Whether the asking principal may remove or rename it.
    pub removable: bool,
}

/// One page of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The directory itself.
    pub directory: Item,
    /// Entries, in the order of names.
    pub items: Vec<Item>,
    /// What to give as `after` for the next page; `None` if this was the last.
    pub next: Option<String>,
}

/// A file that its asker may read, for [`crate::transfer::Transfers::retrieve`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readable {
    /// Its path, to show.
    pub path: String,
    /// The bytes.
    pub file: FileInfo,
}

/// A name that its asker may write, for [`crate::transfer::Transfers::store`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its path, to show.
    pub path: String,
    /// The directory.
    pub parent: EntryId,
    /// The name in it.
    pub name: String,
    /// The file that is there now.
    pub existing: Option<Entry>,
    /// Permission bits for a new file.
    pub mode: u32,
    /// The group of a new file: the directory's if that has the set-group-ID bit, else the principal's primary one.
    pub group: GroupName,
}

/// What about an entry is to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Permission bits.
    Mode(u32),
    /// Group: one of the owner's, unless an administrator asks.
    Group(GroupName),
    /// Owner: administrators only.
    Owner(AccountName),
    /// Access control list; empty removes it.
    Acl(String),
    /// When the content was changed last, microseconds since the epoch.
    Modified(i64),
}

impl Files {
    /// The name space of this catalogue.
    #[must_use]
    pub const fn new(catalog: Catalog) -> Self {
        Self { catalog }
    }

    /// Reads a path that a client gave, from `base` if it is relative.
    ///
    /// # Errors
    ///
    /// [`crate::failure::FailureKind::BadName`].
    pub fn path(base: &TreePath, text: &str) -> Result<TreePath, Failure> {
        Ok(TreePath::posix(base, text)?)
    }

    /// What is known of a name.
    ///
    /// # Errors
    ///
    /// [`Failure`]; so it is with every call below.
    pub async fn stat(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let _ = (who, path, &self.catalog);
        todo!()
    }

    /// A directory that may be passed through: `CWD`.
    pub async fn enter(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let _ = (who, path);
        todo!()
    }

    /// One page of a directory that may be read; `after` as [`Page::next`] gave it.
    pub async fn list(
        &self,
        who: &Principal,
        path: &TreePath,
        after: Option<String>,
        limit: u32,
    ) -> Result<Page, Failure> {
        let _ = (who, path, after, limit);
        todo!()
    }

    /// Makes a directory.
    pub async fn make_directory(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let _ = (who, path);
        todo!()
    }

    /// Removes an empty directory.
    pub async fn remove_directory(&self, who: &Principal, path: &TreePath) -> Result<(), Failure> {
        let _ = (who, path);
        todo!()
    }

    /// Removes a file's name; its bytes stay recoverable for the undelete window of its class of service.
    pub async fn delete(&self, who: &Principal, path: &TreePath) -> Result<(), Failure> {
        let _ = (who, path);
        todo!()
    }

    /// Gives a file or directory another name. A file of the new name is replaced.
    pub async fn rename(&self, who: &Principal, from: &TreePath, to: &TreePath) -> Result<(), Failure> {
        let _ = (who, from, to);
        todo!()
    }

    /// Changes what a name says of its file.
    pub async fn change(&self, who: &Principal, path: &TreePath, change: Change) -> Result<Item, Failure> {
        let _ = (who, path, change);
        todo!()
    }

    /// The sum of a file, in lower-case hexadecimal, from the catalogue. `part` other than the whole is refused, since
    /// sums are never computed to answer a question.
    pub async fn checksum(
        &self,
        who: &Principal,
        path: &TreePath,
        algorithm: Algorithm,
        part: Option<ByteRange>,
    ) -> Result<String, Failure> {
        let _ = (who, path, algorithm, part);
        todo!()
    }

    /// A file that may be read.
    pub async fn readable(&self, who: &Principal, path: &TreePath) -> Result<Readable, Failure> {
        let _ = (who, path);
        todo!()
    }

    /// A name that may be written: a new one in a directory that may be written, or a file that may.
    pub async fn target(&self, who: &Principal, path: &TreePath) -> Result<Target, Failure> {
        let _ = (who, path);
        todo!()
    }

    /// What is kept of this principal's cut upload to this name.
    pub async fn cut_upload(&self, who: &Principal, path: &TreePath) -> Result<Option<CutUpload>, Failure> {
        let _ = (who, path);
        let _: Option<Partial> = None;
        todo!()
    }

    /// Drops this principal's cut upload to this name; whether there was one.
    pub async fn drop_cut_upload(&self, who: &Principal, path: &TreePath) -> Result<bool, Failure> {
        let _ = (who, path);
        todo!()
    }

    /// The classes of service, by name.
    pub async fn classes(&self) -> Result<Vec<catalog::ClassOfService>, Failure> {
        todo!()
    }

    /// Whether there is such a class of service.
    pub async fn class(&self, name: &CosName) -> Result<catalog::ClassOfService, Failure> {
        let _ = name;
        todo!()
    }
}
