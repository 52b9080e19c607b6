//! The mount service's task: carries out what the state machine decides, and hands out mounts.
//!
//! Owns [`Mounts`]. Talks to movers through [`Fleet`], and to the catalogue about cartridges' states and ends. Runs only
//! where the lease of the tape service is held: its epoch is part of every fencing key.
//!
//! Invariant: a [`Mount`] that is dropped unreleased is in doubt: its tape is compared with the catalogue before it is
//! used again.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use catalog::{Catalog, Fence, Timestamp, VolumeState};
use daemon::Shutdown;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{
    admin::{
        events::{Event as Told, Stamped},
        site as shown,
    },
    id::{DriveId, VolumeLabel},
    mover::{Answer, Call, Fault, FaultKind},
};

use super::{
    fleet::Fleet,
    ledger,
    model::{Action, Event, Grant, GrantId, Mounts, Purpose, Released, Want, WantId},
    view::Why,
};
use crate::movers::{MoverError, Snapshot};

/// How long a robot may take to move a cartridge or to look through a library.
const ROBOT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long a drive may take to become ready: the first load of an LTO-9 cartridge takes up to two hours.
const ATTACH_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// How long a drive may take to rewind and unload.
const DETACH_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How often the catalogue is asked for cartridges and their states, besides when somebody says that one changed.
const REFRESH: Duration = Duration::from_secs(10);

/// How often time passes for the state machine.
const TICK: Duration = Duration::from_millis(250);

/// Says which pool a cartridge belongs to, by its label; `None` for cartridges that are not ours to use.
pub type Pools = Arc<dyn Fn(&VolumeLabel) -> Option<String> + Send + Sync>;

/// Asks the mount service. Cheap to clone; useless once the lease is lost.
#[derive(Clone, Debug)]
pub struct MountService {
    orders: mpsc::Sender<Order>,
}

/// What is wanted of [`MountService::want`]: see [`Want`] for each.
#[derive(Clone, Debug)]
pub struct Wish {
    /// See [`Want::purpose`].
    pub purpose: Purpose,
    /// See [`Want::volumes`].
    pub volumes: Vec<VolumeLabel>,
    /// See [`Want::pool`].
    pub pool: String,
    /// See [`Want::max_drives`].
    pub max_drives: usize,
    /// See [`Want::priority`].
    pub priority: i32,
    /// See [`Want::rank`].
    pub rank: u64,
    /// See [`Want::since`].
    pub since: Timestamp,
}

/// A wish that has not come true yet. Dropping it takes it back.
#[derive(Debug)]
pub struct Pending {
    id: WantId,
    answer: oneshot::Receiver<Result<Mount, Why>>,
    orders: mpsc::Sender<Order>,
    _alive: oneshot::Sender<()>,
}

/// A drive with a cartridge, in the hands of one user. Dropped, it counts as [`Released::Doubt`].
#[derive(Debug)]
pub struct Mount {
    grant: Grant,
    release: oneshot::Sender<Released>,
    revoked: CancellationToken,
}

type Look = Box<dyn FnOnce(&Mounts, Timestamp) + Send>;

enum Order {
    Want(Wish, oneshot::Sender<Result<Mount, Why>>, oneshot::Sender<WantId>, oneshot::Receiver<()>),
    Rank(WantId, i32, u64),
    Apply(Event),
    Refresh,
    Look(Look),
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Order")
    }
}

impl Mount {
    /// What was granted.
    #[must_use]
    pub const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Ends when the drive is lost: its mover went away, or the cartridge is not in it any more. Cancel-safe.
    pub async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    /// Gives it back.
    pub fn release(self, how: Released) {
        // Nobody listens if the service is gone; the next owner looks at everything anyway.
        let _ = self.release.send(how);
    }
}

impl Pending {
    /// Which wish.
    #[must_use]
    pub const fn id(&self) -> WantId {
        self.id
    }

    /// Waits for the mount. Cancel-safe.
    ///
    /// # Errors
    ///
    /// Why none of the cartridges can be mounted until somebody does something.
    pub async fn granted(&mut self) -> Result<Mount, Why> {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Why::NoDrive { reason: "the mount service has stopped".into() }),
        }
    }

    /// Changes its place among wishes of the same purpose.
    pub async fn rank(&self, priority: i32, rank: u64) {
        let _ = self.orders.send(Order::Rank(self.id, priority, rank)).await;
    }
}

impl MountService {
    /// Starts the service; it ends with `shutdown`.
    #[must_use]
    pub fn start(
        shutdown: &Shutdown,
        fleet: Arc<dyn Fleet>,
        catalog: Catalog,
        mounts: Mounts,
        pools: Pools,
        fence: Fence,
        told: broadcast::Sender<Stamped>,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(256);
        let owner = Owner {
            mounts,
            fleet,
            catalog,
            pools,
            fence,
            told,
            last_want: 0,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            calls: FuturesUnordered::new(),
            releases: FuturesUnordered::new(),
            abandoned: FuturesUnordered::new(),
            seen: Arc::default(),
        };
        let stop = shutdown.clone();
        shutdown.spawn(owner.run(inbox, stop));
        Self { orders }
    }

    /// Wishes for a cartridge in a drive.
    ///
    /// # Errors
    ///
    /// If the service has stopped.
    pub async fn want(&self, wish: Wish) -> Result<Pending, Why> {
        let gone = || Why::NoDrive { reason: "the mount service has stopped".into() };
        let (answer_to, answer) = oneshot::channel();
        let (id_to, id) = oneshot::channel();
        let (alive, end) = oneshot::channel();
        self.orders.send(Order::Want(wish, answer_to, id_to, end)).await.map_err(|_| gone())?;
        let id = id.await.map_err(|_| gone())?;
        Ok(Pending { id, answer, orders: self.orders.clone(), _alive: alive })
    }

    /// Looks at what the service knows; `None` if it has stopped.
    pub async fn look<T: Send + 'static>(
        &self,
        at: impl FnOnce(&Mounts, Timestamp) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer_to, answer) = oneshot::channel();
        let look: Look = Box::new(move |mounts, now| {
            let _ = answer_to.send(at(mounts, now));
        });
        self.orders.send(Order::Look(look)).await.ok()?;
        answer.await.ok()
    }

    /// Takes a drive out of use with a reason, or into use again. Whether there is such a drive.
    pub async fn set_drive(&self, drive: &DriveId, down: Option<String>) -> bool {
        let name = drive.clone();
        let known = self.look(move |mounts, _| mounts.drives.contains_key(&name)).await.unwrap_or(false);
        if known {
            let _ = self.orders.send(Order::Apply(Event::SetDrive { drive: drive.clone(), down })).await;
        }
        known
    }

    /// Cartridges or their states have changed in the catalogue.
    pub async fn refresh(&self) {
        let _ = self.orders.send(Order::Refresh).await;
    }

    /// Somebody opened a library: look again.
    pub async fn recheck(&self) {
        let _ = self.orders.send(Order::Apply(Event::Recheck)).await;
    }
}

struct Owner {
    mounts: Mounts,
    fleet: Arc<dyn Fleet>,
    catalog: Catalog,
    pools: Pools,
    fence: Fence,
    told: broadcast::Sender<Stamped>,
    last_want: u64,
    waiting: BTreeMap<WantId, oneshot::Sender<Result<Mount, Why>>>,
    held: BTreeMap<GrantId, CancellationToken>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    releases: FuturesUnordered<BoxFuture<'static, Event>>,
    abandoned: FuturesUnordered<BoxFuture<'static, WantId>>,
    seen: Arc<Snapshot>,
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Order>, shutdown: Shutdown) {
        let mut movers = self.fleet.watch();
        movers.mark_changed();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut refresh = tokio::time::interval(REFRESH);
        refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cutting() => break,
                // Soft: whoever holds a mount finishes; nobody asks for new ones.
                () = shutdown.stopping(), if self.held.is_empty() && self.calls.is_empty() => break,
                Some(event) = self.calls.next() => self.apply(event),
                Some(event) = self.releases.next() => self.released(event),
                Some(want) = self.abandoned.next() => {
                    self.waiting.remove(&want);
                    self.apply(Event::Unwant(want));
                }
                order = inbox.recv() => match order {
                    Some(order) => self.order(order).await,
                    None => break,
                },
                changed = movers.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let snapshot = Arc::clone(&movers.borrow_and_update());
                    self.movers_changed(snapshot);
                }
                _ = refresh.tick() => self.refresh().await,
                _ = tick.tick() => self.apply(Event::Tick),
            }
        }
        info!("mount service stopped");
    }

    async fn order(&mut self, order: Order) {
        match order {
            Order::Want(wish, answer, id_to, end) => {
                self.last_want += 1;
                let id = WantId(self.last_want);
                if id_to.send(id).is_err() {
                    return;
                }
                self.waiting.insert(id, answer);
                self.abandoned.push(Box::pin(async move {
                    let _ = end.await;
                    id
                }));
                self.apply(Event::Want(Want {
                    id,
                    label_blank: matches!(wish.purpose, Purpose::Migrate | Purpose::Repack),
                    purpose: wish.purpose,
                    volumes: wish.volumes,
                    pool: wish.pool,
                    max_drives: wish.max_drives,
                    priority: wish.priority,
                    rank: wish.rank,
                    since: wish.since,
                }));
            }
            Order::Rank(id, priority, rank) => {
                if let Some(mut want) = self.mounts.wants.get(&id).cloned() {
                    (want.priority, want.rank) = (priority, rank);
                    self.apply(Event::Want(want));
                }
            }
            Order::Apply(event) => self.apply(event),
            Order::Refresh => self.refresh().await,
            Order::Look(look) => look(&self.mounts, self.catalog.now()),
        }
    }

    async fn refresh(&mut self) {
        match self.catalog.volumes().await {
            Ok(volumes) => {
                let tapes = volumes.into_iter().filter(|volume| volume.position().is_some());
                let known = tapes
                    .map(|volume| {
                        let disabled = (volume.state == VolumeState::Disabled)
                            .then(|| volume.reason.unwrap_or_else(|| "no reason was given".into()));
                        (volume.label, disabled)
                    })
                    .collect();
                self.apply(Event::Cartridges(known));
            }
            Err(error) => warn!(%error, "cartridges not refreshed"),
        }
    }

    fn movers_changed(&mut self, snapshot: Arc<Snapshot>) {
        for (name, view) in &snapshot.movers {
            let was_up = self.seen.get(name).is_some_and(|before| before.is_up());
            if view.is_up() {
                self.apply(Event::Mover {
                    mover: name.clone(),
                    drives: view.status.drives.clone(),
                    libraries: view.status.libraries.clone(),
                    draining: !view.takes_work(),
                });
            } else if was_up || self.seen.get(name).is_none() {
                let reason = match &view.link {
                    crate::movers::LinkState::Away { why, .. } => why.clone(),
                    crate::movers::LinkState::Up { .. } => String::new(),
                };
                self.apply(Event::MoverGone { mover: name.clone(), reason });
            }
        }
        self.seen = snapshot;
    }

    fn released(&mut self, event: Event) {
        if let Event::Release { grant, .. } = &event {
            self.held.remove(grant);
        }
        self.apply(event);
    }

    fn apply(&mut self, event: Event) {
        let actions = self.mounts.apply(self.catalog.now(), event);
        for action in actions {
            self.perform(action);
        }
    }

    /// Sends or starts; never waits.
    fn perform(&mut self, action: Action) {
        let fleet = Arc::clone(&self.fleet);
        match action {
            Action::TakeInventory { mover, library, command } => {
                let (catalog, pools) = (self.catalog.clone(), Arc::clone(&self.pools));
                self.calls.push(Box::pin(async move {
                    let call = Call::Inventory { library: library.clone() };
                    let result = match limited(ROBOT_LIMIT, fleet.call(&mover, call)).await {
                        Ok(Answer::Inventory { slots }) => {
                            ledger::register(&catalog, &pools, &library, &slots).await;
                            Ok(slots)
                        }
                        Ok(_) => Err(strange()),
                        Err(fault) => Err(fault),
                    };
                    Event::Inventory { library, command, result }
                }));
            }
            Action::Move { mover, library, volume, to, drive, command } => self.calls.push(Box::pin(async move {
                info!(%volume, %drive, ?to, "cartridge is moved");
                let call = Call::Move { library, volume, to };
                let result = limited(ROBOT_LIMIT, fleet.call(&mover, call)).await.map(|_| ());
                Event::Moved { drive, command, result }
            })),
            Action::Attach { mover, drive, volume, epoch, label_blank, pool, command } => {
                let (catalog, fence) = (self.catalog.clone(), self.fence.clone());
                self.calls.push(Box::pin(async move {
                    let call = Call::Attach { drive: drive.clone(), volume: volume.clone(), epoch, label_blank, pool };
                    let result = match limited(ATTACH_LIMIT, fleet.call(&mover, call)).await {
                        Ok(Answer::Attached(mounted)) => ledger::agree(&catalog, fence, &volume, mounted).await,
                        Ok(_) => Err(strange()),
                        Err(fault) => Err(fault),
                    };
                    Event::Attached { drive, command, result }
                }));
            }
            Action::Detach { mover, drive, command } => self.calls.push(Box::pin(async move {
                let call = Call::Detach { drive: drive.clone() };
                let result = limited(DETACH_LIMIT, fleet.call(&mover, call)).await.map(|_| ());
                Event::Detached { drive, command, result }
            })),
            Action::Give(grant) => self.give(grant),
            Action::Refuse { want, why } => {
                if let Some(answer) = self.waiting.remove(&want) {
                    let _ = answer.send(Err(why));
                }
            }
            Action::Revoke { grant, reason } => {
                warn!(grant = grant.0, reason, "mount lost");
                if let Some(token) = self.held.remove(&grant) {
                    token.cancel();
                }
            }
            Action::Suspect { volume, reason } => {
                warn!(%volume, reason, "volume disabled");
                self.tell(Told::Volume { volume: volume.clone(), message: format!("disabled: {reason}") });
                let catalog = self.catalog.clone();
                self.calls.push(Box::pin(async move {
                    ledger::disable(&catalog, &volume, &reason).await;
                    Event::Tick
                }));
            }
            Action::Note { drive, message } => {
                info!(%drive, "{message}");
                let shown = self.mounts.drives().into_iter().find(|shown| shown.drive == drive);
                if let Some(shown::Drive { state, activity, volume, .. }) = shown {
                    self.tell(Told::Drive { drive, state, activity, volume, message });
                }
            }
        }
    }

    fn give(&mut self, grant: Grant) {
        let id = grant.id;
        let (release, released) = oneshot::channel();
        let revoked = CancellationToken::new();
        self.held.insert(id, revoked.clone());
        self.releases.push(Box::pin(async move {
            let how = released.await.unwrap_or(Released::Doubt);
            Event::Release { grant: id, how }
        }));
        if let Some(answer) = self.waiting.remove(&grant.want) {
            info!(volume = %grant.volume, drive = %grant.drive, purpose = grant.purpose.word(), "mount granted");
            // If nobody waits any more the mount comes back and is dropped: nothing happened to it.
            if let Err(Ok(mount)) = answer.send(Ok(Mount { grant, release, revoked })) {
                mount.release(Released::Clean);
            }
        } else {
            let _ = release.send(Released::Clean);
        }
    }

    fn tell(&self, event: Told) {
        // Nobody may be listening.
        let _ = self.told.send(Stamped { at_us: self.catalog.now().0, event });
    }
}

/// A mover's answer as a fault, in good time.
async fn limited<T>(limit: Duration, call: impl Future<Output = Result<T, MoverError>>) -> Result<T, Fault> {
    match tokio::time::timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(MoverError::Refused { fault, .. })) => Err(fault),
        // What came of it is not known: the library is looked through before anything else. Nothing is to blame.
        Ok(Err(error)) => Err(Fault::new(FaultKind::PeerLost, error)),
        Err(_) => Err(Fault::new(FaultKind::Library, format!("no answer within {} s", limit.as_secs()))),
    }
}

fn strange() -> Fault {
    Fault::new(FaultKind::Library, "the mover answered something else than it was asked")
}
