//! `penstock demo`: a whole site on loopback, and real files through disk and tape and back, step by step.
//!
//! Owns a site in a temporary folder and everything in it. Does nothing that a user could not do: files move through
//! the client library, orders go through the admin door. Ends with the commands to do the same by hand.

mod files;
mod screen;
mod steps;

use std::{path::PathBuf, time::Instant};

use anyhow::Context;
use daemon::{Shutdown, config::ByteSize};

use self::{screen::Screen, steps::Tour};
use crate::{cli::Demo, folder::SiteFolder, serve, setup::NewSite};

/// Reads a size such as `64MiB`.
///
/// # Errors
///
/// A sentence, if it is none.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>().map(ByteSize::bytes).map_err(|error| error.to_string())
}

/// Shows it all, and ends with the site.
///
/// # Errors
///
/// At the first step that does not do what it promises.
pub async fn run(demo: Demo, shutdown: &Shutdown) -> anyhow::Result<()> {
    let screen = Screen::new();
    let folder = temporary_folder()?;
    let shown = show(&demo, &folder, &screen, shutdown).await;
    // The site first, then its folder: no part of it shall miss its files.
    shutdown.stop();
    shutdown.finish().await;
    shown?;
    if demo.keep {
        let kept = folder.keep();
        screen.say(&format!("the site's folder is kept: penstock serve --data {}/site", kept.display()));
    }
    Ok(())
}

async fn show(demo: &Demo, folder: &TemporaryFolder, screen: &Screen, shutdown: &Shutdown) -> anyhow::Result<()> {
    let site = SiteFolder::new(folder.path().join("site"));
    screen.title("A site of one gateway, two movers, a disk volume each, and a tape library with two drives");
    let began = Instant::now();
    let new = NewSite { name: "demo".to_owned(), port: 0, ..NewSite::default() };
    let running = serve::start(&site, &new, shutdown).await.context("start the site")?;
    screen.say(&format!("in {}, ready in {} ms", site.path().display(), began.elapsed().as_millis()));
    screen.say(&format!("FTP door {}, admin door {}", running.doors.ftp, running.doors.admin));
    let movers: Vec<_> = running.movers.iter().filter_map(mover::Mover::http).collect();
    screen.say(&format!("clients of S3 and WebDAV get their data from the movers: {}", movers.join(", ")));

    let local = files::gather(&demo.files, demo.size, folder.path(), screen)?;
    let tour = Tour::open(&site, &running, screen, demo.streams, local, folder.path()).await?;
    tour.run().await?;
    by_hand(screen);
    Ok(())
}

/// A folder that is removed at the end, also when a step fails.
fn temporary_folder() -> anyhow::Result<TemporaryFolder> {
    let path = std::env::temp_dir().join(format!("penstock-demo-{}", std::process::id()));
    std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(TemporaryFolder(Some(path)))
}

struct TemporaryFolder(Option<PathBuf>);

impl TemporaryFolder {
    fn path(&self) -> &std::path::Path {
        self.0.as_deref().expect("it is there until it is kept")
    }

    fn keep(mut self) -> PathBuf {
        self.0.take().expect("it is there until it is kept")
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn by_hand(screen: &Screen) {
    screen.title("The same by hand");
    for line in [
        "export PENSTOCK_DATA=~/penstock",
        "penstock serve & penstock admin wait",
        "export X509_USER_CERT=$PENSTOCK_DATA/users/$(id -un).pem X509_CERT_DIR=$PENSTOCK_DATA/certificates/trusted",
        "head -c 100M /dev/urandom > big.dat; pftp localhost -c 'pput big.dat; dir'",
        "penstock admin migrate --wait /home/$(id -un)/big.dat",
        "penstock admin purge /home/$(id -un)/big.dat",
        "penstock admin stage --wait /home/$(id -un)/big.dat",
        "pftp localhost -c 'pget big.dat back.dat' && cmp big.dat back.dat",
        "penstock admin drives",
    ] {
        screen.command(line);
    }
}
