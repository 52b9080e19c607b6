//! The directories in which a key's file lies: found, made with the first key in them, removed with the last.

use std::ops::Range;

use serde::Serialize;
use wire::id::EntryId;

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::names::{insert_directory, read_entry_of};
use crate::path::MAX_KEY_BYTES;
use crate::sql::{args, json, statements};

/// How often a directory that goes away under our hands is made again.
const ATTEMPTS: usize = 8;

statements! {
    /// The directories of a key below a bucket, as far as they exist.
    DESCEND_KEY (depth bigint, name text) =
        ", walk AS (
            SELECT CAST(0 AS BIGINT) AS depth, CAST($2 AS BIGINT) AS id
            UNION ALL
            SELECT w.depth + 1, e.id FROM walk w CROSS JOIN r CROSS JOIN entry e
            WHERE r.depth = w.depth + 1 AND e.parent = w.id AND e.name = r.name
        )
        SELECT id FROM walk ORDER BY depth";

    /// Keeps a directory from being removed while a name is made in it (PostgreSQL).
    HOLD = "SELECT e.id FROM entry e WHERE e.id = $1", "SELECT e.id FROM entry e WHERE e.id = $1 FOR KEY SHARE";

    LOCK_DIRECTORY = "SELECT e.id FROM entry e WHERE e.id = $1", "SELECT e.id FROM entry e WHERE e.id = $1 FOR UPDATE";

    NOTE_PREFIX = "INSERT INTO prefix (entry) VALUES ($1)";

    /// A directory that exists only because keys lay in it.
    PRUNE =
        "DELETE FROM entry WHERE id = $1 AND EXISTS (SELECT 1 FROM prefix p WHERE p.entry = $1)
            AND NOT EXISTS (SELECT 1 FROM entry c WHERE c.parent = $1) RETURNING parent";

    FORGET_PREFIX = "DELETE FROM prefix WHERE entry = $1";
}

/// A component of a key.
#[derive(Serialize)]
pub(super) struct Step<'a> {
    depth: usize,
    name: &'a str,
}

/// A key taken apart: its directories, each with its `/`, and the file's name, which is empty if the key ends in `/`.
pub(super) struct Parts<'a> {
    directories: Vec<&'a str>,
    pub(super) file: &'a str,
}

impl<'a> Parts<'a> {
    /// Takes a key apart.
    ///
    /// # Errors
    ///
    /// `InvalidName` for an empty key or one with a NUL byte; `NameTooLong`.
    pub(super) fn of(key: &'a str) -> Result<Self> {
        if key.len() > MAX_KEY_BYTES {
            return Err(CatalogError::NameTooLong { length_bytes: key.len(), limit_bytes: MAX_KEY_BYTES });
        }
        if key.is_empty() || key.contains('\0') {
            let reason = if key.is_empty() { "it is empty" } else { "it holds a NUL byte" };
            return Err(CatalogError::InvalidName { name: key.chars().take(80).collect(), reason });
        }
        let (directories, file) = key.split_at(key.rfind('/').map_or(0, |at| at + 1));
        Ok(Self { directories: directories.split_inclusive('/').collect(), file })
    }

    /// How many directories it lies in, below the bucket.
    pub(super) fn depth(&self) -> usize {
        self.directories.len()
    }

    /// The way from the bucket to the file, for a statement.
    pub(super) fn steps(&self) -> Result<String> {
        let names = self.directories.iter().copied().chain(std::iter::once(self.file));
        json(&names.enumerate().map(|(at, name)| Step { depth: at + 1, name }).collect::<Vec<_>>())
    }

    fn directory_steps(&self) -> Result<String> {
        let names = self.directories.iter().enumerate();
        json(&names.map(|(at, name)| Step { depth: at + 1, name }).collect::<Vec<_>>())
    }
}

/// The directory in which the file lies; made, with those above it, where it is not. It stays until the transaction
/// ends. `ids` has as many numbers as the key has directories.
pub(super) async fn make_directories(
    bucket: EntryId,
    parts: &Parts<'_>,
    ids: Range<u64>,
    tx: &mut Tx,
) -> Result<EntryId> {
    let steps = parts.directory_steps()?;
    let mut ids = ids.map(EntryId);
    for _ in 0..ATTEMPTS {
        let found = tx.rows(&DESCEND_KEY, args![&steps, bucket]).await?;
        let mut parent = found.last().map_or(Ok(bucket), |row| row.cursor().entry())?;
        // What is found may be pruned by another transaction before it is held (PostgreSQL).
        if tx.lock(&HOLD, args![parent]).await?.is_some_and(|rows| rows.is_empty()) {
            continue;
        }
        let missing = &parts.directories[found.len().saturating_sub(1)..];
        if !missing.is_empty() {
            let above = read_entry_of(bucket, tx).await?;
            for name in missing {
                let id = ids.next().ok_or_else(|| CatalogError::inconsistent("too few numbers for directories"))?;
                let name = name.strip_suffix('/').unwrap_or(name);
                insert_directory(id, parent, name, (&above.owner, &above.group, above.mode), tx).await?;
                tx.execute(&NOTE_PREFIX, args![id]).await?;
                parent = id;
            }
        }
        return Ok(parent);
    }
    Err(CatalogError::inconsistent("a directory came and went all the time"))
}

/// Removes directories from here up that existed only because keys lay in them.
pub(super) async fn prune(mut directory: EntryId, bucket: EntryId, tx: &mut Tx) -> Result<()> {
    while directory != bucket {
        tx.lock(&LOCK_DIRECTORY, args![directory]).await?;
        let Some(row) = tx.row(&PRUNE, args![directory]).await? else { break };
        let parent = row.cursor().entry()?;
        tx.execute(&FORGET_PREFIX, args![directory]).await?;
        directory = parent;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_apart_at_every_slash_and_together_again() {
        for key in ["a", "a/b", "a/", "/", "a//b", "//", "/a", "a/b/c/"] {
            let parts = Parts::of(key).expect("a good key");
            assert_eq!(format!("{}{}", parts.directories.concat(), parts.file), key);
            assert!(
                parts.directories.iter().all(|name| name.ends_with('/') && name.matches('/').count() == 1),
                "{key}"
            );
        }
        assert!(Parts::of("").is_err());
        assert!(Parts::of("a\0").is_err());
        assert!(matches!(Parts::of(&"k".repeat(1025)), Err(CatalogError::NameTooLong { limit_bytes: 1024, .. })));
    }
}
