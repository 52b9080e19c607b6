//! A request before `s3s` sees it: put into the form that it takes, or refused.
//!
//! - Version 2 of the signature is checked here, if the configuration takes it.
//! - A signature of version 4 may have its time in `Date` alone, which `s3s` does not know.
//! - `Authorization` of another scheme, and pre-signed URLs that are good for too long, get an answer of S3's own.
//!
//! Talks to the catalogue for secrets. Never reads a body.

use hyper::{
    HeaderMap, Request,
    header::{AUTHORIZATION, DATE, HOST, HeaderName, HeaderValue},
};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use time::OffsetDateTime;

use super::{Door, access::pairs, sigv2};

/// How long a pre-signed URL may be good (Amazon S3: 7 days).
const MAX_EXPIRES_S: u32 = 7 * 86_400;
const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// Puts a request into the form that `s3s` takes.
///
/// # Errors
///
/// For what is not taken here.
pub(super) async fn prepare<B>(door: &Door, request: &mut Request<B>) -> S3Result<()> {
    let headers = request.headers();
    if headers.get(AUTHORIZATION).is_some_and(|value| !value.as_bytes().starts_with(b"AWS")) {
        return Err(s3_error!(AccessDenied, "the Authorization header is no signature"));
    }
    check_expires(request.uri().query().unwrap_or_default())?;
    if sigv2::is_here(headers, request.uri()) {
        return vouch(door, request).await;
    }
    if let Some(time) = time_of_date_alone(headers) {
        request.headers_mut().insert(AMZ_DATE, time);
    }
    Ok(())
}

fn check_expires(query: &str) -> S3Result<()> {
    let query = pairs(query);
    let expires = query.iter().find(|(name, _)| name == "X-Amz-Expires").map(|(_, value)| value.parse::<u32>());
    if expires.is_some_and(|seconds| !seconds.is_ok_and(|seconds| (1..=MAX_EXPIRES_S).contains(&seconds))) {
        return Err(s3_error!(AccessDenied, "a pre-signed URL is good for 1 second to 7 days"));
    }
    Ok(())
}

/// Checks a signature of version 2, and takes it off.
async fn vouch<B>(door: &Door, request: &mut Request<B>) -> S3Result<()> {
    refuse_old(door)?;
    let domains = &door.config.domains;
    let bucket = by_host(request.headers(), domains);
    let now = OffsetDateTime::from_unix_timestamp(door.catalog.now().0.div_euclid(1_000_000));
    let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let claim = sigv2::Claim::of(request.method(), request.uri(), request.headers(), bucket.as_deref(), now)?;
    let secret = door.secret_of(&claim.key).await?;
    if !claim.holds(secret.expose()) {
        let text = "the signature is not what the secret of the access key makes of the request";
        return Err(s3_error!(SignatureDoesNotMatch, "{}", text));
    }
    let uri = sigv2::taken_off(&request.uri().clone(), request.headers_mut())?;
    *request.uri_mut() = uri;
    request.extensions_mut().insert(sigv2::Vouched { key: claim.key });
    Ok(())
}

/// Refuses version 2 of the signature unless it is taken here.
pub(super) fn refuse_old(door: &Door) -> S3Result<()> {
    if door.config.signature_v2 {
        return Ok(());
    }
    let text = "sign with AWS4-HMAC-SHA256: version 2 is not taken here";
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, text))
}

/// `x-amz-date` of a request that has its time in `Date` alone.
fn time_of_date_alone(headers: &HeaderMap) -> Option<HeaderValue> {
    let signed = headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS4"));
    if !signed || headers.contains_key(AMZ_DATE) {
        return None;
    }
    let time = sigv2::time_of(headers.get(DATE)?.to_str().ok()?)?.to_offset(time::UtcOffset::UTC);
    let form = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    HeaderValue::try_from(time.format(&form).ok()?).ok()
}

/// The bucket that a request's host names.
fn by_host(headers: &HeaderMap, domains: &[String]) -> Option<String> {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let bucket = domains.iter().find_map(|domain| host.strip_suffix(domain.as_str())?.strip_suffix('.'))?;
    Some(bucket.to_owned())
}

/// The bucket that a request names, by path or by host.
pub(super) fn bucket_of(path: &str, headers: &HeaderMap, domains: &[String]) -> Option<String> {
    if let Some(bucket) = by_host(headers, domains) {
        return Some(bucket);
    }
    let first = path.trim_start_matches('/').split('/').next().filter(|name| !name.is_empty())?;
    Some(pairs(&first.replace('+', "%2B")).first()?.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(HeaderName, &'static str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_signature_of_version_4_may_have_its_time_in_date() {
        let date = (DATE, "Mon, 30 Nov 2026 22:40:07 GMT");
        let signed = (AUTHORIZATION, "AWS4-HMAC-SHA256 Credential=KEY");
        assert_eq!(time_of_date_alone(&headers(&[date.clone(), signed.clone()])).expect("a time"), "20261130T224007Z");
        assert!(time_of_date_alone(&headers(std::slice::from_ref(&date))).is_none());
        assert!(time_of_date_alone(&headers(&[date, signed, (AMZ_DATE, "20261130T224008Z")])).is_none());
    }

    #[test]
    fn a_bucket_is_named_by_host_or_by_path() {
        let domains = ["s3.example.org".to_owned()];
        let host = |name| headers(&[(HOST, name)]);
        assert_eq!(bucket_of("/key", &host("data.s3.example.org"), &domains).as_deref(), Some("data"));
        assert_eq!(bucket_of("/data/key", &host("s3.example.org"), &domains).as_deref(), Some("data"));
        assert_eq!(bucket_of("/", &host("s3.example.org"), &domains), None);
    }

    #[test]
    fn a_url_is_good_for_a_week_at_most() {
        for (query, good) in
            [("", true), ("X-Amz-Expires=604800", true), ("X-Amz-Expires=604801", false), ("X-Amz-Expires=0", false)]
        {
            assert_eq!(check_expires(query).is_ok(), good, "{query}");
        }
    }
}
