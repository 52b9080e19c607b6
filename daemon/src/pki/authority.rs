//! A site's own certification authority.
//!
//! Owns the authority's key while it is open. Talks to the file system: the authority is one file,
//! so that it appears whole, and is made once. Never hands its key out, and never issues a name
//! that could be misread.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use std::{fmt, fs};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose as Eku, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose as Ku, RevokedCertParams,
    SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;

use super::files::{self, Access};
use super::{Issued, PkiError, pem, subject_hash, time_at};
use crate::role::{ORGANISATION, Role};
use crate::tls::Credential;
use crate::trust::{Certificate, read_bounded};
use crate::{Clock, Secret};

const DAY: Duration = Duration::from_secs(86_400);
/// A site's authority lives as long as a storage generation.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// What browsers and grid authorities allow at most.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(395 * 86_400);
/// With less life left than this, a certificate is renewed.
const RENEWAL_US: i64 = 30 * 86_400 * 1_000_000;
/// Clocks of two machines may differ by so much.
const SKEW: Duration = DAY;
/// No PEM file here comes near this.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// The authority in its folder: certificate and key in one file, so that it appears whole.
const AUTHORITY: &str = "ca.key";
/// A copy of its certificate alone, for everybody who is to trust it.
const AUTHORITY_CERTIFICATE: &str = "ca.pem";
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

impl Holder<'_> {
    const fn name(&self) -> &str {
        match self {
            Self::Part { name, .. } | Self::Host { name, .. } | Self::User { name } => name,
        }
    }

    /// The organisational unit.
    const fn unit(&self) -> &'static str {
        match self {
            Self::Part { role, .. } => role.unit(),
            Self::Host { .. } => "host",
            Self::User { .. } => "user",
        }
    }

    const fn hosts(&self) -> &[String] {
        match self {
            Self::Part { hosts, .. } | Self::Host { hosts, .. } => hosts,
            Self::User { .. } => &[],
        }
    }
}

/// What [`SiteCa::keep_current`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: the certificate is good.
    Good,
    /// There was none.
    Made,
    /// The old one was near its end, or for other hosts.
    Renewed,
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
            let parsed = Certificate::parse(&certificate, 1)?;
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
        let mut params = base_params(clock, CERTIFICATE_LIFETIME);
        check_name(holder.name(), "a name in a certificate", matches!(holder, Holder::User { .. }))?;
        params.distinguished_name.push(DnType::OrganizationName, format!("{ORGANISATION}{}", self.site));
        params.distinguished_name.push(DnType::OrganizationalUnitName, holder.unit());
        params.distinguished_name.push(DnType::CommonName, holder.name());
        params.subject_alt_names =
            holder.hosts().iter().map(|host| alternative_name(host)).collect::<Result<_, _>>()?;
        params.key_usages = vec![Ku::DigitalSignature];
        params.extended_key_usages = match holder {
            Holder::Part { .. } | Holder::Host { .. } => vec![Eku::ServerAuth, Eku::ClientAuth],
            Holder::User { .. } => vec![Eku::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { chain: vec![certificate.der().clone()], key: Secret::new(key.serialize_der()) })
    }

    /// Sees to it that the file at `path` holds a good certificate for `holder` with its key: makes
    /// one if there is no file, and renews it 30 days before it expires or when the hosts changed.
    ///
    /// # Errors
    ///
    /// [`PkiError::Exists`] if the file is not a certificate of this holder by this authority; it
    /// is left as it is.
    pub fn keep_current(&self, path: &Path, holder: &Holder<'_>, clock: &Clock) -> Result<Kept, PkiError> {
        if !path.exists() {
            self.issue(holder, clock)?.create(path)?;
            return Ok(Kept::Made);
        }
        let present = Credential::from_files(path, path)?;
        let leaf = present.chain().first().map(|der| Certificate::parse(der, 1)).transpose()?;
        let subject = format!("/O={ORGANISATION}{}/OU={}/CN={}", self.site, holder.unit(), holder.name());
        let is_ours = leaf.as_ref().is_some_and(|leaf| leaf.name() == subject && self.has_signed(leaf));
        if !is_ours {
            return Err(PkiError::Exists { path: path.to_owned() });
        }
        let same_hosts = leaf.is_some_and(|leaf| leaf.hosts() == holder.hosts());
        if same_hosts && present.not_after_us() - clock.now_us() > RENEWAL_US {
            return Ok(Kept::Good);
        }
        self.issue(holder, clock)?.replace(path)?;
        Ok(Kept::Renewed)
    }

    fn has_signed(&self, leaf: &Certificate<'_>) -> bool {
        let algorithms = crate::tls::provider().signature_verification_algorithms;
        Certificate::parse(&self.certificate, 1).is_ok_and(|own| leaf.is_signed_by(own.spki(), &algorithms))
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
