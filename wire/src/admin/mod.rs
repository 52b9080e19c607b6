//! What the admin door and `penstock admin` say to each other: JSON over HTTP with mutual TLS.
//!
//! Every type here is one body. Times are microseconds since the epoch and end in `_us`; a time that is not known is
//! absent, never 0. Sizes are bytes. Fields are only ever added: a reader ignores what it does not know, and every
//! enum that may grow has a variant for the unknown.
//!
//! - [`site`]: status, movers, drives, volumes, classes of service, live transfers.
//! - [`queue`]: the work queue and what adds to it: stage, release, pin, migrate, purge, replicate, cancel, scrub.
//! - [`people`]: accounts, groups, quotas, certificate subjects.
//! - [`files`]: where a file is, what was deleted and can come back.
//! - [`buckets`]: buckets, and what lies in them.
//! - [`events`]: the live stream, one JSON value a line.
//!
//! # Routes
//!
//! | method and path | body | answer |
//! | --- | --- | --- |
//! | `GET /v1/status` | – | [`site::Status`] |
//! | `GET /v1/movers` | – | [`site::Mover`] list |
//! | `POST /v1/movers/{mover}/drain`, `/undrain` | [`site::Reason`] | [`Done`] |
//! | `GET /v1/drives` | – | [`site::Drive`] list |
//! | `POST /v1/drives/{drive}/up`, `/down` | [`site::Reason`] | [`Done`] |
//! | `GET /v1/volumes` | – | [`site::Volume`] list |
//! | `POST /v1/volumes/{volume}/enable`, `/disable`, `/drain`, `/undrain` | [`site::Reason`] | [`Done`] |
//! | `GET /v1/volumes/{volume}/drain` | – | [`site::Drain`] |
//! | `GET /v1/cos` | – | [`site::ClassOfService`] list |
//! | `GET /v1/transfers` | – | [`site::Transfer`] list |
//! | `GET /v1/queue?kind=&account=&after=&limit=` | – | [`queue::Page`] |
//! | `GET /v1/requests/{request}` | – | [`queue::Entry`] |
//! | `POST /v1/stage` | [`queue::Stage`] | [`queue::Answer`] list |
//! | `POST /v1/release`, `/v1/unpin`, `/v1/migrate`, `/v1/purge` | [`queue::Paths`] | [`queue::Answer`] list |
//! | `POST /v1/pin` | [`queue::Pin`] | [`queue::Answer`] list |
//! | `POST /v1/replicate` | [`queue::Replicate`] | [`queue::Answer`] list, when it is done |
//! | `POST /v1/cancel` | [`queue::Cancel`] | [`queue::Cancelled`] list |
//! | `GET /v1/scrubs`, `GET /v1/scrubs/{scrub}` | – | [`queue::Scrub`] (list) |
//! | `POST /v1/scrubs` | [`queue::StartScrub`] | [`queue::Scrub`] |
//! | `GET /v1/scrubs/{scrub}/results?after=&limit=` | – | [`queue::ScrubResult`] list |
//! | `GET /v1/users`; `PUT`, `DELETE /v1/users/{account}` | [`people::NewUser`] | [`people::User`] list; [`Done`] |
//! | `GET /v1/groups`; `PUT`, `DELETE /v1/groups/{group}` | [`people::NewGroup`] | [`people::Group`] list; [`Done`] |
//! | `GET /v1/quotas`; `PUT`, `DELETE /v1/quotas/{account}` | [`people::Limits`] | [`people::Quota`] list; [`Done`] |
//! | `GET /v1/maps`; `POST /v1/maps`; `DELETE /v1/maps` | [`people::Map`]; [`people::Subject`] | [`people::Map`] list; [`Done`] |
//! | `GET /v1/keys?account=`; `POST /v1/keys` | [`people::NewKey`] | [`people::Key`] list; [`people::SecretKey`] |
//! | `POST /v1/keys/{key}/disable`, `/enable`; `/rotate`; `DELETE /v1/keys/{key}` | – | [`Done`]; [`people::SecretKey`] |
//! | `PUT /v1/keys/{key}` | [`people::SetKey`] | [`Done`] |
//! | `GET /v1/buckets?after=&limit=`, `GET /v1/buckets/{bucket}` | – | [`buckets::Bucket`] (list) |
//! | `GET /v1/files?path=` | – | [`files::Info`] |
//! | `GET /v1/deleted?path=&after=&limit=` | – | [`files::Deleted`] list |
//! | `POST /v1/deleted/{bitfile}/restore` | [`files::Restore`] | [`files::Restored`] |
//! | `GET /v1/events` | – | [`events::Event`], one a line, until the reader goes |
//!
//! Every refusal is a [`Problem`].

pub mod buckets;
pub mod events;
pub mod files;
pub mod people;
pub mod queue;
pub mod site;

use serde::{Deserialize, Serialize};

/// It is done; what that means, in a sentence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// What was done, for a person.
    pub message: String,
}

impl Done {
    /// A sentence that says what was done.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// What kind: what a program decides by.
    pub code: Code,
    /// What happened; names the thing.
    pub message: String,
    /// What to do next, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// Whether the same request may work later.
    #[serde(default)]
    pub retryable: bool,
    /// When it is worth trying again, in seconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
}

/// Kinds of [`Problem`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request makes no sense: 400.
    BadRequest,
    /// Nobody is logged in, or not with a certificate of an administrator: 403.
    Forbidden,
    /// There is no such thing: 404.
    NotFound,
    /// It is there already, or in another state: 409.
    Conflict,
    /// A limit or quota is reached: 507.
    NoSpace,
    /// A limit of this site is reached for now: 429.
    Busy,
    /// A part that is needed is away: 503.
    Unavailable,
    /// The data is damaged: 500.
    Corrupt,
    /// This site cannot do that: 501.
    Unsupported,
    /// A fault of ours: 500.
    Internal,
    /// A code of a newer version.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// The HTTP status it is sent with (RFC 9110 section 15; 507 is RFC 4918 section 11.5, 429 RFC 6585 section 4).
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::NoSpace => 507,
            Self::Busy => 429,
            Self::Unavailable => 503,
            Self::Unsupported => 501,
            Self::Corrupt | Self::Internal | Self::Unknown => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_a_newer_version_is_still_read() {
        let text = r#"{"code":"on_fire","message":"the room is on fire","siren":true}"#;
        let problem: Problem = serde_json::from_str(text).expect("read");
        assert_eq!(problem.code, Code::Unknown);
        assert_eq!(problem.to_string(), "the room is on fire");
        assert!(!problem.retryable);
    }

    #[test]
    fn a_code_is_one_word_for_programs() {
        assert_eq!(serde_json::to_string(&Code::BadRequest).expect("written"), "\"bad_request\"");
    }
}
