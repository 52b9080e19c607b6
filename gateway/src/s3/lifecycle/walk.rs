//! Goes through the buckets that have lifecycle rules, and does what the rules say.
//!
//! Owns nothing that lasts: a walk that is cut begins again, and what was done is not found again. A page of names is
//! held at a time. Talks to the catalogue. Never decides what is to be done: [`super::rules`] does.

use std::time::Duration;

use catalog::{
    Bucket, CatalogError, Cause, DeleteObject, Object, ObjectData, Policies, Precondition, Reclass, Tags,
    VersionListing, VersionRef,
};
use daemon::Shutdown;
use futures::{StreamExt as _, stream};
use tracing::{debug, info, warn};

use super::{
    named_class,
    rules::{Calendar, Deed, Rules, State, Subject},
    trail::Trail,
};
use crate::{
    hsm::Ask,
    s3::{
        Door,
        access::attributes_of,
        attributes::{self, Settings},
    },
};

/// The lease of the walk.
const LEASE: &str = "lifecycle";
/// Names, versions and uploads of one page.
const PAGE: u32 = 1000;
/// How many versions are worked on at the same time: the catalogue puts them into few transactions.
const AT_ONCE: usize = 32;
/// How often a walk begins in a day, and how long a pause is at least.
const WALKS_A_DAY: u32 = 24;
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);

/// The priority of what rules ask back from tape: after everybody who waits for it.
const LAST: i32 = 0;

/// What came of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Expired,
    Removed,
    Moved,
    Recalled,
    Nothing,
}

/// What came of a walk through one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Tally {
    expired: u64,
    removed: u64,
    /// Given another storage class.
    moved: u64,
    /// Asked back from tape, for copies that their next class wants.
    recalled: u64,
    aborted: u64,
    /// Left because they are locked.
    locked: u64,
}

/// Lets the gateway that has the lease walk.
pub(in crate::s3) fn start(door: &Door) {
    let walker = door.clone();
    door.hsm.lead(LEASE, move |shutdown| run(walker.clone(), shutdown));
}

async fn run(door: Door, shutdown: Shutdown) {
    let day = door.config.lifecycle_day.duration();
    let pause = (day / WALKS_A_DAY).max(SHORTEST_PAUSE);
    let walk = Walk { door, calendar: Calendar::of(day), shutdown: shutdown.clone() };
    while !shutdown.is_stopping() {
        if let Err(error) = walk.all().await {
            warn!(%error, "lifecycle rules not followed to the end; they are in the next round");
        }
        tokio::select! {
            () = shutdown.stopping() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The rules of a bucket, if it has any.
fn rules_of(bucket: &Bucket) -> Option<Rules> {
    let settings: Settings = attributes::read(&bucket.settings);
    let rules = Rules::read(settings.lifecycle.as_deref()?);
    if rules.is_none() {
        warn!(bucket = bucket.name, "the lifecycle configuration is damaged; it is not followed");
    }
    rules
}

struct Walk {
    door: Door,
    calendar: Calendar,
    shutdown: Shutdown,
}

impl Walk {
    async fn all(&self) -> catalog::Result<()> {
        let mut after = String::new();
        loop {
            let buckets = self.door.catalog.all_buckets(&after, PAGE).await?;
            let Some(last) = buckets.last() else { return Ok(()) };
            after.clone_from(&last.name);
            for bucket in &buckets {
                let mut tally = Tally::default();
                let walked = self.bucket(bucket, &mut tally).await;
                if tally != Tally::default() {
                    let Tally { expired, removed, moved, recalled, aborted, locked } = tally;
                    let name = &bucket.name;
                    info!(
                        bucket = name,
                        expired, removed, moved, recalled, aborted, locked, "lifecycle rules followed"
                    );
                    self.door.hsm.deleted();
                    self.door.hsm.published();
                }
                walked?;
                if self.shutdown.is_stopping() {
                    return Ok(());
                }
            }
        }
    }

    async fn bucket(&self, bucket: &Bucket, tally: &mut Tally) -> catalog::Result<()> {
        let Some(mut rules) = rules_of(bucket) else { return Ok(()) };
        let mut trail = Trail::default();
        let mut after = None;
        loop {
            let listing = VersionListing { after, limit: PAGE, ..VersionListing::default() };
            let page = self.door.catalog.list_versions(bucket.entry, &listing).await?;
            after = page.objects.last().map(place);
            let mut known: Vec<_> = page.objects.into_iter().flat_map(|object| trail.next(object)).collect();
            if !page.more {
                known.extend(trail.end());
            }
            self.versions(bucket, &rules, known, tally).await?;
            if !page.more || self.shutdown.is_stopping() {
                break;
            }
            // A long walk follows the rules as they are now.
            let Some(now) = self.door.catalog.bucket(&bucket.name).await?.as_ref().and_then(rules_of) else {
                return Ok(());
            };
            rules = now;
        }
        if rules.abort_any() { self.uploads(bucket, &rules, tally).await } else { Ok(()) }
    }

    async fn versions(
        &self,
        bucket: &Bucket,
        rules: &Rules,
        versions: Vec<(Object, State)>,
        tally: &mut Tally,
    ) -> catalog::Result<()> {
        let now = self.door.catalog.now();
        let due = versions.into_iter().filter_map(|(object, state)| {
            let attributes = attributes_of(&object);
            let data = object.data.as_ref().map(|data| (data.file.size_bytes, attributes.tags.as_slice()));
            let class = named_class(&object);
            let subject = Subject { key: &object.key, modified: object.modified, data, class, state };
            let deed = rules.deed(&subject, self.calendar, now)?;
            Some((object, deed))
        });
        let due: Vec<_> = due.collect();
        let moves = due.iter().any(|(_, deed)| matches!(deed, Deed::Move(_)));
        let policies = if moves { self.door.catalog.policies().await? } else { Policies::default() };
        let mut done = stream::iter(due)
            .map(|(object, deed)| self.version(bucket, &policies, object, deed))
            .buffer_unordered(AT_ONCE);
        while let Some(result) = done.next().await {
            match result {
                Ok(Done::Expired) => tally.expired += 1,
                Ok(Done::Removed) => tally.removed += 1,
                Ok(Done::Moved) => tally.moved += 1,
                Ok(Done::Recalled) => tally.recalled += 1,
                Ok(Done::Nothing) => {}
                Err(CatalogError::Locked { .. }) => tally.locked += 1,
                // Somebody else was there meanwhile; the next walk looks again.
                Err(CatalogError::Changed { .. } | CatalogError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn version(&self, bucket: &Bucket, policies: &Policies, object: Object, deed: Deed) -> catalog::Result<Done> {
        let (delete, done) = match deed {
            Deed::Expire => (expire(bucket, object), Done::Expired),
            Deed::Remove => (remove(bucket, object), Done::Removed),
            Deed::Move(class) => return self.to_class(bucket, policies, object, class).await,
        };
        debug!(bucket = bucket.name, key = delete.key, version = ?delete.version, "its time has come");
        self.door.catalog.delete_object(delete).await.map(|_| done)
    }

    /// Gives a version the class of service that a storage class means. What lies on too few tapes for it, and nowhere
    /// else, is asked back first: copies are made from disk. The next walk finds it there.
    async fn to_class(
        &self,
        bucket: &Bucket,
        policies: &Policies,
        object: Object,
        class: String,
    ) -> catalog::Result<Done> {
        let Some(cos) = self.door.config.classes.get(&class) else {
            warn!(bucket = bucket.name, class, "a lifecycle rule names a storage class that this site has no more");
            return Ok(Done::Nothing);
        };
        let Some(data) = &object.data else { return Ok(Done::Nothing) };
        let (residency, bitfile) = (data.file.residency, data.file.bitfile);
        let copies = policies.class(cos).map_or(0, |class| class.copies);
        if !residency.on_disk && (copies == 0 || residency.tape_copies < copies) {
            if self.door.catalog.is_wanted(bitfile).await? {
                return Ok(Done::Nothing);
            }
            let account = bucket.owner.clone();
            let ask = Ask { bitfile, account, deadline: None, lifetime: None, priority: LAST };
            return Ok(match self.door.hsm.stage_because(vec![ask], Some(&Cause::lifecycle())).await {
                Ok(_) => Done::Recalled,
                Err(failure) => {
                    warn!(bucket = bucket.name, key = object.key, %failure, "not asked back for its next storage class");
                    Done::Nothing
                }
            });
        }
        debug!(bucket = bucket.name, key = object.key, class, "it gets another storage class");
        let attributes = attributes::write(&attributes_of(&object));
        let change = Reclass { seen: object, cos: cos.clone(), storage_class: class, attributes };
        self.door.catalog.reclass(change).await.map(|()| Done::Moved)
    }

    async fn uploads(&self, bucket: &Bucket, rules: &Rules, tally: &mut Tally) -> catalog::Result<()> {
        let now = self.door.catalog.now();
        let mut after: Option<(String, u64)> = None;
        while !self.shutdown.is_stopping() {
            let behind = after.as_ref().map(|(key, id)| (key.as_str(), Some(*id)));
            let page = self.door.catalog.uploads(bucket.entry, behind, "", PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.key.clone(), last.id));
            for upload in page.iter().filter(|upload| rules.aborts(&upload.key, upload.created, self.calendar, now)) {
                match self.door.catalog.abort_upload(upload.id).await {
                    Ok(()) => tally.aborted += 1,
                    Err(CatalogError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// The current version is removed, or hidden, if it is the one that was seen.
fn expire(bucket: &Bucket, object: Object) -> DeleteObject {
    DeleteObject {
        bucket: bucket.entry,
        precondition: object.data.as_ref().map(|data| as_seen(data, &object)).unwrap_or_default(),
        key: object.key,
        version: None,
        owner: bucket.owner.clone(),
        bypass: false,
        only_hidden: false,
        cause: Cause::lifecycle(),
    }
}

/// A version that is not current, or a delete marker, is removed for good.
fn remove(bucket: &Bucket, object: Object) -> DeleteObject {
    DeleteObject {
        bucket: bucket.entry,
        key: object.key,
        version: Some(match object.version.plain {
            true => VersionRef::Plain,
            false => VersionRef::Number(object.version.number),
        }),
        precondition: Precondition::default(),
        owner: bucket.owner.clone(),
        bypass: false,
        only_hidden: true,
        cause: Cause::lifecycle(),
    }
}

/// Behind which a page goes on. The current version is before all others, also if another door wrote it, whose
/// versions have no number of their own.
fn place(object: &Object) -> (String, Option<u64>) {
    let is_current = object.data.as_ref().is_some_and(|data| data.entry.is_some());
    let number = if is_current { i64::MAX.unsigned_abs() } else { object.version.number };
    (object.key.clone(), Some(number))
}

/// A condition that nothing was written since.
fn as_seen(data: &ObjectData, object: &Object) -> Precondition {
    Precondition {
        matches: Some(Tags::Of(vec![data.etag()])),
        matches_none: None,
        size_bytes: Some(data.file.size_bytes),
        modified_s: Some(object.modified.0.div_euclid(1_000_000)),
    }
}
