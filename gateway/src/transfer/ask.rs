//! What doors ask of transfers.

use std::{fmt, sync::Arc};

use catalog::Partial;
use wire::{
    checksum::Algorithm,
    extent::{ByteRange, Coverage},
    id::CosName,
};

use crate::{
    files::{Readable, Target},
    identity::Principal,
};

/// What a client wants to read.
#[derive(Clone, Debug)]
pub struct Retrieve {
    /// The file, from [`crate::files::Files::readable`].
    pub file: Readable,
    /// Who reads: asks for staging, is shown to the operator.
    pub principal: Principal,
    /// Which bytes; cut to the file's size.
    pub part: Part,
}

/// Which bytes of a file are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of them.
    Whole,
    /// From here to the end: `REST` in stream mode.
    From(u64),
    /// All but these: `REST` with ranges in extended block mode, which says what the client has.
    Except(Vec<ByteRange>),
    /// These, at offsets relative to the part: `ERET P`.
    Relative(ByteRange),
}

/// What a client wants to write.
#[derive(Clone, Debug)]
pub struct Store {
    /// The name, from [`crate::files::Files::target`].
    pub target: Target,
    /// Who writes.
    pub principal: Principal,
    /// What is written of the file.
    pub mode: StoreMode,
    /// The class of service; that of the file that is there, else the site's, if `None`.
    pub cos: Option<CosName>,
    /// How long the whole file will be, as `ALLO` said: space is looked for by it, and another length is refused.
    pub size_bytes: Option<u64>,
    /// What the file's sum must be (`SCKS`): another one is refused and nothing is published.
    pub sum: Option<(Algorithm, String)>,
    /// The modification time to give it, microseconds since the epoch.
    pub modified_us: Option<i64>,
    /// Asked, when all has come, whether the client is still there: it ended its data as a client does that dies, and
    /// nothing but its presence says that this was the end of the file.
    pub client: Option<Presence>,
}

/// Tells whether a client is still there, without waiting.
#[derive(Clone)]
pub struct Presence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Presence {
    /// Asks `is_there`.
    pub fn new(is_there: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_there))
    }

    /// Whether the client is still there, as far as this host has heard.
    #[must_use]
    pub fn is_there(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presence")
    }
}

/// What is written of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreMode {
    /// The whole of it; replaces what is there.
    Whole,
    /// What is missing of a cut upload, given what the client believes is there: `REST n` is the range `0-n`. Without a
    /// cut upload of this account under this name, refused.
    Resume {
        /// What is there already.
        have: Vec<ByteRange>,
    },
    /// Behind what is there (`APPE`): behind the existing file; else behind the beginning of a cut upload; else a new
    /// file.
    Append,
    /// A part of a new file, at offsets relative to the part (`ESTO A`). An offset of 0 makes the file; other offsets go
    /// on with a cut upload that ends there, or append to a file that does.
    At {
        /// Where the part begins in the file.
        offset_bytes: u64,
    },
}

/// What a cut upload has, for doors that tell the client where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutUpload {
    /// The ranges that are there.
    pub have: Vec<ByteRange>,
    /// How long the whole was announced to be.
    pub expected_bytes: Option<u64>,
}

impl From<&Partial> for CutUpload {
    fn from(partial: &Partial) -> Self {
        let mut coverage = Coverage::new();
        for segment in &partial.segments {
            // The catalogue has refused overlaps, and fewer segments than a coverage can hold come from one upload.
            let _ = coverage.merge(segment.range);
        }
        Self { have: coverage.ranges().collect(), expected_bytes: partial.expected_size_bytes }
    }
}

impl CutUpload {
    /// How many bytes are there from the beginning without a gap.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        self.have.first().filter(|range| range.offset() == 0).map_or(0, |range| range.end())
    }
}
