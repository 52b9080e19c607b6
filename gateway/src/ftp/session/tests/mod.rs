//! The session as a client and the driver see it: scripted, and with anything in any order.

mod anything;
mod transfers;

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use wire::ftp::TransferMode;

use super::{
    work::{AddressForm, Destination, Login, Opener, Retrieve, Store, Wanted},
    *,
};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
/// No reply.
const SILENT: [u16; 0] = [];

fn rules(access: Access) -> Rules {
    Rules {
        peer: PEER,
        access,
        private_data_only: false,
        foreign_data_addresses: false,
        greeting: "Penstock".to_owned(),
    }
}

/// A session and what its driver would keep of it.
struct Script {
    session: Session,
    running: Vec<(Ticket, Work)>,
    others: Vec<Action>,
}

impl Script {
    fn new(access: Access) -> Self {
        let (session, actions) = Session::new(rules(access));
        assert!(matches!(&actions[..], [Action::Send(reply)] if reply.code() == 220));
        Self { session, running: Vec::new(), others: Vec::new() }
    }

    /// Logged in over TLS as alice.
    fn ready() -> Self {
        let mut script = Self::new(Access::Certificate);
        assert_eq!(script.say("AUTH TLS"), [234]);
        script.event(Event::Secured { certificate: Shown::Trusted });
        assert_eq!(script.say("USER alice"), SILENT);
        assert_eq!(script.done(logged_in("alice")), [232]);
        script.others.clear();
        script
    }

    fn event(&mut self, event: Event) -> Vec<u16> {
        let mut codes = Vec::new();
        for action in self.session.apply(event) {
            match action {
                Action::Send(reply) => codes.push(reply.code()),
                Action::Run { ticket, work } => self.running.push((ticket, *work)),
                other => self.others.push(other),
            }
        }
        codes
    }

    fn say(&mut self, line: &str) -> Vec<u16> {
        self.event(Event::Line(Command::parse(line)))
    }

    /// The oldest work ends like this.
    fn done(&mut self, outcome: Outcome) -> Vec<u16> {
        let (ticket, _) = self.running.remove(0);
        self.event(Event::Done { ticket, outcome })
    }

    fn work(&self) -> &Work {
        &self.running.last().expect("work is under way").1
    }

    fn retrieve(&self) -> &Retrieve {
        match self.work() {
            Work::Retrieve(retrieve) => retrieve,
            other => panic!("not a retrieve: {other:?}"),
        }
    }

    fn store(&self) -> &Store {
        match self.work() {
            Work::Store(store) => store,
            other => panic!("not a store: {other:?}"),
        }
    }
}

fn logged_in(account: &str) -> Outcome {
    let account = AccountName::new(account).unwrap();
    Outcome::LoggedIn { account, home: AbsolutePath::root(), reply: Reply::new(232, "in") }
}

fn replied(code: u16) -> Outcome {
    Outcome::Replied(Reply::new(code, ""))
}

fn transferred(reusable: bool) -> Outcome {
    Outcome::Transferred { reply: Reply::new(226, ""), reusable }
}

#[test]
fn nothing_works_before_the_login_but_what_leads_there() {
    let mut script = Script::new(Access::Certificate);
    for line in ["FEAT", "HELP", "NOOP", "SYST", "LANG EN", "OPTS UTF8 ON", "CLNT curl", "STAT"] {
        let code = script.say(line)[0];
        assert!((200..300).contains(&code), "{line}: {code}");
    }
    for line in ["PWD", "CWD /", "RETR a", "STOR a", "PASV", "SITE HELP", "MKD x", "MLSD", "OPTS RETR Parallelism=2;"] {
        assert_eq!(script.say(line), [530], "{line}");
    }
    assert_eq!(script.say("USER alice"), [530], "AUTH comes first");
    assert_eq!(script.say("PASS x"), [503]);
    assert_eq!(script.say("PROT P"), [503]);
    assert_eq!(script.say("AUTH GSSAPI"), [504]);
    assert!(script.running.is_empty());
}

#[test]
fn a_certificate_logs_in_as_the_account_named_or_as_its_first() {
    for (user, account) in [("alice", Some("alice")), (":globus-mapping:", None), ("anonymous", None)] {
        let mut script = Script::new(Access::Certificate);
        assert_eq!(script.say("AUTH TLS"), [234]);
        assert_eq!(script.others, [Action::Secure]);
        assert!(!script.session.wants_line(), "what comes behind AUTH is the handshake");
        script.event(Event::Secured { certificate: Shown::Trusted });
        script.say(&format!("USER {user}"));
        let account = account.map(|name| AccountName::new(name).unwrap());
        assert_eq!(script.work(), &Work::Login(Login::Certificate { account }));
        assert_eq!(script.done(logged_in("alice")), [232]);
        assert_eq!(script.session.account().unwrap().as_str(), "alice");
        assert_eq!(script.say("PASS anything"), [230], "clients send it all the same");
        assert_eq!(script.say("USER alice"), [230]);
        assert_eq!(script.say("USER bob"), [503]);
        assert_eq!(script.say("AUTH TLS"), [503]);
        assert_eq!(script.say("REIN"), [502]);
    }
}

#[test]
fn three_refused_logins_close_the_connection() {
    let mut script = Script::new(Access::Certificate);
    script.say("AUTH TLS");
    script.event(Event::Secured { certificate: Shown::Trusted });
    for expected in [&[530][..], &[530], &[530, 421]] {
        script.say("USER mallory");
        assert_eq!(script.done(Outcome::LoginRefused(Reply::new(530, ""))), expected);
    }
    assert_eq!(script.others.last(), Some(&Action::Close));
    assert!(script.say("NOOP").is_empty());
}

#[test]
fn without_a_certificate_nobody_gets_in_unless_the_configuration_says_so() {
    for (access, tls, code) in [
        (Access::Certificate, false, 530),
        (Access::Certificate, true, 530),
        (Access::AnonymousOverTls, false, 530),
        (Access::AnonymousOverTls, true, 331),
        (Access::AnonymousInClear, false, 331),
        (Access::AnonymousInClear, true, 331),
    ] {
        let mut script = Script::new(access);
        if tls {
            script.say("AUTH TLS");
            script.event(Event::Secured { certificate: Shown::Nothing });
        }
        assert_eq!(script.say("USER anonymous"), [code], "{access:?} {tls}");
        if code == 331 {
            assert_eq!(script.say("PASS me@"), SILENT);
            assert_eq!(script.work(), &Work::Login(Login::Anonymous));
        }
        assert_eq!(Script::new(access).say("USER root"), [530], "a name needs a certificate");
    }
}

#[test]
fn a_bad_certificate_is_refused_with_its_reason_even_where_anybody_is_let_in() {
    let mut script = Script::new(Access::AnonymousOverTls);
    script.say("AUTH TLS");
    script.event(Event::Secured { certificate: Shown::Refused("proxy of Alice expired".to_owned()) });
    let actions = script.session.apply(Event::Line(Command::parse("USER anonymous")));
    match &actions[..] {
        [Action::Send(reply)] => assert!(reply.code() == 530 && reply.text().contains("expired")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn protection_comes_in_its_order() {
    let mut script = Script::ready();
    assert_eq!(script.say("PROT P"), [503]);
    assert_eq!(script.say("PBSZ 0"), [200]);
    assert_eq!(script.say("PROT P"), [200]);
    assert_eq!(script.say("PROT S"), [536]);
    assert_eq!(script.say("CCC"), [533]);
    script.say("EPSV");
    match script.work() {
        Work::Listen { port, form: AddressForm::Extended } => assert!(port.private && port.streams == 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rename_is_two_commands_in_a_row() {
    let mut script = Script::ready();
    assert_eq!(script.say("RNTO b"), [503]);
    for (between, code) in [(None, 350), (Some("NOOP"), 350), (Some("PWD"), 503)] {
        script.say("RNFR a");
        let from = AbsolutePath::root().join_text("a").unwrap();
        script.done(Outcome::RenameBegun(from, Reply::new(350, "")));
        if let Some(line) = between {
            script.say(line);
        }
        let said = script.say("RNTO b");
        if code == 503 {
            assert_eq!(said, [503]);
        } else {
            assert!(matches!(script.work(), Work::Names(work::NameWork::Rename { .. })));
            script.done(replied(250));
        }
    }
}

#[test]
fn limits_hold_where_they_should() {
    let mut script = Script::new(Access::Certificate);
    assert_eq!(script.session.limit(), Some(Limit::Login));
    assert_eq!(script.event(Event::Expired(Limit::Login)), [421]);
    let mut script = Script::ready();
    assert_eq!(script.session.limit(), Some(Limit::Idle));
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR a");
    assert_eq!(script.session.limit(), None, "a transfer has limits of its own");
    assert_eq!(script.event(Event::Expired(Limit::Idle)), SILENT, "a timer that comes too late does nothing");
    script.done(transferred(false));
    assert_eq!(script.event(Event::Expired(Limit::Idle)), [421]);
}

#[test]
fn a_gateway_that_stops_finishes_what_moves() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR a");
    assert_eq!(script.event(Event::Stopping), SILENT);
    assert_eq!(script.say("STOR b"), SILENT);
    assert_eq!(script.done(transferred(false)), [226, 421, 421]);
    assert_eq!(script.others.last(), Some(&Action::Close));
    assert_eq!(Script::ready().event(Event::Stopping), [421]);
}

#[test]
fn no_more_commands_are_taken_than_can_be_kept() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR a");
    let mut taken = 1;
    while script.session.wants_line() {
        script.say("NOOP");
        taken += 1;
    }
    assert_eq!(taken, lane::MAX_OUTSTANDING);
    assert_eq!(script.done(transferred(false)).len(), taken);
    assert!(script.session.wants_line());
}

#[test]
fn a_scanner_before_the_login_is_shown_the_door() {
    let mut script = Script::new(Access::Certificate);
    let codes: Vec<u16> = (0..200).flat_map(|_| script.say("GET / HTTP/1.1")).collect();
    assert_eq!(codes.len(), MAX_LINES_BEFORE_LOGIN as usize + 1);
    assert_eq!(codes.last(), Some(&421));
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let mut script = Script::ready();
    for (line, code) in [
        ("TYPE E", 504),
        ("TYPE L 36", 504),
        ("STRU R", 504),
        ("MODE B", 504),
        ("MODE C", 504),
        ("SITE SYMLINK a b", 502),
        ("SITE SETNETSTACK udt,gsi", 504),
        ("SMNT /x", 502),
        ("DCAU A", 504),
        ("DCAU N", 200),
        ("DCSC P abcd", 504),
        ("ENC abcd", 503),
        ("LANG DE", 504),
        ("TYPE L 8", 200),
        ("NONSENSE", 500),
    ] {
        assert_eq!(script.say(line), [code], "{line}");
    }
}
