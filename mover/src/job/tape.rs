//! Members of a tape: how their bytes come to the drive, and where they go from it.
//!
//! Runs on the drive's thread. Talks to disk files or a hopper. Never talks to the drive: that is [`crate::drives`].

use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc};

use tokio_util::sync::CancellationToken;
use wire::{
    checksum::Sums,
    extent::ByteRange,
    mover::{Append, Fault, FaultKind, Outcome, PieceFault, TapeEnd, Written},
};

use super::{
    batch::BatchLane,
    deal,
    hopper::{Hopper, HopperLane},
    plan::{DiskPiece, TapePiece},
};
use crate::{
    data::{Body, Flow, Memory, Next, Supply as _},
    disk::Volumes,
    sums::Tally,
    tape::{AppendReport, Member, MemberSource, SegmentOf, SinkError, SourceError, Stopped, Wanted},
};

/// Where the bytes of an append come from.
pub(super) enum Bytes {
    /// Disk files, in order of their ranges.
    Disk(DiskBytes),
    /// A channel, through a hopper.
    Channel(ChannelBytes),
}

/// Disk files.
pub(super) struct DiskBytes {
    volumes: Volumes,
    pieces: Vec<DiskPiece>,
    /// The piece that is open.
    open: Option<(usize, Arc<File>)>,
}

/// A hopper, whose parcels come in order.
pub(super) struct ChannelBytes {
    hopper: Arc<Hopper>,
    runtime: tokio::runtime::Handle,
    parcel: Option<(Memory, usize)>,
}

/// Members with their bytes.
pub(super) struct Members {
    members: std::vec::IntoIter<wire::mover::Member>,
    at: u64,
    bytes: Bytes,
    flow: Arc<Flow>,
}

impl DiskBytes {
    /// Disk files that together have all bytes that will be asked for.
    pub(super) fn new(volumes: Volumes, mut pieces: Vec<DiskPiece>) -> Self {
        pieces.retain(|piece| !piece.range.is_empty());
        pieces.sort_by_key(|piece| piece.range.offset());
        Self { volumes, pieces, open: None }
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let index = self.pieces.partition_point(|piece| piece.range.end() <= at);
        let Some(piece) = self.pieces.get(index).filter(|piece| piece.range.offset() <= at) else {
            return Err(Fault::new(FaultKind::BadRequest, format!("no source has byte {at}")));
        };
        let file = match &self.open {
            Some((open, file)) if *open == index => file.clone(),
            _ => self.open.insert((index, deal::open(&self.volumes, piece)?)).1.clone(),
        };
        let left = usize::try_from(piece.range.end() - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let offset = piece.offset_bytes + (at - piece.range.offset());
        file.read_exact_at(&mut buffer[..left], offset).map_err(|error| {
            Fault::new(FaultKind::Medium, format!("read file {} of volume {}: {error}", piece.file, piece.volume))
        })?;
        Ok(left)
    }
}

impl ChannelBytes {
    /// What comes out of an ordered hopper.
    pub(super) fn new(hopper: Arc<Hopper>, runtime: tokio::runtime::Handle) -> Self {
        Self { hopper, runtime, parcel: None }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        loop {
            if let Some((bytes, used)) = &mut self.parcel {
                let rest = &(**bytes).as_ref()[*used..];
                let count = rest.len().min(buffer.len());
                if count > 0 {
                    buffer[..count].copy_from_slice(&rest[..count]);
                    *used += count;
                    return Ok(count);
                }
                self.parcel = None;
            }
            match self.hopper.next()? {
                Next::Parcel(parcel) => match parcel.body {
                    Body::Memory(bytes) => self.parcel = Some((bytes, 0)),
                    Body::File(..) => return Err(Fault::new(FaultKind::BadRequest, "a hopper has no files")),
                },
                Next::Wait => self.runtime.block_on(self.hopper.ready()),
                Next::End => {
                    return Err(Fault::new(FaultKind::Incomplete, "the peer ended before all members had come"));
                }
            }
        }
    }
}

impl Members {
    /// The members of an append. Counts in `flow`, and stops when that is over.
    pub(super) fn new(append: &Append, bytes: Bytes, flow: Arc<Flow>) -> Self {
        Self { members: append.members.clone().into_iter(), at: 0, bytes, flow }
    }
}

impl MemberSource for Members {
    fn next_member(&mut self) -> Result<Option<Member>, SourceError> {
        let Some(member) = self.members.next() else { return Ok(None) };
        self.at = member.range.offset();
        let segment = (member.segment.count > 1).then_some(SegmentOf {
            index: member.segment.index,
            count: member.segment.count,
            offset_bytes: member.segment.offset_bytes,
            total_bytes: member.segment.bitfile_bytes,
        });
        Ok(Some(Member {
            bitfile: member.bitfile,
            version: member.version,
            cos: member.cos.to_string(),
            path: member.path,
            owner: member.owner.to_string(),
            group: member.group.to_string(),
            mode: member.mode,
            modified_us: member.modified_us,
            length_bytes: member.range.length(),
            sums: member.sums,
            segment,
        }))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        if self.flow.over.is_cancelled() {
            return Err(SourceError(Box::new(Fault::new(FaultKind::Cancelled, "the transfer was stopped"))));
        }
        let count = match &mut self.bytes {
            Bytes::Disk(disk) => disk.read(self.at, buf),
            Bytes::Channel(channel) => channel.read(buf),
        };
        let count = count.map_err(|fault| SourceError(Box::new(fault)))?;
        self.at += count as u64;
        self.flow.moved(count as u64);
        Ok(count)
    }
}

/// What an append is reported as.
pub(super) fn appended(append: &Append, report: &AppendReport, remaining_bytes: u64) -> Outcome {
    let written: Vec<_> = append
        .members
        .iter()
        .zip(&report.members)
        .map(|(member, written)| Written { range: member.range, extent: written.extent.clone(), sums: written.sums })
        .collect();
    Outcome {
        bytes: written.iter().map(|written| written.range.length()).sum(),
        written,
        failed: Vec::new(),
        tape: Some(TapeEnd {
            container: report.container,
            next_block: report.next_block,
            remaining_bytes,
            // A member that did not fit would be sent here again and again if the volume were not taken for full.
            full: report.stopped != Stopped::SourceEnded,
        }),
        body: None,
    }
}

/// What is asked of a drive for these pieces.
pub(super) fn wanted(pieces: &[TapePiece]) -> Vec<Wanted> {
    let wanted = |tape: &TapePiece| Wanted {
        bitfile: tape.bitfile,
        extent: tape.piece.extent.clone(),
        crc32c: tape.piece.sums.map(|sums| sums.crc32c),
        range: None,
    };
    pieces.iter().map(wanted).collect()
}

/// Where the bytes of members go.
pub(super) enum Destination {
    /// New disk files.
    Files(Box<BatchLane>),
    /// A channel, through a hopper.
    Channel(HopperLane, tokio::runtime::Handle),
    /// Nowhere: only their sums are of interest.
    Sums(Vec<Sums>),
}

/// Takes what a drive reads.
pub(super) struct Unpack {
    ranges: Vec<ByteRange>,
    index: usize,
    done: u64,
    tally: Tally,
    destination: Destination,
    over: CancellationToken,
}

impl Unpack {
    /// For these pieces, in the order in which they are read.
    pub(super) fn new(pieces: &[TapePiece], destination: Destination, over: CancellationToken) -> Self {
        let ranges = pieces.iter().map(|piece| piece.range).collect();
        Self { ranges, index: 0, done: 0, tally: Tally::new(), destination, over }
    }

    /// Takes bytes of the piece at `index`.
    ///
    /// # Errors
    ///
    /// [`SinkError::Stop`] with the fault that ends the transfer.
    pub(super) fn take(&mut self, index: usize, data: &[u8]) -> Result<(), SinkError> {
        self.try_take(index, data).map_err(|fault| SinkError::Stop(Box::new(fault)))
    }

    fn try_take(&mut self, index: usize, data: &[u8]) -> Result<(), Fault> {
        use crate::data::Lane as _;
        if self.over.is_cancelled() {
            return Err(Fault::new(FaultKind::Cancelled, "the transfer was stopped"));
        }
        if index != self.index {
            (self.index, self.done) = (index, 0);
        }
        let Some(range) = self.ranges.get(index) else { return Ok(()) };
        let at = range.offset() + self.done;
        self.done += data.len() as u64;
        if self.done > range.length() {
            let message = format!("the member on tape is longer than the {} bytes it should have", range.length());
            return Err(Fault::new(FaultKind::Corrupt, message));
        }
        let last = self.done == range.length();
        match &mut self.destination {
            Destination::Files(lane) => lane.put(at, data),
            Destination::Channel(lane, runtime) => {
                lane.put(runtime, at, data)?;
                if last { lane.flush() } else { Ok(()) }
            }
            Destination::Sums(sums) => {
                self.tally.add(at, data);
                if last && let (Some(slot), Some((_, whole))) = (sums.get_mut(index), self.tally.take()) {
                    *slot = whole;
                }
                Ok(())
            }
        }
    }

    /// What is left when the drive is done.
    pub(super) fn finish(self) -> Destination {
        self.destination
    }
}

/// The pieces that a drive could not read.
pub(super) fn unread(pieces: &[TapePiece], results: &[Result<(), Fault>]) -> Vec<PieceFault> {
    let fault = |(piece, result): (&TapePiece, &Result<(), Fault>)| {
        let fault = result.as_ref().err()?.clone();
        Some(PieceFault { offset_bytes: piece.range.offset(), fault })
    };
    pieces.iter().zip(results).filter_map(fault).collect()
}
