//! Access keys of accounts. Secrets come and go encrypted.

use wire::id::AccountName;

use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::AccessKey;
use crate::sql::{Row, args, statements};

macro_rules! key_columns {
    () => {
        "SELECT id, account, sealed, disabled, created_us, direct FROM access_key "
    };
}

statements! {
    /// Only for an account that is there.
    INSERT_KEY =
        "INSERT INTO access_key (id, account, sealed, disabled, created_us, direct)
        SELECT CAST($1 AS TEXT), a.name, CAST($3 AS TEXT), 0, CAST($4 AS BIGINT), CAST($5 AS BIGINT)
        FROM account a WHERE a.name = $2 ON CONFLICT (id) DO NOTHING";

    ONE_KEY = concat!(key_columns!(), "WHERE id = $1");

    ALL_KEYS = concat!(key_columns!(), "WHERE (CAST($1 AS TEXT) IS NULL OR account = $1) ORDER BY account, id");

    DISABLE_KEY = "UPDATE access_key SET disabled = $2 WHERE id = $1";

    DIRECT_KEY = "UPDATE access_key SET direct = $2 WHERE id = $1";

    DELETE_KEY = "DELETE FROM access_key WHERE id = $1";
}

impl Catalog {
    /// Keeps a new access key.
    ///
    /// # Errors
    ///
    /// `NotFound` for the account; `Exists` for the key.
    pub async fn add_access_key(&self, key: AccessKey) -> Result<()> {
        self.write(key, |key, tx| {
            Box::pin(async move {
                if tx.row(&ONE_KEY, args![&key.id]).await?.is_some() {
                    return Err(CatalogError::Exists { name: key.id.clone() });
                }
                let row = args![&key.id, &key.account, &key.sealed, key.created, key.direct.map(i64::from)];
                match tx.execute(&INSERT_KEY, row).await? {
                    0 => Err(CatalogError::not_found("account", &key.account)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    /// One access key; `None` if there is none of that number.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn access_key(&self, id: &str) -> Result<Option<AccessKey>> {
        self.row(&ONE_KEY, args![id]).await?.map(|row| read_key(&row)).transpose()
    }

    /// Access keys of one account or of all.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn access_keys(&self, account: Option<&AccountName>) -> Result<Vec<AccessKey>> {
        let rows = self.rows(&ALL_KEYS, args![account.map(AccountName::as_str)]).await?;
        rows.iter().map(read_key).collect()
    }

    /// Lets an access key be used no more, or again.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn disable_access_key(&self, id: &str, disabled: bool) -> Result<()> {
        self.write((id.to_owned(), i64::from(disabled)), |(id, disabled), tx| {
            Box::pin(async move {
                match tx.execute(&DISABLE_KEY, args![id, *disabled]).await? {
                    0 => Err(CatalogError::not_found("access key", id)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    /// Says whether who signs with an access key is sent to movers for bytes.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn direct_access_key(&self, id: &str, direct: Option<bool>) -> Result<()> {
        self.write((id.to_owned(), direct.map(i64::from)), |(id, direct), tx| {
            Box::pin(async move {
                match tx.execute(&DIRECT_KEY, args![id, *direct]).await? {
                    0 => Err(CatalogError::not_found("access key", id)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    /// Removes an access key.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn remove_access_key(&self, id: &str) -> Result<()> {
        self.write(id.to_owned(), |id, tx| {
            Box::pin(async move {
                match tx.execute(&DELETE_KEY, args![id]).await? {
                    0 => Err(CatalogError::not_found("access key", id)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }
}

fn read_key(row: &Row) -> Result<AccessKey> {
    let mut row = row.cursor();
    Ok(AccessKey {
        id: row.text()?,
        account: row.name()?,
        sealed: row.text()?,
        disabled: row.flag()?,
        created: row.time()?,
        direct: row.maybe_int()?.map(|direct| direct != 0),
    })
}
