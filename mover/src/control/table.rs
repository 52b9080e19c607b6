//! Who the gateways are, which transfers they started and which channels they opened. Pure.
//!
//! Invariants: a transfer is started once; its end is kept until it is acknowledged; what a gateway is told, it is told on
//! its newest connection only.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use wire::{
    id::{ChannelId, Epoch, GatewayId, TransferId},
    mover::{Event, Fault, FaultKind, Written},
};

/// The most ends that are kept for gateways that do not acknowledge them; then nothing new is started.
const MAX_KEPT: usize = 65_536;

/// The most gateways that are remembered.
const MAX_GATEWAYS: usize = 256;

/// One connection of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SessionId(pub(super) u64);

/// Gateways, transfers and channels. `C` is what stops a transfer, `H` what a channel is held by.
pub(super) struct Table<C, H> {
    gateways: HashMap<GatewayId, Gateway>,
    transfers: BTreeMap<TransferId, Transfer<C>>,
    channels: HashMap<ChannelId, Channel<H>>,
    running: usize,
    next_session: u64,
}

struct Gateway {
    epoch: Epoch,
    session: Option<SessionId>,
    gone: Option<Instant>,
}

struct Transfer<C> {
    gateway: GatewayId,
    state: State<C>,
    /// What was said to be durable: said again after a reconnection, since nobody knows what arrived.
    durable: Vec<Written>,
    /// [`Event::Received`], once it was said.
    received: Option<Event>,
}

enum State<C> {
    Running(C),
    Ended(Event),
}

struct Channel<H> {
    gateway: GatewayId,
    epoch: Epoch,
    handle: H,
    ready: Event,
}

/// What becomes of a request to start.
#[derive(PartialEq, Debug)]
pub(super) enum Start {
    /// It is new.
    New,
    /// It is known: say this again.
    Known(Vec<Event>),
    /// It is not started.
    Refused(Fault),
}

/// What becomes of a request to cancel.
pub(super) enum Cancel<C> {
    /// It runs: stop it by this.
    Running(C),
    /// It has ended, or never was: say this.
    Say(Box<Event>),
}

impl<C: Clone, H> Table<C, H> {
    /// Nobody and nothing.
    pub(super) fn new() -> Self {
        Self {
            gateways: HashMap::new(),
            transfers: BTreeMap::new(),
            channels: HashMap::new(),
            running: 0,
            next_session: 0,
        }
    }

    /// A gateway says hello. Gives its session, the session that this one replaces, and channels of its former life, which
    /// are to be closed.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Stale`] if a later start of it has been seen.
    pub(super) fn hello(
        &mut self,
        gateway: &GatewayId,
        epoch: Epoch,
    ) -> Result<(SessionId, Option<SessionId>, Vec<H>), Fault> {
        let known = self.gateways.get(gateway);
        if let Some(known) = known.filter(|known| known.epoch > epoch) {
            let message =
                format!("gateway {gateway} was here with epoch {}, this is {epoch}: it is not the latest", known.epoch);
            return Err(Fault::new(FaultKind::Stale, message));
        }
        if known.is_none() && self.gateways.len() >= MAX_GATEWAYS {
            return Err(Fault::new(FaultKind::Busy, format!("{MAX_GATEWAYS} gateways are known already")));
        }
        self.next_session += 1;
        let session = SessionId(self.next_session);
        let new = Gateway { epoch, session: Some(session), gone: None };
        let before = self.gateways.insert(gateway.clone(), new).and_then(|before| before.session);
        let stale = self.take_channels(|channel| channel.gateway == *gateway && channel.epoch < epoch);
        Ok((session, before, stale))
    }

    fn take_channels(&mut self, which: impl Fn(&Channel<H>) -> bool) -> Vec<H> {
        self.channels.extract_if(|_, channel| which(channel)).map(|(_, channel)| channel.handle).collect()
    }

    /// A connection ended.
    pub(super) fn gone(&mut self, session: SessionId, now: Instant) {
        if let Some(gateway) = self.gateways.values_mut().find(|gateway| gateway.session == Some(session)) {
            gateway.session = None;
            gateway.gone = Some(now);
        }
    }

    /// The channels of gateways that have been away for longer than `limit`.
    pub(super) fn orphans(&mut self, now: Instant, limit: Duration) -> Vec<H> {
        let gateways = &self.gateways;
        let lost = |gateway: &GatewayId| {
            gateways
                .get(gateway)
                .is_none_or(|known| known.gone.is_some_and(|gone| now.saturating_duration_since(gone) > limit))
        };
        self.channels.extract_if(|_, channel| lost(&channel.gateway)).map(|(_, channel)| channel.handle).collect()
    }

    /// The gateway and epoch of a session; `None` if it has been replaced.
    pub(super) fn gateway_of(&self, session: SessionId) -> Option<(GatewayId, Epoch)> {
        let found = self.gateways.iter().find(|(_, gateway)| gateway.session == Some(session));
        found.map(|(id, gateway)| (id.clone(), gateway.epoch))
    }

    /// Where a gateway is told something.
    pub(super) fn session_of(&self, gateway: &GatewayId) -> Option<SessionId> {
        self.gateways.get(gateway).and_then(|gateway| gateway.session)
    }

    /// Whether a transfer may start, of which at most `limit` run at a time.
    pub(super) fn may_start(&self, transfer: TransferId, gateway: &GatewayId, limit: usize) -> Start {
        match self.transfers.get(&transfer) {
            Some(known) if known.gateway == *gateway => Start::Known(Self::repeat(transfer, known)),
            Some(known) => {
                let message = format!("transfer {transfer} belongs to gateway {}", known.gateway);
                Start::Refused(Fault::new(FaultKind::BadRequest, message))
            }
            None if self.running >= limit => {
                Start::Refused(Fault::new(FaultKind::Busy, format!("{limit} transfers are under way already")))
            }
            None if self.transfers.len() - self.running >= MAX_KEPT => {
                let message = format!("{MAX_KEPT} ends of transfers wait to be acknowledged");
                Start::Refused(Fault::new(FaultKind::Busy, message))
            }
            None => Start::New,
        }
    }

    fn repeat(transfer: TransferId, known: &Transfer<C>) -> Vec<Event> {
        let durable = (!known.durable.is_empty()).then(|| Event::Durable { transfer, written: known.durable.clone() });
        let end = match &known.state {
            State::Ended(event) => Some(event.clone()),
            State::Running(_) => known.received.clone(),
        };
        durable.into_iter().chain(end).collect()
    }

    /// A transfer runs.
    pub(super) fn started(&mut self, transfer: TransferId, gateway: GatewayId, stop: C) {
        let state = State::Running(stop);
        if self.transfers.insert(transfer, Transfer { gateway, state, durable: Vec::new(), received: None }).is_none() {
            self.running += 1;
        }
    }

    /// Something happened to a transfer; says whom to tell.
    pub(super) fn said(&mut self, transfer: TransferId, event: &Event) -> Option<SessionId> {
        let known = self.transfers.get_mut(&transfer)?;
        match event {
            Event::Durable { written, .. } => known.durable.extend(written.iter().cloned()),
            Event::Received { .. } => known.received = Some(event.clone()),
            _ => {}
        }
        let gateway = known.gateway.clone();
        self.session_of(&gateway)
    }

    /// A transfer ended with this event; says whom to tell.
    pub(super) fn ended(&mut self, transfer: TransferId, event: Event) -> Option<SessionId> {
        let known = self.transfers.get_mut(&transfer)?;
        if matches!(known.state, State::Running(_)) {
            self.running -= 1;
        }
        known.state = State::Ended(event);
        let gateway = known.gateway.clone();
        self.session_of(&gateway)
    }

    /// Stops a transfer.
    pub(super) fn cancel(&self, transfer: TransferId, gateway: &GatewayId) -> Cancel<C> {
        match self.transfers.get(&transfer).filter(|known| known.gateway == *gateway) {
            Some(Transfer { state: State::Running(stop), .. }) => Cancel::Running(stop.clone()),
            Some(Transfer { state: State::Ended(event), .. }) => Cancel::Say(Box::new(event.clone())),
            None => {
                let fault = Fault::new(
                    FaultKind::NotFound,
                    format!("transfer {transfer} is not known; the mover was restarted"),
                );
                Cancel::Say(Box::new(Event::Failed { transfer, fault, outcome: Default::default() }))
            }
        }
    }

    /// Forgets a transfer that has ended.
    pub(super) fn acknowledge(&mut self, transfer: TransferId, gateway: &GatewayId) {
        let over = |known: &Transfer<C>| known.gateway == *gateway && matches!(known.state, State::Ended(_));
        if self.transfers.get(&transfer).is_some_and(over) {
            self.transfers.remove(&transfer);
        }
    }

    /// What a gateway that is back has to hear again.
    pub(super) fn retained(&self, gateway: &GatewayId) -> Vec<Event> {
        let own = self.transfers.iter().filter(|(_, known)| known.gateway == *gateway);
        own.flat_map(|(&transfer, known)| Self::repeat(transfer, known)).collect()
    }

    /// Transfers under way.
    pub(super) fn running(&self) -> Vec<TransferId> {
        let running = self.transfers.iter().filter(|(_, known)| matches!(known.state, State::Running(_)));
        running.map(|(&transfer, _)| transfer).collect()
    }

    /// Whether nothing moves, and every connected gateway has acknowledged every end.
    pub(super) fn is_quiet(&self) -> bool {
        let told = |known: &Transfer<C>| self.session_of(&known.gateway).is_none();
        self.running == 0 && self.transfers.values().all(told)
    }

    /// How many transfers run.
    pub(super) const fn running_count(&self) -> usize {
        self.running
    }

    /// What was said when a channel of this gateway was opened, if it is open.
    pub(super) fn opened(&self, channel: ChannelId, gateway: &GatewayId) -> Option<&Event> {
        self.channels.get(&channel).filter(|known| known.gateway == *gateway).map(|known| &known.ready)
    }

    /// A channel is open.
    pub(super) fn open(&mut self, channel: ChannelId, gateway: GatewayId, epoch: Epoch, handle: H, ready: Event) {
        self.channels.insert(channel, Channel { gateway, epoch, handle, ready });
    }

    /// A gateway's channel.
    pub(super) fn channel(&self, channel: ChannelId, gateway: &GatewayId) -> Option<&H> {
        self.channels.get(&channel).filter(|known| known.gateway == *gateway).map(|known| &known.handle)
    }

    /// A channel, whosever it is, and who opened it.
    pub(super) fn opener_of(&self, channel: ChannelId) -> Option<(&GatewayId, Epoch, &H)> {
        self.channels.get(&channel).map(|known| (&known.gateway, known.epoch, &known.handle))
    }

    /// Whether the number is taken, by whomever.
    pub(super) fn is_channel(&self, channel: ChannelId) -> bool {
        self.channels.contains_key(&channel)
    }

    /// Takes a gateway's channel out.
    pub(super) fn close(&mut self, channel: ChannelId, gateway: &GatewayId) -> Option<H> {
        self.channel(channel, gateway)?;
        self.channels.remove(&channel).map(|known| known.handle)
    }

    /// Takes every channel out.
    pub(super) fn close_all(&mut self) -> Vec<H> {
        self.take_channels(|_| true)
    }

    /// How many channels are open.
    pub(super) fn channels(&self) -> usize {
        self.channels.len()
    }
}

#[cfg(test)]
mod tests {
    use wire::mover::Outcome;

    use super::*;

    fn gateway(name: &str) -> GatewayId {
        GatewayId::new(name).expect("a good name")
    }

    fn finished(number: u64) -> Event {
        Event::Finished { transfer: TransferId(number), outcome: Outcome::default() }
    }

    type Plain = Table<u32, u32>;

    #[test]
    fn an_end_is_kept_until_it_is_acknowledged_and_told_on_the_newest_connection() {
        let (mut table, gw) = (Plain::new(), gateway("gw1"));
        let (first, _, _) = table.hello(&gw, Epoch(1)).expect("it is new");
        assert_eq!(table.may_start(TransferId(1), &gw, 9), Start::New);
        table.started(TransferId(1), gw.clone(), 0);
        table.gone(first, Instant::now());
        assert_eq!(table.ended(TransferId(1), finished(1)), None, "nobody is there");
        let (second, replaced, _) = table.hello(&gw, Epoch(1)).expect("it is back");
        assert_eq!((replaced, table.retained(&gw)), (None, vec![finished(1)]));
        assert_eq!(table.may_start(TransferId(1), &gw, 9), Start::Known(vec![finished(1)]));
        let (third, replaced, _) = table.hello(&gw, Epoch(1)).expect("again");
        assert_eq!((replaced, table.session_of(&gw)), (Some(second), Some(third)));
        table.gone(second, Instant::now());
        assert_eq!(table.session_of(&gw), Some(third), "the end of a replaced connection changes nothing");
        table.acknowledge(TransferId(1), &gw);
        assert!(table.retained(&gw).is_empty() && table.is_quiet());
    }

    #[test]
    fn a_stale_gateway_is_refused_and_a_new_start_closes_what_the_old_one_opened() {
        let (mut table, gw) = (Plain::new(), gateway("gw1"));
        table.hello(&gw, Epoch(4)).expect("it is new");
        table.open(ChannelId(1), gw.clone(), Epoch(4), 11, finished(0));
        assert_eq!(table.hello(&gw, Epoch(3)).expect_err("older").kind, FaultKind::Stale);
        let (_, _, closed) = table.hello(&gw, Epoch(5)).expect("newer");
        assert_eq!((closed, table.channels()), (vec![11], 0));
    }

    #[test]
    fn one_gateway_does_not_touch_what_another_started() {
        let (mut table, a, b) = (Plain::new(), gateway("a"), gateway("b"));
        table.hello(&a, Epoch(1)).expect("new");
        table.hello(&b, Epoch(1)).expect("new");
        table.started(TransferId(1), a.clone(), 7);
        table.open(ChannelId(1), a.clone(), Epoch(1), 11, finished(0));
        assert!(matches!(table.may_start(TransferId(1), &b, 9), Start::Refused(_)));
        assert!(matches!(table.cancel(TransferId(1), &b), Cancel::Say(_)));
        assert!(table.close(ChannelId(1), &b).is_none() && table.channel(ChannelId(1), &a).is_some());
        table.acknowledge(TransferId(1), &b);
        assert_eq!(table.running(), [TransferId(1)]);
    }

    #[test]
    fn channels_of_a_gateway_that_stays_away_are_closed() {
        let (mut table, gw, now) = (Plain::new(), gateway("gw"), Instant::now());
        let (session, _, _) = table.hello(&gw, Epoch(1)).expect("new");
        table.open(ChannelId(1), gw, Epoch(1), 11, finished(0));
        table.gone(session, now);
        let limit = Duration::from_secs(60);
        assert!(table.orphans(now + limit, limit).is_empty());
        assert_eq!(table.orphans(now + limit * 2, limit), [11]);
    }

    #[test]
    fn too_many_transfers_are_refused_as_busy() {
        let (mut table, gw) = (Plain::new(), gateway("gw"));
        table.hello(&gw, Epoch(1)).expect("new");
        table.started(TransferId(1), gw.clone(), 0);
        assert!(
            matches!(table.may_start(TransferId(2), &gw, 1), Start::Refused(fault) if fault.kind == FaultKind::Busy)
        );
        table.ended(TransferId(1), finished(1));
        assert_eq!(table.may_start(TransferId(2), &gw, 1), Start::New);
    }
}
