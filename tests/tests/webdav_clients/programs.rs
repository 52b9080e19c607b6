//! curl, davix and gfal2, told where a site with tape is and who they are.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use gateway::config::Config;
use serde_json::Value;
use tests::{Site, SiteBuilder, User, bytes};
use tokio::process::Command;

/// No client here needs longer; one that hangs fails its test.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// gfal2's calls, one after the other, as the arguments say.
const GFAL: &str = include_str!("gfal.py");

/// A site with a WebDAV door, and the programs of its users alice and bob.
pub(crate) struct Programs {
    pub(crate) site: Site,
    pub(crate) alice: User,
    pub(crate) bob: User,
    trusted: PathBuf,
}

/// What a client program said.
pub(crate) struct Said {
    status: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    /// The standard output, of a program that succeeded.
    pub(crate) fn good(self) -> Result<String> {
        let text = self.text();
        ensure!(self.status == Some(0), "exit status {:?}\n{text}\n{}", self.status, self.err);
        Ok(text)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(crate) fn failed(&self) -> bool {
        self.status != Some(0)
    }
}

/// What the door answered curl.
pub(crate) struct Answered {
    pub(crate) status: u16,
    headers: String,
    pub(crate) body: Vec<u8>,
}

impl Answered {
    /// A header, of the last answer.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().rev().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| String::from_utf8_lossy(&self.body).into_owned())
    }

    /// The body as a text, of an answer with this status.
    pub(crate) fn expect(&self, status: u16) -> Result<String> {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        ensure!(self.status == status, "{} instead of {status}: {}{text}", self.status, self.headers);
        Ok(text)
    }
}

impl Programs {
    /// With disks alone.
    pub(crate) async fn start() -> Result<Self> {
        Self::of(Site::builder(), |_| ()).await
    }

    /// With a tape library, where files sink at once.
    pub(crate) async fn with_tape(change: impl FnOnce(&mut Config) + Send + 'static) -> Result<Self> {
        Self::of(Site::builder().tape(2, 4).eager(), change).await
    }

    pub(crate) async fn of(builder: SiteBuilder, change: impl FnOnce(&mut Config) + Send + 'static) -> Result<Self> {
        let change = move |config: &mut Config| {
            config.webdav.listen = vec!["127.0.0.1:0".parse().expect("an address")];
            change(config);
        };
        let site = builder.gateway(change).start().await;
        let (alice, bob) = (site.user("alice").await, site.user("bob").await);
        let trusted = site.trust_folder();
        Ok(Self { site, alice, bob, trusted })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.site.folder().join(name)
    }

    pub(crate) fn text_of(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Makes a file with noise in it.
    pub(crate) fn write(&self, name: &str, length: usize, seed: u64) -> Result<Vec<u8>> {
        let data = bytes(seed, length);
        std::fs::write(self.path(name), &data)?;
        Ok(data)
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        let door = self.site.gateway.doors.webdav.first().expect("the WebDAV door is open");
        format!("{scheme}://localhost:{}{path}", door.port())
    }

    /// A program that knows nothing of whoever runs the tests.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env_clear().env("HOME", self.site.folder()).env("X509_CERT_DIR", &self.trusted);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// curl with alice's certificate.
    pub(crate) async fn curl(&self, arguments: &[&str], path: &str) -> Result<Answered> {
        self.curl_as(Some(&self.alice), arguments, path).await
    }

    pub(crate) async fn curl_as(&self, who: Option<&User>, arguments: &[&str], path: &str) -> Result<Answered> {
        let head = tempfile::NamedTempFile::new_in(self.site.folder())?;
        let mut command = self.program("curl");
        command.args(["--disable", "-sS", "--path-as-is", "--capath"]).arg(&self.trusted);
        command.arg("-D").arg(head.path());
        if let Some(who) = who {
            command.arg("--cert").arg(&who.certificate);
        }
        command.args(arguments).arg(self.url("https", path));
        let said = run(command).await?;
        ensure!(!said.failed(), "{}", said.err);
        let headers = std::fs::read_to_string(head.path())?;
        let last = headers.lines().rev().find(|line| line.starts_with("HTTP/")).context("a status line")?;
        let status = last.split(' ').nth(1).context("a status")?.parse()?;
        Ok(Answered { status, headers, body: said.out })
    }

    /// A call of Tape REST.
    pub(crate) async fn call(&self, method: &str, call: &str, body: Option<Value>) -> Result<Answered> {
        self.call_as(&self.alice, method, call, body).await
    }

    pub(crate) async fn call_as(&self, who: &User, method: &str, call: &str, body: Option<Value>) -> Result<Answered> {
        let path = format!("/api/v1/{call}");
        let file = tempfile::NamedTempFile::new_in(self.site.folder())?;
        let mut arguments = vec!["-X", method];
        let data = format!("@{}", file.path().display());
        if let Some(body) = body {
            std::fs::write(file.path(), body.to_string())?;
            arguments.extend(["-H", "Content-Type: application/json", "--data-binary", &data]);
        }
        self.curl_as(Some(who), &arguments, &path).await
    }

    /// A program of davix, with alice's certificate.
    pub(crate) async fn davix(&self, name: &str, arguments: &[&str]) -> Result<Said> {
        let mut command = self.program(name);
        command.arg("--capath").arg(&self.trusted).arg("-E").arg(&self.alice.certificate);
        command.args(arguments);
        run(command).await
    }

    /// gfal2's calls (gfal.py), by a proxy of alice's.
    pub(crate) async fn gfal(&self, arguments: &[&str]) -> Result<Said> {
        let proxy = self.proxy().await?;
        // The interpreter of the system, which has the Debian package's module.
        let mut command = self.program("/usr/bin/python3");
        command.env("X509_USER_PROXY", proxy).args(["-c", GFAL]).args(arguments);
        run(command).await
    }

    /// A proxy of alice's certificate, made by openssl (RFC 3820).
    pub(crate) async fn proxy(&self) -> Result<PathBuf> {
        let (path, own) = (self.path("proxy.pem"), &self.alice.certificate);
        if path.exists() {
            return Ok(path);
        }
        let (key, request, settings) = (self.path("proxy.key"), self.path("proxy.csr"), self.path("proxy.cnf"));
        std::fs::write(
            &settings,
            "[proxy]\nbasicConstraints = CA:FALSE\nkeyUsage = critical, digitalSignature\n\
             proxyCertInfo = critical, language:id-ppl-inheritAll\n",
        )?;
        let subject = self.alice.subject();
        let mut command = self.program("openssl");
        command.args(["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", &format!("{subject}/CN=1234567")]);
        command.arg("-keyout").arg(&key).arg("-out").arg(&request);
        run(command).await?.good()?;
        let mut command = self.program("openssl");
        command.args(["x509", "-req", "-days", "1", "-set_serial", "1234567", "-extensions", "proxy"]);
        command.arg("-in").arg(&request).arg("-extfile").arg(&settings);
        command.arg("-CA").arg(own).arg("-CAkey").arg(own).arg("-out").arg(self.path("proxy.crt"));
        run(command).await?.good()?;
        let mut whole = std::fs::read(self.path("proxy.crt"))?;
        whole.extend(std::fs::read(&key)?);
        whole.extend(std::fs::read(own)?);
        std::fs::write(&path, whole)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(path)
    }

    /// Stores a file by curl, waits until it has all its tape copies, and takes it off the disk.
    pub(crate) async fn sink(&self, path: &str, length: usize, seed: u64) -> Result<Vec<u8>> {
        let data = self.write("sinking", length, seed)?;
        self.curl(&["-T", &self.text_of("sinking")], path).await?.expect(201)?;
        let bitfile = self.site.bitfile(path).await;
        self.site.sink(bitfile).await;
        Ok(data)
    }
}

async fn run(mut command: Command) -> Result<Said> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let name = format!("{:?}", command.as_std().get_program());
    let output = tokio::time::timeout(CLIENT_LIMIT, command.output()).await;
    let output = output.with_context(|| format!("{name} hangs"))?;
    let output = output.with_context(|| format!("start {name}: tests/prepare installs it"))?;
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Said { status: output.status.code(), out: output.stdout, err })
}
