//! One library's robot and its thread.
//!
//! Owns the thread on which the robot's calls block. Talks to [`tape::Changer`](crate::tape::Changer) there. A move whose
//! outcome is not known is never repeated: the next call reads the inventory first.

use daemon::Shutdown;
use tokio::sync::{mpsc, oneshot};
use tracing::info;
use wire::{
    id::{DriveId, LibraryId, VolumeLabel},
    mover::{Fault, FaultKind, MoveTo, Slot, SlotKind},
};

use super::{Libraries, fault};
use crate::{
    scsi::ElementKind,
    tape::{Changer, ChangerError},
};

/// Calls that may wait for a robot.
const QUEUE: usize = 64;

/// What the bar codes of cleaning cartridges begin with.
const CLEANING_PREFIX: &str = "CLN";

/// A robot, seen from outside. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LibraryHandle {
    id: LibraryId,
    calls: mpsc::Sender<QueuedCall>,
}

struct Owner {
    id: LibraryId,
    changer: Changer,
    libraries: Libraries,
}

/// A call on its way to the thread.
type QueuedCall = Box<dyn FnOnce(&mut Owner) + Send>;

impl LibraryHandle {
    /// Starts the thread of a robot.
    pub(crate) fn start(id: LibraryId, changer: Changer, libraries: Libraries, shutdown: &Shutdown) -> Self {
        let (calls, mut waiting) = mpsc::channel::<QueuedCall>(QUEUE);
        let mut owner = Owner { id: id.clone(), changer, libraries };
        shutdown.spawn_blocking(move || {
            while let Some(call) = waiting.blocking_recv() {
                call(&mut owner);
            }
        });
        Self { id, calls }
    }

    async fn call<T: Send + 'static>(&self, call: impl FnOnce(&mut Owner) -> T + Send + 'static) -> Result<T, Fault> {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(move |owner: &mut Owner| {
            let _ = reply.send(call(owner));
        });
        self.calls.try_send(call).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Fault::new(FaultKind::Busy, format!("library {} has {QUEUE} moves waiting", self.id))
            }
            mpsc::error::TrySendError::Closed(_) => Fault::new(FaultKind::ShuttingDown, "the mover is shutting down"),
        })?;
        answer
            .await
            .map_err(|_| Fault::new(FaultKind::Library, format!("the thread of library {} ended in an error", self.id)))
    }

    /// What is where.
    pub(crate) async fn inventory(&self) -> Result<Vec<Slot>, Fault> {
        self.call(Owner::inventory).await?
    }

    /// Moves a cartridge. Not cancel-safe in effect: a move that has begun is finished.
    pub(crate) async fn move_to(&self, volume: VolumeLabel, to: MoveTo) -> Result<(), Fault> {
        self.call(move |owner| owner.move_to(&volume, &to)).await?
    }
}

impl Owner {
    fn failed(&self, error: &ChangerError) -> Fault {
        Fault::new(FaultKind::Library, format!("library {}: {}", self.id, fault::chain(error)))
    }

    fn inventory(&mut self) -> Result<Vec<Slot>, Fault> {
        let elements = match self.changer.inventory() {
            Ok(inventory) => inventory.elements.clone(),
            Err(error) => return Err(self.failed(&error)),
        };
        let slot = |element: crate::scsi::element::Element| {
            let kind = match element.kind {
                ElementKind::Slot => SlotKind::Storage,
                ElementKind::Mail => SlotKind::ImportExport,
                ElementKind::Drive => {
                    let serial = element.device.clone().unwrap_or_default();
                    SlotKind::Drive { drive: self.libraries.drive_of(&self.id, &serial), serial }
                }
                ElementKind::Robot => return None,
            };
            let cleaning = element.tag.as_ref().is_some_and(|tag| tag.starts_with(CLEANING_PREFIX));
            let exception = element.exception.map(|(asc, ascq)| format!("exception {asc:02x}/{ascq:02x}"));
            let volume = element.tag.and_then(|tag| VolumeLabel::new(tag).ok());
            Some(Slot { element: element.address, kind, volume, full: element.full, cleaning, exception })
        };
        Ok(elements.into_iter().filter_map(slot).collect())
    }

    fn move_to(&mut self, volume: &VolumeLabel, to: &MoveTo) -> Result<(), Fault> {
        let slots = self.inventory()?;
        let Some(from) = slots.iter().find(|slot| slot.volume.as_ref() == Some(volume)) else {
            return Err(Fault::new(FaultKind::NotFound, format!("cartridge {volume} is not in library {}", self.id)));
        };
        let here = match &from.kind {
            SlotKind::Drive { serial, .. } => Some(serial.clone()),
            SlotKind::Storage | SlotKind::ImportExport => None,
        };
        let moved = match (to, here) {
            (MoveTo::Slot, None) => return Ok(()),
            (MoveTo::Slot, Some(serial)) => self.changer.unload(&serial).map(drop),
            (MoveTo::Drive(drive), here) => {
                let serial = self.serial_of(drive)?;
                match here {
                    Some(here) if here == serial => return Ok(()),
                    Some(_) => {
                        let message =
                            format!("cartridge {volume} is in another drive; bring it back to its slot first");
                        return Err(Fault::new(FaultKind::Library, message));
                    }
                    None => self.changer.load(volume, &serial),
                }
            }
        };
        match moved {
            Ok(()) => {
                info!(library = %self.id, %volume, ?to, "cartridge moved");
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn serial_of(&self, drive: &DriveId) -> Result<String, Fault> {
        self.libraries.serial_of(&self.id, drive).ok_or_else(|| {
            Fault::new(FaultKind::BadRequest, format!("drive {drive} is not known to be in library {}", self.id))
        })
    }
}
