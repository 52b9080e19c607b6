//! Telling, within a transaction: rules choose at once, rows are written last.
//!
//! Numbers come from one counter, whose row is held until the commit: whoever takes a later number commits later, so
//! who reads up to a number has missed nothing below it. It is taken as the last thing of a transaction: whoever waits
//! for it holds all that he will want, so that nobody waits in a circle.

use serde::Serialize;

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::record::{Bucket, Cause, Event, EventKind, Happening, Versioning};
use crate::sql::{args, column, json, statements};

statements! {
    TAKE_NUMBERS = "UPDATE counter SET next = next + $1 WHERE name = 'event' RETURNING next";

    INSERT_EVENTS (number bigint, destination text, facts text) =
        "INSERT INTO event (destination, number, created_us, facts)
        SELECT r.destination, r.number, CAST($2 AS BIGINT), r.facts FROM r";
}

/// An event that a transaction will write.
#[derive(Debug)]
pub(crate) struct Told {
    destination: String,
    facts: String,
}

impl Tx {
    /// Tells of something in a bucket, as far as its rules want to hear of it. What is told goes the way of the change:
    /// it is taken back with it.
    pub(crate) fn tell(&mut self, bucket: &Bucket, what: &Happening, cause: &Cause) -> Result<()> {
        let wanted = bucket.events.iter().filter(|rule| rule.wants(what.kind, &what.key));
        for rule in wanted {
            let event = event(bucket, what, &rule.id, cause, self);
            self.told.push(Told { destination: rule.destination.clone(), facts: json(&event)? });
        }
        Ok(())
    }

    /// Tells each destination of a bucket's rules that they name it.
    pub(super) fn tell_test(&mut self, bucket: &Bucket, cause: &Cause) -> Result<()> {
        let mut destinations: Vec<_> = bucket.events.iter().map(|rule| &rule.destination).collect();
        destinations.sort_unstable();
        destinations.dedup();
        let what = Happening::of_key(EventKind::Test, String::new(), None);
        for destination in destinations {
            let event = event(bucket, &what, "", cause, self);
            self.told.push(Told { destination: destination.clone(), facts: json(&event)? });
        }
        Ok(())
    }
}

fn event(bucket: &Bucket, what: &Happening, rule: &str, cause: &Cause, tx: &Tx) -> Event {
    let version = what.version.filter(|_| bucket.versioning != Versioning::Off);
    Event {
        what: Happening { version, ..what.clone() },
        bucket: bucket.name.clone(),
        bucket_owner: bucket.owner.clone(),
        rule: rule.to_owned(),
        at: tx.now,
        cause: cause.clone(),
    }
}

/// Writes what the members of a transaction have told.
pub(crate) async fn write_told(tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct Row<'a> {
        number: i64,
        destination: &'a str,
        facts: &'a str,
    }
    let count = column(tx.told.len() as u64);
    if count == 0 {
        return Ok(());
    }
    let row = tx.row(&TAKE_NUMBERS, args![count]).await?;
    let row = row.ok_or_else(|| CatalogError::corrupt("the counter of events is missing"))?;
    let first = row.cursor().int()? - count;
    let rows = tx.told.iter().zip(first..);
    let rows: Vec<_> =
        rows.map(|(told, number)| Row { number, destination: &told.destination, facts: &told.facts }).collect();
    let (rows, now) = (json(&rows)?, tx.now);
    tx.execute(&INSERT_EVENTS, args![&rows, now]).await?;
    Ok(())
}
