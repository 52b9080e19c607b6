//! Following a path from the root, and bitfiles back to their paths: one round trip each.

use wire::id::{BitfileId, EntryId};

use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::{entry_columns, read_entry};
use crate::path::TreePath;
use crate::record::{Entry, Leaf, Resolved};
use crate::sql::{args, bitfile_rows, json, statements};

macro_rules! walk {
    ($names:literal) => {
        concat!(
            $names,
            "walk AS (
                SELECT CAST(0 AS BIGINT) AS depth, id, parent, name, owner, grp, mode, acl, created_us, modified_us,
                    changed_us, bitfile
                FROM entry WHERE parent = 0 AND name = ''
                UNION ALL
                SELECT w.depth + 1, e.id, e.parent, e.name, e.owner, e.grp, e.mode, e.acl, e.created_us, e.modified_us,
                    e.changed_us, e.bitfile
                FROM walk w CROSS JOIN r CROSS JOIN entry e
                WHERE r.depth = w.depth + 1 AND e.parent = w.id AND e.name = r.name
            )
            SELECT e.depth, ",
            entry_columns!(),
            "
            FROM walk e LEFT JOIN bitfile b ON b.id = e.bitfile ORDER BY e.depth, e.name"
        )
    };
}

statements! {
    /// Every entry on the way, by depth; `$1` is the names of the components, as a JSON array. A component may be a
    /// directory, a file, or both, so both names are looked for: PostgreSQL looks up an equality in its index, but not one
    /// of two. SQLite takes `CROSS JOIN` as an order: without statistics it would read all of a directory for each
    /// component; and reads the array once for all of them.
    RESOLVE_PATH = walk!(
        "WITH RECURSIVE c AS MATERIALIZED (SELECT key + 1 AS depth, value AS name FROM json_each($1)),
        r AS MATERIALIZED (SELECT depth, name FROM c UNION ALL SELECT depth, name || '/' FROM c), "
    ), walk!(
        "WITH RECURSIVE c AS (
            SELECT ordinality AS depth, value AS name FROM json_array_elements_text(CAST($1 AS json)) WITH ORDINALITY
        ),
        r AS (SELECT depth, name FROM c UNION ALL SELECT depth, name || '/' FROM c), "
    );

    ENTRY_BY_ID = concat!(
        "SELECT ", entry_columns!(), " FROM entry e LEFT JOIN bitfile b ON b.id = e.bitfile WHERE e.id = $1"
    );

    /// Names joined upwards: directories bring their own `/`.
    PATHS_OF (id bigint) =
        ", up AS (
            SELECT b.id AS bitfile, e.parent AS parent, e.name AS path
            FROM r JOIN bitfile b ON b.id = r.id JOIN entry e ON e.id = b.entry
            UNION ALL
            SELECT v.bitfile, v.bucket, v.key || '?versionId=' || CAST(-v.rank AS TEXT) FROM r JOIN version v ON v.bitfile = r.id
            UNION ALL
            SELECT u.bitfile, e.parent, e.name || u.path FROM up u JOIN entry e ON e.id = u.parent
        )
        SELECT bitfile, '/' || path FROM up WHERE parent = 0 ORDER BY bitfile";
}

impl Catalog {
    /// Follows a path from the root, in one round trip, whatever its length.
    ///
    /// # Errors
    ///
    /// Only those of the database: what is missing is said in [`Resolved::leaf`], because a door has to check
    /// permissions on what was found before it may say so.
    pub async fn resolve(&self, path: &TreePath) -> Result<Resolved> {
        let rows = self.rows(&RESOLVE_PATH, args![&json(path.components())?]).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let mut row = row.cursor();
            let depth = usize::try_from(row.number()?).unwrap_or(usize::MAX);
            found.push((depth, read_entry(&mut row)?));
        }
        conclude(path, found)
    }

    /// The entry of that number; `None` if there is none any more.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn entry(&self, id: EntryId) -> Result<Option<Entry>> {
        let row = self.row(&ENTRY_BY_ID, args![id]).await?;
        row.map(|row| read_entry(&mut row.cursor())).transpose()
    }

    /// The full paths of bitfiles, from the root with a leading `/`, in one statement, by bitfile. Those without a
    /// name (in the undelete window, gone) are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn paths_of(&self, bitfiles: &[BitfileId]) -> Result<Vec<(BitfileId, String)>> {
        let rows = self.rows(&PATHS_OF, args![&bitfile_rows(bitfiles)?]).await?;
        let read = |row: crate::sql::Row| {
            let mut row = row.cursor();
            Ok((row.bitfile()?, row.text()?))
        };
        rows.into_iter().map(read).collect()
    }
}

/// What the entries found along a path come to. `found` is sorted by depth.
fn conclude(path: &TreePath, found: Vec<(usize, Entry)>) -> Result<Resolved> {
    let wanted = path.components().len();
    let mut directories = Vec::new();
    let mut file_at_end = None;
    for (depth, entry) in found {
        if entry.is_directory() && depth == directories.len() {
            directories.push(entry);
        } else if !entry.is_directory() {
            file_at_end = Some((depth, entry));
        }
    }
    let Some(reached) = directories.len().checked_sub(1) else {
        return Err(CatalogError::corrupt("the root directory is missing"));
    };
    let file = file_at_end.filter(|(depth, _)| *depth == wanted || *depth == reached + 1);
    let name = |at: usize| path.components().get(at).cloned().unwrap_or_default();
    let leaf = match file {
        Some((depth, file)) if depth == wanted && !(path.means_directory() && reached == wanted) => {
            directories.truncate(wanted);
            if path.means_directory() { Leaf::BlockedByFile { name: file.name } } else { Leaf::Found(Box::new(file)) }
        }
        _ if reached == wanted => match directories.pop() {
            Some(directory) => Leaf::Found(Box::new(directory)),
            None => return Err(CatalogError::corrupt("the root directory is missing")),
        },
        Some((_, file)) => Leaf::BlockedByFile { name: file.name },
        None if reached + 1 == wanted => Leaf::Missing { name: name(reached) },
        None => Leaf::MissingAncestor { name: name(reached) },
    };
    Ok(Resolved { ancestors: directories, leaf })
}
