//! Verification: reads copies and compares their sums, throttled, without anybody waiting for it.
//!
//! Work comes from scrubs ([`super::scrub`]): one item for a bitfile, whose copies are read one volume after the other,
//! each time under the volume's name as key, or one item for a whole volume, read page by page. What a batch or page
//! found is recorded before the next one begins, so that a killed gateway's successor goes on from there. Disk volumes are read by their mover, tapes
//! through a mount of the lowest claim. Runs where the lease of the tape service is held.
//!
//! Invariant: what was found bad stays in the queue, given up with the reason, until a person has looked.

use std::{collections::BTreeSet, future::ready, sync::Arc};

use catalog::{
    AfterVerify, Claim, Located, Medium, PoolDemand, Segment, Subject, Verified, VerifiedSegment, WorkItem, WorkKind,
};
use daemon::Shutdown;
use tracing::{error, info, warn};
use wire::{
    admin::{queue::Kind, site::TransferKind},
    checksum::Sums,
    id::{BitfileId, MoverId, VolumeLabel},
    mover::{FaultKind, Outcome, Piece, PieceFault, Sink},
};

use super::{
    claims,
    context::Context,
    copy::{Copy, Step},
    policy::recall::{TapeModel, order_recall},
    turns,
};
use crate::{
    mounts::{Mount, MountService, Purpose, Released, Wish},
    movers::MoverError,
};

/// Bitfiles of a volume that are read in one go.
const PAGE: u32 = 500;

/// Single bitfiles that are read in one go.
const BATCH_ITEMS: u32 = 500;

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, mounts: MountService, shutdown: Shutdown) {
    let begin = |demand: PoolDemand| {
        let verification = VolumeLabel::new(demand.pool).ok().map(|volume| Verification {
            context: context.clone(),
            mounts: mounts.clone(),
            shutdown: shutdown.clone(),
            volume,
        });
        ready(verification.map(|verification| async move { verification.run(demand.oldest).await }))
    };
    turns::by_key(&context, WorkKind::Verify, |wakes| &wakes.verify, &shutdown, begin).await;
}

/// Everything to be read of one volume.
struct Verification {
    context: Context,
    mounts: MountService,
    shutdown: Shutdown,
    volume: VolumeLabel,
}

/// Where the volume is read.
enum Reader {
    Disk(MoverId),
    Tape(Box<Mount>),
}

impl Reader {
    fn mover(&self) -> &MoverId {
        match self {
            Self::Disk(mover) => mover,
            Self::Tape(mount) => &mount.grant().mover,
        }
    }
}

impl Verification {
    async fn run(&self, since: catalog::Timestamp) {
        let reader = match self.reader(since).await {
            Ok(reader) => reader,
            Err(reason) => return self.put_off(&reason).await,
        };
        let mut how = Released::Clean;
        while !self.shutdown.is_stopping() {
            match self.batch(&reader).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    warn!(volume = %self.volume, %error, "verification broken off");
                    how = Released::after(error);
                    break;
                }
            }
        }
        if let Reader::Tape(mount) = reader {
            mount.release(how);
        }
    }

    async fn reader(&self, since: catalog::Timestamp) -> Result<Reader, String> {
        let volume = self.context.catalog.volume(&self.volume).await.map_err(|error| error.to_string())?;
        if let Medium::Disk { mover, .. } = volume.medium {
            let snapshot = Arc::clone(&self.context.fleet.watch().borrow());
            let up = snapshot.get(&mover).is_some_and(|view| view.takes_work());
            return if up { Ok(Reader::Disk(mover)) } else { Err(format!("mover {mover} is away or drained")) };
        }
        let wish = Wish {
            purpose: Purpose::Verify,
            volumes: vec![self.volume.clone()],
            pool: volume.pool,
            max_drives: usize::MAX,
            priority: i32::MIN,
            rank: 0,
            since,
        };
        let mut pending = self.mounts.want(wish).await.map_err(|why| why.to_string())?;
        tokio::select! {
            granted = pending.granted() => granted.map(|mount| Reader::Tape(Box::new(mount))).map_err(|why| why.to_string()),
            () = self.shutdown.stopping() => Err("the gateway is going down".into()),
        }
    }

    async fn claim(&self) -> Vec<WorkItem> {
        let claim = Claim {
            kind: WorkKind::Verify,
            pool: self.volume.to_string(),
            holder: self.context.holder.clone(),
            lease: claims::claim_lease(&self.context),
            max_items: BATCH_ITEMS,
            max_bytes: self.context.config.batch_bytes.bytes(),
        };
        match self.context.catalog.claim(claim).await {
            Ok(items) => items,
            Err(error) => {
                warn!(volume = %self.volume, %error, "verification not claimed");
                Vec::new()
            }
        }
    }

    async fn put_off(&self, reason: &str) {
        info!(volume = %self.volume, reason, "verification put off");
        let items = self.claim().await;
        claims::fail(
            &self.context,
            items.iter().map(|item| claims::failure(&self.context, item, reason.to_owned())).collect(),
        )
        .await;
    }

    /// Reads a batch; whether there may be more.
    async fn batch(&self, reader: &Reader) -> Result<bool, MoverError> {
        let items = self.claim().await;
        if items.is_empty() {
            return Ok(false);
        }
        let _held = claims::hold(&self.context, &self.shutdown, &items);
        let (mut whole, mut single) = (Vec::new(), Vec::new());
        for item in items {
            match item.subject {
                Subject::Bitfile(bitfile) => single.push((item, bitfile)),
                Subject::Volume(_) | Subject::File { .. } => whole.push(item),
            }
        }
        if let Err((error, left)) = self.bitfiles(reader, single).await {
            let reason = error.to_string();
            claims::fail(
                &self.context,
                left.iter().map(|item| claims::failure(&self.context, item, reason.clone())).collect(),
            )
            .await;
            return Err(error);
        }
        for item in whole {
            self.whole_volume(reader, &item).await?;
        }
        Ok(true)
    }

    /// Reads the copies that single bitfiles have on this volume, and passes each on to the next volume it is on.
    async fn bitfiles(
        &self,
        reader: &Reader,
        items: Vec<(WorkItem, BitfileId)>,
    ) -> Result<(), (MoverError, Vec<WorkItem>)> {
        let ids: Vec<BitfileId> = items.iter().map(|(_, bitfile)| *bitfile).collect();
        let located = match self.context.catalog.locate(&ids).await {
            Ok(located) => located,
            Err(error) => {
                warn!(%error, "bitfiles not looked up");
                return Ok(()); // The claims run out.
            }
        };
        let rate = self.rate(items.iter().filter_map(|(item, _)| item.scrub).collect()).await;
        let found = match self.read(reader, &located, rate).await {
            Ok(found) => found,
            Err(error) => return Err((error, items.into_iter().map(|(item, _)| item).collect())),
        };
        let verified = items.iter().map(|(item, bitfile)| {
            let located = located.iter().find(|located| located.bitfile.id == *bitfile);
            let found: Vec<_> = found.iter().filter(|found| found.bitfile == *bitfile).cloned().collect();
            let next = after(&self.volume, located, &found);
            Verified { ticket: item.ticket(), found, next }
        });
        self.record(verified.collect()).await;
        Ok(())
    }

    /// The most bytes a second that these scrubs want together.
    async fn rate(&self, scrubs: BTreeSet<u64>) -> Option<u64> {
        if scrubs.is_empty() {
            return None;
        }
        match self.context.catalog.scrubs().await {
            Ok(all) => all.iter().filter(|scrub| scrubs.contains(&scrub.id)).filter_map(|scrub| scrub.rate).min(),
            Err(error) => {
                warn!(%error, "rates of scrubs not looked up; the usual one holds");
                None
            }
        }
    }

    /// Notes what was found. What cannot be noted is read again when its claim runs out.
    async fn record(&self, verified: Vec<Verified>) -> bool {
        match self.context.catalog.record_verified(verified).await {
            Ok(in_force) => !in_force.is_empty(),
            Err(error) => {
                warn!(volume = %self.volume, %error, "verification not noted");
                false
            }
        }
    }

    /// Reads a volume from the item's place on.
    async fn whole_volume(&self, reader: &Reader, item: &WorkItem) -> Result<(), MoverError> {
        let (mut place, mut bad) = (item.place.clone(), self.bad_so_far(item).await);
        while !self.shutdown.is_stopping() {
            let page = self.context.catalog.bitfiles_on(&self.volume, place.as_deref(), PAGE).await;
            let (located, next) = match page {
                Ok(page) => page,
                Err(error) => {
                    claims::fail(&self.context, vec![claims::failure(&self.context, item, error.to_string())]).await;
                    return Ok(());
                }
            };
            let rate = self.rate(item.scrub.into_iter().collect()).await;
            let found = match self.read(reader, &located, rate).await {
                Ok(found) => found,
                Err(error) => {
                    let failure = claims::failure(&self.context, item, error.to_string());
                    claims::fail(&self.context, vec![failure]).await;
                    return Err(error);
                }
            };
            bad += found.iter().filter(|found| found.problem.is_some()).count() as u64;
            place.clone_from(&next);
            let next = match next {
                Some(place) => AfterVerify::GoOn { place },
                None if bad == 0 => AfterVerify::Done,
                None => AfterVerify::GiveUp {
                    reason: format!("{bad} segments on {} are damaged or cannot be read", self.volume),
                },
            };
            // A claim that is another's now is not worked on any more.
            let recorded = self.record(vec![Verified { ticket: item.ticket(), found, next }]).await;
            if !recorded || place.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// What was found bad on the volume before its place: the volume is all that such a scrub reads.
    async fn bad_so_far(&self, item: &WorkItem) -> u64 {
        let Some(scrub) = item.scrub.filter(|_| item.place.is_some()) else { return 0 };
        self.context.catalog.scrub(scrub).await.map_or(0, |scrub| scrub.bad)
    }

    /// Reads what these bitfiles have on this volume, and says of each segment how it is.
    async fn read(
        &self,
        reader: &Reader,
        located: &[Located],
        rate: Option<u64>,
    ) -> Result<Vec<VerifiedSegment>, MoverError> {
        let here: Vec<(BitfileId, &Segment)> = located
            .iter()
            .flat_map(|located| located.copies.iter().map(move |copy| (located.bitfile.id, copy)))
            .flat_map(|(bitfile, copy)| copy.segments.iter().map(move |segment| (bitfile, segment)))
            .filter(|(_, segment)| segment.extent.volume == self.volume)
            .collect();
        if here.is_empty() {
            return Ok(Vec::new());
        }
        let order = order_recall(here.iter().map(|(_, segment)| &segment.extent), TapeModel::Linear);
        let (mut pieces, mut at) = (Vec::with_capacity(here.len()), 0u64);
        for index in &order {
            let (bitfile, segment) = here[*index];
            pieces.push(Piece {
                offset_bytes: at,
                extent: segment.extent.clone(),
                bitfile,
                sums: Some(Sums { adler32: segment.adler32, crc32c: segment.crc32c, md5: None, sha256: None }),
            });
            at += segment.range.length();
        }
        let offsets: Vec<u64> = pieces.iter().map(|piece| piece.offset_bytes).collect();
        let mover = reader.mover().clone();
        let rate_limit = Some(rate.unwrap_or(self.context.config.scrub_rate.bytes()).max(1));
        let copy =
            Copy { source: mover.clone(), pieces, target: mover.clone(), sink: Sink::Verify, bytes: at, rate_limit };
        let mut copying = copy.start(self.context.fleet.as_ref()).await?;
        let shown = self.context.live.track(copying.id(), TransferKind::Verify, vec![mover], at);
        let outcome = loop {
            match copying.next().await {
                Step::Progress(bytes) => shown.moved(bytes),
                Step::Durable(_) => {}
                Step::Done(Ok(outcome)) => break outcome,
                Step::Done(Err((error, outcome))) => {
                    // One bad piece may end a job: what it says of pieces still counts.
                    let about_data = matches!(error.fault(), Some(FaultKind::Corrupt | FaultKind::NotFound));
                    if outcome.failed.is_empty() || !about_data {
                        return Err(error);
                    }
                    break outcome;
                }
            }
        };
        copying.settle();
        let outcome = Outcome { failed: self.still_there(&here, &order, &offsets, outcome.failed).await, ..outcome };
        let now = self.context.catalog.now();
        let found = order.iter().zip(offsets).map(|(index, offset)| {
            let (bitfile, segment) = here[*index];
            let fault = outcome.failed.iter().find(|fault| fault.offset_bytes == offset);
            let problem = fault.map(|fault| fault.fault.message.clone());
            if let Some(problem) = &problem {
                error!(%bitfile, volume = %self.volume, problem, "copy is damaged");
                self.context.remember_bad(bitfile, &self.volume, problem);
            }
            let bytes = segment.range.length();
            VerifiedSegment { bitfile, volume: self.volume.clone(), bytes, problem, checked: now }
        });
        let found: Vec<VerifiedSegment> = found.collect();
        let text = format!("read {} segments of {}", found.len(), self.volume);
        self.context.live.batch(Kind::Verify, Some(&self.volume), found.len(), at, true, text);
        Ok(found)
    }
}

impl Verification {
    /// Faults of segments that lie here still: what was purged, moved or deleted while it was read is not damaged.
    async fn still_there(
        &self,
        here: &[(BitfileId, &Segment)],
        order: &[usize],
        offsets: &[u64],
        failed: Vec<PieceFault>,
    ) -> Vec<PieceFault> {
        if failed.is_empty() {
            return failed;
        }
        let of = |fault: &PieceFault| {
            let at = offsets.iter().position(|offset| *offset == fault.offset_bytes)?;
            here.get(*order.get(at)?).copied()
        };
        let ids: Vec<BitfileId> = failed.iter().filter_map(|fault| Some(of(fault)?.0)).collect();
        let Ok(located) = self.context.catalog.locate(&ids).await else { return failed };
        let there = |(bitfile, segment): (BitfileId, &Segment)| {
            let found = located.iter().find(|located| located.bitfile.id == bitfile);
            found.is_some_and(|found| found.copies.iter().any(|copy| copy.segments.contains(segment)))
        };
        failed.into_iter().filter(|fault| of(fault).is_none_or(there)).collect()
    }
}

/// What is next for a bitfile of which `found` was read on `volume`; `None` for one that was deleted meanwhile.
fn after(volume: &VolumeLabel, located: Option<&Located>, found: &[VerifiedSegment]) -> AfterVerify {
    if let Some(problem) = found.iter().find_map(|found| found.problem.clone()) {
        return AfterVerify::GiveUp { reason: problem };
    }
    let volumes = located.map(volumes_of).unwrap_or_default();
    let next = volumes.iter().position(|one| one == volume).and_then(|at| volumes.get(at + 1));
    next.map_or(AfterVerify::Done, |next| AfterVerify::Volume {
        volume: next.clone(),
        reason: format!("good on {volume}; other copies follow"),
    })
}

/// The volumes a bitfile has segments on, in the order in which they are verified.
pub(super) fn volumes_of(located: &Located) -> Vec<VolumeLabel> {
    let mut volumes: Vec<VolumeLabel> = Vec::new();
    for segment in located.copies.iter().flat_map(|copy| &copy.segments) {
        if !volumes.contains(&segment.extent.volume) {
            volumes.push(segment.extent.volume.clone());
        }
    }
    volumes
}
