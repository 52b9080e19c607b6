//! What a transfer command says about the bytes it wants: restart points, parts, GFD.47 transactions.
//!
//! Owns the keyword form of GET and PUT. Never looks at a file.

use std::net::SocketAddr;

use crate::extent::Coverage;

use super::{FtpPath, NotText, TransferMode, address, parse::ParseError};

/// Which way the data of a transfer goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Server to client.
    Download,
    /// Client to server.
    Upload,
}

/// What `REST` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartPoint {
    /// `REST n`: stream mode, go on from this byte (RFC 3659 section 5).
    Offset(u64),
    /// `REST a-b,c-d`: MODE E, these bytes are already there (GFD.20 section 4.3).
    Ranges(Coverage),
}

/// A part of a file: `ERET P offset length path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// First byte wanted.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
    /// The file.
    pub path: FtpPath,
}

/// What a GFD.47 `GET` or `PUT` says: the transfer and its data connection in one line, so that the server can name the
/// host that holds the file (reply 127).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The file.
    pub path: FtpPath,
    /// `mode=`, else as set by `MODE`.
    pub mode: Option<TransferMode>,
    /// `pasv;` or `port=`; neither uses what an earlier PASV or PORT said.
    pub endpoint: Option<TransactionEndpoint>,
}

/// Who listens for the data connection of a [`Transaction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionEndpoint {
    /// `pasv;`: the server does, and says where in a 127 reply.
    Passive,
    /// `port=h1,h2,h3,h4,p1,p2;`: the client does, here.
    Port(SocketAddr),
}

impl Transaction {
    /// A transfer in `mode` to or from an address that the server will name.
    ///
    /// # Errors
    ///
    /// [`NotText`] if the path holds `;`, which the keyword form cannot carry.
    pub fn passive(path: FtpPath, mode: TransferMode) -> Result<Self, NotText> {
        if path.as_str().contains(';') {
            return Err(NotText::Control);
        }
        Ok(Self { path, mode: Some(mode), endpoint: Some(TransactionEndpoint::Passive) })
    }

    pub(super) fn parse(verb: &str, text: &str) -> Result<Self, ParseError> {
        let syntax = || ParseError::syntax(verb, "keyword=value; pairs with at least path=");
        let (mut path, mut mode, mut endpoint) = (None, None, None);
        let pairs = text.trim_start().trim_end_matches(' ').trim_end_matches(';').split(';');
        for pair in pairs {
            let (keyword, value) = pair.split_once('=').unwrap_or((pair, ""));
            match keyword.trim().to_ascii_lowercase().as_str() {
                "path" => path = Some(FtpPath::new(value).map_err(|_| syntax())?),
                "mode" => mode = Some(super::parse::mode(verb, value)?),
                "pasv" => endpoint = Some(TransactionEndpoint::Passive),
                "port" => {
                    let address = address::parse_either(value).map_err(|error| ParseError::address(verb, error))?;
                    endpoint = Some(TransactionEndpoint::Port(address));
                }
                _ => return Err(ParseError::parameter(verb, keyword)),
            }
        }
        Ok(Self { path: path.ok_or_else(syntax)?, mode, endpoint })
    }

    pub(super) fn line(&self) -> String {
        let mode = self.mode.map_or(String::new(), |mode| format!("mode={};", mode.letter().to_ascii_lowercase()));
        let endpoint = match &self.endpoint {
            None => String::new(),
            Some(TransactionEndpoint::Passive) => "pasv;".to_owned(),
            Some(TransactionEndpoint::Port(address)) => format!("port={};", address::format_either(address)),
        };
        format!("{endpoint}{mode}path={};", self.path)
    }
}
