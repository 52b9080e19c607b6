//! The pure session: which command may come when, what it means now, and in which order replies go out.
//!
//! Owns the state of one control connection: how far the login is, the working directory, what the client has set,
//! and the order of commands. Talks to its driver in values: an [`Event`] in, [`Action`]s out. Never reads a clock or
//! a socket, and never asks the catalogue or a mover.
//!
//! # States
//!
//! ```text
//!                    AUTH TLS          handshake done
//! Open(clear) ----------------> Securing -----------> Open(TLS)
//!      |  (only where the configuration lets people in without TLS)  |
//!      +---------------------------+---------------------------------+
//!                                  | USER                    refused, three times at most
//!                                  v                  <-----------------------+
//!                    Named (a password is waited for, anonymous only)         |
//!                                  | PASS, or at once with a certificate      |
//!                                  v                                          |
//!                              LoggingIn -------------------------------------+
//!                                  | let in
//!                                  v
//!                                Ready          every state --QUIT, limit, stop, leave--> Leaving
//! ```
//!
//! | command | Open(clear) | Open(TLS) | Ready |
//! | --- | --- | --- | --- |
//! | FEAT HELP SYST NOOP CLNT LANG OPTS UTF8 STAT ABOR QUIT | yes | yes | yes |
//! | AUTH | yes | 503 | 503 |
//! | PBSZ PROT | 503 | yes | yes, over TLS |
//! | USER | 530, AUTH first | yes | 503 for another account |
//! | PASS | 503, USER first | 503, USER first | 230 (it follows USER in many clients) |
//! | all others | 530 | 530 | yes |
//!
//! # Wrong order
//!
//! | command | needs | else |
//! | --- | --- | --- |
//! | PROT | PBSZ | 503 |
//! | RNTO | RNFR directly before | 503 |
//! | RETR STOR APPE ERET ESTO STOU LIST NLST MLSD | PASV, EPSV, SPAS, PORT, EPRT or SPOR | 425 |
//! | the same, where the rules want protected data | PROT P | 521 |
//! | PORT EPRT PASV SPAS SPOR | no EPSV ALL before | 503 |
//!
//! MODE, PROT and a new PASV or PORT close data connections that MODE E left open; a MODE E transfer keeps them for
//! the next. REST, ALLO and SCKS hold for one transfer. TYPE is looked at when a transfer begins, not before (curl
//! sends it after EPSV), and never changes the bytes of a file.
//!
//! # Several commands at once
//!
//! Commands may be sent before earlier ones are answered; [`lane`] keeps them in order. Two do not wait: ABOR stops the
//! transfer that moves, and answers 426 for transfers that wait before it; STAT without a path tells how far it is.

mod answers;
mod begin;
mod lane;
mod names;
mod settings;
#[cfg(test)]
mod tests;
mod transfers;
pub mod work;

use std::net::IpAddr;

use bytes::Bytes;
use wire::{
    ftp::{Command, ParseError, Reply},
    id::AccountName,
};

use self::{
    lane::{Lane, Turn},
    settings::Settings,
    work::{Outcome, Work},
};
use super::{config::Access, path::AbsolutePath};

/// Refused logins after which the connection is closed.
const MAX_LOGIN_FAILURES: u32 = 3;

/// Lines that get no further before the login, after which the connection is closed: a scanner, not a client.
const MAX_LINES_BEFORE_LOGIN: u32 = 64;

/// A command under way, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What the configuration says about sessions, and who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Where the client's control connection comes from.
    pub peer: IpAddr,
    /// Who is let in.
    pub access: Access,
    /// Data connections must be TLS.
    pub private_data_only: bool,
    /// PORT may name other hosts than the client: third-party transfers.
    pub foreign_data_addresses: bool,
    /// Said in the greeting.
    pub greeting: String,
}

/// What happens to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A line came.
    Line(Result<Command, ParseError>),
    /// The TLS handshake asked for by [`Action::Secure`] is done.
    Secured {
        /// What the client showed.
        certificate: Shown,
    },
    /// A transfer says something before its end.
    Announce {
        /// Which.
        ticket: Ticket,
        /// A 1yz reply.
        reply: Reply,
    },
    /// A transfer moves.
    Progress {
        /// Which.
        ticket: Ticket,
        /// Bytes since it began.
        bytes: u64,
        /// Markers to show, which may be dropped.
        markers: Vec<Reply>,
    },
    /// A piece of a reply too long to hold, CR LF included. Only work that nothing waits before sends these.
    Piece {
        /// Of which command.
        ticket: Ticket,
        /// The text.
        text: Bytes,
    },
    /// All bytes of a transfer are in, and are being committed.
    Received {
        /// Which.
        ticket: Ticket,
    },
    /// A command has come to its end.
    Done {
        /// Which.
        ticket: Ticket,
        /// What came of it.
        outcome: Outcome,
    },
    /// This limit has passed.
    Expired(Limit),
    /// The gateway stops: finish what moves, take nothing new.
    Stopping,
    /// The client has closed its side.
    Left,
}

/// How long a client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// From the connection to the end of the login.
    Login,
    /// Without a command, once logged in.
    Idle,
}

/// What the driver must do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a reply.
    Send(Reply),
    /// Send text as it is.
    SendText(Bytes),
    /// Once what was sent is out, begin the TLS handshake. Whatever was read behind AUTH is an attack, and the end.
    Secure,
    /// Do this, and say what came of it.
    Run {
        /// The command's number.
        ticket: Ticket,
        /// What to do.
        work: Box<Work>,
    },
    /// Stop this work; it ends all the same with [`Event::Done`].
    Cancel {
        /// Which.
        ticket: Ticket,
    },
    /// Close the data connections.
    DropPort,
    /// Once what was sent is out, close the control connection.
    Close,
}

/// The certificate a client showed in the TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// None.
    Nothing,
    /// One that we trust.
    Trusted,
    /// One that we do not, and why.
    Refused(String),
}

/// How the control connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    Clear,
    Tls { certificate: bool },
}

/// How far a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Nobody is in.
    Open(Channel),
    /// The TLS handshake is under way.
    Securing,
    /// `USER` was said and a password is asked for, whatever it is.
    Named(Channel),
    /// The driver finds out whether they may come in.
    LoggingIn(Channel),
    /// They are in.
    Ready { channel: Channel, account: AccountName },
    /// The last reply is said.
    Leaving,
}

/// A command, or the refusal of a line, that waits for its turn.
#[derive(Debug)]
enum Waiting {
    Command(Command),
    Refused(Reply),
}

/// One control connection's state.
#[derive(Debug)]
pub struct Session {
    rules: Rules,
    phase: Phase,
    /// Why the certificate shown is not believed.
    refused_certificate: Option<String>,
    directory: AbsolutePath,
    settings: Settings,
    lane: Lane<Waiting>,
    /// What the driver was asked to listen for and has not answered yet.
    opening: Option<work::Opener>,
    login_failures: u32,
    lines_before_login: u32,
    stopping: bool,
}

impl Session {
    /// A connection that was just accepted, and its greeting.
    pub fn new(rules: Rules) -> (Self, Vec<Action>) {
        let greeting = Action::Send(Reply::new(220, rules.greeting.clone()));
        let session = Self {
            rules,
            phase: Phase::Open(Channel::Clear),
            refused_certificate: None,
            directory: AbsolutePath::root(),
            settings: Settings::new(),
            lane: Lane::new(),
            opening: None,
            login_failures: 0,
            lines_before_login: 0,
            stopping: false,
        };
        (session, vec![greeting])
    }

    /// Takes what happened, and says what the driver must now do. Pure: no clock, no I/O.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase == Phase::Leaving {
            return actions;
        }
        match event {
            Event::Line(line) => self.take_line(line, &mut actions),
            Event::Secured { certificate } => {
                if self.phase == Phase::Securing {
                    self.phase = Phase::Open(Channel::Tls { certificate: certificate == Shown::Trusted });
                    if let Shown::Refused(why) = certificate {
                        self.refused_certificate = Some(why);
                    }
                }
            }
            Event::Announce { ticket, reply } => self.lane.speak(ticket, reply, &mut actions),
            Event::Progress { ticket, bytes, markers } => self.lane.progress(ticket, bytes, markers, &mut actions),
            Event::Piece { ticket, text } => {
                if self.lane.may_speak(ticket) {
                    actions.push(Action::SendText(text));
                }
            }
            Event::Received { ticket } => self.received(ticket),
            Event::Done { ticket, outcome } => self.finish(ticket, outcome, &mut actions),
            Event::Expired(limit) => self.expire(limit, &mut actions),
            Event::Stopping => self.stopping = true,
            Event::Left => self.leave(None, &mut actions),
        }
        self.begin_what_may(&mut actions);
        if self.stopping && self.lane.is_empty() {
            self.leave(Some(Reply::new(421, "The gateway is stopping: connect again in a moment.")), &mut actions);
        }
        actions
    }

    /// Whether another line can be taken. If not, it stays in the socket.
    pub fn wants_line(&self) -> bool {
        !matches!(self.phase, Phase::Securing | Phase::Leaving) && self.lane.has_room()
    }

    /// The limit that holds now: none while something is under way, since work has limits of its own.
    pub fn limit(&self) -> Option<Limit> {
        match self.phase {
            Phase::Leaving => None,
            Phase::Ready { .. } => self.lane.is_empty().then_some(Limit::Idle),
            _ => Some(Limit::Login),
        }
    }

    /// The account, once somebody is in.
    pub fn account(&self) -> Option<&AccountName> {
        match &self.phase {
            Phase::Ready { account, .. } => Some(account),
            _ => None,
        }
    }

    fn channel(&self) -> Channel {
        match self.phase {
            Phase::Open(channel) | Phase::Named(channel) | Phase::LoggingIn(channel) | Phase::Ready { channel, .. } => {
                channel
            }
            Phase::Securing | Phase::Leaving => Channel::Clear,
        }
    }

    /// Takes a line: two commands act at once, all others get in line.
    fn take_line(&mut self, line: Result<Command, ParseError>, actions: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Ready { .. }) {
            self.lines_before_login += 1;
            if self.lines_before_login > MAX_LINES_BEFORE_LOGIN {
                return self.leave(Some(Reply::new(421, "Too many commands without a login.")), actions);
            }
        }
        match line {
            Err(error) => self.lane.queue(Waiting::Refused(error.reply())),
            Ok(Command::Abor) => self.abort(actions),
            Ok(Command::Stat(None)) if self.lane.moving().is_some() => actions.push(Action::Send(self.status())),
            Ok(_) if self.stopping => {
                let text = "The gateway is stopping: connect again in a moment.";
                self.lane.queue(Waiting::Refused(Reply::new(421, text)));
            }
            Ok(command) => self.lane.queue(Waiting::Command(command)),
        }
    }

    /// Stops what moves, refuses transfers that wait, and is answered after them.
    fn abort(&mut self, actions: &mut Vec<Action>) {
        if let Some((ticket, ..)) = self.lane.moving() {
            actions.push(Action::Cancel { ticket });
        }
        for waiting in self.lane.waiting_mut() {
            if matches!(waiting, Waiting::Command(command) if transfers::moves_data(command)) {
                *waiting = Waiting::Refused(Reply::new(426, "Aborted before it began."));
            }
        }
        self.lane.queue(Waiting::Command(Command::Abor));
    }

    /// Begins the commands whose turn has come.
    fn begin_what_may(&mut self, actions: &mut Vec<Action>) {
        while self.phase != Phase::Leaving && self.phase != Phase::Securing {
            let turn = match self.lane.first_waiting() {
                None => return,
                Some(Waiting::Refused(_)) => Turn::Quiet,
                Some(Waiting::Command(command)) => self.turn(command),
            };
            if !self.lane.may_begin(&turn) {
                return;
            }
            match self.lane.take_waiting() {
                Some(Waiting::Command(command)) => self.begin(command, actions),
                Some(Waiting::Refused(reply)) => self.lane.answer(reply, actions),
                None => return,
            }
        }
    }

    /// Runs work that is no transfer.
    fn run(&mut self, verb: &'static str, work: Work, actions: &mut Vec<Action>) {
        let ticket = self.lane.begin_work(verb);
        actions.push(Action::Run { ticket, work: Box::new(work) });
    }

    /// Takes the end of a command, and what it changed.
    fn finish(&mut self, ticket: Ticket, outcome: Outcome, actions: &mut Vec<Action>) {
        if matches!(outcome, Outcome::Broken(_)) {
            return self.leave(None, actions);
        }
        let reply = outcome.reply().clone();
        if !self.lane.finish(ticket, reply, actions) {
            return;
        }
        match outcome {
            Outcome::Replied(_) | Outcome::Broken(_) => {}
            Outcome::LoggedIn { account, home, .. } => {
                self.phase = Phase::Ready { channel: self.channel(), account };
                self.directory = home;
            }
            Outcome::LoginRefused(_) => {
                self.phase = Phase::Open(self.channel());
                self.login_failures += 1;
                if self.login_failures >= MAX_LOGIN_FAILURES {
                    self.leave(Some(Reply::new(421, "Too many refused logins.")), actions);
                }
            }
            Outcome::Entered(directory, _) => self.directory = directory,
            Outcome::RenameBegun(from, _) => self.settings.rename_from = Some(from),
            Outcome::CosChosen(cos, _) => self.settings.cos = Some(cos),
            Outcome::Listening(_) => self.listening(),
            Outcome::Transferred { reusable, .. } => self.transferred(ticket, reusable, actions),
        }
    }

    fn expire(&mut self, limit: Limit, actions: &mut Vec<Action>) {
        // The last command may have ended while the driver's timer went off.
        if self.limit() != Some(limit) {
            return;
        }
        let text = match limit {
            Limit::Login => "No login in time: closing.",
            Limit::Idle => "No command in time: closing.",
        };
        self.leave(Some(Reply::new(421, text)), actions);
    }

    /// Ends the session. What moves is stopped; what is committing and known to be whole goes on without us.
    fn leave(&mut self, reply: Option<Reply>, actions: &mut Vec<Action>) {
        if self.phase == Phase::Leaving {
            return;
        }
        actions.extend(self.lane.cancellable().map(|ticket| Action::Cancel { ticket }));
        self.lane.drop_waiting();
        actions.extend(reply.map(Action::Send));
        actions.extend([Action::DropPort, Action::Close]);
        self.phase = Phase::Leaving;
    }
}
