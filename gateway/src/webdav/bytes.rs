//! What a client sends, and when it may be published.
//!
//! Owns nothing. Talks to [`crate::relay`], through which the bytes go, or which sends the client to a mover with them.
//!
//! Invariant: a file is published only after its last byte has come and every sum that its writer announced is right.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use catalog::{Catalog, CatalogError, Expected, NewFile, Published};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use wire::checksum::{Algorithm, ExtraSums};

use super::{Door, digest};
use crate::{
    failure::{Failure, FailureKind},
    files::Target,
    identity::Principal,
    redirect::Reason,
    relay::{Away, Body},
    transfer::{Publisher, Store, StoreMode, Stored},
};

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
    /// How it can go straight to a mover, or why it comes through the door.
    pub(super) way: Result<Away, Reason>,
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

/// A body, and how long it was said to be.
struct Announced {
    body: Incoming,
    size_bytes: Option<u64>,
}

impl Body for Announced {
    type Refusal = Failure;
    type Verdict = ();

    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            let broken = |error| Failure::new(FailureKind::Mismatch, format!("the body broke off: {error}"));
            match self.body.frame().await?.map_err(broken) {
                Err(failure) => return Some(Err(failure)),
                // Trailers say nothing that is asked for here.
                Ok(frame) => {
                    if let Ok(piece) = frame.into_data() {
                        return Some(Ok(piece));
                    }
                }
            }
        }
    }

    fn end(self, bytes: u64) -> Result<(), Failure> {
        match self.size_bytes {
            Some(announced) if announced != bytes => {
                let text = format!("{bytes} bytes came, {announced} were announced: send it again");
                Err(Failure::new(FailureKind::Mismatch, text))
            }
            _ => Ok(()),
        }
    }
}

impl Door {
    /// Writes a body to a mover and has it published; returns when it is on stable storage.
    pub(super) async fn receive(&self, who: &Principal, upload: Upload) -> Result<Stored, Failure> {
        let (said, whole) = oneshot::channel();
        let judged = Arc::new(Judged {
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
        let publisher: Arc<dyn Publisher> = judged.clone();
        let done = match upload.way {
            Ok(way) => {
                // Its client is asked for it by the mover, which has it whole or not at all.
                drop(upload.body);
                let _ = said.send(());
                self.relay.store_away(what, publisher, way).await?
            }
            Err(reason) => {
                let body = Announced { body: upload.body, size_bytes: upload.size_bytes };
                self.relay.store(what, publisher, body, said, reason).await?
            }
        };
        let refused = judged.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (refused, done) {
            (Some(failure), _) | (None, Err(failure)) => Err(failure),
            (None, Ok(summary)) => {
                summary.stored.ok_or_else(|| Failure::new(FailureKind::Internal, "nothing was published"))
            }
        }
    }
}
