//! Ordinary certificates: RFC 5280, and names that can be read in one way only.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Eku, GeneralSubtree, IsCa,
    KeyUsagePurpose as Ku, NameConstraints,
};

use super::*;

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
