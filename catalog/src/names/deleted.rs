//! The undelete window: what is in it, and bringing a file back.

use wire::id::{BitfileId, CosName, EntryId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::{change::tell, place};
use crate::path::check_file_name;
use crate::policies;
use crate::quota::{Charge, Ledger};
use crate::record::{DeletedFile, Entry, EventKind, MAX_PAGE};
use crate::sql::{Cursor, args, statements};

macro_rules! deleted_columns {
    () => {
        "d.bitfile, d.parent, d.name, b.owner, b.grp, b.size, d.deleted_us, d.reclaim_us"
    };
}

statements! {
    DELETED_IN = concat!(
        "SELECT ", deleted_columns!(), " FROM deleted d JOIN bitfile b ON b.id = d.bitfile
        WHERE d.parent = $1 ORDER BY d.deleted_us DESC LIMIT $2"
    );

    /// Locked, so that it is not reclaimed and brought back at the same time (PostgreSQL).
    DELETED_FILE = concat!(
        "SELECT ", deleted_columns!(), ", b.cos, b.on_disk, b.tapes, b.tapes_wanted
        FROM deleted d JOIN bitfile b ON b.id = d.bitfile WHERE d.bitfile = $1"
    ),
    concat!(
        "SELECT ", deleted_columns!(), ", b.cos, b.on_disk, b.tapes, b.tapes_wanted
        FROM deleted d JOIN bitfile b ON b.id = d.bitfile WHERE d.bitfile = $1 FOR UPDATE OF d, b"
    );

    RESTORE_ENTRY =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, acl, created_us, modified_us, changed_us, bitfile)
        SELECT $2, $3, $4, b.owner, b.grp, d.mode, d.acl, d.created_us, d.modified_us, $5, b.id
        FROM deleted d JOIN bitfile b ON b.id = d.bitfile WHERE d.bitfile = $1";

    GAIN_NAME = "UPDATE bitfile SET entry = $2 WHERE id = $1";

    FORGET_DELETION = "DELETE FROM deleted WHERE bitfile = $1";

    QUEUE_MIGRATION =
        "INSERT INTO work (id, kind, pool, bitfile, bytes, created_us, due_us, epoch, failures)
        SELECT $2, 'migrate', b.cos, b.id, b.size, $3, $4, 0, 0 FROM bitfile b
        WHERE b.id = $1 AND b.on_disk = 1 AND b.tapes < b.tapes_wanted";
}

impl Catalog {
    /// Files in the undelete window that had a name in this directory, newest first, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn deleted_files(&self, directory: EntryId, limit: u32) -> Result<Vec<DeletedFile>> {
        let rows = self.rows(&DELETED_IN, args![directory, limit.min(MAX_PAGE)]).await?;
        rows.iter().map(|row| read_deleted(&mut row.cursor())).collect()
    }

    /// Gives a file in the undelete window its name back, or the one in `place`. Work that it lacks (migration) is
    /// queued again.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not in the window or the directory is gone, `Exists`, `QuotaExceeded`.
    pub async fn undelete(&self, bitfile: BitfileId, place: Option<(EntryId, String)>) -> Result<Entry> {
        let first_id = self.next_ids(2).await?.start;
        let wish = Undelete { bitfile, place, first_id };
        let entry = self.write(wish, |wish, tx| Box::pin(undelete(wish, tx))).await?;
        self.entry(entry).await?.ok_or_else(|| CatalogError::not_found("file or directory", format!("#{entry}")))
    }
}

struct Undelete {
    bitfile: BitfileId,
    place: Option<(EntryId, String)>,
    first_id: u64,
}

async fn undelete(wish: &Undelete, tx: &mut Tx) -> Result<EntryId> {
    let bitfile = wish.bitfile;
    let row = tx.row(&DELETED_FILE, args![bitfile]).await?;
    let row = row.ok_or_else(|| CatalogError::not_found("deleted file", format!("#{bitfile}")))?;
    let mut row = row.cursor();
    let deleted = read_deleted(&mut row)?;
    let cos: CosName = row.name()?;
    let (parent, name) = wish.place.clone().unwrap_or((deleted.parent, deleted.name));
    check_file_name(&name)?;
    let found = place(tx, parent, &name).await?;
    if found.file.is_some() || found.directory.is_some() {
        return Err(CatalogError::Exists { name });
    }
    let mut ledger = Ledger::read(tx, [(&deleted.owner, &deleted.group)]).await?;
    ledger.charge(&[Charge::of(&deleted.owner, &deleted.group, deleted.size_bytes)])?;
    let (entry, now) = (EntryId(wish.first_id), tx.now);
    tx.execute(&RESTORE_ENTRY, args![bitfile, entry, parent, &name, now]).await?;
    tx.execute(&GAIN_NAME, args![bitfile, entry]).await?;
    tx.execute(&FORGET_DELETION, args![bitfile]).await?;
    let age = policies::read(tx).await?.class(&cos).map(|class| class.migration_age).unwrap_or_default();
    let work = crate::sql::column(wish.first_id + 1);
    tx.execute(&QUEUE_MIGRATION, args![bitfile, work, now, now.after(age)]).await?;
    ledger.write(tx).await?;
    tell(&[bitfile], EventKind::CreatedPut, tx).await?;
    Ok(entry)
}

fn read_deleted(row: &mut Cursor<'_>) -> Result<DeletedFile> {
    Ok(DeletedFile {
        bitfile: row.bitfile()?,
        parent: row.entry()?,
        name: row.text()?,
        owner: row.name()?,
        group: row.name()?,
        size_bytes: row.number()?,
        deleted: row.time()?,
        reclaim_after: row.time()?,
    })
}
