//! Labs that outlive the command that made them: `up` starts a process that keeps one, `run` joins it.
//!
//! ```text
//! up ──starts──▶ keep: claims the name, makes hosts and links, publishes where they are, waits for a signal
//! run, shell ──setns──▶ a process on a host, which ends with the lab
//! down ──SIGTERM──▶ keep
//! ```
//!
//! Killed in any way, the keeper takes everything with it: namespaces and devices are its own and have no names, its
//! services die with it by the kernel's hand (`PR_SET_PDEATHSIG`), and so do processes of `run`, which hear of it by the
//! lock on the lab's file.

use std::{
    fs::OpenOptions,
    io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, bail};
use netsim::namespace::{self, Namespace};
use nix::sys::signal::{SigSet, Signal};

use super::{
    registry::{Registry, Running, RunningHost},
    shape::Shape,
    site::{LabSite, SiteSpec},
};

/// What the keeper says when the lab is there.
const READY: &str = "ready";

/// Starts a process that keeps the lab, and waits until it is there.
///
/// # Errors
///
/// What the process said, if it could not.
pub fn up(registry: &Registry, name: &str, shape: &Shape) -> anyhow::Result<()> {
    registry.create()?;
    let program = std::env::current_exe().context("find this program")?;
    let path = registry.log(name);
    let log = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let mut log = log.with_context(|| format!("write {}", path.display()))?;
    let mut command = Command::new(program);
    command.args(["lab", "keep", name]).args(shape.arguments());
    // A process group of its own, so that Ctrl-C in this terminal is not for it.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.try_clone()?).process_group(0);
    let mut keeper = command.spawn().context("start the process that keeps the lab")?;
    let mut line = String::new();
    if let Some(output) = keeper.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("hear from the process that keeps the lab")?;
    }
    if line.trim_end() != READY {
        let _ = keeper.wait();
        let mut said = String::new();
        // The keeper removes its files when it ends, this one too: it is still open here.
        let _ = log.rewind().and_then(|()| log.read_to_string(&mut said));
        let _ = std::fs::remove_file(&path);
        bail!("{}", said.trim().trim_start_matches("penstock: "));
    }
    let running = registry.open(name)?;
    crate::say(&running.to_string());
    crate::say(&format!("  on a host:  penstock lab run {name} client -- ping -c3 {}", address(&running, "mover1")));
    crate::say(&format!("  end it:     penstock lab down {name}"));
    Ok(())
}

fn address(running: &Running, host: &str) -> String {
    running.host(host).map_or_else(|_| host.to_owned(), |host| host.address.to_string())
}

/// Keeps a lab until a signal comes.
///
/// # Errors
///
/// If this machine cannot emulate links, the name is taken, or the site does not start.
pub fn keep(registry: &Registry, name: &str, shape: &Shape) -> anyhow::Result<()> {
    let mut claim = registry.claim(name)?;
    // Before any thread begins, so that none of them gets the signals.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block().context("hold signals back")?;
    let lab = netsim::Lab::start(&shape.topology())?;
    let site = if shape.site {
        let movers: Vec<_> = (1..=shape.movers).map(|number| format!("mover{number}")).collect();
        let mut spec = SiteSpec::new(std::env::current_exe()?, registry.folder(name), &movers);
        spec.stripe = shape.stripe.unwrap_or(spec.stripe).min(shape.movers);
        Some(LabSite::start(&lab, &spec)?)
    } else {
        None
    };
    let link = shape.link();
    let hosts = lab.hosts().iter().map(|host| RunningHost {
        name: host.name().to_owned(),
        address: host.address(),
        namespace: host.namespace_path(),
    });
    claim.publish(&Running {
        name: name.to_owned(),
        process: std::process::id(),
        user_namespace: !nix::unistd::Uid::current().is_root() || in_user_namespace(),
        link: format!("{:.1} ms, {} Mb/s", link.rtt.as_secs_f64() * 1e3, link.rate_bps / 1_000_000),
        hosts: hosts.collect(),
        site: site.as_ref().map(|site| site.folder().path().to_owned()),
    })?;
    // Whoever started this may be gone already.
    let _ = writeln!(std::io::stdout(), "{READY}").and_then(|()| std::io::stdout().flush());
    signals.wait().context("wait for the end")?;
    drop(site);
    drop(lab);
    drop(claim);
    Ok(())
}

/// Whether root here is somebody else outside (Linux, user_namespaces(7): the first map of the machine's own namespace
/// covers every number).
fn in_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().nth(2).is_some_and(|count| count != "4294967295"))
}

/// Runs a command on a host of a lab; gives its exit status. Ends it if the lab ends.
///
/// # Errors
///
/// If the lab does not run, has no such host, or the command cannot be started.
pub fn run(registry: &Registry, name: &str, host: &str, command: &[String]) -> anyhow::Result<u8> {
    let running = registry.open(name)?;
    let on = running.host(host)?;
    if running.user_namespace && !nix::unistd::Uid::current().is_root() {
        namespace::join_user_namespace(running.process).context("join the lab's user namespace")?;
    }
    let (program, arguments) = command.split_first().context("no command was given")?;
    let network = Namespace::open(&on.namespace).with_context(|| format!("find host {host}"))?;
    let mut process = network.service(program)?;
    process.args(arguments).env("PENSTOCK_LAB", name).env("PENSTOCK_LAB_HOST", host);
    for other in &running.hosts {
        process.env(format!("LAB_{}", other.name.to_uppercase().replace('-', "_")), other.address.to_string());
    }
    if let Some(folder) = &running.site {
        process.env("PENSTOCK_DATA", folder);
    }
    let child = process.spawn().with_context(|| format!("run {program}"))?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).context("a process's number")?);
    let alive = Arc::new(Mutex::new(true));
    watch(registry, name, pid, Arc::clone(&alive));
    let mut child = child;
    let status = {
        // Waited for without reaping first, so that the watcher never hits a number that is another process's by now.
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        *alive.lock().unwrap_or_else(PoisonError::into_inner) = false;
        child.wait().context("wait for the command")?
    };
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Kills the process when the lab ends before it does.
fn watch(registry: &Registry, name: &str, process: nix::unistd::Pid, alive: Arc<Mutex<bool>>) {
    let (registry, name) = (registry.clone(), name.to_owned());
    std::thread::spawn(move || {
        let ended = registry.wait(&name);
        let alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_ok() && *alive {
            let _ = nix::sys::signal::kill(process, Signal::SIGKILL);
        }
    });
}

/// Which program a lab starts its parts from.
///
/// # Errors
///
/// If it is not there.
pub fn check_program(program: &Path) -> anyhow::Result<()> {
    if program.is_file() { Ok(()) } else { bail!("{} is not there", program.display()) }
}
