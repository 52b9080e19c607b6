//! Which disk volume takes a file that comes back from tape.
//!
//! Pure, given the movers' last word and the catalogue's volumes. A batch goes to one mover, so that a tape is read in
//! one go; the mover that has the drive is best, since nothing then crosses the network.

use catalog::{Medium, Volume, VolumeState};
use wire::{
    id::{MoverId, VolumeLabel},
    mover::VolumeHealth,
};

use crate::movers::Snapshot;

/// A disk volume with room, of one pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub(super) mover: MoverId,
    pub(super) volume: VolumeLabel,
    /// Bytes that may still be put there.
    pub(super) free_bytes: u64,
}

/// Disk volumes of a pool that can be written now. `reserve_bytes` of each stay free for uploads, though at most a
/// tenth of a small volume.
pub(super) fn rooms(snapshot: &Snapshot, volumes: &[Volume], pool: &str, reserve_bytes: u64) -> Vec<Room> {
    volumes
        .iter()
        .filter(|volume| volume.pool == pool && volume.state == VolumeState::Filling)
        .filter_map(|volume| {
            let Medium::Disk { mover, .. } = &volume.medium else { return None };
            let (view, status) = snapshot.volume(&volume.label)?;
            let usable = view.mover == *mover && view.takes_work() && status.health == VolumeHealth::Up;
            let reserve = reserve_bytes.min(status.capacity_bytes / 10);
            let free_bytes = status.free_bytes().saturating_sub(reserve);
            usable.then(|| Room { mover: mover.clone(), volume: volume.label.clone(), free_bytes })
        })
        .collect()
}

/// Puts files of these sizes on volumes of one mover, as many as fit: for each the index of its room, in order.
///
/// The mover is the one near the drive if all of the files fit there; else the one that takes the most bytes.
pub(super) fn place(rooms: &[Room], sizes: &[u64], near: &MoverId) -> Vec<Option<usize>> {
    let mut movers: Vec<&MoverId> = rooms.iter().map(|room| &room.mover).collect();
    movers.sort();
    movers.dedup();
    let fits = |mover: &MoverId| {
        let mut free: Vec<(usize, u64)> = rooms
            .iter()
            .enumerate()
            .filter(|(_, room)| room.mover == *mover)
            .map(|(index, room)| (index, room.free_bytes))
            .collect();
        let mut taken = 0u64;
        let placed: Vec<Option<usize>> = sizes
            .iter()
            .map(|size| {
                let (index, left) = free.iter_mut().max_by_key(|(_, left)| *left)?;
                if *left < *size {
                    return None;
                }
                *left -= *size;
                taken = taken.saturating_add(*size);
                Some(*index)
            })
            .collect();
        (placed.iter().flatten().count() == sizes.len(), taken, placed)
    };
    movers
        .into_iter()
        .map(|mover| {
            let (all, taken, placed) = fits(mover);
            ((all && mover == near, all, placed.iter().flatten().count(), taken, mover == near), placed)
        })
        .max_by_key(|(rank, _)| *rank)
        .map_or_else(|| vec![None; sizes.len()], |(_, placed)| placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mover(name: &str) -> MoverId {
        MoverId::new(name).expect("a name")
    }

    fn room(on: &str, volume: &str, free_bytes: u64) -> Room {
        Room { mover: mover(on), volume: VolumeLabel::new(volume).expect("a label"), free_bytes }
    }

    #[test]
    fn files_go_where_the_drive_is_if_they_all_fit() {
        let rooms = [room("m1", "a", 100), room("m2", "b", 900)];
        assert_eq!(place(&rooms, &[50, 50], &mover("m1")), [Some(0), Some(0)]);
    }

    #[test]
    fn files_that_do_not_fit_near_the_drive_go_to_where_most_fit() {
        let rooms = [room("m1", "a", 60), room("m2", "b", 900)];
        assert_eq!(place(&rooms, &[50, 50], &mover("m1")), [Some(1), Some(1)]);
    }

    #[test]
    fn what_fits_nowhere_is_left_out_and_the_rest_placed() {
        let rooms = [room("m1", "a", 60)];
        assert_eq!(place(&rooms, &[500, 50, 20], &mover("m1")), [None, Some(0), None]);
        assert_eq!(place(&[], &[1], &mover("m1")), [None]);
    }

    #[test]
    fn a_batch_spreads_over_the_volumes_of_its_mover() {
        let rooms = [room("m1", "a", 100), room("m1", "b", 100)];
        let placed = place(&rooms, &[60, 60, 30], &mover("m1"));
        assert!(placed.iter().all(Option::is_some) && placed[0] != placed[1]);
    }
}
