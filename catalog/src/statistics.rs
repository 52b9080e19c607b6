//! Numbers for the operator.

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::Statistics;

impl Catalog {
    /// Counts of files, bytes and queues; the cost does not grow with the number of files.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn statistics(&self) -> Result<Statistics> {
        todo!()
    }
}
