//! Where a file is, and what was deleted.

use serde::{Deserialize, Serialize};

use crate::{
    extent::{ByteRange, Place},
    id::{AccountName, BitfileId, CosName, EntryId, GroupName, VolumeLabel},
};

/// All that is known of a file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Its path.
    pub path: String,
    /// Its entry in the tree.
    pub entry: EntryId,
    /// Its bytes.
    pub bitfile: BitfileId,
    /// Size.
    pub bytes: u64,
    /// Owner.
    pub owner: AccountName,
    /// Group.
    pub group: GroupName,
    /// Permission bits.
    pub mode: u32,
    /// When it was last modified.
    pub modified_us: i64,
    /// When its bytes were last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed_us: Option<i64>,
    /// Class of service.
    pub cos: CosName,
    /// Its sums: name and hexadecimal digits.
    pub sums: Vec<(String, String)>,
    /// Where its copies are.
    pub copies: Vec<Copy>,
    /// Until when it stays on disk whatever happens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<Pin>,
    /// What waits or runs for it, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<String>,
}

/// One copy of a bitfile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// Its number: 0 is on disk, tape copies count from 1.
    pub copy: u8,
    /// Whether every byte of the bitfile is in it.
    pub whole: bool,
    /// Its segments, in order.
    pub segments: Vec<Segment>,
}

/// One contiguous piece of a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// Which bytes of the bitfile.
    pub range: ByteRange,
    /// The volume.
    pub volume: VolumeLabel,
    /// Where on it.
    pub place: Place,
    /// CRC-32C of the piece, hexadecimal.
    pub crc32c: String,
    /// When it was last read and found good, or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_us: Option<i64>,
}

/// Somebody wants the disk copy kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pin {
    /// Who.
    pub holder: String,
    /// Until when; for good if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<i64>,
}

/// Something that was deleted or overwritten and can come back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Deleted {
    /// Its bytes.
    pub bitfile: BitfileId,
    /// The path it had.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Owner.
    pub owner: AccountName,
    /// When it was deleted.
    pub deleted_us: i64,
    /// When it cannot come back any more.
    pub until_us: i64,
}

/// Bring it back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Restore {
    /// Under this path; where it was if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// It is back.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// Under this path.
    pub path: String,
    /// Its bytes.
    pub bitfile: BitfileId,
}
