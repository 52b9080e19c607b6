//! Digests in headers: what a client wants to be told, and what it says of the bytes it sends.
//!
//! Pure. The sums themselves are the catalogue's; none is computed to answer a question.
//!
//! # Source
//!
//! RFC 3230 (`Want-Digest`, `Digest`) with the algorithm values of IANA's registry: base64, but for `adler32`, which is
//! eight lower-case hexadecimal digits. RFC 9530 (`Want-Repr-Digest`, `Repr-Digest`, `Content-Digest`): base64 for every
//! algorithm. RFC 1864: `Content-MD5`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use wire::checksum::{Algorithm, Sums};

const DIGEST: HeaderName = HeaderName::from_static("digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// No header has more members than this that matters.
const MAX_MEMBERS: usize = 32;

/// The header that answers a wish for a digest, if a sum that is wanted is kept. `Want-Digest` wins over
/// `Want-Repr-Digest`, as clients expect that send both.
pub(super) fn answer(headers: &HeaderMap, sums: &Sums) -> Option<(HeaderName, HeaderValue)> {
    if headers.contains_key(&WANT_DIGEST) {
        let value = members(headers, &WANT_DIGEST).filter_map(|member| {
            let (name, quality) = member.split_once(';').unwrap_or((member, ""));
            let quality =
                quality.trim().strip_prefix("q=").map_or(Some(1.0), |text| text.trim().parse::<f32>().ok())?;
            let algorithm = of_digest(name.trim())?;
            let value = plain(algorithm, &bytes_of(sums, algorithm)?);
            (quality > 0.0).then(|| (quality, format!("{}={value}", digest_name(algorithm))))
        });
        return header(DIGEST, best(value));
    }
    let value = members(headers, &WANT_REPR_DIGEST).filter_map(|member| {
        let (name, preference) = member.split_once('=')?;
        let preference = preference.trim().parse::<u8>().ok().filter(|preference| (1..=10).contains(preference))?;
        let algorithm = of_repr(name.trim())?;
        let value = STANDARD.encode(bytes_of(sums, algorithm)?);
        Some((f32::from(preference), format!("{}=:{value}:", repr_name(algorithm))))
    });
    header(REPR_DIGEST, best(value))
}

/// The value of the highest preference, the first of several.
fn best(values: impl Iterator<Item = (f32, String)>) -> Option<String> {
    let better = |best: Option<(f32, String)>, next: (f32, String)| match best {
        Some(best) if best.0 >= next.0 => Some(best),
        _ => Some(next),
    };
    values.fold(None, better).map(|(_, value)| value)
}

fn header(name: HeaderName, value: Option<String>) -> Option<(HeaderName, HeaderValue)> {
    Some((name, HeaderValue::try_from(value?).ok()?))
}

/// What a client says of the bytes it sends: sums that must come out. Algorithms that are not known here are passed over,
/// as the standards ask.
///
/// # Errors
///
/// A sentence, if the value of a known algorithm is none.
pub(super) fn announced(headers: &HeaderMap) -> Result<Vec<(Algorithm, Vec<u8>)>, String> {
    let mut sums = Vec::new();
    let bad = |what: &str| format!("{what} is no such digest");
    for member in members(headers, &DIGEST) {
        let (name, value) = member.split_once('=').ok_or_else(|| bad(member))?;
        let Some(algorithm) = of_digest(name.trim()) else { continue };
        let value = match algorithm {
            Algorithm::Adler32 => hexadecimal(value.trim()),
            _ => STANDARD.decode(value.trim()).ok(),
        };
        sums.push((algorithm, value.ok_or_else(|| bad(member))?));
    }
    for name in [REPR_DIGEST, CONTENT_DIGEST] {
        for member in members(headers, &name) {
            let (name, value) = member.split_once('=').ok_or_else(|| bad(member))?;
            let Some(algorithm) = of_repr(name.trim()) else { continue };
            let value = value.trim().strip_prefix(':').and_then(|value| value.strip_suffix(':'));
            sums.push((algorithm, value.and_then(|value| STANDARD.decode(value).ok()).ok_or_else(|| bad(member))?));
        }
    }
    for value in headers.get_all(CONTENT_MD5) {
        let decoded = value.to_str().ok().and_then(|text| STANDARD.decode(text.trim()).ok());
        sums.push((Algorithm::Md5, decoded.ok_or_else(|| bad("Content-MD5"))?));
    }
    match sums.iter().find(|(algorithm, value)| value.len() != length(*algorithm)) {
        Some((algorithm, _)) => Err(bad(&format!("a value for {algorithm}"))),
        None => Ok(sums),
    }
}

/// The first sum that is not as it was announced: which, what it is, what it was to be.
pub(super) fn difference(announced: &[(Algorithm, Vec<u8>)], sums: &Sums) -> Option<(Algorithm, String, String)> {
    announced.iter().find_map(|(algorithm, wanted)| {
        let have = bytes_of(sums, *algorithm).unwrap_or_default();
        (have != *wanted).then(|| (*algorithm, hex::encode(have), hex::encode(wanted)))
    })
}

/// The sums that are kept, as one value of `Digest`.
pub(super) fn all(sums: &Sums) -> String {
    let kept = Algorithm::ALL.into_iter().filter_map(|algorithm| Some((algorithm, bytes_of(sums, algorithm)?)));
    let kept = kept.map(|(algorithm, bytes)| format!("{}={}", digest_name(algorithm), plain(algorithm, &bytes)));
    kept.collect::<Vec<_>>().join(",")
}

fn plain(algorithm: Algorithm, bytes: &[u8]) -> String {
    if algorithm == Algorithm::Adler32 { hex::encode(bytes) } else { STANDARD.encode(bytes) }
}

fn members<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> + use<'h> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let members = values.flat_map(|value| value.split(',')).map(str::trim);
    members.filter(|member| !member.is_empty()).take(MAX_MEMBERS)
}

/// Adler-32 in hexadecimal; clients leave zeros away.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let short = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u32::from_str_radix(text, 16).ok().filter(|_| short)?;
    Some(value.to_be_bytes().to_vec())
}

const fn length(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Adler32 | Algorithm::Crc32c => 4,
        Algorithm::Md5 => 16,
        Algorithm::Sha256 => 32,
    }
}

fn bytes_of(sums: &Sums, algorithm: Algorithm) -> Option<Vec<u8>> {
    match algorithm {
        Algorithm::Adler32 => Some(sums.adler32.to_be_bytes().to_vec()),
        Algorithm::Crc32c => Some(sums.crc32c.to_be_bytes().to_vec()),
        Algorithm::Md5 => sums.md5.map(|sum| sum.to_vec()),
        Algorithm::Sha256 => sums.sha256.map(|sum| sum.to_vec()),
    }
}

const fn digest_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Adler32 => "adler32",
        Algorithm::Crc32c => "crc32c",
        Algorithm::Md5 => "md5",
        Algorithm::Sha256 => "sha-256",
    }
}

const fn repr_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Adler32 => "adler",
        other => digest_name(other),
    }
}

fn of_digest(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|algorithm| digest_name(*algorithm).eq_ignore_ascii_case(name))
}

fn of_repr(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|algorithm| repr_name(*algorithm).eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a good value"))
        };
        pairs.iter().map(pair).collect()
    }

    const SUMS: Sums = Sums { adler32: 0x62_0062, crc32c: 0x1a2b_3c4d, md5: None, sha256: None };

    fn told(pairs: &[(&'static str, &str)]) -> Option<String> {
        let (name, value) = answer(&headers(pairs), &SUMS)?;
        Some(format!("{name}: {}", value.to_str().expect("a text")))
    }

    #[test]
    fn an_adler_sum_is_eight_lower_case_digits_and_others_are_base64() {
        assert_eq!(told(&[("want-digest", "adler32")]).as_deref(), Some("digest: adler32=00620062"));
        assert_eq!(told(&[("want-digest", "CRC32C")]).as_deref(), Some("digest: crc32c=Gis8TQ=="));
        assert_eq!(told(&[("want-repr-digest", "adler=5")]).as_deref(), Some("repr-digest: adler=:AGIAYg==:"));
    }

    #[test]
    fn what_is_preferred_and_kept_is_told() {
        let two = "md5;q=1, crc32c;q=0.2, adler32;q=0.7, nonsense";
        assert_eq!(told(&[("want-digest", two)]).as_deref(), Some("digest: adler32=00620062"));
        assert_eq!(told(&[("want-digest", "adler32;q=0, md5")]), None);
        assert_eq!(told(&[("want-repr-digest", "adler=0, crc32c=11, sha-256=3")]), None);
        let both = [("want-repr-digest", "crc32c=9"), ("want-digest", "adler32")];
        assert_eq!(told(&both).as_deref(), Some("digest: adler32=00620062"));
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn sums_are_announced_in_every_form() {
        let all = headers(&[
            ("digest", "adler32=620062, unixsum=1, sha-256=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            ("repr-digest", "crc32c=:Gis8TQ==:"),
            ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ]);
        let sums = announced(&all).expect("good digests");
        let kinds: Vec<_> = sums.iter().map(|(algorithm, _)| *algorithm).collect();
        assert_eq!(kinds, [Algorithm::Adler32, Algorithm::Sha256, Algorithm::Crc32c, Algorithm::Md5]);
        assert_eq!(difference(&sums[..1], &SUMS), None);
        assert_eq!(difference(&sums[2..3], &SUMS), None);
        assert_eq!(difference(&sums[3..], &SUMS).expect("not computed").0, Algorithm::Md5);
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for (name, value) in [
            ("digest", "adler32=123456789"),
            ("digest", "adler32=+1"),
            ("digest", "md5=short"),
            ("digest", "md5"),
            ("repr-digest", "adler=AGIAYg=="),
            ("content-md5", "AAAA"),
        ] {
            announced(&headers(&[(name, value)])).expect_err(value);
        }
    }
}
