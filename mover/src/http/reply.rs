//! What is answered: status, headers, and which bytes. Pure.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use wire::{
    extent::{ByteRange, Place},
    mover::{Fault, FaultKind, Grant, HttpAnswer, http::MAX_ANSWER_BYTES},
};

use super::head::{Asked, Bad};
use crate::job::plan::DiskPiece;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Everything before the body.
    pub(super) head: Vec<u8>,
    /// The bytes of the file that follow; `None` if `text` follows, or nothing.
    pub(super) bytes: Option<ByteRange>,
    /// A sentence for people.
    pub(super) text: String,
}

/// Answers what a grant allows.
///
/// # Source
///
/// RFC 9110 sections 13.2.2 (order of preconditions), 13.1.5 (If-Range) and 14.2 (ranges). Several ranges are answered
/// with the whole, as section 14.2 allows.
pub(super) fn reply(asked: &Asked, grant: &Grant) -> Reply {
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(grant.modified_s);
    if let Some(status) = condition(asked, &grant.etag, modified) {
        return described(asked, grant, status, None, modified);
    }
    let holds = asked.if_range.as_deref().is_none_or(|text| text == grant.etag || date(text) == Some(modified));
    let range = asked.range.as_deref().filter(|_| holds).and_then(|text| range(text, grant.size_bytes));
    match range {
        Some(Err(())) => {
            let text = format!("the file has {} bytes\n", grant.size_bytes);
            let line = format!("content-range: bytes */{}\r\n", grant.size_bytes);
            written(416, line, text, asked)
        }
        Some(Ok(range)) => described(asked, grant, 206, Some(range), modified),
        None => described(asked, grant, 200, None, modified),
    }
}

/// Answers a request that no grant allows.
pub(super) fn refusal(status: u16, text: &str, asked: &Asked) -> Reply {
    written(status, String::new(), format!("{text}\n"), asked)
}

/// Answers what a gateway says, after a body. `keep` if the connection can carry another request.
pub(super) fn given(answer: HttpAnswer, keep: bool) -> Reply {
    // What belongs to the connection is made here.
    const OWN: [&str; 7] =
        ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding", "upgrade"];
    let status = if (200..600).contains(&answer.status) { answer.status } else { 500 };
    let mut head = begin(status, &Asked { keep, ..Asked::default() });
    let mut body = answer.body;
    body.truncate(MAX_ANSWER_BYTES);
    let own = |name: &str| name.is_empty() || OWN.iter().any(|own| own.eq_ignore_ascii_case(name));
    for (name, value) in answer.headers.iter().filter(|(name, _)| !own(name)) {
        put(&mut head, name, value);
    }
    if status != 204 {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut head = head.into_bytes();
    if status != 204 {
        head.extend_from_slice(&body);
    }
    Reply { status, head, bytes: None, text: String::new() }
}

/// Answers what is no request for a file; the connection ends.
pub(super) fn bad(bad: Bad) -> Reply {
    let (status, line, text) = match bad {
        Bad::Malformed => (400, "", "this is no HTTP/1.1 request"),
        Bad::TooLong => (431, "", "the request's head is too long"),
        Bad::Method => (405, "allow: GET, HEAD, PUT\r\n", "only GET, HEAD and PUT are served here: ask the gateway"),
        Bad::Body => (413, "", "no body is wanted here: ask the gateway"),
        Bad::Length => (411, "", "say how long the body is, or send it in chunks"),
        Bad::Expect => (417, "", "only 100-continue may be expected here"),
    };
    written(status, line.to_owned(), format!("{text}\n"), &Asked::default())
}

/// Which parts of disk files a range of a grant's file is.
///
/// # Errors
///
/// [`FaultKind::BadRequest`] if a piece is not on disk.
pub(super) fn pieces(grant: &Grant, range: ByteRange) -> Result<Vec<DiskPiece>, Fault> {
    let mut found = Vec::new();
    for piece in &grant.pieces {
        let bad = |error| Fault::new(FaultKind::BadRequest, error);
        let whole = ByteRange::new(piece.offset_bytes, piece.extent.length_bytes).map_err(bad)?;
        let Some(part) = whole.intersection(range).filter(|part| !part.is_empty()) else { continue };
        let Place::Disk { file, offset_bytes } = piece.extent.place else {
            return Err(Fault::new(FaultKind::BadRequest, "a piece that is not on disk"));
        };
        let offset_bytes = offset_bytes
            .checked_add(part.offset() - whole.offset())
            .ok_or_else(|| Fault::new(FaultKind::BadRequest, "a piece behind the end of every file"))?;
        // Sums are of whole pieces.
        let sums = piece.sums.filter(|_| part == whole);
        found.push(DiskPiece { range: part, volume: piece.extent.volume.clone(), file, offset_bytes, sums });
    }
    Ok(found)
}

/// The status with which a condition of the request ends it.
fn condition(asked: &Asked, etag: &str, modified: SystemTime) -> Option<u16> {
    let same = |list: &str| list.split(',').map(str::trim).any(|tag| tag == "*" || tag == etag);
    let weak = |list: &str| same(list) || list.split(',').any(|tag| tag.trim().strip_prefix("W/") == Some(etag));
    match (&asked.if_match, &asked.if_unmodified_since) {
        (Some(list), _) if !same(list) => return Some(412),
        (None, Some(text)) if date(text).is_some_and(|date| modified > date) => return Some(412),
        _ => {}
    }
    match (&asked.if_none_match, &asked.if_modified_since) {
        (Some(list), _) if weak(list) => Some(304),
        (None, Some(text)) if date(text).is_some_and(|date| modified <= date) => Some(304),
        _ => None,
    }
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// The one range that is asked for: `Err` if it is outside; `None` if there is none, several, or no range of bytes.
fn range(text: &str, size: u64) -> Option<Result<ByteRange, ()>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX));
    let (start, end) = match (first, last) {
        ("", "") => return None,
        ("", suffix) => match number(suffix)? {
            0 => return Some(Err(())),
            length => (size.saturating_sub(length), size),
        },
        (start, "") => (number(start)?, size),
        (start, last) => {
            let (start, last) = (number(start)?, number(last)?);
            if last < start {
                return None;
            }
            (start, last.saturating_add(1).min(size))
        }
    };
    Some(if start < end { ByteRange::between(start, end).map_err(|_| ()) } else { Err(()) })
}

fn described(asked: &Asked, grant: &Grant, status: u16, range: Option<ByteRange>, modified: SystemTime) -> Reply {
    let mut head = begin(status, asked);
    let mut put = |name: &str, value: &str| put(&mut head, name, value);
    put("etag", &grant.etag);
    put("last-modified", &httpdate::fmt_http_date(modified));
    let served = matches!(status, 200 | 206);
    if served {
        put("accept-ranges", "bytes");
    }
    let whole = grant.whole_headers.iter().filter(|_| status == 200);
    for (name, value) in grant.headers.iter().chain(whole).filter(|_| served) {
        put(name, value);
    }
    let bytes = served.then(|| range.unwrap_or_else(|| ByteRange::new(0, grant.size_bytes).expect("from zero")));
    if let Some(range) = range {
        put("content-range", &format!("bytes {}-{}/{}", range.offset(), range.end() - 1, grant.size_bytes));
    }
    if status != 304 {
        put("content-length", &bytes.map_or(0, |bytes| bytes.length()).to_string());
    }
    head.push_str("\r\n");
    let bytes = bytes.filter(|bytes| !asked.head && !bytes.is_empty());
    Reply { status, head: head.into_bytes(), bytes, text: String::new() }
}

/// Adds a header. What a gateway says is no header's end, or it is left out.
fn put(head: &mut String, name: &str, value: &str) {
    if !value.bytes().chain(name.bytes()).any(|byte| byte.is_ascii_control()) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
}

fn written(status: u16, line: String, text: String, asked: &Asked) -> Reply {
    let mut head = begin(status, asked);
    if status == 503 {
        head.push_str("retry-after: 1\r\n");
    }
    let _ = write!(head, "{line}content-type: text/plain\r\ncontent-length: {}\r\n\r\n", text.len());
    Reply { status, head: head.into_bytes(), bytes: None, text: if asked.head { String::new() } else { text } }
}

fn begin(status: u16, asked: &Asked) -> String {
    let reason = match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        507 => "Insufficient Storage",
        // A reason says nothing that the status does not (RFC 9112 section 4).
        _ => "",
    };
    let date = httpdate::fmt_http_date(SystemTime::now());
    let mut head = format!("HTTP/1.1 {status} {reason}\r\ndate: {date}\r\nserver: penstock\r\n");
    if !asked.keep {
        head.push_str("connection: close\r\n");
    }
    head
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
