//! The task that owns the tables of gateways, transfers and channels.
//!
//! Owns [`Table`] and the way to each connected gateway. Talks to sessions, jobs and channels by their handles. Never waits
//! for a gateway, a disk or a drive: what may take long runs in tasks of its own and says when it is done.
//!
//! Invariant: a message to a gateway that is not there, or does not read, is either told again after its next hello or not
//! needed then.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span, warn};
use wire::{
    id::{ChannelId, Epoch, FileId, GatewayId, TransferId, VolumeLabel},
    mover::{
        Answer, Call, Event, Fault, FaultKind, HttpAnswer, Job, MoverStatus, Outcome, PROTOCOL_VERSION, Request,
        VolumeFile,
    },
};

use super::{
    calls,
    session::Listener,
    table::{Cancel, SessionId, Start, Table},
};
use crate::{
    config::MoverConfig,
    data::{ChannelHandle, Offered, Opener},
    disk::Owner,
    job::{self, Ending, Env, Reporter, Said, Task, plan::Plan},
    metrics,
};

/// Messages that may wait for the hub.
const QUEUE: usize = 1024;

/// The most files of one [`Event::Unconfirmed`].
const UNCONFIRMED_PAGE: usize = 10_000;

/// How long a change of the status waits for others to go with it.
const STATUS_PAUSE: Duration = Duration::from_millis(50);

/// How long a mover that stops waits for the last ends to be acknowledged.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The hub, seen from outside. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HubHandle {
    messages: mpsc::Sender<Message>,
}

enum Message {
    Hello { gateway: GatewayId, epoch: Epoch, listener: Listener, reply: oneshot::Sender<Result<SessionId, Fault>> },
    Request { session: SessionId, request: Request },
    Gone { session: SessionId },
    Tell { session: SessionId, event: Event },
    Ended { transfer: TransferId, ending: Ending },
    Offer { channel: ChannelId, offered: Box<Offered>, reply: oneshot::Sender<Taken> },
}

/// Where the answer to a body comes from; or the request back, and why it is not taken.
pub(crate) type Taken = Result<oneshot::Receiver<HttpAnswer>, (Box<Offered>, &'static str)>;

/// An HTTP client that waits for its answer.
struct Waiting {
    gateway: GatewayId,
    epoch: Epoch,
    answer: oneshot::Sender<HttpAnswer>,
}

impl HubHandle {
    /// A gateway has connected.
    pub(super) async fn hello(&self, gateway: GatewayId, epoch: Epoch, listener: Listener) -> Result<SessionId, Fault> {
        let stopping = || Fault::new(FaultKind::ShuttingDown, "the mover is shutting down");
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Hello { gateway, epoch, listener, reply }).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }

    /// A gateway asks for something. Says whether the hub is still there.
    pub(super) async fn request(&self, session: SessionId, request: Request) -> bool {
        self.messages.send(Message::Request { session, request }).await.is_ok()
    }

    /// A request with a body came for a channel.
    pub(crate) async fn offer(&self, channel: ChannelId, offered: Box<Offered>) -> Taken {
        const STOPPING: &str = "the mover is shutting down: ask the gateway again";
        let (reply, taken) = oneshot::channel();
        match self.messages.send(Message::Offer { channel, offered, reply }).await {
            Ok(()) => match taken.await {
                Ok(taken) => taken,
                // The request went with the hub, and its connection with it.
                Err(_) => Ok(oneshot::channel().1),
            },
            Err(mpsc::error::SendError(Message::Offer { offered, .. })) => Err((offered, STOPPING)),
            Err(_) => unreachable!("what comes back is what was sent"),
        }
    }

    /// A connection ended.
    pub(super) async fn gone(&self, session: SessionId) {
        let _ = self.messages.send(Message::Gone { session }).await;
    }
}

/// The owner.
pub(crate) struct Hub {
    config: MoverConfig,
    env: Env,
    opener: Opener,
    table: Table<CancellationToken, ChannelHandle>,
    listeners: HashMap<SessionId, Listener>,
    /// HTTP clients whose body came over a channel, which may be closed by now.
    waiting: HashMap<ChannelId, Waiting>,
    // Weak, so that the hub does not keep itself: it ends when it is told to, and tasks hold their own.
    handle: mpsc::WeakSender<Message>,
    said: mpsc::Sender<Said>,
    changed: Arc<Notify>,
    draining: bool,
}

/// Ends at a time, or never.
async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Hub {
    /// Starts the hub.
    pub(crate) fn start(config: MoverConfig, env: Env, opener: Opener, changed: Arc<Notify>) -> HubHandle {
        let (messages, inbox) = mpsc::channel(QUEUE);
        let (said, heard) = mpsc::channel(QUEUE);
        let shutdown = env.shutdown.clone();
        let hub = Self {
            config,
            env,
            opener,
            table: Table::new(),
            listeners: HashMap::new(),
            waiting: HashMap::new(),
            handle: messages.downgrade(),
            said,
            changed,
            draining: false,
        };
        shutdown.spawn(hub.run(inbox, heard));
        HubHandle { messages }
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Message>, mut heard: mpsc::Receiver<Said>) {
        // The hub must not end because nobody holds a handle: it ends with the mover.
        let _self = self.handle.upgrade();
        let mut tick =
            tokio::time::interval(self.config.control.status_every.duration().max(Duration::from_millis(10)));
        let shutdown = self.env.shutdown.clone();
        let changed = self.changed.clone();
        let (mut quiet_until, mut status_due) = (None::<tokio::time::Instant>, None::<tokio::time::Instant>);
        loop {
            if self.draining
                && ((self.table.is_quiet() && self.waiting.is_empty())
                    || quiet_until.is_some_and(|until| until <= tokio::time::Instant::now()))
            {
                break;
            }
            if self.draining && self.table.running_count() == 0 {
                quiet_until.get_or_insert_with(|| tokio::time::Instant::now() + LAST_WORDS);
            }
            tokio::select! {
                biased;
                () = shutdown.cutting() => break,
                // What a job said comes before its end.
                Some((transfer, event)) = heard.recv() => self.heard(transfer, event),
                Some(message) = inbox.recv() => {
                    while let Ok((transfer, event)) = heard.try_recv() {
                        self.heard(transfer, event);
                    }
                    self.message(message);
                }
                () = shutdown.stopping(), if !self.draining => {
                    info!(transfers = self.table.running_count(), "mover is stopping: finishing what moves");
                    self.draining = true;
                    self.tell_status();
                }
                () = changed.notified(), if status_due.is_none() => {
                    status_due = Some(tokio::time::Instant::now() + STATUS_PAUSE);
                }
                () = at(status_due) => {
                    status_due = None;
                    self.tell_status();
                }
                () = at(quiet_until) => {}
                _ = tick.tick() => self.tick(),
            }
        }
        for channel in self.table.close_all() {
            channel.close();
        }
        // Dropping the listeners ends the sessions once they have written what waits.
        info!("mover has stopped");
    }

    fn tick(&mut self) {
        for channel in self.table.orphans(Instant::now(), self.config.control.orphan_limit.duration()) {
            channel.close();
        }
        // Clients that have gone.
        self.waiting.retain(|_, waiting| !waiting.answer.is_closed());
        metrics::load(&self.env.mover, self.table.running_count(), self.table.channels());
        self.env.turns.pool().report();
        let status = self.status();
        metrics::devices(&self.env.mover, &status);
        self.tell_all(&Event::Status(status));
    }

    fn status(&self) -> MoverStatus {
        let totals = &self.env.totals;
        MoverStatus {
            volumes: self.env.volumes.status(),
            drives: self.env.drives.status(),
            libraries: self.env.drives.libraries(),
            transfers: self.table.running(),
            received_bytes: totals.received.load(Ordering::Relaxed),
            sent_bytes: totals.sent.load(Ordering::Relaxed),
            relayed_bytes: totals.relayed.load(Ordering::Relaxed),
            draining: self.draining,
            http: self.env.http.clone(),
        }
    }

    fn tell_status(&mut self) {
        let status = self.status();
        self.tell_all(&Event::Status(status));
    }

    fn tell_all(&mut self, event: &Event) {
        let sessions: Vec<_> = self.listeners.keys().copied().collect();
        for session in sessions {
            self.tell(Some(session), event.clone());
        }
    }

    /// Tells a connection something; one that does not read is closed.
    fn tell(&mut self, session: Option<SessionId>, event: Event) {
        let Some(session) = session else { return };
        let Some(listener) = self.listeners.get(&session) else { return };
        if let Err(mpsc::error::TrySendError::Full(_)) = listener.events.try_send(event) {
            warn!(?session, "a gateway does not read what it is told; disconnected");
            self.forget(session);
        }
    }

    fn forget(&mut self, session: SessionId) {
        self.table.gone(session, Instant::now());
        if let Some(listener) = self.listeners.remove(&session) {
            listener.close.cancel();
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Hello { gateway, epoch, listener, reply } => {
                let result = self.hello(&gateway, epoch, listener);
                let _ = reply.send(result);
            }
            Message::Request { session, request } => {
                // A connection that was replaced has no say any more.
                if let Some((gateway, epoch)) = self.table.gateway_of(session) {
                    self.request(session, gateway, epoch, request);
                }
            }
            Message::Gone { session } => self.forget(session),
            Message::Tell { session, event } => self.tell(Some(session), event),
            Message::Ended { transfer, ending } => self.ended(transfer, ending),
            Message::Offer { channel, offered, reply } => {
                let _ = reply.send(self.offer(channel, offered));
            }
        }
    }

    fn hello(&mut self, gateway: &GatewayId, epoch: Epoch, listener: Listener) -> Result<SessionId, Fault> {
        let (session, replaced, stale) = self.table.hello(gateway, epoch)?;
        if let Some(listener) = replaced.and_then(|replaced| self.listeners.remove(&replaced)) {
            info!(%gateway, "its new connection replaces the one before");
            listener.close.cancel();
        }
        for channel in stale {
            channel.close();
        }
        // What its former life was about to answer, it does not know any more.
        self.waiting.retain(|_, waiting| waiting.gateway != *gateway || waiting.epoch >= epoch);
        self.listeners.insert(session, listener);
        let welcome =
            Event::Welcome { version: PROTOCOL_VERSION, mover: self.env.mover.clone(), status: self.status() };
        self.tell(Some(session), welcome);
        for event in self.table.retained(gateway) {
            self.tell(Some(session), event);
        }
        self.tell_unconfirmed(session, gateway.clone());
        Ok(session)
    }

    fn tell_unconfirmed(&self, session: SessionId, gateway: GatewayId) {
        let Some(hub) = self.handle.upgrade() else { return };
        let env = self.env.clone();
        self.env.shutdown.spawn(async move {
            let inner = env.clone();
            let listing = env.shutdown.spawn_blocking(move || {
                let of = |volume: &Arc<crate::disk::Volume>| {
                    let label = volume.label().clone();
                    let named = move |file| VolumeFile { volume: label.clone(), file };
                    volume.unconfirmed(&gateway).into_iter().map(named).collect::<Vec<_>>()
                };
                inner.volumes.usable().flat_map(of).collect::<Vec<_>>()
            });
            let files = listing.await.unwrap_or_default();
            for page in files.chunks(UNCONFIRMED_PAGE) {
                let event = Event::Unconfirmed { files: page.to_vec() };
                if hub.send(Message::Tell { session, event }).await.is_err() {
                    return;
                }
            }
        });
    }

    fn offer(&mut self, channel: ChannelId, offered: Box<Offered>) -> Taken {
        const GONE: &str = "the grant was used, or its time is over: ask the gateway again";
        let Some((gateway, epoch, handle)) = self.table.opener_of(channel) else { return Err((offered, GONE)) };
        handle.offer(offered).map_err(|offered| (offered, GONE))?;
        let (answer, waits) = oneshot::channel();
        self.waiting.insert(channel, Waiting { gateway: gateway.clone(), epoch, answer });
        Ok(waits)
    }

    fn answer(&mut self, gateway: &GatewayId, channel: ChannelId, answer: HttpAnswer) {
        if self.waiting.get(&channel).is_some_and(|waiting| waiting.gateway == *gateway)
            && let Some(waiting) = self.waiting.remove(&channel)
        {
            // If the client is gone, it has what it has.
            let _ = waiting.answer.send(answer);
        }
    }

    fn request(&mut self, session: SessionId, gateway: GatewayId, epoch: Epoch, request: Request) {
        match request {
            Request::Hello { .. } => {
                let fault = Fault::new(FaultKind::BadRequest, "a second hello on one connection");
                self.tell(Some(session), Event::Refused { fault });
                self.forget(session);
            }
            Request::Call { call, what: Call::Status } => {
                let answer = Box::new(Ok(Answer::Status(self.status())));
                self.tell(Some(session), Event::Reply { call, answer });
            }
            Request::Call { call, what } => self.call(session, call, what),
            Request::OpenChannel { channel, spec } => {
                let event = self.open_channel(gateway, epoch, channel, spec);
                self.tell(Some(session), event);
            }
            Request::CloseChannel { channel } => {
                if let Some(handle) = self.table.close(channel, &gateway) {
                    handle.close();
                }
                self.tell(Some(session), Event::ChannelClosed { channel, fault: None });
            }
            Request::Start { transfer, job } => self.start_transfer(session, gateway, epoch, transfer, *job),
            Request::Cancel { transfer } => match self.table.cancel(transfer, &gateway) {
                Cancel::Running(stop) => stop.cancel(),
                Cancel::Say(event) => self.tell(Some(session), *event),
            },
            Request::Acknowledge { transfer } => self.table.acknowledge(transfer, &gateway),
            Request::Confirm { files } => self.confirm(files),
            Request::Answer { channel, answer } => self.answer(&gateway, channel, answer),
        }
    }

    fn call(&self, session: SessionId, call: u64, what: Call) {
        let Some(hub) = self.handle.upgrade() else { return };
        let env = self.env.clone();
        self.env.shutdown.spawn_until_cut(async move {
            let answer = Box::new(calls::answer(&env, what).await);
            let _ = hub.send(Message::Tell { session, event: Event::Reply { call, answer } }).await;
        });
    }

    fn open_channel(
        &mut self,
        gateway: GatewayId,
        epoch: Epoch,
        channel: ChannelId,
        spec: wire::mover::ChannelSpec,
    ) -> Event {
        let refused = |kind, message: String| {
            let fault = Some(Fault::new(kind, message));
            Event::ChannelClosed { channel, fault }
        };
        if let Some(ready) = self.table.opened(channel, &gateway) {
            return ready.clone();
        }
        if self.table.is_channel(channel) {
            return refused(FaultKind::BadRequest, format!("data channel {channel} is another gateway's"));
        }
        if self.draining {
            return refused(FaultKind::ShuttingDown, "the mover is shutting down".to_owned());
        }
        let most = self.config.limits.channels;
        if self.table.channels() >= most {
            return refused(FaultKind::Busy, format!("{most} data channels are open already"));
        }
        match self.opener.open(channel, spec) {
            Err(fault) => Event::ChannelClosed { channel, fault: Some(fault) },
            Ok((handle, address)) => {
                let ready = Event::ChannelReady { channel, address };
                self.table.open(channel, gateway, epoch, handle, ready.clone());
                ready
            }
        }
    }

    fn start_transfer(&mut self, session: SessionId, gateway: GatewayId, epoch: Epoch, transfer: TransferId, job: Job) {
        match self.table.may_start(transfer, &gateway, self.config.limits.transfers) {
            Start::Known(events) => {
                for event in events {
                    self.tell(Some(session), event);
                }
            }
            // Not kept: a gateway that does not hear it finds the transfer nowhere, and may start it again.
            Start::Refused(fault) => {
                self.tell(Some(session), Event::Failed { transfer, fault, outcome: Outcome::default() })
            }
            Start::New => {
                let stop = CancellationToken::new();
                let task = self.task(&gateway, epoch, transfer, job, stop.clone());
                self.table.started(transfer, gateway, stop);
                match task {
                    Ok(task) => self.run_transfer(transfer, task),
                    Err(fault) => self.ended(transfer, Ending::Failed(fault, Outcome::default())),
                }
            }
        }
    }

    fn task(
        &self,
        gateway: &GatewayId,
        epoch: Epoch,
        transfer: TransferId,
        job: Job,
        cancel: CancellationToken,
    ) -> Result<Task, Fault> {
        if self.draining {
            return Err(Fault::new(FaultKind::ShuttingDown, "the mover is shutting down"));
        }
        let rate_limit = job.rate_limit;
        let plan = Plan::of(job)?;
        let find = |channel: Option<ChannelId>| match channel {
            None => Ok(None),
            Some(channel) => match self.table.channel(channel, gateway) {
                Some(handle) => Ok(Some(handle.clone())),
                None => Err(Fault::new(FaultKind::NotFound, format!("data channel {channel} is not open"))),
            },
        };
        let (from, to) = plan.channels();
        Ok(Task {
            rate_limit,
            owner: Owner { gateway: gateway.clone(), epoch },
            from: find(from)?,
            to: find(to)?,
            reporter: Reporter { transfer, said: self.said.clone() },
            cancel,
            plan,
        })
    }

    fn run_transfer(&self, transfer: TransferId, task: Task) {
        let Some(hub) = self.handle.upgrade() else { return };
        let (env, kind) = (self.env.clone(), task.plan.kind());
        let span = info_span!("transfer.run", %transfer, kind);
        let work = async move {
            let (mover, started) = (env.mover.clone(), Instant::now());
            let ending = job::run(env, task).await;
            let outcome = match &ending {
                Ending::Finished(_) => "finished",
                Ending::Failed(..) => "failed",
            };
            metrics::transfer_ended(&mover, kind, outcome, started.elapsed());
            let _ = hub.send(Message::Ended { transfer, ending }).await;
        };
        self.env.shutdown.spawn_until_cut(work.instrument(span));
    }

    fn heard(&mut self, transfer: TransferId, event: Event) {
        let session = self.table.said(transfer, &event);
        self.tell(session, event);
    }

    fn ended(&mut self, transfer: TransferId, ending: Ending) {
        let event = match ending {
            Ending::Finished(outcome) => {
                info!(%transfer, bytes = outcome.bytes, failed = outcome.failed.len(), "transfer finished");
                Event::Finished { transfer, outcome }
            }
            Ending::Failed(fault, outcome) => {
                info!(%transfer, kind = ?fault.kind, fault = fault.message, bytes = outcome.bytes, "transfer failed");
                Event::Failed { transfer, fault, outcome }
            }
        };
        let session = self.table.ended(transfer, event.clone());
        self.tell(session, event);
    }

    fn confirm(&self, files: Vec<VolumeFile>) {
        let mut by_volume: BTreeMap<VolumeLabel, Vec<FileId>> = BTreeMap::new();
        for file in files {
            by_volume.entry(file.volume).or_default().push(file.file);
        }
        for (label, files) in by_volume {
            match self.env.volumes.get(&label) {
                Ok(volume) => {
                    let volume = volume.clone();
                    self.env.shutdown.spawn_blocking(move || volume.confirm(&files));
                }
                Err(fault) => warn!(volume = %label, fault = fault.message, "files of it cannot be confirmed"),
            }
        }
    }
}
