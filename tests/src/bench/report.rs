//! What a run found, as a table for the terminal, as Markdown and as JSON.
//!
//! Owns the wording. Never measures.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::machine::Machine;
use super::statistics::{Summary, paired_ratio, summarise};
use super::{Benchmark, Side, wan};

/// The place of a page that `--markdown` fills with what was measured on loopback. Papers have places of their own.
const FIGURES: &str = "figures";

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where it ran.
    pub machine: Machine,
    /// With smaller sizes.
    pub quick: bool,
    /// How many samples each side has, unless its benchmark says otherwise.
    pub rounds: usize,
    /// One for each benchmark, in order.
    pub outcomes: Vec<Outcome>,
    /// One for each paper, in order.
    pub papers: Vec<wan::Outcome>,
}

/// What came of one benchmark.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Which.
    pub name: &'static str,
    /// What it compares.
    pub asks: &'static str,
    /// How long it took, with set-up.
    pub seconds: f64,
    /// Its figures; empty if it failed before the first.
    pub rows: Vec<Row>,
    /// What else was seen.
    pub notes: Vec<String>,
    /// Why it could not be measured.
    pub failure: Option<String>,
}

/// One side's figures.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Which side.
    pub label: &'static str,
    /// What they count.
    pub unit: super::Unit,
    /// The median and its neighbourhood.
    #[serde(flatten)]
    pub summary: Summary,
    /// All samples, in the order of the rounds.
    pub samples: Vec<f64>,
    /// The side it is compared with.
    pub against: Option<&'static str>,
    /// The median of ours over theirs, round by round.
    pub ratio: Option<f64>,
    /// What was hoped for.
    pub target: Option<String>,
    /// Whether it was reached.
    pub met: Option<bool>,
}

impl Outcome {
    /// Puts samples, one list for each side, into rows.
    #[must_use]
    pub fn new(benchmark: &Benchmark, samples: &[Vec<f64>], took: Duration) -> Self {
        let of = |label: &str| benchmark.sides.iter().position(|side| side.label == label);
        let row = |(side, mine): (&Side, &Vec<f64>)| {
            let summary = summarise(mine)?;
            let theirs = side.against.and_then(of).and_then(|index| samples.get(index));
            let ratio = theirs.and_then(|theirs| paired_ratio(mine, theirs));
            Some(Row {
                label: side.label,
                unit: side.unit,
                summary,
                samples: mine.clone(),
                against: side.against,
                ratio,
                target: side.target.map(|target| target.text(side.unit)),
                met: side.target.and_then(|target| target.is_met(summary.median, ratio)),
            })
        };
        Self {
            name: benchmark.name,
            asks: benchmark.asks,
            seconds: took.as_secs_f64(),
            rows: benchmark.sides.iter().zip(samples).filter_map(row).collect(),
            notes: Vec::new(),
            failure: None,
        }
    }

    /// The table of one benchmark, for the terminal.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.asks);
        if !self.rows.is_empty() {
            let mut table = Table::new();
            table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(HEADER);
            for row in &self.rows {
                table.add_row(row.cells());
            }
            for index in [1, 2, 3] {
                if let Some(column) = table.column_mut(index) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            let _ = writeln!(text, "{table}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "  {note}");
        }
        if let Some(failure) = &self.failure {
            let _ = writeln!(text, "  FAILED: {failure}");
        }
        let _ = writeln!(text, "  took {:.0} s", self.seconds);
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n{}\n\n", self.name, self.asks);
        if !self.rows.is_empty() {
            let _ = writeln!(text, "| {} |", HEADER.join(" | "));
            let _ = writeln!(text, "| --- | ---: | ---: | ---: | --- | --- |");
            for row in &self.rows {
                let _ = writeln!(text, "| {} |", row.cells().join(" | "));
            }
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if let Some(failure) = &self.failure {
            let _ = writeln!(text, "- **could not be measured**: {}", failure.replace('\n', " "));
        }
        text.truncate(text.trim_end().len());
        text.push_str("\n\n");
        text
    }
}

const HEADER: [&str; 6] = ["what", "median", "lowest – highest", "ratio", "target", "reached"];

impl Row {
    fn cells(&self) -> [String; 6] {
        let Summary { median, lowest, highest } = self.summary;
        let ratio = match (self.ratio, self.against) {
            (Some(ratio), Some(against)) => format!("{ratio:.2} × {against}"),
            _ => String::new(),
        };
        let spread =
            if self.samples.len() > 1 { format!("{} – {}", figure(lowest), figure(highest)) } else { String::new() };
        let met = self.met.map(|met| if met { "yes" } else { "no" }.to_owned());
        [
            self.label.to_owned(),
            format!("{} {}", figure(median), self.unit.sign()),
            spread,
            ratio,
            self.target.clone().unwrap_or_default(),
            met.unwrap_or_default(),
        ]
    }
}

/// Three digits that mean something.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

impl Report {
    /// Whether every benchmark could be measured.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let papers = self.papers.iter().all(|outcome| outcome.failure.is_none());
        papers && self.outcomes.iter().all(|outcome| outcome.failure.is_none())
    }

    /// Everything as a chapter of a page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from("## The machine\n\n");
        for line in self.machine.lines() {
            let _ = writeln!(text, "- {line}");
        }
        let size = if self.quick { "a short run with small sizes" } else { "a full run" };
        let _ = write!(text, "- {size}: medians of {}\n\n## The figures\n\n", self.rounds);
        self.outcomes.iter().for_each(|outcome| text.push_str(&outcome.markdown()));
        text
    }

    /// Writes what was measured: each chapter into its place if `path` is a page that has one, else into a page of its
    /// own, one behind the other. Chapters of what was not measured stay as they are.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn write_markdown(&self, path: &Path) -> anyhow::Result<()> {
        let mut page = match std::fs::read_to_string(path) {
            Ok(page) => page,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        if !self.outcomes.is_empty() {
            page = placed(&page, FIGURES, &self.markdown());
        }
        for paper in &self.papers {
            page = placed(&page, paper.word, &paper.chapter());
        }
        std::fs::write(path, page).with_context(|| format!("write {}", path.display()))
    }
}

/// The page with the chapter between the marks of its place; a page that has none gets them at its end.
fn placed(page: &str, place: &str, chapter: &str) -> String {
    let (begin, end) = (format!("<!-- {place}: begin -->"), format!("<!-- {place}: end -->"));
    let marks = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = match marks {
        Some((before, after)) => (before.to_owned(), after),
        None if page.trim().is_empty() => (String::new(), "\n"),
        None => (format!("{}\n\n", page.trim_end()), "\n"),
    };
    format!("{before}{begin}\n\n{}\n\n{end}{after}", chapter.trim())
}

#[cfg(test)]
mod tests {
    use super::super::{Rounds, Setting, Target, Unit};
    use super::*;

    const SIDES: &[Side] = &[
        Side::shown("theirs", Unit::GigabytesPerSecond),
        Side::compared("ours", Unit::GigabytesPerSecond, "theirs").with(Target::RatioAtLeast(0.9)),
    ];

    fn benchmark() -> Benchmark {
        Benchmark {
            name: "one",
            asks: "Is it?",
            sides: SIDES,
            rounds: Rounds::Usual,
            limit: Duration::ZERO,
            set_up: |_: &Setting| Box::pin(async { anyhow::bail!("never") }),
        }
    }

    #[test]
    fn a_row_shows_its_ratio_and_whether_the_target_is_reached() {
        let outcome =
            Outcome::new(&benchmark(), &[vec![10.0, 12.0, 11.0], vec![9.5, 6.0, 9.9]], Duration::from_secs(3));
        let text = outcome.markdown();
        assert!(text.contains("| ours | 9.50 GB/s | 6.00 – 9.90 | 0.90 × theirs | ≥ 0.9 × | yes |"), "{text}");
        assert!(outcome.table().contains("0.90 × theirs"), "{}", outcome.table());
    }

    #[test]
    fn a_side_without_samples_has_no_row() {
        let mut outcome = Outcome::new(&benchmark(), &[vec![1.0], vec![]], Duration::ZERO);
        outcome.failure = Some("the mover\nwent away".to_owned());
        assert_eq!(outcome.rows.len(), 1);
        assert!(outcome.markdown().contains("**could not be measured**: the mover went away"));
    }

    #[test]
    fn figures_go_between_the_marks_of_a_page_and_leave_the_rest() {
        let page = "# Title\n\n<!-- a: begin -->\nold\n<!-- a: end -->\n\n## After\n";
        let once = placed(page, "a", "new\n");
        assert_eq!(once, "# Title\n\n<!-- a: begin -->\n\nnew\n\n<!-- a: end -->\n\n## After\n");
        assert_eq!(placed(&once, "a", "new\n"), once);
        let alone = placed("", "a", "new\n");
        assert_eq!(alone, "<!-- a: begin -->\n\nnew\n\n<!-- a: end -->\n");
        let both = placed(&alone, "b", "more");
        assert_eq!(both, format!("{alone}\n<!-- b: begin -->\n\nmore\n\n<!-- b: end -->\n"));
        assert_eq!(placed(&both, "b", "more"), both);
    }
}
