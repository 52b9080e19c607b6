//! What a mover counts, in one place: names and labels.
//!
//! All names begin with `penstock_mover_`. Labels are bounded by the configuration: `mover`, `volume`, `drive`, and a few
//! fixed words.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use wire::{
    id::{MoverId, VolumeLabel},
    mover::{DriveHealth, MoverStatus, VolumeHealth},
};

/// Which way bytes go over the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From a peer.
    Received,
    /// To a peer.
    Sent,
    /// Not at all: between disks and tapes.
    Local,
}

/// A round of files became durable.
pub(crate) fn committed(volume: &VolumeLabel, files: usize, took: Duration) {
    let volume = volume.to_string();
    counter!("penstock_mover_committed_files_total", "volume" => volume.clone()).increment(files as u64);
    histogram!("penstock_mover_sync_seconds", "volume" => volume).record(took.as_secs_f64());
}

/// Bytes moved over data connections.
pub(crate) fn moved(mover: &MoverId, direction: Direction, framing: &'static str, security: &'static str, bytes: u64) {
    let direction = match direction {
        Direction::Received => "received",
        Direction::Sent => "sent",
        Direction::Local => return,
    };
    counter!(
        "penstock_mover_data_bytes_total",
        "mover" => mover.to_string(), "direction" => direction, "framing" => framing, "security" => security,
    )
    .increment(bytes);
}

/// Bytes that came from a channel and went to a channel.
pub(crate) fn relayed(mover: &MoverId, bytes: u64) {
    counter!("penstock_mover_relayed_bytes_total", "mover" => mover.to_string()).increment(bytes);
}

/// A transfer ended.
pub(crate) fn transfer_ended(mover: &MoverId, kind: &'static str, outcome: &'static str, took: Duration) {
    let mover = mover.to_string();
    counter!("penstock_mover_transfers_total", "mover" => mover.clone(), "kind" => kind, "outcome" => outcome)
        .increment(1);
    histogram!("penstock_mover_transfer_seconds", "mover" => mover, "kind" => kind).record(took.as_secs_f64());
}

/// An HTTP request was answered.
pub(crate) fn http_answered(mover: &MoverId, status: u16) {
    counter!("penstock_mover_http_requests_total", "mover" => mover.to_string(), "status" => status.to_string())
        .increment(1);
}

/// A transfer stood still for too long.
pub(crate) fn stalled(mover: &MoverId) {
    counter!("penstock_mover_stalls_total", "mover" => mover.to_string()).increment(1);
}

/// How much of the block pool is in use.
pub(crate) fn pool(mover: &MoverId, used_bytes: u64, budget_bytes: u64) {
    gauge!("penstock_mover_pool_used_bytes", "mover" => mover.to_string()).set(used_bytes as f64);
    gauge!("penstock_mover_pool_budget_bytes", "mover" => mover.to_string()).set(budget_bytes as f64);
}

/// How many transfers and channels there are.
pub(crate) fn load(mover: &MoverId, transfers: usize, channels: usize) {
    gauge!("penstock_mover_transfers", "mover" => mover.to_string()).set(transfers as f64);
    gauge!("penstock_mover_channels", "mover" => mover.to_string()).set(channels as f64);
}

/// What the volumes and drives say of themselves.
pub(crate) fn devices(mover: &MoverId, status: &MoverStatus) {
    let mover = mover.to_string();
    for volume in &status.volumes {
        let label = volume.volume.to_string();
        for (kind, bytes) in [
            ("capacity", volume.capacity_bytes),
            ("used", volume.used_bytes),
            ("reserved", volume.reserved_bytes),
            ("free", volume.free_bytes()),
        ] {
            gauge!("penstock_mover_volume_bytes", "mover" => mover.clone(), "volume" => label.clone(), "kind" => kind)
                .set(bytes as f64);
        }
        let up = f64::from(u8::from(volume.health == VolumeHealth::Up));
        gauge!("penstock_mover_volume_up", "mover" => mover.clone(), "volume" => label).set(up);
    }
    for drive in &status.drives {
        let name = drive.drive.to_string();
        counter!("penstock_mover_drive_bytes_total", "mover" => mover.clone(), "drive" => name.clone(), "direction" => "written")
            .absolute(drive.written_bytes);
        counter!("penstock_mover_drive_bytes_total", "mover" => mover.clone(), "drive" => name.clone(), "direction" => "read")
            .absolute(drive.read_bytes);
        counter!("penstock_mover_drive_mounts_total", "mover" => mover.clone(), "drive" => name.clone())
            .absolute(drive.mounts);
        let up = f64::from(u8::from(drive.health == DriveHealth::Up));
        gauge!("penstock_mover_drive_up", "mover" => mover.clone(), "drive" => name).set(up);
    }
}
