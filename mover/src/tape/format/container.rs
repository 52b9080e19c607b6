//! What containers and indexes say about themselves: JSON lines for people, a footer of 512 bytes for the next writer.
//!
//! The footer is the last block of the last member before the archive's end, so it lies in the last record of its tape
//! file and is found by reading that one record backwards over zeros.

use serde::{Deserialize, Serialize};
use wire::checksum::Sums;
use wire::extent::{Extent, Place};
use wire::id::{BitfileId, VolumeLabel};

use super::BLOCK_BYTES;
use super::member::digest;
use crate::tape::member::{Member, SegmentOf};

/// The most members of one container: their list is kept in memory until it is closed.
pub const MAX_MEMBERS: usize = 65_536;

/// The longest trailer or index we read.
pub const MAX_LIST_BYTES: u64 = 64 << 20;

/// No more members are taken when their lines have this length: half of what is read.
pub const FULL_LIST_BYTES: usize = 32 << 20;

const FOOTER_MAGIC: &str = "PENSTOCK-FOOTER ";

/// What `.penstock/CONTAINER` says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerInfo {
    /// Identity of the container: 16 random bytes in hexadecimal.
    pub identity: String,
    /// The volume's label.
    pub volume: VolumeLabel,
    /// Its number on the volume, from 1.
    pub container: u32,
    /// Its first record.
    pub start_block: u64,
    /// Behind the filemark of the tape file before it.
    pub previous_end: u64,
    /// Who wrote it.
    pub writer: String,
    /// In which mount.
    pub epoch: u64,
    /// When, in microseconds since the epoch.
    pub written_us: u64,
}

/// Whether a tape file holds members or an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// Members.
    Container,
    /// The list of all containers so far.
    Index,
}

/// Where the list of a tape file lies: a container's trailer or an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrailerPlace {
    /// The record it begins in.
    pub block: u64,
    /// How many bytes of that record come before it.
    pub skip_bytes: u32,
    /// How many bytes it has, footer excluded.
    pub length_bytes: u64,
    /// CRC-32C of these bytes.
    pub crc32c: u32,
}

/// The last 512 bytes of a trailer or an index.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Footer {
    /// Of what.
    pub kind: PartKind,
    /// The volume's label.
    pub volume: VolumeLabel,
    /// The container's number; of an index, the last container's.
    pub container: u32,
    /// Identity of the container; empty for an index.
    pub identity: String,
    /// The first record of the tape file.
    pub start_block: u64,
    /// Behind the filemark of the committed tape file before it.
    pub previous_end: u64,
    /// How many members, or containers.
    pub entries: u64,
    /// Where the list lies.
    pub list: TrailerPlace,
}

impl Footer {
    /// Magic, CRC-32C, JSON, padded with spaces to a block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let json = serde_json::to_string(self).expect("plain fields");
        let text = format!("{FOOTER_MAGIC}{:08x} {json}", crc_fast::crc32_iscsi(json.as_bytes()));
        let mut block = [b' '; BLOCK_BYTES];
        block[BLOCK_BYTES - 1] = b'\n';
        block[..text.len()].copy_from_slice(text.as_bytes());
        block
    }

    /// Decodes a block; `None` if it is no footer, or a damaged one.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(block).ok()?.strip_prefix(FOOTER_MAGIC)?;
        let (check, json) = text.split_at_checked(8)?;
        let json = json.trim();
        if u32::from_str_radix(check, 16).ok()? != crc_fast::crc32_iscsi(json.as_bytes()) {
            return None;
        }
        serde_json::from_str(json).ok()
    }

    /// Finds the footer of a tape file in its last record; `None` if the tape file was never finished.
    #[must_use]
    pub fn find(record: &[u8]) -> Option<Self> {
        let block = record.rchunks_exact(BLOCK_BYTES).find(|block| block.iter().any(|&byte| byte != 0))?;
        Self::decode(block)
    }
}

/// One line of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The container's number.
    pub container: u32,
    /// Its first record.
    pub start_block: u64,
    /// Behind its filemark.
    pub next_block: u64,
    /// How many members it has.
    pub members: u64,
    /// Where its trailer lies.
    pub trailer: TrailerPlace,
}

/// One line of a trailer: everything about a member, in short words.
#[derive(Serialize, Deserialize)]
struct Line {
    oid: u64,
    ver: u64,
    path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    owner: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cos: String,
    mode: u32,
    mtime_us: i64,
    block: u64,
    skip: u32,
    len: u64,
    adler32: String,
    crc32c: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seg: Option<SegmentOf>,
}

/// Encodes a trailer's list: one JSON object a line, padded with spaces so that `length % 512 == 0`.
#[must_use]
pub fn encode_trailer(members: &[(Member, Extent)]) -> Vec<u8> {
    lines(members.iter().filter_map(|(member, extent)| {
        let Place::Tape { block, skip_bytes, .. } = extent.place else { return None };
        Some(Line {
            oid: member.bitfile.0,
            ver: member.version,
            path: member.path.clone(),
            owner: member.owner.clone(),
            group: member.group.clone(),
            cos: member.cos.clone(),
            mode: member.mode,
            mtime_us: member.modified_us,
            block,
            skip: skip_bytes,
            len: member.length_bytes,
            adler32: format!("{:08x}", member.sums.adler32),
            crc32c: format!("{:08x}", member.sums.crc32c),
            md5: member.sums.md5.map(hex::encode),
            sha256: member.sums.sha256.map(hex::encode),
            seg: member.segment,
        })
    }))
}

/// Decodes a trailer's list; `None` if it is damaged.
#[must_use]
pub fn decode_trailer(bytes: &[u8], volume: &VolumeLabel, container: u32) -> Option<Vec<(Member, Extent)>> {
    parse_lines(bytes)?
        .into_iter()
        .map(|line: Line| {
            let sums = Sums {
                adler32: u32::from_str_radix(&line.adler32, 16).ok()?,
                crc32c: u32::from_str_radix(&line.crc32c, 16).ok()?,
                md5: line.md5.as_deref().map(digest).transpose().ok()?,
                sha256: line.sha256.as_deref().map(digest).transpose().ok()?,
            };
            let place = Place::Tape { container, block: line.block, skip_bytes: line.skip };
            let member = Member {
                bitfile: BitfileId(line.oid),
                version: line.ver,
                path: line.path,
                owner: line.owner,
                group: line.group,
                cos: line.cos,
                mode: line.mode,
                modified_us: line.mtime_us,
                length_bytes: line.len,
                sums,
                segment: line.seg,
            };
            Some((member, Extent { volume: volume.clone(), place, length_bytes: line.len }))
        })
        .collect()
}

/// Encodes an index's list, as [`encode_trailer`] does.
#[must_use]
pub fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    lines(entries)
}

/// Decodes an index's list; `None` if it is damaged.
#[must_use]
pub fn decode_index(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    parse_lines(bytes)
}

/// The most bytes a member's line in a trailer can have.
#[must_use]
pub fn line_bytes(member: &Member) -> usize {
    // JSON writes a control character as six bytes; everything else of a line is below 700.
    let text = |text: &str| text.bytes().map(|byte| if byte < 0x20 { 6 } else { 2 }).sum::<usize>();
    700 + text(&member.path) + text(&member.owner) + text(&member.group) + text(&member.cos)
}

fn lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, &value).expect("plain fields into memory");
        bytes.push(b'\n');
    }
    let length = bytes.len().next_multiple_of(BLOCK_BYTES);
    pad_list(&mut bytes, length);
    bytes
}

/// Lengthens a list with spaces; the footer that follows begins a line of its own.
pub fn pad_list(list: &mut Vec<u8>, length_bytes: usize) {
    if list.len() < length_bytes {
        list.resize(length_bytes, b' ');
        list[length_bytes - 1] = b'\n';
    }
}

fn parse_lines<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<Vec<T>> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tape::format::member::tests::any_member;

    fn label() -> VolumeLabel {
        VolumeLabel::new("x".repeat(32)).unwrap()
    }

    fn longest_footer() -> Footer {
        Footer {
            kind: PartKind::Container,
            volume: label(),
            container: u32::MAX,
            identity: "f".repeat(32),
            start_block: u64::MAX,
            previous_end: u64::MAX,
            entries: u64::MAX,
            list: TrailerPlace { block: u64::MAX, skip_bytes: u32::MAX, length_bytes: u64::MAX, crc32c: u32::MAX },
        }
    }

    #[test]
    fn the_longest_footer_fits_its_block_and_is_found_before_zeros() {
        let footer = longest_footer();
        for zeros in [0, 2, 100] {
            let mut record = vec![7; 1024];
            record.extend_from_slice(&footer.encode());
            record.resize(record.len() + zeros * BLOCK_BYTES, 0);
            assert_eq!(Footer::find(&record), Some(footer.clone()));
        }
        assert_eq!(Footer::find(&[0; 4096]), None);
        assert_eq!(Footer::find(&[7; 4096]), None);
    }

    #[test]
    fn a_footer_with_any_byte_changed_is_none() {
        let block = longest_footer().encode();
        let used = block.iter().rposition(|&byte| byte != b' ' && byte != b'\n').unwrap() + 1;
        for at in 0..used {
            let mut damaged = block;
            damaged[at] ^= 1;
            assert_eq!(Footer::decode(&damaged), None, "byte {at}");
            assert_eq!(Footer::decode(&block[..at]), None);
        }
    }

    proptest! {
        #[test]
        fn a_trailer_comes_back(members in prop::collection::vec(any_member(), 0..5), block in any::<u64>()) {
            let with_extents: Vec<_> = members
                .into_iter()
                .map(|member| {
                    let place = Place::Tape { container: 3, block, skip_bytes: 1024 };
                    let extent = Extent { volume: label(), place, length_bytes: member.length_bytes };
                    (member, extent)
                })
                .collect();
            let bytes = encode_trailer(&with_extents);
            prop_assert_eq!(bytes.len() % BLOCK_BYTES, 0);
            prop_assert_eq!(decode_trailer(&bytes, &label(), 3), Some(with_extents));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let _ = (decode_trailer(&bytes, &label(), 1), decode_index(&bytes));
            prop_assert_eq!(Footer::find(&bytes), None);
        }
    }
}
