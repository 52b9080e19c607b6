//! The recall queue: stage requests, joined per bitfile, and what came of them.
//!
//! A request is open until it has an outcome. What it waits for is the one stage item of its bitfile in the work
//! queue, so requests for the same bitfile join by themselves, and a deleted bitfile takes its item and its requests
//! along.

mod ask;
mod bulk;
mod record;
mod release;

#[cfg(test)]
pub(crate) use ask::ALL as ASK;
#[cfg(test)]
pub(crate) use bulk::ALL as BULK;
pub(crate) use bulk::forget_bulks;
#[cfg(test)]
pub(crate) use record::ALL as RECORD;
pub(crate) use record::unused_files;
#[cfg(test)]
pub(crate) use release::ALL as RELEASE;

use std::time::Duration;

use serde::Serialize;
use wire::id::{AccountName, BitfileId, RequestId, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{MAX_PAGE, RequestFilter, RequestState, StageDemand, StageRequest};
use crate::sql::{Cursor, IdRow, args, bitfile_rows, json, statements};
use crate::time::Timestamp;

/// The holder of the pin that keeps a copy on disk which was there already when it was asked for.
pub(crate) const STAGE_PIN: &str = "stage";

macro_rules! requests {
    ($from:literal, $last:literal, $rest:literal) => {
        concat!(
            "waiting AS (
                SELECT id, ROW_NUMBER() OVER (ORDER BY id) - 1 AS ahead FROM request
                WHERE outcome IS NULL AND id <= ",
            $last,
            ")
            SELECT q.id, q.bitfile, q.size, q.account, q.priority, q.created_us, q.deadline_us, q.finished_us,
                q.lifetime_us, q.outcome, q.reason, w.id AS work, w.pool AS volume,
                CASE WHEN w.holder IS NOT NULL AND w.due_us > $2 THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END
                    AS active,
                w.reason AS note, o.ahead ",
            $from,
            " LEFT JOIN work w ON w.bitfile = q.bitfile AND w.kind = 'stage' AND q.outcome IS NULL
            LEFT JOIN waiting o ON o.id = q.id ",
            $rest,
            " ORDER BY q.id"
        )
    };
}

statements! {
    REQUESTS_BY_ID (id bigint) = concat!(
        ", ", requests!("FROM r JOIN request q ON q.id = r.id", "(SELECT MAX(r.id) FROM r)", "")
    );

    LIST_OPEN = concat!(
        "WITH ", requests!(
            "FROM (SELECT * FROM request WHERE outcome IS NULL AND id > $1
                AND (CAST($3 AS TEXT) IS NULL OR account = $3) ORDER BY id LIMIT $4) AS q",
            "9223372036854775807", ""
        )
    );

    LIST_ALL = concat!(
        "WITH ", requests!(
            "FROM (SELECT * FROM request WHERE id > $1 ORDER BY id LIMIT $3) AS q", "9223372036854775807", ""
        )
    );

    LIST_OF_ACCOUNT = concat!(
        "WITH ", requests!(
            "FROM (SELECT * FROM request WHERE account = $3 AND id > $1 ORDER BY id LIMIT $4) AS q",
            "9223372036854775807", ""
        )
    );

    CANCEL_REQUESTS (id bigint) =
        "UPDATE request SET outcome = 'cancelled', finished_us = $2
        WHERE outcome IS NULL AND id IN (SELECT r.id FROM r) AND (CAST($3 AS TEXT) IS NULL OR account = $3)
        RETURNING id, bitfile";

    CANCEL_FOR (id bigint) =
        "UPDATE request SET outcome = 'cancelled', finished_us = $2
        WHERE outcome IS NULL AND bitfile IN (SELECT r.id FROM r)";

    FAIL_FOR (id bigint, reason text) =
        "UPDATE request SET outcome = 'failed', reason = r.reason, finished_us = $2
        FROM r WHERE request.outcome IS NULL AND request.bitfile = r.id";

    EXPIRE_REQUESTS =
        "UPDATE request SET outcome = 'failed', finished_us = $1,
            reason = 'it was not on disk by its deadline: ask again with a later one'
        WHERE id IN (SELECT o.id FROM request o WHERE o.outcome IS NULL AND o.deadline_us <= $1
            ORDER BY o.deadline_us LIMIT $2)
        RETURNING bitfile";

    /// Stage work without a request, unless somebody is at it.
    DROP_UNWANTED (id bigint) =
        "DELETE FROM work WHERE kind = 'stage' AND bitfile IN (SELECT r.id FROM r)
            AND (holder IS NULL OR due_us <= $2)
            AND NOT EXISTS (SELECT 1 FROM request q WHERE q.bitfile = work.bitfile AND q.outcome IS NULL)";

    STAGE_DEMAND =
        "SELECT w.pool, q.account, CAST(COUNT(*) AS BIGINT) AS requests, CAST(SUM(q.size) AS BIGINT) AS bytes,
            MIN(q.created_us) AS oldest, MAX(q.priority) AS priority
        FROM request q JOIN work w ON w.bitfile = q.bitfile AND w.kind = 'stage'
        WHERE q.outcome IS NULL AND w.due_us <= $1 GROUP BY w.pool, q.account ORDER BY w.pool, q.account";

    END_PROMISES (id bigint) =
        "UPDATE copy SET expires_us = $2
        WHERE number = 0 AND expires_us > $2 AND bitfile IN (SELECT r.id FROM r)";

    END_STAGE_PINS (id bigint) =
        "DELETE FROM pin WHERE holder = $2 AND bitfile IN (SELECT r.id FROM r)";
}

impl Catalog {
    /// Requests by number; unknown and long forgotten ones are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn stage_requests(&self, ids: &[RequestId]) -> Result<Vec<StageRequest>> {
        let rows = self.rows(&REQUESTS_BY_ID, args![&request_rows(ids)?, self.now()]).await?;
        rows.iter().map(|row| read_request(&mut row.cursor())).collect()
    }

    /// Requests in the order in which they were asked.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list_requests(&self, filter: &RequestFilter) -> Result<Vec<StageRequest>> {
        let (after, limit) = (filter.after.unwrap_or(RequestId(0)), filter.limit.min(MAX_PAGE));
        let (account, now) = (filter.account.as_ref().map(AccountName::as_str), self.now());
        let rows = match account {
            _ if filter.open_only => self.rows(&LIST_OPEN, args![after, now, account, limit]).await?,
            Some(account) => self.rows(&LIST_OF_ACCOUNT, args![after, now, account, limit]).await?,
            None => self.rows(&LIST_ALL, args![after, now, limit]).await?,
        };
        rows.iter().map(|row| read_request(&mut row.cursor())).collect()
    }

    /// Cancels requests, only those of `account` if it is given. Work that nobody else waits for is dropped, unless
    /// it is being done. Returns those that were open.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn cancel_requests(&self, ids: Vec<RequestId>, account: Option<AccountName>) -> Result<Vec<RequestId>> {
        self.write((ids, account), |(ids, account), tx| Box::pin(cancel(ids, account.as_ref(), tx))).await
    }

    /// What waits, by cartridge and account: what the scheduler needs to choose the next mount.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn stage_demand(&self) -> Result<Vec<StageDemand>> {
        let rows = self.rows(&STAGE_DEMAND, args![self.now()]).await?;
        let read = |row: &crate::sql::Row| {
            let mut row = row.cursor();
            Ok(StageDemand {
                volume: row.name()?,
                account: row.name()?,
                requests: row.number()?,
                bytes: row.number()?,
                oldest: row.time()?,
                priority: priority(row.int()?)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Ends the promise of a staged copy early: it may be purged from now on.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release_stage(&self, bitfiles: Vec<BitfileId>) -> Result<()> {
        self.write(bitfiles, |bitfiles, tx| {
            Box::pin(async move {
                let (rows, now) = (bitfile_rows(bitfiles)?, tx.now);
                tx.execute(&END_PROMISES, args![&rows, now]).await?;
                tx.execute(&END_STAGE_PINS, args![&rows, STAGE_PIN]).await?;
                Ok(())
            })
        })
        .await
    }
}

async fn cancel(ids: &[RequestId], account: Option<&AccountName>, tx: &mut Tx) -> Result<Vec<RequestId>> {
    let (now, account) = (tx.now, account.map(AccountName::as_str));
    let (mut cancelled, mut bitfiles) = (Vec::new(), Vec::new());
    for row in tx.rows(&CANCEL_REQUESTS, args![&request_rows(ids)?, now, account]).await? {
        let mut row = row.cursor();
        cancelled.push(row.request()?);
        bitfiles.push(row.bitfile()?);
    }
    drop_unwanted(&bitfiles, tx).await?;
    cancelled.sort_unstable();
    Ok(cancelled)
}

/// Fails open requests past their deadline, and drops what nobody waits for any more. Returns how many failed.
pub(crate) async fn expire_requests(limit: u32, tx: &mut Tx) -> Result<u64> {
    let now = tx.now;
    let rows = tx.rows(&EXPIRE_REQUESTS, args![now, limit.min(MAX_PAGE)]).await?;
    let bitfiles = rows.iter().map(|row| row.cursor().bitfile()).collect::<Result<Vec<_>>>()?;
    drop_unwanted(&bitfiles, tx).await?;
    Ok(bitfiles.len() as u64)
}

/// Fails the open requests for these bitfiles with a reason each.
pub(crate) async fn fail_for(failures: &[(BitfileId, &str)], tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct Failed<'a> {
        id: i64,
        reason: &'a str,
    }
    if failures.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = failures.iter().map(|(id, reason)| Failed { id: id.column(), reason }).collect();
    let now = tx.now;
    tx.execute(&FAIL_FOR, args![&json(&rows)?, now]).await.map(drop)
}

/// Cancels the open requests for these bitfiles.
pub(crate) async fn cancel_for(bitfiles: &[BitfileId], tx: &mut Tx) -> Result<()> {
    if bitfiles.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    tx.execute(&CANCEL_FOR, args![&bitfile_rows(bitfiles)?, now]).await.map(drop)
}

/// Drops stage work of these bitfiles that no open request waits for, unless it is being done.
pub(crate) async fn drop_unwanted(bitfiles: &[BitfileId], tx: &mut Tx) -> Result<()> {
    if bitfiles.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    tx.execute(&DROP_UNWANTED, args![&bitfile_rows(bitfiles)?, now]).await.map(drop)
}

fn request_rows(ids: &[RequestId]) -> Result<String> {
    json(&ids.iter().map(|id| IdRow { id: id.column() }).collect::<Vec<_>>())
}

fn priority(value: i64) -> Result<i32> {
    i32::try_from(value).map_err(|_| CatalogError::corrupt(format!("{value} where a priority should be")))
}

/// Reads the columns of [`requests!`].
fn read_request(row: &mut Cursor<'_>) -> Result<StageRequest> {
    let (id, bitfile, size_bytes, account) = (row.request()?, row.bitfile()?, row.number()?, row.name()?);
    let priority = priority(row.int()?)?;
    let (created, deadline, finished) = (row.time()?, row.time()?, row.maybe_time()?);
    let lifetime = Duration::from_micros(row.number()?);
    let (outcome, reason) = (row.maybe_text()?, row.maybe_text()?);
    let work = row.maybe_number()?.map(wire::id::WorkId);
    let volume: Option<VolumeLabel> = row.maybe_name()?;
    let active = row.flag()?;
    let (note, ahead) = (row.maybe_text()?, row.maybe_number()?);
    let state = match outcome.as_deref() {
        None if active => RequestState::Active,
        None => RequestState::Queued,
        Some("completed") => RequestState::Completed,
        Some("cancelled") => RequestState::Cancelled,
        Some("failed") => RequestState::Failed { reason: reason.unwrap_or_default() },
        Some(other) => return Err(CatalogError::corrupt(format!("request {id} came to {other:?}"))),
    };
    Ok(StageRequest {
        id,
        bitfile,
        size_bytes,
        account,
        state,
        priority,
        created,
        deadline,
        finished,
        lifetime,
        work,
        volume,
        ahead,
        note,
    })
}

/// Until when a copy stays that arrives, or is asked for, now.
pub(crate) fn expiry(now: Timestamp, lifetime_us: i64) -> Timestamp {
    Timestamp(now.0.saturating_add(lifetime_us))
}
