//! Requests of browsers from elsewhere: which of a bucket's rules lets them in. Pure.
//!
//! # Source
//!
//! Amazon S3 User Guide, "Using cross-origin resource sharing"; the Fetch standard, "CORS protocol".

use hyper::{
    HeaderMap, Method,
    header::{
        ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
        ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
        ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
    },
};

use super::attributes::CorsRule;

/// What a browser asks, or asks leave for.
pub(super) struct Asked<'a> {
    origin: &'a str,
    method: &'a str,
    headers: Vec<String>,
}

impl<'a> Asked<'a> {
    /// A request with an origin. For a preflight, what it asks leave for.
    pub(super) fn of(method: &'a Method, headers: &'a HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let origin = text(ORIGIN)?;
        let wanted = text(ACCESS_CONTROL_REQUEST_METHOD);
        let names = text(ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default().split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect();
        Some(Self { origin, method: wanted.unwrap_or(method.as_str()), headers: names })
    }

    /// The headers of an answer by the first rule that lets this in.
    pub(super) fn answer(&self, rules: &[CorsRule], preflight: bool) -> Option<HeaderMap> {
        let rule = rules.iter().find(|rule| self.fits(rule))?;
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        let anybody = rule.origins.iter().any(|origin| origin == "*");
        add(ACCESS_CONTROL_ALLOW_ORIGIN, if anybody { "*".to_owned() } else { self.origin.to_owned() });
        if !anybody {
            add(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true".to_owned());
        }
        add(ACCESS_CONTROL_ALLOW_METHODS, rule.methods.join(", "));
        if !rule.expose.is_empty() {
            add(ACCESS_CONTROL_EXPOSE_HEADERS, rule.expose.join(", "));
        }
        if preflight && !self.headers.is_empty() {
            add(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.join(", "));
        }
        if let Some(age) = rule.max_age.filter(|_| preflight) {
            add(ACCESS_CONTROL_MAX_AGE, age.to_string());
        }
        add(VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned());
        Some(headers)
    }

    fn fits(&self, rule: &CorsRule) -> bool {
        let origin = rule.origins.iter().any(|pattern| wild(pattern, self.origin));
        let allowed = |name: &String| rule.headers.iter().any(|pattern| wild(&pattern.to_ascii_lowercase(), name));
        origin && rule.methods.iter().any(|method| method == self.method) && self.headers.iter().all(allowed)
    }
}

/// A pattern has one `*` at most.
fn wild(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            text.len() >= before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(method: &'a Method, headers: &'a HeaderMap) -> Asked<'a> {
        Asked::of(method, headers).expect("an origin")
    }

    #[test]
    fn the_first_rule_that_fits_answers() {
        let rule = |origins: &[&str], methods: &[&str], headers: &[&str]| CorsRule {
            origins: origins.iter().map(ToString::to_string).collect(),
            methods: methods.iter().map(ToString::to_string).collect(),
            headers: headers.iter().map(ToString::to_string).collect(),
            ..CorsRule::default()
        };
        let rules = [rule(&["*suffix"], &["GET"], &[]), rule(&["start*end"], &["PUT"], &["x-amz-*"])];
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static("foo.suffix"));
        assert!(asked(&Method::GET, &headers).answer(&rules, false).is_some());
        assert!(asked(&Method::PUT, &headers).answer(&rules, false).is_none());
        headers.insert(ORIGIN, HeaderValue::from_static("startend"));
        headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("PUT"));
        headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("X-Amz-Meta-A"));
        let answer = asked(&Method::OPTIONS, &headers).answer(&rules, true).expect("let in");
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_ORIGIN], "startend");
        assert_eq!(answer[ACCESS_CONTROL_ALLOW_HEADERS], "x-amz-meta-a");
        headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("Authorization"));
        assert!(asked(&Method::OPTIONS, &headers).answer(&rules, true).is_none());
    }
}
