//! One arm for each command: what it means when its turn has come.
//!
//! Owns the order of commands that belong together (USER and PASS, PBSZ and PROT, RNFR and RNTO) and the refusals of
//! what is not offered, each of which names what is. Never does anything itself: it answers, sets, or asks for work.

use wire::{
    ftp::{
        Authentication, Command, CommandOption, DataAuthentication, DataCredential, FtpPath, Part, Protection, Reply,
        Representation, Structure, Text, TransferMode,
    },
    id::AccountName,
};

use super::{
    super::{config::Access, path::AbsolutePath},
    Action, Channel, Phase, Session, answers,
    lane::Turn,
    settings::MAX_STREAMS,
    transfers::{StoreAs, mode_refused},
    work::{ListForm, Login, NameWork, Work},
};

/// Names that say "as my certificate says": Globus's, and what curl and lftp send for want of one.
const NO_NAME: [&str; 4] = ["", ":globus-mapping:", "anonymous", "ftp"];

impl Session {
    /// When a command may begin.
    pub(super) fn turn(&self, command: &Command) -> Turn {
        if let Some(turn) = self.transfer_turn(command) {
            return turn;
        }
        match command {
            // Settings, and answers from what the session knows. Those that move connections wait for quiet too.
            Command::Type(_)
            | Command::Stru(_)
            | Command::Mode(_)
            | Command::Pbsz(_)
            | Command::Prot(_)
            | Command::Dcau(_)
            | Command::Opts(_)
            | Command::Sbuf(_)
            | Command::Trev { .. }
            | Command::Allo(_)
            | Command::Rest(_)
            | Command::Scks { .. }
            | Command::Port(_)
            | Command::Eprt(_)
            | Command::Spor(_)
            | Command::Pasv
            | Command::Epsv(_)
            | Command::Spas { .. }
            | Command::Noop
            | Command::Feat
            | Command::Pwd => Turn::Quiet,
            _ => Turn::Settled,
        }
    }

    /// Begins a command.
    pub(super) fn begin(&mut self, command: Command, actions: &mut Vec<Action>) {
        let rename_from = match command {
            // They do not come between RNFR and RNTO in the sense of RFC 959.
            Command::Noop | Command::Stat(None) => self.settings.rename_from.clone(),
            _ => self.settings.rename_from.take(),
        };
        if !matches!(self.phase, Phase::Ready { .. }) && !before_login(&command) {
            let text = match self.channel() {
                Channel::Clear if self.rules.access != Access::AnonymousInClear => "Log in first: AUTH TLS, then USER.",
                _ => "Log in first: send USER.",
            };
            return self.lane.answer(Reply::new(530, text), actions);
        }
        match command {
            // ---- Who is asking
            Command::User(name) => self.user(&name, actions),
            Command::Pass(_) => self.pass(actions),
            Command::Acct(_) => self.say(202, "No account information is needed.", actions),
            Command::Auth(mechanism) => self.auth(&mechanism, actions),
            Command::Pbsz(_) | Command::Prot(_) | Command::Ccc => self.protection(&command, actions),
            Command::Adat(_) | Command::Mic(_) | Command::Enc(_) | Command::Conf(_) => {
                self.say(503, "No security exchange of that kind is under way: AUTH TLS is offered.", actions);
            }
            Command::Dcau(DataAuthentication::None) => self.say(200, "DCAU N.", actions),
            Command::Dcau(_) => self.say(504, "Only DCAU N is offered; PROT P protects data connections.", actions),
            Command::Dcsc(DataCredential::Default) => self.say(200, "DCSC D.", actions),
            Command::Dcsc(_) => self.say(504, "Only DCSC D is offered.", actions),
            Command::Rein => self.say(502, "REIN is not offered: QUIT and connect again.", actions),
            Command::Quit => self.leave(Some(Reply::new(221, "Goodbye.")), actions),
            Command::Smnt(_) => self.say(502, "SMNT is not offered: there is one tree.", actions),
            Command::Clnt(_) => self.say(200, "Noted.", actions),
            Command::Lang(tag) => self.lang(tag.as_ref(), actions),

            // ---- How data flows
            Command::Type(_) | Command::Stru(_) | Command::Mode(_) => self.represent(&command, actions),
            Command::Port(address) => self.active("PORT", vec![address.into()], actions),
            Command::Eprt(address) => self.active("EPRT", vec![address], actions),
            Command::Spor(addresses) => self.active("SPOR", addresses, actions),
            Command::Pasv => self.pasv(actions),
            Command::Epsv(argument) => self.epsv(argument, actions),
            Command::Spas { extended } => self.spas(extended, actions),
            Command::Sbuf(bytes) => self.buffer(bytes, actions),
            Command::Trev { seconds, .. } => {
                self.settings.marker_seconds = u32::try_from(seconds.clamp(1, 3600)).unwrap_or(3600);
                self.say(200, &format!("A marker every {} s.", self.settings.marker_seconds), actions);
            }
            Command::Opts(option) => self.option(option, actions),

            // ---- Data
            Command::Rest(point) => {
                self.settings.restart = Some(point);
                self.say(350, "Restart marker taken: send RETR or STOR.", actions);
            }
            Command::Allo(bytes) => {
                self.settings.size_bytes = Some(bytes);
                self.say(200, &format!("{bytes} bytes expected."), actions);
            }
            Command::Scks { algorithm, value } => {
                self.settings.expected_sum = Some((algorithm, value.as_str().to_ascii_lowercase()));
                self.say(200, "The next stored file must have this sum.", actions);
            }
            Command::Retr(path) => self.retrieve("RETR", &path, None, actions),
            Command::Eret(Part { offset_bytes, length_bytes, path }) => {
                self.retrieve("ERET", &path, Some((offset_bytes, length_bytes)), actions);
            }
            Command::Stor(path) => self.store("STOR", &path, StoreAs::File, actions),
            Command::Appe(path) => self.store("APPE", &path, StoreAs::Append, actions),
            Command::Esto { offset_bytes, path } => self.store("ESTO", &path, StoreAs::At(offset_bytes), actions),
            Command::Stou => {
                let here = FtpPath::new(".").expect("a dot is a path");
                self.store("STOU", &here, StoreAs::NewName, actions);
            }
            Command::Get(transaction) => self.transact("GET", transaction, actions),
            Command::Put(transaction) => self.transact("PUT", transaction, actions),
            Command::List(path) => self.list("LIST", path.as_ref(), ListForm::Long, actions),
            Command::Nlst(path) => self.list("NLST", path.as_ref(), ListForm::Names, actions),
            Command::Mlsd(path) => {
                let form = ListForm::Facts(self.settings.facts);
                self.list("MLSD", path.as_ref(), form, actions);
            }
            Command::Abor => self.say(226, "Abort successful.", actions),

            // ---- Names
            Command::Rnto(to) => match rename_from {
                None => self.say(503, "Send RNFR directly before RNTO.", actions),
                Some(from) => {
                    self.with_path("RNTO", Some(&to), actions, |to| Work::Names(NameWork::Rename { from, to }));
                }
            },
            Command::Cwd(_)
            | Command::Cdup
            | Command::Pwd
            | Command::Rnfr(_)
            | Command::Dele(_)
            | Command::Rmd(_)
            | Command::Mkd(_)
            | Command::Mfmt { .. } => self.name_work(command, actions),
            Command::Size(_)
            | Command::Mdtm(_)
            | Command::Mlst(_)
            | Command::Mlsc(_)
            | Command::Stat(_)
            | Command::Cksm { .. }
            | Command::Hash(_) => self.question(command, actions),
            Command::Site(site) => self.site(site, actions),

            // ---- The rest
            Command::Feat => self.lane.answer(answers::features(), actions),
            Command::Syst => self.say(215, "UNIX Type: L8", actions),
            Command::Help(topic) => self.lane.answer(answers::help(topic.as_ref()), actions),
            Command::Noop => self.say(200, "NOOP command successful.", actions),
            other => self.say(502, &format!("{} is not offered: HELP lists what is.", other.verb()), actions),
        }
    }

    /// Answers in one line.
    pub(super) fn say(&mut self, code: u16, text: &str, actions: &mut Vec<Action>) {
        self.lane.answer(Reply::new(code, text), actions);
    }

    /// What a path of the client's means; none means here.
    pub(super) fn resolve(&self, path: Option<&FtpPath>) -> Result<AbsolutePath, Reply> {
        let Some(path) = path else { return Ok(self.directory.clone()) };
        self.directory.join(path).map_err(|error| Reply::new(553, format!("{error}.")))
    }

    /// Runs work on a path, unless the path is none.
    pub(super) fn with_path(
        &mut self,
        verb: &'static str,
        path: Option<&FtpPath>,
        actions: &mut Vec<Action>,
        work: impl FnOnce(AbsolutePath) -> Work,
    ) {
        match self.resolve(path) {
            Ok(path) => self.run(verb, work(path), actions),
            Err(refusal) => self.lane.answer(refusal, actions),
        }
    }

    fn user(&mut self, name: &Text, actions: &mut Vec<Action>) {
        let channel = self.channel();
        let unnamed = NO_NAME.contains(&name.as_str());
        if let Phase::Ready { account, .. } = &self.phase {
            let reply = if unnamed || account.as_str() == name.as_str() {
                Reply::new(230, format!("Logged in as {account} already."))
            } else {
                Reply::new(503, format!("Logged in as {account}: QUIT and connect again to be somebody else."))
            };
            return self.lane.answer(reply, actions);
        }
        let certificate = matches!(channel, Channel::Tls { certificate: true });
        let anonymous = match self.rules.access {
            Access::Certificate => false,
            Access::AnonymousOverTls => matches!(channel, Channel::Tls { .. }),
            Access::AnonymousInClear => true,
        };
        if let Some(why) = self.refused_certificate.clone() {
            // Nobody who shows something is nobody: a bad certificate does not become anonymous.
            self.say(530, &format!("Your certificate is refused: {why}."), actions);
        } else if certificate {
            let account = if unnamed { Ok(None) } else { AccountName::new(name.as_str()).map(Some) };
            match account {
                Ok(account) => {
                    self.phase = Phase::LoggingIn(channel);
                    self.run("USER", Work::Login(Login::Certificate { account }), actions);
                }
                Err(error) => self.say(501, &format!("{error}."), actions),
            }
        } else if anonymous && unnamed {
            self.phase = Phase::Named(channel);
            self.say(331, "Anybody is welcome: send any PASS.", actions);
        } else if channel == Channel::Clear {
            self.say(530, "Protect the connection first: AUTH TLS, with your certificate.", actions);
        } else {
            self.say(530, "You showed no certificate in the TLS handshake: connect again with yours.", actions);
        }
    }

    fn pass(&mut self, actions: &mut Vec<Action>) {
        match self.phase {
            Phase::Named(channel) => {
                self.phase = Phase::LoggingIn(channel);
                self.run("PASS", Work::Login(Login::Anonymous), actions);
            }
            Phase::Ready { .. } => self.say(230, "Logged in; no password is needed.", actions),
            _ => self.say(503, "Send USER first.", actions),
        }
    }

    fn auth(&mut self, mechanism: &Authentication, actions: &mut Vec<Action>) {
        let private = match mechanism {
            Authentication::Tls => false,
            Authentication::TlsPrivate => true,
            Authentication::Gssapi => return self.say(504, "AUTH GSSAPI is not offered: AUTH TLS is.", actions),
            _ => return self.say(504, "That mechanism is not offered: AUTH TLS is.", actions),
        };
        match self.phase {
            Phase::Open(Channel::Clear) if self.lane.is_empty() => {
                self.say(234, "Begin the TLS handshake, with your certificate.", actions);
                self.settings.private = private;
                self.settings.protection_buffer = private;
                self.phase = Phase::Securing;
                actions.push(Action::Secure);
            }
            Phase::Open(Channel::Clear) => self.say(503, "Send nothing behind AUTH before its reply.", actions),
            _ => self.say(503, "AUTH comes once, before the login.", actions),
        }
    }

    /// `PBSZ`, `PROT`, `CCC`
    fn protection(&mut self, command: &Command, actions: &mut Vec<Action>) {
        let protected = matches!(self.channel(), Channel::Tls { .. });
        match command {
            Command::Ccc => self.say(533, "The control connection stays protected.", actions),
            // Globus's clients send it in every session, whatever the protection.
            Command::Pbsz(bytes) if protected || matches!(self.phase, Phase::Ready { .. }) => {
                // TLS has records of its own: RFC 4217 section 8 wants 0, and Globus's clients their own number back.
                self.settings.protection_buffer = true;
                self.lane.answer(Reply::protection_buffer(*bytes), actions);
            }
            _ if !protected => self.say(503, "Send AUTH TLS first.", actions),
            Command::Prot(_) if !self.settings.protection_buffer => {
                self.say(503, "Send PBSZ 0 directly before PROT.", actions);
            }
            Command::Prot(Protection::Clear) if self.rules.private_data_only => {
                self.say(534, "Data connections must be protected here: PROT P.", actions);
            }
            Command::Prot(Protection::Clear) => self.protect(false, actions),
            Command::Prot(Protection::Private) => self.protect(true, actions),
            _ => self.say(536, "Only PROT C and PROT P are offered.", actions),
        }
    }

    fn protect(&mut self, private: bool, actions: &mut Vec<Action>) {
        if self.settings.private != private {
            self.settings.private = private;
            self.settings.drop_connections();
            actions.push(Action::DropPort);
        }
        self.say(200, if private { "Data connections are private." } else { "Data connections are clear." }, actions);
    }

    fn lang(&mut self, tag: Option<&Text>, actions: &mut Vec<Action>) {
        let english = tag.is_none_or(|tag| tag.as_str().to_ascii_lowercase().starts_with("en"));
        if english {
            self.say(200, "Messages are in English.", actions);
        } else {
            self.say(504, "Messages are in English only: LANG EN.", actions);
        }
    }

    /// `TYPE`, `STRU`, `MODE`
    fn represent(&mut self, command: &Command, actions: &mut Vec<Action>) {
        match command {
            Command::Type(kind @ Representation::Image) => {
                self.settings.representation = *kind;
                self.say(200, "Type set to I.", actions);
            }
            Command::Type(kind @ Representation::Ascii) => {
                self.settings.representation = *kind;
                self.say(200, "Type set to A: for listings; the bytes of files are never changed.", actions);
            }
            Command::Type(_) => self.say(504, "Only TYPE A, TYPE I and TYPE L 8 are offered.", actions),
            Command::Stru(Structure::File) => self.say(200, "Structure set to F.", actions),
            Command::Stru(_) => self.say(504, "Only STRU F is offered.", actions),
            Command::Mode(mode @ (TransferMode::Stream | TransferMode::Extended)) => {
                if self.settings.mode != *mode {
                    self.settings.mode = *mode;
                    self.settings.drop_connections();
                    actions.push(Action::DropPort);
                }
                self.say(200, &format!("Mode set to {}.", mode.letter()), actions);
            }
            Command::Mode(mode) => self.lane.answer(mode_refused(*mode), actions),
            _ => unreachable!("begin sends the three commands above"),
        }
    }

    pub(super) fn buffer(&mut self, bytes: u64, actions: &mut Vec<Action>) {
        self.settings.set_buffer(bytes);
        self.say(200, &format!("TCP buffers of {bytes} bytes are asked for."), actions);
    }

    fn option(&mut self, option: CommandOption, actions: &mut Vec<Action>) {
        match option {
            CommandOption::Retrieve(options) => {
                if let Some(parallelism) = options.parallelism {
                    self.settings.streams = parallelism.starting.clamp(1, MAX_STREAMS);
                }
                // The stripe layout is for striped receivers; a receiver of MODE E takes blocks in any order.
                self.say(200, &format!("RETR opens {} connections.", self.settings.streams), actions);
            }
            CommandOption::AllowDelayedPassive(on) => {
                self.settings.delayed_passive = on;
                self.say(200, "OPTS PASV taken.", actions);
            }
            CommandOption::AllowDelayedStripes(on) => {
                self.settings.delayed_stripes = on;
                self.say(200, "OPTS SPAS taken.", actions);
            }
            CommandOption::MlstFacts(facts) => {
                self.settings.facts = facts;
                // RFC 3659 section 7.9: the reply repeats what was taken.
                self.say(200, format!("MLST OPTS {facts}").trim_end(), actions);
            }
            CommandOption::Utf8(true) => self.say(200, "UTF-8 is always on.", actions),
            CommandOption::Utf8(false) => self.say(504, "UTF-8 is always on.", actions),
            CommandOption::Hash(None) => self.say(200, self.settings.hash.name(), actions),
            CommandOption::Hash(Some(algorithm)) => {
                self.settings.hash = algorithm;
                self.say(200, algorithm.name(), actions);
            }
            _ => self.say(501, "That option is not known.", actions),
        }
    }
}

/// Whether a command may come before the login.
const fn before_login(command: &Command) -> bool {
    matches!(
        command,
        Command::User(_)
            | Command::Pass(_)
            | Command::Acct(_)
            | Command::Auth(_)
            | Command::Adat(_)
            | Command::Mic(_)
            | Command::Enc(_)
            | Command::Conf(_)
            | Command::Pbsz(_)
            | Command::Prot(_)
            | Command::Ccc
            | Command::Rein
            | Command::Quit
            | Command::Clnt(_)
            | Command::Lang(_)
            | Command::Opts(CommandOption::Utf8(_))
            | Command::Feat
            | Command::Syst
            | Command::Help(_)
            | Command::Noop
            | Command::Abor
            | Command::Stat(None)
    )
}
