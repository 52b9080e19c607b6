//! Freeing space: purge of disk copies, reclaim of what nobody can reach any more.

use std::time::Duration;

use wire::id::{BitfileId, VolumeLabel};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{PurgeCandidate, Purged, Reclaimed};

impl Catalog {
    /// Disk copies that begin on this volume and have all their tape copies, least recently used first, at most
    /// `limit`. Those promised to stay (pins, staged and not expired) are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn purge_candidates(&self, volume: &VolumeLabel, limit: u32) -> Result<Vec<PurgeCandidate>> {
        let _ = (volume, limit);
        todo!()
    }

    /// Staged disk copies whose promise has ended, those that ended first first, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn expired_copies(&self, limit: u32) -> Result<Vec<PurgeCandidate>> {
        let _ = limit;
        todo!()
    }

    /// Drops the disk copies of those bitfiles that may lose them, all in one transaction, and queues their files
    /// for reclaim. `idle` is for how long a copy must not have been read.
    ///
    /// # Errors
    ///
    /// Only those of the database: why a copy was kept is in the answer, which is in the order of `bitfiles`.
    pub async fn purge(&self, bitfiles: Vec<BitfileId>, idle: Duration) -> Result<Vec<(BitfileId, Purged)>> {
        let _ = (bitfiles, idle);
        todo!()
    }

    /// Removes bitfiles whose undelete window has closed, cut uploads that have expired, pins and stage requests
    /// that ended long ago, at most `limit` of each, and queues their files for reclaim.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn reclaim(&self, limit: u32) -> Result<Reclaimed> {
        let _ = limit;
        todo!()
    }
}
