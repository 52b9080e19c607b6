//! The door's listeners, who is let in, and which method does what.
//!
//! Everybody gets through the handshake, and whoever is nobody here is told why in the answer: a handshake that merely
//! breaks teaches nobody anything. Tape REST's discovery is answered to everybody.
//!
//! Owns the listening sockets and the count of connections. Never decides who may what: [`crate::files`] does.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use daemon::{
    Shutdown,
    tls::{self, Clients, HotCredential, Trust},
};
use futures::FutureExt as _;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ALLOW, HOST, HeaderName, LOCATION},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::{
    Door, Parts, Services, WebdavConfig,
    answer::{Answer, Refusal, empty, set},
    location, tape,
};
use crate::{
    identity::{Principal, presented},
    redirect,
    relay::Relay,
};

/// How long a handshake or a request's header may take.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// How long connections may take to end after the soft step.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no file descriptor for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// The longest host name, with a port, that is told back (RFC 1035 section 2.3.4).
const MAX_HOST: usize = 261;
/// What a name takes.
const METHODS: &str = "OPTIONS, HEAD, GET, PUT, DELETE, MKCOL, MOVE, PROPFIND";
/// Grid clients speak HTTP/1.1, in which a body can be refused before it is sent (`Expect: 100-continue`); under HTTP/2 a
/// client that is refused in the middle of its body hears of a broken stream.
const PROTOCOLS: &[&str] = &["http/1.1"];
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Binds every address and serves until the shutdown; returns the addresses.
///
/// # Errors
///
/// If an address cannot be bound.
pub async fn open(
    config: &WebdavConfig,
    credential: &HotCredential,
    users: &Trust,
    services: Services,
    shutdown: &Shutdown,
) -> io::Result<Vec<SocketAddr>> {
    let Services { site, catalog, identities, files, transfers, hsm } = services;
    let site = if config.tape_rest.site.is_empty() { site } else { config.tape_rest.site.clone() };
    let (config, shutdown) = (config.clone(), shutdown.clone());
    let relay = Relay::new(&transfers, "webdav", config.stall_limit.duration(), &shutdown);
    let parts = Parts { site, catalog, identities, files, relay, hsm, config: config.clone() };
    let clients = Clients::Judged(users.clone());
    let house = House {
        door: Door(Arc::new(parts)),
        tls: tls::server_config(credential, &clients, PROTOCOLS),
        clients,
        room: Arc::new(Semaphore::new(config.max_connections as usize)),
        next: Arc::new(AtomicU64::new(1)),
    };
    let mut open = Vec::new();
    for address in &config.listen {
        let listener = TcpListener::bind(address).await?;
        open.push(listener.local_addr()?);
        shutdown.spawn_until_cut(house.clone().accept(listener, shutdown.clone()));
    }
    if !open.is_empty() {
        info!(addresses = ?open, "WebDAV door open");
    }
    Ok(open)
}

/// Who is at the other end of a connection: a certificate's subject, or why there is none that counts.
type Caller = Arc<Result<String, String>>;

/// What every connection shares.
#[derive(Clone)]
struct House {
    door: Door,
    tls: Arc<ServerConfig>,
    clients: Clients,
    room: Arc<Semaphore>,
    next: Arc<AtomicU64>,
}

impl House {
    async fn accept(self, listener: TcpListener, shutdown: Shutdown) {
        loop {
            let accepted = tokio::select! {
                () = shutdown.stopping() => return,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept");
                    tokio::time::sleep(EXHAUSTED_PAUSE).await;
                    continue;
                }
            };
            // Who finds no room is sent away, rather than left to hang.
            let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
                warn!(%peer, "too many connections to the WebDAV door");
                continue;
            };
            let (house, until) = (self.clone(), shutdown.clone());
            shutdown.spawn_until_cut(async move {
                let _place = place;
                if let Err(error) = house.connection(stream, peer, &until).await {
                    debug!(%peer, %error, "WebDAV connection ended");
                }
            });
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr, shutdown: &Shutdown) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let handshake = tls::accept(&self.tls, &self.clients, stream);
        let (stream, found) = match tokio::time::timeout(HEADER_LIMIT, handshake).await {
            Ok(result) => result.map_err(|error| io::Error::other(tls::why(&error)))?,
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")),
        };
        let caller = Arc::new(presented(found).map(|identity| identity.subject.as_str().to_owned()));
        debug!(%peer, ?caller, "WebDAV connection");
        self.serve(stream, caller, shutdown).await
    }

    async fn serve<S>(self, stream: S, caller: Caller, shutdown: &Shutdown) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
        let service = service_fn(move |request| {
            let (house, caller) = (self.clone(), Arc::clone(&caller));
            async move { Ok::<_, Infallible>(house.answer(request, caller).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
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

    /// Answers a request; one whose client is sent to a mover with its body goes on behind that.
    async fn answer(self, mut request: Request<Incoming>, caller: Caller) -> Answer {
        if request.method() != Method::PUT || !redirect::waits(request.headers()) {
            return self.answer_within(request, caller).await;
        }
        let (exit, left) = redirect::exit();
        request.extensions_mut().insert(exit);
        let house = self.clone();
        let work = async move { Ok::<_, Infallible>(house.answer_within(request, caller).await) }.boxed();
        match redirect::attend(work, left, self.door.relay.shutdown()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(never)) => match never {},
            Err(location) => {
                self.door.relay.sent_away();
                let mut answer = empty(StatusCode::TEMPORARY_REDIRECT);
                set(&mut answer, LOCATION, location);
                answer
            }
        }
    }

    async fn answer_within(self, request: Request<Incoming>, caller: Caller) -> Answer {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016X}", number ^ u64::from(std::process::id()) << 40);
        let span = info_span!("webdav", request = id, method = %request.method(), path = request.uri().path());
        let method = known(request.method());
        let head = request.method() == Method::HEAD;
        let answered = self.door.route(request, &caller).instrument(span.clone()).await;
        let mut answer = answered.unwrap_or_else(|refusal| {
            let _entered = span.enter();
            info!(status = refusal.status.as_u16(), ?refusal, "refused");
            if head { empty(refusal.status) } else { refusal.into() }
        });
        set(&mut answer, REQUEST_ID, id);
        let status = answer.status().as_str().to_owned();
        metrics::counter!("penstock_webdav_requests_total", "method" => method, "status" => status).increment(1);
        answer
    }
}

/// The method's name for counting: whatever else comes is one kind.
fn known(method: &Method) -> &'static str {
    const NAMES: [&str; 10] = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "MOVE", "COPY"];
    NAMES.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

impl Door {
    async fn route(&self, request: Request<Incoming>, caller: &Caller) -> Result<Answer, Refusal> {
        let host = host(&request);
        if request.uri().path() == tape::WELL_KNOWN {
            return self.discovery(request.method(), host.as_deref());
        }
        let who = self.who(caller).await?;
        if let Some(call) = request.uri().path().strip_prefix(tape::PREFIX) {
            let call = call.to_owned();
            return self.tape_call(&who, &call, host.as_deref(), request).await;
        }
        let path = location::path(request.uri().path())?;
        match request.method().as_str() {
            "GET" | "HEAD" => self.read(&who, &path, &request).await,
            "PUT" => self.write(&who, &path, request).await,
            "DELETE" => self.delete(&who, &path, &request).await,
            "MKCOL" => self.make_collection(&who, &path, request).await,
            "MOVE" => self.move_name(&who, &path, host.as_deref(), &request).await,
            "PROPFIND" => self.properties(&who, &path, request).await,
            "OPTIONS" => {
                let mut answer = empty(StatusCode::OK);
                set(&mut answer, ALLOW, METHODS);
                Ok(answer)
            }
            "COPY" => {
                let text = "third-party copies and copies on the server are not offered here: read and write the file";
                Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text))
            }
            _ => Err(Refusal::method(METHODS)),
        }
    }

    /// The account that a caller is, now: it may have been disabled since the handshake.
    async fn who(&self, caller: &Caller) -> Result<Principal, Refusal> {
        match &**caller {
            Ok(subject) => Ok(self.identities.principal(subject, None).await?),
            Err(why) => Err(Refusal::new(StatusCode::UNAUTHORIZED, why)),
        }
    }
}

/// The name by which the client knows this server.
fn host(request: &Request<Incoming>) -> Option<String> {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().authority().map(hyper::http::uri::Authority::as_str).or(header)?;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    (host.len() <= MAX_HOST && host.bytes().all(good)).then(|| host.to_owned())
}
