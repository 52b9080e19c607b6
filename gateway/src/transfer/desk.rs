//! What moves at the moment: every transfer has a card here, for the operator.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio_util::sync::CancellationToken;
use wire::id::{AccountName, MoverId};

use super::{Direction, TransferView};

/// All cards. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Desk(Arc<Cards>);

#[derive(Default)]
struct Cards {
    last: AtomicU64,
    open: Mutex<BTreeMap<u64, (Arc<Card>, CancellationToken)>>,
}

/// What is known of one transfer while it runs.
pub(super) struct Card {
    pub(super) number: u64,
    pub(super) door: &'static str,
    pub(super) direction: Direction,
    account: Option<AccountName>,
    path: String,
    started: Instant,
    bytes: AtomicU64,
    changing: Mutex<Changing>,
}

#[derive(Default)]
struct Changing {
    movers: Vec<MoverId>,
    total_bytes: Option<u64>,
    state: &'static str,
}

/// Keeps a card on the desk as long as it lives.
pub(super) struct OnDesk {
    desk: Desk,
    pub(super) card: Arc<Card>,
}

impl Desk {
    /// Lays down a card for a transfer that begins.
    pub(super) fn lay(
        &self,
        door: &'static str,
        direction: Direction,
        account: Option<AccountName>,
        path: String,
        cancel: CancellationToken,
    ) -> OnDesk {
        let number = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let changing = Mutex::new(Changing { state: "waits", ..Changing::default() });
        let started = Instant::now();
        let card =
            Arc::new(Card { number, door, direction, account, path, started, bytes: AtomicU64::new(0), changing });
        self.open().insert(number, (Arc::clone(&card), cancel));
        metrics::gauge!("penstock_transfers_running", "door" => door, "direction" => direction.name()).increment(1.0);
        OnDesk { desk: self.clone(), card }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Arc<Card>, CancellationToken)>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn views(&self) -> Vec<TransferView> {
        self.open().values().map(|(card, _)| card.view()).collect()
    }

    pub(super) fn cancel(&self, number: u64) -> bool {
        self.open().get(&number).map(|(_, cancel)| cancel.cancel()).is_some()
    }
}

impl Card {
    fn view(&self) -> TransferView {
        let changing = self.changing();
        TransferView {
            number: self.number,
            door: self.door,
            account: self.account.clone(),
            direction: self.direction,
            path: self.path.clone(),
            movers: changing.movers.clone(),
            bytes: self.bytes.load(Ordering::Relaxed),
            total_bytes: changing.total_bytes,
            elapsed: self.started.elapsed(),
            state: changing.state,
        }
    }

    fn changing(&self) -> std::sync::MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is doing now: `waits`, `tape`, `moves`, `commits`.
    pub(super) fn state(&self, state: &'static str) {
        self.changing().state = state;
    }

    /// Who moves how much.
    pub(super) fn planned(&self, movers: Vec<MoverId>, total_bytes: Option<u64>) {
        let mut changing = self.changing();
        changing.movers = movers;
        changing.total_bytes = total_bytes;
        changing.state = "moves";
    }

    /// How much has moved.
    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for OnDesk {
    fn drop(&mut self) {
        self.desk.open().remove(&self.card.number);
        let direction = self.card.direction.name();
        metrics::gauge!("penstock_transfers_running", "door" => self.card.door, "direction" => direction)
            .decrement(1.0);
    }
}
