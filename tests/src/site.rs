//! A whole site in one process: a gateway, movers, a catalogue, a CA.
//!
//! Owns a temporary folder and the shutdowns of its parts. Everything listens on loopback at free ports. A part that is
//! killed drops what it was doing, as far as one process can; its files, and its address, are there when it starts again.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use catalog::{Catalog, NewAccount, TreePath, WorkKind, testing::PostgresCluster};
use daemon::{
    Clock, Shutdown,
    config::{ByteSize, TimeSpan},
    pki::{Holder, SiteCa},
    role::Role,
    tls::{HotCredential, Trust},
    trust::{TrustOptions, TrustStore},
};
use gateway::{
    Gateway,
    config::{Config, MoverConfig as MoverAddress},
    movers::Neighbours,
};
use mover::{
    Libraries, Mover, MoverConfig, MoverTls,
    config::{DriveConfig, LibraryConfig, LibraryKind, VolumeConfig},
};
use tempfile::TempDir;
use wire::id::{AccountName, BitfileId, DriveId, GroupName, LibraryId, MoverId, VolumeLabel};

use crate::User;

/// Nothing in a test takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOPBACK: &str = "127.0.0.1";

/// Waits for something that has to come.
///
/// # Panics
///
/// If it does not.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come within {PATIENCE:?}"))
}

/// Where the catalogue is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Database {
    /// In a file of the site's folder.
    Sqlite,
    /// In a database of its own of the cluster that all tests of a process share.
    Postgres,
}

/// Changes the configuration of a mover, which it gets the number of, counted from 0.
type ChangeMover = Box<dyn Fn(usize, &mut MoverConfig) + Send>;

/// A site to be started.
pub struct SiteBuilder {
    movers: usize,
    database: Database,
    url: Option<String>,
    drives: u16,
    cartridges: u16,
    beside: bool,
    gateway: Box<dyn FnOnce(&mut Config) + Send>,
    mover: ChangeMover,
}

/// A site that runs.
pub struct Site {
    /// The gateway's handles, of its latest start.
    pub gateway: Gateway,
    /// The site's authority.
    pub ca: SiteCa,
    /// The virtual libraries of the movers.
    pub libraries: Libraries,
    config: Config,
    neighbours: Neighbours,
    gateway_shutdown: Shutdown,
    movers: Vec<MoverPart>,
    url: String,
    folder: TempDir,
    cluster: Option<Arc<PostgresCluster>>,
}

struct MoverPart {
    config: MoverConfig,
    tls: MoverTls,
    shutdown: Shutdown,
}

impl SiteBuilder {
    /// So many movers, called `m1`, `m2` and so on, each with a disk volume; two otherwise.
    #[must_use]
    pub fn movers(mut self, count: usize) -> Self {
        self.movers = count;
        self
    }

    /// The catalogue in another database than SQLite.
    #[must_use]
    pub fn database(mut self, database: Database) -> Self {
        self.database = database;
        self
    }

    /// The catalogue in the database at this URL.
    #[must_use]
    pub fn catalogue(mut self, url: String) -> Self {
        self.url = Some(url);
        self
    }

    /// A virtual tape library of so many drives, dealt to the movers in turn, and so many cartridges of 64 MiB. The first
    /// mover has the robot. Without this there is no tape.
    #[must_use]
    pub fn tape(mut self, drives: u16, cartridges: u16) -> Self {
        self.drives = drives;
        self.cartridges = cartridges;
        self
    }

    /// The gateway reads what the movers have without a connection, as in `penstock serve`. Movers of such a site are not
    /// started again.
    #[must_use]
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Services wait for nothing: what is stored sinks to tape at once.
    #[must_use]
    pub fn eager(self) -> Self {
        self.gateway(|config| {
            config.hsm.batch_wait = TimeSpan::seconds(0);
            config.hsm.look_every = TimeSpan::milliseconds(100);
            config.hsm.linger = TimeSpan::seconds(1);
            config.hsm.lease = TimeSpan::seconds(2);
            config.hsm.purge_idle = TimeSpan::seconds(0);
            for class in &mut config.classes {
                class.migration_age = TimeSpan::seconds(0);
            }
        })
    }

    /// Changes the gateway's configuration, behind other changes.
    #[must_use]
    pub fn gateway(mut self, change: impl FnOnce(&mut Config) + Send + 'static) -> Self {
        let before = self.gateway;
        self.gateway = Box::new(move |config| {
            before(config);
            change(config);
        });
        self
    }

    /// Changes a mover's configuration, given its number from 1.
    #[must_use]
    pub fn mover(mut self, change: impl Fn(usize, &mut MoverConfig) + Send + 'static) -> Self {
        self.mover = Box::new(change);
        self
    }

    /// Starts it.
    ///
    /// # Panics
    ///
    /// If a part does not start.
    pub async fn start(mut self) -> Site {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ca = SiteCa::in_memory("test", &Clock::real()).expect("an authority");
        let libraries = Libraries::default();
        let (mut movers, mut beside) = (Vec::new(), Vec::new());
        for number in 1..=self.movers {
            let mut config = self.mover_config(number, &folder);
            (self.mover)(number, &mut config);
            let mut part = MoverPart { tls: mover_tls(&ca, &config.name), config, shutdown: new_shutdown() };
            beside.push(part.start(&libraries).await);
            movers.push(part);
        }
        let (url, cluster) = match (self.url.take(), self.database) {
            (Some(url), _) => (url, None),
            (None, Database::Sqlite) => (format!("sqlite:{}", folder.path().join("catalogue.db").display()), None),
            (None, Database::Postgres) => {
                let cluster =
                    PostgresCluster::shared().await.expect("PostgreSQL is installed (apt install postgresql)");
                (cluster.database().await.expect("a database"), Some(cluster))
            }
        };
        let mut config = gateway_config(&ca, &folder, &movers);
        (self.gateway)(&mut config);
        let gateway_shutdown = new_shutdown();
        let catalog = Catalog::open(&url, catalog::Options::default()).await.expect("a catalogue");
        let neighbours = site::beside::neighbours(beside.iter().filter(|_| self.beside));
        let gateway = Gateway::start(&config, catalog, neighbours.clone(), &gateway_shutdown).await;
        let gateway = gateway.expect("a gateway");
        let site = Site { gateway, neighbours, ca, libraries, config, gateway_shutdown, movers, url, folder, cluster };
        site.complete().await;
        site
    }

    fn mover_config(&self, number: usize, folder: &TempDir) -> MoverConfig {
        let name = format!("m{number}");
        let mut config =
            MoverConfig { name: MoverId::new(name.clone()).expect("a good name"), ..MoverConfig::default() };
        config.control.listen = SocketAddr::new(LOOPBACK.parse().expect("an address"), 0);
        config.data.listen = vec![LOOPBACK.parse().expect("an address")];
        config.data.ports = [0, 0];
        config.limits.memory = ByteSize::mib(64);
        config.volumes = vec![VolumeConfig {
            label: VolumeLabel::new(format!("{name}.disk1")).expect("a good label"),
            folder: folder.path().join(&name),
            capacity: Some(ByteSize::gib(4)),
            keep_free: ByteSize::mib(1),
            uuid: None,
            create: true,
            read_only: false,
        }];
        let library = LibraryId::new("library1").expect("a good name");
        let mine: Vec<_> = (0..self.drives).filter(|drive| usize::from(*drive) % self.movers + 1 == number).collect();
        if self.drives > 0 && (number == 1 || !mine.is_empty()) {
            let label = |number| VolumeLabel::new(format!("PEN{number:03}L8")).expect("a good label");
            config.libraries = vec![LibraryConfig {
                name: library.clone(),
                robot: number == 1,
                kind: LibraryKind::Virtual {
                    folder: folder.path().join("tape"),
                    drives: self.drives,
                    slots: None,
                    cartridges: (1..=self.cartridges).map(label).collect(),
                    capacity: ByteSize::mib(64),
                    time_scale: 0.0,
                },
            }];
        }
        config.drives = mine
            .into_iter()
            .map(|index| DriveConfig {
                name: DriveId::new(format!("drive{}", index + 1)).expect("a good name"),
                library: library.clone(),
                index: Some(index),
                device: None,
            })
            .collect();
        config
    }
}

impl MoverPart {
    async fn start(&mut self, libraries: &Libraries) -> Mover {
        self.shutdown = new_shutdown();
        let mover = Mover::start(self.config.clone(), self.tls.clone(), libraries, &self.shutdown).await;
        // The address stays the same over its restarts, as a configured one would.
        let mover = mover.expect("a mover");
        self.config.control.listen = mover.address();
        mover
    }
}

impl Site {
    /// A gateway and two movers over SQLite, without tape.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A site to be changed before it is started.
    #[must_use]
    pub fn builder() -> SiteBuilder {
        SiteBuilder {
            movers: 2,
            database: Database::Sqlite,
            url: None,
            drives: 0,
            cartridges: 0,
            beside: false,
            gateway: Box::new(|_| ()),
            mover: Box::new(|_, _| ()),
        }
    }

    /// Somebody with a certificate, an account of that name and a mapping between them. The same again is the same
    /// person with a new certificate.
    ///
    /// # Panics
    ///
    /// If the catalogue refuses.
    pub async fn user(&self, name: &str) -> User {
        let account = AccountName::new(name).expect("a good name");
        let new = NewAccount {
            name: account.clone(),
            primary_group: GroupName::new("users").expect("a good name"),
            groups: Vec::new(),
            admin: false,
            disabled: false,
            home: None,
        };
        let user = User::new(self, name);
        let catalog = &self.gateway.catalog;
        catalog.put_account(new).await.expect("an account");
        catalog.map_subject(&user.subject(), &account).await.expect("a mapping");
        let principal = self.gateway.identities.principal(&user.subject(), None).await.expect("a principal");
        self.gateway.files.home(&principal).await.expect("a home");
        user
    }

    /// The bitfile of a name.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub async fn bitfile(&self, path: &str) -> BitfileId {
        let path = TreePath::posix(&TreePath::root(), path).expect("a path");
        let resolved = self.gateway.catalog.resolve(&path).await.expect("resolved");
        resolved.entry().unwrap_or_else(|error| panic!("{path}: {error}")).file().expect("a file").bitfile
    }

    /// Waits until a bitfile has all its tape copies.
    ///
    /// # Panics
    ///
    /// If it does not get them; what the queue and the drives say of it then.
    pub async fn on_tape(&self, bitfile: BitfileId) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let catalog = &self.gateway.catalog;
        loop {
            let residency = catalog.locate_one(bitfile).await.expect("located").bitfile.residency;
            if residency.tape_copies >= residency.tape_copies_wanted {
                return;
            }
            if tokio::time::Instant::now() > deadline {
                let work = catalog.work_items(Some(WorkKind::Migrate), None, 10).await.expect("work");
                panic!("{bitfile} is not on tape: {work:?}, drives {:?}", self.gateway.hsm.drives().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a bitfile has all its tape copies, and takes it off the disk.
    ///
    /// # Panics
    ///
    /// If it does not get them, or may not be purged.
    pub async fn sink(&self, bitfile: BitfileId) {
        self.on_tape(bitfile).await;
        for (_, purged) in self.gateway.hsm.purge_now(vec![bitfile]).await.expect("asked") {
            purged.expect("purged");
        }
    }

    /// Where the FTP door listens.
    #[must_use]
    pub fn ftp(&self) -> SocketAddr {
        *self.gateway.doors.ftp.first().expect("the FTP door is open")
    }

    /// The trust in the site's authority.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn trust(&self) -> Trust {
        trust(&self.ca)
    }

    /// A folder with the site's authority as clients of the grid want it: hash-named, with a signing policy.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[must_use]
    pub fn trust_folder(&self) -> PathBuf {
        let folder = self.folder().join("trusted");
        self.ca.write_trust_folder(&folder, None).expect("written");
        folder
    }

    /// A folder for what a test needs, gone with the site.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The folder of a mover's disk volume, by number from 1.
    #[must_use]
    pub fn disk(&self, mover: usize) -> PathBuf {
        self.movers[mover - 1].config.volumes[0].folder.clone()
    }

    /// Ends a mover in the middle of whatever it does, by number from 1.
    pub async fn kill_mover(&mut self, mover: usize) {
        let part = &self.movers[mover - 1];
        part.shutdown.cut();
        part.shutdown.finish().await;
    }

    /// Starts a mover again that was killed, at the address it had.
    pub async fn start_mover(&mut self, mover: usize) {
        let libraries = self.libraries.clone();
        drop(self.movers[mover - 1].start(&libraries).await);
        self.complete().await;
    }

    /// Ends the gateway in the middle of whatever it does, and starts it again.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn kill_gateway(&mut self) {
        self.gateway_shutdown.cut();
        self.gateway_shutdown.finish().await;
        self.gateway.catalog.close().await;
        self.gateway_shutdown = new_shutdown();
        let catalog = Catalog::open(&self.url, catalog::Options::default()).await.expect("a catalogue");
        let gateway = Gateway::start(&self.config, catalog, self.neighbours.clone(), &self.gateway_shutdown).await;
        self.gateway = gateway.expect("a gateway");
        self.complete().await;
    }

    /// Ends the gateway and starts it over an empty catalogue: what the old one knew is lost. Everything else stays.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn lose_catalogue(&mut self) {
        self.url = match &self.cluster {
            Some(cluster) => cluster.database().await.expect("a database"),
            None => format!("sqlite:{}", self.folder.path().join("catalogue-2.db").display()),
        };
        self.kill_gateway().await;
    }

    /// Asks the gateway to end, and lets what moves finish.
    pub async fn stop_gateway(&self) -> daemon::lifecycle::Ending {
        self.gateway_shutdown.finish().await
    }

    /// Bytes that went through a mover that neither held them nor kept them, since the movers started. Listings are
    /// among them.
    pub async fn relayed_bytes(&self) -> u64 {
        let mut sum = 0;
        for part in &self.movers {
            let answer = self.gateway.movers.call(&part.config.name, wire::mover::Call::Status).await;
            if let Ok(wire::mover::Answer::Status(status)) = answer {
                sum += status.relayed_bytes;
            }
        }
        sum
    }

    /// Waits until the gateway has heard of every mover, and the catalogue of every disk volume.
    async fn complete(&self) {
        soon("every mover", self.gateway.movers.settled(PATIENCE)).await;
        soon("every volume", async {
            let count: usize = self.movers.iter().map(|part| part.config.volumes.len()).sum();
            let disks = |volumes: Vec<catalog::Volume>| {
                volumes.into_iter().filter(|volume| matches!(volume.medium, catalog::Medium::Disk { .. })).count()
            };
            while disks(self.gateway.catalog.volumes().await.expect("volumes")) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.gateway_shutdown.cut();
        self.movers.iter().for_each(|part| part.shutdown.cut());
    }
}

fn new_shutdown() -> Shutdown {
    Shutdown::new(PATIENCE)
}

fn trust(ca: &SiteCa) -> Trust {
    let store = TrustStore::from_pem(ca.certificate_pem().as_bytes(), TrustOptions::default());
    Trust::fixed(store.expect("an authority"))
}

fn mover_tls(ca: &SiteCa, name: &MoverId) -> MoverTls {
    let holder = Holder::Part { role: Role::Mover, name: name.as_str(), hosts: &[LOOPBACK.to_owned()] };
    let issued = ca.issue(&holder, &Clock::real()).expect("issued");
    let credential = HotCredential::fixed(issued.credential().expect("loads"));
    MoverTls { credential, site: trust(ca), clients: trust(ca) }
}

/// Writes the gateway's certificates to the folder and configures it with them and the movers' addresses.
fn gateway_config(ca: &SiteCa, folder: &TempDir, movers: &[MoverPart]) -> Config {
    let mut config = Config::default();
    let file = |name: &str| folder.path().join(name);
    let hosts = [LOOPBACK.to_owned(), "localhost".to_owned()];
    let holder = Holder::Part { role: Role::Gateway, name: config.name.as_str(), hosts: &hosts };
    let issued = ca.issue(&holder, &Clock::real()).expect("issued");
    issued.create(&file("gateway.pem")).expect("written");
    std::fs::write(file("ca.pem"), ca.certificate_pem()).expect("written");
    config.data = file("gateway");
    config.tls.certificate = file("gateway.pem");
    config.tls.key = file("gateway.pem");
    config.tls.site_ca = file("ca.pem");
    config.identity.trust = file("ca.pem");
    let anywhere = vec![SocketAddr::new(LOOPBACK.parse().expect("an address"), 0)];
    config.ftp.listen.clone_from(&anywhere);
    config.admin.listen.clone_from(&anywhere);
    config.admin.metrics = anywhere;
    // Services look often and keep nothing back: tests wait for states, on small disks.
    config.hsm.look_every = TimeSpan::milliseconds(100);
    config.hsm.linger = TimeSpan::milliseconds(500);
    config.hsm.purge_idle = TimeSpan::default();
    config.hsm.disk_reserve_bytes = ByteSize::mib(1);
    config.movers = movers
        .iter()
        .map(|part| MoverAddress { name: part.config.name.clone(), address: part.config.control.listen.to_string() })
        .collect();
    config
}
