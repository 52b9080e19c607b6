//! Bytes between a client and a mover, through the door: movers do not speak HTTP yet.
//!
//! Owns nothing. Talks to [`crate::transfer`]. Holds no more of a body than a buffer, and counts what goes through as
//! relayed.
//!
//! Invariant: a file is published only after its last byte has come and every sum that its writer announced is right.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use catalog::{Catalog, CatalogError, Expected, NewFile, Published};
use futures::Stream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
    time::timeout,
};
use wire::{
    checksum::{Algorithm, ExtraSums},
    extent::ByteRange,
    mover::{Framing, PeerCheck, Security, TlsSide},
};

use super::{Door, digest};
use crate::{
    failure::{Failure, FailureKind},
    files::{Readable, Target},
    identity::Principal,
    transfer::{Part, Pipe, PortSpec, Publisher, Retrieve, Running, Side, Step, Store, StoreMode, Stored},
};

/// How much is read of a mover at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Pieces that wait for a client which is slower than a mover.
const PIECES: usize = 4;

/// What a client sends.
pub(super) struct Upload {
    pub(super) target: Target,
    /// What the name must hold when the file is published.
    pub(super) expected: Expected,
    /// How long it will be, if the client says so.
    pub(super) size_bytes: Option<u64>,
    /// Sums that must come out.
    pub(super) sums: Vec<(Algorithm, Vec<u8>)>,
    pub(super) body: Incoming,
}

/// Publishes when the door has seen the last byte, if the sums are right.
struct Judged {
    catalog: Catalog,
    expected: Expected,
    sums: Vec<(Algorithm, Vec<u8>)>,
    path: String,
    /// The door's word that the whole body has come. A door that gives up says nothing.
    whole: Mutex<Option<oneshot::Receiver<()>>>,
    refused: Mutex<Option<Failure>>,
}

#[async_trait]
impl Publisher for Judged {
    fn extra_sums(&self) -> ExtraSums {
        let has = |algorithm| self.sums.iter().any(|(of, _)| *of == algorithm);
        ExtraSums { md5: has(Algorithm::Md5), sha256: has(Algorithm::Sha256) }
    }

    async fn publish(&self, mut file: NewFile) -> catalog::Result<Published> {
        let refused = || CatalogError::Stale { what: "an upload that its door gave up".to_owned() };
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner).take();
        whole.ok_or_else(refused)?.await.map_err(|_| refused())?;
        if let Some((algorithm, have, wanted)) = digest::difference(&self.sums, &file.sums) {
            let text = format!("{algorithm} of what came of {} is {have}, not {wanted}: send it again", self.path);
            self.refuse(Failure::new(FailureKind::Mismatch, text));
            return Err(refused());
        }
        file.expected = self.expected;
        self.catalog.publish(file).await
    }
}

impl Judged {
    fn refuse(&self, failure: Failure) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

fn port() -> PortSpec {
    PortSpec {
        door: "webdav",
        framing: Framing::Stream,
        streams: 1,
        security: Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site },
        peer: None,
        side: Side::Passive { delayed: true, striped: false, ipv6: false, renew: false },
        buffer_bytes: None,
        cos: None,
        rate_limit: None,
    }
}

fn relayed(direction: &'static str, bytes: u64) {
    metrics::counter!("penstock_relayed_bytes_total", "door" => "webdav", "reason" => direction).increment(bytes);
}

impl Door {
    /// Writes a body to a mover and has it published; returns when it is on stable storage.
    pub(super) async fn receive(&self, who: &Principal, upload: Upload) -> Result<Stored, Failure> {
        let (said, whole) = oneshot::channel();
        let judged = std::sync::Arc::new(Judged {
            catalog: self.catalog.clone(),
            expected: upload.expected,
            sums: upload.sums,
            path: upload.target.path.clone(),
            whole: Mutex::new(Some(whole)),
            refused: Mutex::new(None),
        });
        let what = Store {
            target: upload.target,
            principal: who.clone(),
            mode: StoreMode::Whole,
            cos: None,
            size_bytes: upload.size_bytes,
            sum: None,
            modified_us: None,
            client: None,
        };
        let mut port = self.transfers.port(port()).await?;
        let publisher: std::sync::Arc<dyn Publisher> = judged.clone();
        let mut running = self.transfers.store_as(&mut port, what, publisher);
        let mut pipe = self.connected(&mut running).await?;
        match self.pass_on(upload.body, upload.size_bytes, &mut pipe).await {
            Ok(bytes) => relayed("put", bytes),
            Err(Passing::Refused(failure)) => {
                running.cancel();
                return Err(failure);
            }
            // The mover says better than a broken pipe why it broke off.
            Err(Passing::Broken(error)) => {
                return Err(match timeout(self.config.stall_limit.duration(), running.done()).await {
                    Ok(Err(failure)) => failure,
                    _ => Failure::new(FailureKind::DataConnectionLost, format!("the mover broke off: {error}")),
                });
            }
        }
        // If the transfer has failed meanwhile, it says why.
        let _ = said.send(());
        if let Err(error) = pipe.shutdown().await {
            tracing::debug!(%error, "the mover's connection ended early");
        }
        let done = running.done().await;
        let refused = judged.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (refused, done) {
            (Some(failure), _) | (None, Err(failure)) => Err(failure),
            (None, Ok(summary)) => {
                summary.stored.ok_or_else(|| Failure::new(FailureKind::Internal, "nothing was published"))
            }
        }
    }

    /// Waits until the mover of a transfer listens, and connects.
    async fn connected(&self, running: &mut Running) -> Result<Pipe, Failure> {
        let early = || Failure::new(FailureKind::Internal, "a transfer ended before it began");
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

    /// Copies a body to a mover; how many bytes it had.
    async fn pass_on(&self, mut body: Incoming, announced: Option<u64>, pipe: &mut Pipe) -> Result<u64, Passing> {
        let limit = self.config.stall_limit.duration();
        let refused = |kind, text: String| Passing::Refused(Failure::new(kind, text));
        let mut bytes = 0;
        loop {
            let frame = timeout(limit, body.frame()).await;
            let late = |_| refused(FailureKind::DataConnectionLost, "nothing came for too long: send it again".into());
            let Some(frame) = frame.map_err(late)? else { break };
            let frame =
                frame.map_err(|error| refused(FailureKind::Mismatch, format!("the body broke off: {error}")))?;
            // Trailers say nothing that is asked for here.
            let Ok(piece) = frame.into_data() else { continue };
            bytes += piece.len() as u64;
            pipe.write_all(&piece).await.map_err(Passing::Broken)?;
        }
        if announced.is_some_and(|announced| announced != bytes) {
            let text = format!("{bytes} bytes came, {} were announced: send it again", announced.unwrap_or_default());
            return Err(refused(FailureKind::Mismatch, text));
        }
        pipe.flush().await.map_err(Passing::Broken)?;
        Ok(bytes)
    }

    /// A part of a file as a stream of its bytes. Returns when the first can be read.
    pub(super) async fn send(
        &self,
        who: &Principal,
        file: Readable,
        range: ByteRange,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, Failure> {
        let (pieces, received) = mpsc::channel(PIECES);
        if !range.is_empty() {
            let mut port = self.transfers.port(port()).await?;
            let whole = range.offset() == 0 && range.length() == file.file.size_bytes;
            let part = if whole { Part::Whole } else { Part::Relative(range) };
            let what = Retrieve { file, principal: who.clone(), part };
            let mut running = self.transfers.retrieve(&mut port, what);
            let pipe = self.connected(&mut running).await?;
            let limit = self.config.stall_limit.duration();
            self.shutdown.spawn_until_cut(async move {
                let _port = port;
                pump(pipe, running, range.length(), pieces, limit).await;
            });
        }
        Ok(futures::stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) }))
    }
}

/// Reads so many bytes of a mover and hands them on. A client that is gone, or takes nothing for too long, gets no more.
async fn pump(
    mut pipe: Pipe,
    mut running: Running,
    length: u64,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    limit: Duration,
) {
    let mut left = length;
    while left > 0 {
        let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_BYTES);
        let piece = match (&mut pipe).take(most as u64).read_buf(&mut buffer).await {
            Ok(0) => Err(ended_early(&mut running).await),
            Ok(count) => {
                left -= count as u64;
                Ok(buffer.freeze())
            }
            Err(error) => Err(error),
        };
        let over = piece.is_err();
        if !matches!(timeout(limit, pieces.send(piece)).await, Ok(Ok(()))) || over {
            running.cancel();
            return;
        }
    }
    relayed("get", length);
    drop(pieces);
    let _ = pipe.read(&mut [0; 1]).await;
    if let Err(failure) = running.done().await {
        tracing::debug!(reason = %failure, "a transfer failed behind its last byte");
    }
}

/// Why a body was not passed on whole.
enum Passing {
    /// It is the client's fault.
    Refused(Failure),
    /// The mover took no more.
    Broken(io::Error),
}

async fn ended_early(running: &mut Running) -> io::Error {
    while let Some(step) = running.next().await {
        if let Step::Done(Err(failure)) = step {
            return io::Error::other(failure.to_string());
        }
    }
    io::Error::new(io::ErrorKind::UnexpectedEof, "the mover sent less than it has")
}
