//! Posting to a webhook.
//!
//! Owns nothing between posts: each has a connection of its own. Never follows a redirect, and never says where it
//! posts to or with which header: either may be a secret.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use daemon::{
    Secret,
    tls::{self, Expect, Trust, TrustSource},
    trust::TrustOptions,
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, StatusCode,
    client::conn::http1,
    header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::config::{Address, DestinationConfig};

/// What is read of an answer, so that the other side can end what it says; and for how long.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// A file with one header has no more.
const MAX_HEADER_BYTES: u64 = 8 << 10;
/// Where systems keep the authorities they trust: Debian and its kin, Red Hat and its kin, SUSE, Alpine.
const SYSTEM_TRUST: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A webhook.
pub(super) struct Webhook {
    address: Address,
    tls: Option<Arc<ClientConfig>>,
    header: Option<PathBuf>,
    limit: Duration,
}

impl Webhook {
    /// A webhook of this configuration; its authorities and its header are there.
    pub(super) fn open(config: &DestinationConfig, address: &str) -> io::Result<Self> {
        let address = Address::of(address).map_err(|why| io::Error::other(format!("the webhook {why}")))?;
        let tls = match (address.secure, &config.ca) {
            (false, _) => None,
            (true, Some(path)) => Some(path.clone()),
            (true, None) => {
                let found = SYSTEM_TRUST.into_iter().map(PathBuf::from).find(|path| path.exists());
                let none = "this system has no list of authorities where it is looked for: name one with ca = \"…\"";
                Some(found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, none))?)
            }
        };
        let tls = match tls {
            None => None,
            Some(path) => {
                let trust = Trust::load(TrustSource::Bundle(path), TrustOptions::default());
                let trust = trust.map_err(io::Error::other)?;
                Some(tls::client_config(None, &trust, &Expect::Host, &["http/1.1"]))
            }
        };
        Ok(Self { address, tls, header: config.header_file.clone(), limit: config.timeout.duration() })
    }

    /// Posts a JSON text. Once this returns, the other side has acknowledged it.
    ///
    /// # Errors
    ///
    /// If it did not in time, or said anything but 2xx.
    pub(super) async fn post(&self, body: Bytes) -> io::Result<()> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {:?}", self.limit));
        let status = timeout(self.limit, self.exchange(body)).await.map_err(late)??;
        if status.is_success() {
            return Ok(());
        }
        let why = if status.is_redirection() { ": redirects are not followed" } else { "" };
        Err(io::Error::other(format!("it answered {status}{why}")))
    }

    async fn exchange(&self, body: Bytes) -> io::Result<StatusCode> {
        let request = self.request(body).await?;
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => talk(stream, request).await,
            Some(config) => {
                let stream = tls::connect(config, host, stream).await;
                talk(stream.map_err(|error| io::Error::other(tls::why(&error)))?, request).await
            }
        }
    }

    async fn request(&self, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
        let mut request = Request::post(&self.address.path)
            .header(HOST, &self.address.authority)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("penstock/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        if let Some(path) = &self.header {
            let (name, value) = read_header(path).await?;
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    /// Whether its header can be read, to be said at the start.
    pub(super) async fn check(&self) -> io::Result<()> {
        match &self.header {
            Some(path) => read_header(path).await.map(drop),
            None => Ok(()),
        }
    }
}

async fn talk<S>(stream: S, request: Request<Full<Bytes>>) -> io::Result<StatusCode>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        // The status is the answer; what else is said is heard for politeness.
        let _ = timeout(ANSWER_LIMIT, Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect()).await;
        Ok(status)
    };
    tokio::pin!(exchange, connection);
    tokio::select! {
        biased;
        status = &mut exchange => status,
        // What came before the end is still to be read.
        _ = &mut connection => exchange.await,
    }
}

/// The header in a file: one line, `Name: value`.
async fn read_header(path: &Path) -> io::Result<(HeaderName, HeaderValue)> {
    let bad = |what: &str| io::Error::other(format!("{} {what}", path.display()));
    let file = tokio::fs::File::open(path).await.map_err(|error| bad(&format!("cannot be opened: {error}")))?;
    let mut text = Vec::new();
    file.take(MAX_HEADER_BYTES).read_to_end(&mut text).await?;
    let text = Secret::new(text);
    let line = std::str::from_utf8(text.expose()).map_err(|_| bad("is no text"))?.trim();
    let (name, value) = line.split_once(':').ok_or_else(|| bad("has no line of the form `Name: value`"))?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| bad("has no good name of a header"))?;
    let mut value = HeaderValue::try_from(value.trim()).map_err(|_| bad("has no good value of a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use daemon::{
        Clock,
        pki::{Holder, SiteCa},
        role::Role,
        tls::{Clients, HotCredential},
    };
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    /// A server with TLS for `localhost` that says the same to everybody, and what it has heard.
    async fn server(ca: &SiteCa, says: &'static str) -> (u16, tokio::sync::mpsc::Receiver<String>) {
        let hosts = ["localhost".to_owned()];
        let holder = Holder::Part { role: Role::Mover, name: "hook", hosts: &hosts };
        let credential = ca.issue(&holder, &Clock::real()).expect("issued").credential().expect("loads");
        let config = tls::server_config(&HotCredential::fixed(credential), &Clients::Anonymous, &["http/1.1"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (heard, receiver) = tokio::sync::mpsc::channel(10);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok((mut stream, _)) = tls::accept(&config, &Clients::Anonymous, stream).await else { continue };
                let mut request = vec![0; 4096];
                let mut length = 0;
                while !request[..length].ends_with(b"}") {
                    match stream.read(&mut request[length..]).await {
                        Ok(0) | Err(_) => break,
                        Ok(more) => length += more,
                    }
                }
                let _ = heard.send(String::from_utf8_lossy(&request[..length]).into_owned()).await;
                let _ = stream.write_all(says.as_bytes()).await;
            }
        });
        (port, receiver)
    }

    fn hook(port: u16, folder: &Path, header: Option<&str>) -> Webhook {
        let path = folder.join("header");
        if let Some(header) = header {
            std::fs::write(&path, header).expect("written");
        }
        let config = DestinationConfig {
            ca: Some(folder.join("ca.pem")),
            header_file: header.map(|_| path),
            timeout: daemon::config::TimeSpan::seconds(5),
            ..DestinationConfig::default()
        };
        Webhook::open(&config, &format!("https://localhost:{port}/in?key=hidden")).expect("a webhook")
    }

    #[tokio::test]
    async fn a_post_goes_by_tls_to_who_has_a_good_certificate_with_the_header_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = SiteCa::in_memory("hooks", &Clock::real()).expect("an authority");
        std::fs::write(folder.path().join("ca.pem"), ca.certificate_pem()).expect("written");
        let (port, mut heard) = server(&ca, "HTTP/1.1 202 So\r\ncontent-length: 0\r\n\r\n").await;
        let webhook = hook(port, folder.path(), Some("X-Token: let-me-in\n"));
        webhook.check().await.expect("the header is there");
        webhook.post(Bytes::from_static(b"{\"a\":1}")).await.expect("acknowledged");
        let request = heard.recv().await.expect("a request").to_ascii_lowercase();
        assert!(request.starts_with("post /in?key=hidden http/1.1\r\n") && request.ends_with("{\"a\":1}"), "{request}");
        assert!(request.contains("x-token: let-me-in\r\n") && request.contains(&format!("host: localhost:{port}\r\n")));

        let other = SiteCa::in_memory("others", &Clock::real()).expect("an authority");
        let (port, mut heard) = server(&other, "HTTP/1.1 200 So\r\ncontent-length: 0\r\n\r\n").await;
        let error = hook(port, folder.path(), None).post(Bytes::from_static(b"{}")).await.expect_err("not trusted");
        assert!(heard.try_recv().is_err(), "nothing was sent");
        assert!(!error.to_string().contains("hidden"), "{error}");
    }

    #[tokio::test]
    async fn only_a_good_status_acknowledges_and_a_redirect_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = SiteCa::in_memory("hooks", &Clock::real()).expect("an authority");
        std::fs::write(folder.path().join("ca.pem"), ca.certificate_pem()).expect("written");
        let says = "HTTP/1.1 307 So\r\nlocation: https://localhost/elsewhere\r\ncontent-length: 0\r\n\r\n";
        let (port, _heard) = server(&ca, says).await;
        let error = hook(port, folder.path(), None).post(Bytes::from_static(b"{}")).await.expect_err("a redirect");
        assert!(error.to_string().contains("307") && error.to_string().contains("redirects"), "{error}");
        let (port, _heard) = server(&ca, "HTTP/1.1 200 So\r\ncontent-length: 9\r\n\r\ncut").await;
        hook(port, folder.path(), None).post(Bytes::from_static(b"{}")).await.expect("the status is the answer");
        let (port, _heard) = server(&ca, "").await;
        hook(port, folder.path(), None).post(Bytes::from_static(b"{}")).await.expect_err("it hung up");
        for header in ["", "no colon", "Bad Name: x"] {
            let error = hook(port, folder.path(), Some(header)).check().await.expect_err("no header");
            assert!(error.to_string().contains("header"), "{error}");
        }
    }
}
