//! Sends a transfer's bytes into a channel, in stream mode or extended block mode.
//!
//! Owns the connections while the transfer lasts. Talks to a [`Supply`], which deals out parcels: a connection takes the
//! next one when it has sent the last, so a slow connection delays one parcel and not the others. Never waits for data
//! with a thread.

use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use wire::{
    checksum::Sums,
    extent::ByteRange,
    mode_e::{HEADER_BYTES, Header},
    mover::{Eof, Fault, FaultKind, Framing},
};

use super::{
    channel::{Arrival, Attachment},
    flow::Flow,
    link::Link,
    receive::first,
    turn::{Pause, Turns, broken, take_turn},
};
use crate::sums::Tally;

/// The most bytes one call of `sendfile` is given, so that a cancellation is heard.
const CHUNK_BYTES: u64 = 4 << 20;

/// How long a connection is kept after the end of a stream, for the peer to close it.
const LINGER: Duration = Duration::from_secs(30);

/// Where bytes to send come from. Shared by all connections of a transfer.
pub(crate) trait Supply: Send + Sync + 'static {
    /// The next parcel. May block.
    ///
    /// # Errors
    ///
    /// What makes the transfer fail.
    fn next(&self) -> Result<Next, Fault>;

    /// Ends when [`Supply::next`] would not say [`Next::Wait`]. Cancel-safe.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// These bytes of a file passed through memory, and these are their sums.
    ///
    /// # Errors
    ///
    /// [`FaultKind::Corrupt`] if the file is not what it should be.
    fn passed(&self, range: ByteRange, sums: Sums) -> Result<(), Fault>;
}

/// What comes next.
pub(crate) enum Next {
    /// Bytes to send.
    Parcel(Parcel),
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    End,
}

/// Contiguous bytes that go over one connection.
pub(crate) struct Parcel {
    /// Where they lie in the transfer's address space.
    pub(crate) range: ByteRange,
    /// Where they are.
    pub(crate) body: Body,
}

/// Bytes in memory.
pub(crate) type Memory = Box<dyn AsRef<[u8]> + Send>;

/// Where a parcel's bytes are.
pub(crate) enum Body {
    /// In a file, from this offset.
    File(Arc<File>, u64),
    /// In memory.
    Memory(Memory),
}

struct Sending<S> {
    supply: Arc<S>,
    flow: Arc<Flow>,
    turns: Turns,
    framing: Framing,
    /// The way's name, for metrics.
    label: &'static str,
}

/// Why an answer did not go out whole, with the connection if nothing of it went.
pub(crate) type Unsent = (Fault, Option<Link>);

/// What one connection has in hand.
struct Hand {
    /// What goes before the first parcel, and how much of it was sent.
    before: Vec<u8>,
    before_sent: usize,
    parcel: Option<Parcel>,
    header: [u8; HEADER_BYTES],
    header_sent: usize,
    sent: u64,
    tally: Tally,
}

/// Sends everything the supply has, says the end, and gives the channel back.
///
/// # Errors
///
/// What the peer did wrong, or what the supply said. The channel's connections are closed then.
pub(crate) async fn send<S: Supply>(
    mut attachment: Attachment,
    supply: Arc<S>,
    eof: Eof,
    flow: Arc<Flow>,
    turns: Turns,
) -> Result<(), Fault> {
    let spec = attachment.spec().clone();
    let shutdown = turns.clone();
    let label = match spec.framing {
        Framing::Stream => "stream",
        Framing::ModeE => "mode_e",
    };
    let shared = Arc::new(Sending { supply, flow: flow.clone(), turns, framing: spec.framing, label });
    let mut links = FuturesUnordered::new();
    let mut drained = Vec::new();
    let (mut arrived, expected) = (1, attachment.expected());
    let link = first(&mut attachment, spec.open_limit_ms).await?;
    links.push(run(link, shared.clone()).boxed());
    let stalled = flow.stalled(Duration::from_millis(spec.stall_limit_ms.into()), || true);
    tokio::pin!(stalled);
    loop {
        // Connections that are still being made will each be waited for by the peer, so they must say their end too.
        let complete = expected.is_none_or(|expected| arrived >= expected);
        if links.is_empty() && complete {
            break;
        }
        tokio::select! {
            biased;
            Some(link) = links.next() => drained.push(link?),
            arrival = attachment.arrival() => {
                arrived += 1;
                match arrival? {
                    Arrival::Link(_) if spec.framing == Framing::Stream => {}
                    Arrival::Link(link) => links.push(run(link, shared.clone()).boxed()),
                    // With fewer connections it is slower, unless the peer was told how many come.
                    Arrival::Failed(fault) if eof != Eof::Own || spec.framing == Framing::Stream => return Err(fault),
                    Arrival::Failed(_) => {}
                    Arrival::Body(_) => {}
                }
            }
            fault = &mut stalled => return Err(fault),
        }
    }
    match spec.framing {
        Framing::ModeE => {
            let ended = end_blocks(drained, eof);
            tokio::pin!(ended);
            tokio::select! {
                links = &mut ended => attachment.release(links?),
                fault = &mut stalled => return Err(fault),
            }
        }
        Framing::Stream => {
            for link in drained {
                let ended = end_stream(link);
                tokio::pin!(ended);
                let link = tokio::select! {
                    link = &mut ended => link?,
                    fault = &mut stalled => return Err(fault),
                };
                shutdown.linger(link, LINGER);
            }
            attachment.release(Vec::new());
        }
    }
    Ok(())
}

/// Sends `head` and everything the supply has on a connection that lives on behind it: an answer in HTTP/1.1.
///
/// Nothing is sent before the supply has given its first parcel, so that a file that cannot be read is told by another
/// answer: the connection comes back with the fault then. Later, a fault closes it by a reset.
///
/// # Errors
///
/// What the supply said, that the peer is gone, or that it took nothing for `stall_limit`.
pub(crate) async fn answer<S: Supply>(
    link: Link,
    head: Vec<u8>,
    supply: Arc<S>,
    flow: Arc<Flow>,
    turns: Turns,
    stall_limit: Duration,
) -> Result<Link, Unsent> {
    // Threads in the middle of a turn stop when this future is dropped.
    let _over = flow.over.clone().drop_guard();
    let shared = Arc::new(Sending { supply, flow: flow.clone(), turns, framing: Framing::Stream, label: "http" });
    let sent = async {
        let mut link = drive(link, Hand::new(head), shared).await?;
        flush(&mut link).await.map_err(lost)?;
        link.finish();
        Ok(link)
    };
    tokio::select! {
        sent = sent => sent,
        fault = flow.stalled(stall_limit, || true) => Err((fault, None)),
    }
}

/// Sends bytes that are in memory.
///
/// # Errors
///
/// That the peer is gone.
pub(crate) async fn send_bytes(link: &mut Link, mut bytes: &[u8]) -> Result<(), Fault> {
    while !bytes.is_empty() {
        match link.send(bytes, false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) => wait_writable(link, error).await?,
        }
    }
    flush(link).await
}

/// Closes a connection behind its last answer, and waits a moment until the peer has closed it too.
pub(crate) async fn send_end(link: Link) {
    if let Ok(link) = end_stream(link).await {
        let _ = tokio::time::timeout(LINGER, link.linger()).await;
    }
}

const fn lost(fault: Fault) -> Unsent {
    (fault, None)
}

/// Says the end on every connection.
async fn end_blocks(mut links: Vec<Link>, eof: Eof) -> Result<Vec<Link>, Fault> {
    let own = links.len() as u64;
    for (number, link) in links.iter_mut().enumerate() {
        let header = match eof {
            Eof::Own if number == 0 => Header::end_of_file(own, false),
            Eof::Total(total) if number == 0 => Header::end_of_file(total.into(), false),
            _ => Header::end_of_data(false),
        };
        send_bytes(link, &header.encode()).await?;
        link.finish();
    }
    Ok(links)
}

async fn end_stream(mut link: Link) -> Result<Link, Fault> {
    flush(&mut link).await?;
    link.announce_end();
    flush(&mut link).await?;
    link.end().map_err(|error| broken(&link, &error))?;
    link.finish();
    Ok(link)
}

async fn flush(link: &mut Link) -> Result<(), Fault> {
    while let Err(error) = link.flush() {
        wait_writable(link, error).await?;
    }
    Ok(())
}

async fn wait_writable(link: &Link, error: std::io::Error) -> Result<(), Fault> {
    if error.kind() != std::io::ErrorKind::WouldBlock {
        return Err(broken(link, &error));
    }
    link.writable().await.map_err(|error| broken(link, &error))
}

/// One connection, until the supply has nothing more for it.
async fn run<S: Supply>(link: Link, shared: Arc<Sending<S>>) -> Result<Link, Fault> {
    drive(link, Hand::new(Vec::new()), shared).await.map_err(|(fault, _)| fault)
}

async fn drive<S: Supply>(mut link: Link, mut hand: Hand, shared: Arc<Sending<S>>) -> Result<Link, Unsent> {
    link.begin();
    loop {
        let waiting = shared.flow.waiting();
        let inner = shared.clone();
        let turn = shared.turns.run(move |turn| {
            let paused = take_turn(&mut link, &inner.flow, |link| inner.step(link, &mut hand, &mut turn.block));
            inner.flow.count(inner.label, link.security(), link.take_moved());
            (link, hand, paused)
        });
        let paused;
        (link, hand, paused) = turn.await.map_err(lost)?;
        drop(waiting);
        let pause = match paused {
            Ok(pause) => pause,
            Err(fault) if hand.before_sent == 0 && !hand.before.is_empty() => {
                link.finish();
                return Err((fault, Some(link)));
            }
            Err(fault) => return Err((fault, None)),
        };
        match pause {
            Pause::Read | Pause::Write => link.writable().await.map_err(|error| lost(broken(&link, &error)))?,
            Pause::OurSide => {
                let _waiting = shared.flow.waiting();
                tokio::select! {
                    () = shared.supply.ready() => {}
                    fault = gone(&link) => return Err((fault, None)),
                }
            }
            Pause::Sleep(time) => {
                let _waiting = shared.flow.waiting();
                tokio::time::sleep(time).await;
            }
            Pause::Again => {}
            Pause::Done { .. } => return Ok(link),
        }
    }
}

impl Hand {
    fn new(before: Vec<u8>) -> Self {
        Self {
            before,
            before_sent: 0,
            parcel: None,
            header: [0; HEADER_BYTES],
            header_sent: 0,
            sent: 0,
            tally: Tally::new(),
        }
    }
}

/// Ends when the peer has closed the connection while there was nothing to send.
async fn gone(link: &Link) -> Fault {
    let _ = link.readable().await;
    if !link.is_stale() {
        // It sent something, which is of no interest here; a close behind it is noticed when sending.
        std::future::pending::<()>().await;
    }
    Fault::new(FaultKind::PeerLost, format!("{} closed its data connection", link.peer()))
}

impl<S: Supply> Sending<S> {
    fn step(&self, link: &mut Link, hand: &mut Hand, memory: &mut [u8]) -> Result<Option<Pause>, Fault> {
        let Some(parcel) = &hand.parcel else {
            match self.supply.next()? {
                Next::Wait => return Ok(Some(Pause::OurSide)),
                Next::End => return Ok(Some(Pause::Done { keep: true })),
                Next::Parcel(parcel) => {
                    hand.header = Header::data(parcel.range).encode();
                    hand.header_sent = if self.framing == Framing::Stream { HEADER_BYTES } else { 0 };
                    hand.sent = 0;
                    hand.parcel = Some(parcel);
                }
            }
            return Ok(None);
        };
        if hand.before_sent < hand.before.len() {
            let sent = link.send(&hand.before[hand.before_sent..], true);
            return match took(link, sent)? {
                Ok(count) => {
                    hand.before_sent += count;
                    Ok(None)
                }
                Err(pause) => Ok(Some(pause)),
            };
        }
        if hand.header_sent < HEADER_BYTES {
            let sent = link.send(&hand.header[hand.header_sent..], true);
            return match took(link, sent)? {
                Ok(count) => {
                    hand.header_sent += count;
                    Ok(None)
                }
                Err(pause) => Ok(Some(pause)),
            };
        }
        let left = parcel.range.length() - hand.sent;
        if left == 0 {
            if let Some((range, sums)) = hand.tally.take() {
                self.supply.passed(range, sums)?;
            }
            hand.parcel = None;
            return Ok(None);
        }
        let granted = match self.flow.pace.take(left.min(CHUNK_BYTES)) {
            Ok(granted) => granted,
            Err(time) => return Ok(Some(Pause::Sleep(time))),
        };
        let moved = take(link, parcel, hand.sent, granted, memory, &mut hand.tally);
        let moved = match moved {
            Moved::Fault(fault) => return Err(fault),
            Moved::Sent(result) => took(link, result.map(|count| usize::try_from(count).unwrap_or(usize::MAX)))?,
        };
        self.flow.pace.give_back(granted - *moved.as_ref().unwrap_or(&0) as u64);
        match moved {
            Ok(count) => {
                hand.sent += count as u64;
                self.flow.moved(count as u64);
                link.note_moved(count as u64);
                Ok(None)
            }
            Err(pause) => Ok(Some(pause)),
        }
    }
}

enum Moved {
    Sent(std::io::Result<u64>),
    Fault(Fault),
}

/// Sends up to `most` bytes of a parcel, from `sent` on.
fn take(link: &mut Link, parcel: &Parcel, sent: u64, most: u64, memory: &mut [u8], tally: &mut Tally) -> Moved {
    let start = usize::try_from(sent).unwrap_or(usize::MAX);
    let size = usize::try_from(most).unwrap_or(usize::MAX);
    let more = sent + most < parcel.range.length();
    let short = |at: u64| {
        let message = format!("the file of bytes {} ends {at} bytes in: it is shorter than its extent", parcel.range);
        Moved::Fault(Fault::new(FaultKind::Medium, message))
    };
    let unreadable = |error: std::io::Error| {
        Moved::Fault(Fault::new(FaultKind::Medium, format!("read bytes {}: {error}", parcel.range)))
    };
    match &parcel.body {
        Body::Memory(bytes) => {
            let bytes = (**bytes).as_ref();
            let end = start.saturating_add(size).min(bytes.len());
            Moved::Sent(link.send(&bytes[start..end], more).map(|count| count as u64))
        }
        Body::File(file, offset) if link.is_sealed() => {
            let size = size.min(memory.len()).min(super::link::SEAL_BYTES);
            match file.read_at(&mut memory[..size], offset + sent) {
                Ok(0) => short(sent),
                Err(error) => unreadable(error),
                Ok(read) => {
                    let taken = link.send(&memory[..read], more);
                    if let Ok(count) = &taken {
                        // A parcel is contiguous, so nothing is ever left over here.
                        tally.add(parcel.range.offset() + sent, &memory[..*count]);
                    }
                    Moved::Sent(taken.map(|count| count as u64))
                }
            }
        }
        Body::File(file, offset) => match link.send_file(file, offset + sent, most) {
            Ok(0) => short(sent),
            Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => unreadable(error),
            other => Moved::Sent(other),
        },
    }
}

/// Sorts out the error of a send: a full socket is a pause.
fn took(link: &Link, sent: std::io::Result<usize>) -> Result<Result<usize, Pause>, Fault> {
    match sent {
        Ok(count) => Ok(Ok(count)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(Err(Pause::Write)),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(Err(Pause::Again)),
        Err(error) => Err(broken(link, &error)),
    }
}
