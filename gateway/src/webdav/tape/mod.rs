//! WLCG Tape REST v1: bringing files online, giving them back, and asking where they are.
//!
//! - `messages`, `duration`: what is said, pure.
//! - here: which call is which, whose request it is, and limits; `stage` and `paths` do what is asked.
//!
//! Talks to the one recall queue, in which these requests join with those of every other door. Everything that a client
//! was told is in the catalogue.
//!
//! # Source
//!
//! WLCG Tape REST API v1 (<https://zenodo.org/record/8275106>); what clients and other servers make of it is named where
//! it matters.

mod duration;
mod messages;
mod paths;
mod stage;

use std::time::Duration;

use bytes::Bytes;
use catalog::{Bulk, TreePath};
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Request, StatusCode, body::Incoming};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Door,
    answer::{self, Answer, Refusal},
    read::may_read,
};
use crate::{
    failure::{Failure, FailureKind},
    files::{Files, Item},
    identity::Principal,
};

/// Where clients ask for the endpoint.
pub(super) const WELL_KNOWN: &str = "/.well-known/wlcg-tape-rest-api";
/// Below this lie the calls; no file can be reached there by this door.
pub(super) const PREFIX: &str = "/api/v1/";

/// The longest path, as everywhere ([`catalog::path::MAX_PATH_BYTES`]).
const MAX_PATH: usize = catalog::path::MAX_PATH_BYTES;
/// How long a body may take.
const BODY_LIMIT: Duration = Duration::from_secs(60);
/// How many paths are looked up at a time.
const AT_ONCE: usize = 16;

impl Door {
    /// Says where the interface is, and within which limits.
    pub(super) fn discovery(&self, method: &Method, host: Option<&str>) -> Result<Answer, Refusal> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::method("GET, HEAD"));
        }
        let host = host.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "the request names no host"))?;
        let limits = &self.config.tape_rest;
        let metadata = json!({
            "maxFilesPerStage": limits.max_files.to_string(),
            "maxPathsPerArchiveInfo": limits.max_paths.to_string(),
            "maxBodyBytes": limits.max_body.bytes().to_string(),
            "maxPathBytes": MAX_PATH.to_string(),
            "maxOpenRequests": limits.max_requests.to_string(),
            "maxDiskLifetime": duration::write(limits.max_lifetime.duration()),
            "changesSince": stage::SINCE,
        });
        let endpoint = json!({ "uri": format!("https://{host}/api/v1"), "version": "v1", "metadata": metadata });
        let body = json!({
            "sitename": self.site,
            "description": "Penstock: files on disk and tape behind one name space",
            "endpoints": [endpoint],
        });
        Ok(answer::json(StatusCode::OK, &body))
    }

    /// `call` is what stands behind [`PREFIX`].
    pub(super) async fn tape_call(
        &self,
        who: &Principal,
        call: &str,
        host: Option<&str>,
        request: Request<Incoming>,
    ) -> Result<Answer, Refusal> {
        let parts: Vec<_> = call.trim_end_matches('/').split('/').filter(|part| !part.is_empty()).collect();
        let method = request.method().as_str().to_owned();
        match (parts.as_slice(), method.as_str()) {
            (["stage"], "POST") => self.stage(who, host, request).await,
            (["stage", id], "GET") => self.progress(who, id, request.uri().query()).await,
            (["stage", id], "DELETE") => self.drop_request(who, id).await,
            (["stage", id, "cancel"], "POST") => self.cancel(who, id, request).await,
            (["release", id], "POST") => self.release(who, id, request).await,
            (["archiveinfo"], "POST") => self.archive_info(who, request).await,
            (["stage"] | ["stage", _, "cancel"] | ["release", _] | ["archiveinfo"], _) => Err(Refusal::method("POST")),
            (["stage", _], _) => Err(Refusal::method("GET, DELETE")),
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, format!("Tape REST has no call {call:?}"))),
        }
    }

    /// A request of the caller's.
    async fn own(&self, who: &Principal, id: &str) -> Result<Bulk, Refusal> {
        let missing = || Refusal::new(StatusCode::NOT_FOUND, format!("there is no stage request {id:?} (any more)"));
        let found = self.hsm.bulk(id).await?.ok_or_else(missing)?;
        if found.account != who.account && !who.admin {
            let text = format!("stage request {id} is not {}'s", who.account);
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        Ok(found)
    }

    async fn body<T: DeserializeOwned>(&self, request: Request<Incoming>) -> Result<T, Refusal> {
        let limit = usize::try_from(self.config.tape_rest.max_body.bytes()).unwrap_or(usize::MAX);
        let body = tokio::time::timeout(BODY_LIMIT, Limited::new(request.into_body(), limit).collect()).await;
        let late = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
        let body: Bytes = match body.map_err(late)? {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                let text = format!("a body has at most {limit} bytes here: ask for fewer files at a time");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            Err(error) => return Err(invalid(format!("the body broke off: {error}"))),
        };
        serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))
    }

    /// Files that the caller may read, or why not, in the order of the paths.
    ///
    /// # Errors
    ///
    /// If the catalogue is away: that is no path's fault.
    async fn look(&self, who: &Principal, paths: Vec<String>) -> Result<Vec<(String, Result<Item, Failure>)>, Failure> {
        let look = |text: String| async move {
            let found = self.look_at(who, &text).await;
            match found {
                Err(failure) if failure.is_retryable() || failure.kind() == FailureKind::Internal => Err(failure),
                found => Ok((text, found)),
            }
        };
        let found: Vec<_> = stream::iter(paths).map(look).buffered(AT_ONCE).collect().await;
        found.into_iter().collect()
    }

    async fn look_at(&self, who: &Principal, text: &str) -> Result<Item, Failure> {
        let path = path(text)?;
        let item = self.files.stat(who, &path).await?;
        if item.entry.is_directory() {
            return Err(Failure::new(FailureKind::IsADirectory, format!("{path} is a directory: name its files")));
        }
        may_read(who, &item, &path)?;
        Ok(item)
    }
}

fn path(text: &str) -> Result<TreePath, Failure> {
    Files::path(&TreePath::root(), &format!("/{text}"))
}

/// As the same file is named by clients that write more slashes than others.
fn sameness(text: &str) -> String {
    path(text).map_or_else(|_| text.to_owned(), |path| path.to_string())
}

fn invalid(text: impl std::fmt::Display) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, text).titled("JSON Validation error")
}

/// Refuses paths that are too long to be any.
fn check_lengths<'a>(paths: impl IntoIterator<Item = &'a String>) -> Result<(), Refusal> {
    match paths.into_iter().any(|path| path.len() > MAX_PATH) {
        true => Err(invalid(format!("a path has at most {MAX_PATH} bytes"))),
        false => Ok(()),
    }
}
