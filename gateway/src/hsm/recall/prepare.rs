//! What was claimed, looked up: which bytes are read from this cartridge, and where on disk they go.

use std::{collections::BTreeMap, sync::Arc};

use catalog::{AfterFailure, DISK_COPY, Located, Segment, WorkFailure, WorkItem};
use tracing::info;
use wire::{
    extent::ByteRange,
    id::{BitfileId, FileId, MoverId},
    mover::VolumeFile,
};

use super::{Session, Target, Wanted, bitfile_of, record::Arrived, retry_from};
use crate::{
    hsm::{
        claims,
        context::Picture,
        policy::{
            recall::{TapeModel, order_recall},
            waits::Waits,
        },
        space::{Room, place, rooms},
    },
    mounts::Mount,
};

/// Where the files of a batch go.
pub(super) struct Placed {
    /// Each piece with its place, in the order of the tape.
    pub(super) targets: Vec<Target>,
    /// The mover they are on; `None` if there is no room for any.
    pub(super) mover: Option<MoverId>,
    /// Bitfiles for which there is no room.
    pub(super) no_room: Vec<usize>,
    /// Bitfiles of another disk pool, which come in the next batch.
    pub(super) later: Vec<usize>,
}

impl Session {
    /// Looks up what was claimed. What is gone, on disk already or nowhere is settled here.
    pub(super) async fn prepare(&self, items: Vec<WorkItem>) -> catalog::Result<(Picture, Vec<Wanted>)> {
        let ids: Vec<BitfileId> = items.iter().filter_map(bitfile_of).collect();
        let mut located: BTreeMap<BitfileId, Located> =
            self.context.catalog.locate(&ids).await?.into_iter().map(|located| (located.bitfile.id, located)).collect();
        let picture = self.context.picture().await?;
        let (mut wanted, mut failures, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for item in items {
            let Some(located) = bitfile_of(&item).and_then(|bitfile| located.remove(&bitfile)) else {
                gone.push(item.id);
                continue;
            };
            let kept = self.context.parts.take(self.context.fleet.as_ref(), located.bitfile.id).await;
            match self.plan(&picture, item, located, kept) {
                Ok(plan) => wanted.push(plan),
                Err(failure) => failures.push(failure),
            }
        }
        if !gone.is_empty() {
            info!(requests = gone.len(), "recalls of deleted files dropped");
            self.context.catalog.cancel_work(gone).await?;
        }
        claims::fail(&self.context, failures).await;
        Ok((picture, wanted))
    }

    fn plan(
        &self,
        picture: &Picture,
        item: WorkItem,
        located: Located,
        kept: Vec<(Segment, VolumeFile)>,
    ) -> Result<Wanted, WorkFailure> {
        let give_up = |reason: String| WorkFailure { ticket: item.ticket(), reason, next: AfterFailure::GiveUp };
        let class = picture.policies.class(&located.bitfile.cos);
        let hierarchy = class.and_then(|class| picture.policies.hierarchy(&class.hierarchy));
        let Some(disk) = hierarchy.and_then(|hierarchy| picture.policies.storage_class(&hierarchy.disk)) else {
            return Err(give_up(format!(
                "class of service {} has no disk class: define it again",
                located.bitfile.cos
            )));
        };
        if located.copy(DISK_COPY).is_some() || located.bitfile.size_bytes == 0 {
            // A disk copy is back, or there is nothing to read: recorded as it is.
            let (pool, disk_class) = (disk.pool.clone(), disk.name.clone());
            return Ok(Wanted {
                item,
                located,
                segments: Vec::new(),
                kept: Vec::new(),
                nothing: true,
                elsewhere: None,
                pool,
                disk_class,
            });
        }
        let here = |segment: &&Segment| segment.extent.volume == self.volume;
        let copy = located
            .copies
            .iter()
            .find(|copy| !copy.is_on_disk() && copy.complete && copy.segments.iter().any(|s| here(&s)));
        let Some(copy) = copy else {
            return Err(match self.another(picture, &located) {
                Some(pool) => retry_from(&item, &pool, "the copy on this cartridge is gone"),
                None => give_up("no tape copy of it is left that can be read".into()),
            });
        };
        let missing = |segment: &&Segment| !kept.iter().any(|(have, _)| have.range == segment.range);
        let segments = copy.segments.iter().filter(here).filter(missing).cloned().collect();
        let elsewhere = copy.segments.iter().filter(missing).map(|s| &s.extent.volume);
        let elsewhere = elsewhere.into_iter().find(|volume| **volume != self.volume).cloned();
        let (pool, disk_class) = (disk.pool.clone(), disk.name.clone());
        Ok(Wanted { item, segments, kept, nothing: false, elsewhere, located, pool, disk_class })
    }

    /// Finds room on disk for what is to be read.
    pub(super) async fn place(&self, mount: &Mount, picture: &Picture, arrived: &Arrived) -> catalog::Result<Placed> {
        let mut placed = Placed { targets: Vec::new(), mover: None, no_room: Vec::new(), later: Vec::new() };
        let (mut open, mut pool) = (Vec::new(), None);
        for (index, wanted) in arrived.open() {
            // One disk pool at a time; a file that has come wholly from elsewhere needs no room.
            if *pool.get_or_insert_with(|| wanted.pool.clone()) == wanted.pool {
                open.push((index, wanted));
            } else {
                placed.later.push(index);
            }
        }
        let Some(pool) = pool else { return Ok(placed) };
        let snapshot = Arc::clone(&self.context.fleet.watch().borrow());
        let reserve = self.context.config.disk_reserve_bytes.bytes();
        let rooms: Vec<Room> = rooms(&snapshot, &picture.volumes, &pool, reserve);
        let sizes: Vec<u64> = open.iter().map(|(_, wanted)| size_of(wanted)).collect();
        let found = place(&rooms, &sizes, &mount.grant().mover);
        let mut chosen = Vec::new();
        for ((index, wanted), room) in open.iter().zip(found) {
            match room {
                Some(room) => chosen.extend(wanted.segments.iter().map(|segment| (*index, segment.clone(), room))),
                None => placed.no_room.push(*index),
            }
        }
        placed.mover = chosen.first().map(|(_, _, room)| rooms[*room].mover.clone());
        let order = order_recall(chosen.iter().map(|(_, segment, _)| &segment.extent), TapeModel::Linear);
        let count = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        let mut files = if count == 0 { 0..0 } else { self.context.catalog.next_ids(count).await? };
        let mut at = 0u64;
        for index in order {
            let (wanted, segment, room) = chosen[index].clone();
            let (Some(file), Ok(range)) = (files.next(), ByteRange::new(at, segment.range.length())) else { break };
            at = range.end();
            let volume = rooms[room].volume.clone();
            placed.targets.push(Target { wanted, segment, volume, file: FileId(file), range });
        }
        Ok(placed)
    }

    /// Gives back what cannot be read now: with the reason where there is no room, and asks for room.
    pub(super) async fn put_off(&self, arrived: &Arrived, placed: &Placed) {
        let mut releases = Vec::new();
        let release = |wanted: &Wanted, reason: String| WorkFailure {
            ticket: wanted.item.ticket(),
            reason,
            next: AfterFailure::Release,
        };
        for index in &placed.no_room {
            let wanted = arrived.wanted(*index);
            let bytes = size_of(wanted);
            self.context.want_space(&wanted.pool, bytes);
            let waits = Waits::Space { class: wanted.disk_class.clone(), bytes };
            releases.push(release(wanted, waits.to_string()));
            self.context.change_board(|board| {
                board.holds.insert(wanted.located.bitfile.id, waits);
            });
        }
        for index in &placed.later {
            releases.push(release(arrived.wanted(*index), "other files of this cartridge are read first".into()));
        }
        claims::fail(&self.context, releases).await;
    }
}

fn size_of(wanted: &Wanted) -> u64 {
    wanted.segments.iter().map(|segment| segment.range.length()).sum()
}
