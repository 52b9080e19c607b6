//! One data endpoint: a listening port or an address to connect to, and its connections.
//!
//! Owns the listener, the connections that no transfer uses, and those whose handshake is under way; or an HTTP request
//! whose body no transfer reads yet. Talks to peers, and lends its connections to one transfer at a time. Never reads file
//! data.
//!
//! Invariant: there are at most [`MAX_STREAMS`] connections, wherever they are.
//!
//! ```text
//! Idle --attach--> Attached --links returned, or dropped--> Idle --close--> gone
//!                     |                                                      ^
//!                     +-----------------------close--------------------------+
//! ```

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use daemon::Shutdown;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use wire::{
    id::ChannelId,
    mover::{ChannelSpec, Fault, FaultKind, Framing, Open, channel::MAX_STREAMS},
};

use super::{body::Offered, link::Link, ports::Ports, secure::Secure};
use crate::MoverTls;

/// How long nothing is accepted after an error.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a transfer hears of its channel's connections.
pub(crate) enum Arrival {
    /// One is ready.
    Link(Link),
    /// A request is there whose body is to be read: the only arrival of its channel.
    Body(Box<Offered>),
    /// One could not be made.
    Failed(Fault),
}

/// A channel, seen from outside. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ChannelHandle {
    id: ChannelId,
    spec: Arc<ChannelSpec>,
    attach: mpsc::Sender<Attach>,
    /// Where a body goes, and whether one went there.
    offers: mpsc::Sender<Box<Offered>>,
    taken: Arc<AtomicBool>,
    close: CancellationToken,
}

struct Attach {
    arrivals: mpsc::Sender<Arrival>,
    returned: oneshot::Receiver<Vec<Link>>,
    accepted: oneshot::Sender<Result<Option<usize>, Fault>>,
}

/// A channel lent to a transfer. Dropped without [`Attachment::release`], it tells the channel that its connections are
/// gone.
pub(crate) struct Attachment {
    channel: ChannelHandle,
    arrivals: mpsc::Receiver<Arrival>,
    expected: Option<usize>,
    returns: oneshot::Sender<Vec<Link>>,
}

/// What every channel of a mover is made with.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) ports: Ports,
    pub(crate) tls: MoverTls,
    pub(crate) open_limit: Duration,
    pub(crate) stall_limit: Duration,
    pub(crate) shutdown: Shutdown,
}

impl Opener {
    /// Opens an endpoint; gives its handle, and where it listens, if it does.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] for a specification that makes no sense; [`FaultKind::Busy`] if no port is free.
    pub(crate) fn open(
        &self,
        id: ChannelId,
        mut spec: ChannelSpec,
    ) -> Result<(ChannelHandle, Option<SocketAddr>), Fault> {
        check(&spec)?;
        let limit = |asked: u32, most: Duration| {
            u32::try_from(Duration::from_millis(asked.into()).min(most).as_millis()).unwrap_or(u32::MAX).max(1)
        };
        spec.open_limit_ms = limit(spec.open_limit_ms, self.open_limit);
        spec.stall_limit_ms = limit(spec.stall_limit_ms, self.stall_limit);
        let connects = matches!(spec.open, Open::Connect { .. });
        let secure = Arc::new(Secure::new(&spec.security, connects, &self.tls)?);
        let (listener, address) = match &spec.open {
            Open::Connect { .. } | Open::Http { .. } => (None, None),
            Open::Listen { ipv6, .. } => {
                let (listener, address) = self.ports.listen(*ipv6, spec.buffer_bytes).map_err(|error| {
                    let kind = match error.kind() {
                        std::io::ErrorKind::AddrNotAvailable => FaultKind::BadRequest,
                        _ => FaultKind::Busy,
                    };
                    Fault::new(kind, format!("no port for a data channel: {error}"))
                })?;
                (Some(listener), Some(address))
            }
        };
        let (attach, requests) = mpsc::channel(4);
        let (offers, offered) = mpsc::channel(1);
        let spec = Arc::new(spec);
        let handle = ChannelHandle {
            id,
            spec: spec.clone(),
            attach,
            offers,
            taken: Arc::default(),
            close: CancellationToken::new(),
        };
        let channel = Channel {
            id,
            spec,
            secure,
            ports: self.ports.clone(),
            listener,
            offered,
            body: Body::Awaited,
            fresh: Vec::new(),
            idle: Vec::new(),
            lent: 0,
            user: None,
            coming: FuturesUnordered::new(),
            shutdown: self.shutdown.clone(),
        };
        self.shutdown.spawn(channel.run(requests, handle.close.clone()));
        Ok((handle, address))
    }
}

fn check(spec: &ChannelSpec) -> Result<(), Fault> {
    let bad = |message: &str| Err(Fault::new(FaultKind::BadRequest, message));
    if spec.streams == 0 || spec.streams > MAX_STREAMS {
        return bad(&format!("a channel has 1 to {MAX_STREAMS} streams, not {}", spec.streams));
    }
    if spec.framing == Framing::Stream && spec.streams != 1 {
        return bad("stream mode has one connection");
    }
    match &spec.open {
        Open::Http { .. } if spec.framing != Framing::Stream => bad("a body by HTTP is a stream"),
        Open::Connect { to } if to.is_empty() => bad("there is no address to connect to"),
        Open::Connect { to } if to.len() > usize::from(MAX_STREAMS) => {
            bad("there are too many addresses to connect to")
        }
        _ => Ok(()),
    }
}

impl ChannelHandle {
    /// What it is; limits are the smaller of what was asked and what is configured.
    pub(crate) fn spec(&self) -> &ChannelSpec {
        &self.spec
    }

    /// Hands in a request with a body, once.
    ///
    /// # Errors
    ///
    /// The request, if the channel takes no body, or has had one.
    pub(crate) fn offer(&self, offered: Box<Offered>) -> Result<(), Box<Offered>> {
        if !matches!(self.spec.open, Open::Http { .. }) || self.taken.swap(true, Ordering::AcqRel) {
            return Err(offered);
        }
        self.offers.try_send(offered).map_err(|error| match error {
            mpsc::error::TrySendError::Full(offered) | mpsc::error::TrySendError::Closed(offered) => offered,
        })
    }

    /// Closes it, and with it the connections a transfer has of it.
    pub(crate) fn close(&self) {
        self.close.cancel();
    }

    /// Lends it to a transfer; connects first, if this side does.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Busy`] if another transfer has it, [`FaultKind::NotFound`] if it is closed.
    pub(crate) async fn attach(&self) -> Result<Attachment, Fault> {
        let (sender, arrivals) = mpsc::channel(usize::from(MAX_STREAMS) * 2);
        let (returns, returned) = oneshot::channel();
        let (accepted, answer) = oneshot::channel();
        let closed = || Fault::new(FaultKind::NotFound, format!("data channel {} is closed", self.id));
        self.attach.send(Attach { arrivals: sender, returned, accepted }).await.map_err(|_| closed())?;
        let expected = answer.await.map_err(|_| closed())??;
        Ok(Attachment { channel: self.clone(), arrivals, expected, returns })
    }
}

impl Attachment {
    /// What the channel is.
    pub(crate) fn spec(&self) -> &ChannelSpec {
        self.channel.spec()
    }

    /// How many [`Arrival`]s will come: known where this side connects.
    pub(crate) const fn expected(&self) -> Option<usize> {
        self.expected
    }

    /// The next connection. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Cancelled`] if the channel has been closed.
    pub(crate) async fn arrival(&mut self) -> Result<Arrival, Fault> {
        self.arrivals.recv().await.ok_or_else(|| self.closed())
    }

    fn closed(&self) -> Fault {
        Fault::new(FaultKind::Cancelled, format!("data channel {} was closed", self.channel.id))
    }

    /// Gives connections back that can carry another transfer. Others are simply dropped.
    pub(crate) fn release(self, links: Vec<Link>) {
        let _ = self.returns.send(links);
    }
}

/// The state of the owner task.
struct Channel {
    id: ChannelId,
    spec: Arc<ChannelSpec>,
    secure: Arc<Secure>,
    ports: Ports,
    listener: Option<TcpListener>,
    offered: mpsc::Receiver<Box<Offered>>,
    body: Body,
    /// Connections that have carried nothing yet. A peer may send all it has, and close, before a transfer asks for
    /// them, so that its end is data like any other.
    fresh: Vec<Link>,
    /// Connections that an earlier transfer gave back: their end is the end.
    idle: Vec<Link>,
    /// How many connections the transfer has.
    lent: usize,
    user: Option<User>,
    coming: FuturesUnordered<BoxFuture<'static, Result<Link, Fault>>>,
    shutdown: Shutdown,
}

/// Where the body of an HTTP endpoint is.
enum Body {
    /// None has come.
    Awaited,
    /// It waits for a transfer.
    Here(Box<Offered>),
    /// A transfer has it, or had it.
    Gone,
}

struct User {
    arrivals: mpsc::Sender<Arrival>,
    returned: oneshot::Receiver<Vec<Link>>,
}

impl Channel {
    async fn run(mut self, mut requests: mpsc::Receiver<Attach>, close: CancellationToken) {
        let cut = self.shutdown.clone();
        loop {
            let room = self.fresh.len() + self.idle.len() + self.lent + self.coming.len() < usize::from(MAX_STREAMS);
            tokio::select! {
                () = close.cancelled() => break,
                () = cut.cutting() => break,
                request = requests.recv() => match request {
                    Some(request) => self.attach(request),
                    None => break,
                },
                links = returned(&mut self.user) => self.take_back(links),
                Some(link) = self.coming.next() => self.arrived(link),
                Some(offered) = self.offered.recv() => {
                    self.body = Body::Here(offered);
                    self.lend_body();
                }
                accepted = accept(self.listener.as_ref()), if room => self.accepted(accepted),
            }
        }
        self.offered.close();
        let waits = match self.body {
            Body::Here(offered) => Some(offered),
            Body::Awaited | Body::Gone => self.offered.try_recv().ok(),
        };
        if let Some(offered) = waits {
            // Its client is answered all the same.
            offered.give_back();
        }
        debug!(channel = %self.id, idle = self.fresh.len() + self.idle.len(), "data channel closed");
    }

    fn lend_body(&mut self) {
        let Some(user) = &self.user else { return };
        match std::mem::replace(&mut self.body, Body::Gone) {
            // There is room; it fails only if the transfer is gone.
            Body::Here(offered) => {
                if let Err(error) = user.arrivals.try_send(Arrival::Body(offered)) {
                    let (mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) = error;
                    if let Arrival::Body(offered) = back {
                        self.body = Body::Here(offered);
                    }
                }
            }
            Body::Awaited => self.body = Body::Awaited,
            Body::Gone => {
                let fault = Fault::new(FaultKind::PeerLost, "the client's body went to an attempt before this one");
                let _ = user.arrivals.try_send(Arrival::Failed(fault));
            }
        }
    }

    fn take_back(&mut self, links: Vec<Link>) {
        self.user = None;
        self.lent = 0;
        self.idle.extend(links);
    }

    fn attach(&mut self, Attach { arrivals, returned, accepted }: Attach) {
        // A transfer that has just given its connections back may be followed at once: that message may still wait.
        if let Some(user) = &mut self.user {
            match user.returned.try_recv() {
                Ok(links) => self.take_back(links),
                Err(oneshot::error::TryRecvError::Closed) => self.take_back(Vec::new()),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        if self.user.is_some() {
            let fault = Fault::new(FaultKind::Busy, format!("data channel {} serves another transfer", self.id));
            let _ = accepted.send(Err(fault));
            return;
        }
        self.idle.retain(|link| !link.is_stale());
        let mut expected = None;
        if let Open::Connect { to } = &self.spec.open {
            let have = self.fresh.len() + self.idle.len() + self.coming.len();
            let streams = usize::from(self.spec.streams);
            for number in have..streams {
                let address = to[number % to.len()];
                self.coming.push(self.dial(address));
            }
            expected = Some(streams.max(have));
        }
        self.user = Some(User { arrivals, returned });
        let _ = accepted.send(Ok(expected));
        for link in std::mem::take(&mut self.idle).into_iter().chain(std::mem::take(&mut self.fresh)) {
            self.lend(link);
        }
        self.lend_body();
    }

    fn lend(&mut self, link: Link) {
        match &self.user {
            // There is room for twice as many as can be; it fails only if the transfer is gone.
            Some(user) => self.lent += usize::from(user.arrivals.try_send(Arrival::Link(link)).is_ok()),
            None => self.fresh.push(link),
        }
    }

    fn arrived(&mut self, link: Result<Link, Fault>) {
        match link {
            Ok(link) => {
                debug!(channel = %self.id, peer = %link.peer(), security = link.security(), "data connection ready");
                self.lend(link);
            }
            Err(fault) => {
                // Anybody may knock at a listening port whose peer is not fixed: only a fixed one fails the transfer.
                info!(channel = %self.id, fault = fault.message, "data connection failed");
                let expected = !matches!(self.spec.open, Open::Listen { peer: None, .. });
                if let Some(user) = self.user.as_ref().filter(|_| expected) {
                    let _ = user.arrivals.try_send(Arrival::Failed(fault));
                }
            }
        }
    }

    fn accepted(&mut self, accepted: std::io::Result<(TcpStream, SocketAddr)>) {
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => return info!(channel = %self.id, %error, "a data connection could not be accepted"),
        };
        let ip = peer.ip().to_canonical();
        if let Open::Listen { peer: Some(only), .. } = &self.spec.open
            && only.to_canonical() != ip
        {
            info!(channel = %self.id, %peer, expected = %only, "data connection from a stranger closed");
            return;
        }
        let _ = socket.set_nodelay(true);
        let (secure, limit) = (self.secure.clone(), self.open_limit());
        let handshake = async move {
            let late = || Fault::new(FaultKind::PeerUnreachable, format!("TLS with {peer} was not finished in time"));
            tokio::time::timeout(limit, secure.handshake(socket, peer)).await.unwrap_or_else(|_| Err(late()))
        };
        self.coming.push(handshake.boxed());
    }

    fn dial(&self, to: SocketAddr) -> BoxFuture<'static, Result<Link, Fault>> {
        let (ports, secure, buffer, limit) =
            (self.ports.clone(), self.secure.clone(), self.spec.buffer_bytes, self.open_limit());
        let unreachable = move |why: String| Fault::new(FaultKind::PeerUnreachable, format!("connect to {to}: {why}"));
        let dial = async move {
            let socket = ports.connect(to, buffer).await.map_err(|error| unreachable(error.to_string()))?;
            secure.handshake(socket, to).await
        };
        let late = move || unreachable(format!("no answer in {} s", limit.as_secs_f32()));
        async move { tokio::time::timeout(limit, dial).await.unwrap_or_else(|_| Err(late())) }.boxed()
    }

    fn open_limit(&self) -> Duration {
        Duration::from_millis(self.spec.open_limit_ms.into())
    }
}

/// The links that a transfer gives back; none if it was dropped. Never ends while there is no transfer.
async fn returned(user: &mut Option<User>) -> Vec<Link> {
    match user {
        Some(user) => (&mut user.returned).await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => {
            let accepted = listener.accept().await;
            if accepted.is_err() {
                // Such as too many open files: it will not be better at once.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            accepted
        }
        None => std::future::pending().await,
    }
}
