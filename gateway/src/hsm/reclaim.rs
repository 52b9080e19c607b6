//! Reclaim: frees the space of what nobody can reach any more.
//!
//! Two steps. The catalogue takes bitfiles whose undelete window has closed, and cut uploads that have expired, and
//! queues their files; this service has the movers remove what is queued, and retries until they confirm. On tape the
//! space becomes dead, which the catalogue counts. Runs under its own lease.
//!
//! Invariant: a file is removed from a mover only after no row of the catalogue names it, and its queue row goes only
//! after the mover has said that it is gone.

use std::sync::Arc;

use catalog::{AfterFailure, Claim, Subject, WorkFailure, WorkItem, WorkKind};
use daemon::Shutdown;
use tracing::{debug, info, warn};
use wire::{
    id::{MoverId, VolumeLabel},
    mover::{Answer, Call, VolumeFile},
};

use super::{claims, context::Context, lead::awake};

/// So many files are removed by one call.
const BATCH: u32 = 1000;

/// So many rows the catalogue takes at once.
const ROWS: u32 = 1000;

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, shutdown: Shutdown) {
    while awake(&context.wakes.reclaim, context.config.look_every.duration(), &shutdown).await {
        if let Err(error) = close_windows(&context, &shutdown).await {
            warn!(%error, "undelete windows not closed");
        }
        if let Err(error) = remove_files(&context, &shutdown).await {
            warn!(%error, "files not reclaimed");
        }
    }
}

async fn close_windows(context: &Context, shutdown: &Shutdown) -> catalog::Result<()> {
    while !shutdown.is_stopping() {
        let reclaimed = context.catalog.reclaim(ROWS).await?;
        if reclaimed.bitfiles + reclaimed.partials + reclaimed.files > 0 {
            let catalog::Reclaimed { bitfiles, partials, files, .. } = reclaimed;
            info!(bitfiles, partials, files, "space is reclaimed");
        }
        if !reclaimed.more {
            break;
        }
    }
    Ok(())
}

async fn remove_files(context: &Context, shutdown: &Shutdown) -> catalog::Result<()> {
    let demands = context.catalog.demand(WorkKind::Reclaim).await?;
    let snapshot = Arc::clone(&context.fleet.watch().borrow());
    for demand in demands {
        let Ok(volume) = VolumeLabel::new(demand.pool) else { continue };
        let Some(mover) = context.fleet.mover_of(&volume) else { continue };
        // One that is away keeps its rows until it is back.
        if !snapshot.get(&mover).is_some_and(|view| view.is_up()) {
            continue;
        }
        while !shutdown.is_stopping() && remove_batch(context, &mover, &volume).await? {}
    }
    Ok(())
}

/// Removes one batch; whether there may be more.
async fn remove_batch(context: &Context, mover: &MoverId, volume: &VolumeLabel) -> catalog::Result<bool> {
    let claim = Claim {
        kind: WorkKind::Reclaim,
        pool: volume.to_string(),
        holder: context.holder.clone(),
        lease: claims::claim_lease(context),
        max_items: BATCH,
        max_bytes: u64::MAX,
    };
    let items = context.catalog.claim(claim).await?;
    if items.is_empty() {
        return Ok(false);
    }
    let files: Vec<VolumeFile> = items.iter().filter_map(file_of).collect();
    let call = Call::Remove { files };
    let (removed, why) = match context.fleet.call(mover, call).await {
        Ok(Answer::Removed { removed, failed }) => (removed, failed),
        Ok(_) => (Vec::new(), Vec::new()),
        Err(error) => {
            let reason = error.to_string();
            let failures = items.iter().map(|item| later(item, reason.clone())).collect();
            claims::fail(context, failures).await;
            return Ok(false);
        }
    };
    let removed: std::collections::BTreeSet<VolumeFile> = removed.into_iter().collect();
    let (mut done, mut failures) = (Vec::new(), Vec::new());
    for item in &items {
        match file_of(item) {
            Some(file) if !removed.contains(&file) => {
                let fault = why.iter().find(|(of, _)| *of == file).map(|(_, fault)| fault.message.clone());
                failures.push(later(item, fault.unwrap_or_else(|| "the mover did not remove it".into())));
            }
            _ => done.push(item.ticket()),
        }
    }
    let (count, stuck) = (done.len(), failures.len());
    context.catalog.finish(done).await?;
    claims::fail(context, failures).await;
    debug!(%volume, files = count, stuck, "files removed");
    if count > 0 {
        // Room was made: whoever waits for it looks again.
        context.wakes.stage.notify_one();
        context.wakes.purge.notify_one();
    }
    Ok(stuck == 0)
}

/// Tried again, however often: space is never given up.
fn later(item: &WorkItem, reason: String) -> WorkFailure {
    WorkFailure { ticket: item.ticket(), reason, next: AfterFailure::Retry(claims::pause(item.failures)) }
}

fn file_of(item: &WorkItem) -> Option<VolumeFile> {
    match &item.subject {
        Subject::File { volume, file } => Some(VolumeFile { volume: volume.clone(), file: *file }),
        Subject::Bitfile(_) | Subject::Volume(_) => None,
    }
}
