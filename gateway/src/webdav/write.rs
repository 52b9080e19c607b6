//! PUT.
//!
//! Everything that can be refused is refused before the body is asked for (`Expect: 100-continue` is answered when the
//! first byte of it is wanted).

use std::time::Duration;

use catalog::{Entry, Expected, TreePath};
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::{Body as _, Incoming},
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, EXPECT, HeaderName, IF_MATCH, IF_NONE_MATCH},
    http::request::Parts,
};

use tokio::time::timeout;
use wire::{checksum::Algorithm, mover::BodySpec};

use super::{
    Door,
    answer::{Answer, Refusal, empty, set},
    bytes::Upload,
    conditions, digest,
};
use crate::{
    failure::{Failure, FailureKind},
    files::Target,
    identity::Principal,
    redirect::{self, Exit, Reason},
    relay::Away,
};

/// How much is read of a body that is refused, and for how long.
const PASSED_OVER: usize = 8 << 20;
const PASSING_OVER: Duration = Duration::from_secs(5);

impl Door {
    pub(super) async fn write(
        &self,
        who: &Principal,
        path: &TreePath,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let (parts, body) = request.into_parts();
        let (headers, length) = (&parts.headers, body.size_hint().exact());
        let Wanted { target, expected, size_bytes, sums } = match self.wanted(who, path, headers, length).await {
            Ok(wanted) => wanted,
            Err(refusal) => {
                if !headers.contains_key(EXPECT) {
                    pass_over(body).await;
                }
                return Err(refusal);
            }
        };
        let existing = target.existing.is_some();
        let way = self.way(&parts, &target).await;
        let upload = Upload { target, expected, size_bytes, sums, body, way };
        let stored = match self.receive(who, upload).await {
            Ok(stored) => stored,
            Err(failure) if failure.kind() == FailureKind::Changed && expected != Expected::Any => {
                return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, failure.message()));
            }
            Err(failure) => return Err(of_upload(failure)),
        };
        self.hsm.published();
        if existing {
            self.hsm.deleted();
        }
        let mut answer = empty(if existing { StatusCode::NO_CONTENT } else { StatusCode::CREATED });
        set(&mut answer, ETAG, format!("\"{:x}\"", stored.bitfile.0));
        match digest::answer(headers, &stored.sums) {
            Some((name, value)) => drop(answer.headers_mut().insert(name, value)),
            None => set(&mut answer, HeaderName::from_static("digest"), digest::all(&stored.sums)),
        }
        Ok(answer)
    }

    /// How the body goes straight to a mover, or why it does not.
    async fn way(&self, request: &Parts, target: &Target) -> Result<Away, Reason> {
        redirect::put_wish(&request.headers, None)?;
        let exit = request.extensions.get::<Exit>().cloned().ok_or(Reason::Client)?;
        let cos = target.existing.as_ref().and_then(Entry::file).map(|file| &file.cos);
        if !self.relay.has_door(cos, true).await {
            return Err(Reason::NoDoor);
        }
        Ok(Away { exit, secure: true, path: request.uri.path().to_owned(), body: BodySpec::default() })
    }

    /// Everything that is known before the body is asked for. `length` is what HTTP knows of it.
    async fn wanted(
        &self,
        who: &Principal,
        path: &TreePath,
        headers: &HeaderMap,
        length: Option<u64>,
    ) -> Result<Wanted, Refusal> {
        if headers.contains_key(CONTENT_RANGE) {
            let text = "Content-Range: a part of a file cannot be written (RFC 9110 section 14.5): send the whole";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
        }
        let encoding = headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default());
        if encoding.is_some_and(|encoding| !encoding.trim().eq_ignore_ascii_case("identity")) {
            let text = "Content-Encoding: files are kept as they are sent: send it without";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let sums = digest::announced(headers).map_err(|bad| Refusal::new(StatusCode::BAD_REQUEST, bad))?;
        let target = self.files.target(who, path).await.map_err(Refusal::changing)?;
        let existing = target.existing.as_ref();
        let there = existing.and_then(|entry| Some((entry, entry.file()?)));
        conditions::check(&Method::PUT, headers, there)
            .map_err(|status| Refusal::new(status, format!("{path} is not as you wish it to be")))?;
        // What was just found to hold must hold still when the file is published.
        let expected = match existing.and_then(Entry::file) {
            Some(file) if headers.contains_key(IF_MATCH) => Expected::Exactly(file.bitfile),
            None if headers.contains_key(IF_NONE_MATCH) => Expected::Nothing,
            _ => Expected::Any,
        };
        let announced = headers.get(CONTENT_LENGTH).map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
        let size_bytes = match announced {
            Some(Some(length)) => Some(length),
            Some(None) => return Err(Refusal::new(StatusCode::BAD_REQUEST, "Content-Length is no number")),
            None => length,
        };
        Ok(Wanted { target, expected, size_bytes, sums })
    }
}

/// What a PUT is, without its body.
struct Wanted {
    target: Target,
    expected: Expected,
    size_bytes: Option<u64>,
    sums: Vec<(Algorithm, Vec<u8>)>,
}

/// Reads on for a moment when a body is refused that is coming already: who is cut off in the middle of sending may not
/// hear why.
async fn pass_over(mut body: Incoming) {
    let reading = async {
        let mut left = PASSED_OVER;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |piece| piece.len()));
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(PASSING_OVER, reading).await;
}

/// A directory or a file that is in the way is a conflict; the rest is what it is.
fn of_upload(failure: Failure) -> Refusal {
    match failure.kind() {
        FailureKind::NotFound | FailureKind::NotADirectory => Refusal::changing(failure),
        _ => failure.into(),
    }
}
