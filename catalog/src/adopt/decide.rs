//! Decides what a copy that was found comes to. Pure: facts in, a verdict out.

use std::collections::BTreeMap;

use wire::checksum::Sums;
use wire::extent::Place;
use wire::id::VolumeLabel;

use crate::record::{FoundMember, MAX_ADOPTED_ID, Segment};

/// The most parts a bitfile is put together from.
const MAX_PARTS: usize = 10_000;

/// What the catalogue has under a bitfile's number.
pub(super) struct Existing {
    pub(super) size_bytes: u64,
    pub(super) sums: Sums,
    /// Complete tape copies.
    pub(super) tapes: u32,
    pub(super) tapes_wanted: u32,
    /// Tape copies by number, incomplete ones too, and the volumes they lie on.
    pub(super) copies: BTreeMap<u32, Vec<VolumeLabel>>,
}

impl Existing {
    /// Whether a copy of it, or part of one, lies on this volume.
    pub(super) fn is_on(&self, volume: &VolumeLabel) -> bool {
        self.copies.values().any(|volumes| volumes.contains(volume))
    }
}

/// One part of a bitfile.
pub(super) struct Part {
    pub(super) segment: Segment,
}

/// What becomes of a copy.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The bitfile is new, and this is its copy of that number.
    New { number: u32 },
    /// The bitfile is known, and this becomes its copy of that number.
    Joins { number: u32 },
    /// The bitfile is known and has all its copies.
    Known,
    /// It must not be taken over.
    Refused(&'static str),
}

/// What makes a member impossible, whatever the catalogue has.
pub(super) fn check(member: &FoundMember) -> Result<(), &'static str> {
    if member.bitfile.0 == 0 || member.bitfile.0 > MAX_ADOPTED_ID {
        return Err("its number is none that a site gives out: the tape's record is damaged");
    }
    if !matches!(member.extent.place, Place::Tape { .. }) || member.range.length() != member.extent.length_bytes {
        return Err("its place and its length do not fit: the tape's record is damaged");
    }
    // An empty part of something larger is no part.
    if member.range.end() > member.size_bytes || member.range.is_empty() != (member.size_bytes == 0) {
        return Err("its part does not fit the whole: the tape's record is damaged");
    }
    Ok(())
}

/// `wanted`: the number that copies of this storage class have.
pub(super) fn decide(existing: Option<&Existing>, size_bytes: u64, sums: &Sums, wanted: u32) -> Verdict {
    let Some(existing) = existing else { return Verdict::New { number: wanted } };
    if existing.size_bytes != size_bytes || existing.sums.difference(sums).is_some() {
        return Verdict::Refused("the catalogue has other bytes under its number: it is not the same file");
    }
    if existing.tapes >= existing.tapes_wanted {
        return Verdict::Known;
    }
    let free = |number: &u32| !existing.copies.contains_key(number);
    let number = Some(wanted).filter(free).or_else(|| (1..).find(free));
    number.map_or(Verdict::Known, |number| Verdict::Joins { number })
}

/// Parts that, one behind the other, are the whole: the longest first wherever several begin. `parts` are in the order of
/// their beginnings, the longer before the shorter.
pub(super) fn chain(parts: Vec<Part>, size_bytes: u64) -> Option<Vec<Segment>> {
    let (mut chained, mut at) = (Vec::new(), 0);
    for Part { segment } in parts {
        if segment.range.offset() == at && !segment.range.is_empty() && chained.len() < MAX_PARTS {
            at = segment.range.end();
            chained.push(segment);
        }
    }
    (at == size_bytes).then_some(chained)
}

#[cfg(test)]
mod tests {
    use wire::extent::{ByteRange, Extent};

    use super::*;

    fn volume(name: &str) -> VolumeLabel {
        VolumeLabel::new(name).unwrap()
    }

    fn part(on: &str, offset: u64, length: u64) -> Part {
        let place = Place::Tape { container: 1, block: 4, skip_bytes: 512 };
        let range = ByteRange::new(offset, length).unwrap();
        let extent = Extent { volume: volume(on), place, length_bytes: length };
        Part { segment: Segment { range, extent, adler32: 1, crc32c: 0 } }
    }

    fn known(tapes: u32, copies: &[(u32, &str)]) -> Existing {
        let copies = copies.iter().map(|(number, on)| (*number, vec![volume(on)])).collect();
        Existing { size_bytes: 10, sums: Sums::EMPTY, tapes, tapes_wanted: 2, copies }
    }

    #[test]
    fn a_copy_takes_the_number_of_its_class_or_the_next_free_one() {
        assert_eq!(decide(None, 10, &Sums::EMPTY, 2), Verdict::New { number: 2 });
        assert_eq!(decide(Some(&known(1, &[(1, "A")])), 10, &Sums::EMPTY, 2), Verdict::Joins { number: 2 });
        assert_eq!(decide(Some(&known(1, &[(1, "A")])), 10, &Sums::EMPTY, 1), Verdict::Joins { number: 2 });
        assert_eq!(decide(Some(&known(2, &[(1, "A"), (2, "B")])), 10, &Sums::EMPTY, 1), Verdict::Known);
    }

    #[test]
    fn other_bytes_under_the_same_number_are_refused() {
        let existing = known(1, &[(1, "A")]);
        assert!(matches!(decide(Some(&existing), 11, &Sums::EMPTY, 2), Verdict::Refused(_)));
        assert!(matches!(decide(Some(&existing), 10, &Sums::of(b"other"), 2), Verdict::Refused(_)));
    }

    #[test]
    fn parts_make_a_whole_only_without_a_gap() {
        let volumes = |chained: Vec<Segment>| chained.into_iter().map(|one| one.extent.volume).collect::<Vec<_>>();
        assert!(chain(vec![part("A", 0, 6)], 10).is_none());
        assert!(chain(vec![part("A", 0, 6), part("B", 7, 3)], 10).is_none());
        let whole = chain(vec![part("A", 0, 6), part("C", 0, 4), part("C", 4, 3), part("B", 6, 4)], 10);
        assert_eq!(volumes(whole.unwrap()), [volume("A"), volume("B")]);
    }
}
