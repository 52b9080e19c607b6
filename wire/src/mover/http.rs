//! Where a mover serves HTTP clients, and what a client may have that a gateway sent there.
//!
//! A gateway answers a request with 307 and a [`Grant`] in the query of `Location`: everything the mover must know to
//! answer in its place, under a sum keyed with the [`GrantKey`] that the mover told its gateways. The mover keeps no list
//! of grants, so that one may be used again until it expires: for a seek, a retry, another range.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Piece;
use crate::id::MoverId;

/// The parameter of the query that carries a grant.
pub const GRANT_PARAMETER: &str = "penstock-grant";

/// The longest encoded grant. Twice as long in a URL at most, which every client and proxy takes.
pub const MAX_GRANT_BYTES: usize = 3 << 10;

/// The most pieces of one grant.
pub const MAX_GRANT_PIECES: usize = 64;

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
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", GrantKey([7; 32])), "[secret]");
    }
}
