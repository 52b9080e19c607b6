//! Counts what lies in the buckets, now and then.
//!
//! One gateway at a time, under a lease. A page of names is held at a time, and counting takes a small part of the time
//! however much there is to count. A count that is cut is begun again; the one before it stands until then.
//!
//! Owns nothing that lasts: what was counted is a row of the catalogue, with its time.

use std::time::{Duration, Instant};

use catalog::{Bucket, Catalog, Counted};
use daemon::Shutdown;
use tracing::{debug, warn};

use super::Door;

/// The lease of the count.
const LEASE: &str = "bucket-usage";
/// Names of one page.
const PAGE: u32 = 1000;
/// How many times as long as a round took the counter rests at least: it works for a twentieth of the time at most.
const REST: u32 = 19;

/// Lets the gateway that has the lease count.
pub(super) fn start(door: &Door) {
    let every = door.config.usage_every.duration();
    if every.is_zero() {
        return;
    }
    let catalog = door.catalog.clone();
    door.hsm.lead(LEASE, move |shutdown| run(catalog.clone(), every, shutdown));
}

async fn run(catalog: Catalog, every: Duration, shutdown: Shutdown) {
    while !shutdown.is_stopping() {
        let began = Instant::now();
        if let Err(error) = round(&catalog, every, &shutdown).await {
            warn!(%error, "buckets not counted to the end; they are in the next round");
        }
        tokio::select! {
            () = shutdown.stopping() => {}
            () = tokio::time::sleep(every.max(began.elapsed() * REST)) => {}
        }
    }
}

/// Counts every bucket whose count is old, or that has none.
async fn round(catalog: &Catalog, every: Duration, shutdown: &Shutdown) -> catalog::Result<()> {
    let mut after = String::new();
    loop {
        let buckets = catalog.all_buckets(&after, PAGE).await?;
        let Some(last) = buckets.last() else { return Ok(()) };
        after.clone_from(&last.name);
        let entries: Vec<_> = buckets.iter().map(|bucket| bucket.entry).collect();
        let known = catalog.bucket_usages(&entries).await?;
        let fresh = |bucket: &&Bucket| {
            let usage = known.iter().find(|(entry, _)| *entry == bucket.entry);
            usage.is_none_or(|(_, usage)| usage.counted.after(every) <= catalog.now())
        };
        for bucket in buckets.iter().filter(fresh) {
            if !count(catalog, bucket, shutdown).await? {
                return Ok(());
            }
        }
    }
}

/// Counts one bucket and keeps the result; `false` if it was stopped on the way.
async fn count(catalog: &Catalog, bucket: &Bucket, shutdown: &Shutdown) -> catalog::Result<bool> {
    let began = Instant::now();
    let mut count = catalog.begin_count(bucket.entry);
    while !shutdown.is_stopping() {
        match catalog.count_on(count, PAGE).await? {
            Counted::Part(more) => count = more,
            Counted::Whole(usage) => {
                catalog.keep_usage(bucket.entry, usage).await?;
                let elapsed_ms = began.elapsed().as_millis();
                debug!(bucket = bucket.name, objects = usage.current.count, elapsed_ms, "bucket counted");
                return Ok(true);
            }
        }
    }
    Ok(false)
}
