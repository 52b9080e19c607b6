//! What the mount service tells people: why somebody waits, and what every drive does.

use catalog::Timestamp;
use wire::{
    admin::site as shown,
    id::{DriveId, LibraryId, VolumeLabel},
};

use super::model::{Content, Drive, Location, Mounts, Purpose, Usable, WantId};

/// Why a want has no drive yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// It will be its turn in a moment.
    Soon,
    /// Its cartridge is on its way.
    Mounting {
        /// Which.
        volume: VolumeLabel,
        /// Into which drive.
        drive: DriveId,
    },
    /// Every drive is in use.
    DrivesBusy {
        /// How many work.
        drives: usize,
    },
    /// No drive works.
    NoDrive {
        /// What is wrong with one of them.
        reason: String,
    },
    /// The library cannot be used at the moment.
    Library {
        /// Which.
        library: LibraryId,
        /// What is wrong.
        reason: String,
    },
    /// The last drives are kept for recalls.
    Reserved {
        /// How many.
        drives: usize,
    },
    /// The pool uses as many drives as it may.
    PoolLimit {
        /// Which pool.
        pool: String,
        /// How many.
        drives: usize,
    },
    /// The cartridge is used by somebody else.
    InUse {
        /// Which.
        volume: VolumeLabel,
        /// Where.
        drive: DriveId,
        /// For what.
        purpose: Purpose,
    },
    /// The cartridge may not be used.
    Disabled {
        /// Which.
        volume: VolumeLabel,
        /// Why.
        reason: String,
    },
    /// The cartridge is in no library.
    Outside {
        /// Which.
        volume: VolumeLabel,
    },
    /// The cartridge is in a drive that does not work and does not give it back.
    Stuck {
        /// Which.
        volume: VolumeLabel,
        /// Where.
        drive: DriveId,
        /// What is wrong with the drive.
        reason: String,
    },
    /// There is no cartridge to write to.
    NoVolume {
        /// In which pool.
        pool: String,
    },
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Soon => f.write_str("a drive is free: it begins in a moment"),
            Self::Mounting { volume, drive } => write!(f, "cartridge {volume} is being mounted in drive {drive}"),
            Self::DrivesBusy { drives: 1 } => f.write_str("the only drive that works is busy"),
            Self::DrivesBusy { drives } => write!(f, "all {drives} drives are busy"),
            Self::NoDrive { reason } => write!(f, "no tape drive can be used: {reason}"),
            Self::Library { library, reason } => write!(f, "library {library}: {reason}"),
            Self::Reserved { drives } => write!(f, "the drives that are free ({drives}) are kept for recalls"),
            Self::PoolLimit { pool, drives } => write!(f, "pool {pool} uses the {drives} drives it may use at a time"),
            Self::InUse { volume, drive, purpose } => {
                write!(f, "cartridge {volume} is in use for {} in drive {drive}", purpose.word())
            }
            Self::Disabled { volume, reason } => write!(
                f,
                "cartridge {volume} is disabled: {reason}; `penstock admin volume-enable {volume}` when it is good"
            ),
            Self::Outside { volume } => write!(f, "cartridge {volume} is in no library: put it back into one"),
            Self::Stuck { volume, drive, reason } => {
                write!(f, "cartridge {volume} is stuck in drive {drive}, which is down: {reason}")
            }
            Self::NoVolume { pool } => {
                write!(f, "pool {pool} has no cartridge with room: add cartridges, or enable disabled ones")
            }
        }
    }
}

impl Usable {
    /// A sentence for the log and for whoever watches.
    #[must_use]
    pub fn sentence(&self, drive: &DriveId) -> String {
        match self {
            Self::Up => format!("drive {drive} is up"),
            Self::DownByMover { reason } | Self::Down { reason } => format!("drive {drive} is down: {reason}"),
            Self::Cleaning { reason } => format!("drive {drive} wants cleaning: {reason}"),
            Self::Away { reason } => format!("drive {drive} is away: {reason}"),
        }
    }

    const fn parts(&self) -> (shown::DriveState, Option<&String>) {
        match self {
            Self::Up => (shown::DriveState::Up, None),
            Self::DownByMover { reason } | Self::Down { reason } => (shown::DriveState::Down, Some(reason)),
            Self::Cleaning { reason } => (shown::DriveState::Cleaning, Some(reason)),
            Self::Away { reason } => (shown::DriveState::Away, Some(reason)),
        }
    }
}

impl Mounts {
    /// Why this want waits; `None` if there is no such want.
    #[must_use]
    pub fn why(&self, now: Timestamp, want: WantId) -> Option<Why> {
        let want = self.wants.get(&want)?;
        if let Some((name, drive)) = self.drive_of(want.id) {
            let volume = drive.content.volume().cloned()?;
            return Some(Why::Mounting { volume, drive: name.clone() });
        }
        if want.volumes.is_empty() {
            return Some(Why::NoVolume { pool: want.pool.clone() });
        }
        for (name, library) in &self.libraries {
            if library.mover.is_none() {
                return Some(Why::Library { library: name.clone(), reason: "the mover of its robot is away".into() });
            }
            if library.doubt {
                let reason = library.trouble.clone().unwrap_or_else(|| "its inventory is being taken".into());
                return Some(Why::Library { library: name.clone(), reason });
            }
        }
        let up = self.drives.values().filter(|drive| drive.usable == Usable::Up).count();
        if up == 0 {
            let reason = self.drives.iter().next().map(|(name, drive)| drive.usable.sentence(name));
            return Some(Why::NoDrive {
                reason: reason.unwrap_or_else(|| "no mover with a drive has connected".into()),
            });
        }
        if let [volume] = want.volumes.as_slice() {
            if let Some(why) = self.obstacle(volume) {
                return Some(why);
            }
            for (name, drive) in &self.drives {
                if let Some(grant) = drive.grant.as_ref().filter(|grant| grant.volume == *volume) {
                    return Some(Why::InUse { volume: volume.clone(), drive: name.clone(), purpose: grant.purpose });
                }
            }
        }
        if let Some(why) = self.limit_reached(want) {
            return Some(why);
        }
        let free = self.drives.values().any(|drive| {
            drive.usable == Usable::Up && drive.grant.is_none() && drive.bound.is_none() && now >= drive.not_before
        });
        Some(if free { Why::Soon } else { Why::DrivesBusy { drives: up } })
    }

    /// Every drive, for the admin door.
    #[must_use]
    pub fn drives(&self) -> Vec<shown::Drive> {
        self.drives.iter().map(|(name, drive)| show(name, drive)).collect()
    }

    /// Where a cartridge is; `None` if this service has never heard of it.
    #[must_use]
    pub fn location(&self, volume: &VolumeLabel) -> Option<shown::Location> {
        Some(match &self.cartridges.get(volume)?.location {
            Location::Slot { library, element } => {
                shown::Location::Slot { library: library.clone(), element: *element }
            }
            Location::Drive(drive) => shown::Location::Drive { drive: drive.clone() },
            Location::Outside if self.libraries.values().any(|library| library.doubt) => shown::Location::Unknown,
            Location::Outside => shown::Location::Outside,
        })
    }

    /// How many drives work.
    #[must_use]
    pub fn drives_up(&self) -> usize {
        self.drives.values().filter(|drive| drive.usable == Usable::Up).count()
    }
}

fn show(name: &DriveId, drive: &Drive) -> shown::Drive {
    let (state, reason) = drive.usable.parts();
    let activity = match &drive.content {
        Content::Unknown => "unknown",
        Content::Empty => "empty",
        Content::Loaded { .. } => "loaded",
        Content::Bringing { .. } => "mounting",
        Content::Attaching { .. } => "loading",
        Content::Ready { idle_since: Some(_), .. } => "idle",
        Content::Ready { idle_since: None, .. } => drive.status.activity.as_str(),
        Content::Detaching { .. } => "unloading",
        Content::Returning { .. } => "unmounting",
    };
    shown::Drive {
        drive: name.clone(),
        mover: drive.mover.clone(),
        library: drive.library.clone(),
        serial: drive.status.serial.clone(),
        state,
        reason: reason.cloned(),
        since_us: Some(drive.usable_since.0),
        volume: drive.content.volume().cloned(),
        activity: activity.to_owned(),
        purpose: drive.grant.as_ref().map(|grant| grant.purpose.kind()),
        written_bytes: drive.status.written_bytes,
        read_bytes: drive.status.read_bytes,
        mounts: drive.status.mounts,
    }
}

impl Purpose {
    /// The kind of work it is.
    #[must_use]
    pub const fn kind(self) -> wire::admin::queue::Kind {
        use wire::admin::queue::Kind;
        match self {
            Self::Recall => Kind::Stage,
            Self::Migrate => Kind::Migrate,
            Self::Repack => Kind::Repack,
            Self::Verify => Kind::Verify,
        }
    }
}
