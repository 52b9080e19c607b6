//! What every service of the storage hierarchy works with.
//!
//! Owns nothing that lasts. The parts that several services share (who waits, what the recall queue looks like, what
//! was learned of bad copies) are small tables behind a lock that is never held over an await.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use catalog::{Catalog, Fence, Holder, Medium, Policies, Volume};
use tokio::sync::{Notify, oneshot, watch};
use wire::id::{BitfileId, GatewayId, RequestId, VolumeLabel};

use super::{
    config::HsmConfig, drain::Drains, live::Live, policy::estimate::Measured, policy::recall::Recall,
    policy::waits::Waits, recall::record::Parts,
};
use crate::mounts::{Fleet, MountService, WantId};

/// How long a cartridge that could not be mounted is not tried again.
pub(super) const UNMOUNTABLE: Duration = Duration::from_secs(30);

/// The most that is remembered of bad copies; more are learned again.
const MAX_BAD: usize = 100_000;

/// What every service works with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Context(Arc<Inner>);

pub(super) struct Inner {
    pub(super) catalog: Catalog,
    pub(super) fleet: Arc<dyn Fleet>,
    pub(super) holder: Holder,
    pub(super) config: HsmConfig,
    /// How long a claim of work lasts without renewal.
    pub(super) claim_lease: Duration,
    pub(super) wakes: Wakes,
    pub(super) live: Live,
    /// What came of bitfiles that lie on several cartridges.
    pub(super) parts: Parts,
    /// Volumes that this gateway empties.
    pub(super) drains: Drains,
    /// The mount service, while this gateway has the lease of the tape service.
    pub(super) mounts: watch::Sender<Option<MountService>>,
    waiters: Mutex<HashMap<RequestId, Vec<oneshot::Sender<()>>>>,
    board: Mutex<Board>,
    bad: Mutex<HashMap<(BitfileId, VolumeLabel), String>>,
    unmountable: Mutex<BTreeMap<VolumeLabel, (String, Instant)>>,
    wanted_space: Mutex<BTreeMap<String, (u64, Instant)>>,
    hurried: Mutex<BTreeSet<String>>,
}

/// One bell for each service: rung when there may be something to do.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) published: Notify,
    pub(super) migrate: Notify,
    pub(super) stage: Notify,
    pub(super) purge: Notify,
    pub(super) reclaim: Notify,
    pub(super) expire: Notify,
    pub(super) verify: Notify,
    pub(super) scrub: Notify,
    pub(super) drain: Notify,
    pub(super) rebuild: Notify,
}

/// What the recall queue looks like at the moment.
#[derive(Clone, Default)]
pub(super) struct Board {
    /// Cartridges in the order in which they are mounted, those in use first.
    pub(super) ranked: Vec<Recall>,
    /// What happens with those that somebody takes care of.
    pub(super) sessions: BTreeMap<VolumeLabel, SessionState>,
    /// What things take.
    pub(super) measured: Measured,
    /// How many drives work.
    pub(super) drives: usize,
    /// Requests that wait for something else than their cartridge.
    pub(super) holds: HashMap<BitfileId, Waits>,
}

/// What happens with a cartridge that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionState {
    /// It waits for its mount.
    Waiting(Option<WantId>),
    /// It is mounted and read.
    Reading,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The tables hold whole values only: a panic elsewhere leaves them usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::ops::Deref for Context {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Context {
    pub(super) fn new(
        catalog: Catalog,
        fleet: Arc<dyn Fleet>,
        gateway: GatewayId,
        holder: Holder,
        config: HsmConfig,
    ) -> Self {
        let live = Live::new(gateway, catalog.clone());
        Self(Arc::new(Inner {
            catalog,
            fleet,
            holder,
            claim_lease: config.lease.duration() * 2,
            config,
            wakes: Wakes::default(),
            live,
            parts: Parts::default(),
            drains: Drains::default(),
            mounts: watch::Sender::new(None),
            waiters: Mutex::default(),
            board: Mutex::default(),
            bad: Mutex::default(),
            unmountable: Mutex::default(),
            wanted_space: Mutex::default(),
            hurried: Mutex::default(),
        }))
    }
}

impl Inner {
    /// Disk volumes in use, whose movers are there.
    pub(super) async fn reachable_disks(&self) -> catalog::Result<HashSet<VolumeLabel>> {
        let volumes = self.catalog.volumes().await?;
        let snapshot = Arc::clone(&self.fleet.watch().borrow());
        let reachable = |volume: &Volume| match &volume.medium {
            Medium::Disk { mover, .. } => {
                volume.state.readable() && snapshot.get(mover).is_some_and(|view| view.is_up())
            }
            Medium::Tape { .. } => false,
        };
        Ok(volumes.into_iter().filter(reachable).map(|volume| volume.label).collect())
    }

    /// Told when this request comes to its end in this process.
    pub(super) fn wait_for(&self, request: RequestId) -> oneshot::Receiver<()> {
        let (ended, end) = oneshot::channel();
        let mut waiters = locked(&self.waiters);
        let here = waiters.entry(request).or_default();
        here.retain(|waiter| !waiter.is_closed());
        here.push(ended);
        end
    }

    /// Nobody waits for this request any more.
    pub(super) fn forget(&self, request: RequestId) {
        let mut waiters = locked(&self.waiters);
        if let Some(here) = waiters.get_mut(&request) {
            here.retain(|waiter| !waiter.is_closed());
            if here.is_empty() {
                waiters.remove(&request);
            }
        }
    }

    /// These requests have come to their end: whoever waits looks.
    pub(super) fn ended(&self, requests: &[RequestId]) {
        let mut waiters = locked(&self.waiters);
        for waiter in requests.iter().filter_map(|request| waiters.remove(request)).flatten() {
            let _ = waiter.send(());
        }
    }

    /// Everybody who waits looks again: requests failed, and which is not known here.
    pub(super) fn some_ended(&self) {
        let all: Vec<RequestId> = locked(&self.waiters).keys().copied().collect();
        self.ended(&all);
    }

    pub(super) fn board(&self) -> Board {
        locked(&self.board).clone()
    }

    pub(super) fn change_board(&self, change: impl FnOnce(&mut Board)) {
        change(&mut locked(&self.board));
    }

    /// Remembers that a copy could not be read, so that it is not tried again and again.
    pub(super) fn remember_bad(&self, bitfile: BitfileId, volume: &VolumeLabel, reason: &str) {
        let mut bad = locked(&self.bad);
        if bad.len() >= MAX_BAD {
            bad.clear();
        }
        bad.insert((bitfile, volume.clone()), reason.to_owned());
    }

    pub(super) fn why_bad(&self, bitfile: BitfileId, volume: &VolumeLabel) -> Option<String> {
        locked(&self.bad).get(&(bitfile, volume.clone())).cloned()
    }

    pub(super) fn forget_bad(&self, bitfile: BitfileId) {
        locked(&self.bad).retain(|(of, _), _| *of != bitfile);
    }

    /// Remembers for a while that a cartridge cannot be mounted.
    pub(super) fn remember_unmountable(&self, volume: &VolumeLabel, reason: String) {
        locked(&self.unmountable).insert(volume.clone(), (reason, Instant::now() + UNMOUNTABLE));
    }

    pub(super) fn why_unmountable(&self, volume: &VolumeLabel) -> Option<String> {
        let mut unmountable = locked(&self.unmountable);
        unmountable.retain(|_, (_, until)| *until > Instant::now());
        unmountable.get(volume).map(|(reason, _)| reason.clone())
    }

    /// A cartridge's state has changed: what was learned of it counts no more.
    pub(super) fn mountable_again(&self) {
        locked(&self.unmountable).clear();
    }

    /// Somebody waits for room in a disk pool. Asks the purge service for it.
    pub(super) fn want_space(&self, pool: &str, bytes: u64) {
        let mut wanted = locked(&self.wanted_space);
        let entry = wanted.entry(pool.to_owned()).or_insert((0, Instant::now()));
        *entry = (entry.0.max(bytes), Instant::now());
        drop(wanted);
        self.wakes.purge.notify_one();
    }

    /// How much room somebody waits for in a disk pool. Wishes older than a minute count no more.
    pub(super) fn wanted_space(&self, pool: &str) -> u64 {
        let mut wanted = locked(&self.wanted_space);
        wanted.retain(|_, (_, since)| since.elapsed() < Duration::from_secs(60));
        wanted.get(pool).map_or(0, |(bytes, _)| *bytes)
    }

    /// What is due of these classes of service is migrated at once, however little it is.
    pub(super) fn hurry(&self, classes: impl IntoIterator<Item = String>) {
        locked(&self.hurried).extend(classes);
    }

    /// Whether somebody wants this class of service to be migrated at once; asking ends the hurry.
    pub(super) fn is_hurried(&self, class: &str) -> bool {
        locked(&self.hurried).remove(class)
    }

    /// Room has been made, or was found: the wish is over.
    pub(super) fn space_found(&self, pool: &str) {
        locked(&self.wanted_space).remove(pool);
    }

    /// All classes and volumes, as one picture for a batch.
    pub(super) async fn picture(&self) -> catalog::Result<Picture> {
        Ok(Picture { policies: self.catalog.policies().await?, volumes: self.catalog.volumes().await? })
    }
}

/// Classes and volumes at one moment.
pub(super) struct Picture {
    pub(super) policies: Policies,
    pub(super) volumes: Vec<Volume>,
}

impl Picture {
    pub(super) fn volume(&self, label: &VolumeLabel) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.label == *label)
    }
}

/// A service's lease, as proof in the catalogue.
pub(super) fn fence(lease: &str, epoch: wire::id::Epoch) -> Fence {
    Fence { lease: lease.to_owned(), epoch }
}
