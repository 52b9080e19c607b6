//! Making, moving and removing names, and changing their attributes.

use wire::id::{AccountName, BitfileId, CosName, EntryId, GroupName};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::events;
use crate::names::{entry_columns, no_entry, read_entry};
use crate::objects;
use crate::path::{check_file_name, check_new_name};
use crate::policies;
use crate::quota::{Charge, Ledger};
use crate::record::{
    AttributeChange, Cause, Content, DeletedFile, Entry, EventKind, Happening, NewDirectory, ROOT, Rename, Twins,
};
use crate::retire::{reclaim_after, retire};
use crate::sql::{args, statements};

statements! {
    /// Keeps a directory from being removed while a name is made in it (PostgreSQL).
    HOLD_DIRECTORY = "SELECT id FROM entry WHERE id = $1",
        "SELECT id FROM entry WHERE id = $1 FOR KEY SHARE";

    /// Keeps everybody else from an entry (PostgreSQL).
    LOCK_ENTRY = "SELECT id FROM entry WHERE id = $1",
        "SELECT id FROM entry WHERE id = $1 FOR UPDATE";

    /// One directory is moved at a time, so that two moves cannot make a circle (PostgreSQL).
    LOCK_TREE = "SELECT CAST(1 AS BIGINT) AS locked",
        "SELECT CAST(1 AS BIGINT) AS locked FROM (SELECT pg_advisory_xact_lock(7310001)) AS l";

    /// What stands where a name is to be made.
    FIND_PLACE =
        "SELECT p.id, p.bitfile, f.id, d.id
        FROM (SELECT CAST($1 AS BIGINT) AS parent, CAST($2 AS TEXT) AS name) AS q
        LEFT JOIN entry p ON p.id = q.parent
        LEFT JOIN entry f ON f.parent = q.parent AND f.name = q.name
        LEFT JOIN entry d ON d.parent = q.parent AND d.name = q.name || '/'";

    READ_ENTRY = concat!(
        "SELECT ", entry_columns!(), " FROM entry e LEFT JOIN bitfile b ON b.id = e.bitfile WHERE e.id = $1"
    );

    INSERT_DIRECTORY =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, acl, created_us, modified_us, changed_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8)";

    HAS_CHILDREN = "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM entry WHERE parent = $1 LIMIT 1) AS c";

    IS_BUCKET = "SELECT CAST(COUNT(*) AS BIGINT) FROM bucket WHERE entry = $1";

    DELETE_ENTRY = "DELETE FROM entry WHERE id = $1";

    /// Whether $2 is $1 or lies above it.
    LIES_BELOW =
        "WITH RECURSIVE up AS (
            SELECT e.id, e.parent FROM entry e WHERE e.id = $1
            UNION ALL
            SELECT e.id, e.parent FROM up u JOIN entry e ON e.id = u.parent
        )
        SELECT CAST(COUNT(*) AS BIGINT) FROM up WHERE id = $2";

    MOVE_ENTRY = "UPDATE entry SET parent = $2, name = $3, changed_us = $4 WHERE id = $1";

    TOUCH_DIRECTORY = "UPDATE entry SET modified_us = $2 WHERE id = $1 AND modified_us < $2";

    SET_ATTRIBUTES =
        "UPDATE entry SET owner = $2, grp = $3, mode = $4, acl = $5, modified_us = $6, changed_us = $7 WHERE id = $1";

    SET_PAYER = "UPDATE bitfile SET owner = $2, grp = $3 WHERE id = $1";
}

/// What stands where a name is to be made.
pub(crate) struct Place {
    pub(crate) file: Option<EntryId>,
    pub(crate) directory: Option<EntryId>,
}

/// Looks at a place, and holds its directory until the transaction ends.
pub(crate) async fn place(tx: &mut Tx, parent: EntryId, name: &str) -> Result<Place> {
    check_new_name(name)?;
    tx.lock(&HOLD_DIRECTORY, args![parent]).await?;
    let row = tx.row(&FIND_PLACE, args![parent, name]).await?;
    let row = row.ok_or_else(|| CatalogError::corrupt("a query without a table had no row"))?;
    let mut row = row.cursor();
    let (found, bitfile) = (row.maybe_int()?, row.maybe_int()?);
    if found.is_none() {
        return Err(CatalogError::not_found("directory", format!("#{parent}")));
    }
    if bitfile.is_some() {
        return Err(CatalogError::NotADirectory { name: format!("#{parent}") });
    }
    Ok(Place { file: row.maybe_number()?.map(EntryId), directory: row.maybe_number()?.map(EntryId) })
}

impl Catalog {
    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// `NotFound` or `NotADirectory` for the parent, `Exists`, `InvalidName`, `NameTooLong`.
    pub async fn make_directory(&self, new: NewDirectory) -> Result<Entry> {
        let id = EntryId(self.next_id().await?);
        self.write((id, new), |(id, new), tx| Box::pin(make_directory(*id, new, tx))).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotADirectory`, `NotEmpty`; `InUse` for the root.
    pub async fn remove_directory(&self, directory: EntryId) -> Result<()> {
        self.write(directory, |directory, tx| Box::pin(remove_directory(*directory, tx))).await
    }

    /// Moves a file or a directory with everything below it: one row, whatever its size. A file of the new name is
    /// replaced atomically if `replace` says so. Returns the bitfile that was replaced.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Exists`, `IsADirectory` (a file over a directory), `NotADirectory` (a directory over a file, or
    /// a parent that is a file), `IntoItself`, `InvalidName`, `NameTooLong`; `InUse` for the root; `Locked` for such a
    /// version, and for a directory of a bucket whose versions can be locked.
    pub async fn rename(&self, rename: Rename) -> Result<Option<BitfileId>> {
        self.write(rename, |rename, tx| Box::pin(move_entry(rename, tx))).await
    }

    /// Removes a file's name. Its bytes go to the undelete window of its class of service; work queued for it is
    /// dropped and open stage requests for it fail. In a bucket that keeps versions it is hidden behind a delete
    /// marker instead.
    ///
    /// With `expected`, only if it still holds that bitfile.
    ///
    /// # Errors
    ///
    /// `NotFound`, `IsADirectory`, `Changed`, `Locked`.
    pub async fn delete_file(&self, file: EntryId, expected: Option<BitfileId>) -> Result<DeletedFile> {
        self.write((file, expected), |(file, expected), tx| Box::pin(delete_file(*file, *expected, tx))).await
    }

    /// Changes owner, group, mode, ACL or time of an entry.
    ///
    /// # Errors
    ///
    /// `NotFound`; `QuotaExceeded` if the new owner or group may not have that much.
    pub async fn set_attributes(&self, entry: EntryId, change: AttributeChange) -> Result<Entry> {
        self.write((entry, change), |(entry, change), tx| Box::pin(set_attributes(*entry, change, tx))).await
    }
}

async fn make_directory(id: EntryId, new: &NewDirectory, tx: &mut Tx) -> Result<Entry> {
    let place = place(tx, new.parent, &new.name).await?;
    if place.directory.is_some() || (place.file.is_some() && new.twins == Twins::Refuse) {
        return Err(CatalogError::Exists { name: new.name.clone() });
    }
    let (stored, now, acl) = (format!("{}/", new.name), tx.now, new.acl.as_deref());
    tx.execute(&INSERT_DIRECTORY, args![id, new.parent, &stored, &new.owner, &new.group, new.mode & 0o7777, acl, now])
        .await?;
    tx.execute(&TOUCH_DIRECTORY, args![new.parent, now]).await?;
    Ok(Entry {
        id,
        parent: Some(new.parent),
        name: new.name.clone(),
        owner: new.owner.clone(),
        group: new.group.clone(),
        mode: new.mode & 0o7777,
        acl: new.acl.clone(),
        created: now,
        modified: now,
        changed: now,
        content: Content::Directory,
    })
}

/// Makes a directory where a look has found none.
pub(crate) async fn insert_directory(
    id: EntryId,
    parent: EntryId,
    name: &str,
    (owner, group, mode): (&AccountName, &GroupName, u32),
    tx: &mut Tx,
) -> Result<()> {
    let (stored, now) = (format!("{name}/"), tx.now);
    tx.execute(&INSERT_DIRECTORY, args![id, parent, &stored, owner, group, mode & 0o7777, None::<&str>, now]).await?;
    tx.execute(&TOUCH_DIRECTORY, args![parent, now]).await?;
    Ok(())
}

/// An entry as it is in this transaction.
pub(crate) async fn read_entry_of(id: EntryId, tx: &mut Tx) -> Result<Entry> {
    let row = tx.row(&READ_ENTRY, args![id]).await?.ok_or_else(|| no_entry(id))?;
    read_entry(&mut row.cursor())
}

async fn remove_directory(directory: EntryId, tx: &mut Tx) -> Result<()> {
    let entry = locked_entry(directory, tx).await?;
    not_the_root(directory)?;
    if count(&IS_BUCKET, args![directory], tx).await? > 0 {
        let reason = "it is a bucket: remove it by S3".to_owned();
        return Err(CatalogError::InUse { what: entry.name, reason });
    }
    if !entry.is_directory() {
        return Err(CatalogError::NotADirectory { name: entry.name });
    }
    if count(&HAS_CHILDREN, args![directory], tx).await? > 0 {
        return Err(CatalogError::NotEmpty { name: entry.name });
    }
    tx.execute(&DELETE_ENTRY, args![directory]).await?;
    touch_parent(&entry, tx).await
}

async fn move_entry(rename: &Rename, tx: &mut Tx) -> Result<Option<BitfileId>> {
    not_the_root(rename.entry)?;
    let entry = locked_entry(rename.entry, tx).await?;
    if entry.is_directory() {
        tx.lock(&LOCK_TREE, &[]).await?;
        if count(&LIES_BELOW, args![rename.to_parent, rename.entry], tx).await? > 0 {
            return Err(CatalogError::IntoItself { name: entry.name });
        }
    } else {
        check_file_name(&rename.to_name)?;
    }
    let place = place(tx, rename.to_parent, &rename.to_name).await?;
    let (same, twin) = if entry.is_directory() { (place.directory, place.file) } else { (place.file, place.directory) };
    if same == Some(rename.entry) {
        return Ok(None);
    }
    objects::need_movable(&entry, tx).await?;
    let name = || rename.to_name.clone();
    if twin.is_some() && rename.twins == Twins::Refuse {
        return Err(if entry.is_directory() {
            CatalogError::NotADirectory { name: name() }
        } else {
            CatalogError::IsADirectory { name: name() }
        });
    }
    let replaced = match same {
        None => None,
        Some(old) if !entry.is_directory() && rename.replace => match remove_replaced(old, tx).await {
            Ok(removed) => Some(removed.bitfile),
            // Another took it away between the look and the lock.
            Err(CatalogError::NotFound { .. }) => None,
            Err(other) => return Err(other),
        },
        Some(_) => return Err(CatalogError::Exists { name: name() }),
    };
    let stored = if entry.is_directory() { format!("{}/", rename.to_name) } else { name() };
    let now = tx.now;
    // A directory is one row, however many keys lie in it: of those nothing is told.
    let moved: Vec<_> = entry.file().map(|file| file.bitfile).into_iter().collect();
    tell(&moved, EventKind::Removed, tx).await?;
    tx.execute(&MOVE_ENTRY, args![rename.entry, rename.to_parent, &stored, now]).await?;
    touch_parent(&entry, tx).await?;
    tx.execute(&TOUCH_DIRECTORY, args![rename.to_parent, now]).await?;
    tell(&moved, EventKind::CreatedCopy, tx).await?;
    Ok(replaced)
}

/// Tells of what a door without buckets does to files, where a bucket wants to hear of it.
pub(super) async fn tell(bitfiles: &[BitfileId], kind: EventKind, tx: &mut Tx) -> Result<()> {
    for found in events::watched(bitfiles, kind, tx).await? {
        let Happening { key, version, .. } = &found.what;
        let what = match kind {
            EventKind::Removed => Happening::of_key(kind, key.clone(), *version),
            _ => found.what,
        };
        tx.tell(&found.bucket, &what, &Cause::default())?;
    }
    Ok(())
}

async fn delete_file(file: EntryId, expected: Option<BitfileId>, tx: &mut Tx) -> Result<DeletedFile> {
    let entry = locked_entry(file, tx).await?;
    if let Content::File(info) = &entry.content
        && expected.is_none_or(|expected| expected == info.bitfile)
    {
        if let Some(hidden) = objects::hide(&entry, tx).await? {
            return Ok(hidden);
        }
        objects::need_unlocked(info.bitfile, &entry.name, tx).await?;
    }
    let deleted = remove_file(file, expected, tx).await?;
    let now = tx.now;
    tx.execute(&TOUCH_DIRECTORY, args![deleted.parent, now]).await?;
    Ok(deleted)
}

/// Takes away the file that another is to replace.
async fn remove_replaced(file: EntryId, tx: &mut Tx) -> Result<DeletedFile> {
    let entry = locked_entry(file, tx).await?;
    if let Content::File(info) = &entry.content {
        objects::need_unlocked(info.bitfile, &entry.name, tx).await?;
    }
    remove_file(file, None, tx).await
}

/// Takes a file's entry away and puts its bitfile into the undelete window. Its callers have asked whether it may go.
pub(crate) async fn remove_file(file: EntryId, expected: Option<BitfileId>, tx: &mut Tx) -> Result<DeletedFile> {
    let entry = locked_entry(file, tx).await?;
    let Content::File(info) = entry.content else {
        return Err(CatalogError::IsADirectory { name: entry.name });
    };
    if expected.is_some_and(|expected| expected != info.bitfile) {
        return Err(CatalogError::Changed { name: entry.name });
    }
    let policies = policies::read(tx).await?;
    retire(tx, &[(info.bitfile, CosName::clone(&info.cos))], &policies).await?;
    tx.execute(&DELETE_ENTRY, args![file]).await?;
    let mut ledger = Ledger::read(tx, [(&entry.owner, &entry.group)]).await?;
    ledger.charge(&[Charge::of(&entry.owner, &entry.group, info.size_bytes).refund()])?;
    ledger.write(tx).await?;
    Ok(DeletedFile {
        bitfile: info.bitfile,
        parent: entry.parent.unwrap_or(ROOT),
        name: entry.name,
        owner: entry.owner,
        group: entry.group,
        size_bytes: info.size_bytes,
        deleted: tx.now,
        reclaim_after: reclaim_after(tx.now, &info.cos, &policies),
    })
}

async fn set_attributes(id: EntryId, change: &AttributeChange, tx: &mut Tx) -> Result<Entry> {
    let mut entry = locked_entry(id, tx).await?;
    let (old_owner, old_group) = (entry.owner.clone(), entry.group.clone());
    let change = change.clone();
    entry.owner = change.owner.unwrap_or(entry.owner);
    entry.group = change.group.unwrap_or(entry.group);
    entry.mode = change.mode.map_or(entry.mode, |mode| mode & 0o7777);
    entry.acl = change.acl.unwrap_or(entry.acl);
    entry.modified = change.modified.unwrap_or(entry.modified);
    entry.changed = tx.now;
    let acl = entry.acl.as_deref();
    tx.execute(&SET_ATTRIBUTES, args![id, &entry.owner, &entry.group, entry.mode, acl, entry.modified, entry.changed])
        .await?;
    if let Content::File(info) = &entry.content
        && (entry.owner != old_owner || entry.group != old_group)
    {
        tx.execute(&SET_PAYER, args![info.bitfile, &entry.owner, &entry.group]).await?;
        let mut ledger = Ledger::read(tx, [(&old_owner, &old_group), (&entry.owner, &entry.group)]).await?;
        let before = Charge::of(&old_owner, &old_group, info.size_bytes).refund();
        ledger.charge(&[before, Charge::of(&entry.owner, &entry.group, info.size_bytes)])?;
        ledger.write(tx).await?;
    }
    Ok(entry)
}

/// An entry that nobody else changes until the transaction ends.
async fn locked_entry(id: EntryId, tx: &mut Tx) -> Result<Entry> {
    tx.lock(&LOCK_ENTRY, args![id]).await?;
    let row = tx.row(&READ_ENTRY, args![id]).await?.ok_or_else(|| no_entry(id))?;
    read_entry(&mut row.cursor())
}

async fn touch_parent(entry: &Entry, tx: &mut Tx) -> Result<()> {
    let (parent, now) = (entry.parent.unwrap_or(ROOT), tx.now);
    tx.execute(&TOUCH_DIRECTORY, args![parent, now]).await?;
    Ok(())
}

async fn count(statement: &crate::sql::Statement, args: &[crate::sql::Arg<'_>], tx: &mut Tx) -> Result<i64> {
    tx.row(statement, args).await?.map_or(Ok(0), |row| row.cursor().int())
}

fn not_the_root(id: EntryId) -> Result<()> {
    if id == ROOT {
        return Err(CatalogError::InUse { what: "/".to_owned(), reason: "it is the root directory".to_owned() });
    }
    Ok(())
}
