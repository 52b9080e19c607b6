//! A site to measure: run by `penstock serve` in a process of its own, or by `penstock mover` and `penstock gateway`.
//!
//! Owns the site's folder and its processes. Talks to it as users and operators do: by FTP with the client library, by
//! `penstock admin`, by `/metrics`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use client::{Client, IdentityOptions, Limits, Options, Ready, Surroundings, Target};
use site::folder::{Doors, SiteFolder};
use site::setup::{self, NewSite};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::ftp::{Command as Ftp, EpsvArgument};

use super::Setting;
use super::process::{Running, free_ports, run};

/// How long a site gets to be ready, and how long until its movers are known to the gateway.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long one operator's command may take: a migration or a recall of the largest file.
const ADMIN_LIMIT: Duration = Duration::from_secs(1800);

/// Classes for what is measured: what is deleted goes at once.
const CLASSES: &str = r#"
[[cos]]
name = "bench"
hierarchy = "disk-only"
copies = 0
undelete = "0s"

[[cos]]
name = "bench-tape"
hierarchy = "disk-tape"
copies = 1
undelete = "0s"
"#;

/// What a measured site is like.
#[derive(Clone, Debug)]
pub struct Wish {
    /// How many movers.
    pub movers: u16,
    /// The class of service of files whose writers do not say: `bench` or `bench-tape`.
    pub class: &'static str,
    /// The catalogue's database; SQLite in the site's folder if `None`.
    pub catalogue: Option<String>,
    /// How many sessions one address may have.
    pub sessions: u32,
    /// At which port of loopback the S3 door listens without TLS too.
    pub s3_clear: Option<u16>,
    /// At which port of loopback the first mover serves HTTP without TLS.
    pub http_clear: Option<u16>,
}

impl Default for Wish {
    fn default() -> Self {
        Self { movers: 1, class: "bench", catalogue: None, sessions: 500, s3_clear: None, http_clear: None }
    }
}

/// A running site; dropping it ends its processes.
#[derive(Debug)]
pub struct Served {
    /// Where it keeps what it has.
    pub folder: SiteFolder,
    /// Where its doors listen.
    pub doors: Doors,
    penstock: PathBuf,
    processes: Vec<Running>,
}

impl Served {
    /// Makes a site in the setting's folder and starts it with `penstock serve`.
    ///
    /// # Errors
    ///
    /// If it is not ready in time.
    pub async fn start(setting: &Setting, wish: &Wish) -> anyhow::Result<Self> {
        check_program(setting)?;
        let folder = SiteFolder::new(setting.path("site"));
        let ports = 3 + wish.movers;
        prepare(&folder, wish, free_ports(ports)?)?;
        let mut process = serve(setting, &folder)?;
        let doors = process.wait_for("open doors", READY_LIMIT, || folder.doors().ok()).await?;
        let site = Self { folder, doors, penstock: setting.penstock.clone(), processes: vec![process] };
        site.is_whole().await?;
        Ok(site)
    }

    /// The same in processes of their own: the movers in order, then the gateway.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub async fn start_apart(setting: &Setting, wish: &Wish) -> anyhow::Result<Self> {
        // The first start makes the site and its first account.
        let mut site = Self::start(setting, wish).await?;
        for process in site.processes.drain(..) {
            process.stop().await;
        }
        let part = |name: &str, configuration: PathBuf| {
            let mut command = Command::new(&setting.penstock);
            command.arg(name).arg("--config").arg(configuration);
            let log = format!("{name}-{}.log", site.processes.len());
            Running::start(&command, &setting.path(log))
        };
        let mut processes = Vec::new();
        for configuration in site.folder.mover_configurations() {
            processes.push(part("mover", configuration)?);
        }
        let mut gateway = part("gateway", site.folder.gateway_configuration())?;
        gateway.wait_for_port(site.doors.ftp, READY_LIMIT).await?;
        processes.push(gateway);
        site.processes = processes;
        site.is_whole().await?;
        Ok(site)
    }

    /// Waits until the gateway knows its movers: until then it refuses uploads.
    async fn is_whole(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let error = match self.try_upload().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                let said: Vec<_> = self.processes.iter().map(Running::last_words).collect();
                return Err(error.context(format!("the site is not ready; it said: {}", said.join("\n"))));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_upload(&self) -> anyhow::Result<()> {
        let mut session = self.session(false).await?;
        let listening = session.demand(&Ftp::Epsv(EpsvArgument::Same)).await;
        session.quit().await;
        Ok(listening.map(drop)?)
    }

    /// The process of `penstock serve`, or of the mover with this index and then the gateway.
    #[must_use]
    pub fn process(&self, index: usize) -> Option<u32> {
        self.processes.get(index).map(Running::id)
    }

    /// How a session is opened: by the certificate of whoever made the site.
    ///
    /// # Errors
    ///
    /// If the site has no such certificate.
    pub fn options(&self, private_data: bool) -> anyhow::Result<Arc<Options>> {
        let identity = IdentityOptions {
            certificate: Some(self.credential()?),
            authorities: Some(self.folder.ca_certificate()),
            ..IdentityOptions::default()
        };
        // A reply to RETR comes when everything has been sent.
        let limits = Limits { reply: Duration::from_secs(900), ..Limits::default() };
        Ok(Arc::new(Options {
            target: Target { user: None, host: self.doors.ftp.ip().to_string(), port: self.doors.ftp.port() },
            identity: Some(identity.load(&Surroundings::default())?),
            password: None,
            private_data,
            class_of_service: None,
            limits,
            trace: None,
        }))
    }

    /// A logged-in session.
    ///
    /// # Errors
    ///
    /// If the site does not let us in.
    pub async fn session(&self, private_data: bool) -> anyhow::Result<Client<Ready>> {
        Client::open(self.options(private_data)?).await.context("log in")
    }

    /// Certificate and key of whoever made the site.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn credential(&self) -> anyhow::Result<PathBuf> {
        let users = self.folder.path().join("users");
        let mut files = std::fs::read_dir(&users).with_context(|| format!("read {}", users.display()))?;
        Ok(files.next().with_context(|| format!("{} is empty", users.display()))??.path())
    }

    /// The account of whoever made the site, after whom the certificate's file is called.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn account(&self) -> anyhow::Result<String> {
        let credential = self.credential()?;
        let name = credential.file_stem().with_context(|| format!("{} has no name", credential.display()))?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Runs `penstock admin`.
    ///
    /// # Errors
    ///
    /// If it fails; with what it said.
    pub async fn admin(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.penstock);
        command.arg("admin").arg("--data").arg(self.folder.path());
        run(command.args(arguments), ADMIN_LIMIT).await
    }

    /// How many bytes went through a second mover so far.
    ///
    /// # Errors
    ///
    /// If the site does not say.
    pub async fn relayed_bytes(&self) -> anyhow::Result<u64> {
        let address = self.doors.metrics.context("the site serves no metrics")?;
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.take(16 << 20).read_to_string(&mut text).await.context("read /metrics")?;
        Ok(sum_of(&text, "penstock_relayed_bytes_total"))
    }
}

/// The sum of a counter over all its labels, from Prometheus's text.
fn sum_of(text: &str, name: &str) -> u64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    });
    values.sum::<f64>() as u64
}

/// Starts `penstock serve` on a folder.
///
/// # Errors
///
/// If it cannot be started.
pub fn serve(setting: &Setting, folder: &SiteFolder) -> anyhow::Result<Running> {
    let mut command = Command::new(&setting.penstock);
    command.arg("serve").arg("--data").arg(folder.path()).args(["--port", "0"]);
    Running::start(&command, &setting.path("serve.log"))
}

/// Checks that the program to measure is there.
///
/// # Errors
///
/// If it is not, with how it is built.
pub fn check_program(setting: &Setting) -> anyhow::Result<()> {
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    ensure!(
        setting.penstock.exists(),
        "{} is not there: build it with `cargo build{release} --package penstock-site`",
        setting.penstock.display()
    );
    Ok(())
}

/// The files of a first start, with what the wish asks for.
fn prepare(folder: &SiteFolder, wish: &Wish, port: u16) -> anyhow::Result<()> {
    setup::prepare(folder, &NewSite { port, movers: wish.movers, ..NewSite::default() })?;
    let path = folder.gateway_configuration();
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, changed(&text, wish)?)?;
    if let (Some(port), Some(path)) = (wish.http_clear, folder.mover_configurations().first()) {
        let text = std::fs::read_to_string(path)?;
        let line = format!("listen_clear = \"127.0.0.1:{port}\"\n");
        let text = match text.split_once("[http]\n") {
            Some((before, behind)) => format!("{before}[http]\n{line}{behind}"),
            None => format!("{text}\n[http]\n{line}"),
        };
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// The gateway's configuration with what the wish asks for.
fn changed(text: &str, wish: &Wish) -> anyhow::Result<String> {
    let mut lines: Vec<String> = vec![format!("default_cos = {:?}", wish.class)];
    let (mut url, mut ftp, mut stripe, mut s3) = (false, false, false, false);
    for line in text.lines() {
        match &wish.catalogue {
            Some(catalogue) if line.starts_with("url = ") => {
                lines.push(format!("url = {}", serde_json::Value::from(catalogue.as_str())));
                url = true;
            }
            // A file is on one mover: what a stripe brings is not the question here.
            _ if line.starts_with("stripe_width = ") => {
                lines.push("stripe_width = 1".to_owned());
                stripe = true;
            }
            _ => lines.push(line.to_owned()),
        }
        if line == "[ftp]" {
            lines.push(format!("max_sessions_per_address = {}", wish.sessions));
            ftp = true;
        }
        if let (Some(port), "[s3]") = (wish.s3_clear, line) {
            lines.push(format!("listen_clear = [\"127.0.0.1:{port}\"]\nclasses = {{ STANDARD = {:?} }}", wish.class));
            s3 = true;
        }
    }
    let known = ftp && stripe && (url || wish.catalogue.is_none()) && (s3 || wish.s3_clear.is_none());
    ensure!(known, "the gateway's configuration is not as it used to be");
    Ok(lines.join("\n") + "\n" + CLASSES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels_and_not_over_its_neighbours() {
        let text =
            "# TYPE penstock_x counter\npenstock_x{door=\"ftp\"} 3\npenstock_x{door=\"s3\"} 4e2\npenstock_xy 9\n";
        assert_eq!(sum_of(text, "penstock_x"), 403);
        assert_eq!(sum_of(text, "penstock_none"), 0);
    }

    #[test]
    fn the_configuration_of_a_measured_site_is_a_good_one() {
        let root = tempfile::tempdir().unwrap();
        let folder = SiteFolder::new(root.path().join("site"));
        let catalogue = Some("postgres://x/y?host=/tmp".to_owned());
        let (s3_clear, http_clear) = (Some(7), Some(8));
        let wish = Wish { catalogue, sessions: 1200, s3_clear, http_clear, ..Wish::default() };
        prepare(&folder, &wish, 0).unwrap();
        let path = folder.gateway_configuration();
        let text = std::fs::read_to_string(&path).unwrap();
        let config = daemon::config::parse::<gateway::config::Config>("gateway.toml", &text, []);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config.default_cos.as_str(), "bench");
        assert_eq!(config.ftp.max_sessions_per_address, 1200);
        assert_eq!(config.catalogue.url, "postgres://x/y?host=/tmp");
        assert_eq!(config.s3.listen_clear, ["127.0.0.1:7".parse().unwrap()]);
        let text = std::fs::read_to_string(&folder.mover_configurations()[0]).unwrap();
        let mover = daemon::config::parse::<mover::MoverConfig>("mover1.toml", &text, []);
        let mover = mover.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(mover.http.listen_clear, Some("127.0.0.1:8".parse().unwrap()));
    }
}
