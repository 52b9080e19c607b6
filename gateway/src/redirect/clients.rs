//! Which clients follow a 307 to another host, by the name they give. Pure; the table is data.
//!
//! Measured with an object of 3 MiB and a redirect to another address whose query carries a token: those marked here
//! repeated the GET with its headers, kept the token and took the bytes. What is not named is served by the door: the
//! AWS CLI, boto3, the AWS SDKs of JavaScript and Rust stop at a 307, s3cmd follows its host and drops the query.
//! curl and its library follow only if told to (`-L`), which their name does not say.

use hyper::{
    HeaderMap,
    header::{EXPECT, USER_AGENT},
};

use super::Reason;

/// A client's own word, which goes before its key's and before the table: `on` or `off`.
const WISH: &str = "x-penstock-direct";

/// What the names of clients begin with, or have behind a space, that follow on GET.
const FOLLOW: &[&str] = &[
    // Grid clients; gfal2 uses davix.
    "libdavix/",
    "davix/",
    "gfal2",
    "Wget/",
    "rclone/",
    // s5cmd, and others on the first SDK for Go. The second one's name is aws-sdk-go-v2/.
    "aws-sdk-go/",
    // pyarrow.
    "aws-sdk-cpp/",
    // s3fs-fuse.
    "s3fs/",
    "aiobotocore/",
    "minio-py/",
    "object_store/",
    "opendal/",
];

/// The same for clients that follow on PUT, with their body: fewer. Newer versions of rclone have another library and do
/// not ([`OLD_RCLONE`]).
const FOLLOW_WITH_BODY: &[&str] = &["libdavix/", "davix/", "gfal2", "aws-sdk-go/", "aws-sdk-cpp/", "s3fs/"];

/// The version of rclone, and of Amazon's first SDK for Go in it, of which it was measured that it follows on PUT; one of
/// the second SDK was measured not to.
const OLD_RCLONE: (u32, u32) = (1, 60);

/// Whether a client that reads may be sent away: by its own word, else by what was said of the key that it signs with
/// (`key`; `None` if nothing was), else by the table.
///
/// # Errors
///
/// Why it is served here.
pub(crate) fn wish(headers: &HeaderMap, key: Option<bool>) -> Result<(), Reason> {
    follows(headers, key, |word| FOLLOW.iter().any(|known| word.starts_with(known)))
}

/// Whether a client that writes may be sent away: one that follows, and [`waits`]. Who sends at once would be cut off in the
/// middle of it, and may not hear why. `key` as for [`wish`].
///
/// # Errors
///
/// Why it is served here.
pub(crate) fn put_wish(headers: &HeaderMap, key: Option<bool>) -> Result<(), Reason> {
    let known = |word: &str| FOLLOW_WITH_BODY.iter().any(|known| word.starts_with(known)) || is_old_rclone(word);
    follows(headers, key, known)?;
    if waits(headers) { Ok(()) } else { Err(Reason::Hasty) }
}

/// Whether a client holds its body back until it is asked for (RFC 9110 section 10.1.1).
pub(crate) fn waits(headers: &HeaderMap) -> bool {
    let expects = headers.get(EXPECT).and_then(|value| value.to_str().ok());
    expects.is_some_and(|text| text.trim().eq_ignore_ascii_case("100-continue"))
}

fn follows(headers: &HeaderMap, key: Option<bool>, known: impl Fn(&str) -> bool) -> Result<(), Reason> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text(WISH).map(str::trim) {
        Some(word) if word.eq_ignore_ascii_case("on") => return Ok(()),
        Some(word) if word.eq_ignore_ascii_case("off") => return Err(Reason::Asked),
        _ => {}
    }
    if key == Some(false) {
        return Err(Reason::Key);
    }
    // A browser's script would have to be let in by the mover too, and its origin is lost on the way: whatever was said
    // of the key, which a page's URL may have been signed with.
    if headers.contains_key(hyper::header::ORIGIN) {
        return Err(Reason::Client);
    }
    if key == Some(true) {
        return Ok(());
    }
    let name = text(USER_AGENT.as_str()).unwrap_or_default();
    if name.split([' ', '(', ')', ';']).any(known) { Ok(()) } else { Err(Reason::Client) }
}

/// Whether a word is an rclone's name with a version that was measured, or an older one. Debian's 1.60 says no version.
fn is_old_rclone(word: &str) -> bool {
    if word == "rclone/" {
        return true;
    }
    let version = word.strip_prefix("rclone/v").unwrap_or_default();
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) <= OLD_RCLONE,
        _ => false,
    }
}
