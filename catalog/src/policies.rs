//! Storage classes, hierarchies and classes of service by name.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::Policies;

impl Catalog {
    /// Takes classes from the configuration: new ones are added, known ones changed, others stay as they are, since
    /// bitfiles may be of them.
    ///
    /// # Errors
    ///
    /// `NotFound` if a class names another that is neither given nor known; `Inconsistent` if a class of service
    /// wants more copies than its hierarchy has tape classes.
    pub async fn put_policies(&self, policies: Policies) -> Result<()> {
        let _ = policies;
        todo!()
    }

    /// All classes, by name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn policies(&self) -> Result<Policies> {
        todo!()
    }
}
