//! Data endpoints: where a mover listens or whom it connects to, and what flows there.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::BodySpec;

/// The most connections one endpoint has.
pub const MAX_STREAMS: u16 = 64;

/// What a data endpoint is.
///
/// It is opened once and may then serve several transfers, one after the other, as GridFTP's data channel caching
/// wants (GFD.20 section 4, extended block mode: connections stay open behind the end of data).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Who connects to whom.
    pub open: Open,
    /// How data is laid on the connections.
    pub framing: Framing,
    /// How many connections to make when this side connects and sends; 1 in stream mode; at most [`MAX_STREAMS`].
    /// When listening, the peer decides, up to that limit.
    pub streams: u16,
    /// Clear or TLS.
    pub security: Security,
    /// Socket buffer size to set; `None` leaves it to the kernel, which is nearly always better.
    pub buffer_bytes: Option<u32>,
    /// How long to wait for the peer to connect, or to accept.
    pub open_limit_ms: u32,
    /// How long a transfer may go without a single byte moving before it fails.
    pub stall_limit_ms: u32,
}

/// Who connects to whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Open {
    /// The mover listens on a port of its range, and says where in `ChannelReady`.
    Listen {
        /// Only connections from this address are taken; others are closed at once.
        peer: Option<IpAddr>,
        /// Whether an IPv6 address is wanted.
        ipv6: bool,
    },
    /// The mover connects when a transfer first needs it.
    Connect {
        /// Where to. Several addresses are one peer's stripe; connections are dealt out in turn.
        to: Vec<SocketAddr>,
    },
    /// The body of one PUT, from a client of the mover's HTTP door that shows an [`super::Admission`] for this endpoint.
    /// Only in stream mode; the door's own security counts.
    Http {
        /// How the bytes come.
        body: BodySpec,
    },
}

/// How data is laid on the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Framing {
    /// The bytes, and the end of the connection is the end of the data (RFC 959 section 3.4.1).
    Stream,
    /// Extended block mode (GFD.20): blocks with offsets, in any order, over any number of connections.
    ModeE,
}

/// Clear or TLS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Security {
    /// Bytes in clear, as `PROT C` says.
    Clear,
    /// TLS, as `PROT P` says.
    Tls {
        /// Which side of the handshake the mover takes.
        side: TlsSide,
        /// Whom the mover must find at the other end.
        peer: PeerCheck,
    },
}

/// Which side of the TLS handshake the mover takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TlsSide {
    /// The server, whoever connected: RFC 4217 section 7, the FTP client is always the TLS client.
    Server,
    /// The side that connects is the client: GridFTP's rule, and that of a site's processes among themselves.
    ByConnection,
}

/// Whom the mover must find at the other end of a TLS connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerCheck {
    /// Another process of this site, a mover or a gateway, by its certificate of the site's CA.
    Site,
    /// A trusted certificate whose end-entity subject is this one (`/C=…/CN=…`).
    Subject(String),
    /// As [`PeerCheck::Subject`], but a peer without a certificate is let in: FTP clients that show theirs on the
    /// control connection only. The address check of [`Open::Listen`] still holds.
    SubjectIfShown(String),
}
