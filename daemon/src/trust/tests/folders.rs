//! Trust folders in the IGTF layout: signing policies, lists, and files that are bad.

use std::fs;
use std::path::Path;

use super::*;
use crate::pki::subject_hash;

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

#[test]
fn an_authority_that_is_there_twice_has_the_policy_and_the_list_of_either_copy() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::root("CA");
    let (alice, bob) = (ca.user("Alice"), ca.user("Bob"));
    let hash = install(folder.path(), &ca, "CA", Some("\"*\""));
    // As real folders have it under OpenSSL's old hash; this one is read first.
    fs::write(folder.path().join("00000000.0"), ca.pem()).unwrap();
    fs::write(folder.path().join(format!("{hash}.r0")), ca.revocation_list(&[&alice.chain()[0]], 1)).unwrap();
    let load = || TrustStore::from_folder(folder.path(), TrustOptions::default()).unwrap();
    assert_eq!(load().roots(), 1);
    assert!(verify(&load(), &bob).is_ok());
    assert!(matches!(refusal(&load(), &alice), TrustError::Revoked { .. }));
    let policy =
        "access_id_CA X509 '/O=Grid/CN=CA'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=Other/*\"'\n";
    fs::write(folder.path().join("00000000.signing_policy"), policy).unwrap();
    assert!(refusal(&load(), &bob).to_string().contains("different .signing_policy files"));
}
