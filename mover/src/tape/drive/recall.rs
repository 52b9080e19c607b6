//! Reading members back: locate, check whose data it is, deliver, check the sum.

use tracing::{debug, warn};
use wire::checksum::Algorithm;
use wire::extent::{ByteRange, Place};

use super::Drive;
use crate::scsi::Remedy;
use crate::tape::error::DriveError;
use crate::tape::format::{RECORD_BYTES, find_member};
use crate::tape::member::{ReadReport, Sink, SinkError, Wanted};

/// How often one member survives a drive that must be set up again.
const REATTACHES: u32 = 2;

impl Drive {
    /// Reads members; see [`Drive::read`].
    pub(super) fn recall(&mut self, wanted: &[Wanted], sink: &mut Sink<'_>) -> ReadReport {
        let mut report = ReadReport::default();
        for (index, member) in wanted.iter().enumerate() {
            match self.recall_one(index, member, sink) {
                Ok(()) => report.members.push(Ok(())),
                Err(error) if stops(&error) => {
                    report.stopped = Some(error);
                    break;
                }
                Err(error) => {
                    warn!(%error, bitfile = %member.bitfile, "member not read");
                    report.members.push(Err(error));
                }
            }
        }
        report
    }

    /// Reads one member. A drive that was reset is set up again, and reading goes on where it was.
    fn recall_one(&mut self, index: usize, wanted: &Wanted, sink: &mut Sink<'_>) -> Result<(), DriveError> {
        let mut progress = Progress::default();
        let mut reattached = 0;
        loop {
            let error = match self.ensure_ready().and_then(|()| self.deliver(index, wanted, &mut progress, sink)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            self.note(&error);
            if error.remedy() != Remedy::Reattach || reattached == REATTACHES {
                return Err(error);
            }
            reattached += 1;
        }
    }

    fn deliver(
        &mut self,
        index: usize,
        wanted: &Wanted,
        progress: &mut Progress,
        sink: &mut Sink<'_>,
    ) -> Result<(), DriveError> {
        let Place::Tape { block, skip_bytes, .. } = wanted.extent.place else {
            return Err(self.format_error(0, "the extent is not on tape"));
        };
        let skip = skip_bytes as usize;
        let expected = match progress.expected {
            Some(expected) => expected,
            None => *progress.expected.insert(self.check_member(wanted, block, skip)?),
        };
        let length = wanted.extent.length_bytes;
        let all = ByteRange::new(0, length).ok();
        let range = wanted.range.or(all).filter(|range| range.end() <= length);
        let Some(range) = range else { return Err(self.format_error(block, "more is wanted than the member has")) };
        let end = range.end();
        while range.offset() + progress.delivered < end {
            let at = skip as u64 + range.offset() + progress.delivered;
            let record = block + at / RECORD_BYTES as u64;
            let from = (at % RECORD_BYTES as u64) as usize;
            self.hold(record)?;
            let left = end - range.offset() - progress.delivered;
            let to = RECORD_BYTES.min(from.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
            let part = &self.record[from..to];
            sink(index, part)?;
            progress.crc32c.update(part);
            progress.delivered += part.len() as u64;
        }
        let whole = range.length() == length;
        if whole && progress.crc32c.finalize() != u64::from(expected) {
            return Err(DriveError::Checksum { bitfile: wanted.bitfile, algorithm: Algorithm::Crc32c });
        }
        debug!(bitfile = %wanted.bitfile, bytes = range.length(), block, "member read");
        Ok(())
    }

    /// Checks that the headers before the data are those of the member that is wanted; returns their sum.
    fn check_member(&mut self, wanted: &Wanted, block: u64, skip: usize) -> Result<u32, DriveError> {
        self.hold(block)?;
        let found = find_member(&self.record[..RECORD_BYTES], skip)
            .map_err(|_| self.format_error(block, "no member's data begins here"))?;
        if found.bitfile != wanted.bitfile {
            let volume = wanted.extent.volume.clone();
            let (expected, found) = (wanted.bitfile, found.bitfile);
            return Err(DriveError::WrongMember { volume, block, expected, found });
        }
        if found.length_bytes != wanted.extent.length_bytes {
            return Err(self.format_error(block, "the member has another length than the catalogue says"));
        }
        if wanted.crc32c.is_some_and(|crc32c| crc32c != found.sums.crc32c) {
            return Err(DriveError::Checksum { bitfile: wanted.bitfile, algorithm: Algorithm::Crc32c });
        }
        Ok(found.sums.crc32c)
    }
}

/// How far a member was delivered: kept while the drive is set up again.
struct Progress {
    /// The sum in the member's headers, once they were checked.
    expected: Option<u32>,
    delivered: u64,
    crc32c: crc_fast::Digest,
}

impl Default for Progress {
    fn default() -> Self {
        Self { expected: None, delivered: 0, crc32c: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi) }
    }
}

/// Whether the other members cannot be read either.
fn stops(error: &DriveError) -> bool {
    match error {
        DriveError::Sink(SinkError::Stop(_)) => true,
        // Retries are used up inside; what is left belongs to the member.
        error => !matches!(
            error.remedy().when_retries_fail(),
            Remedy::AbandonObject | Remedy::EndOfData | Remedy::CloseVolume
        ),
    }
}
