//! The state between commands: one session, folders on both sides, settings.
//!
//! Owns the session and reopens it when it was lost. Talks to [`command`] for what was said and to the
//! library for what is done.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use wire::ftp::{FtpPath, Secret, Text};

use super::{
    args::Args,
    command::{self, Given},
    interrupts::Interrupts,
    output::Output,
    words,
};
use crate::{Client, ClientError, How, Identity, IdentityOptions, Limits, Options, Ready, Surroundings, Target, names};

/// What the caller does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The next command.
    Go,
    /// It failed; a script stops here.
    Failed,
    /// Ctrl-C.
    Interrupted,
    /// The user wants to end.
    Quit,
}

/// Why a command did not work.
#[derive(Debug)]
pub(super) enum Trouble {
    Client(ClientError),
    /// The user's input, or the state here.
    Said(String),
    /// Everything about it has been told.
    Told,
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<wire::ftp::NotText> for Trouble {
    fn from(error: wire::ftp::NotText) -> Self {
        Self::Client(error.into())
    }
}

pub(super) type Done = Result<(), Trouble>;

/// Names of a folder, for completion.
type Remembered = (String, Instant, Vec<(String, bool)>);

/// How long a folder's names are remembered for completion.
const REMEMBER: Duration = Duration::from_secs(10);

/// How long completion may wait for the server.
const COMPLETE_LIMIT: Duration = Duration::from_secs(3);

pub(super) struct App {
    pub(super) output: Output,
    pub(super) how: How,
    /// Streams of parallel transfers.
    pub(super) width: u16,
    /// Whether `get` and `put` are parallel.
    pub(super) autop: bool,
    pub(super) verbose: bool,
    pub(super) session: Option<Client<Ready>>,
    pub(super) options: Options,
    opened: bool,
    pub(super) folder: String,
    /// Where the session began.
    pub(super) home: String,
    interrupts: Interrupts,
    remembered: Option<Remembered>,
}

impl App {
    /// As the command line says; nothing is connected yet.
    pub(super) fn new(args: &Args, output: Output) -> crate::Result<Self> {
        let identity = if args.clear { None } else { Some(load_identity(args)?) };
        let text = |text: &String| Text::new(text.clone());
        let options = Options {
            target: Target { user: None, host: String::new(), port: crate::DEFAULT_PORT },
            identity,
            password: None,
            private_data: args.private,
            class_of_service: args.class_of_service.as_ref().map(text).transpose()?,
            limits: Limits { stall: Duration::from_secs(args.stall), ..Limits::default() },
            trace: None,
        };
        let how = How {
            streams: args.width,
            block_bytes: args.block,
            passive: args.passive,
            listen: args.listen.clone(),
            verify: !args.no_verify,
            resume: false,
            preserve: args.preserve,
            sessions: args.sessions,
            handshake: args.handshake,
        };
        let mut app = Self {
            output,
            how,
            width: args.width,
            autop: true,
            verbose: false,
            session: None,
            options,
            opened: false,
            folder: "/".to_owned(),
            home: "/".to_owned(),
            interrupts: Interrupts::default(),
            remembered: None,
        };
        app.set_verbose(args.verbose);
        Ok(app)
    }

    pub(super) fn interrupts(&self) -> Interrupts {
        self.interrupts.clone()
    }

    pub(super) fn prompt(&self) -> String {
        if self.session.is_some() {
            format!("{}:{}> ", self.options.target.host, self.folder)
        } else {
            "pftp> ".to_owned()
        }
    }

    /// Connects and logs in.
    pub(super) async fn open(&mut self, target: &Target) -> crate::Result<()> {
        self.close().await;
        self.options.target = target.clone();
        self.opened = true;
        self.folder = "/".to_owned();
        self.connect().await?;
        let welcome = self.session.as_ref().map(|session| session.welcome().to_owned()).unwrap_or_default();
        let origin = self.options.identity.as_ref().map_or("no TLS", |identity| identity.origin.as_str()).to_owned();
        let server = target.server();
        self.output.note(&format!("connected to {server} ({origin})"));
        self.output.note(&names::printable(&welcome));
        if self.output.is_json() {
            let folder = self.folder.clone();
            self.output
                .result("", || json!({"event": "connected", "server": server, "welcome": welcome, "folder": folder}));
        }
        Ok(())
    }

    async fn connect(&mut self) -> crate::Result<()> {
        let mut session = Client::open(Arc::new(self.options.clone())).await?;
        if self.folder == "/" {
            self.folder = session.folder().await?.into_string();
            self.home.clone_from(&self.folder);
        } else {
            let command = wire::ftp::Command::Cwd(FtpPath::new(self.folder.clone())?);
            session.demand(&command).await?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Ends the session, if there is one.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.quit().await;
        }
        self.remembered = None;
    }

    /// The session; one that was lost is opened again.
    pub(super) async fn session(&mut self) -> Result<&mut Client<Ready>, Trouble> {
        if self.session.is_none() {
            if !self.opened {
                return Err(Trouble::Said("not connected: open HOST".to_owned()));
            }
            self.output.note("the session was lost: opening another");
            self.connect().await?;
        }
        self.session.as_mut().ok_or_else(|| Trouble::Said("not connected: open HOST".to_owned()))
    }

    /// The session and what else a transfer needs.
    pub(super) fn cancel(&self) -> CancellationToken {
        self.interrupts.current()
    }

    /// A path of the user on the server.
    pub(super) fn remote(&self, text: &str) -> Result<FtpPath, Trouble> {
        Ok(names::absolute(&self.folder, text)?)
    }

    /// Runs one command line.
    pub(super) async fn execute(&mut self, line: &str) -> Flow {
        if let Some(shell) = line.trim().strip_prefix('!') {
            return self.shell(shell).await;
        }
        let given = match read(line) {
            Ok(Some(given)) => given,
            Ok(None) => return Flow::Go,
            Err(text) => {
                self.output.error(&text, || json!({"event": "error", "message": text}));
                return Flow::Failed;
            }
        };
        if given.command.name == "bye" {
            return Flow::Quit;
        }
        let name = given.command.name;
        let cancel = self.interrupts.begin();
        let moves = matches!(
            name,
            "get" | "put" | "mget" | "mput" | "pget" | "pput" | "mpget" | "mpput" | "reget" | "reput" | "append"
        );
        let result = if moves {
            // A transfer stops in its own way, so that it can go on later.
            self.run(&given).await
        } else {
            let stopped = tokio::select! {
                result = self.run(&given) => Ok(result),
                () = cancel.cancelled() => Err(()),
            };
            stopped.unwrap_or_else(|()| {
                // An answer may still come: the connection is out of step.
                self.session = None;
                Err(Trouble::Client(ClientError::Cancelled))
            })
        };
        self.interrupts.end();
        match result {
            Ok(()) => Flow::Go,
            Err(Trouble::Client(error)) => {
                if error.loses_connection() {
                    self.session = None;
                }
                self.failed(name, &error);
                if matches!(error, ClientError::Cancelled) { Flow::Interrupted } else { Flow::Failed }
            }
            Err(Trouble::Said(text)) => {
                self.output.error(&text, || json!({"event": "error", "command": name, "message": text}));
                Flow::Failed
            }
            Err(Trouble::Told) if cancel.is_cancelled() => Flow::Interrupted,
            Err(Trouble::Told) => Flow::Failed,
        }
    }

    /// Tells of an error.
    pub(super) fn failed(&self, command: &str, error: &ClientError) {
        let text = names::printable(&error.chain());
        let code = match error {
            ClientError::Refused { reply, .. } => Some(reply.code()),
            _ => None,
        };
        let remedy = format!("{:?}", error.remedy()).to_ascii_lowercase();
        self.output.error(
            &text,
            || json!({"event": "error", "command": command, "message": text, "code": code, "remedy": remedy}),
        );
    }

    async fn run(&mut self, given: &Given) -> Done {
        match given.command.name {
            "open" => {
                let target: Target = given.word(0).unwrap_or_default().parse()?;
                Ok(self.open(&target).await?)
            }
            "close" => {
                self.close().await;
                self.opened = false;
                Ok(())
            }
            "user" => self.user(given).await,
            "cd" | "pwd" => self.change_folder(given).await,
            "lcd" | "lpwd" => self.change_local(given),
            "lls" => self.local_list(given).await,
            "ls" | "dir" => self.list(given).await,
            "mkdir" | "rmdir" | "rename" | "delete" | "chmod" => self.change_names(given).await,
            "stage" | "size" | "cksum" | "stat" => self.ask_about(given).await,
            "quote" | "site" | "setcos" | "lscos" => self.say(given).await,
            "append" => self.append(given).await,
            "get" | "pget" | "mget" | "mpget" | "reget" => self.get(given).await,
            "put" | "pput" | "mput" | "mpput" | "reput" => self.put(given).await,
            "help" => self.help(given),
            _ => self.set(given).await,
        }
    }

    async fn user(&mut self, given: &Given) -> Done {
        if !self.opened {
            return Err(Trouble::Said("not connected: open HOST".to_owned()));
        }
        let user = given.word(0).map(str::to_owned);
        let password = given.word(1).map(Secret::new).transpose()?;
        let before = (self.options.target.user.clone(), self.options.password.clone());
        (self.options.target.user, self.options.password) = (user, password);
        let target = self.options.target.clone();
        if let Err(error) = self.open(&target).await {
            (self.options.target.user, self.options.password) = before;
            return Err(error.into());
        }
        Ok(())
    }

    fn help(&self, given: &Given) -> Done {
        let text = match given.word(0) {
            None => command::overview(),
            Some(name) => command::explain(command::find(name).map_err(Trouble::Said)?),
        };
        self.output.result(&text, || json!({"event": "help", "text": text}));
        Ok(())
    }

    async fn shell(&mut self, line: &str) -> Flow {
        let status = tokio::process::Command::new("sh").arg("-c").arg(line).status().await;
        match status {
            Ok(status) if status.success() => Flow::Go,
            Ok(status) => {
                self.output.note(&format!("{}: {status}", line.trim()));
                Flow::Failed
            }
            Err(error) => {
                self.output
                    .error(&format!("run sh: {error}"), || json!({"event": "error", "message": error.to_string()}));
                Flow::Failed
            }
        }
    }

    /// Names in a folder of the server and whether they are folders, for completion: quickly, or none.
    pub(super) async fn names_for_completion(&mut self, folder: &str) -> Vec<(String, bool)> {
        if let Some((path, when, names)) = &self.remembered
            && path == folder
            && when.elapsed() < REMEMBER
        {
            return names.clone();
        }
        let (Some(session), Ok(path)) = (self.session.as_mut(), FtpPath::new(folder)) else { return Vec::new() };
        let Ok(listed) = tokio::time::timeout(COMPLETE_LIMIT, session.list(&path)).await else {
            // An answer may still come.
            self.session = None;
            return Vec::new();
        };
        let entries = listed.map(|listing| listing.entries).unwrap_or_default();
        let names: Vec<(String, bool)> =
            entries.into_iter().map(|entry| (entry.name, crate::listing::is_folder(&entry.facts))).collect();
        self.remembered = Some((folder.to_owned(), Instant::now(), names.clone()));
        names
    }

    /// Names on the server have changed.
    pub(super) fn forget_names(&mut self) {
        self.remembered = None;
    }
}

/// Reads a line; `None` if nothing is on it.
fn read(line: &str) -> Result<Option<Given>, String> {
    let mut words = words::split(line).map_err(|error| error.to_string())?;
    if words.is_empty() {
        return Ok(None);
    }
    let name = words.remove(0);
    let rest = line.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
    let command = command::find(&name.text)?;
    command::parse(command, words, rest).map(Some)
}

fn load_identity(args: &Args) -> crate::Result<Identity> {
    let options = IdentityOptions {
        certificate: args.cert.clone(),
        key: args.key.clone(),
        proxy: args.proxy.clone(),
        authorities: args.ca.clone(),
    };
    let identity = options.load(&Surroundings::of_process())?;
    let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_micros());
    if let Some(credential) = &identity.credential
        && u128::try_from(credential.current().not_after_us()).is_ok_and(|end| end < now_us)
    {
        let reason = format!("{} has expired; make a new one, or name another with --cert or --proxy", identity.origin);
        return Err(ClientError::Identity { what: "use your certificate", reason });
    }
    Ok(identity)
}
