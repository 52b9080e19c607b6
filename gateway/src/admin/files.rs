//! Where a file is, what was deleted, and its way back.

use axum::{Extension, extract::State as Axum};
use catalog::{DISK_COPY, Entry, Subject, Timestamp, TreePath, WorkKind};
use serde::Deserialize;
use tracing::info;
use wire::{
    admin::{
        Code,
        files::{Copy, Deleted, Info, Pin, Restore, Restored, Segment},
    },
    checksum::Algorithm,
    id::BitfileId,
};

use super::{
    State,
    door::Caller,
    extract::{Json, Path, Query as Params},
    refusal::{Answer, Refusal},
};

/// The largest list of deleted files.
const MAX_DELETED: u32 = 1000;

/// Which file or directory.
#[derive(Deserialize)]
pub(super) struct At {
    path: String,
    limit: Option<u32>,
}

async fn entry_at(state: &State, text: &str) -> Result<(TreePath, Entry), Refusal> {
    let path = TreePath::posix(&TreePath::root(), text)?;
    let resolved = state.catalog.resolve(&path).await?;
    let entry = resolved.entry()?.clone();
    Ok((path, entry))
}

pub(super) async fn info(Axum(state): Axum<State>, Params(at): Params<At>) -> Answer<Info> {
    let (_, entry) = entry_at(&state, &at.path).await?;
    let Some(file) = entry.file() else {
        let text = format!("{} is a directory", at.path);
        return Err(Refusal::new(Code::Conflict, text, "name a file"));
    };
    let located = state.catalog.locate_one(file.bitfile).await?;
    let pins = state.catalog.pins(Some(file.bitfile), None, 1000).await?;
    let sums =
        Algorithm::ALL.iter().filter_map(|algorithm| Some((algorithm.name().to_owned(), file.sums.hex(*algorithm)?)));
    let accessed = located.copies.iter().find(|copy| copy.number == DISK_COPY).map(|copy| copy.last_used.0);
    let copies = located.copies.iter().map(|copy| Copy {
        copy: u8::try_from(copy.number).unwrap_or(u8::MAX),
        whole: copy.complete,
        segments: copy
            .segments
            .iter()
            .map(|segment| Segment {
                range: segment.range,
                volume: segment.extent.volume.clone(),
                place: segment.extent.place,
                crc32c: format!("{:08x}", segment.crc32c),
                verified_us: Some(copy.created.0),
            })
            .collect(),
    });
    let mut kept: Vec<Pin> = pins
        .items
        .into_iter()
        .map(|pin| Pin { holder: pin.holder, until_us: (pin.until != Timestamp::NEVER).then_some(pin.until.0) })
        .collect();
    let staged = located.copies.iter().find(|copy| copy.number == DISK_COPY).and_then(|copy| copy.expires);
    kept.extend(staged.map(|until| Pin { holder: "stage request".into(), until_us: Some(until.0) }));
    Ok(Json(Info {
        path: at.path,
        entry: entry.id,
        bitfile: file.bitfile,
        bytes: file.size_bytes,
        owner: entry.owner.clone(),
        group: entry.group.clone(),
        mode: entry.mode,
        modified_us: entry.modified.0,
        accessed_us: accessed,
        cos: file.cos.clone(),
        sums: sums.collect(),
        copies: copies.collect(),
        pins: kept,
        work: work(&state, file.bitfile).await?,
    }))
}

/// What waits or runs for a bitfile, as far as the first page of each queue says.
async fn work(state: &State, bitfile: BitfileId) -> Result<Vec<String>, Refusal> {
    let mut told = Vec::new();
    for kind in [WorkKind::Stage, WorkKind::Migrate, WorkKind::Verify] {
        for item in state.catalog.work_items(Some(kind), None, 1000).await? {
            if item.subject == Subject::Bitfile(bitfile) {
                let reason = item.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                told.push(format!("{kind} {}{reason}", item.id));
            }
        }
    }
    Ok(told)
}

pub(super) async fn deleted(Axum(state): Axum<State>, Params(at): Params<At>) -> Answer<Vec<Deleted>> {
    let (_, entry) = entry_at(&state, &at.path).await?;
    if !entry.is_directory() {
        let text = format!("{} is a file", at.path);
        return Err(Refusal::new(Code::Conflict, text, "name the directory in which something was deleted"));
    }
    let limit = at.limit.unwrap_or(100).clamp(1, MAX_DELETED);
    let files = state.catalog.deleted_files(entry.id, limit).await?;
    let base = at.path.trim_end_matches('/');
    let deleted = files.into_iter().map(|file| Deleted {
        bitfile: file.bitfile,
        path: format!("{base}/{}", file.name),
        bytes: file.size_bytes,
        owner: file.owner,
        deleted_us: file.deleted.0,
        until_us: file.reclaim_after.0,
    });
    Ok(Json(deleted.collect()))
}

pub(super) async fn restore(
    Axum(state): Axum<State>,
    Extension(caller): Extension<Caller>,
    Path(bitfile): Path<BitfileId>,
    restore: Option<Json<Restore>>,
) -> Answer<Restored> {
    let place = match restore.and_then(|Json(restore)| restore.path) {
        None => None,
        Some(text) => {
            let path = TreePath::posix(&TreePath::root(), &text)?;
            let resolved = state.catalog.resolve(&path).await?;
            let parent = resolved.parent()?.id;
            let name = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
            Some((parent, name))
        }
    };
    let entry = state.catalog.undelete(bitfile, place).await?;
    state.hsm.published();
    let paths = state.catalog.paths_of(&[bitfile]).await?;
    let path = paths.into_iter().next().map_or(entry.name, |(_, path)| path);
    info!(principal = caller.name, %bitfile, path, "file brought back");
    Ok(Json(Restored { path, bitfile }))
}
