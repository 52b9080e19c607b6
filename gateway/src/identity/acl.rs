//! Access control lists in the text form the catalogue keeps: `user:alice:rw-,group:physics:r-x`.
//!
//! Pure. Rights are three permission bits. An entry the text cannot be read as gives nothing, so that damage closes
//! rather than opens.

use std::fmt;

use wire::id::{AccountName, GroupName};

/// The most entries a list has.
pub const MAX_ENTRIES: usize = 128;

/// An access control list: what accounts and groups may do besides owner, group and others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    accounts: Vec<(AccountName, u32)>,
    groups: Vec<(GroupName, u32)>,
}

/// Why a text is not an access control list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadAcl {
    /// One entry cannot be read.
    #[error("{entry:?} is not user:NAME:rwx or group:NAME:rwx, with '-' for a right that is not given")]
    Entry {
        /// The entry, shortened.
        entry: String,
    },
    /// There are too many.
    #[error("an access control list has at most {MAX_ENTRIES} entries: use groups")]
    TooMany,
}

impl Acl {
    /// Reads a list that a client gives.
    ///
    /// # Errors
    ///
    /// [`BadAcl`] for the first entry that is wrong.
    pub fn parse(text: &str) -> Result<Self, BadAcl> {
        let mut acl = Self::default();
        for (index, entry) in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).enumerate() {
            if index == MAX_ENTRIES {
                return Err(BadAcl::TooMany);
            }
            acl.take(entry).ok_or_else(|| BadAcl::Entry { entry: entry.chars().take(80).collect() })?;
        }
        Ok(acl)
    }

    /// Reads a list as it is kept; what cannot be read gives nothing.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let mut acl = Self::default();
        for entry in text.split(',').take(MAX_ENTRIES) {
            let _ = acl.take(entry.trim());
        }
        acl
    }

    fn take(&mut self, entry: &str) -> Option<()> {
        let mut fields = entry.split(':');
        let (kind, name, rights) = (fields.next()?, fields.next()?, bits(fields.next()?)?);
        match (kind, fields.next()) {
            ("user", None) => self.accounts.push((AccountName::new(name).ok()?, rights)),
            ("group", None) => self.groups.push((GroupName::new(name).ok()?, rights)),
            _ => return None,
        }
        Some(())
    }

    /// What the list gives this account by name.
    #[must_use]
    pub fn of_account(&self, account: &AccountName) -> Option<u32> {
        self.accounts.iter().find(|(name, _)| name == account).map(|&(_, bits)| bits)
    }

    /// What the list gives these groups together; `None` if it names none of them.
    #[must_use]
    pub fn of_groups(&self, groups: &[GroupName]) -> Option<u32> {
        self.groups.iter().filter(|(name, _)| groups.contains(name)).map(|&(_, bits)| bits).reduce(|a, b| a | b)
    }
}

fn bits(text: &str) -> Option<u32> {
    let [read, write, search] = *text.as_bytes() else { return None };
    let bit = |byte, letter, value| match byte {
        b'-' => Some(0),
        byte if byte == letter => Some(value),
        _ => None,
    };
    Some(bit(read, b'r', 4)? | bit(write, b'w', 2)? | bit(search, b'x', 1)?)
}

impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bits: u32| [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, letter)| if bits & bit == 0 { '-' } else { letter });
        let users = self.accounts.iter().map(|(name, bits)| ("user", name.as_str(), *bits));
        let groups = self.groups.iter().map(|(name, bits)| ("group", name.as_str(), *bits));
        for (index, (kind, name, bits)) in users.chain(groups).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{kind}:{name}:{}", text(bits).iter().collect::<String>())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_as_it_was_given() {
        let text = "user:alice:rw-,group:physics:r-x";
        assert_eq!(Acl::parse(text).expect("a good list").to_string(), text);
        assert_eq!(Acl::parse(" user:a:--- , ").expect("spaces do no harm").to_string(), "user:a:---");
    }

    #[test]
    fn a_damaged_entry_gives_nothing() {
        for bad in ["user:alice", "user:alice:rwxx", "user:alice:wrx", "other:x:rwx", "user:../x:rwx", "user:a:r--:b"] {
            assert!(matches!(Acl::parse(bad), Err(BadAcl::Entry { .. })), "{bad}");
            assert_eq!(Acl::read(bad), Acl::default(), "{bad}");
        }
    }
}
