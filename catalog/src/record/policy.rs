//! Storage classes, hierarchies and classes of service: configuration, kept by name so that every gateway sees the
//! same and that a bitfile's class is known as long as the bitfile lives.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::checksum::ExtraSums;
use wire::id::{CosName, StorageClassName};

/// The kind of a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediumKind {
    /// Disk volumes.
    Disk,
    /// Cartridges.
    Tape,
}

/// A kind of medium and how it is used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StorageClass {
    /// Its name.
    pub name: StorageClassName,
    /// Disk or tape.
    pub kind: MediumKind,
    /// The pool its volumes belong to.
    pub pool: String,
    /// Over how many movers a large file is striped.
    pub stripe_width: u16,
    /// The unit in which a file is cut for striping.
    pub block_bytes: u64,
    /// Purge begins when volumes are fuller than this, from 0 to 1.
    pub high_water: f64,
    /// Purge ends when volumes are emptier than this, from 0 to 1.
    pub low_water: f64,
}

/// Storage classes, top first: files arrive in the first and sink to the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hierarchy {
    /// Its name.
    pub name: String,
    /// The disk class files arrive in.
    pub disk: StorageClassName,
    /// The tape class of copy 1, of copy 2, and so on.
    pub tapes: Vec<StorageClassName>,
}

/// What reading a file does that is on tape only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TapeRead {
    /// Stage it and wait.
    #[default]
    Wait,
    /// Refuse, and tell the reader to ask for staging.
    Refuse,
}

/// How a file is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassOfService {
    /// Its name.
    pub name: CosName,
    /// The hierarchy it uses.
    pub hierarchy: String,
    /// How many tape copies are wanted, each on a cartridge of its own; as many as the hierarchy has tape classes
    /// at most. 0: disk only.
    pub copies: u32,
    /// Which sums to keep besides Adler-32 and CRC-32C.
    pub extra_sums: ExtraSums,
    /// What reading from tape does.
    pub tape_read: TapeRead,
    /// How long a deleted or replaced file can be brought back.
    pub undelete_window: Duration,
    /// How old a file must be before it is migrated.
    pub migration_age: Duration,
    /// How long a staged copy stays on disk if the request does not say.
    pub stage_lifetime: Duration,
}

/// All classes that are known.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Policies {
    /// Storage classes by name.
    pub storage_classes: Vec<StorageClass>,
    /// Hierarchies by name.
    pub hierarchies: Vec<Hierarchy>,
    /// Classes of service by name.
    pub classes: Vec<ClassOfService>,
}

impl Policies {
    /// The class of service of that name.
    #[must_use]
    pub fn class(&self, name: &CosName) -> Option<&ClassOfService> {
        self.classes.iter().find(|class| class.name == *name)
    }

    /// The hierarchy of that name.
    #[must_use]
    pub fn hierarchy(&self, name: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.name == name)
    }

    /// The storage class of that name.
    #[must_use]
    pub fn storage_class(&self, name: &StorageClassName) -> Option<&StorageClass> {
        self.storage_classes.iter().find(|class| class.name == *name)
    }
}
