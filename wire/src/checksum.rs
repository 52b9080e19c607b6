//! The sums Penstock keeps of every bitfile, and how the sums of parts make the sum of the whole.
//!
//! Adler-32 and CRC-32C are kept of everything: the first is what grid clients ask for, the second is what tape
//! drives and this project check. Both *combine*: the sum of a whole follows from the sums of its parts, so blocks
//! may arrive in any order on any mover. MD5 and SHA-256 do not, and are kept only where a class of service asks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of sum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Adler-32, RFC 1950 section 8.2.
    Adler32,
    /// CRC-32C (Castagnoli), as iSCSI uses it: RFC 3720 section 12.1.
    Crc32c,
    /// MD5, RFC 1321: S3's ETag, and `CKSM`'s default.
    Md5,
    /// SHA-256, FIPS 180-4.
    Sha256,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 4] = [Self::Adler32, Self::Crc32c, Self::Md5, Self::Sha256];

    /// The name `CKSM` and the configuration use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "ADLER32",
            Self::Crc32c => "CRC32C",
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA256",
        }
    }

    /// The algorithm of a name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which sums to compute besides the two that are always kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExtraSums {
    /// Compute MD5.
    pub md5: bool,
    /// Compute SHA-256.
    pub sha256: bool,
}

impl ExtraSums {
    /// Whether any is asked for: the data must then be read in order, by one mover.
    #[must_use]
    pub const fn any(self) -> bool {
        self.md5 || self.sha256
    }
}

/// The sums of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sums {
    /// Adler-32.
    pub adler32: u32,
    /// CRC-32C.
    pub crc32c: u32,
    /// MD5, where it was asked for.
    pub md5: Option<[u8; 16]>,
    /// SHA-256, where it was asked for.
    pub sha256: Option<[u8; 32]>,
}

impl Sums {
    /// The combinable sums of no bytes at all.
    pub const EMPTY: Self = Self { adler32: 1, crc32c: 0, md5: None, sha256: None };

    /// The combinable sums of `data`.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        let mut adler = simd_adler32::Adler32::new();
        adler.write(data);
        Self { adler32: adler.finish(), crc32c: crc_fast::crc32_iscsi(data), md5: None, sha256: None }
    }

    /// The sums of these bytes followed by `next_length_bytes` bytes whose sums are `next`.
    ///
    /// MD5 and SHA-256 are lost: they cannot be combined.
    #[must_use]
    pub fn followed_by(self, next: &Self, next_length_bytes: u64) -> Self {
        Self {
            adler32: combine_adler32(self.adler32, next.adler32, next_length_bytes),
            crc32c: combine_crc32c(self.crc32c, next.crc32c, next_length_bytes),
            md5: None,
            sha256: None,
        }
    }

    /// The sum of one kind in lower-case hexadecimal, if it is kept.
    #[must_use]
    pub fn hex(&self, algorithm: Algorithm) -> Option<String> {
        match algorithm {
            Algorithm::Adler32 => Some(format!("{:08x}", self.adler32)),
            Algorithm::Crc32c => Some(format!("{:08x}", self.crc32c)),
            Algorithm::Md5 => self.md5.map(hex::encode),
            Algorithm::Sha256 => self.sha256.map(hex::encode),
        }
    }

    /// The first kind of sum in which the two differ; a sum that only one side has is not compared.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<Algorithm> {
        let differ = |a: Option<&[u8]>, b: Option<&[u8]>| matches!((a, b), (Some(a), Some(b)) if a != b);
        if self.adler32 != other.adler32 {
            Some(Algorithm::Adler32)
        } else if self.crc32c != other.crc32c {
            Some(Algorithm::Crc32c)
        } else if differ(self.md5.as_ref().map(|d| &d[..]), other.md5.as_ref().map(|d| &d[..])) {
            Some(Algorithm::Md5)
        } else if differ(self.sha256.as_ref().map(|d| &d[..]), other.sha256.as_ref().map(|d| &d[..])) {
            Some(Algorithm::Sha256)
        } else {
            None
        }
    }
}

/// The largest prime below 2^16: Adler-32's modulus (RFC 1950 section 8.2).
const ADLER_BASE: u64 = 65_521;

fn combine_adler32(first: u32, second: u32, second_length_bytes: u64) -> u32 {
    let (a1, b1) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (a2, b2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let length = second_length_bytes % ADLER_BASE;
    // The second sum began with a = 1; had it begun with a1, `a` would be larger by a1 - 1, and `b` by that many
    // for each of the second part's bytes.
    let a = (a1 + a2 + ADLER_BASE - 1) % ADLER_BASE;
    let b = (b1 + b2 + length * ((a1 + ADLER_BASE - 1) % ADLER_BASE)) % ADLER_BASE;
    u32::try_from(b << 16 | a).expect("both are below 2^16")
}

fn combine_crc32c(first: u32, second: u32, second_length_bytes: u64) -> u32 {
    let combined = crc_fast::checksum_combine(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        second_length_bytes,
    );
    u32::try_from(combined).expect("a 32-bit sum")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sums_are_the_published_ones() {
        let sums = Sums::of(b"123456789");
        assert_eq!(sums.hex(Algorithm::Crc32c).as_deref(), Some("e3069283"));
        assert_eq!(sums.hex(Algorithm::Adler32).as_deref(), Some("091e01de"));
        assert_eq!(sums.hex(Algorithm::Md5), None);
        assert_eq!(Sums::of(b""), Sums::EMPTY);
    }

    #[test]
    fn parts_longer_than_four_gigabytes_combine() {
        // 2^33 zero bytes after "a", computed by doubling: combining must not depend on 32-bit lengths.
        let mut zeros = Sums::of(&[0; 1 << 13]);
        for power in 13..33 {
            zeros = zeros.followed_by(&zeros, 1 << power);
        }
        let whole = Sums::of(b"a").followed_by(&zeros, 1 << 33);
        let (left, right) = (Sums::of(b"a").followed_by(&Sums::of(&[0]), 1), {
            let mut rest = Sums::EMPTY;
            for power in 0..33 {
                let mut part = Sums::of(&[0]);
                for doubling in 0..power {
                    part = part.followed_by(&part, 1 << doubling);
                }
                rest = rest.followed_by(&part, 1 << power);
            }
            rest
        });
        assert_eq!(left.followed_by(&right, (1 << 33) - 1), whole);
    }

    proptest! {
        #[test]
        fn the_sums_of_parts_make_the_sum_of_the_whole(data in prop::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>()) {
            let (first, second) = data.split_at(cut.index(data.len() + 1));
            let combined = Sums::of(first).followed_by(&Sums::of(second), second.len() as u64);
            prop_assert_eq!(combined, Sums::of(&data));
        }
    }

    #[test]
    fn a_sum_only_one_side_has_is_not_a_difference() {
        let plain = Sums::of(b"x");
        let with_md5 = Sums { md5: Some([1; 16]), ..plain };
        assert_eq!(plain.difference(&with_md5), None);
        assert_eq!(with_md5.difference(&Sums { md5: Some([2; 16]), ..plain }), Some(Algorithm::Md5));
        assert_eq!(plain.difference(&Sums::of(b"y")), Some(Algorithm::Adler32));
    }
}
