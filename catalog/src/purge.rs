//! Freeing space: purge of disk copies, reclaim of what nobody can reach any more.
//!
//! A purge is conditional within its transaction: whatever a service believed when it chose a copy, the copy stays
//! if it is not (any more) on enough tapes, or somebody pinned it or read it a moment ago.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use wire::id::{BitfileId, FileId, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::events;
use crate::objects::drop_expired_uploads;
use crate::queue::{Garbage, queue_reclaim};
use crate::record::{Cause, EventKind, MAX_PAGE, PurgeCandidate, Purged, Reclaimed};
use crate::segments::{VolumeSums, recount_volumes};
use crate::sql::{IdRow, Row, args, bitfile_rows, json, statements};
use crate::staging::forget_bulks;
use crate::time::{Timestamp, micros};

/// How long the files of a purged copy stay, for readers that were told where they are a moment ago.
pub(crate) const LAST_READERS: Duration = Duration::from_secs(10);
/// How long an ended stage request can still be asked about.
const REQUEST_MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);

statements! {
    CANDIDATES =
        "SELECT c.bitfile, b.size, c.used_us, c.expires_us FROM copy c JOIN bitfile b ON b.id = c.bitfile
        WHERE c.volume = $1 AND c.number = 0 AND c.purgeable = 1
            AND (c.expires_us IS NULL OR c.expires_us <= $2)
            AND NOT EXISTS (SELECT 1 FROM pin p WHERE p.bitfile = c.bitfile AND p.until_us > $2)
        ORDER BY c.used_us LIMIT $3";

    EXPIRED_COPIES =
        "SELECT c.bitfile, b.size, c.used_us, c.expires_us FROM copy c JOIN bitfile b ON b.id = c.bitfile
        WHERE c.number = 0 AND c.expires_us IS NOT NULL AND c.expires_us <= $1 AND c.purgeable = 1
            AND NOT EXISTS (SELECT 1 FROM pin p WHERE p.bitfile = c.bitfile AND p.until_us > $1)
        ORDER BY c.expires_us LIMIT $2";

    LOCK_PURGED (id bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    LOOK_AT_COPY (id bigint) =
        "SELECT b.id, b.size, c.purgeable, c.used_us, c.expires_us,
            (SELECT MAX(p.until_us) FROM pin p WHERE p.bitfile = b.id) AS pinned_until
        FROM r JOIN bitfile b ON b.id = r.id JOIN copy c ON c.bitfile = b.id AND c.number = 0";

    /// Disk files in which only these bitfiles have segments (an append shares its base's files).
    DISK_FILES (id bigint) =
        "SELECT s.volume, s.major, CAST(SUM(s.length) AS BIGINT) FROM r JOIN segment s ON s.bitfile = r.id
        WHERE s.skip IS NULL AND NOT EXISTS (SELECT 1 FROM segment o
            WHERE o.volume = s.volume AND o.major = s.major AND o.skip IS NULL
                AND o.bitfile NOT IN (SELECT r.id FROM r))
        GROUP BY s.volume, s.major ORDER BY s.volume, s.major";

    DROP_DISK_SEGMENTS (id bigint) =
        "DELETE FROM segment WHERE (copy = 0 OR copy >= 64) AND bitfile IN (SELECT r.id FROM r)
        RETURNING volume, length";

    DROP_DISK_COPIES (id bigint) =
        "DELETE FROM copy WHERE (number = 0 OR number >= 64) AND bitfile IN (SELECT r.id FROM r)";

    OFF_DISK (id bigint) =
        "UPDATE bitfile SET on_disk = 0 WHERE id IN (SELECT r.id FROM r)";

    DUE_DELETED = "SELECT bitfile FROM deleted WHERE reclaim_us <= $1 ORDER BY reclaim_us, bitfile LIMIT $2",
        "SELECT bitfile FROM deleted WHERE reclaim_us <= $1 ORDER BY reclaim_us, bitfile LIMIT $2
        FOR UPDATE SKIP LOCKED";

    DUE_PARTIALS = "SELECT id FROM partial WHERE expires_us <= $1 ORDER BY expires_us, id LIMIT $2",
        "SELECT id FROM partial WHERE expires_us <= $1 ORDER BY expires_us, id LIMIT $2 FOR UPDATE SKIP LOCKED";

    DROP_SEGMENTS (id bigint) =
        "DELETE FROM segment WHERE bitfile IN (SELECT r.id FROM r) RETURNING volume, length";

    DROP_COPIES (id bigint) = "DELETE FROM copy WHERE bitfile IN (SELECT r.id FROM r)";

    DROP_BITFILES (id bigint) = "DELETE FROM bitfile WHERE id IN (SELECT r.id FROM r)";

    DROP_DELETED (id bigint) = "DELETE FROM deleted WHERE bitfile IN (SELECT r.id FROM r)";

    DROP_OBJECTS (id bigint) = "DELETE FROM object WHERE bitfile IN (SELECT r.id FROM r)";

    DROP_PARTIALS (id bigint) = "DELETE FROM partial WHERE id IN (SELECT r.id FROM r)";

    DROP_PINS (id bigint) = "DELETE FROM pin WHERE bitfile IN (SELECT r.id FROM r)";

    DROP_OLD_PINS =
        "DELETE FROM pin WHERE until_us <= $1 AND (bitfile, holder) IN
            (SELECT p.bitfile, p.holder FROM pin p WHERE p.until_us <= $1 ORDER BY p.until_us LIMIT $2)";

    /// A request that is a file of a bulk request is its state, and goes with it.
    FORGET_REQUESTS =
        "DELETE FROM request WHERE id IN (SELECT o.id FROM request o
            WHERE o.finished_us IS NOT NULL AND o.finished_us <= $1
                AND NOT EXISTS (SELECT 1 FROM bulk_file f WHERE f.request = o.id) ORDER BY o.finished_us LIMIT $2)";
}

impl Catalog {
    /// Disk copies that begin on this volume and have all their tape copies, least recently used first, at most
    /// `limit`. Those promised to stay (pins, staged and not expired) are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn purge_candidates(&self, volume: &VolumeLabel, limit: u32) -> Result<Vec<PurgeCandidate>> {
        let rows = self.rows(&CANDIDATES, args![volume, self.now(), limit.min(MAX_PAGE)]).await?;
        rows.iter().map(read_candidate).collect()
    }

    /// Staged disk copies whose promise has ended, those that ended first first, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn expired_copies(&self, limit: u32) -> Result<Vec<PurgeCandidate>> {
        let rows = self.rows(&EXPIRED_COPIES, args![self.now(), limit.min(MAX_PAGE)]).await?;
        rows.iter().map(read_candidate).collect()
    }

    /// Drops the disk copies of those bitfiles that may lose them, all in one transaction, and queues their files
    /// for reclaim. `idle` is for how long a copy must not have been read.
    ///
    /// # Errors
    ///
    /// Only those of the database: why a copy was kept is in the answer, which is in the order of `bitfiles`.
    pub async fn purge(&self, bitfiles: Vec<BitfileId>, idle: Duration) -> Result<Vec<(BitfileId, Purged)>> {
        self.flush_access_times().await?;
        self.write((bitfiles, idle), |(bitfiles, idle), tx| Box::pin(purge(bitfiles, *idle, tx))).await
    }

    /// Removes bitfiles whose undelete window has closed, cut uploads that have expired, pins and stage requests
    /// that ended long ago, at most `limit` of each, and queues their files for reclaim.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn reclaim(&self, limit: u32) -> Result<Reclaimed> {
        self.write(limit.clamp(1, MAX_PAGE), |limit, tx| Box::pin(reclaim(*limit, tx))).await
    }
}

fn read_candidate(row: &Row) -> Result<PurgeCandidate> {
    let mut row = row.cursor();
    Ok(PurgeCandidate {
        bitfile: row.bitfile()?,
        size_bytes: row.number()?,
        last_used: row.time()?,
        expires: row.maybe_time()?,
    })
}

async fn purge(bitfiles: &[BitfileId], idle: Duration, tx: &mut Tx) -> Result<Vec<(BitfileId, Purged)>> {
    let now = tx.now;
    let rows = bitfile_rows(bitfiles)?;
    tx.lock(&LOCK_PURGED, args![&rows]).await?;
    let (mut verdicts, mut restored) = (HashMap::new(), HashSet::new());
    for row in tx.rows(&LOOK_AT_COPY, args![&rows]).await? {
        let mut row = row.cursor();
        let (bitfile, bytes, on_tape) = (row.bitfile()?, row.number()?, row.flag()?);
        let (used, expires, pinned) = (row.time()?, row.maybe_time()?, row.maybe_time()?);
        // Only what was brought back has a time at which it goes.
        if expires.is_some() {
            restored.insert(bitfile);
        }
        let promised = [expires, pinned].into_iter().flatten().any(|until| until > now);
        let verdict = if !on_tape {
            Purged::NotOnTape
        } else if promised {
            Purged::Pinned
        } else if now.0.saturating_sub(used.0) < micros(idle) {
            Purged::InUse
        } else {
            Purged::Freed { bytes }
        };
        verdicts.insert(bitfile, verdict);
    }
    let mut seen = HashSet::new();
    let answer: Vec<_> = bitfiles
        .iter()
        .map(|bitfile| {
            let verdict = verdicts.get(bitfile).copied().filter(|_| seen.insert(*bitfile));
            (*bitfile, verdict.unwrap_or(Purged::NotOnDisk))
        })
        .collect();
    let freed = answer.iter().filter(|(_, purged)| matches!(purged, Purged::Freed { .. })).map(|(bitfile, _)| bitfile);
    let freed: Vec<_> = freed.copied().collect();
    if !freed.is_empty() {
        drop_disk_copies(&freed, tx).await?;
        let ended: Vec<_> = freed.into_iter().filter(|bitfile| restored.contains(bitfile)).collect();
        for found in events::watched(&ended, EventKind::RestoreEnded, tx).await? {
            tx.tell(&found.bucket, &found.what, &Cause::default())?;
        }
    }
    Ok(answer)
}

async fn drop_disk_copies(bitfiles: &[BitfileId], tx: &mut Tx) -> Result<()> {
    let rows = bitfile_rows(bitfiles)?;
    let garbage = disk_files(&rows, tx).await?;
    let volumes = negative_sums(&tx.rows(&DROP_DISK_SEGMENTS, args![&rows]).await?)?;
    tx.execute(&DROP_DISK_COPIES, args![&rows]).await?;
    tx.execute(&OFF_DISK, args![&rows]).await?;
    let due = tx.now.after(LAST_READERS);
    queue_reclaim(&garbage, due, tx).await?;
    recount_volumes(&volumes, tx).await
}

async fn reclaim(limit: u32, tx: &mut Tx) -> Result<Reclaimed> {
    let now = tx.now;
    let deleted = ids(&tx.rows(&DUE_DELETED, args![now, limit]).await?)?;
    let partials = ids(&tx.rows(&DUE_PARTIALS, args![now, limit]).await?)?;
    let mut reclaimed = Reclaimed {
        bitfiles: deleted.len() as u64,
        partials: partials.len() as u64,
        files: 0,
        more: deleted.len().max(partials.len()) == limit as usize,
    };
    let all: Vec<_> = deleted.into_iter().chain(partials).map(|id| IdRow { id }).collect();
    if !all.is_empty() {
        let rows = json(&all)?;
        let garbage = disk_files(&rows, tx).await?;
        reclaimed.files = garbage.len() as u64;
        let volumes = negative_sums(&tx.rows(&DROP_SEGMENTS, args![&rows]).await?)?;
        for statement in [&DROP_COPIES, &DROP_BITFILES, &DROP_DELETED, &DROP_OBJECTS, &DROP_PARTIALS, &DROP_PINS] {
            tx.execute(statement, args![&rows]).await?;
        }
        queue_reclaim(&garbage, now, tx).await?;
        recount_volumes(&volumes, tx).await?;
    }
    reclaimed.partials += drop_expired_uploads(limit, tx).await?;
    tx.execute(&DROP_OLD_PINS, args![now, limit]).await?;
    let forgotten: Timestamp = now.before(REQUEST_MEMORY);
    forget_bulks(forgotten, tx).await?;
    tx.execute(&FORGET_REQUESTS, args![forgotten, limit]).await?;
    Ok(reclaimed)
}

/// Removes the segments of parts that are in no bitfile, and queues the files that only they had.
pub(crate) async fn drop_segments(rows: &str, tx: &mut Tx) -> Result<()> {
    let (garbage, now) = (disk_files(rows, tx).await?, tx.now);
    let volumes = negative_sums(&tx.rows(&DROP_SEGMENTS, args![rows]).await?)?;
    queue_reclaim(&garbage, now, tx).await?;
    recount_volumes(&volumes, tx).await
}

async fn disk_files(rows: &str, tx: &mut Tx) -> Result<Vec<Garbage>> {
    let read = |row: &Row| {
        let mut row = row.cursor();
        Ok(Garbage { volume: row.name()?, file: FileId(row.number()?), bytes: row.int()? })
    };
    tx.rows(&DISK_FILES, args![rows]).await?.iter().map(read).collect()
}

fn negative_sums(rows: &[Row]) -> Result<VolumeSums> {
    let mut volumes: VolumeSums = BTreeMap::new();
    for row in rows {
        let mut row = row.cursor();
        let sum = volumes.entry(row.text()?).or_default();
        *sum = (sum.0 - row.int()?, sum.1 - 1);
    }
    Ok(volumes)
}

fn ids(rows: &[Row]) -> Result<Vec<i64>> {
    rows.iter().map(|row| row.cursor().int()).collect()
}
