//! Buckets: directories with attributes.

use wire::id::{AccountName, EntryId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::{insert_directory, place, read_entry_of};
use crate::objects::multipart;
use crate::record::{Bucket, EventRule, MAX_PAGE, NewBucket, Versioning};
use crate::sql::{Row, args, statements};

macro_rules! bucket_columns {
    () => {
        "SELECT k.name, k.entry, k.owner, k.created_us, k.versioning, k.locking, k.settings, k.notify
        FROM bucket k JOIN entry e ON e.id = k.entry "
    };
}

statements! {
    /// A bucket whose directory another door removed is none.
    ONE_BUCKET = concat!(bucket_columns!(), "WHERE k.name = $1");

    BUCKET_OF_ENTRY = concat!(bucket_columns!(), "WHERE k.entry = $1"),
        concat!(bucket_columns!(), "WHERE k.entry = $1 FOR KEY SHARE OF k");

    BUCKETS_OF = concat!(
        bucket_columns!(), "WHERE k.owner = $1 AND k.name > $2 AND k.name >= $3 ORDER BY k.name LIMIT $4"
    );

    ALL_BUCKETS = concat!(bucket_columns!(), "WHERE k.name > $1 ORDER BY k.name LIMIT $2");

    INSERT_BUCKET =
        "INSERT INTO bucket (name, entry, owner, created_us, versioning, locking, settings)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    /// The row of a bucket whose directory is gone.
    FORGET_BUCKET = "DELETE FROM bucket WHERE name = $1";

    FORGET_USAGE = "DELETE FROM bucket_usage WHERE bucket IN (SELECT k.entry FROM bucket k WHERE k.name = $1)";

    LOCK_BUCKET = "SELECT k.entry FROM bucket k WHERE k.entry = $1",
        "SELECT k.entry FROM bucket k WHERE k.entry = $1 FOR UPDATE";

    DELETE_BUCKET = "DELETE FROM bucket WHERE entry = $1";

    DELETE_DIRECTORY = "DELETE FROM entry WHERE id = $1";

    HOLDS_NAMES =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM entry WHERE parent = $1 LIMIT 1) AS c";

    HOLDS_VERSIONS =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 AS one FROM version WHERE bucket = $1 LIMIT 1) AS c";

    SET_VERSIONING = "UPDATE bucket SET versioning = $2, locking = CASE WHEN $3 = 1 THEN 1 ELSE locking END WHERE entry = $1";

    SET_SETTINGS = "UPDATE bucket SET settings = $2 WHERE entry = $1 AND settings = $3";
}

impl Catalog {
    /// Makes a bucket: a new directory, or one of the owner's that is there already.
    ///
    /// # Errors
    ///
    /// `Exists` if it is a bucket already, or somebody else's directory; `NotFound` for the parent; `InvalidName`.
    pub async fn create_bucket(&self, new: NewBucket) -> Result<Bucket> {
        let id = EntryId(self.next_id().await?);
        self.write((id, new), |(id, new), tx| Box::pin(create_bucket(*id, new, tx))).await
    }

    /// The bucket of that name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn bucket(&self, name: &str) -> Result<Option<Bucket>> {
        self.row(&ONE_BUCKET, args![name]).await?.map(|row| read_bucket(&row)).transpose()
    }

    /// Buckets of an account by name, behind `after`, of a prefix, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn buckets(&self, owner: &AccountName, after: &str, prefix: &str, limit: u32) -> Result<Vec<Bucket>> {
        let rows = self.rows(&BUCKETS_OF, args![owner, after, prefix, limit.clamp(1, MAX_PAGE)]).await?;
        let buckets: Vec<_> = rows.iter().map(read_bucket).collect::<Result<_>>()?;
        Ok(buckets.into_iter().take_while(|bucket| bucket.name.starts_with(prefix)).collect())
    }

    /// Buckets of everybody by name, behind `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn all_buckets(&self, after: &str, limit: u32) -> Result<Vec<Bucket>> {
        let rows = self.rows(&ALL_BUCKETS, args![after, limit.clamp(1, MAX_PAGE)]).await?;
        rows.iter().map(read_bucket).collect()
    }

    /// Removes an empty bucket with its directory; uploads in parts that are under way end.
    ///
    /// # Errors
    ///
    /// `NotFound`, `NotEmpty`.
    pub async fn delete_bucket(&self, bucket: EntryId) -> Result<()> {
        self.write(bucket, |bucket, tx| Box::pin(delete_bucket(*bucket, tx))).await
    }

    /// Begins or suspends keeping versions; `lock` lets versions be locked from now on.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn set_versioning(&self, bucket: EntryId, versioning: Versioning, lock: bool) -> Result<()> {
        self.write((bucket, versioning, i64::from(lock)), |(bucket, versioning, lock), tx| {
            Box::pin(async move {
                match tx.execute(&SET_VERSIONING, args![*bucket, versioning.column(), *lock]).await? {
                    0 => Err(CatalogError::not_found("bucket", bucket)),
                    _ => Ok(()),
                }
            })
        })
        .await
    }

    /// Replaces a bucket's settings, if they are still what the caller saw.
    ///
    /// # Errors
    ///
    /// `Changed`.
    pub async fn set_bucket_settings(&self, bucket: &Bucket, settings: String) -> Result<()> {
        let job = (bucket.entry, bucket.name.clone(), settings, bucket.settings.clone());
        self.write(job, |(entry, name, settings, seen), tx| {
            Box::pin(async move {
                match tx.execute(&SET_SETTINGS, args![*entry, settings, seen]).await? {
                    0 => Err(CatalogError::Changed { name: name.clone() }),
                    _ => Ok(()),
                }
            })
        })
        .await
    }
}

async fn create_bucket(id: EntryId, new: &NewBucket, tx: &mut Tx) -> Result<Bucket> {
    let exists = || CatalogError::Exists { name: new.name.clone() };
    if tx.row(&ONE_BUCKET, args![&new.name]).await?.is_some() {
        return Err(exists());
    }
    tx.execute(&FORGET_USAGE, args![&new.name]).await?;
    tx.execute(&FORGET_BUCKET, args![&new.name]).await?;
    let place = place(tx, new.parent, &new.name).await?;
    let entry = match place.directory {
        Some(directory) => {
            let found = read_entry_of(directory, tx).await?;
            if found.owner != new.owner {
                return Err(exists());
            }
            directory
        }
        None if place.file.is_some() => return Err(exists()),
        None => {
            insert_directory(id, new.parent, &new.name, (&new.owner, &new.group, new.mode), tx).await?;
            id
        }
    };
    let versioning = if new.locking { Versioning::Enabled } else { Versioning::Off };
    let (now, locking) = (tx.now, i64::from(new.locking));
    tx.execute(&INSERT_BUCKET, args![&new.name, entry, &new.owner, now, versioning.column(), locking, &new.settings])
        .await?;
    Ok(Bucket {
        name: new.name.clone(),
        entry,
        owner: new.owner.clone(),
        created: now,
        versioning,
        locking: new.locking,
        settings: new.settings.clone(),
        events: Vec::new(),
    })
}

async fn delete_bucket(bucket: EntryId, tx: &mut Tx) -> Result<()> {
    tx.lock(&LOCK_BUCKET, args![bucket]).await?;
    let found = bucket_of_entry(bucket, tx).await?;
    for statement in [&HOLDS_NAMES, &HOLDS_VERSIONS] {
        if tx.row(statement, args![bucket]).await?.map_or(Ok(0), |row| row.cursor().int())? > 0 {
            return Err(CatalogError::NotEmpty { name: found.name });
        }
    }
    multipart::drop_uploads_of(bucket, tx).await?;
    tx.execute(&FORGET_USAGE, args![&found.name]).await?;
    tx.execute(&DELETE_BUCKET, args![bucket]).await?;
    tx.execute(&DELETE_DIRECTORY, args![bucket]).await?;
    Ok(())
}

/// The bucket, which is not removed before the transaction ends.
pub(crate) async fn bucket_of_entry(entry: EntryId, tx: &mut Tx) -> Result<Bucket> {
    let row = tx.row(&BUCKET_OF_ENTRY, args![entry]).await?;
    row.map_or_else(|| Err(CatalogError::not_found("bucket", entry)), |row| read_bucket(&row))
}

fn read_bucket(row: &Row) -> Result<Bucket> {
    let mut row = row.cursor();
    Ok(Bucket {
        name: row.text()?,
        entry: row.entry()?,
        owner: row.name()?,
        created: row.time()?,
        versioning: Versioning::from_column(&row.text()?)?,
        locking: row.flag()?,
        settings: row.text()?,
        events: row.maybe_text()?.map_or(Ok(Vec::new()), |rules| read_rules(&rules))?,
    })
}

fn read_rules(text: &str) -> Result<Vec<EventRule>> {
    serde_json::from_str(text).map_err(|error| CatalogError::corrupt(format!("a bucket's rules of events: {error}")))
}
