//! Version 2 of the signature, for clients that know no other: read from a request, checked, and taken off it. Pure.
//!
//! `s3s` has it too, but compares in varying time, and knows neither the `/` that botocore signs behind a bucket nor
//! headers in the query of a pre-signed URL. So the door checks it first, and hands on a request that it vouches for.
//!
//! # Source
//!
//! Amazon S3 Developer Guide, "Signing and authenticating REST requests": the string to sign, `HMAC-SHA1`, the query
//! form. What goes beyond it is what botocore does (`HmacV1Auth`, `HmacV1QueryAuth`).

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    HeaderMap, Method, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName, HeaderValue},
    http::uri::PathAndQuery,
};
use s3s::{S3Result, s3_error};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

use super::access::pairs;

/// How far a client's clock may be off (Amazon S3).
const MAX_SKEW_S: i64 = 15 * 60;
/// Parameters of a query that say what is asked for, and so are signed.
const SIGNED_QUERY: [&str; 35] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// The door's word that a request is signed by this access key.
#[derive(Clone, Debug)]
pub(super) struct Vouched {
    pub(super) key: String,
}

/// A request that says who signed it.
pub(super) struct Claim {
    pub(super) key: String,
    signature: Vec<u8>,
    /// What may have been signed: clients differ in small things.
    texts: Vec<String>,
}

/// Whether a request is signed in this way at all.
pub(super) fn is_here(headers: &HeaderMap, uri: &Uri) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS "))
        || uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("AWSAccessKeyId=")))
}

impl Claim {
    /// The claim of a signed request; `bucket` is what its host names. Checks times, which cost nothing.
    ///
    /// # Errors
    ///
    /// In S3's words: `InvalidArgument` for what is no signature, `AccessDenied` without a time or after it,
    /// `RequestTimeTooSkewed`.
    pub(super) fn of(
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        bucket: Option<&str>,
        now: OffsetDateTime,
    ) -> S3Result<Self> {
        let by_header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (key, signature, time) = match by_header.and_then(|text| text.strip_prefix("AWS ")) {
            Some(claim) => {
                let unread = || s3_error!(InvalidArgument, "Authorization is not AWS KEY:SIGNATURE");
                let (key, signature) = claim.trim().rsplit_once(':').ok_or_else(unread)?;
                check_date(headers, now)?;
                let date = if headers.contains_key(AMZ_DATE) { "" } else { text_of(headers, &DATE) };
                (key.to_owned(), signature.to_owned(), date.to_owned())
            }
            None => {
                let query = pairs(uri.query().unwrap_or_default());
                let named = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
                let missing = || s3_error!(AccessDenied, "a URL signed by version 2 has a key, a signature and a time");
                let key = named("AWSAccessKeyId").ok_or_else(missing)?;
                let (signature, expires) = named("Signature").zip(named("Expires")).ok_or_else(missing)?;
                let until: i64 = expires.parse().map_err(|_| missing())?;
                if until < now.unix_timestamp() {
                    return Err(s3_error!(AccessDenied, "Request has expired"));
                }
                (key, signature, expires)
            }
        };
        let wrong = |_| s3_error!(SignatureDoesNotMatch, "the signature is not base 64");
        let signature = STANDARD.decode(signature).map_err(wrong)?;
        Ok(Self { key, signature, texts: texts(method, uri, headers, bucket, &time) })
    }

    /// Whether it was made with this secret. In constant time.
    pub(super) fn holds(&self, secret: &str) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        self.texts.iter().any(|text| hmac::verify(&key, text.as_bytes(), &self.signature).is_ok())
    }
}

/// The request without its signature; what a pre-signed URL has of headers become headers.
pub(super) fn taken_off(uri: &Uri, headers: &mut HeaderMap) -> S3Result<Uri> {
    headers.remove(AUTHORIZATION);
    let mut kept = Vec::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        match name {
            "AWSAccessKeyId" | "Signature" | "Expires" => {}
            name if is_moved_header(name) => {
                let value = pairs(pair).pop().map(|(_, value)| value).unwrap_or_default();
                let name = HeaderName::try_from(name.to_ascii_lowercase());
                let (name, value) = name
                    .ok()
                    .zip(HeaderValue::try_from(value).ok())
                    .ok_or_else(|| s3_error!(InvalidArgument, "a header in the query is none"))?;
                headers.entry(name).or_insert(value);
            }
            _ => kept.push(pair),
        }
    }
    let path = uri.path();
    let text = if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    let unread = |_| s3_error!(InvalidURI, "the request has no path");
    parts.path_and_query = Some(PathAndQuery::try_from(text).map_err(unread)?);
    Uri::from_parts(parts).map_err(|_| s3_error!(InvalidURI, "the request has no path"))
}

/// Headers that botocore moves into the query of a pre-signed URL.
fn is_moved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-amz-") || name == "content-type" || name == "content-md5"
}

fn text_of<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).map_or("", str::trim)
}

/// The time of a request: `Date`, or `x-amz-date` for clients that cannot set it.
fn check_date(headers: &HeaderMap, now: OffsetDateTime) -> S3Result<()> {
    let named = if headers.contains_key(AMZ_DATE) { &AMZ_DATE } else { &DATE };
    let time = time_of(text_of(headers, named)).filter(|time| time.unix_timestamp() >= 0);
    let time = time.ok_or_else(|| s3_error!(AccessDenied, "a signed request has a valid Date or x-amz-date"))?;
    if (time - now).whole_seconds().abs() > MAX_SKEW_S {
        return Err(s3_error!(RequestTimeTooSkewed, "the request's time is not the server's, which is {}", now));
    }
    Ok(())
}

/// A date of HTTP. Which day of the week it is said to be does not matter.
///
/// # Source
///
/// RFC 9110 section 5.6.7; Amazon S3 takes the zones of RFC 2822 too.
pub(super) fn time_of(text: &str) -> Option<OffsetDateTime> {
    let without_day = text.split_once(", ").map_or(text, |(_, rest)| rest);
    OffsetDateTime::parse(without_day, &Rfc2822).ok()
}

/// What may have been signed: with or without the `/` behind a bucket's name, which botocore signs and does not send,
/// and with or without the `=` of a parameter without a value.
fn texts(method: &Method, uri: &Uri, headers: &HeaderMap, bucket: Option<&str>, time: &str) -> Vec<String> {
    let query = pairs(uri.query().unwrap_or_default());
    let mut named: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
        named.entry(name.as_str().to_owned()).or_default().push(value);
    }
    for (name, value) in query.iter().filter(|(name, _)| is_moved_header(name)) {
        named.entry(name.to_ascii_lowercase()).or_insert_with(|| vec![value.clone()]);
    }
    let one = |name: &HeaderName| named.get(name.as_str()).map(|values| values.join(",")).unwrap_or_default();
    let mut head = format!("{method}\n{}\n{}\n{time}\n", one(&CONTENT_MD5), one(&CONTENT_TYPE));
    for (name, values) in named.iter().filter(|(name, _)| name.starts_with("x-amz-")) {
        head.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    if let Some(bucket) = bucket {
        head.push_str(&format!("/{bucket}"));
    }
    head.push_str(uri.path());
    let path_is_bucket = bucket.is_none() && uri.path().len() > 1 && !uri.path()[1..].contains('/');
    let slashes: &[&str] = if path_is_bucket { &["", "/"] } else { &[""] };
    let mut asked: Vec<_> = query.iter().filter(|(name, _)| SIGNED_QUERY.contains(&name.as_str())).collect();
    asked.sort();
    let queries = ["", "="].map(|empty| {
        let pair = |(name, value): &&(String, String)| match value.as_str() {
            "" => format!("{name}{empty}"),
            value => format!("{name}={value}"),
        };
        let text = asked.iter().map(pair).collect::<Vec<_>>().join("&");
        if text.is_empty() { text } else { format!("?{text}") }
    });
    let mut texts = Vec::with_capacity(slashes.len() * queries.len());
    for slash in slashes {
        texts.extend(queries.iter().map(|query| format!("{head}{slash}{query}")));
    }
    texts
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn claim(method: Method, uri: &str, of: &[(&'static str, &str)], bucket: Option<&str>) -> S3Result<Claim> {
        let now = datetime!(2007-03-27 21:20:00 UTC);
        Claim::of(&method, &uri.parse().expect("a URI"), &headers(of), bucket, now)
    }

    /// The examples of the Developer Guide.
    #[test]
    fn the_guides_own_signatures_hold() {
        let put = [
            ("content-type", "image/jpeg"),
            ("date", "Tue, 27 Mar 2007 21:15:45 +0000"),
            ("authorization", "AWS AKIAIOSFODNN7EXAMPLE:iqRzw+ileNPu1fhspnRs8nOjjIA="),
        ];
        let signed = claim(Method::PUT, "/photos/puppy.jpg", &put, Some("awsexamplebucket1")).expect("a claim");
        assert!(signed.key == KEY && signed.holds(SECRET) && !signed.holds("another"));
        let other = claim(Method::GET, "/photos/puppy.jpg", &put, Some("awsexamplebucket1")).expect("a claim");
        assert!(!other.holds(SECRET));
        let url = "/photos/puppy.jpg?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=1No4mq5ETf02z8aet9voy6gui6E%3D\
                   &Expires=1175139620";
        let signed = claim(Method::GET, url, &[], Some("awsexamplebucket1")).expect("a claim");
        assert!(signed.holds(SECRET) && !signed.holds("another"));
    }

    #[test]
    fn a_bucket_may_be_signed_with_the_slash_that_botocore_adds() {
        let sign = |text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
            STANDARD.encode(hmac::sign(&key, text.as_bytes()))
        };
        let date = "Tue, 27 Mar 2007 21:15:45 GMT";
        for resource in ["/b", "/b/", "/b?acl", "/b/?acl="] {
            let authorization = format!("AWS {KEY}:{}", sign(&format!("GET\n\n\n{date}\n{resource}")));
            let uri = if resource.contains("acl") { "/b?acl" } else { "/b" };
            let signed = claim(Method::GET, uri, &[("date", date), ("authorization", &authorization)], None);
            assert!(signed.expect("a claim").holds(SECRET), "{resource}");
        }
    }

    #[test]
    fn times_are_checked_before_signatures() {
        let at = |date: &str| {
            let of = [("x-amz-date", date), ("authorization", "AWS KEY:c2ln")];
            let error = claim(Method::GET, "/b", &of, None).map(|_| ()).expect_err("a bad time");
            error.code().as_str().to_owned()
        };
        assert_eq!(at("Bad Date"), "AccessDenied");
        assert_eq!(at(""), "AccessDenied");
        assert_eq!(at("Tue, 07 Jul 1950 21:53:04 GMT"), "AccessDenied");
        assert_eq!(at("Tue, 07 Jul 2010 21:53:04 GMT"), "RequestTimeTooSkewed");
        assert_eq!(at("Tue, 07 Jul 9999 21:53:04 GMT"), "RequestTimeTooSkewed");
        let old = claim(Method::GET, "/b/k?AWSAccessKeyId=K&Signature=c2ln&Expires=1000000000", &[], None);
        assert_eq!(old.map(|_| ()).expect_err("expired").code().as_str(), "AccessDenied");
    }

    #[test]
    fn what_a_signed_url_has_of_headers_becomes_headers_and_is_signed() {
        let text = "PUT\n\ntext/plain\n1175139620\nx-amz-acl:private\n/b/k";
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes())).replace('+', "%2B").replace('/', "%2F");
        let url = format!(
            "/b/k?AWSAccessKeyId={KEY}&Signature={}&x-amz-acl=private&content-type=text%2Fplain&Expires=1175139620&x=1",
            signature.replace('=', "%3D")
        );
        assert!(claim(Method::PUT, &url, &[], None).expect("a claim").holds(SECRET));
        let mut headers = HeaderMap::new();
        let uri = taken_off(&url.parse().expect("a URI"), &mut headers).expect("good");
        assert_eq!(uri.to_string(), "/b/k?x=1");
        assert_eq!(
            (&headers["x-amz-acl"], &headers[CONTENT_TYPE]),
            (&"private".parse().expect("a value"), &"text/plain".parse().expect("a value"))
        );
    }
}
