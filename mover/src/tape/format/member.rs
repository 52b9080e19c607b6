//! A member's headers: an extended header with everything the catalogue knows, then a plain one.
//!
//! `tar` sees a file with its path, owner, times and size; Penstock sees `PENSTOCK.oid` and the sums. Names that would
//! be dangerous or impossible to extract (`..`, a leading slash, a segment among several) are changed for `tar`, and
//! `PENSTOCK.path` keeps the real one.

use std::borrow::Cow;

use wire::checksum::Sums;
use wire::id::BitfileId;

use super::pax::{self, BLOCK_BYTES, Decoded, EXTENDED, FILE, Header, PaxError, padding_bytes};
use crate::tape::member::{MAX_PATH_BYTES, Member, SegmentOf};

/// The longest extended header we read or write: the path twice, and room for the rest.
const MAX_EXTENDED_BYTES: usize = 2 * MAX_PATH_BYTES + 4096;

/// The longest name of an account or group.
const MAX_NAME_BYTES: usize = 256;

/// Why a member cannot be described, or a description cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemberError {
    /// The path is empty, too long or holds a NUL.
    #[error("its path cannot be a member's name")]
    BadPath,
    /// The owner's or group's name is too long or holds a NUL.
    #[error("its owner or group cannot be a member's")]
    BadOwner,
    /// The archive is damaged.
    #[error(transparent)]
    Pax(#[from] PaxError),
    /// A value is missing or is no number.
    #[error("its {0} is missing or damaged")]
    BadValue(&'static str),
}

/// Encodes a member's headers: a whole number of blocks; the data follows at once.
///
/// # Errors
///
/// [`MemberError::BadPath`], [`MemberError::BadOwner`].
pub fn encode_member(member: &Member) -> Result<Vec<u8>, MemberError> {
    if member.path.is_empty() || member.path.len() > MAX_PATH_BYTES || member.path.contains('\0') {
        return Err(MemberError::BadPath);
    }
    if [&member.owner, &member.group, &member.cos].iter().any(|name| name.len() > MAX_NAME_BYTES || name.contains('\0'))
    {
        return Err(MemberError::BadOwner);
    }
    let name = archive_name(member);
    let mut records = Vec::new();
    let mut put = |key: &str, value: &str| pax::put_record(&mut records, key, value);
    put("path", &name);
    put(
        "mtime",
        &format!(
            "{}{}.{:06}",
            if member.modified_us < 0 { "-" } else { "" },
            member.modified_us.unsigned_abs() / 1_000_000,
            member.modified_us.unsigned_abs() % 1_000_000
        ),
    );
    if Header::is_large(member.length_bytes) {
        put("size", &member.length_bytes.to_string());
    }
    for (key, value) in [("uname", &member.owner), ("gname", &member.group)] {
        if value.len() > 31 || !value.is_ascii() {
            put(key, value);
        }
    }
    put("PENSTOCK.oid", &member.bitfile.to_string());
    put("PENSTOCK.ver", &member.version.to_string());
    if name != member.path {
        put("PENSTOCK.path", &member.path);
    }
    if let Some(segment) = member.segment {
        let SegmentOf { index, count, offset_bytes, total_bytes } = segment;
        put("PENSTOCK.seg", &format!("{index}/{count}+{offset_bytes}/{total_bytes}"));
    }
    if !member.cos.is_empty() {
        put("PENSTOCK.cos", &member.cos);
    }
    put("PENSTOCK.adler32", &format!("{:08x}", member.sums.adler32));
    put("PENSTOCK.crc32c", &format!("{:08x}", member.sums.crc32c));
    for (key, sum) in
        [("PENSTOCK.md5", member.sums.md5.map(hex::encode)), ("PENSTOCK.sha256", member.sums.sha256.map(hex::encode))]
    {
        if let Some(sum) = sum {
            put(key, &sum);
        }
    }
    let short = format!("penstock.{}", member.bitfile);
    let header = Header {
        name: &short,
        kind: FILE,
        mode: member.mode,
        size: member.length_bytes,
        modified_s: u64::try_from(member.modified_us / 1_000_000).unwrap_or(0),
        owner: cut(&member.owner),
        group: cut(&member.group),
    };
    let extended = format!("PaxHeaders/{short}");
    let size = records.len() as u64;
    let mut bytes = Header { name: &extended, kind: EXTENDED, mode: 0o444, size, ..header }.encode().to_vec();
    bytes.extend_from_slice(&records);
    bytes.resize(bytes.len() + padding_bytes(size), 0);
    bytes.extend_from_slice(&header.encode());
    Ok(bytes)
}

/// What fits a header's own field.
fn cut(name: &str) -> &str {
    if name.len() > 31 || !name.is_ascii() { "" } else { name }
}

/// The name for `tar`: relative, without `..`, outside our own folder, and with a suffix if it is one segment of
/// several.
fn archive_name(member: &Member) -> Cow<'_, str> {
    let plain = member.path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let ours = member.path.split('/').next() == Some(".penstock");
    if plain && !ours && member.segment.is_none() {
        return Cow::Borrowed(&member.path);
    }
    let mut name = String::new();
    for part in member.path.split('/') {
        let part = match part {
            "" => continue,
            "." => "%2E",
            ".." => "%2E%2E",
            ".penstock" if name.is_empty() => "%2Epenstock",
            part => part,
        };
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(part);
    }
    if name.is_empty() {
        name.push_str("%2F");
    }
    if let Some(segment) = member.segment {
        name.push_str(&format!(".segment-{}-of-{}", segment.index, segment.count));
    }
    Cow::Owned(name)
}

/// Decodes the headers at the front of `bytes`; returns the member and how many bytes its headers took.
///
/// # Errors
///
/// [`MemberError`] if there are no headers of a member of ours.
pub fn decode_member(bytes: &[u8]) -> Result<(Member, usize), MemberError> {
    let extended = Decoded::of(bytes)?;
    let size = usize::try_from(extended.size).ok().filter(|&size| size <= MAX_EXTENDED_BYTES);
    let Some(size) = size.filter(|_| extended.kind == EXTENDED) else { return Err(PaxError::NoHeader.into()) };
    let records = bytes.get(BLOCK_BYTES..BLOCK_BYTES + size).ok_or(PaxError::Short)?;
    let at = BLOCK_BYTES + size + padding_bytes(size as u64);
    let header = Decoded::of(bytes.get(at..).unwrap_or_default())?;
    if header.kind != FILE {
        return Err(PaxError::NoHeader.into());
    }
    let records = pax::records(records)?;
    let value = |key: &str| records.iter().rev().find(|(found, _)| *found == key).map(|(_, value)| *value);
    let number = |key: &'static str| {
        let text = value(key).ok_or(MemberError::BadValue(key))?;
        text.parse::<u64>().map_err(|_| MemberError::BadValue(key))
    };
    let sums = Sums {
        adler32: hex32(value("PENSTOCK.adler32")).ok_or(MemberError::BadValue("PENSTOCK.adler32"))?,
        crc32c: hex32(value("PENSTOCK.crc32c")).ok_or(MemberError::BadValue("PENSTOCK.crc32c"))?,
        md5: value("PENSTOCK.md5").map(digest).transpose().map_err(|()| MemberError::BadValue("PENSTOCK.md5"))?,
        sha256: value("PENSTOCK.sha256")
            .map(digest)
            .transpose()
            .map_err(|()| MemberError::BadValue("PENSTOCK.sha256"))?,
    };
    let path = value("PENSTOCK.path").or_else(|| value("path")).ok_or(MemberError::BadValue("path"))?;
    let member = Member {
        bitfile: BitfileId(number("PENSTOCK.oid")?),
        version: number("PENSTOCK.ver")?,
        path: path.to_owned(),
        owner: value("uname").map_or(header.owner, str::to_owned),
        group: value("gname").map_or(header.group, str::to_owned),
        mode: header.mode,
        modified_us: value("mtime").and_then(microseconds).ok_or(MemberError::BadValue("mtime"))?,
        length_bytes: if value("size").is_some() { number("size")? } else { header.size },
        sums,
        cos: value("PENSTOCK.cos").unwrap_or_default().to_owned(),
        segment: match value("PENSTOCK.seg") {
            Some(text) => Some(segment(text).ok_or(MemberError::BadValue("PENSTOCK.seg"))?),
            None => None,
        },
    };
    Ok((member, at + BLOCK_BYTES))
}

/// What begins at a block of an archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// A member; its headers take that many bytes.
    Member(Box<Member>, usize),
    /// A member of our own, `.penstock/…`, of that many bytes behind one block of header.
    Own(String, u64),
    /// The end of the archive.
    End,
}

/// Decodes what begins at the front of `bytes`.
///
/// # Errors
///
/// [`MemberError`] if it is nothing of ours.
pub fn decode_part(bytes: &[u8]) -> Result<Part, MemberError> {
    let block = bytes.get(..BLOCK_BYTES).ok_or(PaxError::Short)?;
    if block.iter().all(|&byte| byte == 0) {
        return Ok(Part::End);
    }
    let header = Decoded::of(block)?;
    if header.kind == EXTENDED {
        let (member, taken) = decode_member(bytes)?;
        return Ok(Part::Member(Box::new(member), taken));
    }
    if header.kind != FILE || !header.name.starts_with(".penstock/") {
        return Err(PaxError::NoHeader.into());
    }
    Ok(Part::Own(header.name, header.size))
}

/// Finds the member whose data begins at `skip_bytes` of a record: its headers end there.
///
/// # Errors
///
/// [`MemberError`] if none does.
pub fn find_member(record: &[u8], skip_bytes: usize) -> Result<Member, MemberError> {
    let before = record.get(..skip_bytes).ok_or(PaxError::Short)?;
    if !skip_bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(PaxError::NoHeader.into());
    }
    // Backwards over the plain header and the extended records to the header of these. A path cannot look like one:
    // it holds no NUL.
    let farthest = skip_bytes.saturating_sub(MAX_EXTENDED_BYTES + 3 * BLOCK_BYTES);
    let mut start = skip_bytes.saturating_sub(3 * BLOCK_BYTES);
    loop {
        if let Ok((member, taken)) = decode_member(&before[start..])
            && start + taken == skip_bytes
        {
            return Ok(member);
        }
        if start <= farthest {
            return Err(PaxError::NoHeader.into());
        }
        start -= BLOCK_BYTES;
    }
}

fn hex32(text: Option<&str>) -> Option<u32> {
    text.filter(|text| text.len() == 8).and_then(|text| u32::from_str_radix(text, 16).ok())
}

pub(super) fn digest<const N: usize>(text: &str) -> Result<[u8; N], ()> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| ())?;
    Ok(bytes)
}

/// `-12.345678` as microseconds.
fn microseconds(text: &str) -> Option<i64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let value = seconds.parse::<u64>().ok().and_then(|seconds| i64::try_from(seconds).ok())?;
    let value = value.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some(if negative { -value } else { value })
}

fn segment(text: &str) -> Option<SegmentOf> {
    let (index, rest) = text.split_once('/')?;
    let (count, rest) = rest.split_once('+')?;
    let (offset, total) = rest.split_once('/')?;
    Some(SegmentOf {
        index: index.parse().ok()?,
        count: count.parse().ok()?,
        offset_bytes: offset.parse().ok()?,
        total_bytes: total.parse().ok()?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn any_member() -> impl Strategy<Value = Member> {
        let names = ("[a-zA-Z0-9 ._/é漢%-]{1,300}", "[a-zé]{0,60}", "[a-z]{0,10}", "[a-z]{0,10}");
        let numbers = (any::<u64>(), any::<u64>(), -9_000_000_000_000_000i64..9_000_000_000_000_000, any::<u64>());
        let sums = (any::<u32>(), any::<u32>(), any::<Option<[u8; 16]>>(), any::<Option<[u8; 32]>>());
        let segment = proptest::option::of((any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>()));
        (names, numbers, sums, segment, 0u32..0o10000).prop_map(|(names, numbers, sums, segment, mode)| Member {
            bitfile: BitfileId(numbers.0),
            version: numbers.1,
            path: names.0,
            owner: names.1,
            group: names.2,
            cos: names.3,
            mode,
            modified_us: numbers.2,
            length_bytes: numbers.3,
            sums: Sums { adler32: sums.0, crc32c: sums.1, md5: sums.2, sha256: sums.3 },
            segment: segment.map(|(index, count, offset_bytes, total_bytes)| SegmentOf {
                index,
                count,
                offset_bytes,
                total_bytes,
            }),
        })
    }

    proptest! {
        #[test]
        fn a_member_comes_back_from_its_headers(member in any_member(), before in 0usize..20) {
            let headers = encode_member(&member).unwrap();
            prop_assert_eq!(headers.len() % BLOCK_BYTES, 0);
            prop_assert_eq!(decode_member(&headers).unwrap(), (member.clone(), headers.len()));
            let mut record = vec![0xa5; before * BLOCK_BYTES];
            record.extend_from_slice(&headers);
            let skip = record.len();
            record.extend_from_slice(&[1; 700]);
            prop_assert_eq!(find_member(&record, skip).unwrap(), member);
            prop_assert!(find_member(&record, skip + BLOCK_BYTES).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_no_member(bytes in prop::collection::vec(any::<u8>(), 0..2000), skip in 0usize..2500) {
            prop_assert!(decode_member(&bytes).is_err());
            prop_assert!(find_member(&bytes, skip).is_err());
        }
    }

    #[test]
    fn headers_cut_anywhere_are_refused() {
        let headers = encode_member(&Member::new(BitfileId(7), "a/b", 5, Sums::EMPTY)).unwrap();
        for cut in 0..headers.len() {
            assert!(decode_member(&headers[..cut]).is_err());
        }
    }

    #[test]
    fn names_that_tar_must_not_see_are_changed_for_it_and_kept_for_us() {
        for (path, name) in [
            ("/etc/passwd", "etc/passwd"),
            ("a/../../b", "a/%2E%2E/%2E%2E/b"),
            ("a//b", "a/b"),
            (".penstock/TRAILER", "%2Epenstock/TRAILER"),
            ("/", "%2F"),
            ("plain/name", "plain/name"),
        ] {
            let member = Member::new(BitfileId(1), path, 0, Sums::EMPTY);
            assert_eq!(archive_name(&member), name);
            assert_eq!(decode_member(&encode_member(&member).unwrap()).unwrap().0.path, path);
        }
        assert_eq!(encode_member(&Member::new(BitfileId(1), "", 0, Sums::EMPTY)), Err(MemberError::BadPath));
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        assert_eq!(encode_member(&Member::new(BitfileId(1), long, 0, Sums::EMPTY)), Err(MemberError::BadPath));
    }

    #[test]
    fn a_segment_has_a_name_of_its_own() {
        let segment = Some(SegmentOf { index: 2, count: 3, offset_bytes: 10, total_bytes: 30 });
        let member = Member { segment, ..Member::new(BitfileId(1), "big", 10, Sums::EMPTY) };
        assert_eq!(archive_name(&member), "big.segment-2-of-3");
    }
}
