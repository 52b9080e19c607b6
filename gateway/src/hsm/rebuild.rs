//! Rebuilding: what a cartridge says it holds is taken over by the catalogue.
//!
//! A rebuild is one row of the durable queue for the volume. The tape is mounted to be read only, and listed page by page;
//! each page is one transaction of the catalogue, and doing a page again changes nothing. So a rebuild that is cut begins
//! again at the first container and comes to the same end. Runs where the lease of the tape service is held.
//!
//! Never writes to the tape, and never changes a name that somebody wrote here.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
};

use catalog::{
    Adopted, Adoption, Claim, ClassOfService, Fence, FoundMember, MediumKind, NewWork, Policies, PoolDemand,
    StorageClass, Subject, Timestamp, WorkItem, WorkKind,
};
use daemon::Shutdown;
use tracing::{info, warn};
use wire::{
    admin::{queue::Kind, site::Rebuild},
    extent::ByteRange,
    id::{AccountName, CosName, GroupName, VolumeLabel},
    mover::{Answer, Call, Found, ScanPlace, Scanned},
};

use super::{Hsm, claims, context::Context, turns};
use crate::{
    failure::{Failure, FailureKind},
    mounts::{Mount, MountService, Purpose, Released, Wish},
    movers::MoverError,
};

/// Members that are asked for, and taken over, in one go.
const PAGE: u32 = 500;

/// What was not taken over, of which is told by name.
const MAX_TOLD: usize = 20;

/// How far rebuilds are, or how they ended, as long as this gateway runs.
#[derive(Clone, Default)]
pub(super) struct Rebuilds(Arc<Mutex<BTreeMap<VolumeLabel, Rebuild>>>);

impl Rebuilds {
    fn change(&self, volume: &VolumeLabel, change: impl FnOnce(&mut Rebuild)) {
        // Only whole values are put in: a panic elsewhere leaves it usable.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(table.entry(volume.clone()).or_insert_with(|| Rebuild::new(volume.clone())));
    }

    fn of(&self, volume: &VolumeLabel) -> Rebuild {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(volume).cloned().unwrap_or_else(|| Rebuild::new(volume.clone()))
    }
}

impl Hsm {
    /// Takes over what a cartridge holds, in the background and over restarts.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`] for the volume; [`FailureKind::BadArgument`] for a disk volume, or a pool that no class of
    /// service keeps copies in; those of the catalogue.
    pub async fn rebuild(&self, volume: &VolumeLabel) -> Result<(), Failure> {
        let known = self.context.catalog.volume(volume).await?;
        if known.position().is_none() {
            let text = format!("{volume} is a disk volume: only cartridges say what they hold");
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        let policies = self.context.catalog.policies().await?;
        Target::of(&policies, &known.pool).map_err(|why| Failure::new(FailureKind::BadArgument, why))?;
        let work = NewWork {
            kind: WorkKind::Rebuild,
            subject: Subject::Volume(volume.clone()),
            pool: volume.to_string(),
            bytes: 0,
            not_before: Timestamp::default(),
            deadline: None,
        };
        self.rebuilds.change(volume, |state| *state = Rebuild::new(volume.clone()));
        self.context.catalog.enqueue(vec![work]).await?;
        self.context.wakes.rebuild.notify_one();
        Ok(())
    }

    /// How far the rebuild of a volume is, or how the last one ended.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`] for the volume; those of the catalogue.
    pub async fn rebuild_state(&self, volume: &VolumeLabel) -> Result<Rebuild, Failure> {
        self.context.catalog.volume(volume).await?;
        let mut after = None;
        let mut state = self.rebuilds.of(volume);
        state.waiting_parts = self.context.catalog.strays_on(volume).await?;
        loop {
            let page = self.context.catalog.work_items(Some(WorkKind::Rebuild), after, 1000).await?;
            if let Some(item) = page.iter().find(|item| item.pool == volume.as_str()) {
                state.working = item.due != Timestamp::NEVER;
                state.reason.clone_from(&item.reason);
                return Ok(state);
            }
            after = page.last().map(|item| item.id);
            if page.len() < 1000 {
                state.working = false;
                return Ok(state);
            }
        }
    }
}

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, rebuilds: Rebuilds, fence: Fence, mounts: MountService, shutdown: Shutdown) {
    let begin = |demand: PoolDemand| {
        let rebuilding = VolumeLabel::new(demand.pool).ok().map(|volume| Rebuilding {
            context: context.clone(),
            rebuilds: rebuilds.clone(),
            fence: fence.clone(),
            mounts: mounts.clone(),
            shutdown: shutdown.clone(),
            volume,
        });
        ready(rebuilding.map(|rebuilding| async move { rebuilding.run(demand.oldest).await }))
    };
    turns::by_key(&context, WorkKind::Rebuild, |wakes| &wakes.rebuild, &shutdown, begin).await;
}

/// One volume that is taken over.
struct Rebuilding {
    context: Context,
    rebuilds: Rebuilds,
    fence: Fence,
    mounts: MountService,
    shutdown: Shutdown,
    volume: VolumeLabel,
}

impl Rebuilding {
    async fn run(&self, since: Timestamp) {
        let claim = Claim {
            kind: WorkKind::Rebuild,
            pool: self.volume.to_string(),
            holder: self.context.holder.clone(),
            lease: claims::claim_lease(&self.context),
            max_items: 1,
            max_bytes: u64::MAX,
        };
        let items = match self.context.catalog.claim(claim).await {
            Ok(items) => items,
            Err(error) => return warn!(volume = %self.volume, %error, "rebuild not claimed"),
        };
        let _held = claims::hold(&self.context, &self.shutdown, &items);
        for item in items {
            match self.rebuild(since).await {
                Ok(()) => self.finish(&item).await,
                Err(reason) => {
                    warn!(volume = %self.volume, reason, "rebuild broken off");
                    claims::fail(&self.context, vec![claims::failure(&self.context, &item, reason)]).await;
                }
            }
        }
    }

    async fn finish(&self, item: &WorkItem) {
        if let Err(error) = self.context.catalog.finish(vec![item.ticket()]).await {
            return warn!(volume = %self.volume, %error, "rebuild not finished");
        }
        let done = self.rebuilds.of(&self.volume);
        info!(volume = %self.volume, files = done.files, lost = done.lost, joined = done.joined, "volume rebuilt");
        let text = format!("{} is in the catalogue: {} members read", self.volume, done.members);
        self.tell(done.files + done.lost + done.joined, done.bytes, true, text);
    }

    fn tell(&self, files: u64, bytes: u64, done: bool, text: String) {
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        self.context.live.batch(Kind::Rebuild, Some(&self.volume), files, bytes, done, text);
    }

    async fn rebuild(&self, since: Timestamp) -> Result<(), String> {
        let volume = self.context.catalog.volume(&self.volume).await.map_err(|error| error.to_string())?;
        let policies = self.context.catalog.policies().await.map_err(|error| error.to_string())?;
        let target = Target::of(&policies, &volume.pool)?;
        let mount = self.mount(volume.pool.clone(), since).await?;
        // From the beginning, whatever was done before: it counts as known.
        self.rebuilds.change(&self.volume, |state| *state = Rebuild::new(self.volume.clone()));
        let (mut from, mut how) = (None, Released::Clean);
        let ended = loop {
            if self.shutdown.is_stopping() {
                break Err("the gateway is going down".to_owned());
            }
            let page = match self.page(&mount, from).await {
                Ok(page) => page,
                Err(error) => {
                    let reason = error.to_string();
                    how = Released::after(error);
                    break Err(reason);
                }
            };
            from = page.next;
            if let Err(error) = self.take_over(&policies, &target, page).await {
                break Err(error.to_string());
            }
            if from.is_none() {
                break Ok(());
            }
        };
        mount.release(how);
        ended
    }

    async fn mount(&self, pool: String, since: Timestamp) -> Result<Mount, String> {
        let wish = Wish {
            purpose: Purpose::Verify,
            volumes: vec![self.volume.clone()],
            pool,
            max_drives: usize::MAX,
            priority: 0,
            rank: 0,
            since,
        };
        let mut pending = self.mounts.want(wish).await.map_err(|why| why.to_string())?;
        tokio::select! {
            granted = pending.granted() => granted.map_err(|why| why.to_string()),
            () = self.shutdown.stopping() => Err("the gateway is going down".into()),
        }
    }

    async fn page(&self, mount: &Mount, from: Option<ScanPlace>) -> Result<Scanned, MoverError> {
        let grant = mount.grant();
        let call = Call::Scan { drive: grant.drive.clone(), volume: self.volume.clone(), from, limit: PAGE };
        match self.context.fleet.call(&grant.mover, call).await? {
            Answer::Scanned(page) if progresses(from, page.next) => Ok(page),
            _ => {
                let why = "it does not answer what it was asked".into();
                Err(MoverError::Away { mover: grant.mover.clone(), why })
            }
        }
    }

    async fn take_over(&self, policies: &Policies, target: &Target<'_>, page: Scanned) -> catalog::Result<()> {
        let Scanned { members, unreadable, containers, .. } = page;
        let read = members.len() as u64;
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for member in members {
            let bitfile = member.bitfile;
            match target.member(policies, member) {
                Some(member) => found.push(member),
                None => refused.push((bitfile, "its record on tape is damaged".to_owned())),
            }
        }
        let container = found.first().map(|member| member.extent.place);
        let adoption = Adoption {
            volume: self.volume.clone(),
            storage_class: target.storage_class.name.clone(),
            members: found,
            fence: Some(self.fence.clone()),
        };
        let mut adopted = self.context.catalog.adopt(adoption).await?;
        adopted.refused.append(&mut refused);
        self.note(read, containers, container, unreadable, &adopted);
        Ok(())
    }

    fn note(
        &self,
        read: u64,
        containers: u32,
        place: Option<wire::extent::Place>,
        unreadable: Option<(u32, String)>,
        adopted: &Adopted,
    ) {
        for (bitfile, why) in &adopted.refused {
            warn!(%bitfile, volume = %self.volume, why, "not taken over from tape");
        }
        if let Some((container, why)) = &unreadable {
            warn!(container, volume = %self.volume, why, "container cannot be listed");
        }
        self.rebuilds.change(&self.volume, |state| {
            state.members += read;
            state.containers = state.containers.max(containers);
            if let Some(wire::extent::Place::Tape { container, .. }) = place {
                state.container = container;
            }
            state.files += adopted.files;
            state.lost += adopted.lost;
            state.joined += adopted.joined;
            state.known += adopted.known;
            state.bytes += adopted.bytes;
            state.refused += adopted.refused.len() as u64 + u64::from(unreadable.is_some());
            let told = adopted.refused.iter().map(|(bitfile, why)| format!("bitfile {bitfile}: {why}"));
            let told = told.chain(unreadable.map(|(container, why)| format!("container {container}: {why}")));
            state.problems.extend(told.take(MAX_TOLD.saturating_sub(state.problems.len())));
        });
        let taken = adopted.files + adopted.lost + adopted.joined;
        let text = format!("{taken} of {read} members of {} are taken over, {} were known", self.volume, adopted.known);
        self.tell(taken, adopted.bytes, false, text);
    }
}

/// Whether a page leads on: a mover that goes in circles is not followed.
fn progresses(from: Option<ScanPlace>, next: Option<ScanPlace>) -> bool {
    let order = |place: ScanPlace| (place.container, place.member);
    next.is_none_or(|next| from.is_none_or(|from| order(next) > order(from)))
}

/// Where the copies on a volume belong.
struct Target<'a> {
    storage_class: &'a StorageClass,
    /// What is taken for files whose class the tape does not say, or that is not configured here.
    class: &'a ClassOfService,
}

impl<'a> Target<'a> {
    /// The tape class of a pool, and the class of service with the fewest copies that keeps some of them there.
    fn of(policies: &'a Policies, pool: &str) -> Result<Self, String> {
        let storage_class =
            policies.storage_classes.iter().find(|class| class.kind == MediumKind::Tape && class.pool == pool);
        let storage_class =
            storage_class.ok_or_else(|| format!("no storage class has the pool {pool}: configure one"))?;
        let keeps = |class: &&ClassOfService| {
            let tapes = policies.hierarchy(&class.hierarchy).map(|hierarchy| hierarchy.tapes.as_slice());
            tapes.unwrap_or_default().iter().take(class.copies as usize).any(|tape| *tape == storage_class.name)
        };
        let class = policies.classes.iter().filter(keeps).min_by_key(|class| (class.copies, class.name.clone()));
        let class =
            class.ok_or_else(|| format!("no class of service keeps copies in storage class {}", storage_class.name))?;
        Ok(Self { storage_class, class })
    }

    /// A member as the catalogue takes it; `None` if its numbers are impossible. Names that are none become `root`'s.
    fn member(&self, policies: &Policies, found: Found) -> Option<FoundMember> {
        let range = ByteRange::new(found.offset_bytes, found.extent.length_bytes).ok()?;
        let root = "root is a name";
        let cos = CosName::new(found.cos).ok().filter(|cos| policies.class(cos).is_some());
        Some(FoundMember {
            bitfile: found.bitfile,
            version: Timestamp(i64::try_from(found.version).ok()?),
            path: found.path,
            owner: AccountName::new(found.owner).unwrap_or_else(|_| AccountName::new("root").expect(root)),
            group: GroupName::new(found.group).unwrap_or_else(|_| GroupName::new("root").expect(root)),
            mode: found.mode,
            modified: Timestamp(found.modified_us),
            cos: cos.unwrap_or_else(|| self.class.name.clone()),
            size_bytes: found.bitfile_bytes,
            range,
            extent: found.extent,
            sums: found.sums,
        })
    }
}
