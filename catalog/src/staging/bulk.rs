//! Stage requests for many files under one number: asking, looking, dropping, forgetting.
//!
//! A bulk request holds no state of its own: each file's is that of its stage request, so that it joins with those of
//! other doors and survives whatever they survive. What could not be asked for is kept with the reason.

use serde::Serialize;
use wire::id::{AccountName, RequestId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{Bulk, BulkFile, NewBulk, NewRequest, RequestState, StageRequest};
use crate::sql::{Row, args, column, json, statements};
use crate::staging::ask::ask;
use crate::staging::cancel;
use crate::time::Timestamp;

/// How many are forgotten at a time: each may have thousands of files.
const FORGET_AT_ONCE: u32 = 10;

statements! {
    INSERT_BULK = "INSERT INTO bulk (id, account, created_us) VALUES ($1, $2, $3)";

    INSERT_BULK_FILES (number bigint, path text, request bigint, reason text) =
        "INSERT INTO bulk_file (bulk, number, path, request, reason)
        SELECT CAST($2 AS TEXT), r.number, r.path, r.request, r.reason FROM r";

    ONE_BULK = "SELECT account, created_us FROM bulk WHERE id = $1";

    /// A file whose work failed and is tried again has been started.
    BULK_FILES =
        "SELECT f.path, f.reason AS refused, q.id, q.bitfile, q.outcome, q.reason, q.finished_us,
            CASE WHEN w.holder IS NOT NULL AND w.due_us > $2 OR w.failures > 0
                THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END AS started
        FROM bulk_file f LEFT JOIN request q ON q.id = f.request
        LEFT JOIN work w ON w.bitfile = q.bitfile AND w.kind = 'stage' AND q.outcome IS NULL
        WHERE f.bulk = $1 ORDER BY f.number";

    BULK_REQUESTS = "SELECT f.request FROM bulk_file f WHERE f.bulk = $1 AND f.request IS NOT NULL";

    END_BULK = "UPDATE bulk SET ended_us = $2 WHERE id = $1 AND ended_us IS NULL";

    OPEN_BULKS = "SELECT CAST(COUNT(*) AS BIGINT) FROM bulk WHERE account = $1 AND ended_us IS NULL";

    /// Those that nobody has looked at since their last file came to an end.
    END_BULKS =
        "UPDATE bulk SET ended_us = $2 WHERE account = $1 AND ended_us IS NULL AND NOT EXISTS
            (SELECT 1 FROM bulk_file f JOIN request q ON q.id = f.request
            WHERE f.bulk = bulk.id AND q.outcome IS NULL)";

    OLD_BULKS =
        "SELECT b.id FROM bulk b WHERE b.created_us <= $1 AND NOT EXISTS
            (SELECT 1 FROM bulk_file f JOIN request q ON q.id = f.request
            WHERE f.bulk = b.id AND (q.outcome IS NULL OR q.finished_us > $1))
        ORDER BY b.created_us LIMIT $2";

    DROP_BULK_FILES = "DELETE FROM bulk_file WHERE bulk = $1";

    DROP_BULK = "DELETE FROM bulk WHERE id = $1";
}

#[derive(Serialize)]
struct FileRow<'a> {
    number: usize,
    path: &'a str,
    request: Option<i64>,
    reason: Option<&'a str>,
}

impl Catalog {
    /// Asks for many files under one number, in one transaction; answers the stage requests that were made, in the
    /// order of the files that have one.
    ///
    /// # Errors
    ///
    /// Only those of the database: a file that cannot be staged has failed.
    pub async fn put_bulk(&self, new: NewBulk) -> Result<Vec<StageRequest>> {
        let wishes: Vec<_> = new.files.iter().filter_map(|file| file.wish.clone().ok()).collect();
        let count = u32::try_from(wishes.len()).ok().and_then(|count| count.checked_mul(2));
        let count = count.ok_or_else(|| CatalogError::inconsistent("too many files at once"))?;
        let first_id = self.next_ids(count.max(1)).await?.start;
        self.write((new, wishes, first_id), |(new, wishes, first_id), tx| Box::pin(put(new, wishes, *first_id, tx)))
            .await
    }

    /// A bulk request and how far each of its files is; `None` if there is none of that number, any more.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn bulk(&self, id: &str) -> Result<Option<Bulk>> {
        let Some(row) = self.row(&ONE_BULK, args![id]).await? else { return Ok(None) };
        let (account, created) = {
            let mut row = row.cursor();
            (row.name()?, row.time()?)
        };
        let rows = self.rows(&BULK_FILES, args![id, self.now()]).await?;
        let files = rows.iter().map(|row| read_file(row, created)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Bulk { id: id.to_owned(), account, created, files }))
    }

    /// Notes that every file of a bulk request has come to an end.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn end_bulk(&self, id: &str, ended: Timestamp) -> Result<()> {
        self.write((id.to_owned(), ended), |(id, ended), tx| {
            Box::pin(async move { tx.execute(&END_BULK, args![id, *ended]).await.map(drop) })
        })
        .await
    }

    /// How many bulk requests of an account have files that have not come to an end: at most so many, since one that
    /// has may not be noted yet. From `many` on it is counted exactly.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn open_bulks(&self, account: &AccountName, many: u64) -> Result<u64> {
        let count = self.count_open_bulks(account).await?;
        if count < many {
            return Ok(count);
        }
        self.write(account.clone(), |account, tx| {
            Box::pin(async move {
                let now = tx.now;
                tx.execute(&END_BULKS, args![account, now]).await.map(drop)
            })
        })
        .await?;
        self.count_open_bulks(account).await
    }

    async fn count_open_bulks(&self, account: &AccountName) -> Result<u64> {
        let row = self.row(&OPEN_BULKS, args![account]).await?;
        row.ok_or_else(|| CatalogError::corrupt("a count has no row"))?.cursor().number()
    }

    /// Cancels what is open of a bulk request and forgets it. Returns the stage requests that were open; those that
    /// are completed keep their promise.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn drop_bulk(&self, id: &str) -> Result<Vec<RequestId>> {
        self.write(id.to_owned(), |id, tx| {
            Box::pin(async move {
                let rows = tx.rows(&BULK_REQUESTS, args![id]).await?;
                let requests = rows.iter().map(|row| row.cursor().request()).collect::<Result<Vec<_>>>()?;
                let cancelled = cancel(&requests, None, tx).await?;
                tx.execute(&DROP_BULK_FILES, args![id]).await?;
                tx.execute(&DROP_BULK, args![id]).await?;
                Ok(cancelled)
            })
        })
        .await
    }
}

async fn put(new: &NewBulk, wishes: &[NewRequest], first_id: u64, tx: &mut Tx) -> Result<Vec<StageRequest>> {
    let requests = if wishes.is_empty() { Vec::new() } else { ask(wishes, first_id, tx).await? };
    // Numbers are given in the order of the wishes, two for each.
    let mut ids = (first_id..).step_by(2);
    let rows = new.files.iter().enumerate().map(|(number, file)| FileRow {
        number,
        path: &file.path,
        request: file.wish.is_ok().then(|| ids.next()).flatten().map(column),
        reason: file.wish.as_ref().err().map(String::as_str),
    });
    let rows = json(&rows.collect::<Vec<_>>())?;
    let now = tx.now;
    tx.execute(&INSERT_BULK, args![&new.id, &new.account, now]).await?;
    tx.execute(&INSERT_BULK_FILES, args![&rows, &new.id]).await?;
    Ok(requests)
}

fn read_file(row: &Row, created: Timestamp) -> Result<BulkFile> {
    let mut row = row.cursor();
    let (path, refused) = (row.text()?, row.maybe_text()?);
    let request = row.maybe_number()?.map(RequestId);
    let bitfile = row.maybe_number()?.map(wire::id::BitfileId);
    let (outcome, reason, finished) = (row.maybe_text()?, row.maybe_text()?, row.maybe_time()?);
    let started = row.flag()?;
    let state = match (&request, outcome.as_deref()) {
        (None, _) => RequestState::Failed { reason: refused.unwrap_or_default() },
        (Some(_), None) if started => RequestState::Active,
        (Some(_), None) => RequestState::Queued,
        (Some(_), Some("completed")) => RequestState::Completed,
        (Some(_), Some("cancelled")) => RequestState::Cancelled,
        (Some(_), Some("failed")) => RequestState::Failed { reason: reason.unwrap_or_default() },
        (Some(id), Some(other)) => return Err(CatalogError::corrupt(format!("request {id} came to {other:?}"))),
    };
    let finished = if request.is_none() { Some(created) } else { finished };
    Ok(BulkFile { path, request: request.zip(bitfile), state, finished })
}

/// Forgets bulk requests that ended long ago.
pub(crate) async fn forget_bulks(before: Timestamp, tx: &mut Tx) -> Result<()> {
    for row in tx.rows(&OLD_BULKS, args![before, FORGET_AT_ONCE]).await? {
        let id = row.cursor().text()?;
        tx.execute(&DROP_BULK_FILES, args![&id]).await?;
        tx.execute(&DROP_BULK, args![&id]).await?;
    }
    Ok(())
}
