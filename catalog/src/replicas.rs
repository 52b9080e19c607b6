//! Replicas: further copies of a bitfile on disk, on other movers than the first, to be read at once or instead of it.
//!
//! A replica is made from a disk copy, and goes when the bitfile leaves the disk or is reclaimed. It counts neither as a
//! tape copy nor against a quota. One of several disk copies can be dropped at any time; if it is the first, a replica
//! takes its place in the same transaction, so that a bitfile on disk always has its first copy.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde::Serialize;
use wire::extent::{ByteRange, Coverage, Place};
use wire::id::{BitfileId, FileId, StorageClassName, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::publish::{SegmentRow, check_segment};
use crate::purge::LAST_READERS;
use crate::queue::{Garbage, queue_reclaim};
use crate::record::{DISK_COPY, FIRST_REPLICA, MAX_PAGE, MAX_REPLICAS, Purged, ReplicaCandidate, Segment};
use crate::segments::{VolumeSums, insert_segments, recount_volumes};
use crate::sql::{Row, args, bitfile_rows, json, statements};
use crate::staging::unused_files;
use crate::time::Timestamp;

statements! {
    LOCK_REPLICATED (id bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    LOOK_AT_REPLICATED (id bigint) =
        "SELECT b.size, b.on_disk, c.number FROM r JOIN bitfile b ON b.id = r.id
        LEFT JOIN copy c ON c.bitfile = b.id AND c.number >= 64
        WHERE b.entry IS NOT NULL ORDER BY c.number";

    INSERT_REPLICA (bitfile bigint, number bigint, storage_class text, volume text) =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us)
        SELECT r.bitfile, r.number, r.storage_class, 1, 0, r.volume, CAST($2 AS BIGINT), CAST($2 AS BIGINT) FROM r";

    /// How many migrations read now: one may read any of the disk copies. Those claimed later look anew, and find what
    /// was dropped for as long as the last readers.
    LOOK_AT_DROPPED (id bigint) =
        "SELECT b.id, b.size, c.number, f.used_us,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM work m WHERE m.bitfile = b.id AND m.kind = 'migrate'
                AND m.holder IS NOT NULL AND m.due_us > $2) AS migrating
        FROM r JOIN bitfile b ON b.id = r.id JOIN copy f ON f.bitfile = b.id AND f.number = 0
        JOIN copy c ON c.bitfile = b.id AND (c.number = 0 OR c.number >= 64) AND c.complete = 1
        ORDER BY b.id, c.number";

    DROP_ONE_SEGMENTS (bitfile bigint, number bigint, heir bigint) =
        "DELETE FROM segment WHERE (bitfile, copy) IN (SELECT r.bitfile, r.number FROM r)
        RETURNING volume, major, length";

    /// What a replica has becomes the first copy's.
    INHERIT_SEGMENTS (bitfile bigint, number bigint, heir bigint) =
        "UPDATE segment SET copy = 0 FROM r
        WHERE r.number = 0 AND segment.bitfile = r.bitfile AND segment.copy = r.heir";

    /// The first copy's promise and what is known of its use stay: they are the bitfile's.
    INHERIT_COPY (bitfile bigint, number bigint, heir bigint) =
        "UPDATE copy SET volume = h.volume, storage_class = h.storage_class, created_us = h.created_us
        FROM r JOIN copy h ON h.bitfile = r.bitfile AND h.number = r.heir
        WHERE r.number = 0 AND copy.bitfile = r.bitfile AND copy.number = 0";

    DROP_ONE_COPIES (bitfile bigint, number bigint, heir bigint) =
        "DELETE FROM copy WHERE number >= 64 AND (bitfile, number) IN
            (SELECT r.bitfile, CASE WHEN r.number = 0 THEN r.heir ELSE r.number END FROM r)";

    CANDIDATES =
        "SELECT c.bitfile, c.number, b.size, f.used_us FROM copy c
        JOIN bitfile b ON b.id = c.bitfile JOIN copy f ON f.bitfile = c.bitfile AND f.number = 0
        WHERE c.volume = $1 AND c.number >= 64 AND f.used_us <= $2
        ORDER BY f.used_us, c.bitfile, c.number LIMIT $3";
}

struct NewReplica {
    bitfile: BitfileId,
    storage_class: StorageClassName,
    segments: Vec<Segment>,
}

#[derive(Serialize)]
struct ReplicaRow<'a> {
    bitfile: i64,
    number: u32,
    storage_class: &'a str,
    volume: Option<&'a str>,
}

/// A copy that goes, and the replica that takes its place if it is the first.
#[derive(Serialize)]
struct DropRow {
    bitfile: i64,
    number: u32,
    heir: u32,
}

impl Catalog {
    /// Records a further disk copy whose bytes are synced on its mover; returns its number. One transaction.
    ///
    /// # Errors
    ///
    /// `NotFound` if the bitfile has been deleted; `Inconsistent` if it is not on disk any more, has as many replicas as
    /// it can have, or the segments do not cover it. Nothing is recorded then.
    pub async fn record_replica(
        &self,
        bitfile: BitfileId,
        storage_class: StorageClassName,
        segments: Vec<Segment>,
    ) -> Result<u32> {
        let new = NewReplica { bitfile, storage_class, segments };
        self.write(new, |new, tx| Box::pin(record(new, tx))).await
    }

    /// Replicas that begin on this volume and that nobody has read for `idle`, least recently used first, at most
    /// `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn replica_candidates(
        &self,
        volume: &VolumeLabel,
        idle: Duration,
        limit: u32,
    ) -> Result<Vec<ReplicaCandidate>> {
        let unread_since = self.now().before(idle);
        let rows = self.rows(&CANDIDATES, args![volume, unread_since, limit.min(MAX_PAGE)]).await?;
        let read = |row: &Row| {
            let mut row = row.cursor();
            Ok(ReplicaCandidate {
                bitfile: row.bitfile()?,
                copy: row.small()?,
                size_bytes: row.number()?,
                last_used: row.time()?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Drops single disk copies of bitfiles that have more than one, all in one transaction, and queues their files for
    /// reclaim; `idle` is for how long the bitfile must not have been read. A bitfile is named once. Whoever asks has
    /// made sure that another of its copies can be read.
    ///
    /// The answers are in the order of `copies`: `NotOnDisk` also for the last disk copy, which a purge drops, and
    /// `InUse` also while a migration reads one of them.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn drop_replicas(&self, copies: Vec<(BitfileId, u32)>, idle: Duration) -> Result<Vec<Purged>> {
        self.flush_access_times().await?;
        self.write((copies, idle), |(copies, idle), tx| Box::pin(drop_some(copies, *idle, tx))).await
    }
}

async fn record(new: &NewReplica, tx: &mut Tx) -> Result<u32> {
    debug_assert_eq!((DISK_COPY, FIRST_REPLICA), (0, 64), "statements name disk copies by their number");
    let question = bitfile_rows(&[new.bitfile])?;
    tx.lock(&LOCK_REPLICATED, args![&question]).await?;
    let found = tx.rows(&LOOK_AT_REPLICATED, args![&question]).await?;
    let mut row = found.first().ok_or_else(|| CatalogError::not_found("bitfile", new.bitfile))?.cursor();
    let (size, on_disk) = (row.number()?, row.flag()?);
    if !on_disk {
        return Err(CatalogError::inconsistent(format!("bitfile {} has left the disk", new.bitfile)));
    }
    let mut taken = HashSet::new();
    for row in &found {
        let mut row = row.cursor();
        let (_, _, number) = (row.number()?, row.flag()?, row.maybe_number()?);
        taken.extend(number);
    }
    let free = (FIRST_REPLICA..FIRST_REPLICA + MAX_REPLICAS).find(|number| !taken.contains(&u64::from(*number)));
    let Some(number) = free else {
        return Err(CatalogError::inconsistent(format!("bitfile {} has {MAX_REPLICAS} replicas", new.bitfile)));
    };
    check_cover(new, size)?;
    let volume = new.segments.first().map(|segment| segment.extent.volume.as_str());
    let row = ReplicaRow { bitfile: new.bitfile.column(), number, storage_class: new.storage_class.as_str(), volume };
    let now = tx.now;
    tx.execute(&INSERT_REPLICA, args![&json(&[row])?, now]).await?;
    let rows: Vec<_> = new.segments.iter().map(|segment| SegmentRow::new(new.bitfile, number, segment)).collect();
    let mut volumes = BTreeMap::new();
    insert_segments(&rows, &mut volumes, tx).await?;
    recount_volumes(&volumes, tx).await?;
    Ok(number)
}

/// What is known of a bitfile that is to lose a disk copy.
#[derive(Default)]
struct Facts {
    size_bytes: u64,
    numbers: Vec<u32>,
    used: Timestamp,
    migrating: bool,
}

impl Facts {
    /// Whether this copy goes, and which replica then takes its place if it is the first. Pure.
    fn decide(&self, number: u32, unread_since: Timestamp) -> (Purged, u32) {
        let heir = self.numbers.iter().copied().find(|other| *other != number);
        match heir.filter(|_| self.numbers.contains(&number)) {
            None => (Purged::NotOnDisk, number),
            Some(_) if self.migrating || self.used > unread_since => (Purged::InUse, number),
            Some(heir) => (Purged::Freed { bytes: self.size_bytes }, heir),
        }
    }
}

async fn drop_some(copies: &[(BitfileId, u32)], idle: Duration, tx: &mut Tx) -> Result<Vec<Purged>> {
    let question = bitfile_rows(copies.iter().map(|(bitfile, _)| bitfile))?;
    tx.lock(&LOCK_REPLICATED, args![&question]).await?;
    let now = tx.now;
    let mut facts: HashMap<BitfileId, Facts> = HashMap::new();
    for row in tx.rows(&LOOK_AT_DROPPED, args![&question, now]).await? {
        let mut row = row.cursor();
        let known = facts.entry(row.bitfile()?).or_default();
        known.size_bytes = row.number()?;
        known.numbers.push(row.small()?);
        known.used = row.time()?;
        known.migrating = row.int()? > 0;
    }
    let unread_since = now.before(idle);
    let (mut rows, mut answers) = (Vec::new(), Vec::with_capacity(copies.len()));
    for (bitfile, number) in copies {
        let known = facts.remove(bitfile).unwrap_or_default();
        let (answer, heir) = known.decide(*number, unread_since);
        if matches!(answer, Purged::Freed { .. }) {
            rows.push(DropRow { bitfile: bitfile.column(), number: *number, heir });
        }
        answers.push(answer);
    }
    if !rows.is_empty() {
        drop_rows(&json(&rows)?, tx).await?;
    }
    Ok(answers)
}

async fn drop_rows(rows: &str, tx: &mut Tx) -> Result<()> {
    let mut sums = VolumeSums::new();
    let mut files: BTreeMap<(VolumeLabel, FileId), i64> = BTreeMap::new();
    for row in tx.rows(&DROP_ONE_SEGMENTS, args![rows]).await? {
        let mut row = row.cursor();
        let (volume, file, length): (VolumeLabel, _, _) = (row.name()?, FileId(row.number()?), row.int()?);
        let sum = sums.entry(volume.to_string()).or_default();
        *sum = (sum.0 - length, sum.1 - 1);
        *files.entry((volume, file)).or_default() += length;
    }
    for statement in [&INHERIT_SEGMENTS, &INHERIT_COPY, &DROP_ONE_COPIES] {
        tx.execute(statement, args![rows]).await?;
    }
    let garbage = files.into_iter().map(|((volume, file), bytes)| Garbage { volume, file, bytes }).collect();
    // An append shares the files of its base.
    let garbage = unused_files(garbage, tx).await?;
    let due = tx.now.after(LAST_READERS);
    queue_reclaim(&garbage, due, tx).await?;
    recount_volumes(&sums, tx).await
}

fn check_cover(new: &NewReplica, size: u64) -> Result<()> {
    let misfit = || CatalogError::inconsistent(format!("the segments do not cover bitfile {}", new.bitfile));
    let mut coverage = Coverage::new();
    for segment in &new.segments {
        let disk = matches!(segment.extent.place, Place::Disk { .. });
        if !disk || check_segment(segment).is_err() || coverage.add(segment.range).is_err() {
            return Err(misfit());
        }
    }
    let whole = ByteRange::new(0, size).map_err(|_| misfit())?;
    if coverage.covers(whole) && coverage.end() == size { Ok(()) } else { Err(misfit()) }
}
