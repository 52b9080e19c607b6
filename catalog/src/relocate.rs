//! Moving disk segments from one volume to another: what draining a disk volume records.
//!
//! The new bytes are durable before this is called. One transaction puts them in the old ones' place and queues the old
//! files for reclaim, so that there is no moment without a copy, and none with a file that belongs to nobody.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use wire::extent::Place;
use wire::id::{BitfileId, Epoch, FileId, VolumeLabel};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::leases::check_fence;
use crate::publish::check_segment;
use crate::purge::LAST_READERS;
use crate::queue::{Garbage, queue_reclaim};
use crate::record::{CatalogRefusal, Fence, Relocated, Segment};
use crate::segments::{VolumeSums, read_segment, recount_volumes};
use crate::sql::{args, bitfile_rows, column, json, statements};
use crate::staging::unused_files;

statements! {
    LOCK_RELOCATED (id bigint, work bigint) =
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id",
        "SELECT b.id FROM r JOIN bitfile b ON b.id = r.id ORDER BY b.id FOR UPDATE OF b";

    /// No migration of these begins before the transaction ends: it would read from where the bytes were.
    LOCK_MIGRATIONS (id bigint, work bigint) =
        "SELECT w.id FROM r JOIN work w ON w.bitfile = r.id AND w.kind = 'migrate' ORDER BY w.id",
        "SELECT w.id FROM r JOIN work w ON w.bitfile = r.id AND w.kind = 'migrate' ORDER BY w.id FOR UPDATE OF w";

    /// The claim of each, and whether a migration reads it now.
    LOOK_AT_RELOCATED (id bigint, work bigint) =
        "SELECT b.id, w.epoch,
            (SELECT CAST(COUNT(*) AS BIGINT) FROM work m WHERE m.bitfile = b.id AND m.kind = 'migrate'
                AND m.holder IS NOT NULL AND m.due_us > $2) AS migrating
        FROM r JOIN bitfile b ON b.id = r.id
        LEFT JOIN work w ON w.id = r.work AND w.bitfile = b.id AND w.kind = 'repack' AND w.holder IS NOT NULL";

    /// Their disk segments on the volume that is left. The `|| ''` has SQLite look by bitfile.
    LEAVING (id bigint, work bigint) =
        "SELECT s.bitfile, s.start, s.length, s.volume, s.major, s.minor, s.skip, s.adler32, s.crc32c
        FROM r JOIN segment s ON s.bitfile = r.id WHERE s.copy = 0 AND s.volume || '' = $2
        ORDER BY s.bitfile, s.start";

    RELOCATE (bitfile bigint, start bigint, volume text, major bigint, minor bigint) =
        "UPDATE segment SET volume = r.volume, major = r.major, minor = r.minor FROM r
        WHERE segment.bitfile = r.bitfile AND segment.copy = 0 AND segment.start = r.start";

    /// Where a copy begins is where it is looked for.
    COPY_BEGINS (bitfile bigint, start bigint, volume text, major bigint, minor bigint) =
        "UPDATE copy SET volume = r.volume FROM r
        WHERE copy.bitfile = r.bitfile AND copy.number = 0 AND r.start = 0";

    RELOCATIONS_DONE (id bigint) =
        "DELETE FROM work WHERE kind = 'repack' AND bitfile IN (SELECT r.id FROM r)";
}

impl Catalog {
    /// Records bitfiles whose disk segments have left the volume `from`: the new places, the old files' reclaim, the
    /// finished work; one transaction. Each new segment stands for an old one of the same range and sums, and all of a
    /// bitfile's segments on `from` leave together. Answers in the order given; what was not recorded is queued for
    /// reclaim.
    ///
    /// # Errors
    ///
    /// `Stale` if the fence's lease is lost: nothing is recorded then.
    pub async fn record_relocated(
        &self,
        from: &VolumeLabel,
        moved: Vec<Relocated>,
        fence: Option<Fence>,
    ) -> Result<Vec<Result<(), CatalogRefusal>>> {
        self.write((from.clone(), moved, fence), |(from, moved, fence), tx| {
            Box::pin(record(from, moved, fence.as_ref(), tx))
        })
        .await
    }
}

/// What is known of a bitfile before it is recorded.
#[derive(Default)]
struct Facts {
    epoch: Option<Epoch>,
    migrating: bool,
    leaving: Vec<Segment>,
}

#[derive(Serialize)]
struct PlaceRow<'a> {
    bitfile: i64,
    start: i64,
    volume: &'a str,
    major: i64,
    minor: i64,
}

async fn record(
    from: &VolumeLabel,
    moved: &[Relocated],
    fence: Option<&Fence>,
    tx: &mut Tx,
) -> Result<Vec<Result<(), CatalogRefusal>>> {
    check_fence(fence, tx).await?;
    let facts = look(from, moved, tx).await?;
    let now = tx.now;
    let (mut rows, mut done, mut old, mut strays) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut sums, mut seen) = (VolumeSums::new(), HashSet::new());
    let mut verdicts = Vec::with_capacity(moved.len());
    for item in moved {
        let verdict = match facts.get(&item.bitfile) {
            None => Err(CatalogRefusal::Stale),
            Some(_) if !seen.insert(item.bitfile) => Err(CatalogRefusal::Present),
            Some(facts) => facts.decide(from, item).map(|()| facts),
        };
        match &verdict {
            Ok(facts) => {
                for segment in &item.segments {
                    let Place::Disk { file, offset_bytes } = segment.extent.place else { continue };
                    let (volume, length) = (segment.extent.volume.as_str(), column(segment.range.length()));
                    rows.push(PlaceRow {
                        bitfile: item.bitfile.column(),
                        start: column(segment.range.offset()),
                        volume,
                        major: file.column(),
                        minor: column(offset_bytes),
                    });
                    add(&mut sums, volume, length, 1);
                    add(&mut sums, from.as_str(), -length, -1);
                }
                old.extend(files_of(&facts.leaving));
                done.push(item.bitfile);
            }
            Err(_) => strays.extend(files_of(&item.segments)),
        }
        verdicts.push(verdict.map(|_| ()));
    }
    if !rows.is_empty() {
        let rows = json(&rows)?;
        tx.execute(&RELOCATE, args![&rows]).await?;
        tx.execute(&COPY_BEGINS, args![&rows]).await?;
        tx.execute(&RELOCATIONS_DONE, args![&bitfile_rows(&done)?]).await?;
    }
    let (strays, old) = (unused_files(strays, tx).await?, unused_files(old, tx).await?);
    queue_reclaim(&strays, now, tx).await?;
    // Readers that were told where the bytes were a moment ago still find them.
    queue_reclaim(&old, now.after(LAST_READERS), tx).await?;
    recount_volumes(&sums, tx).await?;
    Ok(verdicts)
}

fn add(sums: &mut VolumeSums, volume: &str, bytes: i64, segments: i64) {
    let sum = sums.entry(volume.to_owned()).or_default();
    *sum = (sum.0 + bytes, sum.1 + segments);
}

impl Facts {
    /// Whether a bitfile is recorded at its new place. Pure.
    fn decide(&self, from: &VolumeLabel, moved: &Relocated) -> Result<(), CatalogRefusal> {
        if self.epoch != Some(moved.ticket.epoch) {
            return Err(CatalogRefusal::Stale);
        }
        if self.migrating {
            return Err(CatalogRefusal::Busy);
        }
        let stands_for = |new: &Segment, old: &Segment| {
            new.range == old.range && new.adler32 == old.adler32 && new.crc32c == old.crc32c
        };
        let fits = |new: &Segment| {
            new.extent.volume != *from
                && matches!(new.extent.place, Place::Disk { .. })
                && check_segment(new).is_ok()
                && self.leaving.iter().any(|old| stands_for(new, old))
        };
        let ranges: HashSet<_> = moved.segments.iter().map(|segment| segment.range).collect();
        let all = ranges.len() == self.leaving.len() && moved.segments.len() == self.leaving.len();
        if all && moved.segments.iter().all(fits) { Ok(()) } else { Err(CatalogRefusal::Misfit) }
    }
}

async fn look(from: &VolumeLabel, moved: &[Relocated], tx: &mut Tx) -> Result<HashMap<BitfileId, Facts>> {
    #[derive(Serialize)]
    struct Question {
        id: i64,
        work: i64,
    }
    let question = |item: &Relocated| Question { id: item.bitfile.column(), work: item.ticket.work.column() };
    let rows = json(&moved.iter().map(question).collect::<Vec<_>>())?;
    tx.lock(&LOCK_RELOCATED, args![&rows]).await?;
    tx.lock(&LOCK_MIGRATIONS, args![&rows]).await?;
    let now = tx.now;
    let mut facts: HashMap<BitfileId, Facts> = HashMap::new();
    for row in tx.rows(&LOOK_AT_RELOCATED, args![&rows, now]).await? {
        let mut row = row.cursor();
        let bitfile = row.bitfile()?;
        let epoch = row.maybe_number()?.map(Epoch);
        facts.insert(bitfile, Facts { epoch, migrating: row.int()? > 0, leaving: Vec::new() });
    }
    for row in tx.rows(&LEAVING, args![&rows, from]).await? {
        let mut row = row.cursor();
        let bitfile = row.bitfile()?;
        if let (Some(facts), Some(segment)) = (facts.get_mut(&bitfile), read_segment(&mut row)?) {
            facts.leaving.push(segment);
        }
    }
    Ok(facts)
}

/// The disk files that segments lie in.
fn files_of(segments: &[Segment]) -> Vec<Garbage> {
    let mut files: BTreeMap<(&VolumeLabel, FileId), i64> = BTreeMap::new();
    for segment in segments {
        if let Place::Disk { file, .. } = segment.extent.place {
            let bytes = files.entry((&segment.extent.volume, file)).or_default();
            *bytes = bytes.saturating_add(column(segment.extent.length_bytes));
        }
    }
    files.into_iter().map(|((volume, file), bytes)| Garbage { volume: volume.clone(), file, bytes }).collect()
}
