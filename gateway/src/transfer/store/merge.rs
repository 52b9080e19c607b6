//! What was there and what was received becomes a file, or it is said what is missing.
//!
//! Pure. Movers report contiguous runs with their sums; put in order, without gap or overlap from the first byte on,
//! they are the file, and their sums combine to the sum of the whole.

use catalog::Segment;
use wire::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Extent},
    mover::Written,
};

/// MD5 of nothing (RFC 1321 appendix A.5).
const EMPTY_MD5: [u8; 16] =
    [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e];

/// SHA-256 of nothing (FIPS 180-4, as every implementation's test has it).
const EMPTY_SHA256: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// A contiguous part of the file that is safe somewhere.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) range: ByteRange,
    pub(super) sums: Sums,
}

/// The file.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Whole {
    pub(super) size_bytes: u64,
    pub(super) sums: Sums,
}

/// Why the runs are not a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// These bytes are nowhere.
    #[error("bytes {0} did not come")]
    Gap(ByteRange),
    /// These bytes came twice.
    #[error("bytes {0} came twice")]
    Overlap(ByteRange),
}

/// Puts runs together. `extra` is what sums of nothing are wanted besides the usual ones.
///
/// # Errors
///
/// [`Unfit`] with the first byte range that is missing or double.
pub(super) fn whole(mut runs: Vec<Run>, extra: ExtraSums) -> Result<Whole, Unfit> {
    runs.retain(|run| !run.range.is_empty());
    runs.sort_by_key(|run| run.range);
    let mut at = 0;
    let mut sums: Option<Sums> = None;
    for run in &runs {
        let (start, end) = (run.range.offset(), run.range.end());
        if start > at {
            return Err(Unfit::Gap(ByteRange::between(at, start).expect("before a good range")));
        }
        if start < at {
            return Err(Unfit::Overlap(ByteRange::between(start, at.min(end)).expect("within a good range")));
        }
        // The first keeps all its sums: alone it is the whole.
        sums = Some(sums.map_or(run.sums, |before| before.followed_by(&run.sums, run.range.length())));
        at = end;
    }
    let empty =
        Sums { md5: extra.md5.then_some(EMPTY_MD5), sha256: extra.sha256.then_some(EMPTY_SHA256), ..Sums::EMPTY };
    Ok(Whole { size_bytes: at, sums: sums.unwrap_or(empty) })
}

/// What a mover wrote as segments of the file, whose byte `shift_bytes` is the first of the transfer.
///
/// # Errors
///
/// If a mover reports offsets that no file has.
pub(super) fn segments(
    written: Vec<Written>,
    shift_bytes: u64,
) -> Result<Vec<(Segment, Sums)>, wire::extent::RangeTooLarge> {
    let segment = |Written { range, extent, sums }: Written| {
        let range = ByteRange::new(range.offset().saturating_add(shift_bytes), range.length())?;
        let extent = Extent { length_bytes: range.length(), ..extent };
        Ok((Segment { range, extent, adler32: sums.adler32, crc32c: sums.crc32c }, sums))
    };
    written.into_iter().filter(|written| !written.range.is_empty()).map(segment).collect()
}

/// The run that a segment is.
pub(super) fn run_of(segment: &Segment) -> Run {
    let sums = Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None };
    Run { range: segment.range, sums }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange::new(offset, length).expect("a small range")
    }

    fn run(data: &[u8], offset: u64, length: u64) -> Run {
        let range = range(offset, length);
        let part = &data[usize::try_from(offset).expect("small")..usize::try_from(range.end()).expect("small")];
        Run { range, sums: Sums::of(part) }
    }

    const PLAIN: ExtraSums = ExtraSums { md5: false, sha256: false };

    #[test]
    fn runs_in_any_order_make_the_file_and_its_sums() {
        let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let runs = vec![run(&data, 600, 400), run(&data, 0, 100), run(&data, 100, 500), run(&data, 100, 0)];
        let whole = whole(runs, PLAIN).expect("a whole file");
        assert_eq!(whole, Whole { size_bytes: 1000, sums: Sums::of(&data) });
    }

    #[test]
    fn a_gap_and_an_overlap_are_named() {
        let data = [0; 100];
        let fit = |runs| whole(runs, PLAIN);
        assert_eq!(fit(vec![run(&data, 10, 5)]), Err(Unfit::Gap(range(0, 10))));
        assert_eq!(fit(vec![run(&data, 0, 5), run(&data, 8, 5)]), Err(Unfit::Gap(range(5, 3))));
        assert_eq!(fit(vec![run(&data, 0, 5), run(&data, 4, 5)]), Err(Unfit::Overlap(range(4, 1))));
        assert_eq!(fit(vec![run(&data, 0, 50), run(&data, 4, 5)]), Err(Unfit::Overlap(range(4, 5))));
    }

    #[test]
    fn one_run_keeps_sums_that_do_not_combine_and_two_lose_them() {
        let alone = Run { range: range(0, 5), sums: Sums { md5: Some([1; 16]), ..Sums::of(b"12345") } };
        assert_eq!(whole(vec![alone.clone()], PLAIN).expect("whole").sums.md5, Some([1; 16]));
        let two = vec![alone, Run { range: range(5, 1), sums: Sums::of(b"6") }];
        assert_eq!(whole(two, PLAIN).expect("whole").sums, Sums::of(b"123456"));
    }

    #[test]
    fn nothing_is_a_file_with_the_sums_of_nothing() {
        let whole = whole(Vec::new(), ExtraSums { md5: true, sha256: true }).expect("an empty file");
        assert_eq!((whole.size_bytes, whole.sums.adler32, whole.sums.crc32c), (0, 1, 0));
        assert_eq!(whole.sums.hex(wire::checksum::Algorithm::Md5).as_deref(), Some("d41d8cd98f00b204e9800998ecf8427e"));
    }
}
