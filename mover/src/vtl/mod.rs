//! The virtual tape library: an SMC-3 changer and SSC drives at the level of SCSI commands, over a folder.
//!
//! The embedded default of `penstock serve`, and the oracle of every tape test. It answers as a real library does,
//! with its bar codes, filemarks, early warning, WORM and cleaning cartridges, unit attentions per nexus, logical block
//! protection, persistent reservations, TapeAlert and the memory chips of its cartridges, and it takes the time a real
//! library takes if told so ([`Pace`]). Tests make it fail by [`Vtl::fail_next`] and its siblings.
//!
//! Owns its folder: a lock file keeps a second process out. Never looks at what is on a tape.
//!
//! ```text
//! DIR/lock                     held while open
//! DIR/library.json             generation, elements, what is where
//! DIR/cartridges/PEN001L8/     data, index, chip.json
//! ```
//!
//! Invariant: what a synchronous WRITE FILEMARKS confirmed survives `kill -9` and a power cut; what it did not may be
//! lost, but is never half there.

mod drive;
mod faults;
mod library;
mod medium;
mod pace;
mod persist;
mod reserve;
mod spec;
#[cfg(test)]
mod tests;
mod timing;

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use self::drive::DriveUnit;
use self::library::Library;
use crate::scsi::{Cdb, CdbError, Completion, DataPhase, ScsiError, ScsiTransport, Sense, SenseKey};

pub use drive::Activity;
pub use faults::Failure;
pub use medium::CartridgeKind;
pub use pace::{Pace, VirtualClock};
pub use spec::{CartridgeSpec, VtlSpec};
pub use timing::{Generation, Operation, Timing};

/// One initiator's way to one unit, as the units tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NexusId(u64);

/// A unit of the library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// The robot.
    Changer,
    /// A drive, counted from 0.
    Drive(u16),
}

/// A virtual tape library; clones are the same library.
#[derive(Clone)]
pub struct Vtl {
    shared: Arc<Shared>,
}

struct Shared {
    library: Mutex<Library>,
    drives: Vec<Mutex<DriveUnit>>,
    pace: RwLock<Pace>,
    next_nexus: AtomicU64,
    _lock: Flock<File>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A unit whose command panicked is as usable as one that was reset.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vtl {
    /// Makes a library in a folder, which is made too if need be.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if there is one already; `InvalidInput` if `spec` describes none that can be.
    pub fn create(folder: &Path, spec: &VtlSpec) -> io::Result<Self> {
        if folder.join("library.json").exists() {
            let text = format!("{} holds a virtual tape library already", folder.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Library::create(folder, spec)?;
        Self::open(folder)
    }

    /// Opens the library of a folder. Cartridges that were in drives are in them again, rewound.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none; `WouldBlock` if another process has it open; `InvalidData` if its files are not
    /// ours.
    pub fn open(folder: &Path) -> io::Result<Self> {
        if !folder.join("library.json").exists() {
            let text = format!("{} holds no virtual tape library", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
            let text = format!("{} is in use by another process ({error})", folder.display());
            io::Error::new(io::ErrorKind::WouldBlock, text)
        })?;
        let (library, drives) = Library::open(folder)?;
        let shared = Shared {
            library: Mutex::new(library),
            drives: drives.into_iter().map(Mutex::new).collect(),
            pace: RwLock::default(),
            next_nexus: AtomicU64::new(1),
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens the library of a folder, or makes it as `spec` says if there is none.
    ///
    /// # Errors
    ///
    /// As [`Vtl::open`] and [`Vtl::create`].
    pub fn open_or_create(folder: &Path, spec: &VtlSpec) -> io::Result<Self> {
        match Self::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(folder, spec),
            other => other,
        }
    }

    /// How the library passes its time from now on; [`Pace::Instant`] until this is called.
    pub fn set_pace(&self, pace: Pace) {
        *self.shared.pace.write().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// How many drives there are.
    #[must_use]
    pub fn drives(&self) -> u16 {
        lock(&self.shared.library).layout().drives
    }

    /// Of its drives.
    #[must_use]
    pub fn generation(&self) -> Generation {
        lock(&self.shared.library).layout().generation
    }

    /// A new nexus to the robot.
    #[must_use]
    pub fn changer(&self) -> Nexus {
        self.nexus(Unit::Changer)
    }

    /// A new nexus to a drive, counted from 0; `None` if there are not so many.
    #[must_use]
    pub fn drive(&self, index: u16) -> Option<Nexus> {
        self.shared.drives.get(usize::from(index))?;
        Some(self.nexus(Unit::Drive(index)))
    }

    fn nexus(&self, unit: Unit) -> Nexus {
        let id = NexusId(self.shared.next_nexus.fetch_add(1, Ordering::Relaxed));
        Nexus { shared: Arc::clone(&self.shared), unit, id, owed: Duration::ZERO }
    }

    /// What a drive did since the library was opened.
    #[must_use]
    pub fn activity(&self, drive: u16) -> Option<Activity> {
        self.unit(drive).map(|unit| unit.activity)
    }

    fn unit(&self, drive: u16) -> Option<MutexGuard<'_, DriveUnit>> {
        self.shared.drives.get(usize::from(drive)).map(lock)
    }

    /// A person puts a new cartridge into a mail slot, or into a slot if none is free.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if a cartridge of that bar code is there; `StorageFull` if no slot is free.
    pub fn insert(&self, cartridge: &CartridgeSpec) -> io::Result<()> {
        lock(&self.shared.library).insert(cartridge)
    }

    /// A person takes a cartridge out of a mail slot.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is in none.
    pub fn remove(&self, barcode: &str) -> io::Result<()> {
        lock(&self.shared.library).remove(barcode)
    }
}

/// Fault hooks. Hooks on a drive that does not exist do nothing.
impl Vtl {
    /// The next command of a unit, or its next of that name (`"MOVE MEDIUM"`), goes wrong once.
    pub fn fail_next(&self, unit: Unit, command: Option<&'static str>, failure: Failure) {
        match unit {
            Unit::Changer => lock(&self.shared.library).faults.order(command, failure),
            Unit::Drive(drive) => {
                if let Some(mut unit) = self.unit(drive) {
                    unit.faults.order(command, failure);
                }
            }
        }
    }

    /// Reading a block fails that many times.
    pub fn fail_read(&self, drive: u16, block: u64, sense: Sense, times: u32) {
        if let Some(mut unit) = self.unit(drive) {
            unit.faults.order_read(block, sense, times);
        }
    }

    /// Writing a block fails that many times; the block is not written.
    pub fn fail_write(&self, drive: u16, block: u64, sense: Sense, times: u32) {
        if let Some(mut unit) = self.unit(drive) {
            unit.faults.order_write(block, sense, times);
        }
    }

    /// The next time the buffer is to be drained, it is lost, and this is said as a deferred error.
    pub fn fail_sync(&self, drive: u16, sense: Sense) {
        if let Some(mut unit) = self.unit(drive) {
            unit.faults.at_sync = Some(sense);
        }
    }

    /// A bit of a block is changed on its way from the drive to the host, once.
    pub fn flip_bit(&self, drive: u16, block: u64) {
        if let Some(mut unit) = self.unit(drive) {
            unit.faults.order_flip(block);
        }
    }

    /// Somebody resets a drive.
    pub fn reset(&self, drive: u16) {
        if let Some(mut unit) = self.unit(drive) {
            unit.reset();
        }
    }

    /// A drive loses power, and with it what was not flushed.
    pub fn power_cut(&self, drive: u16) {
        if let Some(mut unit) = self.unit(drive) {
            unit.power_cut();
        }
    }

    /// A TapeAlert flag goes up.
    pub fn raise_alert(&self, drive: u16, flag: u8) {
        if let Some(mut unit) = self.unit(drive) {
            unit.raise_alert(flag);
        }
    }

    /// The bar code reader takes one cartridge for another from now on.
    pub fn misread(&self, barcode: &str, read_as: &str) {
        lock(&self.shared.library).misread.insert(barcode.to_owned(), read_as.to_owned());
    }
}

/// One initiator's way to one unit of a library.
pub struct Nexus {
    shared: Arc<Shared>,
    unit: Unit,
    id: NexusId,
    owed: Duration,
}

impl Nexus {
    /// Performs a command that came as bytes, as an iSCSI target gets it.
    ///
    /// # Errors
    ///
    /// As [`ScsiTransport::execute`]; bytes that are no command of ours are a completion, not an error.
    pub fn execute_bytes(&mut self, cdb: &[u8], data: DataPhase<'_>) -> Result<Completion, ScsiError> {
        let length = data.length();
        let refused = |asc| Completion {
            residual_bytes: length,
            ..Completion::check(Sense::new(SenseKey::IllegalRequest, asc, 0x00))
        };
        match Cdb::decode(cdb) {
            Ok(cdb) => self.execute(&cdb, data),
            Err(CdbError::UnknownOperation(_)) => Ok(refused(0x20)),
            Err(CdbError::InvalidField { .. } | CdbError::Short) => Ok(refused(0x24)),
        }
    }
}

impl ScsiTransport for Nexus {
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Result<Completion, ScsiError> {
        let (answer, cost) = match self.unit {
            Unit::Changer => {
                let mut library = lock(&self.shared.library);
                let failure = library.faults.take(cdb);
                failing(failure, || library.execute(&self.shared.drives, self.id, cdb, data))
            }
            Unit::Drive(index) => {
                let mut drive = lock(&self.shared.drives[usize::from(index)]);
                let failure = drive.faults.take(cdb);
                failing(failure, || drive.execute(self.id, cdb, data))
            }
        };
        if !cost.is_zero() {
            // The unit is not locked while its time passes: others may ask how it is.
            let pace = self.shared.pace.read().unwrap_or_else(PoisonError::into_inner).clone();
            pace.pass(cost, &mut self.owed);
        }
        answer
    }
}

type Answered = (Result<Completion, ScsiError>, Duration);

/// Performs a command the way an ordered failure wants it.
fn failing(failure: Option<Failure>, perform: impl FnOnce() -> (Completion, Duration)) -> Answered {
    match failure {
        None => {
            let (completion, cost) = perform();
            (Ok(completion), cost)
        }
        Some(Failure::Sense(sense)) => (Ok(Completion::check(sense)), Duration::ZERO),
        Some(Failure::Lost) => (Err(ScsiError::Timeout), Duration::ZERO),
        Some(Failure::AnswerLost) => (Err(ScsiError::Timeout), perform().1),
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        match self.unit {
            Unit::Changer => lock(&self.shared.library).forget(self.id),
            Unit::Drive(index) => lock(&self.shared.drives[usize::from(index)]).forget(self.id),
        }
    }
}
