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
use crate::record::{
    Bucket, DeleteObject, Deleted, Happening, Object, Precondition, Tags, Version, VersionRef, Versioning,
};
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
    let Done { deleted, changed } = remove(ids, delete, &bucket, tx).await?;
    if let Some(version) = changed {
        let hidden = deleted.marker && delete.version.is_none();
        let kind = delete.cause.way.removed(hidden);
        tx.tell(&bucket, &Happening::of_key(kind, delete.key.clone(), Some(version)), &delete.cause)?;
    }
    Ok(deleted)
}

/// What came of a removal.
#[derive(Default)]
struct Done {
    /// As the caller hears it.
    deleted: Deleted,
    /// The version that went, or the delete marker that came; `None` if nothing was there to be removed.
    changed: Option<Version>,
}

async fn remove(ids: Range<u64>, delete: &DeleteObject, bucket: &Bucket, tx: &mut Tx) -> Result<Done> {
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
        let changed = current.map(|current| current.version);
        return Ok(Done { deleted: Deleted::default(), changed });
    }
    let newest = newest_unnamed(delete.bucket, &delete.key, tx).await?;
    check(delete, current.as_ref().or(newest.as_ref()))?;
    if current.is_none() && newest.is_none() && delete.precondition != Precondition::default() {
        // A condition on what never was: there is nothing to hide.
        return Ok(Done::default());
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
    Ok(Done { deleted: Deleted { version: Some(version), marker: true }, changed: Some(version) })
}

/// Removes one version for good. If it was the newest, the one before it is current again.
async fn delete_version(
    ids: Range<u64>,
    delete: &DeleteObject,
    parts: &Parts<'_>,
    wanted: VersionRef,
    current: Option<Object>,
    tx: &mut Tx,
) -> Result<Done> {
    let bucket = delete.bucket;
    if let Some(current) = current {
        if !wanted.is(current.version) {
            return delete_unnamed(delete, wanted, tx).await;
        }
        if delete.only_hidden {
            return Err(CatalogError::Changed { name: delete.key.clone() });
        }
        check(delete, Some(&current))?;
        may_go(&current, delete, tx)?;
        remove_current(bucket, &current, tx).await?;
        restore_newest(ids, delete, parts, tx).await?;
        let deleted = Deleted { version: Some(current.version), marker: false };
        return Ok(Done { deleted, changed: deleted.version });
    }
    let newest = newest_unnamed(bucket, &delete.key, tx).await?.map(|newest| newest.version);
    let done = delete_unnamed(delete, wanted, tx).await?;
    if done.changed.is_some() && done.changed == newest {
        restore_newest(ids, delete, parts, tx).await?;
    }
    Ok(done)
}

async fn delete_unnamed(delete: &DeleteObject, wanted: VersionRef, tx: &mut Tx) -> Result<Done> {
    let found = unnamed(delete.bucket, &delete.key, wanted, tx).await?;
    check(delete, found.as_ref())?;
    let Some(found) = found else {
        let version = match wanted {
            VersionRef::Plain => Version { number: 0, plain: true },
            VersionRef::Number(number) => Version { number, plain: false },
        };
        return Ok(Done { deleted: Deleted { version: Some(version), marker: false }, changed: None });
    };
    may_go(&found, delete, tx)?;
    remove_unnamed(delete.bucket, &found, tx).await?;
    let deleted = Deleted { version: Some(found.version), marker: found.data.is_none() };
    Ok(Done { deleted, changed: deleted.version })
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
