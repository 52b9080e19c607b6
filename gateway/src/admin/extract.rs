//! What a request brings, taken apart: body, path, query. A wrong one is refused as everything else is.
//!
//! axum's own extractors answer in plain text. These are the same ones, and answer with a [`Problem`]: a program that
//! talks to the door reads one kind of refusal only.
//!
//! [`Problem`]: wire::admin::Problem

use axum::{
    extract::{
        FromRequest, FromRequestParts, OptionalFromRequest, Request,
        rejection::{JsonRejection, PathRejection, QueryRejection},
    },
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use wire::admin::Code;

use super::refusal::Refusal;

/// A JSON body, as it comes and as it goes.
pub(super) struct Json<T>(pub(super) T);

/// The parts of a path.
pub(super) struct Path<T>(pub(super) T);

/// The parameters behind a path's `?`.
pub(super) struct Query<T>(pub(super) T);

fn bad(what: &str, text: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("{what}: {text}"), "docs/protocol/admin.md says what this path takes")
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::new(
                Code::BadRequest,
                format!("the body is larger than {} MiB", super::MAX_BODY_BYTES >> 20),
                "ask in several requests, or name a directory and say that everything below it is meant",
            ),
            _ => bad("the body", &rejection.body_text()),
        }
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        bad("the path", &rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        bad("the parameters", &rejection.body_text())
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let axum::Json(body) = <axum::Json<T> as FromRequest<S>>::from_request(request, state).await?;
        Ok(Self(body))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Refusal> {
        let body = <axum::Json<T> as OptionalFromRequest<S>>::from_request(request, state).await?;
        Ok(body.map(|axum::Json(body)| Self(body)))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let axum::extract::Path(path) = axum::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(path))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let axum::extract::Query(query) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}
