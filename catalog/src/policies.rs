//! Storage classes, hierarchies and classes of service by name: one table of JSON records, read whole.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{MediumKind, Policies};
use crate::sql::{Row, args, json, statements};

statements! {
    READ_POLICIES = "SELECT kind, name, body FROM policy ORDER BY kind, name";

    PUT_POLICIES (kind text, name text, body text) =
        "INSERT INTO policy (kind, name, body) SELECT r.kind, r.name, r.body FROM r WHERE true
        ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body";
}

#[derive(Serialize)]
struct PolicyRow<'a> {
    kind: &'static str,
    name: &'a str,
    body: String,
}

impl Catalog {
    /// Takes classes from the configuration: new ones are added, known ones changed, others stay as they are, since
    /// bitfiles may be of them.
    ///
    /// # Errors
    ///
    /// `NotFound` if a class names another that is neither given nor known; `Inconsistent` if a class of service
    /// wants more copies than its hierarchy has tape classes, or a hierarchy has disk and tape mixed up.
    pub async fn put_policies(&self, policies: Policies) -> Result<()> {
        self.write(policies, |policies, tx| Box::pin(put(policies, tx))).await
    }

    /// All classes, by name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn policies(&self) -> Result<Policies> {
        parse(&self.rows(&READ_POLICIES, &[]).await?)
    }
}

/// All classes as this transaction sees them.
pub(crate) async fn read(tx: &mut Tx) -> Result<Policies> {
    parse(&tx.rows(&READ_POLICIES, &[]).await?)
}

async fn put(new: &Policies, tx: &mut Tx) -> Result<()> {
    check(&merged(read(tx).await?, new))?;
    let mut rows = Vec::new();
    for class in &new.storage_classes {
        rows.push(PolicyRow { kind: "storage", name: class.name.as_str(), body: json(class)? });
    }
    for hierarchy in &new.hierarchies {
        rows.push(PolicyRow { kind: "hierarchy", name: &hierarchy.name, body: json(hierarchy)? });
    }
    for class in &new.classes {
        rows.push(PolicyRow { kind: "class", name: class.name.as_str(), body: json(class)? });
    }
    tx.execute(&PUT_POLICIES, args![&json(&rows)?]).await?;
    Ok(())
}

fn merged(mut known: Policies, new: &Policies) -> Policies {
    known.storage_classes.retain(|old| new.storage_class(&old.name).is_none());
    known.storage_classes.extend(new.storage_classes.iter().cloned());
    known.hierarchies.retain(|old| new.hierarchy(&old.name).is_none());
    known.hierarchies.extend(new.hierarchies.iter().cloned());
    known.classes.retain(|old| new.class(&old.name).is_none());
    known.classes.extend(new.classes.iter().cloned());
    known
}

/// Checks that everything named is there and of the right kind.
fn check(policies: &Policies) -> Result<()> {
    for hierarchy in &policies.hierarchies {
        let disk = std::iter::once((&hierarchy.disk, MediumKind::Disk));
        for (name, kind) in disk.chain(hierarchy.tapes.iter().map(|tape| (tape, MediumKind::Tape))) {
            let class = policies.storage_class(name).ok_or_else(|| CatalogError::not_found("storage class", name))?;
            if class.kind != kind {
                let name = &hierarchy.name;
                return Err(CatalogError::inconsistent(format!(
                    "hierarchy {name}: storage class {} is of the wrong kind of medium for its place",
                    class.name
                )));
            }
        }
    }
    for class in &policies.classes {
        let hierarchy = policies.hierarchy(&class.hierarchy);
        let hierarchy = hierarchy.ok_or_else(|| CatalogError::not_found("hierarchy", &class.hierarchy))?;
        if class.copies as usize > hierarchy.tapes.len() {
            return Err(CatalogError::inconsistent(format!(
                "class of service {} wants {} tape copies, hierarchy {} has {} tape classes",
                class.name,
                class.copies,
                hierarchy.name,
                hierarchy.tapes.len()
            )));
        }
    }
    Ok(())
}

fn parse(rows: &[Row]) -> Result<Policies> {
    let mut policies = Policies::default();
    for row in rows {
        let mut row = row.cursor();
        let (kind, name, text) = (row.text()?, row.text()?, row.text()?);
        match kind.as_str() {
            "storage" => policies.storage_classes.push(body(&name, &text)?),
            "hierarchy" => policies.hierarchies.push(body(&name, &text)?),
            "class" => policies.classes.push(body(&name, &text)?),
            other => return Err(CatalogError::corrupt(format!("a policy of kind {other:?}"))),
        }
    }
    Ok(policies)
}

fn body<T: DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| CatalogError::corrupt(format!("policy {name:?}: {error}")))
}
