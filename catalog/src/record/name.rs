//! Names: entries of the tree, what a listing shows of a file, and how a path was resolved.

use serde::{Deserialize, Serialize};
use wire::checksum::Sums;
use wire::id::{AccountName, BitfileId, CosName, EntryId, GroupName};

use crate::error::{CatalogError, Result};
use crate::time::Timestamp;

/// The root directory; it has no name and no parent.
pub const ROOT: EntryId = EntryId(1);

/// One name in the tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The entry; it stays the same when the name is changed or the file is rewritten.
    pub id: EntryId,
    /// The directory it lies in; `None` for the root alone.
    pub parent: Option<EntryId>,
    /// The name without the `/` with which a directory is stored; empty for the root.
    pub name: String,
    /// Who owns it.
    pub owner: AccountName,
    /// The group it belongs to.
    pub group: GroupName,
    /// Permission bits, as `chmod` counts them: `0o7777` at most.
    pub mode: u32,
    /// An access control list in the gateway's own text form.
    pub acl: Option<String>,
    /// When the name was made.
    pub created: Timestamp,
    /// When the content was changed last, or what a client set by `UTIME`.
    pub modified: Timestamp,
    /// When anything about the name was changed last.
    pub changed: Timestamp,
    /// What it names.
    pub content: Content,
}

/// What an entry names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// A directory.
    Directory,
    /// A file.
    File(FileInfo),
}

/// What is known of a file without looking for its segments.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileInfo {
    /// The bytes.
    pub bitfile: BitfileId,
    /// How many there are.
    pub size_bytes: u64,
    /// The class of service it was written with.
    pub cos: CosName,
    /// The sums of the whole file.
    pub sums: Sums,
    /// How often this name has been written, from 1.
    pub generation: u64,
    /// Where copies are.
    pub residency: Residency,
}

/// On what kinds of media a bitfile has complete copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Residency {
    /// Whether a disk copy is there.
    pub on_disk: bool,
    /// How many complete tape copies there are.
    pub tape_copies: u32,
    /// How many there should be.
    pub tape_copies_wanted: u32,
}

impl Entry {
    /// What is known of the file; `None` for a directory.
    #[must_use]
    pub const fn file(&self) -> Option<&FileInfo> {
        match &self.content {
            Content::File(file) => Some(file),
            Content::Directory => None,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    /// The name as it is stored and ordered: a directory's ends in `/`.
    ///
    /// This is what [`Page::next`] and the `after` of a listing count in.
    #[must_use]
    pub fn stored_name(&self) -> String {
        if self.is_directory() { format!("{}/", self.name) } else { self.name.clone() }
    }
}

/// What was found on the way along a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The directories passed, the root first, without the leaf. A door checks the search permission of each.
    pub ancestors: Vec<Entry>,
    /// Where the path ends.
    pub leaf: Leaf,
}

/// Where a path ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leaf {
    /// At this entry. If both a file and a directory have the name, a path with a trailing `/` finds the directory
    /// and one without finds the file.
    Found(Box<Entry>),
    /// In a directory (the last of the ancestors) that has no such name.
    Missing {
        /// The last component of the path.
        name: String,
    },
    /// Above a component that does not exist.
    MissingAncestor {
        /// The first component that is missing.
        name: String,
    },
    /// At a file that the path uses as a directory.
    BlockedByFile {
        /// The component that is a file.
        name: String,
    },
}

impl Resolved {
    /// The entry the path names.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotFound`] with the first missing component, or [`CatalogError::NotADirectory`].
    pub fn entry(&self) -> Result<&Entry> {
        match &self.leaf {
            Leaf::Found(entry) => Ok(entry),
            Leaf::Missing { name } | Leaf::MissingAncestor { name } => {
                Err(CatalogError::not_found("file or directory", name))
            }
            Leaf::BlockedByFile { name } => Err(CatalogError::NotADirectory { name: name.clone() }),
        }
    }

    /// The directory in which the last component lies or would be made; the root is its own.
    ///
    /// # Errors
    ///
    /// As [`Resolved::entry`], but a missing last component is none.
    pub fn parent(&self) -> Result<&Entry> {
        match &self.leaf {
            Leaf::Missing { .. } => {}
            Leaf::Found(entry) if self.ancestors.is_empty() => return Ok(entry),
            Leaf::Found(_) | Leaf::MissingAncestor { .. } | Leaf::BlockedByFile { .. } => {
                self.entry()?;
            }
        }
        self.ancestors.last().ok_or_else(|| CatalogError::corrupt("the root directory is missing"))
    }
}

/// One page of a longer list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows, in order.
    pub items: Vec<T>,
    /// What to give as `after` for the next page; `None` if this was the last.
    pub next: Option<String>,
}

/// Which part of a listing is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Begin behind this name, as [`Page::next`] gave it; from the beginning if `None`.
    pub after: Option<String>,
    /// Only names that begin so; empty for all.
    pub prefix: String,
    /// At most so many; it is cut to [`MAX_PAGE`].
    pub limit: u32,
}

/// The most rows that one page of any list holds.
pub const MAX_PAGE: u32 = 10_000;

/// An entry found below a directory, however deep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walked {
    /// The stored names from the directory down to the entry, joined: exactly its S3 key below that directory. A
    /// directory's ends in `/`.
    pub key: String,
    /// The entry.
    pub entry: Entry,
}

/// May a file and a directory of one parent have the same name?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Twins {
    /// No: what FTP and WebDAV want.
    #[default]
    Refuse,
    /// Yes: `a` and `a/b` are both keys in S3.
    Allow,
}

/// A directory to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDirectory {
    /// Where.
    pub parent: EntryId,
    /// The name, without a trailing `/`.
    pub name: String,
    /// Who owns it.
    pub owner: AccountName,
    /// The group it belongs to.
    pub group: GroupName,
    /// Permission bits.
    pub mode: u32,
    /// An access control list.
    pub acl: Option<String>,
    /// Whether a file of the same name is in the way.
    pub twins: Twins,
}

/// A new place or name for an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rename {
    /// What is moved, with everything below it.
    pub entry: EntryId,
    /// The directory it goes to.
    pub to_parent: EntryId,
    /// The name it gets there, without a trailing `/`.
    pub to_name: String,
    /// Whether a file of the new name is replaced (and goes to the undelete window) or in the way.
    pub replace: bool,
    /// Whether a twin of the other kind is in the way.
    pub twins: Twins,
}

/// What about an entry is to be changed; `None` leaves it as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// Who owns it: moves what a file takes from one quota to another.
    pub owner: Option<AccountName>,
    /// The group it belongs to: moves quota too.
    pub group: Option<GroupName>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// The access control list; `Some(None)` removes it.
    pub acl: Option<Option<String>>,
    /// When the content was changed last.
    pub modified: Option<Timestamp>,
}

/// A file in the undelete window: its name is gone, its bytes are kept until `reclaim_after`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeletedFile {
    /// The bytes.
    pub bitfile: BitfileId,
    /// The directory it was in; it may be gone too.
    pub parent: EntryId,
    /// The name it had there.
    pub name: String,
    /// Who owned it.
    pub owner: AccountName,
    /// The group it belonged to.
    pub group: GroupName,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// When the name went.
    pub deleted: Timestamp,
    /// When the bytes go.
    pub reclaim_after: Timestamp,
}
