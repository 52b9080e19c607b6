//! Which volume a folder is: so that a wrong mount is refused.
//!
//! Owns the identity file and the lock on it. Talks to the file system. Never writes an identity into a folder that has
//! other files in it, nor where it was not told to make a volume.
//!
//! Invariant: while an [`Identity`] is held no other process holds it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use wire::id::VolumeLabel;

use super::layout;

/// The longest identity file that is read.
const MAX_BYTES: u64 = 4096;

/// The content of an identity file.
#[derive(Serialize, Deserialize)]
struct Content {
    /// The layout of the folder; 1.
    format: u32,
    label: VolumeLabel,
    /// 128 random bits in hexadecimal.
    uuid: String,
}

const FORMAT: u32 = 1;

/// A folder that is known to be the right volume, and locked.
pub(super) struct Identity {
    pub(super) uuid: String,
    _lock: Flock<File>,
}

/// Why a folder is not taken for the volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// It cannot be read.
    #[error("{action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// Nothing says which volume it is.
    #[error(
        "{} has no {}: is the file system mounted? To make a new volume there, set create = true and start with an empty folder",
        folder.display(),
        layout::IDENTITY
    )]
    Missing { folder: PathBuf },
    /// A new volume would be mixed with other files.
    #[error("{} is not empty and has no {}: a new volume needs an empty folder", folder.display(), layout::IDENTITY)]
    NotEmpty { folder: PathBuf },
    /// It is another volume.
    #[error("{} holds volume {found} (uuid {uuid}), not {wanted}: correct the mount or the configuration", folder.display())]
    Other { folder: PathBuf, found: VolumeLabel, uuid: String, wanted: String },
    /// The file cannot be understood.
    #[error("{} is not an identity this version can read: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    /// Another process uses it.
    #[error("{} is in use by another mover", folder.display())]
    Locked { folder: PathBuf },
}

/// Checks that `folder` is the volume `label` (and has this `uuid`, if given), or makes it so if it is new and `create`
/// says so; and locks it.
pub(super) fn take(
    folder: &Path,
    label: &VolumeLabel,
    uuid: Option<&str>,
    create: bool,
) -> Result<Identity, IdentityError> {
    let path = folder.join(layout::IDENTITY);
    let at = |action: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| IdentityError::Io { action, path, source }
    };
    if create {
        fs::create_dir_all(folder).map_err(at("create", folder))?;
    }
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !create {
                return Err(IdentityError::Missing { folder: folder.to_owned() });
            }
            // An ext4 file system's own folder is not in the way, nor what a crash left of this very step.
            let own = ["lost+found", &format!("{}.new", layout::IDENTITY)].map(std::ffi::OsString::from);
            let others = fs::read_dir(folder)
                .map_err(at("list", folder))?
                .flatten()
                .any(|entry| !own.contains(&entry.file_name()));
            if others {
                return Err(IdentityError::NotEmpty { folder: folder.to_owned() });
            }
            write_new(folder, &path, label, uuid).map_err(at("write", &path))?;
            OpenOptions::new().read(true).write(true).open(&path).map_err(at("open", &path))?
        }
        Err(error) => return Err(at("open", &path)(error)),
    };
    let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => lock,
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Err(IdentityError::Locked { folder: folder.to_owned() }),
        Err((_, error)) => return Err(at("lock", &path)(error.into())),
    };
    let mut text = String::new();
    (&*lock).take(MAX_BYTES).read_to_string(&mut text).map_err(at("read", &path))?;
    let content: Content = serde_json::from_str(&text)
        .map_err(|error| IdentityError::Unreadable { path: path.clone(), reason: error.to_string() })?;
    if content.format != FORMAT {
        let reason = format!("its format is {}, not {FORMAT}", content.format);
        return Err(IdentityError::Unreadable { path, reason });
    }
    if content.label != *label || uuid.is_some_and(|uuid| uuid != content.uuid) {
        let wanted = uuid.map_or_else(|| label.to_string(), |uuid| format!("{label} (uuid {uuid})"));
        return Err(IdentityError::Other {
            folder: folder.to_owned(),
            found: content.label,
            uuid: content.uuid,
            wanted,
        });
    }
    Ok(Identity { uuid: content.uuid, _lock: lock })
}

fn write_new(folder: &Path, path: &Path, label: &VolumeLabel, uuid: Option<&str>) -> io::Result<()> {
    let mut random = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let uuid = uuid.map_or_else(|| hex::encode(random), str::to_owned);
    let content = Content { format: FORMAT, label: label.clone(), uuid };
    let text = serde_json::to_string_pretty(&content).map_err(io::Error::other)?;
    let new = folder.join(format!("{}.new", layout::IDENTITY));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str) -> VolumeLabel {
        VolumeLabel::new(name).expect("a good label")
    }

    #[test]
    fn an_empty_mount_point_is_not_made_a_volume_unasked() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(take(folder.path(), &label("d0"), None, false), Err(IdentityError::Missing { .. })));
        let made = take(folder.path(), &label("d0"), None, true).unwrap().uuid;
        assert_eq!(take(folder.path(), &label("d0"), Some(&made), false).unwrap().uuid, made);
    }

    #[test]
    fn a_wrong_mount_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        take(folder.path(), &label("d0"), None, true).unwrap();
        assert!(matches!(take(folder.path(), &label("d1"), None, true), Err(IdentityError::Other { .. })));
        assert!(matches!(take(folder.path(), &label("d0"), Some("feed"), true), Err(IdentityError::Other { .. })));
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("thesis.tex"), "").unwrap();
        assert!(matches!(take(home.path(), &label("d0"), None, true), Err(IdentityError::NotEmpty { .. })));
    }

    #[test]
    fn two_movers_do_not_share_a_volume() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path(), &label("d0"), None, true).unwrap();
        assert!(matches!(take(folder.path(), &label("d0"), None, true), Err(IdentityError::Locked { .. })));
        drop(held);
        assert!(take(folder.path(), &label("d0"), None, true).is_ok());
    }
}
