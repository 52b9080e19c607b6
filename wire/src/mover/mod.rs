//! The conversation between a gateway and a mover.
//!
//! Gateways connect to movers over TLS with certificates of the site's own CA, and send [`Request`]s; the mover
//! answers with one stream of [`Event`]s. Nothing here names a file, a user's right or a policy: a mover knows
//! volumes, extents and addresses.
//!
//! - [`channel`]: data endpoints, which are opened apart from transfers and may serve several in turn.
//! - [`job`]: what a transfer moves: from a source to a sink.
//! - [`call`]: short questions with one answer: disk files, library, drives.
//! - [`status`]: what a mover says of itself.
//! - [`http`]: where it serves HTTP clients, and what one may read or write that was sent there.
//! - [`fault`]: why something did not work, and what that means to the gateway.
//! - [`frame`]: how all of it is laid on the wire.
//!
//! # A transfer's life
//!
//! ```text
//! Start ──► (Progress)* ──► (Durable)* ──► Received? ──► Finished ──► Acknowledge
//!                                 └────────────────────► Failed   ──► Acknowledge
//! ```
//!
//! [`Event::Received`] comes as soon as the channel has given all its bytes and is free for the next transfer, while
//! the data is still being synced. [`Event::Finished`] and [`Event::Failed`] are kept by the mover until they are
//! acknowledged, and sent again to the same gateway after a reconnection. A [`Request::Start`] with a known
//! [`TransferId`] starts nothing: the mover repeats what it last said of it.
//!
//! # A body by HTTP
//!
//! An endpoint [`Open::Http`] takes one body, from a client that shows an [`Admission`] to the mover's HTTP door. What came
//! of it is in [`Outcome::body`]. The client waits for its answer until the gateway gives it ([`Request::Answer`]), which is
//! after it has published what came or refused it. A mover that loses that gateway tells the client to ask again (503).
//!
//! # Files that nobody confirmed
//!
//! A finished disk file is *unconfirmed* until the gateway has published it in the catalogue and says so
//! ([`Request::Confirm`]). After each [`Event::Welcome`] the mover lists its unconfirmed files; the gateway asks the
//! catalogue and confirms or removes each. So neither side writes down an intent before a transfer, and a crash at any
//! point loses nothing and leaks nothing.

pub mod call;
pub mod channel;
pub mod fault;
pub mod frame;
pub mod http;
pub mod job;
pub mod status;

use serde::{Deserialize, Serialize};

pub use self::{
    call::{Answer, Call, Found, Mounted, MoveTo, ScanPlace, Scanned, Slot, SlotKind},
    channel::{ChannelSpec, Framing, Open, PeerCheck, Security, TlsSide},
    fault::{Fault, FaultKind},
    http::{Admission, BodyReport, BodySpec, BodySum, Coding, Grant, GrantKey, HttpAnswer, HttpDoor, Ticket},
    job::{
        Append, Eof, FilePiece, Job, Member, NewFile, Outcome, Piece, PieceFault, SegmentOf, Sink, Source, TapeEnd,
        VolumeFile, Written,
    },
    status::{DriveHealth, DriveStatus, MoverStatus, VolumeHealth, VolumeStatus},
};
use crate::{
    extent::ByteRange,
    id::{ChannelId, Epoch, GatewayId, MoverId, TransferId},
};

/// The version both sides must speak. A mover answers a [`Request::Hello`] of another version with
/// [`FaultKind::Version`] and closes.
pub const PROTOCOL_VERSION: u16 = 3;

/// What a gateway asks of a mover.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first request of a connection.
    Hello {
        /// [`PROTOCOL_VERSION`] of the gateway.
        version: u16,
        /// Who is calling. A second connection of the same gateway replaces the first.
        gateway: GatewayId,
        /// Grows with every start of that gateway. An older one than the mover has seen is refused as stale.
        epoch: Epoch,
    },
    /// A short question; answered by one [`Event::Reply`] with the same `call`.
    Call {
        /// Chosen by the gateway, unique within the connection.
        call: u64,
        /// The question.
        what: Call,
    },
    /// Opens a data endpoint; answered by [`Event::ChannelReady`] or [`Event::ChannelClosed`].
    OpenChannel {
        /// Its identifier from now on.
        channel: ChannelId,
        /// What it is.
        spec: ChannelSpec,
    },
    /// Closes a data endpoint and its connections. A transfer that uses it fails.
    CloseChannel {
        /// Which.
        channel: ChannelId,
    },
    /// Starts a transfer.
    Start {
        /// Its identifier.
        transfer: TransferId,
        /// What to move. Boxed, since most requests are small.
        job: Box<Job>,
    },
    /// Stops a transfer; it ends with [`Event::Failed`] and [`FaultKind::Cancelled`].
    Cancel {
        /// Which.
        transfer: TransferId,
    },
    /// The end of this transfer is known: the mover may forget it.
    Acknowledge {
        /// Which.
        transfer: TransferId,
    },
    /// These files are in the catalogue and stay.
    Confirm {
        /// Which.
        files: Vec<VolumeFile>,
    },
    /// What the HTTP client of an endpoint is answered whose body came over it ([`Open::Http`]). Nothing is done if there
    /// is none, or it has been answered; the endpoint may have been closed before.
    Answer {
        /// The endpoint.
        channel: ChannelId,
        /// The answer.
        answer: HttpAnswer,
    },
}

/// What a mover tells a gateway.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The answer to [`Request::Hello`].
    Welcome {
        /// [`PROTOCOL_VERSION`] of the mover.
        version: u16,
        /// Who answers.
        mover: MoverId,
        /// What it has.
        status: MoverStatus,
    },
    /// The connection is refused, and closed.
    Refused {
        /// Why.
        fault: Fault,
    },
    /// The answer to a [`Request::Call`].
    Reply {
        /// The question's number.
        call: u64,
        /// The answer. Boxed, since an inventory is large and most events are small.
        answer: Box<Result<Answer, Fault>>,
    },
    /// A data endpoint is open.
    ChannelReady {
        /// Which.
        channel: ChannelId,
        /// Where it listens; `None` if it connects.
        address: Option<std::net::SocketAddr>,
    },
    /// A data endpoint could not be opened, or is gone.
    ChannelClosed {
        /// Which.
        channel: ChannelId,
        /// Why; `None` if it was asked to close.
        fault: Option<Fault>,
    },
    /// A transfer moves. Sent about once a second, and only while something moved.
    Progress {
        /// Which.
        transfer: TransferId,
        /// Bytes moved since it started.
        bytes: u64,
        /// Ranges received since the last report, in the transfer's address space: GridFTP's restart markers. Empty for
        /// transfers that do not receive.
        ranges: Vec<ByteRange>,
    },
    /// These pieces are on stable storage, and the transfer goes on.
    Durable {
        /// Which transfer.
        transfer: TransferId,
        /// What was written, each piece reported once.
        written: Vec<Written>,
    },
    /// All bytes have come from the channel, which is free for another transfer; syncing goes on.
    Received {
        /// Which transfer.
        transfer: TransferId,
        /// How many bytes.
        bytes: u64,
    },
    /// A transfer is done, and what it wrote is on stable storage.
    Finished {
        /// Which.
        transfer: TransferId,
        /// What came of it.
        outcome: Outcome,
    },
    /// A transfer ended before its end.
    Failed {
        /// Which.
        transfer: TransferId,
        /// Why.
        fault: Fault,
        /// What was received and is on stable storage all the same: an upload can be resumed from it. The file is
        /// unconfirmed: the gateway confirms it as a partial upload or removes it.
        outcome: Outcome,
    },
    /// Files that are whole on a volume of this mover and not confirmed.
    Unconfirmed {
        /// Which.
        files: Vec<VolumeFile>,
    },
    /// How the mover is doing; sent when something changed, and every few seconds.
    Status(MoverStatus),
}
