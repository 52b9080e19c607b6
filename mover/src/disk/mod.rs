//! Disk volumes: a folder each, a file for each segment file.
//!
//! - [`layout`]: how files are named (pure).
//! - [`identity`]: which volume a folder is.
//! - [`space`]: what is used, promised and left (pure).
//! - [`volume`]: the volume itself.
//! - [`draft`]: a file while it is written.
//! - [`commit`]: makes finished files durable, many at a time.
//!
//! Knows no network and no gateway but the name it writes into a file's name.

mod commit;
mod draft;
mod error;
mod identity;
mod layout;
mod space;
mod sys;
#[cfg(test)]
mod tests;
mod volume;

use std::{collections::BTreeMap, sync::Arc};

use daemon::Shutdown;
use tokio::sync::Notify;
use tracing::error;
use wire::{
    id::VolumeLabel,
    mover::{Fault, FaultKind, VolumeHealth, VolumeStatus},
};

pub(crate) use self::{
    commit::Committer,
    draft::Draft,
    error::DiskError,
    layout::Owner,
    volume::{Volume, VolumeOptions},
};

/// All disk volumes of a mover. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Volumes {
    all: Arc<BTreeMap<VolumeLabel, Result<Entry, String>>>,
}

#[derive(Clone)]
struct Entry {
    volume: Arc<Volume>,
    committer: Committer,
}

impl Volumes {
    /// Opens them all, each on a thread of its own. One that cannot be opened is down, with the reason; the others work.
    pub(crate) async fn open(
        options: &[VolumeOptions],
        sync_threads: usize,
        changed: &Arc<Notify>,
        shutdown: &Shutdown,
    ) -> Self {
        let opening: Vec<_> = options
            .iter()
            .map(|options| {
                let (options, changed) = (options.clone(), changed.clone());
                let label = options.label.clone();
                (label, shutdown.spawn_blocking(move || Volume::open(&options, changed)))
            })
            .collect();
        let mut all = BTreeMap::new();
        for (label, opening) in opening {
            let opened = opening.await.unwrap_or_else(|error| Err(format!("opening it failed: {error}")));
            let entry = opened
                .map(|volume| Entry { committer: Committer::start(volume.clone(), sync_threads, shutdown), volume });
            if let Err(reason) = &entry {
                error!(volume = %label, reason, "volume is down");
            }
            all.insert(label, entry);
        }
        Self { all: Arc::new(all) }
    }

    /// A volume of this mover.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] if there is none of this label, [`FaultKind::Medium`] if it is down.
    pub(crate) fn get(&self, label: &VolumeLabel) -> Result<&Arc<Volume>, Fault> {
        self.entry(label).map(|entry| &entry.volume)
    }

    /// What makes files of a volume durable.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub(crate) fn committer(&self, label: &VolumeLabel) -> Result<&Committer, Fault> {
        self.entry(label).map(|entry| &entry.committer)
    }

    fn entry(&self, label: &VolumeLabel) -> Result<&Entry, Fault> {
        match self.all.get(label) {
            Some(Ok(entry)) => Ok(entry),
            Some(Err(reason)) => Err(DiskError::Down { volume: label.clone(), reason: reason.clone() }.into()),
            None => Err(Fault::new(FaultKind::BadRequest, format!("this mover has no disk volume {label}"))),
        }
    }

    /// Those that can be used.
    pub(crate) fn usable(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.all.values().filter_map(|entry| entry.as_ref().ok()).map(|entry| &entry.volume)
    }

    /// How each is.
    pub(crate) fn status(&self) -> Vec<VolumeStatus> {
        let status = |(label, entry): (&VolumeLabel, &Result<Entry, String>)| match entry {
            Ok(entry) => entry.volume.status(),
            Err(reason) => VolumeStatus {
                volume: label.clone(),
                capacity_bytes: 0,
                used_bytes: 0,
                reserved_bytes: 0,
                health: VolumeHealth::Down { reason: reason.clone() },
            },
        };
        self.all.iter().map(status).collect()
    }
}
