//! Movers beside a gateway in one process: where `gateway` and `mover`, which do not know each other, meet.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use gateway::movers::{Neighbour, Neighbours};
use mover::{Mover, Reader};
use wire::mover::{Fault, Piece};

struct Beside(Reader);

impl Neighbour for Beside {
    fn read(&self, pieces: Vec<Piece>) -> BoxStream<'static, Result<Bytes, Fault>> {
        self.0.read(pieces)
    }
}

/// What a gateway in the same process is told of its movers.
#[must_use]
pub fn neighbours<'a>(movers: impl IntoIterator<Item = &'a Mover>) -> Neighbours {
    let beside = |mover: &Mover| -> Arc<dyn Neighbour> { Arc::new(Beside(mover.reader())) };
    movers.into_iter().map(|mover| (mover.name().clone(), beside(mover))).collect()
}
