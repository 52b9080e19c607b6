//! Every rule of the verifier: a chain that keeps it, and one that breaks it and nothing else.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Eku, GeneralSubtree, IsCa,
    KeyUsagePurpose as Ku, NameConstraints,
};
use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::oid;

use super::*;
use crate::pki::testing::{ProxySpec, TestCa, at, authority, key_usage, noon, params};
use crate::pki::{extension, subject_hash};
use crate::tls::Credential;

fn store(authorities: &[&TestCa]) -> TrustStore {
    store_with("", authorities)
}

/// A store from a bundle of `authorities` and more PEM text (revocation lists).
fn store_with(more: &str, authorities: &[&TestCa]) -> TrustStore {
    let pem: String = authorities.iter().map(|ca| ca.pem()).collect();
    TrustStore::from_pem((pem + more).as_bytes(), TrustOptions::default()).unwrap()
}

fn verify(store: &TrustStore, credential: &Credential) -> Result<Identity, TrustError> {
    store.verify(credential.chain(), Purpose::Client, noon())
}

fn refusal(store: &TrustStore, credential: &Credential) -> TrustError {
    verify(store, credential).expect_err("a chain that breaks a rule")
}

/// The rule a chain of `alice` and one proxy breaks.
fn broken_rule(proxy: &ProxySpec) -> ProxyRule {
    let ca = TestCa::root("CA");
    match refusal(&store(&[&ca]), &proxy.signed_by(&ca.user("Alice"))) {
        TrustError::Proxy { rule, .. } => rule,
        other => panic!("{other}"),
    }
}

// ── Good chains ──────────────────────────────────────────────────────────────────────────────

#[test]
fn a_users_own_certificate_is_that_user() {
    let ca = TestCa::root("CA");
    let alice = ca.user("Alice");
    let identity = verify(&store(&[&ca]), &alice).unwrap();
    assert_eq!(identity.subject.as_str(), "/O=Grid/CN=Alice");
    assert!(!identity.is_proxy() && !identity.limited);
    assert_eq!(identity.not_after_us, at(24).unix_timestamp() * 1_000_000);
    assert_eq!(identity.fingerprint, Fingerprint::of(alice.chain()));
    assert_eq!(identity.authority, Fingerprint::of(&[ca.der]));
}

#[test]
fn a_proxy_and_a_limited_proxy_of_a_proxy_are_still_the_user() {
    let ca = TestCa::root("CA");
    let first = ProxySpec::default().signed_by(&ca.user("Alice"));
    let second = ProxySpec::with_info(true, Some(0), &LIMITED).signed_by(&first);
    let store = store(&[&ca]);
    let (one, two) = (verify(&store, &first).unwrap(), verify(&store, &second).unwrap());
    assert_eq!((one.subject.as_str(), one.proxy_levels, one.limited), ("/O=Grid/CN=Alice", 1, false));
    assert_eq!((two.subject.as_str(), two.proxy_levels, two.limited), ("/O=Grid/CN=Alice", 2, true));
    assert_eq!(one.not_after_us, at(12).unix_timestamp() * 1_000_000);
}

#[test]
fn a_proxy_of_a_limited_proxy_that_is_limited_too_is_good() {
    let ca = TestCa::root("CA");
    let limited = ProxySpec::with_info(true, None, &LIMITED);
    let chain = limited.signed_by(&limited.signed_by(&ca.user("Alice")));
    assert!(verify(&store(&[&ca]), &chain).unwrap().limited);
}

#[test]
fn a_chain_with_repetitions_and_in_another_order_is_put_in_order() {
    let ca = TestCa::root("CA");
    let proxy = ProxySpec::default().signed_by(&ProxySpec::default().signed_by(&ca.user("Alice")));
    let [leaf, middle, user] = proxy.chain() else { panic!("three certificates") };
    for order in [[leaf, leaf, middle, user], [leaf, user, &ca.der, middle], [leaf, user, leaf, middle]] {
        let chain: Vec<_> = order.into_iter().cloned().collect();
        let identity = store(&[&ca]).verify(&chain, Purpose::Client, noon()).unwrap();
        assert_eq!((identity.subject.as_str(), identity.proxy_levels), ("/O=Grid/CN=Alice", 2));
    }
    let chain = [middle.clone(), leaf.clone(), user.clone()];
    assert_eq!(store(&[&ca]).verify(&chain, Purpose::Client, noon()).unwrap().proxy_levels, 1);
}

#[test]
fn intermediate_authorities_may_come_from_the_peer_or_from_the_store() {
    let root = TestCa::root("Root");
    let sub = root.below(authority("Sub"));
    let (with, without) =
        (sub.issue(&params("Grid", "", "Alice"), &[&sub]), sub.issue(&params("Grid", "", "Alice"), &[]));
    assert!(verify(&store(&[&root]), &with).is_ok());
    assert!(verify(&store(&[&root, &sub]), &without).is_ok());
    assert!(
        matches!(refusal(&store(&[&root]), &without), TrustError::UnknownIssuer { issuer, .. } if issuer == "/O=Grid/CN=Sub")
    );
}

#[test]
fn of_two_authorities_with_one_name_the_one_that_signed_counts() {
    let (old, new) = (TestCa::root("CA"), TestCa::root("CA"));
    let revoked_by_old = old.revocation_list(&[], -1);
    let store = store_with(&revoked_by_old, &[&old, &new]);
    assert!(verify(&store, &new.user("Alice")).is_ok());
    assert!(matches!(refusal(&store, &old.user("Alice")), TrustError::CrlExpired { .. }));
}

// ── Ordinary certificates ────────────────────────────────────────────────────────────────────

#[test]
fn no_certificate_bytes_that_are_none_and_endless_chains_are_refused() {
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let alice = ca.user("Alice");
    assert_eq!(store.verify(&[], Purpose::Client, noon()), Err(TrustError::Missing));
    let junk = [alice.chain()[0].clone(), CertificateDer::from(vec![0x30, 3, 1, 1])];
    assert!(matches!(store.verify(&junk, Purpose::Client, noon()), Err(TrustError::Malformed { position: 2, .. })));
    let mut longer = alice.chain()[0].to_vec();
    longer.push(0);
    assert!(matches!(
        store.verify(&[longer.into()], Purpose::Client, noon()),
        Err(TrustError::Malformed { position: 1, .. })
    ));
    let endless = vec![alice.chain()[0].clone(); 21];
    assert_eq!(store.verify(&endless, Purpose::Client, noon()), Err(TrustError::TooLong { count: 21, limit: 20 }));
}

#[test]
fn an_authority_nobody_trusts_is_named() {
    let (ca, other) = (TestCa::root("CA"), TestCa::root("Other"));
    let error = refusal(&store(&[&ca]), &other.user("Mallory"));
    assert!(error.to_string().starts_with(
        "the certificate of /O=Grid/CN=Mallory was issued by /O=Grid/CN=Other, which is not among the trusted authorities; add that"
    ));
}

#[test]
fn an_impostor_with_the_authoritys_name_is_refused() {
    let (ca, impostor) = (TestCa::root("CA"), TestCa::root("CA"));
    assert!(matches!(refusal(&store(&[&ca]), &impostor.user("Alice")), TrustError::BadSignature { .. }));
}

#[test]
fn a_certificate_out_of_its_time_is_refused_at_every_level() {
    let expired = |mut params: CertificateParams| {
        params.not_after = at(-1);
        params
    };
    let early = |mut params: CertificateParams| {
        params.not_before = at(1);
        params
    };
    let root = TestCa::root("Root");
    let user = params("Grid", "", "Alice");
    let error = refusal(&store(&[&root]), &root.issue(&expired(user.clone()), &[]));
    assert_eq!(error.to_string(), "the certificate of /O=Grid/CN=Alice expired at 2026-11-30T11:00:00Z; renew it");
    let error = refusal(&store(&[&root]), &root.issue(&early(user.clone()), &[]));
    assert_eq!(
        error.to_string(),
        "the certificate of /O=Grid/CN=Alice is valid from 2026-11-30T13:00:00Z only; compare the clocks of both machines"
    );
    let sub = root.below(expired(authority("Sub")));
    let error = refusal(&store(&[&root]), &sub.issue(&user, &[&sub]));
    assert_eq!(
        error.to_string(),
        "the authority certificate of /O=Grid/CN=Sub expired at 2026-11-30T11:00:00Z; update the trust folder"
    );
    let old_root = TestCa::root_of(expired(authority("Old")));
    let error = refusal(&store(&[&old_root]), &old_root.user("Alice"));
    assert!(matches!(error, TrustError::Expired { what: Kind::Authority, .. }), "{error}");
}

#[test]
fn an_issuer_without_ca_true_or_without_key_cert_sign_is_refused() {
    let root = TestCa::root("Root");
    let mut no_ca = authority("Sub");
    no_ca.is_ca = IsCa::ExplicitNoCa;
    let mut no_sign = authority("Sub");
    no_sign.key_usages = vec![Ku::CrlSign];
    for broken in [no_ca, no_sign] {
        let sub = root.below(broken);
        let error = refusal(&store(&[&root]), &sub.issue(&params("Grid", "", "Alice"), &[&sub]));
        assert!(matches!(&error, TrustError::NotAnAuthority { issuer, .. } if issuer == "/O=Grid/CN=Sub"), "{error}");
    }
    // A user's certificate is no authority either.
    let alice = root.user("Alice");
    let alice_as_ca = TestCa { der: alice.chain()[0].clone(), issuer: TestCa::root("Alice").issuer };
    assert!(verify(&store(&[&root]), &alice_as_ca.issue(&params("Grid", "", "Bob"), &[&alice_as_ca])).is_err());
}

#[test]
fn an_authority_whose_path_length_is_used_up_is_refused() {
    let short = |name: &str| {
        let mut params = authority(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params
    };
    for (root, middle) in [(short("Root"), authority("Middle")), (authority("Root"), short("Middle"))] {
        let root = TestCa::root_of(root);
        let middle = root.below(middle);
        let low = middle.below(authority("Low"));
        let error = refusal(&store(&[&root]), &low.issue(&params("Grid", "", "Alice"), &[&low, &middle]));
        assert!(error.to_string().contains("more authorities stand above it"), "{error}");
        assert!(verify(&store(&[&root]), &root.user("Alice")).is_ok());
    }
}

#[test]
fn names_outside_an_authoritys_name_constraints_are_refused() {
    let root = TestCa::root("Root");
    let mut constrained = authority("Sub");
    constrained.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("grid.example".to_owned())],
        excluded_subtrees: vec![],
    });
    let sub = root.below(constrained);
    let host = |name: &str| {
        let mut host = params("Grid", "", "host");
        host.subject_alt_names = vec![rcgen::SanType::DnsName(name.try_into().unwrap())];
        sub.issue(&host, &[&sub])
    };
    let store = store(&[&root]);
    assert!(verify(&store, &host("a.grid.example")).is_ok());
    assert!(refusal(&store, &host("a.example")).to_string().contains("name constraints"));
}

#[test]
fn an_authoritys_own_certificate_may_not_log_in() {
    let ca = TestCa::root("CA");
    let sub = ca.below(authority("Sub"));
    let error = store(&[&ca]).verify(&[sub.der], Purpose::Client, noon()).unwrap_err();
    assert!(error.to_string().contains("an authority's own"), "{error}");
}

#[test]
fn extended_key_usage_is_heeded_where_there_is_one() {
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let with = |usages: Vec<Eku>| {
        let mut params = params("Grid", "", "Alice");
        params.extended_key_usages = usages;
        ca.issue(&params, &[])
    };
    let (client, server, neither) =
        (with(vec![Eku::ClientAuth]), with(vec![Eku::ServerAuth]), with(vec![Eku::CodeSigning]));
    let ok = |credential: &Credential, purpose| store.verify(credential.chain(), purpose, noon()).is_ok();
    assert!(ok(&client, Purpose::Client) && !ok(&client, Purpose::Server) && ok(&client, Purpose::Either));
    assert!(!ok(&server, Purpose::Client) && ok(&server, Purpose::Server) && ok(&server, Purpose::Either));
    assert!(!ok(&neither, Purpose::Client) && !ok(&neither, Purpose::Either));
    assert!(matches!(refusal(&store, &server), TrustError::Purpose { purpose: "client", .. }));
}

#[test]
fn an_unknown_critical_extension_is_refused() {
    let ca = TestCa::root("CA");
    let mut odd = params("Grid", "", "Alice");
    let mut custom = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    custom.set_criticality(true);
    odd.custom_extensions = vec![custom];
    assert!(refusal(&store(&[&ca]), &ca.issue(&odd, &[])).to_string().contains("critical extension"));
}

#[test]
fn a_subject_that_is_empty_or_reads_like_another_is_refused() {
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let mut nobody = params("Grid", "", "x");
    nobody.distinguished_name = rcgen::DistinguishedName::new();
    assert!(refusal(&store, &ca.issue(&nobody, &[])).to_string().contains("no subject name"));
    let error = refusal(&store, &ca.issue(&params("Grid/CN=Alice", "", "x"), &[]));
    assert!(error.to_string().contains("could be mistaken"), "{error}");
    let service = ca.issue(&params("Grid", "", "host/gate.example"), &[]);
    assert_eq!(verify(&store, &service).unwrap().subject.as_str(), "/O=Grid/CN=host/gate.example");
}

#[test]
fn names_are_written_as_openssl_writes_them() {
    let ca = TestCa::root("CA");
    let mut odd = CertificateParams::default();
    odd.not_before = at(-1);
    odd.not_after = at(1);
    odd.distinguished_name = rcgen::DistinguishedName::new();
    let dc = DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]);
    odd.distinguished_name.push(dc, rcgen::DnValue::Ia5String("ch".try_into().unwrap()));
    odd.distinguished_name.push(DnType::CommonName, "Andr\u{e9} \u{1}~");
    odd.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 3, 4]), "x");
    odd.distinguished_name.push(
        DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]),
        rcgen::DnValue::Ia5String("a@b".try_into().unwrap()),
    );
    let user = ca.issue(&odd, &[]);
    let subject = verify(&store(&[&ca]), &user).unwrap().subject;
    assert_eq!(subject.as_str(), "/DC=ch/CN=Andr\\xC3\\xA9 \\x01~/1.2.3.4=x/emailAddress=a@b");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("user.der");
    fs::write(&path, &user.chain()[0]).unwrap();
    let shown = std::process::Command::new("openssl")
        .args(["x509", "-inform", "der", "-noout", "-subject", "-nameopt", "compat", "-in"])
        .arg(&path)
        .output()
        .expect("install the Debian package openssl");
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), format!("subject={subject}"));
}

// ── Proxies ──────────────────────────────────────────────────────────────────────────────────

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

// ── Revocation ───────────────────────────────────────────────────────────────────────────────

#[test]
fn a_revoked_certificate_and_its_proxies_are_refused() {
    let ca = TestCa::root("CA");
    let (alice, bob) = (ca.user("Alice"), ca.user("Bob"));
    let store = store_with(&ca.revocation_list(&[&alice.chain()[0]], 1), &[&ca]);
    let error = refusal(&store, &alice);
    assert_eq!(
        error.to_string(),
        "the certificate of /O=Grid/CN=Alice was revoked by /O=Grid/CN=CA; apply for a new one"
    );
    assert!(matches!(refusal(&store, &ProxySpec::default().signed_by(&alice)), TrustError::Revoked { .. }));
    assert!(verify(&store, &bob).is_ok());
}

#[test]
fn a_revoked_intermediate_authority_takes_its_users_with_it() {
    let root = TestCa::root("Root");
    let sub = root.below(authority("Sub"));
    let alice = sub.issue(&params("Grid", "", "Alice"), &[&sub]);
    let list = root.revocation_list(&[&sub.der], 1);
    for trusted in [vec![&root], vec![&root, &sub]] {
        let error = refusal(&store_with(&list, &trusted), &alice);
        assert!(matches!(&error, TrustError::Revoked { subject, .. } if subject == "/O=Grid/CN=Sub"), "{error}");
    }
}

#[test]
fn an_expired_revocation_list_refuses_everybody_and_says_so() {
    let ca = TestCa::root("CA");
    let error = refusal(&store_with(&ca.revocation_list(&[], -1), &[&ca]), &ca.user("Alice"));
    assert!(
        error.to_string().starts_with("the revocation list of /O=Grid/CN=CA expired at 2026-11-30T11:00:00Z"),
        "{error}"
    );
    assert!(error.to_string().contains("fetch-crl"));
}

#[test]
fn a_revocation_list_somebody_else_signed_refuses_instead_of_being_ignored() {
    let (ca, impostor) = (TestCa::root("CA"), TestCa::root("CA"));
    let store = store_with(&impostor.revocation_list(&[], 1), &[&ca]);
    assert!(matches!(refusal(&store, &ca.user("Alice")), TrustError::Authority { .. }));
    assert!(store.problems()[0].contains("its signature is not the authority's"), "{:?}", store.problems());
}

#[test]
fn the_newest_of_several_revocation_lists_holds() {
    let ca = TestCa::root("CA");
    let alice = ca.user("Alice");
    let (old, new) = (ca.revocation_list(&[], -1), crate::pki::testing::later_list(&ca, &[&alice.chain()[0]]));
    for both in [old.clone() + &new, new.clone() + &old] {
        assert!(matches!(refusal(&store_with(&both, &[&ca]), &alice), TrustError::Revoked { .. }));
    }
}

#[test]
fn a_missing_revocation_list_matters_only_where_one_is_required() {
    let ca = TestCa::root("CA");
    let options = TrustOptions { crl: Requirement::Required, ..TrustOptions::default() };
    let strict = TrustStore::from_pem(ca.pem().as_bytes(), options).unwrap();
    assert!(matches!(refusal(&strict, &ca.user("Alice")), TrustError::CrlMissing { .. }));
    let pem = ca.pem() + &ca.revocation_list(&[], 1);
    assert!(verify(&TrustStore::from_pem(pem.as_bytes(), options).unwrap(), &ca.user("Alice")).is_ok());
}

// ── Folders ──────────────────────────────────────────────────────────────────────────────────

/// Writes an authority into `folder` with a signing policy of these patterns.
fn install(folder: &Path, ca: &TestCa, name: &str, patterns: Option<&str>) -> String {
    let hash = subject_hash(&ca.der).unwrap();
    fs::write(folder.join(format!("{hash}.0")), ca.pem()).unwrap();
    if let Some(patterns) = patterns {
        let text = format!(
            "access_id_CA X509 '/O=Grid/CN={name}'\npos_rights globus CA:sign\ncond_subjects globus '{patterns}'\n"
        );
        fs::write(folder.join(format!("{hash}.signing_policy")), text).unwrap();
    }
    hash
}

#[test]
fn in_a_folder_the_signing_policy_decides_whom_an_authority_may_name() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::root("CA");
    install(folder.path(), &ca, "CA", Some("\"/O=Grid/CN=A*\""));
    let store = TrustStore::from_folder(folder.path(), TrustOptions::default()).unwrap();
    assert!(verify(&store, &ca.user("Alice")).is_ok());
    assert!(verify(&store, &ProxySpec::default().signed_by(&ca.user("Alice"))).is_ok());
    let error = refusal(&store, &ca.user("Bob"));
    assert!(
        error.to_string().starts_with("the signing policy of /O=Grid/CN=CA does not let it issue /O=Grid/CN=Bob"),
        "{error}"
    );
}

#[test]
fn every_authority_on_the_path_needs_a_policy_unless_configured_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let root = TestCa::root("Root");
    let sub = root.below(authority("Sub"));
    let alice = sub.issue(&params("Grid", "", "Alice"), &[&sub]);
    install(folder.path(), &root, "Root", Some("\"/O=Grid/CN=Sub\""));
    let load = |requirement| {
        TrustStore::from_folder(folder.path(), TrustOptions { signing_policy: requirement, ..TrustOptions::default() })
            .unwrap()
    };
    // The peer sent the intermediate authority; the folder knows nothing of it.
    let error = refusal(&load(Requirement::Required), &alice);
    assert!(matches!(&error, TrustError::Authority { issuer, .. } if issuer == "/O=Grid/CN=Sub"), "{error}");
    assert!(verify(&load(Requirement::IfPresent), &alice).is_ok());
    install(folder.path(), &sub, "Sub", Some("\"/O=Grid/*\""));
    assert!(verify(&load(Requirement::Required), &alice).is_ok());
    // The root's policy holds for the authority below it too.
    install(folder.path(), &root, "Root", Some("\"/O=Grid/CN=Other\""));
    assert!(
        matches!(refusal(&load(Requirement::IfPresent), &alice), TrustError::Policy { subject, .. } if subject == "/O=Grid/CN=Sub")
    );
}

#[test]
fn a_bad_file_refuses_its_own_authority_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad_policy, bad_list) = (TestCa::root("Good"), TestCa::root("Bad policy"), TestCa::root("Bad list"));
    install(folder.path(), &good, "Good", Some("\"*\""));
    let hash = install(folder.path(), &bad_policy, "Bad policy", None);
    fs::write(folder.path().join(format!("{hash}.signing_policy")), "access_id_CA X509\n").unwrap();
    let hash = install(folder.path(), &bad_list, "Bad list", Some("\"*\""));
    fs::write(folder.path().join(format!("{hash}.r0")), "not a list").unwrap();
    fs::write(folder.path().join("00000000.0"), "not a certificate").unwrap();
    fs::write(folder.path().join("README.txt"), "ignored").unwrap();
    let store = TrustStore::from_folder(folder.path(), TrustOptions::default()).unwrap();
    assert!(verify(&store, &good.user("Alice")).is_ok());
    let error = refusal(&store, &bad_policy.user("Alice"));
    assert!(error.to_string().contains(".signing_policy: line 1"), "{error}");
    let error = refusal(&store, &bad_list.user("Alice"));
    assert!(error.to_string().contains(".r0"), "{error}");
    assert_eq!(store.problems().len(), 3, "{:?}", store.problems());
}

#[test]
fn a_revocation_list_in_a_folder_counts() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::root("CA");
    let alice = ca.user("Alice");
    let hash = install(folder.path(), &ca, "CA", Some("\"*\""));
    fs::write(folder.path().join(format!("{hash}.r0")), ca.revocation_list(&[&alice.chain()[0]], 1)).unwrap();
    let store = TrustStore::from_folder(folder.path(), TrustOptions::default()).unwrap();
    assert!(matches!(refusal(&store, &alice), TrustError::Revoked { .. }));
}

#[test]
fn a_folder_or_bundle_without_authorities_says_what_belongs_there() {
    let folder = tempfile::tempdir().unwrap();
    let error = TrustStore::from_folder(folder.path(), TrustOptions::default()).unwrap_err();
    assert!(error.to_string().contains("HASH.0"), "{error}");
    assert!(TrustStore::from_folder(Path::new("/nowhere"), TrustOptions::default()).is_err());
    let bundle = folder.path().join("bundle.pem");
    fs::write(&bundle, "").unwrap();
    assert!(TrustStore::from_bundle(&bundle, TrustOptions::default()).unwrap_err().to_string().contains("CERTIFICATE"));
    // A user's certificate is not an authority.
    let ca = TestCa::root("CA");
    let alice = TestCa { der: ca.user("Alice").chain()[0].clone(), issuer: ca.issuer };
    assert!(TrustStore::from_pem(alice.pem().as_bytes(), TrustOptions::default()).is_none());
}

// ── Anything at all ──────────────────────────────────────────────────────────────────────────

#[test]
fn a_chain_with_any_byte_changed_or_cut_off_is_never_that_user_and_never_panics() {
    let ca = TestCa::root("CA");
    let store = store_with(&ca.revocation_list(&[], 1), &[&ca]);
    let good = ProxySpec::default().signed_by(&ca.user("Alice"));
    assert!(verify(&store, &good).is_ok());
    for (index, certificate) in good.chain().iter().enumerate() {
        for position in 0..certificate.len() {
            for change in [0x01, 0x80] {
                let mut chain = good.chain().to_vec();
                let mut bytes = certificate.to_vec();
                bytes[position] ^= change;
                chain[index] = bytes.into();
                let verdict = store.verify(&chain, Purpose::Client, noon());
                assert!(verdict.is_err(), "certificate {index}, byte {position}: {verdict:?}");
            }
            let mut chain = good.chain().to_vec();
            chain[index] = certificate[..position].to_vec().into();
            assert!(store.verify(&chain, Purpose::Client, noon()).is_err());
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic_a_parser() {
    let seed = crate::pki::random_u64();
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let ca = TestCa::root("CA");
    let store = store(&[&ca]);
    let good = ProxySpec::default().signed_by(&ca.user("Alice"));
    let list = rustls_pki_types::CertificateRevocationListDer::from(pem_body(&ca.revocation_list(&[&ca.der], 1)));
    let seeds: Vec<Vec<u8>> = good.chain().iter().map(|der| der.to_vec()).chain([list.to_vec(), vec![0; 40]]).collect();
    let algorithms = crate::tls::provider().signature_verification_algorithms;
    for _ in 0..10_000 {
        let mut bytes = seeds[next() as usize % seeds.len()].clone();
        for _ in 0..=next() % 6 {
            let at = next() as usize % bytes.len();
            match next() % 3 {
                0 => bytes[at] = next() as u8,
                1 => bytes.truncate(at + 1),
                _ => bytes.insert(at, next() as u8),
            }
        }
        let _ = crl::Crl::read(&bytes, &[0x30, 0], &algorithms);
        let _ = crl::Crl::issuer_of(&bytes);
        let _ = policy::SigningPolicy::parse(&String::from_utf8_lossy(&bytes));
        let _ = String::from_utf8_lossy(&bytes).parse::<Dn>();
        let der = CertificateDer::from(bytes);
        let _ = subject_hash(&der);
        let _ = TrustStore::from_pem(&der, TrustOptions::default());
        let _ = store.verify(&[good.chain()[0].clone(), der.clone()], Purpose::Either, noon());
        let _ = store.verify(&[der, good.chain()[1].clone()], Purpose::Either, noon());
    }
}

fn pem_body(text: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject as _;
    rustls_pki_types::CertificateRevocationListDer::from_pem_slice(text.as_bytes()).unwrap().to_vec()
}
