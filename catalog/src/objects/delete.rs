//! Removing objects: hiding a key behind a delete marker, or removing one version for good.

use std::ops::Range;

use wire::id::EntryId;

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::read_entry_of;
use crate::objects::buckets::bucket_of_entry;
use crate::objects::locks::{is_locked, why_locked};
use crate::objects::look::{current_held, newest_unnamed, unnamed};
use crate::objects::place::{Parts, make_directories, prune};
use crate::objects::put::OWN_IDS;
use crate::objects::versions::{insert_marker, next_number, promote, remove_current, remove_unnamed, set_aside};
use crate::record::{DeleteObject, Deleted, Object, Precondition, Tags, Version, VersionRef, Versioning};
use crate::sql::statements;

statements! {
    /// Where a file lies.
    PARENT_OF = "SELECT parent FROM entry WHERE id = $1";
}

impl Catalog {
    /// Removes an object. What is not there is removed already: that is no error.
    ///
    /// # Errors
    ///
    /// `NotFound` (the bucket; or something must be there), `Changed` by the precondition, or if a version that must
    /// not be current is; `Locked` for a version
    /// that may not be removed yet.
    pub async fn delete_object(&self, delete: DeleteObject) -> Result<Deleted> {
        let ids = self.object_ids(&delete.key).await?;
        self.write((ids, delete), |(ids, delete), tx| Box::pin(delete_object(ids.clone(), delete, tx))).await
    }
}

pub(super) async fn delete_object(ids: Range<u64>, delete: &DeleteObject, tx: &mut Tx) -> Result<Deleted> {
    let bucket = bucket_of_entry(delete.bucket, tx).await?;
    let parts = Parts::of(&delete.key)?;
    let current = current_held(delete.bucket, &parts, &delete.key, tx).await?;
    if let Some(wanted) = delete.version {
        return delete_version(ids, delete, &parts, wanted, current, tx).await;
    }
    if bucket.versioning == Versioning::Off {
        if let Some(current) = &current {
            check(delete, Some(current))?;
            may_go(current, delete, tx)?;
            remove_current(delete.bucket, current, tx).await?;
        }
        return Ok(Deleted::default());
    }
    let newest = newest_unnamed(delete.bucket, &delete.key, tx).await?;
    check(delete, current.as_ref().or(newest.as_ref()))?;
    if current.is_none() && newest.is_none() && delete.precondition != Precondition::default() {
        // A condition on what never was: there is nothing to hide.
        return Ok(Deleted::default());
    }
    let number = next_number(current.as_ref(), newest.as_ref(), tx);
    let plain = bucket.versioning == Versioning::Suspended;
    match &current {
        Some(current) if plain && current.version.plain => remove_current(delete.bucket, current, tx).await?,
        Some(current) => {
            let parent = parent_of(current, tx).await?;
            set_aside(delete.bucket, current, newest.as_ref(), tx).await?;
            prune(parent, delete.bucket, tx).await?;
        }
        None => {}
    }
    if plain && let Some(old) = unnamed(delete.bucket, &delete.key, VersionRef::Plain, tx).await? {
        remove_unnamed(delete.bucket, &old, tx).await?;
    }
    let version = Version { number, plain };
    let group = read_entry_of(delete.bucket, tx).await?.group;
    insert_marker(delete.bucket, &delete.key, version, (&delete.owner, &group), tx).await?;
    Ok(Deleted { version: Some(version), marker: true })
}

/// Removes one version for good. If it was the newest, the one before it is current again.
async fn delete_version(
    ids: Range<u64>,
    delete: &DeleteObject,
    parts: &Parts<'_>,
    wanted: VersionRef,
    current: Option<Object>,
    tx: &mut Tx,
) -> Result<Deleted> {
    let bucket = delete.bucket;
    if let Some(current) = current {
        if !wanted.is(current.version) {
            return delete_unnamed(delete, wanted, tx).await.map(|(deleted, _)| deleted);
        }
        if delete.only_hidden {
            return Err(CatalogError::Changed { name: delete.key.clone() });
        }
        check(delete, Some(&current))?;
        may_go(&current, delete, tx)?;
        remove_current(bucket, &current, tx).await?;
        restore_newest(ids, delete, parts, tx).await?;
        return Ok(Deleted { version: Some(current.version), marker: false });
    }
    let newest = newest_unnamed(bucket, &delete.key, tx).await?.map(|newest| newest.version);
    let (deleted, removed) = delete_unnamed(delete, wanted, tx).await?;
    if removed && deleted.version == newest {
        restore_newest(ids, delete, parts, tx).await?;
    }
    Ok(deleted)
}

async fn delete_unnamed(delete: &DeleteObject, wanted: VersionRef, tx: &mut Tx) -> Result<(Deleted, bool)> {
    let found = unnamed(delete.bucket, &delete.key, wanted, tx).await?;
    check(delete, found.as_ref())?;
    let Some(found) = found else {
        let version = match wanted {
            VersionRef::Plain => Version { number: 0, plain: true },
            VersionRef::Number(number) => Version { number, plain: false },
        };
        return Ok((Deleted { version: Some(version), marker: false }, false));
    };
    may_go(&found, delete, tx)?;
    remove_unnamed(delete.bucket, &found, tx).await?;
    Ok((Deleted { version: Some(found.version), marker: found.data.is_none() }, true))
}

/// The newest version, if it is no delete marker, becomes current.
async fn restore_newest(ids: Range<u64>, delete: &DeleteObject, parts: &Parts<'_>, tx: &mut Tx) -> Result<()> {
    let newest = newest_unnamed(delete.bucket, &delete.key, tx).await?;
    let Some(newest) = newest.filter(|newest| newest.data.is_some()) else { return Ok(()) };
    let directories = ids.start + u64::from(OWN_IDS)..ids.end;
    let parent = make_directories(delete.bucket, parts, directories, tx).await?;
    promote(delete.bucket, &newest, (parent, parts), EntryId(ids.start), tx).await
}

async fn parent_of(current: &Object, tx: &mut Tx) -> Result<EntryId> {
    let entry = current.data.as_ref().and_then(|data| data.entry);
    let entry = entry.ok_or_else(|| CatalogError::inconsistent("a current version has no name"))?;
    let row = tx.row(&PARENT_OF, crate::sql::args![entry]).await?;
    row.ok_or_else(|| CatalogError::corrupt("a file that is held has gone"))?.cursor().entry()
}

/// Checks the condition of a removal. What is not there fulfils any, since it is removed already; a delete marker only
/// that something is there.
fn check(delete: &DeleteObject, there: Option<&Object>) -> Result<()> {
    let anything = Precondition { matches: Some(Tags::Any), ..Precondition::default() };
    match there {
        Some(object) if object.data.is_some() => delete.precondition.check(Some(object), &delete.key),
        Some(_) if ![Precondition::default(), anything].contains(&delete.precondition) => {
            Err(CatalogError::Changed { name: delete.key.clone() })
        }
        _ => Ok(()),
    }
}

/// Refuses to remove a version that is locked.
fn may_go(version: &Object, delete: &DeleteObject, tx: &Tx) -> Result<()> {
    let Some(data) = &version.data else { return Ok(()) };
    match why_locked(data.hold, data.retain.as_ref(), delete.bypass, tx.now) {
        Some(why) => Err(is_locked(&delete.key, why)),
        None => Ok(()),
    }
}
