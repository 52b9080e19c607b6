//! `penstock admin`: asks a running site, and tells it what to do.
//!
//! Owns nothing: one HTTPS connection for one command. Talks to a gateway's admin door in the words of
//! [`wire::admin`]. Never reads the catalogue or a mover directly, so it works from any host.

mod buckets;
mod command;
mod connection;
mod people;
mod queue;
mod show;
mod site;

pub(crate) use site::describe;

use std::path::PathBuf;

use clap::Args;
pub use command::Command;
use command::SiteCommand;
pub use connection::{AdminError, Connection};

/// Arguments of `penstock admin`.
#[derive(Debug, Args)]
pub struct Admin {
    /// Which site, and who asks.
    #[command(flatten)]
    pub target: Target,
    /// Print JSON for programs, one value, instead of tables for people.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to ask or do.
    #[command(subcommand)]
    pub command: Command,
}

/// Which site, and who asks.
///
/// For a site that `penstock serve` keeps on this machine its folder is enough. Elsewhere it takes the address of a
/// gateway's admin door, a certificate with the role `admin` (or of an account with admin rights), and the site's CA.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// The folder of a site on this machine.
    #[arg(long, value_name = "DIR", env = "PENSTOCK_DATA", global = true)]
    pub data: Option<PathBuf>,
    /// Address of a gateway's admin door.
    #[arg(long, value_name = "HOST:PORT", env = "PENSTOCK_ADMIN", global = true)]
    pub gateway: Option<String>,
    /// Certificate to show, PEM.
    #[arg(long, value_name = "FILE", env = "PENSTOCK_CERT", global = true)]
    pub cert: Option<PathBuf>,
    /// Its private key, if it is not in the same file.
    #[arg(long, value_name = "FILE", env = "PENSTOCK_KEY", global = true)]
    pub key: Option<PathBuf>,
    /// Trusted CA certificates, PEM, or a folder of them.
    #[arg(long, value_name = "FILE", env = "PENSTOCK_CA", global = true)]
    pub ca: Option<PathBuf>,
}

/// Runs one command and prints what comes of it.
///
/// # Errors
///
/// [`AdminError`] if the site cannot be reached or refuses; the message says what to do next.
pub async fn run(admin: Admin) -> Result<(), AdminError> {
    let output = Output { json: admin.json };
    if let Command::Site(SiteCommand::Wait { limit }) = admin.command {
        return site::wait(&admin.target, limit.duration(), output).await;
    }
    let mut connection = Connection::open(&admin.target).await?;
    match admin.command {
        Command::Site(command) => site::run(command, &mut connection, output).await,
        Command::Queue(command) => queue::run(command, &mut connection, output).await,
        Command::People(command) => people::run(command, &mut connection, output).await,
    }
}

/// How answers are printed.
#[derive(Clone, Copy, Debug)]
struct Output {
    json: bool,
}

impl Output {
    /// A line for people, behind an answer; programs have it in the answer's own words.
    fn add(self, text: &str) -> Result<(), AdminError> {
        if self.json { Ok(()) } else { show::write(text) }
    }

    /// Prints `answer` as JSON, or as `table` shows it.
    fn print<T: serde::Serialize>(self, answer: &T, table: impl FnOnce(&T) -> String) -> Result<(), AdminError> {
        let text = if self.json {
            serde_json::to_string_pretty(answer).map_err(AdminError::Unreadable)?
        } else {
            table(answer)
        };
        show::write(&text)
    }
}
