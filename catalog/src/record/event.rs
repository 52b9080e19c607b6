//! What is told of a bucket: the kinds of events, the rules that choose among them, and who caused them.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Event notification types and destinations" and "Configuring event notifications using object
//! key name filtering".

use serde::{Deserialize, Serialize};
use wire::id::{AccountName, CosName};

use crate::record::s3::{Object, Version};
use crate::time::Timestamp;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
#[non_exhaustive]
pub enum EventKind {
    /// A PUT, or a file that another door wrote.
    CreatedPut,
    /// A form.
    CreatedPost,
    /// A copy, or a file that another door moved here.
    CreatedCopy,
    /// An upload in parts that was completed.
    CreatedParts,
    /// A version was removed for good.
    Removed,
    /// A key was hidden behind a delete marker.
    Hidden,
    /// A recall from tape was asked for.
    RestoreAsked,
    /// A copy is back on disk.
    Restored,
    /// The copy that was brought back left the disk again.
    RestoreEnded,
    /// A lifecycle rule gave a version another storage class.
    Moved,
    /// A lifecycle rule removed a version for good.
    Expired,
    /// A lifecycle rule hid a key behind a delete marker.
    ExpiredHidden,
    /// Somebody set the rules: destinations hear that they are named.
    Test,
}

impl EventKind {
    /// Every kind that a rule can name.
    pub const NAMED: [Self; 12] = [
        Self::CreatedPut,
        Self::CreatedPost,
        Self::CreatedCopy,
        Self::CreatedParts,
        Self::Removed,
        Self::Hidden,
        Self::RestoreAsked,
        Self::Restored,
        Self::RestoreEnded,
        Self::Moved,
        Self::Expired,
        Self::ExpiredHidden,
    ];

    /// What S3 calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreatedPut => "s3:ObjectCreated:Put",
            Self::CreatedPost => "s3:ObjectCreated:Post",
            Self::CreatedCopy => "s3:ObjectCreated:Copy",
            Self::CreatedParts => "s3:ObjectCreated:CompleteMultipartUpload",
            Self::Removed => "s3:ObjectRemoved:Delete",
            Self::Hidden => "s3:ObjectRemoved:DeleteMarkerCreated",
            Self::RestoreAsked => "s3:ObjectRestore:Post",
            Self::Restored => "s3:ObjectRestore:Completed",
            Self::RestoreEnded => "s3:ObjectRestore:Delete",
            Self::Moved => "s3:LifecycleTransition",
            Self::Expired => "s3:LifecycleExpiration:Delete",
            Self::ExpiredHidden => "s3:LifecycleExpiration:DeleteMarkerCreated",
            Self::Test => "s3:TestEvent",
        }
    }

    /// Whether a rule that names `pattern` means it: its name, or that of its group with `*` for the rest.
    #[must_use]
    pub fn is_named_by(self, pattern: &str) -> bool {
        match pattern.strip_suffix(":*") {
            Some(group) => self.name().strip_prefix(group).is_some_and(|rest| rest.starts_with(':')),
            None => self.name() == pattern,
        }
    }
}

impl From<EventKind> for &'static str {
    fn from(kind: EventKind) -> Self {
        kind.name()
    }
}

/// A name of an event that is none of ours.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no event {0:?}")]
pub struct UnknownEvent(String);

impl TryFrom<String> for EventKind {
    type Error = UnknownEvent;

    fn try_from(name: String) -> Result<Self, UnknownEvent> {
        let mut all = Self::NAMED.into_iter().chain([Self::Test]);
        all.find(|kind| kind.name() == name).ok_or(UnknownEvent(name))
    }
}

/// A rule of a bucket: which events of which keys go where.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventRule {
    /// How its owner calls it.
    pub id: String,
    /// Where events go: a name of the gateway's configuration.
    pub destination: String,
    /// It was set as a topic, not as a queue. Both are the same here.
    pub topic: bool,
    /// Names of events, or of groups with `*` for the rest.
    pub events: Vec<String>,
    /// How keys begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// How keys end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
}

impl EventRule {
    /// Whether it wants to hear of this.
    #[must_use]
    pub fn wants(&self, kind: EventKind, key: &str) -> bool {
        self.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
            && self.suffix.as_deref().is_none_or(|suffix| key.ends_with(suffix))
            && self.events.iter().any(|pattern| kind.is_named_by(pattern))
    }
}

/// In what way something came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Way {
    /// By a PUT or a DELETE of S3, or by another door.
    #[default]
    Plain,
    /// By a form.
    Form,
    /// By a copy.
    Copy,
    /// By an upload in parts.
    Parts,
    /// By a lifecycle rule.
    Lifecycle,
}

impl Way {
    /// What is told of a version that came this way.
    #[must_use]
    pub const fn created(self) -> EventKind {
        match self {
            Self::Plain | Self::Lifecycle => EventKind::CreatedPut,
            Self::Form => EventKind::CreatedPost,
            Self::Copy => EventKind::CreatedCopy,
            Self::Parts => EventKind::CreatedParts,
        }
    }

    /// What is told of a version that went this way, or of a key that was `hidden`.
    #[must_use]
    pub const fn removed(self, hidden: bool) -> EventKind {
        match (self, hidden) {
            (Self::Lifecycle, true) => EventKind::ExpiredHidden,
            (Self::Lifecycle, false) => EventKind::Expired,
            (_, true) => EventKind::Hidden,
            (_, false) => EventKind::Removed,
        }
    }
}

/// Who caused a change, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// In what way.
    pub way: Way,
    /// Whose request it was; `None` where the site itself acts, or the door does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountName>,
    /// From which address it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The request's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Cause {
    /// The site's own lifecycle rules.
    #[must_use]
    pub const fn lifecycle() -> Self {
        Self { way: Way::Lifecycle, account: None, address: None, request: None }
    }

    /// An account, by a door that tells no more.
    #[must_use]
    pub const fn account(account: AccountName) -> Self {
        Self { way: Way::Plain, account: Some(account), address: None, request: None }
    }
}

/// What happened to a version of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Happening {
    /// What.
    pub kind: EventKind,
    /// The key; empty of a test.
    pub key: String,
    /// Which version, in a bucket that keeps them or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// How long it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Its entity tag, without quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The storage class that its writer named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Its class of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cos: Option<CosName>,
    /// Until when a restored copy stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The storage class that a transition gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

impl Happening {
    /// Something about a key, of which no more is told.
    #[must_use]
    pub const fn of_key(kind: EventKind, key: String, version: Option<Version>) -> Self {
        Self {
            kind,
            key,
            version,
            size_bytes: None,
            etag: None,
            storage_class: None,
            cos: None,
            expires: None,
            moved_to: None,
        }
    }

    /// Something about a version that is there.
    #[must_use]
    pub fn of_object(kind: EventKind, object: &Object) -> Self {
        let mut happening = Self::of_key(kind, object.key.clone(), Some(object.version));
        if let Some(data) = &object.data {
            happening.size_bytes = Some(data.file.size_bytes);
            happening.etag = Some(data.etag());
            happening.storage_class.clone_from(&data.storage_class);
            happening.cos = Some(data.file.cos.clone());
        }
        happening
    }
}

/// An event: what happened, where, when, who caused it, and by which rule it is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// What.
    #[serde(flatten)]
    pub what: Happening,
    /// The bucket.
    pub bucket: String,
    /// Whose the bucket is.
    pub bucket_owner: AccountName,
    /// The rule that wants it told.
    pub rule: String,
    /// When.
    pub at: Timestamp,
    /// Who caused it.
    pub cause: Cause,
}

/// An event that waits to be delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedEvent {
    /// Its place: greater than that of all events that were committed before it.
    pub number: u64,
    /// The event.
    pub event: Event,
}

/// Events that nobody will hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventsDropped {
    /// They had waited too long.
    pub old: u64,
    /// There were too many.
    pub many: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written_and_a_group_means_all_of_it() {
        for kind in EventKind::NAMED {
            assert_eq!(EventKind::try_from(kind.name().to_owned()), Ok(kind));
            assert!(kind.is_named_by(kind.name()));
        }
        assert!(EventKind::try_from("s3:ObjectCreated:*".to_owned()).is_err());
        assert!(EventKind::CreatedParts.is_named_by("s3:ObjectCreated:*"));
        assert!(!EventKind::CreatedParts.is_named_by("s3:ObjectRemoved:*"));
        assert!(!EventKind::Expired.is_named_by("s3:LifecycleTransition"));
        assert!(!EventKind::CreatedPut.is_named_by("s3:Object:*"));
        assert!(!EventKind::Moved.is_named_by("s3:LifecycleTransition:*"), "it has no group");
        assert!(EventKind::Hidden.is_named_by("s3:ObjectRemoved:DeleteMarkerCreated"));
    }

    #[test]
    fn a_rule_wants_what_it_names_of_keys_that_begin_and_end_so() {
        let rule = EventRule {
            events: vec!["s3:ObjectCreated:*".to_owned(), "s3:ObjectRemoved:Delete".to_owned()],
            prefix: Some("in/".to_owned()),
            suffix: Some(".dat".to_owned()),
            ..EventRule::default()
        };
        assert!(rule.wants(EventKind::CreatedPut, "in/a.dat"));
        assert!(rule.wants(EventKind::Removed, "in/.dat"));
        assert!(!rule.wants(EventKind::Hidden, "in/a.dat"), "it is not named");
        assert!(!rule.wants(EventKind::CreatedPut, "out/a.dat") && !rule.wants(EventKind::CreatedPut, "in/a.txt"));
        let all = EventRule { prefix: None, suffix: None, ..rule };
        assert!(all.wants(EventKind::CreatedCopy, ""));
    }

    #[test]
    fn an_event_is_read_from_its_row_as_it_was() {
        let event = Event {
            what: Happening {
                size_bytes: Some(5),
                version: Some(Version { number: 7, plain: false }),
                ..Happening::of_key(EventKind::Restored, "a b".to_owned(), None)
            },
            bucket: "data".to_owned(),
            bucket_owner: AccountName::new("alice").expect("a name"),
            rule: "r".to_owned(),
            at: Timestamp(5),
            cause: Cause::account(AccountName::new("bob").expect("a name")),
        };
        let text = serde_json::to_string(&event).expect("a text");
        assert_eq!(serde_json::from_str::<Event>(&text).expect("an event"), event, "{text}");
        assert!(text.contains("\"s3:ObjectRestore:Completed\""), "{text}");
    }
}
