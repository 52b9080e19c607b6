//! Migration: disk to tape, in as many copies as the class of service wants, each on a cartridge of its own.
//!
//! - [`mod@gather`]: what was claimed, looked up and packed in containers.
//! - [`mod@write`]: one container on one cartridge, and its record in the catalogue.
//!
//! This file is the manager: it decides when a class of service is worth a mount, and runs one migration per class at a
//! time. Runs where the lease of the tape service is held.
//!
//! Invariant: a file counts as on tape only after the mover has reported its container as committed and the catalogue
//! has recorded it, under the claim and the lease in force.

mod gather;
mod write;

use std::sync::Arc;

use catalog::{
    AfterFailure, Claim, Fence, Located, Medium, PoolDemand, Ticket, VolumeState, WorkFailure, WorkItem, WorkKind,
};
use daemon::Shutdown;
use tracing::{info, warn};
use wire::{
    admin::queue::Kind,
    id::{CosName, VolumeLabel},
};

use self::{
    gather::{File, Job, gather, look_up},
    write::{Wrote, write},
};
use super::{
    claims,
    context::{Context, Picture},
    policy::{
        migrate::{Because, Due, Part, choose_volumes, due},
        purge::{Fill, Marks, pressure},
    },
    turns,
};
use crate::mounts::{MountService, Purpose, Released, Wish};

/// So many cartridges may fail under one batch before it is put off.
const MAX_CARTRIDGES: u32 = 4;

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, fence: Fence, mounts: MountService, shutdown: Shutdown) {
    let (of, fence, mounts, stop) = (&context, &fence, &mounts, &shutdown);
    let begin = |demand: PoolDemand| async move {
        let because = worth_a_mount(of, &demand).await?;
        info!(cos = demand.pool, items = demand.items, bytes = demand.bytes, because = because.word(), "migration");
        let migration = Migration {
            context: of.clone(),
            fence: fence.clone(),
            mounts: mounts.clone(),
            shutdown: stop.clone(),
            class: demand.pool,
        };
        Some(async move { migration.run().await })
    };
    turns::by_key(&context, WorkKind::Migrate, |wakes| &wakes.migrate, &shutdown, begin).await;
}

/// Why what waits of a class of service is worth a mount now, if it is.
async fn worth_a_mount(context: &Context, demand: &PoolDemand) -> Option<Because> {
    let pressed = context.picture().await.is_ok_and(|picture| under_pressure(context, &picture));
    let hurried = context.is_hurried(&demand.pool);
    match due(demand, &context.config.trigger(), pressed, context.catalog.now()) {
        Due::Now(because) => Some(because),
        Due::At(_) => hurried.then_some(Because::Asked),
        Due::Nothing => None,
    }
}

/// Whether any disk volume is about to reach its high water mark.
pub(super) fn under_pressure(context: &Context, picture: &Picture) -> bool {
    let snapshot = Arc::clone(&context.fleet.watch().borrow());
    picture.volumes.iter().any(|volume| {
        let Medium::Disk { used_bytes, .. } = volume.medium else { return false };
        let Some(class) = picture.policies.storage_classes.iter().find(|class| class.pool == volume.pool) else {
            return false;
        };
        let status = snapshot.volume(&volume.label).map(|(_, status)| status);
        let fill = Fill {
            capacity_bytes: status.map_or(volume.capacity_bytes, |status| status.capacity_bytes),
            used_bytes: status.map_or(used_bytes, |status| status.used_bytes + status.reserved_bytes),
            leaving_bytes: 0,
            wanted_bytes: context.wanted_space(&volume.pool),
        };
        pressure(fill, Marks { high: class.high_water, low: class.low_water })
    })
}

/// One batch of one class of service, or of what leaves a cartridge.
pub(super) struct Migration {
    pub(super) context: Context,
    pub(super) fence: Fence,
    pub(super) mounts: MountService,
    pub(super) shutdown: Shutdown,
    /// Whose batch it is, for the log.
    pub(super) class: String,
}

/// A tape copy that leaves its cartridge.
pub(super) struct Moved {
    /// The claim of its repack.
    pub(super) item: WorkItem,
    /// Its bitfile.
    pub(super) located: Located,
    /// The disk segments that hold what it has there.
    pub(super) parts: Vec<Part>,
}

impl Migration {
    async fn run(&self) {
        let claim = Claim {
            kind: WorkKind::Migrate,
            pool: self.class.clone(),
            holder: self.context.holder.clone(),
            lease: claims::claim_lease(&self.context),
            max_items: self.context.config.batch_files,
            max_bytes: self.context.config.batch_bytes.bytes(),
        };
        let items = match self.context.catalog.claim(claim).await {
            Ok(items) if items.is_empty() => return,
            Ok(items) => items,
            Err(error) => {
                warn!(cos = self.class, %error, "migration not claimed");
                return;
            }
        };
        let _held = claims::hold(&self.context, &self.shutdown, &items);
        if let Err((error, items)) = self.batch(items).await {
            warn!(cos = self.class, %error, "migration put off");
            let reason = error.to_string();
            claims::fail(
                &self.context,
                items.iter().map(|item| claims::failure(&self.context, item, reason.clone())).collect(),
            )
            .await;
        }
    }

    async fn batch(&self, items: Vec<WorkItem>) -> Result<(), (String, Vec<WorkItem>)> {
        let (files, settled) = match gather(&self.context, &items).await {
            Ok(gathered) => gathered,
            Err(error) => return Err((error.to_string(), items)),
        };
        claims::fail(&self.context, settled.failures).await;
        if !settled.finished.is_empty()
            && let Err(error) = self.context.catalog.finish(settled.finished).await
        {
            warn!(%error, "work that is done not finished");
        }
        let Some(class) = CosName::new(self.class.clone()).ok() else { return Ok(()) };
        let picture = self.context.picture().await.map_err(|error| (error.to_string(), open_items(&files)))?;
        let tapes = picture
            .policies
            .class(&class)
            .and_then(|class| Some((class.copies, picture.policies.hierarchy(&class.hierarchy)?)))
            .map(|(copies, hierarchy)| hierarchy.tapes.iter().take(copies as usize).cloned().collect::<Vec<_>>())
            .unwrap_or_default();
        let mut files = files;
        for (copy, tape) in (1u32..).zip(tapes) {
            let Some(storage) = picture.policies.storage_class(&tape) else {
                return Err((format!("storage class {tape} is not defined"), open_items(&files)));
            };
            self.copy(copy, storage, &mut files).await;
        }
        // Whoever has all copies was finished by the record of the last; the rest failed on the way, or lacks nothing.
        Ok(())
    }

    /// Writes what leaves a cartridge to others.
    pub(super) async fn repack(&self, copy: u32, storage: &catalog::StorageClass, moved: Vec<Moved>) {
        let items: Vec<WorkItem> = moved.iter().map(|moved| moved.item.clone()).collect();
        let mut files = match look_up(&self.context, moved).await {
            Ok(files) => files,
            Err(error) => {
                let reason = error.to_string();
                let failures = items.iter().map(|item| claims::failure(&self.context, item, reason.clone()));
                return claims::fail(&self.context, failures.collect()).await;
            }
        };
        let job = Job::new(Kind::Repack, copy, storage.name.clone(), &files, &self.context.config.limits());
        self.write_out(job, storage, &mut files).await;
        let refused = |item: &WorkItem| WorkFailure {
            ticket: item.ticket(),
            reason: "the catalogue did not take it where it was written".into(),
            next: AfterFailure::Retry(claims::pause(item.failures)),
        };
        claims::fail(&self.context, open_items(&files).iter().map(refused).collect()).await;
    }

    /// Writes one copy of all files.
    async fn copy(&self, copy: u32, storage: &catalog::StorageClass, files: &mut [File]) {
        let job = Job::new(Kind::Migrate, copy, storage.name.clone(), files, &self.context.config.limits());
        self.write_out(job, storage, files).await;
    }

    /// Writes a job, on as many cartridges as it takes.
    async fn write_out(&self, mut job: Job, storage: &catalog::StorageClass, files: &mut [File]) {
        let mut spent: Vec<VolumeLabel> = Vec::new();
        let mut cartridges = 0;
        while !job.is_done() && !self.shutdown.is_stopping() {
            if cartridges == MAX_CARTRIDGES {
                self.put_off(&job, files, "too many cartridges failed one after the other").await;
                return;
            }
            let volumes = match self.context.catalog.volumes().await {
                Ok(volumes) => volumes,
                Err(error) => return self.put_off(&job, files, &error.to_string()).await,
            };
            let mut avoid = job.avoid(files);
            avoid.extend(spent.iter().cloned());
            let candidates = choose_volumes(&volumes, &storage.pool, job.next_bytes(), &avoid);
            let wish = Wish {
                purpose: if job.kind() == Kind::Repack { Purpose::Repack } else { Purpose::Migrate },
                volumes: candidates,
                pool: storage.pool.clone(),
                max_drives: self.context.config.pool_drives as usize,
                priority: 0,
                rank: 0,
                since: job.oldest(files),
            };
            let granted = match self.mounts.want(wish).await {
                Ok(mut pending) => tokio::select! {
                    granted = pending.granted() => granted,
                    () = self.shutdown.stopping() => return self.give_back(&job, files).await,
                },
                Err(why) => Err(why),
            };
            let mount = match granted {
                Ok(mount) => mount,
                Err(why) => return self.put_off(&job, files, &why.to_string()).await,
            };
            let volume = mount.grant().volume.clone();
            let how = loop {
                if job.is_done() || self.shutdown.is_stopping() || !job.fits(files, &volume) {
                    break Released::Clean;
                }
                let wrote = tokio::select! {
                    wrote = write(&self.context, &self.fence, mount.grant(), &mut job, files) => wrote,
                    () = mount.revoked() => Wrote::Broken { how: Released::Doubt, spent: false },
                };
                match wrote {
                    Wrote::All => cartridges = 0,
                    Wrote::Full => {
                        self.seal(&volume, VolumeState::Full, "its end was reached").await;
                        spent.push(volume.clone());
                        break Released::Clean;
                    }
                    Wrote::Refused(reason) => {
                        self.seal(&volume, VolumeState::ReadOnly, &reason).await;
                        spent.push(volume.clone());
                        cartridges += 1;
                        break Released::Doubt;
                    }
                    Wrote::Broken { how, spent: bad } => {
                        cartridges += 1;
                        if bad {
                            spent.push(volume.clone());
                        }
                        break how;
                    }
                    Wrote::Unrecorded(reason) => {
                        mount.release(Released::Doubt);
                        return self.put_off(&job, files, &reason).await;
                    }
                }
            };
            mount.release(how);
        }
        if !job.is_done() {
            self.give_back(&job, files).await;
        }
    }

    async fn seal(&self, volume: &VolumeLabel, state: VolumeState, reason: &str) {
        info!(%volume, state = state.name(), reason, "cartridge is written no more");
        if let Err(error) = self.context.catalog.set_volume_state(volume, state, reason).await {
            warn!(%volume, %error, "state of the cartridge not changed");
        }
        self.mounts.refresh().await;
    }

    /// What is not written is tried again later.
    async fn put_off(&self, job: &Job, files: &mut [File], reason: &str) {
        warn!(cos = self.class, copy = job.copy(), reason, "migration put off");
        self.context.live.batch(job.kind(), None, job.open(files).len(), 0, true, format!("put off: {reason}"));
        let later = |item: &WorkItem| WorkFailure {
            ticket: item.ticket(),
            reason: reason.to_owned(),
            // Never given up: a file that is not on tape is a duty, and what is missing may come back at any time.
            next: AfterFailure::Retry(claims::pause(item.failures)),
        };
        claims::fail(&self.context, job.close(files).iter().map(later).collect()).await;
    }

    async fn give_back(&self, job: &Job, files: &mut [File]) {
        let release = |item: &WorkItem| WorkFailure {
            ticket: item.ticket(),
            reason: "the gateway is going down".into(),
            next: AfterFailure::Release,
        };
        claims::fail(&self.context, job.close(files).iter().map(release).collect()).await;
    }
}

fn open_items(files: &[File]) -> Vec<WorkItem> {
    files.iter().filter(|file| file.is_open()).map(|file| file.item().clone()).collect()
}

/// Work that came to an end while it was looked up.
#[derive(Default)]
struct Settled {
    failures: Vec<WorkFailure>,
    finished: Vec<Ticket>,
}
