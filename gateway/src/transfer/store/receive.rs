//! The movers' part of an upload: from chosen volumes to bytes on stable storage.
//!
//! A volume that refuses before anything came is replaced by another. An upload that is stopped or cut is followed to
//! its movers' ends, since what they have may be gone on with.

use std::{collections::BTreeSet, time::Duration};

use tokio::{sync::OwnedMutexGuard, time::timeout};
use wire::{
    extent::ByteRange,
    id::{ChannelId, FileId, MoverId, VolumeLabel},
    mover::{BodyReport, Eof, FaultKind, Framing, Job, NewFile, Sink, Source, VolumeHealth, Written},
};

use super::Upload;
use crate::{
    failure::{Failure, FailureKind},
    movers::{Channel, MoverError},
    transfer::{
        Progress, Side, Step, StoreMode, Summary,
        crew::{Crew, Duty, News},
        plan::{
            PortView, RelayReason, SideView,
            write::{self, Candidate, Receiver, Writing},
        },
        port::{Ends, door_of},
    },
};

/// Volumes that are tried before the first byte came.
const ATTEMPTS: usize = 4;

/// How long movers get to say what they have of an upload that was cut.
const WINDING_UP: Duration = Duration::from_secs(20);

/// All bytes came.
pub(super) struct Got {
    pub(super) crew: Crew,
    pub(super) written: Vec<Written>,
    pub(super) summary: Summary,
    /// What an HTTP client's body said of itself.
    pub(super) body: Option<Box<BodyReport>>,
}

/// They did not.
pub(super) struct Cut {
    pub(super) failure: Failure,
    /// What the mover that broke off said.
    pub(super) kind: Option<FaultKind>,
    pub(super) crew: Crew,
    pub(super) written: Vec<Written>,
}

/// Lets movers receive the upload; outer errors come before any byte did.
pub(super) async fn receive(upload: &Upload<'_>) -> Result<Result<Got, Cut>, Failure> {
    let task = upload.task;
    let mut ends = Some(task.unless_stopped(task.port.lock()).await?);
    let mut avoid = BTreeSet::new();
    let mut opened = false;
    for attempt in 1.. {
        let receiving = begin(upload, ends.as_mut().expect("kept until bytes came"), &avoid, &mut opened).await;
        let (failure, volumes) = match receiving {
            Ok(receiving) => {
                let volumes = receiving.volumes.clone();
                match receiving.follow(upload, &mut ends).await {
                    Err(cut) if attempt < ATTEMPTS && ends.is_some() && cut.retry => (cut.cut.failure, volumes),
                    Err(cut) => {
                        if let Some(mut ends) = ends {
                            ends.close();
                        }
                        return Ok(Err(cut.cut));
                    }
                    Ok(got) => return Ok(Ok(got)),
                }
            }
            Err((failure, volumes)) if attempt < ATTEMPTS && !volumes.is_empty() => (failure, volumes),
            Err((failure, _)) => return Err(failure),
        };
        tracing::info!(reason = %failure, ?volumes, "another volume is tried");
        avoid.extend(volumes);
    }
    unreachable!("the last attempt returns")
}

/// Movers that receive.
struct Receiving {
    crew: Crew,
    /// Between movers; open until the end.
    wires: Vec<Channel>,
    volumes: Vec<VolumeLabel>,
    movers: Vec<MoverId>,
    stripes: u16,
    relays: Vec<RelayReason>,
}

/// An upload that was cut, and whether nothing had come, so that another volume may take it.
struct CutEarly {
    cut: Cut,
    retry: bool,
}

/// Chooses volumes and starts their movers. Volumes come back beside a failure that another may not have.
async fn begin(
    upload: &Upload<'_>,
    ends: &mut Ends,
    avoid: &BTreeSet<VolumeLabel>,
    opened: &mut bool,
) -> Result<Receiving, (Failure, Vec<VolumeLabel>)> {
    let task = upload.task;
    let plain = |failure: Failure| (failure, Vec::new());
    let view = ends.view(&task.port.spec).map_err(plain)?;
    let receivers = plan(upload, &view, avoid).await.map_err(plain)?;
    let volumes: Vec<_> = receivers.iter().map(|receiver| receiver.volume.clone()).collect();
    let at = |receiver: &Receiver| match &receiver.through {
        Some((mover, _)) => (mover.clone(), receiver.end),
        None => (receiver.mover.clone(), receiver.end),
    };
    let need: Vec<_> = receivers.iter().map(at).collect();
    let ready = task.unless_stopped(ends.open(&task.inner, &task.port.spec, &need)).await.map_err(plain)?;
    let ready = ready.map_err(|failure| (failure, volumes.clone()))?;
    let mut movers: Vec<_> = receivers.iter().map(|receiver| receiver.mover.clone()).collect();
    movers.extend(need.iter().map(|(mover, _)| mover.clone()));
    movers.sort();
    movers.dedup();
    task.card().planned(movers.clone(), upload.what.size_bytes);
    let http = matches!(task.port.spec.side, Side::Http { .. });
    if let Some(addresses) = ready.tell.filter(|_| !http) {
        task.say(Step::Passive(addresses)).await;
    }
    let door = need.first().map(|(mover, _)| mover.clone()).zip(ready.channels.first().copied()).filter(|_| http);
    let stripes = u16::try_from(receivers.len()).unwrap_or(u16::MAX);
    let mut receiving =
        Receiving { crew: Crew::default(), wires: Vec::new(), volumes, movers, stripes, relays: Vec::new() };
    let started = receiving.start(upload, receivers, &ready.channels);
    match task.unless_stopped(started).await {
        Err(stopped) => return Err(plain(stopped)),
        Ok(Err(failure)) => return Err((failure, receiving.volumes)),
        Ok(Ok(())) => {}
    }
    if !std::mem::replace(opened, true) {
        if let Some((mover, channel)) = door {
            task.say(Step::Door { mover, channel }).await;
        }
        task.say(Step::Opening { reused: ready.reused, bytes: upload.what.size_bytes }).await;
    }
    Ok(receiving)
}

/// Who receives, by what is known of volumes now; if that is nothing, by what the catalogue knows this moment.
async fn plan(upload: &Upload<'_>, view: &PortView, avoid: &BTreeSet<VolumeLabel>) -> Result<Vec<Receiver>, Failure> {
    let inner = &upload.task.inner;
    let turn = inner.next_turn();
    let mut writing = Writing {
        candidates: Vec::new(),
        width: if upload.extra.any() { 1 } else { upload.disk.stripe_width },
        block_bytes: upload.disk.block_bytes,
        bytes: upload.what.size_bytes,
        turn,
    };
    for newer in [false, true] {
        let stock = inner.shelf.stock(newer).await?;
        let snapshot = inner.movers.snapshot();
        // A client that has been told a mover's door stays with it, whatever mover is behind it.
        let reached = |mover: &crate::movers::MoverView| match (&upload.task.port.spec.side, &view.side) {
            (Side::Http { secure, .. }, SideView::Untold { .. }) => door_of(mover, *secure).is_some(),
            _ => true,
        };
        let good = snapshot.volumes().filter(|(mover, volume)| {
            mover.takes_work()
                && reached(mover)
                && volume.health == VolumeHealth::Up
                && stock.takes(&volume.volume, &upload.disk.pool)
                && !avoid.contains(&volume.volume)
        });
        let candidate = |(mover, volume): (&crate::movers::MoverView, &wire::mover::VolumeStatus)| Candidate {
            volume: volume.volume.clone(),
            mover: mover.mover.clone(),
            free_bytes: volume.free_bytes().saturating_sub(inner.limits.volume_reserve_bytes),
            load: inner.movers.load(&mover.mover),
        };
        writing.candidates = good.map(candidate).collect();
        if !writing.candidates.is_empty() {
            break;
        }
    }
    write::plan(&writing, view).inspect_err(|failure| {
        if let (FailureKind::NoSpace, Some(stager)) = (failure.kind(), inner.stager.get()) {
            // What is never filled counts as taken: with that much and the reserve free, it fits.
            let size_bytes = upload.what.size_bytes.unwrap_or_default();
            stager.no_room(&upload.disk.pool, size_bytes.saturating_add(inner.limits.volume_reserve_bytes));
        }
    })
}

impl Receiving {
    async fn start(
        &mut self,
        upload: &Upload<'_>,
        receivers: Vec<Receiver>,
        channels: &[ChannelId],
    ) -> Result<(), Failure> {
        let (inner, spec) = (&upload.task.inner, &upload.task.port.spec);
        let count = u32::try_from(receivers.len()).unwrap_or(u32::MAX);
        let first_file = inner.catalog.next_ids(count).await?.start;
        let whole = matches!(upload.what.mode, StoreMode::Whole) && receivers.len() == 1;
        let expected = upload.what.size_bytes.filter(|_| whole).and_then(|bytes| ByteRange::new(0, bytes).ok());
        let rate_limit = spec.rate_limit.map(|rate| (rate / u64::from(count.max(1))).max(1));
        for (number, (receiver, channel)) in receivers.into_iter().zip(channels).enumerate() {
            let stripe = u16::try_from(number).unwrap_or(u16::MAX);
            let sink = Sink::File(NewFile {
                volume: receiver.volume,
                file: FileId(first_file + number as u64),
                base_bytes: upload.foundation.floor_bytes,
                reserve_bytes: receiver.reserve_bytes,
                have: Vec::new(),
            });
            let job = |channel, expected, sink| Job {
                source: Source::Channel { channel, expected },
                sink,
                extra_sums: upload.extra,
                rate_limit,
            };
            let Some((through, reason)) = receiver.through else {
                let transfer = inner.movers.start(&receiver.mover, job(*channel, expected, sink)).await?;
                self.crew.join(Duty::Client(stripe), transfer);
                continue;
            };
            let inside = inner.listen_inside(&receiver.mover, Framing::ModeE).await?;
            let out = inner.connect_inside(&through, &inside).await?;
            let behind = inner.movers.start(&receiver.mover, job(inside.id(), expected, sink)).await?;
            self.crew.join(Duty::Behind(stripe), behind);
            let mut relay = job(*channel, expected, Sink::Channel { channel: out.id(), eof: Eof::Own });
            relay.extra_sums = wire::checksum::ExtraSums::default();
            self.crew.join(Duty::Relay, inner.movers.start(&through, relay).await?);
            self.wires.extend([inside, out]);
            self.relays.push(reason);
        }
        Ok(())
    }

    /// Follows all to their end. Gives the client's connections back as soon as they have given everything.
    async fn follow(mut self, upload: &Upload<'_>, ends: &mut Option<OwnedMutexGuard<Ends>>) -> Result<Got, CutEarly> {
        let task = upload.task;
        let (mut written, mut body) = (Vec::new(), None);
        let mut relayed = 0;
        let mut cut: Option<(Failure, Option<FaultKind>, bool)> = None;
        let mut moved = false;
        loop {
            let open = ends.is_some();
            let news = tokio::select! {
                biased;
                failure = task.stopped(), if open && cut.is_none() => {
                    self.crew.cancel();
                    cut = Some((failure, None, false));
                    continue;
                }
                () = task.inner.shutdown.cutting(), if !open && cut.is_none() => {
                    cut = Some((crate::transfer::going_down(), None, false));
                    continue;
                }
                news = next(&mut self.crew, cut.is_some()) => news,
            };
            match news {
                Ok(None) => break,
                // They do not answer: what they made is looked into when they do.
                Err(_) => break,
                Ok(Some(News::Progress { duty, bytes, ranges })) => {
                    moved |= bytes > 0;
                    task.card().moved(self.crew.client_bytes());
                    if let Duty::Client(stripe) | Duty::Behind(stripe) = duty {
                        let ranges = shifted(ranges, upload.foundation.shift_bytes);
                        task.progress(Progress { stripe, stripes: self.stripes, bytes, ranges });
                    }
                }
                Ok(Some(News::Received)) => release(upload, ends, cut.is_none()).await,
                Ok(Some(News::Finished { duty, outcome })) => {
                    if duty == Duty::Relay {
                        relayed += outcome.bytes;
                    }
                    written.extend(outcome.written);
                    body = outcome.body.or(body);
                    if self.crew.all_received() {
                        release(upload, ends, cut.is_none()).await;
                    }
                }
                Ok(Some(News::Failed { error, outcome })) => {
                    moved |= outcome.bytes > 0 || !outcome.written.is_empty();
                    written.extend(outcome.written);
                    let retry = !moved && error.worth_trying_elsewhere();
                    let better = cut.as_ref().is_none_or(|(_, kind, _)| *kind == Some(FaultKind::Cancelled));
                    if better && !(cut.is_some() && error.fault() == Some(FaultKind::Cancelled)) {
                        cut = Some((failure_of(&error), error.fault(), retry));
                    }
                    self.crew.cancel();
                }
            }
        }
        for reason in &self.relays {
            task.relayed(*reason, relayed / self.relays.len() as u64);
        }
        let bytes = self.crew.client_bytes();
        task.card().moved(bytes);
        match cut {
            None => {
                let (movers, elapsed) = (self.movers, task.started.elapsed());
                let summary = Summary { bytes, elapsed, movers, relayed_bytes: relayed, stored: None };
                Ok(Got { crew: self.crew, written, summary, body })
            }
            Some((failure, kind, retry)) => {
                let retry = retry && !moved;
                Err(CutEarly { cut: Cut { failure, kind, crew: self.crew, written }, retry })
            }
        }
    }
}

/// The next news; does not wait for ever for movers that wind up.
async fn next(crew: &mut Crew, winding_up: bool) -> Result<Option<News>, tokio::time::error::Elapsed> {
    if winding_up { timeout(WINDING_UP, crew.next()).await } else { Ok(crew.next().await) }
}

/// Gives the client's connections back.
async fn release(upload: &Upload<'_>, ends: &mut Option<OwnedMutexGuard<Ends>>, say: bool) {
    if let Some(mut ends) = ends.take_if(|_| say) {
        ends.served(&upload.task.port.spec);
        drop(ends);
        upload.task.say(Step::Received).await;
    }
}

fn shifted(ranges: Vec<ByteRange>, by: u64) -> Vec<ByteRange> {
    if by == 0 {
        return ranges;
    }
    ranges
        .into_iter()
        .filter_map(|range| ByteRange::new(range.offset().saturating_add(by), range.length()).ok())
        .collect()
}

fn failure_of(error: &MoverError) -> Failure {
    match error {
        MoverError::Away { mover, .. } => Failure::new(
            FailureKind::Unavailable,
            format_args!("mover {mover}, which received the file, went away: send it again, or what is missing of it"),
        ),
        other => other.clone().into(),
    }
}
