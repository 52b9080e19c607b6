//! Disk volumes become known to the catalogue as movers report them.
//!
//! Owns what was reported last. Talks to the catalogue: a new or larger volume at once, its space once a minute.

use std::{
    collections::HashMap,
    sync::PoisonError,
    time::{Duration, Instant},
};

use catalog::{Catalog, Home, MediumKind, NewVolume};
use daemon::Shutdown;
use tokio::sync::mpsc;
use tracing::{info, warn};
use wire::{
    id::{MoverId, VolumeLabel},
    mover::{MoverStatus, VolumeStatus},
};

use super::Shared;
use crate::config::StorageConfig;

const SPACE_PERIOD: Duration = Duration::from_secs(60);

/// What a mover said of itself.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) mover: MoverId,
    pub(super) status: MoverStatus,
}

/// Makes volumes known.
pub(super) struct Registrar {
    catalog: Catalog,
    storage: StorageConfig,
    shared: Shared,
    statuses: mpsc::Receiver<Heard>,
    known: HashMap<VolumeLabel, (MoverId, u64)>,
    reported: HashMap<MoverId, Instant>,
}

impl Registrar {
    pub(super) fn new(catalog: Catalog, storage: StorageConfig, shared: Shared) -> (mpsc::Sender<Heard>, Self) {
        let (sender, statuses) = mpsc::channel(64);
        let registrar = Self { catalog, storage, shared, statuses, known: HashMap::new(), reported: HashMap::new() };
        (sender, registrar)
    }

    pub(super) async fn run(mut self, shutdown: &Shutdown) {
        loop {
            tokio::select! {
                heard = self.statuses.recv() => match heard {
                    Some(heard) => self.take(heard).await,
                    None => return,
                },
                () = shutdown.stopping() => return,
            }
        }
    }

    async fn take(&mut self, Heard { mover, status }: Heard) {
        let mut fresh = Vec::new();
        for volume in &status.volumes {
            let known = self.known.get(&volume.volume);
            if known.is_some_and(|known| *known == (mover.clone(), volume.capacity_bytes)) {
                continue;
            }
            if let Some((other, _)) = known.filter(|(other, _)| *other != mover && self.has(other, &volume.volume)) {
                warn!(volume = %volume.volume, %mover, %other, "two movers claim one volume, the first keeps it");
                continue;
            }
            fresh.extend(self.new_volume(&mover, volume));
        }
        if !fresh.is_empty() {
            if let Err(error) = self.catalog.register_volumes(fresh.clone()).await {
                warn!(%mover, %error, "volumes could not be made known, they are when the mover reports next");
                return;
            }
            for volume in fresh {
                info!(volume = %volume.label, %mover, pool = volume.pool, bytes = volume.capacity_bytes, "volume known");
                let mut homes = self.shared.homes.lock().unwrap_or_else(PoisonError::into_inner);
                homes.insert(volume.label.clone(), mover.clone());
                self.known.insert(volume.label, (mover.clone(), volume.capacity_bytes));
            }
        }
        if self.reported.get(&mover).is_none_or(|at| at.elapsed() >= SPACE_PERIOD) && !status.volumes.is_empty() {
            let space = |volume: &VolumeStatus| (volume.volume.clone(), volume.capacity_bytes, volume.used_bytes);
            match self.catalog.report_space(status.volumes.iter().map(space).collect()).await {
                Ok(()) => drop(self.reported.insert(mover, Instant::now())),
                Err(error) => warn!(%mover, %error, "space of volumes could not be noted"),
            }
        }
    }

    fn has(&self, mover: &MoverId, volume: &VolumeLabel) -> bool {
        let snapshot = self.shared.snapshot.borrow();
        let view = snapshot.get(mover).filter(|view| view.is_up());
        view.is_some_and(|view| view.status.volumes.iter().any(|status| status.volume == *volume))
    }

    fn new_volume(&mut self, mover: &MoverId, volume: &VolumeStatus) -> Option<NewVolume> {
        let Some(place) = self.storage.place(MediumKind::Disk, &volume.volume) else {
            warn!(volume = %volume.volume, %mover, "volume fits no [[storage_class]] of kind \"disk\", it is not used");
            self.known.insert(volume.volume.clone(), (mover.clone(), volume.capacity_bytes));
            return None;
        };
        Some(NewVolume {
            label: volume.volume.clone(),
            pool: place.pool,
            capacity_bytes: volume.capacity_bytes,
            home: Home::Mover(mover.clone()),
        })
    }
}
