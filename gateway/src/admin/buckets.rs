//! Buckets, with what lay in them when they were counted last.

use std::collections::HashMap;

use axum::extract::State as Axum;
use catalog::{Bucket, BucketUsage};
use serde::Deserialize;
use wire::admin::{Code, buckets};

use super::{
    State,
    extract::{Json, Path, Query},
    refusal::{Answer, Refusal},
};

/// Buckets of one page.
const MAX_BUCKETS: u32 = 1000;

/// Which page is wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    /// Behind this name.
    after: Option<String>,
    limit: Option<u32>,
}

pub(super) async fn list(Axum(state): Axum<State>, Query(page): Query<Page>) -> Answer<Vec<buckets::Bucket>> {
    let limit = page.limit.unwrap_or(MAX_BUCKETS).clamp(1, MAX_BUCKETS);
    let found = state.catalog.all_buckets(page.after.as_deref().unwrap_or_default(), limit).await?;
    Ok(Json(with_usage(&state, found).await?))
}

pub(super) async fn show(Axum(state): Axum<State>, Path(name): Path<String>) -> Answer<buckets::Bucket> {
    let found = state.catalog.bucket(&name).await?.into_iter().collect();
    let shown = with_usage(&state, found).await?.pop();
    shown.map(Json).ok_or_else(|| {
        let text = format!("there is no bucket {name}");
        Refusal::new(Code::NotFound, text, "`penstock admin bucket list` names them")
    })
}

async fn with_usage(state: &State, found: Vec<Bucket>) -> Result<Vec<buckets::Bucket>, Refusal> {
    let entries: Vec<_> = found.iter().map(|bucket| bucket.entry).collect();
    let usages: HashMap<_, _> = state.catalog.bucket_usages(&entries).await?.into_iter().collect();
    Ok(found.into_iter().map(|bucket| shown(usages.get(&bucket.entry), bucket)).collect())
}

fn shown(usage: Option<&BucketUsage>, bucket: Bucket) -> buckets::Bucket {
    buckets::Bucket {
        bucket: bucket.name,
        owner: bucket.owner,
        created_us: bucket.created.0,
        versioning: match bucket.versioning {
            catalog::Versioning::Off => buckets::Versioning::Off,
            catalog::Versioning::Enabled => buckets::Versioning::Enabled,
            catalog::Versioning::Suspended => buckets::Versioning::Suspended,
        },
        locking: bucket.locking,
        usage: usage.map(|usage| buckets::Usage {
            current: amount(usage.current),
            noncurrent: amount(usage.noncurrent),
            delete_markers: usage.markers,
            uploads: usage.uploads,
            parts: amount(usage.parts),
            counted_us: usage.counted.0,
        }),
    }
}

const fn amount(of: catalog::Amount) -> buckets::Amount {
    buckets::Amount { count: of.count, bytes: of.bytes }
}
