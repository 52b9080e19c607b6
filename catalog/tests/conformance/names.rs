//! Names: resolving, listing, making, moving, removing; on both databases.

use crate::site::*;
use catalog::*;
use wire::id::EntryId;

on_both! {
    a_published_file_is_found_by_its_path_with_all_its_ancestors;
    a_path_says_where_it_ends;
    a_listing_goes_page_by_page_in_the_order_of_bytes;
    a_file_beside_a_directory_of_its_name_is_refused_unless_allowed;
    a_directory_is_removed_only_when_empty;
    a_rename_moves_files_and_whole_directories;
    a_rename_never_makes_a_circle;
    a_rename_over_a_file_replaces_it_and_keeps_the_old_bytes;
    attributes_change_one_by_one;
    a_deleted_file_comes_back_until_its_window_closes;
    paths_of_many_bitfiles_come_in_one_statement;
    what_is_no_name_is_refused;
}

async fn names_in(site: &Site, directory: EntryId) -> Vec<String> {
    let page = site.catalog.list(directory, &everything()).await.expect("a listing");
    page.items.iter().map(Entry::stored_name).collect()
}

async fn a_published_file_is_found_by_its_path_with_all_its_ancestors(site: Site) {
    let a = site.directory("a").await;
    let b = site.directory_in(a, "b").await;
    let published = site.publish(b, "file", 10).await;

    let resolved = site.catalog.resolve(&path("/a/b/file")).await.expect("an answer");

    let ids: Vec<_> = resolved.ancestors.iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [ROOT, a, b]);
    let entry = resolved.entry().expect("the file");
    assert_eq!((entry.id, entry.name.as_str(), entry.mode), (published.entry, "file", 0o640));
    let file = entry.file().expect("a file");
    assert_eq!((file.bitfile, file.size_bytes, file.generation), (published.bitfile, 10, 1));
    assert_eq!(file.sums.md5, Some([3; 16]));
    assert_eq!(file.residency, Residency { on_disk: true, tape_copies: 0, tape_copies_wanted: 1 });
    assert_eq!(resolved.parent().expect("a parent").id, b);
}

async fn a_path_says_where_it_ends(site: Site) {
    let a = site.directory("a").await;
    site.publish(a, "file", 1).await;
    let leaf = async |text: &str| site.catalog.resolve(&path(text)).await.expect("an answer");

    let root = leaf("/").await;
    assert_eq!((root.entry().expect("the root").id, root.ancestors.len()), (ROOT, 0));
    assert!(leaf("/a/").await.entry().expect("a directory").is_directory());
    assert_eq!(leaf("/a/new").await.leaf, Leaf::Missing { name: "new".to_owned() });
    assert_eq!(leaf("/a/new").await.parent().expect("a parent").id, a);
    assert_eq!(leaf("/b/c/d").await.leaf, Leaf::MissingAncestor { name: "b".to_owned() });
    assert_eq!(leaf("/a/file/x").await.leaf, Leaf::BlockedByFile { name: "file".to_owned() });
    assert_eq!(leaf("/a/file/").await.leaf, Leaf::BlockedByFile { name: "file".to_owned() });
    let gone = leaf("/b/c").await;
    assert!(matches!(gone.entry(), Err(CatalogError::NotFound { name, .. }) if name == "b"));
    assert!(gone.parent().is_err());
}

async fn a_listing_goes_page_by_page_in_the_order_of_bytes(site: Site) {
    let a = site.directory("a").await;
    for name in ["b", "B", "a-", "é", "a", "z\u{10FFFF}", "\u{10FFFF}", "b c"] {
        site.publish(a, name, 1).await;
    }
    site.directory_in(a, "b0").await;
    let mut expected = vec!["b", "B", "a-", "é", "a", "z\u{10FFFF}", "\u{10FFFF}", "b c", "b0/"];
    expected.sort_unstable();
    assert_eq!(names_in(&site, a).await, expected);

    let mut paged = Vec::new();
    let mut listing = Listing { limit: 2, ..Listing::default() };
    loop {
        let page = site.catalog.list(a, &listing).await.expect("a page");
        paged.extend(page.items.iter().map(Entry::stored_name));
        let Some(next) = page.next else { break };
        listing.after = Some(next);
    }
    assert_eq!(paged, expected);

    let prefixed = Listing { prefix: "b".to_owned(), limit: 10, ..Listing::default() };
    let page = site.catalog.list(a, &prefixed).await.expect("a page");
    let names: Vec<_> = page.items.iter().map(Entry::stored_name).collect();
    assert_eq!(names, ["b", "b c", "b0/"]);
}

async fn a_file_beside_a_directory_of_its_name_is_refused_unless_allowed(site: Site) {
    site.directory("x").await;
    let mut file = site.file(ROOT, "x", 1).await;
    let refused = site.catalog.publish(file.clone()).await;
    assert!(matches!(refused, Err(CatalogError::IsADirectory { name }) if name == "x"));
    file.twins = Twins::Allow;
    let published = site.catalog.publish(file).await.expect("S3 may");

    let found = site.catalog.resolve(&path("/x")).await.expect("an answer");
    assert_eq!(found.entry().expect("the file").id, published.entry);
    assert_eq!(found.ancestors.len(), 1);
    assert!(site.catalog.resolve(&path("/x/")).await.expect("an answer").entry().expect("both").is_directory());

    site.publish(ROOT, "y", 1).await;
    let refused = site.catalog.make_directory(new_directory(ROOT, "y")).await;
    assert!(matches!(refused, Err(CatalogError::Exists { .. })));
    let allowed = NewDirectory { twins: Twins::Allow, ..new_directory(ROOT, "y") };
    site.catalog.make_directory(allowed).await.expect("S3 may");
}

async fn a_directory_is_removed_only_when_empty(site: Site) {
    let a = site.directory("a").await;
    let file = site.publish(a, "file", 1).await;
    assert!(matches!(site.catalog.remove_directory(a).await, Err(CatalogError::NotEmpty { name }) if name == "a"));
    assert!(matches!(site.catalog.remove_directory(file.entry).await, Err(CatalogError::NotADirectory { .. })));
    assert!(matches!(site.catalog.remove_directory(ROOT).await, Err(CatalogError::InUse { .. })));
    site.catalog.delete_file(file.entry, None).await.expect("deleted");
    site.catalog.remove_directory(a).await.expect("removed");
    assert!(matches!(site.catalog.remove_directory(a).await, Err(CatalogError::NotFound { .. })));
    assert!(site.catalog.entry(a).await.expect("an answer").is_none());
    let into_nothing = site.file(a, "late", 1).await;
    assert!(matches!(site.catalog.publish(into_nothing).await, Err(CatalogError::NotFound { .. })));
}

fn rename(entry: EntryId, to_parent: EntryId, to_name: &str) -> Rename {
    Rename { entry, to_parent, to_name: to_name.to_owned(), replace: true, twins: Twins::Refuse }
}

async fn a_rename_moves_files_and_whole_directories(site: Site) {
    let (a, b) = (site.directory("a").await, site.directory("b").await);
    let inner = site.directory_in(a, "inner").await;
    let file = site.publish(inner, "file", 1).await;
    assert_eq!(site.catalog.rename(rename(inner, b, "moved")).await.expect("moved"), None);
    let found = site.catalog.resolve(&path("/b/moved/file")).await.expect("an answer");
    assert_eq!(found.entry().expect("the file").id, file.entry);
    assert!(names_in(&site, a).await.is_empty());
    site.catalog.rename(rename(file.entry, a, "other")).await.expect("moved");
    assert_eq!(names_in(&site, a).await, ["other"]);
    site.catalog.rename(rename(file.entry, a, "other")).await.expect("to itself");
    let over_directory = site.catalog.rename(rename(file.entry, ROOT, "b")).await;
    assert!(matches!(over_directory, Err(CatalogError::IsADirectory { .. })));
    let over_file = site.catalog.rename(rename(b, a, "other")).await;
    assert!(matches!(over_file, Err(CatalogError::NotADirectory { .. })));
    let over_other = site.catalog.rename(rename(b, ROOT, "a")).await;
    assert!(matches!(over_other, Err(CatalogError::Exists { .. })));
}

async fn a_rename_never_makes_a_circle(site: Site) {
    let a = site.directory("a").await;
    let b = site.directory_in(a, "b").await;
    let c = site.directory_in(b, "c").await;
    for to in [a, b, c] {
        let refused = site.catalog.rename(rename(a, to, "again")).await;
        assert!(matches!(refused, Err(CatalogError::IntoItself { .. })), "into {to}: {refused:?}");
    }
    assert!(matches!(site.catalog.rename(rename(ROOT, a, "root")).await, Err(CatalogError::InUse { .. })));
    // Two moves at once, each legal alone, must not both happen.
    let other = site.another().await;
    for round in 0..20 {
        let x = site.directory(&format!("x{round}")).await;
        let y = site.directory(&format!("y{round}")).await;
        let (one, two) = tokio::join!(site.catalog.rename(rename(x, y, "x")), other.catalog.rename(rename(y, x, "y")));
        assert!(one.is_ok() != two.is_ok(), "{one:?} and {two:?}");
    }
}

async fn a_rename_over_a_file_replaces_it_and_keeps_the_old_bytes(site: Site) {
    let old = site.publish(ROOT, "old", 5).await;
    let new = site.publish(ROOT, "new", 7).await;
    let keep = Rename { replace: false, ..rename(new.entry, ROOT, "old") };
    assert!(matches!(site.catalog.rename(keep).await, Err(CatalogError::Exists { .. })));
    assert_eq!(site.catalog.rename(rename(new.entry, ROOT, "old")).await.expect("replaced"), Some(old.bitfile));
    assert_eq!(names_in(&site, ROOT).await, ["old"]);
    assert_eq!(site.usage("alice").await, (7, 1));
    let deleted = site.catalog.deleted_files(ROOT, 10).await.expect("the window");
    assert_eq!(deleted.len(), 1);
    assert_eq!((deleted[0].bitfile, deleted[0].name.as_str()), (old.bitfile, "old"));
}

async fn attributes_change_one_by_one(site: Site) {
    let file = site.publish(ROOT, "file", 100).await;
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let entry = site.catalog.set_attributes(file.entry, change).await.expect("chmod");
    assert_eq!((entry.mode, entry.owner.as_str()), (0o600, "alice"));
    let change = AttributeChange { owner: Some(account("bob")), ..AttributeChange::default() };
    site.catalog.set_attributes(file.entry, change).await.expect("chown");
    assert_eq!((site.usage("alice").await, site.usage("bob").await), ((0, 0), (100, 1)));
    site.catalog.set_quota(QuotaSubject::Account(account("carol")), Some(99), None).await.expect("a quota");
    let change = AttributeChange { owner: Some(account("carol")), ..AttributeChange::default() };
    let refused = site.catalog.set_attributes(file.entry, change).await;
    assert!(matches!(refused, Err(CatalogError::QuotaExceeded { limit: 99, would_be: 100, .. })), "{refused:?}");
    let change = AttributeChange {
        modified: Some(Timestamp::from_seconds(5)),
        acl: Some(Some("user:bob:r".to_owned())),
        ..AttributeChange::default()
    };
    site.catalog.set_attributes(file.entry, change).await.expect("utime");
    let entry = site.catalog.entry(file.entry).await.expect("an answer").expect("the file");
    assert_eq!((entry.modified, entry.acl.as_deref()), (Timestamp::from_seconds(5), Some("user:bob:r")));
    assert_eq!(entry.owner, account("bob"));
}

async fn a_deleted_file_comes_back_until_its_window_closes(site: Site) {
    let a = site.directory("a").await;
    let file = site.publish(a, "file", 10).await;
    let wrong = site.catalog.delete_file(file.entry, Some(wire::id::BitfileId(1))).await;
    assert!(matches!(wrong, Err(CatalogError::Changed { .. })));
    let deleted = site.catalog.delete_file(file.entry, Some(file.bitfile)).await.expect("deleted");
    assert_eq!(deleted.reclaim_after, site.catalog.now().after(HOUR));
    assert_eq!(site.usage("alice").await, (0, 0));
    assert!(site.claim(WorkKind::Migrate, "single").await.is_empty());

    let entry = site.catalog.undelete(file.bitfile, None).await.expect("back");
    assert_eq!((entry.name.as_str(), entry.parent, entry.mode), ("file", Some(a), 0o640));
    assert_eq!(site.usage("alice").await, (10, 1));
    site.pass(2 * MINUTE);
    assert_eq!(site.claim(WorkKind::Migrate, "single").await.len(), 1, "migration is queued again");

    site.catalog.delete_file(entry.id, None).await.expect("deleted");
    site.publish(a, "file", 1).await;
    assert!(matches!(site.catalog.undelete(file.bitfile, None).await, Err(CatalogError::Exists { .. })));
    let elsewhere = Some((ROOT, "saved".to_owned()));
    let entry = site.catalog.undelete(file.bitfile, elsewhere).await.expect("back elsewhere");
    site.catalog.delete_file(entry.id, None).await.expect("deleted");

    site.pass(2 * HOUR);
    let reclaimed = site.catalog.reclaim(100).await.expect("reclaimed");
    assert_eq!((reclaimed.bitfiles, reclaimed.files), (1, 1));
    assert!(matches!(site.catalog.undelete(file.bitfile, None).await, Err(CatalogError::NotFound { .. })));
    assert_eq!(site.claim(WorkKind::Reclaim, "d0").await.len(), 1);
}

async fn paths_of_many_bitfiles_come_in_one_statement(site: Site) {
    let a = site.directory("a").await;
    let b = site.directory_in(a, "b c").await;
    let one = site.publish(b, "deep", 1).await;
    let two = site.publish(ROOT, "shallow", 1).await;
    let gone = site.publish(a, "gone", 1).await;
    site.catalog.delete_file(gone.entry, None).await.expect("deleted");
    let paths = site.catalog.paths_of(&[two.bitfile, one.bitfile, gone.bitfile]).await.expect("paths");
    assert_eq!(paths, [(one.bitfile, "/a/b c/deep".to_owned()), (two.bitfile, "/shallow".to_owned())]);
}

async fn what_is_no_name_is_refused(site: Site) {
    let mut file = site.file(ROOT, "a/b", 1).await;
    assert!(matches!(site.catalog.publish(file.clone()).await, Err(CatalogError::InvalidName { .. })));
    file.name = "nul\0".to_owned();
    assert!(matches!(site.catalog.publish(file.clone()).await, Err(CatalogError::InvalidName { .. })));
    file.name = "x".repeat(2000);
    assert!(matches!(site.catalog.publish(file).await, Err(CatalogError::NameTooLong { .. })));
    let strange = site.catalog.make_directory(new_directory(ROOT, "a\"b'c\\d\n\u{1}{}[]")).await.expect("any text");
    assert_eq!(names_in(&site, ROOT).await, [strange.stored_name()]);
}
