//! Goes round the sides of each benchmark until every one has its samples.
//!
//! Owns the order and the time limits. Never judges a figure. One benchmark that fails does not stop the others.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::report::Outcome;
use super::{Benchmark, Rounds, Setting};

/// What holds for all benchmarks of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Smaller sizes.
    pub quick: bool,
    /// Samples of each side.
    pub rounds: usize,
    /// Where benchmarks get their folders.
    pub folder: &'a Path,
    /// The program `penstock`.
    pub penstock: &'a Path,
}

/// Runs one benchmark.
pub async fn run(benchmark: &Benchmark, plan: Plan<'_>) -> Outcome {
    let began = Instant::now();
    let mut samples = vec![Vec::new(); benchmark.sides.len()];
    let mut notes = Vec::new();
    let measuring = measure(benchmark, plan, &mut samples, &mut notes);
    let result = tokio::time::timeout(benchmark.limit, measuring).await;
    let failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some(format!("it was not done within {} s", benchmark.limit.as_secs())),
    };
    Outcome { notes, failure, ..Outcome::new(benchmark, &samples, began.elapsed()) }
}

async fn measure(
    benchmark: &Benchmark,
    plan: Plan<'_>,
    samples: &mut [Vec<f64>],
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("penstock-bench-").tempdir_in(plan.folder);
    let folder = folder.with_context(|| format!("make a folder in {}", plan.folder.display()))?;
    let setting = Setting { quick: plan.quick, folder: folder.path().to_owned(), penstock: plan.penstock.to_owned() };
    let mut contest = (benchmark.set_up)(&setting).await.context("set up")?;
    let (warm_up, rounds) = match benchmark.rounds {
        Rounds::Usual => (1, plan.rounds),
        Rounds::Once => (0, 1),
    };
    for round in 0..warm_up + rounds {
        for (index, side) in benchmark.sides.iter().enumerate() {
            let sample = contest.measure(index).await.with_context(|| format!("measure {}", side.label))?;
            tracing::debug!(benchmark = benchmark.name, side = side.label, round, sample, "measured");
            if round >= warm_up {
                samples[index].push(sample);
            }
        }
    }
    *notes = contest.notes();
    // Its processes end before the folder they use is removed.
    drop(contest);
    folder.close().context("remove the folder")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::super::{Contest, Side, Unit};
    use super::*;

    const SIDES: &[Side] =
        &[Side::shown("theirs", Unit::Milliseconds), Side::compared("ours", Unit::Milliseconds, "theirs")];

    struct Counting(Arc<Mutex<Vec<usize>>>, bool);

    #[async_trait(?Send)]
    impl Contest for Counting {
        async fn measure(&mut self, side: usize) -> anyhow::Result<f64> {
            let mut seen = self.0.lock().unwrap();
            seen.push(side);
            anyhow::ensure!(!self.1 || seen.len() < 4, "the fourth time");
            Ok(seen.len() as f64)
        }
    }

    static SEEN: Mutex<Option<Arc<Mutex<Vec<usize>>>>> = Mutex::new(None);

    fn benchmark(rounds: Rounds, limit: Duration) -> Benchmark {
        Benchmark {
            name: "counting",
            asks: "How often?",
            sides: SIDES,
            rounds,
            limit,
            set_up: |_| {
                Box::pin(async {
                    let seen = Arc::new(Mutex::new(Vec::new()));
                    *SEEN.lock().unwrap() = Some(seen.clone());
                    Ok(Box::new(Counting(seen, false)) as Box<dyn Contest>)
                })
            },
        }
    }

    fn plan(folder: &Path) -> Plan<'_> {
        Plan { quick: true, rounds: 3, folder, penstock: Path::new("penstock") }
    }

    #[tokio::test]
    async fn sides_take_turns_and_the_first_round_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let outcome = run(&benchmark(Rounds::Usual, Duration::from_secs(60)), plan(folder.path())).await;
        assert_eq!(outcome.failure, None);
        let seen = SEEN.lock().unwrap().take().unwrap();
        assert_eq!(*seen.lock().unwrap(), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(outcome.rows[0].samples, [3.0, 5.0, 7.0]);
        assert_eq!(outcome.rows[1].samples, [4.0, 6.0, 8.0]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is gone");
    }

    #[tokio::test]
    async fn a_benchmark_that_fails_keeps_the_figures_it_has_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let failing = Benchmark {
            set_up: |_| Box::pin(async { Ok(Box::new(Counting(Arc::default(), true)) as Box<dyn Contest>) }),
            ..benchmark(Rounds::Usual, Duration::from_secs(60))
        };
        let outcome = run(&failing, plan(folder.path())).await;
        assert_eq!(outcome.failure.as_deref(), Some("measure ours: the fourth time"));
        assert_eq!(outcome.rows.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is gone");
    }

    #[tokio::test]
    async fn a_benchmark_that_hangs_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let hanging = Benchmark {
            set_up: |_| Box::pin(std::future::pending()),
            ..benchmark(Rounds::Once, Duration::from_millis(10))
        };
        let outcome = run(&hanging, plan(folder.path())).await;
        assert!(outcome.failure.is_some_and(|failure| failure.contains("not done within")));
    }
}
