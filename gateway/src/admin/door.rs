//! The admin door's listeners: TLS, and who is let in.
//!
//! Two kinds of people are administrators: holders of an admin certificate of the site's own authority, and holders of a
//! trusted certificate that is mapped to an account with the admin right. Everybody else is told why not, in JSON: a
//! handshake that merely breaks teaches nobody anything.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, Router, extract::Request, middleware::Next, response::IntoResponse};
use daemon::{
    Shutdown,
    role::{Role, SitePeer},
    tls::{self, Clients, HotCredential, Peer, Trust},
    trust::Purpose,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{debug, info, warn};
use wire::{admin::Code, id::AccountName};

use super::{AdminConfig, Services, health, refusal::Refusal, router};
use crate::identity::Identities;

/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);

/// How long connections may take to end after the soft step.
const GOODBYE: Duration = Duration::from_secs(2);

/// By what the door knows itself and others.
#[derive(Clone)]
pub struct Keys {
    /// Shown to clients: the gateway's certificate of the site's own authority.
    pub credential: HotCredential,
    /// The site's own authority.
    pub site: Trust,
    /// Whose certificates are believed of users.
    pub users: Trust,
}

/// Where the door listens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doors {
    /// The admin door.
    pub admin: Vec<SocketAddr>,
    /// Metrics and health.
    pub metrics: Vec<SocketAddr>,
}

/// Who is at the other end: an administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    /// In whose name it asks.
    pub(super) account: AccountName,
    /// For the log.
    pub(super) name: String,
}

/// Who came, or why they are not let in.
#[derive(Clone)]
struct Judged(Result<Caller, String>);

/// Binds every address and serves until the shutdown.
///
/// # Errors
///
/// If an address cannot be bound.
pub async fn open(config: &AdminConfig, keys: Keys, services: Services, shutdown: &Shutdown) -> io::Result<Doors> {
    let room = Arc::new(Semaphore::new(config.max_connections as usize));
    let mut doors = Doors::default();
    let clients = Clients::Judged(keys.site.clone());
    let tls = tls::server_config(&keys.credential, &clients, &["h2", "http/1.1"]);
    let health = health::router(services.clone());
    let judge = Judge { clients, users: keys.users, identities: services.identities.clone() };
    let router = router(services).layer(axum::middleware::from_fn(administrators_only));
    for address in &config.listen {
        let listener = TcpListener::bind(address).await?;
        doors.admin.push(listener.local_addr()?);
        let door =
            Door { tls: Some((Arc::clone(&tls), judge.clone())), router: router.clone(), room: Arc::clone(&room) };
        shutdown.spawn_until_cut(door.run(listener, shutdown.clone()));
    }
    for address in &config.metrics {
        let listener = TcpListener::bind(address).await?;
        doors.metrics.push(listener.local_addr()?);
        let door = Door { tls: None, router: health.clone(), room: Arc::clone(&room) };
        shutdown.spawn_until_cut(door.run(listener, shutdown.clone()));
    }
    Ok(doors)
}

#[derive(Clone)]
struct Judge {
    clients: Clients,
    users: Trust,
    identities: Identities,
}

impl Judge {
    async fn judge(&self, peer: Peer, chain: Option<&[CertificateDer<'_>]>) -> Judged {
        let refused = match peer {
            Peer::Identified(identity) => match SitePeer::of(&identity) {
                Some(SitePeer { role: Role::Admin, name, .. }) => return Judged(admin(&name)),
                Some(peer) => return Judged(Err(format!("{peer} of this site is no administrator"))),
                None => format!("{} is no administrator's certificate", identity.subject.as_str()),
            },
            Peer::Anonymous => return Judged(Err("no certificate was shown".into())),
            Peer::Refused(error) => error.to_string(),
        };
        // Not of the site's authority: perhaps a user whose account has the admin right.
        let verdict = chain.map(|chain| self.users.current().verify(chain, Purpose::Client, daemon::trust::now()));
        let identity = match verdict {
            Some(Ok(identity)) => identity,
            Some(Err(error)) => return Judged(Err(format!("the certificate is not trusted: {error}"))),
            None => return Judged(Err(refused)),
        };
        let subject = identity.subject.as_str();
        Judged(match self.identities.principal(subject, None).await {
            Ok(principal) if principal.admin => Ok(Caller { account: principal.account, name: subject.to_owned() }),
            Ok(principal) => Err(format!("account {} has no admin right", principal.account)),
            Err(failure) => Err(failure.message().to_owned()),
        })
    }
}

fn admin(name: &str) -> Result<Caller, String> {
    let account = AccountName::new(name).map_err(|bad| bad.to_string())?;
    Ok(Caller { account, name: format!("admin {name}") })
}

async fn administrators_only(
    Extension(Judged(judged)): Extension<Judged>,
    mut request: Request,
    next: Next,
) -> axum::response::Response {
    match judged {
        Ok(caller) => {
            debug!(principal = caller.name, method = %request.method(), path = request.uri().path(), "admin request");
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(why) => {
            let step =
                "use an admin certificate of this site (`--certificate`), or have your account given the admin right";
            Refusal::new(Code::Forbidden, format!("you are no administrator here: {why}"), step).into_response()
        }
    }
}

struct Door {
    tls: Option<(Arc<ServerConfig>, Judge)>,
    router: Router,
    room: Arc<Semaphore>,
}

impl Door {
    async fn run(self, listener: TcpListener, shutdown: Shutdown) {
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.stopping() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Whoever comes when all places are taken is sent away, rather than left to hang.
            let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
                warn!(%peer, "too many connections to the admin door");
                continue;
            };
            let (tls, router, until) = (self.tls.clone(), self.router.clone(), shutdown.clone());
            shutdown.spawn_until_cut(async move {
                let _place = place;
                if let Err(error) = connection(stream, peer, tls, router, &until).await {
                    debug!(%peer, %error, "admin connection ended");
                }
            });
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<(Arc<ServerConfig>, Judge)>,
    router: Router,
    shutdown: &Shutdown,
) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let Some((config, judge)) = tls else { return serve(stream, router, shutdown).await };
    let handshake = tls::accept(&config, &judge.clients, stream);
    let (stream, found) = match tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(result) => result.map_err(|error| io::Error::other(tls::why(&error)))?,
        Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")),
    };
    let judged = judge.judge(found, stream.get_ref().1.peer_certificates()).await;
    match &judged.0 {
        Ok(caller) => info!(%peer, principal = caller.name, "administrator connected"),
        Err(why) => warn!(%peer, why, "not an administrator"),
    }
    serve(stream, router.layer(Extension(judged)), shutdown).await
}

async fn serve<S>(stream: S, router: Router, shutdown: &Shutdown) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(io::Error::other),
        () = shutdown.stopping() => connection.as_mut().graceful_shutdown(),
    }
    match tokio::time::timeout(GOODBYE, connection).await {
        Ok(ended) => ended.map_err(io::Error::other),
        Err(_) => Ok(()),
    }
}
