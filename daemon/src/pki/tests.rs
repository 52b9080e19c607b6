//! What we make, as OpenSSL sees it.

use std::process::Command;

use std::fs;
use std::path::Path;
use std::time::Duration;

use rcgen::DnType;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;
use crate::pki::testing::{ProxySpec, TestCa, authority, params};
use crate::role::Role;
use crate::tls::Credential;
use crate::trust::{Purpose, TrustOptions, TrustStore, now};

const DAY: Duration = Duration::from_secs(86_400);

/// Runs `openssl`, which the tests need, and gives its standard output.
fn openssl(arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).output().expect("install the Debian package openssl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments:?}: {text}");
    text
}

fn site(folder: &Path) -> SiteCa {
    SiteCa::open_or_create(&folder.join("ca"), "test", &Clock::real()).unwrap()
}

#[test]
fn openssl_finds_our_authority_in_the_trust_folder_by_its_hash_and_accepts_what_it_issued() {
    let folder = tempfile::tempdir().unwrap();
    let (trust, cert) = (folder.path().join("trust"), folder.path().join("mover.pem"));
    let ca = site(folder.path());
    let list = ca.revocation_list(&[vec![1, 2, 3]], DAY, &Clock::real()).unwrap();
    ca.write_trust_folder(&trust, Some(&list)).unwrap();
    ca.write_trust_folder(&trust, Some(&list)).unwrap();
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    ca.issue(&Holder::Part { role: Role::Mover, name: "m1", hosts: &hosts }, &Clock::real())
        .unwrap()
        .create(&cert)
        .unwrap();
    let (trust, cert) = (trust.to_str().unwrap(), cert.to_str().unwrap());

    let printed = openssl(&["x509", "-noout", "-hash", "-in", &format!("{}/ca/ca.pem", folder.path().display())]);
    assert_eq!(printed.trim(), subject_hash(ca.certificate()).unwrap());
    for purpose in ["sslserver", "sslclient"] {
        openssl(&[
            "verify",
            "-x509_strict",
            "-crl_check_all",
            "-purpose",
            purpose,
            "-CApath",
            trust,
            "-verify_hostname",
            "localhost",
            cert,
        ]);
    }
    let subject = openssl(&["x509", "-noout", "-subject", "-nameopt", "compat", "-in", cert]);
    assert_eq!(subject.trim(), "subject=/O=Penstock site test/OU=mover/CN=m1");
}

#[test]
fn openssl_accepts_our_proxies_and_proxies_of_proxies() {
    let folder = tempfile::tempdir().unwrap();
    let ca = site(folder.path());
    let user = ca.issue(&Holder::User { name: "Alice Tester" }, &Clock::real()).unwrap();
    let first = make_proxy(
        &user.credential().unwrap(),
        ProxyOptions { path_length: Some(1), ..ProxyOptions::default() },
        &Clock::real(),
    )
    .unwrap();
    let second = make_proxy(
        &first.credential().unwrap(),
        ProxyOptions { limited: true, ..ProxyOptions::default() },
        &Clock::real(),
    )
    .unwrap();
    let path = folder.path().join("proxy.pem");
    second.create(&path).unwrap();
    let (path, bundle) = (path.to_str().unwrap(), format!("{}/ca/ca.pem", folder.path().display()));
    openssl(&["verify", "-allow_proxy_certs", "-CAfile", &bundle, "-untrusted", path, path]);
    let shown = openssl(&["x509", "-noout", "-text", "-in", path]);
    assert!(
        shown.contains("Proxy Certificate Information: critical") && shown.contains("1.3.6.1.4.1.3536.1.1.1.9"),
        "{shown}"
    );
}

#[test]
fn names_of_every_string_form_hash_as_openssl_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut odd = authority("  Grid   CA \u{e9}\u{c9} ");
    odd.distinguished_name.push(DnType::CountryName, rcgen::DnValue::PrintableString("CH".try_into().unwrap()));
    odd.distinguished_name.push(
        DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]),
        rcgen::DnValue::Ia5String("Grid".try_into().unwrap()),
    );
    odd.distinguished_name.push(DnType::LocalityName, rcgen::DnValue::BmpString("Gen\u{e8}ve".try_into().unwrap()));
    odd.distinguished_name.push(DnType::StateOrProvinceName, rcgen::DnValue::TeletexString("GE".try_into().unwrap()));
    let ca = TestCa::root_of(odd);
    let path = folder.path().join("ca.pem");
    fs::write(&path, ca.pem()).unwrap();
    assert_eq!(
        openssl(&["x509", "-noout", "-hash", "-in", path.to_str().unwrap()]).trim(),
        subject_hash(&ca.der).unwrap()
    );
}

#[test]
fn a_proxy_can_be_made_with_keys_that_openssl_makes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let algorithms: [&[&str]; 4] = [
        &["rsa:2048"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        &["ed25519"],
    ];
    for algorithm in algorithms {
        let (key, cert, proxy) = (file("key.pem"), file("cert.pem"), file("proxy.pem"));
        let mut arguments =
            vec!["req", "-x509", "-nodes", "-subj", "/O=Grid/CN=Alice", "-days", "2", "-keyout", &key, "-out", &cert];
        // A self-signed certificate that is no authority: enough for OpenSSL to start from.
        arguments.extend([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            "keyUsage=digitalSignature",
            "-newkey",
        ]);
        arguments.extend(algorithm);
        openssl(&arguments);
        let user = Credential::from_files(Path::new(&cert), Path::new(&key)).unwrap();
        let made = make_proxy(&user, ProxyOptions::default(), &Clock::real()).unwrap();
        made.replace(Path::new(&proxy)).unwrap();
        openssl(&["verify", "-allow_proxy_certs", "-partial_chain", "-CAfile", &cert, "-untrusted", &proxy, &proxy]);
    }
}

#[test]
fn a_proxy_of_a_limited_proxy_is_limited_and_never_outlives_its_issuer() {
    let ca = TestCa::root("CA");
    let limited = ProxySpec::with_info(true, None, &crate::trust::LIMITED).signed_by(&ca.user("Alice"));
    let proxy =
        make_proxy(&limited, ProxyOptions { lifetime: DAY * 1000, ..ProxyOptions::default() }, &testing::clock())
            .unwrap();
    let store = TrustStore::from_pem(ca.pem().as_bytes(), TrustOptions::default()).unwrap();
    let identity = store.verify(proxy.chain(), Purpose::Client, testing::noon()).unwrap();
    assert!(identity.limited && identity.proxy_levels == 2);
    assert_eq!(identity.not_after_us, limited.not_after_us());
}

#[test]
fn no_proxy_is_made_from_an_authority_or_an_expired_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let ca = site(folder.path());
    let authority = Credential::from_files(&folder.path().join("ca/ca.pem"), &folder.path().join("ca/ca.key")).unwrap();
    let error = make_proxy(&authority, ProxyOptions::default(), &Clock::real()).unwrap_err();
    assert!(matches!(error, PkiError::AuthorityProxy { .. }), "{error}");
    let long_ago = Clock::settable(1_000_000_000_000_000);
    let old = ca.issue(&Holder::User { name: "Alice" }, &long_ago).unwrap().credential().unwrap();
    let error = make_proxy(&old, ProxyOptions::default(), &Clock::real()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the certificate or proxy of /O=Penstock site test/OU=user/CN=Alice has expired; renew it first"
    );
}

#[test]
fn an_authority_is_made_once_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = site(folder.path());
    let again = SiteCa::open_or_create(&folder.path().join("ca"), "other", &Clock::real()).unwrap();
    assert_eq!((again.site(), again.certificate()), ("test", first.certificate()));
    let issued = again.issue(&Holder::User { name: "Alice" }, &Clock::real()).unwrap();
    let store = TrustStore::from_pem(first.certificate_pem().as_bytes(), TrustOptions::default()).unwrap();
    assert_eq!(
        store.verify(issued.chain(), Purpose::Client, now()).unwrap().subject.as_str(),
        "/O=Penstock site test/OU=user/CN=Alice"
    );
}

#[test]
fn a_parts_certificate_is_made_kept_and_renewed_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mover.pem");
    let (ca, clock) = (SiteCa::in_memory("test", &testing::clock()).unwrap(), testing::clock());
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let keep = |ca: &SiteCa, hosts: &[String]| {
        ca.keep_current(&path, &Holder::Part { role: Role::Mover, name: "m1", hosts }, &clock)
    };
    assert_eq!(keep(&ca, &hosts).unwrap(), Kept::Made);
    let first = fs::read(&path).unwrap();
    assert_eq!(keep(&ca, &hosts).unwrap(), Kept::Good);
    assert_eq!(fs::read(&path).unwrap(), first);
    clock.advance(DAY * 366);
    assert_eq!(keep(&ca, &hosts).unwrap(), Kept::Renewed);
    hosts.push("mover.example".to_owned());
    assert_eq!(keep(&ca, &hosts).unwrap(), Kept::Renewed);
    // Somebody else's file is left as it is.
    let other = ca.keep_current(&path, &Holder::Part { role: Role::Gateway, name: "m1", hosts: &hosts }, &clock);
    assert!(matches!(other, Err(PkiError::Exists { .. })));
    let impostor = SiteCa::in_memory("test", &clock).unwrap();
    assert!(matches!(keep(&impostor, &hosts), Err(PkiError::Exists { .. })));
}

#[test]
fn names_that_could_be_misread_are_refused() {
    let ca = SiteCa::in_memory("test", &Clock::real()).unwrap();
    for name in ["", "a/OU=mover", "a'b", "a\"b", " a", "a\nb", "\u{e9}", &"a".repeat(65)] {
        assert!(matches!(ca.issue(&Holder::User { name }, &Clock::real()), Err(PkiError::Name { .. })), "{name:?}");
        assert!(SiteCa::in_memory(name, &Clock::real()).is_err());
    }
    let hosts = ["not a host".to_owned()];
    let error = ca.issue(&Holder::Host { name: "h", hosts: &hosts }, &Clock::real()).unwrap_err();
    assert_eq!(error.to_string(), "\"not a host\" is not a host name or an address");
}

#[test]
fn keys_of_users_are_two_private_files_and_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("usercert.pem"), folder.path().join("userkey.pem"));
    let ca = SiteCa::in_memory("test", &Clock::real()).unwrap();
    let issued = ca.issue(&Holder::User { name: "Alice" }, &Clock::real()).unwrap();
    issued.create_pair(&cert, &key).unwrap();
    assert_eq!(Credential::from_files(&cert, &key).unwrap().chain(), issued.chain());
    assert!(matches!(issued.create_pair(&cert, &key), Err(PkiError::Exists { .. })));
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let error = Credential::from_files(&cert, &key).unwrap_err();
    assert!(error.to_string().contains("mode 0644") && error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ca = TestCa::root("CA");
    let (alice, bob) = (ca.user("Alice"), ca.issue(&params("Grid", "", "Bob"), &[]));
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(bob.key_der().expose().clone()));
    let error = Credential::new(alice.chain().to_vec(), key, "cert.pem", "key.pem").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the private key in key.pem does not belong to the certificate of /O=Grid/CN=Alice in cert.pem"
    );
    drop(folder);
}
