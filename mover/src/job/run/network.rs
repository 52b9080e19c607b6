//! Jobs with a channel on one side and disk files on the other; and relays.

use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc;
use wire::{
    checksum::ExtraSums,
    extent::{ByteRange, Extent, Place},
    mover::{Eof, Fault, FaultKind, FilePiece, Framing, NewFile, Outcome, PieceFault, Written},
};

use super::{Job, attach, no_ranges, reported, stoppable};
use crate::{
    data::{receive, send},
    job::{
        Ending, Task,
        batch::{Batch, Whole},
        deal::Dealer,
        hopper::Hopper,
        loan::Lent,
        plan::DiskPiece,
        upload::{Upload, Uploaded},
    },
    metrics::{self, Direction},
};

/// Whole files that are made durable at a time, for one transfer.
const MAX_COMMITS: usize = 128;

impl Job {
    /// A channel into one new file.
    pub(super) async fn upload(
        &self,
        task: &Task,
        expected: Option<ByteRange>,
        file: NewFile,
        extra: ExtraSums,
    ) -> Ending {
        let fail = |fault| Ending::Failed(fault, Outcome::default());
        let lent = match stoppable(task, self.begin_upload(task, file, expected, extra)).await {
            Ok(upload) => Lent::new(upload),
            Err(fault) => return fail(fault),
        };
        let flow = self.flow(task, Direction::Received);
        let receiving = async {
            let attachment = attach(task.from.as_ref()).await?;
            receive(attachment, expected, Arc::new(lent.loan()), flow.clone(), self.env.turns.clone()).await
        }
        .boxed();
        let received = stoppable(task, reported(task, || flow.bytes(), || lent.take_fresh(), receiving)).await;
        self.over.cancel();
        let (received, body) = match received {
            Ok(body) => (lent.check_complete(), body),
            Err(fault) => (Err(fault), None),
        };
        let bytes = flow.bytes();
        let fresh = lent.take_fresh();
        if !fresh.is_empty() {
            task.reporter.progress(bytes, fresh).await;
        }
        if received.is_ok() {
            task.reporter.received(bytes).await;
        }
        let upload = lent.take_back().await;
        let uploaded = match self.finish_upload(upload, extra).await {
            Ok(uploaded) => uploaded,
            Err(fault) => return fail(fault),
        };
        let written = uploaded.written();
        if let Err(fault) = &received
            && (written.is_empty() || !leaves_something(fault.kind))
        {
            let dropped = self.env.shutdown.spawn_blocking(move || drop(uploaded));
            let _ = dropped.await;
            return fail(fault.clone());
        }
        let outcome = Outcome { bytes, written, body, ..Outcome::default() };
        let committer = match self.env.volumes.committer(uploaded.draft.volume().label()) {
            Ok(committer) => committer.clone(),
            Err(fault) => return fail(fault),
        };
        match (committer.commit(uploaded.draft).await, received) {
            (Ok(()), Ok(())) => Ending::Finished(outcome),
            (Ok(()), Err(fault)) => Ending::Failed(fault, outcome),
            (Err(_), Err(fault)) => fail(fault),
            (Err(error), Ok(())) => fail(error.fault()),
        }
    }

    async fn begin_upload(
        &self,
        task: &Task,
        file: NewFile,
        expected: Option<ByteRange>,
        extra: ExtraSums,
    ) -> Result<Upload, Fault> {
        let volume = self.env.volumes.get(&file.volume)?.clone();
        let owner = task.owner.clone();
        let begun = self.env.shutdown.spawn_blocking(move || {
            let draft = if file.have.is_empty() {
                volume.create(file.file, &owner, file.reserve_bytes)?
            } else {
                volume.grow(file.file, file.reserve_bytes)?
            };
            Upload::new(draft, &file, expected, extra)
        });
        begun.await.unwrap_or_else(|error| Err(Fault::new(FaultKind::Medium, error)))
    }

    async fn finish_upload(&self, upload: Upload, extra: ExtraSums) -> Result<Uploaded, Fault> {
        if !extra.any() {
            return upload.finish();
        }
        let finished = self.env.shutdown.spawn_blocking(|| upload.finish());
        finished.await.unwrap_or_else(|error| Err(Fault::new(FaultKind::Medium, error)))
    }

    /// A channel into new files.
    pub(super) async fn receive_files(
        &self,
        task: &Task,
        expected: Option<ByteRange>,
        files: Vec<FilePiece>,
    ) -> Ending {
        let flow = self.flow(task, Direction::Received);
        let (batch, whole) = self.begin_batch(task, files);
        let receiving = async {
            let attachment = attach(task.from.as_ref()).await?;
            let loan = Arc::new(batch.loan());
            let received = receive(attachment, expected, loan, flow.clone(), self.env.turns.clone()).await;
            if received.is_ok() {
                task.reporter.received(flow.bytes()).await;
            }
            received.map(drop)
        }
        .boxed();
        let receiving = stoppable(task, reported(task, || flow.bytes(), || batch.take_fresh(), receiving));
        let (received, failed) = self.with_commits(task, receiving, &batch, whole).await;
        ending(received, batch, failed, flow.bytes()).await
    }

    /// Begins a batch of new files.
    pub(super) fn begin_batch(
        &self,
        task: &Task,
        files: Vec<FilePiece>,
    ) -> (Lent<Batch>, mpsc::UnboundedReceiver<Whole>) {
        let (batch, whole) = Batch::new(self.env.volumes.clone(), task.owner.clone(), files);
        (Lent::new(batch), whole)
    }

    /// Runs `filling` while the pieces it makes whole become durable; ends when both have.
    pub(super) async fn with_commits(
        &self,
        task: &Task,
        filling: impl Future<Output = Result<(), Fault>>,
        batch: &Lent<Batch>,
        mut whole: mpsc::UnboundedReceiver<Whole>,
    ) -> (Result<(), Fault>, Vec<PieceFault>) {
        let (mut commits, mut failed, mut durable) = (FuturesUnordered::new(), Vec::new(), Vec::new());
        let mut filled = None;
        tokio::pin!(filling);
        loop {
            // Threads may make a last piece whole after the filling ended; once none is left, all are in the queue.
            if filled.is_some() && batch.is_lent_to_nobody() && whole.is_empty() && commits.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some(done) = commits.next() => {
                    let mut next = Some(done);
                    while let Some(done) = next {
                        match done {
                            Ok(written) => durable.push(written),
                            Err(fault) => failed.push(fault),
                        }
                        next = commits.next().now_or_never().flatten();
                    }
                    task.reporter.durable(std::mem::take(&mut durable)).await;
                }
                Some(piece) = whole.recv(), if commits.len() < MAX_COMMITS => commits.push(self.commit(piece)),
                result = &mut filling, if filled.is_none() => {
                    self.over.cancel();
                    filled = Some(result);
                }
                () = batch.returned(), if filled.is_some() => {}
            }
        }
        (filled.unwrap_or(Ok(())), failed)
    }

    async fn commit(&self, Whole { piece, draft, sums }: Whole) -> Result<Written, PieceFault> {
        let offset_bytes = piece.range.offset();
        let failed = |fault| PieceFault { offset_bytes, fault };
        let committer = self.env.volumes.committer(&piece.volume).map_err(failed)?;
        committer.commit(draft).await.map_err(|error| failed(error.fault()))?;
        let place = Place::Disk { file: piece.file, offset_bytes: 0 };
        let extent = Extent { volume: piece.volume, place, length_bytes: piece.range.length() };
        Ok(Written { range: piece.range, extent, sums })
    }

    /// Disk files into a channel.
    pub(super) async fn send(&self, task: &Task, pieces: Vec<DiskPiece>, eof: Eof) -> Result<Outcome, Fault> {
        let flow = self.flow(task, Direction::Sent);
        let attachment = attach(task.to.as_ref()).await?;
        if attachment.spec().framing == Framing::Stream {
            in_order(pieces.iter().map(|piece| piece.range))?;
        }
        let supply = Arc::new(Dealer::new(self.env.volumes.clone(), pieces, self.env.parcel_bytes));
        let sending = send(attachment, supply, eof, flow.clone(), self.env.turns.clone()).boxed();
        reported(task, || flow.bytes(), no_ranges, sending).await?;
        Ok(Outcome { bytes: flow.bytes(), ..Outcome::default() })
    }

    /// A channel into a channel.
    pub(super) async fn relay(&self, task: &Task, expected: Option<ByteRange>, eof: Eof) -> Result<Outcome, Fault> {
        let (received, sent) = (self.flow(task, Direction::Received), self.flow(task, Direction::Sent));
        let (from, to) = (attach(task.from.as_ref()).await?, attach(task.to.as_ref()).await?);
        let share = self.env.turns.pool().share().await;
        let hopper = Arc::new(Hopper::new(share, expected, to.spec().framing == Framing::Stream));
        let receiving = async {
            let result = receive(from, expected, hopper.clone(), received.clone(), self.env.turns.clone()).await;
            let complete = result.and_then(|body| match expected {
                Some(expected) if received.bytes() < expected.length() => {
                    let message = format!("the peer sent {} of {} bytes", received.bytes(), expected.length());
                    Err(Fault::new(FaultKind::Incomplete, message))
                }
                _ => Ok(body),
            });
            hopper.end(complete.as_ref().map(drop).map_err(Fault::clone));
            if complete.is_ok() {
                task.reporter.received(received.bytes()).await;
            }
            complete
        };
        let sending = send(to, hopper.clone(), eof, sent.clone(), self.env.turns.clone());
        let both = async { tokio::try_join!(receiving, sending).map(|(body, ())| body) }.boxed();
        let result = reported(task, || sent.bytes(), no_ranges, both).await;
        let bytes = sent.bytes();
        self.env.totals.relayed.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        metrics::relayed(&self.env.mover, bytes);
        result.map(|body| Outcome { bytes, body, ..Outcome::default() })
    }
}

/// Whether an upload that ended so can go on later from what is there. After a peer broke the protocol nobody knows what
/// its bytes are worth.
const fn leaves_something(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::Cancelled
            | FaultKind::PeerLost
            | FaultKind::PeerStalled
            | FaultKind::Incomplete
            | FaultKind::NoSpace
            | FaultKind::ShuttingDown
    )
}

/// That ranges lie one behind the other, as bytes in stream mode do.
pub(super) fn in_order(ranges: impl Iterator<Item = ByteRange>) -> Result<(), Fault> {
    let mut end = None;
    for range in ranges {
        if end.is_some_and(|end| end != range.offset()) {
            let message =
                format!("bytes {range} do not follow the ones before, and stream mode cannot say where they belong");
            return Err(Fault::new(FaultKind::BadRequest, message));
        }
        end = Some(range.end());
    }
    Ok(())
}

/// The end of a batch.
pub(super) async fn ending(
    result: Result<(), Fault>,
    batch: Lent<Batch>,
    mut failed: Vec<PieceFault>,
    bytes: u64,
) -> Ending {
    let batch = batch.take_back().await;
    failed.extend(batch.failed(true));
    failed.sort_by_key(|piece| piece.offset_bytes);
    let outcome = Outcome { bytes, failed, ..Outcome::default() };
    match result {
        Ok(()) => Ending::Finished(outcome),
        Err(fault) => Ending::Failed(fault, outcome),
    }
}
