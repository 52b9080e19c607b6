//! The door's listeners, and what happens to a request before and after `s3s`.
//!
//! Before: a request number, CORS preflights, signatures that are not taken here. After: statuses and members of errors
//! that `s3s` has no words for, CORS headers, the request number.
//!
//! Owns the listening sockets and the count of connections. Never decides who may what.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use daemon::{
    Shutdown,
    tls::{self, Clients, HotCredential},
};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use s3s::{
    Body, S3ErrorCode,
    host::MultiDomain,
    service::{S3Service, S3ServiceBuilder},
    validation::NameValidation,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::{
    Door, Parts, S3Config, Services,
    access::{Access, Auth, Connection, pairs},
    cors,
    service::Service,
};

/// Marks an answer whose status `s3s` does not know.
pub(super) const ACCEPTED: HeaderName = HeaderName::from_static("x-penstock-status");
/// The storage class in an error about an object's state.
pub(super) const STATE_CLASS: HeaderName = HeaderName::from_static("x-penstock-class");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// How long a handshake or a request's header may take.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// How long a pre-signed URL may be good (Amazon S3: 7 days).
const MAX_EXPIRES_S: u32 = 7 * 86_400;
/// How long connections may take to end after the soft step.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no file descriptor for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Binds every address and serves until the shutdown; returns the addresses, those with TLS first.
///
/// # Errors
///
/// If an address cannot be bound, or a domain is none.
pub async fn open(
    config: &S3Config,
    credential: &HotCredential,
    services: Services,
    shutdown: &Shutdown,
) -> io::Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
    let Services { catalog, identities, transfers, hsm, stager, root, sealer } = services;
    let door = Door(Arc::new(Parts {
        catalog,
        identities,
        transfers,
        hsm,
        stager,
        root,
        sealer,
        config: config.clone(),
        shutdown: shutdown.clone(),
    }));
    let mut builder = S3ServiceBuilder::new(Service(door.clone()));
    builder.set_auth(Auth(door.clone()));
    builder.set_access(Access(door.clone()));
    builder.set_validation(Names);
    if !config.domains.is_empty() {
        let domains = MultiDomain::new(&config.domains).map_err(io::Error::other)?;
        builder.set_host(domains);
    }
    let house = House {
        door,
        service: builder.build(),
        room: Arc::new(Semaphore::new(config.max_connections as usize)),
        next: Arc::new(AtomicU64::new(1)),
    };
    let tls = tls::server_config(credential, &Clients::Anonymous, &["h2", "http/1.1"]);
    let (mut secure, mut clear) = (Vec::new(), Vec::new());
    for address in &config.listen {
        let listener = TcpListener::bind(address).await?;
        secure.push(listener.local_addr()?);
        shutdown.spawn_until_cut(house.clone().accept(listener, Some(Arc::clone(&tls)), shutdown.clone()));
    }
    for address in &config.listen_clear {
        let listener = TcpListener::bind(address).await?;
        clear.push(listener.local_addr()?);
        shutdown.spawn_until_cut(house.clone().accept(listener, None, shutdown.clone()));
    }
    info!(tls = ?secure, ?clear, "S3 door open");
    Ok((secure, clear))
}

/// Bucket names, as Amazon allows them.
///
/// # Source
///
/// Amazon S3 User Guide, "General purpose bucket naming rules".
struct Names;

impl NameValidation for Names {
    fn validate_bucket_name(&self, name: &str) -> bool {
        s3s::path::check_bucket_name(name) && !name.contains(".-") && !name.contains("-.")
    }
}

/// What every connection shares.
#[derive(Clone)]
struct House {
    door: Door,
    service: S3Service,
    room: Arc<Semaphore>,
    next: Arc<AtomicU64>,
}

impl House {
    async fn accept(self, listener: TcpListener, tls: Option<Arc<ServerConfig>>, shutdown: Shutdown) {
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
                warn!(%peer, "too many connections to the S3 door");
                continue;
            };
            let (house, tls, until) = (self.clone(), tls.clone(), shutdown.clone());
            shutdown.spawn_until_cut(async move {
                let _place = place;
                if let Err(error) = house.connection(stream, peer, tls, &until).await {
                    debug!(%peer, %error, "S3 connection ended");
                }
            });
        }
    }

    async fn connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let about = Connection { address: peer.ip(), secure: tls.is_some() };
        let Some(config) = tls else { return self.serve(stream, about, shutdown).await };
        let handshake = tls::accept(&config, &Clients::Anonymous, stream);
        match tokio::time::timeout(HEADER_LIMIT, handshake).await {
            Ok(Ok((stream, _))) => self.serve(stream, about, shutdown).await,
            Ok(Err(error)) => Err(io::Error::other(tls::why(&error))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")),
        }
    }

    async fn serve<S>(self, stream: S, about: Connection, shutdown: &Shutdown) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
        builder.http2().timer(TokioTimer::new());
        let service = service_fn(move |request| self.clone().answer(request, about));
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

    async fn answer(self, request: Request<Incoming>, about: Connection) -> Result<Response<Body>, s3s::HttpError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016X}", number ^ u64::from(std::process::id()) << 40);
        let span = info_span!("s3", request = id, method = %request.method(), path = request.uri().path());
        self.answer_within(request, about, id).instrument(span).await
    }

    async fn answer_within(
        self,
        mut request: Request<Incoming>,
        about: Connection,
        id: String,
    ) -> Result<Response<Body>, s3s::HttpError> {
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let bucket = bucket_of(request.uri().path(), &headers, &self.door.config.domains);
        let rules = match cors::Asked::of(&method, &headers) {
            Some(_) => self.rules(bucket.as_deref()).await,
            None => Vec::new(),
        };
        if method == Method::OPTIONS {
            return Ok(self.preflight(&method, &headers, &rules, &id));
        }
        let attributes = request.uri().query().is_some_and(|query| query.starts_with("attributes"));
        let mut response = match self.refused(&request) {
            Some((code, message)) => s3s::S3Error::with_message(code, message)
                .to_http_response()
                .map_err(|error| s3s::HttpError::new(error.into()))?,
            None => {
                request.extensions_mut().insert(about);
                let request = request.map(Body::from);
                self.service.call(request).await?
            }
        };
        if let Some(answer) = cors::Asked::of(&method, &headers).and_then(|asked| asked.answer(&rules, false)) {
            response.headers_mut().extend(answer);
        }
        let status = response.status();
        info!(status = status.as_u16(), "answered");
        metrics::counter!("penstock_s3_requests_total", "method" => method.to_string(), "status" => status.as_str().to_owned())
            .increment(1);
        if attributes && response.status().is_success() {
            response = plain_tag(response).await?;
        }
        finish(response, &method, &id).await
    }

    /// What is not taken here, before anything is read of it.
    fn refused(&self, request: &Request<Incoming>) -> Option<(S3ErrorCode, &'static str)> {
        let headers = request.headers();
        let old = headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS "))
            || request.uri().query().is_some_and(|query| query.contains("AWSAccessKeyId="));
        if old && !self.door.config.signature_v2 {
            return Some((S3ErrorCode::InvalidRequest, "sign with AWS4-HMAC-SHA256: version 2 is not taken here"));
        }
        if headers.get(AUTHORIZATION).is_some_and(|value| !value.as_bytes().starts_with(b"AWS")) {
            return Some((S3ErrorCode::AccessDenied, "the Authorization header is no signature"));
        }
        let query = pairs(request.uri().query().unwrap_or_default());
        let expires = query.iter().find(|(name, _)| name == "X-Amz-Expires").map(|(_, value)| value.parse::<u32>());
        if expires.is_some_and(|seconds| !seconds.is_ok_and(|seconds| (1..=MAX_EXPIRES_S).contains(&seconds))) {
            return Some((S3ErrorCode::AccessDenied, "a pre-signed URL is good for 1 second to 7 days"));
        }
        None
    }

    async fn rules(&self, bucket: Option<&str>) -> Vec<super::attributes::CorsRule> {
        let Some(bucket) = bucket else { return Vec::new() };
        self.door.bucket(bucket).await.map(|view| view.settings.cors).unwrap_or_default()
    }

    fn preflight(
        &self,
        method: &Method,
        headers: &HeaderMap,
        rules: &[super::attributes::CorsRule],
        id: &str,
    ) -> Response<Body> {
        let asked = cors::Asked::of(method, headers);
        let complete = headers.contains_key(hyper::header::ACCESS_CONTROL_REQUEST_METHOD);
        let status = match (&asked, complete) {
            (Some(_), true) => StatusCode::FORBIDDEN,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        if let Some(answer) = asked.filter(|_| complete).and_then(|asked| asked.answer(rules, true)) {
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().extend(answer);
        }
        if let Ok(id) = HeaderValue::try_from(id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }
}

/// The tag in an object's attributes stands without quotes.
async fn plain_tag(response: Response<Body>) -> Result<Response<Body>, s3s::HttpError> {
    let (mut parts, mut body) = response.into_parts();
    let whole = body.store_all_limited(4 << 20).await.map_err(s3s::HttpError::new)?;
    let text = String::from_utf8_lossy(&whole).replace("<ETag>&quot;", "<ETag>").replace("&quot;</ETag>", "</ETag>");
    let text = text.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>");
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Ok(Response::from_parts(parts, Body::from(Bytes::from(text))))
}

/// Puts right what `s3s` has no words for.
async fn finish(mut response: Response<Body>, method: &Method, id: &str) -> Result<Response<Body>, s3s::HttpError> {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id) {
        headers.insert(REQUEST_ID, id);
    }
    if headers.remove(ACCEPTED).is_some() {
        *response.status_mut() = StatusCode::ACCEPTED;
    }
    let class = response.headers_mut().remove(STATE_CLASS);
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        if status == StatusCode::NOT_MODIFIED {
            response.headers_mut().remove(CONTENT_TYPE);
            *response.body_mut() = Body::empty();
        }
        return Ok(response);
    }
    if method == Method::HEAD {
        return Ok(response);
    }
    let (mut parts, mut body) = response.into_parts();
    let whole = body.store_all_limited(64 << 10).await.map_err(s3s::HttpError::new)?;
    let text = String::from_utf8_lossy(&whole).into_owned();
    let mut members = String::new();
    if let Some(class) = class.as_ref().and_then(|class| class.to_str().ok()) {
        members.push_str(&format!("<StorageClass>{class}</StorageClass>"));
    }
    if !text.contains("<RequestId>") {
        members.push_str(&format!("<RequestId>{id}</RequestId>"));
    }
    let text = match text.rfind("</Error>") {
        Some(at) => format!("{}{members}{}", &text[..at], &text[at..]),
        None => text,
    };
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Ok(Response::from_parts(parts, Body::from(Bytes::from(text))))
}

/// The bucket that a request names, by path or by host.
fn bucket_of(path: &str, headers: &HeaderMap, domains: &[String]) -> Option<String> {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let by_host = domains.iter().find_map(|domain| host.strip_suffix(domain.as_str())?.strip_suffix('.'));
    if let Some(bucket) = by_host {
        return Some(bucket.to_owned());
    }
    let first = path.trim_start_matches('/').split('/').next().filter(|name| !name.is_empty())?;
    Some(pairs(&first.replace('+', "%2B")).first()?.0.clone())
}
