//! Trees, on both sides: what a recursive transfer moves.
//!
//! Owns the bounds of a walk. Symbolic links to folders are not followed here, so that no walk is endless.

use std::{
    fs,
    path::{Path, PathBuf},
};

use wire::ftp::{Facts, FtpPath, Locality};

use super::app::{App, Trouble};
use crate::{
    ClientError,
    listing::is_folder,
    many::{FetchItem, StoreItem},
    names,
};

/// What a walk found.
#[derive(Debug)]
pub(super) struct Tree<F, D> {
    pub(super) files: Vec<F>,
    /// Folders to be made, those above first.
    pub(super) folders: Vec<D>,
    /// What was left out, and why.
    pub(super) left_out: Vec<String>,
    /// How many files have to come from tape first.
    pub(super) on_tape: u64,
}

impl<F, D> Tree<F, D> {
    /// Nothing found yet.
    pub(super) const fn new() -> Self {
        Self { files: Vec::new(), folders: Vec::new(), left_out: Vec::new(), on_tape: 0 }
    }

    /// What a walk below found.
    pub(super) fn extend(&mut self, inner: Self) {
        self.files.extend(inner.files);
        self.folders.extend(inner.folders);
        self.left_out.extend(inner.left_out);
        self.on_tape += inner.on_tape;
    }
}

impl Tree<FetchItem, PathBuf> {
    /// A file to fetch.
    pub(super) fn add(&mut self, remote: FtpPath, local: PathBuf, facts: &Facts) {
        self.on_tape += u64::from(facts.locality == Some(Locality::Nearline));
        self.files.push(FetchItem::listed(remote, local, facts));
    }
}

impl App {
    /// Everything below a folder of the server, and where it goes.
    pub(super) async fn walk_remote(
        &mut self,
        root: &FtpPath,
        into: &Path,
    ) -> Result<Tree<FetchItem, PathBuf>, Trouble> {
        let mut tree = Tree { folders: vec![into.to_owned()], ..Tree::new() };
        let mut open = vec![(root.clone(), into.to_owned(), 0usize)];
        let cancel = self.cancel();
        while let Some((folder, local, depth)) = open.pop() {
            if cancel.is_cancelled() {
                return Err(ClientError::Cancelled.into());
            }
            let listing = self.session().await?.list(&folder).await?;
            for name in listing.refused {
                tree.left_out.push(format!("{folder}: the server lists {name:?}, which is no name in this folder"));
            }
            for entry in listing.entries {
                let remote = names::below(folder.as_str(), &entry.name)?;
                let local = local.join(&entry.name);
                if !is_folder(&entry.facts) {
                    tree.add(remote, local, &entry.facts);
                } else if depth + 1 >= names::MAX_DEPTH {
                    tree.left_out.push(format!("{remote}: more than {} folders deep", names::MAX_DEPTH));
                } else {
                    tree.folders.push(local.clone());
                    open.push((remote, local, depth + 1));
                }
            }
        }
        Ok(tree)
    }
}

/// Everything below a local folder, and where it goes on the server.
pub(super) fn local(root: &Path, into: &str) -> Result<Tree<StoreItem, FtpPath>, Trouble> {
    let mut tree = Tree { folders: vec![FtpPath::new(into)?], ..Tree::new() };
    let mut open = vec![(root.to_owned(), into.to_owned())];
    while let Some((folder, remote)) = open.pop() {
        let read = fs::read_dir(&folder).map_err(ClientError::local("read", &folder))?;
        let mut entries = Vec::new();
        for entry in read {
            entries.push(entry.map_err(ClientError::local("read", &folder))?);
        }
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                tree.left_out.push(format!("{}: its name is not UTF-8; rename it first", path.display()));
                continue;
            };
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let there = names::below(&remote, &name);
            match (fs::metadata(&path), there) {
                (Ok(facts), Ok(there)) if facts.is_file() => {
                    tree.files.push(StoreItem { local: path, remote: there, size_bytes: facts.len() });
                }
                (Ok(facts), Ok(_)) if facts.is_dir() && is_link => {
                    tree.left_out.push(format!("{}: a link to a folder is not followed", path.display()));
                }
                (Ok(facts), Ok(there)) if facts.is_dir() => {
                    tree.folders.push(there.clone());
                    open.push((path, there.into_string()));
                }
                (Ok(_), Ok(_)) => tree.left_out.push(format!("{}: neither a file nor a folder", path.display())),
                (Err(error), _) => tree.left_out.push(format!("{}: {error}", path.display())),
                (_, Err(error)) => tree.left_out.push(format!("{}: {error}", path.display())),
            }
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_tree_is_walked_without_following_links_to_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/x"), "1").unwrap();
        fs::write(folder.path().join("a/b/y"), "22").unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).unwrap();
        std::os::unix::fs::symlink("x", folder.path().join("a/link")).unwrap();
        let tree = local(folder.path(), "/r").unwrap();
        let mut files: Vec<&str> = tree.files.iter().map(|file| file.remote.as_str()).collect();
        files.sort_unstable();
        assert_eq!(files, ["/r/a/b/y", "/r/a/link", "/r/a/x"]);
        let folders: Vec<&str> = tree.folders.iter().map(FtpPath::as_str).collect();
        assert_eq!(folders, ["/r", "/r/a", "/r/a/b"]);
        assert_eq!(tree.left_out.len(), 1);
    }
}
