//! Certificates that must not open a site, shown to a whole one: who shows it is told which certificate it is, what is
//! wrong with it, and what to do. Nobody gets further than that.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use client::{Client, ClientError};
use daemon::{
    Clock,
    pki::{Holder, Issued, ProxyOptions, SiteCa, make_proxy},
    tls::{HotCredential, Trust},
    trust::{TrustOptions, TrustStore},
};
use tests::{Raw, Site, User};

const DAY_US: i64 = 24 * 3600 * 1_000_000;

fn days_from_now(days: i64) -> Clock {
    Clock::settable(Clock::real().now_us() + days * DAY_US)
}

fn user(ca: &SiteCa, clock: &Clock) -> Issued {
    ca.issue(&Holder::User { name: "alice" }, clock).expect("issued")
}

fn credential(issued: &Issued) -> HotCredential {
    HotCredential::fixed(issued.credential().expect("loads"))
}

/// What pftp is told that logs in with this certificate.
async fn told(alice: &User, shown: &HotCredential) -> String {
    let mut options = alice.options();
    options.identity.as_mut().expect("an identity").credential = Some(shown.clone());
    match Client::open(Arc::new(options)).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("let in"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_certificate_is_named_with_what_is_wrong_and_opens_nothing() {
    let site = Site::builder().movers(1).start().await;
    let alice = site.user("alice").await;
    let other = SiteCa::in_memory("other", &Clock::real()).expect("an authority");
    let of_old = user(&site.ca, &days_from_now(-400));
    let proxy_of_old = make_proxy(
        &of_old.credential().expect("loads"),
        ProxyOptions { lifetime: Duration::from_secs(3600), ..ProxyOptions::default() },
        &days_from_now(-399),
    )
    .expect("a proxy");
    let cases = BTreeMap::from([
        ("of another authority", (user(&other, &Clock::real()), "/O=Penstock site other", "trust")),
        ("expired", (of_old, "CN=alice", "expired")),
        ("not valid yet", (user(&site.ca, &days_from_now(2)), "CN=alice", "is valid from")),
        ("a proxy of an expired certificate", (proxy_of_old, "CN=alice", "expired")),
    ]);
    for (what, (issued, whose, why)) in cases {
        let shown = credential(&issued);
        let said = told(&alice, &shown).await;
        println!("{what}: {said}");
        assert!(said.contains(whose) && said.contains(why), "{what}: {said}");
        let mut raw = Raw::connect(&site, Some(&shown)).await;
        let reply = raw.ask("USER alice").await;
        assert_eq!(reply.code(), 530, "{what}: {reply}");
        let reply = raw.ask("LIST").await;
        assert_eq!(reply.code(), 530, "{what}: not logged in: {reply}");
    }
    // A good one of somebody whom nobody has mapped.
    let stranger = credential(&site.ca.issue(&Holder::User { name: "mallory" }, &Clock::real()).expect("issued"));
    let said = told(&alice, &stranger).await;
    assert!(said.contains("CN=mallory"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_refused_by_the_list_in_the_trust_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let trusted = folder.path().to_owned();
    let ca = SiteCa::in_memory("grid", &Clock::real()).expect("an authority");
    let (good, revoked) = (user(&ca, &Clock::real()), user(&ca, &Clock::real()));
    let serial = serial(&revoked);
    let list = ca.revocation_list(&[serial], Duration::from_secs(3600), &Clock::real()).expect("a list");
    ca.write_trust_folder(&trusted, Some(&list)).expect("written");
    let site = Site::builder().movers(1).gateway(move |config| config.identity.trust = trusted).start().await;
    let alice = site.user("alice").await;
    let subject = credential(&good).current().subject().to_owned();
    let account = wire::id::AccountName::new("alice").expect("a name");
    site.gateway.catalog.map_subject(&subject, &account).await.expect("mapped");
    let said = told(&alice, &credential(&revoked)).await;
    assert!(said.contains("CN=alice") && said.contains("revoked by") && said.contains("apply for"), "{said}");
    let mut raw = Raw::connect(&site, Some(&credential(&good))).await;
    assert_eq!(raw.ask("USER alice").await.code(), 232, "the one beside it is good");
}

fn serial(issued: &Issued) -> Vec<u8> {
    let leaf = issued.chain().first().expect("a certificate");
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).expect("a certificate");
    parsed.raw_serial().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_name_or_authority_is_not_told_who_asks() {
    let site = Site::builder().movers(1).start().await;
    let alice = site.user("alice").await;
    // The site's certificate is for 127.0.0.1 and localhost.
    let mut options = alice.options();
    options.target.host = "127.0.0.2".to_owned();
    let other = impostor(&site, &options.target.host).await;
    options.target.port = other;
    let Err(error) = Client::open(Arc::new(options)).await else { panic!("let in") };
    println!("{error}");
    assert!(matches!(error, ClientError::Tls { .. }), "{error}");
    let text = format!("{error}");
    assert!(text.contains("127.0.0.2") && text.contains("127.0.0.1"), "it says for which hosts it is: {text}");

    let mut options = alice.options();
    let stranger = SiteCa::in_memory("stranger", &Clock::real()).expect("an authority");
    let store = TrustStore::from_pem(stranger.certificate_pem().as_bytes(), TrustOptions::default());
    options.identity.as_mut().expect("an identity").trust = Trust::fixed(store.expect("an authority"));
    let Err(error) = Client::open(Arc::new(options)).await else { panic!("let in") };
    println!("{error}");
    assert!(matches!(error, ClientError::Tls { .. }) && error.to_string().contains("trust"), "{error}");
}

/// Passes connections to this address on to the site's door: a host whose name is in no certificate.
async fn impostor(site: &Site, host: &str) -> u16 {
    let listener = tokio::net::TcpListener::bind((host, 0)).await.expect("loopback has it");
    let port = listener.local_addr().expect("bound").port();
    let door = site.ftp();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let mut to = tokio::net::TcpStream::connect(door).await.expect("the door is open");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_is_told_what_is_wrong_with_its_certificate() {
    let site = Site::builder().movers(1).start().await;
    site.user("alice").await;
    let ca = site.folder().join("ca.pem");
    let url = format!("ftp://{}/", site.ftp());
    let curl = |certificate: &Path| {
        let mut command = tokio::process::Command::new("curl");
        command.args(["--silent", "--show-error", "--verbose", "--ssl-reqd", "--max-time", "20", "--cacert"]);
        command.arg(&ca).arg("--cert").arg(certificate).arg(&url).kill_on_drop(true);
        command
    };
    let expired = site.folder().join("expired.pem");
    user(&site.ca, &days_from_now(-400)).create(&expired).expect("written");
    let output = curl(&expired).output().await.expect("curl runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(67), "curl's own word for a login denied: {said}");
    assert!(said.contains("< 530") && said.contains("expired"), "{said}");
}
