//! For tests: movers that do what the test says, over real TLS, and a gateway's inner parts above them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::BytesMut;
use catalog::{Catalog, TreePath};
use daemon::{
    Clock, Shutdown,
    pki::{Holder, SiteCa},
    role::Role,
    tls::{self, Clients, HotCredential, Trust},
    trust::{TrustOptions, TrustStore},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::mpsc,
    time::timeout,
};
use wire::{
    checksum::Sums,
    extent::{ByteRange, Extent, Place},
    id::{AccountName, ChannelId, Epoch, FileId, GatewayId, GroupName, MoverId, TransferId, VolumeLabel},
    mover::{
        Answer, Call, Event, Job, MoverStatus, Outcome, PROTOCOL_VERSION, Request, VolumeFile, VolumeHealth,
        VolumeStatus, Written, frame,
    },
};

use crate::{
    config::{self, Config, MoverConfig},
    files::Files,
    identity::Principal,
    movers::{self, Movers},
    transfer::Transfers,
};

/// Nothing here takes longer unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that has to come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// A mover that does what the test says.
pub(crate) struct FakeMover {
    pub(crate) name: MoverId,
    pub(crate) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
    orders: mpsc::UnboundedSender<Order>,
    status: Arc<Mutex<MoverStatus>>,
}

enum Order {
    Say(Box<Event>),
    HangUp,
}

impl FakeMover {
    /// One with a disk volume `NAME.disk0` of a GiB.
    pub(crate) async fn start(ca: &SiteCa, name: &str) -> Self {
        let volume = VolumeStatus {
            volume: VolumeLabel::new(format!("{name}.disk0")).expect("a good label"),
            capacity_bytes: 1 << 30,
            used_bytes: 0,
            reserved_bytes: 0,
            health: VolumeHealth::Up,
        };
        let status = Arc::new(Mutex::new(MoverStatus { volumes: vec![volume], ..MoverStatus::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (requests, receiver) = mpsc::unbounded_channel();
        let (orders, ordered) = mpsc::unbounded_channel();
        let holder = Holder::Part { role: Role::Mover, name, hosts: &[] };
        let credential = ca.issue(&holder, &Clock::real()).expect("issued").credential().expect("loads");
        let config = tls::server_config(&HotCredential::fixed(credential), &Clients::Required(trust(ca)), &[]);
        let clients = Clients::Required(trust(ca));
        let name = MoverId::new(name).expect("a good name");
        let (mover, state) = (name.clone(), Arc::clone(&status));
        tokio::spawn(async move {
            let mut ordered = ordered;
            loop {
                let (socket, _) = listener.accept().await.expect("accepts");
                let Ok((stream, _)) = tls::accept(&config, &clients, socket).await else { continue };
                if serve(stream, &mover, &state, &requests, &mut ordered).await.is_none() {
                    return;
                }
            }
        });
        Self { name, address, requests: receiver, orders, status }
    }

    /// The next request that is not about how it is.
    pub(crate) async fn next(&mut self) -> Request {
        soon("a request", self.requests.recv()).await.expect("the mover runs")
    }

    /// Says something to the gateway, on its next connection if there is none.
    pub(crate) fn say(&self, event: Event) {
        let _ = self.orders.send(Order::Say(Box::new(event)));
    }

    /// Breaks the connection.
    pub(crate) fn hang_up(&self) {
        let _ = self.orders.send(Order::HangUp);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut MoverStatus)) {
        change(&mut self.status.lock().expect("not poisoned"));
    }

    /// Opens the data endpoint that is asked for next.
    pub(crate) async fn opens(&mut self) -> (ChannelId, SocketAddr) {
        loop {
            match self.next().await {
                Request::OpenChannel { channel, .. } => {
                    let port = u16::try_from(20_000 + channel.0 % 10_000).expect("small");
                    let address = SocketAddr::from(([127, 0, 0, 1], port));
                    self.say(Event::ChannelReady { channel, address: Some(address) });
                    return (channel, address);
                }
                Request::Acknowledge { .. } | Request::CloseChannel { .. } | Request::Confirm { .. } => {}
                other => panic!("not what was to come: {other:?}"),
            }
        }
    }

    /// The transfer that is started next.
    pub(crate) async fn starts(&mut self) -> (TransferId, Job) {
        loop {
            match self.next().await {
                Request::Start { transfer, job } => return (transfer, *job),
                Request::Acknowledge { .. } | Request::CloseChannel { .. } | Request::Confirm { .. } => {}
                other => panic!("not what was to come: {other:?}"),
            }
        }
    }

    /// Waits for a request of this kind, passing over others.
    pub(crate) async fn until<T>(&mut self, mut wanted: impl FnMut(Request) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.next().await) {
                return found;
            }
        }
    }

    /// Answers the removal that is asked for next; what was to be removed.
    pub(crate) async fn removes(&mut self) -> Vec<VolumeFile> {
        let (call, files) = self
            .until(|request| match request {
                Request::Call { call, what: Call::Remove { files } } => Some((call, files)),
                _ => None,
            })
            .await;
        let answer = Answer::Removed { removed: files.clone(), failed: Vec::new() };
        self.say(Event::Reply { call, answer: Box::new(Ok(answer)) });
        files
    }
}

/// `None` when the test is over.
async fn serve<S>(
    mut stream: S,
    mover: &MoverId,
    status: &Mutex<MoverStatus>,
    requests: &mpsc::UnboundedSender<Request>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> Option<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let now = || status.lock().expect("not poisoned").clone();
    let (mut incoming, mut outgoing) = (BytesMut::new(), BytesMut::new());
    let mut greeted = false;
    loop {
        while let Ok(Some(body)) = frame::split(&mut incoming) {
            let event = match frame::decode::<Request>(&body).expect("a good request") {
                Request::Hello { .. } => {
                    greeted = true;
                    Event::Welcome { version: PROTOCOL_VERSION, mover: mover.clone(), status: now() }
                }
                Request::Call { call, what: Call::Status } => {
                    Event::Reply { call, answer: Box::new(Ok(Answer::Status(now()))) }
                }
                other => {
                    requests.send(other).ok()?;
                    continue;
                }
            };
            frame::encode(&event, &mut outgoing).expect("it fits");
        }
        if stream.write_all_buf(&mut outgoing).await.is_err() || stream.flush().await.is_err() {
            return Some(());
        }
        tokio::select! {
            read = stream.read_buf(&mut incoming) => if !read.is_ok_and(|count| count > 0) {
                return Some(());
            },
            order = orders.recv(), if greeted => match order? {
                Order::Say(event) => frame::encode(&*event, &mut outgoing).expect("it fits"),
                Order::HangUp => return Some(()),
            },
        }
    }
}

fn trust(ca: &SiteCa) -> Trust {
    let store = TrustStore::from_pem(ca.certificate_pem().as_bytes(), TrustOptions::default());
    Trust::fixed(store.expect("an authority"))
}

/// A gateway's inner parts above fake movers.
pub(crate) struct World {
    pub(crate) movers: Movers,
    pub(crate) transfers: Transfers,
    pub(crate) files: Files,
    pub(crate) catalog: Catalog,
    pub(crate) alice: Principal,
    pub(crate) shutdown: Shutdown,
    _folder: tempfile::TempDir,
}

impl World {
    /// Above these movers, which are all there when it returns; `change` what is configured.
    pub(crate) async fn over(ca: &SiteCa, movers: &[&FakeMover], change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("catalogue.db").display());
        let catalog = Catalog::open(&url, catalog::Options::default()).await.expect("a catalogue");
        let mut config = Config {
            movers: movers
                .iter()
                .map(|mover| MoverConfig { name: mover.name.clone(), address: mover.address.to_string() })
                .collect(),
            ..Config::default()
        };
        config.limits.orphan_grace = daemon::config::TimeSpan::milliseconds(300);
        change(&mut config);
        catalog.put_policies(config::policies(&config)).await.expect("policies");
        let holder = Holder::Part { role: Role::Gateway, name: "gateway1", hosts: &[] };
        let credential = ca.issue(&holder, &Clock::real()).expect("issued").credential().expect("loads");
        let credential = HotCredential::fixed(credential);
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let options = movers::Options {
            gateway: GatewayId::new("gateway1").expect("a good name"),
            epoch: Epoch(1),
            movers: config.movers.clone(),
            storage: config.storage(),
            credential: credential.clone(),
            trust: trust(ca),
            grace: config.limits.mover_grace.duration(),
            orphan_grace: config.limits.orphan_grace.duration(),
        };
        let links = Movers::connect(options, catalog.clone(), &shutdown).await.expect("movers");
        links.settled(PATIENCE).await;
        soon("all volumes", async {
            while catalog.volumes().await.expect("volumes").len() < movers.len() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let transfers = Transfers::new(&config, catalog.clone(), links.clone(), credential, trust(ca), &shutdown);
        let files = Files::new(catalog.clone());
        let alice = Principal {
            account: AccountName::new("alice").expect("a good name"),
            groups: vec![GroupName::new("users").expect("a good name")],
            admin: true,
            subject: "/CN=Alice".to_owned(),
            home: None,
        };
        Self { movers: links, transfers, files, catalog, alice, shutdown, _folder: folder }
    }

    pub(crate) fn path(text: &str) -> TreePath {
        Files::path(&TreePath::root(), text).expect("a good path")
    }
}

pub(crate) fn authority() -> SiteCa {
    SiteCa::in_memory("test", &Clock::real()).expect("an authority")
}

/// What a mover says of bytes it wrote at `at` of a transfer into `file`, where they lie at the same offset.
pub(crate) fn written(volume: &VolumeLabel, file: FileId, at: u64, data: &[u8]) -> Written {
    let range = ByteRange::new(at, data.len() as u64).expect("a small range");
    let place = Place::Disk { file, offset_bytes: at };
    let extent = Extent { volume: volume.clone(), place, length_bytes: data.len() as u64 };
    Written { range, extent, sums: Sums::of(data) }
}

/// The outcome of a transfer that wrote this.
pub(crate) fn outcome(written: Vec<Written>) -> Outcome {
    Outcome { bytes: written.iter().map(|written| written.range.length()).sum(), written, ..Outcome::default() }
}
