//! The control connection: commands out, replies in, with a limit on every wait.
//!
//! Owns the socket and what was read of the next reply. Talks to the server. Never decides what to say.
//!
//! Invariant: after an error the connection is out of step and must be dropped.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::BytesMut;
use rustls::{ClientConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use wire::ftp::{Command, Reply, ReplyDecoder};

use crate::{ClientError, Result, Target};

/// Something said on the control connection, for `verbose`.
#[derive(Debug, Clone, Copy)]
pub enum Spoken<'a> {
    /// By us, secrets hidden.
    Sent(&'a str),
    /// By the server.
    Received(&'a Reply),
}

/// Who listens to what is said.
pub type Trace = Arc<dyn Fn(Spoken<'_>) + Send + Sync>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync> Stream for S {}

/// How long each kind of wait may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// TCP and TLS handshakes.
    pub connect: Duration,
    /// From a command to its reply.
    pub reply: Duration,
    /// From a transfer command to its first data: a recall from tape lies between.
    pub begin: Duration,
    /// Without a byte moving on any data connection.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            reply: Duration::from_secs(120),
            begin: Duration::from_secs(24 * 3600),
            stall: Duration::from_secs(300),
        }
    }
}

/// The control connection.
pub(crate) struct Control {
    stream: Box<dyn Stream>,
    decoder: ReplyDecoder,
    received: BytesMut,
    outgoing: BytesMut,
    server: String,
    pub(crate) limits: Limits,
    trace: Option<Trace>,
    /// The socket under everything, to ask the kernel about it.
    socket: Option<socket2::Socket>,
    /// Our end and theirs.
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("server", &self.server).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Control {
    /// Connects, to the first address of the name that answers.
    pub(crate) async fn connect(target: &Target, limits: Limits, trace: Option<Trace>) -> Result<Self> {
        let server = target.server();
        let failed = |source| ClientError::Connect { server: server.clone(), source };
        let connecting = TcpStream::connect((target.host.as_str(), target.port));
        let stream = timeout(limits.connect, connecting)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(failed)?;
        let failed = |source| ClientError::Connect { server: server.clone(), source };
        stream.set_nodelay(true).map_err(failed)?;
        let _ = socket2::SockRef::from(&stream).set_keepalive(true);
        let socket = socket2::SockRef::from(&stream).try_clone().ok();
        let (local, peer) = (stream.local_addr(), stream.peer_addr());
        let (local, peer) = local.and_then(|local| Ok((local, peer?))).map_err(failed)?;
        Ok(Self {
            stream: Box::new(stream),
            decoder: ReplyDecoder::new(),
            received: BytesMut::with_capacity(16 << 10),
            outgoing: BytesMut::new(),
            server,
            limits,
            trace,
            socket,
            local,
            peer,
        })
    }

    /// Does the TLS handshake on the connection, for a server of this name.
    ///
    /// Nothing may have been received beyond the reply to AUTH: whoever could write in clear could otherwise put words
    /// in front of the protected ones.
    ///
    /// Gives the certificates that the server showed, too.
    pub(crate) async fn start_tls(
        self,
        config: &Arc<ClientConfig>,
        host: &str,
    ) -> Result<(Self, Vec<CertificateDer<'static>>)> {
        let fail = |reason: String| ClientError::Tls { peer: self.server.clone(), reason };
        if self.decoder.is_partial() || !self.received.is_empty() {
            return Err(fail("the server went on speaking in clear after its answer to AUTH TLS".to_owned()));
        }
        let handshake = daemon::tls::connect(config, host, self.stream);
        let stream = match timeout(self.limits.connect, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(fail(daemon::tls::why(&error))),
            Err(_) => return Err(fail(format!("no handshake within {:?}", self.limits.connect))),
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        Ok((Self { stream: Box::new(stream), ..self }, chain))
    }

    /// What the kernel knows of the connection.
    pub(crate) fn figures(&self) -> Option<daemon::tcp::TcpFigures> {
        self.socket.as_ref().and_then(|socket| daemon::tcp::figures(socket).ok())
    }

    /// The server, as it was named.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Who listens from now on.
    pub(crate) fn set_trace(&mut self, trace: Option<Trace>) {
        self.trace = trace;
    }

    /// Puts a command in the queue; [`flush`](Self::flush) sends it.
    pub(crate) fn queue(&mut self, command: &Command) {
        if let Some(trace) = &self.trace {
            let line = match command {
                Command::Pass(_) | Command::Acct(_) => format!("{} ********", command.verb()),
                other => other.line(),
            };
            trace(Spoken::Sent(&line));
        }
        command.encode(&mut self.outgoing);
    }

    /// Puts a line of the user in the queue, as it is.
    pub(crate) fn queue_line(&mut self, line: &wire::ftp::Text) {
        if let Some(trace) = &self.trace {
            trace(Spoken::Sent(line.as_str()));
        }
        self.outgoing.extend_from_slice(line.as_str().as_bytes());
        self.outgoing.extend_from_slice(b"\r\n");
    }

    /// Sends what is queued. Not cancel-safe.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let outgoing = self.outgoing.split();
        let sending = async {
            self.stream.write_all(&outgoing).await?;
            self.stream.flush().await
        };
        match timeout(self.limits.reply, sending).await {
            Ok(sent) => sent.map_err(|source| ClientError::Control { server: self.server.clone(), source }),
            Err(_) => Err(self.silent("it to read our commands", self.limits.reply)),
        }
    }

    /// Waits for the next reply. Cancel-safe: what was read of it is kept.
    pub(crate) async fn reply(&mut self, awaited: &str, limit: Duration) -> Result<Reply> {
        let waiting = async {
            loop {
                let mut input = &self.received[..];
                let decoded = self.decoder.next_reply(&mut input);
                let taken = self.received.len() - input.len();
                let _ = self.received.split_to(taken);
                if let Some(reply) = decoded? {
                    return Ok(reply);
                }
                let broke = |source| ClientError::Control { server: self.server.clone(), source };
                if self.stream.read_buf(&mut self.received).await.map_err(broke)? == 0 {
                    let reason = "the server closed it";
                    return Err(broke(io::Error::new(io::ErrorKind::UnexpectedEof, reason)));
                }
            }
        };
        let reply = match timeout(limit, waiting).await {
            Ok(reply) => reply?,
            Err(_) => return Err(self.silent(awaited, limit)),
        };
        if let Some(trace) = &self.trace {
            trace(Spoken::Received(&reply));
        }
        Ok(reply)
    }

    /// Sends one command and waits for its last reply; preliminary ones are skipped.
    pub(crate) async fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.queue(command);
        self.flush().await?;
        self.last_reply(command.verb(), self.limits.reply).await
    }

    /// Waits for a reply that is not preliminary.
    pub(crate) async fn last_reply(&mut self, awaited: &str, limit: Duration) -> Result<Reply> {
        loop {
            let reply = self.reply(awaited, limit).await?;
            if !reply.is_preliminary() {
                return Ok(reply);
            }
        }
    }

    /// As [`ask`](Self::ask); any answer but 2yz is an error.
    pub(crate) async fn demand(&mut self, command: &Command) -> Result<Reply> {
        let reply = self.ask(command).await?;
        if reply.is_success() { Ok(reply) } else { Err(ClientError::refused(command, reply)) }
    }

    /// Sends commands in one flight, none of which decides about the next, and waits for all of their last replies.
    pub(crate) async fn together(&mut self, commands: &[(Command, bool)]) -> Result<Vec<Reply>> {
        for (command, _) in commands {
            self.queue(command);
        }
        self.flush().await?;
        let mut replies = Vec::with_capacity(commands.len());
        for (command, _) in commands {
            replies.push(self.last_reply(command.verb(), self.limits.reply).await?);
        }
        Ok(replies)
    }

    fn silent(&self, awaited: &str, limit: Duration) -> ClientError {
        ClientError::Timeout { server: self.server.clone(), awaited: awaited.to_owned(), limit }
    }
}
