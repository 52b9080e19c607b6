//! One data connection: bytes in and out, in clear or over TLS, without ever waiting.
//!
//! Owns the socket and the state of TLS on it. Talks to the kernel. Never waits: what cannot be done now says
//! [`io::ErrorKind::WouldBlock`], and waiting is done by [`Link::hot_wait`] for a moment on a thread, or by
//! [`Link::readable`] and [`Link::writable`] without one.
//!
//! Invariant: the link is used by one thread or task at a time, since whoever uses it owns it.

use std::{
    fs::File,
    io::{self, IoSliceMut, Read, Write},
    net::SocketAddr,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout},
    sys::socket::MsgFlags,
};
use tokio::{io::Interest, net::TcpStream};
use tokio_rustls::rustls::Connection;
use wire::mode_e::HEADER_BYTES;

/// How much is encrypted before the socket is asked to take it. Bounds what a connection holds while its peer is slow.
pub(super) const SEAL_BYTES: usize = 128 << 10;

/// How long a thread waits for a socket that keeps it busy before it does something else.
const HOT_WAIT_MS: u8 = 3;

/// A connection.
pub(crate) struct Link {
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<Box<Tls>>,
    /// The next header of extended block mode, as far as it has come.
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    /// Data was sent whose end has not been said.
    unfinished: bool,
    /// Bytes of file data since the last [`Link::take_moved`].
    moved: u64,
    since: Instant,
}

struct Tls {
    connection: Connection,
    /// Bytes from the socket that TLS has not seen, between two turns.
    leftover: Vec<u8>,
    closed: bool,
}

/// Ciphertext on its way from the socket to TLS, in memory that is lent for one turn.
pub(crate) struct Stage<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
}

/// The socket, as `rustls` wants it.
struct Raw<'a>(&'a TcpStream);

impl Link {
    /// A connection in clear.
    pub(crate) fn clear(socket: TcpStream, peer: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            tls: None,
            header: [0; HEADER_BYTES],
            header_filled: 0,
            unfinished: false,
            moved: 0,
            since: Instant::now(),
        }
    }

    /// A connection whose TLS handshake is over.
    pub(crate) fn tls(socket: TcpStream, peer: SocketAddr, mut connection: Connection) -> Self {
        // What is sealed is bounded by SEAL_BYTES here.
        connection.set_buffer_limit(None);
        let mut link = Self::clear(socket, peer);
        link.tls = Some(Box::new(Tls { connection, leftover: Vec::new(), closed: false }));
        link
    }

    /// Who is at the other end.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether bytes pass through memory on this side: TLS.
    pub(crate) const fn is_sealed(&self) -> bool {
        self.tls.is_some()
    }

    /// A word for metrics: `clear` or `tls`.
    pub(crate) const fn security(&self) -> &'static str {
        if self.is_sealed() { "tls" } else { "clear" }
    }

    /// Counts bytes of file data, for metrics.
    pub(crate) const fn note_moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// What was counted since the last call.
    pub(crate) const fn take_moved(&mut self) -> u64 {
        std::mem::replace(&mut self.moved, 0)
    }

    /// Begins a turn of receiving: lends the first part of `buffer` to TLS, and gives back the rest.
    pub(crate) fn stage<'a>(&mut self, buffer: &'a mut [u8]) -> (Stage<'a>, &'a mut [u8]) {
        let Some(tls) = &mut self.tls else {
            return (Stage { buffer: &mut [], start: 0, end: 0 }, buffer);
        };
        let (stage, rest) = buffer.split_at_mut(buffer.len() / 4);
        let end = tls.leftover.len();
        stage[..end].copy_from_slice(&tls.leftover);
        tls.leftover.clear();
        (Stage { buffer: stage, start: 0, end }, rest)
    }

    /// Ends a turn of receiving.
    pub(crate) fn unstage(&mut self, stage: &Stage<'_>) {
        if let Some(tls) = &mut self.tls {
            tls.leftover.extend_from_slice(&stage.buffer[stage.start..stage.end]);
        }
    }

    /// Whether part of a header has come.
    pub(crate) const fn in_header(&self) -> bool {
        self.header_filled > 0
    }

    /// Takes the next header.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it is not there whole, `UnexpectedEof` if the peer has closed; what has come of it is kept.
    pub(crate) fn take_header(&mut self, stage: &mut Stage<'_>) -> io::Result<[u8; HEADER_BYTES]> {
        while self.header_filled < HEADER_BYTES {
            let mut rest = [0; HEADER_BYTES];
            let want = HEADER_BYTES - self.header_filled;
            match self.receive(&mut rest[..want], stage)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    self.header[self.header_filled..self.header_filled + count].copy_from_slice(&rest[..count]);
                    self.header_filled += count;
                }
            }
        }
        self.header_filled = 0;
        Ok(self.header)
    }

    /// Receives into `buffer`, and, once that is full, the header that follows: one system call instead of two.
    pub(crate) fn receive_then_header(&mut self, buffer: &mut [u8], stage: &mut Stage<'_>) -> io::Result<usize> {
        if self.is_sealed() || self.in_header() {
            return self.receive(buffer, stage);
        }
        let room = buffer.len();
        let count = nix::sys::uio::readv(
            self.socket.as_fd(),
            &mut [IoSliceMut::new(buffer), IoSliceMut::new(&mut self.header)],
        )?;
        self.header_filled = count.saturating_sub(room);
        Ok(count.min(room))
    }

    /// Receives; 0 means that the peer has closed its side.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], stage: &mut Stage<'_>) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return Ok(nix::unistd::read(self.socket.as_fd(), buffer)?);
        };
        loop {
            match tls.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Many clients close without TLS's own end: whether bytes are missing is known by their count.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if stage.start == stage.end && !tls.closed {
                let count = nix::unistd::read(self.socket.as_fd(), &mut *stage.buffer)?;
                (stage.start, stage.end) = (0, count);
                tls.closed = count == 0;
            }
            let mut input = &stage.buffer[stage.start..stage.end];
            let count = tls.connection.read_tls(&mut input)?;
            stage.start += count;
            let state = tls
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if tls.closed && count == 0 && state.plaintext_bytes_to_read() == 0 {
                return Ok(0);
            }
            // Answers that the protocol wants, such as a key update.
            if tls.connection.wants_write() {
                let _ = tls.connection.write_tls(&mut Raw(&self.socket));
            }
        }
    }

    /// Waits for bytes and appends them to `buffer`, `most` at a time; 0 means that the peer has closed its side. For what
    /// is small: a request's head. Cancel-safe.
    pub(crate) async fn read(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        // A quarter is lent to TLS.
        let mut memory = vec![0; 64 << 10];
        loop {
            let (mut stage, rest) = self.stage(&mut memory);
            let most = most.min(rest.len());
            let received = self.receive(&mut rest[..most], &mut stage);
            self.unstage(&stage);
            match received {
                Ok(count) => {
                    buffer.extend_from_slice(&rest[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends some of `data`. `more` says that more follows at once.
    pub(crate) fn send(&mut self, data: &[u8], more: bool) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let flags = MsgFlags::MSG_NOSIGNAL
                | if more { MsgFlags::from_bits_retain(nix::libc::MSG_MORE) } else { MsgFlags::empty() };
            return Ok(nix::sys::socket::send(std::os::fd::AsRawFd::as_raw_fd(&self.socket), data, flags)?);
        };
        tls.drain(&self.socket)?;
        let count = tls.connection.writer().write(&data[..data.len().min(SEAL_BYTES)])?;
        match tls.drain(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            // What could not be sent is sealed and waits: the next call sends it first.
            _ => Ok(count),
        }
    }

    /// Sends from a file, without the bytes passing through memory. In clear only. 0 means that the file ends here.
    pub(crate) fn send_file(&self, file: &File, offset_bytes: u64, count: u64) -> io::Result<u64> {
        let mut at = i64::try_from(offset_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok(nix::sys::sendfile::sendfile64(self.socket.as_fd(), file.as_fd(), Some(&mut at), count)? as u64)
    }

    /// Sends what TLS has sealed.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.drain(&self.socket),
            None => Ok(()),
        }
    }

    /// From now on a drop is a reset, until [`Link::finish`]: the peer must not take a part for the whole.
    pub(crate) const fn begin(&mut self) {
        self.unfinished = true;
    }

    /// What was begun has been sent to its end.
    pub(crate) const fn finish(&mut self) {
        self.unfinished = false;
    }

    /// Says that nothing more is sent: the end of the data in stream mode. Call [`Link::flush`] before and after.
    pub(crate) fn announce_end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
        }
    }

    /// Closes this side of the connection.
    pub(crate) fn end(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write)
    }

    /// Whether the peer closed while the connection was idle, or sent what nobody asked for.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match socket2::SockRef::from(&self.socket).peek(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Waits on this thread for a moment; says whether the socket is ready.
    pub(crate) fn hot_wait(&self, interest: Interest) -> bool {
        let flags = if interest.is_readable() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        let mut polled = [PollFd::new(self.socket.as_fd(), flags)];
        matches!(nix::poll::poll(&mut polled, PollTimeout::from(HOT_WAIT_MS)), Ok(1..))
    }

    /// Ends when there is something to receive, or an end, or an error. Cancel-safe.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        // The runtime's own note of readiness is not kept by the calls above, which go past it: ask the socket, and
        // have the note cleared if there is nothing.
        loop {
            self.socket.readable().await?;
            let mut byte = [std::mem::MaybeUninit::uninit()];
            let look = || socket2::SockRef::from(&self.socket).peek(&mut byte).map(drop);
            match self.socket.try_io(Interest::READABLE, look) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Ok(()),
            }
        }
    }

    /// Ends when something can be sent. Cancel-safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        loop {
            self.socket.writable().await?;
            let look = || {
                let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                match nix::poll::poll(&mut polled, PollTimeout::ZERO) {
                    Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                    other => other.map(drop).map_err(io::Error::from),
                }
            };
            match self.socket.try_io(Interest::WRITABLE, look) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    /// Whether TLS holds bytes that can be had without the socket.
    pub(crate) fn has_plaintext(&mut self) -> bool {
        match &mut self.tls {
            Some(tls) => {
                !tls.leftover.is_empty()
                    || tls.connection.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
            None => false,
        }
    }

    /// Waits until the peer has closed its side too, so that nothing on the way to it is thrown away by a reset.
    pub(crate) async fn linger(self) {
        let mut sink = [0; 1024];
        while self.socket.readable().await.is_ok() {
            match self.socket.try_read(&mut sink) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        super::figures::note(&self.socket, self.security(), self.since);
        if self.unfinished {
            let _ = socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
        }
    }
}

impl Tls {
    fn drain(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Raw(socket))?;
        }
        Ok(())
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(nix::sys::socket::send(std::os::fd::AsRawFd::as_raw_fd(self.0), data, MsgFlags::MSG_NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(nix::sys::socket::sendmsg::<()>(
            std::os::fd::AsRawFd::as_raw_fd(self.0),
            parts,
            &[],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
