//! Bitfiles, their copies and segments, and what is needed to publish one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use wire::checksum::Sums;
use wire::extent::{ByteRange, Extent};
use wire::id::{AccountName, BitfileId, CosName, EntryId, GroupName, StorageClassName, VolumeLabel};

use crate::record::name::{Residency, Twins};
use crate::time::Timestamp;

/// The number of the first copy on disk; copies on tape count from 1.
pub const DISK_COPY: u32 = 0;

/// From here on numbers are those of replicas: further copies on disk.
pub const FIRST_REPLICA: u32 = 64;

/// How many replicas a bitfile can have.
pub const MAX_REPLICAS: u32 = 64;

/// A file's bytes, apart from its names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bitfile {
    /// Which.
    pub id: BitfileId,
    /// The name that holds it; `None` in the undelete window.
    pub entry: Option<EntryId>,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// The class of service it was written with.
    pub cos: CosName,
    /// Who pays for it.
    pub owner: AccountName,
    /// The group that pays for it.
    pub group: GroupName,
    /// The sums of the whole.
    pub sums: Sums,
    /// How often the name had been written when this was, from 1.
    pub generation: u64,
    /// When it was published.
    pub created: Timestamp,
    /// Where copies are.
    pub residency: Residency,
}

/// A bitfile with all of its copies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Located {
    /// The bitfile.
    pub bitfile: Bitfile,
    /// Its copies by number, the disk copy first; an incomplete tape copy is among them.
    pub copies: Vec<Copy>,
}

impl Located {
    /// The copy of that number, if there is one and it is complete.
    #[must_use]
    pub fn copy(&self, number: u32) -> Option<&Copy> {
        self.copies.iter().find(|copy| copy.number == number && copy.complete)
    }

    /// The complete copies on disk: the first, then its replicas.
    pub fn on_disk(&self) -> impl Iterator<Item = &Copy> {
        self.copies.iter().filter(|copy| copy.complete && copy.is_on_disk())
    }
}

/// One copy of a bitfile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// [`DISK_COPY`], 1 and up on tape, [`FIRST_REPLICA`] and up on further disks.
    pub number: u32,
    /// The storage class it lies in.
    pub storage_class: StorageClassName,
    /// Whether all bytes are there. A copy of a very large file may be written to several cartridges in turn.
    pub complete: bool,
    /// When it was made.
    pub created: Timestamp,
    /// When it was read last, to within a minute.
    pub last_used: Timestamp,
    /// Until when a staged disk copy was promised to stay; `None` for a copy that nobody asked for.
    pub expires: Option<Timestamp>,
    /// Its pieces, in the order of their range.
    pub segments: Vec<Segment>,
}

impl Copy {
    /// Whether it lies on disk: the first copy there, or a replica.
    #[must_use]
    pub const fn is_on_disk(&self) -> bool {
        self.number == DISK_COPY || self.number >= FIRST_REPLICA
    }

    /// Whether all of it lies on these volumes.
    #[must_use]
    pub fn lies_within(&self, volumes: &HashSet<VolumeLabel>) -> bool {
        self.segments.iter().all(|segment| volumes.contains(&segment.extent.volume))
    }

    /// Whether some of it lies on this volume.
    #[must_use]
    pub fn touches(&self, volume: &VolumeLabel) -> bool {
        self.segments.iter().any(|segment| segment.extent.volume == *volume)
    }
}

/// A byte range of one copy, on one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Which bytes of the bitfile; as long as the extent.
    pub range: ByteRange,
    /// Where they are.
    pub extent: Extent,
    /// Adler-32 of these bytes.
    pub adler32: u32,
    /// CRC-32C of these bytes.
    pub crc32c: u32,
}

/// What the name must hold for a file to be published under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expected {
    /// Anything: an existing file is replaced.
    #[default]
    Any,
    /// Nothing.
    Nothing,
    /// Exactly this bitfile, so that an update made meanwhile is not lost.
    Exactly(BitfileId),
}

/// From what a new bitfile is made, besides the segments that come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Base {
    /// From nothing.
    #[default]
    Empty,
    /// From the disk segments of this bitfile, which both then share; the new segments lie behind them.
    Append(BitfileId),
    /// From the segments saved with this partial upload, which is used up.
    Partial(BitfileId),
}

/// A file to be published: name, bitfile, disk copy, segments, quota and work, all in one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// The directory.
    pub parent: EntryId,
    /// The name in it.
    pub name: String,
    /// What the name must hold now.
    pub expected: Expected,
    /// Whether a directory of the same name is in the way.
    pub twins: Twins,
    /// Who owns a new name. An existing name keeps its owner unless `replace_attributes` is set.
    pub owner: AccountName,
    /// The group of a new name.
    pub group: GroupName,
    /// The permission bits of a new name.
    pub mode: u32,
    /// The access control list of a new name.
    pub acl: Option<String>,
    /// Whether owner, group, mode and ACL of an existing name are overwritten, as S3 does, or kept, as POSIX does.
    pub replace_attributes: bool,
    /// When the content was made, if the client says so; otherwise now.
    pub modified: Option<Timestamp>,
    /// The class of service.
    pub cos: CosName,
    /// The storage class of the disk copy.
    pub storage_class: StorageClassName,
    /// How long the whole file is.
    pub size_bytes: u64,
    /// The sums of the whole file.
    pub sums: Sums,
    /// What it is made from.
    pub base: Base,
    /// The new segments. With those of the base they cover the file without gap or overlap. A file of no bytes has
    /// none.
    pub segments: Vec<Segment>,
}

/// What came of publishing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// The name.
    pub entry: EntryId,
    /// The new bitfile.
    pub bitfile: BitfileId,
    /// How often the name has been written.
    pub generation: u64,
    /// What the name held before; it is in the undelete window now.
    pub replaced: Option<BitfileId>,
}

/// What has arrived of an upload that was cut: kept so that it may be resumed, never visible as a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partial {
    /// The bitfile it will become.
    pub id: BitfileId,
    /// The directory it was meant for.
    pub parent: EntryId,
    /// The name it was meant to get.
    pub name: String,
    /// Whose upload it is; nobody else can resume it.
    pub account: AccountName,
    /// The class of service it was begun with.
    pub cos: CosName,
    /// How long the file will be, if the client said.
    pub expected_size_bytes: Option<u64>,
    /// What has arrived, in the order of the ranges.
    pub segments: Vec<Segment>,
    /// When it was cut first.
    pub created: Timestamp,
    /// When it is given up.
    pub expires: Timestamp,
}

/// A cut upload to be kept. Segments saved before for the same directory, name and account stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPartial {
    /// The directory it was meant for.
    pub parent: EntryId,
    /// The name it was meant to get.
    pub name: String,
    /// Whose upload it is.
    pub account: AccountName,
    /// The class of service it was begun with.
    pub cos: CosName,
    /// How long the file will be, if the client said.
    pub expected_size_bytes: Option<u64>,
    /// What has arrived now.
    pub segments: Vec<Segment>,
    /// When it is given up.
    pub expires: Timestamp,
}

/// A promise that the disk copy of a bitfile stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pin {
    /// What stays.
    pub bitfile: BitfileId,
    /// For whom: `transfer/17`, `account/alice`. One holder has one pin on a bitfile.
    pub holder: String,
    /// Until when.
    pub until: Timestamp,
}

/// A disk copy that may be purged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeCandidate {
    /// Which.
    pub bitfile: BitfileId,
    /// What its purge would free.
    pub size_bytes: u64,
    /// When it was read last.
    pub last_used: Timestamp,
    /// Until when it was promised to stay.
    pub expires: Option<Timestamp>,
}

/// A replica that may be dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaCandidate {
    /// Of which bitfile.
    pub bitfile: BitfileId,
    /// Which of its copies.
    pub copy: u32,
    /// What its end would free.
    pub size_bytes: u64,
    /// When the bitfile was read last.
    pub last_used: Timestamp,
}

/// What came of the wish to purge one disk copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purged {
    /// It is gone from the catalogue; its files are being reclaimed.
    Freed {
        /// How many bytes it had.
        bytes: u64,
    },
    /// There was none.
    NotOnDisk,
    /// Not all the tape copies that are wanted are there.
    NotOnTape,
    /// Somebody has pinned it, or a stage request promised it until later.
    Pinned,
    /// It was read a moment ago.
    InUse,
}
