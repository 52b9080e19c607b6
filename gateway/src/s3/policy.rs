//! Bucket policies: read from their JSON, and what they say to a request. Pure.
//!
//! # Source
//!
//! AWS IAM User Guide, "IAM JSON policy reference": elements, condition operators; an explicit denial beats all.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;
use serde_json::Value;

/// The longest policy (Amazon S3: 20 KiB).
pub(super) const MAX_BYTES: usize = 20 * 1024;

/// What a policy says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It allows.
    Allow,
    /// It forbids.
    Deny,
    /// It does not say.
    Silent,
}

/// What is asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Question<'a> {
    /// Who asks; nobody in particular if `None`.
    pub(super) account: Option<&'a str>,
    /// What for: `s3:GetObject`.
    pub(super) action: &'a str,
    /// Of what: `arn:aws:s3:::bucket/key`.
    pub(super) resource: &'a str,
    /// What conditions may ask about, by key in lower case.
    pub(super) facts: BTreeMap<String, Vec<String>>,
}

/// A bucket's policy.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Policy(Vec<Statement>);

#[derive(Clone, PartialEq, Debug)]
struct Statement {
    allow: bool,
    principals: Listed,
    actions: Listed,
    resources: Listed,
    conditions: Vec<Condition>,
}

/// A list of patterns, or everything but them.
#[derive(Clone, PartialEq, Debug)]
struct Listed {
    patterns: Vec<String>,
    but: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct Condition {
    operator: Operator,
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equals { ignore_case: bool, not: bool },
    Like { not: bool },
    Number { least: i8, most: i8, not: bool },
    Bool,
    Address { not: bool },
    Null,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "Statement")]
    statement: Value,
}

impl Policy {
    /// Reads a policy of a bucket.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn read(text: &str, bucket: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("a policy has {MAX_BYTES} bytes at most"));
        }
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let statements = match document.statement {
            Value::Array(statements) => statements,
            one => vec![one],
        };
        if statements.is_empty() {
            return Err("it has no statement".to_owned());
        }
        let statements = statements.iter().map(statement).collect::<Result<Vec<_>, _>>()?;
        let own = format!("arn:aws:s3:::{bucket}");
        let foreign = statements.iter().flat_map(|statement| &statement.resources.patterns).find(|resource| {
            let bucket = resource.split('/').next().unwrap_or_default();
            !matches(bucket, &own)
        });
        match foreign {
            Some(resource) => Err(format!("resource {resource:?} is not of this bucket")),
            None => Ok(Self(statements)),
        }
    }

    /// What it says to a question.
    pub(super) fn says(&self, question: &Question<'_>) -> Verdict {
        let mut verdict = Verdict::Silent;
        for statement in self.0.iter().filter(|statement| statement.is_about(question)) {
            if !statement.allow {
                return Verdict::Deny;
            }
            verdict = Verdict::Allow;
        }
        verdict
    }

    /// Whether it lets everybody do something without a condition.
    pub(super) fn is_public(&self) -> bool {
        let everybody = |statement: &Statement| {
            !statement.principals.but && statement.principals.patterns.iter().any(|pattern| pattern == "*")
        };
        self.0.iter().any(|statement| statement.allow && everybody(statement) && statement.conditions.is_empty())
    }
}

impl Statement {
    fn is_about(&self, question: &Question<'_>) -> bool {
        self.principals.has_principal(question.account)
            && self.actions.has(question.action, true)
            && self.resources.has(question.resource, false)
            && self.conditions.iter().all(|condition| condition.holds(&question.facts))
    }
}

impl Listed {
    fn has(&self, text: &str, ignore_case: bool) -> bool {
        let fits = |pattern: &String| {
            if ignore_case {
                matches(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase())
            } else {
                matches(pattern, text)
            }
        };
        self.patterns.iter().any(fits) != self.but
    }

    /// An account is named by `*`, its name, or `arn:aws:iam::ANY:user/NAME`.
    fn has_principal(&self, account: Option<&str>) -> bool {
        let fits = |pattern: &String| match (pattern.as_str(), account) {
            ("*", _) => true,
            (_, None) => false,
            (pattern, Some(account)) => {
                let name = pattern.strip_prefix("arn:aws:iam::").map_or(pattern, |rest| {
                    let name = rest.split_once(':').map_or(rest, |(_, name)| name);
                    name.strip_prefix("user/").unwrap_or(name)
                });
                name == account || pattern == account
            }
        };
        self.patterns.iter().any(fits) != self.but
    }
}

impl Condition {
    fn holds(&self, facts: &BTreeMap<String, Vec<String>>) -> bool {
        let found = facts.get(&self.key);
        if self.operator == Operator::Null {
            let absent = self.values.iter().any(|value| value.eq_ignore_ascii_case("true"));
            return found.is_none() == absent;
        }
        let Some(found) = found else { return self.if_exists || self.operator.is_negative() };
        let any = |test: &dyn Fn(&str, &str) -> bool| {
            found.iter().any(|fact| self.values.iter().any(|value| test(value, fact)))
        };
        match self.operator {
            Operator::Equals { ignore_case, not } => {
                any(&|value, fact| if ignore_case { value.eq_ignore_ascii_case(fact) } else { value == fact }) != not
            }
            Operator::Like { not } => any(&|value, fact| matches(value, fact)) != not,
            Operator::Number { least, most, not } => {
                let compare = |value: &str, fact: &str| {
                    let (Ok(value), Ok(fact)) = (value.parse::<f64>(), fact.parse::<f64>()) else { return false };
                    let order = fact.partial_cmp(&value).map_or(2, |order| order as i8);
                    least <= order && order <= most
                };
                any(&compare) != not
            }
            Operator::Bool => any(&|value, fact| value.eq_ignore_ascii_case(fact)),
            Operator::Address { not } => any(&in_network) != not,
            Operator::Null => false,
        }
    }
}

impl Operator {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "StringEquals" | "ArnEquals" => Self::Equals { ignore_case: false, not: false },
            "StringNotEquals" | "ArnNotEquals" => Self::Equals { ignore_case: false, not: true },
            "StringEqualsIgnoreCase" => Self::Equals { ignore_case: true, not: false },
            "StringNotEqualsIgnoreCase" => Self::Equals { ignore_case: true, not: true },
            "StringLike" | "ArnLike" => Self::Like { not: false },
            "StringNotLike" | "ArnNotLike" => Self::Like { not: true },
            "NumericEquals" => Self::Number { least: 0, most: 0, not: false },
            "NumericNotEquals" => Self::Number { least: 0, most: 0, not: true },
            "NumericLessThan" => Self::Number { least: -1, most: -1, not: false },
            "NumericLessThanEquals" => Self::Number { least: -1, most: 0, not: false },
            "NumericGreaterThan" => Self::Number { least: 1, most: 1, not: false },
            "NumericGreaterThanEquals" => Self::Number { least: 0, most: 1, not: false },
            "Bool" => Self::Bool,
            "IpAddress" => Self::Address { not: false },
            "NotIpAddress" => Self::Address { not: true },
            "Null" => Self::Null,
            _ => return None,
        })
    }

    const fn is_negative(self) -> bool {
        match self {
            Self::Equals { not, .. } | Self::Like { not } | Self::Number { not, .. } | Self::Address { not } => not,
            Self::Bool | Self::Null => false,
        }
    }
}

fn statement(value: &Value) -> Result<Statement, String> {
    let object = value.as_object().ok_or("a statement is no object")?;
    let allow = match object.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        _ => return Err("Effect is neither Allow nor Deny".to_owned()),
    };
    let principals = match (object.get("Principal"), object.get("NotPrincipal")) {
        (Some(value), None) => Listed { patterns: principals(value)?, but: false },
        (None, Some(_)) if allow => return Err("NotPrincipal goes with Deny only".to_owned()),
        (None, Some(value)) => Listed { patterns: principals(value)?, but: true },
        _ => return Err("a statement has a Principal or a NotPrincipal".to_owned()),
    };
    let mut conditions = Vec::new();
    if let Some(value) = object.get("Condition") {
        let operators = value.as_object().ok_or("Condition is no object")?;
        for (name, tests) in operators {
            let plain = name.rsplit(':').next().unwrap_or(name);
            let (plain, if_exists) = plain.strip_suffix("IfExists").map_or((plain, false), |plain| (plain, true));
            let operator = Operator::read(plain).ok_or_else(|| format!("condition operator {name:?} is not known"))?;
            for (key, values) in tests.as_object().ok_or("a condition is no object")? {
                conditions.push(Condition { operator, if_exists, key: key_of(key), values: strings(values)? });
            }
        }
    }
    let actions = listed(object, "Action", "NotAction")?;
    if let Some(foreign) = actions.patterns.iter().find(|action| *action != "*" && !action.starts_with("s3:")) {
        return Err(format!("{foreign:?} is no action of S3"));
    }
    let resources = listed(object, "Resource", "NotResource")?;
    Ok(Statement { allow, principals, actions, resources, conditions })
}

/// Keys are compared without regard to case, but for the tag behind a `/`.
fn key_of(key: &str) -> String {
    match key.split_once('/') {
        Some((name, tag)) => format!("{}/{tag}", name.to_ascii_lowercase()),
        None => key.to_ascii_lowercase(),
    }
}

fn listed(object: &serde_json::Map<String, Value>, name: &str, but_name: &str) -> Result<Listed, String> {
    match (object.get(name), object.get(but_name)) {
        (Some(value), None) => Ok(Listed { patterns: strings(value)?, but: false }),
        (None, Some(value)) => Ok(Listed { patterns: strings(value)?, but: true }),
        _ => Err(format!("a statement has {name} or {but_name}")),
    }
}

fn principals(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Object(kinds) => {
            let mut all = Vec::new();
            for (kind, value) in kinds {
                // Services and federations are nobody here.
                if matches!(kind.as_str(), "AWS" | "CanonicalUser") {
                    all.extend(strings(value)?);
                }
            }
            Ok(all)
        }
        other => strings(other),
    }
}

fn strings(value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("{other} is no text")),
    };
    match value {
        Value::Array(values) => values.iter().map(one).collect(),
        single => one(single).map(|text| vec![text]),
    }
}

fn in_network(network: &str, address: &str) -> bool {
    let (base, bits) = network.split_once('/').map_or((network, None), |(base, bits)| (base, Some(bits)));
    let (Ok(base), Ok(address)) = (base.parse::<IpAddr>(), address.parse::<IpAddr>()) else { return false };
    let prefix = |longest: u32| bits.map_or(Some(longest), |bits| bits.parse().ok().filter(|bits| *bits <= longest));
    match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => prefix(32).is_some_and(|bits| {
            let shift = 32 - bits;
            base.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
        }),
        (IpAddr::V6(base), IpAddr::V6(address)) => prefix(128).is_some_and(|bits| {
            let shift = 128 - bits;
            base.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
        }),
        _ => false,
    }
}

/// Whether a text is of a form in which `*` stands for any letters and `?` for one. Linear in space, no recursion.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, covered)) = star else { return false };
                star = Some((at, covered + 1));
                (p, t) = (at + 1, covered + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask<'a>(account: Option<&'a str>, action: &'a str, resource: &'a str, facts: &[(&str, &str)]) -> Question<'a> {
        let facts = facts.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
        Question { account, action, resource, facts }
    }

    fn policy(statement: &str) -> Policy {
        Policy::read(&format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statement}]}}"), "b").expect("a policy")
    }

    #[test]
    fn a_denial_beats_an_allowance_and_silence_is_neither() {
        let both = policy(
            r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b/*"},
               {"Effect":"Deny","Principal":{"AWS":["arn:aws:iam:::user/bob"]},"Action":["s3:GetObject"],
                "Resource":"arn:aws:s3:::b/secret/*"}"#,
        );
        let says = |account, key| both.says(&ask(account, "s3:GetObject", key, &[]));
        assert_eq!(says(Some("bob"), "arn:aws:s3:::b/secret/x"), Verdict::Deny);
        assert_eq!(says(Some("bob"), "arn:aws:s3:::b/open"), Verdict::Allow);
        assert_eq!(says(None, "arn:aws:s3:::b/secret/x"), Verdict::Allow);
        assert_eq!(says(None, "arn:aws:s3:::b"), Verdict::Silent);
        assert!(both.is_public());
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let of = |condition: &str| {
            policy(&format!(
                r#"{{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::b/*",
                    "Condition":{condition}}}"#
            ))
        };
        let allows = |policy: &Policy, facts: &[(&str, &str)]| {
            policy.says(&ask(None, "s3:putobject", "arn:aws:s3:::b/k", facts)) == Verdict::Allow
        };
        let equals = of(r#"{"StringEquals":{"s3:x-amz-acl":"public-read"}}"#);
        assert!(allows(&equals, &[("s3:x-amz-acl", "public-read")]) && !allows(&equals, &[]));
        let not = of(r#"{"StringNotEquals":{"s3:x-amz-acl":"public-read"}}"#);
        assert!(!allows(&not, &[("s3:x-amz-acl", "public-read")]) && allows(&not, &[]));
        let null = of(r#"{"Null":{"s3:x-amz-acl":"true"}}"#);
        assert!(allows(&null, &[]) && !allows(&null, &[("s3:x-amz-acl", "x")]));
        let address = of(r#"{"IpAddress":{"aws:SourceIp":"10.1.0.0/16"}}"#);
        assert!(
            allows(&address, &[("aws:sourceip", "10.1.2.3")]) && !allows(&address, &[("aws:sourceip", "10.2.0.1")])
        );
        let tag = of(r#"{"StringLikeIfExists":{"s3:ExistingObjectTag/Color":"gr*n"}}"#);
        assert!(allows(&tag, &[("s3:existingobjecttag/Color", "green")]) && allows(&tag, &[]));
        let few = of(r#"{"NumericLessThanEquals":{"s3:max-keys":10}}"#);
        assert!(allows(&few, &[("s3:max-keys", "10")]) && !allows(&few, &[("s3:max-keys", "11")]));
    }

    #[test]
    fn what_is_no_policy_of_this_bucket_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"Statement":[]}"#,
            r#"{"Statement":{"Effect":"Maybe","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b"}}"#,
            r#"{"Statement":{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b"}}"#,
            r#"{"Statement":{"Effect":"Allow","NotPrincipal":"x","Action":"s3:*","Resource":"arn:aws:s3:::b"}}"#,
            r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::other/*"}}"#,
            r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"iam:*","Resource":"arn:aws:s3:::b"}}"#,
        ] {
            assert!(Policy::read(text, "b").is_err(), "{text}");
        }
    }
}
