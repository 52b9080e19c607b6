//! Chains for tests: good ones, and bad in exactly one way.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose as Ku, RevokedCertParams, SerialNumber,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use time::{Duration, OffsetDateTime};

use super::proxy::{ProxyCertificate, below, extension, proxy_cert_info};
use super::random_u64;
use crate::Clock;
use crate::tls::Credential;
use crate::trust::{Certificate, INHERIT_ALL};

/// 2026-11-30T12:00:00Z: the present in tests of the pure verifier.
pub(crate) const NOON: i64 = 1_796_040_000;

pub(crate) fn noon() -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOON as u64))
}

pub(crate) fn clock() -> Clock {
    Clock::settable(NOON * 1_000_000)
}

pub(crate) fn at(hours: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOON).unwrap() + Duration::hours(hours)
}

/// A name of the attributes O, OU (unless empty) and CN.
pub(crate) fn params(organisation: &str, unit: &str, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organisation);
    if !unit.is_empty() {
        params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = at(-24);
    params.not_after = at(24);
    params
}

/// A certification authority of the test.
pub(crate) struct TestCa {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

pub(crate) fn authority(name: &str) -> CertificateParams {
    let mut params = params("Grid", "", name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![Ku::KeyCertSign, Ku::CrlSign];
    params
}

impl TestCa {
    pub(crate) fn root(name: &str) -> Self {
        Self::root_of(authority(name))
    }

    pub(crate) fn root_of(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { der, issuer: Issuer::new(params, key) }
    }

    /// An authority below this one.
    pub(crate) fn below(&self, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self { der, issuer: Issuer::new(params, key) }
    }

    /// A certificate of this authority, and `links` above it.
    pub(crate) fn issue(&self, params: &CertificateParams, links: &[&Self]) -> Credential {
        let key = KeyPair::generate().unwrap();
        let mut chain = vec![params.signed_by(&key, &self.issuer).unwrap().der().clone()];
        chain.extend(links.iter().map(|link| link.der.clone()));
        credential(chain, &key)
    }

    pub(crate) fn user(&self, name: &str) -> Credential {
        self.issue(&params("Grid", "", name), &[])
    }

    /// A revocation list that holds for `hours` from [`NOON`].
    pub(crate) fn revocation_list(&self, revoked: &[&CertificateDer<'_>], hours: i64) -> String {
        self.revocation_list_of(at(-24), revoked, hours)
    }

    fn revocation_list_of(&self, this_update: OffsetDateTime, revoked: &[&CertificateDer<'_>], hours: i64) -> String {
        let params = CertificateRevocationListParams {
            this_update,
            next_update: at(hours),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .iter()
                .map(|der| RevokedCertParams {
                    serial_number: SerialNumber::from_slice(Certificate::parse(der, 1).unwrap().x509.raw_serial()),
                    revocation_time: at(-1),
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        super::pem("X509 CRL", params.signed_by(&self.issuer).unwrap().der())
    }

    /// A list signed although the key usage forbids it.
    pub(crate) fn list_despite_key_usage(&self) -> String {
        let key = KeyPair::try_from(self.issuer.key().serialized_der()).unwrap();
        let mut params = authority("CA");
        params.key_usages = vec![Ku::CrlSign];
        Self { der: self.der.clone(), issuer: Issuer::new(params, key) }.revocation_list(&[], 1)
    }

    pub(crate) fn pem(&self) -> String {
        super::pem("CERTIFICATE", &self.der)
    }
}

pub(crate) fn credential(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Credential {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Credential::new(chain, key, "test", "test").unwrap()
}

/// A list made after those of [`TestCa::revocation_list`], good for an hour.
pub(crate) fn later_list(ca: &TestCa, revoked: &[&CertificateDer<'_>]) -> String {
    ca.revocation_list_of(at(-12), revoked, 1)
}

/// A proxy that is good unless a test says otherwise.
pub(crate) struct ProxySpec {
    pub(crate) common_name: String,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(crate) extensions: Vec<Vec<u8>>,
    /// The issuer field; the issuer's subject if `None`.
    pub(crate) issuer: Option<Vec<u8>>,
    /// The subject field; the issuer's subject and `common_name` if `None`.
    pub(crate) subject: Option<Vec<u8>>,
}

impl Default for ProxySpec {
    fn default() -> Self {
        Self {
            common_name: "1234".to_owned(),
            not_before: at(-1),
            not_after: at(12),
            extensions: vec![proxy_cert_info(true, None, &INHERIT_ALL), key_usage(0xa0)],
            issuer: None,
            subject: None,
        }
    }
}

impl ProxySpec {
    pub(crate) fn with_info(
        critical: bool,
        path_length: Option<u64>,
        language: &x509_parser::asn1_rs::Oid<'_>,
    ) -> Self {
        Self { extensions: vec![proxy_cert_info(critical, path_length, language)], ..Self::default() }
    }

    pub(crate) fn and(mut self, extension: Vec<u8>) -> Self {
        self.extensions.push(extension);
        self
    }

    /// Signed by `signer`'s key, named below `signer`.
    pub(crate) fn signed_by(&self, signer: &Credential) -> Credential {
        self.signed_with(signer, signer)
    }

    /// Named below `parent`, but signed by the key of `signer`.
    pub(crate) fn signed_with(&self, parent: &Credential, signer: &Credential) -> Credential {
        let key = KeyPair::generate().unwrap();
        let parent_leaf = Certificate::parse(&parent.chain()[0], 1).unwrap();
        let parent_name = parent_leaf.x509.subject().as_raw();
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        let proxy = ProxyCertificate {
            serial: random_u64() >> 1,
            issuer: self.issuer.as_deref().unwrap_or(parent_name),
            subject: self.subject.clone().unwrap_or_else(|| below(parent_name, &self.common_name).unwrap()),
            not_before: self.not_before,
            not_after: self.not_after,
            spki: &spki,
            extensions: self.extensions.clone(),
        };
        let mut chain = vec![proxy.sign(signer.certified().key.as_ref()).unwrap()];
        chain.extend(parent.chain().iter().cloned());
        credential(chain, &key)
    }
}

/// A key usage extension with these bits (of the first byte).
pub(crate) fn key_usage(bits: u8) -> Vec<u8> {
    extension(&[0x55, 0x1d, 0x0f], true, &[3, 2, bits.trailing_zeros() as u8, bits])
}
