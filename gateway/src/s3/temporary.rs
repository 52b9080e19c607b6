//! Temporary keys that nobody stores: what it takes to check one comes with each request.
//!
//! - The public half is random; the secret half follows from it (HMAC-SHA-256).
//! - The session token says whose the key is and until when, sealed for this public half alone (AES-256-GCM).
//!
//! Both are made with keys derived from the site's sealing key, so that a key that one gateway gave out is known to
//! all over one catalogue, and giving one out writes nothing. A secret without its token opens nothing.
//!
//! Never decides whether the account may still be used: [`super::signer`] asks that on each use.
//!
//! # Source
//!
//! RFC 5869 for the derived keys. Amazon's temporary keys begin with `ASIA` too ("IAM identifiers").

use std::io;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    hkdf::{HKDF_SHA256, Salt},
    hmac,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use catalog::Timestamp;
use daemon::Secret;
use serde::{Deserialize, Serialize};
use wire::id::AccountName;

use super::secrets::{SECRET_BYTES, Sealer, letters};

/// What the public half of a temporary key begins with.
const PREFIX: &str = "ASIA";
/// Random letters behind it: four more than an access key of the catalogue has in all, so that none is taken for one.
const LETTERS: usize = 20;
/// The first byte of a token, for tokens of another form to come.
const FORM: u8 = 1;
/// The longest subject of a certificate for which a key is made; the admin door maps no longer one.
pub const MAX_SUBJECT_BYTES: usize = 2048;
/// The longest token that is looked at: such a subject, each of whose letters is escaped, in base 64.
const MAX_TOKEN_BYTES: usize = 20 << 10;

/// A temporary key, as its user is shown it.
#[derive(Debug)]
pub struct TemporaryKey {
    /// The public half.
    pub id: String,
    /// The secret half.
    pub secret: Secret<String>,
    /// What is shown besides in each request.
    pub token: Secret<String>,
}

/// What a session token says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Whose it is.
    pub account: AccountName,
    /// The subject of the certificate that it was given out for.
    pub subject: String,
    /// From when on it opens nothing.
    pub expires: Timestamp,
}

/// Why a session token opens nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenError {
    /// It was not made here for this key, or was changed since.
    Invalid,
    /// Its time is over.
    Expired,
}

/// Whether this is the public half of a temporary key.
#[must_use]
pub fn is_temporary(id: &str) -> bool {
    id.len() == PREFIX.len() + LETTERS && id.starts_with(PREFIX)
}

impl Sealer {
    /// A new temporary key.
    ///
    /// # Errors
    ///
    /// If the system has no random bytes.
    pub fn temporary_key(&self, session: &Session) -> io::Result<TemporaryKey> {
        let id = format!("{PREFIX}{}", letters::<LETTERS>()?);
        let (secret, token) = (self.temporary.secret(&id), self.temporary.seal(&id, session));
        Ok(TemporaryKey { id, secret, token })
    }

    /// The secret half of a temporary key; `None` if its public half is none.
    #[must_use]
    pub fn temporary_secret(&self, id: &str) -> Option<Secret<String>> {
        is_temporary(id).then(|| self.temporary.secret(id))
    }

    /// What the token says that was given out with this key.
    ///
    /// # Errors
    ///
    /// [`TokenError`].
    pub fn session(&self, id: &str, token: &str, now: Timestamp) -> Result<Session, TokenError> {
        let session = self.temporary.open(id, token).ok_or(TokenError::Invalid)?;
        if session.expires <= now { Err(TokenError::Expired) } else { Ok(session) }
    }
}

/// What temporary keys are made with.
#[derive(Debug)]
pub(super) struct Keys {
    secrets: hmac::Key,
    tokens: RandomizedNonceKey,
}

impl Keys {
    /// Derived from the site's sealing key, each for its own purpose.
    pub(super) fn of(site: &[u8]) -> Self {
        let site = Salt::new(HKDF_SHA256, &[]).extract(site);
        let derived = |purpose: &[u8]| {
            let mut key = [0; 32];
            let made = site.expand(&[purpose], HKDF_SHA256).and_then(|bytes| bytes.fill(&mut key));
            made.expect("HKDF-SHA-256 gives 32 bytes");
            key
        };
        let tokens = RandomizedNonceKey::new(&AES_256_GCM, &derived(b"penstock s3 session tokens"));
        Self {
            secrets: hmac::Key::new(hmac::HMAC_SHA256, &derived(b"penstock s3 temporary secrets")),
            tokens: tokens.expect("32 bytes are a key"),
        }
    }

    fn secret(&self, id: &str) -> Secret<String> {
        let tag = hmac::sign(&self.secrets, id.as_bytes());
        Secret::new(STANDARD.encode(&tag.as_ref()[..SECRET_BYTES]))
    }

    fn seal(&self, id: &str, session: &Session) -> Secret<String> {
        let mut body = serde_json::to_vec(session).expect("texts and a number have a form in JSON");
        let nonce = self.tokens.seal_in_place_append_tag(Aad::from(id.as_bytes()), &mut body);
        let nonce = nonce.expect("a short message is sealed");
        Secret::new(URL_SAFE_NO_PAD.encode([&[FORM][..], nonce.as_ref(), &body].concat()))
    }

    fn open(&self, id: &str, token: &str) -> Option<Session> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (nonce, body) = sealed.strip_prefix(&[FORM])?.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = body.to_vec();
        let opened = self.tokens.open_in_place(nonce, Aad::from(id.as_bytes()), &mut body).ok()?;
        serde_json::from_slice(opened).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_796_040_000_000_000);

    fn sealer() -> (tempfile::TempDir, Sealer) {
        let folder = tempfile::tempdir().expect("a folder");
        let sealer = Sealer::open(&folder.path().join("key")).expect("a new key");
        (folder, sealer)
    }

    fn session() -> Session {
        let account = AccountName::new("alice").expect("a name");
        Session { account, subject: "/O=Grid/CN=Alice".to_owned(), expires: Timestamp(NOON.0 + 1) }
    }

    #[test]
    fn a_key_of_one_gateway_is_known_to_another_with_the_same_file_only() {
        let (folder, sealer) = sealer();
        let key = sealer.temporary_key(&session()).expect("random bytes");
        assert!(is_temporary(&key.id) && key.secret.expose().len() == 40, "{}", key.id);
        let again = Sealer::open(&folder.path().join("key")).expect("the same key");
        assert_eq!(again.temporary_secret(&key.id), Some(key.secret.clone()));
        assert_eq!(again.session(&key.id, key.token.expose(), NOON), Ok(session()));
        let other = Sealer::open(&folder.path().join("other")).expect("another key");
        assert_ne!(other.temporary_secret(&key.id), Some(key.secret));
        assert_eq!(other.session(&key.id, key.token.expose(), NOON), Err(TokenError::Invalid));
    }

    #[test]
    fn a_token_is_for_its_own_key_until_its_time() {
        let (_folder, sealer) = sealer();
        let (key, other) =
            (sealer.temporary_key(&session()).expect("one"), sealer.temporary_key(&session()).expect("two"));
        assert_ne!(key.id, other.id);
        assert_eq!(sealer.session(&other.id, key.token.expose(), NOON), Err(TokenError::Invalid));
        assert_eq!(sealer.session(&key.id, key.token.expose(), session().expires), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_that_was_cut_or_changed_opens_nothing() {
        let (_folder, sealer) = sealer();
        let key = sealer.temporary_key(&session()).expect("random bytes");
        let token = key.token.expose();
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(sealer.session(&key.id, &changed, NOON), Err(TokenError::Invalid), "changed at {at}");
            assert_eq!(sealer.session(&key.id, &token[..at], NOON), Err(TokenError::Invalid), "cut at {at}");
        }
        let long = "A".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(sealer.session(&key.id, &long, NOON), Err(TokenError::Invalid));
    }

    #[test]
    fn the_longest_subject_fits_a_token() {
        let (_folder, sealer) = sealer();
        // A letter that JSON makes six of.
        let long = Session { subject: "\u{1}".repeat(MAX_SUBJECT_BYTES), ..session() };
        let key = sealer.temporary_key(&long).expect("random bytes");
        assert_eq!(sealer.session(&key.id, key.token.expose(), NOON), Ok(long));
    }

    #[test]
    fn access_keys_of_the_catalogue_are_not_temporary() {
        for id in ["", "ASIA", "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "asiaaaaaaaaaaaaaaaaaaaaa"] {
            assert!(!is_temporary(id), "{id}");
        }
    }
}
