//! A drive over the virtual library: what is committed is there, what goes wrong is told, and the tape can be read by
//! others.

mod faults;
mod seeded;
mod sessions;
mod speed;
mod tar;

use std::sync::LazyLock;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;
use wire::checksum::Sums;
use wire::id::{BitfileId, MoverId};

use super::*;
use crate::scsi::{Cdb, DataPhase, Sense, SenseKey};
use crate::tape::{Changer, SourceError, Stopped, Written};
use crate::vtl::{CartridgeKind, Failure, Unit, Vtl, VtlSpec};

pub(super) const SERIAL: &str = "PSK0000001";

/// A library whose first cartridge is in its first drive.
pub(super) struct Bench {
    pub(super) folder: TempDir,
    pub(super) vtl: Vtl,
    pub(super) drive: Drive,
}

pub(super) fn label() -> VolumeLabel {
    VolumeLabel::new("PEN001L8").unwrap()
}

pub(super) fn new_volume() -> NewVolume {
    NewVolume { label: label(), pool: "tape".into(), owner: "site".into() }
}

pub(super) fn drive_of(vtl: &Vtl) -> Drive {
    Drive::new(DriveId::new("drive0").unwrap(), Box::new(vtl.drive(0).unwrap()))
}

impl Bench {
    /// With the cartridge loaded, not labelled.
    pub(super) fn blank(kind: CartridgeKind, capacity_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = VtlSpec::new(2, 2, capacity_bytes);
        spec.cartridges[0].kind = kind;
        let vtl = Vtl::create(folder.path(), &spec).unwrap();
        let mut changer = Changer::new(Box::new(vtl.changer()));
        changer.inventory().unwrap();
        changer.load(&label(), SERIAL).unwrap();
        let drive = drive_of(&vtl);
        Self { folder, vtl, drive }
    }

    /// Labelled and attached with epoch 1.
    pub(super) fn with(kind: CartridgeKind, capacity_bytes: u64) -> Self {
        let mut bench = Self::blank(kind, capacity_bytes);
        bench.drive.label(&new_volume(), Overwrite::OnlyBlank, Epoch(1)).unwrap();
        bench
    }

    pub(super) fn new() -> Self {
        Self::with(CartridgeKind::Data, 1 << 30)
    }

    pub(super) fn append(&mut self, sequence: u32, files: &[File]) -> Result<AppendReport, DriveError> {
        self.append_from(sequence, &mut Files::new(files))
    }

    pub(super) fn append_from(
        &mut self,
        sequence: u32,
        source: &mut dyn MemberSource,
    ) -> Result<AppendReport, DriveError> {
        self.drive.append(&header(sequence), source)
    }

    /// Everything the process knew is gone, and what the drive had not flushed; attached again with the next epoch.
    pub(super) fn killed(self, epoch: u64) -> Self {
        let Self { folder, vtl, drive } = self;
        drop((drive, vtl));
        let vtl = Vtl::open(folder.path()).unwrap();
        let mut drive = drive_of(&vtl);
        drive.attach(&label(), Epoch(epoch)).unwrap();
        Self { folder, vtl, drive }
    }

    /// Reads members and returns each one's bytes or what became of it.
    pub(super) fn read(&mut self, wanted: &[Wanted]) -> (Vec<Vec<u8>>, ReadReport) {
        let mut data = vec![Vec::new(); wanted.len()];
        let report = self.drive.read(wanted, &mut |index, bytes| {
            data[index].extend_from_slice(bytes);
            Ok(())
        });
        (data, report)
    }

    /// Checks that everything written is there.
    pub(super) fn check(&mut self, files: &[File], written: &[Written]) {
        assert_eq!(files.len(), written.len());
        let wanted: Vec<_> = written.iter().map(want).collect();
        let (data, report) = self.read(&wanted);
        assert!(report.stopped.is_none(), "{:?}", report.stopped);
        for ((file, data), result) in files.iter().zip(&data).zip(&report.members) {
            assert!(result.is_ok(), "{result:?}");
            assert!(file.data == *data, "bitfile {} differs", file.member.bitfile);
        }
    }
}

pub(super) fn header(sequence: u32) -> ContainerHeader {
    ContainerHeader { sequence, writer: MoverId::new("mover1").unwrap() }
}

pub(super) fn want(written: &Written) -> Wanted {
    Wanted { bitfile: written.bitfile, extent: written.extent.clone(), crc32c: Some(written.sums.crc32c), range: None }
}

/// A member and its data.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) member: Member,
    pub(super) data: Vec<u8>,
}

impl File {
    pub(super) fn new(bitfile: u64, path: &str, data: Vec<u8>) -> Self {
        Self { member: Member::new(BitfileId(bitfile), path, data.len() as u64, Sums::of(&data)), data }
    }
}

/// Random bytes, made once: making them takes longer than writing them.
static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut noise = vec![0; 1_100_000];
    StdRng::seed_from_u64(0).fill(&mut noise[..]);
    noise
});

/// Files of random length: mostly small, some of several records, some empty, some ending where records end.
pub(super) fn random_files(random: &mut StdRng, first: u64, count: usize) -> Vec<File> {
    (first..)
        .take(count)
        .map(|number| {
            let length = match random.random_range(0..10) {
                0 => 0,
                1..=5 => random.random_range(1..5000),
                6 | 7 => random.random_range(1..200_000),
                8 => RECORD_BYTES * random.random_range(1..3) - random.random_range(0..3) * 512,
                _ => random.random_range(200_000..900_000),
            };
            let from = random.random_range(0..100_000);
            let data = NOISE[from..from + length].to_vec();
            let path = "d/".repeat(random.random_range(0..60)) + &format!("file {number} é");
            File::new(number, &path, data)
        })
        .collect()
}

/// A source over files in memory, which may fail somewhere.
pub(super) struct Files<'a> {
    files: &'a [File],
    next: usize,
    read: usize,
    /// Fails when that many bytes of that file were read.
    pub(super) fails_at: Option<(usize, usize)>,
}

impl<'a> Files<'a> {
    pub(super) fn new(files: &'a [File]) -> Self {
        Self { files, next: 0, read: 0, fails_at: None }
    }
}

impl MemberSource for Files<'_> {
    fn next_member(&mut self) -> Result<Option<Member>, SourceError> {
        self.read = 0;
        self.next += 1;
        Ok(self.files.get(self.next - 1).map(|file| file.member.clone()))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        if self.fails_at.is_some_and(|(file, at)| file + 1 == self.next && self.read >= at) {
            return Err(SourceError("the disk is gone".into()));
        }
        let data = &self.files[self.next - 1].data[self.read..];
        // Uneven pieces, as a pipeline gives them.
        let part = data.len().min(buf.len()).min(70_001);
        buf[..part].copy_from_slice(&data[..part]);
        self.read += part;
        Ok(part)
    }
}

pub(super) fn random(seed: u64) -> StdRng {
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}
