//! A fleet that carries out what it is told, in memory: disk volumes, a library, drives, tapes, and faults on demand.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use async_trait::async_trait;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use wire::{
    checksum::Sums,
    extent::{ByteRange, Extent, Place},
    id::{ChannelId, DriveId, FileId, LibraryId, MoverId, TransferId, VolumeLabel},
    mover::{
        Answer, Call, ChannelSpec, DriveHealth, DriveStatus, Fault, FaultKind, Job, Mounted, MoveTo, MoverStatus, Open,
        Outcome, PieceFault, Sink, Slot, SlotKind, Source, TapeEnd, VolumeFile, VolumeHealth, VolumeStatus, Written,
    },
};

use crate::{
    mounts::{Endpoint, Fleet, Moving},
    movers::{LinkState, MoverError, MoverView, Snapshot, TransferEvent},
};

pub(crate) fn mover(name: &str) -> MoverId {
    MoverId::new(name).expect("a name")
}

pub(crate) fn label(name: &str) -> VolumeLabel {
    VolumeLabel::new(name).expect("a label")
}

pub(crate) fn drive(number: usize) -> DriveId {
    DriveId::new(format!("drive{number}")).expect("a name")
}

fn library() -> LibraryId {
    LibraryId::new("vtl").expect("a name")
}

/// Everything the fleet has.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) disks: BTreeMap<VolumeLabel, (MoverId, u64)>,
    pub(crate) files: HashMap<VolumeFile, Vec<u8>>,
    pub(crate) confirmed: BTreeSet<VolumeFile>,
    pub(crate) tapes: BTreeMap<VolumeLabel, Tape>,
    drives: BTreeMap<DriveId, (Option<VolumeLabel>, bool)>,
    away: BTreeSet<MoverId>,
    /// Faults to come.
    pub(crate) bad_members: BTreeSet<(VolumeLabel, u64)>,
    pub(crate) bad_attaches: BTreeMap<DriveId, FaultKind>,
    pub(crate) failing_appends: Vec<FaultKind>,
    pub(crate) failing_removes: usize,
    /// Reads of tapes wait for this.
    pub(crate) gate: Option<Arc<Notify>>,
    /// What was asked, in words.
    pub(crate) log: Vec<String>,
    listening: HashMap<SocketAddr, mpsc::UnboundedSender<Sent>>,
    inboxes: HashMap<ChannelId, mpsc::UnboundedReceiver<Sent>>,
    connecting: HashMap<ChannelId, SocketAddr>,
}

#[derive(Default, Clone)]
pub(crate) struct Tape {
    pub(crate) labelled: bool,
    pub(crate) containers: u32,
    pub(crate) next_block: u64,
    pub(crate) members: BTreeMap<u64, Vec<u8>>,
    pub(crate) capacity_members: usize,
}

/// One piece on its way between movers; `None` for one that could not be read.
type Sent = (ByteRange, Result<Vec<u8>, Fault>);

pub(crate) struct FakeFleet {
    world: Arc<Mutex<World>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    next: AtomicU64,
}

impl FakeFleet {
    /// `m1` with two drives and `m1.disk0`, `m2` with `m2.disk0`, each of `disk_bytes`, and so many blank cartridges.
    pub(crate) fn new(drives: usize, cartridges: usize, disk_bytes: u64) -> Arc<Self> {
        let mut world = World::default();
        world.disks.insert(label("m1.disk0"), (mover("m1"), disk_bytes));
        world.disks.insert(label("m2.disk0"), (mover("m2"), disk_bytes));
        for number in 1..=drives {
            world.drives.insert(drive(number), (None, false));
        }
        for number in 1..=cartridges {
            let tape = Tape { capacity_members: 1000, ..Tape::default() };
            world.tapes.insert(label(&format!("PEN{number:03}L8")), tape);
        }
        let fleet = Arc::new(Self {
            world: Arc::new(Mutex::new(world)),
            snapshot: watch::Sender::new(Arc::default()),
            next: AtomicU64::new(1),
        });
        fleet.tell();
        fleet
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test panics while it holds the world")
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.world().log.iter().filter(|line| line.starts_with(what)).count()
    }

    pub(crate) fn set_away(&self, name: &str, away: bool) {
        if away {
            self.world().away.insert(mover(name));
        } else {
            self.world().away.remove(&mover(name));
        }
        self.tell();
    }

    /// Movers say how they are now.
    pub(crate) fn tell(&self) {
        let world = self.world();
        let mut movers = BTreeMap::new();
        let names: BTreeSet<MoverId> = world.disks.values().map(|(of, _)| of.clone()).collect();
        for name in names {
            let volumes = world.disks.iter().filter(|(_, (of, _))| *of == name).map(|(volume, (_, capacity))| {
                let used = world.files.iter().filter(|(file, _)| file.volume == *volume);
                VolumeStatus {
                    volume: volume.clone(),
                    capacity_bytes: *capacity,
                    used_bytes: used.map(|(_, data)| data.len() as u64).sum(),
                    reserved_bytes: 0,
                    health: VolumeHealth::Up,
                }
            });
            let drives = world.drives.iter().filter(|_| name == mover("m1")).map(|(drive, (volume, _))| DriveStatus {
                drive: drive.clone(),
                library: library(),
                serial: format!("S-{drive}"),
                volume: volume.clone(),
                activity: "idle".into(),
                health: DriveHealth::Up,
                written_bytes: 0,
                read_bytes: 0,
                mounts: 0,
            });
            let status = MoverStatus {
                volumes: volumes.collect(),
                drives: drives.collect(),
                libraries: if name == mover("m1") { vec![library()] } else { Vec::new() },
                ..MoverStatus::default()
            };
            let since = Instant::now();
            let link = if world.away.contains(&name) {
                LinkState::Away { since, why: "it was killed".into() }
            } else {
                LinkState::Up { since }
            };
            let address = "127.0.0.1:1".to_owned();
            movers.insert(name.clone(), MoverView { mover: name, address, link, drained: None, transfers: 0, status });
        }
        drop(world);
        self.snapshot.send_replace(Arc::new(Snapshot { movers }));
    }

    fn here(&self, mover: &MoverId) -> Result<(), MoverError> {
        if self.world().away.contains(mover) {
            return Err(MoverError::Away { mover: mover.clone(), why: "it was killed".into() });
        }
        Ok(())
    }
}

impl World {
    fn inventory(&self) -> Vec<Slot> {
        let in_drive: Vec<&VolumeLabel> = self.drives.values().filter_map(|(volume, _)| volume.as_ref()).collect();
        let storage = self.tapes.keys().filter(|volume| !in_drive.contains(volume)).enumerate();
        let storage = storage.map(|(element, volume)| Slot {
            element: element as u16,
            kind: SlotKind::Storage,
            volume: Some(volume.clone()),
            full: true,
            cleaning: false,
            exception: None,
        });
        let drives = self.drives.iter().enumerate().map(|(element, (name, (volume, _)))| Slot {
            element: 500 + element as u16,
            kind: SlotKind::Drive { serial: format!("S-{name}"), drive: Some(name.clone()) },
            volume: volume.clone(),
            full: volume.is_some(),
            cleaning: false,
            exception: None,
        });
        storage.chain(drives).collect()
    }

    fn answer(&mut self, call: Call) -> Result<Answer, Fault> {
        Ok(match call {
            Call::Status => Answer::Status(MoverStatus::default()),
            Call::Remove { files } => {
                if self.failing_removes > 0 {
                    self.failing_removes -= 1;
                    return Err(Fault::new(FaultKind::Busy, "not now"));
                }
                for file in &files {
                    self.files.remove(file);
                    self.log.push(format!("remove {} {}", file.volume, file.file));
                }
                Answer::Removed { removed: files, failed: Vec::new() }
            }
            Call::Files { volume, after, .. } => {
                let mut found: Vec<(FileId, u64, bool)> = self
                    .files
                    .iter()
                    .filter(|(file, _)| file.volume == volume && after.is_none_or(|after| file.file > after))
                    .map(|(file, data)| (file.file, data.len() as u64, true))
                    .collect();
                found.sort();
                found.truncate(1);
                Answer::Files { files: found }
            }
            Call::Inventory { .. } => Answer::Inventory { slots: self.inventory() },
            Call::Move { volume, to, .. } => {
                self.log.push(format!("move {volume}"));
                for place in self.drives.values_mut().filter(|(held, _)| held.as_ref() == Some(&volume)) {
                    assert!(!place.1, "threaded tape is never pulled");
                    place.0 = None;
                }
                if let MoveTo::Drive(drive) = to {
                    let place = self.drives.get_mut(&drive).expect("a known drive");
                    assert_eq!(place.0, None, "the drive is empty");
                    place.0 = Some(volume);
                }
                Answer::Done
            }
            Call::Attach { drive, volume, label_blank, .. } => {
                self.log.push(format!("attach {volume} in {drive}"));
                if let Some(kind) = self.bad_attaches.get(&drive) {
                    return Err(Fault::new(*kind, format!("{drive} smokes")));
                }
                let place = self.drives.get_mut(&drive).expect("a known drive");
                assert_eq!(place.0.as_ref(), Some(&volume));
                place.1 = true;
                let tape = self.tapes.get_mut(&volume).expect("a known tape");
                let labelled = !tape.labelled && label_blank;
                if labelled {
                    tape.labelled = true;
                    tape.next_block = 4;
                }
                if !tape.labelled {
                    return Err(Fault::new(FaultKind::WrongVolume, format!("{volume} is blank")));
                }
                Answer::Attached(Mounted {
                    volume,
                    labelled,
                    last_container: tape.containers,
                    next_block: tape.next_block,
                    capacity_bytes: 1 << 30,
                    remaining_bytes: 1 << 29,
                    read_only: None,
                    worm: false,
                    alerts: Vec::new(),
                })
            }
            Call::Scan { .. } => return Err(Fault::new(FaultKind::BadRequest, "no tape is listed here")),
            Call::Detach { drive } => {
                self.drives.get_mut(&drive).expect("a known drive").1 = false;
                Answer::Done
            }
        })
    }

    fn read(&mut self, extent: &Extent, sums: Option<&Sums>) -> Result<Vec<u8>, Fault> {
        let length = extent.length_bytes as usize;
        let data = match extent.place {
            Place::Disk { file, offset_bytes } => {
                let of = VolumeFile { volume: extent.volume.clone(), file };
                let missing = || Fault::new(FaultKind::NotFound, format!("no file {file} on {}", extent.volume));
                let data = self.files.get(&of).ok_or_else(missing)?;
                data[offset_bytes as usize..][..length].to_vec()
            }
            Place::Tape { block, .. } => {
                self.log.push(format!("read {} {block}", extent.volume));
                let mounted =
                    self.drives.values().any(|(volume, threaded)| *threaded && volume.as_ref() == Some(&extent.volume));
                assert!(mounted, "{} is read only when it is mounted", extent.volume);
                let tape = &self.tapes[&extent.volume];
                let mut data = tape.members.get(&block).cloned().unwrap_or_default();
                if self.bad_members.contains(&(extent.volume.clone(), block)) {
                    data.iter_mut().for_each(|byte| *byte ^= 1);
                }
                data
            }
        };
        match sums {
            Some(sums) if Sums::of(&data) != *sums => {
                Err(Fault::new(FaultKind::Corrupt, format!("bytes on {} are not what they were", extent.volume)))
            }
            _ => Ok(data),
        }
    }
}

#[async_trait]
impl Fleet for FakeFleet {
    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    fn mover_of(&self, volume: &VolumeLabel) -> Option<MoverId> {
        self.world().disks.get(volume).map(|(mover, _)| mover.clone())
    }

    async fn call(&self, mover: &MoverId, what: Call) -> Result<Answer, MoverError> {
        self.here(mover)?;
        let removes = matches!(what, Call::Remove { .. });
        let answer = self.world().answer(what);
        if removes {
            self.tell();
        }
        answer.map_err(|fault| MoverError::Refused { mover: mover.clone(), fault })
    }

    async fn open_channel(&self, mover: &MoverId, spec: ChannelSpec) -> Result<Box<dyn Endpoint>, MoverError> {
        self.here(mover)?;
        let id = ChannelId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut world = self.world();
        let address = match spec.open {
            Open::Listen { .. } => {
                let address = SocketAddr::from(([127, 0, 0, 1], 10_000 + id.0 as u16));
                let (sender, inbox) = mpsc::unbounded_channel();
                world.listening.insert(address, sender);
                world.inboxes.insert(id, inbox);
                Some(address)
            }
            Open::Connect { to } => {
                world.connecting.insert(id, to[0]);
                None
            }
            Open::Http { .. } => panic!("services wait for no client's body"),
        };
        Ok(Box::new(FakeEndpoint { id, address }))
    }

    async fn start(&self, mover: &MoverId, job: Job) -> Result<Box<dyn Moving>, MoverError> {
        self.here(mover)?;
        let id = TransferId(self.next.fetch_add(1, Ordering::Relaxed));
        let (events, receiver) = mpsc::unbounded_channel();
        let (cancel, cancelled) = oneshot::channel();
        let run = run(Arc::clone(&self.world), mover.clone(), job, events.clone());
        let away = mover.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = run => {}
                Ok(()) = cancelled => {
                    let fault = Fault::new(FaultKind::Cancelled, "cancelled");
                    let error = MoverError::Refused { mover: away, fault };
                    let _ = events.send(TransferEvent::Failed { error, outcome: Outcome::default() });
                }
            }
        });
        Ok(Box::new(FakeMoving { id, receiver, cancel: Mutex::new(Some(cancel)) }))
    }

    fn confirm(&self, files: Vec<VolumeFile>) {
        self.world().confirmed.extend(files);
        self.tell();
    }

    fn discard(&self, files: Vec<VolumeFile>) {
        let mut world = self.world();
        for file in files {
            world.files.remove(&file);
        }
        drop(world);
        self.tell();
    }
}

struct FakeEndpoint {
    id: ChannelId,
    address: Option<SocketAddr>,
}

impl Endpoint for FakeEndpoint {
    fn id(&self) -> ChannelId {
        self.id
    }

    fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

struct FakeMoving {
    id: TransferId,
    receiver: mpsc::UnboundedReceiver<TransferEvent>,
    cancel: Mutex<Option<oneshot::Sender<()>>>,
}

#[async_trait]
impl Moving for FakeMoving {
    fn id(&self) -> TransferId {
        self.id
    }

    async fn next(&mut self) -> Option<TransferEvent> {
        self.receiver.recv().await
    }

    fn cancel(&self) {
        if let Some(cancel) = self.cancel.lock().expect("not poisoned").take() {
            let _ = cancel.send(());
        }
    }

    fn settle(self: Box<Self>) {}
}

async fn run(world: Arc<Mutex<World>>, mover: MoverId, job: Job, events: mpsc::UnboundedSender<TransferEvent>) {
    let pieces = match job.source {
        Source::Extents(pieces) => {
            let tape = pieces.iter().any(|piece| matches!(piece.extent.place, Place::Tape { .. }));
            let gate = world.lock().expect("world").gate.clone().filter(|_| tape);
            if let Some(gate) = gate {
                gate.notified().await;
            }
            let mut sent = Vec::new();
            for piece in pieces {
                let data = world.lock().expect("world").read(&piece.extent, piece.sums.as_ref());
                sent.push((ByteRange::new(piece.offset_bytes, piece.extent.length_bytes).expect("small"), data));
            }
            sent
        }
        Source::Channel { channel, .. } => {
            let mut inbox = world.lock().expect("world").inboxes.remove(&channel).expect("an open channel");
            let mut sent = Vec::new();
            while let Some(piece) = inbox.recv().await {
                sent.push(piece);
            }
            sent
        }
    };
    let mut outcome = Outcome::default();
    for (range, data) in &pieces {
        match data {
            Ok(data) => outcome.bytes += data.len() as u64,
            Err(fault) => outcome.failed.push(PieceFault { offset_bytes: range.offset(), fault: fault.clone() }),
        }
    }
    let end = match job.sink {
        Sink::Files(files) => {
            for file in files {
                let data = gather(&pieces, file.range);
                let Some(data) = data else { continue };
                let sums = Sums::of(&data);
                let stored = VolumeFile { volume: file.volume.clone(), file: file.file };
                let place = Place::Disk { file: file.file, offset_bytes: 0 };
                let extent = Extent { volume: file.volume, place, length_bytes: data.len() as u64 };
                world.lock().expect("world").files.insert(stored, data);
                let _ = events.send(TransferEvent::Durable(vec![Written { range: file.range, extent, sums }]));
            }
            Ok(outcome)
        }
        Sink::Tape(append) => {
            let mut world = world.lock().expect("world");
            world.log.push(format!("append {} {}", append.volume, append.members.len()));
            append_container(&mut world, &append, &pieces, outcome)
        }
        Sink::Channel { channel, .. } => {
            let mut world = world.lock().expect("world");
            let address = world.connecting[&channel];
            let sender = world.listening.remove(&address).expect("somebody listens");
            for piece in pieces {
                let _ = sender.send(piece);
            }
            Ok(outcome)
        }
        Sink::Verify => Ok(outcome),
        Sink::File(_) => Err((FaultKind::BadRequest, outcome)),
    };
    let _ = events.send(match end {
        Ok(outcome) => TransferEvent::Finished(outcome),
        Err((kind, outcome)) => {
            let error = MoverError::Refused { mover, fault: Fault::new(kind, format!("{kind:?}")) };
            TransferEvent::Failed { error, outcome }
        }
    });
}

/// The bytes of a range, if they all came.
fn gather(pieces: &[Sent], range: ByteRange) -> Option<Vec<u8>> {
    let mut data = vec![0; range.length() as usize];
    let mut came = 0;
    for (piece, bytes) in pieces {
        let Some(part) = piece.intersection(range) else { continue };
        let bytes = bytes.as_ref().ok()?;
        let (to, from) = ((part.offset() - range.offset()) as usize, (part.offset() - piece.offset()) as usize);
        data[to..][..part.length() as usize].copy_from_slice(&bytes[from..][..part.length() as usize]);
        came += part.length();
    }
    (came == range.length()).then_some(data)
}

fn append_container(
    world: &mut World,
    append: &wire::mover::Append,
    pieces: &[Sent],
    mut outcome: Outcome,
) -> Result<Outcome, (FaultKind, Outcome)> {
    if let Some(kind) = world.failing_appends.pop() {
        return Err((kind, outcome));
    }
    if !outcome.failed.is_empty() {
        return Err((FaultKind::Corrupt, outcome));
    }
    let tape = world.tapes.get_mut(&append.volume).expect("a known tape");
    assert_eq!(append.container, tape.containers + 1, "containers follow each other");
    let mut full = false;
    for member in &append.members {
        if tape.members.len() >= tape.capacity_members {
            full = true;
            break;
        }
        let data = gather(pieces, member.range).expect("all bytes came");
        assert_eq!(Sums::of(&data).crc32c, member.sums.crc32c, "members have the sums they are said to have");
        let block = tape.next_block;
        tape.next_block += 1;
        let place = Place::Tape { container: append.container, block, skip_bytes: 512 };
        let extent = Extent { volume: append.volume.clone(), place, length_bytes: data.len() as u64 };
        outcome.written.push(Written { range: member.range, extent, sums: Sums::of(&data) });
        tape.members.insert(block, data);
    }
    if !outcome.written.is_empty() {
        tape.containers += 1;
        tape.next_block += 1;
    }
    outcome.tape =
        Some(TapeEnd { container: tape.containers, next_block: tape.next_block, remaining_bytes: 1 << 29, full });
    Ok(outcome)
}
