//! Expiry: what has had its time. Staged copies whose promise has ended leave the disk, and requests whose deadline has
//! passed fail. Runs under its own lease.
//!
//! Invariant: no request outlives its deadline by more than a round of this service, whatever else has stopped.

use std::time::Duration;

use daemon::Shutdown;
use tracing::{info, warn};
use wire::admin::queue::Kind;

use super::{context::Context, lead::awake};

/// So many of each are taken at once.
const ROWS: u32 = 1000;

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, shutdown: Shutdown) {
    // Deadlines are promises: this one looks at least every second.
    let every = context.config.look_every.duration().min(Duration::from_secs(1));
    while awake(&context.wakes.expire, every, &shutdown).await {
        if let Err(error) = deadlines(&context).await {
            warn!(%error, "deadlines not looked at");
        }
        if let Err(error) = copies(&context, &shutdown).await {
            warn!(%error, "staged copies not looked at");
        }
    }
}

async fn deadlines(context: &Context) -> catalog::Result<()> {
    let failed = context.catalog.expire(ROWS).await?;
    if failed > 0 {
        info!(requests = failed, "deadline passed");
        context.some_ended();
        context.wakes.stage.notify_one();
    }
    Ok(())
}

async fn copies(context: &Context, shutdown: &Shutdown) -> catalog::Result<()> {
    while !shutdown.is_stopping() {
        let expired = context.catalog.expired_copies(ROWS).await?;
        let count = expired.len();
        if count == 0 {
            break;
        }
        let idle = context.config.purge_idle.duration();
        let bitfiles = expired.into_iter().map(|candidate| candidate.bitfile).collect();
        let purged = context.catalog.purge(bitfiles, idle).await?;
        let (mut files, mut bytes) = (0usize, 0u64);
        for (_, purged) in purged {
            if let catalog::Purged::Freed { bytes: more } = purged {
                files += 1;
                bytes += more;
            }
        }
        if files > 0 {
            info!(files, bytes, "staged copies expired");
            let text = format!("{files} staged copies have had their time");
            context.live.batch(Kind::Purge, None, files, bytes, true, text);
            context.wakes.reclaim.notify_one();
        }
        // Those that are being read, or pinned, come again in the next round.
        if files < count {
            break;
        }
    }
    Ok(())
}
