//! `penstock lab paper`: published measurements, repeated on emulated links with real processes of Penstock.
//!
//! | paper | asks |
//! | --- | --- |
//! | [`hpss`] | why was HPSS over a WAN half as fast as over a LAN, and what does the double hop cost? |
//! | [`gridtorrent`] | what do parallel streams and several sources give? |
//! | [`osg`] | what does encryption cost, by clients? |
//! | [`gfarm`] | what do many file servers give over one? |
//!
//! Every effect comes out of the topology and of a protocol that is really spoken: a relay is a mover that receives and
//! sends, a per-block handshake asks for each block. Nothing waits on purpose.
//!
//! [`mod@bench`] has the measurements that they share; a [`Table`] is what comes of one, [`plot`] draws it.

pub mod bench;
pub mod gfarm;
mod globus;
pub mod gridtorrent;
pub mod hpss;
pub mod osg;
pub mod plot;
mod small;
pub mod table;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Args, ValueEnum};

use self::{bench::Effort, table::Table};

/// Arguments of `penstock lab paper`.
#[derive(Clone, Debug, Args)]
pub struct Paper {
    /// Which; all of them if left out.
    #[arg(value_enum)]
    pub names: Vec<Name>,
    /// Small files and few cases: seconds instead of minutes.
    #[arg(long)]
    pub quick: bool,
    /// Size of the files that are moved; 24 MB with --quick, else 268 MB. Where the figures are those that Penstock is to
    /// reach, it is four times that: 1 GiB.
    #[arg(long, value_name = "SIZE", value_parser = crate::demo::size)]
    pub size: Option<u64>,
    /// Where tables and plots are written; nowhere if left out.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where volumes and files lie meanwhile; in memory if the machine has /dev/shm.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// TCP's congestion control on every host of the lab, for all programs alike; the kernel's usual one if left out.
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Measure everything so often, and take the median.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub repeat: u16,
}

/// A paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Name {
    /// HPSS over Super-SINET, 2003.
    #[value(name = "hpss-2003")]
    Hpss2003,
    /// GridTorrent: parallel streams and several sources.
    Gridtorrent,
    /// Encryption and clients, as OSG asked in 2009; clear and TLS.
    #[value(name = "osg-2009")]
    Osg2009,
    /// Gfarm's many file servers, 2006.
    #[value(name = "gfarm-2006")]
    Gfarm2006,
}

impl Name {
    const ALL: [Self; 4] = [Self::Hpss2003, Self::Gridtorrent, Self::Osg2009, Self::Gfarm2006];

    /// About how long it takes on an idle machine of two cores.
    #[must_use]
    pub const fn takes(self, quick: bool) -> Duration {
        let (whole, short) = match self {
            Self::Hpss2003 => (18 * 60, 30),
            Self::Gridtorrent => (10 * 60, 20),
            Self::Osg2009 => (2 * 60, 5),
            Self::Gfarm2006 => (4 * 60, 8),
        };
        Duration::from_secs(if quick { short } else { whole })
    }

    /// Its name on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hpss2003 => "hpss-2003",
            Self::Gridtorrent => "gridtorrent",
            Self::Osg2009 => "osg-2009",
            Self::Gfarm2006 => "gfarm-2006",
        }
    }
}

/// Measures, prints the tables, and writes them where asked.
///
/// # Errors
///
/// If this machine cannot emulate links, a site does not start, or a transfer fails.
pub fn run(paper: &Paper) -> anyhow::Result<()> {
    let names = if paper.names.is_empty() { Name::ALL.to_vec() } else { paper.names.clone() };
    let effort = Effort::new(paper)?;
    let congestion = effort.congestion()?;
    let takes: Duration = names.iter().map(|name| name.takes(paper.quick)).sum::<Duration>() * paper.repeat.into();
    let takes = daemon::config::TimeSpan::from(takes);
    effort.says(&format!("this takes about {takes} on an idle machine, for the usual sizes"));
    for name in names {
        let mut table = match name {
            Name::Hpss2003 => hpss::run(&effort)?,
            Name::Gridtorrent => gridtorrent::run(&effort)?,
            Name::Osg2009 => osg::run(&effort)?,
            Name::Gfarm2006 => gfarm::run(&effort)?,
        };
        effort.says(&format!("{} is done", name.word()));
        table.command = command(paper, name);
        table.congestion.clone_from(&congestion);
        crate::say(&table.markdown());
        if let Some(folder) = &paper.out {
            write(folder, name.word(), &table)?;
        }
    }
    Ok(())
}

/// The command that makes this table again.
fn command(paper: &Paper, name: Name) -> String {
    let mut command = format!("penstock lab paper {}", name.word());
    if paper.quick {
        command += " --quick";
    }
    if let Some(congestion) = &paper.congestion {
        command += &format!(" --congestion {congestion}");
    }
    if let Some(size) = paper.size {
        command += &format!(" --size {size}");
    }
    if paper.repeat > 1 {
        command += &format!(" --repeat {}", paper.repeat);
    }
    command
}

fn write(folder: &std::path::Path, name: &str, table: &Table) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let mut markdown = table.markdown();
    for experiment in table.experiments() {
        let Some(drawing) = plot::draw(&experiment) else { continue };
        let file = format!("{name}-{}.svg", experiment.slug);
        fs::write(folder.join(&file), drawing).with_context(|| format!("write {file}"))?;
        markdown += &format!("\n![{}]({file})\n", experiment.title);
    }
    fs::write(folder.join(format!("{name}.md")), markdown).context("write the table")?;
    fs::write(folder.join(format!("{name}.json")), serde_json::to_vec_pretty(table)?).context("write the figures")
}
