//! Bitfiles: publishing, partial uploads, where copies are, pins, access times.

use wire::id::{AccountName, BitfileId, EntryId};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Located, NewFile, NewPartial, Page, Partial, Pin, Published, VolumeFile};
use crate::time::Timestamp;

impl Catalog {
    /// Publishes a file whose bytes are synced on its movers: name, bitfile, disk copy, segments, quota, migration
    /// work and the old bitfile's move to the undelete window, all or nothing.
    ///
    /// When it returns, the file is on stable storage. Many calls at once are much cheaper than one after the other.
    ///
    /// # Errors
    ///
    /// `NotFound` (parent, class of service, base), `NotADirectory`, `IsADirectory`, `Exists`, `Changed`,
    /// `QuotaExceeded`, `InvalidName`, `NameTooLong`; `Inconsistent` if the segments do not cover the file.
    pub async fn publish(&self, file: NewFile) -> Result<Published> {
        let _ = file;
        todo!()
    }

    /// Bitfiles with their copies and segments, in one round trip. Unknown ones are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn locate(&self, bitfiles: &[BitfileId]) -> Result<Vec<Located>> {
        let _ = bitfiles;
        todo!()
    }

    /// One bitfile with its copies and segments.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn locate_one(&self, bitfile: BitfileId) -> Result<Located> {
        let _ = bitfile;
        todo!()
    }

    /// Notes that a bitfile is being read, for the order of purging. Costs nothing now: times are kept to within a
    /// minute and written once a second, in bulk.
    pub fn touch(&self, bitfile: BitfileId) {
        let _ = bitfile;
    }

    /// Keeps what has arrived of a cut upload. What was saved before for the same directory, name and account
    /// stays and is joined.
    ///
    /// # Errors
    ///
    /// `NotFound` (parent); `Inconsistent` if segments overlap what is saved.
    pub async fn save_partial(&self, partial: NewPartial) -> Result<Partial> {
        let _ = partial;
        todo!()
    }

    /// What is kept of this account's cut upload to this name, unless it has expired.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn find_partial(&self, parent: EntryId, name: &str, account: &AccountName) -> Result<Option<Partial>> {
        let _ = (parent, name, account);
        todo!()
    }

    /// Gives up a cut upload now; its files are reclaimed.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn discard_partial(&self, partial: BitfileId) -> Result<()> {
        let _ = partial;
        todo!()
    }

    /// Promises that the disk copies of these bitfiles stay. A later time extends an earlier pin of the same
    /// holder; `until` in the past removes it.
    ///
    /// # Errors
    ///
    /// Only those of the database. Unknown bitfiles are passed over.
    pub async fn pin(&self, bitfiles: Vec<BitfileId>, holder: &str, until: Timestamp) -> Result<()> {
        let _ = (bitfiles, holder, until);
        todo!()
    }

    /// Removes one holder's pins on these bitfiles.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn unpin(&self, bitfiles: Vec<BitfileId>, holder: &str) -> Result<()> {
        let _ = (bitfiles, holder);
        todo!()
    }

    /// Pins in force on a bitfile, or on all of them, by bitfile and holder.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn pins(&self, bitfile: Option<BitfileId>, after: Option<&str>, limit: u32) -> Result<Page<Pin>> {
        let _ = (bitfile, after, limit);
        todo!()
    }

    /// Which of these files of disk volumes the catalogue does not know: no bitfile and no cut upload has a segment
    /// there, and none is queued for reclaim. One statement for all.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn unknown_files(&self, files: &[VolumeFile]) -> Result<Vec<VolumeFile>> {
        let _ = files;
        todo!()
    }
}
