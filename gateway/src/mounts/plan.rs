//! Who gets which drive: what the mount service does next, given what it knows.
//!
//! Pure, and repeated after every event, so that nothing is decided before it can be done and nothing is forgotten.
//! A want is answered by the first that is possible of: an idle drive with one of its cartridges, a cartridge that lies
//! in a drive unattached, a free drive and the robot, a drive made free by sending away what nobody wants.

use std::cmp::Reverse;

use catalog::Timestamp;
use wire::{
    id::{DriveId, LibraryId, VolumeLabel},
    mover::MoveTo,
};

use super::{
    model::{Action, Cartridge, Content, Drive, Grant, GrantId, Location, Mounts, Purpose, Usable, Want, WantId},
    view::Why,
};

impl Mounts {
    pub(super) fn plan(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.take_inventories(now, actions);
        self.return_cartridges(actions);
        self.unload(now, actions, |_, drive| drive.eject);
        let mut rooms_coming =
            self.drives.values().filter(|drive| drive.usable == Usable::Up && is_leaving(drive)).count();
        for want in self.order(now) {
            self.serve(now, &want, &mut rooms_coming, actions);
        }
        let linger = self.rules.linger;
        let wanted: Vec<VolumeLabel> = self.wants.values().flat_map(|want| want.volumes.iter().cloned()).collect();
        let draining = self.draining.clone();
        self.unload(now, actions, |now, drive| {
            let since = match &drive.content {
                Content::Ready { idle_since: Some(since), .. } | Content::Loaded { since, .. } => *since,
                _ => return false,
            };
            match drive.usable {
                Usable::Up if draining.contains(&drive.mover) => true,
                Usable::Up => now >= since.after(linger) && drive.content.volume().is_some_and(|v| !wanted.contains(v)),
                Usable::Cleaning { .. } => true,
                _ => false,
            }
        });
        self.return_cartridges(actions);
    }

    /// Wants in the order in which they are served: who starves, then priority, then recalls before the rest, then rank
    /// and age.
    pub(super) fn order(&self, now: Timestamp) -> Vec<Want> {
        let mut wants: Vec<Want> = self.wants.values().cloned().collect();
        wants.sort_by_key(|want| {
            if now.since(want.since) > self.rules.starvation {
                return (false, Reverse(0), Purpose::Recall, 0, want.since, want.id);
            }
            (true, Reverse(want.priority), want.purpose, want.rank, want.since, want.id)
        });
        wants
    }

    fn take_inventories(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let unknown: Vec<LibraryId> = self
            .drives
            .values()
            .filter(|drive| drive.content == Content::Unknown && drive.usable == Usable::Up)
            .map(|drive| drive.library.clone())
            .collect();
        let mut due = Vec::new();
        for (name, library) in &mut self.libraries {
            library.doubt |= unknown.contains(name);
            let Some(mover) = library.mover.clone() else { continue };
            if library.doubt && library.command.is_none() && now >= library.not_before {
                due.push((name.clone(), mover));
            }
        }
        for (name, mover) in due {
            let command = self.next_command();
            if let Some(library) = self.libraries.get_mut(&name) {
                library.command = Some(command);
            }
            actions.push(Action::TakeInventory { mover, library: name, command });
        }
    }

    /// Whether the robot can be asked to move something now.
    fn robot_free(&self, library: &LibraryId) -> bool {
        self.libraries
            .get(library)
            .is_some_and(|library| library.mover.is_some() && library.command.is_none() && !library.doubt)
    }

    fn return_cartridges(&mut self, actions: &mut Vec<Action>) {
        let waiting: Vec<DriveId> = self
            .drives
            .iter()
            .filter(|(_, drive)| matches!(drive.content, Content::Returning { .. }) && drive.command.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in waiting {
            let Some(drive) = self.drives.get(&name) else { continue };
            let (library, volume) = (drive.library.clone(), drive.content.volume().cloned());
            if let Some(volume) = volume.filter(|_| self.robot_free(&library)) {
                self.start_move(&name, volume, MoveTo::Slot, actions);
            }
        }
    }

    fn start_move(&mut self, name: &DriveId, volume: VolumeLabel, to: MoveTo, actions: &mut Vec<Action>) {
        let command = self.next_command();
        let Some(drive) = self.drives.get_mut(name) else { return };
        let Some(library) = self.libraries.get_mut(&drive.library) else { return };
        let Some(mover) = library.mover.clone() else { return };
        library.command = Some(command);
        drive.command = Some(command);
        actions.push(Action::Move { mover, library: drive.library.clone(), volume, to, drive: name.clone(), command });
    }

    /// Detaches every idle drive that `which` picks.
    fn unload(&mut self, now: Timestamp, actions: &mut Vec<Action>, which: impl Fn(Timestamp, &Drive) -> bool) {
        let idle: Vec<DriveId> = self
            .drives
            .iter()
            .filter(|(_, drive)| {
                drive.command.is_none()
                    && drive.grant.is_none()
                    && drive.bound.is_none_or(|_| drive.eject)
                    && !matches!(drive.usable, Usable::Away { .. })
                    && matches!(drive.content, Content::Ready { .. } | Content::Loaded { volume: Some(_), .. })
                    && which(now, drive)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in idle {
            self.start_detach(&name, actions);
        }
    }

    fn start_detach(&mut self, name: &DriveId, actions: &mut Vec<Action>) {
        let command = self.next_command();
        let Some(drive) = self.drives.get_mut(name) else { return };
        let Some(volume) = drive.content.volume().cloned() else { return };
        drive.bound = None;
        drive.content = Content::Detaching { volume };
        drive.command = Some(command);
        actions.push(Action::Detach { mover: drive.mover.clone(), drive: name.clone(), command });
    }

    fn serve(&mut self, now: Timestamp, want: &Want, rooms_coming: &mut usize, actions: &mut Vec<Action>) {
        let bound = self.drives.iter().find(|(_, drive)| drive.bound == Some(want.id)).map(|(name, _)| name.clone());
        if let Some(name) = bound {
            self.go_on(now, want, &name, actions);
            return;
        }
        if let Some(why) = self.hopeless(want) {
            self.wants.remove(&want.id);
            actions.push(Action::Refuse { want: want.id, why });
            return;
        }
        if self.limit_reached(want).is_some() {
            return;
        }
        for volume in &want.volumes {
            let Some(Cartridge { location: Location::Drive(name), disabled: None, .. }) = self.cartridges.get(volume)
            else {
                continue;
            };
            let name = name.clone();
            if self.drives.get(&name).is_some_and(|drive| self.can_take(now, drive) && drive.bound.is_none()) {
                self.go_on(now, want, &name, actions);
                return;
            }
        }
        let mut no_drive_free = false;
        for volume in &want.volumes {
            let Some(cartridge) = self.cartridges.get(volume) else { continue };
            let Location::Slot { library, .. } = &cartridge.location else { continue };
            if cartridge.disabled.is_some() || now < cartridge.not_before {
                continue;
            }
            let library = library.clone();
            let Some(name) = self.empty_drive(now, &library, cartridge) else {
                no_drive_free = true;
                continue;
            };
            if !self.robot_free(&library) {
                return; // The robot comes to it.
            }
            if let Some(drive) = self.drives.get_mut(&name) {
                drive.bound = Some(want.id);
                drive.content = Content::Bringing { volume: volume.clone() };
            }
            if let Some(cartridge) = self.cartridges.get_mut(volume) {
                cartridge.location = Location::Drive(name.clone());
            }
            self.start_move(&name, volume.clone(), MoveTo::Drive(name.clone()), actions);
            return;
        }
        if no_drive_free {
            if *rooms_coming > 0 {
                *rooms_coming -= 1;
            } else if let Some(victim) = self.victim(now) {
                self.start_detach(&victim, actions);
            }
        }
    }

    /// Takes the next step with a drive that holds one of the want's cartridges.
    fn go_on(&mut self, now: Timestamp, want: &Want, name: &DriveId, actions: &mut Vec<Action>) {
        let Some(drive) = self.drives.get(name) else { return };
        if !self.can_take(now, drive) {
            return;
        }
        match drive.content.clone() {
            Content::Ready { mounted, .. } => {
                self.last_grant += 1;
                let grant = Grant {
                    id: GrantId(self.last_grant),
                    want: want.id,
                    purpose: want.purpose,
                    drive: name.clone(),
                    mover: drive.mover.clone(),
                    volume: mounted.volume.clone(),
                    pool: want.pool.clone(),
                    mounted: mounted.clone(),
                };
                if let Some(drive) = self.drives.get_mut(name) {
                    drive.bound = None;
                    drive.content = Content::Ready { mounted, idle_since: None };
                    drive.grant = Some(grant.clone());
                }
                self.wants.remove(&want.id);
                actions.push(Action::Give(grant));
            }
            Content::Loaded { volume: Some(volume), .. } => {
                let (command, epoch) = (self.next_command(), self.next_epoch());
                let Some(drive) = self.drives.get_mut(name) else { return };
                drive.bound = Some(want.id);
                drive.command = Some(command);
                drive.content = Content::Attaching { volume: volume.clone() };
                actions.push(Action::Attach {
                    mover: drive.mover.clone(),
                    drive: name.clone(),
                    volume,
                    epoch,
                    label_blank: want.label_blank,
                    pool: want.pool.clone(),
                    command,
                });
            }
            _ => {}
        }
    }

    /// Whether the next step can be taken with this drive now.
    fn can_take(&self, now: Timestamp, drive: &Drive) -> bool {
        self.drive_ok(now, drive) && drive.command.is_none() && drive.grant.is_none() && !drive.eject
    }

    fn drive_ok(&self, now: Timestamp, drive: &Drive) -> bool {
        drive.usable == Usable::Up && now >= drive.not_before && !self.draining.contains(&drive.mover)
    }

    fn empty_drive(&self, now: Timestamp, library: &LibraryId, cartridge: &Cartridge) -> Option<DriveId> {
        self.drives
            .iter()
            .filter(|(_, drive)| {
                drive.library == *library
                    && drive.content == Content::Empty
                    && drive.bound.is_none()
                    && self.can_take(now, drive)
            })
            // One in which it has not failed yet, then the one that has worked least.
            .min_by_key(|(name, drive)| (cartridge.failed_in.contains(*name), drive.status.mounts))
            .map(|(name, _)| name.clone())
    }

    /// The idle drive whose cartridge nobody wants that has been idle longest.
    fn victim(&self, now: Timestamp) -> Option<DriveId> {
        let wanted = |volume: &VolumeLabel| self.wants.values().any(|want| want.volumes.first() == Some(volume));
        self.drives
            .iter()
            .filter(|(_, drive)| self.drive_ok(now, drive) && drive.command.is_none() && drive.bound.is_none())
            .filter_map(|(name, drive)| match &drive.content {
                Content::Ready { mounted, idle_since: Some(since) } => Some((name, &mounted.volume, *since)),
                Content::Loaded { volume: Some(volume), since } => Some((name, volume, *since)),
                _ => None,
            })
            .filter(|(_, volume, _)| !wanted(volume))
            .min_by_key(|(_, _, since)| *since)
            .map(|(name, _, _)| name.clone())
    }

    /// Why this want must wait although a drive may be free.
    pub(super) fn limit_reached(&self, want: &Want) -> Option<Why> {
        let purposes = |wanted: &dyn Fn(Purpose, Option<&Want>, &Drive) -> bool| {
            self.drives
                .values()
                .filter(|drive| {
                    let bound = drive.bound.and_then(|want| self.wants.get(&want));
                    let purpose = drive.grant.as_ref().map(|grant| grant.purpose).or(bound.map(|want| want.purpose));
                    purpose.is_some_and(|purpose| wanted(purpose, bound, drive))
                })
                .count()
        };
        if want.purpose != Purpose::Recall {
            let up = self.drives.values().filter(|drive| drive.usable == Usable::Up).count();
            let allowed = up.saturating_sub(self.rules.reserved_for_recall).max(1);
            if purposes(&|purpose, _, _| purpose != Purpose::Recall) >= allowed {
                return Some(Why::Reserved { drives: self.rules.reserved_for_recall });
            }
        }
        let same = |purpose: Purpose, bound: Option<&Want>, drive: &Drive| {
            let pool = bound.map(|want| &want.pool).or_else(|| drive.grant.as_ref().map(|grant| &grant.pool));
            purpose == want.purpose && pool == Some(&want.pool)
        };
        (purposes(&same) >= want.max_drives.max(1))
            .then(|| Why::PoolLimit { pool: want.pool.clone(), drives: want.max_drives })
    }

    /// Why none of the want's cartridges can be mounted until a person does something; `None` while there is hope.
    fn hopeless(&self, want: &Want) -> Option<Why> {
        if self.libraries.is_empty() || self.libraries.values().any(|library| library.doubt) {
            return None; // Not known yet.
        }
        let mut last = Why::NoVolume { pool: want.pool.clone() };
        for volume in &want.volumes {
            last = self.obstacle(volume)?;
        }
        Some(last)
    }

    /// Why a cartridge cannot be mounted until a person does something.
    pub(super) fn obstacle(&self, volume: &VolumeLabel) -> Option<Why> {
        let Some(cartridge) = self.cartridges.get(volume) else {
            return Some(Why::Outside { volume: volume.clone() });
        };
        if let Some(reason) = &cartridge.disabled {
            return Some(Why::Disabled { volume: volume.clone(), reason: reason.clone() });
        }
        match &cartridge.location {
            Location::Outside => Some(Why::Outside { volume: volume.clone() }),
            Location::Slot { .. } => None,
            Location::Drive(name) => {
                let drive = self.drives.get(name)?;
                let Usable::Down { reason } = &drive.usable else { return None };
                let leaving = drive.eject || drive.command.is_some() || is_leaving(drive);
                (!leaving).then(|| Why::Stuck { volume: volume.clone(), drive: name.clone(), reason: reason.clone() })
            }
        }
    }

    /// The drive in which something happens for this want.
    pub(super) fn drive_of(&self, want: WantId) -> Option<(&DriveId, &Drive)> {
        self.drives.iter().find(|(_, drive)| drive.bound == Some(want))
    }
}

const fn is_leaving(drive: &Drive) -> bool {
    matches!(drive.content, Content::Detaching { .. } | Content::Returning { .. })
}
