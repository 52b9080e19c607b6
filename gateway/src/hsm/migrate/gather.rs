//! What was claimed, looked up and packed in containers.
//!
//! Pure but for the look-ups of [`gather`]. A [`Job`] is one copy of a batch: which parts of which files are still to be
//! written, in which order.

use std::collections::BTreeMap;

use catalog::{AfterFailure, DISK_COPY, Entry, Located, Subject, Timestamp, WorkFailure, WorkItem};
use futures::{StreamExt, TryStreamExt, stream};
use wire::{
    admin::queue::Kind,
    extent::ByteRange,
    id::{BitfileId, StorageClassName, VolumeLabel},
};

use super::{Moved, Settled};
use crate::hsm::{
    context::Context,
    policy::migrate::{Container, Limits, Part, pack, parts},
};

/// How many entries are looked up at the same time.
const LOOKUPS: usize = 8;

/// One file of a batch.
pub(super) struct File {
    item: WorkItem,
    pub(super) located: Located,
    pub(super) path: String,
    pub(super) entry: Option<Entry>,
    pub(super) parts: Vec<Part>,
    /// Volumes it was written to in this batch, and as which copy.
    written_to: Vec<(u32, VolumeLabel)>,
    open: bool,
}

impl File {
    pub(super) const fn item(&self) -> &WorkItem {
        &self.item
    }

    /// Whether its claim is still to be settled.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Its claim is settled.
    pub(super) fn close(&mut self) {
        self.open = false;
    }

    pub(super) const fn bitfile(&self) -> BitfileId {
        self.located.bitfile.id
    }

    /// Which bytes of this copy are on tape already, and where.
    fn written(&self, copy: u32) -> impl Iterator<Item = (ByteRange, &VolumeLabel)> {
        let of = self.located.copies.iter().filter(move |found| found.number == copy);
        of.flat_map(|copy| copy.segments.iter().map(|segment| (segment.range, &segment.extent.volume)))
    }

    fn has(&self, copy: u32, part: &Part) -> bool {
        let complete = self.located.copies.iter().any(|found| found.number == copy && found.complete);
        complete || (!part.range.is_empty() && self.written(copy).any(|(range, _)| range == part.range))
    }

    /// Volumes that hold another copy of it.
    fn other_copies(&self, copy: u32) -> impl Iterator<Item = &VolumeLabel> {
        let others = self.located.copies.iter().filter(move |found| found.number != copy && !found.is_on_disk());
        let known = others.flat_map(|copy| copy.segments.iter().map(|segment| &segment.extent.volume));
        known.chain(self.written_to.iter().filter(move |(of, _)| *of != copy).map(|(_, volume)| volume))
    }

    /// A copy of it, or part of one, is on this volume now.
    pub(super) fn written_to(&mut self, copy: u32, volume: &VolumeLabel) {
        self.written_to.push((copy, volume.clone()));
    }
}

/// Looks up what was claimed, in the order of paths. What cannot be migrated is settled.
pub(super) async fn gather(context: &Context, items: &[WorkItem]) -> catalog::Result<(Vec<File>, Settled)> {
    let bitfile_of = |item: &WorkItem| match item.subject {
        Subject::Bitfile(bitfile) => Some(bitfile),
        Subject::File { .. } | Subject::Volume(_) => None,
    };
    let ids: Vec<BitfileId> = items.iter().filter_map(bitfile_of).collect();
    let mut located: BTreeMap<BitfileId, Located> =
        context.catalog.locate(&ids).await?.into_iter().map(|located| (located.bitfile.id, located)).collect();
    let mut names = Names::of(context, &ids, located.values()).await?;
    let disks = context.reachable_disks().await?;
    let mut settled = Settled::default();
    let mut files = Vec::new();
    for item in items {
        let Some(located) = bitfile_of(item).and_then(|bitfile| located.remove(&bitfile)) else {
            settled.finished.push(item.ticket());
            continue;
        };
        if located.bitfile.residency.tape_copies >= located.bitfile.residency.tape_copies_wanted {
            settled.finished.push(item.ticket());
            continue;
        }
        let retry = |reason: String| WorkFailure {
            ticket: item.ticket(),
            reason,
            next: AfterFailure::Retry(crate::hsm::claims::pause(item.failures)),
        };
        // A replica will do while the mover with the first copy is away.
        let reachable = located.on_disk().find(|copy| copy.lies_within(&disks));
        let Some(disk) = reachable.or_else(|| located.copy(DISK_COPY)) else {
            let reason = "it has no disk copy to migrate from: stage it, then it goes on";
            settled.failures.push(retry(reason.into()));
            continue;
        };
        match parts(&disk.segments, |volume| context.fleet.mover_of(volume)) {
            Ok(parts) => files.push(names.file(Moved { item: item.clone(), located, parts })),
            Err(volume) => settled.failures.push(retry(format!("no mover of this gateway has disk volume {volume}"))),
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((files, settled))
}

/// Looks up how what leaves a cartridge is called, in the order of paths.
pub(super) async fn look_up(context: &Context, moved: Vec<Moved>) -> catalog::Result<Vec<File>> {
    let ids: Vec<BitfileId> = moved.iter().map(|moved| moved.located.bitfile.id).collect();
    let mut names = Names::of(context, &ids, moved.iter().map(|moved| &moved.located)).await?;
    let mut files: Vec<File> = moved.into_iter().map(|moved| names.file(moved)).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// How bitfiles are called, and the attributes that go on tape with them.
struct Names {
    paths: BTreeMap<BitfileId, String>,
    entries: BTreeMap<BitfileId, Option<Entry>>,
}

impl Names {
    async fn of(
        context: &Context,
        ids: &[BitfileId],
        located: impl Iterator<Item = &Located>,
    ) -> catalog::Result<Self> {
        let paths = context.catalog.paths_of(ids).await?.into_iter().collect();
        let entries = located.filter_map(|located| Some((located.bitfile.id, located.bitfile.entry?)));
        let entries = stream::iter(entries.collect::<Vec<_>>())
            .map(|(bitfile, entry)| async move {
                let found = context.catalog.entry(entry).await;
                found.map(|found| (bitfile, found))
            })
            .buffer_unordered(LOOKUPS)
            .try_collect()
            .await?;
        Ok(Self { paths, entries })
    }

    fn file(&mut self, moved: Moved) -> File {
        let bitfile = moved.located.bitfile.id;
        File {
            item: moved.item,
            path: self.paths.remove(&bitfile).unwrap_or_else(|| format!("/.deleted/{bitfile}")),
            entry: self.entries.remove(&bitfile).flatten(),
            located: moved.located,
            parts: moved.parts,
            written_to: Vec::new(),
            open: true,
        }
    }
}

/// One copy of a batch: what is still to be written.
pub(super) struct Job {
    kind: Kind,
    copy: u32,
    storage_class: StorageClassName,
    /// File and part, by the indices that containers name.
    parts: Vec<(usize, usize)>,
    containers: Vec<Container>,
}

impl Job {
    /// All parts that a copy lacks; of a repack all parts, since the copy is there, and leaves.
    pub(super) fn new(kind: Kind, copy: u32, storage_class: StorageClassName, files: &[File], limits: &Limits) -> Self {
        let wants = |file: &File, part: &Part| kind == Kind::Repack || !file.has(copy, part);
        let wanted: Vec<(usize, usize)> = files
            .iter()
            .enumerate()
            .filter(|(_, file)| file.open)
            .flat_map(|(index, file)| {
                let missing = file.parts.iter().enumerate().filter(move |(_, part)| wants(file, part));
                missing.map(move |(part, _)| (index, part))
            })
            .collect();
        let containers = pack(wanted.iter().map(|(file, part)| &files[*file].parts[*part]), limits);
        Self { kind, copy, storage_class, parts: wanted, containers }
    }

    /// A migration or a repack.
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) const fn copy(&self) -> u32 {
        self.copy
    }

    pub(super) const fn storage_class(&self) -> &StorageClassName {
        &self.storage_class
    }

    pub(super) fn is_done(&self) -> bool {
        self.containers.is_empty()
    }

    /// The next container's parts.
    pub(super) fn next(&self) -> Option<(&Container, Vec<(usize, usize)>)> {
        let container = self.containers.first()?;
        Some((container, container.parts.iter().map(|index| self.parts[*index]).collect()))
    }

    pub(super) fn next_bytes(&self) -> u64 {
        self.containers.first().map_or(0, |container| container.bytes)
    }

    /// Takes parts out of the next container: written, or not to be written any more.
    pub(super) fn taken(&mut self, gone: impl Fn(usize, usize) -> bool) {
        let Some(container) = self.containers.first_mut() else { return };
        container.parts.retain(|index| {
            let (file, part) = self.parts[*index];
            !gone(file, part)
        });
        if container.parts.is_empty() {
            self.containers.remove(0);
        }
    }

    /// Volumes that the next container must not go to: they hold another copy of a file in it.
    pub(super) fn avoid(&self, files: &[File]) -> Vec<VolumeLabel> {
        let Some((_, parts)) = self.next() else { return Vec::new() };
        let mut avoid: Vec<VolumeLabel> =
            parts.iter().flat_map(|(file, _)| files[*file].other_copies(self.copy).cloned()).collect();
        avoid.sort();
        avoid.dedup();
        avoid
    }

    /// Whether the next container may go to this volume.
    pub(super) fn fits(&self, files: &[File], volume: &VolumeLabel) -> bool {
        !self.avoid(files).contains(volume)
    }

    /// Since when the oldest of its files is due.
    pub(super) fn oldest(&self, files: &[File]) -> Timestamp {
        let created = self.parts.iter().map(|(file, _)| files[*file].item.created);
        created.min().unwrap_or_default()
    }

    /// Files of which something is still to be written.
    pub(super) fn open(&self, files: &[File]) -> Vec<usize> {
        let parts = self.containers.iter().flat_map(|container| &container.parts);
        let mut open: Vec<usize> = parts.map(|index| self.parts[*index].0).filter(|file| files[*file].open).collect();
        open.sort_unstable();
        open.dedup();
        open
    }

    /// Closes those, and gives out their work items.
    pub(super) fn close(&self, files: &mut [File]) -> Vec<WorkItem> {
        let open = self.open(files);
        open.into_iter()
            .map(|file| {
                files[file].open = false;
                files[file].item.clone()
            })
            .collect()
    }
}
