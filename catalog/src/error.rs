//! Why the catalogue could not do what it was asked: one variant for each thing a caller does differently.

use std::sync::Arc;

use wire::id::BadName;

/// What a catalogue call comes to.
pub type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// Why the catalogue could not do what it was asked.
///
/// Nothing has changed when a call returns one of these, with one exception: after
/// [`CatalogError::Unavailable`] of a writing call the outcome is unknown if the database went away during the
/// commit, so look before asking again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// There is no such thing. For a path, `name` is the first component that is missing.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// What kind of thing was looked for: `file or directory`, `volume`, `class of service`, …
        what: &'static str,
        /// Which.
        name: String,
    },
    /// A file stands where a directory is needed.
    #[error("{name:?} is a file, not a directory")]
    NotADirectory {
        /// The component that is a file.
        name: String,
    },
    /// A directory stands where a file is needed.
    #[error("{name:?} is a directory")]
    IsADirectory {
        /// The directory.
        name: String,
    },
    /// The name is taken already.
    #[error("{name:?} exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The directory holds names still.
    #[error("directory {name:?} is not empty")]
    NotEmpty {
        /// The directory.
        name: String,
    },
    /// The name is longer than a name may be.
    #[error("the name is {length_bytes} bytes long, more than {limit_bytes}")]
    NameTooLong {
        /// How long it is.
        length_bytes: usize,
        /// How long it may be.
        limit_bytes: usize,
    },
    /// The text cannot be a name.
    #[error("{name:?} cannot be a name: {reason}")]
    InvalidName {
        /// The text, shortened.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A directory would become its own descendant.
    #[error("directory {name:?} cannot be moved into itself")]
    IntoItself {
        /// The directory.
        name: String,
    },
    /// The write would take an account or a group over its limit.
    #[error("{subject} may have {limit} {measure} and would have {would_be}")]
    QuotaExceeded {
        /// Whose limit: `account alice` or `group physics`.
        subject: String,
        /// What is limited: `bytes` or `files`.
        measure: &'static str,
        /// The limit.
        limit: u64,
        /// What the write would have come to.
        would_be: u64,
    },
    /// The name no longer holds what the caller expected it to hold.
    #[error("{name:?} has been changed by somebody else")]
    Changed {
        /// The name.
        name: String,
    },
    /// The caller no longer holds what it acts upon: a lease ran out and was given to another, work was cancelled,
    /// or a volume's position moved on. Its result must be dropped.
    #[error("{what} is no longer held by the caller")]
    Stale {
        /// What was lost.
        what: String,
    },
    /// The thing is needed still, so it cannot be removed.
    #[error("{what} is in use: {reason}")]
    InUse {
        /// The thing.
        what: String,
        /// By what.
        reason: String,
    },
    /// A version that is on legal hold or retained: nobody removes, replaces or moves it until that ends.
    #[error("{name:?} is locked: {reason}")]
    Locked {
        /// Which.
        name: String,
        /// By what.
        reason: String,
    },
    /// What the caller asks contradicts itself, or what the catalogue holds: a fault of the program, not of a user.
    #[error("{reason}")]
    Inconsistent {
        /// The contradiction.
        reason: String,
    },
    /// The database cannot be reached or is too busy; ask again later.
    #[error("the catalogue's database is not available")]
    Unavailable {
        /// What the database or its driver said.
        source: Arc<sqlx::Error>,
    },
    /// The database holds something that the catalogue never writes, or refuses what it always accepts.
    #[error("the catalogue is damaged or of another version: {what}")]
    Corrupt {
        /// What was found.
        what: String,
    },
}

impl CatalogError {
    /// Whether the same call may work later without anything else being changed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(crate) fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    pub(crate) fn stale(what: impl ToString) -> Self {
        Self::Stale { what: what.to_string() }
    }

    pub(crate) fn inconsistent(reason: impl ToString) -> Self {
        Self::Inconsistent { reason: reason.to_string() }
    }

    pub(crate) fn corrupt(what: impl ToString) -> Self {
        Self::Corrupt { what: what.to_string() }
    }
}

impl From<BadName> for CatalogError {
    /// A name read from the database that is none: names are checked before they are written.
    fn from(bad: BadName) -> Self {
        Self::corrupt(bad)
    }
}
