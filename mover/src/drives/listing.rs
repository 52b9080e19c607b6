//! What a tape says it holds, in pages that fit a message.
//!
//! Owns the members of the container that is being listed, so that its trailer is read once and not for every page.
//! Talks to the drive. Never decides what a member is worth.
//!
//! Invariant: what is kept was read from the volume that is attached; whoever attaches another starts afresh. A container
//! that is committed never changes.

use wire::mover::{Found, ScanPlace, Scanned};

use crate::tape::{Drive, DriveError, MAX_PATH_BYTES, Member, ScannedOne};

/// The most members of a page.
const MAX_MEMBERS: usize = 2000;

/// The most bytes of names in a page: far below what a message may have.
const MAX_BYTES: usize = 2 << 20;

/// What a member takes in a message besides its path, at most.
const FIXED_BYTES: usize = 512;

/// The container that is being listed.
#[derive(Default)]
pub(super) struct Listing(Option<ScannedOne>);

impl Listing {
    /// The page that begins at `from`.
    pub(super) fn page(
        &mut self,
        drive: &mut Drive,
        from: Option<ScanPlace>,
        limit: u32,
    ) -> Result<Scanned, DriveError> {
        let from = from.unwrap_or(ScanPlace { container: 0, member: 0 });
        if self.0.as_ref().is_none_or(|kept| kept.container != from.container) {
            self.0 = drive.scan_from(from.container)?;
        }
        let Some(kept) = &self.0 else { return Ok(Scanned::default()) };
        let containers = kept.containers;
        let behind = kept.container.checked_add(1).map(|container| ScanPlace { container, member: 0 });
        let listed = match &kept.listed {
            Ok(listed) => listed,
            Err(error) => {
                let unreadable = Some((kept.container, super::fault::chain(error)));
                return Ok(Scanned { members: Vec::new(), next: behind, unreadable, containers });
            }
        };
        // A place in another container than asked for: the first one behind it, from its beginning.
        let first = if kept.container == from.container { from.member as usize } else { 0 };
        let limit = (limit as usize).clamp(1, MAX_MEMBERS);
        let (mut members, mut bytes) = (Vec::new(), 0);
        for (member, extent) in listed.members.iter().skip(first).take(limit) {
            bytes += FIXED_BYTES + bounded(&member.path).len();
            if bytes > MAX_BYTES && !members.is_empty() {
                break;
            }
            members.push(found(member, extent));
        }
        let end = first + members.len();
        let rest = u32::try_from(end).ok().filter(|_| end < listed.members.len());
        let next = rest.map_or(behind, |member| Some(ScanPlace { container: kept.container, member }));
        Ok(Scanned { members, next, unreadable: None, containers })
    }
}

fn found(member: &Member, extent: &wire::extent::Extent) -> Found {
    Found {
        bitfile: member.bitfile,
        version: member.version,
        cos: bounded(&member.cos),
        path: bounded(&member.path),
        owner: bounded(&member.owner),
        group: bounded(&member.group),
        mode: member.mode,
        modified_us: member.modified_us,
        offset_bytes: member.segment.map_or(0, |segment| segment.offset_bytes),
        bitfile_bytes: member.segment.map_or(member.length_bytes, |segment| segment.total_bytes),
        extent: extent.clone(),
        sums: member.sums,
    }
}

/// A name as it is, or nothing if it is longer than we ever write one: the list of a tape is anybody's.
fn bounded(name: &str) -> String {
    if name.len() > MAX_PATH_BYTES { String::new() } else { name.to_owned() }
}
