//! Bodies in all their codings, cut everywhere.

use proptest::prelude::*;

use super::*;

const TRAILER: &str = "x-amz-checksum-crc32";

/// Decodes what comes in these pieces: the bytes, and the trailer.
fn decoded<'a>(
    length: Length,
    coding: Coding,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, Option<String>, bool), Broken> {
    let (mut decoder, mut out) = (Decoder::new(length, coding), Vec::new());
    for piece in pieces {
        let mut memory = piece.to_vec();
        let count = decoder.decode(&mut memory)?;
        out.extend_from_slice(&memory[..count]);
    }
    let trailer = if decoder.is_over() { decoder.trailer(Some(TRAILER))? } else { return Err(Broken::Short) };
    Ok((out, trailer, decoder.has_surplus()))
}

/// Chunks as HTTP writes them.
fn chunked(data: &[u8], size: usize, extension: &str, trailers: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(size.max(1)) {
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("0{extension}\r\n{trailers}").as_bytes());
    out
}

fn whole(length: Length, coding: Coding, body: &[u8]) -> Result<(Vec<u8>, Option<String>, bool), Broken> {
    decoded(length, coding, std::iter::once(body))
}

#[test]
fn a_body_of_known_length_is_its_bytes() {
    assert_eq!(whole(Length::Known(3), Coding::Plain, b"abc"), Ok((b"abc".to_vec(), None, false)));
    assert_eq!(whole(Length::Known(3), Coding::Plain, b"abcGET"), Ok((b"abc".to_vec(), None, true)));
    assert_eq!(whole(Length::Known(4), Coding::Plain, b"abc"), Err(Broken::Short));
    assert!(Decoder::new(Length::Known(0), Coding::Plain).is_over());
}

#[test]
fn chunks_of_http_are_taken_off_whatever_their_extensions_and_trailers() {
    let body = chunked(b"hello world", 4, ";a=b", "Expires: never\r\n\r\n");
    assert_eq!(whole(Length::Chunked, Coding::Plain, &body), Ok((b"hello world".to_vec(), None, false)));
    let more = [&body[..], b"PUT /"].concat();
    assert_eq!(whole(Length::Chunked, Coding::Plain, &more), Ok((b"hello world".to_vec(), None, true)));
}

#[test]
fn a_trailer_of_s3_is_read_whatever_ends_its_line() {
    for end in ["\r\n\r\n", "\n\r\n\r\n", "\r\n", ""] {
        let inner = chunked(b"hello", 64, "", &format!("{TRAILER}:NhCmhg=={end}"));
        let known = Length::Known(inner.len() as u64);
        let found = Ok((b"hello".to_vec(), Some("NhCmhg==".to_owned()), false));
        assert_eq!(whole(known, Coding::AwsChunked, &inner), found, "{end:?}");
        let outer = chunked(&inner, 7, "", "\r\n");
        assert_eq!(whole(Length::Chunked, Coding::AwsChunked, &outer), found, "{end:?}");
    }
}

#[test]
fn s3s_chunks_without_their_last_are_not_whole() {
    let inner = chunked(b"hello", 64, "", "\r\n");
    for cut in 0..inner.len() {
        let known = Length::Known(cut as u64);
        let found = whole(known, Coding::AwsChunked, &inner[..cut]);
        // Behind the line of the last chunk nothing has to come.
        let last = inner.len() - 2;
        assert_eq!(found.is_ok(), cut >= last, "cut at {cut}: {found:?}");
    }
}

#[test]
fn what_is_no_chunk_is_refused() {
    let of = |body: &[u8]| whole(Length::Chunked, Coding::Plain, body);
    assert_eq!(of(b"x\r\n"), Err(Broken::Size));
    assert_eq!(of(b"-1\r\n"), Err(Broken::Size));
    assert_eq!(of(b"+1\r\na\r\n"), Err(Broken::Size));
    assert_eq!(of(b"\r\n"), Err(Broken::Size));
    assert_eq!(of(b"10000000000000000\r\n"), Err(Broken::Size));
    assert_eq!(of(b"1\na\r\n"), Err(Broken::Line));
    assert_eq!(of(b"1\r\nab\r\n"), Err(Broken::End));
    assert_eq!(of(&vec![b'0'; MAX_LINE_BYTES + 1]), Err(Broken::Line));
    let long = format!("0\r\n{}", "a: b\r\n".repeat(MAX_TRAILER_BYTES));
    assert_eq!(of(long.as_bytes()), Err(Broken::Trailers));
    let inner = format!("0\r\n{}", "a".repeat(MAX_TRAILER_BYTES + 1));
    assert_eq!(whole(Length::Known(inner.len() as u64), Coding::AwsChunked, inner.as_bytes()), Err(Broken::Trailers));
}

proptest! {
    #[test]
    fn a_body_comes_out_as_it_went_in_however_it_is_cut(
        data in prop::collection::vec(any::<u8>(), 0..2000),
        (inner_size, outer_size, cut) in (1..700_usize, 1..700_usize, 1..300_usize),
        (inner, outer) in (any::<bool>(), any::<bool>()),
    ) {
        let mut body = data.clone();
        if inner {
            body = chunked(&body, inner_size, ";chunk-signature=00", &format!("{TRAILER}: AAAA\r\n\r\n"));
        }
        let mut length = Length::Known(body.len() as u64);
        if outer {
            body = chunked(&body, outer_size, "", "\r\n");
            length = Length::Chunked;
        }
        let coding = if inner { Coding::AwsChunked } else { Coding::Plain };
        let (out, trailer, surplus) = decoded(length, coding, body.chunks(cut)).expect("a good body");
        prop_assert_eq!(out, data);
        prop_assert_eq!(trailer.is_some(), inner);
        prop_assert!(!surplus);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_grow(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cut in 1..50_usize,
        inner in any::<bool>(),
    ) {
        let coding = if inner { Coding::AwsChunked } else { Coding::Plain };
        let mut decoder = Decoder::new(Length::Chunked, coding);
        for piece in bytes.chunks(cut) {
            let mut memory = piece.to_vec();
            match decoder.decode(&mut memory) {
                Ok(count) => prop_assert!(count <= piece.len()),
                Err(_) => break,
            }
        }
        let _ = decoder.trailer(Some(TRAILER));
    }
}
