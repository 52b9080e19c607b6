//! Jobs with a tape on one side.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use wire::{
    checksum::Sums,
    extent::ByteRange,
    mover::{Append, Eof, Fault, FaultKind, FilePiece, Framing, Outcome, PieceFault, Written},
};

use super::{
    Job, attach,
    network::{ending, in_order},
    no_ranges, reported, stoppable,
};
use crate::{
    data::{Flow, Intake as _, receive, send},
    drives::{ReadEnd, ReadSink},
    job::{
        Ending, Task,
        hopper::Hopper,
        plan::{DiskPiece, TapeRead},
        tape::{Bytes, ChannelBytes, Destination, DiskBytes, Members, Unpack, appended, unread, wanted},
    },
    metrics::Direction,
};

impl Job {
    /// Disk files onto a tape.
    pub(super) async fn migrate(&self, task: &Task, pieces: Vec<DiskPiece>, append: Append) -> Result<Outcome, Fault> {
        let bytes = Bytes::Disk(DiskBytes::new(self.env.volumes.clone(), pieces));
        let flow = self.flow(task, Direction::Local);
        reported(task, || flow.bytes(), no_ranges, self.append(append, bytes, &flow)).await
    }

    async fn append(&self, append: Append, bytes: Bytes, flow: &Arc<Flow>) -> Result<Outcome, Fault> {
        let drive = self.env.drives.drive(&append.drive)?;
        let members = Members::new(&append, bytes, flow.clone());
        let (report, remaining) = drive.append(append.volume.clone(), append.container, members).await?;
        Ok(appended(&append, &report, remaining))
    }

    /// A channel onto a tape.
    pub(super) async fn receive_to_tape(
        &self,
        task: &Task,
        expected: Option<ByteRange>,
        append: Append,
    ) -> Result<Outcome, Fault> {
        let received = self.flow(task, Direction::Received);
        let written = self.flow(task, Direction::Local);
        let attachment = attach(task.from.as_ref()).await?;
        let hopper = Arc::new(Hopper::new(self.env.turns.pool().share().await, expected, true));
        // However this ends, the thread of the drive does not wait for bytes any longer.
        let _end = EndOnDrop(hopper.clone());
        let bytes = Bytes::Channel(ChannelBytes::new(hopper.clone(), tokio::runtime::Handle::current()));
        let appending = self.append(append, bytes, &written);
        let receiving = async {
            let result = receive(attachment, expected, hopper.clone(), received.clone(), self.env.turns.clone()).await;
            let result = result.map(drop);
            hopper.end(result.clone());
            if result.is_ok() {
                task.reporter.received(received.bytes()).await;
            }
            result
        };
        let both = async {
            tokio::pin!(appending, receiving);
            tokio::select! {
                // The tape is full, or failed: the peer is cut off, and what is on the tape is reported.
                appended = &mut appending => appended,
                result = &mut receiving => {
                    // A failed source has ended the container too; its own reason is the better one.
                    let appended = appending.await;
                    result.and(appended)
                }
            }
        };
        reported(task, || received.bytes(), no_ranges, both).await
    }

    /// A tape into a channel.
    pub(super) async fn send_tape(&self, task: &Task, read: TapeRead, eof: Eof) -> Result<Outcome, Fault> {
        let flow = self.flow(task, Direction::Sent);
        let attachment = attach(task.to.as_ref()).await?;
        let ordered = attachment.spec().framing == Framing::Stream;
        if ordered {
            in_order(read.pieces.iter().map(|piece| piece.range))?;
        }
        let first = read.pieces.first().map(|piece| ByteRange::new(piece.range.offset(), 0).expect("part of a range"));
        let hopper = Arc::new(Hopper::new(self.env.turns.pool().share().await, first, ordered));
        let _end = EndOnDrop(hopper.clone());
        let lane = hopper.lane();
        let reading = async {
            let destination = Destination::Channel(lane, tokio::runtime::Handle::current());
            let result = match self.read_members(&read, destination, None).await {
                Ok(Read { stopped: Some(fault), .. }) => Err(fault),
                other => other.map(|read| read.failed),
            };
            // In stream mode a peer cannot be told that a part is missing: the connection is cut instead.
            let result = match result {
                Ok(failed) if ordered => match failed.into_iter().next() {
                    Some(first) => Err(first.fault),
                    None => Ok(Vec::new()),
                },
                other => other,
            };
            hopper.end(result.as_ref().map(drop).map_err(Fault::clone));
            result
        };
        let sending = send(attachment, hopper.clone(), eof, flow.clone(), self.env.turns.clone());
        let both = async { tokio::try_join!(reading, sending).map(|(failed, ())| failed) };
        let failed = reported(task, || flow.bytes(), no_ranges, both).await?;
        Ok(Outcome { bytes: flow.bytes(), failed, ..Outcome::default() })
    }

    /// A tape into new disk files.
    pub(super) async fn recall(&self, task: &Task, read: TapeRead, files: Vec<FilePiece>) -> Ending {
        let (batch, whole) = self.begin_batch(task, files);
        let lane = Arc::new(batch.loan()).lane();
        let flow = self.flow(task, Direction::Local);
        let reading = async {
            let Read { destination, failed, stopped } =
                self.read_members(&read, Destination::Files(Box::new(lane)), Some(flow.clone())).await?;
            if let Destination::Files(mut lane) = destination {
                let faults: BTreeMap<_, _> = failed.iter().map(|piece| (piece.offset_bytes, &piece.fault)).collect();
                for piece in &read.pieces {
                    if let Some(fault) = faults.get(&piece.range.offset()) {
                        lane.fail(piece.range, fault);
                    }
                }
            }
            stopped.map_or(Ok(()), Err)
        };
        let reading = stoppable(task, reported(task, || flow.bytes(), no_ranges, reading));
        let (result, failed) = self.with_commits(task, reading, &batch, whole).await;
        ending(result, batch, failed, flow.bytes()).await
    }

    /// A tape is read and compared with its sums; the sums of what is good are reported.
    pub(super) async fn verify_tape(&self, task: &Task, read: TapeRead) -> Result<Outcome, Fault> {
        let flow = self.flow(task, Direction::Local);
        let sums = Destination::Sums(vec![Sums::EMPTY; read.pieces.len()]);
        let reading = self.read_members(&read, sums, Some(flow.clone()));
        let Read { destination, mut failed, stopped } = reported(task, || flow.bytes(), no_ranges, reading).await?;
        if let Some(fault) = stopped {
            return Err(fault);
        }
        let Destination::Sums(sums) = destination else { return Ok(Outcome::default()) };
        let mut written = Vec::new();
        for (piece, sums) in read.pieces.iter().zip(sums) {
            let offset_bytes = piece.range.offset();
            if failed.iter().any(|fault| fault.offset_bytes == offset_bytes) {
                continue;
            }
            match piece.piece.sums.and_then(|wanted| wanted.difference(&sums)) {
                None => written.push(Written { range: piece.range, extent: piece.piece.extent.clone(), sums }),
                Some(algorithm) => {
                    let message =
                        format!("bitfile {} on volume {} has another {algorithm}", piece.bitfile, read.volume);
                    failed.push(PieceFault { offset_bytes, fault: Fault::new(FaultKind::Corrupt, message) });
                }
            }
        }
        Ok(Outcome { bytes: flow.bytes(), written, failed, ..Outcome::default() })
    }

    async fn read_members(
        &self,
        read: &TapeRead,
        destination: Destination,
        flow: Option<Arc<Flow>>,
    ) -> Result<Read, Fault> {
        if read.pieces.is_empty() {
            return Ok(Read { destination, failed: Vec::new(), stopped: None });
        }
        let drive = self.env.drives.with_volume(&read.volume)?;
        let unpack = Arc::new(Mutex::new(Unpack::new(&read.pieces, destination, self.over.clone())));
        let inner = unpack.clone();
        let sink: ReadSink = Box::new(move |index, data| {
            if let Some(flow) = &flow {
                flow.moved(data.len() as u64);
            }
            inner.lock().unwrap_or_else(PoisonError::into_inner).take(index, data)
        });
        let ReadEnd { members, stopped } = drive.read(read.volume.clone(), wanted(&read.pieces), sink).await?;
        let failed = unread(&read.pieces, &members);
        let unpack = Arc::into_inner(unpack).expect("the drive let go of its sink before it answered");
        let destination = unpack.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
        Ok(Read { destination, failed, stopped })
    }
}

/// What came of reading members.
struct Read {
    destination: Destination,
    failed: Vec<PieceFault>,
    stopped: Option<Fault>,
}

/// Ends a hopper when the job is dropped.
struct EndOnDrop(Arc<Hopper>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Err(Fault::new(FaultKind::Cancelled, "the transfer was stopped")));
    }
}
