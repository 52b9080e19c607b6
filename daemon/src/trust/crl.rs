//! One revocation list: who may read it, until when it holds, and whom it names.
//!
//! Owns the revoked serial numbers of one authority. Pure. Never believes a list it does not
//! understand completely: an unknown critical extension is an error, not a detail.

use std::collections::HashSet;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::UnixTime;
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::oid_registry::{OID_X509_EXT_DELTA_CRL_INDICATOR, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT};
use x509_parser::revocation_list::CertificateRevocationList;

use super::certificate::signature_holds;
use super::error::{TrustError, seconds, timestamp};

/// A revocation list whose signature was checked.
#[derive(Clone, Debug)]
pub(super) struct Crl {
    this_update: i64,
    next_update: i64,
    serials: HashSet<Box<[u8]>>,
}

impl Crl {
    /// The DER of the issuer's name, to find the authority a list belongs to.
    pub(super) fn issuer_of(der: &[u8]) -> Result<Vec<u8>, String> {
        let (_, list) = CertificateRevocationList::from_der(der)
            .map_err(|error| format!("it is not a revocation list: {error}"))?;
        Ok(list.issuer().as_raw().to_vec())
    }

    /// Reads `der` and checks that the key in `spki` signed it.
    pub(super) fn read(der: &[u8], spki: &[u8], algorithms: &WebPkiSupportedAlgorithms) -> Result<Self, String> {
        let (rest, list) = CertificateRevocationList::from_der(der)
            .map_err(|error| format!("it is not a revocation list: {error}"))?;
        if !rest.is_empty() {
            return Err("bytes follow the revocation list".to_owned());
        }
        let signed = signature_holds(
            spki,
            algorithms,
            &list.signature_algorithm,
            list.tbs_cert_list.as_ref(),
            &list.signature_value.data,
        );
        if !signed || list.signature_algorithm != list.tbs_cert_list.signature {
            return Err("its signature is not the authority's".to_owned());
        }
        for extension in list.extensions() {
            if extension.oid == OID_X509_EXT_DELTA_CRL_INDICATOR {
                return Err("it is a delta list; fetch the full one".to_owned());
            }
            if extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT {
                if is_partial(extension.value) {
                    return Err("it covers only some of the authority's certificates; fetch the full one".to_owned());
                }
            } else if extension.critical {
                return Err(format!("its critical extension {} is not understood", extension.oid));
            }
        }
        let next_update = list.next_update().ok_or("it does not say until when it holds")?.timestamp();
        let mut serials = HashSet::new();
        for revoked in list.iter_revoked_certificates() {
            if revoked.extensions().iter().any(|extension| extension.critical) {
                return Err("an entry has a critical extension that is not understood".to_owned());
            }
            serials.insert(shortest(revoked.raw_serial()).into());
        }
        Ok(Self { this_update: list.last_update().timestamp(), next_update, serials })
    }

    /// Whether this list was made later than `other`.
    pub(super) const fn is_newer_than(&self, other: &Self) -> bool {
        self.this_update > other.this_update
    }

    /// Whether the certificate with `serial` may still be used at `now`.
    pub(super) fn check(
        &self,
        serial: &[u8],
        subject: String,
        issuer: String,
        now: UnixTime,
    ) -> Result<(), TrustError> {
        if self.serials.contains(shortest(serial)) {
            return Err(TrustError::Revoked { subject, issuer });
        }
        if seconds(now) < self.this_update {
            let from = timestamp(self.this_update);
            let problem = format!("its revocation list is valid from {from} only; compare the clocks of both machines");
            return Err(TrustError::Authority { issuer, problem });
        }
        if seconds(now) > self.next_update {
            return Err(TrustError::CrlExpired { issuer, at: timestamp(self.next_update) });
        }
        Ok(())
    }
}

/// A serial number without leading zero bytes: lists and certificates may encode it differently.
fn shortest(serial: &[u8]) -> &[u8] {
    &serial[serial.iter().take_while(|byte| **byte == 0).count()..]
}

/// Whether an issuingDistributionPoint limits the list. Only field `[0]`, the point's name, does
/// not (RFC 5280 §5.2.5); one that cannot be read counts as a limit.
fn is_partial(value: &[u8]) -> bool {
    let Ok((_, point)) = Any::from_der(value) else {
        return true;
    };
    let mut fields = point.data;
    while !fields.is_empty() {
        match Any::from_der(fields) {
            Ok((rest, field)) if field.tag().0 == 0 => fields = rest,
            _ => return true,
        }
    }
    false
}
