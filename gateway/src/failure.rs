//! The one way in which anything a client asks for can fail.
//!
//! Every door turns a [`Failure`] into its own protocol's code ([`Failure::ftp_code`]); the sentence is the same
//! everywhere and names the thing and the next step. Layers below have errors of their own, which become failures here
//! and nowhere else, so that what a client is told of the catalogue's or a mover's trouble is decided in one place.
//!
//! Never tells a client more than it may know: whoever looks for a name without the right to look gets
//! [`FailureKind::NotFound`] or [`FailureKind::PermissionDenied`] from [`crate::files`], which knows the rights.

use std::{fmt, time::Duration};

use catalog::CatalogError;
use wire::mover::{Fault, FaultKind};

/// Why something a client asked for was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: FailureKind,
    message: String,
    retry_after: Option<Duration>,
}

/// The kinds of failure. A kind exists because some door answers it with a code of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// There is no such thing, or the client may not know whether there is.
    NotFound,
    /// The client may see it and may not do this to it.
    PermissionDenied,
    /// Nobody has logged in, or not as anybody we know.
    NotLoggedIn,
    /// The name is taken.
    Exists,
    /// A file stands where a directory is needed.
    NotADirectory,
    /// A directory stands where a file is needed.
    IsADirectory,
    /// The directory holds names still.
    NotEmpty,
    /// The text cannot be a name or a path.
    BadName,
    /// A parameter makes no sense.
    BadArgument,
    /// It makes sense and is not offered here.
    Unsupported,
    /// The account's or the group's limit would be passed.
    QuotaExceeded,
    /// No volume has room.
    NoSpace,
    /// The bytes are on tape only, and the class of service does not wait for it.
    NotStaged,
    /// A limit is reached; later it will work.
    Busy,
    /// A part of the site is away; later it will work.
    Unavailable,
    /// The gateway is going down.
    ShuttingDown,
    /// Somebody else was faster.
    Changed,
    /// The client, or an operator, asked for it to stop.
    Cancelled,
    /// The data connection could not be made.
    NoDataConnection,
    /// The data connection broke, stalled or broke its protocol's rules while data moved.
    DataConnectionLost,
    /// The bytes that came are not the bytes that were announced, by size or by sum.
    Mismatch,
    /// The stored bytes are damaged, and no good copy is left.
    Damaged,
    /// A fault of the program or its set-up.
    Internal,
}

impl Failure {
    /// A failure of this kind. `message` names the thing and the next step.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), retry_after: None }
    }

    /// The same failure, with a time after which trying again is sensible.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What happened, for the client: names the thing and the next step.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// After how long the client may try again, where that is known.
    #[must_use]
    pub const fn retry_hint(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same request may work later without anybody changing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::NoSpace
                | FailureKind::Busy
                | FailureKind::Unavailable
                | FailureKind::ShuttingDown
                | FailureKind::Changed
                | FailureKind::Cancelled
                | FailureKind::NoDataConnection
                | FailureKind::DataConnectionLost
                | FailureKind::Mismatch
        )
    }

    /// The reply code of the FTP door.
    ///
    /// # Source
    ///
    /// RFC 959 section 4.2.2: 4yz is worth trying again, 5yz is not. 450 is "file unavailable (busy)", which a file on
    /// tape is.
    #[must_use]
    pub const fn ftp_code(&self) -> u16 {
        match self.kind {
            FailureKind::ShuttingDown => 421,
            FailureKind::NoDataConnection => 425,
            FailureKind::DataConnectionLost | FailureKind::Cancelled => 426,
            FailureKind::NotStaged | FailureKind::Busy => 450,
            FailureKind::Unavailable | FailureKind::Changed | FailureKind::Mismatch | FailureKind::Internal => 451,
            FailureKind::NoSpace => 452,
            FailureKind::BadArgument => 501,
            FailureKind::Unsupported => 504,
            FailureKind::NotLoggedIn => 530,
            FailureKind::NotFound
            | FailureKind::PermissionDenied
            | FailureKind::NotADirectory
            | FailureKind::IsADirectory
            | FailureKind::NotEmpty
            | FailureKind::Damaged => 550,
            FailureKind::QuotaExceeded => 552,
            FailureKind::Exists | FailureKind::BadName => 553,
        }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let kind = match &error {
            CatalogError::NotFound { .. } => FailureKind::NotFound,
            CatalogError::NotADirectory { .. } => FailureKind::NotADirectory,
            CatalogError::IsADirectory { .. } => FailureKind::IsADirectory,
            CatalogError::Exists { .. } => FailureKind::Exists,
            CatalogError::NotEmpty { .. } => FailureKind::NotEmpty,
            CatalogError::NameTooLong { .. } | CatalogError::InvalidName { .. } => FailureKind::BadName,
            CatalogError::IntoItself { .. } => FailureKind::BadArgument,
            CatalogError::QuotaExceeded { .. } => FailureKind::QuotaExceeded,
            CatalogError::Changed { .. } | CatalogError::Stale { .. } => FailureKind::Changed,
            CatalogError::InUse { .. } => FailureKind::Busy,
            CatalogError::Locked { .. } => FailureKind::PermissionDenied,
            CatalogError::Unavailable { source } => {
                tracing::warn!(error = %source, "catalogue away");
                return Self::new(
                    FailureKind::Unavailable,
                    "the catalogue is not available at the moment; nothing was changed that you were told of: try again",
                )
                .retry_after(Duration::from_secs(5));
            }
            _ => {
                tracing::error!(%error, "catalogue inconsistent");
                return Self::new(
                    FailureKind::Internal,
                    "the catalogue contradicts itself; the gateway's log says how: tell the operator",
                );
            }
        };
        let advice = match kind {
            FailureKind::QuotaExceeded => ": delete files, or ask the operator for more",
            FailureKind::NotEmpty => ": remove what is in it first",
            FailureKind::Changed => ": look again and repeat",
            _ => "",
        };
        Self::new(kind, format_args!("{error}{advice}"))
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::new(kind_of(fault.kind), fault.message)
    }
}

const fn kind_of(fault: FaultKind) -> FailureKind {
    match fault {
        FaultKind::Busy => FailureKind::Busy,
        FaultKind::ShuttingDown | FaultKind::Stale | FaultKind::Version | FaultKind::Fenced => FailureKind::Unavailable,
        FaultKind::Cancelled => FailureKind::Cancelled,
        FaultKind::NoSpace | FaultKind::ReadOnly | FaultKind::EndOfMedium => FailureKind::NoSpace,
        FaultKind::NotFound | FaultKind::Corrupt => FailureKind::Damaged,
        FaultKind::Medium
        | FaultKind::Drive
        | FaultKind::WrongVolume
        | FaultKind::VolumeSuspect
        | FaultKind::Library => FailureKind::Unavailable,
        FaultKind::PeerUnreachable | FaultKind::PeerUntrusted => FailureKind::NoDataConnection,
        FaultKind::PeerLost
        | FaultKind::PeerStalled
        | FaultKind::PeerProtocol
        | FaultKind::Overlap
        | FaultKind::Incomplete => FailureKind::DataConnectionLost,
        FaultKind::TooLong => FailureKind::Mismatch,
        FaultKind::BadRequest => FailureKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_work_later_has_a_4yz_code_and_what_cannot_has_5yz() {
        for kind in [FailureKind::Busy, FailureKind::Unavailable, FailureKind::NoSpace, FailureKind::DataConnectionLost]
        {
            let failure = Failure::new(kind, "x");
            assert!(failure.is_retryable() && failure.ftp_code() / 100 == 4, "{kind:?}");
        }
        for kind in [FailureKind::NotFound, FailureKind::PermissionDenied, FailureKind::QuotaExceeded] {
            let failure = Failure::new(kind, "x");
            assert!(!failure.is_retryable() && failure.ftp_code() / 100 == 5, "{kind:?}");
        }
    }

    #[test]
    fn a_peers_fault_never_looks_like_ours() {
        let fault = Fault::new(FaultKind::PeerStalled, "192.0.2.1 moved nothing for 300 s");
        assert_eq!(Failure::from(fault).ftp_code(), 426);
    }
}
