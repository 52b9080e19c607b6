//! MODE E, GridFTP's extended block mode: blocks with offsets, over any number of connections, in any order.
//!
//! Owns the 17-byte header and the accounting of ends: which blocks and end marks a transfer may still get, and when it
//! is whole. Talks to nobody: movers and client feed it. Never holds file data.
//!
//! Invariant: after an error nothing changes any more, and the transfer is lost; a block's numbers are bounded before
//! anyone uses them.
//!
//! # Source
//!
//! GFD.20 section 4.2: descriptor (8 bits), byte count (64), offset (64), in network byte order. What Globus sends
//! decides where the text is loose: one header with EOF carries the number of end marks in its offset field, usually
//! together with EOD (`48 0 N`); each other connection ends with EOD (`08 0 0`).

use crate::extent::ByteRange;

/// Bytes of a block header.
pub const HEADER_BYTES: usize = 17;

/// Most connections, and so end marks, that one sender may announce.
pub const MAX_CHANNELS: u64 = 4096;

/// Most blocks of one transfer that carry no data and end nothing; a sender of empty blocks is stopped.
pub const MAX_EMPTY_BLOCKS: u64 = 65_536;

/// End of record; no meaning for files, allowed.
const EOR: u8 = 0x80;
/// The offset field is the number of end marks to wait for.
const EOF: u8 = 0x40;
/// The sender suspects errors in the block. (0x10, a restart marker of block mode, has no place in files.)
const SUSPECT: u8 = 0x20;
/// No more data on this connection for this transfer.
const EOD: u8 = 0x08;
/// The sender closes this connection after the block.
const CLOSE: u8 = 0x04;

const NOTHING: ByteRange = match ByteRange::new(0, 0) {
    Ok(range) => range,
    Err(_) => unreachable!(),
};

/// A block header as it is on the wire, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Data, or nothing but an end mark if the range is empty.
    Block {
        /// Where the data that follows the header belongs; the offset counts from the start of the file, or of the part
        /// for ERET and ESTO.
        range: ByteRange,
        /// The connection carries no more data for this transfer.
        end_of_data: bool,
        /// The sender closes the connection after this block; otherwise it can be used for the next transfer.
        close: bool,
    },
    /// How many connections the sender used, and so how many end marks to wait for.
    EndOfFile {
        /// Their number.
        channels: u64,
        /// This is also the end mark of this connection, as is usual.
        end_of_data: bool,
        /// As for a block.
        close: bool,
    },
}

/// Why a MODE E stream cannot be followed any further. The connections are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModeEError {
    /// A descriptor bit without a meaning here: the peer speaks something else, or the stream is out of step.
    #[error("MODE E header has the descriptor {descriptor:#04x}, whose bits {unknown:#04x} have no meaning here")]
    UnknownDescriptor {
        /// The descriptor.
        descriptor: u8,
        /// The bits that are refused.
        unknown: u8,
    },
    /// The sender marked a block as suspect: its data must not be stored.
    #[error("the sender suspects errors in a block")]
    Suspect,
    /// Offset and count end beyond 2^63 - 1, or beyond the bytes the transfer may carry.
    #[error("a block of {length_bytes} bytes at {offset_bytes} ends beyond {limit_bytes}")]
    OutOfBounds {
        /// The offset sent.
        offset_bytes: u64,
        /// The count sent.
        length_bytes: u64,
        /// Where the transfer ends at the latest.
        limit_bytes: u64,
    },
    /// An end-of-file mark that carries data, or announces no or too many connections.
    #[error(
        "the end-of-file mark announces {channels} connections (1 to {MAX_CHANNELS} are possible) and {length_bytes} bytes (0)"
    )]
    BadEndOfFile {
        /// The number announced.
        channels: u64,
        /// The count sent.
        length_bytes: u64,
    },
    /// A second end-of-file mark that says something else than the first.
    #[error("two end-of-file marks announce {first} and {second} connections")]
    TwoEndsOfFile {
        /// The first number.
        first: u64,
        /// The second.
        second: u64,
    },
    /// More connections ended than were announced, or than are possible.
    #[error("{ended} connections ended, {announced} were announced")]
    TooManyEnds {
        /// How many ended.
        ended: u64,
        /// How many there may be.
        announced: u64,
    },
    /// More than [`MAX_EMPTY_BLOCKS`] blocks without data or end mark.
    #[error("more than {MAX_EMPTY_BLOCKS} blocks without data")]
    TooManyEmptyBlocks,
}

impl Header {
    /// A block of data.
    pub const fn data(range: ByteRange) -> Self {
        Self::Block { range, end_of_data: false, close: false }
    }

    /// The end mark of one connection.
    pub const fn end_of_data(close: bool) -> Self {
        // Offset 0, as Globus sends it.
        Self::Block { range: NOTHING, end_of_data: true, close }
    }

    /// The end mark of one connection that also says how many were used.
    pub const fn end_of_file(channels: u64, close: bool) -> Self {
        Self::EndOfFile { channels, end_of_data: true, close }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (descriptor, count, offset, end_of_data, close) = match *self {
            Self::Block { range, end_of_data, close } => (0, range.length(), range.offset(), end_of_data, close),
            Self::EndOfFile { channels, end_of_data, close } => (EOF, 0, channels, end_of_data, close),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = descriptor | if end_of_data { EOD } else { 0 } | if close { CLOSE } else { 0 };
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// [`ModeEError`]; the stream cannot be resynchronised and is closed.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, ModeEError> {
        let descriptor = bytes[0];
        let field = |at: usize| bytes[at..at + 8].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let (length_bytes, offset_bytes) = (field(1), field(9));
        if descriptor & SUSPECT != 0 {
            return Err(ModeEError::Suspect);
        }
        let unknown = descriptor & !(EOR | EOF | EOD | CLOSE);
        if unknown != 0 {
            return Err(ModeEError::UnknownDescriptor { descriptor, unknown });
        }
        let (end_of_data, close) = (descriptor & EOD != 0, descriptor & CLOSE != 0);
        if descriptor & EOF != 0 {
            if length_bytes != 0 || !(1..=MAX_CHANNELS).contains(&offset_bytes) {
                return Err(ModeEError::BadEndOfFile { channels: offset_bytes, length_bytes });
            }
            return Ok(Self::EndOfFile { channels: offset_bytes, end_of_data, close });
        }
        let limit_bytes = i64::MAX as u64;
        let range = ByteRange::new(offset_bytes, length_bytes).map_err(|_| ModeEError::OutOfBounds {
            offset_bytes,
            length_bytes,
            limit_bytes,
        })?;
        Ok(Self::Block { range, end_of_data, close })
    }
}

/// What to do with the connection a header came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Read these bytes of data first; may be empty.
    pub data: ByteRange,
    /// Then this connection is done for this transfer.
    pub channel_ends: bool,
    /// And the sender closes it: it cannot carry the next transfer.
    pub channel_closes: bool,
}

/// Accounts for the headers of one receiver of one transfer, over all its connections.
///
/// The caller reads a header from any connection, asks [`header`](Self::header), reads [`Step::data`] and stores it, and
/// when the channel ends stops reading that connection. The transfer has ended when [`has_ended`](Self::has_ended) says
/// so *and* the data of every step has been stored; connections may still appear until then. Whether the bytes are the
/// whole file is the caller's [`Coverage`](crate::extent::Coverage).
#[derive(Debug, Clone)]
pub struct Assembler {
    limit_bytes: u64,
    ended: u64,
    announced: Option<u64>,
    empty: u64,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembler {
    /// For a transfer of unknown size.
    pub const fn new() -> Self {
        Self::with_limit(i64::MAX as u64)
    }

    /// For a transfer whose offsets all lie below `limit_bytes`.
    pub const fn with_limit(limit_bytes: u64) -> Self {
        Self { limit_bytes, ended: 0, announced: None, empty: 0 }
    }

    /// Takes one header into account.
    ///
    /// # Errors
    ///
    /// [`ModeEError`]; the transfer has failed.
    pub fn header(&mut self, header: Header) -> Result<Step, ModeEError> {
        let (data, channel_ends, channel_closes) = match header {
            Header::Block { range, end_of_data, close } => {
                if !range.is_empty() && range.end() > self.limit_bytes {
                    return Err(ModeEError::OutOfBounds {
                        offset_bytes: range.offset(),
                        length_bytes: range.length(),
                        limit_bytes: self.limit_bytes,
                    });
                }
                if range.is_empty() && !end_of_data {
                    self.empty += 1;
                }
                (range, end_of_data, close)
            }
            Header::EndOfFile { channels, end_of_data, close } => {
                match self.announced {
                    Some(first) if first != channels => {
                        return Err(ModeEError::TwoEndsOfFile { first, second: channels });
                    }
                    Some(_) => self.empty += 1,
                    None => self.announced = Some(channels),
                }
                (NOTHING, end_of_data, close)
            }
        };
        if self.empty > MAX_EMPTY_BLOCKS {
            return Err(ModeEError::TooManyEmptyBlocks);
        }
        self.ended += u64::from(channel_ends);
        let announced = self.announced.unwrap_or(MAX_CHANNELS);
        if self.ended > announced {
            return Err(ModeEError::TooManyEnds { ended: self.ended, announced });
        }
        Ok(Step { data, channel_ends, channel_closes })
    }

    /// Whether every announced connection has ended.
    pub fn has_ended(&self) -> bool {
        self.announced == Some(self.ended)
    }

    /// How many connections have ended.
    pub const fn ended(&self) -> u64 {
        self.ended
    }

    /// How many connections the sender used, once it has said so.
    pub const fn announced(&self) -> Option<u64> {
        self.announced
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(offset: u64, length: u64) -> Header {
        Header::data(ByteRange::new(offset, length).unwrap())
    }

    fn raw(descriptor: u8, count: u64, offset: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = descriptor;
        bytes[1..9].copy_from_slice(&count.to_be_bytes());
        bytes[9..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    #[test]
    fn headers_seen_from_globus_are_read_and_written_alike() {
        for (bytes, header) in [
            (raw(0x00, 262_144, 1_048_576), block(1_048_576, 262_144)),
            (raw(0x08, 0, 0), Header::end_of_data(false)),
            (raw(0x48, 0, 4), Header::end_of_file(4, false)),
            (raw(0x4c, 0, 1), Header::end_of_file(1, true)),
            (raw(0x40, 0, 2), Header::EndOfFile { channels: 2, end_of_data: false, close: false }),
        ] {
            assert_eq!(Header::decode(&bytes).unwrap(), header);
            assert_eq!(header.encode(), bytes);
        }
        assert_eq!(Header::decode(&raw(0x80, 1, 0)).unwrap(), block(0, 1));
    }

    #[test]
    fn every_descriptor_with_a_bad_bit_is_refused() {
        for descriptor in 0..=255u8 {
            let refused = Header::decode(&raw(descriptor, 0, 1)).is_err();
            assert_eq!(refused, descriptor & (SUSPECT | 0x10 | 0x03) != 0, "{descriptor:#x}");
        }
        assert_eq!(
            Header::decode(&raw(0x12, 0, 0)),
            Err(ModeEError::UnknownDescriptor { descriptor: 0x12, unknown: 0x12 })
        );
    }

    #[test]
    fn numbers_that_no_file_has_are_refused() {
        for (count, offset) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1, i64::MAX as u64)] {
            assert!(matches!(Header::decode(&raw(0, count, offset)), Err(ModeEError::OutOfBounds { .. })));
        }
        for (count, channels) in [(1, 1), (0, 0), (0, MAX_CHANNELS + 1), (0, u64::MAX)] {
            assert!(matches!(Header::decode(&raw(0x48, count, channels)), Err(ModeEError::BadEndOfFile { .. })));
        }
        let mut assembler = Assembler::with_limit(100);
        assert!(assembler.header(block(90, 10)).is_ok());
        assert!(matches!(assembler.header(block(91, 10)), Err(ModeEError::OutOfBounds { limit_bytes: 100, .. })));
    }

    #[test]
    fn a_transfer_ends_when_as_many_connections_ended_as_were_announced() {
        let mut assembler = Assembler::new();
        assert!(assembler.header(Header::end_of_data(false)).unwrap().channel_ends);
        assert!(!assembler.has_ended());
        assert!(assembler.header(Header::end_of_file(3, false)).unwrap().channel_ends);
        assert!(!assembler.has_ended());
        assert_eq!(assembler.header(block(0, 5)).unwrap().data.length(), 5);
        // A connection that appears late and carries only its end mark.
        assert!(assembler.header(Header::end_of_data(true)).unwrap().channel_closes);
        assert!(assembler.has_ended());
        assert!(matches!(
            assembler.header(Header::end_of_data(false)),
            Err(ModeEError::TooManyEnds { ended: 4, announced: 3 })
        ));
    }

    #[test]
    fn fewer_announced_than_ended_and_two_different_announcements_are_refused() {
        let mut assembler = Assembler::new();
        for _ in 0..2 {
            assembler.header(Header::end_of_data(false)).unwrap();
        }
        assert!(matches!(assembler.clone().header(Header::end_of_file(2, false)), Err(ModeEError::TooManyEnds { .. })));
        assembler.header(Header::end_of_file(4, false)).unwrap();
        assert!(matches!(
            assembler.header(Header::end_of_file(5, false)),
            Err(ModeEError::TwoEndsOfFile { first: 4, second: 5 })
        ));
    }

    #[test]
    fn endless_empty_blocks_and_endless_end_marks_are_stopped() {
        let mut assembler = Assembler::new();
        let stopped = (0..=MAX_EMPTY_BLOCKS).find_map(|_| assembler.header(block(0, 0)).err());
        assert_eq!(stopped, Some(ModeEError::TooManyEmptyBlocks));
        let mut assembler = Assembler::new();
        let stopped = (0..=MAX_CHANNELS).find_map(|_| assembler.header(Header::end_of_data(false)).err());
        assert!(matches!(stopped, Some(ModeEError::TooManyEnds { .. })));
    }

    proptest! {
        #[test]
        fn any_header_is_refused_or_survives_the_round_trip(bytes: [u8; HEADER_BYTES]) {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(Header::decode(&header.encode()).unwrap(), header);
                let _ = Assembler::with_limit(1 << 20).header(header);
            }
        }
    }
}
