//! Many files under one number: asking, taking back, giving back; and where bitfiles are.
//!
//! Talks to the catalogue, whose transaction makes a bulk request durable before anybody is told its number. The
//! requests in it are those of the one recall queue.

use std::collections::{HashMap, HashSet};

use catalog::{Bulk, DISK_COPY, Located, NewBulk, NewBulkFile, VolumeState};
use wire::id::{AccountName, BitfileId, RequestId, VolumeLabel};

use super::{Ask, Hsm};
use crate::failure::Failure;

/// One file of a bulk request to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkWish {
    /// Its path as the client wrote it.
    pub path: String,
    /// What is wanted; or why it is refused, for people.
    pub ask: Result<Ask, String>,
}

/// Where a file's bytes are, for whoever plans by it.
///
/// # Source
///
/// WLCG Tape REST API v1, archiveinfo: the values of `locality`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locality {
    /// On disk, and not on every tape that its class of service wants.
    Disk,
    /// On tape only.
    Tape,
    /// On disk, and on every tape that its class of service wants.
    DiskAndTape,
    /// There is no copy left.
    Lost,
    /// It has no bytes.
    None,
    /// There are copies, and none of them can be reached at the moment.
    Unavailable,
}

impl Locality {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "DISK",
            Self::Tape => "TAPE",
            Self::DiskAndTape => "DISK_AND_TAPE",
            Self::Lost => "LOST",
            Self::None => "NONE",
            Self::Unavailable => "UNAVAILABLE",
        }
    }

    /// Pure. `disks` are the disk volumes that can be read now, `shut` the cartridges that are out of use.
    fn of(located: &Located, disks: &HashSet<VolumeLabel>, shut: &HashSet<VolumeLabel>) -> Self {
        if located.bitfile.size_bytes == 0 {
            return Self::None;
        }
        let disk = located.copy(DISK_COPY);
        let on_disk = located.on_disk().any(|copy| copy.lies_within(disks));
        let mut tapes = located.copies.iter().filter(|copy| !copy.is_on_disk() && copy.complete).peekable();
        let any_tape = tapes.peek().is_some();
        let readable = tapes.any(|copy| copy.segments.iter().all(|part| !shut.contains(&part.extent.volume)));
        let residency = located.bitfile.residency;
        let safe = readable && residency.tape_copies >= residency.tape_copies_wanted;
        match (on_disk, readable) {
            (true, _) if safe => Self::DiskAndTape,
            (true, _) => Self::Disk,
            (false, true) => Self::Tape,
            (false, false) if any_tape || disk.is_some() => Self::Unavailable,
            (false, false) => Self::Lost,
        }
    }
}

impl Hsm {
    /// Asks for many files under one number, which is durable when this returns.
    ///
    /// # Errors
    ///
    /// Those of the catalogue. A file that cannot be staged has failed.
    pub async fn stage_bulk(&self, id: String, account: AccountName, files: Vec<BulkWish>) -> Result<(), Failure> {
        let asks = files.iter().filter_map(|file| file.ask.clone().ok()).collect();
        let mut wishes = self.wishes(asks).await?.into_iter();
        let files = files.into_iter().filter_map(|file| {
            let wish = match file.ask {
                Ok(_) => Ok(wishes.next()?),
                Err(reason) => Err(reason),
            };
            Some(NewBulkFile { path: file.path, wish })
        });
        let files = files.collect();
        let requests = self.context.catalog.put_bulk(NewBulk { id, account, files }).await?;
        self.queued(&requests);
        Ok(())
    }

    /// A bulk request and how far each of its files is; `None` if there is none of that number, any more.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn bulk(&self, id: &str) -> Result<Option<Bulk>, Failure> {
        let bulk = self.context.catalog.bulk(id).await?;
        if let Some(ended) = bulk.as_ref().and_then(Bulk::ended) {
            self.context.catalog.end_bulk(id, ended).await?;
        }
        Ok(bulk)
    }

    /// How many bulk requests of an account are open: below `many` it may be fewer than this says, from there on not.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn open_bulks(&self, account: &AccountName, many: u64) -> Result<u64, Failure> {
        Ok(self.context.catalog.open_bulks(account, many).await?)
    }

    /// Takes back what is open of a bulk request, and forgets it.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn drop_bulk(&self, id: &str) -> Result<(), Failure> {
        let cancelled = self.context.catalog.drop_bulk(id).await?;
        self.context.ended(&cancelled);
        self.context.wakes.stage.notify_one();
        Ok(())
    }

    /// Gives back the disk copies that these completed requests are promised, only those of `account` if it is given.
    /// What somebody else wants stays.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn release_requests(
        &self,
        requests: Vec<RequestId>,
        account: Option<AccountName>,
    ) -> Result<(), Failure> {
        self.context.catalog.release_requests(requests, account).await?;
        self.context.wakes.purge.notify_one();
        Ok(())
    }

    /// Gives back the disk copies of these bitfiles as far as requests of this account hold them.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn release_for(&self, bitfiles: Vec<BitfileId>, account: &AccountName) -> Result<(), Failure> {
        self.context.catalog.release_for(bitfiles, account.clone()).await?;
        self.context.wakes.purge.notify_one();
        Ok(())
    }

    /// Where bitfiles are; one that does not exist (any more) is left out.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn localities(&self, bitfiles: &[BitfileId]) -> Result<HashMap<BitfileId, Locality>, Failure> {
        let located = self.context.catalog.locate(bitfiles).await?;
        let disks = self.context.reachable_disks().await?;
        let volumes = self.context.catalog.volumes().await?;
        let shut = volumes.into_iter().filter(|volume| volume.state == VolumeState::Disabled);
        let shut = shut.map(|volume| volume.label).collect();
        Ok(located.iter().map(|found| (found.bitfile.id, Locality::of(found, &disks, &shut))).collect())
    }
}
