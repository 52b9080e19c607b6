//! Bitfiles with several copies on disk, one of which lies on a volume that is drained.
//!
//! A further copy is made on another mover where there is room, so that they stay as many; then the one here is dropped.
//! A bitfile none of whose other copies can be read is not touched: its replica here waits, its first copy moves as that
//! of any other.

use catalog::{Located, Purged};
use tracing::{info, warn};

use super::{Drain, Turn};
use crate::{
    failure::FailureKind,
    hsm::{claims, replicate},
};

impl Drain {
    /// Does what is to be done for bitfiles with other copies on disk, and returns the turns of all others.
    pub(super) async fn replicated(&self, turns: Vec<Turn>, located: &[Located]) -> Vec<Turn> {
        if located.iter().all(|found| found.on_disk().count() < 2) {
            return turns;
        }
        let disks = match self.context.reachable_disks().await {
            Ok(disks) => disks,
            Err(error) => {
                warn!(volume = %self.volume, %error, "volumes not looked up");
                return turns;
            }
        };
        let (mut others, mut gone, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for turn in turns {
            let found = located.iter().find(|found| found.bitfile.id == turn.bitfile);
            let Some(found) = found.filter(|found| found.on_disk().count() > 1) else {
                others.push(turn);
                continue;
            };
            let elsewhere = found.on_disk().any(|copy| !copy.touches(&self.volume) && copy.lies_within(&disks));
            let first_here = found.on_disk().next().is_some_and(|copy| copy.touches(&self.volume));
            if elsewhere {
                match self.leave(found, turn.item.failures == 0).await {
                    Ok(()) => gone.push(turn),
                    Err(reason) => failures.push(Self::put_off(&turn, reason)),
                }
            } else if first_here {
                others.push(turn);
            } else {
                let reason = "its other copies on disk cannot be read at the moment: this one stays until they can";
                failures.push(Self::put_off(&turn, reason));
            }
        }
        self.gone(&gone.iter().collect::<Vec<_>>()).await;
        if !gone.is_empty() {
            self.context.wakes.reclaim.notify_one();
        }
        claims::fail(&self.context, failures).await;
        others
    }

    /// Drops what a bitfile has here, once there are as many copies elsewhere as there can be; else why not.
    ///
    /// `instead`: whether a further copy is made. One was, if this turn is a repeat.
    async fn leave(&self, found: &Located, instead: bool) -> Result<(), String> {
        let bitfile = found.bitfile.id;
        // Nobody reads what is in its undelete window.
        if instead && found.bitfile.entry.is_some() {
            match replicate::more(&self.context, found, 1, Some(&self.volume)).await {
                Ok(_) => {}
                Err(failure) if failure.kind() == FailureKind::NoSpace => {
                    info!(%bitfile, volume = %self.volume, "one copy on disk fewer: no other mover has room for it");
                }
                Err(failure) => return Err(failure.to_string()),
            }
        }
        // The first copy last: a replica of a higher number takes its place.
        let mut here: Vec<u32> =
            found.on_disk().filter(|copy| copy.touches(&self.volume)).map(|copy| copy.number).collect();
        here.reverse();
        for number in here {
            let dropped = self.context.catalog.drop_replicas(vec![(bitfile, number)], std::time::Duration::ZERO).await;
            if dropped.map_err(|error| error.to_string())?.first() == Some(&Purged::InUse) {
                return Err("a migration reads it now".to_owned());
            }
        }
        Ok(())
    }
}
