//! Programs that a benchmark starts: each ends with the value that stands for it, and at the latest with this process.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a program gets to end by itself.
const GRACE: Duration = Duration::from_secs(15);
/// How often a state that nobody tells us of is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How much of a log is shown when its program fails.
const SHOWN_LOG_BYTES: usize = 2000;

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a program whose output goes to a file.
    ///
    /// Call it on a thread that lives as long as the program may: the kernel kills the program when the thread that
    /// started it ends, which is how it ends with us however we end.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(command: &Command, log: &Path) -> anyhow::Result<Self> {
        let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let output = File::create(log).with_context(|| format!("write {}", log.display()))?;
        let mut command = bound_to_us(command);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `look` finds what it looks for. Cancel-safe.
    ///
    /// # Errors
    ///
    /// If the program ends meanwhile, or `limit` passes; with the end of its log.
    pub async fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut() -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended ({status}) before {what}; it said: {}", self.name, self.last_words());
            }
            ensure!(
                Instant::now() < deadline,
                "{} had no {what} within {} s; it said: {}",
                self.name,
                limit.as_secs(),
                self.last_words()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until something takes connections at an address.
    ///
    /// # Errors
    ///
    /// As [`Self::wait_for`].
    pub async fn wait_for_port(&mut self, address: SocketAddr, limit: Duration) -> anyhow::Result<()> {
        let look = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
        self.wait_for(&format!("port {}", address.port()), limit, look).await.map(drop)
    }

    /// The end of what it wrote.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(SHOWN_LOG_BYTES)..]).trim().to_owned()
    }

    /// Asks it to end, and waits; kills it if it does not.
    pub async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn signal(&self, signal: Signal) {
        // Until it is waited for, the number is its own.
        if let Ok(id) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(id), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same command, killed by the kernel when the thread that starts it ends.
fn bound_to_us(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

/// Runs a program to its end and gives what it wrote to standard output.
///
/// # Errors
///
/// If it cannot be started, fails, or takes longer than `limit`; then it is killed.
pub async fn run(command: &Command, limit: Duration) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut command = tokio::process::Command::from(bound_to_us(command));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(limit, command.output()).await;
    let output = output.with_context(|| format!("{name} took longer than {} s", limit.as_secs()))?;
    let output = output.with_context(|| format!("run {name}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed ({}): {said}{complained}", output.status);
    Ok(said)
}

/// `count` ports in a row on which nothing listens now.
///
/// # Errors
///
/// If there are none.
pub fn free_ports(count: u16) -> io::Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if first.checked_add(count).is_some_and(|end| (first..end).all(free)) {
            return Ok(first);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no {count} free ports in a row")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_ends_with_the_value_that_stands_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let running = Running::start(&command, &folder.path().join("log")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", running.id()));
        assert!(process.exists());
        drop(running);
        assert!(!process.exists());
    }

    #[tokio::test]
    async fn a_program_that_ends_early_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason; exit 3"]);
        let mut running = Running::start(&command, &folder.path().join("log")).unwrap();
        let error = running.wait_for("a sign", Duration::from_secs(10), || None::<()>).await.unwrap_err().to_string();
        assert!(error.contains("the reason") && error.contains("3"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_given_up() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let error = run(&command, Duration::from_millis(20)).await.unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo why >&2; exit 1"]);
        let error = run(&fails, Duration::from_secs(10)).await.unwrap_err().to_string();
        assert!(error.contains("why"), "{error}");
    }
}
