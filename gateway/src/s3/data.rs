//! What a client sends, and what becomes of it; what a client reads.
//!
//! Owns nothing. Talks to [`crate::relay`], through which the bytes go, or which sends the client to a mover with them.
//!
//! Invariant: an object is published only after the last byte was compared with every sum that its writer announced.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use catalog::{CatalogError, FileInfo, NewFile, NewObject, NewPart, Object, Published, UploadPart};
use futures::StreamExt as _;
use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders, dto::StreamingBlob};
use tokio::sync::oneshot;
use wire::{
    checksum::ExtraSums,
    extent::ByteRange,
    id::{CosName, EntryId, GroupName},
    mover::BodyReport,
};

use super::{
    Door,
    away::{Bypass, Wanted},
    checksum::{Algorithm, Hasher, Kept},
    error::{coded, of_failure},
};
use crate::{
    files::{Readable, Target},
    identity::Principal,
    redirect::Reason,
    relay::Body,
    transfer::{Publisher, Store, StoreMode},
};

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
    /// How it can go straight to a mover, or why it comes through the door.
    pub(super) way: Result<Bypass, Reason>,
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
pub(super) type Verdict = (Becomes, Kept, Option<[u8; 16]>);

/// Who judges the bytes.
enum Judge {
    /// The door, which sees them pass.
    Door(oneshot::Receiver<Verdict>),
    /// Whoever compares what the mover found.
    Mover(Box<Wanted>),
}

/// Publishes when the last byte has come and was found good.
struct Judged {
    door: Door,
    /// The hash of the payload is compared.
    sha256: bool,
    judge: Mutex<Option<Judge>>,
    report: Mutex<BodyReport>,
    outcome: Mutex<Option<S3Result<Became>>>,
}

#[async_trait]
impl Publisher for Judged {
    fn extra_sums(&self) -> ExtraSums {
        ExtraSums { md5: true, sha256: self.sha256 }
    }

    fn heard(&self, report: BodyReport) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    async fn publish(&self, file: NewFile) -> catalog::Result<Published> {
        let judge = self.judge.lock().unwrap_or_else(PoisonError::into_inner).take();
        let refused = || CatalogError::Stale { what: "an upload that its door gave up".to_owned() };
        let (becomes, kept, md5) = match judge {
            Some(Judge::Door(waiting)) => waiting.await.map_err(|_| refused())?,
            Some(Judge::Mover(wanted)) => {
                let report = std::mem::take(&mut *self.report.lock().unwrap_or_else(PoisonError::into_inner));
                match wanted.judge(&report, &file.sums) {
                    Ok(verdict) => verdict,
                    Err(error) => {
                        self.settle(Err(error));
                        return Err(refused());
                    }
                }
            }
            None => return Err(refused()),
        };
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
    fn by(&self, judge: Judge) {
        *self.judge.lock().unwrap_or_else(PoisonError::into_inner) = Some(judge);
    }

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

/// A body, with the sum that is made of it.
struct Summed {
    incoming: Incoming,
    hasher: Hasher,
    seen: u64,
    becomes: Becomes,
}

impl Body for Summed {
    type Refusal = S3Error;
    type Verdict = Verdict;

    fn late() -> S3Error {
        S3Error::with_message(S3ErrorCode::RequestTimeout, "nothing came for too long")
    }

    async fn next(&mut self) -> Option<S3Result<Bytes>> {
        let piece = match self.incoming.body.as_mut()?.next().await? {
            Ok(piece) => piece,
            Err(error) => return Some(Err(of_body(&*error))),
        };
        self.seen += piece.len() as u64;
        if self.seen > self.incoming.size_bytes {
            let text = "more came than was announced";
            return Some(Err(S3Error::with_message(S3ErrorCode::IncompleteBody, text)));
        }
        self.hasher.update(&piece);
        Some(Ok(piece))
    }

    fn end(self, bytes: u64) -> S3Result<Verdict> {
        let incoming = self.incoming;
        if bytes != incoming.size_bytes {
            let text = format!("{bytes} bytes came, {} were announced", incoming.size_bytes);
            return Err(S3Error::with_message(S3ErrorCode::IncompleteBody, text));
        }
        let kept = self.hasher.finish();
        let trailer = incoming.trailers.as_ref().filter(|_| incoming.trailer).and_then(|trailers| {
            trailers.read(|headers| headers.get(incoming.sum.header())?.to_str().ok().map(str::to_owned)).flatten()
        });
        compared(&kept, incoming.announced.as_deref(), incoming.trailer.then_some(trailer.as_deref()))?;
        Ok((self.becomes, kept, incoming.md5))
    }
}

/// Compares a sum with what was announced, and with the trailer, if one was to come.
pub(super) fn compared(kept: &Kept, announced: Option<&str>, trailer: Option<Option<&str>>) -> S3Result<()> {
    let sum = kept.algorithm;
    if trailer == Some(None) {
        let text = format!("trailer {} did not come", sum.header());
        return Err(coded("MalformedTrailerError", StatusCode::BAD_REQUEST, text));
    }
    for wanted in [announced, trailer.flatten()].into_iter().flatten() {
        if wanted.trim() != kept.value {
            let text = format!("{} of what came is {}, not {wanted}", sum.name(), kept.value);
            return Err(S3Error::with_message(S3ErrorCode::BadDigest, text));
        }
    }
    Ok(())
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
        let Incoming { body, trailers, size_bytes, md5, sum, announced, trailer, way } = incoming;
        let way = self.open_way(way, cos).await;
        let sha256 = way.as_ref().ok().and_then(Bypass::sha256);
        let judged = Arc::new(Judged {
            door: self.clone(),
            sha256: sha256.is_some(),
            judge: Mutex::new(None),
            report: Mutex::default(),
            outcome: Mutex::new(None),
        });
        let group: GroupName = who.primary_group().clone();
        let target =
            Target { path: key.to_owned(), parent: bucket, name: key.to_owned(), existing: None, mode: 0o600, group };
        let what = Store {
            target,
            principal: who.clone(),
            mode: StoreMode::Whole,
            cos: Some(cos.clone()),
            size_bytes: Some(size_bytes),
            sum: None,
            modified_us: None,
            client: None,
        };
        let publisher = Arc::<Judged>::clone(&judged) as Arc<dyn Publisher>;
        let done = match way {
            Ok(way) => {
                // Its client is asked for it by the mover.
                drop(body);
                judged.by(Judge::Mover(Box::new(Wanted { becomes, sum, announced, trailer, md5, sha256 })));
                self.relay.store_away(what, publisher, way.go(sum, trailer)).await?
            }
            Err(reason) => {
                let (decide, verdict) = oneshot::channel();
                judged.by(Judge::Door(verdict));
                let way = Err(reason);
                let incoming = Incoming { body, trailers, size_bytes, md5, sum, announced, trailer, way };
                let body = Summed { hasher: Hasher::new(sum), incoming, seen: 0, becomes };
                self.relay.store(what, publisher, body, decide, reason).await?
            }
        };
        let outcome = judged.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (outcome, done) {
            (Some(Ok(became)), Ok(_)) => Ok(became),
            (Some(Err(error)), _) => Err(error),
            (_, Err(failure)) => Err(of_failure(failure)),
            (None, Ok(_)) => Err(S3Error::with_message(S3ErrorCode::InternalError, "nothing was published")),
        }
    }

    /// A part of a file as a stream of its bytes. Returns when the first can be read.
    pub(super) async fn send(
        &self,
        who: &Principal,
        path: &str,
        file: &FileInfo,
        range: ByteRange,
        reason: Reason,
    ) -> S3Result<StreamingBlob> {
        let file = Readable { path: path.to_owned(), file: file.clone() };
        let bytes = self.relay.send(who, file, range, reason).await.map_err(of_failure)?;
        Ok(StreamingBlob::wrap(bytes))
    }
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
