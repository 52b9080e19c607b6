//! Identifiers: numbers handed out by the catalogue, and names given by people.
//!
//! Numbers are below 2^63, so that they fit a signed 64-bit column of either database. Names are short ASCII, so
//! that they are safe in a path, a label, a log line and a metric without quoting.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number as a database column holds it.
            ///
            /// Identifiers are handed out below 2^63; a larger one, made up by a peer, becomes `i64::MAX`, which no
            /// row has.
            #[must_use]
            pub fn column(self) -> i64 {
                i64::try_from(self.0).unwrap_or(i64::MAX)
            }

            /// The identifier of a database column; `None` if the column holds a negative number.
            #[must_use]
            pub fn from_column(value: i64) -> Option<Self> {
                u64::try_from(value).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )+};
}

numbers! {
    /// A file's bytes, apart from its names. A rewritten file is a new bitfile.
    BitfileId;
    /// One name in the tree: a directory or a file's name.
    EntryId;
    /// One file of a disk volume; several segments may lie in it.
    FileId;
    /// A data endpoint of a mover: a listening address or a set of connections to a peer.
    ChannelId;
    /// One movement of bytes from a source to a sink, on one mover.
    TransferId;
    /// One row of the durable work queue.
    WorkId;
    /// Somebody's wish to have a bitfile on disk; several may join in one [`WorkId`].
    RequestId;
}

/// How often something has been handed on: a holder with an older epoch is stale and is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text cannot be a name of this kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text:?} is not a {kind}: use 1 to {longest} of a-z, A-Z, 0-9, '.', '_' and '-', starting with a letter or digit"
)]
pub struct BadName {
    kind: &'static str,
    longest: usize,
    text: String,
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $longest:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and takes a name.
            ///
            /// # Errors
            ///
            /// [`BadName`] if it is empty, too long, or holds anything but ASCII letters, digits, `.`, `_`, `-`.
            pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
                let text = text.into();
                if is_name(&text, $longest) {
                    return Ok(Self(text));
                }
                let text = text.chars().take(80).collect();
                Err(BadName { kind: $kind, longest: $longest, text })
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;

            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )+};
}

fn is_name(text: &str, longest: usize) -> bool {
    text.len() <= longest
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

names! {
    /// An addressable medium: a disk volume (`mover1.disk0`) or a cartridge's label (`PEN001L8`).
    VolumeLabel, "volume label", 32;
    /// A mover process.
    MoverId, "mover name", 32;
    /// A tape drive.
    DriveId, "drive name", 32;
    /// A tape library: a robot with its slots and drives.
    LibraryId, "library name", 32;
    /// A gateway process.
    GatewayId, "gateway name", 32;
    /// An account: who owns files and asks for them.
    AccountName, "account name", 64;
    /// A group of accounts.
    GroupName, "group name", 64;
    /// A class of service.
    CosName, "class of service name", 32;
    /// A storage class.
    StorageClassName, "storage class name", 32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_plain_ascii() {
        for good in ["a", "PEN001L8", "mover1.disk0", "x_y-z"] {
            assert_eq!(VolumeLabel::new(good).expect("a good name").as_str(), good);
        }
        let long = "x".repeat(33);
        for bad in ["", ".hidden", "-w", "a/b", "a b", "é", "a\n", long.as_str()] {
            assert!(VolumeLabel::new(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_name_from_a_peer_is_checked_while_decoding() {
        assert!(serde_json::from_str::<MoverId>("\"../etc\"").is_err());
        assert!(serde_json::from_str::<MoverId>("\"mover1\"").is_ok());
    }

    #[test]
    fn an_identifier_no_column_can_hold_names_no_row() {
        assert_eq!(BitfileId(u64::MAX).column(), i64::MAX);
        assert_eq!(BitfileId::from_column(-1), None);
        assert_eq!(BitfileId::from_column(7), Some(BitfileId(7)));
    }
}
