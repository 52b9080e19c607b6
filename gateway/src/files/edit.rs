//! Making, removing, renaming and changing names.

use catalog::{AttributeChange, CatalogError, Leaf, NewDirectory, Rename, Timestamp, TreePath, Twins};
use wire::id::{AccountName, GroupName};

use super::{Files, Item, SET_GROUP};
use crate::{
    failure::{Failure, FailureKind},
    identity::{Acl, Principal, Right},
};

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
    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`]; [`FailureKind::Exists`].
    pub async fn make_directory(&self, who: &Principal, path: &TreePath) -> Result<Item, Failure> {
        let view = self.look(who, path).await?;
        if view.found().is_some() {
            return Err(Failure::new(FailureKind::Exists, format_args!("{path} exists already")));
        }
        let (parent, name) = view.place()?;
        view.need(Right::Write, parent, "write in")?;
        let new = NewDirectory {
            parent: parent.id,
            name,
            owner: who.account.clone(),
            group: self.group_in(who, parent),
            mode: 0o777 & !self.umask | parent.mode & SET_GROUP,
            acl: None,
            twins: Twins::Refuse,
        };
        let made = self.catalog.make_directory(new).await?;
        Ok(view.item(&made))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`]; [`FailureKind::NotEmpty`].
    pub async fn remove_directory(&self, who: &Principal, path: &TreePath) -> Result<(), Failure> {
        let view = self.look(who, path).await?;
        let directory = view.directory()?;
        view.need_unlink("remove")?;
        Ok(self.catalog.remove_directory(directory.id).await?)
    }

    /// Removes a file's name; its bytes stay recoverable for the undelete window of its class of service.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn delete(&self, who: &Principal, path: &TreePath) -> Result<(), Failure> {
        let view = self.look(who, path).await?;
        let (_, entry) = view.need_unlink("delete")?;
        if entry.is_directory() {
            let advice = format_args!("{path} is a directory: remove it as one");
            return Err(Failure::new(FailureKind::IsADirectory, advice));
        }
        self.catalog.delete_file(entry.id, None).await?;
        self.tell_deleted();
        Ok(())
    }

    /// Gives a file or directory another name. A file of the new name is replaced.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn rename(&self, who: &Principal, from: &TreePath, to: &TreePath) -> Result<(), Failure> {
        let source = self.look(who, from).await?;
        let (_, entry) = source.need_unlink("rename")?;
        let target = self.look(who, to).await?;
        let (parent, name) = target.place()?;
        if let Some(there) = target.found() {
            if there.id == entry.id {
                return Ok(());
            }
            if there.is_directory() {
                let advice = format_args!("{to} is a directory: remove it first, or name something in it");
                return Err(Failure::new(FailureKind::Exists, advice));
            }
            target.need_unlink("replace")?;
        }
        target.need(Right::Write, parent, "write in")?;
        let rename =
            Rename { entry: entry.id, to_parent: parent.id, to_name: name, replace: true, twins: Twins::Refuse };
        self.catalog.rename(rename).await?;
        if target.found().is_some() {
            self.tell_deleted();
        }
        Ok(())
    }

    fn tell_deleted(&self) {
        if let Some(deleted) = &self.deleted {
            deleted();
        }
    }

    /// Changes what a name says of its file.
    ///
    /// # Errors
    ///
    /// As [`Files::stat`].
    pub async fn change(&self, who: &Principal, path: &TreePath, change: Change) -> Result<Item, Failure> {
        let view = self.look(who, path).await?;
        let entry = view.entry()?;
        let refused = |what: &str| {
            let (account, owner) = (&who.account, &entry.owner);
            Failure::new(
                FailureKind::PermissionDenied,
                format_args!("{account} may not change the {what} of {path}: ask {owner} or an administrator"),
            )
        };
        let mut attributes = AttributeChange::default();
        match change {
            Change::Owner(owner) => {
                if !who.admin {
                    return Err(refused("owner"));
                }
                attributes.owner = Some(owner);
            }
            _ if !who.owns(entry) => return Err(refused("attributes")),
            Change::Mode(mode) if mode > 0o7777 => {
                let advice = format_args!("{mode:o} is no mode: write up to four octal digits");
                return Err(Failure::new(FailureKind::BadArgument, advice));
            }
            Change::Mode(mode) => attributes.mode = Some(mode),
            Change::Group(group) => {
                if !who.admin && !who.is_in(&group) {
                    let advice = format_args!("{} is not in group {group}: choose one of its own", who.account);
                    return Err(Failure::new(FailureKind::PermissionDenied, advice));
                }
                attributes.group = Some(group);
            }
            Change::Acl(text) => {
                let acl = Acl::parse(&text).map_err(|bad| Failure::new(FailureKind::BadArgument, bad))?;
                attributes.acl = Some(Some(acl.to_string()).filter(|text| !text.is_empty()));
            }
            Change::Modified(time_us) => attributes.modified = Some(Timestamp(time_us)),
        }
        let changed = self.catalog.set_attributes(entry.id, attributes).await?;
        Ok(view.item(&changed))
    }

    /// Makes the configured directories that are not there: what is exported, and the place for homes.
    ///
    /// # Errors
    ///
    /// If the catalogue is away, or a file is in the way.
    pub async fn prepare(&self) -> Result<(), Failure> {
        let root = TreePath::root();
        let mut path = root.clone();
        for component in self.export.components() {
            path = TreePath::posix(&path, component)?;
            self.ensure(&path, None).await?;
        }
        let mut path = self.export.clone();
        for component in self.homes.iter().flat_map(|homes| homes.components()) {
            path = TreePath::posix(&path, component)?;
            self.ensure(&path, None).await?;
        }
        Ok(())
    }

    /// Where this principal's session begins: the account's own home; else one in the configured place for homes; else the
    /// root. A home that is not there is made, in a directory that is.
    ///
    /// # Errors
    ///
    /// If the catalogue is away. A home that cannot be used is passed over.
    pub async fn home(&self, who: &Principal) -> Result<TreePath, Failure> {
        let root = TreePath::root();
        if let Some(home) = who.home.as_deref().and_then(|home| TreePath::posix(&root, home).ok()) {
            let made = async {
                self.ensure(&self.inside(&home)?, Some(who)).await?;
                self.enter(who, &home).await
            };
            return match made.await {
                Ok(_) => Ok(home),
                Err(failure) if failure.is_retryable() => Err(failure),
                Err(_) => Ok(root),
            };
        }
        let Some(homes) = &self.homes else { return Ok(root) };
        let Ok(home) = TreePath::posix(homes, who.account.as_str()) else { return Ok(root) };
        self.ensure(&self.inside(&home)?, Some(who)).await?;
        Ok(home)
    }

    /// Makes a directory of the catalogue if there is none: the owner's, or one like its parent.
    async fn ensure(&self, path: &TreePath, owner: Option<&Principal>) -> Result<(), Failure> {
        let resolved = self.catalog.resolve(path).await?;
        let (Leaf::Missing { .. }, Some(parent), Some(name)) = (&resolved.leaf, resolved.ancestors.last(), path.name())
        else {
            return Ok(());
        };
        let new = NewDirectory {
            parent: parent.id,
            name: name.to_owned(),
            owner: owner.map_or_else(|| parent.owner.clone(), |who| who.account.clone()),
            group: owner.map_or_else(|| parent.group.clone(), |who| who.primary_group().clone()),
            mode: if owner.is_some() { 0o777 & !self.umask } else { 0o755 },
            acl: None,
            twins: Twins::Refuse,
        };
        match self.catalog.make_directory(new).await {
            Ok(_) | Err(CatalogError::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
