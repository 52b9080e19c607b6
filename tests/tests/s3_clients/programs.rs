//! curl, aws, s3cmd and rclone, told where a site is and who they are.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use catalog::AccessKey;
use daemon::config::TimeSpan;
use gateway::s3::secrets::{Sealer, new_key};
use tests::{Site, SiteBuilder, User, bytes};
use tokio::process::Command;

/// No client here needs longer; one that hangs fails its test.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);

/// A site with an S3 door, and the programs of its user alice, who use it in clear unless they say otherwise.
pub(crate) struct Programs {
    pub(crate) site: Site,
    pub(crate) alice: User,
    pub(crate) key: String,
    pub(crate) secret: String,
}

/// What a client program said.
pub(crate) struct Said {
    status: Option<i32>,
    pub(crate) out: Vec<u8>,
    err: String,
}

impl Said {
    /// Everything it said, whether it succeeded or not.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out), self.err)
    }

    /// The standard output, of a program that succeeded.
    pub(crate) fn good(self) -> Result<String> {
        let text = String::from_utf8_lossy(&self.out).into_owned();
        ensure!(self.status == Some(0), "exit status {:?}\n{text}\n{}", self.status, self.err);
        Ok(text)
    }

    /// What a program said that failed.
    #[allow(dead_code, reason = "used by the tests of archives")]
    pub(crate) fn failed(self) -> Result<String> {
        ensure!(self.status != Some(0), "it should have failed: {}", String::from_utf8_lossy(&self.out));
        Ok(self.err)
    }
}

impl Programs {
    pub(crate) async fn start() -> Result<Self> {
        Self::of(Site::builder()).await
    }

    pub(crate) async fn of(builder: SiteBuilder) -> Result<Self> {
        let site = builder
            .gateway(|config| {
                let anywhere: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
                (config.s3.listen, config.s3.listen_clear) = (vec![anywhere], vec![anywhere]);
                config.s3.usage_every = TimeSpan::milliseconds(200);
                // There is no other gateway that could be about to publish what a killed one left.
                config.limits.orphan_grace = TimeSpan::milliseconds(100);
            })
            .start()
            .await;
        let alice = site.user("alice").await;
        let (key, secret) = new_key()?;
        let sealer = Sealer::open(&site.folder().join("gateway/s3-secrets.key"))?;
        let account = wire::id::AccountName::new("alice")?;
        let made = AccessKey {
            id: key.clone(),
            account,
            sealed: sealer.seal(&key, secret.expose()),
            disabled: false,
            created: site.gateway.catalog.now(),
            direct: None,
        };
        site.gateway.catalog.add_access_key(made).await?;
        // Of its own accord the program signs URLs for us-east-1 by version 2, which the door does not take.
        std::fs::write(site.folder().join("aws-config"), "[default]\ns3 =\n  signature_version = s3v4\n")?;
        Ok(Self { site, alice, key, secret: secret.expose().clone() })
    }

    #[allow(dead_code, reason = "used by the tests of redirects")]
    pub(crate) const fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.site.folder().join(name)
    }

    pub(crate) fn text_of(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Makes a file with noise in it.
    pub(crate) fn write(&self, name: &str, length: usize, seed: u64) -> Result<Vec<u8>> {
        let (data, path) = (bytes(seed, length), self.path(name));
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, &data)?;
        Ok(data)
    }

    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.path(name))?)
    }

    /// A program that knows nothing of whoever runs the tests: settings of theirs, a proxy or a folder of certificates,
    /// would change what is tested.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env_clear().env("HOME", self.site.folder());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// Where the door listens.
    pub(crate) fn door(&self) -> String {
        self.site.gateway.doors.s3_clear.first().expect("the S3 door is open").to_string()
    }

    /// curl with a signature of alice's.
    pub(crate) async fn curl(&self, arguments: &[&str], path: &str) -> Result<Said> {
        self.curl_as(&self.secret, arguments, path).await
    }

    pub(crate) async fn curl_as(&self, secret: &str, arguments: &[&str], path: &str) -> Result<Said> {
        let user = format!("{}:{secret}", self.key);
        // curl's own signature does not cover the payload of an upload unless it is told its hash.
        let fixed = [
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
            "--user",
            user.as_str(),
            "-H",
            "x-amz-content-sha256: UNSIGNED-PAYLOAD",
        ];
        self.plain(&[&fixed[..], arguments].concat(), path).await
    }

    /// curl without a signature.
    pub(crate) async fn plain(&self, arguments: &[&str], path: &str) -> Result<Said> {
        let url = format!("http://{}/{path}", self.door());
        let mut command = self.program("curl");
        command.args(["--disable", "-sS"]).args(arguments).arg(url);
        run(command).await
    }

    pub(crate) async fn fetch(&self, url: &str) -> Result<Said> {
        let mut command = self.program("curl");
        command.args(["--disable", "-sS", url]);
        run(command).await
    }

    /// curl by FTP with alice's certificate.
    pub(crate) async fn ftp(&self, arguments: &[&str], path: &str) -> Result<Said> {
        let url = format!("ftp://{}//{path}", self.site.ftp());
        let mut command = self.program("curl");
        command.args(["--disable", "-sS", "--ssl-reqd", "--cacert"]).arg(self.path("ca.pem"));
        command.arg("--cert").arg(&self.alice.certificate).args(["--user", ":"]).args(arguments).arg(url);
        run(command).await
    }

    pub(crate) async fn aws(&self, arguments: &[&str]) -> Result<Said> {
        self.aws_as((&self.key, &self.secret, None), arguments).await
    }

    /// aws with a key, its secret, and a session token if the key is temporary.
    pub(crate) async fn aws_as(
        &self,
        (key, secret, token): (&str, &str, Option<&str>),
        arguments: &[&str],
    ) -> Result<Said> {
        let mut command = self.program("aws");
        command.args(["--endpoint-url", &format!("http://{}", self.door())]).args(arguments);
        command
            .env("AWS_ACCESS_KEY_ID", key)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .envs(token.map(|token| ("AWS_SESSION_TOKEN", token)))
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_CONFIG_FILE", self.path("aws-config"))
            .env("AWS_EC2_METADATA_DISABLED", "true");
        run(command).await
    }

    pub(crate) async fn s3cmd(&self, arguments: &[&str]) -> Result<Said> {
        let mut command = self.program("s3cmd");
        command.args(["--config", "/dev/null", "--no-ssl", "--host", &self.door()]);
        command.args(["--host-bucket", &format!("{}/%(bucket)", self.door()), "--no-progress"]);
        command.args(["--access_key", &self.key, "--secret_key", &self.secret, "--region", "us-east-1"]);
        command.args(arguments);
        run(command).await
    }

    /// Debian's rclone.
    pub(crate) async fn rclone(&self, arguments: &[&str]) -> Result<Said> {
        self.rclone_of("rclone", arguments).await
    }

    pub(crate) async fn rclone_of(&self, program: &str, arguments: &[&str]) -> Result<Said> {
        let mut command = self.program(program);
        command.args(arguments);
        command
            .env("RCLONE_CONFIG", self.path("no-rclone.conf"))
            .env("RCLONE_CONFIG_SITE_TYPE", "s3")
            .env("RCLONE_CONFIG_SITE_PROVIDER", "Other")
            .env("RCLONE_CONFIG_SITE_ACCESS_KEY_ID", &self.key)
            .env("RCLONE_CONFIG_SITE_SECRET_ACCESS_KEY", &self.secret)
            .env("RCLONE_CONFIG_SITE_REGION", "us-east-1")
            .env("RCLONE_CONFIG_SITE_ENDPOINT", format!("http://{}", self.door()))
            .env("RCLONE_S3_UPLOAD_CUTOFF", "6Mi");
        run(command).await
    }
}

/// A program that `tests/prepare` installs beside the folder in which this one was built: `TARGET/debug/deps/…`.
#[allow(dead_code, reason = "used by the tests of S3's clients")]
pub(crate) fn installed(name: &str) -> Result<String> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(3).context("a program that cargo has built lies in its folder")?;
    let path = target.join("clients/bin").join(name);
    ensure!(path.exists(), "{} is not there: tests/prepare makes it", path.display());
    Ok(path.display().to_string())
}

pub(crate) async fn run(mut command: Command) -> Result<Said> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let name = format!("{:?}", command.as_std().get_program());
    let output = tokio::time::timeout(CLIENT_LIMIT, command.output()).await;
    let output = output.with_context(|| format!("{name} hangs"))?;
    let output = output.with_context(|| format!("start {name}: tests/prepare installs it"))?;
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Said { status: output.status.code(), out: output.stdout, err })
}
