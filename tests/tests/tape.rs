//! Files that sink to tape and come back, through the FTP door and over the virtual library.

use std::time::Duration;

use catalog::Leaf;
use gateway::files::Files;
use tests::{Site, bytes, soon};
use wire::{ftp::Text, id::BitfileId};

async fn bitfile(site: &Site, path: &str) -> BitfileId {
    let path = Files::path(&catalog::TreePath::root(), path).expect("a good path");
    match site.gateway.catalog.resolve(&path).await.expect("resolved").leaf {
        Leaf::Found(entry) => entry.file().expect("a file").bitfile,
        other => panic!("not there: {other:?}"),
    }
}

/// Waits until a file has so many copies on tape.
async fn on_tape(site: &Site, file: BitfileId, copies: u32) {
    soon("the tape copies", async {
        loop {
            let located = site.gateway.catalog.locate_one(file).await.expect("located");
            if located.bitfile.residency.tape_copies == copies {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_on_two_cartridges_only_comes_back_when_it_is_read() {
    let site = Site::builder().tape(2, 4).start().await;
    let mut alice = site.user("alice").await.login().await;
    alice.client.set_class_of_service(Text::new("standard").expect("a text")).await.expect("set");
    let data = bytes(1, 3_000_000);
    alice.put("/home/alice/a", &data).await.expect("stored");
    let file = bitfile(&site, "/home/alice/a").await;
    site.gateway.hsm.migrate_now(vec![file]).await.expect("queued");
    on_tape(&site, file, 2).await;
    let located = site.gateway.catalog.locate_one(file).await.expect("located");
    let cartridge = |number| located.copy(number).expect("complete").segments[0].extent.volume.clone();
    assert_ne!(cartridge(1), cartridge(2));

    for (_, purged) in site.gateway.hsm.purge_now(vec![file]).await.expect("asked") {
        purged.expect("purged");
    }
    let located = site.gateway.catalog.locate_one(file).await.expect("located");
    assert!(!located.bitfile.residency.on_disk);
    assert_eq!(alice.get("/home/alice/a").await.expect("fetched"), data);
    let located = site.gateway.catalog.locate_one(file).await.expect("located");
    assert!(located.bitfile.residency.on_disk);
    assert_eq!(site.relayed_bytes().await, 0);
}
