//! Takes a file: chooses volumes, lets movers receive it, and publishes what they have on stable storage.
//!
//! ```text
//! lay ──► receive ──all bytes──► commit: merge, publish, confirm ──► Done
//!            │ ──first volume refuses──► receive on another
//!            └──cut──► keep as a cut upload, or discard ──► Done(failure)
//! ```
//!
//! - [`foundation`]: what the upload is laid on.
//! - [`mod@receive`]: the movers' part.
//! - [`merge`]: pure: runs become a file.
//!
//! Invariant: the name changes in one transaction, after every byte was synced; until then the old file is whole.

mod foundation;
mod merge;
mod receive;

use std::{collections::BTreeSet, sync::Arc};

use catalog::{
    Base, CatalogError, ClassOfService, Expected, NewFile, NewPartial, Segment, StorageClass, Timestamp, Twins,
};
use wire::{
    checksum::{Algorithm, ExtraSums, Sums},
    extent::Place,
    mover::{FaultKind, VolumeFile, Written},
};

use self::{
    foundation::Foundation,
    merge::{Run, Unfit},
    receive::{Cut, Got, receive},
};
use super::{Publisher, Side, Store, StoreMode, Stored, Summary, crew::Crew, task::Task};
use crate::failure::{Failure, FailureKind};

pub(super) async fn run(task: Arc<Task>, what: Store, publisher: Arc<dyn Publisher>) -> Result<Summary, Failure> {
    let stock = task.unless_stopped(task.inner.shelf.stock(false)).await??;
    let existing = what.target.existing.as_ref().and_then(|entry| entry.file()).map(|file| &file.cos);
    let cos = what.cos.as_ref().or(existing).unwrap_or(&task.inner.limits.default_cos);
    let (class, disk) = stock.class(cos)?;
    let upload = Upload {
        extra: extra_sums(class, &what, &*publisher),
        foundation: foundation::lay(&task, &what, extra_sums(class, &what, &*publisher)).await?,
        publisher: &*publisher,
        task: &task,
        what: &what,
        class,
        disk,
    };
    let _permit = task.permit()?;
    match receive(&upload).await? {
        Ok(got) => upload.commit(got).await,
        Err(cut) => Err(upload.keep(cut).await),
    }
}

/// The sums that the class keeps, the publisher needs, and the one that the client wants compared.
fn extra_sums(class: &ClassOfService, what: &Store, publisher: &dyn Publisher) -> ExtraSums {
    let needed = publisher.extra_sums();
    let wanted = |algorithm| what.sum.as_ref().is_some_and(|(of, _)| *of == algorithm);
    ExtraSums {
        md5: class.extra_sums.md5 || needed.md5 || wanted(Algorithm::Md5),
        sha256: class.extra_sums.sha256 || needed.sha256 || wanted(Algorithm::Sha256),
    }
}

/// An upload under way.
struct Upload<'a> {
    task: &'a Task,
    what: &'a Store,
    class: &'a ClassOfService,
    disk: &'a StorageClass,
    publisher: &'a dyn Publisher,
    extra: ExtraSums,
    foundation: Foundation,
}

impl Upload<'_> {
    /// Publishes what was received, if it is the file.
    async fn commit(self, got: Got) -> Result<Summary, Failure> {
        self.task.card().state("commits");
        let Got { crew, written, summary, body } = got;
        if let Some(report) = body {
            self.publisher.heard(*report);
        }
        let received = self.segments(written)?;
        let runs = self.foundation.runs.iter().cloned();
        let runs = runs.chain(received.iter().map(|(segment, sums)| Run { range: segment.range, sums: *sums }));
        let segments: Vec<_> = received.iter().map(|(segment, _)| segment.clone()).collect();
        let whole = match merge::whole(runs.collect(), self.extra) {
            Ok(whole) => whole,
            Err(unfit) => {
                let path = &self.what.target.path;
                let failure = Failure::new(
                    FailureKind::Mismatch,
                    format_args!("{path} is not complete: {unfit}; what came is kept, send what is missing"),
                );
                let kind = matches!(unfit, Unfit::Gap(_)).then_some(FaultKind::Incomplete);
                return Err(self.keep_segments(crew, segments, failure, kind).await);
            }
        };
        self.compare(whole.size_bytes, &whole.sums)?;
        if self.what.client.as_ref().is_some_and(|client| !client.is_there()) {
            let text = "the client went away before it could say that this was all: send the rest, or the whole again";
            let failure = Failure::new(FailureKind::DataConnectionLost, text);
            return Err(self.keep_segments(crew, segments, failure, Some(FaultKind::PeerLost)).await);
        }
        let published = self.publisher.publish(self.new_file(segments.clone(), whole.size_bytes, whole.sums)).await;
        let published = match published {
            Ok(published) => published,
            // Dropping the crew has the catalogue asked what became of it, when it is back.
            Err(CatalogError::Unavailable { source }) => {
                tracing::warn!(error = %source, "catalogue away while a file was published");
                return Err(Failure::new(
                    FailureKind::Unavailable,
                    format_args!(
                        "the catalogue went away: look whether {} is there, and store it again if not",
                        self.what.target.path
                    ),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        self.settle(crew, &segments);
        if let Some(stager) = self.task.inner.stager.get() {
            stager.published();
            if published.replaced.is_some() {
                stager.deleted();
            }
        }
        if let Some(partial) = self.foundation.replaced {
            // It shares files with what was just published, which the catalogue knows.
            if let Err(error) = self.task.inner.catalog.discard_partial(partial).await {
                tracing::debug!(%error, bitfile = %partial, "cut upload stays until it expires");
            }
        }
        for (_, transfer) in self.foundation.copies {
            transfer.settle();
        }
        let stored = Stored {
            bitfile: published.bitfile,
            size_bytes: whole.size_bytes,
            sums: whole.sums,
            generation: published.generation,
        };
        Ok(Summary { stored: Some(stored), ..summary })
    }

    fn segments(&self, written: Vec<Written>) -> Result<Vec<(Segment, Sums)>, Failure> {
        merge::segments(written, self.foundation.shift_bytes).map_err(|error| {
            Failure::new(FailureKind::Internal, format_args!("a mover reported an impossible range: {error}"))
        })
    }

    /// Compares with what the client announced.
    fn compare(&self, size_bytes: u64, sums: &Sums) -> Result<(), Failure> {
        let path = &self.what.target.path;
        if let Some(announced) = self.what.size_bytes {
            // Clients that go on with a file announce the whole or the rest.
            let rest =
                size_bytes - self.foundation.runs.iter().map(|run| run.range.length()).sum::<u64>().min(size_bytes);
            if announced != size_bytes && (self.foundation.is_nothing() || announced != rest) {
                return Err(Failure::new(
                    FailureKind::Mismatch,
                    format_args!("{path} has {size_bytes} bytes, but {announced} were announced: store it again"),
                ));
            }
        }
        if let Some((algorithm, wanted)) = &self.what.sum {
            let have = sums.hex(*algorithm).unwrap_or_default();
            if !have.eq_ignore_ascii_case(wanted.trim_start_matches("0x")) {
                return Err(Failure::new(
                    FailureKind::Mismatch,
                    format_args!("{algorithm} of {path} is {have}, but {wanted} was announced: store it again"),
                ));
            }
        }
        Ok(())
    }

    fn new_file(&self, segments: Vec<Segment>, size_bytes: u64, sums: Sums) -> NewFile {
        let target = &self.what.target;
        NewFile {
            parent: target.parent,
            name: target.name.clone(),
            expected: Expected::Any,
            twins: Twins::Refuse,
            owner: self.what.principal.account.clone(),
            group: target.group.clone(),
            mode: target.mode,
            acl: None,
            replace_attributes: false,
            modified: self.what.modified_us.map(Timestamp),
            cos: self.class.name.clone(),
            storage_class: self.disk.name.clone(),
            size_bytes,
            sums,
            base: self.foundation.base,
            segments: self.foundation.segments.iter().cloned().chain(segments).collect(),
        }
    }

    /// These segments are in the catalogue: their files stay, other files of these transfers go.
    fn settle(&self, crew: Crew, segments: &[Segment]) {
        let used: BTreeSet<_> = segments.iter().filter_map(file_of).collect();
        let (keep, drop): (Vec<_>, Vec<_>) = crew.files().into_iter().partition(|file| used.contains(file));
        let copies = self.foundation.copies.iter().map(|(file, _)| file.clone());
        self.task.inner.movers.confirm(keep.into_iter().chain(copies).collect());
        crew.settle();
        self.task.inner.movers.discard(drop);
    }

    /// Keeps what came of an upload that was cut, if it may go on later; why it was cut.
    async fn keep(self, cut: Cut) -> Failure {
        let Cut { failure, kind, crew, written } = cut;
        match self.segments(written) {
            Ok(received) => {
                let segments = received.into_iter().map(|(segment, _)| segment).collect();
                self.keep_segments(crew, segments, failure, kind).await
            }
            Err(damaged) => damaged,
        }
    }

    async fn keep_segments(
        self,
        crew: Crew,
        mut segments: Vec<Segment>,
        failure: Failure,
        kind: Option<FaultKind>,
    ) -> Failure {
        let inner = &self.task.inner;
        let may_go_on = !matches!(kind, Some(FaultKind::Overlap | FaultKind::TooLong | FaultKind::PeerProtocol));
        let window = inner.limits.partial_uploads;
        if segments.is_empty()
            || !may_go_on
            || window.is_zero()
            || self.extra.any()
            // By HTTP nobody goes on with what was cut.
            || matches!(self.task.port.spec.side, Side::Http { .. })
            || matches!(self.foundation.base, Base::Append(_))
        {
            return failure;
        }
        let (target, account) = (&self.what.target, &self.what.principal.account);
        // What an earlier upload left does not belong to this one, unless this one went on with it.
        let old = match self.foundation.base {
            Base::Partial(_) => None,
            _ => match inner.catalog.find_partial(target.parent, &target.name, account).await {
                Ok(old) => old.map(|partial| partial.id),
                Err(_) => return failure,
            },
        };
        if let Some(old) = self.foundation.replaced.or(old)
            && inner.catalog.discard_partial(old).await.is_err()
        {
            return failure;
        }
        segments.splice(0..0, self.foundation.segments.iter().cloned());
        let partial = NewPartial {
            parent: target.parent,
            name: target.name.clone(),
            account: account.clone(),
            cos: self.class.name.clone(),
            expected_size_bytes: self.what.size_bytes.filter(|_| self.what.mode == StoreMode::Whole),
            segments: segments.clone(),
            expires: inner.catalog.now().after(window),
        };
        match inner.catalog.save_partial(partial).await {
            Ok(saved) => {
                let bytes: u64 = saved.segments.iter().map(|segment| segment.range.length()).sum();
                tracing::info!(bitfile = %saved.id, bytes, "cut upload kept");
                self.settle(crew, &segments);
                for (_, transfer) in self.foundation.copies {
                    transfer.settle();
                }
            }
            Err(error) => tracing::warn!(%error, "cut upload could not be kept"),
        }
        failure
    }
}

/// The disk file a segment lies in.
fn file_of(segment: &Segment) -> Option<VolumeFile> {
    match segment.extent.place {
        Place::Disk { file, .. } => Some(VolumeFile { volume: segment.extent.volume.clone(), file }),
        Place::Tape { .. } => None,
    }
}
