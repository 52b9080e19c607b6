//! What moves at the moment, and what happens: for watchers.
//!
//! Owns the table of the services' own transfers and the stream of events. Never slows anybody down: a watcher that is
//! too slow misses events and is told so.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use catalog::Catalog;
use tokio::sync::broadcast;
use wire::{
    admin::{
        events::{Event, Stamped},
        queue::{Kind, State},
        site::{Transfer, TransferKind},
    },
    id::{BitfileId, GatewayId, MoverId, RequestId, TransferId, VolumeLabel, WorkId},
};

/// How many events a watcher may be behind.
const BACKLOG: usize = 4096;

/// What moves, by a number of our own: what is shown of it, when it was last told, and how far it was then.
type Moving = BTreeMap<u64, (Transfer, Instant, u64)>;

/// The stream of events and the table of transfers. Cheap to clone.
#[derive(Clone)]
pub struct Live {
    gateway: GatewayId,
    catalog: Catalog,
    told: broadcast::Sender<Stamped>,
    moving: Arc<Mutex<Moving>>,
}

/// One transfer in the table; dropped, it is taken out.
pub(super) struct Tracked {
    live: Live,
    key: u64,
}

impl Live {
    pub(super) fn new(gateway: GatewayId, catalog: Catalog) -> Self {
        Self { gateway, catalog, told: broadcast::Sender::new(BACKLOG), moving: Arc::default() }
    }

    /// What happens from now on.
    #[must_use]
    pub fn watch(&self) -> broadcast::Receiver<Stamped> {
        self.told.subscribe()
    }

    /// The first line of a stream.
    #[must_use]
    pub fn hello(&self) -> Stamped {
        self.stamped(Event::Hello { gateway: self.gateway.clone() })
    }

    /// An event, with the time.
    #[must_use]
    pub fn stamped(&self, event: Event) -> Stamped {
        Stamped { at_us: self.catalog.now().0, event }
    }

    pub(super) fn sender(&self) -> broadcast::Sender<Stamped> {
        self.told.clone()
    }

    /// Tells every watcher.
    pub fn tell(&self, event: Event) {
        // Nobody may be listening.
        let _ = self.told.send(self.stamped(event));
    }

    pub(super) fn work(
        &self,
        work: WorkId,
        request: Option<RequestId>,
        kind: Kind,
        bitfile: BitfileId,
        state: State,
        message: impl Into<String>,
    ) {
        self.tell(Event::Work { work, request, kind, bitfile, state, message: message.into() });
    }

    pub(super) fn batch(
        &self,
        kind: Kind,
        volume: Option<&VolumeLabel>,
        files: usize,
        bytes: u64,
        done: bool,
        message: impl Into<String>,
    ) {
        let (volume, files) = (volume.cloned(), files as u64);
        self.tell(Event::Batch { kind, volume, files, bytes, done, message: message.into() });
    }

    /// The services' transfers that move now.
    #[must_use]
    pub fn moving(&self) -> Vec<Transfer> {
        self.table().values().map(|(transfer, ..)| transfer.clone()).collect()
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Moving> {
        // Only whole values are put in: a panic elsewhere leaves it usable.
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn track(&self, id: TransferId, what: TransferKind, movers: Vec<MoverId>, total: u64) -> Tracked {
        let transfer = Transfer {
            transfer: id,
            what,
            account: None,
            path: None,
            bitfile: None,
            movers,
            client: None,
            bytes: 0,
            total_bytes: Some(total),
            rate: 0,
            started_us: self.catalog.now().0,
        };
        self.table().insert(id.0, (transfer, Instant::now(), 0));
        Tracked { live: self.clone(), key: id.0 }
    }
}

impl Tracked {
    /// So many bytes have moved by now.
    pub(super) fn moved(&self, bytes: u64) {
        let mut table = self.live.table();
        let Some((transfer, since, before)) = table.get_mut(&self.key) else { return };
        transfer.bytes = bytes;
        let elapsed = since.elapsed();
        if elapsed >= Duration::from_millis(500) {
            transfer.rate = (u128::from(bytes.saturating_sub(*before)) * 1000 / elapsed.as_millis().max(1))
                .try_into()
                .unwrap_or(u64::MAX);
            (*since, *before) = (Instant::now(), bytes);
        }
        let shown = transfer.clone();
        drop(table);
        self.live.tell(Event::Transfer(shown));
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.live.table().remove(&self.key);
    }
}
