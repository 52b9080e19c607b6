//! OpenSSL at the other end, over loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Serves one connection on loopback and says to the client whom it found.
async fn serve_once(
    listener: tokio::net::TcpListener,
    config: Arc<ServerConfig>,
    clients: Clients,
) -> io::Result<Peer> {
    let (stream, _) = listener.accept().await?;
    let (mut stream, peer) = accept(&config, &clients, stream).await?;
    let text = match &peer {
        Peer::Identified(identity) => format!("hello {identity}\n"),
        Peer::Anonymous => "hello nobody\n".to_owned(),
        Peer::Refused(error) => format!("{error}\n"),
    };
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(peer)
}

#[tokio::test]
async fn openssl_s_client_logs_in_with_a_proxy_and_gets_no_session_ticket() {
    let bench = Bench::new();
    let proxy = bench.path("proxy.pem");
    bench.proxy().create(&proxy).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let clients = Clients::Required(bench.trust());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(serve_once(listener, server_config(&bench.mover(), &clients, &[]), clients));
        let mut command = Command::new("openssl");
        command
            .args([
                "s_client",
                "-ign_eof",
                version,
                "-connect",
                &address,
                "-servername",
                "localhost",
                "-verify_hostname",
                "localhost",
            ])
            .args(["-verify_return_error", "-CAfile"])
            .arg(bench.path("ca.pem"))
            .arg("-cert")
            .arg(&proxy)
            .arg("-key")
            .arg(&proxy)
            .arg("-cert_chain")
            .arg(&proxy)
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("install openssl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(matches!(server.await.unwrap(), Ok(Peer::Identified(_))), "{version}: {text}");
        assert!(text.contains("Verification: OK") && !text.contains("Session Ticket arrived"), "{version}: {text}");
        assert!(text.contains("hello /O=Penstock site test/OU=user/CN=Alice"), "{version}: {text}");
    }
}

#[tokio::test]
async fn openssl_s_server_accepts_our_client_with_a_proxy() {
    let bench = Bench::new();
    let host = bench.path("host.pem");
    bench.mover.create(&host).unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut server = Command::new("openssl")
            .args(["s_server", version, "-accept", "127.0.0.1:0", "-naccept", "1", "-rev"])
            .args(["-Verify", "3", "-verify_return_error", "-allow_proxy_certs", "-CAfile"])
            .arg(bench.path("ca.pem"))
            .arg("-cert")
            .arg(&host)
            .arg("-key")
            .arg(&host)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .spawn()
            .expect("install openssl");
        let lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();
        let client =
            client_config(Some(&fixed(bench.proxy().credential().unwrap())), &bench.trust(), &Expect::Host, &[]);
        let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let mut stream = connect(&client, "localhost", stream).await.unwrap();
        stream.write_all(b"abc\n").await.unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"cba\n", "{version}");
        drop(stream);
        server.kill().unwrap();
        server.wait().unwrap();
    }
}
