//! The command line of `penstock`, as data: help texts, completions and manual pages all come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Hierarchical storage: files on disk and tape behind one name space, moved straight between client and mover.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, max_term_width = 100, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `penstock` does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole site on this machine: gateway, movers, catalogue, virtual tape library, certificates.
    Serve(Serve),
    /// Run a gateway: doors, planning, HSM services; holds no file data.
    Gateway(Process),
    /// Run a mover: the disk volumes and tape drives of this host.
    Mover(Process),
    /// Ask a running site, and tell it what to do.
    Admin(Box<crate::admin::Admin>),
    /// Show it all: a site on loopback, real files through disk and tape and back, and what each part did.
    Demo(Demo),
    /// Links with delay, rate and loss on this machine, and real processes at their ends.
    Lab(Box<crate::lab::Lab>),
    /// Make a site's certificates: its CA, and those of gateways, movers, operators and users.
    Cert(crate::certificates::Cert),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// The folder; it is made if need be.
        folder: PathBuf,
    },
}

/// Arguments of `penstock serve`.
///
/// All but `--data` count on the first start only; afterwards the files in the folder say it.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Where everything is kept: catalogue, disk volumes, tape library, certificates, configuration. Made if need be.
    #[arg(long, value_name = "DIR", env = "PENSTOCK_DATA")]
    pub data: PathBuf,
    /// What a new site is like.
    #[command(flatten)]
    pub new: crate::setup::NewSite,
}

/// Arguments of a single process.
#[derive(Debug, Args)]
pub struct Process {
    /// The configuration.
    #[arg(long, value_name = "FILE", required_unless_present = "print_config")]
    pub config: Option<PathBuf>,
    /// Print a commented configuration with the defaults, and stop.
    #[arg(long)]
    pub print_config: bool,
    /// Check the configuration, say what is wrong with it, and stop.
    #[arg(long, requires = "config")]
    pub check: bool,
}

/// Arguments of `penstock demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Files and folders to move; by default this repository's tree, if run in it, and one large file.
    pub files: Vec<PathBuf>,
    /// Size of the large file that is made when no files are named, such as `64MiB`.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = crate::demo::size)]
    pub size: u64,
    /// Streams to use.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: u16,
    /// Keep the site's folder, and say where it is.
    #[arg(long)]
    pub keep: bool,
}
