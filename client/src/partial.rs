//! A download on its way: `NAME.pftp-part` and, beside it, what of it has come.
//!
//! Owns both files until the transfer is whole and has the right sum; only then the file gets its name. Written by
//! several threads at any offset.
//!
//! Invariant: what the state file says has come is on stable storage, and its sums are those of the bytes written.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use wire::{
    checksum::{Algorithm, Sums},
    extent::{ByteRange, Coverage},
};

use crate::{
    ClientError, Result,
    runs::{Run, Runs},
};

/// Most separate ranges that a `REST` line can carry; the smallest beyond that are fetched again.
const MAX_REST_RANGES: usize = 180;

/// Largest state file that is read back.
const MAX_STATE_BYTES: u64 = 16 << 20;

/// What the bytes are of: a download goes on only if this is still the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The server, as it was named.
    pub server: String,
    /// The path there.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// When it was changed, as the server says it; microseconds since the epoch.
    pub modified_us: Option<i64>,
    /// Algorithm and value of its sum.
    pub sum: Option<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    origin: Origin,
    runs: Vec<Run>,
}

const STATE_VERSION: u32 = 1;

/// A file that is being received.
#[derive(Debug)]
pub(crate) struct PartFile {
    target: PathBuf,
    part: PathBuf,
    state: PathBuf,
    origin: Origin,
    file: File,
    runs: Mutex<Runs>,
}

/// `NAME.pftp-part` beside a file.
pub fn part_path(target: &Path) -> PathBuf {
    with_suffix(target, ".pftp-part")
}

/// The state file of a download.
pub fn state_path(target: &Path) -> PathBuf {
    with_suffix(target, ".pftp-part.json")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl PartFile {
    /// Opens the part file of a download: with `resume`, and if it is of the same bytes, with what has come before; else
    /// empty.
    pub(crate) fn open(target: &Path, origin: Origin, resume: bool) -> Result<Self> {
        let (part, state) = (part_path(target), state_path(target));
        let runs = if resume { read_state(&state, &part, &origin) } else { None };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(runs.is_none());
        let file = options.open(&part).map_err(ClientError::local("create", &part))?;
        if runs.is_none() {
            match fs::remove_file(&state) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ClientError::local("remove", &state)(error));
                }
                _ => {}
            }
        }
        let room = file.set_len(origin.size_bytes);
        room.map_err(ClientError::local("make room for", &part))?;
        Ok(Self { target: target.to_owned(), part, state, origin, file, runs: Mutex::new(runs.unwrap_or_default()) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which bytes are here.
    pub(crate) fn coverage(&self) -> Coverage {
        self.lock().coverage()
    }

    /// How many bytes are here.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Size of the whole.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.origin.size_bytes
    }

    /// Writes bytes that came from `peer`.
    pub(crate) fn write(&self, offset: u64, data: &[u8], peer: &str) -> Result<()> {
        let range = ByteRange::new(offset, data.len() as u64).ok().filter(|range| range.end() <= self.size_bytes());
        let bad = |reason: &str| ClientError::BadData { peer: peer.to_owned(), reason: reason.to_owned() };
        let range = range.ok_or_else(|| bad("bytes beyond the end of the file"))?;
        self.file.write_all_at(data, offset).map_err(ClientError::local("write", &self.part))?;
        let sums = Sums::of(data);
        if !self.lock().add(range, sums) {
            return Err(bad("bytes that had come already, or in too many pieces"));
        }
        Ok(())
    }

    /// Makes what has come durable, and says so in the state file.
    pub(crate) fn save(&self) -> Result<()> {
        let runs = self.lock().list();
        self.file.sync_data().map_err(ClientError::local("sync", &self.part))?;
        let state = State { version: STATE_VERSION, origin: self.origin.clone(), runs };
        let text =
            serde_json::to_vec(&state).map_err(|error| ClientError::local("write", &self.state)(error.into()))?;
        let fresh = with_suffix(&self.state, ".new");
        fs::write(&fresh, text).map_err(ClientError::local("write", &fresh))?;
        fs::rename(&fresh, &self.state).map_err(ClientError::local("write", &self.state))
    }

    /// Throws both files away: their bytes cannot be trusted.
    pub(crate) fn discard(&self) {
        let _ = fs::remove_file(&self.part);
        let _ = fs::remove_file(&self.state);
    }

    /// Checks that everything came and has the right sum, and gives the file its name.
    ///
    /// On a wrong sum both files are thrown away; on missing bytes the state is saved.
    pub(crate) fn finish(&self, expected: Option<&(Algorithm, String)>) -> Result<Sums> {
        let size = self.size_bytes();
        let whole = self.lock().whole(size);
        let name = self.origin.path.clone();
        let Some(sums) = whole else {
            self.save()?;
            return Err(ClientError::Incomplete { name, missing_bytes: size - self.bytes() });
        };
        if let Some((algorithm, there)) = expected
            && let Some(here) = sums.hex(*algorithm)
            && here != *there
        {
            self.discard();
            let next = "the bytes were thrown away; get it again, and tell the archive's operator if it repeats";
            let (algorithm, there) = (algorithm.name(), there.clone());
            return Err(ClientError::Mismatch { name, algorithm, here, there, next });
        }
        fs::rename(&self.part, &self.target).map_err(ClientError::local("rename to", &self.target))?;
        let _ = fs::remove_file(&self.state);
        Ok(sums)
    }
}

/// The runs of an earlier attempt, if they are of the same bytes and the part file has them.
fn read_state(state: &Path, part: &Path, origin: &Origin) -> Option<Runs> {
    if fs::metadata(state).ok()?.len() > MAX_STATE_BYTES {
        return None;
    }
    let saved: State = serde_json::from_slice(&fs::read(state).ok()?).ok()?;
    // Without a time or a sum, equal size does not mean equal bytes.
    let told = origin.modified_us.is_some() || origin.sum.is_some();
    if saved.version != STATE_VERSION || saved.origin != *origin || !told {
        return None;
    }
    let mut list = saved.runs;
    if list.len() > MAX_REST_RANGES {
        list.sort_by_key(|run| std::cmp::Reverse(run.length_bytes));
        list.truncate(MAX_REST_RANGES);
    }
    let runs = Runs::from_list(&list, origin.size_bytes)?;
    (fs::metadata(part).ok()?.len() >= runs.coverage().end()).then_some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { server: "s:1".into(), path: "/a".into(), size_bytes: 10, modified_us: Some(5), sum: None }
    }

    #[test]
    fn a_cut_download_goes_on_only_with_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let part = PartFile::open(&target, origin(), true).unwrap();
        part.write(3, b"defg", "m").unwrap();
        part.save().unwrap();
        drop(part);
        assert_eq!(PartFile::open(&target, origin(), true).unwrap().bytes(), 4);
        let changed = Origin { modified_us: Some(6), ..origin() };
        let again = PartFile::open(&target, changed.clone(), true).unwrap();
        assert_eq!(again.bytes(), 0);
        assert!(!state_path(&target).exists());
        let untold = Origin { modified_us: None, ..origin() };
        let part = PartFile::open(&target, untold.clone(), false).unwrap();
        part.write(0, b"abc", "m").unwrap();
        part.save().unwrap();
        assert_eq!(PartFile::open(&target, untold, true).unwrap().bytes(), 0);
    }

    #[test]
    fn a_file_gets_its_name_only_when_it_is_whole_and_right() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        fs::write(&target, "old").unwrap();
        let part = PartFile::open(&target, origin(), true).unwrap();
        part.write(5, b"fghij", "m").unwrap();
        assert!(matches!(part.finish(None), Err(ClientError::Incomplete { missing_bytes: 5, .. })));
        assert!(part.write(4, b"ef", "m").is_err() && part.write(8, b"xyz", "m").is_err());
        drop(part);
        let part = PartFile::open(&target, origin(), true).unwrap();
        part.write(0, b"abcde", "m").unwrap();
        let wrong = (Algorithm::Adler32, "00000000".to_owned());
        assert!(matches!(part.finish(Some(&wrong)), Err(ClientError::Mismatch { .. })));
        assert_eq!(fs::read(&target).unwrap(), b"old");
        let part = PartFile::open(&target, origin(), true).unwrap();
        assert_eq!(part.bytes(), 0);
        part.write(0, b"abcdefghij", "m").unwrap();
        let right = (Algorithm::Crc32c, Sums::of(b"abcdefghij").hex(Algorithm::Crc32c).unwrap());
        part.finish(Some(&right)).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abcdefghij");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
