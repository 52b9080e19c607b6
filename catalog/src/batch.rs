//! The batch writer: one task that owns the writing connection and puts what many callers want into few
//! transactions.
//!
//! While one transaction is being synced, further mutations gather in the channel; they are the next transaction. A
//! lone mutation starts at once, so an idle catalogue adds no latency and a busy one shares its syncs: while
//! transactions have several members, the next one waits a moment for those that are nearly ready. Each mutation
//! runs in a savepoint: one that fails takes back its own changes and no other's. Publishing files, the bulk of all
//! writing, is done for all of a transaction's files together, in a fixed number of statements.
//!
//! Owns the writing connection. Talks to the database. Never answers a caller before the commit has returned.
//!
//! Invariant: outside [`Writer::write`] no transaction is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{debug, warn};
use wire::id::BitfileId;

use crate::error::{CatalogError, Result};
use crate::events::{Told, write_told};
use crate::record::{NewFile, Published};
use crate::sql::{Arg, Conn, Row, Statement, Target, statements};
use crate::time::{Clock, Timestamp};

/// The most mutations in one transaction: bounds how long a caller waits for its neighbours.
const MAX_BATCH: usize = 512;
/// How many mutations may wait; callers beyond that wait to be let in.
const QUEUE: usize = 4096;
/// How long a transaction waits for company when the one before it had several members. Its dozen statements cost the
/// same for one file as for many, and so does the sync.
const GATHER: Duration = Duration::from_millis(1);
/// How often a transaction is tried when the database says that another was in the way.
const ATTEMPTS: u32 = 4;
/// How often access times are written.
const TOUCH_INTERVAL: Duration = Duration::from_secs(1);
/// The most access times kept until then.
const MAX_TOUCHED: usize = 100_000;

statements! {
    BEGIN = "BEGIN IMMEDIATE", "BEGIN";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";
    SAVE = "SAVEPOINT member";
    RELEASE = "RELEASE SAVEPOINT member";
    TAKE_BACK = "ROLLBACK TO SAVEPOINT member";
}

/// An open transaction.
pub(crate) struct Tx {
    conn: Conn,
    /// What time it is for everything in this transaction.
    pub(crate) now: Timestamp,
    /// What its members have told so far: written with them, before the commit.
    pub(crate) told: Vec<Told>,
}

impl Tx {
    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(&mut self, statement: &Statement, args: &[Arg<'_>]) -> Result<Vec<Row>> {
        self.conn.as_ref().rows(statement, args).await
    }

    /// Runs a statement that has at most one row.
    pub(crate) async fn row(&mut self, statement: &Statement, args: &[Arg<'_>]) -> Result<Option<Row>> {
        Ok(self.rows(statement, args).await?.pop())
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: &Statement, args: &[Arg<'_>]) -> Result<u64> {
        self.conn.as_ref().execute(statement, args).await
    }

    /// Runs a statement that only PostgreSQL needs: a lock that SQLite's single writer has anyway. Returns the rows
    /// that were locked, or `None` where everything is.
    pub(crate) async fn lock(&mut self, statement: &Statement, args: &[Arg<'_>]) -> Result<Option<Vec<Row>>> {
        match self.conn {
            Conn::Postgres(_) => self.rows(statement, args).await.map(Some),
            Conn::Sqlite(_) => Ok(None),
        }
    }
}

/// What a mutation does in a transaction. It may run several times, so it borrows its arguments.
pub(crate) type Apply<A, T> = for<'c> fn(&'c A, &'c mut Tx) -> BoxFuture<'c, Result<T>>;

/// A file to be published, with the identifiers set aside for it.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) file: NewFile,
    /// The first of three identifiers in a row: entry, bitfile, work.
    pub(crate) first_id: u64,
}

/// One caller's wish, waiting for its receipt.
struct Pending<A, T> {
    args: A,
    apply: Apply<A, T>,
    result: Option<Result<T>>,
    receipt: oneshot::Sender<Result<T>>,
}

#[async_trait]
trait Job: Send {
    /// Runs in the open transaction. An error returned here is the transaction's; the mutation's own is kept.
    async fn run(&mut self, tx: &mut Tx) -> Result<(), CatalogError>;
    /// Whether the mutation itself was refused.
    fn refused(&self) -> bool;
    /// How many callers wait for it.
    fn members(&self) -> usize {
        1
    }
    /// Hands the caller what came of it.
    fn settle(self: Box<Self>, committed: Result<()>);
    /// Takes apart what can be tried apart, so that what fails fails alone.
    fn split(self: Box<Self>) -> Vec<Box<dyn Job>>;
}

#[async_trait]
impl<A: Send + Sync + 'static, T: Send + 'static> Job for Pending<A, T> {
    async fn run(&mut self, tx: &mut Tx) -> Result<()> {
        let result = (self.apply)(&self.args, tx).await;
        let broken = result.as_ref().err().filter(|error| error.is_retryable()).cloned();
        self.result = Some(result);
        broken.map_or(Ok(()), Err)
    }

    fn refused(&self) -> bool {
        matches!(self.result, Some(Err(_)))
    }

    fn settle(self: Box<Self>, committed: Result<()>) {
        let outcome = match committed {
            Ok(()) => self.result.unwrap_or_else(|| Err(CatalogError::inconsistent("a mutation did not run"))),
            Err(error) => Err(error),
        };
        // A caller that went away has no use for its receipt.
        let _ = self.receipt.send(outcome);
    }

    fn split(self: Box<Self>) -> Vec<Box<dyn Job>> {
        vec![self]
    }
}

/// All files of one transaction, published together.
struct PublishGroup {
    files: Vec<Arc<Publish>>,
    receipts: Vec<oneshot::Sender<Result<Published>>>,
    results: Vec<Result<Published>>,
}

#[async_trait]
impl Job for PublishGroup {
    async fn run(&mut self, tx: &mut Tx) -> Result<()> {
        self.results = crate::publish::publish_and_tell(&self.files, tx).await?;
        Ok(())
    }

    fn refused(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        self.files.len()
    }

    fn settle(self: Box<Self>, committed: Result<()>) {
        let results = self.results.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        for (receipt, result) in self.receipts.into_iter().zip(results) {
            let outcome = match &committed {
                Ok(()) => result.unwrap_or_else(|| Err(CatalogError::inconsistent("a file was not published"))),
                Err(error) => Err(error.clone()),
            };
            let _ = receipt.send(outcome);
        }
    }

    fn split(self: Box<Self>) -> Vec<Box<dyn Job>> {
        let members = self.files.into_iter().zip(self.receipts);
        members.map(|(file, receipt)| Box::new(Self::new(vec![file], vec![receipt])) as Box<dyn Job>).collect()
    }
}

impl PublishGroup {
    const fn new(files: Vec<Arc<Publish>>, receipts: Vec<oneshot::Sender<Result<Published>>>) -> Self {
        Self { files, receipts, results: Vec::new() }
    }
}

enum Message {
    Publish(Arc<Publish>, oneshot::Sender<Result<Published>>),
    Job(Box<dyn Job>),
    Close(oneshot::Sender<()>),
}

/// Bitfiles that were read since access times were written last.
type Touched = Arc<Mutex<HashMap<BitfileId, Timestamp>>>;

/// The way to the batch writer; cheap to clone.
#[derive(Clone)]
pub(crate) struct Batch {
    queue: mpsc::Sender<Message>,
    touched: Touched,
    events: watch::Receiver<u64>,
}

impl Batch {
    /// Starts the writing task.
    pub(crate) fn start(target: Target, conn: Conn, clock: Clock) -> Self {
        let (queue, messages) = mpsc::channel(QUEUE);
        let touched = Touched::default();
        let (bell, events) = watch::channel(0);
        let writer = Writer {
            target,
            conn: Some(conn),
            clock,
            messages,
            touched: Arc::clone(&touched),
            next_touch: None,
            shared: false,
            bell,
        };
        tokio::spawn(writer.run());
        Self { queue, touched, events }
    }

    /// Runs a mutation in some transaction and returns when that is on stable storage.
    pub(crate) async fn run<A, T>(&self, args: A, apply: Apply<A, T>) -> Result<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (receipt, outcome) = oneshot::channel();
        let job = Message::Job(Box::new(Pending { args, apply, result: None, receipt }));
        self.queue.send(job).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }

    /// Publishes a file together with whatever else is being published.
    pub(crate) async fn publish(&self, publish: Publish) -> Result<Published> {
        let (receipt, outcome) = oneshot::channel();
        self.queue.send(Message::Publish(Arc::new(publish), receipt)).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }

    /// Notes an access time, to be written with the others.
    pub(crate) fn touch(&self, bitfile: BitfileId, now: Timestamp) {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if touched.len() < MAX_TOUCHED || touched.contains_key(&bitfile) {
            touched.insert(bitfile, now);
        }
    }

    /// Changes whenever events are committed.
    pub(crate) fn events_written(&self) -> watch::Receiver<u64> {
        self.events.clone()
    }

    /// Takes the access times that wait to be written.
    pub(crate) fn take_touched(&self) -> HashMap<BitfileId, Timestamp> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the writing task after what is queued already.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.queue.send(Message::Close(done)).await.is_ok() {
            let _ = closed.await;
        }
    }
}

fn closed() -> CatalogError {
    CatalogError::Unavailable { source: Arc::new(sqlx::Error::PoolClosed) }
}

struct Writer {
    target: Target,
    conn: Option<Conn>,
    clock: Clock,
    messages: mpsc::Receiver<Message>,
    touched: Touched,
    next_touch: Option<Instant>,
    /// The last transaction had several members.
    shared: bool,
    /// Says that there are new events.
    bell: watch::Sender<u64>,
}

impl Writer {
    async fn run(mut self) {
        let mut closing = None;
        while closing.is_none() {
            let wake = *self.next_touch.get_or_insert_with(|| Instant::now() + TOUCH_INTERVAL);
            let first = tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => Some(message),
                    None => break,
                },
                () = tokio::time::sleep_until(wake) => None,
            };
            let mut jobs: Vec<Box<dyn Job>> = Vec::new();
            if wake <= Instant::now() {
                self.next_touch = None;
                jobs.extend(self.touch_job());
            }
            if first.is_some() {
                // Whoever is ready to write now, or will be in a moment, shall share this transaction.
                if self.shared {
                    tokio::time::sleep(GATHER).await;
                } else {
                    tokio::task::yield_now().await;
                }
            }
            closing = self.gather(first, &mut jobs);
            self.shared = jobs.iter().map(|job| job.members()).sum::<usize>() > 1;
            if !jobs.is_empty() {
                self.write(jobs).await;
            }
        }
        if let Some(job) = self.touch_job() {
            self.write(vec![job]).await;
        }
        if let Some(conn) = self.conn.take() {
            conn.close().await;
        }
        if let Some(done) = closing {
            let _ = done.send(());
        }
    }

    /// Takes what waits in the channel: the members of one transaction, published files first and together.
    fn gather(&mut self, first: Option<Message>, jobs: &mut Vec<Box<dyn Job>>) -> Option<oneshot::Sender<()>> {
        let mut closing = None;
        let mut group = PublishGroup::new(Vec::new(), Vec::new());
        let mut next = first;
        while let Some(message) = next {
            match message {
                Message::Publish(publish, receipt) => {
                    group.files.push(publish);
                    group.receipts.push(receipt);
                }
                Message::Job(job) => jobs.push(job),
                Message::Close(done) => {
                    closing = Some(done);
                    break;
                }
            }
            if jobs.len() + group.files.len() >= MAX_BATCH {
                break;
            }
            next = self.messages.try_recv().ok();
        }
        if !group.files.is_empty() {
            jobs.insert(0, Box::new(group));
        }
        closing
    }

    fn touch_job(&self) -> Option<Box<dyn Job>> {
        let touched = std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner));
        if touched.is_empty() {
            return None;
        }
        let (receipt, _) = oneshot::channel();
        Some(Box::new(Pending { args: touched, apply: crate::files::write_access_times, result: None, receipt }))
    }

    /// Runs jobs in one transaction and hands out the receipts. Tries again while the database says that another
    /// transaction was in the way, at last each job alone.
    async fn write(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        for attempt in 1..=ATTEMPTS {
            match self.attempt(&mut jobs).await {
                Ok(()) => {
                    debug!(jobs = jobs.len(), attempt, "batch committed");
                    jobs.into_iter().for_each(|job| job.settle(Ok(())));
                    return;
                }
                Err(Broken { error, outcome_unknown }) => {
                    if outcome_unknown {
                        warn!(error = %source_of(&error), jobs = jobs.len(), "batch given up");
                        jobs.into_iter().for_each(|job| job.settle(Err(error.clone())));
                        return;
                    }
                    debug!(error = %source_of(&error), jobs = jobs.len(), attempt, "batch tried again");
                    if attempt + 1 == ATTEMPTS {
                        for job in jobs.into_iter().flat_map(Job::split) {
                            self.write_alone(job).await;
                        }
                        return;
                    }
                }
            }
        }
    }

    async fn write_alone(&mut self, job: Box<dyn Job>) {
        let mut jobs = vec![job];
        let outcome = self.attempt(&mut jobs).await.map_err(|broken| broken.error);
        jobs.into_iter().for_each(|job| job.settle(outcome.clone()));
    }

    async fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Broken> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.target.connect().await?,
        };
        let mut tx = Tx { conn, now: self.clock.now(), told: Vec::new() };
        let outcome = transact(&mut tx, jobs).await;
        match &outcome {
            Ok(()) => {
                if !tx.told.is_empty() {
                    self.bell.send_modify(|count| *count = count.wrapping_add(1));
                }
                self.conn = Some(tx.conn);
            }
            // What state the connection is in is anyone's guess unless it answers a rollback.
            Err(_) if tx.execute(&ROLLBACK, &[]).await.is_ok() => self.conn = Some(tx.conn),
            Err(_) => drop(tx),
        }
        outcome
    }
}

/// Why a transaction came to nothing.
struct Broken {
    error: CatalogError,
    /// Whether it may have been committed all the same.
    outcome_unknown: bool,
}

impl From<CatalogError> for Broken {
    fn from(error: CatalogError) -> Self {
        Self { error, outcome_unknown: false }
    }
}

async fn transact(tx: &mut Tx, jobs: &mut [Box<dyn Job>]) -> Result<(), Broken> {
    tx.execute(&BEGIN, &[]).await?;
    if let [job] = jobs {
        job.run(tx).await?;
        if job.refused() {
            tx.execute(&ROLLBACK, &[]).await?;
            tx.told.clear();
            return Ok(());
        }
    } else {
        for job in jobs {
            let told = tx.told.len();
            tx.execute(&SAVE, &[]).await?;
            job.run(tx).await?;
            if job.refused() {
                tx.execute(&TAKE_BACK, &[]).await?;
                tx.told.truncate(told);
            }
            tx.execute(&RELEASE, &[]).await?;
        }
    }
    write_told(tx).await?;
    tx.execute(&COMMIT, &[]).await.map_err(|error| Broken { error, outcome_unknown: true })?;
    Ok(())
}

fn source_of(error: &CatalogError) -> String {
    match error {
        CatalogError::Unavailable { source } => source.to_string(),
        other => other.to_string(),
    }
}
