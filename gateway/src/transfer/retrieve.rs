//! Sends a file: finds it, brings it to disk if need be, and lets the movers that have it send it.
//!
//! One question to the catalogue, one message to each mover that sends, one back.

use std::sync::Arc;

use catalog::{DISK_COPY, Located, Segment, TapeRead};
use tokio::{sync::mpsc, time::timeout};
use wire::{
    checksum::ExtraSums,
    id::{BitfileId, ChannelId, MoverId},
    mover::{Eof, Framing, Job, Piece, Sink, Source},
};

use super::{
    Progress, Retrieve, Step, Summary, Waiting,
    crew::{Crew, Duty, News},
    here::{self, Here},
    plan::{
        ClientEnd, RelayReason,
        read::{self, ReadPlan, Relay, Wanted},
        replicas::{self, Held},
    },
    port::{Ends, no_mover},
    task::Task,
};
use crate::{
    failure::{Failure, FailureKind},
    movers::{Channel, MoverView},
};

/// How often a file is looked for again because it was moved while it was being opened.
const ATTEMPTS: usize = 3;

/// Why sending ended early, and whether another look at the catalogue may help.
pub(super) struct Broken {
    pub(super) failure: Failure,
    pub(super) elsewhere: bool,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self { failure, elsewhere: false }
    }
}

pub(super) async fn run(task: Arc<Task>, what: Retrieve, here: Option<Here>) -> Result<Summary, Failure> {
    let mut tried: Vec<Held> = Vec::new();
    let turn = task.inner.next_replica();
    let mut last = None;
    let mut opened = false;
    for attempt in 0..ATTEMPTS {
        let located = task.unless_stopped(on_disk(&task, &what, attempt > 0)).await??;
        let copies = readable(&task, &located)?;
        task.inner.catalog.touch(located.bitfile.id);
        let _permit = task.permit()?;
        let mut ends = task.unless_stopped(task.port.lock()).await?;
        let (size, view) = (located.bitfile.size_bytes, ends.view(&task.port.spec)?);
        // What did not work with all of them is tried with one, then with another.
        let held = replicas::choose(copies, size, &view, turn + attempt, attempt > 0);
        if attempt > 0 && held == tried {
            break;
        }
        let sent = send(&task, &what, &located, held.clone(), here.as_ref(), &mut ends, &mut opened).await;
        match sent {
            Ok(summary) => {
                ends.served(&task.port.spec);
                return Ok(summary);
            }
            Err(broken) if broken.elsewhere => last = Some(broken.failure),
            Err(broken) => {
                ends.close();
                return Err(broken.failure);
            }
        }
        tried = held;
    }
    Err(last.unwrap_or_else(|| {
        let advice = format_args!("{} is moved all the time: try again later", what.file.path);
        Failure::new(FailureKind::Busy, advice)
    }))
}

/// Where the file is, once it is on disk. If `again`, the disk copy could not be read: the recall queue is asked, which
/// gives up a copy that nobody can reach and brings another from tape.
async fn on_disk(task: &Task, what: &Retrieve, again: bool) -> Result<Located, Failure> {
    let path = &what.file.path;
    let bitfile = what.file.file.bitfile;
    let located = task.inner.catalog.locate_one(bitfile).await.map_err(|error| match error {
        catalog::CatalogError::NotFound { .. } => {
            Failure::new(FailureKind::NotFound, format_args!("{path} was deleted a moment ago"))
        }
        other => other.into(),
    })?;
    let recall = again && located.bitfile.residency.tape_copies > 0;
    if located.bitfile.size_bytes == 0 || (located.copy(DISK_COPY).is_some() && !recall) {
        return Ok(located);
    }
    let stock = task.inner.shelf.stock(false).await?;
    let wait = stock.policies.class(&located.bitfile.cos).is_none_or(|class| class.tape_read == TapeRead::Wait);
    if !wait {
        let (cos, advice) = (&located.bitfile.cos, "ask for it to be staged (SITE STAGE), then read it");
        return Err(Failure::new(
            FailureKind::NotStaged,
            format_args!("{path} is on tape, and class of service {cos} does not wait for tape: {advice}"),
        ));
    }
    stage(task, what, &located).await?;
    Ok(task.inner.catalog.locate_one(bitfile).await?)
}

async fn stage(task: &Task, what: &Retrieve, located: &Located) -> Result<(), Failure> {
    let Some(stager) = task.inner.stager.get() else {
        let advice = format_args!("{} is on tape, and this gateway has no way to tape", what.file.path);
        return Err(Failure::new(FailureKind::NotStaged, advice));
    };
    task.card().state("tape");
    let (progress, mut waits) = mpsc::channel::<Waiting>(8);
    let limit = task.inner.limits.tape_wait.get(&located.bitfile.cos).copied().unwrap_or(std::time::Duration::MAX);
    let staged = timeout(limit, stager.stage(located.bitfile.id, &what.principal, progress));
    tokio::pin!(staged);
    loop {
        tokio::select! {
            result = &mut staged => return result.unwrap_or_else(|_| {
                let (path, span) = (&what.file.path, daemon::config::TimeSpan::from(limit));
                let advice = format_args!("{path} did not come from tape within {span}: stage it, and read it later");
                Err(Failure::new(FailureKind::NotStaged, advice))
            }),
            Some(waiting) = waits.recv() => task.say(Step::Waiting(waiting)).await,
        }
    }
}

async fn send(
    task: &Task,
    what: &Retrieve,
    located: &Located,
    held: Vec<Held>,
    here: Option<&Here>,
    ends: &mut Ends,
    opened: &mut bool,
) -> Result<Summary, Broken> {
    let wanted = Wanted {
        bitfile: located.bitfile.id,
        size_bytes: located.bitfile.size_bytes,
        part: &what.part,
        held,
        anybody: anybody(task)?,
    };
    let spec = &task.port.spec;
    let plan = read::plan(&wanted, &ends.view(spec)?)?;
    let movers = movers(&plan);
    if let (Some(here), Some(neighbours)) = (here, task.inner.neighbours.get())
        && let Some(runs) = here::pieces(&plan, neighbours)
    {
        task.card().planned(movers.clone(), Some(plan.bytes));
        let bytes = here::send(task, neighbours, runs, here, located.bitfile.id).await?;
        return Ok(Summary { bytes, elapsed: task.started.elapsed(), movers, relayed_bytes: 0, stored: None });
    }
    let need = needed(&plan);
    let ready = task.unless_stopped(ends.open(&task.inner, spec, &need)).await??;
    task.card().planned(movers.clone(), Some(plan.bytes));
    if let Some(addresses) = ready.tell {
        task.say(Step::Passive(addresses)).await;
    }
    let (bytes, reason) = (plan.bytes, plan.relay.as_ref().map(|relay| relay.reason));
    let started = task.unless_stopped(Sending::start(task, plan, &ready.channels)).await?;
    let sending = started.map_err(|failure| Broken { elsewhere: failure.is_retryable(), failure })?;
    if !std::mem::replace(opened, true) {
        task.say(Step::Opening { reused: ready.reused, bytes: Some(bytes) }).await;
    }
    let relayed_bytes = sending.finish(task, located.bitfile.id, reason).await?;
    Ok(Summary { bytes, elapsed: task.started.elapsed(), movers, relayed_bytes, stored: None })
}

/// The disk copies of a file that can be read now; the first, whether or not, if none can.
fn readable(task: &Task, located: &Located) -> Result<Vec<Vec<Held>>, Failure> {
    let snapshot = task.inner.movers.snapshot();
    let mut copies = Vec::new();
    for copy in located.on_disk() {
        copies.push(copy.segments.iter().map(|segment| held(task, segment)).collect::<Result<Vec<_>, _>>());
    }
    if copies.len() > 1 {
        let up = |held: &Held| snapshot.get(&held.mover).is_some_and(MoverView::is_up);
        let good = |copy: &Result<Vec<Held>, Failure>| copy.as_ref().is_ok_and(|held| held.iter().all(up));
        match copies.iter().any(good) {
            true => copies.retain(good),
            false => copies.truncate(1),
        }
    }
    copies.into_iter().collect()
}

fn held(task: &Task, segment: &Segment) -> Result<Held, Failure> {
    match task.inner.movers.mover_of(&segment.extent.volume) {
        Some(mover) => Ok(Held::whole(segment.clone(), mover)),
        None => Err(Failure::new(
            FailureKind::Unavailable,
            format_args!("volume {} belongs to no mover that this gateway knows", segment.extent.volume),
        )),
    }
}

/// A mover that can say the end of nothing.
pub(super) fn anybody(task: &Task) -> Result<MoverId, Failure> {
    let snapshot = task.inner.movers.snapshot();
    let up = snapshot.movers.values().filter(|view| view.is_up());
    up.min_by_key(|view: &&MoverView| task.inner.movers.load(&view.mover))
        .map(|view| view.mover.clone())
        .ok_or_else(no_mover)
}

fn movers(plan: &ReadPlan) -> Vec<MoverId> {
    let legs = plan.legs.iter().map(|leg| &leg.mover);
    let relay = plan
        .relay
        .iter()
        .flat_map(|relay| std::iter::once(&relay.through).chain(relay.senders.iter().map(|(mover, _)| mover)));
    let mut movers: Vec<_> = legs.chain(relay).cloned().collect();
    movers.sort();
    movers.dedup();
    movers
}

/// The client's ends: the relay's first, if there is one, then the legs'.
fn needed(plan: &ReadPlan) -> Vec<(MoverId, ClientEnd)> {
    let relay = plan.relay.iter().map(|relay| (relay.through.clone(), relay.end));
    relay.chain(plan.legs.iter().map(|leg| (leg.mover.clone(), leg.end))).collect()
}

/// Movers that send.
struct Sending {
    crew: Crew,
    /// Movers that send through another, when it is their turn.
    queue: std::collections::VecDeque<(MoverId, Vec<Piece>, Eof)>,
    in_turn: bool,
    inside: Option<Channel>,
    /// Between movers; open until the end.
    wires: Vec<Channel>,
    senders: u16,
    rate_limit: Option<u64>,
}

impl Sending {
    async fn start(task: &Task, plan: ReadPlan, channels: &[ChannelId]) -> Result<Self, Failure> {
        let senders = plan.legs.len() + plan.relay.as_ref().map_or(0, |relay| relay.senders.len());
        let mut sending = Self {
            crew: Crew::default(),
            queue: std::collections::VecDeque::new(),
            in_turn: false,
            inside: None,
            wires: Vec::new(),
            senders: 0,
            rate_limit: task.port.spec.rate_limit.map(|rate| (rate / senders.max(1) as u64).max(1)),
        };
        let mut channels = channels.iter().copied();
        let mut next =
            || channels.next().ok_or_else(|| Failure::new(FailureKind::Internal, "a data channel is missing"));
        if let Some(relay) = plan.relay {
            sending.relay(task, relay, next()?).await?;
        }
        for leg in plan.legs {
            let sink = Sink::Channel { channel: next()?, eof: leg.eof };
            sending.go(task, leg.mover, leg.pieces, sink, Duty::Client).await?;
        }
        Ok(sending)
    }

    async fn go(
        &mut self,
        task: &Task,
        mover: MoverId,
        pieces: Vec<Piece>,
        sink: Sink,
        duty: impl FnOnce(u16) -> Duty,
    ) -> Result<(), Failure> {
        let job = Job {
            source: Source::Extents(pieces),
            sink,
            extra_sums: ExtraSums::default(),
            rate_limit: self.rate_limit,
        };
        let transfer = task.inner.movers.start(&mover, job).await?;
        self.crew.join(duty(self.senders), transfer);
        self.senders += 1;
        Ok(())
    }

    /// Starts the mover in the middle, and the first of those behind it, or all of them.
    async fn relay(&mut self, task: &Task, relay: Relay, client: ChannelId) -> Result<(), Failure> {
        let inside = task.inner.listen_inside(&relay.through, Framing::ModeE).await?;
        let source = Source::Channel { channel: inside.id(), expected: relay.expected };
        let job = Job {
            source,
            sink: Sink::Channel { channel: client, eof: Eof::Own },
            extra_sums: ExtraSums::default(),
            rate_limit: task.port.spec.rate_limit,
        };
        let transfer = task.inner.movers.start(&relay.through, job).await?;
        self.crew.join(Duty::Relay, transfer);
        let count = relay.senders.len();
        // Every sender has one connection; one of them says how many there are, the last if they take turns.
        let speaker = if relay.in_turn { count - 1 } else { 0 };
        let total = Eof::Total(u32::try_from(count).unwrap_or(u32::MAX));
        for (number, (mover, pieces)) in relay.senders.into_iter().enumerate() {
            let eof = if number == speaker { total } else { Eof::Other };
            self.queue.push_back((mover, pieces, eof));
        }
        self.in_turn = relay.in_turn;
        self.inside = Some(inside);
        self.advance(task).await
    }

    /// Starts those whose turn it is.
    async fn advance(&mut self, task: &Task) -> Result<(), Failure> {
        while let Some((mover, pieces, eof)) = self.queue.pop_front() {
            let Some(inside) = &self.inside else { break };
            let wire = task.inner.connect_inside(&mover, inside).await?;
            let sink = Sink::Channel { channel: wire.id(), eof };
            self.wires.push(wire);
            self.go(task, mover, pieces, sink, Duty::Behind).await?;
            if self.in_turn {
                break;
            }
        }
        Ok(())
    }

    /// Follows all to their end; how many bytes were relayed.
    async fn finish(mut self, task: &Task, bitfile: BitfileId, reason: Option<RelayReason>) -> Result<u64, Broken> {
        let mut relayed = 0;
        loop {
            let news = tokio::select! {
                biased;
                failure = task.stopped() => return Err(failure.into()),
                news = self.crew.next() => news,
            };
            match news {
                None => break,
                Some(News::Received) => {}
                Some(News::Progress { duty, bytes, .. }) => {
                    task.card().moved(self.crew.client_bytes());
                    // A file that is being read is not purged.
                    task.inner.catalog.touch(bitfile);
                    if let Duty::Client(stripe) | Duty::Behind(stripe) = duty {
                        let stripes = self.senders.max(1);
                        task.progress(Progress { stripe, stripes, bytes, ranges: Vec::new() });
                    }
                }
                Some(News::Finished { duty, outcome }) => {
                    if duty == Duty::Relay {
                        relayed = outcome.bytes;
                    }
                    if let Duty::Behind(_) = duty {
                        self.advance(task).await?;
                    }
                }
                Some(News::Failed { error, outcome }) => {
                    let unmoved = self.crew.client_bytes() == 0 && outcome.bytes == 0;
                    let elsewhere = unmoved && error.worth_trying_elsewhere();
                    return Err(Broken { failure: error.into(), elsewhere });
                }
            }
        }
        if let Some(reason) = reason {
            task.relayed(reason, relayed);
        }
        task.card().moved(self.crew.client_bytes());
        self.crew.settle();
        Ok(relayed)
    }
}
