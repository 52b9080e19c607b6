//! Delivers events: one gateway at a time, each destination in its own time and in order.
//!
//! Owns nothing that lasts: events are rows of the catalogue until a destination has acknowledged them. A batch is held
//! in memory for each destination. Talks to the catalogue and to the two kinds of destinations.
//!
//! Invariant: an event is forgotten after its destination has acknowledged it, or because it waited too long or too
//! many wait; the latter is counted, and the log says so.

use std::{
    io,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use catalog::{EventsDropped, QueuedEvent};
use daemon::Shutdown;
use futures::future::join_all;
use tracing::{debug, info, warn};

use super::{
    config::DestinationConfig,
    file,
    record::{self, Frame},
    webhook::Webhook,
};
use crate::s3::{Door, S3Config};

/// The lease of delivery.
const LEASE: &str = "s3-events";
/// Events of one batch. A record has some kilobytes at most.
const BATCH: u32 = 100;
/// How often it is looked for what other gateways have written.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after the first failure; it doubles with each further one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is looked whether something waits for too long, or too much.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Lets the gateway that has the lease deliver.
///
/// # Errors
///
/// If what a destination needs cannot be read.
pub(in crate::s3) async fn start(door: &Door) -> io::Result<()> {
    for (name, config) in &door.config.notify {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("s3.notify.{name}: {error}"));
        if let Outlet::Webhook(webhook) = Outlet::open(config).map_err(named)? {
            webhook.check().await.map_err(named)?;
        }
    }
    let door = door.clone();
    door.hsm.clone().lead(LEASE, move |shutdown| run(door.clone(), shutdown));
    Ok(())
}

async fn run(door: Door, shutdown: Shutdown) {
    let mut destinations = Vec::new();
    for (name, config) in &door.config.notify {
        match Outlet::open(config) {
            Ok(outlet) => destinations.push(Destination::new(name, outlet, &door, &shutdown)),
            Err(error) => warn!(destination = %name, %error, "nothing is delivered there"),
        }
    }
    tokio::join!(join_all(destinations.into_iter().map(Destination::run)), strangers(&door, &shutdown));
}

/// What waits for destinations that are named no more is kept as long as the others', for it may be named again.
async fn strangers(door: &Door, shutdown: &Shutdown) {
    while !shutdown.is_stopping() {
        match door.catalog.event_destinations().await {
            Ok(waiting) => {
                for name in waiting.iter().filter(|name| !door.config.notify.contains_key(*name)) {
                    trim(door, name).await;
                }
            }
            Err(error) => warn!(%error, "events of unknown destinations not looked at"),
        }
        rest(TRIM_EVERY, shutdown).await;
    }
}

/// Drops what waits for too long, and what is too much.
async fn trim(door: &Door, name: &str) {
    let S3Config { event_age, event_limit, .. } = &door.config;
    let before = door.catalog.now().before(event_age.duration());
    match door.catalog.trim_events(name, before, *event_limit).await {
        Ok(EventsDropped { old: 0, many: 0 }) => {}
        Ok(EventsDropped { old, many }) => {
            warn!(destination = name, old, many, "events dropped: nobody will hear of them");
            for (reason, count) in [("old", old), ("many", many)] {
                let destination = name.to_owned();
                metrics::counter!("penstock_s3_events_dropped_total", "destination" => destination, "reason" => reason)
                    .increment(count);
            }
        }
        Err(error) => warn!(destination = name, %error, "events that wait not looked at"),
    }
    match door.catalog.count_events(name, *event_limit).await {
        Ok(count) => metrics::gauge!("penstock_s3_events_waiting", "destination" => name.to_owned()).set(count as f64),
        Err(error) => debug!(destination = name, %error, "events that wait not counted"),
    }
}

async fn rest(time: Duration, shutdown: &Shutdown) {
    tokio::select! {
        () = shutdown.stopping() => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// The pause after so many failures one after the other.
fn pause(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// A way to a destination.
enum Outlet {
    Webhook(Webhook),
    File(PathBuf),
}

impl Outlet {
    fn open(config: &DestinationConfig) -> io::Result<Self> {
        match (&config.webhook, &config.file) {
            (Some(address), _) => Webhook::open(config, address).map(Self::Webhook),
            (None, Some(file)) => Ok(Self::File(file.clone())),
            (None, None) => Err(io::Error::other("it has neither a webhook nor a file")),
        }
    }
}

/// A destination, while this gateway delivers.
struct Destination {
    name: String,
    outlet: Outlet,
    door: Door,
    shutdown: Shutdown,
}

impl Destination {
    fn new(name: &str, outlet: Outlet, door: &Door, shutdown: &Shutdown) -> Self {
        Self { name: name.to_owned(), outlet, door: door.clone(), shutdown: shutdown.clone() }
    }

    async fn run(self) {
        let mut written = self.door.catalog.events_written();
        let (mut failures, mut trimmed) = (0, None::<Instant>);
        while !self.shutdown.is_stopping() {
            if trimmed.is_none_or(|at| at.elapsed() >= TRIM_EVERY) {
                trim(&self.door, &self.name).await;
                trimmed = Some(Instant::now());
            }
            written.mark_unchanged();
            match self.turn().await {
                Ok(0) => {
                    tokio::select! {
                        () = rest(LOOK_EVERY, &self.shutdown) => {}
                        // The writer of a catalogue that is closed says nothing any more.
                        changed = written.changed() => if changed.is_err() { return },
                    }
                }
                Ok(_) => {
                    if failures > 0 {
                        info!(destination = self.name, failures, "events are delivered again");
                    }
                    failures = 0;
                }
                Err(error) => {
                    failures += 1;
                    let pause = pause(failures);
                    warn!(destination = self.name, %error, failures, ?pause, "events not delivered");
                    self.count("penstock_s3_events_failed_total", 1);
                    rest(pause, &self.shutdown).await;
                }
            }
        }
    }

    /// Delivers the next batch; how many events.
    async fn turn(&self) -> io::Result<usize> {
        let queued = self.door.catalog.events(&self.name, BATCH).await.map_err(io::Error::other)?;
        let frame = Frame { region: &self.door.config.region, classes: &self.door.config.classes };
        let (events, last) = match &self.outlet {
            Outlet::Webhook(webhook) => {
                let Some(message) = record::next_message(&queued, frame) else { return Ok(0) };
                webhook.post(Bytes::from(message.body.to_string())).await?;
                (message.events, message.last)
            }
            Outlet::File(path) => {
                let Some(last) = queued.last() else { return Ok(0) };
                self.append(path, &queued, frame).await?;
                (queued.len(), last.number)
            }
        };
        self.door.catalog.forget_events(&self.name, last).await.map_err(io::Error::other)?;
        self.count("penstock_s3_events_delivered_total", events as u64);
        debug!(destination = self.name, events, "events delivered");
        Ok(events)
    }

    async fn append(&self, path: &std::path::Path, queued: &[QueuedEvent], frame: Frame<'_>) -> io::Result<()> {
        let mut lines = String::new();
        for queued in queued {
            lines.push_str(&record::line(queued, frame).to_string());
            lines.push('\n');
        }
        let path = path.to_owned();
        let appended = self.shutdown.spawn_blocking(move || file::append(&path, lines.as_bytes()));
        appended.await.map_err(io::Error::other)?
    }

    fn count(&self, name: &'static str, count: u64) {
        metrics::counter!(name, "destination" => self.name.clone()).increment(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds = |failures| pause(failures).as_secs_f64();
        assert_eq!([1, 2, 3, 4].map(seconds), [0.5, 1.0, 2.0, 4.0]);
        assert_eq!([8, 9, 40, u32::MAX].map(seconds), [60.0; 4]);
    }
}
