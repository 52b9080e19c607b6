//! Stage requests for many files under one number, and giving copies back; on both databases.

use std::time::Duration;

use catalog::*;
use wire::id::{BitfileId, StorageClassName};

use crate::site::*;

on_both! {
    each_file_of_a_bulk_request_is_as_far_as_its_stage_request;
    a_dropped_bulk_request_cancels_what_is_open_and_nothing_else;
    a_copy_stays_as_long_as_any_request_wants_it;
    what_somebody_else_asked_for_cannot_be_given_back;
    open_bulk_requests_are_counted_until_their_last_file_ends;
    a_bulk_request_is_forgotten_with_its_requests;
}

fn wish(site: &Site, bitfile: BitfileId, owner: &str, lifetime: Duration) -> NewRequest {
    let deadline = site.catalog.now().after(HOUR);
    NewRequest { bitfile, account: account(owner), deadline, lifetime, priority: 0, cause: None }
}

fn bulk(id: &str, owner: &str, files: Vec<(&str, std::result::Result<NewRequest, String>)>) -> NewBulk {
    let files = files.into_iter().map(|(path, wish)| NewBulkFile { path: path.to_owned(), wish });
    NewBulk { id: id.to_owned(), account: account(owner), files: files.collect() }
}

async fn look(site: &Site, id: &str) -> Bulk {
    site.catalog.bulk(id).await.expect("an answer").expect("a bulk request")
}

async fn stage(site: &Site, bytes: u64) {
    let work = site.claim(WorkKind::Stage, "T1").await;
    for item in work {
        let Subject::Bitfile(bitfile) = item.subject else { panic!("not a bitfile") };
        let staged = Staged {
            ticket: item.ticket(),
            bitfile,
            storage_class: StorageClassName::new("disk").expect("a name"),
            segments: vec![site.segment("d1", 0, bytes).await],
        };
        site.catalog.record_stage(vec![staged], None).await.expect("recorded");
    }
}

async fn each_file_of_a_bulk_request_is_as_far_as_its_stage_request(site: Site) {
    let (on_tape, on_disk) = (site.on_tape_only(ROOT, "tape", 100).await, site.publish(ROOT, "disk", 100).await);
    let new = bulk(
        "one",
        "alice",
        vec![
            ("//tape", Ok(wish(&site, on_tape.bitfile, "alice", HOUR))),
            ("/none", Err("there is no such file".to_owned())),
            ("/disk", Ok(wish(&site, on_disk.bitfile, "alice", HOUR))),
        ],
    );
    let made = site.catalog.put_bulk(new).await.expect("asked");
    let bitfiles: Vec<_> = made.iter().map(|request| request.bitfile).collect();
    assert_eq!(bitfiles, [on_tape.bitfile, on_disk.bitfile]);
    let found = look(&site, "one").await;
    let seen: Vec<_> = found.files.iter().map(|file| (file.path.as_str(), file.state.clone())).collect();
    let refused = RequestState::Failed { reason: "there is no such file".to_owned() };
    assert_eq!(
        seen,
        [("//tape", RequestState::Queued), ("/none", refused), ("/disk", RequestState::Completed)],
        "in the order in which they were named"
    );
    assert_eq!((found.account.as_str(), found.ended()), ("alice", None));
    assert_eq!(found.files[0].request, Some((made[0].id, on_tape.bitfile)));
    site.claim(WorkKind::Stage, "T1").await;
    assert_eq!(look(&site, "one").await.files[0].state, RequestState::Active);
    site.pass(2 * MINUTE);
    stage(&site, 100).await;
    let done = look(&site, "one").await;
    assert_eq!(done.files[0].state, RequestState::Completed);
    assert_eq!(done.ended(), Some(site.catalog.now()));
    assert!(site.catalog.bulk("two").await.expect("an answer").is_none());
}

async fn a_dropped_bulk_request_cancels_what_is_open_and_nothing_else(site: Site) {
    let (one, two) = (site.on_tape_only(ROOT, "a", 10).await, site.publish(ROOT, "b", 10).await);
    let files =
        vec![("/a", Ok(wish(&site, one.bitfile, "alice", HOUR))), ("/b", Ok(wish(&site, two.bitfile, "alice", HOUR)))];
    let made = site.catalog.put_bulk(bulk("one", "alice", files)).await.expect("asked");
    let others = site.request(one.bitfile, "bob").await;
    assert_eq!(site.catalog.drop_bulk("one").await.expect("dropped"), [made[0].id]);
    assert!(site.catalog.bulk("one").await.expect("an answer").is_none());
    assert!(site.catalog.drop_bulk("one").await.expect("nothing to drop").is_empty());
    let ids = [made[0].id, made[1].id, others.id];
    let states = site.catalog.stage_requests(&ids).await.expect("requests");
    let states: Vec<_> = states.into_iter().map(|request| request.state).collect();
    assert_eq!(states, [RequestState::Cancelled, RequestState::Completed, RequestState::Queued]);
}

async fn a_copy_stays_as_long_as_any_request_wants_it(site: Site) {
    let file = site.on_tape_only(ROOT, "a", 10).await;
    let short = vec![("/a", Ok(wish(&site, file.bitfile, "alice", HOUR)))];
    let long = vec![("/a", Ok(wish(&site, file.bitfile, "bob", 3 * HOUR)))];
    let alices = site.catalog.put_bulk(bulk("short", "alice", short)).await.expect("asked");
    let bobs = site.catalog.put_bulk(bulk("long", "bob", long)).await.expect("asked");
    stage(&site, 10).await;
    let expires = async || {
        let located = site.catalog.locate_one(file.bitfile).await.expect("the bitfile");
        located.copy(DISK_COPY).expect("on disk").expires.expect("promised")
    };
    let now = site.catalog.now();
    assert_eq!(expires().await, now.after(3 * HOUR));
    let released = site.catalog.release_requests(vec![bobs[0].id], None).await.expect("released");
    assert_eq!(released, [file.bitfile]);
    assert_eq!(expires().await, now.after(HOUR), "alice wants it still");
    assert!(site.catalog.release_requests(vec![bobs[0].id], None).await.expect("once is enough").is_empty());
    site.catalog.release_for(vec![file.bitfile], account("alice")).await.expect("released");
    assert_eq!(expires().await, now, "nobody does");
    assert_eq!(site.catalog.expired_copies(10).await.expect("copies").len(), 1);
    assert!(site.catalog.release_requests(vec![alices[0].id], None).await.expect("released before").is_empty());

    // A copy that was there before is held by a pin.
    let resident = site.publish(ROOT, "b", 10).await;
    site.migrate("single", 1, "T1").await;
    let asked = vec![("/b", Ok(wish(&site, resident.bitfile, "alice", HOUR)))];
    let asked = site.catalog.put_bulk(bulk("resident", "alice", asked)).await.expect("asked");
    let purge = async || site.catalog.purge(vec![resident.bitfile], Duration::ZERO).await.expect("an answer")[0].1;
    assert_eq!(purge().await, Purged::Pinned);
    site.catalog.release_requests(vec![asked[0].id], None).await.expect("released");
    assert_eq!(purge().await, Purged::Freed { bytes: 10 });
}

async fn what_somebody_else_asked_for_cannot_be_given_back(site: Site) {
    let file = site.on_tape_only(ROOT, "a", 10).await;
    let asked = vec![("/a", Ok(wish(&site, file.bitfile, "alice", HOUR)))];
    let asked = site.catalog.put_bulk(bulk("one", "alice", asked)).await.expect("asked");
    let release = async |owner: &str| {
        site.catalog.release_requests(vec![asked[0].id], Some(account(owner))).await.expect("an answer")
    };
    assert!(release("alice").await.is_empty(), "it has not come yet");
    stage(&site, 10).await;
    assert!(release("bob").await.is_empty());
    assert!(site.catalog.release_for(vec![file.bitfile], account("bob")).await.expect("an answer").is_empty());
    assert!(site.catalog.expired_copies(10).await.expect("copies").is_empty());
    assert_eq!(release("alice").await, [file.bitfile]);
}

async fn open_bulk_requests_are_counted_until_their_last_file_ends(site: Site) {
    let file = site.on_tape_only(ROOT, "a", 10).await;
    for id in ["one", "two"] {
        let asked = vec![("/a", Ok(wish(&site, file.bitfile, "alice", HOUR)))];
        site.catalog.put_bulk(bulk(id, "alice", asked)).await.expect("asked");
    }
    let count = async |owner: &str, many| site.catalog.open_bulks(&account(owner), many).await.expect("a count");
    assert_eq!((count("alice", 2).await, count("bob", 2).await), (2, 0));
    stage(&site, 10).await;
    assert_eq!(count("alice", 3).await, 2, "below what matters nobody looks twice");
    assert_eq!(count("alice", 2).await, 0);
    let asked = vec![("/none", Err("there is no such file".to_owned()))];
    site.catalog.put_bulk(bulk("three", "alice", asked)).await.expect("asked");
    site.catalog.end_bulk("three", site.catalog.now()).await.expect("noted");
    assert_eq!(count("alice", 9).await, 0);
}

async fn a_bulk_request_is_forgotten_with_its_requests(site: Site) {
    let file = site.publish(ROOT, "a", 10).await;
    let asked = vec![("/a", Ok(wish(&site, file.bitfile, "alice", HOUR)))];
    let asked = site.catalog.put_bulk(bulk("one", "alice", asked)).await.expect("asked");
    site.pass(6 * 24 * HOUR);
    site.catalog.reclaim(10).await.expect("an answer");
    assert_eq!(look(&site, "one").await.files[0].state, RequestState::Completed);
    site.pass(2 * 24 * HOUR);
    site.catalog.reclaim(10).await.expect("an answer");
    assert!(site.catalog.bulk("one").await.expect("an answer").is_none());
    assert!(site.catalog.stage_requests(&[asked[0].id]).await.expect("an answer").is_empty());
}
