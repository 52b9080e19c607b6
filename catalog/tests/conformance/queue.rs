//! The work queue: claims, leases, failures, deadlines; on both databases.

use std::collections::HashSet;
use std::time::Duration;

use catalog::*;
use wire::id::{FileId, WorkId};

use crate::site::*;

on_both! {
    a_claim_takes_what_is_due_up_to_its_budget;
    a_lease_that_ran_out_is_claimed_again_and_the_old_ticket_is_stale;
    renewed_work_stays_with_its_holder;
    failed_work_comes_back_after_its_wait;
    work_that_is_given_up_waits_for_a_person;
    overdue_work_is_parked;
    work_is_queued_once_for_one_subject;
    cancelled_work_is_gone;
    two_gateways_never_claim_the_same_item;
}

fn reclaim(file: u64, bytes: u64, not_before: Timestamp) -> NewWork {
    NewWork {
        kind: WorkKind::Reclaim,
        subject: Subject::File { volume: volume("d0"), file: FileId(file) },
        pool: "d0".to_owned(),
        bytes,
        not_before,
        deadline: None,
    }
}

async fn queue(site: &Site, count: u64, bytes: u64) -> Vec<WorkId> {
    let now = site.catalog.now();
    let work = (0..count).map(|file| reclaim(file, bytes, now)).collect();
    site.catalog.enqueue(work).await.expect("queued")
}

fn tickets(items: &[WorkItem]) -> Vec<Ticket> {
    items.iter().map(WorkItem::ticket).collect()
}

fn failure(item: &WorkItem, next: AfterFailure) -> WorkFailure {
    WorkFailure { ticket: item.ticket(), reason: "the drive is broken".to_owned(), next }
}

async fn a_claim_takes_what_is_due_up_to_its_budget(site: Site) {
    let ids = queue(&site, 10, 100).await;
    let later = reclaim(99, 1, site.catalog.now().after(HOUR));
    site.catalog.enqueue(vec![later]).await.expect("queued");
    let with = |max_items, max_bytes| Claim { max_items, max_bytes, ..claim(WorkKind::Reclaim, "d0", "gw1") };
    let first = site.catalog.claim(with(100, 250)).await.expect("a claim");
    assert_eq!(first.iter().map(|item| item.id).collect::<Vec<_>>(), ids[..3]);
    assert_eq!(first[0].holder, Some(holder("gw1")));
    assert_eq!(site.catalog.claim(with(2, 1000)).await.expect("a claim").len(), 2);
    assert_eq!(site.catalog.claim(with(2, 0)).await.expect("a claim").len(), 1, "the first always fits");
    assert_eq!(site.catalog.claim(with(100, u64::MAX)).await.expect("a claim").len(), 4);
    assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty());
    assert!(site.claim(WorkKind::Reclaim, "d1").await.is_empty());
}

async fn a_lease_that_ran_out_is_claimed_again_and_the_old_ticket_is_stale(site: Site) {
    queue(&site, 2, 1).await;
    let old = site.claim(WorkKind::Reclaim, "d0").await;
    site.pass(2 * MINUTE);
    let new = site.catalog.claim(claim(WorkKind::Reclaim, "d0", "gw2")).await.expect("a claim");
    assert_eq!(new.len(), 2);
    assert!(new[0].epoch > old[0].epoch);
    assert!(site.catalog.finish(tickets(&old)).await.expect("an answer").is_empty());
    assert!(site.catalog.renew(tickets(&old), MINUTE).await.expect("an answer").is_empty());
    let failures = old.iter().map(|item| failure(item, AfterFailure::GiveUp)).collect();
    assert!(site.catalog.fail(failures).await.expect("an answer").is_empty());
    assert_eq!(site.catalog.finish(tickets(&new)).await.expect("an answer").len(), 2);
    assert!(site.catalog.finish(tickets(&new)).await.expect("an answer").is_empty(), "once is enough");
}

async fn renewed_work_stays_with_its_holder(site: Site) {
    queue(&site, 1, 1).await;
    let mine = site.claim(WorkKind::Reclaim, "d0").await;
    for _ in 0..5 {
        site.pass(MINUTE / 2);
        assert_eq!(site.catalog.renew(tickets(&mine), MINUTE).await.expect("an answer"), tickets(&mine));
        assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty());
    }
}

async fn failed_work_comes_back_after_its_wait(site: Site) {
    queue(&site, 2, 1).await;
    let items = site.claim(WorkKind::Reclaim, "d0").await;
    let failures = vec![failure(&items[0], AfterFailure::Retry(HOUR)), failure(&items[1], AfterFailure::Release)];
    assert_eq!(site.catalog.fail(failures).await.expect("an answer").len(), 2);
    let again = site.claim(WorkKind::Reclaim, "d0").await;
    assert_eq!((again.len(), again[0].id, again[0].failures), (1, items[1].id, 0));
    site.pass(2 * HOUR);
    let again = site.claim(WorkKind::Reclaim, "d0").await;
    let failed = again.iter().find(|item| item.id == items[0].id).expect("it came back");
    assert_eq!((failed.failures, failed.reason.as_deref()), (1, Some("the drive is broken")));
    let elsewhere = AfterFailure::RetryFrom { pool: "d1".to_owned() };
    site.catalog.fail(vec![failure(failed, elsewhere)]).await.expect("an answer");
    assert_eq!(site.claim(WorkKind::Reclaim, "d1").await.len(), 1);
}

async fn work_that_is_given_up_waits_for_a_person(site: Site) {
    queue(&site, 1, 1).await;
    let items = site.claim(WorkKind::Reclaim, "d0").await;
    site.catalog.fail(vec![failure(&items[0], AfterFailure::GiveUp)]).await.expect("an answer");
    site.pass(1000 * HOUR);
    assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty());
    let listed = site.catalog.work_items(Some(WorkKind::Reclaim), None, 10).await.expect("the queue");
    assert_eq!((listed[0].due, listed[0].reason.as_deref()), (Timestamp::NEVER, Some("the drive is broken")));
    let queues = site.catalog.statistics().await.expect("statistics").queues;
    assert!(queues.iter().any(|queue| queue.kind == WorkKind::Reclaim && queue.parked == 1));
    assert_eq!(site.catalog.retry_work(vec![items[0].id, WorkId(5)]).await.expect("an answer"), [items[0].id]);
    assert_eq!(site.claim(WorkKind::Reclaim, "d0").await.len(), 1);
}

async fn overdue_work_is_parked(site: Site) {
    let mut work = reclaim(1, 1, site.catalog.now());
    work.deadline = Some(site.catalog.now().after(MINUTE));
    site.catalog.enqueue(vec![work]).await.expect("queued");
    site.pass(2 * MINUTE);
    assert!(site.claim(WorkKind::Reclaim, "d0").await.is_empty(), "its deadline passed");
    site.catalog.expire(10).await.expect("an answer");
    let listed = site.catalog.work_items(None, None, 10).await.expect("the queue");
    assert_eq!(listed[0].reason.as_deref(), Some("its deadline passed"));
}

async fn work_is_queued_once_for_one_subject(site: Site) {
    let now = site.catalog.now();
    let late = site.catalog.enqueue(vec![reclaim(1, 1, now.after(HOUR))]).await.expect("queued");
    let soon = site.catalog.enqueue(vec![reclaim(2, 1, now), reclaim(1, 1, now)]).await.expect("queued");
    assert_eq!((soon.len(), soon[1]), (2, late[0]));
    assert_eq!(site.claim(WorkKind::Reclaim, "d0").await.len(), 2, "the first came forward");
    let whole = |kind| NewWork { kind, subject: Subject::Volume(volume("d0")), ..reclaim(1, 1, now) };
    let ids = site.catalog.enqueue(vec![whole(WorkKind::Verify), whole(WorkKind::Repack)]).await.expect("queued");
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 2);
    let unknown = NewWork { subject: Subject::Bitfile(wire::id::BitfileId(4)), ..whole(WorkKind::Verify) };
    assert!(matches!(site.catalog.enqueue(vec![unknown]).await, Err(CatalogError::NotFound { .. })));
    let stage = whole(WorkKind::Stage);
    assert!(matches!(site.catalog.enqueue(vec![stage]).await, Err(CatalogError::Inconsistent { .. })));
}

async fn cancelled_work_is_gone(site: Site) {
    let ids = queue(&site, 2, 1).await;
    let held = site.claim(WorkKind::Reclaim, "d0").await;
    assert_eq!(site.catalog.cancel_work(ids.clone()).await.expect("an answer").len(), 2);
    assert!(site.catalog.cancel_work(ids).await.expect("an answer").is_empty());
    assert!(site.catalog.finish(tickets(&held)).await.expect("an answer").is_empty());
}

async fn two_gateways_never_claim_the_same_item(site: Site) {
    let ids = queue(&site, 200, 1).await;
    let other = site.another().await;
    let claimer = |catalog: Catalog, gateway: &'static str| {
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let few = Claim { max_items: 7, ..claim(WorkKind::Reclaim, "d0", gateway) };
                let items = catalog.claim(few).await.expect("a claim");
                if items.is_empty() {
                    return mine;
                }
                mine.extend(items.into_iter().map(|item| item.id));
            }
        })
    };
    let (one, two) = (claimer(site.catalog.clone(), "gw1"), claimer(other.catalog.clone(), "gw2"));
    let mut all = one.await.expect("no panic");
    all.extend(two.await.expect("no panic"));
    // A claimer may see nothing while the other holds the last rows; what is left then is claimed at once.
    all.extend(site.claim(WorkKind::Reclaim, "d0").await.into_iter().map(|item| item.id));
    all.sort_unstable();
    assert_eq!(all, ids);
    assert!(Duration::ZERO < MINUTE);
}
