//! Over links with delay: the papers that `penstock lab paper` repeats, as a part of a run.
//!
//! Owns the program while it measures, and ends it when the run is broken off. Says nothing of figures itself: tables and
//! plots are the lab's, and go into places of a page of their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::runner::Plan;

/// The name of all of them together on the command line.
pub const GROUP: &str = "wan";

/// The folder beside a page that has its plots.
pub const FIGURES: &str = "figures";

/// How long a paper may take at most; twice what it needs.
const LIMIT: Duration = Duration::from_secs(3600);
const QUICK_LIMIT: Duration = Duration::from_secs(300);

/// How long the program may take to remove what it made.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// By which it is asked for on the command line.
    pub name: &'static str,
    /// What `penstock lab paper` calls it.
    pub word: &'static str,
    /// What it asks.
    pub asks: &'static str,
}

/// All of them, in the order in which they run.
pub const ALL: [Paper; 4] = [
    Paper {
        name: "wan-hpss-2003",
        word: "hpss-2003",
        asks: "What do delay, buffers, streams, handshakes and the double hop cost between Tsukuba and Tokyo?",
    },
    Paper {
        name: "wan-gridtorrent",
        word: "gridtorrent",
        asks: "What do parallel streams and several sources give, from Indiana to Florida?",
    },
    Paper { name: "wan-osg-2009", word: "osg-2009", asks: "What does encryption cost, by clients and client hosts?" },
    Paper { name: "wan-gfarm-2006", word: "gfarm-2006", asks: "What do many file servers give over one?" },
];

/// What came of one paper.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Which.
    pub name: &'static str,
    /// What `penstock lab paper` calls it.
    pub word: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Its figures, as the lab writes them.
    pub figures: Option<serde_json::Value>,
    /// Its chapter; plots are named as they lie beside it.
    #[serde(skip)]
    pub markdown: String,
    /// Why it could not be measured.
    pub failure: Option<String>,
}

/// Repeats one paper; tables and plots go to `out`.
pub async fn run(paper: Paper, plan: Plan<'_>, out: &Path) -> Outcome {
    let began = Instant::now();
    let limit = if plan.quick { QUICK_LIMIT } else { LIMIT };
    let result = match tokio::time::timeout(limit, measure(paper, plan, out)).await {
        Ok(result) => result,
        Err(_) => Err(anyhow::anyhow!("it was not done within {} s", limit.as_secs())),
    };
    let seconds = began.elapsed().as_secs_f64();
    let outcome =
        Outcome { name: paper.name, word: paper.word, seconds, figures: None, markdown: String::new(), failure: None };
    match result {
        Ok((figures, markdown)) => Outcome { figures: Some(figures), markdown, ..outcome },
        Err(error) => Outcome { failure: Some(format!("{error:#}")), ..outcome },
    }
}

async fn measure(paper: Paper, plan: Plan<'_>, out: &Path) -> anyhow::Result<(serde_json::Value, String)> {
    let mut command = Command::new(plan.penstock);
    command.args(["lab", "paper", paper.word, "--out"]).arg(out);
    if plan.quick {
        command.arg("--quick");
    }
    // How far it is goes to the terminal; the tables are read from the folder.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = Running(command.spawn().context("start penstock lab paper")?);
    let status = running.0.wait().await.context("wait for penstock lab paper")?;
    if !status.success() {
        bail!("penstock lab paper {} ended with {status}", paper.word);
    }
    let read = |name: String| {
        let path = out.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let figures = serde_json::from_str(&read(format!("{}.json", paper.word))?).context("read the figures")?;
    Ok((figures, read(format!("{}.md", paper.word))?))
}

/// The program; dropped in the middle, it is asked to end, and removes what it made.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(pid) = self.0.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
        if matches!(self.0.try_wait(), Ok(Some(_))) || kill(Pid::from_raw(pid), Signal::SIGTERM).is_err() {
            return;
        }
        let asked = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && asked.elapsed() < END_LIMIT {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Outcome {
    /// Its chapter for a page in the folder that has the plots in [`FIGURES`].
    #[must_use]
    pub fn chapter(&self) -> String {
        match &self.failure {
            Some(failure) => {
                let failure = failure.replace('\n', " ");
                format!("### {}\n\n- **could not be measured**: {failure}\n", self.word)
            }
            None => self.markdown.replace(&format!("]({}-", self.word), &format!("]({FIGURES}/{}-", self.word)),
        }
    }

    /// For the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let failure = self.failure.as_ref().map(|failure| format!("  FAILED: {failure}\n")).unwrap_or_default();
        format!("{}\n{}{failure}  took {:.0} s\n", self.name, self.markdown, self.seconds)
    }
}

/// Where plots of this run go: beside the page that gets the tables, or into a folder that goes with the run.
#[must_use]
pub fn figures_folder(page: Option<&Path>, scratch: &Path) -> PathBuf {
    page.map_or_else(|| scratch.join(FIGURES), |page| page.parent().unwrap_or(Path::new(".")).join(FIGURES))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn outcome(failure: Option<&str>) -> Outcome {
        Outcome {
            name: "wan-gfarm-2006",
            word: "gfarm-2006",
            seconds: 1.0,
            figures: None,
            markdown: "### Gfarm\n\n![Rate](gfarm-2006-rate.svg)\n".to_owned(),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_chapter_finds_its_plots_beside_the_page() {
        assert_eq!(outcome(None).chapter(), "### Gfarm\n\n![Rate](figures/gfarm-2006-rate.svg)\n");
        assert!(outcome(Some("no\nroot")).chapter().contains("**could not be measured**: no root"));
        assert_eq!(figures_folder(Some(Path::new("docs/page.md")), Path::new("/tmp/x")), Path::new("docs/figures"));
        assert_eq!(figures_folder(Some(Path::new("page.md")), Path::new("/tmp/x")), Path::new("figures"));
        assert_eq!(figures_folder(None, Path::new("/tmp/x")), Path::new("/tmp/x/figures"));
    }

    /// Something that is called as `penstock` would be.
    fn stand_in(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("penstock");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("allowed");
        path
    }

    async fn measured(script: &str) -> Outcome {
        let folder = tempfile::tempdir().expect("a folder");
        let penstock = stand_in(folder.path(), script);
        let plan = Plan { quick: true, rounds: 1, folder: folder.path(), penstock: &penstock };
        run(ALL[0], plan, folder.path()).await
    }

    #[tokio::test]
    async fn figures_are_what_the_lab_wrote_and_a_lab_that_fails_is_said_to() {
        let good = r#"echo '{"rows": []}' > "$5/hpss-2003.json"; echo "$1 $2 $3 $6" > "$5/hpss-2003.md""#;
        let outcome = measured(good).await;
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.markdown, "lab paper hpss-2003 --quick\n");
        assert_eq!(outcome.figures, Some(serde_json::json!({ "rows": [] })));
        let outcome = measured("exit 3").await;
        assert!(outcome.failure.is_some_and(|failure| failure.contains("exit status: 3")));
        let outcome = measured("exit 0").await;
        assert!(outcome.failure.is_some_and(|failure| failure.contains("hpss-2003.json")), "nothing was written");
    }

    #[tokio::test]
    async fn a_run_that_is_broken_off_lets_the_lab_clean_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = r#"trap 'rm "$5/made"; exit 1' TERM; touch "$5/made"; while :; do sleep 0.02; done"#;
        let penstock = stand_in(folder.path(), script);
        let plan = Plan { quick: true, rounds: 1, folder: folder.path(), penstock: &penstock };
        let made = folder.path().join("made");
        tokio::select! {
            _ = run(ALL[0], plan, folder.path()) => panic!("it never ends by itself"),
            () = async { while !made.exists() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
        }
        assert!(!made.exists());
    }
}
