//! The virtual robot: which cartridge is in which element, kept on disk, and the changer's commands.
//!
//! Owns the inventory. Talks to the drives only to put a cartridge in or take one out. Never reads a tape.
//!
//! Invariant: a cartridge is in exactly one element, and `library.json` says so before MOVE MEDIUM ends with GOOD.
//!
//! # Source
//!
//! SMC-3.

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::drive::{DriveUnit, answer};
use super::faults::Faults;
use super::medium::{CartridgeKind, Chip, Medium};
use super::spec::{CartridgeSpec, VtlSpec};
use super::timing::{Generation, Operation};
use super::{NexusId, lock, persist};
use crate::scsi::element::{Element, encode_elements};
use crate::scsi::inquiry::{DeviceType, Inquiry, SERIAL_PAGE, encode_vital};
use crate::scsi::mode::{ElementAddresses, ModeData, ModeForm};
use crate::scsi::{Cdb, Completion, DataPhase, ElementKind, PageControl, Sense, SenseKey, Status};

const ROBOT: u16 = 0x0001;
const FIRST_MAIL: u16 = 0x0010;
const FIRST_DRIVE: u16 = 0x0100;
const FIRST_SLOT: u16 = 0x0400;

/// How often a cleaning cartridge can be used.
const CLEANINGS: u32 = 50;

const INVALID_FIELD: Sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0x00);
const INVALID_ELEMENT: Sense = Sense::new(SenseKey::IllegalRequest, 0x21, 0x01);
const DESTINATION_FULL: Sense = Sense::new(SenseKey::IllegalRequest, 0x3b, 0x0d);
const SOURCE_EMPTY: Sense = Sense::new(SenseKey::IllegalRequest, 0x3b, 0x0e);

/// What is kept in `library.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Layout {
    pub(super) generation: Generation,
    pub(super) drives: u16,
    slots: u16,
    mail_slots: u16,
    /// Full elements only.
    elements: BTreeMap<u16, Contents>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Contents {
    barcode: String,
    source: Option<u16>,
    imported: bool,
}

/// The library without its drives.
pub(super) struct Library {
    folder: PathBuf,
    layout: Layout,
    attentions: BTreeMap<NexusId, VecDeque<(u8, u8)>>,
    pub(super) faults: Faults,
    /// Bar codes that the reader reads wrongly.
    pub(super) misread: BTreeMap<String, String>,
    cost: Duration,
}

impl Layout {
    fn kind(&self, address: u16) -> Option<ElementKind> {
        let within = |first: u16, count: u16| (first..first + count).contains(&address);
        if address == ROBOT {
            Some(ElementKind::Robot)
        } else if within(FIRST_MAIL, self.mail_slots) {
            Some(ElementKind::Mail)
        } else if within(FIRST_DRIVE, self.drives) {
            Some(ElementKind::Drive)
        } else if within(FIRST_SLOT, self.slots) {
            Some(ElementKind::Slot)
        } else {
            None
        }
    }

    fn addresses(&self) -> impl Iterator<Item = (ElementKind, u16)> {
        let (slots, mail, drives) = (self.slots, self.mail_slots, self.drives);
        std::iter::once((ElementKind::Robot, ROBOT))
            .chain((FIRST_SLOT..FIRST_SLOT + slots).map(|address| (ElementKind::Slot, address)))
            .chain((FIRST_MAIL..FIRST_MAIL + mail).map(|address| (ElementKind::Mail, address)))
            .chain((FIRST_DRIVE..FIRST_DRIVE + drives).map(|address| (ElementKind::Drive, address)))
    }
}

impl Library {
    /// Makes a library's folder.
    pub(super) fn create(folder: &Path, spec: &VtlSpec) -> io::Result<()> {
        if let Some(problem) = spec.problem() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        fs::create_dir_all(folder.join("cartridges"))?;
        let cartridges = u16::try_from(spec.cartridges.len()).expect("checked by `problem`");
        let mut layout = Layout {
            generation: spec.generation,
            drives: spec.drives,
            slots: spec.slots.max(cartridges),
            mail_slots: spec.mail_slots,
            elements: BTreeMap::new(),
        };
        for (address, cartridge) in (FIRST_SLOT..).zip(&spec.cartridges) {
            create_cartridge(folder, cartridge)?;
            let barcode = cartridge.barcode.to_string();
            layout.elements.insert(address, Contents { barcode, source: None, imported: false });
        }
        persist::replace(&folder.join("library.json"), &layout)
    }

    /// Opens a library and loads what is in its drives.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Vec<DriveUnit>)> {
        let layout: Layout = persist::load(&folder.join("library.json"))?;
        let mut drives = Vec::new();
        for (number, address) in (1..).zip(FIRST_DRIVE..FIRST_DRIVE + layout.drives) {
            let mut drive = DriveUnit::new(format!("PSK{number:07}"), layout.generation);
            if let Some(contents) = layout.elements.get(&address) {
                drive.put(open_cartridge(folder, &contents.barcode)?);
            }
            drives.push(drive);
        }
        let library = Self {
            folder: folder.to_owned(),
            layout,
            attentions: BTreeMap::new(),
            faults: Faults::default(),
            misread: BTreeMap::new(),
            cost: Duration::ZERO,
        };
        Ok((library, drives))
    }

    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn execute(
        &mut self,
        drives: &[Mutex<DriveUnit>],
        nexus: NexusId,
        cdb: &Cdb,
        data: DataPhase<'_>,
    ) -> (Completion, Duration) {
        let length = data.length();
        self.cost = Duration::ZERO;
        let completion = self.dispatch(drives, nexus, cdb, data).unwrap_or_else(|sense| Completion {
            status: Status::CheckCondition,
            sense: Some(sense),
            residual_bytes: length,
        });
        (completion, self.cost)
    }

    fn dispatch(
        &mut self,
        drives: &[Mutex<DriveUnit>],
        nexus: NexusId,
        cdb: &Cdb,
        data: DataPhase<'_>,
    ) -> Result<Completion, Sense> {
        let pending = self.attentions.entry(nexus).or_insert_with(|| VecDeque::from([(0x29, 0x00)]));
        let attention = Sense::new(SenseKey::UnitAttention, 0, 0);
        match *cdb {
            Cdb::Inquiry { page, allocation } => return Self::inquiry(page, allocation, data),
            Cdb::ReportLuns { allocation } => {
                return answer(data, &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], allocation);
            }
            Cdb::RequestSense { allocation, .. } => {
                let sense = pending.pop_front().map_or(Sense::new(SenseKey::NoSense, 0, 0), |(asc, ascq)| Sense {
                    asc,
                    ascq,
                    ..attention
                });
                return answer(data, &sense.encode_fixed(), allocation);
            }
            _ => {}
        }
        if let Some((asc, ascq)) = pending.pop_front() {
            return Err(Sense { asc, ascq, ..attention });
        }
        match *cdb {
            Cdb::TestUnitReady | Cdb::InitializeElementStatus | Cdb::PreventRemoval { .. } => Ok(Completion::GOOD),
            Cdb::ModeSense6 { no_block_descriptors: _, control, page, subpage: 0, allocation } => {
                answer(data, &self.mode_data(control, page)?.encode(ModeForm::Six, false, false), allocation)
            }
            Cdb::ModeSense10 { no_block_descriptors: _, control, page, subpage: 0, allocation } => {
                answer(data, &self.mode_data(control, page)?.encode(ModeForm::Ten, false, false), allocation)
            }
            Cdb::ReadElementStatus { kind, volume_tags, start, count, device_ids, allocation } => {
                let mut elements = self.elements(drives);
                elements.retain(|element| element.address >= start && kind.is_none_or(|kind| kind == element.kind));
                elements.truncate(usize::from(count));
                if elements.is_empty() && count > 0 {
                    return Err(INVALID_ELEMENT);
                }
                answer(data, &encode_elements(&elements, volume_tags, device_ids), allocation.get())
            }
            Cdb::MoveMedium { robot: 0 | ROBOT, source, destination } => self.move_medium(drives, source, destination),
            Cdb::MoveMedium { .. } => Err(INVALID_ELEMENT),
            _ => Err(Sense::new(SenseKey::IllegalRequest, 0x20, 0x00)),
        }
    }

    fn inquiry(page: Option<u8>, allocation: u16, data: DataPhase<'_>) -> Result<Completion, Sense> {
        let bytes = match page {
            None => Inquiry {
                device: DeviceType::Changer,
                vendor: "PENSTOCK".into(),
                product: "VTL".into(),
                revision: "0001".into(),
            }
            .encode(),
            Some(0x00) => encode_vital(8, 0x00, &[0x00, SERIAL_PAGE]),
            Some(SERIAL_PAGE) => encode_vital(8, SERIAL_PAGE, b"PSKLIBRARY"),
            Some(_) => return Err(INVALID_FIELD),
        };
        answer(data, &bytes, allocation)
    }

    fn mode_data(&self, control: PageControl, page: u8) -> Result<ModeData, Sense> {
        if control == PageControl::Saved || !matches!(page, ElementAddresses::PAGE | 0x3f) {
            return Err(INVALID_FIELD);
        }
        let addresses = ElementAddresses {
            robot: (ROBOT, 1),
            slot: (FIRST_SLOT, self.layout.slots),
            mail: (FIRST_MAIL, self.layout.mail_slots),
            drive: (FIRST_DRIVE, self.layout.drives),
        };
        Ok(ModeData { pages: vec![addresses.encode()], ..ModeData::default() })
    }

    fn elements(&self, drives: &[Mutex<DriveUnit>]) -> Vec<Element> {
        let mut elements = Vec::new();
        for (kind, address) in self.layout.addresses() {
            let mut element = Element::empty(kind, address);
            if let Some(contents) = self.layout.elements.get(&address) {
                element.full = true;
                element.source = contents.source;
                element.imported = kind == ElementKind::Mail && contents.imported;
                element.tag = Some(self.misread.get(&contents.barcode).unwrap_or(&contents.barcode).clone());
            }
            if kind == ElementKind::Drive
                && let Some(drive) = drives.get(usize::from(address - FIRST_DRIVE))
            {
                let drive = lock(drive);
                element.device = Some(drive.serial().to_owned());
                element.accessible = !drive.is_threaded();
            }
            elements.push(element);
        }
        elements
    }

    fn move_medium(&mut self, drives: &[Mutex<DriveUnit>], source: u16, destination: u16) -> Result<Completion, Sense> {
        let movable = |kind| matches!(kind, Some(ElementKind::Slot | ElementKind::Mail | ElementKind::Drive));
        if !movable(self.layout.kind(source)) || !movable(self.layout.kind(destination)) {
            return Err(INVALID_ELEMENT);
        }
        let Some(contents) = self.layout.elements.get(&source).cloned() else { return Err(SOURCE_EMPTY) };
        if source == destination {
            return Ok(Completion::GOOD);
        }
        if self.layout.elements.contains_key(&destination) {
            return Err(DESTINATION_FULL);
        }
        let drive = |address: u16| address.checked_sub(FIRST_DRIVE).and_then(|index| drives.get(usize::from(index)));
        let from_slot = self.layout.kind(source) == Some(ElementKind::Slot);
        if let Some(from) = drive(source)
            && let Some(sense) = lock(from).refuses_robot()
        {
            return Err(sense);
        }
        let medium = match drive(destination) {
            None => None,
            Some(_) => Some(open_cartridge(&self.folder, &contents.barcode).map_err(|error| {
                error!(volume = contents.barcode, %error, "virtual cartridge cannot be opened");
                Sense::new(SenseKey::HardwareError, 0x15, 0x01)
            })?),
        };
        let mut layout = self.layout.clone();
        layout.elements.remove(&source);
        let moved = Contents {
            barcode: contents.barcode.clone(),
            source: if from_slot { Some(source) } else { contents.source },
            imported: false,
        };
        layout.elements.insert(destination, moved);
        persist::replace(&self.folder.join("library.json"), &layout).map_err(|error| {
            error!(%error, "inventory cannot be kept");
            Sense::new(SenseKey::HardwareError, 0x44, 0x00)
        })?;
        self.layout = layout;
        if let Some(from) = drive(source) {
            lock(from).take();
        }
        let timing = self.layout.generation.timing();
        self.cost = timing.cost(Operation::Move);
        if let (Some(to), Some(medium)) = (drive(destination), medium) {
            lock(to).put(medium);
            self.cost += timing.cost(Operation::Load);
        }
        info!(volume = contents.barcode, source, destination, "cartridge moved");
        Ok(Completion::GOOD)
    }

    /// A person puts a new cartridge in: into a mail slot if one is free, else into a slot.
    pub(super) fn insert(&mut self, cartridge: &CartridgeSpec) -> io::Result<()> {
        let barcode = cartridge.barcode.to_string();
        if self.layout.elements.values().any(|contents| contents.barcode == barcode) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{barcode} is in the library already")));
        }
        let free = |wanted| {
            self.layout
                .addresses()
                .find(|&(kind, address)| kind == wanted && !self.layout.elements.contains_key(&address))
        };
        let Some((_, address)) = free(ElementKind::Mail).or_else(|| free(ElementKind::Slot)) else {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no slot of the library is free"));
        };
        if !self.folder.join("cartridges").join(&barcode).join("chip.json").exists() {
            create_cartridge(&self.folder, cartridge)?;
        }
        let mut layout = self.layout.clone();
        layout.elements.insert(address, Contents { barcode, source: None, imported: true });
        self.change_by_hand(layout)
    }

    /// A person takes a cartridge out of its mail slot. Its folder stays, so that it can be put back.
    pub(super) fn remove(&mut self, barcode: &str) -> io::Result<()> {
        let mut layout = self.layout.clone();
        let in_mail = layout
            .elements
            .iter()
            .find(|(address, contents)| {
                contents.barcode == barcode && layout.kind(**address) == Some(ElementKind::Mail)
            })
            .map(|(address, _)| *address);
        let Some(address) = in_mail else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("{barcode} is in no mail slot")));
        };
        layout.elements.remove(&address);
        self.change_by_hand(layout)
    }

    fn change_by_hand(&mut self, layout: Layout) -> io::Result<()> {
        persist::replace(&self.folder.join("library.json"), &layout)?;
        self.layout = layout;
        for pending in self.attentions.values_mut() {
            pending.push_back((0x28, 0x01));
        }
        Ok(())
    }

    /// A nexus is gone.
    pub(super) fn forget(&mut self, nexus: NexusId) {
        self.attentions.remove(&nexus);
    }
}

fn create_cartridge(folder: &Path, cartridge: &CartridgeSpec) -> io::Result<()> {
    let chip = Chip {
        kind: cartridge.kind,
        capacity_bytes: cartridge.capacity_bytes,
        write_protected: false,
        loads: 0,
        written_bytes: 0,
        read_bytes: 0,
        cleanings: if cartridge.kind == CartridgeKind::Cleaning { CLEANINGS } else { 0 },
        attributes: Vec::new(),
    };
    Medium::create(&folder.join("cartridges").join(cartridge.barcode.as_str()), &chip)
}

fn open_cartridge(folder: &Path, barcode: &str) -> io::Result<Medium> {
    Medium::open(&folder.join("cartridges").join(barcode), barcode)
}
