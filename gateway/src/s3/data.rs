//! Bytes between a client and movers, through the door: for clients that are not sent to a mover.
//!
//! Owns nothing. Talks to [`crate::transfer`]. Holds no more of a body than a buffer, and counts what goes through as
//! relayed.
//!
//! Invariant: an object is published only after the last byte was compared with every sum that its writer announced.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use catalog::{CatalogError, FileInfo, NewFile, NewObject, NewPart, Object, Published, UploadPart};
use futures::{Stream, StreamExt as _};
use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, dto::StreamingBlob};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
    time::timeout,
};
use wire::{
    checksum::ExtraSums,
    extent::ByteRange,
    id::{CosName, EntryId, GroupName},
    mover::{Framing, PeerCheck, Security, TlsSide},
};

use super::{
    Door,
    checksum::{Algorithm, Hasher, Kept},
    error::{coded, of_failure},
};
use crate::{
    failure::Failure,
    files::{Readable, Target},
    identity::Principal,
    transfer::{Part, PortSpec, Publisher, Retrieve, Running, Side, Step, Store, StoreMode},
};

/// How much is read of a mover at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Pieces that wait for a client which is slower than a mover.
const PIECES: usize = 4;

/// What is written.
pub(super) struct Incoming {
    pub(super) body: Option<StreamingBlob>,
    pub(super) trailers: Option<TrailingHeaders>,
    /// How long it will be.
    pub(super) size_bytes: u64,
    /// What its MD5 must be.
    pub(super) md5: Option<[u8; 16]>,
    /// The sum to make and keep, and what it must be if that is known already.
    pub(super) sum: Algorithm,
    pub(super) announced: Option<String>,
    /// A trailer will say what it must be.
    pub(super) trailer: bool,
}

/// What becomes of it.
pub(super) enum Becomes {
    /// An object; size, sums, segments and tag come from what was written.
    Object(Box<NewObject>, Box<dyn FnOnce(&Kept) -> String + Send>),
    /// A part of an upload.
    Part(Box<NewPart>, Box<dyn FnOnce(&Kept) -> String + Send>),
}

/// What became of it.
pub(super) enum Became {
    Object(Box<Object>, Kept),
    Part(Box<UploadPart>),
}

/// The door's word on bytes that came: what becomes of them, what is kept of their sums, and the MD5 that was announced.
type Verdict = (Becomes, Kept, Option<[u8; 16]>);

/// Publishes when the door has seen the last byte and found it good.
struct Judged {
    door: Door,
    verdict: Mutex<Option<oneshot::Receiver<Verdict>>>,
    outcome: Mutex<Option<S3Result<Became>>>,
}

#[async_trait]
impl Publisher for Judged {
    fn extra_sums(&self) -> ExtraSums {
        ExtraSums { md5: true, sha256: false }
    }

    async fn publish(&self, file: NewFile) -> catalog::Result<Published> {
        let waiting = self.verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        let refused = || CatalogError::Stale { what: "an upload that its door gave up".to_owned() };
        let Some(waiting) = waiting else { return Err(refused()) };
        let (becomes, kept, md5) = waiting.await.map_err(|_| refused())?;
        let have = file.sums.md5.unwrap_or_default();
        if md5.is_some_and(|md5| md5 != have) {
            self.settle(Err(S3Error::with_message(S3ErrorCode::BadDigest, "the MD5 of what came is not Content-MD5")));
            return Err(refused());
        }
        match self.write(file, becomes, kept, hex::encode(have)).await {
            Ok((published, became)) => {
                self.settle(Ok(became));
                Ok(published)
            }
            Err(error) => {
                self.settle(Err(super::error::of_catalog(error.clone(), super::error::Asked::Object)));
                Err(error)
            }
        }
    }
}

impl Judged {
    fn settle(&self, outcome: S3Result<Became>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    async fn write(
        &self,
        file: NewFile,
        becomes: Becomes,
        kept: Kept,
        etag: String,
    ) -> catalog::Result<(Published, Became)> {
        let catalog = &self.door.catalog;
        match becomes {
            Becomes::Object(mut object, attributes) => {
                object.attributes = attributes(&kept);
                object.etag = etag;
                object.cos = file.cos;
                object.disk_class = file.storage_class;
                object.size_bytes = file.size_bytes;
                object.sums = file.sums;
                object.segments = file.segments;
                let object = catalog.put_object(*object).await?;
                let data = object.data.as_ref();
                let published = Published {
                    entry: data.and_then(|data| data.entry).unwrap_or(EntryId(0)),
                    bitfile: data.map_or(wire::id::BitfileId(0), |data| data.file.bitfile),
                    generation: data.map_or(0, |data| data.file.generation),
                    replaced: None,
                };
                Ok((published, Became::Object(Box::new(object), kept)))
            }
            Becomes::Part(mut part, attributes) => {
                part.attributes = attributes(&kept);
                part.etag = etag;
                part.disk_class = file.storage_class;
                part.size_bytes = file.size_bytes;
                part.sums = file.sums;
                part.segments = file.segments;
                let part = catalog.put_part(*part).await?;
                let published = Published { entry: EntryId(0), bitfile: part.id, generation: 1, replaced: None };
                Ok((published, Became::Part(Box::new(part))))
            }
        }
    }
}

fn port(cos: Option<&CosName>) -> PortSpec {
    PortSpec {
        door: "s3",
        framing: Framing::Stream,
        streams: 1,
        security: Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site },
        peer: None,
        side: Side::Passive { delayed: true, striped: false, ipv6: false, renew: false },
        buffer_bytes: None,
        cos: cos.cloned(),
        rate_limit: None,
    }
}

fn relayed(direction: &'static str, bytes: u64) {
    metrics::counter!("penstock_relayed_bytes_total", "door" => "s3", "reason" => direction).increment(bytes);
}

impl Door {
    /// Writes a body to a mover and has it published.
    pub(super) async fn receive(
        &self,
        who: &Principal,
        (bucket, key, cos): (EntryId, &str, &CosName),
        incoming: Incoming,
        becomes: Becomes,
    ) -> S3Result<Became> {
        let (decide, verdict) = oneshot::channel();
        let judged =
            Arc::new(Judged { door: self.clone(), verdict: Mutex::new(Some(verdict)), outcome: Mutex::new(None) });
        let mut port = self.transfers.port(port(Some(cos))).await.map_err(of_failure)?;
        let group: GroupName = who.primary_group().clone();
        let target =
            Target { path: key.to_owned(), parent: bucket, name: key.to_owned(), existing: None, mode: 0o600, group };
        let what = Store {
            target,
            principal: who.clone(),
            mode: StoreMode::Whole,
            cos: Some(cos.clone()),
            size_bytes: Some(incoming.size_bytes),
            sum: None,
            modified_us: None,
            client: None,
        };
        let mut running = self.transfers.store_as(&mut port, what, Arc::<Judged>::clone(&judged) as Arc<dyn Publisher>);
        let mut pipe = self.connected(&mut running).await?;
        let md5 = incoming.md5;
        let size_bytes = incoming.size_bytes;
        let kept = match self.pass_on(incoming, &mut pipe).await {
            Ok(kept) => kept,
            Err(Passing::Refused(error)) => {
                running.cancel();
                return Err(error);
            }
            // The mover says better than a broken pipe why it broke off.
            Err(Passing::Broken(error)) => {
                let why = timeout(self.config.stall_limit.duration(), running.done()).await;
                return Err(match why {
                    Ok(Err(failure)) => of_failure(failure),
                    _ => S3Error::with_message(S3ErrorCode::SlowDown, format!("the mover broke off: {error}")),
                });
            }
        };
        relayed("put", size_bytes);
        // If the transfer has failed meanwhile, it says why.
        let _ = decide.send((becomes, kept, md5));
        if let Err(error) = pipe.shutdown().await {
            tracing::debug!(%error, "the mover's connection ended early");
        }
        let done = running.done().await;
        let outcome = judged.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (outcome, done) {
            (Some(Ok(became)), Ok(_)) => Ok(became),
            (Some(Err(error)), _) => Err(error),
            (_, Err(failure)) => Err(of_failure(failure)),
            (None, Ok(_)) => Err(S3Error::with_message(S3ErrorCode::InternalError, "nothing was published")),
        }
    }

    /// Waits until the mover of a transfer listens, and connects.
    async fn connected(&self, running: &mut Running) -> S3Result<crate::transfer::Pipe> {
        loop {
            match running.next().await {
                Some(Step::Passive(addresses)) => {
                    let Some(address) = addresses.first() else {
                        return Err(S3Error::with_message(S3ErrorCode::InternalError, "a mover said no address"));
                    };
                    return self.transfers.pipe(*address).await.map_err(of_failure);
                }
                Some(Step::Done(Err(failure))) => return Err(of_failure(failure)),
                Some(Step::Done(Ok(_))) | None => {
                    return Err(S3Error::with_message(S3ErrorCode::InternalError, "a transfer ended before it began"));
                }
                Some(_) => {}
            }
        }
    }

    /// Copies a body, makes its sum and compares it.
    async fn pass_on(&self, incoming: Incoming, pipe: &mut crate::transfer::Pipe) -> Result<Kept, Passing> {
        let mut hasher = Hasher::new(incoming.sum);
        let mut bytes = 0;
        let refused = |code, text: String| Passing::Refused(S3Error::with_message(code, text));
        if let Some(mut body) = incoming.body {
            let limit = self.config.stall_limit.duration();
            loop {
                let piece = timeout(limit, body.next()).await;
                let piece =
                    piece.map_err(|_| refused(S3ErrorCode::RequestTimeout, "nothing came for too long".into()))?;
                let Some(piece) = piece else { break };
                let piece = piece.map_err(|error| Passing::Refused(of_body(&*error)))?;
                bytes += piece.len() as u64;
                if bytes > incoming.size_bytes {
                    return Err(refused(S3ErrorCode::IncompleteBody, "more came than was announced".into()));
                }
                hasher.update(&piece);
                pipe.write_all(&piece).await.map_err(Passing::Broken)?;
            }
        }
        if bytes != incoming.size_bytes {
            let text = format!("{bytes} bytes came, {} were announced", incoming.size_bytes);
            return Err(refused(S3ErrorCode::IncompleteBody, text));
        }
        let kept = hasher.finish();
        let trailer = incoming.trailers.as_ref().filter(|_| incoming.trailer).and_then(|trailers| {
            trailers.read(|headers| headers.get(incoming.sum.header())?.to_str().ok().map(str::to_owned)).flatten()
        });
        if incoming.trailer && trailer.is_none() {
            let text = format!("trailer {} did not come", incoming.sum.header());
            return Err(Passing::Refused(coded("MalformedTrailerError", StatusCode::BAD_REQUEST, text)));
        }
        for wanted in [incoming.announced, trailer].into_iter().flatten() {
            if wanted.trim() != kept.value {
                let text = format!("{} of what came is {}, not {wanted}", incoming.sum.name(), kept.value);
                return Err(refused(S3ErrorCode::BadDigest, text));
            }
        }
        pipe.flush().await.map_err(Passing::Broken)?;
        Ok(kept)
    }

    /// A part of a file as a stream of its bytes. Returns when the first can be read.
    pub(super) async fn send(
        &self,
        who: &Principal,
        path: &str,
        file: &FileInfo,
        range: ByteRange,
    ) -> S3Result<StreamingBlob> {
        if range.is_empty() {
            let nothing = futures::stream::empty::<Result<Bytes, std::io::Error>>();
            return Ok(StreamingBlob::wrap(nothing));
        }
        let mut port = self.transfers.port(port(None)).await.map_err(of_failure)?;
        let whole = range.offset() == 0 && range.length() == file.size_bytes;
        let what = Retrieve {
            file: Readable { path: path.to_owned(), file: file.clone() },
            principal: who.clone(),
            part: if whole { Part::Whole } else { Part::Relative(range) },
        };
        let mut running = self.transfers.retrieve(&mut port, what);
        let mut pipe = self.connected(&mut running).await?;
        let (pieces, received) = mpsc::channel::<Result<Bytes, std::io::Error>>(PIECES);
        let (limit, length) = (self.config.stall_limit.duration(), range.length());
        self.shutdown.spawn_until_cut(async move {
            let _port = port;
            let mut left = length;
            while left > 0 {
                let mut buffer = bytes::BytesMut::with_capacity(BUFFER_BYTES);
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_BYTES);
                let read = (&mut pipe).take(most as u64).read_buf(&mut buffer).await;
                let piece = match read {
                    Ok(0) => Err(ended_early(&mut running).await),
                    Ok(count) => {
                        left -= count as u64;
                        Ok(buffer.freeze())
                    }
                    Err(error) => Err(error),
                };
                let over = piece.is_err();
                // A client that is gone, or takes nothing for too long, gets no more.
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
        });
        Ok(StreamingBlob::wrap(pieces_of(received)))
    }
}

/// Why a body was not passed on whole.
enum Passing {
    /// It is the client's fault.
    Refused(S3Error),
    /// The mover took no more.
    Broken(std::io::Error),
}

fn pieces_of(
    received: mpsc::Receiver<Result<Bytes, std::io::Error>>,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + Sync + 'static {
    futures::stream::unfold(received, |mut received| async move {
        let piece = received.recv().await?;
        Some((piece, received))
    })
}

async fn ended_early(running: &mut Running) -> std::io::Error {
    while let Some(step) = running.next().await {
        if let Step::Done(Err(failure)) = step {
            let failure: Failure = failure;
            return std::io::Error::other(failure.to_string());
        }
    }
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the mover sent less than it has")
}

/// `s3s` checks the payload's SHA-256 and the signatures of chunks while the body is read.
fn of_body(error: &(dyn std::error::Error + Send + Sync + 'static)) -> S3Error {
    let kind = format!("{error:?}");
    if kind.contains("SignatureMismatch") {
        S3Error::with_message(S3ErrorCode::SignatureDoesNotMatch, "a chunk's signature is not right")
    } else if kind.contains("Sha256Mismatch") {
        let text = "the SHA-256 of the body is not x-amz-content-sha256";
        coded("XAmzContentSHA256Mismatch", StatusCode::BAD_REQUEST, text)
    } else {
        S3Error::with_message(S3ErrorCode::IncompleteBody, format!("the body broke off: {error}"))
    }
}
