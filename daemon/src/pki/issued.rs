//! A certificate and its key, just made: in memory, in PEM, in files.
//!
//! Owns the key until it is dropped, and then overwrites it. Talks to the file system when asked to
//! write. Never overwrites a file unless asked to replace it, and never prints the key.

use std::fmt;
use std::path::Path;

use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::files::{self, Access};
use super::{PkiError, pem};
use crate::Secret;
use crate::tls::{Credential, CredentialError};

/// A new certificate chain and its key, not yet written anywhere.
pub struct Issued {
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// PKCS#8 DER.
    pub(super) key: Secret<Vec<u8>>,
}

impl Issued {
    /// The chain, leaf first, without the root.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The chain in PEM.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|der| pem("CERTIFICATE", der)).collect()
    }

    /// The key in PEM (PKCS#8).
    #[must_use]
    pub fn key_pem(&self) -> Secret<String> {
        Secret::new(pem("PRIVATE KEY", self.key.expose()))
    }

    /// Certificate, key and the rest of the chain in one PEM text: the form of a proxy file
    /// (`X509_USER_PROXY`), and good for `curl --cert` and our own configuration.
    #[must_use]
    pub fn combined_pem(&self) -> Secret<String> {
        let mut blocks = self.chain.iter().map(|der| pem("CERTIFICATE", der));
        let mut text = blocks.next().unwrap_or_default();
        text.push_str(self.key_pem().expose());
        text.extend(blocks);
        Secret::new(text)
    }

    /// Ready to be presented.
    ///
    /// # Errors
    ///
    /// If the key does not load, which a certificate made here does not cause.
    pub fn credential(&self) -> Result<Credential, CredentialError> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.expose().clone()));
        Credential::new(self.chain.clone(), key, "the new certificate", "the new key")
    }

    /// Writes [`Self::combined_pem`] to a new file with mode 0600.
    ///
    /// # Errors
    ///
    /// [`PkiError::Exists`] if there is a file, which is left as it is.
    pub fn create(&self, path: &Path) -> Result<(), PkiError> {
        files::create(path, self.combined_pem().expose().as_bytes(), Access::Owner)
    }

    /// Writes [`Self::combined_pem`] with mode 0600 in place of an older file: a renewal. Readers
    /// see the old file or the new one.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn replace(&self, path: &Path) -> Result<(), PkiError> {
        files::replace(path, self.combined_pem().expose().as_bytes(), Access::Owner)
    }

    /// Writes chain (0644) and key (0600) to two new files, as Globus's `usercert.pem` and
    /// `userkey.pem` are.
    ///
    /// # Errors
    ///
    /// [`PkiError::Exists`] if either exists. The key is written first, so a certificate file is
    /// never without its key.
    pub fn create_pair(&self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        if certificate.exists() {
            return Err(PkiError::Exists { path: certificate.to_owned() });
        }
        files::create(key, self.key_pem().expose().as_bytes(), Access::Owner)?;
        files::create(certificate, self.chain_pem().as_bytes(), Access::Everybody)
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}
