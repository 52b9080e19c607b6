//! Conditions and ranges of a request.
//!
//! Pure.
//!
//! # Source
//!
//! RFC 9110 sections 13 (conditional requests) and 14 (ranges).

use std::time::{Duration, SystemTime};

use catalog::{Entry, FileInfo, Timestamp};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE},
};
use wire::extent::ByteRange;

/// The entity tag of a file: bitfiles are written once, so the number is a strong one.
pub(super) fn tag(file: &FileInfo) -> String {
    format!("\"{:x}\"", file.bitfile.0)
}

/// A time as HTTP writes it.
pub(super) fn date(time: Timestamp) -> String {
    let since = Duration::from_secs(u64::try_from(time.0.div_euclid(1_000_000)).unwrap_or_default());
    // The year 9999 is as far as the form goes.
    let last = Duration::from_secs(253_402_300_799);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since.min(last))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Seconds since the epoch.
fn seconds(headers: &HeaderMap, name: HeaderName) -> Option<i64> {
    let time = httpdate::parse_http_date(text(headers, name)?).ok()?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// Whether a list of tags has this one; `weak` takes weak ones for it.
fn lists(list: &str, tag: &str, weak: bool) -> bool {
    list.split(',').map(str::trim).any(|one| one == "*" || one == tag || weak && one.strip_prefix("W/") == Some(tag))
}

/// Decides what the request's conditions make of it: `Err` has the status that is answered instead. `file` is what is
/// there now.
pub(super) fn check(method: &Method, headers: &HeaderMap, file: Option<(&Entry, &FileInfo)>) -> Result<(), StatusCode> {
    let modified = |name| match (file, seconds(headers, name)) {
        (Some((entry, _)), Some(since)) => Some(entry.modified.0.div_euclid(1_000_000) > since),
        _ => None,
    };
    let reading = matches!(*method, Method::GET | Method::HEAD);
    let has = |list: &str, weak| file.is_some_and(|(_, file)| lists(list, &tag(file), weak));
    match text(headers, IF_MATCH) {
        Some(list) if !has(list, false) => return Err(StatusCode::PRECONDITION_FAILED),
        Some(_) => {}
        None if modified(IF_UNMODIFIED_SINCE) == Some(true) => return Err(StatusCode::PRECONDITION_FAILED),
        None => {}
    }
    match text(headers, IF_NONE_MATCH) {
        Some(list) if has(list, true) && reading => Err(StatusCode::NOT_MODIFIED),
        Some(list) if has(list, true) => Err(StatusCode::PRECONDITION_FAILED),
        None if reading && modified(IF_MODIFIED_SINCE) == Some(false) => Err(StatusCode::NOT_MODIFIED),
        _ => Ok(()),
    }
}

/// Which bytes a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// All of them: there is no range, or one that may be passed over.
    Whole,
    /// These.
    Part(ByteRange),
    /// None that are there.
    Outside,
}

/// Several ranges at a time are passed over, as a server may, and the whole is sent.
pub(super) fn range(headers: &HeaderMap, entry: &Entry, file: &FileInfo) -> Wanted {
    if let Some(condition) = text(headers, IF_RANGE) {
        let same =
            if condition.starts_with(['"', 'W']) { condition == tag(file) } else { condition == date(entry.modified) };
        if !same {
            return Wanted::Whole;
        }
    }
    text(headers, RANGE).map_or(Wanted::Whole, |text| parse(text, file.size_bytes))
}

fn parse(text: &str, size: u64) -> Wanted {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that is too large for us is larger than any file.
        digits.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Wanted::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let (from, to) = match (number(first), number(last)) {
        (Some(from), None) if last.is_empty() => (from, size),
        (Some(from), Some(to)) if from <= to => (from, to.saturating_add(1).min(size)),
        (None, Some(0)) if first.is_empty() => return Wanted::Outside,
        (None, Some(count)) if first.is_empty() => (size - count.min(size), size),
        _ => return Wanted::Whole,
    };
    if from >= size {
        return Wanted::Outside;
    }
    ByteRange::new(from, to - from).map_or(Wanted::Outside, Wanted::Part)
}

#[cfg(test)]
mod tests {
    use catalog::{Content, Residency};
    use hyper::header::HeaderValue;
    use wire::{checksum::Sums, id::*};

    use super::*;

    fn file() -> (Entry, FileInfo) {
        let info = FileInfo {
            bitfile: BitfileId(0xab),
            size_bytes: 100,
            cos: CosName::new("disk").expect("a name"),
            sums: Sums::EMPTY,
            generation: 1,
            residency: Residency { on_disk: true, tape_copies: 0, tape_copies_wanted: 0 },
        };
        let time = Timestamp(1_700_000_000_000_000);
        let entry = Entry {
            id: EntryId(2),
            parent: Some(EntryId(1)),
            name: "f".to_owned(),
            owner: AccountName::new("alice").expect("a name"),
            group: GroupName::new("users").expect("a name"),
            mode: 0o644,
            acl: None,
            created: time,
            modified: time,
            changed: time,
            content: Content::File(info.clone()),
        };
        (entry, info)
    }

    fn with(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a good value"))).collect()
    }

    fn decided(method: &Method, name: HeaderName, value: &str, there: bool) -> Result<(), StatusCode> {
        let (entry, info) = file();
        check(method, &with(&[(name, value)]), there.then_some((&entry, &info)))
    }

    #[test]
    fn a_range_is_one_that_is_there_or_nothing() {
        let part = |from, length| Wanted::Part(ByteRange::new(from, length).expect("small"));
        for (text, wanted) in [
            ("bytes=0-9", part(0, 10)),
            ("bytes=90-1000", part(90, 10)),
            ("bytes=90-", part(90, 10)),
            ("bytes=-10", part(90, 10)),
            ("bytes=-1000", part(0, 100)),
            ("bytes=5-99999999999999999999999", part(5, 95)),
            ("bytes=100-", Wanted::Outside),
            ("bytes=-0", Wanted::Outside),
            ("bytes=9-8", Wanted::Whole),
            ("bytes=0-1,4-5", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=x-", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
        ] {
            assert_eq!(parse(text, 100), wanted, "{text}");
        }
        assert_eq!(parse("bytes=0-", 0), Wanted::Outside);
    }

    #[test]
    fn a_range_holds_for_the_file_that_the_client_has_a_part_of() {
        let (entry, info) = file();
        let asked = |condition: &str| range(&with(&[(RANGE, "bytes=1-2"), (IF_RANGE, condition)]), &entry, &info);
        assert_ne!(asked("\"ab\""), Wanted::Whole);
        assert_ne!(asked("Tue, 14 Nov 2023 22:13:20 GMT"), Wanted::Whole);
        assert_eq!(asked("W/\"ab\""), Wanted::Whole);
        assert_eq!(asked("\"ac\""), Wanted::Whole);
    }

    #[test]
    fn conditions_are_decided_by_tag_and_time() {
        let (get, put) = (Method::GET, Method::PUT);
        let (not_modified, failed) = (Err(StatusCode::NOT_MODIFIED), Err(StatusCode::PRECONDITION_FAILED));
        assert_eq!(decided(&get, IF_NONE_MATCH, "W/\"ab\"", true), not_modified);
        assert_eq!(decided(&get, IF_NONE_MATCH, "\"x\", \"ab\"", true), not_modified);
        assert_eq!(decided(&put, IF_NONE_MATCH, "*", true), failed);
        assert_eq!(decided(&put, IF_NONE_MATCH, "*", false), Ok(()));
        assert_eq!(decided(&put, IF_MATCH, "*", false), failed);
        assert_eq!(decided(&put, IF_MATCH, "\"ab\"", true), Ok(()));
        assert_eq!(decided(&get, IF_MATCH, "W/\"ab\"", true), failed);
        let (same, before) = ("Tue, 14 Nov 2023 22:13:20 GMT", "Tue, 14 Nov 2023 22:13:19 GMT");
        assert_eq!(decided(&get, IF_MODIFIED_SINCE, same, true), not_modified);
        assert_eq!(decided(&get, IF_MODIFIED_SINCE, before, true), Ok(()));
        assert_eq!(decided(&put, IF_UNMODIFIED_SINCE, before, true), failed);
        assert_eq!(decided(&put, IF_UNMODIFIED_SINCE, "yesterday", true), Ok(()));
    }
}
