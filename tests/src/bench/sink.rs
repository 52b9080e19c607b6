//! The receiving end of a measured transfer: counts what arrives and forgets it.
//!
//! Owns sockets and a thread for each, as the client library does for large files, but writes nothing: what is
//! measured is the way to here. Both Penstock and what it is compared with send to the same sink.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tokio::sync::oneshot;
use wire::mode_e::{HEADER_BYTES, Header};

/// What is read at once: the flat optimum over loopback lies between 256 KiB and 1 MiB.
const READ_BYTES: usize = 256 << 10;
/// Without a byte for so long, a sender is given up.
const SILENCE: Duration = Duration::from_secs(60);

/// How data is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Bytes as they are.
    Stream,
    /// GridFTP's blocks, over any number of connections.
    ModeE,
}

/// How a sink receives.
#[derive(Clone, Debug)]
pub struct Manner {
    /// How data is framed.
    pub framing: Framing,
    /// For data over TLS; the sink is the client, whoever connects (RFC 4217 section 7).
    pub tls: Option<Arc<ClientConfig>>,
    /// The core its threads stay on; any if `None`.
    pub core: Option<usize>,
}

impl Manner {
    /// Clear, on any core.
    #[must_use]
    pub const fn clear(framing: Framing) -> Self {
        Self { framing, tls: None, core: None }
    }
}

/// When data came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The first byte.
    pub first: Instant,
    /// The last one.
    pub last: Instant,
}

/// A receiving end; dropping it closes its connections.
#[derive(Debug)]
pub struct Sink {
    shared: Arc<Shared>,
    done: oneshot::Receiver<io::Result<Arrival>>,
    listener: Option<TcpListener>,
}

#[derive(Debug)]
struct Shared {
    manner: Manner,
    wanted_bytes: u64,
    bytes: AtomicU64,
    first: OnceLock<Instant>,
    done: Mutex<Option<oneshot::Sender<io::Result<Arrival>>>>,
    stopped: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Sink {
    fn new(manner: Manner, wanted_bytes: u64) -> Self {
        let (sender, done) = oneshot::channel();
        let shared = Shared {
            manner,
            wanted_bytes,
            bytes: AtomicU64::new(0),
            first: OnceLock::new(),
            done: Mutex::new(Some(sender)),
            stopped: AtomicBool::new(false),
            sockets: Mutex::new(Vec::new()),
        };
        Self { shared: Arc::new(shared), done, listener: None }
    }

    /// Listens on loopback for any number of connections that together bring `wanted_bytes`; gives the address too.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub fn listen(manner: Manner, wanted_bytes: u64) -> io::Result<(Self, SocketAddr)> {
        let mut sink = Self::new(manner, wanted_bytes);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (accepting, shared) = (listener.try_clone()?, sink.shared.clone());
        std::thread::Builder::new().name("sink-accept".to_owned()).spawn(move || {
            while let Ok((socket, peer)) = accepting.accept() {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                if let Err(error) = shared.receive(socket, peer) {
                    shared.end(Err(error));
                }
            }
        })?;
        sink.listener = Some(listener);
        Ok((sink, address))
    }

    /// Connects to a sender that listens.
    ///
    /// # Errors
    ///
    /// If nobody is there.
    pub fn connect(manner: Manner, address: SocketAddr, wanted_bytes: u64) -> io::Result<Self> {
        let sink = Self::new(manner, wanted_bytes);
        sink.shared.receive(TcpStream::connect(address)?, address)?;
        Ok(sink)
    }

    /// Waits until everything has come. Of a stream the end is read as well, behind the caller's back: who closes after
    /// the last byte resets a sender that is about to say the end, and the sender cannot know that all had come.
    ///
    /// # Errors
    ///
    /// If a connection ends or is silent before that.
    pub async fn arrival(mut self) -> anyhow::Result<Arrival> {
        let waiting = tokio::time::timeout(Duration::from_secs(3600), &mut self.done).await;
        let arrival = waiting.context("nothing came for an hour")?.context("the receiving threads are gone")?;
        if arrival.is_ok() && self.shared.manner.framing == Framing::Stream {
            self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        arrival.with_context(|| {
            let (got, wanted) = (self.shared.bytes.load(Ordering::SeqCst), self.shared.wanted_bytes);
            format!("receive: {got} of {wanted} bytes came")
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if let Some(listener) = &self.listener {
            // Ends the blocking accept.
            let _ = nix::sys::socket::shutdown(listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        }
        for socket in self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Receives from a connection, in a thread of its own.
    fn receive(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE))?;
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(socket.try_clone()?);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("sink".to_owned());
        thread.spawn(move || {
            let received = stay_on(shared.manner.core).and_then(|()| match &shared.manner.tls {
                None => shared.discard(socket),
                Some(config) => {
                    let name = rustls::pki_types::ServerName::IpAddress(peer.ip().into());
                    let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                    shared.discard(StreamOwned::new(connection, socket))
                }
            });
            if let Err(error) = received {
                shared.end(Err(error));
            }
        })?;
        Ok(())
    }

    fn discard(&self, mut stream: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut blocks = Blocks::default();
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let data = match self.manner.framing {
                Framing::Stream => read as u64,
                Framing::ModeE => blocks.data_in(&buffer[..read])?,
            };
            self.count(data);
        }
    }

    fn count(&self, data: u64) {
        let first = *self.first.get_or_init(Instant::now);
        if self.bytes.fetch_add(data, Ordering::SeqCst) + data >= self.wanted_bytes {
            self.end(Ok(Arrival { first, last: Instant::now() }));
        }
    }

    /// The first word counts: what breaks after the last byte no longer matters.
    fn end(&self, how: io::Result<Arrival>) {
        if let Some(done) = self.done.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = done.send(how);
        }
    }
}

/// Keeps the calling thread on a core.
///
/// # Errors
///
/// If there is no such core.
pub fn stay_on(core: Option<usize>) -> io::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Tells headers from data on one connection.
#[derive(Debug, Default)]
struct Blocks {
    header: Vec<u8>,
    left: u64,
}

impl Blocks {
    /// How many of these bytes are file data.
    fn data_in(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut data = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len() as u64);
                self.left -= taken;
                data += taken;
                bytes = &bytes[usize::try_from(taken).unwrap_or(bytes.len())..];
                continue;
            }
            let taken = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let Ok(header) = <[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) {
                self.header.clear();
                if let Header::Block { range, .. } = Header::decode(&header).map_err(io::Error::other)? {
                    self.left = range.length();
                }
            }
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use wire::extent::ByteRange;

    use super::*;

    fn mode_e(parts: &[(u64, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (offset, data) in parts {
            all.extend(Header::data(ByteRange::new(*offset, data.len() as u64).unwrap()).encode());
            all.extend_from_slice(data);
        }
        all.extend(Header::end_of_data(true).encode());
        all
    }

    #[test]
    fn headers_are_no_data_wherever_the_stream_is_cut() {
        let all = mode_e(&[(0, b"hello"), (5, b"wide world")]);
        for cut in 0..=all.len() {
            let mut blocks = Blocks::default();
            let data = blocks.data_in(&all[..cut]).unwrap() + blocks.data_in(&all[cut..]).unwrap();
            assert_eq!(data, 15, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn a_transfer_has_arrived_when_the_last_connection_brought_the_last_byte() {
        let (sink, address) = Sink::listen(Manner::clear(Framing::ModeE), 15).unwrap();
        for part in [(0, &b"hello"[..]), (5, b"wide world")] {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&mode_e(&[part])).unwrap();
        }
        let arrival = sink.arrival().await.unwrap();
        assert!(arrival.first <= arrival.last);
    }

    #[tokio::test]
    async fn the_sender_of_a_stream_can_say_its_end_after_the_last_byte() {
        let (sink, address) = Sink::listen(Manner::clear(Framing::Stream), 5).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(b"hello").unwrap();
        sink.arrival().await.unwrap();
        // TLS has something to say yet.
        socket.write_all(b"end").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(socket.read(&mut [0; 8]).unwrap(), 0, "an orderly close, not a reset");
    }

    #[tokio::test]
    async fn a_stream_that_makes_no_sense_is_an_error() {
        let (sink, address) = Sink::listen(Manner::clear(Framing::ModeE), 15).unwrap();
        TcpStream::connect(address).unwrap().write_all(&[0xff; 40]).unwrap();
        assert!(sink.arrival().await.unwrap_err().to_string().contains("0 of 15 bytes"));
    }
}
