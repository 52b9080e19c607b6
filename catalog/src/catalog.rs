//! The handle: opening a database, handing out identifiers.
//!
//! Owns the readers' connections, the way to the batch writer and the identifiers in hand.

use std::ops::Range;
use std::sync::Arc;

use sqlx::migrate::{MigrateError, Migrator};
use tokio::sync::Mutex;
use tracing::{debug, info};
use wire::id::BitfileId;

use crate::batch::{Apply, Batch, Tx};
use crate::error::{CatalogError, Result};
use crate::sql::{Arg, Conn, Readers, Row, Statement, Target, args, classify, statements};
use crate::time::{Clock, Timestamp};

static SQLITE_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/sqlite");
static POSTGRES_MIGRATIONS: Migrator = sqlx::migrate!("../migrations/postgres");

/// How many identifiers are fetched at once. What is left of a block is lost at the end of a process: with 2^63
/// numbers, a million restarts a second for a day would not use them up.
const ID_BLOCK: u32 = 65_536;

statements! {
    PING = "SELECT CAST(1 AS BIGINT)";
    PASS_IDS = "UPDATE counter SET next = $1 WHERE name = 'id' AND next < $1";
    TAKE_IDS = "UPDATE counter SET next = next + $1 WHERE name = 'id' RETURNING next";
}

/// How a catalogue is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many connections read at the same time.
    pub readers: u32,
    /// Says what time it is.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, clock: Clock::default() }
    }
}

/// A catalogue. Clones share connections, the writing task and the identifiers in hand.
#[derive(Clone)]
pub struct Catalog(Arc<Inner>);

struct Inner {
    target: Target,
    readers: Readers,
    batch: Batch,
    clock: Clock,
    ids: Mutex<Range<u64>>,
}

impl Catalog {
    /// Opens the database at `url` and brings its tables up to date. Call it inside a tokio runtime, which runs the
    /// writing task.
    ///
    /// `sqlite:PATH` is a file, made if it is not there; `postgres://…` is an existing database. Several gateways
    /// may open one PostgreSQL database at the same moment: one of them migrates, the others wait.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Unavailable`] if the database cannot be reached, [`CatalogError::Corrupt`] if its tables are
    /// not ours or newer than this program, [`CatalogError::Inconsistent`] for a URL of another kind.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let target = Target::parse(url)?;
        let mut conn = target.connect().await?;
        migrate(&mut conn).await?;
        let readers = target.readers(options.readers);
        let batch = Batch::start(target.clone(), conn, options.clock.clone());
        let inner = Inner { target, readers, batch, clock: options.clock, ids: Mutex::new(0..0) };
        info!(database = inner.target.kind(), "catalogue open");
        Ok(Self(Arc::new(inner)))
    }

    /// Waits until what was asked to be written is written, notes when files were read last, and closes every
    /// connection. Calls on any clone fail as unavailable afterwards.
    pub async fn close(&self) {
        self.0.batch.close().await;
        self.0.readers.close().await;
    }

    /// Whether the database answers, for `/healthz`.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Unavailable`] if it does not.
    pub async fn ping(&self) -> Result<()> {
        self.row(&PING, &[]).await.map(drop)
    }

    /// An identifier that nobody has had before. Costs a database write once in 65,536 times.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Unavailable`] if the next block of numbers cannot be had.
    pub async fn next_id(&self) -> Result<u64> {
        Ok(self.next_ids(1).await?.start)
    }

    /// `count` identifiers in a row that nobody has had before.
    ///
    /// # Errors
    ///
    /// As [`Catalog::next_id`].
    pub async fn next_ids(&self, count: u32) -> Result<Range<u64>> {
        let mut ids = self.0.ids.lock().await;
        if ids.end - ids.start < u64::from(count) {
            let block = u64::from(count.max(ID_BLOCK));
            let end = self.write(crate::sql::column(block), |block, tx| Box::pin(take_ids(*block, tx))).await?;
            debug!(end, "identifiers taken");
            *ids = end - block..end;
        }
        let taken = ids.start..ids.start + u64::from(count);
        ids.start = taken.end;
        Ok(taken)
    }

    /// Sees to it that no identifier up to `last` is given out from now on by this handle and its clones, and by those
    /// that are opened later. Another process that holds a block of lower numbers gives out what is left of it.
    pub(crate) async fn pass_ids(&self, last: u64) -> Result<()> {
        let mut ids = self.0.ids.lock().await;
        if !ids.is_empty() && ids.start > last {
            return Ok(());
        }
        self.write(crate::sql::column(last.saturating_add(1)), |next, tx| {
            Box::pin(async move { tx.execute(&PASS_IDS, args![*next]).await.map(drop) })
        })
        .await?;
        *ids = 0..0;
        Ok(())
    }

    /// What time it is by the catalogue's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Notes that a bitfile is being read, for the order of purging. Costs nothing now: times are kept to within a
    /// minute and written once a second, in bulk.
    pub fn touch(&self, bitfile: BitfileId) {
        self.0.batch.touch(bitfile, self.now());
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.0.batch
    }

    /// Reads with one statement.
    pub(crate) async fn rows(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Vec<Row>> {
        self.0.readers.rows(statement, args).await
    }

    /// Reads with one statement that has at most one row.
    pub(crate) async fn row(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Option<Row>> {
        self.0.readers.row(statement, args).await
    }

    /// Runs a mutation in a transaction.
    pub(crate) async fn write<A, T>(&self, args: A, apply: Apply<A, T>) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.0.batch.run(args, apply).await
    }
}

async fn take_ids(block: i64, tx: &mut Tx) -> Result<u64> {
    let row = tx.row(&TAKE_IDS, args![block]).await?;
    let row = row.ok_or_else(|| CatalogError::corrupt("the counter of identifiers is missing"))?;
    row.cursor().number()
}

/// Brings the tables up to date. On PostgreSQL the migrator holds an advisory lock meanwhile; on SQLite a second
/// process that opens a new file in the same moment finds the tables made when it looks again.
async fn migrate(conn: &mut Conn) -> Result<()> {
    // Not `run`: its future cannot be shown to be `Send`, which a caller that spawns needs.
    let outcome = match conn {
        Conn::Postgres(conn) => POSTGRES_MIGRATIONS.run_direct(None, conn.as_mut(), false).await,
        Conn::Sqlite(conn) => match SQLITE_MIGRATIONS.run_direct(None, conn, false).await {
            Err(MigrateError::Execute(_) | MigrateError::ExecuteMigration(..)) => {
                SQLITE_MIGRATIONS.run_direct(None, conn, false).await
            }
            outcome => outcome,
        },
    };
    outcome.map_err(|error| match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => classify(error, None),
        error => CatalogError::corrupt(error),
    })
}
