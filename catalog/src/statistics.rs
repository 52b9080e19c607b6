//! Numbers for the operator: sums over accounts and volumes, and queues counted up to a limit.

use serde::Serialize;

use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{COUNT_LIMIT, QueueLength, Statistics, WorkKind};
use crate::sql::{args, column, json, statements};
use crate::time::Timestamp;

statements! {
    VERSION = "SELECT CAST('SQLite ' || sqlite_version() AS TEXT) AS version",
        "SELECT CAST('PostgreSQL ' || current_setting('server_version') AS TEXT) AS version";

    TOTALS =
        "SELECT
        (SELECT CAST(COALESCE(SUM(files), 0) AS BIGINT) FROM usage WHERE kind = 'account') AS files,
        (SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM usage WHERE kind = 'account') AS bytes,
        (SELECT CAST(COALESCE(SUM(live_bytes), 0) AS BIGINT) FROM volume WHERE mover IS NOT NULL) AS disk_bytes,
        (SELECT CAST(COALESCE(SUM(live_bytes), 0) AS BIGINT) FROM volume WHERE library IS NOT NULL) AS tape_bytes,
        (SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM request WHERE outcome IS NULL LIMIT $1) AS q)
            AS requests,
        (SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM deleted LIMIT $1) AS d) AS deleted,
        (SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM partial LIMIT $1) AS p) AS partials";

    /// Every key of every kind: found by jumping from one to the next in the index.
    QUEUES (kind text) =
        ", pools AS (
            SELECT r.kind AS kind, (SELECT MIN(w.pool) FROM work w WHERE w.kind = r.kind) AS pool FROM r
            UNION ALL
            SELECT p.kind, (SELECT MIN(w.pool) FROM work w WHERE w.kind = p.kind AND w.pool > p.pool)
            FROM pools p WHERE p.pool IS NOT NULL
        )
        SELECT p.kind,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM
                (SELECT 1 AS one FROM work w WHERE w.kind = p.kind AND w.pool = p.pool LIMIT $2) AS c) AS items,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM
                (SELECT 1 AS one FROM work w WHERE w.kind = p.kind AND w.pool = p.pool AND w.due_us = $3 LIMIT $2) AS c)
                AS parked,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM work w
                WHERE w.kind = p.kind AND w.pool = p.pool AND w.due_us > $4 AND w.holder IS NOT NULL LIMIT $2) AS c)
                AS running,
            (SELECT CAST(COALESCE(SUM(c.bytes), 0) AS BIGINT) FROM
                (SELECT w.bytes FROM work w WHERE w.kind = p.kind AND w.pool = p.pool LIMIT $2) AS c) AS bytes,
            (SELECT MIN(c.created_us) FROM
                (SELECT w.created_us FROM work w WHERE w.kind = p.kind AND w.pool = p.pool LIMIT $2) AS c) AS oldest,
            (SELECT MIN(w.due_us) FROM work w WHERE w.kind = p.kind AND w.pool = p.pool) AS next_due
        FROM pools p WHERE p.pool IS NOT NULL ORDER BY p.kind";
}

impl Catalog {
    /// Counts of files, bytes and queues; the cost does not grow with the number of files.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn statistics(&self) -> Result<Statistics> {
        let row = self.row(&TOTALS, args![column(COUNT_LIMIT)]).await?;
        let row = row.ok_or_else(|| CatalogError::corrupt("a query without a table had no row"))?;
        let mut row = row.cursor();
        Ok(Statistics {
            files: row.number()?,
            bytes: row.number()?,
            disk_bytes: row.number()?,
            tape_bytes: row.number()?,
            open_requests: row.number()?,
            deleted_files: row.number()?,
            partial_uploads: row.number()?,
            queues: self.queues().await?,
        })
    }

    /// Kind and version of the database, for people.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn database(&self) -> Result<String> {
        let row = self.row(&VERSION, &[]).await?;
        let row = row.ok_or_else(|| CatalogError::corrupt("a query without a table had no row"))?;
        row.cursor().text()
    }

    async fn queues(&self) -> Result<Vec<QueueLength>> {
        #[derive(Serialize)]
        struct Kind {
            kind: &'static str,
        }
        let empty =
            |kind| QueueLength { kind, items: 0, parked: 0, running: 0, bytes: 0, oldest: None, next_due: None };
        let mut queues: Vec<_> = WorkKind::ALL.into_iter().map(empty).collect();
        let kinds: Vec<_> = WorkKind::ALL.iter().map(|kind| Kind { kind: kind.name() }).collect();
        let rows = self.rows(&QUEUES, args![&json(&kinds)?, column(COUNT_LIMIT), Timestamp::NEVER, self.now()]).await?;
        for row in &rows {
            let mut row = row.cursor();
            let kind = row.text()?;
            let queue = queues.iter_mut().find(|queue| queue.kind.name() == kind);
            let queue = queue.ok_or_else(|| CatalogError::corrupt(format!("work of kind {kind:?}")))?;
            queue.items = queue.items.saturating_add(row.number()?).min(COUNT_LIMIT);
            queue.parked = queue.parked.saturating_add(row.number()?).min(COUNT_LIMIT);
            queue.running = queue.running.saturating_add(row.number()?).min(COUNT_LIMIT);
            queue.bytes = queue.bytes.saturating_add(row.number()?);
            queue.oldest = [queue.oldest, row.maybe_time()?].into_iter().flatten().min();
            let due = row.maybe_time()?.filter(|due| *due < Timestamp::NEVER);
            queue.next_due = [queue.next_due, due].into_iter().flatten().min();
        }
        Ok(queues)
    }
}
