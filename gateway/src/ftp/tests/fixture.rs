//! A door over real sockets with a desk that does as a test says, and a client that speaks the protocol.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use bytes::Bytes;
use daemon::{
    Clock, Shutdown,
    pki::{Holder, SiteCa},
    tls::{self, Clients, Expect, HotCredential, Trust, TrustSource},
    trust::{Identity, TrustOptions},
};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
};
use wire::{
    ftp::{Reply, ReplyDecoder},
    id::AccountName,
};

use super::super::{
    config::FtpConfig,
    connection::Terms,
    desk::{Desk, Voice},
    door::Door,
    path::AbsolutePath,
    presence::Line,
    session::work::{NameWork, Outcome, Question, Work},
};

/// How the desk behaves, for all connections of a test.
#[derive(Default)]
pub(super) struct Behaviour {
    /// Rung to let a held transfer go on.
    pub(super) go: Notify,
    /// Everything that was asked for, in order.
    pub(super) asked: Mutex<Vec<Work>>,
    /// How often data connections were closed.
    pub(super) drops: Mutex<usize>,
}

impl Behaviour {
    pub(super) fn asked(&self) -> Vec<Work> {
        self.asked.lock().unwrap().clone()
    }
}

/// The desk of a test: paths say what happens.
///
/// `held` waits for [`Behaviour::go`] or cancellation; `panic` panics; `endless` lists without end; `missing` is not
/// there.
pub(super) struct FakeDesk {
    behaviour: Arc<Behaviour>,
    identity: Mutex<Option<Identity>>,
}

impl FakeDesk {
    async fn transfer(&self, path: &AbsolutePath, voice: &Voice) -> Outcome {
        if path.name() == "missing" {
            return Outcome::Transferred { reply: Reply::new(550, "not there"), reusable: true };
        }
        voice.announce(Reply::new(150, "begins")).await;
        voice.progress(4711, Vec::new()).await;
        if path.name() == "held" {
            tokio::select! {
                () = self.behaviour.go.notified() => {}
                () = voice.cancelled() => {
                    return Outcome::Transferred { reply: Reply::new(426, "cancelled"), reusable: false };
                }
            }
        }
        voice.received().await;
        Outcome::Transferred { reply: Reply::new(226, "done"), reusable: true }
    }
}

impl Desk for FakeDesk {
    fn met(&self, identity: Option<Identity>) {
        *self.identity.lock().unwrap() = identity;
    }

    fn work(self: Arc<Self>, work: Work, voice: Voice) -> BoxFuture<'static, Outcome> {
        self.behaviour.asked.lock().unwrap().push(work.clone());
        Box::pin(async move {
            let code = |code| Outcome::Replied(Reply::new(code, "yes"));
            match work {
                Work::Login(_) => {
                    let known = self.identity.lock().unwrap().clone();
                    match known {
                        Some(identity) if identity.subject.as_str().ends_with("CN=Mallory") => {
                            Outcome::LoginRefused(Reply::new(530, "not mapped"))
                        }
                        _ => Outcome::LoggedIn {
                            account: AccountName::new("alice").unwrap(),
                            home: AbsolutePath::root(),
                            reply: Reply::new(232, "in"),
                        },
                    }
                }
                Work::Names(NameWork::Enter(path)) if path.name() == "panic" => panic!("as the test wants"),
                Work::Names(NameWork::Enter(path)) => Outcome::Entered(path, Reply::new(250, "there")),
                Work::Names(NameWork::BeginRename(path)) => Outcome::RenameBegun(path, Reply::new(350, "go on")),
                Work::Names(NameWork::Make(path)) => Outcome::Replied(Reply::directory(path.as_str(), "created.")),
                Work::Names(NameWork::SetModified { .. }) => code(213),
                Work::Ask(Question::Facts { .. }) => {
                    Outcome::Replied(Reply::with_lines(250, vec!["x".into(), " Type=file; x".into(), "End".into()]))
                }
                Work::Ask(Question::Size(_) | Question::Modified(_) | Question::Checksum { .. }) => code(213),
                Work::Show { path, .. } => {
                    voice.piece(Bytes::from_static(b"250-Listing\r\n")).await;
                    let line = Bytes::from(format!(" {}\r\n", "x".repeat(998)));
                    let mut left = if path.name() == "endless" { usize::MAX } else { 3_000 };
                    while left > 0 && !voice.is_cancelled() {
                        voice.piece(line.clone()).await;
                        left -= 1;
                    }
                    code(250)
                }
                Work::Listen { .. } => Outcome::Listening(Reply::extended_passive(40_000)),
                Work::Retrieve(retrieve) => self.transfer(&retrieve.path, &voice).await,
                Work::Store(store) => self.transfer(&store.path, &voice).await,
                Work::List(list) => self.transfer(&list.path, &voice).await,
                _ => code(250),
            }
        })
    }

    fn drop_port(&self) {
        *self.behaviour.drops.lock().unwrap() += 1;
    }
}

/// An open door with everything a client needs to come in.
pub(super) struct Site {
    pub(super) door: Door,
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) shutdown: Shutdown,
    trust: Trust,
    people: HashMap<&'static str, HotCredential>,
    _folder: TempDir,
}

fn trust(ca: &SiteCa, path: PathBuf) -> Trust {
    std::fs::write(&path, ca.certificate_pem()).unwrap();
    Trust::load(TrustSource::Bundle(path), TrustOptions::default()).unwrap()
}

impl Site {
    /// Listens on loopback; `change` says what is not as usual.
    pub(super) async fn open(change: impl FnOnce(&mut FtpConfig)) -> Self {
        let mut config = FtpConfig { listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))], ..FtpConfig::default() };
        change(&mut config);
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::real();
        let ca = SiteCa::in_memory("test", &clock).unwrap();
        let stranger = SiteCa::in_memory("stranger", &clock).unwrap();
        let person = |ca: &SiteCa, name| {
            let issued = ca.issue(&Holder::User { name }, &clock).unwrap();
            HotCredential::fixed(issued.credential().unwrap())
        };
        let people = [
            ("Alice", person(&ca, "Alice")),
            ("Mallory", person(&ca, "Mallory")),
            ("Stranger", person(&stranger, "Stranger")),
        ];
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let host = ca.issue(&Holder::Host { name: "localhost", hosts: &hosts }, &clock).unwrap();
        let host = HotCredential::fixed(host.credential().unwrap());
        let trust = trust(&ca, folder.path().join("ca.pem"));
        let clients = Clients::Judged(trust.clone());
        let terms = Terms {
            tls: tls::server_config(&host, &clients, &[]),
            clients,
            login_limit: config.login_limit.duration(),
            idle_limit: config.idle_limit.duration(),
            unread_limit: config.unread_limit.duration(),
        };
        let behaviour = Arc::new(Behaviour::default());
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let desks = Arc::clone(&behaviour);
        let desk = move |_: SocketAddr, _: IpAddr, _: Weak<Line>| FakeDesk {
            behaviour: Arc::clone(&desks),
            identity: Mutex::default(),
        };
        let door = Door::open(&config, terms, &shutdown, desk).await.unwrap();
        Self { door, behaviour, shutdown, trust, people: people.into(), _folder: folder }
    }

    /// A connection in clear, greeted.
    pub(super) async fn connect(&self) -> Client<TcpStream> {
        let mut client = self.connect_silently().await;
        assert_eq!(client.reply().await.unwrap().code(), 220);
        client
    }

    pub(super) async fn connect_silently(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.door.addresses()[0]).await.unwrap())
    }

    /// A connection over TLS, with this person's certificate.
    pub(super) async fn secure(&self, person: Option<&str>) -> Client<Box<dyn Stream>> {
        let mut clear = self.connect().await;
        assert_eq!(clear.ask("AUTH TLS").await, 234);
        let credential = person.map(|person| &self.people[person]);
        let config = tls::client_config(credential, &self.trust, &Expect::Host, &[]);
        let stream = tls::connect(&config, "localhost", clear.stream).await.unwrap();
        Client::new(Box::new(stream))
    }

    /// Logged in as Alice.
    pub(super) async fn login(&self) -> Client<Box<dyn Stream>> {
        let mut client = self.secure(Some("Alice")).await;
        assert_eq!(client.ask("USER alice").await, 232);
        client
    }

    /// Waits until so many sessions are open.
    pub(super) async fn until_sessions(&self, count: usize) {
        let reached = async {
            while self.door.sessions() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), reached).await.expect("sessions end");
    }
}

/// Anything with two directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The client's side of a control connection.
pub(super) struct Client<S> {
    pub(super) stream: S,
    decoder: ReplyDecoder,
    input: Vec<u8>,
}

impl<S: Stream> Client<S> {
    fn new(stream: S) -> Self {
        Self { stream, decoder: ReplyDecoder::new(), input: Vec::new() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next reply; `None` once the server has closed.
    pub(super) async fn reply(&mut self) -> Option<Reply> {
        let read = async {
            loop {
                let mut rest = &self.input[..];
                let reply = self.decoder.next_reply(&mut rest).unwrap();
                let taken = self.input.len() - rest.len();
                self.input.drain(..taken);
                if reply.is_some() {
                    return reply;
                }
                let mut chunk = vec![0; 65_536];
                match self.stream.read(&mut chunk).await {
                    Ok(0) | Err(_) => return None,
                    Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("a reply in time")
    }

    /// The code of the next reply; 0 once the server has closed.
    pub(super) async fn code(&mut self) -> u16 {
        self.reply().await.map_or(0, |reply| reply.code())
    }

    /// Sends a line, and gives the code of the next reply.
    pub(super) async fn ask(&mut self, line: &str) -> u16 {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.code().await
    }

    /// Sends a line, and gives the codes up to the first that is not preliminary.
    pub(super) async fn transfer(&mut self, line: &str) -> Vec<u16> {
        let mut codes = vec![self.ask(line).await];
        while (100..200).contains(codes.last().unwrap()) {
            codes.push(self.code().await);
        }
        codes
    }
}
