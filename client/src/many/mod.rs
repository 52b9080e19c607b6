//! Many small files: several sessions, commands sent ahead, data connections that stay open.
//!
//! Owns the distribution of files over sessions. Each session keeps one MODE E data connection (to us: one a mover) for
//! all its files, so that a file costs no handshake and no port. The session asked stays out of it, so that its commands
//! and replies are in step whatever happens; files that a session could not finish are tried again on it. Larger files go through [`get`](crate::get) and
//! [`put`](crate::put), which stripe.
//!
//! Invariant: every file given in is reported exactly once, done or failed.

mod channel;
mod fetch;
mod store;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;
use wire::ftp::{FtpPath, FtpTime};

use crate::{Client, ClientError, Fetch, How, Meter, Moved, Push, Ready, Result};

/// Files up to this size are small: each is one block, in memory for a moment.
pub const SMALL_BYTES: u64 = 1 << 20;

/// How many commands a session sends ahead.
const AHEAD: usize = 16;

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

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn rest(&self) -> Vec<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
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
        // Whoever cannot be connected to gets every file from a mover that listens.
        let is_small = |item: &FetchItem| !how.passive && item.size_bytes.is_some_and(|size| size <= SMALL_BYTES);
        let (small, large): (Vec<_>, Vec<_>) = items.into_iter().partition(is_small);
        let mut again = Vec::new();
        if !small.is_empty() {
            let mut sessions = self.others(self.sessions_for(small.len(), how)).await;
            let work = Work::new(small);
            let running = sessions.iter_mut().map(|session| session.fetch_small(&work, how, meter, cancel, report));
            let results = futures::future::join_all(running).await;
            leave(sessions);
            let mut errors = Vec::new();
            for result in results {
                again.extend(result.left);
                errors.extend(result.error);
            }
            again.extend(work.rest());
            let hopeless = errors.into_iter().next().filter(|error| meter.read().files == 0 && error.loses_hope());
            if let Some(error) = hopeless {
                let text = error.chain();
                for item in again.drain(..) {
                    meter.failed();
                    report(Outcome { remote: item.remote, local: item.local, result: Err(lost(&text)) });
                }
            }
        }
        let resume = How { resume: true, ..how.clone() };
        for (how, item) in
            large.into_iter().map(|item| (how, item)).chain(again.into_iter().map(|item| (&resume, item)))
        {
            meter.begins(item.remote.as_str());
            let fetch = Fetch { remote: item.remote.clone(), local: item.local.clone() };
            let result = if cancel.is_cancelled() {
                Err(ClientError::Cancelled)
            } else {
                self.get(&fetch, how, meter, cancel).await
            };
            self.told(item.remote, item.local, result, meter, report)?;
        }
        Ok(())
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
        let (small, large): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| item.size_bytes <= SMALL_BYTES);
        let mut again = Vec::new();
        if !small.is_empty() {
            let mut sessions = self.others(self.sessions_for(small.len(), how)).await;
            let work = Work::new(small);
            let running = sessions.iter_mut().map(|session| session.store_small(&work, how, meter, cancel, report));
            let results = futures::future::join_all(running).await;
            leave(sessions);
            let mut errors = Vec::new();
            for result in results {
                again.extend(result.left);
                errors.extend(result.error);
            }
            again.extend(work.rest());
            let hopeless = errors.into_iter().next().filter(|error| meter.read().files == 0 && error.loses_hope());
            if let Some(error) = hopeless {
                let text = error.chain();
                for item in again.drain(..) {
                    meter.failed();
                    report(Outcome { remote: item.remote, local: item.local, result: Err(lost(&text)) });
                }
            }
        }
        for item in large.into_iter().chain(again) {
            meter.begins(item.remote.as_str());
            let push = Push { local: item.local.clone(), remote: item.remote.clone() };
            let result = if cancel.is_cancelled() {
                Err(ClientError::Cancelled)
            } else {
                self.put(&push, how, meter, cancel).await
            };
            self.told(item.remote, item.local, result, meter, report)?;
        }
        Ok(())
    }

    /// Reports a file, and goes on unless the control connection is lost.
    fn told(
        &self,
        remote: FtpPath,
        local: PathBuf,
        result: Result<Moved>,
        meter: &Meter,
        report: &Report,
    ) -> Result<()> {
        let fatal = result.as_ref().err().filter(|error| error.loses_connection()).map(ClientError::chain);
        if result.is_ok() {
            meter.done()
        } else {
            meter.failed()
        }
        report(Outcome { remote, local, result });
        fatal.map_or(Ok(()), |text| Err(lost(&text)))
    }

    fn sessions_for(&self, files: usize, how: &How) -> usize {
        files.div_ceil(FILES_PER_SESSION).min(usize::from(how.sessions.max(1)))
    }

    /// Opens further sessions, all at once; fewer are slower, not wrong.
    async fn others(&self, count: usize) -> Vec<Self> {
        let opened = futures::future::join_all((0..count).map(|_| self.another())).await;
        let log = |error: &ClientError| tracing::debug!(%error, "no further session");
        opened.into_iter().filter_map(|session| session.inspect_err(log).ok()).collect()
    }
}

/// What one session leaves behind: files to be tried again one by one, and why it ended early.
struct Leftover<T> {
    left: Vec<T>,
    error: Option<ClientError>,
}

fn leave(sessions: Vec<Client<Ready>>) {
    for session in sessions {
        tokio::spawn(session.quit());
    }
}

fn lost(reason: &str) -> ClientError {
    let source = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, reason.to_owned());
    ClientError::Control { server: "the server".to_owned(), source }
}
