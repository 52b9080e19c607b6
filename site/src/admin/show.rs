//! Answers as tables for people.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets::NOTHING};
use indicatif::HumanBytes;

use super::AdminError;

/// Writes `text` and a line end to standard output. A reader that has gone, as `head` does, is no error.
pub(super) fn write(text: &str) -> Result<(), AdminError> {
    let mut output = io::stdout().lock();
    match writeln!(output, "{}", text.trim_end()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(AdminError::Output(error)),
        _ => Ok(()),
    }
}

/// A table without lines, its columns named. Columns whose name ends in a space are aligned to the right.
pub(super) fn table<const N: usize>(columns: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let right = columns.map(|name| name.ends_with(' '));
    let align = |at: usize| if right[at] { CellAlignment::Right } else { CellAlignment::Left };
    table.set_header(
        columns.iter().enumerate().map(|(at, name)| Cell::new(name.trim_end().to_uppercase()).set_alignment(align(at))),
    );
    let mut empty = true;
    for row in rows {
        empty = false;
        table.add_row(
            row.into_iter().enumerate().map(|(at, text)| Cell::new(printable(&text)).set_alignment(align(at))),
        );
    }
    if empty {
        return "nothing".to_owned();
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Text without control characters: a file's name must not steer the operator's terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A number of bytes.
pub(super) fn bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

/// A part of a whole, in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{} %", u128::from(part) * 100 / u128::from(whole))
}

/// How long ago, or ahead, a moment is: the two largest units that say something.
pub(super) fn span(from_us: i64, to_us: i64) -> String {
    let seconds = to_us.saturating_sub(from_us).max(0) / 1_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Now, in microseconds since the epoch.
pub(super) fn now_us() -> i64 {
    daemon::Clock::real().now_us()
}

/// A value, or a dash.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Values, comma separated, or a dash.
pub(super) fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}

/// The name a value has in JSON: `read_only` for `VolumeState::ReadOnly`. So tables and JSON use one word.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_and_has_no_trailing_blanks() {
        let text = table(["name", "bytes "], [["a".into(), "1".into()], ["long".into(), "1000".into()]]);
        assert_eq!(text, " NAME  BYTES\n a         1\n long   1000");
        assert_eq!(table(["name"], []), "nothing");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(0, 59_000_000), "59s");
        assert_eq!(span(0, 61_000_000), "1m 1s");
        assert_eq!(span(0, 7_260_000_000), "2h 1m");
        assert_eq!(span(0, 90_000_000_000), "1d 1h");
        assert_eq!(span(5, 0), "0s");
    }
}
