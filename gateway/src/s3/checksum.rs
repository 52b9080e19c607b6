//! The sums that S3 clients ask for: made while a body passes, compared, kept, and joined for objects in parts. Pure.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Checking object integrity for data uploads": algorithms, composite and full-object sums.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use crc_fast::{CrcAlgorithm, checksum_combine};
use s3s::{
    checksum::ChecksumHasher,
    crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256},
    dto::{Checksum, ChecksumType},
};
use serde::{Deserialize, Serialize};

/// A kind of sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The name in XML and in `x-amz-checksum-algorithm`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The algorithm of a header or trailer `x-amz-checksum-…`.
    pub(super) fn from_header(name: &str) -> Option<Self> {
        Self::from_name(name.trim().to_ascii_lowercase().strip_prefix("x-amz-checksum-")?)
    }

    /// The header it comes in.
    pub(super) const fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Whether sums of parts make the sum of the whole.
    pub(super) const fn combines(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }

    /// Whether the sum of an object in parts is of the whole if nobody says.
    pub(super) const fn full_by_default(self) -> bool {
        matches!(self, Self::Crc64Nvme)
    }

    const fn parameters(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }
}

/// A sum as it is kept: base 64, with `-N` behind it if it is of the sums of N parts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) algorithm: Algorithm,
    pub(super) value: String,
    #[serde(default)]
    pub(super) composite: bool,
}

impl Kept {
    /// The fields of an answer.
    pub(super) fn fields(&self) -> Checksum {
        let value = Some(self.value.clone());
        let mut fields = Checksum::default();
        match self.algorithm {
            Algorithm::Crc32 => fields.checksum_crc32 = value,
            Algorithm::Crc32c => fields.checksum_crc32c = value,
            Algorithm::Crc64Nvme => fields.checksum_crc64nvme = value,
            Algorithm::Sha1 => fields.checksum_sha1 = value,
            Algorithm::Sha256 => fields.checksum_sha256 = value,
        }
        let kind = if self.composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
        fields.checksum_type = Some(ChecksumType::from_static(kind));
        fields
    }
}

/// Makes one sum of what passes.
pub(super) struct Hasher {
    algorithm: Algorithm,
    hasher: ChecksumHasher,
}

impl Hasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        let mut hasher = ChecksumHasher::default();
        match algorithm {
            Algorithm::Crc32 => hasher.crc32 = Some(Crc32::new()),
            Algorithm::Crc32c => hasher.crc32c = Some(Crc32c::new()),
            Algorithm::Crc64Nvme => hasher.crc64nvme = Some(Crc64Nvme::new()),
            Algorithm::Sha1 => hasher.sha1 = Some(Sha1::new()),
            Algorithm::Sha256 => hasher.sha256 = Some(Sha256::new()),
        }
        Self { algorithm, hasher }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        self.hasher.update(data);
    }

    pub(super) fn finish(self) -> Kept {
        let fields = self.hasher.finalize();
        let values = [
            fields.checksum_crc32,
            fields.checksum_crc32c,
            fields.checksum_crc64nvme,
            fields.checksum_sha1,
            fields.checksum_sha256,
        ];
        let value = values.into_iter().flatten().next().unwrap_or_default();
        Kept { algorithm: self.algorithm, value, composite: false }
    }
}

/// The sum that a client announced: the first of these that is there.
pub(super) fn announced(values: [(Algorithm, Option<&String>); 5]) -> Option<(Algorithm, String)> {
    values.into_iter().find_map(|(algorithm, value)| Some((algorithm, value?.clone())))
}

/// The sum of an object in parts, from the sums and lengths of its parts; `None` if a part has none of that kind.
pub(super) fn joined(algorithm: Algorithm, full: bool, parts: &[(Option<&Kept>, u64)]) -> Option<Kept> {
    let values = parts.iter().map(|(kept, length)| {
        let kept = kept.filter(|kept| kept.algorithm == algorithm)?;
        Some((STANDARD.decode(&kept.value).ok()?, *length))
    });
    let values = values.collect::<Option<Vec<_>>>()?;
    if full {
        let parameters = algorithm.parameters()?;
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let mut values = values.into_iter();
        let (first, _) = values.next()?;
        let width = first.len();
        let whole = values
            .fold(number(&first), |whole, (next, length)| checksum_combine(parameters, whole, number(&next), length));
        let bytes = whole.to_be_bytes();
        let value = STANDARD.encode(&bytes[bytes.len() - width.min(8)..]);
        return Some(Kept { algorithm, value, composite: false });
    }
    let mut hasher = Hasher::new(algorithm);
    values.iter().for_each(|(value, _)| hasher.update(value));
    let value = format!("{}-{}", hasher.finish().value, values.len());
    Some(Kept { algorithm, value, composite: true })
}

/// The MD5 of a `Content-MD5` header.
pub(super) fn md5_of_header(text: &str) -> Option<[u8; 16]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(algorithm: Algorithm, data: &[u8]) -> Kept {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(data);
        hasher.finish()
    }

    #[test]
    fn sums_of_a_known_text_are_those_of_the_catalogue_of_crcs() {
        let check = |algorithm, bytes: &[u8]| assert_eq!(sum(algorithm, b"123456789").value, STANDARD.encode(bytes));
        check(Algorithm::Crc32, &0xcbf4_3926_u32.to_be_bytes());
        check(Algorithm::Crc32c, &0xe306_9283_u32.to_be_bytes());
        check(Algorithm::Crc64Nvme, &0xae8b_1486_0a79_9888_u64.to_be_bytes());
    }

    #[test]
    fn parts_join_to_the_sum_of_the_whole_or_of_their_sums() {
        let (first, second) = (vec![1_u8; 70_000], vec![2_u8; 333]);
        let whole = [first.clone(), second.clone()].concat();
        for algorithm in Algorithm::ALL {
            let (a, b) = (sum(algorithm, &first), sum(algorithm, &second));
            let parts = [(Some(&a), first.len() as u64), (Some(&b), second.len() as u64)];
            let full = joined(algorithm, true, &parts);
            assert_eq!(full, algorithm.combines().then(|| sum(algorithm, &whole)), "{algorithm:?}");
            let composite = joined(algorithm, false, &parts).expect("a composite sum");
            assert!(composite.composite && composite.value.ends_with("-2"));
            assert!(joined(algorithm, false, &[(Some(&a), 1), (None, 1)]).is_none());
        }
    }
}
