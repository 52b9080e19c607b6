//! Cut uploads, pins and access times of bitfiles.

use std::collections::{BTreeMap, HashMap};

use futures::future::BoxFuture;
use serde::Serialize;
use wire::extent::Coverage;
use wire::id::{AccountName, BitfileId, CosName, EntryId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::place;
use crate::path::check_file_name;
use crate::publish::{SegmentRow, check_segment};
use crate::record::{DISK_COPY, MAX_PAGE, NewPartial, Page, Partial, Pin};
use crate::segments::{insert_segments, read_segment, recount_volumes};
use crate::sql::{Row, args, bitfile_rows, json, statements};
use crate::time::Timestamp;

/// Access times are kept to within this.
const ACCESS_GRAIN_US: i64 = 60_000_000;

macro_rules! partial_columns {
    () => {
        "p.id, p.parent, p.name, p.account, p.cos, p.expected, p.created_us, p.expires_us,
            s.start, s.length, s.volume, s.major, s.minor, s.skip, s.adler32, s.crc32c
        FROM partial p LEFT JOIN segment s ON s.bitfile = p.id AND s.copy = 0"
    };
}

statements! {
    FIND_PARTIAL = concat!(
        "SELECT ", partial_columns!(), " WHERE p.parent = $1 AND p.name = $2 AND p.account = $3 ORDER BY s.start"
    );

    LIST_PARTIALS = concat!(
        "SELECT ", partial_columns!(), "
        WHERE p.id IN (SELECT q.id FROM partial q WHERE q.id > $1 ORDER BY q.id LIMIT $2) ORDER BY p.id, s.start"
    );

    SAVE_PARTIAL =
        "INSERT INTO partial (id, parent, name, account, cos, expected, created_us, expires_us)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (parent, name, account) DO UPDATE SET cos = excluded.cos, expires_us = excluded.expires_us,
            expected = COALESCE(excluded.expected, partial.expected)
        RETURNING id";

    /// A name that no upload has, so that the next one to the same place does not find what this one left.
    EXPIRE_PARTIAL = "UPDATE partial SET expires_us = $2, name = '/' || CAST(id AS TEXT) WHERE id = $1";

    /// As [`EXPIRE_PARTIAL`] for one that has expired by itself and was not reclaimed yet.
    CLEAR_PLACE =
        "UPDATE partial SET name = '/' || CAST(id AS TEXT)
        WHERE parent = $1 AND name = $2 AND account = $3 AND expires_us <= $4";

    SET_PINS (id bigint) =
        "INSERT INTO pin (bitfile, holder, until_us)
        SELECT b.id, CAST($2 AS TEXT), CAST($3 AS BIGINT) FROM r JOIN bitfile b ON b.id = r.id WHERE true
        ON CONFLICT (bitfile, holder) DO UPDATE SET until_us = excluded.until_us WHERE excluded.until_us > pin.until_us";

    REMOVE_PINS (id bigint) =
        "DELETE FROM pin WHERE holder = $2 AND bitfile IN (SELECT r.id FROM r)";

    LIST_PINS =
        "SELECT bitfile, holder, until_us FROM pin
        WHERE bitfile >= $1 AND bitfile <= $2 AND (bitfile > $1 OR holder > $3) AND until_us > $4
        ORDER BY bitfile, holder LIMIT $5";

    WRITE_ACCESS_TIMES (bitfile bigint, used_us bigint) =
        "UPDATE copy SET used_us = r.used_us FROM r
        WHERE copy.bitfile = r.bitfile AND copy.number = 0 AND copy.used_us < r.used_us - $2";
}

impl Catalog {
    /// Keeps what has arrived of a cut upload. What was saved before for the same directory, name and account
    /// stays and is joined.
    ///
    /// # Errors
    ///
    /// `NotFound` or `NotADirectory` for the parent; `Inconsistent` if segments overlap what is saved.
    pub async fn save_partial(&self, partial: NewPartial) -> Result<Partial> {
        let id = BitfileId(self.next_id().await?);
        self.write((id, partial), |(id, partial), tx| Box::pin(save_partial(*id, partial, tx))).await
    }

    /// What is kept of this account's cut upload to this name, unless it has expired.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn find_partial(&self, parent: EntryId, name: &str, account: &AccountName) -> Result<Option<Partial>> {
        let rows = self.rows(&FIND_PARTIAL, args![parent, name, account]).await?;
        let now = self.now();
        Ok(read_partials(&rows)?.pop().filter(|partial| partial.expires > now))
    }

    /// Cut uploads by number, behind `after`, at most `limit`: for the operator.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn partials(&self, after: Option<BitfileId>, limit: u32) -> Result<Vec<Partial>> {
        let after = after.unwrap_or(BitfileId(0));
        read_partials(&self.rows(&LIST_PARTIALS, args![after, limit.min(MAX_PAGE)]).await?)
    }

    /// Gives up a cut upload now; the next [`Catalog::reclaim`] queues its files.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn discard_partial(&self, partial: BitfileId) -> Result<()> {
        self.write(partial, |partial, tx| Box::pin(discard_partial(*partial, tx))).await
    }

    /// Promises that the disk copies of these bitfiles stay. A later time extends an earlier pin of the same
    /// holder.
    ///
    /// # Errors
    ///
    /// Only those of the database. Unknown bitfiles are passed over.
    pub async fn pin(&self, bitfiles: Vec<BitfileId>, holder: &str, until: Timestamp) -> Result<()> {
        self.write((bitfiles, holder.to_owned(), until), |(bitfiles, holder, until), tx| {
            Box::pin(async move {
                let rows = bitfile_rows(bitfiles)?;
                tx.execute(&SET_PINS, args![&rows, holder, *until]).await.map(drop)
            })
        })
        .await
    }

    /// Removes one holder's pins on these bitfiles.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn unpin(&self, bitfiles: Vec<BitfileId>, holder: &str) -> Result<()> {
        self.write((bitfiles, holder.to_owned()), |(bitfiles, holder), tx| {
            Box::pin(async move {
                let rows = bitfile_rows(bitfiles)?;
                tx.execute(&REMOVE_PINS, args![&rows, holder]).await.map(drop)
            })
        })
        .await
    }

    /// Writes the access times that wait, for whoever decides by them.
    pub(crate) async fn flush_access_times(&self) -> Result<()> {
        let touched = self.batch().take_touched();
        if touched.is_empty() { Ok(()) } else { self.write(touched, write_access_times).await }
    }

    /// Pins in force on a bitfile, or on all of them, by bitfile and holder. `after` is what the last page gave as
    /// `next`.
    ///
    /// # Errors
    ///
    /// Only those of the database; `Inconsistent` for an `after` that no page gave.
    pub async fn pins(&self, bitfile: Option<BitfileId>, after: Option<&str>, limit: u32) -> Result<Page<Pin>> {
        let limit = limit.clamp(1, MAX_PAGE);
        let (first, last) = bitfile.map_or((0, i64::MAX), |bitfile| (bitfile.column(), bitfile.column()));
        let (first, holder) = match after {
            None => (first, ""),
            Some(after) => {
                let bad = || CatalogError::inconsistent(format!("{after:?} is not where a page of pins ended"));
                let (bitfile, holder) = after.split_once(' ').ok_or_else(bad)?;
                (bitfile.parse().map_err(|_| bad())?, holder)
            }
        };
        let rows = self.rows(&LIST_PINS, args![first, last, holder, self.now(), limit]).await?;
        let read = |row: &Row| {
            let mut row = row.cursor();
            Ok(Pin { bitfile: row.bitfile()?, holder: row.text()?, until: row.time()? })
        };
        let items = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        let full = items.len() == limit as usize;
        let next = items.last().filter(|_| full).map(|pin| format!("{} {}", pin.bitfile, pin.holder));
        Ok(Page { items, next })
    }
}

async fn save_partial(id: BitfileId, new: &NewPartial, tx: &mut Tx) -> Result<Partial> {
    check_file_name(&new.name)?;
    place(tx, new.parent, &new.name).await?;
    let (now, expected) = (tx.now, new.expected_size_bytes.map(crate::sql::column));
    tx.execute(&CLEAR_PLACE, args![new.parent, &new.name, &new.account, now]).await?;
    let row = tx
        .row(&SAVE_PARTIAL, args![id, new.parent, &new.name, &new.account, &new.cos, expected, now, new.expires])
        .await?;
    let id = row.ok_or_else(|| CatalogError::corrupt("a partial upload was not saved"))?.cursor().bitfile()?;
    let saved = find(new, tx).await?;
    let mut coverage = Coverage::new();
    for segment in saved.segments.iter().chain(&new.segments) {
        check_segment(segment)?;
        coverage.add(segment.range).map_err(CatalogError::inconsistent)?;
    }
    let rows: Vec<_> = new.segments.iter().map(|segment| SegmentRow::new(id, DISK_COPY, segment)).collect();
    let mut volumes = BTreeMap::new();
    insert_segments(&rows, &mut volumes, tx).await?;
    recount_volumes(&volumes, tx).await?;
    find(new, tx).await
}

async fn find(new: &NewPartial, tx: &mut Tx) -> Result<Partial> {
    let rows = tx.rows(&FIND_PARTIAL, args![new.parent, &new.name, &new.account]).await?;
    read_partials(&rows)?.pop().ok_or_else(|| CatalogError::corrupt("a partial upload that was saved is gone"))
}

async fn discard_partial(partial: BitfileId, tx: &mut Tx) -> Result<()> {
    let now = tx.now;
    if tx.execute(&EXPIRE_PARTIAL, args![partial, now]).await? == 0 {
        return Err(CatalogError::not_found("cut upload", partial));
    }
    Ok(())
}

fn read_partials(rows: &[Row]) -> Result<Vec<Partial>> {
    let mut partials: Vec<Partial> = Vec::new();
    for row in rows {
        let mut row = row.cursor();
        let partial = Partial {
            id: row.bitfile()?,
            parent: row.entry()?,
            name: row.text()?,
            account: row.name()?,
            cos: row.name::<CosName>()?,
            expected_size_bytes: row.maybe_number()?,
            created: row.time()?,
            expires: row.time()?,
            segments: Vec::new(),
        };
        if partials.last().is_none_or(|last| last.id != partial.id) {
            partials.push(partial);
        }
        if let (Some(partial), Some(segment)) = (partials.last_mut(), read_segment(&mut row)?) {
            partial.segments.push(segment);
        }
    }
    Ok(partials)
}

/// Writes when bitfiles were read, where what is written is more than a minute older.
pub(crate) fn write_access_times<'c>(
    touched: &'c HashMap<BitfileId, Timestamp>,
    tx: &'c mut Tx,
) -> BoxFuture<'c, Result<()>> {
    #[derive(Serialize)]
    struct Access {
        bitfile: i64,
        used_us: i64,
    }
    Box::pin(async move {
        let mut rows: Vec<_> =
            touched.iter().map(|(bitfile, used)| Access { bitfile: bitfile.column(), used_us: used.0 }).collect();
        rows.sort_unstable_by_key(|row| row.bitfile);
        tx.execute(&WRITE_ACCESS_TIMES, args![&json(&rows)?, ACCESS_GRAIN_US]).await.map(drop)
    })
}
