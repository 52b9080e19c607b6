//! Where a path of the client leads: text in, absolute path out.
//!
//! Owns the working directory's arithmetic. Never asks the catalogue whether anything is there: the tree has no
//! symbolic links, so a path can be settled by its text alone.
//!
//! Invariant: an [`AbsolutePath`] begins with `/`, holds no empty, `.` or `..` component, does not end in `/` unless
//! it is the root, and is at most [`MAX_PATH_BYTES`] long.

use std::fmt;

use wire::ftp::{FtpPath, MAX_PATH_BYTES};

/// A settled path of the name space.
///
/// Empty components (`//data/a`, which curl and lftp send for an absolute path) are dropped, although the tree may
/// hold such names for S3: no FTP client could be relied on to mean them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AbsolutePath(String);

/// A path that would be longer than [`MAX_PATH_BYTES`]: answered 553.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path would be longer than {MAX_PATH_BYTES} bytes")]
pub struct PathTooLong;

impl AbsolutePath {
    /// `/`
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// What `path` means to somebody in this directory.
    ///
    /// # Errors
    ///
    /// [`PathTooLong`] if both together are.
    pub fn join(&self, path: &FtpPath) -> Result<Self, PathTooLong> {
        self.join_text(path.as_str())
    }

    /// As [`Self::join`], of any text.
    ///
    /// # Errors
    ///
    /// [`PathTooLong`] if both together are.
    pub fn join_text(&self, path: &str) -> Result<Self, PathTooLong> {
        let mut settled = if path.starts_with('/') { String::new() } else { self.0.trim_end_matches('/').to_owned() };
        for component in path.split('/') {
            match component {
                "" | "." => {}
                // The parent of the root is the root.
                ".." => settled.truncate(settled.rfind('/').unwrap_or(0)),
                name => {
                    settled.push('/');
                    settled.push_str(name);
                }
            }
        }
        match settled.len() {
            0 => Ok(Self::root()),
            length if length > MAX_PATH_BYTES => Err(PathTooLong),
            _ => Ok(Self(settled)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory that holds it; the root holds itself.
    pub fn parent(&self) -> Self {
        match self.0.rfind('/') {
            Some(0) | None => Self::root(),
            Some(slash) => Self(self.0[..slash].to_owned()),
        }
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for AbsolutePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_settled_by_their_text() {
        let here = AbsolutePath::root().join_text("data/run 7").unwrap();
        for (path, settled) in [
            ("a", "/data/run 7/a"),
            (".", "/data/run 7"),
            ("..", "/data"),
            ("../../../..", "/"),
            ("//data//src/", "/data/src"),
            ("/", "/"),
            ("./a/../b/", "/data/run 7/b"),
            ("...", "/data/run 7/..."),
        ] {
            assert_eq!(here.join_text(path).unwrap().as_str(), settled, "{path}");
        }
        assert_eq!((here.parent().as_str(), here.name()), ("/data", "run 7"));
        assert_eq!((AbsolutePath::root().parent().as_str(), AbsolutePath::root().name()), ("/", ""));
    }

    #[test]
    fn a_path_that_grows_too_long_is_refused() {
        let deep = AbsolutePath::root().join_text(&"a/".repeat(MAX_PATH_BYTES / 2 - 1)).unwrap();
        assert_eq!(deep.join_text("much too long"), Err(PathTooLong));
    }

    proptest! {
        #[test]
        fn every_path_stays_inside_and_settled(base in "[a-c./]{0,12}", path in "[a-c./]{0,20}") {
            let settled = AbsolutePath::root().join_text(&base).unwrap().join_text(&path).unwrap();
            prop_assert!(settled.as_str().starts_with('/'));
            let clean = settled.as_str() == "/"
                || settled.as_str()[1..].split('/').all(|name| !matches!(name, "" | "." | ".."));
            prop_assert!(clean, "{}", settled);
            prop_assert_eq!(settled.join_text(settled.as_str()).unwrap(), settled);
        }
    }
}
