//! The handle: opening a database, handing out identifiers.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::time::{Clock, Timestamp};

/// How a catalogue is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many connections read at the same time.
    pub readers: u32,
    /// Says what time it is.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self { readers: 4, clock: Clock::default() }
    }
}

/// A catalogue. Clones share connections, the writing task and the identifiers in hand.
#[derive(Clone)]
pub struct Catalog(Arc<Inner>);

struct Inner {
    clock: Clock,
}

impl Catalog {
    /// Opens the database at `url` and brings its tables up to date.
    ///
    /// `sqlite:PATH` is a file, made if it is not there; `postgres://…` is an existing database. Several gateways
    /// may open one PostgreSQL database at the same moment: one of them migrates, the others wait.
    ///
    /// # Errors
    ///
    /// [`crate::CatalogError::Unavailable`] if the database cannot be reached, [`crate::CatalogError::Corrupt`] if
    /// its tables are not ours or newer than this program.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let _ = url;
        Ok(Self(Arc::new(Inner { clock: options.clock })))
    }

    /// Waits until what was asked to be written is written, notes when files were read last, and closes every
    /// connection. Calls on any clone fail as unavailable afterwards.
    pub async fn close(&self) {
        todo!()
    }

    /// Whether the database answers, for `/healthz`.
    ///
    /// # Errors
    ///
    /// [`crate::CatalogError::Unavailable`] if it does not.
    pub async fn ping(&self) -> Result<()> {
        todo!()
    }

    /// An identifier that nobody has had before. Costs a database write once in 65,536 times.
    ///
    /// # Errors
    ///
    /// [`crate::CatalogError::Unavailable`] if the next block of numbers cannot be had.
    pub async fn next_id(&self) -> Result<u64> {
        Ok(self.next_ids(1).await?.start)
    }

    /// `count` identifiers in a row that nobody has had before.
    ///
    /// # Errors
    ///
    /// As [`Catalog::next_id`].
    pub async fn next_ids(&self, count: u32) -> Result<Range<u64>> {
        let _ = count;
        todo!()
    }

    /// What time it is by the catalogue's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}
