//! Files that sink to tape and come back, through the FTP door and over the virtual library.

use tests::{Site, bytes};
use wire::ftp::Text;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_on_two_cartridges_only_comes_back_when_it_is_read() {
    let site = Site::builder().tape(2, 4).start().await;
    let mut alice = site.user("alice").await.login().await;
    alice.client.set_class_of_service(Text::new("standard").expect("a text")).await.expect("set");
    let data = bytes(1, 3_000_000);
    alice.put("/home/alice/a", &data).await.expect("stored");
    let file = site.bitfile("/home/alice/a").await;
    site.gateway.hsm.migrate_now(vec![file]).await.expect("queued");
    site.on_tape(file).await;
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
