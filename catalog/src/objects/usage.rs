//! What lies in a bucket: counted page by page, and kept with the time of the count.
//!
//! Not in the writing transaction, as quotas are. Who writes a file knows its owner, but not the bucket that its
//! directory lies in, any number of levels up; and moving a directory, which is one row, would move any number of files
//! from one bucket's sums to another's. So a bucket is walked now and then, a page at a time, and questions are answered
//! from what was kept: a lookup, whatever the bucket holds.
//!
//! A count is of no single moment. What was written, moved or removed while it went on may be in it or not.

use wire::id::EntryId;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Amount, BucketUsage, Listing, MAX_PAGE};
use crate::sql::{Row, args, column, json, statements};

statements! {
    /// A page of the versions of a bucket that have no name.
    HIDDEN_PAGE =
        "SELECT v.key, v.rank, v.bitfile, b.size FROM version v LEFT JOIN bitfile b ON b.id = v.bitfile
        WHERE v.bucket = $1 AND v.key >= $2 AND NOT (v.key = $2 AND v.rank <= $3) ORDER BY v.key, v.rank LIMIT $4";

    /// A page of the uploads under way in a bucket, with their parts.
    UPLOADS_PAGE =
        "SELECT u.key, u.id, CAST(COUNT(p.number) AS BIGINT), CAST(COALESCE(SUM(p.size), 0) AS BIGINT)
        FROM (
            SELECT w.key, w.id FROM upload w WHERE w.bucket = $1 AND w.key >= $2 AND NOT (w.key = $2 AND w.id <= $3)
            ORDER BY w.key, w.id LIMIT $4
        ) AS u LEFT JOIN part p ON p.upload = u.id GROUP BY u.key, u.id ORDER BY u.key, u.id";

    /// Only for a bucket that is there.
    KEEP_USAGE =
        "INSERT INTO bucket_usage (bucket, objects, object_bytes, hidden, hidden_bytes, markers, uploads, parts,
            part_bytes, counted_us)
        SELECT k.entry, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT),
            CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT)
        FROM bucket k WHERE k.entry = $1
        ON CONFLICT (bucket) DO UPDATE SET objects = excluded.objects, object_bytes = excluded.object_bytes,
            hidden = excluded.hidden, hidden_bytes = excluded.hidden_bytes, markers = excluded.markers,
            uploads = excluded.uploads, parts = excluded.parts, part_bytes = excluded.part_bytes,
            counted_us = excluded.counted_us";

    USAGES_OF (id bigint) =
        "SELECT u.bucket, u.objects, u.object_bytes, u.hidden, u.hidden_bytes, u.markers, u.uploads, u.parts,
            u.part_bytes, u.counted_us
        FROM r JOIN bucket_usage u ON u.bucket = r.id";
}

/// A count under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageCount {
    bucket: EntryId,
    usage: BucketUsage,
    at: At,
}

/// What is counted, and behind which name it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
enum At {
    Objects(Option<String>),
    Hidden(String, i64),
    Uploads(String, i64),
}

/// How far a count is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counted {
    /// There is more.
    Part(UsageCount),
    /// It is at its end.
    Whole(BucketUsage),
}

impl Catalog {
    /// Begins to count what lies in a bucket.
    #[must_use]
    pub fn begin_count(&self, bucket: EntryId) -> UsageCount {
        let usage = BucketUsage { counted: self.now(), ..BucketUsage::default() };
        UsageCount { bucket, usage, at: At::Objects(None) }
    }

    /// Counts one page more, of at most `limit` names.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn count_on(&self, count: UsageCount, limit: u32) -> Result<Counted> {
        let UsageCount { bucket, mut usage, at } = count;
        let limit = limit.clamp(1, MAX_PAGE);
        let next = match at {
            At::Objects(after) => {
                let listing = Listing { after, prefix: String::new(), limit };
                let page = self.walk(bucket, &listing).await?;
                for file in page.items.iter().filter_map(|walked| walked.entry.file()) {
                    usage.current.add(1, file.size_bytes);
                }
                Some(page.next.map_or(At::Hidden(String::new(), i64::MIN), |next| At::Objects(Some(next))))
            }
            At::Hidden(key, rank) => {
                let rows = self.rows(&HIDDEN_PAGE, args![bucket, &key, rank, limit]).await?;
                let mut last = None;
                for row in &rows {
                    let mut row = row.cursor();
                    last = Some((row.text()?, row.int()?));
                    match (row.maybe_int()?, row.maybe_number()?) {
                        (None, _) => usage.markers += 1,
                        (Some(_), size) => usage.noncurrent.add(1, size.unwrap_or(0)),
                    }
                }
                let more = last.filter(|_| rows.len() == limit as usize);
                Some(more.map_or(At::Uploads(String::new(), i64::MIN), |(key, rank)| At::Hidden(key, rank)))
            }
            At::Uploads(key, id) => {
                let rows = self.rows(&UPLOADS_PAGE, args![bucket, &key, id, limit]).await?;
                let mut last = None;
                for row in &rows {
                    let mut row = row.cursor();
                    last = Some((row.text()?, row.int()?));
                    usage.uploads += 1;
                    usage.parts.add(row.number()?, row.number()?);
                }
                last.filter(|_| rows.len() == limit as usize).map(|(key, id)| At::Uploads(key, id))
            }
        };
        Ok(match next {
            Some(at) => Counted::Part(UsageCount { bucket, usage, at }),
            None => Counted::Whole(usage),
        })
    }

    /// Keeps what was counted, in place of the count before. Nothing of a bucket that is gone.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn keep_usage(&self, bucket: EntryId, usage: BucketUsage) -> Result<()> {
        self.write((bucket, usage), |(bucket, usage), tx| {
            Box::pin(async move {
                let BucketUsage { current, noncurrent, markers, uploads, parts, counted } = *usage;
                let row = args![
                    *bucket,
                    column(current.count),
                    column(current.bytes),
                    column(noncurrent.count),
                    column(noncurrent.bytes),
                    column(markers),
                    column(uploads),
                    column(parts.count),
                    column(parts.bytes),
                    counted
                ];
                tx.execute(&KEEP_USAGE, row).await.map(drop)
            })
        })
        .await
    }

    /// What lay in these buckets when they were counted last, as far as they were.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn bucket_usages(&self, buckets: &[EntryId]) -> Result<Vec<(EntryId, BucketUsage)>> {
        let ids: Vec<_> = buckets.iter().map(|bucket| crate::sql::IdRow { id: bucket.column() }).collect();
        self.rows(&USAGES_OF, args![&json(&ids)?]).await?.iter().map(read_usage).collect()
    }
}

fn read_usage(row: &Row) -> Result<(EntryId, BucketUsage)> {
    let mut row = row.cursor();
    let bucket = row.entry()?;
    let usage = BucketUsage {
        current: Amount { count: row.number()?, bytes: row.number()? },
        noncurrent: Amount { count: row.number()?, bytes: row.number()? },
        markers: row.number()?,
        uploads: row.number()?,
        parts: Amount { count: row.number()?, bytes: row.number()? },
        counted: row.time()?,
    };
    Ok((bucket, usage))
}
