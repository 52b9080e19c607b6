//! How a body goes straight to a mover: whether it can, and what is compared when it has come.
//!
//! Pure but for the question whether a mover takes it.
//!
//! # Source
//!
//! Amazon S3 API Reference, "Authenticating requests (AWS Signature Version 4)": `x-amz-content-sha256`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode, S3Result};
use wire::{
    checksum::Sums,
    id::CosName,
    mover::{BodyReport, BodySpec, BodySum, Coding},
};

use super::{
    Door,
    access::Call,
    checksum::{Algorithm, Kept},
    data::{Becomes, Verdict, compared},
    error::coded,
};
use crate::{
    redirect::{self, Exit, Reason},
    relay,
};

/// A body that its client can bring to a mover.
pub(super) struct Bypass {
    exit: Exit,
    secure: bool,
    path: String,
    coding: Coding,
    sha256: Option<[u8; 32]>,
}

/// What must be true of a body that a mover takes.
pub(super) struct Wanted {
    pub(super) becomes: Becomes,
    /// The sum that is made and kept, and what it must be.
    pub(super) sum: Algorithm,
    pub(super) announced: Option<String>,
    /// A trailer says what it must be.
    pub(super) trailer: bool,
    pub(super) md5: Option<[u8; 16]>,
    /// The signed hash of the payload.
    pub(super) sha256: Option<[u8; 32]>,
}

impl Bypass {
    /// The way for a request's body.
    ///
    /// # Errors
    ///
    /// Why it comes through the door.
    pub(super) fn of(call: &Call) -> Result<Self, Reason> {
        redirect::put_wish(&call.headers, call.caller.direct)?;
        let exit = call.exit.clone().ok_or(Reason::Client)?;
        let (coding, sha256) = payload(call.header("x-amz-content-sha256"))?;
        Ok(Self { exit, secure: call.caller.is_secure(), path: call.path.clone(), coding, sha256 })
    }

    /// What the payload's hash must be, if the client signed one.
    pub(super) const fn sha256(&self) -> Option<[u8; 32]> {
        self.sha256
    }

    /// What the mover is told.
    pub(super) fn go(self, sum: Algorithm, trailer: bool) -> relay::Away {
        let trailer = trailer.then(|| sum.header().to_owned());
        let body = BodySpec { coding: self.coding, sum: Some(body_sum(sum)), trailer };
        relay::Away { exit: self.exit, secure: self.secure, path: self.path, body }
    }
}

impl Door {
    /// The way, if a mover takes new objects of this class from such a client.
    pub(super) async fn open_way(&self, way: Result<Bypass, Reason>, cos: &CosName) -> Result<Bypass, Reason> {
        let way = way?;
        if self.relay.has_door(Some(cos), way.secure).await { Ok(way) } else { Err(Reason::NoDoor) }
    }
}

/// What a payload is, and what its hash must be.
fn payload(said: Option<&str>) -> Result<(Coding, Option<[u8; 32]>), Reason> {
    match said {
        None | Some("UNSIGNED-PAYLOAD") => Ok((Coding::Plain, None)),
        Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Ok((Coding::AwsChunked, None)),
        // Signatures of chunks are checked by the secret, which no mover has.
        Some(text) => {
            let hash = hex::decode(text).ok().and_then(|hash| hash.try_into().ok()).ok_or(Reason::Signed)?;
            Ok((Coding::Plain, Some(hash)))
        }
    }
}

const fn body_sum(sum: Algorithm) -> BodySum {
    match sum {
        Algorithm::Crc32 => BodySum::Crc32,
        Algorithm::Crc32c => BodySum::Crc32c,
        Algorithm::Crc64Nvme => BodySum::Crc64Nvme,
        Algorithm::Sha1 => BodySum::Sha1,
        Algorithm::Sha256 => BodySum::Sha256,
    }
}

impl Wanted {
    /// Compares what came with what was to come.
    pub(super) fn judge(self, report: &BodyReport, sums: &Sums) -> S3Result<Verdict> {
        if self.sha256.is_some() && self.sha256 != sums.sha256 {
            let text = "the SHA-256 of the body is not x-amz-content-sha256";
            return Err(coded("XAmzContentSHA256Mismatch", StatusCode::BAD_REQUEST, text));
        }
        let none = || S3Error::with_message(S3ErrorCode::InternalError, "the mover made no sum of the body");
        let value = STANDARD.encode(report.sum.as_ref().ok_or_else(none)?);
        let kept = Kept { algorithm: self.sum, value, composite: false };
        let trailer = self.trailer.then_some(report.trailer.as_deref());
        compared(&kept, self.announced.as_deref(), trailer)?;
        Ok((self.becomes, kept, self.md5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_plain_or_in_chunks_and_signed_chunks_come_through_the_door() {
        assert_eq!(payload(None), Ok((Coding::Plain, None)));
        assert_eq!(payload(Some("UNSIGNED-PAYLOAD")), Ok((Coding::Plain, None)));
        assert_eq!(payload(Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER")), Ok((Coding::AwsChunked, None)));
        let hash = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225";
        let (coding, found) = payload(Some(hash)).expect("a hash");
        assert_eq!((coding, hex::encode(found.expect("a hash"))), (Coding::Plain, hash.to_owned()));
        for signed in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "abc"] {
            assert_eq!(payload(Some(signed)), Err(Reason::Signed), "{signed}");
        }
    }
}
