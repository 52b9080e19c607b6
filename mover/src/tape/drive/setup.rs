//! Making a loaded tape ours and giving it back: readiness, mode, labels, unloading.

use std::{
    fs::File,
    io::Read as _,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tracing::{debug, info, warn};
use wire::id::{Epoch, VolumeLabel};

use super::records::Block;
use super::{Drive, NewVolume, Overwrite, PROTECTION_BYTES, Session, State, Unload};
use crate::scsi::log::{CAPACITY_PAGE, Capacity};
use crate::scsi::mam::{self, Attribute};
use crate::scsi::mode::{BlockProtection, EarlyWarning, ModeData, ModeForm, ModePage};
use crate::scsi::{Cdb, PageControl, Remedy, SenseKey, inquiry};
use crate::tape::device::{CommandError, malformed, unsupported};
use crate::tape::error::DriveError;
use crate::tape::format::{FIRST_CONTAINER_BLOCK, RECORD_BYTES, VolumeInfo, decode_vol1, encode_vol1, readme};

/// How long a loaded drive may take to become ready. LTO-9's first load optimises the medium for up to two hours, but
/// that is done when a volume is labelled, by [`Drive::label`], with [`LABEL_LIMIT`].
const READY_LIMIT: Duration = Duration::from_secs(300);
/// The same for a tape that may never have been used.
const LABEL_LIMIT: Duration = Duration::from_secs(150 * 60);
/// Between two looks at a drive that becomes ready.
const POLL: Duration = Duration::from_millis(500);

impl Drive {
    /// Waits until the tape is threaded and the drive ready, and takes the unit attentions.
    fn settle(&mut self, expected: &VolumeLabel, limit: Duration) -> Result<(), DriveError> {
        let began = Instant::now();
        let mut loaded = false;
        loop {
            if let Some((asc, ascq)) = self.device.take_attentions()? {
                debug!(asc, ascq, "unit attention taken");
            }
            let error = match self.device.once(&Cdb::TestUnitReady, crate::scsi::DataPhase::None) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let code = error.sense().map(crate::scsi::Sense::code);
            match (code, error.remedy(crate::scsi::DeviceKind::Drive)) {
                // Cartridge in, not threaded.
                (Some((0x2, 0x04, 0x02)), _) if !loaded => {
                    loaded = true;
                    self.device.command(&Cdb::LoadUnload { load: true, hold: false, immediate: false })?;
                }
                (Some((0x2, 0x30, 0x03)), _) => {
                    return Err(DriveError::CleaningCartridge { expected: expected.clone() });
                }
                (Some((0x6, ..)), _) | (_, Remedy::Retry) => {}
                (_, Remedy::Wait) => thread::sleep(POLL),
                _ => return Err(error.into()),
            }
            if began.elapsed() > limit {
                return Err(DriveError::NotReady { waited_seconds: began.elapsed().as_secs() });
            }
        }
    }

    /// Makes the loaded volume ours, if it is `expected`.
    pub(super) fn establish(&mut self, expected: &VolumeLabel, epoch: Epoch) -> Result<Session, DriveError> {
        self.held = None;
        self.settle(expected, READY_LIMIT)?;
        self.reserve(epoch)?;
        let attached = self.establish_reserved(expected, epoch);
        if let Err(error) = &attached
            && error.remedy() != Remedy::FenceLost
        {
            // We do not keep a drive whose tape we cannot use.
            let _ = self.release(epoch);
        }
        attached
    }

    fn establish_reserved(&mut self, expected: &VolumeLabel, epoch: Epoch) -> Result<Session, DriveError> {
        let write_protected = self.plain_mode()?;
        self.rewind()?;
        let info = self.read_labels(expected)?;
        self.compare_chip(expected)?;
        let protection = self.protect_blocks()?;
        self.set_early_warning()?;
        Ok(Session {
            volume: expected.clone(),
            epoch,
            worm: self.is_worm()?,
            write_protected,
            protection,
            position: Some(FIRST_CONTAINER_BLOCK),
            tail: None,
            unindexed: false,
            state: State::Ready,
            info,
        })
    }

    /// Variable blocks without protection: how VOL1 is read. Returns whether the volume is write protected.
    fn plain_mode(&mut self) -> Result<bool, DriveError> {
        let longest = self.device.block_limits()?.longest;
        if longest != 0 && (longest as usize) < RECORD_BYTES + PROTECTION_BYTES {
            return Err(DriveError::BlockLimit { longest });
        }
        if self.protection_page()?.is_some_and(|page| page.read || page.write) {
            self.unprotect_blocks()?;
        }
        let mode = self.mode_sense(0, 0)?.unwrap_or_default();
        if mode.block_length != 0 {
            self.select(ModeData { density: mode.density, ..ModeData::default() }, true)?;
        }
        Ok(mode.write_protected)
    }

    fn unprotect_blocks(&mut self) -> Result<(), CommandError> {
        self.select(ModeData { pages: vec![BlockProtection::default().encode()], ..ModeData::default() }, false)
    }

    /// Turns logical block protection on, if the drive has it.
    fn protect_blocks(&mut self) -> Result<bool, DriveError> {
        if self.protection_page()?.is_none() {
            return Ok(false);
        }
        let page = BlockProtection::CRC32C.encode();
        match self.select(ModeData { pages: vec![page], ..ModeData::default() }, false) {
            Ok(()) => Ok(true),
            Err(error) => {
                unsupported(error)?;
                Ok(false)
            }
        }
    }

    fn protection_page(&mut self) -> Result<Option<BlockProtection>, DriveError> {
        let Some(mode) = self.mode_sense(BlockProtection::PAGE, BlockProtection::SUBPAGE)? else { return Ok(None) };
        Ok(mode
            .page(BlockProtection::PAGE, BlockProtection::SUBPAGE)
            .and_then(|payload| BlockProtection::decode(payload).ok()))
    }

    /// Asks to be warned early enough for a trailer and an index: at most a gigabyte, at most a fiftieth of the tape.
    fn set_early_warning(&mut self) -> Result<(), DriveError> {
        let Some(capacity) = self.capacity()? else { return Ok(()) };
        let megabytes = (capacity.maximum_bytes / 50 / 1_000_000).min(1000);
        let Some(mode) = self.mode_sense(EarlyWarning::PAGE, EarlyWarning::SUBPAGE)? else { return Ok(()) };
        let Some(before) = mode.page(EarlyWarning::PAGE, EarlyWarning::SUBPAGE) else { return Ok(()) };
        let mut payload = before.to_vec();
        let wanted = EarlyWarning { size_mb: u16::try_from(megabytes).unwrap_or(1000) };
        if EarlyWarning::decode(before).is_ok_and(|now| now == wanted) || payload.len() < 4 {
            return Ok(());
        }
        // The rest of the page stays as the drive has it.
        payload[2..4].copy_from_slice(&wanted.size_mb.to_be_bytes());
        let page = ModePage { page: EarlyWarning::PAGE, subpage: EarlyWarning::SUBPAGE, payload };
        match self.select(ModeData { pages: vec![page], ..ModeData::default() }, false) {
            Ok(()) => Ok(()),
            Err(error) => Ok(unsupported(error)?),
        }
    }

    fn mode_sense(&mut self, page: u8, subpage: u8) -> Result<Option<ModeData>, DriveError> {
        let control = PageControl::Current;
        let cdb = Cdb::ModeSense10 { no_block_descriptors: false, control, page, subpage, allocation: 512 };
        match self.device.fetch(&cdb, 512) {
            Ok(bytes) => Ok(Some(ModeData::decode(ModeForm::Ten, &bytes).map_err(|source| malformed(&cdb, source))?)),
            Err(error) => {
                unsupported(error)?;
                Ok(None)
            }
        }
    }

    fn select(&mut self, mode: ModeData, descriptor: bool) -> Result<(), CommandError> {
        let mode = ModeData { buffered: true, ..mode };
        let list = mode.encode(ModeForm::Ten, descriptor, true);
        let length = u16::try_from(list.len()).expect("a page or two");
        self.device.send(&Cdb::ModeSelect10 { save: false, length }, &list)
    }

    /// What the drive thinks is left.
    pub(super) fn capacity(&mut self) -> Result<Option<Capacity>, DriveError> {
        Ok(self.device.log_page(CAPACITY_PAGE)?.and_then(|page| Capacity::of(&page)))
    }

    fn is_worm(&mut self) -> Result<bool, DriveError> {
        let cdb = Cdb::Inquiry { page: Some(inquiry::TAPE_CAPABILITIES_PAGE), allocation: 64 };
        match self.device.fetch(&cdb, 64) {
            Ok(bytes) => Ok(inquiry::decode_worm(&bytes).unwrap_or(false)),
            Err(error) => {
                unsupported(error)?;
                Ok(false)
            }
        }
    }

    /// Reads tape file 0 from the beginning, and leaves the head behind its filemark.
    fn read_labels(&mut self, expected: &VolumeLabel) -> Result<VolumeInfo, DriveError> {
        let wrong = |found: String| DriveError::WrongVolume { expected: expected.clone(), found };
        let vol1 = match self.read_block(RECORD_BYTES)? {
            Block::EndOfData => return Err(DriveError::Blank { expected: expected.clone() }),
            Block::Data(length) => self.record.get(..length).and_then(decode_vol1),
            Block::Filemark => None,
        };
        let Some((serial, implementation)) = vol1 else { return Err(wrong("no labelled tape".into())) };
        if implementation != "PENSTOCK" {
            return Err(wrong(format!("{serial} of {implementation}")));
        }
        let mut info = None;
        for block in 1..FIRST_CONTAINER_BLOCK {
            match self.read_block(RECORD_BYTES)? {
                Block::Data(length) if block == 2 => info = self.record.get(..length).and_then(VolumeInfo::decode),
                Block::Data(_) if block == 1 => {}
                Block::Filemark if block == 3 => {}
                _ => return Err(wrong(format!("{serial} with damaged labels"))),
            }
        }
        let info = info.ok_or_else(|| wrong(format!("{serial} with a damaged label")))?;
        if info.label != *expected {
            return Err(wrong(info.label.to_string()));
        }
        Ok(info)
    }

    /// The bar code in the cartridge's memory, if one was ever written, must be the label too.
    fn compare_chip(&mut self, expected: &VolumeLabel) -> Result<(), DriveError> {
        match self.chip_barcode()? {
            Some(found) if found != expected.as_str() => {
                Err(DriveError::WrongVolume { expected: expected.clone(), found: format!("{found} by its memory") })
            }
            _ => Ok(()),
        }
    }

    fn chip_barcode(&mut self) -> Result<Option<String>, DriveError> {
        let cdb = Cdb::ReadAttribute { partition: 0, first: mam::BARCODE, allocation: 1024 };
        let bytes = match self.device.fetch(&cdb, 1024) {
            Ok(bytes) => bytes,
            Err(error) => {
                unsupported(error)?;
                return Ok(None);
            }
        };
        // A hint only: damaged memory never condemns a tape.
        let attributes = mam::decode_attributes(&bytes).unwrap_or_default();
        let barcode = attributes.iter().find(|attribute| attribute.id == mam::BARCODE).map(Attribute::text);
        Ok(barcode.filter(|text| !text.is_empty()))
    }

    /// Writes tape file 0 and the cartridge's memory.
    pub(super) fn write_labels(
        &mut self,
        volume: &NewVolume,
        overwrite: Overwrite,
        epoch: Epoch,
    ) -> Result<(), DriveError> {
        self.held = None;
        self.settle(&volume.label, LABEL_LIMIT)?;
        self.reserve(epoch)?;
        let written = self.write_labels_reserved(volume, overwrite, epoch);
        if let Err(error) = &written
            && error.remedy() != Remedy::FenceLost
        {
            let _ = self.release(epoch);
        }
        written
    }

    fn write_labels_reserved(
        &mut self,
        volume: &NewVolume,
        overwrite: Overwrite,
        epoch: Epoch,
    ) -> Result<(), DriveError> {
        let label = &volume.label;
        if self.plain_mode()? {
            return Err(DriveError::WriteProtected { volume: label.clone() });
        }
        let worm = self.is_worm()?;
        self.rewind()?;
        let found = match self.read_block(RECORD_BYTES)? {
            Block::EndOfData => None,
            Block::Filemark => Some("data of a foreign format".to_owned()),
            Block::Data(length) => Some(match self.record.get(..length).and_then(decode_vol1) {
                Some((serial, implementation)) => format!("the labels of {serial} ({implementation})"),
                None => "data of a foreign format".to_owned(),
            }),
        };
        if let Some(found) = found
            && (worm || overwrite == Overwrite::OnlyBlank)
        {
            return Err(DriveError::NotBlank { volume: label.clone(), found });
        }
        let has_protection = self.protection_page()?.is_some();
        let info = VolumeInfo {
            format: VolumeInfo::FORMAT,
            label: label.clone(),
            identity: random_identity(),
            pool: volume.pool.clone(),
            worm,
            epoch: epoch.0,
            labelled_us: now_us(),
        };
        self.rewind()?;
        for block in [&encode_vol1(label, &volume.owner, has_protection)[..], &readme(label), &info.encode()] {
            self.write_plain(block)?;
        }
        self.write_filemark()?;
        self.confirm(label, FIRST_CONTAINER_BLOCK)?;
        self.write_chip(label);
        Ok(())
    }

    /// Tells the cartridge's memory whose it is; only a hint, so failing is no failure.
    fn write_chip(&mut self, label: &VolumeLabel) {
        let attributes = [
            Attribute::ascii(mam::APPLICATION_VENDOR, "PENSTOCK", 8),
            Attribute::ascii(mam::APPLICATION_NAME, "Penstock", 32),
            Attribute { format: mam::AttributeFormat::Text, ..Attribute::ascii(mam::USER_LABEL, label.as_str(), 160) },
            Attribute::ascii(mam::BARCODE, label.as_str(), 32),
        ];
        let list = mam::encode_attributes(&attributes);
        let length = u32::try_from(list.len()).expect("a few hundred bytes");
        if let Err(error) = self.device.send(&Cdb::WriteAttribute { partition: 0, write_through: true, length }, &list)
        {
            warn!(%error, volume = %label, "cartridge memory not written");
        }
    }

    /// Rewinds or unloads, and releases the reservation whatever happened.
    pub(super) fn give_back(&mut self, session: Option<Session>, unload: Unload) -> Result<(), DriveError> {
        self.held = None;
        self.device.take_attentions()?;
        if session.is_some() && self.device.lost_fence {
            info!("the drive is another mover's by now, nothing is done to it");
            return Ok(());
        }
        if let Ok(alerts) = self.device.alerts() {
            if alerts.0 != 0 {
                warn!(flags = ?alerts.flags().collect::<Vec<_>>(), "tape alerts are up");
            }
            self.keep_alerts(alerts);
        }
        let done = match unload {
            Unload::Yes => self.unload(),
            Unload::No => self.rewind(),
        };
        let Some(session) = session else { return done };
        // Whoever uses the drive next, `dd` perhaps, sees blocks as they are.
        if session.protection
            && let Err(error) = self.unprotect_blocks()
        {
            warn!(%error, "block protection stays on");
        }
        done.and(self.release(session.epoch))
    }

    fn unload(&mut self) -> Result<(), DriveError> {
        let cdb = Cdb::LoadUnload { load: false, hold: false, immediate: false };
        let Err(error) = self.device.command(&cdb) else { return Ok(()) };
        match error.sense().map(|sense| (sense.key, sense.asc)) {
            // Nothing is in the drive: what we wanted.
            Some((SenseKey::NotReady, 0x3a)) => Ok(()),
            // Somebody forgot to allow it, or the drive needs a second try.
            Some((_, 0x53)) => {
                warn!(%error, "unload tried once more");
                self.device.command(&Cdb::PreventRemoval { prevent: false })?;
                self.device.command(&cdb)?;
                Ok(())
            }
            _ => Err(error.into()),
        }
    }
}

/// 16 random bytes in hexadecimal.
pub(super) fn random_identity() -> String {
    let mut bytes = [0; 16];
    // An identity only has to differ from others; the kernel's random numbers cannot run out.
    if let Err(error) = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)) {
        warn!(%error, "no random numbers, the time is the identity");
        bytes[..8].copy_from_slice(&now_us().to_be_bytes());
    }
    hex::encode(bytes)
}

/// Now, in microseconds since the epoch.
pub(super) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
