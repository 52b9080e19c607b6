//! What buckets tell of: with the change or not at all, in the order of commits, and not for ever; on both databases.

use std::time::Duration;

use crate::objects::{bucket, delete, object};
use crate::site::*;
use catalog::*;
use wire::id::{EntryId, StorageClassName};

on_both! {
    nothing_is_told_where_nobody_wants_to_hear;
    what_is_written_and_removed_is_told_by_the_rules;
    what_is_refused_is_not_told;
    a_bucket_that_keeps_versions_tells_of_markers_and_by_whom;
    a_transition_is_told_with_the_class_that_it_gives;
    what_other_doors_do_in_a_bucket_is_told;
    tapes_and_disks_are_told_of;
    numbers_grow_over_gateways_and_what_is_delivered_goes;
    what_is_too_old_or_too_much_is_dropped_and_counted;
}

fn rule(id: &str, destination: &str, events: &[&str]) -> EventRule {
    EventRule {
        id: id.to_owned(),
        destination: destination.to_owned(),
        events: events.iter().map(|&event| event.to_owned()).collect(),
        ..EventRule::default()
    }
}

const EVERYTHING: &[&str] = &[
    "s3:ObjectCreated:*",
    "s3:ObjectRemoved:*",
    "s3:ObjectRestore:*",
    "s3:LifecycleTransition",
    "s3:LifecycleExpiration:*",
];

/// A bucket all of whose events go to `hook`; the test event is taken away.
async fn telling(site: &Site, name: &str) -> EntryId {
    let entry = bucket(site, name).await;
    set(site, entry, vec![rule("all", "hook", EVERYTHING)]).await;
    entry
}

async fn set(site: &Site, bucket: EntryId, rules: Vec<EventRule>) {
    let destinations: Vec<_> = rules.iter().map(|rule| rule.destination.clone()).collect();
    site.catalog.set_bucket_events(bucket, rules, Cause::default()).await.expect("set");
    for destination in destinations {
        take(site, &destination).await;
    }
}

/// What waits for a destination, which is then forgotten.
async fn take(site: &Site, destination: &str) -> Vec<Event> {
    let queued = site.catalog.events(destination, 1000).await.expect("events");
    if let Some(last) = queued.last() {
        site.catalog.forget_events(destination, last.number).await.expect("forgotten");
    }
    queued.into_iter().map(|queued| queued.event).collect()
}

/// The same, as kinds and keys.
async fn told(site: &Site) -> Vec<(&'static str, String)> {
    take(site, "hook").await.into_iter().map(|event| (event.what.kind.name(), event.what.key)).collect()
}

fn one(kind: EventKind, key: &str) -> Vec<(&'static str, String)> {
    vec![(kind.name(), key.to_owned())]
}

async fn put(site: &Site, bucket: EntryId, key: &str) -> Object {
    let new = object(site, bucket, key, "tag").await;
    site.catalog.put_object(new).await.unwrap_or_else(|error| panic!("{key}: {error}"))
}

async fn nothing_is_told_where_nobody_wants_to_hear(site: Site) {
    let silent = bucket(&site, "silent").await;
    put(&site, silent, "a").await;
    let loud = telling(&site, "loud").await;
    put(&site, silent, "b").await;
    site.publish(silent, "c", 5).await;
    site.publish(ROOT, "d", 5).await;
    assert!(told(&site).await.is_empty());
    site.catalog.set_bucket_events(loud, Vec::new(), Cause::default()).await.expect("set");
    put(&site, loud, "e").await;
    assert!(site.catalog.event_destinations().await.expect("destinations").is_empty());
    let gone = site.catalog.set_bucket_events(EntryId(999_999), Vec::new(), Cause::default()).await;
    assert!(matches!(gone, Err(CatalogError::NotFound { .. })));
}

async fn what_is_written_and_removed_is_told_by_the_rules(site: Site) {
    let entry = bucket(&site, "data").await;
    let mut made = rule("made", "hook", &["s3:ObjectCreated:*"]);
    made.prefix = Some("in/".to_owned());
    let rules = vec![made, rule("gone", "log", &["s3:ObjectRemoved:Delete"])];
    let cause = Cause { request: Some("R1".to_owned()), ..Cause::account(account("bob")) };
    site.catalog.set_bucket_events(entry, rules.clone(), cause.clone()).await.expect("set");
    let found = site.catalog.bucket("data").await.expect("an answer").expect("the bucket");
    assert_eq!(found.events, rules);
    for destination in ["hook", "log"] {
        let test = take(&site, destination).await;
        assert_eq!((test.len(), test[0].what.kind, test[0].bucket.as_str()), (1, EventKind::Test, "data"));
        assert_eq!(test[0].cause, cause);
    }

    let new = object(&site, entry, "in/a", "tag").await;
    let by_form = Cause { way: Way::Form, address: Some("192.0.2.1".to_owned()), ..cause };
    site.catalog.put_object(NewObject { cause: by_form.clone(), ..new }).await.expect("written");
    put(&site, entry, "out/b").await;
    let events = take(&site, "hook").await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.what.kind, event.what.key.as_str()), (EventKind::CreatedPost, "in/a"));
    assert_eq!((event.what.size_bytes, event.what.etag.as_deref()), (Some(10), Some("tag")));
    assert_eq!((event.what.version, event.rule.as_str(), event.at), (None, "made", site.catalog.now()));
    assert_eq!((event.bucket.as_str(), &event.bucket_owner, &event.cause), ("data", &account("alice"), &by_form));

    site.catalog.delete_object(delete(entry, "in/a", None)).await.expect("removed");
    site.catalog.delete_object(delete(entry, "in/a", None)).await.expect("removed already");
    let events = take(&site, "log").await;
    let [event] = events.as_slice() else { panic!("only what was there: {events:?}") };
    assert_eq!((event.what.kind, event.what.key.as_str()), (EventKind::Removed, "in/a"));
    assert!(take(&site, "hook").await.is_empty());
}

async fn what_is_refused_is_not_told(site: Site) {
    let entry = telling(&site, "data").await;
    put(&site, entry, "k").await;
    told(&site).await;
    let precondition = Precondition { matches_none: Some(Tags::Any), ..Precondition::default() };
    // Refused ones and good ones share transactions.
    let writes = (0..40).map(|number| {
        let (site, precondition) = (site.clone(), precondition.clone());
        async move {
            if number % 2 == 0 {
                let new = NewObject { precondition, ..object(&site, entry, "k", "tag").await };
                assert!(site.catalog.put_object(new).await.is_err(), "it is there");
            } else {
                put(&site, entry, &format!("n{number}")).await;
            }
        }
    });
    futures::future::join_all(writes).await;
    let file = site.catalog.resolve(&path("/data/k")).await.expect("an answer").entry().expect("there").clone();
    let other = site.publish(ROOT, "other", 1).await.bitfile;
    assert!(site.catalog.delete_file(file.id, Some(other)).await.is_err(), "it holds another bitfile");
    let mut keys: Vec<_> = told(&site).await.into_iter().map(|(_, key)| key).collect();
    keys.sort();
    let mut wanted: Vec<_> = (0..40).filter(|number| number % 2 == 1).map(|number| format!("n{number}")).collect();
    wanted.sort();
    assert_eq!(keys, wanted);
}

async fn a_bucket_that_keeps_versions_tells_of_markers_and_by_whom(site: Site) {
    let entry = telling(&site, "data").await;
    site.catalog.set_versioning(entry, Versioning::Enabled, false).await.expect("set");
    let first = put(&site, entry, "k").await;
    let second = put(&site, entry, "k").await;
    let hidden = site.catalog.delete_object(delete(entry, "k", None)).await.expect("hidden");
    let first_gone = delete(entry, "k", Some(first.version));
    let first_gone = DeleteObject { only_hidden: true, cause: Cause::lifecycle(), ..first_gone };
    site.catalog.delete_object(first_gone).await.expect("removed");
    site.catalog.delete_object(delete(entry, "k", hidden.version)).await.expect("brought back");
    let by_rule = DeleteObject { cause: Cause::lifecycle(), ..delete(entry, "k", None) };
    let again = site.catalog.delete_object(by_rule).await.expect("hidden");
    let missing = delete(entry, "k", Some(first.version));
    site.catalog.delete_object(missing).await.expect("removed already");
    let events = take(&site, "hook").await;
    let told: Vec<_> = events.iter().map(|event| (event.what.kind, event.what.version)).collect();
    let wanted = [
        (EventKind::CreatedPut, Some(first.version)),
        (EventKind::CreatedPut, Some(second.version)),
        (EventKind::Hidden, hidden.version),
        (EventKind::Expired, Some(first.version)),
        (EventKind::Removed, hidden.version),
        (EventKind::ExpiredHidden, again.version),
    ];
    assert_eq!(told, wanted);
}

async fn a_transition_is_told_with_the_class_that_it_gives(site: Site) {
    let entry = telling(&site, "data").await;
    let seen = put(&site, entry, "k").await;
    told(&site).await;
    let change =
        Reclass { seen, cos: cos("dual"), storage_class: "DEEP_ARCHIVE".to_owned(), attributes: "{}".to_owned() };
    site.catalog.reclass(change.clone()).await.expect("changed");
    let events = take(&site, "hook").await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.what.kind, event.what.key.as_str()), (EventKind::Moved, "k"));
    assert_eq!((event.what.moved_to.as_deref(), event.what.size_bytes), (Some("DEEP_ARCHIVE"), Some(10)));
    assert_eq!((event.what.etag.as_deref(), &event.cause), (Some("tag"), &Cause::lifecycle()));
    site.catalog.delete_object(delete(entry, "k", None)).await.expect("removed");
    told(&site).await;
    assert!(site.catalog.reclass(change).await.is_err(), "it is gone");
    assert!(told(&site).await.is_empty());
}

async fn what_other_doors_do_in_a_bucket_is_told(site: Site) {
    let entry = telling(&site, "data").await;
    let inner = site.directory_in(entry, "dir").await;
    let file = site.publish(inner, "f", 100).await;
    let events = take(&site, "hook").await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.what.kind, event.what.key.as_str()), (EventKind::CreatedPut, "dir/f"));
    assert_eq!((event.what.size_bytes, event.what.etag.as_deref()), (Some(100), Some(hex(3).as_str())));
    assert_eq!(event.cause.account, Some(account("alice")));

    site.publish(inner, "f", 50).await;
    assert_eq!(told(&site).await, one(EventKind::CreatedPut, "dir/f"));
    let rename =
        Rename { entry: file.entry, to_parent: entry, to_name: "g".to_owned(), replace: true, twins: Twins::Refuse };
    site.catalog.rename(rename.clone()).await.expect("moved");
    let moved = [one(EventKind::Removed, "dir/f"), one(EventKind::CreatedCopy, "g")].concat();
    assert_eq!(told(&site).await, moved);
    site.catalog.rename(Rename { to_parent: ROOT, ..rename.clone() }).await.expect("moved out");
    assert_eq!(told(&site).await, one(EventKind::Removed, "g"));
    site.catalog.rename(rename).await.expect("moved in");
    assert_eq!(told(&site).await, one(EventKind::CreatedCopy, "g"));

    let deleted = site.catalog.delete_file(file.entry, None).await.expect("deleted");
    assert_eq!(told(&site).await, one(EventKind::Removed, "g"));
    site.catalog.undelete(deleted.bitfile, None).await.expect("brought back");
    assert_eq!(told(&site).await, one(EventKind::CreatedPut, "g"));
    site.catalog.set_versioning(entry, Versioning::Enabled, false).await.expect("set");
    let again = site.catalog.resolve(&path("/data/g")).await.expect("an answer").entry().expect("there").id;
    site.catalog.delete_file(again, None).await.expect("hidden");
    assert_eq!(told(&site).await, one(EventKind::Hidden, "g"));
}

fn hex(byte: u8) -> String {
    format!("{byte:02x}").repeat(16)
}

async fn tapes_and_disks_are_told_of(site: Site) {
    let entry = telling(&site, "data").await;
    site.catalog.set_versioning(entry, Versioning::Enabled, false).await.expect("set");
    let first = put(&site, entry, "dir/k").await;
    let second = put(&site, entry, "dir/k").await;
    site.migrate("single", 1, "T1").await;
    let bitfiles = [&first, &second].map(|object| object.data.as_ref().expect("bytes").file.bitfile);
    site.catalog.purge(bitfiles.to_vec(), Duration::ZERO).await.expect("purged");
    let kinds: Vec<_> = told(&site).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["s3:ObjectCreated:Put"; 2], "a copy that was not brought back goes in silence");

    // The current version, and one that has no name in the tree.
    let cause = Cause { request: Some("R2".to_owned()), ..Cause::account(account("bob")) };
    for (bitfile, version) in bitfiles.into_iter().zip([first.version, second.version]) {
        let request = NewRequest {
            bitfile,
            account: account("bob"),
            deadline: site.catalog.now().after(HOUR),
            lifetime: 2 * HOUR,
            priority: 0,
            cause: Some(cause.clone()),
        };
        site.catalog.request_stage(vec![request.clone(), request]).await.expect("asked twice");
        let events = take(&site, "hook").await;
        let [asked] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((asked.what.kind, asked.what.key.as_str()), (EventKind::RestoreAsked, "dir/k"));
        assert_eq!((asked.what.version, &asked.cause), (Some(version), &cause));

        let work = site.claim(WorkKind::Stage, "T1").await.remove(0);
        let staged = Staged {
            ticket: work.ticket(),
            bitfile,
            storage_class: StorageClassName::new("disk").expect("a name"),
            segments: vec![site.segment("d1", 0, 10).await],
        };
        site.catalog.record_stage(vec![staged], None).await.expect("recorded");
        let events = take(&site, "hook").await;
        let [restored] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((restored.what.kind, restored.what.version), (EventKind::Restored, Some(version)));
        assert_eq!(restored.what.expires, Some(site.catalog.now().after(2 * HOUR)));
        assert_eq!((restored.what.size_bytes, restored.what.cos.clone()), (Some(10), Some(cos("single"))));
    }
    site.pass(3 * HOUR);
    site.catalog.purge(bitfiles.to_vec(), Duration::ZERO).await.expect("purged");
    let kinds: Vec<_> = told(&site).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["s3:ObjectRestore:Delete"; 2]);
}

async fn numbers_grow_over_gateways_and_what_is_delivered_goes(site: Site) {
    let entry = telling(&site, "data").await;
    let other = site.another().await;
    let mut written = site.catalog.events_written();
    written.mark_unchanged();
    let both = [site.clone(), other.clone()];
    let writers = both.iter().enumerate().map(|(number, site)| async move {
        for count in 0..20 {
            put(site, entry, &format!("{number}-{count:02}")).await;
        }
    });
    futures::future::join_all(writers).await;
    assert!(written.has_changed().expect("open"), "whoever delivers is woken");

    let page = other.catalog.events("hook", 25).await.expect("events");
    assert_eq!((page.len(), other.catalog.count_events("hook", 30).await.expect("a count")), (25, 30));
    other.catalog.forget_events("hook", page[24].number).await.expect("forgotten");
    let rest = site.catalog.events("hook", 25).await.expect("events");
    assert_eq!(rest.len(), 15);
    let all: Vec<_> = page.iter().chain(&rest).collect();
    assert!(all.windows(2).all(|pair| pair[0].number < pair[1].number));
    for writer in ["0-", "1-"] {
        let keys: Vec<_> =
            all.iter().map(|queued| &queued.event.what.key).filter(|key| key.starts_with(writer)).collect();
        assert!(keys.len() == 20 && keys.is_sorted(), "in the order of commits: {keys:?}");
    }
}

async fn what_is_too_old_or_too_much_is_dropped_and_counted(site: Site) {
    let entry = bucket(&site, "data").await;
    set(&site, entry, vec![rule("a", "hook", EVERYTHING), rule("b", "log", EVERYTHING)]).await;
    for number in 0..5 {
        put(&site, entry, &format!("old{number}")).await;
    }
    site.pass(HOUR);
    for number in 0..10 {
        put(&site, entry, &format!("new{number}")).await;
    }
    assert_eq!(site.catalog.event_destinations().await.expect("destinations"), ["hook", "log"]);
    let before = site.catalog.now().before(MINUTE);
    let dropped = site.catalog.trim_events("hook", before, 100).await.expect("trimmed");
    assert_eq!(dropped, EventsDropped { old: 5, many: 0 });
    let dropped = site.catalog.trim_events("hook", before, 4).await.expect("trimmed");
    assert_eq!(dropped, EventsDropped { old: 0, many: 6 });
    let left: Vec<_> = take(&site, "hook").await.into_iter().map(|event| event.what.key).collect();
    assert_eq!(left, ["new6", "new7", "new8", "new9"], "the oldest go");
    assert_eq!(site.catalog.trim_events("hook", before, 4).await.expect("nothing"), EventsDropped::default());
    assert_eq!(site.catalog.count_events("log", 100).await.expect("a count"), 15, "another's are left alone");
    site.pass(HOUR);
    let dropped = site.catalog.trim_events("log", site.catalog.now(), 4).await.expect("trimmed");
    assert_eq!(dropped, EventsDropped { old: 15, many: 0 });
}
