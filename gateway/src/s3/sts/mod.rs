//! Temporary keys for holders of a client certificate, at the S3 door's own address: `AssumeRoleWithCertificate`.
//!
//! ```text
//! POST / over TLS ─► asked ─► the certificate, judged now ─► its account ─► pace ─► a key ─► answer
//! ```
//!
//! - Pure: `asked` (parameters, the end of a key), `pace` (how many), `answer` (XML).
//! - What a key is made of is in [`super::temporary`].
//!
//! Owns the count of keys by account. Talks to the trust in users' authorities and to [`crate::identity`], as the FTP
//! and WebDAV doors do. Writes nothing but the log: every key that is given, and every refusal, with the subject.
//!
//! Invariant: a key is given to whoever proved possession of the certificate's key in this connection, and its
//! certificate passes every rule at the moment of the call, whatever it was when the connection was made.

mod answer;
mod asked;
mod pace;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use daemon::tls::{self, Clients};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Method, Request, Response,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
};
use rustls::pki_types::CertificateDer;
use s3s::Body;
use tracing::info;

use self::{
    answer::{Given, Refusal, answer},
    asked::Asked,
    pace::Pace,
};
use super::{
    Door,
    access::pairs,
    temporary::{MAX_SUBJECT_BYTES, Session},
};
use crate::identity::presented;

/// The longest form.
const MAX_FORM_BYTES: usize = 16 << 10;
/// How long it may take to come.
const FORM_LIMIT: Duration = Duration::from_secs(30);

/// The certificates that a client showed in the handshake; `None` without, and without TLS.
pub(super) type Shown = Option<Arc<[CertificateDer<'static>]>>;

/// Gives temporary keys.
pub(super) struct Sts {
    door: Door,
    clients: Clients,
    pace: Mutex<Pace>,
}

/// Whether a request that names no bucket is for the token service. S3 has no POST to `/`.
pub(super) fn is_asked<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let by_query = query.split('&').any(|pair| pair.starts_with("Action="));
    request.method() == Method::POST && request.uri().path() == "/" && (by_query || has_form(request))
}

fn has_form<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.to_ascii_lowercase().starts_with(b"application/x-www-form-urlencoded")
}

impl Sts {
    /// `clients` is how the door judges certificates.
    pub(super) fn new(door: Door, clients: Clients) -> Self {
        Self { door, clients, pace: Mutex::default() }
    }

    /// Answers the request of this number, which came over TLS or not.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        secure: bool,
        shown: &Shown,
        number: &str,
    ) -> Response<Body> {
        let given = self.give(request, secure, shown).await;
        let word = given.as_ref().map_or_else(|refusal| refusal.code, |_| "given");
        metrics::counter!("penstock_s3_temporary_keys_total", "outcome" => word).increment(1);
        answer(given.as_ref(), number)
    }

    async fn give(&self, request: Request<Incoming>, secure: bool, shown: &Shown) -> Result<Given, Refusal> {
        let asked = Asked::of(&parameters(request).await?)?;
        let limit = self.door.config.temporary_limit.duration();
        if limit.is_zero() {
            return Err(Refusal::denied("this site gives no temporary keys ([s3] temporary_limit): use an access key"));
        }
        if !secure {
            return Err(Refusal::denied("without TLS no certificate can be shown: ask at the door's https address"));
        }
        let identity = presented(tls::identify(shown.as_deref(), &self.clients)).map_err(|why| {
            info!(why, "temporary key refused");
            Refusal::denied(why)
        })?;
        let subject = identity.subject.as_str();
        let refused = |refusal: Refusal| {
            info!(subject, code = refusal.code, why = refusal.message, "temporary key refused");
            refusal
        };
        if subject.len() > MAX_SUBJECT_BYTES {
            return Err(refused(Refusal::denied("the certificate's subject is too long for a session token")));
        }
        let principal = self.door.identities.principal(subject, None).await;
        let account = principal.map_err(|failure| refused(failure.into()))?.account;
        let now = self.door.catalog.now();
        let expires = asked.until(now, limit, identity.not_after_us);
        let expires = expires.ok_or_else(|| refused(Refusal::denied("the certificate has expired: renew it")))?;
        let taken = self.pace.lock().unwrap_or_else(PoisonError::into_inner).take(&account, now);
        taken.map_err(|wait| {
            let text = format!("account {account} has been given too many keys: use one until it expires");
            refused(Refusal::throttled(text, wait))
        })?;
        let session = Session { account, subject: subject.to_owned(), expires };
        let key = self.door.sealer.temporary_key(&session).map_err(|error| {
            tracing::error!(%error, "no temporary key can be made");
            Refusal::fault()
        })?;
        info!(subject, account = %session.account, key = key.id, expires_us = expires.0, "temporary key given");
        Ok(Given { key, expires })
    }
}

/// The parameters of a request's query and form.
async fn parameters(request: Request<Incoming>) -> Result<Vec<(String, String)>, Refusal> {
    let mut parameters = pairs(request.uri().query().unwrap_or_default());
    if has_form(&request) {
        let whole = Limited::new(request.into_body(), MAX_FORM_BYTES).collect();
        let whole = match tokio::time::timeout(FORM_LIMIT, whole).await {
            Ok(Ok(whole)) => whole.to_bytes(),
            Ok(Err(error)) => {
                return Err(Refusal::bad("MalformedQueryString", format!("the form cannot be read: {error}")));
            }
            Err(_) => return Err(Refusal::bad("RequestTimeout", "the form did not come in time")),
        };
        parameters.extend(pairs(&String::from_utf8_lossy(&whole)));
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_to_the_root_is_for_the_token_service_if_it_has_an_action_or_a_form() {
        let is = |method: Method, uri: &str, kind: &str| {
            let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, kind).body(());
            is_asked(&request.expect("a request"))
        };
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        assert!(is(Method::POST, "/", form) && is(Method::POST, "/?Action=x", ""));
        assert!(!is(Method::GET, "/?Action=x", "") && !is(Method::POST, "/", "multipart/form-data; boundary=x"));
        assert!(!is(Method::POST, "/bucket?delete", form) && !is(Method::POST, "/?x=Action=", ""));
    }
}
