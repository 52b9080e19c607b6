//! Who sends which pieces of a file to a client.

use std::{collections::BTreeMap, net::SocketAddr};

use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage, Extent, Place},
    id::{BitfileId, MoverId},
    mover::{Eof, Framing, Piece},
};

use super::{ClientEnd, PortView, RelayReason, SideView, bad, replicas::Held};
use crate::{
    failure::{Failure, FailureKind},
    transfer::Part,
};

/// What is read.
pub(in crate::transfer) struct Wanted<'a> {
    pub(in crate::transfer) bitfile: BitfileId,
    pub(in crate::transfer) size_bytes: u64,
    pub(in crate::transfer) part: &'a Part,
    /// Where its bytes are on disk, in order, each once.
    pub(in crate::transfer) held: Vec<Held>,
    /// Who says the end if there is nothing to send.
    pub(in crate::transfer) anybody: MoverId,
}

/// Who sends.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::transfer) struct ReadPlan {
    /// Straight from movers to the client.
    pub(in crate::transfer) legs: Vec<Leg>,
    /// What cannot go straight.
    pub(in crate::transfer) relay: Option<Relay>,
    /// Bytes to send.
    pub(in crate::transfer) bytes: u64,
}

/// One mover sends some pieces to one address.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::transfer) struct Leg {
    pub(in crate::transfer) mover: MoverId,
    pub(in crate::transfer) end: ClientEnd,
    pub(in crate::transfer) pieces: Vec<Piece>,
    pub(in crate::transfer) eof: Eof,
}

/// Movers send their pieces through another one.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::transfer) struct Relay {
    pub(in crate::transfer) through: MoverId,
    pub(in crate::transfer) end: ClientEnd,
    pub(in crate::transfer) reason: RelayReason,
    /// In the order of their first byte.
    pub(in crate::transfer) senders: Vec<(MoverId, Vec<Piece>)>,
    /// One sender begins when the one before has ended: the client's bytes are in order.
    pub(in crate::transfer) in_turn: bool,
    /// What goes through, if it is contiguous.
    pub(in crate::transfer) expected: Option<ByteRange>,
}

/// Decides who sends what.
///
/// # Errors
///
/// If the part makes no sense for this file or this port, or the segments do not hold it.
pub(in crate::transfer) fn plan(wanted: &Wanted<'_>, port: &PortView) -> Result<ReadPlan, Failure> {
    let (ranges, base) = ranges(wanted.part, wanted.size_bytes)?;
    if port.framing == Framing::Stream && ranges.len() > 1 {
        return Err(bad("in stream mode one range can be sent: REST with one offset"));
    }
    let senders = senders(wanted, &ranges, base)?;
    let bytes = ranges.iter().map(|range| range.length()).sum();
    let straight = |legs| ReadPlan { legs, relay: None, bytes };
    let expected = match ranges.as_slice() {
        [one] => ByteRange::new(one.offset() - base, one.length()).ok(),
        _ => None,
    };
    let relayed = |through: &MoverId, end, reason, mut legs: Vec<Leg>| {
        legs.retain(|leg| leg.mover != *through);
        let in_turn = port.framing == Framing::Stream;
        let (through, senders) = (through.clone(), senders.clone());
        ReadPlan { legs, relay: Some(Relay { through, end, reason, senders, in_turn, expected }), bytes }
    };
    let several = senders.len() > 1;
    Ok(match &port.side {
        SideView::Told(movers) if senders.iter().all(|(mover, _)| movers.contains(mover)) => {
            straight(told(movers, senders))
        }
        SideView::Told(movers) => {
            let first = movers.first().ok_or_else(|| bad("there is no data connection: send PASV or PORT first"))?;
            relayed(first, ClientEnd::Comes, RelayReason::EarlyPassive, told(movers, Vec::new()))
        }
        SideView::Untold { .. } | SideView::Active(_) if several && port.framing == Framing::Stream => {
            let end = match &port.side {
                SideView::Active(to) => ClientEnd::At(first(to)?),
                _ => ClientEnd::Comes,
            };
            relayed(most(&senders), end, RelayReason::OneStream, Vec::new())
        }
        SideView::Untold { striped: false } if several => {
            relayed(most(&senders), ClientEnd::Comes, RelayReason::OneAddress, Vec::new())
        }
        SideView::Untold { .. } => straight(
            senders
                .into_iter()
                .map(|(mover, pieces)| Leg { mover, end: ClientEnd::Comes, pieces, eof: Eof::Own })
                .collect(),
        ),
        SideView::Active(to) if port.framing == Framing::Stream => straight(push(&[first(to)?], senders, 1)),
        SideView::Active(to) => {
            first(to)?;
            straight(push(to, senders, port.streams))
        }
    })
}

fn first(to: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    to.first().copied().ok_or_else(|| bad("there is no address to connect to: send PORT first"))
}

/// The mover that has most of the bytes: the least goes through it that is not its own.
fn most(senders: &[(MoverId, Vec<Piece>)]) -> &MoverId {
    let (mover, _) = senders.iter().max_by_key(|(_, pieces)| bytes(pieces)).expect("there are several senders");
    mover
}

fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.extent.length_bytes).sum()
}

/// Legs over connections to movers that the client knows: one each, since it waits for an end at each.
fn told(movers: &[MoverId], senders: Vec<(MoverId, Vec<Piece>)>) -> Vec<Leg> {
    let mut pieces: BTreeMap<_, _> = senders.into_iter().collect();
    let leg = |mover: &MoverId| Leg {
        mover: mover.clone(),
        end: ClientEnd::Comes,
        pieces: pieces.remove(mover).unwrap_or_default(),
        eof: Eof::Own,
    };
    movers.iter().map(leg).collect()
}

/// Legs to addresses where the client listens.
fn push(to: &[SocketAddr], senders: Vec<(MoverId, Vec<Piece>)>, streams: u16) -> Vec<Leg> {
    let (movers, addresses) = (senders.len(), to.len());
    let mut legs = Vec::new();
    for (number, (mover, pieces)) in senders.into_iter().enumerate() {
        if movers >= addresses {
            let address = number % addresses;
            let sharing = (movers - address).div_ceil(addresses);
            let eof = match (sharing, number / addresses) {
                (1, _) => Eof::Own,
                (_, 0) => Eof::Total(u32::try_from(sharing).unwrap_or(u32::MAX).saturating_mul(u32::from(streams))),
                _ => Eof::Other,
            };
            legs.push(Leg { mover, end: ClientEnd::At(to[address]), pieces, eof });
        } else {
            let mine: Vec<_> = to.iter().skip(number).step_by(movers).collect();
            let parts = split(pieces, mine.len());
            for (address, pieces) in mine.into_iter().zip(parts) {
                legs.push(Leg { mover: mover.clone(), end: ClientEnd::At(*address), pieces, eof: Eof::Own });
            }
        }
    }
    legs
}

/// Cuts pieces into `count` parts of nearly the same size, in order. The sums of a piece that is cut are lost.
fn split(pieces: Vec<Piece>, count: usize) -> Vec<Vec<Piece>> {
    let share = bytes(&pieces).div_ceil(count.max(1) as u64).max(1);
    let mut parts = vec![Vec::new()];
    let mut room = share;
    for mut piece in pieces {
        loop {
            if room == 0 {
                parts.push(Vec::new());
                room = share;
            }
            let part = parts.last_mut().expect("never empty");
            let length = piece.extent.length_bytes;
            if length <= room {
                room -= length;
                part.push(piece);
                break;
            }
            part.push(cut(&piece, 0, room));
            piece = cut(&piece, room, length - room);
            room = 0;
        }
    }
    parts.resize_with(count, Vec::new);
    parts
}

/// `length` bytes of a piece, from `skip` on; whole pieces keep their sums.
fn cut(piece: &Piece, skip: u64, length: u64) -> Piece {
    let whole = skip == 0 && length == piece.extent.length_bytes;
    let place = match piece.extent.place {
        Place::Disk { file, offset_bytes } => Place::Disk { file, offset_bytes: offset_bytes + skip },
        tape @ Place::Tape { .. } => tape,
    };
    Piece {
        offset_bytes: piece.offset_bytes + skip,
        extent: Extent { volume: piece.extent.volume.clone(), place, length_bytes: length },
        bitfile: piece.bitfile,
        sums: piece.sums.filter(|_| whole),
    }
}

/// The ranges of the file that are sent, and what is taken off their offsets.
fn ranges(part: &Part, size_bytes: u64) -> Result<(Vec<ByteRange>, u64), Failure> {
    let whole = ByteRange::new(0, size_bytes).map_err(|error| Failure::new(FailureKind::Internal, error))?;
    let beyond = |from| bad(&format!("byte {from} is behind the end of the file, which has {size_bytes} bytes"));
    Ok(match part {
        Part::Whole => (vec![whole], 0),
        Part::From(from) if *from > size_bytes => return Err(beyond(*from)),
        Part::From(from) => (vec![ByteRange::between(*from, size_bytes).expect("within the file")], 0),
        Part::Relative(range) if range.offset() > size_bytes => return Err(beyond(range.offset())),
        Part::Relative(range) => {
            let end = range.end().min(size_bytes);
            (vec![ByteRange::between(range.offset(), end).expect("within the file")], range.offset())
        }
        Part::Except(have) => {
            let mut coverage = Coverage::new();
            for range in have {
                coverage.merge(*range).map_err(|error| bad(&error.to_string()))?;
            }
            (coverage.missing_in(whole), 0)
        }
    })
}

/// The pieces of these ranges by mover, in the order of each mover's first byte; at least one mover.
fn senders(wanted: &Wanted<'_>, ranges: &[ByteRange], base: u64) -> Result<Vec<(MoverId, Vec<Piece>)>, Failure> {
    let mut senders: Vec<(MoverId, Vec<Piece>)> = Vec::new();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let mut at = range.offset();
        for Held { segment, mover, used } in &wanted.held {
            let Some(shared) = used.intersection(*range) else { continue };
            if shared.offset() != at {
                break;
            }
            at = shared.end();
            let sums = Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None };
            let whole = Piece {
                offset_bytes: segment.range.offset(),
                extent: segment.extent.clone(),
                bitfile: wanted.bitfile,
                sums: Some(sums),
            };
            let mut piece = cut(&whole, shared.offset() - segment.range.offset(), shared.length());
            piece.offset_bytes -= base;
            match senders.iter_mut().find(|(name, _)| name == mover) {
                Some((_, pieces)) => pieces.push(piece),
                None => senders.push((mover.clone(), vec![piece])),
            }
        }
        if at != range.end() {
            return Err(Failure::new(
                FailureKind::Damaged,
                format_args!("byte {at} of bitfile {} is on no disk volume: tell the operator", wanted.bitfile),
            ));
        }
    }
    if senders.is_empty() {
        senders.push((wanted.anybody.clone(), Vec::new()));
    }
    Ok(senders)
}

#[cfg(test)]
mod tests;
