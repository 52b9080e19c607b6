//! Fencing: the drive is reserved exclusively, and the key says with which epoch.
//!
//! Pure decision, then the commands. A key is `"PS"` and 48 bits of epoch, so that a reservation of some other software
//! is never mistaken for an old one of ours and preempted.

use tracing::{info, warn};
use wire::id::Epoch;

use super::Drive;
use crate::scsi::reservation::{Held, ReserveList};
use crate::scsi::{Cdb, ReserveIn, ReserveOut, ReserveType, Status};
use crate::tape::device::{CommandError, malformed};
use crate::tape::error::DriveError;

const TAG: u64 = 0x5053 << 48;
const EPOCH_MASK: u64 = (1 << 48) - 1;

/// The reservation key of an epoch.
const fn key(epoch: Epoch) -> u64 {
    TAG | epoch.0 & EPOCH_MASK
}

/// What must be done to hold the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nobody holds it, or we do.
    Reserve,
    /// An older epoch of ours holds it: take it over.
    Preempt { holder: u64 },
    /// A newer epoch holds it.
    Yield { holder: u64 },
    /// Somebody else's software holds it.
    Stranger { holder: u64 },
}

/// Decides from who holds the drive. The same epoch is ours: the drive decides by the nexus.
const fn decide(held: &Held, epoch: Epoch) -> Step {
    let ours = key(epoch);
    match held.holder {
        None => Step::Reserve,
        Some((holder, _)) if holder == ours => Step::Reserve,
        Some((holder, _)) if holder & !EPOCH_MASK != TAG => Step::Stranger { holder },
        Some((holder, _)) if holder < ours => Step::Preempt { holder },
        Some((holder, _)) => Step::Yield { holder: holder & EPOCH_MASK },
    }
}

impl Drive {
    /// Reserves the drive, or says who has it.
    pub(super) fn reserve(&mut self, epoch: Epoch) -> Result<(), DriveError> {
        let cdb = Cdb::PersistentReserveIn { action: ReserveIn::ReadReservation, allocation: 24 };
        let bytes = self.device.fetch(&cdb, 24)?;
        let held = Held::decode(&bytes).map_err(|source| malformed(&cdb, source))?;
        let ours = key(epoch);
        let preempt = match decide(&held, epoch) {
            Step::Reserve => None,
            Step::Preempt { holder } => Some(holder),
            Step::Yield { holder } => return Err(DriveError::Fenced { ours: epoch, holder: Some(holder) }),
            Step::Stranger { holder } => return Err(DriveError::ForeignReservation { key: holder }),
        };
        self.reserve_out(ReserveOut::RegisterAndIgnoreExistingKey, ReserveList { key: 0, action_key: ours })?;
        // If the older reservation was our own nexus's, it has the new key by now, and this succeeds.
        let mut taken = self.reserve_out(ReserveOut::Reserve, ReserveList { key: ours, action_key: 0 });
        if let (Some(holder), Err(CommandError::Refused { status: Status::ReservationConflict, .. })) =
            (preempt, &taken)
        {
            warn!(%epoch, holder = holder & EPOCH_MASK, "drive taken over from an older epoch");
            taken = self.reserve_out(ReserveOut::Preempt, ReserveList { key: ours, action_key: holder });
        }
        match taken {
            Err(CommandError::Refused { status: Status::ReservationConflict, .. }) => {
                // Our own registration must not stay behind: it would look like a claim.
                let _ = self.reserve_out(ReserveOut::Register, ReserveList { key: ours, action_key: 0 });
                Err(DriveError::Fenced { ours: epoch, holder: None })
            }
            other => Ok(other?),
        }
    }

    /// Gives the drive back: unregistering releases the reservation.
    pub(super) fn release(&mut self, epoch: Epoch) -> Result<(), DriveError> {
        match self.reserve_out(ReserveOut::Register, ReserveList { key: key(epoch), action_key: 0 }) {
            Err(CommandError::Refused { status: Status::ReservationConflict, .. }) => {
                info!(%epoch, "the reservation was gone already");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn reserve_out(&mut self, action: ReserveOut, list: ReserveList) -> Result<(), CommandError> {
        let kind = ReserveType::ExclusiveAccess;
        let cdb = Cdb::PersistentReserveOut { action, kind, length: ReserveList::BYTES };
        self.device.send(&cdb, &list.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(key: u64) -> Held {
        Held { generation: 1, holder: Some((key, 3)) }
    }

    #[test]
    fn only_an_older_epoch_of_ours_is_preempted() {
        let ours = Epoch(7);
        assert_eq!(decide(&Held::default(), ours), Step::Reserve);
        assert_eq!(decide(&held(key(ours)), ours), Step::Reserve);
        assert_eq!(decide(&held(key(Epoch(6))), ours), Step::Preempt { holder: key(Epoch(6)) });
        assert_eq!(decide(&held(key(Epoch(8))), ours), Step::Yield { holder: 8 });
        assert_eq!(decide(&held(3), ours), Step::Stranger { holder: 3 });
        assert_eq!(decide(&held(u64::MAX), ours), Step::Stranger { holder: u64::MAX });
    }

    #[test]
    fn an_epoch_of_zero_still_has_a_key() {
        assert_ne!(key(Epoch(0)), 0);
    }
}
