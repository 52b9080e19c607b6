//! The FTP language: what a client may say and what a server answers, both typed.
//!
//! Owns the text of the protocol: [`Command`] (parsed from a line, formatted back), [`Reply`] (encoded, decoded), the
//! line splitters that bound what a peer may send, and the replies whose exact form clients parse. Talks to nobody:
//! gateway and client both use it, each in its own direction. Never opens a socket, keeps session state or decides
//! whether a command may come now.
//!
//! Invariant: whatever bytes a peer sends, nothing here panics, and nothing grows beyond the named limits.
//!
//! ```text
//! bytes ──LineDecoder──▶ line ──Command::parse──▶ Command ──Command::line──▶ line
//! bytes ──ReplyDecoder─────────────────────────▶ Reply   ──Reply::encode──▶ bytes
//! ```
//!
//! # Source
//!
//! RFC 959, 1123, 2228, 2389, 2428, 2640, 3659, 4217; draft-somers-ftp-mfxx (MFMT); draft-bryan-ftp-hash; GFD.20
//! (GridFTP 1: SPAS, SPOR, ERET, ESTO, DCAU, SBUF, MODE E, markers); GFD.47 (GridFTP 2: GET, PUT, delayed passive, CKSM).

mod address;
mod command;
mod facts;
mod features;
mod format;
mod line;
mod marker;
mod option;
mod parse;
mod ranges;
mod reply;
mod site;
mod text;
mod time;
mod transfer;
mod typed;

#[cfg(test)]
mod tests;

pub use address::{AddressFamily, EpsvArgument, MAX_ADDRESSES, MalformedAddress};
pub use command::{
    Authentication, Command, DataAuthentication, DataCredential, Protection, Representation, Structure, TransferMode,
};
pub use facts::{EntryKind, Fact, FactSet, Facts, Locality, MalformedFacts};
pub use features::Features;
pub use line::{LineDecoder, LineError, MAX_LINE_BYTES, MAX_TOKEN_LINE_BYTES};
pub use marker::PerformanceMarker;
pub use option::{CommandOption, Layout, MAX_PARALLELISM, Parallelism, RetrieveOptions};
pub use parse::ParseError;
pub use ranges::{MalformedRanges, format_ranges, parse_ranges};
pub use reply::{Class, MAX_REPLY_BYTES, Reply, ReplyDecoder, ReplyError};
pub use site::SiteCommand;
pub use text::{FtpPath, MAX_PATH_BYTES, NotText, Secret, Text};
pub use time::{FtpTime, MalformedTime};
pub use transfer::{Direction, Part, RestartPoint, Transaction, TransactionEndpoint};
pub use typed::UnexpectedReply;
