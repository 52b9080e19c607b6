//! A session with a server: from the connection over the login to the commands that move no data.
//!
//! Owns the order in which a session is set up, and the settings of its data connections. Talks to
//! `Control`. Transfers are in [`get`](crate::get), [`put`](crate::put) and
//! [`many`](crate::many).

use std::{net::SocketAddr, sync::Arc};

use daemon::{
    tls::{Expect, client_config},
    trust::{Purpose, now},
};
use rustls::ClientConfig;
use wire::{
    checksum::Algorithm,
    extent::Coverage,
    ftp::{
        Authentication, Command, CommandOption, DataAuthentication, Features, FtpPath, FtpTime, Protection, Reply,
        Representation, Secret, SiteCommand, Text, TransferMode, UnexpectedReply,
    },
};

use crate::{ClientError, Identity, Limits, Result, Target, Trace, control::Control, names, network::Network};

/// The account name that leaves the choice to the certificate (as GridFTP clients send it).
const BY_CERTIFICATE: &str = ":globus-mapping:";

/// How a session is set up.
#[derive(Clone)]
pub struct Options {
    /// The server.
    pub target: Target,
    /// Who we are and whom we trust; `None` speaks in clear and logs in without a certificate.
    pub identity: Option<Identity>,
    /// Password for servers that want one.
    pub password: Option<Secret>,
    /// Data connections over TLS (`PROT P`) instead of in clear.
    pub private_data: bool,
    /// Class of service of the files that are stored, by number or name (`SITE SETCOS`).
    pub class_of_service: Option<Text>,
    /// How long each kind of wait may last.
    pub limits: Limits,
    /// Who listens to what is said.
    pub trace: Option<Trace>,
}

impl Options {
    /// For this server, without identity, with the usual limits. Set the fields that differ.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            identity: None,
            password: None,
            private_data: false,
            class_of_service: None,
            limits: Limits::default(),
            trace: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Options");
        shown.field("target", &self.target).field("private_data", &self.private_data).finish_non_exhaustive()
    }
}

/// Connected, greeted, protected by TLS; not logged in.
#[derive(Debug)]
pub struct Unauthenticated {
    /// The server has let us in before: what it offers is known.
    known: bool,
}

/// Logged in.
#[derive(Debug)]
pub struct Ready {
    /// What the server said.
    pub welcome: String,
    /// Which sum the server is asked for: the best it knows.
    pub(crate) algorithm: Option<Algorithm>,
    /// The mode that was set last.
    pub(crate) mode: TransferMode,
    /// Whether passive addresses are told only after the file is named.
    pub(crate) delayed: bool,
    /// Whether the addresses of all stripes are told only after the file is named.
    pub(crate) stripes: bool,
    /// The parallelism that was set last.
    pub(crate) streams: u16,
    /// What is known of the network, and what was asked of it.
    pub(crate) network: Network,
}

/// A session.
#[derive(Debug)]
pub struct Client<S> {
    pub(crate) control: Control,
    pub(crate) options: Arc<Options>,
    pub(crate) features: Features,
    /// For TLS on data connections.
    pub(crate) data_tls: Option<Arc<ClientConfig>>,
    pub(crate) state: S,
}

impl Client<Unauthenticated> {
    /// Connects, and protects the connection by TLS if there is an identity.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, has no TLS, or is not who it should be.
    pub async fn connect(options: Arc<Options>) -> Result<Self> {
        Self::reach(options, None).await
    }

    /// Connects to a server, of which may be known what it offers: then `AUTH` does not wait for its greeting.
    async fn reach(options: Arc<Options>, known: Option<Features>) -> Result<Self> {
        let (target, auth) = (&options.target, Command::Auth(Authentication::Tls));
        let mut control = Control::connect(target, options.limits, options.trace.clone()).await?;
        let ahead = known.is_some() && options.identity.is_some();
        if ahead {
            control.queue(&auth);
            control.flush().await?;
        }
        let greeting = control.last_reply("its greeting", options.limits.connect).await?;
        if !greeting.is_success() {
            return Err(ClientError::Refused { command: format!("connect to {target}"), reply: Box::new(greeting) });
        }
        let mut data_tls = None;
        if let Some(identity) = &options.identity {
            let reply = match ahead {
                true => control.last_reply(auth.verb(), options.limits.reply).await?,
                false => control.ask(&auth).await?,
            };
            if reply.code() != 234 {
                return Err(ClientError::refused(&auth, reply));
            }
            let configure = |expect| client_config(identity.credential.as_ref(), &identity.trust, &expect, &[]);
            let (protected, chain) = control.start_tls(&configure(Expect::Host), &target.host).await?;
            control = protected;
            let gateway = identity.trust.current().verify(&chain, Purpose::Server, now());
            let gateway =
                gateway.map_err(|error| ClientError::Tls { peer: target.server(), reason: error.to_string() })?;
            data_tls = Some(configure(Expect::MoverOf(Box::new(gateway))));
        }
        let state = Unauthenticated { known: known.is_some() };
        Ok(Self { control, options, features: known.unwrap_or_default(), data_tls, state })
    }

    /// Logs in and sets the session up: features, type, protection of data connections.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] if the server does not let us in.
    pub async fn login(mut self) -> Result<Client<Ready>> {
        let user = self.options.target.user.as_deref().unwrap_or(BY_CERTIFICATE);
        let command = Command::User(Text::new(user)?);
        let known = self.state.known;
        let next = if known { self.settings()? } else { vec![(Command::Feat, false)] };
        // Whoever is asked for a password must hear that before anything else.
        let ahead = self.options.password.is_none();
        let flight: Vec<_> =
            std::iter::once((command.clone(), true)).chain(next.iter().filter(|_| ahead).cloned()).collect();
        let mut replies = self.control.together(&flight).await?;
        let mut reply = replies.remove(0);
        let asked = reply.code() == 331;
        if asked {
            let password = self.options.password.clone();
            let password = Command::Pass(match password {
                Some(password) => password,
                None => Secret::new("")?,
            });
            // What came behind the name may have made the server forget it.
            let again = if ahead { self.control.ask(&command).await?.code() == 331 } else { true };
            if again {
                reply = self.control.ask(&password).await?;
            }
        }
        if !reply.is_success() {
            return Err(ClientError::refused(&command, reply));
        }
        if asked || !ahead {
            // What was sent with the name was not heard from somebody who is logged in.
            replies = self.control.together(&next).await?;
        }
        if let (false, Some(features)) = (known, replies.first()) {
            self.features = Features::from_reply(features)?;
        }
        let state = Ready {
            welcome: reply.text(),
            algorithm: best_sum(&self.features),
            mode: TransferMode::Stream,
            delayed: false,
            stripes: false,
            streams: 0,
            network: Network::default(),
        };
        let Self { control, options, features, data_tls, .. } = self;
        let mut client = Client { control, options, features, data_tls, state };
        if known {
            client.judge(&next, replies)?;
        } else {
            let settings = client.settings()?;
            client.together(&settings).await?;
        }
        Ok(client)
    }
}

impl<S> Client<S> {
    /// What sets a session up, in one flight: each answer is needed, none decides about the next command.
    fn settings(&self) -> Result<Vec<(Command, bool)>> {
        let mut commands = vec![(Command::Type(Representation::Image), true)];
        if self.data_tls.is_some() {
            let level = if self.options.private_data { Protection::Private } else { Protection::Clear };
            commands.push((Command::Pbsz(0), true));
            commands.push((Command::Prot(level), true));
        } else if self.options.private_data {
            return Err(needs_tls());
        }
        if self.features.has("DCAU") {
            commands.push((Command::Dcau(DataAuthentication::None), true));
        }
        if let Some(class) = &self.options.class_of_service {
            commands.push((Command::Site(SiteCommand::SetCos(class.clone())), true));
        }
        let client = format!("scheme=ftp;appname=\"pftp\";appver=\"{}\";", env!("CARGO_PKG_VERSION"));
        commands.push((Command::Site(SiteCommand::ClientInfo(Text::new(client)?)), false));
        Ok(commands)
    }
}

fn needs_tls() -> ClientError {
    let reason = "that needs TLS on the control connection: leave out --clear".to_owned();
    ClientError::Identity { what: "protect data connections", reason }
}

/// CRC-32C if the server keeps it, else Adler-32 if it keeps any sum.
fn best_sum(features: &Features) -> Option<Algorithm> {
    let offered = features.parameters("CKSUM").or_else(|| features.parameters("CKSM"))?.to_ascii_uppercase();
    [Algorithm::Crc32c, Algorithm::Adler32].into_iter().find(|sum| offered.contains(sum.name()))
}

impl Client<Ready> {
    /// Connects and logs in.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`] and [`Client::login`].
    pub async fn open(options: Arc<Options>) -> Result<Self> {
        Client::connect(options).await?.login().await
    }

    /// A further session like this one: same server, same identity. It costs two flights less than the first.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub async fn another(&self) -> Result<Self> {
        Client::reach(self.options.clone(), Some(self.features.clone())).await?.login().await
    }

    /// What the server said when it let us in.
    pub fn welcome(&self) -> &str {
        &self.state.welcome
    }

    /// What the server offers.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// How this session was opened; another one can be opened with it.
    pub fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// The server's end of the control connection.
    pub fn peer(&self) -> SocketAddr {
        self.control.peer
    }

    /// Who listens to what is said from now on.
    pub fn set_trace(&mut self, trace: Option<Trace>) {
        self.control.set_trace(trace);
    }

    /// Sets the class of service of files stored from now on, by this session and by others opened from it.
    ///
    /// # Errors
    ///
    /// If the server has no such class.
    pub async fn set_class_of_service(&mut self, class: Text) -> Result<Reply> {
        let reply = self.demand(&Command::Site(SiteCommand::SetCos(class.clone()))).await?;
        Arc::make_mut(&mut self.options).class_of_service = Some(class);
        Ok(reply)
    }

    /// Protects data connections from now on, or no longer; also those of sessions opened from this one.
    ///
    /// # Errors
    ///
    /// If the server refuses, or the control connection itself is in clear.
    pub async fn set_private_data(&mut self, private: bool) -> Result<()> {
        if private && self.data_tls.is_none() {
            return Err(needs_tls());
        }
        let level = if private { Protection::Private } else { Protection::Clear };
        self.demand(&Command::Prot(level)).await?;
        Arc::make_mut(&mut self.options).private_data = private;
        Ok(())
    }

    /// Sends one command and gives its last reply, whatever it says.
    ///
    /// # Errors
    ///
    /// Only if the connection breaks.
    pub async fn ask(&mut self, command: &Command) -> Result<Reply> {
        self.control.ask(command).await
    }

    /// Sends a line as it is: `quote`. Not for commands that move data.
    ///
    /// # Errors
    ///
    /// Only if the connection breaks.
    pub async fn quote(&mut self, line: &Text) -> Result<Reply> {
        self.control.queue_line(line);
        self.control.flush().await?;
        // Whatever it was, what we remember to have set may have changed.
        self.state.mode = TransferMode::Block;
        self.state.streams = 0;
        self.state.delayed = false;
        self.state.stripes = false;
        self.control.last_reply(line.as_str(), self.control.limits.reply).await
    }

    /// As [`ask`](Self::ask), and an answer other than 2yz is an error.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] with the answer.
    pub async fn demand(&mut self, command: &Command) -> Result<Reply> {
        self.control.demand(command).await
    }

    /// Sends commands in one flight, none of which decides about the next. `true` stands with a command that must succeed.
    ///
    /// # Errors
    ///
    /// The first refusal of a command that must succeed, when all replies have come: the session goes on in step, and
    /// knows the mode that the server is in.
    pub(crate) async fn together(&mut self, commands: &[(Command, bool)]) -> Result<Vec<Reply>> {
        let replies = self.control.together(commands).await?;
        self.judge(commands, replies)
    }

    fn judge(&mut self, commands: &[(Command, bool)], replies: Vec<Reply>) -> Result<Vec<Reply>> {
        let mut refused = None;
        for ((command, needed), reply) in commands.iter().zip(&replies) {
            match command {
                Command::Mode(mode) if reply.is_success() => self.state.mode = *mode,
                _ if *needed && !reply.is_success() => {
                    refused.get_or_insert_with(|| ClientError::refused(command, reply.clone()));
                }
                _ => {}
            }
        }
        refused.map_or(Ok(replies), Err)
    }

    /// Sets the transfer mode, if it is another one.
    pub(crate) async fn set_mode(&mut self, mode: TransferMode) -> Result<()> {
        if self.state.mode != mode {
            self.demand(&Command::Mode(mode)).await?;
            self.state.mode = mode;
        }
        Ok(())
    }

    /// The folder the server is in.
    ///
    /// # Errors
    ///
    /// If the server does not say.
    pub async fn folder(&mut self) -> Result<FtpPath> {
        let reply = self.demand(&Command::Pwd).await?;
        Ok(reply.as_directory()?)
    }

    /// Size of a file in bytes.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub async fn size(&mut self, path: &FtpPath) -> Result<u64> {
        let reply = self.demand(&Command::Size(path.clone())).await?;
        Ok(reply.as_size()?)
    }

    /// When a file was changed.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub async fn modified(&mut self, path: &FtpPath) -> Result<FtpTime> {
        let reply = self.demand(&Command::Mdtm(path.clone())).await?;
        Ok(reply.as_time()?)
    }

    /// A sum from the server's catalogue, in hexadecimal.
    ///
    /// # Errors
    ///
    /// If the server has none.
    pub async fn checksum(&mut self, algorithm: Algorithm, path: &FtpPath) -> Result<String> {
        let command = Command::Cksm { algorithm, offset_bytes: 0, length_bytes: None, path: path.clone() };
        let reply = self.demand(&command).await?;
        Ok(reply.as_checksum(algorithm)?)
    }

    /// The sum that transfers are compared by; `None` if the server has none of this file.
    ///
    /// # Errors
    ///
    /// Only if the connection breaks.
    pub(crate) async fn known_sum(&mut self, path: &FtpPath) -> Result<Option<(Algorithm, String)>> {
        let Some(algorithm) = self.state.algorithm else { return Ok(None) };
        match self.checksum(algorithm, path).await {
            Ok(sum) => Ok(Some((algorithm, sum))),
            Err(ClientError::Refused { .. } | ClientError::Unexpected(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which bytes of a cut upload the server still holds; nothing if it holds none, or does not know the question.
    ///
    /// # Errors
    ///
    /// If the connection breaks or the answer makes no sense.
    pub async fn partial(&mut self, path: &FtpPath) -> Result<Coverage> {
        if !self.features.has(Features::PENSTOCK) {
            return Ok(Coverage::new());
        }
        let reply = self.ask(&Command::Site(SiteCommand::Partial(path.clone()))).await?;
        match reply.as_partial() {
            Ok(received) => Ok(received),
            Err(_) if reply.code() == 550 => Ok(Coverage::new()),
            Err(UnexpectedReply { .. }) => {
                Err(ClientError::refused(&Command::Site(SiteCommand::Partial(path.clone())), reply))
            }
        }
    }

    /// Renames an entry.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub async fn rename(&mut self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        let command = Command::Rnfr(from.clone());
        let reply = self.ask(&command).await?;
        if reply.code() != 350 {
            return Err(ClientError::refused(&command, reply));
        }
        self.demand(&Command::Rnto(to.clone())).await.map(drop)
    }

    /// Makes a folder and those above it; what is there already is left as it is.
    ///
    /// # Errors
    ///
    /// If one cannot be made.
    pub async fn make_folders(&mut self, path: &FtpPath) -> Result<()> {
        let reply = self.ask(&Command::Mkd(path.clone())).await?;
        if reply.is_success() || self.is_folder(path).await? {
            return Ok(());
        }
        let above = names::parent(path.as_str());
        if above != path.as_str() && !self.is_folder(&FtpPath::new(above)?).await? {
            Box::pin(self.make_folders(&FtpPath::new(above)?)).await?;
            return self.demand(&Command::Mkd(path.clone())).await.map(drop);
        }
        Err(ClientError::refused(&Command::Mkd(path.clone()), reply))
    }

    /// Whether the server has a folder of this name.
    ///
    /// # Errors
    ///
    /// Only if the connection breaks.
    pub async fn is_folder(&mut self, path: &FtpPath) -> Result<bool> {
        if path.as_str() == "/" {
            return Ok(true);
        }
        let reply = self.ask(&Command::Mlst(Some(path.clone()))).await?;
        Ok(reply.as_entry().is_ok_and(|(facts, _)| crate::listing::is_folder(&facts)))
    }

    /// Makes an option of the next transfers known, if the server has it.
    pub(crate) async fn option(&mut self, option: CommandOption) -> Result<bool> {
        Ok(self.ask(&Command::Opts(option)).await?.is_success())
    }

    /// Says good-bye. Errors no longer matter.
    pub async fn quit(mut self) {
        self.control.limits.reply = std::time::Duration::from_secs(5);
        let _ = self.ask(&Command::Quit).await;
    }
}
