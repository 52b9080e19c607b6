//! The robot of a library: what is where, and moving it.
//!
//! Owns the changer's nexus and the last inventory. Talks to [`Device`] below and whoever mounts above. Never touches
//! a tape.
//!
//! Invariants: a move is made only from a fresh inventory; a move whose end is not known makes it stale, and nothing is
//! moved before it is read again. A cartridge is never taken from a drive that has its tape threaded.

use tracing::{info, warn};
use wire::id::VolumeLabel;

use super::device::{CommandError, Device, malformed};
use crate::scsi::element::{Element, decode_elements};
use crate::scsi::{Cdb, DataPhase, DeviceKind, ElementKind, Remedy, ScsiTransport, U24};

/// The largest report we take: some 60,000 elements with volume tags.
const REPORT_BYTES: u32 = 4 << 20;

/// Why a changer could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangerError {
    /// A command failed.
    #[error(transparent)]
    Device(#[from] CommandError),
    /// How the last move ended is not known: read the inventory first.
    #[error("the inventory must be read before anything is moved")]
    Stale,
    /// No cartridge has that label.
    #[error("no cartridge of the library is labelled {volume}")]
    NoSuchVolume {
        /// Which.
        volume: VolumeLabel,
    },
    /// Two cartridges have the same label.
    #[error("more than one cartridge is labelled {volume}")]
    DuplicateVolume {
        /// Which.
        volume: VolumeLabel,
    },
    /// No drive of the library has that serial number.
    #[error("no drive of the library has the serial number {serial}")]
    NoSuchDrive {
        /// Which.
        serial: String,
    },
    /// The drive holds another cartridge.
    #[error("drive {serial} holds {held}")]
    DriveFull {
        /// Which drive.
        serial: String,
        /// What it holds.
        held: String,
    },
    /// The drive holds no cartridge.
    #[error("drive {serial} is empty")]
    DriveEmpty {
        /// Which drive.
        serial: String,
    },
    /// The drive's tape is threaded: unload it first.
    #[error("the tape in drive {serial} is threaded: unload it first")]
    DriveThreaded {
        /// Which drive.
        serial: String,
    },
    /// The cartridge is in a drive.
    #[error("{volume} is in a drive")]
    InDrive {
        /// Which cartridge.
        volume: VolumeLabel,
    },
    /// No slot is free.
    #[error("no {kind} of the library is free")]
    NoFreeSlot {
        /// Slot or mail slot.
        kind: &'static str,
    },
}

impl ChangerError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Device(error) => error.remedy(DeviceKind::Changer),
            Self::Stale | Self::InDrive { .. } | Self::DriveFull { .. } | Self::DriveEmpty { .. } => {
                Remedy::Reinventory
            }
            Self::DriveThreaded { .. } => Remedy::Retry,
            Self::NoSuchVolume { .. }
            | Self::DuplicateVolume { .. }
            | Self::NoSuchDrive { .. }
            | Self::NoFreeSlot { .. } => Remedy::Operator,
        }
    }
}

/// What is where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// Every element.
    pub elements: Vec<Element>,
}

impl Inventory {
    /// Labels of the cartridges in slots, drives and mail slots; a bar code that can be no label is left out.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeLabel, &Element)> {
        self.elements.iter().filter_map(|element| Some((VolumeLabel::new(element.tag.clone()?).ok()?, element)))
    }

    /// The drives with their serial numbers.
    pub fn drives(&self) -> impl Iterator<Item = (&str, &Element)> {
        self.elements.iter().filter_map(|element| Some((element.device.as_deref()?, element)))
    }

    /// The element of a cartridge.
    ///
    /// # Errors
    ///
    /// [`ChangerError::NoSuchVolume`], [`ChangerError::DuplicateVolume`].
    pub fn find(&self, volume: &VolumeLabel) -> Result<&Element, ChangerError> {
        let mut found = self.elements.iter().filter(|element| element.tag.as_deref() == Some(volume.as_str()));
        match (found.next(), found.next()) {
            (Some(element), None) => Ok(element),
            (None, _) => Err(ChangerError::NoSuchVolume { volume: volume.clone() }),
            _ => Err(ChangerError::DuplicateVolume { volume: volume.clone() }),
        }
    }

    /// The element of a drive.
    ///
    /// # Errors
    ///
    /// [`ChangerError::NoSuchDrive`].
    pub fn drive(&self, serial: &str) -> Result<&Element, ChangerError> {
        self.drives()
            .find(|(found, _)| *found == serial)
            .map(|(_, element)| element)
            .ok_or_else(|| ChangerError::NoSuchDrive { serial: serial.to_owned() })
    }

    fn free(&self, kind: ElementKind) -> Result<&Element, ChangerError> {
        let name = if kind == ElementKind::Mail { "mail slot" } else { "slot" };
        self.elements
            .iter()
            .find(|element| element.kind == kind && !element.full && element.exception.is_none())
            .ok_or(ChangerError::NoFreeSlot { kind: name })
    }
}

/// A media changer: the only owner of its nexus. All calls block.
pub struct Changer {
    device: Device,
    inventory: Option<Inventory>,
}

impl Changer {
    /// A changer behind a transport, not yet spoken to.
    #[must_use]
    pub fn new(transport: Box<dyn ScsiTransport>) -> Self {
        Self { device: Device::new(transport, DeviceKind::Changer), inventory: None }
    }

    /// The library's serial number.
    ///
    /// # Errors
    ///
    /// [`ChangerError::Device`].
    pub fn serial(&mut self) -> Result<String, ChangerError> {
        Ok(self.device.serial()?)
    }

    /// Reads what is where, and makes moves possible again.
    ///
    /// # Errors
    ///
    /// [`ChangerError::Device`].
    pub fn inventory(&mut self) -> Result<&Inventory, ChangerError> {
        self.inventory = None;
        self.device.take_attentions()?;
        let cdb = Cdb::ReadElementStatus {
            kind: None,
            volume_tags: true,
            start: 0,
            count: u16::MAX,
            device_ids: true,
            allocation: U24::new(REPORT_BYTES).expect("4 MiB"),
        };
        let bytes = self.device.fetch(&cdb, REPORT_BYTES as usize)?;
        let elements = decode_elements(&bytes).map_err(|source| malformed(&cdb, source))?;
        Ok(self.inventory.insert(Inventory { elements }))
    }

    fn fresh(&self) -> Result<&Inventory, ChangerError> {
        self.inventory.as_ref().ok_or(ChangerError::Stale)
    }

    /// Puts `volume` into the drive with this serial number. Done already if it is there.
    ///
    /// # Errors
    ///
    /// [`ChangerError::Stale`] without a fresh inventory; [`ChangerError::NoSuchVolume`],
    /// [`ChangerError::NoSuchDrive`], [`ChangerError::DriveFull`], [`ChangerError::InDrive`];
    /// [`ChangerError::Device`]: then the inventory must be read again.
    pub fn load(&mut self, volume: &VolumeLabel, drive_serial: &str) -> Result<(), ChangerError> {
        let inventory = self.fresh()?;
        let (from, to) = (inventory.find(volume)?, inventory.drive(drive_serial)?);
        if from.address == to.address {
            return Ok(());
        }
        if to.full {
            let held = to.tag.clone().unwrap_or_else(|| "an unlabelled cartridge".into());
            return Err(ChangerError::DriveFull { serial: drive_serial.to_owned(), held });
        }
        if from.kind == ElementKind::Drive {
            return Err(ChangerError::InDrive { volume: volume.clone() });
        }
        let (from, to) = (from.address, to.address);
        self.move_medium(from, to)?;
        info!(%volume, drive = drive_serial, "cartridge loaded");
        Ok(())
    }

    /// Takes the cartridge out of a drive that was unloaded, and puts it where it came from, or into a free slot.
    /// Returns its label, if it has one.
    ///
    /// # Errors
    ///
    /// [`ChangerError::DriveThreaded`] if the drive was not unloaded; [`ChangerError::DriveEmpty`];
    /// [`ChangerError::NoFreeSlot`]; else as [`Changer::load`].
    pub fn unload(&mut self, drive_serial: &str) -> Result<Option<VolumeLabel>, ChangerError> {
        // Whether the tape is threaded may have changed since: only the drive knows.
        if self.inventory.is_none() {
            return Err(ChangerError::Stale);
        }
        let inventory = self.inventory()?;
        let from = inventory.drive(drive_serial)?;
        if !from.full {
            return Err(ChangerError::DriveEmpty { serial: drive_serial.to_owned() });
        }
        if !from.accessible {
            return Err(ChangerError::DriveThreaded { serial: drive_serial.to_owned() });
        }
        let home = from.source.and_then(|source| {
            inventory
                .elements
                .iter()
                .find(|element| element.address == source && element.kind == ElementKind::Slot && !element.full)
        });
        let to = match home {
            Some(home) => home.address,
            None => inventory.free(ElementKind::Slot)?.address,
        };
        let volume = from.tag.clone().and_then(|tag| VolumeLabel::new(tag).ok());
        let from = from.address;
        self.move_medium(from, to)?;
        info!(drive = drive_serial, volume = volume.as_ref().map(VolumeLabel::as_str), "cartridge put back");
        Ok(volume)
    }

    /// Moves what people put into mail slots into free slots. Returns the labels that came in.
    ///
    /// # Errors
    ///
    /// [`ChangerError::NoFreeSlot`] when the slots are used up; else as [`Changer::load`].
    pub fn import(&mut self) -> Result<Vec<VolumeLabel>, ChangerError> {
        let mail = |element: &&Element| element.kind == ElementKind::Mail && element.full;
        let waiting: Vec<_> =
            self.fresh()?.elements.iter().filter(mail).map(|element| (element.address, element.tag.clone())).collect();
        let mut came = Vec::new();
        for (from, tag) in waiting {
            let to = self.fresh()?.free(ElementKind::Slot)?.address;
            self.move_medium(from, to)?;
            came.extend(tag.and_then(|tag| VolumeLabel::new(tag).ok()));
        }
        Ok(came)
    }

    /// Moves a cartridge into a mail slot, for a person to take out.
    ///
    /// # Errors
    ///
    /// [`ChangerError::InDrive`]; [`ChangerError::NoFreeSlot`]; else as [`Changer::load`].
    pub fn export(&mut self, volume: &VolumeLabel) -> Result<(), ChangerError> {
        let inventory = self.fresh()?;
        let from = inventory.find(volume)?;
        match from.kind {
            ElementKind::Mail => Ok(()),
            ElementKind::Drive => Err(ChangerError::InDrive { volume: volume.clone() }),
            _ => {
                let (from, to) = (from.address, inventory.free(ElementKind::Mail)?.address);
                self.move_medium(from, to)
            }
        }
    }

    /// One MOVE MEDIUM, sent once. On any failure the inventory is stale.
    fn move_medium(&mut self, source: u16, destination: u16) -> Result<(), ChangerError> {
        let mut inventory = self.inventory.take().ok_or(ChangerError::Stale)?;
        let moved = self.device.once(&Cdb::MoveMedium { robot: 0, source, destination }, DataPhase::None);
        if let Err(error) = moved {
            warn!(%error, source, destination, "cartridge not moved, or not known whether");
            return Err(error.into());
        }
        let elements = &mut inventory.elements;
        let position = |address| elements.iter().position(|element| element.address == address);
        if let (Some(from), Some(to)) = (position(source), position(destination)) {
            let home = if elements[from].kind == ElementKind::Slot { Some(source) } else { elements[from].source };
            elements[from].full = false;
            elements[from].accessible = true;
            let tag = elements[from].tag.take();
            let from_source = elements[from].source.take();
            let to = &mut elements[to];
            (to.full, to.tag, to.source) = (true, tag, home.or(from_source));
            to.accessible = to.kind != ElementKind::Drive;
        }
        self.inventory = Some(inventory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{Sense, SenseKey};
    use crate::vtl::{CartridgeKind, CartridgeSpec, Failure, Unit, Vtl, VtlSpec};

    const FIRST: &str = "PSK0000001";
    const SECOND: &str = "PSK0000002";

    fn label(text: &str) -> VolumeLabel {
        VolumeLabel::new(text).unwrap()
    }

    fn library() -> (tempfile::TempDir, Vtl, Changer) {
        let folder = tempfile::tempdir().unwrap();
        let vtl = Vtl::create(folder.path(), &VtlSpec::new(2, 3, 1 << 20)).unwrap();
        let changer = Changer::new(Box::new(vtl.changer()));
        (folder, vtl, changer)
    }

    fn places((volume, element): (VolumeLabel, &Element)) -> (VolumeLabel, u16) {
        (volume, element.address)
    }

    fn unthread(vtl: &Vtl, drive: u16) {
        let mut device = Device::new(Box::new(vtl.drive(drive).unwrap()), DeviceKind::Drive);
        device.take_attentions().unwrap();
        device.command(&Cdb::LoadUnload { load: false, hold: false, immediate: false }).unwrap();
    }

    #[test]
    fn a_cartridge_is_loaded_and_put_back_where_it_came_from() {
        let (_folder, vtl, mut changer) = library();
        let before = changer.inventory().unwrap().clone();
        assert_eq!(before.volumes().count(), 3);
        changer.load(&label("PEN002L8"), FIRST).unwrap();
        changer.load(&label("PEN002L8"), FIRST).unwrap();
        assert!(matches!(changer.load(&label("PEN001L8"), FIRST), Err(ChangerError::DriveFull { .. })));
        assert!(matches!(changer.load(&label("PEN002L8"), SECOND), Err(ChangerError::InDrive { .. })));
        assert!(matches!(changer.unload(FIRST), Err(ChangerError::DriveThreaded { .. })));
        unthread(&vtl, 0);
        assert_eq!(changer.unload(FIRST).unwrap(), Some(label("PEN002L8")));
        assert!(changer.inventory().unwrap().volumes().map(places).eq(before.volumes().map(places)));
        assert!(matches!(changer.unload(FIRST), Err(ChangerError::DriveEmpty { .. })));
    }

    #[test]
    fn a_move_without_answer_is_not_repeated_before_a_new_inventory() {
        let (_folder, vtl, mut changer) = library();
        changer.inventory().unwrap();
        vtl.fail_next(Unit::Changer, Some("MOVE MEDIUM"), Failure::AnswerLost);
        let lost = changer.load(&label("PEN001L8"), FIRST).unwrap_err();
        assert_eq!(lost.remedy(), Remedy::Reinventory);
        for _ in 0..2 {
            assert!(matches!(changer.load(&label("PEN001L8"), FIRST), Err(ChangerError::Stale)));
            assert!(matches!(changer.unload(FIRST), Err(ChangerError::Stale)));
        }
        changer.inventory().unwrap();
        // It had arrived: loading it again has nothing to do.
        changer.load(&label("PEN001L8"), FIRST).unwrap();
    }

    #[test]
    fn a_failed_move_leaves_the_cartridge_where_it_was() {
        let (_folder, vtl, mut changer) = library();
        changer.inventory().unwrap();
        let sense = Sense::new(SenseKey::HardwareError, 0x15, 0x01);
        vtl.fail_next(Unit::Changer, Some("MOVE MEDIUM"), Failure::Sense(sense));
        assert!(matches!(changer.load(&label("PEN001L8"), FIRST), Err(ChangerError::Device(_))));
        assert_eq!(changer.inventory().unwrap().find(&label("PEN001L8")).unwrap().kind, ElementKind::Slot);
        changer.load(&label("PEN001L8"), FIRST).unwrap();
    }

    #[test]
    fn two_cartridges_of_one_label_are_never_moved() {
        let (_folder, vtl, mut changer) = library();
        vtl.misread("PEN002L8", "PEN001L8");
        changer.inventory().unwrap();
        assert!(matches!(changer.load(&label("PEN001L8"), FIRST), Err(ChangerError::DuplicateVolume { .. })));
        assert!(matches!(changer.load(&label("PEN002L8"), FIRST), Err(ChangerError::NoSuchVolume { .. })));
    }

    #[test]
    fn cartridges_come_in_and_go_out_through_the_mail_slot() {
        let (_folder, vtl, mut changer) = library();
        let spec = CartridgeSpec { barcode: label("NEW001L8"), kind: CartridgeKind::Data, capacity_bytes: 1 << 20 };
        vtl.insert(&spec).unwrap();
        changer.inventory().unwrap();
        assert_eq!(changer.import().unwrap(), [label("NEW001L8")]);
        changer.export(&label("PEN003L8")).unwrap();
        vtl.remove("PEN003L8").unwrap();
        let labels: Vec<_> = changer.inventory().unwrap().volumes().map(|(volume, _)| volume).collect();
        assert!(labels.contains(&label("NEW001L8")) && !labels.contains(&label("PEN003L8")));
    }
}
