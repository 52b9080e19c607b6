//! The gateway's configuration: one commented TOML file.
//!
//! Owns the sections that belong to no door, and the order of all. A door's or service's section is a struct in that
//! part's own folder. Talks to [`daemon::config`], which finds the line of every mistake. Never opens what it names:
//! whoever uses a file says what is wrong with it.

mod site;
mod storage;

use std::{collections::BTreeSet, path::PathBuf};

use daemon::{
    config::{Problems, Settings},
    logging::LogSettings,
};
use serde::{Deserialize, Serialize};
use wire::id::{CosName, GatewayId};

pub use self::{
    site::{CatalogueConfig, IdentityConfig, LimitsConfig, MoverConfig, NamesConfig, QuotaConfig, TlsConfig},
    storage::{ClassOfServiceConfig, HierarchyConfig, PlacedClass, StorageClassConfig, StorageConfig, policies},
};
use crate::{admin::AdminConfig, ftp::FtpConfig, hsm::HsmConfig, s3::S3Config, webdav::WebdavConfig};

/// Everything a gateway is told at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The gateway's name in its site, and in its certificate.
    pub name: GatewayId,
    /// Where it keeps what it needs between starts; holds the catalogue if that is SQLite without a path of its own.
    pub data: PathBuf,
    /// `[catalogue]`
    pub catalogue: CatalogueConfig,
    /// `[tls]`
    pub tls: TlsConfig,
    /// `[identity]`
    pub identity: IdentityConfig,
    /// `[names]`
    pub names: NamesConfig,
    /// `[limits]`
    pub limits: LimitsConfig,
    /// `[[movers]]`
    pub movers: Vec<MoverConfig>,
    /// The class of service of files whose writers do not say.
    pub default_cos: CosName,
    /// `[[storage_class]]`
    #[serde(rename = "storage_class")]
    pub storage_classes: Vec<StorageClassConfig>,
    /// `[[hierarchy]]`
    #[serde(rename = "hierarchy")]
    pub hierarchies: Vec<HierarchyConfig>,
    /// `[[cos]]`
    #[serde(rename = "cos")]
    pub classes: Vec<ClassOfServiceConfig>,
    /// `[[quota]]`
    #[serde(rename = "quota")]
    pub quotas: Vec<QuotaConfig>,
    /// `[ftp]`
    pub ftp: FtpConfig,
    /// `[s3]`
    pub s3: S3Config,
    /// `[webdav]`
    pub webdav: WebdavConfig,
    /// `[admin]`
    pub admin: AdminConfig,
    /// `[hsm]`
    pub hsm: HsmConfig,
    /// `[log]`: read by whoever starts the process.
    pub log: LogSettings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: GatewayId::new("gateway1").expect("a good name"),
            data: PathBuf::from("/var/lib/penstock/gateway"),
            catalogue: CatalogueConfig::default(),
            tls: TlsConfig::default(),
            identity: IdentityConfig::default(),
            names: NamesConfig::default(),
            limits: LimitsConfig::default(),
            movers: Vec::new(),
            default_cos: CosName::new("standard").expect("a good name"),
            storage_classes: storage::default_storage_classes(),
            hierarchies: storage::default_hierarchies(),
            classes: storage::default_classes(),
            quotas: Vec::new(),
            ftp: FtpConfig::default(),
            s3: S3Config::default(),
            webdav: WebdavConfig::default(),
            admin: AdminConfig::default(),
            hsm: HsmConfig::default(),
            log: LogSettings::default(),
        }
    }
}

const TOP: &str = r#"# A Penstock gateway. Every key is here with its default; what you leave out keeps it.
# `PENSTOCK_SECTION__KEY=value` in the environment overrides a key, `PENSTOCK__KEY=value` one of these at the top.

# The gateway's name in its site: the CN of its certificate. Several gateways over one catalogue have different names.
name = "gateway1"
# Where it keeps what it needs between starts.
data = "/var/lib/penstock/gateway"
# The class of service of files whose writers do not say ([[cos]] below).
default_cos = "standard"

"#;

/// The sections in the order in which they are printed.
const PARTS: &[&str] = &[
    TOP,
    site::TEMPLATE,
    FtpConfig::TEMPLATE,
    "\n",
    S3Config::TEMPLATE,
    "\n",
    WebdavConfig::TEMPLATE,
    "\n",
    AdminConfig::TEMPLATE,
    "\n",
    LogSettings::TEMPLATE,
    "\n",
    HsmConfig::TEMPLATE,
    "\n",
    storage::TEMPLATE,
    site::LISTS,
];
const TEXT: [u8; length(PARTS)] = joined(PARTS);

impl Settings for Config {
    const TEMPLATE: &'static str = match std::str::from_utf8(&TEXT) {
        Ok(text) => text,
        Err(_) => panic!("joined texts are a text"),
    };

    fn check(&self, problems: &mut Problems) {
        self.names.check(problems);
        self.limits.check(problems);
        self.ftp.check("ftp", problems);
        let classes: Vec<_> = self.classes.iter().map(|class| &class.name).collect();
        self.s3.check("s3", &classes, problems);
        self.webdav.check("webdav", problems);
        self.admin.check("admin", problems);
        self.hsm.check("hsm", problems);
        self.check_storage(problems);
        self.catalogue.check(problems);
        let mut names = BTreeSet::new();
        for (index, mover) in self.movers.iter().enumerate() {
            let key = format!("movers[{index}]");
            if !names.insert(&mover.name) {
                problems.add(format!("{key}.name"), "is the name of an earlier mover", "give each mover its own name");
            }
            mover.check(&key, problems);
        }
        for (index, quota) in self.quotas.iter().enumerate() {
            quota.check(&format!("quota[{index}]"), problems);
        }
    }
}

const fn length(parts: &[&str]) -> usize {
    let (mut sum, mut index) = (0, 0);
    while index < parts.len() {
        sum += parts[index].len();
        index += 1;
    }
    sum
}

const fn joined<const N: usize>(parts: &[&str]) -> [u8; N] {
    let (mut text, mut at, mut index) = ([0; N], 0, 0);
    while index < parts.len() {
        let part = parts[index].as_bytes();
        let mut byte = 0;
        while byte < part.len() {
            text[at] = part[byte];
            at += 1;
            byte += 1;
        }
        index += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_the_default() {
        daemon::config::check_template::<Config>();
    }

    fn mistake(text: &str) -> String {
        daemon::config::parse::<Config>("gateway.toml", text, []).expect_err("a mistake").to_string()
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_the_next_step() {
        assert_eq!(
            mistake("default_cos = \"gold\"\n"),
            "gateway.toml:1: default_cos is \"gold\", which no [[cos]] has; name one of: disk, single, standard"
        );
        let twice = "[[movers]]\nname = \"m1\"\naddress = \"h:1\"\n[[movers]]\nname = \"m1\"\naddress = \"h:2\"\n";
        assert_eq!(
            mistake(twice),
            "gateway.toml:5: movers[1].name is the name of an earlier mover; give each mover its own name"
        );
        assert!(
            mistake("[[movers]]\nname = \"m1\"\naddress = \"host\"\n").starts_with("gateway.toml:3: movers[0].address")
        );
        assert!(mistake("[catalogue]\nurl = \"mysql://x\"\n").starts_with("gateway.toml:2: catalogue.url"));
        assert!(mistake("[names]\nexport = \"data\"\n").starts_with("gateway.toml:2: names.export"));
        assert!(mistake("moverz = 1\n").contains("unknown field"));
    }
}
