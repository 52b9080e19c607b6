//! Stage requests: joining, completing, failing, cancelling, expiring; on both databases.

use std::time::Duration;

use catalog::*;
use wire::id::{BitfileId, StorageClassName};

use crate::site::*;

on_both! {
    requests_for_one_bitfile_share_one_item_and_end_together;
    a_request_for_what_is_on_disk_is_completed_and_keeps_it_there;
    a_request_that_cannot_be_met_fails_with_the_reason;
    a_deleted_file_takes_its_requests_and_work_along;
    a_request_past_its_deadline_fails_and_takes_unwanted_work_along;
    cancelling_the_last_request_drops_the_work;
    a_stage_that_is_given_up_fails_its_requests;
    a_stage_can_be_tried_from_the_other_copy;
    a_staged_file_that_does_not_fit_is_refused_and_reclaimed;
    requests_are_listed_with_their_place_in_the_queue;
    the_scheduler_sees_demand_by_cartridge_and_account;
    ended_requests_are_forgotten_in_the_end;
}

async fn staged(site: &Site, item: &WorkItem, bitfile: BitfileId, bytes: u64) -> Staged {
    Staged {
        ticket: item.ticket(),
        bitfile,
        storage_class: StorageClassName::new("disk").expect("a name"),
        segments: vec![site.segment("d1", 0, bytes).await],
    }
}

async fn state(site: &Site, request: &StageRequest) -> RequestState {
    site.catalog.stage_requests(&[request.id]).await.expect("an answer").remove(0).state
}

async fn requests_for_one_bitfile_share_one_item_and_end_together(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let one = site.request(file.bitfile, "alice").await;
    let two = site.request(file.bitfile, "bob").await;
    assert_eq!((&one.state, one.volume.clone(), one.ahead), (&RequestState::Queued, Some(volume("T1")), Some(0)));
    assert_eq!((one.work, two.ahead), (two.work, Some(1)));
    let work = site.claim(WorkKind::Stage, "T1").await;
    assert_eq!((work.len(), Some(work[0].id)), (1, one.work));
    assert_eq!(state(&site, &one).await, RequestState::Active);

    let result = staged(&site, &work[0], file.bitfile, 100).await;
    let recorded = site.catalog.record_stage(vec![result.clone()], None).await.expect("recorded");
    let expires = site.catalog.now().after(2 * HOUR);
    assert_eq!(recorded, [StageRecorded::Done { requests: vec![one.id, two.id], expires }]);
    assert_eq!(state(&site, &two).await, RequestState::Completed);
    let located = site.catalog.locate_one(file.bitfile).await.expect("the bitfile");
    assert_eq!(located.copy(DISK_COPY).expect("on disk").expires, Some(expires));
    assert!(located.bitfile.residency.on_disk);

    // The same result once more, as after a lost answer, must not delete the file it reports.
    let again = site.catalog.record_stage(vec![result], None).await.expect("an answer");
    assert_eq!(again, [StageRecorded::Refused(CatalogRefusal::Stale)]);
    assert!(site.claim(WorkKind::Reclaim, "d1").await.is_empty());
}

async fn a_request_for_what_is_on_disk_is_completed_and_keeps_it_there(site: Site) {
    let file = site.publish(ROOT, "file", 100).await;
    site.migrate("single", 1, "T1").await;
    let request = site.request(file.bitfile, "alice").await;
    assert_eq!(request.state, RequestState::Completed);
    let purged = site.catalog.purge(vec![file.bitfile], Duration::ZERO).await.expect("an answer");
    assert_eq!(purged[0].1, Purged::Pinned);
    assert!(site.catalog.expired_copies(10).await.expect("copies").is_empty());
    site.catalog.release_stage(vec![file.bitfile]).await.expect("released");
    let purged = site.catalog.purge(vec![file.bitfile], Duration::ZERO).await.expect("an answer");
    assert_eq!(purged[0].1, Purged::Freed { bytes: 100 });
    // Staged once more, and asked for longer while it is there.
    site.request(file.bitfile, "alice").await;
    let work = site.claim(WorkKind::Stage, "T1").await;
    let result = staged(&site, &work[0], file.bitfile, 100).await;
    site.catalog.record_stage(vec![result], None).await.expect("recorded");
    site.pass(HOUR);
    assert_eq!(site.request(file.bitfile, "bob").await.state, RequestState::Completed);
    site.pass(HOUR + MINUTE);
    assert!(site.catalog.expired_copies(10).await.expect("copies").is_empty(), "bob's promise holds");
    site.catalog.release_stage(vec![file.bitfile]).await.expect("released");
    assert_eq!(site.catalog.expired_copies(10).await.expect("copies").len(), 1);
}

async fn a_request_that_cannot_be_met_fails_with_the_reason(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let failed = |request: StageRequest| match request.state {
        RequestState::Failed { reason } => reason,
        other => panic!("{other:?}"),
    };
    assert!(failed(site.request(BitfileId(7), "alice").await).contains("does not exist"));
    site.catalog.set_volume_state(&volume("T1"), VolumeState::Disabled, "eaten").await.expect("disabled");
    assert!(failed(site.request(file.bitfile, "alice").await).contains("disabled"));
    assert!(site.claim(WorkKind::Stage, "T1").await.is_empty());
}

async fn a_deleted_file_takes_its_requests_and_work_along(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let request = site.request(file.bitfile, "alice").await;
    let work = site.claim(WorkKind::Stage, "T1").await;
    site.catalog.delete_file(file.entry, None).await.expect("deleted");
    assert!(matches!(state(&site, &request).await, RequestState::Failed { .. }));
    let result = staged(&site, &work[0], file.bitfile, 100).await;
    let recorded = site.catalog.record_stage(vec![result], None).await.expect("an answer");
    assert_eq!(recorded, [StageRecorded::Refused(CatalogRefusal::Stale)]);
    assert_eq!(site.claim(WorkKind::Reclaim, "d1").await.len(), 1, "what was staged in vain is reclaimed");
    assert!(matches!(site.request(file.bitfile, "alice").await.state, RequestState::Failed { .. }));
}

async fn a_request_past_its_deadline_fails_and_takes_unwanted_work_along(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let request = site.request(file.bitfile, "alice").await;
    site.pass(HOUR / 2);
    let later = site.request(file.bitfile, "bob").await;
    site.pass(HOUR / 2 + MINUTE);
    assert_eq!(site.catalog.expire(10).await.expect("an answer"), 1);
    assert!(matches!(state(&site, &request).await, RequestState::Failed { reason } if reason.contains("deadline")));
    assert_eq!(state(&site, &later).await, RequestState::Queued);
    site.pass(HOUR);
    assert_eq!(site.catalog.expire(10).await.expect("an answer"), 1);
    assert!(site.claim(WorkKind::Stage, "T1").await.is_empty());
}

async fn cancelling_the_last_request_drops_the_work(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let one = site.request(file.bitfile, "alice").await;
    let two = site.request(file.bitfile, "bob").await;
    let both = vec![one.id, two.id];
    let alices = site.catalog.cancel_requests(both.clone(), Some(account("alice"))).await.expect("cancelled");
    assert_eq!(alices, [one.id]);
    assert_eq!(site.catalog.work_items(Some(WorkKind::Stage), None, 10).await.expect("the queue").len(), 1);
    assert_eq!(site.catalog.cancel_requests(both, None).await.expect("cancelled"), [two.id]);
    assert_eq!(state(&site, &two).await, RequestState::Cancelled);
    assert!(site.catalog.work_items(Some(WorkKind::Stage), None, 10).await.expect("the queue").is_empty());
    // An operator cancels the work: its requests end.
    let three = site.request(file.bitfile, "alice").await;
    site.catalog.cancel_work(vec![three.work.expect("work")]).await.expect("cancelled");
    assert_eq!(state(&site, &three).await, RequestState::Cancelled);
}

async fn a_stage_that_is_given_up_fails_its_requests(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let request = site.request(file.bitfile, "alice").await;
    let work = site.claim(WorkKind::Stage, "T1").await;
    let retry = WorkFailure {
        ticket: work[0].ticket(),
        reason: "no drive was free".to_owned(),
        next: AfterFailure::Retry(MINUTE),
    };
    site.catalog.fail(vec![retry.clone()]).await.expect("noted");
    let waiting = site.catalog.stage_requests(&[request.id]).await.expect("an answer").remove(0);
    assert_eq!((waiting.state, waiting.note.as_deref()), (RequestState::Queued, Some("no drive was free")));
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Stage, "T1").await;
    let reason = "cartridge T1 cannot be read".to_owned();
    let give_up = WorkFailure { ticket: work[0].ticket(), reason: reason.clone(), next: AfterFailure::GiveUp };
    site.catalog.fail(vec![give_up]).await.expect("noted");
    assert_eq!(state(&site, &request).await, RequestState::Failed { reason });
    assert!(site.catalog.work_items(Some(WorkKind::Stage), None, 10).await.expect("the queue").is_empty());
}

async fn a_stage_can_be_tried_from_the_other_copy(site: Site) {
    let mut file = site.file(ROOT, "file", 100).await;
    file.cos = cos("dual");
    let bitfile = site.catalog.publish(file).await.expect("published").bitfile;
    site.pass(2 * MINUTE);
    let work = site.claim(WorkKind::Migrate, "dual").await;
    site.write_container(work.clone(), 1, "T1").await;
    site.write_container(work, 2, "T2").await;
    site.catalog.purge(vec![bitfile], Duration::ZERO).await.expect("purged");
    let request = site.request(bitfile, "alice").await;
    assert_eq!(request.volume, Some(volume("T1")));
    let work = site.claim(WorkKind::Stage, "T1").await;
    let other = WorkFailure {
        ticket: work[0].ticket(),
        reason: "T1 is not in the library".to_owned(),
        next: AfterFailure::RetryFrom { pool: "T2".to_owned() },
    };
    site.catalog.fail(vec![other]).await.expect("noted");
    let request = site.catalog.stage_requests(&[request.id]).await.expect("an answer").remove(0);
    assert_eq!(request.volume, Some(volume("T2")));
    assert_eq!(site.claim(WorkKind::Stage, "T2").await.len(), 1);
}

async fn a_staged_file_that_does_not_fit_is_refused_and_reclaimed(site: Site) {
    let file = site.on_tape_only(ROOT, "file", 100).await;
    let request = site.request(file.bitfile, "alice").await;
    let work = site.claim(WorkKind::Stage, "T1").await;
    let short = staged(&site, &work[0], file.bitfile, 99).await;
    let recorded = site.catalog.record_stage(vec![short], None).await.expect("an answer");
    assert_eq!(recorded, [StageRecorded::Refused(CatalogRefusal::Misfit)]);
    assert_eq!(site.claim(WorkKind::Reclaim, "d1").await.len(), 1);
    assert_eq!(state(&site, &request).await, RequestState::Active);
    let lost = Fence { lease: "recall".to_owned(), epoch: wire::id::Epoch(3) };
    let whole = staged(&site, &work[0], file.bitfile, 100).await;
    let refused = site.catalog.record_stage(vec![whole], Some(lost)).await;
    assert!(matches!(refused, Err(CatalogError::Stale { .. })));
}

async fn requests_are_listed_with_their_place_in_the_queue(site: Site) {
    let mut requests = Vec::new();
    for number in 0..4 {
        let file = site.on_tape_only(ROOT, &format!("file{number}"), 10).await;
        requests.push(site.request(file.bitfile, if number == 1 { "bob" } else { "alice" }).await);
    }
    site.catalog.cancel_requests(vec![requests[0].id], None).await.expect("cancelled");
    let open = RequestFilter { open_only: true, limit: 10, ..RequestFilter::default() };
    let listed = site.catalog.list_requests(&open).await.expect("a list");
    let places: Vec<_> = listed.iter().map(|request| (request.id, request.ahead)).collect();
    assert_eq!(places, [(requests[1].id, Some(0)), (requests[2].id, Some(1)), (requests[3].id, Some(2))]);
    let alices = RequestFilter { account: Some(account("alice")), limit: 2, ..RequestFilter::default() };
    let listed = site.catalog.list_requests(&alices).await.expect("a list");
    let ids: Vec<_> = listed.iter().map(|request| request.id).collect();
    assert_eq!(ids, [requests[0].id, requests[2].id]);
    assert_eq!(listed[1].ahead, Some(1));
    let rest = RequestFilter { after: Some(requests[2].id), limit: 10, ..RequestFilter::default() };
    assert_eq!(site.catalog.list_requests(&rest).await.expect("a list").len(), 1);
}

async fn the_scheduler_sees_demand_by_cartridge_and_account(site: Site) {
    for (number, owner) in ["alice", "alice", "bob"].into_iter().enumerate() {
        let file = site.on_tape_only(ROOT, &format!("file{number}"), 10).await;
        site.request(file.bitfile, owner).await;
    }
    let demand = site.catalog.stage_demand().await.expect("the demand");
    let seen: Vec<_> = demand.iter().map(|one| (one.account.as_str(), one.requests, one.bytes)).collect();
    assert_eq!(seen, [("alice", 2, 20), ("bob", 1, 10)]);
    site.claim(WorkKind::Stage, "T1").await;
    assert!(site.catalog.stage_demand().await.expect("the demand").is_empty(), "what is claimed waits no more");
}

async fn ended_requests_are_forgotten_in_the_end(site: Site) {
    let file = site.publish(ROOT, "file", 100).await;
    let request = site.request(file.bitfile, "alice").await;
    site.pass(24 * HOUR);
    site.catalog.reclaim(10).await.expect("an answer");
    assert_eq!(state(&site, &request).await, RequestState::Completed);
    site.pass(7 * 24 * HOUR);
    site.catalog.reclaim(10).await.expect("an answer");
    assert!(site.catalog.stage_requests(&[request.id]).await.expect("an answer").is_empty());
}
