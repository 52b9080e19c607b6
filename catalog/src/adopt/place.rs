//! Where a bitfile that was found on a tape gets its name: under its own path, or in the folder of what has no place.
//!
//! Owns what a page learned of directories, and the numbers set aside for new entries. Works in the transaction of its
//! page.

use std::collections::HashMap;

use wire::id::{AccountName, BitfileId, EntryId, GroupName, VolumeLabel};

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::names::{insert_directory, place, read_entry_of};
use crate::objects;
use crate::path::{MAX_COMPONENT_BYTES, check_file_name};
use crate::record::{Content, Entry, FoundMember, ROOT};
use crate::sql::{args, statements};
use crate::time::Timestamp;

statements! {
    INSERT_FILE =
        "INSERT INTO entry (id, parent, name, owner, grp, mode, acl, created_us, modified_us, changed_us, bitfile)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $8, $10)";

    /// A name that was taken over from a tape gets the newer bitfile that was found for it.
    RENEW_FILE =
        "UPDATE entry SET bitfile = $2, owner = $3, grp = $4, mode = $5, modified_us = $6, changed_us = $7 WHERE id = $1";

    MOVE_BITFILE = "UPDATE bitfile SET entry = $2 WHERE id = $1";

    HOW_OLD = "SELECT generation, created_us FROM bitfile WHERE id = $1";
}

/// The folder of what has no place of its own, with a folder for each cartridge.
const LOST_AND_FOUND: &str = "lost+found";

/// Where a migration puts what was deleted before it was on tape.
const DELETED: &str = ".deleted";

/// The most directories above a file that are made for it.
const MAX_DEPTH: usize = 100;

/// How many numbers placing a file of this path may take: its directories, the two of the folder of what has no place,
/// itself, and another that gives way to it.
pub(super) fn ids_for(path: &str) -> usize {
    path.split('/').count().min(MAX_DEPTH + 2) + 4
}

/// Places files.
pub(super) struct Placer {
    volume: VolumeLabel,
    next_id: u64,
    directories: HashMap<(EntryId, String), EntryId>,
}

impl Placer {
    pub(super) fn new(volume: VolumeLabel, first_id: u64) -> Self {
        Self { volume, next_id: first_id, directories: HashMap::new() }
    }

    /// Gives a bitfile a name; which, and whether it is its own.
    pub(super) async fn put(&mut self, member: &FoundMember, tx: &mut Tx) -> Result<(EntryId, bool)> {
        if let Some(entry) = self.at_home(member, tx).await? {
            return Ok((entry, true));
        }
        let lost = self.lost_name(member.bitfile, &member.path, tx).await?;
        let entry = self.id();
        let (owner, group, mode) = (&member.owner, &member.group, member.mode & 0o7777);
        insert(entry, lost, (owner, group, mode, None), member.modified, member.bitfile, tx).await?;
        Ok((entry, false))
    }

    fn id(&mut self) -> EntryId {
        let id = EntryId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Under its own path, unless that is impossible or held by what stays.
    async fn at_home(&mut self, member: &FoundMember, tx: &mut Tx) -> Result<Option<EntryId>> {
        let Some((directories, name)) = components(&member.path) else { return Ok(None) };
        let Some(parent) = self.directory(&directories, member, tx).await? else { return Ok(None) };
        let there = place(tx, parent, name).await?;
        if there.directory.is_some() {
            return Ok(None);
        }
        let attributes = (&member.owner, &member.group, member.mode & 0o7777, None);
        let Some(file) = there.file else {
            let entry = self.id();
            insert(entry, (parent, name.to_owned()), attributes, member.modified, member.bitfile, tx).await?;
            return Ok(Some(entry));
        };
        let entry = read_entry_of(file, tx).await?;
        let Content::File(held) = &entry.content else { return Ok(None) };
        if !gives_way(held.bitfile, member, tx).await? {
            return Ok(None);
        }
        self.set_aside(&entry, held.bitfile, member, tx).await?;
        let (now, (owner, group, mode, _)) = (tx.now, attributes);
        tx.execute(&RENEW_FILE, args![file, member.bitfile, owner, group, mode, member.modified, now]).await?;
        Ok(Some(file))
    }

    /// Moves the older bitfile of a name to the folder of what has no place.
    async fn set_aside(&mut self, entry: &Entry, held: BitfileId, member: &FoundMember, tx: &mut Tx) -> Result<()> {
        let lost = self.lost_name(held, &member.path, tx).await?;
        let aside = self.id();
        let attributes = (&entry.owner, &entry.group, entry.mode, entry.acl.as_deref());
        insert(aside, lost, attributes, entry.modified, held, tx).await?;
        tx.execute(&MOVE_BITFILE, args![held, aside]).await?;
        Ok(())
    }

    /// The directory of these components, made as far as it is not there; `None` if a file is in the way.
    async fn directory(&mut self, components: &[&str], member: &FoundMember, tx: &mut Tx) -> Result<Option<EntryId>> {
        let mut parent = ROOT;
        for name in components {
            let key = (parent, (*name).to_owned());
            if let Some(known) = self.directories.get(&key) {
                parent = *known;
                continue;
            }
            let there = place(tx, parent, name).await?;
            parent = match (there.directory, there.file) {
                (Some(directory), _) => directory,
                (None, Some(_)) => return Ok(None),
                (None, None) => {
                    let above = read_entry_of(parent, tx).await?;
                    let owner = owner_of_new(&above, name, member);
                    let made = self.id();
                    insert_directory(made, parent, name, (&owner.0, &owner.1, 0o755), tx).await?;
                    made
                }
            };
            self.directories.insert(key, parent);
        }
        Ok(Some(parent))
    }

    /// A free name in the folder of what has no place.
    async fn lost_name(&mut self, bitfile: BitfileId, path: &str, tx: &mut Tx) -> Result<(EntryId, String)> {
        let mut parent = ROOT;
        for name in [LOST_AND_FOUND, self.volume.clone().as_str()] {
            let key = (parent, name.to_owned());
            let known = self.directories.get(&key).copied();
            let there = if known.is_some() { known } else { place(tx, parent, name).await?.directory };
            parent = match there {
                Some(directory) => directory,
                None => {
                    let (made, root) = (self.id(), root());
                    insert_directory(made, parent, name, (&root.0, &root.1, 0o700), tx).await?;
                    made
                }
            };
            self.directories.insert(key, parent);
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        let named = format!("{bitfile}.{last}");
        let names = [named, bitfile.to_string()];
        for name in names.into_iter().filter(|name| check_file_name(name).is_ok() && name.len() <= MAX_COMPONENT_BYTES)
        {
            let there = place(tx, parent, &name).await?;
            if there.file.is_none() && there.directory.is_none() {
                return Ok((parent, name));
            }
        }
        let name = format!("/{LOST_AND_FOUND}/{}/{bitfile}", self.volume);
        Err(CatalogError::Exists { name })
    }
}

async fn insert(
    entry: EntryId,
    (parent, name): (EntryId, String),
    (owner, group, mode, acl): (&AccountName, &GroupName, u32, Option<&str>),
    modified: Timestamp,
    bitfile: BitfileId,
    tx: &mut Tx,
) -> Result<()> {
    let now = tx.now;
    tx.execute(&INSERT_FILE, args![entry, parent, &name, owner, group, mode, acl, now, modified, bitfile]).await?;
    Ok(())
}

/// Whether the bitfile that holds a name gives way: it was taken over from a tape itself, it is the older one, and it is
/// not locked.
async fn gives_way(held: BitfileId, member: &FoundMember, tx: &mut Tx) -> Result<bool> {
    let Some(row) = tx.row(&HOW_OLD, args![held]).await? else { return Ok(false) };
    let mut row = row.cursor();
    // A write counts from 1: what was taken over has not been written here.
    let taken_over = row.int()? == 0;
    let older = (row.time()?, held) < (member.version, member.bitfile);
    Ok(taken_over && older && objects::locked(&[held], tx).await?.is_empty())
}

/// The directories and the name of a path; `None` if it is none that can be made.
fn components(path: &str) -> Option<(Vec<&str>, &str)> {
    let mut components: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let sound = |name: &&str| !matches!(*name, "" | "." | "..") && name.len() <= MAX_COMPONENT_BYTES;
    let sound = components.iter().all(|name| sound(name) && check_file_name(name).is_ok());
    let name = components.pop()?;
    let ours = matches!(components.first(), Some(&DELETED | &LOST_AND_FOUND));
    (sound && !ours && components.len() <= MAX_DEPTH).then_some((components, name))
}

/// Who owns a directory that is made for a file. Tapes say nothing of directories: what lies in somebody's directory is
/// his, a home (a directory with the name of the file's owner) is its owner's, and the rest is the site's.
fn owner_of_new(above: &Entry, name: &str, member: &FoundMember) -> (AccountName, GroupName) {
    let root = root();
    if above.owner != root.0 {
        (above.owner.clone(), above.group.clone())
    } else if above.id != ROOT && name == member.owner.as_str() {
        (member.owner.clone(), member.group.clone())
    } else {
        root
    }
}

fn root() -> (AccountName, GroupName) {
    let plain = "a plain word is a name";
    (AccountName::new("root").expect(plain), GroupName::new("root").expect(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_that_can_be_made_is_a_place() {
        assert_eq!(components("/home/alice/a"), Some((vec!["home", "alice"], "a")));
        assert_eq!(components("a"), Some((vec![], "a")));
        for bad in ["", "/", "/a/", "/a//b", "/a/../b", "/./b", "/.deleted/7", "/lost+found/A/7", "/a\0b"] {
            assert_eq!(components(bad), None, "{bad:?}");
        }
        assert_eq!(components(&format!("/{}", "x".repeat(256))), None);
        assert_eq!(components(&"/d".repeat(MAX_DEPTH + 2)), None);
    }
}
