//! Taking over what a cartridge holds: the catalogue is made again from the tapes.
//!
//! A *unit* is a whole copy of a bitfile: one member, or parts that together cover it. Parts wait in a table of their own
//! until the cartridge with the last of them has been read. A unit becomes a new bitfile under its own number, with a
//! name; or a further copy of a bitfile that is known; or nothing, if the catalogue has it already.
//!
//! Invariants: a name that the catalogue has is changed only if it was taken over from a tape itself and the unit is the
//! newer one; then the older moves to the folder of what has no place. Doing it again changes nothing. One page of
//! members is one transaction.

mod decide;
mod place;

use std::collections::BTreeMap;

use serde::Serialize;
use wire::checksum::Sums;
use wire::extent::{ByteRange, Extent, Place};
use wire::id::BitfileId;

use self::decide::{Existing, Part, Verdict, chain, decide};
use self::place::Placer;
use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::leases::check_fence;
use crate::policies;
use crate::publish::SegmentRow;
use crate::quota::{Charge, Ledger};
use crate::record::{Adopted, Adoption, FoundMember, MAX_ADOPTED_ID, MAX_PAGE, Policies, Segment};
use crate::segments::{VolumeSums, insert_segments, recount_volumes};
use crate::sql::{args, column, json, statements};

#[cfg(test)]
pub(crate) use place::ALL as PLACE;

statements! {
    LOOK_AT_BITFILE =
        "SELECT size, adler32, crc32c, tapes, tapes_wanted FROM bitfile WHERE id = $1",
        "SELECT size, adler32, crc32c, tapes, tapes_wanted FROM bitfile WHERE id = $1 FOR UPDATE";

    /// A cut upload, or a part of one, will be a bitfile of that number.
    IS_PROMISED =
        "SELECT CAST(COUNT(*) AS BIGINT) FROM
        (SELECT id FROM partial WHERE id = $1 UNION ALL SELECT id FROM part WHERE id = $1) AS p";

    TAPE_COPIES =
        "SELECT c.number, c.volume, s.volume FROM copy c
        LEFT JOIN segment s ON s.bitfile = c.bitfile AND s.copy = c.number
        WHERE c.bitfile = $1 AND c.number BETWEEN 1 AND 63 ORDER BY c.number, s.start";

    INSERT_BITFILE =
        "INSERT INTO bitfile (id, entry, size, cos, owner, grp, adler32, crc32c, md5, sha256, generation, created_us,
            on_disk, tapes, tapes_wanted)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, 0, 1, $12)";

    INSERT_COPY =
        "INSERT INTO copy (bitfile, number, storage_class, complete, purgeable, volume, created_us, used_us)
        VALUES ($1, $2, $3, 1, 0, $4, $5, $5)";

    COUNT_COPY = "UPDATE bitfile SET tapes = tapes + 1 WHERE id = $1 RETURNING tapes, tapes_wanted";

    NOW_PURGEABLE = "UPDATE copy SET purgeable = 1 WHERE number = 0 AND bitfile = $1";

    MIGRATION_DONE = "DELETE FROM work WHERE kind = 'migrate' AND bitfile = $1";

    KEEP_STRAYS (bitfile bigint, volume text, major bigint, minor bigint, skip bigint, start bigint, length bigint,
        size bigint, adler32 bigint, crc32c bigint) =
        "INSERT INTO stray (bitfile, volume, major, minor, skip, start, length, size, adler32, crc32c)
        SELECT r.bitfile, r.volume, r.major, r.minor, r.skip, r.start, r.length, r.size, r.adler32, r.crc32c FROM r
        WHERE true ON CONFLICT (bitfile, volume, major, minor, skip) DO NOTHING";

    STRAYS_OF =
        "SELECT volume, major, minor, skip, start, length, adler32, crc32c FROM stray WHERE bitfile = $1 AND size = $2
        ORDER BY start, length DESC, volume, major, minor, skip LIMIT 100000";

    FORGET_STRAY =
        "DELETE FROM stray WHERE bitfile = $1 AND volume = $2 AND major = $3 AND minor = $4 AND skip = $5";

    FORGET_STRAYS = "DELETE FROM stray WHERE bitfile = $1 AND volume = $2";

    COUNT_STRAYS = "SELECT CAST(COUNT(*) AS BIGINT) FROM stray WHERE volume = $1";
}

impl Catalog {
    /// Takes over members that a cartridge holds: bitfiles under their own numbers and paths, with the tape's own record
    /// of owner, class and sums; further copies join. What the catalogue has already stays as it is, so the same page
    /// again changes nothing. Numbers that are given out from now on are beyond those taken over.
    ///
    /// # Errors
    ///
    /// `Stale` if the fence's lease is lost; `Inconsistent` for more members than a page has, or one that lies on another
    /// volume. Nothing is taken over then. What cannot be taken over by itself is among the refused.
    pub async fn adopt(&self, adoption: Adoption) -> Result<Adopted> {
        if adoption.members.len() > MAX_PAGE as usize {
            return Err(CatalogError::inconsistent("a page has more members than a page may have"));
        }
        let numbers = adoption.members.iter().map(|member| member.bitfile.0);
        if let Some(last) = numbers.filter(|number| *number <= MAX_ADOPTED_ID).max() {
            self.pass_ids(last).await?;
        }
        let wanted: usize = adoption.members.iter().map(|member| place::ids_for(&member.path)).sum();
        let ids = self.next_ids(u32::try_from(wanted.max(1)).unwrap_or(u32::MAX)).await?;
        self.write((adoption, ids.start), |(adoption, first), tx| Box::pin(adopt(adoption, *first, tx))).await
    }

    /// How many parts of bitfiles were found on this cartridge whose other parts were not found yet.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn strays_on(&self, volume: &wire::id::VolumeLabel) -> Result<u64> {
        self.row(&COUNT_STRAYS, args![volume]).await?.map_or(Ok(0), |row| row.cursor().number())
    }
}

/// A whole copy of a bitfile, as its last part describes it.
struct Unit<'a> {
    member: &'a FoundMember,
    sums: Sums,
    segments: Vec<Segment>,
}

struct Session<'a> {
    adoption: &'a Adoption,
    policies: Policies,
    ledger: Ledger,
    volumes: VolumeSums,
    placer: Placer,
    result: Adopted,
}

async fn adopt(adoption: &Adoption, first_id: u64, tx: &mut Tx) -> Result<Adopted> {
    if adoption.members.iter().any(|member| member.extent.volume != adoption.volume) {
        return Err(CatalogError::inconsistent(format!("a member does not lie on {}", adoption.volume)));
    }
    check_fence(adoption.fence.as_ref(), tx).await?;
    let policies = policies::read(tx).await?;
    let ledger = Ledger::read(tx, adoption.members.iter().map(|member| (&member.owner, &member.group))).await?;
    let mut session = Session {
        adoption,
        policies,
        ledger,
        volumes: VolumeSums::new(),
        placer: Placer::new(adoption.volume.clone(), first_id),
        result: Adopted::default(),
    };
    for member in &adoption.members {
        session.member(member, tx).await?;
    }
    let Session { ledger, volumes, result, .. } = session;
    ledger.write(tx).await?;
    recount_volumes(&volumes, tx).await?;
    Ok(result)
}

impl Session<'_> {
    async fn member(&mut self, member: &FoundMember, tx: &mut Tx) -> Result<()> {
        if let Err(why) = decide::check(member) {
            self.result.refused.push((member.bitfile, why.to_owned()));
            return Ok(());
        }
        let existing = look(member.bitfile, tx).await?;
        if existing.as_ref().is_some_and(|existing| existing.is_on(&self.adoption.volume)) {
            tx.execute(&FORGET_STRAYS, args![member.bitfile, &self.adoption.volume]).await?;
            self.result.known += 1;
            return Ok(());
        }
        let Some(unit) = self.unit(member, existing.as_ref(), tx).await? else {
            self.result.parts += 1;
            return Ok(());
        };
        let wanted = self.copy_wanted(member);
        match decide(existing.as_ref(), unit.member.size_bytes, &unit.sums, wanted) {
            Verdict::New { number } => self.new_bitfile(&unit, number, tx).await?,
            Verdict::Joins { number } => self.join(&unit, number, tx).await?,
            Verdict::Known => self.result.known += 1,
            Verdict::Refused(why) => {
                self.result.refused.push((member.bitfile, why.to_owned()));
                return Ok(());
            }
        }
        if unit.segments.len() > 1 {
            for segment in &unit.segments {
                let Place::Tape { container, block, skip_bytes } = segment.extent.place else { continue };
                let place = (&segment.extent.volume, i64::from(container), column(block), skip_bytes);
                tx.execute(&FORGET_STRAY, args![member.bitfile, place.0, place.1, place.2, place.3]).await?;
            }
        }
        Ok(())
    }

    /// The copy that this member makes whole; `None`, and the member is kept, if parts of it were not found yet.
    async fn unit<'m>(
        &self,
        member: &'m FoundMember,
        existing: Option<&Existing>,
        tx: &mut Tx,
    ) -> Result<Option<Unit<'m>>> {
        let (adler32, crc32c) = (member.sums.adler32, member.sums.crc32c);
        let own = Segment { range: member.range, extent: member.extent.clone(), adler32, crc32c };
        if member.range.length() == member.size_bytes {
            // A segment of no bytes is none.
            let segments = if member.range.is_empty() { Vec::new() } else { vec![own] };
            return Ok(Some(Unit { member, sums: member.sums, segments }));
        }
        let row = StrayRow { size: column(member.size_bytes), segment: SegmentRow::new(member.bitfile, 0, &own) };
        tx.execute(&KEEP_STRAYS, args![&json(&[row])?]).await?;
        let mut parts = Vec::new();
        for row in tx.rows(&STRAYS_OF, args![member.bitfile, column(member.size_bytes)]).await? {
            let mut row = row.cursor();
            let volume = row.name()?;
            let place = Place::Tape { container: row.small()?, block: row.number()?, skip_bytes: row.small()? };
            let range = ByteRange::new(row.number()?, row.number()?).map_err(CatalogError::corrupt)?;
            let extent = Extent { volume, place, length_bytes: range.length() };
            let part = Part { segment: Segment { range, extent, adler32: row.small()?, crc32c: row.small()? } };
            if existing.is_none_or(|existing| !existing.is_on(&part.segment.extent.volume)) {
                parts.push(part);
            }
        }
        let Some(segments) = chain(parts, member.size_bytes) else { return Ok(None) };
        let sums = segments.iter().fold(Sums::EMPTY, |sums, segment| {
            let next = Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None };
            sums.followed_by(&next, segment.range.length())
        });
        Ok(Some(Unit { member, sums, segments }))
    }

    /// Which copy is kept in this storage class.
    fn copy_wanted(&self, member: &FoundMember) -> u32 {
        let class = self.policies.class(&member.cos);
        let hierarchy = class.and_then(|class| self.policies.hierarchy(&class.hierarchy));
        let tapes = hierarchy.map(|hierarchy| hierarchy.tapes.as_slice()).unwrap_or_default();
        let index = tapes.iter().position(|tape| *tape == self.adoption.storage_class);
        index.and_then(|index| u32::try_from(index + 1).ok()).unwrap_or(1)
    }

    async fn new_bitfile(&mut self, unit: &Unit<'_>, number: u32, tx: &mut Tx) -> Result<()> {
        let member = unit.member;
        let id = member.bitfile;
        let Some(class) = self.policies.class(&member.cos) else {
            let why = format!("there is no class of service {} here: configure it, and do this again", member.cos);
            self.result.refused.push((id, why));
            return Ok(());
        };
        let promised = tx.row(&IS_PROMISED, args![id]).await?.map_or(Ok(0), |row| row.cursor().int())?;
        if promised > 0 {
            let why = "an upload that was cut holds its number: do this again when that was resumed or given up";
            self.result.refused.push((id, why.to_owned()));
            return Ok(());
        }
        let wanted = class.copies;
        let (entry, at_home) = self.placer.put(member, tx).await?;
        let hexed = (unit.sums.md5.map(hex::encode), unit.sums.sha256.map(hex::encode));
        tx.execute(
            &INSERT_BITFILE,
            args![
                id,
                entry,
                column(member.size_bytes),
                &member.cos,
                &member.owner,
                &member.group,
                unit.sums.adler32,
                unit.sums.crc32c,
                hexed.0.as_deref(),
                hexed.1.as_deref(),
                member.version,
                wanted
            ],
        )
        .await?;
        self.ledger.count(Charge::of(&member.owner, &member.group, member.size_bytes));
        self.copy(unit, number, tx).await?;
        *(if at_home { &mut self.result.files } else { &mut self.result.lost }) += 1;
        Ok(())
    }

    async fn join(&mut self, unit: &Unit<'_>, number: u32, tx: &mut Tx) -> Result<()> {
        let id = unit.member.bitfile;
        self.copy(unit, number, tx).await?;
        if let Some(row) = tx.row(&COUNT_COPY, args![id]).await? {
            let mut row = row.cursor();
            if row.int()? >= row.int()? {
                tx.execute(&NOW_PURGEABLE, args![id]).await?;
                tx.execute(&MIGRATION_DONE, args![id]).await?;
            }
        }
        self.result.joined += 1;
        Ok(())
    }

    async fn copy(&mut self, unit: &Unit<'_>, number: u32, tx: &mut Tx) -> Result<()> {
        let home = unit.segments.first().map_or(&self.adoption.volume, |segment| &segment.extent.volume);
        let id = unit.member.bitfile;
        tx.execute(&INSERT_COPY, args![id, number, &self.adoption.storage_class, home, tx.now]).await?;
        let rows: Vec<_> = unit.segments.iter().map(|segment| SegmentRow::new(id, number, segment)).collect();
        insert_segments(&rows, &mut self.volumes, tx).await?;
        self.result.bytes += unit.member.size_bytes;
        Ok(())
    }
}

/// A part that waits for the others: a segment, and the size of the whole.
#[derive(Serialize)]
struct StrayRow {
    size: i64,
    #[serde(flatten)]
    segment: SegmentRow,
}

async fn look(bitfile: BitfileId, tx: &mut Tx) -> Result<Option<Existing>> {
    let Some(row) = tx.row(&LOOK_AT_BITFILE, args![bitfile]).await? else { return Ok(None) };
    let mut row = row.cursor();
    let (size_bytes, adler32, crc32c) = (row.number()?, row.small()?, row.small()?);
    let (tapes, tapes_wanted) = (row.small()?, row.small()?);
    let sums = Sums { adler32, crc32c, md5: None, sha256: None };
    let mut copies: BTreeMap<u32, Vec<wire::id::VolumeLabel>> = BTreeMap::new();
    for row in tx.rows(&TAPE_COPIES, args![bitfile]).await? {
        let mut row = row.cursor();
        let volumes = copies.entry(row.small()?).or_default();
        volumes.extend(row.maybe_name()?);
        volumes.extend(row.maybe_name()?);
    }
    Ok(Some(Existing { size_bytes, sums, tapes, tapes_wanted, copies }))
}
