//! What the site was asked to keep, and whether it does.
//!
//! Owns the record of what was acknowledged, and of what was asked without an answer. Talks to the site as users and
//! operators do, and looks at the movers' folders and the catalogue behind its back. Never starts or kills anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
    time::Duration,
};

use catalog::{Catalog, VolumeFile};
use client::{Client, Fetch, How, IdentityOptions, Meter, Options, Push, Ready, Surroundings, Target as Server};
use hyper::Method;
use rand::{RngExt as _, rngs::StdRng};
use site::admin::Connection;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use wire::{
    admin::{
        Done,
        files::Info,
        people::NewUser,
        queue::{Answer, Entry, Page, PathResult, Paths, Stage, State},
        site::{Drain, Reason},
    },
    extent::Place,
    ftp::{Command, FtpPath},
    id::{FileId, RequestId, VolumeLabel},
};

use crate::processes::{PATIENCE, Processes};

const HOME: &str = "/home/alice";
const NAMES: u64 = 9;
const MIB: usize = 1 << 20;

/// A file's bytes: these many, from this seed. `None` is no file.
type Content = Option<(u64, usize)>;

/// What is known of one name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Known {
    /// What the site said last.
    acknowledged: Content,
    /// What it was asked for since, without an answer. Any of it may have happened.
    asked: Vec<Content>,
}

impl Known {
    fn may_be(&self) -> impl Iterator<Item = Content> {
        std::iter::once(self.acknowledged).chain(self.asked.iter().copied())
    }
}

/// What the site was asked to keep.
pub(crate) struct World {
    known: BTreeMap<String, Known>,
    options: Arc<Options>,
    /// Behind the gateway's back.
    catalog: Catalog,
    local: tempfile::TempDir,
    contents: u64,
}

/// One change that a user asks for.
struct Wish {
    name: String,
    content: Content,
}

impl World {
    /// Makes the user known to the site.
    pub(crate) async fn new(site: &Processes) -> Self {
        Self::of(site, NAMES).await
    }

    /// The same with so many names of files.
    pub(crate) async fn of(site: &Processes, names: u64) -> Self {
        let mut admin = site.admin().await.expect("the admin door");
        let subject = {
            let ca = daemon::pki::SiteCa::open_or_create(&site.folder.certificates(), "local", &daemon::Clock::real());
            site::certificates::user_subject(&ca.expect("the site's authority"), "alice")
        };
        let user = NewUser { subjects: vec![subject], ..NewUser::default() };
        let _: Done = admin.send(Method::PUT, "/v1/users/alice", &user).await.expect("an account");
        let identity = IdentityOptions {
            certificate: Some(site.folder.user_credential("alice")),
            authorities: Some(site.folder.ca_certificate()),
            ..IdentityOptions::default()
        };
        let around = Surroundings::of_process();
        let options = Options {
            identity: Some(identity.load(&around).expect("a certificate")),
            limits: client::Limits {
                reply: PATIENCE,
                begin: PATIENCE,
                stall: Duration::from_secs(20),
                ..client::Limits::default()
            },
            ..Options::new(Server { user: None, host: "127.0.0.1".to_owned(), port: site.port })
        };
        Self {
            known: (0..names).map(|number| (format!("file{number}"), Known::default())).collect(),
            options: Arc::new(options),
            catalog: Catalog::open(&site.url, catalog::Options::default()).await.expect("the catalogue"),
            local: tempfile::tempdir().expect("a folder"),
            contents: 0,
        }
    }

    /// Three sessions store, overwrite and delete files at the same time, until they are done or lose their session.
    pub(crate) async fn put(&mut self, random: &mut StdRng) {
        let mut wishes: Vec<Wish> = Vec::new();
        for (name, known) in &self.known {
            if known.acknowledged.is_some() && random.random_bool(0.3) {
                continue;
            }
            self.contents += 1;
            let length = match random.random_range(0..6) {
                0 => 0,
                1 => 1,
                2 => 65_537,
                3 => random.random_range(0..MIB),
                _ => random.random_range(0..3 * MIB),
            };
            let delete = known.acknowledged.is_some() && random.random_bool(0.15);
            let content = (!delete).then_some((self.contents, length));
            wishes.push(Wish { name: name.clone(), content });
        }
        let streams = [1, 2, 4];
        let mut shares: [Vec<Wish>; 3] = Default::default();
        for (at, wish) in wishes.into_iter().enumerate() {
            shares[at % 3].push(wish);
        }
        let sessions = shares.into_iter().zip(streams).map(|(share, streams)| self.session(share, streams));
        let told = futures::future::join_all(sessions).await;
        for (name, content, answered) in told.into_iter().flatten() {
            let known = self.known.get_mut(&name).expect("one of our names");
            if answered {
                *known = Known { acknowledged: content, asked: Vec::new() };
            } else {
                known.asked.push(content);
            }
        }
    }

    /// One session's wishes: each with whether it was acknowledged. What was never begun is left out.
    async fn session(&self, wishes: Vec<Wish>, streams: u16) -> Vec<(String, Content, bool)> {
        let mut told = Vec::new();
        let Ok(mut session) = Client::open(self.options.clone()).await else { return told };
        for Wish { name, content } in wishes {
            let answered = match content {
                None => session.demand(&Command::Dele(remote(&name))).await.map(drop),
                Some((seed, length)) => {
                    let local = self.local.path().join(format!("up{seed}"));
                    fs::write(&local, bytes(seed, length)).expect("a local file");
                    let how = How { streams, ..How::default() };
                    let push = Push { local, remote: remote(&name) };
                    session.put(&push, &how, &Meter::new(), &CancellationToken::new()).await.map(drop)
                }
            };
            let lost = answered.is_err();
            told.push((name, content, !lost));
            if lost {
                break;
            }
        }
        told
    }

    /// Asks for migration, until it is asked for.
    pub(crate) async fn migrate(&self, site: &Processes) {
        let _: Vec<Answer> = self.order(site, "/v1/migrate", &everything()).await;
    }

    /// Asks once, over a connection of before; whether that was acknowledged.
    pub(crate) async fn ask_once(&self, admin: &mut Connection, path: &str) -> Option<Vec<Answer>> {
        match path {
            "/v1/stage" => admin.send(Method::POST, path, &Stage { files: everything(), ..Stage::default() }).await,
            _ => admin.send(Method::POST, path, &everything()).await,
        }
        .ok()
    }

    async fn order<T: serde::de::DeserializeOwned>(
        &self,
        site: &Processes,
        path: &str,
        body: &impl serde::Serialize,
    ) -> T {
        let mut admin = site.admin().await.expect("the admin door");
        admin.send(Method::POST, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Waits until every file has its tape copies.
    pub(crate) async fn on_tape(&self, site: &Processes) {
        let end = Instant::now() + PATIENCE;
        loop {
            let files = self.files(site).await;
            if files.iter().all(|file| tapes(file) == 2) {
                return;
            }
            let late: Vec<_> = files.iter().filter(|file| tapes(file) < 2).collect();
            assert!(Instant::now() < end, "not on tape: {late:?}, queue: {:?}", self.queue(site).await);
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A file without a disk copy has all its tape copies, and each disk copy is whole.
    pub(crate) async fn nothing_is_purged_that_is_needed(&self, site: &Processes) {
        for file in self.files(site).await {
            let disk = file.copies.iter().find(|copy| copy.copy == 0);
            assert!(disk.is_some() || tapes(&file) == 2, "the only copies are gone: {file:?}");
            let held: u64 = disk.iter().flat_map(|copy| &copy.segments).map(|segment| segment.range.length()).sum();
            assert!(disk.is_none_or(|_| held == file.bytes), "half a disk copy: {file:?}");
        }
    }

    /// Ends what earlier stage requests were promised: that their files stay on disk for a while.
    pub(crate) async fn release(&self, site: &Processes) {
        let _: Vec<Answer> = self.order(site, "/v1/release", &everything()).await;
    }

    /// Purges what is still on disk.
    pub(crate) async fn purge(&self, site: &Processes) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answers: Vec<Answer> = self.order(site, "/v1/purge", &everything()).await;
            if self.files(site).await.iter().all(|file| file.copies.iter().all(|copy| copy.copy > 0)) {
                return;
            }
            assert!(Instant::now() < end, "cannot be purged: {answers:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until every request is final and none failed. Asks again for everything if nobody knows the requests.
    pub(crate) async fn staged(&self, site: &Processes, answers: Option<Vec<Answer>>) {
        let answers = match answers {
            Some(answers) => answers,
            None => self.order(site, "/v1/stage", &Stage { files: everything(), ..Stage::default() }).await,
        };
        let end = Instant::now() + PATIENCE;
        for answer in answers {
            let request = match answer.result {
                PathResult::Queued { request, .. } => request,
                PathResult::Done { .. } => continue,
                PathResult::Refused { problem } => panic!("{}: {problem}", answer.path),
            };
            loop {
                let entry = self.request(site, request).await;
                match entry.state {
                    State::Completed => break,
                    State::Failed | State::Cancelled => panic!("{}: {entry:?}", answer.path),
                    _ => assert!(Instant::now() < end, "never ends: {entry:?}"),
                }
                sleep(Duration::from_millis(30)).await;
            }
        }
    }

    async fn request(&self, site: &Processes, request: RequestId) -> Entry {
        let mut admin = site.admin().await.expect("the admin door");
        admin.get(&format!("/v1/requests/{request}")).await.expect("a request that was acknowledged")
    }

    async fn queue(&self, site: &Processes) -> Page {
        let mut admin = site.admin().await.expect("the admin door");
        admin.get("/v1/queue").await.expect("the queue")
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn queue_ends(&self, site: &Processes) {
        let end = Instant::now() + PATIENCE;
        loop {
            let queue = self.queue(site).await;
            if queue.entries.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "work that never ends: {queue:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Has everything on a mover's disk move to the others, until it is empty.
    pub(crate) async fn drain(&self, site: &Processes, mover: usize) {
        let reason = Reason { reason: "new disks".to_owned(), moves: true };
        let _: Done = self.order(site, &format!("/v1/volumes/mover{mover}.disk1/drain"), &reason).await;
    }

    /// The mover's disk is used again.
    pub(crate) async fn undrain(&self, site: &Processes, mover: usize) {
        let _: Done = self.order(site, &format!("/v1/volumes/mover{mover}.disk1/undrain"), &Reason::default()).await;
    }

    /// Waits until a drain has moved so many of a hundred segments, or is over.
    pub(crate) async fn drained_by(&self, site: &Processes, mover: usize, percent: u64) -> Drain {
        let whole = self.drain_state(site, mover).await.left_segments;
        loop {
            let state = self.drain_state(site, mover).await;
            if !state.moving || state.left_segments * 100 <= whole * (100 - percent) {
                return state;
            }
        }
    }

    /// How far that is.
    pub(crate) async fn drain_state(&self, site: &Processes, mover: usize) -> Drain {
        let mut admin = site.admin().await.expect("the admin door");
        admin.get(&format!("/v1/volumes/mover{mover}.disk1/drain")).await.expect("how far it is")
    }

    /// Waits until a mover's disk that is being drained is empty: the drain goes on by itself.
    pub(crate) async fn is_drained(&self, site: &Processes, mover: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            let state = self.drain_state(site, mover).await;
            if !state.moving {
                assert_eq!((state.left_segments, state.left_bytes), (0, 0), "it ended before its end: {state:?}");
                return;
            }
            assert!(Instant::now() < end, "not drained: {state:?}, queue: {:?}", self.queue(site).await);
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What the catalogue says of every file there is.
    async fn files(&self, site: &Processes) -> Vec<Info> {
        let mut admin = site.admin().await.expect("the admin door");
        let mut files = Vec::new();
        for (name, known) in &self.known {
            match admin.query("/v1/files", &[("path", Some(format!("{HOME}/{name}")))]).await {
                Ok(info) => files.push(info),
                Err(error) => assert!(known.may_be().any(|content| content.is_none()), "{name} is gone: {error}"),
            }
        }
        files
    }

    /// Compares names and sizes, and with `read` every byte, with what was asked for; what is there becomes what was
    /// acknowledged.
    pub(crate) async fn check(&mut self, read: bool) {
        let mut session = Client::open(self.options.clone()).await.expect("a session");
        let listing = session.list(&FtpPath::new(HOME).expect("a path")).await.expect("a listing");
        assert!(listing.refused.is_empty(), "{listing:?}");
        let listed: BTreeMap<String, Option<u64>> =
            listing.entries.into_iter().map(|entry| (entry.name, entry.facts.size_bytes)).collect();
        for name in listed.keys() {
            assert!(self.known.contains_key(name), "{name} was never asked for");
        }
        for (name, known) in &mut self.known {
            let mut possible: Vec<Content> = known.may_be().collect();
            match listed.get(name) {
                None => possible.retain(Option::is_none),
                Some(size) => {
                    possible.retain(|content| content.is_some_and(|(_, length)| Some(length as u64) == *size));
                    let said = session.size(&remote(name)).await.expect("a size");
                    assert_eq!(Some(said), *size, "{name}: SIZE and the listing disagree");
                }
            }
            assert!(!possible.is_empty(), "{name} is {:?} long, which it cannot be: {known:?}", listed.get(name));
            if read && listed.contains_key(name) {
                let got = fetch(&mut session, name, self.local.path()).await;
                possible.retain(|content| content.is_some_and(|(seed, length)| bytes(seed, length) == got));
                assert!(!possible.is_empty(), "{name}: {} bytes that nobody stored: {known:?}", got.len());
            }
            if let [only] = *possible {
                *known = Known { acknowledged: only, asked: Vec::new() };
            }
        }
        session.quit().await;
    }

    /// Waits until the movers' folders hold exactly what the catalogue names: nothing begun, nothing left over, nothing
    /// missing.
    pub(crate) async fn nothing_is_left_over(&self, site: &Processes) {
        let end = Instant::now() + PATIENCE;
        loop {
            let (mut there, mut begun) = (BTreeSet::new(), Vec::new());
            for number in 1..=2 {
                let volume = VolumeLabel::new(format!("mover{number}.disk1")).expect("a label");
                let folder = site.folder.disk(number);
                begun.extend(below(&folder.join("tmp")));
                for part in ["incoming", "data"] {
                    there.extend(below(&folder.join(part)).iter().map(|name| (volume.clone(), file_number(name))));
                }
            }
            let named: BTreeSet<_> = self.files(site).await.iter().flat_map(on_disk).collect();
            if begun.is_empty() && there == named {
                return;
            }
            if Instant::now() >= end {
                let files =
                    there.iter().map(|(volume, file)| VolumeFile { volume: volume.clone(), file: FileId(*file) });
                let files: Vec<_> = files.collect();
                let unknown = self.catalog.unknown_files(&files).await;
                let partials = self.catalog.partials(None, 100).await;
                panic!(
                    "begun {begun:?}, left over {:?}, missing {:?}; unknown to the catalogue: {unknown:?}, cut: {partials:?}",
                    there.difference(&named).collect::<Vec<_>>(),
                    named.difference(&there).collect::<Vec<_>>(),
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn everything() -> Paths {
    Paths { paths: vec![HOME.to_owned()], recursive: true }
}

fn remote(name: &str) -> FtpPath {
    FtpPath::new(format!("{HOME}/{name}")).expect("a path")
}

fn tapes(file: &Info) -> usize {
    file.copies.iter().filter(|copy| copy.copy > 0 && copy.whole).count()
}

fn on_disk(file: &Info) -> Vec<(VolumeLabel, u64)> {
    let segments = file.copies.iter().filter(|copy| copy.copy == 0).flat_map(|copy| &copy.segments);
    let place = |segment: &wire::admin::files::Segment| match segment.place {
        Place::Disk { file, .. } => Some((segment.volume.clone(), file.0)),
        Place::Tape { .. } => None,
    };
    segments.filter_map(place).collect()
}

/// The number of a mover's file, by its name.
fn file_number(name: &str) -> u64 {
    let digits = name.split('@').next().expect("a name");
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{name} is no mover's file"))
}

/// Names of all files below a folder.
fn below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    // Folders and files may go while we look.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(below(&entry.path()));
        } else {
            names.push(entry.file_name().into_string().expect("a plain name"));
        }
    }
    names
}

async fn fetch(session: &mut Client<Ready>, name: &str, folder: &Path) -> Vec<u8> {
    let local = folder.join(format!("down-{name}"));
    let _ = fs::remove_file(&local);
    let fetch = Fetch { remote: remote(name), local: local.clone() };
    let how = How { streams: 2, ..How::default() };
    let moved = session.get(&fetch, &how, &Meter::new(), &CancellationToken::new()).await;
    moved.unwrap_or_else(|error| panic!("{name}: {}", error.chain()));
    fs::read(&local).expect("fetched")
}

/// Bytes that look random and are the same for the same seed (xorshift64*).
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(length + 8);
    while data.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        data.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    data.truncate(length);
    data
}
