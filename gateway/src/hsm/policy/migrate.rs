//! When a migration is worth a mount, what goes into one container, which cartridge takes it.

use std::time::Duration;

use catalog::{Medium, PoolDemand, Segment, Timestamp, Volume, VolumeState};
use wire::{
    checksum::Sums,
    extent::ByteRange,
    id::{MoverId, VolumeLabel},
};

/// When a batch is worth a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// So many bytes are due.
    pub batch_bytes: u64,
    /// Or so many files.
    pub batch_files: u64,
    /// Or the oldest has been due for so long, however small the batch.
    pub longest_wait: Duration,
}

/// Why a migration begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// Enough bytes are due.
    Bytes,
    /// Enough files are due.
    Files,
    /// The oldest has waited long enough.
    Age,
    /// The disk is filling up: only what is on tape can leave it.
    Pressure,
    /// Somebody asked for it.
    Asked,
}

impl Because {
    /// The word for it, for the log.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bytes => "enough bytes are due",
            Self::Files => "enough files are due",
            Self::Age => "the oldest has waited long enough",
            Self::Pressure => "the disk is filling up",
            Self::Asked => "somebody asked for it",
        }
    }
}

/// Whether to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Now.
    Now(Because),
    /// Then at the latest, if nothing more comes.
    At(Timestamp),
    /// There is nothing.
    Nothing,
}

/// Decides whether what is due of one class of service is worth a mount now.
#[must_use]
pub fn due(demand: &PoolDemand, trigger: &Trigger, pressure: bool, now: Timestamp) -> Due {
    if demand.items == 0 {
        return Due::Nothing;
    }
    if demand.bytes >= trigger.batch_bytes {
        return Due::Now(Because::Bytes);
    }
    if demand.items >= trigger.batch_files {
        return Due::Now(Because::Files);
    }
    let at = demand.oldest.after(trigger.longest_wait);
    if now >= at {
        return Due::Now(Because::Age);
    }
    if pressure { Due::Now(Because::Pressure) } else { Due::At(at) }
}

/// A contiguous part of a bitfile whose bytes lie on one mover: what becomes one member of a container.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Where the bytes are; `None` for an empty file, which has none.
    pub mover: Option<MoverId>,
    /// Which bytes of the bitfile.
    pub range: ByteRange,
    /// The disk segments that hold them, in order.
    pub segments: Vec<Segment>,
    /// Their sums.
    pub sums: Sums,
}

/// Cuts a disk copy in parts: as few as the movers that hold it allow.
///
/// # Errors
///
/// The volume whose mover is not known.
pub fn parts(
    segments: &[Segment],
    mover_of: impl Fn(&VolumeLabel) -> Option<MoverId>,
) -> Result<Vec<Part>, VolumeLabel> {
    let mut parts: Vec<Part> = Vec::new();
    for segment in segments {
        let volume = &segment.extent.volume;
        let mover = mover_of(volume).ok_or_else(|| volume.clone())?;
        let sums = Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None };
        match parts
            .last_mut()
            .filter(|part| part.mover.as_ref() == Some(&mover) && part.range.end() == segment.range.offset())
        {
            Some(part) => {
                part.sums = part.sums.followed_by(&sums, segment.range.length());
                part.range = join(part.range, segment.range);
                part.segments.push(segment.clone());
            }
            None => {
                parts.push(Part { mover: Some(mover), range: segment.range, segments: vec![segment.clone()], sums })
            }
        }
    }
    if parts.is_empty() {
        let range = ByteRange::new(0, 0).expect("an empty range at 0 is legal");
        parts.push(Part { mover: None, range, segments: Vec::new(), sums: Sums::EMPTY });
    }
    Ok(parts)
}

fn join(first: ByteRange, second: ByteRange) -> ByteRange {
    ByteRange::between(first.offset(), second.end()).expect("both end below the largest offset")
}

/// What one container may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// So many bytes; a larger part gets a container of its own.
    pub container_bytes: u64,
    /// So many members.
    pub container_members: usize,
}

/// Parts that go into one container, all from one mover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// The mover that holds their bytes; `None` if they have none.
    pub mover: Option<MoverId>,
    /// Which, as indices of the input, in order.
    pub parts: Vec<usize>,
    /// How many bytes they have.
    pub bytes: u64,
}

/// Packs parts in containers. The input is in order of paths, and stays so: what lies in one directory lies together on
/// the tape, since it is often recalled together.
#[must_use]
pub fn pack<'a>(parts: impl IntoIterator<Item = &'a Part>, limits: &Limits) -> Vec<Container> {
    let mut done: Vec<Container> = Vec::new();
    let mut open: Vec<Container> = Vec::new();
    for (index, part) in parts.into_iter().enumerate() {
        let bytes = part.range.length();
        // An empty file goes with whatever is open.
        let at = match &part.mover {
            None => open.len().checked_sub(1),
            Some(mover) => open
                .iter()
                .position(|container| container.mover.as_ref() == Some(mover))
                .or_else(|| open.iter().position(|container| container.mover.is_none())),
        };
        let fits = |container: &Container| {
            container.parts.len() < limits.container_members.max(1)
                && container.bytes.saturating_add(bytes) <= limits.container_bytes
        };
        match at {
            Some(at) if fits(&open[at]) => {
                open[at].parts.push(index);
                open[at].bytes += bytes;
                open[at].mover = open[at].mover.take().or_else(|| part.mover.clone());
            }
            at => {
                if let Some(at) = at {
                    done.push(open.remove(at));
                }
                open.push(Container { mover: part.mover.clone(), parts: vec![index], bytes });
            }
        }
    }
    done.extend(open);
    done.sort_by_key(|container| container.parts[0]);
    done
}

/// Cartridges of a pool with room, the best first: one that is being filled before an empty one, the fullest first, so
/// that few are open. Never one of `avoid`, which hold other copies of the same bitfiles.
#[must_use]
pub fn choose_volumes(volumes: &[Volume], pool: &str, room_bytes: u64, avoid: &[VolumeLabel]) -> Vec<VolumeLabel> {
    let mut fit: Vec<(bool, u64, &VolumeLabel)> = volumes
        .iter()
        .filter_map(|volume| {
            let Medium::Tape { written_bytes, .. } = &volume.medium else { return None };
            let left = volume.capacity_bytes.saturating_sub(*written_bytes);
            let empty = volume.state == VolumeState::Empty;
            // What is too large for any cartridge is tried on an empty one; a capacity of 0 is not known.
            let has_room = left >= room_bytes || volume.capacity_bytes == 0 || empty;
            let usable = volume.state.writable() && volume.pool == pool && has_room && !avoid.contains(&volume.label);
            usable.then_some((empty, left, &volume.label))
        })
        .collect();
    fit.sort();
    fit.into_iter().map(|(_, _, label)| label.clone()).collect()
}

#[cfg(test)]
mod tests {
    use catalog::TapePosition;
    use proptest::prelude::*;
    use wire::{
        extent::{Extent, Place},
        id::{FileId, LibraryId},
    };

    use super::*;

    const TRIGGER: Trigger = Trigger { batch_bytes: 1000, batch_files: 10, longest_wait: Duration::from_secs(60) };

    fn demand(items: u64, bytes: u64) -> PoolDemand {
        PoolDemand { pool: "archive".into(), items, bytes, oldest: Timestamp::from_seconds(100) }
    }

    fn label(text: &str) -> VolumeLabel {
        VolumeLabel::new(text).expect("a label")
    }

    fn mover(text: &str) -> MoverId {
        MoverId::new(text).expect("a name")
    }

    fn segment(volume: &str, offset: u64, data: &[u8]) -> Segment {
        let sums = Sums::of(data);
        Segment {
            range: ByteRange::new(offset, data.len() as u64).expect("a range"),
            extent: Extent {
                volume: label(volume),
                place: Place::Disk { file: FileId(1), offset_bytes: offset },
                length_bytes: data.len() as u64,
            },
            adler32: sums.adler32,
            crc32c: sums.crc32c,
        }
    }

    fn mover_of(volume: &VolumeLabel) -> Option<MoverId> {
        volume.as_str().split_once('.').and_then(|(mover, _)| MoverId::new(mover).ok())
    }

    #[test]
    fn a_migration_begins_when_enough_bytes_or_files_are_due() {
        let now = Timestamp::from_seconds(101);
        assert_eq!(due(&demand(1, 1000), &TRIGGER, false, now), Due::Now(Because::Bytes));
        assert_eq!(due(&demand(10, 10), &TRIGGER, false, now), Due::Now(Because::Files));
        assert_eq!(due(&demand(0, 0), &TRIGGER, true, now), Due::Nothing);
    }

    #[test]
    fn a_small_batch_waits_for_its_time_and_no_longer() {
        let small = demand(1, 1);
        assert_eq!(due(&small, &TRIGGER, false, Timestamp::from_seconds(159)), Due::At(Timestamp::from_seconds(160)));
        assert_eq!(due(&small, &TRIGGER, false, Timestamp::from_seconds(160)), Due::Now(Because::Age));
    }

    #[test]
    fn a_disk_that_fills_up_does_not_wait_for_a_batch() {
        let due = due(&demand(1, 1), &TRIGGER, true, Timestamp::from_seconds(101));
        assert_eq!(due, Due::Now(Because::Pressure));
    }

    #[test]
    fn segments_that_touch_on_one_mover_are_one_member_with_the_sums_of_the_whole() {
        let parts = parts(&[segment("m1.a", 0, b"hello "), segment("m1.b", 6, b"world")], mover_of).expect("known");
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].sums, Sums::of(b"hello world"));
        assert_eq!(parts[0].range.length(), 11);
    }

    #[test]
    fn a_striped_file_becomes_a_member_for_each_mover() {
        let striped = [segment("m1.a", 0, b"aa"), segment("m2.a", 2, b"bb"), segment("m1.a", 4, b"cc")];
        let parts = parts(&striped, mover_of).expect("known");
        assert_eq!(
            parts.iter().map(|part| part.mover.clone()).collect::<Vec<_>>(),
            [Some(mover("m1")), Some(mover("m2")), Some(mover("m1"))]
        );
    }

    #[test]
    fn an_empty_file_is_a_member_without_bytes() {
        let parts = parts(&[], mover_of).expect("known");
        assert_eq!((parts.len(), parts[0].range.length(), &parts[0].mover), (1, 0, &None));
        assert_eq!(pack(&parts, &Limits { container_bytes: 10, container_members: 2 })[0].parts, [0]);
    }

    #[test]
    fn a_volume_of_no_known_mover_is_named() {
        assert_eq!(parts(&[segment("nowhere", 0, b"x")], mover_of), Err(label("nowhere")));
    }

    fn tape(name: &str, state: VolumeState, written: u64) -> Volume {
        Volume {
            label: label(name),
            pool: "archive".into(),
            state,
            reason: None,
            capacity_bytes: 100,
            live_bytes: 0,
            live_segments: 0,
            errors: 0,
            created: Timestamp(0),
            changed: Timestamp(0),
            medium: Medium::Tape {
                library: LibraryId::new("vtl").expect("a name"),
                position: TapePosition { next_container: 1, next_block: 0 },
                label_epoch: 0,
                written_bytes: written,
                mounts: 0,
            },
        }
    }

    #[test]
    fn the_fullest_open_cartridge_comes_first_and_never_one_that_holds_another_copy() {
        let volumes = [
            tape("A", VolumeState::Empty, 0),
            tape("B", VolumeState::Filling, 10),
            tape("C", VolumeState::Filling, 60),
            tape("D", VolumeState::Filling, 90),
            tape("E", VolumeState::Full, 20),
            tape("F", VolumeState::Disabled, 0),
        ];
        assert_eq!(choose_volumes(&volumes, "archive", 20, &[]), [label("C"), label("B"), label("A")]);
        assert_eq!(choose_volumes(&volumes, "archive", 20, &[label("C"), label("A")]), [label("B")]);
        assert!(choose_volumes(&volumes, "other", 20, &[]).is_empty());
        assert_eq!(choose_volumes(&volumes, "archive", 500, &[]), [label("A")], "a giant is tried on an empty one");
    }

    proptest! {
        #[test]
        fn every_part_is_packed_once_within_the_limits_and_in_order(
            sizes in prop::collection::vec((0u64..40, 0u8..4), 0..60),
            container_bytes in 1u64..60,
            container_members in 1usize..9,
        ) {
            let all: Vec<Part> = sizes.iter().map(|(size, on)| Part {
                mover: (*size > 0).then(|| mover(&format!("m{on}"))),
                range: ByteRange::new(0, *size).expect("small"),
                segments: Vec::new(),
                sums: Sums::EMPTY,
            }).collect();
            let limits = Limits { container_bytes, container_members };
            let containers = pack(&all, &limits);
            let mut seen: Vec<usize> = containers.iter().flat_map(|container| container.parts.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..all.len()).collect::<Vec<_>>());
            for container in &containers {
                let bytes: u64 = container.parts.iter().map(|part| all[*part].range.length()).sum();
                prop_assert_eq!(bytes, container.bytes);
                prop_assert!(container.parts.len() <= container_members);
                prop_assert!(bytes <= container_bytes || container.parts.len() == 1);
                prop_assert!(container.parts.is_sorted());
                let movers: Vec<_> = container.parts.iter().filter_map(|part| all[*part].mover.clone()).collect();
                prop_assert!(movers.iter().all(|on| Some(on) == container.mover.as_ref()) );
            }
        }
    }
}
