//! A control connection in the raw: what a client library would never send.
//!
//! Owns the connection. Speaks TLS, and nothing else by itself.

use std::net::SocketAddr;

use daemon::tls::{self, Expect, HotCredential, Trust};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::ftp::{Reply, ReplyDecoder};

use crate::{Site, User, soon};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A control connection in the raw.
pub struct Raw {
    stream: Box<dyn Stream>,
    decoder: ReplyDecoder,
    input: Vec<u8>,
}

impl Raw {
    /// Connects to a site's FTP door over TLS, showing this certificate.
    ///
    /// # Panics
    ///
    /// If that does not work.
    pub async fn connect(site: &Site, credential: Option<&HotCredential>) -> Self {
        Self::to(site.ftp(), credential, &site.trust()).await
    }

    async fn to(door: SocketAddr, credential: Option<&HotCredential>, trust: &Trust) -> Self {
        let stream = TcpStream::connect(door).await.expect("connected");
        let mut clear = Self { stream: Box::new(stream), decoder: ReplyDecoder::new(), input: Vec::new() };
        assert_eq!(clear.reply().await.code(), 220);
        assert_eq!(clear.ask("AUTH TLS").await.code(), 234);
        let config = tls::client_config(credential, trust, &Expect::Host, &[]);
        let stream = tls::connect(&config, "127.0.0.1", clear.stream).await.expect("a handshake");
        Self { stream: Box::new(stream), decoder: ReplyDecoder::new(), input: Vec::new() }
    }

    /// Connects and logs in as this user.
    ///
    /// # Panics
    ///
    /// If that does not work.
    pub async fn login(site: &Site, user: &User) -> Self {
        let identity = user.options().identity.expect("a certificate");
        let mut raw = Self::connect(site, identity.credential.as_ref()).await;
        assert_eq!(raw.ask("USER :globus-mapping:").await.code(), 232);
        assert_eq!(raw.ask("TYPE I").await.code(), 200);
        raw
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    ///
    /// If the connection is gone.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
        self.stream.flush().await.expect("sent");
    }

    /// The next reply.
    ///
    /// # Panics
    ///
    /// If none comes.
    pub async fn reply(&mut self) -> Reply {
        soon("a reply", async {
            loop {
                let mut rest = &self.input[..];
                let reply = self.decoder.next_reply(&mut rest).expect("a reply");
                let taken = self.input.len() - rest.len();
                self.input.drain(..taken);
                if let Some(reply) = reply {
                    return reply;
                }
                let mut chunk = vec![0; 65_536];
                let count = self.stream.read(&mut chunk).await.expect("more");
                assert!(count > 0, "the door closed the connection");
                self.input.extend_from_slice(&chunk[..count]);
            }
        })
        .await
    }

    /// Sends a line, and gives the next reply.
    pub async fn ask(&mut self, line: &str) -> Reply {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.reply().await
    }

    /// The next reply that is not preliminary.
    pub async fn last_reply(&mut self) -> Reply {
        loop {
            let reply = self.reply().await;
            if !reply.is_preliminary() {
                return reply;
            }
        }
    }

    /// Where `PASV` says that the data is.
    ///
    /// # Panics
    ///
    /// If it says nothing of the kind.
    pub async fn passive(&mut self) -> SocketAddr {
        let reply = self.ask("PASV").await;
        let text = reply.text();
        let inside = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).expect("an address").0.to_owned();
        let numbers: Vec<u8> = inside.split(',').map(|number| number.trim().parse().expect("a byte")).collect();
        let [a, b, c, d, high, low] = numbers[..] else { panic!("{reply}") };
        SocketAddr::from(([a, b, c, d], u16::from(high) << 8 | u16::from(low)))
    }
}
