//! The movers of this site, as the gateway sees them: one handle for all, whether they run in this process or far away.
//!
//! - [`Movers`]: asks, opens data endpoints, starts transfers, confirms and discards files.
//! - [`Transfer`], [`Channel`]: what was started and opened; dropping one ends it and cleans up behind it.
//! - [`Snapshot`]: who is there and how they are.
//! - [`Neighbours`]: those of this process, which a door reads from without a connection.
//! - `link`: the owner of one mover's connection; `table`: what is under way on it, without I/O.
//! - `janitor`: files nobody confirmed; `registrar`: disk volumes become known to the catalogue.
//!
//! Owns the connections. Talks `wire::mover` below, and to the catalogue about files nobody confirmed. Never sees names,
//! users or policy.
//!
//! Invariant: a file that this gateway made and that is in no bitfile and no cut upload of the catalogue is removed,
//! sooner or later; one that is in the catalogue is never removed from here.

mod channel;
mod error;
mod flying;
mod janitor;
mod link;
mod neighbour;
mod registrar;
mod snapshot;
mod table;
mod transfer;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use catalog::{Catalog, Medium};
use daemon::{
    Shutdown,
    tls::{HotCredential, Trust},
};
use tokio::sync::{mpsc, oneshot, watch};
use wire::{
    id::{ChannelId, Epoch, GatewayId, MoverId, TransferId, VolumeLabel},
    mover::{Answer, Call, ChannelSpec, FaultKind, HttpAnswer, Job, MoverStatus, Open, Sink, VolumeFile},
};

pub use self::{
    channel::Channel,
    error::MoverError,
    neighbour::{Neighbour, Neighbours},
    snapshot::{LinkState, MoverView, Snapshot},
    transfer::{Transfer, TransferEvent},
};
use self::{flying::Flying, link::Command};
use crate::config::{MoverConfig, StorageConfig};

/// How long a mover may take to open a data endpoint.
const OPEN_LIMIT: Duration = Duration::from_secs(15);

/// What is needed to reach the movers.
pub struct Options {
    /// This gateway.
    pub gateway: GatewayId,
    /// Which run of it: an older one is refused by the movers.
    pub epoch: Epoch,
    /// The movers.
    pub movers: Vec<MoverConfig>,
    /// Which volumes belong to which storage class.
    pub storage: StorageConfig,
    /// The gateway's certificate of the site's authority.
    pub credential: HotCredential,
    /// The site's authority, alone.
    pub trust: Trust,
    /// How long a mover may be away before transfers on it fail.
    pub grace: Duration,
    /// How long files that nobody confirmed are kept in case another gateway is about to publish them.
    pub orphan_grace: Duration,
}

/// All movers of the site. Cheap to clone.
#[derive(Clone)]
pub struct Movers(Arc<Inner>);

struct Inner {
    catalog: Catalog,
    links: BTreeMap<MoverId, Link>,
    shared: Shared,
    janitor: mpsc::UnboundedSender<janitor::Suspects>,
}

/// What the handle keeps of a link.
struct Link {
    // Not bounded: every command belongs to a transfer, a channel or a call, and those are bounded by their owners.
    commands: mpsc::UnboundedSender<Command>,
    up: Arc<AtomicBool>,
    load: Arc<AtomicUsize>,
}

/// What links, janitor and handles have in common.
#[derive(Clone)]
struct Shared {
    snapshot: watch::Sender<Arc<Snapshot>>,
    homes: Arc<Mutex<HashMap<VolumeLabel, MoverId>>>,
    flying: Flying,
}

impl Shared {
    fn home(&self, volume: &VolumeLabel) -> Option<MoverId> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).get(volume).cloned()
    }

    /// Notes what a mover said of itself.
    fn note(&self, mover: &MoverId, change: impl FnOnce(&mut MoverView)) {
        self.snapshot.send_modify(|snapshot| {
            if let Some(view) = Arc::make_mut(snapshot).movers.get_mut(mover) {
                change(view);
            }
        });
    }
}

impl Movers {
    /// Starts to connect to every mover and keeps at it until `shutdown`.
    ///
    /// # Errors
    ///
    /// If the catalogue cannot say which volumes there are.
    pub async fn connect(
        options: Options,
        catalog: Catalog,
        shutdown: &Shutdown,
    ) -> Result<Self, catalog::CatalogError> {
        let mut homes = HashMap::new();
        for volume in catalog.volumes().await? {
            if let Medium::Disk { mover, .. } = volume.medium {
                homes.insert(volume.label, mover);
            }
        }
        let now = Instant::now();
        let view = |mover: &MoverConfig| MoverView {
            mover: mover.name.clone(),
            address: mover.address.clone(),
            link: LinkState::Away { since: now, why: "not yet connected".to_owned() },
            drained: None,
            transfers: 0,
            status: MoverStatus::default(),
        };
        let movers = options.movers.iter().map(|mover| (mover.name.clone(), view(mover))).collect();
        let shared = Shared {
            snapshot: watch::Sender::new(Arc::new(Snapshot { movers })),
            homes: Arc::new(Mutex::new(homes)),
            flying: Flying::default(),
        };
        let (janitor, suspects) = mpsc::unbounded_channel();
        let (statuses, registrar) = registrar::Registrar::new(catalog.clone(), options.storage.clone(), shared.clone());
        let options = Arc::new(options);
        let mut links = BTreeMap::new();
        for mover in &options.movers {
            let (commands, receiver) = mpsc::unbounded_channel();
            let link = Link { commands, up: Arc::default(), load: Arc::default() };
            let owner = link::Owner {
                mover: mover.clone(),
                options: Arc::clone(&options),
                shared: shared.clone(),
                commands: receiver,
                up: Arc::clone(&link.up),
                load: Arc::clone(&link.load),
                janitor: janitor.clone(),
                statuses: statuses.clone(),
                shutdown: shutdown.clone(),
            };
            shutdown.spawn_until_cut(owner.run());
            links.insert(mover.name.clone(), link);
        }
        let movers = Self(Arc::new(Inner { catalog, links, shared, janitor }));
        let keeper = janitor::Janitor::new(movers.clone(), options.orphan_grace, suspects);
        let (stop, until) = (shutdown.clone(), shutdown.clone());
        shutdown.spawn_until_cut(async move { keeper.run(&stop).await });
        shutdown.spawn_until_cut(async move { registrar.run(&until).await });
        Ok(movers)
    }

    /// Who is there and how they are, now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.shared.snapshot.borrow())
    }

    /// Tells of every change of [`Movers::snapshot`].
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.0.shared.snapshot.subscribe()
    }

    /// The mover that a disk volume belongs to, whether it is there now or not.
    #[must_use]
    pub fn mover_of(&self, volume: &VolumeLabel) -> Option<MoverId> {
        self.0.shared.home(volume)
    }

    /// How many transfers this gateway has under way on a mover.
    #[must_use]
    pub fn load(&self, mover: &MoverId) -> usize {
        self.0.links.get(mover).map_or(0, |link| link.load.load(Ordering::Relaxed))
    }

    /// Asks a mover a short question. Long ones (loading a cartridge) take as long as they take.
    ///
    /// # Errors
    ///
    /// [`MoverError`]; after [`MoverError::Away`] it is not known whether the call was carried out.
    pub async fn call(&self, mover: &MoverId, what: Call) -> Result<Answer, MoverError> {
        let link = self.connected(mover)?;
        let (reply, answer) = oneshot::channel();
        let _ = link.commands.send(Command::Call { what, reply });
        answer.await.unwrap_or_else(|_| Err(MoverError::away(mover, "the gateway is going down")))
    }

    /// Opens a data endpoint. For one that listens, returns when its address is known; for one that connects, at once:
    /// a peer that cannot be reached fails the first transfer.
    ///
    /// # Errors
    ///
    /// [`MoverError`].
    pub async fn open_channel(&self, mover: &MoverId, spec: ChannelSpec) -> Result<Channel, MoverError> {
        let link = self.connected(mover)?;
        let id = ChannelId(self.next_id(mover).await?);
        let (ready, waits) = oneshot::channel();
        let connects = matches!(spec.open, Open::Connect { .. });
        let lost = Arc::new(AtomicBool::new(false));
        let channel = Channel::new(id, mover.clone(), Arc::clone(&lost), link.commands.clone());
        let _ = link.commands.send(Command::Open { channel: id, spec, ready, lost });
        if connects {
            return Ok(channel);
        }
        match tokio::time::timeout(OPEN_LIMIT, waits).await {
            Ok(Ok(Ok(address))) => Ok(channel.at(address)),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(MoverError::away(mover, "the gateway is going down")),
            Err(_) => Err(MoverError::away(mover, format_args!("no data endpoint within {} s", OPEN_LIMIT.as_secs()))),
        }
    }

    /// Starts a transfer. Files that the job's sink makes are in this transfer's care: they are confirmed or removed by
    /// whoever takes the outcome ([`Transfer::settle`]), or removed when the transfer is dropped.
    ///
    /// # Errors
    ///
    /// [`MoverError`] if the mover is not there; what goes wrong later comes as an event.
    pub async fn start(&self, mover: &MoverId, job: Job) -> Result<Transfer, MoverError> {
        let link = self.connected(mover)?;
        let id = TransferId(self.next_id(mover).await?);
        let files = files_of(&job.sink);
        let care = self.0.shared.flying.take(files.clone());
        let (events, receiver) = mpsc::unbounded_channel();
        let transfer = Transfer::new(id, mover.clone(), files, receiver, link.commands.clone());
        let _ = link.commands.send(Command::Start { transfer: id, job: Box::new(job), events, care });
        Ok(transfer)
    }

    /// These files are in the catalogue: their movers keep them. In batches, off the caller's path; what is lost with a
    /// connection is made up for after the next one.
    pub fn confirm(&self, files: Vec<VolumeFile>) {
        for (mover, files) in self.by_mover(files) {
            if let Some(link) = self.0.links.get(&mover) {
                let _ = link.commands.send(Command::Confirm { files });
            }
        }
    }

    /// What the HTTP client of a data endpoint hears, behind its body. Lost if the mover is away, which then says something
    /// itself.
    pub fn answer(&self, mover: &MoverId, channel: ChannelId, answer: HttpAnswer) {
        if let Some(link) = self.0.links.get(mover) {
            let _ = link.commands.send(Command::Answer { channel, answer });
        }
    }

    /// Nobody needs these files: they are removed, unless the catalogue knows them after all. In batches, off the
    /// caller's path.
    pub fn discard(&self, files: Vec<VolumeFile>) {
        if !files.is_empty() {
            let _ = self.0.janitor.send(janitor::Suspects { files, patient: false });
        }
    }

    /// Gives a mover nothing new, for a reason, or makes it available again. What moves goes on. Not kept over a restart.
    ///
    /// # Errors
    ///
    /// [`MoverError::Unknown`].
    pub fn drain(&self, mover: &MoverId, drained: Option<String>) -> Result<(), MoverError> {
        if !self.0.links.contains_key(mover) {
            return Err(MoverError::Unknown { mover: mover.clone() });
        }
        self.0.shared.note(mover, |view| view.drained = drained);
        Ok(())
    }

    /// Returns when every mover has answered, or has been tried for `limit`: doors open with what is there.
    pub async fn settled(&self, limit: Duration) {
        let mut watched = self.watch();
        let all_up = |snapshot: &Arc<Snapshot>| snapshot.movers.values().all(MoverView::is_up);
        let _ = tokio::time::timeout(limit, watched.wait_for(all_up)).await;
    }

    fn connected(&self, mover: &MoverId) -> Result<&Link, MoverError> {
        let link = self.0.links.get(mover).ok_or_else(|| MoverError::Unknown { mover: mover.clone() })?;
        if link.up.load(Ordering::Acquire) {
            return Ok(link);
        }
        let why = match self.snapshot().get(mover).map(|view| view.link.clone()) {
            Some(LinkState::Away { why, .. }) => why,
            _ => "it is connecting".to_owned(),
        };
        Err(MoverError::Away { mover: mover.clone(), why })
    }

    async fn next_id(&self, mover: &MoverId) -> Result<u64, MoverError> {
        self.0.catalog.next_id().await.map_err(|error| MoverError::Refused {
            mover: mover.clone(),
            fault: wire::mover::Fault::new(FaultKind::Busy, format_args!("no identifier could be had: {error}")),
        })
    }

    fn by_mover(&self, files: Vec<VolumeFile>) -> BTreeMap<MoverId, Vec<VolumeFile>> {
        let mut sorted: BTreeMap<MoverId, Vec<VolumeFile>> = BTreeMap::new();
        for file in files {
            if let Some(mover) = self.mover_of(&file.volume) {
                sorted.entry(mover).or_default().push(file);
            }
        }
        sorted
    }
}

/// The files that a job makes.
fn files_of(sink: &Sink) -> Vec<VolumeFile> {
    match sink {
        Sink::File(file) => vec![VolumeFile { volume: file.volume.clone(), file: file.file }],
        Sink::Files(pieces) => {
            pieces.iter().map(|piece| VolumeFile { volume: piece.volume.clone(), file: piece.file }).collect()
        }
        Sink::Tape(_) | Sink::Channel { .. } | Sink::Verify => Vec::new(),
    }
}
