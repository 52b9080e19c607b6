//! A transfer as its door and the operator see it.

use std::{net::SocketAddr, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wire::{
    checksum::Sums,
    extent::ByteRange,
    id::{AccountName, BitfileId, ChannelId, MoverId},
};

use super::Waiting;
use crate::failure::{Failure, FailureKind};

/// A transfer under way. Dropping it cancels it; what an upload had received by then is kept as a cut upload.
#[derive(Debug)]
pub struct Running {
    number: u64,
    steps: mpsc::Receiver<Step>,
    cancel: CancellationToken,
}

/// What happens in a transfer, in this order; steps that have nothing to say are left out.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// The file is being brought from tape.
    Waiting(Waiting),
    /// Where the client connects to: `127`, `129`, or `229` with a list.
    Passive(Vec<SocketAddr>),
    /// At whose HTTP door the client's body is waited for, and by which endpoint.
    Door {
        /// The mover.
        mover: MoverId,
        /// The endpoint.
        channel: ChannelId,
    },
    /// Data is about to flow: `150`, or `125` if the connections are there already.
    Opening {
        /// The connections of an earlier transfer are used.
        reused: bool,
        /// How many bytes will be sent; what was announced, for an upload.
        bytes: Option<u64>,
    },
    /// Data flows: `111`, `112`. About once a second for each mover that moves.
    Progress(Progress),
    /// All bytes have come and the data connections are free: the next transfer may begin while this one commits.
    Received,
    /// The end; nothing comes behind it.
    Done(Result<Summary, Failure>),
}

/// How far one mover of a transfer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Which of the movers, from 0.
    pub stripe: u16,
    /// How many movers there are.
    pub stripes: u16,
    /// Bytes this one moved since the transfer began.
    pub bytes: u64,
    /// Ranges of the file received since the last report; empty when sending.
    pub ranges: Vec<ByteRange>,
}

/// What came of a transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// Bytes moved in this transfer.
    pub bytes: u64,
    /// How long the data took.
    pub elapsed: Duration,
    /// The movers that sent or received.
    pub movers: Vec<MoverId>,
    /// Bytes that went through a mover that did not hold them.
    pub relayed_bytes: u64,
    /// What was published, for an upload.
    pub stored: Option<Stored>,
}

/// What an upload published.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stored {
    /// The new bitfile.
    pub bitfile: BitfileId,
    /// How long the whole file is.
    pub size_bytes: u64,
    /// The sums of the whole file.
    pub sums: Sums,
    /// How often the name has been written.
    pub generation: u64,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the client.
    Retrieve,
    /// From the client.
    Store,
    /// A listing, to the client.
    Listing,
}

impl Direction {
    /// The word for it, as in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retrieve => "retrieve",
            Self::Store => "store",
            Self::Listing => "listing",
        }
    }
}

/// A transfer as the operator sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct TransferView {
    /// Its number, for [`super::Transfers::cancel`].
    pub number: u64,
    /// The door it came through.
    pub door: &'static str,
    /// Whose it is.
    pub account: Option<AccountName>,
    /// Which way.
    pub direction: Direction,
    /// The file.
    pub path: String,
    /// The movers that send or receive.
    pub movers: Vec<MoverId>,
    /// Bytes moved so far.
    pub bytes: u64,
    /// How many there will be, if known.
    pub total_bytes: Option<u64>,
    /// How long it has been running.
    pub elapsed: Duration,
    /// What it is doing: `waits` (for its data connections), `tape`, `moves`, `commits`.
    pub state: &'static str,
}

impl Running {
    pub(super) const fn new(number: u64, steps: mpsc::Receiver<Step>, cancel: CancellationToken) -> Self {
        Self { number, steps, cancel }
    }

    /// Its number, as in [`TransferView::number`].
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The next step; `None` after [`Step::Done`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Step> {
        self.steps.recv().await
    }

    /// Stops it; [`Step::Done`] with a failure still comes, unless all bytes were there already.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Lets it go on to its end without anybody who listens.
    pub(crate) fn release(&mut self) {
        self.cancel = CancellationToken::new();
    }

    /// Waits for the end, passing over everything else.
    ///
    /// # Errors
    ///
    /// What [`Step::Done`] says.
    pub async fn done(mut self) -> Result<Summary, Failure> {
        loop {
            match self.next().await {
                Some(Step::Done(result)) => return result,
                Some(_) => {}
                None => return Err(Failure::new(FailureKind::Internal, "the transfer's task ended early")),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
