//! `penstock lab`: links with delay, rate and loss between real processes on this machine.
//!
//! | what | where |
//! | --- | --- |
//! | which hosts and links | [`shape`] |
//! | labs that outlive the command that made them | [`keeper`], [`registry`] |
//! | a Penstock site on the hosts of a lab, for tests too | [`site`] |
//! | what published measurements found, and what is found here | [`paper`] |
//!
//! Owns nothing itself. Runs before any other thread of the process, because only then it may enter a user namespace.
//! Never leaves anything: hosts are anonymous network namespaces, and processes on them die with whoever started them.

pub mod keeper;
pub mod paper;
pub mod registry;
pub mod scratch;
pub mod shape;
pub mod site;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use self::{registry::Registry, shape::Shape};

/// Arguments of `penstock lab`.
#[derive(Debug, Args)]
pub struct Lab {
    /// What to do.
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Make hosts and links, and keep them until `lab down`.
    Up {
        /// The lab's name: lower-case letters, digits and `-`.
        #[arg(value_parser = registry::name)]
        name: String,
        #[command(flatten)]
        shape: Shape,
    },
    /// Run a command on a host of a lab.
    Run {
        /// The lab.
        #[arg(value_parser = registry::name)]
        name: String,
        /// The host: `client`, `gateway`, `mover1`, …
        host: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// A shell on a host of a lab.
    Shell {
        /// The lab.
        #[arg(value_parser = registry::name)]
        name: String,
        /// The host.
        #[arg(default_value = "client")]
        host: String,
    },
    /// End a lab, with everything in it.
    Down {
        /// The lab; all of them if left out.
        #[arg(value_parser = registry::name)]
        name: Option<String>,
    },
    /// Show the labs that run.
    List,
    /// Repeat the measurements of a paper, and write a table and plots.
    Paper(paper::Paper),
    /// What `up` leaves running.
    #[command(hide = true)]
    Keep {
        #[arg(value_parser = registry::name)]
        name: String,
        #[command(flatten)]
        shape: Shape,
    },
}

/// Does what was asked. Call it while the process has one thread.
#[must_use]
pub fn main(lab: Lab) -> ExitCode {
    match run(lab) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr().lock(), "penstock: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(lab: Lab) -> anyhow::Result<u8> {
    let registry = Registry::usual();
    match lab.command {
        LabCommand::Up { name, shape } => keeper::up(&registry, &name, &shape).map(|()| 0),
        LabCommand::Keep { name, shape } => {
            become_able()?;
            keeper::keep(&registry, &name, &shape).map(|()| 0)
        }
        LabCommand::Run { name, host, command } => keeper::run(&registry, &name, &host, &command),
        LabCommand::Shell { name, host } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            keeper::run(&registry, &name, &host, &[shell])
        }
        LabCommand::Down { name: Some(name) } => {
            scratch::sweep();
            registry.end(&name).map(|()| 0)
        }
        LabCommand::Down { name: None } => {
            scratch::sweep();
            for running in registry.all()? {
                registry.end(&running.name)?;
            }
            Ok(0)
        }
        LabCommand::List => {
            for running in registry.all()? {
                crate::say(&running.to_string());
            }
            Ok(0)
        }
        LabCommand::Paper(paper) => {
            become_able()?;
            paper::run(&paper).map(|()| 0)
        }
    }
}

/// Network namespaces take root: ours, or that of a user namespace.
fn become_able() -> anyhow::Result<()> {
    if nix::unistd::Uid::effective().is_root() {
        return Ok(());
    }
    netsim::namespace::enter_user_namespace().context(
        "links cannot be emulated here: that takes root, or user namespaces, which this machine does not allow; run it \
         with sudo",
    )
}
