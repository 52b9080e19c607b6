//! Volumes: registration, state, choice; on both databases.

use catalog::*;
use wire::id::{LibraryId, MoverId};

use crate::site::*;

on_both! {
    a_volume_registered_again_keeps_what_is_known_of_it;
    the_cartridge_being_filled_comes_before_an_empty_one;
    states_and_counts_are_kept;
}

async fn a_volume_registered_again_keeps_what_is_known_of_it(site: Site) {
    site.publish(ROOT, "file", 10).await;
    site.migrate("single", 1, "T1").await;
    let library = LibraryId::new("other").expect("a name");
    let again = NewVolume {
        label: volume("T1"),
        pool: "tape1".to_owned(),
        capacity_bytes: 5,
        home: Home::Library(library.clone()),
    };
    site.catalog.register_volumes(vec![again.clone()]).await.expect("registered");
    let known = site.catalog.volume(&volume("T1")).await.expect("the volume");
    assert_eq!((known.state, known.capacity_bytes, known.live_bytes), (VolumeState::Filling, 5, 10));
    assert!(matches!(known.medium, Medium::Tape { library: now, written_bytes: 1000, .. } if now == library));
    let mover = Home::Mover(MoverId::new("mover1").expect("a name"));
    let wrong = site.catalog.register_volumes(vec![NewVolume { home: mover, ..again }]).await;
    assert!(matches!(wrong, Err(CatalogError::Inconsistent { .. })));
    let labels: Vec<_> = site.catalog.volumes().await.expect("volumes").into_iter().map(|one| one.label).collect();
    assert_eq!(labels, ["T1", "T2", "T3", "d0", "d1"].map(volume));
}

async fn the_cartridge_being_filled_comes_before_an_empty_one(site: Site) {
    let wish = |room_bytes, avoid: &[&str]| AppendWish {
        pool: "tape1".to_owned(),
        room_bytes,
        avoid: avoid.iter().map(|label| volume(label)).collect(),
    };
    let choose = async |wish: AppendWish| {
        let chosen = site.catalog.volume_for_append(&wish).await.expect("an answer");
        chosen.map(|volume| volume.label.to_string())
    };
    assert_eq!(choose(wish(1, &[])).await.as_deref(), Some("T1"));
    site.publish(ROOT, "file", 10).await;
    site.migrate("single", 1, "T3").await;
    assert_eq!(choose(wish(1, &[])).await.as_deref(), Some("T3"));
    assert_eq!(choose(wish(1, &["T3"])).await.as_deref(), Some("T1"));
    assert_eq!(choose(wish(1_000_000, &[])).await.as_deref(), Some("T1"), "T3 has less room");
    assert_eq!(choose(wish(1, &["T3", "T1"])).await, None);
    site.catalog.set_volume_state(&volume("T3"), VolumeState::Full, "").await.expect("set");
    assert_eq!(choose(wish(1, &[])).await.as_deref(), Some("T1"));
}

async fn states_and_counts_are_kept(site: Site) {
    site.catalog.set_volume_state(&volume("T1"), VolumeState::ReadOnly, "write errors").await.expect("set");
    site.catalog.count_mount(&volume("T1")).await.expect("counted");
    assert_eq!(site.catalog.count_error(&volume("T1")).await.expect("counted"), 1);
    assert_eq!(site.catalog.count_error(&volume("T1")).await.expect("counted"), 2);
    let t1 = site.catalog.volume(&volume("T1")).await.expect("the volume");
    assert_eq!((t1.state, t1.reason.as_deref(), t1.errors), (VolumeState::ReadOnly, Some("write errors"), 2));
    assert!(matches!(t1.medium, Medium::Tape { mounts: 1, .. }));
    assert!(matches!(site.catalog.count_mount(&volume("T9")).await, Err(CatalogError::NotFound { .. })));
    assert!(site.catalog.set_volume_state(&volume("T9"), VolumeState::Full, "").await.is_err());
    let reports = vec![(volume("d0"), 500, 20), (volume("unknown"), 1, 1)];
    site.catalog.report_space(reports).await.expect("noted");
    let d0 = site.catalog.volume(&volume("d0")).await.expect("the volume");
    assert_eq!(d0.capacity_bytes, 500);
    assert!(matches!(d0.medium, Medium::Disk { used_bytes: 20, .. }));
    assert!(matches!(site.catalog.relabel(&volume("d0"), 1, None).await, Err(CatalogError::Inconsistent { .. })));
}
