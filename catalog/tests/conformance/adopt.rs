//! Taking over what cartridges hold; on both databases.

use catalog::*;
use wire::checksum::Sums;
use wire::extent::{ByteRange, Extent, Place};
use wire::id::{BitfileId, StorageClassName};

use crate::site::*;

on_both! {
    a_file_comes_back_under_its_number_and_path_and_its_second_copy_joins;
    taking_over_the_same_again_changes_nothing;
    numbers_that_are_given_out_are_beyond_those_taken_over;
    of_two_bitfiles_of_one_path_the_newer_has_the_name_in_whatever_order_they_come;
    a_name_that_was_written_here_is_never_touched;
    parts_on_two_cartridges_make_one_bitfile_when_both_have_been_read;
    what_cannot_be_where_it_was_is_kept_with_its_bytes;
    what_is_not_the_same_or_impossible_is_refused_and_the_rest_is_taken;
    an_empty_file_comes_back;
}

/// A whole bitfile as a tape describes it: its sums are made of its number.
fn member(number: u64, path: &str, label: &str, block: u64, bytes: u64) -> FoundMember {
    let sums = Sums { md5: Some([7; 16]), ..Sums::of(&number.to_be_bytes()) };
    FoundMember {
        bitfile: BitfileId(number),
        version: Timestamp(1_700_000_000_000_000 + i64::try_from(number).expect("small")),
        path: path.to_owned(),
        owner: account("bob"),
        group: group("users"),
        mode: 0o640,
        modified: Timestamp(5),
        cos: cos("dual"),
        size_bytes: bytes,
        range: ByteRange::new(0, bytes).expect("a range"),
        extent: Extent {
            volume: volume(label),
            place: Place::Tape { container: 1, block, skip_bytes: 512 },
            length_bytes: bytes,
        },
        sums: if bytes == 0 { Sums::EMPTY } else { sums },
    }
}

fn part(number: u64, label: &str, data: &[u8], offset: usize, length: usize) -> FoundMember {
    let bytes = data.len() as u64;
    let range = ByteRange::new(offset as u64, length as u64).expect("a range");
    let whole = member(number, "/home/bob/big", label, 9, bytes);
    let extent = Extent { length_bytes: range.length(), ..whole.extent };
    FoundMember { range, extent, sums: Sums::of(&data[offset..offset + length]), ..whole }
}

async fn adopt(site: &Site, label: &str, members: Vec<FoundMember>) -> Adopted {
    let class = if label == "T2" { "tape2" } else { "tape1" };
    let storage_class = StorageClassName::new(class).expect("a name");
    let adoption = Adoption { volume: volume(label), storage_class, members, fence: None };
    site.catalog.adopt(adoption).await.expect("taken over")
}

async fn entry(site: &Site, at: &str) -> Option<Entry> {
    site.catalog.resolve(&path(at)).await.expect("resolved").entry().ok().cloned()
}

async fn holds(site: &Site, at: &str, number: u64) {
    let found = entry(site, at).await.unwrap_or_else(|| panic!("{at} is not there"));
    assert_eq!(found.file().expect("a file").bitfile, BitfileId(number), "{at}");
    let located = site.catalog.locate_one(BitfileId(number)).await.expect("located");
    assert_eq!(located.bitfile.entry, Some(found.id), "{at}");
}

async fn a_file_comes_back_under_its_number_and_path_and_its_second_copy_joins(site: Site) {
    let first = adopt(&site, "T1", vec![member(5000, "/home/bob/a", "T1", 4, 100)]).await;
    assert_eq!(first, Adopted { files: 1, bytes: 100, ..Adopted::default() });
    let second = adopt(&site, "T2", vec![member(5000, "/home/bob/a", "T2", 4, 100)]).await;
    assert_eq!(second, Adopted { joined: 1, bytes: 100, ..Adopted::default() });

    let found = entry(&site, "/home/bob/a").await.expect("there");
    assert_eq!((found.owner.as_str(), found.mode, found.modified), ("bob", 0o640, Timestamp(5)));
    let located = site.catalog.locate_one(BitfileId(5000)).await.expect("located");
    assert_eq!(located.bitfile.residency, Residency { on_disk: false, tape_copies: 2, tape_copies_wanted: 2 });
    assert_eq!(located.bitfile.sums, member(5000, "a", "T1", 4, 100).sums);
    assert_eq!(located.bitfile.cos, cos("dual"));
    assert_eq!(located.copy(1).expect("copy 1").segments[0].extent.volume, volume("T1"));
    assert_eq!(located.copy(2).expect("copy 2").segments[0].extent.volume, volume("T2"));
    let home = entry(&site, "/home/bob").await.expect("a home");
    assert_eq!((home.owner.as_str(), home.is_directory()), ("bob", true));
    assert_eq!(entry(&site, "/home").await.expect("there").owner.as_str(), "root");
    assert_eq!(site.usage("bob").await, (100, 1));
    assert_eq!(site.catalog.volume(&volume("T1")).await.expect("a volume").live_bytes, 100);
    // It is read as any other file that is on tape only.
    assert_eq!(site.request(BitfileId(5000), "bob").await.volume, Some(volume("T1")));
}

async fn taking_over_the_same_again_changes_nothing(site: Site) {
    let page = || vec![member(5000, "/home/bob/a", "T1", 4, 100), member(5001, "/home/bob/b", "T1", 5, 50)];
    adopt(&site, "T1", page()).await;
    let again = adopt(&site, "T1", page()).await;
    assert_eq!(again, Adopted { known: 2, ..Adopted::default() });
    assert_eq!(site.usage("bob").await, (150, 2));
    assert_eq!(site.catalog.volume(&volume("T1")).await.expect("a volume").live_segments, 2);
}

async fn numbers_that_are_given_out_are_beyond_those_taken_over(site: Site) {
    // The handle has numbers in hand that reach beyond it.
    let before = site.catalog.next_id().await.expect("a number");
    let number = before + 10;
    adopt(&site, "T1", vec![member(number, "/home/bob/a", "T1", 4, 100)]).await;
    let fresh = site.publish(ROOT, "fresh", 10).await;
    assert!(fresh.bitfile.0 > number, "{} after {number}", fresh.bitfile);
    adopt(&site, "T1", vec![member(1_000_000_000, "/home/bob/b", "T1", 5, 100)]).await;
    assert!(site.another().await.catalog.next_id().await.expect("a number") > 1_000_000_000);
}

async fn of_two_bitfiles_of_one_path_the_newer_has_the_name_in_whatever_order_they_come(site: Site) {
    adopt(&site, "T1", vec![member(5000, "/x/up", "T1", 4, 10), member(5001, "/x/up", "T1", 5, 11)]).await;
    let second = adopt(&site, "T1", vec![member(5003, "/x/down", "T1", 6, 10), member(5002, "/x/down", "T1", 7, 11)]);
    assert_eq!(second.await, Adopted { files: 1, lost: 1, bytes: 21, ..Adopted::default() });
    holds(&site, "/x/up", 5001).await;
    holds(&site, "/lost+found/T1/5000.up", 5000).await;
    holds(&site, "/x/down", 5003).await;
    holds(&site, "/lost+found/T1/5002.down", 5002).await;
    assert_eq!(entry(&site, "/lost+found/T1").await.expect("there").mode, 0o700);
}

async fn a_name_that_was_written_here_is_never_touched(site: Site) {
    let here = site.publish(ROOT, "a", 10).await;
    let number = here.bitfile.0 + 1_000_000;
    let newer = FoundMember { version: Timestamp(i64::MAX - 1), ..member(number, "/a", "T1", 4, 100) };
    assert_eq!(adopt(&site, "T1", vec![newer]).await.lost, 1);
    holds(&site, "/a", here.bitfile.0).await;
    holds(&site, &format!("/lost+found/T1/{number}.a"), number).await;
}

async fn parts_on_two_cartridges_make_one_bitfile_when_both_have_been_read(site: Site) {
    let data: Vec<u8> = (0..200u8).collect();
    let first = adopt(&site, "T1", vec![part(5000, "T1", &data, 0, 120)]).await;
    assert_eq!(first, Adopted { parts: 1, ..Adopted::default() });
    assert_eq!(entry(&site, "/home/bob/big").await, None, "half a file is none");
    assert_eq!(site.catalog.strays_on(&volume("T1")).await.expect("counted"), 1);
    assert_eq!(adopt(&site, "T1", vec![part(5000, "T1", &data, 0, 120)]).await.parts, 1);
    let second = adopt(&site, "T3", vec![part(5000, "T3", &data, 120, 80)]).await;
    assert_eq!(second, Adopted { files: 1, bytes: 200, ..Adopted::default() });
    let located = site.catalog.locate_one(BitfileId(5000)).await.expect("located");
    let whole = Sums::of(&data);
    assert_eq!((located.bitfile.sums.adler32, located.bitfile.sums.crc32c), (whole.adler32, whole.crc32c));
    assert_eq!(located.copy(1).expect("copy 1").segments.len(), 2);
    assert_eq!(site.catalog.strays_on(&volume("T1")).await.expect("counted"), 0);
    assert_eq!(adopt(&site, "T1", vec![part(5000, "T1", &data, 0, 120)]).await.known, 1);
}

async fn what_cannot_be_where_it_was_is_kept_with_its_bytes(site: Site) {
    site.directory("taken").await;
    site.publish(ROOT, "file", 1).await;
    let base = 5_000_000;
    let paths = ["", "/a/../b", "/taken", "/file/below", "/.deleted/7", "/lost+found/T1/x"];
    let members = paths.iter().zip(base..).map(|(path, number)| member(number, path, "T1", number, 10));
    let result = adopt(&site, "T1", members.collect()).await;
    assert_eq!((result.lost, result.files, result.refused.len()), (6, 0, 0));
    for (at, number) in ["", ".b", ".taken", ".below", ".7", ".x"].iter().zip(base..) {
        let name = if at.is_empty() { format!("{number}.") } else { format!("{number}{at}") };
        holds(&site, &format!("/lost+found/T1/{name}"), number).await;
    }
}

async fn what_is_not_the_same_or_impossible_is_refused_and_the_rest_is_taken(site: Site) {
    let here = site.publish(ROOT, "a", 10).await.bitfile.0;
    let torn = FoundMember { size_bytes: 50, ..member(5_000_001, "/x/b", "T1", 5, 100) };
    let unknown = FoundMember { cos: cos("gone"), ..member(5_000_002, "/x/c", "T1", 6, 10) };
    let huge = member(MAX_ADOPTED_ID + 1, "/x/d", "T1", 7, 10);
    let good = member(5_000_003, "/x/e", "T1", 8, 10);
    let result = adopt(&site, "T1", vec![member(here, "/x/a", "T1", 4, 10), torn, unknown, huge, good]).await;
    let refused: Vec<u64> = result.refused.iter().map(|(bitfile, _)| bitfile.0).collect();
    assert_eq!(refused, [here, 5_000_001, 5_000_002, MAX_ADOPTED_ID + 1]);
    assert_eq!(result.files, 1);
    holds(&site, "/x/e", 5_000_003).await;
}

async fn an_empty_file_comes_back(site: Site) {
    assert_eq!(adopt(&site, "T1", vec![member(5000, "/x/empty", "T1", 4, 0)]).await.files, 1);
    assert_eq!(adopt(&site, "T1", vec![member(5000, "/x/empty", "T1", 4, 0)]).await.known, 1);
    assert_eq!(adopt(&site, "T2", vec![member(5000, "/x/empty", "T2", 4, 0)]).await.joined, 1);
}
