//! What the demo prints: titles, sentences, and a progress bar while something moves.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use client::Meter;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where the demo prints.
#[derive(Clone, Copy, Default)]
pub(super) struct Screen;

impl Screen {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn title(&self, text: &str) {
        self.print(&format!("\n── {text}"));
    }

    pub(super) fn say(&self, text: &str) {
        self.print(&format!("   {text}"));
    }

    pub(super) fn command(&self, text: &str) {
        self.print(&format!("   $ {text}"));
    }

    /// A reader that has gone is no reason to stop half-way.
    fn print(&self, text: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Shows `meter` while `work` runs, and says at the end how fast it was.
    pub(super) async fn moving<T>(
        &self,
        what: &str,
        meter: &Meter,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = "   {msg:<10} [{bar:32}] {bytes} of {total_bytes}, {binary_bytes_per_sec}";
        bar.set_style(ProgressStyle::with_template(style).expect("a template of ours").progress_chars("=> "));
        bar.set_message(what.to_owned());
        let began = Instant::now();
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                () = tokio::time::sleep(Duration::from_millis(100)) => {
                    let reading = meter.read();
                    bar.set_length(reading.total_bytes);
                    bar.set_position(reading.bytes);
                }
            }
        };
        bar.finish_and_clear();
        let reading = meter.read();
        let seconds = began.elapsed().as_secs_f64();
        if result.is_ok() {
            self.say(&format!(
                "{what}: {} files, {} in {seconds:.1} s: {}/s",
                reading.files,
                HumanBytes(reading.bytes),
                HumanBytes((reading.bytes as f64 / seconds.max(0.001)) as u64)
            ));
        }
        result
    }
}
