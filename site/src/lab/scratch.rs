//! A folder for the files of a measurement, which is gone when that ends, however it ends.
//!
//! Owns the folder and a lock in it. A signal removes it before the process ends; after `kill -9` it is left, unlocked,
//! and whoever makes the next one, or calls [`sweep`], removes it.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

const PREFIX: &str = "penstock-lab-";
const LOCK: &str = "lock";

/// How often removing is tried while processes that end still write.
const ATTEMPTS: u32 = 50;

/// The folder; dropped, it is removed.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one in `parent`; in memory if that is not given and the machine has room there.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub fn new(parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(usual, Path::to_owned);
        sweep_in(&parent);
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("make {}", folder.display()))?;
        let lock = File::create(folder.join(LOCK)).context("make a lock")?;
        lock.try_lock().context("lock a folder of one's own")?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// From now on SIGINT, SIGTERM and SIGHUP remove the folder and end the process. Call it while the process has one
    /// thread, so that no other gets the signals.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn remove_at_signals(&self) -> anyhow::Result<()> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        signals.thread_block().context("hold signals back")?;
        let folder = self.folder.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let Ok(signal) = signals.wait() else { return };
            remove(&folder);
            // Processes of the lab end with this one, and what they wrote meanwhile is in files without a name.
            std::process::exit(128 + signal as i32);
        })?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Removes what measurements left that were killed.
pub fn sweep() {
    sweep_in(&usual());
}

fn usual() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

fn sweep_in(parent: &Path) {
    let own = nix::unistd::Uid::effective().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let ours = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        if !named || !ours {
            continue;
        }
        // One that is just being made has no lock yet.
        let unused = File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if unused {
            remove(&entry.path());
        }
    }
}

fn remove(folder: &Path) {
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_and_one_that_a_killed_owner_left_with_the_next() {
        let parent = tempfile::tempdir().expect("a folder");
        let left = parent.path().join(format!("{PREFIX}1"));
        fs::create_dir(&left).expect("made");
        fs::write(left.join(LOCK), "").expect("written");
        fs::create_dir(parent.path().join("other")).expect("made");
        let scratch = Scratch::new(Some(parent.path())).expect("made");
        assert!(!left.exists(), "what was left is gone");
        assert!(scratch.path().is_dir());
        sweep_in(parent.path());
        assert!(scratch.path().is_dir(), "one in use stays");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists() && parent.path().join("other").exists());
    }
}
