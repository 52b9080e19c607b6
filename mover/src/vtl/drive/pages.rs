//! What a drive says about itself and its cartridge: INQUIRY, mode, log, attributes, densities.

use super::{
    Completion, DriveUnit, INVALID_FIELD, INVALID_LIST, LONGEST_BLOCK, NexusId, Outcome, answer, list, medium_error,
};
use crate::scsi::inquiry::{DeviceType, Inquiry, SERIAL_PAGE, TAPE_CAPABILITIES_PAGE, encode_vital};
use crate::scsi::log::{
    CAPACITY_PAGE, Capacity, LogPage, LogParameter, SEQUENTIAL_PAGE, SUPPORTED_PAGE, TAPE_ALERT_PAGE, VOLUME_PAGE,
};
use crate::scsi::mam::{self, Attribute, AttributeFormat};
use crate::scsi::mode::{BlockProtection, EarlyWarning, ModeData, ModeForm, ModePage};
use crate::scsi::stream::BlockLimits;
use crate::scsi::{Cdb, DataPhase, PageControl, Sense, SenseKey};
use crate::vtl::medium::{CartridgeKind, HostAttribute};

/// Data compression page.
const COMPRESSION_PAGE: u8 = 0x0f;
/// Every page.
const ALL_PAGES: u8 = 0x3f;
/// The longest value of an attribute a host may write, and how many it may.
const LONGEST_ATTRIBUTE: usize = 1024;
const MOST_ATTRIBUTES: usize = 64;

impl DriveUnit {
    pub(super) fn pages(&mut self, nexus: NexusId, cdb: &Cdb, data: DataPhase<'_>) -> Outcome {
        match *cdb {
            Cdb::ReadBlockLimits => {
                let limits = BlockLimits { longest: LONGEST_BLOCK, shortest: 1 };
                answer(data, &limits.encode(), u32::MAX)
            }
            Cdb::ModeSense6 { no_block_descriptors, control, page, subpage, allocation } => {
                let mode = self.mode_data(control, page, subpage)?;
                answer(data, &mode.encode(ModeForm::Six, !no_block_descriptors, false), allocation)
            }
            Cdb::ModeSense10 { no_block_descriptors, control, page, subpage, allocation } => {
                let mode = self.mode_data(control, page, subpage)?;
                answer(data, &mode.encode(ModeForm::Ten, !no_block_descriptors, false), allocation)
            }
            Cdb::ModeSelect6 { length, .. } => self.mode_select(nexus, ModeForm::Six, list(&data, length)?),
            Cdb::ModeSelect10 { length, .. } => self.mode_select(nexus, ModeForm::Ten, list(&data, length)?),
            Cdb::LogSense { page, subpage: 0, allocation, .. } => answer(data, &self.log_page(page)?, allocation),
            Cdb::ReadAttribute { partition: 0, first, allocation } => {
                let all = self.attributes()?;
                let from = all.iter().filter(|attribute| attribute.id >= first);
                answer(data, &mam::encode_attributes(from), allocation)
            }
            Cdb::WriteAttribute { partition: 0, length, .. } => self.write_attributes(list(&data, length)?),
            Cdb::ReportDensity { allocation, .. } => answer(data, &self.densities(), allocation),
            _ => Err(INVALID_FIELD),
        }
    }

    pub(super) fn inquiry(&mut self, page: Option<u8>, allocation: u16, data: DataPhase<'_>) -> Outcome {
        let bytes = match page {
            None => Inquiry {
                device: DeviceType::Tape,
                vendor: "PENSTOCK".into(),
                product: format!("VTL-{:?}", self.generation).to_uppercase(),
                revision: "0001".into(),
            }
            .encode(),
            Some(0x00) => encode_vital(1, 0x00, &[0x00, SERIAL_PAGE, 0x83, TAPE_CAPABILITIES_PAGE]),
            Some(SERIAL_PAGE) => encode_vital(1, SERIAL_PAGE, self.serial().as_bytes()),
            Some(0x83) => {
                // One T10 vendor identifier of the logical unit, in ASCII.
                let text = format!("PENSTOCK{:<16}{}", "VTL", self.serial());
                let mut payload = vec![0x02, 0x01, 0, u8::try_from(text.len()).unwrap_or(u8::MAX)];
                payload.extend_from_slice(text.as_bytes());
                encode_vital(1, 0x83, &payload)
            }
            Some(TAPE_CAPABILITIES_PAGE) => {
                let kind = self.cartridge.as_ref().map(|cartridge| cartridge.medium.chip.kind);
                encode_vital(1, TAPE_CAPABILITIES_PAGE, &[(kind == Some(CartridgeKind::Worm)).into(), 0])
            }
            Some(_) => return Err(INVALID_FIELD),
        };
        answer(data, &bytes, allocation)
    }

    fn mode_data(&self, control: PageControl, page: u8, subpage: u8) -> Result<ModeData, Sense> {
        let mut compression = ModePage { page: COMPRESSION_PAGE, subpage: 0, payload: vec![0; 14] };
        // Compression capable, not enabled: what arrives is mostly compressed or encrypted already.
        compression.payload[0] = 0x40;
        let mut pages = match control {
            PageControl::Saved => return Err(Sense::new(SenseKey::IllegalRequest, 0x39, 0x00)),
            PageControl::Current => vec![compression, self.mode.warning.encode(), self.mode.protection.encode()],
            PageControl::Default => {
                vec![compression, EarlyWarning::default().encode(), BlockProtection::default().encode()]
            }
            PageControl::Changeable => {
                compression.payload.fill(0);
                let protection = BlockProtection { method: 0xff, length: 0x3f, write: true, read: true };
                vec![compression, EarlyWarning { size_mb: u16::MAX }.encode(), protection.encode()]
            }
        };
        if page == ALL_PAGES {
            pages.retain(|found| found.subpage == 0 || subpage == 0xff);
        } else if page == 0 {
            pages.clear();
        } else {
            pages.retain(|found| found.page == page && (found.subpage == subpage || subpage == 0xff));
            if pages.is_empty() {
                return Err(INVALID_FIELD);
            }
        }
        let chip = self.cartridge.as_ref().map(|cartridge| &cartridge.medium.chip);
        Ok(ModeData {
            medium_type: 0,
            write_protected: chip.is_some_and(|chip| chip.write_protected),
            buffered: true,
            density: self.generation.timing().density,
            block_length: self.mode.block_length,
            pages,
        })
    }

    fn mode_select(&mut self, nexus: NexusId, form: ModeForm, bytes: &[u8]) -> Outcome {
        if bytes.is_empty() {
            return Ok(Completion::GOOD);
        }
        let has_descriptor = match form {
            ModeForm::Six => bytes.get(3),
            ModeForm::Ten => bytes.get(7),
        } == Some(&8);
        let data = ModeData::decode(form, bytes).map_err(|_| INVALID_LIST)?;
        let before = self.mode;
        let applied = self.apply_mode(&data, has_descriptor);
        if applied.is_err() {
            self.mode = before;
            return applied;
        }
        for (other, pending) in &mut self.attentions {
            if *other != nexus {
                pending.push_back((0x2a, 0x01));
            }
        }
        applied
    }

    fn apply_mode(&mut self, data: &ModeData, has_descriptor: bool) -> Outcome {
        if has_descriptor {
            if data.block_length > LONGEST_BLOCK {
                return Err(INVALID_LIST);
            }
            self.mode.block_length = data.block_length;
        }
        for page in &data.pages {
            match (page.page, page.subpage) {
                (BlockProtection::PAGE, BlockProtection::SUBPAGE) => {
                    self.set_protection(BlockProtection::decode(&page.payload).map_err(|_| INVALID_LIST)?)?;
                }
                (EarlyWarning::PAGE, EarlyWarning::SUBPAGE) => {
                    self.mode.warning = EarlyWarning::decode(&page.payload).map_err(|_| INVALID_LIST)?;
                }
                _ => return Err(INVALID_LIST),
            }
        }
        Ok(Completion::GOOD)
    }

    fn log_page(&mut self, page: u8) -> Result<Vec<u8>, Sense> {
        let number = LogParameter::number;
        Ok(match page {
            SUPPORTED_PAGE => {
                let pages = [SUPPORTED_PAGE, SEQUENTIAL_PAGE, VOLUME_PAGE, TAPE_ALERT_PAGE, CAPACITY_PAGE];
                let mut bytes = vec![SUPPORTED_PAGE, 0, 0, 5];
                bytes.extend_from_slice(&pages);
                bytes
            }
            SEQUENTIAL_PAGE => {
                let cleaning = u64::from(self.alerts.wants_cleaning());
                let long = |code, value: u64| LogParameter { code, value: value.to_be_bytes().to_vec() };
                let parameters = vec![
                    long(0, self.activity.written_bytes),
                    long(1, self.activity.written_bytes),
                    long(2, self.activity.read_bytes),
                    long(3, self.activity.read_bytes),
                    long(0x100, cleaning),
                ];
                LogPage { page, parameters }.encode()
            }
            VOLUME_PAGE => {
                let chip = &self.ready()?.medium.chip;
                // Valid, threads, and megabytes over the cartridge's life.
                let parameters = vec![
                    number(0x00, 1),
                    number(0x01, chip.loads),
                    number(0x10, chip.written_bytes / 1_000_000),
                    number(0x11, chip.read_bytes / 1_000_000),
                ];
                LogPage { page, parameters }.encode()
            }
            TAPE_ALERT_PAGE => std::mem::take(&mut self.alerts).page().encode(),
            CAPACITY_PAGE => self.capacity()?.page().encode(),
            _ => return Err(INVALID_FIELD),
        })
    }

    /// What is left behind the head.
    fn capacity(&mut self) -> Result<Capacity, Sense> {
        let cartridge = self.ready()?;
        let maximum_bytes = cartridge.medium.chip.capacity_bytes;
        let used = cartridge.medium.used_bytes();
        Ok(Capacity { remaining_bytes: maximum_bytes.saturating_sub(used), maximum_bytes })
    }

    fn attributes(&mut self) -> Result<Vec<Attribute>, Sense> {
        let capacity = self.capacity()?;
        let medium = &self.ready()?.medium;
        let kind = match medium.chip.kind {
            CartridgeKind::Data => 0,
            CartridgeKind::Worm => mam::WORM_MEDIUM,
            CartridgeKind::Cleaning => mam::CLEANING_MEDIUM,
        };
        let mut serial = Attribute::ascii(mam::MEDIUM_SERIAL, &medium.barcode, 32);
        serial.read_only = true;
        let mut all = vec![
            Attribute::device(mam::REMAINING_CAPACITY, &(capacity.remaining_bytes >> 20).to_be_bytes()),
            Attribute::device(0x0001, &(capacity.maximum_bytes >> 20).to_be_bytes()),
            Attribute::device(0x0003, &medium.chip.loads.to_be_bytes()),
            serial,
            Attribute::device(mam::MEDIUM_TYPE, &[kind]),
        ];
        all.extend(medium.chip.attributes.iter().map(|kept| Attribute {
            id: kept.id,
            read_only: false,
            format: match kept.format {
                0 => AttributeFormat::Binary,
                1 => AttributeFormat::Ascii,
                _ => AttributeFormat::Text,
            },
            value: kept.value.clone(),
        }));
        all.sort_by_key(|attribute| attribute.id);
        Ok(all)
    }

    fn write_attributes(&mut self, bytes: &[u8]) -> Outcome {
        let wanted = mam::decode_attributes(bytes).map_err(|_| INVALID_LIST)?;
        let medium = &mut self.ready()?.medium;
        let host = |id: u16| (0x0800..0x0c00).contains(&id);
        if wanted.iter().any(|one| !host(one.id) || one.value.len() > LONGEST_ATTRIBUTE) {
            return Err(INVALID_LIST);
        }
        let kept = &mut medium.chip.attributes;
        for attribute in wanted {
            kept.retain(|before| before.id != attribute.id);
            // An empty value removes the attribute.
            if !attribute.value.is_empty() {
                let Attribute { id, format, value, .. } = attribute;
                kept.push(HostAttribute { id, format: format as u8, value });
            }
        }
        if kept.len() > MOST_ATTRIBUTES {
            kept.truncate(MOST_ATTRIBUTES);
            return Err(Sense::new(SenseKey::IllegalRequest, 0x55, 0x08));
        }
        medium.save_chip().map_err(|error| medium_error(&error, 0x0c))?;
        Ok(Completion::GOOD)
    }

    /// REPORT DENSITY SUPPORT: one descriptor (SSC-5, 7.11).
    fn densities(&self) -> Vec<u8> {
        let timing = self.generation.timing();
        let mut bytes = vec![0, 54, 0, 0, timing.density, timing.density, 0xa0, 0, 0];
        bytes.extend_from_slice(&[0, 0x4c, 0x1d, 0x00, 0x7f]);
        bytes.extend_from_slice(&u16::try_from(timing.wraps).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(timing.native_bytes / 1_000_000).unwrap_or(u32::MAX).to_be_bytes());
        let name = format!("U-{}", self.generation.suffix());
        bytes.extend_from_slice(format!("{:<8}{:<8}{:<20}", "LTO-CVE", name, "Ultrium").as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vtl::timing::Generation;

    #[test]
    fn a_density_report_is_as_long_as_it_says() {
        let unit = DriveUnit::new("S1".into(), Generation::Lto9);
        let bytes = unit.densities();
        assert_eq!(bytes.len(), 2 + usize::from(u16::from_be_bytes([bytes[0], bytes[1]])));
        assert_eq!(bytes.len(), 4 + 52);
    }
}
