//! Listens, counts, and gives every connection a task.
//!
//! Owns the listening sockets and the count of connections. Talks to [`super::connection`]. Never reads a byte of a
//! client's, except to throw away what comes behind a refusal.
//!
//! Invariant: no more sessions than configured in all, from one address, and before the login; whoever is too many is
//! told so with 421 at once and costs no task.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use daemon::Shutdown;
use metrics::{counter, gauge};
use tokio::net::{TcpListener, TcpStream};
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::{
    config::FtpConfig,
    connection::{Connection, Terms},
    control::Control,
    desk::Desk,
    presence::Line,
    session::Rules,
};

/// How long to wait when the system has no file descriptor or memory for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// After how much silence the kernel asks whether the client is still there: less than what firewalls keep a silent
/// connection for, since a control connection says nothing during a long transfer.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// An open door. Its tasks end with the shutdown they were started on.
#[derive(Debug)]
pub struct Door {
    addresses: Vec<SocketAddr>,
    census: Arc<Census>,
}

impl Door {
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sessions at the moment.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.census.count().sessions
    }

    /// Binds every address, and accepts until the shutdown. `desk` makes the desk of a connection
    /// from an address to one of ours, whose socket the [`Line`] looks at.
    pub(super) async fn open<D: Desk>(
        config: &FtpConfig,
        terms: Terms,
        shutdown: &Shutdown,
        desk: impl Fn(SocketAddr, IpAddr, Weak<Line>) -> D + Clone + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let census = Arc::new(Census::new(config));
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for address in &config.listen {
            let listener = TcpListener::bind(address).await?;
            addresses.push(listener.local_addr()?);
            listeners.push(listener);
        }
        for listener in listeners {
            let acceptor = Acceptor {
                listener,
                config: config.clone(),
                terms: terms.clone(),
                census: Arc::clone(&census),
                shutdown: shutdown.clone(),
                desk: desk.clone(),
            };
            shutdown.spawn_until_cut(acceptor.run());
        }
        for address in &addresses {
            info!(%address, access = ?config.access, "FTP door open");
        }
        Ok(Self { addresses, census })
    }
}

struct Acceptor<F> {
    listener: TcpListener,
    config: FtpConfig,
    terms: Terms,
    census: Arc<Census>,
    shutdown: Shutdown,
    desk: F,
}

impl<F: Fn(SocketAddr, IpAddr, Weak<Line>) -> D, D: Desk> Acceptor<F> {
    async fn run(self) {
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.stopping() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => self.welcome(socket, peer),
                // One client's trouble, or ours with descriptors; either way the door stays open.
                Err(error) => {
                    warn!(%error, "cannot accept");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                }
            }
        }
    }

    fn welcome(&self, socket: TcpStream, peer: SocketAddr) {
        let seat = match self.census.take_seat(peer.ip()) {
            Ok(seat) => seat,
            Err(full) => {
                debug!(%peer, reason = full.reason(), "turned away");
                counter!("penstock_ftp_turned_away_total", "reason" => full.reason()).increment(1);
                // The socket's buffer is empty, so a line fits; if not, closing says enough.
                let _ = socket.try_write(format!("421 {}\r\n", full.text()).as_bytes());
                return;
            }
        };
        let local = match tune(&socket) {
            Ok(local) => local,
            Err(error) => {
                debug!(%peer, %error, "connection lost at once");
                return;
            }
        };
        let rules = Rules {
            peer: peer.ip(),
            access: self.config.access,
            private_data_only: self.config.private_data_only,
            foreign_data_addresses: self.config.third_party_transfers,
            greeting: self.config.greeting.clone(),
        };
        let line = match Line::of(&socket) {
            Ok(line) => Arc::new(line),
            Err(error) => {
                warn!(%peer, %error, "no descriptor is left for another session");
                return;
            }
        };
        let desk = Arc::new((self.desk)(peer, local.ip(), Arc::downgrade(&line)));
        let control = Control::new(socket);
        let connection = Connection::new((control, line), rules, desk, self.terms.clone(), seat, self.shutdown.clone());
        let span = info_span!("ftp.session", %peer, principal = tracing::field::Empty);
        self.shutdown.spawn(connection.run().instrument(span));
    }
}

fn tune(socket: &TcpStream) -> io::Result<SocketAddr> {
    socket.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    socket.local_addr()
}

/// Who is here.
#[derive(Debug)]
struct Census {
    max_sessions: usize,
    max_per_address: usize,
    max_pending: usize,
    count: Mutex<Count>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Count {
    sessions: usize,
    pending: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    Door,
    Address,
    Pending,
}

impl Full {
    const fn reason(self) -> &'static str {
        match self {
            Self::Door => "sessions",
            Self::Address => "address",
            Self::Pending => "pending",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Door => "Too many sessions: try again later.",
            Self::Address => "Too many sessions from your address: close some of them.",
            Self::Pending => "Too many connections without a login: try again in a moment.",
        }
    }
}

impl Census {
    fn new(config: &FtpConfig) -> Self {
        Self {
            max_sessions: config.max_sessions as usize,
            max_per_address: config.max_sessions_per_address as usize,
            max_pending: config.max_logins_pending as usize,
            count: Mutex::default(),
        }
    }

    fn count(&self) -> Count {
        self.with(|count| count.clone())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Count) -> T) -> T {
        // A panic between two counts leaves numbers, not broken memory.
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut count);
        gauge!("penstock_ftp_sessions").set(count.sessions as f64);
        gauge!("penstock_ftp_logins_pending").set(count.pending as f64);
        result
    }

    fn take_seat(self: &Arc<Self>, address: IpAddr) -> Result<Seat, Full> {
        let address = address.to_canonical();
        self.with(|count| {
            if count.sessions >= self.max_sessions {
                return Err(Full::Door);
            }
            if count.pending >= self.max_pending {
                return Err(Full::Pending);
            }
            let here = count.by_address.entry(address).or_default();
            if *here >= self.max_per_address {
                return Err(Full::Address);
            }
            *here += 1;
            count.sessions += 1;
            count.pending += 1;
            Ok(())
        })?;
        counter!("penstock_ftp_connections_total").increment(1);
        Ok(Seat { census: Arc::clone(self), address, pending: true })
    }
}

/// A connection's place in the count, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    census: Arc<Census>,
    address: IpAddr,
    pending: bool,
}

impl Seat {
    /// Somebody has logged in.
    pub(super) fn logged_in(&mut self) {
        if std::mem::take(&mut self.pending) {
            self.census.with(|count| count.pending = count.pending.saturating_sub(1));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let pending = usize::from(self.pending);
        self.census.with(|count| {
            count.sessions = count.sessions.saturating_sub(1);
            count.pending = count.pending.saturating_sub(pending);
            if let Some(here) = count.by_address.get_mut(&self.address) {
                *here = here.saturating_sub(1);
                if *here == 0 {
                    count.by_address.remove(&self.address);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_counted_in_all_by_address_and_before_the_login() {
        let config =
            FtpConfig { max_sessions: 4, max_sessions_per_address: 2, max_logins_pending: 3, ..FtpConfig::default() };
        let census = Arc::new(Census::new(&config));
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut first = census.take_seat(address(1)).unwrap();
        let second = census.take_seat("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert_eq!(census.take_seat(address(1)).unwrap_err(), Full::Address);
        let third = census.take_seat(address(2)).unwrap();
        assert_eq!(census.take_seat(address(3)).unwrap_err(), Full::Pending);
        first.logged_in();
        first.logged_in();
        let fourth = census.take_seat(address(3)).unwrap();
        drop(second);
        assert_eq!((census.count().sessions, census.count().pending), (3, 2));
        let fifth = census.take_seat(address(3)).unwrap();
        assert_eq!(census.take_seat(address(4)).unwrap_err(), Full::Door);
        drop((first, third, fourth, fifth));
        assert_eq!(census.count(), Count::default());
    }
}
