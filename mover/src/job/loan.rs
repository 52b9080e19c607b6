//! A value that threads use while a task owns it, and that the task gets back when they are done.

use std::{ops::Deref, sync::Arc};

use tokio::sync::Notify;

/// The owner's side.
pub(super) struct Lent<T> {
    value: Arc<T>,
    back: Arc<Notify>,
}

/// A user's side. Cheap to clone.
pub(super) struct Loan<T> {
    /// Only empty while it is dropped.
    value: Option<Arc<T>>,
    back: Arc<Notify>,
}

impl<T> Lent<T> {
    /// Takes the value that will be lent.
    pub(super) fn new(value: T) -> Self {
        Self { value: Arc::new(value), back: Arc::default() }
    }

    /// Lends it.
    pub(super) fn loan(&self) -> Loan<T> {
        Loan { value: Some(self.value.clone()), back: self.back.clone() }
    }

    /// Whether nobody uses it.
    pub(super) fn is_lent_to_nobody(&self) -> bool {
        Arc::strong_count(&self.value) == 1
    }

    /// Ends when a user has let go of it since the last call. Cancel-safe; for one waiter.
    pub(super) async fn returned(&self) {
        self.back.notified().await;
    }

    /// Waits until nobody uses it any more, and takes it back.
    pub(super) async fn take_back(self) -> T {
        while !self.is_lent_to_nobody() {
            self.returned().await;
        }
        Arc::into_inner(self.value).expect("nobody else can lend it")
    }
}

impl<T> Clone for Loan<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), back: self.back.clone() }
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        // First let go, then say so. A permit is kept if the owner is not waiting yet.
        self.value = None;
        self.back.notify_one();
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for Loan<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only empty while it is dropped")
    }
}
