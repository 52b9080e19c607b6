//! The name space as a principal may see it: every door's way to names.
//!
//! - `view`: what was found on a path, and what its asker may know of it.
//! - `edit`: making, removing, renaming, changing.
//!
//! Owns nothing. Talks to the catalogue, one question for a path of any length. Never moves data.
//!
//! Invariant: no call tells anybody of a name, or that there is none, in a directory that they may not pass through.

mod edit;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use catalog::{Catalog, CatalogError, ClassOfService, Entry, FileInfo, Listing, MAX_PAGE, TreePath};
use wire::{
    checksum::Algorithm,
    extent::ByteRange,
    id::{CosName, EntryId, GroupName},
};

pub use self::edit::Change;
use self::view::View;
use crate::{
    config::NamesConfig,
    failure::{Failure, FailureKind},
    identity::{Principal, Right},
    transfer::CutUpload,
};

/// The set-group-ID bit: of a directory, what is made in it gets its group.
const SET_GROUP: u32 = 0o2000;

/// The permission-checked name space. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    catalog: Catalog,
    export: TreePath,
    homes: Option<TreePath>,
    umask: u32,
    /// Told whenever a file has lost its name.
    deleted: Option<Arc<dyn Fn() + Send + Sync>>,
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

impl Files {
    /// The whole name space of this catalogue, with the usual masks.
    #[must_use]
    pub fn new(catalog: Catalog) -> Self {
        Self { catalog, export: TreePath::root(), homes: None, umask: NamesConfig::default().umask, deleted: None }
    }

    /// The name space below what the configuration exports.
    ///
    /// # Errors
    ///
    /// [`FailureKind::BadName`] if a configured path is none.
    pub fn exported(catalog: Catalog, names: &NamesConfig) -> Result<Self, Failure> {
        let path = |text: &String| TreePath::posix(&TreePath::root(), text);
        let export = path(&names.export)?;
        let homes = names.homes.as_ref().map(path).transpose()?;
        Ok(Self { catalog, export, homes, umask: names.umask, deleted: None })
    }

    /// Has `deleted` called whenever a file has lost its name, so that whoever waits for its bytes is told soon.
    #[must_use]
    pub fn telling(mut self, deleted: impl Fn() + Send + Sync + 'static) -> Self {
        self.deleted = Some(Arc::new(deleted));
        self
    }

    /// The directory that doors show as the root.
    #[must_use]
    pub const fn export(&self) -> &TreePath {
        &self.export
    }

    /// Reads a path that a client gave, from `base` if it is relative.
    ///
    /// # Errors
    ///
    /// [`FailureKind::BadName`].
    pub fn path(base: &TreePath, text: &str) -> Result<TreePath, Failure> {
        Ok(TreePath::posix(base, text)?)
    }

    /// What is known of a name.
    ///
    /// # Errors
    ///
    /// What the asker may know of why not; so it is with every call below.
    pub async fn stat(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let view = self.look(who, path).await?;
        Ok(view.item(view.entry()?))
    }

    /// A directory that may be passed through: `CWD`.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn enter(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let view = self.look(who, path).await?;
        let directory = view.directory()?;
        view.need(Right::Search, directory, "enter")?;
        Ok(view.item(directory))
    }

    /// One page of a directory that may be read; `after` as [`Page::next`] gave it.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn list(
        &self,
        who: &Principal,
        path: &TreePath,
        after: Option<String>,
        limit: u32,
    ) -> Result<Page, Failure> {
        let view = self.look(who, path).await?;
        let directory = view.directory()?;
        view.need(Right::Read, directory, "list")?;
        let listing = Listing { after, prefix: String::new(), limit: limit.clamp(1, MAX_PAGE) };
        let page = self.catalog.list(directory.id, &listing).await?;
        let item =
            |entry: Entry| Item { rights: who.rights(&entry), removable: who.may_unlink(directory, &entry), entry };
        // A key that ends in `/` is a file without a name, which only S3 can name.
        let named = page.items.into_iter().filter(|entry| entry.is_directory() || !entry.name.is_empty());
        Ok(Page { directory: view.item(directory), items: named.map(item).collect(), next: page.next })
    }

    /// The sum of a file, in lower-case hexadecimal, from the catalogue. A part other than the whole is refused, since
    /// sums are never computed to answer a question.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`]; [`FailureKind::Unsupported`] for a sum that is not kept.
    pub async fn checksum(
        &self,
        who: &Principal,
        path: &TreePath,
        algorithm: Algorithm,
        part: Option<ByteRange>,
    ) -> Result<String, Failure> {
        let Readable { file, .. } = self.readable(who, path).await?;
        let whole = |part: ByteRange| part.offset() == 0 && part.length() == file.size_bytes;
        if !part.is_none_or(whole) {
            return Err(Failure::new(
                FailureKind::Unsupported,
                format_args!("sums of parts are not kept: ask for {algorithm} of the whole of {path}"),
            ));
        }
        file.sums.hex(algorithm).ok_or_else(|| {
            let kept = Algorithm::ALL.into_iter().filter(|kind| file.sums.hex(*kind).is_some());
            let kept = kept.map(Algorithm::name).collect::<Vec<_>>().join(", ");
            Failure::new(
                FailureKind::Unsupported,
                format_args!("class of service {} keeps no {algorithm} of {path}: ask for one of {kept}", file.cos),
            )
        })
    }

    /// A file that may be read.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn readable(&self, who: &Principal, path: &TreePath) -> Result<Readable, Failure> {
        let view = self.look(who, path).await?;
        let entry = view.entry()?;
        let Some(file) = entry.file() else {
            return Err(Failure::new(FailureKind::IsADirectory, format_args!("{path} is a directory: name a file")));
        };
        if path.means_directory() {
            return Err(Failure::new(FailureKind::NotADirectory, format_args!("{path} is a file: leave the / away")));
        }
        view.need(Right::Read, entry, "read")?;
        Ok(Readable { path: path.to_string(), file: file.clone() })
    }

    /// A name that may be written: a new one in a directory that may be written, or a file that may.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn target(&self, who: &Principal, path: &TreePath) -> Result<Target, Failure> {
        let view = self.look(who, path).await?;
        let (parent, name) = view.place()?;
        let existing = view.found();
        match existing {
            Some(entry) if entry.is_directory() => {
                return Err(Failure::new(
                    FailureKind::IsADirectory,
                    format_args!("{path} is a directory: choose another name, or one in it"),
                ));
            }
            Some(entry) => view.need(Right::Write, entry, "overwrite")?,
            None => view.need(Right::Write, parent, "write in")?,
        }
        if path.means_directory() {
            return Err(Failure::new(FailureKind::BadName, format_args!("{path}/ cannot be a file: leave the / away")));
        }
        Ok(Target {
            path: path.to_string(),
            parent: parent.id,
            name,
            mode: 0o666 & !self.umask,
            group: self.group_in(who, parent),
            existing: existing.cloned(),
        })
    }

    /// What is kept of this principal's cut upload to this name.
    ///
    /// # Errors
    ///
    /// As [`Files::target`].
    pub async fn cut_upload(&self, who: &Principal, path: &TreePath) -> Result<Option<CutUpload>, Failure> {
        let target = self.target(who, path).await?;
        let partial = self.catalog.find_partial(target.parent, &target.name, &who.account).await?;
        Ok(partial.as_ref().map(CutUpload::from))
    }

    /// Drops this principal's cut upload to this name; whether there was one.
    ///
    /// # Errors
    ///
    /// As [`Files::target`].
    pub async fn drop_cut_upload(&self, who: &Principal, path: &TreePath) -> Result<bool, Failure> {
        let target = self.target(who, path).await?;
        let Some(partial) = self.catalog.find_partial(target.parent, &target.name, &who.account).await? else {
            return Ok(false);
        };
        match self.catalog.discard_partial(partial.id).await {
            Ok(()) => Ok(true),
            Err(CatalogError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The classes of service, by name.
    ///
    /// # Errors
    ///
    /// If the catalogue is away.
    pub async fn classes(&self) -> Result<Vec<ClassOfService>, Failure> {
        Ok(self.catalog.policies().await?.classes)
    }

    /// A class of service.
    ///
    /// # Errors
    ///
    /// [`FailureKind::BadArgument`] with the names there are.
    pub async fn class(&self, name: &CosName) -> Result<ClassOfService, Failure> {
        let mut classes = self.classes().await?;
        match classes.iter().position(|class| class.name == *name) {
            Some(index) => Ok(classes.swap_remove(index)),
            None => {
                let names = classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
                Err(Failure::new(
                    FailureKind::BadArgument,
                    format_args!("there is no class of service {name}: choose one of {names}"),
                ))
            }
        }
    }

    async fn look<'a>(&self, who: &'a Principal, path: &'a TreePath) -> Result<View<'a>, Failure> {
        let resolved = self.catalog.resolve(&self.inside(path)?).await?;
        View::of(who, path, resolved, self.export.components().len())
    }

    /// The path in the catalogue of a path that a door gave.
    fn inside(&self, path: &TreePath) -> Result<TreePath, Failure> {
        if self.export.components().is_empty() {
            return Ok(path.clone());
        }
        let slash = if path.means_directory() { "/" } else { "" };
        Ok(TreePath::posix(&self.export, &format!("./{}{slash}", path.to_string().trim_start_matches('/')))?)
    }

    fn group_in(&self, who: &Principal, parent: &Entry) -> GroupName {
        let inherited = parent.mode & SET_GROUP != 0;
        if inherited { parent.group.clone() } else { who.primary_group().clone() }
    }
}
