//! A MODE E data connection that carries many small files, on a tokio socket.
//!
//! Owns the connection between files. A *unit* is what one connection carries of one file: blocks up to an end mark.

use std::{collections::VecDeque, io::IoSlice, net::SocketAddr};

use bytes::{Buf as _, Bytes, BytesMut};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use wire::mode_e::{HEADER_BYTES, Header};

use super::SMALL_BYTES;
use crate::{ClientError, Result, data::Opening};

/// Files that one system call sends at most.
const SLICES: usize = 16;

/// A whole file as one block and its end marks. `buffer` holds room for a header, then the data.
pub(super) fn block(mut buffer: Vec<u8>) -> Bytes {
    let length = (buffer.len() - HEADER_BYTES) as u64;
    if length == 0 {
        // Nothing but the end.
        buffer.clear();
    } else {
        let range = wire::extent::ByteRange::new(0, length).expect("a file in memory is in range");
        buffer[..HEADER_BYTES].copy_from_slice(&Header::data(range).encode());
    }
    buffer.extend_from_slice(&Header::end_of_file(1, false).encode());
    Bytes::from(buffer)
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open data connection.
pub(super) struct Channel {
    stream: Box<dyn Stream>,
    peer: String,
    received: BytesMut,
    unsent: VecDeque<Bytes>,
    stall: std::time::Duration,
}

/// What a connection carried of one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// The bytes, from offset 0.
    pub(super) data: Vec<u8>,
    /// How many connections carry this file, as far as this one says.
    pub(super) announced: Option<u64>,
    /// The peer closes the connection behind it.
    pub(super) closes: bool,
}

impl Channel {
    /// Connects to a mover.
    pub(super) async fn connect(opening: &Opening, address: SocketAddr, stall: std::time::Duration) -> Result<Self> {
        let failed = |source| ClientError::Data { doing: "connect to", peer: address.to_string(), source };
        let connecting = timeout(opening.connect_limit(), TcpStream::connect(address)).await;
        let socket = connecting.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(failed)?;
        Self::protect(opening, socket, address, stall).await
    }

    /// Makes a channel of a socket, whoever connected.
    pub(super) async fn protect(
        opening: &Opening,
        socket: TcpStream,
        address: SocketAddr,
        stall: std::time::Duration,
    ) -> Result<Self> {
        let failed =
            |source| ClientError::Data { doing: "set up the connection to", peer: address.to_string(), source };
        socket.set_nodelay(true).map_err(failed)?;
        let stream: Box<dyn Stream> = match opening.tls() {
            None => Box::new(socket),
            Some(config) => {
                let refuse = |reason| ClientError::Tls { peer: format!("the mover at {address}"), reason };
                let handshake =
                    TlsConnector::from(config.clone()).connect(ServerName::IpAddress(address.ip().into()), socket);
                match timeout(opening.connect_limit(), handshake).await {
                    Ok(Ok(stream)) => Box::new(stream),
                    Ok(Err(error)) => return Err(refuse(daemon::tls::why(&error))),
                    Err(_) => return Err(refuse(format!("no handshake within {:?}", opening.connect_limit()))),
                }
            }
        };
        Ok(Self {
            stream,
            peer: address.to_string(),
            received: BytesMut::with_capacity(64 << 10),
            unsent: VecDeque::new(),
            stall,
        })
    }

    fn broke(&self, doing: &'static str, source: std::io::Error) -> ClientError {
        ClientError::Data { doing, peer: self.peer.clone(), source }
    }

    fn bad(&self, reason: impl Into<String>) -> ClientError {
        ClientError::BadData { peer: self.peer.clone(), reason: reason.into() }
    }

    /// Puts a [`block`] behind what is to be sent.
    pub(super) fn put(&mut self, block: Bytes) {
        self.unsent.push_back(block);
    }

    /// Whether something is to be sent yet.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what was put in. Cancel-safe: what has not gone is kept.
    pub(super) async fn send(&mut self) -> Result<()> {
        while self.has_unsent() {
            let sending = async {
                let slices: Vec<_> = self.unsent.iter().take(SLICES).map(|file| IoSlice::new(file)).collect();
                let sent = self.stream.write_vectored(&slices).await?;
                if sent == 0 { Err(std::io::ErrorKind::WriteZero.into()) } else { Ok(sent) }
            };
            let timed_out = || std::io::Error::new(std::io::ErrorKind::TimedOut, "it took nothing for too long");
            let sent = timeout(self.stall, sending).await.unwrap_or_else(|_| Err(timed_out()));
            let mut sent = sent.map_err(|source| self.broke("send to", source))?;
            while let Some(first) = self.unsent.front_mut().filter(|_| sent > 0) {
                let part = sent.min(first.len());
                first.advance(part);
                sent -= part;
                if first.is_empty() {
                    self.unsent.pop_front();
                }
            }
        }
        let flushed = timeout(self.stall, self.stream.flush()).await;
        let timed_out = || std::io::Error::new(std::io::ErrorKind::TimedOut, "it took nothing for too long");
        flushed.unwrap_or_else(|_| Err(timed_out())).map_err(|source| self.broke("send to", source))
    }

    /// Receives one unit; `None` if the connection was closed between two. Not cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Option<Unit>> {
        let mut unit = Unit { data: Vec::new(), announced: None, closes: false };
        // Each block brings bytes or ends something, so a peer cannot keep us here.
        let mut idle = 0;
        loop {
            if !self.fill(HEADER_BYTES).await? {
                let begun = !unit.data.is_empty() || unit.announced.is_some();
                return if begun { Err(self.bad("closed in the middle of a file")) } else { Ok(None) };
            }
            let bytes = self.received.split_to(HEADER_BYTES);
            let bytes = bytes.first_chunk().expect("a header's bytes were split off");
            let header =
                Header::decode(bytes).map_err(|source| ClientError::ModeE { peer: self.peer.clone(), source })?;
            let (end, close) = match header {
                Header::Block { range, end_of_data, close } => {
                    if range.is_empty() {
                        idle += 1;
                    } else {
                        self.block(&mut unit, range).await?;
                    }
                    (end_of_data, close)
                }
                Header::EndOfFile { channels, end_of_data, close } => {
                    idle += 1;
                    unit.announced = Some(channels);
                    (end_of_data, close)
                }
            };
            unit.closes |= close;
            if end {
                return Ok(Some(unit));
            }
            if idle > 1000 {
                return Err(self.bad("blocks without data"));
            }
        }
    }

    async fn block(&mut self, unit: &mut Unit, range: wire::extent::ByteRange) -> Result<()> {
        if range.offset() != unit.data.len() as u64 {
            return Err(self.bad("blocks of a small file out of order"));
        }
        if range.end() > SMALL_BYTES {
            return Err(self.bad("more bytes than the listing told"));
        }
        let mut left = range.length() as usize;
        unit.data.reserve(left);
        while left > 0 {
            if !self.fill(1).await? {
                return Err(self.bad("closed in the middle of a block"));
            }
            let part = self.received.split_to(left.min(self.received.len()));
            unit.data.extend_from_slice(&part);
            left -= part.len();
        }
        Ok(())
    }

    /// Reads until `want` bytes are there; `false` if the connection ends before the first of them.
    async fn fill(&mut self, want: usize) -> Result<bool> {
        while self.received.len() < want {
            self.received.reserve(64 << 10);
            let read = self.stream.read_buf(&mut self.received).await;
            match read {
                Ok(0) if self.received.is_empty() => return Ok(false),
                Ok(0) => return Err(self.bad("closed in the middle of a header")),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && self.received.is_empty() => {
                    return Ok(false);
                }
                Err(source) => return Err(self.broke("receive from", source)),
            }
        }
        Ok(true)
    }
}
