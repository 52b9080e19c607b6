//! Ctrl-C: once stops the command, twice ends the program.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

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
        while tokio::signal::ctrl_c().await.is_ok() {
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
