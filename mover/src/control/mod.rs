//! Gateways: their connections, what they ask, and what they are told.
//!
//! - [`hub`]: the task that owns the tables of gateways, transfers and channels.
//! - [`table`]: those tables (pure).
//! - [`session`]: one connection of a gateway.
//! - [`calls`]: short questions with one answer.
//!
//! A gateway that goes away stops nothing: what moves is finished, and its ends are told when the gateway is back.

mod calls;
mod hub;
mod session;
mod table;

use std::sync::Arc;

use daemon::{
    Shutdown,
    role::{Role, SitePeer},
    tls::{self, Clients, Peer},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};
use wire::id::GatewayId;

pub(crate) use self::hub::{Hub, HubHandle};
use crate::MoverTls;

/// How long a gateway may take to identify itself.
const HANDSHAKE_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Connections whose handshake is under way at a time; the rest wait in the backlog.
const MAX_HANDSHAKES: usize = 64;

/// Takes gateways' connections until the mover stops.
pub(crate) async fn listen(listener: TcpListener, tls: MoverTls, hub: HubHandle, shutdown: Shutdown) {
    let clients = Clients::Required(tls.site.clone());
    let config = tls::server_config(&tls.credential, &clients, &[]);
    let handshakes = Arc::new(tokio::sync::Semaphore::new(MAX_HANDSHAKES));
    loop {
        let accepted = tokio::select! {
            () = shutdown.stopping() => return,
            accepted = listener.accept() => accepted,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a gateway's connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
        let (config, clients, hub, inner) = (config.clone(), clients.clone(), hub.clone(), shutdown.clone());
        shutdown.spawn(async move {
            let _ = socket.set_nodelay(true);
            let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, tls::accept(&config, &clients, socket));
            match handshake.await {
                Err(_) => info!(%address, "no TLS handshake in time"),
                Ok(Err(error)) => info!(%address, error = tls::why(&error), "connection refused"),
                Ok(Ok((stream, peer))) => {
                    drop(permit);
                    serve(stream, &peer, &hub, &inner, address).await;
                }
            }
        });
    }
}

async fn serve(
    stream: TlsStream<TcpStream>,
    peer: &Peer,
    hub: &HubHandle,
    shutdown: &Shutdown,
    address: std::net::SocketAddr,
) {
    let part = match peer {
        Peer::Identified(identity) => SitePeer::of(identity),
        Peer::Anonymous | Peer::Refused(_) => None,
    };
    match part {
        Some(SitePeer { role: Role::Gateway, name, .. }) => match GatewayId::new(name) {
            Ok(gateway) => session::run(stream, gateway, hub, shutdown).await,
            Err(error) => warn!(%address, %error, "the certificate's name is no gateway's name"),
        },
        other => {
            let who = other.map_or_else(|| "no part of this site".to_owned(), |part| part.to_string());
            warn!(%address, who, "only gateways may connect here; connection closed");
        }
    }
}
