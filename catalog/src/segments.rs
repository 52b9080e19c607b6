//! Segments: writing them, reading them with their copies, counting what is live on each volume.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::extent::{ByteRange, Extent, Place};
use wire::id::{BitfileId, FileId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::names::{read_residency, read_sums};
use crate::publish::SegmentRow;
use crate::record::{Bitfile, Copy, Located, Segment, VolumeFile};
use crate::sql::{Cursor, Row, args, bitfile_rows, json, statements};

statements! {
    INSERT_SEGMENTS (bitfile bigint, copy bigint, start bigint, length bigint, volume text, major bigint,
        minor bigint, skip bigint, adler32 bigint, crc32c bigint) =
        "INSERT INTO segment (bitfile, copy, start, length, volume, major, minor, skip, adler32, crc32c)
        SELECT r.bitfile, r.copy, r.start, r.length, r.volume, r.major, r.minor, r.skip, r.adler32, r.crc32c FROM r";

    LOCK_VOLUMES (label text, bytes bigint, segments bigint) =
        "SELECT v.label FROM r JOIN volume v ON v.label = r.label ORDER BY v.label",
        "SELECT v.label FROM r JOIN volume v ON v.label = r.label ORDER BY v.label FOR UPDATE OF v";

    RECOUNT_VOLUMES (label text, bytes bigint, segments bigint) =
        "UPDATE volume SET live_bytes = live_bytes + r.bytes, live_segments = live_segments + r.segments
        FROM r WHERE volume.label = r.label";

    LOCATE (id bigint) =
        "SELECT b.id, b.entry, b.size, b.cos, b.owner, b.grp, b.adler32, b.crc32c, b.md5, b.sha256, b.generation,
            b.created_us, b.on_disk, b.tapes, b.tapes_wanted,
            c.number, c.storage_class, c.complete, c.created_us AS copied_us, c.used_us, c.expires_us,
            s.start, s.length, s.volume, s.major, s.minor, s.skip, s.adler32 AS part_adler32, s.crc32c AS part_crc32c
        FROM r JOIN bitfile b ON b.id = r.id
        LEFT JOIN copy c ON c.bitfile = b.id
        LEFT JOIN segment s ON s.bitfile = c.bitfile AND s.copy = c.number
        ORDER BY b.id, c.number, s.start";

    UNKNOWN_FILES (volume text, file bigint) =
        "SELECT r.volume, r.file FROM r
        WHERE NOT EXISTS (SELECT 1 FROM segment s WHERE s.volume = r.volume AND s.major = r.file AND s.skip IS NULL)
        AND NOT EXISTS (SELECT 1 FROM work w WHERE w.volume = r.volume AND w.file = r.file AND w.file IS NOT NULL)
        ORDER BY r.volume, r.file";
}

/// Bytes and number of segments that a transaction adds to each volume.
pub(crate) type VolumeSums = BTreeMap<String, (i64, i64)>;

/// Writes segments and adds them to the sums of their volumes.
pub(crate) async fn insert_segments(rows: &[SegmentRow], volumes: &mut VolumeSums, tx: &mut Tx) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    for row in rows {
        let sum = volumes.entry(row.volume.clone()).or_default();
        *sum = (sum.0 + row.length, sum.1 + 1);
    }
    tx.execute(&INSERT_SEGMENTS, args![&json(rows)?]).await?;
    Ok(())
}

#[derive(Serialize)]
struct VolumeSum<'a> {
    label: &'a str,
    bytes: i64,
    segments: i64,
}

/// Adds to the counts of live data of volumes, in the order of labels: the last locks a transaction takes.
pub(crate) async fn recount_volumes(volumes: &VolumeSums, tx: &mut Tx) -> Result<()> {
    if volumes.is_empty() {
        return Ok(());
    }
    let sums: Vec<_> = volumes.iter().map(|(label, &(bytes, segments))| VolumeSum { label, bytes, segments }).collect();
    let rows = json(&sums)?;
    tx.lock(&LOCK_VOLUMES, args![&rows]).await?;
    tx.execute(&RECOUNT_VOLUMES, args![&rows]).await?;
    Ok(())
}

impl Catalog {
    /// Bitfiles with their copies and segments, in one round trip, by bitfile. Unknown ones are left out.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn locate(&self, bitfiles: &[BitfileId]) -> Result<Vec<Located>> {
        assemble(&self.rows(&LOCATE, args![&bitfile_rows(bitfiles)?]).await?)
    }

    /// One bitfile with its copies and segments.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn locate_one(&self, bitfile: BitfileId) -> Result<Located> {
        let found = self.locate(&[bitfile]).await?.pop();
        found.ok_or_else(|| CatalogError::not_found("bitfile", bitfile))
    }

    /// Which of these files of disk volumes the catalogue does not know: no bitfile and no cut upload has a segment
    /// there, and none is queued for reclaim. One statement for all.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn unknown_files(&self, files: &[VolumeFile]) -> Result<Vec<VolumeFile>> {
        #[derive(Serialize)]
        struct FileRow<'a> {
            volume: &'a str,
            file: i64,
        }
        let rows: Vec<_> =
            files.iter().map(|file| FileRow { volume: file.volume.as_str(), file: file.file.column() }).collect();
        let rows = self.rows(&UNKNOWN_FILES, args![&json(&rows)?]).await?;
        let read = |row: &Row| {
            let mut row = row.cursor();
            Ok(VolumeFile { volume: row.name()?, file: FileId(row.number()?) })
        };
        rows.iter().map(read).collect()
    }
}

/// Puts the rows of [`LOCATE`] together; they are sorted by bitfile, copy and range.
fn assemble(rows: &[Row]) -> Result<Vec<Located>> {
    let mut found: Vec<Located> = Vec::new();
    for row in rows {
        let mut row = row.cursor();
        let bitfile = read_bitfile(&mut row)?;
        if found.last().is_none_or(|last| last.bitfile.id != bitfile.id) {
            found.push(Located { bitfile, copies: Vec::new() });
        }
        let Some(located) = found.last_mut() else { continue };
        let Some(number) = row.maybe_number()? else { continue };
        let number = u32::try_from(number).map_err(|_| CatalogError::corrupt("a copy's number is too large"))?;
        let copy = Copy {
            number,
            storage_class: row.name()?,
            complete: row.flag()?,
            created: row.time()?,
            last_used: row.time()?,
            expires: row.maybe_time()?,
            segments: Vec::new(),
        };
        if located.copies.last().is_none_or(|last| last.number != number) {
            located.copies.push(copy);
        }
        if let (Some(copy), Some(segment)) = (located.copies.last_mut(), read_segment(&mut row)?) {
            copy.segments.push(segment);
        }
    }
    Ok(found)
}

fn read_bitfile(row: &mut Cursor<'_>) -> Result<Bitfile> {
    Ok(Bitfile {
        id: row.bitfile()?,
        entry: row.maybe_number()?.map(wire::id::EntryId),
        size_bytes: row.number()?,
        cos: row.name()?,
        owner: row.name()?,
        group: row.name()?,
        sums: read_sums(row)?,
        generation: row.number()?,
        created: row.time()?,
        residency: read_residency(row)?,
    })
}

/// Reads `start, length, volume, major, minor, skip, adler32, crc32c`, all NULL where there is no segment.
pub(crate) fn read_segment(row: &mut Cursor<'_>) -> Result<Option<Segment>> {
    let Some(start) = row.maybe_number()? else { return Ok(None) };
    let length_bytes = row.number()?;
    let range = ByteRange::new(start, length_bytes).map_err(CatalogError::corrupt)?;
    let volume = row.name()?;
    let (major, minor) = (row.number()?, row.number()?);
    let too_large = |_| CatalogError::corrupt("a place on tape is too large");
    let place = match row.maybe_number()? {
        None => Place::Disk { file: FileId(major), offset_bytes: minor },
        Some(skip) => Place::Tape {
            container: u32::try_from(major).map_err(too_large)?,
            block: minor,
            skip_bytes: u32::try_from(skip).map_err(too_large)?,
        },
    };
    let extent = Extent { volume, place, length_bytes };
    Ok(Some(Segment { range, extent, adler32: row.small()?, crc32c: row.small()? }))
}
