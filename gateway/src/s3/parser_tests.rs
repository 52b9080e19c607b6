//! What peers write, as the door's parsers take it: no text makes one fall over, what is read keeps its limits, and what
//! was written is read back. Bounded runs; proptest prints the text that fails, made small.

use std::collections::BTreeMap;

use hyper::{HeaderMap, Method, Uri, header::HeaderValue};
use proptest::prelude::*;
use s3s::{
    dto::{BucketLifecycleConfiguration, Range},
    post_policy::PostPolicy,
    xml::{Deserialize as _, Deserializer, Serialize as _, Serializer},
};
use time::OffsetDateTime;

use super::{
    access::pairs,
    acl::{Acl, GrantHeaders},
    policy::{Policy, Question, Verdict, matches},
    settings::check_lifecycle,
    shown::version_ref,
    sigv2::{self, Claim},
    uploads::copy_range,
};

/// Texts that look like what a parser wants, and any others.
fn near(like: &'static str) -> impl Strategy<Value = String> {
    prop_oneof![like.prop_map(|text| text), any::<String>(), "[ -~]{0,80}"]
}

/// Whether a text is of a form, told the slow and plain way.
fn matches_plainly(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            matches_plainly(&pattern[1..], text) || (!text.is_empty() && matches_plainly(pattern, &text[1..]))
        }
        (Some(p), Some(t)) => (*p == b'?' || p == t) && matches_plainly(&pattern[1..], &text[1..]),
        _ => false,
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn a_range_of_a_copy_lies_within_its_object(
        text in near("bytes=[0-9]{0,21}-[0-9]{0,21}"),
        size in prop_oneof![any::<u64>(), 0..100_u64],
    ) {
        let size = size.min(i64::MAX as u64);
        if let Ok(range) = copy_range(&text, size) {
            prop_assert!(range.end() <= size && range.length() > 0);
            prop_assert!(text.starts_with("bytes="));
        }
    }

    #[test]
    fn a_range_of_an_object_lies_within_it(
        text in near("bytes=[0-9]{0,21}-[0-9]{0,21}"),
        size in prop_oneof![any::<u64>(), 0..100_u64],
    ) {
        if let Some(range) = Range::parse(&text).ok().and_then(|range| range.check(size).ok()) {
            prop_assert!(range.start <= range.end && range.end <= size);
        }
    }

    #[test]
    fn pairs_are_read_as_they_were_escaped(list in prop::collection::vec((any::<String>(), any::<String>()), 0..6)) {
        let list: Vec<_> = list.into_iter().filter(|(name, value)| !name.is_empty() || !value.is_empty()).collect();
        let text = list.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
        prop_assert_eq!(pairs(&text.collect::<Vec<_>>().join("&")), list);
    }

    #[test]
    fn any_text_has_pairs(text in near("[a-z%+=&0-9A-F]{0,60}")) {
        prop_assert!(pairs(&text).len() <= text.matches('&').count() + 1);
    }

    #[test]
    fn a_pattern_matches_as_the_plain_way_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(matches(&pattern, &text), matches_plainly(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn any_text_is_a_policy_or_is_refused(text in near(
        "\\{\"Statement\":\\[?\\{\"Effect\":\"(Allow|Deny)\",\"Principal\":(\"\\*\"|\\{\"AWS\":\\[\"a\"\\]\\}|7|null),\
         \"Action\":(\"s3:[A-Z*]{0,3}\"|\\[\\]),\"Resource\":\"arn:aws:s3:::b(/\\*)?\"\
         (,\"Condition\":\\{\"(IpAddress|Bool|NumericEquals|Null)\":\\{\"aws:x\":(\"1\"|\\[1,true\\]|\\{\\})\\}\\})?\\}\\]?\\}"
    )) {
        if let Ok(policy) = Policy::read(&text, "b") {
            let facts = BTreeMap::from([("aws:x".to_owned(), vec!["1".to_owned()])]);
            let ask = |resource| Question { account: Some("a"), action: "s3:A", resource, facts: facts.clone() };
            // What is not of the bucket was refused when it was read.
            prop_assert_eq!(policy.says(&ask("arn:aws:s3:::other/key")), Verdict::Silent);
            let _ = policy.says(&ask("arn:aws:s3:::b/key"));
        }
    }

    #[test]
    fn a_denial_of_everything_beats_whatever_else_a_policy_says(
        actions in prop::collection::vec("s3:[A-C*]{1,2}", 1..4),
    ) {
        let statement = |effect: &str, actions: &[String]| serde_json::json!({
            "Effect": effect, "Principal": "*", "Action": actions, "Resource": "arn:aws:s3:::b/*",
        });
        let all = ["s3:*".to_owned()];
        let document = serde_json::json!({"Statement": [statement("Allow", &actions), statement("Deny", &all)]});
        let policy = Policy::read(&document.to_string(), "b").expect("a policy");
        let question =
            Question { account: None, action: "s3:A", resource: "arn:aws:s3:::b/k", facts: BTreeMap::new() };
        prop_assert_eq!(policy.says(&question), Verdict::Deny);
    }

    #[test]
    fn any_text_is_a_lifecycle_or_is_refused_and_a_good_one_is_read_as_it_was_kept(text in near(
        "<LifecycleConfiguration>(<Rule>(<ID>[a-c]{0,3}</ID>)?<Prefix>[a-z]{0,3}</Prefix><Status>(Enabled|Off)</Status>\
         (<Expiration><Days>-?[0-9]{1,3}</Days></Expiration>)?\
         (<AbortIncompleteMultipartUpload><DaysAfterInitiation>[0-9]</DaysAfterInitiation></AbortIncompleteMultipartUpload>)?\
         </Rule>){0,3}</LifecycleConfiguration>"
    )) {
        let read = |text: &[u8]| BucketLifecycleConfiguration::deserialize(&mut Deserializer::new(text));
        if let Ok(mut found) = read(text.as_bytes())
            && check_lifecycle(&mut found.rules).is_ok()
        {
            prop_assert!(found.rules.iter().all(|rule| rule.id.is_some()));
            let mut kept = Vec::new();
            found.serialize(&mut Serializer::new(&mut kept)).expect("it is written");
            prop_assert_eq!(read(&kept).expect("it is read"), found);
        }
    }

    #[test]
    fn any_text_is_a_form_policy_or_is_refused(text in near(
        "\\{\"expiration\":\"20[0-9]{2}-12-01T00:00:00Z\",\"conditions\":\\[(\\[\"(eq|starts-with)\",\"\\$key\",\"a?\"\\]|\
         \\[\"content-length-range\",-?[0-9]{1,20},[0-9]{1,20}\\]|\\{\"acl\":\"private\"\\}|\\[\\]|7)?\\]\\}"
    )) {
        if let Ok(policy) = PostPolicy::from_json(&text) {
            let _ = policy.content_length_range();
        }
        let _ = PostPolicy::from_base64(&text);
    }

    #[test]
    fn any_signature_of_version_2_is_read_or_refused_and_none_holds_by_chance(
        authorization in near("AWS [A-Z0-9]{0,20}:[A-Za-z0-9+/]{0,27}=?"),
        date in near("(Mon, )?[0-9]{1,2} Nov [0-9]{1,5} 22:[0-9]{2}:00 (GMT|\\+0000)"),
        path in "/[a-z/%?=&]{0,40}",
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", &authorization), ("date", &date)] {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        }
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        if let Ok(claim) = Claim::of(&Method::GET, &uri, &headers, None, OffsetDateTime::UNIX_EPOCH) {
            prop_assert!(!claim.holds("secret"));
        }
        let taken = sigv2::taken_off(&uri, &mut headers);
        prop_assert!(taken.is_err() || !headers.contains_key("authorization"));
        prop_assert!(taken.is_err() || taken.is_ok_and(|uri| !sigv2::is_here(&headers, &uri)));
    }

    #[test]
    fn any_grant_is_read_or_refused(text in near("(id|uri|emailAddress|x)=\"?[a-z@.:/]{0,20}\"?(,id=[a-z]{1,3})*")) {
        let headers = GrantHeaders { read: Some(&text), ..GrantHeaders::default() };
        if let Ok(Some(acl)) = Acl::of_headers(&headers, "owner") {
            prop_assert!(acl.accounts().count() <= 100);
        }
    }

    #[test]
    fn any_version_is_read_or_refused(text in near("[0-9a-f]{14,18}|null")) {
        let good = text == "null" || (text.len() == 16 && u64::from_str_radix(&text, 16).is_ok());
        prop_assert_eq!(version_ref(&text).is_ok(), good);
    }
}
