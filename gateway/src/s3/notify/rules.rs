//! A bucket's notification configuration, from S3's form to the catalogue's and back. Pure.
//!
//! # Source
//!
//! Amazon S3 API Reference, "PutBucketNotificationConfiguration"; Amazon S3 User Guide, "Configuring event
//! notifications using object key name filtering": filters must not overlap.

use std::collections::HashSet;

use catalog::{EventKind, EventRule};
use s3s::{S3Result, dto::*, s3_error};

/// Rules of one bucket (Amazon S3).
const MAX_RULES: usize = 100;
/// The longest name of a rule (Amazon S3), and the longest filter: that of a key.
const MAX_ID: usize = 255;
const MAX_FILTER_BYTES: usize = 1024;

/// A destination as a bucket's configuration names it: `arn:penstock:s3:::NAME`.
const ARN: &str = "arn:penstock:s3:::";

/// The rules that a configuration comes to, given the destinations there are.
pub(super) fn read(wanted: NotificationConfiguration, known: &[&str]) -> S3Result<Vec<EventRule>> {
    if wanted.event_bridge_configuration.is_some() {
        return Err(s3_error!(NotImplemented, "there is no EventBridge here: name a queue or a topic"));
    }
    if wanted.lambda_function_configurations.is_some_and(|list| !list.is_empty()) {
        return Err(s3_error!(NotImplemented, "no functions are called here: name a queue or a topic"));
    }
    let queues = wanted.queue_configurations.unwrap_or_default().into_iter();
    let queues = queues.map(|one| (false, one.id, one.queue_arn, one.events, one.filter));
    let topics = wanted.topic_configurations.unwrap_or_default().into_iter();
    let topics = topics.map(|one| (true, one.id, one.topic_arn, one.events, one.filter));
    let mut rules = Vec::new();
    for (topic, id, arn, events, filter) in queues.chain(topics) {
        if rules.len() >= MAX_RULES {
            return Err(s3_error!(InvalidArgument, "there are {} configurations at most", MAX_RULES));
        }
        let destination = destination(&arn, known)?;
        let events = events.iter().map(|event| named(event.as_ref())).collect::<S3Result<Vec<_>>>()?;
        if events.is_empty() {
            return Err(s3_error!(MalformedXML, "a configuration names an event"));
        }
        let (prefix, suffix) = filters(filter)?;
        let id = id.unwrap_or_default();
        if id.chars().count() > MAX_ID {
            return Err(s3_error!(InvalidArgument, "an Id has {} letters at most", MAX_ID));
        }
        rules.push(EventRule { id, destination, topic, events, prefix, suffix });
    }
    name_all(&mut rules)?;
    check_overlap(&rules)?;
    Ok(rules)
}

/// What an ARN names.
fn destination(arn: &str, known: &[&str]) -> S3Result<String> {
    let name = arn.strip_prefix(ARN).filter(|name| known.contains(name));
    name.map(str::to_owned).ok_or_else(|| {
        let there = match known {
            [] => "the operator has named none".to_owned(),
            names => {
                let names: Vec<_> = names.iter().map(|name| format!("{ARN}{name}")).collect();
                format!("there are {}", names.join(", "))
            }
        };
        s3_error!(InvalidArgument, "{:?} is no destination of this site: {}", arn, there)
    })
}

/// An event, or a group of events, that can be told.
fn named(pattern: &str) -> S3Result<String> {
    if EventKind::NAMED.iter().any(|kind| kind.is_named_by(pattern)) {
        return Ok(pattern.to_owned());
    }
    let names: Vec<_> = EventKind::NAMED.iter().map(|kind| kind.name()).collect();
    let text = format!("{pattern:?} is not told here; told are, also as groups with :*, {}", names.join(", "));
    Err(s3_error!(InvalidArgument, "{}", text))
}

fn filters(filter: Option<NotificationConfigurationFilter>) -> S3Result<(Option<String>, Option<String>)> {
    let rules = filter.and_then(|filter| filter.key).and_then(|key| key.filter_rules).unwrap_or_default();
    let (mut prefix, mut suffix) = (None, None);
    for rule in rules {
        let name = rule.name.as_ref().map(|name| name.as_str().to_ascii_lowercase()).unwrap_or_default();
        let value = rule.value.unwrap_or_default();
        if value.len() > MAX_FILTER_BYTES {
            return Err(s3_error!(InvalidArgument, "a filter has {} bytes at most", MAX_FILTER_BYTES));
        }
        let place = match name.as_str() {
            FilterRuleName::PREFIX => &mut prefix,
            FilterRuleName::SUFFIX => &mut suffix,
            other => return Err(s3_error!(InvalidArgument, "a filter is a prefix or a suffix, not {:?}", other)),
        };
        if place.replace(value).is_some() {
            return Err(s3_error!(InvalidArgument, "a configuration has one {} at most", name));
        }
    }
    Ok((prefix, suffix))
}

/// Gives names to those that came without, and refuses names that come twice.
fn name_all(rules: &mut [EventRule]) -> S3Result<()> {
    let mut names: HashSet<String> = HashSet::new();
    if let Some(twice) = rules.iter().find(|rule| !rule.id.is_empty() && !names.insert(rule.id.clone())) {
        return Err(s3_error!(InvalidArgument, "two configurations have the Id {:?}", twice.id));
    }
    let mut numbers = 1..;
    for rule in rules.iter_mut().filter(|rule| rule.id.is_empty()) {
        let mut free = numbers.by_ref().map(|number: u32| format!("rule-{number}"));
        rule.id = free.find(|name| !names.contains(name)).unwrap_or_default();
    }
    Ok(())
}

/// An event of a key goes to one place: two configurations that could both want it are refused.
fn check_overlap(rules: &[EventRule]) -> S3Result<()> {
    for (at, one) in rules.iter().enumerate() {
        for other in &rules[at + 1..] {
            let share = |kind: &EventKind| {
                let names = |rule: &EventRule| rule.events.iter().any(|pattern| kind.is_named_by(pattern));
                names(one) && names(other)
            };
            if !both_may_match(one, other) {
                continue;
            }
            if let Some(kind) = EventKind::NAMED.iter().find(|kind| share(kind)) {
                return Err(s3_error!(
                    InvalidArgument,
                    "Configuration is ambiguously defined: {:?} and {:?} both want {} of some keys",
                    one.id,
                    other.id,
                    kind.name()
                ));
            }
        }
    }
    Ok(())
}

fn both_may_match(one: &EventRule, other: &EventRule) -> bool {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let (a, b) = (of(&one.prefix), of(&other.prefix));
    let (x, y) = (of(&one.suffix), of(&other.suffix));
    (a.starts_with(&b) || b.starts_with(&a)) && (x.ends_with(&y) || y.ends_with(&x))
}

/// The rules as S3 shows them: queues and topics.
pub(super) fn shown(rules: &[EventRule]) -> (Option<QueueConfigurationList>, Option<TopicConfigurationList>) {
    let (mut queues, mut topics) = (Vec::new(), Vec::new());
    for rule in rules {
        let arn = format!("{ARN}{}", rule.destination);
        let events = rule.events.iter().map(|event| Event::from(event.clone())).collect();
        let filter = shown_filter(rule);
        let id = Some(rule.id.clone());
        if rule.topic {
            topics.push(TopicConfiguration { events, filter, id, topic_arn: arn });
        } else {
            queues.push(QueueConfiguration { events, filter, id, queue_arn: arn });
        }
    }
    ((!queues.is_empty()).then_some(queues), (!topics.is_empty()).then_some(topics))
}

fn shown_filter(rule: &EventRule) -> Option<NotificationConfigurationFilter> {
    let pairs = [(FilterRuleName::PREFIX, &rule.prefix), (FilterRuleName::SUFFIX, &rule.suffix)];
    let rules: Vec<_> = pairs
        .into_iter()
        .filter_map(|(name, value)| {
            let value = value.clone()?;
            Some(FilterRule { name: Some(FilterRuleName::from_static(name)), value: Some(value) })
        })
        .collect();
    let key = (!rules.is_empty()).then_some(S3KeyFilter { filter_rules: Some(rules) });
    key.map(|key| NotificationConfigurationFilter { key: Some(key) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(id: Option<&str>, name: &str, events: &[&str], filter: &[(&str, &str)]) -> QueueConfiguration {
        let rules: Vec<_> = filter
            .iter()
            .map(|(name, value)| FilterRule {
                name: Some(FilterRuleName::from((*name).to_owned())),
                value: Some((*value).to_owned()),
            })
            .collect();
        QueueConfiguration {
            events: events.iter().map(|event| Event::from((*event).to_owned())).collect(),
            filter: Some(NotificationConfigurationFilter { key: Some(S3KeyFilter { filter_rules: Some(rules) }) }),
            id: id.map(str::to_owned),
            queue_arn: format!("arn:penstock:s3:::{name}"),
        }
    }

    fn of(queues: Vec<QueueConfiguration>) -> S3Result<Vec<EventRule>> {
        let wanted = NotificationConfiguration { queue_configurations: Some(queues), ..Default::default() };
        read(wanted, &["hook", "log"])
    }

    fn refusal(queues: Vec<QueueConfiguration>) -> String {
        let error = of(queues).expect_err("refused");
        format!("{}: {}", error.code().as_str(), error.message().unwrap_or_default())
    }

    #[test]
    fn a_configuration_is_shown_as_it_was_set() {
        let created = &["s3:ObjectCreated:*", "s3:ObjectRestore:Completed"];
        let wanted = vec![
            queue(Some("a"), "hook", created, &[("Prefix", "in/"), ("suffix", ".dat")]),
            queue(None, "log", &["s3:ObjectRemoved:Delete"], &[]),
        ];
        let rules = of(wanted).expect("good");
        assert_eq!((rules[0].id.as_str(), rules[1].id.as_str()), ("a", "rule-1"));
        assert_eq!((rules[0].prefix.as_deref(), rules[0].suffix.as_deref()), (Some("in/"), Some(".dat")));
        let (queues, topics) = shown(&rules);
        assert!(topics.is_none());
        let again = of(queues.expect("queues")).expect("good");
        assert_eq!(again, rules);
        let topic = EventRule { topic: true, ..rules[0].clone() };
        let (queues, topics) = shown(&[topic]);
        assert!(queues.is_none());
        assert_eq!(topics.expect("a topic")[0].topic_arn, "arn:penstock:s3:::hook");
        assert!(of(Vec::new()).expect("nothing is told").is_empty());
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let unknown = refusal(vec![queue(None, "nowhere", &["s3:ObjectCreated:*"], &[])]);
        assert!(unknown.starts_with("InvalidArgument") && unknown.contains("arn:penstock:s3:::log"), "{unknown}");
        let event = refusal(vec![queue(None, "hook", &["s3:ObjectTagging:Put"], &[])]);
        assert!(event.starts_with("InvalidArgument") && event.contains("s3:ObjectCreated:Put"), "{event}");
        assert!(refusal(vec![queue(None, "hook", &[], &[])]).starts_with("MalformedXML"));
        let filter = [("middle", "x")];
        assert!(refusal(vec![queue(None, "hook", &["s3:ObjectCreated:*"], &filter)]).contains("\"middle\""));
        let filter = [("prefix", "x"), ("Prefix", "y")];
        assert!(refusal(vec![queue(None, "hook", &["s3:ObjectCreated:*"], &filter)]).contains("one prefix"));
        let long = "x".repeat(1025);
        assert!(refusal(vec![queue(None, "hook", &["s3:ObjectCreated:*"], &[("prefix", &long)])]).contains("1024"));
        let many = (0..101).map(|number| {
            let prefix = format!("{number:03}");
            queue(None, "hook", &["s3:ObjectCreated:*"], &[("prefix", &prefix)])
        });
        assert!(refusal(many.collect()).contains("100"));
        let lambda = LambdaFunctionConfiguration { lambda_function_arn: "arn".to_owned(), ..empty_lambda() };
        let wanted =
            NotificationConfiguration { lambda_function_configurations: Some(vec![lambda]), ..Default::default() };
        assert_eq!(read(wanted, &["hook"]).expect_err("refused").code().as_str(), "NotImplemented");
    }

    fn empty_lambda() -> LambdaFunctionConfiguration {
        LambdaFunctionConfiguration { events: Vec::new(), filter: None, id: None, lambda_function_arn: String::new() }
    }

    #[test]
    fn two_configurations_that_could_want_the_same_event_of_a_key_are_refused() {
        let pair = |one: &[(&str, &str)], other: &[(&str, &str)], event: &str| {
            let first = queue(Some("one"), "hook", &["s3:ObjectCreated:*"], one);
            of(vec![first, queue(Some("other"), "log", &[event], other)])
        };
        let put = "s3:ObjectCreated:Put";
        assert!(pair(&[], &[], put).is_err());
        assert!(pair(&[], &[], "s3:ObjectRemoved:*").is_ok(), "other events");
        assert!(pair(&[("prefix", "a/")], &[("prefix", "b/")], put).is_ok());
        assert!(pair(&[("prefix", "a/")], &[("prefix", "a/b")], put).is_err());
        assert!(pair(&[("prefix", "a/"), ("suffix", ".jpg")], &[("prefix", "a/"), ("suffix", ".png")], put).is_ok());
        assert!(pair(&[("suffix", ".jpg")], &[("prefix", "a/"), ("suffix", "x.jpg")], put).is_err());
        let twice = vec![queue(Some("a"), "hook", &[put], &[]), queue(Some("a"), "hook", &["s3:ObjectRemoved:*"], &[])];
        assert!(refusal(twice).contains("two configurations"));
    }
}
