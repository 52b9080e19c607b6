//! Objects through the S3 door and from movers: against nginx, `dd`, and another S3 server over a folder.
//!
//! Clients are curl and `wrk`. URLs are signed before anything is measured, so that a side is what a server does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde::Deserialize;

use super::plain::{self, Curl, Nginx, gigabytes_per_second};
use super::process::{self, Running, free_ports};
use super::served::{Served, Wish};
use super::streams::send_to_file;
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

const LIMIT: Duration = Duration::from_secs(900);
/// How long one run of a client may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);
const START_LIMIT: Duration = Duration::from_secs(20);
const RATE: Unit = Unit::GigabytesPerSecond;
const OBJECTS: Unit = Unit::ObjectsPerSecond;

/// Small objects: how many there are, how large they are, and how many connections ask for them.
const COUNT: u32 = 200;
const SMALL_BYTES: u64 = 64 << 10;
const CONNECTIONS: u16 = 16;
/// How long `wrk` asks, in seconds.
const ASKS_S: u64 = 4;

const NGINX: &str = "nginx and curl";
const GET: &[Side] = &[
    Side::shown(NGINX, RATE),
    Side::compared("Penstock, from the mover (307)", RATE, NGINX).with(Target::RatioAtLeast(1.0)),
    Side::compared("Penstock, through the door beside it", RATE, NGINX),
];

const DD: &str = "dd conv=fsync";
const PUT: &[Side] = &[
    Side::shown(DD, RATE),
    Side::compared("Penstock, synced, MD5 and CRC", RATE, DD).with(Target::RatioAtLeast(0.8)),
    Side::compared("s3s-fs, not synced", RATE, DD),
];

const STATIC: &str = "nginx, static files";
const PEER: &str = "s3s-fs";
const SMALL_GET: &[Side] = &[
    Side::shown(STATIC, OBJECTS),
    Side::shown(PEER, OBJECTS),
    Side::compared("Penstock, signed URLs", OBJECTS, STATIC).with(Target::RatioAtLeast(0.5)),
    Side::compared("Penstock, against the peer", OBJECTS, PEER).with(Target::RatioAtLeast(3.0)),
];

const SMALL_PUT: &[Side] =
    &[Side::shown(PEER, OBJECTS), Side::compared("Penstock, synced", OBJECTS, PEER).with(Target::RatioAtLeast(3.0))];

const ANYBODY: &str = "a bucket that anybody may read, no signature";
const SIGNED: &[Side] = &[
    Side::shown(ANYBODY, OBJECTS),
    Side::compared("the same objects, signed URLs", OBJECTS, ANYBODY).with(Target::RatioAtLeast(0.9)),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    let usual =
        |name, asks, sides, set_up| Benchmark { name, asks, sides, rounds: Rounds::Usual, limit: LIMIT, set_up };
    vec![
        usual("s3-get", "What does curl receive of a large object, beside nginx?", GET, |setting| {
            Box::pin(large_get(setting))
        }),
        usual("s3-put", "How fast is a large object stored and synced, beside dd on the same disk?", PUT, |setting| {
            Box::pin(large_put(setting))
        }),
        usual(
            "s3-small-get",
            "How many objects of 64 KiB a second do 16 connections get, beside static files and another S3 server?",
            SMALL_GET,
            |setting| Box::pin(small(setting, Which::Get)),
        ),
        usual(
            "s3-small-put",
            "How many objects of 64 KiB a second do 16 connections store, beside another S3 server?",
            SMALL_PUT,
            |setting| Box::pin(small(setting, Which::Put)),
        ),
        usual("s3-signature", "What does checking a signature cost?", SIGNED, |setting| {
            Box::pin(small(setting, Which::Signature))
        }),
    ]
}

/// An access key and its secret.
#[derive(Clone, Debug, Deserialize)]
struct Key {
    key: String,
    secret: String,
}

/// A server that speaks S3 without TLS, and who may ask it.
#[derive(Debug)]
struct Door {
    endpoint: String,
    key: Key,
}

impl Door {
    /// URLs that anybody may ask for a while, for objects of the bucket `data`. `method` as boto3 calls it.
    async fn presigned(&self, method: &str, names: &[String]) -> anyhow::Result<Vec<String>> {
        let script = "import sys, boto3\n\
            from botocore.client import Config\n\
            endpoint, key, secret, method = sys.argv[1:5]\n\
            s3 = boto3.client('s3', endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret,\n\
            \x20   region_name='us-east-1', config=Config(signature_version='s3v4', s3={'addressing_style': 'path'}))\n\
            for name in sys.argv[5:]:\n\
            \x20   print(s3.generate_presigned_url(method, Params={'Bucket': 'data', 'Key': name}, ExpiresIn=86400))\n";
        let mut command = Command::new(python()?);
        command.args(["-c", script, &self.endpoint, &self.key.key, &self.key.secret, method]).args(names);
        let said = process::run(&command, CLIENT_LIMIT).await?;
        Ok(said.lines().map(str::to_owned).collect())
    }

    /// Makes the bucket `data`; one that anybody may read if so wished.
    async fn bucket(&self, open: bool) -> anyhow::Result<()> {
        let policy = r#"{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
            "Action": "s3:GetObject", "Resource": "arn:aws:s3:::data/*"}]}"#;
        self.aws(&["create-bucket", "--bucket", "data"]).await?;
        if open {
            self.aws(&["put-bucket-policy", "--bucket", "data", "--policy", policy]).await?;
        }
        Ok(())
    }

    async fn aws(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("aws");
        command.args(["--endpoint-url", &self.endpoint, "s3api"]).args(arguments);
        command.env("AWS_ACCESS_KEY_ID", &self.key.key).env("AWS_SECRET_ACCESS_KEY", &self.key.secret);
        command.env("AWS_DEFAULT_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
        process::run(&command, CLIENT_LIMIT).await
    }
}

/// The Python that has boto3, which `tests/prepare` put beside what cargo builds: `TARGET/release/bench` is ours.
fn python() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().map(|folder| folder.join("clients/bin/python")).find(|python| python.exists());
    found.context("boto3 is not there: tests/prepare bench installs it")
}

/// A site whose S3 door and movers serve without TLS.
async fn open_site(setting: &Setting) -> anyhow::Result<(Served, Door)> {
    let [s3, http] = [free_ports(1)?, free_ports(1)?];
    let wish = Wish { s3_clear: Some(s3), http_clear: Some(http), ..Wish::default() };
    let site = Served::start(setting, &wish).await?;
    let key = site.admin(&["--json", "key", "create", &site.account()?]).await?;
    let key: Key = serde_json::from_str(&key).context("read the new key")?;
    Ok((site, Door { endpoint: format!("http://127.0.0.1:{s3}"), key }))
}

/// An S3 server over a folder, with a key of its own.
async fn peer(setting: &Setting) -> anyhow::Result<(Running, Door)> {
    let program = python()?.ancestors().nth(3).map(|target| target.join("peers/bin/s3s-fs"));
    let program = program.filter(|program| program.exists()).context("s3s-fs is not there: tests/prepare bench")?;
    let (root, port) = (setting.path("peer"), free_ports(1)?);
    std::fs::create_dir(&root)?;
    let key = Key { key: "AKPEER".to_owned(), secret: "a-secret-of-the-peer".to_owned() };
    let mut command = Command::new(program);
    command.args(["--access-key", &key.key, "--secret-key", &key.secret, "--host", "127.0.0.1"]);
    command.args(["--port", &port.to_string()]).arg(&root);
    let mut server = Running::start(&command, &setting.path("peer.log"))?;
    server.wait_for_port(([127, 0, 0, 1], port).into(), START_LIMIT).await?;
    Ok((server, Door { endpoint: format!("http://127.0.0.1:{port}"), key }))
}

/// What curl stores by a signed URL, in GB/s.
async fn upload(url: &str, local: &Path, bytes: u64) -> anyhow::Result<f64> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
    let began = Instant::now();
    process::run(command.arg("--upload-file").arg(local).arg(url), CLIENT_LIMIT).await?;
    Ok(gigabytes_per_second(bytes, began.elapsed()))
}

struct LargeGet {
    // Before the folder they use.
    _servers: (Served, Nginx),
    sides: [Curl; 3],
    bytes: u64,
}

async fn large_get(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let bytes = setting.size(1 << 30, 128 << 20);
    let root = setting.path("web");
    std::fs::create_dir(&root)?;
    send_to_file(&root.join("large"), bytes)?;
    let nginx = Nginx::start(&root, &setting.folder).await?;
    let (site, door) = open_site(setting).await?;
    door.bucket(false).await?;
    let names = ["large".to_owned()];
    let [put, get] = [door.presigned("put_object", &names).await?, door.presigned("get_object", &names).await?];
    upload(&put[0], &root.join("large"), bytes).await?;
    let curl = |url: &str, options: &[&str]| Curl {
        url: url.to_owned(),
        credential: None,
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    };
    let sides = [
        curl(&format!("http://{}/large", nginx.address), &[]),
        curl(&get[0], &["--location", "--header", "x-penstock-direct: on"]),
        curl(&get[0], &["--header", "x-penstock-direct: off"]),
    ];
    Ok(Box::new(LargeGet { _servers: (site, nginx), sides, bytes }))
}

#[async_trait(?Send)]
impl Contest for LargeGet {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        self.sides[side].rate(self.bytes).await
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!("{} MiB a sample, without TLS, from the first byte to the last, into /dev/null", self.bytes >> 20),
            "the mover is in the door's process, as in `penstock serve`".to_owned(),
        ]
    }
}

struct LargePut {
    _servers: (Served, Running),
    urls: [String; 2],
    local: PathBuf,
    beside: PathBuf,
    bytes: u64,
}

async fn large_put(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let bytes = setting.size(1 << 30, 128 << 20);
    let local = setting.path("local");
    send_to_file(&local, bytes)?;
    let (site, ours) = open_site(setting).await?;
    let (server, theirs) = peer(setting).await?;
    let mut urls = Vec::new();
    for door in [&ours, &theirs] {
        door.bucket(false).await?;
        urls.extend(door.presigned("put_object", &["large".to_owned()]).await?);
    }
    let urls = urls.try_into().map_err(|_| anyhow::anyhow!("boto3 made too few URLs"))?;
    Ok(Box::new(LargePut { _servers: (site, server), urls, local, beside: setting.path("copy"), bytes }))
}

#[async_trait(?Send)]
impl Contest for LargePut {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        match side {
            0 => plain::dd(&self.local, &self.beside, self.bytes).await,
            _ => upload(&self.urls[side - 1], &self.local, self.bytes).await,
        }
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("{} MiB a sample by curl, without TLS, the body not signed", self.bytes >> 20)]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Get,
    Put,
    Signature,
}

struct Small {
    _servers: (Served, Option<Nginx>, Option<Running>),
    /// For each side what `wrk` runs.
    scripts: Vec<(String, PathBuf)>,
}

async fn small(setting: &Setting, which: Which) -> anyhow::Result<Box<dyn Contest>> {
    let names: Vec<_> = (0..COUNT).map(|number| format!("object-{number:04}")).collect();
    let (site, ours) = open_site(setting).await?;
    ours.bucket(which == Which::Signature).await?;
    let local = setting.path("body");
    send_to_file(&local, SMALL_BYTES)?;
    let (server, theirs) = match which {
        Which::Signature => (None, None),
        Which::Get | Which::Put => {
            let (server, theirs) = peer(setting).await?;
            theirs.bucket(false).await?;
            (Some(server), Some(theirs))
        }
    };
    let script = |name: &str, urls: &[String], body: Option<&Path>| {
        let path = setting.path(format!("{name}.lua"));
        std::fs::write(&path, lua(urls, body))?;
        anyhow::Ok((base(urls)?, path))
    };
    let mut scripts = Vec::new();
    let mut web = None;
    if which == Which::Put {
        for (name, door) in [("peer", theirs.as_ref()), ("ours", Some(&ours))] {
            let Some(door) = door else { continue };
            scripts.push(script(name, &door.presigned("put_object", &names).await?, Some(&local))?);
        }
    } else {
        if which == Which::Get {
            let root = setting.path("web");
            std::fs::create_dir(&root)?;
            for name in &names {
                std::fs::copy(&local, root.join(name))?;
            }
            let nginx = Nginx::start(&root, &setting.folder).await?;
            let urls: Vec<_> = names.iter().map(|name| format!("http://{}/{name}", nginx.address)).collect();
            scripts.push(script("nginx", &urls, None)?);
            web = Some(nginx);
        }
        for (name, door) in [("peer", theirs.as_ref()), ("ours", Some(&ours))] {
            let Some(door) = door else { continue };
            for url in door.presigned("put_object", &names).await? {
                upload(&url, &local, SMALL_BYTES).await?;
            }
            scripts.push(script(name, &door.presigned("get_object", &names).await?, None)?);
        }
        match which {
            Which::Signature => {
                let urls: Vec<_> = names.iter().map(|name| format!("{}/data/{name}", ours.endpoint)).collect();
                scripts.insert(0, script("open", &urls, None)?);
            }
            // Ours is compared with both.
            _ => scripts.extend(scripts.last().cloned()),
        }
    }
    Ok(Box::new(Small { _servers: (site, web, server), scripts }))
}

#[async_trait(?Send)]
impl Contest for Small {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let (address, script) = &self.scripts[side];
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", &CONNECTIONS.to_string()]);
        command.args(["--duration", &format!("{ASKS_S}s"), "--script"]).arg(script).arg(address);
        requests_per_second(&process::run(&command, CLIENT_LIMIT).await?)
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!(
                "{COUNT} objects of {} KiB in the page cache, wrk with {CONNECTIONS} connections",
                SMALL_BYTES >> 10
            ),
            format!("{ASKS_S} s a sample; server and wrk share the cores"),
        ]
    }
}

/// What `wrk` asks for: these URLs in turn, with a body if one is to be sent. An answer other than 200 is told.
fn lua(urls: &[String], body: Option<&Path>) -> String {
    let paths: Vec<_> = urls.iter().map(|url| format!("  {:?},\n", path_of(url))).collect();
    let send = match body {
        Some(body) => format!(
            "local file = io.open({:?}, \"rb\")\nwrk.method = \"PUT\"\nwrk.body = file:read(\"*a\")\nfile:close()\n\
             wrk.headers[\"x-amz-content-sha256\"] = \"UNSIGNED-PAYLOAD\"\n",
            body.display().to_string()
        ),
        None => String::new(),
    };
    format!(
        "{send}local paths = {{\n{}}}\nlocal at = 0\n\
         function request()\n  at = at % #paths + 1\n  return wrk.format(nil, paths[at])\nend\n",
        paths.concat()
    )
}

/// The part of a URL behind its host.
fn path_of(url: &str) -> &str {
    let behind = url.find("://").map_or(0, |at| at + 3);
    url[behind..].find('/').map_or("/", |at| &url[behind + at..])
}

/// The part of a URL before its path; all of them have the same.
fn base(urls: &[String]) -> anyhow::Result<String> {
    let first = urls.first().context("there are no URLs")?;
    Ok(first[..first.len() - path_of(first).len()].to_owned())
}

/// From the report of `wrk`; answers that are errors are one of ours.
fn requests_per_second(report: &str) -> anyhow::Result<f64> {
    let bad = report.lines().find(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
    ensure!(bad.is_none(), "wrk: {}", bad.unwrap_or_default().trim());
    let line = report.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    line.context("wrk told no rate")?.trim().parse().context("wrk told no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_wrk_is_a_rate_or_an_error() {
        let good = "Running 4s test\n  100 requests in 4.00s\nRequests/sec:   2510.77\nTransfer/sec: 1MB\n";
        assert_eq!(requests_per_second(good).unwrap(), 2510.77);
        let bad = "  Non-2xx or 3xx responses: 7\nRequests/sec:   2510.77\n";
        assert!(requests_per_second(bad).unwrap_err().to_string().contains(": 7"));
        assert!(requests_per_second("").is_err());
    }

    #[test]
    fn a_url_is_its_host_and_its_path() {
        let urls = ["http://127.0.0.1:9/data/a?x=1&y=/".to_owned()];
        assert_eq!((base(&urls).unwrap().as_str(), path_of(&urls[0])), ("http://127.0.0.1:9", "/data/a?x=1&y=/"));
        assert_eq!(path_of("http://127.0.0.1:9"), "/");
    }
}
