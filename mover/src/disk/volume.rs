//! One disk volume: a folder with a file for each segment file.
//!
//! Owns the folder, its identity lock, its space account and the list of files nobody confirmed. Talks to the file
//! system; every call here may block, and runs on a thread where that is allowed. Never sees the network, a file's name
//! or a user.
//!
//! Invariants: a file below `incoming` or `data` is whole and was synced, or is a partial upload whose ranges were synced
//! and reported; no file is overwritten by another; what is below `tmp` belongs to a [`Draft`] of this process.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
    time::{Duration, SystemTime},
};

use tokio::sync::Notify;
use tracing::{info, warn};
use wire::{
    id::{FileId, GatewayId, VolumeLabel},
    mover::{VolumeHealth, VolumeStatus},
};

use super::{
    draft::Draft,
    error::DiskError,
    identity::{self, Identity},
    layout::{self, Owner},
    space::{Full, Space},
    sys,
};

/// Files that may wait to be written out early.
const WRITEBACK_QUEUE: usize = 64;

/// A file that nobody confirmed for so long is shown to every gateway: its own is not coming back.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The most files one page of [`Volume::list`] has.
const MAX_PAGE: usize = 10_000;

/// Where a volume is and how much it may hold.
#[derive(Clone, Debug)]
pub(crate) struct VolumeOptions {
    pub(crate) label: VolumeLabel,
    pub(crate) folder: PathBuf,
    /// `None`: what the file system has.
    pub(crate) capacity_bytes: Option<u64>,
    /// What is left to others on the same file system.
    pub(crate) keep_free_bytes: u64,
    pub(crate) uuid: Option<String>,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
}

/// A disk volume that is in use. Shared; every method may block.
pub(crate) struct Volume {
    label: VolumeLabel,
    root: PathBuf,
    keep_free_bytes: u64,
    incoming_folder: File,
    // Small accounts behind locks, not an owner task: they are touched by the threads that move blocks, for nanoseconds.
    space: Mutex<Space>,
    health: Mutex<VolumeHealth>,
    busy: Mutex<HashSet<FileId>>,
    unconfirmed: Mutex<HashMap<FileId, Owner>>,
    changed: Arc<Notify>,
    /// The way to the thread that asks the kernel to write out; see [`Volume::write_back`].
    dirty: OnceLock<SyncSender<Arc<File>>>,
    _identity: Identity,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a file takes on the device.
pub(super) fn allocated_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

impl Volume {
    /// Takes a folder as a volume: checks and locks its identity, removes what a crash left half-written, counts what
    /// is there. `changed` is told when its health changes.
    ///
    /// # Errors
    ///
    /// A sentence for the operator: the volume is down.
    pub(crate) fn open(options: &VolumeOptions, changed: Arc<Notify>) -> Result<Arc<Self>, String> {
        let label = &options.label;
        let identity = identity::take(&options.folder, label, options.uuid.as_deref(), options.create)
            .map_err(|error| error.to_string())?;
        let folder = |name: &str| {
            let path = options.folder.join(name);
            fs::create_dir_all(&path).map_err(|error| format!("create {}: {error}", path.display()))?;
            Ok::<_, String>(path)
        };
        let (temporary, incoming, data) =
            (folder(layout::TEMPORARY)?, folder(layout::INCOMING)?, folder(layout::DATA)?);
        let said = |path: &Path, error: io::Error| format!("read {}: {error}", path.display());
        let removed = clear(&temporary).map_err(|error| said(&temporary, error))?;
        let (unconfirmed, incoming_bytes) = scan_incoming(&incoming).map_err(|error| said(&incoming, error))?;
        let data_bytes = count(&data).map_err(|error| said(&data, error))?;
        let used_bytes = incoming_bytes.saturating_add(data_bytes);
        let free_bytes = device_free(&options.folder).map_err(|error| said(&options.folder, error))?;
        let capacity_bytes = options
            .capacity_bytes
            .unwrap_or_else(|| used_bytes.saturating_add(free_bytes.saturating_sub(options.keep_free_bytes)));
        let incoming_folder = File::open(&incoming).map_err(|error| said(&incoming, error))?;
        let health = if options.read_only {
            VolumeHealth::ReadOnly { reason: "the configuration says read_only".to_owned() }
        } else {
            VolumeHealth::Up
        };
        info!(volume = %label, uuid = identity.uuid, used_bytes, capacity_bytes, unconfirmed = unconfirmed.len(), removed, "volume ready");
        Ok(Arc::new(Self {
            label: label.clone(),
            root: options.folder.clone(),
            keep_free_bytes: options.keep_free_bytes,
            incoming_folder,
            space: Mutex::new(Space::new(capacity_bytes, used_bytes)),
            health: Mutex::new(health),
            busy: Mutex::default(),
            unconfirmed: Mutex::new(unconfirmed),
            changed,
            dirty: OnceLock::new(),
            _identity: identity,
        }))
    }

    /// Its label.
    pub(crate) const fn label(&self) -> &VolumeLabel {
        &self.label
    }

    /// How it is.
    pub(crate) fn status(&self) -> VolumeStatus {
        let health = lock(&self.health).clone();
        let mut status =
            VolumeStatus { volume: self.label.clone(), capacity_bytes: 0, used_bytes: 0, reserved_bytes: 0, health };
        lock(&self.space).fill(&mut status);
        status
    }

    /// Begins a new file below `tmp`, with `reserve_bytes` promised to it.
    pub(crate) fn create(self: &Arc<Self>, id: FileId, owner: &Owner, reserve_bytes: u64) -> Result<Draft, DiskError> {
        self.writable()?;
        let claim = self.claim(id)?;
        if self.exists(id) {
            return Err(DiskError::Exists { volume: self.label.clone(), file: id });
        }
        let reservation = self.reserve(reserve_bytes).map(|()| reserve_bytes)?;
        let path = self.root.join(layout::TEMPORARY).join(layout::unconfirmed_name(id, owner));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => Ok(Draft::new(claim, file, path, owner.clone(), reservation)),
            Err(source) => {
                self.release(reservation);
                Err(self.write_failed("create", id, source))
            }
        }
    }

    /// Goes on writing a file that is here already: a partial upload. It stays where it is.
    pub(crate) fn grow(self: &Arc<Self>, id: FileId, reserve_bytes: u64) -> Result<Draft, DiskError> {
        self.writable()?;
        let claim = self.claim(id)?;
        let file = self.open_with(id, File::options().read(true).write(true))?;
        let before_bytes = file.metadata().map(|metadata| allocated_bytes(&metadata)).unwrap_or(0);
        self.reserve(reserve_bytes)?;
        Ok(Draft::growing(claim, file, before_bytes, reserve_bytes))
    }

    /// Opens a file for reading.
    pub(crate) fn read(&self, id: FileId) -> Result<Arc<File>, DiskError> {
        if let VolumeHealth::Down { reason } = &*lock(&self.health) {
            return Err(DiskError::Down { volume: self.label.clone(), reason: reason.clone() });
        }
        self.open_with(id, File::options().read(true)).map(Arc::new)
    }

    fn open_with(&self, id: FileId, options: &fs::OpenOptions) -> Result<File, DiskError> {
        // A confirmation may move the file between the look at the list and the call: look again.
        let mut opened = options.open(self.path_of(id));
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            opened = options.open(self.path_of(id));
        }
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DiskError::NotFound { volume: self.label.clone(), file: id },
            _ => DiskError::Io { action: "open", volume: self.label.clone(), file: id, source },
        })
    }

    /// Moves confirmed files to their place. Not synced: a crash makes them unconfirmed again. A file that is not
    /// waiting for it is left alone.
    pub(crate) fn confirm(&self, files: &[FileId]) {
        for &id in files {
            let mut unconfirmed = lock(&self.unconfirmed);
            let Some(owner) = unconfirmed.get(&id) else { continue };
            let from = self.incoming_path(id, owner);
            let to = layout::data_path(&self.root, id);
            let moved = match fs::rename(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::rename(&from, &to))
                }
                other => other,
            };
            match moved {
                Ok(()) => drop(unconfirmed.remove(&id)),
                // It stays where it is, is read from there, and is reported again later.
                Err(error) => warn!(volume = %self.label, file = %id, %error, "confirmed file could not be moved"),
            }
        }
    }

    /// Removes a file; one that is not there counts as removed.
    pub(crate) fn remove(&self, id: FileId) -> Result<(), DiskError> {
        if lock(&self.busy).contains(&id) {
            return Err(DiskError::InUse { volume: self.label.clone(), file: id });
        }
        let mut unconfirmed = lock(&self.unconfirmed);
        let path = match unconfirmed.get(&id) {
            Some(owner) => self.incoming_path(id, owner),
            None => layout::data_path(&self.root, id),
        };
        let bytes = fs::symlink_metadata(&path).map(|metadata| allocated_bytes(&metadata));
        match fs::remove_file(&path) {
            Ok(()) => lock(&self.space).recount(bytes.unwrap_or(0), 0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(self.write_failed("remove", id, source)),
        }
        unconfirmed.remove(&id);
        Ok(())
    }

    /// Files that are whole and not confirmed, which `gateway` had written, or which have waited so long that nobody
    /// else will ask.
    pub(crate) fn unconfirmed(&self, gateway: &GatewayId) -> Vec<FileId> {
        let unconfirmed = lock(&self.unconfirmed);
        let mine = |(&id, owner): (&FileId, &Owner)| {
            (owner.gateway == *gateway || self.is_orphan(&self.incoming_path(id, owner))).then_some(id)
        };
        let mut files: Vec<_> = unconfirmed.iter().filter_map(mine).collect();
        files.sort_unstable();
        files
    }

    fn is_orphan(&self, path: &Path) -> bool {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > ORPHAN_AGE))
    }

    /// A page of files by number, behind `after`: number, length, whether confirmed.
    pub(crate) fn list(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, u64, bool)>, DiskError> {
        let limit = limit.min(MAX_PAGE);
        let mut page = BTreeMap::new();
        for (&id, owner) in lock(&self.unconfirmed).iter().filter(|(id, _)| after.is_none_or(|after| **id > after)) {
            let length = fs::symlink_metadata(self.incoming_path(id, owner)).map(|metadata| metadata.len());
            page.extend(length.ok().map(|length| (id, (length, false))));
            if page.len() > limit {
                page.pop_last();
            }
        }
        let failed = |source| {
            let path = self.root.join(layout::DATA);
            DiskError::Folder { action: "list", volume: self.label.clone(), path, source }
        };
        let data = self.root.join(layout::DATA);
        let from = after.map(layout::folders);
        let mut confirmed = 0;
        'walk: for branch in sorted(&data).map_err(failed)? {
            if from.as_ref().is_some_and(|from| branch < from.0) {
                continue;
            }
            for leaf in sorted(&data.join(&branch)).map_err(failed)? {
                if from.as_ref().is_some_and(|from| (&branch, &leaf) < (&from.0, &from.1)) {
                    continue;
                }
                let folder = data.join(&branch).join(&leaf);
                for name in sorted(&folder).map_err(failed)? {
                    let Some(id) = layout::parse_file(&name).filter(|id| after.is_none_or(|after| *id > after)) else {
                        continue;
                    };
                    if let Ok(metadata) = fs::symlink_metadata(folder.join(&name)) {
                        page.insert(id, (metadata.len(), true));
                        confirmed += 1;
                    }
                    if confirmed == limit {
                        break 'walk;
                    }
                }
            }
        }
        Ok(page.into_iter().take(limit).map(|(id, (length, confirmed))| (id, length, confirmed)).collect())
    }

    /// Has the kernel begin to write out a file that is still growing. Never blocks: without a thread for it, or with too
    /// much asked for already, nothing happens, and the sync at the end writes everything.
    pub(super) fn begin_writeback(&self, file: &Arc<File>) {
        if let Some(dirty) = self.dirty.get() {
            let _ = dirty.try_send(file.clone());
        }
    }

    /// The work of the thread that asks the kernel to write out files. That call waits while the disk's queue is full,
    /// which must not hold up a thread that moves data. Empty the second time; ends with the volume.
    pub(super) fn write_back(&self) -> impl FnOnce() + Send + 'static {
        let (sender, receiver) = sync_channel::<Arc<File>>(WRITEBACK_QUEUE);
        let _ = self.dirty.set(sender);
        let label = self.label.clone();
        move || {
            while let Ok(file) = receiver.recv() {
                if let Err(error) = sys::begin_writeback(&file) {
                    warn!(volume = %label, %error, "early write-back not possible");
                }
            }
        }
    }

    /// Makes what was renamed into `incoming` durable.
    pub(super) fn sync_incoming(&self) -> Result<(), DiskError> {
        self.incoming_folder.sync_all().map_err(|source| {
            self.set_read_only(&format!("syncing the folder of new files failed: {source}"));
            let path = self.root.join(layout::INCOMING);
            DiskError::Folder { action: "sync", volume: self.label.clone(), path, source }
        })
    }

    /// Moves a finished draft into `incoming`.
    pub(super) fn publish(&self, id: FileId, owner: &Owner, temporary: &Path) -> Result<(), DiskError> {
        let mut unconfirmed = lock(&self.unconfirmed);
        let to = self.incoming_path(id, owner);
        fs::rename(temporary, to).map_err(|source| self.write_failed("publish", id, source))?;
        unconfirmed.insert(id, owner.clone());
        Ok(())
    }

    /// Promises space.
    pub(super) fn reserve(&self, wanted_bytes: u64) -> Result<(), DiskError> {
        let device_bytes = device_free(&self.root).map_or(u64::MAX, |free| free.saturating_sub(self.keep_free_bytes));
        lock(&self.space).reserve(wanted_bytes, device_bytes).map_err(|Full { free_bytes }| DiskError::NoSpace {
            volume: self.label.clone(),
            wanted_bytes,
            free_bytes,
        })
    }

    /// Gives a promise back.
    pub(super) fn release(&self, bytes: u64) {
        lock(&self.space).release(bytes);
    }

    /// A promise was kept.
    pub(super) fn wrote(&self, bytes: u64) {
        lock(&self.space).wrote(bytes);
    }

    /// Corrects what a file takes.
    pub(super) fn recount(&self, before_bytes: u64, after_bytes: u64) {
        lock(&self.space).recount(before_bytes, after_bytes);
    }

    /// Makes an error of a failed write, and takes the volume out of use for writing where the medium is to blame.
    pub(super) fn write_failed(&self, action: &'static str, file: FileId, source: io::Error) -> DiskError {
        use io::ErrorKind as Kind;
        let volume = self.label.clone();
        match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => {
                return DiskError::NoSpace { volume, wanted_bytes: 1, free_bytes: 0 };
            }
            // Not the medium's fault.
            Kind::Interrupted | Kind::InvalidInput | Kind::FileTooLarge | Kind::OutOfMemory | Kind::AlreadyExists => {}
            _ if matches!(source.raw_os_error(), Some(nix::libc::EMFILE | nix::libc::ENFILE)) => {}
            _ => self.set_read_only(&format!("{action} file {file}: {source}")),
        }
        DiskError::Io { action, volume, file, source }
    }

    fn set_read_only(&self, reason: &str) {
        let mut health = lock(&self.health);
        if *health == VolumeHealth::Up {
            tracing::error!(volume = %self.label, reason, "volume is read-only from now on; check the disk, then restart the mover");
            *health = VolumeHealth::ReadOnly { reason: format!("a write failed: {reason}") };
            self.changed.notify_one();
        }
    }

    fn writable(&self) -> Result<(), DiskError> {
        let volume = self.label.clone();
        match &*lock(&self.health) {
            VolumeHealth::Up => Ok(()),
            VolumeHealth::ReadOnly { reason } => Err(DiskError::ReadOnly { volume, reason: reason.clone() }),
            VolumeHealth::Down { reason } => Err(DiskError::Down { volume, reason: reason.clone() }),
        }
    }

    fn claim(self: &Arc<Self>, id: FileId) -> Result<Claim, DiskError> {
        if lock(&self.busy).insert(id) {
            return Ok(Claim { volume: self.clone(), id });
        }
        Err(DiskError::InUse { volume: self.label.clone(), file: id })
    }

    fn exists(&self, id: FileId) -> bool {
        lock(&self.unconfirmed).contains_key(&id) || layout::data_path(&self.root, id).exists()
    }

    fn path_of(&self, id: FileId) -> PathBuf {
        let unconfirmed = lock(&self.unconfirmed);
        unconfirmed.get(&id).map_or_else(|| layout::data_path(&self.root, id), |owner| self.incoming_path(id, owner))
    }

    fn incoming_path(&self, id: FileId, owner: &Owner) -> PathBuf {
        self.root.join(layout::INCOMING).join(layout::unconfirmed_name(id, owner))
    }
}

/// The right to write one file, held by one draft at a time.
pub(super) struct Claim {
    pub(super) volume: Arc<Volume>,
    pub(super) id: FileId,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.volume.busy).remove(&self.id);
    }
}

fn device_free(folder: &Path) -> io::Result<u64> {
    let system = nix::sys::statvfs::statvfs(folder)?;
    Ok(system.blocks_available().saturating_mul(system.fragment_size()))
}

/// Removes everything in a folder of files; says how many there were.
fn clear(folder: &Path) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
        removed += 1;
    }
    Ok(removed)
}

fn scan_incoming(folder: &Path) -> io::Result<(HashMap<FileId, Owner>, u64)> {
    let (mut files, mut bytes) = (HashMap::new(), 0u64);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_name().to_str().and_then(layout::parse_unconfirmed) {
            Some((id, owner)) => {
                bytes = bytes.saturating_add(allocated_bytes(&entry.metadata()?));
                files.insert(id, owner);
            }
            None => warn!(path = %entry.path().display(), "a file that is not the mover's; left alone"),
        }
    }
    Ok((files, bytes))
}

/// What the files below `folder`, two folders down, take.
fn count(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0u64;
    for branch in fs::read_dir(folder)? {
        for leaf in fs::read_dir(branch?.path())? {
            for file in fs::read_dir(leaf?.path())? {
                bytes = bytes.saturating_add(allocated_bytes(&file?.metadata()?));
            }
        }
    }
    Ok(bytes)
}

fn sorted(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let mut names: Vec<String> = names.filter_map(io::Result::transpose).collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}
