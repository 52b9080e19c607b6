//! Pages of a bucket's keys and versions, in the byte order of keys. A common prefix costs one seek, however many keys
//! it stands for, so a page costs the same in a bucket of any size.

use std::collections::VecDeque;
use std::sync::LazyLock;

use wire::id::EntryId;

use crate::catalog::Catalog;
use crate::error::Result;
use crate::objects::look::{read_unnamed, version_columns};
use crate::objects::place::Parts;
use crate::path::{MAX_KEY_BYTES, end_of_prefix};
use crate::record::{Entry, Listing, MAX_PAGE, Object};
use crate::sql::{args, statements};

/// How many names are read at a time where a common prefix may make the rest worthless.
const SKIPPING_PAGE: u32 = 128;

/// Behind every key: longer than any, of the last code point.
static BEHIND_ALL: LazyLock<String> = LazyLock::new(|| "\u{10FFFF}".repeat(MAX_KEY_BYTES / 4 + 2));

statements! {
    LIST_UNNAMED = concat!(
        "SELECT ", version_columns!(), " FROM version v LEFT JOIN bitfile b ON b.id = v.bitfile
        LEFT JOIN object o ON o.bitfile = v.bitfile
        WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND NOT (v.key = $2 AND v.rank <= $4)
        ORDER BY v.key, v.rank LIMIT $5"
    );

    DIRECTORY_OF_PREFIX (depth bigint, name text) =
        ", walk AS (
            SELECT CAST(0 AS BIGINT) AS depth, CAST($2 AS BIGINT) AS id
            UNION ALL
            SELECT w.depth + 1, e.id FROM walk w CROSS JOIN r CROSS JOIN entry e
            WHERE r.depth = w.depth + 1 AND e.parent = w.id AND e.name = r.name
        )
        SELECT id FROM walk WHERE depth = $3";
}

/// Which keys are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectListing {
    /// Begin behind this key; a common prefix that is named so is passed over whole.
    pub after: Option<String>,
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that have this behind the prefix count as one common prefix.
    pub delimiter: Option<String>,
    /// At most so many keys and common prefixes.
    pub limit: u32,
}

/// Which versions are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VersionListing {
    /// Begin behind this key, or within it behind the version of this number.
    pub after: Option<(String, Option<u64>)>,
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that have this behind the prefix count as one common prefix.
    pub delimiter: Option<String>,
    /// At most so many versions and common prefixes.
    pub limit: u32,
}

/// One page of objects or versions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectPage {
    /// Objects, in order.
    pub objects: Vec<Object>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// Whether there is more.
    pub more: bool,
    /// The last of the page, by which the next begins: a key or a common prefix.
    pub last: Option<String>,
}

impl ObjectPage {
    fn len(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }

    /// Adds one more, or notes that there is more than the limit.
    fn full(&mut self, limit: usize) -> bool {
        self.more = self.len() >= limit;
        self.more
    }

    fn add_prefix(&mut self, prefix: String) {
        self.last = Some(prefix.clone());
        self.prefixes.push(prefix);
    }

    fn add(&mut self, object: Object) {
        self.last = Some(object.key.clone());
        self.objects.push(object);
    }
}

impl Catalog {
    /// One page of a bucket's current versions.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list_objects(&self, bucket: EntryId, listing: &ObjectListing) -> Result<ObjectPage> {
        let limit = listing.limit.min(MAX_PAGE) as usize;
        let mut page = ObjectPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut files = Vec::new();
        match listing.delimiter.as_deref() {
            Some("/") => self.list_level(bucket, listing, limit, &mut page, &mut files).await?,
            _ => self.list_walk(bucket, listing, limit, &mut page, &mut files).await?,
        }
        page.objects = self.as_objects(files).await?;
        Ok(page)
    }

    /// Keys below a prefix as a directory shows them: one range of one directory.
    async fn list_level(
        &self,
        bucket: EntryId,
        listing: &ObjectListing,
        limit: usize,
        page: &mut ObjectPage,
        files: &mut Vec<(String, Entry)>,
    ) -> Result<()> {
        let (above, name) = listing.prefix.split_at(listing.prefix.rfind('/').map_or(0, |at| at + 1));
        let Some(directory) = self.directory_of(bucket, above).await? else { return Ok(()) };
        let mut after = None;
        if let Some(wanted) = listing.after.as_deref().filter(|after| *after >= above) {
            let Some(rest) = wanted.strip_prefix(above) else { return Ok(()) };
            let inside = rest.find('/').map(|at| &rest[..=at]);
            if let Some(inside) = inside.filter(|inside| *inside != rest && inside.starts_with(name)) {
                let prefix = format!("{above}{inside}");
                if self.has_key(bucket, wanted, &prefix).await? {
                    page.add_prefix(prefix);
                }
            }
            after = Some(inside.unwrap_or(rest).to_owned());
        }
        let mut count = page.len();
        loop {
            let wanted = u32::try_from(limit - count.min(limit) + 1).unwrap_or(MAX_PAGE);
            let part = Listing { after: after.take(), prefix: name.to_owned(), limit: wanted };
            let found = self.list(directory, &part).await?;
            for entry in found.items {
                if count >= limit {
                    page.more = true;
                    return Ok(());
                }
                count += 1;
                let key = format!("{above}{}", entry.stored_name());
                if entry.is_directory() {
                    page.add_prefix(key);
                } else {
                    page.last = Some(key.clone());
                    files.push((key, entry));
                }
            }
            match found.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Keys one after the other, with a seek behind every common prefix.
    async fn list_walk(
        &self,
        bucket: EntryId,
        listing: &ObjectListing,
        limit: usize,
        page: &mut ObjectPage,
        files: &mut Vec<(String, Entry)>,
    ) -> Result<()> {
        let delimiter = listing.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        let mut after = listing.after.clone();
        loop {
            let wanted = u32::try_from(limit - (files.len() + page.prefixes.len()) + 1).unwrap_or(MAX_PAGE);
            let wanted = if delimiter.is_some() { wanted.min(SKIPPING_PAGE) } else { wanted };
            let part = Listing { after: after.take(), prefix: listing.prefix.clone(), limit: wanted };
            let found = self.walk(bucket, &part).await?;
            let mut skipped = false;
            for walked in found.items {
                if walked.entry.is_directory() {
                    continue;
                }
                let common = delimiter.and_then(|delimiter| common_prefix(&walked.key, &listing.prefix, delimiter));
                if common.is_some_and(|common| listing.after.as_deref() == Some(common)) {
                    after = Some(format!("{}{}", common.unwrap_or_default(), *BEHIND_ALL));
                    skipped = true;
                    break;
                }
                if files.len() + page.prefixes.len() >= limit {
                    page.more = true;
                    return Ok(());
                }
                if let Some(common) = common {
                    page.add_prefix(common.to_owned());
                    after = Some(format!("{common}{}", *BEHIND_ALL));
                    skipped = true;
                    break;
                }
                page.last = Some(walked.key.clone());
                files.push((walked.key, walked.entry));
            }
            if !skipped {
                match found.next {
                    Some(next) => after = Some(next),
                    None => return Ok(()),
                }
            }
        }
    }

    async fn directory_of(&self, bucket: EntryId, prefix: &str) -> Result<Option<EntryId>> {
        if prefix.is_empty() {
            return Ok(Some(bucket));
        }
        let Ok(parts) = Parts::of(prefix) else { return Ok(None) };
        let depth = i64::try_from(parts.depth()).unwrap_or(i64::MAX);
        let row = self.row(&DIRECTORY_OF_PREFIX, args![&parts.steps()?, bucket, depth]).await?;
        row.map(|row| row.cursor().entry()).transpose()
    }

    /// Whether a key of this prefix lies behind another.
    async fn has_key(&self, bucket: EntryId, after: &str, prefix: &str) -> Result<bool> {
        let mut part = Listing { after: Some(after.to_owned()), prefix: prefix.to_owned(), limit: SKIPPING_PAGE };
        loop {
            let found = self.walk(bucket, &part).await?;
            if found.items.iter().any(|walked| !walked.entry.is_directory()) {
                return Ok(true);
            }
            match found.next {
                Some(next) => part.after = Some(next),
                None => return Ok(false),
            }
        }
    }

    /// One page of a bucket's versions and delete markers, those of a key newest first.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn list_versions(&self, bucket: EntryId, listing: &VersionListing) -> Result<ObjectPage> {
        let limit = listing.limit.min(MAX_PAGE) as usize;
        let mut page = ObjectPage::default();
        if limit == 0 {
            return Ok(page);
        }
        let mut both = Both::new(self, bucket, listing, limit);
        let passed = listing.after.as_ref().map(|(key, _)| key.clone());
        let mut seen = listing.after.as_ref().filter(|(_, version)| version.is_some()).map(|(key, _)| key.clone());
        let delimiter = listing.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
        while let Some(mut object) = both.next().await? {
            let common = delimiter.and_then(|delimiter| common_prefix(&object.key, &listing.prefix, delimiter));
            if let Some(common) = common {
                if passed.as_deref() != Some(common) {
                    if page.full(limit) {
                        break;
                    }
                    page.add_prefix(common.to_owned());
                }
                both.skip(common);
                continue;
            }
            if page.full(limit) {
                break;
            }
            object.latest = seen.as_deref() != Some(object.key.as_str());
            seen = Some(object.key.clone());
            page.add(object);
        }
        Ok(page)
    }
}

/// The part of a key that counts as one with others: up to the delimiter behind the prefix.
fn common_prefix<'k>(key: &'k str, prefix: &str, delimiter: &str) -> Option<&'k str> {
    let behind = key.get(prefix.len()..)?;
    behind.find(delimiter).map(|at| &key[..prefix.len() + at + delimiter.len()])
}

/// Current versions and those without a name, merged in order.
struct Both<'c> {
    catalog: &'c Catalog,
    bucket: EntryId,
    prefix: String,
    end: String,
    size: u32,
    current: VecDeque<Object>,
    /// Behind which key current versions go on; `None` at their end.
    current_after: Option<Option<String>>,
    unnamed: VecDeque<Object>,
    /// Behind which key and rank the others go on; `None` at their end.
    unnamed_after: Option<(String, i64)>,
}

impl<'c> Both<'c> {
    fn new(catalog: &'c Catalog, bucket: EntryId, listing: &VersionListing, limit: usize) -> Self {
        let prefix = listing.prefix.clone();
        let unnamed_after = match &listing.after {
            Some((key, version)) if *key >= prefix => {
                (key.clone(), version.map_or(i64::MAX, |number| -crate::sql::column(number)))
            }
            _ => (prefix.clone(), i64::MIN),
        };
        Self {
            catalog,
            bucket,
            end: end_of_prefix(&prefix).unwrap_or_else(|| BEHIND_ALL.clone()),
            size: u32::try_from(limit + 1).unwrap_or(MAX_PAGE),
            current: VecDeque::new(),
            current_after: Some(listing.after.as_ref().map(|(key, _)| key.clone())),
            unnamed: VecDeque::new(),
            unnamed_after: Some(unnamed_after),
            prefix,
        }
    }

    async fn next(&mut self) -> Result<Option<Object>> {
        while self.current.is_empty()
            && let Some(after) = self.current_after.take()
        {
            let part = Listing { after, prefix: self.prefix.clone(), limit: self.size };
            let found = self.catalog.walk(self.bucket, &part).await?;
            let files = found.items.into_iter().filter(|walked| !walked.entry.is_directory());
            let files = files.map(|walked| (walked.key, walked.entry)).collect();
            self.current = self.catalog.as_objects(files).await?.into();
            self.current_after = found.next.map(Some);
        }
        while self.unnamed.is_empty()
            && let Some((key, rank)) = self.unnamed_after.take()
        {
            let args = args![self.bucket, &key, &self.end, rank, self.size];
            let rows = self.catalog.rows(&LIST_UNNAMED, args).await?;
            let found: Vec<_> = rows.iter().map(|row| read_unnamed(row, false)).collect::<Result<_>>()?;
            if let Some(last) = found.last().filter(|_| found.len() == self.size as usize) {
                self.unnamed_after = Some((last.key.clone(), -crate::sql::column(last.version.number)));
            }
            self.unnamed = found.into();
        }
        Ok(match (self.current.front(), self.unnamed.front()) {
            (Some(current), Some(unnamed)) if current.key <= unnamed.key => self.current.pop_front(),
            (Some(_), None) => self.current.pop_front(),
            _ => self.unnamed.pop_front(),
        })
    }

    /// Passes over everything that begins so.
    fn skip(&mut self, common: &str) {
        self.current.retain(|object| !object.key.starts_with(common));
        self.unnamed.retain(|object| !object.key.starts_with(common));
        let behind = format!("{common}{}", *BEHIND_ALL);
        if self.current.is_empty() && self.current_after.is_some() {
            self.current_after = Some(Some(behind.clone()));
        }
        if self.unnamed.is_empty() && self.unnamed_after.is_some() {
            self.unnamed_after = Some((behind, i64::MIN));
        }
    }
}
