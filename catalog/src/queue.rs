//! The durable work queue: enqueue, claim with a lease, renew, finish, fail, cancel.

use std::time::Duration;

use wire::id::{BitfileId, WorkId};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Claim, NewWork, PoolDemand, Ticket, WorkFailure, WorkItem, WorkKind};

impl Catalog {
    /// Queues work. An item of the same kind for the same subject is there once: it comes forward to the earlier of
    /// both start times. Returns its number, new or old, in the order given.
    ///
    /// # Errors
    ///
    /// `NotFound` if a bitfile does not exist.
    pub async fn enqueue(&self, work: Vec<NewWork>) -> Result<Vec<WorkId>> {
        let _ = work;
        todo!()
    }

    /// Queues migration of these bitfiles to start now, for `penstock admin migrate`; those that have all their
    /// tape copies are passed over. Returns how many are queued.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn migrate_now(&self, bitfiles: Vec<BitfileId>) -> Result<u64> {
        let _ = bitfiles;
        todo!()
    }

    /// Claims due items under one key, those due first first. Two callers never claim the same item; a claim whose
    /// lease ran out is due again.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<WorkItem>> {
        let _ = claim;
        todo!()
    }

    /// Extends the lease of claims. Returns those still in force; the others are lost and must be dropped.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn renew(&self, tickets: Vec<Ticket>, lease: Duration) -> Result<Vec<Ticket>> {
        let _ = (tickets, lease);
        todo!()
    }

    /// Removes work that is done and leaves no other record (reclaim, verify, repack of a volume). Returns the
    /// claims that were in force.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn finish(&self, tickets: Vec<Ticket>) -> Result<Vec<Ticket>> {
        let _ = tickets;
        todo!()
    }

    /// Notes failures and what happens next. Claims no longer in force are passed over. Returns the claims that
    /// were in force.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn fail(&self, failures: Vec<WorkFailure>) -> Result<Vec<Ticket>> {
        let _ = failures;
        todo!()
    }

    /// Removes items whoever holds them; stage requests that wait for them are cancelled. Returns those that were
    /// there.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn cancel_work(&self, work: Vec<WorkId>) -> Result<Vec<WorkId>> {
        let _ = work;
        todo!()
    }

    /// Makes items due now that wait for their next attempt or for a person. Returns those that were there.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn retry_work(&self, work: Vec<WorkId>) -> Result<Vec<WorkId>> {
        let _ = work;
        todo!()
    }

    /// Gives up work whose deadline has passed and fails stage requests whose deadline has passed, at most `limit`
    /// of each; a stage that nobody wants any more is dropped. Returns how many requests failed.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn expire(&self, limit: u32) -> Result<u64> {
        let _ = limit;
        todo!()
    }

    /// What is due of one kind, by key. Costs by the number of keys and of due items up to a limit, not by the
    /// length of the queue.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn demand(&self, kind: WorkKind) -> Result<Vec<PoolDemand>> {
        let _ = kind;
        todo!()
    }

    /// Items by number, of one kind or of all, behind `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn work_items(&self, kind: Option<WorkKind>, after: Option<WorkId>, limit: u32) -> Result<Vec<WorkItem>> {
        let _ = (kind, after, limit);
        todo!()
    }
}
