//! Assembles Penstock's gateway and movers into one program: `penstock`.
//!
//! - [`cli`]: the command line, as data.
//! - [`serve`]: a whole site in one process; [`process`]: a gateway or a mover alone; [`beside`]: a gateway reads what
//!   movers of its process have.
//! - [`setup`], [`folder`]: a site's first start, and where it keeps what it has.
//! - [`admin`]: asks a running site, and tells it what to do.
//! - [`certificates`]: a site's certificates, for sites on several hosts.
//! - [`demo`]: shows it all; [`lab`]: the same and more over emulated links.

pub mod admin;
pub mod beside;
pub mod certificates;
pub mod cli;
pub mod demo;
pub mod folder;
pub mod lab;
pub mod metrics;
pub mod process;
pub mod program;
pub mod serve;
pub mod setup;

/// Prints a line for the user. Standard output may be gone, as with `head`; that is no fault.
pub fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
