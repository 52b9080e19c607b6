//! Labs as a user makes them, and a whole site over emulated links. Needs root, `/dev/net/tun` and iproute2.

mod labs;
mod papers;
mod sites;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use netsim::{Lab, Link, Medium};
use site::lab::{shape::topology, site::SiteSpec};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_penstock");
/// Nothing takes longer unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn lab(link: Link, medium: Medium, movers: usize) -> Lab {
    let nic = link.rate_bps;
    Lab::start(&topology(link, medium, nic, 1, movers)).expect("root, /dev/net/tun and iproute2")
}

pub(crate) fn spec(folder: &TempDir, movers: usize) -> SiteSpec {
    let movers: Vec<_> = (1..=movers).map(|number| format!("mover{number}")).collect();
    SiteSpec::new(PROGRAM.into(), folder.path().join("site"), &movers)
}

pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits for a state.
pub(crate) fn eventually(what: &str, state: impl Fn() -> bool) {
    let began = Instant::now();
    while !state() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}
