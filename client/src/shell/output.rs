//! What `pftp` shows: text for people, or one JSON object a line for programs; and the progress line.
//!
//! Owns standard output and standard error. Results go to the first, everything about them to the second. What a server
//! sent is shown without control characters.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::{Meter, names::printable};

/// How often a progress line is drawn, and how often it is printed where it cannot be drawn.
const DRAW_EVERY: Duration = Duration::from_millis(150);
const PRINT_EVERY: Duration = Duration::from_secs(10);

/// Says something on standard error.
pub(super) fn complain(text: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "pftp: {text}");
}

/// Where results and messages go.
#[derive(Debug, Clone)]
pub(super) struct Output {
    json: bool,
    pub(super) progress: bool,
    /// The progress line that is on the screen now: it must step aside for everything else.
    drawn: Arc<Mutex<Option<ProgressBar>>>,
}

impl Output {
    pub(super) fn new(json: bool, progress: bool) -> Self {
        Self { json, progress, drawn: Arc::default() }
    }

    fn aside(&self, print: impl FnOnce()) {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match drawn {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(super) const fn is_json(&self) -> bool {
        self.json
    }

    /// A result: a line for people, or an event for programs.
    pub(super) fn result(&self, text: &str, event: impl FnOnce() -> Value) {
        // A closed pipe ends the output, not the transfer.
        self.aside(|| {
            let mut out = std::io::stdout().lock();
            let _ = if self.json { writeln!(out, "{}", event()) } else { writeln!(out, "{text}") };
        });
    }

    /// Something that only people want to know.
    pub(super) fn note(&self, text: &str) {
        if !self.json {
            self.aside(|| {
                let _ = writeln!(std::io::stderr(), "{text}");
            });
        }
    }

    /// A failure.
    pub(super) fn error(&self, text: &str, event: impl FnOnce() -> Value) {
        if self.json {
            let _ = writeln!(std::io::stdout().lock(), "{}", event());
        } else {
            self.aside(|| complain(text));
        }
    }

    /// Shows the meter while a command runs; ends when dropped.
    pub(super) fn watch(&self, meter: &Meter) -> Progress {
        if !self.progress {
            return Progress(None);
        }
        let (meter, json, drawn) = (meter.clone(), self.json, std::io::stderr().is_terminal() && !self.json);
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let bar = drawn.then(bar);
        let slot = self.drawn.clone();
        slot.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&bar);
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let every = if drawn { DRAW_EVERY } else { PRINT_EVERY };
            loop {
                let end = tokio::time::timeout(every, &mut stopped).await.is_ok();
                let read = meter.read();
                if end {
                    slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(bar) = bar {
                        bar.finish_and_clear();
                    }
                    return;
                }
                let files = if read.total_files > 1 {
                    format!("{}/{} files ", read.files, read.total_files)
                } else {
                    String::new()
                };
                if let Some(bar) = &bar {
                    bar.set_length(read.total_bytes.max(read.bytes));
                    bar.set_position(read.bytes);
                    bar.set_prefix(files);
                    bar.set_message(printable(crate::names::base(&read.current)));
                } else if json {
                    let event = json!({"event": "progress", "bytes": read.bytes, "total_bytes": read.total_bytes,
                        "files": read.files, "failed": read.failed, "total_files": read.total_files});
                    let _ = writeln!(std::io::stdout().lock(), "{event}");
                } else {
                    let text = format!(
                        "{files}{} of {} {}",
                        bytes(read.bytes),
                        bytes(read.total_bytes),
                        rate(read.bytes, started.elapsed())
                    );
                    let _ = writeln!(std::io::stderr(), "{text}");
                }
            }
        });
        Progress(Some((stop, task)))
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{prefix}{binary_bytes}/{binary_total_bytes} [{wide_bar}] {binary_bytes_per_sec} {eta} {msg:.30}",
    );
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A progress line on the screen.
pub(super) struct Progress(Option<(tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>)>);

impl Progress {
    /// Takes the line off the screen.
    pub(super) async fn end(self) {
        if let Some((stop, task)) = self.0 {
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

/// `1.5 GiB`
pub(super) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

/// `in 2.1 s (500.0 MiB/s)`
pub(super) fn rate(count: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds <= 0.0 {
        return String::new();
    }
    format!("in {seconds:.2} s ({}/s)", bytes((count as f64 / seconds) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([bytes(0), bytes(1023), bytes(1536), bytes(5 << 30)], ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!(rate(1 << 20, Duration::from_secs(2)), "in 2.00 s (512.0 KiB/s)");
    }
}
