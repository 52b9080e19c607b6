//! What a cartridge says it holds, and what comes of taking that over.

use wire::checksum::Sums;
use wire::extent::{ByteRange, Extent};
use wire::id::{AccountName, BitfileId, CosName, GroupName, StorageClassName, VolumeLabel};

use crate::record::work::Fence;
use crate::time::Timestamp;

/// The largest number of a bitfile that is taken over from a tape: far beyond what a site gives out, and far from where
/// numbers end. A larger one is made up.
pub const MAX_ADOPTED_ID: u64 = 1 << 62;

/// Members of one cartridge that are to be in the catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoption {
    /// The cartridge.
    pub volume: VolumeLabel,
    /// The storage class whose pool it belongs to.
    pub storage_class: StorageClassName,
    /// What it holds, at most [`crate::record::MAX_PAGE`] in one go.
    pub members: Vec<FoundMember>,
    /// A lease that the caller must still hold.
    pub fence: Option<Fence>,
}

/// A bitfile, or a part of one, as a tape describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundMember {
    /// Whose bytes.
    pub bitfile: BitfileId,
    /// When the bitfile was published: the larger, the newer among those of one path.
    pub version: Timestamp,
    /// The path, as the tape has it.
    pub path: String,
    /// The owner.
    pub owner: AccountName,
    /// The group.
    pub group: GroupName,
    /// Permission bits.
    pub mode: u32,
    /// When the file was last modified.
    pub modified: Timestamp,
    /// The class of service.
    pub cos: CosName,
    /// The bitfile's size.
    pub size_bytes: u64,
    /// Which of its bytes are here.
    pub range: ByteRange,
    /// Where.
    pub extent: Extent,
    /// The sums of these bytes.
    pub sums: Sums,
}

/// What came of a page of members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Adopted {
    /// Files that are back under their names.
    pub files: u64,
    /// Files that are in the folder of what has no place of its own, with their bytes and sums.
    pub lost: u64,
    /// Bitfiles that the catalogue knew, and that have one copy more now.
    pub joined: u64,
    /// Members whose bitfile the catalogue knew, with all it needs.
    pub known: u64,
    /// Parts of bitfiles whose other parts lie on cartridges that have not been read yet.
    pub parts: u64,
    /// Bytes that were taken over.
    pub bytes: u64,
    /// What was not taken over, and why.
    pub refused: Vec<(BitfileId, String)>,
}
