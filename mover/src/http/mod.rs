//! Clients that a gateway sent here read and write files by HTTP/1.1: GET and HEAD, with ranges and conditions, and PUT.
//!
//! - [`head`]: what is asked (pure). [`reply`]: what is answered (pure).
//! - [`connection`]: one connection, from request to request.
//!
//! Owns the listening sockets and the key that tickets are sealed with. Talks to the volumes through the same threads and
//! the same system calls as every data connection: in clear, the kernel sends a file by itself. A body is handed to the data
//! endpoint that a gateway has opened for it, and the gateway says what is answered. Never knows a name, a person or a rule:
//! a ticket says everything, and a gateway made it.
//!
//! Invariant: no byte is sent or taken without a ticket of this mover that has not expired.

mod connection;
mod head;
mod reply;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use daemon::tls::{self, Clients};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::rustls::{Connection, ServerConfig};
use tracing::{debug, info, warn};
use wire::mover::{GrantKey, HttpDoor, Ticket};

use crate::{MoverConfig, MoverTls, StartError, config::HttpConfig, control::HubHandle, data::Link, job::Env};

/// How long a handshake or a request's head may take.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// How long to wait when the system has no file descriptor for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// The sockets, before anybody is served.
pub(crate) struct Listeners {
    tls: Option<TcpListener>,
    clear: Option<TcpListener>,
    door: Option<HttpDoor>,
}

/// What every connection shares.
struct House {
    env: Env,
    /// Knows the endpoints that bodies go to.
    hub: HubHandle,
    key: GrantKey,
    stall_limit: Duration,
}

impl Listeners {
    /// Binds what the configuration names.
    ///
    /// # Errors
    ///
    /// [`StartError::Http`] if an address cannot be had.
    pub(crate) async fn bind(config: &HttpConfig) -> Result<Self, StartError> {
        let (tls, tls_url) = listen(config.listen, "https", config).await?;
        let (clear, clear_url) = listen(config.listen_clear, "http", config).await?;
        let key = GrantKey(daemon::grant::new_key());
        let door = (tls.is_some() || clear.is_some()).then_some(HttpDoor { clear: clear_url, tls: tls_url, key });
        Ok(Self { tls, clear, door })
    }

    /// What gateways are told.
    pub(crate) fn door(&self) -> Option<Box<HttpDoor>> {
        self.door.clone().map(Box::new)
    }

    /// Serves until the mover stops.
    pub(crate) fn serve(self, config: &MoverConfig, env: &Env, hub: &HubHandle, tls: &MoverTls) {
        let Some(door) = self.door else { return };
        info!(tls = door.tls, clear = door.clear, "HTTP door open");
        let stall_limit = config.data.stall_limit.duration();
        let house = Arc::new(House { env: env.clone(), hub: hub.clone(), key: door.key, stall_limit });
        let room = Arc::new(Semaphore::new(config.http.max_connections));
        let secure = tls::server_config(&tls.credential, &Clients::Anonymous, &["http/1.1"]);
        let listeners = [(self.tls, Some(secure)), (self.clear, None)];
        for (listener, secure) in listeners.into_iter().filter_map(|(listener, tls)| Some((listener?, tls))) {
            env.shutdown.spawn_until_cut(accept(listener, secure, house.clone(), room.clone()));
        }
    }
}

async fn listen(
    address: Option<SocketAddr>,
    scheme: &str,
    config: &HttpConfig,
) -> Result<(Option<TcpListener>, Option<String>), StartError> {
    let Some(address) = address else { return Ok((None, None)) };
    let failed = |source| StartError::Http { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let url = match &config.host {
        Some(host) => format!("{scheme}://{host}:{}", bound.port()),
        None => format!("{scheme}://{bound}"),
    };
    Ok((Some(listener), Some(url)))
}

async fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, house: Arc<House>, room: Arc<Semaphore>) {
    let shutdown = house.env.shutdown.clone();
    loop {
        let accepted = tokio::select! {
            () = shutdown.stopping() => return,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
                continue;
            }
        };
        // Who finds no room is sent away, rather than left to hang.
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            warn!(%peer, "too many HTTP connections");
            continue;
        };
        let (tls, house) = (tls.clone(), house.clone());
        shutdown.spawn_until_cut(async move {
            let _place = place;
            match tokio::time::timeout(HEAD_LIMIT, handshake(socket, peer, tls)).await {
                Ok(Ok(link)) => connection::serve(link, &house).await,
                Ok(Err(error)) => debug!(%peer, error = tls::why(&error), "connection refused"),
                Err(_) => debug!(%peer, "no TLS handshake in time"),
            }
        });
    }
}

async fn handshake(socket: TcpStream, peer: SocketAddr, tls: Option<Arc<ServerConfig>>) -> std::io::Result<Link> {
    socket.set_nodelay(true)?;
    let Some(config) = tls else { return Ok(Link::clear(socket, peer)) };
    let (stream, _) = tls::accept(&config, &Clients::Anonymous, socket).await?;
    let (socket, session) = stream.into_inner();
    Ok(Link::tls(socket, peer, Connection::Server(session)))
}

impl House {
    /// What a client may do that shows this.
    ///
    /// # Errors
    ///
    /// Why it may not, and what to do.
    fn ticket(&self, shown: Option<&str>) -> Result<Ticket, &'static str> {
        let shown = shown.ok_or("no grant: ask the gateway, which sends you here")?;
        let opened = daemon::grant::open(&self.key.0, shown);
        let ticket =
            opened.as_deref().and_then(Ticket::decode).ok_or("no grant of this mover: ask the gateway again")?;
        let (mover, expires_us) = match &ticket {
            Ticket::Read(grant) => (&grant.mover, grant.expires_us),
            Ticket::Write(admission) => (&admission.mover, admission.expires_us),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if *mover != self.env.mover || i64::try_from(now.as_micros()).is_ok_and(|now| now > expires_us) {
            return Err("the grant has expired: ask the gateway again");
        }
        Ok(ticket)
    }
}
