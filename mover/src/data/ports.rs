//! Addresses and sockets of data connections, as the configuration says.

use std::{
    hash::{BuildHasher as _, RandomState},
    io,
    net::{IpAddr, SocketAddr},
};

use daemon::tcp;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::warn;

use crate::config::DataConfig;

/// Connections that may wait to be accepted: all streams of one peer, and some strangers.
const BACKLOG: i32 = 128;

/// Makes sockets.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    /// Listened on; told to peers.
    addresses: Vec<(IpAddr, IpAddr)>,
    first: u16,
    last: u16,
    congestion: String,
    /// Bytes a second of one connection.
    pace: Option<u64>,
}

impl Ports {
    /// As the configuration says.
    pub(crate) fn new(config: &DataConfig) -> Self {
        let told = config.advertise.iter().chain(config.listen.iter().skip(config.advertise.len()));
        Self {
            addresses: config.listen.iter().copied().zip(told.copied()).collect(),
            first: config.ports[0],
            last: config.ports[1],
            congestion: config.congestion.clone(),
            pace: Some(config.pace.bytes()).filter(|rate| *rate > 0),
        }
    }

    /// That the kernel has what the configuration names, before anything depends on it.
    ///
    /// # Errors
    ///
    /// A sentence that names what there is instead.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.congestion.is_empty() {
            return Ok(());
        }
        let tried = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::TCP))
            .and_then(|socket| socket.set_tcp_congestion(self.congestion.as_bytes()));
        tried.map_err(|error| {
            format!(
                "data.congestion = {:?} cannot be used ({error}): load its kernel module, or name one of {}; \"\" leaves \
                 the system's choice",
                self.congestion,
                tcp::congestion_controls().join(", ")
            )
        })
    }

    /// Listens on a free port of the range, chosen at random so that nobody can wait for it; gives the address to tell
    /// the peer.
    ///
    /// # Errors
    ///
    /// `AddrNotAvailable` if the family is not configured, `AddrInUse` if no port is free.
    pub(crate) fn listen(&self, ipv6: bool, buffer: Option<u32>) -> io::Result<(TcpListener, SocketAddr)> {
        let (local, told) =
            self.addresses.iter().find(|(local, _)| local.is_ipv6() == ipv6).copied().ok_or_else(|| {
                let family = if ipv6 { "IPv6" } else { "IPv4" };
                io::Error::new(io::ErrorKind::AddrNotAvailable, format!("data.listen has no {family} address"))
            })?;
        let count = u32::from(self.last - self.first) + 1;
        let random = RandomState::new().hash_one(0u8);
        let start = u32::try_from(random % u64::from(count)).expect("below a u32");
        let mut last_error = io::ErrorKind::AddrInUse.into();
        for step in 0..count {
            let port = u16::try_from(u32::from(self.first) + (start + step) % count).expect("within the range");
            let socket = self.socket(local, buffer)?;
            match socket.bind(&SocketAddr::new(local, port).into()).and_then(|()| socket.listen(BACKLOG)) {
                Ok(()) => {
                    let listener = TcpListener::from_std(socket.into())?;
                    let port = listener.local_addr()?.port();
                    return Ok((listener, SocketAddr::new(told, port)));
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    /// Connects to a peer, from the address that peers know this mover by.
    pub(crate) async fn connect(&self, to: SocketAddr, buffer: Option<u32>) -> io::Result<TcpStream> {
        let socket = self.socket(to.ip(), buffer)?;
        let local = self.addresses.iter().map(|(local, _)| *local).find(|local| local.is_ipv6() == to.is_ipv6());
        if let Some(local) = local.filter(|local| !local.is_unspecified()) {
            socket.bind(&SocketAddr::new(local, 0).into())?;
        }
        let stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn socket(&self, family: IpAddr, buffer: Option<u32>) -> io::Result<Socket> {
        let domain = if family.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        if family.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        // Buffers must be set before the connection exists, or the window scale does not fit them. Left alone, the
        // kernel grows them as needed, which is nearly always better.
        if let Some(bytes) = buffer.and_then(|bytes| usize::try_from(bytes).ok()) {
            socket.set_recv_buffer_size(bytes)?;
            socket.set_send_buffer_size(bytes)?;
        }
        // It was there when the mover started.
        if !self.congestion.is_empty()
            && let Err(error) = socket.set_tcp_congestion(self.congestion.as_bytes())
        {
            warn!(congestion = self.congestion, %error, "the kernel no longer has data.congestion; its default is used");
        }
        if let Some(rate) = self.pace {
            tcp::pace(&socket, rate)?;
        }
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(first: u16, last: u16) -> Ports {
        Ports::new(&DataConfig { ports: [first, last], ..DataConfig::default() })
    }

    #[tokio::test]
    async fn a_port_of_the_range_is_taken_until_none_is_left() {
        // Find three neighbours that are free right now.
        let base = ports(0, 0).listen(false, None).unwrap().1.port().min(65_000);
        let ports = ports(base, base + 2);
        let mut held = Vec::new();
        let error = loop {
            match ports.listen(false, None) {
                Ok((listener, address)) => {
                    assert!((base..=base + 2).contains(&address.port()));
                    held.push(listener);
                }
                Err(error) => break error,
            }
        };
        assert!(held.len() <= 3 && error.kind() == io::ErrorKind::AddrInUse, "{} {error}", held.len());
    }

    #[test]
    fn a_congestion_control_that_the_kernel_lacks_is_refused_with_those_it_has() {
        let with = |congestion: &str| {
            Ports::new(&DataConfig { congestion: congestion.to_owned(), ..DataConfig::default() }).check()
        };
        assert_eq!(with(""), Ok(()));
        let there = tcp::congestion_controls();
        assert_eq!(with(&there[0]), Ok(()));
        let refused = with("no-such-control").expect_err("refused");
        assert!(refused.contains("no-such-control") && refused.contains(&there[0]), "{refused}");
    }

    #[tokio::test]
    async fn a_family_that_is_not_configured_is_refused() {
        assert_eq!(ports(0, 0).listen(true, None).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
