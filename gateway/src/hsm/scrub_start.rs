//! Beginning a scrub: from what an operator names to rows of the work queue.
//!
//! Owns the listing, which runs in the background and page by page: a class of service may have many files. Talks to
//! the catalogue only; [`super::verify`] does the reading.

use catalog::{Listing, Located, MAX_PAGE, NewWork, ROOT, Subject, Timestamp, WorkKind};
use tracing::warn;
use wire::{
    admin::queue::{Scrub, ScrubResult},
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

/// Bitfiles that are looked up in one go.
const PAGE: usize = 1000;

impl Hsm {
    /// Begins a scrub; its parts are listed in the background.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`] for the volume or class; those of the catalogue.
    pub async fn scrub(&self, scope: Scope, rate: Option<u64>) -> Result<Scrub, Failure> {
        let catalog = &self.context.catalog;
        let number = catalog.next_id().await?;
        let text = match &scope {
            Scope::Bitfiles(bitfiles) => format!("{} files", bitfiles.len()),
            Scope::Class(class) => {
                if catalog.policies().await?.class(class).is_none() {
                    let text = format!("there is no class of service {class}: `penstock admin cos` lists them");
                    return Err(Failure::new(FailureKind::NotFound, text));
                }
                format!("class of service {class}")
            }
            Scope::Volume(volume) => {
                catalog.volume(volume).await?;
                format!("volume {volume}")
            }
        };
        self.scrubs.begin(number, text, rate, catalog.now());
        let hsm = self.clone();
        self.shutdown.spawn_until_cut(async move {
            let listed = hsm.list_scope(number, scope).await;
            let now = hsm.context.catalog.now();
            match listed {
                Ok(()) => hsm.scrubs.listed(number, now),
                Err(error) => {
                    warn!(scrub = number, %error, "scrub not listed to its end");
                    hsm.scrubs.failed(number, now);
                }
            }
            hsm.context.wakes.verify.notify_one();
        });
        self.get_scrub(number)
    }

    /// All scrubs of this gateway, the newest first.
    #[must_use]
    pub fn scrubs(&self) -> Vec<Scrub> {
        self.scrubs.list()
    }

    /// One scrub.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`].
    pub fn get_scrub(&self, number: u64) -> Result<Scrub, Failure> {
        self.scrubs.get(number).ok_or_else(|| no_scrub(number))
    }

    /// What a scrub found, behind `after`, with names.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotFound`]; those of the catalogue.
    pub async fn scrub_results(&self, number: u64, after: WorkId, limit: usize) -> Result<Vec<ScrubResult>, Failure> {
        let mut results = self.scrubs.results(number, after, limit.min(PAGE)).ok_or_else(|| no_scrub(number))?;
        let ids: Vec<BitfileId> = results.iter().map(|result| result.bitfile).collect();
        let paths: std::collections::HashMap<BitfileId, String> =
            self.context.catalog.paths_of(&ids).await?.into_iter().collect();
        for result in &mut results {
            result.path = paths.get(&result.bitfile).cloned();
        }
        Ok(results)
    }

    async fn list_scope(&self, number: u64, scope: Scope) -> catalog::Result<()> {
        match scope {
            Scope::Bitfiles(bitfiles) => self.enqueue_bitfiles(number, &bitfiles).await,
            Scope::Volume(volume) => {
                let known = self.context.catalog.volume(&volume).await?;
                self.scrubs.add_volume(number, &volume, known.live_segments, known.live_bytes);
                let work = NewWork {
                    kind: WorkKind::Verify,
                    subject: Subject::Volume(volume.clone()),
                    pool: volume.to_string(),
                    bytes: known.live_bytes,
                    not_before: Timestamp::default(),
                    deadline: None,
                };
                self.context.catalog.enqueue(vec![work]).await?;
                Ok(())
            }
            Scope::Class(class) => {
                let mut listing = Listing { after: None, prefix: String::new(), limit: MAX_PAGE.min(PAGE as u32) };
                loop {
                    let page = self.context.catalog.walk(ROOT, &listing).await?;
                    let files = page.items.iter().filter_map(|walked| walked.entry.file());
                    let of_class: Vec<BitfileId> =
                        files.filter(|file| file.cos == class).map(|file| file.bitfile).collect();
                    self.enqueue_bitfiles(number, &of_class).await?;
                    if page.next.is_none() {
                        return Ok(());
                    }
                    listing.after = page.next;
                }
            }
        }
    }

    async fn enqueue_bitfiles(&self, number: u64, bitfiles: &[BitfileId]) -> catalog::Result<()> {
        for ids in bitfiles.chunks(PAGE) {
            let located = self.context.catalog.locate(ids).await?;
            let work: Vec<NewWork> = located.iter().filter_map(verify_work).collect();
            for found in &located {
                let segments = || found.copies.iter().flat_map(|copy| &copy.segments);
                let bytes = segments().map(|segment| segment.range.length()).sum();
                if segments().count() > 0 {
                    self.scrubs.add_bitfile(number, found.bitfile.id, segments().count() as u64, bytes);
                }
            }
            self.context.catalog.enqueue(work).await?;
            self.context.wakes.verify.notify_one();
        }
        Ok(())
    }
}

/// The work of verifying a bitfile begins with its first volume; `None` for one without bytes.
fn verify_work(located: &Located) -> Option<NewWork> {
    let first = volumes_of(located).into_iter().next()?;
    Some(NewWork {
        kind: WorkKind::Verify,
        subject: Subject::Bitfile(located.bitfile.id),
        pool: first.to_string(),
        bytes: located.bitfile.size_bytes,
        not_before: Timestamp::default(),
        deadline: None,
    })
}

fn no_scrub(number: u64) -> Failure {
    let text = format!("there is no scrub {number} on this gateway: `penstock admin scrub list` lists them");
    Failure::new(FailureKind::NotFound, text)
}
