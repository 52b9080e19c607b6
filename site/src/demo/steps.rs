//! The steps of the demo: store, migrate, purge, stage, retrieve, compare, account.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use client::{
    Client, How, IdentityOptions, Meter, Options, Ready, Surroundings, Target,
    many::{FetchItem, Outcome, Report, StoreItem},
};
use hyper::Method;
use indicatif::HumanBytes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{
    admin::{
        files::Info,
        queue::{Answer, Entry, PathResult, Paths, Stage, State},
        site::{Drive, Status},
    },
    ftp::FtpPath,
    id::RequestId,
};

use super::{
    files::{Local, sum_up},
    screen::Screen,
};
use crate::{
    admin::{Connection, Target as AdminTarget, describe},
    folder::SiteFolder,
    serve::RunningSite,
};

/// How long any one step may take.
const STEP_LIMIT: Duration = Duration::from_secs(1800);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Everything the steps need.
pub(super) struct Tour<'a> {
    screen: &'a Screen,
    session: Client<Ready>,
    admin: Connection,
    watching: JoinHandle<()>,
    how: How,
    local: Vec<Local>,
    /// The demo's folder on the site.
    remote: String,
    /// Where files come back to.
    back: PathBuf,
}

impl<'a> Tour<'a> {
    pub(super) async fn open(
        site: &SiteFolder,
        running: &RunningSite,
        screen: &'a Screen,
        streams: u16,
        local: Vec<Local>,
        scratch: &Path,
    ) -> anyhow::Result<Self> {
        let user = &running.user;
        let identity = IdentityOptions {
            certificate: Some(site.user_credential(user)),
            authorities: Some(site.ca_certificate()),
            ..IdentityOptions::default()
        };
        let options = Options {
            target: Target { user: None, host: running.doors.ftp.ip().to_string(), port: running.doors.ftp.port() },
            identity: Some(identity.load(&Surroundings::of_process())?),
            password: None,
            class_of_service: None,
            private_data: false,
            limits: client::Limits::default(),
            trace: None,
        };
        let mut session = Client::open(Arc::new(options)).await.context("log in")?;
        let home = session.folder().await?;
        screen.say(&format!("logged in by certificate as {user}, in {home}"));
        let target = AdminTarget { data: Some(site.path().to_owned()), ..AdminTarget::default() };
        let watching = watch(Connection::open(&target).await?, *screen);
        Ok(Self {
            screen,
            session,
            admin: Connection::open(&target).await?,
            watching,
            how: How { streams, ..How::default() },
            local,
            remote: format!("{}/demo", home.as_str().trim_end_matches('/')),
            back: scratch.join("back"),
        })
    }

    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        self.store().await?;
        self.migrate().await?;
        self.purge().await?;
        self.stage().await?;
        self.retrieve().await?;
        self.compare()?;
        self.account().await?;
        self.watching.abort();
        self.session.quit().await;
        Ok(())
    }

    fn path(&self, file: &Local) -> anyhow::Result<FtpPath> {
        let path = format!("{}/{}", self.remote, file.name);
        FtpPath::new(path).with_context(|| format!("{:?} is no name for a file", file.name))
    }

    /// All of the demo's files, for orders.
    fn everything(&self) -> Paths {
        Paths { paths: vec![self.remote.clone()], recursive: true }
    }

    async fn store(&mut self) -> anyhow::Result<()> {
        self.screen.title(&format!("pput: {} streams, straight to the movers", self.how.streams));
        let mut folders = BTreeSet::new();
        let mut items = Vec::new();
        for file in &self.local {
            let remote = self.path(file)?;
            folders.insert(remote.as_str().rsplit_once('/').map_or("/", |(folder, _)| folder).to_owned());
            items.push(StoreItem { local: file.path.clone(), remote, size_bytes: file.bytes });
        }
        for folder in folders {
            self.session.make_folders(&FtpPath::new(folder)?).await?;
        }
        let meter = Meter::new();
        let (report, failures) = reporter();
        // `put_many` counts what is expected by itself.
        let Self { session, how, screen, .. } = self;
        let never = CancellationToken::new();
        screen
            .moving("stored", &meter, async {
                session.put_many(items, how, &meter, &never, &report).await?;
                none_failed(&failures)
            })
            .await
    }

    async fn migrate(&mut self) -> anyhow::Result<()> {
        self.screen.title("migrate: two copies, on two cartridges");
        let answers: Vec<Answer> = self.admin.send(Method::POST, "/v1/migrate", &self.everything()).await?;
        accepted(&answers)?;
        let deadline = tokio::time::Instant::now() + STEP_LIMIT;
        for file in self.local.clone() {
            let path = self.path(&file)?;
            loop {
                let info = self.info(&path).await?;
                let tapes = info.copies.iter().filter(|copy| copy.copy > 0 && copy.whole).count();
                if tapes >= 2 {
                    break;
                }
                ensure!(tokio::time::Instant::now() < deadline, "{path} did not reach two tapes in time");
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
        let info = self.info(&self.path(self.local.last().context("there are files")?)?).await?;
        let volumes: Vec<_> = info
            .copies
            .iter()
            .filter(|copy| (1..64).contains(&copy.copy))
            .flat_map(|copy| copy.segments.iter().map(|segment| segment.volume.to_string()))
            .collect();
        self.screen.say(&format!("every file is on two cartridges; {} on {}", info.path, volumes.join(" and ")));
        Ok(())
    }

    async fn info(&mut self, path: &FtpPath) -> anyhow::Result<Info> {
        Ok(self.admin.query("/v1/files", &[("path", Some(path.to_string()))]).await?)
    }

    async fn purge(&mut self) -> anyhow::Result<()> {
        self.screen.title("purge: drop the disk copies");
        let answers: Vec<Answer> = self.admin.send(Method::POST, "/v1/purge", &self.everything()).await?;
        accepted(&answers)?;
        for file in self.local.clone() {
            let info = self.info(&self.path(&file)?).await?;
            ensure!(info.copies.iter().all(|copy| copy.copy != 0), "{} still has a disk copy", info.path);
        }
        self.screen.say(&format!("{} files are on tape only", self.local.len()));
        Ok(())
    }

    async fn stage(&mut self) -> anyhow::Result<()> {
        self.screen.title("stage: bring them back, a mount for each cartridge");
        let stage = Stage { files: self.everything(), ..Stage::default() };
        let answers: Vec<Answer> = self.admin.send(Method::POST, "/v1/stage", &stage).await?;
        accepted(&answers)?;
        let requests: BTreeSet<RequestId> = answers
            .iter()
            .filter_map(|answer| match answer.result {
                PathResult::Queued { request, .. } => Some(request),
                _ => None,
            })
            .collect();
        let deadline = tokio::time::Instant::now() + STEP_LIMIT;
        for request in &requests {
            loop {
                let entry: Entry = self.admin.get(&format!("/v1/requests/{request}")).await?;
                match entry.state {
                    State::Completed => break,
                    State::Failed | State::Cancelled => {
                        bail!("request {request} ended: {}", entry.reason.unwrap_or_default())
                    }
                    _ => {}
                }
                ensure!(tokio::time::Instant::now() < deadline, "request {request} did not end in time");
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
        self.screen.say(&format!("{} requests completed", requests.len()));
        Ok(())
    }

    async fn retrieve(&mut self) -> anyhow::Result<()> {
        self.screen.title(&format!("pget: movers push to the client over {} streams", self.how.streams));
        let mut items = Vec::new();
        for file in &self.local {
            let local = self.back.join(&file.name);
            let folder = local.parent().context("a file lies in a folder")?;
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
            let size_bytes = Some(file.bytes);
            items.push(FetchItem { remote: self.path(file)?, local, size_bytes, crc32c: None, modified: None });
        }
        let meter = Meter::new();
        let (report, failures) = reporter();
        let Self { session, how, screen, .. } = self;
        let never = CancellationToken::new();
        screen
            .moving("retrieved", &meter, async {
                session.get_many(items, how, &meter, &never, &report).await?;
                none_failed(&failures)
            })
            .await
    }

    fn compare(&self) -> anyhow::Result<()> {
        self.screen.title("compare");
        for file in &self.local {
            let (bytes, sums) = sum_up(&self.back.join(&file.name))?;
            ensure!(bytes == file.bytes && sums == file.sums, "{} came back changed", file.name);
        }
        self.screen.say(&format!("{} files came back as they went", self.local.len()));
        Ok(())
    }

    async fn account(&mut self) -> anyhow::Result<()> {
        self.screen.title("what it took");
        let status: Status = self.admin.get("/v1/status").await?;
        ensure!(status.relayed_bytes == 0, "{} bytes were relayed, and none had to be", status.relayed_bytes);
        self.screen.say("relayed bytes: 0");
        let drives: Vec<Drive> = self.admin.get("/v1/drives").await?;
        for drive in drives {
            self.screen.say(&format!(
                "{} on {}: {} mounts, wrote {}, read {}",
                drive.drive,
                drive.mover,
                drive.mounts,
                HumanBytes(drive.written_bytes),
                HumanBytes(drive.read_bytes)
            ));
        }
        Ok(())
    }
}

/// Prints what happens on the site, as `penstock admin watch` does, but for transfers, which have their own bar.
fn watch(mut connection: Connection, screen: Screen) -> JoinHandle<()> {
    tokio::spawn(async move {
        let printed = connection
            .lines("/v1/events", |line| {
                let stamped = serde_json::from_slice::<wire::admin::events::Stamped>(line);
                if let Some(text) = stamped.ok().and_then(|stamped| interesting(&stamped.event)) {
                    screen.say(&format!("· {text}"));
                }
                Ok(true)
            })
            .await;
        if let Err(error) = printed {
            tracing::debug!(error = &error as &dyn std::error::Error, "the live stream ended");
        }
    })
}

fn interesting(event: &wire::admin::events::Event) -> Option<String> {
    use wire::admin::events::Event;
    match event {
        Event::Drive { .. } | Event::Volume { .. } | Event::Batch { .. } => describe(event),
        _ => None,
    }
}

type Failures = Arc<Mutex<Vec<String>>>;

fn reporter() -> (Report, Failures) {
    let failures = Failures::default();
    let seen = Arc::clone(&failures);
    let report: Report = Arc::new(move |outcome: Outcome| {
        if let Err(error) = outcome.result {
            let text = format!("{}: {}", outcome.remote, error.chain());
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    });
    (report, failures)
}

fn none_failed(failures: &Failures) -> anyhow::Result<()> {
    let failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    match failures.first() {
        None => Ok(()),
        Some(first) => bail!("{} files failed, the first: {first}", failures.len()),
    }
}

fn accepted(answers: &[Answer]) -> anyhow::Result<()> {
    for answer in answers {
        if let PathResult::Refused { problem } = &answer.result {
            bail!("{}: {problem}", answer.path);
        }
    }
    Ok(())
}
