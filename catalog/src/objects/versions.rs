//! What moves between the tree and the table of versions: a current version that is set aside, one that becomes
//! current again, and one that is removed for good.

use serde::Serialize;
use wire::id::{AccountName, EntryId, GroupName};

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::names::remove_file;
use crate::objects::place::{Parts, prune};
use crate::policies;
use crate::quota::{Charge, Ledger};
use crate::record::{Object, ObjectData, Version};
use crate::retire::{forget, reclaim_after};
use crate::sql::{args, column, json, statements};

statements! {
    SET_ASIDE =
        "INSERT INTO version (bucket, key, rank, plain, bitfile, owner, grp, mode, acl, modified_us)
        SELECT CAST($2 AS BIGINT), CAST($3 AS TEXT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), e.bitfile, e.owner, e.grp,
            e.mode, e.acl, e.modified_us FROM entry e WHERE e.id = $1";

    LOSE_ENTRY = "UPDATE bitfile SET entry = NULL WHERE id = $1";

    DROP_ENTRY = "DELETE FROM entry WHERE id = $1";

    INSERT_MARKER =
        "INSERT INTO version (bucket, key, rank, plain, owner, grp, mode, modified_us)
        VALUES ($1, $2, $3, $4, $5, $6, 0, $7)";

    DROP_VERSION = "DELETE FROM version WHERE bucket = $1 AND key = $2 AND rank = $3";

    /// A version becomes a file of the tree again.
    NAME_AGAIN =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, acl, created_us, modified_us, changed_us, bitfile)
        SELECT CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS TEXT), v.owner, v.grp, v.mode, v.acl, v.modified_us,
            v.modified_us, CAST($7 AS BIGINT), v.bitfile
        FROM version v WHERE v.bucket = $1 AND v.key = $2 AND v.rank = $3";

    GAIN_ENTRY = "UPDATE bitfile SET entry = $2 WHERE id = $1";

    KEEP_VERSION (bitfile bigint, reclaim_us bigint) =
        "INSERT INTO deleted (bitfile, parent, name, mode, acl, created_us, modified_us, deleted_us, reclaim_us)
        SELECT v.bitfile, v.bucket, v.key, v.mode, v.acl, v.modified_us, v.modified_us, CAST($2 AS BIGINT), r.reclaim_us
        FROM r JOIN version v ON v.bitfile = r.bitfile";
}

fn rank(version: Version) -> i64 {
    -column(version.number)
}

/// The number of the next version of a key, behind those that are there.
pub(super) fn next_number(current: Option<&Object>, unnamed: Option<&Object>, tx: &Tx) -> u64 {
    let behind = |object: &Object| object.version.number + 1;
    let now = u64::try_from(tx.now.0).unwrap_or_default();
    [current.map(behind), unnamed.map(behind)].into_iter().flatten().fold(now, u64::max)
}

/// Takes the current version out of the tree and keeps it. What it costs is still paid for.
pub(super) async fn set_aside(bucket: EntryId, current: &Object, above: Option<&Object>, tx: &mut Tx) -> Result<()> {
    let data = data(current)?;
    let entry = data.entry.ok_or_else(|| CatalogError::inconsistent("a current version has no name"))?;
    // What another door wrote over a version has no number of its own.
    let number = above.map_or(0, |above| above.version.number + 1).max(current.version.number);
    let version = Version { number, ..current.version };
    let plain = i64::from(version.plain);
    tx.execute(&SET_ASIDE, args![entry, bucket, &current.key, rank(version), plain]).await?;
    tx.execute(&LOSE_ENTRY, args![data.file.bitfile]).await?;
    tx.execute(&DROP_ENTRY, args![entry]).await?;
    Ok(())
}

/// Hides a key behind a delete marker.
pub(super) async fn insert_marker(
    bucket: EntryId,
    key: &str,
    version: Version,
    (owner, group): (&AccountName, &GroupName),
    tx: &mut Tx,
) -> Result<()> {
    let (now, plain) = (tx.now, i64::from(version.plain));
    tx.execute(&INSERT_MARKER, args![bucket, key, rank(version), plain, owner, group, now]).await?;
    Ok(())
}

/// Removes a version that has no name; its bytes go to the undelete window.
pub(super) async fn remove_unnamed(bucket: EntryId, version: &Object, tx: &mut Tx) -> Result<()> {
    #[derive(Serialize)]
    struct Kept {
        bitfile: i64,
        reclaim_us: i64,
    }
    if let Some(data) = &version.data {
        let (policies, now) = (policies::read(tx).await?, tx.now);
        let reclaim_us = reclaim_after(now, &data.file.cos, &policies).0;
        let rows = json(&[Kept { bitfile: data.file.bitfile.column(), reclaim_us }])?;
        tx.execute(&KEEP_VERSION, args![&rows, now]).await?;
        forget(&rows, tx).await?;
        let mut ledger = Ledger::read(tx, [(&version.owner, &version.group)]).await?;
        ledger.charge(&[Charge::of(&version.owner, &version.group, data.file.size_bytes).refund()])?;
        ledger.write(tx).await?;
    }
    tx.execute(&DROP_VERSION, args![bucket, &version.key, rank(version.version)]).await?;
    Ok(())
}

/// Removes the current version; its bytes go to the undelete window.
pub(super) async fn remove_current(bucket: EntryId, current: &Object, tx: &mut Tx) -> Result<()> {
    let data = data(current)?;
    let entry = data.entry.ok_or_else(|| CatalogError::inconsistent("a current version has no name"))?;
    let removed = remove_file(entry, Some(data.file.bitfile), tx).await?;
    prune(removed.parent, bucket, tx).await
}

/// Makes a version current again whose directory is there.
pub(super) async fn promote(
    bucket: EntryId,
    version: &Object,
    (parent, parts): (EntryId, &Parts<'_>),
    id: EntryId,
    tx: &mut Tx,
) -> Result<()> {
    let (rank, now) = (rank(version.version), tx.now);
    tx.execute(&NAME_AGAIN, args![bucket, &version.key, rank, id, parent, parts.file, now]).await?;
    tx.execute(&GAIN_ENTRY, args![data(version)?.file.bitfile, id]).await?;
    tx.execute(&DROP_VERSION, args![bucket, &version.key, rank]).await?;
    Ok(())
}

fn data(object: &Object) -> Result<&ObjectData> {
    object.data.as_ref().ok_or_else(|| CatalogError::inconsistent("a delete marker has no bytes"))
}
