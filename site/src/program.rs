//! The program `penstock`: one command line for every part of a site.
//!
//! Lies in the library, so that the parts' code is compiled there and the program is only linked.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use daemon::{Shutdown, logging::LogSettings};

use crate::{
    cli::{Cli, Command},
    say,
};

/// How long what moves may take to finish after the first signal.
const SHUTDOWN_DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// Does what the command line says; the exit status of the process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::parse() {
        // It may have to enter a user namespace, which takes a process of one thread.
        Cli { command: Command::Lab(lab) } => return crate::lab::main(*lab),
        cli => cli,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&anyhow::Error::new(error).context("start the runtime"), 1),
    };
    match runtime.block_on(run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed { error, status }) => failed(&error, status),
    }
}

struct Failed {
    error: anyhow::Error,
    status: u8,
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self { error: error.into(), status: 1 }
    }
}

async fn run(cli: Cli) -> Result<(), Failed> {
    match cli.command {
        Command::Serve(arguments) => Ok(crate::serve::run(arguments, Shutdown::new(SHUTDOWN_DEADLINE)).await?),
        Command::Gateway(arguments) => Ok(crate::process::gateway(arguments, Shutdown::new(SHUTDOWN_DEADLINE)).await?),
        Command::Mover(arguments) => Ok(crate::process::mover(arguments, Shutdown::new(SHUTDOWN_DEADLINE)).await?),
        Command::Admin(admin) => {
            crate::admin::run(*admin).await.map_err(|error| Failed { status: error.exit_status(), error: error.into() })
        }
        Command::Demo(demo) => {
            // The demo's own words are what matters; what goes wrong is still logged.
            daemon::logging::init(&LogSettings { filter: "error".to_owned(), ..LogSettings::default() })?;
            let shutdown = Shutdown::new(SHUTDOWN_DEADLINE);
            let result = crate::demo::run(demo, &shutdown).await;
            shutdown.stop();
            shutdown.finish().await;
            Ok(result?)
        }
        Command::Lab(_) => Ok(()),
        Command::Cert(cert) => {
            for line in crate::certificates::run(cert)? {
                say(&line);
            }
            Ok(())
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "penstock", &mut std::io::stdout());
            Ok(())
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)?;
            clap_mangen::generate_to(Cli::command(), &folder)?;
            Ok(())
        }
    }
}

fn failed(error: &anyhow::Error, status: u8) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "penstock: {error:#}");
    ExitCode::from(status)
}
