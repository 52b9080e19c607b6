//! Sends a file to a door of this process from movers of this process: no data channel, no second hop.
//!
//! Owns nothing. Takes the bytes of [`crate::movers::Neighbour`]s and hands them to the door, piece by piece, for as long
//! as it takes them.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio::{sync::mpsc, time::timeout};
use wire::{
    id::{BitfileId, MoverId},
    mover::Piece,
};

use super::{plan::read::ReadPlan, retrieve::Broken, task::Task};
use crate::{
    failure::{Failure, FailureKind},
    movers::{MoverError, Neighbours},
};

/// A door that takes bytes in this process.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    pub(crate) into: mpsc::Sender<Bytes>,
    /// How long it may take nothing.
    pub(crate) stall_limit: Duration,
}

/// What neighbours send, in the order of the file; `None` if some of it is elsewhere.
pub(super) fn pieces(plan: &ReadPlan, neighbours: &Neighbours) -> Option<Vec<(MoverId, Vec<Piece>)>> {
    let legs = plan.legs.iter().map(|leg| (&leg.mover, &leg.pieces));
    let behind = plan.relay.iter().flat_map(|relay| relay.senders.iter().map(|(mover, pieces)| (mover, pieces)));
    let mut all = Vec::new();
    for (mover, pieces) in legs.chain(behind) {
        neighbours.get(mover)?;
        all.extend(pieces.iter().map(|piece| (mover, piece)));
    }
    all.sort_by_key(|(_, piece)| piece.offset_bytes);
    let mut runs: Vec<(MoverId, Vec<Piece>)> = Vec::new();
    for (mover, piece) in all {
        match runs.last_mut() {
            Some((last, pieces)) if last == mover => pieces.push(piece.clone()),
            _ => runs.push((mover.clone(), vec![piece.clone()])),
        }
    }
    Some(runs)
}

/// Reads what [`pieces`] found and hands it to the door; how many bytes it took.
pub(super) async fn send(
    task: &Task,
    neighbours: &Neighbours,
    runs: Vec<(MoverId, Vec<Piece>)>,
    here: &Here,
    bitfile: BitfileId,
) -> Result<u64, Broken> {
    let mut bytes = 0;
    for (mover, pieces) in runs {
        let gone = || Failure::new(FailureKind::Internal, format_args!("mover {mover} is in this process no more"));
        let mut left: u64 = pieces.iter().map(|piece| piece.extent.length_bytes).sum();
        let mut read = neighbours.get(&mover).ok_or_else(gone)?.read(pieces);
        // Not until the stream's end: whoever has the last byte is gone a moment later.
        while left > 0 {
            // Buffers are given back as other clients take their bytes; somebody who takes none must not stop the rest.
            let next = task.unless_stopped(timeout(task.inner.limits.data_open, read.next())).await?;
            let busy = |_| {
                let advice = format_args!("mover {mover} has no memory to read with for too long: try again later");
                Failure::new(FailureKind::Busy, advice).retry_after(Duration::from_secs(10))
            };
            let short = || Failure::new(FailureKind::Damaged, format_args!("mover {mover} gave less than it has"));
            let piece = next.map_err(busy)?.ok_or_else(short)?.map_err(|fault| {
                let error = MoverError::Refused { mover: mover.clone(), fault };
                Broken { elsewhere: bytes == 0 && error.worth_trying_elsewhere(), failure: error.into() }
            })?;
            let length = piece.len() as u64;
            let taken = task.unless_stopped(timeout(here.stall_limit, here.into.send(piece))).await?;
            if !matches!(taken, Ok(Ok(()))) {
                let advice = "the client is gone, or takes nothing";
                return Err(Failure::new(FailureKind::DataConnectionLost, advice).into());
            }
            left = left.saturating_sub(length);
            bytes += length;
            metrics::counter!("penstock_direct_bytes_total", "door" => task.port.spec.door).increment(length);
            task.card().moved(bytes);
            // A file that is being read is not purged.
            task.inner.catalog.touch(bitfile);
        }
    }
    Ok(bytes)
}
