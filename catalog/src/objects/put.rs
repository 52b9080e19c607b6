//! Publishing an object: name, bitfile, versions and what S3 says of it, in one transaction.

use std::ops::Range;
use std::sync::Arc;

use wire::id::EntryId;

use crate::batch::{Publish, Tx};
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::objects::buckets::bucket_of_entry;
use crate::objects::look::{current_held, newest_unnamed, retention_columns, unnamed};
use crate::objects::place::{Parts, make_directories};
use crate::objects::versions::{next_number, remove_unnamed, set_aside};
use crate::publish::publish;
use crate::record::{
    Expected, FileInfo, Happening, NewFile, NewObject, Object, ObjectData, Residency, Twins, Version, VersionRef,
    Versioning,
};
use crate::sql::{args, column, statements};

statements! {
    INSERT_OBJECT =
        "INSERT INTO object (bitfile, number, plain, etag, storage_class, attributes, parts, hold, retain_us, retain_mode)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
}

/// Numbers that publishing takes besides those of the key's directories: entry, bitfile, work.
pub(super) const OWN_IDS: u32 = 3;

impl Catalog {
    /// Publishes an object whose bytes are synced on its movers, all or nothing: what the key had is replaced or, in
    /// a bucket that keeps versions, set aside.
    ///
    /// # Errors
    ///
    /// `NotFound` (bucket, class of service, base; or something must be there), `Changed` by the precondition,
    /// `QuotaExceeded`, `InvalidName`, `NameTooLong`; `Inconsistent` if the segments do not cover the object.
    pub async fn put_object(&self, new: NewObject) -> Result<Object> {
        let ids = self.object_ids(&new.key).await?;
        self.write((ids, new), |(ids, new), tx| Box::pin(put_object(ids.clone(), new, None, tx))).await
    }

    pub(super) async fn object_ids(&self, key: &str) -> Result<Range<u64>> {
        let directories = u32::try_from(Parts::of(key)?.depth()).unwrap_or(u32::MAX);
        self.next_ids(directories.saturating_add(OWN_IDS)).await
    }
}

pub(super) async fn put_object(
    ids: Range<u64>,
    new: &NewObject,
    parts_json: Option<&str>,
    tx: &mut Tx,
) -> Result<Object> {
    let bucket = bucket_of_entry(new.bucket, tx).await?;
    let parts = Parts::of(&new.key)?;
    let directories = ids.start + u64::from(OWN_IDS)..ids.end;
    let parent = make_directories(new.bucket, &parts, directories, tx).await?;
    let current = current_held(new.bucket, &parts, &new.key, tx).await?;
    new.precondition.check(current.as_ref(), &new.key)?;
    let newest =
        if bucket.versioning == Versioning::Off { None } else { newest_unnamed(new.bucket, &new.key, tx).await? };
    let number = next_number(current.as_ref(), newest.as_ref(), tx);
    let plain = bucket.versioning != Versioning::Enabled;
    if bucket.versioning != Versioning::Off {
        match &current {
            Some(current) if !(plain && current.version.plain) => {
                set_aside(new.bucket, current, newest.as_ref(), tx).await?;
            }
            _ => {}
        }
        if plain && let Some(old) = unnamed(new.bucket, &new.key, VersionRef::Plain, tx).await? {
            remove_unnamed(new.bucket, &old, tx).await?;
        }
    }
    let file = NewFile {
        parent,
        name: parts.file.to_owned(),
        expected: Expected::Any,
        twins: Twins::Allow,
        owner: new.owner.clone(),
        group: new.group.clone(),
        mode: new.mode,
        acl: new.acl.clone(),
        replace_attributes: true,
        modified: None,
        cos: new.cos.clone(),
        storage_class: new.disk_class.clone(),
        size_bytes: new.size_bytes,
        sums: new.sums,
        base: new.base,
        segments: new.segments.clone(),
    };
    let file = Arc::new(Publish { file, first_id: ids.start });
    let published = publish(std::slice::from_ref(&file), tx).await?.results.pop();
    let published = published.unwrap_or_else(|| Err(CatalogError::inconsistent("an object was not published")))?;
    let (until, mode) = retention_columns(new.retain.as_ref());
    let (plain_column, hold) = (i64::from(plain), i64::from(new.hold));
    let row = args![
        published.bitfile,
        column(number),
        plain_column,
        &new.etag,
        new.storage_class.as_deref(),
        &new.attributes,
        parts_json,
        hold,
        until,
        mode
    ];
    tx.execute(&INSERT_OBJECT, row).await?;
    let object = as_published(new, published.entry, published, Version { number, plain }, tx);
    tx.tell(&bucket, &Happening::of_object(new.cause.way.created(), &object), &new.cause)?;
    Ok(object)
}

fn as_published(
    new: &NewObject,
    entry: EntryId,
    published: crate::record::Published,
    version: Version,
    tx: &Tx,
) -> Object {
    let file = FileInfo {
        bitfile: published.bitfile,
        size_bytes: new.size_bytes,
        cos: new.cos.clone(),
        sums: new.sums,
        generation: published.generation,
        residency: Residency { on_disk: true, tape_copies: 0, tape_copies_wanted: 0 },
    };
    Object {
        key: new.key.clone(),
        version,
        latest: true,
        owner: new.owner.clone(),
        group: new.group.clone(),
        mode: new.mode,
        acl: new.acl.clone(),
        modified: tx.now,
        data: Some(ObjectData {
            entry: Some(entry),
            file,
            etag: Some(new.etag.clone()),
            storage_class: new.storage_class.clone(),
            attributes: Some(new.attributes.clone()),
            hold: new.hold,
            retain: new.retain.clone(),
        }),
    }
}
