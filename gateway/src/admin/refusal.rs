//! Every refusal of the admin door as JSON: code, sentence, next step.

use axum::{
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use catalog::CatalogError;
use wire::{
    admin::{Code, Problem},
    id::BadName,
};

use super::extract::Json;
use crate::failure::{Failure, FailureKind};

/// A refusal.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Problem);

/// What a handler comes to.
pub(super) type Answer<T> = Result<Json<T>, Refusal>;

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self(Problem {
            code,
            message: message.into(),
            next_step: Some(next_step.into()),
            retryable: matches!(code, Code::Busy | Code::Unavailable),
            retry_after_s: None,
        })
    }
}

/// A failure as the admin door says it.
pub(super) fn problem(failure: &Failure) -> Problem {
    let code = match failure.kind() {
        FailureKind::NotFound => Code::NotFound,
        FailureKind::PermissionDenied | FailureKind::NotLoggedIn => Code::Forbidden,
        FailureKind::Exists
        | FailureKind::NotEmpty
        | FailureKind::Changed
        | FailureKind::Cancelled
        | FailureKind::NotADirectory
        | FailureKind::IsADirectory => Code::Conflict,
        FailureKind::BadName | FailureKind::BadArgument => Code::BadRequest,
        FailureKind::Unsupported => Code::Unsupported,
        FailureKind::QuotaExceeded | FailureKind::NoSpace => Code::NoSpace,
        FailureKind::Busy | FailureKind::NotStaged => Code::Busy,
        FailureKind::Damaged | FailureKind::Mismatch => Code::Corrupt,
        FailureKind::Unavailable
        | FailureKind::ShuttingDown
        | FailureKind::NoDataConnection
        | FailureKind::DataConnectionLost => Code::Unavailable,
        _ => Code::Internal,
    };
    // Our sentences end with the next step, behind a colon or semicolon, where there is one.
    let (message, next_step) = match failure.message().rsplit_once([':', ';']) {
        Some((message, step)) if step.starts_with(' ') && step.split_whitespace().count() > 2 => {
            (message.to_owned(), Some(step.trim().to_owned()))
        }
        _ => (failure.message().to_owned(), None),
    };
    let retry_after_s = failure.retry_hint().map(|hint| hint.as_secs().max(1));
    Problem { code, message, next_step, retryable: failure.is_retryable(), retry_after_s }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(problem(&failure))
    }
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Self {
        Failure::from(error).into()
    }
}

impl From<BadName> for Refusal {
    fn from(bad: BadName) -> Self {
        Self::new(Code::BadRequest, bad.to_string(), "use a name of that form")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry = self.0.retry_after_s;
        let mut response = (status, Json(self.0)).into_response();
        if let Some(seconds) = retry {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// There is no such path.
pub(super) async fn no_route() -> Refusal {
    Refusal::new(Code::NotFound, "there is nothing at this path of the admin door", "docs/protocol/admin.md lists them")
}

/// The path is there, and cannot be asked in this way.
pub(super) async fn no_method(method: Method, uri: Uri) -> Response {
    let text = format!("{} cannot be asked with {method}", uri.path());
    let problem = Refusal::new(Code::BadRequest, text, "docs/protocol/admin.md says which methods each path has").0;
    (StatusCode::METHOD_NOT_ALLOWED, Json(problem)).into_response()
}
