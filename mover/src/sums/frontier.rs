//! MD5 and SHA-256 of a file whose bytes arrive in any order.
//!
//! Owns the two states and how far they have come: the *frontier*. Bytes that arrive there are hashed from memory;
//! bytes that came early are read back, mostly from the page cache, once the frontier reaches them.
//!
//! Invariant: every byte before the frontier has been hashed once, in order.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use md5::{Digest as _, Md5};
use sha2::Sha256;
use wire::checksum::{ExtraSums, Sums};

/// How much is read back at once.
const READ_BYTES: usize = 256 << 10;

/// The sums that must see bytes in order.
pub(crate) struct Frontier {
    at: u64,
    md5: Option<Md5>,
    sha256: Option<Sha256>,
}

impl Frontier {
    /// Begins at `start`; `None` if no such sum is wanted.
    pub(crate) fn new(wanted: ExtraSums, start: u64) -> Option<Self> {
        let (md5, sha256) = (wanted.md5.then(Md5::new), wanted.sha256.then(Sha256::new));
        wanted.any().then_some(Self { at: start, md5, sha256 })
    }

    /// How far it has come.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Takes bytes at `offset`, if that is the frontier; others are left for [`Frontier::catch_up`].
    pub(crate) fn offer(&mut self, offset: u64, data: &[u8]) {
        if offset == self.at {
            self.update(data);
        }
    }

    fn update(&mut self, data: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(data);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(data);
        }
        self.at += data.len() as u64;
    }

    /// Reads back what lies between the frontier and `end`; the byte at offset `o` is at `o - base` of the file.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is shorter than it should be.
    pub(crate) fn catch_up(&mut self, file: &File, base: u64, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES.min(usize::try_from(end.saturating_sub(self.at)).unwrap_or(READ_BYTES))];
        while self.at < end {
            let want = usize::try_from(end - self.at).map_or(buffer.len(), |left| left.min(buffer.len()));
            file.read_exact_at(&mut buffer[..want], self.at - base)?;
            self.update(&buffer[..want]);
        }
        Ok(())
    }

    /// Adds the two sums to `sums`.
    pub(crate) fn finish(self, sums: Sums) -> Sums {
        Sums {
            md5: self.md5.map(|md5| md5.finalize().into()),
            sha256: self.sha256.map(|sha256| sha256.finalize().into()),
            ..sums
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn bytes_that_came_early_are_read_back() {
        let data: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        let both = ExtraSums { md5: true, sha256: true };
        let mut frontier = Frontier::new(both, 1000).unwrap();
        frontier.offer(301_000, &data[300_000..]);
        frontier.offer(1000, &data[..300_000]);
        assert_eq!(frontier.at(), 301_000);
        frontier.catch_up(&file, 1000, 601_000).unwrap();
        let sums = frontier.finish(Sums::EMPTY);
        assert_eq!(sums.md5.unwrap(), <[u8; 16]>::from(Md5::digest(&data)));
        assert_eq!(sums.sha256.unwrap(), <[u8; 32]>::from(Sha256::digest(&data)));
        assert!(Frontier::new(ExtraSums::default(), 0).is_none());
    }
}
