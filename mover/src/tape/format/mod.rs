//! What the bytes on a tape mean. Pure: bytes in, meaning out, and back.
//!
//! A volume is a row of tape files, each ended by a filemark:
//!
//! ```text
//! tape file 0   VOL1 (80 bytes), README (plain text), PENSTOCK-VOLUME (JSON)            labels
//! tape file n   one POSIX pax archive in records of 256 KiB (tar -b 512)
//!                 .penstock/CONTAINER   who wrote it, when, where it begins
//!                 members               x-header (path, PENSTOCK.oid, PENSTOCK.crc32c …), then data
//!                 .penstock/TRAILER     every member with place and sums; ends with a footer of 512 bytes
//! tape file m   the same with .penstock/INDEX: every container so far; ends with a footer
//! ```
//!
//! Any of them is read by `mt`, `dd` and `tar` alone, and the catalogue is rebuilt from them alone.
//!
//! Invariants: a container counts only if its last record holds a valid footer. A member's headers and the first byte
//! of its data lie in one record, so that one record says whose data it is.
//!
//! Decoders are bounded: nothing a tape says decides how much memory is taken.

mod container;
mod label;
mod member;
mod pax;

pub use container::{
    ContainerInfo, FULL_LIST_BYTES, Footer, IndexEntry, MAX_LIST_BYTES, MAX_MEMBERS, PartKind, TrailerPlace,
    decode_index, decode_trailer, encode_index, encode_trailer, line_bytes, pad_list,
};
pub use label::{VolumeInfo, decode_vol1, encode_vol1, readme};
pub use member::{MemberError, Part, decode_member, decode_part, encode_member, find_member};
pub use pax::{BLOCK_BYTES, PaxError, own_header, padding_bytes};

/// Bytes of every record of a container: `tar -b 512`.
pub const RECORD_BYTES: usize = 262_144;

/// Bytes of two zero blocks that end an archive.
pub const END_BYTES: usize = 2 * BLOCK_BYTES;

/// Name of the first member of a container.
pub const CONTAINER_NAME: &str = ".penstock/CONTAINER";
/// Name of the last member of a container.
pub const TRAILER_NAME: &str = ".penstock/TRAILER";
/// Name of the member of an index.
pub const INDEX_NAME: &str = ".penstock/INDEX";
/// Name of a member that only fills the rest of a record.
pub const PAD_NAME: &str = ".penstock/PAD";

/// Logical block address of the first container.
pub const FIRST_CONTAINER_BLOCK: u64 = 4;
