//! A mover's configuration: one commented TOML file.
//!
//! Owns names, defaults and checks of every key. Pure. Never opens anything: what can only be found by trying, such as an
//! address in use, is found by [`Mover::start`](crate::Mover::start).

mod http;

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use daemon::{
    config::{ByteSize, Problems, Settings, TimeSpan},
    logging::LogSettings,
};
use serde::{Deserialize, Serialize};
use wire::id::{DriveId, LibraryId, MoverId, VolumeLabel};

pub use self::http::HttpConfig;

/// Everything a mover is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MoverConfig {
    /// The mover's name in the site.
    pub name: MoverId,
    /// Where gateways connect.
    pub control: ControlConfig,
    /// Its certificate, and whom it trusts. Read by whoever starts the mover; see [`crate::MoverTls`].
    pub tls: TlsConfig,
    /// Data connections.
    pub data: DataConfig,
    /// HTTP clients that gateways send here.
    pub http: HttpConfig,
    /// Threads and memory.
    pub limits: LimitsConfig,
    /// Disk volumes.
    pub volumes: Vec<VolumeConfig>,
    /// Tape libraries whose robot this mover moves, or whose drives it has.
    pub libraries: Vec<LibraryConfig>,
    /// Tape drives.
    pub drives: Vec<DriveConfig>,
    /// What it logs. Read by whoever starts the process.
    pub log: LogSettings,
    /// Where `/metrics` and `/healthz` are served. Read by whoever starts the process.
    pub metrics: MetricsConfig,
}

/// A mover's certificate, and whom it trusts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// Its certificate of the site's own CA, PEM.
    pub certificate: PathBuf,
    /// The certificate's key, PEM; may be the same file.
    pub key: PathBuf,
    /// The site's own CA, PEM: gateways and other movers.
    pub site_ca: PathBuf,
    /// CAs of clients' certificates, for data connections: a folder in the IGTF layout, or a PEM bundle.
    pub clients: PathBuf,
    /// How often the files are looked at for changes.
    pub reload: TimeSpan,
}

/// Where `/metrics` and `/healthz` are served.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Address and port, without encryption or authentication; left out, they are not served.
    pub listen: Option<SocketAddr>,
}

/// Where gateways connect.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How often gateways are told how the mover is, when nothing changes.
    pub status_every: TimeSpan,
    /// How long the channels of a gateway that went away are kept.
    pub orphan_limit: TimeSpan,
}

/// Data connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// The addresses listened on, at most one IPv4 and one IPv6.
    pub listen: Vec<IpAddr>,
    /// The addresses told to clients instead, where they differ: behind NAT, or when listening on all.
    pub advertise: Vec<IpAddr>,
    /// First and last port; `[0, 0]` takes any free one.
    pub ports: [u16; 2],
    /// TCP congestion control of data connections; empty leaves the system's.
    pub congestion: String,
    /// The most bytes a second of one data connection; 0 leaves it to congestion control.
    pub pace: ByteSize,
    /// Bytes of a block when sending in extended block mode.
    pub block: ByteSize,
    /// The longest time a channel may wait for its peer, whatever the gateway asks for.
    pub open_limit: TimeSpan,
    /// The longest time a transfer may stand still, whatever the gateway asks for.
    pub stall_limit: TimeSpan,
}

/// Threads and memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Threads that move data between sockets and disks.
    pub threads: usize,
    /// Threads of each volume that sync files in parallel.
    pub sync_threads: usize,
    /// Memory for data in flight. The mover never takes more, and waits instead.
    pub memory: ByteSize,
    /// The size of one piece of that memory.
    pub buffer: ByteSize,
    /// Memory of one transfer that passes through the mover: from or to tape, or from channel to channel.
    pub pipeline: ByteSize,
    /// Transfers at a time; more are refused as busy.
    pub transfers: usize,
    /// Channels at a time; more are refused as busy.
    pub channels: usize,
}

/// One disk volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Its label, unique in the site.
    pub label: VolumeLabel,
    /// The folder it lives in.
    pub folder: PathBuf,
    /// How much it may hold; left out, what the file system has.
    #[serde(default)]
    pub capacity: Option<ByteSize>,
    /// What is left to others on the same file system.
    #[serde(default = "default_keep_free")]
    pub keep_free: ByteSize,
    /// Its uuid, if a volume of the same label must not be mistaken for it.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Whether an empty folder is made a new volume.
    #[serde(default)]
    pub create: bool,
    /// Whether it is only read.
    #[serde(default)]
    pub read_only: bool,
}

/// What is left to others if the configuration says nothing: enough for logs and for the file system itself.
const fn default_keep_free() -> ByteSize {
    ByteSize::gib(1)
}

/// One tape library.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryConfig {
    /// Its name, unique in the site.
    pub name: LibraryId,
    /// Whether this mover moves its robot. One mover of a site does.
    #[serde(default = "yes")]
    pub robot: bool,
    /// What it is.
    pub kind: LibraryKind,
}

const fn yes() -> bool {
    true
}

/// What a library is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", tag = "type")]
pub enum LibraryKind {
    /// The virtual library, in a folder.
    Virtual {
        /// The folder. Movers of one process may share it.
        folder: PathBuf,
        /// How many drives it is made with.
        drives: u16,
        /// How many slots it is made with; left out, two more than cartridges.
        #[serde(default)]
        slots: Option<u16>,
        /// The bar codes of the cartridges it is made with.
        cartridges: Vec<VolumeLabel>,
        /// The capacity of each cartridge.
        capacity: ByteSize,
        /// How long things take compared with a real library: 0 is no time, 1 as long as there.
        #[serde(default)]
        time_scale: f64,
    },
    /// A library behind the Linux SCSI generic driver.
    ScsiGeneric {
        /// The changer's device, `/dev/sgN`.
        changer: PathBuf,
    },
}

/// One tape drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// Its name, unique in the site.
    pub name: DriveId,
    /// The library it sits in, one of `libraries`.
    pub library: LibraryId,
    /// In a virtual library: which drive, counted from 0.
    #[serde(default)]
    pub index: Option<u16>,
    /// In a real library: its device, `/dev/sgN`.
    #[serde(default)]
    pub device: Option<PathBuf>,
}

impl Default for MoverConfig {
    fn default() -> Self {
        Self {
            name: MoverId::new("mover1").expect("a plain name"),
            control: ControlConfig::default(),
            tls: TlsConfig::default(),
            data: DataConfig::default(),
            http: HttpConfig::default(),
            limits: LimitsConfig::default(),
            volumes: Vec::new(),
            libraries: Vec::new(),
            drives: Vec::new(),
            log: LogSettings::default(),
            metrics: MetricsConfig::default(),
        }
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            certificate: PathBuf::from("/etc/penstock/mover.pem"),
            key: PathBuf::from("/etc/penstock/mover.pem"),
            site_ca: PathBuf::from("/etc/penstock/site-ca.pem"),
            clients: PathBuf::from("/etc/grid-security/certificates"),
            reload: TimeSpan::seconds(10),
        }
    }
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 2814)),
            status_every: TimeSpan::seconds(5),
            orphan_limit: TimeSpan::seconds(120),
        }
    }
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            listen: vec![IpAddr::from([127, 0, 0, 1])],
            advertise: Vec::new(),
            ports: [0, 0],
            congestion: String::new(),
            pace: ByteSize::new(0),
            block: ByteSize::mib(1),
            open_limit: TimeSpan::seconds(120),
            stall_limit: TimeSpan::seconds(600),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            threads: 16,
            sync_threads: 8,
            memory: ByteSize::mib(96),
            buffer: ByteSize::mib(1),
            pipeline: ByteSize::mib(16),
            transfers: 1024,
            channels: 4096,
        }
    }
}

impl Settings for MoverConfig {
    const TEMPLATE: &'static str = r#"# The mover's name in the site. Its certificate must be for this name.
name = "mover1"

[control]
# Where gateways connect; port 0 takes a free one.
listen = "127.0.0.1:2814"
# How often gateways are told how the mover is, when nothing changes.
status_every = "5s"
# How long the data endpoints of a gateway that went away are kept open.
orphan_limit = "2m"

[tls]
# The mover's certificate and key (PEM, may be one file), made by the site's own CA.
certificate = "/etc/penstock/mover.pem"
key = "/etc/penstock/mover.pem"
# The site's own CA: gateways and other movers.
site_ca = "/etc/penstock/site-ca.pem"
# CAs of clients' certificates, for data connections: a folder in the IGTF layout, or a PEM bundle.
clients = "/etc/grid-security/certificates"
# How often these files are looked at for changes.
reload = "10s"

[metrics]
# Where /metrics and /healthz are served, without encryption or authentication; left out, they are not.
# listen = "127.0.0.1:2823"

[log]
# error, warn, info, debug or trace, or a list as "info,mover=debug".
filter = "info"
# "text" or "json".
format = "text"

[data]
# The addresses of data connections: at most one IPv4 and one IPv6 address of this host.
listen = ["127.0.0.1"]
# The addresses told to clients, where they differ: behind NAT. In the order of "listen".
advertise = []
# First and last port for data connections, to be opened in a firewall; [0, 0] takes any free port.
ports = [0, 0]
# TCP congestion control of data connections, "cubic" for instance; "" leaves the system's choice.
congestion = ""
# The most bytes a second of one data connection, paced by the kernel so that short queues on the way do not overflow;
# "0 B" leaves it to congestion control.
pace = "0 B"
# Bytes of a block when sending in extended block mode. 256 KiB to 4 MiB make sense.
block = "1 MiB"
# The longest time to wait for a peer, and the longest time a transfer may stand still, whatever a gateway asks for.
open_limit = "2m"
stall_limit = "10m"

[http]
# Where HTTP clients read and write that a gateway sent here (307): with TLS by the certificate above, which clients
# must trust, and without. Left out, gateways send nobody here.
# listen = "192.0.2.1:2843"
# listen_clear = "192.0.2.1:2844"
# The name of this host in what clients are told; left out, the address above.
# host = "mover1.example.org"
# Connections at a time.
max_connections = 4096

[limits]
# Threads that move data between sockets and disks.
threads = 16
# Threads of each disk volume that sync files in parallel; small files become durable in groups.
sync_threads = 8
# Memory for data in flight; the mover waits rather than taking more. In pieces of "buffer"; every thread has one,
# and each transfer through the mover (tape, relay) takes "pipeline" of the rest.
memory = "96 MiB"
buffer = "1 MiB"
pipeline = "16 MiB"
# Transfers and data endpoints at a time; a gateway that asks for more is told that the mover is busy.
transfers = 1024
channels = 4096

# Disk volumes, one section each:
# [[volumes]]
# label = "mover1.d0"              # unique in the site
# folder = "/srv/penstock/d0"
# capacity = "10 TB"               # left out: what the file system has
# keep_free = "1 GiB"              # left to others on the same file system
# uuid = "…"                       # refuse any other volume there, even of the same label
# create = false                   # true: an empty folder becomes a new volume; false: it is a missing mount
# read_only = false

# Tape libraries, one section each:
# [[libraries]]
# name = "lib1"
# robot = true                     # this mover moves the robot; one mover of a site does
# kind = { type = "virtual", folder = "/srv/penstock/lib1", drives = 2, cartridges = ["PEN001L8"], capacity = "12 TB" }

# Tape drives, one section each:
# [[drives]]
# name = "drive0"
# library = "lib1"
# index = 0                        # which drive of the virtual library
"#;

    fn check(&self, problems: &mut Problems) {
        self.check_data(problems);
        self.http.check(problems);
        self.check_limits(problems);
        self.check_devices(problems);
    }
}

impl MoverConfig {
    fn check_data(&self, problems: &mut Problems) {
        let families = self.data.listen.iter().map(IpAddr::is_ipv6).collect::<BTreeSet<_>>();
        if self.data.listen.is_empty() || families.len() != self.data.listen.len() {
            problems.add("data.listen", "must be one IPv4 or one IPv6 address, or one of each", "correct the list");
        }
        if !self.data.advertise.is_empty()
            && !self.data.advertise.iter().map(IpAddr::is_ipv6).eq(self.data.listen.iter().map(IpAddr::is_ipv6))
        {
            problems.add(
                "data.advertise",
                "does not go with data.listen",
                "give one address for each, in the same order, or none",
            );
        }
        for (position, address) in self.data.listen.iter().enumerate() {
            if address.is_unspecified() && self.data.advertise.is_empty() {
                let key = format!("data.listen[{position}]");
                problems.add(
                    key,
                    "is every address of the host, which cannot be told to a client",
                    "set data.advertise",
                );
            }
        }
        if self.data.ports[0] > self.data.ports[1] || (self.data.ports[0] == 0) != (self.data.ports[1] == 0) {
            problems.add("data.ports", "is not a range", "give the first and the last port, or [0, 0]");
        }
        if !(ByteSize::kib(4)..=ByteSize::mib(64)).contains(&self.data.block) {
            problems.add("data.block", "is not between 4 KiB and 64 MiB", "1 MiB is good for nearly everything");
        }
    }

    fn check_limits(&self, problems: &mut Problems) {
        let limits = &self.limits;
        if !(1..=256).contains(&limits.threads) {
            problems.add("limits.threads", "is not between 1 and 256", "16 is good for most disks");
        }
        if !(1..=64).contains(&limits.sync_threads) {
            problems.add("limits.sync_threads", "is not between 1 and 64", "8 is good for most disks");
        }
        if !(ByteSize::kib(64)..=ByteSize::mib(16)).contains(&limits.buffer) {
            problems.add("limits.buffer", "is not between 64 KiB and 16 MiB", "1 MiB is good for nearly everything");
        }
        if limits.pipeline.bytes() < limits.buffer.bytes().saturating_mul(4) {
            problems.add("limits.pipeline", "is less than four buffers", "raise it or make limits.buffer smaller");
        }
        let least = limits.buffer.bytes().saturating_mul(limits.threads as u64).saturating_add(limits.pipeline.bytes());
        if limits.memory.bytes() < least {
            let what = format!("is less than a buffer for each thread and one pipeline: {}", ByteSize::new(least));
            problems.add("limits.memory", what, "raise it, or use fewer threads");
        }
    }

    fn check_devices(&self, problems: &mut Problems) {
        let mut labels = BTreeSet::new();
        for (position, volume) in self.volumes.iter().enumerate() {
            if !labels.insert(&volume.label) {
                problems.add(format!("volumes[{position}].label"), "is there twice", "labels are unique in a site");
            }
        }
        let mut names = BTreeSet::new();
        for (position, library) in self.libraries.iter().enumerate() {
            if !names.insert(&library.name) {
                problems.add(format!("libraries[{position}].name"), "is there twice", "names are unique in a site");
            }
            if let LibraryKind::Virtual { time_scale, .. } = library.kind
                && !(0.0..=1000.0).contains(&time_scale)
            {
                problems.add(
                    format!("libraries[{position}].kind.time_scale"),
                    "is not between 0 and 1000",
                    "0 takes no time",
                );
            }
            if matches!(library.kind, LibraryKind::ScsiGeneric { .. }) {
                problems.add(
                    format!("libraries[{position}].kind"),
                    "is a real library, which this version cannot drive yet",
                    "use type = \"virtual\"",
                );
            }
        }
        let mut drives = BTreeSet::new();
        for (position, drive) in self.drives.iter().enumerate() {
            if !drives.insert(&drive.name) {
                problems.add(format!("drives[{position}].name"), "is there twice", "names are unique in a site");
            }
            let library = self.libraries.iter().find(|library| library.name == drive.library);
            match library.map(|library| &library.kind) {
                None => problems.add(format!("drives[{position}].library"), "is none of libraries", "add that section"),
                Some(LibraryKind::Virtual { drives, .. }) if drive.index.is_none_or(|index| index >= *drives) => {
                    let what = format!("must be below {drives}, the drives of {}", drive.library);
                    problems.add(format!("drives[{position}].index"), what, "drives are counted from 0");
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_says_the_defaults() {
        daemon::config::check_template::<MoverConfig>();
    }

    #[test]
    fn the_examples_in_the_template_are_good() {
        let mut text = String::new();
        for line in MoverConfig::TEMPLATE.lines() {
            let example = line.strip_prefix("# ").filter(|rest| rest.starts_with("[[") || rest.contains(" = "));
            text.push_str(example.filter(|_| text.contains("channels = 4096")).unwrap_or(line));
            text.push('\n');
        }
        let config = daemon::config::parse::<MoverConfig>("examples", &text, []).expect("examples are right").settings;
        assert_eq!((config.volumes.len(), config.libraries.len(), config.drives.len()), (1, 1, 1));
    }

    #[test]
    fn contradictions_are_named_by_their_key() {
        let text = r#"
            data.listen = ["0.0.0.0"]
            limits.memory = "2 MiB"
            [[libraries]]
            name = "real"
            kind = { type = "scsi-generic", changer = "/dev/sg0" }
            [[drives]]
            name = "d0"
            library = "other"
        "#;
        let error = daemon::config::parse::<MoverConfig>("m.toml", text, []).expect_err("many mistakes").to_string();
        for key in ["data.listen[0]", "limits.memory", "libraries[0].kind", "drives[0].library"] {
            assert!(error.contains(key), "{key} in {error}");
        }
    }
}
