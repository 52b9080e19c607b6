//! Reads trust from files: a folder in the IGTF layout, or one PEM bundle.
//!
//! Owns the naming rules of such folders. Talks to the file system, once per load. Never fails
//! because of one bad file: the authority it belongs to is refused and the rest work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use super::authority::{Authority, Companion, Issuer};
use super::crl::Crl;
use super::policy::SigningPolicy;
use super::store::TrustStore;
use super::{Requirement, TrustOptions};

/// No authority certificate or policy comes near this.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// The largest revocation lists of real authorities are a few MiB.
const MAX_CRL_BYTES: u64 = 64 << 20;
/// IGTF distributes about 100 authorities, three files each.
const MAX_FILES: usize = 10_000;

/// Why no trust store could be made at all.
#[derive(Debug, thiserror::Error)]
pub enum TrustLoadError {
    /// The folder or bundle cannot be read.
    #[error("read trusted authorities from {}", path.display())]
    Read {
        /// Folder, bundle or file in the folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More files than any trust folder has: probably another folder.
    #[error("{} holds more than {limit} files; name the folder of trusted authorities", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// How many would be read.
        limit: usize,
    },
    /// It was read and holds no authority.
    #[error("{} holds no usable certification authority; {hint}", path.display())]
    Empty {
        /// Folder or bundle.
        path: PathBuf,
        /// What should be there.
        hint: &'static str,
    },
}

/// The files of one hash in a folder: `HASH.0`, `HASH.1`, …, `HASH.r0`, …, `HASH.signing_policy`.
#[derive(Default)]
struct Group {
    certificates: Vec<PathBuf>,
    lists: Vec<PathBuf>,
    policy: Option<PathBuf>,
}

impl TrustStore {
    /// Reads a folder in the IGTF layout, as `openssl`, `curl` and the Globus tools do.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed or holds no authority. Single bad files are
    /// [`Self::problems`].
    pub fn from_folder(path: &Path, options: TrustOptions) -> Result<Self, TrustLoadError> {
        let read_error = |source| TrustLoadError::Read { path: path.to_owned(), source };
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (count, entry) in fs::read_dir(path).map_err(read_error)?.enumerate() {
            let file = entry.map_err(read_error)?.path();
            if count == MAX_FILES {
                return Err(TrustLoadError::TooMany { path: path.to_owned(), limit: MAX_FILES });
            }
            let Some((hash, ending)) =
                file.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('.'))
            else {
                continue;
            };
            if hash.len() != 8 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                continue;
            }
            let (hash, ending) = (hash.to_owned(), ending.to_owned());
            let group = groups.entry(hash).or_default();
            if ending == "signing_policy" {
                group.policy = Some(file);
            } else if is_number(&ending) {
                group.certificates.push(file);
            } else if ending.strip_prefix('r').is_some_and(is_number) {
                group.lists.push(file);
            }
        }
        let (mut authorities, mut problems) = (Vec::new(), Vec::new());
        for group in groups.values_mut() {
            group.certificates.sort();
            group.lists.sort();
            group.read(&mut authorities, &mut problems);
        }
        let store = Self::assemble(authorities, options, problems);
        if store.roots() == 0 {
            let hint = "it should have HASH.0 files, named by \"openssl x509 -hash\"";
            return Err(TrustLoadError::Empty { path: path.to_owned(), hint });
        }
        Ok(store)
    }

    /// Reads all certificates, and revocation lists if any, of one PEM file.
    ///
    /// A bundle has no signing policies, so `options.signing_policy` does not apply.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or holds no authority.
    pub fn from_bundle(path: &Path, options: TrustOptions) -> Result<Self, TrustLoadError> {
        let pem = read_bounded(path, MAX_CRL_BYTES)
            .map_err(|source| TrustLoadError::Read { path: path.to_owned(), source })?;
        Self::from_pem(&pem, options).ok_or_else(|| TrustLoadError::Empty {
            path: path.to_owned(),
            hint: "it should have CERTIFICATE blocks of authorities",
        })
    }

    /// As [`Self::from_bundle`], from memory. `None` if there is no authority in `pem`.
    #[must_use]
    pub fn from_pem(pem: &[u8], options: TrustOptions) -> Option<Self> {
        let (mut authorities, mut problems) = (Vec::new(), Vec::new());
        for der in CertificateDer::pem_slice_iter(pem) {
            match der.map_err(|error| format!("{error}")).and_then(Authority::read) {
                Ok(authority) => authorities.push(authority),
                Err(problem) => problems.push(problem),
            }
        }
        for list in CertificateRevocationListDer::pem_slice_iter(pem) {
            match list {
                Ok(list) => attach(&mut authorities, &list, "the bundle", &mut problems),
                Err(error) => problems.push(format!("a revocation list cannot be read: {error}")),
            }
        }
        let options = TrustOptions { signing_policy: Requirement::IfPresent, ..options };
        let store = Self::assemble(authorities, options, problems);
        (store.roots() > 0).then_some(store)
    }
}

impl Group {
    fn read(&self, authorities: &mut Vec<Authority>, problems: &mut Vec<String>) {
        let mut found = Vec::new();
        for path in &self.certificates {
            match read_bounded(path, MAX_SMALL_BYTES)
                .map_err(|e| e.to_string())
                .and_then(|bytes| certificate(&bytes))
                .and_then(Authority::read)
            {
                Ok(authority) => found.push(authority),
                Err(problem) => problems.push(format!("{}: {problem}", path.display())),
            }
        }
        if let Some(path) = &self.policy {
            let policy = read_bounded(path, MAX_SMALL_BYTES).map_err(|e| e.to_string()).and_then(|bytes| {
                let text = String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
                SigningPolicy::parse(&text).map_err(|e| e.to_string())
            });
            for authority in &mut found {
                authority.issuer.policy = match &policy {
                    Ok(policy) => Companion::Good(policy.clone()),
                    Err(problem) => Companion::Bad(format!("{}: {problem}", path.display())),
                };
            }
        }
        for path in &self.lists {
            match read_bounded(path, MAX_CRL_BYTES).map_err(|e| e.to_string()).and_then(|bytes| revocation_list(&bytes))
            {
                Ok(list) => attach(&mut found, &list, &path.display().to_string(), problems),
                // Which of the hash's authorities it was meant for cannot be known: all lose.
                Err(problem) => {
                    for authority in &mut found {
                        if matches!(authority.issuer.crl, Companion::Missing) {
                            authority.issuer.crl = Companion::Bad(format!("{}: {problem}", path.display()));
                        }
                    }
                }
            }
        }
        authorities.append(&mut found);
    }
}

/// Gives a list to the authority that signed it; the newest one wins.
fn attach(
    authorities: &mut [Authority],
    list: &CertificateRevocationListDer<'_>,
    file: &str,
    problems: &mut Vec<String>,
) {
    let algorithms = crate::tls::provider().signature_verification_algorithms;
    let issuer = match Crl::issuer_of(list) {
        Ok(issuer) => issuer,
        Err(problem) => return problems.push(format!("{file}: {problem}")),
    };
    let mut candidates: Vec<&mut Issuer> =
        authorities.iter_mut().map(|authority| &mut authority.issuer).filter(|known| known.subject == issuer).collect();
    if candidates.is_empty() {
        return problems.push(format!("{file}: a revocation list of an authority that is not here"));
    }
    let (mut taken, mut problem) = (false, String::new());
    // Of several keys of one name at most one signed it, but the store may hold that one twice.
    for candidate in &mut candidates {
        let read = if candidate.may_sign_lists {
            Crl::read(list, &candidate.spki, &algorithms)
        } else {
            Err("the authority may not sign revocation lists (no cRLSign in its key usage)".to_owned())
        };
        match read {
            Ok(crl) => {
                taken = true;
                if !matches!(&candidate.crl, Companion::Good(older) if !crl.is_newer_than(older)) {
                    candidate.crl = Companion::Good(crl);
                }
            }
            Err(reason) => problem = format!("{file}: {reason}"),
        }
    }
    // Meant for one of them, and we cannot know for which: all lose that have no good one.
    for candidate in candidates.into_iter().filter(|candidate| !taken && matches!(candidate.crl, Companion::Missing)) {
        candidate.crl = Companion::Bad(problem.clone());
    }
}

fn certificate(bytes: &[u8]) -> Result<CertificateDer<'static>, String> {
    if bytes.first() == Some(&0x30) {
        return Ok(CertificateDer::from(bytes.to_vec()));
    }
    CertificateDer::from_pem_slice(bytes).map_err(|error| error.to_string())
}

fn revocation_list(bytes: &[u8]) -> Result<CertificateRevocationListDer<'static>, String> {
    if bytes.first() == Some(&0x30) {
        return Ok(CertificateRevocationListDer::from(bytes.to_vec()));
    }
    CertificateRevocationListDer::from_pem_slice(bytes).map_err(|error| error.to_string())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes")));
    }
    Ok(bytes)
}
