//! Handshakes: with ourselves in memory, and with OpenSSL over loopback. All on the real clock,
//! which rustls uses too.

mod openssl;
mod reload;

use std::path::PathBuf;
use std::time::Duration;

use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::pki::testing::{ProxySpec, TestCa, authority, credential, params};
use crate::pki::{Holder, Issued, ProxyOptions, SiteCa, make_proxy};
use crate::role::Role;
use crate::trust::{Kind, ProxyRule, TrustOptions, TrustStore};
use crate::{Clock, Shutdown};

/// A site's authority, a mover with names for loopback, and Alice.
struct Bench {
    folder: tempfile::TempDir,
    ca: SiteCa,
    mover: Issued,
    alice: Issued,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = SiteCa::open_or_create(folder.path(), "test", &Clock::real()).unwrap();
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mover = ca.issue(&Holder::Part { role: Role::Mover, name: "m1", hosts: &hosts }, &Clock::real()).unwrap();
        let alice = ca.issue(&Holder::User { name: "Alice" }, &Clock::real()).unwrap();
        Self { folder, ca, mover, alice }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trust(&self) -> Trust {
        let store = TrustStore::from_pem(self.ca.certificate_pem().as_bytes(), TrustOptions::default());
        Trust::fixed(store.unwrap())
    }

    fn mover(&self) -> HotCredential {
        HotCredential::fixed(self.mover.credential().unwrap())
    }

    fn alice(&self) -> Credential {
        self.alice.credential().unwrap()
    }

    fn proxy(&self) -> Issued {
        make_proxy(&self.alice(), ProxyOptions::default(), &Clock::real()).unwrap()
    }

    fn expired_proxy(&self) -> Credential {
        let now = OffsetDateTime::now_utc();
        let hour = time::Duration::hours(1);
        ProxySpec { not_before: now - hour * 3, not_after: now - hour, ..ProxySpec::default() }.signed_by(&self.alice())
    }
}

fn fixed(credential: Credential) -> HotCredential {
    HotCredential::fixed(credential)
}

/// One connection in memory: who the server found, or each side's error.
async fn meet(
    server: &Arc<ServerConfig>,
    clients: &Clients,
    client: &Arc<ClientConfig>,
    name: &str,
) -> (io::Result<Peer>, io::Result<()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let serve = async {
        let (mut stream, peer) = accept(server, clients, ours).await?;
        stream.write_all(b"x").await?;
        stream.shutdown().await?;
        Ok(peer)
    };
    let ask = async {
        let mut stream = connect(client, name, theirs).await?;
        // In TLS 1.3 a client hears only here that it was refused.
        stream.read_u8().await.map(drop)
    };
    tokio::join!(serve, ask)
}

const VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn a_user_with_a_certificate_or_a_proxy_is_identified_in_both_versions_of_tls() {
    let bench = Bench::new();
    let clients = Clients::Required(bench.trust());
    let server = server_config(&bench.mover(), &clients, &[]);
    for (credential, levels) in [(bench.alice(), 0), (bench.proxy().credential().unwrap(), 1)] {
        let credential = fixed(credential);
        for version in VERSIONS {
            let client = client_config_of(&[version], Some(&credential), &bench.trust(), &Expect::Host, &[]);
            let (peer, told) = meet(&server, &clients, &Arc::new(client), "localhost").await;
            told.unwrap();
            let Peer::Identified(identity) = peer.unwrap() else { panic!("not identified") };
            assert_eq!(identity.subject.as_str(), "/O=Penstock site test/OU=user/CN=Alice");
            assert_eq!(identity.proxy_levels, levels);
        }
    }
}

#[tokio::test]
async fn users_keys_may_be_of_any_current_kind() {
    let bench = Bench::new();
    let now = OffsetDateTime::now_utc();
    let in_time = |mut params: rcgen::CertificateParams| {
        params.not_before = now - time::Duration::DAY;
        params.not_after = now + time::Duration::DAY;
        params
    };
    let ca = TestCa::root_of(in_time(authority("CA")));
    let grid = Trust::fixed(TrustStore::from_pem(ca.pem().as_bytes(), TrustOptions::default()).unwrap());
    let clients = Clients::Required(grid);
    let server = server_config(&bench.mover(), &clients, &[]);
    let keys = [
        rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
        rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519),
    ];
    for key in keys.map(Result::unwrap) {
        let certificate = in_time(params("Grid", "", "Alice")).signed_by(&key, &ca.issuer).unwrap();
        let user = credential(vec![certificate.der().clone()], &key);
        let proxy = make_proxy(&user, ProxyOptions::default(), &Clock::real()).unwrap().credential().unwrap();
        for holder in [fixed(user), fixed(proxy)] {
            for version in VERSIONS {
                let client = client_config_of(&[version], Some(&holder), &bench.trust(), &Expect::Host, &[]);
                let (peer, told) = meet(&server, &clients, &Arc::new(client), "localhost").await;
                told.unwrap();
                assert!(matches!(peer.unwrap(), Peer::Identified(user) if user.subject.as_str() == "/O=Grid/CN=Alice"));
            }
        }
    }
}

#[tokio::test]
async fn a_refused_client_breaks_the_handshake_or_is_told_by_the_protocol_as_configured() {
    let bench = Bench::new();
    let client = client_config(Some(&fixed(bench.expired_proxy())), &bench.trust(), &Expect::Host, &[]);
    let is_expired = |error: &TrustError| matches!(error, TrustError::Expired { what: Kind::Proxy, .. });
    for clients in [Clients::Required(bench.trust()), Clients::Optional(bench.trust())] {
        let server = server_config(&bench.mover(), &clients, &[]);
        let (peer, told) = meet(&server, &clients, &client, "localhost").await;
        let error = peer.unwrap_err();
        assert!(is_expired(refusal(&error).unwrap()) && why(&error).ends_with("make a new one"), "{error}");
        assert!(told.is_err());
    }
    let clients = Clients::Judged(bench.trust());
    let server = server_config(&bench.mover(), &clients, &[]);
    let (peer, told) = meet(&server, &clients, &client, "localhost").await;
    told.unwrap();
    assert!(matches!(peer.unwrap(), Peer::Refused(error) if is_expired(&error)));
}

#[tokio::test]
async fn a_client_without_a_certificate_is_anonymous_unless_one_is_required() {
    let bench = Bench::new();
    let client = client_config(None, &bench.trust(), &Expect::Host, &[]);
    for clients in [Clients::Anonymous, Clients::Optional(bench.trust()), Clients::Judged(bench.trust())] {
        let server = server_config(&bench.mover(), &clients, &[]);
        let (peer, told) = meet(&server, &clients, &client, "localhost").await;
        told.unwrap();
        assert!(matches!(peer.unwrap(), Peer::Anonymous));
    }
    let clients = Clients::Required(bench.trust());
    let (peer, told) = meet(&server_config(&bench.mover(), &clients, &[]), &clients, &client, "localhost").await;
    assert!(peer.is_err() && told.is_err());
}

#[tokio::test]
async fn a_thief_with_somebody_elses_certificate_and_another_key_is_refused_everywhere() {
    let bench = Bench::new();
    let mallory = bench.ca.issue(&Holder::User { name: "Mallory" }, &Clock::real()).unwrap().credential().unwrap();
    let stolen = CertifiedKey::new(bench.alice().chain().to_vec(), mallory.certified().key.clone());
    #[derive(Debug)]
    struct Thief(Arc<CertifiedKey>);
    impl rustls::client::ResolvesClientCert for Thief {
        fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    for clients in [Clients::Required(bench.trust()), Clients::Judged(bench.trust())] {
        let server = server_config(&bench.mover(), &clients, &[]);
        for version in VERSIONS {
            let mut client = client_config_of(&[version], None, &bench.trust(), &Expect::Host, &[]);
            client.client_auth_cert_resolver = Arc::new(Thief(Arc::new(stolen.clone())));
            let (peer, told) = meet(&server, &clients, &Arc::new(client), "localhost").await;
            assert!(peer.is_err() && told.is_err());
        }
    }
}

#[tokio::test]
async fn a_server_must_be_the_host_that_was_asked_for() {
    let bench = Bench::new();
    let server = server_config(&bench.mover(), &Clients::Anonymous, &[]);
    let client = client_config(None, &bench.trust(), &Expect::Host, &[]);
    for name in ["localhost", "127.0.0.1"] {
        meet(&server, &Clients::Anonymous, &client, name).await.1.unwrap();
    }
    for name in ["other.example", "127.0.0.2"] {
        let error = meet(&server, &Clients::Anonymous, &client, name).await.1.unwrap_err();
        let text = why(&error);
        assert!(text.contains(name) && text.contains("which is for localhost, 127.0.0.1;"), "{text}");
    }
    // A user is no host, and a name only in the subject does not count.
    let user = server_config(&fixed(bench.alice()), &Clients::Anonymous, &[]);
    assert!(meet(&user, &Clients::Anonymous, &client, "localhost").await.1.is_err());
    assert!(connect(&client, "not a host", tokio::io::duplex(1).0).await.is_err());
}

#[tokio::test]
async fn on_data_channels_a_user_is_expected_by_subject_and_may_be_the_server() {
    let bench = Bench::new();
    let server = server_config(&fixed(bench.proxy().credential().unwrap()), &Clients::Anonymous, &[]);
    let expect = |subject: &str| client_config(None, &bench.trust(), &Expect::Subject(subject.parse().unwrap()), &[]);
    let alice = expect("/O=Penstock site test/OU=user/CN=Alice");
    meet(&server, &Clients::Anonymous, &alice, "10.0.0.7").await.1.unwrap();
    let bob = expect("/O=Penstock site test/OU=user/CN=Bob");
    let error = meet(&server, &Clients::Anonymous, &bob, "10.0.0.7").await.1.unwrap_err();
    assert!(matches!(refusal(&error), Some(TrustError::WrongSubject { .. })), "{error}");
}

#[tokio::test]
async fn a_client_takes_data_from_the_movers_of_its_gateways_site_and_from_the_host_it_asked_for() {
    let (bench, other) = (Bench::new(), Bench::new());
    let hosts = ["gateway.example.org".to_owned()];
    let identity = |bench: &Bench| {
        let host =
            bench.ca.issue(&Holder::Host { name: "gateway.example.org", hosts: &hosts }, &Clock::real()).unwrap();
        let credential = host.credential().unwrap();
        bench.trust().current().verify(credential.chain(), Purpose::Server, now()).unwrap()
    };
    // Both authorities are trusted: a user may have accounts at both sites.
    let both = [bench.ca.certificate_pem(), other.ca.certificate_pem()].concat();
    let trust = Trust::fixed(TrustStore::from_pem(both.as_bytes(), TrustOptions::default()).unwrap());
    let expect = |gateway| client_config(None, &trust, &Expect::MoverOf(Box::new(gateway)), &[]);
    let mover = server_config(&bench.mover(), &Clients::Anonymous, &[]);
    meet(&mover, &Clients::Anonymous, &expect(identity(&bench)), "10.0.0.7").await.1.unwrap();
    // Another site's gateway: its name in the certificate is the same here, its authority is not.
    let error = meet(&mover, &Clients::Anonymous, &expect(identity(&other)), "10.0.0.7").await.1.unwrap_err();
    assert!(refusal(&error).is_some(), "{error}");
    meet(&mover, &Clients::Anonymous, &expect(identity(&other)), "127.0.0.1").await.1.unwrap();
    let alice = server_config(&fixed(bench.alice()), &Clients::Anonymous, &[]);
    let error = meet(&alice, &Clients::Anonymous, &expect(identity(&bench)), "10.0.0.7").await.1.unwrap_err();
    assert!(refusal(&error).is_some(), "{error}");
}

#[tokio::test]
async fn inside_a_site_peers_know_each_other_by_role() {
    let bench = Bench::new();
    let gateway =
        bench.ca.issue(&Holder::Part { role: Role::Gateway, name: "g1", hosts: &[] }, &Clock::real()).unwrap();
    let clients = Clients::Required(bench.trust());
    let server = server_config(&bench.mover(), &clients, &[]);
    let ask = |role, name: Option<&str>, credential: Credential| {
        let expect = Expect::Role { role, name: name.map(str::to_owned) };
        client_config(Some(&fixed(credential)), &bench.trust(), &expect, &[])
    };
    let gateway = || gateway.credential().unwrap();
    for name in [None, Some("m1")] {
        let (peer, told) = meet(&server, &clients, &ask(Role::Mover, name, gateway()), "10.0.0.7").await;
        told.unwrap();
        let Peer::Identified(identity) = peer.unwrap() else { panic!("not identified") };
        let peer = crate::role::SitePeer::of(&identity).unwrap();
        assert_eq!((peer.role, peer.name.as_str(), peer.site.as_str()), (Role::Gateway, "g1", "test"));
    }
    for (role, name) in [(Role::Mover, Some("m2")), (Role::Gateway, None)] {
        let error = meet(&server, &clients, &ask(role, name, gateway()), "10.0.0.7").await.1.unwrap_err();
        assert!(
            why(&error).starts_with("the other end is /O=Penstock site test/OU=mover/CN=m1, but this site's"),
            "{error}"
        );
    }
    // A user has no role, and a proxy of a part has none either.
    let (peer, _) = meet(&server, &clients, &ask(Role::Mover, None, bench.alice()), "10.0.0.7").await;
    assert!(matches!(peer.unwrap(), Peer::Identified(user) if crate::role::SitePeer::of(&user).is_none()));
    let proxy = make_proxy(&gateway(), ProxyOptions::default(), &Clock::real()).unwrap().credential().unwrap();
    let (peer, _) = meet(&server, &clients, &ask(Role::Mover, None, proxy), "10.0.0.7").await;
    assert!(matches!(peer.unwrap(), Peer::Identified(proxy) if crate::role::SitePeer::of(&proxy).is_none()));
}

#[tokio::test]
async fn application_protocols_are_negotiated() {
    let bench = Bench::new();
    let server = server_config(&bench.mover(), &Clients::Anonymous, &["h2", "http/1.1"]);
    let client = client_config(None, &bench.trust(), &Expect::Host, &["http/1.1"]);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (accepted, connected) =
        tokio::join!(accept(&server, &Clients::Anonymous, ours), connect(&client, "localhost", theirs));
    drop(connected.unwrap());
    assert_eq!(accepted.unwrap().0.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn a_refusal_is_found_only_in_our_own_errors() {
    let other = io::Error::other(rustls::Error::DecryptError);
    assert!(refusal(&other).is_none() && refusal(&io::Error::from(io::ErrorKind::TimedOut)).is_none());
    let ours = rustls::CertificateError::Other(rustls::OtherError(Arc::new(TrustError::Proxy {
        subject: "/CN=a".to_owned(),
        rule: ProxyRule::Legacy,
    })));
    let ours = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(ours));
    assert!(why(&ours).contains("grid-proxy-init -rfc"), "{}", why(&ours));
}
