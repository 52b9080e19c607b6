//! Scrubs: what an operator asks to be verified, how far it is, and what was found.
//!
//! Owns nothing: a scrub is a row of the catalogue, its work rows of the queue, and progress is counted there in the
//! transaction that moves the work on. So a scrub goes on where it was when a gateway is started anew, and every
//! gateway shows the same. [`super::scrub_list`] lists classes of service, [`super::verify`] does the reading.

use std::collections::{BTreeSet, HashMap};

use catalog::{CatalogError, Located, NewScrub, ScrubFound, ScrubItem, ScrubTarget, Subject, Timestamp};
use wire::{
    admin::queue::{Scrub, ScrubResult, State},
    id::{BitfileId, CosName, VolumeLabel, WorkId},
};

use super::{Hsm, verify::volumes_of};
use crate::failure::{Failure, FailureKind};

/// What to scrub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// These bitfiles, every copy.
    Bitfiles(Vec<BitfileId>),
    /// All files of a class of service, every copy.
    Class(CosName),
    /// All that is on a volume.
    Volume(VolumeLabel),
}

/// Bitfiles that are looked up in one go, and the largest page of results.
const PAGE: usize = 1000;

impl Hsm {
    /// Begins a scrub. When this returns it is durable; the files of a class are listed in the background.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`] for the volume or class; those of the catalogue.
    pub async fn scrub(&self, scope: Scope, rate: Option<u64>) -> Result<Scrub, Failure> {
        let catalog = &self.context.catalog;
        let (scope, what) = match scope {
            Scope::Bitfiles(bitfiles) => {
                let bitfiles: Vec<BitfileId> = bitfiles.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                let mut items = Vec::with_capacity(bitfiles.len());
                for ids in bitfiles.chunks(PAGE) {
                    items.extend(catalog.locate(ids).await?.iter().filter_map(scrub_item));
                }
                (format!("{} files", bitfiles.len()), ScrubTarget::Items(items))
            }
            Scope::Class(class) => {
                if catalog.policies().await?.class(&class).is_none() {
                    let text = format!("there is no class of service {class}: `penstock admin cos` lists them");
                    return Err(Failure::new(FailureKind::NotFound, text));
                }
                (format!("class of service {class}"), ScrubTarget::Class(class))
            }
            Scope::Volume(volume) => {
                let known = catalog.volume(&volume).await?;
                let item = ScrubItem {
                    subject: Subject::Volume(volume.clone()),
                    volume: volume.clone(),
                    segments: known.live_segments,
                    bytes: known.live_bytes,
                };
                (format!("volume {volume}"), ScrubTarget::Items(vec![item]))
            }
        };
        let begun = catalog.begin_scrub(NewScrub { scope, rate, what }).await?;
        self.context.wakes.scrub.notify_one();
        self.context.wakes.verify.notify_one();
        Ok(shown(&begun, catalog.now()))
    }

    /// All scrubs that are remembered, the newest first.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn scrubs(&self) -> Result<Vec<Scrub>, Failure> {
        let now = self.context.catalog.now();
        Ok(self.context.catalog.scrubs().await?.iter().map(|scrub| shown(scrub, now)).collect())
    }

    /// One scrub.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]; those of the catalogue.
    pub async fn get_scrub(&self, number: u64) -> Result<Scrub, Failure> {
        let found = self.context.catalog.scrub(number).await;
        let found = found.map_err(|error| match error {
            CatalogError::NotFound { .. } => no_scrub(number),
            error => error.into(),
        })?;
        Ok(shown(&found, self.context.catalog.now()))
    }

    /// What a scrub found, behind `after`, with names.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]; those of the catalogue.
    pub async fn scrub_results(&self, number: u64, after: WorkId, limit: usize) -> Result<Vec<ScrubResult>, Failure> {
        self.get_scrub(number).await?;
        let limit = u32::try_from(limit.min(PAGE)).unwrap_or(u32::MAX);
        let found = self.context.catalog.scrub_found(number, after.0, limit).await?;
        let ids: Vec<BitfileId> = found.iter().map(|found| found.segment.bitfile).collect();
        let paths: HashMap<BitfileId, String> = self.context.catalog.paths_of(&ids).await?.into_iter().collect();
        Ok(found.into_iter().map(|found| result(found, &paths)).collect())
    }
}

/// The work of verifying a bitfile begins with its first volume; `None` for one without bytes.
pub(super) fn scrub_item(located: &Located) -> Option<ScrubItem> {
    let volume = volumes_of(located).into_iter().next()?;
    let segments = || located.copies.iter().flat_map(|copy| &copy.segments);
    Some(ScrubItem {
        subject: Subject::Bitfile(located.bitfile.id),
        volume,
        segments: segments().count() as u64,
        bytes: segments().map(|segment| segment.range.length()).sum(),
    })
}

/// How far a scrub is, in one sentence: for the rows of the queue that belong to it.
pub(super) fn progress(scrub: &catalog::Scrub) -> String {
    let (id, scope, done, total, bad) = (scrub.id, &scrub.scope, scrub.done, scrub.total, scrub.bad);
    format!("scrub {id} of {scope}: {done} of {total} segments are read, {bad} of them bad")
}

/// A scrub as operators see it.
fn shown(scrub: &catalog::Scrub, now: Timestamp) -> Scrub {
    Scrub {
        scrub: scrub.id,
        scope: scrub.scope.clone(),
        state: if scrub.ended.is_some() { State::Completed } else { State::Running },
        total: scrub.total,
        done: scrub.done,
        bad: scrub.bad,
        total_bytes: scrub.total_bytes,
        done_bytes: scrub.done_bytes,
        started_us: scrub.started.0,
        ends_us: scrub.ended.map(|ended| ended.0).or_else(|| estimate(scrub, now)),
    }
}

/// When a scrub will be over at the rate so far; `None` before anything was read.
fn estimate(scrub: &catalog::Scrub, now: Timestamp) -> Option<i64> {
    let elapsed = u128::try_from(now.0.saturating_sub(scrub.started.0)).ok()?;
    let left = u128::from(scrub.total_bytes.saturating_sub(scrub.done_bytes));
    let more = elapsed.checked_mul(left)?.checked_div(u128::from(scrub.done_bytes))?;
    now.0.checked_add(i64::try_from(more).ok()?)
}

fn result(found: ScrubFound, paths: &HashMap<BitfileId, String>) -> ScrubResult {
    let ScrubFound { number, segment } = found;
    ScrubResult {
        work: WorkId(number),
        bitfile: segment.bitfile,
        path: paths.get(&segment.bitfile).cloned(),
        volume: segment.volume,
        good: segment.problem.is_none(),
        problem: segment.problem,
        checked_us: segment.checked.0,
    }
}

fn no_scrub(number: u64) -> Failure {
    let text = format!("there is no scrub {number}, or it ended long ago: `penstock admin scrub list` lists them");
    Failure::new(FailureKind::NotFound, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub() -> catalog::Scrub {
        catalog::Scrub {
            id: 7,
            scope: "volume PEN001L8".into(),
            class: None,
            place: None,
            listed: true,
            rate: None,
            total: 4,
            total_bytes: 40,
            done: 1,
            done_bytes: 10,
            bad: 0,
            started: Timestamp(1000),
            ended: None,
        }
    }

    #[test]
    fn a_running_scrub_is_expected_to_go_on_as_fast_as_so_far() {
        let seen = shown(&scrub(), Timestamp(2000));
        assert_eq!((seen.state, seen.ends_us), (State::Running, Some(5000)), "three times as long again");
        let begun = catalog::Scrub { done: 0, done_bytes: 0, ..scrub() };
        assert_eq!(shown(&begun, Timestamp(2000)).ends_us, None);
        assert_eq!(shown(&catalog::Scrub { total_bytes: u64::MAX, ..scrub() }, Timestamp(i64::MAX)).ends_us, None);
    }

    #[test]
    fn a_scrub_that_has_ended_says_when() {
        let ended = catalog::Scrub { ended: Some(Timestamp(1500)), ..scrub() };
        let seen = shown(&ended, Timestamp(2000));
        assert_eq!((seen.state, seen.ends_us), (State::Completed, Some(1500)));
    }

    #[test]
    fn progress_is_a_sentence_with_the_scrubs_number() {
        assert_eq!(progress(&scrub()), "scrub 7 of volume PEN001L8: 1 of 4 segments are read, 0 of them bad");
    }
}
