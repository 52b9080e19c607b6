//! Where a file's bytes are on disk, for doors that send their client there.

use std::sync::Arc;

use catalog::DISK_COPY;
use wire::id::BitfileId;

use super::Inner;
use crate::{
    failure::Failure,
    redirect::{Place, Reason, Route},
};

/// The way to a file for a client, or why there is none. The file counts as read.
pub(super) async fn route(inner: &Arc<Inner>, bitfile: BitfileId, secure: bool) -> Result<Route, Reason> {
    let place = place(inner, bitfile).await.map_err(|failure| {
        tracing::debug!(reason = %failure, "a file is not found for a redirect");
        Reason::Tape
    })?;
    let route = Route::to(place, secure, inner.catalog.now())?;
    inner.catalog.touch(bitfile);
    Ok(route)
}

async fn place(inner: &Arc<Inner>, bitfile: BitfileId) -> Result<Place, Failure> {
    let located = inner.catalog.locate_one(bitfile).await?;
    let snapshot = inner.movers.snapshot();
    let mut segments = located.copy(DISK_COPY).map(|copy| copy.segments.clone()).unwrap_or_default();
    segments.sort_by_key(|segment| segment.range.offset());
    let home = |segment: catalog::Segment| {
        let mover = inner.movers.mover_of(&segment.extent.volume)?;
        let view = snapshot.get(&mover).filter(|view| view.is_up() && !view.status.draining);
        let door = view.and_then(|view| view.status.http.as_deref().cloned());
        Some((segment, mover, door))
    };
    let segments = segments.into_iter().map(home).collect::<Option<Vec<_>>>().unwrap_or_default();
    Ok(Place { bitfile, size_bytes: located.bitfile.size_bytes, segments })
}
