//! A site for tests: an authority, movers, and a gateway that does what it is told.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::BytesMut;
use daemon::{
    Clock, Shutdown,
    config::ByteSize,
    pki::{Holder, SiteCa},
    role::Role,
    tls::{self, Clients, Expect, HotCredential, Trust},
    trust::{TrustOptions, TrustStore},
};
use mover::{Libraries, Mover, MoverConfig, MoverTls, config::VolumeConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use wire::{
    checksum::{ExtraSums, Sums},
    extent::{ByteRange, Extent, Place},
    id::{BitfileId, ChannelId, Epoch, FileId, GatewayId, MoverId, TransferId, VolumeLabel},
    mover::{
        Answer, Call, ChannelSpec, Eof, Event, Fault, Framing, Job, NewFile, Open, Outcome, PROTOCOL_VERSION, Piece,
        Request, Security, Sink, Source, VolumeFile, frame,
    },
};

/// Only a failure waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The volume every mover of these tests has.
pub(crate) const VOLUME: &str = "m1.d0";

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A number nobody had before.
pub(crate) fn number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn label(name: &str) -> VolumeLabel {
    VolumeLabel::new(name).expect("a good label")
}

pub(crate) fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).expect("small")
}

/// Bytes that differ from each other in every place that matters.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// An authority and a folder.
pub(crate) struct Site {
    pub(crate) ca: SiteCa,
    pub(crate) folder: tempfile::TempDir,
}

/// A mover that runs.
pub(crate) struct Running {
    pub(crate) mover: Mover,
    pub(crate) shutdown: Shutdown,
}

impl Site {
    pub(crate) fn new() -> Self {
        let ca = SiteCa::in_memory("test", &Clock::real()).expect("a new authority");
        Self { ca, folder: tempfile::tempdir().expect("a folder") }
    }

    /// A site whose volumes are in memory, where the speed of a disk is of no interest.
    pub(crate) fn in_memory() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        Self { folder, ..Self::new() }
    }

    pub(crate) fn credential(&self, holder: &Holder<'_>) -> HotCredential {
        let issued = self.ca.issue(holder, &Clock::real()).expect("issued");
        HotCredential::fixed(issued.credential().expect("usable"))
    }

    pub(crate) fn part(&self, role: Role, name: &str) -> HotCredential {
        self.credential(&Holder::Part { role, name, hosts: &["127.0.0.1".to_owned()] })
    }

    pub(crate) fn trust(&self) -> Trust {
        let options = TrustOptions::default();
        Trust::fixed(TrustStore::from_pem(self.ca.certificate_pem().as_bytes(), options).expect("an authority"))
    }

    pub(crate) fn config(&self) -> MoverConfig {
        let mut config = MoverConfig { name: MoverId::new("m1").expect("a name"), ..MoverConfig::default() };
        config.control.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.limits.memory = ByteSize::mib(16);
        config.limits.buffer = ByteSize::kib(256);
        config.limits.pipeline = ByteSize::mib(1);
        config.volumes = vec![self.volume(VOLUME, None)];
        config
    }

    pub(crate) fn volume(&self, name: &str, capacity: Option<u64>) -> VolumeConfig {
        VolumeConfig {
            label: label(name),
            folder: self.volume_folder(name),
            capacity: capacity.map(ByteSize::new),
            keep_free: ByteSize::default(),
            uuid: None,
            create: true,
            read_only: false,
        }
    }

    pub(crate) fn volume_folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn start(&self, config: MoverConfig) -> Running {
        let shutdown = Shutdown::new(Duration::from_secs(10));
        let tls = MoverTls {
            credential: self.part(Role::Mover, config.name.as_str()),
            site: self.trust(),
            clients: self.trust(),
        };
        let mover = Mover::start(config, tls, &Libraries::default(), &shutdown).await.expect("it starts");
        Running { mover, shutdown }
    }

    /// A mover as [`Site::config`] says, and a gateway connected to it.
    pub(crate) async fn pair(&self) -> (Running, Gateway) {
        let running = self.start(self.config()).await;
        let gateway = self.gateway(&running, "gw1", 1).await;
        (running, gateway)
    }

    pub(crate) async fn gateway(&self, running: &Running, name: &str, epoch: u64) -> Gateway {
        let mut gateway = self.connect(running, name).await;
        gateway.hello(epoch).await;
        let welcome = gateway.next().await;
        assert!(matches!(welcome, Event::Welcome { .. }), "{welcome:?}");
        gateway
    }

    /// A connection on which nothing was said yet.
    pub(crate) async fn connect(&self, running: &Running, name: &str) -> Gateway {
        let credential = self.part(Role::Gateway, name);
        let expect = Expect::Role { role: Role::Mover, name: None };
        let config = tls::client_config(Some(&credential), &self.trust(), &expect, &[]);
        let socket = TcpStream::connect(running.mover.address()).await.expect("it listens");
        let stream = tls::connect(&config, "127.0.0.1", socket).await.expect("a handshake");
        Gateway {
            name: GatewayId::new(name).expect("a name"),
            stream,
            buffer: BytesMut::new(),
            waiting: VecDeque::new(),
        }
    }

    /// The other end of a site's own data connection.
    pub(crate) fn peer_tls(&self) -> (HotCredential, Clients) {
        (self.part(Role::Mover, "m2"), Clients::Required(self.trust()))
    }
}

impl Running {
    /// Ends it without a word, as a crash does to everything but the kernel's files.
    pub(crate) async fn kill(self) {
        self.shutdown.cut();
        let _ = tokio::time::timeout(PATIENCE, self.shutdown.finish()).await.expect("it ends");
    }
}

/// A gateway.
pub(crate) struct Gateway {
    pub(crate) name: GatewayId,
    stream: tokio_rustls::client::TlsStream<TcpStream>,
    buffer: BytesMut,
    waiting: VecDeque<Event>,
}

impl Gateway {
    pub(crate) async fn hello(&mut self, epoch: u64) {
        let gateway = self.name.clone();
        self.say(&Request::Hello { version: PROTOCOL_VERSION, gateway, epoch: Epoch(epoch) }).await;
    }

    pub(crate) async fn say(&mut self, request: &Request) {
        let mut bytes = BytesMut::new();
        frame::encode(request, &mut bytes).expect("it fits");
        self.write(&bytes).await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the mover reads");
        self.stream.flush().await.expect("the mover reads");
    }

    /// The next event that is no status; `None` when the mover has closed.
    pub(crate) async fn heard(&mut self) -> Option<Event> {
        loop {
            while let Some(body) = frame::split(&mut self.buffer).expect("good frames") {
                match frame::decode::<Event>(&body).expect("a good event") {
                    Event::Status(_) => {}
                    event => return Some(event),
                }
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.buffer));
            match read.await.expect("the mover says something") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Event {
        self.heard().await.expect("the mover is there")
    }

    /// Waits for what `want` picks; other events are kept for later.
    pub(crate) async fn wait<T>(&mut self, mut want: impl FnMut(&Event) -> Option<T>) -> T {
        if let Some((position, found)) =
            self.waiting.iter().enumerate().find_map(|(position, event)| want(event).map(|found| (position, found)))
        {
            self.waiting.remove(position);
            return found;
        }
        loop {
            let event = self.next().await;
            match want(&event) {
                Some(found) => return found,
                None => self.waiting.push_back(event),
            }
        }
    }

    pub(crate) async fn call(&mut self, what: Call) -> Result<Answer, Fault> {
        let call = number();
        self.say(&Request::Call { call, what }).await;
        self.wait(|event| match event {
            Event::Reply { call: answered, answer } if *answered == call => Some((**answer).clone()),
            _ => None,
        })
        .await
    }

    /// Opens a channel; its address if it listens.
    pub(crate) async fn open(&mut self, spec: ChannelSpec) -> Result<(ChannelId, Option<SocketAddr>), Fault> {
        let channel = ChannelId(number());
        self.say(&Request::OpenChannel { channel, spec }).await;
        self.wait(|event| match event {
            Event::ChannelReady { channel: ready, address } if *ready == channel => Some(Ok((channel, *address))),
            Event::ChannelClosed { channel: closed, fault } if *closed == channel => {
                Some(Err(fault.clone().expect("a reason")))
            }
            _ => None,
        })
        .await
    }

    pub(crate) async fn listen(&mut self, framing: Framing) -> (ChannelId, SocketAddr) {
        let (channel, address) = self.open(listening(framing)).await.expect("it opens");
        (channel, address.expect("it listens"))
    }

    pub(crate) async fn start(&mut self, source: Source, sink: Sink) -> TransferId {
        self.start_job(Job { source, sink, extra_sums: ExtraSums::default(), rate_limit: None }).await
    }

    pub(crate) async fn start_job(&mut self, job: Job) -> TransferId {
        let transfer = TransferId(number());
        self.say(&Request::Start { transfer, job: Box::new(job) }).await;
        transfer
    }

    /// Waits for the end of a transfer, and acknowledges it.
    pub(crate) async fn end(&mut self, transfer: TransferId) -> Result<Outcome, (Fault, Outcome)> {
        let end = self
            .wait(|event| match event {
                Event::Finished { transfer: ended, outcome } if *ended == transfer => Some(Ok(outcome.clone())),
                Event::Failed { transfer: ended, fault, outcome } if *ended == transfer => {
                    Some(Err((fault.clone(), outcome.clone())))
                }
                _ => None,
            })
            .await;
        self.say(&Request::Acknowledge { transfer }).await;
        end
    }

    pub(crate) async fn run(&mut self, source: Source, sink: Sink) -> Result<Outcome, (Fault, Outcome)> {
        let transfer = self.start(source, sink).await;
        self.end(transfer).await
    }

    /// Everything that was said to be durable for a transfer, so far.
    pub(crate) fn durable(&self, transfer: TransferId) -> Vec<wire::mover::Written> {
        let of = |event: &Event| match event {
            Event::Durable { transfer: said, written } if *said == transfer => Some(written.clone()),
            _ => None,
        };
        self.waiting.iter().filter_map(of).flatten().collect()
    }

    /// Puts a file on the mover's volume, and gives its number.
    pub(crate) async fn put(&mut self, data: &[u8]) -> FileId {
        let (channel, address) = self.listen(Framing::Stream).await;
        let file = FileId(number());
        let transfer = self.start(from(channel, None), Sink::File(new_file(file))).await;
        let mut socket = TcpStream::connect(address).await.expect("it listens");
        socket.write_all(data).await.expect("it reads");
        drop(socket);
        let outcome = self.end(transfer).await.expect("it is stored");
        assert_eq!(outcome.bytes, data.len() as u64);
        self.say(&Request::CloseChannel { channel }).await;
        file
    }

    /// Files on a volume, by number: length and whether confirmed.
    pub(crate) async fn files(&mut self, volume: &str) -> Vec<(FileId, u64, bool)> {
        match self.call(Call::Files { volume: label(volume), after: None, limit: 1000 }).await {
            Ok(Answer::Files { files }) => files,
            other => panic!("{other:?}"),
        }
    }

    /// The status of a volume.
    pub(crate) async fn volume(&mut self, name: &str) -> wire::mover::VolumeStatus {
        match self.call(Call::Status).await {
            Ok(Answer::Status(status)) => {
                status.volumes.into_iter().find(|volume| volume.volume.as_str() == name).expect("it is there")
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn listening(framing: Framing) -> ChannelSpec {
    ChannelSpec {
        open: Open::Listen { peer: Some([127, 0, 0, 1].into()), ipv6: false },
        framing,
        streams: 1,
        security: Security::Clear,
        buffer_bytes: None,
        open_limit_ms: 20_000,
        stall_limit_ms: 20_000,
    }
}

pub(crate) fn connecting(framing: Framing, to: SocketAddr, streams: u16) -> ChannelSpec {
    ChannelSpec { open: Open::Connect { to: vec![to] }, streams, ..listening(framing) }
}

pub(crate) fn from(channel: ChannelId, expected: Option<ByteRange>) -> Source {
    Source::Channel { channel, expected }
}

pub(crate) fn to(channel: ChannelId) -> Sink {
    Sink::Channel { channel, eof: Eof::Own }
}

pub(crate) fn new_file(file: FileId) -> NewFile {
    NewFile { volume: label(VOLUME), file, base_bytes: 0, reserve_bytes: 0, have: Vec::new() }
}

/// A piece of a disk file.
pub(crate) fn piece(offset_bytes: u64, file: FileId, file_offset: u64, length_bytes: u64, sums: Option<Sums>) -> Piece {
    let place = Place::Disk { file, offset_bytes: file_offset };
    let extent = Extent { volume: label(VOLUME), place, length_bytes };
    Piece { offset_bytes, extent, bitfile: BitfileId(1), sums }
}

pub(crate) fn volume_file(file: FileId) -> VolumeFile {
    VolumeFile { volume: label(VOLUME), file }
}

/// The content of a file of a volume, wherever it is.
pub(crate) fn content(folder: &Path, file: FileId) -> Vec<u8> {
    std::fs::read(find(folder, file).expect("the file is there")).expect("it can be read")
}

pub(crate) fn find(folder: &Path, file: FileId) -> Option<PathBuf> {
    let name = format!("{:016x}", file.0);
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().and_then(|name| name.to_str()).is_some_and(|found| found.starts_with(&name)) {
                return Some(path);
            }
        }
    }
    None
}
