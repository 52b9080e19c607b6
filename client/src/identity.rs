//! Finds the user's certificate and the authorities to trust, where other grid and FTP tools look too.
//!
//! Owns the search order. Talks to [`daemon::tls`], which loads. Never prints a key.

use std::path::{Path, PathBuf};

use daemon::{
    tls::{Credential, HotCredential, Trust, TrustSource},
    trust::{Requirement, TrustOptions},
};

use crate::{ClientError, Result};

/// What was asked for on the command line; the rest is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityOptions {
    /// Certificate chain, PEM; may hold the key too.
    pub certificate: Option<PathBuf>,
    /// Key of `certificate`, PEM.
    pub key: Option<PathBuf>,
    /// Proxy certificate, PEM: chain and key in one file.
    pub proxy: Option<PathBuf>,
    /// Folder in the IGTF layout, or a PEM bundle.
    pub authorities: Option<PathBuf>,
}

/// The environment that the search looks at: variables, home, user number. Tests make their own.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Looks up `X509_USER_PROXY` and the like.
    pub variables: std::collections::BTreeMap<String, String>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The user's number.
    pub uid: u32,
    /// Where proxies are by default: `/tmp`.
    pub temporary: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars().collect(),
            home: std::env::home_dir(),
            uid: nix::unistd::Uid::current().as_raw(),
            temporary: PathBuf::from("/tmp"),
        }
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }
}

/// The user's credential and trust, loaded.
#[derive(Debug, Clone)]
pub struct Identity {
    /// What we show; `None` goes without a certificate.
    pub credential: Option<HotCredential>,
    /// Whom we believe.
    pub trust: Trust,
    /// Where the credential came from, for messages.
    pub origin: String,
}

/// Where a credential may be: certificate and key.
type Pair = (PathBuf, PathBuf);

impl IdentityOptions {
    /// Looks for the certificate, first hit wins: `--proxy`; `--cert` and `--key`; `X509_USER_PROXY`; `X509_USER_CERT` and
    /// `X509_USER_KEY`; `/tmp/x509up_uUID`; `~/.config/penstock/{cert,key}.pem`; `~/.globus/user{cert,key}.pem`.
    pub fn find_credential(&self, around: &Surroundings) -> Option<Pair> {
        let both = |file: PathBuf| (file.clone(), file);
        if let Some(proxy) = &self.proxy {
            return Some(both(proxy.clone()));
        }
        if let Some(certificate) = &self.certificate {
            return Some((certificate.clone(), self.key.clone().unwrap_or_else(|| certificate.clone())));
        }
        if let Some(proxy) = around.variable("X509_USER_PROXY") {
            return Some(both(proxy));
        }
        if let Some(certificate) = around.variable("X509_USER_CERT") {
            let key = around.variable("X509_USER_KEY").unwrap_or_else(|| certificate.clone());
            return Some((certificate, key));
        }
        let candidates = [
            Some(both(around.temporary.join(format!("x509up_u{}", around.uid)))),
            around.in_home(".config/penstock/cert.pem").zip(around.in_home(".config/penstock/key.pem")),
            around.in_home(".globus/usercert.pem").zip(around.in_home(".globus/userkey.pem")),
        ];
        candidates.into_iter().flatten().find(|(certificate, key)| certificate.is_file() && key.is_file())
    }

    /// Looks for the authorities, first hit wins: `--ca`; `X509_CERT_DIR`; `~/.config/penstock/ca.pem`;
    /// `~/.globus/certificates`; `/etc/grid-security/certificates`; the system's bundle.
    pub fn find_authorities(&self, around: &Surroundings) -> Option<PathBuf> {
        if let Some(path) = self.authorities.clone().or_else(|| around.variable("X509_CERT_DIR")) {
            return Some(path);
        }
        let candidates = [
            around.in_home(".config/penstock/ca.pem"),
            around.in_home(".globus/certificates"),
            Some(PathBuf::from("/etc/grid-security/certificates")),
            Some(PathBuf::from("/etc/ssl/certs/ca-certificates.crt")),
        ];
        candidates.into_iter().flatten().find(|path| path.exists())
    }

    /// Finds and loads both.
    ///
    /// # Errors
    ///
    /// [`ClientError::Identity`] if there are no authorities, or if what was found cannot be loaded. No certificate at
    /// all is no error: the server decides.
    pub fn load(&self, around: &Surroundings) -> Result<Identity> {
        let authorities = self.find_authorities(around).ok_or_else(|| ClientError::Identity {
            what: "find the authorities to trust",
            reason: "none found; give --ca FILE (penstock serve prints the path of its ca.pem) or set X509_CERT_DIR"
                .to_owned(),
        })?;
        let trust = load_trust(&authorities)?;
        let Some((certificate, key)) = self.find_credential(around) else {
            return Ok(Identity { credential: None, trust, origin: "no certificate".to_owned() });
        };
        let credential = load_credential(&certificate, &key)?;
        Ok(Identity { credential: Some(credential), trust, origin: certificate.display().to_string() })
    }
}

fn load_trust(path: &Path) -> Result<Trust> {
    // A user's folder may hold an authority without a signing policy, as curl and openssl accept.
    let options = TrustOptions { signing_policy: Requirement::IfPresent, ..TrustOptions::default() };
    Trust::load(TrustSource::at(path), options)
        .map_err(|error| ClientError::Identity { what: "load the authorities to trust", reason: full(&error) })
}

fn load_credential(certificate: &Path, key: &Path) -> Result<HotCredential> {
    let failed = |reason| ClientError::Identity { what: "load your certificate", reason };
    Credential::from_files(certificate, key).map(HotCredential::fixed).map_err(|error| failed(full(&error)))
}

fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(home: &Path) -> Surroundings {
        Surroundings { home: Some(home.to_owned()), uid: 7, temporary: home.join("tmp"), ..Surroundings::default() }
    }

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }

    #[test]
    fn what_is_nearer_wins() {
        let home = tempfile::tempdir().unwrap();
        let mut around = around(home.path());
        let mut options = IdentityOptions::default();
        let found = |options: &IdentityOptions, around: &Surroundings| {
            options.find_credential(around).map(|(certificate, _)| certificate)
        };
        assert_eq!(found(&options, &around), None);
        for (certificate, key) in [
            (".globus/usercert.pem", ".globus/userkey.pem"),
            (".config/penstock/cert.pem", ".config/penstock/key.pem"),
            ("tmp/x509up_u7", "tmp/x509up_u7"),
        ] {
            touch(&home.path().join(certificate));
            touch(&home.path().join(key));
            assert_eq!(found(&options, &around), Some(home.path().join(certificate)));
        }
        around.variables.insert("X509_USER_CERT".into(), "/c".into());
        around.variables.insert("X509_USER_KEY".into(), "/k".into());
        assert_eq!(options.find_credential(&around), Some(("/c".into(), "/k".into())));
        around.variables.insert("X509_USER_PROXY".into(), "/p".into());
        assert_eq!(options.find_credential(&around), Some(("/p".into(), "/p".into())));
        options.certificate = Some("/mine".into());
        assert_eq!(options.find_credential(&around), Some(("/mine".into(), "/mine".into())));
        options.proxy = Some("/proxy".into());
        assert_eq!(found(&options, &around), Some("/proxy".into()));
    }

    #[test]
    fn a_missing_file_is_named_with_its_path() {
        let home = tempfile::tempdir().unwrap();
        let options = IdentityOptions { authorities: Some(home.path().join("nowhere.pem")), ..Default::default() };
        let error = options.load(&around(home.path())).unwrap_err().to_string();
        assert!(error.contains("nowhere.pem"), "{error}");
    }
}
