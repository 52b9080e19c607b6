//! Proxy certificates: from the leaf down the chain to the end-entity certificate.
//!
//! Owns the proxy rules. Pure. Never looks at authorities: what comes after the end-entity
//! certificate is ordinary X.509 and the store's business.
//!
//! Invariant: a chain that passes has its end-entity certificate's holder behind every level.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::UnixTime;
use x509_parser::asn1_rs::{Any, FromDer, Oid, Tag, oid};
use x509_parser::oid_registry;

use super::certificate::{Certificate, extends_by_common_name};
use super::error::{Kind, ProxyRule, TrustError};

/// id-pe-proxyCertInfo (RFC 3820 §3.8).
pub(crate) const PROXY_CERT_INFO: Oid<'static> = oid!(1.3.6.1.5.5.7.1.14);
/// The same extension in the drafts that GT3 implemented.
const DRAFT_PROXY_CERT_INFO: Oid<'static> = oid!(1.3.6.1.4.1.3536.1.222);
/// id-ppl-inheritAll (RFC 3820 §3.8.2): all rights of the issuer.
pub(crate) const INHERIT_ALL: Oid<'static> = oid!(1.3.6.1.5.5.7.21.1);
/// id-ppl-independent (RFC 3820 §3.8.2): no rights of the issuer.
const INDEPENDENT: Oid<'static> = oid!(1.3.6.1.5.5.7.21.2);
/// Globus's limited proxy: may move data, may not start jobs.
pub(crate) const LIMITED: Oid<'static> = oid!(1.3.6.1.4.1.3536.1.1.1.9);

/// What the proxies in front of an end-entity certificate amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proxies {
    /// How many there are; also the end-entity certificate's index in the chain.
    pub(super) levels: usize,
    /// Whether any of them is limited.
    pub(super) limited: bool,
}

/// Puts each proxy's signer right after it, wherever the peer sent it.
///
/// TLS wants this order (RFC 5246 §7.4.2) but real clients repeat the leaf or send the rest in the
/// order of a file (`openssl s_client -cert_chain`). Names only; [`walk`] judges.
pub(super) fn bring_in_order(chain: &mut [Certificate<'_>]) {
    for level in 0..chain.len() {
        let (before, after) = chain.split_at_mut(level + 1);
        let last = &before[level];
        if !last.is_proxy() {
            return;
        }
        let issuer = last.x509.issuer().as_raw();
        if let Some(at) = after.iter().position(|other| other.x509.subject().as_raw() == issuer) {
            after[..=at].rotate_right(1);
        }
    }
}

/// Checks every proxy level of `chain` (leaf first).
///
/// # Source
///
/// RFC 3820 §3 and §4.1; the rule on limited proxies is Globus's.
pub(super) fn walk(
    chain: &[Certificate<'_>],
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<Proxies, TrustError> {
    let mut proxies = Proxies { levels: 0, limited: false };
    for (level, proxy) in chain.iter().enumerate() {
        let broken = |rule| TrustError::Proxy { subject: proxy.name(), rule };
        let issuer = chain.get(level + 1);
        let Some(info) = proxy.extension(&PROXY_CERT_INFO) else {
            return if is_legacy(proxy, issuer) { Err(broken(ProxyRule::Legacy)) } else { Ok(proxies) };
        };
        if !info.critical {
            return Err(broken(ProxyRule::NotCritical));
        }
        let info = ProxyInfo::decode(info.value).ok_or_else(|| broken(ProxyRule::BadInfo))?;
        let issuer = issuer.ok_or_else(|| broken(ProxyRule::NoIssuer))?;
        // The user's own mistakes first: they have the most useful answers.
        proxy.check_validity(Kind::Proxy, now).map_err(|error| name_the_user(error, chain))?;
        check_level(proxy, issuer, level, &info).map_err(broken)?;
        if !proxy.is_signed_by(issuer.spki(), algorithms) {
            return Err(TrustError::BadSignature { subject: proxy.name(), issuer: issuer.name() });
        }
        if info.limited {
            proxies.limited = true;
        } else if !info.limited && is_limited(issuer) {
            return Err(broken(ProxyRule::FullFromLimited));
        }
        proxies.levels += 1;
    }
    match chain.last() {
        Some(last) => Err(TrustError::Proxy { subject: last.name(), rule: ProxyRule::NoIssuer }),
        None => Err(TrustError::Missing),
    }
}

fn check_level(
    proxy: &Certificate<'_>,
    issuer: &Certificate<'_>,
    below: usize,
    info: &ProxyInfo,
) -> Result<(), ProxyRule> {
    let x509 = &proxy.x509;
    if x509.issuer().as_raw() != issuer.x509.subject().as_raw() {
        return Err(ProxyRule::Issuer);
    }
    if !extends_by_common_name(x509.subject(), x509.issuer()) {
        return Err(ProxyRule::Subject);
    }
    if proxy.claims_authority() {
        return Err(ProxyRule::Authority);
    }
    if issuer.claims_authority() {
        return Err(ProxyRule::IssuedByAuthority);
    }
    if matches!(x509.key_usage(), Ok(Some(usage)) if usage.value.key_cert_sign()) {
        return Err(ProxyRule::KeyUsage);
    }
    if !issuer.may_sign() {
        return Err(ProxyRule::IssuerKeyUsage);
    }
    if info.path_length.is_some_and(|allowed| u64::try_from(below).is_ok_and(|below| below > allowed)) {
        return Err(ProxyRule::PathLength);
    }
    let known = [
        oid_registry::OID_X509_EXT_KEY_USAGE,
        oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE,
        oid_registry::OID_X509_EXT_BASIC_CONSTRAINTS,
        PROXY_CERT_INFO,
    ];
    for extension in x509.extensions() {
        if [oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME, oid_registry::OID_X509_EXT_ISSUER_ALT_NAME]
            .contains(&extension.oid)
        {
            return Err(ProxyRule::AlternativeName);
        }
        if extension.critical && !known.contains(&extension.oid) {
            return Err(ProxyRule::CriticalExtension);
        }
    }
    if proxy.has_short_rsa_key() {
        return Err(ProxyRule::ShortKey);
    }
    info.policy
}

/// "proxy of Alice", not "proxy of Alice/CN=1234/CN=5678".
fn name_the_user(error: TrustError, chain: &[Certificate<'_>]) -> TrustError {
    let Some(user) = chain.iter().find(|c| !c.is_proxy()).map(Certificate::name) else {
        return error;
    };
    match error {
        TrustError::Expired { what, at, .. } => TrustError::Expired { what, subject: user, at },
        TrustError::NotYetValid { what, from, .. } => TrustError::NotYetValid { what, subject: user, from },
        other => other,
    }
}

pub(super) fn is_limited(certificate: &Certificate<'_>) -> bool {
    certificate
        .extension(&PROXY_CERT_INFO)
        .and_then(|info| ProxyInfo::decode(info.value))
        .is_some_and(|info| info.limited)
}

/// GT3's draft extension, or GT2's `CN=proxy` and `CN=limited proxy` below the issuer's subject.
fn is_legacy(certificate: &Certificate<'_>, issuer: Option<&Certificate<'_>>) -> bool {
    if certificate.extension(&DRAFT_PROXY_CERT_INFO).is_some() {
        return true;
    }
    let x509 = &certificate.x509;
    let last = x509.subject().iter_common_name().last().map(|name| name.attr_value().data);
    issuer.is_some_and(|issuer| x509.issuer().as_raw() == issuer.x509.subject().as_raw())
        && extends_by_common_name(x509.subject(), x509.issuer())
        && matches!(last, Some(b"proxy" | b"limited proxy"))
}

/// A decoded proxyCertInfo extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProxyInfo {
    path_length: Option<u64>,
    limited: bool,
    /// Whether the policy language grants rights that we know how to grant.
    policy: Result<(), ProxyRule>,
}

impl ProxyInfo {
    /// Source: RFC 3820 §3.8.
    ///
    /// ```text
    /// ProxyCertInfo ::= SEQUENCE { pCPathLenConstraint INTEGER (0..MAX) OPTIONAL, proxyPolicy ProxyPolicy }
    /// ProxyPolicy ::= SEQUENCE { policyLanguage OBJECT IDENTIFIER, policy OCTET STRING OPTIONAL }
    /// ```
    fn decode(value: &[u8]) -> Option<Self> {
        let mut fields = elements(sole(value, Tag::Sequence)?.data)?.into_iter();
        let mut field = fields.next()?;
        let mut path_length = None;
        if field.tag() == Tag::Integer {
            path_length = Some(field.as_u64().ok()?);
            field = fields.next()?;
        }
        if field.tag() != Tag::Sequence || fields.next().is_some() {
            return None;
        }
        let policy = elements(field.data)?;
        let (language, rules) = match policy.as_slice() {
            [language] => (language, None),
            [language, rules] if rules.tag() == Tag::OctetString => (language, Some(rules)),
            _ => return None,
        };
        let language = language.as_oid().ok()?;
        let limited = language == LIMITED;
        let policy = if language == INHERIT_ALL || limited {
            // The two languages say everything themselves; text beside them is a restriction.
            if rules.is_some_and(|rules| !rules.data.is_empty()) { Err(ProxyRule::UnknownPolicy) } else { Ok(()) }
        } else if language == INDEPENDENT {
            Err(ProxyRule::Independent)
        } else {
            Err(ProxyRule::UnknownPolicy)
        };
        Some(Self { path_length, limited, policy })
    }
}

/// The only element of `der`, if it has this tag.
fn sole(der: &[u8], tag: Tag) -> Option<Any<'_>> {
    let (rest, any) = Any::from_der(der).ok()?;
    (rest.is_empty() && any.tag() == tag).then_some(any)
}

/// The elements inside a constructed value. At most a handful is meaningful here.
fn elements(mut content: &[u8]) -> Option<Vec<Any<'_>>> {
    let mut found = Vec::new();
    while !content.is_empty() {
        let (rest, any) = Any::from_der(content).ok()?;
        found.push(any);
        if found.len() > 4 {
            return None;
        }
        content = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INHERIT: &[u8] = &[0x30, 12, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1];

    #[test]
    fn proxy_cert_info_decodes_with_and_without_a_path_length() {
        assert_eq!(ProxyInfo::decode(INHERIT), Some(ProxyInfo { path_length: None, limited: false, policy: Ok(()) }));
        let limited = [0x30, 18, 2, 1, 3, 0x30, 13, 6, 11, 0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];
        let limited = &limited[..];
        assert_eq!(ProxyInfo::decode(limited), Some(ProxyInfo { path_length: Some(3), limited: true, policy: Ok(()) }));
    }

    #[test]
    fn proxy_cert_info_cut_anywhere_or_with_a_tail_does_not_decode() {
        for cut in 0..INHERIT.len() {
            assert_eq!(ProxyInfo::decode(&INHERIT[..cut]), None, "cut at {cut}");
        }
        assert_eq!(ProxyInfo::decode(&[INHERIT, &[0]].concat()), None);
        // A negative path length is not "no limit".
        assert_eq!(ProxyInfo::decode(&[0x30, 15, 2, 1, 0xff, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1]), None);
    }

    #[test]
    fn a_policy_text_beside_inherit_all_is_a_restriction_we_do_not_know() {
        let with_text = [0x30, 15, 0x30, 13, 6, 8, 0x2b, 6, 1, 5, 5, 7, 0x15, 1, 4, 1, b'x'];
        assert_eq!(ProxyInfo::decode(&with_text).unwrap().policy, Err(ProxyRule::UnknownPolicy));
    }
}
