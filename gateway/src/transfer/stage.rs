//! What a retrieve needs of the recall queue: the seam between transfers and hierarchical storage.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use wire::id::BitfileId;

use crate::{failure::Failure, identity::Principal};

/// How a wish to have a file on disk fares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// How many requests are before this one.
    pub ahead: Option<u64>,
    /// When it will be there, as far as can be told.
    pub estimate: Option<Duration>,
    /// Why it waits, for people.
    pub reason: String,
}

/// Brings files from tape to disk.
#[async_trait]
pub trait Stager: Send + Sync {
    /// Returns when the bitfile is on disk, where it then stays long enough to be read. Says on `progress` how it fares,
    /// whenever that changes; whoever is slow to listen misses some. Dropping the future withdraws the wish.
    ///
    /// # Errors
    ///
    /// What the request came to, if it did not come to disk.
    async fn stage(
        &self,
        bitfile: BitfileId,
        principal: &Principal,
        progress: mpsc::Sender<Waiting>,
    ) -> Result<(), Failure>;

    /// Asks for the bitfile and does not wait: the wish stays in the queue. `None` if it is on disk already.
    ///
    /// # Errors
    ///
    /// What the request came to, if that is known already.
    async fn request(&self, bitfile: BitfileId, principal: &Principal) -> Result<Option<Waiting>, Failure> {
        let _ = (bitfile, principal);
        Ok(Some(Waiting { ahead: None, estimate: None, reason: "it is in the queue".to_owned() }))
    }

    /// A file was published: it may be due to sink, and there is less room than before.
    fn published(&self) {}

    /// A file lost its name, or its bytes: who waits for them waits in vain, and there is space to be freed.
    fn deleted(&self) {}

    /// An upload found no room for so many bytes on the volumes of this pool.
    fn no_room(&self, pool: &str, bytes: u64) {
        let _ = (pool, bytes);
    }
}
