//! SQL: constant statements with one text for both databases, the values that go in and the rows that come out.
//!
//! A statement is declared with [`statements!`]. Bulk input is one JSON text in `$1`, which a leading common table
//! expression `r` turns into rows; how it does so is one of the few things in which the databases differ. Where the
//! rest of a text must differ as well (row locks, skipping locked rows), both texts stand side by side.
//!
//! Why not `sqlx::Any`: it copies every row into a third representation (measured: a page of 1,000 entries takes
//! 1.4 times as long), and hides connection options and error codes that are needed here.

mod conn;
#[cfg(test)]
mod describe;
mod error;

pub(crate) use conn::{Conn, Cursor, Readers, Row, Target};
pub(crate) use error::classify;

use serde::Serialize;
use wire::id::{
    AccountName, BitfileId, CosName, EntryId, Epoch, FileId, GroupName, RequestId, StorageClassName, VolumeLabel,
    WorkId,
};

use crate::error::{CatalogError, Result};
use crate::time::Timestamp;

/// One constant statement.
pub(crate) struct Statement {
    /// How tests and errors call it.
    pub(crate) name: &'static str,
    /// The text for SQLite.
    pub(crate) sqlite: &'static str,
    /// The text for PostgreSQL; mostly the same.
    pub(crate) postgres: &'static str,
}

/// Declares constant statements and `ALL`, the list of them, from which a test describes each on both databases.
///
/// - `NAME = "text";` is the same on both.
/// - `NAME = "text", "text";` differs: SQLite first.
/// - `NAME (column type, …) = "…";` has its bulk input in `r`, made from a JSON array of objects in `$1`. Its text
///   begins where `WITH RECURSIVE r AS (…)` ends.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident $(($first:ident $first_type:ident $(, $column:ident $type:ident)*))?
        = $text:expr $(, $postgres:expr)?;)+) => {
        $($(#[$doc])*
        const $name: $crate::sql::Statement = $crate::sql::statement!(
            $name [$($first $first_type $($column $type)*)?] $text; $($postgres)?
        );)+

        /// Every statement of this module.
        #[cfg(test)]
        pub(crate) const ALL: &[$crate::sql::Statement] = &[$($name),+];
    };
}

macro_rules! statement {
    ($name:ident [] $text:expr;) => { $crate::sql::statement!($name [] $text; $text) };
    ($name:ident [] $sqlite:expr; $postgres:expr) => {
        $crate::sql::Statement { name: stringify!($name), sqlite: $sqlite, postgres: $postgres }
    };
    ($name:ident [$($columns:ident)+] $text:expr;) => {
        $crate::sql::statement!($name [$($columns)+] $text; $text)
    };
    ($name:ident [$first:ident $first_type:ident $($column:ident $type:ident)*] $sqlite:expr; $postgres:expr) => {
        $crate::sql::Statement {
            name: stringify!($name),
            sqlite: concat!(
                "WITH RECURSIVE r AS (SELECT value ->> '$.", stringify!($first), "' AS ", stringify!($first),
                $(", value ->> '$.", stringify!($column), "' AS ", stringify!($column),)*
                " FROM json_each($1)) ", $sqlite
            ),
            postgres: concat!(
                "WITH RECURSIVE r AS (SELECT * FROM json_to_recordset(CAST($1 AS json)) AS j(",
                stringify!($first), " ", stringify!($first_type),
                $(", ", stringify!($column), " ", stringify!($type),)*
                ")) ", $postgres
            ),
        }
    };
}

pub(crate) use {statement, statements};

/// The rows of a bulk statement as the text that goes into `$1`.
pub(crate) fn json<T: Serialize + ?Sized>(rows: &T) -> Result<String> {
    serde_json::to_string(rows).map_err(|error| CatalogError::inconsistent(format!("rows have no JSON form: {error}")))
}

/// A row of one number, for bulk statements about identifiers.
#[derive(Serialize)]
pub(crate) struct IdRow {
    pub(crate) id: i64,
}

/// The text for `$1` of a bulk statement about bitfiles.
pub(crate) fn bitfile_rows<'a>(bitfiles: impl IntoIterator<Item = &'a BitfileId>) -> Result<String> {
    json(&bitfiles.into_iter().map(|bitfile| IdRow { id: bitfile.column() }).collect::<Vec<_>>())
}

/// One value that goes into a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
}

/// Values for a statement, in the order of `$1`, `$2`, ….
macro_rules! args {
    ($($value:expr),* $(,)?) => { &[$($crate::sql::Arg::from($value)),*] };
}

pub(crate) use args;

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::Int(Some(i64::from(value)))
    }
}

impl From<Timestamp> for Arg<'_> {
    fn from(value: Timestamp) -> Self {
        Self::Int(Some(value.0))
    }
}

impl From<Epoch> for Arg<'_> {
    fn from(value: Epoch) -> Self {
        Self::Int(Some(column(value.0)))
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(Some(value))
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(value: Option<&'a str>) -> Self {
        Self::Text(value)
    }
}

macro_rules! from_numbers {
    ($($id:ident)+) => {$(
        impl From<$id> for Arg<'_> {
            fn from(value: $id) -> Self {
                Self::Int(Some(value.column()))
            }
        }
    )+};
}

macro_rules! from_names {
    ($($name:ident)+) => {$(
        impl<'a> From<&'a $name> for Arg<'a> {
            fn from(value: &'a $name) -> Self {
                Self::Text(Some(value.as_str()))
            }
        }
    )+};
}

from_numbers!(BitfileId EntryId FileId RequestId WorkId);
from_names!(AccountName GroupName CosName StorageClassName VolumeLabel);

/// A size or count as a column holds it. Sizes are below 2^63 by their types ([`wire::extent::ByteRange`]); a larger
/// number is made up, and becomes the largest.
pub(crate) fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
