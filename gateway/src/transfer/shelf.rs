//! Classes and volumes as they were a moment ago, so that an upload asks the catalogue for nothing but its own.
//!
//! Owns a copy that is a few seconds old at most while the catalogue answers, and a minute while it does not.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use catalog::{Catalog, ClassOfService, Policies, StorageClass, VolumeState};
use tokio::sync::RwLock;
use wire::id::{CosName, VolumeLabel};

use crate::failure::{Failure, FailureKind};

const FRESH: Duration = Duration::from_secs(5);
const USABLE: Duration = Duration::from_secs(60);

/// The copy.
pub(super) struct Shelf {
    catalog: Catalog,
    stock: RwLock<Option<Arc<Stock>>>,
}

/// What was there.
pub(super) struct Stock {
    pub(super) policies: Policies,
    volumes: HashMap<VolumeLabel, (String, VolumeState)>,
    read: Instant,
}

impl Shelf {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self { catalog, stock: RwLock::new(None) }
    }

    /// What is there; `newer` wants it read now.
    pub(super) async fn stock(&self, newer: bool) -> Result<Arc<Stock>, Failure> {
        let asked = Instant::now();
        if let Some(stock) = self.stock.read().await.as_ref().filter(|stock| !newer && stock.read.elapsed() < FRESH) {
            return Ok(Arc::clone(stock));
        }
        let mut place = self.stock.write().await;
        if let Some(stock) = place.as_ref().filter(|stock| stock.read >= asked) {
            return Ok(Arc::clone(stock));
        }
        let fresh = match self.read().await {
            Ok(fresh) => Arc::new(fresh),
            Err(error) => {
                let old = place.as_ref().filter(|stock| stock.read.elapsed() < USABLE);
                return old.cloned().ok_or_else(|| error.into());
            }
        };
        *place = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn read(&self) -> catalog::Result<Stock> {
        let read = Instant::now();
        let policies = self.catalog.policies().await?;
        let volumes = self.catalog.volumes().await?;
        let volumes = volumes.into_iter().map(|volume| (volume.label, (volume.pool, volume.state))).collect();
        Ok(Stock { policies, volumes, read })
    }
}

impl Stock {
    /// A class of service and the storage class its files arrive in.
    pub(super) fn class(&self, name: &CosName) -> Result<(&ClassOfService, &StorageClass), Failure> {
        let class = self.policies.class(name).ok_or_else(|| {
            let names = self.policies.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ");
            Failure::new(
                FailureKind::BadArgument,
                format_args!("there is no class of service {name}: choose one of {names}"),
            )
        })?;
        let disk = self.policies.hierarchy(&class.hierarchy).and_then(|found| self.policies.storage_class(&found.disk));
        let disk = disk.ok_or_else(|| {
            let advice =
                format_args!("class of service {name} has no disk class: the operator completes its hierarchy");
            Failure::new(FailureKind::Internal, advice)
        })?;
        Ok((class, disk))
    }

    /// Whether new files may go to this volume of this pool.
    pub(super) fn takes(&self, volume: &VolumeLabel, pool: &str) -> bool {
        self.volumes.get(volume).is_some_and(|(of, state)| of == pool && state.writable())
    }
}
