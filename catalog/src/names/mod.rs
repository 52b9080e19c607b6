//! Names: resolving, listing, making, moving and removing entries of the tree.
//!
//! A directory is stored with a trailing `/` in its name, a file without, so that the order of names within the tree
//! is S3's order of keys. Everything that makes or removes a name checks what stands there in the same transaction;
//! on PostgreSQL the directory is locked meanwhile, so that it is not removed under a new name.

mod change;
mod deleted;
mod listing;
mod resolve;

#[cfg(test)]
pub(crate) use change::ALL as CHANGE;
pub(crate) use change::{insert_directory, place, read_entry_of, remove_file};
#[cfg(test)]
pub(crate) use deleted::ALL as DELETED;
#[cfg(test)]
pub(crate) use listing::ALL as LISTING;
#[cfg(test)]
pub(crate) use resolve::ALL as RESOLVE;

use wire::checksum::Sums;
use wire::id::EntryId;

use crate::error::{CatalogError, Result};
use crate::record::{Content, Entry, FileInfo, Residency};
use crate::sql::Cursor;

/// The columns that make an [`Entry`], of `entry e LEFT JOIN bitfile b`.
macro_rules! entry_columns {
    () => {
        "e.id, e.parent, e.name, e.owner, e.grp, e.mode, e.acl, e.created_us, e.modified_us, e.changed_us, \
         e.bitfile, b.size, b.cos, b.adler32, b.crc32c, b.md5, b.sha256, b.generation, b.on_disk, b.tapes, \
         b.tapes_wanted"
    };
}

pub(crate) use entry_columns;

/// Reads [`entry_columns!`].
pub(crate) fn read_entry(row: &mut Cursor<'_>) -> Result<Entry> {
    let id = row.entry()?;
    let parent = Some(row.entry()?).filter(|parent| parent.0 != 0);
    let stored: String = row.text()?;
    let name = stored.strip_suffix('/').map_or_else(|| stored.clone(), str::to_owned);
    let (owner, group) = (row.name()?, row.name()?);
    let (mode, acl) = (row.small()?, row.maybe_text()?);
    let (created, modified, changed) = (row.time()?, row.time()?, row.time()?);
    let content = match row.maybe_bitfile()? {
        None => Content::Directory,
        Some(bitfile) => Content::File(FileInfo {
            bitfile,
            size_bytes: row.number()?,
            cos: row.name()?,
            sums: read_sums(row)?,
            generation: row.number()?,
            residency: read_residency(row)?,
        }),
    };
    Ok(Entry { id, parent, name, owner, group, mode, acl, created, modified, changed, content })
}

/// Reads `adler32, crc32c, md5, sha256`.
pub(crate) fn read_sums(row: &mut Cursor<'_>) -> Result<Sums> {
    Ok(Sums {
        adler32: row.small()?,
        crc32c: row.small()?,
        md5: row.maybe_text()?.map(|text| digest(&text)).transpose()?,
        sha256: row.maybe_text()?.map(|text| digest(&text)).transpose()?,
    })
}

/// Reads `on_disk, tapes, tapes_wanted`.
pub(crate) fn read_residency(row: &mut Cursor<'_>) -> Result<Residency> {
    Ok(Residency { on_disk: row.flag()?, tape_copies: row.small()?, tape_copies_wanted: row.small()? })
}

fn digest<const N: usize>(text: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes)
        .map_err(|_| CatalogError::corrupt(format!("{text:?} where a sum should be")))?;
    Ok(bytes)
}

/// The error for an entry that is gone.
pub(crate) fn no_entry(id: EntryId) -> CatalogError {
    CatalogError::not_found("file or directory", format!("#{id}"))
}
