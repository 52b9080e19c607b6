//! Downloads for clients that cannot be connected to: movers listen, several sessions fetch ranges.
//!
//! Owns the ranges that nobody has fetched yet. With delayed passive the server names the mover that holds a range after
//! it knows which, so that data still takes no detour.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;
use wire::{
    extent::ByteRange,
    ftp::{Command, EpsvArgument, FtpPath, Part, Reply, RestartPoint, TransferMode},
};

use crate::{Client, ClientError, Fetch, How, Ready, Result, data::Opening, get::finish, receive::Receiving};

/// Sizes of the ranges fetched one by one when movers listen.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = (16 << 20)..=(1 << 30);

impl Client<Ready> {
    /// The movers listen; several sessions connect and fetch ranges.
    pub(crate) async fn pull(
        &mut self,
        fetch: &Fetch,
        how: &How,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let size = receiving.file.size_bytes();
        let whole = ByteRange::between(0, size).map_err(|error| ClientError::BadData {
            peer: self.control.server().to_owned(),
            reason: error.to_string(),
        })?;
        let missing = receiving.file.coverage().missing_in(whole);
        let ranged = self.features.has("ERET");
        let streams = if ranged { u64::from(how.streams.max(1)) } else { 1 };
        let pieces = if ranged { cut(&missing, streams) } else { missing };
        let count = pieces.len().min(usize::try_from(streams).unwrap_or(1));
        let pieces = Mutex::new(pieces.into_iter().rev().collect::<Vec<_>>());
        let mut others = Vec::new();
        for _ in 1..count {
            // Fewer sessions are slower, not wrong.
            match self.another().await {
                Ok(session) => others.push(session),
                Err(error) => {
                    tracing::debug!(%error, "no further session");
                    break;
                }
            }
        }
        let stop = cancel.child_token();
        let own = self.pull_pieces(&pieces, ranged, &fetch.remote, receiving, &stop);
        let theirs = others.iter_mut().map(|other| other.pull_pieces(&pieces, ranged, &fetch.remote, receiving, &stop));
        let (own, theirs) = futures::future::join(own, futures::future::join_all(theirs)).await;
        let results = theirs.into_iter().chain([own]);
        for other in others {
            tokio::spawn(other.quit());
        }
        // The others were stopped because of the first that failed.
        let mut errors: Vec<ClientError> = results.filter_map(Result::err).collect();
        errors.sort_by_key(|error| matches!(error, ClientError::Cancelled));
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn pull_pieces(
        &mut self,
        pieces: &Mutex<Vec<ByteRange>>,
        ranged: bool,
        remote: &FtpPath,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let work = async {
            self.set_mode(TransferMode::Stream).await?;
            loop {
                let piece = pieces.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(piece) = piece else { return Ok(()) };
                self.pull_piece(piece, ranged, remote, receiving, cancel).await?;
            }
        };
        // One that failed stops the others: what is missing is fetched again later.
        work.await.inspect_err(|_: &ClientError| cancel.cancel())
    }

    async fn pull_piece(
        &mut self,
        piece: ByteRange,
        ranged: bool,
        remote: &FtpPath,
        receiving: &Arc<Receiving>,
        cancel: &CancellationToken,
    ) -> Result<()> {
        let to_the_end = piece.end() == receiving.file.size_bytes();
        let command = if ranged && !(piece.offset() == 0 && to_the_end) {
            Command::Eret(Part { offset_bytes: piece.offset(), length_bytes: piece.length(), path: remote.clone() })
        } else {
            Command::Retr(remote.clone())
        };
        let opening = Opening::of(self);
        let mut address = self.passive_for_transfer().await?;
        if piece.offset() > 0 && matches!(command, Command::Retr(_)) {
            self.restart(RestartPoint::Offset(piece.offset())).await?;
        }
        self.control.queue(&command);
        self.control.flush().await?;
        let mut receiver = address.take().map(|address| start(&opening, address, receiving, piece));
        let mut received: Option<Result<()>> = None;
        let mut last: Option<Reply> = None;
        loop {
            tokio::select! {
                reply = self.control.reply("the transfer", self.control.limits.begin), if last.is_none() => {
                    let reply = reply.inspect_err(|_| opening.stops.stop())?;
                    if matches!(reply.code(), 127 | 129) && receiver.is_none() {
                        let address = self.address_of(&reply)?;
                        receiver = Some(start(&opening, address, receiving, piece));
                    } else if !reply.is_preliminary() {
                        last = Some(reply);
                    }
                }
                result = async { receiver.as_mut().expect("checked").await }, if receiver.is_some() && received.is_none() => {
                    received = Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
                    // Without ERET the server goes on behind the range; the closed connection tells it not to.
                    if received.as_ref().is_some_and(Result::is_err) {
                        opening.stops.stop();
                    }
                }
                () = cancel.cancelled() => {
                    opening.stops.stop();
                    if let Some(receiver) = receiver.take().filter(|_| received.is_none()) {
                        let _ = receiver.await;
                    }
                    if last.is_none() {
                        self.abort().await?;
                    }
                    return Err(ClientError::Cancelled);
                }
            }
            // Without ERET the server was cut off behind the range, and says so; the range came all the same.
            let cut_off = received.as_ref().is_some_and(Result::is_ok) && !to_the_end;
            match (&last, &received) {
                (Some(reply), _) if !reply.is_success() && !cut_off => {
                    opening.stops.stop();
                    return finish(&command, last, received.and_then(Result::err));
                }
                (Some(_), Some(_)) => {
                    return finish(&command, None, received.and_then(Result::err));
                }
                (Some(reply), None) if receiver.is_none() => {
                    return Err(ClientError::refused(&command, reply.clone()));
                }
                _ => {}
            }
        }
    }

    /// Asks for a passive address for a file: delayed if the server can, so that the right mover answers.
    pub(crate) async fn passive_for_transfer(&mut self) -> Result<Option<SocketAddr>> {
        if self.state.network.told_early || !self.features.delayed_passive() {
            return self.passive_now().await.map(Some);
        }
        self.set_delayed(true).await?;
        let command = Command::Epsv(EpsvArgument::Same);
        let reply = self.demand(&command).await?;
        if matches!(reply.code(), 227 | 229) { self.address_of(&reply).map(Some) } else { Ok(None) }
    }
}

type Receiver = tokio::task::JoinHandle<Result<()>>;

fn start(opening: &Opening, address: SocketAddr, receiving: &Arc<Receiving>, piece: ByteRange) -> Receiver {
    let (opening, receiving) = (opening.clone(), receiving.clone());
    tokio::task::spawn_blocking(move || receiving.range(opening.connect(address)?, piece, opening.stall_limit))
}

/// Cuts what is missing into ranges that sessions fetch one after the other.
fn cut(missing: &[ByteRange], streams: u64) -> Vec<ByteRange> {
    let total: u64 = missing.iter().map(|range| range.length()).sum();
    let piece = (total / streams / 2).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end());
    let parts = |range: &ByteRange| u16::try_from(range.length().div_ceil(piece)).unwrap_or(u16::MAX);
    missing.iter().flat_map(|range| range.regions(parts(range), 1 << 20)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_cut_for_all_sessions() {
        let range = |start, end| ByteRange::between(start, end).unwrap();
        let pieces = cut(&[range(0, 1 << 30), range(2 << 30, (2 << 30) + 5)], 4);
        assert_eq!(pieces.len(), 9);
        assert_eq!(pieces.iter().map(|piece| piece.length()).sum::<u64>(), (1 << 30) + 5);
        assert_eq!(cut(&[range(3, 10)], 8), [range(3, 10)]);
    }
}
