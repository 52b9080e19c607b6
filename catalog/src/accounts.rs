//! Accounts, groups, certificate mappings, quotas.

use wire::id::AccountName;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Account, Mapping, NewAccount, QuotaSubject, Usage};

impl Catalog {
    /// Makes an account, or changes it to what is given.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn put_account(&self, account: NewAccount) -> Result<()> {
        let _ = account;
        todo!()
    }

    /// One account; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn account(&self, name: &AccountName) -> Result<Option<Account>> {
        let _ = name;
        todo!()
    }

    /// All accounts, by name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn accounts(&self) -> Result<Vec<Account>> {
        todo!()
    }

    /// Removes an account with its certificate mappings.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InUse` while it owns files.
    pub async fn remove_account(&self, name: &AccountName) -> Result<()> {
        let _ = name;
        todo!()
    }

    /// Maps a certificate's subject to an account, which replaces an earlier mapping of that subject.
    ///
    /// # Errors
    ///
    /// `NotFound` for the account.
    pub async fn map_subject(&self, subject: &str, account: &AccountName) -> Result<()> {
        let _ = (subject, account);
        todo!()
    }

    /// Removes a mapping.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn unmap_subject(&self, subject: &str) -> Result<()> {
        let _ = subject;
        todo!()
    }

    /// The account a certificate's subject means; `None` if it is not mapped.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn account_of_subject(&self, subject: &str) -> Result<Option<Account>> {
        let _ = subject;
        todo!()
    }

    /// All mappings, by subject.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn mappings(&self) -> Result<Vec<Mapping>> {
        todo!()
    }

    /// Sets what somebody may have; `None` is no limit. What they have already stays, even if it is more.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn set_quota(
        &self,
        subject: QuotaSubject,
        limit_bytes: Option<u64>,
        limit_files: Option<u64>,
    ) -> Result<()> {
        let _ = (subject, limit_bytes, limit_files);
        todo!()
    }

    /// What somebody has and may have; nothing if they never had any.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn usage(&self, subject: &QuotaSubject) -> Result<Usage> {
        let _ = subject;
        todo!()
    }

    /// What everybody has and may have.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn usages(&self) -> Result<Vec<Usage>> {
        todo!()
    }
}
