//! Facts about files: the lines of MLST and MLSD.
//!
//! Owns the machine-readable listing (RFC 3659 section 7), with the UNIX facts that grid clients read and two of our
//! own. A name that was read is the server's word: whoever makes a local file of it checks it first.

use std::fmt;

use super::FtpTime;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// `file`
    File,
    /// `dir`
    Directory,
    /// `cdir`: the directory that is listed
    Current,
    /// `pdir`: its parent
    Parent,
    /// Anything else, as sent.
    Other(String),
}

impl EntryKind {
    fn as_str(&self) -> &str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::Current => "cdir",
            Self::Parent => "pdir",
            Self::Other(kind) => kind,
        }
    }
}

/// Where a file's bytes are (`X.Locality`, Penstock's own fact; the words of the SRM and the Tape REST API).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Locality {
    /// `ONLINE`: on disk only.
    Online,
    /// `NEARLINE`: on tape only; reading it means a recall.
    Nearline,
    /// `ONLINE_AND_NEARLINE`: on both.
    Both,
    /// `UNAVAILABLE`: no reachable copy.
    Unavailable,
}

impl Locality {
    const ALL: [Self; 4] = [Self::Online, Self::Nearline, Self::Both, Self::Unavailable];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Nearline => "NEARLINE",
            Self::Both => "ONLINE_AND_NEARLINE",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// The facts that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    /// `Type`
    Type,
    /// `Size`
    Size,
    /// `Modify`
    Modify,
    /// `Perm`
    Perm,
    /// `Unique`
    Unique,
    /// `UNIX.mode`
    UnixMode,
    /// `UNIX.owner`
    UnixOwner,
    /// `UNIX.group`
    UnixGroup,
    /// `UNIX.uid`
    UnixUid,
    /// `UNIX.gid`
    UnixGid,
    /// `X.Locality`
    Locality,
    /// `X.Cos`: the class of service
    Cos,
    /// `X.Crc32c`: CRC-32C of a file's content, from the catalogue
    Crc32c,
}

impl Fact {
    /// All of them, in the order they are written.
    pub const ALL: [Self; 13] = [
        Self::Type,
        Self::Size,
        Self::Modify,
        Self::Perm,
        Self::Unique,
        Self::UnixMode,
        Self::UnixOwner,
        Self::UnixGroup,
        Self::UnixUid,
        Self::UnixGid,
        Self::Locality,
        Self::Cos,
        Self::Crc32c,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type => "Type",
            Self::Size => "Size",
            Self::Modify => "Modify",
            Self::Perm => "Perm",
            Self::Unique => "Unique",
            Self::UnixMode => "UNIX.mode",
            Self::UnixOwner => "UNIX.owner",
            Self::UnixGroup => "UNIX.group",
            Self::UnixUid => "UNIX.uid",
            Self::UnixGid => "UNIX.gid",
            Self::Locality => "X.Locality",
            Self::Cos => "X.Cos",
            Self::Crc32c => "X.Crc32c",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| fact.name().eq_ignore_ascii_case(name))
    }
}

/// Which facts a client wants (`OPTS MLST`). All, unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FactSet(u16);

impl Default for FactSet {
    fn default() -> Self {
        Fact::ALL.into_iter().fold(Self(0), Self::with)
    }
}

impl FactSet {
    /// None of them.
    pub const fn none() -> Self {
        Self(0)
    }

    /// This set and one more.
    #[must_use]
    pub const fn with(self, fact: Fact) -> Self {
        Self(self.0 | 1 << fact as u16)
    }

    /// Whether a fact is wanted.
    pub const fn has(self, fact: Fact) -> bool {
        self.0 & 1 << fact as u16 != 0
    }

    /// Reads `fact;fact;`. Names unknown here are left out (RFC 3659 section 7.9).
    pub fn parse(text: &str) -> Self {
        text.split(';').filter_map(|name| Fact::from_name(name.trim())).fold(Self(0), Self::with)
    }

    /// The line of FEAT: `MLST Type*;Size*;…`, with a star behind each fact of this set.
    pub fn feature(self) -> String {
        let mut line = "MLST ".to_owned();
        for fact in Fact::ALL {
            line.push_str(fact.name());
            line.push_str(if self.has(fact) { "*;" } else { ";" });
        }
        line
    }
}

impl fmt::Display for FactSet {
    /// `fact;fact;`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fact::ALL.into_iter().filter(|fact| self.has(*fact)).try_for_each(|fact| write!(f, "{};", fact.name()))
    }
}

/// What is known about one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: EntryKind,
    /// Its size in bytes.
    pub size_bytes: Option<u64>,
    /// When its content changed.
    pub modified: Option<FtpTime>,
    /// What may be done with it (RFC 3659 section 7.5.5).
    pub perm: Option<String>,
    /// Equal for two names of one file.
    pub unique: Option<String>,
    /// Permission bits.
    pub unix_mode: Option<u32>,
    /// Owner's name.
    pub owner: Option<String>,
    /// Group's name.
    pub group: Option<String>,
    /// Owner's number.
    pub uid: Option<u32>,
    /// Group's number.
    pub gid: Option<u32>,
    /// Where its bytes are.
    pub locality: Option<Locality>,
    /// Class of service.
    pub cos: Option<String>,
    /// CRC-32C of the content: a client that has it need not ask CKSM for each of many small files.
    pub crc32c: Option<u32>,
}

/// A line that is no facts and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a listing line must read FACT=VALUE;FACT=VALUE; NAME")]
pub struct MalformedFacts;

impl Facts {
    /// Only the kind is known.
    pub const fn new(kind: EntryKind) -> Self {
        Self {
            kind,
            size_bytes: None,
            modified: None,
            perm: None,
            unique: None,
            unix_mode: None,
            owner: None,
            group: None,
            uid: None,
            gid: None,
            locality: None,
            cos: None,
            crc32c: None,
        }
    }

    fn value(&self, fact: Fact) -> Option<String> {
        match fact {
            Fact::Type => Some(self.kind.as_str().to_owned()),
            Fact::Size => self.size_bytes.map(|size| size.to_string()),
            Fact::Modify => self.modified.map(|time| time.to_string()),
            Fact::Perm => self.perm.clone(),
            Fact::Unique => self.unique.clone(),
            Fact::UnixMode => self.unix_mode.map(|mode| format!("{mode:04o}")),
            Fact::UnixOwner => self.owner.clone(),
            Fact::UnixGroup => self.group.clone(),
            Fact::UnixUid => self.uid.map(|uid| uid.to_string()),
            Fact::UnixGid => self.gid.map(|gid| gid.to_string()),
            Fact::Locality => self.locality.map(|locality| locality.as_str().to_owned()),
            Fact::Cos => self.cos.clone(),
            Fact::Crc32c => self.crc32c.map(|sum| format!("{sum:08x}")),
        }
    }

    /// Writes `Fact=value;…; name`, without line end. A value that could not be told apart from the line's own
    /// punctuation is left out.
    pub fn line(&self, wanted: FactSet, name: &str) -> String {
        let mut line = String::with_capacity(160 + name.len());
        for fact in Fact::ALL.into_iter().filter(|fact| wanted.has(*fact)) {
            let Some(value) = self.value(fact) else { continue };
            if value.chars().any(|character| character == ';' || character == ' ' || character.is_control()) {
                continue;
            }
            line.push_str(fact.name());
            line.push('=');
            line.push_str(&value);
            line.push(';');
        }
        line.push(' ');
        line.push_str(name);
        line
    }

    /// Reads a line of MLSD, or of MLST behind its first space. A fact whose value makes no sense counts as not told.
    ///
    /// # Errors
    ///
    /// [`MalformedFacts`] if it has no name, or a fact no `=`.
    pub fn parse(line: &str) -> Result<(Self, String), MalformedFacts> {
        let line = line.trim_end_matches(['\r', '\n']);
        let (list, name) = line.split_once(' ').ok_or(MalformedFacts)?;
        if name.is_empty() || name.contains(['\r', '\n', '\0']) {
            return Err(MalformedFacts);
        }
        let mut facts = Self::new(EntryKind::Other(String::new()));
        for pair in list.split(';').filter(|pair| !pair.is_empty()) {
            let (fact, value) = pair.split_once('=').ok_or(MalformedFacts)?;
            match Fact::from_name(fact) {
                Some(Fact::Type) => {
                    facts.kind = match value.to_ascii_lowercase().as_str() {
                        "file" => EntryKind::File,
                        "dir" => EntryKind::Directory,
                        "cdir" => EntryKind::Current,
                        "pdir" => EntryKind::Parent,
                        _ => EntryKind::Other(value.to_owned()),
                    }
                }
                Some(Fact::Size) => facts.size_bytes = value.parse().ok().filter(|size| *size <= i64::MAX as u64),
                Some(Fact::Modify) => facts.modified = value.parse().ok(),
                Some(Fact::Perm) => facts.perm = Some(value.to_owned()),
                Some(Fact::Unique) => facts.unique = Some(value.to_owned()),
                Some(Fact::UnixMode) => facts.unix_mode = u32::from_str_radix(value, 8).ok().map(|mode| mode & 0o7777),
                Some(Fact::UnixOwner) => facts.owner = Some(value.to_owned()),
                Some(Fact::UnixGroup) => facts.group = Some(value.to_owned()),
                Some(Fact::UnixUid) => facts.uid = value.parse().ok(),
                Some(Fact::UnixGid) => facts.gid = value.parse().ok(),
                Some(Fact::Locality) => {
                    facts.locality =
                        Locality::ALL.into_iter().find(|locality| locality.as_str().eq_ignore_ascii_case(value));
                }
                Some(Fact::Cos) => facts.cos = Some(value.to_owned()),
                Some(Fact::Crc32c) => facts.crc32c = u32::from_str_radix(value, 16).ok(),
                None => {}
            }
        }
        Ok((facts, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_of_the_globus_server_is_read() {
        let line = "Type=dir;Modify=20261130124317;Size=40;Perm=cfmpel;UNIX.mode=0755;UNIX.owner=root;UNIX.uid=0;\
                    UNIX.group=root;UNIX.gid=0;Unique=1b-da; /data/dst/d/sub/";
        let (facts, name) = Facts::parse(line).unwrap();
        assert_eq!(name, "/data/dst/d/sub/");
        assert_eq!(
            (facts.kind.clone(), facts.size_bytes, facts.unix_mode),
            (EntryKind::Directory, Some(40), Some(0o755))
        );
        assert_eq!(Facts::parse(&facts.line(FactSet::default(), &name)).unwrap(), (facts, name));
    }

    #[test]
    fn names_may_hold_spaces_and_semicolons() {
        let (facts, name) = Facts::parse("type=file;size=3; a; b = c \r\n").unwrap();
        assert_eq!((facts.kind, name.as_str()), (EntryKind::File, "a; b = c "));
        assert_eq!(Facts::parse(" bare").unwrap().1, "bare");
    }

    #[test]
    fn a_client_gets_the_facts_it_asked_for() {
        let facts = Facts { size_bytes: Some(7), owner: Some("a b".into()), ..Facts::new(EntryKind::File) };
        let wanted = FactSet::parse("size;UNIX.owner;nonsense;");
        assert_eq!(wanted.to_string(), "Size;UNIX.owner;");
        assert_eq!(facts.line(wanted, "x"), "Size=7; x");
        assert!(wanted.feature().starts_with("MLST Type;Size*;Modify;"));
    }

    #[test]
    fn lines_without_a_name_or_with_a_fact_without_value_are_refused() {
        for line in ["", "type=file;", "type=file; ", "type; x", "type=file; a\nb"] {
            assert!(Facts::parse(line).is_err(), "{line:?}");
        }
        assert_eq!(Facts::parse("size=-1;modify=x; a").unwrap().0.size_bytes, None);
    }

    proptest! {
        #[test]
        fn any_text_is_facts_or_an_error(text: String) {
            let _ = Facts::parse(&text);
        }
    }
}
