//! curl and lftp, told where a site is and who they are.

use std::{ffi::OsStr, path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use daemon::{Clock, logging, pki::Holder};
use tests::{Site, User, bytes};
use tokio::process::{Child, Command};

/// No client here needs longer; one that hangs fails its test.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

/// A site, and the programs of its user alice.
pub(crate) struct Programs {
    /// The site.
    pub(crate) site: Site,
    alice: User,
}

/// What a client program said.
pub(crate) struct Said {
    /// Its exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) out: Vec<u8>,
    /// Standard error.
    pub(crate) err: String,
}

impl Said {
    /// The standard output, of a program that succeeded.
    pub(crate) fn good(self) -> Result<String> {
        let text = String::from_utf8_lossy(&self.out).into_owned();
        ensure!(self.status == Some(0), "exit status {:?}\n{text}\n{}", self.status, self.err);
        Ok(text)
    }
}

impl Programs {
    /// Starts a site with two movers. `PENSTOCK_TEST_LOG=debug` shows what it does.
    pub(crate) async fn start() -> Result<Self> {
        Self::of(Site::start().await).await
    }

    /// The programs of a site that is there.
    pub(crate) async fn of(site: Site) -> Result<Self> {
        if let Ok(filter) = std::env::var("PENSTOCK_TEST_LOG") {
            logging::init(&logging::LogSettings { filter, ..logging::LogSettings::default() })?;
        }
        let alice = site.user("alice").await;
        Ok(Self { site, alice })
    }

    /// A place for a test's own files.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.site.folder().join(name)
    }

    /// Makes a file with noise in it.
    pub(crate) fn write(&self, name: &str, length: usize, seed: u64) -> Result<Vec<u8>> {
        write(&self.path(name), length, seed)
    }

    /// The certificate of somebody whom no mapping knows.
    pub(crate) fn stranger(&self) -> Result<std::path::PathBuf> {
        let path = self.path("mallory.pem");
        self.site.ca.issue(&Holder::User { name: "mallory" }, &Clock::real())?.create(&path)?;
        Ok(path)
    }

    /// The URL of a path below alice's home.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.site.ftp())
    }

    /// curl with nothing but the authority to trust.
    pub(crate) fn curl_command(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["--disable", "-sS", "--cacert"]).arg(self.path("ca.pem"));
        command
    }

    /// curl with alice's certificate.
    pub(crate) fn curl_as_alice<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.curl_command();
        command.arg("--cert").arg(&self.alice.certificate).args(arguments);
        command
    }

    /// Runs curl as alice, with TLS on data connections too.
    pub(crate) async fn curl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<Said> {
        let mut command = self.curl_as_alice(arguments);
        command.arg("--ssl-reqd");
        run(command).await
    }

    /// lftp with a script, as alice, everything over TLS.
    pub(crate) fn lftp_command(&self, script: &str) -> Command {
        let (ca, certificate) = (self.path("ca.pem"), &self.alice.certificate);
        let (ca, certificate) = (ca.display(), certificate.display());
        let script = format!(
            "set ssl:ca-file {ca}; set ssl:cert-file {certificate}; set ssl:key-file {certificate}; \
             set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set ftp:ssl-protect-list yes; \
             set net:timeout 20; set net:max-retries 1; set cmd:fail-exit yes; set cmd:interactive no; \
             open -u alice,x ftp://{}; {script}",
            self.site.ftp(),
        );
        let mut command = Command::new("lftp");
        command.args(["--norc", "-c", &script]).env("LFTP_HOME", self.path("lftp"));
        command
    }

    /// Runs a script of lftp's.
    pub(crate) async fn lftp(&self, script: &str) -> Result<Said> {
        run(self.lftp_command(script)).await
    }

    /// Starts a program that uploads slowly, and kills it when some of the file has come.
    pub(crate) async fn cut(&self, mut upload: Command) -> Result<()> {
        let mut child: Child = upload.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        let running = || self.site.gateway.transfers.running();
        tests::soon("half an upload", async {
            while !running().iter().any(|transfer| transfer.bytes > 300_000) {
                ensure!(child.try_wait()?.is_none(), "the upload ended before it could be cut");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        })
        .await?;
        child.kill().await?;
        tests::soon("the end of a cut upload", async {
            while !running().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        Ok(())
    }
}

/// Runs a client to its end.
pub(crate) async fn run(mut command: Command) -> Result<Said> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let limited = tokio::time::timeout(CLIENT_LIMIT, child).await.with_context(|| format!("{name} hangs"))?;
    let output = limited.with_context(|| {
        format!("start {name}: these tests need the Debian packages curl and lftp (`make test` installs them)")
    })?;
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Said { status: output.status.code(), out: output.stdout, err })
}

/// Makes a file with noise in it, and the folders above it.
pub(crate) fn write(path: &Path, length: usize, seed: u64) -> Result<Vec<u8>> {
    let data = bytes(seed, length);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, &data)?;
    Ok(data)
}
