//! The labels of a volume: VOL1 for every tape system, a README for people, and PENSTOCK-VOLUME for us.
//!
//! # Source
//!
//! ECMA-13 / ISO 1001 for VOL1's fields; byte 77 for the protection code as LTFS and CASTOR use it.

use serde::{Deserialize, Serialize};
use wire::id::VolumeLabel;

use super::RECORD_BYTES;

/// Bytes of VOL1.
const VOL1_BYTES: usize = 80;
/// The implementation in VOL1.
const IMPLEMENTATION: &str = "PENSTOCK";
/// Bytes of the README and of PENSTOCK-VOLUME.
const TEXT_BYTES: usize = 4096;
/// First bytes of PENSTOCK-VOLUME.
const VOLUME_MAGIC: &str = "PENSTOCK-VOLUME ";

/// VOL1: 80 bytes. The volume serial number is the label's first six characters, as bar codes of libraries end with
/// the media type.
#[must_use]
pub fn encode_vol1(label: &VolumeLabel, owner: &str, block_protection: bool) -> [u8; VOL1_BYTES] {
    let mut bytes = [b' '; VOL1_BYTES];
    let mut put = |at: usize, longest: usize, text: &str| {
        for (index, byte) in text.bytes().take(longest).enumerate() {
            bytes[at + index] = if byte.is_ascii_graphic() { byte } else { b' ' };
        }
    };
    put(0, 4, "VOL1");
    put(4, 6, label.as_str());
    put(24, 13, IMPLEMENTATION);
    put(37, 14, owner);
    put(77, 2, if block_protection { "02" } else { "00" });
    put(79, 1, "4");
    bytes
}

/// The volume serial number and the implementation of a VOL1; `None` if the block is none.
#[must_use]
pub fn decode_vol1(block: &[u8]) -> Option<(String, String)> {
    let text = |at: usize, length: usize| {
        block.get(at..at + length).map(|field| String::from_utf8_lossy(field).trim().to_owned())
    };
    if block.len() < VOL1_BYTES || !block.starts_with(b"VOL1") {
        return None;
    }
    Some((text(4, 6)?, text(24, 13)?))
}

/// What PENSTOCK-VOLUME says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Version of the format: 1.
    pub format: u32,
    /// The whole label.
    pub label: VolumeLabel,
    /// Identity of this labelling: 16 random bytes in hexadecimal.
    pub identity: String,
    /// The storage class or pool, for people.
    pub pool: String,
    /// It can be written once only.
    pub worm: bool,
    /// Epoch of the mount in which it was labelled.
    pub epoch: u64,
    /// When, in microseconds since the epoch.
    pub labelled_us: u64,
}

impl VolumeInfo {
    /// The version written and read.
    pub const FORMAT: u32 = 1;

    /// PENSTOCK-VOLUME: magic, CRC-32C, JSON, padded with spaces to 4096 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("plain fields");
        let mut text = format!("{VOLUME_MAGIC}{:08x} {json}\n", crc_fast::crc32_iscsi(json.as_bytes())).into_bytes();
        text.resize(text.len().next_multiple_of(TEXT_BYTES), b' ');
        text
    }

    /// Decodes PENSTOCK-VOLUME; `None` if the block is none or damaged.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(block).ok()?.strip_prefix(VOLUME_MAGIC)?;
        let (check, rest) = text.split_at_checked(8)?;
        let json = rest.strip_prefix(' ')?.lines().next()?;
        let check = u32::from_str_radix(check, 16).ok()?;
        if check != crc_fast::crc32_iscsi(json.as_bytes()) {
            return None;
        }
        serde_json::from_str(json).ok().filter(|info: &Self| info.format == Self::FORMAT)
    }
}

/// The README: how to read the tape without Penstock. 4096 bytes of plain text.
#[must_use]
pub fn readme(label: &VolumeLabel) -> Vec<u8> {
    let text = format!(
        "This is tape volume {label}, written by Penstock. It can be read without Penstock.\n\
\n\
The tape is a row of files, each ended by a filemark. File 0 holds labels and this\n\
text. Each later file is one POSIX pax archive in records of {RECORD_BYTES} bytes.\n\
\n\
With Linux, mt and GNU tar:\n\
\n\
    mt -f /dev/nst0 setblk 0            variable block length\n\
    mt -f /dev/nst0 rewind\n\
    mt -f /dev/nst0 fsf 1               to the first archive; fsf 1 again for the next\n\
    tar -b 512 --warning=no-unknown-keyword -tvf /dev/nst0\n\
    tar -b 512 --warning=no-unknown-keyword -xf /dev/nst0\n\
\n\
or    dd if=/dev/nst0 bs={RECORD_BYTES} of=archive.tar\n\
\n\
In each archive:\n\
\n\
    .penstock/CONTAINER   who wrote it, when, and where on the tape it begins\n\
    .penstock/TRAILER     the list of its members, one JSON object a line, with place\n\
                          (record address, offset), length and sums of each\n\
    .penstock/PAD         fills a record; means nothing\n\
    .penstock/INDEX       (an archive of its own) all archives so far\n\
\n\
An archive without TRAILER was never finished: its files are elsewhere.\n\
\n\
Extended header keywords of each member:\n\
\n\
    PENSTOCK.oid       the file's number in the catalogue\n\
    PENSTOCK.ver       the larger, the newer, among files of one path\n\
    PENSTOCK.path      the real path, if tar was given another\n\
    PENSTOCK.seg       i/N+offset/total: part i of N of a larger file; the archive has it\n\
                       as NAME.segment-i-of-N; put the parts together in order with cat\n\
    PENSTOCK.crc32c, PENSTOCK.adler32, PENSTOCK.md5, PENSTOCK.sha256   sums of the data\n"
    );
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(TEXT_BYTES), b' ');
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label() -> VolumeLabel {
        VolumeLabel::new("PEN001L8").unwrap()
    }

    #[test]
    fn vol1_has_the_fields_of_the_standard() {
        let bytes = encode_vol1(&label(), "archive", true);
        assert_eq!(&bytes[..10], b"VOL1PEN001");
        assert_eq!((&bytes[24..32], &bytes[77..80]), (b"PENSTOCK".as_slice(), b"024".as_slice()));
        assert_eq!(decode_vol1(&bytes), Some(("PEN001".into(), "PENSTOCK".into())));
        for cut in 0..bytes.len() {
            assert_eq!(decode_vol1(&bytes[..cut]), None);
        }
    }

    #[test]
    fn a_volume_label_comes_back_and_a_damaged_one_does_not() {
        let info = VolumeInfo {
            format: 1,
            label: label(),
            identity: "ab".repeat(16),
            pool: "tape".into(),
            worm: false,
            epoch: 7,
            labelled_us: 1,
        };
        let bytes = info.encode();
        assert_eq!(VolumeInfo::decode(&bytes), Some(info));
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        for at in 0..end {
            assert_eq!(VolumeInfo::decode(&bytes[..at]), None);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(VolumeInfo::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn the_readme_is_one_block_of_plain_text() {
        let text = readme(&label());
        assert_eq!(text.len(), TEXT_BYTES);
        assert!(text.is_ascii());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_label(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(VolumeInfo::decode(&bytes), None);
            prop_assert_eq!(decode_vol1(&bytes), None);
        }
    }
}
