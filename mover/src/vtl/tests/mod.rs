//! The virtual library as an initiator sees it: the sense of every common case, checked against what Linux's `st`
//! driver, `scsi_debug` and real drives do.

mod changer;
mod positioning;
mod transfer;

use tempfile::TempDir;

use super::*;
use crate::scsi::{ReserveOut, ReserveType, U24};

pub(super) const SLOT: u16 = 0x400;
pub(super) const DRIVE: u16 = 0x100;

/// A library with a cartridge loaded in its first drive.
pub(super) struct Bench {
    pub(super) folder: TempDir,
    pub(super) vtl: Vtl,
    pub(super) drive: Nexus,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(CartridgeKind::Data, 64 << 20)
    }

    pub(super) fn with(kind: CartridgeKind, capacity_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = VtlSpec::new(2, 3, capacity_bytes);
        spec.cartridges[0].kind = kind;
        let vtl = Vtl::create(folder.path(), &spec).unwrap();
        let mut changer = vtl.changer();
        settle(&mut changer);
        let moved = changer.execute(&Cdb::MoveMedium { robot: 0, source: SLOT, destination: DRIVE }, DataPhase::None);
        assert_eq!(moved.unwrap(), Completion::GOOD);
        let mut drive = vtl.drive(0).unwrap();
        settle(&mut drive);
        Self { folder, vtl, drive }
    }

    pub(super) fn run(&mut self, cdb: Cdb) -> Completion {
        self.drive.execute(&cdb, DataPhase::None).unwrap()
    }

    pub(super) fn good(&mut self, cdb: Cdb) {
        assert_eq!(self.run(cdb), Completion::GOOD, "{}", cdb.name());
    }

    pub(super) fn write(&mut self, block: &[u8]) -> Completion {
        let length = U24::new(block.len() as u32).unwrap();
        self.drive.execute(&Cdb::Write6 { fixed: false, length }, DataPhase::Out(block)).unwrap()
    }

    pub(super) fn read(&mut self, length: usize) -> (Completion, Vec<u8>) {
        let mut buffer = vec![0xee; length];
        let length = U24::new(length as u32).unwrap();
        let cdb = Cdb::Read6 { fixed: false, suppress_wrong_length: false, length };
        let completion = self.drive.execute(&cdb, DataPhase::In(&mut buffer)).unwrap();
        (completion, buffer)
    }

    pub(super) fn filemarks(&mut self, count: u32, immediate: bool) -> Completion {
        self.run(Cdb::WriteFilemarks6 { immediate, count: U24::new(count).unwrap() })
    }

    /// `blocks` is how many blocks each file has; a filemark follows each file. Block n begins with the byte n.
    pub(super) fn write_files(&mut self, blocks: &[u8]) {
        let mut number = 0;
        for &count in blocks {
            for _ in 0..count {
                assert_eq!(self.write(&[number; 1000]), Completion::GOOD);
                number += 1;
            }
            assert_eq!(self.filemarks(1, true), Completion::GOOD);
        }
        assert_eq!(self.filemarks(0, false), Completion::GOOD);
    }

    /// The drive, opened again as after `kill -9`.
    pub(super) fn killed(self) -> Self {
        let Self { folder, vtl, drive } = self;
        drop((drive, vtl));
        let vtl = Vtl::open(folder.path()).unwrap();
        let mut drive = vtl.drive(0).unwrap();
        settle(&mut drive);
        Self { folder, vtl, drive }
    }
}

/// Takes the unit attentions of a new nexus.
pub(super) fn settle(nexus: &mut Nexus) {
    while nexus
        .execute(&Cdb::TestUnitReady, DataPhase::None)
        .unwrap()
        .sense
        .is_some_and(|sense| sense.key == SenseKey::UnitAttention)
    {}
}

pub(super) fn code(completion: &Completion) -> (u8, u8, u8) {
    completion.sense.expect("a sense").code()
}

pub(super) fn reserve_out(nexus: &mut Nexus, action: ReserveOut, key: u64, action_key: u64) -> Status {
    let list = crate::scsi::reservation::ReserveList { key, action_key }.encode();
    let cdb = Cdb::PersistentReserveOut { action, kind: ReserveType::ExclusiveAccess, length: 24 };
    nexus.execute(&cdb, DataPhase::Out(&list)).unwrap().status
}

pub(super) use crate::scsi::Status;
