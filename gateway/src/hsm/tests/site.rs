//! A catalogue in a temporary folder, a fake fleet, and the services over them.

use std::{future::Future, sync::Arc, time::Duration};

use catalog::{
    Catalog, ClassOfService, DISK_COPY, Hierarchy, Home, Located, MediumKind, NewFile, NewVolume, Options, Policies,
    ROOT, Segment, StorageClass,
};
use daemon::Shutdown;
use daemon::config::{ByteSize, TimeSpan};
use wire::{
    checksum::Sums,
    extent::{ByteRange, Extent, Place},
    id::{AccountName, BitfileId, CosName, FileId, GatewayId, StorageClassName, VolumeLabel},
    mover::VolumeFile,
};

use super::fake::{FakeFleet, label};
use crate::hsm::{Ask, Hsm, HsmConfig, Parts};

pub(crate) fn account(name: &str) -> AccountName {
    AccountName::new(name).expect("a name")
}

pub(crate) struct Site {
    pub(crate) catalog: Catalog,
    pub(crate) fleet: Arc<FakeFleet>,
    pub(crate) hsm: Hsm,
    pub(crate) shutdown: Shutdown,
    config: HsmConfig,
    runs: u64,
    _folder: Option<tempfile::TempDir>,
}

pub(crate) fn quick() -> HsmConfig {
    HsmConfig {
        batch_wait: TimeSpan::seconds(0),
        linger: TimeSpan::milliseconds(300),
        purge_idle: TimeSpan::seconds(0),
        disk_reserve_bytes: ByteSize::new(0),
        look_every: TimeSpan::milliseconds(50),
        lease: TimeSpan::milliseconds(600),
        ..HsmConfig::default()
    }
}

impl Site {
    pub(crate) async fn new(fleet: Arc<FakeFleet>) -> Self {
        Self::with(fleet, quick()).await
    }

    pub(crate) async fn with(fleet: Arc<FakeFleet>, config: HsmConfig) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("catalogue.db").display());
        Self { _folder: Some(folder), ..Self::over(&url, fleet, config).await }
    }

    /// Over a database of the caller's.
    pub(crate) async fn over(url: &str, fleet: Arc<FakeFleet>, config: HsmConfig) -> Self {
        let catalog = Catalog::open(url, Options::default()).await.expect("open the catalogue");
        catalog.put_policies(policies()).await.expect("policies");
        let volumes: Vec<NewVolume> = fleet
            .world()
            .disks
            .iter()
            .map(|(volume, (mover, capacity))| NewVolume {
                label: volume.clone(),
                pool: "disk".into(),
                capacity_bytes: *capacity,
                home: Home::Mover(mover.clone()),
            })
            .collect();
        catalog.register_volumes(volumes).await.expect("volumes");
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let hsm = start(&catalog, &fleet, &config, 1, &shutdown).await;
        Self { catalog, fleet, hsm, shutdown, config, runs: 1, _folder: None }
    }

    /// Ends the services as `kill -9` would, and starts them anew over the same catalogue and fleet.
    pub(crate) async fn restart(&mut self) {
        self.shutdown.cut();
        self.shutdown.finish().await;
        self.shutdown = Shutdown::new(Duration::from_secs(5));
        self.runs += 1;
        self.hsm = start(&self.catalog, &self.fleet, &self.config, self.runs, &self.shutdown).await;
    }

    /// Publishes a file whose parts lie on these disk volumes.
    pub(crate) async fn put(&self, name: &str, cos: &str, parts: &[(&str, &[u8])]) -> BitfileId {
        let (mut segments, mut whole) = (Vec::new(), Vec::new());
        for (volume, data) in parts {
            let file = FileId(self.catalog.next_id().await.expect("a number"));
            self.fleet.world().files.insert(VolumeFile { volume: label(volume), file }, data.to_vec());
            let sums = Sums::of(data);
            segments.push(Segment {
                range: ByteRange::new(whole.len() as u64, data.len() as u64).expect("small"),
                extent: Extent {
                    volume: label(volume),
                    place: Place::Disk { file, offset_bytes: 0 },
                    length_bytes: data.len() as u64,
                },
                adler32: sums.adler32,
                crc32c: sums.crc32c,
            });
            whole.extend_from_slice(data);
        }
        let file = NewFile {
            parent: ROOT,
            name: name.to_owned(),
            expected: Default::default(),
            twins: Default::default(),
            owner: account("alice"),
            group: wire::id::GroupName::new("users").expect("a name"),
            mode: 0o640,
            acl: None,
            replace_attributes: false,
            modified: None,
            cos: CosName::new(cos).expect("a name"),
            storage_class: StorageClassName::new("disk").expect("a name"),
            size_bytes: whole.len() as u64,
            sums: Sums::of(&whole),
            base: Default::default(),
            segments,
        };
        let published = self.catalog.publish(file).await.expect("published");
        self.hsm.published();
        self.fleet.tell();
        published.bitfile
    }

    pub(crate) async fn located(&self, bitfile: BitfileId) -> Located {
        self.catalog.locate_one(bitfile).await.expect("located")
    }

    pub(crate) async fn on_disk(&self, bitfile: BitfileId) -> bool {
        self.located(bitfile).await.copy(DISK_COPY).is_some()
    }

    /// The bytes of the disk copy, as a client would read them.
    pub(crate) async fn read(&self, bitfile: BitfileId) -> Vec<u8> {
        let located = self.located(bitfile).await;
        let mut data = Vec::new();
        for segment in &located.copy(DISK_COPY).expect("a disk copy").segments {
            let Place::Disk { file, offset_bytes } = segment.extent.place else { panic!("on disk") };
            let of = VolumeFile { volume: segment.extent.volume.clone(), file };
            let world = self.fleet.world();
            let bytes = world.files.get(&of).expect("the file is on its volume");
            data.extend_from_slice(&bytes[offset_bytes as usize..][..segment.extent.length_bytes as usize]);
        }
        data
    }

    pub(crate) async fn tapes_of(&self, bitfile: BitfileId) -> Vec<VolumeLabel> {
        let located = self.located(bitfile).await;
        let tape = located.copies.iter().filter(|copy| !copy.is_on_disk() && copy.complete);
        tape.flat_map(|copy| copy.segments.iter().map(|segment| segment.extent.volume.clone())).collect()
    }

    /// Waits until the bitfile has all its tape copies, and drops the disk copy.
    pub(crate) async fn sink(&self, bitfile: BitfileId) {
        eventually("all tape copies are there", || async {
            let residency = self.located(bitfile).await.bitfile.residency;
            residency.tape_copies == residency.tape_copies_wanted
        })
        .await;
        let purged = self.hsm.purge_now(vec![bitfile]).await.expect("asked");
        purged[0].1.as_ref().expect("purged");
    }

    pub(crate) fn ask(bitfile: BitfileId) -> Ask {
        Ask { bitfile, account: account("alice"), deadline: None, lifetime: None, priority: 0 }
    }

    pub(crate) async fn end(self) {
        self.shutdown.finish().await;
        self.catalog.close().await;
    }
}

async fn start(catalog: &Catalog, fleet: &Arc<FakeFleet>, config: &HsmConfig, run: u64, shutdown: &Shutdown) -> Hsm {
    let gateway = GatewayId::new("gw1").expect("a name");
    let epoch = catalog.begin_run(&gateway).await.expect("a run");
    assert!(epoch.0 >= run, "runs are numbered upwards");
    let parts = Parts {
        catalog: catalog.clone(),
        fleet: Arc::clone(fleet) as Arc<dyn crate::mounts::Fleet>,
        holder: catalog::Holder::new(&gateway, epoch),
        gateway,
        config: config.clone(),
        pools: Arc::new(|_: &VolumeLabel| Some("tape".to_owned())),
    };
    Hsm::start(parts, shutdown)
}

fn policies() -> Policies {
    let class = |name: &str, kind, high_water, low_water| StorageClass {
        name: StorageClassName::new(name).expect("a name"),
        kind,
        pool: name.to_owned(),
        stripe_width: 1,
        block_bytes: 1 << 20,
        high_water,
        low_water,
    };
    let cos = |name: &str, copies| ClassOfService {
        name: CosName::new(name).expect("a name"),
        hierarchy: "both".into(),
        copies,
        extra_sums: Default::default(),
        tape_read: Default::default(),
        undelete_window: Duration::ZERO,
        migration_age: Duration::ZERO,
        stage_lifetime: Duration::from_secs(3600),
    };
    let sleepy = ClassOfService { migration_age: Duration::from_secs(3600), ..cos("sleepy", 1) };
    let tape = StorageClassName::new("tape").expect("a name");
    Policies {
        storage_classes: vec![class("disk", MediumKind::Disk, 0.8, 0.5), class("tape", MediumKind::Tape, 1.0, 1.0)],
        hierarchies: vec![Hierarchy {
            name: "both".into(),
            disk: StorageClassName::new("disk").expect("a name"),
            tapes: vec![tape.clone(), tape],
        }],
        classes: vec![cos("single", 1), cos("dual", 2), cos("disk-only", 0), sleepy],
    }
}

/// Waits for a state; panics when it has not come within a generous time.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, state: impl Fn() -> F) {
    for _ in 0..1500 {
        if state().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never came true: {what}");
}
