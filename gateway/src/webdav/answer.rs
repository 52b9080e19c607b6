//! Answers: bodies, and refusals as RFC 7807 has them.
//!
//! Pure.

use std::{convert::Infallible, io, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::Frame,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};

use crate::failure::{Failure, FailureKind};

/// What an answer carries.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;
/// An answer.
pub(super) type Answer = Response<Body>;

fn never(error: Infallible) -> io::Error {
    match error {}
}

pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Empty::new().map_err(never).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

pub(super) fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()).map_err(never).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub(super) fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => text(status, "application/json", body),
        Err(error) => {
            tracing::error!(%error, "an answer has no JSON form");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer has no JSON form").into()
        }
    }
}

pub(super) fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    use futures::StreamExt as _;
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

/// Sets a header that was made here; a value that cannot stand in a header is left out.
pub(super) fn set(answer: &mut Answer, name: HeaderName, value: impl AsRef<str>) {
    if let Ok(value) = HeaderValue::try_from(value.as_ref()) {
        answer.headers_mut().insert(name, value);
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    title: String,
    detail: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

impl Refusal {
    /// `detail` names the thing and the next step.
    pub(super) fn new(status: StatusCode, detail: impl std::fmt::Display) -> Self {
        let title = status.canonical_reason().unwrap_or("refused").to_owned();
        Self { status, title, detail: detail.to_string(), retry_after: None, allow: None }
    }

    /// What the kind of trouble is called, where that is not the status's own name.
    pub(super) fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    pub(super) const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The method is not for this; `allow` lists those that are.
    pub(super) fn method(allow: &'static str) -> Self {
        let text = format!("this resource takes {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, text) }
    }

    /// The failure of something that makes or changes names: what is missing on the way is a conflict there.
    pub(super) fn changing(failure: Failure) -> Self {
        let conflict = matches!(failure.kind(), FailureKind::NotFound | FailureKind::NotADirectory);
        let refusal = Self::from(failure);
        if conflict { Self { status: StatusCode::CONFLICT, title: "Conflict".to_owned(), ..refusal } } else { refusal }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = status(failure.kind());
        let mut refusal = Self::new(status, failure.message());
        refusal.retry_after = failure.retry_hint();
        if refusal.retry_after.is_none() && status == StatusCode::SERVICE_UNAVAILABLE {
            refusal.retry_after = Some(Duration::from_secs(5));
        }
        refusal
    }
}

/// # Source
///
/// RFC 9110 section 15; RFC 4918 section 11 (424, 507); RFC 4331 section 6 (507 for a quota).
const fn status(kind: FailureKind) -> StatusCode {
    match kind {
        FailureKind::NotFound | FailureKind::NotADirectory => StatusCode::NOT_FOUND,
        FailureKind::PermissionDenied | FailureKind::NotLoggedIn => StatusCode::FORBIDDEN,
        FailureKind::Exists | FailureKind::IsADirectory | FailureKind::NotEmpty | FailureKind::Changed => {
            StatusCode::CONFLICT
        }
        FailureKind::BadName | FailureKind::BadArgument | FailureKind::Mismatch => StatusCode::BAD_REQUEST,
        FailureKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        FailureKind::QuotaExceeded | FailureKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        FailureKind::NotStaged => StatusCode::FAILED_DEPENDENCY,
        FailureKind::Busy
        | FailureKind::Unavailable
        | FailureKind::ShuttingDown
        | FailureKind::Cancelled
        | FailureKind::NoDataConnection
        | FailureKind::DataConnectionLost => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::Damaged | FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Refusal> for Answer {
    /// # Source
    ///
    /// RFC 7807: problem details.
    fn from(refusal: Refusal) -> Self {
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": refusal.title,
            "status": refusal.status.as_u16(),
            "detail": refusal.detail,
        });
        let mut answer = text(refusal.status, "application/problem+json", problem.to_string());
        if let Some(after) = refusal.retry_after {
            set(&mut answer, RETRY_AFTER, after.as_secs().max(1).to_string());
        }
        if let Some(allow) = refusal.allow {
            set(&mut answer, ALLOW, allow);
        }
        answer
    }
}
