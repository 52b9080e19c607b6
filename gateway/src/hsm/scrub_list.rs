//! Lists what the scrub of a class of service reads, and ends scrubs of which nothing is left.
//!
//! Runs where the lease of the tape service is held; every page is queued under its fence, together with the place
//! where the listing goes on. So a listing that was cut goes on there, here or elsewhere. Talks to the catalogue only.

use catalog::{Catalog, Fence, Listing, MAX_PAGE, ROOT, Scrub, ScrubListed};
use daemon::Shutdown;
use tracing::warn;
use wire::id::{BitfileId, CosName};

use super::{context::Context, lead::awake, scrub::scrub_item};

/// Runs until `shutdown`.
pub(super) async fn run(context: Context, fence: Fence, shutdown: Shutdown) {
    while awake(&context.wakes.scrub, context.config.look_every.duration(), &shutdown).await {
        if let Err(error) = look(&context, &fence, &shutdown).await {
            warn!(%error, "scrubs not looked at");
        }
    }
}

async fn look(context: &Context, fence: &Fence, shutdown: &Shutdown) -> catalog::Result<()> {
    let mut open: Vec<Scrub> = context.catalog.scrubs().await?;
    open.retain(|scrub| scrub.ended.is_none());
    for scrub in &open {
        if let Some(class) = scrub.class.as_ref().filter(|_| !scrub.listed) {
            list(context, scrub, class, fence, shutdown).await?;
        }
    }
    // What was read settles its scrub itself; what was deleted, cancelled or empty does not.
    if open.is_empty() { Ok(()) } else { context.catalog.settle_scrubs().await }
}

async fn list(
    context: &Context,
    scrub: &Scrub,
    class: &CosName,
    fence: &Fence,
    shutdown: &Shutdown,
) -> catalog::Result<()> {
    let mut listing = Listing { after: scrub.place.clone(), prefix: String::new(), limit: MAX_PAGE.min(1000) };
    while !shutdown.is_stopping() {
        let (ids, next) = page(&context.catalog, class, &listing).await?;
        let located = context.catalog.locate(&ids).await?;
        let items = located.iter().filter_map(scrub_item).collect();
        context
            .catalog
            .list_scrub(ScrubListed { scrub: scrub.id, items, place: next.clone(), fence: fence.clone() })
            .await?;
        context.wakes.verify.notify_one();
        if next.is_none() {
            break;
        }
        listing.after = next;
    }
    Ok(())
}

/// Files of a class on one page of the tree, each once, and where the next page begins.
async fn page(
    catalog: &Catalog,
    class: &CosName,
    listing: &Listing,
) -> catalog::Result<(Vec<BitfileId>, Option<String>)> {
    let page = catalog.walk(ROOT, listing).await?;
    let files = page.items.iter().filter_map(|walked| walked.entry.file());
    let mut ids: Vec<BitfileId> = files.filter(|file| file.cos == *class).map(|file| file.bitfile).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok((ids, page.next))
}
