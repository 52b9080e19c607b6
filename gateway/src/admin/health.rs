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
        Readiness::Degraded { reason } => (StatusCode::OK, format!("ready, but {reason}\n")).into_response(),
        Readiness::NotReady { reason } => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
        // What a newer version says; this one never does.
        Readiness::Unknown => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Whether the gateway takes work, and what is missing otherwise.
pub(super) async fn readiness(services: &Services) -> Readiness {
    if let Err(error) = services.catalog.ping().await {
        return Readiness::NotReady { reason: error.to_string() };
    }
    let Some(movers) = &services.movers else { return Readiness::Ready };
    let snapshot = movers.snapshot();
    let movers = snapshot.movers.iter().map(|(name, view)| (name.as_str(), view.is_up()));
    verdict(&movers.collect::<Vec<_>>())
}

/// What movers, each with whether it is connected, make of a gateway that has its catalogue. One is enough: what the
/// others hold has to wait, and all else goes on.
fn verdict(movers: &[(&str, bool)]) -> Readiness {
    let away: Vec<&str> = movers.iter().filter(|(_, up)| !up).map(|(name, _)| *name).collect();
    let reason = format!("movers that are not connected: {}", away.join(", "));
    match away.len() {
        0 => Readiness::Ready,
        count if count < movers.len() => Readiness::Degraded { reason },
        _ => Readiness::NotReady { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_ready_while_any_mover_is_there_and_names_those_that_are_not() {
        let reason = |text: &str| format!("movers that are not connected: {text}");
        assert_eq!(verdict(&[("m1", true), ("m2", true)]), Readiness::Ready);
        assert_eq!(verdict(&[("m1", true), ("m2", false)]), Readiness::Degraded { reason: reason("m2") });
        assert_eq!(verdict(&[("m1", false), ("m2", false)]), Readiness::NotReady { reason: reason("m1, m2") });
    }
}
