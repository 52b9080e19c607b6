//! Putting work into the queue: once for each subject.

use serde::Serialize;
use wire::id::{BitfileId, FileId, VolumeLabel, WorkId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{NewWork, Subject, WorkKind};
use crate::sql::{IdRow, args, column, json, statements};
use crate::time::Timestamp;

statements! {
    ENQUEUE (ordinal bigint, id bigint, kind text, pool text, bitfile bigint, volume text, file bigint, bytes bigint,
        due_us bigint, deadline_us bigint) =
        "INSERT INTO work (id, kind, pool, bitfile, volume, file, bytes, created_us, due_us, deadline_us, epoch,
            failures)
        SELECT r.id, r.kind, r.pool, r.bitfile, r.volume, r.file, r.bytes, CAST($2 AS BIGINT), r.due_us,
            r.deadline_us, 0, 0 FROM r WHERE true
        ON CONFLICT DO NOTHING";

    /// The items of these subjects, whoever queued them.
    ENQUEUED (ordinal bigint, id bigint, kind text, pool text, bitfile bigint, volume text, file bigint, bytes bigint,
        due_us bigint, deadline_us bigint) =
        "SELECT r.ordinal, w.id FROM r JOIN work w ON w.bitfile = r.bitfile AND w.kind = r.kind
        UNION ALL
        SELECT r.ordinal, w.id FROM r JOIN work w ON w.volume = r.volume AND w.file = r.file AND w.kind = r.kind
        UNION ALL
        SELECT r.ordinal, w.id FROM r JOIN work w ON w.volume = r.volume AND w.kind = r.kind AND w.file IS NULL
        WHERE r.file IS NULL
        ORDER BY ordinal";

    COME_FORWARD (id bigint, due_us bigint) =
        "UPDATE work SET due_us = r.due_us FROM r
        WHERE work.id = r.id AND work.holder IS NULL AND work.due_us > r.due_us";

    MISSING_BITFILE (id bigint) =
        "SELECT r.id FROM r WHERE NOT EXISTS (SELECT 1 FROM bitfile b WHERE b.id = r.id) LIMIT 1";

    MIGRATE_NOW (id bigint, work bigint) =
        "INSERT INTO work (id, kind, pool, bitfile, bytes, created_us, due_us, epoch, failures)
        SELECT r.work, 'migrate', b.cos, b.id, b.size, CAST($2 AS BIGINT), CAST($2 AS BIGINT), 0, 0
        FROM r JOIN bitfile b ON b.id = r.id
        WHERE b.on_disk = 1 AND b.tapes < b.tapes_wanted
            AND (b.entry IS NOT NULL OR EXISTS (SELECT 1 FROM version v WHERE v.bitfile = b.id))
        ON CONFLICT (bitfile, kind) WHERE bitfile IS NOT NULL DO UPDATE SET
            due_us = CASE WHEN work.holder IS NULL THEN excluded.due_us ELSE work.due_us END";

    QUEUE_RECLAIM (id bigint, volume text, file bigint, bytes bigint) =
        "INSERT INTO work (id, kind, pool, volume, file, bytes, created_us, due_us, epoch, failures)
        SELECT r.id, 'reclaim', r.volume, r.volume, r.file, r.bytes, CAST($2 AS BIGINT), CAST($3 AS BIGINT), 0, 0
        FROM r WHERE true ON CONFLICT DO NOTHING";

    TAKE_WORK_IDS = "UPDATE counter SET next = next + $1 WHERE name = 'id' RETURNING next";
}

impl Catalog {
    /// Queues work. An item of the same kind for the same subject is there once: one that is not claimed comes
    /// forward to the earlier of both start times. Returns its number, new or old, in the order given.
    ///
    /// # Errors
    ///
    /// `NotFound` if a bitfile does not exist; `Inconsistent` for stage work, which
    /// [`Catalog::request_stage`] makes.
    pub async fn enqueue(&self, work: Vec<NewWork>) -> Result<Vec<WorkId>> {
        let count = u32::try_from(work.len()).map_err(|_| CatalogError::inconsistent("too much work at once"))?;
        let first_id = self.next_ids(count).await?.start;
        self.write((work, first_id), |(work, first_id), tx| Box::pin(enqueue(work, *first_id, tx))).await
    }

    /// Queues migration of these bitfiles to start now, for `penstock admin migrate`; those that have all their
    /// tape copies are passed over. Returns how many are queued.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn migrate_now(&self, bitfiles: Vec<BitfileId>) -> Result<u64> {
        #[derive(Serialize)]
        struct Wish {
            id: i64,
            work: i64,
        }
        let count = u32::try_from(bitfiles.len()).map_err(|_| CatalogError::inconsistent("too much work at once"))?;
        let ids = self.next_ids(count).await?;
        let wishes: Vec<_> =
            bitfiles.iter().zip(ids).map(|(id, work)| Wish { id: id.column(), work: column(work) }).collect();
        self.write(json(&wishes)?, |wishes, tx| {
            Box::pin(async move {
                let now = tx.now;
                tx.execute(&MIGRATE_NOW, args![wishes, now]).await
            })
        })
        .await
    }
}

async fn enqueue(work: &[NewWork], first_id: u64, tx: &mut Tx) -> Result<Vec<WorkId>> {
    #[derive(Serialize)]
    struct NewRow<'a> {
        ordinal: usize,
        id: i64,
        kind: &'static str,
        pool: &'a str,
        bitfile: Option<i64>,
        volume: Option<&'a str>,
        file: Option<i64>,
        bytes: i64,
        due_us: i64,
        deadline_us: Option<i64>,
    }
    #[derive(Serialize)]
    struct Due {
        id: i64,
        due_us: i64,
    }
    if work.iter().any(|work| work.kind == WorkKind::Stage) {
        return Err(CatalogError::inconsistent("stage work is made by requests"));
    }
    let mut rows = Vec::new();
    for (ordinal, (new, id)) in work.iter().zip(first_id..).enumerate() {
        let (bitfile, volume, file) = match &new.subject {
            Subject::Bitfile(bitfile) => (Some(bitfile.column()), None, None),
            Subject::File { volume, file } => (None, Some(volume.as_str()), Some(file.column())),
            Subject::Volume(volume) => (None, Some(volume.as_str()), None),
        };
        rows.push(NewRow {
            ordinal,
            id: column(id),
            kind: new.kind.name(),
            pool: &new.pool,
            bitfile,
            volume,
            file,
            bytes: column(new.bytes),
            due_us: new.not_before.0,
            deadline_us: new.deadline.map(|deadline| deadline.0),
        });
    }
    let bitfiles: Vec<_> = rows.iter().filter_map(|row| row.bitfile).map(|id| IdRow { id }).collect();
    if let Some(row) = tx.row(&MISSING_BITFILE, args![&json(&bitfiles)?]).await? {
        return Err(CatalogError::not_found("bitfile", row.cursor().int()?));
    }
    let (text, now) = (json(&rows)?, tx.now);
    tx.execute(&ENQUEUE, args![&text, now]).await?;
    let mut found = Vec::new();
    for row in tx.rows(&ENQUEUED, args![&text]).await? {
        let mut row = row.cursor();
        let ordinal = usize::try_from(row.number()?).unwrap_or(usize::MAX);
        let due_us = work.get(ordinal).map_or(Timestamp::NEVER, |work| work.not_before).0;
        found.push(Due { id: row.int()?, due_us });
    }
    tx.execute(&COME_FORWARD, args![&json(&found)?]).await?;
    let id = |due: &Due| WorkId::from_column(due.id).ok_or_else(|| CatalogError::corrupt("a negative number of work"));
    found.iter().map(id).collect()
}

/// A file of a disk volume that nobody can reach any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Garbage {
    pub(crate) volume: VolumeLabel,
    pub(crate) file: FileId,
    pub(crate) bytes: i64,
}

/// Queues files of disk volumes to be deleted by their movers, not before `due`.
pub(crate) async fn queue_reclaim(garbage: &[Garbage], due: Timestamp, tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct GarbageRow<'a> {
        id: i64,
        volume: &'a str,
        file: i64,
        bytes: i64,
    }
    if garbage.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(garbage.len()).unwrap_or(i64::MAX);
    let row = tx.row(&TAKE_WORK_IDS, args![count]).await?;
    let end = row.ok_or_else(|| CatalogError::corrupt("the counter of identifiers is missing"))?.cursor().int()?;
    let rows: Vec<_> = garbage
        .iter()
        .zip(end - count..)
        .map(|(file, id)| GarbageRow { id, volume: file.volume.as_str(), file: file.file.column(), bytes: file.bytes })
        .collect();
    let now = tx.now;
    tx.execute(&QUEUE_RECLAIM, args![&json(&rows)?, now, due]).await?;
    Ok(())
}
