//! A site of real processes that can be killed: `penstock gateway` and two times `penstock mover`.
//!
//! Owns a temporary folder, the processes and their addresses, which stay the same over restarts. What a process says
//! goes to a file beside its configuration; if a test fails, the folder is kept and named. Never looks at files or the
//! catalogue.

use std::{
    fmt,
    fs::{self, OpenOptions},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use catalog::testing::PostgresCluster;
use daemon::config::{ByteSize, TimeSpan};
use site::{
    admin::{Connection, Target},
    folder::SiteFolder,
    setup::{self, NewSite},
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use wire::admin::site::{Count, Status};

/// Nothing takes longer unless it hangs, with a debug build on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What every test site's gateway is told besides what a first start writes: services look often, wait for nothing, and
/// take what is left over for lost at once.
const GATEWAY: &str = r#"
[hsm]
batch_wait = "0s"
look_every = "100ms"
linger = "300ms"
purge_idle = "0s"
disk_reserve_bytes = "1 MiB"
lease = "1s"

[limits]
mover_grace = "1s"
orphan_grace = "200ms"
partial_uploads = "300ms"
"#;

/// Which process is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
    /// The gateway.
    Gateway,
    /// A mover, by number from 1. The first has the tape drives.
    Mover(usize),
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => f.write_str("gateway"),
            Self::Mover(number) => write!(f, "mover{number}"),
        }
    }
}

/// The processes of a site.
pub(crate) struct Processes {
    pub(crate) folder: SiteFolder,
    /// Where the FTP door listens; the admin door has the next port.
    pub(crate) port: u16,
    /// The catalogue's database.
    pub(crate) url: String,
    running: Vec<(Victim, Child)>,
    root: Option<TempDir>,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl Processes {
    /// Makes a site and starts it. Its catalogue is in a file, or in a database of `cluster`.
    pub(crate) async fn start(cluster: Option<Arc<PostgresCluster>>) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let folder = SiteFolder::new(root.path().join("site"));
        let port = free_ports();
        let new = NewSite {
            port,
            drives: 1,
            cartridges: 12,
            cartridge: ByteSize::mib(256),
            migration_age: TimeSpan::seconds(3600),
            ..NewSite::default()
        };
        let ca = setup::prepare(&folder, &new).expect("a site's folder");
        setup::prepare_user(&folder, &ca, "alice").expect("a certificate");
        // Processes cannot share the virtual library: the first mover has both drives.
        change(&folder.mover_configuration(1), |text| {
            text.replace("\ndrives = 1\n", "\ndrives = 2\n")
                + "\n[[drives]]\nname = \"drive2\"\nlibrary = \"library1\"\nindex = 1\n"
        });
        let sqlite = format!("sqlite:{}", folder.catalogue().display());
        let url = match &cluster {
            Some(cluster) => cluster.database().await.expect("a database"),
            None => sqlite.clone(),
        };
        change(&folder.gateway_configuration(), |text| {
            text.replace(&sqlite, &url).replace("copies = 2\n", "copies = 2\nundelete = \"0s\"\n") + GATEWAY
        });
        let mut site = Self { folder, port, url, running: Vec::new(), root: Some(root), _cluster: cluster };
        for part in [Victim::Mover(1), Victim::Mover(2), Victim::Gateway] {
            site.launch(part);
        }
        site.ready().await;
        site
    }

    /// Kills a process as `kill -9` does, and starts it again. With `again`, it is killed once more after that time, in
    /// the middle of its start.
    pub(crate) async fn kill_and_restart(&mut self, victim: Victim, again: Option<Duration>) {
        self.kill(victim);
        self.launch(victim);
        if let Some(later) = again {
            sleep(later).await;
            self.kill(victim);
            self.launch(victim);
        }
        self.ready().await;
    }

    /// A connection to the admin door.
    pub(crate) async fn admin(&self) -> Result<Connection, site::admin::AdminError> {
        let target = Target {
            gateway: Some(format!("127.0.0.1:{}", self.port + 1)),
            data: Some(self.folder.path().to_owned()),
            ..Target::default()
        };
        Connection::open(&target).await
    }

    /// Waits until every mover is connected and every drive is known.
    async fn ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = match self.admin().await {
                Ok(mut admin) => admin.get::<Status>("/v1/status").await,
                Err(error) => Err(error),
            };
            if let Ok(status) = &status
                && status.movers == (Count { up: 2, total: 2 })
                && status.drives == (Count { up: 2, total: 2 })
            {
                return;
            }
            for (part, child) in &mut self.running {
                if let Some(status) = child.try_wait().expect("a child of ours") {
                    panic!("{part} ended by itself: {status}, {}", tail(&self.folder, *part));
                }
            }
            assert!(Instant::now() < end, "the site is not ready: {status:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn kill(&mut self, victim: Victim) {
        let index = self.running.iter().position(|(part, _)| *part == victim).expect("it runs");
        let (_, mut child) = self.running.swap_remove(index);
        // SIGKILL: `Child::kill` says so.
        child.kill().expect("killed");
        child.wait().expect("gone");
    }

    fn launch(&mut self, part: Victim) {
        let (kind, config) = match part {
            Victim::Gateway => ("gateway", self.folder.gateway_configuration()),
            Victim::Mover(number) => ("mover", self.folder.mover_configuration(number)),
        };
        let log = OpenOptions::new().create(true).append(true).open(log_file(&self.folder, part)).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_penstock"))
            .arg(kind)
            .arg("--config")
            .arg(config)
            .env_remove("PENSTOCK_DATA")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("penstock starts");
        self.running.push((part, child));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking()
            && let Some(root) = self.root.take()
        {
            println!("the site's folder is kept: {}", root.keep().display());
        }
    }
}

fn log_file(folder: &SiteFolder, part: Victim) -> PathBuf {
    folder.path().join(format!("{part}.log"))
}

fn tail(folder: &SiteFolder, part: Victim) -> String {
    let text = fs::read_to_string(log_file(folder, part)).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

fn change(path: &Path, how: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).expect("a configuration");
    fs::write(path, how(text)).expect("written");
}

/// The first of eight ports in a row that nobody has, outside of the range from which the kernel takes ports.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 1500).expect("small");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let first = 20_000 + (start + step) % 1500 * 8;
        if (first..first + 8).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return first;
        }
    }
}
