//! Bytes between an HTTP client and a mover: through a door, or past it where the client can be sent to the mover.
//!
//! Owns nothing. Talks to [`crate::transfer`]. What movers of this process have is read from them without a connection;
//! to the data endpoints of others it connects as a client would, and counts what goes through as relayed. Holds no more of
//! a body than a few buffers.
//!
//! Invariant: a verdict on a body is given only after its last byte went to the mover.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use daemon::Shutdown;
use futures::{Stream, StreamExt as _, stream};
use hyper::HeaderMap;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
    time::timeout,
};
use wire::{
    extent::ByteRange,
    id::{BitfileId, CosName},
    mover::{BodySpec, Framing, PeerCheck, Security, TlsSide},
};

use crate::{
    failure::{Failure, FailureKind},
    files::Readable,
    identity::Principal,
    redirect::{self, Exit, Reason, Route},
    transfer::{
        DataPort, Here, Part, Pipe, PortSpec, Publisher, Retrieve, Running, Side, Step, Store, Summary, Transfers,
    },
};

/// How much is read of a mover at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Pieces that wait for a client which is slower than a mover.
const PIECES: usize = 4;
/// Pieces of a mover of this process that wait; it reads ahead itself.
const HERE_PIECES: usize = 1;

/// What a client sends, as its door reads it: bytes, and what they are worth.
pub(crate) trait Body: Send {
    /// How the door refuses.
    type Refusal: From<Failure> + Send;
    /// What the door finds when the last byte has come.
    type Verdict: Send;

    /// The next bytes; `None` behind the last one.
    fn next(&mut self) -> impl Future<Output = Option<Result<Bytes, Self::Refusal>>> + Send;

    /// Nothing has come for too long.
    fn late() -> Self::Refusal {
        Failure::new(FailureKind::DataConnectionLost, "nothing came for too long: send it again").into()
    }

    /// The body has ended after so many bytes: whether it is what was announced.
    fn end(self, bytes: u64) -> Result<Self::Verdict, Self::Refusal>;
}

/// A door's way for bytes that it passes on itself.
#[derive(Clone)]
pub(crate) struct Relay {
    transfers: Transfers,
    /// The door's name, for the count of what goes through.
    door: &'static str,
    /// How long a client may send or take nothing.
    stall_limit: Duration,
    shutdown: Shutdown,
}

/// How a body goes straight to a mover.
pub(crate) struct Away {
    pub(crate) exit: Exit,
    /// The client came over TLS.
    pub(crate) secure: bool,
    /// The request's path, for the address that the client is told.
    pub(crate) path: String,
    pub(crate) body: BodySpec,
}

/// Why a body was not passed on whole.
enum Passing<R> {
    /// It is the client's fault.
    Refused(R),
    /// The mover took no more.
    Broken(io::Error),
}

impl Relay {
    pub(crate) fn new(transfers: &Transfers, door: &'static str, stall_limit: Duration, shutdown: &Shutdown) -> Self {
        Self { transfers: transfers.clone(), door, stall_limit, shutdown: shutdown.clone() }
    }

    /// Where a client is sent that reads a file; `key` is what was said of the key that it signs with, `secure` if it
    /// came over TLS.
    ///
    /// # Errors
    ///
    /// Why it is served here.
    pub(crate) async fn route(
        &self,
        headers: &HeaderMap,
        key: Option<bool>,
        bitfile: BitfileId,
        secure: bool,
    ) -> Result<Route, Reason> {
        redirect::wish(headers, key)?;
        self.transfers.route(bitfile, secure).await
    }

    /// Whether a client that brings a new file of this class can be sent to a mover; `secure` if it came over TLS.
    pub(crate) async fn has_door(&self, cos: Option<&CosName>, secure: bool) -> bool {
        self.transfers.has_door(cos, secure).await
    }

    /// Until when the door's work goes on.
    pub(crate) const fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Counts a client that was sent away.
    pub(crate) fn sent_away(&self) {
        metrics::counter!("penstock_redirects_total", "door" => self.door).increment(1);
    }

    /// Writes a body to a mover and has it published: `publisher` waits for what `decide` says, and hears nothing if the
    /// body is refused. Returns how the transfer ended.
    ///
    /// # Errors
    ///
    /// What the body refuses, or why the mover broke off before its last byte.
    pub(crate) async fn store<B: Body>(
        &self,
        what: Store,
        publisher: Arc<dyn Publisher>,
        body: B,
        decide: oneshot::Sender<B::Verdict>,
        reason: Reason,
    ) -> Result<Result<Summary, Failure>, B::Refusal> {
        let mut port = self.port(what.cos.as_ref()).await?;
        let mut running = self.transfers.store_as(&mut port, what, publisher);
        let mut pipe = self.connected(&mut running).await?;
        let verdict = match self.pass_on(body, &mut pipe, reason).await {
            Ok(verdict) => verdict,
            Err(Passing::Refused(refusal)) => {
                running.cancel();
                return Err(refusal);
            }
            // The mover says better than a broken pipe why it broke off.
            Err(Passing::Broken(error)) => {
                let failure = match timeout(self.stall_limit, running.done()).await {
                    Ok(Err(failure)) => failure,
                    _ => Failure::new(FailureKind::Unavailable, format!("the mover broke off: {error}")),
                };
                return Err(failure.into());
            }
        };
        // If the transfer has failed meanwhile, it says why.
        let _ = decide.send(verdict);
        if let Err(error) = pipe.shutdown().await {
            tracing::debug!(%error, "the mover's connection ended early");
        }
        Ok(running.done().await)
    }

    /// Has a body brought to a mover by its client, which is sent there with it, and published: `publisher` hears what the
    /// body said of itself. Returns how the transfer ended.
    ///
    /// # Errors
    ///
    /// Why the client was not sent away.
    pub(crate) async fn store_away(
        &self,
        what: Store,
        publisher: Arc<dyn Publisher>,
        way: Away,
    ) -> Result<Result<Summary, Failure>, Failure> {
        let side = Side::Http { secure: way.secure, body: way.body };
        let mut port = self.open(what.cos.as_ref(), side, Security::Clear).await?;
        let mut running = self.transfers.store_as(&mut port, what, publisher);
        let step = loop {
            match running.next().await {
                Some(Step::Door { mover, channel }) => break (mover, channel),
                Some(Step::Done(result)) => return Err(result.err().unwrap_or_else(early)),
                None => return Err(early()),
                Some(_) => {}
            }
        };
        let departure = self.transfers.departure(step, way.secure, &way.path);
        if !departure.is_some_and(|departure| way.exit.leave(departure)) {
            return Err(Failure::new(FailureKind::Unavailable, "the mover or the client went away: send it again"));
        }
        let done = running.done().await;
        if let Ok(summary) = &done {
            metrics::counter!("penstock_direct_bytes_total", "door" => self.door).increment(summary.bytes);
        }
        Ok(done)
    }

    /// A part of a file as a stream of its bytes. Returns when the first can be read.
    ///
    /// # Errors
    ///
    /// If no mover can send it.
    pub(crate) async fn send(
        &self,
        who: &Principal,
        file: Readable,
        range: ByteRange,
        reason: Reason,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + Sync + use<>, Failure> {
        if range.is_empty() {
            return Ok(stream::empty().left_stream());
        }
        let mut port = self.port(None).await?;
        let whole = range.offset() == 0 && range.length() == file.file.size_bytes;
        let part = if whole { Part::Whole } else { Part::Relative(range) };
        let what = Retrieve { file, principal: who.clone(), part };
        let (into, mut given) = mpsc::channel(HERE_PIECES);
        let here = Here { into, stall_limit: self.stall_limit };
        let mut running = self.transfers.retrieve_here(&mut port, what, here);
        let begun = tokio::select! {
            biased;
            Some(first) = given.recv() => Begun::Here(first),
            pipe = self.connected(&mut running) => Begun::Pipe(Box::new(pipe?)),
        };
        let pieces = match begun {
            Begun::Here(first) => {
                let giving = Giving { first: Some(first), given, left: range.length(), running, _port: port };
                stream::unfold(giving, Giving::next).left_stream()
            }
            Begun::Pipe(pipe) => {
                let (pieces, received) = mpsc::channel(PIECES);
                let relay = self.clone();
                self.shutdown.spawn_until_cut(async move {
                    let _port = port;
                    relay.pump(*pipe, running, range.length(), pieces, reason.label()).await;
                });
                let next = |mut received: mpsc::Receiver<_>| async move { Some((received.recv().await?, received)) };
                stream::unfold(received, next).right_stream()
            }
        };
        Ok(pieces.right_stream())
    }

    async fn port(&self, cos: Option<&CosName>) -> Result<DataPort, Failure> {
        let side = Side::Passive { delayed: true, striped: false, ipv6: false, renew: false };
        let security = Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site };
        self.open(cos, side, security).await
    }

    async fn open(&self, cos: Option<&CosName>, side: Side, security: Security) -> Result<DataPort, Failure> {
        let spec = PortSpec {
            door: self.door,
            framing: Framing::Stream,
            streams: 1,
            security,
            peer: None,
            side,
            buffer_bytes: None,
            cos: cos.cloned(),
            rate_limit: None,
        };
        self.transfers.port(spec).await
    }

    /// Waits until the mover of a transfer listens, and connects.
    async fn connected(&self, running: &mut Running) -> Result<Pipe, Failure> {
        loop {
            match running.next().await {
                Some(Step::Passive(addresses)) => {
                    let address = addresses.first().ok_or_else(early)?;
                    return self.transfers.pipe(*address).await;
                }
                Some(Step::Done(result)) => return Err(result.err().unwrap_or_else(early)),
                None => return Err(early()),
                Some(_) => {}
            }
        }
    }

    /// Copies a body to a mover; what is found of it.
    async fn pass_on<B: Body>(
        &self,
        mut body: B,
        pipe: &mut Pipe,
        reason: Reason,
    ) -> Result<B::Verdict, Passing<B::Refusal>> {
        let mut bytes = 0;
        let passed = async {
            loop {
                let piece = timeout(self.stall_limit, body.next()).await;
                let Some(piece) = piece.map_err(|_| Passing::Refused(B::late()))? else { break };
                let piece = piece.map_err(Passing::Refused)?;
                pipe.write_all(&piece).await.map_err(Passing::Broken)?;
                bytes += piece.len() as u64;
            }
            Ok(())
        };
        let passed = passed.await;
        self.relayed(reason.put_label(), bytes);
        passed?;
        let verdict = body.end(bytes).map_err(Passing::Refused)?;
        pipe.flush().await.map_err(Passing::Broken)?;
        Ok(verdict)
    }

    /// Reads so many bytes of a mover and hands them on. A client that is gone, or takes nothing for too long, gets no
    /// more.
    async fn pump(
        &self,
        mut pipe: Pipe,
        mut running: Running,
        length: u64,
        pieces: mpsc::Sender<io::Result<Bytes>>,
        reason: &'static str,
    ) {
        let mut left = length;
        while left > 0 {
            let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            let piece = match (&mut pipe).take(most as u64).read_buf(&mut buffer).await {
                Ok(0) => Err(ended_early(&mut running).await),
                Ok(count) => {
                    left -= count as u64;
                    self.relayed(reason, count as u64);
                    Ok(buffer.freeze())
                }
                Err(error) => Err(error),
            };
            let over = piece.is_err();
            if !matches!(timeout(self.stall_limit, pieces.send(piece)).await, Ok(Ok(()))) || over {
                running.cancel();
                return;
            }
        }
        drop(pieces);
        let _ = pipe.read(&mut [0; 1]).await;
        if let Err(failure) = running.done().await {
            tracing::debug!(reason = %failure, "a transfer failed behind its last byte");
        }
    }

    fn relayed(&self, reason: &'static str, bytes: u64) {
        metrics::counter!("penstock_relayed_bytes_total", "door" => self.door, "reason" => reason).increment(bytes);
    }
}

fn early() -> Failure {
    Failure::new(FailureKind::Internal, "a transfer ended before it began")
}

/// How a file comes.
enum Begun {
    /// From movers of this process; these are its first bytes.
    Here(Bytes),
    /// From a mover's data endpoint.
    Pipe(Box<Pipe>),
}

/// A file that comes from movers of this process.
struct Giving {
    first: Option<Bytes>,
    given: mpsc::Receiver<Bytes>,
    left: u64,
    running: Running,
    _port: DataPort,
}

impl Giving {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.left == 0 {
            return None;
        }
        let piece = match self.first.take() {
            Some(first) => Some(first),
            None => self.given.recv().await,
        };
        let piece = match piece {
            Some(piece) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Ok(piece)
            }
            None => {
                self.left = 0;
                Err(ended_early(&mut self.running).await)
            }
        };
        if self.left == 0 {
            // Nobody asks for more; the transfer's task still has its end to tell.
            self.running.release();
        }
        Some((piece, self))
    }
}

async fn ended_early(running: &mut Running) -> io::Error {
    while let Some(step) = running.next().await {
        if let Step::Done(Err(failure)) = step {
            return io::Error::other(failure.to_string());
        }
    }
    io::Error::new(io::ErrorKind::UnexpectedEof, "the mover sent less than it has")
}
