//! Scrubs: each segment is counted once, and progress outlives whoever made it; on both databases.

use catalog::*;

use crate::site::*;

on_both! {
    what_was_read_is_counted_once_and_the_scrub_goes_on_from_its_place;
    a_claim_that_was_lost_counts_nothing;
    a_scrub_is_over_when_what_is_left_was_deleted_or_given_up;
    a_later_scrub_takes_over_what_an_earlier_one_has_not_read;
    a_class_is_listed_page_by_page_under_the_lease;
}

fn whole(label: &str, segments: u64) -> NewScrub {
    let item =
        ScrubItem { subject: Subject::Volume(volume(label)), volume: volume(label), segments, bytes: 10 * segments };
    NewScrub { scope: format!("volume {label}"), rate: Some(5), what: ScrubTarget::Items(vec![item]) }
}

fn item(bitfile: wire::id::BitfileId) -> ScrubItem {
    ScrubItem { subject: Subject::Bitfile(bitfile), volume: volume("d0"), segments: 1, bytes: 10 }
}

fn found(site: &Site, count: u64, problem: Option<&str>) -> Vec<VerifiedSegment> {
    let one = |number| VerifiedSegment {
        bitfile: wire::id::BitfileId(number),
        volume: volume("T1"),
        bytes: 10,
        problem: problem.map(str::to_owned),
        checked: site.catalog.now(),
    };
    (1..=count).map(one).collect()
}

async fn claim_one(site: &Site, pool: &str, gateway: &str) -> WorkItem {
    site.catalog.claim(claim(WorkKind::Verify, pool, gateway)).await.expect("a claim").pop().expect("work is due")
}

async fn record(site: &Site, item: &WorkItem, found: Vec<VerifiedSegment>, next: AfterVerify) -> bool {
    let verified = vec![Verified { ticket: item.ticket(), found, next }];
    site.catalog.record_verified(verified).await.expect("recorded").len() == 1
}

async fn what_was_read_is_counted_once_and_the_scrub_goes_on_from_its_place(site: Site) {
    let scrub = site.catalog.begin_scrub(whole("T1", 5)).await.expect("begun");
    assert_eq!((scrub.total, scrub.total_bytes, scrub.rate, scrub.listed), (5, 50, Some(5), true));
    let first = claim_one(&site, "T1", "gw1").await;
    assert_eq!((first.scrub, &first.place), (Some(scrub.id), &None));
    assert!(record(&site, &first, found(&site, 2, None), AfterVerify::GoOn { place: "1 2 3 4".into() }).await);
    // The gateway dies; another sees what it had done.
    let other = site.another().await;
    site.pass(2 * MINUTE);
    let second = claim_one(&other, "T1", "gw2").await;
    assert_eq!(second.place.as_deref(), Some("1 2 3 4"));
    let half = other.catalog.scrub(scrub.id).await.expect("there");
    assert_eq!((half.done, half.done_bytes, half.ended), (2, 20, None));
    assert!(record(&other, &second, found(&other, 2, None), AfterVerify::GoOn { place: "1 2 3 5".into() }).await);
    let last = AfterVerify::GiveUp { reason: "1 segment is damaged".into() };
    assert!(record(&other, &second, found(&other, 1, Some("bits fell out")), last).await);
    let end = other.catalog.scrub(scrub.id).await.expect("there");
    assert_eq!((end.done, end.bad, end.ended.is_some()), (5, 1, true));
    let results = other.catalog.scrub_found(scrub.id, 0, 100).await.expect("results");
    assert_eq!(results.iter().map(|result| result.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(results[4].segment.problem.as_deref(), Some("bits fell out"));
    assert_eq!(other.catalog.scrub_found(scrub.id, 4, 100).await.expect("results").len(), 1);
}

async fn a_claim_that_was_lost_counts_nothing(site: Site) {
    let scrub = site.catalog.begin_scrub(whole("T1", 5)).await.expect("begun");
    let lost = claim_one(&site, "T1", "gw1").await;
    site.pass(2 * MINUTE);
    let held = claim_one(&site, "T1", "gw2").await;
    assert!(!record(&site, &lost, found(&site, 5, None), AfterVerify::Done).await);
    assert_eq!(site.catalog.scrub(scrub.id).await.expect("there").done, 0);
    assert!(record(&site, &held, found(&site, 5, None), AfterVerify::Done).await);
    assert!(!record(&site, &held, found(&site, 5, None), AfterVerify::Done).await, "once is enough");
    assert_eq!(site.catalog.scrub(scrub.id).await.expect("there").done, 5);
}

async fn a_scrub_is_over_when_what_is_left_was_deleted_or_given_up(site: Site) {
    let one = site.publish(ROOT, "one", 10).await.bitfile;
    let two = site.publish(ROOT, "two", 10).await.bitfile;
    let what = ScrubTarget::Items(vec![item(one), item(two)]);
    let scrub = site.catalog.begin_scrub(NewScrub { scope: "2 files".into(), rate: None, what }).await.expect("begun");
    let claimed = site.claim(WorkKind::Verify, "d0").await;
    let bad = claimed.iter().find(|item| item.subject == Subject::Bitfile(one)).expect("claimed");
    record(&site, bad, found(&site, 1, Some("gone")), AfterVerify::GiveUp { reason: "gone".into() }).await;
    assert_eq!(site.catalog.scrub(scrub.id).await.expect("there").ended, None, "the other one is being read");
    let other = claimed.iter().find(|item| item.subject == Subject::Bitfile(two)).expect("claimed");
    site.catalog.cancel_work(vec![other.id]).await.expect("taken out");
    site.catalog.settle_scrubs().await.expect("looked");
    let end = site.catalog.scrub(scrub.id).await.expect("there");
    assert_eq!((end.done, end.total, end.ended.is_some()), (1, 2, true));
}

async fn a_later_scrub_takes_over_what_an_earlier_one_has_not_read(site: Site) {
    let first = site.catalog.begin_scrub(whole("T1", 5)).await.expect("begun");
    let lost = claim_one(&site, "T1", "gw1").await;
    record(&site, &lost, found(&site, 2, None), AfterVerify::GoOn { place: "1 2 3 4".into() }).await;
    let second = site.catalog.begin_scrub(whole("T1", 5)).await.expect("begun");
    assert!(site.catalog.scrub(first.id).await.expect("there").ended.is_some(), "it has nothing left to read");
    assert!(!record(&site, &lost, found(&site, 3, None), AfterVerify::Done).await);
    let held = claim_one(&site, "T1", "gw1").await;
    assert_eq!((held.scrub, held.place.clone()), (Some(second.id), None), "from the beginning");
    assert_eq!(site.catalog.scrubs().await.expect("all").len(), 2);
}

async fn a_class_is_listed_page_by_page_under_the_lease(site: Site) {
    let one = site.publish(ROOT, "one", 10).await.bitfile;
    let two = site.publish(ROOT, "two", 10).await.bitfile;
    let what = ScrubTarget::Class(cos("dual"));
    let scrub = site.catalog.begin_scrub(NewScrub { scope: "class".into(), rate: None, what }).await.expect("begun");
    assert_eq!((scrub.listed, scrub.class.clone(), scrub.ended), (false, Some(cos("dual")), None));
    let epoch = site.catalog.lease("tape", &holder("gw1"), MINUTE).await.expect("asked").expect("free");
    let fence = Fence { lease: "tape".into(), epoch };
    let page = |bitfile, place: Option<&str>| ScrubListed {
        scrub: scrub.id,
        items: vec![item(bitfile)],
        place: place.map(str::to_owned),
        fence: fence.clone(),
    };
    site.catalog.list_scrub(page(one, Some("one"))).await.expect("listed");
    let claimed = claim_one(&site, "d0", "gw1").await;
    record(&site, &claimed, found(&site, 1, None), AfterVerify::Done).await;
    let half = site.catalog.scrub(scrub.id).await.expect("there");
    assert_eq!((half.place.as_deref(), half.done, half.total, half.ended), (Some("one"), 1, 1, None));
    site.catalog.list_scrub(page(two, None)).await.expect("listed");
    let claimed = claim_one(&site, "d0", "gw1").await;
    record(&site, &claimed, found(&site, 1, None), AfterVerify::Done).await;
    let end = site.catalog.scrub(scrub.id).await.expect("there");
    assert_eq!((end.done, end.total, end.ended.is_some()), (2, 2, true));
    site.pass(2 * MINUTE);
    site.catalog.lease("tape", &holder("gw2"), MINUTE).await.expect("asked").expect("free");
    let refused = site.catalog.list_scrub(page(one, None)).await.expect_err("another has the lease");
    assert!(matches!(refused, CatalogError::Stale { .. }), "{refused}");
}
