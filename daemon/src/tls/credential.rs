//! A certificate chain and its private key: a host's, a user's or a proxy's.
//!
//! Owns the key, and overwrites its encoded form when dropped. Talks to the file system when
//! loading. Never prints the key.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::provider;
use crate::Secret;
use crate::trust::{Certificate, TrustError, read_bounded};

/// A chain with its key is a few KiB.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Certificates and key that a connection presents.
pub struct Credential {
    certified: Arc<CertifiedKey>,
    key: Secret<Vec<u8>>,
    subject: String,
    not_after_us: i64,
}

/// Why a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Everybody on the machine could read the key.
    #[error("the private key in {} can be read by others (mode {mode:04o}); run: chmod 600 {}", path.display(), path.display())]
    ReadableByOthers {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The PEM text holds no certificate.
    #[error("{origin} holds no CERTIFICATE block")]
    NoCertificate {
        /// File, or what the text is.
        origin: String,
    },
    /// The PEM text holds no usable private key.
    #[error("{origin} holds no private key that can be used without a password: {reason}")]
    NoKey {
        /// File, or what the text is.
        origin: String,
        /// What the decoder said.
        reason: String,
    },
    /// The leaf certificate cannot be read.
    #[error("the first certificate of {origin} is bad")]
    Certificate {
        /// File, or what the text is.
        origin: String,
        /// What is wrong with it.
        source: TrustError,
    },
    /// Certificate and key are of different pairs.
    #[error("the private key in {key} does not belong to the certificate of {subject} in {certificate}")]
    Mismatch {
        /// Where the key came from.
        key: String,
        /// Where the certificate came from.
        certificate: String,
        /// Whose certificate it is.
        subject: String,
    },
}

impl Credential {
    /// Loads a certificate chain (leaf first) and its key from PEM files. Both may be one file, as
    /// a proxy is.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, holds no such thing, the key does not belong to the certificate,
    /// or others may read the key.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, CredentialError> {
        let read = |path: &Path| {
            read_bounded(path, MAX_PEM_BYTES).map_err(|source| CredentialError::Read { path: path.to_owned(), source })
        };
        let metadata = fs::metadata(key).map_err(|source| CredentialError::Read { path: key.to_owned(), source })?;
        let mode = metadata.mode() & 0o7777;
        // As PostgreSQL does: a key of root's may be read by a group, so that Debian's ssl-cert works.
        let allowed = if metadata.uid() == 0 { 0o740 } else { 0o700 };
        if mode & 0o777 & !allowed != 0 {
            return Err(CredentialError::ReadableByOthers { path: key.to_owned(), mode });
        }
        let (chain, secret) = (read(certificate)?, Secret::new(read(key)?));
        Self::assemble(&chain, &certificate.display().to_string(), secret.expose(), &key.display().to_string())
    }

    /// Reads chain and key from one PEM text, in any order of the blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::from_files`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, CredentialError> {
        Self::assemble(pem, "the PEM text", pem, "the PEM text")
    }

    fn assemble(chain: &[u8], chain_origin: &str, key: &[u8], key_origin: &str) -> Result<Self, CredentialError> {
        let no_key = |reason: String| CredentialError::NoKey { origin: key_origin.to_owned(), reason };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().unwrap_or_default();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| no_key(error.to_string()))?;
        Self::new(chain, key, chain_origin, key_origin)
    }

    /// Takes a chain (leaf first) and its key.
    ///
    /// # Errors
    ///
    /// If the chain is empty or the key does not belong to it. The origins are for the messages.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        chain_origin: &str,
        key_origin: &str,
    ) -> Result<Self, CredentialError> {
        let leaf = chain.first().ok_or_else(|| CredentialError::NoCertificate { origin: chain_origin.to_owned() })?;
        let bad = |source| CredentialError::Certificate { origin: chain_origin.to_owned(), source };
        let leaf = Certificate::parse(leaf, 1).map_err(bad)?;
        let (subject, spki) = (leaf.name(), leaf.spki().to_vec());
        let not_after = chain
            .iter()
            .enumerate()
            .map(|(index, der)| Certificate::parse(der, index + 1).map(|certificate| certificate.not_after()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(bad)?;
        let no_key =
            |error: rustls::Error| CredentialError::NoKey { origin: key_origin.to_owned(), reason: error.to_string() };
        let secret = Secret::new(key.secret_der().to_vec());
        let signing = provider().key_provider.load_private_key(key).map_err(no_key)?;
        if signing.public_key().is_some_and(|public| public.as_ref() != spki) {
            return Err(CredentialError::Mismatch {
                key: key_origin.to_owned(),
                certificate: chain_origin.to_owned(),
                subject,
            });
        }
        Ok(Self {
            certified: Arc::new(CertifiedKey::new(chain, signing)),
            key: secret,
            subject,
            not_after_us: not_after.into_iter().min().unwrap_or(i64::MAX).saturating_mul(1_000_000),
        })
    }

    /// The chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// The leaf's subject, for messages.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Microseconds since the epoch at which the first certificate of the chain expires.
    #[must_use]
    pub const fn not_after_us(&self) -> i64 {
        self.not_after_us
    }

    /// The key as it was loaded: PKCS#8, PKCS#1 or SEC1 DER.
    #[must_use]
    pub const fn key_der(&self) -> &Secret<Vec<u8>> {
        &self.key
    }

    /// What rustls signs handshakes with.
    #[must_use]
    pub const fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("subject", &self.subject)
            .field("certificates", &self.chain().len())
            .finish_non_exhaustive()
    }
}
