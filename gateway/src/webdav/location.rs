//! Paths in URIs, and back.
//!
//! Pure.
//!
//! # Source
//!
//! RFC 3986 section 2.1; RFC 4918 section 10.3 (`Destination`).

use catalog::TreePath;
use hyper::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    failure::{Failure, FailureKind},
    files::Files,
};

/// What stands for itself in a path (RFC 3986 `pchar`, but for what XML or shells would stumble over).
const KEPT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+')
    .remove(b'@')
    .remove(b':')
    .remove(b'=')
    .remove(b',');

/// The path that a URI's path names.
pub(super) fn path(text: &str) -> Result<TreePath, Failure> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| Failure::new(FailureKind::BadName, "the path is not UTF-8: encode it as that"))?;
    Files::path(&TreePath::root(), &format!("/{decoded}"))
}

/// The path of a URI for a name; a directory's ends in `/`.
pub(super) fn href(path: &TreePath, directory: bool) -> String {
    let text = path.to_string();
    let slash = if directory && text != "/" { "/" } else { "" };
    format!("{}{slash}", utf8_percent_encode(&text, KEPT))
}

/// Where to move something: an absolute URI of this server, or an absolute path. `None` for another server.
pub(super) fn destination(text: &str, host: Option<&str>) -> Result<Option<TreePath>, Failure> {
    let bad = || Failure::new(FailureKind::BadArgument, "Destination is no absolute URI or path");
    let uri: Uri = text.trim().parse().map_err(|_| bad())?;
    match uri.authority() {
        Some(authority) if host.is_none_or(|host| !authority.as_str().eq_ignore_ascii_case(host)) => return Ok(None),
        None if !uri.path().starts_with('/') => return Err(bad()),
        _ => {}
    }
    path(uri.path()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_and_its_slashes_collapsed() {
        let of = |text: &str| path(text).expect("a good path").to_string();
        assert_eq!(of("/a%20b//c"), "/a b/c");
        assert_eq!(of("//a/../b/%C3%A4"), "/b/ä");
        assert_eq!(of("/100%"), "/100%");
        path("/%FF").expect_err("not UTF-8");
        path("/%00").expect_err("NUL");
    }

    #[test]
    fn a_name_survives_its_uri() {
        for name in ["/a b", "/ä?#%&<>\"'", "/a+b=c:d@e,f;g"] {
            let there = path(name.replace('%', "%25").replace('?', "%3F").replace('#', "%23").as_str());
            let there = there.expect("a good path");
            assert_eq!(path(&href(&there, false)).expect("a good path"), there, "{name}");
        }
        assert_eq!(href(&path("/d").expect("good"), true), "/d/");
        assert_eq!(href(&TreePath::root(), true), "/");
    }

    #[test]
    fn a_destination_is_on_this_server() {
        let of = |text| destination(text, Some("host:1")).map(|path| path.map(|path| path.to_string()));
        assert_eq!(of("https://HOST:1/a/b").expect("good").as_deref(), Some("/a/b"));
        assert_eq!(of("/a").expect("good").as_deref(), Some("/a"));
        assert_eq!(of("https://elsewhere/a").expect("another server"), None);
        of("a b").expect_err("no URI");
    }
}
