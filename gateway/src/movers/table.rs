//! What is under way on one mover: calls, data endpoints, transfers. Decides, and does no I/O.
//!
//! A transfer here goes
//!
//! ```text
//! Running ──lost──► Doubtful ──seen again──► Running
//!    │                 │ ──asked twice, not known──► ended (Failed)
//!    │                 │ ──grace over──► ended (Failed)
//!    └──Finished, Failed──► Ended ──settled──► gone
//!  each ──dropped──► Abandoned: cancelled; gone when it ends, and its files are looked into
//! ```

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};
use wire::{
    id::{ChannelId, MoverId, TransferId},
    mover::{Answer, Event, Fault, FaultKind, MoverStatus, Outcome, Request, VolumeFile, Written},
};

use super::{MoverError, TransferEvent, flying::Care};

/// The number of the gateway's own question how the mover is.
pub(super) const PROBE: u64 = 0;

pub(super) type Reply = oneshot::Sender<Result<Answer, MoverError>>;
pub(super) type Ready = oneshot::Sender<Result<Option<SocketAddr>, MoverError>>;

/// What is under way on one mover.
pub(super) struct Table {
    mover: MoverId,
    last_call: u64,
    calls: HashMap<u64, Reply>,
    channels: HashMap<ChannelId, Endpoint>,
    /// Endpoints that nobody wants any more and that the mover may still have.
    leftover: Vec<ChannelId>,
    transfers: HashMap<TransferId, Entry>,
}

struct Endpoint {
    ready: Option<Ready>,
    lost: Arc<AtomicBool>,
}

struct Entry {
    events: mpsc::UnboundedSender<TransferEvent>,
    care: Care,
    phase: Phase,
    abandoned: bool,
    /// Where the pieces begin that were told to be durable.
    durable: HashSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// The connection broke: how often the mover was asked since and did not know it.
    Doubtful {
        denied: u8,
    },
    Ended,
}

/// What the link does about an event.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Send this.
    Send(Request),
    /// Look into these files: nobody here will confirm them.
    Suspect {
        files: Vec<VolumeFile>,
        /// Whether another gateway may be about to publish them.
        patient: bool,
    },
    /// The mover said how it is.
    Status(MoverStatus),
    /// Ask again in a moment whether doubtful transfers are known.
    AskAgain,
    /// The connection is of no use any more.
    Close(String),
}

impl Table {
    pub(super) fn new(mover: MoverId) -> Self {
        Self {
            mover,
            last_call: PROBE,
            calls: HashMap::new(),
            channels: HashMap::new(),
            leftover: Vec::new(),
            transfers: HashMap::new(),
        }
    }

    /// How many transfers have not ended.
    pub(super) fn running(&self) -> usize {
        self.transfers.values().filter(|entry| entry.phase != Phase::Ended).count()
    }

    /// Takes a question; its number.
    pub(super) fn ask(&mut self, reply: Reply) -> u64 {
        self.last_call += 1;
        self.calls.insert(self.last_call, reply);
        self.last_call
    }

    /// Takes a data endpoint that is about to be opened.
    pub(super) fn open(&mut self, channel: ChannelId, ready: Ready, lost: Arc<AtomicBool>) {
        self.channels.insert(channel, Endpoint { ready: Some(ready), lost });
    }

    /// Forgets a data endpoint; whether there was one to close.
    pub(super) fn close(&mut self, channel: ChannelId) -> bool {
        self.channels.remove(&channel).is_some()
    }

    /// As [`Table::close`], while the mover is away: it keeps endpoints of a gateway that comes back.
    pub(super) fn close_later(&mut self, channel: ChannelId) {
        if self.channels.remove(&channel).is_some() {
            self.leftover.push(channel);
        }
    }

    /// What to say first on a new connection.
    pub(super) fn connected(&mut self) -> Vec<Effect> {
        let close = |channel| Effect::Send(Request::CloseChannel { channel });
        std::mem::take(&mut self.leftover).into_iter().map(close).collect()
    }

    /// Takes a transfer that is about to be started.
    pub(super) fn start(&mut self, transfer: TransferId, events: mpsc::UnboundedSender<TransferEvent>, care: Care) {
        let entry = Entry { events, care, phase: Phase::Running, abandoned: false, durable: HashSet::new() };
        self.transfers.insert(transfer, entry);
    }

    /// Its outcome has been dealt with.
    pub(super) fn settle(&mut self, transfer: TransferId) -> Vec<Effect> {
        match self.transfers.remove(&transfer) {
            Some(_) => vec![Effect::Send(Request::Acknowledge { transfer })],
            None => Vec::new(),
        }
    }

    /// Nobody waits for its outcome any more.
    pub(super) fn abandon(&mut self, transfer: TransferId) -> Vec<Effect> {
        let Some(entry) = self.transfers.get_mut(&transfer) else { return Vec::new() };
        entry.abandoned = true;
        if entry.phase == Phase::Ended {
            return self.bury(transfer);
        }
        vec![Effect::Send(Request::Cancel { transfer })]
    }

    /// Forgets an abandoned transfer that has ended.
    fn bury(&mut self, transfer: TransferId) -> Vec<Effect> {
        let Some(entry) = self.transfers.remove(&transfer) else { return Vec::new() };
        let mut effects = vec![Effect::Send(Request::Acknowledge { transfer })];
        let files = entry.care.land();
        if !files.is_empty() {
            effects.push(Effect::Suspect { files, patient: false });
        }
        effects
    }

    /// What an event means.
    pub(super) fn apply(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Welcome { .. } | Event::Refused { .. } => {
                vec![Effect::Close("the mover began the conversation a second time".to_owned())]
            }
            Event::Reply { call: PROBE, answer } => match *answer {
                Ok(Answer::Status(status)) => self.probed(status),
                _ => Vec::new(),
            },
            Event::Reply { call, answer } => {
                if let Some(reply) = self.calls.remove(&call) {
                    let _ = reply.send(answer.map_err(|fault| self.refused(fault)));
                }
                Vec::new()
            }
            Event::ChannelReady { channel, address } => {
                if let Some(ready) = self.channels.get_mut(&channel).and_then(|endpoint| endpoint.ready.take()) {
                    let _ = ready.send(Ok(address));
                }
                Vec::new()
            }
            Event::ChannelClosed { channel, fault } => {
                if let Some(endpoint) = self.channels.remove(&channel) {
                    endpoint.lost.store(true, Ordering::Release);
                    if let Some(ready) = endpoint.ready {
                        let fault = fault.unwrap_or_else(|| Fault::new(FaultKind::Cancelled, "it was closed"));
                        let _ = ready.send(Err(self.refused(fault)));
                    }
                }
                Vec::new()
            }
            Event::Progress { transfer, bytes, ranges } => {
                self.tell(transfer, TransferEvent::Progress { bytes, ranges })
            }
            Event::Durable { transfer, written } => self.durable(transfer, written),
            Event::Received { transfer, bytes } => self.tell(transfer, TransferEvent::Received { bytes }),
            Event::Finished { transfer, outcome } => self.ended(transfer, None, outcome),
            Event::Failed { transfer, fault, outcome } => self.ended(transfer, Some(fault), outcome),
            Event::Unconfirmed { files } => vec![Effect::Suspect { files, patient: true }],
            Event::Status(status) => vec![Effect::Status(status)],
        }
    }

    fn refused(&self, fault: Fault) -> MoverError {
        MoverError::Refused { mover: self.mover.clone(), fault }
    }

    /// A mover repeats after a reconnection what is durable; each piece is told once all the same.
    fn durable(&mut self, transfer: TransferId, mut written: Vec<Written>) -> Vec<Effect> {
        if let Some(entry) = self.transfers.get_mut(&transfer) {
            written.retain(|written| entry.durable.insert(written.range.offset()));
            if written.is_empty() {
                return Vec::new();
            }
        }
        self.tell(transfer, TransferEvent::Durable(written))
    }

    fn tell(&mut self, transfer: TransferId, event: TransferEvent) -> Vec<Effect> {
        match self.transfers.get_mut(&transfer) {
            Some(entry) => {
                if matches!(entry.phase, Phase::Doubtful { .. }) {
                    entry.phase = Phase::Running;
                }
                let _ = entry.events.send(event);
                Vec::new()
            }
            // Begun by an earlier run of this gateway, whose client is gone.
            None => vec![Effect::Send(Request::Cancel { transfer })],
        }
    }

    fn ended(&mut self, transfer: TransferId, fault: Option<Fault>, outcome: Outcome) -> Vec<Effect> {
        let error = fault.map(|fault| self.refused(fault));
        let Some(entry) = self.transfers.get_mut(&transfer) else {
            let files: Vec<_> = outcome.written.iter().filter_map(|written| disk_file(&written.extent)).collect();
            let mut effects = vec![Effect::Send(Request::Acknowledge { transfer })];
            if !files.is_empty() {
                effects.push(Effect::Suspect { files, patient: false });
            }
            return effects;
        };
        if entry.phase == Phase::Ended {
            return Vec::new();
        }
        entry.phase = Phase::Ended;
        let abandoned = entry.abandoned;
        let _ = entry.events.send(match error {
            None => TransferEvent::Finished(outcome),
            Some(error) => TransferEvent::Failed { error, outcome },
        });
        if abandoned { self.bury(transfer) } else { Vec::new() }
    }

    /// The connection broke: what waits for an answer gets none, endpoints are gone, transfers may still move.
    pub(super) fn disconnected(&mut self, why: &str) {
        let away = || MoverError::away(&self.mover, why);
        for (_, reply) in self.calls.drain() {
            let _ = reply.send(Err(away()));
        }
        for endpoint in self.channels.values_mut() {
            endpoint.lost.store(true, Ordering::Release);
            if let Some(ready) = endpoint.ready.take() {
                let _ = ready.send(Err(away()));
            }
        }
        for entry in self.transfers.values_mut().filter(|entry| entry.phase == Phase::Running) {
            entry.phase = Phase::Doubtful { denied: 0 };
        }
    }

    /// Whether a transfer's fate is not known.
    pub(super) fn doubts(&self) -> bool {
        self.transfers.values().any(|entry| matches!(entry.phase, Phase::Doubtful { .. }))
    }

    /// The mover has said which transfers move, after it repeated all ends that were not acknowledged.
    ///
    /// One that is in neither is gone, if that is so when it is asked again: it may have ended while the answer was
    /// being made.
    fn probed(&mut self, status: MoverStatus) -> Vec<Effect> {
        let moving: HashSet<_> = status.transfers.iter().copied().collect();
        let mut effects = Vec::new();
        let mut gone = Vec::new();
        let mut ask_again = false;
        for (&transfer, entry) in &mut self.transfers {
            let Phase::Doubtful { denied } = entry.phase else { continue };
            if moving.contains(&transfer) {
                entry.phase = Phase::Running;
                if entry.abandoned {
                    effects.push(Effect::Send(Request::Cancel { transfer }));
                }
            } else if denied == 0 {
                entry.phase = Phase::Doubtful { denied: 1 };
                ask_again = true;
            } else {
                gone.push(transfer);
            }
        }
        for transfer in gone {
            effects.extend(self.give_up(transfer, "it came back and did not know the transfer any more"));
        }
        if ask_again {
            effects.push(Effect::AskAgain);
        }
        effects.push(Effect::Status(status));
        effects
    }

    /// The mover has been away for too long.
    pub(super) fn grace_over(&mut self, why: &str) -> Vec<Effect> {
        let doubtful = |entry: &Entry| matches!(entry.phase, Phase::Doubtful { .. });
        let lost: Vec<_> = self.transfers.iter().filter(|(_, entry)| doubtful(entry)).map(|(&id, _)| id).collect();
        lost.into_iter().flat_map(|transfer| self.give_up(transfer, why)).collect()
    }

    fn give_up(&mut self, transfer: TransferId, why: &str) -> Vec<Effect> {
        let error = MoverError::away(&self.mover, why);
        let Some(entry) = self.transfers.get_mut(&transfer) else { return Vec::new() };
        entry.phase = Phase::Ended;
        let abandoned = entry.abandoned;
        let _ = entry.events.send(TransferEvent::Failed { error, outcome: Outcome::default() });
        if abandoned { self.bury(transfer) } else { Vec::new() }
    }
}

/// The disk file in which an extent lies.
pub(super) fn disk_file(extent: &wire::extent::Extent) -> Option<VolumeFile> {
    match extent.place {
        wire::extent::Place::Disk { file, .. } => Some(VolumeFile { volume: extent.volume.clone(), file }),
        wire::extent::Place::Tape { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use wire::id::{FileId, VolumeLabel};

    use super::{super::flying::Flying, *};

    const ONE: TransferId = TransferId(1);

    fn file() -> VolumeFile {
        VolumeFile { volume: VolumeLabel::new("m1.d0").expect("a good label"), file: FileId(9) }
    }

    fn started() -> (Table, mpsc::UnboundedReceiver<TransferEvent>, Flying) {
        let (flying, mut table) = (Flying::default(), Table::new(MoverId::new("m1").expect("a good name")));
        let (events, receiver) = mpsc::unbounded_channel();
        table.start(ONE, events, flying.take(vec![file()]));
        (table, receiver, flying)
    }

    fn probe(transfers: Vec<TransferId>) -> Event {
        let status = MoverStatus { transfers, ..MoverStatus::default() };
        Event::Reply { call: PROBE, answer: Box::new(Ok(Answer::Status(status))) }
    }

    fn finished() -> Event {
        Event::Finished { transfer: ONE, outcome: Outcome::default() }
    }

    #[test]
    fn an_end_that_is_delivered_after_a_reconnection_is_the_transfers_end() {
        let (mut table, mut events, _flying) = started();
        table.disconnected("reset");
        assert!(table.doubts());
        assert_eq!(table.apply(finished()), []);
        assert_eq!(table.apply(finished()), [], "a repeated end changes nothing");
        assert_eq!(events.try_recv(), Ok(TransferEvent::Finished(Outcome::default())));
        assert!(events.try_recv().is_err());
        assert_eq!(table.settle(ONE), [Effect::Send(Request::Acknowledge { transfer: ONE })]);
    }

    #[test]
    fn a_transfer_that_still_moves_after_a_reconnection_goes_on() {
        let (mut table, mut events, _flying) = started();
        table.disconnected("reset");
        table.apply(probe(vec![ONE]));
        assert!(!table.doubts() && events.try_recv().is_err());
        assert!(table.grace_over("gone").is_empty());
    }

    #[test]
    fn a_transfer_the_mover_denies_twice_has_failed() {
        let (mut table, mut events, _flying) = started();
        table.disconnected("killed");
        assert!(table.apply(probe(vec![])).contains(&Effect::AskAgain));
        assert!(events.try_recv().is_err());
        table.apply(probe(vec![]));
        assert!(matches!(events.try_recv(), Ok(TransferEvent::Failed { error: MoverError::Away { .. }, .. })));
    }

    #[test]
    fn a_transfer_whose_mover_stays_away_fails_when_the_grace_is_over() {
        let (mut table, mut events, flying) = started();
        table.disconnected("killed");
        assert_eq!(table.grace_over("away for 30 s"), []);
        assert!(matches!(events.try_recv(), Ok(TransferEvent::Failed { .. })));
        assert!(flying.landed(vec![file()]).is_empty(), "its files stay in flight until somebody deals with it");
        table.settle(ONE);
        assert_eq!(flying.landed(vec![file()]), [file()]);
    }

    #[test]
    fn an_abandoned_transfer_is_cancelled_and_its_files_are_looked_into_at_its_end() {
        let (mut table, _events, flying) = started();
        assert_eq!(table.abandon(ONE), [Effect::Send(Request::Cancel { transfer: ONE })]);
        let outcome = Outcome::default();
        let fault = Fault::new(FaultKind::Cancelled, "asked");
        let effects = table.apply(Event::Failed { transfer: ONE, fault, outcome });
        let suspect = Effect::Suspect { files: vec![file()], patient: false };
        assert_eq!(effects, [Effect::Send(Request::Acknowledge { transfer: ONE }), suspect]);
        assert_eq!(flying.landed(vec![file()]), [file()]);
        assert_eq!(table.running(), 0);
    }

    #[test]
    fn a_transfer_of_an_earlier_run_is_stopped_and_forgotten() {
        let mut table = Table::new(MoverId::new("m1").expect("a good name"));
        let progress = Event::Progress { transfer: ONE, bytes: 1, ranges: Vec::new() };
        assert_eq!(table.apply(progress), [Effect::Send(Request::Cancel { transfer: ONE })]);
        assert_eq!(table.apply(finished()), [Effect::Send(Request::Acknowledge { transfer: ONE })]);
    }

    #[test]
    fn a_piece_that_is_repeated_after_a_reconnection_is_told_once() {
        let (mut table, mut events, _flying) = started();
        let written = |offset| Written {
            range: wire::extent::ByteRange::new(offset, 5).expect("small"),
            extent: wire::extent::Extent {
                volume: file().volume,
                place: wire::extent::Place::Disk { file: FileId(9), offset_bytes: 0 },
                length_bytes: 5,
            },
            sums: wire::checksum::Sums::EMPTY,
        };
        table.apply(Event::Durable { transfer: ONE, written: vec![written(0)] });
        table.disconnected("reset");
        table.apply(Event::Durable { transfer: ONE, written: vec![written(0), written(5)] });
        table.apply(Event::Durable { transfer: ONE, written: vec![written(0)] });
        assert_eq!(events.try_recv(), Ok(TransferEvent::Durable(vec![written(0)])));
        assert_eq!(events.try_recv(), Ok(TransferEvent::Durable(vec![written(5)])));
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn calls_and_endpoints_do_not_outlive_the_connection() {
        let mut table = Table::new(MoverId::new("m1").expect("a good name"));
        let (reply, mut answer) = oneshot::channel();
        table.ask(reply);
        let lost = Arc::new(AtomicBool::new(false));
        let (ready, mut opened) = oneshot::channel();
        table.open(ChannelId(1), ready, Arc::clone(&lost));
        table.disconnected("reset");
        assert!(matches!(answer.try_recv(), Ok(Err(MoverError::Away { .. }))));
        assert!(matches!(opened.try_recv(), Ok(Err(MoverError::Away { .. }))));
        assert!(lost.load(Ordering::Acquire));
        table.close_later(ChannelId(1));
        let close = Effect::Send(Request::CloseChannel { channel: ChannelId(1) });
        assert_eq!(table.connected(), [close], "the mover kept it for a gateway that comes back");
        assert_eq!(table.connected(), []);
    }
}
