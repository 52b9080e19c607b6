//! The door's listeners, and what happens to a request before and after `s3s`.
//!
//! Before: a request number, CORS preflights, the token service, and what [`super::before`] puts right or refuses. After:
//! statuses and members of errors that `s3s` has no words for, CORS headers, the request number.
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
    tls::{self, Clients, HotCredential, Trust},
};
use futures::FutureExt as _;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use s3s::{
    Body,
    config::StaticConfigProvider,
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
    access::{Access, Connection},
    before, cors, lifecycle,
    notify::{self, RequestNumber},
    service::Service,
    signer::Auth,
    sts::{self, Shown, Sts},
    usage,
};
use crate::{
    redirect::{self, Route},
    relay::Relay,
};

/// Marks an answer whose status `s3s` does not know.
pub(super) const ACCEPTED: HeaderName = HeaderName::from_static("x-penstock-status");
/// The storage class in an error about an object's state.
pub(super) const STATE_CLASS: HeaderName = HeaderName::from_static("x-penstock-class");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// How long a handshake or a request's header may take.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// A body of XML: 10,000 parts with their sums, or 1,000 keys of the longest, escaped.
const MAX_XML_BYTES: usize = 8 << 20;
/// The file of a form, and what its fields come to. Larger files come by PUT, which does not gather them.
const MAX_FORM_BYTES: u64 = 64 << 20;
const MAX_FIELD_BYTES: usize = 128 << 10;
const MAX_FIELDS_BYTES: usize = 1 << 20;
const MAX_FIELDS: usize = 200;
/// Forms at a time, since each is held in memory; more are told to come again.
const FORMS_AT_ONCE: usize = 8;
/// How long connections may take to end after the soft step.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no file descriptor for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Binds every address and serves until the shutdown; returns the addresses, those with TLS first. `users` judges the
/// certificates for which temporary keys are given.
///
/// # Errors
///
/// If an address cannot be bound, or a domain is none.
pub async fn open(
    config: &S3Config,
    credential: &HotCredential,
    users: &Trust,
    services: Services,
    shutdown: &Shutdown,
) -> io::Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
    let Services { catalog, identities, transfers, hsm, stager, root, sealer } = services;
    let door = Door(Arc::new(Parts {
        catalog,
        identities,
        relay: Relay::new(&transfers, "s3", config.stall_limit.duration(), shutdown),
        hsm,
        stager,
        root,
        sealer,
        config: config.clone(),
    }));
    lifecycle::start(&door);
    usage::start(&door);
    notify::start(&door).await?;
    let mut builder = S3ServiceBuilder::new(Service(door.clone()));
    builder.set_auth(Auth(door.clone()));
    builder.set_access(Access(door.clone()));
    builder.set_validation(Names);
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits()))));
    if !config.domains.is_empty() {
        let domains = MultiDomain::new(&config.domains).map_err(io::Error::other)?;
        builder.set_host(domains);
    }
    // Where no keys are given no certificate is asked for: browsers would have their users choose one.
    let clients = match config.temporary_limit.duration().is_zero() {
        true => Clients::Anonymous,
        false => Clients::Judged(users.clone()),
    };
    let tls = tls::server_config(credential, &clients, &["h2", "http/1.1"]);
    let house = House {
        sts: Arc::new(Sts::new(door.clone(), clients.clone())),
        door,
        clients,
        service: builder.build(),
        room: Arc::new(Semaphore::new(config.max_connections as usize)),
        forms: Arc::new(Semaphore::new(FORMS_AT_ONCE)),
        next: Arc::new(AtomicU64::new(1)),
    };
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

/// What a client can make `s3s` hold in memory: bodies that are XML, and forms, whose file it gathers before it looks at
/// the policy.
fn limits() -> s3s::config::S3Config {
    let mut limits = s3s::config::S3Config::default();
    limits.xml_max_body_size = MAX_XML_BYTES;
    limits.post_object_max_file_size = MAX_FORM_BYTES;
    limits.form_max_field_size = MAX_FIELD_BYTES;
    limits.form_max_fields_size = MAX_FIELDS_BYTES;
    limits.form_max_parts = MAX_FIELDS;
    limits
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
    sts: Arc<Sts>,
    clients: Clients,
    service: S3Service,
    room: Arc<Semaphore>,
    forms: Arc<Semaphore>,
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
        let Some(config) = tls else { return self.serve(stream, about, None, shutdown).await };
        let handshake = tls::accept(&config, &self.clients, stream);
        match tokio::time::timeout(HEADER_LIMIT, handshake).await {
            Ok(Ok((stream, _))) => {
                let shown = stream.get_ref().1.peer_certificates().map(|chain| chain.to_vec().into());
                self.serve(stream, about, shown, shutdown).await
            }
            Ok(Err(error)) => Err(io::Error::other(tls::why(&error))),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time")),
        }
    }

    async fn serve<S>(self, stream: S, about: Connection, shown: Shown, shutdown: &Shutdown) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
        builder.http2().timer(TokioTimer::new());
        let service = service_fn(move |request| self.clone().answer(request, about, shown.clone()));
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

    async fn answer(
        self,
        mut request: Request<Incoming>,
        about: Connection,
        shown: Shown,
    ) -> Result<Response<Body>, s3s::HttpError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016X}", number ^ u64::from(std::process::id()) << 40);
        let span = info_span!("s3", request = id, method = %request.method(), path = request.uri().path());
        if request.method() != Method::PUT || !redirect::waits(request.headers()) {
            return self.answer_within(request, about, shown, id).instrument(span).await;
        }
        // Its client may be sent to a mover with the body; the answer then goes there.
        let (exit, left) = redirect::exit();
        request.extensions_mut().insert(exit);
        let work = self.clone().answer_within(request, about, shown, id.clone()).instrument(span).boxed();
        match redirect::attend(work, left, self.door.relay.shutdown()).await {
            Ok(answer) => answer,
            Err(location) => {
                let location = HeaderValue::try_from(location).ok();
                finish(self.sent_to(location, "write the object")?, &Method::PUT, &id).await
            }
        }
    }

    async fn answer_within(
        self,
        mut request: Request<Incoming>,
        about: Connection,
        shown: Shown,
        id: String,
    ) -> Result<Response<Body>, s3s::HttpError> {
        let (method, headers) = (request.method().clone(), request.headers().clone());
        let bucket = before::bucket_of(request.uri().path(), &headers, &self.door.config.domains);
        let rules = match cors::Asked::of(&method, &headers) {
            Some(_) => self.rules(bucket.as_deref()).await,
            None => Vec::new(),
        };
        if method == Method::OPTIONS {
            return Ok(self.preflight(&method, &headers, &rules, &id));
        }
        let path = request.uri().path().to_owned();
        let attributes = request.uri().query().is_some_and(|query| query.starts_with("attributes"));
        let mut response = if bucket.is_none() && sts::is_asked(&request) {
            self.sts.answer(request, about.secure, &shown, &id).await
        } else {
            match before::prepare(&self.door, &mut request).await {
                Err(error) => error.to_http_response().map_err(|error| s3s::HttpError::new(error.into()))?,
                Ok(()) => {
                    request.extensions_mut().insert(about);
                    request.extensions_mut().insert(RequestNumber(Arc::from(id.as_str())));
                    self.pass_on(request).await?
                }
            }
        };
        if let Some(route) = response.extensions_mut().remove::<Route>() {
            response = self.redirected(&route, &path, response.headers())?;
        }
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

    /// Sends a client to the mover, which says of the object what is said here.
    fn redirected(&self, route: &Route, path: &str, said: &HeaderMap) -> Result<Response<Body>, s3s::HttpError> {
        let location = route.location(path, said).and_then(|text| HeaderValue::try_from(text).ok());
        self.sent_to(location, "read the object")
    }

    fn sent_to(&self, location: Option<HeaderValue>, what: &str) -> Result<Response<Body>, s3s::HttpError> {
        let answer = match location {
            Some(location) => {
                self.door.relay.sent_away();
                let mut error = s3s::s3_error!(TemporaryRedirect, "{} at the address in Location", what);
                let kind = HeaderValue::from_static("application/xml");
                error.set_headers(HeaderMap::from_iter([(LOCATION, location), (CONTENT_TYPE, kind)]));
                error
            }
            None => {
                let text = "what is said of this object does not fit a redirect: send x-penstock-direct: off";
                s3s::S3Error::with_message(s3s::S3ErrorCode::InternalError, text)
            }
        };
        answer.to_http_response().map_err(|error| s3s::HttpError::new(error.into()))
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, s3s::HttpError> {
        let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        let form = request.method() == Method::POST && kind.to_ascii_lowercase().starts_with(b"multipart/");
        let _place = match form.then(|| Arc::clone(&self.forms).try_acquire_owned()) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_)) => {
                let busy = s3s::s3_error!(SlowDown, "{} forms are being received: send it again", FORMS_AT_ONCE);
                return busy.to_http_response().map_err(|error| s3s::HttpError::new(error.into()));
            }
        };
        self.service.call(request.map(Body::from)).await
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

/// Where a form's success leads to names the tag with its quotes, as Amazon does.
fn quote_tag(headers: &mut HeaderMap) {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let parts = location.and_then(|text| text.split_once("&etag=")).filter(|(_, tag)| !tag.contains("%22"));
    let quoted = parts.map(|(before, tag)| format!("{before}&etag=%22{tag}%22"));
    if let Some(value) = quoted.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(LOCATION, value);
    }
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
        if status == StatusCode::SEE_OTHER {
            quote_tag(response.headers_mut());
        }
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
    // What a form's policy does not allow is forbidden; only what is no policy is a bad request.
    let forbidden = ["Policy condition &apos;", "Policy condition '", "does not match bucket in URL"];
    let text = if text.contains("<Code>InvalidPolicyDocument</Code>") && forbidden.iter().any(|why| text.contains(why))
    {
        parts.status = StatusCode::FORBIDDEN;
        text.replace("<Code>InvalidPolicyDocument</Code>", "<Code>AccessDenied</Code>")
    } else {
        text
    };
    let text = match text.rfind("</Error>") {
        Some(at) => format!("{}{members}{}", &text[..at], &text[at..]),
        None => text,
    };
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Ok(Response::from_parts(parts, Body::from(Bytes::from(text))))
}
