//! `/metrics` and `/healthz`, in clear, for machines that watch.
//!
//! Says whether the gateway works and counts what it does; never a name, a path or a secret.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use daemon::telemetry;
use wire::admin::site::Readiness;

use super::Services;

/// The routes.
pub(super) fn router(services: Services) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(health)).with_state(Arc::new(services))
}

async fn metrics(State(services): State<Arc<Services>>) -> Response {
    gauges(&services);
    match &services.telemetry {
        Some(telemetry) => ([(header::CONTENT_TYPE, telemetry::CONTENT_TYPE)], telemetry.render()).into_response(),
        None => (StatusCode::NOT_FOUND, "this process keeps no metrics\n").into_response(),
    }
}

/// Numbers that are looked up rather than counted.
#[allow(clippy::cast_precision_loss)]
fn gauges(services: &Services) {
    let Some(movers) = &services.movers else { return };
    for (name, view) in &movers.snapshot().movers {
        let mover = name.to_string();
        metrics::gauge!("penstock_mover_up", "mover" => mover.clone()).set(f64::from(u8::from(view.is_up())));
        metrics::gauge!("penstock_mover_received_bytes", "mover" => mover.clone())
            .set(view.status.received_bytes as f64);
        metrics::gauge!("penstock_mover_sent_bytes", "mover" => mover.clone()).set(view.status.sent_bytes as f64);
        metrics::gauge!("penstock_mover_relayed_bytes", "mover" => mover).set(view.status.relayed_bytes as f64);
        for volume in &view.status.volumes {
            let label = volume.volume.to_string();
            metrics::gauge!("penstock_volume_capacity_bytes", "volume" => label.clone())
                .set(volume.capacity_bytes as f64);
            metrics::gauge!("penstock_volume_used_bytes", "volume" => label).set(volume.used_bytes as f64);
        }
        for drive in &view.status.drives {
            let name = drive.drive.to_string();
            metrics::gauge!("penstock_drive_written_bytes", "drive" => name.clone()).set(drive.written_bytes as f64);
            metrics::gauge!("penstock_drive_read_bytes", "drive" => name.clone()).set(drive.read_bytes as f64);
            metrics::gauge!("penstock_drive_mounts", "drive" => name).set(drive.mounts as f64);
        }
    }
}

async fn health(State(services): State<Arc<Services>>) -> Response {
    match readiness(&services).await {
        Readiness::Ready => (StatusCode::OK, "ready\n").into_response(),
        Readiness::NotReady { reason } => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// Whether the gateway takes work, and what is missing otherwise.
pub(super) async fn readiness(services: &Services) -> Readiness {
    if let Err(error) = services.catalog.ping().await {
        return Readiness::NotReady { reason: error.to_string() };
    }
    let Some(movers) = &services.movers else { return Readiness::Ready };
    let snapshot = movers.snapshot();
    let away: Vec<&str> =
        snapshot.movers.iter().filter(|(_, view)| !view.is_up()).map(|(name, _)| name.as_str()).collect();
    if away.is_empty() {
        return Readiness::Ready;
    }
    let reason = format!("movers that are not connected: {}", away.join(", "));
    Readiness::NotReady { reason }
}
