//! Files that change while connections come in.

use super::*;

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_new_configuration() {
    let bench = Bench::new();
    let path = bench.path("mover.pem");
    bench.mover.create(&path).unwrap();
    let hot = HotCredential::from_files(&path, &path).unwrap();
    let server = server_config(&hot, &Clients::Anonymous, &[]);
    let expect = |name: &str| Expect::Role { role: Role::Mover, name: Some(name.to_owned()) };
    let ask = |name: &str| client_config(None, &bench.trust(), &expect(name), &[]);
    meet(&server, &Clients::Anonymous, &ask("m1"), "localhost").await.1.unwrap();
    assert_eq!(hot.reload(), Ok(Reloaded::Unchanged));

    std::fs::write(&path, "rubbish").unwrap();
    assert!(hot.reload().unwrap_err().contains("mover.pem"));
    assert_eq!(hot.reload(), Ok(Reloaded::Unchanged), "a bad file is tried once");
    meet(&server, &Clients::Anonymous, &ask("m1"), "localhost").await.1.unwrap();

    let renewed = bench.ca.issue(&Holder::Part { role: Role::Mover, name: "m2", hosts: &[] }, &Clock::real()).unwrap();
    renewed.replace(&path).unwrap();
    assert_eq!(hot.reload(), Ok(Reloaded::Changed));
    meet(&server, &Clients::Anonymous, &ask("m2"), "localhost").await.1.unwrap();
}

#[tokio::test]
async fn a_revocation_list_that_appears_in_the_folder_holds_for_the_next_handshake() {
    let bench = Bench::new();
    let folder = bench.path("trust");
    bench.ca.write_trust_folder(&folder, None).unwrap();
    let trust = Trust::load(TrustSource::at(&folder), TrustOptions::default()).unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(5));
    watch(&shutdown, Duration::from_millis(5), vec![Arc::new(trust.clone())]);
    let clients = Clients::Required(trust.clone());
    let server = server_config(&bench.mover(), &clients, &[]);
    let client = client_config(Some(&fixed(bench.alice())), &bench.trust(), &Expect::Host, &[]);
    meet(&server, &clients, &client, "localhost").await.0.unwrap();

    let serial = crate::trust::Certificate::parse(&bench.alice.chain()[0], 1).unwrap().x509.raw_serial().to_vec();
    let list = bench.ca.revocation_list(&[serial], Duration::from_secs(3600), &Clock::real()).unwrap();
    let before = trust.current();
    bench.ca.write_trust_folder(&folder, Some(&list)).unwrap();
    while Arc::ptr_eq(&before, &trust.current()) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = meet(&server, &clients, &client, "localhost").await.0.unwrap_err();
    assert!(matches!(refusal(&error), Some(TrustError::Revoked { .. })), "{error}");
    assert_eq!(shutdown.finish().await, crate::lifecycle::Ending::Clean);
}
