//! Lifecycle rules: versions get another class of service, expire and are removed by the clock, uploads are given up.
//!
//! - [`rules`]: what is to be done with a version, pure. `trail`: the order of a key's versions, pure.
//! - `walk`: goes through buckets that have rules, page by page, and does it.
//!
//! One gateway at a time walks, under a lease. Every deed is a transaction that looks again: what was written, locked
//! or became current since the page was read stays.

mod rules;
mod trail;
mod walk;

use catalog::Object;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use self::rules::{Calendar, Rules, State, Subject};
pub(super) use self::walk::start;
use super::{
    access::{BucketView, attributes_of},
    restore::STANDARD,
    shown,
};

/// What a rule's name is escaped in (RFC 3986 section 2.3: the unreserved stay).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// When an object expires and by which rule, as `x-amz-expiration` says it. Days are real ones, whatever
/// `lifecycle_day` is.
pub(super) fn expiration(view: &BucketView, object: &Object) -> Option<String> {
    let rules = Rules::read(view.settings.lifecycle.as_deref()?)?;
    let data = object.data.as_ref().filter(|_| object.latest)?;
    let attributes = attributes_of(object);
    let subject = Subject {
        key: &object.key,
        modified: object.modified,
        data: Some((data.file.size_bytes, &attributes.tags)),
        class: named_class(object),
        state: State::Current,
    };
    let (due, rule) = rules.expiry(&subject, Calendar::TRUE)?;
    let (due, rule) = (shown::http_date(&shown::timestamp(due)), utf8_percent_encode(rule, ESCAPED));
    Some(format!("expiry-date=\"{due}\", rule-id=\"{rule}\""))
}

/// The class that a version's writer named, or a rule.
fn named_class(object: &Object) -> &str {
    object.data.as_ref().and_then(|data| data.storage_class.as_deref()).unwrap_or(STANDARD)
}
