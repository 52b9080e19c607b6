//! What was measured, beside what a paper found: as Markdown, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

/// A paper's table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// The paper, for a heading.
    pub title: String,
    /// The command that makes it again.
    pub command: String,
    /// Where it was measured.
    pub machine: String,
    /// TCP's congestion control on every host of the lab.
    pub congestion: String,
    /// What was measured.
    pub rows: Vec<Row>,
    /// Figures that follow from the rows.
    pub ratios: Vec<Ratio>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

/// One measurement.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// Which question it belongs to; one plot each.
    pub experiment: &'static str,
    /// What is varied, on the plot's horizontal axis; its name ends in its unit.
    pub along: &'static str,
    /// Its value.
    pub at: f64,
    /// Which curve it belongs to.
    pub series: String,
    /// What was measured.
    pub value: f64,
    /// In which unit.
    pub unit: &'static str,
    /// What iperf3 carried in the same place, in the same unit, if it was asked.
    pub iperf3: Option<f64>,
    /// What the paper found there.
    pub found: &'static str,
}

/// A ratio, and what it should be at least.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// Of what to what.
    pub what: String,
    /// It.
    pub value: f64,
    /// What it should reach, if that was said.
    pub wanted: Option<f64>,
    /// What the paper found.
    pub found: &'static str,
}

/// The rows of one question.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// Its heading.
    pub title: &'static str,
    /// Its heading as part of a file's name.
    pub slug: String,
    /// Its rows, in the order of measurement.
    pub rows: Vec<&'a Row>,
}

impl Table {
    /// An empty one, measured here.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            command: String::new(),
            machine: machine(),
            congestion: String::new(),
            rows: Vec::new(),
            ratios: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The value that was measured there, if it was.
    #[must_use]
    pub fn value(&self, experiment: &str, series: &str, at: f64) -> Option<f64> {
        let row = |row: &&Row| row.experiment == experiment && row.series == series && row.at == at;
        self.rows.iter().find(row).map(|row| row.value)
    }

    /// Adds a ratio of two values, if both were measured.
    pub fn ratio(&mut self, what: &str, of: Option<f64>, to: Option<f64>, wanted: Option<f64>, found: &'static str) {
        if let (Some(of), Some(to)) = (of, to)
            && to > 0.0
        {
            self.add_ratio(what, Some(of / to), wanted, found);
        }
    }

    /// Adds a ratio, if it was measured.
    pub fn add_ratio(&mut self, what: &str, value: Option<f64>, wanted: Option<f64>, found: &'static str) {
        self.ratios.extend(value.map(|value| Ratio { what: what.to_owned(), value, wanted, found }));
    }

    /// The rows by question.
    #[must_use]
    pub fn experiments(&self) -> Vec<Experiment<'_>> {
        let mut all: Vec<Experiment<'_>> = Vec::new();
        for row in &self.rows {
            match all.iter_mut().find(|experiment| experiment.title == row.experiment) {
                Some(experiment) => experiment.rows.push(row),
                None => all.push(Experiment { title: row.experiment, slug: slug(row.experiment), rows: vec![row] }),
            }
        }
        all
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text =
            format!("### {}\n\n`{}` with {} on {}\n", self.title, self.command, self.congestion, self.machine);
        for experiment in self.experiments() {
            let Some(first) = experiment.rows.first() else { continue };
            let _ = write!(
                text,
                "\n**{}**\n\n| {} | | {} | iperf3 | the paper |\n| ---: | --- | ---: | ---: | --- |\n",
                experiment.title, first.along, first.unit
            );
            for row in experiment.rows {
                let beside = row.iperf3.map(number).unwrap_or_default();
                let (at, value) = (number(row.at), number(row.value));
                let _ = writeln!(text, "| {at} | {} | {value} | {beside} | {} |", row.series, row.found);
            }
        }
        if !self.ratios.is_empty() {
            text += "\n**What follows**\n\n| ratio | here | wanted | the paper |\n| --- | ---: | ---: | --- |\n";
            for ratio in &self.ratios {
                let wanted = ratio.wanted.map(|wanted| format!("≥ {wanted}")).unwrap_or_default();
                let _ = writeln!(text, "| {} | {:.2} | {wanted} | {} |", ratio.what, ratio.value, ratio.found);
            }
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }
}

/// A number with as many digits as mean something.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 || value.abs() >= 100.0 || (value.fract() == 0.0 && value.abs() < 1e15) {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn slug(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let words: String = letters.collect();
    words.split('-').filter(|word| !word.is_empty()).take(6).collect::<Vec<_>>().join("-")
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!(
        "{cpus} cores of {}, Linux {}, load {load} at the start",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(series: &str, at: f64, value: f64) -> Row {
        Row {
            experiment: "One stream against buffers",
            along: "buffer, KiB",
            at,
            series: series.to_owned(),
            value,
            unit: "Mb/s",
            iperf3: Some(155.4),
            found: "half",
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_row_and_ratio() {
        let mut table = Table::new("A paper");
        table.rows = vec![row("wan", 64.0, 151.26), row("lan", 64.0, 940.6)];
        let (wan, lan) = (
            table.value("One stream against buffers", "wan", 64.0),
            table.value("One stream against buffers", "lan", 64.0),
        );
        table.ratio("WAN to LAN", wan, lan, Some(0.97), "0.5");
        table.ratio("of nothing", None, lan, None, "");
        let text = table.markdown();
        assert!(text.contains("| 64 | wan | 151 | 155 | half |\n| 64 | lan | 941 | 155 | half |"), "{text}");
        assert!(text.contains("| WAN to LAN | 0.16 | ≥ 0.97 | 0.5 |"), "{text}");
        assert_eq!((table.ratios.len(), table.experiments()[0].slug.as_str()), (1, "one-stream-against-buffers"));
    }

    #[test]
    fn numbers_are_as_long_as_they_mean_something() {
        let numbers = [0.0, 0.126, 3.5, 12.34, 941.4, 1024.0].map(number);
        assert_eq!(numbers, ["0", "0.13", "3.50", "12.3", "941", "1024"]);
    }
}
