//! Jobs between disk files: copies, and verification.

use wire::{
    checksum::{ExtraSums, Sums},
    extent::{Extent, Place},
    mover::{Fault, FilePiece, Outcome, PieceFault, Written},
};

use super::{Job, network::ending, no_ranges, reported, stoppable};
use crate::{
    data::{Intake as _, Lane as _},
    job::{
        Ending, Task,
        batch::BatchLane,
        plan::DiskPiece,
        scan::{Reader, scan},
    },
    metrics::Direction,
    sums::Frontier,
};

impl Job {
    /// Disk files into new disk files.
    pub(super) async fn copy(&self, task: &Task, pieces: Vec<DiskPiece>, files: Vec<FilePiece>) -> Ending {
        let flow = self.flow(task, Direction::Local);
        let (batch, whole) = self.begin_batch(task, files);
        let copy = Copy { lane: std::sync::Arc::new(batch.loan()).lane(), flow: flow.clone() };
        let copying = async { scan(&self.env, pieces, copy, flow.clone()).await.map(drop) };
        let copying = stoppable(task, reported(task, || flow.bytes(), no_ranges, copying));
        let (copied, failed) = self.with_commits(task, copying, &batch, whole).await;
        ending(copied, batch, failed, flow.bytes()).await
    }

    /// Disk files are read and compared with their sums; the sums of what is good are reported.
    pub(super) async fn verify(&self, task: &Task, pieces: Vec<DiskPiece>, extra: ExtraSums) -> Result<Outcome, Fault> {
        let flow = self.flow(task, Direction::Local);
        let verify = Verify { extra, frontier: None, outcome: Outcome::default(), flow: flow.clone() };
        let verifying = scan(&self.env, pieces, verify, flow.clone());
        let done = reported(task, || flow.bytes(), no_ranges, verifying).await?;
        Ok(Outcome { bytes: flow.bytes(), ..done.outcome })
    }
}

struct Copy {
    lane: BatchLane,
    flow: std::sync::Arc<crate::data::Flow>,
}

impl Reader for Copy {
    fn data(&mut self, _piece: &DiskPiece, at: u64, data: &[u8]) -> Result<(), Fault> {
        self.flow.moved(data.len() as u64);
        self.lane.put(at, data)
    }

    fn good(&mut self, _piece: &DiskPiece, _sums: Sums) {
        let _ = self.lane.flush();
    }

    fn bad(&mut self, piece: &DiskPiece, fault: Fault) {
        self.lane.fail(piece.range, &fault);
    }
}

struct Verify {
    extra: ExtraSums,
    frontier: Option<Frontier>,
    outcome: Outcome,
    flow: std::sync::Arc<crate::data::Flow>,
}

impl Reader for Verify {
    fn data(&mut self, piece: &DiskPiece, at: u64, data: &[u8]) -> Result<(), Fault> {
        self.flow.moved(data.len() as u64);
        if at == piece.range.offset() {
            self.frontier = Frontier::new(self.extra, at);
        }
        if let Some(frontier) = &mut self.frontier {
            frontier.offer(at, data);
        }
        Ok(())
    }

    fn good(&mut self, piece: &DiskPiece, sums: Sums) {
        let sums = self.frontier.take().map_or(sums, |frontier| frontier.finish(sums));
        let place = Place::Disk { file: piece.file, offset_bytes: piece.offset_bytes };
        let extent = Extent { volume: piece.volume.clone(), place, length_bytes: piece.range.length() };
        self.outcome.written.push(Written { range: piece.range, extent, sums });
    }

    fn bad(&mut self, piece: &DiskPiece, fault: Fault) {
        self.outcome.failed.push(PieceFault { offset_bytes: piece.range.offset(), fault });
    }
}
