//! Stage requests for many files under one number, as WLCG's Tape REST interface makes them.

use wire::id::{AccountName, BitfileId, RequestId};

use crate::record::work::{NewRequest, RequestState};
use crate::time::Timestamp;

/// Files to be asked for under one number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBulk {
    /// Its number: whoever makes it sees to it that nobody can guess it.
    pub id: String,
    /// Who asks.
    pub account: AccountName,
    /// The files, in the order in which they were named.
    pub files: Vec<NewBulkFile>,
}

/// One file of a [`NewBulk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBulkFile {
    /// Its path as the client wrote it.
    pub path: String,
    /// The wish; or why there is none, for people.
    pub wish: Result<NewRequest, String>,
}

/// A bulk request, and how far each of its files is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bulk {
    /// Its number.
    pub id: String,
    /// Who asked.
    pub account: AccountName,
    /// When.
    pub created: Timestamp,
    /// Its files, in the order in which they were named.
    pub files: Vec<BulkFile>,
}

/// How far one file of a bulk request is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkFile {
    /// Its path as the client wrote it.
    pub path: String,
    /// The stage request that was made for it, and of which bitfile.
    pub request: Option<(RequestId, BitfileId)>,
    /// How far it is. One that was never asked for has failed.
    pub state: RequestState,
    /// When it came to an end.
    pub finished: Option<Timestamp>,
}

impl Bulk {
    /// When the last file came to an end; `None` while one has not.
    #[must_use]
    pub fn ended(&self) -> Option<Timestamp> {
        if !self.files.iter().all(|file| file.state.is_final()) {
            return None;
        }
        Some(self.files.iter().filter_map(|file| file.finished).max().unwrap_or(self.created))
    }
}
