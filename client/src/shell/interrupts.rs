//! Ctrl-C: once stops the command, twice ends the program.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Two signals within this are one Ctrl-C.
const SAME: Duration = Duration::from_millis(250);

/// Ctrl-C: once stops the command, twice ends the program.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupts(Arc<Mutex<Option<CancellationToken>>>);

impl Interrupts {
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> CancellationToken {
        self.slot().insert(CancellationToken::new()).clone()
    }

    pub(super) fn end(&self) {
        self.slot().take();
    }

    pub(super) fn current(&self) -> CancellationToken {
        self.slot().clone().unwrap_or_default()
    }

    /// Waits for Ctrl-C, forever.
    pub(super) async fn watch(self) {
        let mut last: Option<Instant> = None;
        while tokio::signal::ctrl_c().await.is_ok() {
            // Wrappers such as timeout send it to us and to our group.
            let twice = last.is_some_and(|last| last.elapsed() < SAME);
            last = Some(Instant::now());
            if twice {
                continue;
            }
            let running = self.slot().clone().filter(|token| !token.is_cancelled());
            match running {
                Some(token) => {
                    super::output::complain("stopping; Ctrl-C again ends pftp");
                    token.cancel();
                }
                None => std::process::exit(i32::from(super::INTERRUPTED)),
            }
        }
    }
}
