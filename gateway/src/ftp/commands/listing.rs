//! Directories as text, page by page.
//!
//! Owns the line forms of LIST, NLST and MLSD. Talks to [`crate::files`], one page at a time: a directory of any size
//! takes the memory of a page. Lines end in CR LF whatever `TYPE` says, and nothing is translated afterwards.
//!
//! Names that hold a line end (S3 keys may) are left out: no FTP command could name them, and they would forge lines.

use bytes::Bytes;
use catalog::{Entry, FileInfo, Residency, TreePath};
use futures::stream::{BoxStream, StreamExt as _, try_unfold};
use tracing::debug;
use wire::ftp::{EntryKind, Facts, FtpTime, Locality};

use super::super::session::work::ListForm;
use crate::{
    failure::Failure,
    files::{Files, Item, Page},
    identity::{Principal, Right},
};

/// Entries of one page: some 100 KiB of text.
const PAGE: u32 = 1000;

/// How long ago `ls` shows the year instead of the time: half a year (GNU coreutils).
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// A listing whose first page has been read, so that what is refused is refused before data flows.
pub(super) struct Listing {
    files: Files,
    who: Principal,
    path: TreePath,
    form: ListForm,
    now_us: i64,
    first: Page,
    /// Written before each line: one space in a reply on the control connection.
    indent: &'static str,
}

impl Listing {
    /// Looks at a path: a directory's first page, or a file as the listing of itself.
    ///
    /// # Errors
    ///
    /// As [`Files::list`].
    pub(super) async fn open(
        files: &Files,
        who: &Principal,
        path: TreePath,
        form: ListForm,
        now_us: i64,
    ) -> Result<Self, Failure> {
        let item = files.stat(who, &path).await?;
        let first = if item.entry.is_directory() {
            files.list(who, &path, None, PAGE).await?
        } else {
            Page { directory: item.clone(), items: vec![item], next: None }
        };
        Ok(Self { files: files.clone(), who: who.clone(), path, form, now_us, first, indent: "" })
    }

    /// For a reply on the control connection.
    pub(super) const fn indented(mut self) -> Self {
        self.indent = " ";
        self
    }

    /// Whether it is a directory that is listed.
    pub(super) fn is_directory(&self) -> bool {
        self.first.directory.entry.is_directory()
    }

    /// The lines, a page at a time.
    pub(super) fn text(self) -> BoxStream<'static, Result<Bytes, Failure>> {
        let Self { files, who, path, form, now_us, first, indent } = self;
        let next = move |state: Option<(Files, Principal, TreePath, Fetch)>| async move {
            let Some((files, who, path, fetch)) = state else { return Ok(None) };
            let page = match fetch {
                Fetch::Ready(page) => *page,
                Fetch::After(name) => files.list(&who, &path, Some(name), PAGE).await?,
            };
            let text = lines(&page.items, form, now_us, indent);
            let rest = page.next.map(|after| (files, who, path, Fetch::After(after)));
            Ok(Some((text, rest)))
        };
        try_unfold(Some((files, who, path, Fetch::Ready(Box::new(first)))), next).boxed()
    }
}

/// Which page comes next.
enum Fetch {
    Ready(Box<Page>),
    After(String),
}

fn lines(items: &[Item], form: ListForm, now_us: i64, indent: &str) -> Bytes {
    let mut text = String::with_capacity(items.len() * 96);
    for item in items {
        if item.entry.name.contains(['\r', '\n', '\0']) {
            debug!(entry = item.entry.id.0, "name with a line end left out of a listing");
            continue;
        }
        text.push_str(indent);
        match form {
            ListForm::Names => text.push_str(&item.entry.name),
            ListForm::Long => text.push_str(&long_line(&item.entry, now_us)),
            ListForm::Facts(wanted) => text.push_str(&facts(item).line(wanted, &item.entry.name)),
        }
        text.push_str("\r\n");
    }
    text.into()
}

/// As `ls -l` writes it, in UTC.
fn long_line(entry: &Entry, now_us: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let modified = FtpTime::from_micros(entry.modified.0);
    let (year, month, day, hour, minute, _) = modified.civil();
    let month = MONTHS[usize::from(month - 1).min(11)];
    let age = FtpTime::from_micros(now_us).seconds() - modified.seconds();
    let when = if (0..RECENT_SECONDS).contains(&age) { format!("{hour:02}:{minute:02}") } else { format!(" {year}") };
    let size = entry.file().map_or(0, |file| file.size_bytes);
    format!(
        "{}{} 1 {:<8} {:<8} {size:>12} {month} {day:>2} {when} {}",
        if entry.is_directory() { 'd' } else { '-' },
        mode_letters(entry.mode),
        entry.owner.as_str(),
        entry.group.as_str(),
        entry.name
    )
}

/// `rwxr-sr-t`
fn mode_letters(mode: u32) -> String {
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    let mut letters = String::with_capacity(9);
    for (who, (bit, with, without)) in special.into_iter().enumerate() {
        let bits = mode >> (6 - 3 * who) & 0o7;
        letters.push(if bits & 0o4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 0o2 != 0 { 'w' } else { '-' });
        letters.push(match (bits & 0o1 != 0, mode & bit != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => with,
            (false, true) => without,
        });
    }
    letters
}

/// What MLST tells of an entry.
pub(super) fn facts(item: &Item) -> Facts {
    let entry = &item.entry;
    let mut facts = Facts::new(if entry.is_directory() { EntryKind::Directory } else { EntryKind::File });
    facts.modified = Some(FtpTime::from_micros(entry.modified.0));
    facts.perm = Some(perm(item));
    facts.unique = Some(format!("{:x}", entry.id.0));
    facts.unix_mode = Some(entry.mode);
    facts.owner = Some(entry.owner.to_string());
    facts.group = Some(entry.group.to_string());
    if let Some(FileInfo { size_bytes, cos, sums, residency, .. }) = entry.file() {
        facts.size_bytes = Some(*size_bytes);
        facts.cos = Some(cos.to_string());
        facts.crc32c = Some(sums.crc32c);
        facts.locality = Some(locality(*residency));
    }
    facts
}

/// Where a file's bytes are, in one word.
const fn locality(residency: Residency) -> Locality {
    match (residency.on_disk, residency.tape_copies > 0) {
        (true, false) => Locality::Online,
        (false, true) => Locality::Nearline,
        (true, true) => Locality::Both,
        (false, false) => Locality::Unavailable,
    }
}

/// The `Perm` fact: what this principal may do (RFC 3659 section 7.5.5).
fn perm(item: &Item) -> String {
    let may = |right: Right| item.rights & right as u32 != 0;
    let mut perm = String::new();
    let mut give = |letters: &str, given: bool| {
        if given {
            perm.push_str(letters);
        }
    };
    if item.entry.is_directory() {
        let enter = may(Right::Search);
        give("cm", may(Right::Write) && enter);
        give("e", enter);
        give("l", may(Right::Read));
        give("p", may(Right::Write) && enter);
    } else {
        give("aw", may(Right::Write));
        give("r", may(Right::Read));
    }
    give("df", item.removable);
    perm
}

#[cfg(test)]
mod tests {
    use catalog::{Content, Timestamp};
    use wire::{
        checksum::Sums,
        ftp::FactSet,
        id::{AccountName, BitfileId, CosName, EntryId, GroupName},
    };

    use super::*;

    fn facts_line(item: &Item) -> String {
        facts(item).line(FactSet::default(), &item.entry.name)
    }

    const NOW_US: i64 = 1_796_042_456_000_000;

    fn item(name: &str, directory: bool, mode: u32) -> Item {
        let file = FileInfo {
            bitfile: BitfileId(7),
            size_bytes: 10_485_760,
            cos: CosName::new("standard").unwrap(),
            sums: Sums::EMPTY,
            generation: 1,
            residency: Residency { on_disk: false, tape_copies: 2, tape_copies_wanted: 2 },
        };
        let entry = Entry {
            id: EntryId(255),
            parent: Some(EntryId(1)),
            name: name.to_owned(),
            owner: AccountName::new("alice").unwrap(),
            group: GroupName::new("physics").unwrap(),
            mode,
            acl: None,
            created: Timestamp(NOW_US),
            modified: Timestamp(NOW_US),
            changed: Timestamp(NOW_US),
            content: if directory { Content::Directory } else { Content::File(file) },
        };
        Item { entry, rights: 0o6, removable: true }
    }

    #[test]
    fn a_long_line_is_what_ls_writes() {
        let file = item("b c", false, 0o644);
        assert_eq!(long_line(&file.entry, NOW_US), "-rw-r--r-- 1 alice    physics      10485760 Nov 30 12:40 b c");
        let year = 365 * 86_400 * 1_000_000;
        assert!(long_line(&file.entry, NOW_US + year).ends_with("Nov 30  2026 b c"));
        assert!(long_line(&file.entry, NOW_US - year).ends_with("Nov 30  2026 b c"), "the future shows its year too");
        assert_eq!(mode_letters(0o7754), "rwsr-sr-T");
        assert_eq!(mode_letters(0o1777), "rwxrwxrwt");
        assert!(long_line(&item("d", true, 0o2755).entry, NOW_US).starts_with("drwxr-sr-x 1 alice"));
    }

    #[test]
    fn facts_tell_where_the_bytes_are_and_what_may_be_done() {
        let line = facts_line(&item("a", false, 0o640));
        assert_eq!(
            line,
            "Type=file;Size=10485760;Modify=20261130124056;Perm=awrdf;Unique=ff;UNIX.mode=0640;UNIX.owner=alice;\
             UNIX.group=physics;X.Locality=NEARLINE;X.Cos=standard;X.Crc32c=00000000; a"
        );
        let mut directory = item("d", true, 0o750);
        directory.rights = 0o7;
        assert!(facts_line(&directory).contains("Type=dir;Modify=20261130124056;Perm=cmelpdf;"));
        directory.rights = 0;
        directory.removable = false;
        assert!(facts_line(&directory).contains("Perm=;"));
    }

    #[test]
    fn a_name_with_a_line_end_cannot_forge_a_line() {
        let items = [item("a", false, 0), item("b\r\nType=file; c", false, 0), item("d", false, 0)];
        assert_eq!(&lines(&items, ListForm::Names, NOW_US, "")[..], b"a\r\nd\r\n");
        assert_eq!(&lines(&items, ListForm::Names, NOW_US, " ")[..], b" a\r\n d\r\n");
    }
}
