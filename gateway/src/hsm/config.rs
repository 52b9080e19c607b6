//! The hierarchical storage section of the gateway's configuration.
//!
//! Owns the defaults and says which values make no sense together. How *files* are kept (classes of service, water
//! marks) is not here but in the storage classes, which the catalogue keeps for all gateways.

use std::{collections::BTreeMap, time::Duration};

use daemon::config::{ByteSize, Problems, TimeSpan};
use serde::{Deserialize, Serialize};
use wire::id::AccountName;

use super::policy::migrate::{Limits, Trigger};
use crate::mounts::Rules;

/// `[hsm]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HsmConfig {
    /// Whether this gateway may run the background services.
    pub services: bool,
    /// A migration begins when so much is due.
    pub batch_bytes: ByteSize,
    /// Or so many files.
    pub batch_files: u32,
    /// Or when the oldest has been due for so long.
    pub batch_wait: TimeSpan,
    /// A container on tape holds so much; a larger file has one of its own.
    pub container_bytes: ByteSize,
    /// And so many members.
    pub container_members: u32,
    /// Drives that one pool may use at a time for migration.
    pub pool_drives: u32,
    /// Drives kept for recalls, if there are more than that.
    pub recall_drives: u32,
    /// How long an idle cartridge stays in its drive.
    pub linger: TimeSpan,
    /// Whoever has waited longer goes first, whatever its priority.
    pub starvation: TimeSpan,
    /// What one recall brings at most before others are let in.
    pub recall_bytes: ByteSize,
    /// When a stage request fails if it does not say itself.
    pub stage_deadline: TimeSpan,
    /// How long a disk copy must not have been read before it is purged.
    pub purge_idle: TimeSpan,
    /// Disk space that no recall takes, so that uploads find room.
    pub disk_reserve_bytes: ByteSize,
    /// The most bytes a second of all scrubs together, where a scrub does not say itself.
    pub scrub_rate: ByteSize,
    /// How often each service looks by itself, in case nobody woke it.
    pub look_every: TimeSpan,
    /// How often a failed piece of work is tried before it is given up.
    pub attempts: u32,
    /// How long a lease of a service lasts without renewal.
    pub lease: TimeSpan,
    /// Weights of accounts in the recall queue; 1 for whoever is not named.
    pub shares: BTreeMap<AccountName, u32>,
}

impl Default for HsmConfig {
    fn default() -> Self {
        Self {
            services: true,
            batch_bytes: ByteSize::gib(64),
            batch_files: 10_000,
            batch_wait: TimeSpan::seconds(15 * 60),
            container_bytes: ByteSize::gib(16),
            container_members: 10_000,
            pool_drives: 4,
            recall_drives: 1,
            linger: TimeSpan::seconds(20),
            starvation: TimeSpan::seconds(4 * 3600),
            recall_bytes: ByteSize::gib(256),
            stage_deadline: TimeSpan::seconds(2 * 86_400),
            purge_idle: TimeSpan::seconds(60),
            disk_reserve_bytes: ByteSize::gib(1),
            scrub_rate: ByteSize::mib(100),
            look_every: TimeSpan::seconds(5),
            attempts: 10,
            lease: TimeSpan::seconds(15),
            shares: BTreeMap::new(),
        }
    }
}

impl HsmConfig {
    /// The section with every key, its default and a comment.
    pub const TEMPLATE: &'static str = r#"# Hierarchical storage: what sinks to tape, what leaves the disk, what comes back.
[hsm]
# Whether this gateway may run the background services. One gateway at a time runs each.
services = true
# A migration begins when so many bytes or files are due, or when the oldest has been due for batch_wait.
batch_bytes = "64 GiB"
batch_files = 10000
batch_wait = "15m"
# What one container on tape holds; a larger file has a container of its own.
container_bytes = "16 GiB"
container_members = 10000
# Drives that one pool may use at a time for migration, and drives kept for recalls if there are more than that.
pool_drives = 4
recall_drives = 1
# How long an idle cartridge stays in its drive in case more work for it comes.
linger = "20s"
# Whoever has waited longer than this goes first, whatever its priority.
starvation = "4h"
# What one recall from a cartridge brings before others are let in.
recall_bytes = "256 GiB"
# When a stage request fails if it does not say so itself.
stage_deadline = "2d"
# How long a disk copy must not have been read before it is purged.
purge_idle = "1m"
# Disk space that no recall takes, so that uploads find room; on a small volume a tenth of it.
disk_reserve_bytes = "1 GiB"
# The most bytes a second of a scrub that does not say so itself.
scrub_rate = "100 MiB"
# How often each service looks by itself, in case nobody woke it.
look_every = "5s"
# How often a piece of work is tried before it is given up.
attempts = 10
# How long a service's lease lasts without renewal.
lease = "15s"
# Weights of accounts in the recall queue; 1 for whoever is not named.
[hsm.shares]
# physics = 3
"#;

    /// Reports what makes no sense; `section` is `hsm`.
    pub fn check(&self, section: &str, problems: &mut Problems) {
        let mut positive = |key: &str, value: u64| {
            if value == 0 {
                problems.add(format!("{section}.{key}"), "is nothing", "leave it out for the default");
            }
        };
        positive("batch_bytes", self.batch_bytes.bytes());
        positive("batch_files", self.batch_files.into());
        positive("container_bytes", self.container_bytes.bytes());
        positive("container_members", self.container_members.into());
        positive("pool_drives", self.pool_drives.into());
        positive("recall_bytes", self.recall_bytes.bytes());
        positive("attempts", self.attempts.into());
        positive("scrub_rate", self.scrub_rate.bytes());
        for (key, span) in [("look_every", self.look_every), ("stage_deadline", self.stage_deadline)] {
            positive(key, u64::try_from(span.duration().as_millis()).unwrap_or(u64::MAX));
        }
        if self.lease.duration() < Duration::from_millis(300) {
            problems.add(format!("{section}.lease"), "is shorter than 300 ms", "give the catalogue time to answer");
        }
        if self.container_members > 100_000 {
            problems.add(
                format!("{section}.container_members"),
                "is more than 100000",
                "a mover takes no more at once",
            );
        }
    }

    pub(super) const fn trigger(&self) -> Trigger {
        Trigger {
            batch_bytes: self.batch_bytes.bytes(),
            batch_files: self.batch_files as u64,
            longest_wait: self.batch_wait.duration(),
        }
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { container_bytes: self.container_bytes.bytes(), container_members: self.container_members as usize }
    }

    pub(super) const fn mount_rules(&self) -> Rules {
        Rules {
            reserved_for_recall: self.recall_drives as usize,
            linger: self.linger.duration(),
            starvation: self.starvation.duration(),
            retry: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Whole {
        hsm: HsmConfig,
    }

    impl daemon::config::Settings for Whole {
        const TEMPLATE: &'static str = HsmConfig::TEMPLATE;

        fn check(&self, problems: &mut Problems) {
            self.hsm.check("hsm", problems);
        }
    }

    #[test]
    fn the_template_is_the_default() {
        daemon::config::check_template::<Whole>();
    }

    #[test]
    fn a_value_of_nothing_is_refused_with_its_key() {
        let text = "[hsm]\nattempts = 0\n";
        let error = daemon::config::parse::<Whole>("x.toml", text, []).map(|_| ());
        assert!(error.is_err_and(|error| error.to_string().contains("hsm.attempts")));
    }
}
