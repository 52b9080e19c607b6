//! Recording what was brought back to disk.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use wire::extent::{ByteRange, Coverage, Place};
use wire::id::{BitfileId, CosName, RequestId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::events;
use crate::policies;
use crate::publish::{SegmentRow, check_segment};
use crate::queue::{Garbage, queue_reclaim};
use crate::record::{CatalogRefusal, Cause, DISK_COPY, EventKind, Fence, Policies, StageRecorded, Staged};
use crate::segments::{insert_segments, recount_volumes};
use crate::sql::{args, column, json, statements};
use crate::staging::expiry;
use crate::time::{Timestamp, micros};

statements! {
    LOCK_STAGED (id bigint, work bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    LOOK_AT_STAGED (id bigint, work bigint) =
        "SELECT b.id, b.size, b.cos, b.on_disk, b.tapes, b.tapes_wanted, w.epoch,
            (SELECT MAX(q.lifetime_us) FROM request q WHERE q.bitfile = b.id AND q.outcome IS NULL) AS lifetime
        FROM r JOIN bitfile b ON b.id = r.id
        LEFT JOIN work w ON w.id = r.work AND w.bitfile = b.id AND w.kind = 'stage' AND w.holder IS NOT NULL";

    INSERT_STAGED (bitfile bigint, storage_class text, volume text, purgeable bigint, expires_us bigint) =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us, expires_us)
        SELECT r.bitfile, 0, r.storage_class, 1, r.purgeable, r.volume, CAST($2 AS BIGINT), CAST($2 AS BIGINT),
            r.expires_us FROM r";

    NOW_ON_DISK (bitfile bigint, storage_class text, volume text, purgeable bigint, expires_us bigint) =
        "UPDATE bitfile SET on_disk = 1 WHERE id IN (SELECT r.bitfile FROM r)";

    STAGES_DONE (bitfile bigint, storage_class text, volume text, purgeable bigint, expires_us bigint) =
        "DELETE FROM work WHERE kind = 'stage' AND bitfile IN (SELECT r.bitfile FROM r)";

    REQUESTS_DONE (bitfile bigint, storage_class text, volume text, purgeable bigint, expires_us bigint) =
        "UPDATE request SET outcome = 'completed', finished_us = $2
        WHERE outcome IS NULL AND bitfile IN (SELECT r.bitfile FROM r) RETURNING id, bitfile";

    /// Which of these files some bitfile or cut upload has segments in.
    FILES_IN_USE (volume text, file bigint) =
        "SELECT DISTINCT s.volume, s.major FROM r JOIN segment s ON s.volume = r.volume AND s.major = r.file
        WHERE s.skip IS NULL";
}

impl Catalog {
    /// Records bitfiles that are on disk again: segments, disk copy, its expiry (counted from now), finished work,
    /// completed requests; one transaction. Answers in the order given.
    ///
    /// # Errors
    ///
    /// `Stale` if the fence's lease is lost: nothing is recorded then.
    pub async fn record_stage(&self, staged: Vec<Staged>, fence: Option<Fence>) -> Result<Vec<StageRecorded>> {
        self.write((staged, fence), |(staged, fence), tx| Box::pin(record(staged, fence.as_ref(), tx))).await
    }
}

struct Facts {
    size: u64,
    cos: CosName,
    on_disk: bool,
    on_tape: bool,
    epoch: Option<wire::id::Epoch>,
    lifetime_us: Option<i64>,
}

#[derive(Serialize)]
struct StagedRow<'a> {
    #[serde(skip)]
    id: BitfileId,
    bitfile: i64,
    storage_class: &'a str,
    volume: Option<&'a str>,
    purgeable: i64,
    expires_us: i64,
}

async fn record(staged: &[Staged], fence: Option<&Fence>, tx: &mut Tx) -> Result<Vec<StageRecorded>> {
    crate::leases::check_fence(fence, tx).await?;
    let facts = look(staged, tx).await?;
    let policies = policies::read(tx).await?;
    let now = tx.now;
    let (mut rows, mut segments, mut garbage) = (Vec::new(), Vec::new(), Vec::new());
    let mut verdicts: Vec<Result<Timestamp, CatalogRefusal>> = Vec::new();
    let mut seen = HashSet::new();
    for item in staged {
        let verdict = match facts.get(&item.bitfile) {
            None => Err(CatalogRefusal::Stale),
            Some(_) if !seen.insert(item.bitfile) => Err(CatalogRefusal::Present),
            Some(facts) => facts.decide(item).map(|()| (facts, facts.expires(now, &policies))),
        };
        match verdict {
            Ok((facts, expires)) => {
                rows.push(StagedRow {
                    id: item.bitfile,
                    bitfile: item.bitfile.column(),
                    storage_class: item.storage_class.as_str(),
                    volume: item.segments.first().map(|segment| segment.extent.volume.as_str()),
                    purgeable: i64::from(facts.on_tape),
                    expires_us: expires.0,
                });
                segments.extend(item.segments.iter().map(|one| SegmentRow::new(item.bitfile, DISK_COPY, one)));
                verdicts.push(Ok(expires));
            }
            Err(refusal) => {
                garbage.extend(files_of(item));
                verdicts.push(Err(refusal));
            }
        }
    }
    let mut completed = write(&rows, &segments, tx).await?;
    tell(&rows, tx).await?;
    let garbage = unused_files(garbage, tx).await?;
    queue_reclaim(&garbage, now, tx).await?;
    let answer = |(item, verdict): (&Staged, Result<Timestamp, CatalogRefusal>)| match verdict {
        Ok(expires) => StageRecorded::Done { requests: completed.remove(&item.bitfile).unwrap_or_default(), expires },
        Err(refusal) => StageRecorded::Refused(refusal),
    };
    Ok(staged.iter().zip(verdicts).map(answer).collect())
}

/// Tells that copies are back on disk, and until when.
async fn tell(rows: &[StagedRow<'_>], tx: &mut Tx) -> Result<()> {
    let expires: HashMap<_, _> = rows.iter().map(|row| (row.bitfile, Timestamp(row.expires_us))).collect();
    let bitfiles: Vec<_> = rows.iter().map(|row| row.id).collect();
    for mut found in events::watched(&bitfiles, EventKind::Restored, tx).await? {
        found.what.expires = expires.get(&found.bitfile.column()).copied();
        tx.tell(&found.bucket, &found.what, &Cause::default())?;
    }
    Ok(())
}

impl Facts {
    fn decide(&self, staged: &Staged) -> Result<(), CatalogRefusal> {
        if self.epoch != Some(staged.ticket.epoch) {
            return Err(CatalogRefusal::Stale);
        }
        if self.on_disk {
            return Err(CatalogRefusal::Present);
        }
        let mut coverage = Coverage::new();
        for segment in &staged.segments {
            let disk = matches!(segment.extent.place, Place::Disk { .. });
            if !disk || check_segment(segment).is_err() || coverage.add(segment.range).is_err() {
                return Err(CatalogRefusal::Misfit);
            }
        }
        let whole = ByteRange::new(0, self.size).map_err(|_| CatalogRefusal::Misfit)?;
        if coverage.covers(whole) && coverage.end() == self.size { Ok(()) } else { Err(CatalogRefusal::Misfit) }
    }

    fn expires(&self, now: Timestamp, policies: &Policies) -> Timestamp {
        let usual = policies.class(&self.cos).map_or(0, |class| micros(class.stage_lifetime));
        expiry(now, self.lifetime_us.unwrap_or(usual))
    }
}

async fn look(staged: &[Staged], tx: &mut Tx) -> Result<HashMap<BitfileId, Facts>> {
    #[derive(Serialize)]
    struct Question {
        id: i64,
        work: i64,
    }
    let question = |item: &Staged| Question { id: item.bitfile.column(), work: item.ticket.work.column() };
    let rows = json(&staged.iter().map(question).collect::<Vec<_>>())?;
    tx.lock(&LOCK_STAGED, args![&rows]).await?;
    let mut facts = HashMap::new();
    for row in tx.rows(&LOOK_AT_STAGED, args![&rows]).await? {
        let mut row = row.cursor();
        let bitfile = row.bitfile()?;
        let (size, cos, on_disk) = (row.number()?, row.name()?, row.flag()?);
        let on_tape = row.int()? >= row.int()?;
        let epoch = row.maybe_number()?.map(wire::id::Epoch);
        let lifetime_us = row.maybe_int()?;
        facts.insert(bitfile, Facts { size, cos, on_disk, on_tape, epoch, lifetime_us });
    }
    Ok(facts)
}

async fn write(
    rows: &[StagedRow<'_>],
    segments: &[SegmentRow],
    tx: &mut Tx,
) -> Result<HashMap<BitfileId, Vec<RequestId>>> {
    let mut completed: HashMap<BitfileId, Vec<RequestId>> = HashMap::new();
    if rows.is_empty() {
        return Ok(completed);
    }
    let (rows, now) = (json(rows)?, tx.now);
    tx.execute(&INSERT_STAGED, args![&rows, now]).await?;
    tx.execute(&NOW_ON_DISK, args![&rows]).await?;
    let mut volumes = BTreeMap::new();
    insert_segments(segments, &mut volumes, tx).await?;
    tx.execute(&STAGES_DONE, args![&rows]).await?;
    for row in tx.rows(&REQUESTS_DONE, args![&rows, now]).await? {
        let mut row = row.cursor();
        let request = row.request()?;
        completed.entry(row.bitfile()?).or_default().push(request);
    }
    completed.values_mut().for_each(|requests| requests.sort_unstable());
    recount_volumes(&volumes, tx).await?;
    Ok(completed)
}

/// The disk files that hold what was not recorded.
fn files_of(staged: &Staged) -> Vec<Garbage> {
    let mut files: Vec<Garbage> = Vec::new();
    for segment in &staged.segments {
        if let Place::Disk { file, .. } = segment.extent.place {
            let (volume, bytes) = (segment.extent.volume.clone(), column(segment.extent.length_bytes));
            match files.iter_mut().find(|known| known.volume == volume && known.file == file) {
                Some(known) => known.bytes = known.bytes.saturating_add(bytes),
                None => files.push(Garbage { volume, file, bytes }),
            }
        }
    }
    files
}

/// Leaves out files that something in the catalogue lies in: a repeat of what was recorded before must not delete it.
pub(crate) async fn unused_files(mut garbage: Vec<Garbage>, tx: &mut Tx) -> Result<Vec<Garbage>> {
    #[derive(Serialize)]
    struct FileRow<'a> {
        volume: &'a str,
        file: i64,
    }
    if garbage.is_empty() {
        return Ok(garbage);
    }
    let rows: Vec<_> =
        garbage.iter().map(|file| FileRow { volume: file.volume.as_str(), file: file.file.column() }).collect();
    let rows = tx.rows(&FILES_IN_USE, args![&json(&rows)?]).await?;
    let mut used = HashSet::new();
    for row in &rows {
        let mut row = row.cursor();
        used.insert((row.name()?, wire::id::FileId(row.number()?)));
    }
    garbage.retain(|file| !used.contains(&(file.volume.clone(), file.file)));
    Ok(garbage)
}
