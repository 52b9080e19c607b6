//! Sends an HTTP client to the mover that has what it asks for, or that takes its body: 307, with a ticket in the query of
//! `Location`.
//!
//! - [`clients`]: which clients follow (pure, data).
//! - [`Route`]: the mover that has all of a file, and what it must know.
//! - [`away`]: a client that leaves with its body, and the answer that follows it.
//!
//! Owns nothing. Talks to [`crate::transfer`] for where bytes are. What was checked of the request (signature, permission,
//! version, conditions, state on tape) was checked before; the mover checks nothing but the ticket.
//!
//! Invariant: a client that came over TLS is not sent to a door without.

mod away;
mod clients;
#[cfg(test)]
mod tests;

use std::time::Duration;

use catalog::{Segment, Timestamp};
use hyper::{
    HeaderMap,
    header::{
        ACCEPT_RANGES, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderName, LAST_MODIFIED,
        TRANSFER_ENCODING,
    },
};
use wire::{
    checksum::Sums,
    id::{BitfileId, MoverId},
    mover::{Grant, GrantKey, HttpDoor, Piece, Ticket, http::GRANT_PARAMETER},
};

pub(crate) use self::{
    away::{Departure, Exit, attend, exit},
    clients::{put_wish, waits, wish},
};

/// How long a grant lets a client begin to read: long enough for retries and for seeks in a player or an analysis.
const GRANT_LIFETIME: Duration = Duration::from_secs(900);

/// The most pieces that a client is sent away with; with those of larger files its URL would grow too long.
const MAX_PIECES: usize = 8;

/// Why a client's bytes pass through the gateway, as `penstock_relayed_bytes_total` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// It is not known to follow.
    Client,
    /// It asked to be served here.
    Asked,
    /// It signs with a key whose clients are served here.
    Key,
    /// Its mover serves no HTTP, or not with the security that the client has here.
    NoDoor,
    /// Several movers have parts of it.
    Striped,
    /// It is not on disk.
    Tape,
    /// What must be said of it does not fit a URL.
    Long,
    /// It is a part of an upload, asked for by its number.
    Part,
    /// The gateway copies it.
    Copy,
    /// A body that comes without waiting to be asked for: it would be lost on the way.
    Hasty,
    /// A body whose chunks are signed by a secret that a mover does not know.
    Signed,
}

impl Reason {
    /// The word in the metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Asked => "asked",
            Self::Key => "key",
            Self::NoDoor => "no_door",
            Self::Striped => "striped",
            Self::Tape => "tape",
            Self::Long => "long",
            Self::Part => "part",
            Self::Copy => "copy",
            Self::Hasty => "hasty",
            Self::Signed => "signed",
        }
    }

    /// The word for an upload.
    pub(crate) const fn put_label(self) -> &'static str {
        match self {
            Self::Asked => "put_asked",
            Self::Key => "put_key",
            Self::NoDoor => "put_no_door",
            Self::Hasty => "put_hasty",
            Self::Signed => "put_signed",
            Self::Client | Self::Striped | Self::Tape | Self::Long | Self::Part | Self::Copy => "put",
        }
    }
}

/// What URLs begin with that lead to a mover's door, for a client that came over TLS, or not.
pub(crate) fn base(door: &HttpDoor, secure: bool) -> Option<&String> {
    if secure { door.tls.as_ref() } else { door.clear.as_ref().or(door.tls.as_ref()) }
}

/// The value of `Location`: a request's own path on a mover, and a ticket.
fn location(base: &str, path: &str, key: &GrantKey, ticket: &[u8]) -> String {
    let sealed = daemon::grant::seal(&key.0, ticket);
    let path = if path.starts_with('/') { path } else { "/" };
    format!("{base}{path}?{GRANT_PARAMETER}={sealed}")
}

/// The mover that has all of a file.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// What the URL begins with.
    base: String,
    mover: MoverId,
    key: GrantKey,
    size_bytes: u64,
    pieces: Vec<Piece>,
    expires: Timestamp,
}

/// Where a file on disk is, as a transfer would find it.
pub(crate) struct Place {
    pub(crate) bitfile: BitfileId,
    pub(crate) size_bytes: u64,
    /// The segments of the disk copy in the order of their bytes, the mover of each, and its door.
    pub(crate) segments: Vec<(Segment, MoverId, Option<HttpDoor>)>,
}

impl Route {
    /// The way to a file's bytes for a client that came over TLS, or not.
    ///
    /// # Errors
    ///
    /// Why they must pass through the gateway.
    pub(crate) fn to(place: Place, secure: bool, now: Timestamp) -> Result<Self, Reason> {
        let (_, mover, door) = place.segments.first().ok_or(Reason::Tape)?;
        if place.segments.iter().any(|(_, other, _)| other != mover) {
            return Err(Reason::Striped);
        }
        if place.segments.len() > MAX_PIECES {
            return Err(Reason::Long);
        }
        let door = door.as_ref().ok_or(Reason::NoDoor)?;
        let lifetime = i64::try_from(GRANT_LIFETIME.as_micros()).unwrap_or(i64::MAX);
        Ok(Self {
            base: base(door, secure).ok_or(Reason::NoDoor)?.clone(),
            mover: mover.clone(),
            key: door.key.clone(),
            size_bytes: place.size_bytes,
            expires: Timestamp(now.0.saturating_add(lifetime)),
            pieces: place.segments.into_iter().map(|(segment, _, _)| piece(place.bitfile, segment)).collect(),
        })
    }

    /// The value of `Location`: the request's own path on the mover, and a grant that says what the door would have
    /// answered with these headers. `None` if that is too long for a URL.
    pub(crate) fn location(&self, path: &str, answer: &HeaderMap) -> Option<String> {
        let text = |name: HeaderName| answer.get(name).and_then(|value| value.to_str().ok());
        let modified = text(LAST_MODIFIED).and_then(|text| httpdate::parse_http_date(text).ok());
        let modified = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        // What the mover says itself, or the client's connection here.
        let own =
            [ETAG, LAST_MODIFIED, CONTENT_LENGTH, CONTENT_RANGE, ACCEPT_RANGES, DATE, CONNECTION, TRANSFER_ENCODING];
        let mut grant = Grant {
            mover: self.mover.clone(),
            expires_us: self.expires.0,
            size_bytes: self.size_bytes,
            pieces: self.pieces.clone(),
            etag: text(ETAG)?.to_owned(),
            modified_s: modified?.as_secs(),
            headers: Vec::new(),
            whole_headers: Vec::new(),
        };
        for (name, value) in answer.iter().filter(|(name, _)| !own.contains(name)) {
            // What is no text cannot be carried; it is not left out, since the client would miss it.
            let field = (name.as_str().to_owned(), value.to_str().ok()?.to_owned());
            let whole = name.as_str().starts_with("x-amz-checksum-");
            if whole { &mut grant.whole_headers } else { &mut grant.headers }.push(field);
        }
        let ticket = Ticket::Read(Box::new(grant)).encode()?;
        Some(location(&self.base, path, &self.key, &ticket))
    }
}

fn piece(bitfile: BitfileId, segment: Segment) -> Piece {
    let sums = Sums { md5: None, sha256: None, ..Sums::EMPTY };
    let sums = Sums { adler32: segment.adler32, crc32c: segment.crc32c, ..sums };
    Piece { offset_bytes: segment.range.offset(), extent: segment.extent, bitfile, sums: Some(sums) }
}
