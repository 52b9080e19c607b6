//! One tape drive and the volume in it.
use wire::id::{BitfileId, DriveId, Epoch, VolumeLabel};

use super::error::DriveError;
use super::member::{AppendPoint, AppendReport, ContainerHeader, MemberSource, SinkError, Wanted, Written};
use crate::scsi::ScsiTransport;
use crate::scsi::log::{Capacity, TapeAlerts};

/// One tape drive: the only owner of its nexus.
pub struct Drive {
    id: DriveId,
    transport: Box<dyn ScsiTransport>,
}

/// What attaching a volume found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The volume.
    pub volume: VolumeLabel,
    /// It can be written once only.
    pub worm: bool,
    /// It cannot be written now.
    pub write_protected: bool,
    /// Logical block protection is on.
    pub block_protection: bool,
    /// What the drive thinks is left; a hint.
    pub capacity: Option<Capacity>,
    /// TapeAlert flags that were up; reading cleared them.
    pub alerts: TapeAlerts,
}

/// A volume to be labelled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewVolume {
    /// Its label: the cartridge's bar code.
    pub label: VolumeLabel,
    /// The storage class or pool it belongs to, for people.
    pub pool: String,
    /// Who labels it.
    pub owner: String,
}

/// Whether labelling may destroy what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Only a blank tape is labelled.
    OnlyBlank,
    /// Whatever is there is given up.
    Anything,
}

/// Whether the tape leaves the drive's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unload {
    /// Rewind and unthread, so that the robot can take it.
    Yes,
    /// Leave it threaded for whoever attaches next.
    No,
}

/// What a tape alone says it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scan {
    /// The volume.
    pub volume: VolumeLabel,
    /// Committed containers, by number.
    pub containers: Vec<ScannedContainer>,
    /// Where the committed data ends.
    pub append_point: AppendPoint,
}

/// One committed container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScannedContainer {
    /// Its number.
    pub container: u32,
    /// Its first record.
    pub start_block: u64,
    /// Behind its filemark.
    pub next_block: u64,
    /// Its members.
    pub members: Vec<Written>,
}

impl Drive {
    /// A drive behind a transport, not yet spoken to.
    #[must_use]
    pub fn new(id: DriveId, transport: Box<dyn ScsiTransport>) -> Self {
        Self { id, transport }
    }

    /// The drive's name.
    #[must_use]
    pub const fn id(&self) -> &DriveId {
        &self.id
    }

    /// Makes the loaded volume ours.
    pub fn attach(&mut self, expected: &VolumeLabel, epoch: Epoch) -> Result<Attached, DriveError> {
        todo!()
    }

    /// Writes fresh labels and attaches.
    pub fn label(&mut self, volume: &NewVolume, overwrite: Overwrite, epoch: Epoch) -> Result<Attached, DriveError> {
        todo!()
    }

    /// Where the tape's committed data ends.
    pub fn append_point(&mut self) -> Result<AppendPoint, DriveError> {
        todo!()
    }

    /// Writes one container and commits it.
    pub fn append(
        &mut self,
        header: &ContainerHeader,
        members: &mut dyn MemberSource,
    ) -> Result<AppendReport, DriveError> {
        todo!()
    }

    /// Reads members; the inner results are in the order of `wanted`.
    pub fn read(
        &mut self,
        wanted: &[Wanted],
        sink: &mut dyn FnMut(usize, &[u8]) -> Result<(), SinkError>,
    ) -> Result<Vec<Result<(), DriveError>>, DriveError> {
        todo!()
    }

    /// Lists containers and members from the tape alone.
    pub fn scan(&mut self) -> Result<Scan, DriveError> {
        todo!()
    }

    /// Writes the index, rewinds, and gives the drive back.
    pub fn detach(&mut self, unload: Unload) -> Result<(), DriveError> {
        todo!()
    }
}
