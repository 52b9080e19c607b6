//! How the files of a disk volume are named: pure, no I/O.
//!
//! ```text
//! FOLDER/penstock-volume.json          who this is: label, uuid
//! FOLDER/tmp/FILE@GATEWAY@EPOCH        being written; worthless after a crash
//! FOLDER/incoming/FILE@GATEWAY@EPOCH   whole and synced, unconfirmed
//! FOLDER/data/XXXXXXXXXXX/XXX/FILE     confirmed
//! ```
//!
//! `FILE` is the number in 16 hexadecimal digits, so names sort as numbers do. Below `data`, 1,024 consecutive numbers
//! share a folder and 4,096 such folders share a parent: no folder grows large however many files there are, files
//! that were written together lie together, and a listing in order of numbers is a walk. (A hash would spread a
//! thousand new files over a thousand folders, each made and synced for one file.)
//!
//! A file that is not confirmed carries its gateway's name and epoch: only that gateway is asked about it. Another one,
//! asking the catalogue while the first is still publishing, would have it removed.

use std::path::{Path, PathBuf};

use wire::id::{Epoch, FileId, GatewayId};

/// The file that says which volume a folder is.
pub(super) const IDENTITY: &str = "penstock-volume.json";
/// Where files are written.
pub(super) const TEMPORARY: &str = "tmp";
/// Where whole files wait for their confirmation.
pub(super) const INCOMING: &str = "incoming";
/// Where confirmed files are.
pub(super) const DATA: &str = "data";

/// How many consecutive numbers share a folder, as a power of two.
const LEAF_BITS: u32 = 10;
/// How many such folders share a parent, as a power of two.
const BRANCH_BITS: u32 = 12;

/// Who has a file written, and will be asked about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The gateway.
    pub(crate) gateway: GatewayId,
    /// Its epoch at the time.
    pub(crate) epoch: Epoch,
}

/// The name of a file below `tmp` and `incoming`.
pub(super) fn unconfirmed_name(file: FileId, owner: &Owner) -> String {
    format!("{:016x}@{}@{}", file.0, owner.gateway, owner.epoch)
}

/// Reads a name of [`unconfirmed_name`]'s form; `None` for any other name.
pub(super) fn parse_unconfirmed(name: &str) -> Option<(FileId, Owner)> {
    let mut parts = name.split('@');
    let file = parse_file(parts.next()?)?;
    let gateway = GatewayId::new(parts.next()?).ok()?;
    let epoch = Epoch(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((file, Owner { gateway, epoch }))
}

/// Where a confirmed file is.
pub(super) fn data_path(root: &Path, file: FileId) -> PathBuf {
    let (branch, leaf) = folders(file);
    root.join(DATA).join(branch).join(leaf).join(format!("{:016x}", file.0))
}

/// The names of the two folders above a confirmed file.
pub(super) fn folders(file: FileId) -> (String, String) {
    let leaf = file.0 >> LEAF_BITS;
    (format!("{:011x}", leaf >> BRANCH_BITS), format!("{:03x}", leaf & ((1 << BRANCH_BITS) - 1)))
}

/// Reads a confirmed file's name; `None` for any other name.
pub(super) fn parse_file(name: &str) -> Option<FileId> {
    let plain = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'));
    plain.then(|| u64::from_str_radix(name, 16).ok().map(FileId)).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner() -> Owner {
        Owner { gateway: GatewayId::new("gw-1.x").expect("a good name"), epoch: Epoch(7) }
    }

    #[test]
    fn a_foreign_name_is_not_taken_for_a_file() {
        for name in [
            "",
            "lost+found",
            "0000000000000001",
            "0000000000000001@gw1",
            "0000000000000001@gw1@x",
            "0000000000000001@../x@1",
            "000000000000001G@gw1@1",
            "0000000000000001@gw1@1@2",
            "+000000000000001@gw1@1",
        ] {
            assert_eq!(parse_unconfirmed(name), None, "{name:?}");
        }
        assert_eq!(parse_file("000000000000000A"), None);
    }

    #[test]
    fn neighbours_share_a_folder_and_a_folder_is_bounded() {
        assert_eq!(folders(FileId(1024)), folders(FileId(2047)));
        assert_ne!(folders(FileId(1023)), folders(FileId(1024)));
    }

    proptest! {
        #[test]
        fn names_survive_and_sort_as_numbers(a in 0u64..1 << 63, b in 0u64..1 << 63) {
            prop_assert_eq!(parse_unconfirmed(&unconfirmed_name(FileId(a), &owner())), Some((FileId(a), owner())));
            let (path_a, path_b) = (data_path(Path::new("/v"), FileId(a)), data_path(Path::new("/v"), FileId(b)));
            prop_assert_eq!(path_a.cmp(&path_b), a.cmp(&b));
            let name = path_a.file_name().and_then(|name| name.to_str()).expect("ASCII");
            prop_assert_eq!(parse_file(name), Some(FileId(a)));
        }
    }
}
