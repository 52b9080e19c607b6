//! What a process writes to standard error while it runs.
//!
//! Owns the choice of format and filter. Talks to `tracing-subscriber`. Never writes to standard
//! output, which belongs to answers, and never formats a [`crate::Secret`].
//!
//! Invariant: one subscriber per process. A second [`init`] (several sites in one test process)
//! leaves the first in place and says so.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How one event looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line for people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per line for programs.
    Json,
}

/// The `[log]` section every process's configuration has.
///
/// [`LogSettings::TEMPLATE`] is its commented text for `--print-config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Which events are written: a level, or `tracing` directives such as `info,mover=debug`.
    pub filter: String,
    /// Text or JSON.
    pub format: LogFormat,
}

impl LogSettings {
    /// The section as a commented file, with the defaults.
    pub const TEMPLATE: &'static str = "\
[log]
# Which events are written: error, warn, info, debug, trace, or per part: \"info,mover=debug\".
# The environment variable PENSTOCK_LOG__FILTER overrides it for one run.
filter = \"info\"
# \"text\" for people, \"json\" (one object a line) for programs. Both go to standard error.
format = \"text\"
";

    /// Whether [`Self::filter`] can be read; the text says what is wrong with it.
    ///
    /// # Errors
    ///
    /// The directive that does not parse.
    pub fn check(&self) -> Result<(), LogFilterError> {
        self.env_filter().map(drop)
    }

    fn env_filter(&self) -> Result<EnvFilter, LogFilterError> {
        EnvFilter::try_new(&self.filter).map_err(|source| LogFilterError { filter: self.filter.clone(), source })
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::Text }
    }
}

/// A log filter that is not one.
#[derive(Debug, thiserror::Error)]
#[error(
    "log filter {filter:?} is not a level (error, warn, info, debug, trace) or a list such as \"info,mover=debug\""
)]
pub struct LogFilterError {
    filter: String,
    source: tracing_subscriber::filter::ParseError,
}

/// Whether this call installed the subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// Events now go where the settings say.
    Now,
    /// An earlier call's settings hold.
    Before,
}

/// Sends events to standard error as `settings` say.
///
/// # Errors
///
/// If the filter does not parse; nothing is installed then.
pub fn init(settings: &LogSettings) -> Result<Installed, LogFilterError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(settings.env_filter()?)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::NONE);
    let installed = match settings.format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(if installed.is_ok() { Installed::Now } else { Installed::Before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_site_in_one_process_keeps_the_first_ones_logs() {
        let settings = LogSettings { filter: "off".to_owned(), ..LogSettings::default() };
        init(&settings).unwrap();
        assert_eq!(init(&LogSettings { format: LogFormat::Json, ..settings }).unwrap(), Installed::Before);
    }

    #[test]
    fn a_filter_that_does_not_parse_is_named() {
        let settings = LogSettings { filter: "mover=loud".to_owned(), ..LogSettings::default() };
        assert!(settings.check().unwrap_err().to_string().contains("\"mover=loud\""));
    }

    #[test]
    fn the_template_says_the_defaults() {
        #[derive(Deserialize)]
        struct File {
            log: LogSettings,
        }
        let file: File = toml::from_str(LogSettings::TEMPLATE).unwrap();
        assert_eq!(file.log, LogSettings::default());
    }
}
