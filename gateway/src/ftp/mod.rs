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
//! - [`session`]: what may come when and what it means; pure.
//! - `commands`: what each piece of work does with the rest of the gateway.
//!
//! Owns control connections. Talks to identity, files, transfer and hsm. Never moves a file's byte, never decides a
//! permission, and knows movers only as addresses to tell a client.

pub mod config;
pub mod path;
pub mod session;

pub use config::{Access, FtpConfig};
