//! Movers in this process, as far as a door reads from them without a connection.

use std::{collections::BTreeMap, fmt, sync::Arc};

use bytes::Bytes;
use futures::stream::BoxStream;
use wire::{
    id::MoverId,
    mover::{Fault, Piece},
};

/// A mover in the same process. Whoever starts both hands it to the gateway, which knows no mover's code.
pub trait Neighbour: Send + Sync {
    /// The bytes of these pieces of its disk volumes, in order and without gaps. A piece that comes with sums is compared
    /// with them, and its last bytes are not given if it is another. Holds a bounded number of buffers; waits for them,
    /// and for whoever takes the bytes.
    fn read(&self, pieces: Vec<Piece>) -> BoxStream<'static, Result<Bytes, Fault>>;
}

/// The movers in this process; none if the gateway runs alone. Cheap to clone.
#[derive(Clone, Default)]
pub struct Neighbours(Arc<BTreeMap<MoverId, Arc<dyn Neighbour>>>);

impl Neighbours {
    /// The mover of this name, if it is one.
    #[must_use]
    pub fn get(&self, mover: &MoverId) -> Option<&Arc<dyn Neighbour>> {
        self.0.get(mover)
    }
}

impl FromIterator<(MoverId, Arc<dyn Neighbour>)> for Neighbours {
    fn from_iter<I: IntoIterator<Item = (MoverId, Arc<dyn Neighbour>)>>(neighbours: I) -> Self {
        Self(Arc::new(neighbours.into_iter().collect()))
    }
}

impl fmt::Debug for Neighbours {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}
