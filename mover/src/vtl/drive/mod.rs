//! A virtual tape drive: takes commands of several nexuses, one at a time.
//!
//! Owns the cartridge that is in it, its position, mode, reservations and unit attentions. Talks to the
//! [`Medium`] below. Never looks at another drive or at the library.
//!
//! Invariant: a command either is refused before it changes anything, or leaves the position where the standard says,
//! also when it ends with CHECK CONDITION.
//!
//! # Source
//!
//! SSC-5, SPC-5; checked against Linux's `st` and `scsi_debug` as an oracle, as `docs` of the reference say.

mod motion;
mod pages;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    time::Duration,
};

use serde::Serialize;
use tracing::error;

use super::NexusId;
use super::faults::Faults;
use super::medium::{CartridgeKind, Medium};
use super::reserve::{Refused, Reservations};
use super::timing::{Generation, Operation};
use crate::scsi::log::TapeAlerts;
use crate::scsi::mode::{BlockProtection, EarlyWarning};
use crate::scsi::reservation::ReserveList;
use crate::scsi::{Cdb, Completion, DataPhase, ReserveIn, Sense, SenseKey, Status};

/// The longest block a drive takes, as LTO drives: 8 MiB, with protection information behind it.
const LONGEST_BLOCK: u32 = 8 << 20;

/// What a drive did, and how long it would have taken.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Activity {
    /// Cartridges loaded.
    pub loads: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that data streamed.
    pub streaming: Duration,
    /// Time spent loading and unloading.
    pub loading: Duration,
    /// Time spent locating and rewinding.
    pub positioning: Duration,
    /// Time spent draining the buffer.
    pub flushing: Duration,
}

/// A drive.
pub(super) struct DriveUnit {
    serial: String,
    generation: Generation,
    cartridge: Option<Cartridge>,
    attentions: BTreeMap<NexusId, VecDeque<(u8, u8)>>,
    reservations: Reservations,
    prevented: BTreeSet<NexusId>,
    mode: Mode,
    alerts: TapeAlerts,
    pub(super) faults: Faults,
    pub(super) activity: Activity,
    cost: Duration,
}

/// The cartridge in the drive.
struct Cartridge {
    medium: Medium,
    /// The address of the object the next command meets.
    position: u64,
    /// The tape is threaded; the robot cannot take the cartridge.
    threaded: bool,
    /// Programmable early warning was reported since the head was before it.
    warned: bool,
}

#[derive(Clone, Copy, Default)]
struct Mode {
    /// 0 is variable.
    block_length: u32,
    protection: BlockProtection,
    warning: EarlyWarning,
}

/// What a command does: ends, or ends with a sense before anything was moved.
type Outcome = Result<Completion, Sense>;

const INVALID_FIELD: Sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0x00);
const INVALID_LIST: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x00);
const LIST_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x1a, 0x00);
const NOT_SUPPORTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x20, 0x00);

impl DriveUnit {
    pub(super) fn new(serial: String, generation: Generation) -> Self {
        Self {
            serial,
            generation,
            cartridge: None,
            attentions: BTreeMap::new(),
            reservations: Reservations::default(),
            prevented: BTreeSet::new(),
            mode: Mode::default(),
            alerts: TapeAlerts::default(),
            faults: Faults::default(),
            activity: Activity::default(),
            cost: Duration::ZERO,
        }
    }

    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    /// Performs a command and says how long it takes.
    pub(super) fn execute(&mut self, nexus: NexusId, cdb: &Cdb, data: DataPhase<'_>) -> (Completion, Duration) {
        self.cost = Duration::ZERO;
        let length = data.length();
        let completion = self.dispatch(nexus, cdb, data).unwrap_or_else(|sense| Completion {
            status: Status::CheckCondition,
            sense: Some(sense),
            residual_bytes: length,
        });
        (completion, self.cost)
    }

    fn dispatch(&mut self, nexus: NexusId, cdb: &Cdb, data: DataPhase<'_>) -> Outcome {
        let pending = self.attentions.entry(nexus).or_insert_with(|| VecDeque::from([(0x29, 0x00)]));
        match cdb {
            Cdb::Inquiry { page, allocation } => return self.inquiry(*page, *allocation, data),
            Cdb::ReportLuns { allocation } => {
                return answer(data, &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], *allocation);
            }
            Cdb::RequestSense { descriptor, allocation } => {
                let attention = pending.pop_front().map(|(asc, ascq)| Sense::new(SenseKey::UnitAttention, asc, ascq));
                let sense = attention
                    .unwrap_or_else(|| self.ready().err().unwrap_or(const { Sense::new(SenseKey::NoSense, 0, 0) }));
                return if *descriptor {
                    answer(data, &sense.encode_descriptor(), u32::from(*allocation))
                } else {
                    answer(data, &sense.encode_fixed(), u32::from(*allocation))
                };
            }
            _ => {}
        }
        if let Some((asc, ascq)) = pending.pop_front() {
            return Err(Sense::new(SenseKey::UnitAttention, asc, ascq));
        }
        if self.reservations.conflicts(nexus, cdb) {
            return Ok(conflict(&data));
        }
        match *cdb {
            Cdb::TestUnitReady => self.ready().map(|_| Completion::GOOD),
            Cdb::PreventRemoval { prevent } => {
                if prevent {
                    self.prevented.insert(nexus);
                } else {
                    self.prevented.remove(&nexus);
                }
                Ok(Completion::GOOD)
            }
            Cdb::PersistentReserveIn { action, allocation } => match action {
                ReserveIn::ReadKeys => answer(data, &self.reservations.keys().encode(), u32::from(allocation)),
                ReserveIn::ReadReservation => answer(data, &self.reservations.held().encode(), u32::from(allocation)),
                // Exclusive access, write exclusive and their registrants-only forms; nothing persists power loss.
                ReserveIn::ReportCapabilities => answer(data, &[0, 8, 0, 0x80, 0x6a, 0, 0, 0], u32::from(allocation)),
            },
            Cdb::PersistentReserveOut { action, kind, length } => {
                let list = ReserveList::decode(list(&data, length)?).map_err(|_| INVALID_LIST)?;
                match self.reservations.out(nexus, action, kind, list) {
                    Ok(told) => {
                        for (other, attention) in told {
                            self.attentions.entry(other).or_default().push_back(attention);
                        }
                        Ok(Completion::GOOD)
                    }
                    Err(Refused::Conflict) => Ok(conflict(&data)),
                    Err(Refused::InvalidList) => Err(INVALID_LIST),
                    Err(Refused::InvalidRelease) => Err(Sense::new(SenseKey::IllegalRequest, 0x26, 0x04)),
                }
            }
            Cdb::LoadUnload { load, hold: _, immediate: _ } => self.load_unload(load),
            Cdb::ReadBlockLimits
            | Cdb::ModeSense6 { .. }
            | Cdb::ModeSense10 { .. }
            | Cdb::ModeSelect6 { .. }
            | Cdb::ModeSelect10 { .. }
            | Cdb::LogSense { .. }
            | Cdb::ReadAttribute { .. }
            | Cdb::WriteAttribute { .. }
            | Cdb::ReportDensity { .. } => self.pages(nexus, cdb, data),
            Cdb::Read6 { .. }
            | Cdb::Write6 { .. }
            | Cdb::WriteFilemarks6 { .. }
            | Cdb::Space6 { .. }
            | Cdb::Space16 { .. }
            | Cdb::Locate10 { .. }
            | Cdb::Locate16 { .. }
            | Cdb::Rewind { .. }
            | Cdb::ReadPosition { .. }
            | Cdb::Erase6 { .. } => self.motion(cdb, data),
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// The cartridge, if data commands may be performed.
    fn ready(&mut self) -> Result<&mut Cartridge, Sense> {
        match &mut self.cartridge {
            None => Err(Sense::new(SenseKey::NotReady, 0x3a, 0x00)),
            Some(cartridge) if cartridge.medium.chip.kind == CartridgeKind::Cleaning => {
                Err(Sense::new(SenseKey::NotReady, 0x30, 0x03))
            }
            Some(cartridge) if !cartridge.threaded => Err(Sense::new(SenseKey::NotReady, 0x04, 0x02)),
            Some(cartridge) => Ok(cartridge),
        }
    }

    fn load_unload(&mut self, load: bool) -> Outcome {
        if self.cartridge.is_none() {
            return Err(Sense::new(SenseKey::NotReady, 0x3a, 0x00));
        }
        if !load && !self.prevented.is_empty() {
            return Err(Sense::new(SenseKey::IllegalRequest, 0x53, 0x02));
        }
        if !load {
            self.flush()?;
            let from = self.fraction();
            self.spend(Operation::Rewind { from });
            self.spend(Operation::Unload);
        }
        let cartridge = self.cartridge.as_mut().expect("checked above");
        let threads = load && !cartridge.threaded;
        cartridge.position = 0;
        cartridge.warned = false;
        cartridge.threaded = load;
        if threads {
            self.spend(Operation::Load);
        }
        Ok(Completion::GOOD)
    }

    /// The robot puts a cartridge in: it is threaded at once, and every nexus is told.
    pub(super) fn put(&mut self, mut medium: Medium) {
        medium.chip.loads += 1;
        self.activity.loads += 1;
        let cleaning = medium.chip.kind == CartridgeKind::Cleaning;
        if cleaning && medium.chip.cleanings > 0 {
            medium.chip.cleanings -= 1;
            self.alerts = TapeAlerts::default();
        } else if cleaning {
            // Flag 22: the cleaning cartridge is used up.
            self.alerts.raise(22);
        }
        if let Err(error) = medium.save_chip() {
            error!(volume = medium.barcode, %error, "cartridge memory not kept");
        }
        self.cartridge = Some(Cartridge { medium, position: 0, threaded: !cleaning, warned: false });
        self.mode = Mode { warning: self.mode.warning, ..Mode::default() };
        for pending in self.attentions.values_mut() {
            pending.push_back((0x28, 0x00));
        }
        self.cost = Duration::ZERO;
        self.spend(Operation::Load);
    }

    /// Whether the robot may take the cartridge, and why not.
    pub(super) fn refuses_robot(&self) -> Option<Sense> {
        let cartridge = self.cartridge.as_ref()?;
        if !self.prevented.is_empty() {
            Some(Sense::new(SenseKey::IllegalRequest, 0x53, 0x02))
        } else if cartridge.threaded {
            Some(Sense::new(SenseKey::IllegalRequest, 0x53, 0x01))
        } else {
            None
        }
    }

    /// The robot takes the cartridge out.
    pub(super) fn take(&mut self) {
        if let Some(cartridge) = self.cartridge.take()
            && let Err(error) = cartridge.medium.save_chip()
        {
            error!(volume = cartridge.medium.barcode, %error, "cartridge memory not kept");
        }
    }

    /// Whether a tape is threaded.
    pub(super) fn is_threaded(&self) -> bool {
        self.cartridge.as_ref().is_some_and(|cartridge| cartridge.threaded)
    }

    /// A nexus is gone: nothing waits for it any more, and it prevents nothing.
    pub(super) fn forget(&mut self, nexus: NexusId) {
        self.attentions.remove(&nexus);
        self.prevented.remove(&nexus);
    }

    /// A reset: what was not flushed is lost, the tape is rewound, the mode forgotten; reservations stay.
    pub(super) fn reset(&mut self) {
        if let Some(cartridge) = &mut self.cartridge {
            cartridge.medium.lose_unsynced();
            cartridge.position = 0;
            cartridge.warned = false;
        }
        self.mode = Mode::default();
        self.prevented.clear();
        for pending in self.attentions.values_mut() {
            pending.clear();
            pending.push_back((0x29, 0x03));
        }
    }

    /// A power cut: as a reset, and reservations are lost too.
    pub(super) fn power_cut(&mut self) {
        self.reset();
        self.reservations = Reservations::default();
        for pending in self.attentions.values_mut() {
            pending.clear();
            pending.push_back((0x29, 0x00));
        }
    }

    pub(super) fn raise_alert(&mut self, flag: u8) {
        self.alerts.raise(flag);
    }

    /// How much of the capacity lies before the head.
    fn fraction(&self) -> f64 {
        let Some(cartridge) = &self.cartridge else { return 0.0 };
        let capacity = cartridge.medium.chip.capacity_bytes.max(1);
        cartridge.medium.bytes_before(cartridge.position) as f64 / capacity as f64
    }

    /// Counts what an operation takes.
    fn spend(&mut self, operation: Operation) {
        let cost = self.generation.timing().cost(operation);
        self.cost += cost;
        *match operation {
            Operation::Stream { .. } => &mut self.activity.streaming,
            Operation::Flush => &mut self.activity.flushing,
            Operation::Move | Operation::Load | Operation::Unload => &mut self.activity.loading,
            Operation::Rewind { .. } | Operation::Locate { .. } => &mut self.activity.positioning,
        } += cost;
    }

    /// Makes everything written durable, or says that it is not: then it is lost.
    fn flush(&mut self) -> Result<(), Sense> {
        let Some(cartridge) = &mut self.cartridge else { return Ok(()) };
        if !cartridge.medium.is_dirty() {
            return Ok(());
        }
        let failed = match self.faults.at_sync.take() {
            Some(sense) => Some(sense),
            None => cartridge.medium.flush().err().map(|error| medium_error(&error, 0x0c)),
        };
        if let Some(sense) = failed {
            cartridge.medium.lose_unsynced();
            cartridge.position = cartridge.position.min(cartridge.medium.end());
            return Err(sense.deferred());
        }
        self.spend(Operation::Flush);
        Ok(())
    }
}

/// The host's file system failed: to the initiator that is the medium.
fn medium_error(error: &io::Error, asc: u8) -> Sense {
    error!(%error, "virtual cartridge cannot be read or written");
    Sense::new(SenseKey::MediumError, asc, 0x00)
}

fn conflict(data: &DataPhase<'_>) -> Completion {
    Completion { status: Status::ReservationConflict, sense: None, residual_bytes: data.length() }
}

/// Moves as much of `bytes` as the initiator allocated and gave room for.
pub(super) fn answer(data: DataPhase<'_>, bytes: &[u8], allocation: impl Into<u32>) -> Outcome {
    let DataPhase::In(buffer) = data else {
        return if allocation.into() == 0 { Ok(Completion::GOOD) } else { Err(INVALID_FIELD) };
    };
    let allocation = usize::try_from(allocation.into()).unwrap_or(usize::MAX);
    let moved = bytes.len().min(allocation).min(buffer.len());
    buffer[..moved].copy_from_slice(&bytes[..moved]);
    Ok(Completion { residual_bytes: buffer.len() - moved, ..Completion::GOOD })
}

/// The parameter list of a command, `length` bytes of the data phase.
pub(super) fn list<'a>(data: &'a DataPhase<'_>, length: impl Into<u32>) -> Result<&'a [u8], Sense> {
    let length = usize::try_from(length.into()).unwrap_or(usize::MAX);
    match data {
        DataPhase::Out(bytes) => bytes.get(..length).ok_or(LIST_LENGTH),
        _ if length == 0 => Ok(&[]),
        _ => Err(LIST_LENGTH),
    }
}
