//! The recall queue: stage requests, joined per bitfile, and what came of them.

use wire::id::{AccountName, RequestId};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Fence, NewRequest, RequestFilter, StageDemand, StageRecorded, StageRequest, Staged};

impl Catalog {
    /// Asks for bitfiles to be on disk, in one transaction however many. Requests for the same bitfile share one
    /// work item. One that is on disk already is completed at once and its promise to stay is extended. Answers in
    /// the order given.
    ///
    /// # Errors
    ///
    /// Only those of the database: a bitfile that does not exist or has no readable copy is a request that failed.
    pub async fn request_stage(&self, requests: Vec<NewRequest>) -> Result<Vec<StageRequest>> {
        let _ = requests;
        todo!()
    }

    /// Requests by number, in the order given; unknown and long forgotten ones are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn stage_requests(&self, ids: &[RequestId]) -> Result<Vec<StageRequest>> {
        let _ = ids;
        todo!()
    }

    /// Requests in the order in which they were asked.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list_requests(&self, filter: &RequestFilter) -> Result<Vec<StageRequest>> {
        let _ = filter;
        todo!()
    }

    /// Cancels requests, only those of `account` if it is given. Work that nobody else waits for is dropped.
    /// Returns those that were open.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn cancel_requests(&self, ids: Vec<RequestId>, account: Option<AccountName>) -> Result<Vec<RequestId>> {
        let _ = (ids, account);
        todo!()
    }

    /// What waits, by cartridge and account: what the scheduler needs to choose the next mount.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn stage_demand(&self) -> Result<Vec<StageDemand>> {
        todo!()
    }

    /// Records bitfiles that are on disk again: segments, disk copy, its expiry (counted from now), finished work,
    /// completed requests; one transaction. Answers in the order given.
    ///
    /// # Errors
    ///
    /// `Stale` if the fence's lease is lost: nothing is recorded then.
    pub async fn record_stage(&self, staged: Vec<Staged>, fence: Option<Fence>) -> Result<Vec<StageRecorded>> {
        let _ = (staged, fence);
        todo!()
    }

    /// Ends the promise of a staged copy early: it may be purged from now on.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release_stage(&self, bitfiles: Vec<wire::id::BitfileId>) -> Result<()> {
        let _ = bitfiles;
        todo!()
    }
}
