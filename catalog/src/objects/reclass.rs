//! Giving a version another class of service, as a lifecycle rule says: from then on it has the copies that the new
//! class wants.

use wire::id::CosName;

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::events;
use crate::objects::look::adopt;
use crate::policies;
use crate::record::{Cause, EventKind, Object, ObjectData, Reclass};
use crate::sql::{Row, args, column, statements};

statements! {
    LOOK_AT_BITFILE =
        "SELECT b.on_disk, b.tapes, b.entry, (SELECT CAST(COUNT(*) AS BIGINT) FROM version v WHERE v.bitfile = b.id)
        FROM bitfile b WHERE b.id = $1",
        "SELECT b.on_disk, b.tapes, b.entry, (SELECT CAST(COUNT(*) AS BIGINT) FROM version v WHERE v.bitfile = b.id)
        FROM bitfile b WHERE b.id = $1 FOR UPDATE OF b";

    CHANGE_CLASS = "UPDATE bitfile SET cos = $2, tapes_wanted = $3 WHERE id = $1";

    NAME_CLASS = "UPDATE object SET storage_class = $2 WHERE bitfile = $1";

    /// A disk copy may be purged when the tape copies are there; where none are wanted, it stays.
    JUDGE_DISK_COPY =
        "UPDATE copy SET purgeable = $2, expires_us = CASE WHEN $3 = 1 THEN NULL ELSE expires_us END
        WHERE bitfile = $1 AND number = 0";

    /// What is queued already goes on under the new class.
    QUEUE_MIGRATION =
        "INSERT INTO work (id, kind, pool, bitfile, bytes, created_us, due_us, epoch, failures)
        SELECT CAST($2 AS BIGINT), 'migrate', b.cos, b.id, b.size, CAST($3 AS BIGINT), CAST($3 AS BIGINT), 0, 0
        FROM bitfile b WHERE b.id = $1
        ON CONFLICT (bitfile, kind) WHERE bitfile IS NOT NULL DO UPDATE SET pool = excluded.pool,
            due_us = CASE WHEN work.holder IS NULL THEN excluded.due_us ELSE work.due_us END";

    FORGET_MIGRATION = "DELETE FROM work WHERE kind = 'migrate' AND bitfile = $1";
}

impl Catalog {
    /// Gives a version another class of service and storage class. Copies that are missing are queued for migration;
    /// those that are too many stay. No byte is moved, and nobody is charged anew.
    ///
    /// # Errors
    ///
    /// `Changed` if the version is gone, is current where it was not, or was current; or if it is not on disk any more,
    /// from where missing copies are made. `NotFound` for the class, or a delete marker.
    pub async fn reclass(&self, change: Reclass) -> Result<()> {
        let id = self.next_ids(1).await?.start;
        self.write((id, change), |(id, change), tx| Box::pin(reclass(*id, change, tx))).await
    }
}

async fn reclass(id: u64, change: &Reclass, tx: &mut Tx) -> Result<()> {
    let data = change.seen.data.as_ref().ok_or_else(|| CatalogError::not_found("object", &change.seen.key))?;
    let bitfile = data.file.bitfile;
    let copies = wanted(&change.cos, tx).await?;
    let found = tx.row(&LOOK_AT_BITFILE, args![bitfile]).await?.map(|row| Found::read(&row)).transpose()?;
    let Some(found) = found.filter(|found| found.is_as_seen(data, copies)) else {
        return Err(CatalogError::Changed { name: change.seen.key.clone() });
    };
    tx.execute(&CHANGE_CLASS, args![bitfile, &change.cos, copies]).await?;
    name_class(&change.seen, data, change, tx).await?;
    let (all, kept) = (i64::from(found.tapes >= copies && copies > 0), i64::from(copies == 0));
    tx.execute(&JUDGE_DISK_COPY, args![bitfile, all, kept]).await?;
    if found.tapes < copies {
        let now = tx.now;
        tx.execute(&QUEUE_MIGRATION, args![bitfile, column(id), now]).await?;
    } else {
        tx.execute(&FORGET_MIGRATION, args![bitfile]).await?;
    }
    for mut found in events::watched(&[bitfile], EventKind::Moved, tx).await? {
        found.what.moved_to = Some(change.storage_class.clone());
        tx.tell(&found.bucket, &found.what, &Cause::lifecycle())?;
    }
    Ok(())
}

/// What the catalogue has of the version now.
struct Found {
    on_disk: bool,
    tapes: i64,
    current: bool,
    aside: bool,
}

impl Found {
    fn read(row: &Row) -> Result<Self> {
        let mut row = row.cursor();
        Ok(Self { on_disk: row.flag()?, tapes: row.int()?, current: row.maybe_int()?.is_some(), aside: row.int()? > 0 })
    }

    fn is_as_seen(&self, data: &ObjectData, copies: i64) -> bool {
        let enough = copies > 0 && self.tapes >= copies;
        self.current == data.entry.is_some() && (self.current || self.aside) && (self.on_disk || enough)
    }
}

async fn wanted(cos: &CosName, tx: &mut Tx) -> Result<i64> {
    let policies = policies::read(tx).await?;
    let class = policies.class(cos).ok_or_else(|| CatalogError::not_found("class of service", cos))?;
    Ok(class.copies.into())
}

async fn name_class(seen: &Object, data: &ObjectData, change: &Reclass, tx: &mut Tx) -> Result<()> {
    let bitfile = data.file.bitfile;
    if tx.execute(&NAME_CLASS, args![bitfile, &change.storage_class]).await? == 0 {
        adopt(seen, data, &change.attributes, (false, None), tx).await?;
        tx.execute(&NAME_CLASS, args![bitfile, &change.storage_class]).await?;
    }
    Ok(())
}
