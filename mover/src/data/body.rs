//! The body of an HTTP request as the one connection of a data endpoint.
//!
//! Owns the connection while the body comes, and gives it back to the HTTP door behind the last byte, or with the fault
//! that ended it, so that the client is answered on it. Talks to an [`Intake`] as every received byte does. Never answers.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use crc_fast::{CrcAlgorithm, Digest};
use futures::FutureExt as _;
use tokio::sync::oneshot;
use wire::{
    extent::ByteRange,
    mover::{BodyReport, BodySpec, BodySum, Fault, FaultKind},
};

use super::{
    coding::{Decoder, Length},
    flow::Flow,
    link::{Link, Stage},
    receive::{Intake, Lane, received},
    send::send_bytes,
    turn::{Pause, Turns, broken, take_turn},
};

/// What a client waits for that sent `Expect: 100-continue` (RFC 9110 section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A request whose body has not been read.
pub(crate) struct Offered {
    pub(crate) link: Link,
    pub(crate) length: Length,
    /// What came of it with the request's head.
    pub(crate) early: Vec<u8>,
    /// The client waits until it is told to send.
    pub(crate) waits: bool,
    pub(crate) back: oneshot::Sender<Returned>,
}

/// A connection that is given back.
pub(crate) struct Returned {
    pub(crate) link: Link,
    /// The body was read to its end and nothing else: the connection can carry another request.
    pub(crate) clean: bool,
}

impl Offered {
    /// Gives the connection back with the body unread.
    pub(super) fn give_back(self) {
        let _ = self.back.send(Returned { link: self.link, clean: false });
    }
}

/// Receives a body; its first byte is at `at` of the transfer.
///
/// # Errors
///
/// What the client did wrong, or what the intake said.
pub(super) async fn receive<I: Intake>(
    offered: Offered,
    spec: &BodySpec,
    at: u64,
    stall_limit: Duration,
    intake: Arc<I>,
    flow: Arc<Flow>,
    turns: Turns,
) -> Result<BodyReport, Fault> {
    let hand = Hand {
        decoder: Decoder::new(offered.length, spec.coding),
        summing: spec.sum.map(Summing::new),
        early: offered.early,
        at,
    };
    let client = Client { link: offered.link, waits: offered.waits, back: offered.back };
    let receiving = run(client, hand, spec, intake.clone(), flow.clone(), turns).boxed();
    tokio::select! {
        biased;
        received = receiving => received,
        fault = flow.stalled(stall_limit, || intake.is_our_wait()) => Err(fault),
    }
}

struct Client {
    link: Link,
    waits: bool,
    back: oneshot::Sender<Returned>,
}

/// How far the body is.
struct Hand {
    decoder: Decoder,
    summing: Option<Summing>,
    early: Vec<u8>,
    at: u64,
}

async fn run<I: Intake>(
    client: Client,
    mut hand: Hand,
    spec: &BodySpec,
    intake: Arc<I>,
    flow: Arc<Flow>,
    turns: Turns,
) -> Result<BodyReport, Fault> {
    let Client { mut link, waits, back } = client;
    if waits && hand.early.is_empty() {
        send_bytes(&mut link, CONTINUE).await?;
    }
    let mut lane = intake.lane();
    let mut pause = Pause::Again;
    loop {
        match pause {
            Pause::Read | Pause::Write => {
                if !link.has_plaintext() {
                    link.readable().await.map_err(|error| broken(&link, &error))?;
                }
            }
            Pause::OurSide => {
                let _waiting = flow.waiting();
                lane.room(hand.at).await;
            }
            Pause::Sleep(time) => {
                let _waiting = flow.waiting();
                tokio::time::sleep(time).await;
            }
            Pause::Again => {}
            Pause::Done { .. } => break,
        }
        let waiting = flow.waiting();
        let (inner, counted) = (intake.clone(), flow.clone());
        let turn = turns.run(move |turn| {
            let paused = hand.turn(&mut link, &mut lane, &*inner, &counted, &mut turn.block);
            counted.count("http", link.security(), link.take_moved());
            (link, lane, hand, paused)
        });
        let paused;
        (link, lane, hand, paused) = turn.await?;
        drop(waiting);
        pause = match paused {
            Ok(pause) => pause,
            Err(fault) => {
                let _ = back.send(Returned { link, clean: false });
                return Err(fault);
            }
        };
    }
    let report = hand.finish(spec, &link);
    let clean = report.is_ok() && hand.early.is_empty() && !hand.decoder.has_surplus();
    let _ = back.send(Returned { link, clean });
    report
}

impl Hand {
    /// Moves what there is. Blocks.
    fn turn<L: Lane>(
        &mut self,
        link: &mut Link,
        lane: &mut L,
        intake: &impl Intake,
        flow: &Flow,
        memory: &mut [u8],
    ) -> Result<Pause, Fault> {
        let (mut stage, scratch) = link.stage(memory);
        let paused = take_turn(link, flow, |link| self.step(link, lane, intake, flow, scratch, &mut stage));
        link.unstage(&stage);
        lane.flush()?;
        paused
    }

    fn step<L: Lane>(
        &mut self,
        link: &mut Link,
        lane: &mut L,
        intake: &impl Intake,
        flow: &Flow,
        scratch: &mut [u8],
        stage: &mut Stage<'_>,
    ) -> Result<Option<Pause>, Fault> {
        if self.decoder.is_over() {
            return Ok(Some(Pause::Done { keep: false }));
        }
        let Some(space) = lane.space(self.at, scratch) else { return Ok(Some(Pause::OurSide)) };
        let granted = match flow.pace.take(self.decoder.wants().min(space.len() as u64)) {
            Ok(granted) => granted,
            Err(time) => return Ok(Some(Pause::Sleep(time))),
        };
        let size = usize::try_from(granted).map_or(space.len(), |granted| granted.min(space.len()));
        let got = self.fetch(link, &mut space[..size], stage)?;
        flow.pace.give_back(granted - *got.as_ref().unwrap_or(&0) as u64);
        let got = match got {
            Ok(0) => {
                let message = format!("{} closed its connection in the middle of its body", link.peer());
                return Err(Fault::new(FaultKind::PeerLost, message));
            }
            Ok(got) => got,
            Err(pause) => return Ok(Some(pause)),
        };
        let protocol = |error| Fault::new(FaultKind::PeerProtocol, format!("body from {}: {error}", link.peer()));
        let count = self.decoder.decode(&mut space[..got]).map_err(protocol)?;
        if let Some(summing) = &mut self.summing {
            summing.add(&space[..count]);
        }
        if count > 0 {
            let range = ByteRange::new(self.at, count as u64).map_err(|error| Fault::new(FaultKind::TooLong, error))?;
            intake.claim(range)?;
            lane.filled(self.at, count, scratch)?;
            flow.moved(count as u64);
            link.note_moved(count as u64);
            self.at = range.end();
        }
        Ok(None)
    }

    /// The next bytes as they come: those that came with the head first.
    fn fetch(
        &mut self,
        link: &mut Link,
        space: &mut [u8],
        stage: &mut Stage<'_>,
    ) -> Result<Result<usize, Pause>, Fault> {
        if self.early.is_empty() {
            return received(link, |link| link.receive(space, stage));
        }
        let count = space.len().min(self.early.len());
        space[..count].copy_from_slice(&self.early[..count]);
        self.early.drain(..count);
        Ok(Ok(count))
    }

    fn finish(&mut self, spec: &BodySpec, link: &Link) -> Result<BodyReport, Fault> {
        let protocol = |error| Fault::new(FaultKind::PeerProtocol, format!("body from {}: {error}", link.peer()));
        let trailer = self.decoder.trailer(spec.trailer.as_deref()).map_err(protocol)?;
        Ok(BodyReport { sum: self.summing.take().map(Summing::finish), trailer })
    }
}

/// A sum in the making.
enum Summing {
    /// So many bytes of it count.
    Crc(Box<Digest>, usize),
    Sha(Context),
}

impl Summing {
    fn new(sum: BodySum) -> Self {
        match sum {
            BodySum::Crc32 => Self::Crc(Box::new(Digest::new(CrcAlgorithm::Crc32IsoHdlc)), 4),
            BodySum::Crc32c => Self::Crc(Box::new(Digest::new(CrcAlgorithm::Crc32Iscsi)), 4),
            BodySum::Crc64Nvme => Self::Crc(Box::new(Digest::new(CrcAlgorithm::Crc64Nvme)), 8),
            BodySum::Sha1 => Self::Sha(Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
            BodySum::Sha256 => Self::Sha(Context::new(&SHA256)),
        }
    }

    fn add(&mut self, data: &[u8]) {
        match self {
            Self::Crc(digest, _) => digest.update(data),
            Self::Sha(context) => context.update(data),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc(digest, bytes) => digest.finalize().to_be_bytes()[8 - bytes..].to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_known_text_are_those_of_the_standards() {
        let of = |sum| {
            let mut summing = Summing::new(sum);
            summing.add(b"1234");
            summing.add(b"56789");
            hex::encode(summing.finish())
        };
        assert_eq!(of(BodySum::Crc32), "cbf43926");
        assert_eq!(of(BodySum::Crc32c), "e3069283");
        assert_eq!(of(BodySum::Crc64Nvme), "ae8b14860a799888");
        assert_eq!(of(BodySum::Sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert_eq!(of(BodySum::Sha256), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
    }
}
