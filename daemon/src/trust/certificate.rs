//! One parsed certificate and the questions the rules ask of it.
//!
//! Owns nothing: borrows the DER. Pure. Never panics on bytes from a peer.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::asn1_rs::{Any, FromDer, Oid};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::oid_registry;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{AlgorithmIdentifier, X509Name, X509Version};

use super::dn::{Attribute, Dn};
use super::error::{Kind, TrustError, seconds, timestamp};

/// A certificate of the chain that is being judged.
pub(crate) struct Certificate<'a> {
    pub(super) der: &'a CertificateDer<'a>,
    pub(crate) x509: X509Certificate<'a>,
}

impl<'a> Certificate<'a> {
    /// Reads all of `der`; bytes after the certificate are an error. `position` counts from 1.
    pub(crate) fn parse(der: &'a CertificateDer<'a>, position: usize) -> Result<Self, TrustError> {
        let malformed = |reason: String| TrustError::Malformed { position, reason };
        let (rest, x509) = X509Certificate::from_der(der).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes follow it", rest.len())));
        }
        if !unsigned_parts_are_plain(der, x509.tbs_certificate.as_ref()) {
            return Err(malformed("what its signature does not cover is not plain DER".to_owned()));
        }
        // The parser keeps an extension it cannot read, and leaves that to us.
        if let Some(bad) = x509
            .extensions()
            .iter()
            .find(|e| e.critical && matches!(e.parsed_extension(), ParsedExtension::ParseError { .. }))
        {
            return Err(malformed(format!("its critical extension {} does not decode", bad.oid)));
        }
        x509.extensions_map().map_err(|_| malformed("an extension occurs twice".to_owned()))?;
        Ok(Self { der, x509 })
    }

    /// The subject, for messages only.
    pub(crate) fn name(&self) -> String {
        Dn::display_of(self.x509.subject())
    }

    /// The issuer, for messages only.
    pub(super) fn issuer_name(&self) -> String {
        Dn::display_of(self.x509.issuer())
    }

    /// The subject, for decisions: an empty or ambiguous one is refused.
    pub(super) fn attributes(&self) -> Result<Vec<Attribute>, TrustError> {
        let refused = |reason: String| TrustError::Refused { subject: self.name(), reason };
        let attributes = Dn::attributes_of(self.x509.subject()).map_err(|error| refused(error.to_string()))?;
        if attributes.is_empty() { Err(refused("it has no subject name".to_owned())) } else { Ok(attributes) }
    }

    pub(super) fn check_validity(&self, what: Kind, now: UnixTime) -> Result<(), TrustError> {
        let validity = self.x509.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        if seconds(now) > until {
            return Err(TrustError::Expired { what, subject: self.name(), at: timestamp(until) });
        }
        if seconds(now) < from {
            return Err(TrustError::NotYetValid { what, subject: self.name(), from: timestamp(from) });
        }
        Ok(())
    }

    /// Seconds since the epoch after which it is worthless.
    pub(crate) fn not_after(&self) -> i64 {
        self.x509.validity().not_after.timestamp()
    }

    pub(super) fn extension(&self, oid: &Oid<'_>) -> Option<&X509Extension<'a>> {
        self.x509.extensions().iter().find(|extension| extension.oid == *oid)
    }

    /// CA:TRUE, and keyCertSign where there is a key usage (RFC 5280 §4.2.1.3, §4.2.1.9).
    pub(super) fn may_issue(&self) -> bool {
        self.claims_authority() && !matches!(self.x509.key_usage(), Ok(Some(usage)) if !usage.value.key_cert_sign())
    }

    /// Whether its key may sign revocation lists; yes where nothing is said.
    pub(super) fn may_sign_lists(&self) -> bool {
        !matches!(self.x509.key_usage(), Ok(Some(usage)) if !usage.value.crl_sign())
    }

    /// From before extensions, so that it cannot say CA:TRUE.
    pub(super) fn is_version_1(&self) -> bool {
        self.x509.version() == X509Version::V1
    }

    pub(crate) fn claims_authority(&self) -> bool {
        matches!(self.x509.basic_constraints(), Ok(Some(constraints)) if constraints.value.ca)
    }

    /// How many authorities may stand between it and an end-entity certificate, if it says.
    pub(super) fn path_length(&self) -> Option<u32> {
        self.x509.basic_constraints().ok().flatten()?.value.path_len_constraint
    }

    /// Whether its key may make signatures that are not on certificates; yes where nothing is said.
    pub(super) fn may_sign(&self) -> bool {
        !matches!(self.x509.key_usage(), Ok(Some(usage)) if !usage.value.digital_signature())
    }

    /// The DER of its public key, with the outer SEQUENCE.
    pub(crate) fn spki(&self) -> &'a [u8] {
        self.x509.tbs_certificate.subject_pki.raw
    }

    /// Whether it says it is a proxy (RFC 3820).
    pub(super) fn is_proxy(&self) -> bool {
        self.extension(&super::PROXY_CERT_INFO).is_some()
    }

    /// Whether it is a proxy that is limited itself.
    pub(crate) fn is_limited_proxy(&self) -> bool {
        super::proxy::is_limited(self)
    }

    pub(super) fn has_short_rsa_key(&self) -> bool {
        matches!(self.x509.public_key().parsed(), Ok(PublicKey::RSA(key)) if key.key_size() < 2048)
    }

    /// Whether the key in `spki` made this certificate's signature.
    pub(crate) fn is_signed_by(&self, spki: &[u8], algorithms: &WebPkiSupportedAlgorithms) -> bool {
        let x509 = &self.x509;
        signature_holds(
            spki,
            algorithms,
            &x509.signature_algorithm,
            x509.tbs_certificate.as_ref(),
            &x509.signature_value.data,
        )
    }

    /// The host names and addresses it is for, as texts.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let Ok(Some(names)) = self.x509.subject_alternative_name() else {
            return Vec::new();
        };
        names
            .value
            .general_names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some((*name).to_owned()),
                GeneralName::IPAddress(bytes) => address(bytes),
                _ => None,
            })
            .collect()
    }
}

/// Whether everything around the signed part `tbs` is encoded in the one right way, and names the
/// same algorithm as the signed part does (RFC 5280 §4.1.1.2). Otherwise one certificate would have
/// many encodings, and many fingerprints; the parser does not look at all tag bits.
fn unsigned_parts_are_plain(der: &[u8], tbs: &[u8]) -> bool {
    fn skip(der: &[u8]) -> Option<&[u8]> {
        Any::from_der(der).ok().map(|(rest, _)| rest)
    }
    let algorithm_in_tbs = || {
        let (_, content) = Any::from_der(tbs).ok()?;
        let after_version = if content.data.first() == Some(&0xa0) { skip(content.data)? } else { content.data };
        let algorithm = skip(after_version)?;
        Some(&algorithm[..algorithm.len() - skip(algorithm)?.len()])
    };
    let after_tbs = Any::from_der(der).ok().and_then(|(_, outer)| outer.data.strip_prefix(tbs));
    let after_algorithm = algorithm_in_tbs().and_then(|algorithm| after_tbs?.strip_prefix(algorithm));
    // A BIT STRING of whole bytes, and nothing after it.
    let is_plain_signature = |signature: &[u8]| {
        Any::from_der(signature)
            .is_ok_and(|(rest, bits)| rest.is_empty() && signature[0] == 0x03 && bits.data.first() == Some(&0))
    };
    der.first() == Some(&0x30) && after_algorithm.is_some_and(is_plain_signature)
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|octets| std::net::Ipv4Addr::from(octets).to_string()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|octets| std::net::Ipv6Addr::from(octets).to_string()),
        _ => None,
    }
}

/// Whether `signature` over `message` was made by the key in `spki` (with its outer SEQUENCE).
///
/// Works on the bare key, so that certificates webpki refuses (proxies) can be checked too.
pub(super) fn signature_holds(
    spki: &[u8],
    algorithms: &WebPkiSupportedAlgorithms,
    claimed: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let spki = SubjectPublicKeyInfoDer::from(spki);
    let Ok(key) = webpki::RawPublicKeyEntity::try_from(&spki) else {
        return false;
    };
    algorithms
        .all
        .iter()
        // An algorithm identifier's content begins with its OID; parameters are webpki's to check
        // by trying the few algorithms that share one (RSA-PSS, ECDSA curves).
        .filter(|algorithm| {
            Any::from_der(algorithm.signature_alg_id().as_ref())
                .is_ok_and(|(_, oid)| oid.data == claimed.algorithm.as_bytes())
        })
        .any(|algorithm| key.verify_signature(*algorithm, message, signature).is_ok())
}

/// Whether `subject` is `issuer` and exactly one more common name, compared as encoded.
pub(super) fn extends_by_common_name(subject: &X509Name<'_>, issuer: &X509Name<'_>) -> bool {
    let content = |name: &X509Name<'_>| Any::from_der(name.as_raw()).ok().map(|(_, any)| any.data.to_vec());
    let (Some(longer), Some(shorter)) = (content(subject), content(issuer)) else {
        return false;
    };
    if !longer.starts_with(&shorter) || subject.iter_rdn().count() != issuer.iter_rdn().count() + 1 {
        return false;
    }
    let Some(last) = subject.iter_rdn().last() else {
        return false;
    };
    let mut attributes = last.iter();
    let is_common_name = attributes.next().is_some_and(|a| *a.attr_type() == oid_registry::OID_X509_COMMON_NAME);
    is_common_name && attributes.next().is_none()
}
