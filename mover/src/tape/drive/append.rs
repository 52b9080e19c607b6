//! Writing a container: header, members, trailer, filemark, and the proof that all of it is on the medium.
//!
//! Data goes from its source straight into the record that is sent to the drive. Nothing of a container counts before
//! [`Writer::close`] returns.

use tracing::{debug, info};
use wire::checksum::Algorithm;
use wire::extent::{Extent, Place};
use wire::id::VolumeLabel;

use super::setup::{now_us, random_identity};
use super::tail::Tail;
use super::{Drive, Session};
use crate::tape::error::DriveError;
use crate::tape::format::{
    BLOCK_BYTES, CONTAINER_NAME, ContainerInfo, END_BYTES, FULL_LIST_BYTES, Footer, IndexEntry, MAX_MEMBERS,
    MemberError, PAD_NAME, PartKind, RECORD_BYTES, TRAILER_NAME, TrailerPlace, encode_member, encode_trailer,
    line_bytes, own_header, pad_list, padding_bytes,
};
use crate::tape::member::{AppendReport, ContainerHeader, Member, MemberSource, SourceError, Stopped, Written};

/// Room that an index needs, and the ends of records; the trailer's is counted.
const RESERVE_BYTES: u64 = 4 * RECORD_BYTES as u64;

impl Drive {
    /// Writes and commits one container; see [`Drive::append`].
    pub(super) fn append_container(
        &mut self,
        header: &ContainerHeader,
        source: &mut dyn MemberSource,
    ) -> Result<AppendReport, DriveError> {
        let tail = self.tail()?.clone();
        let Session { volume, epoch, .. } = self.session()?;
        let (volume, epoch) = (volume.clone(), *epoch);
        if tail.last_sequence().checked_add(1) != Some(header.sequence) {
            let found = tail.append_point();
            return Err(DriveError::StaleAppendPoint { volume, expected: header.sequence, found });
        }
        let room = self.capacity()?.map(|capacity| capacity.remaining_bytes);
        let start = self.begin_tape_file(&tail)?;
        // Until the container is committed, what lies at the end of the tape is not known.
        self.session()?.tail = None;
        let info = ContainerInfo {
            identity: random_identity(),
            volume: volume.clone(),
            container: header.sequence,
            start_block: start,
            previous_end: tail.next_block,
            writer: header.writer.to_string(),
            epoch: epoch.0,
            written_us: now_us(),
        };
        let mut writer = Writer::new(self, start);
        writer.put_own(CONTAINER_NAME, &serde_json::to_vec_pretty(&info).expect("plain fields"))?;
        let (members, stopped) = writer.put_members(header.sequence, room, source)?;
        if members.is_empty() {
            let nothing = stopped == Stopped::SourceEnded;
            return Err(if nothing { DriveError::NothingToWrite } else { DriveError::EndOfMedium { volume } });
        }
        let end = Footer {
            kind: PartKind::Container,
            volume,
            container: header.sequence,
            identity: info.identity,
            start_block: start,
            previous_end: tail.next_block,
            entries: members.len() as u64,
            // Known once the trailer is written.
            list: TrailerPlace { block: start, skip_bytes: 0, length_bytes: 0, crc32c: 0 },
        };
        let (trailer, next_block) = writer.close(TRAILER_NAME, encode_trailer(&members), end)?;
        self.committed(tail, header.sequence, start, next_block, members.len(), trailer)?;
        let members = members
            .into_iter()
            .map(|(member, extent)| Written { bitfile: member.bitfile, extent, sums: member.sums })
            .collect();
        Ok(AppendReport { container: header.sequence, start_block: start, next_block, members, stopped })
    }

    fn committed(
        &mut self,
        mut tail: Tail,
        container: u32,
        start_block: u64,
        next_block: u64,
        members: usize,
        trailer: TrailerPlace,
    ) -> Result<(), DriveError> {
        tail.entries.push(IndexEntry { container, start_block, next_block, members: members as u64, trailer });
        tail.next_block = next_block;
        tail.end_of_data = next_block;
        tail.torn_is_closed = false;
        self.activity.containers += 1;
        let session = self.session()?;
        session.tail = Some(tail);
        session.unindexed = true;
        info!(volume = %session.volume, container, members, start_block, next_block, "container committed");
        Ok(())
    }
}

/// Writes one tape file from its first record on.
pub(super) struct Writer<'a> {
    drive: &'a mut Drive,
    start: u64,
    /// Whole records sent.
    records: u64,
    /// Bytes of the record at hand.
    fill: usize,
    /// The drive warned that the end is near.
    warned: bool,
}

impl<'a> Writer<'a> {
    /// The head is at `start`.
    pub(super) fn new(drive: &'a mut Drive, start: u64) -> Self {
        drive.held = None;
        Self { drive, start, records: 0, fill: 0, warned: false }
    }

    pub(super) fn volume(&mut self) -> Result<VolumeLabel, DriveError> {
        Ok(self.drive.session()?.volume.clone())
    }

    /// Where the next byte will lie. At the end of a record it is still that record.
    fn place(&self) -> (u64, u32) {
        (self.start + self.records, u32::try_from(self.fill).expect("a record is below 4 GiB"))
    }

    fn written_bytes(&self) -> u64 {
        self.records * RECORD_BYTES as u64 + self.fill as u64
    }

    /// Sends the record if it is full.
    fn flush_if_full(&mut self) -> Result<(), DriveError> {
        if self.fill == RECORD_BYTES {
            self.warned |= self.drive.write_record()?;
            self.records += 1;
            self.fill = 0;
        }
        Ok(())
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), DriveError> {
        while !bytes.is_empty() {
            self.flush_if_full()?;
            let part = bytes.len().min(RECORD_BYTES - self.fill);
            self.drive.record[self.fill..self.fill + part].copy_from_slice(&bytes[..part]);
            self.fill += part;
            bytes = &bytes[part..];
        }
        Ok(())
    }

    fn put_zeros(&mut self, mut count: usize) -> Result<(), DriveError> {
        while count > 0 {
            self.flush_if_full()?;
            let part = count.min(RECORD_BYTES - self.fill);
            self.drive.record[self.fill..self.fill + part].fill(0);
            self.fill += part;
            count -= part;
        }
        Ok(())
    }

    /// Writes a small member of our own.
    fn put_own(&mut self, name: &str, contents: &[u8]) -> Result<(), DriveError> {
        self.put(&own_header(name, contents.len() as u64))?;
        self.put(contents)?;
        self.put_zeros(padding_bytes(contents.len() as u64))
    }

    /// Fills the rest of the record if `headers` and one block more would not fit in it.
    fn make_headers_fit(&mut self, headers: usize) -> Result<(), DriveError> {
        self.flush_if_full()?;
        let left = RECORD_BYTES - self.fill;
        if headers + BLOCK_BYTES > left {
            let zeros = left - BLOCK_BYTES;
            self.put(&own_header(PAD_NAME, zeros as u64))?;
            self.put_zeros(zeros)?;
            self.flush_if_full()?;
        }
        Ok(())
    }

    /// Writes members until there are no more, or no room for the next.
    fn put_members(
        &mut self,
        container: u32,
        room: Option<u64>,
        source: &mut dyn MemberSource,
    ) -> Result<(Vec<(Member, Extent)>, Stopped), DriveError> {
        let volume = self.volume()?;
        let (mut members, mut list_bytes) = (Vec::new(), 0);
        loop {
            if self.warned {
                return Ok((members, Stopped::EarlyWarning));
            }
            if members.len() == MAX_MEMBERS || list_bytes >= FULL_LIST_BYTES {
                return Ok((members, Stopped::ContainerFull));
            }
            let Some(member) = source.next_member()? else { return Ok((members, Stopped::SourceEnded)) };
            list_bytes += line_bytes(&member);
            let reserve = RESERVE_BYTES + list_bytes as u64;
            let needed = self.written_bytes().saturating_add(member.length_bytes).saturating_add(reserve);
            if room.is_some_and(|room| needed > room) {
                return Ok((members, Stopped::NoRoom));
            }
            let (block, skip_bytes) = self.put_member(&member, source)?;
            let place = Place::Tape { container, block, skip_bytes };
            let extent = Extent { volume: volume.clone(), place, length_bytes: member.length_bytes };
            members.push((member, extent));
        }
    }

    /// Writes one member; returns where its data begins.
    fn put_member(&mut self, member: &Member, source: &mut dyn MemberSource) -> Result<(u64, u32), DriveError> {
        let bitfile = member.bitfile;
        let headers = encode_member(member).map_err(|error| DriveError::BadMember {
            bitfile,
            reason: match error {
                MemberError::BadOwner => "its owner's or group's name is too long or holds a NUL",
                _ => "its path is empty, longer than 4096 bytes or holds a NUL",
            },
        })?;
        self.make_headers_fit(headers.len())?;
        self.put(&headers)?;
        let place = self.place();
        // The sum that every member has and that costs least; with it right, the others are.
        let mut crc32c = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let mut left = member.length_bytes;
        while left > 0 {
            self.flush_if_full()?;
            let end = RECORD_BYTES.min(self.fill.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
            let part = &mut self.drive.record[self.fill..end];
            let got = source.read(part)?;
            if got == 0 || got > part.len() {
                return Err(SourceError("the source ended before the member did".into()).into());
            }
            crc32c.update(&part[..got]);
            self.fill += got;
            left -= got as u64;
        }
        if crc32c.finalize() != u64::from(member.sums.crc32c) {
            return Err(DriveError::Checksum { bitfile, algorithm: Algorithm::Crc32c });
        }
        self.put_zeros(padding_bytes(member.length_bytes))?;
        debug!(%bitfile, bytes = member.length_bytes, block = place.0, "member written");
        Ok(place)
    }

    /// Writes the list, the footer and the end of the archive, closes the tape file, and proves that it is on the
    /// medium. Returns where the list lies and where the next tape file begins.
    pub(super) fn close(
        mut self,
        name: &str,
        mut list: Vec<u8>,
        footer: Footer,
    ) -> Result<(TrailerPlace, u64), DriveError> {
        self.flush_if_full()?;
        // The footer and the end of the archive lie in one record, the last: spaces push them there.
        let footer_at = (self.fill + BLOCK_BYTES + list.len()) % RECORD_BYTES;
        if footer_at + BLOCK_BYTES + END_BYTES > RECORD_BYTES {
            let length = list.len() + RECORD_BYTES - footer_at;
            pad_list(&mut list, length);
        }
        self.put(&own_header(name, (list.len() + BLOCK_BYTES) as u64))?;
        self.flush_if_full()?;
        let (block, skip_bytes) = self.place();
        let place =
            TrailerPlace { block, skip_bytes, length_bytes: list.len() as u64, crc32c: crc_fast::crc32_iscsi(&list) };
        self.put(&list)?;
        self.put(&Footer { list: place, ..footer }.encode())?;
        self.put_zeros(RECORD_BYTES - self.fill)?;
        self.flush_if_full()?;
        let next_block = self.start + self.records + 1;
        self.drive.write_filemark()?;
        let volume = self.volume()?;
        self.drive.confirm(&volume, next_block)?;
        Ok((place, next_block))
    }
}
