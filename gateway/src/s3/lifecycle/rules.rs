//! What a bucket's lifecycle rules say of a version at a moment. Pure.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Lifecycle configuration elements" and "Lifecycle and other bucket configurations": filters,
//! days that end at midnight.

use std::time::Duration;

use catalog::Timestamp;
use s3s::{
    dto::{BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule, Timestamp as Date},
    xml::{Deserialize as _, Deserializer},
};

use crate::s3::shown;

const DAY: Duration = Duration::from_secs(86_400);

/// The rules of a bucket that are in force.
#[derive(Debug, Default)]
pub(in crate::s3) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    id: String,
    filter: Filter,
    /// When current versions expire.
    expires: Option<Due>,
    /// Delete markers that hide nothing are removed.
    clears_markers: bool,
    /// When versions that are not current are removed.
    removes_hidden: Option<Hidden>,
    /// Storage classes that current versions get.
    moves: Vec<(Due, String)>,
    /// Storage classes that versions get that are not current.
    moves_hidden: Vec<(Hidden, String)>,
    /// After how many days an upload is given up.
    aborts: Option<u32>,
}

/// Which versions a rule is for.
#[derive(Debug, Default)]
struct Filter {
    prefixes: Vec<String>,
    tags: Vec<(String, String)>,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Days(u32),
    From(Timestamp),
}

/// So many days after it stopped being current, if so many newer ones that are not current are kept.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    days: u32,
    newer: u32,
}

/// How long a day is.
#[derive(Clone, Copy, Debug)]
pub(in crate::s3) struct Calendar {
    day: Duration,
}

/// A version, as the rules look at it.
#[derive(Clone, Copy, Debug)]
pub(in crate::s3) struct Subject<'a> {
    pub(in crate::s3) key: &'a str,
    pub(in crate::s3) modified: Timestamp,
    /// Its length in bytes and its tags; a delete marker has none.
    pub(in crate::s3) data: Option<(u64, &'a [(String, String)])>,
    /// Its storage class.
    pub(in crate::s3) class: &'a str,
    pub(in crate::s3) state: State,
}

/// A version's place among those of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::s3) enum State {
    /// It is the newest, and no delete marker.
    Current,
    /// It has not been the newest since then; so many versions that are not current either are newer.
    Hidden { since: Timestamp, newer: u32 },
    /// A delete marker that is the only version.
    LoneMarker,
    /// A delete marker that hides others.
    Marker,
}

/// What is to be done with a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::s3) enum Deed {
    /// The current version is removed, or hidden if the bucket keeps versions.
    Expire,
    /// The version, or the delete marker, is removed for good.
    Remove,
    /// It gets a storage class.
    Move(String),
}

impl Calendar {
    /// Days as they are.
    pub(in crate::s3) const TRUE: Self = Self { day: DAY };

    /// Days of another length, for tests.
    pub(in crate::s3) const fn of(day: Duration) -> Self {
        Self { day }
    }

    /// So many days later, and on to midnight UTC. A day of another length has no midnight.
    fn after(self, from: Timestamp, days: u32) -> Timestamp {
        let due = from.after(self.day.saturating_mul(days));
        if self.day != DAY {
            return due;
        }
        let day = i64::try_from(DAY.as_micros()).unwrap_or(i64::MAX);
        Timestamp(due.0.saturating_add(day - 1).div_euclid(day).saturating_mul(day))
    }

    fn due(self, due: Due, from: Timestamp) -> Timestamp {
        match due {
            Due::Days(days) => self.after(from, days),
            Due::From(date) => date,
        }
    }
}

impl Filter {
    fn of(rule: &LifecycleRule) -> Self {
        let filter = rule.filter.clone().unwrap_or_default();
        let and = filter.and.unwrap_or_default();
        // What is said in several places must hold in all of them.
        let prefixes = [rule.prefix.clone(), filter.prefix, and.prefix].into_iter().flatten().collect();
        let tags = filter.tag.into_iter().chain(and.tags.unwrap_or_default());
        let tags = tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
        let larger = [filter.object_size_greater_than, and.object_size_greater_than];
        let smaller = [filter.object_size_less_than, and.object_size_less_than];
        let size = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
        Self {
            prefixes,
            tags,
            larger_than: larger.into_iter().flatten().map(size).max(),
            smaller_than: smaller.into_iter().flatten().map(size).min(),
        }
    }

    /// It looks at the key alone.
    fn is_plain(&self) -> bool {
        self.tags.is_empty() && self.larger_than.is_none() && self.smaller_than.is_none()
    }

    fn takes(&self, subject: &Subject<'_>) -> bool {
        if !self.prefixes.iter().all(|prefix| subject.key.starts_with(prefix.as_str())) {
            return false;
        }
        let Some((size, tags)) = subject.data else { return self.is_plain() };
        self.larger_than.is_none_or(|than| size > than)
            && self.smaller_than.is_none_or(|than| size < than)
            && self.tags.iter().all(|tag| tags.contains(tag))
    }
}

impl Rule {
    fn of(rule: &LifecycleRule) -> Self {
        let (expires, clears_markers) = rule.expiration.as_ref().map_or((None, false), expiration);
        let removes_hidden = rule.noncurrent_version_expiration.as_ref();
        let removes_hidden = removes_hidden.map(|of| hidden(of.noncurrent_days, of.newer_noncurrent_versions));
        let moves =
            rule.transitions.iter().flatten().filter_map(|of| {
                Some((due(of.days, of.date.as_ref())?, of.storage_class.as_ref()?.as_str().to_owned()))
            });
        let moves_hidden = rule.noncurrent_version_transitions.iter().flatten().filter_map(|of| {
            let class = of.storage_class.as_ref()?.as_str().to_owned();
            Some((hidden(of.noncurrent_days, of.newer_noncurrent_versions), class))
        });
        let aborts = rule.abort_incomplete_multipart_upload.as_ref().and_then(|of| of.days_after_initiation);
        Self {
            id: rule.id.clone().unwrap_or_default(),
            filter: Filter::of(rule),
            expires,
            clears_markers,
            removes_hidden,
            moves: moves.collect(),
            moves_hidden: moves_hidden.collect(),
            aborts: aborts.map(count),
        }
    }

    /// Whether the version goes for good.
    fn removes(&self, subject: &Subject<'_>, calendar: Calendar, now: Timestamp) -> bool {
        match subject.state {
            State::Current | State::Marker => false,
            State::Hidden { since, newer } => {
                self.removes_hidden.is_some_and(|rule| rule.is_due(since, newer, calendar, now))
            }
            State::LoneMarker => {
                self.clears_markers || self.expires.is_some_and(|due| calendar.due(due, subject.modified) <= now)
            }
        }
    }

    /// Storage classes that the version has come to, with when.
    fn classes(&self, subject: &Subject<'_>, calendar: Calendar, now: Timestamp) -> Vec<(Timestamp, &str)> {
        let mut classes: Vec<(Timestamp, &str)> = match subject.state {
            _ if subject.data.is_none() => Vec::new(),
            State::Current => {
                let due = |due: &Due| calendar.due(*due, subject.modified);
                self.moves.iter().map(|(when, class)| (due(when), class.as_str())).collect()
            }
            State::Hidden { since, newer } => {
                let ripe = self.moves_hidden.iter().filter(|(rule, _)| newer >= rule.newer);
                ripe.map(|(rule, class)| (calendar.after(since, rule.days), class.as_str())).collect()
            }
            State::LoneMarker | State::Marker => Vec::new(),
        };
        classes.retain(|(due, _)| *due <= now);
        classes
    }
}

impl Hidden {
    fn is_due(self, since: Timestamp, newer: u32, calendar: Calendar, now: Timestamp) -> bool {
        newer >= self.newer && calendar.after(since, self.days) <= now
    }
}

impl Rules {
    /// The rules of a configuration as it is kept; `None` if it is none.
    pub(in crate::s3) fn read(xml: &str) -> Option<Self> {
        let mut reader = Deserializer::new(xml.as_bytes());
        let found = BucketLifecycleConfiguration::deserialize(&mut reader).ok()?;
        let in_force = found.rules.iter().filter(|rule| rule.status.as_str() == ExpirationStatus::ENABLED);
        Some(Self(in_force.map(Rule::of).collect()))
    }

    fn taking<'r>(&'r self, subject: &Subject<'_>) -> impl Iterator<Item = &'r Rule> {
        self.0.iter().filter(|rule| rule.filter.takes(subject))
    }

    /// What is to be done with a version now. Removal for good goes before expiry, and that before a storage class; of
    /// those the one it has come to last.
    pub(in crate::s3) fn deed(&self, subject: &Subject<'_>, calendar: Calendar, now: Timestamp) -> Option<Deed> {
        if self.taking(subject).any(|rule| rule.removes(subject, calendar, now)) {
            return Some(Deed::Remove);
        }
        if self.expiry(subject, calendar).is_some_and(|(due, _)| due <= now) {
            return Some(Deed::Expire);
        }
        let classes = self.taking(subject).flat_map(|rule| rule.classes(subject, calendar, now));
        let last = classes.max_by_key(|(due, _)| *due).map(|(_, class)| class);
        last.filter(|class| is_colder(class, subject.class)).map(|class| Deed::Move(class.to_owned()))
    }

    /// When the current version expires, and by which rule: the first of all that do.
    pub(in crate::s3) fn expiry(&self, subject: &Subject<'_>, calendar: Calendar) -> Option<(Timestamp, &str)> {
        if subject.state != State::Current {
            return None;
        }
        let due = self
            .taking(subject)
            .filter_map(|rule| Some((calendar.due(rule.expires?, subject.modified), rule.id.as_str())));
        due.min_by_key(|(due, _)| *due)
    }

    /// Whether an upload in parts is given up. It has neither tags nor a length.
    pub(in crate::s3) fn aborts(&self, key: &str, begun: Timestamp, calendar: Calendar, now: Timestamp) -> bool {
        let upload = Subject { key, modified: begun, data: None, class: "", state: State::Marker };
        self.taking(&upload).any(|rule| rule.aborts.is_some_and(|days| calendar.after(begun, days) <= now))
    }

    /// Whether any rule gives up uploads.
    pub(in crate::s3) fn abort_any(&self) -> bool {
        self.0.iter().any(|rule| rule.aborts.is_some())
    }
}

/// Amazon's storage classes, in the order in which rules may move versions through them.
const COLDER: [&str; 7] =
    ["STANDARD", "STANDARD_IA", "INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"];

/// Whether a rule moves a version of a class to another. A version never comes back by a rule; a class of the site's own
/// is on neither side of others.
fn is_colder(class: &str, than: &str) -> bool {
    let place = |class| COLDER.iter().position(|known| *known == class);
    match (place(class), place(than)) {
        (Some(class), Some(than)) => class > than,
        _ => class != than,
    }
}

fn expiration(of: &LifecycleExpiration) -> (Option<Due>, bool) {
    (due(of.days, of.date.as_ref()), of.expired_object_delete_marker == Some(true))
}

fn due(days: Option<i32>, date: Option<&Date>) -> Option<Due> {
    let date = date.map(|date| Due::From(Timestamp(shown::micros(date))));
    days.map(|days| Due::Days(count(days))).or(date)
}

fn hidden(days: Option<i32>, newer: Option<i32>) -> Hidden {
    Hidden { days: days.map(count).unwrap_or_default(), newer: newer.map(count).unwrap_or_default() }
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: i64 = 86_400_000_000;

    fn rules(inside: &str) -> Rules {
        let text = format!(
            "<LifecycleConfiguration><Rule><ID>one</ID><Status>Enabled</Status>{inside}</Rule></LifecycleConfiguration>"
        );
        Rules::read(&text).expect("rules")
    }

    fn subject<'a>(key: &'a str, state: State, tags: &'a [(String, String)]) -> Subject<'a> {
        Subject { key, modified: Timestamp(DAY_US / 2), data: Some((1000, tags)), class: "STANDARD", state }
    }

    fn deed(rules: &Rules, subject: &Subject<'_>, half_days: i64) -> Option<Deed> {
        rules.deed(subject, Calendar::TRUE, Timestamp(half_days * DAY_US / 2))
    }

    #[test]
    fn days_end_at_the_next_midnight_and_short_ones_where_they_end() {
        let noon = Timestamp(DAY_US / 2);
        assert_eq!(Calendar::TRUE.after(noon, 1), Timestamp(2 * DAY_US));
        assert_eq!(Calendar::TRUE.after(Timestamp(DAY_US), 1), Timestamp(2 * DAY_US));
        assert_eq!(Calendar::of(Duration::from_secs(4)).after(noon, 2), noon.after(Duration::from_secs(8)));
    }

    #[test]
    fn a_current_version_expires_by_the_first_rule_that_is_due() {
        let rules = rules("<Filter><Prefix>a/</Prefix></Filter><Expiration><Days>1</Days></Expiration>");
        let there = subject("a/b", State::Current, &[]);
        assert_eq!(deed(&rules, &there, 3), None);
        assert_eq!(deed(&rules, &there, 4), Some(Deed::Expire));
        assert_eq!(rules.expiry(&there, Calendar::TRUE), Some((Timestamp(2 * DAY_US), "one")));
        assert_eq!(deed(&rules, &subject("b", State::Current, &[]), 40), None);
        assert_eq!(deed(&rules, &subject("a/b", State::Marker, &[]), 40), None);
        let hidden = State::Hidden { since: Timestamp(0), newer: 9 };
        assert_eq!(deed(&rules, &subject("a/b", hidden, &[]), 40), None);
    }

    #[test]
    fn a_rule_that_is_off_does_nothing() {
        let text = "<LifecycleConfiguration><Rule><Status>Disabled</Status><Prefix></Prefix>\
                    <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
        let rules = Rules::read(text).expect("rules");
        assert_eq!(deed(&rules, &subject("a", State::Current, &[]), 40), None);
    }

    #[test]
    fn a_date_is_for_all_that_is_there_then() {
        let rules = rules("<Prefix></Prefix><Expiration><Date>1970-01-03T00:00:00Z</Date></Expiration>");
        let there = subject("a", State::Current, &[]);
        assert_eq!(deed(&rules, &there, 3), None);
        assert_eq!(deed(&rules, &there, 4), Some(Deed::Expire));
    }

    #[test]
    fn versions_go_when_they_have_been_hidden_long_enough_and_enough_newer_ones_stay() {
        let rules = rules(
            "<Filter></Filter><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>\
             <NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
        );
        let hidden = |newer| subject("a", State::Hidden { since: Timestamp(DAY_US), newer }, &[]);
        assert_eq!(deed(&rules, &hidden(2), 3), None);
        assert_eq!(deed(&rules, &hidden(2), 4), Some(Deed::Remove));
        assert_eq!(deed(&rules, &hidden(1), 40), None);
        assert_eq!(deed(&rules, &subject("a", State::Current, &[]), 40), None);
    }

    #[test]
    fn tags_and_lengths_of_all_places_must_hold() {
        let rules = rules(
            "<Filter><Tag><Key>x</Key><Value>1</Value></Tag><And><ObjectSizeGreaterThan>999</ObjectSizeGreaterThan>\
             <ObjectSizeLessThan>1001</ObjectSizeLessThan><Tag><Key>y</Key><Value>2</Value></Tag></And></Filter>\
             <Expiration><Days>1</Days></Expiration>",
        );
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let (both, one) = ([tag("x", "1"), tag("y", "2"), tag("z", "3")], [tag("x", "1")]);
        assert_eq!(deed(&rules, &subject("a", State::Current, &both), 40), Some(Deed::Expire));
        assert_eq!(deed(&rules, &subject("a", State::Current, &one), 40), None);
        let large = Subject { data: Some((1001, &both)), ..subject("a", State::Current, &both) };
        assert_eq!(deed(&rules, &large, 40), None);
        let marker = Subject { data: None, ..subject("a", State::LoneMarker, &both) };
        assert_eq!(deed(&rules, &marker, 40), None);
    }

    #[test]
    fn a_delete_marker_that_hides_nothing_goes() {
        let marker = |state| Subject { data: None, ..subject("a", state, &[]) };
        let at_once = rules(
            "<Prefix></Prefix><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
        );
        assert_eq!(deed(&at_once, &marker(State::LoneMarker), 1), Some(Deed::Remove));
        assert_eq!(deed(&at_once, &marker(State::Marker), 40), None);
        let by_age = rules("<Prefix></Prefix><Expiration><Days>1</Days></Expiration>");
        assert_eq!(deed(&by_age, &marker(State::LoneMarker), 3), None);
        assert_eq!(deed(&by_age, &marker(State::LoneMarker), 4), Some(Deed::Remove));
    }

    #[test]
    fn a_version_gets_the_class_it_has_come_to_last_until_it_expires() {
        let rules = rules(
            "<Prefix></Prefix><Transition><Days>3</Days><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>\
             <Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>\
             <Expiration><Days>5</Days></Expiration>",
        );
        let there = subject("a", State::Current, &[]);
        assert_eq!(deed(&rules, &there, 3), None);
        assert_eq!(deed(&rules, &there, 4), Some(Deed::Move("GLACIER".to_owned())));
        assert_eq!(deed(&rules, &there, 8), Some(Deed::Move("DEEP_ARCHIVE".to_owned())));
        assert_eq!(deed(&rules, &there, 12), Some(Deed::Expire));
    }

    #[test]
    fn a_version_never_comes_back_to_a_warmer_class_and_moves_once() {
        let rules =
            rules("<Prefix></Prefix><Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>");
        let of = |class| deed(&rules, &Subject { class, ..subject("a", State::Current, &[]) }, 4);
        assert_eq!(of("GLACIER"), None);
        assert_eq!(of("DEEP_ARCHIVE"), None);
        assert_eq!(of("GLACIER_IR"), Some(Deed::Move("GLACIER".to_owned())));
        assert_eq!(of("OURS"), Some(Deed::Move("GLACIER".to_owned())), "a class of the site's own");
    }

    #[test]
    fn an_upload_is_given_up_after_its_days() {
        let rules = rules(
            "<Prefix>a</Prefix><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
             </AbortIncompleteMultipartUpload>",
        );
        let aborts = |key, days| rules.aborts(key, Timestamp(1), Calendar::TRUE, Timestamp(days * DAY_US));
        assert!(rules.abort_any() && aborts("ab", 2));
        assert!(!aborts("ab", 1) && !aborts("b", 9));
    }
}
