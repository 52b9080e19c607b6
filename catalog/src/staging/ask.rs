//! Asking for bitfiles to be on disk.

use std::collections::HashMap;

use serde::Serialize;
use wire::id::{BitfileId, RequestId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::events;
use crate::record::{Cause, EventKind, NewRequest, StageRequest};
use crate::sql::{args, bitfile_rows, column, json, statements};
use crate::staging::{REQUESTS_BY_ID, STAGE_PIN, expiry, read_request, request_rows};
use crate::time::micros;

statements! {
    /// In the order of numbers, so that no two transactions wait for each other in a circle (PostgreSQL).
    LOCK_BITFILES (id bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    /// Where each bitfile is: on disk, and on the first readable cartridge; and whether it is a file of the tree or a
    /// version that a bucket keeps.
    LOOK_FOR_COPY (id bigint) =
        "SELECT b.id, CASE WHEN b.entry IS NOT NULL OR EXISTS (SELECT 1 FROM version n WHERE n.bitfile = b.id)
                THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END AS kept, b.size, b.on_disk, b.tapes,
            (SELECT c.volume FROM copy c JOIN volume v ON v.label = c.volume
            WHERE c.bitfile = b.id AND c.number BETWEEN 1 AND 63 AND c.complete = 1 AND v.state <> 'disabled'
            ORDER BY c.number LIMIT 1) AS volume
        FROM r JOIN bitfile b ON b.id = r.id";

    INSERT_REQUESTS (id bigint, bitfile bigint, size bigint, account text, priority bigint, deadline_us bigint,
        lifetime_us bigint, outcome text, reason text, finished_us bigint) =
        "INSERT INTO request (id, bitfile, size, account, priority, created_us, deadline_us, lifetime_us, outcome,
            reason, finished_us)
        SELECT r.id, r.bitfile, r.size, r.account, r.priority, CAST($2 AS BIGINT), r.deadline_us, r.lifetime_us,
            r.outcome, r.reason, r.finished_us FROM r";

    QUEUE_STAGES (id bigint, pool text, bitfile bigint, bytes bigint) =
        "INSERT INTO work (id, kind, pool, bitfile, bytes, created_us, due_us, epoch, failures)
        SELECT r.id, 'stage', r.pool, r.bitfile, r.bytes, CAST($2 AS BIGINT), CAST($2 AS BIGINT), 0, 0
        FROM r WHERE true ON CONFLICT DO NOTHING RETURNING bitfile";

    /// A staged copy is promised for longer.
    EXTEND_PROMISES (id bigint, until_us bigint) =
        "UPDATE copy SET expires_us = r.until_us FROM r
        WHERE copy.bitfile = r.id AND copy.number = 0 AND copy.expires_us IS NOT NULL AND copy.expires_us < r.until_us";

    /// A copy that was never purged is promised by a pin: its own expiry stays open.
    PIN_RESIDENT (id bigint, until_us bigint) =
        "INSERT INTO pin (bitfile, holder, until_us)
        SELECT c.bitfile, CAST($2 AS TEXT), MAX(r.until_us) FROM r JOIN copy c ON c.bitfile = r.id AND c.number = 0
        WHERE c.expires_us IS NULL GROUP BY c.bitfile
        ON CONFLICT (bitfile, holder) DO UPDATE SET until_us = excluded.until_us
        WHERE excluded.until_us > pin.until_us";
}

impl Catalog {
    /// Asks for bitfiles to be on disk, in one transaction however many. Requests for the same bitfile share one
    /// work item. One that is on disk already is completed at once and its promise to stay is extended. Answers in
    /// the order given.
    ///
    /// # Errors
    ///
    /// Only those of the database: a bitfile that does not exist or has no readable copy is a request that failed.
    pub async fn request_stage(&self, requests: Vec<NewRequest>) -> Result<Vec<StageRequest>> {
        let count = u32::try_from(requests.len()).ok().and_then(|count| count.checked_mul(2));
        let count = count.ok_or_else(|| CatalogError::inconsistent("too many requests at once"))?;
        let first_id = self.next_ids(count).await?.start;
        self.write((requests, first_id), |(requests, first_id), tx| Box::pin(ask(requests, *first_id, tx))).await
    }
}

#[derive(Serialize)]
struct RequestRow<'a> {
    id: i64,
    bitfile: i64,
    size: i64,
    account: &'a str,
    priority: i32,
    deadline_us: i64,
    lifetime_us: i64,
    outcome: Option<&'static str>,
    reason: Option<&'static str>,
    finished_us: Option<i64>,
}

#[derive(Serialize)]
struct StageRow<'a> {
    id: i64,
    pool: &'a str,
    bitfile: i64,
    bytes: i64,
}

#[derive(Serialize)]
struct Promise {
    id: i64,
    until_us: i64,
}

/// Where a bitfile is.
enum Whereabouts {
    OnDisk,
    OnTape(String),
    Nowhere(&'static str),
}

/// Makes stage requests; their numbers count from `first_id` in steps of two.
pub(super) async fn ask(requests: &[NewRequest], first_id: u64, tx: &mut Tx) -> Result<Vec<StageRequest>> {
    let found = look(requests, tx).await?;
    let now = tx.now;
    let missing = (0, Whereabouts::Nowhere("the file does not exist any more"));
    let (mut rows, mut stages, mut promises, mut ids) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (request, id) in requests.iter().zip((first_id..).step_by(2)) {
        ids.push(RequestId(id));
        let (size, whereabouts) = found.get(&request.bitfile).unwrap_or(&missing);
        let (outcome, reason) = match whereabouts {
            Whereabouts::OnDisk => (Some("completed"), None),
            Whereabouts::OnTape(_) => (None, None),
            Whereabouts::Nowhere(reason) => (Some("failed"), Some(*reason)),
        };
        let (bitfile, lifetime_us) = (request.bitfile.column(), micros(request.lifetime));
        rows.push(RequestRow {
            id: column(id),
            bitfile,
            size: *size,
            account: request.account.as_str(),
            priority: request.priority,
            deadline_us: request.deadline.0,
            lifetime_us,
            outcome,
            reason,
            finished_us: outcome.map(|_| now.0),
        });
        match whereabouts {
            Whereabouts::OnDisk => promises.push(Promise { id: bitfile, until_us: expiry(now, lifetime_us).0 }),
            Whereabouts::OnTape(volume) => {
                stages.push(StageRow { id: column(id + 1), pool: volume, bitfile, bytes: *size });
            }
            Whereabouts::Nowhere(_) => {}
        }
    }
    tx.execute(&INSERT_REQUESTS, args![&json(&rows)?, now]).await?;
    if !stages.is_empty() {
        let queued = tx.rows(&QUEUE_STAGES, args![&json(&stages)?, now]).await?;
        let queued = queued.iter().map(|row| row.cursor().bitfile()).collect::<Result<Vec<_>>>()?;
        tell(requests, &queued, tx).await?;
    }
    if !promises.is_empty() {
        // Of several promises for one copy the last counts: the longest, then.
        promises.sort_unstable_by_key(|promise| (promise.id, promise.until_us));
        promises.reverse();
        promises.dedup_by_key(|promise| promise.id);
        let promises = json(&promises)?;
        tx.execute(&EXTEND_PROMISES, args![&promises]).await?;
        tx.execute(&PIN_RESIDENT, args![&promises, STAGE_PIN]).await?;
    }
    let rows = tx.rows(&REQUESTS_BY_ID, args![&request_rows(&ids)?, now]).await?;
    rows.iter().map(|row| read_request(&mut row.cursor())).collect()
}

/// Tells that recalls were asked for that nobody had asked for before.
async fn tell(requests: &[NewRequest], queued: &[BitfileId], tx: &mut Tx) -> Result<()> {
    for found in events::watched(queued, EventKind::RestoreAsked, tx).await? {
        let request = requests.iter().find(|request| request.bitfile == found.bitfile);
        let cause = request.map(|request| {
            let usual = || Cause::account(request.account.clone());
            request.cause.clone().unwrap_or_else(usual)
        });
        tx.tell(&found.bucket, &found.what, &cause.unwrap_or_default())?;
    }
    Ok(())
}

async fn look(requests: &[NewRequest], tx: &mut Tx) -> Result<HashMap<BitfileId, (i64, Whereabouts)>> {
    let mut bitfiles: Vec<_> = requests.iter().map(|request| request.bitfile).collect();
    bitfiles.sort_unstable();
    bitfiles.dedup();
    let rows = bitfile_rows(&bitfiles)?;
    tx.lock(&LOCK_BITFILES, args![&rows]).await?;
    let mut found = HashMap::new();
    for row in tx.rows(&LOOK_FOR_COPY, args![&rows]).await? {
        let mut row = row.cursor();
        let bitfile = row.bitfile()?;
        let (kept, size, on_disk, tapes) = (row.flag()?, row.int()?, row.flag()?, row.int()?);
        let whereabouts = match row.maybe_text()? {
            _ if !kept => Whereabouts::Nowhere("the file was deleted or replaced"),
            _ if on_disk => Whereabouts::OnDisk,
            Some(volume) => Whereabouts::OnTape(volume),
            None if tapes > 0 => Whereabouts::Nowhere("every cartridge that holds a copy is disabled"),
            None => Whereabouts::Nowhere("no copy of the file is left"),
        };
        found.insert(bitfile, (size, whereabouts));
    }
    Ok(found)
}
