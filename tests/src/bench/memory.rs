//! Memory: of a mover that moves much for many, and of a gateway with many idle sessions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use client::{Client, How, Meter, Push, Ready};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio_util::sync::CancellationToken;
use wire::ftp::{Command, FtpPath};

use super::machine::memory_mib;
use super::moves::{Way, at_home, fetch, store};
use super::plain::gigabytes_per_second;
use super::served::{Served, Wish};
use super::streams::send_to_file;
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

/// Clients that fetch, and that store, at the same time; and the connections of each.
const FETCHING: usize = 12;
const STORING: usize = 4;
const STREAMS: u16 = 4;

/// Idle sessions, and how many log in at a time.
const SESSIONS: usize = 1000;
const LOGINS: usize = 32;

const MOVER: &[Side] = &[
    Side::shown("mover, peak of its resident memory", Unit::Mebibytes).with(Target::AtMost(256.0)),
    Side::shown("gateway, peak of its resident memory", Unit::Mebibytes),
    Side::shown("rate of all together", Unit::GigabytesPerSecond),
];

const GATEWAY: &[Side] = &[
    Side::shown("gateway, no session", Unit::Mebibytes),
    Side::shown("gateway, 1,000 idle sessions over TLS", Unit::Mebibytes).with(Target::AtMost(200.0)),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    vec![
        Benchmark {
            name: "memory-mover",
            asks: "How much memory does a mover take that moves 20 GiB (4 in a short run) for 16 clients at a time?",
            sides: MOVER,
            rounds: Rounds::Once,
            limit: Duration::from_secs(1800),
            set_up: |setting| Box::pin(busy_mover(setting)),
        },
        Benchmark {
            name: "memory-gateway",
            asks: "How much memory does a gateway take with 1,000 idle sessions?",
            sides: GATEWAY,
            rounds: Rounds::Once,
            limit: Duration::from_secs(600),
            set_up: |setting| Box::pin(idle_gateway(setting)),
        },
    ]
}

struct Busy {
    site: Served,
    file_bytes: u64,
    total_bytes: u64,
    local: PathBuf,
    /// Of the one run: what the three sides show.
    seen: [f64; 3],
}

async fn busy_mover(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let site = Served::start_apart(setting, &Wish::default()).await?;
    let (file_bytes, total_bytes) = (setting.size(512 << 20, 64 << 20), setting.size(20 << 30, 4 << 30));
    let local = setting.path("local");
    send_to_file(&local, file_bytes)?;
    Ok(Box::new(Busy { site, file_bytes, total_bytes, local, seen: [0.0; 3] }))
}

#[async_trait(?Send)]
impl Contest for Busy {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        if side == 0 {
            let rate = self.work().await?;
            let peak = |index| memory_mib(self.site.process(index).context("it runs")?, "VmHWM");
            self.seen = [peak(0)?, peak(1)?, rate];
        }
        Ok(self.seen[side])
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "{} GiB: {FETCHING} clients fetch, {STORING} store, each over {STREAMS} streams in MODE E, files of {} MiB",
            self.total_bytes >> 30,
            self.file_bytes >> 20
        )]
    }
}

impl Busy {
    /// Moves everything; at what rate, in GB/s.
    async fn work(&self) -> anyhow::Result<f64> {
        let mut session = self.site.session(false).await?;
        let source = at_home(&mut session, "source").await?;
        store(&mut session, &source, self.file_bytes).await?;
        session.quit().await;
        let left = AtomicU64::new(self.total_bytes);
        let began = Instant::now();
        let fetching = (0..FETCHING).map(|_| self.fetch_until(&left, &source));
        let storing = (0..STORING).map(|number| self.store_until(&left, number));
        futures::future::try_join(try_join_all(fetching), try_join_all(storing)).await?;
        Ok(gigabytes_per_second(self.total_bytes, began.elapsed()))
    }

    /// Takes a file's bytes off what is left to be moved; whether there were any.
    fn take(&self, left: &AtomicU64) -> bool {
        left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(self.file_bytes)).is_ok()
    }

    async fn fetch_until(&self, left: &AtomicU64, source: &FtpPath) -> anyhow::Result<()> {
        let mut session = self.site.session(false).await?;
        while self.take(left) {
            fetch(&mut session, source, self.file_bytes, &Way::push(STREAMS)).await?;
        }
        session.quit().await;
        Ok(())
    }

    async fn store_until(&self, left: &AtomicU64, number: usize) -> anyhow::Result<()> {
        let mut session = self.site.session(false).await?;
        let remote = at_home(&mut session, &format!("stored-{number}")).await?;
        let how = How { streams: STREAMS, ..How::default() };
        let push = Push { local: self.local.clone(), remote: remote.clone() };
        while self.take(left) {
            session.put(&push, &how, &Meter::new(), &CancellationToken::new()).await?;
            session.demand(&Command::Dele(remote.clone())).await?;
        }
        session.quit().await;
        Ok(())
    }
}

struct Idle {
    site: Served,
    sessions: Vec<Client<Ready>>,
}

async fn idle_gateway(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let wish = Wish { sessions: SESSIONS as u32 + 100, ..Wish::default() };
    let site = Served::start_apart(setting, &wish).await?;
    Ok(Box::new(Idle { site, sessions: Vec::new() }))
}

#[async_trait(?Send)]
impl Contest for Idle {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        // One mover, then the gateway.
        let gateway = self.site.process(1).context("the gateway runs")?;
        if side == 1 {
            let options = self.site.options(false)?;
            let opening = stream::iter(0..SESSIONS).map(|_| Client::open(options.clone())).buffer_unordered(LOGINS);
            self.sessions = opening.try_collect().await.context("open the sessions")?;
        }
        memory_mib(gateway, "VmRSS")
    }

    fn notes(&self) -> Vec<String> {
        let peak = self.site.process(1).and_then(|gateway| memory_mib(gateway, "VmHWM").ok());
        let peak = peak.map(|peak| format!("; peak of its memory {peak:.0} MiB"));
        vec![format!("{} sessions, logged in by certificate{}", self.sessions.len(), peak.unwrap_or_default())]
    }
}
