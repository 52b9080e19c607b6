//! Answers of the token service, in its own XML. Pure.
//!
//! # Source
//!
//! AWS Security Token Service API Reference: `Credentials`, "Common errors"; the member that holds them is MinIO's.

use std::time::Duration;

use bytes::Bytes;
use catalog::Timestamp;
use hyper::{
    HeaderMap, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use quick_xml::escape::escape;
use s3s::Body;
use time::{OffsetDateTime, macros::format_description};

use super::asked::ACTION;
use crate::{
    failure::{Failure, FailureKind},
    s3::temporary::TemporaryKey,
};

const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// A key that is given.
pub(super) struct Given {
    pub(super) key: TemporaryKey,
    pub(super) expires: Timestamp,
}

/// Why none is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// STS's code.
    pub(super) code: &'static str,
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refusal {
    /// A mistake in the request.
    pub(super) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, status: StatusCode::BAD_REQUEST, message: message.into(), retry_after: None }
    }

    /// The caller is nobody here.
    pub(super) fn denied(message: impl Into<String>) -> Self {
        Self { status: StatusCode::FORBIDDEN, ..Self::bad("AccessDenied", message) }
    }

    /// Too many keys.
    pub(super) fn throttled(message: impl Into<String>, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::bad("Throttling", message) }
    }

    /// A fault of the site, told without its cause.
    pub(super) fn fault() -> Self {
        let text = "the gateway's log has the reason";
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, ..Self::bad("InternalFailure", text) }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure.kind() {
            FailureKind::NotLoggedIn | FailureKind::PermissionDenied => Self::denied(failure.message()),
            FailureKind::Busy | FailureKind::Unavailable | FailureKind::ShuttingDown => Self {
                status: StatusCode::SERVICE_UNAVAILABLE,
                retry_after: Some(failure.retry_hint().unwrap_or(Duration::from_secs(5))),
                ..Self::bad("ServiceUnavailable", failure.message())
            },
            _ => {
                tracing::error!(kind = ?failure.kind(), reason = %failure, "temporary key cannot be given");
                Self::fault()
            }
        }
    }
}

/// The answer to the request of this number.
pub(super) fn answer(outcome: Result<&Given, &Refusal>, request: &str) -> Response<Body> {
    let (status, text) = match outcome {
        Ok(given) => (StatusCode::OK, credentials(given, request)),
        Err(refusal) => (refusal.status, error(refusal, request)),
    };
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = status;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(wait) = outcome.err().and_then(|refusal| refusal.retry_after) {
        headers.insert(RETRY_AFTER, wait.as_secs().max(1).into());
    }
    response
}

fn credentials(given: &Given, request: &str) -> String {
    let Given { key, expires } = given;
    let expires = OffsetDateTime::from_unix_timestamp(expires.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    let expires = expires.format(&form).unwrap_or_default();
    // Letters of base 64 need no escape.
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <{ACTION}Response xmlns=\"{NAMESPACE}\"><{ACTION}Result><Credentials><AccessKeyId>{}</AccessKeyId>\
         <SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{expires}</Expiration>\
         </Credentials></{ACTION}Result><ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>\
         </{ACTION}Response>\n",
        key.id,
        key.secret.expose(),
        key.token.expose(),
    )
}

fn error(refusal: &Refusal, request: &str) -> String {
    let kind = if refusal.status.is_server_error() { "Receiver" } else { "Sender" };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{kind}</Type><Code>{}</Code><Message>{}</Message></Error>\
         <RequestId>{request}</RequestId></ErrorResponse>\n",
        refusal.code,
        escape(&refusal.message),
    )
}

#[cfg(test)]
mod tests {
    use daemon::Secret;

    use super::*;

    async fn text(response: Response<Body>) -> String {
        let (_, mut body) = response.into_parts();
        let whole = body.store_all_limited(10_000).await.expect("in memory");
        String::from_utf8(whole.to_vec()).expect("a text")
    }

    #[tokio::test]
    async fn a_key_comes_with_its_end_to_the_second() {
        let secret = |text: &str| Secret::new(text.to_owned());
        let key = TemporaryKey { id: "ASIAX".to_owned(), secret: secret("s+/"), token: secret("t-_") };
        let given = Given { key, expires: Timestamp::from_seconds(1_796_040_000) };
        let response = answer(Ok(&given), "R1");
        assert_eq!(
            (response.status(), response.headers()[CACHE_CONTROL].as_bytes()),
            (StatusCode::OK, &b"no-store"[..])
        );
        let text = text(response).await;
        for part in [
            "<AssumeRoleWithCertificateResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">",
            "<AccessKeyId>ASIAX</AccessKeyId><SecretAccessKey>s+/</SecretAccessKey><SessionToken>t-_</SessionToken>",
            "<Expiration>2026-11-30T12:00:00Z</Expiration>",
            "<ResponseMetadata><RequestId>R1</RequestId></ResponseMetadata>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_escaped_and_says_whose_fault_it_is() {
        let mine = text(answer(Err(&Refusal::denied("<&> is nobody")), "R2")).await;
        assert!(mine.contains("<Type>Sender</Type><Code>AccessDenied</Code>"), "{mine}");
        assert!(mine.contains("&lt;&amp;&gt; is nobody") && mine.contains("<RequestId>R2</RequestId>"), "{mine}");
        let busy = Refusal::from(Failure::new(FailureKind::Unavailable, "the catalogue is away"));
        let response = answer(Err(&busy), "R3");
        assert_eq!(
            (response.status(), &response.headers()[RETRY_AFTER]),
            (StatusCode::SERVICE_UNAVAILABLE, &"5".parse().expect("a value"))
        );
        assert!(text(response).await.contains("<Type>Receiver</Type><Code>ServiceUnavailable</Code>"));
        let fault = Refusal::from(Failure::new(FailureKind::Internal, "/a/path"));
        assert!(fault.code == "InternalFailure" && !fault.message.contains("/a/path"));
    }
}
