//! Names: resolving, listing, making, moving and removing entries of the tree.

use wire::id::{BitfileId, EntryId};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::path::TreePath;
use crate::record::{AttributeChange, DeletedFile, Entry, Listing, NewDirectory, Page, Rename, Resolved, Walked};

impl Catalog {
    /// Follows a path from the root, in one round trip, whatever its length.
    ///
    /// # Errors
    ///
    /// Only those of the database: what is missing is said in [`Resolved::leaf`], because a door has to check
    /// permissions on what was found before it may say so.
    pub async fn resolve(&self, path: &TreePath) -> Result<Resolved> {
        let _ = path;
        todo!()
    }

    /// The entry of that number; `None` if there is none any more.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn entry(&self, id: EntryId) -> Result<Option<Entry>> {
        let _ = id;
        todo!()
    }

    /// One page of a directory, in the order of stored names: a range scan, however large the directory. An entry
    /// that is no directory, or none any more, has an empty listing.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list(&self, directory: EntryId, listing: &Listing) -> Result<Page<Entry>> {
        let _ = (directory, listing);
        todo!()
    }

    /// One page of everything below a directory, in key order; `after` and `prefix` are keys. A directory comes
    /// before what lies in it.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn walk(&self, directory: EntryId, listing: &Listing) -> Result<Page<Walked>> {
        let _ = (directory, listing);
        todo!()
    }

    /// The full paths of bitfiles, from the root with a leading `/`, in one statement. Those without a name (in the
    /// undelete window, gone) are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn paths_of(&self, bitfiles: &[BitfileId]) -> Result<Vec<(BitfileId, String)>> {
        let _ = bitfiles;
        todo!()
    }

    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// `NotFound` or `NotADirectory` for the parent, `Exists`, `InvalidName`, `NameTooLong`.
    pub async fn make_directory(&self, new: NewDirectory) -> Result<Entry> {
        let _ = new;
        todo!()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotADirectory`, `NotEmpty`; `InUse` for the root.
    pub async fn remove_directory(&self, directory: EntryId) -> Result<()> {
        let _ = directory;
        todo!()
    }

    /// Moves a file or a directory with everything below it: one row, whatever its size. A file of the new name is
    /// replaced atomically if `replace` says so. Returns the bitfile that was replaced.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Exists`, `IsADirectory` (a file over a directory), `NotADirectory` (a directory over a file, or
    /// a parent that is a file), `IntoItself`, `InvalidName`, `NameTooLong`; `InUse` for the root.
    pub async fn rename(&self, rename: Rename) -> Result<Option<BitfileId>> {
        let _ = rename;
        todo!()
    }

    /// Removes a file's name. Its bytes go to the undelete window of its class of service; work queued for it is
    /// dropped and open stage requests for it fail.
    ///
    /// With `expected`, only if it still holds that bitfile.
    ///
    /// # Errors
    ///
    /// `NotFound`, `IsADirectory`, `Changed`.
    pub async fn delete_file(&self, file: EntryId, expected: Option<BitfileId>) -> Result<DeletedFile> {
        let _ = (file, expected);
        todo!()
    }

    /// Files in the undelete window that had a name in this directory, newest first, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn deleted_files(&self, directory: EntryId, limit: u32) -> Result<Vec<DeletedFile>> {
        let _ = (directory, limit);
        todo!()
    }

    /// Gives a file in the undelete window its name back, or the one in `place`. Work that it lacks (migration) is
    /// queued again.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not in the window or the directory is gone, `Exists`, `QuotaExceeded`.
    pub async fn undelete(&self, bitfile: BitfileId, place: Option<(EntryId, String)>) -> Result<Entry> {
        let _ = (bitfile, place);
        todo!()
    }

    /// Changes owner, group, mode, ACL or time of an entry.
    ///
    /// # Errors
    ///
    /// `NotFound`; `QuotaExceeded` if the new owner or group may not have that much.
    pub async fn set_attributes(&self, entry: EntryId, change: AttributeChange) -> Result<Entry> {
        let _ = (entry, change);
        todo!()
    }
}
