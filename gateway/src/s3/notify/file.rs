//! Appending events to a file, one a line.
//!
//! Opens the file for each batch, so that one that was moved away is made again. What is appended is on stable storage
//! before the caller hears of it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// A file that only whoever runs the gateway reads, until its owner says otherwise: it names keys and accounts.
const MODE: u32 = 0o600;

/// Appends lines, each of which ends with a line feed, and syncs. Blocks.
///
/// If that fails, as far as possible nothing of them is left behind.
pub(super) fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(path)?;
    let before = file.metadata()?.len();
    let written = write(&mut file, before, lines).and_then(|()| file.sync_data());
    if let Err(error) = written {
        // The same lines come again; a second half of a line would make both unreadable.
        let _ = file.set_len(before);
        return Err(error);
    }
    if is_new && let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn write(file: &mut File, before: u64, lines: &[u8]) -> io::Result<()> {
    if before > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(before - 1))?;
        file.read_exact(&mut last)?;
        // A line that was cut by a crash stands by itself.
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_and_a_cut_one_stands_by_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events.jsonl");
        append(&path, b"1\n2\n").expect("appended");
        std::fs::write(&path, b"1\n2\n{\"cut").expect("written");
        append(&path, b"3\n").expect("appended");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "1\n2\n{\"cut\n3\n");
        std::fs::rename(&path, folder.path().join("events.jsonl.1")).expect("rotated");
        append(&path, b"4\n").expect("appended");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "4\n");
        assert!(append(&folder.path().join("none/events.jsonl"), b"5\n").is_err());
    }
}
