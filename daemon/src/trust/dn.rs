//! Distinguished names as grid software writes them: `/C=CH/O=Site/CN=Alice`.
//!
//! Owns the text form and its normalisation. Never compares names that only look alike: a
//! certificate whose text form could be read in two ways has no [`Dn`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use x509_parser::x509::X509Name;

/// Attribute types OpenSSL has a short name for. Others are written as dotted numbers.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.97", "organizationIdentifier"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
];

/// Older spellings that grid-mapfiles and signing policies still use, and today's.
const OLD_SPELLINGS: &[(&str, &str)] =
    &[("Email", "emailAddress"), ("E", "emailAddress"), ("USERID", "UID"), ("S", "ST")];

/// A subject name in OpenSSL's one-line form, spelled in one way.
///
/// Two certificates have equal `Dn`s exactly if their names have the same attribute types and
/// values in the same order. Comparison is by byte; case matters.
///
/// # Source
///
/// OpenSSL `X509_NAME_oneline`: bytes outside `0x20..=0x7e` are written `\xHH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Dn(String);

/// One attribute of a name, for instance `OU` and `gateway`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// OpenSSL's short name, or the dotted object identifier.
    pub kind: String,
    /// The value, escaped as in [`Dn`].
    pub value: String,
}

/// Why a text or a certificate has no [`Dn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotADn {
    /// The text does not begin with `/KEY=`.
    #[error("{text:?} is not a subject name; write it as openssl does: \"/O=Site/CN=Name\"")]
    Form {
        /// The text as given.
        text: String,
    },
    /// An attribute's value contains `/KEY=`, so that its text reads like two attributes.
    #[error("the value {value:?} in a subject name contains \"/KEY=\" and could be mistaken for other attributes")]
    Ambiguous {
        /// The offending value.
        value: String,
    },
}

impl Dn {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a certificate's name, attribute by attribute.
    pub(super) fn attributes_of(name: &X509Name<'_>) -> Result<Vec<Attribute>, NotADn> {
        name.iter_attributes()
            .map(|attribute| {
                let oid = attribute.attr_type().to_id_string();
                let kind = SHORT_NAMES
                    .iter()
                    .find(|(dotted, _)| *dotted == oid)
                    .map_or(oid.clone(), |(_, short)| (*short).to_owned());
                let value = escape(attribute.attr_value().data);
                if next_attribute(&value, 0).is_some() {
                    return Err(NotADn::Ambiguous { value });
                }
                Ok(Attribute { kind, value })
            })
            .collect()
    }

    /// The one-line form of attributes that came from [`Self::attributes_of`].
    pub(super) fn of(attributes: &[Attribute]) -> Self {
        Self(attributes.iter().map(|a| format!("/{}={}", a.kind, a.value)).collect())
    }

    /// A name for messages, whatever it contains. Not for decisions.
    pub(super) fn display_of(name: &X509Name<'_>) -> String {
        match Self::attributes_of(name) {
            Ok(attributes) if !attributes.is_empty() => Self::of(&attributes).0,
            Ok(_) => "(no subject)".to_owned(),
            Err(error) => format!("({error})"),
        }
    }
}

/// Reads the text form, with older spellings brought up to date.
impl FromStr for Dn {
    type Err = NotADn;

    fn from_str(text: &str) -> Result<Self, NotADn> {
        if next_attribute(text, 0).is_none_or(|(slash, _)| slash != 0) {
            return Err(NotADn::Form { text: text.to_owned() });
        }
        let (mut normal, mut at) = (String::with_capacity(text.len()), 0);
        while let Some((slash, equals)) = next_attribute(text, at) {
            let end = next_attribute(text, equals).map_or(text.len(), |(next, _)| next);
            let kind = &text[slash + 1..equals];
            let kind =
                OLD_SPELLINGS.iter().find(|(old, _)| old.eq_ignore_ascii_case(kind)).map_or(kind, |(_, new)| new);
            normal.push('/');
            normal.push_str(kind);
            normal.push_str(&text[equals..end]);
            at = end;
        }
        Ok(Self(normal))
    }
}

impl<'de> Deserialize<'de> for Dn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Dn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the next `/KEY=` is, at or after byte `from`: positions of its slash and equals sign.
fn next_attribute(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    (from..bytes.len()).filter(|at| bytes[*at] == b'/').find_map(|slash| {
        let key = bytes[slash + 1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'.').count();
        let equals = slash + 1 + key;
        (key > 0 && bytes.get(equals) == Some(&b'=')).then_some((slash, equals))
    })
}

/// Printable ASCII as it is, everything else as `\xHH`.
fn escape(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if (b' '..=b'~').contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "\\x{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_spellings_become_todays() {
        let old: Dn = "/C=CH/E=a@b.ch/USERID=7/CN=host/gate.example".parse().unwrap();
        assert_eq!(old.as_str(), "/C=CH/emailAddress=a@b.ch/UID=7/CN=host/gate.example");
        assert_eq!("/CN=A/Email=x".parse::<Dn>().unwrap(), "/CN=A/emailAddress=x".parse().unwrap());
    }

    #[test]
    fn a_text_that_is_not_a_subject_name_is_refused() {
        for text in ["", "Alice", "CN=Alice", "/Alice", "/=x", "x/CN=Alice"] {
            assert!(text.parse::<Dn>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn reading_the_text_form_twice_changes_nothing() {
        for text in ["/CN=a/b", "/CN=/", "/C=/O=//CN==", "/1.2.3=x/CN=\\xC3\\xA9"] {
            let once: Dn = text.parse().unwrap();
            assert_eq!(once.as_str().parse::<Dn>().unwrap(), once);
        }
    }
}
