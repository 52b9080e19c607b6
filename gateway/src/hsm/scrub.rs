//! Scrubs: what an operator asked to be verified, how far it is, and what was found.
//!
//! The work itself is rows of the durable queue, which survive this process. What is kept here is the bookkeeping of
//! those who look: progress and results, in memory, bounded. A gateway that starts anew goes on verifying, and counts
//! anew.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use catalog::Timestamp;
use wire::{
    admin::queue::{Scrub, ScrubResult, State},
    id::{BitfileId, VolumeLabel, WorkId},
};

/// Results that are kept of one scrub; the oldest good ones go first.
const MAX_RESULTS: usize = 100_000;

/// Scrubs that are kept.
const MAX_SCRUBS: usize = 100;

/// What was found of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) bitfile: BitfileId,
    pub(super) volume: VolumeLabel,
    pub(super) bytes: u64,
    pub(super) problem: Option<String>,
    pub(super) checked: Timestamp,
}

/// All scrubs of this gateway. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Scrubs(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    scrubs: BTreeMap<u64, Running>,
    by_bitfile: HashMap<BitfileId, u64>,
    by_volume: HashMap<VolumeLabel, u64>,
}

struct Running {
    shown: Scrub,
    rate: Option<u64>,
    open: u64,
    listing: bool,
    results: VecDeque<ScrubResult>,
    next: u64,
}

impl Scrubs {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Only whole values are put in: a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a scrub whose parts are told one after the other.
    pub(super) fn begin(&self, number: u64, scope: String, rate: Option<u64>, now: Timestamp) {
        let shown = Scrub {
            scrub: number,
            scope,
            state: State::Running,
            total: 0,
            done: 0,
            bad: 0,
            total_bytes: 0,
            done_bytes: 0,
            started_us: now.0,
            ends_us: None,
        };
        let mut table = self.table();
        let running = Running { shown, rate, open: 0, listing: true, results: VecDeque::new(), next: 1 };
        table.scrubs.insert(number, running);
        while table.scrubs.len() > MAX_SCRUBS {
            table.scrubs.pop_first();
        }
    }

    /// A bitfile belongs to it, with so many segments and bytes on so many volumes.
    pub(super) fn add_bitfile(&self, number: u64, bitfile: BitfileId, segments: u64, bytes: u64) {
        let mut table = self.table();
        table.by_bitfile.insert(bitfile, number);
        table.add(number, segments, bytes);
    }

    /// A whole volume belongs to it.
    pub(super) fn add_volume(&self, number: u64, volume: &VolumeLabel, segments: u64, bytes: u64) {
        let mut table = self.table();
        table.by_volume.insert(volume.clone(), number);
        table.add(number, segments, bytes);
    }

    /// All of its parts have been told.
    pub(super) fn listed(&self, number: u64, now: Timestamp) {
        let mut table = self.table();
        if let Some(running) = table.scrubs.get_mut(&number) {
            running.listing = false;
            running.settle(now);
        }
    }

    /// It could not be listed to its end.
    pub(super) fn failed(&self, number: u64, now: Timestamp) {
        let mut table = self.table();
        if let Some(running) = table.scrubs.get_mut(&number) {
            running.shown.state = State::Failed;
            running.shown.ends_us = Some(now.0);
        }
    }

    /// The most bytes a second for these bitfiles.
    pub(super) fn rate(&self, bitfiles: &[BitfileId]) -> Option<u64> {
        let table = self.table();
        let rates = bitfiles.iter().filter_map(|bitfile| table.scrubs.get(table.by_bitfile.get(bitfile)?)?.rate);
        rates.min()
    }

    /// The most bytes a second for this volume.
    pub(super) fn volume_rate(&self, volume: &VolumeLabel) -> Option<u64> {
        let table = self.table();
        table.scrubs.get(table.by_volume.get(volume)?)?.rate
    }

    /// What was found of a bitfile on one volume; `last` if no other volume follows.
    pub(super) fn found(&self, found: &[Found], bitfile: BitfileId, last: bool) {
        let mut table = self.table();
        let Some(number) = table.by_bitfile.get(&bitfile).copied() else { return };
        let own: Vec<&Found> = found.iter().filter(|found| found.bitfile == bitfile).collect();
        let bad = own.iter().any(|found| found.problem.is_some());
        if last || bad {
            table.by_bitfile.remove(&bitfile);
        }
        if let Some(running) = table.scrubs.get_mut(&number) {
            for found in &own {
                running.note(found);
            }
            if last || bad {
                running.open = running.open.saturating_sub(1);
            }
            running.settle(own.first().map_or_else(Timestamp::default, |found| found.checked));
        }
    }

    /// A bitfile was deleted before it was read.
    pub(super) fn gone(&self, bitfile: BitfileId) {
        let mut table = self.table();
        let Some(number) = table.by_bitfile.remove(&bitfile) else { return };
        if let Some(running) = table.scrubs.get_mut(&number) {
            running.open = running.open.saturating_sub(1);
            running.settle(Timestamp(running.shown.started_us));
        }
    }

    /// What was found in a page of a whole volume.
    pub(super) fn found_on(&self, volume: &VolumeLabel, found: &[Found]) {
        let mut table = self.table();
        let Some(number) = table.by_volume.get(volume).copied() else { return };
        if let Some(running) = table.scrubs.get_mut(&number) {
            found.iter().for_each(|found| running.note(found));
        }
    }

    /// A whole volume has been read.
    pub(super) fn volume_done(&self, volume: &VolumeLabel) {
        let mut table = self.table();
        let Some(number) = table.by_volume.remove(volume) else { return };
        if let Some(running) = table.scrubs.get_mut(&number) {
            running.open = running.open.saturating_sub(1);
            let last = running.results.back().map_or(running.shown.started_us, |result| result.checked_us);
            running.settle(Timestamp(last));
        }
    }

    /// All scrubs, the newest first.
    pub(super) fn list(&self) -> Vec<Scrub> {
        self.table().scrubs.values().rev().map(|running| running.shown.clone()).collect()
    }

    /// One scrub.
    pub(super) fn get(&self, number: u64) -> Option<Scrub> {
        self.table().scrubs.get(&number).map(|running| running.shown.clone())
    }

    /// What it found, behind `after`.
    pub(super) fn results(&self, number: u64, after: WorkId, limit: usize) -> Option<Vec<ScrubResult>> {
        let table = self.table();
        let results = table.scrubs.get(&number)?.results.iter().filter(|result| result.work > after);
        Some(results.take(limit).cloned().collect())
    }
}

impl Table {
    fn add(&mut self, number: u64, segments: u64, bytes: u64) {
        if let Some(running) = self.scrubs.get_mut(&number) {
            running.open += 1;
            running.shown.total += segments;
            running.shown.total_bytes += bytes;
        }
    }
}

impl Running {
    fn note(&mut self, found: &Found) {
        self.shown.done += 1;
        self.shown.done_bytes += found.bytes;
        self.shown.bad += u64::from(found.problem.is_some());
        // An estimate from the rate so far.
        let elapsed = (found.checked.0 - self.shown.started_us).max(0) as u64;
        let left = self.shown.total_bytes.saturating_sub(self.shown.done_bytes);
        let more = u128::from(elapsed) * u128::from(left) / u128::from(self.shown.done_bytes.max(1));
        self.shown.ends_us = i64::try_from(more).ok().and_then(|more| found.checked.0.checked_add(more));
        if self.results.len() == MAX_RESULTS {
            let at = self.results.iter().position(|result| result.good).unwrap_or(0);
            self.results.remove(at);
        }
        self.results.push_back(ScrubResult {
            work: WorkId(self.next),
            bitfile: found.bitfile,
            path: None,
            volume: found.volume.clone(),
            good: found.problem.is_none(),
            problem: found.problem.clone(),
            checked_us: found.checked.0,
        });
        self.next += 1;
    }

    fn settle(&mut self, now: Timestamp) {
        if self.open == 0 && !self.listing && self.shown.state == State::Running {
            self.shown.state = State::Completed;
            self.shown.ends_us = Some(now.0.max(self.shown.started_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bitfile: u64, volume: &str, problem: Option<&str>) -> Found {
        Found {
            bitfile: BitfileId(bitfile),
            volume: VolumeLabel::new(volume).expect("a label"),
            bytes: 10,
            problem: problem.map(str::to_owned),
            checked: Timestamp(2000),
        }
    }

    #[test]
    fn a_scrub_is_completed_when_every_copy_of_every_file_was_read() {
        let scrubs = Scrubs::default();
        scrubs.begin(1, "files".into(), None, Timestamp(1000));
        scrubs.add_bitfile(1, BitfileId(7), 2, 20);
        scrubs.listed(1, Timestamp(1000));
        scrubs.found(&[found(7, "A", None)], BitfileId(7), false);
        let half = scrubs.get(1).expect("there");
        assert_eq!((half.state, half.done, half.total), (State::Running, 1, 2));
        assert_eq!(half.ends_us, Some(3000), "as long again as it took so far");
        scrubs.found(&[found(7, "B", None)], BitfileId(7), true);
        assert_eq!(scrubs.get(1).expect("there").state, State::Completed);
        assert_eq!(scrubs.results(1, WorkId(0), 10).expect("there").len(), 2);
    }

    #[test]
    fn a_bad_copy_is_counted_with_its_problem_and_ends_the_files_turn() {
        let scrubs = Scrubs::default();
        scrubs.begin(1, "files".into(), None, Timestamp(1000));
        scrubs.add_bitfile(1, BitfileId(7), 2, 20);
        scrubs.listed(1, Timestamp(1000));
        scrubs.found(&[found(7, "A", Some("bits fell out"))], BitfileId(7), false);
        let scrub = scrubs.get(1).expect("there");
        assert_eq!((scrub.state, scrub.bad), (State::Completed, 1));
        assert_eq!(scrubs.results(1, WorkId(0), 10).expect("there")[0].problem.as_deref(), Some("bits fell out"));
    }

    #[test]
    fn a_scrub_still_being_listed_is_not_done() {
        let scrubs = Scrubs::default();
        scrubs.begin(1, "class".into(), Some(5), Timestamp(1));
        scrubs.add_bitfile(1, BitfileId(7), 1, 10);
        assert_eq!(scrubs.rate(&[BitfileId(7)]), Some(5));
        scrubs.found(&[found(7, "A", None)], BitfileId(7), true);
        assert_eq!(scrubs.get(1).expect("there").state, State::Running);
        scrubs.listed(1, Timestamp(9));
        assert_eq!(scrubs.get(1).expect("there").state, State::Completed);
    }
}
