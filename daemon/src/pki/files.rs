//! Writes keys and certificates so that a crash leaves the old file or the new one, whole.
//!
//! Owns temporary names beside the target. Talks to the file system, synced. Never widens
//! permissions, and never overwrites unless asked to replace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::PkiError;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Only its owner: 0600.
    Owner,
    /// Everybody: 0644.
    Everybody,
}

/// Writes a new file; an existing one is left as it is, and an error.
pub(super) fn create(path: &Path, content: &[u8], access: Access) -> Result<(), PkiError> {
    let temporary = write_temporary(path, content, access)?;
    // Unlike a rename, a hard link does not replace what is there.
    let linked = fs::hard_link(&temporary, path);
    let removed = fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(PkiError::Exists { path: path.to_owned() }),
        Err(source) => Err(PkiError::Write { path: path.to_owned(), source }),
        Ok(()) => {
            removed.and_then(|()| sync_folder(path)).map_err(|source| PkiError::Write { path: path.to_owned(), source })
        }
    }
}

/// Writes a file, in place of an older one if there is one.
pub(super) fn replace(path: &Path, content: &[u8], access: Access) -> Result<(), PkiError> {
    let temporary = write_temporary(path, content, access)?;
    fs::rename(&temporary, path)
        .and_then(|()| sync_folder(path))
        .map_err(|source| PkiError::Write { path: path.to_owned(), source })
}

/// Makes a folder (and those above it) that only its owner can enter, unless it exists.
pub(super) fn make_private_folder(path: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| PkiError::Write { path: path.to_owned(), source })
}

fn write_temporary(path: &Path, content: &[u8], access: Access) -> Result<PathBuf, PkiError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    let temporary = path.with_file_name(format!(".{name}.{}.{:016x}.new", std::process::id(), super::random_u64()));
    let mode = match access {
        Access::Owner => 0o600,
        Access::Everybody => 0o644,
    };
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        PkiError::Write { path: path.to_owned(), source }
    })?;
    Ok(temporary)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_an_existing_one_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        create(&path, b"first", Access::Owner).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = create(&path, b"second", Access::Owner).unwrap_err();
        assert!(matches!(error, PkiError::Exists { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        replace(&path, b"third", Access::Everybody).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
