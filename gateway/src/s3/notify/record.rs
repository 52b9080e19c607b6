//! Events as S3 tells them: JSON. Pure.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Event message structure": the members, and which version of the structure an event has; and
//! "Supported event types", the test event.

use std::collections::BTreeMap;

use catalog::{Event, EventKind, QueuedEvent, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use wire::id::CosName;

use crate::s3::{acl, restore, shown};

/// What stays as it is in a key. Space is written as `+`, as forms do.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*').remove(b'/').remove(b' ');
/// Who is named where the site itself acts, and as whose address.
const SITE: &str = "penstock";

/// What records say besides the event itself.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    /// The region that clients are told.
    pub(super) region: &'a str,
    /// Storage classes and the classes of service they mean.
    pub(super) classes: &'a BTreeMap<String, CosName>,
}

/// A piece of what waits, that is sent as one message.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Message {
    /// The message.
    pub(super) body: Value,
    /// How many events it tells of.
    pub(super) events: usize,
    /// The number of its last event.
    pub(super) last: u64,
}

/// The first message of what waits: as many records as there are before the next test event, or that one, which is no
/// record. `None` if nothing waits.
pub(super) fn next_message(queued: &[QueuedEvent], frame: Frame<'_>) -> Option<Message> {
    let first = queued.first()?;
    if first.event.what.kind == EventKind::Test {
        return Some(Message { body: line(first, frame), events: 1, last: first.number });
    }
    let run = queued.iter().take_while(|queued| queued.event.what.kind != EventKind::Test);
    let records: Vec<_> = run.clone().map(|queued| line(queued, frame)).collect();
    let last = run.last().unwrap_or(first).number;
    Some(Message { events: records.len(), body: json!({ "Records": records }), last })
}

/// One event: a record, or a test event.
pub(super) fn line(queued: &QueuedEvent, frame: Frame<'_>) -> Value {
    let QueuedEvent { number, event } = queued;
    if event.what.kind == EventKind::Test {
        return test(event);
    }
    let mut record = json!({
        "eventVersion": version(event.what.kind),
        "eventSource": "aws:s3",
        "awsRegion": frame.region,
        "eventTime": time(event.at),
        "eventName": event.what.kind.name().trim_start_matches("s3:"),
        "userIdentity": { "principalId": who(event) },
        "requestParameters": { "sourceIPAddress": event.cause.address.as_deref().unwrap_or(SITE) },
        "responseElements": request(event),
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": event.rule,
            "bucket": {
                "name": event.bucket,
                "ownerIdentity": { "principalId": acl::owner(event.bucket_owner.as_str()).id },
                "arn": format!("arn:aws:s3:::{}", event.bucket),
            },
            "object": object(*number, event),
        },
    });
    let members = record.as_object_mut();
    if let (Some(members), Some((name, value))) = (members, more(event, frame)) {
        members.insert(name.to_owned(), value);
    }
    record
}

/// # Source
///
/// "Event message structure": 2.3 for lifecycle events and for the end of a restored copy, 2.1 for the others.
const fn version(kind: EventKind) -> &'static str {
    match kind {
        EventKind::RestoreEnded | EventKind::Moved | EventKind::Expired | EventKind::ExpiredHidden => "2.3",
        _ => "2.1",
    }
}

fn who(event: &Event) -> String {
    let account = event.cause.account.as_ref();
    account.map_or_else(|| SITE.to_owned(), |account| acl::owner(account.as_str()).id.unwrap_or_default())
}

fn request(event: &Event) -> Value {
    let number = event.cause.request.as_ref();
    number.map_or_else(|| json!({}), |number| json!({ "x-amz-request-id": number, "x-amz-id-2": number }))
}

fn object(number: u64, event: &Event) -> Value {
    let what = &event.what;
    let mut object = Map::new();
    object.insert("key".to_owned(), json!(key(&what.key)));
    object.extend(what.size_bytes.map(|size| ("size".to_owned(), json!(size))));
    object.extend(what.etag.as_ref().map(|etag| ("eTag".to_owned(), json!(etag))));
    object.extend(what.version.map(|version| ("versionId".to_owned(), json!(shown::version_id(version)))));
    // Texts of one length compare as their numbers do.
    object.insert("sequencer".to_owned(), json!(format!("{number:016X}")));
    Value::Object(object)
}

/// What only some events have.
fn more(event: &Event, frame: Frame<'_>) -> Option<(&'static str, Value)> {
    let what = &event.what;
    match what.kind {
        EventKind::Restored => {
            let expires = what.expires.map(time);
            let class = what.cos.as_ref().map(|cos| {
                // The class of what is on tape: it was there when it was asked for.
                restore::class_of(what.storage_class.as_deref(), true, cos, frame.classes)
            });
            let data = json!({ "lifecycleRestorationExpiryTime": expires, "lifecycleRestoreStorageClass": class });
            Some(("glacierEventData", json!({ "restoreEventData": data })))
        }
        EventKind::Moved => {
            let data = json!({ "destinationStorageClass": what.moved_to });
            Some(("lifecycleEventData", json!({ "transitionEventData": data })))
        }
        _ => None,
    }
}

fn test(event: &Event) -> Value {
    let request = event.cause.request.as_deref().unwrap_or_default();
    json!({
        "Service": "Amazon S3",
        "Event": event.what.kind.name(),
        "Time": time(event.at),
        "Bucket": event.bucket,
        "RequestId": request,
        "HostId": request,
    })
}

fn key(key: &str) -> String {
    utf8_percent_encode(key, KEY).to_string().replace(' ', "+")
}

/// A time as records have it: to the millisecond.
fn time(time: Timestamp) -> String {
    let millis = time.0.div_euclid(1000).rem_euclid(1000);
    let whole = time::OffsetDateTime::from_unix_timestamp(time.seconds()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (date, hour, minute, second) = (whole.date(), whole.hour(), whole.minute(), whole.second());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use catalog::{Cause, Happening, Version};
    use wire::id::AccountName;

    use super::*;

    fn account(name: &str) -> AccountName {
        AccountName::new(name).expect("a name")
    }

    fn event(what: Happening) -> QueuedEvent {
        let event = Event {
            what,
            bucket: "data".to_owned(),
            bucket_owner: account("alice"),
            rule: "all".to_owned(),
            at: Timestamp(1_764_565_369_123_456),
            cause: Cause {
                address: Some("192.0.2.7".to_owned()),
                request: Some("00AB".to_owned()),
                ..Cause::account(account("bob"))
            },
        };
        QueuedEvent { number: 0x1_2345, event }
    }

    fn classes() -> BTreeMap<String, CosName> {
        let cos = |name: &str| CosName::new(name).expect("a name");
        [("STANDARD".to_owned(), cos("disk")), ("GLACIER".to_owned(), cos("single"))].into()
    }

    fn shown(queued: &QueuedEvent) -> Value {
        line(queued, Frame { region: "us-east-1", classes: &classes() })
    }

    #[test]
    fn a_record_is_amazons() {
        let what = Happening {
            size_bytes: Some(1024),
            etag: Some("d41d".to_owned()),
            ..Happening::of_key(EventKind::CreatedPut, "in/red flower+ü~.jpg".to_owned(), None)
        };
        let wanted = json!({
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2025-12-01T05:02:49.123Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": { "principalId": "bob" },
            "requestParameters": { "sourceIPAddress": "192.0.2.7" },
            "responseElements": { "x-amz-request-id": "00AB", "x-amz-id-2": "00AB" },
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "all",
                "bucket": {
                    "name": "data",
                    "ownerIdentity": { "principalId": "alice" },
                    "arn": "arn:aws:s3:::data",
                },
                "object": {
                    "key": "in/red+flower%2B%C3%BC%7E.jpg",
                    "size": 1024,
                    "eTag": "d41d",
                    "sequencer": "0000000000012345",
                },
            },
        });
        assert_eq!(shown(&event(what)), wanted);
    }

    #[test]
    fn the_site_itself_acts_under_its_own_name() {
        let version = Version { number: 255, plain: false };
        let mut queued = event(Happening::of_key(EventKind::ExpiredHidden, "k".to_owned(), Some(version)));
        queued.event.cause = Cause::lifecycle();
        let record = shown(&queued);
        assert_eq!(record["eventName"], "LifecycleExpiration:DeleteMarkerCreated");
        assert_eq!(record["eventVersion"], "2.3");
        assert_eq!(record["userIdentity"]["principalId"], SITE);
        assert_eq!(
            (&record["requestParameters"]["sourceIPAddress"], &record["responseElements"]),
            (&json!(SITE), &json!({}))
        );
        let object = json!({ "key": "k", "versionId": "00000000000000ff", "sequencer": "0000000000012345" });
        assert_eq!(record["s3"]["object"], object);
    }

    #[test]
    fn a_restored_copy_says_until_when_and_of_which_class() {
        let what = Happening {
            cos: Some(CosName::new("single").expect("a name")),
            storage_class: Some("GLACIER".to_owned()),
            expires: Some(Timestamp(1_764_633_600_000_000)),
            ..Happening::of_key(EventKind::Restored, "k".to_owned(), None)
        };
        let data = &shown(&event(what.clone()))["glacierEventData"]["restoreEventData"];
        assert_eq!(data["lifecycleRestorationExpiryTime"], "2025-12-02T00:00:00.000Z");
        assert_eq!(data["lifecycleRestoreStorageClass"], "GLACIER");
        let unnamed = Happening { storage_class: None, ..what.clone() };
        let data = &shown(&event(unnamed))["glacierEventData"]["restoreEventData"];
        assert_eq!(data["lifecycleRestoreStorageClass"], "GLACIER", "that of its class of service");
        let moved = Happening { kind: EventKind::Moved, moved_to: Some("DEEP_ARCHIVE".to_owned()), ..what };
        let record = shown(&event(moved));
        assert_eq!(record["eventName"], "LifecycleTransition");
        assert_eq!(record["lifecycleEventData"]["transitionEventData"]["destinationStorageClass"], "DEEP_ARCHIVE");
        assert!(record.get("glacierEventData").is_none());
    }

    #[test]
    fn a_test_event_is_a_message_of_its_own() {
        let record = |number, kind| {
            let queued = event(Happening::of_key(kind, "k".to_owned(), None));
            QueuedEvent { number, ..queued }
        };
        let put = EventKind::CreatedPut;
        let queued = [record(1, put), record(2, put), record(3, EventKind::Test), record(4, put)];
        let classes = classes();
        let frame = Frame { region: "us-east-1", classes: &classes };
        let first = next_message(&queued, frame).expect("a message");
        assert_eq!((first.events, first.last, first.body["Records"].as_array().map(Vec::len)), (2, 2, Some(2)));
        let test = next_message(&queued[2..], frame).expect("a message");
        assert_eq!((test.events, test.last), (1, 3));
        assert_eq!(test.body["Event"], "s3:TestEvent");
        assert_eq!((&test.body["Bucket"], &test.body["RequestId"]), (&json!("data"), &json!("00AB")));
        assert_eq!(next_message(&queued[3..], frame).expect("a message").last, 4);
        assert_eq!(next_message(&[], frame), None);
    }
}
