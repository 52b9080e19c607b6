//! One commented TOML file per process, with overrides from the environment.
//!
//! Owns the way from text to a checked settings value, and from a mistake back to its line. Talks
//! to the file system and is given the environment. Never guesses: an unknown key is an error, and
//! there is no default that a file silently failed to set.
//!
//! ```
//! use daemon::config::{self, ByteSize, Problems, Settings};
//!
//! #[derive(Debug, PartialEq, serde::Deserialize)]
//! #[serde(deny_unknown_fields, default)]
//! struct Mover { pool: Pool }
//! #[derive(Debug, PartialEq, serde::Deserialize)]
//! #[serde(deny_unknown_fields, default)]
//! struct Pool { memory: ByteSize }
//!
//! impl Default for Pool { fn default() -> Self { Self { memory: ByteSize::mib(64) } } }
//! impl Default for Mover { fn default() -> Self { Self { pool: Pool::default() } } }
//! impl Settings for Mover {
//!     const TEMPLATE: &'static str = "[pool]\n# Memory for data in flight.\nmemory = \"64 MiB\"\n";
//!     fn check(&self, problems: &mut Problems) {
//!         if self.pool.memory < ByteSize::mib(1) {
//!             problems.add("pool.memory", "is less than 1 MiB", "give the pool at least one block");
//!         }
//!     }
//! }
//!
//! config::check_template::<Mover>();
//! let environment = [("PENSTOCK_POOL__MEMORY".to_owned(), "5 KiB".to_owned())];
//! let error = config::load::<Mover>(None, environment).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "environment variable PENSTOCK_POOL__MEMORY: pool.memory is less than 1 MiB; give the pool at least one block"
//! );
//! ```

mod document;
mod units;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use document::Place;
use document::{Document, Unreadable};
pub use units::{BadUnit, ByteSize, TimeSpan};

use crate::trust::read_bounded;

/// A configuration is pages of text, not megabytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// What a process's configuration file says.
///
/// The type and everything in it should be `#[serde(deny_unknown_fields)]`.
pub trait Settings: DeserializeOwned {
    /// The whole file with every key, its default and a comment: what `--print-config` prints.
    const TEMPLATE: &'static str;

    /// Reports what is wrong between keys, or with a value that has the right type.
    fn check(&self, problems: &mut Problems) {
        let _ = problems;
    }
}

/// Settings, and where each of them was set.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The checked settings.
    pub settings: T,
    document: Document,
}

impl<T> std::ops::Deref for Loaded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.settings
    }
}

impl<T> Loaded<T> {
    /// Where `key` (as `volumes[1].path`) was set; the enclosing section if it was not.
    #[must_use]
    pub fn place(&self, key: &str) -> Place {
        self.document.place(key)
    }

    /// An error about `key` that is only found later, for instance when an address cannot be bound.
    #[must_use]
    pub fn error(&self, key: &str, what: impl fmt::Display, next_step: impl fmt::Display) -> ConfigError {
        let mut problems = Problems::default();
        problems.add(key, what, next_step);
        problems.into_error(&self.document)
    }
}

/// Collects what [`Settings::check`] finds, so that one run shows all mistakes.
#[derive(Debug, Default)]
pub struct Problems(Vec<(String, String, String)>);

impl Problems {
    /// Reports that the value of `key` (as `volumes[1].path`) `what` ("does not exist"), and what
    /// to do about it.
    pub fn add(&mut self, key: impl Into<String>, what: impl fmt::Display, next_step: impl fmt::Display) {
        self.0.push((key.into(), what.to_string(), next_step.to_string()));
    }

    /// Whether nothing was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn into_error(self, document: &Document) -> ConfigError {
        let faults = self.0.into_iter().map(|(key, what, next_step)| {
            let place = document.place(&key);
            Fault { place, key: Some(key), what, next_step }
        });
        ConfigError::Invalid(faults.collect())
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read the configuration file {}; \"--print-config\" prints one to start from", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something in it is wrong; one line of text per fault.
    #[error("{}", lines(.0))]
    Invalid(Vec<Fault>),
}

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File and line, or environment variable.
    pub place: Place,
    /// The key, as `volumes[1].path`; `None` if the text is not TOML.
    pub key: Option<String>,
    /// What is wrong, following the key in a sentence.
    pub what: String,
    /// What to do about it.
    pub next_step: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "{key} ")?;
        }
        write!(f, "{}; {}", self.what, self.next_step)
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Reads settings from the file at `path`, if there is one, and from `environment`.
///
/// A variable `PENSTOCK_SECTION__KEY=value` overrides `key` in `[section]` (`__` between all
/// levels, numbers for places in arrays, `PENSTOCK__KEY` for a key outside all sections). Its value
/// is read as TOML; what is not TOML is taken as a string, so `30s` needs no quotation marks.
/// Usually `environment` is [`std::env::vars`].
///
/// # Errors
///
/// [`ConfigError::Invalid`] names line or variable, key and next step of every mistake found.
pub fn load<T: Settings>(
    path: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded<T>, ConfigError> {
    let (name, text) = match path {
        None => ("the defaults".to_owned(), String::new()),
        Some(path) => {
            let read = read_bounded(path, MAX_FILE_BYTES).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
            });
            (path.display().to_string(), read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?)
        }
    };
    parse(&name, &text, environment)
}

/// As [`load`], from a text; `name` stands for the file in messages.
///
/// # Errors
///
/// As [`load`].
pub fn parse<T: Settings>(
    name: &str,
    text: &str,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Loaded<T>, ConfigError> {
    let (document, settings): (Document, T) =
        Document::read(name, text, environment).map_err(|Unreadable(fault)| ConfigError::Invalid(vec![fault]))?;
    let mut problems = Problems::default();
    settings.check(&mut problems);
    if problems.is_empty() { Ok(Loaded { settings, document }) } else { Err(problems.into_error(&document)) }
}

/// For a test beside each settings type: its template says exactly its defaults, and passes its
/// own check.
///
/// # Panics
///
/// If it does not, with the difference.
pub fn check_template<T: Settings + Default + PartialEq + fmt::Debug>() {
    match parse::<T>("the template", T::TEMPLATE, []) {
        Ok(loaded) => {
            assert!(loaded.settings == T::default(), "template: {:#?}\ndefaults: {:#?}", loaded.settings, T::default())
        }
        Err(error) => panic!("{error}"),
    }
    for line in T::TEMPLATE.lines() {
        assert!(line.len() <= 120, "template line is longer than 120 bytes: {line}");
    }
}

#[cfg(test)]
mod tests;
