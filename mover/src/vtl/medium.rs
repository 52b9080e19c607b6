//! One cartridge at rest: blocks and filemarks in two files of a folder.
//!
//! Owns the files while the cartridge is in a drive. `data` holds the blocks one behind the other; `index` holds one
//! record for each object (block or filemark), in order. Objects live in memory until [`Medium::flush`] makes them
//! durable: first the data, then their index records.
//!
//! Invariant: an object in the index is whole in the data. So after `kill -9` or a power cut everything up to the
//! last flush is there, and nothing torn is taken as data: a record that fails its check ends the index, and a block
//! that fails its CRC is a read error. Overwriting shortens the index, durably, before the data is touched.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::persist;

/// First bytes of an index.
const MAGIC: &[u8; 16] = b"PENSTOCK-VTL-01\n";
/// Bytes of an index record: offset, length, CRC of the block, check of the record.
const RECORD_BYTES: usize = 20;
/// The length that marks a filemark.
const MARK: u32 = u32::MAX;

/// What a cartridge is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CartridgeKind {
    /// Written and written again.
    Data,
    /// Written once: every write is at the end of data.
    Worm,
    /// Cleans the drive it is loaded into.
    Cleaning,
}

/// An attribute a host wrote into the cartridge's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostAttribute {
    pub(super) id: u16,
    pub(super) format: u8,
    pub(super) value: Vec<u8>,
}

/// What the cartridge's memory chip holds; kept in `chip.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Chip {
    pub(super) kind: CartridgeKind,
    pub(super) capacity_bytes: u64,
    pub(super) write_protected: bool,
    pub(super) loads: u64,
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
    /// Cleanings left, of a cleaning cartridge.
    pub(super) cleanings: u32,
    pub(super) attributes: Vec<HostAttribute>,
}

/// A block or a filemark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Object {
    Block { offset: u64, length: u32, crc: u32 },
    Mark,
}

/// As kept in memory: 16 bytes each, because a terabyte has four million of them.
#[derive(Clone, Copy)]
struct Packed {
    offset: u64,
    length: u32,
    crc: u32,
}

/// An open cartridge.
pub(super) struct Medium {
    pub(super) barcode: String,
    pub(super) chip: Chip,
    folder: PathBuf,
    data: File,
    index: File,
    objects: Vec<Packed>,
    marks: Vec<u64>,
    synced: usize,
}

impl Medium {
    /// Makes a blank cartridge's folder.
    pub(super) fn create(folder: &Path, chip: &Chip) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        File::create(folder.join("data"))?.sync_all()?;
        fs::write(folder.join("index"), MAGIC)?;
        File::open(folder.join("index"))?.sync_all()?;
        persist::replace(&folder.join("chip.json"), chip)
    }

    /// Opens a cartridge and reads its index.
    pub(super) fn open(folder: &Path, barcode: &str) -> io::Result<Self> {
        let open = |name| OpenOptions::new().read(true).write(true).open(folder.join(name));
        let chip = persist::load(&folder.join("chip.json"))?;
        let data = open("data")?;
        let bytes = fs::read(folder.join("index"))?;
        let index = open("index")?;
        let Some(records) = bytes.strip_prefix(MAGIC.as_slice()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} is no cartridge index", folder.display()),
            ));
        };
        let mut medium = Self {
            barcode: barcode.to_owned(),
            chip,
            folder: folder.to_owned(),
            data,
            index,
            objects: Vec::with_capacity(records.len() / RECORD_BYTES),
            marks: Vec::new(),
            synced: 0,
        };
        for record in records.chunks_exact(RECORD_BYTES) {
            let Some(object) = decode_record(medium.objects.len() as u64, record) else { break };
            medium.push(object);
        }
        medium.synced = medium.objects.len();
        let whole = MAGIC.len() + medium.synced * RECORD_BYTES;
        if whole != bytes.len() {
            // A record torn by a crash: it was never confirmed.
            medium.index.set_len(whole as u64)?;
            medium.index.sync_data()?;
        }
        Ok(medium)
    }

    fn push(&mut self, object: Packed) {
        if object.length == MARK {
            self.marks.push(self.objects.len() as u64);
        }
        self.objects.push(object);
    }

    /// The address behind the last object: the end of data.
    pub(super) fn end(&self) -> u64 {
        self.objects.len() as u64
    }

    /// How many objects are durable.
    pub(super) const fn synced(&self) -> u64 {
        self.synced as u64
    }

    /// Whether something is in memory only.
    pub(super) const fn is_dirty(&self) -> bool {
        self.synced < self.objects.len()
    }

    /// Bytes of data that are in memory only.
    pub(super) fn dirty_bytes(&self) -> u64 {
        let durable = self.synced.checked_sub(1).map_or(0, |last| self.objects[last].end());
        self.used_bytes() - durable
    }

    /// Bytes of data before the end of data.
    pub(super) fn used_bytes(&self) -> u64 {
        self.objects.last().map_or(0, |last| last.end())
    }

    /// Bytes of data before an address.
    pub(super) fn bytes_before(&self, address: u64) -> u64 {
        let before = usize::try_from(address).unwrap_or(usize::MAX).min(self.objects.len());
        before.checked_sub(1).map_or(0, |last| self.objects[last].end())
    }

    /// The object at an address.
    pub(super) fn object(&self, address: u64) -> Option<Object> {
        let packed = self.objects.get(usize::try_from(address).ok()?)?;
        Some(match packed.length {
            MARK => Object::Mark,
            length => Object::Block { offset: packed.offset, length, crc: packed.crc },
        })
    }

    /// Addresses of the filemarks, ascending.
    pub(super) fn marks(&self) -> &[u64] {
        &self.marks
    }

    /// How many filemarks lie before an address.
    pub(super) fn marks_before(&self, address: u64) -> usize {
        self.marks.partition_point(|&mark| mark < address)
    }

    /// Reads the first bytes of a block into `buffer`.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.data.read_exact_at(buffer, offset)
    }

    /// Makes `address` the end of data, durably: everything from there on is gone.
    pub(super) fn truncate(&mut self, address: u64) -> io::Result<()> {
        let keep = usize::try_from(address).unwrap_or(usize::MAX);
        if keep >= self.objects.len() {
            return Ok(());
        }
        self.forget_from(keep);
        if keep < self.synced {
            self.index.set_len((MAGIC.len() + keep * RECORD_BYTES) as u64)?;
            self.index.sync_data()?;
            self.synced = keep;
        }
        Ok(())
    }

    /// Loses what is in memory only, as a power cut does.
    pub(super) fn lose_unsynced(&mut self) {
        self.forget_from(self.synced);
    }

    fn forget_from(&mut self, keep: usize) {
        self.objects.truncate(keep);
        self.marks.truncate(self.marks.partition_point(|&mark| mark < keep as u64));
    }

    /// Appends a block behind the end of data. `crc` is its CRC-32C.
    pub(super) fn append_block(&mut self, block: &[u8], crc: u32) -> io::Result<()> {
        let offset = self.used_bytes();
        self.data.write_all_at(block, offset)?;
        let length = u32::try_from(block.len()).expect("blocks are below 16 MiB");
        self.push(Packed { offset, length, crc });
        Ok(())
    }

    /// Appends a filemark.
    pub(super) fn append_mark(&mut self) {
        let offset = self.used_bytes();
        self.push(Packed { offset, length: MARK, crc: 0 });
    }

    /// Makes everything durable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.is_dirty() {
            return Ok(());
        }
        if self.objects[self.synced..].iter().any(|object| object.length != MARK) {
            self.data.sync_data()?;
        }
        let mut records = Vec::with_capacity((self.objects.len() - self.synced) * RECORD_BYTES);
        for (address, object) in (self.synced as u64..).zip(&self.objects[self.synced..]) {
            records.extend_from_slice(&encode_record(address, *object));
        }
        self.index.write_all_at(&records, (MAGIC.len() + self.synced * RECORD_BYTES) as u64)?;
        self.index.sync_data()?;
        self.synced = self.objects.len();
        Ok(())
    }

    /// Keeps the chip's contents.
    pub(super) fn save_chip(&self) -> io::Result<()> {
        persist::replace(&self.folder.join("chip.json"), &self.chip)
    }
}

impl Packed {
    const fn end(&self) -> u64 {
        if self.length == MARK { self.offset } else { self.offset + self.length as u64 }
    }
}

/// The check covers the address, so that a record can never be taken for another object's.
fn encode_record(address: u64, object: Packed) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&object.offset.to_le_bytes());
    record[8..12].copy_from_slice(&object.length.to_le_bytes());
    record[12..16].copy_from_slice(&object.crc.to_le_bytes());
    let check = record_check(address, &record[..16]);
    record[16..].copy_from_slice(&check.to_le_bytes());
    record
}

fn decode_record(address: u64, record: &[u8]) -> Option<Packed> {
    let number = |at: usize| record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    if number(16)? != record_check(address, &record[..16]) {
        return None;
    }
    let offset = u64::from(number(4)?) << 32 | u64::from(number(0)?);
    Some(Packed { offset, length: number(8)?, crc: number(12)? })
}

fn record_check(address: u64, fields: &[u8]) -> u32 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..].copy_from_slice(fields);
    crc_fast::crc32_iscsi(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank(folder: &Path) -> Medium {
        let chip = Chip {
            kind: CartridgeKind::Data,
            capacity_bytes: 1 << 20,
            write_protected: false,
            loads: 0,
            written_bytes: 0,
            read_bytes: 0,
            cleanings: 0,
            attributes: Vec::new(),
        };
        Medium::create(folder, &chip).unwrap();
        Medium::open(folder, "PEN001L8").unwrap()
    }

    fn append(medium: &mut Medium, block: &[u8]) {
        medium.append_block(block, crc_fast::crc32_iscsi(block)).unwrap();
    }

    fn contents(medium: &Medium) -> Vec<Option<Vec<u8>>> {
        (0..medium.end())
            .map(|address| match medium.object(address).unwrap() {
                Object::Mark => None,
                Object::Block { offset, length, crc } => {
                    let mut block = vec![0; length as usize];
                    medium.read(offset, &mut block).unwrap();
                    assert_eq!(crc_fast::crc32_iscsi(&block), crc);
                    Some(block)
                }
            })
            .collect()
    }

    #[test]
    fn what_was_flushed_is_there_after_a_crash_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut medium = blank(folder.path());
        append(&mut medium, b"one");
        medium.append_mark();
        medium.flush().unwrap();
        append(&mut medium, b"never confirmed");
        drop(medium);
        let mut medium = Medium::open(folder.path(), "PEN001L8").unwrap();
        assert_eq!(contents(&medium), [Some(b"one".to_vec()), None]);
        append(&mut medium, b"two");
        medium.flush().unwrap();
        assert_eq!(contents(&Medium::open(folder.path(), "").unwrap()).len(), 3);
    }

    #[test]
    fn an_index_cut_at_any_byte_is_a_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let mut medium = blank(folder.path());
        for block in [b"a".as_slice(), b"bb", b"ccc"] {
            append(&mut medium, block);
            medium.append_mark();
        }
        medium.flush().unwrap();
        let whole = contents(&medium);
        drop(medium);
        let index = fs::read(folder.path().join("index")).unwrap();
        for cut in (MAGIC.len()..index.len()).rev() {
            fs::write(folder.path().join("index"), &index[..cut]).unwrap();
            let kept = contents(&Medium::open(folder.path(), "").unwrap());
            assert_eq!(kept, whole[..(cut - MAGIC.len()) / RECORD_BYTES]);
        }
        fs::write(folder.path().join("index"), &index[..5]).unwrap();
        assert!(Medium::open(folder.path(), "").is_err());
    }

    #[test]
    fn overwriting_ends_the_data_there_even_after_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let mut medium = blank(folder.path());
        for block in [b"old one".as_slice(), b"old two", b"old three"] {
            append(&mut medium, block);
        }
        medium.flush().unwrap();
        medium.truncate(1).unwrap();
        append(&mut medium, b"new");
        drop(medium);
        let medium = Medium::open(folder.path(), "").unwrap();
        assert_eq!(contents(&medium), [Some(b"old one".to_vec())]);
    }
}
