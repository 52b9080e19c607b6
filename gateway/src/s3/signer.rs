//! Who signed a request: an access key becomes an account.
//!
//! Keys of the catalogue are looked up; temporary keys say themselves what they are ([`super::temporary`]), and are no
//! better than the certificate that they were given out for: its subject must still mean that account, now.
//!
//! Talks to the catalogue. Never checks a signature: `s3s` and [`super::before`] do, with the secrets from here.

use daemon::Secret;
use hyper::{
    HeaderMap, Uri,
    header::{AUTHORIZATION, HeaderName},
};
use s3s::{
    S3Result,
    auth::{S3Auth, SecretKey},
    s3_error,
};

use super::{
    Door,
    access::pairs,
    error::{Asked, of_catalog, of_failure},
    temporary::{TokenError, is_temporary},
};
use crate::identity::Principal;

/// Who signed a request.
pub(super) struct Signer {
    pub(super) principal: Principal,
    /// Whether it is sent to movers for bytes, if anything was said of that.
    pub(super) direct: Option<bool>,
}

const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Opens secrets for `s3s`, which checks the signatures.
pub(super) struct Auth(pub(super) Door);

#[async_trait::async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let secret = self.0.secret_of(access_key).await?;
        Ok(SecretKey::from(secret.expose().as_str()))
    }
}

impl Door {
    /// The secret of an access key that may be used.
    pub(super) async fn secret_of(&self, access_key: &str) -> S3Result<Secret<String>> {
        let unknown = || s3_error!(InvalidAccessKeyId, "there is no access key {:?}", access_key);
        if access_key.is_empty() || access_key.len() > 128 || access_key.contains('\0') {
            return Err(unknown());
        }
        if let Some(secret) = self.sealer.temporary_secret(access_key) {
            return Ok(secret);
        }
        let key = self.catalog.access_key(access_key).await.map_err(|error| of_catalog(error, Asked::Object))?;
        let key = key.filter(|key| !key.disabled).ok_or_else(unknown)?;
        self.sealer.unseal(&key.id, &key.sealed).ok_or_else(|| {
            tracing::error!(access_key, "an access key was sealed by another sealing key");
            s3_error!(InternalError, "access key {} cannot be opened here: tell the operator", access_key)
        })
    }

    /// Who signed with this key a request that has these headers and this URI; its signature is right.
    pub(super) async fn signer(&self, id: &str, headers: &HeaderMap, uri: &Uri) -> S3Result<Signer> {
        let token = token(headers, uri)?;
        if is_temporary(id) {
            let principal = self.temporary_signer(id, token).await?;
            return Ok(Signer { principal, direct: None });
        }
        if token.is_some() {
            return Err(s3_error!(InvalidToken, "access key {} is not temporary: send no session token with it", id));
        }
        let key = self.catalog.access_key(id).await.map_err(|error| of_catalog(error, Asked::Object))?;
        let key = key.ok_or_else(|| s3_error!(InvalidAccessKeyId, "there is no access key {:?}", id))?;
        let principal = self.identities.account(&key.account).await.map_err(of_failure)?;
        Ok(Signer { principal, direct: key.direct })
    }

    async fn temporary_signer(&self, id: &str, token: Option<Secret<String>>) -> S3Result<Principal> {
        let token = token.ok_or_else(|| {
            let text = "is temporary and came without its session token: send it in x-amz-security-token; a form has \
                        it in the query of its address, as X-Amz-Security-Token";
            s3_error!(InvalidAccessKeyId, "access key {} {}", id, text)
        })?;
        let session = self.sealer.session(id, token.expose(), self.catalog.now()).map_err(|error| match error {
            TokenError::Invalid => s3_error!(InvalidToken, "the session token is not that of access key {}", id),
            TokenError::Expired => s3_error!(ExpiredToken, "temporary key {} has expired: ask for another", id),
        })?;
        // Not the account alone: a mapping that was removed shall take the keys with it.
        self.identities.principal(&session.subject, Some(&session.account)).await.map_err(of_failure)
    }
}

/// The session token that a request shows: in a header that is signed, or in the query of a pre-signed URL, all of
/// which is. Pure.
fn token(headers: &HeaderMap, uri: &Uri) -> S3Result<Option<Secret<String>>> {
    let query = pairs(uri.query().unwrap_or_default());
    let named = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    let Some(value) = headers.get(&TOKEN) else {
        return Ok(named("X-Amz-Security-Token").map(|text| Secret::new(text.to_owned())));
    };
    let by_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let signed = match by_header {
        Some(text) => text.split([',', ' ']).find_map(|part| part.strip_prefix("SignedHeaders=")),
        None => named("X-Amz-SignedHeaders"),
    };
    // By version 2 all such headers are signed; its signature is taken off by now, or is in a form.
    if signed.is_some_and(|names| !names.split(';').any(|name| name.eq_ignore_ascii_case(TOKEN.as_str()))) {
        return Err(s3_error!(AccessDenied, "{} is in the request and is not signed", TOKEN));
    }
    let text = value.to_str().map_err(|_| s3_error!(InvalidToken, "the session token is no text"))?;
    Ok(Some(Secret::new(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn shown(of: &[(HeaderName, &'static str)], uri: &str) -> Result<Option<String>, String> {
        let headers = of.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        match token(&headers, &uri.parse().expect("a URI")) {
            Ok(found) => Ok(found.map(|found| found.expose().clone())),
            Err(error) => Err(error.code().as_str().to_owned()),
        }
    }

    #[test]
    fn a_token_is_read_where_it_is_signed() {
        let header = (TOKEN, "abc");
        let names = |names| (AUTHORIZATION, names);
        let with =
            names("AWS4-HMAC-SHA256 Credential=K/d/r/s3/aws4_request, SignedHeaders=host;x-amz-security-token, S=1");
        let packed = names("AWS4-HMAC-SHA256 Credential=K,SignedHeaders=host;x-amz-security-token,Signature=1");
        let without = names("AWS4-HMAC-SHA256 Credential=K, SignedHeaders=host;x-amz-date, Signature=1");
        let found = Ok(Some("abc".to_owned()));
        assert_eq!(shown(&[header.clone(), with], "/b"), found);
        assert_eq!(shown(&[header.clone(), packed], "/b"), found);
        assert_eq!(shown(&[header.clone(), without.clone()], "/b"), Err("AccessDenied".to_owned()));
        assert_eq!(shown(&[without], "/b"), Ok(None));
        assert_eq!(shown(std::slice::from_ref(&header), "/b"), found, "by version 2, whose signature was taken off");
        assert_eq!(shown(&[], "/b?X-Amz-Security-Token=a%2Bbc&X-Amz-Signature=1"), Ok(Some("a+bc".to_owned())));
        assert_eq!(shown(std::slice::from_ref(&header), "/b?X-Amz-SignedHeaders=host%3Bx-amz-security-token"), found);
        assert_eq!(shown(&[header], "/b?X-Amz-SignedHeaders=host"), Err("AccessDenied".to_owned()));
        assert_eq!(shown(&[], "/b?x=X-Amz-Security-Token"), Ok(None));
    }
}
