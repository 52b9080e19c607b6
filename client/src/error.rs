//! Why something did not work, and what the caller does about it.
//!
//! Owns [`ClientError`]. Never logs: whoever handles the error shows it.

use std::{io, path::PathBuf, time::Duration};

use wire::{
    ftp::{NotText, Reply, ReplyError, UnexpectedReply},
    mode_e::ModeEError,
};

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The name of a server cannot be read.
    #[error("{text:?} is not of the form [user@]HOST[:PORT]")]
    Target {
        /// What was given.
        text: String,
    },
    /// No certificate, key or trusted authority could be loaded.
    #[error("{what}: {reason}")]
    Identity {
        /// Which of them.
        what: &'static str,
        /// Why, and the next step.
        reason: String,
    },
    /// The server could not be reached.
    #[error("connect to {server}")]
    Connect {
        /// Host and port.
        server: String,
        /// What the system said.
        source: io::Error,
    },
    /// The TLS handshake failed.
    #[error("TLS with {peer}: {reason}")]
    Tls {
        /// Whose certificate it was about.
        peer: String,
        /// Why.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("{server} was silent for {limit:?} while we waited for {awaited}")]
    Timeout {
        /// Host and port.
        server: String,
        /// What we waited for.
        awaited: String,
        /// How long.
        limit: Duration,
    },
    /// The control connection broke, or its bytes make no sense.
    #[error("the control connection to {server} broke")]
    Control {
        /// Host and port.
        server: String,
        /// How.
        source: io::Error,
    },
    /// The server does not speak FTP.
    #[error(transparent)]
    Protocol(#[from] ReplyError),
    /// The server said no.
    #[error("{command}: {}", said(reply))]
    Refused {
        /// What was asked: verb and path.
        command: String,
        /// The answer.
        reply: Box<Reply>,
    },
    /// The server's answer is of another form than its protocol says.
    #[error(transparent)]
    Unexpected(#[from] UnexpectedReply),
    /// A name cannot be sent.
    #[error(transparent)]
    Name(#[from] NotText),
    /// The server named something that must not become a local file.
    #[error("the server lists an entry named {name:?}, which is not a file name: skipped")]
    HostileName {
        /// What it named.
        name: String,
    },
    /// A local file cannot be used.
    #[error("{doing} {}", path.display())]
    Local {
        /// `open`, `read`, `write`, `rename`…
        doing: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A data connection could not be opened, or broke.
    #[error("{doing} {peer}")]
    Data {
        /// `connect to`, `receive from`, `send to`…
        doing: &'static str,
        /// Who is at the other end.
        peer: String,
        /// What the system said.
        source: io::Error,
    },
    /// The other end of a data connection broke its protocol.
    #[error("data from {peer}")]
    ModeE {
        /// Who is at the other end.
        peer: String,
        /// How.
        source: ModeEError,
    },
    /// The other end of a data connection sent bytes twice, or in too many pieces.
    #[error("data from {peer}: {reason}")]
    BadData {
        /// Who is at the other end.
        peer: String,
        /// How.
        reason: String,
    },
    /// The transfer ended before all bytes had come. What came is kept.
    #[error("{name}: {missing_bytes} bytes are missing; what came is kept: repeat with reget")]
    Incomplete {
        /// Which file.
        name: String,
        /// How many.
        missing_bytes: u64,
    },
    /// The bytes are not those the catalogue knows.
    #[error("{name}: {algorithm} of what was transferred is {here}, the server's catalogue says {there}: {next}")]
    Mismatch {
        /// Which file.
        name: String,
        /// Which sum.
        algorithm: &'static str,
        /// Of our bytes.
        here: String,
        /// Of the server's.
        there: String,
        /// What to do.
        next: &'static str,
    },
    /// The local file changed while it was sent.
    #[error("{} changed while it was sent: put it again", path.display())]
    Changed {
        /// Which file.
        path: PathBuf,
    },
    /// Somebody asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// What a reply says to people: in the Globus server's form of an error the last line, if the server has one for them.
fn said(reply: &Reply) -> String {
    let code = format!("{}-", reply.code());
    let last = reply.lines().last().map_or("", |line| line.strip_prefix(&code).unwrap_or(line).trim());
    let for_people =
        !last.is_empty() && !last.eq_ignore_ascii_case("end") && last != "End." && !last.contains("GridFTP-");
    if reply.first().starts_with("GlobusError:") && for_people {
        format!("{} {last}", reply.code())
    } else {
        reply.to_string()
    }
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// The same may work later, or over a new connection: what came is kept.
    Retry,
    /// Something must change first: a name, a permission, a certificate.
    Correct,
    /// Nothing: it was asked for.
    Nothing,
}

impl ClientError {
    /// What the caller does next.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Cancelled => Remedy::Nothing,
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Control { .. }
            | Self::Data { .. }
            | Self::Incomplete { .. }
            | Self::Changed { .. } => Remedy::Retry,
            Self::Refused { reply, .. } if (400..500).contains(&reply.code()) => Remedy::Retry,
            _ => Remedy::Correct,
        }
    }

    /// Whether the control connection cannot be used any more.
    pub const fn loses_connection(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. } | Self::Tls { .. } | Self::Timeout { .. } | Self::Control { .. } | Self::Protocol(_)
        )
    }

    /// Whether every other file would fail the same way.
    pub(crate) const fn loses_hope(&self) -> bool {
        self.loses_connection() || matches!(self, Self::Data { .. } | Self::Refused { .. } | Self::Cancelled)
    }

    /// Whether the server said that there is nothing of that name.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { reply, .. } if reply.code() == 550 && {
            let text = reply.lines().join(" ").to_ascii_lowercase();
            text.contains("path_not_found") || text.contains("no such") || text.contains("not found")
        })
    }

    /// The text with everything that led to it.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(source) = next {
            let more = source.to_string();
            if !text.ends_with(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            next = source.source();
        }
        text
    }

    pub(crate) fn local(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Local { doing, path, source }
    }

    pub(crate) fn refused(command: &wire::ftp::Command, reply: Reply) -> Self {
        // A password is never part of a message.
        let command = match command {
            wire::ftp::Command::Pass(_) | wire::ftp::Command::Acct(_) => command.verb().to_owned(),
            other => other.line(),
        };
        Self::Refused { command, reply: Box::new(reply) }
    }
}

/// What a client's functions give back.
pub type Result<T> = std::result::Result<T, ClientError>;
