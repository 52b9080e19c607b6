//! The measurements that papers share: a lab with a site, one transfer, several at once, iperf3 in the same place.
//!
//! Owns a folder for volumes and files, in memory where the machine has room. Each case has a lab and a site of its own,
//! so that nothing is warm that was not warm before.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use client::{Client, Fetch, How, Meter, Options, Push};
use netsim::{Lab, Link, Medium, namespace::Namespace};
use tokio_util::sync::CancellationToken;
use wire::ftp::{FtpPath, Text};

use super::{Paper, table::Row};
use crate::lab::{
    scratch::Scratch,
    shape::topology,
    site::{LabSite, SiteSpec, on_host, shared_options},
};

const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const KNOWN: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// How long one transfer may take.
const TRANSFER_LIMIT: Duration = Duration::from_secs(600);

/// How long one transfer of a comparison should take at most: windows are open long before.
const ENOUGH: Duration = Duration::from_secs(4);
/// And of a short run.
const ENOUGH_QUICK: Duration = Duration::from_secs(1);
/// Less says nothing.
const LEAST_BYTES: u64 = 4_000_000;

/// How much is measured.
#[derive(Debug)]
pub struct Effort {
    /// Few cases.
    pub quick: bool,
    /// Size of a file.
    pub size_bytes: u64,
    /// How often each figure is measured.
    pub repeat: u16,
    program: PathBuf,
    scratch: Scratch,
    congestion: Option<String>,
    pub(super) iperf3: bool,
    pub(super) globus: bool,
    began: Instant,
}

/// Where a case is measured.
#[derive(Clone, Debug)]
pub struct Place {
    /// The link between clients and site.
    pub link: Link,
    /// What the site's hosts share.
    pub medium: Medium,
    /// Rate of each NIC; the link's if `None`.
    pub nic_bps: Option<u64>,
    /// Hosts of clients.
    pub clients: usize,
    /// Hosts of movers.
    pub movers: usize,
    /// See [`SiteSpec::front`].
    pub front: bool,
    /// See [`SiteSpec::stripe`].
    pub stripe: u16,
    /// See [`SiteSpec::apart`].
    pub apart: bool,
}

impl Place {
    /// One client, one mover, a switch.
    #[must_use]
    pub const fn new(link: Link) -> Self {
        Self {
            link,
            medium: Medium::Switched,
            nic_bps: None,
            clients: 1,
            movers: 1,
            front: false,
            stripe: 1,
            apart: false,
        }
    }
}

/// A lab with a site in it.
pub struct Bench {
    // The site ends before its lab.
    site: LabSite,
    /// The lab.
    pub lab: Lab,
    folder: PathBuf,
    program: PathBuf,
    next: AtomicU64,
}

/// How one transfer goes.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Streams, blocks, and so on.
    pub how: How,
    /// TCP buffers; 0 leaves them to the kernel.
    pub buffer_bytes: u32,
    /// Class of service, for its movers.
    pub class: Option<String>,
    /// Data takes a second hop, through the mover on the gateway's host.
    pub relayed: bool,
    /// Data over TLS.
    pub private: bool,
}

impl Manner {
    /// So many streams, as Penstock does it otherwise.
    #[must_use]
    pub fn streams(streams: u16) -> Self {
        Self { how: How { streams, ..How::default() }, buffer_bytes: 0, class: None, relayed: false, private: false }
    }

    /// With TCP buffers of this size at both ends.
    #[must_use]
    pub const fn buffers(mut self, bytes: u32) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Through the gateway's host.
    #[must_use]
    pub fn relayed(mut self) -> Self {
        self.relayed = true;
        self.class = Some("front".to_owned());
        self.how.passive = true;
        self.how.streams = 1;
        self
    }
}

impl Effort {
    /// As the command line says. From now on signals end this process, and remove what it made.
    ///
    /// # Errors
    ///
    /// If the scratch folder cannot be made.
    pub fn new(paper: &Paper) -> anyhow::Result<Self> {
        let effort = Self::with_program(paper, std::env::current_exe().context("find this program")?)?;
        effort.scratch.remove_at_signals()?;
        Ok(effort)
    }

    /// The same with another `penstock` than this process, which goes on hearing signals itself.
    ///
    /// # Errors
    ///
    /// If the scratch folder cannot be made.
    pub fn with_program(paper: &Paper, program: PathBuf) -> anyhow::Result<Self> {
        Ok(Self {
            quick: paper.quick,
            size_bytes: paper.size.unwrap_or(if paper.quick { 24_000_000 } else { 256 << 20 }),
            repeat: paper.repeat,
            program,
            scratch: Scratch::new(paper.scratch.as_deref())?,
            congestion: paper.congestion.clone(),
            iperf3: is_installed("iperf3"),
            globus: is_installed("globus-gridftp-server") && is_installed("globus-url-copy"),
            began: Instant::now(),
        })
    }

    /// All of them, or the first few that a quick run takes.
    #[must_use]
    pub fn cases<T: Clone>(&self, all: &[T], quick: &[T]) -> Vec<T> {
        if self.quick { quick.to_vec() } else { all.to_vec() }
    }

    /// Says on standard error what is measured now, with the time since the beginning.
    pub fn says(&self, what: &str) {
        use std::io::Write as _;
        // Nobody may be listening.
        let _ = writeln!(std::io::stderr().lock(), "{:>4} s  {what}", self.began.elapsed().as_secs());
    }

    /// How many bytes a comparison moves where so many bits a second are expected: no more than take a few seconds.
    #[must_use]
    pub fn bounded(&self, expected_bps: f64) -> u64 {
        let enough = if self.quick { ENOUGH_QUICK } else { ENOUGH };
        let enough = (expected_bps / 8.0 * enough.as_secs_f64()) as u64;
        self.size_bytes.min(enough.max(LEAST_BYTES))
    }

    /// The size of the file for the figures that Penstock is to reach: 1 GiB unless a size was asked for.
    #[must_use]
    pub const fn whole_bytes(&self) -> u64 {
        if self.quick { self.size_bytes } else { self.size_bytes * 4 }
    }

    /// What should be reached; a short run's files are too small for it.
    #[must_use]
    pub fn wanted(&self, ratio: f64) -> Option<f64> {
        (!self.quick).then_some(ratio)
    }

    /// TCP's congestion control on the hosts of every lab that is started.
    ///
    /// # Errors
    ///
    /// If the kernel does not have the one that was asked for, with those it has.
    pub fn congestion(&self) -> anyhow::Result<String> {
        // A new namespace has the kernel's own default, whatever holds where this program runs.
        let apart = Namespace::new().context("make a network namespace")?;
        let (usual, known) = apart.run(|| Ok((fs::read_to_string(CONGESTION)?, fs::read_to_string(KNOWN)?)))?;
        match &self.congestion {
            None => Ok(usual.trim().to_owned()),
            Some(name) if known.split_whitespace().any(|one| one == name) => Ok(name.clone()),
            Some(name) => bail!("the kernel has no congestion control {name}; it has {}", known.trim()),
        }
    }

    /// Starts a lab with a site.
    ///
    /// # Errors
    ///
    /// If the machine cannot, or a part does not come up.
    pub fn start(&self, place: &Place) -> anyhow::Result<Bench> {
        let nic = place.nic_bps.unwrap_or(place.link.rate_bps);
        let lab = Lab::start(&topology(place.link.clone(), place.medium, nic, place.clients, place.movers))?;
        if let Some(congestion) = &self.congestion {
            for host in lab.hosts() {
                let name = congestion.clone();
                let set = host.spawn(move || fs::write(CONGESTION, name))?.join();
                set.unwrap_or_else(|_| Err(std::io::Error::other("a panic"))).context("set the congestion control")?;
            }
        }
        let folder = self.scratch.path().to_owned();
        let movers: Vec<_> = (1..=place.movers).map(|number| format!("mover{number}")).collect();
        let spec = SiteSpec {
            front: place.front,
            stripe: place.stripe,
            apart: place.apart,
            ..SiteSpec::new(self.program.clone(), folder.join("site"), &movers)
        };
        let site = LabSite::start(&lab, &spec)?;
        Ok(Bench { site, lab, folder, program: self.program.clone(), next: AtomicU64::new(0) })
    }

    /// What iperf3 carries of so many bytes from one host to another with so many streams and such windows (0 leaves them
    /// to the kernel), in Mb/s; `None` if it is not installed.
    #[must_use]
    pub fn iperf3(&self, lab: &Lab, from: &str, to: &str, bytes: u64, streams: u16, window_bytes: u32) -> Option<f64> {
        if !self.iperf3 {
            return None;
        }
        let address = lab.host(to).address().to_string();
        let mut server = lab.host(to).service("iperf3").ok()?;
        server.args(["-s", "-1", "-B", &address]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = server.spawn().ok()?;
        let (window, bytes) = (window_bytes.to_string(), bytes.to_string());
        let rate = (0..50).find_map(|_| {
            let mut command = lab.host(from).service("iperf3").ok()?;
            command.args(["-c", &address, "-J", "-n", &bytes, "-P", &streams.to_string()]);
            if window_bytes > 0 {
                command.args(["-w", &window]);
            }
            let output = command.stdin(Stdio::null()).output().ok()?;
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
            if rate.is_none() {
                // The server is not up yet.
                std::thread::sleep(Duration::from_millis(50));
            }
            rate
        });
        let _ = server.kill();
        let _ = server.wait();
        rate.map(|rate| rate / 1e6)
    }

    /// Measures in turns, so that what else the machine does meets all: ours, iperf3, Globus, ours, …
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn in_turns(
        &self,
        ours: impl Fn() -> anyhow::Result<f64>,
        iperf3: impl Fn() -> Option<f64>,
        globus: impl Fn() -> anyhow::Result<Option<f64>>,
    ) -> anyhow::Result<Sides> {
        let (mut all, mut theirs, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.repeat.max(1) {
            all.push(ours()?);
            theirs.extend(iperf3());
            others.extend(globus()?);
        }
        let ratio = |others: &[f64]| middle(all.iter().zip(others).map(|(ours, other)| ours / other).collect());
        let (to_iperf3, to_globus) = (ratio(&theirs), ratio(&others));
        Ok(Sides {
            ours: middle(all).context("nothing was measured")?,
            iperf3: middle(theirs),
            globus: middle(others),
            to_iperf3,
            to_globus,
        })
    }

    /// The median of several measurements.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn median(&self, measure: impl Fn() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
        let values = (0..self.repeat.max(1)).map(|_| measure()).collect::<anyhow::Result<Vec<_>>>()?;
        middle(values).context("nothing was measured")
    }
}

/// What came of measuring in turns: medians, and medians of the ratios of each turn.
#[derive(Clone, Copy, Debug)]
pub struct Sides {
    /// Penstock's rate.
    pub ours: f64,
    /// What iperf3 carried, if it is there.
    pub iperf3: Option<f64>,
    /// What Globus carried, if it is there.
    pub globus: Option<f64>,
    /// Ours to iperf3's.
    pub to_iperf3: Option<f64>,
    /// Ours to that of Globus.
    pub to_globus: Option<f64>,
}

/// The median; `None` of nothing.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps servers where only root's path looks.
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&paths).chain(usual).any(|folder| folder.join(program).is_file())
}

/// Megabits a second.
#[must_use]
pub fn megabits(bytes: u64, took: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e6 / took.as_secs_f64().max(1e-9)
}

/// A row of rates.
#[must_use]
pub const fn rate_row(
    experiment: &'static str,
    along: &'static str,
    at: f64,
    series: String,
    value: f64,
    iperf3: Option<f64>,
    found: &'static str,
) -> Row {
    Row { experiment, along, at, series, value, unit: "Mb/s", iperf3, found }
}

impl Bench {
    /// Stores a file of this size, over all movers of its class.
    ///
    /// # Errors
    ///
    /// If that fails; how long it took otherwise.
    pub fn store(&self, name: &str, size_bytes: u64, manner: &Manner) -> anyhow::Result<Duration> {
        let local = self.folder.join("source");
        write_file(&local, size_bytes)?;
        let (options, remote) = (self.options(manner)?, self.remote(name)?);
        let manner = manner.clone();
        on_host(&self.lab, "client", async move {
            let mut session = open(options, &manner).await?;
            let began = Instant::now();
            let cancel = CancellationToken::new();
            let (push, meter) = (Push { local, remote }, Meter::new());
            let put = session.put(&push, &manner.how, &meter, &cancel);
            tokio::time::timeout(TRANSFER_LIMIT, put).await.context("a file takes too long")??;
            let took = began.elapsed();
            session.quit().await;
            Ok(took)
        })
    }

    /// Fetches a file once; how long it took.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn fetch(&self, host: &str, name: &str, manner: &Manner) -> anyhow::Result<Duration> {
        self.fetch_at_once(&[(host.to_owned(), name.to_owned())], manner)
    }

    /// Fetches files at the same time, each in a session of its own on its host; how long all took. Sessions are open
    /// before the clock starts.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn fetch_at_once(&self, files: &[(String, String)], manner: &Manner) -> anyhow::Result<Duration> {
        let fetches =
            files.iter().map(|(host, name)| (host.as_str(), name.as_str(), manner.clone())).collect::<Vec<_>>();
        self.fetch_each(&fetches)
    }

    /// As [`Bench::fetch_at_once`], each in its own manner.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn fetch_each(&self, files: &[(&str, &str, Manner)]) -> anyhow::Result<Duration> {
        let start = Arc::new(tokio::sync::Barrier::new(files.len() + 1));
        let mut work = Vec::new();
        for (host, name, manner) in files {
            let local = self.folder.join(format!("fetched{}", self.next.fetch_add(1, Ordering::Relaxed)));
            let fetch = Fetch { remote: self.remote(name)?, local: local.clone() };
            let (options, manner, start) = (self.options(manner)?, manner.clone(), Arc::clone(&start));
            let runtime = self.lab.host(host).runtime(2)?;
            let task = runtime.spawn(async move {
                let session = open(options, &manner).await;
                start.wait().await;
                let mut session = session?;
                let cancel = CancellationToken::new();
                let meter = Meter::new();
                let get = session.get(&fetch, &manner.how, &meter, &cancel);
                tokio::time::timeout(TRANSFER_LIMIT, get).await.context("a file takes too long")??;
                let ended = Instant::now();
                session.quit().await;
                anyhow::Ok(ended)
            });
            work.push((runtime, task, local));
        }
        let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let began = waiting.block_on(async {
            start.wait().await;
            Instant::now()
        });
        let mut last = began;
        let mut failure = None;
        for (runtime, task, local) in work {
            match waiting.block_on(task).context("a session panicked").and_then(|ended| ended) {
                Ok(ended) => last = last.max(ended),
                Err(error) => failure = failure.or(Some(error)),
            }
            runtime.shutdown_background();
            let _ = fs::remove_file(local);
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(last - began),
        }
    }

    /// The rate at which one file comes, in Mb/s.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn rate(&self, effort: &Effort, name: &str, size_bytes: u64, manner: &Manner) -> anyhow::Result<f64> {
        effort.median(|| Ok(megabits(size_bytes, self.fetch("client", name, manner)?)))
    }

    /// How long it takes to log in.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn login_time(&self) -> anyhow::Result<Duration> {
        let options = self.options(&Manner::streams(1))?;
        on_host(&self.lab, "client", async move {
            let began = Instant::now();
            let session = Client::open(options).await?;
            let took = began.elapsed();
            session.quit().await;
            Ok(took)
        })
    }

    /// Copies a file to the disks of further movers until it has so many copies there.
    ///
    /// # Errors
    ///
    /// If there are not so many movers.
    pub fn replicate(&self, name: &str, copies: usize) -> anyhow::Result<()> {
        let path = self.remote(name)?;
        let words = ["replicate", "--copies", &copies.to_string(), path.as_str()];
        self.site.admin(&self.lab, &self.program, &words).map(drop)
    }

    /// The site.
    #[must_use]
    pub const fn site(&self) -> &LabSite {
        &self.site
    }

    /// Where files lie on the client's side.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn options(&self, manner: &Manner) -> anyhow::Result<Arc<Options>> {
        let class = manner.class.as_ref().map(|class| Text::new(class.clone())).transpose()?;
        shared_options(&self.site, |options| {
            options.class_of_service = class;
            options.private_data = manner.private;
        })
    }

    fn remote(&self, name: &str) -> anyhow::Result<FtpPath> {
        Ok(FtpPath::new(format!("{}/{name}", self.site.home()))?)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.folder.join("source"));
        // Its processes may end a little later than this; the next site has a folder of the same name.
        self.site.end();
        let _ = fs::remove_dir_all(self.folder.join("site"));
    }
}

async fn open(options: Arc<Options>, manner: &Manner) -> anyhow::Result<Client<client::Ready>> {
    let mut session = Client::open(options).await?;
    if manner.buffer_bytes > 0 {
        session.set_buffers(manner.buffer_bytes).await?;
    }
    session.set_told_early(manner.relayed);
    Ok(session)
}

/// A file whose bytes do not repeat within a block, so that nothing on the way can save any.
pub(super) fn write_file(path: &Path, size_bytes: u64) -> anyhow::Result<()> {
    use std::io::Write as _;
    ensure!(size_bytes <= 64 << 30, "{size_bytes} bytes are more than a lab should move");
    let file = fs::File::create(path).with_context(|| format!("write {}", path.display()))?;
    let mut writer = std::io::BufWriter::with_capacity(1 << 20, file);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = size_bytes;
    while left > 0 {
        // Marsaglia's xorshift, 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_le_bytes();
        let count = usize::try_from(left).map_or(8, |left| left.min(8));
        writer.write_all(&bytes[..count])?;
        left -= count as u64;
    }
    writer.flush()?;
    Ok(())
}
