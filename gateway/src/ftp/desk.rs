//! The seam between a connection and its commands.
//!
//! Owns nothing: [`Desk`] is what a connection needs of whoever does the work, [`Voice`] what work needs of the
//! connection. With it the connection is tested over real sockets without a catalogue or a mover.

use std::sync::Arc;

use bytes::Bytes;
use daemon::trust::Identity;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::ftp::Reply;

use super::session::{
    Event, Ticket,
    work::{Outcome, Work},
};

/// Does the work of one connection.
pub(super) trait Desk: Send + Sync + 'static {
    /// The TLS handshake is done, and this is who was found at the other end.
    fn met(&self, identity: Option<Identity>);

    /// Does this. Long work speaks through `voice` meanwhile and heeds its cancellation. The future goes on when the
    /// connection ends, unless cancelled: a transfer whose bytes are known to be all in is committed.
    fn work(self: Arc<Self>, work: Work, voice: Voice) -> BoxFuture<'static, Outcome>;

    /// Closes the data connections that are kept between transfers.
    fn drop_port(&self);
}

/// What a piece of work says before its end. When the connection is gone, it speaks to nobody.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    ticket: Ticket,
    events: mpsc::Sender<Event>,
    cancel: CancellationToken,
}

impl Voice {
    pub(super) const fn new(ticket: Ticket, events: mpsc::Sender<Event>, cancel: CancellationToken) -> Self {
        Self { ticket, events, cancel }
    }

    /// A 1yz reply.
    pub(super) async fn announce(&self, reply: Reply) {
        self.say(Event::Announce { ticket: self.ticket, reply }).await;
    }

    /// How far a transfer is, and markers to show.
    pub(super) async fn progress(&self, bytes: u64, markers: Vec<Reply>) {
        self.say(Event::Progress { ticket: self.ticket, bytes, markers }).await;
    }

    /// A piece of a reply too long to hold. Waits until the client reads.
    pub(super) async fn piece(&self, text: Bytes) {
        self.say(Event::Piece { ticket: self.ticket, text }).await;
    }

    /// All bytes of a transfer are in.
    pub(super) async fn received(&self) {
        self.say(Event::Received { ticket: self.ticket }).await;
    }

    /// Ends when the work is to stop. Cancel-safe.
    pub(super) async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether the work is to stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    async fn say(&self, event: Event) {
        // Nobody listens once the connection has ended.
        let _ = self.events.send(event).await;
    }
}
