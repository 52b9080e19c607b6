//! What an operator asks of drains: begin one, how far it is, stop it.

use catalog::{NewWork, Subject, Timestamp, WorkItem, WorkKind};
use wire::{
    admin::site::Drain,
    id::{VolumeLabel, WorkId},
};

use crate::{failure::Failure, hsm::Hsm};

/// Rows of the queue that are looked at in one go.
const PAGE: u32 = 1000;

impl Hsm {
    /// Moves what lies on a volume to others, in the background and over restarts, until nothing is left or
    /// [`Hsm::stop_drain`]. Whoever asks has made sure that nothing new comes to it.
    ///
    /// # Errors
    ///
    /// [`crate::failure::FailureKind::NotFound`] for the volume; those of the catalogue.
    pub async fn drain(&self, volume: &VolumeLabel) -> Result<(), Failure> {
        let known = self.context.catalog.volume(volume).await?;
        let work = NewWork {
            kind: WorkKind::Repack,
            subject: Subject::Volume(volume.clone()),
            pool: volume.to_string(),
            bytes: known.live_bytes,
            not_before: Timestamp::default(),
            deadline: None,
        };
        self.context.catalog.enqueue(vec![work]).await?;
        self.context.wakes.drain.notify_one();
        Ok(())
    }

    /// Stops moving things from a volume; what has moved stays where it is now. Returns how much was still queued.
    ///
    /// # Errors
    ///
    /// Those of the catalogue.
    pub async fn stop_drain(&self, volume: &VolumeLabel) -> Result<u64, Failure> {
        let mut stopped = 0;
        loop {
            // The volume's own row first: it would queue more.
            let mut items = self.drain_items(volume).await?;
            items.sort_by_key(|item| matches!(item.subject, Subject::Bitfile(_)));
            let work: Vec<WorkId> = items.iter().map(|item| item.id).collect();
            if work.is_empty() {
                break;
            }
            stopped += self.context.catalog.cancel_work(work).await?.len() as u64;
        }
        self.context.drains.stop(volume);
        Ok(stopped)
    }

    /// How far the drain of a volume is.
    ///
    /// # Errors
    ///
    /// [`crate::failure::FailureKind::NotFound`] for the volume; those of the catalogue.
    pub async fn drain_state(&self, volume: &VolumeLabel) -> Result<Drain, Failure> {
        let known = self.context.catalog.volume(volume).await?;
        let items = self.drain_items(volume).await?;
        let whole = items.iter().find(|item| matches!(item.subject, Subject::Volume(_)));
        let own = |item: &&WorkItem| matches!(item.subject, Subject::Bitfile(_));
        let failing = || items.iter().filter(own).filter(|item| item.failures > 0);
        let reason = failing().find_map(|item| item.reason.clone());
        Ok(Drain {
            volume: volume.clone(),
            moving: !items.is_empty(),
            total_bytes: whole.map(|item| item.bytes.max(known.live_bytes)),
            left_bytes: known.live_bytes,
            left_segments: known.live_segments,
            failing: failing().count() as u64,
            reason: reason.or_else(|| whole.and_then(|item| item.reason.clone()).filter(|_| items.len() == 1)),
        })
    }

    async fn drain_items(&self, volume: &VolumeLabel) -> Result<Vec<WorkItem>, Failure> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = self.context.catalog.work_items(Some(WorkKind::Repack), after, PAGE).await?;
            after = page.last().map(|item| item.id);
            let full = page.len() == PAGE as usize;
            items.extend(page.into_iter().filter(|item| item.pool == volume.as_str()));
            if !full {
                return Ok(items);
            }
        }
    }
}
