//! Hierarchical storage: what sinks to tape, what leaves the disk, what comes back.
//!
//! ```text
//!  doors ──stage, pin, migrate, purge──▶ Hsm ──▶ catalogue's queue ──▶ stage ─▶ recall ─┐
//!                                                      │                               ├─▶ mounts, movers
//!                                                      ├─────────────▶ migrate, verify ─┘
//!                                                      └─────────────▶ purge, reclaim, expire
//! ```
//!
//! - [`Hsm`]: what doors ask.
//! - [`policy`]: every decision, pure.
//! - `stage` and `recall`, `migrate`, `verify`: what needs tapes; one gateway runs them all, with the mount service.
//! - `drain`: empties volumes that are to go.
//! - `rebuild`: takes over what cartridges say they hold.
//! - `purge`, `reclaim`, `expire`: what frees space and keeps deadlines; each under a lease of its own.
//! - `lead`: one gateway at a time runs a service. `turns`: one task for each key of its queue.
//! - [`live`](Live): what moves and happens, for watchers.
//!
//! Owns no state that outlives it: all work is rows of the catalogue, claimed with leases and finished in the
//! transaction that records the result. Talks to [`crate::mounts`] and the movers below. Never checks a permission:
//! doors do.

mod bulk;
mod claims;
mod config;
mod context;
mod copy;
mod drain;
mod expire;
mod lead;
mod live;
mod migrate;
pub mod policy;
mod purge;
mod queue;
mod rebuild;
mod recall;
mod reclaim;
mod replicate;
mod scrub;
mod scrub_list;
mod space;
mod spare;
mod stage;
#[cfg(test)]
pub(crate) mod tests;
mod ticket;
mod turns;
mod verify;

use std::{collections::HashMap, sync::Arc, time::Duration};

use catalog::{Catalog, Cause, DISK_COPY, Holder, Located, NewRequest, Purged, RequestState, StageRequest, Timestamp};
use daemon::Shutdown;
use wire::{
    admin::{
        queue::{Kind, State},
        site as shown,
    },
    id::{AccountName, BitfileId, DriveId, GatewayId, RequestId, VolumeLabel, WorkId},
};

pub use self::{
    bulk::{BulkWish, Locality},
    config::HsmConfig,
    live::Live,
    queue::Described,
    replicate::Replicated,
    scrub::Scope,
    ticket::Ticket,
};
use self::{context::Context, rebuild::Rebuilds};
use crate::{
    failure::{Failure, FailureKind},
    mounts::{Fleet, MountService, Mounts, Pools},
};

/// The lease of everything that needs tapes.
pub const TAPE_LEASE: &str = "tape";
/// The lease of the purge service.
pub const PURGE_LEASE: &str = "purge";
/// The lease of the reclaim service.
pub const RECLAIM_LEASE: &str = "reclaim";
/// The lease of the expiry service.
pub const EXPIRE_LEASE: &str = "expire";

/// What the storage hierarchy needs to run.
pub struct Parts {
    /// The catalogue.
    pub catalog: Catalog,
    /// The movers.
    pub fleet: Arc<dyn Fleet>,
    /// This gateway.
    pub gateway: GatewayId,
    /// This run of it, as it holds leases.
    pub holder: Holder,
    /// The configuration.
    pub config: HsmConfig,
    /// Which pool a cartridge belongs to.
    pub pools: Pools,
}

/// A wish to have a bitfile on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Which.
    pub bitfile: BitfileId,
    /// Who asks.
    pub account: AccountName,
    /// In how long it fails if it is not there; the configuration says if `None`.
    pub deadline: Option<Duration>,
    /// How long it stays on disk from when it has come; the class of service says if `None`.
    pub lifetime: Option<Duration>,
    /// Larger is sooner.
    pub priority: i32,
}

/// Hierarchical storage, as doors ask it. Cheap to clone.
#[derive(Clone)]
pub struct Hsm {
    context: Context,
    rebuilds: Rebuilds,
    shutdown: Shutdown,
}

impl Hsm {
    /// Starts the services, if this gateway may run them, and gives out the handle.
    #[must_use]
    pub fn start(parts: Parts, shutdown: &Shutdown) -> Self {
        let Parts { catalog, fleet, gateway, holder, config, pools } = parts;
        let services = config.services;
        let context = Context::new(catalog, fleet, gateway, holder, config);
        let hsm = Self { context: context.clone(), rebuilds: Rebuilds::default(), shutdown: shutdown.clone() };
        if !services {
            return hsm;
        }
        shutdown.spawn(pass_on(context.clone(), shutdown.clone()));
        let tape = {
            let hsm = hsm.clone();
            move |fence, scope| tape(hsm.clone(), Arc::clone(&pools), fence, scope)
        };
        shutdown.spawn(lead::lead(context.clone(), TAPE_LEASE, shutdown.clone(), tape));
        let services = [
            (PURGE_LEASE, Box::new(|context, scope| Box::pin(purge::run(context, scope)) as Service) as Start),
            (RECLAIM_LEASE, Box::new(|context, scope| Box::pin(reclaim::run(context, scope)) as Service)),
            (EXPIRE_LEASE, Box::new(|context, scope| Box::pin(expire::run(context, scope)) as Service)),
        ];
        for (name, start) in services {
            let run = {
                let context = context.clone();
                move |_, scope| start(context.clone(), scope)
            };
            shutdown.spawn(lead::lead(context.clone(), name, shutdown.clone(), run));
        }
        hsm
    }

    /// Runs a service of a door's under a lease, so that one gateway at a time does, if this one may run services. The
    /// shutdown it gets is cut when the lease is lost.
    pub fn lead<F, S>(&self, lease: &'static str, service: S)
    where
        S: Fn(Shutdown) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        if self.context.config.services {
            let service = move |_, scope| service(scope);
            self.shutdown.spawn(lead::lead(self.context.clone(), lease, self.shutdown.clone(), service));
        }
    }

    /// What moves and happens, for watchers.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.context.live
    }

    /// Something was published: there may be something to migrate, and less room than before.
    pub fn published(&self) {
        self.context.wakes.published.notify_one();
    }

    /// Something was deleted or replaced: there may be something to reclaim, and requests for it have failed, in the
    /// transaction that took the name away.
    pub fn deleted(&self) {
        self.context.some_ended();
        self.context.wakes.reclaim.notify_one();
    }

    /// An upload found no room in this disk pool: purging is asked for so many bytes.
    pub fn no_room(&self, pool: &str, bytes: u64) {
        self.context.want_space(pool, bytes);
    }

    /// Asks for bitfiles to be on disk. Requests for one bitfile share the work; what is there already is completed at
    /// once. Answers in the order given.
    ///
    /// # Errors
    ///
    /// Those of the catalogue. A bitfile that cannot be staged is a request that failed.
    pub async fn stage(&self, asks: Vec<Ask>) -> Result<Vec<Ticket>, Failure> {
        self.stage_because(asks, None).await
    }

    /// The same for a door that says where the request came from, for those who are told of it.
    ///
    /// # Errors
    ///
    /// As [`Hsm::stage`].
    pub async fn stage_because(&self, asks: Vec<Ask>, cause: Option<&Cause>) -> Result<Vec<Ticket>, Failure> {
        let mut wishes = self.wishes(asks).await?;
        wishes.iter_mut().for_each(|wish| wish.cause = cause.cloned());
        let requests = self.context.catalog.request_stage(wishes).await?;
        self.queued(&requests);
        Ok(requests.into_iter().map(|request| Ticket::new(self.clone(), request)).collect())
    }

    /// What is asked of the catalogue for these.
    async fn wishes(&self, asks: Vec<Ask>) -> Result<Vec<NewRequest>, Failure> {
        self.drop_unreachable(asks.iter().map(|ask| ask.bitfile).collect()).await?;
        let usual = self.usual_lifetimes(&asks).await?;
        let now = self.context.catalog.now();
        let new = asks.into_iter().zip(usual).map(|(ask, usual)| NewRequest {
            bitfile: ask.bitfile,
            account: ask.account,
            deadline: now.after(ask.deadline.unwrap_or(self.context.config.stage_deadline.duration())),
            lifetime: ask.lifetime.unwrap_or(usual),
            priority: ask.priority,
            cause: None,
        });
        Ok(new.collect())
    }

    /// Watchers and the recall service hear of new requests.
    fn queued(&self, requests: &[StageRequest]) {
        for request in requests.iter().filter(|request| !request.state.is_final()) {
            if let Some(work) = request.work {
                let live = &self.context.live;
                live.work(work, Some(request.id), Kind::Stage, request.bitfile, State::Waiting, "is in the queue");
            }
        }
        self.context.wakes.stage.notify_one();
    }

    async fn usual_lifetimes(&self, asks: &[Ask]) -> Result<Vec<Duration>, Failure> {
        if asks.iter().all(|ask| ask.lifetime.is_some()) {
            return Ok(vec![Duration::ZERO; asks.len()]);
        }
        let ids: Vec<BitfileId> = asks.iter().map(|ask| ask.bitfile).collect();
        let policies = self.context.catalog.policies().await?;
        let located = self.context.catalog.locate(&ids).await?;
        let located: HashMap<_, _> = located.iter().map(|found| (found.bitfile.id, &found.bitfile.cos)).collect();
        let usual = |ask: &Ask| Some(policies.class(located.get(&ask.bitfile)?)?.stage_lifetime);
        Ok(asks.iter().map(|ask| usual(ask).unwrap_or_default()).collect())
    }

    /// A disk copy counts only if it can be read. One whose mover is away, or whose volume is out of use, is given up if
    /// all tape copies are there, so that a recall is made instead of a promise that nobody can keep.
    async fn drop_unreachable(&self, bitfiles: Vec<BitfileId>) -> Result<(), Failure> {
        let located = self.context.catalog.locate(&bitfiles).await?;
        let reachable = self.context.reachable_disks().await?;
        let lost = |found: &&Located| {
            found.copy(DISK_COPY).is_some() && !found.on_disk().any(|copy| copy.lies_within(&reachable))
        };
        let lost: Vec<BitfileId> = located.iter().filter(lost).map(|found| found.bitfile.id).collect();
        if !lost.is_empty() {
            tracing::info!(bitfiles = lost.len(), "disk copies that cannot be reached are given up for recalls");
            purge::now(&self.context, lost).await?;
        }
        Ok(())
    }

    /// Requests by number, as they are now; unknown and long forgotten ones are left out.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn requests(&self, ids: &[RequestId]) -> Result<Vec<StageRequest>, Failure> {
        Ok(self.context.catalog.stage_requests(ids).await?)
    }

    /// Takes requests back, only those of `account` if it is given. Returns those that were open.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn cancel(&self, ids: Vec<RequestId>, account: Option<AccountName>) -> Result<Vec<RequestId>, Failure> {
        let cancelled = self.context.catalog.cancel_requests(ids, account).await?;
        self.context.ended(&cancelled);
        self.context.wakes.stage.notify_one();
        Ok(cancelled)
    }

    /// Takes rows of the queue out, with every request that waits for them. Returns those that were there.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn cancel_work(&self, work: Vec<WorkId>) -> Result<Vec<WorkId>, Failure> {
        let cancelled = self.context.catalog.cancel_work(work).await?;
        self.context.some_ended();
        self.context.wakes.stage.notify_one();
        Ok(cancelled)
    }

    /// Ends the promise of staged copies early: they may be purged.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn release(&self, bitfiles: Vec<BitfileId>) -> Result<(), Failure> {
        self.context.catalog.release_stage(bitfiles).await?;
        self.context.wakes.purge.notify_one();
        Ok(())
    }

    /// Keeps disk copies for this holder: for a while, or for good.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn pin(&self, bitfiles: Vec<BitfileId>, holder: &str, how_long: Option<Duration>) -> Result<(), Failure> {
        let until = how_long.map_or(Timestamp::NEVER, |how_long| self.context.catalog.now().after(how_long));
        Ok(self.context.catalog.pin(bitfiles, holder, until).await?)
    }

    /// Ends this holder's pins.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn unpin(&self, bitfiles: Vec<BitfileId>, holder: &str) -> Result<(), Failure> {
        self.context.catalog.unpin(bitfiles, holder).await?;
        self.context.wakes.purge.notify_one();
        Ok(())
    }

    /// Migrates now what is not on tape yet, without waiting for age or batch. Returns how many are queued.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn migrate_now(&self, bitfiles: Vec<BitfileId>) -> Result<u64, Failure> {
        let located = self.context.catalog.locate(&bitfiles).await?;
        let queued = self.context.catalog.migrate_now(bitfiles).await?;
        self.context.hurry(located.into_iter().map(|found| found.bitfile.cos.to_string()));
        self.context.wakes.migrate.notify_one();
        Ok(queued)
    }

    /// Drops disk copies now, as far as they may go; why each stayed, in a sentence.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn purge_now(&self, bitfiles: Vec<BitfileId>) -> Result<Vec<(BitfileId, Result<u64, Failure>)>, Failure> {
        let purged = purge::now(&self.context, bitfiles).await?;
        Ok(purged.into_iter().map(|(bitfile, purged)| (bitfile, purge_answer(purged))).collect())
    }

    /// Every drive; empty where another gateway runs the tape service.
    pub async fn drives(&self) -> Vec<shown::Drive> {
        match self.mounts() {
            Some(mounts) => mounts.look(|mounts, _| mounts.drives()).await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Where cartridges are, for those that are known here.
    pub async fn locations(&self, volumes: Vec<VolumeLabel>) -> Vec<Option<shown::Location>> {
        let count = volumes.len();
        let Some(mounts) = self.mounts() else { return vec![None; count] };
        let look = move |mounts: &crate::mounts::Mounts, _| volumes.iter().map(|v| mounts.location(v)).collect();
        mounts.look(look).await.unwrap_or_else(|| vec![None; count])
    }

    /// Takes a drive out of use with a reason, or into use again.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`], or [`FailureKind::Unavailable`] where another gateway runs the tape service.
    pub async fn set_drive(&self, drive: &DriveId, down: Option<String>) -> Result<(), Failure> {
        let Some(mounts) = self.mounts() else {
            let text = "another gateway serves the tape library: ask that one (`penstock admin status` names it)";
            return Err(Failure::new(FailureKind::Unavailable, text));
        };
        if mounts.set_drive(drive, down.clone()).await {
            // Whoever has the library next does the same.
            return Ok(self.context.catalog.set_drive_down(drive, down).await?);
        }
        Err(Failure::new(
            FailureKind::NotFound,
            format!("there is no drive {drive}: `penstock admin drives` lists them"),
        ))
    }

    /// A volume's state was changed by an operator: everybody looks again.
    pub async fn volumes_changed(&self) {
        self.context.mountable_again();
        if let Some(mounts) = self.mounts() {
            mounts.refresh().await;
            mounts.recheck().await;
        }
        let wakes = &self.context.wakes;
        for bell in [&wakes.stage, &wakes.migrate, &wakes.purge, &wakes.verify, &wakes.drain, &wakes.rebuild] {
            bell.notify_one();
        }
    }

    fn mounts(&self) -> Option<MountService> {
        self.context.mounts.borrow().clone()
    }
}

/// How often at most services look again because something was published: each look costs the catalogue several
/// statements, and a busy site publishes thousands of files a second.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// Tells services that something was published: at once, then not again for a while.
async fn pass_on(context: Context, shutdown: Shutdown) {
    let wakes = &context.wakes;
    while lead::awake(&wakes.published, Duration::MAX, &shutdown).await {
        wakes.migrate.notify_one();
        wakes.purge.notify_one();
        tokio::select! {
            () = shutdown.stopping() => return,
            () = tokio::time::sleep(LOOK_AT_MOST_EVERY) => {}
        }
    }
}

type Service = futures::future::BoxFuture<'static, ()>;
type Start = Box<dyn Fn(Context, Shutdown) -> Service + Send + Sync>;

/// Everything that needs tapes: one gateway has the library, and so runs them all.
async fn tape(hsm: Hsm, pools: Pools, fence: catalog::Fence, scope: Shutdown) {
    let (context, rebuilds) = (hsm.context.clone(), hsm.rebuilds.clone());
    let down = match context.catalog.drives_down().await {
        Ok(down) => down.into_iter().collect(),
        // Without knowing which drives must not be touched, none is: the lease is asked for again.
        Err(error) => return tracing::warn!(%error, "tape service not begun: drives that are out of use not known"),
    };
    let mounts = MountService::start(
        &scope,
        Arc::clone(&context.fleet),
        context.catalog.clone(),
        Mounts::new(context.config.mount_rules(), fence.epoch).with_down(down),
        pools,
        fence.clone(),
        context.live.sender(),
    );
    context.mounts.send_replace(Some(mounts.clone()));
    context.wakes.stage.notify_one();
    context.wakes.migrate.notify_one();
    tokio::join!(
        stage::run(context.clone(), fence.clone(), mounts.clone(), scope.clone()),
        migrate::run(context.clone(), fence.clone(), mounts.clone(), scope.clone()),
        drain::run(hsm, fence.clone(), mounts.clone(), scope.clone()),
        rebuild::run(context.clone(), rebuilds, fence.clone(), mounts.clone(), scope.clone()),
        scrub_list::run(context.clone(), fence, scope.clone()),
        verify::run(context.clone(), mounts, scope),
    );
    context.mounts.send_replace(None);
    context.change_board(|board| *board = context::Board::default());
}

fn purge_answer(purged: Purged) -> Result<u64, Failure> {
    let refuse = |kind, text: &str| Err(Failure::new(kind, text));
    match purged {
        Purged::Freed { bytes } => Ok(bytes),
        Purged::NotOnDisk => refuse(FailureKind::NotFound, "it has no disk copy"),
        Purged::NotOnTape => refuse(
            FailureKind::Changed,
            "it does not have all its tape copies yet: migrate it first (`penstock admin migrate`)",
        ),
        Purged::Pinned => {
            refuse(FailureKind::Busy, "it is pinned, or promised to somebody who staged it: unpin or release it first")
        }
        Purged::InUse => refuse(FailureKind::Busy, "it was read a moment ago: try again in a minute"),
    }
}

/// How a request ended, for whoever waits for it.
fn end_of(state: &RequestState, bitfile: BitfileId) -> Option<Result<(), Failure>> {
    match state {
        RequestState::Queued | RequestState::Active => None,
        RequestState::Completed => Some(Ok(())),
        RequestState::Failed { reason } => Some(Err(Failure::new(
            FailureKind::NotStaged,
            format!("the file (bitfile {bitfile}) was not brought back from tape: {reason}"),
        ))),
        RequestState::Cancelled => Some(Err(Failure::new(
            FailureKind::Cancelled,
            "the recall from tape was cancelled; ask again to restart it",
        ))),
    }
}
