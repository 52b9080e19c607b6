//! What data connections were like, for `verbose`: round-trip time, retransmissions, and what held them back.

use std::time::Duration;

use daemon::tcp::TcpFigures;
use serde_json::json;

use super::app::App;
use crate::{Meter, network::AUTO};

/// Connections that are shown one by one; of more, only the sums.
const SHOWN_EACH: usize = 16;

impl App {
    /// The width as it was set; what `auto` means now is shown with it.
    pub(super) fn shown_width(&self) -> String {
        match (self.width, &self.session) {
            (AUTO, Some(session)) => format!("auto (now {})", session.automatic_streams()),
            (AUTO, None) => "auto".to_owned(),
            (width, _) => width.to_string(),
        }
    }

    /// Tells what the data connections of large files were like, if that is wanted.
    pub(super) fn show_connections(&self, meter: &Meter, elapsed: Duration) {
        let connections = meter.take_connections();
        if !self.verbose || connections.is_empty() {
            return;
        }
        for figures in connections.iter().take(SHOWN_EACH) {
            self.output.result(
                &line(figures, elapsed),
                || json!({"event": "connection", "tcp": figures, "limited_by": figures.limited_by(elapsed)}),
            );
        }
        if connections.len() > SHOWN_EACH {
            let again: u64 = connections.iter().map(|figures| u64::from(figures.retransmits)).sum();
            self.output.note(&format!("{} connections, {again} segments sent again", connections.len()));
        }
    }
}

fn line(figures: &TcpFigures, elapsed: Duration) -> String {
    let milliseconds = |us: u32| f64::from(us) / 1e3;
    let mut text = format!("connection: round trip {:.2} ms", milliseconds(figures.rtt_us));
    if figures.min_rtt_us > 0 {
        text += &format!(" (least {:.2})", milliseconds(figures.min_rtt_us));
    }
    // Who only receives knows nothing of losses and limits: the mover's metrics have them.
    match figures.limited_by(elapsed) {
        Some(by) => {
            let (again, sent) = (figures.retransmits, figures.segments_sent);
            text + &format!(", {again} of {sent} segments sent again, limited by the {by}")
        }
        None => text + &format!(", {} received", super::output::bytes(figures.received_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_told_what_held_it_back_and_a_receiver_what_came() {
        let sent = TcpFigures {
            rtt_us: 80_250,
            min_rtt_us: 80_000,
            retransmits: 3,
            segments_sent: 900,
            sent_bytes: 1 << 20,
            busy_us: 1_000_000,
            ..TcpFigures::default()
        };
        let second = Duration::from_secs(1);
        let expected =
            "connection: round trip 80.25 ms (least 80.00), 3 of 900 segments sent again, limited by the network";
        assert_eq!(line(&sent, second), expected);
        let received = TcpFigures { rtt_us: 100, received_bytes: 2048, ..TcpFigures::default() };
        assert_eq!(line(&received, second), "connection: round trip 0.10 ms, 2.0 KiB received");
    }
}
