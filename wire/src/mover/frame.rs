//! How requests and events are laid on the wire: a length and a body.
//!
//! `length` is an unsigned 32-bit number in network byte order, counting the body, which is the message in postcard's
//! format (<https://postcard.jamesmunns.com/wire-format>). Variants are numbered in the order in which they are
//! declared: the golden bytes in the tests below change when that order does, and [`super::PROTOCOL_VERSION`] with them.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// The longest body that is taken: a batch of some ten thousand pieces.
pub const MAX_FRAME_BYTES: usize = 16 << 20;

const LENGTH_BYTES: usize = 4;

/// Why a frame was refused. The stream cannot be resynchronised and is closed.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The body is longer than [`MAX_FRAME_BYTES`].
    #[error("a message of {length} bytes is longer than the {MAX_FRAME_BYTES} allowed")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// The body is not a message that this version knows.
    #[error("a message could not be read: the other side may be of another version")]
    Malformed(#[source] postcard::Error),
}

/// Appends `message` to `output` as one frame.
///
/// # Errors
///
/// [`FrameError::TooLong`] if it does not fit; `output` is as before then.
pub fn encode<T: Serialize>(message: &T, output: &mut BytesMut) -> Result<(), FrameError> {
    let start = output.len();
    output.put_u32(0);
    let written = postcard::to_extend(message, Tail(output)).map(|_| ());
    let length = output.len() - start - LENGTH_BYTES;
    let fits = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES);
    match (written, fits) {
        (Ok(()), Some(prefix)) => {
            output[start..start + LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes());
            Ok(())
        }
        (Err(source), _) => {
            output.truncate(start);
            Err(FrameError::Malformed(source))
        }
        (Ok(()), None) => {
            output.truncate(start);
            Err(FrameError::TooLong { length })
        }
    }
}

struct Tail<'a>(&'a mut BytesMut);

impl Extend<u8> for Tail<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

/// Takes the body of one frame off the front of `input`; `None`, and takes nothing, while it is not there whole.
///
/// # Errors
///
/// [`FrameError::TooLong`] as soon as the length is seen, before any of the body is waited for.
pub fn split(input: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    let Some(prefix) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(FrameError::TooLong { length });
    }
    if input.len() < LENGTH_BYTES + length {
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    Ok(Some(input.split_to(length).freeze()))
}

/// Reads a body.
///
/// # Errors
///
/// [`FrameError::Malformed`] if it is not exactly one message of this type.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(FrameError::Malformed(postcard::Error::DeserializeBadEncoding)),
        Err(source) => Err(FrameError::Malformed(source)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        checksum::{ExtraSums, Sums},
        extent::{ByteRange, Extent, Place},
        id::{BitfileId, ChannelId, Epoch, FileId, GatewayId, TransferId, VolumeLabel},
        mover::*,
    };

    fn volume() -> VolumeLabel {
        VolumeLabel::new("m1.d0").expect("a good label")
    }

    fn samples() -> Vec<Request> {
        vec![
            Request::Hello {
                version: PROTOCOL_VERSION,
                gateway: GatewayId::new("gw1").expect("a good name"),
                epoch: Epoch(3),
            },
            Request::OpenChannel {
                channel: ChannelId(5),
                spec: ChannelSpec {
                    open: Open::Listen { peer: Some([127, 0, 0, 1].into()), ipv6: false },
                    framing: Framing::ModeE,
                    streams: 4,
                    security: Security::Tls {
                        side: TlsSide::Server,
                        peer: PeerCheck::SubjectIfShown("/O=A/CN=B".to_owned()),
                    },
                    buffer_bytes: None,
                    open_limit_ms: 30_000,
                    stall_limit_ms: 300_000,
                },
            },
            Request::OpenChannel {
                channel: ChannelId(5),
                spec: ChannelSpec {
                    open: Open::Http {
                        body: BodySpec {
                            coding: Coding::AwsChunked,
                            sum: Some(BodySum::Crc64Nvme),
                            trailer: Some("x-a".to_owned()),
                        },
                    },
                    framing: Framing::Stream,
                    streams: 1,
                    security: Security::Clear,
                    buffer_bytes: None,
                    open_limit_ms: 1,
                    stall_limit_ms: 2,
                },
            },
            Request::Answer {
                channel: ChannelId(5),
                answer: HttpAnswer {
                    status: 200,
                    headers: vec![("etag".to_owned(), "\"a\"".to_owned())],
                    body: vec![1],
                },
            },
            Request::Start {
                transfer: TransferId(6),
                job: Box::new(Job {
                    source: Source::Extents(vec![Piece {
                        offset_bytes: 0,
                        extent: Extent {
                            volume: volume(),
                            place: Place::Tape { container: 1, block: 300, skip_bytes: 512 },
                            length_bytes: 1 << 40,
                        },
                        bitfile: BitfileId(9),
                        sums: Some(Sums::EMPTY),
                    }]),
                    sink: Sink::File(NewFile {
                        volume: volume(),
                        file: FileId(7),
                        base_bytes: 0,
                        reserve_bytes: 1,
                        have: vec![ByteRange::new(0, 4).expect("small")],
                    }),
                    extra_sums: ExtraSums { md5: true, sha256: false },
                    rate_limit: None,
                }),
            },
        ]
    }

    /// A change here is a change of the protocol: raise `PROTOCOL_VERSION` with it.
    #[test]
    fn the_bytes_on_the_wire_are_the_golden_ones() {
        let golden = [
            "00000007000303677731 03",
            "00000020 02 05 00 01 00 7f000001 00 01 04 01 00 02 092f4f3d412f434e3d42 00 b0ea01 e0a712",
            "00000011 02 05 02 01 01 02 01 03782d61 00 01 00 00 01 02",
            "00000010 08 05 c801 01 0465746167 03226122 01 01",
            "0000002d 04 06 00 01 00 056d312e6430 01 01 ac02 8004 808080808020 09 01 01 00 00 00 00 056d312e6430 07 00 01 01 0004 01 00 00",
        ];
        for (request, golden) in samples().iter().zip(golden) {
            let mut bytes = BytesMut::new();
            encode(request, &mut bytes).expect("it fits");
            assert_eq!(hex::encode(&bytes), golden.replace(' ', ""), "{request:?}");
        }
    }

    #[test]
    fn a_message_survives_the_wire_however_it_is_cut() {
        let mut bytes = BytesMut::new();
        for request in samples() {
            encode(&request, &mut bytes).expect("it fits");
        }
        let mut input = BytesMut::new();
        let mut seen = Vec::new();
        for byte in bytes {
            input.put_u8(byte);
            while let Some(body) = split(&mut input).expect("good frames") {
                seen.push(decode::<Request>(&body).expect("a good message"));
            }
        }
        assert_eq!(seen, samples());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_body_is_waited_for() {
        let mut input = BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..]);
        assert!(matches!(split(&mut input), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let mut bytes = BytesMut::new();
        encode(&samples()[0], &mut bytes).expect("it fits");
        bytes.put_u8(0);
        assert!(decode::<Request>(&bytes[LENGTH_BYTES..]).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode::<Request>(&body);
            let _ = decode::<Event>(&body);
        }
    }
}
