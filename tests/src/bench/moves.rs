//! Single transfers as they are measured: the commands of a session, with a sink or a source of ours at the other end.
//!
//! The client library writes what it fetches to a file; here the receiver discards, so that the way is measured and not
//! the client's disk.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use client::{Client, Ready};
use daemon::tls::{Expect, client_config};
use rustls::ClientConfig;
use wire::ftp::{Command, CommandOption, EpsvArgument, FtpPath, Parallelism, Reply, RetrieveOptions, TransferMode};

use super::plain::{gigabytes_per_second, send};
use super::sink::{Arrival, Framing, Manner, Sink};

/// How a file is fetched.
#[derive(Clone, Debug)]
pub struct Way {
    /// Connections; with more than one, in MODE E.
    pub streams: u16,
    /// In MODE E even with one.
    pub extended: bool,
    /// The client connects (`EPSV`, told before the file is known) instead of the mover.
    pub passive: bool,
    /// For data over TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Way {
    /// The mover connects and sends in clear: one stream as it is, several in MODE E.
    #[must_use]
    pub const fn push(streams: u16) -> Self {
        Self { streams, extended: streams > 1, passive: false, tls: None }
    }

    /// The client connects to the mover whose address it was told.
    #[must_use]
    pub const fn pull() -> Self {
        Self { streams: 1, extended: false, passive: true, tls: None }
    }
}

/// What a transfer took.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    /// How many bytes.
    pub bytes: u64,
    /// When the command was sent.
    pub began: Instant,
    /// When they came.
    pub arrival: Arrival,
}

impl Fetched {
    /// From the command to the last byte, in GB/s.
    #[must_use]
    pub fn rate(&self) -> f64 {
        gigabytes_per_second(self.bytes, self.arrival.last - self.began)
    }

    /// From the command to the first byte, in milliseconds.
    #[must_use]
    pub fn first_byte_ms(&self) -> f64 {
        (self.arrival.first - self.began).as_secs_f64() * 1e3
    }
}

/// Fetches a file of `bytes` and forgets it.
///
/// # Errors
///
/// If the server refuses or not everything comes.
pub async fn fetch(session: &mut Client<Ready>, path: &FtpPath, bytes: u64, way: &Way) -> anyhow::Result<Fetched> {
    let framing = if way.extended { Framing::ModeE } else { Framing::Stream };
    let mode = if way.extended { TransferMode::Extended } else { TransferMode::Stream };
    session.demand(&Command::Mode(mode)).await?;
    if way.extended {
        let parallelism = Some(Parallelism::fixed(way.streams));
        let options = RetrieveOptions { parallelism, ..RetrieveOptions::default() };
        session.demand(&Command::Opts(CommandOption::Retrieve(options))).await?;
    }
    let manner = Manner { framing, tls: way.tls.clone(), core: None };
    let sink = if way.passive {
        let address = listens(session).await?;
        Sink::connect(manner, address, bytes)?
    } else {
        let (sink, address) = Sink::listen(manner, bytes)?;
        let command = match address {
            SocketAddr::V4(address) => Command::Port(address),
            SocketAddr::V6(_) => Command::Eprt(address),
        };
        session.demand(&command).await?;
        sink
    };
    let command = Command::Retr(path.clone());
    let began = Instant::now();
    let done = async { success(session.ask(&command).await?, &command) };
    let ((), arrival) = futures::future::try_join(done, sink.arrival()).await?;
    Ok(Fetched { bytes, began, arrival })
}

/// Stores `bytes` of memory in one clear stream, and waits until they are synced.
///
/// # Errors
///
/// If the server refuses or the connection breaks.
pub async fn store(session: &mut Client<Ready>, path: &FtpPath, bytes: u64) -> anyhow::Result<()> {
    session.demand(&Command::Mode(TransferMode::Stream)).await?;
    let address = listens(session).await?;
    let socket = TcpStream::connect(address).context("connect to the mover")?;
    let sending = tokio::task::spawn_blocking(move || send(socket, bytes));
    let command = Command::Stor(path.clone());
    success(session.ask(&command).await?, &command)?;
    sending.await.context("the sending thread")?.context("send to the mover")
}

/// Asks the server to listen; where it does.
async fn listens(session: &mut Client<Ready>) -> anyhow::Result<SocketAddr> {
    let reply = session.demand(&Command::Epsv(EpsvArgument::Same)).await?;
    Ok(reply.passive_address(session.peer().ip())?)
}

fn success(reply: Reply, command: &Command) -> anyhow::Result<()> {
    ensure!(reply.is_success(), "{} was answered {} {}", command.line(), reply.code(), reply.text());
    Ok(())
}

/// What it takes to receive over TLS what a mover of this session's site sends.
///
/// # Errors
///
/// If the session has no identity.
pub fn data_tls(session: &Client<Ready>) -> anyhow::Result<Arc<ClientConfig>> {
    let identity = session.options().identity.as_ref().context("the session has no certificate")?;
    // The certificate of a mover on this machine names loopback.
    Ok(client_config(identity.credential.as_ref(), &identity.trust, &Expect::Host, &[]))
}

/// A file below the session's home.
///
/// # Errors
///
/// If the server does not say where that is.
pub async fn at_home(session: &mut Client<Ready>, name: &str) -> anyhow::Result<FtpPath> {
    let home = session.folder().await?;
    Ok(FtpPath::new(format!("{}/{name}", home.as_str().trim_end_matches('/')))?)
}
