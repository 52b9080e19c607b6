//! A bucket's rules, and what waits to be delivered.

use tokio::sync::watch;
use wire::id::EntryId;

use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::objects::bucket_of_entry;
use crate::record::{Cause, Event, EventRule, EventsDropped, MAX_PAGE, QueuedEvent};
use crate::sql::{Row, args, column, json, statements};
use crate::time::Timestamp;

/// The most events that one transaction drops: others wait meanwhile.
const DROP_AT_ONCE: i64 = 5000;

statements! {
    SET_RULES = "UPDATE bucket SET notify = $2 WHERE entry = $1";

    EVENTS_OF = "SELECT e.number, e.facts FROM event e WHERE e.destination = $1 ORDER BY e.number LIMIT $2";

    NEXT_DESTINATION = "SELECT MIN(e.destination) FROM event e WHERE e.destination > $1";

    COUNT_EVENTS =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM event WHERE destination = $1 LIMIT $2) AS c";

    FORGET_EVENTS = "DELETE FROM event WHERE destination = $1 AND number <= $2";

    /// The last one that is dropped where so many are kept.
    LAST_OF_TOO_MANY =
        "SELECT e.number FROM event e WHERE e.destination = $1 ORDER BY e.number DESC LIMIT 1 OFFSET $2";

    /// The first one that is young enough: numbers grow with time, so those before it are not.
    FIRST_YOUNG =
        "SELECT e.number FROM event e WHERE e.destination = $1 AND e.created_us >= $2 ORDER BY e.number LIMIT 1";

    LAST_BEFORE =
        "SELECT e.number FROM event e WHERE e.destination = $1 AND e.number < $2 ORDER BY e.number DESC LIMIT 1";

    DROP_OLDEST =
        "DELETE FROM event WHERE destination = $1 AND number IN (SELECT e.number FROM event e
            WHERE e.destination = $1 AND e.number <= $2 ORDER BY e.number LIMIT $3)";
}

impl Catalog {
    /// Sets what is told of a bucket, and where to; the destinations are told that they are named.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn set_bucket_events(&self, bucket: EntryId, rules: Vec<EventRule>, cause: Cause) -> Result<()> {
        let text = if rules.is_empty() { None } else { Some(json(&rules)?) };
        self.write((bucket, text, cause), |(bucket, text, cause), tx| {
            Box::pin(async move {
                if tx.execute(&SET_RULES, args![*bucket, text.as_deref()]).await? == 0 {
                    return Err(CatalogError::not_found("bucket", bucket));
                }
                let bucket = bucket_of_entry(*bucket, tx).await?;
                tx.tell_test(&bucket, cause)
            })
        })
        .await
    }

    /// Changes whenever this handle or a clone of it has committed events. Those of other gateways are not seen.
    #[must_use]
    pub fn events_written(&self) -> watch::Receiver<u64> {
        self.batch().events_written()
    }

    /// The events that wait for a destination, in the order of their commits, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn events(&self, destination: &str, limit: u32) -> Result<Vec<QueuedEvent>> {
        let read = |row: &Row| {
            let mut row = row.cursor();
            let (number, facts) = (row.number()?, row.text()?);
            let event: Event = serde_json::from_str(&facts)
                .map_err(|error| CatalogError::corrupt(format!("event {number}: {error}")))?;
            Ok(QueuedEvent { number, event })
        };
        let rows = self.rows(&EVENTS_OF, args![destination, limit.clamp(1, MAX_PAGE)]).await?;
        rows.iter().map(read).collect()
    }

    /// Forgets the events of a destination up to this number: they are delivered.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn forget_events(&self, destination: &str, last: u64) -> Result<()> {
        self.write((destination.to_owned(), column(last)), |(destination, last), tx| {
            Box::pin(async move { tx.execute(&FORGET_EVENTS, args![destination, *last]).await.map(drop) })
        })
        .await
    }

    /// How many events wait for a destination; `most` if there are more.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn count_events(&self, destination: &str, most: u64) -> Result<u64> {
        let row = self.row(&COUNT_EVENTS, args![destination, column(most)]).await?;
        row.map_or(Ok(0), |row| row.cursor().number())
    }

    /// Every destination for which something waits, whether it is still known or not.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn event_destinations(&self) -> Result<Vec<String>> {
        let mut found: Vec<String> = Vec::new();
        loop {
            let behind = found.last().map_or("", String::as_str);
            let row = self.row(&NEXT_DESTINATION, args![behind]).await?;
            match row.map_or(Ok(None), |row| row.cursor().maybe_text())? {
                Some(next) => found.push(next),
                None => return Ok(found),
            }
        }
    }

    /// Drops events of a destination that are older than `before`, and the oldest beyond the latest `keep`, so that
    /// nothing grows for ever. Each transaction drops a few thousand; others have their turn between.
    ///
    /// # Errors
    ///
    /// Only those of the database; some may be dropped then.
    pub async fn trim_events(&self, destination: &str, before: Timestamp, keep: u64) -> Result<EventsDropped> {
        let Some(last) = self.number(&LAST_OF_TOO_MANY, destination, 0).await? else {
            return Ok(EventsDropped::default());
        };
        // Looked for after the last one, so that what comes meanwhile is not among the old.
        let old = match self.number(&FIRST_YOUNG, destination, before.0).await? {
            Some(first) => self.number(&LAST_BEFORE, destination, first).await?,
            None => Some(last),
        };
        let old = match old {
            Some(last) => self.drop_events(destination, last).await?,
            None => 0,
        };
        let many = match self.number(&LAST_OF_TOO_MANY, destination, column(keep)).await? {
            Some(last) => self.drop_events(destination, last).await?,
            None => 0,
        };
        Ok(EventsDropped { old, many })
    }

    async fn number(&self, statement: &crate::sql::Statement, destination: &str, than: i64) -> Result<Option<i64>> {
        self.row(statement, args![destination, than]).await?.map(|row| row.cursor().int()).transpose()
    }

    async fn drop_events(&self, destination: &str, last: i64) -> Result<u64> {
        let mut dropped = 0;
        loop {
            let job = (destination.to_owned(), last);
            let some = self.write(job, |(destination, last), tx| {
                Box::pin(async move { tx.execute(&DROP_OLDEST, args![destination, *last, DROP_AT_ONCE]).await })
            });
            let some = some.await?;
            dropped += some;
            if some < DROP_AT_ONCE.unsigned_abs() {
                return Ok(dropped);
            }
        }
    }
}
