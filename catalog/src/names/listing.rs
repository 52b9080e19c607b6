//! Pages of a directory and of everything below one: range scans, however large it is.

use std::collections::VecDeque;
use std::sync::LazyLock;

use serde::Serialize;
use wire::id::EntryId;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::names::{entry_columns, read_entry};
use crate::path::{MAX_KEY_BYTES, end_of_prefix};
use crate::record::{Entry, Listing, MAX_PAGE, Page, Walked};
use crate::sql::{Row, args, json, statements};

statements! {
    LIST_DIRECTORY = concat!(
        "SELECT ", entry_columns!(), " FROM entry e LEFT JOIN bitfile b ON b.id = e.bitfile
        WHERE e.parent = $1 AND e.name >= $2 AND e.name < $3 ORDER BY e.name LIMIT $4"
    );

    /// The directories along a relative path, by depth, as far as they exist.
    DESCEND (depth bigint, name text) =
        ", walk AS (
            SELECT CAST(0 AS BIGINT) AS depth, CAST($2 AS BIGINT) AS id
            UNION ALL
            SELECT w.depth + 1, e.id FROM walk w CROSS JOIN r CROSS JOIN entry e
            WHERE r.depth = w.depth + 1 AND e.parent = w.id AND e.name = r.name
        )
        SELECT id FROM walk ORDER BY depth";
}

/// How many rows a walk reads of one directory at a time.
const WALK_PAGE: u32 = 1_000;

/// Behind every name: longer than any, of the last code point.
static BEHIND_ALL: LazyLock<String> = LazyLock::new(|| "\u{10FFFF}".repeat(MAX_KEY_BYTES / 4 + 2));

/// Which names of a directory are wanted: `first` and up, before `end`.
struct Range {
    first: String,
    end: String,
}

impl Range {
    fn new(after: Option<&str>, prefix: &str) -> Self {
        // No name holds a control-A's predecessor NUL, so the next possible name is the old one and a control-A.
        let behind = after.map(|after| format!("{after}\u{1}"));
        let first = behind.filter(|behind| behind.as_str() > prefix).unwrap_or_else(|| prefix.to_owned());
        let end = end_of_prefix(prefix).unwrap_or_else(|| BEHIND_ALL.clone());
        Self { first, end }
    }
}

impl Catalog {
    /// One page of a directory, in the order of stored names: a range scan, however large the directory. An entry
    /// that is no directory, or none any more, has an empty listing.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list(&self, directory: EntryId, listing: &Listing) -> Result<Page<Entry>> {
        let limit = listing.limit.clamp(1, MAX_PAGE);
        let range = Range::new(listing.after.as_deref(), &listing.prefix);
        let items = self.page(directory, &range, limit).await?;
        let full = items.len() == limit as usize;
        let next = items.last().filter(|_| full).map(Entry::stored_name);
        Ok(Page { items, next })
    }

    async fn page(&self, directory: EntryId, range: &Range, limit: u32) -> Result<Vec<Entry>> {
        let rows = self.rows(&LIST_DIRECTORY, args![directory, &range.first, &range.end, limit]).await?;
        rows.iter().map(|row| read_entry(&mut row.cursor())).collect()
    }

    /// One page of everything below a directory, in key order; `after` and `prefix` are keys below it. A directory
    /// comes before what lies in it. A page has one more than was asked for where it would end between a directory and
    /// the file without a name in it, which have the same key.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn walk(&self, directory: EntryId, listing: &Listing) -> Result<Page<Walked>> {
        let limit = listing.limit.clamp(1, MAX_PAGE) as usize;
        let mut frames = self.start_walk(directory, listing).await?;
        let mut items = Vec::new();
        while let Some(frame) = frames.last_mut() {
            let full = items.len() >= limit;
            // A directory and the file without a name in it have the same key: a page does not end between them.
            if full && !items.last().is_some_and(|last: &Walked| last.entry.is_directory()) {
                break;
            }
            if frame.waiting.is_empty() && !frame.exhausted {
                let wanted = u32::try_from(limit.saturating_sub(items.len())).unwrap_or(WALK_PAGE).clamp(1, WALK_PAGE);
                let page = self.page(frame.directory, &frame.range, wanted).await?;
                frame.exhausted = page.len() < wanted as usize;
                if let Some(last) = page.last() {
                    frame.range.first = format!("{}\u{1}", last.stored_name());
                }
                frame.waiting = page.into();
            }
            let entry = match frame.waiting.pop_front() {
                Some(entry) if full && !entry.stored_name().is_empty() => break,
                Some(entry) => entry,
                None if full => break,
                None => {
                    frames.pop();
                    continue;
                }
            };
            let key = format!("{}{}", frame.key, entry.stored_name());
            if entry.is_directory() {
                let range = Range::new(None, "");
                frames.push(Frame {
                    directory: entry.id,
                    key: key.clone(),
                    range,
                    waiting: VecDeque::new(),
                    exhausted: false,
                });
            }
            items.push(Walked { key, entry });
        }
        let next = items.last().filter(|_| items.len() >= limit).map(|last| last.key.clone());
        Ok(Page { items, next })
    }

    /// The directories that lead to where a walk begins, each from behind the next one on.
    async fn start_walk(&self, directory: EntryId, listing: &Listing) -> Result<Vec<Frame>> {
        let prefix = listing.prefix.as_str();
        // The prefix `a/` is kept by the directory `a/` itself, so its last component keeps its slash.
        let inner = prefix.strip_suffix('/').unwrap_or(prefix);
        let (prefix_directories, prefix_name) = prefix.split_at(inner.rfind('/').map_or(0, |at| at + 1));
        let after = listing.after.as_deref().filter(|after| *after >= prefix);
        if after.is_some_and(|after| !after.starts_with(prefix)) {
            // `after` lies behind all that begins with the prefix.
            return Ok(Vec::new());
        }
        let target = after.unwrap_or(prefix_directories);
        let components: Vec<&str> = target.split_inclusive('/').filter(|component| component.ends_with('/')).collect();
        let ids = self.descend(directory, &components).await?;
        let first_shown = prefix_directories.matches('/').count();
        let mut frames = Vec::new();
        let mut key = String::new();
        for (depth, &id) in ids.iter().enumerate() {
            if depth >= first_shown {
                // Behind the directory that the next frame goes on in, or behind the rest of `after`: if that is a
                // directory, behind the file without a name in it too.
                let behind =
                    after.map(|after| &after[key.len()..]).map(|rest| components.get(depth).copied().unwrap_or(rest));
                let name_prefix = if depth == first_shown { prefix_name } else { "" };
                let range = Range::new(behind, name_prefix);
                frames.push(Frame {
                    directory: id,
                    key: key.clone(),
                    range,
                    waiting: VecDeque::new(),
                    exhausted: false,
                });
            }
            key.push_str(components.get(depth).copied().unwrap_or_default());
        }
        Ok(frames)
    }

    async fn descend(&self, directory: EntryId, components: &[&str]) -> Result<Vec<EntryId>> {
        if components.is_empty() {
            return Ok(vec![directory]);
        }
        let steps: Vec<_> = components.iter().enumerate().map(|(at, name)| Step { depth: at + 1, name }).collect();
        let rows = self.rows(&DESCEND, args![&json(&steps)?, directory]).await?;
        rows.iter().map(|row: &Row| row.cursor().entry()).collect()
    }
}

#[derive(Serialize)]
struct Step<'a> {
    depth: usize,
    name: &'a str,
}

/// A directory that a walk is in.
struct Frame {
    directory: EntryId,
    /// The directory's own key.
    key: String,
    /// What is still to be read of it.
    range: Range,
    /// What was read and not shown yet.
    waiting: VecDeque<Entry>,
    exhausted: bool,
}
