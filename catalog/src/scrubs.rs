//! Scrubs: their work in the queue, how far they are, what they found.
//!
//! What was read is counted in the transaction that moves its work on, and only for claims in force: so each segment
//! is counted once, whatever is killed when, and a scrub goes on from its place.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::leases::check_fence;
use crate::queue::{fail, finish, ticket_rows};
use crate::record::{
    AfterFailure, AfterVerify, KEPT_SCRUBS, MAX_PAGE, NewScrub, Scrub, ScrubFound, ScrubItem, ScrubListed, ScrubTarget,
    Subject, Ticket, Verified, VerifiedSegment, WorkFailure,
};
use crate::sql::{IdRow, Row, args, column, json, statements};

/// Good results that are kept of one scrub: the latest. All are counted.
const KEPT_GOOD: u64 = 10_000;

/// Bad results that are kept of one scrub: the first. All are counted.
const KEPT_BAD: u64 = 100_000;

/// Items that one statement queues.
const ITEMS_AT_ONCE: usize = 1000;

macro_rules! queue_verify {
    ($subject:literal, $conflict:literal) => {
        concat!(
            "INSERT INTO work (id, kind, pool, ",
            $subject,
            ", bytes, created_us, due_us, epoch, failures, scrub)
            SELECT r.id, 'verify', r.pool, r.",
            $subject,
            ", r.bytes, CAST($2 AS BIGINT), CAST($2 AS BIGINT), 0, 0, CAST($3 AS BIGINT)
            FROM r WHERE r.",
            $subject,
            " IS NOT NULL ON CONFLICT ",
            $conflict,
            " DO UPDATE SET pool = excluded.pool, bytes = excluded.bytes, due_us = excluded.due_us, holder = NULL,
                failures = 0, reason = NULL, scrub = excluded.scrub, place = NULL"
        )
    };
}

statements! {
    BEGIN_SCRUB =
        "INSERT INTO scrub (id, scope, cos, listed, rate, total, total_bytes, done, done_bytes, bad, started_us)
        VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, $6)";

    FORGET_SCRUBS =
        "DELETE FROM scrub WHERE id IN (SELECT s.id FROM scrub s WHERE s.ended_us IS NOT NULL
            ORDER BY s.started_us DESC, s.id DESC LIMIT 1000 OFFSET $1) RETURNING id";

    FORGET_FOUND (id bigint) = "DELETE FROM scrub_result WHERE scrub IN (SELECT r.id FROM r)";

    /// What another scrub has in the queue is taken over, from its beginning: who asks last gets the whole answer.
    QUEUE_BITFILES (id bigint, pool text, bitfile bigint, volume text, bytes bigint) =
        queue_verify!("bitfile", "(bitfile, kind) WHERE bitfile IS NOT NULL");

    QUEUE_VOLUMES (id bigint, pool text, bitfile bigint, volume text, bytes bigint) =
        queue_verify!("volume", "(volume, kind) WHERE volume IS NOT NULL AND file IS NULL");

    ADD_TOTALS = "UPDATE scrub SET total = total + $2, total_bytes = total_bytes + $3 WHERE id = $1";

    LISTED = "UPDATE scrub SET place = $2, listed = $3 WHERE id = $1";

    VERIFIED (id bigint, epoch bigint) =
        "SELECT w.id, w.epoch, w.scrub FROM r JOIN work w ON w.id = r.id
        WHERE w.epoch = r.epoch AND w.holder IS NOT NULL ORDER BY w.id",
        "SELECT w.id, w.epoch, w.scrub FROM r JOIN work w ON w.id = r.id
        WHERE w.epoch = r.epoch AND w.holder IS NOT NULL ORDER BY w.id FOR UPDATE OF w";

    ADVANCE (id bigint, place text) = "UPDATE work SET place = r.place FROM r WHERE work.id = r.id";

    COUNT =
        "UPDATE scrub SET done = done + $2, done_bytes = done_bytes + $3, bad = bad + $4 WHERE id = $1
        RETURNING done, bad";

    KEEP_FOUND (number bigint, bitfile bigint, volume text, bytes bigint, problem text, checked_us bigint) =
        "INSERT INTO scrub_result (scrub, number, bitfile, volume, bytes, problem, checked_us)
        SELECT CAST($2 AS BIGINT), r.number, r.bitfile, r.volume, r.bytes, r.problem, r.checked_us FROM r";

    FORGET_GOOD =
        "DELETE FROM scrub_result WHERE scrub = $1 AND number > $2 AND number <= $3 AND problem IS NULL";

    /// A scrub is over when nothing of it is to be read any more, now or later.
    SETTLE =
        "UPDATE scrub SET ended_us = $1 WHERE ended_us IS NULL AND listed = 1 AND NOT EXISTS (SELECT 1 FROM work w
            WHERE w.scrub = scrub.id AND w.due_us < 9223372036854775807)";

    ALL_SCRUBS =
        "SELECT s.id, s.scope, s.cos, s.place, s.listed, s.rate, s.total, s.total_bytes, s.done, s.done_bytes, s.bad,
            s.started_us, s.ended_us
        FROM scrub s WHERE CAST($1 AS BIGINT) IS NULL OR s.id = $1 ORDER BY s.started_us DESC, s.id DESC";

    LIST_FOUND =
        "SELECT f.number, f.bitfile, f.volume, f.bytes, f.problem, f.checked_us FROM scrub_result f
        WHERE f.scrub = $1 AND f.number > $2 ORDER BY f.number LIMIT $3";
}

impl Catalog {
    /// Begins a scrub: the row that counts, and with it the work that is named one by one. Older scrubs that have
    /// ended are forgotten, beyond [`KEPT_SCRUBS`].
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn begin_scrub(&self, new: NewScrub) -> Result<Scrub> {
        let id = self.next_id().await?;
        let items = if let ScrubTarget::Items(items) = &new.what { items.len() } else { 0 };
        let first_work = self.next_work(items).await?;
        self.write((id, new, first_work), |(id, new, first_work), tx| Box::pin(begin(*id, new, *first_work, tx)))
            .await?;
        self.scrub(id).await
    }

    /// Queues a page of what a scrub of a class reads, and notes where the listing goes on.
    ///
    /// # Errors
    ///
    /// `Stale` if the lease is another's now.
    pub async fn list_scrub(&self, listed: ScrubListed) -> Result<()> {
        let first_work = self.next_work(listed.items.len()).await?;
        self.write((listed, first_work), |(listed, first_work), tx| {
            Box::pin(async move {
                check_fence(Some(&listed.fence), tx).await?;
                queue(listed.scrub, &listed.items, *first_work, tx).await?;
                let done = i64::from(listed.place.is_none());
                tx.execute(&LISTED, args![column(listed.scrub), listed.place.as_deref(), done]).await.map(drop)
            })
        })
        .await
    }

    async fn next_work(&self, items: usize) -> Result<u64> {
        let count = u32::try_from(items).map_err(|_| CatalogError::inconsistent("too much work at once"))?;
        Ok(self.next_ids(count).await?.start)
    }

    /// Notes what was read of claimed verifications, counts it for their scrubs and moves the work on, all in one
    /// transaction. Claims no longer in force change nothing. Returns those that were in force.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn record_verified(&self, verified: Vec<Verified>) -> Result<Vec<Ticket>> {
        self.write(verified, |verified, tx| Box::pin(record(verified, tx))).await
    }

    /// Ends the scrubs of which nothing is left to read: what was deleted or cancelled is not waited for.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn settle_scrubs(&self) -> Result<()> {
        self.write((), |(), tx| Box::pin(settle(tx))).await
    }

    /// All scrubs that are remembered, the newest first.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn scrubs(&self) -> Result<Vec<Scrub>> {
        self.rows(&ALL_SCRUBS, args![None::<i64>]).await?.iter().map(read_scrub).collect()
    }

    /// One scrub.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn scrub(&self, number: u64) -> Result<Scrub> {
        let row = self.row(&ALL_SCRUBS, args![Some(column(number))]).await?;
        row.as_ref().map(read_scrub).transpose()?.ok_or_else(|| CatalogError::not_found("scrub", number))
    }

    /// What a scrub found, behind the result of number `after`: the latest good ones and all bad ones, up to a bound.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn scrub_found(&self, scrub: u64, after: u64, limit: u32) -> Result<Vec<ScrubFound>> {
        let read = |row: &Row| {
            let mut row = row.cursor();
            Ok(ScrubFound {
                number: row.number()?,
                segment: VerifiedSegment {
                    bitfile: row.bitfile()?,
                    volume: row.name()?,
                    bytes: row.number()?,
                    problem: row.maybe_text()?,
                    checked: row.time()?,
                },
            })
        };
        self.rows(&LIST_FOUND, args![column(scrub), column(after), limit.min(MAX_PAGE)])
            .await?
            .iter()
            .map(read)
            .collect()
    }
}

async fn begin(id: u64, new: &NewScrub, first_work: u64, tx: &mut Tx) -> Result<()> {
    let (cos, items) = match &new.what {
        ScrubTarget::Class(class) => (Some(class.as_str()), [].as_slice()),
        ScrubTarget::Items(items) => (None, items.as_slice()),
    };
    let (listed, rate, now) = (i64::from(cos.is_none()), new.rate.map(column), tx.now);
    tx.execute(&BEGIN_SCRUB, args![column(id), &new.scope, cos, listed, rate, now]).await?;
    let forgotten = tx.rows(&FORGET_SCRUBS, args![KEPT_SCRUBS]).await?;
    let forgotten = forgotten.iter().map(|row| Ok(IdRow { id: row.cursor().int()? })).collect::<Result<Vec<_>>>()?;
    if !forgotten.is_empty() {
        tx.execute(&FORGET_FOUND, args![&json(&forgotten)?]).await?;
    }
    queue(id, items, first_work, tx).await?;
    settle(tx).await
}

/// Queues work of a scrub and adds it to what there is to read.
async fn queue(scrub: u64, items: &[ScrubItem], first_work: u64, tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct ItemRow<'a> {
        id: i64,
        pool: &'a str,
        bitfile: Option<i64>,
        volume: Option<&'a str>,
        bytes: i64,
    }
    let (now, number) = (tx.now, column(scrub));
    let mut first = first_work;
    for items in items.chunks(ITEMS_AT_ONCE) {
        let mut rows = Vec::with_capacity(items.len());
        for (item, id) in items.iter().zip(first..) {
            let (bitfile, volume) = match &item.subject {
                Subject::Bitfile(bitfile) => (Some(bitfile.column()), None),
                Subject::Volume(volume) => (None, Some(volume.as_str())),
                Subject::File { .. } => return Err(CatalogError::inconsistent("a scrub reads bitfiles and volumes")),
            };
            let bytes = column(item.bytes);
            rows.push(ItemRow { id: column(id), pool: item.volume.as_str(), bitfile, volume, bytes });
        }
        first += items.len() as u64;
        let rows = json(&rows)?;
        tx.execute(&QUEUE_BITFILES, args![&rows, now, number]).await?;
        tx.execute(&QUEUE_VOLUMES, args![&rows, now, number]).await?;
    }
    let segments: u64 = items.iter().map(|item| item.segments).sum();
    let bytes: u64 = items.iter().map(|item| item.bytes).sum();
    tx.execute(&ADD_TOTALS, args![number, column(segments), column(bytes)]).await?;
    Ok(())
}

async fn record(verified: &[Verified], tx: &mut Tx) -> Result<Vec<Ticket>> {
    #[derive(Serialize)]
    struct PlaceRow<'a> {
        id: i64,
        place: &'a str,
    }
    let tickets: Vec<Ticket> = verified.iter().map(|verified| verified.ticket).collect();
    let mut in_force = BTreeMap::new();
    for row in tx.rows(&VERIFIED, args![&ticket_rows(&tickets)?]).await? {
        let mut row = row.cursor();
        in_force.insert(Ticket { work: row.work()?, epoch: row.epoch()? }, row.maybe_number()?);
    }
    let (mut done, mut failures, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut found: BTreeMap<u64, Vec<&VerifiedSegment>> = BTreeMap::new();
    for verified in verified {
        let ticket = verified.ticket;
        let Some(scrub) = in_force.get(&ticket) else { continue };
        if let Some(scrub) = scrub {
            found.entry(*scrub).or_default().extend(&verified.found);
        }
        match &verified.next {
            AfterVerify::Done => done.push(ticket),
            AfterVerify::GoOn { place } => places.push(PlaceRow { id: ticket.work.column(), place }),
            AfterVerify::Volume { volume, reason } => {
                let next = AfterFailure::RetryFrom { pool: volume.to_string() };
                failures.push(WorkFailure { ticket, reason: reason.clone(), next });
            }
            AfterVerify::GiveUp { reason } => {
                failures.push(WorkFailure { ticket, reason: reason.clone(), next: AfterFailure::GiveUp });
            }
        }
    }
    finish(&done, tx).await?;
    fail(&failures, tx).await?;
    tx.execute(&ADVANCE, args![&json(&places)?]).await?;
    for (scrub, found) in found {
        count(scrub, &found, tx).await?;
    }
    settle(tx).await?;
    Ok(in_force.into_keys().collect())
}

/// Adds to what a scrub has found.
async fn count(scrub: u64, found: &[&VerifiedSegment], tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct FoundRow<'a> {
        number: i64,
        bitfile: i64,
        volume: &'a str,
        bytes: i64,
        problem: Option<&'a str>,
        checked_us: i64,
    }
    let bytes: u64 = found.iter().map(|found| found.bytes).sum();
    let bad = found.iter().filter(|found| found.problem.is_some()).count() as u64;
    let number = column(scrub);
    let counts = args![number, column(found.len() as u64), column(bytes), column(bad)];
    // A scrub that was forgotten has nothing to count.
    let Some(row) = tx.row(&COUNT, counts).await? else { return Ok(()) };
    let mut row = row.cursor();
    let (last, all_bad) = (row.number()?, row.number()?);
    let before = last.saturating_sub(found.len() as u64);
    let numbered = found.iter().zip(before + 1..);
    let kept = numbered.filter(|(found, _)| found.problem.is_none() || all_bad <= KEPT_BAD);
    let rows: Vec<_> = kept
        .map(|(found, number)| FoundRow {
            number: column(number),
            bitfile: found.bitfile.column(),
            volume: found.volume.as_str(),
            bytes: column(found.bytes),
            problem: found.problem.as_deref(),
            checked_us: found.checked.0,
        })
        .collect();
    tx.execute(&KEEP_FOUND, args![&json(&rows)?, number]).await?;
    // The window of good ones moves on by as many as came.
    let (from, to) = (before.saturating_sub(KEPT_GOOD), last.saturating_sub(KEPT_GOOD));
    tx.execute(&FORGET_GOOD, args![number, column(from), column(to)]).await?;
    Ok(())
}

async fn settle(tx: &mut Tx) -> Result<()> {
    let now = tx.now;
    tx.execute(&SETTLE, args![now]).await?;
    Ok(())
}

fn read_scrub(row: &Row) -> Result<Scrub> {
    let mut row = row.cursor();
    Ok(Scrub {
        id: row.number()?,
        scope: row.text()?,
        class: row.maybe_name()?,
        place: row.maybe_text()?,
        listed: row.flag()?,
        rate: row.maybe_number()?,
        total: row.number()?,
        total_bytes: row.number()?,
        done: row.number()?,
        done_bytes: row.number()?,
        bad: row.number()?,
        started: row.time()?,
        ended: row.maybe_time()?,
    })
}
