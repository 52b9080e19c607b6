//! What was found on a path, and what its asker may know of it.
//!
//! Pure. A view exists only if its asker may pass through every directory on the way: what it holds, they may know.

use catalog::{Entry, Leaf, Resolved, TreePath};

use super::Item;
use crate::{
    failure::{Failure, FailureKind},
    identity::{Principal, Right},
};

/// What was found on a path.
#[derive(Debug)]
pub(super) struct View<'a> {
    who: &'a Principal,
    path: &'a TreePath,
    resolved: Resolved,
}

impl<'a> View<'a> {
    /// The view of whoever may pass through every directory that was passed. `exported` directories from the root are
    /// above what doors show.
    pub(super) fn of(
        who: &'a Principal,
        path: &'a TreePath,
        resolved: Resolved,
        exported: usize,
    ) -> Result<Self, Failure> {
        if let Some(closed) = resolved.ancestors.iter().position(|directory| !who.may(Right::Search, directory)) {
            let shown = path.components().iter().take(closed.saturating_sub(exported));
            let shown: String = shown.map(|component| format!("/{component}")).collect();
            let shown = if shown.is_empty() { "/" } else { &shown };
            return Err(Failure::new(
                FailureKind::PermissionDenied,
                format_args!("{} may not pass through {shown}: ask its owner for the x permission", who.account),
            ));
        }
        Ok(Self { who, path, resolved })
    }

    /// The entry that the path names.
    pub(super) fn entry(&self) -> Result<&Entry, Failure> {
        match &self.resolved.leaf {
            Leaf::Found(entry) => Ok(entry),
            Leaf::Missing { .. } => {
                Err(Failure::new(FailureKind::NotFound, format_args!("there is no file or directory {}", self.path)))
            }
            Leaf::MissingAncestor { name } => Err(Failure::new(
                FailureKind::NotFound,
                format_args!("there is no {}: directory {name:?} does not exist", self.path),
            )),
            Leaf::BlockedByFile { name } => Err(Failure::new(
                FailureKind::NotADirectory,
                format_args!("there is no {}: {name:?} is a file", self.path),
            )),
        }
    }

    /// The entry, if there is one.
    pub(super) fn found(&self) -> Option<&Entry> {
        match &self.resolved.leaf {
            Leaf::Found(entry) => Some(entry),
            _ => None,
        }
    }

    /// The entry, which must be a directory.
    pub(super) fn directory(&self) -> Result<&Entry, Failure> {
        let entry = self.entry()?;
        if entry.is_directory() {
            return Ok(entry);
        }
        Err(Failure::new(FailureKind::NotADirectory, format_args!("{} is a file, not a directory", self.path)))
    }

    /// The directory in which the name lies or would be made, and the name.
    pub(super) fn place(&self) -> Result<(&Entry, String), Failure> {
        if !matches!(self.resolved.leaf, Leaf::Missing { .. }) {
            self.entry()?;
        }
        match (self.path.name(), self.resolved.ancestors.last()) {
            (Some(name), Some(parent)) => Ok((parent, name.to_owned())),
            _ => Err(Failure::new(FailureKind::BadArgument, "the root directory stays as it is")),
        }
    }

    /// Refuses unless the asker may do this to the entry; `verb` says in the sentence what was wanted.
    pub(super) fn need(&self, right: Right, entry: &Entry, verb: &str) -> Result<(), Failure> {
        if self.who.may(right, entry) {
            return Ok(());
        }
        let letter = match right {
            Right::Read => 'r',
            Right::Write => 'w',
            Right::Search => 'x',
        };
        let (account, owner) = (&self.who.account, &entry.owner);
        let name = if self.found().is_some_and(|found| found.id == entry.id) {
            self.path.to_string()
        } else {
            self.path.parent().to_string()
        };
        Err(Failure::new(
            FailureKind::PermissionDenied,
            format_args!("{account} may not {verb} {name}: ask its owner, {owner}, for the {letter} permission"),
        ))
    }

    /// Refuses unless the asker may remove or rename the entry.
    pub(super) fn need_unlink(&self, verb: &str) -> Result<(&Entry, &Entry), Failure> {
        let entry = self.entry()?;
        let (parent, _) = self.place()?;
        if self.who.may_unlink(parent, entry) {
            return Ok((parent, entry));
        }
        Err(Failure::new(
            FailureKind::PermissionDenied,
            format_args!(
                "{} may not {verb} {}: its directory is {}'s, ask for the w permission there",
                self.who.account, self.path, parent.owner
            ),
        ))
    }

    /// What doors show of an entry on this path.
    pub(super) fn item(&self, entry: &Entry) -> Item {
        let parent = self.resolved.ancestors.last();
        Item {
            rights: self.who.rights(entry),
            removable: parent.is_some_and(|parent| self.who.may_unlink(parent, entry)),
            entry: entry.clone(),
        }
    }
}
