//! A small FTP server for tests: a tree in memory, real sockets, and faults on demand.
//!
//! One thread a session, one a data connection. Speaks clear FTP with MODE E, push and pull, striping, restart and
//! Penstock's extensions; `Faults` says what it does wrong.

mod upload;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use wire::{
    checksum::Sums,
    extent::{ByteRange, Coverage},
    ftp::*,
    mode_e::Header,
};

/// What goes wrong.
#[derive(Debug, Default, Clone)]
pub(crate) struct Faults {
    /// Data connections of a download break after so many bytes in all, once.
    pub(crate) cut_download_after: Option<usize>,
    /// An upload breaks after so many bytes of one connection, once.
    pub(crate) cut_upload_after: Option<usize>,
    /// One block's descriptor has a bit without meaning.
    pub(crate) bad_bit: bool,
    /// One byte of a download is wrong.
    pub(crate) wrong_byte: bool,
    /// A block is sent twice.
    pub(crate) twice: bool,
    /// Nothing is said or sent after 150.
    pub(crate) silent: bool,
    /// Milliseconds until a download begins: the file comes from tape.
    pub(crate) recall_ms: u64,
    /// Milliseconds between the blocks of a download.
    pub(crate) pause_ms: u64,
    /// Names added to every listing.
    pub(crate) names: Vec<String>,
    /// No MLSC, no SPAS, no ERET, no CKSM, no SCKS, no Penstock.
    pub(crate) plain: bool,
    /// Listings carry no checksums.
    pub(crate) no_sums_listed: bool,
    /// The addresses of all stripes can be told after RETR.
    pub(crate) stripes: bool,
    /// There is no room for whatever is announced.
    pub(crate) full: bool,
    /// STOR of these is refused.
    pub(crate) refuse: BTreeSet<String>,
}

/// The tree and what was seen.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) folders: BTreeSet<String>,
    pub(crate) partial: BTreeMap<String, (Vec<u8>, Coverage)>,
    pub(crate) faults: Faults,
    /// Every line that came.
    pub(crate) lines: Vec<String>,
    pub(crate) data_connections: usize,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = store.clone();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let store = shared.clone();
                thread::spawn(move || Session::new(store, socket).run());
            }
        });
        Self { store, address }
    }

    pub(crate) fn with_file(self, path: &str, content: &[u8]) -> Self {
        self.store.lock().unwrap().files.insert(path.to_owned(), content.to_vec());
        self
    }

    pub(crate) fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.store.lock().unwrap().faults);
    }

    pub(crate) fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.store.lock().unwrap().files.get(path).cloned()
    }

    /// How many lines began so.
    pub(crate) fn asked(&self, start: &str) -> usize {
        self.store.lock().unwrap().lines.iter().filter(|line| line.starts_with(start)).count()
    }
}

enum Endpoint {
    None,
    Active(Vec<SocketAddr>),
    Passive(Vec<TcpListener>),
    Delayed,
    DelayedStripes,
}

struct Session {
    store: Arc<Mutex<Store>>,
    socket: TcpStream,
    decoder: LineDecoder,
    buffer: Vec<u8>,
    mode: TransferMode,
    streams: u16,
    delayed: bool,
    endpoint: Endpoint,
    cached: Vec<TcpStream>,
    listeners: Vec<TcpListener>,
    rest: Option<RestartPoint>,
    expected: Option<String>,
    from: Option<FtpPath>,
}

fn full(path: &FtpPath) -> String {
    let path = path.as_str().trim_end_matches('/');
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

impl Session {
    fn new(store: Arc<Mutex<Store>>, socket: TcpStream) -> Self {
        Self {
            store,
            socket,
            decoder: LineDecoder::new(),
            buffer: Vec::new(),
            mode: TransferMode::Stream,
            streams: 1,
            delayed: false,
            endpoint: Endpoint::None,
            cached: Vec::new(),
            listeners: Vec::new(),
            rest: None,
            expected: None,
            from: None,
        }
    }

    fn say(&mut self, reply: Reply) {
        let _ = self.socket.write_all(&reply.to_bytes());
    }

    fn ok(&mut self) {
        self.say(Reply::new(200, "ok"));
    }

    fn missing(&mut self, path: &FtpPath) {
        self.say(Reply::failure(550, "PATH_NOT_FOUND", 2, path.as_str(), "No such file or directory"));
    }

    fn line(&mut self) -> Option<String> {
        loop {
            let mut input = &self.buffer[..];
            let line = self.decoder.next_line(&mut input);
            let taken = self.buffer.len() - input.len();
            self.buffer.drain(..taken);
            if let Some(line) = line {
                return Some(line.unwrap());
            }
            let mut chunk = [0; 4096];
            match self.socket.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.buffer.extend_from_slice(&chunk[..read]),
            }
        }
    }

    fn run(mut self) {
        self.say(Reply::new(220, "test server"));
        while let Some(line) = self.line() {
            self.store.lock().unwrap().lines.push(line.clone());
            match Command::parse(&line) {
                Ok(Command::Quit) => return self.say(Reply::new(221, "bye")),
                Ok(command) => self.command(command),
                Err(error) => self.say(error.reply()),
            }
        }
    }

    fn command(&mut self, command: Command) {
        let plain = self.store.lock().unwrap().faults.plain;
        match command {
            Command::User(_) => self.say(Reply::new(232, "welcome")),
            Command::Feat => self.features(plain),
            Command::Allo(_) if self.store.lock().unwrap().faults.full => self.say(Reply::new(552, "no space")),
            Command::Mode(mode) => {
                self.mode = mode;
                self.ok();
            }
            Command::Opts(CommandOption::Retrieve(options)) => {
                self.streams = options.parallelism.map_or(1, |parallelism| parallelism.starting);
                self.ok();
            }
            Command::Opts(CommandOption::AllowDelayedPassive(on)) => {
                self.delayed = on;
                self.ok();
            }
            Command::Opts(CommandOption::AllowDelayedStripes(_)) => self.ok(),
            Command::Port(address) => {
                self.cached.clear();
                self.endpoint = Endpoint::Active(vec![address.into()]);
                self.ok();
            }
            Command::Spor(addresses) => {
                self.cached.clear();
                self.endpoint = Endpoint::Active(addresses);
                self.ok();
            }
            Command::Epsv(_) if self.delayed => {
                self.endpoint = Endpoint::Delayed;
                self.say(Reply::passive_is_delayed());
            }
            Command::Epsv(_) => {
                let address = self.bind(1)[0];
                self.say(Reply::extended_passive(address.port()));
            }
            Command::Pasv => {
                let address = self.bind(1)[0];
                self.say(Reply::passive(&address));
            }
            Command::Spas { .. } if self.store.lock().unwrap().faults.stripes => {
                self.cached.clear();
                self.endpoint = Endpoint::DelayedStripes;
                self.say(Reply::passive_is_delayed());
            }
            Command::Spas { extended } if !plain => {
                let addresses: Vec<SocketAddr> = self.bind(2).into_iter().map(SocketAddr::from).collect();
                self.say(Reply::striped_passive(&addresses, extended));
            }
            Command::Rest(point) => {
                self.rest = Some(point);
                self.say(Reply::new(350, "go on"));
            }
            Command::Retr(path) => self.retrieve(&path, None),
            Command::Eret(part) if !plain => self.retrieve(&part.path.clone(), Some(part)),
            Command::Stor(path) => self.store(&path, false),
            Command::Appe(path) => self.store(&path, true),
            Command::Scks { value, .. } if !plain => {
                self.expected = Some(value.into_string());
                self.ok();
            }
            Command::Abor => self.say(Reply::new(226, "nothing to abort")),
            Command::Pwd => self.say(Reply::directory("/", "is current")),
            Command::Cwd(_) => self.ok(),
            Command::Mlst(Some(path)) => self.stat(&path),
            Command::Mlsc(path) if !plain => {
                let path = path.unwrap_or_else(|| FtpPath::new("/").unwrap());
                let entries = self.entries(&full(&path));
                let pairs = entries.iter().map(|(facts, name)| (facts, name.as_str()));
                self.say(Reply::listing(path.as_str(), FactSet::default(), pairs));
            }
            Command::Mlsd(path) => self.list(&path.map_or_else(|| "/".into(), |path| full(&path))),
            Command::Size(path) => match self.content(&path) {
                Some(content) => self.say(Reply::size(content.len() as u64)),
                None => self.missing(&path),
            },
            Command::Cksm { algorithm, path, .. } if !plain => match self.content(&path) {
                Some(content) => self.say(Reply::checksum(&Sums::of(&content).hex(algorithm).unwrap())),
                None => self.missing(&path),
            },
            Command::Mkd(path) => {
                let path = full(&path);
                let mut store = self.store.lock().unwrap();
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
                let parent_there = parent.is_empty() || store.folders.contains(&parent);
                let made = parent_there && store.folders.insert(path);
                drop(store);
                self.say(Reply::new(if made { 257 } else { 553 }, "mkdir"));
            }
            Command::Dele(path) => {
                let gone = self.store.lock().unwrap().files.remove(&full(&path)).is_some();
                if gone { self.say(Reply::new(250, "gone")) } else { self.missing(&path) }
            }
            Command::Rmd(path) => {
                let gone = self.store.lock().unwrap().folders.remove(&full(&path));
                if gone { self.say(Reply::new(250, "gone")) } else { self.missing(&path) }
            }
            Command::Rnfr(path) => {
                self.from = Some(path);
                self.say(Reply::new(350, "to?"));
            }
            Command::Rnto(path) => {
                let from = self.from.take().map(|from| full(&from)).unwrap_or_default();
                let mut store = self.store.lock().unwrap();
                let content = store.files.remove(&from);
                let code = if content.is_some() { 250 } else { 550 };
                content.and_then(|content| store.files.insert(full(&path), content));
                drop(store);
                self.say(Reply::new(code, "rename"));
            }
            Command::Site(SiteCommand::Partial(path)) if !plain => {
                let have = self.store.lock().unwrap().partial.get(&full(&path)).map(|(_, have)| have.clone());
                match have {
                    Some(have) => self.say(Reply::partial(&have)),
                    None => self.missing(&path),
                }
            }
            Command::Spas { .. }
            | Command::Eret(_)
            | Command::Mlsc(_)
            | Command::Cksm { .. }
            | Command::Scks { .. } => {
                self.say(Reply::new(502, "not here"));
            }
            Command::Site(SiteCommand::Stage { path, .. }) => match self.content(&path) {
                Some(_) => self.say(Reply::new(250, "on disk")),
                None => self.missing(&path),
            },
            _ => self.ok(),
        }
    }

    fn features(&mut self, plain: bool) {
        let mut features = Features::new().with("SIZE").with("REST STREAM").with("PARALLEL").with("MLST Type*;Size*;");
        if !plain {
            let stripes = self.store.lock().unwrap().faults.stripes;
            let spas = if stripes { "SPAS AllowDelayed;" } else { "SPAS" };
            for line in ["MLSC", "ERET", spas, "CKSUM ADLER32,CRC32C", "SCKS", "PASV AllowDelayed;", Features::PENSTOCK]
            {
                features = features.with(line);
            }
        }
        self.say(features.reply());
    }

    fn bind(&mut self, count: usize) -> Vec<SocketAddrV4> {
        self.cached.clear();
        let listeners: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let addresses =
            listeners.iter().map(|listener| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port(listener))).collect();
        self.endpoint = Endpoint::Passive(listeners);
        addresses
    }

    fn content(&self, path: &FtpPath) -> Option<Vec<u8>> {
        self.store.lock().unwrap().files.get(&full(path)).cloned()
    }

    fn facts(&self, content: &[u8]) -> Facts {
        let sums_listed = !self.store.lock().unwrap().faults.no_sums_listed;
        Facts {
            size_bytes: Some(content.len() as u64),
            modified: Some(FtpTime::from_seconds(1_000_000_000)),
            crc32c: sums_listed.then(|| Sums::of(content).crc32c),
            ..Facts::new(EntryKind::File)
        }
    }

    fn stat(&mut self, path: &FtpPath) {
        if let Some(content) = self.content(path) {
            let facts = self.facts(&content);
            return self.say(Reply::entry(&facts, FactSet::default(), path.as_str()));
        }
        let name = full(path);
        let is_folder = name == "/" || name.is_empty() || self.store.lock().unwrap().folders.contains(&name);
        if is_folder {
            return self.say(Reply::entry(&Facts::new(EntryKind::Directory), FactSet::default(), path.as_str()));
        }
        self.missing(path);
    }

    fn entries(&self, folder: &str) -> Vec<(Facts, String)> {
        let prefix = format!("{}/", folder.trim_end_matches('/'));
        let (files, folders, names) = {
            let store = self.store.lock().unwrap();
            (store.files.clone(), store.folders.clone(), store.faults.names.clone())
        };
        let child = |path: &str| path.strip_prefix(&prefix).filter(|name| !name.contains('/')).map(str::to_owned);
        let files = files.iter().filter_map(|(path, content)| Some((self.facts(content), child(path)?)));
        let folders = folders.iter().filter_map(|path| Some((Facts::new(EntryKind::Directory), child(path)?)));
        let names = names.into_iter().map(|name| (Facts::new(EntryKind::Directory), name));
        files.chain(folders).chain(names).collect()
    }

    fn list(&mut self, folder: &str) {
        let text: String =
            self.entries(folder).iter().map(|(facts, name)| facts.line(FactSet::default(), name) + "\r\n").collect();
        let Endpoint::Passive(listeners) = std::mem::replace(&mut self.endpoint, Endpoint::None) else {
            return self.say(Reply::new(425, "no port"));
        };
        self.say(Reply::new(150, "listing"));
        let (mut data, _) = listeners[0].accept().unwrap();
        data.write_all(text.as_bytes()).unwrap();
        drop(data);
        self.say(Reply::new(226, "done"));
    }

    /// Tells the addresses of a file's stripes if the client does not know them, and takes a connection at each.
    fn accept_stripes(&mut self, count: usize) -> std::io::Result<Vec<TcpStream>> {
        if self.cached.is_empty() {
            let addresses: Vec<SocketAddr> = self.bind(count).into_iter().map(SocketAddr::from).collect();
            self.say(Reply::delayed_striped_passive(&addresses, false));
            let Endpoint::Passive(listeners) = std::mem::replace(&mut self.endpoint, Endpoint::DelayedStripes) else {
                unreachable!()
            };
            for listener in &listeners {
                self.cached.push(listener.accept()?.0);
            }
            // Further connections are made and never looked at, as by a mover that is done before they come.
            self.listeners = listeners;
            self.store.lock().unwrap().data_connections += count;
        }
        Ok(std::mem::take(&mut self.cached))
    }

    /// Data connections for sending `count` streams, cached or new.
    fn connect(&mut self, count: usize) -> std::io::Result<Vec<TcpStream>> {
        if let (Endpoint::Passive(_) | Endpoint::Delayed, TransferMode::Stream) = (&self.endpoint, self.mode) {
            if matches!(self.endpoint, Endpoint::Delayed) {
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.bind(1)[0].port());
                self.say(Reply::delayed_extended_passive(&address));
            }
            let Endpoint::Passive(listeners) = &self.endpoint else { unreachable!() };
            self.store.lock().unwrap().data_connections += 1;
            return Ok(vec![listeners[0].accept()?.0]);
        }
        if self.cached.len() < count
            && let Endpoint::Active(addresses) = &self.endpoint
        {
            let each = addresses.iter().flat_map(|address| (0..count).map(|_| TcpStream::connect(*address)));
            self.cached = each.collect::<Result<_, _>>()?;
            self.store.lock().unwrap().data_connections += self.cached.len();
        }
        Ok(std::mem::take(&mut self.cached))
    }

    fn retrieve(&mut self, path: &FtpPath, part: Option<Part>) {
        let Some(mut content) = self.content(path) else { return self.missing(path) };
        let rest = self.rest.take();
        let faults = self.store.lock().unwrap().faults.clone();
        if faults.silent {
            self.say(Reply::new(150, "opening"));
            return thread::sleep(Duration::from_secs(600));
        }
        if faults.recall_ms > 0 && !matches!(self.endpoint, Endpoint::Delayed | Endpoint::DelayedStripes) {
            self.say(Reply::new(150, "the file comes from tape"));
        }
        thread::sleep(Duration::from_millis(faults.recall_ms));
        if faults.wrong_byte {
            content[0] ^= 1;
        }
        let count = usize::from(if self.mode == TransferMode::Extended { self.streams } else { 1 });
        let stripes = matches!(self.endpoint, Endpoint::DelayedStripes);
        let connected =
            if stripes { self.accept_stripes(1 + usize::from(content.len() > 10_000)) } else { self.connect(count) };
        let connections = match connected {
            Ok(connections) => connections,
            Err(error) => return self.say(Reply::new(425, error.to_string())),
        };
        self.say(Reply::new(150, "opening"));
        let result = if self.mode == TransferMode::Extended {
            let have = match rest {
                Some(RestartPoint::Ranges(have)) => have,
                _ => Coverage::new(),
            };
            self.send_blocks(&content, &have, connections, &faults)
        } else {
            let range = match (part, rest) {
                (Some(part), _) => part.offset_bytes as usize..(part.offset_bytes + part.length_bytes) as usize,
                (None, Some(RestartPoint::Offset(offset))) => offset as usize..content.len(),
                _ => 0..content.len(),
            };
            let mut data = &content[range];
            if let Some(cut) = self.store.lock().unwrap().faults.cut_download_after.take() {
                data = &data[..data.len().min(cut)];
                let _ = (&connections[0]).write_all(data);
                Err(std::io::Error::other("cut"))
            } else {
                (&connections[0]).write_all(data)
            }
        };
        match result {
            Ok(()) => self.say(Reply::new(226, "done")),
            Err(error) => self.say(Reply::new(426, error.to_string())),
        }
    }

    /// Blocks of 10,000 bytes, last first, dealt over the connections.
    fn send_blocks(
        &mut self,
        content: &[u8],
        have: &Coverage,
        connections: Vec<TcpStream>,
        faults: &Faults,
    ) -> std::io::Result<()> {
        let whole = ByteRange::new(0, content.len() as u64).unwrap();
        let blocks: Vec<ByteRange> = have
            .missing_in(whole)
            .into_iter()
            .flat_map(|range| range.regions(u16::try_from(range.length().div_ceil(10_000)).unwrap(), 1))
            .collect();
        let mut sent = 0;
        let limit = self.store.lock().unwrap().faults.cut_download_after.take();
        for (index, range) in blocks.iter().rev().enumerate() {
            let mut connection = &connections[index % connections.len()];
            let mut header = Header::data(*range).encode();
            if faults.bad_bit && index == 1 {
                header[0] |= 0x02;
            }
            let data = &content[range.offset() as usize..range.end() as usize];
            thread::sleep(Duration::from_millis(faults.pause_ms));
            for _ in 0..=usize::from(faults.twice && index == 0) {
                connection.write_all(&header)?;
                connection.write_all(data)?;
            }
            sent += data.len();
            if limit.is_some_and(|limit| sent >= limit) {
                return Err(std::io::Error::other("cut"));
            }
        }
        let addresses = match &self.endpoint {
            Endpoint::DelayedStripes => connections.len(),
            Endpoint::Active(addresses) => addresses.len(),
            _ => 1,
        };
        let count = connections.len() / addresses;
        for (index, mut connection) in connections.iter().enumerate() {
            // Every address has an end of its own. The one that says how many comes last.
            let last = (index + 1) % count == 0;
            let end = if last { Header::end_of_file(count as u64, false) } else { Header::end_of_data(false) };
            connection.write_all(&end.encode())?;
        }
        self.cached = connections;
        Ok(())
    }

    fn store(&mut self, path: &FtpPath, append: bool) {
        let name = full(path);
        let rest = self.rest.take();
        let expected = self.expected.take();
        let faults = self.store.lock().unwrap().faults.clone();
        if faults.refuse.contains(&name) {
            return self.say(Reply::new(550, "permission denied"));
        }
        self.say(Reply::new(if self.cached.is_empty() { 150 } else { 125 }, "opening"));
        let mut kept = match rest {
            Some(RestartPoint::Ranges(_)) => self.store.lock().unwrap().partial.remove(&name).unwrap_or_default(),
            _ if append => {
                let content = self.store.lock().unwrap().files.get(&name).cloned().unwrap_or_default();
                (content, Coverage::new())
            }
            _ => Default::default(),
        };
        let stored =
            if self.mode == TransferMode::Extended { self.take_blocks(&mut kept) } else { self.take_stream(&mut kept) };
        let mut store = self.store.lock().unwrap();
        if let Err(error) = stored {
            store.partial.insert(name, kept);
            drop(store);
            return self.say(Reply::new(426, error.to_string()));
        }
        let sum = format!("{:08x}", Sums::of(&kept.0).crc32c);
        let right = expected.is_none_or(|expected| expected == sum);
        if right {
            store.files.insert(name, kept.0);
        }
        drop(store);
        self.say(if right { Reply::new(226, "stored") } else { Reply::new(551, "checksum differs") });
    }
}
