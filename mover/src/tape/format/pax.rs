//! POSIX pax archives, as little as is needed: headers, extended records, padding.
//!
//! A writer of our own because the exact offset of every byte is the catalogue's address of a member, and because data
//! goes straight from its source into the tape record.
//!
//! # Source
//!
//! POSIX.1-2017, `pax`: ustar interchange format and extended header; what GNU tar 1.34 writes with `--format=posix`.

/// Bytes of a header, and the unit data is padded to.
pub const BLOCK_BYTES: usize = 512;

/// The largest size the octal field of a header can say: 8 GiB - 1. Larger ones go into the extended header.
const LARGEST_OCTAL: u64 = 0o777_7777_7777;

/// The user and group number of everything: names are what counts. 65534 is `nobody`.
const NOBODY: u64 = 65_534;

/// Why bytes are no header of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PaxError {
    /// The bytes end within the header.
    #[error("the header is cut short")]
    Short,
    /// It is no ustar header, or it is damaged.
    #[error("there is no intact archive header")]
    NoHeader,
    /// An extended record is not `length key=value`.
    #[error("an extended header record is damaged")]
    BadRecord,
}

/// A ustar header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header<'a> {
    pub(super) name: &'a str,
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) modified_s: u64,
    pub(super) owner: &'a str,
    pub(super) group: &'a str,
}

/// Type flag of a regular file.
pub(super) const FILE: u8 = b'0';
/// Type flag of an extended header.
pub(super) const EXTENDED: u8 = b'x';

/// Zero bytes that follow `length` bytes of data, up to the next block.
#[must_use]
pub const fn padding_bytes(length: u64) -> usize {
    let over = (length % BLOCK_BYTES as u64) as usize;
    (BLOCK_BYTES - over) % BLOCK_BYTES
}

/// The header of one of our own members: a plain file without extended header.
#[must_use]
pub fn own_header(name: &str, size: u64) -> [u8; BLOCK_BYTES] {
    Header { name, kind: FILE, mode: 0o444, size, modified_s: 0, owner: "", group: "" }.encode()
}

impl Header<'_> {
    /// Encodes a header. Names longer than their field are cut: the extended header has them whole. A size beyond the
    /// octal field is zero here, as GNU tar writes it.
    pub(super) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        put_text(&mut block[..100], self.name);
        put_octal(&mut block[100..108], u64::from(self.mode & 0o7777));
        put_octal(&mut block[108..116], NOBODY);
        put_octal(&mut block[116..124], NOBODY);
        put_octal(&mut block[124..136], if self.size > LARGEST_OCTAL { 0 } else { self.size });
        put_octal(&mut block[136..148], self.modified_s.min(LARGEST_OCTAL));
        block[156] = self.kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        put_text(&mut block[265..296], self.owner);
        put_text(&mut block[297..328], self.group);
        put_octal(&mut block[329..337], 0);
        put_octal(&mut block[337..345], 0);
        let sum = checksum(&block);
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    /// Whether the size needs an extended record.
    pub(super) const fn is_large(size: u64) -> bool {
        size > LARGEST_OCTAL
    }
}

/// What is read back from a header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Decoded {
    pub(super) name: String,
    pub(super) kind: u8,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) owner: String,
    pub(super) group: String,
}

impl Decoded {
    /// Decodes the header at the front of `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, PaxError> {
        let block: &[u8; BLOCK_BYTES] = bytes.first_chunk().ok_or(PaxError::Short)?;
        if &block[257..263] != b"ustar\0" || get_octal(&block[148..156]) != Some(checksum(block)) {
            return Err(PaxError::NoHeader);
        }
        Ok(Self {
            name: get_text(&block[..100]),
            kind: block[156],
            mode: get_octal(&block[100..108]).and_then(|mode| u32::try_from(mode).ok()).ok_or(PaxError::NoHeader)?,
            size: get_octal(&block[124..136]).ok_or(PaxError::NoHeader)?,
            owner: get_text(&block[265..297]),
            group: get_text(&block[297..329]),
        })
    }
}

fn put_text(field: &mut [u8], text: &str) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if from.is_ascii() { from } else { b'_' };
    }
}

fn get_text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// Zero-padded octal, ended by NUL; callers keep values within the field.
fn put_octal(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    for (index, byte) in field[..digits].iter_mut().enumerate() {
        *byte = b'0' + (value >> (3 * (digits - 1 - index)) & 7) as u8;
    }
}

fn get_octal(field: &[u8]) -> Option<u64> {
    let digits: Vec<u8> = field.iter().copied().filter(|&byte| byte != 0 && byte != b' ').collect();
    if digits.len() > 12 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| match digit {
        b'0'..=b'7' => Some(value << 3 | u64::from(digit - b'0')),
        _ => None,
    })
}

/// The sum of all bytes, with the checksum field taken as spaces.
fn checksum(block: &[u8; BLOCK_BYTES]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..])
}

/// Appends one extended record: its own length in decimal, a space, `key=value`, a line feed.
pub(super) fn put_record(records: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
}

/// Splits extended records into keys and values; values must be UTF-8, as POSIX wants them.
pub(super) fn records(mut bytes: &[u8]) -> Result<Vec<(&str, &str)>, PaxError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(8).position(|&byte| byte == b' ').ok_or(PaxError::BadRecord)?;
        let text = std::str::from_utf8(&bytes[..space]).map_err(|_| PaxError::BadRecord)?;
        let length: usize = text.parse().map_err(|_| PaxError::BadRecord)?;
        if length <= space || length > bytes.len() {
            return Err(PaxError::BadRecord);
        }
        let (record, rest) = bytes.split_at(length);
        let record = record[space + 1..].strip_suffix(b"\n").ok_or(PaxError::BadRecord)?;
        let record = std::str::from_utf8(record).map_err(|_| PaxError::BadRecord)?;
        found.push(record.split_once('=').ok_or(PaxError::BadRecord)?);
        bytes = rest;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_comes_back_and_a_damaged_one_is_refused() {
        let header = Header {
            name: "a/b",
            kind: FILE,
            mode: 0o640,
            size: LARGEST_OCTAL,
            modified_s: 1_800_000_000,
            owner: "ada",
            group: "lab",
        };
        let block = header.encode();
        let back = Decoded::of(&block).unwrap();
        assert_eq!((back.name.as_str(), back.mode, back.size), ("a/b", 0o640, LARGEST_OCTAL));
        assert_eq!((back.owner.as_str(), back.group.as_str()), ("ada", "lab"));
        for at in 0..BLOCK_BYTES {
            let mut damaged = block;
            damaged[at] ^= 0x40;
            assert!(Decoded::of(&damaged).map_or(true, |decoded| decoded != back || at >= 345), "byte {at}");
            assert_eq!(Decoded::of(&block[..at]), Err(PaxError::Short));
        }
    }

    #[test]
    fn a_record_counts_its_own_length() {
        // 9 to 10, 99 to 100, 999 to 1000 bytes: the length's own digits change.
        for length in (0..120).chain(960..1010) {
            let mut bytes = Vec::new();
            put_record(&mut bytes, "k", &"v".repeat(length));
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse(), Ok(bytes.len()));
            assert_eq!(records(&bytes).unwrap(), [("k", "v".repeat(length).as_str())]);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Decoded::of(&bytes);
            let _ = records(&bytes);
        }

        #[test]
        fn records_come_back(pairs in prop::collection::vec(("[a-zA-Z.]{1,20}", "\\PC{0,60}"), 0..8)) {
            let mut bytes = Vec::new();
            for (key, value) in &pairs {
                put_record(&mut bytes, key, value);
            }
            let back = records(&bytes).unwrap();
            prop_assert!(back.iter().zip(&pairs).all(|(a, b)| (a.0, a.1) == (b.0.as_str(), b.1.as_str())));
            prop_assert_eq!(back.len(), pairs.len());
        }
    }
}
