//! A transfer on a mover, in the hands of whoever started it.

use tokio::sync::mpsc;
use wire::{
    extent::ByteRange,
    id::{MoverId, TransferId},
    mover::{Outcome, VolumeFile, Written},
};

use super::{MoverError, link::Command};

/// What a mover says of a transfer.
#[derive(Clone, PartialEq, Debug)]
pub enum TransferEvent {
    /// It moves.
    Progress {
        /// Bytes since it started.
        bytes: u64,
        /// Ranges received since the last report.
        ranges: Vec<ByteRange>,
    },
    /// These pieces are on stable storage, and it goes on.
    Durable(Vec<Written>),
    /// The channel has given everything and is free.
    Received {
        /// How many bytes.
        bytes: u64,
    },
    /// It is done. The last event.
    Finished(Outcome),
    /// It ended before its end. The last event.
    Failed {
        /// Why. [`MoverError::Away`] if the mover went away and did not come back in time, or came back without it.
        error: MoverError,
        /// What is on stable storage all the same.
        outcome: Outcome,
    },
}

/// A transfer under way.
///
/// Dropped before [`Transfer::settle`], it is cancelled, and the files it made are removed unless the catalogue has
/// them by then.
#[derive(Debug)]
pub struct Transfer {
    id: TransferId,
    mover: MoverId,
    files: Vec<VolumeFile>,
    // Not bounded: a job names its pieces, each is reported once, and progress comes once a second.
    events: mpsc::UnboundedReceiver<TransferEvent>,
    commands: mpsc::UnboundedSender<Command>,
    settled: bool,
}

impl Transfer {
    pub(super) const fn new(
        id: TransferId,
        mover: MoverId,
        files: Vec<VolumeFile>,
        events: mpsc::UnboundedReceiver<TransferEvent>,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Self { id, mover, files, events, commands, settled: false }
    }

    /// Its identifier.
    #[must_use]
    pub const fn id(&self) -> TransferId {
        self.id
    }

    /// The mover it runs on.
    #[must_use]
    pub const fn mover(&self) -> &MoverId {
        &self.mover
    }

    /// The disk files that it makes.
    #[must_use]
    pub fn files(&self) -> &[VolumeFile] {
        &self.files
    }

    /// The next event; `None` after the last. Cancel-safe.
    pub async fn next(&mut self) -> Option<TransferEvent> {
        self.events.recv().await
    }

    /// Waits for the end; what [`TransferEvent::Durable`] said meanwhile is in the outcome too. Not cancel-safe: events
    /// seen are lost with it.
    ///
    /// # Errors
    ///
    /// What [`TransferEvent::Failed`] says, with the outcome.
    pub async fn end(&mut self) -> Result<Outcome, (MoverError, Outcome)> {
        let mut durable = Vec::new();
        let whole = |mut durable: Vec<Written>, mut outcome: Outcome| {
            durable.append(&mut outcome.written);
            Outcome { written: durable, ..outcome }
        };
        loop {
            match self.next().await {
                Some(TransferEvent::Durable(mut written)) => durable.append(&mut written),
                Some(TransferEvent::Finished(outcome)) => return Ok(whole(durable, outcome)),
                Some(TransferEvent::Failed { error, outcome }) => return Err((error, whole(durable, outcome))),
                Some(TransferEvent::Progress { .. } | TransferEvent::Received { .. }) => {}
                None => {
                    let error = MoverError::away(&self.mover, "the gateway is going down");
                    return Err((error, whole(durable, Outcome::default())));
                }
            }
        }
    }

    /// Asks the mover to stop; the end still comes as an event.
    pub fn cancel(&self) {
        let _ = self.commands.send(Command::Cancel { transfer: self.id });
    }

    /// The outcome has been dealt with: its files are confirmed ([`super::Movers::confirm`]) or discarded
    /// ([`super::Movers::discard`]) by the caller. The mover may forget the transfer.
    pub fn settle(mut self) {
        self.settled = true;
        let _ = self.commands.send(Command::Settle { transfer: self.id });
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.settled {
            let _ = self.commands.send(Command::Abandon { transfer: self.id });
        }
    }
}
