//! Publishing, appending, cut uploads, quotas, pins, unknown files; on both databases.

use catalog::*;
use wire::extent::ByteRange;
use wire::id::*;

use crate::site::*;

on_both! {
    a_published_file_has_copy_segments_quota_and_migration_work;
    a_rewrite_keeps_the_name_and_moves_the_old_bytes_to_the_window;
    a_file_is_published_only_over_what_was_expected;
    segments_that_do_not_cover_the_file_are_refused;
    a_file_beyond_quota_leaves_no_trace;
    one_bad_file_among_many_fails_alone;
    an_append_shares_the_old_files_and_outlives_them;
    a_cut_upload_is_kept_joined_and_used_up;
    a_cut_upload_that_expires_is_reclaimed;
    a_cut_upload_that_was_given_up_leaves_its_place_to_the_next;
    an_empty_file_has_no_segments_and_is_migrated_like_any_other;
    pins_are_listed_extended_and_removed;
    a_mover_learns_which_files_nobody_knows;
    a_catalogue_reopened_has_everything_and_new_identifiers;
}

async fn a_published_file_has_copy_segments_quota_and_migration_work(site: Site) {
    let published = site.publish(ROOT, "file", 1000).await;
    let located = site.catalog.locate_one(published.bitfile).await.expect("the bitfile");
    let copy = located.copy(DISK_COPY).expect("a disk copy");
    assert_eq!(copy.segments.len(), 1);
    assert_eq!(copy.segments[0].range, ByteRange::new(0, 1000).expect("a range"));
    assert_eq!((copy.storage_class.as_str(), copy.expires), ("disk", None));
    assert_eq!((located.bitfile.entry, located.bitfile.size_bytes), (Some(published.entry), 1000));
    assert_eq!(site.usage("alice").await, (1000, 1));
    let users = site.catalog.usage(&QuotaSubject::Group(group("users"))).await.expect("usage");
    assert_eq!((users.bytes, users.files), (1000, 1));
    let disk = site.catalog.volume(&volume("d0")).await.expect("the volume");
    assert_eq!((disk.live_bytes, disk.live_segments), (1000, 1));

    assert!(site.claim(WorkKind::Migrate, "single").await.is_empty(), "it is too young");
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "single").await;
    assert_eq!(work.len(), 1);
    assert_eq!((&work[0].subject, work[0].bytes), (&Subject::Bitfile(published.bitfile), 1000));
}

async fn a_rewrite_keeps_the_name_and_moves_the_old_bytes_to_the_window(site: Site) {
    let old = site.publish(ROOT, "file", 10).await;
    let mut file = site.file(ROOT, "file", 30).await;
    (file.owner, file.mode) = (account("bob"), 0o777);
    let new = site.catalog.publish(file.clone()).await.expect("rewritten");
    assert_eq!((new.entry, new.replaced, new.generation), (old.entry, Some(old.bitfile), 2));
    let entry = site.catalog.entry(new.entry).await.expect("an answer").expect("the file");
    assert_eq!((entry.owner.as_str(), entry.mode), ("alice", 0o640), "the name keeps its owner and mode");
    assert_eq!((site.usage("alice").await, site.usage("bob").await), ((30, 1), (0, 0)));
    assert!(site.catalog.locate_one(old.bitfile).await.expect("kept").bitfile.entry.is_none());

    file.replace_attributes = true;
    let third = site.catalog.publish(file).await.expect("rewritten");
    let entry = site.catalog.entry(third.entry).await.expect("an answer").expect("the file");
    assert_eq!((entry.owner.as_str(), entry.mode), ("bob", 0o777));
    assert_eq!((site.usage("alice").await, site.usage("bob").await), ((0, 0), (30, 1)));
    assert_eq!(site.catalog.deleted_files(ROOT, 10).await.expect("the window").len(), 2);
    site.pass(2 * MINUTE);
    assert_eq!(site.claim(WorkKind::Migrate, "single").await.len(), 1, "only what has a name is migrated");
}

async fn a_file_is_published_only_over_what_was_expected(site: Site) {
    let mut file = site.file(ROOT, "file", 1).await;
    file.expected = Expected::Exactly(BitfileId(99));
    assert!(matches!(site.catalog.publish(file.clone()).await, Err(CatalogError::Changed { .. })));
    file.expected = Expected::Nothing;
    let first = site.catalog.publish(file).await.expect("nothing was there");
    let mut again = site.file(ROOT, "file", 2).await;
    again.expected = Expected::Nothing;
    assert!(matches!(site.catalog.publish(again.clone()).await, Err(CatalogError::Exists { .. })));
    again.expected = Expected::Exactly(first.bitfile);
    site.catalog.publish(again).await.expect("what was expected");
    let mut unknown = site.file(ROOT, "other", 1).await;
    unknown.cos = cos("nowhere");
    let refused = site.catalog.publish(unknown).await;
    assert!(matches!(refused, Err(CatalogError::NotFound { what: "class of service", .. })));
    let below_file = site.file(first.entry, "x", 1).await;
    assert!(matches!(site.catalog.publish(below_file).await, Err(CatalogError::NotADirectory { .. })));
}

async fn segments_that_do_not_cover_the_file_are_refused(site: Site) {
    let cases: [&[(u64, u64)]; 5] = [&[], &[(0, 9)], &[(1, 9)], &[(0, 5), (4, 6)], &[(0, 11)]];
    for case in cases {
        let mut file = site.file(ROOT, "file", 10).await;
        file.segments.clear();
        for &(offset, length) in case {
            file.segments.push(site.segment("d0", offset, length).await);
        }
        let refused = site.catalog.publish(file).await;
        assert!(matches!(refused, Err(CatalogError::Inconsistent { .. })), "{case:?}: {refused:?}");
    }
    assert_eq!(site.usage("alice").await, (0, 0));
    let mut file = site.file(ROOT, "file", 10).await;
    file.segments = vec![site.segment("d1", 6, 4).await, site.segment("d0", 0, 6).await];
    let published = site.catalog.publish(file).await.expect("in any order");
    let located = site.catalog.locate_one(published.bitfile).await.expect("the bitfile");
    let labels: Vec<_> = located.copies[0].segments.iter().map(|one| one.extent.volume.as_str()).collect();
    assert_eq!(labels, ["d0", "d1"]);
}

async fn a_file_beyond_quota_leaves_no_trace(site: Site) {
    let alice = QuotaSubject::Account(account("alice"));
    site.catalog.set_quota(alice, Some(100), None).await.expect("a quota");
    site.publish(ROOT, "one", 60).await;
    let file = site.file(ROOT, "two", 41).await;
    let refused = site.catalog.publish(file).await;
    let Err(CatalogError::QuotaExceeded { subject, measure, limit, would_be }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((subject.as_str(), measure, limit, would_be), ("account alice", "bytes", 100, 101));
    site.publish(ROOT, "two", 40).await;
    // A rewrite that makes the file smaller is fine, even at the limit.
    site.publish(ROOT, "one", 10).await;
    assert_eq!(site.usage("alice").await, (50, 2));
    site.catalog.set_quota(QuotaSubject::Group(group("users")), None, Some(2)).await.expect("a quota");
    let file = site.file(ROOT, "three", 1).await;
    let refused = site.catalog.publish(file).await;
    assert!(matches!(refused, Err(CatalogError::QuotaExceeded { measure: "files", limit: 2, would_be: 3, .. })));
    assert_eq!(site.catalog.list(ROOT, &everything()).await.expect("a listing").items.len(), 2);
}

async fn one_bad_file_among_many_fails_alone(site: Site) {
    let mut files = Vec::new();
    for number in 0..60 {
        let mut file = site.file(ROOT, &format!("file{number}"), 10).await;
        if number % 3 == 0 {
            file.parent = EntryId(555);
        }
        files.push(file);
    }
    // The same name many times: each is a rewrite of the one before.
    for _ in 0..10 {
        files.push(site.file(ROOT, "same", 10).await);
    }
    let calls = files.into_iter().map(|file| {
        let catalog = site.catalog.clone();
        tokio::spawn(async move { (file.parent, catalog.publish(file).await) })
    });
    let mut generations = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        let (parent, outcome) = call.await.expect("no panic");
        assert_eq!(outcome.is_ok(), parent == ROOT);
        generations.extend(outcome.ok().map(|published| published.generation));
    }
    assert_eq!(generations.iter().max(), Some(&10));
    assert_eq!(site.usage("alice").await, (41 * 10, 41));
}

async fn an_append_shares_the_old_files_and_outlives_them(site: Site) {
    let old = site.publish(ROOT, "log", 100).await;
    let mut file = site.file(ROOT, "log", 130).await;
    file.base = Base::Append(old.bitfile);
    file.expected = Expected::Exactly(old.bitfile);
    file.segments = vec![site.segment("d0", 100, 30).await];
    let new = site.catalog.publish(file.clone()).await.expect("appended");
    let located = site.catalog.locate_one(new.bitfile).await.expect("the bitfile");
    assert_eq!(located.copies[0].segments.len(), 2);
    assert_eq!(site.usage("alice").await, (130, 1));
    assert_eq!(site.catalog.volume(&volume("d0")).await.expect("a volume").live_bytes, 230);

    site.pass(2 * HOUR);
    let reclaimed = site.catalog.reclaim(100).await.expect("reclaimed");
    assert_eq!((reclaimed.bitfiles, reclaimed.files), (1, 0), "the new bitfile lies in the old one's file");
    assert_eq!(site.catalog.volume(&volume("d0")).await.expect("a volume").live_bytes, 130);
    site.catalog.delete_file(new.entry, None).await.expect("deleted");
    site.pass(2 * HOUR);
    assert_eq!(site.catalog.reclaim(100).await.expect("reclaimed").files, 2);

    let again = site.catalog.publish(file).await;
    assert!(matches!(again, Err(CatalogError::Changed { .. })));
    let mut lost = site.file(ROOT, "other", 1).await;
    lost.base = Base::Append(old.bitfile);
    assert!(matches!(site.catalog.publish(lost).await, Err(CatalogError::NotFound { .. })));
}

fn partial(segments: Vec<Segment>, expires: Timestamp) -> NewPartial {
    NewPartial {
        parent: ROOT,
        name: "big".to_owned(),
        account: account("alice"),
        cos: cos("single"),
        expected_size_bytes: Some(100),
        segments,
        expires,
    }
}

async fn a_cut_upload_is_kept_joined_and_used_up(site: Site) {
    let expires = site.catalog.now().after(HOUR);
    let first = site.catalog.save_partial(partial(vec![site.segment("d0", 0, 40).await], expires)).await.expect("kept");
    let overlapping = partial(vec![site.segment("d0", 39, 10).await], expires);
    assert!(matches!(site.catalog.save_partial(overlapping).await, Err(CatalogError::Inconsistent { .. })));
    let more = partial(vec![site.segment("d1", 60, 40).await], expires);
    let second = site.catalog.save_partial(more).await.expect("joined");
    assert_eq!((second.id, second.segments.len()), (first.id, 2));
    assert!(site.catalog.list(ROOT, &everything()).await.expect("a listing").items.is_empty(), "it has no name");
    let found = site.catalog.find_partial(ROOT, "big", &account("alice")).await.expect("an answer");
    assert_eq!(found, Some(second.clone()));
    assert_eq!(site.catalog.find_partial(ROOT, "big", &account("bob")).await.expect("an answer"), None);
    assert_eq!(site.catalog.partials(None, 10).await.expect("a list"), std::slice::from_ref(&second));

    let mut file = site.file(ROOT, "big", 100).await;
    file.base = Base::Partial(second.id);
    file.segments = vec![];
    assert!(matches!(site.catalog.publish(file.clone()).await, Err(CatalogError::Inconsistent { .. })));
    file.segments = vec![site.segment("d0", 40, 20).await];
    let published = site.catalog.publish(file.clone()).await.expect("whole");
    assert_eq!(published.bitfile, second.id);
    let located = site.catalog.locate_one(published.bitfile).await.expect("the bitfile");
    assert_eq!(located.copies[0].segments.len(), 3);
    assert_eq!(site.catalog.find_partial(ROOT, "big", &account("alice")).await.expect("an answer"), None);
    assert!(matches!(site.catalog.publish(file).await, Err(CatalogError::NotFound { .. })), "it is used up");
}

async fn a_cut_upload_that_expires_is_reclaimed(site: Site) {
    let expires = site.catalog.now().after(HOUR);
    let kept = site.catalog.save_partial(partial(vec![site.segment("d0", 0, 40).await], expires)).await.expect("kept");
    assert_eq!(site.catalog.reclaim(10).await.expect("nothing due").partials, 0);
    site.catalog.discard_partial(kept.id).await.expect("given up");
    assert_eq!(site.catalog.find_partial(ROOT, "big", &account("alice")).await.expect("an answer"), None);
    let reclaimed = site.catalog.reclaim(10).await.expect("reclaimed");
    assert_eq!((reclaimed.partials, reclaimed.files, reclaimed.more), (1, 1, false));
    assert_eq!(site.catalog.volume(&volume("d0")).await.expect("a volume").live_segments, 0);
    assert!(matches!(site.catalog.discard_partial(kept.id).await, Err(CatalogError::NotFound { .. })));
}

async fn a_cut_upload_that_was_given_up_leaves_its_place_to_the_next(site: Site) {
    let later = site.catalog.now().after(HOUR);
    let old = site.catalog.save_partial(partial(vec![site.segment("d0", 0, 40).await], later)).await.expect("kept");
    site.catalog.discard_partial(old.id).await.expect("given up");
    let new = site.catalog.save_partial(partial(vec![site.segment("d0", 0, 30).await], later)).await.expect("kept");
    assert_ne!(new.id, old.id);
    assert_eq!(new.segments.len(), 1, "nothing of the old one is in it");
    assert_eq!(site.catalog.reclaim(10).await.expect("reclaimed").partials, 1);
    let found = site.catalog.find_partial(ROOT, "big", &account("alice")).await.expect("an answer");
    assert_eq!(found, Some(new));
}

async fn an_empty_file_has_no_segments_and_is_migrated_like_any_other(site: Site) {
    let published = site.publish(ROOT, "empty", 0).await;
    let recorded = site.migrate("single", 1, "T1").await;
    assert_eq!(recorded.complete, [published.bitfile]);
    let located = site.catalog.locate_one(published.bitfile).await.expect("the bitfile");
    assert!(located.copy(1).is_some());
}

async fn pins_are_listed_extended_and_removed(site: Site) {
    let one = site.publish(ROOT, "one", 1).await.bitfile;
    let two = site.publish(ROOT, "two", 1).await.bitfile;
    let soon = site.catalog.now().after(MINUTE);
    site.catalog.pin(vec![one, two, BitfileId(9)], "account/alice", soon).await.expect("pinned");
    site.catalog.pin(vec![one], "transfer/1", soon).await.expect("pinned");
    let first = site.catalog.pins(None, None, 2).await.expect("a page");
    let holders: Vec<_> = first.items.iter().map(|pin| (pin.bitfile, pin.holder.as_str())).collect();
    assert_eq!(holders, [(one, "account/alice"), (one, "transfer/1")]);
    let second = site.catalog.pins(None, first.next.as_deref(), 2).await.expect("a page");
    assert_eq!((second.items.len(), second.items[0].bitfile, &second.next), (1, two, &None));
    let later = soon.after(HOUR);
    site.catalog.pin(vec![one], "transfer/1", later).await.expect("extended");
    site.catalog.pin(vec![one], "transfer/1", soon).await.expect("not shortened");
    site.catalog.unpin(vec![one], "account/alice").await.expect("unpinned");
    let left = site.catalog.pins(Some(one), None, 10).await.expect("a page").items;
    assert_eq!(left, [Pin { bitfile: one, holder: "transfer/1".to_owned(), until: later }]);
    site.pass(2 * HOUR);
    assert!(site.catalog.pins(None, None, 10).await.expect("a page").items.is_empty());
}

async fn a_mover_learns_which_files_nobody_knows(site: Site) {
    let published = site.publish(ROOT, "file", 10).await;
    let located = site.catalog.locate_one(published.bitfile).await.expect("the bitfile");
    let wire::extent::Place::Disk { file: known, .. } = located.copies[0].segments[0].extent.place else {
        panic!("not on disk");
    };
    let expires = site.catalog.now().after(HOUR);
    let cut = site.segment("d0", 0, 40).await;
    let wire::extent::Place::Disk { file: kept, .. } = cut.extent.place else { panic!("not on disk") };
    site.catalog.save_partial(partial(vec![cut], expires)).await.expect("kept");
    let ask = |label: &str, file| VolumeFile { volume: volume(label), file };
    let files = [ask("d0", known), ask("d1", known), ask("d0", FileId(12)), ask("d0", kept)];
    let unknown = site.catalog.unknown_files(&files).await.expect("an answer");
    assert_eq!(unknown, [ask("d0", FileId(12)), ask("d1", known)]);
    site.catalog.delete_file(published.entry, None).await.expect("deleted");
    site.pass(2 * HOUR);
    site.catalog.reclaim(10).await.expect("reclaimed");
    assert!(site.catalog.unknown_files(&files[..1]).await.expect("an answer").is_empty(), "it is being reclaimed");
    let work = site.claim(WorkKind::Reclaim, "d0").await;
    site.catalog.finish(work.iter().map(WorkItem::ticket).collect()).await.expect("finished");
    assert_eq!(site.catalog.unknown_files(&files[..1]).await.expect("an answer"), files[..1]);
}

async fn a_catalogue_reopened_has_everything_and_new_identifiers(site: Site) {
    let published = site.publish(ROOT, "file", 10).await;
    let before = site.catalog.next_id().await.expect("an identifier");
    site.catalog.close().await;
    assert!(matches!(site.catalog.ping().await, Err(CatalogError::Unavailable { .. })));
    let closed = site.catalog.make_directory(new_directory(ROOT, "late")).await;
    assert!(matches!(closed, Err(CatalogError::Unavailable { .. })));
    let again = site.another().await;
    again.catalog.ping().await.expect("it answers");
    assert!(again.catalog.next_id().await.expect("an identifier") > before);
    let found = again.catalog.resolve(&path("/file")).await.expect("an answer");
    assert_eq!(found.entry().expect("the file").id, published.entry);
}
