//! The work queue, and what adds to it.

use std::{collections::HashMap, time::Duration};

use axum::{Extension, extract::State as Axum};
use catalog::{Catalog, Listing, TreePath};
use serde::Deserialize;
use tracing::info;
use wire::{
    admin::{
        Code,
        queue::{
            Answer as PathAnswer, Cancel, Cancelled, Entry, MAX_PATHS, Page, PathResult, Paths, Pin, Query, Replicate,
            Scrub, ScrubResult, ScrubScope, Stage, StartScrub,
        },
    },
    id::{AccountName, BitfileId, RequestId, WorkId},
};

use super::{
    State,
    door::Caller,
    extract::{Json, Path, Query as Params},
    refusal::{Answer, Refusal, problem},
};
use crate::{
    failure::{Failure, FailureKind},
    hsm::{Ask, Replicated, Scope},
};

/// Files that one request comes to at most, with what directories stand for.
const MAX_FILES: usize = 200_000;

pub(super) async fn page(Axum(state): Axum<State>, Params(query): Params<Query>) -> Answer<Page> {
    Ok(Json(state.hsm.page(&query).await?))
}

pub(super) async fn request(Axum(state): Axum<State>, Path(request): Path<RequestId>) -> Answer<Entry> {
    Ok(Json(state.hsm.request_entry(request).await?))
}

/// One named path and what it means.
pub(super) type Named = (String, Result<BitfileId, Failure>);

/// What paths mean, directories expanded if asked for.
pub(super) async fn resolve(catalog: &Catalog, paths: &Paths) -> Result<Vec<Named>, Refusal> {
    if paths.paths.len() > MAX_PATHS {
        let text = format!("{} paths are more than {MAX_PATHS}", paths.paths.len());
        return Err(Refusal::new(Code::BadRequest, text, "ask in several requests, or name a directory"));
    }
    let mut named = Vec::new();
    for text in &paths.paths {
        let path = match TreePath::posix(&TreePath::root(), text) {
            Ok(path) => path,
            Err(error) => {
                named.push((text.clone(), Err(error.into())));
                continue;
            }
        };
        let resolved = catalog.resolve(&path).await?;
        match resolved.entry() {
            Ok(entry) => match entry.file() {
                Some(file) => named.push((text.clone(), Ok(file.bitfile))),
                None if paths.recursive => below(catalog, entry.id, text, &mut named).await?,
                None => {
                    let text_of = format!("{text} is a directory: say that everything below it is meant (--recursive)");
                    named.push((text.clone(), Err(Failure::new(FailureKind::IsADirectory, text_of))));
                }
            },
            Err(_) => {
                let failure = Failure::new(FailureKind::NotFound, format!("there is no file {text}"));
                named.push((text.clone(), Err(failure)));
            }
        }
    }
    Ok(named)
}

async fn below(
    catalog: &Catalog,
    directory: wire::id::EntryId,
    path: &str,
    named: &mut Vec<Named>,
) -> Result<(), Refusal> {
    let mut listing = Listing { after: None, prefix: String::new(), limit: 1000 };
    loop {
        let page = catalog.walk(directory, &listing).await?;
        for walked in &page.items {
            if let Some(file) = walked.entry.file() {
                named.push((format!("{}/{}", path.trim_end_matches('/'), walked.key), Ok(file.bitfile)));
            }
        }
        if named.len() > MAX_FILES {
            let text = format!("there are more than {MAX_FILES} files below {path}");
            return Err(Refusal::new(Code::BadRequest, text, "name smaller directories"));
        }
        match page.next {
            Some(next) => listing.after = Some(next),
            None => return Ok(()),
        }
    }
}

fn good(named: &[Named]) -> Vec<BitfileId> {
    let mut bitfiles: Vec<BitfileId> = named.iter().filter_map(|(_, found)| found.as_ref().ok().copied()).collect();
    bitfiles.sort_unstable();
    bitfiles.dedup();
    bitfiles
}

fn answers(named: Vec<Named>, result: impl Fn(BitfileId) -> PathResult) -> Json<Vec<PathAnswer>> {
    let answer = |(path, found): Named| {
        let result = match found {
            Ok(bitfile) => result(bitfile),
            Err(failure) => PathResult::Refused { problem: problem(&failure) },
        };
        PathAnswer { path, result }
    };
    Json(named.into_iter().map(answer).collect())
}

fn done(message: &str) -> PathResult {
    PathResult::Done { message: message.to_owned() }
}

pub(super) async fn stage(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(stage): Json<Stage>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &stage.files).await?;
    let account: AccountName = stage.account.clone().unwrap_or_else(|| caller.account.clone());
    let bitfiles = good(&named);
    let asks = bitfiles.iter().map(|bitfile| Ask {
        bitfile: *bitfile,
        account: account.clone(),
        deadline: stage.deadline_s.map(Duration::from_secs),
        lifetime: stage.lifetime_s.map(Duration::from_secs),
        priority: stage.priority,
    });
    let tickets = state.hsm.stage(asks.collect()).await?;
    info!(principal = caller.name, files = bitfiles.len(), %account, "stage asked for");
    let by_bitfile: HashMap<BitfileId, _> = tickets.iter().map(|ticket| (ticket.request().bitfile, ticket)).collect();
    Ok(answers(named, |bitfile| match by_bitfile.get(&bitfile) {
        Some(ticket) => match ticket.end() {
            None => {
                PathResult::Queued { request: ticket.request().id, work: ticket.request().work.unwrap_or(WorkId(0)) }
            }
            Some(Ok(())) => done("is on disk"),
            Some(Err(failure)) => PathResult::Refused { problem: problem(&failure) },
        },
        None => done("nothing to do"),
    }))
}

pub(super) async fn release(Axum(state): Axum<State>, Json(paths): Json<Paths>) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &paths).await?;
    state.hsm.release(good(&named)).await?;
    Ok(answers(named, |_| done("may be purged")))
}

fn holder(caller: &Caller) -> String {
    format!("account/{}", caller.account)
}

pub(super) async fn pin(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(pin): Json<Pin>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &pin.files).await?;
    state.hsm.pin(good(&named), &holder(&caller), pin.lifetime_s.map(Duration::from_secs)).await?;
    Ok(answers(named, |_| done("stays on disk once it is there")))
}

pub(super) async fn unpin(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(paths): Json<Paths>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &paths).await?;
    state.hsm.unpin(good(&named), &holder(&caller)).await?;
    Ok(answers(named, |_| done("is not pinned any more")))
}

pub(super) async fn migrate(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(paths): Json<Paths>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &paths).await?;
    let bitfiles = good(&named);
    let queued = state.hsm.migrate_now(bitfiles.clone()).await?;
    info!(principal = caller.name, files = bitfiles.len(), queued, "migration asked for");
    let located = state.catalog.locate(&bitfiles).await?;
    let complete: std::collections::HashSet<BitfileId> = located
        .iter()
        .filter(|found| found.bitfile.residency.tape_copies >= found.bitfile.residency.tape_copies_wanted)
        .map(|found| found.bitfile.id)
        .collect();
    Ok(answers(named, |bitfile| {
        done(if complete.contains(&bitfile) { "has all its tape copies" } else { "is being migrated" })
    }))
}

pub(super) async fn purge(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(paths): Json<Paths>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &paths).await?;
    let purged: HashMap<BitfileId, Result<u64, Failure>> =
        state.hsm.purge_now(good(&named)).await?.into_iter().collect();
    info!(principal = caller.name, files = purged.len(), "purge asked for");
    Ok(answers(named, |bitfile| match purged.get(&bitfile) {
        Some(Ok(bytes)) => done(&format!("left the disk, {bytes} bytes are freed")),
        Some(Err(failure)) => PathResult::Refused { problem: problem(failure) },
        None => done("nothing to do"),
    }))
}

pub(super) async fn replicate(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(replicate): Json<Replicate>,
) -> Answer<Vec<PathAnswer>> {
    let named = resolve(&state.catalog, &replicate.files).await?;
    let mut made: HashMap<BitfileId, Result<Replicated, Failure>> = HashMap::new();
    for bitfile in good(&named) {
        made.insert(bitfile, state.hsm.replicate(bitfile, replicate.copies).await);
    }
    info!(principal = caller.name, files = made.len(), copies = replicate.copies, "replicas asked for");
    Ok(answers(named, |bitfile| match made.get(&bitfile) {
        Some(Ok(Replicated { made, dropped: 0 })) => {
            done(&format!("has {} copies on disk, {made} of them new", replicate.copies))
        }
        Some(Ok(Replicated { dropped, .. })) => {
            done(&format!("has {} copies on disk, {dropped} were dropped", replicate.copies))
        }
        Some(Err(failure)) => PathResult::Refused { problem: problem(failure) },
        None => done("nothing to do"),
    }))
}

pub(super) async fn cancel(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(cancel): Json<Cancel>,
) -> Answer<Vec<Cancelled>> {
    if cancel.requests.len() + cancel.work.len() > MAX_PATHS {
        return Err(Refusal::new(Code::BadRequest, "that is too much at once", "cancel in several requests"));
    }
    let requests = state.hsm.cancel(cancel.requests.clone(), None).await?;
    let work = if cancel.work.is_empty() { Vec::new() } else { state.hsm.cancel_work(cancel.work.clone()).await? };
    info!(principal = caller.name, requests = requests.len(), work = work.len(), "work cancelled");
    let told = |what: &str, id: u64, cancelled: bool| Cancelled {
        id,
        cancelled,
        message: if cancelled {
            format!("{what} {id} is cancelled")
        } else {
            format!("{what} {id} was not there to cancel: it has ended, or never was")
        },
    };
    let mut all: Vec<Cancelled> =
        cancel.requests.iter().map(|id| told("request", id.0, requests.contains(id))).collect();
    all.extend(cancel.work.iter().map(|id| told("work", id.0, work.contains(id))));
    Ok(Json(all))
}

pub(super) async fn scrubs(Axum(state): Axum<State>) -> Answer<Vec<Scrub>> {
    Ok(Json(state.hsm.scrubs().await?))
}

pub(super) async fn scrub(Axum(state): Axum<State>, Path(number): Path<u64>) -> Answer<Scrub> {
    Ok(Json(state.hsm.get_scrub(number).await?))
}

pub(super) async fn start_scrub(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Json(start): Json<StartScrub>,
) -> Answer<Scrub> {
    let scope = match start.scope {
        ScrubScope::Class { cos } => Scope::Class(cos),
        ScrubScope::Volume { volume } => Scope::Volume(volume),
        ScrubScope::Paths { paths, recursive } => {
            let named = resolve(&state.catalog, &Paths { paths, recursive }).await?;
            if let Some((_, Err(failure))) = named.iter().find(|(_, found)| found.is_err()) {
                return Err(failure.clone().into());
            }
            Scope::Bitfiles(good(&named))
        }
    };
    let scrub = state.hsm.scrub(scope, start.rate).await?;
    info!(principal = caller.name, scrub = scrub.scrub, scope = scrub.scope, "scrub begun");
    Ok(Json(scrub))
}

/// Which part of a list.
#[derive(Deserialize)]
pub(super) struct Part {
    after: Option<u64>,
    limit: Option<usize>,
}

pub(super) async fn scrub_results(
    Axum(state): Axum<State>,
    Path(number): Path<u64>,
    Params(part): Params<Part>,
) -> Answer<Vec<ScrubResult>> {
    let after = WorkId(part.after.unwrap_or(0));
    Ok(Json(state.hsm.scrub_results(number, after, part.limit.unwrap_or(1000)).await?))
}
