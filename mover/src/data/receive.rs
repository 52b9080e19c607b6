//! Receives a transfer's bytes from a channel, in stream mode or extended block mode.
//!
//! Owns the connections while the transfer lasts, and the accounting of blocks and ends. Talks to an [`Intake`], which says
//! where bytes go. Never decides whether the bytes are the whole: the intake knows that.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;
use wire::{
    extent::ByteRange,
    mode_e::{Assembler, Header},
    mover::{BodyReport, Fault, FaultKind, Framing, Open},
};

use super::{
    body,
    channel::{Arrival, Attachment},
    flow::Flow,
    link::{Link, Stage},
    turn::{Pause, Turns, broken, take_turn},
};

/// Where received bytes go. Shared by all connections of a transfer.
pub(crate) trait Intake: Send + Sync + 'static {
    /// What one connection puts its bytes into.
    type Lane: Lane;

    /// A lane for another connection.
    fn lane(self: &Arc<Self>) -> Self::Lane;

    /// These bytes are about to come.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Overlap`] or [`FaultKind::TooLong`] if they must not.
    fn claim(&self, range: ByteRange) -> Result<(), Fault>;

    /// Whether a connection that waits for room is this side's fault. Not so if room would come only with bytes that the
    /// peer has not sent.
    fn is_our_wait(&self) -> bool {
        true
    }
}

/// What one connection puts its bytes into. Runs on threads where blocking is allowed.
pub(crate) trait Lane: Send + 'static {
    /// Memory for bytes at `at`: part of `scratch`, or the lane's own; `None` if there is no room now.
    fn space<'a>(&'a mut self, at: u64, scratch: &'a mut [u8]) -> Option<&'a mut [u8]>;

    /// The first `count` bytes of the space are there; `scratch` is as it was lent.
    ///
    /// # Errors
    ///
    /// What makes the transfer fail.
    fn filled(&mut self, at: u64, count: usize, scratch: &[u8]) -> Result<(), Fault>;

    /// A block ended, or nothing comes for a while: hand on what was gathered.
    ///
    /// # Errors
    ///
    /// What makes the transfer fail.
    fn flush(&mut self) -> Result<(), Fault>;

    /// Ends when there is room for bytes at `at`. Cancel-safe.
    fn room(&mut self, at: u64) -> BoxFuture<'_, ()>;
}

/// What all connections of one transfer share.
struct Receiving<I> {
    intake: Arc<I>,
    flow: Arc<Flow>,
    turns: Turns,
    assembler: Mutex<Assembler>,
    /// Every connection that was announced has ended.
    ended: CancellationToken,
}

/// Where one connection is.
enum Place {
    /// Stream mode: the next byte's offset, and how many may still come.
    Stream { at: u64, left: Option<u64> },
    /// In a block: the next byte's offset, how many are left, and what follows the block.
    Block { at: u64, left: u64, ends: bool, closes: bool },
    /// Before a header. `used` says that a header of this transfer came before.
    Header { used: bool },
}

/// Receives everything the channel gives for this transfer, and gives the channel back.
///
/// In stream mode the first byte is at `expected`'s offset, or at 0. Ends when the peer has said that this is all. What an
/// HTTP body said of itself is given.
///
/// # Errors
///
/// What the peer did wrong, or what the intake said. The channel's connections are closed then.
pub(crate) async fn receive<I: Intake>(
    mut attachment: Attachment,
    expected: Option<ByteRange>,
    intake: Arc<I>,
    flow: Arc<Flow>,
    turns: Turns,
) -> Result<Option<Box<BodyReport>>, Fault> {
    let spec = attachment.spec().clone();
    if let Open::Http { body: wanted } = &spec.open {
        let Arrival::Body(offered) = arrived(&mut attachment, spec.open_limit_ms).await? else {
            return Err(Fault::new(FaultKind::BadRequest, "a data connection where a body was to come"));
        };
        let (at, limit) = (expected.map_or(0, ByteRange::offset), Duration::from_millis(spec.stall_limit_ms.into()));
        let report = tokio::select! {
            biased;
            report = body::receive(*offered, wanted, at, limit, intake, flow, turns) => report?,
            fault = closed(&mut attachment) => return Err(fault),
        };
        attachment.release(Vec::new());
        return Ok(Some(Box::new(report)));
    }
    let framing = spec.framing;
    let shared = Arc::new(Receiving {
        intake: intake.clone(),
        flow: flow.clone(),
        turns,
        assembler: Mutex::default(),
        ended: CancellationToken::new(),
    });
    let mut links = FuturesUnordered::new();
    let mut kept = Vec::new();
    let start = || match framing {
        Framing::Stream => {
            Place::Stream { at: expected.map_or(0, ByteRange::offset), left: expected.map(ByteRange::length) }
        }
        Framing::ModeE => Place::Header { used: false },
    };
    let link = first(&mut attachment, spec.open_limit_ms).await?;
    links.push(run(link, start(), shared.clone()).boxed());
    let stalled = flow.stalled(Duration::from_millis(spec.stall_limit_ms.into()), || intake.is_our_wait());
    tokio::pin!(stalled);
    loop {
        tokio::select! {
            biased;
            Some(link) = links.next() => {
                kept.extend(link?);
                let over = match framing {
                    Framing::Stream => true,
                    Framing::ModeE => shared.ended.is_cancelled() && links.is_empty(),
                };
                if over {
                    attachment.release(kept);
                    return Ok(None);
                }
            }
            arrival = attachment.arrival() => match arrival? {
                // In stream mode there is one; a second one has no business here.
                Arrival::Link(_) if framing == Framing::Stream => {}
                Arrival::Link(link) => links.push(run(link, start(), shared.clone()).boxed()),
                Arrival::Failed(fault) => return Err(fault),
                Arrival::Body(offered) => offered.give_back(),
            },
            fault = &mut stalled => return Err(fault),
        }
    }
}

/// Waits for the first connection.
pub(super) async fn first(attachment: &mut Attachment, limit_ms: u32) -> Result<Link, Fault> {
    match arrived(attachment, limit_ms).await? {
        Arrival::Link(link) => Ok(link),
        _ => Err(Fault::new(FaultKind::BadRequest, "a body where a data connection was to come")),
    }
}

/// Waits for the first that comes, a connection or a body.
async fn arrived(attachment: &mut Attachment, limit_ms: u32) -> Result<Arrival, Fault> {
    let limit = Duration::from_millis(limit_ms.into());
    let arrival = tokio::time::timeout(limit, attachment.arrival()).await.map_err(|_| {
        let message = format!("no data connection within {} s: is a firewall in the way?", limit.as_secs_f32());
        Fault::new(FaultKind::PeerUnreachable, message)
    })?;
    match arrival? {
        Arrival::Failed(fault) => Err(fault),
        arrival => Ok(arrival),
    }
}

/// Ends when the channel has been closed.
async fn closed(attachment: &mut Attachment) -> Fault {
    loop {
        if let Err(fault) = attachment.arrival().await {
            return fault;
        }
    }
}

/// One connection, to the end of its part. Gives it back if it can carry another transfer.
async fn run<I: Intake>(mut link: Link, mut place: Place, shared: Arc<Receiving<I>>) -> Result<Option<Link>, Fault> {
    let mut lane = shared.intake.lane();
    let mut pause = Pause::Read;
    let framing = if matches!(place, Place::Stream { .. }) { "stream" } else { "mode_e" };
    loop {
        match pause {
            Pause::Read | Pause::Write => {
                let between = matches!(place, Place::Header { .. }) && !link.in_header();
                if !link.has_plaintext() {
                    tokio::select! {
                        ready = link.readable() => ready.map_err(|error| broken(&link, &error))?,
                        () = shared.ended.cancelled(), if between => return Ok(Some(link)),
                    }
                }
            }
            Pause::OurSide => {
                let _waiting = shared.flow.waiting();
                lane.room(place.at()).await;
            }
            Pause::Sleep(time) => {
                let _waiting = shared.flow.waiting();
                tokio::time::sleep(time).await;
            }
            Pause::Again => {}
            Pause::Done { keep } => return Ok(keep.then_some(link)),
        }
        let waiting = shared.flow.waiting();
        let inner = shared.clone();
        let turn = shared.turns.run(move |turn| {
            let paused = inner.turn(&mut link, &mut lane, &mut place, &mut turn.block);
            inner.flow.count(framing, link.security(), link.take_moved());
            (link, lane, place, paused)
        });
        let paused;
        (link, lane, place, paused) = turn.await?;
        drop(waiting);
        pause = paused?;
    }
}

impl Place {
    const fn at(&self) -> u64 {
        match self {
            Self::Stream { at, .. } | Self::Block { at, .. } => *at,
            Self::Header { .. } => 0,
        }
    }
}

impl<I: Intake> Receiving<I> {
    /// Moves what there is. Blocks.
    fn turn(&self, link: &mut Link, lane: &mut I::Lane, place: &mut Place, memory: &mut [u8]) -> Result<Pause, Fault> {
        let (mut stage, scratch) = link.stage(memory);
        let paused = take_turn(link, &self.flow, |link| match place {
            Place::Stream { at, left } => self.stream(link, lane, at, left, scratch, &mut stage),
            Place::Block { .. } => self.block(link, lane, place, scratch, &mut stage),
            Place::Header { .. } => self.header(link, place, &mut stage),
        });
        link.unstage(&stage);
        lane.flush()?;
        paused
    }

    fn stream(
        &self,
        link: &mut Link,
        lane: &mut I::Lane,
        at: &mut u64,
        left: &mut Option<u64>,
        scratch: &mut [u8],
        stage: &mut Stage<'_>,
    ) -> Result<Option<Pause>, Fault> {
        if *left == Some(0) {
            let mut byte = [0];
            return match received(link, |link| link.receive(&mut byte, stage))? {
                Ok(0) => Ok(Some(Pause::Done { keep: false })),
                Ok(_) => {
                    Err(Fault::new(FaultKind::TooLong, format!("the peer sent more than the {at} bytes announced")))
                }
                Err(pause) => Ok(Some(pause)),
            };
        }
        let wanted = left.unwrap_or(u64::MAX).min(scratch.len() as u64);
        let count = match self
            .fill(link, lane, *at, wanted, scratch, stage, |link, space, stage| link.receive(space, stage))?
        {
            Ok(0) => return Ok(Some(Pause::Done { keep: false })),
            Ok(count) => count,
            Err(pause) => return Ok(Some(pause)),
        };
        let range = ByteRange::new(*at, count as u64).map_err(|error| Fault::new(FaultKind::TooLong, error))?;
        self.intake.claim(range)?;
        lane.filled(*at, count, scratch)?;
        self.flow.moved(count as u64);
        link.note_moved(count as u64);
        *at = range.end();
        *left = left.map(|left| left - count as u64);
        Ok(None)
    }

    fn block(
        &self,
        link: &mut Link,
        lane: &mut I::Lane,
        place: &mut Place,
        scratch: &mut [u8],
        stage: &mut Stage<'_>,
    ) -> Result<Option<Pause>, Fault> {
        let Place::Block { at, left, ends, closes } = place else { return Ok(None) };
        if *left == 0 {
            lane.flush()?;
            if *ends {
                return Ok(Some(Pause::Done { keep: !*closes }));
            }
            *place = Place::Header { used: true };
            return Ok(None);
        }
        let last = *ends;
        let rest = *left;
        let filled = self.fill(link, lane, *at, rest, scratch, stage, |link, space, stage| {
            // Behind the last block of a connection comes the next transfer, which is not ours to read.
            if last || (space.len() as u64) < rest {
                link.receive(space, stage)
            } else {
                link.receive_then_header(space, stage)
            }
        })?;
        match filled {
            Ok(0) => {
                let message = format!("{} closed its connection in the middle of a block", link.peer());
                Err(Fault::new(FaultKind::PeerLost, message))
            }
            Ok(count) => {
                lane.filled(*at, count, scratch)?;
                self.flow.moved(count as u64);
                link.note_moved(count as u64);
                *at += count as u64;
                *left -= count as u64;
                Ok(None)
            }
            Err(pause) => Ok(Some(pause)),
        }
    }

    /// Receives into the lane's space for bytes at `at`, as far as the pace allows.
    #[allow(clippy::too_many_arguments, reason = "one place where stream mode and block mode meet")]
    fn fill(
        &self,
        link: &mut Link,
        lane: &mut I::Lane,
        at: u64,
        wanted: u64,
        scratch: &mut [u8],
        stage: &mut Stage<'_>,
        receive: impl FnOnce(&mut Link, &mut [u8], &mut Stage<'_>) -> std::io::Result<usize>,
    ) -> Result<Result<usize, Pause>, Fault> {
        let Some(space) = lane.space(at, scratch) else { return Ok(Err(Pause::OurSide)) };
        let granted = match self.flow.pace.take(wanted.min(space.len() as u64)) {
            Ok(granted) => granted,
            Err(time) => return Ok(Err(Pause::Sleep(time))),
        };
        let size = usize::try_from(granted).map_or(space.len(), |granted| granted.min(space.len()));
        let got = received(link, |link| receive(link, &mut space[..size], stage))?;
        self.flow.pace.give_back(granted - *got.as_ref().unwrap_or(&0) as u64);
        Ok(got)
    }

    fn header(&self, link: &mut Link, place: &mut Place, stage: &mut Stage<'_>) -> Result<Option<Pause>, Fault> {
        let Place::Header { used } = place else { return Ok(None) };
        if self.ended.is_cancelled() && !link.in_header() {
            return Ok(Some(Pause::Done { keep: true }));
        }
        let bytes = match link.take_header(stage) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Some(Pause::Read)),
            // It was opened for nothing, or kept from an earlier transfer and not needed.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && !*used && !link.in_header() => {
                return Ok(Some(Pause::Done { keep: false }));
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                let message = format!("{} closed its connection before its end of data", link.peer());
                return Err(Fault::new(FaultKind::PeerLost, message));
            }
            Err(error) => return Err(broken(link, &error)),
        };
        let protocol =
            |error| Fault::new(FaultKind::PeerProtocol, format!("data connection with {}: {error}", link.peer()));
        let header = Header::decode(&bytes).map_err(protocol)?;
        let step = {
            let mut assembler = self.assembler.lock().unwrap_or_else(PoisonError::into_inner);
            let step = assembler.header(header).map_err(protocol)?;
            if assembler.has_ended() {
                self.ended.cancel();
            }
            step
        };
        self.intake.claim(step.data)?;
        *place = Place::Block {
            at: step.data.offset(),
            left: step.data.length(),
            ends: step.channel_ends,
            closes: step.channel_closes,
        };
        Ok(None)
    }
}

/// Sorts out the error of a receive: nothing there yet is a pause.
pub(super) fn received(
    link: &mut Link,
    receive: impl FnOnce(&mut Link) -> std::io::Result<usize>,
) -> Result<Result<usize, Pause>, Fault> {
    match receive(link) {
        Ok(count) => Ok(Ok(count)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(Err(Pause::Read)),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(Err(Pause::Again)),
        Err(error) => Err(broken(link, &error)),
    }
}
