//! Where a site's certificates come from: its own authority, and proxies of users.
//!
//! Owns new keys until they are written. Talks to the file system: keys are 0600, files appear
//! whole, and none is overwritten except by [`Issued::replace`] and [`SiteCa::keep_current`].
//! Never hands the authority's key out.
//!
//! Names: the authority is `/O=Penstock site NAME/CN=Penstock CA`; what it issues is
//! `/O=Penstock site NAME/OU=KIND/CN=…` with KIND `gateway`, `mover`, `admin` (see
//! [`crate::role`]), `host` or `user`.

mod authority;
mod der;
mod files;
mod hash;
mod issued;
mod proxy;

use std::io;
use std::path::PathBuf;

use time::OffsetDateTime;

pub use authority::{Holder, Kept, SiteCa};
pub use hash::subject_hash;
pub use issued::Issued;
pub use proxy::{ProxyOptions, make_proxy, sign_proxy};
#[cfg(test)]
pub(crate) use proxy::{below, extension};

use crate::tls::CredentialError;
use crate::trust::TrustError;
use crate::{Clock, Secret};

/// Why a certificate could not be made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A name that cannot be in a certificate safely.
    #[error("{name:?} cannot be {what}: use 1 to 64 of the characters A-Z a-z 0-9 . _ -{}", if *.spaces { " and space" } else { "" })]
    Name {
        /// The name as given.
        name: String,
        /// What it was to be.
        what: &'static str,
        /// Whether spaces would be allowed.
        spaces: bool,
    },
    /// A host name or address that is none.
    #[error("{host:?} is not a host name or an address")]
    Host {
        /// As given.
        host: String,
    },
    /// A file of that name exists; nothing was written.
    #[error("{} exists and was left as it is; remove it first if it is not needed", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("write {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The authority's files are not an authority.
    #[error("{} is not a site's authority: {reason}", path.display())]
    NotAnAuthority {
        /// Its certificate.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Authorities make certificates, not proxies.
    #[error("{subject} is an authority, which cannot make proxies; use a person's certificate")]
    AuthorityProxy {
        /// Whose certificate it is.
        subject: String,
    },
    /// Nothing useful can be signed any more.
    #[error("the certificate or proxy of {subject} has expired; renew it first")]
    IssuerExpired {
        /// Whose it is.
        subject: String,
    },
    /// A kind of key we make no signatures with.
    #[error(
        "the issuer's key is of a kind that cannot sign certificates here; use an EC (P-256, P-384), RSA or Ed25519 key"
    )]
    Algorithm,
    /// The signature itself failed.
    #[error("sign a certificate: {reason}")]
    Sign {
        /// What the library said.
        reason: String,
    },
    /// The certificate could not be built.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// A certificate cannot be read.
    #[error("read a certificate")]
    Certificate(#[from] TrustError),
    /// What was made cannot be used.
    #[error("use a certificate")]
    Credential(#[from] CredentialError),
}

fn time_at(clock: &Clock) -> OffsetDateTime {
    time_of(clock.now_us().div_euclid(1_000_000))
}

/// `seconds` since the epoch; times no certificate can hold become the epoch.
fn time_of(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system's random generator does not fail once seeded");
    u64::from_be_bytes(bytes)
}

/// One PEM block (RFC 7468): base64 in lines of 64.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let encoded = Secret::new(base64::engine::general_purpose::STANDARD.encode(der));
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.expose().as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
