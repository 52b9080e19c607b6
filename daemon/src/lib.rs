//! What every Penstock process needs: configuration, logs, metrics, TLS and X.509 trust, shutdown, clock.
//!
//! | module | answers |
//! | --- | --- |
//! | [`lifecycle`] | when does this process stop, and what time is it? |
//! | [`config`] | what does its one TOML file say, and in which line is the mistake? |
//! | [`logging`], [`telemetry`] | what did it do? |
//! | [`trust`] | who is at the other end, by X.509 chain? (pure) |
//! | [`tls`] | how does that identity get onto a connection? |
//! | [`role`] | which part of this site is at the other end? |
//! | [`pki`] | where do a site's certificates come from? |
//! | [`grant`] | did a process of this site give the client what it shows? |
//! | [`tcp`] | what was that connection like, and what held it back? |
//!
//! Owns no device, no socket and no catalogue. Talks to the file system (configuration,
//! certificates) and to the process's signals and standard error. Never decides what a caller may
//! do: it says who the caller is.
//!
//! Invariant: nothing here is process-global except what the operating system or a macro crate
//! makes so (signals, the tracing subscriber, the metrics recorder), so that several sites can
//! live in one process.

pub mod config;
pub mod grant;
pub mod lifecycle;
pub mod logging;
pub mod pki;
pub mod role;
pub mod secret;
pub mod tcp;
pub mod telemetry;
pub mod tls;
pub mod trust;

pub use lifecycle::{Clock, Shutdown};
pub use secret::Secret;
