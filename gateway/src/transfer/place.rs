//! Where a file's bytes are on disk, for doors that send their client there.

use std::sync::Arc;

use catalog::{Copy, Located};
use wire::id::BitfileId;

use super::Inner;
use crate::redirect::{Place, Reason, Route};

/// The way to a file for a client, or why there is none. Disk copies take turns; one that no client can be sent to is
/// passed over. The file counts as read.
pub(super) async fn route(inner: &Arc<Inner>, bitfile: BitfileId, secure: bool) -> Result<Route, Reason> {
    let located = inner.catalog.locate_one(bitfile).await.map_err(|error| {
        tracing::debug!(%error, "a file is not found for a redirect");
        Reason::Tape
    })?;
    let mut copies: Vec<&Copy> = located.on_disk().collect();
    let first = inner.next_replica() % copies.len().max(1);
    copies.rotate_left(first);
    let mut why = Reason::Tape;
    for copy in copies {
        match Route::to(place(inner, &located, copy), secure, inner.catalog.now()) {
            Ok(route) => {
                inner.catalog.touch(bitfile);
                return Ok(route);
            }
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Without segments if the movers of some are away.
fn place(inner: &Inner, located: &Located, copy: &Copy) -> Place {
    let snapshot = inner.movers.snapshot();
    let mut segments = copy.segments.clone();
    segments.sort_by_key(|segment| segment.range.offset());
    let home = |segment: catalog::Segment| {
        let mover = inner.movers.mover_of(&segment.extent.volume)?;
        let view = snapshot.get(&mover).filter(|view| view.is_up() && !view.status.draining);
        let door = view.and_then(|view| view.status.http.as_deref().cloned());
        Some((segment, mover, door))
    };
    let segments = segments.into_iter().map(home).collect::<Option<Vec<_>>>().unwrap_or_default();
    Place { bitfile: located.bitfile.id, size_bytes: located.bitfile.size_bytes, segments }
}
