//! Measures the catalogue: files published per second, and what a lookup and a page cost against the number of files.
//!
//! `cargo run --release -p penstock-catalog --features testing --example measure -- [sqlite|postgres] [FILES]`
//!
//! Prints one line of JSON for each size: medians in microseconds.
#![allow(clippy::unwrap_used, reason = "a measurement stops at the first error")]

use std::time::{Duration, Instant};

use catalog::testing::{Generated, PostgresCluster, generate};
use catalog::*;
use wire::checksum::{ExtraSums, Sums};
use wire::extent::{ByteRange, Extent, Place};
use wire::id::*;

/// How often each question is asked.
const SAMPLES: usize = 400;
/// How many files are published, and by how many callers at once.
const PUBLISHED: u64 = 4_000;
const CALLERS: u64 = 64;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().unwrap_or_else(|| "sqlite".to_owned());
    let files: u64 = arguments.next().map_or(1_000_000, |number| number.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let cluster = if database == "postgres" { Some(PostgresCluster::start(true).await.unwrap()) } else { None };
    let mut small = None;
    for size in [10_000, files] {
        let url = match &cluster {
            Some(cluster) => cluster.database().await.unwrap(),
            None => format!("sqlite:{}", folder.path().join(format!("{size}.db")).display()),
        };
        let catalog = Catalog::open(&url, Options::default()).await.unwrap();
        prepare(&catalog).await;
        let begun = Instant::now();
        let directories = generate(&catalog, size, &wish()).await.unwrap();
        let generated = begun.elapsed();
        let lookup = lookups(&catalog, size, &directories).await;
        let page = pages(&catalog, &directories).await;
        let published = publish(&catalog).await;
        println!(
            "{{\"database\":\"{database}\",\"files\":{size},\"generate_s\":{:.1},\"lookup_us\":{:.1},\"page_us\":{:.1},\
             \"published_per_s\":{published:.0}}}",
            generated.as_secs_f64(),
            micros(lookup),
            micros(page),
        );
        let (small_lookup, small_page) = *small.get_or_insert((lookup, page));
        if size == files {
            let ratio = |large: Duration, small: Duration| large.as_secs_f64() / small.as_secs_f64();
            println!("lookup ratio {:.2}, page ratio {:.2}", ratio(lookup, small_lookup), ratio(page, small_page));
        }
        catalog.close().await;
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn wish() -> Generated {
    Generated {
        owner: AccountName::new("alice").unwrap(),
        group: GroupName::new("users").unwrap(),
        cos: CosName::new("single").unwrap(),
        storage_class: StorageClassName::new("disk").unwrap(),
        volume: VolumeLabel::new("d0").unwrap(),
        files_per_directory: 10_000,
    }
}

async fn prepare(catalog: &Catalog) {
    let wish = wish();
    let storage = |name: &StorageClassName, kind| StorageClass {
        name: name.clone(),
        kind,
        pool: name.to_string(),
        stripe_width: 1,
        block_bytes: 1 << 20,
        high_water: 0.9,
        low_water: 0.7,
    };
    let tape = StorageClassName::new("tape").unwrap();
    let day = Duration::from_secs(24 * 3600);
    let policies = Policies {
        storage_classes: vec![storage(&wish.storage_class, MediumKind::Disk), storage(&tape, MediumKind::Tape)],
        hierarchies: vec![Hierarchy { name: "h".to_owned(), disk: wish.storage_class.clone(), tapes: vec![tape] }],
        classes: vec![ClassOfService {
            name: wish.cos.clone(),
            hierarchy: "h".to_owned(),
            copies: 1,
            extra_sums: ExtraSums::default(),
            tape_read: TapeRead::Wait,
            undelete_window: day,
            migration_age: day,
            stage_lifetime: day,
        }],
    };
    catalog.put_policies(policies).await.unwrap();
    let home = Home::Mover(MoverId::new("mover1").unwrap());
    let volume = NewVolume { label: wish.volume, pool: "disk".to_owned(), capacity_bytes: 1 << 50, home };
    catalog.register_volumes(vec![volume]).await.unwrap();
}

/// The median time to follow a path to a file, and of finding where its copies are.
async fn lookups(catalog: &Catalog, files: u64, directories: &[EntryId]) -> Duration {
    let mut times = Vec::new();
    for sample in 0..SAMPLES {
        // A fixed step through all files, so that neither cache nor luck chooses them.
        let file = (sample as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % files;
        let (directory, within) = (file / 10_000, file % 10_000);
        let text = format!("/generated-{}/file-{}.dat", 1_000_000 + directory, 1_000_000_000 + within);
        let path = TreePath::posix(&TreePath::root(), &text).unwrap();
        let begun = Instant::now();
        let found = catalog.resolve(&path).await.unwrap();
        times.push(begun.elapsed());
        let bitfile = found.entry().unwrap().file().unwrap().bitfile;
        assert_eq!(catalog.locate_one(bitfile).await.unwrap().copies.len(), 1);
    }
    assert!(!directories.is_empty());
    median(times)
}

/// The median time of the first page of a directory.
async fn pages(catalog: &Catalog, directories: &[EntryId]) -> Duration {
    let mut times = Vec::new();
    let listing = Listing { limit: 100, ..Listing::default() };
    for sample in 0..SAMPLES {
        let directory = directories[sample * 7919 % directories.len()];
        let begun = Instant::now();
        let page = catalog.list(directory, &listing).await.unwrap();
        times.push(begun.elapsed());
        assert_eq!(page.items.len(), 100);
    }
    median(times)
}

/// Files per second that many callers publish, each waiting for its own to be synced.
async fn publish(catalog: &Catalog) -> f64 {
    let wish = wish();
    let directory = NewDirectory {
        parent: ROOT,
        name: "published".to_owned(),
        owner: wish.owner.clone(),
        group: wish.group.clone(),
        mode: 0o755,
        acl: None,
        twins: Twins::Refuse,
    };
    let parent = catalog.make_directory(directory).await.unwrap().id;
    let begun = Instant::now();
    let callers = (0..CALLERS).map(|caller| {
        let (catalog, wish) = (catalog.clone(), wish.clone());
        tokio::spawn(async move {
            for number in 0..PUBLISHED / CALLERS {
                let file = FileId(catalog.next_id().await.unwrap());
                let range = ByteRange::new(0, 4096).unwrap();
                let place = Place::Disk { file, offset_bytes: 0 };
                let extent = Extent { volume: wish.volume.clone(), place, length_bytes: 4096 };
                let new = NewFile {
                    parent,
                    name: format!("{caller}-{number}"),
                    expected: Expected::Any,
                    twins: Twins::Refuse,
                    owner: wish.owner.clone(),
                    group: wish.group.clone(),
                    mode: 0o644,
                    acl: None,
                    replace_attributes: false,
                    modified: None,
                    cos: wish.cos.clone(),
                    storage_class: wish.storage_class.clone(),
                    size_bytes: 4096,
                    sums: Sums::EMPTY,
                    base: Base::Empty,
                    segments: vec![Segment { range, extent, adler32: 1, crc32c: 0 }],
                };
                catalog.publish(new).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    PUBLISHED as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
