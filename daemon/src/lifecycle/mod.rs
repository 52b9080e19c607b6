//! When a process stops: softly, then hard.
//!
//! Owns the two tokens and the tracker under which every task of a process runs. Talks to SIGTERM
//! and SIGINT. Never stops a task by itself: tasks look at the tokens, except those started with
//! [`Shutdown::spawn_until_cut`].
//!
//! Invariant: hard implies soft. Once soft, never running again.

mod clock;

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use clock::Clock;

/// How long tasks get to notice the hard token before they are counted as stuck.
const CUT_GRACE: Duration = Duration::from_secs(5);

/// The two steps by which a process, or one site in a test, comes to its end.
///
/// Running --soft--> Finishing --last task ends--> ended
///    |                  |
///    +------hard--------+-----hard or deadline--> cut
///
/// *Soft*: take no new work, finish what moves. *Hard*: drop everything now. Cheap to clone; all
/// clones are the same shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
    tracker: TaskTracker,
    deadline: Duration,
    /// [`CUT_GRACE`], except in tests.
    cut_grace: Duration,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every task finished by itself before the deadline.
    Clean,
    /// The hard token was needed; `stuck` tasks had not even heard it.
    Cut {
        /// Tasks still running when we stopped waiting for them.
        stuck: usize,
    },
}

impl Shutdown {
    /// A running process whose tasks get `deadline` to finish after the soft token.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        let hard = CancellationToken::new();
        Self { soft: hard.child_token(), hard, tracker: TaskTracker::new(), deadline, cut_grace: CUT_GRACE }
    }

    /// A part that stops with `self`, and can be stopped and waited for alone.
    ///
    /// [`Self::finish`] of the parent does not wait for the child's tasks: whoever made the child
    /// finishes it, usually in a task of the parent.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            soft: self.soft.child_token(),
            hard: self.hard.child_token(),
            tracker: TaskTracker::new(),
            deadline: self.deadline,
            cut_grace: self.cut_grace,
        }
    }

    /// Starts a task that [`Self::finish`] waits for. The task looks at the tokens itself.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.tracker.spawn(task)
    }

    /// Starts a task that is dropped at its next await once the hard token fires.
    ///
    /// Gives `None` if it was dropped.
    pub fn spawn_until_cut<F>(&self, task: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.tracker.spawn(self.hard.clone().run_until_cancelled_owned(task))
    }

    /// Runs a blocking call on a thread of its own; [`Self::finish`] waits for it.
    pub fn spawn_blocking<F, T>(&self, call: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.tracker.spawn_blocking(call)
    }

    /// Soft: no new work from now on. Does nothing when repeated.
    pub fn stop(&self) {
        self.soft.cancel();
    }

    /// Hard: drop everything now.
    pub fn cut(&self) {
        self.soft.cancel();
        self.hard.cancel();
    }

    /// Whether new work is refused.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Whether everything is being dropped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.hard.is_cancelled()
    }

    /// Ends when new work is refused. Cancel-safe.
    pub fn stopping(&self) -> WaitForCancellationFuture<'_> {
        self.soft.cancelled()
    }

    /// Ends when everything is being dropped. Cancel-safe.
    pub fn cutting(&self) -> WaitForCancellationFuture<'_> {
        self.hard.cancelled()
    }

    /// The soft token, for libraries that want one.
    #[must_use]
    pub const fn soft_token(&self) -> &CancellationToken {
        &self.soft
    }

    /// The hard token, for libraries that want one.
    #[must_use]
    pub const fn hard_token(&self) -> &CancellationToken {
        &self.hard
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tracker.len()
    }

    /// Refuses new work, waits for the tasks until the deadline, then cuts.
    ///
    /// Must not be called from a task of this same shutdown, which it would wait for.
    pub async fn finish(&self) -> Ending {
        self.stop();
        self.tracker.close();
        tokio::select! {
            biased;
            () = self.tracker.wait() => {
                return if self.is_cut() { Ending::Cut { stuck: 0 } } else { Ending::Clean };
            }
            () = self.hard.cancelled() => {}
            () = tokio::time::sleep(self.deadline) => {
                warn!(tasks = self.tasks(), deadline_ms = self.deadline.as_millis(), "deadline passed, dropping what still moves");
            }
        }
        self.cut();
        let _ = tokio::time::timeout(self.cut_grace, self.tracker.wait()).await;
        Ending::Cut { stuck: self.tasks() }
    }

    /// Runs until a signal or [`Self::stop`], then until everything has ended.
    ///
    /// The first SIGTERM or SIGINT is soft; the second, or the deadline, is hard. This is the last
    /// line of every `main`.
    ///
    /// # Errors
    ///
    /// If the signal handlers cannot be installed; nothing has been stopped then.
    pub async fn supervise(&self) -> std::io::Result<Ending> {
        let mut signals = Signals::install()?;
        tokio::select! {
            name = signals.next() => info!(signal = name, tasks = self.tasks(), "finishing what moves; a second signal drops it"),
            () = self.stopping() => {}
        }
        let finish = self.finish();
        tokio::pin!(finish);
        loop {
            tokio::select! {
                biased;
                ending = &mut finish => return Ok(ending),
                name = signals.next() => {
                    warn!(signal = name, tasks = self.tasks(), "dropping what still moves");
                    self.cut();
                }
            }
        }
    }
}

/// The two signals that ask a process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next signal's name. Cancel-safe: both streams are.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_heeds_the_soft_token_makes_a_clean_end() {
        let shutdown = Shutdown::new(Duration::from_secs(60));
        let inner = shutdown.clone();
        shutdown.spawn(async move { inner.stopping().await });
        assert_eq!(shutdown.finish().await, Ending::Clean);
        assert!(shutdown.is_stopping() && !shutdown.is_cut());
    }

    #[tokio::test]
    async fn a_task_deaf_to_the_soft_token_is_cut_at_the_deadline() {
        let shutdown = Shutdown::new(Duration::from_millis(10));
        let dropped = shutdown.spawn_until_cut(std::future::pending::<()>());
        assert_eq!(shutdown.finish().await, Ending::Cut { stuck: 0 });
        assert_eq!(dropped.await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_task_deaf_to_both_tokens_is_counted_as_stuck() {
        let shutdown = Shutdown { cut_grace: Duration::from_millis(10), ..Shutdown::new(Duration::ZERO) };
        shutdown.spawn(std::future::pending::<()>());
        assert_eq!(shutdown.finish().await, Ending::Cut { stuck: 1 });
    }

    #[tokio::test]
    async fn a_child_stops_alone_and_with_its_parent() {
        let parent = Shutdown::new(Duration::from_secs(1));
        let (alone, together) = (parent.child(), parent.child());
        alone.cut();
        assert!(alone.is_stopping() && alone.is_cut() && !parent.is_stopping() && !together.is_stopping());
        parent.stop();
        assert!(together.is_stopping() && !together.is_cut());
        parent.cut();
        assert!(together.is_cut());
    }

    /// One test for both signals: handlers are process-wide, so two tests would hear each other.
    #[tokio::test]
    async fn the_first_signal_is_soft_and_the_second_is_hard() {
        let shutdown = Shutdown::new(Duration::from_secs(600));
        // Deaf to soft: only the second signal can end it.
        shutdown.spawn_until_cut(std::future::pending::<()>());
        // Installed before the first kill, or the test process would die of it.
        let _installed = Signals::install().unwrap();
        let supervisor = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.supervise().await.unwrap() }
        });
        let send = |signal| nix::sys::signal::kill(nix::unistd::Pid::this(), signal).unwrap();
        // The supervisor installs its own handlers when first polled; repeat until it heard.
        while !shutdown.is_stopping() {
            send(nix::sys::signal::SIGTERM);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        send(nix::sys::signal::SIGINT);
        assert_eq!(supervisor.await.unwrap(), Ending::Cut { stuck: 0 });
    }
}
