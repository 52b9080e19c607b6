//! The files that the demo moves: those that were named, or this repository's and a large one.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use indicatif::HumanBytes;
use wire::checksum::Sums;

use super::screen::Screen;

/// The most files of a folder that are moved; a home folder named by mistake is no demo.
const MOST_FILES: usize = 20_000;

/// A local file to move.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) path: PathBuf,
    /// Its path below the demo's folder on the site.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sums: Sums,
}

/// Finds the files to move and sums them up, so that they can be compared at the end.
pub(super) fn gather(named: &[PathBuf], size: u64, scratch: &Path, screen: &Screen) -> anyhow::Result<Vec<Local>> {
    let mut paths = BTreeMap::new();
    if named.is_empty() {
        for path in repository_files() {
            paths.insert(format!("repository/{}", path.display()), path);
        }
        paths.insert("large.dat".to_owned(), make_large(scratch, size)?);
    }
    for path in named {
        let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
        collect(path, &name.to_string_lossy(), &mut paths)?;
    }
    if paths.is_empty() {
        bail!("there are no files to move: name some");
    }
    let mut files = Vec::with_capacity(paths.len());
    for (name, path) in paths {
        let (bytes, sums) = sum_up(&path).with_context(|| format!("read {}", path.display()))?;
        files.push(Local { path, name, bytes, sums });
    }
    let total: u64 = files.iter().map(|file| file.bytes).sum();
    screen.say(&format!("{} files with {} to move", files.len(), HumanBytes(total)));
    Ok(files)
}

/// The files git knows below the current folder; none if this is no checkout.
fn repository_files() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else { return Vec::new() };
    let names = output.stdout.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut files: Vec<_> = names.filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.retain(|path| path.is_file());
    files
}

fn collect(path: &Path, name: &str, paths: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    if metadata.is_file() {
        paths.insert(name.to_owned(), path.to_owned());
    } else if metadata.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("list {}", path.display()))? {
            let entry = entry.with_context(|| format!("list {}", path.display()))?;
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            collect(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), paths)?;
        }
    }
    if paths.len() > MOST_FILES {
        bail!("{} has more than {MOST_FILES} files: name fewer", path.display());
    }
    Ok(())
}

/// Makes a file that does not compress, quickly: a counter through a mixing function.
fn make_large(scratch: &Path, bytes: u64) -> anyhow::Result<PathBuf> {
    let path = scratch.join("large.dat");
    let make = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let (mut state, mut left) = (0x9e37_79b9_7f4a_7c15_u64, bytes);
        while left > 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let piece = state.to_le_bytes();
            let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            file.write_all(&piece[..length])?;
            left -= length as u64;
        }
        file.flush()
    };
    make().with_context(|| format!("make a file of {bytes} bytes in {}", scratch.display()))?;
    Ok(path)
}

/// Length and sums of a file.
pub(super) fn sum_up(path: &Path) -> std::io::Result<(u64, Sums)> {
    let mut file = File::open(path)?;
    let mut block = vec![0; 1 << 20];
    let (mut bytes, mut sums) = (0, Sums::EMPTY);
    loop {
        let length = file.read(&mut block)?;
        if length == 0 {
            return Ok((bytes, sums));
        }
        sums = sums.followed_by(&Sums::of(&block[..length]), length as u64);
        bytes += length as u64;
    }
}
