//! Files on movers that nobody confirmed: the catalogue is asked, and each is confirmed or removed.
//!
//! Owns the suspects. Talks to the catalogue, many files in one question, and to the movers. Never touches a file that
//! is in flight here.
//!
//! A file that the catalogue does not know may belong to a transfer of another gateway that is about to publish it: such
//! a one is looked into again after a grace. Files that this gateway itself gives up are removed at once.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use catalog::VolumeFile as CatalogFile;
use daemon::Shutdown;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};
use wire::{
    id::MoverId,
    mover::{Answer, Call, VolumeFile},
};

use super::Movers;

/// Files asked after in one statement.
const BATCH: usize = 1000;
/// How soon the catalogue is asked again if it is away.
const RETRY: Duration = Duration::from_secs(5);
/// How soon a file is looked at again that was given up and is in flight all the same: whoever gives it up says so to
/// the mover's link, too, and that may hear it later.
const LANDING: Duration = Duration::from_millis(50);
/// How soon a file is looked at again that a mover reported while it was in flight. Its owner may never hear that it
/// arrived: the mover was killed before it could say so.
const FLIGHT: Duration = Duration::from_secs(1);

/// Files that nobody here will confirm.
#[derive(Debug)]
pub(super) struct Suspects {
    pub(super) files: Vec<VolumeFile>,
    /// Whether another gateway may be about to publish them.
    pub(super) patient: bool,
}

/// Looks into suspects.
pub(super) struct Janitor {
    movers: Movers,
    grace: Duration,
    suspects: mpsc::UnboundedReceiver<Suspects>,
    waiting: Waiting,
}

/// Suspects in the order in which they are due. Pure: time comes as an argument.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<(Instant, VolumeFile, bool)>,
    first_seen: HashMap<VolumeFile, Instant>,
}

impl Waiting {
    fn add(&mut self, suspects: Suspects, now: Instant) {
        for file in suspects.files {
            if suspects.patient {
                if self.first_seen.contains_key(&file) {
                    continue;
                }
                self.first_seen.insert(file.clone(), now);
                self.queue.push_back((now, file, true));
            } else {
                // First of all, and the queue stays in order.
                let due = self.due().map_or(now, |first| first.min(now));
                self.queue.push_front((due, file, false));
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.queue.front().map(|(due, ..)| *due)
    }

    fn take(&mut self, now: Instant) -> Vec<(VolumeFile, bool)> {
        let mut taken = Vec::new();
        while taken.len() < BATCH && self.due().is_some_and(|due| due <= now) {
            if let Some((_, file, patient)) = self.queue.pop_front() {
                taken.push((file, patient));
            }
        }
        taken
    }

    /// Puts off what is in flight until it has landed.
    fn flies(&mut self, file: VolumeFile, patient: bool, now: Instant) {
        self.put_off(file, patient, now + if patient { FLIGHT } else { LANDING });
    }

    fn put_off(&mut self, file: VolumeFile, patient: bool, until: Instant) {
        let at = self.queue.partition_point(|(due, ..)| *due <= until);
        self.queue.insert(at, (until, file, patient));
    }

    /// Sorts what the catalogue does not know into what goes now and what waits for the rest of its grace.
    fn unknown(&mut self, files: Vec<(VolumeFile, bool)>, now: Instant, grace: Duration) -> Vec<VolumeFile> {
        let mut remove = Vec::new();
        for (file, patient) in files {
            let until = self.first_seen.get(&file).map_or(now, |seen| *seen + grace);
            if patient && until > now {
                self.put_off(file, true, until);
            } else {
                self.first_seen.remove(&file);
                remove.push(file);
            }
        }
        remove
    }
}

impl Janitor {
    pub(super) fn new(movers: Movers, grace: Duration, suspects: mpsc::UnboundedReceiver<Suspects>) -> Self {
        Self { movers, grace, suspects, waiting: Waiting::default() }
    }

    /// Works until the shutdown's soft token.
    pub(super) async fn run(mut self, shutdown: &Shutdown) {
        loop {
            let due = self.waiting.due();
            tokio::select! {
                suspects = self.suspects.recv() => match suspects {
                    Some(suspects) => self.waiting.add(suspects, Instant::now()),
                    None => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.look().await,
                () = shutdown.stopping() => return,
            }
        }
    }

    async fn look(&mut self) {
        let batch = self.waiting.take(Instant::now());
        let files = self.movers.0.shared.flying.landed(batch.iter().map(|(file, _)| file.clone()).collect());
        let mut patience: HashMap<_, _> = batch.into_iter().collect();
        let landed: HashSet<_> = files.iter().cloned().collect();
        for (file, patient) in patience.extract_if(|file, _| !landed.contains(file)) {
            self.waiting.flies(file, patient, Instant::now());
        }
        if files.is_empty() {
            return;
        }
        let asked: Vec<_> = files.iter().map(for_catalog).collect();
        let unknown = match self.movers.0.catalog.unknown_files(&asked).await {
            Ok(unknown) => unknown,
            Err(error) => {
                warn!(%error, files = files.len(), "catalogue away, unconfirmed files wait");
                let again = Instant::now() + RETRY;
                for file in files {
                    let patient = patience[&file];
                    self.waiting.put_off(file, patient, again);
                }
                return;
            }
        };
        let (strays, known): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| unknown.contains(&for_catalog(file)));
        for file in &known {
            self.waiting.first_seen.remove(file);
        }
        if !known.is_empty() {
            debug!(files = known.len(), "unconfirmed files are in the catalogue");
            self.movers.confirm(known);
        }
        let strays = strays.into_iter().map(|file| (file.clone(), patience[&file])).collect();
        let remove = self.waiting.unknown(strays, Instant::now(), self.grace);
        for (mover, files) in self.movers.by_mover(remove) {
            self.remove(mover, files);
        }
    }

    /// Asks a mover to remove files, without waiting: one that is away lists them again when it is back.
    fn remove(&self, mover: MoverId, files: Vec<VolumeFile>) {
        let movers = self.movers.clone();
        tokio::spawn(async move {
            let count = files.len();
            match movers.call(&mover, Call::Remove { files }).await {
                Ok(Answer::Removed { removed, failed }) => {
                    info!(%mover, files = removed.len(), "removed files that nobody needs");
                    for (file, fault) in failed {
                        warn!(%mover, volume = %file.volume, file = %file.file, %fault, "file could not be removed");
                    }
                }
                Ok(other) => warn!(%mover, ?other, "unexpected answer to a removal"),
                Err(error) => debug!(%mover, files = count, %error, "removal waits for the mover"),
            }
        });
    }
}

fn for_catalog(file: &VolumeFile) -> CatalogFile {
    CatalogFile { volume: file.volume.clone(), file: file.file }
}

#[cfg(test)]
mod tests {
    use wire::id::{FileId, VolumeLabel};

    use super::*;

    fn file(number: u64) -> VolumeFile {
        VolumeFile { volume: VolumeLabel::new("m1.d0").expect("a good label"), file: FileId(number) }
    }

    #[test]
    fn a_file_that_is_in_flight_is_looked_at_again_until_it_has_landed() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        waiting.add(Suspects { files: vec![file(1)], patient: false }, start);
        waiting.add(Suspects { files: vec![file(2)], patient: true }, start);
        for (file, patient) in waiting.take(start) {
            waiting.flies(file, patient, start);
        }
        assert!(waiting.take(start).is_empty());
        assert_eq!(waiting.take(start + LANDING), [(file(1), false)]);
        waiting.add(Suspects { files: vec![file(2)], patient: true }, start + LANDING);
        // Its owner may not know that it arrived.
        assert_eq!(waiting.take(start + FLIGHT), [(file(2), true)]);
        let taken = vec![(file(2), true)];
        assert_eq!(waiting.unknown(taken, start + FLIGHT, FLIGHT), [file(2)], "its grace began when it was seen first");
        assert!(waiting.due().is_none() && waiting.first_seen.is_empty());
    }

    #[test]
    fn a_file_another_gateway_may_publish_waits_for_its_grace_and_our_own_goes_at_once() {
        let (mut waiting, start, grace) = (Waiting::default(), Instant::now(), Duration::from_secs(60));
        waiting.add(Suspects { files: vec![file(1)], patient: true }, start);
        waiting.add(Suspects { files: vec![file(2)], patient: false }, start);
        let taken = waiting.take(start);
        assert_eq!(taken, [(file(2), false), (file(1), true)]);
        assert_eq!(waiting.unknown(taken, start, grace), [file(2)]);
        assert!(waiting.take(start + grace / 2).is_empty());
        let taken = waiting.take(start + grace);
        assert_eq!(waiting.unknown(taken, start + grace, grace), [file(1)]);
        assert!(waiting.due().is_none() && waiting.first_seen.is_empty());
    }

    #[test]
    fn a_file_listed_after_every_reconnection_keeps_the_time_it_was_seen_first() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        for seconds in [0, 10, 20] {
            waiting.add(Suspects { files: vec![file(1)], patient: true }, start + Duration::from_secs(seconds));
        }
        assert_eq!(waiting.queue.len(), 1);
        assert_eq!(waiting.due(), Some(start));
    }
}
