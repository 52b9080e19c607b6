//! `make bench`: measures, side by side, and prints a table.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use tests::bench::machine::{Machine, isolate, raise_open_files};
use tests::bench::report::Report;
use tests::bench::runner::{self, Plan};
use tests::bench::wan::{self, Paper};
use tests::bench::{Benchmark, all};
use tokio::signal::unix::{SignalKind, signal};

/// Measures Penstock beside other programs, in one run, on loopback and over links with delay. Figures below a target are
/// shown, never an error.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    /// Only these; all if none is named. `wan` is all papers.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Smaller sizes and medians of three: minutes instead of an hour.
    #[arg(long)]
    quick: bool,
    /// Samples of each side; 5, or 3 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=101))]
    rounds: Option<u16>,
    /// Say what there is to measure, and stop.
    #[arg(long)]
    list: bool,
    /// Where files are kept while it runs; the system's folder for temporary files if left out.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// TCP congestion control (as root); cubic or reno if left out, since BBR halves what loopback carries.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Also write Markdown: into the marked places of a page such as docs/benchmarks.md, or a page of its own; plots go into
    /// the folder `figures` beside it.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything could be measured.
fn run(options: Options) -> anyhow::Result<bool> {
    let (benchmarks, papers) = chosen(&options.names)?;
    let mut out = std::io::stdout();
    if options.list {
        let asked = benchmarks.iter().map(|benchmark| (benchmark.name, benchmark.asks));
        for (name, asks) in asked.chain(papers.iter().map(|paper| (paper.name, paper.asks))) {
            writeln!(out, "{name:20} {asks}")?;
        }
        return Ok(true);
    }
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    // Before the first thread.
    let network = isolate(options.congestion.as_deref())?;
    raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start tokio")?;
    let whole = runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        tokio::select! {
            whole = measure(&options, &benchmarks, &papers, network) => whole,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = term.recv() => bail!("terminated"),
        }
    });
    // A thread may still wait for data; whoever would send it is gone.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    whole
}

fn chosen(names: &[String]) -> anyhow::Result<(Vec<Benchmark>, Vec<Paper>)> {
    let all = all();
    let known: Vec<_> = all.iter().map(|benchmark| benchmark.name).chain(wan::ALL.map(|paper| paper.name)).collect();
    if let Some(name) = names.iter().find(|name| *name != wan::GROUP && !known.contains(&name.as_str())) {
        bail!("there is no benchmark {name}; there are: {}, {}", known.join(", "), wan::GROUP);
    }
    let named = |name: &str| names.iter().any(|wanted| wanted == name);
    let benchmarks = all.into_iter().filter(|benchmark| names.is_empty() || named(benchmark.name)).collect();
    let wanted = |paper: &Paper| names.is_empty() || named(paper.name) || named(wan::GROUP);
    Ok((benchmarks, wan::ALL.into_iter().filter(wanted).collect()))
}

async fn measure(
    options: &Options,
    benchmarks: &[Benchmark],
    papers: &[Paper],
    network: String,
) -> anyhow::Result<bool> {
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let penstock = std::env::current_exe().context("find this program")?.with_file_name("penstock");
    let rounds = options.rounds.map_or(if options.quick { 3 } else { 5 }, usize::from);
    let plan = Plan { quick: options.quick, rounds, folder: &folder, penstock: &penstock };
    let machine = Machine::look(&folder, network);
    let mut report = Report { machine, quick: options.quick, rounds, outcomes: Vec::new(), papers: Vec::new() };
    let mut out = std::io::stdout();
    if !options.json {
        for line in report.machine.lines() {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    for benchmark in benchmarks {
        let outcome = runner::run(benchmark, plan).await;
        if !options.json {
            writeln!(out, "{}", outcome.table())?;
        }
        report.outcomes.push(outcome);
        // Hours of figures are not lost with the last one.
        if let Some(path) = &options.markdown {
            report.write_markdown(path)?;
        }
    }
    let scratch = tempfile::tempdir_in(&folder).context("make a folder")?;
    let figures = wan::figures_folder(options.markdown.as_deref(), scratch.path());
    for paper in papers {
        let outcome = wan::run(*paper, plan, &figures).await;
        if !options.json {
            writeln!(out, "{}", outcome.text())?;
        }
        report.papers.push(outcome);
        if let Some(path) = &options.markdown {
            report.write_markdown(path)?;
        }
    }
    if options.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    }
    Ok(report.is_whole())
}
