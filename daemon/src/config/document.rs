//! The parsed file with overrides merged in, and the place of every key.
//!
//! Owns spans. Pure. An override's spans lie behind the end of the file, so one number says both
//! which source a value came from and where in it.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Fault;

/// What every override begins with.
const PREFIX: &str = "PENSTOCK_";
/// What stands between the levels of a key.
const SEPARATOR: &str = "__";
/// More levels than any settings type has.
const MAX_LEVELS: usize = 16;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file, at this line (from 1).
    Line {
        /// The file's name as given.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// In the environment.
    Variable(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// The first mistake that keeps a document from being read.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) Fault);

/// The places of everything a configuration file and its overrides said.
pub(super) struct Document {
    name: String,
    text: String,
    /// Variables in the order of their spans.
    variables: Vec<(String, Range<usize>)>,
    keys: Vec<Key>,
}

/// The text may hold secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One key of the document.
#[derive(Debug)]
struct Key {
    path: String,
    name: Range<usize>,
    value: Range<usize>,
}

impl Document {
    /// Reads `text`, merges the overrides in `environment` and makes the settings.
    pub(super) fn read<T: DeserializeOwned>(
        name: &str,
        text: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, T), Unreadable> {
        let mut document =
            Self { name: name.to_owned(), text: text.to_owned(), variables: Vec::new(), keys: Vec::new() };
        let mut table = DeTable::parse(text).map_err(|error| document.syntax(&error))?;
        let mut overrides: Vec<_> =
            environment.into_iter().filter_map(|(name, value)| Some((path_of(&name)?, name, value))).collect();
        // The environment has no order; results must not depend on it.
        overrides.sort();
        let mut end = text.len() + 1;
        for (path, name, value) in &overrides {
            let span = end..end + value.len() + 1;
            document.variables.push((name.clone(), span.clone()));
            set(table.get_mut(), path, name, Spanned::new(span.clone(), value_of(value, span.start)))?;
            end = span.end;
        }
        collect(table.get_ref(), "", &mut document.keys);
        match T::deserialize(Deserializer::from(table)) {
            Ok(settings) => Ok((document, settings)),
            Err(error) => Err(document.mismatch(&error)),
        }
    }

    /// Where `key` was set, or its nearest enclosing key that was.
    pub(super) fn place(&self, key: &str) -> Place {
        let mut wanted = key;
        loop {
            if let Some(found) = self.keys.iter().find(|known| known.path == wanted) {
                return self.place_at(found.name.start);
            }
            match wanted.rfind(['.', '[']) {
                Some(cut) => wanted = &wanted[..cut],
                None => return self.place_at(0),
            }
        }
    }

    fn place_at(&self, offset: usize) -> Place {
        if let Some((name, _)) = self.variables.iter().find(|(_, span)| span.contains(&offset)) {
            return Place::Variable(name.clone());
        }
        let before = self.text.as_bytes().iter().take(offset);
        Place::Line { file: self.name.clone(), line: 1 + before.filter(|byte| **byte == b'\n').count() }
    }

    fn syntax(&self, error: &toml::de::Error) -> Unreadable {
        Unreadable(Fault {
            place: self.place_at(error.span().map_or(0, |span| span.start)),
            key: None,
            what: error.message().replace('\n', ", "),
            next_step: "correct the TOML syntax there".to_owned(),
        })
    }

    fn mismatch(&self, error: &toml::de::Error) -> Unreadable {
        let message = error.message().replace('\n', ", ");
        let span = error.span().unwrap_or(0..0);
        // The smallest known piece of text around the error is the key it is about; an override's
        // section and key share one piece, and the longer path says more.
        let key = self
            .keys
            .iter()
            .flat_map(|key| [(key, &key.name), (key, &key.value)])
            .filter(|(_, piece)| piece.start <= span.start && span.end <= piece.end && !span.is_empty())
            .min_by_key(|(key, piece)| (piece.len(), usize::MAX - key.path.len()))
            .map(|(key, _)| key);
        let next_step = if message.starts_with("unknown field") {
            "remove it or correct its spelling (\"--print-config\" shows every key)"
        } else if message.starts_with("missing field") {
            "add it (\"--print-config\" shows an example)"
        } else {
            "correct the value (\"--print-config\" shows an example)"
        };
        Unreadable(Fault {
            place: self.place_at(key.map_or(span.start, |key| key.name.start)),
            key: key.map(|key| key.path.clone()),
            what: if key.is_some() { format!("is wrong: {message}") } else { message },
            next_step: next_step.to_owned(),
        })
    }
}

/// `PENSTOCK_FTP__PORT_RANGE` is `["ftp", "port_range"]`; `None` for variables that are no override.
fn path_of(variable: &str) -> Option<Vec<String>> {
    let rest = variable.strip_prefix(PREFIX)?;
    let levels: Vec<String> = match rest.strip_prefix('_') {
        Some(top) => vec![top.to_ascii_lowercase()],
        None if rest.contains(SEPARATOR) => rest.split(SEPARATOR).map(str::to_ascii_lowercase).collect(),
        None => return None,
    };
    (levels.len() <= MAX_LEVELS && levels.iter().all(|level| !level.is_empty())).then_some(levels)
}

fn collect(table: &DeTable<'_>, prefix: &str, keys: &mut Vec<Key>) {
    for (name, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        let path = format!("{prefix}{dot}{}", name.get_ref());
        keys.push(Key { path: path.clone(), name: name.span(), value: value.span() });
        collect_value(value, &path, keys);
    }
}

fn collect_value(value: &Spanned<DeValue<'_>>, path: &str, keys: &mut Vec<Key>) {
    match value.get_ref() {
        DeValue::Table(table) => collect(table, path, keys),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                let path = format!("{path}[{index}]");
                keys.push(Key { path: path.clone(), name: element.span(), value: element.span() });
                collect_value(element, &path, keys);
            }
        }
        _ => {}
    }
}

/// Reads an override's value as TOML, or as a string if it is none. Spans inside begin at `start`.
fn value_of(text: &str, start: usize) -> DeValue<'_> {
    match DeValue::parse(text) {
        Ok(value) => moved(value.into_inner(), start),
        Err(_) => DeValue::String(text.into()),
    }
}

/// The same value with every span moved up by `by` bytes.
fn moved(value: DeValue<'_>, by: usize) -> DeValue<'_> {
    let up = |span: Range<usize>| span.start + by..span.end + by;
    match value {
        DeValue::Table(table) => DeValue::Table(
            table
                .into_iter()
                .map(|(name, value)| {
                    let name = Spanned::new(up(name.span()), name.into_inner());
                    (name, Spanned::new(up(value.span()), moved(value.into_inner(), by)))
                })
                .collect(),
        ),
        DeValue::Array(array) => DeValue::Array(
            array.into_iter().map(|value| Spanned::new(up(value.span()), moved(value.into_inner(), by))).collect(),
        ),
        scalar => scalar,
    }
}

/// Puts an override into the table, making the sections on the way.
fn set<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    variable: &str,
    value: Spanned<DeValue<'a>>,
) -> Result<(), Unreadable> {
    let span = value.span();
    let fault = |what: String| {
        Unreadable(Fault {
            place: Place::Variable(variable.to_owned()),
            key: Some(path.join(".")),
            what,
            next_step: "correct or unset the variable".to_owned(),
        })
    };
    let (last, sections) = path.split_last().expect("path_of gives at least one level");
    let mut table = table;
    let mut sections = sections.iter();
    while let Some(section) = sections.next() {
        let name = Spanned::new(span.clone(), section.clone().into());
        let empty = || Spanned::new(span.clone(), DeValue::Table(DeTable::default()));
        let mut inside = table.entry(name).or_insert_with(empty).get_mut();
        // A number after the name of an array picks one of its tables.
        if let DeValue::Array(array) = inside {
            let count = array.len();
            let place = sections.next().and_then(|number| number.parse::<usize>().ok());
            inside = place
                .and_then(|place| array.get_mut(place))
                .ok_or_else(|| fault(format!("needs a number below {count} after {section}, which is a list")))?
                .get_mut();
        }
        match inside {
            DeValue::Table(inner) => table = inner,
            other => {
                return Err(fault(format!("lies inside {section}, which is a {} and no section", other.type_str())));
            }
        }
    }
    let key = Spanned::new(span, last.clone().into());
    // `insert` alone would keep the old key, and with it the old place.
    table.remove(&key);
    table.insert(key, value);
    Ok(())
}
