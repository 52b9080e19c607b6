//! The bytes of one control connection: clear or TLS, lines in, replies out, both bounded.
//!
//! Owns the socket. Talks to the connection's driver, which asks for the next line and hands over replies. Never knows
//! what a command means.
//!
//! Invariant: what came in clear is never read as if it had come protected: AUTH with anything behind it is the end.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use daemon::tls::{self, Clients, Peer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::server::TlsStream;
use wire::ftp::{Command, LineDecoder, ParseError, Reply};

/// Read at a time. A command line is far shorter.
const READ_BYTES: usize = 4096;

/// Replies that wait for those to the commands behind them, as long as such are there already.
const TOGETHER_BYTES: usize = 8 * 1024;

/// How long the last reply may take to go out, and the client to close behind it.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

/// Read and thrown away behind the last reply, so that the kernel does not reset the connection over it.
const GOODBYE_BYTES: usize = 256 * 1024;

/// The socket.
#[derive(Debug)]
enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// A handshake took it and did not give it back.
    Gone,
}

/// One control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: Stream,
    input: BytesMut,
    lines: LineDecoder,
    output: BytesMut,
    /// Since when the output has been waiting for the client to read.
    unread_since: Option<Instant>,
}

/// What happened on a control connection.
#[derive(Debug)]
pub(super) enum Happened {
    /// A line came.
    Line(Result<Command, ParseError>),
    /// All that was said is out.
    Flushed,
    /// The client has closed, or the connection is broken.
    Ended(Option<io::Error>),
}

/// Why TLS did not come about.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecureError {
    /// Bytes came in clear behind AUTH, before the handshake.
    #[error("bytes in clear behind AUTH")]
    Injected,
    /// The handshake failed.
    #[error("TLS handshake")]
    Handshake(#[source] io::Error),
}

impl Control {
    /// A connection just accepted.
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            stream: Stream::Clear(socket),
            input: BytesMut::new(),
            lines: LineDecoder::new(),
            output: BytesMut::new(),
            unread_since: None,
        }
    }

    /// Says something, later: [`Self::next`] writes it.
    pub(super) fn send(&mut self, reply: &Reply) {
        reply.encode(&mut self.output);
        self.unread_since.get_or_insert_with(Instant::now);
    }

    /// Says a piece of a long reply.
    pub(super) fn send_text(&mut self, text: &Bytes) {
        self.output.extend_from_slice(text);
        if !text.is_empty() {
            self.unread_since.get_or_insert_with(Instant::now);
        }
    }

    /// Bytes said and not yet taken by the kernel.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.output.len()
    }

    /// Since when the client has not read what was said; `None` if nothing waits.
    pub(super) const fn unread_since(&self) -> Option<Instant> {
        self.unread_since
    }

    /// Writes what was said, and reads the next line if one is wanted. Cancel-safe.
    pub(super) async fn next(&mut self, want_line: bool) -> Happened {
        poll_fn(|cx| self.poll_next(cx, want_line)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, want_line: bool) -> Poll<Happened> {
        // Replies to commands that came together go out together: one record, one system call.
        if want_line
            && self.output.len() < TOGETHER_BYTES
            && let Some(line) = self.take_line()
        {
            return Poll::Ready(Happened::Line(line));
        }
        if !self.output.is_empty() {
            match self.poll_flush(cx) {
                Poll::Ready(Ok(())) => return Poll::Ready(Happened::Flushed),
                Poll::Ready(Err(error)) => return Poll::Ready(Happened::Ended(Some(error))),
                Poll::Pending => {}
            }
        }
        if !want_line {
            return Poll::Pending;
        }
        loop {
            if let Some(line) = self.take_line() {
                return Poll::Ready(Happened::Line(line));
            }
            let mut chunk = [0; READ_BYTES];
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Happened::Ended(None)),
                Poll::Ready(Ok(())) => self.input.extend_from_slice(buffer.filled()),
                Poll::Ready(Err(error)) => return Poll::Ready(Happened::Ended(Some(error))),
            }
        }
    }

    fn take_line(&mut self) -> Option<Result<Command, ParseError>> {
        let mut rest = &self.input[..];
        let line = self.lines.next_line(&mut rest);
        let taken = self.input.len() - rest.len();
        self.input.advance(taken);
        if self.input.is_empty() {
            // An idle session keeps no buffer.
            self.input = BytesMut::new();
        }
        line.map(|line| line.map_err(ParseError::from).and_then(|line| Command::parse(&line)))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.output) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.output.advance(count);
                    self.unread_since = Some(Instant::now());
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        self.output = BytesMut::new();
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            self.unread_since = None;
        }
        flushed
    }

    /// Writes all that was said. Not cancel-safe in that some of it may be out.
    async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Sends what was said, then does the server's side of the TLS handshake. Not cancel-safe: the connection is lost.
    ///
    /// # Errors
    ///
    /// [`SecureError`]; the connection cannot be used any more.
    pub(super) async fn secure(&mut self, config: &Arc<ServerConfig>, clients: &Clients) -> Result<Peer, SecureError> {
        if !self.input.is_empty() || self.lines.is_partial() {
            return Err(SecureError::Injected);
        }
        self.flush().await.map_err(SecureError::Handshake)?;
        match std::mem::replace(&mut self.stream, Stream::Gone) {
            Stream::Clear(socket) => {
                let (stream, peer) = tls::accept(config, clients, socket).await.map_err(SecureError::Handshake)?;
                self.stream = Stream::Tls(Box::new(stream));
                Ok(peer)
            }
            Stream::Tls(_) | Stream::Gone => Err(SecureError::Handshake(io::ErrorKind::AlreadyExists.into())),
        }
    }

    /// Sends what was said and closes, within [`GOODBYE_LIMIT`].
    ///
    /// `expected`: the client asked for it, and has said nothing behind that. Otherwise what it still sends is read and
    /// thrown away: unread input would make the kernel send a reset, which can overtake the last reply.
    pub(super) async fn close(mut self, expected: bool) {
        let goodbye = async {
            self.flush().await?;
            self.stream.shutdown().await?;
            if expected && self.input.is_empty() {
                return Ok(());
            }
            let mut chunk = vec![0; READ_BYTES];
            let mut read_bytes = 0;
            while read_bytes < GOODBYE_BYTES {
                match self.stream.read(&mut chunk).await? {
                    0 => break,
                    count => read_bytes += count,
                }
            }
            io::Result::Ok(())
        };
        // Whoever is gone already misses nothing.
        let _ = tokio::time::timeout(GOODBYE_LIMIT, goodbye).await;
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Gone => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Gone => Poll::Ready(Ok(())),
        }
    }
}
