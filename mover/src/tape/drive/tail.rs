//! The end of a tape: where the committed data ends, what the containers are, and the index that says so.
//!
//! Found from the tape alone, backwards: the last record of every committed tape file holds a footer that leads to the
//! one before. An index shortens the way.
//!
//! Invariant: only a record that was *read* and holds no footer makes a tape file torn. A record that cannot be read
//! is an error, never the end.

use tracing::warn;
use wire::extent::{Extent, Place};

use super::append::Writer;
use super::records::Block;
use super::{Drive, Scan, ScannedContainer, ScannedOne};
use crate::scsi::Remedy;
use crate::tape::error::DriveError;
use crate::tape::format::{
    BLOCK_BYTES, FIRST_CONTAINER_BLOCK, Footer, INDEX_NAME, IndexEntry, MAX_LIST_BYTES, MAX_MEMBERS, Part, PartKind,
    RECORD_BYTES, TRAILER_NAME, TrailerPlace, decode_index, decode_part, decode_trailer, encode_index, padding_bytes,
};
use crate::tape::member::{AppendPoint, Member};

/// What is known about the end of the tape.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// All committed containers, by number.
    pub(super) entries: Vec<IndexEntry>,
    /// Behind the last committed tape file.
    pub(super) next_block: u64,
    /// Where the recorded data ends; behind `next_block` if something torn follows.
    pub(super) end_of_data: u64,
    /// What is torn ends with a filemark, so that a new tape file may follow it.
    pub(super) torn_is_closed: bool,
}

impl Tail {
    pub(super) fn last_sequence(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.container)
    }

    pub(super) fn append_point(&self) -> AppendPoint {
        AppendPoint {
            last_sequence: self.last_sequence(),
            next_block: self.next_block,
            torn: self.end_of_data > self.next_block,
        }
    }
}

impl Drive {
    /// The end of the tape, read once in a session.
    pub(super) fn tail(&mut self) -> Result<&Tail, DriveError> {
        if self.session()?.tail.is_none() {
            let tail = self.find_tail()?;
            self.session()?.tail = Some(tail);
        }
        Ok(self.session()?.tail.as_ref().expect("found above"))
    }

    fn find_tail(&mut self) -> Result<Tail, DriveError> {
        let end_of_data = self.locate_end()?;
        let mut torn_is_closed = false;
        let mut last = None;
        while let Some(mark) = self.filemark_before()? {
            torn_is_closed |= mark + 1 == end_of_data;
            if mark < FIRST_CONTAINER_BLOCK {
                break;
            }
            if let Some(footer) = self.footer_at(mark - 1)? {
                last = Some((footer, mark + 1));
                break;
            }
            warn!(mark, "a tape file that was never finished is skipped");
            self.locate(mark)?;
        }
        let next_block = last.as_ref().map_or(FIRST_CONTAINER_BLOCK, |(_, next)| *next);
        let entries = match last {
            Some((footer, next)) => self.entries_back_from(footer, next)?,
            None => Vec::new(),
        };
        Ok(Tail { entries, next_block, end_of_data, torn_is_closed })
    }

    /// The footer in a record, if it is one of this volume's.
    fn footer_at(&mut self, block: u64) -> Result<Option<Footer>, DriveError> {
        let length = match self.held {
            Some(held) if held == block => RECORD_BYTES,
            _ => match self.read_block_at(block)? {
                Block::Data(length) => length,
                Block::Filemark | Block::EndOfData => return Ok(None),
            },
        };
        let Some(footer) = self.record.get(..length).and_then(Footer::find) else { return Ok(None) };
        // A footer left from another labelling, or copied here, does not fit its place.
        let list_end = footer.list.block.saturating_add(footer.list.length_bytes / RECORD_BYTES as u64);
        let fits = footer.volume == self.session()?.volume
            && footer.previous_end <= footer.start_block
            && footer.start_block <= footer.list.block
            && footer.start_block >= FIRST_CONTAINER_BLOCK
            && list_end <= block;
        Ok(fits.then_some(footer))
    }

    /// The containers up to a tape file whose footer is known, following footers towards the beginning.
    fn entries_back_from(&mut self, footer: Footer, next_block: u64) -> Result<Vec<IndexEntry>, DriveError> {
        let (mut footer, mut next_block) = (footer, next_block);
        let mut entries: Vec<IndexEntry> = Vec::new();
        loop {
            match footer.kind {
                PartKind::Index => match self.read_index(&footer) {
                    Ok(before) => {
                        entries.extend(before.into_iter().rev());
                        break;
                    }
                    Err(error) if matches!(error.remedy(), Remedy::FenceLost | Remedy::Reattach) => return Err(error),
                    Err(error) => warn!(%error, "an index cannot be read, its containers are looked at"),
                },
                PartKind::Container => entries.push(IndexEntry {
                    container: footer.container,
                    start_block: footer.start_block,
                    next_block,
                    members: footer.entries,
                    trailer: footer.list,
                }),
            }
            next_block = footer.previous_end;
            if next_block <= FIRST_CONTAINER_BLOCK {
                break;
            }
            footer = match self.footer_at(next_block - 2)? {
                // Each step goes towards the beginning, so this ends.
                Some(before) if before.start_block < next_block && next_block <= footer.start_block => before,
                _ => return Err(self.format_error(next_block - 2, "a footer should be here")),
            };
        }
        entries.reverse();
        let ascending = entries
            .windows(2)
            .all(|pair| pair[0].container < pair[1].container && pair[0].next_block <= pair[1].start_block);
        if ascending { Ok(entries) } else { Err(self.format_error(next_block, "the containers are out of order")) }
    }

    fn read_index(&mut self, footer: &Footer) -> Result<Vec<IndexEntry>, DriveError> {
        let bytes = self.read_list(&footer.list)?;
        decode_index(&bytes).ok_or_else(|| self.format_error(footer.list.block, "the index is damaged"))
    }

    /// Reads and checks a trailer's or an index's list.
    fn read_list(&mut self, place: &TrailerPlace) -> Result<Vec<u8>, DriveError> {
        if place.length_bytes > MAX_LIST_BYTES || place.skip_bytes as usize > RECORD_BYTES {
            return Err(self.format_error(place.block, "a list is longer than lists can be"));
        }
        let mut bytes = Vec::new();
        let (mut block, mut skip) = (place.block, place.skip_bytes as usize);
        while (bytes.len() as u64) < place.length_bytes {
            self.hold(block)?;
            let left = usize::try_from(place.length_bytes).unwrap_or(usize::MAX) - bytes.len();
            let end = RECORD_BYTES.min(skip.saturating_add(left));
            bytes.extend_from_slice(&self.record[skip..end]);
            (block, skip) = (block + 1, 0);
        }
        if crc_fast::crc32_iscsi(&bytes) != place.crc32c {
            return Err(self.format_error(place.block, "a list has another sum than its footer says"));
        }
        Ok(bytes)
    }

    fn read_trailer(&mut self, entry: &IndexEntry) -> Result<Vec<(Member, Extent)>, DriveError> {
        let bytes = self.read_list(&entry.trailer)?;
        let volume = self.session()?.volume.clone();
        decode_trailer(&bytes, &volume, entry.container)
            .filter(|members| members.len() as u64 == entry.members)
            .ok_or_else(|| self.format_error(entry.trailer.block, "the trailer is damaged"))
    }

    /// Lists a container's members by their headers, from its beginning, skipping their data.
    fn walk_headers(&mut self, entry: &IndexEntry) -> Result<Vec<(Member, Extent)>, DriveError> {
        let volume = self.session()?.volume.clone();
        let record = RECORD_BYTES as u64;
        let end = (entry.next_block - 1 - entry.start_block).saturating_mul(record);
        let (mut at, mut members) = (0u64, Vec::new());
        while at < end && members.len() < MAX_MEMBERS {
            let (block, from) = (entry.start_block + at / record, (at % record) as usize);
            self.hold(block)?;
            let part = decode_part(&self.record[from..RECORD_BYTES])
                .map_err(|_| self.format_error(block, "a member's headers should be here"))?;
            let (headers, length) = match part {
                Part::End => break,
                Part::Own(name, _) if name == TRAILER_NAME => break,
                Part::Own(_, length) => (BLOCK_BYTES, length),
                Part::Member(member, headers) => {
                    let skip_bytes = u32::try_from(from + headers).expect("within a record");
                    let place = Place::Tape { container: entry.container, block, skip_bytes };
                    let length_bytes = member.length_bytes;
                    members.push((*member, Extent { volume: volume.clone(), place, length_bytes }));
                    (headers, length_bytes)
                }
            };
            at = at.saturating_add(headers as u64).saturating_add(length).saturating_add(padding_bytes(length) as u64);
        }
        if members.len() as u64 == entry.members {
            return Ok(members);
        }
        Err(self.format_error(entry.start_block, "the container has other members than its footer says"))
    }

    /// Lists everything; see [`Drive::scan`].
    pub(super) fn scan_tape(&mut self) -> Result<Scan, DriveError> {
        let tail = self.tail()?.clone();
        let (mut containers, mut unreadable) = (Vec::new(), Vec::new());
        for entry in &tail.entries {
            match self.list_container(entry)? {
                Ok(container) => containers.push(container),
                Err(error) => unreadable.push((entry.container, error)),
            }
        }
        let info = self.session()?.info.clone();
        Ok(Scan { info, containers, unreadable, append_point: tail.append_point() })
    }

    /// Lists the first container from this number on; see [`Drive::scan_from`].
    pub(super) fn scan_container(&mut self, from: u32) -> Result<Option<ScannedOne>, DriveError> {
        let entries = &self.tail()?.entries;
        let Some(entry) = entries.iter().find(|entry| entry.container >= from).copied() else { return Ok(None) };
        let containers = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let listed = self.list_container(&entry)?;
        Ok(Some(ScannedOne { container: entry.container, containers, listed }))
    }

    /// A container's members, from its trailer or, if that cannot be read, from their headers. The inner error is this
    /// container's alone.
    fn list_container(&mut self, entry: &IndexEntry) -> Result<Result<ScannedContainer, DriveError>, DriveError> {
        let mut listed = self.read_trailer(entry);
        if let Err(error) = &listed
            && belongs_to_container(error)
        {
            warn!(%error, container = entry.container, "a trailer cannot be read, its container is");
            // What was wrong first is what is told.
            listed = self.walk_headers(entry).or(listed);
        }
        let IndexEntry { container, start_block, next_block, .. } = *entry;
        match listed {
            Ok(members) => Ok(Ok(ScannedContainer { container, start_block, next_block, members })),
            Err(error) if belongs_to_container(&error) => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Writes the list of all containers as a tape file of its own.
    pub(super) fn write_index(&mut self) -> Result<(), DriveError> {
        let tail = self.tail()?.clone();
        let start = self.begin_tape_file(&tail)?;
        self.session()?.tail = None;
        let mut writer = Writer::new(self, start);
        let list = encode_index(&tail.entries);
        let end = Footer {
            kind: PartKind::Index,
            volume: writer.volume()?,
            container: tail.last_sequence(),
            identity: String::new(),
            start_block: start,
            previous_end: tail.next_block,
            entries: tail.entries.len() as u64,
            // Known once the list is written.
            list: TrailerPlace { block: start, skip_bytes: 0, length_bytes: 0, crc32c: 0 },
        };
        let (_, next_block) = writer.close(INDEX_NAME, list, end)?;
        let session = self.session()?;
        session.tail = Some(Tail { next_block, end_of_data: next_block, torn_is_closed: false, ..tail });
        session.unindexed = false;
        Ok(())
    }

    /// Moves to where the next tape file begins. Committed data is never overwritten; what is torn is, except on WORM,
    /// where a filemark closes it if need be.
    pub(super) fn begin_tape_file(&mut self, tail: &Tail) -> Result<u64, DriveError> {
        let session = self.session()?;
        let volume = session.volume.clone();
        if session.write_protected {
            return Err(DriveError::WriteProtected { volume });
        }
        let skips = session.worm && tail.end_of_data > tail.next_block;
        let mut start = if skips { tail.end_of_data } else { tail.next_block };
        self.locate(start)?;
        if skips && !tail.torn_is_closed {
            self.write_filemark()?;
            start += 1;
        }
        self.confirm(&volume, start)?;
        Ok(start)
    }
}

/// Whether an error is about one container, and others may be read.
fn belongs_to_container(error: &DriveError) -> bool {
    matches!(error.remedy(), Remedy::AbandonObject | Remedy::RepositionAndRetry)
}
