//! A request's head: what is asked, as far as it counts here. Pure.
//!
//! Parsed by `httparse`, as hyper does. GET and HEAD have no body, PUT has one whose end is known.

use wire::mover::http::GRANT_PARAMETER;

use crate::data::Length;

/// The longest head: a grant, and what clients add of their own.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;

/// The most header fields.
const MAX_FIELDS: usize = 64;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Asked {
    /// Only what is said of the file, not its bytes.
    pub(super) head: bool,
    /// Something is written: where its body ends.
    pub(super) body: Option<Length>,
    /// The client waits until it is told to send its body.
    pub(super) waits: bool,
    /// The ticket in the query.
    pub(super) grant: Option<String>,
    /// The client wants to ask again on this connection.
    pub(super) keep: bool,
    pub(super) range: Option<String>,
    pub(super) if_range: Option<String>,
    pub(super) if_match: Option<String>,
    pub(super) if_none_match: Option<String>,
    pub(super) if_modified_since: Option<String>,
    pub(super) if_unmodified_since: Option<String>,
}

/// Why a head is not answered as it wishes; the connection ends with the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// It is no HTTP.
    Malformed,
    /// It is too long.
    TooLong,
    /// A method that is not served here.
    Method,
    /// A body comes, and none is wanted.
    Body,
    /// Nothing says where the body ends.
    Length,
    /// Something is expected that is not known here.
    Expect,
}

/// Takes a head off the front of `input`: what it asks, and how many bytes it has. `None` while it is not there whole.
///
/// # Errors
///
/// [`Bad`] if it is refused.
///
/// # Source
///
/// RFC 9112 sections 2 to 4, 6 and 9.3; RFC 9110 section 10.1.1 (Expect).
pub(super) fn parse(input: &[u8]) -> Result<Option<(Asked, usize)>, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let end = match request.parse(input) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if input.len() >= MAX_HEAD_BYTES => return Err(Bad::TooLong),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Bad::TooLong),
        Err(_) => return Err(Bad::Malformed),
    };
    let mut asked = Asked { keep: request.version == Some(1), ..Asked::default() };
    let mut puts = false;
    match request.method {
        Some("GET") => {}
        Some("HEAD") => asked.head = true,
        Some("PUT") => puts = true,
        _ => return Err(Bad::Method),
    }
    let (mut length, mut chunked) = (None::<u64>, false);
    asked.grant = request.path.and_then(grant);
    for field in request.headers.iter() {
        let Ok(value) = std::str::from_utf8(field.value).map(str::trim) else { continue };
        let text = || Some(value.to_owned());
        match field.name.to_ascii_lowercase().as_str() {
            "connection" => {
                let says = |word: &str| value.split(',').any(|item| item.trim().eq_ignore_ascii_case(word));
                asked.keep = (asked.keep || says("keep-alive")) && !says("close");
            }
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let said = value.parse().ok().filter(|said| digits && length.is_none_or(|before| before == *said));
                length = Some(said.ok_or(Bad::Malformed)?);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") && !chunked => chunked = true,
            "transfer-encoding" => return Err(Bad::Malformed),
            "expect" if value.eq_ignore_ascii_case("100-continue") => asked.waits = true,
            "expect" => return Err(Bad::Expect),
            "range" => asked.range = text(),
            "if-range" => asked.if_range = text(),
            "if-match" => asked.if_match = text(),
            "if-none-match" => asked.if_none_match = text(),
            "if-modified-since" => asked.if_modified_since = text(),
            "if-unmodified-since" => asked.if_unmodified_since = text(),
            _ => {}
        }
    }
    asked.body = match (length, chunked) {
        // Whoever stands between could take it for another length.
        (Some(_), true) => return Err(Bad::Malformed),
        (None, true) if request.version != Some(1) => return Err(Bad::Malformed),
        (None, false) if puts => return Err(Bad::Length),
        (Some(length), false) if puts => Some(Length::Known(length)),
        (None, true) if puts => Some(Length::Chunked),
        (None | Some(0), false) => None,
        _ => return Err(Bad::Body),
    };
    Ok(Some((asked, end)))
}

/// The grant in a request's target. Its letters need no escape; a client that escapes them all the same has another text.
fn grant(target: &str) -> Option<String> {
    let (_, query) = target.split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    query.split('&').find_map(|pair| pair.strip_prefix(GRANT_PARAMETER)?.strip_prefix('=')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_is_taken_when_it_is_whole() {
        let text =
            b"GET /b/a%20key?x=1&penstock-grant=AbC-_9 HTTP/1.1\r\nHost: elsewhere\r\nRange: bytes=0-9\r\n\r\nGET";
        let whole = text.len() - 3;
        for cut in 0..whole {
            assert_eq!(parse(&text[..cut]), Ok(None), "cut at {cut}");
        }
        let (asked, length) = parse(text).expect("good").expect("whole");
        assert_eq!(
            (length, asked.grant.as_deref(), asked.range.as_deref()),
            (whole, Some("AbC-_9"), Some("bytes=0-9"))
        );
        assert!(asked.keep && !asked.head);
    }

    #[test]
    fn connections_end_when_the_client_says_so() {
        let keeps = |text: &str| parse(text.as_bytes()).expect("good").expect("whole").0.keep;
        assert!(!keeps("HEAD / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn a_body_ends_where_one_header_says() {
        let body = |more: &str| {
            let text = format!("PUT / HTTP/1.1\r\n{more}\r\n");
            parse(text.as_bytes()).map(|found| found.expect("whole").0.body)
        };
        assert_eq!(body("Content-Length: 12\r\n"), Ok(Some(Length::Known(12))));
        assert_eq!(body("Content-Length: 0\r\n"), Ok(Some(Length::Known(0))));
        assert_eq!(body("Content-Length: 12\r\nContent-Length: 12\r\n"), Ok(Some(Length::Known(12))));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Ok(Some(Length::Chunked)));
        assert_eq!(body(""), Err(Bad::Length));
        for wrong in [
            "Content-Length: 12\r\nContent-Length: 13\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(body(wrong), Err(Bad::Malformed), "{wrong}");
        }
        assert_eq!(parse(b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Bad::Malformed));
        assert_eq!(body("Content-Length: 1\r\nExpect: nothing\r\n"), Err(Bad::Expect));
        let (asked, _) =
            parse(b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\nx").unwrap().unwrap();
        assert!(asked.waits && asked.keep);
    }

    #[test]
    fn what_is_not_served_is_refused() {
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Err(Bad::Method));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n"), Err(Bad::Body));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Bad::Body));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Err(Bad::Malformed));
        let long = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'a'; MAX_HEAD_BYTES]].concat();
        assert_eq!(parse(&long), Err(Bad::TooLong));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"GET / HTTP/1.1\r\n", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
