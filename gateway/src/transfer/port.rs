//! One client's data connections, on whatever movers they are.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures::future::try_join_all;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use wire::{
    id::{ChannelId, CosName, MoverId},
    mover::{BodySpec, ChannelSpec, Framing, Open, Security, channel::MAX_STREAMS},
};

use super::{
    Inner,
    plan::{ClientEnd, PortView, SideView},
    wiring::milliseconds,
};
use crate::{
    failure::{Failure, FailureKind},
    movers::{Channel, MoverView},
    redirect::base,
};

/// What a client's data connections are to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// The door, for metrics: `ftp`.
    pub door: &'static str,
    /// How data is laid on the connections.
    pub framing: Framing,
    /// How many connections each mover makes when it connects and sends in MODE E (`OPTS RETR Parallelism`); 1 in
    /// stream mode. Cut to what movers take.
    pub streams: u16,
    /// Clear or TLS.
    pub security: Security,
    /// Only connections from this address are taken: the control connection's. `None` lets anybody in who passes
    /// `security`: third-party transfers, if the site allows them.
    pub peer: Option<IpAddr>,
    /// Who connects to whom.
    pub side: Side,
    /// Socket buffer size to set.
    pub buffer_bytes: Option<u32>,
    /// The class of service that the session would write with: where a passive side that is not delayed should listen.
    pub cos: Option<CosName>,
    /// The most bytes a second of one transfer.
    pub rate_limit: Option<u64>,
}

/// Who connects to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// Movers connect to the client: `PORT`, `EPRT`, `SPOR`.
    Active {
        /// Where the client listens; several for `SPOR`.
        to: Vec<SocketAddr>,
    },
    /// The client connects to movers: `PASV`, `EPSV`, `SPAS`.
    Passive {
        /// The address is told when the file is known ([`super::Step::Passive`]), so that its mover can be chosen.
        delayed: bool,
        /// Several addresses may be told.
        striped: bool,
        /// IPv6 addresses are wanted.
        ipv6: bool,
        /// A later transfer over the same port may be told new addresses. If not, what lies elsewhere is relayed.
        renew: bool,
    },
    /// The client brings one body to a mover's HTTP door, and is told which when the mover is chosen
    /// ([`super::Step::Door`]).
    Http {
        /// The door must have TLS.
        secure: bool,
        /// How the body comes.
        body: BodySpec,
    },
}

/// One client's data connections. In MODE E they are kept over several transfers. Dropping it closes them all; what
/// moves over them fails.
#[derive(Debug)]
pub struct DataPort {
    shared: Arc<PortShared>,
    addresses: Vec<SocketAddr>,
}

/// A port, in the hands of its door and of the transfer that uses it.
#[derive(Debug)]
pub(super) struct PortShared {
    pub(super) spec: PortSpec,
    pub(super) gone: CancellationToken,
    ends: Arc<Mutex<Ends>>,
}

/// The mover's ends of the connections. Whoever has them locked moves data over them.
#[derive(Debug, Default)]
pub(super) struct Ends {
    open: Vec<End>,
    /// The movers whose addresses the client was told, in that order.
    told: Vec<MoverId>,
    /// A transfer has used them.
    used: bool,
}

#[derive(Debug)]
struct End {
    channel: Channel,
    /// The client's address, if the mover connects.
    at: Option<SocketAddr>,
}

/// What a transfer gets when its ends are there.
pub(super) struct Opened {
    /// As they were asked for.
    pub(super) channels: Vec<ChannelId>,
    /// What the client has to be told.
    pub(super) tell: Option<Vec<SocketAddr>>,
    /// The connections of an earlier transfer are used.
    pub(super) reused: bool,
}

impl DataPort {
    /// Where the client connects to, for a passive side that is not delayed.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &PortSpec {
        &self.shared.spec
    }

    pub(super) fn shared(&self) -> Arc<PortShared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for DataPort {
    fn drop(&mut self) {
        self.shared.gone.cancel();
        // If a transfer has them, it sees that the port is gone and closes them.
        if let Ok(mut ends) = self.shared.ends.try_lock() {
            ends.close();
        }
    }
}

/// Makes a port; opens its endpoints if the client is to be told now.
pub(super) async fn open(inner: &Inner, mut spec: PortSpec) -> Result<DataPort, Failure> {
    spec.streams = if spec.framing == Framing::Stream { 1 } else { spec.streams.clamp(1, MAX_STREAMS) };
    if let Side::Active { to } = &spec.side
        && to.len() > usize::from(MAX_STREAMS)
    {
        let advice = format_args!("{} addresses are more than the {MAX_STREAMS} that can be used", to.len());
        return Err(Failure::new(FailureKind::BadArgument, advice));
    }
    let shared = PortShared { spec, gone: CancellationToken::new(), ends: Arc::new(Mutex::new(Ends::default())) };
    let mut addresses = Vec::new();
    if let Side::Passive { delayed: false, striped, .. } = shared.spec.side {
        let movers = listeners(inner, &shared.spec, striped).await?;
        let wanted: Vec<_> = movers.into_iter().map(|mover| (mover, ClientEnd::Comes)).collect();
        let mut ends = shared.lock().await;
        addresses = ends.open(inner, &shared.spec, &wanted).await?.tell.unwrap_or_default();
    }
    Ok(DataPort { shared: Arc::new(shared), addresses })
}

/// Movers that may listen for a client whose file is not known yet: where it would store.
async fn listeners(inner: &Inner, spec: &PortSpec, striped: bool) -> Result<Vec<MoverId>, Failure> {
    let stock = inner.shelf.stock(false).await?;
    let (_, disk) = stock.class(spec.cos.as_ref().unwrap_or(&inner.limits.default_cos))?;
    let snapshot = inner.movers.snapshot();
    let stores = |view: &&MoverView| view.status.volumes.iter().any(|volume| stock.takes(&volume.volume, &disk.pool));
    let at_work = || snapshot.movers.values().filter(|view| view.takes_work());
    let mut movers: Vec<_> = at_work().filter(stores).map(|view| view.mover.clone()).collect();
    if movers.is_empty() {
        movers = at_work().map(|view| view.mover.clone()).collect();
    }
    if movers.is_empty() {
        return Err(no_mover());
    }
    let count = movers.len();
    movers.rotate_left(inner.next_turn() % count);
    movers.sort_by_key(|mover| inner.movers.load(mover));
    movers.truncate(if striped && spec.framing == Framing::ModeE { usize::from(disk.stripe_width.max(1)) } else { 1 });
    Ok(movers)
}

/// Whether a mover with an HTTP door for such a client takes new files of this class.
pub(super) async fn has_door(inner: &Inner, cos: Option<&CosName>, secure: bool) -> Result<bool, Failure> {
    let stock = inner.shelf.stock(false).await?;
    let (_, disk) = stock.class(cos.unwrap_or(&inner.limits.default_cos))?;
    let stores = |view: &MoverView| view.status.volumes.iter().any(|volume| stock.takes(&volume.volume, &disk.pool));
    let snapshot = inner.movers.snapshot();
    Ok(snapshot.movers.values().any(|view| view.takes_work() && door_of(view, secure).is_some() && stores(view)))
}

/// What URLs begin with that lead to a mover's HTTP door.
pub(super) fn door_of(view: &MoverView, secure: bool) -> Option<&String> {
    view.status.http.as_deref().and_then(|door| base(door, secure))
}

pub(super) fn no_mover() -> Failure {
    Failure::new(FailureKind::Unavailable, "no mover is there at the moment: try again later, or ask the operator")
        .retry_after(std::time::Duration::from_secs(30))
}

impl PortShared {
    /// The ends, for one transfer at a time. Cancel-safe.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<Ends> {
        Arc::clone(&self.ends).lock_owned().await
    }
}

impl Ends {
    /// Closes all connections.
    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// They have served a transfer to its end.
    pub(super) fn served(&mut self, spec: &PortSpec) {
        self.used = true;
        if spec.framing == Framing::Stream && matches!(spec.side, Side::Active { .. }) {
            self.open.clear();
        }
    }

    /// The port as a planner sees it.
    ///
    /// # Errors
    ///
    /// If the client relies on an endpoint that is gone.
    pub(super) fn view(&mut self, spec: &PortSpec) -> Result<PortView, Failure> {
        let lost = self.open.iter().any(|end| end.channel.is_lost());
        self.open.retain(|end| !end.channel.is_lost());
        let side = match &spec.side {
            Side::Active { to } => SideView::Active(to.clone()),
            Side::Passive { delayed: true, renew: true, striped, .. } => SideView::Untold { striped: *striped },
            Side::Passive { .. } | Side::Http { .. } if lost => {
                self.close();
                return Err(Failure::new(
                    FailureKind::NoDataConnection,
                    "the mover of your data connection went away: send PASV or EPSV again",
                ));
            }
            Side::Passive { striped, delayed: true, .. } if self.told.is_empty() => {
                SideView::Untold { striped: *striped }
            }
            Side::Http { .. } if self.told.is_empty() => SideView::Untold { striped: false },
            Side::Passive { .. } | Side::Http { .. } => SideView::Told(self.told.clone()),
        };
        Ok(PortView { framing: spec.framing, streams: spec.streams, side })
    }

    /// The endpoints that a plan wants, opened where they are not. Not cancel-safe: the port is closed then.
    pub(super) async fn open(
        &mut self,
        inner: &Inner,
        spec: &PortSpec,
        wanted: &[(MoverId, ClientEnd)],
    ) -> Result<Opened, Failure> {
        let at = |end: &ClientEnd| match end {
            ClientEnd::At(address) => Some(*address),
            ClientEnd::Comes => None,
        };
        let missing: Vec<_> = wanted.iter().filter(|(mover, end)| self.find(mover, at(end)).is_none()).collect();
        let reused = self.used && missing.is_empty();
        let opening = missing.iter().map(|(mover, end)| {
            let to = at(end);
            async move {
                let channel = inner.movers.open_channel(mover, channel_spec(inner, spec, to)).await?;
                Ok::<_, Failure>(End { channel, at: to })
            }
        });
        let fresh = match opening.len() {
            0 => Vec::new(),
            _ => try_join_all(opening).await?,
        };
        self.open.extend(fresh);
        let mut channels = Vec::new();
        for (mover, end) in wanted {
            channels.extend(self.find(mover, at(end)).map(Channel::id));
        }
        let listening: Vec<_> =
            wanted.iter().filter(|(_, end)| *end == ClientEnd::Comes).map(|(mover, _)| mover.clone()).collect();
        let known = !missing.is_empty() || !same(&listening, &self.told);
        let tell = (known && !listening.is_empty()).then(|| {
            let address = |mover: &MoverId| self.find(mover, None).and_then(Channel::address);
            listening.iter().filter_map(address).collect()
        });
        if tell.is_some() {
            self.told = listening;
        }
        Ok(Opened { channels, tell, reused })
    }

    /// A mover at which the client may have connections already.
    pub(super) fn told_first(&self) -> Option<MoverId> {
        self.told.first().filter(|mover| self.find(mover, None).is_some()).cloned()
    }

    fn find(&self, mover: &MoverId, at: Option<SocketAddr>) -> Option<&Channel> {
        self.open.iter().find(|end| end.channel.mover() == mover && end.at == at).map(|end| &end.channel)
    }
}

fn same(some: &[MoverId], others: &[MoverId]) -> bool {
    some.len() == others.len() && some.iter().all(|mover| others.contains(mover))
}

fn channel_spec(inner: &Inner, spec: &PortSpec, to: Option<SocketAddr>) -> ChannelSpec {
    let ipv6 = matches!(spec.side, Side::Passive { ipv6: true, .. });
    ChannelSpec {
        open: match (to, &spec.side) {
            (Some(to), _) => Open::Connect { to: vec![to] },
            (None, Side::Http { body, .. }) => Open::Http { body: body.clone() },
            (None, _) => Open::Listen { peer: spec.peer, ipv6 },
        },
        framing: spec.framing,
        streams: spec.streams,
        security: spec.security.clone(),
        buffer_bytes: spec.buffer_bytes,
        open_limit_ms: milliseconds(inner.limits.data_open),
        stall_limit_ms: milliseconds(inner.limits.data_stall),
    }
}
