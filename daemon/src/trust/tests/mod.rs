//! Every rule of the verifier: a chain that keeps it, and one that breaks it and nothing else.

mod bytes;
mod certificates;
mod folders;
mod proxies;
mod revocation;

use super::*;
use crate::pki::testing::{ProxySpec, TestCa, at, authority, noon, params};
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
