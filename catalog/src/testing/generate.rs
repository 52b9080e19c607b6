//! Very many files, made by the database itself: one statement a table for tens of thousands of files.

use wire::id::{AccountName, CosName, EntryId, GroupName, StorageClassName, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{NewDirectory, ROOT, Twins};
use crate::sql::{args, column, statements};

/// How many files one transaction makes.
const CHUNK: u32 = 50_000;
/// The size of every file made.
const FILE_BYTES: i64 = 4096;

statements! {
    /// $1: first identifier, $2: number, $3: now, $4: parent, $5: owner, $6: group.
    MAKE_ENTRIES =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, created_us, modified_us, changed_us, bitfile)
        WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
        SELECT $1 + 2 * i, $4, 'file-' || CAST(1000000000 + i AS TEXT) || '.dat', $5, $6, 420, $3, $3, $3,
            $1 + 2 * i + 1 FROM n";

    MAKE_BITFILES =
        "INSERT INTO bitfile (id, entry, size, cos, owner, grp, adler32, crc32c, generation, created_us, on_disk, tapes,
            tapes_wanted)
        WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
        SELECT $1 + 2 * i + 1, $1 + 2 * i, 4096, $4, $5, $6, 1, 0, 1, $3, 1, 0, 0 FROM n";

    MAKE_COPIES =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us)
        WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
        SELECT $1 + 2 * i + 1, 0, $4, 1, 0, $5, $3, $3 FROM n";

    MAKE_SEGMENTS =
        "INSERT INTO segment (bitfile, copy, start, length, volume, major, minor, skip, adler32, crc32c)
        WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
        SELECT $1 + 2 * i + 1, 0, 0, 4096, $3, $1 + 2 * i + 1, 0, NULL, 1, 0 FROM n";

    COUNT_GENERATED =
        "INSERT INTO usage (kind, name, bytes, files) VALUES ('account', $1, $3, $4), ('group', $2, $3, $4)
        ON CONFLICT (kind, name) DO UPDATE SET bytes = usage.bytes + excluded.bytes, files = usage.files + excluded.files";

    COUNT_ON_VOLUME =
        "UPDATE volume SET live_bytes = live_bytes + $2, live_segments = live_segments + $3 WHERE label = $1";

    /// What autovacuum does in time (PostgreSQL). SQLite's plans are fixed by the statements themselves.
    ANALYZE = "ANALYZE";
}

/// Whose files are made, and what they are.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Who owns them.
    pub owner: AccountName,
    /// Their group.
    pub group: GroupName,
    /// Their class of service; it need not be known.
    pub cos: CosName,
    /// The storage class of their disk copies.
    pub storage_class: StorageClassName,
    /// The volume they are on; it need not be known.
    pub volume: VolumeLabel,
    /// How many files go into one directory.
    pub files_per_directory: u32,
}

struct Chunk {
    wish: Generated,
    parent: EntryId,
    first_id: u64,
    count: u32,
}

/// Makes `files` files of 4 KiB in new directories `/generated-N/` and returns the directories, in order.
///
/// Millions take minutes: tens of thousands are one statement for each table. No migration is queued for them.
///
/// # Errors
///
/// Those of the database; `Exists` if a directory of that name is there.
pub async fn generate(catalog: &Catalog, files: u64, wish: &Generated) -> Result<Vec<EntryId>> {
    let mut directories = Vec::new();
    let mut left = files;
    while left > 0 {
        let directory = NewDirectory {
            parent: ROOT,
            name: format!("generated-{}", 1_000_000 + directories.len()),
            owner: wish.owner.clone(),
            group: wish.group.clone(),
            mode: 0o755,
            acl: None,
            twins: Twins::Refuse,
        };
        let parent = catalog.make_directory(directory).await?.id;
        directories.push(parent);
        let count = wish.files_per_directory.clamp(1, CHUNK);
        let count = u32::try_from(left.min(u64::from(count))).map_err(CatalogError::inconsistent)?;
        let first_id = catalog.next_ids(2 * count).await?.start;
        let chunk = Chunk { wish: wish.clone(), parent, first_id, count };
        catalog.write(chunk, |chunk, tx| Box::pin(make(chunk, tx))).await?;
        left -= u64::from(count);
    }
    catalog.write((), |(), tx| Box::pin(async move { tx.lock(&ANALYZE, &[]).await.map(drop) })).await?;
    Ok(directories)
}

async fn make(chunk: &Chunk, tx: &mut Tx) -> Result<()> {
    let (wish, now, first, count) = (&chunk.wish, tx.now, column(chunk.first_id), chunk.count);
    let (owner, group) = (&wish.owner, &wish.group);
    tx.execute(&MAKE_ENTRIES, args![first, count, now, chunk.parent, owner, group]).await?;
    tx.execute(&MAKE_BITFILES, args![first, count, now, &wish.cos, owner, group]).await?;
    tx.execute(&MAKE_COPIES, args![first, count, now, &wish.storage_class, &wish.volume]).await?;
    tx.execute(&MAKE_SEGMENTS, args![first, count, &wish.volume]).await?;
    let bytes = i64::from(count) * FILE_BYTES;
    tx.execute(&COUNT_GENERATED, args![owner, group, bytes, count]).await?;
    tx.execute(&COUNT_ON_VOLUME, args![&wish.volume, bytes, count]).await?;
    Ok(())
}
