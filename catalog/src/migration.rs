//! What is on tape: recording containers written by migration and repack.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{ContainerRecorded, WrittenContainer};

impl Catalog {
    /// Records a container that is safely on tape (the synchronous filemark succeeded and the position is right):
    /// the cartridge's new end of data, tape copies and segments of its members, finished work. One transaction, a
    /// few statements however many members.
    ///
    /// Under a repack claim the copy moves: the segments it had on the repacked volume are replaced.
    ///
    /// # Errors
    ///
    /// `Stale` if the catalogue's end of data is not `before`, or the fence's lease is lost; `NotFound` for the
    /// volume; `Inconsistent` if a segment lies on another volume. Nothing is recorded then.
    pub async fn record_container(&self, container: WrittenContainer) -> Result<ContainerRecorded> {
        let _ = container;
        todo!()
    }
}
