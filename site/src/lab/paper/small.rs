//! Many small files, there and back.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use client::{
    Client, How, Meter,
    many::{FetchItem, Outcome, Report, StoreItem},
};
use tokio_util::sync::CancellationToken;
use wire::ftp::FtpPath;

use super::bench::{Bench, Manner};
use crate::lab::site::on_host;

/// All of them, one way, may take so long.
const LIMIT: Duration = Duration::from_secs(600);

impl Bench {
    /// Stores `count` files of `size_bytes` and fetches them again, as `pftp` does with its defaults; how long each took,
    /// logins of further sessions and the folder's listing included.
    ///
    /// # Errors
    ///
    /// If any file fails.
    pub fn small_files(&self, count: usize, size_bytes: usize) -> anyhow::Result<(Duration, Duration)> {
        let options = self.options(&Manner::streams(1))?;
        let (here, home) = (self.folder().join("small"), format!("{}/small", self.site().home()));
        std::fs::create_dir_all(here.join("back"))?;
        let mut there = Vec::new();
        for number in 0..count {
            let local = here.join(number.to_string());
            std::fs::write(&local, vec![u8::try_from(number % 251).unwrap_or(0); size_bytes])?;
            let remote = FtpPath::new(format!("{home}/{number}"))?;
            there.push(StoreItem { local, remote, size_bytes: size_bytes as u64 });
        }
        let local = here.join("back");
        let took = on_host(&self.lab, "client", async move {
            let mut session = Client::open(options).await?;
            let folder = FtpPath::new(home.clone())?;
            session.make_folders(&folder).await?;
            let (how, cancel) = (How::default(), CancellationToken::new());
            let (report, told) = listener();
            let began = Instant::now();
            let meter = Meter::new();
            let put = session.put_many(there, &how, &meter, &cancel, &report);
            tokio::time::timeout(LIMIT, put).await.context("small files take too long to store")??;
            let put = began.elapsed();
            told.check(count)?;
            let (report, told) = listener();
            let began = Instant::now();
            let mut back = Vec::new();
            for entry in session.list(&folder).await?.entries {
                let remote = FtpPath::new(format!("{home}/{}", entry.name))?;
                back.push(FetchItem::listed(remote, local.join(&entry.name), &entry.facts));
            }
            let meter = Meter::new();
            let get = session.get_many(back, &how, &meter, &cancel, &report);
            tokio::time::timeout(LIMIT, get).await.context("small files take too long to fetch")??;
            let get = began.elapsed();
            told.check(count)?;
            session.quit().await;
            Ok((put, get))
        });
        let _ = std::fs::remove_dir_all(here);
        took
    }
}

/// Counts outcomes.
#[derive(Default)]
struct Told {
    done: AtomicUsize,
    failure: Mutex<Option<String>>,
}

fn listener() -> (Report, Arc<Told>) {
    let told = Arc::new(Told::default());
    let counts = Arc::clone(&told);
    let report = move |outcome: Outcome| match outcome.result {
        Ok(_) => {
            counts.done.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            let text = format!("{}: {error:#}", outcome.remote);
            counts.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        }
    };
    (Arc::new(report), told)
}

impl Told {
    fn check(&self, count: usize) -> anyhow::Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
        let done = self.done.load(Ordering::Relaxed);
        ensure!(done == count, "{done} of {count} files were moved");
        Ok(())
    }
}
