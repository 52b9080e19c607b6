//! Decides which of a transaction's files are published and what is written for them. Pure: no database, no clock.
//!
//! Facts go in, rows come out. The files of one round have different names, so none of them depends on another
//! except through quotas, which the ledger keeps count of.

use std::collections::BTreeSet;

use serde::Serialize;
use wire::extent::{ByteRange, Coverage, Place};
use wire::id::{AccountName, BitfileId, CosName, EntryId, GroupName, WorkId};

use crate::batch::Publish;
use crate::error::{CatalogError, Result};
use crate::quota::{Charge, Ledger};
use crate::record::{Base, ClassOfService, Expected, NewFile, Policies, Published, Segment, Twins};
use crate::sql::column;
use crate::time::Timestamp;

/// What the database holds where a file is to be published.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Whether the parent is there, and a directory.
    pub(super) parent: Parent,
    pub(super) existing: Option<Existing>,
    pub(super) directory_twin: bool,
    pub(super) base: Option<BaseFacts>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Parent {
    #[default]
    Missing,
    File,
    Directory,
}

#[derive(Debug, Clone)]
pub(super) struct Existing {
    pub(super) entry: EntryId,
    pub(super) bitfile: BitfileId,
    pub(super) owner: AccountName,
    pub(super) group: GroupName,
    pub(super) size_bytes: u64,
    pub(super) cos: CosName,
    pub(super) generation: u64,
    /// Why it may not be replaced.
    pub(super) locked: Option<&'static str>,
}

/// What the base of an append or a resumed upload already covers.
#[derive(Debug, Clone)]
pub(super) struct BaseFacts {
    pub(super) on_disk: bool,
    pub(super) ranges: Vec<ByteRange>,
}

/// The rows to be written for the files that are published.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) bitfiles: Vec<BitfileRow>,
    pub(super) new_entries: Vec<EntryRow>,
    pub(super) changed_entries: Vec<EntryRow>,
    pub(super) copies: Vec<CopyRow>,
    pub(super) segments: Vec<SegmentRow>,
    pub(super) work: Vec<WorkRow>,
    pub(super) retired: Vec<(BitfileId, CosName)>,
    pub(super) appended: Vec<ShareRow>,
    pub(super) resumed: Vec<ShareRow>,
    pub(super) parents: BTreeSet<i64>,
}

#[derive(Debug, Serialize)]
pub(super) struct BitfileRow {
    id: i64,
    entry: i64,
    size: i64,
    cos: String,
    owner: String,
    grp: String,
    adler32: u32,
    crc32c: u32,
    md5: Option<String>,
    sha256: Option<String>,
    generation: i64,
    tapes_wanted: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct EntryRow {
    id: i64,
    parent: i64,
    name: String,
    owner: String,
    grp: String,
    mode: u32,
    acl: Option<String>,
    modified_us: i64,
    bitfile: i64,
    /// Whether owner, group, mode and ACL of an existing name are overwritten.
    attributes: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct CopyRow {
    bitfile: i64,
    storage_class: String,
    volume: Option<String>,
}

/// A row of `segment`, also used by migration, staging and partial uploads.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SegmentRow {
    pub(crate) bitfile: i64,
    pub(crate) copy: u32,
    pub(crate) start: i64,
    pub(crate) length: i64,
    pub(crate) volume: String,
    pub(crate) major: i64,
    pub(crate) minor: i64,
    pub(crate) skip: Option<u32>,
    pub(crate) adler32: u32,
    pub(crate) crc32c: u32,
}

impl SegmentRow {
    pub(crate) fn new(bitfile: BitfileId, copy: u32, segment: &Segment) -> Self {
        let (major, minor, skip) = match segment.extent.place {
            Place::Disk { file, offset_bytes } => (file.column(), column(offset_bytes), None),
            Place::Tape { container, block, skip_bytes } => (i64::from(container), column(block), Some(skip_bytes)),
        };
        Self {
            bitfile: bitfile.column(),
            copy,
            start: column(segment.range.offset()),
            length: column(segment.range.length()),
            volume: segment.extent.volume.as_str().to_owned(),
            major,
            minor,
            skip,
            adler32: segment.adler32,
            crc32c: segment.crc32c,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct WorkRow {
    id: i64,
    pool: String,
    bitfile: i64,
    bytes: i64,
    due_us: i64,
}

/// A new bitfile and the one whose segments it takes over.
#[derive(Debug, Serialize)]
pub(super) struct ShareRow {
    bitfile: i64,
    base: i64,
}

/// Decides one file and, if it is published, adds its rows.
pub(super) fn decide(
    publish: &Publish,
    facts: &Facts,
    policies: &Policies,
    ledger: &mut Ledger,
    now: Timestamp,
    rows: &mut Rows,
) -> Result<Published> {
    let file = &publish.file;
    let class = check_place(file, facts, policies)?;
    let base = check_bytes(file, facts)?;

    let existing = facts.existing.as_ref();
    let keep = existing.filter(|_| !file.replace_attributes);
    let (owner, group) = keep.map_or((&file.owner, &file.group), |old| (&old.owner, &old.group));
    let new = Charge::of(owner, group, file.size_bytes);
    match existing {
        Some(old) => ledger.charge(&[Charge::of(&old.owner, &old.group, old.size_bytes).refund(), new])?,
        None => ledger.charge(&[new])?,
    }

    let entry = existing.map_or(EntryId(publish.first_id), |old| old.entry);
    let bitfile = match file.base {
        Base::Partial(partial) => partial,
        Base::Empty | Base::Append(_) => BitfileId(publish.first_id + 1),
    };
    let generation = existing.map_or(1, |old| old.generation + 1);
    rows.add(publish, entry, bitfile, generation, (owner, group), class, now);
    match base {
        Some(base) if matches!(file.base, Base::Append(_)) => {
            rows.appended.push(ShareRow { bitfile: bitfile.column(), base: base.column() });
        }
        Some(base) => rows.resumed.push(ShareRow { bitfile: bitfile.column(), base: base.column() }),
        None => {}
    }
    match existing {
        Some(old) => rows.retired.push((old.bitfile, old.cos.clone())),
        None => {
            rows.parents.insert(file.parent.column());
        }
    }
    Ok(Published { entry, bitfile, generation, replaced: existing.map(|old| old.bitfile) })
}

fn check_place<'p>(file: &NewFile, facts: &Facts, policies: &'p Policies) -> Result<&'p ClassOfService> {
    // A key that ends in `/` is a file without a name, which only a door of keys makes.
    match file.twins {
        Twins::Allow => crate::path::check_new_name(&file.name)?,
        Twins::Refuse => crate::path::check_file_name(&file.name)?,
    }
    let name = || file.name.clone();
    match facts.parent {
        Parent::Missing => return Err(CatalogError::not_found("directory", format!("#{}", file.parent))),
        Parent::File => return Err(CatalogError::NotADirectory { name: format!("#{}", file.parent) }),
        Parent::Directory => {}
    }
    if facts.directory_twin && file.twins == Twins::Refuse {
        return Err(CatalogError::IsADirectory { name: name() });
    }
    if let Some(why) = facts.existing.as_ref().and_then(|existing| existing.locked) {
        return Err(crate::objects::is_locked(&file.name, why));
    }
    match (file.expected, &facts.existing) {
        (Expected::Any, _) | (Expected::Nothing, None) => {}
        (Expected::Nothing, Some(_)) => return Err(CatalogError::Exists { name: name() }),
        (Expected::Exactly(wanted), Some(existing)) if existing.bitfile == wanted => {}
        (Expected::Exactly(_), _) => return Err(CatalogError::Changed { name: name() }),
    }
    policies.class(&file.cos).ok_or_else(|| CatalogError::not_found("class of service", &file.cos))
}

/// Checks that base and new segments together are the whole file, and returns the base.
fn check_bytes(file: &NewFile, facts: &Facts) -> Result<Option<BitfileId>> {
    let base = match file.base {
        Base::Empty => None,
        Base::Append(base) | Base::Partial(base) => Some(base),
    };
    let mut coverage = Coverage::new();
    if let Some(base) = base {
        let facts = facts.base.as_ref().ok_or_else(|| CatalogError::not_found("bitfile to go on from", base))?;
        if !facts.on_disk {
            return Err(CatalogError::inconsistent(format!(
                "bitfile {base} is not on disk: stage it before appending"
            )));
        }
        for range in &facts.ranges {
            coverage.add(*range).map_err(|error| CatalogError::corrupt(format!("bitfile {base}: {error}")))?;
        }
    }
    for segment in &file.segments {
        check_segment(segment)?;
        if !matches!(segment.extent.place, Place::Disk { .. }) {
            return Err(CatalogError::inconsistent("a file is published from disk"));
        }
        coverage.add(segment.range).map_err(CatalogError::inconsistent)?;
    }
    let whole = ByteRange::new(0, file.size_bytes).map_err(CatalogError::inconsistent)?;
    if let Some(missing) = coverage.missing_in(whole).first() {
        return Err(CatalogError::inconsistent(format!("bytes {missing} of {:?} are missing", file.name)));
    }
    if coverage.end() > file.size_bytes {
        return Err(CatalogError::inconsistent(format!(
            "{:?} has bytes up to {}, its size is {}",
            file.name,
            coverage.end(),
            file.size_bytes
        )));
    }
    Ok(base)
}

/// Checks what a segment says of itself.
pub(crate) fn check_segment(segment: &Segment) -> Result<()> {
    if segment.range.length() == segment.extent.length_bytes {
        return Ok(());
    }
    Err(CatalogError::inconsistent(format!(
        "a segment of bytes {} has an extent of {} bytes",
        segment.range, segment.extent.length_bytes
    )))
}

impl Rows {
    #[allow(clippy::too_many_arguments, reason = "what one file comes to, in one place")]
    fn add(
        &mut self,
        publish: &Publish,
        entry: EntryId,
        bitfile: BitfileId,
        generation: u64,
        (owner, group): (&AccountName, &GroupName),
        class: &ClassOfService,
        now: Timestamp,
    ) {
        let file = &publish.file;
        self.bitfiles.push(BitfileRow {
            id: bitfile.column(),
            entry: entry.column(),
            size: column(file.size_bytes),
            cos: file.cos.as_str().to_owned(),
            owner: owner.as_str().to_owned(),
            grp: group.as_str().to_owned(),
            adler32: file.sums.adler32,
            crc32c: file.sums.crc32c,
            md5: file.sums.md5.map(hex::encode),
            sha256: file.sums.sha256.map(hex::encode),
            generation: column(generation),
            tapes_wanted: class.copies,
        });
        let row = EntryRow {
            id: entry.column(),
            parent: file.parent.column(),
            name: file.name.clone(),
            owner: owner.as_str().to_owned(),
            grp: group.as_str().to_owned(),
            mode: file.mode & 0o7777,
            acl: file.acl.clone(),
            modified_us: file.modified.unwrap_or(now).0,
            bitfile: bitfile.column(),
            attributes: i64::from(file.replace_attributes),
        };
        if entry == EntryId(publish.first_id) {
            self.new_entries.push(row)
        } else {
            self.changed_entries.push(row)
        }
        self.copies.push(CopyRow {
            bitfile: bitfile.column(),
            storage_class: file.storage_class.as_str().to_owned(),
            volume: file.segments.first().map(|segment| segment.extent.volume.as_str().to_owned()),
        });
        self.segments.extend(file.segments.iter().map(|segment| SegmentRow::new(bitfile, 0, segment)));
        if class.copies > 0 {
            self.work.push(WorkRow {
                id: WorkId(publish.first_id + 2).column(),
                pool: file.cos.as_str().to_owned(),
                bitfile: bitfile.column(),
                bytes: column(file.size_bytes),
                due_us: now.after(class.migration_age).0,
            });
        }
    }
}
