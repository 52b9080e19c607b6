//! The eight digits by which OpenSSL finds an authority in a folder.
//!
//! Owns the canonical form of a name that the digest is taken over. Pure.

use aws_lc_rs::digest;
use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::Tag;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::der;
use crate::trust::{Certificate, TrustError};

/// The subject's hash as `openssl x509 -hash` prints it.
///
/// # Errors
///
/// If `certificate` cannot be read.
///
/// # Source
///
/// OpenSSL `X509_NAME_hash_ex` and `x509_name_canon`: SHA-1 over the relative names, strings as
/// UTF-8 in lower case with single spaces; the first four bytes, little-endian.
pub fn subject_hash(certificate: &CertificateDer<'_>) -> Result<String, TrustError> {
    let parsed = Certificate::parse(certificate, 1)?;
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &canonical(parsed.x509.subject()));
    let mut first = [0; 4];
    first.copy_from_slice(&digest.as_ref()[..4]);
    Ok(format!("{:08x}", u32::from_le_bytes(first)))
}

fn canonical(name: &X509Name<'_>) -> Vec<u8> {
    name.iter_rdn()
        .flat_map(|rdn| {
            let mut attributes: Vec<Vec<u8>> = rdn.iter().map(canonical_attribute).collect();
            attributes.sort();
            let attributes: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
            der::tlv(der::SET, &attributes)
        })
        .collect()
}

fn canonical_attribute(attribute: &AttributeTypeAndValue<'_>) -> Vec<u8> {
    let value = attribute.attr_value();
    let text = match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::VisibleString => {
            Some(String::from_utf8_lossy(value.data).into_owned())
        }
        Tag::T61String => Some(value.data.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => Some(utf16(value.data)),
        _ => None,
    };
    let value = match text {
        Some(text) => {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            der::tlv(der::UTF8_STRING, &[words.join(" ").to_ascii_lowercase().as_bytes()])
        }
        // Not a string: as it is. Short forms of tag and length are all that names contain.
        None => der::tlv(value.tag().0.try_into().unwrap_or(der::OCTET_STRING), &[value.data]),
    };
    let oid = der::tlv(der::OBJECT_IDENTIFIER, &[attribute.attr_type().as_bytes()]);
    der::tlv(der::SEQUENCE, &[&oid, &value])
}

fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
