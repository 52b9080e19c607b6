//! The robot.
use wire::id::VolumeLabel;

use crate::scsi::element::Element;
use crate::scsi::{Remedy, ScsiTransport};

/// What is where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory {
    /// Every element.
    pub elements: Vec<Element>,
}

/// Why a changer could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangerError {
    /// The inventory must be read first.
    #[error("the inventory is out of date")]
    Stale,
}

impl ChangerError {
    /// What the caller does next.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        Remedy::Reinventory
    }
}

/// One media changer.
pub struct Changer {
    transport: Box<dyn ScsiTransport>,
}

impl Changer {
    /// A changer behind a transport, not yet spoken to.
    #[must_use]
    pub fn new(transport: Box<dyn ScsiTransport>) -> Self {
        Self { transport }
    }

    /// Reads what is where.
    pub fn inventory(&mut self) -> Result<&Inventory, ChangerError> {
        todo!()
    }

    /// Loads `volume` into the drive with this serial number.
    pub fn load(&mut self, volume: &VolumeLabel, drive_serial: &str) -> Result<(), ChangerError> {
        todo!()
    }

    /// Takes the (unloaded) cartridge out of the drive and puts it back into its slot.
    pub fn unload(&mut self, drive_serial: &str) -> Result<(), ChangerError> {
        todo!()
    }
}
