//! Connections to either database behind one face: run a statement, get rows.
//!
//! Owns nothing but the connections. Knows no table.

use std::str::FromStr;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, PgConnection, Postgres, Sqlite, SqliteConnection};
use wire::id::{BitfileId, EntryId, Epoch, RequestId, WorkId};

use crate::error::{CatalogError, Result};
use crate::sql::{Arg, Statement, classify};
use crate::time::Timestamp;

/// How long a reader waits for a connection, and a SQLite writer for another process's transaction.
const PATIENCE: Duration = Duration::from_secs(10);
/// SQLite's page cache of one connection, in KiB (negative: that is how `cache_size` counts KiB).
const SQLITE_CACHE: &str = "-16384";

/// Every statement is a few index lookups, whatever its numbers: it is planned once, never compiled, and never reads a
/// whole table because that is small today.
const POSTGRES_PLANNING: [(&str, &str); 3] =
    [("plan_cache_mode", "force_generic_plan"), ("jit", "off"), ("enable_seqscan", "off")];

/// Where the database is, and how to connect.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

impl Target {
    /// Reads a catalogue's URL.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let refused = |error: sqlx::Error| CatalogError::inconsistent(format!("catalogue URL: {error}"));
        if url.starts_with("sqlite:") {
            let options = SqliteConnectOptions::from_str(url)
                .map_err(refused)?
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                // An acknowledged write is on stable storage: NORMAL would lose the last ones in a power cut.
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(PATIENCE)
                .pragma("cache_size", SQLITE_CACHE)
                .pragma("temp_store", "MEMORY")
                .pragma("mmap_size", "268435456")
                .statement_cache_capacity(200)
                .disable_statement_logging();
            Ok(Self::Sqlite(Box::new(options)))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            let options = PgConnectOptions::from_str(url)
                .map_err(refused)?
                .application_name("penstock")
                .options(POSTGRES_PLANNING)
                .statement_cache_capacity(200)
                .disable_statement_logging();
            Ok(Self::Postgres(Box::new(options)))
        } else {
            Err(CatalogError::inconsistent("a catalogue's URL begins with 'sqlite:' or 'postgres:'"))
        }
    }

    /// The kind of database, for logs.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgresql",
        }
    }

    /// Connects once, for the writer.
    pub(crate) async fn connect(&self) -> Result<Conn> {
        match self {
            Self::Sqlite(options) => SqliteConnection::connect_with(options).await.map(Conn::Sqlite),
            Self::Postgres(options) => {
                PgConnection::connect_with(options).await.map(|conn| Conn::Postgres(Box::new(conn)))
            }
        }
        .map_err(|error| classify(error, None))
    }

    /// Makes the readers' connections, the first ones when they are needed.
    pub(crate) fn readers(&self, count: u32) -> Readers {
        let count = count.max(1);
        match self {
            Self::Sqlite(options) => {
                let options = options.as_ref().clone().read_only(true).create_if_missing(false);
                let pool = SqlitePoolOptions::new().max_connections(count).acquire_timeout(PATIENCE);
                // A reader of a file on this machine does not go bad while idle.
                Readers::Sqlite(pool.test_before_acquire(false).connect_lazy_with(options))
            }
            Self::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(count).acquire_timeout(PATIENCE);
                Readers::Postgres(pool.connect_lazy_with(options.as_ref().clone()))
            }
        }
    }
}

/// The writer's own connection.
pub(crate) enum Conn {
    Sqlite(SqliteConnection),
    Postgres(Box<PgConnection>),
}

impl Conn {
    pub(crate) fn as_ref(&mut self) -> ConnRef<'_> {
        match self {
            Self::Sqlite(conn) => ConnRef::Sqlite(conn),
            Self::Postgres(conn) => ConnRef::Postgres(conn),
        }
    }

    /// Says goodbye to the database; what fails then does not matter any more.
    pub(crate) async fn close(self) {
        let _ = match self {
            Self::Sqlite(conn) => conn.close().await,
            Self::Postgres(conn) => conn.close().await,
        };
    }
}

/// Connections for reading; cheap to clone.
#[derive(Clone)]
pub(crate) enum Readers {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Readers {
    /// Runs one statement on a free connection.
    pub(crate) async fn rows(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Vec<Row>> {
        let mut conn = match self {
            Self::Sqlite(pool) => pool.acquire().await.map(Reader::Sqlite),
            Self::Postgres(pool) => pool.acquire().await.map(Reader::Postgres),
        }
        .map_err(|error| classify(error, Some(statement)))?;
        conn.as_ref().rows(statement, args).await
    }

    /// Runs one statement that has at most one row.
    pub(crate) async fn row(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Option<Row>> {
        Ok(self.rows(statement, args).await?.pop())
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

enum Reader {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

impl Reader {
    fn as_ref(&mut self) -> ConnRef<'_> {
        match self {
            Self::Sqlite(conn) => ConnRef::Sqlite(conn),
            Self::Postgres(conn) => ConnRef::Postgres(conn),
        }
    }
}

/// A connection of either kind, borrowed for one statement.
pub(crate) enum ConnRef<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

macro_rules! bound {
    ($sql:expr, $args:expr) => {{
        let mut query = sqlx::query($sql);
        for arg in $args {
            query = match *arg {
                Arg::Int(value) => query.bind(value),
                Arg::Text(value) => query.bind(value),
            };
        }
        query
    }};
}

impl ConnRef<'_> {
    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(self, statement: &Statement, args: &[Arg<'_>]) -> Result<Vec<Row>> {
        match self {
            Self::Sqlite(conn) => {
                let rows = bound!(statement.sqlite, args).fetch_all(conn).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(conn) => {
                let rows = bound!(statement.postgres, args).fetch_all(conn).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
            }
        }
        .map_err(|error| classify(error, Some(statement)))
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(self, statement: &Statement, args: &[Arg<'_>]) -> Result<u64> {
        match self {
            Self::Sqlite(conn) => bound!(statement.sqlite, args).execute(conn).await.map(|done| done.rows_affected()),
            Self::Postgres(conn) => {
                bound!(statement.postgres, args).execute(conn).await.map(|done| done.rows_affected())
            }
        }
        .map_err(|error| classify(error, Some(statement)))
    }
}

/// One row of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// Reads the columns from the left.
    pub(crate) const fn cursor(&self) -> Cursor<'_> {
        Cursor { row: self, at: 0 }
    }
}

/// Reads a row's columns one after the other, in the order of the statement.
pub(crate) struct Cursor<'r> {
    row: &'r Row,
    at: usize,
}

impl Cursor<'_> {
    fn next<T>(&mut self) -> Result<T>
    where
        T: for<'r> sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
    {
        use sqlx::Row as _;
        let at = self.at;
        self.at += 1;
        match self.row {
            Row::Sqlite(row) => row.try_get(at),
            Row::Postgres(row) => row.try_get(at),
        }
        .map_err(CatalogError::corrupt)
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        self.next()
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>> {
        self.next()
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        self.next()
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        self.next()
    }

    /// A size, count or identifier: never negative.
    pub(crate) fn number(&mut self) -> Result<u64> {
        let value = self.int()?;
        u64::try_from(value).map_err(|_| CatalogError::corrupt(format!("{value} where a count should be")))
    }

    pub(crate) fn maybe_number(&mut self) -> Result<Option<u64>> {
        let value = self.maybe_int()?;
        value
            .map(|value| {
                u64::try_from(value).map_err(|_| CatalogError::corrupt(format!("{value} where a count should be")))
            })
            .transpose()
    }

    /// A number that fits 32 bits.
    pub(crate) fn small(&mut self) -> Result<u32> {
        let value = self.int()?;
        u32::try_from(value).map_err(|_| CatalogError::corrupt(format!("{value} where a 32-bit number should be")))
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        Ok(self.int()? != 0)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.int().map(Timestamp)
    }

    pub(crate) fn maybe_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.maybe_int()?.map(Timestamp))
    }

    pub(crate) fn epoch(&mut self) -> Result<Epoch> {
        self.number().map(Epoch)
    }

    pub(crate) fn bitfile(&mut self) -> Result<BitfileId> {
        self.number().map(BitfileId)
    }

    pub(crate) fn maybe_bitfile(&mut self) -> Result<Option<BitfileId>> {
        Ok(self.maybe_number()?.map(BitfileId))
    }

    pub(crate) fn entry(&mut self) -> Result<EntryId> {
        self.number().map(EntryId)
    }

    pub(crate) fn work(&mut self) -> Result<WorkId> {
        self.number().map(WorkId)
    }

    pub(crate) fn request(&mut self) -> Result<RequestId> {
        self.number().map(RequestId)
    }

    /// A checked name: account, volume label, ….
    pub(crate) fn name<T: TryFrom<String, Error = wire::id::BadName>>(&mut self) -> Result<T> {
        Ok(T::try_from(self.text()?)?)
    }

    /// A checked name that may be absent.
    pub(crate) fn maybe_name<T: TryFrom<String, Error = wire::id::BadName>>(&mut self) -> Result<Option<T>> {
        Ok(self.maybe_text()?.map(T::try_from).transpose()?)
    }
}
