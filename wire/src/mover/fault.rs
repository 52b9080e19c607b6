//! Why something did not work, and what that means to whoever asked.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something did not work on a mover.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind of fault: what a caller decides by.
    pub kind: FaultKind,
    /// What happened, for a person: names the thing, and the next step where there is one.
    pub message: String,
}

impl Fault {
    /// A fault of this kind.
    pub fn new(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }
}

/// The kinds of fault. A kind exists because a gateway acts differently on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum FaultKind {
    /// The two sides speak different versions.
    Version,
    /// The request's epoch is older than one seen before: another gateway, or a later start of this one, has taken over.
    Stale,
    /// The request makes no sense to this mover: an unknown volume, drive or channel, or a contradiction.
    BadRequest,
    /// A limit of the mover is reached; try again later, or elsewhere.
    Busy,
    /// The mover is shutting down.
    ShuttingDown,
    /// Somebody asked for it to stop.
    Cancelled,
    /// The volume has no room; another may.
    NoSpace,
    /// The volume takes no writes; another may.
    ReadOnly,
    /// The file or extent is not there.
    NotFound,
    /// The medium or its device failed to read or write; another copy, drive or volume may work.
    Medium,
    /// The bytes are not what their sums say; another copy may be good.
    Corrupt,
    /// The peer could not be reached, or did not come.
    PeerUnreachable,
    /// The connection to the peer broke.
    PeerLost,
    /// The peer moved nothing for too long.
    PeerStalled,
    /// The peer broke the data channel's protocol.
    PeerProtocol,
    /// The peer is not who it must be.
    PeerUntrusted,
    /// The peer sent bytes that were there already.
    Overlap,
    /// The peer ended before all bytes had come.
    Incomplete,
    /// The peer sent more bytes than announced.
    TooLong,
    /// The drive failed, or its state is not known; it is down until somebody looks at it.
    Drive,
    /// The volume in the drive is not the expected one, or its content is not; nothing was written.
    WrongVolume,
    /// The volume must not be used any more; its data may still be read.
    VolumeSuspect,
    /// Another holder has reserved the drive: this side is fenced off.
    Fenced,
    /// The library could not move the cartridge.
    Library,
    /// The end of the tape was reached; nothing of this container is on it.
    EndOfMedium,
}

impl FaultKind {
    /// Whether the client's side is to blame: trying elsewhere would not help.
    #[must_use]
    pub const fn is_peers(self) -> bool {
        matches!(
            self,
            Self::PeerUnreachable
                | Self::PeerLost
                | Self::PeerStalled
                | Self::PeerProtocol
                | Self::PeerUntrusted
                | Self::Overlap
                | Self::Incomplete
                | Self::TooLong
        )
    }
}
