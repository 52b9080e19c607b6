//! Downloads of single files, with movers pushing to us or listening for us.
//!
//! Owns one transfer from its command to the renamed file. Talks to the server on the control connection, and to
//! receiving threads. Many small files have a way of their own, in [`many`](crate::many).
//!
//! *Push*: we listen, the movers connect and send MODE E blocks over as many connections as we asked for. *Pull*, for
//! clients that cannot be connected to: the movers listen, and several sessions each fetch ranges (`ERET`) in stream
//! mode; with delayed passive every range is fetched from the mover that has it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::{Algorithm, Sums},
    extent::ByteRange,
    ftp::{
        Command, CommandOption, EntryKind, FtpPath, Parallelism, Part, Reply, RestartPoint, RetrieveOptions,
        TransferMode,
    },
};

use crate::{
    Client, ClientError, How, Meter, Ready, Result,
    data::Opening,
    partial::{Origin, PartFile},
    receive::Receiving,
};

/// How often what has come is made durable, so that a killed client can go on.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// How long after the last reply the last bytes may take from the sockets to the file, while they still move.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);

/// Most data connections of one transfer that are accepted.
const MAX_CONNECTIONS: usize = 1024;

/// Sizes of the ranges fetched one by one when movers listen.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = (16 << 20)..=(1 << 30);

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
            let moved = if how.passive {
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
        let mut watch = Watch::new(receiving.meter.clone(), self.control.limits.stall);
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
                        let result = opening.protect(socket, address).and_then(|stream| receiving.blocks(stream));
                        let _ = ended.blocking_send(result);
                    });
                }
                Some(result) = ends.recv() => {
                    running -= 1;
                    if let Err(error) = result {
                        stops.stop();
                        failure.get_or_insert(error);
                    }
                }
                _ = save.tick() => {
                    let file = receiving.file.clone();
                    tokio::task::spawn_blocking(move || file.save());
                }
                () = watch.stalled(), if begun || last.is_some() => {
                    let limit = self.control.limits.stall;
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
        stops.stop();
        drop(listener);
        while running > 0 && ends.recv().await.is_some() {
            running -= 1;
        }
        if last.is_none() {
            self.abort(&command).await?;
        }
        finish(&command, last, failure)
    }

    /// The movers listen; several sessions connect and fetch ranges.
    async fn pull(
        &mut self,
        fetch: &Fetch,
        how: &How,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let size = receiving.file.size_bytes();
        let missing = receiving.file.coverage().missing_in(ByteRange::between(0, size).unwrap_or_else(|_| EMPTY));
        let ranged = self.features.has("ERET");
        let streams = if ranged { u64::from(how.streams.max(1)) } else { 1 };
        let pieces = if ranged { cut(&missing, streams) } else { missing };
        let count = pieces.len().min(usize::try_from(streams).unwrap_or(1));
        let pieces = std::sync::Mutex::new(pieces.into_iter().rev().collect::<Vec<_>>());
        let mut others = Vec::new();
        for _ in 1..count {
            // Fewer sessions are slower, not wrong.
            match self.another().await {
                Ok(session) => others.push(session),
                Err(error) => {
                    tracing::debug!(%error, "no further session");
                    break;
                }
            }
        }
        let stop = cancel.child_token();
        let own = self.pull_pieces(&pieces, ranged, &fetch.remote, receiving, &stop);
        let theirs = others.iter_mut().map(|other| other.pull_pieces(&pieces, ranged, &fetch.remote, receiving, &stop));
        let (own, theirs) = futures::future::join(own, futures::future::join_all(theirs)).await;
        let results = theirs.into_iter().chain([own]);
        for other in others {
            tokio::spawn(other.quit());
        }
        // The others were stopped because of the first that failed.
        let mut errors: Vec<ClientError> = results.filter_map(Result::err).collect();
        errors.sort_by_key(|error| matches!(error, ClientError::Cancelled));
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn pull_pieces(
        &mut self,
        pieces: &std::sync::Mutex<Vec<ByteRange>>,
        ranged: bool,
        remote: &FtpPath,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let work = async {
            self.set_mode(TransferMode::Stream).await?;
            loop {
                let piece = pieces.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
                let Some(piece) = piece else { return Ok(()) };
                self.pull_piece(piece, ranged, remote, receiving, cancel).await?;
            }
        };
        // One that failed stops the others: what is missing is fetched again later.
        work.await.inspect_err(|_: &ClientError| cancel.cancel())
    }

    async fn pull_piece(
        &mut self,
        piece: ByteRange,
        ranged: bool,
        remote: &FtpPath,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let to_the_end = piece.end() == receiving.file.size_bytes();
        let command = if ranged && !(piece.offset() == 0 && to_the_end) {
            Command::Eret(Part { offset_bytes: piece.offset(), length_bytes: piece.length(), path: remote.clone() })
        } else {
            Command::Retr(remote.clone())
        };
        let opening = Opening::of(self);
        let mut address = self.passive_for_transfer().await?;
        if piece.offset() > 0 && matches!(command, Command::Retr(_)) {
            self.restart(RestartPoint::Offset(piece.offset())).await?;
        }
        self.control.queue(&command);
        self.control.flush().await?;
        let mut receiver = address.take().map(|address| start(&opening, address, receiving, piece));
        let mut received: Option<Result<()>> = None;
        let mut last: Option<Reply> = None;
        loop {
            tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin), if last.is_none() => {
                    let reply = reply.inspect_err(|_| opening.stops.stop())?;
                    if matches!(reply.code(), 127 | 129) && receiver.is_none() {
                        let address = self.address_of(&reply)?;
                        receiver = Some(start(&opening, address, receiving, piece));
                    } else if !reply.is_preliminary() {
                        last = Some(reply);
                    }
                }
                result = async { receiver.as_mut().expect("checked").await }, if receiver.is_some() && received.is_none() => {
                    received = Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
                    // Without ERET the server goes on behind the range; the closed connection tells it not to.
                    if received.as_ref().is_some_and(Result::is_err) {
                        opening.stops.stop();
                    }
                }
                () = cancel.cancelled() => {
                    opening.stops.stop();
                    if let Some(receiver) = receiver.take().filter(|_| received.is_none()) {
                        let _ = receiver.await;
                    }
                    if last.is_none() {
                        self.abort(&command).await?;
                    }
                    return Err(ClientError::Cancelled);
                }
            }
            match (&last, &received) {
                (Some(reply), _)
                    if !reply.is_success() && !(received.as_ref().is_some_and(Result::is_ok) && !to_the_end) =>
                {
                    opening.stops.stop();
                    return finish(&command, last, received.and_then(Result::err));
                }
                (Some(_), Some(_)) => {
                    return finish(&command, None, received.and_then(Result::err));
                }
                (Some(reply), None) if receiver.is_none() => {
                    return Err(ClientError::refused(&command, reply.clone()));
                }
                _ => {}
            }
        }
    }

    /// Asks for a passive address for a file: delayed if the server can, so that the right mover answers.
    pub(crate) async fn passive_for_transfer(&mut self) -> Result<Option<std::net::SocketAddr>> {
        if !self.features.delayed_passive() {
            return self.passive_now().await.map(Some);
        }
        self.set_delayed(true).await?;
        let command = Command::Epsv(wire::ftp::EpsvArgument::Same);
        let reply = self.demand(&command).await?;
        if matches!(reply.code(), 227 | 229) { self.address_of(&reply).map(Some) } else { Ok(None) }
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

const EMPTY: ByteRange = match ByteRange::new(0, 0) {
    Ok(range) => range,
    Err(_) => unreachable!(),
};

type Receiver = tokio::task::JoinHandle<Result<()>>;

fn start(opening: &Opening, address: std::net::SocketAddr, receiving: &Arc<Receiving>, piece: ByteRange) -> Receiver {
    let (opening, receiving) = (opening.clone(), receiving.clone());
    tokio::task::spawn_blocking(move || receiving.range(opening.connect(address)?, piece))
}

/// Cuts what is missing into ranges that sessions fetch one after the other.
fn cut(missing: &[ByteRange], streams: u64) -> Vec<ByteRange> {
    let total: u64 = missing.iter().map(|range| range.length()).sum();
    let piece = (total / streams / 2).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end());
    let parts = |range: &ByteRange| u16::try_from(range.length().div_ceil(piece)).unwrap_or(u16::MAX);
    missing.iter().flat_map(|range| range.regions(parts(range), 1 << 20)).collect()
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
    limit: Duration,
}

impl Watch {
    pub(crate) fn new(meter: Meter, limit: Duration) -> Self {
        let seen = meter.read().bytes;
        Self { meter, seen, since: Instant::now(), limit }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_cut_for_all_sessions() {
        let range = |start, end| ByteRange::between(start, end).unwrap();
        let pieces = cut(&[range(0, 1 << 30), range(2 << 30, (2 << 30) + 5)], 4);
        assert_eq!(pieces.len(), 9);
        assert_eq!(pieces.iter().map(|piece| piece.length()).sum::<u64>(), (1 << 30) + 5);
        assert_eq!(cut(&[range(3, 10)], 8), [range(3, 10)]);
    }
}
