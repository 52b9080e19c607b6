//! Taking a bitfile's name away: it moves to the undelete window, and nobody works on it any more.

use std::time::Duration;

use serde::Serialize;
use wire::id::{BitfileId, CosName};

use crate::batch::Tx;
use crate::error::Result;
use crate::record::Policies;
use crate::sql::{args, json, statements};
use crate::time::Timestamp;

/// How long a file of a class that is no longer configured can be brought back.
const DEFAULT_WINDOW: Duration = Duration::from_secs(24 * 3600);

statements! {
    KEEP_DELETED (bitfile bigint, reclaim_us bigint) =
        "INSERT INTO deleted (bitfile, parent, name, mode, acl, created_us, modified_us, deleted_us, reclaim_us)
        SELECT b.id, e.parent, e.name, e.mode, e.acl, e.created_us, e.modified_us, CAST($2 AS BIGINT), r.reclaim_us
        FROM r JOIN bitfile b ON b.id = r.bitfile JOIN entry e ON e.id = b.entry";

    LOSE_NAME (bitfile bigint, reclaim_us bigint) =
        "UPDATE bitfile SET entry = NULL WHERE id IN (SELECT r.bitfile FROM r)";

    DROP_WORK (bitfile bigint, reclaim_us bigint) =
        "DELETE FROM work WHERE bitfile IN (SELECT r.bitfile FROM r)";

    FAIL_REQUESTS (bitfile bigint, reclaim_us bigint) =
        "UPDATE request SET outcome = 'failed', reason = 'the file was deleted or replaced', finished_us = $2
        WHERE outcome IS NULL AND bitfile IN (SELECT r.bitfile FROM r)";
}

#[derive(Serialize)]
struct Retired {
    bitfile: i64,
    reclaim_us: i64,
}

/// Moves bitfiles to the undelete window of their class, while their entries are still there: work queued for them
/// is dropped, so that no tape is mounted for a file that is gone, and stage requests fail.
pub(crate) async fn retire(tx: &mut Tx, bitfiles: &[(BitfileId, CosName)], policies: &Policies) -> Result<()> {
    if bitfiles.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = bitfiles
        .iter()
        .map(|(bitfile, cos)| Retired { bitfile: bitfile.column(), reclaim_us: reclaim_after(tx.now, cos, policies).0 })
        .collect();
    let (rows, now) = (json(&rows)?, tx.now);
    tx.execute(&KEEP_DELETED, args![&rows, now]).await?;
    tx.execute(&LOSE_NAME, args![&rows]).await?;
    forget(&rows, tx).await
}

/// Nobody works for these bitfiles any more; `rows` as in the statements.
pub(crate) async fn forget(rows: &str, tx: &mut Tx) -> Result<()> {
    let now = tx.now;
    tx.execute(&DROP_WORK, args![rows]).await?;
    tx.execute(&FAIL_REQUESTS, args![rows, now]).await?;
    Ok(())
}

/// Until when a file of that class, deleted now, can be brought back.
pub(crate) fn reclaim_after(now: Timestamp, cos: &CosName, policies: &Policies) -> Timestamp {
    now.after(policies.class(cos).map_or(DEFAULT_WINDOW, |class| class.undelete_window))
}
