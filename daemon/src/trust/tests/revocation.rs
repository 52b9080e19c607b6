//! Revocation lists.

use super::*;

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

#[test]
fn an_authority_that_may_not_sign_lists_has_none() {
    let mut no_lists = authority("CA");
    no_lists.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let ca = TestCa::root_of(no_lists);
    // The same key, but with a certificate that lets it: what a careless authority might publish.
    let list = ca.list_despite_key_usage();
    let error = refusal(&store_with(&list, &[&ca]), &ca.user("Alice"));
    assert!(error.to_string().contains("no cRLSign"), "{error}");
}

#[test]
fn a_revocation_list_from_the_future_refuses() {
    let yesterday = rustls_pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        at(-24).unix_timestamp() as u64 - 1,
    ));
    let mut early = params("Grid", "", "Alice");
    early.not_before = at(-100);
    let mut old = authority("CA");
    old.not_before = at(-100);
    let ca = TestCa::root_of(old);
    let store = store_with(&ca.revocation_list(&[], 24), &[&ca]);
    let verdict = store.verify(ca.issue(&early, &[]).chain(), Purpose::Client, yesterday);
    assert!(verdict.unwrap_err().to_string().contains("compare the clocks"));
}
