//! Numbers of a process, in Prometheus's text format.
//!
//! Owns the recorder behind the `metrics` macros. Talks to nobody: an HTTP door asks for
//! [`Telemetry::render`]. Never opens a listener.
//!
//! Invariant: one recorder per process, shared by every site in it; names are told apart by
//! labels (`mover`, `gateway`), never by recorder.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of every `*_seconds` histogram: from a cached name lookup to a tape mount.
const SECONDS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 14400.0];

/// Upper bounds of every `*_bytes` histogram: from a 4 KiB file to a full cartridge.
const BYTES: &[f64] =
    &[4096.0, 65536.0, 1048576.0, 16777216.0, 268435456.0, 4294967296.0, 68719476736.0, 1099511627776.0];

/// The media type of [`Telemetry::render`]'s text, for the `Content-Type` header.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Reads what the `metrics` macros counted. Cheap to clone.
#[derive(Clone)]
pub struct Telemetry(PrometheusHandle);

/// Somebody else's recorder is behind the `metrics` macros.
#[derive(Debug, thiserror::Error)]
#[error(
    "a metrics recorder that is not ours is already installed in this process; remove the other set_global_recorder call"
)]
pub struct ForeignRecorder;

impl Telemetry {
    /// Installs the recorder, or joins the one an earlier call installed.
    ///
    /// # Errors
    ///
    /// If a library in this process installed a recorder of its own first.
    pub fn install() -> Result<Self, ForeignRecorder> {
        HANDLE.get_or_init(install).clone().map(Self).ok_or(ForeignRecorder)
    }

    /// Everything counted so far, as Prometheus scrapes it.
    #[must_use]
    pub fn render(&self) -> String {
        // Histograms keep raw samples until upkeep folds them into buckets; a scrape is the only
        // regular caller we have, and bounds them.
        self.0.run_upkeep();
        self.0.render()
    }

    /// Folds samples into buckets. To be called now and then where nobody scrapes.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

fn install() -> Option<PrometheusHandle> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), BYTES))
        .expect("bucket lists are constants and not empty")
        .build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).ok()?;
    Some(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sites_in_one_process_share_one_recorder() {
        let (first, second) = (Telemetry::install().unwrap(), Telemetry::install().unwrap());
        metrics::counter!("penstock_test_total", "mover" => "m1").increment(2);
        metrics::histogram!("penstock_test_seconds").record(0.02);
        for text in [first.render(), second.render()] {
            assert!(text.contains("penstock_test_total{mover=\"m1\"} 2"), "{text}");
            assert!(text.contains("penstock_test_seconds_bucket{le=\"0.05\"} 1"), "{text}");
        }
    }
}
