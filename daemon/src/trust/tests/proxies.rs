//! Proxies: RFC 3820, and the rules of the grid.

use rcgen::KeyUsagePurpose as Ku;
use x509_parser::asn1_rs::oid;

use super::*;
use crate::pki::extension;
use crate::pki::testing::key_usage;

/// The rule that a chain of Alice and one proxy breaks.
fn broken_rule(proxy: &ProxySpec) -> ProxyRule {
    let ca = TestCa::root("CA");
    match refusal(&store(&[&ca]), &proxy.signed_by(&ca.user("Alice"))) {
        TrustError::Proxy { rule, .. } => rule,
        other => panic!("{other}"),
    }
}

#[test]
fn an_expired_proxy_says_whose_it_is_since_when_and_what_to_do() {
    let ca = TestCa::root("CA");
    let expired = ProxySpec { not_after: at(-1), ..ProxySpec::default() }.signed_by(&ca.user("Alice"));
    let error = refusal(&store(&[&ca]), &expired);
    assert_eq!(error.to_string(), "the proxy of /O=Grid/CN=Alice expired at 2026-11-30T11:00:00Z; make a new one");
    let early = ProxySpec { not_before: at(1), ..ProxySpec::default() }.signed_by(&ca.user("Alice"));
    assert!(matches!(refusal(&store(&[&ca]), &early), TrustError::NotYetValid { what: Kind::Proxy, .. }));
    // An expired one in the middle counts too.
    let below_expired = ProxySpec::default().signed_by(&expired);
    assert!(matches!(refusal(&store(&[&ca]), &below_expired), TrustError::Expired { what: Kind::Proxy, .. }));
}

#[test]
fn a_proxy_of_an_expired_certificate_is_refused() {
    let ca = TestCa::root("CA");
    let mut expired = params("Grid", "", "Alice");
    expired.not_after = at(-1);
    let error = refusal(&store(&[&ca]), &ProxySpec::default().signed_by(&ca.issue(&expired, &[])));
    assert!(matches!(error, TrustError::Expired { what: Kind::Certificate, .. }), "{error}");
}

#[test]
fn a_proxy_signed_by_another_key_is_refused() {
    let ca = TestCa::root("CA");
    let (alice, mallory) = (ca.user("Alice"), ca.user("Mallory"));
    let forged = ProxySpec::default().signed_with(&alice, &mallory);
    assert!(matches!(refusal(&store(&[&ca]), &forged), TrustError::BadSignature { .. }));
}

#[test]
fn a_full_proxy_made_from_a_limited_one_is_refused() {
    let ca = TestCa::root("CA");
    let limited = ProxySpec::with_info(true, None, &LIMITED).signed_by(&ca.user("Alice"));
    let full = ProxySpec::default().signed_by(&limited);
    assert!(matches!(refusal(&store(&[&ca]), &full), TrustError::Proxy { rule: ProxyRule::FullFromLimited, .. }));
}

#[test]
fn a_proxy_that_was_used_more_often_than_it_allows_is_refused() {
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let one_more = ProxySpec::with_info(true, Some(1), &INHERIT_ALL).signed_by(&ca.user("Alice"));
    let second = ProxySpec::default().signed_by(&one_more);
    assert!(verify(&store, &second).is_ok());
    let third = ProxySpec::default().signed_by(&second);
    assert!(matches!(refusal(&store, &third), TrustError::Proxy { rule: ProxyRule::PathLength, .. }));
}

#[test]
fn a_proxy_without_its_users_certificate_is_refused() {
    let ca = TestCa::root("CA");
    let proxy = ProxySpec::default().signed_by(&ca.user("Alice"));
    let alone = store(&[&ca]).verify(&proxy.chain()[..1], Purpose::Client, noon()).unwrap_err();
    assert!(matches!(alone, TrustError::Proxy { rule: ProxyRule::NoIssuer, .. }), "{alone}");
}

#[test]
fn the_proxy_cert_info_must_be_critical_readable_and_of_a_known_language() {
    let other = oid!(1.2.3.4);
    let independent = oid!(1.3.6.1.5.5.7.21.2);
    let unreadable =
        ProxySpec { extensions: vec![extension(PROXY_CERT_INFO.as_bytes(), true, &[0x30, 0])], ..ProxySpec::default() };
    assert_eq!(broken_rule(&ProxySpec::with_info(false, None, &INHERIT_ALL)), ProxyRule::NotCritical);
    assert_eq!(broken_rule(&unreadable), ProxyRule::BadInfo);
    assert_eq!(broken_rule(&ProxySpec::with_info(true, None, &independent)), ProxyRule::Independent);
    assert_eq!(broken_rule(&ProxySpec::with_info(true, None, &other)), ProxyRule::UnknownPolicy);
}

#[test]
fn a_proxys_names_must_follow_from_its_issuers() {
    let ca = TestCa::root("CA");
    let name = |credential: &Credential| {
        Certificate::parse(&credential.chain()[0], 1).unwrap().x509.subject().as_raw().to_vec()
    };
    let (alice, mallory) = (name(&ca.user("Alice")), name(&ca.user("Mallory")));
    let below = |name: &[u8]| crate::pki::below(name, "1").unwrap();
    let spec = |issuer: &[u8], subject: Vec<u8>| ProxySpec {
        issuer: Some(issuer.to_vec()),
        subject: Some(subject),
        ..ProxySpec::default()
    };
    assert_eq!(broken_rule(&spec(&mallory, below(&mallory))), ProxyRule::Issuer);
    assert_eq!(broken_rule(&spec(&alice, below(&mallory))), ProxyRule::Subject);
    assert_eq!(broken_rule(&spec(&alice, alice.clone())), ProxyRule::Subject);
    assert_eq!(broken_rule(&spec(&alice, below(&below(&alice)))), ProxyRule::Subject);
}

#[test]
fn a_proxy_must_not_claim_to_be_an_authority_or_anything_beside() {
    let ca_true = extension(&[0x55, 0x1d, 0x13], true, &[0x30, 3, 1, 1, 0xff]);
    let alternative = extension(&[0x55, 0x1d, 0x11], false, &[0x30, 3, 0x82, 1, b'a']);
    let unknown = extension(&[0x2a, 3, 4], true, &[5, 0]);
    let info = || ProxySpec::with_info(true, None, &INHERIT_ALL);
    assert_eq!(broken_rule(&info().and(ca_true)), ProxyRule::Authority);
    assert_eq!(broken_rule(&info().and(key_usage(0x84))), ProxyRule::KeyUsage);
    assert_eq!(broken_rule(&info().and(alternative)), ProxyRule::AlternativeName);
    assert_eq!(broken_rule(&info().and(unknown)), ProxyRule::CriticalExtension);
}

#[test]
fn a_proxys_issuer_must_be_a_signer_and_no_authority() {
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let mut no_signature = params("Grid", "", "Alice");
    no_signature.key_usages = vec![Ku::KeyEncipherment];
    let error = refusal(&store, &ProxySpec::default().signed_by(&ca.issue(&no_signature, &[])));
    assert!(matches!(error, TrustError::Proxy { rule: ProxyRule::IssuerKeyUsage, .. }), "{error}");
    let error = refusal(&store, &ProxySpec::default().signed_by(&ca.issue(&authority("Sub"), &[])));
    assert!(matches!(error, TrustError::Proxy { rule: ProxyRule::IssuedByAuthority, .. }), "{error}");
}

#[test]
fn legacy_proxies_are_refused_by_name() {
    let gt2 = |name: &str| ProxySpec {
        common_name: name.to_owned(),
        extensions: vec![key_usage(0x80)],
        ..ProxySpec::default()
    };
    assert_eq!(broken_rule(&gt2("proxy")), ProxyRule::Legacy);
    assert_eq!(broken_rule(&gt2("limited proxy")), ProxyRule::Legacy);
    let draft = oid!(1.3.6.1.4.1.3536.1.222);
    let gt3 = ProxySpec { extensions: vec![extension(draft.as_bytes(), true, &[0x30, 0])], ..ProxySpec::default() };
    assert_eq!(broken_rule(&gt3), ProxyRule::Legacy);
    // Without the extension and with any other name it is just a certificate of a wrong issuer.
    let ca = TestCa::root("CA");
    assert!(verify(&store(&[&ca]), &gt2("1234").signed_by(&ca.user("Alice"))).is_err());
}
