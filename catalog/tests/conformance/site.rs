//! What every test of the catalogue needs: a site's classes, accounts and volumes on a database of its own, and a
//! clock that stands still until it is moved.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use catalog::testing::PostgresCluster;
use catalog::*;
use wire::checksum::{ExtraSums, Sums};
use wire::extent::{ByteRange, Extent, Place};
use wire::id::*;

/// Runs a test on both databases.
macro_rules! on_both {
    ($($(#[$attribute:meta])* $name:ident;)+) => {
        mod sqlite {
            $($(#[$attribute])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { crate::site::on_sqlite(super::$name).await; })+
        }
        mod postgres {
            $($(#[$attribute])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { crate::site::on_postgres(super::$name).await; })+
        }
    };
}
pub(crate) use on_both;

/// A catalogue with a database of its own.
#[derive(Clone)]
pub struct Site {
    pub catalog: Catalog,
    pub url: String,
    now: Arc<AtomicI64>,
}

pub async fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(Site) -> F) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
    test(Site::open(url).await).await;
}

pub async fn on_postgres<F: Future<Output = ()>>(test: impl FnOnce(Site) -> F) {
    let cluster = PostgresCluster::shared().await.unwrap_or_else(|error| panic!("{error}"));
    let url = cluster.database().await.expect("a database");
    test(Site::open(url).await).await;
}

impl Site {
    async fn open(url: String) -> Self {
        let now = Arc::new(AtomicI64::new(1_800_000_000_000_000));
        let catalog = Catalog::open(&url, options(&now)).await.expect("a catalogue");
        let site = Self { catalog, url, now };
        site.furnish().await;
        site
    }

    /// A second handle of the same database, as another gateway has it.
    pub async fn another(&self) -> Self {
        let catalog = Catalog::open(&self.url, options(&self.now)).await.expect("a second handle");
        Self { catalog, ..self.clone() }
    }

    pub fn pass(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_micros()).expect("a short time"), Ordering::SeqCst);
    }

    async fn furnish(&self) {
        let storage = |name: &str, kind| StorageClass {
            name: StorageClassName::new(name).expect("a name"),
            kind,
            pool: name.to_owned(),
            stripe_width: 1,
            block_bytes: 1 << 20,
            high_water: 0.9,
            low_water: 0.7,
        };
        let storage_name = |name: &str| StorageClassName::new(name).expect("a name");
        let class = |name: &str, copies| ClassOfService {
            name: cos(name),
            hierarchy: "standard".to_owned(),
            copies,
            extra_sums: ExtraSums::default(),
            tape_read: TapeRead::Wait,
            undelete_window: HOUR,
            migration_age: MINUTE,
            stage_lifetime: HOUR,
        };
        let policies = Policies {
            storage_classes: vec![
                storage("disk", MediumKind::Disk),
                storage("tape1", MediumKind::Tape),
                storage("tape2", MediumKind::Tape),
            ],
            hierarchies: vec![Hierarchy {
                name: "standard".to_owned(),
                disk: storage_name("disk"),
                tapes: vec![storage_name("tape1"), storage_name("tape2")],
            }],
            classes: vec![class("none", 0), class("single", 1), class("dual", 2)],
        };
        self.catalog.put_policies(policies).await.expect("policies");
        let disk = |label: &str| NewVolume {
            label: volume(label),
            pool: "disk".to_owned(),
            capacity_bytes: 1 << 40,
            home: Home::Mover(MoverId::new("mover1").expect("a name")),
        };
        let tape = |label: &str, pool: &str| NewVolume {
            label: volume(label),
            pool: pool.to_owned(),
            capacity_bytes: 1_000_000,
            home: Home::Library(LibraryId::new("lib").expect("a name")),
        };
        let volumes = vec![disk("d0"), disk("d1"), tape("T1", "tape1"), tape("T2", "tape2"), tape("T3", "tape1")];
        self.catalog.register_volumes(volumes).await.expect("volumes");
    }

    /// A directory below the root.
    pub async fn directory(&self, name: &str) -> EntryId {
        self.directory_in(ROOT, name).await
    }

    pub async fn directory_in(&self, parent: EntryId, name: &str) -> EntryId {
        self.catalog.make_directory(new_directory(parent, name)).await.expect("a directory").id
    }

    pub async fn publish(&self, parent: EntryId, name: &str, bytes: u64) -> Published {
        let file = self.file(parent, name, bytes).await;
        self.catalog.publish(file).await.expect("a published file")
    }

    /// A file of one segment on disk volume d0, in a file of its own.
    pub async fn file(&self, parent: EntryId, name: &str, bytes: u64) -> NewFile {
        let segments = if bytes == 0 { Vec::new() } else { vec![self.segment("d0", 0, bytes).await] };
        NewFile {
            parent,
            name: name.to_owned(),
            expected: Expected::Any,
            twins: Twins::Refuse,
            owner: account("alice"),
            group: group("users"),
            mode: 0o640,
            acl: None,
            replace_attributes: false,
            modified: None,
            cos: cos("single"),
            storage_class: StorageClassName::new("disk").expect("a name"),
            size_bytes: bytes,
            sums: Sums { adler32: 7, crc32c: 9, md5: Some([3; 16]), sha256: None },
            base: Base::Empty,
            segments,
        }
    }

    /// A segment in a new file of a disk volume.
    pub async fn segment(&self, label: &str, offset: u64, length_bytes: u64) -> Segment {
        let file = FileId(self.catalog.next_id().await.expect("an identifier"));
        Segment {
            range: ByteRange::new(offset, length_bytes).expect("a range"),
            extent: Extent { volume: volume(label), place: Place::Disk { file, offset_bytes: 0 }, length_bytes },
            adler32: 5,
            crc32c: 6,
        }
    }

    pub async fn claim(&self, kind: WorkKind, pool: &str) -> Vec<WorkItem> {
        self.catalog.claim(claim(kind, pool, "gw1")).await.expect("a claim")
    }

    /// Migrates what is due of a class to one copy on a cartridge.
    pub async fn migrate(&self, class: &str, copy: u32, label: &str) -> ContainerRecorded {
        self.pass(2 * MINUTE);
        let items = self.claim(WorkKind::Migrate, class).await;
        self.write_container(items, copy, label).await
    }

    pub async fn write_container(&self, items: Vec<WorkItem>, copy: u32, label: &str) -> ContainerRecorded {
        let container = self.container(items, copy, label).await;
        self.catalog.record_container(container).await.expect("a recorded container")
    }

    pub async fn container(&self, items: Vec<WorkItem>, copy: u32, label: &str) -> WrittenContainer {
        let before = self.catalog.volume(&volume(label)).await.expect("a volume").position().expect("a cartridge");
        let mut block = before.next_block;
        let mut members = Vec::new();
        for item in items {
            let Subject::Bitfile(bitfile) = item.subject else { panic!("not a bitfile: {:?}", item.subject) };
            let size = self.catalog.locate_one(bitfile).await.expect("a bitfile").bitfile.size_bytes;
            members.push(WrittenMember {
                ticket: item.ticket(),
                bitfile,
                segments: vec![tape_segment(label, before.next_container, block, 0, size)],
            });
            block += 1;
        }
        WrittenContainer {
            volume: volume(label),
            before,
            after: TapePosition { next_container: before.next_container + 1, next_block: block + 1 },
            written_bytes: 1000,
            copy,
            storage_class: StorageClassName::new(format!("tape{copy}")).expect("a name"),
            members,
            fence: None,
        }
    }

    /// Publishes, migrates to T1 and purges a file of class `single`.
    pub async fn on_tape_only(&self, parent: EntryId, name: &str, bytes: u64) -> Published {
        let published = self.publish(parent, name, bytes).await;
        self.migrate("single", 1, "T1").await;
        let purged = self.catalog.purge(vec![published.bitfile], Duration::ZERO).await.expect("a purge");
        assert_eq!(purged, [(published.bitfile, Purged::Freed { bytes })]);
        published
    }

    pub async fn request(&self, bitfile: BitfileId, owner: &str) -> StageRequest {
        let request = NewRequest {
            bitfile,
            account: account(owner),
            deadline: self.catalog.now().after(HOUR),
            lifetime: 2 * HOUR,
            priority: 0,
            cause: None,
        };
        self.catalog.request_stage(vec![request]).await.expect("a request").remove(0)
    }

    pub async fn usage(&self, owner: &str) -> (u64, u64) {
        let usage = self.catalog.usage(&QuotaSubject::Account(account(owner))).await.expect("usage");
        (usage.bytes, usage.files)
    }
}

fn options(now: &Arc<AtomicI64>) -> Options {
    let now = Arc::clone(now);
    Options { clock: Clock::new(move || Timestamp(now.load(Ordering::SeqCst))), ..Options::default() }
}

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

pub fn account(name: &str) -> AccountName {
    AccountName::new(name).expect("a name")
}

pub fn group(name: &str) -> GroupName {
    GroupName::new(name).expect("a name")
}

pub fn cos(name: &str) -> CosName {
    CosName::new(name).expect("a name")
}

pub fn volume(label: &str) -> VolumeLabel {
    VolumeLabel::new(label).expect("a label")
}

pub fn holder(gateway: &str) -> Holder {
    Holder::new(&GatewayId::new(gateway).expect("a name"), Epoch(1))
}

pub fn claim(kind: WorkKind, pool: &str, gateway: &str) -> Claim {
    Claim { kind, pool: pool.to_owned(), holder: holder(gateway), lease: MINUTE, max_items: 1000, max_bytes: u64::MAX }
}

pub fn path(text: &str) -> TreePath {
    TreePath::posix(&TreePath::root(), text).expect("a path")
}

pub fn new_directory(parent: EntryId, name: &str) -> NewDirectory {
    NewDirectory {
        parent,
        name: name.to_owned(),
        owner: account("alice"),
        group: group("users"),
        mode: 0o755,
        acl: None,
        twins: Twins::Refuse,
    }
}

pub fn tape_segment(label: &str, container: u32, block: u64, offset: u64, length_bytes: u64) -> Segment {
    Segment {
        range: ByteRange::new(offset, length_bytes).expect("a range"),
        extent: Extent {
            volume: volume(label),
            place: Place::Tape { container, block, skip_bytes: 512 },
            length_bytes,
        },
        adler32: 5,
        crc32c: 6,
    }
}

pub fn everything() -> Listing {
    Listing { limit: MAX_PAGE, ..Listing::default() }
}
