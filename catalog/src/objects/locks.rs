//! The one rule about versions and locks, whatever door takes a name away or gives it another file.
//!
//! - A version that is on legal hold, or retained until a later time, stays what and where it is.
//! - In a bucket that keeps versions, a file that is removed is hidden behind a delete marker, as S3's own DELETE does.
//!
//! S3's own removals come by [`super::delete`], which may bypass a retention that allows it.

use serde::Serialize;
use wire::id::{BitfileId, EntryId};

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::objects::buckets::bucket_of_entry;
use crate::objects::delete::delete_object;
use crate::policies;
use crate::record::{
    Bucket, Cause, Content, DeleteObject, DeletedFile, Entry, EventKind, Happening, Precondition, ROOT, Retention,
    Versioning,
};
use crate::retire::reclaim_after;
use crate::sql::{args, json, statements};
use crate::time::Timestamp;

statements! {
    /// A directory and those above it, with the bucket that one may be.
    ABOVE =
        "WITH RECURSIVE up AS (
            SELECT CAST(0 AS BIGINT) AS depth, e.id, e.parent, e.name FROM entry e WHERE e.id = $1
            UNION ALL
            SELECT u.depth + 1, e.id, e.parent, e.name FROM up u JOIN entry e ON e.id = u.parent
        )
        SELECT u.name, k.entry FROM up u LEFT JOIN bucket k ON k.entry = u.id ORDER BY u.depth";

    LOCKS_OF (bitfile bigint) =
        "SELECT o.bitfile, o.hold, o.retain_us, o.retain_mode FROM r JOIN object o ON o.bitfile = r.bitfile
        WHERE o.hold = 1 OR o.retain_us > $2";
}

/// Why a version may not be removed.
pub(super) fn why_locked(hold: bool, retain: Option<&Retention>, bypass: bool, now: Timestamp) -> Option<&'static str> {
    match retain {
        _ if hold => Some("it is on legal hold"),
        Some(retain) if retain.until > now && (retain.compliance || !bypass) => {
            Some("it is retained until a later time")
        }
        _ => None,
    }
}

/// Those of some bitfiles that are locked, and why.
pub(crate) async fn locked(bitfiles: &[BitfileId], tx: &mut Tx) -> Result<Vec<(BitfileId, &'static str)>> {
    #[derive(Serialize)]
    struct Row {
        bitfile: i64,
    }
    if bitfiles.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<_> = bitfiles.iter().map(|bitfile| Row { bitfile: bitfile.column() }).collect();
    let now = tx.now;
    let mut locked = Vec::new();
    for row in tx.rows(&LOCKS_OF, args![&json(&rows)?, now]).await? {
        let mut row = row.cursor();
        let (bitfile, hold, until) = (row.bitfile()?, row.flag()?, row.maybe_time()?);
        let compliance = row.maybe_text()?.as_deref() == Some("compliance");
        let retain = until.map(|until| Retention { until, compliance });
        locked.extend(why_locked(hold, retain.as_ref(), false, now).map(|why| (bitfile, why)));
    }
    Ok(locked)
}

/// Refuses to touch a file that is locked.
pub(crate) async fn need_unlocked(bitfile: BitfileId, name: &str, tx: &mut Tx) -> Result<()> {
    match locked(&[bitfile], tx).await?.first() {
        Some((_, why)) => Err(is_locked(name, why)),
        None => Ok(()),
    }
}

/// The error for a file that is locked.
pub(crate) fn is_locked(name: &str, why: &str) -> CatalogError {
    CatalogError::Locked { name: name.to_owned(), reason: why.to_owned() }
}

/// Refuses to move what a bucket has locked: a file; or a directory of a bucket whose versions can be locked, since
/// nobody looks at all that is in it.
pub(crate) async fn need_movable(entry: &Entry, tx: &mut Tx) -> Result<()> {
    match &entry.content {
        Content::File(info) => need_unlocked(info.bitfile, &entry.name, tx).await,
        Content::Directory => match home_of(entry.parent.unwrap_or(ROOT), "", tx).await? {
            Some(home) if home.bucket.locking => {
                let reason = format!("versions of bucket {} can be locked: move its files", home.bucket.name);
                Err(is_locked(&entry.name, &reason))
            }
            _ => Ok(()),
        },
    }
}

/// Hides a file that another door removes, if its bucket keeps versions; `None` if it does not, and the caller removes
/// it: then that is told. Whoever does not remove it after all fails, which takes the word back.
pub(crate) async fn hide(entry: &Entry, tx: &mut Tx) -> Result<Option<DeletedFile>> {
    let Content::File(info) = &entry.content else { return Ok(None) };
    let parent = entry.parent.unwrap_or(ROOT);
    let Some(home) = home_of(parent, &entry.name, tx).await? else { return Ok(None) };
    if home.bucket.versioning == Versioning::Off {
        tx.tell(&home.bucket, &Happening::of_key(EventKind::Removed, home.key, None), &Cause::default())?;
        return Ok(None);
    }
    let delete = DeleteObject {
        bucket: home.bucket.entry,
        key: home.key,
        version: None,
        precondition: Precondition::default(),
        owner: entry.owner.clone(),
        bypass: false,
        only_hidden: false,
        cause: Cause::default(),
    };
    // Numbers are for directories, which hiding makes none of.
    delete_object(0..0, &delete, tx).await?;
    let policies = policies::read(tx).await?;
    Ok(Some(DeletedFile {
        bitfile: info.bitfile,
        parent,
        name: entry.name.clone(),
        owner: entry.owner.clone(),
        group: entry.group.clone(),
        size_bytes: info.size_bytes,
        deleted: tx.now,
        reclaim_after: reclaim_after(tx.now, &info.cos, &policies),
    }))
}

/// Where a file lies, as S3 says it.
struct Home {
    bucket: Bucket,
    key: String,
}

/// The nearest bucket above a name, and its key in it.
async fn home_of(parent: EntryId, name: &str, tx: &mut Tx) -> Result<Option<Home>> {
    let mut names = vec![name.to_owned()];
    for row in tx.rows(&ABOVE, args![parent]).await? {
        let mut row = row.cursor();
        let (directory, bucket) = (row.text()?, row.maybe_number()?);
        if let Some(bucket) = bucket {
            names.reverse();
            let bucket = bucket_of_entry(EntryId(bucket), tx).await?;
            return Ok(Some(Home { bucket, key: names.concat() }));
        }
        names.push(directory);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_and_a_retention_lock_and_only_governance_can_be_bypassed() {
        let now = Timestamp(1000);
        let retain = |until, compliance| Retention { until: Timestamp(until), compliance };
        assert!(why_locked(true, None, true, now).is_some());
        assert!(why_locked(false, Some(&retain(1001, false)), false, now).is_some());
        assert!(why_locked(false, Some(&retain(1001, false)), true, now).is_none());
        assert!(why_locked(false, Some(&retain(1001, true)), true, now).is_some());
        assert!(why_locked(false, Some(&retain(1000, true)), false, now).is_none());
        assert!(why_locked(false, None, false, now).is_none());
    }
}
