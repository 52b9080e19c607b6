//! Tape drives and libraries of a mover, behind handles.
//!
//! - [`drive`]: a drive and its thread.
//! - [`library`]: a robot and its thread.
//! - [`listing`]: what a tape says it holds, page by page.
//! - [`fault`]: what a gateway is told of their errors.
//!
//! Owns the virtual libraries of the process ([`Libraries`]). Knows no network.

mod drive;
mod fault;
mod library;
mod listing;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use daemon::Shutdown;
use tokio::sync::Notify;
use wire::{
    id::{DriveId, LibraryId, VolumeLabel},
    mover::{DriveStatus, Fault, FaultKind},
};

pub(crate) use self::{
    drive::{DriveHandle, ReadEnd, ReadSink},
    library::LibraryHandle,
};
use crate::{
    StartError,
    config::{DriveConfig, LibraryConfig, LibraryKind, MoverConfig},
    tape::{Changer, Drive},
    vtl::{CartridgeKind, Pace, Vtl, VtlSpec},
};

/// The virtual libraries of this process, and where its drives sit: movers that name the same folder share one library,
/// and whoever moves its robot knows every drive in it. Cheap to clone.
#[derive(Clone, Default)]
pub struct Libraries {
    shared: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    folders: HashMap<PathBuf, Vtl>,
    /// Library and serial number of each drive.
    drives: BTreeMap<DriveId, (LibraryId, String)>,
}

impl Libraries {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual library of a folder, if a mover of this process has it open: to look at what its drives did, or to make
    /// it fail in a test.
    #[must_use]
    pub fn virtual_library(&self, folder: &Path) -> Option<Vtl> {
        self.known().folders.get(folder).cloned()
    }

    /// Opens a virtual library, or joins it. May block.
    fn open(&self, config: &LibraryConfig) -> Result<Vtl, StartError> {
        let failed = |reason: String| StartError::Library { name: config.name.clone(), reason };
        let LibraryKind::Virtual { folder, drives, slots, cartridges, capacity, time_scale } = &config.kind else {
            return Err(failed("a library behind /dev/sg cannot be driven yet; use type = \"virtual\"".to_owned()));
        };
        let mut known = self.known();
        if let Some(vtl) = known.folders.get(folder) {
            return Ok(vtl.clone());
        }
        let mut spec = VtlSpec::new(*drives, 0, capacity.bytes());
        for cartridge in cartridges {
            let cleaning = cartridge.as_str().starts_with("CLN");
            let kind = if cleaning { CartridgeKind::Cleaning } else { CartridgeKind::Data };
            spec = spec.with(cartridge.clone(), kind, capacity.bytes());
        }
        spec.slots = slots.unwrap_or_else(|| u16::try_from(cartridges.len()).unwrap_or(u16::MAX).saturating_add(2));
        let vtl = Vtl::open_or_create(folder, &spec).map_err(|error| failed(error.to_string()))?;
        vtl.set_pace(if *time_scale > 0.0 { Pace::Real { scale: *time_scale } } else { Pace::Instant });
        known.folders.insert(folder.clone(), vtl.clone());
        Ok(vtl)
    }

    fn enter(&self, drive: &DriveId, library: &LibraryId, serial: &str) {
        self.known().drives.insert(drive.clone(), (library.clone(), serial.to_owned()));
    }

    fn serial_of(&self, library: &LibraryId, drive: &DriveId) -> Option<String> {
        self.known().drives.get(drive).filter(|(place, _)| place == library).map(|(_, serial)| serial.clone())
    }

    fn drive_of(&self, library: &LibraryId, serial: &str) -> Option<DriveId> {
        let known = self.known();
        let found = known.drives.iter().find(|(_, (place, known))| place == library && known == serial);
        found.map(|(drive, _)| drive.clone())
    }
}

/// The drives and robots of a mover. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Drives {
    drives: Arc<BTreeMap<DriveId, DriveHandle>>,
    libraries: Arc<BTreeMap<LibraryId, LibraryHandle>>,
}

impl Drives {
    /// Opens libraries and starts a thread for each robot and drive.
    ///
    /// # Errors
    ///
    /// [`StartError::Library`] if one cannot be used.
    pub(crate) async fn start(
        config: &MoverConfig,
        libraries: &Libraries,
        changed: &Arc<Notify>,
        shutdown: &Shutdown,
    ) -> Result<Self, StartError> {
        let (mut robots, mut drives) = (BTreeMap::new(), BTreeMap::new());
        for library in &config.libraries {
            let own = config.drives.iter().filter(|drive| drive.library == library.name).cloned().collect();
            let opened = open(library.clone(), own, libraries.clone(), shutdown).await?;
            if library.robot {
                let changer = Changer::new(Box::new(opened.vtl.changer()));
                let handle = LibraryHandle::start(library.name.clone(), changer, libraries.clone(), shutdown);
                robots.insert(library.name.clone(), handle);
            }
            for (drive, serial) in opened.drives {
                let (id, changed) = (drive.id().clone(), changed.clone());
                let handle =
                    DriveHandle::start(drive, library.name.clone(), serial, config.name.clone(), changed, shutdown);
                drives.insert(id, handle);
            }
        }
        Ok(Self { drives: Arc::new(drives), libraries: Arc::new(robots) })
    }

    /// A drive of this mover.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] if there is none of this name.
    pub(crate) fn drive(&self, id: &DriveId) -> Result<&DriveHandle, Fault> {
        self.drives.get(id).ok_or_else(|| Fault::new(FaultKind::BadRequest, format!("this mover has no drive {id}")))
    }

    /// The drive that has a volume attached.
    ///
    /// # Errors
    ///
    /// [`FaultKind::NotFound`] if none has.
    pub(crate) fn with_volume(&self, volume: &VolumeLabel) -> Result<&DriveHandle, Fault> {
        let found = self.drives.values().find(|drive| drive.status().volume.as_ref() == Some(volume));
        found.ok_or_else(|| Fault::new(FaultKind::NotFound, format!("volume {volume} is in no drive of this mover")))
    }

    /// A library whose robot this mover moves.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] if there is none of this name.
    pub(crate) fn library(&self, id: &LibraryId) -> Result<&LibraryHandle, Fault> {
        self.libraries.get(id).ok_or_else(|| {
            Fault::new(FaultKind::BadRequest, format!("this mover does not move the robot of library {id}"))
        })
    }

    /// How each drive is.
    pub(crate) fn status(&self) -> Vec<DriveStatus> {
        self.drives.values().map(DriveHandle::status).collect()
    }

    /// Libraries whose robot this mover moves.
    pub(crate) fn libraries(&self) -> Vec<LibraryId> {
        self.libraries.keys().cloned().collect()
    }
}

struct Opened {
    vtl: Vtl,
    drives: Vec<(Drive, String)>,
}

/// Opens a library and asks its drives for their serial numbers, on a thread of its own.
async fn open(
    library: LibraryConfig,
    drives: Vec<DriveConfig>,
    libraries: Libraries,
    shutdown: &Shutdown,
) -> Result<Opened, StartError> {
    let name = library.name.clone();
    let opening = shutdown.spawn_blocking(move || {
        let vtl = libraries.open(&library)?;
        let mut opened = Vec::new();
        for config in drives {
            let failed = |reason: String| StartError::Library { name: library.name.clone(), reason };
            let nexus = config.index.and_then(|index| vtl.drive(index)).ok_or_else(|| {
                failed(format!("it has {} drives, and drive {} is none of them", vtl.drives(), config.name))
            })?;
            let mut drive = Drive::new(config.name.clone(), Box::new(nexus));
            let serial = drive.serial().map_err(|error| failed(fault::chain(&error)))?;
            libraries.enter(&config.name, &library.name, &serial);
            opened.push((drive, serial));
        }
        Ok(Opened { vtl, drives: opened })
    });
    opening.await.unwrap_or_else(|error| Err(StartError::Library { name, reason: error.to_string() }))
}
