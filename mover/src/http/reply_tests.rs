//! What is answered, case by case.

use wire::{
    extent::Extent,
    id::{BitfileId, FileId, MoverId, VolumeLabel},
    mover::Piece,
};

use super::*;

const TAG: &str = "\"0123\"";
/// 2001-09-09 01:46:40.
const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

fn grant() -> Grant {
    let piece = |offset_bytes, file, length_bytes| Piece {
        offset_bytes,
        extent: Extent {
            volume: VolumeLabel::new("d0").unwrap(),
            place: Place::Disk { file: FileId(file), offset_bytes: 100 },
            length_bytes,
        },
        bitfile: BitfileId(1),
        sums: Some(wire::checksum::Sums::EMPTY),
    };
    Grant {
        mover: MoverId::new("mover1").unwrap(),
        expires_us: 0,
        size_bytes: 10,
        pieces: vec![piece(0, 1, 4), piece(4, 2, 6)],
        etag: TAG.to_owned(),
        modified_s: 1_000_000_000,
        headers: vec![("content-type".to_owned(), "a/b".to_owned()), ("x-bad".to_owned(), "a\r\nb: c".to_owned())],
        whole_headers: vec![("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())],
    }
}

fn asked(field: &str, value: &str) -> Asked {
    let mut asked = Asked { keep: true, ..Asked::default() };
    add(&mut asked, field, value);
    asked
}

fn add(asked: &mut Asked, field: &str, value: &str) {
    let slot = match field {
        "range" => &mut asked.range,
        "if-range" => &mut asked.if_range,
        "if-match" => &mut asked.if_match,
        "if-none-match" => &mut asked.if_none_match,
        "if-modified-since" => &mut asked.if_modified_since,
        "if-unmodified-since" => &mut asked.if_unmodified_since,
        _ => return,
    };
    *slot = Some(value.to_owned());
}

fn text(reply: &Reply) -> String {
    String::from_utf8(reply.head.clone()).expect("text")
}

#[test]
fn the_whole_file_has_its_headers_and_its_sums() {
    let reply = reply(&asked("", ""), &grant());
    let head = text(&reply);
    assert_eq!((reply.status, reply.bytes), (200, Some(ByteRange::new(0, 10).unwrap())));
    for line in ["content-type: a/b", "content-length: 10", "etag: \"0123\"", "x-amz-checksum-crc32: AAAAAA=="] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    assert!(head.contains(&format!("last-modified: {MODIFIED}")) && head.ends_with("\r\n\r\n"), "{head}");
    assert!(!head.contains("b: c"), "a header that would end its line is left out");
}

#[test]
fn ranges_are_cut_as_rfc_9110_says() {
    let of = |text: &str| {
        let reply = reply(&asked("range", text), &grant());
        (reply.status, reply.bytes.map(|bytes| (bytes.offset(), bytes.end())))
    };
    assert_eq!(of("bytes=0-3"), (206, Some((0, 4))));
    assert_eq!(of("bytes=4-"), (206, Some((4, 10))));
    assert_eq!(of("bytes=-3"), (206, Some((7, 10))));
    assert_eq!(of("bytes=-99999999999999999999"), (206, Some((0, 10))));
    assert_eq!(of("bytes=9-99999999999999999999"), (206, Some((9, 10))));
    assert_eq!(of("bytes=10-"), (416, None));
    assert_eq!(of("bytes=-0"), (416, None));
    for whole in ["bytes=3-2", "bytes=0-1,3-4", "bytes=a-", "lines=1-2", "bytes=-", "bytes=+1-2"] {
        assert_eq!(of(whole), (200, Some((0, 10))), "{whole}");
    }
    let part = reply(&asked("range", "bytes=2-8"), &grant());
    assert!(text(&part).contains("content-range: bytes 2-8/10") && !text(&part).contains("checksum"), "{part:?}");
}

#[test]
fn conditions_hold_in_their_order() {
    let of = |pairs: &[(&str, &str)]| {
        let mut asked = Asked::default();
        pairs.iter().for_each(|(field, value)| add(&mut asked, field, value));
        reply(&asked, &grant()).status
    };
    assert_eq!(of(&[("if-match", TAG)]), 200);
    assert_eq!(of(&[("if-match", "\"x\", *")]), 200);
    assert_eq!(of(&[("if-match", "\"x\"")]), 412);
    assert_eq!(of(&[("if-none-match", &format!("\"x\", W/{TAG}"))]), 304);
    assert_eq!(of(&[("if-none-match", "\"x\""), ("if-modified-since", MODIFIED)]), 200);
    assert_eq!(of(&[("if-modified-since", MODIFIED)]), 304);
    assert_eq!(of(&[("if-unmodified-since", "Sat, 08 Sep 2001 01:46:40 GMT")]), 412);
    assert_eq!(of(&[("if-match", TAG), ("if-unmodified-since", "Sat, 08 Sep 2001 01:46:40 GMT")]), 200);
    assert_eq!(of(&[("range", "bytes=0-1"), ("if-range", TAG)]), 206);
    assert_eq!(of(&[("range", "bytes=0-1"), ("if-range", MODIFIED)]), 206);
    assert_eq!(of(&[("range", "bytes=0-1"), ("if-range", "\"x\"")]), 200);
}

#[test]
fn head_has_no_body() {
    let reply = reply(&Asked { head: true, ..Asked::default() }, &grant());
    assert!(reply.bytes.is_none() && text(&reply).contains("content-length: 10"), "{reply:?}");
    assert!(text(&reply).contains("connection: close"));
    assert!(refusal(403, "no", &Asked { head: true, ..Asked::default() }).text.is_empty());
}

#[test]
fn a_range_is_found_in_the_pieces() {
    let of = |start, end| {
        let found = pieces(&grant(), ByteRange::between(start, end).unwrap()).expect("on disk");
        let parts = found.iter().map(|piece| {
            (piece.file, piece.offset_bytes, piece.range.offset(), piece.range.length(), piece.sums.is_some())
        });
        parts.collect::<Vec<_>>()
    };
    assert_eq!(of(0, 10), [(FileId(1), 100, 0, 4, true), (FileId(2), 100, 4, 6, true)]);
    assert_eq!(of(3, 4), [(FileId(1), 103, 3, 1, false)]);
    assert_eq!(of(4, 10), [(FileId(2), 100, 4, 6, true)]);
    assert_eq!(of(2, 6), [(FileId(1), 102, 2, 2, false), (FileId(2), 100, 4, 2, false)]);
}

#[test]
fn a_gateways_answer_has_its_headers_and_the_connections_own() {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let answer = HttpAnswer {
        status: 200,
        headers: vec![
            field("ETag", "\"a\""),
            field("Content-Length", "99"),
            field("Connection", "close"),
            field("x-bad", "a\r\nb: c"),
        ],
        body: b"<Error/>".to_vec(),
    };
    let head = text(&given(answer.clone(), true));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("content-length: 8\r\n\r\n<Error/>"), "{head}");
    assert!(head.contains("ETag: \"a\"\r\n") && !head.contains("99") && !head.contains("b: c"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("connection"), "{head}");
    assert!(text(&given(answer.clone(), false)).contains("connection: close\r\n"));
    let none = text(&given(HttpAnswer { status: 204, ..answer.clone() }, true));
    assert!(none.ends_with("\r\n\r\n") && !none.contains("content-length"), "{none}");
    assert_eq!(given(HttpAnswer { status: 7, ..answer }, true).status, 500);
}
