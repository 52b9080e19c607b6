//! Data connections: opened, listened for, protected, and stopped from elsewhere.
//!
//! Owns sockets of data connections until they are handed to a receiving or sending thread. Talks to movers. Never
//! interprets what flows.
//!
//! Large files move on blocking sockets in threads of their own (one `recv` and one `pwrite` a megabyte); many small
//! ones on tokio's (see [`many`](crate::many)).

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use daemon::tcp::TcpFigures;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use wire::ftp::{Command, CommandOption, EpsvArgument, Reply, TransferMode};

use crate::{Client, ClientError, Ready, Result, network};

/// A data connection on a blocking socket.
pub(crate) enum DataStream {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl DataStream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => stream.get_ref(),
        }
    }

    /// The socket, if nothing stands between it and the bytes.
    pub(crate) fn clear_socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Clear(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// How long a read may wait.
    pub(crate) fn set_read_limit(&self, limit: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(limit))
    }

    pub(crate) fn peer(&self) -> String {
        self.socket().peer_addr().map_or_else(|_| "a mover".to_owned(), |address| address.to_string())
    }

    /// Says that nothing more will be sent: the end of the data in stream mode. The caller keeps the connection until the
    /// server has said that all arrived, since closing it with unread bytes in it could destroy what is on its way.
    pub(crate) fn end(mut self) -> io::Result<Self> {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            stream.flush()?;
        }
        self.socket().shutdown(Shutdown::Write)?;
        Ok(self)
    }
}

impl Read for DataStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A switch that ends all data connections of one transfer, from any thread, at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stops(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    stopped: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
    figures: Mutex<Vec<TcpFigures>>,
}

impl Stops {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn register(&self, socket: &TcpStream) -> io::Result<()> {
        let clone = socket.try_clone()?;
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(clone);
        if self.is_stopped() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        Ok(())
    }

    /// Ends every connection; their threads return with an error.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        for socket in self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Ok(figures) = daemon::tcp::figures(&socket) {
                self.0.figures.lock().unwrap_or_else(PoisonError::into_inner).push(figures);
            }
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// What the connections were like, those that have been stopped and those that have not.
    pub(crate) fn figures(&self) -> Vec<TcpFigures> {
        let mut all = self.0.figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sockets = self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(sockets.iter().filter_map(|socket| daemon::tcp::figures(socket).ok()));
        all
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }
}

/// Everything needed to open data connections of one transfer.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    connect_limit: Duration,
    begin_limit: Duration,
    pub(crate) stall_limit: Duration,
    tls: Option<Arc<ClientConfig>>,
    buffer_bytes: Option<u32>,
    pub(crate) stops: Stops,
}

impl Opening {
    pub(crate) fn of(client: &Client<Ready>) -> Self {
        let limits = client.control.limits;
        Self {
            connect_limit: limits.connect,
            begin_limit: limits.begin,
            stall_limit: limits.stall,
            tls: client.data_tls.clone().filter(|_| client.options.private_data),
            buffer_bytes: client.state.network.buffer_bytes,
            stops: Stops::new(),
        }
    }

    /// Connects to a mover. Blocks.
    pub(crate) fn connect(&self, address: SocketAddr) -> Result<DataStream> {
        let failed = |source| ClientError::Data { doing: "connect to", peer: address.to_string(), source };
        let connect = || {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            network::set_buffers(&socket, self.buffer_bytes)?;
            socket.connect_timeout(&address.into(), self.connect_limit)?;
            Ok(TcpStream::from(socket))
        };
        self.protect(connect().map_err(failed)?, address)
    }

    /// Makes a data connection of a socket, which may come from tokio. Blocks for the TLS handshake, in which we are the
    /// client whoever connected (RFC 4217 section 7).
    pub(crate) fn protect(&self, socket: TcpStream, address: SocketAddr) -> Result<DataStream> {
        let failed =
            |source| ClientError::Data { doing: "set up the connection to", peer: address.to_string(), source };
        let set_up = || {
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(self.connect_limit))?;
            socket.set_write_timeout(Some(self.stall_limit))?;
            self.stops.register(&socket)
        };
        set_up().map_err(failed)?;
        let begin = |stream: DataStream| {
            // The first byte may have to wait for a tape.
            stream.set_read_limit(self.begin_limit).map_err(failed)?;
            Ok(stream)
        };
        let Some(config) = &self.tls else { return begin(DataStream::Clear(socket)) };
        let name = ServerName::IpAddress(address.ip().into());
        let refuse = |reason: String| ClientError::Tls { peer: format!("the mover at {address}"), reason };
        let mut connection = ClientConnection::new(config.clone(), name).map_err(|error| refuse(error.to_string()))?;
        let mut socket = socket;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|error| refuse(daemon::tls::why(&error)))?;
        }
        begin(DataStream::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    /// The TLS configuration, if data is protected.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_limit
    }
}

/// Reads to the end, at most `limit_bytes`, never silent for longer than `stall`.
pub(crate) fn receive_all(stream: &mut DataStream, limit_bytes: usize, stall: Duration) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let peer = stream.peer();
    let failed = |source| ClientError::Data { doing: "receive from", peer: peer.clone(), source };
    stream.set_read_limit(stall).map_err(failed)?;
    match stream.take(limit_bytes as u64 + 1).read_to_end(&mut all) {
        // Many servers end TLS without close_notify.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(source) => return Err(failed(source)),
        Ok(_) => {}
    }
    if all.len() > limit_bytes {
        return Err(ClientError::BadData { peer, reason: format!("more than {limit_bytes} bytes of text") });
    }
    Ok(all)
}

impl Client<Ready> {
    /// Listens for the movers, and tells the server where: at these addresses, or at the one the server knows us by.
    pub(crate) async fn listen(&mut self, at: &[IpAddr]) -> Result<Vec<TcpListener>> {
        let (listeners, command) = self.listeners(at)?;
        self.demand(&command).await?;
        Ok(listeners)
    }

    /// Listeners at these addresses, or at the one the server knows us by, and the command that tells of them.
    pub(crate) fn listeners(&self, at: &[IpAddr]) -> Result<(Vec<TcpListener>, Command)> {
        let known = [self.control.local.ip()];
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &ip in if at.is_empty() { &known[..] } else { at } {
            let failed = |source| ClientError::Data { doing: "listen on", peer: ip.to_string(), source };
            let listener = network::listen(ip, self.state.network.buffer_bytes).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        let command = match addresses[..] {
            [SocketAddr::V4(v4)] => Command::Port(v4),
            [address @ SocketAddr::V6(_)] => Command::Eprt(address),
            _ => Command::Spor(addresses),
        };
        Ok((listeners, command))
    }

    /// Asks the server to listen, and gives the address at once.
    pub(crate) async fn passive_now(&mut self) -> Result<SocketAddr> {
        if self.state.delayed {
            self.set_delayed(false).await?;
        }
        let command = Command::Epsv(EpsvArgument::Same);
        let reply = self.ask(&command).await?;
        let reply = match (reply.code(), self.control.peer.ip()) {
            (229, _) => reply,
            (500..600, IpAddr::V4(_)) => self.demand(&Command::Pasv).await?,
            _ => return Err(ClientError::refused(&command, reply)),
        };
        self.address_of(&reply)
    }

    /// The same for MODE E, which is said in the same flight.
    pub(crate) async fn passive_blocks(&mut self) -> Result<SocketAddr> {
        let mut flight = self.blocks_wanted();
        if self.state.delayed || flight.is_empty() {
            self.set_mode(TransferMode::Extended).await?;
            return self.passive_now().await;
        }
        flight.push((Command::Epsv(EpsvArgument::Same), false));
        match self.together(&flight).await?.pop() {
            Some(reply) if reply.code() == 229 => self.address_of(&reply),
            _ => self.passive_now().await,
        }
    }

    /// The beginning of a flight that needs MODE E: the command, if another mode is set.
    pub(crate) fn blocks_wanted(&self) -> Vec<(Command, bool)> {
        let other = self.state.mode != TransferMode::Extended;
        other.then_some((Command::Mode(TransferMode::Extended), true)).into_iter().collect()
    }

    /// The addresses of all movers that take part in an upload of so many bytes over MODE E; one if the server does not
    /// stripe, or if a stripe is not wanted. What need not be known before is said in the same flight.
    pub(crate) async fn upload_addresses(&mut self, length_bytes: u64, stripe: bool) -> Result<Vec<SocketAddr>> {
        if self.state.delayed {
            self.set_delayed(false).await?;
        }
        if stripe && self.state.stripes {
            self.demand(&Command::Opts(CommandOption::AllowDelayedStripes(false))).await?;
            self.state.stripes = false;
        }
        let mut flight = self.blocks_wanted();
        if length_bytes > 0 {
            flight.push((Command::Allo(length_bytes), true));
        }
        let spas = Command::Spas { extended: self.control.peer.is_ipv6() };
        if stripe {
            flight.push((spas.clone(), false));
        }
        let told = self.together(&flight).await?.pop().filter(|_| stripe);
        match told {
            Some(reply) if reply.code() == 229 => Ok(reply.striped_addresses()?),
            Some(reply) if !matches!(reply.code(), 500 | 501 | 502 | 504) => Err(ClientError::refused(&spas, reply)),
            _ => Ok(vec![self.passive_now().await?]),
        }
    }

    /// Reads the address in a reply to PASV or EPSV, or in a 127 or 129.
    pub(crate) fn address_of(&self, reply: &Reply) -> Result<SocketAddr> {
        let control = self.control.peer.ip();
        let address = reply.passive_address(control)?;
        // Behind NAT a server may name an address that means nothing here: the one we reached it by is better.
        if address.ip().is_unspecified() {
            return Ok(SocketAddr::new(control, address.port()));
        }
        Ok(address)
    }

    /// Turns delayed passive on or off: with it, the server names the address after the file.
    pub(crate) async fn set_delayed(&mut self, on: bool) -> Result<()> {
        if self.state.delayed != on {
            let option = CommandOption::AllowDelayedPassive(on);
            if self.option(option).await? {
                self.state.delayed = on;
            }
        }
        Ok(())
    }
}
