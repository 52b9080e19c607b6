//! Accounts, groups, certificate mappings, quotas.

use serde::Serialize;
use wire::id::{AccountName, GroupName};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::quota::subject;
use crate::record::{Account, Mapping, NewAccount, QuotaSubject, Usage};
use crate::sql::{Row, args, column, json, statements};

macro_rules! accounts {
    ($($rest:literal)?) => {
        concat!(
            "SELECT a.name, a.primary_group, a.admin, a.disabled, a.home, a.created_us, m.grp
            FROM account a LEFT JOIN membership m ON m.account = a.name ",
            $($rest,)? " ORDER BY a.name, m.grp"
        )
    };
}

statements! {
    PUT_ACCOUNT =
        "INSERT INTO account (name, primary_group, admin, disabled, home, created_us) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (name) DO UPDATE SET primary_group = excluded.primary_group, admin = excluded.admin,
            disabled = excluded.disabled, home = excluded.home";

    LEAVE_GROUPS = "DELETE FROM membership WHERE account = $1";

    JOIN_GROUPS (grp text) =
        "INSERT INTO membership (account, grp) SELECT CAST($2 AS TEXT), r.grp FROM r";

    ONE_ACCOUNT = accounts!("WHERE a.name = $1");

    ALL_ACCOUNTS = accounts!();

    ACCOUNT_OF_SUBJECT = accounts!("JOIN mapping s ON s.account = a.name WHERE s.subject = $1");

    DELETE_ACCOUNT = "DELETE FROM account WHERE name = $1";

    UNMAP_ACCOUNT = "DELETE FROM mapping WHERE account = $1";

    MAP_SUBJECT =
        "INSERT INTO mapping (subject, account, created_us) SELECT CAST($1 AS TEXT), a.name, CAST($3 AS BIGINT)
        FROM account a WHERE a.name = $2
        ON CONFLICT (subject) DO UPDATE SET account = excluded.account, created_us = excluded.created_us";

    UNMAP_SUBJECT = "DELETE FROM mapping WHERE subject = $1";

    ALL_MAPPINGS = "SELECT subject, account, created_us FROM mapping ORDER BY subject";

    SET_QUOTA =
        "INSERT INTO usage (kind, name, bytes, files, limit_bytes, limit_files) VALUES ($1, $2, 0, 0, $3, $4)
        ON CONFLICT (kind, name) DO UPDATE SET limit_bytes = excluded.limit_bytes, limit_files = excluded.limit_files";

    ONE_USAGE =
        "SELECT kind, name, bytes, files, limit_bytes, limit_files FROM usage WHERE kind = $1 AND name = $2";

    ALL_USAGES = "SELECT kind, name, bytes, files, limit_bytes, limit_files FROM usage ORDER BY kind, name";
}

impl Catalog {
    /// Makes an account, or changes it to what is given.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn put_account(&self, account: NewAccount) -> Result<()> {
        self.write(account, |account, tx| Box::pin(put_account(account, tx))).await
    }

    /// One account; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn account(&self, name: &AccountName) -> Result<Option<Account>> {
        Ok(read_accounts(&self.rows(&ONE_ACCOUNT, args![name]).await?)?.pop())
    }

    /// All accounts, by name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn accounts(&self) -> Result<Vec<Account>> {
        read_accounts(&self.rows(&ALL_ACCOUNTS, &[]).await?)
    }

    /// Removes an account with its certificate mappings.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InUse` while it owns files.
    pub async fn remove_account(&self, name: &AccountName) -> Result<()> {
        self.write(name.clone(), |name, tx| Box::pin(remove_account(name, tx))).await
    }

    /// Maps a certificate's subject to an account, which replaces an earlier mapping of that subject.
    ///
    /// # Errors
    ///
    /// `NotFound` for the account.
    pub async fn map_subject(&self, subject: &str, account: &AccountName) -> Result<()> {
        self.write((subject.to_owned(), account.clone()), |(subject, account), tx| {
            Box::pin(async move {
                let now = tx.now;
                let mapped = tx.execute(&MAP_SUBJECT, args![subject, account, now]).await?;
                if mapped == 0 { Err(CatalogError::not_found("account", account)) } else { Ok(()) }
            })
        })
        .await
    }

    /// Removes a mapping.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn unmap_subject(&self, subject: &str) -> Result<()> {
        self.write(subject.to_owned(), |subject, tx| {
            Box::pin(async move {
                let removed = tx.execute(&UNMAP_SUBJECT, args![subject]).await?;
                if removed == 0 { Err(CatalogError::not_found("mapping", subject)) } else { Ok(()) }
            })
        })
        .await
    }

    /// The account a certificate's subject means; `None` if it is not mapped.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn account_of_subject(&self, subject: &str) -> Result<Option<Account>> {
        Ok(read_accounts(&self.rows(&ACCOUNT_OF_SUBJECT, args![subject]).await?)?.pop())
    }

    /// All mappings, by subject.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn mappings(&self) -> Result<Vec<Mapping>> {
        let read = |row: &Row| {
            let mut row = row.cursor();
            Ok(Mapping { subject: row.text()?, account: row.name()?, created: row.time()? })
        };
        self.rows(&ALL_MAPPINGS, &[]).await?.iter().map(read).collect()
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
        self.write((subject, limit_bytes, limit_files), |(subject, bytes, files), tx| {
            Box::pin(async move {
                let limits = (bytes.map(column), files.map(column));
                tx.execute(&SET_QUOTA, args![subject.kind(), subject.name(), limits.0, limits.1]).await.map(drop)
            })
        })
        .await
    }

    /// What somebody has and may have; nothing if they never had any.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn usage(&self, subject: &QuotaSubject) -> Result<Usage> {
        let row = self.row(&ONE_USAGE, args![subject.kind(), subject.name()]).await?;
        let none = Usage { subject: subject.clone(), bytes: 0, files: 0, limit_bytes: None, limit_files: None };
        row.map_or(Ok(none), |row| read_usage(&row))
    }

    /// What everybody has and may have.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn usages(&self) -> Result<Vec<Usage>> {
        self.rows(&ALL_USAGES, &[]).await?.iter().map(read_usage).collect()
    }
}

async fn put_account(account: &NewAccount, tx: &mut Tx) -> Result<()> {
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Membership<'a> {
        grp: &'a str,
    }
    let (name, now) = (&account.name, tx.now);
    let (admin, disabled) = (i64::from(account.admin), i64::from(account.disabled));
    let home = account.home.as_deref();
    tx.execute(&PUT_ACCOUNT, args![name, &account.primary_group, admin, disabled, home, now]).await?;
    tx.execute(&LEAVE_GROUPS, args![name]).await?;
    let groups = account.groups.iter().chain(std::iter::once(&account.primary_group));
    let mut rows: Vec<_> = groups.map(|group| Membership { grp: group.as_str() }).collect();
    rows.sort_unstable();
    rows.dedup();
    tx.execute(&JOIN_GROUPS, args![&json(&rows)?, name]).await?;
    Ok(())
}

async fn remove_account(name: &AccountName, tx: &mut Tx) -> Result<()> {
    if let Some(row) = tx.row(&ONE_USAGE, args!["account", name]).await? {
        let files = read_usage(&row)?.files;
        if files > 0 {
            let reason = format!("it owns {files} files");
            return Err(CatalogError::InUse { what: format!("account {name}"), reason });
        }
    }
    tx.execute(&UNMAP_ACCOUNT, args![name]).await?;
    tx.execute(&LEAVE_GROUPS, args![name]).await?;
    if tx.execute(&DELETE_ACCOUNT, args![name]).await? == 0 {
        return Err(CatalogError::not_found("account", name));
    }
    Ok(())
}

fn read_accounts(rows: &[Row]) -> Result<Vec<Account>> {
    let mut accounts: Vec<Account> = Vec::new();
    for row in rows {
        let mut row = row.cursor();
        let account = Account {
            name: row.name()?,
            primary_group: row.name()?,
            groups: Vec::new(),
            admin: row.flag()?,
            disabled: row.flag()?,
            home: row.maybe_text()?,
            created: row.time()?,
        };
        if accounts.last().is_none_or(|last| last.name != account.name) {
            accounts.push(account);
        }
        if let (Some(account), Some(group)) = (accounts.last_mut(), row.maybe_name::<GroupName>()?) {
            account.groups.push(group);
        }
    }
    Ok(accounts)
}

fn read_usage(row: &Row) -> Result<Usage> {
    let mut row = row.cursor();
    Ok(Usage {
        subject: subject(&row.text()?, row.text()?)?,
        // A counter below zero would be our fault; it is shown as nothing rather than hidden behind an error.
        bytes: u64::try_from(row.int()?).unwrap_or(0),
        files: u64::try_from(row.int()?).unwrap_or(0),
        limit_bytes: row.maybe_number()?,
        limit_files: row.maybe_number()?,
    })
}
