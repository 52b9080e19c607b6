//! To the virtual tape library and back, through the whole site: put, migrate, purge, stage.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use client::{Client, Ready};
use wire::ftp::{Command, FtpPath};

use super::moves::{at_home, store};
use super::served::{Served, Wish};
use super::streams::send_to_file;
use super::{Benchmark, Contest, Rounds, Setting, Side, Unit, plain};

const RATE: Unit = Unit::MegabytesPerSecond;
const DD: &str = "dd conv=fsync on the same disk";
const SIDES: &[Side] = &[
    Side::shown(DD, RATE),
    Side::compared("disk to tape, one large file", RATE, DD),
    Side::compared("tape to disk, one large file", RATE, DD),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    vec![Benchmark {
        name: "tape",
        asks: "How fast does a file reach a cartridge of the virtual library, and the disk again?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(1800),
        set_up: |setting| Box::pin(set_up(setting)),
    }]
}

struct Tape {
    site: Served,
    session: Client<Ready>,
    bytes: u64,
    local: PathBuf,
    round: usize,
    path: Option<FtpPath>,
}

async fn set_up(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let site = Served::start(setting, &Wish { class: "bench-tape", ..Wish::default() }).await?;
    let session = site.session(false).await?;
    let bytes = setting.size(1 << 30, 64 << 20);
    let local = setting.path("local");
    send_to_file(&local, bytes)?;
    Ok(Box::new(Tape { site, session, bytes, local, round: 0, path: None }))
}

#[async_trait(?Send)]
impl Contest for Tape {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let elapsed = match side {
            0 => return Ok(plain::dd(&self.local, &self.local.with_extension("copy"), self.bytes).await? * 1e3),
            1 => self.move_to_tape().await?,
            _ => self.back().await?,
        };
        Ok(plain::gigabytes_per_second(self.bytes, elapsed) * 1e3)
    }

    fn notes(&self) -> Vec<String> {
        vec![
            format!("{} MiB a sample, from the operator's command to its end", self.bytes >> 20),
            "mounts, checksums and the synchronous filemark are in it; the cartridge is a file on the same disk"
                .to_owned(),
        ]
    }
}

impl Tape {
    async fn move_to_tape(&mut self) -> anyhow::Result<Duration> {
        self.round += 1;
        let path = at_home(&mut self.session, &format!("to-tape-{}", self.round)).await?;
        store(&mut self.session, &path, self.bytes).await?;
        let began = Instant::now();
        self.site.admin(&["migrate", "--wait", path.as_str()]).await?;
        let elapsed = began.elapsed();
        self.path = Some(path);
        Ok(elapsed)
    }

    async fn back(&mut self) -> anyhow::Result<Duration> {
        let path = self.path.take().ok_or_else(|| anyhow::anyhow!("nothing was migrated before"))?;
        self.site.admin(&["purge", path.as_str()]).await?;
        let began = Instant::now();
        self.site.admin(&["stage", "--wait", path.as_str()]).await?;
        let elapsed = began.elapsed();
        self.session.demand(&Command::Dele(path)).await?;
        Ok(elapsed)
    }
}
