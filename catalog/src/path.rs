//! Paths of the tree: how a door's text becomes the components the catalogue looks up, and what a name may be.
//!
//! Pure. A component never holds `/` or NUL; an empty one is legal only in a key (`a//b` in S3), and only of a
//! directory.

use std::fmt;

use crate::error::{CatalogError, Result};

/// The longest name of one file or directory made by FTP, in bytes: what every POSIX file system takes.
pub const MAX_COMPONENT_BYTES: usize = 255;
/// The longest path of an FTP door, in bytes: Linux's `PATH_MAX`.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest key, in bytes: Amazon S3 User Guide, "Creating object key names".
pub const MAX_KEY_BYTES: usize = 1024;

/// A path from the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreePath {
    components: Vec<String>,
    directory: bool,
}

impl TreePath {
    /// The root.
    #[must_use]
    pub const fn root() -> Self {
        Self { components: Vec::new(), directory: true }
    }

    /// Reads a path as POSIX does, from `base` if it does not begin with `/`.
    ///
    /// `//` counts as one `/`, `.` is left out and `..` drops the component before it (there are no symbolic links,
    /// so this is safe); above the root is the root.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NameTooLong`] beyond [`MAX_COMPONENT_BYTES`] or [`MAX_PATH_BYTES`];
    /// [`CatalogError::InvalidName`] for a NUL.
    pub fn posix(base: &Self, text: &str) -> Result<Self> {
        limit(text.len(), MAX_PATH_BYTES)?;
        let mut components = if text.starts_with('/') { Vec::new() } else { base.components.clone() };
        for component in text.split('/') {
            match component {
                "" | "." => {}
                ".." => {
                    components.pop();
                }
                name => {
                    check_name(name)?;
                    components.push(name.to_owned());
                }
            }
        }
        let whole = components.iter().map(|component| component.len() + 1).sum();
        limit(whole, MAX_PATH_BYTES)?;
        let last = text.rsplit('/').next().unwrap_or_default();
        let directory = components.is_empty() || matches!(last, "" | "." | "..");
        Ok(Self { components, directory })
    }

    /// Takes a key as it is, below `base`: every byte counts, an empty component is a component.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NameTooLong`] beyond [`MAX_KEY_BYTES`]; [`CatalogError::InvalidName`] for a NUL or an empty
    /// key.
    pub fn key(base: &Self, key: &str) -> Result<Self> {
        limit(key.len(), MAX_KEY_BYTES)?;
        if key.is_empty() {
            return Err(CatalogError::InvalidName { name: String::new(), reason: "it is empty" });
        }
        no_nul(key)?;
        let directory = key.ends_with('/');
        let mut components = base.components.clone();
        components.extend(key.strip_suffix('/').unwrap_or(key).split('/').map(str::to_owned));
        Ok(Self { components, directory })
    }

    /// The components from the root down.
    #[must_use]
    pub fn components(&self) -> &[String] {
        &self.components
    }

    /// Whether the text said that it means a directory: it ended in `/`, `.` or `..`.
    #[must_use]
    pub const fn means_directory(&self) -> bool {
        self.directory
    }

    /// The last component; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.components.last().map(String::as_str)
    }

    /// The path without its last component; the root's is the root.
    #[must_use]
    pub fn parent(&self) -> Self {
        let kept = self.components.len().saturating_sub(1);
        Self { components: self.components[..kept].to_vec(), directory: true }
    }
}

impl fmt::Display for TreePath {
    /// With a leading `/` and without a trailing one, except for the root.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.components.is_empty() {
            return f.write_str("/");
        }
        self.components.iter().try_for_each(|component| write!(f, "/{component}"))
    }
}

/// Checks a name that is about to be made.
///
/// # Errors
///
/// [`CatalogError::NameTooLong`] beyond a whole key's length (a door with a shorter limit checks it in the path);
/// [`CatalogError::InvalidName`] for a `/` or NUL.
pub(crate) fn check_new_name(name: &str) -> Result<()> {
    limit(name.len(), MAX_KEY_BYTES)?;
    no_nul(name)?;
    if name.contains('/') {
        return Err(invalid(name, "it holds a '/'"));
    }
    Ok(())
}

/// Checks a file's name: as [`check_new_name`], and not empty, since the key of a file without a name is its
/// directory's.
pub(crate) fn check_file_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(invalid(name, "it is empty"));
    }
    check_new_name(name)
}

fn check_name(name: &str) -> Result<()> {
    limit(name.len(), MAX_COMPONENT_BYTES)?;
    no_nul(name)
}

fn no_nul(name: &str) -> Result<()> {
    if name.contains('\0') { Err(invalid(name, "it holds a NUL byte")) } else { Ok(()) }
}

fn limit(length_bytes: usize, limit_bytes: usize) -> Result<()> {
    if length_bytes > limit_bytes { Err(CatalogError::NameTooLong { length_bytes, limit_bytes }) } else { Ok(()) }
}

fn invalid(name: &str, reason: &'static str) -> CatalogError {
    CatalogError::InvalidName { name: name.chars().take(80).collect(), reason }
}

/// The smallest text that comes after every text beginning with `prefix`; `None` if there is none.
///
/// UTF-8 keeps the order of code points, so the next code point of the last character does it.
pub(crate) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end: Vec<char> = prefix.chars().collect();
    while let Some(last) = end.pop() {
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            end.push(next);
            return Some(end.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn posix(base: &str, text: &str) -> String {
        let base = TreePath::posix(&TreePath::root(), base).expect("a good base");
        TreePath::posix(&base, text).expect("a good path").to_string()
    }

    #[test]
    fn a_posix_path_is_read_as_a_shell_reads_it() {
        assert_eq!(posix("/home/a", "b/../c//./d"), "/home/a/c/d");
        assert_eq!(posix("/home/a", "/x"), "/x");
        assert_eq!(posix("/home/a", "../../../.."), "/");
        assert_eq!(posix("/home/a", ""), "/home/a");
    }

    #[test]
    fn a_trailing_slash_means_a_directory() {
        let root = TreePath::root();
        for (text, directory) in [("/a", false), ("/a/", true), ("/a/.", true), ("/a/b/..", true), ("/", true)] {
            assert_eq!(TreePath::posix(&root, text).expect("a good path").means_directory(), directory, "{text}");
        }
    }

    #[test]
    fn a_key_keeps_its_empty_components() {
        let bucket = TreePath::posix(&TreePath::root(), "/bucket").expect("a good path");
        let path = TreePath::key(&bucket, "a//b/").expect("a good key");
        assert_eq!(path.components(), ["bucket", "a", "", "b"]);
        assert!(path.means_directory());
        assert_eq!(TreePath::key(&bucket, "/").expect("a good key").components(), ["bucket", ""]);
    }

    #[test]
    fn names_that_no_database_or_client_can_hold_are_refused() {
        let root = TreePath::root();
        let long = "x".repeat(256);
        assert!(matches!(TreePath::posix(&root, &long), Err(CatalogError::NameTooLong { limit_bytes: 255, .. })));
        assert!(matches!(TreePath::posix(&root, "a\0b"), Err(CatalogError::InvalidName { .. })));
        assert!(matches!(TreePath::posix(&root, &"x/".repeat(3000)), Err(CatalogError::NameTooLong { .. })));
        let key = "k".repeat(1025);
        assert!(matches!(TreePath::key(&root, &key), Err(CatalogError::NameTooLong { limit_bytes: 1024, .. })));
        assert!(check_new_name("a/b").is_err());
    }

    proptest! {
        #[test]
        fn the_end_of_a_prefix_is_behind_all_and_only_what_begins_with_it(prefix in "\\PC{1,6}", more in "\\PC{0,6}", other in "\\PC{0,8}") {
            let begins = format!("{prefix}{more}");
            if let Some(end) = end_of_prefix(&prefix) {
                prop_assert!(begins < end);
                if other >= prefix && other < end {
                    prop_assert!(other.starts_with(&prefix));
                }
            }
        }
    }
}
