//! Strings that may stand in one line of the control connection.
//!
//! Owns the rule that nothing a program puts in a command can start another command. Never interprets a path.
//!
//! Invariant: a [`Text`], [`FtpPath`] or [`Secret`] holds no CR, LF or NUL and is at most a line long.

use std::fmt;

use super::line::MAX_TOKEN_LINE_BYTES;

/// Longest path in a command, in bytes of UTF-8. Linux's `PATH_MAX`; well inside a command line.
pub const MAX_PATH_BYTES: usize = 4096;

/// Why a string may not be sent in a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotText {
    /// It holds CR, LF or NUL, which would end or split the line.
    #[error("a line end or NUL character cannot be sent in an FTP command")]
    Control,
    /// It is empty where something must be named.
    #[error("an empty name cannot be sent in an FTP command")]
    Empty,
    /// It is longer than the limit.
    #[error("{length_bytes} bytes are more than the {limit_bytes} that an FTP command may carry here")]
    TooLong {
        /// How long it is.
        length_bytes: usize,
        /// How long it may be.
        limit_bytes: usize,
    },
}

fn check(text: &str, limit_bytes: usize) -> Result<(), NotText> {
    if text.len() > limit_bytes {
        return Err(NotText::TooLong { length_bytes: text.len(), limit_bytes });
    }
    if text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(NotText::Control);
    }
    Ok(())
}

macro_rules! line_string {
    ($(#[$doc:meta])* $name:ident, limit $limit:expr, empty $empty:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Takes the string as it is, byte for byte.
            ///
            /// # Errors
            ///
            /// [`NotText`] if it could not be sent in one line.
            pub fn new(text: impl Into<String>) -> Result<Self, NotText> {
                let text = text.into();
                check(&text, $limit)?;
                if text.is_empty() && !$empty {
                    return Err(NotText::Empty);
                }
                Ok(Self(text))
            }

            /// The string.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The string, given away.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotText;
            fn try_from(text: String) -> Result<Self, NotText> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NotText;
            fn try_from(text: &str) -> Result<Self, NotText> {
                Self::new(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

line_string! {
    /// A path or name as the peer wrote it: UTF-8, never empty, not normalised and not resolved.
    FtpPath, limit MAX_PATH_BYTES, empty false
}
line_string! {
    /// Free text of one line, possibly empty.
    Text, limit MAX_TOKEN_LINE_BYTES, empty true
}
line_string! {
    /// A password or security token. Its `Debug` shows only the length.
    Secret, limit MAX_TOKEN_LINE_BYTES, empty true
}

impl fmt::Debug for FtpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for FtpPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_smuggle_a_second_command() {
        for hostile in ["a\r\nDELE b", "a\nDELE b", "a\rb", "a\0b"] {
            assert_eq!(FtpPath::new(hostile), Err(NotText::Control), "{hostile:?}");
        }
        assert_eq!(FtpPath::new(""), Err(NotText::Empty));
        assert!(matches!(FtpPath::new("x".repeat(5000)), Err(NotText::TooLong { length_bytes: 5000, .. })));
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new("hunter2").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(7 bytes)");
        assert_eq!(secret.as_str(), "hunter2");
    }
}
