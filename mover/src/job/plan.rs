//! Whether a job makes sense, and which kind it is. Pure.
//!
//! Everything a job says is checked here, before anything is opened: what follows can rely on ranges that do not overlap
//! and pieces that are covered.

use wire::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Coverage, Place},
    id::{BitfileId, ChannelId, FileId, VolumeLabel},
    mover::{Append, Eof, Fault, FaultKind, FilePiece, Job, Member, NewFile, Piece, Sink, Source},
};

/// A job that makes sense.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Plan {
    /// A channel into one new file, at any offset in any order.
    Upload { from: From, file: NewFile, extra: ExtraSums },
    /// A channel into new files, one a piece.
    Receive { from: From, files: Vec<FilePiece> },
    /// A channel onto a tape.
    ReceiveToTape { from: From, append: Append },
    /// A channel into a channel.
    Relay { from: From, to: To },
    /// Disk files into a channel.
    Send { pieces: Vec<DiskPiece>, to: To },
    /// Disk files into new disk files.
    Copy { pieces: Vec<DiskPiece>, files: Vec<FilePiece> },
    /// Disk files onto a tape.
    Migrate { pieces: Vec<DiskPiece>, append: Append },
    /// Disk files are read and compared with their sums.
    Verify { pieces: Vec<DiskPiece>, extra: ExtraSums },
    /// A tape into a channel.
    SendTape { read: TapeRead, to: To },
    /// A tape into new disk files.
    Recall { read: TapeRead, files: Vec<FilePiece> },
    /// A tape is read and compared with its sums.
    VerifyTape { read: TapeRead },
}

/// A channel that bytes come from.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct From {
    pub(crate) channel: ChannelId,
    pub(crate) expected: Option<ByteRange>,
}

/// A channel that bytes go to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct To {
    pub(crate) channel: ChannelId,
    pub(crate) eof: Eof,
}

/// A piece of a disk file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DiskPiece {
    pub(crate) range: ByteRange,
    pub(crate) volume: VolumeLabel,
    pub(crate) file: FileId,
    pub(crate) offset_bytes: u64,
    pub(crate) sums: Option<Sums>,
}

/// Members of one tape, in the order in which they are read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TapeRead {
    pub(crate) volume: VolumeLabel,
    pub(crate) pieces: Vec<TapePiece>,
}

/// A member of a tape.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TapePiece {
    pub(crate) range: ByteRange,
    pub(crate) bitfile: BitfileId,
    pub(crate) piece: Piece,
}

fn bad<T>(message: impl std::fmt::Display) -> Result<T, Fault> {
    Err(Fault::new(FaultKind::BadRequest, message))
}

enum Pieces {
    Disk(Vec<DiskPiece>),
    Tape(TapeRead),
}

impl Plan {
    /// Checks a job.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] with the reason.
    pub(crate) fn of(job: Job) -> Result<Self, Fault> {
        let extra = job.extra_sums;
        if extra.any() && !matches!(job.sink, Sink::File(_) | Sink::Verify) {
            return bad("MD5 and SHA-256 are computed of an upload to one file, or when verifying");
        }
        Ok(match (job.source, job.sink) {
            (Source::Channel { channel, expected }, sink) => {
                let from = From { channel, expected };
                match sink {
                    Sink::File(file) => {
                        check_upload(&from, &file)?;
                        Self::Upload { from, file, extra }
                    }
                    Sink::Files(files) => {
                        let wanted = disjoint(files.iter().map(|file| file.range))?;
                        check_expected(expected, &wanted)?;
                        Self::Receive { from, files }
                    }
                    Sink::Tape(append) => {
                        let whole = contiguous(&append.members)?;
                        if expected.is_some_and(|expected| expected != whole) {
                            return bad(format!("the members are bytes {whole}, and other bytes are expected"));
                        }
                        Self::ReceiveToTape { from: From { channel, expected: Some(whole) }, append }
                    }
                    Sink::Channel { channel: to, .. } if to == channel => {
                        return bad("a channel cannot be relayed into itself");
                    }
                    Sink::Channel { channel, eof } => Self::Relay { from, to: To { channel, eof } },
                    Sink::Verify => return bad("bytes of a channel cannot be verified without being stored"),
                }
            }
            (Source::Extents(pieces), sink) => match (sort_out(pieces)?, sink) {
                (Pieces::Disk(pieces), Sink::Channel { channel, eof }) => {
                    Self::Send { pieces, to: To { channel, eof } }
                }
                (Pieces::Disk(pieces), Sink::Files(files)) => {
                    check_covered(pieces.iter().map(|piece| piece.range), files.iter().map(|file| file.range))?;
                    Self::Copy { pieces, files }
                }
                (Pieces::Disk(pieces), Sink::Tape(append)) => {
                    contiguous(&append.members)?;
                    check_covered(
                        pieces.iter().map(|piece| piece.range),
                        append.members.iter().map(|member| member.range),
                    )?;
                    Self::Migrate { pieces, append }
                }
                (Pieces::Disk(pieces), Sink::Verify) => Self::Verify { pieces, extra },
                (Pieces::Tape(read), Sink::Channel { channel, eof }) => {
                    Self::SendTape { read, to: To { channel, eof } }
                }
                (Pieces::Tape(read), Sink::Files(files)) => {
                    check_covered(read.pieces.iter().map(|piece| piece.range), files.iter().map(|file| file.range))?;
                    Self::Recall { read, files }
                }
                (Pieces::Tape(read), Sink::Verify) if !extra.any() => Self::VerifyTape { read },
                (Pieces::Tape(_), Sink::Verify) => {
                    return bad("MD5 and SHA-256 are not computed from tape; stage the file first");
                }
                (Pieces::Tape(_), Sink::Tape(_)) => return bad("tape to tape goes over disk: recall, then migrate"),
                (_, Sink::File(_)) => return bad("extents are copied to Sink::Files; Sink::File takes an upload"),
            },
        })
    }

    /// The channels that bytes come from and go to.
    pub(crate) const fn channels(&self) -> (Option<ChannelId>, Option<ChannelId>) {
        match self {
            Self::Upload { from, .. } | Self::Receive { from, .. } | Self::ReceiveToTape { from, .. } => {
                (Some(from.channel), None)
            }
            Self::Relay { from, to } => (Some(from.channel), Some(to.channel)),
            Self::Send { to, .. } | Self::SendTape { to, .. } => (None, Some(to.channel)),
            Self::Copy { .. }
            | Self::Migrate { .. }
            | Self::Verify { .. }
            | Self::Recall { .. }
            | Self::VerifyTape { .. } => (None, None),
        }
    }

    /// A word for metrics and logs.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Upload { .. } => "upload",
            Self::Receive { .. } => "receive",
            Self::ReceiveToTape { .. } => "receive_to_tape",
            Self::Relay { .. } => "relay",
            Self::Send { .. } => "send",
            Self::Copy { .. } => "copy",
            Self::Migrate { .. } => "migrate",
            Self::Verify { .. } => "verify",
            Self::SendTape { .. } => "send_tape",
            Self::Recall { .. } => "recall",
            Self::VerifyTape { .. } => "verify_tape",
        }
    }
}

fn check_upload(from: &From, file: &NewFile) -> Result<(), Fault> {
    if from.expected.is_some_and(|expected| expected.offset() < file.base_bytes) {
        return bad("the expected bytes begin before the file");
    }
    let have = disjoint(file.have.iter().copied())?;
    if have.ranges().next().is_some_and(|first| first.offset() < file.base_bytes) {
        return bad("the file cannot have bytes that come before it");
    }
    Ok(())
}

/// The union of ranges that must not overlap.
fn disjoint(ranges: impl Iterator<Item = ByteRange>) -> Result<Coverage, Fault> {
    let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    sorted.sort_unstable();
    let mut union = Coverage::new();
    for range in sorted {
        union.add(range).or_else(|error| bad(format!("two pieces contradict each other: {error}")))?;
    }
    Ok(union)
}

fn check_expected(expected: Option<ByteRange>, wanted: &Coverage) -> Result<(), Fault> {
    match expected {
        Some(expected) if !wanted.ranges().eq(Some(expected).into_iter().filter(|range| !range.is_empty())) => {
            bad(format!("bytes {expected} are expected, but the pieces are others"))
        }
        _ => Ok(()),
    }
}

fn check_covered(have: impl Iterator<Item = ByteRange>, want: impl Iterator<Item = ByteRange>) -> Result<(), Fault> {
    let (have, want) = (disjoint(have)?, disjoint(want)?);
    match want.ranges().find(|range| !have.covers(*range)) {
        Some(range) => bad(format!("bytes {range} are wanted, and no source has them all")),
        None if have.bytes() != want.bytes() => bad("the sources have more bytes than the sinks take"),
        None => Ok(()),
    }
}

/// Members of a container lie one behind the other.
fn contiguous(members: &[Member]) -> Result<ByteRange, Fault> {
    let Some(first) = members.first() else { return bad("a container without members") };
    let mut end = first.range.offset();
    for member in members {
        if member.range.offset() != end {
            return bad(format!("member {} is not where the one before it ends", member.bitfile));
        }
        end = member.range.end();
    }
    ByteRange::between(first.range.offset(), end).or_else(bad)
}

/// Disk pieces, or members of one tape.
fn sort_out(pieces: Vec<Piece>) -> Result<Pieces, Fault> {
    let (mut disk, mut tape, mut volume) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        let range = ByteRange::new(piece.offset_bytes, piece.extent.length_bytes).or_else(bad)?;
        match piece.extent.place {
            Place::Disk { file, offset_bytes } => {
                ByteRange::new(offset_bytes, range.length()).or_else(bad)?;
                disk.push(DiskPiece { range, volume: piece.extent.volume, file, offset_bytes, sums: piece.sums });
            }
            Place::Tape { .. } => {
                let first = volume.get_or_insert_with(|| piece.extent.volume.clone());
                if *first != piece.extent.volume {
                    return bad("members of several tapes in one job");
                }
                tape.push(TapePiece { range, bitfile: piece.bitfile, piece });
            }
        }
    }
    disjoint(disk.iter().map(|piece| piece.range).chain(tape.iter().map(|piece| piece.range)))?;
    match volume {
        Some(_) if !disk.is_empty() => bad("pieces on disk and pieces on tape in one job"),
        Some(volume) => Ok(Pieces::Tape(TapeRead { volume, pieces: tape })),
        None => Ok(Pieces::Disk(disk)),
    }
}

#[cfg(test)]
mod tests {
    use wire::extent::Extent;

    use super::*;

    fn volume(name: &str) -> VolumeLabel {
        VolumeLabel::new(name).expect("a good label")
    }

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).expect("small")
    }

    fn piece(offset_bytes: u64, length_bytes: u64, tape: Option<&str>) -> Piece {
        let place = match tape {
            None => Place::Disk { file: FileId(1), offset_bytes: 0 },
            Some(_) => Place::Tape { container: 1, block: 5, skip_bytes: 512 },
        };
        let extent = Extent { volume: volume(tape.unwrap_or("d0")), place, length_bytes };
        Piece { offset_bytes, extent, bitfile: BitfileId(1), sums: None }
    }

    fn file(offset: u64, length: u64) -> FilePiece {
        FilePiece { range: range(offset, length), volume: volume("d1"), file: FileId(9), sums: None }
    }

    fn job(source: Source, sink: Sink) -> Result<Plan, Fault> {
        Plan::of(Job { source, sink, extra_sums: ExtraSums::default(), rate_limit: None })
    }

    fn channel(number: u64, expected: Option<ByteRange>) -> Source {
        Source::Channel { channel: ChannelId(number), expected }
    }

    fn refused(source: Source, sink: Sink) {
        let told = format!("{source:?} {sink:?}");
        assert_eq!(job(source, sink).expect_err(&told).kind, FaultKind::BadRequest);
    }

    #[test]
    fn a_job_that_contradicts_itself_is_refused() {
        let to = |number| Sink::Channel { channel: ChannelId(number), eof: Eof::Own };
        refused(channel(1, None), to(1));
        refused(channel(1, None), Sink::Verify);
        refused(channel(1, None), Sink::Files(vec![file(0, 10), file(9, 10)]));
        refused(channel(1, Some(range(0, 30))), Sink::Files(vec![file(0, 10), file(10, 10)]));
        refused(Source::Extents(vec![piece(0, 10, None), piece(10, 10, Some("T1"))]), to(2));
        refused(Source::Extents(vec![piece(0, 10, Some("T1")), piece(10, 10, Some("T2"))]), to(2));
        refused(Source::Extents(vec![piece(0, 10, None), piece(5, 10, None)]), to(2));
        refused(Source::Extents(vec![piece(0, 10, None)]), Sink::Files(vec![file(0, 11)]));
        refused(Source::Extents(vec![piece(0, 10, None)]), Sink::Files(vec![file(0, 9)]));
        refused(Source::Extents(vec![piece(u64::MAX, 10, None)]), to(2));
        let new =
            |base_bytes, have| NewFile { volume: volume("d0"), file: FileId(1), base_bytes, reserve_bytes: 0, have };
        refused(channel(1, Some(range(0, 10))), Sink::File(new(5, vec![])));
        refused(channel(1, None), Sink::File(new(5, vec![range(0, 10)])));
        refused(channel(1, None), Sink::File(new(0, vec![range(0, 10), range(9, 10)])));
        refused(Source::Extents(vec![]), Sink::File(new(0, vec![])));
    }

    #[test]
    fn one_source_piece_may_fill_several_files_and_several_one() {
        let split =
            job(Source::Extents(vec![piece(0, 10, None)]), Sink::Files(vec![file(0, 4), file(4, 6), file(10, 0)]));
        assert!(matches!(split, Ok(Plan::Copy { .. })));
        let pieces = vec![piece(5, 5, Some("T")), piece(0, 5, Some("T"))];
        assert!(matches!(job(Source::Extents(pieces), Sink::Files(vec![file(0, 10)])), Ok(Plan::Recall { .. })));
    }
}
