//! Publishing files: all files of a transaction at once, in a fixed number of statements.
//!
//! First one statement looks at every place, then [`decide`] says in memory what becomes of each file, then bulk
//! statements write the rows of those that are published. Refused files leave no trace, so none of them needs a
//! savepoint.

mod decide;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use wire::extent::ByteRange;
use wire::id::BitfileId;

use decide::{BaseFacts, Existing, Facts, Parent, Rows};
pub(crate) use decide::{SegmentRow, check_segment};

use crate::batch::{Publish, Tx};
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::events;
use crate::objects;
use crate::policies;
use crate::quota::Ledger;
use crate::record::{Base, Cause, DISK_COPY, EventKind, NewFile, Published};
use crate::retire::retire;
use crate::segments::{insert_segments, recount_volumes};
use crate::sql::{Cursor, IdRow, args, json, statements};

statements! {
    HOLD_PARENTS (id bigint) =
        "SELECT e.id FROM r JOIN entry e ON e.id = r.id ORDER BY e.id",
        "SELECT e.id FROM r JOIN entry e ON e.id = r.id ORDER BY e.id FOR KEY SHARE OF e";

    LOCK_NAMES (ordinal bigint, parent bigint, name text, base bigint, partial bigint) =
        "SELECT e.id FROM r JOIN entry e ON e.parent = r.parent AND e.name = r.name ORDER BY e.id",
        "SELECT e.id FROM r JOIN entry e ON e.parent = r.parent AND e.name = r.name ORDER BY e.id FOR UPDATE OF e";

    LOOK (ordinal bigint, parent bigint, name text, base bigint, partial bigint) =
        "SELECT r.ordinal, (SELECT MAX(k.entry) FROM bucket k WHERE k.notify IS NOT NULL) AS watched,
            p.id, p.bitfile, t.id, a.on_disk, a.size, x.id,
            e.id, e.bitfile, e.owner, e.grp, b.size, b.cos, b.generation
        FROM r
        LEFT JOIN entry p ON p.id = r.parent
        LEFT JOIN entry t ON t.parent = r.parent AND t.name = r.name || '/'
        LEFT JOIN bitfile a ON a.id = r.base
        LEFT JOIN partial x ON x.id = r.partial
        LEFT JOIN entry e ON e.parent = r.parent AND e.name = r.name
        LEFT JOIN bitfile b ON b.id = e.bitfile
        ORDER BY r.ordinal";

    SAVED_RANGES (id bigint) =
        "SELECT s.bitfile, s.start, s.length FROM r JOIN segment s ON s.bitfile = r.id AND s.copy = 0
        ORDER BY s.bitfile, s.start";

    INSERT_BITFILES (id bigint, entry bigint, size bigint, cos text, owner text, grp text, adler32 bigint,
        crc32c bigint, md5 text, sha256 text, generation bigint, tapes_wanted bigint) =
        "INSERT INTO bitfile (id, entry, size, cos, owner, grp, adler32, crc32c, md5, sha256, generation, created_us,
            on_disk, tapes, tapes_wanted)
        SELECT r.id, r.entry, r.size, r.cos, r.owner, r.grp, r.adler32, r.crc32c, r.md5, r.sha256, r.generation,
            CAST($2 AS BIGINT), 1, 0, r.tapes_wanted FROM r";

    INSERT_FILES (id bigint, parent bigint, name text, owner text, grp text, mode bigint, acl text,
        modified_us bigint, bitfile bigint, attributes bigint) =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, acl, created_us, modified_us, changed_us, bitfile)
        SELECT r.id, r.parent, r.name, r.owner, r.grp, r.mode, r.acl, CAST($2 AS BIGINT), r.modified_us,
            CAST($2 AS BIGINT), r.bitfile FROM r";

    REWRITE_FILES (id bigint, parent bigint, name text, owner text, grp text, mode bigint, acl text,
        modified_us bigint, bitfile bigint, attributes bigint) =
        "UPDATE entry SET bitfile = r.bitfile, modified_us = r.modified_us, changed_us = $2, owner = r.owner, grp = r.grp,
            mode = CASE WHEN r.attributes = 1 THEN r.mode ELSE entry.mode END,
            acl = CASE WHEN r.attributes = 1 THEN r.acl ELSE entry.acl END
        FROM r WHERE entry.id = r.id";

    INSERT_DISK_COPIES (bitfile bigint, storage_class text, volume text) =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us)
        SELECT r.bitfile, 0, r.storage_class, 1, 0, r.volume, CAST($2 AS BIGINT), CAST($2 AS BIGINT) FROM r";

    QUEUE_MIGRATIONS (id bigint, pool text, bitfile bigint, bytes bigint, due_us bigint) =
        "INSERT INTO work (id, kind, pool, bitfile, bytes, created_us, due_us, epoch, failures)
        SELECT r.id, 'migrate', r.pool, r.bitfile, r.bytes, CAST($2 AS BIGINT), r.due_us, 0, 0 FROM r";

    TOUCH_PARENTS (id bigint) =
        "UPDATE entry SET modified_us = $2 WHERE modified_us < $2 AND id IN (SELECT r.id FROM r)";

    /// An append shares the files of its base: both have segments in them.
    SHARE_SEGMENTS (bitfile bigint, base bigint) =
        "INSERT INTO segment (bitfile, copy, start, length, volume, major, minor, skip, adler32, crc32c)
        SELECT r.bitfile, s.copy, s.start, s.length, s.volume, s.major, s.minor, s.skip, s.adler32, s.crc32c
        FROM r JOIN segment s ON s.bitfile = r.base AND s.copy = 0";

    HOME_OF_COPIES (bitfile bigint, base bigint) =
        "UPDATE copy SET volume = (SELECT s.volume FROM segment s WHERE s.bitfile = copy.bitfile AND s.copy = 0
            ORDER BY s.start LIMIT 1)
        WHERE copy.number = 0 AND copy.bitfile IN (SELECT r.bitfile FROM r)";

    USE_UP_PARTIALS (bitfile bigint, base bigint) =
        "DELETE FROM partial WHERE id IN (SELECT r.base FROM r)";

    COUNT_SHARED (bitfile bigint, base bigint) =
        "SELECT s.volume, CAST(SUM(s.length) AS BIGINT), CAST(COUNT(*) AS BIGINT)
        FROM r JOIN segment s ON s.bitfile = r.base AND s.copy = 0 GROUP BY s.volume";
}

#[derive(Serialize)]
struct Question<'a> {
    ordinal: usize,
    parent: i64,
    name: &'a str,
    base: Option<i64>,
    partial: Option<i64>,
}

impl Catalog {
    /// Publishes a file whose bytes are synced on its movers: name, bitfile, disk copy, segments, quota, migration
    /// work and the old bitfile's move to the undelete window, all or nothing.
    ///
    /// When it returns, the file is on stable storage. Many calls at once are much cheaper than one after the other.
    ///
    /// # Errors
    ///
    /// `NotFound` (parent, class of service, base), `NotADirectory`, `IsADirectory`, `Exists`, `Changed`,
    /// `QuotaExceeded`, `InvalidName`, `NameTooLong`; `Locked` if such a version would be replaced; `Inconsistent` if
    /// the segments do not cover the file.
    pub async fn publish(&self, file: NewFile) -> Result<Published> {
        let first_id = self.next_ids(3).await?.start;
        self.batch().publish(Publish { file, first_id }).await
    }
}

/// What came of publishing.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What became of each file, in their order.
    pub(crate) results: Vec<Result<Published>>,
    /// A bucket somewhere wants to hear of something.
    pub(crate) watched: bool,
}

/// Publishes files of doors that know no buckets, and tells of those that lie in one.
pub(crate) async fn publish_and_tell(files: &[Arc<Publish>], tx: &mut Tx) -> Result<Vec<Result<Published>>> {
    let Outcome { results, watched } = publish(files, tx).await?;
    if watched {
        let published = files.iter().zip(&results).filter_map(|(file, result)| Some((file, result.as_ref().ok()?)));
        let writers: HashMap<_, _> =
            published.map(|(file, published)| (published.bitfile, file.file.owner.clone())).collect();
        let bitfiles: Vec<_> = writers.keys().copied().collect();
        for found in events::watched(&bitfiles, EventKind::CreatedPut, tx).await? {
            let cause = writers.get(&found.bitfile).cloned().map(Cause::account).unwrap_or_default();
            tx.tell(&found.bucket, &found.what, &cause)?;
        }
    }
    Ok(results)
}

/// Publishes files in rounds of different names and bases; one that comes twice waits for the next round.
///
/// An error is the transaction's.
pub(crate) async fn publish(files: &[Arc<Publish>], tx: &mut Tx) -> Result<Outcome> {
    let mut watched = false;
    let mut results: BTreeMap<usize, Result<Published>> = BTreeMap::new();
    let mut waiting: Vec<usize> = (0..files.len()).collect();
    while !waiting.is_empty() {
        let (mut names, mut partials) = (HashSet::new(), HashSet::new());
        let (round, later) = waiting.into_iter().partition(|&at| {
            let file = &files[at].file;
            let fresh = !matches!(file.base, Base::Partial(partial) if !partials.insert(partial));
            fresh && names.insert((file.parent, file.name.as_str()))
        });
        watched |= publish_round(files, round, tx, &mut results).await?;
        waiting = later;
    }
    Ok(Outcome { results: results.into_values().collect(), watched })
}

async fn publish_round(
    files: &[Arc<Publish>],
    round: Vec<usize>,
    tx: &mut Tx,
    results: &mut BTreeMap<usize, Result<Published>>,
) -> Result<bool> {
    let (facts, watched) = look(files, &round, tx).await?;
    let policies = policies::read(tx).await?;
    let payers = facts.values().filter_map(|facts| facts.existing.as_ref()).map(|old| (&old.owner, &old.group));
    let payers = payers.chain(round.iter().map(|&at| (&files[at].file.owner, &files[at].file.group)));
    let mut ledger = Ledger::read(tx, payers).await?;
    let mut rows = Rows::default();
    for at in round {
        let facts = facts.get(&at).ok_or_else(|| CatalogError::corrupt("a query lost a row"))?;
        results.insert(at, decide::decide(&files[at], facts, &policies, &mut ledger, tx.now, &mut rows));
    }
    write(rows, &policies, tx).await?;
    ledger.write(tx).await?;
    Ok(watched)
}

/// What is there where files are to be published, and whether any bucket wants to hear of it.
async fn look(files: &[Arc<Publish>], round: &[usize], tx: &mut Tx) -> Result<(BTreeMap<usize, Facts>, bool)> {
    let questions: Vec<_> = round
        .iter()
        .map(|&ordinal| {
            let file = &files[ordinal].file;
            let (base, partial) = match file.base {
                Base::Empty => (None, None),
                Base::Append(base) => (Some(base.column()), None),
                Base::Partial(partial) => (None, Some(partial.column())),
            };
            // A name the database cannot hold is looked up as none, and refused when it is decided.
            let name = if file.name.contains('\0') { "" } else { &file.name };
            Question { ordinal, parent: file.parent.column(), name, base, partial }
        })
        .collect();
    let parents: Vec<_> = questions.iter().map(|question| IdRow { id: question.parent }).collect();
    tx.lock(&HOLD_PARENTS, args![&json(&parents)?]).await?;
    let rows = json(&questions)?;
    let (mut facts, watched) = look_at_locked(&rows, tx).await?;
    let partials = round.iter().filter_map(|&at| match files[at].file.base {
        Base::Partial(partial) => Some((at, partial)),
        Base::Empty | Base::Append(_) => None,
    });
    add_saved_ranges(&partials.collect::<Vec<_>>(), tx, &mut facts).await?;
    add_locks(tx, &mut facts).await?;
    Ok((facts, watched))
}

/// What of that which is to be replaced is locked. Few files are replaced, so this is another statement.
async fn add_locks(tx: &mut Tx, facts: &mut BTreeMap<usize, Facts>) -> Result<()> {
    let existing: Vec<_> = facts.values().filter_map(|facts| Some(facts.existing.as_ref()?.bitfile)).collect();
    let locked: BTreeMap<_, _> = objects::locked(&existing, tx).await?.into_iter().collect();
    for existing in facts.values_mut().filter_map(|facts| facts.existing.as_mut()) {
        existing.locked = locked.get(&existing.bitfile).copied();
    }
    Ok(())
}

/// Looks at names that nobody else changes any more. One that another transaction made between the lock and the look
/// is not locked yet, so both are done again.
async fn look_at_locked(rows: &str, tx: &mut Tx) -> Result<(BTreeMap<usize, Facts>, bool)> {
    loop {
        let locked = tx.lock(&LOCK_NAMES, args![rows]).await?;
        let locked = locked.map(|rows| rows.iter().map(|row| row.cursor().entry()).collect::<Result<HashSet<_>>>());
        let locked = locked.transpose()?;
        let (mut facts, mut watched) = (BTreeMap::new(), false);
        for row in tx.rows(&LOOK, args![rows]).await? {
            let mut row = row.cursor();
            let ordinal = usize::try_from(row.number()?).unwrap_or(usize::MAX);
            watched |= row.maybe_int()?.is_some();
            facts.insert(ordinal, read_facts(&mut row)?);
        }
        let mut existing = facts.values().filter_map(|facts| facts.existing.as_ref());
        if locked.is_none_or(|locked| existing.all(|existing| locked.contains(&existing.entry))) {
            return Ok((facts, watched));
        }
    }
}

fn read_facts(row: &mut Cursor<'_>) -> Result<Facts> {
    let parent = match (row.maybe_int()?, row.maybe_int()?) {
        (None, _) => Parent::Missing,
        (Some(_), None) => Parent::Directory,
        (Some(_), Some(_)) => Parent::File,
    };
    let directory_twin = row.maybe_int()?.is_some();
    let base = match (row.maybe_int()?, row.maybe_number()?) {
        (Some(on_disk), Some(size)) => {
            let whole = ByteRange::new(0, size).map_err(CatalogError::corrupt)?;
            Some(BaseFacts { on_disk: on_disk == 1, ranges: vec![whole] })
        }
        _ => None,
    };
    // A partial upload: what it covers comes by another statement, since few files are resumed.
    let base = base.or(row.maybe_int()?.map(|_| BaseFacts { on_disk: true, ranges: Vec::new() }));
    let existing = match row.maybe_number()? {
        None => None,
        Some(entry) => Some(Existing {
            entry: wire::id::EntryId(entry),
            bitfile: row.bitfile()?,
            owner: row.name()?,
            group: row.name()?,
            size_bytes: row.number()?,
            cos: row.name()?,
            generation: row.number()?,
            locked: None,
        }),
    };
    Ok(Facts { parent, existing, directory_twin, base })
}

async fn add_saved_ranges(
    partials: &[(usize, BitfileId)],
    tx: &mut Tx,
    facts: &mut BTreeMap<usize, Facts>,
) -> Result<()> {
    if partials.is_empty() {
        return Ok(());
    }
    let rows = crate::sql::bitfile_rows(partials.iter().map(|(_, partial)| partial))?;
    let mut ranges: BTreeMap<BitfileId, Vec<ByteRange>> = BTreeMap::new();
    for row in tx.rows(&SAVED_RANGES, args![&rows]).await? {
        let mut row = row.cursor();
        let partial = row.bitfile()?;
        let range = ByteRange::new(row.number()?, row.number()?).map_err(CatalogError::corrupt)?;
        ranges.entry(partial).or_default().push(range);
    }
    for (at, partial) in partials {
        if let Some(base) = facts.get_mut(at).and_then(|facts| facts.base.as_mut()) {
            base.ranges = ranges.get(partial).cloned().unwrap_or_default();
        }
    }
    Ok(())
}

async fn write(rows: Rows, policies: &crate::record::Policies, tx: &mut Tx) -> Result<()> {
    if rows.bitfiles.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    retire(tx, &rows.retired, policies).await?;
    tx.execute(&INSERT_BITFILES, args![&json(&rows.bitfiles)?, now]).await?;
    if !rows.new_entries.is_empty() {
        tx.execute(&INSERT_FILES, args![&json(&rows.new_entries)?, now]).await?;
        let parents: Vec<_> = rows.parents.iter().map(|&id| IdRow { id }).collect();
        tx.execute(&TOUCH_PARENTS, args![&json(&parents)?, now]).await?;
    }
    if !rows.changed_entries.is_empty() {
        tx.execute(&REWRITE_FILES, args![&json(&rows.changed_entries)?, now]).await?;
    }
    tx.execute(&INSERT_DISK_COPIES, args![&json(&rows.copies)?, now]).await?;
    let mut volumes: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    insert_segments(&rows.segments, &mut volumes, tx).await?;
    if !rows.appended.is_empty() {
        let shared = json(&rows.appended)?;
        tx.execute(&SHARE_SEGMENTS, args![&shared]).await?;
        for row in tx.rows(&COUNT_SHARED, args![&shared]).await? {
            let mut row = row.cursor();
            let sum = volumes.entry(row.text()?).or_default();
            *sum = (sum.0 + row.int()?, sum.1 + row.int()?);
        }
        tx.execute(&HOME_OF_COPIES, args![&shared]).await?;
    }
    if !rows.resumed.is_empty() {
        let resumed = json(&rows.resumed)?;
        tx.execute(&USE_UP_PARTIALS, args![&resumed]).await?;
        tx.execute(&HOME_OF_COPIES, args![&resumed]).await?;
    }
    if !rows.work.is_empty() {
        tx.execute(&QUEUE_MIGRATIONS, args![&json(&rows.work)?, now]).await?;
    }
    recount_volumes(&volumes, tx).await?;
    debug_assert_eq!(DISK_COPY, 0, "statements name the disk copy by its number");
    Ok(())
}
