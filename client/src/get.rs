//! Downloads of single files, with movers pushing to us or listening for us.
//!
//! Owns one transfer from its command to the renamed file. Talks to the server on the control connection, and to
//! receiving threads. Many small files have a way of their own, in [`many`](crate::many).
//!
//! *Push*: we listen, the movers connect and send MODE E blocks over as many connections as we asked for. *Pull* is in
//! `pull.rs`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::{Algorithm, Sums},
    ftp::{
        Command, CommandOption, EntryKind, FtpPath, Parallelism, Reply, RestartPoint, RetrieveOptions, TransferMode,
    },
};

use crate::{
    Client, ClientError, How, Meter, Ready, Result,
    data::Opening,
    partial::{Origin, PartFile},
    receive::Receiving,
};

/// How often what has come is made durable, so that a killed client can go on.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How long after the last reply the last bytes may take from the sockets to the file, while they still move.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// How long connections may go on when the transfer has failed: what they hold is kept.
const GRACE: Duration = Duration::from_secs(5);

/// Most data connections of one transfer that are accepted.
const MAX_CONNECTIONS: usize = 1024;

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
        let sum = if how.verify { self.known_sum(&fetch.remote).await? } else { None };
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
            } else if how.passive {
                self.pull(fetch, how, &receiving, cancel).await
            } else {
                self.push(fetch, how, &receiving, cancel).await
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
            let options =
                RetrieveOptions { parallelism: Some(Parallelism::fixed(streams)), ..RetrieveOptions::default() };
            self.option(CommandOption::Retrieve(options)).await?;
            self.state.streams = streams;
        }
        Ok(())
    }

    /// We listen, the movers connect.
    async fn push(
        &mut self,
        fetch: &Fetch,
        how: &How,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        self.set_mode(TransferMode::Extended).await?;
        self.set_streams(how.streams).await?;
        let opening = Opening::of(self);
        let listener = self.listen().await?;
        let have = receiving.file.coverage();
        if have.bytes() > 0 {
            self.restart(RestartPoint::Ranges(have)).await?;
        }
        let command = Command::Retr(fetch.remote.clone());
        self.control.queue(&command);
        self.control.flush().await?;

        let (ended, mut ends) = mpsc::channel::<Result<()>>(MAX_CONNECTIONS);
        let stops = opening.stops.clone();
        let mut connections = 0usize;
        let mut running = 0usize;
        let mut last: Option<Reply> = None;
        let mut begun = false;
        let mut failure: Option<ClientError> = None;
        let limits = self.control.limits;
        // Before the first byte a file may have to come from tape.
        let mut watch = Watch::new(receiving.meter.clone(), limits.begin, limits.stall);
        let mut save = tokio::time::interval_at(Instant::now() + SAVE_EVERY, SAVE_EVERY);
        save.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = receiving.has_ended() && running == 0;
            if let Some(reply) = &last
                && (done || failure.is_some() || !reply.is_success())
            {
                break;
            }
            tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin), if last.is_none() => {
                    let reply = reply.inspect_err(|_| stops.stop())?;
                    if reply.is_preliminary() {
                        begun = true;
                    } else {
                        watch.limit(DRAIN_LIMIT);
                        last = Some(reply);
                    }
                }
                accepted = listener.accept(), if connections < MAX_CONNECTIONS && failure.is_none() => {
                    // A connection that is gone again before it was accepted is none of ours.
                    let Ok((socket, address)) = accepted else { continue };
                    let Ok(socket) = socket.into_std() else { continue };
                    connections += 1;
                    running += 1;
                    let (opening, receiving, ended) = (opening.clone(), receiving.clone(), ended.clone());
                    tokio::task::spawn_blocking(move || {
                        let result = opening.protect(socket, address).and_then(|stream| receiving.blocks(stream, opening.stall_limit));
                        let _ = ended.blocking_send(result);
                    });
                }
                Some(result) = ends.recv() => {
                    running -= 1;
                    if let Err(error) = result {
                        // The others may still bring what is already on its way; the server will say why.
                        if !matches!(error, ClientError::Data { .. }) {
                            stops.stop();
                        }
                        watch.limit(GRACE);
                        failure.get_or_insert(error);
                    }
                }
                _ = save.tick() => {
                    let file = receiving.file.clone();
                    tokio::task::spawn_blocking(move || file.save());
                }
                () = watch.stalled(), if begun || last.is_some() => {
                    let limit = watch.limit;
                    let silence = || ClientError::Timeout {
                        server: self.control.server().to_owned(), awaited: "data from its movers".to_owned(), limit,
                    };
                    stops.stop();
                    if last.is_some() {
                        break;
                    }
                    failure.get_or_insert_with(silence);
                    break;
                }
                () = cancel.cancelled(), if failure.is_none() => {
                    failure = Some(ClientError::Cancelled);
                    stops.stop();
                    break;
                }
            }
        }
        drop(listener);
        let grace = Instant::now() + GRACE;
        // What the sockets hold of a cut transfer need not be sent again.
        while running > 0 && !matches!(failure, Some(ClientError::Cancelled)) {
            match tokio::time::timeout_at(grace, ends.recv()).await {
                Ok(Some(_)) => running -= 1,
                _ => break,
            }
        }
        stops.stop();
        while running > 0 && ends.recv().await.is_some() {
            running -= 1;
        }
        receiving.meter.connections(opening.stops.figures());
        if last.is_none() {
            self.abort(&command).await?;
        }
        finish(&command, last, failure)
    }

    /// Says what is there already.
    pub(crate) async fn restart(&mut self, point: RestartPoint) -> Result<()> {
        let command = Command::Rest(point);
        let reply = self.ask(&command).await?;
        if reply.code() == 350 { Ok(()) } else { Err(ClientError::refused(&command, reply)) }
    }

    /// Ends a transfer that is under way, and brings commands and replies in step again.
    pub(crate) async fn abort(&mut self, _command: &Command) -> Result<()> {
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
