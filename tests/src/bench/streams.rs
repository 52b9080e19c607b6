//! Data from a mover's page cache to a client and back: against `iperf3`, `dd`, and nginx with curl; and what a hop costs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use client::{Client, How, Meter, Push, Ready};
use tokio_util::sync::CancellationToken;
use wire::ftp::{Command, FtpPath};

use super::moves::{Way, at_home, fetch, store};
use super::plain::{self, Curl, Nginx, gigabytes_per_second};
use super::served::{Served, Wish};
use super::statistics::summarise;
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

const LIMIT: Duration = Duration::from_secs(900);
const RATE: Unit = Unit::GigabytesPerSecond;

const IPERF_1: &str = "iperf3, 1 stream";
const GET_1: &[Side] = &[
    Side::shown(IPERF_1, RATE),
    Side::compared("iperf3, 1 stream, of a file in the page cache", RATE, IPERF_1),
    Side::compared("bare sockets, a thread each, 1 stream", RATE, IPERF_1),
    Side::compared("Penstock, mover to client, 1 stream", RATE, IPERF_1).with(Target::RatioAtLeast(0.9)),
    Side::compared("Penstock, mover to client, MODE E, 1 stream", RATE, IPERF_1),
];

const IPERF_4: &str = "iperf3, 4 streams";
const GET_4: &[Side] = &[
    Side::shown(IPERF_4, RATE),
    Side::compared("iperf3, 4 streams, of a file in the page cache", RATE, IPERF_4),
    Side::compared("bare sockets, a thread each, 4 streams", RATE, IPERF_4),
    Side::compared("Penstock, mover to client, MODE E, 4 streams", RATE, IPERF_4).with(Target::RatioAtLeast(0.9)),
];

const DD: &str = "dd conv=fsync";
const PUT: &[Side] = &[
    Side::shown(DD, RATE),
    Side::compared("Penstock, client to mover, synced, 1 stream", RATE, DD),
    Side::compared("Penstock, client to mover, synced, 4 streams", RATE, DD),
];

const NGINX: &str = "nginx and curl";
const CURL: &[Side] =
    &[Side::shown(NGINX, RATE), Side::compared("Penstock and curl, FTP with TLS, data in clear", RATE, NGINX)];

const RELAYED: &str = "relayed by the other mover";
const HOP: &[Side] =
    &[Side::shown(RELAYED, RATE), Side::compared("direct", RATE, RELAYED).with(Target::RatioAtLeast(1.0))];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    let usual =
        |name, asks, sides, set_up| Benchmark { name, asks, sides, rounds: Rounds::Usual, limit: LIMIT, set_up };
    vec![
        usual(
            "get-1",
            "What does one clear stream carry from a mover's page cache to a client that discards, beside iperf3?",
            GET_1,
            |setting| Box::pin(get(setting, 1)),
        ),
        usual("get-4", "And four streams, beside iperf3 with as many?", GET_4, |setting| Box::pin(get(setting, 4))),
        usual(
            "put",
            "How fast is a cached file stored and synced, checksums compared, beside dd on the same disk?",
            PUT,
            |setting| Box::pin(put(setting)),
        ),
        usual("curl", "What does curl receive from a mover, beside what it receives from nginx?", CURL, |setting| {
            Box::pin(curl(setting))
        }),
        usual(
            "hop",
            "What does a hop cost: a plain EPSV opened on the mover that has the file, and on another?",
            HOP,
            |setting| Box::pin(hop(setting)),
        ),
    ]
}

/// A site with one file on it, in its mover's page cache.
pub(super) struct Stocked {
    pub(super) site: Served,
    pub(super) session: Client<Ready>,
    pub(super) path: FtpPath,
    pub(super) bytes: u64,
}

impl Stocked {
    pub(super) async fn start(setting: &Setting, movers: u16) -> anyhow::Result<Self> {
        let site = Served::start(setting, &Wish { movers, ..Wish::default() }).await?;
        let mut session = site.session(false).await?;
        let path = at_home(&mut session, "large").await?;
        let bytes = setting.size(1 << 30, 128 << 20);
        store(&mut session, &path, bytes).await.context("store the file to be fetched")?;
        Ok(Self { site, session, path, bytes })
    }

    pub(super) fn size(&self) -> String {
        format!("{} MiB a sample", self.bytes >> 20)
    }
}

struct Get {
    stocked: Stocked,
    streams: u16,
    file: PathBuf,
    log: PathBuf,
    first_bytes_ms: Vec<f64>,
}

async fn get(setting: &Setting, streams: u16) -> anyhow::Result<Box<dyn Contest>> {
    let stocked = Stocked::start(setting, 1).await?;
    let file = setting.path("the-same");
    send_to_file(&file, stocked.bytes)?;
    Ok(Box::new(Get { stocked, streams, file, log: setting.path("iperf3.log"), first_bytes_ms: Vec::new() }))
}

#[async_trait(?Send)]
impl Contest for Get {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let Stocked { session, path, bytes, .. } = &mut self.stocked;
        let way = match side {
            0 => return plain::iperf3(*bytes, self.streams, None, &self.log).await,
            1 => return plain::iperf3(*bytes, self.streams, Some(&self.file), &self.log).await,
            2 => return plain::sockets(*bytes, self.streams).await,
            3 => Way::push(self.streams),
            _ => Way { extended: true, ..Way::push(self.streams) },
        };
        let fetched = fetch(session, path, *bytes, &way).await?;
        if side == 3 {
            self.first_bytes_ms.push(fetched.first_byte_ms());
        }
        Ok(fetched.rate())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("{}, from the command to the last byte", self.stocked.size())];
        if let Some(first) = summarise(&self.first_bytes_ms) {
            notes.push(format!("first byte {:.1} ms after the command (median)", first.median));
        }
        notes
    }
}

struct Put {
    site: Served,
    session: Client<Ready>,
    local: PathBuf,
    beside: PathBuf,
    path: FtpPath,
    bytes: u64,
}

async fn put(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let site = Served::start(setting, &Wish::default()).await?;
    let mut session = site.session(false).await?;
    let path = at_home(&mut session, "stored").await?;
    let bytes = setting.size(1 << 30, 128 << 20);
    let local = setting.path("local");
    send_to_file(&local, bytes)?;
    Ok(Box::new(Put { site, session, local, beside: setting.path("copy"), path, bytes }))
}

/// A file in the page cache, and on disk, so that nobody has to write it back while something is measured.
pub(super) fn send_to_file(path: &std::path::Path, bytes: u64) -> anyhow::Result<()> {
    let file = std::fs::File::create(path)?;
    plain::send(&file, bytes)?;
    Ok(file.sync_all()?)
}

#[async_trait(?Send)]
impl Contest for Put {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        if side == 0 {
            return plain::dd(&self.local, &self.beside, self.bytes).await;
        }
        let how = How { streams: if side == 1 { 1 } else { 4 }, ..How::default() };
        let push = Push { local: self.local.clone(), remote: self.path.clone() };
        let began = Instant::now();
        let moved = self.session.put(&push, &how, &Meter::new(), &CancellationToken::new()).await?;
        let elapsed = began.elapsed();
        anyhow::ensure!(moved.size_bytes == self.bytes, "{} bytes were stored", moved.size_bytes);
        self.session.demand(&Command::Dele(self.path.clone())).await?;
        Ok(gigabytes_per_second(self.bytes, elapsed))
    }

    fn notes(&self) -> Vec<String> {
        let disk = self.site.folder.disk(1);
        let kept = format!("volume and copy of dd on the same file system, {}", disk.display());
        vec![format!("{} MiB a sample, with the comparison of checksums by the client", self.bytes >> 20), kept]
    }
}

struct Download {
    stocked: Stocked,
    _nginx: Nginx,
    sides: [Curl; 2],
}

async fn curl(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let stocked = Stocked::start(setting, 1).await?;
    let root = setting.path("web");
    std::fs::create_dir(&root)?;
    send_to_file(&root.join("large"), stocked.bytes)?;
    let nginx = Nginx::start(&root, &setting.folder).await?;
    let web = Curl { url: format!("http://{}/large", nginx.address), credential: None, options: Vec::new() };
    let credential = Some((stocked.site.credential()?, stocked.site.folder.ca_certificate()));
    // Two slashes: from the root, not from the home.
    let ftp =
        Curl { url: format!("ftp://{}/{}", stocked.site.doors.ftp, stocked.path), credential, options: Vec::new() };
    Ok(Box::new(Download { stocked, _nginx: nginx, sides: [web, ftp] }))
}

#[async_trait(?Send)]
impl Contest for Download {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        self.sides[side].rate(self.stocked.bytes).await
    }

    fn notes(&self) -> Vec<String> {
        vec![format!("{}, from the first byte to the last, into /dev/null", self.stocked.size())]
    }
}

/// How often an `EPSV` is repeated until it is on the mover that is wanted: movers take turns.
const TURNS: usize = 16;

struct Hop {
    stocked: Stocked,
    relayed_bytes: u64,
}

async fn hop(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let stocked = Stocked::start(setting, 2).await?;
    let relayed_bytes = stocked.site.relayed_bytes().await?;
    Ok(Box::new(Hop { stocked, relayed_bytes }))
}

#[async_trait(?Send)]
impl Contest for Hop {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let wanted = side == 0;
        for _ in 0..TURNS {
            let Stocked { site, session, path, bytes } = &mut self.stocked;
            let fetched = fetch(session, path, *bytes, &Way::pull()).await?;
            let relayed = site.relayed_bytes().await?;
            let was = relayed > self.relayed_bytes;
            self.relayed_bytes = relayed;
            if was == wanted {
                return Ok(fetched.rate());
            }
        }
        bail!("of {TURNS} transfers none was {}", if wanted { "relayed" } else { "direct" })
    }

    fn notes(&self) -> Vec<String> {
        let counted = "which of the two a transfer was is told by penstock_relayed_bytes_total".to_owned();
        vec![format!("{}, one clear stream, the client connects", self.stocked.size()), counted]
    }
}
