//! TLS on data connections: who must be at the other end.
//!
//! Talks to `daemon::tls` for every judgement over certificates. Never lets a connection through whose peer is not the one
//! that the gateway named.

use std::{net::SocketAddr, sync::Arc};

use daemon::{
    role::{Role, SitePeer},
    tls::{self, Clients, Expect, Peer},
    trust::{Dn, Identity},
};
use tokio::net::TcpStream;
use tokio_rustls::rustls::{self, ClientConfig, Connection, ServerConfig};
use wire::mover::{Fault, FaultKind, PeerCheck, Security, TlsSide};

use super::link::Link;
use crate::MoverTls;

/// How connections of one channel are secured.
pub(crate) enum Secure {
    /// Not at all.
    Clear,
    /// This side is the TLS server.
    Server { config: Arc<ServerConfig>, clients: Clients, expected: Expected },
    /// This side is the TLS client; the configuration checks the peer.
    Client { config: Arc<ClientConfig> },
}

/// Whom a server must find.
pub(crate) enum Expected {
    Site,
    Subject { dn: Dn, may_be_silent: bool },
}

impl Secure {
    /// As the gateway wants it. `connects` says that this side connects.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] if the subject is none.
    pub(crate) fn new(security: &Security, connects: bool, tls: &MoverTls) -> Result<Self, Fault> {
        let Security::Tls { side, peer } = security else { return Ok(Self::Clear) };
        let subject = |text: &String| {
            text.parse::<Dn>()
                .map_err(|error| Fault::new(FaultKind::BadRequest, format!("peer of a data channel: {error}")))
        };
        if connects && *side == TlsSide::ByConnection {
            let (trust, expect) = match peer {
                PeerCheck::Site => (&tls.site, Expect::Role { role: Role::Mover, name: None }),
                PeerCheck::Subject(text) | PeerCheck::SubjectIfShown(text) => {
                    (&tls.clients, Expect::Subject(subject(text)?))
                }
            };
            return Ok(Self::Client { config: tls::client_config(Some(&tls.credential), trust, &expect, &[]) });
        }
        let (clients, expected) = match peer {
            PeerCheck::Site => (Clients::Required(tls.site.clone()), Expected::Site),
            PeerCheck::Subject(text) => {
                (Clients::Required(tls.clients.clone()), Expected::Subject { dn: subject(text)?, may_be_silent: false })
            }
            PeerCheck::SubjectIfShown(text) => {
                (Clients::Optional(tls.clients.clone()), Expected::Subject { dn: subject(text)?, may_be_silent: true })
            }
        };
        Ok(Self::Server { config: tls::server_config(&tls.credential, &clients, &[]), clients, expected })
    }

    /// Does the handshake, if there is one.
    ///
    /// # Errors
    ///
    /// [`FaultKind::PeerUntrusted`] if the peer is not the expected one, [`FaultKind::PeerLost`] if it goes away,
    /// [`FaultKind::PeerProtocol`] if it does not speak TLS.
    pub(crate) async fn handshake(&self, socket: TcpStream, peer: SocketAddr) -> Result<Link, Fault> {
        match self {
            Self::Clear => Ok(Link::clear(socket, peer)),
            Self::Server { config, clients, expected } => {
                let (stream, found) =
                    tls::accept(config, clients, socket).await.map_err(|error| broken(peer, &error))?;
                expected.check(&found, peer)?;
                let (socket, connection) = stream.into_inner();
                Ok(Link::tls(socket, peer, Connection::Server(connection)))
            }
            Self::Client { config } => {
                let name = peer.ip().to_string();
                let stream = tls::connect(config, &name, socket).await.map_err(|error| broken(peer, &error))?;
                let (socket, connection) = stream.into_inner();
                Ok(Link::tls(socket, peer, Connection::Client(connection)))
            }
        }
    }
}

impl Expected {
    fn check(&self, found: &Peer, address: SocketAddr) -> Result<(), Fault> {
        let untrusted = |who: String, wanted: String| {
            Err(Fault::new(FaultKind::PeerUntrusted, format!("data connection from {address} is {who}, not {wanted}")))
        };
        let who = |identity: &Identity| identity.subject.to_string();
        match (self, found) {
            (Self::Subject { may_be_silent: true, .. }, Peer::Anonymous) => Ok(()),
            (Self::Subject { dn, .. }, Peer::Identified(identity)) if identity.subject == *dn => Ok(()),
            (Self::Subject { dn, .. }, Peer::Identified(identity)) => untrusted(who(identity), dn.to_string()),
            (Self::Site, Peer::Identified(identity)) => match SitePeer::of(identity) {
                Some(SitePeer { role: Role::Mover | Role::Gateway, .. }) => Ok(()),
                _ => untrusted(who(identity), "a mover or gateway of this site".to_owned()),
            },
            (_, Peer::Refused(reason)) => {
                Err(Fault::new(FaultKind::PeerUntrusted, format!("data connection from {address}: {reason}")))
            }
            (_, Peer::Anonymous) => {
                untrusted("nobody".to_owned(), "who it must be: it shows no certificate".to_owned())
            }
        }
    }
}

fn broken(peer: SocketAddr, error: &std::io::Error) -> Fault {
    use std::io::ErrorKind as Kind;
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let kind = match error.kind() {
        _ if matches!(reason, Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))) => {
            FaultKind::PeerUntrusted
        }
        Kind::UnexpectedEof | Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted => FaultKind::PeerLost,
        _ => FaultKind::PeerProtocol,
    };
    Fault::new(kind, format!("TLS with {peer} failed: {}", tls::why(error)))
}
