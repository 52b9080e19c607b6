//! One copy of bytes from a mover's volumes to another place, on the same mover or on another.
//!
//! Owns the two transfers and the channel between them. Knows nothing of bitfiles or policy. Between movers data goes
//! over one connection with the site's own TLS, in order, so that a tape can be written from it.
//!
//! Invariant: what is reported as written has been synced by the sink; a fault of the source is told rather than what
//! the sink made of it.

use std::time::Duration;

use wire::{
    checksum::ExtraSums,
    extent::ByteRange,
    id::{MoverId, TransferId},
    mover::{
        ChannelSpec, Eof, Fault, FaultKind, Framing, Job, Open, Outcome, PeerCheck, Piece, PieceFault, Security, Sink,
        Source, TlsSide, Written,
    },
};

use crate::{
    mounts::{Endpoint, Fleet, Moving},
    movers::{MoverError, TransferEvent},
};

/// How long the two movers have to connect to each other.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// How long nothing may move between them. A tape may be located meanwhile, and a drive may retry.
const STALL_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long the source has to say how it ended after the sink has.
const SOURCE_LIMIT: Duration = Duration::from_secs(30);

/// What is copied.
pub(super) struct Copy {
    /// The mover that has the bytes.
    pub(super) source: MoverId,
    /// Where they are; they lie in the address space from 0 on without a gap.
    pub(super) pieces: Vec<Piece>,
    /// The mover that gets them.
    pub(super) target: MoverId,
    /// Where they go.
    pub(super) sink: Sink,
    /// How many there are.
    pub(super) bytes: u64,
    /// The most bytes a second.
    pub(super) rate_limit: Option<u64>,
}

/// What happens in a copy.
pub(super) enum Step {
    /// So many bytes have moved.
    Progress(u64),
    /// These are on stable storage.
    Durable(Vec<Written>),
    /// It is over.
    Done(Result<Outcome, (MoverError, Outcome)>),
}

/// A copy under way. Dropped before [`Copying::settle`], it is cancelled and cleaned up behind.
pub(super) struct Copying {
    sink: Box<dyn Moving>,
    source: Option<Box<dyn Moving>>,
    source_end: Option<Result<Outcome, (MoverError, Outcome)>>,
    // Closed when the copy is over.
    _channels: Vec<Box<dyn Endpoint>>,
}

impl Copy {
    /// Starts it.
    pub(super) async fn start(self, fleet: &dyn Fleet) -> Result<Copying, MoverError> {
        let job = |source, sink| Job { source, sink, extra_sums: ExtraSums::default(), rate_limit: self.rate_limit };
        if self.source == self.target {
            let sink = fleet.start(&self.target, job(Source::Extents(self.pieces), self.sink)).await?;
            return Ok(Copying { sink, source: None, source_end: None, _channels: Vec::new() });
        }
        let listening = fleet.open_channel(&self.target, spec(Open::Listen { peer: None, ipv6: false })).await?;
        let Some(address) = listening.address() else {
            let fault = Fault::new(FaultKind::BadRequest, "the mover listens and does not say where");
            return Err(MoverError::Refused { mover: self.target, fault });
        };
        let connecting = fleet.open_channel(&self.source, spec(Open::Connect { to: vec![address] })).await?;
        let expected = ByteRange::new(0, self.bytes).ok();
        let sink = job(Source::Channel { channel: listening.id(), expected }, self.sink);
        let source = job(Source::Extents(self.pieces), Sink::Channel { channel: connecting.id(), eof: Eof::Own });
        let sink = fleet.start(&self.target, sink).await?;
        let source = fleet.start(&self.source, source).await?;
        Ok(Copying { sink, source: Some(source), source_end: None, _channels: vec![listening, connecting] })
    }
}

fn spec(open: Open) -> ChannelSpec {
    let limit = |limit: Duration| u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    ChannelSpec {
        open,
        framing: Framing::ModeE,
        streams: 1,
        security: Security::Tls { side: TlsSide::ByConnection, peer: PeerCheck::Site },
        buffer_bytes: None,
        open_limit_ms: limit(OPEN_LIMIT),
        stall_limit_ms: limit(STALL_LIMIT),
    }
}

impl Copying {
    /// The sink's identifier, under which it is shown.
    pub(super) fn id(&self) -> TransferId {
        self.sink.id()
    }

    /// The next step; after [`Step::Done`] there is none. Cancel-safe up to the sink's end.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            let event = match &mut self.source {
                Some(source) if self.source_end.is_none() => tokio::select! {
                    event = self.sink.next() => event,
                    event = source.next() => {
                        self.source_event(event);
                        continue;
                    }
                },
                _ => self.sink.next().await,
            };
            return match event {
                Some(TransferEvent::Progress { bytes, .. }) => Step::Progress(bytes),
                Some(TransferEvent::Durable(written)) => Step::Durable(written),
                Some(TransferEvent::Received { bytes }) => Step::Progress(bytes),
                Some(TransferEvent::Finished(outcome)) => {
                    self.source_ends().await;
                    Step::Done(Ok(self.with_source(outcome)))
                }
                Some(TransferEvent::Failed { error, outcome }) => {
                    self.source_ends().await;
                    Step::Done(self.blame(error, outcome))
                }
                None => Step::Done(Err((vanished(), Outcome::default()))),
            };
        }
    }

    fn source_event(&mut self, event: Option<TransferEvent>) {
        match event {
            Some(TransferEvent::Finished(outcome)) => self.source_end = Some(Ok(outcome)),
            Some(TransferEvent::Failed { error, outcome }) => {
                self.source_end = Some(Err((error, outcome)));
                // Nothing more comes: the sink need not wait for its own limit.
                self.sink.cancel();
            }
            None => self.source_end = Some(Err((vanished(), Outcome::default()))),
            Some(_) => {}
        }
    }

    async fn source_ends(&mut self) {
        let limit = tokio::time::sleep(SOURCE_LIMIT);
        tokio::pin!(limit);
        while let (Some(source), None) = (&mut self.source, &self.source_end) {
            tokio::select! {
                event = source.next() => self.source_event(event),
                () = &mut limit => {
                    source.cancel();
                    return;
                }
            }
        }
    }

    fn with_source(&mut self, mut outcome: Outcome) -> Outcome {
        if let Some(Ok(source) | Err((_, source))) = &mut self.source_end {
            merge(&mut outcome.failed, std::mem::take(&mut source.failed));
        }
        outcome
    }

    #[expect(clippy::result_large_err, reason = "what was written is part of the error, and this is no hot path")]
    fn blame(&mut self, error: MoverError, outcome: Outcome) -> Result<Outcome, (MoverError, Outcome)> {
        let outcome = self.with_source(outcome);
        match self.source_end.take() {
            Some(Err((cause, _))) if cause.fault() != Some(FaultKind::PeerLost) => Err((cause, outcome)),
            _ => Err((error, outcome)),
        }
    }

    /// What it wrote is in the catalogue, or has been discarded.
    pub(super) fn settle(self) {
        self.sink.settle();
        if let Some(source) = self.source {
            source.settle();
        }
    }
}

/// What the source says of a piece counts more than what the sink says of its absence.
fn merge(sink: &mut Vec<PieceFault>, source: Vec<PieceFault>) {
    for fault in source {
        sink.retain(|known| known.offset_bytes != fault.offset_bytes);
        sink.push(fault);
    }
}

fn vanished() -> MoverError {
    let mover = MoverId::new("mover").expect("a plain word is a name");
    MoverError::Away { mover, why: "the transfer ended without a word".into() }
}
