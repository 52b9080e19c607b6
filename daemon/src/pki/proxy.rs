//! Makes RFC 3820 proxy certificates: for users' own use, and for keys that others hold.
//!
//! Owns the encoding of a proxy certificate. Pure but for random numbers and new keys. Never makes
//! a full proxy from a limited one, nor one that outlives its issuer.

use std::time::Duration;

use rustls::SignatureScheme;
use rustls::sign::SigningKey;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::asn1_rs::Oid;

use super::{Issued, PkiError, der, random_u64};
use crate::tls::Credential;
use crate::trust::{Certificate, INHERIT_ALL, LIMITED, PROXY_CERT_INFO, TrustError};
use crate::{Clock, Secret};

/// What a proxy may do and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyOptions {
    /// Valid from five minutes ago until this far from now, or until its issuer expires.
    pub lifetime: Duration,
    /// May move data, may not start jobs. A proxy of a limited proxy is limited whatever this says.
    pub limited: bool,
    /// How many proxies may be made from it, one from the other; any number if `None`.
    pub path_length: Option<u64>,
}

impl Default for ProxyOptions {
    /// Twelve hours, full, any number of levels: what `grid-proxy-init` makes.
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(12 * 3600), limited: false, path_length: None }
    }
}

/// Clocks of two machines may differ by so much.
const SKEW: time::Duration = time::Duration::minutes(5);

/// Makes a new key and a proxy certificate for it, signed by `issuer`: a person's certificate or
/// another proxy.
///
/// # Errors
///
/// If `issuer` is an authority or has expired, or its key cannot sign certificates.
pub fn make_proxy(issuer: &Credential, options: ProxyOptions, clock: &Clock) -> Result<Issued, PkiError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let secret = Secret::new(key.serialize_der());
    let spki = {
        use rcgen::PublicKeyData as _;
        key.subject_public_key_info()
    };
    let certificate = sign_proxy(issuer, &spki, options, clock)?;
    let mut chain = vec![certificate];
    chain.extend(issuer.chain().iter().cloned());
    Ok(Issued { chain, key: secret })
}

/// Signs a proxy certificate for the public key in `spki` (DER), whose private half somebody else
/// holds: delegation. Gives the certificate alone; the issuer's chain follows it.
///
/// # Errors
///
/// As [`make_proxy`].
pub fn sign_proxy(
    issuer: &Credential,
    spki: &[u8],
    options: ProxyOptions,
    clock: &Clock,
) -> Result<CertificateDer<'static>, PkiError> {
    let leaf = issuer.chain().first().ok_or(TrustError::Missing)?;
    let leaf = Certificate::parse(leaf, 1)?;
    if leaf.claims_authority() {
        return Err(PkiError::AuthorityProxy { subject: leaf.name() });
    }
    let now = super::time_at(clock);
    let lifetime = time::Duration::try_from(options.lifetime).unwrap_or(time::Duration::MAX);
    let wanted = now.checked_add(lifetime).unwrap_or(now);
    let issuer_end = super::time_of(issuer.not_after_us().div_euclid(1_000_000));
    if issuer_end <= now {
        return Err(PkiError::IssuerExpired { subject: leaf.name() });
    }
    // 63 random bits: unique among the issuer's proxies, as RFC 3820 §3.3 asks.
    let serial = random_u64() >> 1;
    let language = if options.limited || leaf.is_limited_proxy() { LIMITED } else { INHERIT_ALL };
    ProxyCertificate {
        serial,
        issuer: leaf.x509.subject().as_raw(),
        subject: below(leaf.x509.subject().as_raw(), &serial.to_string())?,
        not_before: now - SKEW,
        not_after: wanted.min(issuer_end),
        spki,
        extensions: vec![
            proxy_cert_info(true, options.path_length, &language),
            // digitalSignature and keyEncipherment.
            extension(&[0x55, 0x1d, 0x0f], true, &[3, 2, 5, 0xa0]),
        ],
    }
    .sign(issuer.certified().key.as_ref())
}

/// The fields of a proxy certificate before it is signed.
pub(crate) struct ProxyCertificate<'a> {
    pub(crate) serial: u64,
    /// DER of the issuer's subject, byte for byte.
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: Vec<u8>,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(crate) spki: &'a [u8],
    /// Each a DER Extension.
    pub(crate) extensions: Vec<Vec<u8>>,
}

impl ProxyCertificate<'_> {
    /// Source: RFC 5280 §4.1.
    pub(crate) fn sign(&self, key: &dyn SigningKey) -> Result<CertificateDer<'static>, PkiError> {
        let (algorithm, signer) = ALGORITHMS
            .iter()
            .find_map(|(scheme, algorithm)| Some((*algorithm, key.choose_scheme(&[*scheme])?)))
            .ok_or(PkiError::Algorithm)?;
        let extensions: Vec<&[u8]> = self.extensions.iter().map(Vec::as_slice).collect();
        let body = der::tlv(
            der::SEQUENCE,
            &[
                &der::tlv(der::CONTEXT_0, &[&der::unsigned(2)]), // version 3
                &der::unsigned(self.serial),
                algorithm,
                self.issuer,
                &der::tlv(der::SEQUENCE, &[&der::time(self.not_before), &der::time(self.not_after)]),
                &self.subject,
                self.spki,
                &der::tlv(der::CONTEXT_3, &[&der::tlv(der::SEQUENCE, &extensions)]),
            ],
        );
        let signature = signer.sign(&body).map_err(|error| PkiError::Sign { reason: error.to_string() })?;
        let certificate = der::tlv(der::SEQUENCE, &[&body, algorithm, &der::tlv(der::BIT_STRING, &[&[0], &signature])]);
        Ok(CertificateDer::from(certificate))
    }
}

/// AlgorithmIdentifiers of the signatures proxies are made with (RFC 3279, RFC 5758, RFC 8410).
const ALGORITHMS: &[(SignatureScheme, &[u8])] = &[
    (SignatureScheme::ECDSA_NISTP256_SHA256, &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]),
    (SignatureScheme::ECDSA_NISTP384_SHA384, &[0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3]),
    (SignatureScheme::RSA_PKCS1_SHA256, &[0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0b, 5, 0]),
    (SignatureScheme::ED25519, &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70]),
];

/// The name `issuer` (DER) with one more common name.
pub(crate) fn below(issuer: &[u8], common_name: &str) -> Result<Vec<u8>, PkiError> {
    use x509_parser::asn1_rs::{Any, FromDer as _};
    let (_, name) = Any::from_der(issuer).map_err(|error| PkiError::Sign { reason: error.to_string() })?;
    let oid = der::tlv(der::OBJECT_IDENTIFIER, &[&[0x55, 4, 3]]);
    let attribute = der::tlv(der::SEQUENCE, &[&oid, &der::tlv(der::PRINTABLE_STRING, &[common_name.as_bytes()])]);
    Ok(der::tlv(der::SEQUENCE, &[name.data, &der::tlv(der::SET, &[&attribute])]))
}

/// A proxyCertInfo extension (RFC 3820 §3.8).
pub(crate) fn proxy_cert_info(critical: bool, path_length: Option<u64>, language: &Oid<'_>) -> Vec<u8> {
    let policy = der::tlv(der::SEQUENCE, &[&der::tlv(der::OBJECT_IDENTIFIER, &[language.as_bytes()])]);
    let path_length = path_length.map(der::unsigned).unwrap_or_default();
    extension(PROXY_CERT_INFO.as_bytes(), critical, &der::tlv(der::SEQUENCE, &[&path_length, &policy]))
}

/// An Extension; `oid` is the identifier's content, `value` the DER inside the octet string.
pub(crate) fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[1, 1, 0xff] } else { &[] };
    der::tlv(
        der::SEQUENCE,
        &[&der::tlv(der::OBJECT_IDENTIFIER, &[oid]), critical, &der::tlv(der::OCTET_STRING, &[value])],
    )
}
