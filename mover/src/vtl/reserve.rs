//! Persistent reservations of one drive.
//!
//! Pure: a nexus and a request in, an outcome and the unit attentions for others out.
//!
//! # Source
//!
//! SPC-5, 5.14 (rules), 6.16 (PERSISTENT RESERVE OUT).

use std::collections::BTreeMap;

use super::NexusId;
use crate::scsi::reservation::{Held, Keys, ReserveList};
use crate::scsi::{Cdb, ReserveOut, ReserveType};

/// Who is registered, and who holds the drive.
#[derive(Default)]
pub(super) struct Reservations {
    generation: u32,
    registered: BTreeMap<NexusId, u64>,
    holder: Option<(NexusId, ReserveType)>,
}

/// Why a request is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// RESERVATION CONFLICT.
    Conflict,
    /// 5/26/00.
    InvalidList,
    /// 5/26/04: releasing with another type than reserved.
    InvalidRelease,
}

/// Unit attentions (ASC, ASCQ) that other nexuses get.
pub(super) type Attentions = Vec<(NexusId, (u8, u8))>;

const PREEMPTED: (u8, u8) = (0x2a, 0x03);
const RELEASED: (u8, u8) = (0x2a, 0x04);
const UNREGISTERED: (u8, u8) = (0x2a, 0x05);

impl Reservations {
    pub(super) fn keys(&self) -> Keys {
        Keys { generation: self.generation, keys: self.registered.values().copied().collect() }
    }

    pub(super) fn held(&self) -> Held {
        let holder = self.holder.and_then(|(nexus, kind)| Some((*self.registered.get(&nexus)?, kind as u8)));
        Held { generation: self.generation, holder }
    }

    /// Whether a command of this nexus conflicts with the reservation.
    pub(super) fn conflicts(&self, nexus: NexusId, cdb: &Cdb) -> bool {
        let Some((holder, kind)) = self.holder else { return false };
        if holder == nexus {
            return false;
        }
        let registrants_only =
            matches!(kind, ReserveType::WriteExclusiveRegistrantsOnly | ReserveType::ExclusiveAccessRegistrantsOnly);
        if registrants_only && self.registered.contains_key(&nexus) {
            return false;
        }
        let reads_only = matches!(
            cdb,
            Cdb::Read6 { .. }
                | Cdb::ModeSense6 { .. }
                | Cdb::ModeSense10 { .. }
                | Cdb::ReadAttribute { .. }
                | Cdb::ReadBlockLimits
                | Cdb::ReadPosition { .. }
                | Cdb::ReportDensity { .. }
        );
        let writers_only = matches!(kind, ReserveType::WriteExclusive | ReserveType::WriteExclusiveRegistrantsOnly);
        // SPC-5, table 69: what everybody may send whatever is reserved.
        let always = matches!(
            cdb,
            Cdb::Inquiry { .. }
                | Cdb::ReportLuns { .. }
                | Cdb::RequestSense { .. }
                | Cdb::TestUnitReady
                | Cdb::LogSense { .. }
                | Cdb::PersistentReserveIn { .. }
                | Cdb::PersistentReserveOut { .. }
                | Cdb::PreventRemoval { prevent: false }
        );
        !(always || writers_only && reads_only)
    }

    /// Performs PERSISTENT RESERVE OUT.
    pub(super) fn out(
        &mut self,
        nexus: NexusId,
        action: ReserveOut,
        kind: ReserveType,
        list: ReserveList,
    ) -> Result<Attentions, Refused> {
        let mine = self.registered.get(&nexus).copied();
        match action {
            ReserveOut::Register | ReserveOut::RegisterAndIgnoreExistingKey => {
                if action == ReserveOut::Register && mine.unwrap_or(0) != list.key {
                    return Err(Refused::Conflict);
                }
                Ok(self.register(nexus, list.action_key))
            }
            _ if mine != Some(list.key) => Err(Refused::Conflict),
            ReserveOut::Reserve => match self.holder {
                None => {
                    self.holder = Some((nexus, kind));
                    Ok(Vec::new())
                }
                Some(held) if held == (nexus, kind) => Ok(Vec::new()),
                Some(_) => Err(Refused::Conflict),
            },
            ReserveOut::Release => match self.holder {
                Some((holder, held)) if holder == nexus => {
                    if held != kind {
                        return Err(Refused::InvalidRelease);
                    }
                    Ok(self.release())
                }
                _ => Ok(Vec::new()),
            },
            ReserveOut::Clear => {
                self.generation = self.generation.wrapping_add(1);
                self.holder = None;
                let others = self.registered.keys().filter(|&&other| other != nexus);
                let attentions = others.map(|&other| (other, PREEMPTED)).collect();
                self.registered.clear();
                Ok(attentions)
            }
            ReserveOut::Preempt => self.preempt(nexus, kind, list.action_key),
        }
    }

    fn register(&mut self, nexus: NexusId, key: u64) -> Attentions {
        self.generation = self.generation.wrapping_add(1);
        if key != 0 {
            self.registered.insert(nexus, key);
            return Vec::new();
        }
        let attentions =
            if self.holder.is_some_and(|(holder, _)| holder == nexus) { self.release() } else { Vec::new() };
        self.registered.remove(&nexus);
        attentions
    }

    fn release(&mut self) -> Attentions {
        let Some((holder, kind)) = self.holder.take() else { return Vec::new() };
        match kind {
            ReserveType::WriteExclusive | ReserveType::ExclusiveAccess => Vec::new(),
            _ => self.registered.keys().filter(|&&other| other != holder).map(|&other| (other, RELEASED)).collect(),
        }
    }

    fn preempt(&mut self, nexus: NexusId, kind: ReserveType, key: u64) -> Result<Attentions, Refused> {
        if key == 0 {
            return Err(Refused::InvalidList);
        }
        let victims: Vec<NexusId> = self
            .registered
            .iter()
            .filter(|&(&other, &k)| k == key && other != nexus)
            .map(|(&other, _)| other)
            .collect();
        let held_by_key = self.holder.is_some_and(|(holder, _)| self.registered.get(&holder) == Some(&key));
        if victims.is_empty() && !held_by_key {
            return Err(Refused::Conflict);
        }
        self.generation = self.generation.wrapping_add(1);
        for victim in &victims {
            self.registered.remove(victim);
        }
        if held_by_key {
            self.holder = Some((nexus, kind));
        }
        Ok(victims.into_iter().map(|victim| (victim, UNREGISTERED)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NexusId = NexusId(1);
    const TWO: NexusId = NexusId(2);
    const EXCLUSIVE: ReserveType = ReserveType::ExclusiveAccess;

    fn register(state: &mut Reservations, nexus: NexusId, key: u64) {
        let list = ReserveList { key: 0, action_key: key };
        state.out(nexus, ReserveOut::RegisterAndIgnoreExistingKey, EXCLUSIVE, list).unwrap();
    }

    #[test]
    fn a_higher_epoch_takes_the_drive_and_the_loser_is_told() {
        let mut state = Reservations::default();
        register(&mut state, ONE, 10);
        state.out(ONE, ReserveOut::Reserve, EXCLUSIVE, ReserveList { key: 10, action_key: 0 }).unwrap();
        let write = Cdb::Rewind { immediate: false };
        assert!(state.conflicts(TWO, &write) && !state.conflicts(ONE, &write));
        register(&mut state, TWO, 11);
        let again = state.out(TWO, ReserveOut::Reserve, EXCLUSIVE, ReserveList { key: 11, action_key: 0 });
        assert_eq!(again, Err(Refused::Conflict));
        let told = state.out(TWO, ReserveOut::Preempt, EXCLUSIVE, ReserveList { key: 11, action_key: 10 }).unwrap();
        assert_eq!(told, [(ONE, UNREGISTERED)]);
        assert!(state.conflicts(ONE, &write) && !state.conflicts(TWO, &write));
        assert_eq!(state.held().holder, Some((11, 3)));
        assert_eq!(state.keys().keys, [11]);
    }

    #[test]
    fn unregistering_gives_the_drive_back() {
        let mut state = Reservations::default();
        register(&mut state, ONE, 10);
        state.out(ONE, ReserveOut::Reserve, EXCLUSIVE, ReserveList { key: 10, action_key: 0 }).unwrap();
        state.out(ONE, ReserveOut::Register, EXCLUSIVE, ReserveList { key: 10, action_key: 0 }).unwrap();
        assert_eq!((state.held().holder, state.keys().keys.len()), (None, 0));
    }

    #[test]
    fn who_is_not_registered_changes_nothing() {
        let mut state = Reservations::default();
        for action in [ReserveOut::Reserve, ReserveOut::Release, ReserveOut::Clear, ReserveOut::Preempt] {
            let refused = state.out(ONE, action, EXCLUSIVE, ReserveList { key: 5, action_key: 6 });
            assert_eq!(refused, Err(Refused::Conflict), "{action:?}");
        }
    }

    #[test]
    fn everybody_may_ask_who_holds_the_drive() {
        let mut state = Reservations::default();
        register(&mut state, ONE, 10);
        state.out(ONE, ReserveOut::Reserve, EXCLUSIVE, ReserveList { key: 10, action_key: 0 }).unwrap();
        for cdb in [Cdb::TestUnitReady, Cdb::Inquiry { page: None, allocation: 36 }] {
            assert!(!state.conflicts(TWO, &cdb));
        }
        assert!(state.conflicts(TWO, &Cdb::ReadBlockLimits));
    }
}
