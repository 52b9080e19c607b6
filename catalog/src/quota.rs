//! Quotas: what a transaction adds to and takes from accounts and groups, checked against their limits.
//!
//! A [`Ledger`] reads the counters once (locked, on PostgreSQL), decides every charge of the transaction in memory,
//! and writes the sums once. Files in the undelete window are not charged.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::id::{AccountName, GroupName};

use crate::batch::Tx;
use crate::error::{CatalogError, Result};
use crate::record::QuotaSubject;
use crate::sql::{args, json, statements};

statements! {
    READ_USAGE (kind text, name text) =
        "SELECT u.kind, u.name, u.bytes, u.files, u.limit_bytes, u.limit_files
        FROM r JOIN usage u ON u.kind = r.kind AND u.name = r.name ORDER BY u.kind, u.name",
        "SELECT u.kind, u.name, u.bytes, u.files, u.limit_bytes, u.limit_files
        FROM r JOIN usage u ON u.kind = r.kind AND u.name = r.name ORDER BY u.kind, u.name FOR UPDATE OF u";

    ADD_USAGE (kind text, name text, bytes bigint, files bigint) =
        "INSERT INTO usage (kind, name, bytes, files) SELECT r.kind, r.name, r.bytes, r.files FROM r WHERE true
        ON CONFLICT (kind, name) DO UPDATE SET bytes = usage.bytes + excluded.bytes, files = usage.files + excluded.files";
}

/// What one file adds (or, negative, takes away).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<'a> {
    pub(crate) owner: &'a AccountName,
    pub(crate) group: &'a GroupName,
    pub(crate) bytes: i64,
    pub(crate) files: i64,
}

impl<'a> Charge<'a> {
    /// A file that is there now.
    pub(crate) fn of(owner: &'a AccountName, group: &'a GroupName, size_bytes: u64) -> Self {
        Self { owner, group, bytes: crate::sql::column(size_bytes), files: 1 }
    }

    /// The same file gone.
    pub(crate) const fn refund(self) -> Self {
        Self { bytes: -self.bytes, files: -self.files, ..self }
    }
}

#[derive(Debug, Default)]
struct Line {
    bytes: i64,
    files: i64,
    limit_bytes: Option<i64>,
    limit_files: Option<i64>,
    bytes_added: i64,
    files_added: i64,
}

/// The counters that a transaction touches.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lines: BTreeMap<(&'static str, String), Line>,
}

#[derive(Serialize)]
struct Key<'a> {
    kind: &'a str,
    name: &'a str,
}

#[derive(Serialize)]
struct Sum<'a> {
    kind: &'a str,
    name: &'a str,
    bytes: i64,
    files: i64,
}

impl Ledger {
    /// Reads the counters of these accounts and groups.
    pub(crate) async fn read<'a>(
        tx: &mut Tx,
        subjects: impl IntoIterator<Item = (&'a AccountName, &'a GroupName)>,
    ) -> Result<Self> {
        let mut ledger = Self::default();
        for (owner, group) in subjects {
            ledger.lines.entry(("account", owner.as_str().to_owned())).or_default();
            ledger.lines.entry(("group", group.as_str().to_owned())).or_default();
        }
        let keys: Vec<_> = ledger.lines.keys().map(|(kind, name)| Key { kind, name }).collect();
        for row in tx.rows(&READ_USAGE, args![&json(&keys)?]).await? {
            let mut row = row.cursor();
            let kind = if row.text()? == "account" { "account" } else { "group" };
            let line = ledger.lines.entry((kind, row.text()?)).or_default();
            (line.bytes, line.files) = (row.int()?, row.int()?);
            (line.limit_bytes, line.limit_files) = (row.maybe_int()?, row.maybe_int()?);
        }
        Ok(ledger)
    }

    /// Takes all of these charges or, if a limit is in the way, none. What makes use smaller is always taken.
    pub(crate) fn charge(&mut self, charges: &[Charge<'_>]) -> Result<()> {
        let mut sums: BTreeMap<(&'static str, &str), (i64, i64)> = BTreeMap::new();
        for charge in charges {
            for key in [("account", charge.owner.as_str()), ("group", charge.group.as_str())] {
                let sum = sums.entry(key).or_default();
                sum.0 = sum.0.saturating_add(charge.bytes);
                sum.1 = sum.1.saturating_add(charge.files);
            }
        }
        for (&(kind, name), &(bytes, files)) in &sums {
            if let Some(line) = self.lines.get(&(kind, name.to_owned())) {
                line.check(kind, name, bytes, files)?;
            }
        }
        for ((kind, name), (bytes, files)) in sums {
            let line = self.lines.entry((kind, name.to_owned())).or_default();
            line.bytes_added = line.bytes_added.saturating_add(bytes);
            line.files_added = line.files_added.saturating_add(files);
        }
        Ok(())
    }

    /// Takes a charge whatever the limits say: for bytes that are there already.
    pub(crate) fn count(&mut self, charge: Charge<'_>) {
        for key in [("account", charge.owner.as_str()), ("group", charge.group.as_str())] {
            let line = self.lines.entry((key.0, key.1.to_owned())).or_default();
            line.bytes_added = line.bytes_added.saturating_add(charge.bytes);
            line.files_added = line.files_added.saturating_add(charge.files);
        }
    }

    /// Writes what was charged, in the order of names, so that no two writers wait for each other in a circle.
    pub(crate) async fn write(self, tx: &mut Tx) -> Result<()> {
        let changed = self.lines.iter().filter(|(_, line)| line.bytes_added != 0 || line.files_added != 0);
        let sums: Vec<_> = changed
            .map(|((kind, name), line)| Sum { kind, name, bytes: line.bytes_added, files: line.files_added })
            .collect();
        if !sums.is_empty() {
            tx.execute(&ADD_USAGE, args![&json(&sums)?]).await?;
        }
        Ok(())
    }
}

impl Line {
    fn check(&self, kind: &'static str, name: &str, bytes: i64, files: i64) -> Result<()> {
        let measures = [
            ("bytes", self.bytes.saturating_add(self.bytes_added), bytes, self.limit_bytes),
            ("files", self.files.saturating_add(self.files_added), files, self.limit_files),
        ];
        for (measure, now, added, limit) in measures {
            let would_be = now.saturating_add(added);
            if let Some(limit) = limit.filter(|limit| added > 0 && would_be > *limit) {
                return Err(CatalogError::QuotaExceeded {
                    subject: format!("{kind} {name}"),
                    measure,
                    limit: u64::try_from(limit).unwrap_or(0),
                    would_be: u64::try_from(would_be).unwrap_or(0),
                });
            }
        }
        Ok(())
    }
}

/// The subject of a row of `usage`.
pub(crate) fn subject(kind: &str, name: String) -> Result<QuotaSubject> {
    match kind {
        "account" => Ok(QuotaSubject::Account(AccountName::try_from(name)?)),
        "group" => Ok(QuotaSubject::Group(GroupName::try_from(name)?)),
        other => Err(CatalogError::corrupt(format!("usage of a {other:?}"))),
    }
}
