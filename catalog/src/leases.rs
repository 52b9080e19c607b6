//! Leases: exactly one gateway runs each background service; runs of gateways are numbered.

use std::time::Duration;

use wire::id::{Epoch, GatewayId};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::record::{Holder, Lease};

impl Catalog {
    /// Begins a run of a gateway: its number is greater than that of every earlier run of any gateway of that name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn begin_run(&self, gateway: &GatewayId) -> Result<Epoch> {
        let _ = gateway;
        todo!()
    }

    /// Takes or renews a lease for `ttl`. `None` while another holds it. The epoch grows each time the lease
    /// changes hands.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn lease(&self, name: &str, holder: &Holder, ttl: Duration) -> Result<Option<Epoch>> {
        let _ = (name, holder, ttl);
        todo!()
    }

    /// Gives a lease back, if the holder has it.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn release(&self, name: &str, holder: &Holder) -> Result<()> {
        let _ = (name, holder);
        todo!()
    }

    /// All leases, by name.
    ///
    /// # Errors
    ///
    /// Only those of the database.
    pub async fn leases(&self) -> Result<Vec<Lease>> {
        todo!()
    }
}
