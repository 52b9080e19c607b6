//! Many small files: several sessions, commands sent ahead, data connections that stay open.
//!
//! Owns the distribution of files over sessions. Each session keeps one MODE E data connection (for downloads: one a
//! mover) for all its files, so that a file costs no handshake and no port. The session asked stays out of it, so that
//! its commands and replies are in step whatever happens; files that a session could not finish are tried again on it.
//! Larger files go through [`get`](crate::get) and [`put`](crate::put), which stripe.
//!
//! Invariant: every file given in is reported exactly once, done or failed.

mod channel;
mod fetch;
mod store;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;
use wire::ftp::{Facts, FtpPath, FtpTime};

use crate::{Client, ClientError, Fetch, How, Meter, Moved, Push, Ready, Result};

/// Files up to this size are small: each is one block, in memory for a moment.
pub const SMALL_BYTES: u64 = 1 << 20;

/// How many files a session asks for, or sends, ahead, and how many bytes in files. Over 80 ms eight sessions with these
/// fill a path of 3 Gb/s; a session holds no more in memory.
const AHEAD: usize = 64;
const AHEAD_BYTES: u64 = 4 << 20;

/// Files for which a further session is worth its login.
const FILES_PER_SESSION: usize = 16;

/// One file to fetch, as a listing told it.
#[derive(Debug, Clone)]
pub struct FetchItem {
    /// The file on the server.
    pub remote: FtpPath,
    /// Where it goes.
    pub local: PathBuf,
    /// Its size, as listed.
    pub size_bytes: Option<u64>,
    /// Its CRC-32C, if the listing told it.
    pub crc32c: Option<u32>,
    /// Its time, as listed.
    pub modified: Option<FtpTime>,
}

impl FetchItem {
    /// A file as a listing told it.
    pub fn listed(remote: FtpPath, local: PathBuf, facts: &Facts) -> Self {
        let Facts { size_bytes, crc32c, modified, .. } = *facts;
        Self { remote, local, size_bytes, crc32c, modified }
    }
}

/// One file to send.
#[derive(Debug, Clone)]
pub struct StoreItem {
    /// The local file.
    pub local: PathBuf,
    /// Its name on the server.
    pub remote: FtpPath,
    /// Its size.
    pub size_bytes: u64,
}

/// What became of one file.
#[derive(Debug)]
pub struct Outcome {
    /// Its name on the server.
    pub remote: FtpPath,
    /// The local file.
    pub local: PathBuf,
    /// What came of it.
    pub result: Result<Moved>,
}

/// Where outcomes go, one by one as they come.
pub type Report = Arc<dyn Fn(Outcome) + Send + Sync>;

/// The files that no session has taken yet.
#[derive(Debug)]
struct Work<T>(Mutex<VecDeque<T>>);

impl<T> Work<T> {
    fn new(items: Vec<T>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(items.into())))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<T> {
        self.lock().pop_front()
    }

    /// It was taken too early.
    fn put_back(&self, item: T) {
        self.lock().push_front(item);
    }

    fn rest(&self) -> Vec<T> {
        self.lock().drain(..).collect()
    }
}

/// What the sessions that move small files have in common.
struct Job<'a, T> {
    work: Arc<Work<T>>,
    how: &'a How,
    meter: &'a Meter,
    cancel: &'a CancellationToken,
    report: &'a Report,
}

impl<T: Item> Job<'_, T> {
    /// Reports a file.
    fn told(&self, item: T, result: Result<Moved>) {
        let (remote, local) = item.into_names();
        self.meter.begins(remote.as_str());
        match &result {
            Ok(moved) => {
                self.meter.moved(moved.size_bytes);
                self.meter.done();
            }
            Err(_) => self.meter.failed(),
        }
        (self.report)(Outcome { remote, local, result });
    }

    /// What a session leaves: if somebody asked to stop, nobody takes the files up.
    fn leave(&self, result: Result<()>, left: Vec<T>) -> Leftover<T> {
        match result {
            Err(ClientError::Cancelled) => {
                for item in left {
                    self.told(item, Err(ClientError::Cancelled));
                }
                Leftover { left: Vec::new(), error: Some(ClientError::Cancelled) }
            }
            result => Leftover { left, error: result.err() },
        }
    }
}

/// One file, in either direction.
trait Item: Sized + Send {
    /// Its name there and here.
    fn into_names(self) -> (FtpPath, PathBuf);

    /// Moves files of the job until none is left or the session cannot go on.
    fn run(session: &mut Client<Ready>, job: &Job<'_, Self>) -> impl Future<Output = Leftover<Self>>;

    /// Moves this file, with all streams.
    fn alone(
        &self,
        session: &mut Client<Ready>,
        how: &How,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Moved>>;
}

impl Item for FetchItem {
    fn into_names(self) -> (FtpPath, PathBuf) {
        (self.remote, self.local)
    }

    async fn run(session: &mut Client<Ready>, job: &Job<'_, Self>) -> Leftover<Self> {
        session.fetch_small(job).await
    }

    async fn alone(
        &self,
        session: &mut Client<Ready>,
        how: &How,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> Result<Moved> {
        let fetch = Fetch { remote: self.remote.clone(), local: self.local.clone() };
        session.get(&fetch, how, meter, cancel).await
    }
}

impl Item for StoreItem {
    fn into_names(self) -> (FtpPath, PathBuf) {
        (self.remote, self.local)
    }

    async fn run(session: &mut Client<Ready>, job: &Job<'_, Self>) -> Leftover<Self> {
        session.store_small(job).await
    }

    async fn alone(
        &self,
        session: &mut Client<Ready>,
        how: &How,
        meter: &Meter,
        cancel: &CancellationToken,
    ) -> Result<Moved> {
        let push = Push { local: self.local.clone(), remote: self.remote.clone() };
        session.put(&push, how, meter, cancel).await
    }
}

impl Client<Ready> {
    /// Fetches many files. Small ones over several sessions at once, others one after the other with all streams.
    ///
    /// # Errors
    ///
    /// Only if this session's own control connection breaks; files that failed are told to `report`.
    pub async fn get_many(
        &mut self,
        items: Vec<FetchItem>,
        how: &How,
        meter: &Meter,
        cancel: &CancellationToken,
        report: &Report,
    ) -> Result<()> {
        // Whoever cannot be connected to must be told which mover has the file.
        let reached = !how.passive || self.features.delayed_stripes();
        let is_small = |item: &FetchItem| reached && item.size_bytes.is_some_and(|size| size <= SMALL_BYTES);
        let (small, large) = items.into_iter().partition(is_small);
        let resume = How { resume: true, ..how.clone() };
        self.move_all(small, large, how, &resume, meter, cancel, report).await
    }

    /// Sends many files. Small ones over several sessions at once, others one after the other with all streams.
    ///
    /// # Errors
    ///
    /// Only if this session's own control connection breaks; files that failed are told to `report`.
    pub async fn put_many(
        &mut self,
        items: Vec<StoreItem>,
        how: &How,
        meter: &Meter,
        cancel: &CancellationToken,
        report: &Report,
    ) -> Result<()> {
        let (small, large) = items.into_iter().partition(|item| item.size_bytes <= SMALL_BYTES);
        self.move_all(small, large, how, how, meter, cancel, report).await
    }

    /// Small files over sessions of their own, then the large ones and what the sessions left over; `again` is how those
    /// are moved.
    #[expect(clippy::too_many_arguments, reason = "the two ways in hand theirs on")]
    async fn move_all<T: Item>(
        &mut self,
        small: Vec<T>,
        large: Vec<T>,
        how: &How,
        again: &How,
        meter: &Meter,
        cancel: &CancellationToken,
        report: &Report,
    ) -> Result<()> {
        let job = Job { work: Work::new(small), how, meter, cancel, report };
        let left = self.move_small(&job).await;
        for (how, item) in large.into_iter().map(|item| (how, item)).chain(left.into_iter().map(|item| (again, item))) {
            let result = if cancel.is_cancelled() {
                Err(ClientError::Cancelled)
            } else {
                item.alone(self, how, meter, cancel).await
            };
            let fatal = result.as_ref().err().filter(|error| error.loses_connection()).map(ClientError::chain);
            let (remote, local) = item.into_names();
            if result.is_ok() {
                meter.done()
            } else {
                meter.failed()
            }
            report(Outcome { remote, local, result });
            if let Some(text) = fatal {
                return Err(lost(&text));
            }
        }
        Ok(())
    }

    /// Gives back what no session could finish.
    async fn move_small<T: Item>(&self, job: &Job<'_, T>) -> Vec<T> {
        let count = job.work.lock().len();
        if count == 0 {
            return Vec::new();
        }
        let mut sessions = self.others(sessions_for(count, job.how)).await;
        let running = sessions.iter_mut().map(|session| T::run(session, job));
        let results = futures::future::join_all(running).await;
        for session in sessions {
            tokio::spawn(session.quit());
        }
        let (mut left, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            left.extend(result.left);
            errors.extend(result.error);
        }
        left.extend(job.work.rest());
        // What stopped every session before its first file would stop this one, too.
        let hopeless = errors.into_iter().next().filter(|error| job.meter.read().files == 0 && error.loses_hope());
        if let Some(error) = hopeless {
            let text = error.chain();
            for item in left.drain(..) {
                job.told(item, Err(lost(&text)));
            }
        }
        left
    }

    /// Opens further sessions, all at once; fewer are slower, not wrong.
    async fn others(&self, count: usize) -> Vec<Self> {
        let opened = futures::future::join_all((0..count).map(|_| self.another())).await;
        let log = |error: &ClientError| tracing::debug!(%error, "no further session");
        opened.into_iter().filter_map(|session| session.inspect_err(log).ok()).collect()
    }
}

/// Whether another file may go ahead, besides files of these sizes.
fn has_room(ahead: impl ExactSizeIterator<Item = u64>) -> bool {
    ahead.len() < AHEAD && ahead.sum::<u64>() < AHEAD_BYTES
}

fn sessions_for(files: usize, how: &How) -> usize {
    files.div_ceil(FILES_PER_SESSION).min(usize::from(how.sessions.max(1)))
}

/// What one session leaves behind: files to be tried again one by one, and why it ended early.
struct Leftover<T> {
    left: Vec<T>,
    error: Option<ClientError>,
}

fn lost(reason: &str) -> ClientError {
    let source = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, reason.to_owned());
    ClientError::Control { server: "the server".to_owned(), source }
}
