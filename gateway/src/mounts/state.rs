//! The mount service's state machine: what is where, and what an event changes about it.
//!
//! Pure: no clock, no I/O, no tasks. [`Mounts::apply`] takes an event and the time, and returns what the driver must
//! do now; [`super::plan`] then decides who gets which drive.
//!
//! ```text
//! Unknown ─inventory─► Empty ─► Bringing ─► Attaching ─► Ready ─► Detaching ─► Returning ─► Empty
//!                        └────► Loaded ───────┘ (found so at the start)  └──────────────┘
//! ```
//!
//! Invariants: a cartridge is in one drive at most; a drive has one command under way at most, and so has a robot; a
//! move whose outcome is not known is followed by an inventory before anything else moves in that library; every attach
//! has a larger epoch than any before, of this or any earlier owner.

use std::collections::BTreeMap;

use catalog::Timestamp;
use wire::{
    id::{DriveId, Epoch, LibraryId, MoverId, VolumeLabel},
    mover::{DriveHealth, DriveStatus, Fault, FaultKind, Mounted, Slot, SlotKind},
};

use super::model::{
    Action, Cartridge, Content, Drive, Event, GrantId, Library, Location, Mounts, Released, Rules, Usable,
};

/// So many failed moves in a row make a cartridge suspect.
const MAX_FAILED_MOVES: u32 = 3;

impl Mounts {
    /// Knows nothing yet. `lease` is the epoch of the lease under which this owner works.
    #[must_use]
    pub fn new(rules: Rules, lease: Epoch) -> Self {
        Self { rules, lease, ..Self::default() }
    }

    /// Drives that are out of use, and why, when they come.
    #[must_use]
    pub fn with_down(self, kept_down: BTreeMap<DriveId, String>) -> Self {
        Self { kept_down, ..self }
    }

    /// Takes note of what happened, and decides what to do now.
    pub fn apply(&mut self, now: Timestamp, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Mover { mover, drives, libraries, draining } => {
                self.mover_came(now, &mover, drives, libraries, draining, &mut actions);
            }
            Event::MoverGone { mover, reason } => self.mover_gone(now, &mover, &reason, &mut actions),
            Event::Cartridges(known) => self.cartridges_known(known),
            Event::Want(want) => {
                self.wants.insert(want.id, want);
            }
            Event::Unwant(want) => {
                self.wants.remove(&want);
                for drive in self.drives.values_mut().filter(|drive| drive.bound == Some(want)) {
                    drive.bound = None;
                }
            }
            Event::Release { grant, how } => self.released(now, grant, how, &mut actions),
            Event::Inventory { library, command, result } => {
                self.inventory(now, &library, command, result, &mut actions);
            }
            Event::Moved { drive, command, result } => self.moved(now, &drive, command, result, &mut actions),
            Event::Attached { drive, command, result } => self.attached(now, &drive, command, result, &mut actions),
            Event::Detached { drive, command, result } => self.detached(now, &drive, command, result, &mut actions),
            Event::SetDrive { drive, down } => self.set_drive(now, &drive, down, &mut actions),
            Event::Recheck => self.libraries.values_mut().for_each(|library| library.doubt = true),
            Event::Tick => {}
        }
        self.plan(now, &mut actions);
        actions
    }

    /// The fencing key of the next attach: the lease's epoch in the upper half, a counter in the lower.
    pub(super) fn next_epoch(&mut self) -> Epoch {
        self.attaches += 1;
        Epoch(self.lease.0 << 32 | u64::from(self.attaches))
    }

    pub(super) fn next_command(&mut self) -> u64 {
        self.last_command += 1;
        self.last_command
    }

    fn mover_came(
        &mut self,
        now: Timestamp,
        mover: &MoverId,
        drives: Vec<DriveStatus>,
        libraries: Vec<LibraryId>,
        draining: bool,
        actions: &mut Vec<Action>,
    ) {
        if draining {
            self.draining.insert(mover.clone());
        } else {
            self.draining.remove(mover);
        }
        for library in libraries {
            let library = self.libraries.entry(library).or_insert_with(|| Library::new(now));
            if library.mover.as_ref() != Some(mover) {
                library.mover = Some(mover.clone());
                library.doubt = true;
                library.command = None;
            }
        }
        for status in drives {
            let kept = self.kept_down.get(&status.drive);
            let new = || Drive::new(mover, &status, now).kept_down(kept);
            let known = self.drives.entry(status.drive.clone()).or_insert_with(new);
            known.mover = mover.clone();
            known.library = status.library.clone();
            let usable = match (&status.health, &known.usable) {
                (_, Usable::Down { reason }) => Usable::Down { reason: reason.clone() },
                (DriveHealth::Up, _) => Usable::Up,
                (DriveHealth::Down { reason }, _) => Usable::DownByMover { reason: reason.clone() },
                (DriveHealth::Cleaning { reason }, _) => Usable::Cleaning { reason: reason.clone() },
            };
            if usable != known.usable {
                actions.push(Action::Note { drive: status.drive.clone(), message: usable.sentence(&status.drive) });
                known.usable = usable;
                known.usable_since = now;
            }
            known.status = status;
        }
    }

    fn mover_gone(&mut self, now: Timestamp, mover: &MoverId, reason: &str, actions: &mut Vec<Action>) {
        for library in self.libraries.values_mut().filter(|library| library.mover.as_ref() == Some(mover)) {
            library.mover = None;
            library.command = None;
            library.doubt = true;
        }
        let mut revoked = Vec::new();
        for (name, drive) in self.drives.iter_mut().filter(|(_, drive)| drive.mover == *mover) {
            if !matches!(drive.usable, Usable::Down { .. } | Usable::Away { .. }) {
                drive.usable = Usable::Away { reason: format!("mover {mover} is not connected: {reason}") };
                drive.usable_since = now;
                actions.push(Action::Note { drive: name.clone(), message: drive.usable.sentence(name) });
            }
            revoked.extend(drive.grant.take().map(|grant| grant.id));
            drive.content = Content::Unknown;
            drive.command = None;
            drive.bound = None;
            if let Some(library) = self.libraries.get_mut(&drive.library) {
                library.doubt = true;
            }
        }
        let reason = format!("the connection to mover {mover} broke: {reason}");
        actions.extend(revoked.into_iter().map(|grant| Action::Revoke { grant, reason: reason.clone() }));
    }

    fn cartridges_known(&mut self, known: Vec<(VolumeLabel, Option<String>)>) {
        for (volume, disabled) in known {
            let cartridge = self.cartridges.entry(volume).or_insert_with(Cartridge::outside);
            if cartridge.disabled.is_some() && disabled.is_none() {
                // An operator gave it another chance.
                cartridge.failed_in.clear();
                cartridge.failed_moves = 0;
            }
            cartridge.disabled = disabled;
        }
    }

    fn released(&mut self, now: Timestamp, grant: GrantId, how: Released, actions: &mut Vec<Action>) {
        let Some((name, drive)) =
            self.drives.iter_mut().find(|(_, drive)| drive.grant.as_ref().is_some_and(|held| held.id == grant))
        else {
            return;
        };
        let name = name.clone();
        drive.grant = None;
        if let Content::Ready { idle_since, .. } = &mut drive.content {
            *idle_since = Some(now);
        }
        match how {
            Released::Clean => {
                drive.failed_with.clear();
                if let Some(cartridge) = drive.content.volume().and_then(|volume| self.cartridges.get_mut(volume)) {
                    cartridge.failed_in.clear();
                }
            }
            Released::Doubt => drive.eject = true,
            Released::Fault(fault) => {
                drive.eject = true;
                self.blame(now, &name, &fault, actions);
            }
        }
    }

    fn inventory(
        &mut self,
        now: Timestamp,
        name: &LibraryId,
        command: u64,
        result: Result<Vec<Slot>, Fault>,
        actions: &mut Vec<Action>,
    ) {
        let Some(library) = self.libraries.get_mut(name).filter(|library| library.command == Some(command)) else {
            return;
        };
        library.command = None;
        match result {
            Err(fault) => {
                library.not_before = now.after(self.rules.retry);
                library.trouble = Some(fault.message);
            }
            Ok(slots) => {
                library.doubt = false;
                library.trouble = None;
                self.place_cartridges(now, name, &slots, actions);
            }
        }
    }

    fn place_cartridges(&mut self, now: Timestamp, library: &LibraryId, slots: &[Slot], actions: &mut Vec<Action>) {
        for cartridge in self.cartridges.values_mut() {
            let here = match &cartridge.location {
                Location::Slot { library: of, .. } => of == library,
                Location::Drive(drive) => self.drives.get(drive).is_some_and(|drive| drive.library == *library),
                Location::Outside => false,
            };
            if here {
                cartridge.location = Location::Outside;
            }
        }
        for slot in slots {
            let location = match &slot.kind {
                SlotKind::Storage | SlotKind::ImportExport => {
                    Location::Slot { library: library.clone(), element: slot.element }
                }
                SlotKind::Drive { drive: Some(name), .. } => {
                    self.see_drive(now, name, slot, actions);
                    Location::Drive(name.clone())
                }
                SlotKind::Drive { drive: None, .. } => Location::Outside,
            };
            if let Some(volume) = slot.volume.as_ref().filter(|_| !slot.cleaning) {
                self.cartridges.entry(volume.clone()).or_insert_with(Cartridge::outside).location = location;
            }
        }
        // A drive the library does not show: nothing can be brought to it.
        for (name, drive) in self.drives.iter_mut().filter(|(_, drive)| drive.library == *library) {
            if drive.content == Content::Unknown && drive.usable == Usable::Up {
                let reason = format!("library {library} shows no drive with serial number {}", drive.status.serial);
                drive.usable = Usable::Down { reason };
                drive.usable_since = now;
                actions.push(Action::Note { drive: name.clone(), message: drive.usable.sentence(name) });
            }
        }
    }

    /// Compares what the library sees in a drive with what we believe is there.
    fn see_drive(&mut self, now: Timestamp, name: &DriveId, slot: &Slot, actions: &mut Vec<Action>) {
        let Some(drive) = self.drives.get_mut(name) else { return };
        let seen = match (slot.full, &slot.volume) {
            (false, _) => Content::Empty,
            (true, volume) => Content::Loaded { volume: volume.clone(), since: now },
        };
        if drive.command.is_some() {
            return; // It is being attached or detached: that answer comes.
        }
        match (&drive.content, &seen) {
            (Content::Ready { mounted, .. }, Content::Loaded { volume, .. })
                if Some(&mounted.volume) == volume.as_ref() => {}
            (Content::Ready { .. }, _) => {
                if let Some(grant) = drive.grant.take() {
                    let reason = format!("the library says that {} is not in drive {name} any more", grant.volume);
                    actions.push(Action::Revoke { grant: grant.id, reason });
                }
                drive.content = seen;
            }
            (Content::Loaded { volume: before, .. }, Content::Loaded { volume, .. }) if before == volume => {}
            _ => drive.content = seen,
        }
        if drive.content == Content::Empty {
            drive.eject = false;
        }
        if matches!(drive.content, Content::Loaded { volume: None, .. }) && drive.usable == Usable::Up {
            let reason = "a cartridge without a readable bar code is in it: take it out by hand".to_owned();
            self.take_down(now, name, reason, actions);
        }
    }

    fn moved(
        &mut self,
        now: Timestamp,
        name: &DriveId,
        command: u64,
        result: Result<(), Fault>,
        actions: &mut Vec<Action>,
    ) {
        let Some(drive) = self.drives.get_mut(name).filter(|drive| drive.command == Some(command)) else { return };
        drive.command = None;
        let library = self.libraries.get_mut(&drive.library);
        let Some(volume) = drive.content.volume().cloned() else { return };
        match result {
            Ok(()) => {
                if let Some(library) = library {
                    library.command = None;
                }
                let bringing = matches!(drive.content, Content::Bringing { .. });
                if bringing {
                    drive.content = Content::Loaded { volume: Some(volume.clone()), since: now };
                } else {
                    drive.content = Content::Empty;
                    drive.eject = false;
                }
                let library = drive.library.clone();
                let cartridge = self.cartridges.entry(volume).or_insert_with(Cartridge::outside);
                cartridge.failed_moves = 0;
                if !bringing {
                    // Which slot it went to is known at the next inventory; any will do until then.
                    cartridge.location = Location::Slot { library, element: 0 };
                }
            }
            Err(fault) => {
                // Whether it moved is not known, and it may still be moving: look before anything else moves.
                if let Some(library) = library {
                    library.command = None;
                    library.doubt = true;
                    library.not_before = now.after(self.rules.retry);
                    library.trouble = Some(fault.message.clone());
                }
                drive.content = Content::Unknown;
                drive.bound = None;
                actions.push(Action::Note {
                    drive: name.clone(),
                    message: format!("move of {volume}: {}", fault.message),
                });
                let cartridge = self.cartridges.entry(volume.clone()).or_insert_with(Cartridge::outside);
                // A mover that goes away says nothing about the robot or the cartridge.
                cartridge.failed_moves += u32::from(fault.kind != FaultKind::PeerLost);
                cartridge.not_before = now.after(self.rules.retry);
                if cartridge.failed_moves >= MAX_FAILED_MOVES {
                    self.suspect(
                        volume,
                        format!("the robot failed {MAX_FAILED_MOVES} times to move it: {}", fault.message),
                        actions,
                    );
                }
            }
        }
    }

    fn attached(
        &mut self,
        now: Timestamp,
        name: &DriveId,
        command: u64,
        result: Result<Mounted, Fault>,
        actions: &mut Vec<Action>,
    ) {
        let Some(drive) = self.drives.get_mut(name).filter(|drive| drive.command == Some(command)) else { return };
        drive.command = None;
        let Some(volume) = drive.content.volume().cloned() else { return };
        match result {
            Ok(mounted) => {
                actions.push(Action::Note { drive: name.clone(), message: format!("{volume} is mounted") });
                drive.content = Content::Ready { mounted, idle_since: Some(now) };
            }
            Err(fault) => {
                drive.content = Content::Loaded { volume: Some(volume), since: now };
                drive.bound = None;
                drive.eject = true;
                drive.not_before = now.after(self.rules.retry);
                self.blame(now, name, &fault, actions);
            }
        }
    }

    fn detached(
        &mut self,
        now: Timestamp,
        name: &DriveId,
        command: u64,
        result: Result<(), Fault>,
        actions: &mut Vec<Action>,
    ) {
        let Some(drive) = self.drives.get_mut(name).filter(|drive| drive.command == Some(command)) else { return };
        drive.command = None;
        let Some(volume) = drive.content.volume().cloned() else { return };
        match result {
            // Its mover went away: what became of the drive is looked at when it is back.
            Err(fault) if fault.kind == FaultKind::PeerLost => {
                drive.content = Content::Loaded { volume: Some(volume), since: now };
                if let Some(library) = self.libraries.get_mut(&drive.library) {
                    library.doubt = true;
                }
            }
            // Nothing was attached: the same as detached.
            Err(fault) if !matches!(fault.kind, FaultKind::BadRequest | FaultKind::NotFound) => {
                // Threaded tape is never pulled by the robot: the cartridge stays where it is.
                drive.content = Content::Loaded { volume: Some(volume.clone()), since: now };
                let reason = format!("it could not unload {volume}: {}", fault.message);
                self.take_down(now, name, reason, actions);
                if let Some(drive) = self.drives.get_mut(name) {
                    drive.eject = false; // Trying again is an operator's decision.
                }
            }
            Ok(()) | Err(_) => drive.content = Content::Returning { volume },
        }
    }

    fn set_drive(&mut self, now: Timestamp, name: &DriveId, down: Option<String>, actions: &mut Vec<Action>) {
        match down {
            Some(reason) => self.take_down(now, name, reason, actions),
            None => {
                let Some(drive) = self.drives.get_mut(name) else { return };
                if matches!(drive.usable, Usable::Away { .. }) {
                    return;
                }
                drive.usable = match &drive.status.health {
                    DriveHealth::Cleaning { reason } => Usable::Cleaning { reason: reason.clone() },
                    // The operator has looked: the mover's complaint counts again when it comes again.
                    DriveHealth::Up | DriveHealth::Down { .. } => Usable::Up,
                };
                drive.usable_since = now;
                drive.failed_with.clear();
                drive.eject = false;
                if drive.grant.is_none() && drive.command.is_none() {
                    drive.content = Content::Unknown;
                    if let Some(library) = self.libraries.get_mut(&drive.library) {
                        library.doubt = true;
                    }
                }
                actions.push(Action::Note { drive: name.clone(), message: drive.usable.sentence(name) });
            }
        }
    }

    /// Decides from a fault whether the drive or the cartridge is not to be used any more.
    fn blame(&mut self, now: Timestamp, name: &DriveId, fault: &Fault, actions: &mut Vec<Action>) {
        let Some(drive) = self.drives.get_mut(name) else { return };
        let volume = drive.content.volume().cloned();
        match (fault.kind, volume) {
            (FaultKind::Drive | FaultKind::Fenced, _) => self.take_down(now, name, fault.message.clone(), actions),
            (FaultKind::VolumeSuspect | FaultKind::WrongVolume, Some(volume)) => {
                self.suspect(volume, fault.message.clone(), actions);
            }
            (FaultKind::Medium, Some(volume)) => {
                // The error follows the tape, or it follows the drive: two of a kind tell.
                drive.failed_with.insert(volume.clone());
                let drive_failed = drive.failed_with.len() >= 2;
                let peers = self.drives.values().filter(|drive| drive.usable == Usable::Up).count();
                let cartridge = self.cartridges.entry(volume.clone()).or_insert_with(Cartridge::outside);
                cartridge.failed_in.insert(name.clone());
                let tape_failed = cartridge.failed_in.len() >= 2.min(peers.max(1));
                if drive_failed {
                    let reason = format!("different cartridges failed in it, last {volume}: {}", fault.message);
                    self.take_down(now, name, reason, actions);
                } else if tape_failed {
                    self.suspect(volume, format!("it failed in every drive tried: {}", fault.message), actions);
                }
            }
            (FaultKind::NotFound | FaultKind::BadRequest | FaultKind::Library | FaultKind::PeerLost, _) => {
                // What we believe is there is not: look.
                if let Some(library) = self.libraries.get_mut(&drive.library) {
                    library.doubt = true;
                }
            }
            _ => {}
        }
    }

    fn suspect(&mut self, volume: VolumeLabel, reason: String, actions: &mut Vec<Action>) {
        let cartridge = self.cartridges.entry(volume.clone()).or_insert_with(Cartridge::outside);
        if cartridge.disabled.is_none() {
            cartridge.disabled = Some(reason.clone());
            actions.push(Action::Suspect { volume, reason });
        }
    }

    fn take_down(&mut self, now: Timestamp, name: &DriveId, reason: String, actions: &mut Vec<Action>) {
        let Some(drive) = self.drives.get_mut(name) else { return };
        drive.usable = Usable::Down { reason };
        drive.usable_since = now;
        drive.bound = None;
        drive.eject = true;
        actions.push(Action::Note { drive: name.clone(), message: drive.usable.sentence(name) });
    }
}

impl Drive {
    fn kept_down(self, reason: Option<&String>) -> Self {
        let Some(reason) = reason.cloned() else { return self };
        Self { usable: Usable::Down { reason }, eject: true, ..self }
    }

    fn new(mover: &MoverId, status: &DriveStatus, now: Timestamp) -> Self {
        Self {
            mover: mover.clone(),
            library: status.library.clone(),
            status: status.clone(),
            usable: Usable::Away { reason: "not seen yet".into() },
            usable_since: now,
            content: Content::Unknown,
            command: None,
            bound: None,
            grant: None,
            not_before: now,
            failed_with: Default::default(),
            eject: false,
        }
    }
}

impl Cartridge {
    fn outside() -> Self {
        Self {
            location: Location::Outside,
            disabled: None,
            failed_in: Default::default(),
            failed_moves: 0,
            not_before: Timestamp::default(),
        }
    }
}

impl Library {
    const fn new(now: Timestamp) -> Self {
        Self { mover: None, doubt: true, command: None, not_before: now, trouble: None }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
