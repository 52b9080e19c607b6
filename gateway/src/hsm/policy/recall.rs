//! Which cartridge is next, in what order it is read, whose turn it is.

use std::collections::BTreeMap;

use catalog::{StageDemand, Timestamp};
use wire::{
    extent::{Extent, Place},
    id::{AccountName, VolumeLabel},
};

/// Shares out recalls between accounts: start-time fair queueing over bytes.
///
/// Each account has a virtual time, which grows by what it was given divided by its weight. Whoever is furthest behind
/// is next. An account that asks after a pause begins where the others are: idleness saves nothing up.
#[derive(Clone, Debug, Default)]
pub struct FairShare {
    weights: BTreeMap<AccountName, u32>,
    times: BTreeMap<AccountName, f64>,
    now: f64,
}

/// What an account's request counts for besides its bytes: locating costs about as much as reading this much.
const BYTES_PER_REQUEST: u64 = 1 << 30;

impl FairShare {
    /// Shares with these weights; 1 for whoever is not named.
    #[must_use]
    pub fn new(weights: BTreeMap<AccountName, u32>) -> Self {
        Self { weights, times: BTreeMap::new(), now: 0.0 }
    }

    /// Takes note of what was brought to disk for an account.
    #[allow(clippy::cast_precision_loss)]
    pub fn charge(&mut self, account: &AccountName, requests: u64, bytes: u64) {
        let weight = f64::from(self.weights.get(account).copied().unwrap_or(1).max(1));
        let cost = bytes.saturating_add(requests.saturating_mul(BYTES_PER_REQUEST)) as f64;
        let start = self.time(account);
        self.times.insert(account.clone(), start + cost / weight);
    }

    /// Where an account stands; the clock of all for one that has nothing going.
    fn time(&self, account: &AccountName) -> f64 {
        self.times.get(account).copied().unwrap_or(self.now).max(self.now)
    }

    /// Moves the clock of all to the account furthest behind of those that wait, and forgets those behind it.
    fn settle(&mut self, waiting: &[StageDemand]) {
        let behind = waiting.iter().map(|demand| self.time(&demand.account)).reduce(f64::min);
        if let Some(behind) = behind {
            self.now = self.now.max(behind);
        }
        let now = self.now;
        self.times.retain(|_, time| *time > now);
    }

    /// Cartridges in the order in which they should be mounted.
    ///
    /// Priority first; then the account furthest behind that waits for it; then more bytes, since a mount costs the
    /// same for one as for a thousand; then age. (Starvation is the mount service's business: it knows `since`.)
    pub fn rank(&mut self, demands: &[StageDemand]) -> Vec<Recall> {
        self.settle(demands);
        let mut recalls: BTreeMap<&VolumeLabel, (f64, Recall)> = BTreeMap::new();
        for demand in demands {
            let time = self.time(&demand.account);
            let (behind, recall) = recalls.entry(&demand.volume).or_insert_with(|| {
                let recall = Recall {
                    volume: demand.volume.clone(),
                    priority: demand.priority,
                    since: demand.oldest,
                    requests: 0,
                    bytes: 0,
                };
                (f64::INFINITY, recall)
            });
            // Only who asks with the highest priority counts: others ride along.
            if demand.priority > recall.priority {
                *behind = time;
            } else if demand.priority == recall.priority {
                *behind = behind.min(time);
            }
            recall.priority = recall.priority.max(demand.priority);
            recall.since = recall.since.min(demand.oldest);
            recall.requests += demand.requests;
            recall.bytes = recall.bytes.saturating_add(demand.bytes);
        }
        let mut ranked: Vec<(f64, Recall)> = recalls.into_values().collect();
        ranked.sort_by(|(time, a), (other, b)| {
            b.priority
                .cmp(&a.priority)
                .then(time.total_cmp(other))
                .then(b.bytes.cmp(&a.bytes))
                .then(a.since.cmp(&b.since))
        });
        ranked.into_iter().map(|(_, recall)| recall).collect()
    }
}

/// What waits for one cartridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recall {
    /// The cartridge.
    pub volume: VolumeLabel,
    /// The highest priority among its requests.
    pub priority: i32,
    /// When the oldest was asked.
    pub since: Timestamp,
    /// How many requests.
    pub requests: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What reading from one place of a tape after another costs.
///
/// The seam for a serpentine model with nearest neighbour, or a drive's own recommended order: both order by cost, and
/// nothing but this file knows how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TapeModel {
    /// Nothing is known of the tape's geometry: by block, which is right for a linear tape and for dense requests.
    #[default]
    Linear,
}

/// The order in which pieces of one tape are read, as indices of the input.
#[must_use]
pub fn order_recall<'a>(pieces: impl IntoIterator<Item = &'a Extent>, model: TapeModel) -> Vec<usize> {
    let mut order: Vec<(u64, u64, usize)> = pieces
        .into_iter()
        .enumerate()
        .map(|(index, extent)| match extent.place {
            Place::Tape { block, skip_bytes, .. } => (block, u64::from(skip_bytes), index),
            Place::Disk { file, offset_bytes } => (file.0, offset_bytes, index),
        })
        .collect();
    match model {
        TapeModel::Linear => order.sort_unstable(),
    }
    order.into_iter().map(|(_, _, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn account(name: &str) -> AccountName {
        AccountName::new(name).expect("a name")
    }

    fn label(name: &str) -> VolumeLabel {
        VolumeLabel::new(name).expect("a label")
    }

    fn demand(volume: &str, who: &str, requests: u64, bytes: u64) -> StageDemand {
        StageDemand {
            volume: label(volume),
            account: account(who),
            requests,
            bytes,
            oldest: Timestamp::from_seconds(1),
            priority: 0,
        }
    }

    fn first(share: &mut FairShare, demands: &[StageDemand]) -> String {
        share.rank(demands)[0].volume.to_string()
    }

    #[test]
    fn a_storm_of_one_account_does_not_hold_up_another() {
        let mut share = FairShare::default();
        let mut demands: Vec<StageDemand> = (0..50).map(|n| demand(&format!("S{n}"), "storm", 100, 1 << 40)).collect();
        demands.push(demand("Q", "quiet", 1, 1 << 20));
        // Whoever goes first, the quiet one is at most second.
        let served = first(&mut share, &demands);
        if served != "Q" {
            share.charge(&account("storm"), 100, 1 << 40);
            demands.retain(|demand| demand.volume.as_str() != served);
            assert_eq!(first(&mut share, &demands), "Q");
        }
    }

    #[test]
    fn two_accounts_share_by_their_weights() {
        let weights = BTreeMap::from([(account("heavy"), 3), (account("light"), 1)]);
        let mut share = FairShare::new(weights);
        let mut turns = BTreeMap::new();
        for _ in 0..400 {
            let demands = [demand("H", "heavy", 1, 1 << 30), demand("L", "light", 1, 1 << 30)];
            let next = first(&mut share, &demands);
            share.charge(&account(if next == "H" { "heavy" } else { "light" }), 1, 1 << 30);
            *turns.entry(next).or_insert(0) += 1;
        }
        assert!((295..=305).contains(&turns["H"]), "{turns:?}");
    }

    #[test]
    fn idleness_saves_nothing_up() {
        let mut share = FairShare::default();
        for _ in 0..100 {
            share.rank(&[demand("B", "busy", 1, 1 << 30)]);
            share.charge(&account("busy"), 1, 1 << 30);
        }
        let mut turns = 0;
        for _ in 0..20 {
            let demands = [demand("B", "busy", 1, 1 << 30), demand("N", "newcomer", 1, 1 << 30)];
            let next = first(&mut share, &demands);
            turns += usize::from(next == "N");
            share.charge(&account(if next == "N" { "newcomer" } else { "busy" }), 1, 1 << 30);
        }
        assert!((9..=12).contains(&turns), "the newcomer had {turns} of 20 turns");
    }

    #[test]
    fn priority_goes_before_share() {
        let mut share = FairShare::default();
        share.charge(&account("greedy"), 1, 1 << 50);
        let urgent = StageDemand { priority: 5, ..demand("U", "greedy", 1, 1) };
        assert_eq!(first(&mut share, &[demand("A", "modest", 9, 9), urgent]), "U");
    }

    #[test]
    fn requests_of_all_accounts_for_a_cartridge_ride_in_one_mount() {
        let mut share = FairShare::default();
        let ranked = share.rank(&[demand("A", "x", 2, 10), demand("A", "y", 3, 20), demand("B", "x", 1, 5)]);
        assert_eq!(ranked.len(), 2);
        let a = ranked.iter().find(|recall| recall.volume == label("A")).expect("A waits");
        assert_eq!((a.requests, a.bytes), (5, 30));
    }

    proptest! {
        #[test]
        fn an_order_names_every_piece_once_and_goes_forward(blocks in prop::collection::vec((0u64..1000, 0u32..100), 0..50)) {
            let extents: Vec<Extent> = blocks.iter().map(|(block, skip)| Extent {
                volume: label("A"),
                place: Place::Tape { container: 1, block: *block, skip_bytes: *skip },
                length_bytes: 1,
            }).collect();
            let order = order_recall(&extents, TapeModel::Linear);
            let places: Vec<(u64, u32)> = order.iter().map(|index| blocks[*index]).collect();
            prop_assert!(places.is_sorted());
            let mut seen = order;
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..extents.len()).collect::<Vec<_>>());
        }
    }
}
