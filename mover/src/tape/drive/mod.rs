//! One tape drive and the volume in it.
//!
//! Owns the drive's nexus and, while a volume is attached, the knowledge of where its head is and where the tape's
//! committed data ends. Talks to [`Device`] below and the mover's pipeline above. Never sees the catalogue or the
//! network, and never moves a cartridge.
//!
//! ```text
//! Empty --attach, label--> Attached --append, read, scan--> Attached --detach--> Empty
//!                             |  ^
//!              reset, timeout |  | the next call attaches again by itself
//!                             v  |
//!                            Stale            Fenced: every call is refused, detach forgets
//! ```
//!
//! Invariants: `position` is what READ POSITION would say, or `None` after any failed command. A member is reported as
//! written only after the commit rule holds. Nothing that was committed is ever overwritten.

mod append;
mod fence;
mod recall;
mod records;
mod setup;
mod tail;
#[cfg(test)]
mod tests;

use tracing::{info, warn};
use wire::extent::Extent;
use wire::id::{DriveId, Epoch, VolumeLabel};

use self::tail::Tail;
use super::device::Device;
use super::error::DriveError;
use super::format::{RECORD_BYTES, VolumeInfo};
use super::member::{AppendPoint, AppendReport, ContainerHeader, Member, MemberSource, ReadReport, Sink, Wanted};
use crate::scsi::inquiry::Inquiry;
use crate::scsi::log::{Capacity, TapeAlerts};
use crate::scsi::{DeviceKind, Remedy, ScsiTransport};

/// Bytes of protection information behind a block: CRC-32C, little-endian.
const PROTECTION_BYTES: usize = 4;

/// One tape drive: the only owner of its nexus. All calls block.
pub struct Drive {
    id: DriveId,
    device: Device,
    session: Option<Session>,
    /// One record and its protection.
    record: Vec<u8>,
    /// TapeAlert flags that were up when something failed or a volume was given back.
    alerts: TapeAlerts,
    /// Which block the record holds, if it was read.
    held: Option<u64>,
    activity: DriveActivity,
}

/// The volume that is attached.
struct Session {
    volume: VolumeLabel,
    epoch: Epoch,
    info: VolumeInfo,
    worm: bool,
    write_protected: bool,
    protection: bool,
    position: Option<u64>,
    tail: Option<Tail>,
    /// A container was written since the last index.
    unindexed: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    /// The drive may have forgotten what we told it.
    Stale,
    /// Somebody with a higher epoch owns the drive.
    Fenced,
}

/// What a drive moved since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriveActivity {
    /// Volumes attached.
    pub mounts: u64,
    /// Containers committed.
    pub containers: u64,
    /// Bytes written, records whole.
    pub written_bytes: u64,
    /// Bytes read, records whole.
    pub read_bytes: u64,
    /// Times the head was sent elsewhere.
    pub locates: u64,
}

/// What attaching a volume found out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// What the volume's label says.
    pub info: VolumeInfo,
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
    /// The site or group that owns it, for people; 14 characters of it go into VOL1.
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
#[derive(Debug)]
pub struct Scan {
    /// What the volume's label says.
    pub info: VolumeInfo,
    /// Committed containers, by number.
    pub containers: Vec<ScannedContainer>,
    /// Containers that are committed, but whose list of members cannot be read.
    pub unreadable: Vec<(u32, DriveError)>,
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
    /// Its members and where their data lies.
    pub members: Vec<(Member, Extent)>,
}

/// One container, when a tape is listed one by one.
#[derive(Debug)]
pub struct ScannedOne {
    /// Its number.
    pub container: u32,
    /// How many containers are on the tape.
    pub containers: u32,
    /// What it holds, or why that cannot be read.
    pub listed: Result<ScannedContainer, DriveError>,
}

impl Drive {
    /// A drive behind a transport, not yet spoken to.
    #[must_use]
    pub fn new(id: DriveId, transport: Box<dyn ScsiTransport>) -> Self {
        Self {
            id,
            device: Device::new(transport, DeviceKind::Drive),
            session: None,
            record: vec![0; RECORD_BYTES + PROTECTION_BYTES],
            alerts: TapeAlerts::default(),
            held: None,
            activity: DriveActivity::default(),
        }
    }

    /// The drive's name.
    #[must_use]
    pub const fn id(&self) -> &DriveId {
        &self.id
    }

    /// What the drive moved so far.
    #[must_use]
    pub const fn activity(&self) -> DriveActivity {
        self.activity
    }

    /// The volume that is attached.
    #[must_use]
    pub fn volume(&self) -> Option<&VolumeLabel> {
        self.session.as_ref().map(|session| &session.volume)
    }

    /// Whether the drive asked to be cleaned since this was last called.
    pub fn take_cleaning_request(&mut self) -> bool {
        std::mem::take(&mut self.device.wants_cleaning)
    }

    /// TapeAlert flags that came up since this was last called: looked at when a volume is attached, when something
    /// fails, and when a volume is given back. Reading clears them in the drive, so this is the only reader.
    pub fn take_alerts(&mut self) -> TapeAlerts {
        std::mem::take(&mut self.alerts)
    }

    /// What the drive is. Needs no volume.
    ///
    /// # Errors
    ///
    /// [`DriveError::Device`].
    pub fn identify(&mut self) -> Result<Inquiry, DriveError> {
        Ok(self.device.inquiry()?)
    }

    /// The serial number by which the robot knows the drive. Needs no volume.
    ///
    /// # Errors
    ///
    /// [`DriveError::Device`].
    pub fn serial(&mut self) -> Result<String, DriveError> {
        Ok(self.device.serial()?)
    }

    /// Makes the loaded volume ours: waits until it is ready, reserves the drive with `epoch`, sets the drive up, reads
    /// the labels and compares them with what is expected.
    ///
    /// # Errors
    ///
    /// [`DriveError::Fenced`] if a newer epoch holds the drive, [`DriveError::ForeignReservation`] if a stranger does;
    /// [`DriveError::Blank`], [`DriveError::WrongVolume`], [`DriveError::CleaningCartridge`] if the tape is not
    /// `expected`; [`DriveError::NotReady`], [`DriveError::Device`]. Nothing is attached then.
    #[tracing::instrument(name = "drive.attach", skip_all, fields(drive = %self.id, volume = %expected, %epoch))]
    pub fn attach(&mut self, expected: &VolumeLabel, epoch: Epoch) -> Result<Attached, DriveError> {
        self.session = None;
        let session = self.establish(expected, epoch)?;
        self.adopt(session)
    }

    /// Writes fresh labels on the loaded tape, and attaches it.
    ///
    /// # Errors
    ///
    /// [`DriveError::NotBlank`] if something is on it that may not be overwritten; [`DriveError::WriteProtected`]; else
    /// as [`Drive::attach`].
    #[tracing::instrument(name = "drive.label", skip_all, fields(drive = %self.id, volume = %volume.label, %epoch))]
    pub fn label(&mut self, volume: &NewVolume, overwrite: Overwrite, epoch: Epoch) -> Result<Attached, DriveError> {
        self.session = None;
        self.write_labels(volume, overwrite, epoch)?;
        let session = self.establish(&volume.label, epoch)?;
        info!("volume labelled");
        self.adopt(session)
    }

    /// Where the tape's committed data ends. Reads the end of the tape the first time.
    ///
    /// # Errors
    ///
    /// [`DriveError::NotAttached`], [`DriveError::Format`], [`DriveError::Device`]; a read error is never taken for
    /// the end.
    pub fn append_point(&mut self) -> Result<AppendPoint, DriveError> {
        self.guarded(|drive| Ok(drive.tail()?.append_point()))
    }

    /// Writes one container with members until the source ends or the tape does, and commits it.
    ///
    /// # Errors
    ///
    /// Nothing of the container counts after an error; what was committed before stands.
    /// [`DriveError::StaleAppendPoint`] if the tape does not end with the container before; [`DriveError::EndOfMedium`]
    /// if it does not fit; [`DriveError::Source`] and [`DriveError::Checksum`] if the data cannot be had or is not what
    /// it should be; [`DriveError::NotCommitted`] if the drive does not confirm it; [`DriveError::BadMember`];
    /// [`DriveError::WriteProtected`]; [`DriveError::Device`].
    #[tracing::instrument(name = "drive.append", skip_all, fields(drive = %self.id, container = header.sequence))]
    pub fn append(
        &mut self,
        header: &ContainerHeader,
        members: &mut dyn MemberSource,
    ) -> Result<AppendReport, DriveError> {
        self.guarded(|drive| drive.append_container(header, members))
    }

    /// Reads members in the order given; `sink` gets the index in `wanted` and bytes, in order, each byte once.
    ///
    /// What was delivered is good only if the report says so: sums are known at the end of a member.
    #[tracing::instrument(name = "drive.read", skip_all, fields(drive = %self.id, members = wanted.len()))]
    pub fn read(&mut self, wanted: &[Wanted], sink: &mut Sink<'_>) -> ReadReport {
        self.recall(wanted, sink)
    }

    /// Lists containers and members from the tape alone: from its end back to the last index, and from there.
    ///
    /// # Errors
    ///
    /// As [`Drive::append_point`]. A container whose list cannot be read is in the result, not an error.
    #[tracing::instrument(name = "drive.scan", skip_all, fields(drive = %self.id))]
    pub fn scan(&mut self) -> Result<Scan, DriveError> {
        self.guarded(Self::scan_tape)
    }

    /// Lists the first container whose number is at least `from`; `None` behind the last. So a tape of any size is listed
    /// in the memory of its largest container.
    ///
    /// # Errors
    ///
    /// As [`Drive::scan`].
    #[tracing::instrument(name = "drive.scan", skip_all, fields(drive = %self.id, from))]
    pub fn scan_from(&mut self, from: u32) -> Result<Option<ScannedOne>, DriveError> {
        self.guarded(|drive| drive.scan_container(from))
    }

    /// Writes the index if containers were added, rewinds, unloads if asked, and gives the drive back.
    ///
    /// Without a volume attached it only does what it can. After a lost fence it forgets the volume and touches
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`DriveError::Device`] if the tape cannot be unloaded; the volume is detached nevertheless. An index that
    /// cannot be written is no error: it only makes a scan faster.
    #[tracing::instrument(name = "drive.detach", skip_all, fields(drive = %self.id))]
    pub fn detach(&mut self, unload: Unload) -> Result<(), DriveError> {
        let Some(session) = &self.session else { return self.give_back(None, unload) };
        if session.state == State::Fenced {
            self.session = None;
            return Ok(());
        }
        if session.unindexed
            && session.state == State::Ready
            && let Err(error) = self.guarded(Self::write_index)
        {
            warn!(%error, "index not written");
        }
        match self.session.take() {
            Some(session) if session.state == State::Fenced => Ok(()),
            session => self.give_back(session, unload),
        }
    }

    /// Runs a call with an attached, ready volume, and draws the consequences of its failure.
    fn guarded<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T, DriveError>) -> Result<T, DriveError> {
        self.ensure_ready()?;
        let result = call(self);
        if let Err(error) = &result {
            self.note(error);
        }
        result
    }

    /// Attaches again if the drive may have forgotten us.
    fn ensure_ready(&mut self) -> Result<(), DriveError> {
        let session = self.session.as_ref().ok_or(DriveError::NotAttached)?;
        match session.state {
            State::Ready => Ok(()),
            State::Fenced => Err(DriveError::Fenced { ours: session.epoch, holder: None }),
            State::Stale => {
                // Out of the way: it says that protection is on, which the drive may have forgotten.
                let stale = self.session.take().expect("looked at above");
                warn!(volume = %stale.volume, "drive is set up again");
                self.device.lost_fence = false;
                let established = self.establish(&stale.volume, stale.epoch).and_then(|fresh| {
                    // Whoever took the drive from us may have given it back: what we know is old all the same.
                    if !self.device.lost_fence {
                        return Ok(fresh);
                    }
                    let _ = self.release(stale.epoch);
                    Err(DriveError::Fenced { ours: stale.epoch, holder: None })
                });
                match established {
                    Ok(fresh) => {
                        self.session = Some(Session { unindexed: stale.unindexed, ..fresh });
                        Ok(())
                    }
                    Err(error) => {
                        self.session = Some(stale);
                        self.note(&error);
                        Err(error)
                    }
                }
            }
        }
    }

    fn keep_alerts(&mut self, alerts: TapeAlerts) {
        self.alerts.0 |= alerts.0;
        self.device.wants_cleaning |= alerts.wants_cleaning();
    }

    /// What a failure means for what we know about the drive.
    fn note(&mut self, error: &DriveError) {
        let Some(session) = &mut self.session else { return };
        if error.loses_position() {
            self.held = None;
            session.position = None;
        }
        match error.remedy() {
            Remedy::FenceLost => session.state = State::Fenced,
            Remedy::Reattach | Remedy::QuarantineDrive if session.state == State::Ready => {
                session.state = State::Stale;
            }
            Remedy::CloseVolume | Remedy::QuarantineVolume if error.loses_position() => {
                // The drive's own view of why; a hint for whoever looks at it.
                if let Ok(alerts) = self.device.alerts() {
                    self.keep_alerts(alerts);
                }
            }
            _ => {}
        }
    }

    fn session(&mut self) -> Result<&mut Session, DriveError> {
        self.session.as_mut().ok_or(DriveError::NotAttached)
    }

    /// Keeps a fresh session and says what was found.
    fn adopt(&mut self, session: Session) -> Result<Attached, DriveError> {
        let (info, worm) = (session.info.clone(), session.worm);
        let (write_protected, block_protection) = (session.write_protected, session.protection);
        let (capacity, alerts) = (self.capacity()?, self.device.alerts()?);
        self.session = Some(session);
        self.device.lost_fence = false;
        self.activity.mounts += 1;
        self.keep_alerts(alerts);
        info!(worm, write_protected, block_protection, alerts = alerts.0, "volume attached");
        Ok(Attached { info, worm, write_protected, block_protection, capacity, alerts })
    }
}
