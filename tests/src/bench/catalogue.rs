//! The catalogue with few files and with very many, on both databases: what a lookup, a page and a publication cost.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_trait::async_trait;
use catalog::testing::{Generated, PostgresCluster, generate};
use catalog::{
    Base, Catalog, ClassOfService, Expected, Hierarchy, Listing, MediumKind, NewDirectory, NewFile, ObjectListing,
    Options, Policies, ROOT, Segment, StorageClass, TapeRead, TreePath, Twins,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use wire::checksum::{ExtraSums, Sums};
use wire::extent::{ByteRange, Extent, Place};
use wire::id::{AccountName, CosName, EntryId, FileId, GroupName, StorageClassName, VolumeLabel};

use super::{Benchmark, Contest, Rounds, Setting, Side, Target, Unit};

/// Files in the small catalogue, and in each directory of both.
const FEW: u64 = 10_000;
/// Names asked for in one sample.
const LOOKUPS: u32 = 2_000;
/// First pages asked for in one sample.
const PAGES: u32 = 50;
/// Names on a page.
const PAGE: u32 = 1_000;
/// Files published in one sample, and how many at a time.
const PUBLISHED: u64 = 2_000;
const WRITERS: usize = 256;
/// The size of every file.
const FILE_BYTES: u64 = 4096;
/// Where random picks begin.
const SEED: u64 = 20_261_130;

const LOOKUP_FEW: &str = "lookup, few files";
const PAGE_FEW: &str = "first page of 1,000 names, few files";
const KEYS_FEW: &str = "1,000 keys as S3 lists them, few files";
const PUBLISH_FEW: &str = "publish, few files";
const SIDES: &[Side] = &[
    Side::shown(LOOKUP_FEW, Unit::Microseconds),
    Side::compared("lookup, very many files", Unit::Microseconds, LOOKUP_FEW).with(Target::RatioAtMost(1.5)),
    Side::shown(PAGE_FEW, Unit::Microseconds),
    Side::compared("first page of 1,000 names, very many files", Unit::Microseconds, PAGE_FEW)
        .with(Target::RatioAtMost(1.5)),
    Side::shown(KEYS_FEW, Unit::Microseconds),
    Side::compared("1,000 keys as S3 lists them, very many files", Unit::Microseconds, KEYS_FEW)
        .with(Target::RatioAtMost(2.0)),
    Side::shown(PUBLISH_FEW, Unit::FilesPerSecond),
    Side::compared("publish, very many files", Unit::FilesPerSecond, PUBLISH_FEW),
];

/// The benchmarks of this module.
#[must_use]
pub fn benchmarks() -> Vec<Benchmark> {
    let sqlite = Benchmark {
        name: "catalogue-sqlite",
        asks: "Does a catalogue on SQLite answer as fast with very many files as with 10,000?",
        sides: SIDES,
        rounds: Rounds::Usual,
        limit: Duration::from_secs(3600),
        set_up: |setting| Box::pin(sqlite(setting)),
    };
    let postgres = Benchmark {
        name: "catalogue-postgres",
        asks: "Does a catalogue on PostgreSQL answer as fast with very many files as with 10,000?",
        set_up: |setting| Box::pin(postgres(setting)),
        ..sqlite.clone()
    };
    vec![sqlite, postgres]
}

/// One catalogue with so many files in it.
struct Filled {
    catalog: Catalog,
    files: u64,
    directories: Vec<EntryId>,
    /// A directory for what is published.
    inbox: EntryId,
    made_in: Duration,
}

struct Both {
    catalogues: [Filled; 2],
    random: Random,
    published: u64,
    // Dropped after the connections to it.
    _cluster: Option<PostgresCluster>,
}

async fn sqlite(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let url = |name: &str| format!("sqlite:{}", setting.path(name).display());
    both(setting, [url("few.sqlite"), url("many.sqlite")], None).await
}

async fn postgres(setting: &Setting) -> anyhow::Result<Box<dyn Contest>> {
    let cluster = PostgresCluster::start(true).await?;
    let urls = [cluster.database().await?, cluster.database().await?];
    both(setting, urls, Some(cluster)).await
}

async fn both(
    setting: &Setting,
    [few, many]: [String; 2],
    cluster: Option<PostgresCluster>,
) -> anyhow::Result<Box<dyn Contest>> {
    let many = fill(&many, setting.size(10_000_000, 200_000)).await?;
    let few = fill(&few, FEW).await?;
    Ok(Box::new(Both { catalogues: [few, many], random: Random(SEED), published: 0, _cluster: cluster }))
}

async fn fill(url: &str, files: u64) -> anyhow::Result<Filled> {
    let catalog = Catalog::open(url, Options::default()).await?;
    catalog.put_policies(policies()?).await?;
    let generated = Generated {
        owner: AccountName::new("alice")?,
        group: GroupName::new("science")?,
        cos: CosName::new("bench")?,
        storage_class: StorageClassName::new("disk")?,
        volume: VolumeLabel::new("mover1.disk1")?,
        files_per_directory: u32::try_from(FEW)?,
    };
    let began = Instant::now();
    let directories = generate(&catalog, files, &generated).await.context("generate files")?;
    let made_in = began.elapsed();
    let inbox = NewDirectory {
        parent: ROOT,
        name: "inbox".to_owned(),
        owner: generated.owner,
        group: generated.group,
        mode: 0o755,
        acl: None,
        twins: Twins::Refuse,
    };
    let inbox = catalog.make_directory(inbox).await?.id;
    Ok(Filled { catalog, files, directories, inbox, made_in })
}

fn policies() -> anyhow::Result<Policies> {
    let disk = StorageClassName::new("disk")?;
    Ok(Policies {
        storage_classes: vec![StorageClass {
            name: disk.clone(),
            kind: MediumKind::Disk,
            pool: "disk".to_owned(),
            stripe_width: 1,
            block_bytes: 1 << 20,
            high_water: 0.9,
            low_water: 0.8,
        }],
        hierarchies: vec![Hierarchy { name: "disk-only".to_owned(), disk, tapes: Vec::new() }],
        classes: vec![ClassOfService {
            name: CosName::new("bench")?,
            hierarchy: "disk-only".to_owned(),
            copies: 0,
            extra_sums: ExtraSums::default(),
            tape_read: TapeRead::Wait,
            undelete_window: Duration::from_secs(3600),
            migration_age: Duration::from_secs(3600),
            stage_lifetime: Duration::from_secs(3600),
        }],
    })
}

#[async_trait(?Send)]
impl Contest for Both {
    async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
        let Self { catalogues, random, published, .. } = self;
        let filled = &catalogues[side % 2];
        match side / 2 {
            0 => filled.look_up(random).await,
            1 => filled.first_pages(random).await,
            2 => filled.keys(random).await,
            _ => {
                *published += PUBLISHED;
                filled.publish(*published).await
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let [few, many] = &self.catalogues;
        vec![
            format!("few: {} files, very many: {}; {FEW} in each directory", few.files, many.files),
            format!("{} files generated in {:.0} s", many.files, many.made_in.as_secs_f64()),
            format!(
                "a sample: {LOOKUPS} lookups by path, or {PAGES} pages, one after the other, of random directories, or \
                 behind random keys of one bucket that holds all"
            ),
            format!("published: {PUBLISHED} files, up to {WRITERS} at a time, synced"),
        ]
    }
}

impl Filled {
    /// Mean time of a lookup by path, in microseconds.
    async fn look_up(&self, random: &mut Random) -> anyhow::Result<f64> {
        let root = TreePath::root();
        let paths = (0..LOOKUPS).map(|_| TreePath::posix(&root, &name_of(random.below(self.files))));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        for path in &paths {
            self.catalog.resolve(path).await?.entry()?;
        }
        Ok(microseconds_each(began.elapsed(), LOOKUPS))
    }

    /// Mean time of the first page of a directory, in microseconds.
    async fn first_pages(&self, random: &mut Random) -> anyhow::Result<f64> {
        let listing = Listing { limit: PAGE, ..Listing::default() };
        let count = self.directories.len() as u64;
        let wanted: Vec<_> =
            (0..PAGES).filter_map(|_| self.directories.get(usize::try_from(random.below(count)).ok()?)).collect();
        let began = Instant::now();
        for directory in wanted {
            let page = self.catalog.list(*directory, &listing).await?;
            anyhow::ensure!(page.items.len() == PAGE as usize, "a page of {} names", page.items.len());
        }
        Ok(microseconds_each(began.elapsed(), PAGES))
    }

    /// Mean time of a page of keys behind a random one, in microseconds; the bucket is the whole tree.
    async fn keys(&self, random: &mut Random) -> anyhow::Result<f64> {
        // So that a whole page is left.
        let last = self.files - u64::from(PAGE) - 1;
        let listings = (0..PAGES).map(|_| {
            let after = Some(name_of(random.below(last))[1..].to_owned());
            ObjectListing { after, limit: PAGE, ..ObjectListing::default() }
        });
        let listings: Vec<_> = listings.collect();
        let began = Instant::now();
        for listing in &listings {
            let page = self.catalog.list_objects(ROOT, listing).await?;
            anyhow::ensure!(page.objects.len() == PAGE as usize, "a page of {} keys", page.objects.len());
        }
        Ok(microseconds_each(began.elapsed(), PAGES))
    }

    /// Files a second that are published and synced.
    async fn publish(&self, first: u64) -> anyhow::Result<f64> {
        let files =
            (first..first + PUBLISHED).map(|number| self.new_file(number)).collect::<anyhow::Result<Vec<_>>>()?;
        let began = Instant::now();
        let published = stream::iter(files).map(|file| self.catalog.publish(file)).buffer_unordered(WRITERS);
        published.try_for_each(|_| std::future::ready(Ok(()))).await?;
        Ok(PUBLISHED as f64 / began.elapsed().as_secs_f64())
    }

    fn new_file(&self, number: u64) -> anyhow::Result<NewFile> {
        let sums = Sums { adler32: 1, crc32c: 0, md5: None, sha256: None };
        let place = Place::Disk { file: FileId(number), offset_bytes: 0 };
        let extent = Extent { volume: VolumeLabel::new("mover1.disk1")?, place, length_bytes: FILE_BYTES };
        Ok(NewFile {
            parent: self.inbox,
            name: format!("new-{number}.dat"),
            expected: Expected::Nothing,
            twins: Twins::Refuse,
            owner: AccountName::new("alice")?,
            group: GroupName::new("science")?,
            mode: 0o644,
            acl: None,
            replace_attributes: false,
            modified: None,
            cos: CosName::new("bench")?,
            storage_class: StorageClassName::new("disk")?,
            size_bytes: FILE_BYTES,
            segments: vec![Segment { range: ByteRange::new(0, FILE_BYTES)?, extent, adler32: 1, crc32c: 0 }],
            sums,
            base: Base::Empty,
        })
    }
}

/// A name as the generator makes it.
fn name_of(number: u64) -> String {
    format!("/generated-{}/file-{}.dat", 1_000_000 + number / FEW, 1_000_000_000 + number % FEW)
}

fn microseconds_each(elapsed: Duration, count: u32) -> f64 {
    elapsed.as_secs_f64() * 1e6 / f64::from(count)
}

/// Picks that are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}
