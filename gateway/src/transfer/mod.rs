//! Moves files between clients and movers, and nothing through the gateway.
//!
//! - [`DataPort`]: one client's data connections, on whatever movers they are.
//! - [`Transfers`]: retrieve, store and listing over a data port; each gives a [`Running`].
//! - [`Publisher`]: what becomes of bytes that were stored, for doors whose files are more than names.
//! - `pipe`: a door that passes bytes on itself, as a mover's peer.
//! - `here`: from a mover of this process to a door of this process.
//! - `plan`: pure: who connects to whom and sends what. `store::merge`: pure: what was received becomes a file.
//! - `crew`: the movers' transfers that make up one of ours; `wiring`: data endpoints between movers.
//! - `place`: where a file is, for doors that send their client there.
//! - `shelf`: classes and volumes, as they were a moment ago.
//!
//! Owns what moves at the moment. Talks to [`crate::movers`] and the catalogue. Never checks a permission: doors get
//! what they hand in from [`crate::files`], which has. Never sees a file's bytes; the text of a listing is the one
//! thing the gateway itself sends.
//!
//! Invariant: a file that a client was told is stored is in the catalogue and on stable storage; anything else that
//! was received is kept as a cut upload or removed.

mod ask;
mod crew;
mod desk;
mod here;
mod listing;
mod pipe;
mod place;
mod plan;
mod port;
mod publisher;
mod retrieve;
mod running;
mod shelf;
mod stage;
mod store;
mod task;
#[cfg(test)]
mod tests;
mod wiring;

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use catalog::Catalog;
use daemon::{
    Shutdown,
    tls::{HotCredential, Trust},
};
use futures::stream::BoxStream;
use tokio::sync::Semaphore;
use wire::{
    id::{BitfileId, ChannelId, CosName, MoverId},
    mover::Admission,
};

pub(crate) use self::here::Here;
pub use self::{
    ask::{CutUpload, Part, Presence, Retrieve, Store, StoreMode},
    pipe::Pipe,
    port::{DataPort, PortSpec, Side},
    publisher::Publisher,
    running::{Direction, Progress, Running, Step, Stored, Summary, TransferView},
    stage::{Stager, Waiting},
};
use self::{desk::Desk, shelf::Shelf};
use crate::{
    config::Config,
    failure::{Failure, FailureKind},
    movers::{Movers, Neighbours},
    redirect::{Departure, Reason, Route},
};

/// Runs transfers. Cheap to clone.
#[derive(Clone)]
pub struct Transfers(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    movers: Movers,
    stager: OnceLock<Arc<dyn Stager>>,
    neighbours: OnceLock<Neighbours>,
    shelf: Shelf,
    desk: Desk,
    limits: Limits,
    permits: Arc<Semaphore>,
    turn: AtomicUsize,
    /// Apart from the other: with one for both, ports and reads in turn would meet the same mover each time.
    replica_turn: AtomicUsize,
    site: Site,
    shutdown: Shutdown,
}

/// What the configuration says of transfers.
#[derive(Clone, Debug)]
struct Limits {
    transfers: usize,
    data_open: Duration,
    data_stall: Duration,
    partial_uploads: Duration,
    volume_reserve_bytes: u64,
    default_cos: CosName,
    tape_wait: HashMap<CosName, Duration>,
}

/// What the gateway itself is to movers when it sends a listing.
struct Site {
    credential: HotCredential,
    trust: Trust,
}

impl Transfers {
    /// Transfers over these movers, of files in this catalogue.
    #[must_use]
    pub fn new(
        config: &Config,
        catalog: Catalog,
        movers: Movers,
        credential: HotCredential,
        trust: Trust,
        shutdown: &Shutdown,
    ) -> Self {
        let limits = Limits {
            transfers: config.limits.transfers as usize,
            data_open: config.limits.data_open.duration(),
            data_stall: config.limits.data_stall.duration(),
            partial_uploads: config.limits.partial_uploads.duration(),
            volume_reserve_bytes: config.limits.volume_reserve.bytes(),
            default_cos: config.default_cos.clone(),
            tape_wait: config.classes.iter().map(|class| (class.name.clone(), class.tape_wait.duration())).collect(),
        };
        Self(Arc::new(Inner {
            shelf: Shelf::new(catalog.clone()),
            catalog,
            movers,
            stager: OnceLock::new(),
            neighbours: OnceLock::new(),
            desk: Desk::default(),
            permits: Arc::new(Semaphore::new(limits.transfers)),
            limits,
            turn: AtomicUsize::new(0),
            replica_turn: AtomicUsize::new(0),
            site: Site { credential, trust },
            shutdown: shutdown.clone(),
        }))
    }

    /// Gives transfers a way to tape. Until then files on tape cannot be read.
    pub fn set_stager(&self, stager: Arc<dyn Stager>) {
        // A second one is a fault of the assembly; the first goes on.
        let _ = self.0.stager.set(stager);
    }

    /// Says which movers are in this process. Until then what they have is read over a connection.
    pub fn set_neighbours(&self, neighbours: Neighbours) {
        let _ = self.0.neighbours.set(neighbours);
    }

    /// A client's data connections, to be. For a passive side that is not delayed, opens the endpoints: their addresses
    /// are in [`DataPort::addresses`].
    ///
    /// # Errors
    ///
    /// If no mover can listen.
    pub async fn port(&self, spec: PortSpec) -> Result<DataPort, Failure> {
        if self.0.shutdown.is_stopping() {
            return Err(going_down());
        }
        port::open(&self.0, spec).await
    }

    /// Sends a file.
    pub fn retrieve(&self, port: &mut DataPort, what: Retrieve) -> Running {
        let account = Some(what.principal.account.clone());
        let (shared, path) = (port.shared(), what.file.path.clone());
        task::begin(&self.0, shared, Direction::Retrieve, account, path, |task| retrieve::run(task, what, None))
    }

    /// Sends a file to a door: into its hands, if all of it is in this process, else over the port.
    pub(crate) fn retrieve_here(&self, port: &mut DataPort, what: Retrieve, here: Here) -> Running {
        let account = Some(what.principal.account.clone());
        let (shared, path) = (port.shared(), what.file.path.clone());
        task::begin(&self.0, shared, Direction::Retrieve, account, path, |task| retrieve::run(task, what, Some(here)))
    }

    /// Takes a file.
    pub fn store(&self, port: &mut DataPort, what: Store) -> Running {
        let account = Some(what.principal.account.clone());
        let (shared, path) = (port.shared(), what.target.path.clone());
        let publisher: Arc<dyn Publisher> = Arc::new(self.0.catalog.clone());
        task::begin(&self.0, shared, Direction::Store, account, path, |task| store::run(task, what, publisher))
    }

    /// Takes bytes of which something else than a file of the target's name is made.
    pub fn store_as(&self, port: &mut DataPort, what: Store, publisher: Arc<dyn Publisher>) -> Running {
        let account = Some(what.principal.account.clone());
        let (shared, path) = (port.shared(), what.target.path.clone());
        task::begin(&self.0, shared, Direction::Store, account, path, |task| store::run(task, what, publisher))
    }

    /// Connects to a mover's data endpoint of a port that lets this site's parts in.
    ///
    /// # Errors
    ///
    /// If the mover does not answer.
    pub async fn pipe(&self, address: std::net::SocketAddr) -> Result<Pipe, Failure> {
        pipe::connect(&self.0, address).await
    }

    /// The way to a file's bytes for an HTTP client that is sent there; `secure` if it came over TLS.
    ///
    /// # Errors
    ///
    /// Why it cannot be sent there.
    pub(crate) async fn route(&self, bitfile: BitfileId, secure: bool) -> Result<Route, Reason> {
        place::route(&self.0, bitfile, secure).await
    }

    /// Whether a client may bring a new file of this class to a mover's HTTP door; `secure` if it came over TLS.
    pub(crate) async fn has_door(&self, cos: Option<&CosName>, secure: bool) -> bool {
        port::has_door(&self.0, cos, secure).await.unwrap_or(false)
    }

    /// The way to a mover's door for a client whose body is waited for there ([`Step::Door`]). `None` if the mover has gone.
    pub(crate) fn departure(&self, step: (MoverId, ChannelId), secure: bool, path: &str) -> Option<Departure> {
        let (mover, channel) = step;
        let snapshot = self.0.movers.snapshot();
        let door = snapshot.get(&mover).and_then(|view| view.status.http.as_deref())?;
        let lifetime = i64::try_from(self.0.limits.data_open.as_micros()).unwrap_or(i64::MAX);
        let expires_us = self.0.catalog.now().0.saturating_add(lifetime);
        let admission = Admission { mover, expires_us, channel };
        Departure::to(door, secure, path, admission, &self.0.movers)
    }

    /// Sends a text that the gateway makes: a directory listing.
    pub fn listing(&self, port: &mut DataPort, text: BoxStream<'static, Result<Bytes, Failure>>) -> Running {
        let shared = port.shared();
        task::begin(&self.0, shared, Direction::Listing, None, String::new(), |task| listing::run(task, text))
    }

    /// What moves at the moment, for the operator.
    #[must_use]
    pub fn running(&self) -> Vec<TransferView> {
        self.0.desk.views()
    }

    /// Cancels one of [`Transfers::running`] by its number; whether there was one.
    #[must_use]
    pub fn cancel(&self, number: u64) -> bool {
        self.0.desk.cancel(number)
    }
}

impl Inner {
    /// A number that grows, by which equal movers take turns.
    fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that grows, by which copies of a file on several disks take turns.
    fn next_replica(&self) -> usize {
        self.replica_turn.fetch_add(1, Ordering::Relaxed)
    }
}

fn going_down() -> Failure {
    Failure::new(
        FailureKind::ShuttingDown,
        "the gateway is going down: connect again in a minute, or to another gateway",
    )
    .retry_after(Duration::from_secs(60))
}
