//! Uploads in parts. A part's segments are kept under a number of its own; completing the upload gives them to the new
//! bitfile in the transaction that publishes it, so no byte is copied, and what no part list names is reclaimed.

use std::ops::Range;

use wire::checksum::Sums;
use wire::extent::ByteRange;
use wire::id::{BitfileId, EntryId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::objects::buckets::bucket_of_entry;
use crate::objects::place::Parts;
use crate::objects::put::put_object;
use crate::path::end_of_prefix;
use crate::publish::{SegmentRow, check_segment};
use crate::purge::drop_segments;
use crate::record::{CompleteUpload, MAX_PAGE, NewPart, NewUpload, Object, Segment, Upload, UploadPart};
use crate::segments::{insert_segments, read_segment, recount_volumes};
use crate::sql::{Row, args, bitfile_rows, column, statements};

macro_rules! upload_columns {
    () => {
        "SELECT u.id, u.bucket, u.key, u.account, u.cos, u.created_us, u.attributes FROM upload u "
    };
}

macro_rules! part_columns {
    () => {
        "SELECT p.number, p.id, p.storage_class, p.size, p.adler32, p.crc32c, p.etag, p.created_us, p.attributes
        FROM part p "
    };
}

statements! {
    INSERT_UPLOAD =
        "INSERT INTO upload (id, bucket, key, account, cos, created_us, expires_us, attributes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

    ONE_UPLOAD = concat!(upload_columns!(), "WHERE u.id = $1");

    HOLD_UPLOAD = concat!(upload_columns!(), "WHERE u.id = $1"), concat!(upload_columns!(), "WHERE u.id = $1 FOR UPDATE");

    LIST_UPLOADS = concat!(
        upload_columns!(), "WHERE u.bucket = $1 AND u.key >= $2 AND u.key < $3 AND NOT (u.key = $2 AND u.id <= $4)
        ORDER BY u.key, u.id LIMIT $5"
    );

    UPLOADS_OF = concat!(upload_columns!(), "WHERE u.bucket = $1");

    EXPIRED_UPLOADS = "SELECT u.id FROM upload u WHERE u.expires_us <= $1 ORDER BY u.expires_us LIMIT $2",
        "SELECT u.id FROM upload u WHERE u.expires_us <= $1 ORDER BY u.expires_us LIMIT $2 FOR UPDATE SKIP LOCKED";

    INSERT_PART =
        "INSERT INTO part (upload, number, id, storage_class, size, adler32, crc32c, etag, created_us, attributes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

    ONE_PART = concat!(part_columns!(), "WHERE p.upload = $1 AND p.number = $2");

    LIST_PARTS = concat!(part_columns!(), "WHERE p.upload = $1 AND p.number > $2 ORDER BY p.number LIMIT $3");

    DROP_PART = "DELETE FROM part WHERE upload = $1 AND number = $2";

    DROP_PARTS = "DELETE FROM part WHERE upload = $1";

    DROP_UPLOAD = "DELETE FROM upload WHERE id = $1";

    SEGMENTS_OF_PARTS (id bigint) =
        "SELECT s.bitfile, s.start, s.length, s.volume, s.major, s.minor, s.skip, s.adler32, s.crc32c
        FROM r JOIN segment s ON s.bitfile = r.id AND s.copy = 0 ORDER BY s.bitfile, s.start";
}

impl Catalog {
    /// Begins an upload in parts.
    ///
    /// # Errors
    ///
    /// `NotFound` for the bucket; `InvalidName`, `NameTooLong`.
    pub async fn create_upload(&self, new: NewUpload) -> Result<Upload> {
        Parts::of(&new.key)?;
        let id = self.next_id().await?;
        self.write((id, new), |(id, new), tx| {
            Box::pin(async move {
                bucket_of_entry(new.bucket, tx).await?;
                let (id, now) = (*id, tx.now);
                let row =
                    args![column(id), new.bucket, &new.key, &new.account, &new.cos, now, new.expires, &new.attributes];
                tx.execute(&INSERT_UPLOAD, row).await?;
                let NewUpload { bucket, key, account, cos, attributes, .. } = new.clone();
                Ok(Upload { id, bucket, key, account, cos, created: now, attributes })
            })
        })
        .await
    }

    /// The upload of that number.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn upload(&self, id: u64) -> Result<Option<Upload>> {
        self.row(&ONE_UPLOAD, args![column(id)]).await?.map(|row| read_upload(&row)).transpose()
    }

    /// Uploads under way in a bucket, by key and number, behind `after`, of a prefix, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn uploads(
        &self,
        bucket: EntryId,
        after: Option<(&str, Option<u64>)>,
        prefix: &str,
        limit: u32,
    ) -> Result<Vec<Upload>> {
        let (key, id) = match after {
            Some((key, id)) if key >= prefix => (key, id.map_or(i64::MAX, column)),
            _ => (prefix, i64::MIN),
        };
        let end = end_of_prefix(prefix).unwrap_or_else(|| "\u{10FFFF}".repeat(300));
        let rows = self.rows(&LIST_UPLOADS, args![bucket, key, &end, id, limit.min(MAX_PAGE + 1)]).await?;
        rows.iter().map(read_upload).collect()
    }

    /// Keeps a part whose bytes are synced on their movers; an earlier one of its number is given up.
    ///
    /// # Errors
    ///
    /// `NotFound` for the upload; `Inconsistent` if the segments do not cover the part.
    pub async fn put_part(&self, new: NewPart) -> Result<UploadPart> {
        let id = BitfileId(self.next_id().await?);
        self.write((id, new), |(id, new), tx| Box::pin(put_part(*id, new, tx))).await
    }

    /// Parts of an upload by number, behind `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn upload_parts(&self, upload: u64, after: u32, limit: u32) -> Result<Vec<UploadPart>> {
        let rows = self.rows(&LIST_PARTS, args![column(upload), after, limit.min(MAX_PAGE + 1)]).await?;
        rows.iter().map(read_part).collect()
    }

    /// Makes an object of an upload's parts, all or nothing, and ends the upload.
    ///
    /// # Errors
    ///
    /// As [`Catalog::put_object`]; `NotFound` for the upload; `Changed` if a part is not what it was.
    pub async fn complete_upload(&self, complete: CompleteUpload) -> Result<Object> {
        let ids = self.object_ids(&complete.object.key).await?;
        self.write((ids, complete), |(ids, complete), tx| Box::pin(complete_upload(ids.clone(), complete, tx))).await
    }

    /// Gives up an upload and its parts.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn abort_upload(&self, upload: u64) -> Result<()> {
        self.write(upload, |upload, tx| {
            Box::pin(async move {
                held(*upload, tx).await?;
                drop_upload(*upload, tx).await
            })
        })
        .await
    }
}

async fn held(upload: u64, tx: &mut Tx) -> Result<Upload> {
    let row = tx.row(&HOLD_UPLOAD, args![column(upload)]).await?;
    row.map_or_else(|| Err(CatalogError::not_found("upload", upload)), |row| read_upload(&row))
}

async fn put_part(id: BitfileId, new: &NewPart, tx: &mut Tx) -> Result<UploadPart> {
    held(new.upload, tx).await?;
    let mut at = 0;
    for segment in &new.segments {
        check_segment(segment)?;
        if segment.range.offset() != at {
            return Err(CatalogError::inconsistent("a part's segments leave a gap"));
        }
        at = segment.range.end();
    }
    if at != new.size_bytes {
        return Err(CatalogError::inconsistent("a part's segments are not the part"));
    }
    if let Some(row) = tx.row(&ONE_PART, args![column(new.upload), new.number]).await? {
        let old = read_part(&row)?;
        tx.execute(&DROP_PART, args![column(new.upload), new.number]).await?;
        drop_segments(&bitfile_rows([&old.id])?, tx).await?;
    }
    let now = tx.now;
    let row = args![
        column(new.upload),
        new.number,
        id,
        &new.disk_class,
        column(new.size_bytes),
        new.sums.adler32,
        new.sums.crc32c,
        &new.etag,
        now,
        &new.attributes
    ];
    tx.execute(&INSERT_PART, row).await?;
    let rows: Vec<_> = new.segments.iter().map(|segment| SegmentRow::new(id, 0, segment)).collect();
    let mut volumes = std::collections::BTreeMap::new();
    insert_segments(&rows, &mut volumes, tx).await?;
    recount_volumes(&volumes, tx).await?;
    Ok(UploadPart {
        number: new.number,
        id,
        disk_class: new.disk_class.clone(),
        size_bytes: new.size_bytes,
        sums: Sums { md5: None, sha256: None, ..new.sums },
        etag: new.etag.clone(),
        created: now,
        attributes: new.attributes.clone(),
    })
}

async fn complete_upload(ids: Range<u64>, complete: &CompleteUpload, tx: &mut Tx) -> Result<Object> {
    held(complete.upload, tx).await?;
    let changed = || CatalogError::Changed { name: complete.object.key.clone() };
    let mut there = std::collections::HashMap::new();
    for row in tx.rows(&LIST_PARTS, args![column(complete.upload), 0_i64, i64::from(MAX_PAGE)]).await? {
        let part = read_part(&row)?;
        there.insert(part.number, part.id);
    }
    if complete.parts.iter().any(|part| there.get(&part.number) != Some(&part.id)) {
        return Err(changed());
    }
    let mut segments = segments_of(&complete.parts, tx).await?;
    let mut object = complete.object.clone();
    let (mut size, mut sums): (u64, Option<Sums>) = (0, None);
    for part in &complete.parts {
        for mut segment in segments.remove(&part.id).unwrap_or_default() {
            segment.range = ByteRange::new(size + segment.range.offset(), segment.range.length())
                .map_err(CatalogError::inconsistent)?;
            object.segments.push(segment);
        }
        size += part.size_bytes;
        sums = Some(sums.map_or(part.sums, |before| before.followed_by(&part.sums, part.size_bytes)));
    }
    object.size_bytes = size;
    object.sums = sums.unwrap_or(Sums::EMPTY);
    let published = put_object(ids, &object, Some(&complete.part_list), tx).await?;
    // The bitfile's rows are there, so only files that it does not have are queued for reclaim.
    drop_upload(complete.upload, tx).await?;
    Ok(published)
}

async fn segments_of(parts: &[UploadPart], tx: &mut Tx) -> Result<std::collections::HashMap<BitfileId, Vec<Segment>>> {
    let mut segments: std::collections::HashMap<BitfileId, Vec<Segment>> = std::collections::HashMap::new();
    for row in tx.rows(&SEGMENTS_OF_PARTS, args![&bitfile_rows(parts.iter().map(|part| &part.id))?]).await? {
        let mut row = row.cursor();
        let part = row.bitfile()?;
        segments.entry(part).or_default().extend(read_segment(&mut row)?);
    }
    Ok(segments)
}

/// Removes an upload that is held, with what its parts have and nothing else does.
async fn drop_upload(upload: u64, tx: &mut Tx) -> Result<()> {
    let mut ids = Vec::new();
    for row in tx.rows(&LIST_PARTS, args![column(upload), 0_i64, i64::from(MAX_PAGE)]).await? {
        ids.push(read_part(&row)?.id);
    }
    tx.execute(&DROP_PARTS, args![column(upload)]).await?;
    tx.execute(&DROP_UPLOAD, args![column(upload)]).await?;
    drop_segments(&bitfile_rows(&ids)?, tx).await
}

/// Ends every upload of a bucket.
pub(super) async fn drop_uploads_of(bucket: EntryId, tx: &mut Tx) -> Result<()> {
    for row in tx.rows(&UPLOADS_OF, args![bucket]).await? {
        drop_upload(read_upload(&row)?.id, tx).await?;
    }
    Ok(())
}

/// Ends uploads that have expired, at most `limit`; how many.
pub(crate) async fn drop_expired_uploads(limit: u32, tx: &mut Tx) -> Result<u64> {
    let now = tx.now;
    let expired = tx.rows(&EXPIRED_UPLOADS, args![now, limit]).await?;
    for row in &expired {
        drop_upload(row.cursor().number()?, tx).await?;
    }
    Ok(expired.len() as u64)
}

fn read_upload(row: &Row) -> Result<Upload> {
    let mut row = row.cursor();
    Ok(Upload {
        id: row.number()?,
        bucket: row.entry()?,
        key: row.text()?,
        account: row.name()?,
        cos: row.name()?,
        created: row.time()?,
        attributes: row.text()?,
    })
}

fn read_part(row: &Row) -> Result<UploadPart> {
    let mut row = row.cursor();
    Ok(UploadPart {
        number: row.small()?,
        id: row.bitfile()?,
        disk_class: row.name()?,
        size_bytes: row.number()?,
        sums: Sums { adler32: row.small()?, crc32c: row.small()?, md5: None, sha256: None },
        etag: row.text()?,
        created: row.time()?,
        attributes: row.text()?,
    })
}
