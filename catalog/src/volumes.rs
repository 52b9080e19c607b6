//! Volumes: registration, state, space, position.

use wire::id::VolumeLabel;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{AppendWish, Fence, Located, NewVolume, Volume, VolumeState};

impl Catalog {
    /// Makes volumes known, or notes where known ones are now and how large. State and position of known ones stay.
    ///
    /// # Errors
    ///
    /// `Inconsistent` if a disk volume would become a cartridge or the other way round.
    pub async fn register_volumes(&self, volumes: Vec<NewVolume>) -> Result<()> {
        let _ = volumes;
        todo!()
    }

    /// All volumes, by label.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        todo!()
    }

    /// One volume.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn volume(&self, label: &VolumeLabel) -> Result<Volume> {
        let _ = label;
        todo!()
    }

    /// Says what may be done with a volume from now on, and why.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn set_volume_state(&self, label: &VolumeLabel, state: VolumeState, reason: &str) -> Result<()> {
        let _ = (label, state, reason);
        todo!()
    }

    /// Takes a mover's word for how large its volumes are and how much of them is used.
    ///
    /// # Errors
    ///
    /// Only those of the database. Unknown volumes are passed over.
    pub async fn report_space(&self, reports: Vec<(VolumeLabel, u64, u64)>) -> Result<()> {
        let _ = reports;
        todo!()
    }

    /// Counts a mount of a cartridge.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn count_mount(&self, label: &VolumeLabel) -> Result<()> {
        let _ = label;
        todo!()
    }

    /// Counts an error of a volume and returns how many there are now.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub async fn count_error(&self, label: &VolumeLabel) -> Result<u64> {
        let _ = label;
        todo!()
    }

    /// The cartridge to append to: one that is being filled before an empty one, the fullest first, so that few are
    /// open. `None` if no writable one has room.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn volume_for_append(&self, wish: &AppendWish) -> Result<Option<Volume>> {
        let _ = wish;
        todo!()
    }

    /// Notes that a cartridge has been labelled (anew): it is empty, its first container begins at `first_block`.
    /// Returns the new label epoch.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InUse` while live bitfiles have segments on it; `Stale` if the fence's lease is lost.
    pub async fn relabel(&self, label: &VolumeLabel, first_block: u64, fence: Option<Fence>) -> Result<u64> {
        let _ = (label, first_block, fence);
        todo!()
    }

    /// Bitfiles with a segment on this volume, in the order in which they lie there, behind `after` (a place as the
    /// last call gave it), at most `limit`: for repack, drain, verify. With each page comes where to go on.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn bitfiles_on(
        &self,
        volume: &VolumeLabel,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Located>, Option<String>)> {
        let _ = (volume, after, limit);
        todo!()
    }
}
