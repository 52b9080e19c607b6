//! Who is at the other end: X.509 chains, proxies, signing policies, revocation lists. Pure.
//!
//! Owns the rules by which a chain of certificates proves an [`Identity`]. Talks to nobody: the
//! store is read from files once ([`TrustStore::from_folder`], [`TrustStore::from_bundle`]), and
//! [`TrustStore::verify`] is a function of the chain, the store and the time. Never decides what
//! an identity may do.
//!
//! Invariant: an [`Identity`] exists only for a chain that passed every rule at the given time.
//!
//! What a chain must satisfy: proxies by RFC 3820 (`proxy`), from the end-entity certificate to a
//! self-signed authority of the store by webpki (RFC 5280: signatures, validity, CA:TRUE, path
//! length, name constraints, extended key usage), and at *every* authority of that path its
//! validity, its key usage, its signing policy and its revocation list (`store`).

mod authority;
mod certificate;
mod crl;
mod dn;
mod error;
mod folder;
mod policy;
mod proxy;
mod store;

use std::fmt;

use rustls_pki_types::{CertificateDer, UnixTime};
use serde::{Deserialize, Serialize};

pub(crate) use certificate::Certificate;
pub use dn::{Attribute, Dn, NotADn};
pub(crate) use error::timestamp;
pub use error::{Kind, ProxyRule, TrustError};
pub use folder::TrustLoadError;
pub(crate) use folder::read_bounded;
pub(crate) use proxy::{INHERIT_ALL, LIMITED, PROXY_CERT_INFO};
pub use store::TrustStore;

/// Who proved to be at the other end of a connection.
///
/// Made only by [`TrustStore::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The subject of the end-entity certificate: the user or host, whatever proxies came before.
    pub subject: Dn,
    /// The same subject, attribute by attribute.
    pub attributes: Vec<Attribute>,
    /// How many proxies stand in front of the end-entity certificate.
    pub proxy_levels: usize,
    /// Whether one of them is limited (may move data, may not start jobs).
    pub limited: bool,
    /// SHA-256 over all certificates as presented.
    pub fingerprint: Fingerprint,
    /// SHA-256 of the self-signed authority the chain ends in.
    pub authority: Fingerprint,
    /// Microseconds since the epoch at which the first certificate of the chain expires.
    pub not_after_us: i64,
}

impl Identity {
    /// Whether a proxy, and not the certificate's own key, is at the other end.
    #[must_use]
    pub const fn is_proxy(&self) -> bool {
        self.proxy_levels > 0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.fmt(f)
    }
}

/// A SHA-256 digest of certificates, written in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The digest of `certificates`, one after the other.
    #[must_use]
    pub fn of(certificates: &[CertificateDer<'_>]) -> Self {
        let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for certificate in certificates {
            digest.update(certificate);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.finish().as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the peer's certificate must be good for, where it says (extended key usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The peer connected to us.
    Client,
    /// We connected to the peer, which is a host.
    Server,
    /// Either: on data channels a user's proxy may be the TLS server.
    Either,
}

/// Whether every authority must have a thing, or only that which is there counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requirement {
    /// An authority without it issues nothing we accept.
    Required,
    /// Where it is there it is enforced; where it is missing the authority is free.
    IfPresent,
}

/// What an authority of a trust store must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct TrustOptions {
    /// The `.signing_policy` file in a folder. A bundle has none and ignores this.
    pub signing_policy: Requirement,
    /// A revocation list.
    pub crl: Requirement,
}

/// A folder's authorities need a signing policy; revocation lists count where present.
impl Default for TrustOptions {
    fn default() -> Self {
        Self { signing_policy: Requirement::Required, crl: Requirement::IfPresent }
    }
}

/// The end of a chain's usefulness in microseconds since the epoch.
const fn micros(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000)
}

/// The present, for callers without a [`crate::Clock`].
#[must_use]
pub fn now() -> UnixTime {
    UnixTime::now()
}

#[cfg(test)]
mod tests;
