//! What is on tape: recording containers written by migration and repack.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use wire::extent::{Coverage, Place};
use wire::id::{BitfileId, Epoch};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::leases::check_fence;
use crate::publish::{SegmentRow, check_segment};
use crate::record::{CatalogRefusal, ContainerRecorded, WrittenContainer, WrittenMember};
use crate::segments::{VolumeSums, insert_segments, recount_volumes};
use crate::sql::{args, column, json, statements};
use crate::volumes::locked_volume;

statements! {
    LOCK_MEMBERS (id bigint, work bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    /// What is known of each member: the claim, the copy so far ($2 its number), other copies on that volume ($3).
    /// The `|| ''` keeps SQLite from looking through all of the volume rather than through the bitfile.
    LOOK_AT_MEMBERS (id bigint, work bigint) =
        "SELECT b.id, b.size, b.tapes, b.tapes_wanted, w.epoch, w.kind, w.pool, c.complete,
            (SELECT CAST(COALESCE(SUM(s.length), 0) AS BIGINT) FROM segment s
            WHERE s.bitfile = b.id AND s.copy = $2) AS there,
            (SELECT CAST(COALESCE(SUM(s.length), 0) AS BIGINT) FROM segment s
            WHERE s.bitfile = b.id AND s.copy = $2 AND s.volume = w.pool) AS leaving,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM segment s
            WHERE s.bitfile = b.id AND s.copy <> $2 AND s.volume || '' = $3) AS neighbours
        FROM r JOIN bitfile b ON b.id = r.id
        LEFT JOIN copy c ON c.bitfile = b.id AND c.number = $2
        LEFT JOIN work w ON w.id = r.work AND w.holder IS NOT NULL
            AND (w.bitfile = b.id AND w.kind IN ('migrate', 'repack') OR w.bitfile IS NULL AND w.kind = 'repack')";

    /// Repack: what the member had on the volume it leaves.
    LEAVE_VOLUME (bitfile bigint, volume text) =
        "DELETE FROM segment WHERE copy = $2 AND (bitfile, volume) IN (SELECT r.bitfile, r.volume FROM r)
        RETURNING volume, length";

    PUT_COPIES (bitfile bigint, complete bigint) =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us)
        SELECT r.bitfile, CAST($2 AS BIGINT), CAST($3 AS TEXT), r.complete, 0, CAST($4 AS TEXT), CAST($5 AS BIGINT),
            CAST($5 AS BIGINT) FROM r WHERE true
        ON CONFLICT (bitfile, number) DO UPDATE SET complete = excluded.complete,
            volume = CASE WHEN copy.complete = 1 THEN excluded.volume ELSE copy.volume END,
            storage_class = excluded.storage_class";

    COUNT_TAPES (bitfile bigint, complete bigint) =
        "UPDATE bitfile SET tapes = tapes + 1 WHERE id IN (SELECT r.bitfile FROM r WHERE r.complete = 1)";

    NOW_PURGEABLE (id bigint) =
        "UPDATE copy SET purgeable = 1 WHERE number = 0 AND bitfile IN (SELECT r.id FROM r)";

    MIGRATIONS_DONE (id bigint) =
        "DELETE FROM work WHERE kind = 'migrate' AND bitfile IN (SELECT r.id FROM r)";

    REPACKS_DONE (id bigint) =
        "DELETE FROM work WHERE kind = 'repack' AND bitfile IN (SELECT r.id FROM r)";

    ADVANCE_VOLUME =
        "UPDATE volume SET next_container = $2, next_block = $3, written = written + $4, changed_us = $5,
            state = CASE WHEN state = 'empty' THEN 'filling' ELSE state END
        WHERE label = $1";
}

impl Catalog {
    /// Records a container that is safely on tape (the synchronous filemark succeeded and the position is right):
    /// the cartridge's new end of data, tape copies and segments of its members, finished work. One transaction, a
    /// few statements however many members.
    ///
    /// Under a repack claim the copy moves: the segments it had on the repacked volume are replaced. Members may
    /// all have the ticket of one repack of a volume; that work stays, for [`Catalog::finish`].
    ///
    /// # Errors
    ///
    /// `Stale` if the catalogue's end of data is not `before`, or the fence's lease is lost; `NotFound` for the
    /// volume; `Inconsistent` if a segment lies on another volume. Nothing is recorded then.
    pub async fn record_container(&self, container: WrittenContainer) -> Result<ContainerRecorded> {
        self.write(container, |container, tx| Box::pin(record(container, tx))).await
    }
}

/// What is known of a member before it is recorded.
struct Facts {
    size: i64,
    tapes: i64,
    tapes_wanted: i64,
    claim: Option<(Epoch, String, String)>,
    complete: Option<bool>,
    there: i64,
    leaving: i64,
    neighbours: i64,
}

/// What recording a member comes to.
enum Verdict {
    /// The copy has all its bytes now.
    Complete,
    /// More of the copy is to come.
    Partial,
    /// The copy has left this volume.
    Moved { from: String },
}

#[derive(Serialize)]
struct CopyRow {
    bitfile: i64,
    complete: i64,
}

#[derive(Serialize)]
struct LeaveRow {
    bitfile: i64,
    volume: String,
}

async fn record(container: &WrittenContainer, tx: &mut Tx) -> Result<ContainerRecorded> {
    check(container)?;
    check_fence(container.fence.as_ref(), tx).await?;
    let facts = look(container, tx).await?;
    let volume = locked_volume(&container.volume, tx).await?;
    if volume.position() != Some(container.before) {
        return Err(CatalogError::stale(format!("the end of data of volume {}", container.volume)));
    }
    let mut answer = ContainerRecorded::default();
    let (mut copies, mut moved, mut segments, mut done, mut repacked) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for member in &container.members {
        let verdict = match facts.get(&member.bitfile) {
            None => Err(CatalogRefusal::Stale),
            Some(_) if !seen.insert(member.bitfile) => Err(CatalogRefusal::Present),
            Some(facts) => facts.decide(member).map(|verdict| (verdict, facts)),
        };
        let (verdict, facts) = match verdict {
            Ok(verdict) => verdict,
            Err(refusal) => {
                answer.refused.push((member.bitfile, refusal));
                continue;
            }
        };
        let bitfile = member.bitfile.column();
        segments.extend(member.segments.iter().map(|segment| SegmentRow::new(member.bitfile, container.copy, segment)));
        let all = match verdict {
            Verdict::Complete => {
                copies.push(CopyRow { bitfile, complete: 1 });
                facts.tapes + 1 >= facts.tapes_wanted
            }
            Verdict::Partial => {
                copies.push(CopyRow { bitfile, complete: 0 });
                false
            }
            Verdict::Moved { from } => {
                moved.push(LeaveRow { bitfile, volume: from });
                repacked.push(member.bitfile);
                true
            }
        };
        if all {
            answer.complete.push(member.bitfile)
        } else {
            answer.more_wanted.push(member.bitfile)
        }
        if all && facts.tapes + 1 >= facts.tapes_wanted {
            done.push(member.bitfile);
        }
    }
    let done: Vec<_> = done.into_iter().filter(|bitfile| !repacked.contains(bitfile)).collect();
    write(container, &Written { copies, moved, segments, done, repacked }, tx).await?;
    Ok(answer)
}

struct Written {
    copies: Vec<CopyRow>,
    moved: Vec<LeaveRow>,
    segments: Vec<SegmentRow>,
    done: Vec<BitfileId>,
    repacked: Vec<BitfileId>,
}

async fn write(container: &WrittenContainer, rows: &Written, tx: &mut Tx) -> Result<()> {
    let now = tx.now;
    let mut volumes = VolumeSums::new();
    if !rows.moved.is_empty() {
        for row in tx.rows(&LEAVE_VOLUME, args![&json(&rows.moved)?, container.copy]).await? {
            let mut row = row.cursor();
            let sum = volumes.entry(row.text()?).or_default();
            *sum = (sum.0 - row.int()?, sum.1 - 1);
        }
    }
    insert_segments(&rows.segments, &mut volumes, tx).await?;
    let moved = rows.moved.iter().map(|row| CopyRow { bitfile: row.bitfile, complete: 1 });
    let mut put: Vec<_> = rows.copies.iter().map(|row| CopyRow { ..*row }).collect();
    put.extend(moved);
    if !put.is_empty() {
        let (class, label) = (&container.storage_class, &container.volume);
        tx.execute(&PUT_COPIES, args![&json(&put)?, container.copy, class, label, now]).await?;
    }
    if !rows.copies.is_empty() {
        tx.execute(&COUNT_TAPES, args![&json(&rows.copies)?]).await?;
    }
    if !rows.done.is_empty() {
        let done = crate::sql::bitfile_rows(&rows.done)?;
        tx.execute(&NOW_PURGEABLE, args![&done]).await?;
        tx.execute(&MIGRATIONS_DONE, args![&done]).await?;
    }
    if !rows.repacked.is_empty() {
        tx.execute(&REPACKS_DONE, args![&crate::sql::bitfile_rows(&rows.repacked)?]).await?;
    }
    let (after, written) = (container.after, column(container.written_bytes));
    tx.execute(&ADVANCE_VOLUME, args![&container.volume, after.next_container, column(after.next_block), written, now])
        .await?;
    recount_volumes(&volumes, tx).await
}

fn check(container: &WrittenContainer) -> Result<()> {
    if container.copy == 0 {
        return Err(CatalogError::inconsistent("copy 0 is on disk, not in a container"));
    }
    for segment in container.members.iter().flat_map(|member| &member.segments) {
        check_segment(segment)?;
        if segment.extent.volume != container.volume || !matches!(segment.extent.place, Place::Tape { .. }) {
            let (label, other) = (&container.volume, &segment.extent.volume);
            return Err(CatalogError::inconsistent(format!("a container on {label} has a segment elsewhere: {other}")));
        }
    }
    Ok(())
}

async fn look(container: &WrittenContainer, tx: &mut Tx) -> Result<HashMap<BitfileId, Facts>> {
    #[derive(Serialize)]
    struct Question {
        id: i64,
        work: i64,
    }
    let question = |member: &WrittenMember| Question { id: member.bitfile.column(), work: member.ticket.work.column() };
    let rows = json(&container.members.iter().map(question).collect::<Vec<_>>())?;
    tx.lock(&LOCK_MEMBERS, args![&rows]).await?;
    let mut facts = HashMap::new();
    for row in tx.rows(&LOOK_AT_MEMBERS, args![&rows, container.copy, &container.volume]).await? {
        let mut row = row.cursor();
        let bitfile = row.bitfile()?;
        let (size, tapes, tapes_wanted) = (row.int()?, row.int()?, row.int()?);
        let claim = match (row.maybe_number()?, row.maybe_text()?, row.maybe_text()?) {
            (Some(epoch), Some(kind), Some(pool)) => Some((Epoch(epoch), kind, pool)),
            _ => None,
        };
        let complete = row.maybe_int()?.map(|complete| complete == 1);
        let (there, leaving, neighbours) = (row.int()?, row.int()?, row.int()?);
        facts.insert(bitfile, Facts { size, tapes, tapes_wanted, claim, complete, there, leaving, neighbours });
    }
    Ok(facts)
}

impl Facts {
    /// Whether a member is recorded, and what that comes to. Pure.
    fn decide(&self, member: &WrittenMember) -> Result<Verdict, CatalogRefusal> {
        let claim = self.claim.as_ref().filter(|(epoch, ..)| *epoch == member.ticket.epoch);
        let (_, kind, pool) = claim.ok_or(CatalogRefusal::Stale)?;
        if self.neighbours > 0 {
            return Err(CatalogRefusal::SameVolume);
        }
        let mut coverage = Coverage::new();
        for segment in &member.segments {
            coverage.add(segment.range).map_err(|_| CatalogRefusal::Misfit)?;
        }
        let new = column(coverage.bytes());
        if column(coverage.end()) > self.size {
            return Err(CatalogRefusal::Misfit);
        }
        if kind == "repack" {
            let fits = self.complete == Some(true) && new == self.leaving;
            return if fits { Ok(Verdict::Moved { from: pool.clone() }) } else { Err(CatalogRefusal::Misfit) };
        }
        match self.complete {
            Some(true) => Err(CatalogRefusal::Present),
            _ if self.there + new > self.size => Err(CatalogRefusal::Misfit),
            _ if self.there + new == self.size => Ok(Verdict::Complete),
            _ => Ok(Verdict::Partial),
        }
    }
}
