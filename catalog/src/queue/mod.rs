//! The durable work queue: enqueue, claim with a lease, renew, finish, fail, cancel.
//!
//! One number says when an item may be claimed: `due_us` is its start, its next attempt, or the end of the lease
//! under which it is claimed. So a claim whose holder died is due again by itself, and one index serves all. A claim
//! is in force while its epoch is the item's and the item has a holder.

mod enqueue;

#[cfg(test)]
pub(crate) use enqueue::ALL as ENQUEUE;
pub(crate) use enqueue::{Garbage, queue_reclaim};

use std::time::Duration;

use serde::Serialize;
use wire::id::{FileId, WorkId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{
    AfterFailure, Claim, DEMAND_LIMIT, Holder, MAX_PAGE, PoolDemand, Subject, Ticket, WorkFailure, WorkItem, WorkKind,
};
use crate::sql::{Cursor, IdRow, Row, args, column, json, statements};
use crate::staging::{cancel_for, drop_unwanted, fail_for};
use crate::time::Timestamp;

macro_rules! work_columns {
    () => {
        "w.id, w.kind, w.pool, w.bitfile, w.volume, w.file, w.bytes, w.created_us, w.due_us, w.deadline_us, w.epoch, \
         w.holder, w.failures, w.reason, w.scrub, w.place"
    };
}

macro_rules! claim {
    ($begin:literal, $lock:literal) => {
        concat!(
            $begin,
            "SELECT id, bytes, due_us FROM work
            WHERE kind = $1 AND pool = $2 AND due_us <= $3 AND (deadline_us IS NULL OR deadline_us > $3)
            ORDER BY due_us, id LIMIT $4 ",
            $lock,
            "),
            chosen AS (SELECT id, SUM(bytes) OVER (ORDER BY due_us, id) - bytes AS ahead FROM candidate)
            UPDATE work AS w SET holder = $6, epoch = epoch + 1, due_us = $7
            WHERE id IN (SELECT id FROM chosen WHERE ahead < $5)
            RETURNING id, kind, pool, bitfile, volume, file, bytes, created_us, due_us, deadline_us, epoch, holder,
                failures, reason, scrub, place"
        )
    };
}

statements! {
    CLAIM = claim!("WITH candidate AS (", ""),
        claim!("WITH candidate AS MATERIALIZED (", "FOR UPDATE SKIP LOCKED");

    RENEW (id bigint, epoch bigint) =
        "UPDATE work SET due_us = $2 FROM r
        WHERE work.id = r.id AND work.epoch = r.epoch AND work.holder IS NOT NULL RETURNING work.id, work.epoch";

    FINISH (id bigint, epoch bigint) =
        "DELETE FROM work WHERE holder IS NOT NULL AND (id, epoch) IN (SELECT r.id, r.epoch FROM r)
        RETURNING id, epoch";

    FAIL (id bigint, epoch bigint, reason text, due_us bigint, pool text, failed bigint) =
        "UPDATE work SET due_us = r.due_us, holder = NULL, reason = r.reason, failures = work.failures + r.failed,
            pool = COALESCE(r.pool, work.pool)
        FROM r WHERE work.id = r.id AND work.epoch = r.epoch AND work.holder IS NOT NULL
        RETURNING work.id, work.epoch, work.kind, work.bitfile";

    /// What was not tried goes back as it was.
    GIVE_BACK (id bigint, epoch bigint) =
        "UPDATE work SET due_us = $2, holder = NULL FROM r
        WHERE work.id = r.id AND work.epoch = r.epoch AND work.holder IS NOT NULL RETURNING work.id, work.epoch";

    REMOVE_WORK (id bigint) =
        "DELETE FROM work WHERE id IN (SELECT r.id FROM r) RETURNING id, kind, bitfile";

    RETRY_WORK (id bigint) =
        "UPDATE work SET due_us = $2 WHERE holder IS NULL AND id IN (SELECT r.id FROM r) RETURNING id";

    /// Work whose deadline has passed waits for a person.
    PARK_OVERDUE =
        "UPDATE work SET due_us = 9223372036854775807, holder = NULL, deadline_us = NULL, reason = 'its deadline passed'
        WHERE id IN (SELECT o.id FROM work o WHERE o.deadline_us IS NOT NULL AND o.deadline_us <= $1
            ORDER BY o.deadline_us LIMIT $2)";

    DEMAND =
        "WITH RECURSIVE pools AS (
            SELECT MIN(pool) AS pool FROM work WHERE kind = $1
            UNION ALL
            SELECT (SELECT MIN(w.pool) FROM work w WHERE w.kind = $1 AND w.pool > p.pool) FROM pools p
            WHERE p.pool IS NOT NULL
        )
        SELECT p.pool,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM work w
                WHERE w.kind = $1 AND w.pool = p.pool AND w.due_us <= $2 LIMIT $3) AS c) AS items,
            (SELECT CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) FROM (SELECT w.bytes FROM work w
                WHERE w.kind = $1 AND w.pool = p.pool AND w.due_us <= $2 LIMIT $3) AS c) AS bytes,
            (SELECT MIN(c.created_us) FROM (SELECT w.created_us FROM work w
                WHERE w.kind = $1 AND w.pool = p.pool AND w.due_us <= $2 LIMIT $3) AS c) AS oldest
        FROM pools p WHERE p.pool IS NOT NULL ORDER BY p.pool";

    LIST_WORK = concat!(
        "SELECT ", work_columns!(), " FROM work w WHERE w.id > $1 AND (CAST($2 AS TEXT) IS NULL OR w.kind = $2)
        ORDER BY w.id LIMIT $3"
    );

}

impl Catalog {
    /// Claims due items under one key, those due first first. Two callers never claim the same item; a claim whose
    /// lease ran out is due again.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<WorkItem>> {
        self.write(claim, |claim, tx| Box::pin(take(claim, tx))).await
    }

    /// Extends the lease of claims. Returns those still in force; the others are lost and must be dropped.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn renew(&self, tickets: Vec<Ticket>, lease: Duration) -> Result<Vec<Ticket>> {
        self.write((tickets, lease), |(tickets, lease), tx| {
            Box::pin(async move {
                let until = tx.now.after(*lease);
                read_tickets(&tx.rows(&RENEW, args![&ticket_rows(tickets)?, until]).await?)
            })
        })
        .await
    }

    /// Removes work that is done and leaves no other record (reclaim, verify, repack of a volume). Returns the
    /// claims that were in force.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn finish(&self, tickets: Vec<Ticket>) -> Result<Vec<Ticket>> {
        self.write(tickets, |tickets, tx| Box::pin(finish(tickets, tx))).await
    }

    /// Notes failures and what happens next. Claims no longer in force are passed over. Returns the claims that
    /// were in force.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn fail(&self, failures: Vec<WorkFailure>) -> Result<Vec<Ticket>> {
        self.write(failures, |failures, tx| Box::pin(fail(failures, tx))).await
    }

    /// Removes items whoever holds them; stage requests that wait for them are cancelled. Returns those that were
    /// there.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn cancel_work(&self, work: Vec<WorkId>) -> Result<Vec<WorkId>> {
        self.write(work, |work, tx| Box::pin(cancel(work, tx))).await
    }

    /// Makes items due now that wait for their next attempt or for a person. Returns those that were there.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn retry_work(&self, work: Vec<WorkId>) -> Result<Vec<WorkId>> {
        self.write(work, |work, tx| {
            Box::pin(async move {
                let now = tx.now;
                let rows = tx.rows(&RETRY_WORK, args![&work_rows(work)?, now]).await?;
                rows.iter().map(|row| row.cursor().work()).collect()
            })
        })
        .await
    }

    /// Gives up work whose deadline has passed and fails stage requests whose deadline has passed, at most `limit`
    /// of each; a stage that nobody wants any more is dropped. Returns how many requests failed.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn expire(&self, limit: u32) -> Result<u64> {
        self.write(limit, |limit, tx| {
            Box::pin(async move {
                let now = tx.now;
                tx.execute(&PARK_OVERDUE, args![now, *limit]).await?;
                crate::staging::expire_requests(*limit, tx).await
            })
        })
        .await
    }

    /// What is due of one kind, by key. Costs by the number of keys and of due items up to a limit, not by the
    /// length of the queue.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn demand(&self, kind: WorkKind) -> Result<Vec<PoolDemand>> {
        let rows = self.rows(&DEMAND, args![kind.name(), self.now(), column(DEMAND_LIMIT)]).await?;
        let mut demands = Vec::new();
        for row in &rows {
            let mut row = row.cursor();
            let (pool, items, bytes) = (row.text()?, row.number()?, row.number()?);
            if let Some(oldest) = row.maybe_time()? {
                demands.push(PoolDemand { pool, items, bytes, oldest });
            }
        }
        Ok(demands)
    }

    /// Items by number, of one kind or of all, behind `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn work_items(&self, kind: Option<WorkKind>, after: Option<WorkId>, limit: u32) -> Result<Vec<WorkItem>> {
        let (after, kind) = (after.unwrap_or(WorkId(0)), kind.map(WorkKind::name));
        let rows = self.rows(&LIST_WORK, args![after, kind, limit.min(MAX_PAGE)]).await?;
        rows.iter().map(|row| read_work(&mut row.cursor())).collect()
    }
}

async fn take(claim: &Claim, tx: &mut Tx) -> Result<Vec<WorkItem>> {
    let now = tx.now;
    let (until, budget) = (now.after(claim.lease), column(claim.max_bytes.max(1)));
    let rows = tx
        .rows(
            &CLAIM,
            args![
                claim.kind.name(),
                &claim.pool,
                now,
                claim.max_items.min(MAX_PAGE),
                budget,
                claim.holder.as_str(),
                until
            ],
        )
        .await?;
    let mut items = rows.iter().map(|row| read_work(&mut row.cursor())).collect::<Result<Vec<_>>>()?;
    items.sort_unstable_by_key(|item| item.id);
    Ok(items)
}

/// Removes work that is done.
pub(crate) async fn finish(tickets: &[Ticket], tx: &mut Tx) -> Result<Vec<Ticket>> {
    read_tickets(&tx.rows(&FINISH, args![&ticket_rows(tickets)?]).await?)
}

/// Notes failures.
pub(crate) async fn fail(failures: &[WorkFailure], tx: &mut Tx) -> Result<Vec<Ticket>> {
    #[derive(Serialize)]
    struct FailRow<'a> {
        id: i64,
        epoch: i64,
        reason: &'a str,
        due_us: i64,
        pool: Option<&'a str>,
        failed: i64,
    }
    let (mut rows, mut back) = (Vec::new(), Vec::new());
    for failure in failures {
        let (due, pool) = match &failure.next {
            AfterFailure::Release => {
                back.push(failure.ticket);
                continue;
            }
            AfterFailure::Retry(wait) => (tx.now.after(*wait), None),
            AfterFailure::RetryFrom { pool } => (tx.now, Some(pool.as_str())),
            AfterFailure::GiveUp => (Timestamp::NEVER, None),
        };
        let (id, epoch) = (failure.ticket.work.column(), column(failure.ticket.epoch.0));
        rows.push(FailRow { id, epoch, reason: &failure.reason, due_us: due.0, pool, failed: 1 });
    }
    let now = tx.now;
    let mut tickets = read_tickets(&tx.rows(&GIVE_BACK, args![&ticket_rows(&back)?, now]).await?)?;
    let (mut stages, mut given_up) = (Vec::new(), Vec::new());
    for row in tx.rows(&FAIL, args![&json(&rows)?]).await? {
        let mut row = row.cursor();
        let ticket = Ticket { work: row.work()?, epoch: row.epoch()? };
        let (kind, bitfile) = (row.text()?, row.maybe_bitfile()?);
        tickets.push(ticket);
        if let Some(bitfile) = bitfile.filter(|_| kind == WorkKind::Stage.name()) {
            stages.push(bitfile);
            let failure = failures.iter().find(|failure| failure.ticket == ticket);
            if let Some(failure) = failure.filter(|failure| failure.next == AfterFailure::GiveUp) {
                given_up.push((bitfile, failure.reason.as_str()));
            }
        }
    }
    // A stage that was given up has nobody left to wait for it, and goes with those nobody wants any more.
    fail_for(&given_up, tx).await?;
    drop_unwanted(&stages, tx).await?;
    Ok(tickets)
}

async fn cancel(work: &[WorkId], tx: &mut Tx) -> Result<Vec<WorkId>> {
    let (mut removed, mut stages) = (Vec::new(), Vec::new());
    for row in tx.rows(&REMOVE_WORK, args![&work_rows(work)?]).await? {
        let mut row = row.cursor();
        removed.push(row.work()?);
        let (kind, bitfile) = (row.text()?, row.maybe_bitfile()?);
        stages.extend(bitfile.filter(|_| kind == WorkKind::Stage.name()));
    }
    cancel_for(&stages, tx).await?;
    Ok(removed)
}

fn work_rows(work: &[WorkId]) -> Result<String> {
    json(&work.iter().map(|work| IdRow { id: work.column() }).collect::<Vec<_>>())
}

/// The text for `$1` of a bulk statement about claims.
pub(crate) fn ticket_rows(tickets: &[Ticket]) -> Result<String> {
    #[derive(Serialize)]
    struct TicketRow {
        id: i64,
        epoch: i64,
    }
    let row = |ticket: &Ticket| TicketRow { id: ticket.work.column(), epoch: column(ticket.epoch.0) };
    json(&tickets.iter().map(row).collect::<Vec<_>>())
}

fn read_tickets(rows: &[Row]) -> Result<Vec<Ticket>> {
    let read = |row: &Row| {
        let mut row = row.cursor();
        Ok(Ticket { work: row.work()?, epoch: row.epoch()? })
    };
    rows.iter().map(read).collect()
}

fn read_work(row: &mut Cursor<'_>) -> Result<WorkItem> {
    let id = row.work()?;
    let kind = row.text()?;
    let kind =
        WorkKind::from_name(&kind).ok_or_else(|| CatalogError::corrupt(format!("work {id} is of kind {kind:?}")))?;
    let pool = row.text()?;
    let subject = match (row.maybe_bitfile()?, row.maybe_name()?, row.maybe_number()?) {
        (Some(bitfile), None, None) => Subject::Bitfile(bitfile),
        (None, Some(volume), Some(file)) => Subject::File { volume, file: FileId(file) },
        (None, Some(volume), None) => Subject::Volume(volume),
        _ => return Err(CatalogError::corrupt(format!("work {id} has no subject"))),
    };
    Ok(WorkItem {
        id,
        kind,
        subject,
        pool,
        bytes: row.number()?,
        created: row.time()?,
        due: row.time()?,
        deadline: row.maybe_time()?,
        epoch: row.epoch()?,
        holder: row.maybe_text()?.map(Holder::from_column),
        failures: row.small()?,
        reason: row.maybe_text()?,
        scrub: row.maybe_number()?,
        place: row.maybe_text()?,
    })
}
