//! Where a mover serves HTTP clients, and what a client may read or write that a gateway sent there.
//!
//! A gateway answers a request with 307 and a [`Ticket`] in the query of `Location`, under a sum keyed with the [`GrantKey`]
//! that the mover told its gateways.
//!
//! - To read, a [`Grant`]: everything the mover must know to answer in the gateway's place. The mover keeps no list of
//!   grants, so that one may be used again until it expires: for a seek, a retry, another range.
//! - To write, an [`Admission`] to a data endpoint that the gateway has opened for this one body; it is used once.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Piece;
use crate::id::{ChannelId, MoverId};

/// The parameter of the query that carries a ticket.
pub const GRANT_PARAMETER: &str = "penstock-grant";

/// The longest encoded grant. Twice as long in a URL at most, which every client and proxy takes.
pub const MAX_GRANT_BYTES: usize = 3 << 10;

/// The most pieces of one grant.
pub const MAX_GRANT_PIECES: usize = 64;

/// The longest body of an answer that a mover gives for a gateway.
pub const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Begins a ticket to read.
const READ: u8 = 0;
/// Begins a ticket to write.
const WRITE: u8 = 1;

/// A mover's HTTP door.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HttpDoor {
    /// What URLs begin with that lead there in clear: `http://host:port`.
    pub clear: Option<String>,
    /// The same over TLS.
    pub tls: Option<String>,
    /// What grants are sealed with.
    pub key: GrantKey,
}

/// What grants of one mover are sealed with: made when it starts, told to gateways over mutual TLS, shown to nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantKey(pub [u8; 32]);

impl fmt::Debug for GrantKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("[secret]")
    }
}

/// What a client may read of a mover by GET and HEAD, and what is said of it.
///
/// A bitfile is written once, so what a gateway says of one holds until the grant expires. Not bound to a host name:
/// clients that follow a redirect may keep the one that they asked first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Who may serve it.
    pub mover: MoverId,
    /// Until when a request may begin, microseconds since the epoch.
    pub expires_us: i64,
    /// The file's size.
    pub size_bytes: u64,
    /// Where its bytes are: pieces on disk that lie one behind the other from 0 to `size_bytes`.
    pub pieces: Vec<Piece>,
    /// Its entity tag, with quotes.
    pub etag: String,
    /// When it was last modified, seconds since the epoch.
    pub modified_s: u64,
    /// Headers of every answer.
    pub headers: Vec<(String, String)>,
    /// Headers of an answer that has the whole file: its sums.
    pub whole_headers: Vec<(String, String)>,
}

impl Grant {
    /// The grant's bytes, which are sealed.
    ///
    /// `None` if it is longer than [`MAX_GRANT_BYTES`] or has more than [`MAX_GRANT_PIECES`]: the client cannot be sent
    /// away with it.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_stdvec(self).ok()?;
        (bytes.len() <= MAX_GRANT_BYTES && self.pieces.len() <= MAX_GRANT_PIECES).then_some(bytes)
    }

    /// Reads a grant whose seal was good. `None` if it is none, or its pieces are not the whole file.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_GRANT_BYTES {
            return None;
        }
        let (grant, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let mut end = Some(0u64);
        for piece in &grant.pieces {
            let follows = end == Some(piece.offset_bytes);
            end = end.filter(|_| follows).and_then(|end| end.checked_add(piece.extent.length_bytes));
        }
        (rest.is_empty() && grant.pieces.len() <= MAX_GRANT_PIECES && end == Some(grant.size_bytes)).then_some(grant)
    }
}

/// What a client may do that shows it.
#[derive(Clone, PartialEq, Debug)]
pub enum Ticket {
    /// GET and HEAD of a file.
    Read(Box<Grant>),
    /// One PUT.
    Write(Admission),
}

impl Ticket {
    /// The ticket's bytes, which are sealed; `None` as [`Grant::encode`] says.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (kind, body) = match self {
            Self::Read(grant) => (READ, grant.encode()?),
            Self::Write(admission) => (WRITE, postcard::to_stdvec(admission).ok()?),
        };
        Some([&[kind], &body[..]].concat())
    }

    /// Reads a ticket whose seal was good. `None` if it is none, or not whole.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        match *kind {
            READ => Grant::decode(body).map(|grant| Self::Read(Box::new(grant))),
            WRITE => {
                let (admission, rest) = postcard::take_from_bytes(body).ok()?;
                rest.is_empty().then_some(Self::Write(admission))
            }
            _ => None,
        }
    }
}

/// Lets one body in, by PUT.
///
/// What may be written, how long it is and what becomes of it belongs to the endpoint and to the transfer that reads it;
/// the path of the request says nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Admission {
    /// Who may take it.
    pub mover: MoverId,
    /// Until when the request may begin, microseconds since the epoch.
    pub expires_us: i64,
    /// The endpoint that waits for it.
    pub channel: ChannelId,
}

/// How an HTTP body comes, below the transfer coding of HTTP itself, and what is wanted of it besides its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BodySpec {
    /// What the payload is.
    pub coding: Coding,
    /// A sum to make of the bytes.
    pub sum: Option<BodySum>,
    /// The trailer to report, in lower case.
    pub trailer: Option<String>,
}

/// What the payload of a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Coding {
    /// The bytes.
    #[default]
    Plain,
    /// Chunks of S3's `aws-chunked` whose signatures, if there are any, are not checked.
    ///
    /// # Source
    ///
    /// Amazon S3 API Reference, "Signature calculations: transferring payload in multiple chunks".
    AwsChunked,
}

/// A sum of a body that S3 knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BodySum {
    /// CRC-32 (ISO 3309).
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// What a body said of itself when its last byte had come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BodyReport {
    /// The sum that was wanted, most significant byte first.
    pub sum: Option<Vec<u8>>,
    /// The value of the trailer that was wanted, if it came.
    pub trailer: Option<String>,
}

/// What a mover answers a client for a gateway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Headers, but for those that belong to the connection, which the mover makes itself.
    pub headers: Vec<(String, String)>,
    /// At most [`MAX_ANSWER_BYTES`].
    pub body: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        extent::{Extent, Place},
        id::{BitfileId, FileId, VolumeLabel},
    };

    fn grant(lengths: &[u64]) -> Grant {
        let mut offset_bytes = 0;
        let pieces = lengths.iter().map(|&length_bytes| {
            let place = Place::Disk { file: FileId(7), offset_bytes: 0 };
            let extent = Extent { volume: VolumeLabel::new("d0").unwrap(), place, length_bytes };
            offset_bytes += length_bytes;
            Piece { offset_bytes: offset_bytes - length_bytes, extent, bitfile: BitfileId(1), sums: None }
        });
        Grant {
            pieces: pieces.collect(),
            mover: MoverId::new("mover1").unwrap(),
            expires_us: 1,
            size_bytes: lengths.iter().sum(),
            etag: "\"tag\"".to_owned(),
            modified_s: 2,
            headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
            whole_headers: Vec::new(),
        }
    }

    #[test]
    fn a_grant_comes_back_as_it_was_and_a_cut_one_not_at_all() {
        let grant = grant(&[3, 5]);
        let bytes = grant.encode().expect("short");
        assert_eq!(Grant::decode(&bytes), Some(grant));
        for cut in 0..bytes.len() {
            assert_eq!(Grant::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Grant::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn a_grant_whose_pieces_are_not_the_whole_file_is_none() {
        let mut hole = grant(&[3, 5]);
        hole.pieces[1].offset_bytes = 4;
        assert_eq!(Grant::decode(&hole.encode().expect("short")), None);
        let mut short = grant(&[3, 5]);
        short.size_bytes = 9;
        assert_eq!(Grant::decode(&short.encode().expect("short")), None);
    }

    #[test]
    fn what_does_not_fit_a_url_is_not_encoded() {
        let mut long = grant(&[1]);
        long.headers.push(("x-amz-meta-story".to_owned(), "a".repeat(MAX_GRANT_BYTES)));
        assert_eq!(long.encode(), None);
        assert_eq!(grant(&[1; MAX_GRANT_PIECES + 1]).encode(), None);
    }

    #[test]
    fn a_ticket_to_read_is_none_to_write_and_a_cut_one_is_none_at_all() {
        let mover = MoverId::new("mover1").unwrap();
        let tickets = [
            Ticket::Read(Box::new(grant(&[3]))),
            Ticket::Write(Admission { mover, expires_us: 7, channel: ChannelId(1 << 40) }),
        ];
        for ticket in tickets {
            let bytes = ticket.encode().expect("short");
            for cut in 0..bytes.len() {
                assert_eq!(Ticket::decode(&bytes[..cut]), None, "cut at {cut}");
            }
            let other = [&[bytes[0] ^ 1], &bytes[1..]].concat();
            assert_eq!(Ticket::decode(&other), None, "the other kind");
            assert_eq!(Ticket::decode(&bytes), Some(ticket));
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", GrantKey([7; 32])), "[secret]");
    }
}
