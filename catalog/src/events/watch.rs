//! Which bitfiles lie in buckets that want to hear of something: for what other doors do, and for what tapes and disks
//! do.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::id::{BitfileId, EntryId};

use crate::batch::Tx;
use crate::error::Result;
use crate::names::read_sums;
use crate::objects::bucket_of_entry;
use crate::record::{Bucket, EventKind, Happening, Version, tag_of_sums};
use crate::sql::{args, bitfile_rows, statements};

statements! {
    ANY_WATCHED = "SELECT MAX(k.entry) FROM bucket k WHERE k.notify IS NOT NULL";

    /// Names joined upwards to the nearest bucket; what has no name is where its bucket keeps it.
    WATCHED (id bigint) =
        ", up AS (
            SELECT b.id AS bitfile, e.parent AS directory, e.name AS key, e.changed_us AS number,
                CAST(1 AS BIGINT) AS plain
            FROM r JOIN bitfile b ON b.id = r.id JOIN entry e ON e.id = b.entry
            UNION ALL
            SELECT v.bitfile, v.bucket, v.key, -v.rank, v.plain FROM r JOIN version v ON v.bitfile = r.id
            UNION ALL
            SELECT u.bitfile, e.parent, e.name || u.key, u.number, u.plain FROM up u JOIN entry e ON e.id = u.directory
            WHERE NOT EXISTS (SELECT 1 FROM bucket k WHERE k.entry = u.directory)
        )
        SELECT u.bitfile, u.directory, u.key, u.number, u.plain, b.entry, o.number AS known_number,
            o.plain AS known_plain, b.size, b.cos, b.adler32, b.crc32c, b.md5, b.sha256, o.etag, o.storage_class
        FROM up u CROSS JOIN bucket k JOIN bitfile b ON b.id = u.bitfile LEFT JOIN object o ON o.bitfile = u.bitfile
        WHERE k.entry = u.directory AND k.notify IS NOT NULL ORDER BY u.bitfile";
}

/// A bitfile in a bucket that wants to hear of something.
pub(crate) struct Watched {
    pub(crate) bitfile: BitfileId,
    pub(crate) bucket: Arc<Bucket>,
    /// What happened to it, as was asked.
    pub(crate) what: Happening,
}

/// Whether any bucket wants to hear of anything.
async fn any_watched(tx: &mut Tx) -> Result<bool> {
    Ok(tx.row(&ANY_WATCHED, &[]).await?.map_or(Ok(None), |row| row.cursor().maybe_int())?.is_some())
}

/// Those of some bitfiles that are the version of a key in a bucket that wants to hear of something. They must have
/// their names still, or already.
pub(crate) async fn watched(bitfiles: &[BitfileId], kind: EventKind, tx: &mut Tx) -> Result<Vec<Watched>> {
    if bitfiles.is_empty() || !any_watched(tx).await? {
        return Ok(Vec::new());
    }
    let mut buckets: BTreeMap<EntryId, Arc<Bucket>> = BTreeMap::new();
    let mut found = Vec::new();
    for row in tx.rows(&WATCHED, args![&bitfile_rows(bitfiles)?]).await? {
        let mut row = row.cursor();
        let (bitfile, directory, key) = (row.bitfile()?, row.entry()?, row.text()?);
        let (number, plain, is_named) = (row.number()?, row.flag()?, row.maybe_int()?.is_some());
        let (known_number, known_plain) = (row.maybe_number()?, row.maybe_int()?);
        let version = match known_number.filter(|_| is_named) {
            Some(number) => Version { number, plain: known_plain == Some(1) },
            None => Version { number, plain },
        };
        let (size_bytes, cos, sums) = (row.number()?, row.name()?, read_sums(&mut row)?);
        let etag = row.maybe_text()?.unwrap_or_else(|| tag_of_sums(&sums, size_bytes));
        let what = Happening {
            size_bytes: Some(size_bytes),
            etag: Some(etag),
            storage_class: row.maybe_text()?,
            cos: Some(cos),
            ..Happening::of_key(kind, key, Some(version))
        };
        let bucket = match buckets.get(&directory) {
            Some(bucket) => Arc::clone(bucket),
            None => {
                let bucket = Arc::new(bucket_of_entry(directory, tx).await?);
                buckets.insert(directory, Arc::clone(&bucket));
                bucket
            }
        };
        found.push(Watched { bitfile, bucket, what });
    }
    Ok(found)
}
