//! The session as a client and the driver see it: scripted, and with anything in any order.

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
fn where_data_must_be_private_clear_data_is_refused() {
    let mut script = Script::ready();
    script.session.rules.private_data_only = true;
    script.say("PORT 192,0,2,7,8,0");
    assert_eq!(script.say("RETR a"), [521]);
    script.say("PBSZ 0");
    assert_eq!(script.say("PROT C"), [534]);
    script.say("PROT P");
    assert_eq!(script.say("RETR a"), SILENT);
    assert!(script.retrieve().carriage.port.private);
}

#[test]
fn curl_may_say_type_behind_epsv() {
    let mut script = Script::ready();
    script.say("EPSV");
    assert_eq!(script.done(Outcome::Listening(Reply::extended_passive(4000))), [229]);
    assert_eq!(script.say("TYPE I"), [200]);
    script.say("SIZE 10m");
    assert_eq!(script.done(replied(213)), [213]);
    assert_eq!(script.say("REST 100"), [350]);
    assert_eq!(script.say("RETR 10m"), SILENT);
    assert_eq!(script.retrieve().wanted, Wanted::From(100));
    assert_eq!(script.retrieve().carriage.port.opener, Opener::Passive { striped: false, ipv6: false });
    let ticket = script.running[0].0;
    assert_eq!(script.event(Event::Announce { ticket, reply: Reply::new(150, "") }), [150]);
    assert_eq!(script.done(transferred(false)), [226]);
    assert_eq!(script.say("RETR 10m"), [425], "in stream mode every transfer has its own connection");
}

#[test]
fn a_delayed_address_is_told_when_the_file_is_known() {
    let mut script = Script::ready();
    assert_eq!(script.say("OPTS PASV AllowDelayed=1;"), [200]);
    for (verb, form) in [("PASV", AddressForm::Comma), ("EPSV", AddressForm::Extended)] {
        assert_eq!(script.say(verb), [200]);
        assert_eq!(script.say("STOR f"), SILENT);
        assert_eq!(script.store().carriage.announce, Some(form));
        assert!(matches!(script.store().carriage.port.opener, Opener::Delayed { ipv6: false, .. }));
        script.done(transferred(false));
    }
}

#[test]
fn mode_e_keeps_its_connections_for_the_next_transfer() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("OPTS RETR Parallelism=4,4,4;");
    assert_eq!(script.say("PORT 192,0,2,7,171,157"), [200]);
    script.say("RETR f1");
    let carriage = &script.retrieve().carriage;
    assert_eq!((carriage.port.mode, carriage.port.streams, carriage.reused), (TransferMode::Extended, 4, false));
    script.done(transferred(true));
    script.others.clear();
    script.say("RETR f2");
    assert!(script.retrieve().carriage.reused);
    script.done(transferred(false));
    assert_eq!(script.others, [Action::DropPort]);
    script.say("RETR f3");
    assert!(!script.retrieve().carriage.reused, "connects again to the remembered PORT");
    script.done(transferred(true));
    script.say("PBSZ 0");
    script.say("PROT P");
    script.say("RETR f4");
    assert!(!script.retrieve().carriage.reused, "other protection, other connections");
}

#[test]
fn transfers_in_the_socket_move_one_after_the_other_and_commit_together() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("OPTS PASV AllowDelayed=1;");
    script.say("PASV");
    for name in ["a", "b", "a"] {
        assert_eq!(script.say(&format!("STOR {name}")), SILENT);
    }
    assert_eq!(script.running.len(), 1, "one moves at a time");
    let first = script.running[0].0;
    assert_eq!(script.event(Event::Announce { ticket: first, reply: Reply::new(150, "") }), [150]);
    script.event(Event::Received { ticket: first });
    assert_eq!(script.running.len(), 2, "the second moves while the first commits");
    let second = script.running[1].0;
    assert!(script.store().carriage.reused);
    assert_eq!(script.event(Event::Announce { ticket: second, reply: Reply::new(125, "") }), SILENT);
    script.event(Event::Received { ticket: second });
    assert_eq!(script.running.len(), 2, "the third writes the same file as the first: its commit comes first");
    assert_eq!(script.event(Event::Done { ticket: second, outcome: transferred(true) }), SILENT);
    assert_eq!(script.event(Event::Done { ticket: first, outcome: transferred(true) }), [226, 125, 226]);
    assert_eq!(script.running.len(), 3);
}

#[test]
fn restart_points_go_with_the_next_transfer_only() {
    let mut script = Script::ready();
    let port = "PORT 192,0,2,7,8,0";
    script.say(port);
    script.say("REST 500");
    script.say("ALLO 900");
    script.say("SCKS ADLER32 0A0B0C0D");
    script.say("STOR up");
    let store = script.store();
    assert_eq!((&store.into, store.size_bytes), (&Destination::From(500), Some(900)));
    assert_eq!(store.expected_sum.as_ref().unwrap().1, "0a0b0c0d");
    script.done(transferred(false));
    script.say(port);
    script.say("STOR up");
    let store = script.store();
    assert_eq!((&store.into, store.size_bytes, &store.expected_sum), (&Destination::Whole, None, &None));
    script.done(transferred(false));
    for (line, code) in [("APPE up", 503), ("ERET P 0 5 up", 503), ("ESTO A 5 up", 503), ("STOU", 503)] {
        script.say(port);
        script.say("REST 5");
        assert_eq!(script.say(line), [code], "{line}");
    }
    script.say(port);
    script.say("REST 0-10,20-30");
    assert_eq!(script.say("RETR up"), [501], "ranges are MODE E's");
}

#[test]
fn only_the_clients_own_unprivileged_ports_are_connected_to() {
    let mut script = Script::ready();
    for (line, code) in [
        ("PORT 192,0,2,7,8,0", 200),
        ("EPRT |1|192.0.2.7|2048|", 200),
        ("SPOR 192,0,2,7,8,0 192,0,2,7,8,1", 200),
        ("PORT 192,0,2,8,8,0", 504),
        ("PORT 192,0,2,7,0,25", 504),
        ("PORT 0,0,0,0,8,0", 501),
        ("EPRT |1|127.0.0.1|2048|", 504),
        ("EPRT |2|::1|2048|", 504),
        ("EPRT |2|::ffff:192.0.2.7|2048|", 200),
        ("SPOR 192,0,2,7,8,0 10,0,0,1,8,1", 504),
    ] {
        assert_eq!(script.say(line), [code], "{line}");
    }
    script.session.rules.foreign_data_addresses = true;
    assert_eq!(script.say("PORT 192,0,2,8,8,0"), [200]);
    assert_eq!(script.say("PORT 192,0,2,8,0,25"), [504]);
    assert_eq!(script.say("EPSV ALL"), [200]);
    for line in ["PORT 192,0,2,7,8,0", "EPRT |1|192.0.2.7|2048|", "PASV", "SPAS", "SPOR 192,0,2,7,8,0"] {
        assert_eq!(script.say(line), [503], "{line}");
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
fn abor_stops_what_moves_and_is_answered_behind_it() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("RETR a");
    script.say("NOOP");
    script.say("RETR b");
    let ticket = script.running[0].0;
    script.others.clear();
    assert_eq!(script.say("ABOR"), SILENT);
    assert_eq!(script.others, [Action::Cancel { ticket }]);
    let aborted = Outcome::Transferred { reply: Reply::new(426, ""), reusable: false };
    assert_eq!(script.done(aborted), [426, 200, 426, 226]);
    assert_eq!(script.say("ABOR"), [226], "nothing to stop is no error");
}

#[test]
fn stat_during_a_transfer_answers_at_once() {
    let mut script = Script::ready();
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR big");
    let ticket = script.running[0].0;
    script.event(Event::Progress { ticket, bytes: 4711, markers: Vec::new() });
    let actions = script.session.apply(Event::Line(Command::parse("STAT")));
    match &actions[..] {
        [Action::Send(reply)] => assert!(reply.code() == 211 && reply.text().contains("STOR /big: 4711 bytes")),
        other => panic!("{other:?}"),
    }
    assert_eq!(script.say("QUIT"), SILENT, "QUIT waits for the end");
    assert_eq!(script.done(transferred(false)), [226, 221]);
    assert_eq!(script.others.last(), Some(&Action::Close));
}

#[test]
fn a_client_that_leaves_takes_what_moves_with_it_but_not_what_commits() {
    let mut script = Script::ready();
    script.say("MODE E");
    script.say("PORT 192,0,2,7,8,0");
    script.say("STOR a");
    let first = script.running[0].0;
    script.event(Event::Received { ticket: first });
    script.say("STOR b");
    let second = script.running[1].0;
    script.others.clear();
    script.event(Event::Left);
    assert_eq!(script.others, [Action::Cancel { ticket: second }, Action::DropPort, Action::Close]);
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

#[test]
fn a_transaction_brings_its_mode_and_endpoint_along() {
    let mut script = Script::ready();
    assert_eq!(script.say("GET path=/a/b;mode=e;pasv;"), SILENT);
    let retrieve = script.retrieve();
    assert_eq!(retrieve.path.as_str(), "/a/b");
    assert_eq!(retrieve.carriage.announce, Some(AddressForm::Comma));
    assert_eq!(retrieve.carriage.port.mode, TransferMode::Extended);
    script.done(transferred(true));
    assert_eq!(script.say("PUT path=/c;port=10,0,0,1,8,0;"), [504]);
    assert_eq!(script.say("PUT path=/c;mode=b;"), [504]);
}

fn any_line() -> impl Strategy<Value = String> {
    let lines = vec![
        "AUTH TLS",
        "USER alice",
        "PASS x",
        "QUIT",
        "ABOR",
        "STAT",
        "NOOP",
        "PASV",
        "EPSV",
        "EPSV ALL",
        "SPAS",
        "PORT 192,0,2,7,8,0",
        "MODE E",
        "MODE S",
        "TYPE I",
        "PBSZ 0",
        "PROT P",
        "PROT C",
        "REST 5",
        "REST 0-5",
        "ALLO 5",
        "RETR a",
        "RETR b",
        "STOR a",
        "STOR b",
        "APPE a",
        "STOU",
        "ERET P 0 5 a",
        "ESTO A 5 a",
        "LIST",
        "MLSD",
        "NLST",
        "MLST a",
        "MLSC",
        "STAT a",
        "CWD a",
        "CDUP",
        "PWD",
        "RNFR a",
        "RNTO b",
        "DELE a",
        "MKD a",
        "OPTS PASV AllowDelayed=1;",
        "OPTS RETR Parallelism=4,4,4;",
        "GET path=a;mode=e;pasv;",
        "SITE STAGE a",
        "FEAT",
        "SITE HELP",
        "CKSM ADLER32 0 -1 a",
        "SIZE a",
        "LANG",
        "x",
        "",
    ];
    prop_oneof![8 => proptest::sample::select(lines).prop_map(str::to_owned), 1 => any::<String>()]
}

#[derive(Debug, Clone)]
enum Happening {
    Line(String),
    Secured(bool),
    End(usize, u8),
    Received(usize),
    Announce(usize),
    Progress(usize),
    Stray(u64),
    Expired(bool),
    Stopping,
    Left,
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        20 => any_line().prop_map(Happening::Line),
        3 => any::<bool>().prop_map(Happening::Secured),
        10 => (0usize..4, any::<u8>()).prop_map(|(which, how)| Happening::End(which, how)),
        4 => (0usize..4).prop_map(Happening::Received),
        4 => (0usize..4).prop_map(Happening::Announce),
        2 => (0usize..4).prop_map(Happening::Progress),
        1 => (0u64..300).prop_map(Happening::Stray),
        1 => any::<bool>().prop_map(Happening::Expired),
        1 => Just(Happening::Stopping),
        1 => Just(Happening::Left),
    ]
}

proptest! {
    /// Whatever a client says and however work ends: no panic, every line is answered once (with one reply that is not
    /// preliminary) unless the session ends first, at most one transfer moves, and nothing runs before the login.
    #[test]
    fn anything_in_any_order_keeps_the_session_in_step(happenings in proptest::collection::vec(any_happening(), 0..120)) {
        let mut script = Script::new(Access::AnonymousOverTls);
        let (mut lines, mut answers, mut left) = (0usize, 0usize, false);
        for happening in happenings {
            let pick = |which: usize| script.running.get(which).map(|(ticket, _)| *ticket);
            let event = match happening {
                Happening::Line(line) => {
                    if !script.session.wants_line() {
                        continue;
                    }
                    lines += 1;
                    Event::Line(Command::parse(&line))
                }
                Happening::Secured(true) => Event::Secured { certificate: Shown::Trusted },
                Happening::Secured(false) => Event::Secured { certificate: Shown::Nothing },
                Happening::End(which, how) => {
                    if which >= script.running.len() {
                        continue;
                    }
                    let (ticket, work) = script.running.remove(which);
                    let outcome = match work {
                        Work::Login(_) if how % 4 == 0 => Outcome::LoginRefused(Reply::new(530, "")),
                        Work::Login(_) => logged_in("alice"),
                        Work::Listen { .. } if how % 4 > 0 => Outcome::Listening(Reply::new(227, "")),
                        Work::Retrieve(_) | Work::Store(_) | Work::List(_) => transferred(how % 2 == 0),
                        _ => replied(250),
                    };
                    Event::Done { ticket, outcome }
                }
                Happening::Received(which) => match pick(which) {
                    Some(ticket) => Event::Received { ticket },
                    None => continue,
                },
                Happening::Announce(which) => match pick(which) {
                    Some(ticket) => Event::Announce { ticket, reply: Reply::new(150, "") },
                    None => continue,
                },
                Happening::Progress(which) => match pick(which) {
                    Some(ticket) => Event::Progress { ticket, bytes: 1, markers: vec![Reply::new(112, "")] },
                    None => continue,
                },
                Happening::Stray(number) => Event::Done { ticket: Ticket(number + 1_000_000), outcome: replied(200) },
                Happening::Expired(login) => Event::Expired(if login { Limit::Login } else { Limit::Idle }),
                Happening::Stopping => Event::Stopping,
                Happening::Left => Event::Left,
            };
            let was_ready = script.session.account().is_some();
            let before = script.running.len();
            let codes = script.event(event);
            answers += codes.iter().filter(|code| **code >= 200).count();
            let logging_in = matches!(script.running.last(), Some((_, Work::Login(_))));
            prop_assert!(was_ready || script.running.len() == before || logging_in || script.session.account().is_some());
            let open = script.running.iter().filter(|(_, work)| matches!(work, Work::Login(_))).count();
            prop_assert!(open <= 1);
            left = script.others.contains(&Action::Close);
            // A closing session says one thing more, and drops what waits.
            prop_assert!(answers <= lines + usize::from(left));
        }
        if !left {
            while !script.running.is_empty() {
                let (_, work) = &script.running[0];
                let outcome = if matches!(work, Work::Login(_)) { logged_in("alice") } else { replied(250) };
                answers += script.done(outcome).iter().filter(|code| **code >= 200).count();
            }
            if !script.others.contains(&Action::Close) {
                prop_assert_eq!(answers, lines, "every line is answered once");
                prop_assert!(script.session.lane.is_empty());
            }
        }
    }
}
