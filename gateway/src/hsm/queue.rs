//! The queue as people see it: where each request stands, when it will be done, and why it is not yet.

use std::{collections::HashMap, time::Duration};

use catalog::{RequestFilter, RequestState, StageRequest, Subject, WorkItem, WorkKind};
use wire::{
    admin::queue::{Entry, Kind, MAX_PAGE, Page, Query, State},
    id::{BitfileId, RequestId, WorkId},
};

use super::{
    Hsm,
    context::{Board, SessionState},
    policy::{estimate::Session, waits::Waits},
    scrub,
};
use crate::{
    failure::{Failure, FailureKind},
    mounts::{WantId, Why},
};

/// Where a request stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Described {
    /// Its place in the order in which requests are expected to be done, from 1; `None` at its end.
    pub position: Option<u64>,
    /// In how long it is expected to be done.
    pub estimate: Option<Duration>,
    /// Why it waits, or how it ended: a sentence.
    pub reason: String,
}

impl Hsm {
    /// Says of each request where it stands.
    pub async fn describe(&self, requests: &[StageRequest]) -> Vec<Described> {
        let board = self.context.board();
        let whys = self.whys(&board).await;
        let here = self.context.mounts.borrow().is_some();
        let sessions: Vec<Session> = board
            .ranked
            .iter()
            .map(|recall| Session {
                files: recall.requests,
                bytes: recall.bytes,
                mounted: board.sessions.get(&recall.volume) == Some(&SessionState::Reading),
            })
            .collect();
        let ends = board.measured.ends(&sessions, board.drives);
        requests.iter().map(|request| describe(&board, &whys, &ends, here, request)).collect()
    }

    async fn whys(&self, board: &Board) -> HashMap<WantId, Why> {
        let wants: Vec<WantId> = board
            .sessions
            .values()
            .filter_map(|state| match state {
                SessionState::Waiting(want) => *want,
                SessionState::Reading => None,
            })
            .collect();
        let Some(mounts) = self.mounts().filter(|_| !wants.is_empty()) else { return HashMap::new() };
        let look = move |mounts: &crate::mounts::Mounts, now| {
            wants.into_iter().filter_map(|want| Some((want, mounts.why(now, want)?))).collect()
        };
        mounts.look(look).await.unwrap_or_default()
    }

    /// A page of the queue: stage requests first, then other work.
    ///
    /// # Errors
    ///
    /// Those of the catalogue; [`FailureKind::BadArgument`] for an `after` that no page gave.
    pub async fn page(&self, query: &Query) -> Result<Page, Failure> {
        let limit = query.limit.unwrap_or(100).clamp(1, MAX_PAGE);
        let mut page = Page::default();
        let after = After::read(query.after.as_deref())?;
        let wants_stage = matches!(query.kind, None | Some(Kind::Stage));
        if let (true, After::Requests(after)) = (wants_stage, after) {
            let filter = RequestFilter { account: query.account.clone(), open_only: !query.ended, after, limit };
            let requests = self.context.catalog.list_requests(&filter).await?;
            page.next = requests.last().filter(|_| requests.len() >= limit as usize).map(|r| format!("r{}", r.id));
            let described = self.describe(&requests).await;
            page.entries = requests.iter().zip(described).map(|(request, told)| self.request(request, told)).collect();
            page.entries.sort_by_key(|entry| (entry.state != State::Running, entry.position.unwrap_or(u64::MAX)));
        }
        // Other work has no account of its own.
        let room = limit.saturating_sub(u32::try_from(page.entries.len()).unwrap_or(limit));
        if page.next.is_none() && room > 0 && query.account.is_none() && query.kind != Some(Kind::Stage) {
            let kind = query.kind.map(kind_of).transpose()?;
            let from = if let After::Work(work) = after { work } else { None };
            let items = self.context.catalog.work_items(kind, from, room).await?;
            page.next = items.last().filter(|_| items.len() >= room as usize).map(|item| format!("w{}", item.id));
            let progress = self.scrub_progress(&items).await?;
            let others = items.iter().filter(|item| item.kind != WorkKind::Stage);
            page.entries.extend(others.map(|item| self.work(item, item.scrub.and_then(|scrub| progress.get(&scrub)))));
        }
        self.name(&mut page.entries).await?;
        Ok(page)
    }

    /// One stage request.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]; those of the catalogue.
    pub async fn request_entry(&self, request: RequestId) -> Result<Entry, Failure> {
        let found = self.context.catalog.stage_requests(&[request]).await?;
        let told = self.describe(&found).await;
        let mut entries: Vec<Entry> =
            found.iter().zip(told).map(|(request, told)| self.request(request, told)).collect();
        self.name(&mut entries).await?;
        entries.pop().ok_or_else(|| {
            let text = format!("there is no stage request {request}, or it ended long ago");
            Failure::new(FailureKind::NotFound, text)
        })
    }

    async fn name(&self, entries: &mut [Entry]) -> Result<(), Failure> {
        let ids: Vec<BitfileId> = entries.iter().map(|entry| entry.bitfile).filter(|id| id.0 != 0).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let paths: HashMap<BitfileId, String> = self.context.catalog.paths_of(&ids).await?.into_iter().collect();
        for entry in entries {
            if entry.path.is_none() {
                entry.path = paths.get(&entry.bitfile).cloned();
            }
        }
        Ok(())
    }

    fn request(&self, request: &StageRequest, told: Described) -> Entry {
        Entry {
            work: request.work.unwrap_or(WorkId(0)),
            request: Some(request.id),
            kind: Kind::Stage,
            bitfile: request.bitfile,
            path: None,
            account: Some(request.account.clone()),
            bytes: request.size_bytes,
            priority: request.priority,
            state: state_of(&request.state),
            position: told.position,
            estimate_us: told.estimate.map(|estimate| self.context.catalog.now().after(estimate).0),
            reason: Some(told.reason),
            volume: request.volume.clone(),
            created_us: request.created.0,
            deadline_us: Some(request.deadline.0),
            ended_us: request.finished.map(|finished| finished.0),
            attempts: 0,
            joined: 1,
        }
    }

    /// How far the scrubs are to which these belong.
    async fn scrub_progress(&self, items: &[WorkItem]) -> Result<HashMap<u64, String>, Failure> {
        if items.iter().all(|item| item.scrub.is_none()) {
            return Ok(HashMap::new());
        }
        let scrubs = self.context.catalog.scrubs().await?;
        Ok(scrubs.iter().map(|scrub| (scrub.id, scrub::progress(scrub))).collect())
    }

    /// A row of the queue; `progress` of the scrub it belongs to.
    fn work(&self, item: &WorkItem, progress: Option<&String>) -> Entry {
        let now = self.context.catalog.now();
        let running = item.holder.is_some() && item.due > now;
        let parked = item.due == catalog::Timestamp::NEVER;
        let state = match (parked, running) {
            (true, _) => State::Failed,
            (false, true) => State::Running,
            (false, false) => State::Waiting,
        };
        let why = match (&item.reason, state, item.kind) {
            (Some(reason), State::Failed, _) => {
                Some(format!("given up: {reason}; `penstock admin cancel` drops it when you have looked"))
            }
            (Some(reason), State::Waiting, _) => Some(Waits::Retry { reason: reason.clone() }.to_string()),
            (_, _, WorkKind::Verify) if progress.is_some() => progress.cloned(),
            (None, State::Waiting, WorkKind::Migrate) => Some(Waits::Batch.to_string()),
            _ => None,
        };
        let (bitfile, path) = match &item.subject {
            Subject::Bitfile(bitfile) => (*bitfile, None),
            Subject::File { volume, file } => (BitfileId(0), Some(format!("file {file} of {volume}"))),
            Subject::Volume(volume) => (BitfileId(0), Some(format!("volume {volume}"))),
        };
        Entry {
            work: item.id,
            request: None,
            kind: shown_kind(item.kind),
            bitfile,
            path,
            account: None,
            bytes: item.bytes,
            priority: 0,
            state,
            position: None,
            estimate_us: (state == State::Waiting && item.due > now).then_some(item.due.0),
            reason: why,
            volume: wire::id::VolumeLabel::new(item.pool.clone()).ok().filter(|_| item.kind != WorkKind::Migrate),
            created_us: item.created.0,
            deadline_us: item.deadline.map(|deadline| deadline.0),
            ended_us: None,
            attempts: item.failures,
            joined: 0,
        }
    }
}

fn describe(
    board: &Board,
    whys: &HashMap<WantId, Why>,
    ends: &[Option<Duration>],
    here: bool,
    request: &StageRequest,
) -> Described {
    match &request.state {
        RequestState::Completed => return ended("it is on disk"),
        RequestState::Failed { reason } => return ended(reason),
        RequestState::Cancelled => return ended("it was cancelled"),
        RequestState::Queued | RequestState::Active => {}
    }
    let volume = request.volume.clone();
    let index = board.ranked.iter().position(|recall| Some(&recall.volume) == volume.as_ref());
    let position = index.map(|index| {
        let before: u64 = board.ranked[..index].iter().map(|recall| recall.requests).sum();
        // Within its cartridge it is behind those that were asked before, as far as those are of this cartridge.
        let own = board.ranked[index].requests.saturating_sub(1);
        before + request.ahead.unwrap_or(0).min(own) + 1
    });
    let estimate = index.and_then(|index| ends.get(index).copied().flatten());
    let waits = match (board.holds.get(&request.bitfile), &request.note, &volume) {
        (Some(hold), _, _) => hold.clone(),
        (None, Some(note), _) if request.state == RequestState::Queued => Waits::Retry { reason: note.clone() },
        (_, _, None) => Waits::Elsewhere,
        (_, _, Some(volume)) => match (board.sessions.get(volume), index) {
            (Some(SessionState::Reading), _) => Waits::Reading { volume: volume.clone() },
            (Some(SessionState::Waiting(want)), _) => {
                let why = want.and_then(|want| whys.get(&want).cloned()).unwrap_or(Why::Soon);
                Waits::Mount { volume: volume.clone(), why }
            }
            (None, Some(cartridges)) if cartridges > 0 => Waits::Behind { volume: volume.clone(), cartridges },
            (None, _) if here => Waits::Mount { volume: volume.clone(), why: Why::Soon },
            (None, _) => Waits::Elsewhere,
        },
    };
    Described { position: position.or(request.ahead.map(|ahead| ahead + 1)), estimate, reason: waits.to_string() }
}

fn ended(reason: &str) -> Described {
    Described { position: None, estimate: None, reason: reason.to_owned() }
}

const fn state_of(state: &RequestState) -> State {
    match state {
        RequestState::Queued => State::Waiting,
        RequestState::Active => State::Running,
        RequestState::Completed => State::Completed,
        RequestState::Failed { .. } => State::Failed,
        RequestState::Cancelled => State::Cancelled,
    }
}

pub(super) const fn shown_kind(kind: WorkKind) -> Kind {
    match kind {
        WorkKind::Migrate => Kind::Migrate,
        WorkKind::Stage => Kind::Stage,
        WorkKind::Purge => Kind::Purge,
        WorkKind::Reclaim => Kind::Reclaim,
        WorkKind::Repack => Kind::Repack,
        WorkKind::Verify => Kind::Verify,
        WorkKind::Rebuild => Kind::Rebuild,
    }
}

fn kind_of(kind: Kind) -> Result<WorkKind, Failure> {
    Ok(match kind {
        Kind::Migrate => WorkKind::Migrate,
        Kind::Stage => WorkKind::Stage,
        Kind::Purge => WorkKind::Purge,
        Kind::Reclaim => WorkKind::Reclaim,
        Kind::Repack => WorkKind::Repack,
        Kind::Verify => WorkKind::Verify,
        Kind::Rebuild => WorkKind::Rebuild,
        Kind::Unknown => {
            return Err(Failure::new(FailureKind::BadArgument, "there is no such kind of work"));
        }
    })
}

/// Where a page begins.
#[derive(Clone, Copy)]
enum After {
    Requests(Option<RequestId>),
    Work(Option<WorkId>),
}

impl After {
    fn read(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self::Requests(None)) };
        let bad = || Failure::new(FailureKind::BadArgument, "`after` is not what a page gave as `next`");
        match text.split_at_checked(1) {
            Some(("r", number)) => Ok(Self::Requests(Some(number.parse().map_err(|_| bad())?))),
            Some(("w", number)) => Ok(Self::Work(Some(number.parse().map_err(|_| bad())?))),
            _ => Err(bad()),
        }
    }
}
