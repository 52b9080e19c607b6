//! One version of a key, in one round trip.

use wire::id::{BitfileId, EntryId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::{entry_columns, read_entry, read_residency, read_sums};
use crate::objects::place::Parts;
use crate::record::{Content, Entry, FileInfo, Object, ObjectData, Retention, Version, VersionRef};
use crate::sql::{Cursor, Row, args, bitfile_rows, statements};

/// What S3 says of a bitfile, of `object o`.
macro_rules! object_columns {
    () => {
        "o.number, o.plain, o.etag, o.storage_class, o.attributes, o.hold, o.retain_us, o.retain_mode"
    };
}

/// A version without a name, of `version v LEFT JOIN bitfile b LEFT JOIN object o`.
macro_rules! version_columns {
    () => {
        "v.key, v.rank, v.plain AS is_plain, v.owner, v.grp, v.mode, v.acl, v.modified_us, v.bitfile, b.size, b.cos, \
         b.adler32, b.crc32c, b.md5, b.sha256, b.generation, b.on_disk, b.tapes, b.tapes_wanted, o.number, o.plain, \
         o.etag, o.storage_class, o.attributes, o.hold, o.retain_us, o.retain_mode"
    };
}

macro_rules! current_text {
    ($lock:literal) => {
        concat!(
            ", walk AS (
                SELECT CAST(0 AS BIGINT) AS depth, CAST($2 AS BIGINT) AS id
                UNION ALL
                SELECT w.depth + 1, e.id FROM walk w CROSS JOIN r CROSS JOIN entry e
                WHERE r.depth = w.depth + 1 AND e.parent = w.id AND e.name = r.name
            )
            SELECT ",
            entry_columns!(),
            ", ",
            object_columns!(),
            "
            FROM walk w CROSS JOIN entry e JOIN bitfile b ON b.id = e.bitfile
            LEFT JOIN object o ON o.bitfile = b.id WHERE w.depth = $3 AND e.id = w.id",
            $lock
        )
    };
}

pub(super) use version_columns;

statements! {
    /// The current version of a key: the file at the end of its components.
    CURRENT (depth bigint, name text) = current_text!("");

    /// The same, held until the transaction ends.
    CURRENT_HELD (depth bigint, name text) = current_text!(""), current_text!(" FOR UPDATE OF e");

    NEWEST_UNNAMED = concat!(
        "SELECT ", version_columns!(), " FROM version v LEFT JOIN bitfile b ON b.id = v.bitfile
        LEFT JOIN object o ON o.bitfile = v.bitfile WHERE v.bucket = $1 AND v.key = $2 ORDER BY v.rank LIMIT 1"
    );

    UNNAMED = concat!(
        "SELECT ", version_columns!(), " FROM version v LEFT JOIN bitfile b ON b.id = v.bitfile
        LEFT JOIN object o ON o.bitfile = v.bitfile
        WHERE v.bucket = $1 AND v.key = $2 AND (($3 = 1 AND v.plain = 1) OR ($3 = 0 AND v.plain = 0 AND v.rank = $4))"
    );

    OBJECTS_OF (id bigint) = concat!(
        "SELECT o.bitfile, ", object_columns!(), " FROM r JOIN object o ON o.bitfile = r.id"
    );

    WANTED = "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM request q
        WHERE q.bitfile = $1 AND q.outcome IS NULL LIMIT 1) AS w";

    PARTS_OF = "SELECT parts FROM object WHERE bitfile = $1";

    CHANGE_OBJECT =
        "UPDATE object SET attributes = $2, hold = $3, retain_us = $4, retain_mode = $5
        WHERE bitfile = $1 AND attributes = $6";

    /// What another door wrote gets its row with the first change.
    ADOPT_OBJECT =
        "INSERT INTO object (bitfile, number, plain, etag, attributes, hold, retain_us, retain_mode)
        SELECT b.id, CAST($2 AS BIGINT), 1, CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS BIGINT), CAST($6 AS BIGINT),
            CAST($7 AS TEXT) FROM bitfile b WHERE b.id = $1
        ON CONFLICT (bitfile) DO NOTHING";
}

impl Catalog {
    /// A version of a key; the newest, which may be a delete marker, if none is named.
    ///
    /// # Errors
    ///
    /// `InvalidName`, `NameTooLong`.
    pub async fn object(&self, bucket: EntryId, key: &str, version: Option<VersionRef>) -> Result<Option<Object>> {
        let parts = Parts::of(key)?;
        let steps = parts.steps()?;
        let current = self.row(&CURRENT, args![&steps, bucket, depth(&parts)]).await?;
        let current = current.map(|row| read_current(&row, key)).transpose()?;
        match (version, current) {
            (None, Some(current)) => Ok(Some(current)),
            (Some(wanted), Some(current)) if wanted.is(current.version) => Ok(Some(current)),
            (None, None) => {
                let row = self.row(&NEWEST_UNNAMED, args![bucket, key]).await?;
                row.map(|row| read_unnamed(&row, true)).transpose()
            }
            (Some(wanted), current) => {
                let (plain, rank) = columns(wanted);
                let Some(row) = self.row(&UNNAMED, args![bucket, key, plain, rank]).await? else { return Ok(None) };
                let mut found = read_unnamed(&row, false)?;
                if current.is_none() {
                    let newest = self.row(&NEWEST_UNNAMED, args![bucket, key]).await?;
                    let newest = newest.map(|row| read_unnamed(&row, true)).transpose()?;
                    found.latest = newest.is_some_and(|newest| newest.version == found.version);
                }
                Ok(Some(found))
            }
        }
    }

    /// Whether somebody has asked for a bitfile to be on disk and waits.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn is_wanted(&self, bitfile: BitfileId) -> Result<bool> {
        let row = self.row(&WANTED, args![bitfile]).await?;
        row.map_or(Ok(false), |row| row.cursor().flag())
    }

    /// What S3 says of the parts of a multipart object: JSON of the door's.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn object_parts(&self, bitfile: BitfileId) -> Result<Option<String>> {
        let row = self.row(&PARTS_OF, args![bitfile]).await?;
        row.map_or(Ok(None), |row| row.cursor().maybe_text())
    }

    /// Changes what may be changed of a version: the door's attributes and its locks, if they are what was seen.
    ///
    /// # Errors
    ///
    /// `Changed`; `NotFound` for a delete marker.
    pub async fn change_object(
        &self,
        seen: &Object,
        attributes: String,
        hold: bool,
        retain: Option<Retention>,
    ) -> Result<()> {
        let job = (seen.clone(), attributes, i64::from(hold), retain);
        self.write(job, |(seen, attributes, hold, retain), tx| {
            Box::pin(async move {
                let data = seen.data.as_ref().ok_or_else(|| CatalogError::not_found("object", &seen.key))?;
                let (bitfile, changed) = (data.file.bitfile, CatalogError::Changed { name: seen.key.clone() });
                let (until, mode) = retention_columns(retain.as_ref());
                let written = match &data.attributes {
                    Some(old) => {
                        tx.execute(&CHANGE_OBJECT, args![bitfile, attributes, *hold, until, mode, old]).await?
                    }
                    None => adopt(seen, data, attributes, (*hold == 1, retain.as_ref()), tx).await?,
                };
                if written == 0 { Err(changed) } else { Ok(()) }
            })
        })
        .await
    }

    /// The files of a listing as objects.
    pub(super) async fn as_objects(&self, files: Vec<(String, Entry)>) -> Result<Vec<Object>> {
        let ids: Vec<_> = files.iter().filter_map(|(_, entry)| Some(entry.file()?.bitfile)).collect();
        let mut known = std::collections::HashMap::new();
        for row in self.rows(&OBJECTS_OF, args![&bitfile_rows(&ids)?]).await? {
            let mut row = row.cursor();
            known.insert(row.bitfile()?, read_known(&mut row)?);
        }
        let object = |(key, entry): (String, Entry)| {
            let known = entry.file().and_then(|file| known.remove(&file.bitfile)).flatten();
            current_of(entry, known, &key)
        };
        files.into_iter().map(object).collect()
    }
}

/// Gives a version that another door wrote its row; none if it has one.
pub(super) async fn adopt(
    seen: &Object,
    data: &ObjectData,
    attributes: &str,
    (hold, retain): (bool, Option<&Retention>),
    tx: &mut Tx,
) -> Result<u64> {
    let (number, etag) = (crate::sql::column(seen.version.number), data.etag());
    let (until, mode) = retention_columns(retain);
    let hold = i64::from(hold);
    tx.execute(&ADOPT_OBJECT, args![data.file.bitfile, number, &etag, attributes, hold, until, mode]).await
}

/// The current version of a key, which stays until the transaction ends.
pub(super) async fn current_held(bucket: EntryId, parts: &Parts<'_>, key: &str, tx: &mut Tx) -> Result<Option<Object>> {
    let steps = parts.steps()?;
    let row = tx.row(&CURRENT_HELD, args![&steps, bucket, depth(parts)]).await?;
    row.map(|row| read_current(&row, key)).transpose()
}

/// The newest version that has no name.
pub(super) async fn newest_unnamed(bucket: EntryId, key: &str, tx: &mut Tx) -> Result<Option<Object>> {
    let row = tx.row(&NEWEST_UNNAMED, args![bucket, key]).await?;
    row.map(|row| read_unnamed(&row, false)).transpose()
}

/// A version that has no name.
pub(super) async fn unnamed(bucket: EntryId, key: &str, wanted: VersionRef, tx: &mut Tx) -> Result<Option<Object>> {
    let (plain, rank) = columns(wanted);
    let row = tx.row(&UNNAMED, args![bucket, key, plain, rank]).await?;
    row.map(|row| read_unnamed(&row, false)).transpose()
}

fn columns(wanted: VersionRef) -> (i64, i64) {
    match wanted {
        VersionRef::Plain => (1, 0),
        VersionRef::Number(number) => (0, -crate::sql::column(number)),
    }
}

pub(super) fn retention_columns(retain: Option<&Retention>) -> (Option<i64>, Option<&'static str>) {
    let mode = |retain: &Retention| if retain.compliance { "compliance" } else { "governance" };
    (retain.map(|retain| retain.until.0), retain.map(mode))
}

fn depth(parts: &Parts<'_>) -> i64 {
    i64::try_from(parts.depth() + 1).unwrap_or(i64::MAX)
}

/// What S3 says of a bitfile.
struct Known {
    version: Version,
    etag: Option<String>,
    storage_class: Option<String>,
    attributes: Option<String>,
    hold: bool,
    retain: Option<Retention>,
}

fn read_known(row: &mut Cursor<'_>) -> Result<Option<Known>> {
    let (number, plain) = (row.maybe_number()?, row.maybe_int()?);
    let (etag, storage_class, attributes) = (row.maybe_text()?, row.maybe_text()?, row.maybe_text()?);
    let (hold, until, mode) = (row.maybe_int()?, row.maybe_time()?, row.maybe_text()?);
    Ok(number.map(|number| Known {
        version: Version { number, plain: plain == Some(1) },
        etag,
        storage_class,
        attributes,
        hold: hold == Some(1),
        retain: until.map(|until| Retention { until, compliance: mode.as_deref() == Some("compliance") }),
    }))
}

fn read_current(row: &Row, key: &str) -> Result<Object> {
    let mut row = row.cursor();
    let entry = read_entry(&mut row)?;
    let known = read_known(&mut row)?;
    current_of(entry, known, key)
}

fn current_of(entry: Entry, known: Option<Known>, key: &str) -> Result<Object> {
    let Content::File(file) = entry.content else {
        return Err(CatalogError::inconsistent(format!("{key:?} is a directory")));
    };
    let number = u64::try_from(entry.changed.0).unwrap_or_default();
    let version = known.as_ref().map_or(Version { number, plain: true }, |known| known.version);
    Ok(Object {
        key: key.to_owned(),
        version,
        latest: true,
        owner: entry.owner,
        group: entry.group,
        mode: entry.mode,
        acl: entry.acl,
        modified: entry.modified,
        data: Some(data_of(Some(entry.id), file, known)),
    })
}

fn data_of(entry: Option<EntryId>, file: FileInfo, known: Option<Known>) -> ObjectData {
    match known {
        None => {
            ObjectData { entry, file, etag: None, storage_class: None, attributes: None, hold: false, retain: None }
        }
        Some(Known { etag, storage_class, attributes, hold, retain, .. }) => {
            ObjectData { entry, file, etag, storage_class, attributes, hold, retain }
        }
    }
}

/// Reads [`version_columns!`].
pub(super) fn read_unnamed(row: &Row, latest: bool) -> Result<Object> {
    let mut row = row.cursor();
    let key = row.text()?;
    let (rank, plain) = (row.int()?, row.flag()?);
    let number = u64::try_from(rank.saturating_neg())
        .map_err(|_| CatalogError::corrupt(format!("{rank} where a version's rank should be")))?;
    let (owner, group, mode, acl) = (row.name()?, row.name()?, row.small()?, row.maybe_text()?);
    let modified = row.time()?;
    let data = match row.maybe_bitfile()? {
        None => None,
        Some(bitfile) => {
            let file = FileInfo {
                bitfile,
                size_bytes: row.number()?,
                cos: row.name()?,
                sums: read_sums(&mut row)?,
                generation: row.number()?,
                residency: read_residency(&mut row)?,
            };
            Some(data_of(None, file, read_known(&mut row)?))
        }
    };
    Ok(Object { key, version: Version { number, plain }, latest, owner, group, mode, acl, modified, data })
}
