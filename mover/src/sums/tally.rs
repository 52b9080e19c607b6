//! The sums of bytes that come one after the other.

use wire::{checksum::Sums, extent::ByteRange};

/// Adds up contiguous bytes. What has been added is taken out with [`Tally::take`] and joined with the rest elsewhere:
/// joining costs a microsecond, so it is done once for a block and not for each read.
pub(crate) struct Tally {
    start: u64,
    end: u64,
    adler32: simd_adler32::Adler32,
    crc32c: crc_fast::Digest,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            start: 0,
            end: 0,
            adler32: simd_adler32::Adler32::new(),
            crc32c: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi),
        }
    }

    /// Adds bytes at `offset`. Gives back what was gathered before if they do not follow it.
    pub(crate) fn add(&mut self, offset: u64, data: &[u8]) -> Option<(ByteRange, Sums)> {
        let before = if offset == self.end { None } else { self.take() };
        if self.start == self.end {
            (self.start, self.end) = (offset, offset);
        }
        self.adler32.write(data);
        self.crc32c.update(data);
        self.end += data.len() as u64;
        before
    }

    /// Takes out what was gathered.
    pub(crate) fn take(&mut self) -> Option<(ByteRange, Sums)> {
        let range = ByteRange::between(self.start, self.end).ok().filter(|range| !range.is_empty())?;
        let crc32c = u32::try_from(self.crc32c.finalize()).expect("a 32-bit sum");
        let sums = Sums { adler32: self.adler32.finish(), crc32c, md5: None, sha256: None };
        self.adler32.reset();
        self.crc32c.reset();
        self.start = self.end;
        Some((range, sums))
    }
}
