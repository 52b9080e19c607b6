//! What the kernel knows of a data connection, into the metrics when it ends.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use daemon::tcp::{self, LimitedBy};
use metrics::{counter, histogram};

/// Counts a connection that began at `since` and ends now: round-trip time, retransmissions, and for how long who held
/// it back.
pub(super) fn note(socket: &impl AsFd, security: &'static str, since: Instant) {
    let Ok(figures) = tcp::figures(socket) else { return };
    counter!("penstock_mover_connections_total", "security" => security).increment(1);
    if figures.rtt_us > 0 {
        histogram!("penstock_mover_connection_rtt_seconds").record(f64::from(figures.rtt_us) / 1e6);
    }
    counter!("penstock_mover_connection_segments_total").increment(figures.segments_sent.into());
    counter!("penstock_mover_connection_retransmits_total").increment(figures.retransmits.into());
    let Some(by) = figures.limited_by(since.elapsed()) else { return };
    counter!("penstock_mover_connections_limited_total", "by" => by.word()).increment(1);
    let network = figures.busy_us.saturating_sub(figures.receiver_limited_us + figures.buffer_limited_us);
    for (by, us) in [
        (LimitedBy::Network, network),
        (LimitedBy::Receiver, figures.receiver_limited_us),
        (LimitedBy::Sender, figures.buffer_limited_us),
    ] {
        let milliseconds = Duration::from_micros(us).as_millis();
        counter!("penstock_mover_connection_limited_milliseconds_total", "by" => by.word())
            .increment(u64::try_from(milliseconds).unwrap_or(u64::MAX));
    }
}
