//! Where a site's certificates come from: its own authority, and proxies of users.
//!
//! Owns the site's authority key while it is open. Talks to the file system: keys are 0600, files
//! appear whole, and none is overwritten except by [`Issued::replace`]. Never hands the
//! authority's key out.
//!
//! Names: the authority is `/O=Penstock site NAME/CN=Penstock CA`; what it issues is
//! `/O=Penstock site NAME/OU=KIND/CN=…` with KIND `gateway`, `mover`, `admin` (see
//! [`crate::role`]), `host` or `user`.

mod der;
mod files;
mod hash;
mod proxy;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose as Eku, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose as Ku, RevokedCertParams,
    SanType, SerialNumber,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use files::Access;
pub use hash::subject_hash;
pub use proxy::{ProxyOptions, make_proxy, sign_proxy};
#[cfg(test)]
pub(crate) use proxy::{below, extension};

use crate::role::{ORGANISATION, Role};
use crate::tls::{Credential, CredentialError};
use crate::trust::{TrustError, read_bounded};
use crate::{Clock, Secret};

const DAY: Duration = Duration::from_secs(86_400);
/// A site's authority lives as long as a storage generation.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// What browsers and grid authorities allow at most.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(395 * 86_400);
/// Clocks of two machines may differ by so much.
const SKEW: Duration = DAY;
/// No PEM file here comes near this.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// The authority in its folder: certificate and key in one file, so that it appears whole.
const AUTHORITY: &str = "ca.key";
/// A copy of its certificate alone, for everybody who is to trust it.
const AUTHORITY_CERTIFICATE: &str = "ca.pem";

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

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder<'a> {
    /// A part of the site: its role is in the certificate.
    Part {
        /// What it is.
        role: Role,
        /// Its name in the site.
        name: &'a str,
        /// Host names and addresses it is reached by.
        hosts: &'a [String],
    },
    /// A host with a door for users.
    Host {
        /// Its main name.
        name: &'a str,
        /// Host names and addresses it is reached by.
        hosts: &'a [String],
    },
    /// A person.
    User {
        /// The person's name.
        name: &'a str,
    },
}

/// A new certificate chain and its key, not yet written anywhere.
pub struct Issued {
    chain: Vec<CertificateDer<'static>>,
    key: Secret<Vec<u8>>,
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

/// A site's own certification authority, open for issuing.
pub struct SiteCa {
    site: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl SiteCa {
    /// Opens the authority in `folder`, or makes one there for the site `name`.
    ///
    /// The folder gets `ca.key` (certificate and key, 0600) and `ca.pem` (the certificate, for those
    /// who are to trust it). An existing authority keeps its own name.
    ///
    /// # Errors
    ///
    /// If the name cannot be in a certificate, or files cannot be read or written.
    pub fn open_or_create(folder: &Path, name: &str, clock: &Clock) -> Result<Self, PkiError> {
        let path = folder.join(AUTHORITY);
        if !path.exists() {
            files::make_private_folder(folder)?;
            let (authority, key) = Self::make(name, clock)?;
            let both = Secret::new(authority.certificate_pem() + key.expose());
            match files::create(&path, both.expose().as_bytes(), Access::Owner) {
                // Another process was faster; its authority is the site's.
                Ok(()) | Err(PkiError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let authority = Self::open(folder)?;
        let copy = folder.join(AUTHORITY_CERTIFICATE);
        if read_bounded(&copy, MAX_PEM_BYTES).ok().as_deref() != Some(authority.certificate_pem().as_bytes()) {
            files::replace(&copy, authority.certificate_pem().as_bytes(), Access::Everybody)?;
        }
        Ok(authority)
    }

    /// Opens the authority in `folder`.
    ///
    /// # Errors
    ///
    /// If there is none, or it is damaged.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        let path = folder.join(AUTHORITY);
        let broken = |reason: String| PkiError::NotAnAuthority { path: path.clone(), reason };
        // Also checks that the key is private and belongs to the certificate.
        let credential = Credential::from_files(&path, &path)?;
        let certificate = credential.chain().first().ok_or_else(|| broken("it has no certificate".to_owned()))?.clone();
        let key = KeyPair::try_from(credential.key_der().expose().as_slice())?;
        let site = {
            let parsed = crate::trust::Certificate::parse(&certificate, 1)?;
            let organisation = parsed.x509.subject().iter_organization().next().and_then(|o| o.as_str().ok());
            let site = organisation.and_then(|o| o.strip_prefix(ORGANISATION));
            site.ok_or_else(|| broken(format!("its organisation does not begin with {ORGANISATION:?}")))?.to_owned()
        };
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { site, certificate, issuer })
    }

    /// Makes an authority in memory: for tests, and for sites that last as long as a process.
    ///
    /// # Errors
    ///
    /// If `name` cannot be in a certificate.
    pub fn in_memory(name: &str, clock: &Clock) -> Result<Self, PkiError> {
        Ok(Self::make(name, clock)?.0)
    }

    fn make(name: &str, clock: &Clock) -> Result<(Self, Secret<String>), PkiError> {
        check_name(name, "a site's name", true)?;
        let mut params = base_params(clock, AUTHORITY_LIFETIME);
        params.distinguished_name.push(DnType::OrganizationName, format!("{ORGANISATION}{name}"));
        params.distinguished_name.push(DnType::CommonName, "Penstock CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![Ku::KeyCertSign, Ku::CrlSign];
        let key = new_key()?;
        let secret = Secret::new(key.serialize_pem());
        let certificate = params.self_signed(&key)?.der().clone();
        Ok((Self { site: name.to_owned(), certificate, issuer: Issuer::new(params, key) }, secret))
    }

    /// The site's name.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The authority's certificate.
    #[must_use]
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority's certificate in PEM: a trust bundle.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// Makes a key and a certificate for `holder`, valid for 395 days.
    ///
    /// # Errors
    ///
    /// If a name cannot be in a certificate.
    pub fn issue(&self, holder: &Holder<'_>, clock: &Clock) -> Result<Issued, PkiError> {
        let (unit, name, hosts, usages): (_, _, &[String], _) = match holder {
            Holder::Part { role, name, hosts } => (role.unit(), *name, *hosts, vec![Eku::ServerAuth, Eku::ClientAuth]),
            Holder::Host { name, hosts } => ("host", *name, *hosts, vec![Eku::ServerAuth, Eku::ClientAuth]),
            Holder::User { name } => ("user", *name, &[], vec![Eku::ClientAuth]),
        };
        check_name(name, "a name in a certificate", matches!(holder, Holder::User { .. }))?;
        let mut params = base_params(clock, CERTIFICATE_LIFETIME);
        params.distinguished_name.push(DnType::OrganizationName, format!("{ORGANISATION}{}", self.site));
        params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = hosts.iter().map(|host| alternative_name(host)).collect::<Result<_, _>>()?;
        params.key_usages = vec![Ku::DigitalSignature];
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { chain: vec![certificate.der().clone()], key: Secret::new(key.serialize_der()) })
    }

    /// A revocation list in PEM that names the certificates with these serial numbers.
    ///
    /// # Errors
    ///
    /// If it cannot be signed.
    pub fn revocation_list(&self, serials: &[Vec<u8>], valid_for: Duration, clock: &Clock) -> Result<String, PkiError> {
        let now = time_at(clock);
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + valid_for,
            // Grows with time, as RFC 5280 §5.2.3 asks, without a counter to keep.
            crl_number: SerialNumber::from(u64::try_from(clock.now_us()).unwrap_or(0)),
            issuing_distribution_point: None,
            revoked_certs: serials
                .iter()
                .map(|serial| RevokedCertParams {
                    serial_number: SerialNumber::from_slice(serial),
                    revocation_time: now,
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(pem("X509 CRL", params.signed_by(&self.issuer)?.der()))
    }

    /// What the authority may issue, as a `.signing_policy` file says it.
    #[must_use]
    pub fn signing_policy(&self) -> String {
        let mut text = String::from("# Written by Penstock. What this authority may issue.\n");
        let organisation = format!("/O={ORGANISATION}{}", self.site);
        writeln!(text, "access_id_CA   X509    '{organisation}/CN=Penstock CA'")
            .expect("writing to a string cannot fail");
        writeln!(text, "pos_rights     globus  CA:sign").expect("writing to a string cannot fail");
        writeln!(text, "cond_subjects  globus  '\"{organisation}/*\"'").expect("writing to a string cannot fail");
        text
    }

    /// Puts the authority into a trust folder in the IGTF layout, beside others that are there:
    /// `HASH.0`, `HASH.signing_policy` and, if given, `HASH.r0`. `openssl`, `curl --capath` and the
    /// Globus tools can use the folder. Does nothing that is already done.
    ///
    /// # Errors
    ///
    /// If files cannot be written, or another authority has the same hash.
    pub fn write_trust_folder(&self, folder: &Path, revocation_list: Option<&str>) -> Result<(), PkiError> {
        fs::create_dir_all(folder).map_err(|source| PkiError::Write { path: folder.to_owned(), source })?;
        let hash = subject_hash(&self.certificate)?;
        let certificate = folder.join(format!("{hash}.0"));
        match read_bounded(&certificate, MAX_PEM_BYTES) {
            Ok(there) if there == self.certificate_pem().as_bytes() => {}
            Ok(_) => return Err(PkiError::Exists { path: certificate }),
            Err(_) => files::create(&certificate, self.certificate_pem().as_bytes(), Access::Everybody)?,
        }
        files::replace(
            &folder.join(format!("{hash}.signing_policy")),
            self.signing_policy().as_bytes(),
            Access::Everybody,
        )?;
        if let Some(list) = revocation_list {
            files::replace(&folder.join(format!("{hash}.r0")), list.as_bytes(), Access::Everybody)?;
        }
        Ok(())
    }
}

impl fmt::Debug for SiteCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteCa").field("site", &self.site).finish_non_exhaustive()
    }
}

fn new_key() -> Result<KeyPair, PkiError> {
    Ok(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?)
}

fn base_params(clock: &Clock, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = time_at(clock);
    params.not_before = now - SKEW;
    params.not_after = now + lifetime;
    params.distinguished_name = DistinguishedName::new();
    params
}

/// Names end up in distinguished names, signing policies and file names: no quotes, no slashes.
fn check_name(name: &str, what: &'static str, spaces: bool) -> Result<(), PkiError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') || (spaces && c == ' ');
    if name.is_empty() || name.len() > 64 || !name.chars().all(good) || name.trim() != name {
        return Err(PkiError::Name { name: name.to_owned(), what, spaces });
    }
    Ok(())
}

fn alternative_name(host: &str) -> Result<SanType, PkiError> {
    let bad = || PkiError::Host { host: host.to_owned() };
    match rustls_pki_types::ServerName::try_from(host).map_err(|_| bad())? {
        rustls_pki_types::ServerName::IpAddress(address) => Ok(SanType::IpAddress(std::net::IpAddr::from(address))),
        rustls_pki_types::ServerName::DnsName(name) => Ok(SanType::DnsName(name.as_ref().try_into()?)),
        _ => Err(bad()),
    }
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
