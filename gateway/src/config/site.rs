//! The sections about the site itself: catalogue, certificates, names, limits, movers, quotas.

use std::path::PathBuf;

use daemon::config::{ByteSize, Problems, TimeSpan};
use serde::{Deserialize, Serialize};
use wire::id::{AccountName, GroupName, MoverId};

/// `[catalogue]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CatalogueConfig {
    /// `sqlite:PATH` or `postgres://USER@HOST/DATABASE`.
    pub url: String,
    /// How many connections read at the same time.
    pub readers: u32,
}

impl Default for CatalogueConfig {
    fn default() -> Self {
        Self { url: "sqlite:/var/lib/penstock/gateway/catalogue.db".to_owned(), readers: 4 }
    }
}

impl CatalogueConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        if !["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| self.url.starts_with(scheme)) {
            let step = "write sqlite:/PATH/catalogue.db or postgres://USER@HOST/DATABASE";
            problems.add("catalogue.url", "is neither SQLite nor PostgreSQL", step);
        }
        if !(1..=64).contains(&self.readers) {
            problems.add("catalogue.readers", "is not between 1 and 64", "4 is enough for most sites");
        }
    }
}

/// `[tls]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// The certificate by which movers and administrators know this gateway, of the site's own authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The site's own authority, alone.
    pub site_ca: PathBuf,
    /// The certificate that clients of the doors see; the site's if absent.
    pub door_certificate: Option<PathBuf>,
    /// Its key.
    pub door_key: Option<PathBuf>,
    /// How often changed files are looked for.
    pub reload: TimeSpan,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            certificate: PathBuf::from("/etc/penstock/gateway.pem"),
            key: PathBuf::from("/etc/penstock/gateway.key"),
            site_ca: PathBuf::from("/etc/penstock/site-ca.pem"),
            door_certificate: None,
            door_key: None,
            reload: TimeSpan::seconds(10),
        }
    }
}

/// `[identity]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityConfig {
    /// Whose certificates are believed of users: a folder in the IGTF layout, or a PEM bundle.
    pub trust: PathBuf,
    /// A grid-mapfile, looked at after the catalogue's own mappings.
    pub gridmap: Option<PathBuf>,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self { trust: PathBuf::from("/etc/grid-security/certificates"), gridmap: None }
    }
}

/// `[names]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NamesConfig {
    /// The directory below which doors may go.
    pub export: String,
    /// Below which directory an account's home is made at its first login; `None` makes none.
    pub homes: Option<String>,
    /// Permission bits that new files and directories do not get.
    pub umask: u32,
}

impl Default for NamesConfig {
    fn default() -> Self {
        Self { export: "/".to_owned(), homes: Some("/home".to_owned()), umask: 0o022 }
    }
}

impl NamesConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        for (key, path) in [("export", Some(&self.export)), ("homes", self.homes.as_ref())] {
            if path.is_some_and(|path| !path.starts_with('/')) {
                problems.add(format!("names.{key}"), "does not begin with /", "write a whole path");
            }
        }
        if self.umask > 0o777 {
            problems.add("names.umask", "has more than nine bits", "write it as 0o022");
        }
    }
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Transfers that move at a time, all doors together.
    pub transfers: u32,
    /// How long a mover may be away before the transfers on it fail.
    pub mover_grace: TimeSpan,
    /// How long files that nobody confirmed are kept in case another gateway still publishes them.
    pub orphan_grace: TimeSpan,
    /// How long a data connection may take to come about.
    pub data_open: TimeSpan,
    /// How long a data connection may move nothing.
    pub data_stall: TimeSpan,
    /// How long a cut upload can be resumed.
    pub partial_uploads: TimeSpan,
    /// How long a process that is asked to end lets what moves go on.
    pub shutdown: TimeSpan,
    /// How much of a volume is never filled.
    pub volume_reserve: ByteSize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            transfers: 2000,
            mover_grace: TimeSpan::seconds(30),
            orphan_grace: TimeSpan::seconds(600),
            data_open: TimeSpan::seconds(30),
            data_stall: TimeSpan::seconds(300),
            partial_uploads: TimeSpan::seconds(3 * 86_400),
            shutdown: TimeSpan::seconds(60),
            volume_reserve: ByteSize::mib(64),
        }
    }
}

impl LimitsConfig {
    pub(super) fn check(&self, problems: &mut Problems) {
        if self.transfers == 0 {
            problems.add("limits.transfers", "is 0: nothing could move", "write how many may move at a time");
        }
        for (key, span) in [("data_open", self.data_open), ("data_stall", self.data_stall)] {
            if !(1..=86_400).contains(&span.duration().as_secs()) {
                problems.add(format!("limits.{key}"), "is not between 1s and 1d", "30s and 5m are good values");
            }
        }
    }
}

/// `[[movers]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoverConfig {
    /// Its name, which its certificate has too.
    pub name: MoverId,
    /// Where its control port listens: `HOST:PORT`.
    pub address: String,
}

impl MoverConfig {
    pub(super) fn check(&self, key: &str, problems: &mut Problems) {
        let good =
            self.address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !good {
            problems.add(format!("{key}.address"), "is not HOST:PORT", "write for example \"mover1.example.org:2812\"");
        }
    }
}

/// `[[quota]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// Whose: an account's,
    pub account: Option<AccountName>,
    /// or a group's.
    pub group: Option<GroupName>,
    /// How many bytes its files may have.
    pub bytes: Option<ByteSize>,
    /// How many files it may have.
    pub files: Option<u64>,
}

impl QuotaConfig {
    pub(super) fn check(&self, key: &str, problems: &mut Problems) {
        if self.account.is_some() == self.group.is_some() {
            problems.add(key, "names not exactly one of account and group", "write one of them");
        }
        if self.bytes.is_none() && self.files.is_none() {
            problems.add(key, "limits nothing", "write bytes, files or both");
        }
    }
}

pub(super) const TEMPLATE: &str = r#"[catalogue]
# Where names and places are kept: "sqlite:PATH", or "postgres://USER@HOST/DATABASE", over which several gateways work.
url = "sqlite:/var/lib/penstock/gateway/catalogue.db"
# How many connections read at the same time.
readers = 4

[tls]
# What movers and administrators know this gateway by: certificate and key of the site's own authority.
certificate = "/etc/penstock/gateway.pem"
key = "/etc/penstock/gateway.key"
# The site's own authority, and nothing else: whoever it certifies is a part of the site.
site_ca = "/etc/penstock/site-ca.pem"
# What clients of the doors see, if it is another: a host certificate.
# door_certificate = "/etc/grid-security/hostcert.pem"
# door_key = "/etc/grid-security/hostkey.pem"
# How often changed files are looked for.
reload = "10s"

[identity]
# Whose certificates are believed of users: a folder in the IGTF layout, or a PEM bundle.
trust = "/etc/grid-security/certificates"
# Certificate subjects and accounts; looked at after the catalogue's own (`penstock admin map`).
# gridmap = "/etc/grid-security/grid-mapfile"

[names]
# The directory below which doors may go.
export = "/"
# Where an account's home is made at its first login, if it has none of its own. "homes" left out of a file keeps this.
homes = "/home"
# Permission bits that new files and directories do not get.
umask = 0o022

[limits]
# Transfers that move at a time, all doors together.
transfers = 2000
# How long a mover may be away before the transfers on it fail.
mover_grace = "30s"
# How long files that nobody confirmed are kept, in case another gateway is about to publish them.
orphan_grace = "10m"
# How long a data connection may take to come about, and may move nothing.
data_open = "30s"
data_stall = "5m"
# How long a cut upload can be resumed.
partial_uploads = "3d"
# How long what moves goes on after SIGTERM.
shutdown = "1m"
# How much of a disk volume is never filled.
volume_reserve = "64 MiB"

"#;

pub(super) const LISTS: &str = r#"
# What accounts and groups may have; `penstock admin user` changes it later, and this file sets it again at each start.
# [[quota]]
# account = "alice"
# bytes = "10 TB"
# files = 1000000

# The movers: name (as in its certificate) and control address of each.
# [[movers]]
# name = "mover1"
# address = "mover1.example.org:2812"
"#;
