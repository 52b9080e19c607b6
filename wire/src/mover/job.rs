//! What a transfer moves: from one source to one sink.
//!
//! Every transfer has an *address space*: offsets in which its bytes lie. For a client's file it is the file itself
//! (or the part that was asked for); for a batch between movers the pieces lie in it one after the other. Sources and
//! sinks name the same bytes by the same offsets, so the two ends of a mover-to-mover transfer need no further
//! agreement, and blocks may arrive in any order.

use serde::{Deserialize, Serialize};

use crate::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Extent},
    id::{AccountName, BitfileId, ChannelId, CosName, DriveId, FileId, GroupName, VolumeLabel},
    mover::{BodyReport, Fault},
};

/// One movement of bytes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Where the bytes come from.
    pub source: Source,
    /// Where they go.
    pub sink: Sink,
    /// Sums to compute besides the two that always are, for a [`Sink::File`]. The data must then come in order.
    pub extra_sums: ExtraSums,
    /// The most bytes a second; `None` for as fast as it goes.
    pub rate_limit: Option<u64>,
}

/// Where bytes come from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Extents on this mover's volumes. On tape they are read in the order given: the gateway has ordered them.
    Extents(Vec<Piece>),
    /// A data endpoint.
    Channel {
        /// Which.
        channel: ChannelId,
        /// What is expected. In stream mode the first byte that comes is at its offset. With a known length, more is
        /// refused and less is [`super::FaultKind::Incomplete`]; `None` takes what comes, from offset 0.
        expected: Option<ByteRange>,
    },
}

/// A contiguous piece that is read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Where it lies in the transfer's address space.
    pub offset_bytes: u64,
    /// Where it is read.
    pub extent: Extent,
    /// Whose bytes these are: checked against the header on tape.
    pub bitfile: BitfileId,
    /// What its sums must be, if the piece is a whole segment. Checked wherever the bytes pass through memory.
    pub sums: Option<Sums>,
}

/// Where bytes go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Sink {
    /// A new file of a disk volume that takes bytes at any offset in any order: an upload.
    File(NewFile),
    /// New files of disk volumes, one a piece: a recall, or a copy from another mover. Reported as
    /// [`super::Event::Durable`] as they become whole.
    Files(Vec<FilePiece>),
    /// A container at the end of the tape in a drive.
    Tape(Append),
    /// A data endpoint.
    Channel {
        /// Which.
        channel: ChannelId,
        /// How the end is said in extended block mode.
        eof: Eof,
    },
    /// Nowhere: the bytes are read and their sums checked.
    Verify,
}

/// A new file of a disk volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NewFile {
    /// The volume.
    pub volume: VolumeLabel,
    /// The file. The byte at offset `o` of the transfer's address space is at `o - base_bytes` of the file.
    pub file: FileId,
    /// See `file`. Bytes before it are refused.
    pub base_bytes: u64,
    /// How much space to reserve at once; more is reserved as it comes.
    pub reserve_bytes: u64,
    /// Ranges that the file has already, when a cut upload goes on: they are refused if they come again, and not
    /// reported again. Empty for a new file.
    pub have: Vec<ByteRange>,
}

/// One file of a batch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FilePiece {
    /// Where its bytes lie in the transfer's address space.
    pub range: ByteRange,
    /// The volume it is made on.
    pub volume: VolumeLabel,
    /// The file; the piece begins at its start.
    pub file: FileId,
    /// What its sums must be; another result fails this piece only.
    pub sums: Option<Sums>,
}

/// A container to append to a tape (`docs/protocol/tape-format.md`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Append {
    /// The drive in which the volume is mounted.
    pub drive: DriveId,
    /// The volume, compared with what is mounted.
    pub volume: VolumeLabel,
    /// The container's sequence number: one more than the last one on the tape, or the append is refused.
    pub container: u32,
    /// What goes in, in the order in which it lies in the transfer's address space.
    pub members: Vec<Member>,
}

/// One member of a container: a bitfile, or a segment of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Where its bytes lie in the transfer's address space.
    pub range: ByteRange,
    /// Whose bytes they are.
    pub bitfile: BitfileId,
    /// Which part, if the bitfile is cut.
    pub segment: SegmentOf,
    /// Orders the bitfiles that had this path: when it was published, microseconds since the epoch.
    pub version: u64,
    /// The class of service it was written with: a catalogue that is made again from the tape keeps it so.
    pub cos: CosName,
    /// The file's path when it was migrated, for people who read the tape with `tar`.
    pub path: String,
    /// When the file was last modified, microseconds since the epoch.
    pub modified_us: i64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub owner: AccountName,
    /// Group.
    pub group: GroupName,
    /// The sums of this member; another result aborts the container.
    pub sums: Sums,
}

/// Which part of a bitfile a tape member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentOf {
    /// This part's number, from 1.
    pub index: u32,
    /// How many parts there are.
    pub count: u32,
    /// Where this part begins in the bitfile.
    pub offset_bytes: u64,
    /// The bitfile's size.
    pub bitfile_bytes: u64,
}

/// How the end of data is said in extended block mode. Ignored in stream mode, where the connection closes.
///
/// GFD.20: one EOF block tells how many connections each send an EOD block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Eof {
    /// This mover is the only sender: its own connections count.
    Own,
    /// This mover speaks for several that send to the same peer; together they have this many connections.
    Total(u32),
    /// Another mover says it.
    Other,
}

/// What came of a transfer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Bytes of file data moved.
    pub bytes: u64,
    /// What was written and not reported by [`super::Event::Durable`] before.
    pub written: Vec<Written>,
    /// Pieces that did not work while others did.
    pub failed: Vec<PieceFault>,
    /// Where the tape stands, after a [`Sink::Tape`].
    pub tape: Option<TapeEnd>,
    /// What an HTTP client's body said of itself, if the bytes came so.
    pub body: Option<Box<BodyReport>>,
}

/// A contiguous piece that was written and is on stable storage.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Written {
    /// Where its bytes lie in the transfer's address space.
    pub range: ByteRange,
    /// Where they are now.
    pub extent: Extent,
    /// Their sums.
    pub sums: Sums,
}

/// A piece that did not work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PieceFault {
    /// Where it lies in the transfer's address space: the offset of the piece as the job named it.
    pub offset_bytes: u64,
    /// Why.
    pub fault: Fault,
}

/// Where a tape stands after an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TapeEnd {
    /// The sequence number of the last committed container.
    pub container: u32,
    /// The logical block at which the next one begins.
    pub next_block: u64,
    /// What the drive believes is left, in bytes; a hint.
    pub remaining_bytes: u64,
    /// Early warning was reached: nothing more goes on this volume. Members that are not in `written` did not get on it.
    pub full: bool,
}

/// A file on a disk volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct VolumeFile {
    /// The volume.
    pub volume: VolumeLabel,
    /// The file.
    pub file: FileId,
}
