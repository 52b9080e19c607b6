//! What goes onto a tape and comes back: members, where they come from, and what is reported about them.

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};
use wire::checksum::Sums;
use wire::extent::{ByteRange, Extent};
use wire::id::{BitfileId, MoverId};

use super::error::DriveError;

/// The longest path a member may have, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;

/// One segment of a bitfile, as it is put into a container.
///
/// Everything the catalogue would need if nothing but the tape were left is written beside the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Whose bytes these are.
    pub bitfile: BitfileId,
    /// Orders the bitfiles that had this path: the larger is the newer one. The catalogue's time of publication, in
    /// microseconds since the epoch, will do.
    pub version: u64,
    /// The file's name, relative, for `tar` and for a rebuilt catalogue: UTF-8 without NUL, at most
    /// [`MAX_PATH_BYTES`].
    pub path: String,
    /// The owner's account name; may be empty.
    pub owner: String,
    /// The group's name; may be empty.
    pub group: String,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, in microseconds since the epoch.
    pub modified_us: i64,
    /// Bytes of data.
    pub length_bytes: u64,
    /// The sums of the data, known from when it arrived. Data that does not match is not written.
    pub sums: Sums,
    /// The class of service; may be empty.
    pub cos: String,
    /// Which part of the bitfile this is, if not the whole.
    pub segment: Option<SegmentOf>,
}

impl Member {
    /// A whole bitfile with defaults for what only a rebuilt catalogue would want.
    #[must_use]
    pub fn new(bitfile: BitfileId, path: impl Into<String>, length_bytes: u64, sums: Sums) -> Self {
        Self {
            bitfile,
            version: 0,
            path: path.into(),
            owner: String::new(),
            group: String::new(),
            mode: 0o640,
            modified_us: 0,
            length_bytes,
            sums,
            cos: String::new(),
            segment: None,
        }
    }
}

/// Which part of a bitfile a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentOf {
    /// Counted from 1.
    pub index: u32,
    /// How many there are.
    pub count: u32,
    /// The first byte's offset in the bitfile.
    pub offset_bytes: u64,
    /// The bitfile's length.
    pub total_bytes: u64,
}

/// Yields members and their data, in order.
///
/// A member is taken only when there is room for it. One that was taken but is not in the report is not on the tape.
pub trait MemberSource {
    /// The next member, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Any error abandons the container: the tape's committed state stays as it was.
    fn next_member(&mut self) -> Result<Option<Member>, SourceError>;

    /// Fills some of `buf` with the current member's data, and says how much; at least one byte, as long as the
    /// member has more. `buf` is never empty and never longer than what is left of the member.
    ///
    /// # Errors
    ///
    /// As for [`MemberSource::next_member`].
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError>;
}

/// Why a source cannot give what it promised.
#[derive(Debug)]
pub struct SourceError(pub Box<dyn Error + Send + Sync>);

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data to be written cannot be read")
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// What the writer of a container decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerHeader {
    /// The container's number on the volume, from 1: the catalogue's last number plus one. The drive refuses it if
    /// the tape does not end with that last container.
    pub sequence: u32,
    /// Who writes it.
    pub writer: MoverId,
}

/// Where a tape's committed data ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendPoint {
    /// The number of the last committed container; 0 on a tape with labels only.
    pub last_sequence: u32,
    /// Where the next container will begin.
    pub next_block: u64,
    /// Something that was never committed lies behind: it is overwritten, or skipped on WORM.
    pub torn: bool,
}

/// A committed container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppendReport {
    /// Its number.
    pub container: u32,
    /// Its first record.
    pub start_block: u64,
    /// Where the next one will begin.
    pub next_block: u64,
    /// Its members, in the order they came from the source.
    pub members: Vec<Written>,
    /// Why it ended.
    pub stopped: Stopped,
}

/// One member of a committed container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Whose bytes.
    pub bitfile: BitfileId,
    /// Where they lie.
    pub extent: Extent,
    /// The sums of what was written.
    pub sums: Sums,
}

/// Why a container was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// There were no more members.
    SourceEnded,
    /// The end of the tape is near: the volume is full.
    EarlyWarning,
    /// The next member would not fit; a smaller one might.
    NoRoom,
    /// A container takes no more members than it has.
    ContainerFull,
}

/// A member, or a part of one, to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Whose bytes must be there.
    pub bitfile: BitfileId,
    /// Where the whole member lies.
    pub extent: Extent,
    /// CRC-32C of the whole member, if the catalogue has it.
    pub crc32c: Option<u32>,
    /// Which bytes of the member; `None` is all, and only then can the sum be checked.
    pub range: Option<ByteRange>,
}

/// How reading went.
#[derive(Debug, Default)]
pub struct ReadReport {
    /// What became of each wanted member, in order; `Ok` only if all of its bytes came and its sum is right. Shorter
    /// than what was wanted if reading stopped.
    pub members: Vec<Result<(), DriveError>>,
    /// Why reading stopped before the end, if it did.
    pub stopped: Option<DriveError>,
}

/// Takes what is read: the index of the member in what was wanted, and some of its bytes, in order.
pub type Sink<'a> = dyn FnMut(usize, &[u8]) -> Result<(), SinkError> + 'a;

/// Why a sink takes no more.
#[derive(Debug)]
pub enum SinkError {
    /// Not this one; go on with the next.
    Skip(Box<dyn Error + Send + Sync>),
    /// Stop reading.
    Stop(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data cannot be delivered")
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Skip(source) | Self::Stop(source) => Some(&**source),
        }
    }
}
