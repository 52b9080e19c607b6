//! What the mount service and the catalogue tell each other of cartridges: which there are, where each ends, which must
//! not be used.
//!
//! Owns nothing. Talks to the catalogue only, under the fence of the tape service's lease. Never decides: what a tape's
//! end means is [`reconcile`]'s to say.

use std::time::Duration;

use catalog::{Catalog, CatalogError, Fence, Home, NewVolume, VolumeState, WrittenContainer};
use tracing::{info, warn};
use wire::{
    id::{LibraryId, StorageClassName, VolumeLabel},
    mover::{Fault, FaultKind, Mounted, Slot},
};

use super::{
    owner::Pools,
    reconcile::{Verdict, reconcile},
};

/// Makes cartridges known to the catalogue that were not seen before.
pub(super) async fn register(catalog: &Catalog, pools: &Pools, library: &LibraryId, slots: &[Slot]) {
    let known: Vec<VolumeLabel> = match catalog.volumes().await {
        Ok(volumes) => volumes.into_iter().map(|volume| volume.label).collect(),
        Err(error) => return warn!(%library, %error, "cartridges not compared with the catalogue"),
    };
    let fresh: Vec<NewVolume> = slots
        .iter()
        .filter(|slot| !slot.cleaning)
        .filter_map(|slot| slot.volume.as_ref())
        .filter(|label| !known.contains(label))
        .filter_map(|label| {
            // How much it holds is not known before it is mounted.
            let home = Home::Library(library.clone());
            Some(NewVolume { label: label.clone(), pool: pools(label)?, capacity_bytes: 0, home })
        })
        .collect();
    if fresh.is_empty() {
        return;
    }
    info!(%library, cartridges = fresh.len(), "cartridges known");
    if let Err(error) = catalog.register_volumes(fresh).await {
        warn!(%library, %error, "cartridges not made known; they are at the next inventory");
    }
}

/// Compares the tape with the catalogue, and lets the catalogue take over what is right.
pub(super) async fn agree(
    catalog: &Catalog,
    fence: Fence,
    label: &VolumeLabel,
    found: Mounted,
) -> Result<Mounted, Fault> {
    let unavailable =
        |error: CatalogError| Fault::new(FaultKind::Busy, format!("compare {label} with the catalogue: {error}"));
    let volume = catalog.volume(label).await.map_err(unavailable)?;
    let Some(known) = volume.position() else {
        return Err(Fault::new(FaultKind::WrongVolume, format!("{label} is a disk volume in the catalogue")));
    };
    match reconcile(&found, known) {
        Verdict::Agrees => {}
        Verdict::Fresh { first_block } => {
            info!(volume = %label, first_block, "cartridge is empty and labelled");
            catalog.relabel(label, first_block, Some(fence)).await.map_err(unavailable)?;
        }
        Verdict::Adopt { position, dead } => {
            if dead > 0 {
                warn!(volume = %label, dead, "containers on tape that the catalogue does not know: dead space");
            }
            let adopted = WrittenContainer {
                volume: label.clone(),
                before: known,
                after: position,
                written_bytes: dead_bytes(&found, &volume),
                copy: 1,
                storage_class: StorageClassName::new("none").expect("a plain word is a name"),
                members: Vec::new(),
                fence: Some(fence),
            };
            catalog.record_container(adopted).await.map_err(unavailable)?;
        }
        Verdict::Suspect { reason } => return Err(Fault::new(FaultKind::VolumeSuspect, reason)),
    }
    if let (Some(reason), true) = (&found.read_only, volume.state.writable()) {
        catalog.set_volume_state(label, VolumeState::ReadOnly, reason).await.map_err(unavailable)?;
    }
    let catalog::Medium::Tape { library, .. } = &volume.medium else { return Ok(found) };
    if found.capacity_bytes != volume.capacity_bytes && found.capacity_bytes > 0 {
        let home = Home::Library(library.clone());
        let learned =
            NewVolume { label: label.clone(), pool: volume.pool.clone(), capacity_bytes: found.capacity_bytes, home };
        if let Err(error) = catalog.register_volumes(vec![learned]).await {
            warn!(volume = %label, %error, "capacity not noted");
        }
    }
    if let Err(error) = catalog.count_mount(label).await {
        warn!(volume = %label, %error, "mount not counted");
    }
    Ok(found)
}

/// How much of the tape containers that nobody knows take, as far as the drive can tell.
fn dead_bytes(found: &Mounted, known: &catalog::Volume) -> u64 {
    let catalog::Medium::Tape { written_bytes, .. } = &known.medium else { return 0 };
    found.capacity_bytes.saturating_sub(found.remaining_bytes).saturating_sub(*written_bytes)
}

/// Notes that a volume must not be used, however long the catalogue is away.
pub(super) async fn disable(catalog: &Catalog, volume: &VolumeLabel, reason: &str) {
    let mut pause = Duration::from_millis(200);
    loop {
        match catalog.set_volume_state(volume, VolumeState::Disabled, reason).await {
            Err(error) if error.is_retryable() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(30));
            }
            Err(error) => {
                warn!(%volume, %error, "volume not disabled in the catalogue");
                return;
            }
            Ok(()) => break,
        }
    }
    if let Err(error) = catalog.count_error(volume).await {
        warn!(%volume, %error, "error not counted");
    }
}
