//! Many small files: how many a second are stored, synced and fetched, on both databases.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use catalog::testing::PostgresCluster;
use client::many::{FetchItem, Outcome, Report, StoreItem};
use client::{Client, How, Meter, Ready};
use tokio_util::sync::CancellationToken;
use wire::ftp::FtpPath;

use super::moves::at_home;
use super::served::{Served, Wish};
use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

const FILE_BYTES: u64 = 4096;

const ONE_BY_ONE: &str = "written and synced one by one, no network";
const SIDES: &[Side] = &[
    Side::shown(ONE_BY_ONE, Unit::FilesPerSecond),
    Side::compared("Penstock, put, synced", Unit::FilesPerSecond, ONE_BY_ONE).with(Target::AtLeast(2000.0)),
    Side::shown("Penstock, get", Unit::FilesPerSecond).with(Target::AtLeast(2000.0)),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    let sqlite = Benchmark {
        name: "small-sqlite",
        asks: "How many files of 4 KiB a second are stored, synced, and fetched again, with the catalogue on SQLite?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(900),
        set_up: |setting| Box::pin(set_up(setting, None)),
    };
    let postgres = Benchmark {
        name: "small-postgres",
        asks: "And on PostgreSQL?",
        set_up: |setting| {
            Box::pin(async move {
                let cluster = PostgresCluster::start(true).await?;
                set_up(setting, Some(cluster)).await
            })
        },
        ..sqlite.clone()
    };
    vec![sqlite, postgres]
}

struct Small {
    // Before the database it uses.
    _site: Served,
    _cluster: Option<PostgresCluster>,
    session: Client<Ready>,
    local: Vec<PathBuf>,
    back: PathBuf,
    round: usize,
    /// Where the files of the last put are.
    folder: Option<FtpPath>,
    sessions: u16,
}

async fn set_up(setting: &Setting, cluster: Option<PostgresCluster>) -> anyhow::Result<Box<dyn Contest>> {
    let catalogue = match &cluster {
        Some(cluster) => Some(cluster.database().await?),
        None => None,
    };
    let site = Served::start(setting, &Wish { catalogue, ..Wish::default() }).await?;
    let session = site.session(false).await?;
    let from = setting.path("from");
    std::fs::create_dir(&from)?;
    let local: Vec<_> = (0..setting.size(1000, 200)).map(|number| from.join(format!("file-{number:04}"))).collect();
    for (number, path) in local.iter().enumerate() {
        // Different bytes: they are told apart by their sums.
        let block: Vec<u8> = number.to_le_bytes().iter().copied().cycle().take(FILE_BYTES as usize).collect();
        std::fs::write(path, block)?;
    }
    let back = setting.path("back");
    let sessions = How::default().sessions;
    Ok(Box::new(Small { _site: site, _cluster: cluster, session, local, back, round: 0, folder: None, sessions }))
}

#[async_trait(?Send)]
impl Contest for Small {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let elapsed = match side {
            0 => self.one_by_one()?,
            1 => self.put().await?,
            _ => self.get().await?,
        };
        Ok(self.local.len() as f64 / elapsed.as_secs_f64())
    }

    fn notes(&self) -> Vec<String> {
        let count = self.local.len();
        let how = "every file has its own name, checksums and acknowledgement; fetched files are compared and written";
        vec![format!("{count} files a sample over up to {} sessions", self.sessions), how.to_owned()]
    }
}

impl Small {
    /// What the disk does for a program that syncs each file before it goes on, as an archive must.
    ///
    /// Nothing is deleted before the end, here and in [`Small::get`]: ext4 without a journal does not reuse a deleted
    /// file's inode for a minute, and searches past all of them for each new file. That would be charged to the next side.
    fn one_by_one(&mut self) -> anyhow::Result<Duration> {
        let folder = self.back.with_file_name(format!("one-by-one-{}", self.round));
        std::fs::create_dir(&folder)?;
        let contents = self.local.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        for (number, content) in contents.iter().enumerate() {
            let mut file = std::fs::File::create(folder.join(number.to_string()))?;
            std::io::Write::write_all(&mut file, content)?;
            file.sync_all()?;
        }
        std::fs::File::open(&folder)?.sync_all()?;
        Ok(began.elapsed())
    }

    async fn put(&mut self) -> anyhow::Result<Duration> {
        self.round += 1;
        let folder = at_home(&mut self.session, &format!("small-{}", self.round)).await?;
        self.session.make_folders(&folder).await?;
        let item = |local: &PathBuf| {
            let name = local.file_name().unwrap_or_default().to_string_lossy();
            Ok(StoreItem { local: local.clone(), remote: below(&folder, &name)?, size_bytes: FILE_BYTES })
        };
        let items = self.local.iter().map(item).collect::<anyhow::Result<Vec<_>>>()?;
        let (report, outcomes) = reporter();
        let (meter, never) = (Meter::new(), CancellationToken::new());
        let began = Instant::now();
        self.session.put_many(items, &How::default(), &meter, &never, &report).await?;
        let elapsed = began.elapsed();
        self.check(&outcomes)?;
        self.folder = Some(folder);
        Ok(elapsed)
    }

    async fn get(&mut self) -> anyhow::Result<Duration> {
        let folder = self.folder.clone().context("nothing was put before")?;
        let back = self.back.join(self.round.to_string());
        std::fs::create_dir_all(&back)?;
        let listing = self.session.list(&folder).await?;
        let item = |entry: &client::listing::Entry| {
            Ok(FetchItem {
                remote: below(&folder, &entry.name)?,
                local: back.join(&entry.name),
                size_bytes: entry.facts.size_bytes,
                crc32c: entry.facts.crc32c,
                modified: None,
            })
        };
        let items = listing.entries.iter().map(item).collect::<anyhow::Result<Vec<_>>>()?;
        let (report, outcomes) = reporter();
        let (meter, never) = (Meter::new(), CancellationToken::new());
        let began = Instant::now();
        self.session.get_many(items, &How::default(), &meter, &never, &report).await?;
        let elapsed = began.elapsed();
        self.check(&outcomes)?;
        for local in &self.local {
            let back = back.join(local.file_name().unwrap_or_default());
            ensure!(std::fs::read(local)? == std::fs::read(&back)?, "{} came back changed", back.display());
        }
        Ok(elapsed)
    }

    fn check(&self, outcomes: &Mutex<Vec<Outcome>>) -> anyhow::Result<()> {
        let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(outcomes.len() == self.local.len(), "{} of {} files were told", outcomes.len(), self.local.len());
        for Outcome { remote, result, .. } in outcomes {
            if let Err(error) = result {
                bail!("{remote}: {}", error.chain());
            }
        }
        Ok(())
    }
}

fn below(folder: &FtpPath, name: &str) -> anyhow::Result<FtpPath> {
    Ok(FtpPath::new(format!("{folder}/{name}"))?)
}

/// Takes outcomes, and keeps them.
fn reporter() -> (Report, Arc<Mutex<Vec<Outcome>>>) {
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let kept = outcomes.clone();
    (Arc::new(move |outcome| kept.lock().unwrap_or_else(PoisonError::into_inner).push(outcome)), outcomes)
}
