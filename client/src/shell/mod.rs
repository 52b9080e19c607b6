//! `pftp`, the parallel FTP session.
//!
//! Owns the process: arguments, terminal, signals, exit status. Everything it does to files is the library's.
//!
//! ```text
//! args ─▶ App ◀─ commands (typed, from words) ◀─ lines: -c, standard input, or interactive
//!          │
//!          ├─▶ Client<Ready>      one session, reopened when it was lost
//!          └─▶ Output             for people, or one JSON object a line
//! ```

mod app;
mod args;
mod command;
mod connections;
mod files;
mod interactive;
mod interrupts;
mod output;
mod settings;
mod transfer;
mod walk;
mod words;

use std::{
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
};

use clap::{CommandFactory as _, Parser as _};

pub use args::Args;

use app::{App, Flow};
use output::Output;

/// A command failed.
const FAILED: u8 = 1;
/// The command line, a certificate or the connection is at fault.
const UNUSABLE: u8 = 2;

/// Ctrl-C, as shells tell it.
const INTERRUPTED: u8 = 130;

/// The command line's definition, from which help, completions and manual page come.
pub fn command_line() -> clap::Command {
    Args::command()
}

/// Runs `pftp` with the arguments of this process.
pub fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(shell) = args.completions {
        clap_complete::generate(shell, &mut command_line(), "pftp", &mut std::io::stdout());
        return ExitCode::SUCCESS;
    }
    if args.man {
        let page = clap_mangen::Man::new(command_line().after_long_help(command::manual()));
        return match page.render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(FAILED),
        };
    }
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("PFTP_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(2048).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::complain(&format!("start the runtime: {error}"));
            return ExitCode::from(UNUSABLE);
        }
    };
    let code = run(&runtime, args);
    // Threads that still wait for a socket do not hold us up.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    ExitCode::from(code)
}

fn run(runtime: &tokio::runtime::Runtime, args: Args) -> u8 {
    let interactive = args.commands.is_empty() && std::io::stdin().is_terminal();
    let output = Output::new(args.json, !args.no_progress);
    let mut app = match App::new(&args, output) {
        Ok(app) => app,
        Err(error) => {
            output::complain(&error.chain());
            return UNUSABLE;
        }
    };
    runtime.spawn(app.interrupts().watch());
    if let Some(target) = &args.target
        && let Err(error) = runtime.block_on(app.open(target))
    {
        app.failed("open", &error);
        if !interactive {
            return UNUSABLE;
        }
    }
    if interactive {
        return interactive::run(runtime, app);
    }
    let script = if args.commands.is_empty() {
        let mut text = String::new();
        if let Err(error) = std::io::stdin().read_to_string(&mut text) {
            output::complain(&format!("read commands from standard input: {error}"));
            return UNUSABLE;
        }
        text
    } else {
        args.commands.join("\n")
    };
    let mut code = 0;
    for line in words::lines(&script) {
        match runtime.block_on(app.execute(&line)) {
            Flow::Go => {}
            Flow::Failed => {
                code = FAILED;
                if !args.keep_going {
                    break;
                }
            }
            Flow::Interrupted => {
                code = INTERRUPTED;
                break;
            }
            Flow::Quit => break,
        }
    }
    runtime.block_on(app.close());
    code
}
