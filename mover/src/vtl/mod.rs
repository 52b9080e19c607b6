//! The virtual tape library.
use std::{io, path::Path};

use crate::scsi::{Cdb, Completion, DataPhase, ScsiError, ScsiTransport};

/// What a library is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct VtlSpec {
    /// Drives.
    pub drives: u16,
    /// Slots.
    pub slots: u16,
    /// Bar codes of the data cartridges to begin with.
    pub cartridges: Vec<String>,
    /// Capacity of each, in bytes.
    pub capacity_bytes: u64,
}

/// A virtual tape library over a folder; a cheap handle.
#[derive(Clone)]
pub struct Vtl;

impl Vtl {
    /// Opens the library in a folder, or makes it as `spec` says if there is none.
    pub fn open_or_create(path: &Path, spec: &VtlSpec) -> io::Result<Self> {
        todo!()
    }
    /// A nexus to the robot.
    pub fn changer(&self) -> Nexus {
        todo!()
    }
    /// A nexus to a drive, counted from 0.
    pub fn drive(&self, index: u16) -> Option<Nexus> {
        todo!()
    }
}

/// One initiator's way to one unit of the library.
pub struct Nexus;

impl ScsiTransport for Nexus {
    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>) -> Result<Completion, ScsiError> {
        todo!()
    }
}
