//! One tape drive and its thread.
//!
//! Owns the thread on which the drive's calls block. Talks to [`tape::Drive`](crate::tape::Drive) there. Calls queue up, one
//! after the other; a call that nobody waits for any more is skipped.
//!
//! Invariant: nobody else has the drive's way to the device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::Shutdown;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{info, warn};
use wire::{
    id::{DriveId, Epoch, LibraryId, MoverId, VolumeLabel},
    mover::{DriveHealth, DriveStatus, Fault, FaultKind, Mounted, ScanPlace, Scanned},
};

use super::{fault, listing::Listing};
use crate::{
    scsi::{Remedy, log::TapeAlerts},
    tape::{
        AppendReport, ContainerHeader, Drive, DriveError, Member, MemberSource, NewVolume, Overwrite, SinkError,
        SourceError, Unload, Wanted,
    },
};

/// Calls that may wait for a drive. The gateway's mount service sends few.
const QUEUE: usize = 16;

/// Where the data that is read goes.
pub(crate) type ReadSink = Box<dyn FnMut(usize, &[u8]) -> Result<(), SinkError> + Send>;

/// How a read ended.
pub(crate) struct ReadEnd {
    /// What became of each member.
    pub(crate) members: Vec<Result<(), Fault>>,
    /// Why reading stopped before the last one, if it did.
    pub(crate) stopped: Option<Fault>,
}

/// A drive, seen from outside. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DriveHandle {
    id: DriveId,
    calls: mpsc::Sender<QueuedCall>,
    status: Arc<Mutex<DriveStatus>>,
}

/// What lives on the drive's thread.
struct Owner {
    drive: Drive,
    mover: MoverId,
    status: Arc<Mutex<DriveStatus>>,
    remaining_bytes: u64,
    changed: Arc<Notify>,
    /// The container that is being listed, page by page.
    listing: Listing,
}

/// A call on its way to the thread.
type QueuedCall = Box<dyn FnOnce(&mut Owner) + Send>;

impl DriveHandle {
    /// Starts the thread of a drive.
    pub(crate) fn start(
        drive: Drive,
        library: LibraryId,
        serial: String,
        mover: MoverId,
        changed: Arc<Notify>,
        shutdown: &Shutdown,
    ) -> Self {
        let id = drive.id().clone();
        let status = Arc::new(Mutex::new(DriveStatus {
            drive: id.clone(),
            library,
            serial,
            volume: None,
            activity: "idle".to_owned(),
            health: DriveHealth::Up,
            written_bytes: 0,
            read_bytes: 0,
            mounts: 0,
        }));
        let (calls, mut waiting) = mpsc::channel::<QueuedCall>(QUEUE);
        let mut owner =
            Owner { drive, mover, status: status.clone(), remaining_bytes: 0, changed, listing: Listing::default() };
        shutdown.spawn_blocking(move || {
            while let Some(call) = waiting.blocking_recv() {
                call(&mut owner);
            }
        });
        Self { id, calls, status }
    }

    /// How it is.
    pub(crate) fn status(&self) -> DriveStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs a call on the drive's thread.
    async fn call<T: Send + 'static>(&self, call: impl FnOnce(&mut Owner) -> T + Send + 'static) -> Result<T, Fault> {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(move |owner: &mut Owner| {
            // Cancelled while it waited.
            if !reply.is_closed() {
                let _ = reply.send(call(owner));
            }
        });
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Fault::new(FaultKind::Busy, format!("drive {} has {QUEUE} calls waiting", self.id))
            }
            mpsc::error::TrySendError::Closed(_) => Fault::new(FaultKind::ShuttingDown, "the mover is shutting down"),
        })?;
        answer
            .await
            .map_err(|_| Fault::new(FaultKind::Drive, format!("the thread of drive {} ended in an error", self.id)))
    }

    /// Takes hold of the volume that was moved into the drive.
    pub(crate) async fn attach(
        &self,
        volume: VolumeLabel,
        epoch: Epoch,
        label_blank: bool,
        pool: String,
    ) -> Result<Mounted, Fault> {
        self.call(move |owner| owner.attach(&volume, epoch, label_blank, pool)).await?
    }

    /// Lets go of it, so that it can be moved away.
    pub(crate) async fn detach(&self) -> Result<(), Fault> {
        self.call(Owner::detach).await?
    }

    /// Appends a container; also says what the drive believes is left.
    pub(crate) async fn append(
        &self,
        volume: VolumeLabel,
        container: u32,
        source: impl MemberSource + Send + 'static,
    ) -> Result<(AppendReport, u64), Fault> {
        self.call(move |owner| owner.append(&volume, container, source)).await?
    }

    /// Lists a page of what the tape says it holds.
    pub(crate) async fn scan(
        &self,
        volume: VolumeLabel,
        from: Option<ScanPlace>,
        limit: u32,
    ) -> Result<Scanned, Fault> {
        self.call(move |owner| owner.scan(&volume, from, limit)).await?
    }

    /// Reads members; what became of each is in the order of `wanted`.
    pub(crate) async fn read(
        &self,
        volume: VolumeLabel,
        wanted: Vec<Wanted>,
        sink: ReadSink,
    ) -> Result<ReadEnd, Fault> {
        self.call(move |owner| owner.read(&volume, &wanted, sink)).await?
    }
}

impl Owner {
    fn status(&self) -> MutexGuard<'_, DriveStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doing(&self, activity: &str) {
        activity.clone_into(&mut self.status().activity);
        self.changed.notify_one();
    }

    fn attach(
        &mut self,
        volume: &VolumeLabel,
        epoch: Epoch,
        label_blank: bool,
        pool: String,
    ) -> Result<Mounted, Fault> {
        self.doing("loading");
        self.listing = Listing::default();
        let result = self.try_attach(volume, epoch, label_blank, pool);
        self.status().volume = result.is_ok().then(|| volume.clone());
        let result = self.settle(result);
        if let Ok(mounted) = &result {
            self.remaining_bytes = mounted.remaining_bytes;
            let wants_cleaning = [TapeAlerts::CLEAN_NOW, TapeAlerts::CLEAN_PERIODIC];
            let mut status = self.status();
            status.mounts += 1;
            status.health = match mounted.alerts.iter().find(|flag| wants_cleaning.contains(flag)) {
                Some(flag) => {
                    DriveHealth::Cleaning { reason: format!("TapeAlert {flag}: the drive asks for cleaning") }
                }
                None => DriveHealth::Up,
            };
            info!(drive = %status.drive, %volume, container = mounted.last_container, labelled = mounted.labelled, "volume attached");
        }
        result
    }

    fn try_attach(
        &mut self,
        volume: &VolumeLabel,
        epoch: Epoch,
        label_blank: bool,
        pool: String,
    ) -> Result<Mounted, DriveError> {
        let mut labelled = false;
        let attached = match self.drive.attach(volume, epoch) {
            Err(DriveError::Blank { .. }) if label_blank => {
                labelled = true;
                let new = NewVolume { label: volume.clone(), pool, owner: self.mover.to_string() };
                self.drive.label(&new, Overwrite::OnlyBlank, epoch)?
            }
            other => other?,
        };
        let end = self.drive.append_point()?;
        let (remaining_bytes, capacity_bytes) =
            attached.capacity.map_or((0, 0), |capacity| (capacity.remaining_bytes, capacity.maximum_bytes));
        Ok(Mounted {
            volume: volume.clone(),
            labelled,
            last_container: end.last_sequence,
            next_block: end.next_block,
            capacity_bytes,
            remaining_bytes,
            read_only: attached.write_protected.then(|| "the cartridge is write protected".to_owned()),
            worm: attached.worm,
            alerts: attached.alerts.flags().collect(),
        })
    }

    fn detach(&mut self) -> Result<(), Fault> {
        self.doing("unloading");
        let result = self.drive.detach(Unload::Yes);
        if result.is_ok() {
            let volume = self.status().volume.take();
            info!(drive = %self.drive.id(), volume = volume.map(|volume| volume.to_string()), "volume detached");
        }
        self.settle(result)
    }

    /// That the volume is the attached one.
    fn check(&self, volume: &VolumeLabel) -> Result<(), Fault> {
        match &self.status().volume {
            Some(attached) if attached == volume => Ok(()),
            other => {
                let found = other.as_ref().map_or_else(|| "no volume".to_owned(), ToString::to_string);
                let message = format!("drive {} has {found} attached, not {volume}", self.drive.id());
                Err(Fault::new(FaultKind::WrongVolume, message))
            }
        }
    }

    fn append(
        &mut self,
        volume: &VolumeLabel,
        container: u32,
        source: impl MemberSource,
    ) -> Result<(AppendReport, u64), Fault> {
        self.check(volume)?;
        self.doing("writing");
        let header = ContainerHeader { sequence: container, writer: self.mover.clone() };
        let mut counted = Counted { source, bytes: 0, status: self.status.clone() };
        let result = self.drive.append(&header, &mut counted);
        self.remaining_bytes = self.remaining_bytes.saturating_sub(counted.bytes);
        let remaining = self.remaining_bytes;
        self.settle(result.map(|report| (report, remaining)))
    }

    fn scan(&mut self, volume: &VolumeLabel, from: Option<ScanPlace>, limit: u32) -> Result<Scanned, Fault> {
        self.check(volume)?;
        self.doing("listing what is on the tape");
        let page = self.listing.page(&mut self.drive, from, limit);
        self.settle(page)
    }

    fn read(&mut self, volume: &VolumeLabel, wanted: &[Wanted], mut sink: ReadSink) -> Result<ReadEnd, Fault> {
        self.check(volume)?;
        self.doing("reading");
        let status = self.status.clone();
        let report = self.drive.read(wanted, &mut |index, data| {
            status.lock().unwrap_or_else(PoisonError::into_inner).read_bytes += data.len() as u64;
            sink(index, data)
        });
        let id = self.drive.id().clone();
        let mut members: Vec<_> =
            report.members.into_iter().map(|member| member.map_err(|error| fault::of_drive(&id, error))).collect();
        let by_sink = matches!(report.stopped, Some(DriveError::Sink(_)));
        let stopped = self.settle(report.stopped.map_or(Ok(()), Err)).err();
        match stopped {
            Some(fault) if by_sink => Err(fault),
            stopped => {
                if let Some(fault) = &stopped {
                    members.resize_with(wanted.len(), || Err(fault.clone()));
                }
                Ok(ReadEnd { members, stopped })
            }
        }
    }

    /// Ends a call: notes in the status what its error says of the drive.
    fn settle<T>(&mut self, result: Result<T, DriveError>) -> Result<T, Fault> {
        if self.drive.take_cleaning_request() {
            self.status().health = DriveHealth::Cleaning { reason: "the drive asks for cleaning".to_owned() };
        }
        self.doing("idle");
        result.map_err(|error| {
            let reason = fault::chain(&error);
            match error.remedy() {
                Remedy::QuarantineDrive => {
                    warn!(drive = %self.drive.id(), reason, "drive is down until somebody looks at it");
                    self.status().health = DriveHealth::Down { reason };
                }
                Remedy::Clean => self.status().health = DriveHealth::Cleaning { reason },
                _ => {}
            }
            fault::of_drive(self.drive.id(), error)
        })
    }
}

/// Counts what is written.
struct Counted<S> {
    source: S,
    bytes: u64,
    status: Arc<Mutex<DriveStatus>>,
}

impl<S: MemberSource> MemberSource for Counted<S> {
    fn next_member(&mut self) -> Result<Option<Member>, SourceError> {
        self.source.next_member()
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        let count = self.source.read(buf)?;
        self.bytes += count as u64;
        self.status.lock().unwrap_or_else(PoisonError::into_inner).written_bytes += count as u64;
        Ok(count)
    }
}
