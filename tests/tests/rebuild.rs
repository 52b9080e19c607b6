//! The catalogue is lost, the tapes are intact: a whole site comes back from its cartridges.

use std::time::Duration;

use daemon::config::ByteSize;
use tests::{Database, Site, SiteBuilder, bytes, soon};
use wire::{
    admin::site::Rebuild,
    ftp::FtpPath,
    id::{BitfileId, VolumeLabel},
};

const MIB: usize = 1 << 20;

/// Small ones that are packed together, an empty one, and a large one.
fn files() -> Vec<(String, usize)> {
    let small = (0..12).map(|number| (format!("/home/alice/small/{number}"), 1000 + 777 * number));
    let others = [("/home/alice/empty", 0), ("/home/alice/large", 9 * MIB)];
    small.chain(others.map(|(path, length)| (path.to_owned(), length))).collect()
}

/// Waits until these have both tape copies, and takes them off the disk. Returns the cartridges they lie on.
async fn sink(site: &Site, ids: &[BitfileId]) -> Vec<VolumeLabel> {
    for bitfile in ids {
        site.sink(*bitfile).await;
    }
    let located = site.gateway.catalog.locate(ids).await.expect("located");
    let copies = located.iter().flat_map(|found| &found.copies).filter(|copy| copy.number > 0);
    let mut volumes: Vec<_> = copies.flat_map(|copy| &copy.segments).map(|one| one.extent.volume.clone()).collect();
    volumes.sort();
    volumes.dedup();
    volumes
}

/// Rebuilds a cartridge, once the library's inventory has made it known.
async fn rebuild(site: &Site, volume: &VolumeLabel) -> Rebuild {
    let hsm = &site.gateway.hsm;
    soon("the rebuild of a cartridge", async {
        while site.gateway.catalog.volume(volume).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        hsm.rebuild(volume).await.expect("queued");
        loop {
            let state = hsm.rebuild_state(volume).await.expect("a state");
            if !state.working {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

fn builder(database: Database) -> SiteBuilder {
    Site::builder().tape(2, 4).database(database).eager().gateway(|config| config.hsm.batch_bytes = ByteSize::mib(64))
}

/// A site with files that are on tape only. Their bitfiles, and the cartridges.
async fn sunk(database: Database) -> (Site, Vec<BitfileId>, Vec<VolumeLabel>) {
    let site = builder(database).start().await;
    let mut alice = site.user("alice").await.login().await;
    let folder = FtpPath::new("/home/alice/small").expect("a path");
    alice.client.make_folders(&folder).await.expect("a folder");
    for (path, length) in files() {
        alice.put(&path, &bytes(length as u64, length)).await.expect("stored");
    }
    let mut ids = Vec::new();
    for (path, _) in files() {
        ids.push(site.bitfile(&path).await);
    }
    let volumes = sink(&site, &ids).await;
    assert!(volumes.len() >= 2, "two copies are on two cartridges at least: {volumes:?}");
    (site, ids, volumes)
}

async fn comes_back(database: Database) {
    let (mut site, ids, volumes) = sunk(database).await;
    let before = site.gateway.catalog.locate(&ids).await.expect("located");

    site.lose_catalogue().await;
    assert!(site.gateway.catalog.locate(&ids).await.expect("located").is_empty(), "nothing is known");
    let mut taken = 0;
    for volume in &volumes {
        let state = rebuild(&site, volume).await;
        assert_eq!((state.reason.as_deref(), state.refused, state.lost), (None, 0, 0), "{state:?}");
        taken += state.files;
    }
    assert_eq!(taken, ids.len() as u64, "each file once");
    // The second time there is nothing to take over.
    for volume in &volumes {
        let again = rebuild(&site, volume).await;
        assert_eq!((again.files, again.lost, again.joined, again.known), (0, 0, 0, again.members), "{again:?}");
    }

    let after = site.gateway.catalog.locate(&ids).await.expect("located");
    for (old, new) in before.iter().zip(&after) {
        assert_eq!((old.bitfile.id, old.bitfile.size_bytes), (new.bitfile.id, new.bitfile.size_bytes));
        assert_eq!(old.bitfile.sums, new.bitfile.sums);
        assert_eq!((&old.bitfile.cos, &old.bitfile.owner), (&new.bitfile.cos, &new.bitfile.owner));
        assert_eq!((old.bitfile.created, 2), (new.bitfile.created, new.bitfile.residency.tape_copies));
    }
    let mut alice = site.user("alice").await.login().await;
    for (path, length) in files() {
        assert_eq!(alice.get(&path).await.expect("staged and read"), bytes(length as u64, length), "{path}");
    }
    // What is written from now on has numbers and places of its own.
    alice.put("/home/alice/small/new", &bytes(5, 5000)).await.expect("stored");
    let new = site.bitfile("/home/alice/small/new").await;
    assert!(ids.iter().all(|old| *old < new), "{new} after {ids:?}");
    sink(&site, &[new]).await;
    assert_eq!(alice.get("/home/alice/small/new").await.expect("read"), bytes(5, 5000));
    assert_eq!(alice.get("/home/alice/large").await.expect("read"), bytes(9 * MIB as u64, 9 * MIB));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_file_comes_back_from_its_cartridges_when_the_catalogue_is_lost() {
    comes_back(Database::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_works_with_postgresql() {
    comes_back(Database::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_that_is_cut_goes_on_when_the_gateway_is_back() {
    let (mut site, ids, volumes) = sunk(Database::Sqlite).await;
    site.lose_catalogue().await;
    for (volume, later_ms) in volumes.iter().zip([0, 60, 120, 180].into_iter().cycle()) {
        soon("the cartridge", async {
            while site.gateway.catalog.volume(volume).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        site.gateway.hsm.rebuild(volume).await.expect("queued");
        tokio::time::sleep(Duration::from_millis(later_ms)).await;
        site.kill_gateway().await;
        soon("the end of the rebuild", async {
            while site.gateway.hsm.rebuild_state(volume).await.expect("a state").working {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    let after = site.gateway.catalog.locate(&ids).await.expect("located");
    assert_eq!(after.len(), ids.len());
    assert!(after.iter().all(|found| found.bitfile.residency.tape_copies == 2), "{after:?}");
    let mut alice = site.user("alice").await.login().await;
    for (path, length) in files() {
        assert_eq!(alice.get(&path).await.expect("staged and read"), bytes(length as u64, length), "{path}");
    }
}
