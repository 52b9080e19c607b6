//! Many writers at once, several gateways, a process that dies in the middle; on both databases.

use std::time::Duration;

use catalog::*;

use crate::site::*;

on_both! {
    several_gateways_write_one_directory_without_losing_anything;
    names_and_directories_race_without_orphans;
    two_gateways_open_a_new_database_at_once;
    a_process_that_dies_in_the_middle_leaves_whole_files_only;
}

async fn several_gateways_write_one_directory_without_losing_anything(site: Site) {
    let directory = site.directory("shared").await;
    let sites = [site.clone(), site.another().await, site.another().await];
    let mut writers = Vec::new();
    for (number, gateway) in sites.into_iter().enumerate() {
        for task in 0..4 {
            let gateway = gateway.clone();
            writers.push(tokio::spawn(async move {
                for round in 0..15 {
                    // Every third name is written by all of them.
                    let name =
                        if round % 3 == 0 { format!("common{round}") } else { format!("{number}-{task}-{round}") };
                    let published = gateway.publish(directory, &name, 10).await;
                    if round % 5 == 4 {
                        // Another may have rewritten or removed it meanwhile.
                        let gone = gateway.catalog.delete_file(published.entry, Some(published.bitfile)).await;
                        assert!(!matches!(gone, Err(CatalogError::Corrupt { .. })), "{gone:?}");
                    }
                }
            }));
        }
    }
    for writer in writers {
        writer.await.expect("no panic");
    }
    let entries = site.catalog.list(directory, &everything()).await.expect("a listing").items;
    let files = entries.len() as u64;
    assert_eq!(site.usage("alice").await, (10 * files, files));
    let bitfiles: Vec<_> = entries.iter().filter_map(Entry::file).map(|file| file.bitfile).collect();
    assert_eq!(site.catalog.locate(&bitfiles).await.expect("bitfiles").len() as u64, files);
    // All bitfiles ever written are either named or in the window, and the volume's count says so.
    let written = 3 * 4 * 15;
    let window = site.catalog.deleted_files(directory, MAX_PAGE).await.expect("the window").len() as u64;
    assert_eq!(files + window, written);
    let disk = site.catalog.volume(&volume("d0")).await.expect("the volume");
    assert_eq!((disk.live_bytes, disk.live_segments), (10 * written, written));
}

async fn names_and_directories_race_without_orphans(site: Site) {
    let other = site.another().await;
    for round in 0..30 {
        let directory = site.directory(&format!("d{round}")).await;
        let file = site.file(directory, "file", 1).await;
        let (published, removed) = tokio::join!(site.catalog.publish(file), other.catalog.remove_directory(directory));
        assert!(published.is_ok() != removed.is_ok(), "{published:?} and {removed:?}");
    }
}

async fn two_gateways_open_a_new_database_at_once(site: Site) {
    // The site's database is migrated already; what races here is a second look by many.
    let opens = (0..6).map(|_| {
        let url = site.url.clone();
        tokio::spawn(async move { Catalog::open(&url, Options::default()).await })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.expect("no panic").expect("a catalogue").ping().await.expect("it answers");
    }
}

async fn a_process_that_dies_in_the_middle_leaves_whole_files_only(site: Site) {
    let url = site.url.clone();
    let segments: Vec<_> = {
        let mut files = Vec::new();
        for number in 0..300 {
            files.push(site.file(ROOT, &format!("file{number}"), 10).await);
        }
        files
    };
    // A runtime of its own is the process: dropping it drops the writing task wherever it is.
    let acknowledged = tokio::task::spawn_blocking(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let catalog = Catalog::open(&url, Options::default()).await.expect("a catalogue");
            for file in segments {
                let (catalog, sender) = (catalog.clone(), sender.clone());
                tokio::spawn(async move {
                    let name = file.name.clone();
                    if catalog.publish(file).await.is_ok() {
                        let _ = sender.send(name);
                    }
                });
            }
        });
        let first = receiver.recv_timeout(Duration::from_secs(60)).expect("something was published");
        runtime.shutdown_background();
        std::iter::once(first).chain(receiver.try_iter()).collect::<Vec<_>>()
    })
    .await
    .expect("no panic");

    let again = site.another().await;
    let entries = again.catalog.list(ROOT, &everything()).await.expect("a listing").items;
    for name in &acknowledged {
        assert!(entries.iter().any(|entry| entry.name == *name), "{name} was acknowledged and is gone");
    }
    for entry in &entries {
        let file = entry.file().expect("a file");
        let located = again.catalog.locate_one(file.bitfile).await.expect("the bitfile");
        assert_eq!(located.copies[0].segments.len(), 1);
    }
    let files = entries.len() as u64;
    assert_eq!(again.usage("alice").await, (10 * files, files));
}
