//! The FTP door: explicit TLS, X.509 certificates, GridFTP's parallel transfers, and data that never comes this way.
//!
//! ```text
//! socket ──▶ control ──lines──▶ session (pure) ──work──▶ commands ──▶ files, transfer, hsm
//!        ◀── control ◀─replies─    ▲                        │
//!                                  └───────outcomes─────────┘
//! ```
//!
//! - `door`: listens, counts, and gives every connection a task.
//! - `connection`: one control connection's driver: events in, actions out.
//! - `control`: its bytes: clear or TLS, lines in, replies out, both bounded.
//! - `presence`: whether the client is still there.
//! - [`session`]: what may come when and what it means; pure.
//! - `commands`: what each piece of work does with the rest of the gateway.
//!
//! Owns control connections. Talks to identity, files, transfer and hsm. Never moves a file's byte, never decides a
//! permission, and knows movers only as addresses to tell a client.

mod commands;
pub mod config;
mod connection;
mod control;
mod desk;
mod door;
pub mod path;
mod presence;
pub mod session;
#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use daemon::{
    Shutdown,
    tls::{self, Clients, HotCredential, Trust},
};

pub use commands::Services;
pub use config::{Access, FtpConfig};
pub use door::Door;

/// Opens the door: binds its addresses and serves until the shutdown.
///
/// `credential` is shown to clients; `trust` judges theirs. A client whose certificate is bad gets as far as `USER`, and
/// is then told why in words, which a TLS alert could not.
///
/// # Errors
///
/// If an address cannot be bound.
pub async fn open(
    config: &FtpConfig,
    credential: &HotCredential,
    trust: &Trust,
    services: Services,
    shutdown: &Shutdown,
) -> io::Result<Door> {
    let clients = Clients::Judged(trust.clone());
    let terms = connection::Terms {
        tls: tls::server_config(credential, &clients, &[]),
        clients,
        login_limit: config.login_limit.duration(),
        idle_limit: config.idle_limit.duration(),
        unread_limit: config.unread_limit.duration(),
    };
    let shared = Arc::new(config.clone());
    let desk =
        move |peer, local, line| commands::Commands::new(services.clone(), Arc::clone(&shared), peer, local, line);
    Door::open(config, terms, shutdown, desk).await
}
