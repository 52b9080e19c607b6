//! The machine under the figures: what it is, and a network of its own for the run.
//!
//! Owns what of the operating system is set for the run: a network namespace with nothing but loopback, its congestion
//! control, the number of open files. All of it ends with the process; the rest of the machine never sees it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Congestion controls that do not hold back a path without loss. BBR paces by its estimate of the bandwidth, and
/// carries half of what these do over loopback.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// What the figures were taken on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many of its cores we may use.
    pub cores: usize,
    /// Its memory, in GiB.
    pub memory_gib: f64,
    /// The kernel.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The file system below the benchmarks' folder.
    pub disk: String,
    /// How TCP is held back, and where.
    pub network: String,
    /// How busy the machine was with other things when the run began: the one-minute load average.
    pub load: String,
    /// The build of Penstock and the programs it is compared with.
    pub programs: Vec<String>,
}

impl Machine {
    /// Looks at the machine. `folder` is where the benchmarks keep their files.
    #[must_use]
    pub fn look(folder: &Path, network: String) -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        let kib: Option<f64> = value(&memory, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
        let release = read("/etc/os-release");
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let build = if cfg!(debug_assertions) { "debug build: its figures mean nothing" } else { "release build" };
        let mut programs = vec![format!("Penstock {}, {build}", env!("CARGO_PKG_VERSION"))];
        programs.extend(
            [("iperf3", "--version"), ("curl", "--version"), ("nginx", "-v"), ("psql", "--version")]
                .into_iter()
                .filter_map(|(program, argument)| version(program, argument)),
        );
        Self {
            processor: value(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kib.unwrap_or_default() / f64::from(1 << 20),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            system: pretty.unwrap_or("unknown").trim_matches('"').to_owned(),
            disk: file_system(&read("/proc/self/mountinfo"), folder),
            network,
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            programs,
        }
    }

    /// One line for each thing worth knowing.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{}, {} cores, {:.0} GiB of memory", self.processor, self.cores, self.memory_gib),
            format!("{}, {}", self.system, self.kernel),
            format!("files on {}", self.disk),
            format!("network: {}", self.network),
            format!("load average when it began: {}", self.load),
        ];
        lines.push(self.programs.join("; "));
        lines
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value in `key : value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).next()
}

fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let line = String::from_utf8_lossy(&text).lines().next()?.to_owned();
    // `name version: name/1.2.3 and libraries`, or less of it.
    let mut words: Vec<&str> = line.split([' ', '/']).filter(|word| *word != "version:").collect();
    words.dedup();
    let end = words.iter().position(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(words[..=end].join(" "))
}

/// Type and source of the file system that holds `path`, from the text of `mountinfo` (proc(5)).
fn file_system(mountinfo: &str, path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let mut rest = rest.split(' ');
        Some((point.to_owned(), format!("{} on {}", rest.next()?, rest.next()?)))
    });
    let holding = mounts.filter(|(point, _)| path.starts_with(point));
    // Of two mounts on the same place the later one is seen.
    holding.max_by_key(|(point, _)| point.len()).map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}

/// Moves this process, and so all that it starts, into a network of its own, and sets its congestion control; says what
/// holds now. Call it while the process has one thread.
///
/// Where that is not allowed (it takes root), the system's network is used as it is.
///
/// # Errors
///
/// If `wanted` is named and cannot be had.
pub fn isolate(wanted: Option<&str>) -> anyhow::Result<String> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        let holds = read(CONGESTION).trim().to_owned();
        if let Some(wanted) = wanted {
            ensure!(wanted == holds, "{wanted} cannot be set without a network of our own ({error}): run as root");
        }
        return Ok(format!("TCP with {holds}, the system's loopback"));
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("run ip")?;
    ensure!(up.success(), "loopback of the new network cannot be switched on");
    let tried = wanted.map_or_else(|| UNPACED.to_vec(), |wanted| vec![wanted]);
    let set = tried.iter().find(|name| fs::write(CONGESTION, name.as_bytes()).is_ok());
    if let (None, Some(wanted)) = (set, wanted) {
        bail!("the congestion control {wanted} cannot be used here; allowed are: {}", allowed());
    }
    Ok(format!("TCP with {}, loopback in a network of its own", read(CONGESTION).trim()))
}

fn allowed() -> String {
    read("/proc/sys/net/ipv4/tcp_allowed_congestion_control").trim().to_owned()
}

/// Lets this process, and all that it starts, open as many files as the system lets it; says how many.
///
/// # Errors
///
/// If the system refuses.
pub fn raise_open_files() -> anyhow::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    }
    Ok(hard)
}

/// What the kernel says of a process's memory, in MiB: `VmHWM` for the peak, `VmRSS` for now (proc(5)).
///
/// # Errors
///
/// If there is no such process.
pub fn memory_mib(process: u32, field: &str) -> anyhow::Result<f64> {
    let mut path = String::from("/proc/");
    let _ = write!(path, "{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}: has the process ended?"))?;
    let kib: f64 = value(&text, field)
        .and_then(|text| text.trim_end_matches(" kB").trim().parse().ok())
        .with_context(|| format!("{path} says nothing of {field}"))?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_longest_mount_above() {
        let text = "1 0 8:1 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /tm rw - xfs /dev/x rw\n\
                    3 1 0:6 / /proc rw shared:1 - proc proc rw\n";
        assert_eq!(file_system(text, Path::new("/tmpx/none")), "ext4 on /dev/vda");
        assert_eq!(file_system(text, Path::new("/tm/none")), "xfs on /dev/x");
        assert_eq!(file_system("", Path::new("/")), "unknown");
    }

    #[test]
    fn our_own_memory_is_there_and_peaks_above_its_present() {
        let now = memory_mib(std::process::id(), "VmRSS").unwrap();
        let peak = memory_mib(std::process::id(), "VmHWM").unwrap();
        assert!(now > 0.5 && peak >= now * 0.9, "{now} {peak}");
        assert!(memory_mib(std::process::id(), "VmNonsense").is_err());
    }

    #[test]
    fn the_machine_is_named() {
        let machine = Machine::look(Path::new("/tmp"), "none".to_owned());
        assert!(machine.cores >= 1 && machine.kernel.starts_with("Linux ") && machine.memory_gib > 0.1);
        assert!(machine.lines().iter().all(|line| !line.contains('\n')));
    }
}
