//! The owner of one mover's connection.
//!
//! Connects, greets, and carries requests and events until the connection breaks; then again, waiting longer each time.
//! What is under way is in [`Table`], which outlives connections.
//!
//! Owns the socket, in one task: reading, writing and commands are waited for together, so that neither side can block
//! the other. Talks to the mover; hands files that nobody confirmed to the janitor and statuses to the registrar.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use daemon::{
    Shutdown,
    role::Role,
    tls::{self, Expect},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::mpsc,
    time::{Instant as TokioInstant, sleep_until, timeout},
};
use tokio_rustls::client::TlsStream;
use tracing::{debug, info, warn};
use wire::{
    id::{ChannelId, TransferId},
    mover::{
        Call, ChannelSpec, Event, Fault, FaultKind, HttpAnswer, Job, Outcome, PROTOCOL_VERSION, Request, VolumeFile,
        frame,
    },
};

use super::{
    LinkState, MoverError, Options, Shared, TransferEvent,
    flying::Care,
    janitor::Suspects,
    registrar::Heard,
    table::{Effect, PROBE, Ready, Reply, Table},
};
use crate::config::MoverConfig;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const GREETING_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often the mover is asked how it is, if it says nothing by itself.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After so long without a word the connection is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// How soon doubtful transfers are asked after again.
const DOUBT_PAUSE: Duration = Duration::from_millis(500);
/// Commands taken at once: they become one write.
const BATCH: usize = 256;
/// While so much waits to be written, no further command is taken.
const OUTGOING_LIMIT: usize = 4 << 20;

/// What the handles ask of a link.
#[derive(Debug)]
pub(super) enum Command {
    Call { what: Call, reply: Reply },
    Open { channel: ChannelId, spec: ChannelSpec, ready: Ready, lost: Arc<AtomicBool> },
    Close { channel: ChannelId },
    Start { transfer: TransferId, job: Box<Job>, events: mpsc::UnboundedSender<TransferEvent>, care: Care },
    Cancel { transfer: TransferId },
    Settle { transfer: TransferId },
    Abandon { transfer: TransferId },
    Confirm { files: Vec<VolumeFile> },
    Answer { channel: ChannelId, answer: HttpAnswer },
}

/// The owner of one mover's connection.
pub(super) struct Owner {
    pub(super) mover: MoverConfig,
    pub(super) options: Arc<Options>,
    pub(super) shared: Shared,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) up: Arc<AtomicBool>,
    pub(super) load: Arc<AtomicUsize>,
    pub(super) janitor: mpsc::UnboundedSender<Suspects>,
    pub(super) statuses: mpsc::Sender<Heard>,
    pub(super) shutdown: Shutdown,
}

/// A connection that has been greeted.
struct Conversation {
    reader: ReadHalf<TlsStream<TcpStream>>,
    writer: WriteHalf<TlsStream<TcpStream>>,
    incoming: BytesMut,
    outgoing: BytesMut,
    unflushed: bool,
    heard: Instant,
    ask_again: Option<TokioInstant>,
}

impl Owner {
    /// Keeps the connection until the shutdown's soft token.
    pub(super) async fn run(mut self) {
        let mut table = Table::new(self.mover.name.clone());
        let mut pause = FIRST_PAUSE;
        let mut away_since = Instant::now();
        loop {
            let attempt = connect(self.mover.clone(), Arc::clone(&self.options));
            let Some(connected) = self.meanwhile(&mut table, away_since, attempt).await else { return };
            let why = match connected {
                Ok((conversation, welcome)) => {
                    pause = FIRST_PAUSE;
                    let why = self.converse(&mut table, conversation, welcome).await;
                    away_since = Instant::now();
                    why
                }
                Err(why) => why,
            };
            self.up.store(false, Ordering::Release);
            table.disconnected(&why);
            self.shared.note(&self.mover.name, |view| {
                if view.is_up() && (self.shutdown.is_stopping() || view.status.draining) {
                    // One of both goes down in order: a mover says so before it closes.
                    info!(mover = %self.mover.name, why, "connection to mover ended");
                } else if view.is_up() {
                    warn!(mover = %self.mover.name, why, "mover went away");
                }
                view.link = LinkState::Away { since: away_since, why: why.clone() };
            });
            if self.shutdown.is_stopping() {
                return;
            }
            debug!(mover = %self.mover.name, why, pause_ms = pause.as_millis(), "no connection to mover");
            if self.meanwhile(&mut table, away_since, tokio::time::sleep(pause)).await.is_none() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for `future` and answers commands as one does without a connection. `None` when the gateway goes down.
    async fn meanwhile<F: Future>(&mut self, table: &mut Table, away_since: Instant, future: F) -> Option<F::Output> {
        tokio::pin!(future);
        let grace = TokioInstant::from_std(away_since) + self.options.grace;
        loop {
            tokio::select! {
                output = &mut future => return Some(output),
                () = self.shutdown.stopping() => return None,
                command = self.commands.recv() => self.refuse(table, command?),
                () = sleep_until(grace), if table.doubts() => {
                    let why = format!("it has been away for {} s", self.options.grace.as_secs());
                    let effects = table.grace_over(&why);
                    self.without_mover(effects);
                }
            }
            self.load.store(table.running(), Ordering::Relaxed);
        }
    }

    fn refuse(&self, table: &mut Table, command: Command) {
        let away = || MoverError::away(&self.mover.name, "it is not connected");
        let effects = match command {
            Command::Call { reply, .. } => {
                let _ = reply.send(Err(away()));
                Vec::new()
            }
            Command::Open { ready, lost, .. } => {
                lost.store(true, Ordering::Release);
                let _ = ready.send(Err(away()));
                Vec::new()
            }
            Command::Start { events, .. } => {
                let _ = events.send(TransferEvent::Failed { error: away(), outcome: Outcome::default() });
                Vec::new()
            }
            Command::Settle { transfer } => table.settle(transfer),
            Command::Abandon { transfer } => table.abandon(transfer),
            Command::Close { channel } => {
                table.close_later(channel);
                Vec::new()
            }
            // Made up for after the next connection: by the list of unconfirmed files, and by cancelling there. A client
            // that hears nothing asks again.
            Command::Cancel { .. } | Command::Confirm { .. } | Command::Answer { .. } => Vec::new(),
        };
        self.without_mover(effects);
    }

    /// What can be done of these while the mover is away: requests are lost, which the next connection makes up for.
    fn without_mover(&self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Suspect { files, patient } = effect {
                let _ = self.janitor.send(Suspects { files, patient });
            }
        }
    }

    /// Carries requests and events until the connection is of no use; why that is.
    async fn converse(&mut self, table: &mut Table, mut line: Conversation, welcome: Heard) -> String {
        info!(mover = %self.mover.name, address = self.mover.address, "mover is there");
        self.hear(table, welcome);
        self.shared.note(&self.mover.name, |view| view.link = LinkState::Up { since: Instant::now() });
        self.up.store(true, Ordering::Release);
        line.say(&Request::Call { call: PROBE, what: Call::Status });
        for effect in table.connected() {
            if let Effect::Send(request) = effect {
                line.say(&request);
            }
        }
        let mut commands = Vec::with_capacity(BATCH);
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            let doubt = line.ask_again.unwrap_or_else(|| TokioInstant::now() + HEARTBEAT);
            tokio::select! {
                read = line.reader.read_buf(&mut line.incoming) => match read {
                    Ok(0) => return "it closed the connection".to_owned(),
                    Ok(_) => if let Err(why) = self.events(table, &mut line) {
                        return why;
                    },
                    Err(error) => return format!("the connection broke: {error}"),
                },
                written = push(&mut line.writer, &mut line.outgoing, &mut line.unflushed) => if let Err(error) = written {
                    return format!("the connection broke: {error}");
                },
                count = self.commands.recv_many(&mut commands, BATCH), if line.outgoing.len() < OUTGOING_LIMIT => {
                    if count == 0 {
                        return "the gateway is going down".to_owned();
                    }
                    let mut confirmed = Vec::new();
                    for command in commands.drain(..) {
                        self.obey(table, &mut line, command, &mut confirmed);
                    }
                    if !confirmed.is_empty() {
                        line.say(&Request::Confirm { files: confirmed });
                    }
                }
                () = sleep_until(doubt), if line.ask_again.is_some() => {
                    line.ask_again = None;
                    line.say(&Request::Call { call: PROBE, what: Call::Status });
                }
                _ = beat.tick() => {
                    if line.heard.elapsed() > SILENCE_LIMIT {
                        return format!("it has said nothing for {} s", SILENCE_LIMIT.as_secs());
                    }
                    if line.heard.elapsed() > HEARTBEAT {
                        line.say(&Request::Call { call: PROBE, what: Call::Status });
                    }
                }
                () = self.shutdown.stopping() => {
                    // What was asked before the end is still said: confirmations above all.
                    while let Ok(command) = self.commands.try_recv() {
                        let mut confirmed = Vec::new();
                        self.obey(table, &mut line, command, &mut confirmed);
                        line.say(&Request::Confirm { files: confirmed });
                    }
                    let _ = timeout(CONNECT_LIMIT, line.finish()).await;
                    return "the gateway is going down".to_owned();
                }
            }
            self.load.store(table.running(), Ordering::Relaxed);
        }
    }

    fn events(&self, table: &mut Table, line: &mut Conversation) -> Result<(), String> {
        line.heard = Instant::now();
        while let Some(body) = frame::split(&mut line.incoming).map_err(|error| error.to_string())? {
            let event = frame::decode::<Event>(&body).map_err(|error| error.to_string())?;
            let effects = table.apply(event);
            self.perform(table, line, effects)?;
        }
        Ok(())
    }

    fn perform(&self, table: &Table, line: &mut Conversation, effects: Vec<Effect>) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::Send(request) => line.say(&request),
                Effect::Suspect { files, patient } => drop(self.janitor.send(Suspects { files, patient })),
                Effect::Status(status) => self.hear(table, Heard { mover: self.mover.name.clone(), status }),
                Effect::AskAgain => line.ask_again = Some(TokioInstant::now() + DOUBT_PAUSE),
                Effect::Close(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn hear(&self, table: &Table, heard: Heard) {
        let running = table.running();
        self.shared.note(&self.mover.name, |view| {
            view.status = heard.status.clone();
            view.transfers = running;
        });
        // One that does not fit is followed by another in a few seconds.
        let _ = self.statuses.try_send(heard);
    }

    fn obey(&self, table: &mut Table, line: &mut Conversation, command: Command, confirmed: &mut Vec<VolumeFile>) {
        let effects = match command {
            Command::Call { what, reply } => {
                let call = table.ask(reply);
                vec![Effect::Send(Request::Call { call, what })]
            }
            Command::Open { channel, spec, ready, lost } => {
                table.open(channel, ready, lost);
                vec![Effect::Send(Request::OpenChannel { channel, spec })]
            }
            Command::Close { channel } if table.close(channel) => {
                vec![Effect::Send(Request::CloseChannel { channel })]
            }
            Command::Close { .. } => Vec::new(),
            Command::Start { transfer, job, events, care } => {
                match frame::encode(&Request::Start { transfer, job }, &mut line.outgoing) {
                    Ok(()) => table.start(transfer, events, care),
                    Err(error) => {
                        let fault = Fault::new(FaultKind::BadRequest, format_args!("the job is too large: {error}"));
                        let error = MoverError::Refused { mover: self.mover.name.clone(), fault };
                        let _ = events.send(TransferEvent::Failed { error, outcome: Outcome::default() });
                    }
                }
                Vec::new()
            }
            Command::Cancel { transfer } => vec![Effect::Send(Request::Cancel { transfer })],
            Command::Answer { channel, answer } => vec![Effect::Send(Request::Answer { channel, answer })],
            Command::Settle { transfer } => table.settle(transfer),
            Command::Abandon { transfer } => table.abandon(transfer),
            Command::Confirm { mut files } => {
                confirmed.append(&mut files);
                Vec::new()
            }
        };
        // No command's effect closes the connection.
        let _ = self.perform(table, line, effects);
    }
}

impl Conversation {
    fn say(&mut self, request: &Request) {
        if let Err(error) = frame::encode(request, &mut self.outgoing) {
            // Jobs are seen to before; nothing else is near the limit.
            tracing::error!(%error, "a request to a mover could not be written");
        }
    }

    async fn finish(&mut self) -> std::io::Result<()> {
        self.writer.write_all(&self.outgoing).await?;
        self.writer.shutdown().await
    }
}

/// Writes some of what waits, or flushes what was written, or waits for ever. Cancel-safe.
async fn push(
    writer: &mut WriteHalf<TlsStream<TcpStream>>,
    outgoing: &mut BytesMut,
    unflushed: &mut bool,
) -> std::io::Result<()> {
    if !outgoing.is_empty() {
        *unflushed = true;
        return writer.write_buf(outgoing).await.map(|_| ());
    }
    if *unflushed {
        writer.flush().await?;
        *unflushed = false;
        return Ok(());
    }
    std::future::pending().await
}

/// Connects and greets; the reason in words if that does not work.
async fn connect(mover: MoverConfig, options: Arc<Options>) -> Result<(Conversation, Heard), String> {
    let host = mover.address.rsplit_once(':').map_or(mover.address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = &mover.address;
    let stream = timeout(CONNECT_LIMIT, TcpStream::connect(address))
        .await
        .map_err(|_| format!("{address} does not answer"))?
        .map_err(|error| format!("{address}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let expect = Expect::Role { role: Role::Mover, name: Some(mover.name.to_string()) };
    let config = tls::client_config(Some(&options.credential), &options.trust, &expect, &[]);
    let stream = timeout(GREETING_LIMIT, tls::connect(&config, host, stream))
        .await
        .map_err(|_| format!("{address} did not finish the TLS handshake"))?
        .map_err(|error| format!("{address}: {}", tls::why(&error)))?;
    let (reader, writer) = tokio::io::split(stream);
    let mut line = Conversation {
        reader,
        writer,
        incoming: BytesMut::new(),
        outgoing: BytesMut::new(),
        unflushed: false,
        heard: Instant::now(),
        ask_again: None,
    };
    line.say(&Request::Hello { version: PROTOCOL_VERSION, gateway: options.gateway.clone(), epoch: options.epoch });
    let welcome =
        timeout(GREETING_LIMIT, greeted(&mut line)).await.map_err(|_| format!("{address} did not greet"))??;
    if welcome.mover != mover.name {
        return Err(format!("{address} is mover {}, not {}", welcome.mover, mover.name));
    }
    Ok((line, welcome))
}

async fn greeted(line: &mut Conversation) -> Result<Heard, String> {
    let broke = |error: std::io::Error| format!("the connection broke: {}", tls::why(&error));
    line.writer.write_all_buf(&mut line.outgoing).await.map_err(broke)?;
    line.writer.flush().await.map_err(broke)?;
    loop {
        if let Some(body) = frame::split(&mut line.incoming).map_err(|error| error.to_string())? {
            return match frame::decode::<Event>(&body).map_err(|error| error.to_string())? {
                Event::Welcome { version: PROTOCOL_VERSION, mover, status } => Ok(Heard { mover, status }),
                Event::Welcome { version, .. } => Err(format!("it speaks version {version}, not {PROTOCOL_VERSION}")),
                Event::Refused { fault } => Err(fault.message),
                _ => Err("it did not greet first".to_owned()),
            };
        }
        if line.reader.read_buf(&mut line.incoming).await.map_err(broke)? == 0 {
            return Err("it closed the connection".to_owned());
        }
    }
}
