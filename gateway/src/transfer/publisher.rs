//! What becomes of bytes that were received and are on stable storage.

use async_trait::async_trait;
use catalog::{Catalog, NewFile, Published};
use wire::{checksum::ExtraSums, mover::BodyReport};

/// Makes something of bytes that were received: a file of the name space, or what a door keeps besides names.
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Sums to compute besides those that the class of service keeps.
    fn extra_sums(&self) -> ExtraSums {
        ExtraSums::default()
    }

    /// What the body said of itself, if an HTTP client brought it straight to a mover. Comes before [`Publisher::publish`].
    fn heard(&self, report: BodyReport) {
        let _ = report;
    }

    /// Publishes the bytes in one transaction; what is refused here is removed.
    ///
    /// # Errors
    ///
    /// What the catalogue says. [`catalog::CatalogError::Unavailable`] leaves open what became of the bytes.
    async fn publish(&self, file: NewFile) -> catalog::Result<Published>;
}

#[async_trait]
impl Publisher for Catalog {
    async fn publish(&self, file: NewFile) -> catalog::Result<Published> {
        Self::publish(self, file).await
    }
}
