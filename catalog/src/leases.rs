//! Leases: exactly one gateway runs each background service; runs of gateways are numbered.

use std::time::Duration;

use wire::id::{Epoch, GatewayId};

use crate::batch::Tx;
use crate::catalog::Catalog;
use crate::error::{CatalogError, Result};
use crate::record::{Fence, Holder, Lease};
use crate::sql::{Row, args, statements};

statements! {
    BEGIN_RUN =
        "INSERT INTO run (gateway, epoch, started_us) VALUES ($1, 1, $2)
        ON CONFLICT (gateway) DO UPDATE SET epoch = run.epoch + 1, started_us = excluded.started_us RETURNING epoch";

    TAKE_LEASE =
        "INSERT INTO lease (name, holder, epoch, until_us) VALUES ($1, $2, 1, $3)
        ON CONFLICT (name) DO UPDATE SET
            epoch = CASE WHEN lease.holder = excluded.holder THEN lease.epoch ELSE lease.epoch + 1 END,
            holder = excluded.holder, until_us = excluded.until_us
        WHERE lease.holder = excluded.holder OR lease.until_us <= $4
        RETURNING epoch";

    RELEASE_LEASE = "UPDATE lease SET until_us = $3 WHERE name = $1 AND holder = $2 AND until_us > $3";

    ALL_LEASES = "SELECT name, holder, epoch, until_us FROM lease ORDER BY name";

    /// Held until the transaction ends, so that the lease cannot change hands within it (PostgreSQL).
    CHECK_FENCE = "SELECT epoch FROM lease WHERE name = $1",
        "SELECT epoch FROM lease WHERE name = $1 FOR SHARE";
}

impl Catalog {
    /// Begins a run of a gateway: its number is greater than that of every earlier run of any gateway of that name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn begin_run(&self, gateway: &GatewayId) -> Result<Epoch> {
        self.write(gateway.clone(), |gateway, tx| {
            Box::pin(async move {
                let now = tx.now;
                let row = tx.row(&BEGIN_RUN, args![gateway.as_str(), now]).await?;
                row.ok_or_else(|| CatalogError::corrupt("a run was not numbered"))?.cursor().epoch()
            })
        })
        .await
    }

    /// Takes or renews a lease for `ttl`. `None` while another holds it. The epoch grows each time the lease
    /// changes hands; one that ran out and that nobody else took in between is renewed with its epoch.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn lease(&self, name: &str, holder: &Holder, ttl: Duration) -> Result<Option<Epoch>> {
        self.write((name.to_owned(), holder.clone(), ttl), |(name, holder, ttl), tx| {
            Box::pin(async move {
                let now = tx.now;
                let row = tx.row(&TAKE_LEASE, args![name, holder.as_str(), now.after(*ttl), now]).await?;
                row.map(|row| row.cursor().epoch()).transpose()
            })
        })
        .await
    }

    /// Gives a lease back, if the holder has it.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release(&self, name: &str, holder: &Holder) -> Result<()> {
        self.write((name.to_owned(), holder.clone()), |(name, holder), tx| {
            Box::pin(async move {
                let now = tx.now;
                tx.execute(&RELEASE_LEASE, args![name, holder.as_str(), now]).await.map(drop)
            })
        })
        .await
    }

    /// All leases, by name, those that ran out too.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn leases(&self) -> Result<Vec<Lease>> {
        let read = |row: &Row| {
            let mut row = row.cursor();
            let (name, holder) = (row.text()?, Holder::from_column(row.text()?));
            Ok(Lease { name, holder, epoch: row.epoch()?, until: row.time()? })
        };
        self.rows(&ALL_LEASES, &[]).await?.iter().map(read).collect()
    }
}

/// Checks that a lease is still in the hands it was in.
///
/// A lease that ran out is good until another takes it: then its epoch grows.
pub(crate) async fn check_fence(fence: Option<&Fence>, tx: &mut Tx) -> Result<()> {
    let Some(fence) = fence else { return Ok(()) };
    let row = tx.row(&CHECK_FENCE, args![&fence.lease]).await?;
    let epoch = row.map(|row| row.cursor().epoch()).transpose()?;
    if epoch == Some(fence.epoch) { Ok(()) } else { Err(CatalogError::stale(format!("lease {}", fence.lease))) }
}
