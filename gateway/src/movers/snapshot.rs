//! Who is there and how they are: a picture that planners and operators look at.

use std::{collections::BTreeMap, time::Instant};

use wire::{
    id::{DriveId, LibraryId, MoverId, VolumeLabel},
    mover::{DriveStatus, MoverStatus, VolumeStatus},
};

/// All movers at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By name.
    pub movers: BTreeMap<MoverId, MoverView>,
}

/// One mover.
#[derive(Clone, Debug)]
pub struct MoverView {
    /// Its name.
    pub mover: MoverId,
    /// Where the gateway connects to.
    pub address: String,
    /// The connection.
    pub link: LinkState,
    /// An operator wants nothing new to be given to it, for this reason.
    pub drained: Option<String>,
    /// How many transfers this gateway had under way on it when it was heard of last.
    pub transfers: usize,
    /// What it said last; of the last connection if it is away.
    pub status: MoverStatus,
}

/// The connection to a mover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It is there.
    Up {
        /// Since when.
        since: Instant,
    },
    /// It is not.
    Away {
        /// Since when.
        since: Instant,
        /// Why, as far as this side knows.
        why: String,
    },
}

impl MoverView {
    /// Whether it answers.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self.link, LinkState::Up { .. })
    }

    /// Whether new work may be given to it.
    #[must_use]
    pub const fn takes_work(&self) -> bool {
        self.is_up() && self.drained.is_none() && !self.status.draining
    }
}

impl Snapshot {
    /// A mover by name.
    #[must_use]
    pub fn get(&self, mover: &MoverId) -> Option<&MoverView> {
        self.movers.get(mover)
    }

    /// A disk volume and its mover, if that is or was connected.
    #[must_use]
    pub fn volume(&self, volume: &VolumeLabel) -> Option<(&MoverView, &VolumeStatus)> {
        self.volumes().find(|(_, status)| status.volume == *volume)
    }

    /// All disk volumes.
    pub fn volumes(&self) -> impl Iterator<Item = (&MoverView, &VolumeStatus)> {
        self.movers.values().flat_map(|mover| mover.status.volumes.iter().map(move |volume| (mover, volume)))
    }

    /// A tape drive and its mover.
    #[must_use]
    pub fn drive(&self, drive: &DriveId) -> Option<(&MoverView, &DriveStatus)> {
        self.drives().find(|(_, status)| status.drive == *drive)
    }

    /// All tape drives.
    pub fn drives(&self) -> impl Iterator<Item = (&MoverView, &DriveStatus)> {
        self.movers.values().flat_map(|mover| mover.status.drives.iter().map(move |drive| (mover, drive)))
    }

    /// The mover that controls a library's robot: one that is up, if any is.
    #[must_use]
    pub fn robot(&self, library: &LibraryId) -> Option<&MoverView> {
        let mut controllers = self.movers.values().filter(|mover| mover.status.libraries.contains(library));
        let first = controllers.next()?;
        if first.is_up() { Some(first) } else { controllers.find(|mover| mover.is_up()).or(Some(first)) }
    }
}
