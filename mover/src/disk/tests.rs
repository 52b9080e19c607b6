//! Disk volumes on a real file system: what is left after each way to end, and what a new start finds.

use std::{path::Path, sync::Arc, time::Duration};

use daemon::Shutdown;
use tokio::sync::Notify;
use wire::{
    id::{Epoch, FileId, GatewayId, VolumeLabel},
    mover::VolumeHealth,
};

use super::{Committer, DiskError, Owner, Volume, VolumeOptions};

fn options(folder: &Path, capacity_bytes: Option<u64>) -> VolumeOptions {
    VolumeOptions {
        label: VolumeLabel::new("d0").unwrap(),
        folder: folder.to_owned(),
        capacity_bytes,
        keep_free_bytes: 0,
        uuid: None,
        create: true,
        read_only: false,
    }
}

fn open(folder: &Path, capacity_bytes: Option<u64>) -> Arc<Volume> {
    Volume::open(&options(folder, capacity_bytes), Arc::new(Notify::new())).unwrap()
}

fn owner(name: &str) -> Owner {
    Owner { gateway: GatewayId::new(name).unwrap(), epoch: Epoch(1) }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn store(volume: &Arc<Volume>, shutdown: &Shutdown, id: u64, data: &[u8]) {
    let draft = volume.create(FileId(id), &owner("gw1"), 0).unwrap();
    draft.write_at(data, 0).unwrap();
    Committer::start(volume.clone(), 2, shutdown).commit(draft).await.unwrap();
}

#[tokio::test]
async fn a_file_is_counted_listed_confirmed_found_again_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let volume = open(folder.path(), Some(1 << 20));
    for id in [5000, 3, 1 << 40] {
        store(&volume, &shutdown, id, &[1; 5000]).await;
    }
    let used = volume.status().used_bytes;
    assert!((15_000..100_000).contains(&used), "{used}");
    assert_eq!(volume.status().reserved_bytes, 0);
    volume.confirm(&[FileId(3), FileId(77), FileId(1 << 40)]);
    let gw1 = owner("gw1").gateway;
    assert_eq!(volume.unconfirmed(&gw1), [FileId(5000)]);
    assert!(volume.unconfirmed(&owner("gw2").gateway).is_empty());
    let all = [(FileId(3), 5000, true), (FileId(5000), 5000, false), (FileId(1 << 40), 5000, true)];
    assert_eq!(volume.list(None, 10).unwrap(), all);
    assert_eq!(volume.list(None, 2).unwrap(), all[..2]);
    assert_eq!(volume.list(Some(FileId(3)), 1).unwrap(), all[1..2]);
    assert_eq!(volume.list(Some(FileId(5000)), 9).unwrap(), all[2..]);
    shutdown.finish().await;
    drop(volume);

    let volume = open(folder.path(), Some(1 << 20));
    assert_eq!(volume.status().used_bytes, used);
    assert_eq!(volume.list(None, 10).unwrap(), all);
    assert_eq!(volume.unconfirmed(&gw1), [FileId(5000)]);
    for (id, ..) in all {
        volume.remove(id).unwrap();
        volume.remove(id).unwrap();
    }
    assert_eq!((volume.status().used_bytes, volume.list(None, 10).unwrap()), (0, vec![]));
    assert!(matches!(volume.read(FileId(3)), Err(DiskError::NotFound { .. })));
}

#[test]
fn a_dropped_draft_leaves_nothing_and_a_crashed_one_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    let volume = open(folder.path(), Some(1 << 20));
    let draft = volume.create(FileId(1), &owner("gw1"), 100_000).unwrap();
    draft.write_at(&[1; 50_000], 20_000).unwrap();
    let status = volume.status();
    assert_eq!((status.used_bytes, status.reserved_bytes), (50_000, 50_000));
    drop(draft);
    let status = volume.status();
    assert_eq!((status.used_bytes, status.reserved_bytes, names(&temporary)), (0, 0, vec![]));

    let draft = volume.create(FileId(2), &owner("gw1"), 0).unwrap();
    draft.write_at(b"half", 0).unwrap();
    // As a crash does: nobody tidies up, but the lock is gone.
    std::mem::forget(draft);
    assert_eq!(names(&temporary).len(), 1);
    std::fs::remove_file(folder.path().join("penstock-volume.json")).unwrap();
    let again = open_anew(folder.path());
    assert!(names(&temporary).is_empty());
    assert_eq!(again.list(None, 10).unwrap(), []);
}

/// Opens a volume whose lock a forgotten handle still has, by giving it a new identity file.
fn open_anew(folder: &Path) -> Arc<Volume> {
    let text = r#"{"format":1,"label":"d0","uuid":"00"}"#;
    std::fs::write(folder.join("penstock-volume.json"), text).unwrap();
    open(folder, None)
}

#[test]
fn a_file_is_never_overwritten_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), None);
    let held = volume.create(FileId(1), &owner("gw1"), 0).unwrap();
    assert!(matches!(volume.create(FileId(1), &owner("gw2"), 0), Err(DiskError::InUse { .. })));
    assert!(matches!(volume.remove(FileId(1)), Err(DiskError::InUse { .. })));
    drop(held);
    let confirmed = folder.path().join("data/00000000000/000");
    std::fs::create_dir_all(&confirmed).unwrap();
    std::fs::write(confirmed.join(format!("{:016x}", 1)), "there").unwrap();
    assert!(matches!(volume.create(FileId(1), &owner("gw1"), 0), Err(DiskError::Exists { .. })));
}

#[test]
fn space_is_promised_before_it_is_written_and_never_more_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), Some(1_000_000));
    let first = volume.create(FileId(1), &owner("gw1"), 600_000).unwrap();
    assert!(matches!(volume.create(FileId(2), &owner("gw1"), 500_000), Err(DiskError::NoSpace { .. })));
    // Of unknown size: as much as is left, and not a byte more.
    let second = volume.create(FileId(2), &owner("gw1"), 0).unwrap();
    second.write_at(&[0; 400_000], 0).unwrap();
    assert!(matches!(second.write_at(&[0; 1], 400_000), Err(DiskError::NoSpace { free_bytes: 0, .. })));
    first.write_at(&[0; 600_000], 0).unwrap();
    assert!(matches!(first.write_at(&[0; 1], 600_000), Err(DiskError::NoSpace { .. })));
    drop((first, second));
    assert_eq!(volume.status().free_bytes(), 1_000_000);
}

#[tokio::test]
async fn a_write_error_makes_the_volume_read_only_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let changed = Arc::new(Notify::new());
    let volume = Volume::open(&options(folder.path(), None), changed.clone()).unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let draft = volume.create(FileId(1), &owner("gw1"), 0).unwrap();
    draft.write_at(b"data", 0).unwrap();
    // The folder of new files is gone: as good as a failing disk.
    std::fs::remove_dir(folder.path().join("incoming")).unwrap();
    let committer = Committer::start(volume.clone(), 2, &shutdown);
    assert!(committer.commit(draft).await.is_err());
    changed.notified().await;
    assert!(matches!(volume.status().health, VolumeHealth::ReadOnly { reason } if reason.contains("publish")));
    assert!(matches!(volume.create(FileId(2), &owner("gw1"), 0), Err(DiskError::ReadOnly { .. })));
    assert!(names(&folder.path().join("tmp")).is_empty());
}

#[tokio::test]
async fn many_files_at_once_are_all_durable_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), None);
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let committer = Committer::start(volume.clone(), 4, &shutdown);
    let commits = (0..100).map(|id| {
        let draft = volume.create(FileId(id), &owner("gw1"), 0).unwrap();
        draft.write_at(&id.to_le_bytes(), 0).unwrap();
        committer.commit(draft)
    });
    for done in futures::future::join_all(commits).await {
        done.unwrap();
    }
    assert_eq!(names(&folder.path().join("incoming")).len(), 100);
    assert!(names(&folder.path().join("tmp")).is_empty());
}
