//! Names and paths that come from a server or go to one.
//!
//! Owns the rule that nothing a server lists can name a file outside the folder that was asked for. Pure.

use wire::ftp::FtpPath;

use crate::{ClientError, Result};

/// Deepest recursion into a server's folders: a server can list folders without end.
pub const MAX_DEPTH: usize = 256;

/// The name of an entry, safe to use as a local file name.
///
/// A server may answer with whole paths where names are due; only the last component counts then, if what is before it
/// is `folder` itself.
///
/// # Errors
///
/// [`ClientError::HostileName`] for anything that could leave the folder: `..`, a slash, NUL, or nothing.
pub fn safe_name<'a>(name: &'a str, folder: &str) -> Result<&'a str> {
    let own = name.strip_prefix(folder.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/')).unwrap_or(name);
    let own = own.strip_suffix('/').unwrap_or(own);
    let hostile =
        own.is_empty() || own == "." || own == ".." || own.contains(['/', '\0', '\r', '\n']) || own.len() > 255;
    if hostile { Err(ClientError::HostileName { name: name.chars().take(200).collect() }) } else { Ok(own) }
}

/// A path below a folder of the server.
///
/// # Errors
///
/// If it is too long to be sent.
pub fn below(folder: &str, name: &str) -> Result<FtpPath> {
    if name.is_empty() {
        return Ok(FtpPath::new(folder)?);
    }
    Ok(FtpPath::new(if folder.ends_with('/') { format!("{folder}{name}") } else { format!("{folder}/{name}") })?)
}

/// Makes a path of the user absolute, seen from `folder`; `.` and `..` are resolved as written.
///
/// # Errors
///
/// If it is too long to be sent.
pub fn absolute(folder: &str, path: &str) -> Result<FtpPath> {
    let mut parts: Vec<&str> = Vec::new();
    let folder = if path.starts_with('/') { "" } else { folder };
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Ok(FtpPath::new(format!("/{}", parts.join("/")))?)
}

/// The last component of a path; empty for the root.
pub fn base(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Everything before the last component, `/` at least.
pub fn parent(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// Whether a pattern of `*`, `?` and `[...]` is in the text.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// What a server sent, for a terminal: control characters are shown as `?`, so that no name can move the cursor.
pub fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_listed_name_leaves_the_folder() {
        for hostile in ["", ".", "..", "../x", "a/b", "/etc/passwd", "/data/../x", "a\0b", "x\ny", "/data/", "//"] {
            assert!(safe_name(hostile, "/data").is_err(), "{hostile:?}");
        }
        assert!(safe_name(&"x".repeat(256), "/").is_err());
        for (name, folder, safe) in [
            ("a b", "/data", "a b"),
            ("/data/x", "/data", "x"),
            ("/x", "/", "x"),
            ("sub/", "/data", "sub"),
            ("..x", "/", "..x"),
        ] {
            assert_eq!(safe_name(name, folder).unwrap(), safe);
        }
    }

    #[test]
    fn paths_are_resolved_against_the_folder() {
        for (folder, path, expected) in [
            ("/a/b", "c", "/a/b/c"),
            ("/a/b", "../c", "/a/c"),
            ("/a", "/x/./y/", "/x/y"),
            ("/", "../..", "/"),
            ("/a", ".", "/a"),
        ] {
            assert_eq!(absolute(folder, path).unwrap().as_str(), expected);
        }
        assert_eq!((base("/a/b/"), parent("/a/b/"), parent("/a"), base("/")), ("b", "/a", "/", ""));
        assert_eq!(below("/", "x").unwrap().as_str(), "/x");
    }
}
