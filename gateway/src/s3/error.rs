//! What went wrong, in S3's own words. Pure.
//!
//! # Source
//!
//! Amazon S3 API Reference, "Error responses": codes and their statuses.

use catalog::CatalogError;
use hyper::{HeaderMap, StatusCode, header::RETRY_AFTER};
use s3s::{S3Error, S3ErrorCode};

use crate::failure::{Failure, FailureKind};

/// Of what somebody asked, to tell what it is that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// A bucket.
    Bucket,
    /// An object.
    Object,
    /// An upload in parts.
    Upload,
}

/// An error by a code that `s3s` has no constant for.
pub(super) fn coded(code: &'static str, status: StatusCode, message: impl Into<String>) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message.into());
    error.set_status_code(status);
    error
}

/// What the catalogue says.
pub(super) fn of_catalog(error: CatalogError, asked: Asked) -> S3Error {
    let text = error.to_string();
    let code = match (&error, asked) {
        (CatalogError::NotFound { what: "bucket", .. }, _) | (CatalogError::NotFound { .. }, Asked::Bucket) => {
            S3ErrorCode::NoSuchBucket
        }
        (CatalogError::NotFound { what: "upload", .. }, _) | (CatalogError::NotFound { .. }, Asked::Upload) => {
            S3ErrorCode::NoSuchUpload
        }
        (CatalogError::NotFound { .. }, Asked::Object) => S3ErrorCode::NoSuchKey,
        (CatalogError::Exists { .. }, _) => S3ErrorCode::BucketAlreadyExists,
        (CatalogError::NotEmpty { .. }, _) => S3ErrorCode::BucketNotEmpty,
        (CatalogError::Changed { .. }, _) => S3ErrorCode::PreconditionFailed,
        (CatalogError::InUse { .. } | CatalogError::Locked { .. }, _) => S3ErrorCode::AccessDenied,
        (CatalogError::NameTooLong { .. }, _) => S3ErrorCode::KeyTooLongError,
        (CatalogError::InvalidName { .. }, _) => S3ErrorCode::InvalidArgument,
        _ => return of_failure(error.into()),
    };
    S3Error::with_message(code, text)
}

impl From<Failure> for S3Error {
    fn from(failure: Failure) -> Self {
        of_failure(failure)
    }
}

/// What went wrong elsewhere.
pub(super) fn of_failure(failure: Failure) -> S3Error {
    let message = failure.message().to_owned();
    let mut error = match failure.kind() {
        FailureKind::NotFound => S3Error::with_message(S3ErrorCode::NoSuchKey, message),
        FailureKind::PermissionDenied | FailureKind::NotLoggedIn => {
            S3Error::with_message(S3ErrorCode::AccessDenied, message)
        }
        FailureKind::NotStaged => S3Error::with_message(S3ErrorCode::InvalidObjectState, message),
        FailureKind::BadName | FailureKind::BadArgument => S3Error::with_message(S3ErrorCode::InvalidArgument, message),
        FailureKind::Unsupported => S3Error::with_message(S3ErrorCode::NotImplemented, message),
        FailureKind::QuotaExceeded => coded("QuotaExceeded", StatusCode::FORBIDDEN, message),
        FailureKind::Changed => coded("ConditionalRequestConflict", StatusCode::CONFLICT, message),
        FailureKind::Mismatch | FailureKind::DataConnectionLost | FailureKind::Cancelled => {
            S3Error::with_message(S3ErrorCode::IncompleteBody, message)
        }
        FailureKind::NoSpace
        | FailureKind::Busy
        | FailureKind::Unavailable
        | FailureKind::ShuttingDown
        | FailureKind::NoDataConnection => S3Error::with_message(S3ErrorCode::SlowDown, message),
        _ => {
            tracing::error!(kind = ?failure.kind(), reason = %failure, "S3 request failed");
            S3Error::with_message(S3ErrorCode::InternalError, message)
        }
    };
    if matches!(error.code(), S3ErrorCode::SlowDown) {
        let seconds = failure.retry_hint().map_or(5, |after| after.as_secs().max(1));
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, seconds.into());
        headers.insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/xml"));
        error.set_headers(headers);
    }
    error
}
