//! `make bench`: figures side by side, taken in one run on one machine.
//!
//! A benchmark is data ([`Benchmark`]): a name, what it asks, its sides, and a function that sets it up. The
//! [`runner`] goes round the sides (baseline, ours, baseline, ours, …) until each has its samples, so that whatever
//! else the machine does meets all of them; the [`report`] shows medians and ratios.
//!
//! | module | measures |
//! | --- | --- |
//! | [`streams`] | data from a mover's page cache to a client and back, against `iperf3`, `dd`, nginx; what a hop costs |
//! | [`tls`] | data over TLS, against rustls alone |
//! | [`small`] | many small files |
//! | [`objects`] | objects through the S3 door and from movers, against nginx, `dd` and another S3 server |
//! | [`catalogue`] | lookups, listings and publishing with few and with very many files |
//! | [`memory`] | memory of a mover at work and of a gateway with idle sessions |
//! | [`start`] | from `penstock serve` to ready |
//! | [`tape`] | to the virtual library and back |
//! | [`wan`] | published measurements over links with delay, which the lab repeats |
//!
//! Never asserts a time: a figure below its target is shown as such, and the exit status is that of the programs
//! alone. Only loopback and the lab's own links are used, in a network of its own where that is possible ([`machine`]). Every process and
//! folder belongs to a value whose drop ends or removes it.

pub mod catalogue;
pub mod machine;
pub mod memory;
pub mod moves;
pub mod objects;
pub mod plain;
pub mod process;
pub mod report;
pub mod runner;
pub mod served;
pub mod sink;
pub mod small;
pub mod start;
pub mod statistics;
pub mod streams;
pub mod tape;
pub mod tls;
pub mod wan;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use serde::Serialize;

/// Every benchmark, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Benchmark> {
    [
        streams::benchmarks(),
        tls::benchmarks(),
        small::benchmarks(),
        objects::benchmarks(),
        start::benchmarks(),
        tape::benchmarks(),
        memory::benchmarks(),
        catalogue::benchmarks(),
    ]
    .concat()
}

/// One question, and how it is answered.
#[derive(Clone)]
pub struct Benchmark {
    /// By which it is asked for on the command line.
    pub name: &'static str,
    /// What it compares, in one sentence.
    pub asks: &'static str,
    /// What is measured, in the order of a round.
    pub sides: &'static [Side],
    /// How often.
    pub rounds: Rounds,
    /// It is given up after so long: set-up, rounds and all.
    pub limit: Duration,
    /// Makes everything ready.
    pub set_up: for<'a> fn(&'a Setting) -> Made<'a>,
}

/// A benchmark that is being made ready.
pub type Made<'a> = LocalBoxFuture<'a, anyhow::Result<Box<dyn Contest>>>;

/// How often the sides of a benchmark are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// As often as the run says, after one round that does not count.
    Usual,
    /// Once: the figure is a peak over a long time already.
    Once,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// What it is, for the table.
    pub label: &'static str,
    /// What its figures count.
    pub unit: Unit,
    /// The side it is compared with, by label.
    pub against: Option<&'static str>,
    /// What is hoped for.
    pub target: Option<Target>,
}

impl Side {
    /// A side that others are compared with, or that is shown for orientation.
    #[must_use]
    pub const fn shown(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, against: None, target: None }
    }

    /// A side that is compared with another, without a target.
    #[must_use]
    pub const fn compared(label: &'static str, unit: Unit, against: &'static str) -> Self {
        Self { label, unit, against: Some(against), target: None }
    }

    /// The same with a target.
    #[must_use]
    pub const fn with(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }
}

/// What figures count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// 10^9 bytes a second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// 10^6 bytes a second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Files a second.
    #[serde(rename = "files/s")]
    FilesPerSecond,
    /// Objects a second.
    #[serde(rename = "objects/s")]
    ObjectsPerSecond,
    /// Microseconds.
    #[serde(rename = "µs")]
    Microseconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// 2^20 bytes.
    #[serde(rename = "MiB")]
    Mebibytes,
}

impl Unit {
    /// Its sign.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::GigabytesPerSecond => "GB/s",
            Self::MegabytesPerSecond => "MB/s",
            Self::FilesPerSecond => "files/s",
            Self::ObjectsPerSecond => "objects/s",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Mebibytes => "MiB",
        }
    }
}

/// What is hoped for. It is shown beside what came of it, and never decides about success.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Figure over figure of the other side.
    RatioAtLeast(f64),
    /// Figure over figure of the other side.
    RatioAtMost(f64),
    /// The figure itself.
    AtLeast(f64),
    /// The figure itself.
    AtMost(f64),
}

impl Target {
    /// Whether it was reached; `None` if there is no ratio.
    #[must_use]
    pub fn is_met(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::RatioAtLeast(least) => ratio.map(|ratio| ratio >= least),
            Self::RatioAtMost(most) => ratio.map(|ratio| ratio <= most),
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
        }
    }

    /// In signs, for the table.
    #[must_use]
    pub fn text(self, unit: Unit) -> String {
        match self {
            Self::RatioAtLeast(least) => format!("≥ {least} ×"),
            Self::RatioAtMost(most) => format!("≤ {most} ×"),
            Self::AtLeast(least) => format!("≥ {least} {}", unit.sign()),
            Self::AtMost(most) => format!("≤ {most} {}", unit.sign()),
        }
    }
}

/// A benchmark that is ready to be measured, by the thread that set it up. Dropping it ends its processes and removes its files.
#[async_trait(?Send)]
pub trait Contest {
    /// Takes one sample of the side with this index, in its unit.
    ///
    /// # Errors
    ///
    /// If it cannot be measured; a slow result is none.
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64>;

    /// What else was seen: sizes, suites, counters.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a benchmark may use.
#[derive(Debug)]
pub struct Setting {
    /// Smaller sizes.
    pub quick: bool,
    /// Its folder, empty and removed afterwards.
    pub folder: PathBuf,
    /// The program `penstock`, of the same build as this one.
    pub penstock: PathBuf,
}

impl Setting {
    /// One of two sizes.
    #[must_use]
    pub const fn size(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_has_a_name_of_its_own_and_compares_with_sides_that_come_before() {
        let mut names = std::collections::BTreeSet::new();
        for benchmark in all() {
            assert!(names.insert(benchmark.name), "{} is there twice", benchmark.name);
            for (index, side) in benchmark.sides.iter().enumerate() {
                let earlier = &benchmark.sides[..index];
                let known = side.against.is_none_or(|against| earlier.iter().any(|other| other.label == against));
                assert!(known, "{}: {} is compared with an unknown side", benchmark.name, side.label);
            }
        }
    }

    #[test]
    fn a_target_of_a_ratio_says_nothing_without_one() {
        assert_eq!(Target::RatioAtLeast(0.9).is_met(5.0, None), None);
        assert_eq!(Target::RatioAtLeast(0.9).is_met(5.0, Some(0.91)), Some(true));
        assert_eq!(Target::RatioAtMost(1.5).is_met(5.0, Some(1.6)), Some(false));
        assert_eq!(Target::AtMost(200.0).is_met(199.0, None), Some(true));
        assert_eq!(Target::AtLeast(2000.0).text(Unit::FilesPerSecond), "≥ 2000 files/s");
    }
}
