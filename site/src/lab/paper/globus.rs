//! The Globus GridFTP server in the same lab, over the same links: a server on a mover's host, `globus-url-copy` on the
//! client's.
//!
//! Owns nothing that outlives a call. Data and control in clear and without authentication on both ends, since the lab's
//! certificates are not Globus's; its control dialogue is in what is measured, as Penstock's is.

use std::{
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use netsim::Lab;

use super::bench::{Bench, Effort, megabits};

const PORT: u16 = 2911;
/// How long the server may take to come up.
const START_LIMIT: Duration = Duration::from_secs(20);

impl Effort {
    /// What `globus-url-copy` carries, client program's start included: to the client, or from it. `None` where Globus is
    /// not installed.
    ///
    /// # Errors
    ///
    /// If it is installed and does not work.
    pub fn globus(&self, bench: &Bench, bytes: u64, streams: u16, to_client: bool) -> anyhow::Result<Option<f64>> {
        if !self.globus {
            return Ok(None);
        }
        let (here, there) = (bench.folder().join("globus-here"), bench.folder().join("globus-there"));
        let from = if to_client { &there } else { &here };
        super::bench::write_file(from, bytes)?;
        let rate = copy(&bench.lab, &here, &there, bytes, streams, to_client);
        for file in [&here, &there] {
            let _ = std::fs::remove_file(file);
        }
        rate.map(Some)
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn copy(lab: &Lab, here: &Path, there: &Path, bytes: u64, streams: u16, to_client: bool) -> anyhow::Result<f64> {
    let address = lab.host("mover1").address();
    let mut command = lab.host("mover1").service("globus-gridftp-server")?;
    let (port, interface) = (PORT.to_string(), address.to_string());
    // Anonymous and as root, since it only sees the lab. Told where to listen for control it would look up a name, which
    // no host of a lab can: it listens everywhere on this one.
    command.args(["-aa", "-anonymous-user", "root", "-allow-root", "-c", "none", "-home-dir", "/", "-d", "error"]);
    command.args(["-p", &port, "-data-interface", &interface]);
    command.env("PATH", path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Server(command.spawn().context("start globus-gridftp-server")?);
    let remote = format!("ftp://anonymous:lab@{address}:{PORT}{}", there.display());
    let local = format!("file://{}", here.display());
    let began = Instant::now();
    loop {
        let mut client = lab.host("client").service("globus-url-copy")?;
        if streams > 1 {
            client.args(["-p", &streams.to_string()]);
        }
        let (from, to) = if to_client { (&remote, &local) } else { (&local, &remote) };
        let started = Instant::now();
        let output = client.args([from, to]).env("PATH", path()).stdin(Stdio::null()).output();
        let output = output.context("run globus-url-copy")?;
        let took = started.elapsed();
        if output.status.success() {
            let moved = std::fs::metadata(if to_client { here } else { there })?.len();
            ensure!(moved == bytes, "globus-url-copy moved {moved} of {bytes} bytes");
            return Ok(megabits(bytes, took));
        }
        let ended = server.0.try_wait()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(ended.is_none() && began.elapsed() < START_LIMIT, "globus-url-copy: {}", said.trim());
        // The server is not up yet.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Where Debian has the server.
fn path() -> String {
    format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default())
}
