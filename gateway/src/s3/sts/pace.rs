//! How many temporary keys an account gets in a time. Pure: time is an argument.
//!
//! A farm's jobs that all begin at once find a supply; one that asks in a loop is told to wait.

use std::{collections::HashMap, time::Duration};

use catalog::Timestamp;
use wire::id::AccountName;

/// Keys that an account can have at once.
const AT_ONCE: i64 = 200;
/// After how long there is one more: ten a second.
const EVERY_US: i64 = 100_000;
/// Accounts that are remembered before those are forgotten that have waited long enough.
const REMEMBERED: usize = 1024;

/// What accounts have had lately. Those that had nothing are not in it, so it is no longer than the list of accounts.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When an account has its whole supply again.
    full: HashMap<AccountName, i64>,
}

impl Pace {
    /// Takes one key of an account's supply.
    ///
    /// # Errors
    ///
    /// How long it takes until there is one.
    pub(super) fn take(&mut self, account: &AccountName, now: Timestamp) -> Result<(), Duration> {
        if self.full.len() >= REMEMBERED && !self.full.contains_key(account) {
            self.full.retain(|_, full| *full > now.0);
        }
        let full = self.full.get(account).copied().unwrap_or(now.0).max(now.0);
        let wait_us = full + EVERY_US - now.0 - AT_ONCE * EVERY_US;
        if wait_us > 0 {
            return Err(Duration::from_micros(wait_us.unsigned_abs()));
        }
        self.full.insert(account.clone(), full + EVERY_US);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str) -> AccountName {
        AccountName::new(name).expect("a name")
    }

    #[test]
    fn an_account_that_has_had_its_supply_waits_and_others_do_not() {
        let (mut pace, alice, bob) = (Pace::default(), account("alice"), account("bob"));
        let now = Timestamp(1_000_000_000);
        for _ in 0..AT_ONCE {
            assert_eq!(pace.take(&alice, now), Ok(()));
        }
        assert_eq!(pace.take(&alice, now), Err(Duration::from_millis(100)));
        assert_eq!(pace.take(&bob, now), Ok(()));
        let later = now.after(Duration::from_millis(250));
        assert_eq!((pace.take(&alice, later), pace.take(&alice, later)), (Ok(()), Ok(())));
        assert_eq!(pace.take(&alice, later), Err(Duration::from_millis(50)));
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_more_and_a_long_wait_no_more_than_the_supply() {
        let (mut pace, alice) = (Pace::default(), account("alice"));
        let now = Timestamp(1_000_000_000);
        for _ in 0..AT_ONCE {
            assert_eq!(pace.take(&alice, now), Ok(()));
        }
        assert!(pace.take(&alice, now.before(Duration::from_secs(1))).is_err());
        let tomorrow = now.after(Duration::from_secs(86_400));
        let had = (0..AT_ONCE * 2).filter(|_| pace.take(&alice, tomorrow).is_ok()).count();
        assert_eq!(had as i64, AT_ONCE);
    }

    #[test]
    fn accounts_that_have_waited_long_enough_are_forgotten() {
        let mut pace = Pace::default();
        let now = Timestamp(1_000_000_000);
        for number in 0..REMEMBERED {
            assert_eq!(pace.take(&account(&format!("a{number}")), now), Ok(()));
        }
        assert_eq!(pace.take(&account("late"), now.after(Duration::from_secs(60))), Ok(()));
        assert_eq!(pace.full.len(), 1);
    }
}
