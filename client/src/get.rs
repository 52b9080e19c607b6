//! Downloads of single files, with movers pushing to us or listening for us.
//!
//! Owns one transfer from its command to the renamed file. Talks to the server on the control connection, and to
//! receiving threads. Many small files have a way of their own, in [`many`](crate::many).
//!
//! MODE E over any number of connections, whoever makes them, is in `collect.rs`; ranges in stream mode, for clients
//! that cannot be connected to by servers that cannot name the movers of a file, in `pull.rs`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::{Algorithm, Sums},
    ftp::{Command, CommandOption, EntryKind, FtpPath, Parallelism, Reply, RestartPoint, RetrieveOptions},
};

use crate::{
    Client, ClientError, How, Meter, Ready, Result,
    partial::{Origin, PartFile},
    receive::Receiving,
};

/// One file to fetch.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// The file on the server.
    pub remote: FtpPath,
    /// Where it goes.
    pub local: PathBuf,
}

/// A file that was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Its size.
    pub size_bytes: u64,
    /// How many of them had come in an earlier attempt.
    pub kept_bytes: u64,
    /// The algorithm by which both ends were compared; `None` if the server has no sum or nobody asked.
    pub verified: Option<Algorithm>,
    /// The sums of the bytes.
    pub sums: Option<Sums>,
}

impl Client<Ready> {
    /// Fetches one file. A cut download leaves `NAME.pftp-part` and its state; with [`How::resume`] only what is missing
    /// is fetched.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`]; what came is kept unless it cannot be trusted.
    pub async fn get(&mut self, fetch: &Fetch, how: &How, meter: &Meter, cancel: &CancellationToken) -> Result<Moved> {
        let (how, begun) = (&self.with_streams(how), Instant::now());
        let facts = self.facts(&fetch.remote).await?;
        if matches!(facts.kind, EntryKind::Directory | EntryKind::Current | EntryKind::Parent) {
            let reply = Reply::new(550, "is a directory: use get -r");
            return Err(ClientError::refused(&Command::Retr(fetch.remote.clone()), reply));
        }
        let size_bytes = match facts.size_bytes {
            Some(size) => size,
            None => self.size(&fetch.remote).await?,
        };
        let sum = match facts.crc32c {
            _ if !how.verify => None,
            // The question would be answered from the same row.
            Some(sum) => Some((Algorithm::Crc32c, format!("{sum:08x}"))),
            None => self.known_sum(&fetch.remote).await?,
        };
        let origin = Origin {
            server: self.options.target.server(),
            path: fetch.remote.to_string(),
            size_bytes,
            modified_us: facts.modified.map(|time| time.micros()),
            sum: sum.as_ref().map(|(algorithm, value)| (algorithm.name().to_owned(), value.clone())),
        };
        let file = Arc::new(PartFile::open(&fetch.local, origin, how.resume)?);
        let kept_bytes = file.bytes();
        meter.moved(kept_bytes);
        let receiving = Arc::new(Receiving::new(file.clone(), meter.clone()));
        if kept_bytes < size_bytes {
            let moved = if how.handshake {
                self.get_by_handshake(fetch, how, &receiving, cancel).await
            } else if how.passive && (self.state.network.told_early || !self.features.delayed_stripes()) {
                self.pull(fetch, how, &receiving, cancel).await
            } else {
                self.collect(fetch, how, &receiving, cancel).await
            };
            match moved {
                Ok(()) => {}
                Err(error @ (ClientError::BadData { .. } | ClientError::ModeE { .. })) => {
                    file.discard();
                    return Err(error);
                }
                Err(error) => {
                    // The error tells more than a failure to note how far we came.
                    let _ = file.save();
                    return Err(error);
                }
            }
        }
        self.note_rate(size_bytes - kept_bytes, how.streams, begun.elapsed());
        let sums = file.finish(sum.as_ref())?;
        if how.preserve
            && let Some(modified) = facts.modified
        {
            set_modified(&fetch.local, modified.micros())?;
        }
        let verified = sum.map(|(algorithm, _)| algorithm);
        Ok(Moved { size_bytes, kept_bytes, verified, sums: Some(sums) })
    }

    /// Asks for this many connections from each mover.
    pub(crate) async fn set_streams(&mut self, streams: u16) -> Result<()> {
        if self.state.streams != streams {
            self.option(parallelism(streams)).await?;
            self.state.streams = streams;
        }
        Ok(())
    }

    /// Says what is there already.
    pub(crate) async fn restart(&mut self, point: RestartPoint) -> Result<()> {
        let command = Command::Rest(point);
        let reply = self.ask(&command).await?;
        if reply.code() == 350 { Ok(()) } else { Err(ClientError::refused(&command, reply)) }
    }

    /// Ends a transfer that is under way, and brings commands and replies in step again.
    pub(crate) async fn abort(&mut self) -> Result<()> {
        self.control.queue(&Command::Abor);
        self.control.flush().await?;
        let limit = self.control.limits.reply.min(Duration::from_secs(30));
        // One reply to the transfer and one to ABOR; a server that had just finished sends them the same way.
        for awaited in ["the end of the transfer", "ABOR"] {
            let reply = self.control.last_reply(awaited, limit).await?;
            tracing::debug!(%reply, "aborted");
        }
        Ok(())
    }
}

/// So many connections from each mover.
pub(crate) fn parallelism(streams: u16) -> CommandOption {
    let options = RetrieveOptions { parallelism: Some(Parallelism::fixed(streams)), ..RetrieveOptions::default() };
    CommandOption::Retrieve(options)
}

/// What came of a transfer: the server's word first, if it says no, since it knows why the data broke.
pub(crate) fn finish(command: &Command, last: Option<Reply>, failure: Option<ClientError>) -> Result<()> {
    match (last, failure) {
        (_, Some(error @ (ClientError::Cancelled | ClientError::BadData { .. } | ClientError::ModeE { .. }))) => {
            Err(error)
        }
        (Some(reply), _) if !reply.is_success() => Err(ClientError::refused(command, reply)),
        (_, Some(error)) => Err(error),
        (_, None) => Ok(()),
    }
}

/// Notices that nothing moves.
pub(crate) struct Watch {
    meter: Meter,
    seen: u64,
    since: Instant,
    /// What holds now, and what holds once something has moved.
    limit: Duration,
    moving: Duration,
}

impl Watch {
    /// `first` holds until something moves, `moving` from then on.
    pub(crate) fn new(meter: Meter, first: Duration, moving: Duration) -> Self {
        let seen = meter.read().bytes;
        Self { meter, seen, since: Instant::now(), limit: first, moving }
    }

    /// From now on it may not last longer than this.
    pub(crate) fn limit(&mut self, limit: Duration) {
        self.limit = self.limit.min(limit);
        self.since = Instant::now();
    }

    /// The limit that holds now.
    pub(crate) const fn at_most(&self) -> Duration {
        self.limit
    }

    /// Returns when nothing has moved for the limit. Cancel-safe.
    pub(crate) async fn stalled(&mut self) {
        loop {
            let bytes = self.meter.read().bytes;
            if bytes != self.seen {
                (self.seen, self.since) = (bytes, Instant::now());
                self.limit = self.limit.min(self.moving);
            }
            if self.since.elapsed() >= self.limit {
                return;
            }
            tokio::time::sleep((self.limit / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))).await;
        }
    }
}

/// Gives a local file the time of the one it came from.
pub(crate) fn set_modified(path: &std::path::Path, micros: i64) -> Result<()> {
    let micros = u64::try_from(micros).unwrap_or(0);
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
    let set = std::fs::File::options().append(true).open(path).and_then(|file| file.set_modified(time));
    set.map_err(ClientError::local("set the time of", path))
}
